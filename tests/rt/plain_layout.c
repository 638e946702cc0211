/*
 * plain_layout.c: where the elements of a tensor should be, found by asking for each one of them.
 * Slow and plain, to compare with.
 */
#include "tensors.h"

/* A tensor as rows and columns, with something between them. */
typedef struct view {
    uint64_t rows, between, columns;
} view;

static view view_of(const kb_shape *shape)
{
    view v = {1, 1, 1};
    for (uint32_t axis = 0; axis < shape->rank; axis++) {
        if (axis + 1 == shape->rank)
            v.columns = shape->dims[axis];
        else if (axis == 0)
            v.rows = shape->dims[axis];
        else
            v.between *= shape->dims[axis];
    }
    return v;
}

static uint64_t row_of(const view *v, uint64_t element)
{
    return element / v->columns / v->between;
}

static uint64_t column_of(const view *v, uint64_t element)
{
    return element % v->columns;
}

/* A position along an axis, and the length of the axis. */
typedef struct spot {
    uint64_t at, size;
} spot;

/* Whether part `part` of `parts` has the spot; if so the spot becomes that in the part. */
static bool narrow(spot *s, uint64_t parts, uint64_t part)
{
    uint64_t start = 0;
    for (uint64_t p = 0; p <= part; p++) {
        uint64_t size = s->size / parts + (p < s->size % parts);
        if (p == part) {
            bool inside = s->at >= start && s->at < start + size;
            *s = (spot){s->at - start, size};
            return inside;
        }
        start += size;
    }
    return false;
}

static bool has(kb_split split, uint64_t parts, uint64_t part, spot *row, spot *column)
{
    switch (split) {
    case KB_REPLICATE:
        return true;
    case KB_COLUMN_WISE:
        return narrow(column, parts, part);
    case KB_ROW_WISE:
        return narrow(row, parts, part);
    }
    return false;
}

static layout_part new_part(uint64_t room)
{
    layout_part part = {.elements = malloc((room + 1) * sizeof(uint64_t))};
    assert_non_null(part.elements);
    return part;
}

static layout new_layout(uint64_t count)
{
    layout l = {.parts = calloc(count + 1, sizeof(layout_part)), .count = count};
    assert_non_null(l.parts);
    return l;
}

static layout split_layout(const view *v, const kb_policy *policy, uint32_t cubes, uint32_t pes)
{
    layout l = new_layout((uint64_t)cubes * pes);
    uint64_t all = v->rows * v->between * v->columns, next = 0;
    for (uint32_t i = 0; i < l.count; i++) {
        uint32_t cube = i / pes, pe = i % pes;
        layout_part part = new_part(all);
        part.cube = cube;
        part.pe = pe;
        for (uint64_t e = 0; e < all; e++) {
            spot row = {row_of(v, e), v->rows}, column = {column_of(v, e), v->columns};
            if (has(policy->cube, cubes, cube, &row, &column) &&
                has(policy->pe, pes, pe, &row, &column))
                part.elements[part.count++] = e;
        }
        if (policy->cube == KB_REPLICATE && cube > 0) {
            part.offset = l.parts[pe].offset;
        } else if (policy->pe == KB_REPLICATE && pe > 0) {
            part.offset = l.parts[i - pe].offset;
        } else {
            part.offset = next;
            next += part.count;
        }
        l.parts[i] = part;
    }
    return l;
}

/* Which tile an element is in, in the order of dealing. */
static uint64_t tile_of(const view *v, const kb_policy *policy, uint64_t element)
{
    uint64_t down = row_of(v, element) / policy->tile_rows;
    uint64_t across = column_of(v, element) / policy->tile_columns;
    if (policy->tiling == KB_TILED_COLUMN_MAJOR)
        return down * ((v->columns + policy->tile_columns - 1) / policy->tile_columns) + across;
    return across * ((v->rows + policy->tile_rows - 1) / policy->tile_rows) + down;
}

static layout tiled_layout(const view *v, const kb_policy *policy, uint32_t cubes, uint32_t pes)
{
    uint64_t all = v->rows * v->between * v->columns, tiles = 0, next = 0;
    for (uint64_t e = 0; e < all; e++)
        if (tile_of(v, policy, e) + 1 > tiles)
            tiles = tile_of(v, policy, e) + 1;
    layout dealt = new_layout(tiles), l = new_layout(tiles);
    for (uint64_t t = 0; t < tiles; t++) {
        layout_part part = new_part(all);
        part.cube = (uint32_t)(t % ((uint64_t)cubes * pes) / pes);
        part.pe = (uint32_t)(t % ((uint64_t)cubes * pes) % pes);
        part.offset = next;
        for (uint64_t e = 0; e < all; e++)
            if (tile_of(v, policy, e) == t)
                part.elements[part.count++] = e;
        next += part.count;
        dealt.parts[t] = part;
    }
    size_t count = 0;
    for (uint32_t i = 0; i < cubes * pes; i++)
        for (uint64_t t = i; t < tiles; t += (uint64_t)cubes * pes)
            l.parts[count++] = dealt.parts[t];
    assert_int_equal(count, tiles);
    free(dealt.parts);
    return l;
}

layout layout_of(const kb_shape *shape, const kb_policy *policy, const kb_machine *machine)
{
    static const kb_policy one_pe = {.num_cubes = 1, .num_pes = 1};
    const kb_policy *p = policy ? policy : &one_pe;
    uint32_t cubes = p->num_cubes ? p->num_cubes : machine->cubes;
    uint32_t pes = p->num_pes ? p->num_pes : machine->pes;
    view v = view_of(shape);
    return p->tiling ? tiled_layout(&v, p, cubes, pes) : split_layout(&v, p, cubes, pes);
}

void layout_fini(layout *l)
{
    for (size_t i = 0; i < l->count; i++)
        free(l->parts[i].elements);
    free(l->parts);
}

unsigned char *layout_bytes(const layout_part *part, const unsigned char *whole, size_t each)
{
    unsigned char *bytes = new_bytes(part->count * each);
    for (uint64_t i = 0; i < part->count; i++)
        memcpy(bytes + i * each, whole + part->elements[i] * each, each);
    return bytes;
}

static void expect_shard(kb_context *ctx, kb_tensor tensor, size_t i, const layout_part *part,
                         const unsigned char *data)
{
    uint32_t sip;
    kb_dtype dtype;
    kb_shard shard;
    kb_location at;
    expect_ok(kb_tensor_device(ctx, tensor, &sip));
    expect_ok(kb_tensor_dtype(ctx, tensor, &dtype));
    size_t each = kb_dtype_bytes(dtype);
    expect_ok(kb_tensor_shard(ctx, tensor, i, &shard));
    assert_int_equal(shard.sip, sip);
    assert_int_equal(shard.cube, part->cube);
    assert_int_equal(shard.pe, part->pe);
    assert_int_equal(shard.nbytes, part->count * each);
    if (part->count == 0)
        return;
    assert_int_equal(shard.offset_bytes, part->offset * each);
    expect_ok(kb_tensor_shard_location(ctx, tensor, i, &at));
    assert_int_equal(at.pe.sip, sip);
    assert_int_equal(at.pe.cube, part->cube);
    assert_int_equal(at.pe.pe, part->pe);
    unsigned char *expected = layout_bytes(part, data, each);
    unsigned char *found = new_bytes(shard.nbytes);
    host_reads(ctx, at, found, shard.nbytes);
    expect_bytes(found, expected, shard.nbytes);
    free(found);
    free(expected);
}

void expect_shards(kb_context *ctx, kb_tensor tensor, const layout *l, const unsigned char *data)
{
    size_t count;
    expect_ok(kb_tensor_shard_count(ctx, tensor, &count));
    assert_int_equal(count, l->count);
    for (size_t i = 0; i < count; i++)
        expect_shard(ctx, tensor, i, &l->parts[i], data);
}
