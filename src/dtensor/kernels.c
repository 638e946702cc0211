/*
 * kernels.c: copies, element-wise operations and reductions on one device. See kernels.h.
 *
 * A PE processes its part of the elements of the output in rectangles of the last two axes, as
 * large as the TCM allows, so that loads, operations and stores of successive rectangles overlap.
 */
#include "kernels.h"
#include "base/base.h"
#include "mem/mem.h"

/* The elements of this PE, of `count`. */
static void own_part(tl_context *tl, int64_t pes, int64_t all_pes, int64_t count, int64_t *begin,
                     int64_t *end)
{
    int64_t own = tl_program_id(1) * pes + tl_program_id(0);
    *begin = tl_part_begin(count, all_pes, own);
    *end = *begin + tl_part_size(count, all_pes, own);
}

/* ---- Element by element ---- */

/* A tensor with its strides. */
typedef struct operand {
    tl_ptr tensor;
    int64_t first;
    int64_t strides[DT_MAP_AXES];
} operand;

typedef struct map {
    int axes;
    int64_t sizes[DT_MAP_AXES];
    operand out, in[2];
    int inputs, op;
    kb_dtype dtype; /* of the inputs */
    int64_t bytes;  /* of their elements */
    int64_t tile;
} map;

/* Consecutive indices: `rows` of the last axis but one, `columns` of the last. */
typedef struct rectangle {
    int64_t index[DT_MAP_AXES];
    int64_t rows, columns;
} rectangle;

static rectangle find_rectangle(const map *m, int64_t begin, int64_t end)
{
    rectangle r = {.rows = 1};
    int64_t rest = begin;
    for (int axis = m->axes - 1; axis >= 0; axis--) {
        r.index[axis] = rest % m->sizes[axis];
        rest /= m->sizes[axis];
    }
    int64_t width = m->sizes[m->axes - 1], column = r.index[m->axes - 1];
    int64_t height = m->sizes[m->axes - 2] - r.index[m->axes - 2];
    r.columns = kb_min(kb_min(width - column, end - begin), m->tile);
    if (r.columns == width)
        r.rows = kb_min(height, kb_min((end - begin) / width, m->tile / width));
    return r;
}

static int64_t first_element(const map *m, const operand *w, const rectangle *r)
{
    int64_t first = w->first;
    for (int axis = 0; axis < m->axes; axis++)
        first += r->index[axis] * w->strides[axis];
    return first;
}

/* An axis along which the operand is repeated is loaded with one element. */
static tl_tensor load(tl_context *tl, const map *m, const operand *w, const rectangle *r)
{
    int64_t down = w->strides[m->axes - 2], right = w->strides[m->axes - 1];
    tl_dims shape = tl_shape(down == 0 ? 1 : r->rows, right == 0 ? 1 : r->columns);
    return tl_load(w->tensor + first_element(m, w, r) * m->bytes, shape, m->dtype,
                   .strides = tl_strides(down, right));
}

static tl_tensor apply(tl_context *tl, const map *m, const rectangle *r)
{
    tl_tensor in[2] = {load(tl, m, &m->in[0], r)};
    if (m->inputs == 2)
        in[1] = load(tl, m, &m->in[1], r);
    if (m->op == DT_MAP_COPY)
        return in[0];
    if (m->op == DT_MAP_RELU)
        return tl_maximum(in[0], 0);
    return tl_apply_(tl, TL_DETAIL_HERE, (tl_op)m->op, in, 0);
}

static map read_map(const tl_arg *args, int axes)
{
    map m = {
        .axes = axes,
        .out = {.tensor = (tl_ptr)args[DT_MAP_OUT], .first = (int64_t)args[DT_MAP_OUT_FIRST]},
        .in = {{.tensor = (tl_ptr)args[DT_MAP_A], .first = (int64_t)args[DT_MAP_A_FIRST]},
               {.tensor = (tl_ptr)args[DT_MAP_B], .first = (int64_t)args[DT_MAP_B_FIRST]}},
        .inputs = (int)args[DT_MAP_INPUTS],
        .op = (int)args[DT_MAP_OP],
        .dtype = (kb_dtype)args[DT_MAP_IN_DTYPE],
        .tile = (int64_t)args[DT_MAP_TILE],
    };
    m.bytes = (int64_t)kb_dtype_bytes(m.dtype);
    for (int axis = 0; axis < axes; axis++) {
        const tl_arg *at = &args[DT_MAP_FIXED + 4 * axis];
        m.sizes[axis] = (int64_t)at[0];
        m.out.strides[axis] = (int64_t)at[1];
        m.in[0].strides[axis] = (int64_t)at[2];
        m.in[1].strides[axis] = (int64_t)at[3];
    }
    return m;
}

/* The element size of the result, which is 4 for integers converted to f32. */
static int64_t result_bytes(const map *m)
{
    bool whole = mem_is_integer(m->dtype);
    bool keeps = m->inputs == 2 || m->op == DT_MAP_COPY || m->op == DT_MAP_RELU ||
                 m->op == TL_ABS_ || m->op == TL_NEG_;
    return whole && !keeps ? (int64_t)sizeof(float) : m->bytes;
}

static void run_map(tl_context *tl, const tl_arg *args, int axes)
{
    map m = read_map(args, axes);
    int64_t count = 1, begin, end, bytes = result_bytes(&m);
    for (int axis = 0; axis < axes; axis++)
        count *= m.sizes[axis];
    own_part(tl, (int64_t)args[DT_MAP_PES], (int64_t)args[DT_MAP_ALL_PES], count, &begin, &end);
    while (begin < end) {
        rectangle r = find_rectangle(&m, begin, end);
        const int64_t *strides = &m.out.strides[axes - 2];
        TL_SCOPE {
            tl_store(m.out.tensor + first_element(&m, &m.out, &r) * bytes, apply(tl, &m, &r),
                     .strides = tl_strides(strides[0], strides[1]));
        }
        begin += r.rows * r.columns;
    }
}

static void run_few(tl_context *tl, const tl_arg *args)
{
    run_map(tl, args, DT_MAP_FEW_AXES);
}

static void run_all(tl_context *tl, const tl_arg *args)
{
    run_map(tl, args, DT_MAP_AXES);
}

#define MAP_PARAMETERS                                                                             \
    "tl_ptr grid, tl_ptr out, tl_ptr a, tl_ptr b, int op, int inputs, int dtype, int64_t pes, "    \
    "int64_t all_pes, int64_t tile, int64_t out_first, int64_t a_first, int64_t b_first"
#define AXIS_PARAMETERS ", int64_t size, int64_t out_stride, int64_t a_stride, int64_t b_stride"
#define THREE_AXES AXIS_PARAMETERS AXIS_PARAMETERS AXIS_PARAMETERS

const kb_kernel dt_map_few_kernel = {
    .name = "dtensor_map",
    .parameters = MAP_PARAMETERS THREE_AXES,
    .parameter_count = DT_MAP_FIXED + 4 * DT_MAP_FEW_AXES,
    .file = __FILE__,
    .line = __LINE__,
    .run = run_few,
};

const kb_kernel dt_map_kernel = {
    .name = "dtensor_map",
    .parameters = MAP_PARAMETERS THREE_AXES THREE_AXES AXIS_PARAMETERS AXIS_PARAMETERS,
    .parameter_count = DT_MAP_FIXED + 4 * DT_MAP_AXES,
    .file = __FILE__,
    .line = __LINE__,
    .run = run_all,
};

/* ---- Reductions ---- */

typedef struct reduction {
    tl_ptr in;
    int op;
    kb_dtype dtype; /* of the input */
    int64_t length, inner, segments, tile;
} reduction;

/* A part of the result: `rows` of (outer, segments) from `row`, `columns` of inner. */
typedef struct piece {
    int64_t row, rows, column, columns;
} piece;

/* The first element of the row's segment, along the reduced axis. */
static int64_t segment_begin(const reduction *r, int64_t row)
{
    return tl_part_begin(r->length, r->segments, row % r->segments);
}

static piece find_piece(const reduction *r, int64_t begin, int64_t end)
{
    piece p = {.row = begin / r->inner, .rows = 1, .column = begin % r->inner};
    p.columns = kb_min(kb_min(r->inner - p.column, end - begin), r->tile);
    if (r->inner == 1 && r->segments == 1 && r->length <= r->tile)
        p.rows = kb_min(end - begin, r->tile / r->length);
    return p;
}

/* Reduces `count` elements along the axis, from `first`, for a piece. */
static tl_tensor reduce_some(tl_context *tl, const reduction *r, const piece *p, int64_t first,
                             int64_t count)
{
    int64_t bytes = (int64_t)kb_dtype_bytes(r->dtype), outer = p->row / r->segments;
    tl_ptr from = r->in + ((outer * r->length + first) * r->inner + p->column) * bytes;
    bool rows = r->inner == 1;
    tl_tensor x = rows ? tl_load(from, tl_shape(p->rows, count), r->dtype,
                                 .strides = tl_strides(r->length, 1))
                       : tl_load(from, tl_shape(count, p->columns), r->dtype,
                                 .strides = tl_strides(r->inner, 1));
    bool narrow = mem_is_float(r->dtype) && r->dtype != KB_F32;
    if (narrow && r->op == TL_SUM_)
        x = tl_cast(x, TL_F32);
    return tl_apply_(tl, TL_DETAIL_HERE, (tl_op)r->op, &x, rows ? 1 : 0);
}

static tl_tensor combine(tl_context *tl, const reduction *r, tl_tensor a, tl_tensor b)
{
    if (r->op == TL_SUM_)
        return tl_add(a, b);
    return r->op == TL_MAX_ ? tl_maximum(a, b) : tl_minimum(a, b);
}

static tl_tensor reduce_piece(tl_context *tl, const reduction *r, const piece *p)
{
    int64_t first = segment_begin(r, p->row);
    int64_t last = first + tl_part_size(r->length, r->segments, p->row % r->segments);
    int64_t step = r->tile / (p->rows * p->columns);
    tl_tensor sum = {0};
    for (int64_t at = first, count; at < last; at += count) {
        count = kb_min(last - at, step > 0 ? step : 1);
        TL_SCOPE {
            tl_tensor some = reduce_some(tl, r, p, at, count);
            tl_assign(&sum, at == first ? some : combine(tl, r, sum, some));
        }
    }
    return sum;
}

KB_KERNEL(reduce_axis, tl_ptr grid, tl_ptr out, tl_ptr in, int op, int dtype, int sum_dtype,
          int out_dtype, int64_t pes, int64_t all_pes, int64_t tile, int64_t outer, int64_t length,
          int64_t inner, int64_t segments, double scale)
{
    (void)grid;
    reduction r = {in, op, (kb_dtype)dtype, length, inner, segments, tile};
    int64_t begin, end, bytes = (int64_t)kb_dtype_bytes((kb_dtype)out_dtype);
    own_part(tl, pes, all_pes, outer * segments * inner, &begin, &end);
    while (begin < end) {
        piece p = find_piece(&r, begin, end);
        TL_SCOPE {
            tl_tensor sum = reduce_piece(tl, &r, &p);
            if (scale != 1)
                sum = tl_mul(sum, scale);
            if (sum_dtype != out_dtype)
                sum = tl_cast(sum, (kb_dtype)out_dtype);
            tl_store(out + begin * bytes, tl_reshape(sum, tl_shape(p.rows * p.columns)));
        }
        begin += p.rows * p.columns;
    }
}

const kb_kernel *const dt_reduce_kernel = &reduce_axis;
