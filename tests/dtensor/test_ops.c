/*
 * test_ops.c: operations on operands in any legal placements give the numbers of the plain
 * operation, also where no rule fits and operands are redistributed: on meshes of one and two
 * dimensions, by workers and by a program that drives all ranks.
 */
#include "operand.h"

#include "rt/tensors.h"
#include "support/seed.h"

typedef enum kind { MATMUL, BINARY, UNARY, REDUCTION, KINDS } kind;

typedef struct job {
    uint32_t mesh[2];
    uint32_t dims; /* of the mesh */
    kind kind;
    int op;
    int dim;
    bool keepdim;
    operand a, b;
    plain expected;
    double tolerance;
} job;

static uint32_t ranks_of(const job *j)
{
    return j->mesh[0] * j->mesh[1];
}

/* ---- Drawing ---- */

static uint64_t draw_size(kb_rng *rng)
{
    return 1 + kb_rng_below(rng, 9);
}

static void draw_shapes(job *j, kb_rng *rng, kb_shape *a, kb_shape *b)
{
    *a = (kb_shape){.rank = (uint32_t)(j->kind == MATMUL ? 2 + kb_rng_below(rng, 2)
                                                         : 1 + kb_rng_below(rng, 4))};
    for (uint32_t axis = 0; axis < a->rank; axis++)
        a->dims[axis] = draw_size(rng);
    *b = KB_SHAPE(a->dims[a->rank - 1], draw_size(rng));
    if (j->kind != BINARY)
        return;
    *b = *a;
    b->rank = 1 + (uint32_t)kb_rng_below(rng, a->rank);
    for (uint32_t i = 1; i <= b->rank; i++)
        b->dims[b->rank - i] = kb_rng_below(rng, 3) == 0 ? 1 : a->dims[a->rank - i];
    if (b->rank == a->rank && kb_rng_below(rng, 2) == 0)
        a->dims[kb_rng_below(rng, a->rank)] = 1; /* b may be the longer one there */
}

static int draw_op(job *j, kb_rng *rng, kb_dtype dtype)
{
    static const kb_unary_op of_integers[] = {KB_UNARY_NEG, KB_UNARY_RELU, KB_UNARY_ABS};
    static const kb_unary_op unary[] = {KB_UNARY_NEG,  KB_UNARY_RELU, KB_UNARY_ABS,
                                        KB_UNARY_SQRT, KB_UNARY_TANH, KB_UNARY_SILU};
    bool whole = dtype == KB_I32;
    switch (j->kind) {
    case BINARY: {
        int op = (int)kb_rng_below(rng, KB_BINARY_OPS);
        return whole && op == KB_BINARY_DIV ? KB_BINARY_SUB : op;
    }
    case UNARY:
        return (int)(whole ? of_integers[kb_rng_below(rng, 3)] : unary[kb_rng_below(rng, 6)]);
    case REDUCTION: {
        int op = (int)kb_rng_below(rng, 4);
        return whole && op == PLAIN_MEAN ? PLAIN_SUM : op;
    }
    default:
        return 0;
    }
}

static plain expected_of(const job *j)
{
    switch (j->kind) {
    case MATMUL:
        return plain_matmul(&j->a.whole, &j->b.whole);
    case BINARY:
        return plain_binary((kb_binary_op)j->op, &j->a.whole, &j->b.whole);
    case UNARY:
        return plain_unary((kb_unary_op)j->op, &j->a.whole);
    default:
        return plain_reduce((plain_reduction)j->op, &j->a.whole, j->dim, j->keepdim);
    }
}

static job draw_job(kb_rng *rng, const uint32_t mesh[2], uint32_t dims)
{
    static const kb_dtype dtypes[] = {KB_F32, KB_I32, KB_F16};
    static const double tolerances[] = {2e-5, 0, 2e-2};
    uint64_t type = kb_rng_below(rng, 3);
    kb_dtype dtype = dtypes[type];
    kb_shape a, b;
    job j = {.mesh = {mesh[0], mesh[1]},
             .dims = dims,
             .kind = (kind)kb_rng_below(rng, KINDS),
             .keepdim = kb_rng_below(rng, 2) == 0,
             .tolerance = tolerances[type]};
    draw_shapes(&j, rng, &a, &b);
    j.op = draw_op(&j, rng, dtype);
    j.dim = kb_rng_below(rng, 3) == 0 ? KB_ALL_DIMS : (int)kb_rng_below(rng, a.rank);
    operand_draw(&j.a, rng, mesh, draw_placements(rng, dims, a.rank, dtype, true), &a, dtype,
                 dtype != KB_I32);
    operand_draw(&j.b, rng, mesh, draw_placements(rng, dims, b.rank, dtype, true), &b, dtype,
                 dtype != KB_I32);
    j.expected = expected_of(&j);
    return j;
}

static void job_fini(job *j)
{
    operand_fini(&j->a);
    operand_fini(&j->b);
    plain_free(&j->expected);
}

/* ---- Running ---- */

static kb_error *call(kb_context *ctx, const job *j, kb_dtensor a, kb_dtensor b, kb_dtensor *result)
{
    switch (j->kind) {
    case MATMUL:
        return kb_dtensor_matmul(ctx, a, b, result);
    case BINARY:
        return kb_dtensor_binary(ctx, (kb_binary_op)j->op, a, b, result);
    case UNARY:
        return kb_dtensor_unary(ctx, (kb_unary_op)j->op, a, result);
    default:
        return reduce_dtensor(ctx, (plain_reduction)j->op, a, j->dim, j->keepdim, result);
    }
}

/* Of positions from `first` on. Operands are as they were behind it. */
static void run(kb_context *ctx, job *j, uint32_t first, uint32_t count)
{
    kb_device_mesh mesh = open_mesh(ctx, j->mesh[0], j->dims == 1 ? 0 : j->mesh[1]);
    kb_dtensor result;
    /* Each worker has handles of its own. */
    operand a = j->a, b = j->b;
    operand_open(&a, ctx, mesh, first, count);
    operand_open(&b, ctx, mesh, first, count);
    expect_ok(call(ctx, j, a.dtensor, b.dtensor, &result));
    expect_full(ctx, result, &j->expected, j->tolerance);
    expect_full(ctx, a.dtensor, &a.whole, j->tolerance);
    expect_ok(kb_dtensor_free(ctx, result));
    operand_close(&a, ctx, first, count);
    operand_close(&b, ctx, first, count);
    expect_ok(kb_device_mesh_free(ctx, mesh));
}

static kb_error *work(kb_context *ctx, uint32_t rank, void *arg)
{
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    run(ctx, arg, rank, 1);
    return kb_distributed_destroy_process_group(ctx);
}

/* Destroys the context. */
static void try_mesh_on(kb_context *ctx, uint64_t seed, uint32_t h, uint32_t w, int count)
{
    kb_rng rng;
    kb_rng_init(&rng, test_seed(seed));
    const uint32_t mesh[2] = {h, w == 0 ? 1 : w};
    for (int i = 0; i < tries(count); i++) {
        job j = draw_job(&rng, mesh, w == 0 ? 1 : 2);
        if (i % 3 == 2) {
            expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
            run(ctx, &j, 0, ranks_of(&j));
            expect_ok(kb_distributed_destroy_process_group(ctx));
        } else {
            expect_ok(kb_spawn(ctx, work, &j, ranks_of(&j)));
        }
        job_fini(&j);
    }
    kb_context_destroy(ctx);
}

static void try_mesh(uint64_t seed, uint32_t h, uint32_t w, int count)
{
    uint32_t sips = h * (w == 0 ? 1 : w);
    try_mesh_on(open_machine_of(sips, 1, 1, (kb_context_options){0}), seed, h, w, count);
}

/* Three cubes of three PEs, and SIPs with links between them; two cubes of four PEs; one PE. */
static void on_odd_machines(void **state)
{
    (void)state;
    const kb_context_options options = {.threads = 1, .races = KB_RACES_FAIL};
    try_mesh_on(open_context(ODD_ONES, options), 30, 2, 0, 12);
    try_mesh_on(open_context(THREE_SIPS, options), 31, 3, 0, 12);
    try_mesh_on(open_context(THREE_SIPS, options), 32, 1, 3, 6);
    try_mesh_on(open_context(ONE_PE, options), 33, 1, 0, 6);
}

static void on_one_rank(void **state)
{
    (void)state;
    try_mesh(1, 1, 0, 20);
}

static void on_two(void **state)
{
    (void)state;
    try_mesh(2, 2, 0, 40);
}

static void on_three(void **state)
{
    (void)state;
    try_mesh(3, 3, 0, 40);
}

static void on_two_by_two(void **state)
{
    (void)state;
    try_mesh(4, 2, 2, 60);
}

static void on_two_by_three(void **state)
{
    (void)state;
    try_mesh(5, 2, 3, 30);
}

static void on_three_by_two(void **state)
{
    (void)state;
    try_mesh(6, 3, 2, 30);
}

/* ---- Larger than a PE's memory, on many PEs ---- */

typedef struct large {
    plain x;
    kb_tensor host;
} large;

/* (9, 130, 70): tiles, several chunks of each sum, odd numbers of everything. */
static kb_error *reduce_large(kb_context *ctx, uint32_t rank, void *arg)
{
    const large *l = arg;
    (void)rank;
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    kb_device_mesh mesh = open_mesh(ctx, 0, 0);
    for (int dim = 0; dim < 4; dim++) {
        kb_dtensor x, y;
        int reduced = dim == 3 ? KB_ALL_DIMS : dim;
        plain expected = plain_reduce(PLAIN_SUM, &l->x, reduced, false);
        expect_ok(kb_distribute_tensor(ctx, l->host, mesh, KB_PLACEMENTS(KB_SHARD(dim % 3)), &x));
        expect_ok(kb_dtensor_sum(ctx, x, reduced, false, &y));
        expect_full(ctx, y, &expected, 1e-5);
        expect_ok(kb_dtensor_free(ctx, y));
        expect_ok(kb_dtensor_free(ctx, x));
        plain_free(&expected);
    }
    KB_TRY(kb_device_mesh_free(ctx, mesh));
    return kb_distributed_destroy_process_group(ctx);
}

static void reduces_large_tensors(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(7));
    kb_context *ctx = open_machine_of(2, 3, 1, (kb_context_options){0});
    kb_shape shape = KB_SHAPE(9, 130, 70);
    large l = {.x = plain_draw(&rng, &shape)};
    l.host = host_tensor(ctx, "x", &l.x, KB_F32);
    expect_ok(kb_spawn(ctx, reduce_large, &l, 2));
    plain_free(&l.x);
    kb_context_destroy(ctx);
}

/* ---- Terms that an operation is not defined for ---- */

/* max(-4, 9) = 9, and its root is 3; the root of -4 is no number. */
static void takes_roots_of_maxima(void **state)
{
    (void)state;
    kb_context *ctx = open_machine_of(2, 1, 1, (kb_context_options){0});
    kb_tensor locals[2];
    kb_dtensor x, root;
    plain expected = plain_new(&KB_SHAPE(3));
    expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
    kb_device_mesh mesh = open_mesh(ctx, 2, 0);
    for (uint32_t rank = 0; rank < 2; rank++) {
        const kb_tensor_spec spec = {.name = "x", .dtype = KB_F32, .shape = KB_SHAPE(3)};
        expect_ok(kb_ahbm_set_device(ctx, rank));
        expect_ok(kb_full(ctx, &spec, rank == 0 ? -4 : 9, &locals[rank]));
    }
    for (int i = 0; i < 3; i++)
        expected.numbers[i] = 3;
    expect_ok(
        kb_dtensor_from_locals(ctx, locals, 2, mesh, KB_PLACEMENTS(KB_PARTIAL(KB_MAX)), NULL, &x));
    expect_ok(kb_dtensor_unary(ctx, KB_UNARY_SQRT, x, &root));
    expect_full(ctx, root, &expected, 0);
    plain_free(&expected);
    kb_context_destroy(ctx);
}

/* ---- What is said of redistributions ---- */

typedef struct said {
    char lines[2048];
} said;

static void say(void *self, const char *line)
{
    said *s = self;
    size_t used = strlen(s->lines);
    if (strstr(line, "dtensor:"))
        snprintf(s->lines + used, sizeof s->lines - used, "%s\n", line);
}

/*
 * x (8, 8) is Partial, w (8, 4) is split into rows. The rule for x that is Partial needs w
 * replicated: all_gather sends 1/2 of 8 * 4 * 4 = 128 bytes, 64 bytes. The one for w in rows needs
 * x in columns: reduce_scatter sends 1/2 of 256 bytes, 128 bytes. Both replicated: more.
 */
static void tells_of_redistributions(void **state)
{
    (void)state;
    said s = {""};
    kb_rng rng;
    kb_rng_init(&rng, test_seed(8));
    kb_context *ctx =
        open_machine_of(2, 1, 1, (kb_context_options){.on_note = say, .on_note_self = &s});
    const uint32_t shape[2] = {2, 1};
    expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
    kb_device_mesh mesh = open_mesh(ctx, 2, 0);
    operand a, b;
    kb_dtensor result;
    kb_dtensor_report report;
    kb_placements placed;
    operand_draw(&a, &rng, shape, KB_PLACEMENTS(KB_PARTIAL(KB_SUM)), &KB_SHAPE(8, 8), KB_F32, true);
    operand_draw(&b, &rng, shape, KB_PLACEMENTS(KB_SHARD(0)), &KB_SHAPE(8, 4), KB_F32, true);
    operand_open(&a, ctx, mesh, 0, 2);
    operand_open(&b, ctx, mesh, 0, 2);
    expect_ok(kb_dtensor_matmul(ctx, a.dtensor, b.dtensor, &result));
    expect_ok(kb_dtensor_get_report(ctx, result, &report));
    assert_int_equal(report.operands, 2);
    assert_false(report.redistributed[0]);
    assert_true(report.redistributed[1]);
    assert_int_equal(report.from[1].items[0].kind, KB_PLACEMENT_SHARD);
    assert_int_equal(report.to[1].items[0].kind, KB_PLACEMENT_REPLICATE);
    assert_int_equal(report.bytes, 64);
    expect_ok(kb_dtensor_placements(ctx, result, &placed));
    assert_int_equal(placed.items[0].kind, KB_PLACEMENT_PARTIAL);
    assert_string_equal(s.lines,
                        "dtensor: no rule of matmul fits: operand 'part' is redistributed from "
                        "(Shard(0)) to (Replicate), 64 bytes sent by each rank\n");
    expect_ok(kb_dtensor_free(ctx, result));
    operand_close(&a, ctx, 0, 2);
    operand_close(&b, ctx, 0, 2);
    operand_fini(&a);
    operand_fini(&b);
    kb_context_destroy(ctx);
}

/* The temporary tensors of an operation would be gone when the graph runs. */
static void graphs_refuse_operations(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(9));
    kb_context *ctx = open_machine_of(2, 1, 1, (kb_context_options){0});
    const uint32_t shape[2] = {2, 1};
    expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
    kb_device_mesh mesh = open_mesh(ctx, 2, 0);
    operand a;
    kb_dtensor result;
    kb_tensor full;
    kb_graph graph;
    operand_draw(&a, &rng, shape, KB_PLACEMENTS(KB_SHARD(0)), &KB_SHAPE(8, 8), KB_F32, true);
    operand_open(&a, ctx, mesh, 0, 2);
    expect_ok(kb_graph_begin(ctx, "step", &graph));
    expect_error(kb_dtensor_unary(ctx, KB_UNARY_NEG, a.dtensor, &result), KB_ERR_FAULT,
                 "kb_dtensor_unary: a graph is being recorded, which cannot contain operations of "
                 "DTensors: call kb_graph_end() first");
    assert_int_equal(result.id, 0);
    expect_error(kb_dtensor_add(ctx, a.dtensor, a.dtensor, &result), KB_ERR_FAULT,
                 "kb_dtensor_add: a graph is being recorded, which cannot contain operations of "
                 "DTensors: call kb_graph_end() first");
    expect_error(kb_dtensor_full_tensor(ctx, a.dtensor, &full), KB_ERR_FAULT,
                 "kb_dtensor_full_tensor: a graph is being recorded, which cannot contain "
                 "operations of DTensors: call kb_graph_end() first");
    expect_ok(kb_graph_end(ctx, graph));
    expect_ok(kb_graph_free(ctx, graph));
    operand_close(&a, ctx, 0, 2);
    operand_fini(&a);
    kb_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_odd_machines),
        cmocka_unit_test(on_one_rank),
        cmocka_unit_test(on_two),
        cmocka_unit_test(on_three),
        cmocka_unit_test(on_two_by_two),
        cmocka_unit_test(on_two_by_three),
        cmocka_unit_test(on_three_by_two),
        cmocka_unit_test(reduces_large_tensors),
        cmocka_unit_test(tells_of_redistributions),
        cmocka_unit_test(takes_roots_of_maxima),
        cmocka_unit_test(graphs_refuse_operations),
    };
    return cmocka_run_group_tests_name("ops", tests, NULL, NULL);
}
