/*
 * placement.c: dealing out a tensor to the PEs of a SIP.
 *
 * Split, it is cut into parts for the cubes and these into parts for their PEs: parts are as equal
 * as can be, with the larger ones first. Tiled, it is cut into tiles that are dealt out one by one.
 *
 * Invariant: blocks that are not copies of each other share no element, have every element between
 * them, and their offset_bytes cover the tensor's bytes without gap or overlap. They are numbered
 * by (cube, pe), tiles in the order of dealing.
 */
#include "placement.h"

#include "dtype.h"

/* ---- Shapes ------------------------------------------------------------------------------ */

#define MAX_TENSOR_BYTES (((uint64_t)1 << 48) - 1)

kb_shape mem_shape_normal(const kb_shape *shape)
{
    switch (shape->rank) {
    case 0:
        return KB_SHAPE(1, 1);
    case 1:
        return KB_SHAPE(1, shape->dims[0]);
    default:
        return *shape;
    }
}

static uint32_t known_rank(const kb_shape *shape)
{
    return shape->rank < KB_MAX_DIMS ? shape->rank : KB_MAX_DIMS;
}

void mem_shape_print(const kb_shape *shape, kb_text *text)
{
    kb_text_puts(text, "(");
    for (uint32_t axis = 0; axis < known_rank(shape); axis++)
        kb_text_printf(text, "%s%llu", axis > 0 ? ", " : "", (unsigned long long)shape->dims[axis]);
    if (shape->rank > KB_MAX_DIMS)
        kb_text_puts(text, ", ...");
    kb_text_puts(text, shape->rank == 1 ? ",)" : ")");
}

bool mem_shape_equal(const kb_shape *a, const kb_shape *b)
{
    if (a->rank != b->rank)
        return false;
    for (uint32_t axis = 0; axis < known_rank(a); axis++)
        if (a->dims[axis] != b->dims[axis])
            return false;
    return true;
}

static kb_error *too_large(const kb_shape *shape, kb_dtype dtype)
{
    kb_text text = KB_TEXT_INIT;
    mem_shape_print(shape, &text);
    kb_error *err = text.failed ? kb_error_nomem()
                                : kb_error_new(KB_ERR_INPUT,
                                               "tensor too large: shape %s and dtype %s take "
                                               "2^48 bytes or more",
                                               kb_text_peek(&text), kb_dtype_name(dtype));
    kb_text_fini(&text);
    return err;
}

kb_error *mem_shape_elements(const kb_shape *shape, kb_dtype dtype, uint64_t *elements)
{
    *elements = 0;
    if (!mem_dtype_exists(dtype))
        return kb_error_new(KB_ERR_INPUT, "invalid dtype %u: the maximum is %u (%s)",
                            (unsigned)dtype, (unsigned)KB_DTYPES - 1, kb_dtype_name(KB_DTYPES - 1));
    if (shape->rank > KB_MAX_DIMS)
        return kb_error_new(KB_ERR_INPUT, "too many dimensions: %u, the maximum is %d",
                            (unsigned)shape->rank, KB_MAX_DIMS);
    /* First, so that what is multiplied before a 0 cannot be too large. */
    for (uint32_t axis = 0; axis < shape->rank; axis++)
        if (shape->dims[axis] == 0)
            return NULL;
    uint64_t product = 1;
    uint64_t most = MAX_TENSOR_BYTES / kb_dtype_bytes(dtype);
    for (uint32_t axis = 0; axis < shape->rank; axis++)
        if (__builtin_mul_overflow(product, shape->dims[axis], &product) || product > most)
            return too_large(shape, dtype);
    *elements = product;
    return NULL;
}

/* ---- Policies ---------------------------------------------------------------------------- */

static kb_error *check_count(const char *what, const char *where, uint32_t wanted, uint32_t has)
{
    if (wanted <= has)
        return NULL;
    return kb_error_new(KB_ERR_INPUT,
                        "the policy requests %u %s, but %s of this machine has %u: request "
                        "fewer, or 0 for all",
                        (unsigned)wanted, what, where, (unsigned)has);
}

static kb_error *check_split(const char *level, kb_split split)
{
    if ((unsigned)split <= KB_ROW_WISE)
        return NULL;
    return kb_error_new(KB_ERR_INPUT,
                        "the policy splits over the %s by an invalid mode (%u): use "
                        "KB_REPLICATE, KB_COLUMN_WISE or KB_ROW_WISE",
                        level, (unsigned)split);
}

static kb_error *check_tiling(const kb_policy *policy)
{
    if ((unsigned)policy->tiling > KB_TILED_ROW_MAJOR)
        return kb_error_new(KB_ERR_INPUT,
                            "the policy has an invalid tiling (%u): use KB_NOT_TILED, "
                            "KB_TILED_COLUMN_MAJOR or KB_TILED_ROW_MAJOR",
                            (unsigned)policy->tiling);
    unsigned long long rows = policy->tile_rows, columns = policy->tile_columns;
    if (policy->tiling == KB_NOT_TILED) {
        if (rows != 0 || columns != 0)
            return kb_error_new(KB_ERR_INPUT,
                                "the policy has tiles of %llu x %llu but no tiling: choose one, or "
                                "leave both sizes 0",
                                rows, columns);
        return NULL;
    }
    if (rows == 0 || columns == 0)
        return kb_error_new(KB_ERR_INPUT,
                            "the policy has tiles of %llu x %llu: both sizes must be at least 1",
                            rows, columns);
    if (policy->cube != KB_REPLICATE || policy->pe != KB_REPLICATE)
        return kb_error_new(KB_ERR_INPUT, "the policy is both tiled and split: set both splits "
                                          "to KB_REPLICATE");
    return NULL;
}

/* The policy with its counts filled in. */
static kb_error *resolve(const kb_policy *policy, uint32_t cubes, uint32_t pes, kb_policy *resolved)
{
    KB_ASSERT(cubes > 0 && pes > 0);
    static const kb_policy one_pe = {.num_cubes = 1, .num_pes = 1};
    *resolved = policy ? *policy : one_pe;
    KB_TRY(check_split("cubes", resolved->cube));
    KB_TRY(check_split("PEs", resolved->pe));
    KB_TRY(check_tiling(resolved));
    KB_TRY(check_count("cubes", "a SIP", resolved->num_cubes, cubes));
    KB_TRY(check_count("PEs", "a cube", resolved->num_pes, pes));
    if (resolved->num_cubes == 0)
        resolved->num_cubes = cubes;
    if (resolved->num_pes == 0)
        resolved->num_pes = pes;
    return NULL;
}

static kb_error *make_room(mem_placement *placement, uint64_t shards)
{
    if (shards > MEM_MAX_SHARDS)
        return kb_error_new(KB_ERR_INPUT,
                            "the policy cuts the tensor into %llu shards, the maximum is %llu: "
                            "use larger tiles, or fewer PEs",
                            (unsigned long long)shards, (unsigned long long)MEM_MAX_SHARDS);
    return kb_vec_reserve(&placement->shards, (size_t)shards) ? NULL : kb_error_nomem();
}

/* There must be room. */
static void add(mem_placement *placement, mem_shard shard)
{
    placement->shards.items[placement->shards.count++] = shard;
}

/* ---- Splits ------------------------------------------------------------------------------ */

/* Cuts the box down to one of `parts` parts of it. */
static void take_part(mem_box *box, kb_split split, uint64_t parts, uint64_t part)
{
    if (split == KB_REPLICATE)
        return;
    uint32_t axis = split == KB_COLUMN_WISE ? box->rank - 1 : 0;
    uint64_t each = box->size[axis] / parts, larger = box->size[axis] % parts;
    box->start[axis] += part * each + (part < larger ? part : larger);
    box->size[axis] = each + (part < larger);
}

static kb_error *split_up(mem_placement *placement, const kb_policy *policy, size_t dtype_bytes)
{
    KB_TRY(make_room(placement, (uint64_t)policy->num_cubes * policy->num_pes));
    uint64_t next = 0;
    for (uint32_t cube = 0; cube < policy->num_cubes; cube++) {
        mem_box of_cube = mem_box_whole(&placement->shape);
        take_part(&of_cube, policy->cube, policy->num_cubes, cube);
        if (policy->cube == KB_REPLICATE)
            next = 0;
        uint64_t first = next;
        for (uint32_t pe = 0; pe < policy->num_pes; pe++) {
            mem_shard shard = {.cube = cube, .pe = pe, .box = of_cube};
            take_part(&shard.box, policy->pe, policy->num_pes, pe);
            if (policy->pe == KB_REPLICATE)
                next = first;
            shard.offset_bytes = next;
            shard.nbytes = mem_box_elements(&shard.box) * dtype_bytes;
            next += shard.nbytes;
            add(placement, shard);
        }
    }
    placement->copies = 1;
    if (policy->cube == KB_REPLICATE)
        placement->copies *= policy->num_cubes;
    if (policy->pe == KB_REPLICATE)
        placement->copies *= policy->num_pes;
    return NULL;
}

/* ---- Tiles ------------------------------------------------------------------------------- */

/* An axis cut into pieces, of which the last may be shorter. */
typedef struct cuts {
    uint64_t size, piece, count;
} cuts;

static cuts cut(uint64_t size, uint64_t piece)
{
    return (cuts){size, piece, size / piece + (size % piece != 0)};
}

static void take_piece(mem_box *box, uint32_t axis, const cuts *along, uint64_t number)
{
    uint64_t start = number * along->piece;
    uint64_t left = along->size - start;
    box->start[axis] = start;
    box->size[axis] = left < along->piece ? left : along->piece;
}

/*
 * A tile by its number: `slow` is the axis that the walk takes last. All bands before the tile's
 * are full, and in its own all tiles reach equally far along the slow axis; so the elements before
 * it need not be summed up.
 */
static mem_shard tile_at(const mem_box *whole, uint32_t slow, const cuts along[2], uint64_t number,
                         size_t dtype_bytes)
{
    uint32_t last = whole->rank - 1;
    uint32_t fast = slow == 0 ? last : 0;
    const cuts *slow_cuts = &along[slow != 0], *fast_cuts = &along[fast != 0];
    mem_shard tile = {.box = *whole};
    take_piece(&tile.box, slow, slow_cuts, number / fast_cuts->count);
    take_piece(&tile.box, fast, fast_cuts, number % fast_cuts->count);

    uint64_t between = 1; /* elements of one row and column */
    for (uint32_t axis = 1; axis < last; axis++)
        between *= whole->size[axis];
    uint64_t before = tile.box.start[slow] * fast_cuts->size;
    before += tile.box.size[slow] * tile.box.start[fast];
    tile.offset_bytes = before * between * dtype_bytes;
    tile.nbytes = mem_box_elements(&tile.box) * dtype_bytes;
    return tile;
}

static kb_error *cut_up(mem_placement *placement, const kb_policy *policy, size_t dtype_bytes)
{
    placement->copies = 1;
    if (placement->bytes == 0)
        return NULL;
    mem_box whole = mem_box_whole(&placement->shape);
    uint32_t last = whole.rank - 1;
    cuts along[2] = {cut(whole.size[0], policy->tile_rows),
                     cut(whole.size[last], policy->tile_columns)};
    uint32_t slow = policy->tiling == KB_TILED_COLUMN_MAJOR ? 0 : last;
    uint64_t tiles = along[0].count * along[1].count; /* not more than there are elements */
    KB_TRY(make_room(placement, tiles));

    uint64_t pes = (uint64_t)policy->num_cubes * policy->num_pes;
    for (uint64_t pe = 0; pe < pes && pe < tiles; pe++) {
        uint64_t pe_offset = 0;
        for (uint64_t round = 0; round <= (tiles - 1 - pe) / pes; round++) {
            mem_shard tile = tile_at(&whole, slow, along, round * pes + pe, dtype_bytes);
            tile.cube = (uint32_t)(pe / policy->num_pes);
            tile.pe = (uint32_t)(pe % policy->num_pes);
            tile.pe_offset = pe_offset;
            pe_offset += tile.nbytes;
            add(placement, tile);
        }
    }
    return NULL;
}

/* ---- Placements -------------------------------------------------------------------------- */

kb_error *mem_placement_init(mem_placement *placement, const kb_shape *shape, kb_dtype dtype,
                             const kb_policy *policy, uint32_t cubes, uint32_t pes)
{
    *placement = (mem_placement){0};
    uint64_t elements;
    kb_policy resolved;
    KB_TRY(mem_shape_elements(shape, dtype, &elements));
    KB_TRY(resolve(policy, cubes, pes, &resolved));
    size_t dtype_bytes = kb_dtype_bytes(dtype);
    placement->shape = mem_shape_normal(shape);
    placement->bytes = elements * dtype_bytes;
    if (resolved.tiling == KB_NOT_TILED)
        return split_up(placement, &resolved, dtype_bytes);
    return cut_up(placement, &resolved, dtype_bytes);
}

void mem_placement_fini(mem_placement *placement)
{
    kb_vec_fini(&placement->shards);
}
