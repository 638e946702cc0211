/*
 * index.c: elements picked, put and added where an index says. The caller has
 * checked the index (data_check_index()).
 *
 * An index has as many axes as x and is walked in rows of its last axis. An element of it belongs
 * to the element of x with the same coordinates, but for the axis, where its number is the
 * coordinate.
 * What is put is cut into parts along the axes before that one: no two parts write to one element,
 * and within a part elements come in order.
 */
#include <string.h>

#include "data_private.h"

/* ---- Walking ----------------------------------------------------------------------------- */

typedef struct strides {
    uint64_t of[KB_MAX_DIMS]; /* in elements */
} strides;

static strides strides_of(const kb_shape *shape)
{
    strides s;
    uint64_t stride = 1;
    for (uint32_t axis = shape->rank; axis-- > 0; stride *= shape->dims[axis])
        s.of[axis] = stride;
    return s;
}

/* Where a row of an index leads to: element j of it has position `at` + j * `step` + number *
 * `stride` in x. */
typedef struct row {
    uint64_t at, step, stride;
} row;

typedef struct walk {
    const data_value *value, *index;
    strides x, src;
    uint32_t last;        /* axis */
    uint64_t row_length;  /* of the index */
    uint64_t rows_of_one; /* rows for each position on the axes before the one of the operation */
} walk;

static walk walk_of(const data_value *value)
{
    const kb_shape *shape = &value->inputs[1]->shape;
    walk w = {.value = value,
              .index = value->inputs[1],
              .x = strides_of(&value->inputs[0]->shape),
              .last = shape->rank - 1,
              .row_length = shape->dims[shape->rank - 1],
              .rows_of_one = 1};
    if (value->input_count > 2)
        w.src = strides_of(&value->inputs[2]->shape);
    for (uint32_t axis = value->axis; axis < w.last; axis++)
        w.rows_of_one *= shape->dims[axis];
    return w;
}

/* Row number n of the index; and where its elements begin in src, unless that is NULL. */
static row row_at(const walk *w, uint64_t n, uint64_t *src)
{
    const uint32_t axis = w->value->axis;
    row r = {.step = axis != w->last, .stride = w->x.of[axis]};
    for (uint32_t i = w->last; i-- > 0;) {
        uint64_t coordinate = n % w->index->shape.dims[i];
        n /= w->index->shape.dims[i];
        r.at += i == axis ? 0 : coordinate * w->x.of[i];
        if (src)
            *src += coordinate * w->src.of[i];
    }
    return r;
}

static const int32_t *numbers_of(const data_value *index)
{
    KB_DEBUG_ASSERT(index->dtype == KB_I32);
    return (const int32_t *)(const void *)index->bytes;
}

/* ---- Picking ----------------------------------------------------------------------------- */

enum { PIECE = 1 << 15 };

#define PICK(name, T)                                                                              \
    static void name(void *to, const void *x, const int32_t *index, size_t count, row r)           \
    {                                                                                              \
        __typeof__(T) *out = to;                                                                   \
        const __typeof__(T) *in = x;                                                               \
        for (size_t i = 0; i < count; i++)                                                         \
            out[i] = in[r.at + i * r.step + (uint64_t)index[i] * r.stride];                        \
    }

PICK(pick_1, uint8_t)
PICK(pick_2, uint16_t)
PICK(pick_4, uint32_t)

static void gather(const data_value *value, uint64_t part, data_scratch *scratch)
{
    (void)scratch;
    const size_t size = kb_dtype_bytes(value->dtype);
    walk w = walk_of(value);
    uint64_t end = kb_min(value->elements, (part + 1) * PIECE);
    for (uint64_t at = part * PIECE, count; at < end; at += count) {
        uint64_t within = at % w.row_length;
        count = kb_min(end - at, w.row_length - within);
        row r = row_at(&w, at / w.row_length, NULL);
        r.at += within * r.step;
        void *to = value->bytes + at * size;
        const void *x = value->inputs[0]->bytes;
        const int32_t *index = numbers_of(w.index) + at;
        if (size == sizeof(uint8_t))
            pick_1(to, x, index, (size_t)count, r);
        else if (size == sizeof(uint16_t))
            pick_2(to, x, index, (size_t)count, r);
        else
            pick_4(to, x, index, (size_t)count, r);
    }
}

static uint64_t parts_of_gather(const data_value *value)
{
    return KB_DIV_UP(value->elements, PIECE);
}

static uint64_t cost_of_gather(const data_value *value)
{
    return 2 * value->elements;
}

const data_kernel data_gather_kernel = {.parts = parts_of_gather,
                                        .run = gather,
                                        .cost = cost_of_gather,
                                        .along_axis = true,
                                        .moves = true};

/* ---- Putting ----------------------------------------------------------------------------- */

/* A slab has all elements of x with the same position on the axes before the one of the operation.
 */
static uint64_t slab_elements(const data_value *value)
{
    data_axis is = data_axis_of(&value->shape, value->axis);
    return is.length * is.inner;
}

static uint64_t slabs_in_part(const data_value *value)
{
    uint64_t elements = slab_elements(value);
    return elements < PIECE ? PIECE / (elements ? elements : 1) : 1;
}

static uint64_t parts_of_scatter(const data_value *value)
{
    uint64_t elements = slab_elements(value);
    return elements ? KB_DIV_UP(value->elements / elements, slabs_in_part(value)) : 0;
}

/* The first row of the index for a slab; false if the index does not reach it. */
static bool first_row(const walk *w, uint64_t slab, uint64_t *first)
{
    uint64_t stride = w->rows_of_one;
    *first = 0;
    for (uint32_t i = w->value->axis; i-- > 0;) {
        uint64_t coordinate = slab % w->value->shape.dims[i];
        slab /= w->value->shape.dims[i];
        if (coordinate >= w->index->shape.dims[i])
            return false;
        *first += coordinate * stride;
        stride *= w->index->shape.dims[i];
    }
    return true;
}

/* What is done with a row of the index: `r.at` is within the slab, `src` the row's first element.
 */
typedef struct put_row {
    const data_value *value;
    row r;
    const int32_t *index;
    const unsigned char *src;
    uint64_t slab; /* where it begins in x */
} put_row;

typedef void put_fn(const put_row *p, size_t count, void *self);

static void for_each_row(const walk *w, uint64_t slab, put_fn *put, void *self)
{
    const data_value *value = w->value, *src = value->inputs[2];
    uint64_t first;
    if (w->row_length == 0 || !first_row(w, slab, &first))
        return;
    for (uint64_t n = first; n < first + w->rows_of_one; n++) {
        uint64_t at = 0;
        row r = row_at(w, n, &at);
        uint64_t begin = slab * slab_elements(value);
        r.at -= begin;
        put(&(put_row){.value = value,
                       .r = r,
                       .index = numbers_of(w->index) + n * w->row_length,
                       .src = src->bytes + at * kb_dtype_bytes(src->dtype),
                       .slab = begin},
            (size_t)w->row_length, self);
    }
}

static void put_elements(const put_row *p, size_t count, void *self)
{
    (void)self;
    const size_t size = kb_dtype_bytes(p->value->dtype);
    unsigned char *to = p->value->bytes + p->slab * size;
    for (size_t i = 0; i < count; i++) {
        uint64_t at = p->r.at + i * p->r.step + (uint64_t)p->index[i] * p->r.stride;
        memcpy(to + at * size, p->src + i * size, size);
    }
}

static void scatter(const data_value *value, uint64_t part, data_scratch *scratch)
{
    (void)scratch;
    const size_t bytes = (size_t)slab_elements(value) * kb_dtype_bytes(value->dtype);
    walk w = walk_of(value);
    uint64_t slabs = value->elements / slab_elements(value), step = slabs_in_part(value);
    for (uint64_t i = part * step; i < kb_min(slabs, (part + 1) * step); i++) {
        memcpy(value->bytes + i * bytes, value->inputs[0]->bytes + i * bytes, bytes);
        for_each_row(&w, i, put_elements, NULL);
    }
}

static uint64_t cost_of_scatter(const data_value *value)
{
    return value->elements + 3 * value->inputs[1]->elements;
}

const data_kernel data_scatter_kernel = {.parts = parts_of_scatter,
                                         .run = scatter,
                                         .cost = cost_of_scatter,
                                         .along_axis = true,
                                         .moves = true};

/* ---- Adding ------------------------------------------------------------------------------ */

typedef union sum {
    double real;
    int64_t integer; /* wraps around when it is stored */
} sum;

/* Sums of some elements of a slab. They are in the scratch. */
enum {
    SUMS = sizeof(data_number) * DATA_TILE_ROWS * DATA_TILE_COLUMNS / sizeof(sum),
};
typedef struct window {
    sum *sums;
    uint64_t first, count;
    bool is_integer;
} window;

static void add_elements(const put_row *p, size_t count, void *self)
{
    window *in = self;
    const kb_dtype dtype = p->value->inputs[2]->dtype;
    const size_t size = kb_dtype_bytes(dtype);
    for (size_t i = 0; i < count; i++) {
        uint64_t at = p->r.at + i * p->r.step + (uint64_t)p->index[i] * p->r.stride;
        if (at < in->first || at - in->first >= in->count)
            continue;
        double number = mem_number_get(dtype, p->src + i * size);
        if (in->is_integer)
            in->sums[at - in->first].integer += (int64_t)number;
        else
            in->sums[at - in->first].real += number;
    }
}

static void load_sums(const window *in, kb_dtype dtype, const unsigned char *from)
{
    for (uint64_t i = 0; i < in->count; i++) {
        double number = mem_number_get(dtype, from + i * kb_dtype_bytes(dtype));
        if (in->is_integer)
            in->sums[i].integer = (int64_t)number;
        else
            in->sums[i].real = number;
    }
}

static void store_sums(const window *in, kb_dtype dtype, unsigned char *to)
{
    data_number block[DATA_BLOCK];
    data_class class = in->is_integer ? DATA_IN_I32 : DATA_IN_F32;
    for (uint64_t done = 0, count; done < in->count; done += count) {
        count = kb_min(in->count - done, DATA_BLOCK);
        for (uint64_t i = 0; i < count; i++)
            if (in->is_integer)
                block[i].i32 = (int32_t)(uint32_t)(uint64_t)in->sums[done + i].integer;
            else
                block[i].f32 = (float)in->sums[done + i].real;
        data_store_numbers(dtype, to + done * kb_dtype_bytes(dtype), class, block, (size_t)count);
    }
}

static void scatter_add(const data_value *value, uint64_t part, data_scratch *scratch)
{
    const size_t size = kb_dtype_bytes(value->dtype);
    const uint64_t elements = slab_elements(value);
    walk w = walk_of(value);
    window in = {.sums = (sum *)(void *)scratch->c, .is_integer = mem_is_integer(value->dtype)};
    uint64_t slabs = value->elements / elements, step = slabs_in_part(value);
    for (uint64_t i = part * step; i < kb_min(slabs, (part + 1) * step); i++)
        for (in.first = 0; in.first < elements; in.first += in.count) {
            in.count = kb_min(elements - in.first, SUMS);
            uint64_t at = (i * elements + in.first) * size;
            load_sums(&in, value->dtype, value->inputs[0]->bytes + at);
            for_each_row(&w, i, add_elements, &in);
            store_sums(&in, value->dtype, value->bytes + at);
        }
}

static uint64_t cost_of_adding(const data_value *value)
{
    return 8 * value->elements + 8 * value->inputs[1]->elements;
}

const data_kernel data_scatter_add_kernel = {.parts = parts_of_scatter,
                                             .run = scatter_add,
                                             .cost = cost_of_adding,
                                             .needs_scratch = true,
                                             .along_axis = true,
                                             .moves = true};

/* ---- Checking ---------------------------------------------------------------------------- */

kb_error *data_check_index(data_store *store, data_value *index, uint64_t limit, bool *is_inside,
                           uint64_t *at, int32_t *number)
{
    const void *bytes;
    KB_TRY(data_bytes(store, index, &bytes));
    const int32_t *numbers = numbers_of(index);
    *is_inside = true;
    for (uint64_t i = 0; i < index->elements && *is_inside; i++)
        if (numbers[i] < 0 || (uint64_t)numbers[i] >= limit) {
            *is_inside = false;
            *at = i;
            *number = numbers[i];
        }
    return NULL;
}
