/*
 * rules.c: the table of rules, and its application to given shapes. kb_dtensor_print_rules() prints
 * the table for the documents; a test checks every rule.
 *
 * Every operation is linear in an operand that may be Partial(sum), so the sum of terms can be
 * computed after it; the same holds for averages. max and min can be computed after an operation
 * that preserves the order of numbers and is defined for all of them: not sqrt, because a term may
 * be negative although the maximum is not.
 */
#include "rules.h"

#include <stdio.h>
#include <string.h>

#define BIT(class) (1u << DT_OP_##class)
#define BINARY (BIT(ADD) | BIT(MUL) | BIT(DIV) | BIT(MAXIMUM) | BIT(MINIMUM))
#define UNARY (BIT(NEG) | BIT(MONOTONE) | BIT(UNARY))
#define REDUCTION (BIT(SUM) | BIT(MAX) | BIT(MIN))

const dt_rule dt_rules[] = {
    {BIT(MATMUL), DT_REPLICATE, DT_REPLICATE, DT_REPLICATE},
    {BIT(MATMUL), DT_SHARD_M, DT_REPLICATE, DT_SHARD_M},
    {BIT(MATMUL), DT_REPLICATE, DT_SHARD_N, DT_SHARD_N},
    {BIT(MATMUL), DT_SHARD_K, DT_SHARD_K, DT_PARTIAL_SUM},
    {BIT(MATMUL), DT_PARTIAL_SUM, DT_REPLICATE, DT_PARTIAL_SUM},
    {BIT(MATMUL), DT_REPLICATE, DT_PARTIAL_SUM, DT_PARTIAL_SUM},
    {BIT(MATMUL), DT_PARTIAL_AVG, DT_REPLICATE, DT_PARTIAL_AVG},
    {BIT(MATMUL), DT_REPLICATE, DT_PARTIAL_AVG, DT_PARTIAL_AVG},

    {BINARY, DT_REPLICATE, DT_REPLICATE, DT_REPLICATE},
    {BINARY, DT_SHARD, DT_SHARD, DT_SHARD},
    {BINARY, DT_SHARD, DT_BROADCAST, DT_SHARD},
    {BINARY, DT_BROADCAST, DT_SHARD, DT_SHARD},
    {BIT(ADD), DT_PARTIAL_SUM, DT_PARTIAL_SUM, DT_PARTIAL_SUM},
    {BIT(ADD), DT_PARTIAL_AVG, DT_PARTIAL_AVG, DT_PARTIAL_AVG},
    {BIT(MUL) | BIT(DIV), DT_PARTIAL_SUM, DT_REPLICATE, DT_PARTIAL_SUM},
    {BIT(MUL), DT_REPLICATE, DT_PARTIAL_SUM, DT_PARTIAL_SUM},
    {BIT(MUL) | BIT(DIV), DT_PARTIAL_AVG, DT_REPLICATE, DT_PARTIAL_AVG},
    {BIT(MUL), DT_REPLICATE, DT_PARTIAL_AVG, DT_PARTIAL_AVG},
    {BIT(MUL) | BIT(DIV), DT_PARTIAL_PROD, DT_PARTIAL_PROD, DT_PARTIAL_PROD},
    {BIT(MAXIMUM), DT_PARTIAL_MAX, DT_PARTIAL_MAX, DT_PARTIAL_MAX},
    {BIT(MINIMUM), DT_PARTIAL_MIN, DT_PARTIAL_MIN, DT_PARTIAL_MIN},

    {UNARY, DT_REPLICATE, DT_NONE, DT_REPLICATE},
    {UNARY, DT_SHARD, DT_NONE, DT_SHARD},
    {BIT(NEG), DT_PARTIAL_SUM, DT_NONE, DT_PARTIAL_SUM},
    {BIT(NEG), DT_PARTIAL_AVG, DT_NONE, DT_PARTIAL_AVG},
    {BIT(NEG), DT_PARTIAL_MAX, DT_NONE, DT_PARTIAL_MIN},
    {BIT(NEG), DT_PARTIAL_MIN, DT_NONE, DT_PARTIAL_MAX},
    {BIT(MONOTONE), DT_PARTIAL_MAX, DT_NONE, DT_PARTIAL_MAX},
    {BIT(MONOTONE), DT_PARTIAL_MIN, DT_NONE, DT_PARTIAL_MIN},

    {REDUCTION, DT_REPLICATE, DT_NONE, DT_REPLICATE},
    {REDUCTION, DT_SHARD_KEPT, DT_NONE, DT_SHARD_KEPT},
    {BIT(SUM), DT_SHARD_REDUCED, DT_NONE, DT_PARTIAL_SUM},
    {BIT(SUM), DT_PARTIAL_SUM, DT_NONE, DT_PARTIAL_SUM},
    {BIT(SUM), DT_PARTIAL_AVG, DT_NONE, DT_PARTIAL_AVG},
    {BIT(MAX), DT_SHARD_REDUCED, DT_NONE, DT_PARTIAL_MAX},
    {BIT(MAX), DT_PARTIAL_MAX, DT_NONE, DT_PARTIAL_MAX},
    {BIT(MIN), DT_SHARD_REDUCED, DT_NONE, DT_PARTIAL_MIN},
    {BIT(MIN), DT_PARTIAL_MIN, DT_NONE, DT_PARTIAL_MIN},
};

const size_t dt_rule_count = sizeof dt_rules / sizeof *dt_rules;

/* ---- For given shapes ---- */

/* The dimension of an operand that is dimension d of the result, both counted from the end; false
 * if there is none or it is repeated. */
static bool operand_dim(const kb_shape *operand, const kb_shape *result, uint32_t d, uint32_t *dim)
{
    uint32_t missing = result->rank - operand->rank;
    *dim = d - missing;
    return d >= missing && operand->dims[d - missing] == result->dims[d];
}

static bool is_repeated(const kb_shape *operand, const kb_shape *result, uint32_t d)
{
    uint32_t dim;
    return !operand_dim(operand, result, d, &dim);
}

/* The dimension of the result of a reduction that is dimension d of its input. */
static uint32_t kept_dim(const dt_problem *p, uint32_t d)
{
    return d - (!p->keeps_dim && d > p->reduced);
}

static kb_placement partial_of(dt_term term)
{
    static const kb_reduce_op ops[] = {
        [DT_PARTIAL_SUM] = KB_SUM, [DT_PARTIAL_AVG] = KB_AVG,   [DT_PARTIAL_MAX] = KB_MAX,
        [DT_PARTIAL_MIN] = KB_MIN, [DT_PARTIAL_PROD] = KB_PROD,
    };
    return KB_PARTIAL(ops[term]);
}

typedef enum side { SIDE_A, SIDE_B, SIDE_RESULT } side;

/* The placement of a term for dimension d; false if it does not fit the shapes. */
static bool resolve(dt_term term, const dt_problem *p, side of, uint32_t d, kb_placement *out)
{
    const kb_shape *shape = of == SIDE_A ? &p->a : of == SIDE_B ? &p->b : &p->result;
    uint32_t dim = d;
    *out = KB_REPLICATE_PLACEMENT;
    switch (term) {
    case DT_NONE:
    case DT_REPLICATE:
        return true;
    case DT_SHARD_M:
        *out = KB_SHARD((int)d);
        return d + 1 < p->a.rank;
    case DT_SHARD_K:
        *out = KB_SHARD(of == SIDE_A ? (int)p->a.rank - 1 : 0);
        return true;
    case DT_SHARD_N:
        *out = KB_SHARD((int)shape->rank - 1);
        return true;
    case DT_SHARD: {
        bool there = of == SIDE_RESULT || operand_dim(shape, &p->result, d, &dim);
        *out = KB_SHARD((int)dim);
        return there && d < p->result.rank;
    }
    case DT_BROADCAST:
        return d < p->result.rank && is_repeated(shape, &p->result, d);
    case DT_SHARD_KEPT:
        *out = KB_SHARD((int)(of == SIDE_RESULT ? kept_dim(p, d) : d));
        return !p->reduces_all && d != p->reduced && d < p->a.rank;
    case DT_SHARD_REDUCED:
        *out = KB_SHARD((int)d);
        return (p->reduces_all || d == p->reduced) && d < p->a.rank;
    default:
        *out = partial_of(term);
        return true;
    }
}

/* Whether the rule has a dimension d. */
static bool has_dimension(const dt_rule *rule)
{
    static const uint32_t with =
        1u << DT_SHARD_M | 1u << DT_SHARD | 1u << DT_SHARD_KEPT | 1u << DT_SHARD_REDUCED;
    return ((1u << rule->a | 1u << rule->b) & with) != 0;
}

bool dt_apply_rule(const dt_rule *rule, const dt_problem *problem, uint32_t index,
                   dt_choice *choice, bool *fits)
{
    if (index >= (has_dimension(rule) ? KB_MAX_DIMS : 1))
        return false;
    *fits = resolve(rule->a, problem, SIDE_A, index, &choice->a) &&
            resolve(rule->b, problem, SIDE_B, index, &choice->b) &&
            resolve(rule->result, problem, SIDE_RESULT, index, &choice->result);
    return true;
}

/* ---- Text ---- */

static const char *const term_names[] = {
    [DT_NONE] = "-",
    [DT_REPLICATE] = "Replicate",
    [DT_SHARD_M] = "Shard(m)",
    [DT_SHARD_K] = "Shard(k)",
    [DT_SHARD_N] = "Shard(n)",
    [DT_SHARD] = "Shard(d)",
    [DT_BROADCAST] = "Replicate, repeated along d",
    [DT_SHARD_KEPT] = "Shard(d), d not reduced",
    [DT_SHARD_REDUCED] = "Shard(d), d reduced",
    [DT_PARTIAL_SUM] = "Partial(sum)",
    [DT_PARTIAL_AVG] = "Partial(avg)",
    [DT_PARTIAL_MAX] = "Partial(max)",
    [DT_PARTIAL_MIN] = "Partial(min)",
    [DT_PARTIAL_PROD] = "Partial(prod)",
};

static const struct {
    uint32_t classes;
    const char *name;
} class_names[] = {
    {BIT(MATMUL), "matmul"},
    {BINARY, "all binary"},
    {BIT(ADD), "add, sub"},
    {BIT(MUL), "mul"},
    {BIT(MUL) | BIT(DIV), "mul, div"},
    {BIT(MAXIMUM), "maximum"},
    {BIT(MINIMUM), "minimum"},
    {UNARY, "all unary"},
    {BIT(NEG), "neg"},
    {BIT(MONOTONE), "exp, relu, sigmoid, tanh"},
    {REDUCTION, "all reductions"},
    {BIT(SUM), "sum, mean"},
    {BIT(MAX), "max"},
    {BIT(MIN), "min"},
};

static const char *class_name(uint32_t classes)
{
    for (size_t i = 0; i < sizeof class_names / sizeof *class_names; i++)
        if (class_names[i].classes == classes)
            return class_names[i].name;
    KB_ASSERT(false); /* every rule has a name in the list */
    return "";
}

void kb_dtensor_print_rules(kb_warning_fn *print, void *self)
{
    char line[160];
    snprintf(line, sizeof line, "%-24s  %-27s  %-27s  %s", "operation", "a", "b", "result");
    print(self, line);
    for (size_t i = 0; i < dt_rule_count; i++) {
        const dt_rule *rule = &dt_rules[i];
        const char *result = rule->result == DT_SHARD_KEPT ? "Shard(d)" : term_names[rule->result];
        snprintf(line, sizeof line, "%-24s  %-27s  %-27s  %s", class_name(rule->classes),
                 term_names[rule->a], term_names[rule->b], result);
        print(self, line);
    }
}
