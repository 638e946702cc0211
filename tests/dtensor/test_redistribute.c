/*
 * test_redistribute.c: a tensor is the same after any redistributions, bit for bit, and every rank
 * has the part that the placements define: on meshes of one and two dimensions, with sizes that do
 * not divide, by workers and by a program that drives all ranks.
 */
#include "plain.h"

#include "rt/tensors.h"
#include "support/seed.h"

enum { MAX_CHANGES = 6 };

typedef struct job {
    uint64_t seed;
    uint32_t mesh[2]; /* mesh[1] is 0: one dimension */
    kb_shape shape;
    kb_dtype dtype;
    uint32_t changes;
    plain numbers;
    kb_tensor host;
} job;

static uint32_t dims_of(const job *j)
{
    return j->mesh[1] == 0 ? 1 : 2;
}

static uint32_t ranks_of(const job *j)
{
    return j->mesh[0] * (j->mesh[1] == 0 ? 1 : j->mesh[1]);
}

static bool has_partial(kb_placements placements)
{
    for (uint32_t dim = 0; dim < placements.count; dim++)
        if (placements.items[dim].kind == KB_PLACEMENT_PARTIAL)
            return true;
    return false;
}

/* What the rank has of it; terms of a reduction can be anything. */
static void check_local(kb_context *ctx, const job *j, kb_dtensor d, uint32_t rank)
{
    kb_placements placements;
    kb_tensor local;
    expect_ok(kb_dtensor_placements(ctx, d, &placements));
    if (has_partial(placements))
        return;
    expect_ok(kb_dtensor_local_of(ctx, d, rank, &local));
    plain part = plain_part(&j->numbers, j->mesh, placements, rank);
    expect_plain(ctx, local, &part, 0);
    plain_free(&part);
}

/* The same draws on every rank. */
static void change_often(kb_context *ctx, const job *j, uint32_t first_rank, uint32_t rank_count)
{
    kb_rng rng;
    kb_rng_init(&rng, test_seed(j->seed));
    kb_device_mesh mesh = open_mesh(ctx, j->mesh[0], j->mesh[1]);
    kb_placements placements = draw_placements(&rng, dims_of(j), j->shape.rank, j->dtype, false);
    kb_dtensor d, changed;
    expect_ok(kb_distribute_tensor(ctx, j->host, mesh, placements, &d));
    for (uint32_t i = 0; i <= j->changes; i++) {
        for (uint32_t rank = first_rank; rank < first_rank + rank_count; rank++)
            check_local(ctx, j, d, rank);
        if (i == j->changes)
            break;
        placements = draw_placements(&rng, dims_of(j), j->shape.rank, j->dtype, true);
        expect_ok(kb_dtensor_redistribute(ctx, d, placements, &changed));
        expect_ok(kb_dtensor_free(ctx, d));
        d = changed;
    }
    expect_full(ctx, d, &j->numbers, 0);
    expect_ok(kb_dtensor_free(ctx, d));
    expect_ok(kb_device_mesh_free(ctx, mesh));
}

static kb_error *work(kb_context *ctx, uint32_t rank, void *arg)
{
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    change_often(ctx, arg, rank, 1);
    return kb_distributed_destroy_process_group(ctx);
}

static job draw_job(kb_rng *rng, const uint32_t mesh[2])
{
    static const uint64_t longest[] = {1, 40, 14, 9, 6, 4, 3, 3, 3};
    job j = {.seed = kb_rng_below(rng, UINT32_MAX),
             .mesh = {mesh[0], mesh[1]},
             .shape = {.rank = (uint32_t)kb_rng_below(rng, KB_MAX_DIMS + 1)},
             .dtype = (kb_dtype)kb_rng_below(rng, KB_DTYPES),
             .changes = 1 + (uint32_t)kb_rng_below(rng, MAX_CHANGES)};
    for (uint32_t axis = 0; axis < j.shape.rank; axis++)
        j.shape.dims[axis] =
            kb_rng_below(rng, 30) == 0 ? 0 : 1 + kb_rng_below(rng, longest[j.shape.rank]);
    j.numbers = plain_draw(rng, &j.shape);
    return j;
}

/* Destroys the context. */
static void try_mesh_on(kb_context *ctx, uint64_t seed, uint32_t h, uint32_t w, int count)
{
    kb_rng rng;
    kb_rng_init(&rng, test_seed(seed));
    const uint32_t mesh[2] = {h, w};
    for (int i = 0; i < tries(count); i++) {
        job j = draw_job(&rng, mesh);
        j.host = host_tensor(ctx, "x", &j.numbers, j.dtype);
        if (i % 3 == 2) {
            expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
            change_often(ctx, &j, 0, ranks_of(&j));
            expect_ok(kb_distributed_destroy_process_group(ctx));
        } else {
            expect_ok(kb_spawn(ctx, work, &j, ranks_of(&j)));
        }
        expect_ok(kb_tensor_free(ctx, j.host));
        plain_free(&j.numbers);
    }
    kb_context_destroy(ctx);
}

static void try_mesh(uint64_t seed, uint32_t h, uint32_t w, uint32_t cubes_w, uint32_t cubes_h,
                     int count)
{
    uint32_t sips = h * (w == 0 ? 1 : w);
    kb_context *ctx = open_machine_of(sips, cubes_w, cubes_h, (kb_context_options){0});
    try_mesh_on(ctx, seed, h, w, count);
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

/* 247 tensors, of 1 to MAX_CHANGES redistributions each: some 860. */

static void on_one_rank(void **state)
{
    (void)state;
    try_mesh(1, 1, 0, 2, 1, 12);
}

static void on_two(void **state)
{
    (void)state;
    try_mesh(2, 2, 0, 2, 1, 30);
}

static void on_three(void **state)
{
    (void)state;
    try_mesh(3, 3, 0, 1, 1, 30);
}

static void on_five(void **state)
{
    (void)state;
    try_mesh(4, 5, 0, 1, 1, 20);
}

static void on_two_by_two(void **state)
{
    (void)state;
    try_mesh(5, 2, 2, 1, 1, 60);
}

static void on_two_by_three(void **state)
{
    (void)state;
    try_mesh(6, 2, 3, 1, 1, 40);
}

static void on_three_by_two(void **state)
{
    (void)state;
    try_mesh(7, 3, 2, 1, 1, 40);
}

static void on_one_by_four(void **state)
{
    (void)state;
    try_mesh(8, 1, 4, 1, 1, 15);
}

/* ---- All bits ---- */

typedef struct raw {
    uint64_t seed;
    uint32_t mesh[2];
    kb_tensor host;
    unsigned char *bytes;
    size_t size;
    uint32_t rank; /* of the tensor */
} raw;

/* Not Partial: a reduction may change how NaN is written. */
static kb_error *keep_bits(kb_context *ctx, uint32_t rank, void *arg)
{
    const raw *r = arg;
    kb_rng rng;
    kb_dtensor d, changed;
    kb_tensor full;
    (void)rank;
    kb_rng_init(&rng, test_seed(r->seed));
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    kb_device_mesh mesh = open_mesh(ctx, r->mesh[0], r->mesh[1]);
    unsigned char *found = malloc(r->size);
    assert_non_null(found);
    expect_ok(kb_distribute_tensor(ctx, r->host, mesh,
                                   draw_placements(&rng, 2, r->rank, KB_F8E4M3, false), &d));
    for (int i = 0; i < 4; i++) {
        kb_placements to = draw_placements(&rng, 2, r->rank, KB_F8E4M3, false);
        expect_ok(kb_dtensor_redistribute(ctx, d, to, &changed));
        expect_ok(kb_dtensor_free(ctx, d));
        d = changed;
        expect_ok(kb_dtensor_full_tensor(ctx, d, &full));
        expect_ok(kb_tensor_to_host(ctx, full, KB_UNTIMED, found, r->size));
        assert_memory_equal(found, r->bytes, r->size);
        expect_ok(kb_tensor_free(ctx, full));
    }
    free(found);
    expect_ok(kb_dtensor_free(ctx, d));
    expect_ok(kb_device_mesh_free(ctx, mesh));
    return kb_distributed_destroy_process_group(ctx);
}

static void try_bits(uint64_t seed, kb_dtype dtype, const kb_shape *shape)
{
    kb_rng rng;
    kb_rng_init(&rng, test_seed(seed));
    raw r = {.seed = seed, .mesh = {2, 2}, .rank = shape->rank};
    r.size = plain_count(shape) * kb_dtype_bytes(dtype);
    r.bytes = malloc(r.size);
    assert_non_null(r.bytes);
    for (size_t i = 0; i < r.size; i++)
        r.bytes[i] = (unsigned char)kb_rng_below(&rng, 256);
    kb_context *ctx = open_machine_of(4, 1, 1, (kb_context_options){0});
    const kb_tensor_spec spec = {.name = "x", .dtype = dtype, .shape = *shape};
    expect_ok(kb_from_host(ctx, &spec, r.bytes, r.size, &r.host));
    expect_ok(kb_spawn(ctx, keep_bits, &r, 4));
    kb_context_destroy(ctx);
    free(r.bytes);
}

static void keeps_all_bits(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < KB_DTYPES; dtype++)
        try_bits((uint64_t)dtype + 1, (kb_dtype)dtype, &KB_SHAPE(7, 9, 5));
}

/* A PE's part is larger than what it has in its TCM at a time. */
static void moves_large_tensors(void **state)
{
    (void)state;
    try_bits(20, KB_F16, &KB_SHAPE(301, 503));
    try_bits(21, KB_I8, &KB_SHAPE(3, 211, 307));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_odd_machines),
        cmocka_unit_test(on_one_rank),
        cmocka_unit_test(on_two),
        cmocka_unit_test(on_three),
        cmocka_unit_test(on_five),
        cmocka_unit_test(on_two_by_two),
        cmocka_unit_test(on_two_by_three),
        cmocka_unit_test(on_three_by_two),
        cmocka_unit_test(on_one_by_four),
        cmocka_unit_test(keeps_all_bits),
        cmocka_unit_test(moves_large_tensors),
    };
    return cmocka_run_group_tests_name("redistribute", tests, NULL, NULL);
}
