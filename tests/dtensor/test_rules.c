/*
 * test_rules.c: checks every rule of the table. Each rule is applied to operands with its
 * placements, for every dimension and operation that it covers: the result has the placement of the
 * rule, nothing was redistributed, and the numbers are those of the plain operation.
 */
#include "operand.h"

#include "dtensor/rules.h"
#include "support/seed.h"

/* An operation of a class. */
typedef struct tried {
    dt_op_class class;
    int op; /* kb_binary_op, kb_unary_op or plain_reduction */
} tried;

static const tried all_ops[] = {
    {DT_OP_MATMUL, 0},
    {DT_OP_ADD, KB_BINARY_ADD},
    {DT_OP_ADD, KB_BINARY_SUB},
    {DT_OP_MUL, KB_BINARY_MUL},
    {DT_OP_DIV, KB_BINARY_DIV},
    {DT_OP_MAXIMUM, KB_BINARY_MAXIMUM},
    {DT_OP_MINIMUM, KB_BINARY_MINIMUM},
    {DT_OP_NEG, KB_UNARY_NEG},
    {DT_OP_MONOTONE, KB_UNARY_RELU},
    {DT_OP_MONOTONE, KB_UNARY_EXP},
    {DT_OP_UNARY, KB_UNARY_LOG},
    {DT_OP_UNARY, KB_UNARY_SQRT},
    {DT_OP_MONOTONE, KB_UNARY_SIGMOID},
    {DT_OP_MONOTONE, KB_UNARY_TANH},
    {DT_OP_UNARY, KB_UNARY_ABS},
    {DT_OP_UNARY, KB_UNARY_RSQRT},
    {DT_OP_UNARY, KB_UNARY_COS},
    {DT_OP_UNARY, KB_UNARY_SIN},
    {DT_OP_UNARY, KB_UNARY_GELU},
    {DT_OP_UNARY, KB_UNARY_SILU},
    {DT_OP_SUM, PLAIN_SUM},
    {DT_OP_SUM, PLAIN_MEAN},
    {DT_OP_MAX, PLAIN_MAX},
    {DT_OP_MIN, PLAIN_MIN},
};

static bool is_binary(dt_op_class class)
{
    return class >= DT_OP_ADD && class <= DT_OP_MINIMUM;
}

static bool is_reduction(dt_op_class class)
{
    return class >= DT_OP_SUM;
}

/* Shapes to try an operation with, and what it reduces. */
typedef struct trial {
    kb_shape a, b;
    int dim;
    bool keepdim;
} trial;

/* Several for each kind of operation. */
static bool get_trial(dt_op_class class, uint32_t index, trial *t)
{
    static const trial products[] = {
        {.a = {2, {5, 7}}, .b = {2, {7, 4}}},
        {.a = {3, {3, 2, 5}}, .b = {2, {5, 6}}},
    };
    static const trial pairs[] = {
        {.a = {2, {5, 7}}, .b = {2, {5, 7}}},
        {.a = {3, {4, 5, 3}}, .b = {1, {3}}},
        {.a = {2, {1, 6}}, .b = {3, {2, 5, 1}}},
    };
    static const trial reduced[] = {
        {.a = {3, {4, 5, 3}}, .dim = 1},
        {.a = {2, {7, 5}}, .dim = 1, .keepdim = true},
        {.a = {3, {4, 5, 3}}, .dim = 0},
        {.a = {2, {9, 4}}, .dim = KB_ALL_DIMS},
        {.a = {2, {9, 4}}, .dim = KB_ALL_DIMS, .keepdim = true},
    };
    const trial *list = is_reduction(class) ? reduced : is_binary(class) ? pairs : products;
    uint32_t count = is_reduction(class) ? 5 : is_binary(class) ? 3 : 2;
    *t = list[index < count ? index : 0];
    return index < count;
}

static plain expected_of(const tried *op, const trial *t, const plain *a, const plain *b)
{
    if (op->class == DT_OP_MATMUL)
        return plain_matmul(a, b);
    if (is_binary(op->class))
        return plain_binary((kb_binary_op)op->op, a, b);
    if (is_reduction(op->class))
        return plain_reduce((plain_reduction)op->op, a, t->dim, t->keepdim);
    return plain_unary((kb_unary_op)op->op, a);
}

static kb_error *call(kb_context *ctx, const tried *op, const trial *t, kb_dtensor a, kb_dtensor b,
                      kb_dtensor *result)
{
    if (op->class == DT_OP_MATMUL)
        return kb_dtensor_matmul(ctx, a, b, result);
    if (is_binary(op->class))
        return kb_dtensor_binary(ctx, (kb_binary_op)op->op, a, b, result);
    if (is_reduction(op->class))
        return reduce_dtensor(ctx, (plain_reduction)op->op, a, t->dim, t->keepdim, result);
    return kb_dtensor_unary(ctx, (kb_unary_op)op->op, a, result);
}

static void expect_placements(kb_placements found, kb_placements expected)
{
    char f[KB_PLACEMENTS_BYTES], e[KB_PLACEMENTS_BYTES];
    kb_placements_print(found, f);
    kb_placements_print(expected, e);
    assert_string_equal(f, e);
}

static void try_choice(kb_context *ctx, kb_rng *rng, uint32_t ranks, const tried *op,
                       const trial *t, const dt_choice *choice, bool has_b)
{
    const uint32_t shape[2] = {ranks, 1};
    kb_device_mesh mesh = open_mesh(ctx, ranks, 0);
    operand a, b;
    kb_dtensor result;
    kb_placements placed;
    kb_dtensor_report report;
    operand_draw(&a, rng, shape, KB_PLACEMENTS(choice->a), &t->a, KB_F32, true);
    operand_draw(&b, rng, shape, KB_PLACEMENTS(choice->b), has_b ? &t->b : &t->a, KB_F32, true);
    operand_open(&a, ctx, mesh, 0, ranks);
    operand_open(&b, ctx, mesh, 0, ranks);
    plain expected = expected_of(op, t, &a.whole, &b.whole);
    expect_ok(call(ctx, op, t, a.dtensor, b.dtensor, &result));
    expect_ok(kb_dtensor_placements(ctx, result, &placed));
    expect_placements(placed, KB_PLACEMENTS(choice->result));
    expect_ok(kb_dtensor_get_report(ctx, result, &report));
    assert_int_equal(report.operands, has_b ? 2 : 1);
    assert_false(report.redistributed[0] || report.redistributed[1]);
    assert_int_equal(report.bytes, 0);
    expect_full(ctx, result, &expected, 3e-6);
    plain_free(&expected);
    expect_ok(kb_dtensor_free(ctx, result));
    operand_close(&a, ctx, 0, ranks);
    operand_close(&b, ctx, 0, ranks);
    operand_fini(&a);
    operand_fini(&b);
    expect_ok(kb_device_mesh_free(ctx, mesh));
}

/* Returns how often the rule was used. */
static int try_rule(kb_context *ctx, kb_rng *rng, uint32_t ranks, const dt_rule *rule,
                    const tried *op)
{
    trial t;
    int used = 0;
    bool has_b = op->class == DT_OP_MATMUL || is_binary(op->class);
    for (uint32_t i = 0; get_trial(op->class, i, &t); i++) {
        plain x = plain_new(&t.a), y = plain_new(has_b ? &t.b : &t.a);
        plain out = expected_of(op, &t, &x, &y);
        const dt_problem problem = {
            .class = op->class,
            .a = t.a,
            .b = t.b,
            .result = out.shape,
            .has_b = has_b,
            .reduces_all = t.dim == KB_ALL_DIMS,
            .reduced = t.dim == KB_ALL_DIMS ? 0 : (uint32_t)t.dim,
            .keeps_dim = t.keepdim,
        };
        dt_choice choice;
        bool fits;
        for (uint32_t d = 0; dt_apply_rule(rule, &problem, d, &choice, &fits); d++) {
            if (!fits)
                continue;
            try_choice(ctx, rng, ranks, op, &t, &choice, has_b);
            used++;
        }
        plain_free(&x);
        plain_free(&y);
        plain_free(&out);
    }
    return used;
}

static void walk_rules(uint64_t seed, uint32_t ranks)
{
    kb_rng rng;
    kb_rng_init(&rng, test_seed(seed));
    kb_context *ctx = open_machine_of(ranks, 1, 1, (kb_context_options){0});
    expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
    for (size_t i = 0; i < dt_rule_count; i++) {
        int used = 0;
        for (size_t k = 0; k < sizeof all_ops / sizeof *all_ops; k++)
            if (dt_rules[i].classes >> all_ops[k].class & 1)
                used += try_rule(ctx, &rng, ranks, &dt_rules[i], &all_ops[k]);
        if (used == 0)
            fail_msg("rule %zu fits no trial", i);
    }
    expect_ok(kb_distributed_destroy_process_group(ctx));
    kb_context_destroy(ctx);
}

static void rules_on_two_ranks(void **state)
{
    (void)state;
    walk_rules(1, 2);
}

static void rules_on_three_ranks(void **state)
{
    (void)state;
    walk_rules(2, 3);
}

/* ---- The table as text ---- */

typedef struct lines {
    size_t count;
    bool found;
} lines;

static void count_line(void *self, const char *line)
{
    lines *l = self;
    l->count++;
    l->found |= strcmp(line, "matmul                    Shard(k)                     "
                             "Shard(k)                     Partial(sum)") == 0;
}

static void prints_a_line_for_each(void **state)
{
    (void)state;
    lines l = {0};
    kb_dtensor_print_rules(count_line, &l);
    assert_int_equal(l.count, dt_rule_count + 1);
    assert_true(l.found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_on_two_ranks),
        cmocka_unit_test(rules_on_three_ranks),
        cmocka_unit_test(prints_a_line_for_each),
    };
    return cmocka_run_group_tests_name("rules", tests, NULL, NULL);
}
