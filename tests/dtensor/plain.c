/* plain.c: see plain.h. */
#include "plain.h"

#include <math.h>

uint64_t plain_count(const kb_shape *shape)
{
    uint64_t count = 1;
    for (uint32_t axis = 0; axis < shape->rank; axis++)
        count *= shape->dims[axis];
    return count;
}

plain plain_new(const kb_shape *shape)
{
    plain p = {.shape = *shape, .numbers = calloc(plain_count(shape) + 1, sizeof(double))};
    assert_non_null(p.numbers);
    return p;
}

void plain_free(plain *p)
{
    free(p->numbers);
    p->numbers = NULL;
}

plain plain_draw(kb_rng *rng, const kb_shape *shape)
{
    plain p = plain_new(shape);
    for (uint64_t i = 0; i < plain_count(shape); i++)
        p.numbers[i] = (double)kb_rng_below(rng, 9) - 4;
    return p;
}

static size_t byte_count(const plain *p, kb_dtype dtype)
{
    return plain_count(&p->shape) * kb_dtype_bytes(dtype);
}

void *plain_bytes(const plain *p, kb_dtype dtype)
{
    uint64_t count = plain_count(&p->shape);
    float *numbers = calloc(count + 1, sizeof *numbers);
    void *bytes = calloc(byte_count(p, dtype) + 1, 1);
    assert_true(numbers && bytes);
    for (uint64_t i = 0; i < count; i++)
        numbers[i] = (float)p->numbers[i];
    kb_convert(dtype, bytes, KB_F32, numbers, count);
    free(numbers);
    return bytes;
}

/* ---- Parts ---- */

/* Indices of one axis that a position has, in order; their count. */
static uint64_t own_indices(uint32_t axis, const kb_shape *shape, const uint32_t mesh[2],
                            kb_placements placements, uint32_t position, uint64_t *own)
{
    uint64_t count = shape->dims[axis];
    for (uint64_t i = 0; i < count; i++)
        own[i] = i;
    for (uint32_t dim = 0; dim < placements.count; dim++) {
        uint32_t coordinate = position;
        if (placements.count == 2)
            coordinate = dim == 0 ? position / mesh[1] : position % mesh[1];
        const kb_placement *p = &placements.items[dim];
        if (p->kind != KB_PLACEMENT_SHARD || (uint32_t)p->dim != axis)
            continue;
        uint64_t each = (count + mesh[dim] - 1) / mesh[dim], left = 0;
        for (uint64_t i = 0; i < count; i++)
            if (i / each == coordinate)
                own[left++] = own[i];
        count = left;
    }
    return count;
}

static bool next(uint64_t *at, const kb_shape *shape)
{
    for (uint32_t axis = shape->rank; axis-- > 0;) {
        if (++at[axis] < shape->dims[axis])
            return true;
        at[axis] = 0;
    }
    return false;
}

plain plain_part(const plain *p, const uint32_t mesh[2], kb_placements placements,
                 uint32_t position)
{
    enum { LONGEST = 4096 };
    static uint64_t own[KB_MAX_DIMS][LONGEST];
    uint64_t at[KB_MAX_DIMS] = {0}, used = 0;
    kb_shape shape = p->shape;
    for (uint32_t axis = 0; axis < shape.rank; axis++) {
        assert_true(shape.dims[axis] <= LONGEST);
        shape.dims[axis] = own_indices(axis, &p->shape, mesh, placements, position, own[axis]);
    }
    plain part = plain_new(&shape);
    if (plain_count(&shape) == 0)
        return part;
    do {
        uint64_t from = 0;
        for (uint32_t axis = 0; axis < shape.rank; axis++)
            from = from * p->shape.dims[axis] + own[axis][at[axis]];
        part.numbers[used++] = p->numbers[from];
    } while (next(at, &shape));
    return part;
}

void expect_plain(kb_context *ctx, kb_tensor tensor, const plain *p, double tolerance)
{
    kb_dtype dtype;
    kb_shape shape;
    uint64_t count = plain_count(&p->shape);
    expect_ok(kb_tensor_dtype(ctx, tensor, &dtype));
    expect_ok(kb_tensor_shape(ctx, tensor, &shape));
    assert_int_equal(shape.rank, p->shape.rank);
    for (uint32_t axis = 0; axis < shape.rank; axis++)
        assert_int_equal(shape.dims[axis], p->shape.dims[axis]);
    void *bytes = calloc(byte_count(p, dtype) + 1, 1);
    float *found = calloc(count + 1, sizeof *found);
    assert_true(bytes && found);
    expect_ok(kb_tensor_to_host(ctx, tensor, KB_UNTIMED, bytes, byte_count(p, dtype)));
    kb_convert(KB_F32, found, dtype, bytes, count);
    for (uint64_t i = 0; i < count; i++) {
        double expected = p->numbers[i], limit = tolerance * fmax(1, fabs(expected));
        bool same = (double)found[i] == expected || (isnan(expected) && isnan(found[i]));
        if (!same && !(fabs((double)found[i] - expected) <= limit))
            fail_msg("element %ju is %g, expected %g", (uintmax_t)i, (double)found[i], expected);
    }
    free(found);
    free(bytes);
}

/* ---- Machines and meshes ---- */

static void ignore(void *self, const char *line)
{
    (void)self, (void)line;
}

kb_context *open_machine_of(uint32_t sips, uint32_t w, uint32_t h, kb_context_options options)
{
    char count[32], width[32], height[32];
    snprintf(count, sizeof count, "system.sips.count=%u", sips);
    snprintf(width, sizeof width, "sip.cube_mesh.w=%u", w);
    snprintf(height, sizeof height, "sip.cube_mesh.h=%u", h);
    const char *settings[] = {
        count, width, height, "cube.noc.w=2", "cube.noc.h=2", "cube.pe_layout.pe_per_corner=1",
    };
    options.settings = settings;
    options.setting_count = sizeof settings / sizeof *settings;
    options.threads = 1;
    options.races = KB_RACES_FAIL;
    if (!options.on_warning)
        options.on_warning = ignore; /* settings like the default ones */
    kb_context *ctx;
    expect_ok(kb_context_create(&options, &ctx));
    return ctx;
}

kb_device_mesh open_mesh(kb_context *ctx, uint32_t h, uint32_t w)
{
    kb_device_mesh mesh;
    kb_device_mesh_spec spec = {.ndim = w == 0 ? 1 : 2, .shape = {h, w}};
    expect_ok(kb_init_device_mesh(ctx, &spec, &mesh));
    return mesh;
}

kb_tensor host_tensor(kb_context *ctx, const char *name, const plain *p, kb_dtype dtype)
{
    kb_tensor tensor;
    kb_tensor_spec spec = {.name = name, .dtype = dtype, .shape = p->shape};
    void *bytes = plain_bytes(p, dtype);
    expect_ok(kb_from_host(ctx, &spec, bytes, byte_count(p, dtype), &tensor));
    free(bytes);
    return tensor;
}

void expect_full(kb_context *ctx, kb_dtensor dtensor, const plain *p, double tolerance)
{
    kb_tensor full;
    expect_ok(kb_dtensor_full_tensor(ctx, dtensor, &full));
    expect_plain(ctx, full, p, tolerance);
    expect_ok(kb_tensor_free(ctx, full));
}

/* ---- Placements ---- */

kb_placements draw_placements(kb_rng *rng, uint32_t count, uint32_t rank, kb_dtype dtype,
                              bool partial)
{
    static const kb_reduce_op linear[] = {KB_SUM, KB_AVG};
    bool whole = dtype == KB_I8 || dtype == KB_I32, f8 = dtype == KB_F8E4M3 || dtype == KB_F8E5M2;
    kb_placements placements = {.count = count};
    kb_reduce_op op = (kb_reduce_op)kb_rng_below(rng, whole ? KB_AVG : KB_REDUCE_OPS);
    for (uint32_t dim = 0; dim < count; dim++) {
        kb_reduce_op own = op;
        if (!whole && (op == KB_SUM || op == KB_AVG))
            own = linear[kb_rng_below(rng, 2)];
        uint64_t kind = kb_rng_below(rng, partial && !f8 ? 3 : 2);
        placements.items[dim] = kind == 2 ? KB_PARTIAL(own) : KB_REPLICATE_PLACEMENT;
        if (kind == 1 && rank > 0)
            placements.items[dim] = KB_SHARD((int)kb_rng_below(rng, rank));
    }
    return placements;
}
