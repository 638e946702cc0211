/*
 * test_placement_laws.c: what must hold for every placement, on random ones; and each of them
 * against a model that asks for every single element who has it, and where.
 *
 * Checks M4 and M5.
 */
#include "support/expect.h"
#include "support/seed.h"

#include "base/base.h"
#include "cases.h"
#include "mem/box.h"
#include "mem/dtype.h"
#include "mem/placement.h"

typedef struct setting {
    kb_shape shape;
    kb_dtype dtype;
    kb_policy policy;
    uint32_t cubes, pes;           /* of the machine */
    uint32_t used_cubes, used_pes; /* by the policy */
} setting;

enum { MAX_AXIS = 200, MAX_ELEMENTS = 4096, MAX_HELD = 60000, MAX_BLOCKS = 1 << 16 };

/* ---- Random settings --------------------------------------------------------------------- */

static uint64_t below(kb_rng *rng, uint64_t bound)
{
    return kb_rng_below(rng, bound);
}

static kb_shape draw_shape(kb_rng *rng)
{
    static const uint64_t longest[] = {0, MAX_AXIS, 60, 14, 7};
    kb_shape shape = {.rank = (uint32_t)below(rng, 5)};
    for (uint32_t axis = 0; axis < shape.rank; axis++)
        shape.dims[axis] = below(rng, 30) ? 1 + below(rng, longest[shape.rank]) : 0;
    return shape;
}

static kb_policy draw_policy(kb_rng *rng, uint32_t cubes, uint32_t pes)
{
    kb_policy policy = {0};
    if (below(rng, 2))
        policy.num_cubes = 1 + (uint32_t)below(rng, cubes);
    if (below(rng, 2))
        policy.num_pes = 1 + (uint32_t)below(rng, pes);
    policy.tiling = below(rng, 2) ? KB_NOT_TILED : (kb_tiling)(1 + below(rng, 2));
    if (policy.tiling == KB_NOT_TILED) {
        policy.cube = (kb_split)below(rng, 3);
        policy.pe = (kb_split)below(rng, 3);
    } else {
        policy.tile_rows = 1 + below(rng, below(rng, 2) ? 5 : 50);
        policy.tile_columns = 1 + below(rng, below(rng, 2) ? 5 : 50);
    }
    return policy;
}

static uint64_t elements_of(const kb_shape *shape)
{
    uint64_t elements = 1;
    for (uint32_t axis = 0; axis < shape->rank; axis++)
        elements *= shape->dims[axis];
    return elements;
}

/* What would make too much work is drawn again. */
static setting draw(kb_rng *rng)
{
    for (;;) {
        setting s = {.shape = draw_shape(rng), .dtype = (kb_dtype)below(rng, KB_DTYPES)};
        s.cubes = 1 + (uint32_t)below(rng, below(rng, 2) ? 4 : 40);
        s.pes = 1 + (uint32_t)below(rng, below(rng, 2) ? 4 : 40);
        s.policy = draw_policy(rng, s.cubes, s.pes);
        s.used_cubes = s.policy.num_cubes ? s.policy.num_cubes : s.cubes;
        s.used_pes = s.policy.num_pes ? s.policy.num_pes : s.pes;
        uint64_t held = elements_of(&s.shape);
        if (held > MAX_ELEMENTS)
            continue;
        if (s.policy.tiling == KB_NOT_TILED && s.policy.cube == KB_REPLICATE)
            held *= s.used_cubes;
        if (s.policy.tiling == KB_NOT_TILED && s.policy.pe == KB_REPLICATE)
            held *= s.used_pes;
        if (held <= MAX_HELD)
            return s;
    }
}

static mem_placement place(const setting *s)
{
    mem_placement p;
    expect_ok(mem_placement_init(&p, &s->shape, s->dtype, &s->policy, s->cubes, s->pes));
    assert_int_equal(p.bytes, elements_of(&s->shape) * kb_dtype_bytes(s->dtype));
    return p;
}

/* Calls `check` with random settings and their placements. */
static void try_many(uint64_t seed, uint64_t count,
                     void (*check)(const setting *s, const mem_placement *p, kb_rng *rng))
{
    kb_rng rng;
    kb_rng_init(&rng, test_seed(seed));
    for (uint64_t n = cases(count); n > 0; n--) {
        setting s = draw(&rng);
        mem_placement p = place(&s);
        check(&s, &p, &rng);
        mem_placement_fini(&p);
    }
}

/* ---- Elements ---------------------------------------------------------------------------- */

/* The shape as two axes with something between them. */
typedef struct view {
    uint64_t rows, between, columns;
} view;

static view view_of(const kb_shape *shape)
{
    switch (shape->rank) {
    case 0:
        return (view){1, 1, 1};
    case 1:
        return (view){1, 1, shape->dims[0]};
    default: {
        view v = {shape->dims[0], 1, shape->dims[shape->rank - 1]};
        for (uint32_t axis = 1; axis + 1 < shape->rank; axis++)
            v.between *= shape->dims[axis];
        return v;
    }
    }
}

/* Which elements of the tensor a box has, row by row; numbers as in the whole tensor. */
static size_t list_elements(const mem_placement *p, const mem_box *box, uint32_t *numbers)
{
    size_t count = 0;
    uint64_t at[KB_MAX_DIMS];
    assert_int_equal(box->rank, p->shape.rank);
    for (uint32_t axis = 0; axis < box->rank; axis++) {
        assert_true(box->start[axis] + box->size[axis] <= p->shape.dims[axis]);
        at[axis] = box->start[axis];
        if (box->size[axis] == 0)
            return 0;
    }
    for (;;) {
        uint64_t number = 0;
        for (uint32_t axis = 0; axis < box->rank; axis++)
            number = number * p->shape.dims[axis] + at[axis];
        numbers[count++] = (uint32_t)number;
        uint32_t axis = box->rank;
        while (axis > 0 && ++at[axis - 1] == box->start[axis - 1] + box->size[axis - 1]) {
            axis--;
            at[axis] = box->start[axis];
        }
        if (axis == 0)
            return count;
    }
}

/* ---- The model --------------------------------------------------------------------------- */

/* Deals out items one by one, in turn: how many each part gets. Then part 0 takes the first ones,
 * part 1 those after them, and so on. */
static void deal(uint64_t items, uint32_t parts, uint64_t *sizes)
{
    memset(sizes, 0, parts * sizeof *sizes);
    for (uint64_t i = 0; i < items; i++)
        sizes[i % parts]++;
}

/* Finds the part that has an item; the item becomes its number in the part, items its size. */
static uint32_t find_part(uint64_t *item, uint64_t *items, uint32_t parts)
{
    uint64_t sizes[64];
    assert_true(parts <= 64);
    deal(*items, parts, sizes);
    uint32_t part = 0;
    for (; *item >= sizes[part]; part++)
        *item -= sizes[part];
    *items = sizes[part];
    return part;
}

/* The part of one level that has the element; the view shrinks to it. 0 if all parts do. */
static uint32_t part_of_level(kb_split split, uint32_t parts, view *v, uint64_t *row,
                              uint64_t *column)
{
    if (split == KB_REPLICATE)
        return 0;
    return split == KB_COLUMN_WISE ? find_part(column, &v->columns, parts)
                                   : find_part(row, &v->rows, parts);
}

static uint64_t tiles_along(uint64_t size, uint64_t tile)
{
    uint64_t count = 0;
    for (uint64_t done = 0; done < size; done += tile)
        count++;
    return count;
}

/* Which block has the element: one for each (cube, pe) that is not a copy, or a tile. */
static uint64_t block_of(const setting *s, uint64_t row, uint64_t column)
{
    view v = view_of(&s->shape);
    uint64_t row_tile = 0, column_tile = 0;
    switch (s->policy.tiling) {
    case KB_TILED_COLUMN_MAJOR:
    case KB_TILED_ROW_MAJOR:
        for (; row >= s->policy.tile_rows; row -= s->policy.tile_rows)
            row_tile++;
        for (; column >= s->policy.tile_columns; column -= s->policy.tile_columns)
            column_tile++;
        if (s->policy.tiling == KB_TILED_COLUMN_MAJOR)
            return row_tile * tiles_along(v.columns, s->policy.tile_columns) + column_tile;
        return column_tile * tiles_along(v.rows, s->policy.tile_rows) + row_tile;
    default: {
        uint32_t cube = part_of_level(s->policy.cube, s->used_cubes, &v, &row, &column);
        uint32_t pe = part_of_level(s->policy.pe, s->used_pes, &v, &row, &column);
        return (uint64_t)cube * s->used_pes + pe;
    }
    }
}

typedef struct model {
    uint64_t elements, blocks;
    uint64_t block[MAX_ELEMENTS]; /* of an element */
    uint64_t place[MAX_ELEMENTS]; /* of an element, among all in storage order */
    uint64_t count[MAX_BLOCKS];   /* elements of a block */
    uint64_t first[MAX_BLOCKS];   /* the place of its first element */
} model;

static model m;

static void build_model(const setting *s)
{
    view v = view_of(&s->shape);
    m.elements = elements_of(&s->shape);
    m.blocks = s->policy.tiling == KB_NOT_TILED
                   ? (uint64_t)s->used_cubes * s->used_pes
                   : tiles_along(v.rows, s->policy.tile_rows) *
                         tiles_along(v.columns, s->policy.tile_columns);
    if (s->policy.tiling != KB_NOT_TILED && m.elements == 0)
        m.blocks = 0;
    assert_true(m.blocks <= MAX_BLOCKS);
    memset(m.count, 0, m.blocks * sizeof *m.count);
    for (uint64_t e = 0; e < m.elements; e++) {
        m.block[e] = block_of(s, e / (v.columns * v.between), e % v.columns);
        m.place[e] = m.count[m.block[e]]++;
    }
    uint64_t next = 0;
    for (uint64_t b = 0; b < m.blocks; b++) {
        m.first[b] = next;
        next += m.count[b];
    }
    for (uint64_t e = 0; e < m.elements; e++)
        m.place[e] += m.first[m.block[e]];
}

static void compare_shard(const setting *s, const mem_placement *p, const mem_shard *shard,
                          uint64_t block)
{
    static uint32_t numbers[MAX_ELEMENTS];
    size_t element = kb_dtype_bytes(s->dtype);
    assert_int_equal(shard->offset_bytes, m.first[block] * element);
    assert_int_equal(shard->nbytes, m.count[block] * element);
    size_t count = list_elements(p, &shard->box, numbers);
    assert_int_equal(count, m.count[block]);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(m.block[numbers[i]], block);
        assert_int_equal(m.place[numbers[i]], m.first[block] + i);
    }
}

static void compare_with_model(const setting *s, const mem_placement *p, kb_rng *rng)
{
    (void)rng;
    build_model(s);
    const mem_shard *shard = p->shards.items;
    uint64_t pes = (uint64_t)s->used_cubes * s->used_pes;
    assert_int_equal(p->shards.count, m.blocks);
    for (uint32_t cube = 0; cube < s->used_cubes; cube++) {
        for (uint32_t pe = 0; pe < s->used_pes; pe++) {
            uint64_t number = (uint64_t)cube * s->used_pes + pe;
            uint64_t step = pes, held = 0, block = number;
            if (s->policy.tiling == KB_NOT_TILED) {
                step = m.blocks; /* just one */
                block = (uint64_t)(s->policy.cube == KB_REPLICATE ? 0 : cube) * s->used_pes +
                        (s->policy.pe == KB_REPLICATE ? 0 : pe);
            }
            for (; block < m.blocks; block += step, shard++) {
                assert_int_equal(shard->cube, cube);
                assert_int_equal(shard->pe, pe);
                assert_int_equal(shard->pe_offset, held);
                compare_shard(s, p, shard, block);
                held += shard->nbytes;
            }
        }
    }
    assert_ptr_equal(shard, p->shards.items + p->shards.count);
}

static void every_element_is_where_the_model_has_it(void **state)
{
    (void)state;
    try_many(11, 3000, compare_with_model);
}

/* ---- Laws -------------------------------------------------------------------------------- */

/* Without replication that is once: disjoint, and all there. */
static void count_holders(const setting *s, const mem_placement *p, kb_rng *rng)
{
    (void)rng;
    static uint32_t numbers[MAX_ELEMENTS];
    static uint64_t holders[MAX_ELEMENTS];
    memset(holders, 0, sizeof holders);
    for (size_t i = 0; i < p->shards.count; i++) {
        size_t count = list_elements(p, &p->shards.items[i].box, numbers);
        assert_int_equal(count * kb_dtype_bytes(s->dtype), p->shards.items[i].nbytes);
        for (size_t n = 0; n < count; n++)
            holders[numbers[n]]++;
    }
    uint64_t copies = 1;
    if (s->policy.tiling == KB_NOT_TILED && s->policy.cube == KB_REPLICATE)
        copies *= s->used_cubes;
    if (s->policy.tiling == KB_NOT_TILED && s->policy.pe == KB_REPLICATE)
        copies *= s->used_pes;
    assert_int_equal(p->copies, copies);
    for (uint64_t e = 0; e < elements_of(&s->shape); e++)
        assert_int_equal(holders[e], copies);
}

static void every_element_is_held_once_or_by_each_copy(void **state)
{
    (void)state;
    try_many(12, 2000, count_holders);
}

static bool is_copy(const setting *s, const mem_shard *shard)
{
    return s->policy.tiling == KB_NOT_TILED &&
           ((s->policy.cube == KB_REPLICATE && shard->cube > 0) ||
            (s->policy.pe == KB_REPLICATE && shard->pe > 0));
}

static void mark_bytes(const setting *s, const mem_placement *p, kb_rng *rng)
{
    (void)rng;
    static unsigned char marks[4 * MAX_ELEMENTS];
    memset(marks, 0, sizeof marks);
    uint64_t marked = 0;
    for (size_t i = 0; i < p->shards.count; i++) {
        const mem_shard *shard = &p->shards.items[i];
        assert_true(shard->offset_bytes + shard->nbytes <= p->bytes);
        for (uint64_t b = 0; !is_copy(s, shard) && b < shard->nbytes; b++, marked++)
            assert_int_equal(marks[shard->offset_bytes + b]++, 0);
    }
    assert_int_equal(marked, p->bytes);
}

static void offsets_cover_the_bytes_of_the_tensor_once(void **state)
{
    (void)state;
    try_many(13, 2000, mark_bytes);
}

static void check_order(const setting *s, const mem_placement *p, kb_rng *rng)
{
    (void)rng;
    for (size_t i = 0; i < p->shards.count; i++) {
        const mem_shard *b = &p->shards.items[i];
        assert_true(b->cube < s->used_cubes && b->pe < s->used_pes);
        if (i == 0)
            continue;
        const mem_shard *a = b - 1;
        bool same_pe = a->cube == b->cube && a->pe == b->pe;
        assert_true(a->cube < b->cube || (a->cube == b->cube && a->pe < b->pe) ||
                    (same_pe && a->offset_bytes < b->offset_bytes));
        assert_int_equal(b->pe_offset, same_pe ? a->pe_offset + a->nbytes : 0);
    }
}

static void shards_come_by_cube_pe_and_offset(void **state)
{
    (void)state;
    try_many(14, 2000, check_order);
}

static void same_extents(const mem_shard *a, const mem_shard *b)
{
    assert_int_equal(a->offset_bytes, b->offset_bytes);
    assert_int_equal(a->nbytes, b->nbytes);
    assert_int_equal(a->pe_offset, b->pe_offset);
    assert_memory_equal(&a->box, &b->box, sizeof a->box);
}

static void check_copies(const setting *s, const mem_placement *p, kb_rng *rng)
{
    (void)rng;
    if (s->policy.tiling != KB_NOT_TILED)
        return;
    assert_int_equal(p->shards.count, (uint64_t)s->used_cubes * s->used_pes);
    for (size_t i = 0; i < p->shards.count; i++) {
        const mem_shard *shard = &p->shards.items[i];
        assert_int_equal(i, (size_t)shard->cube * s->used_pes + shard->pe);
        if (s->policy.cube == KB_REPLICATE)
            same_extents(shard, &p->shards.items[shard->pe]);
        if (s->policy.pe == KB_REPLICATE)
            same_extents(shard, shard - shard->pe);
    }
}

static void replicated_levels_have_identical_extents(void **state)
{
    (void)state;
    try_many(15, 2000, check_copies);
}

typedef struct extent {
    uint64_t least, most;
} extent;

static void widen(extent *e, uint64_t size)
{
    if (size < e->least)
        e->least = size;
    if (size > e->most)
        e->most = size;
}

/* The parts of a level, along the axis that it splits. A cube has what its PEs have. */
static void check_parts(const setting *s, const mem_placement *p, kb_rng *rng)
{
    (void)rng;
    if (s->policy.tiling != KB_NOT_TILED)
        return;
    uint32_t last = p->shape.rank - 1;
    uint32_t cube_axis = s->policy.cube == KB_COLUMN_WISE ? last : 0;
    uint32_t pe_axis = s->policy.pe == KB_COLUMN_WISE ? last : 0;
    bool same_axis = s->policy.pe != KB_REPLICATE && cube_axis == pe_axis;
    extent of_cubes = {UINT64_MAX, 0};
    for (uint32_t cube = 0; cube < s->used_cubes; cube++) {
        const mem_shard *shards = &p->shards.items[(size_t)cube * s->used_pes];
        extent of_pes = {UINT64_MAX, 0};
        uint64_t sum = 0;
        for (uint32_t pe = 0; pe < s->used_pes; pe++) {
            widen(&of_pes, shards[pe].box.size[pe_axis]);
            sum += shards[pe].box.size[cube_axis];
        }
        assert_true(of_pes.most - of_pes.least <= 1);
        widen(&of_cubes, same_axis ? sum : shards[0].box.size[cube_axis]);
    }
    assert_true(of_cubes.most - of_cubes.least <= 1);
}

static void parts_differ_by_one_row_or_column_at_most(void **state)
{
    (void)state;
    try_many(16, 2000, check_parts);
}

static void expect_same(const mem_placement *a, const mem_placement *b)
{
    assert_true(mem_shape_equal(&a->shape, &b->shape));
    assert_int_equal(a->bytes, b->bytes);
    assert_int_equal(a->copies, b->copies);
    assert_int_equal(a->shards.count, b->shards.count);
    for (size_t i = 0; i < a->shards.count; i++) {
        assert_int_equal(a->shards.items[i].cube, b->shards.items[i].cube);
        assert_int_equal(a->shards.items[i].pe, b->shards.items[i].pe);
        same_extents(&a->shards.items[i], &b->shards.items[i]);
    }
}

static void check_normal(const setting *s, const mem_placement *p, kb_rng *rng)
{
    (void)rng;
    setting other = *s;
    view v = view_of(&s->shape);
    if (s->shape.rank < 2)
        other.shape = KB_SHAPE(v.rows, v.columns);
    mem_placement q = place(&other);
    expect_same(p, &q);
    mem_placement_fini(&q);
}

/* And any other placement is the same if asked for again: there is no SIP that it depends on. */
static void one_dimension_is_placed_as_one_row(void **state)
{
    (void)state;
    try_many(17, 2000, check_normal);
}

/* ---- Contents ---------------------------------------------------------------------------- */

/* What the PEs have of a tensor: the pieces of each PE follow each other. */
typedef struct device {
    const mem_placement *placement;
    unsigned char *bytes;
    uint64_t *starts; /* of the shards' bytes */
} device;

static device make_device(const mem_placement *p)
{
    device d = {.placement = p};
    uint64_t base = 0, end = 0;
    d.starts = kb_alloc_array(p->shards.count, sizeof *d.starts);
    assert_non_null(d.starts);
    for (size_t i = 0; i < p->shards.count; i++) {
        const mem_shard *shard = &p->shards.items[i];
        if (shard->pe_offset == 0)
            base = end;
        d.starts[i] = base + shard->pe_offset;
        end = d.starts[i] + shard->nbytes;
    }
    d.bytes = kb_alloc_array(end, 1);
    assert_non_null(d.bytes);
    memset(d.bytes, 0xa5, end);
    return d;
}

static void free_device(device *d)
{
    free(d->bytes);
    free(d->starts);
}

typedef struct copy {
    unsigned char *to;         /* the first box's bytes */
    const unsigned char *from; /* the second's */
    size_t element;
    uint64_t elements;
} copy;

static kb_error *copy_run(void *self, uint64_t at_to, uint64_t at_from, uint64_t count)
{
    copy *c = self;
    memcpy(c->to + at_to * c->element, c->from + at_from * c->element, count * c->element);
    c->elements += count;
    return NULL;
}

static void scatter(const device *d, const unsigned char *host, size_t element)
{
    mem_box whole = mem_box_whole(&d->placement->shape);
    for (size_t i = 0; i < d->placement->shards.count; i++) {
        const mem_shard *shard = &d->placement->shards.items[i];
        copy c = {d->bytes + d->starts[i], host, element, 0};
        expect_ok(mem_box_runs(&shard->box, &whole, copy_run, &c));
        assert_int_equal(c.elements * element, shard->nbytes);
    }
}

/* Shards that are copies are taken in a random order, so that any of them may be the last. */
static void gather(const device *d, const mem_box *part, unsigned char *host, size_t element,
                   kb_rng *rng)
{
    size_t count = d->placement->shards.count, skip = count ? below(rng, count) : 0;
    for (size_t n = 0; n < count; n++) {
        size_t i = (n + skip) % count;
        copy c = {host, d->bytes + d->starts[i], element, 0};
        expect_ok(mem_box_runs(part, &d->placement->shards.items[i].box, copy_run, &c));
    }
}

typedef struct contents {
    unsigned char sent[4 * MAX_ELEMENTS], received[4 * MAX_ELEMENTS];
} contents;

static contents host;

static void send_random(const setting *s, const device *d, kb_rng *rng)
{
    for (uint64_t i = 0; i < d->placement->bytes; i++)
        host.sent[i] = (unsigned char)kb_rng_u64(rng);
    scatter(d, host.sent, kb_dtype_bytes(s->dtype));
}

static void expect_received(const mem_placement *p)
{
    if (p->bytes > 0)
        assert_memory_equal(host.sent, host.received, p->bytes);
}

static void there_and_back(const setting *s, const mem_placement *p, kb_rng *rng)
{
    device d = make_device(p);
    mem_box whole = mem_box_whole(&p->shape);
    send_random(s, &d, rng);
    memset(host.received, 0x5a, sizeof host.received);
    gather(&d, &whole, host.received, kb_dtype_bytes(s->dtype), rng);
    expect_received(p);
    free_device(&d);
}

static void what_is_scattered_and_gathered_is_the_same(void **state)
{
    (void)state;
    try_many(18, 1500, there_and_back);
}

/* The storage is what the model says: block after block, each row by row. */
static void check_storage(const setting *s, const mem_placement *p, kb_rng *rng)
{
    size_t element = kb_dtype_bytes(s->dtype);
    device d = make_device(p);
    build_model(s);
    send_random(s, &d, rng);
    for (uint64_t e = 0; e < m.elements; e++)
        memcpy(host.received + m.place[e] * element, host.sent + e * element, element);
    for (size_t i = 0; i < p->shards.count; i++) {
        const mem_shard *shard = &p->shards.items[i];
        if (shard->nbytes > 0)
            assert_memory_equal(d.bytes + d.starts[i], host.received + shard->offset_bytes,
                                shard->nbytes);
    }
    free_device(&d);
}

static void shards_are_stored_without_gaps(void **state)
{
    (void)state;
    try_many(19, 1500, check_storage);
}

static void check_slice(const setting *s, const mem_placement *p, kb_rng *rng)
{
    static uint32_t numbers[MAX_ELEMENTS];
    size_t element = kb_dtype_bytes(s->dtype);
    device d = make_device(p);
    send_random(s, &d, rng);
    mem_box slice = {.rank = p->shape.rank};
    for (uint32_t axis = 0; axis < slice.rank; axis++) {
        slice.start[axis] = below(rng, p->shape.dims[axis] + 1);
        slice.size[axis] = below(rng, p->shape.dims[axis] - slice.start[axis] + 1);
    }
    memset(host.received, 0x5a, sizeof host.received);
    gather(&d, &slice, host.received, element, rng);
    size_t count = list_elements(p, &slice, numbers);
    for (size_t i = 0; i < count; i++)
        assert_memory_equal(host.received + i * element, host.sent + numbers[i] * element, element);
    for (size_t i = count * element; i < sizeof host.received; i++)
        assert_int_equal(host.received[i], 0x5a);
    free_device(&d);
}

static void a_slice_may_span_shards(void **state)
{
    (void)state;
    try_many(20, 1500, check_slice);
}

/* From each shard of one layout to each of another. */
static void check_resharding(const setting *s, const mem_placement *p, kb_rng *rng)
{
    size_t element = kb_dtype_bytes(s->dtype);
    setting other = *s;
    other.policy = (kb_policy){0};
    other.cubes = 1 + (uint32_t)below(rng, 3);
    other.pes = 1 + (uint32_t)below(rng, 3);
    if (below(rng, 2)) {
        other.policy.tiling = KB_TILED_ROW_MAJOR;
        other.policy.tile_rows = other.policy.tile_columns = 1 + below(rng, 9);
    } else {
        other.policy.cube = (kb_split)below(rng, 3);
        other.policy.pe = (kb_split)below(rng, 3);
    }
    if (p->shards.count > 300)
        return;
    mem_placement q = place(&other);
    device from = make_device(p), to = make_device(&q);
    send_random(s, &from, rng);
    for (size_t i = 0; i < q.shards.count; i++) {
        for (size_t j = 0; j < p->shards.count; j++) {
            copy c = {to.bytes + to.starts[i], from.bytes + from.starts[j], element, 0};
            expect_ok(mem_box_runs(&q.shards.items[i].box, &p->shards.items[j].box, copy_run, &c));
        }
    }
    mem_box whole = mem_box_whole(&q.shape);
    memset(host.received, 0x5a, sizeof host.received);
    gather(&to, &whole, host.received, element, rng);
    expect_received(p);
    free_device(&to);
    free_device(&from);
    mem_placement_fini(&q);
}

static void one_layout_can_be_copied_to_another(void **state)
{
    (void)state;
    try_many(21, 500, check_resharding);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_is_where_the_model_has_it),
        cmocka_unit_test(every_element_is_held_once_or_by_each_copy),
        cmocka_unit_test(offsets_cover_the_bytes_of_the_tensor_once),
        cmocka_unit_test(shards_come_by_cube_pe_and_offset),
        cmocka_unit_test(replicated_levels_have_identical_extents),
        cmocka_unit_test(parts_differ_by_one_row_or_column_at_most),
        cmocka_unit_test(one_dimension_is_placed_as_one_row),
        cmocka_unit_test(what_is_scattered_and_gathered_is_the_same),
        cmocka_unit_test(shards_are_stored_without_gaps),
        cmocka_unit_test(a_slice_may_span_shards),
        cmocka_unit_test(one_layout_can_be_copied_to_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
