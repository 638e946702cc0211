/*
 * test_dtensor.c: meshes, distribution of tensors on a device, local tensors and their owners,
 * errors, leaks.
 */
#include "operand.h"

#include "rt/programs.h"
#include "support/seed.h"

/* ---- Workers ---- */

typedef void body(kb_context *ctx, uint32_t rank);

static kb_error *run_body(kb_context *ctx, uint32_t rank, void *arg)
{
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    (*(body **)arg)(ctx, rank);
    return kb_distributed_destroy_process_group(ctx);
}

/* Runs it on `count` small devices, one worker each. */
static void on_devices(uint32_t count, body *fn)
{
    kb_context *ctx = open_machine_of(count, 1, 1, (kb_context_options){0});
    expect_ok(kb_spawn(ctx, run_body, &fn, count));
    kb_context_destroy(ctx);
}

static kb_tensor tensor_on(kb_context *ctx, const kb_shape *shape, kb_dtype dtype, double value)
{
    static const kb_policy policy = {.cube = KB_ROW_WISE, .pe = KB_COLUMN_WISE};
    kb_tensor_spec spec = {
        .name = "x", .dtype = dtype, .shape = *shape, .policy = &policy, .access = KB_UNTIMED};
    kb_tensor tensor;
    expect_ok(kb_full(ctx, &spec, value, &tensor));
    return tensor;
}

/* ---- Meshes ---- */

static const kb_device_mesh_spec two_by_three = {
    .ndim = 2, .shape = {2, 3}, .mesh_dim_names = {"dp", "tp"}};

static void look_at_mesh(kb_context *ctx, uint32_t rank)
{
    kb_device_mesh mesh;
    uint32_t ndim, shape[2], coordinate[2], local, in_group, size;
    kb_group group;
    expect_ok(kb_init_device_mesh(ctx, &two_by_three, &mesh));
    expect_ok(kb_device_mesh_shape(ctx, mesh, &ndim, shape));
    assert_int_equal(ndim, 2);
    assert_int_equal(shape[0], 2);
    assert_int_equal(shape[1], 3);
    expect_ok(kb_device_mesh_get_coordinate(ctx, mesh, coordinate));
    assert_int_equal(coordinate[0], rank / 3);
    assert_int_equal(coordinate[1], rank % 3);
    expect_ok(kb_device_mesh_get_local_rank(ctx, mesh, "tp", &local));
    assert_int_equal(local, rank % 3);
    expect_ok(kb_device_mesh_get_group(ctx, mesh, "dp", &group));
    expect_ok(kb_distributed_get_group_rank(ctx, group, &in_group));
    expect_ok(kb_distributed_get_group_size(ctx, group, &size));
    assert_int_equal(in_group, rank / 3);
    assert_int_equal(size, 2);
    expect_error(kb_device_mesh_get_group(ctx, mesh, "pp", &group), KB_ERR_INPUT,
                 "kb_device_mesh_get_group: the mesh has no dimension 'pp': expected 'dp' or 'tp'");
    expect_ok(kb_device_mesh_free(ctx, mesh));
    expect_error(kb_device_mesh_free(ctx, mesh), KB_ERR_FAULT,
                 "kb_device_mesh_free: invalid or freed device mesh handle");
}

/* Ranks 0 to 2 gather what they have, and ranks 3 to 5 as well. */
static void gather_in_submesh(kb_context *ctx, uint32_t rank)
{
    kb_device_mesh mesh, rows;
    kb_dtensor d;
    expect_ok(kb_init_device_mesh(ctx, &two_by_three, &mesh));
    expect_ok(kb_device_mesh_get_submesh(ctx, mesh, "tp", &rows));
    kb_tensor local = tensor_on(ctx, &KB_SHAPE(2, 2), KB_F16, rank);
    expect_ok(kb_dtensor_from_local(ctx, local, rows, KB_PLACEMENTS(KB_SHARD(0)), NULL, &d));
    plain expected = plain_new(&KB_SHAPE(6, 2));
    for (uint32_t i = 0; i < 12; i++)
        expected.numbers[i] = rank / 3 * 3 + i / 4;
    expect_full(ctx, d, &expected, 0);
    plain_free(&expected);
    expect_error(
        kb_device_mesh_free(ctx, mesh), KB_ERR_FAULT,
        "kb_device_mesh_free: the mesh is in use: free its DTensors and sub-meshes (1) first");
    expect_ok(kb_dtensor_free(ctx, d));
    expect_ok(kb_device_mesh_free(ctx, rows));
    expect_ok(kb_device_mesh_free(ctx, mesh));
    expect_ok(kb_tensor_free(ctx, local));
}

/* Ranks 2 and 0, in that order; rank 1 is not among them. */
static void use_some_ranks(kb_context *ctx, uint32_t rank)
{
    const uint32_t ranks[] = {2, 0};
    kb_device_mesh mesh;
    kb_dtensor d;
    kb_device_mesh_spec spec = {.ndim = 1, .shape = {2}, .ranks = ranks};
    expect_ok(kb_init_device_mesh(ctx, &spec, &mesh));
    kb_tensor local = tensor_on(ctx, &KB_SHAPE(1), KB_I32, rank);
    kb_error *err = kb_dtensor_from_local(ctx, local, mesh, KB_PLACEMENTS(KB_SHARD(0)), NULL, &d);
    if (rank == 1) {
        expect_error(err, KB_ERR_FAULT, "kb_dtensor_from_local: rank 1 is not in the device mesh");
    } else {
        plain expected = plain_new(&KB_SHAPE(2));
        expected.numbers[0] = 2;
        expect_ok(err);
        expect_full(ctx, d, &expected, 0);
        plain_free(&expected);
        expect_ok(kb_dtensor_free(ctx, d));
    }
    expect_ok(kb_device_mesh_free(ctx, mesh));
    expect_ok(kb_tensor_free(ctx, local));
}

static void refuse_meshes(kb_context *ctx, uint32_t rank)
{
    static const char f[] = "kb_init_device_mesh: ";
    const uint32_t twice[] = {1, 1}, far[] = {0, 7};
    const struct {
        kb_device_mesh_spec spec;
        const char *message;
    } refused[] = {
        {{.ndim = 3}, "3 dimensions: expected 1 or 2"},
        {{.ndim = 0}, "0 dimensions: expected 1 or 2"},
        {{.ndim = 2, .shape = {2, 2}}, "the mesh has 4 ranks, but the world size is 3"},
        {{.ndim = 1, .shape = {2}}, "the mesh has 2 ranks, but the world size is 3"},
        {{.ndim = 2, .shape = {3, 0}}, "no ranks along dimension 1"},
        {{.ndim = 1, .shape = {2}, .ranks = twice}, "rank 1 is named twice"},
        {{.ndim = 1, .shape = {2}, .ranks = far}, "no such rank 7: the world size is 3"},
        {{.ndim = 2, .shape = {3, 1}, .mesh_dim_names = {"a", "a"}},
         "both dimensions have the name 'a'"},
        {{.ndim = 1, .mesh_dim_names = {"a name of more than thirty-one bytes"}},
         "the name of dimension 0 has 36 bytes: expected 1 to 31"},
    };
    (void)rank;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        kb_device_mesh mesh;
        char message[200];
        snprintf(message, sizeof message, "%s%s", f, refused[i].message);
        expect_error(kb_init_device_mesh(ctx, &refused[i].spec, &mesh), KB_ERR_INPUT, message);
        assert_int_equal(mesh.id, 0);
    }
}

static void meshes(void **state)
{
    (void)state;
    on_devices(6, look_at_mesh);
    on_devices(6, gather_in_submesh);
    on_devices(3, use_some_ranks);
    on_devices(3, refuse_meshes);
}

static void needs_process_group(void **state)
{
    (void)state;
    kb_device_mesh mesh;
    kb_context *ctx = open_machine_of(2, 1, 1, (kb_context_options){0});
    expect_error(kb_init_device_mesh(ctx, &(kb_device_mesh_spec){.ndim = 1}, &mesh), KB_ERR_INPUT,
                 "kb_init_device_mesh: kb_distributed_get_world_size: call "
                 "kb_distributed_init_process_group() first");
    kb_context_destroy(ctx);
}

/* ---- Tensors on devices ---- */

static kb_placements drawn;

/* The first rank's numbers reach all, whatever the others have. */
static void distribute_from_device(kb_context *ctx, uint32_t rank)
{
    kb_rng rng;
    kb_rng_init(&rng, test_seed(5));
    const uint32_t shape[2] = {2, 2};
    plain x = plain_draw(&rng, &KB_SHAPE(5, 3, 7));
    kb_device_mesh mesh = open_mesh(ctx, 2, 2);
    kb_tensor full = tensor_on(ctx, &x.shape, KB_F32, 77), local, host;
    host = host_tensor(ctx, "h", &x, KB_F32);
    if (rank == 0)
        expect_ok(kb_tensor_copy(ctx, full, host, KB_UNTIMED));
    kb_dtensor d;
    expect_ok(kb_distribute_tensor(ctx, full, mesh, drawn, &d));
    expect_ok(kb_dtensor_to_local(ctx, d, &local));
    plain part = plain_part(&x, shape, drawn, rank);
    expect_plain(ctx, local, &part, 0);
    expect_full(ctx, d, &x, 0);
    plain_free(&part);
    plain_free(&x);
    expect_ok(kb_dtensor_free(ctx, d));
    expect_ok(kb_device_mesh_free(ctx, mesh));
    expect_ok(kb_tensor_free(ctx, full));
    expect_ok(kb_tensor_free(ctx, host));
}

static void distributes_tensors_of_devices(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(9));
    for (int i = 0; i < 12; i++) {
        drawn = draw_placements(&rng, 2, 3, KB_F32, false);
        on_devices(4, distribute_from_device);
    }
}

/* ---- Local tensors ---- */

static void own_local_tensors(kb_context *ctx, uint32_t rank)
{
    kb_device_mesh mesh = open_mesh(ctx, 2, 0);
    kb_tensor given = tensor_on(ctx, &KB_SHAPE(3, 4), KB_F32, rank + 1), seen, made;
    kb_dtensor d, sum;
    kb_shape shape;
    double value;
    expect_ok(kb_dtensor_from_local(ctx, given, mesh, KB_PLACEMENTS(KB_PARTIAL(KB_SUM)), NULL, &d));
    expect_ok(kb_dtensor_to_local(ctx, d, &seen));
    assert_int_equal(seen.id, given.id);
    expect_ok(kb_dtensor_redistribute(ctx, d, KB_PLACEMENTS(KB_REPLICATE_PLACEMENT), &sum));
    expect_ok(kb_dtensor_to_local(ctx, sum, &made));
    assert_true(made.id != given.id);
    expect_ok(kb_tensor_get(ctx, given, KB_UNTIMED, &KB_INDEX(1, 1), &value));
    assert_float_equal(value, rank + 1, 0); /* the operand is as it was */
    expect_ok(kb_tensor_get(ctx, made, KB_UNTIMED, &KB_INDEX(1, 1), &value));
    assert_float_equal(value, 3, 0);
    expect_ok(kb_dtensor_free(ctx, d));
    expect_ok(kb_tensor_shape(ctx, given, &shape)); /* still the caller's */
    expect_ok(kb_dtensor_free(ctx, sum));
    expect_error(kb_tensor_shape(ctx, made, &shape), KB_ERR_FAULT,
                 "kb_tensor_shape: invalid or freed tensor handle");
    expect_ok(kb_tensor_free(ctx, given));
    expect_ok(kb_device_mesh_free(ctx, mesh));
}

/* (7, 2) in rows over 4 ranks: 2, 2, 2, 1; and 3 of them over 4: 1, 1, 1, none. */
static void ragged_parts(kb_context *ctx, uint32_t rank)
{
    static const uint64_t rows[2][4] = {{2, 2, 2, 1}, {1, 1, 1, 0}};
    kb_device_mesh mesh = open_mesh(ctx, 4, 0);
    for (int i = 0; i < 2; i++) {
        kb_shape shape = KB_SHAPE(i == 0 ? 7 : 3, 2), local;
        kb_tensor full = tensor_on(ctx, &shape, KB_F16, 1), part;
        kb_dtensor d;
        expect_ok(kb_distribute_tensor(ctx, full, mesh, KB_PLACEMENTS(KB_SHARD(-2)), &d));
        expect_ok(kb_dtensor_to_local(ctx, d, &part));
        expect_ok(kb_tensor_shape(ctx, part, &local));
        assert_int_equal(local.dims[0], rows[i][rank]);
        assert_int_equal(local.dims[1], 2);
        expect_ok(kb_dtensor_free(ctx, d));
        expect_ok(kb_tensor_free(ctx, full));
    }
    expect_ok(kb_device_mesh_free(ctx, mesh));
}

static void local_tensors(void **state)
{
    (void)state;
    on_devices(2, own_local_tensors);
    on_devices(4, ragged_parts);
}

/* ---- Mistakes ---- */

static void refuse_placements(kb_context *ctx, uint32_t rank)
{
    static const struct {
        kb_placements placements;
        kb_dtype dtype;
        const char *message;
    } refused[] = {
        {{1, {{KB_PLACEMENT_REPLICATE, 0, KB_SUM}}},
         KB_F32,
         "1 placement for a device mesh of 2 dimensions: expected one for each"},
        {{2, {{KB_PLACEMENT_SHARD, 2, KB_SUM}}},
         KB_F32,
         "Shard(2): dimension 2 is out of range: the tensor has 2 dimensions"},
        {{2, {{KB_PLACEMENT_SHARD, -3, KB_SUM}}},
         KB_F32,
         "Shard(-3): dimension -3 is out of range: the tensor has 2 dimensions"},
        {{2, {{(kb_placement_kind)9, 0, KB_SUM}}}, KB_F32, "invalid placement 9"},
        {{2, {{KB_PLACEMENT_PARTIAL, 0, (kb_reduce_op)9}}},
         KB_F32,
         "Partial with an invalid reduce operation 9"},
        {{2, {{KB_PLACEMENT_PARTIAL, 0, KB_AVG}}},
         KB_I8,
         "Partial(avg) of a tensor of i8: an average is not a whole number"},
        {{2, {{KB_PLACEMENT_PARTIAL, 0, KB_SUM}}},
         KB_F8E4M3,
         "Partial of a tensor of f8e4m3, which is for storage only"},
        {{2, {{KB_PLACEMENT_PARTIAL, 0, KB_SUM}, {KB_PLACEMENT_PARTIAL, 0, KB_MAX}}},
         KB_F32,
         "placements (Partial(sum), Partial(max)): the result depends on which reduction is first; "
         "use the same operation for both, or sum and avg"},
    };
    (void)rank;
    kb_device_mesh mesh = open_mesh(ctx, 2, 1);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        kb_tensor x = tensor_on(ctx, &KB_SHAPE(2, 2), refused[i].dtype, 1);
        kb_dtensor d;
        char message[300];
        snprintf(message, sizeof message, "kb_dtensor_from_local: %s", refused[i].message);
        expect_error(kb_dtensor_from_local(ctx, x, mesh, refused[i].placements, NULL, &d),
                     KB_ERR_INPUT, message);
        assert_int_equal(d.id, 0);
        expect_ok(kb_tensor_free(ctx, x));
    }
    expect_ok(kb_device_mesh_free(ctx, mesh));
}

static void refuse_operands(kb_context *ctx, uint32_t rank)
{
    (void)rank;
    const kb_placements all = KB_PLACEMENTS(KB_REPLICATE_PLACEMENT);
    kb_device_mesh mesh = open_mesh(ctx, 2, 0), other = open_mesh(ctx, 2, 0);
    kb_tensor x = tensor_on(ctx, &KB_SHAPE(2, 3), KB_F32, 1);
    kb_tensor h = tensor_on(ctx, &KB_SHAPE(2, 3), KB_F16, 1);
    kb_tensor i = tensor_on(ctx, &KB_SHAPE(2, 3), KB_I32, 1);
    kb_dtensor a, elsewhere, half, whole, result;
    expect_ok(kb_dtensor_from_local(ctx, x, mesh, all, NULL, &a));
    expect_ok(kb_dtensor_from_local(ctx, x, other, all, NULL, &elsewhere));
    expect_ok(kb_dtensor_from_local(ctx, h, mesh, all, NULL, &half));
    expect_ok(kb_dtensor_from_local(ctx, i, mesh, all, NULL, &whole));
    expect_error(kb_dtensor_add(ctx, a, elsewhere, &result), KB_ERR_FAULT,
                 "kb_dtensor_add: DTensors 'x' and 'x' are on different device meshes");
    expect_error(kb_dtensor_add(ctx, a, half, &result), KB_ERR_FAULT,
                 "kb_dtensor_add: DTensor 'x' is f32, but 'x' is f16");
    expect_error(kb_dtensor_matmul(ctx, a, a, &result), KB_ERR_FAULT,
                 "kb_dtensor_matmul: DTensor 'x' has 3 columns, but 'x' has 2 rows");
    expect_error(
        kb_dtensor_mean(ctx, whole, 0, false, &result), KB_ERR_FAULT,
        "kb_dtensor_mean: mean of DTensor 'x', which is i32: a mean is not a whole number");
    expect_error(kb_dtensor_binary(ctx, KB_BINARY_DIV, whole, whole, &result), KB_ERR_FAULT,
                 "kb_dtensor_binary: division of DTensor 'x', which is i32: division needs "
                 "floating point");
    expect_error(kb_dtensor_sum(ctx, a, 2, false, &result), KB_ERR_INPUT,
                 "kb_dtensor_sum: dimension 2 is out of range: the tensor has 2 dimensions");
    expect_error(kb_dtensor_unary(ctx, KB_UNARY_OPS, a, &result), KB_ERR_INPUT,
                 "kb_dtensor_unary: invalid operation 13");
    expect_error(kb_distribute_tensor(ctx, x, mesh, KB_PLACEMENTS(KB_PARTIAL(KB_SUM)), &result),
                 KB_ERR_INPUT,
                 "kb_distribute_tensor: tensor 'x': a tensor can be distributed as Shard and "
                 "Replicate, not as Partial");
    expect_ok(kb_tensor_free(ctx, x));
    expect_error(kb_dtensor_unary(ctx, KB_UNARY_NEG, a, &result), KB_ERR_FAULT,
                 "kb_dtensor_unary: local tensor of DTensor 'x': kb_tensor_shape: invalid or freed "
                 "tensor handle");
    expect_ok(kb_dtensor_free(ctx, a));
    expect_error(kb_dtensor_free(ctx, a), KB_ERR_FAULT,
                 "kb_dtensor_free: invalid or freed DTensor handle");
    expect_error(kb_dtensor_add(ctx, half, a, &result), KB_ERR_FAULT,
                 "kb_dtensor_add: invalid or freed DTensor handle");
    expect_ok(kb_dtensor_free(ctx, elsewhere));
    expect_ok(kb_dtensor_free(ctx, half));
    expect_ok(kb_dtensor_free(ctx, whole));
    expect_ok(kb_device_mesh_free(ctx, mesh));
    expect_ok(kb_device_mesh_free(ctx, other));
}

/* (3, 3) in rows: rank 0 has 2 rows, rank 1 has 1. */
static void refuse_locals(kb_context *ctx, uint32_t rank)
{
    kb_device_mesh mesh = open_mesh(ctx, 2, 0);
    const kb_placements rows = KB_PLACEMENTS(KB_SHARD(0));
    kb_dtensor d;
    kb_tensor x = tensor_on(ctx, &KB_SHAPE(rank + 1, 3), KB_F32, 1);
    plain p = plain_new(&KB_SHAPE(2, 3));
    kb_tensor host = host_tensor(ctx, "h", &p, KB_F32);
    expect_error(kb_dtensor_from_local(ctx, x, mesh, rows, &KB_SHAPE(3, 3), &d), KB_ERR_FAULT,
                 rank == 0 ? "kb_dtensor_from_local: tensor 'x' has the shape (1, 3), but with "
                             "placements (Shard(0)) rank 0 has (2, 3)"
                           : "kb_dtensor_from_local: tensor 'x' has the shape (2, 3), but with "
                             "placements (Shard(0)) rank 1 has (1, 3)");
    expect_error(kb_dtensor_from_local(ctx, x, mesh, rows, &KB_SHAPE(9), &d), KB_ERR_INPUT,
                 "kb_dtensor_from_local: the shape of the whole has 1 dimensions, but tensor 'x' "
                 "has 2");
    expect_error(kb_dtensor_from_local(ctx, host, mesh, rows, NULL, &d), KB_ERR_FAULT,
                 "kb_dtensor_from_local: tensor 'h' is on the host: copy it to a device first");
    expect_error(kb_dtensor_from_local(ctx, (kb_tensor){0}, mesh, rows, NULL, &d), KB_ERR_FAULT,
                 "kb_dtensor_from_local: invalid or freed tensor handle");
    expect_ok(kb_ahbm_set_device(ctx, 1 - rank));
    kb_tensor away = tensor_on(ctx, &KB_SHAPE(2, 3), KB_F32, 1);
    expect_error(kb_dtensor_from_local(ctx, away, mesh, rows, NULL, &d), KB_ERR_FAULT,
                 rank == 0 ? "kb_dtensor_from_local: tensor 'x' is on sip1, but rank 0 has sip0"
                           : "kb_dtensor_from_local: tensor 'x' is on sip0, but rank 1 has sip1");
    plain_free(&p);
    expect_ok(kb_tensor_free(ctx, away));
    expect_ok(kb_tensor_free(ctx, host));
    expect_ok(kb_tensor_free(ctx, x));
    expect_ok(kb_device_mesh_free(ctx, mesh));
}

/* Ranks that do not agree: the collectives say so. */
static kb_error *disagree(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    kb_device_mesh mesh;
    kb_dtensor d, changed;
    KB_TRY(kb_init_device_mesh(ctx, &(kb_device_mesh_spec){.ndim = 1}, &mesh));
    kb_tensor x = tensor_on(ctx, &KB_SHAPE(4, 4), KB_F32, 1);
    kb_placement to = rank == 0 ? KB_SHARD(0) : KB_REPLICATE_PLACEMENT;
    KB_TRY(kb_dtensor_from_local(ctx, x, mesh, KB_PLACEMENTS(KB_PARTIAL(KB_SUM)), NULL, &d));
    return kb_dtensor_redistribute(ctx, d, KB_PLACEMENTS(to), &changed);
}

static void ranks_that_disagree(void **state)
{
    (void)state;
    kb_context *ctx = open_machine_of(2, 1, 1, (kb_context_options){0});
    kb_error *err = kb_spawn(ctx, disagree, NULL, 2);
    assert_int_equal(kb_error_code(err), KB_ERR_FAULT);
    assert_non_null(strstr(kb_error_message(err), "kb_dtensor_redistribute: "));
    assert_non_null(strstr(kb_error_message(err), "reduce_scatter"));
    assert_non_null(strstr(kb_error_message(err), "all_reduce"));
    kb_error_free(err);
    kb_context_destroy(ctx);
}

/* Handles are of the rank that made them. */
static kb_dtensor shared;

static kb_error *use_that_of_rank_0(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    kb_device_mesh mesh;
    kb_shape shape;
    KB_TRY(kb_init_device_mesh(ctx, &(kb_device_mesh_spec){.ndim = 1}, &mesh));
    kb_tensor x = tensor_on(ctx, &KB_SHAPE(4), KB_F32, 1);
    if (rank == 0)
        KB_TRY(kb_dtensor_from_local(ctx, x, mesh, KB_PLACEMENTS(KB_SHARD(0)), NULL, &shared));
    KB_TRY(kb_distributed_barrier(ctx, NULL));
    return rank == 1 ? kb_dtensor_shape(ctx, shared, &shape) : NULL;
}

static void handles_of_others(void **state)
{
    (void)state;
    kb_context *ctx = open_machine_of(2, 1, 1, (kb_context_options){0});
    kb_shape shape;
    expect_error(kb_spawn(ctx, use_that_of_rank_0, NULL, 2), KB_ERR_FAULT,
                 "1 of 2 workers failed: rank 1: kb_dtensor_shape: the DTensor was made by rank 0, "
                 "but is used by rank 1: each worker makes its own");
    expect_error(kb_dtensor_shape(ctx, shared, &shape), KB_ERR_FAULT,
                 "kb_dtensor_shape: the DTensor was made by the worker of rank 0, but is used "
                 "outside workers");
    expect_ok(kb_dtensor_free(ctx, shared)); /* its worker has left it behind */
    kb_context_destroy(ctx);
}

/* Workers that are unwound can free theirs. */
typedef struct own {
    kb_context *ctx;
    kb_device_mesh mesh;
    kb_dtensor d;
    int freed;
} own;

static void free_own(void *arg)
{
    own *o = arg;
    expect_ok(kb_dtensor_free(o->ctx, o->d));
    expect_ok(kb_device_mesh_free(o->ctx, o->mesh));
    o->freed++;
}

static kb_error *fail_with_cleanup(kb_context *ctx, uint32_t rank, void *arg)
{
    own *o = (own *)arg + rank;
    kb_cleanup cleanup;
    kb_dtensor sum;
    plain p = plain_new(&KB_SHAPE(5, 2));
    kb_tensor host = host_tensor(ctx, "h", &p, KB_F32);
    plain_free(&p);
    o->ctx = ctx;
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    o->mesh = open_mesh(ctx, 2, 0);
    KB_TRY(kb_distribute_tensor(ctx, host, o->mesh, KB_PLACEMENTS(KB_SHARD(0)), &o->d));
    KB_TRY(kb_tensor_free(ctx, host));
    kb_co_push_cleanup(kb_context_worker(ctx), &cleanup, free_own, o);
    kb_error *err = rank == 1
                        ? kb_error_new(KB_ERR_CHECK, "no more")
                        : kb_dtensor_redistribute(ctx, o->d, KB_PLACEMENTS(KB_SHARD(1)), &sum);
    kb_co_pop_cleanup(kb_context_worker(ctx), true);
    return err;
}

static void frees_in_cleanups(void **state)
{
    (void)state;
    notes warnings = {0};
    own owns[2] = {0};
    kb_context *ctx = open_machine_of(2, 1, 1,
                                      (kb_context_options){.debug = true,
                                                           .on_warning = note_warning,
                                                           .on_warning_self = &warnings});
    kb_error *err = kb_spawn(ctx, fail_with_cleanup, owns, 2);
    assert_non_null(strstr(kb_error_message(err), "no more"));
    kb_error_free(err);
    assert_int_equal(owns[0].freed + owns[1].freed, 2);
    warnings = (notes){0};
    kb_context_destroy(ctx);
    assert_string_equal(warnings.text, "");
}

/* A call that fails, or whose worker is unwound, leaves no tensors behind. */
static kb_error *fail_in_the_middle(kb_context *ctx, uint32_t rank, void *arg)
{
    kb_device_mesh *meshes = arg;
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    KB_TRY(kb_init_device_mesh(ctx, &(kb_device_mesh_spec){.ndim = 1}, &meshes[rank]));
    kb_tensor x = tensor_on(ctx, &KB_SHAPE(5, 4), KB_F32, 1);
    kb_dtensor d, changed;
    KB_TRY(
        kb_dtensor_from_local(ctx, x, meshes[rank], KB_PLACEMENTS(KB_PARTIAL(KB_SUM)), NULL, &d));
    if (rank == 1)
        return kb_error_new(KB_ERR_CHECK, "no more");
    return kb_dtensor_redistribute(ctx, d, KB_PLACEMENTS(KB_SHARD(0)), &changed);
}

static void frees_what_a_failed_call_made(void **state)
{
    (void)state;
    notes warnings = {0};
    kb_device_mesh meshes[2];
    kb_context *ctx = open_machine_of(2, 1, 1,
                                      (kb_context_options){.debug = true,
                                                           .on_warning = note_warning,
                                                           .on_warning_self = &warnings});
    kb_error *err = kb_spawn(ctx, fail_in_the_middle, meshes, 2);
    assert_non_null(strstr(kb_error_message(err), "no more"));
    kb_error_free(err);
    warnings = (notes){0};
    kb_context_destroy(ctx);
    const char *text = warnings.text;
    assert_non_null(strstr(text, "context destroyed: DTensor 'x' was not freed\n"));
    assert_non_null(strstr(text, "context destroyed: a device mesh of 2 ranks was not freed\n"));
    assert_non_null(strstr(text, "context destroyed: tensor 'x'"));
    assert_null(strstr(text, "blocks")); /* staging tensors are freed */
}

/* Outside workers. */
static void calls_for_workers_only(void **state)
{
    (void)state;
    kb_device_mesh mesh;
    kb_dtensor d;
    kb_tensor local;
    uint32_t coordinate[2];
    plain p = plain_new(&KB_SHAPE(4));
    kb_context *ctx = open_machine_of(2, 1, 1, (kb_context_options){0});
    expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
    expect_ok(kb_init_device_mesh(ctx, &(kb_device_mesh_spec){.ndim = 1}, &mesh));
    kb_tensor host = host_tensor(ctx, "h", &p, KB_F32);
    kb_tensor x = tensor_on(ctx, &KB_SHAPE(4), KB_F32, 1);
    expect_error(kb_device_mesh_get_coordinate(ctx, mesh, coordinate), KB_ERR_INPUT,
                 "kb_device_mesh_get_coordinate: only workers can call it: outside workers the "
                 "program drives all ranks of the mesh");
    expect_error(kb_distribute_tensor(ctx, x, mesh, KB_PLACEMENTS(KB_SHARD(0)), &d), KB_ERR_INPUT,
                 "kb_distribute_tensor: tensor 'x' is on a device: outside workers, distribute one "
                 "of the host");
    expect_error(kb_dtensor_from_local(ctx, x, mesh, KB_PLACEMENTS(KB_SHARD(0)), NULL, &d),
                 KB_ERR_INPUT,
                 "kb_dtensor_from_local: 1 tensor given, but the caller drives 2 ranks");
    expect_error(kb_dtensor_from_locals(ctx, NULL, 2, mesh, KB_PLACEMENTS(KB_SHARD(0)), NULL, &d),
                 KB_ERR_INPUT, "kb_dtensor_from_local: locals is NULL");
    expect_ok(kb_distribute_tensor(ctx, host, mesh, KB_PLACEMENTS(KB_SHARD(0)), &d));
    assert_int_equal(kb_ahbm_current_device(ctx), 0); /* as it was before */
    expect_error(kb_dtensor_to_local(ctx, d, &local), KB_ERR_INPUT,
                 "kb_dtensor_to_local: outside workers a DTensor has a local tensor for each rank: "
                 "use kb_dtensor_local_of()");
    expect_error(kb_dtensor_local_of(ctx, d, 2, &local), KB_ERR_INPUT,
                 "kb_dtensor_local_of: the caller has no local tensor of rank 2");
    plain_free(&p);
    kb_context_destroy(ctx);
}

/* Where ccl.yaml makes ranks of PEs. */
static void ranks_that_are_pes(void **state)
{
    (void)state;
    static const char *const settings[] = {"ccl.defaults.algorithm=mesh_allreduce_4"};
    const kb_context_options options = {.settings = settings, .setting_count = 1};
    kb_device_mesh mesh;
    kb_context *ctx;
    expect_ok(kb_context_create(&options, &ctx));
    expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
    expect_error(kb_init_device_mesh(ctx, &(kb_device_mesh_spec){.ndim = 1}, &mesh), KB_ERR_INPUT,
                 "kb_init_device_mesh: ranks are PEs, as 'mesh_allreduce_4' in ccl.yaml says: "
                 "devices are needed as ranks");
    kb_context_destroy(ctx);
}

static void mistakes(void **state)
{
    (void)state;
    on_devices(2, refuse_placements);
    on_devices(2, refuse_operands);
    on_devices(2, refuse_locals);
}

/* ---- Machines and memories ---- */

/* Limited to one device, there is one rank, which has that device. */
static void on_a_chosen_device(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(3));
    kb_context *ctx = open_machine_of(3, 1, 1, (kb_context_options){.device = "sip:2"});
    plain p = plain_draw(&rng, &KB_SHAPE(4, 3));
    kb_tensor host = host_tensor(ctx, "h", &p, KB_F32), local;
    kb_device_mesh mesh;
    kb_dtensor x, y;
    uint32_t device;
    expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
    expect_ok(kb_init_device_mesh(ctx, &(kb_device_mesh_spec){.ndim = 1}, &mesh));
    expect_ok(kb_distribute_tensor(ctx, host, mesh, KB_PLACEMENTS(KB_SHARD(0)), &x));
    expect_ok(kb_dtensor_redistribute(ctx, x, KB_PLACEMENTS(KB_PARTIAL(KB_SUM)), &y));
    expect_ok(kb_dtensor_local_of(ctx, y, 0, &local));
    expect_ok(kb_tensor_device(ctx, local, &device));
    assert_int_equal(device, 2);
    expect_full(ctx, y, &p, 0);
    plain_free(&p);
    kb_context_destroy(ctx);
}

/* Products are made in HBM, also of tensors that are in TCM. */
static void multiply_in_tcm(kb_context *ctx, uint32_t rank)
{
    (void)rank;
    const kb_tensor_spec spec = {
        .name = "t", .dtype = KB_F32, .shape = KB_SHAPE(3, 3), .memory = KB_TCM};
    kb_device_mesh mesh = open_mesh(ctx, 2, 0);
    kb_tensor t;
    kb_dtensor x, y;
    plain expected = plain_new(&KB_SHAPE(3, 3));
    for (int i = 0; i < 9; i++)
        expected.numbers[i] = 12; /* 3 * 2 * 2 */
    expect_ok(kb_full(ctx, &spec, 2, &t));
    expect_ok(kb_dtensor_from_local(ctx, t, mesh, KB_PLACEMENTS(KB_REPLICATE_PLACEMENT), NULL, &x));
    expect_ok(kb_dtensor_matmul(ctx, x, x, &y));
    expect_full(ctx, y, &expected, 0);
    plain_free(&expected);
    expect_ok(kb_dtensor_free(ctx, y));
    expect_ok(kb_dtensor_free(ctx, x));
    expect_ok(kb_tensor_free(ctx, t));
    expect_ok(kb_device_mesh_free(ctx, mesh));
}

/* The program drives ranks 2 and 0 of three. */
static void for_some_ranks(void **state)
{
    (void)state;
    const uint32_t ranks[] = {2, 0};
    kb_rng rng;
    kb_rng_init(&rng, test_seed(4));
    kb_context *ctx = open_machine_of(3, 1, 1, (kb_context_options){0});
    plain p = plain_draw(&rng, &KB_SHAPE(5, 3));
    kb_tensor host = host_tensor(ctx, "h", &p, KB_F32), local;
    kb_device_mesh mesh;
    kb_dtensor x, y;
    uint32_t device;
    expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
    const kb_device_mesh_spec spec = {.ndim = 1, .shape = {2}, .ranks = ranks};
    expect_ok(kb_init_device_mesh(ctx, &spec, &mesh));
    expect_ok(kb_distribute_tensor(ctx, host, mesh, KB_PLACEMENTS(KB_SHARD(0)), &x));
    expect_ok(kb_dtensor_local_of(ctx, x, 2, &local));
    expect_ok(kb_tensor_device(ctx, local, &device));
    assert_int_equal(device, 2);
    expect_ok(kb_dtensor_redistribute(ctx, x, KB_PLACEMENTS(KB_SHARD(1)), &y));
    expect_full(ctx, y, &p, 0);
    plain_free(&p);
    kb_context_destroy(ctx);
}

/*
 * With one PE in each cube, local tensors have the layout that intercube_allreduce, the default of
 * the built-in ccl.yaml, needs; it adds up the parts of the cubes, too. DTensors want the plain
 * sum.
 */
static void reduce_plainly(kb_context *ctx, uint32_t rank)
{
    kb_device_mesh mesh = open_mesh(ctx, 2, 0);
    kb_tensor local = tensor_on(ctx, &KB_SHAPE(2, 8), KB_F32, rank + 1);
    kb_dtensor x, y;
    plain expected = plain_new(&KB_SHAPE(2, 8));
    for (int i = 0; i < 16; i++)
        expected.numbers[i] = 3;
    expect_ok(kb_dtensor_from_local(ctx, local, mesh, KB_PLACEMENTS(KB_PARTIAL(KB_SUM)), NULL, &x));
    expect_ok(kb_dtensor_redistribute(ctx, x, KB_PLACEMENTS(KB_REPLICATE_PLACEMENT), &y));
    expect_full(ctx, y, &expected, 0);
    plain_free(&expected);
    expect_ok(kb_dtensor_free(ctx, x));
    expect_ok(kb_dtensor_free(ctx, y));
    expect_ok(kb_tensor_free(ctx, local));
    expect_ok(kb_device_mesh_free(ctx, mesh));
}

static void whatever_ccl_yaml_says(void **state)
{
    (void)state;
    temporary file = file_of("system: { sips: { count: 2 } }\n"
                             "sip: { cube_mesh: { w: 2, h: 1 } }\n"
                             "cube: { noc: { k: 1 }, pe_layout: { pe_per_router: 1 } }\n");
    const kb_context_options options = {.topology = file.path};
    body *fn = reduce_plainly;
    kb_context *ctx;
    expect_ok(kb_context_create(&options, &ctx));
    remove_file(&file);
    expect_ok(kb_spawn(ctx, run_body, &fn, 2));
    kb_context_destroy(ctx);
}

static void in_tcm(void **state)
{
    (void)state;
    on_devices(2, multiply_in_tcm);
}

/* ---- Without data ---- */

/* The time is the same with and without data. */
static kb_error *take_time(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)rank;
    kb_tensor host = *(kb_tensor *)arg;
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    kb_device_mesh mesh;
    kb_dtensor x, y, z;
    KB_TRY(kb_init_device_mesh(ctx, &(kb_device_mesh_spec){.ndim = 1}, &mesh));
    KB_TRY(kb_distribute_tensor(ctx, host, mesh, KB_PLACEMENTS(KB_SHARD(1)), &x));
    KB_TRY(kb_dtensor_redistribute(ctx, x, KB_PLACEMENTS(KB_SHARD(0)), &y));
    KB_TRY(kb_dtensor_matmul(ctx, x, y, &z));
    KB_TRY(kb_dtensor_free(ctx, x));
    KB_TRY(kb_dtensor_sum(ctx, z, 0, false, &x));
    return kb_distributed_destroy_process_group(ctx);
}

static void takes_the_same_time_without_data(void **state)
{
    (void)state;
    kb_time ended[2];
    for (int i = 0; i < 2; i++) {
        kb_context *ctx = open_machine_of(3, 1, 1, (kb_context_options){.timing_only = i == 1});
        plain p = plain_new(&KB_SHAPE(11, 11));
        kb_tensor host = host_tensor(ctx, "h", &p, KB_F16);
        expect_ok(kb_spawn(ctx, take_time, &host, 3));
        ended[i] = kb_context_now(ctx);
        plain_free(&p);
        kb_context_destroy(ctx);
    }
    assert_true(ended[0] > 0);
    assert_int_equal(ended[0], ended[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(meshes),
        cmocka_unit_test(needs_process_group),
        cmocka_unit_test(distributes_tensors_of_devices),
        cmocka_unit_test(local_tensors),
        cmocka_unit_test(mistakes),
        cmocka_unit_test(ranks_that_disagree),
        cmocka_unit_test(handles_of_others),
        cmocka_unit_test(frees_in_cleanups),
        cmocka_unit_test(frees_what_a_failed_call_made),
        cmocka_unit_test(calls_for_workers_only),
        cmocka_unit_test(ranks_that_are_pes),
        cmocka_unit_test(on_a_chosen_device),
        cmocka_unit_test(for_some_ranks),
        cmocka_unit_test(in_tcm),
        cmocka_unit_test(whatever_ccl_yaml_says),
        cmocka_unit_test(takes_the_same_time_without_data),
    };
    return cmocka_run_group_tests_name("dtensor", tests, NULL, NULL);
}
