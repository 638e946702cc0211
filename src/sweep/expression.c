/*
 * expression.c: a parser by recursive descent that writes postfix code, and the machine that runs
 * it. Parsing checks all that can be wrong, so evaluation cannot fail: it takes no memory, and its
 * stack is bounded because the depth of nesting is.
 */
#include "expression.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_DEPTH = 100,           /* of nesting: a pair of parentheses is two */
    MAX_STACK = 4 * MAX_DEPTH, /* values: those pairs have 6 operators that wait, at most */
    MAX_SHOWN = 160,           /* bytes of an expression that is shown whole */
};

typedef enum opcode {
    OP_NUMBER,
    OP_TEXT,
    OP_NAME,
    OP_OR,
    OP_AND,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_MOD,
    OP_POW,
    OP_MIN,
    OP_MAX,
    OP_NOT, /* from here on: of one value */
    OP_NEGATE,
    OP_ABS,
    OP_LOG2,
    OP_CEIL,
    OP_FLOOR,
    OP_HAS
} opcode;

typedef struct instruction {
    opcode op;
    size_t name;   /* OP_NAME: index in names */
    double number; /* OP_NUMBER */
    char *text;    /* OP_TEXT */
} instruction;

typedef struct reference {
    char *name;
    size_t at;    /* its first use in the text */
    size_t bound; /* index in the list of the caller */
} reference;

struct sweep_expression {
    kb_arena arena;
    char *origin, *text;
    KB_VEC(instruction) code;
    KB_VEC(reference) names;
    bool is_bound;
};

/* ---- Errors ------------------------------------------------------------------------------ */

/* Adds the expression to an error, with a mark below the place, if that fits a line of a terminal.
 */
static void point_at(kb_error *err, const char *text, size_t at)
{
    size_t length = strlen(text);
    if (length > MAX_SHOWN)
        return;
    for (size_t i = 0; i < length; i++)
        if (text[i] < ' ' || text[i] > '~')
            return;
    kb_error_add_detail(err, "  %s", text);
    kb_error_add_detail(err, "  %*s^", (int)at, "");
}

/* ---- Words ------------------------------------------------------------------------------- */

typedef enum token {
    T_END,
    T_NUMBER,
    T_TEXT,
    T_NAME,
    T_QUOTED_NAME, /* never a keyword or a function */
    T_SYMBOL
} token;

typedef struct parser {
    sweep_expression *e;
    const char *next;  /* after the current token */
    token kind;        /* of the current token */
    const char *start; /* of the current token */
    size_t length;     /* of what is between its quotes, or of the whole token */
    const char *content;
    double number;
    int depth;
} parser;

static size_t position(const parser *p)
{
    return (size_t)(p->start - p->e->text);
}

/* The current token, as a message has it. */
static const char *found(const parser *p, kb_text *buffer)
{
    enum { MAX_WORD = 40 };
    if (p->kind == T_END)
        return "the end";
    size_t length = (size_t)(p->next - p->start);
    kb_text_puts(buffer, "'");
    kb_text_append(buffer, p->start, length < MAX_WORD ? length : MAX_WORD);
    kb_text_puts(buffer, length < MAX_WORD ? "'" : "...'");
    return kb_text_peek(buffer);
}

static kb_error *refuse(const parser *p, const char *problem)
{
    kb_error *err =
        kb_error_new(KB_ERR_INPUT, "%s: %s, at column %zu", p->e->origin, problem, position(p) + 1);
    point_at(err, p->e->text, position(p));
    return err;
}

static kb_error *refuse_token(const parser *p, const char *expected)
{
    kb_text buffer = KB_TEXT_INIT, problem = KB_TEXT_INIT;
    kb_text_printf(&problem, "expected %s, found %s", expected, found(p, &buffer));
    kb_error *err = refuse(p, kb_text_peek(&problem));
    kb_text_fini(&problem);
    kb_text_fini(&buffer);
    return err;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* The end of a number with its unit: digits, letters and dots, and the sign of an exponent. */
static const char *end_of_number(const char *s)
{
    while (is_digit(*s) || is_letter(*s) || *s == '.' ||
           ((*s == '+' || *s == '-') && (s[-1] == 'e' || s[-1] == 'E') && is_digit(s[1])))
        s++;
    return s;
}

static kb_error *read_number(parser *p)
{
    enum { MAX_DIGITS = 64 };
    p->kind = T_NUMBER;
    p->next = end_of_number(p->start);
    char buffer[MAX_DIGITS];
    size_t length = (size_t)(p->next - p->start);
    uint64_t bytes;
    if (length < sizeof buffer) {
        memcpy(buffer, p->start, length);
        buffer[length] = '\0';
        if (sweep_read_number(buffer, &p->number))
            return NULL;
        if (kb_bytes_parse(buffer, &bytes)) {
            p->number = (double)bytes;
            return NULL;
        }
    }
    return refuse_token(p, "a number, or a whole number with a unit of bytes such as 4KiB");
}

static kb_error *read_quoted(parser *p)
{
    char quote = *p->start;
    p->kind = quote == '`' ? T_QUOTED_NAME : T_TEXT;
    p->content = p->start + 1;
    const char *end = strchr(p->content, quote);
    if (!end || end == p->content) {
        p->next = end ? end + 1 : p->start + strlen(p->start);
        return refuse(p, !end ? "the closing quote is missing" : "nothing is between the quotes");
    }
    p->length = (size_t)(end - p->content);
    p->next = end + 1;
    return NULL;
}

static kb_error *read_symbol(parser *p)
{
    static const char *const symbols[] = {"==", "!=", "<=", ">=", "<", ">", "+", "-",
                                          "*",  "/",  "%",  "^",  "(", ")", ","};
    p->kind = T_SYMBOL;
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        p->length = strlen(symbols[i]);
        p->next = p->start + p->length;
        if (strncmp(p->start, symbols[i], p->length) == 0)
            return NULL;
    }
    p->length = 1;
    p->next = p->start + 1;
    if (*p->start == '=')
        return refuse(p, "'=' compares as '=='");
    if (*p->start == '&' || *p->start == '|' || *p->start == '!')
        return refuse(p, "conditions are joined by the words 'and', 'or' and 'not'");
    while ((*p->next & 0xc0) == 0x80)
        p->next++; /* the rest of a character of UTF-8 */
    return refuse_token(p, "a number, a name, a text in quotes or an operator");
}

/* Reads the next token. */
static kb_error *advance(parser *p)
{
    p->start = p->next + strspn(p->next, " \t\r\n");
    p->content = p->start;
    if (*p->start == '\0') {
        p->kind = T_END;
        p->length = 0;
        p->next = p->start;
        return NULL;
    }
    if (is_digit(*p->start) || (*p->start == '.' && is_digit(p->start[1])))
        return read_number(p);
    if (*p->start == '"' || *p->start == '\'' || *p->start == '`')
        return read_quoted(p);
    if (!is_letter(*p->start))
        return read_symbol(p);
    p->kind = T_NAME;
    p->next = p->start;
    while (is_letter(*p->next) || is_digit(*p->next) || *p->next == '.')
        p->next++;
    p->length = (size_t)(p->next - p->start);
    return NULL;
}

/* Whether the current token is that symbol or keyword. */
static bool at(const parser *p, const char *word)
{
    return (p->kind == T_SYMBOL || p->kind == T_NAME) && strlen(word) == p->length &&
           strncmp(p->start, word, p->length) == 0;
}

/* ---- Parsing ----------------------------------------------------------------------------- */

/* What an operand can be: texts are only compared. */
typedef enum operand { NUMBER, TEXT, UNKNOWN } operand;

static kb_error *parse_or(parser *p, operand *kind);

static kb_error *emit(parser *p, instruction i)
{
    return kb_vec_push(&p->e->code, i) ? NULL : kb_error_nomem();
}

static kb_error *emit_op(parser *p, opcode op, operand *kind)
{
    *kind = NUMBER;
    return emit(p, (instruction){.op = op});
}

/* An operator of the current token, in a table of a level of precedence. */
typedef struct operator_word {
    const char *word;
    opcode op;
} operator_word;

static bool find_operator(const parser *p, const operator_word *words, size_t count, opcode *op)
{
    for (size_t i = 0; i < count; i++) {
        if (at(p, words[i].word)) {
            *op = words[i].op;
            return true;
        }
    }
    return false;
}

/* Texts are operands of == and != alone. */
static kb_error *expect_number(const parser *operand_start, operand kind)
{
    if (kind != TEXT)
        return NULL;
    return refuse(operand_start, "a text can only be compared, with == or !=");
}

static kb_error *emit_name(parser *p, operand *kind)
{
    sweep_expression *e = p->e;
    size_t i = 0;
    while (i < e->names.count && (strlen(e->names.items[i].name) != p->length ||
                                  strncmp(e->names.items[i].name, p->content, p->length) != 0))
        i++;
    if (i == e->names.count) {
        char *name = kb_arena_strndup(&e->arena, p->content, p->length);
        if (!name || !kb_vec_push(&e->names, ((reference){.name = name, .at = position(p)})))
            return kb_error_nomem();
    }
    *kind = UNKNOWN;
    return emit(p, (instruction){.op = OP_NAME, .name = i});
}

static kb_error *expect_symbol(parser *p, const char *symbol, const char *expected)
{
    return at(p, symbol) ? advance(p) : refuse_token(p, expected);
}

static kb_error *enter(parser *p)
{
    return ++p->depth > MAX_DEPTH ? refuse(p, "nested too deeply") : NULL;
}

static const operator_word functions[] = {{"min", OP_MIN},   {"max", OP_MAX},   {"abs", OP_ABS},
                                          {"log2", OP_LOG2}, {"ceil", OP_CEIL}, {"floor", OP_FLOOR},
                                          {"has", OP_HAS}};
enum { FUNCTIONS = sizeof functions / sizeof functions[0] };

/* has(name): not of an expression, which has a value whenever its names have. */
static kb_error *parse_has(parser *p, operand *kind)
{
    if (p->kind != T_NAME && p->kind != T_QUOTED_NAME)
        return refuse_token(p, "a name");
    KB_TRY(emit_name(p, kind));
    KB_TRY(advance(p));
    KB_TRY(expect_symbol(p, ")", "')' after the name"));
    return emit_op(p, OP_HAS, kind);
}

/* The current token is behind the parenthesis. */
static kb_error *parse_arguments(parser *p, opcode op, operand *kind)
{
    if (op == OP_HAS)
        return parse_has(p, kind);
    for (size_t count = 0;; count++) {
        parser start = *p;
        KB_TRY(parse_or(p, kind));
        KB_TRY(expect_number(&start, *kind));
        if (op > OP_NOT || count > 0)
            KB_TRY(emit_op(p, op, kind));
        if (op > OP_NOT || !at(p, ","))
            break;
        KB_TRY(advance(p));
    }
    *kind = NUMBER;
    return expect_symbol(p, ")", op > OP_NOT ? "')' after the argument" : "',' or ')'");
}

static kb_error *refuse_function(const parser *p)
{
    const char *names[FUNCTIONS];
    for (size_t i = 0; i < FUNCTIONS; i++)
        names[i] = functions[i].word;
    char word[KB_SUGGEST_MAX + 1];
    size_t length = p->length < KB_SUGGEST_MAX ? p->length : KB_SUGGEST_MAX;
    memcpy(word, p->start, length);
    word[length] = '\0';
    kb_suggestion near;
    kb_suggestion_search(&near, word, names, FUNCTIONS);
    kb_text problem = KB_TEXT_INIT;
    kb_text_printf(&problem, "unknown function '%s'%s", word, kb_suggestion_full(&near, ""));
    kb_error *err = refuse(p, kb_text_peek(&problem));
    kb_text_fini(&problem);
    return err;
}

/* A name, or the call of a function. */
static kb_error *parse_name(parser *p, operand *kind)
{
    parser start = *p;
    KB_TRY(advance(p));
    if (start.kind == T_NAME && at(p, "(")) {
        opcode op;
        if (!find_operator(&start, functions, FUNCTIONS, &op))
            return refuse_function(&start);
        KB_TRY(advance(p));
        return parse_arguments(p, op, kind);
    }
    return emit_name(&start, kind);
}

static kb_error *parse_value(parser *p, operand *kind)
{
    if (p->kind == T_NUMBER) {
        *kind = NUMBER;
        KB_TRY(emit(p, (instruction){.op = OP_NUMBER, .number = p->number}));
        return advance(p);
    }
    if (p->kind == T_TEXT) {
        char *text = kb_arena_strndup(&p->e->arena, p->content, p->length);
        if (!text)
            return kb_error_nomem();
        *kind = TEXT;
        KB_TRY(emit(p, (instruction){.op = OP_TEXT, .text = text}));
        return advance(p);
    }
    if (at(p, "(")) {
        KB_TRY(advance(p));
        KB_TRY(parse_or(p, kind));
        return expect_symbol(p, ")", "an operator or ')'");
    }
    if (p->kind == T_QUOTED_NAME ||
        (p->kind == T_NAME && !at(p, "and") && !at(p, "or") && !at(p, "not")))
        return parse_name(p, kind);
    return refuse_token(p, "a value: a number, a name, a text in quotes or '('");
}

static kb_error *parse_unary(parser *p, operand *kind);

static kb_error *parse_power(parser *p, operand *kind)
{
    parser start = *p;
    KB_TRY(parse_value(p, kind));
    if (!at(p, "^"))
        return NULL;
    KB_TRY(expect_number(&start, *kind));
    KB_TRY(advance(p));
    start = *p;
    KB_TRY(parse_unary(p, kind)); /* so 2^-1 and 2^3^2 need no parentheses */
    KB_TRY(expect_number(&start, *kind));
    return emit_op(p, OP_POW, kind);
}

static kb_error *parse_unary(parser *p, operand *kind)
{
    KB_TRY(enter(p));
    if (at(p, "-")) {
        KB_TRY(advance(p));
        parser start = *p;
        KB_TRY(parse_unary(p, kind));
        KB_TRY(expect_number(&start, *kind));
        KB_TRY(emit_op(p, OP_NEGATE, kind));
    } else {
        KB_TRY(parse_power(p, kind));
    }
    p->depth--;
    return NULL;
}

/* A level of operators that group from the left. */
typedef struct level {
    const operator_word *words;
    size_t count;
    kb_error *(*operand)(parser *p, operand *kind);
} level;

static kb_error *parse_level(parser *p, const level *l, operand *kind)
{
    parser start = *p;
    opcode op;
    KB_TRY(l->operand(p, kind));
    while (find_operator(p, l->words, l->count, &op)) {
        KB_TRY(expect_number(&start, *kind));
        KB_TRY(advance(p));
        start = *p;
        KB_TRY(l->operand(p, kind));
        KB_TRY(expect_number(&start, *kind));
        KB_TRY(emit_op(p, op, kind));
    }
    return NULL;
}

static kb_error *parse_product(parser *p, operand *kind)
{
    static const operator_word words[] = {{"*", OP_MUL}, {"/", OP_DIV}, {"%", OP_MOD}};
    static const level products = {words, sizeof words / sizeof words[0], parse_unary};
    return parse_level(p, &products, kind);
}

static kb_error *parse_sum(parser *p, operand *kind)
{
    static const operator_word words[] = {{"+", OP_ADD}, {"-", OP_SUB}};
    static const level sums = {words, sizeof words / sizeof words[0], parse_product};
    return parse_level(p, &sums, kind);
}

static kb_error *parse_comparison(parser *p, operand *kind)
{
    static const operator_word words[] = {{"==", OP_EQ}, {"!=", OP_NE}, {"<=", OP_LE},
                                          {">=", OP_GE}, {"<", OP_LT},  {">", OP_GT}};
    enum { WORDS = sizeof words / sizeof words[0] };
    parser start = *p;
    opcode op, next;
    KB_TRY(parse_sum(p, kind));
    if (!find_operator(p, words, WORDS, &op))
        return NULL;
    bool is_equality = op == OP_EQ || op == OP_NE;
    if (!is_equality)
        KB_TRY(expect_number(&start, *kind));
    KB_TRY(advance(p));
    start = *p;
    KB_TRY(parse_sum(p, kind));
    if (!is_equality)
        KB_TRY(expect_number(&start, *kind));
    if (find_operator(p, words, WORDS, &next))
        return refuse(p, "comparisons do not chain: write 'a < b and b < c'");
    return emit_op(p, op, kind);
}

static kb_error *parse_not(parser *p, operand *kind)
{
    KB_TRY(enter(p));
    if (at(p, "not")) {
        KB_TRY(advance(p));
        parser start = *p;
        KB_TRY(parse_not(p, kind));
        KB_TRY(expect_number(&start, *kind));
        KB_TRY(emit_op(p, OP_NOT, kind));
    } else {
        KB_TRY(parse_comparison(p, kind));
    }
    p->depth--;
    return NULL;
}

static kb_error *parse_and(parser *p, operand *kind)
{
    static const operator_word words[] = {{"and", OP_AND}};
    static const level conjunctions = {words, 1, parse_not};
    return parse_level(p, &conjunctions, kind);
}

static kb_error *parse_or(parser *p, operand *kind)
{
    static const operator_word words[] = {{"or", OP_OR}};
    static const level disjunctions = {words, 1, parse_and};
    return parse_level(p, &disjunctions, kind);
}

static kb_error *parse_all(parser *p)
{
    operand kind;
    KB_TRY(advance(p));
    if (p->kind == T_END)
        return refuse(p, "the expression is empty");
    parser start = *p;
    KB_TRY(parse_or(p, &kind));
    if (p->kind != T_END)
        return refuse_token(p, "an operator or the end");
    return expect_number(&start, kind);
}

kb_error *sweep_expression_parse(const char *origin, const char *text, sweep_expression **out)
{
    sweep_expression *e = kb_alloc_zeroed(1, sizeof *e);
    if (!e)
        return kb_error_nomem();
    kb_arena_init(&e->arena);
    e->origin = kb_arena_strdup(&e->arena, origin);
    e->text = kb_arena_strdup(&e->arena, text);
    if (!e->origin || !e->text) {
        sweep_expression_destroy(e);
        return kb_error_nomem();
    }
    parser p = {.e = e, .next = e->text};
    kb_error *err = parse_all(&p);
    if (err) {
        sweep_expression_destroy(e);
        return err;
    }
    *out = e;
    return NULL;
}

void sweep_expression_destroy(sweep_expression *e)
{
    if (!e)
        return;
    kb_vec_fini(&e->code);
    kb_vec_fini(&e->names);
    kb_arena_fini(&e->arena);
    free(e);
}

const char *sweep_expression_text(const sweep_expression *e)
{
    return e->text;
}

kb_error *sweep_expression_bind(sweep_expression *e, const char *const *names, size_t count)
{
    e->is_bound = false;
    for (size_t i = 0; i < e->names.count; i++) {
        reference *r = &e->names.items[i];
        kb_error *err = sweep_find_name("name", r->name, names, count, &r->bound);
        if (err) {
            point_at(err, e->text, r->at);
            return kb_error_wrap(err, "%s", e->origin);
        }
    }
    e->is_bound = true;
    return NULL;
}

/* ---- Evaluation -------------------------------------------------------------------------- */

static bool is_zero(double x)
{
    return !(x < 0) && !(x > 0);
}

static sweep_value truth(bool condition)
{
    return sweep_number(condition ? 1 : 0);
}

static bool is_false(sweep_value v)
{
    return !v.none && v.is_number && is_zero(v.number);
}

static bool is_true(sweep_value v)
{
    return !v.none && v.is_number && !is_zero(v.number);
}

/* What one operand decides holds even if the other is missing. */
static sweep_value logical(opcode op, sweep_value a, sweep_value b)
{
    if (op == OP_AND ? is_false(a) || is_false(b) : is_true(a) || is_true(b))
        return truth(op == OP_OR);
    if (op == OP_AND ? is_true(a) && is_true(b) : is_false(a) && is_false(b))
        return truth(op == OP_AND);
    return SWEEP_NONE;
}

static sweep_value arithmetic(opcode op, double a, double b)
{
    switch (op) {
    case OP_LT:
        return truth(a < b);
    case OP_LE:
        return truth(a <= b);
    case OP_GT:
        return truth(a > b);
    case OP_GE:
        return truth(a >= b);
    case OP_ADD:
        return sweep_number(a + b);
    case OP_SUB:
        return sweep_number(a - b);
    case OP_MUL:
        return sweep_number(a * b);
    case OP_DIV:
        return sweep_number(a / b);
    case OP_MOD:
        return sweep_number(fmod(a, b));
    case OP_POW:
        return sweep_number(pow(a, b));
    case OP_MIN:
        return sweep_number(kb_min(a, b));
    default:
        KB_ASSERT(op == OP_MAX);
        return sweep_number(kb_max(a, b));
    }
}

static sweep_value binary(opcode op, sweep_value a, sweep_value b)
{
    if (op == OP_AND || op == OP_OR)
        return logical(op, a, b);
    if (a.none || b.none)
        return SWEEP_NONE;
    if (op == OP_EQ || op == OP_NE)
        return truth(sweep_values_equal(a, b) == (op == OP_EQ));
    return a.is_number && b.is_number ? arithmetic(op, a.number, b.number) : SWEEP_NONE;
}

static sweep_value unary(opcode op, sweep_value a)
{
    if (op == OP_HAS)
        return truth(!a.none);
    if (a.none || !a.is_number)
        return SWEEP_NONE;
    switch (op) {
    case OP_NOT:
        return truth(is_zero(a.number));
    case OP_NEGATE:
        return sweep_number(-a.number);
    case OP_ABS:
        return sweep_number(fabs(a.number));
    case OP_LOG2:
        return sweep_number(log2(a.number));
    case OP_CEIL:
        return sweep_number(ceil(a.number));
    default:
        KB_ASSERT(op == OP_FLOOR);
        return sweep_number(floor(a.number));
    }
}

sweep_value sweep_expression_evaluate(const sweep_expression *e, sweep_get_value *get,
                                      const void *self)
{
    KB_ASSERT(e->is_bound || e->names.count == 0);
    sweep_value stack[MAX_STACK];
    size_t top = 0;
    for (size_t i = 0; i < e->code.count; i++) {
        const instruction *in = &e->code.items[i];
        if (in->op <= OP_NAME) {
            KB_ASSERT(top < MAX_STACK);
            stack[top++] = in->op == OP_NUMBER ? sweep_number(in->number)
                           : in->op == OP_TEXT ? (sweep_value){.text = in->text}
                                               : get(self, e->names.items[in->name].bound);
        } else if (in->op < OP_NOT) {
            top--;
            stack[top - 1] = binary(in->op, stack[top - 1], stack[top]);
        } else {
            stack[top - 1] = unary(in->op, stack[top - 1]);
        }
    }
    KB_ASSERT(top == 1);
    /* The value of a name alone may be a text, and have one if it is a number. */
    return stack[0].none || !stack[0].is_number ? SWEEP_NONE : sweep_number(stack[0].number);
}

bool sweep_expression_holds(const sweep_expression *e, sweep_get_value *get, const void *self)
{
    return is_true(sweep_expression_evaluate(e, get, self));
}
