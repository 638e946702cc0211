/*
 * kernel.h: a kernel that makes random operations: an interpreter of choices, which each PE draws
 * by itself, and of the messages that the plan has for it.
 *
 * A PE writes only to its own parts of tensors. What it learns (the time, a number, a direction) is
 * noted, but decides nothing: so a program takes the same time with and without data.
 */
#ifndef RANDOM_KERNELS_KERNEL_H
#define RANDOM_KERNELS_KERNEL_H

#include "program.h"

enum { SLOTS = 20, FUTURES = 4, MAX_DEPTH = 3 };

/* A value or a reference that the kernel has. */
typedef struct slot {
    tl_tensor t;
    tl_dims shape;
    kb_dtype dtype;
    int depth;  /* of its scope */
    bool known; /* made of numbers alone */
    bool is_ref;
    bool shares; /* its memory with another */
    bool live;
} slot;

enum { MAX_POSTED = 64 };

/* Receives that were posted and not taken yet, the oldest first. */
typedef struct posted_list {
    struct {
        tl_tensor t;
        int depth; /* of its scope; -1: which has ended */
    } items[MAX_POSTED];
    int first, end;
} posted_list;

typedef struct pe_state {
    program *p;
    const launch_plan *launch;
    int pe; /* of the program */
    rng r;
    tl_ptr part[TENSORS]; /* where its part of each tensor begins */
    tl_ptr other;         /* the part of another PE in T_F16 */
    slot slots[SLOTS];
    tl_future futures[FUTURES];
    posted_list posted;
    int64_t live_bytes, max_bytes;
    int step, depth, next_event;
} pe_state;

/* ---- Notes ------------------------------------------------------------------------------- */

/* What depends on data has a name that begins with "data". */
static void take_note(pe_state *s, const char *what, const char *value)
{
    note_list *list = &s->p->notes[s->pe];
    list->items = grow(list->items, list->count, &list->room, sizeof *list->items);
    snprintf(list->items[list->count++].text, sizeof list->items->text, "%s %s", what, value);
}

static void note_number(pe_state *s, const char *what, double number)
{
    char text[32];
    snprintf(text, sizeof text, "%.17g", number);
    take_note(s, what, text);
}

/* ---- Shapes ------------------------------------------------------------------------------ */

static int64_t elements_of(const tl_dims *shape)
{
    int64_t n = 1;
    for (int i = 0; i < shape->rank; i++)
        n *= shape->dims[i];
    return n;
}

static int64_t bytes_of(const tl_dims *shape, kb_dtype dtype)
{
    return elements_of(shape) * (int64_t)kb_dtype_bytes(dtype);
}

static bool same_dims(const tl_dims *a, const tl_dims *b)
{
    return a->rank == b->rank && memcmp(a->dims, b->dims, (size_t)a->rank * sizeof a->dims[0]) == 0;
}

/* The shape that both are repeated to. */
static bool broadcast(const tl_dims *a, const tl_dims *b, tl_dims *out)
{
    *out = a->rank >= b->rank ? *a : *b;
    for (int i = 1; i <= out->rank; i++) {
        int64_t m = i <= a->rank ? a->dims[a->rank - i] : 1;
        int64_t n = i <= b->rank ? b->dims[b->rank - i] : 1;
        if (m != n && m != 1 && n != 1)
            return false;
        out->dims[out->rank - i] = m == 1 ? n : m;
    }
    return true;
}

static tl_dims random_shape(pe_state *s)
{
    int64_t rows = s->p->rows, columns = s->p->columns;
    switch (below(&s->r, 8)) {
    case 0:
        return tl_shape(columns);
    case 1:
        return tl_shape(rows, 1);
    case 2:
        return tl_shape(1, columns);
    case 3:
        return tl_shape(1 + below(&s->r, 200));
    case 4:
        return tl_shape(columns, rows);
    case 5:
        return one_in(&s->r, 2) ? tl_shape(1) : tl_shape(2, rows, columns);
    default:
        return tl_shape(rows, columns);
    }
}

static bool is_float(kb_dtype dtype)
{
    return dtype == KB_F16 || dtype == KB_BF16 || dtype == KB_F32;
}

/* The type in which two meet. */
static kb_dtype meet(kb_dtype a, kb_dtype b)
{
    if (a == b)
        return a;
    if (is_float(a) && is_float(b))
        return KB_F32;
    if (!is_float(a) && !is_float(b))
        return KB_I32;
    return is_float(a) ? a : b;
}

/* ---- Values ------------------------------------------------------------------------------ */

static void forget(pe_state *s, slot *v)
{
    if (!v->is_ref)
        s->live_bytes -= bytes_of(&v->shape, v->dtype);
    v->live = false;
}

static void drop(tl_context *tl, pe_state *s, slot *v)
{
    tl_free(v->t);
    forget(s, v);
}

static slot *random_slot(pe_state *s)
{
    int first = (int)below(&s->r, SLOTS);
    for (int i = 0; i < SLOTS; i++)
        if (s->slots[(first + i) % SLOTS].live)
            return &s->slots[(first + i) % SLOTS];
    return NULL;
}

/* Frees values until these bytes may be taken. */
static void make_room(tl_context *tl, pe_state *s, int64_t bytes)
{
    slot *v;
    while (s->live_bytes + bytes > s->max_bytes && (v = random_slot(s)) != NULL)
        drop(tl, s, v);
}

static slot *free_slot(pe_state *s)
{
    for (int i = 0; i < SLOTS; i++)
        if (!s->slots[i].live)
            return &s->slots[i];
    return NULL;
}

static slot *put(tl_context *tl, pe_state *s, tl_tensor t, tl_dims shape, kb_dtype dtype)
{
    slot *v = free_slot(s);
    if (!v) {
        v = random_slot(s);
        drop(tl, s, v);
    }
    *v = (slot){.t = t, .shape = shape, .dtype = dtype, .depth = s->depth, .live = true};
    s->live_bytes += bytes_of(&shape, dtype);
    return v;
}

static slot *put_ref(tl_context *tl, pe_state *s, tl_tensor t, tl_dims shape, kb_dtype dtype)
{
    slot *v = put(tl, s, t, shape, dtype);
    s->live_bytes -= bytes_of(&shape, dtype);
    v->is_ref = true;
    return v;
}

/* ---- Places ------------------------------------------------------------------------------ */

static const kb_dtype tensor_dtypes[TENSORS] = {KB_F16, KB_F32, KB_F32, KB_F32, KB_I32, KB_F16};

/* A part of memory that holds the shape with these strides. */
typedef struct spot {
    tl_ptr ptr;
    kb_dtype dtype;
    bool reinterpret;
    bool fits;
} spot;

static int64_t span_of(const tl_dims *shape, const tl_dims *strides)
{
    int64_t last = 0, packed = 1;
    for (int i = shape->rank; i-- > 0;) {
        last += (shape->dims[i] - 1) * (strides->rank ? strides->dims[i] : packed);
        packed *= shape->dims[i];
    }
    return last + 1;
}

static spot random_spot(pe_state *s, const tl_dims *shape, const tl_dims *strides, bool writes)
{
    static const kb_dtype others[] = {KB_I8, KB_BF16, KB_I32, KB_F32, KB_F16};
    int which = (int)below(&s->r, writes ? T_INDEX : TENSORS);
    if (which == T_INDEX)
        which = T_F16;
    spot at = {.ptr = s->part[which], .dtype = tensor_dtypes[which]};
    int64_t bytes = s->p->elements[which] * (int64_t)kb_dtype_bytes(at.dtype);
    if (has(s->p, MASKS) && one_in(&s->r, 6)) {
        at.dtype = others[below(&s->r, 5)];
        at.reinterpret = true;
    }
    if (!writes && which == T_F16 && has(s->p, RACES) && one_in(&s->r, 3))
        at.ptr = s->other;
    int64_t size = (int64_t)kb_dtype_bytes(at.dtype);
    int64_t left = bytes / size - span_of(shape, strides);
    at.fits = left >= 0;
    /* Mostly near the beginning, so that accesses overlap. */
    if (at.fits && left > 0)
        at.ptr += below(&s->r, one_in(&s->r, 3) || left < 16 ? left + 1 : 16) * size;
    return at;
}

static tl_dims random_strides(pe_state *s, const tl_dims *shape, bool writes)
{
    tl_dims strides = {0};
    if (shape->rank != 2 || !has(s->p, MASKS) || !one_in(&s->r, 3))
        return strides;
    strides = tl_strides(shape->dims[1] + below(&s->r, 9), 1);
    if (one_in(&s->r, 8))
        strides.dims[0] *= 2, strides.dims[1] = 2;
    else if (!writes && one_in(&s->r, 8))
        strides.dims[0] = 0;
    return strides;
}

/* A mask for the shape: of numbers alone, or of data; no tensor at all mostly. */
static tl_tensor random_mask(tl_context *tl, pe_state *s, const tl_dims *shape)
{
    tl_tensor mask = {0};
    if (!has(s->p, MASKS) || shape->rank == 0 || !one_in(&s->r, 4))
        return mask;
    int64_t n = shape->dims[shape->rank - 1];
    if (one_in(&s->r, 2))
        return tl_lt(tl_arange(0, n), below(&s->r, n + 1));
    slot *v = random_slot(s);
    tl_dims both;
    if (v && is_float(v->dtype) && broadcast(&v->shape, shape, &both) && same_dims(&both, shape))
        return tl_gt(v->t, 0);
    return mask;
}

/* ---- Memory ------------------------------------------------------------------------------ */

static slot *load(tl_context *tl, pe_state *s, tl_dims shape)
{
    tl_dims strides = random_strides(s, &shape, false);
    spot at = random_spot(s, &shape, &strides, false);
    if (!at.fits)
        return NULL;
    make_room(tl, s, bytes_of(&shape, at.dtype));
    if (one_in(&s->r, 6)) {
        tl_tensor ref =
            tl_ref(at.ptr, shape, at.dtype, .strides = strides, .reinterpret = at.reinterpret);
        return put_ref(tl, s, ref, shape, at.dtype);
    }
    tl_tensor mask = random_mask(tl, s, &shape);
    tl_tensor t = tl_load(at.ptr, shape, at.dtype, .strides = strides, .mask = mask,
                          .other = (double)below(&s->r, 3), .reinterpret = at.reinterpret);
    if (mask.id)
        tl_free(mask);
    return put(tl, s, t, shape, at.dtype);
}

/* A value that is there, or a new one. */
static slot *any_value(tl_context *tl, pe_state *s)
{
    slot *v = one_in(&s->r, 6) ? NULL : random_slot(s);
    for (int i = 0; !v && i < 8; i++)
        v = load(tl, s, random_shape(s));
    if (v)
        return v;
    v = put(tl, s, tl_full(tl_shape(3), TL_F32, 1.5), tl_shape(3), TL_F32);
    v->known = true;
    return v;
}

static void store(tl_context *tl, pe_state *s)
{
    slot *v = any_value(tl, s);
    tl_dims strides = random_strides(s, &v->shape, true);
    spot at = random_spot(s, &v->shape, &strides, true);
    if (!at.fits)
        return;
    tl_tensor t = v->t, cast = {0};
    if (at.dtype != v->dtype)
        t = cast = tl_cast(v->t, at.dtype);
    tl_tensor mask = random_mask(tl, s, &v->shape);
    tl_future done =
        tl_store(at.ptr, t, .strides = strides, .mask = mask, .reinterpret = at.reinterpret);
    if (mask.id)
        tl_free(mask);
    if (cast.id)
        tl_free(cast);
    s->futures[below(&s->r, FUTURES)] = done;
}

/* ---- Vectors ----------------------------------------------------------------------------- */

static void unary(tl_context *tl, pe_state *s)
{
    slot *x = any_value(tl, s);
    tl_dims shape = x->shape;
    kb_dtype dtype = is_float(x->dtype) ? x->dtype : KB_F32;
    make_room(tl, s, bytes_of(&shape, dtype));
    if (!x->live)
        return;
    tl_tensor t;
    switch (below(&s->r, 14)) {
    case 0:
        t = tl_exp(x->t);
        break;
    case 1:
        t = tl_log(x->t);
        break;
    case 2:
        t = tl_sqrt(x->t);
        break;
    case 3:
        t = tl_rsqrt(x->t);
        break;
    case 4:
        t = tl_abs(x->t);
        dtype = x->dtype;
        break;
    case 5:
        t = tl_neg(x->t);
        dtype = x->dtype;
        break;
    case 6:
        t = tl_sigmoid(x->t);
        break;
    case 7:
        t = tl_tanh(x->t);
        break;
    case 8:
        t = tl_cos(x->t);
        break;
    case 9:
        t = tl_sin(x->t);
        break;
    case 10:
        t = tl_gelu(x->t);
        break;
    case 11:
        t = tl_silu(x->t);
        break;
    case 12:
        dtype = one_in(&s->r, 2) ? KB_BF16 : KB_I32;
        t = tl_cast(x->t, dtype);
        break;
    default: {
        tl_tensor narrow = tl_cast(x->t, one_in(&s->r, 2) ? TL_F8E4M3 : TL_F8E5M2);
        dtype = KB_F16;
        t = tl_cast(narrow, dtype);
        tl_free(narrow);
    }
    }
    put(tl, s, t, shape, dtype);
}

static tl_tensor apply_binary(tl_context *tl, pe_state *s, tl_tensor a, tl_tensor b, bool *compares)
{
    int op = (int)below(&s->r, 12);
    *compares = op >= 6;
    switch (op) {
    case 0:
        return tl_add(a, b);
    case 1:
        return tl_sub(a, b);
    case 2:
        return tl_mul(a, b);
    case 3:
        return tl_div(a, b);
    case 4:
        return tl_maximum(a, b);
    case 5:
        return tl_minimum(a, b);
    case 6:
        return tl_lt(a, b);
    case 7:
        return tl_le(a, b);
    case 8:
        return tl_gt(a, b);
    case 9:
        return tl_ge(a, b);
    case 10:
        return tl_eq(a, b);
    default:
        return tl_ne(a, b);
    }
}

/* A value that can be repeated with x; NULL: take a number. */
static slot *partner(pe_state *s, const slot *x, tl_dims *both)
{
    slot *y = one_in(&s->r, 4) ? NULL : random_slot(s);
    if (y && broadcast(&x->shape, &y->shape, both))
        return y;
    *both = x->shape;
    return NULL;
}

static void binary(tl_context *tl, pe_state *s)
{
    slot *x = any_value(tl, s);
    tl_dims shape;
    slot *y = partner(s, x, &shape);
    kb_dtype dtype = y ? meet(x->dtype, y->dtype) : x->dtype;
    make_room(tl, s, bytes_of(&shape, dtype));
    if (!x->live || (y && !y->live))
        return;
    bool compares, known = x->known && (!y || y->known);
    tl_tensor b = y ? y->t : tl_scalar((double)(1 + below(&s->r, 3)));
    tl_tensor t = apply_binary(tl, s, x->t, b, &compares);
    put(tl, s, t, shape, compares ? KB_I8 : dtype)->known = known;
}

static void ternary(tl_context *tl, pe_state *s)
{
    slot *x = any_value(tl, s);
    tl_dims shape;
    slot *y = partner(s, x, &shape);
    kb_dtype dtype = y ? meet(x->dtype, y->dtype) : x->dtype;
    make_room(tl, s, bytes_of(&shape, dtype));
    if (!x->live || (y && !y->live))
        return;
    tl_tensor b = y ? y->t : tl_scalar(2);
    tl_tensor t;
    switch (below(&s->r, 3)) {
    case 0:
        t = tl_fma(x->t, b, 1);
        break;
    case 1:
        t = tl_clamp(x->t, -1, 1);
        shape = x->shape;
        dtype = x->dtype;
        break;
    default:
        t = tl_where(x->t, x->t, b);
    }
    put(tl, s, t, shape, dtype);
}

static void reduce(tl_context *tl, pe_state *s)
{
    slot *x = any_value(tl, s);
    tl_dims shape = x->shape;
    int axis = (int)below(&s->r, shape.rank);
    kb_dtype dtype = x->dtype;
    make_room(tl, s, bytes_of(&shape, KB_F32));
    if (!x->live)
        return;
    tl_tensor t;
    bool keeps = false;
    switch (below(&s->r, 7)) {
    case 0:
        t = tl_sum(x->t, axis);
        dtype = is_float(dtype) ? dtype : KB_I32;
        break;
    case 1:
        t = tl_max(x->t, axis);
        break;
    case 2:
        t = tl_min(x->t, axis);
        break;
    case 3:
        t = tl_argmax(x->t, axis);
        dtype = KB_I32;
        break;
    case 4:
        t = tl_argmin(x->t, axis);
        dtype = KB_I32;
        break;
    case 5:
        t = tl_cumsum(x->t, axis);
        dtype = is_float(dtype) ? dtype : KB_I32;
        keeps = true;
        break;
    default:
        t = tl_softmax(x->t, axis);
        dtype = is_float(dtype) ? dtype : KB_F32;
        keeps = true;
    }
    if (!keeps)
        shape.dims[axis] = 1;
    put(tl, s, t, shape, dtype);
}

/* What moves elements, or only says where they are. */
static void move(tl_context *tl, pe_state *s)
{
    slot *x = any_value(tl, s);
    tl_dims shape = x->shape;
    kb_dtype dtype = x->dtype;
    bool known = x->known;
    make_room(tl, s, 2 * bytes_of(&shape, dtype));
    if (!x->live)
        return;
    int axis = (int)below(&s->r, shape.rank);
    int64_t length = shape.dims[axis];
    switch (below(&s->r, 5)) {
    case 0:
        if (shape.rank < 2)
            return;
        shape.dims[shape.rank - 1] = x->shape.dims[shape.rank - 2];
        shape.dims[shape.rank - 2] = x->shape.dims[shape.rank - 1];
        put(tl, s, tl_transpose(x->t), shape, dtype);
        return;
    case 1:
        shape = one_in(&s->r, 2) ? tl_shape(elements_of(&shape)) : tl_shape(1, elements_of(&shape));
        x->shares = true;
        x = put(tl, s, tl_reshape(x->t, shape), shape, dtype);
        x->known = known;
        x->shares = true;
        return;
    case 2: {
        int64_t begin = below(&s->r, length), end = begin + 1 + below(&s->r, length - begin);
        shape.dims[axis] = end - begin;
        x->shares = true;
        put(tl, s, tl_slice(x->t, axis, begin, end), shape, dtype)->shares = true;
        return;
    }
    case 3: {
        if (length < 2)
            return;
        tl_tensor parts[2];
        x->shares = true;
        tl_split(x->t, axis, parts, 2);
        shape.dims[axis] = length - length / 2;
        put(tl, s, parts[0], shape, dtype)->shares = true;
        shape.dims[axis] = length / 2;
        put(tl, s, parts[1], shape, dtype)->shares = true;
        return;
    }
    default:
        shape.dims[axis] *= 2;
        put(tl, s, tl_concat(axis, x->t, x->t), shape, dtype);
    }
}

static void make_numbers(tl_context *tl, pe_state *s)
{
    static const kb_dtype dtypes[] = {KB_F16, KB_F32, KB_BF16, KB_I32, KB_I8};
    tl_dims shape = random_shape(s);
    kb_dtype dtype = dtypes[below(&s->r, 5)];
    make_room(tl, s, bytes_of(&shape, dtype));
    if (one_in(&s->r, 3)) {
        int64_t n = elements_of(&shape);
        put(tl, s, tl_arange(0, n), tl_shape(n), KB_I32)->known = true;
        return;
    }
    tl_tensor t =
        one_in(&s->r, 2) ? tl_zeros(shape, dtype) : tl_full(shape, dtype, below(&s->r, 9) - 4);
    put(tl, s, t, shape, dtype)->known = true;
}

/* ---- Matrices ---------------------------------------------------------------------------- */

static slot *find_matrix(pe_state *s, int64_t rows, kb_dtype dtype, int64_t columns)
{
    int first = (int)below(&s->r, SLOTS);
    for (int i = 0; i < SLOTS; i++) {
        slot *v = &s->slots[(first + i) % SLOTS];
        if (v->live && v->shape.rank == 2 && v->dtype == dtype &&
            (!rows || v->shape.dims[0] == rows) && (!columns || v->shape.dims[1] == columns))
            return v;
    }
    return NULL;
}

static void dot(tl_context *tl, pe_state *s)
{
    kb_dtype dtype = one_in(&s->r, 3) ? KB_F32 : KB_F16;
    slot *a = find_matrix(s, 0, dtype, 0);
    if (!a)
        a = load(tl, s, tl_shape(s->p->rows, s->p->columns));
    if (!a || a->shape.rank != 2 || !is_float(a->dtype))
        return;
    slot *b = find_matrix(s, a->shape.dims[1], a->dtype, 0);
    if (!b) {
        int t = a->dtype == KB_F16 ? T_SHARED : T_F32;
        tl_dims right = tl_shape(a->shape.dims[1], 1 + below(&s->r, 24));
        if (a->dtype == KB_BF16 || elements_of(&right) > s->p->elements[t])
            return;
        make_room(tl, s, bytes_of(&right, a->dtype));
        if (!a->live || !free_slot(s))
            return;
        b = put(tl, s, tl_load(s->part[t], right, a->dtype), right, a->dtype);
    }
    tl_dims shape = tl_shape(a->shape.dims[0], b->shape.dims[1]);
    slot *acc = one_in(&s->r, 2) ? find_matrix(s, shape.dims[0], KB_F32, shape.dims[1]) : NULL;
    if (acc && acc != a && acc != b && !acc->is_ref && !acc->shares) {
        acc->t = tl_dot(a->t, b->t, .acc = acc->t);
        acc->known = false;
        return;
    }
    bool wide = one_in(&s->r, 2);
    kb_dtype result = wide ? KB_F32 : a->dtype;
    make_room(tl, s, bytes_of(&shape, result));
    if (a->live && b->live)
        put(tl, s, tl_dot(a->t, b->t, .out_f32 = wide), shape, result);
}

static void composite(tl_context *tl, pe_state *s)
{
    int64_t most = has(s->p, LARGE) ? 100 : 40;
    int64_t m = 1 + below(&s->r, most), k = 1 + below(&s->r, most), n = 1 + below(&s->r, most);
    tl_dims left = tl_shape(m, k), right = tl_shape(k, n), result = tl_shape(m, n), packed = {0};
    spot a = random_spot(s, &left, &packed, false), b = random_spot(s, &right, &packed, false);
    spot c = random_spot(s, &result, &packed, true);
    if (!a.fits || !b.fits || !c.fits || a.reinterpret || b.reinterpret || c.reinterpret ||
        a.dtype != b.dtype)
        return;
    make_room(tl, s, bytes_of(&left, a.dtype));
    bool holds = one_in(&s->r, 4);
    tl_tensor x = holds ? tl_load(a.ptr, left, a.dtype) : tl_ref(a.ptr, left, a.dtype);
    tl_tensor y = tl_ref(b.ptr, right, b.dtype);
    tl_future done = tl_composite(TL_GEMM, x, y, tl_ref(c.ptr, result, c.dtype));
    s->futures[below(&s->r, FUTURES)] = done;
    if (holds)
        put(tl, s, x, left, a.dtype);
}

/* ---- Indices ----------------------------------------------------------------------------- */

/* Elements of the index tensor are 0 or 1. */
static void use_index(tl_context *tl, pe_state *s)
{
    slot *x = any_value(tl, s);
    tl_dims shape = x->shape;
    kb_dtype dtype = x->dtype;
    make_room(tl, s, bytes_of(&shape, KB_F32) + 4096);
    if (!x->live || shape.rank == 0 || shape.dims[shape.rank - 1] < 2)
        return;
    int axis = shape.rank - 1;
    int64_t length = shape.dims[axis] < 64 ? shape.dims[axis] : 64;
    tl_dims index_shape = shape;
    for (int i = 0; i < axis; i++)
        index_shape.dims[i] = 1;
    index_shape.dims[axis] = length;
    tl_tensor line = one_in(&s->r, 2) ? tl_arange(0, length)
                                      : tl_load(s->part[T_INDEX], tl_shape(length), TL_I32);
    tl_tensor index = tl_reshape(line, index_shape);
    switch (below(&s->r, 4)) {
    case 0:
        put(tl, s, tl_gather(x->t, index, axis), index_shape, dtype);
        break;
    case 1:
        put(tl, s, tl_scatter(x->t, index, axis, x->t), shape, dtype);
        break;
    case 2:
        put(tl, s, tl_scatter_add(x->t, index, axis, x->t), shape, dtype);
        break;
    default: {
        int64_t k = 1 + below(&s->r, length < 5 ? length : 5);
        tl_topk_result best = tl_topk(x->t, k, axis);
        shape.dims[axis] = k;
        put(tl, s, best.values, shape, dtype);
        put(tl, s, best.indices, shape, KB_I32);
    }
    }
    tl_free(index);
    tl_free(line);
}

/* Addresses that are computed from an index tensor. */
static void use_items(tl_context *tl, pe_state *s)
{
    int64_t items[4];
    tl_tensor line = tl_load(s->part[T_INDEX] + 4 * below(&s->r, 8), tl_shape(4), TL_I32);
    tl_items(line, items, 4);
    tl_free(line);
    tl_ptr at = s->part[T_F16] + 2 * 8 * (items[0] + 2 * items[1] + 4 * items[2]);
    make_room(tl, s, 64);
    put(tl, s, tl_load(at, tl_shape(32), TL_F16), tl_shape(32), TL_F16);
}

/* ---- Asking and waiting ------------------------------------------------------------------ */

static void ask(tl_context *tl, pe_state *s)
{
    switch (below(&s->r, 5)) {
    case 0: {
        char text[32];
        snprintf(text, sizeof text, "%lld", (long long)tl_now());
        take_note(s, "now", text);
        return;
    }
    case 1:
        tl_wait(s->futures[below(&s->r, FUTURES)]);
        return;
    case 2: {
        const slot *v = random_slot(s);
        if (v)
            tl_wait(v->t);
        return;
    }
    default: {
        slot *x = any_value(tl, s);
        if (elements_of(&x->shape) == 0)
            return;
        tl_tensor flat =
            tl_reshape(x->is_ref ? tl_add(x->t, 0) : x->t, tl_shape(elements_of(&x->shape)));
        tl_tensor one = tl_slice(flat, 0, 0, 1);
        if (x->known)
            note_number(s, "item", tl_item(one));
        else
            note_number(s, "data item", tl_item_or(one, 0.5));
        tl_free(one);
        tl_free(flat);
    }
    }
}

/* ---- Messages ---------------------------------------------------------------------------- */

static tl_dims message_shape(const event *e)
{
    return e->elements % 4 == 0 && e->elements > 0 ? tl_shape(4, e->elements / 4)
                                                   : tl_shape(e->elements);
}

/* A value of the shape: one that is there, which may have come as a message, or a new one. */
static slot *make_message(tl_context *tl, pe_state *s, const event *e)
{
    tl_dims shape = message_shape(e);
    for (int i = 0; i < SLOTS && !one_in(&s->r, 4); i++) {
        slot *v = &s->slots[i];
        if (v->live && v->dtype == e->dtype && same_dims(&v->shape, &shape))
            return v;
    }
    make_room(tl, s, 2 * bytes_of(&shape, e->dtype));
    tl_ptr from = s->part[e->dtype == KB_F16 ? T_F16 : T_F32];
    if (e->elements == 0 || one_in(&s->r, 5))
        return put(tl, s, tl_full(shape, e->dtype, 2), shape, e->dtype);
    if (one_in(&s->r, 3))
        return put_ref(tl, s, tl_ref(from, shape, e->dtype), shape, e->dtype);
    tl_tensor loaded = tl_load(from, shape, e->dtype);
    if (one_in(&s->r, 2))
        return put(tl, s, loaded, shape, e->dtype);
    tl_tensor more = tl_add(loaded, 1);
    tl_free(loaded);
    return put(tl, s, more, shape, e->dtype);
}

static void send(tl_context *tl, pe_state *s, const event *e)
{
    const char *direction = s->p->sets[s->launch->set].edges[e->edge].send;
    slot *v = make_message(tl, s, e);
    if (one_in(&s->r, 16))
        note_number(s, "can send", tl_can_send(direction));
    if (one_in(&s->r, 4))
        tl_send_sync(direction, v->t);
    else
        s->futures[below(&s->r, FUTURES)] = tl_send(direction, v->t);
    if (e->elements == 0 || one_in(&s->r, 4))
        drop(tl, s, v);
}

static void receive(tl_context *tl, pe_state *s, const event *e)
{
    const char *direction = s->p->sets[s->launch->set].edges[e->edge].recv;
    tl_dims shape = message_shape(e);
    make_room(tl, s, bytes_of(&shape, e->dtype));
    if (one_in(&s->r, 16))
        note_number(s, "can receive", tl_can_recv(direction));
    if (s->p->any[s->pe])
        direction = TL_ANY;
    tl_ptr dst = 0;
    if (e->elements > 0 && one_in(&s->r, 4))
        dst = s->part[e->dtype == KB_F16 ? T_F16 : T_F32];
    tl_tensor t;
    if (one_in(&s->r, 4)) {
        t = tl_recv_async(direction, shape, e->dtype, .dst = dst);
    } else if (one_in(&s->r, 2)) {
        t = tl_recv(direction, shape, e->dtype, .dst = dst);
    } else {
        const char *from;
        t = tl_recv(direction, shape, e->dtype, .dst = dst, .from = &from);
        take_note(s, "from", from);
    }
    if (e->elements == 0)
        tl_free(t);
    else if (dst)
        put_ref(tl, s, t, shape, e->dtype);
    else
        put(tl, s, t, shape, e->dtype);
}

static void post(tl_context *tl, pe_state *s, const event *e)
{
    posted_list *posted = &s->posted;
    const char *direction = s->p->sets[s->launch->set].edges[e->edge].recv;
    make_room(tl, s, bytes_of(&(tl_dims){1, {e->elements}}, e->dtype));
    tl_tensor t = tl_recv_async(s->p->any[s->pe] ? TL_ANY : direction, message_shape(e), e->dtype);
    posted->items[posted->end % MAX_POSTED].t = t;
    posted->items[posted->end++ % MAX_POSTED].depth = s->depth;
}

static void take(tl_context *tl, pe_state *s, const event *e)
{
    if (s->posted.first == s->posted.end)
        return; /* the plan has dropped it */
    int index = s->posted.first++ % MAX_POSTED;
    int depth = s->posted.items[index].depth;
    tl_tensor t = s->posted.items[index].t;
    if (depth < 0)
        return;
    if (e->elements == 0 || one_in(&s->r, 8))
        tl_free(t);
    else
        put(tl, s, t, message_shape(e), e->dtype)->depth = depth;
}

/* ---- Faults ------------------------------------------------------------------------------ */

static void fail(tl_context *tl, pe_state *s)
{
    slot *v = any_value(tl, s);
    switch (below(&s->r, 7)) {
    case 0:
        tl_raise("raised at step %d", s->step);
    case 1:
        (void)tl_load((tl_ptr)1 << 50, tl_shape(8), TL_F16);
        break;
    case 2:
        tl_free(v->t);
        v->t = tl_add(v->t, 1);
        break;
    case 3:
        v->t = tl_add(tl_zeros(tl_shape(3), TL_F16), tl_zeros(tl_shape(4), TL_F16));
        break;
    case 4:
        tl_send("nowhere", v->t);
        break;
    case 5:
        (void)tl_zeros(tl_shape(1 << 20, 1 << 10), TL_F32);
        break;
    default:
        (void)tl_load(s->part[T_F32], tl_shape(8), TL_I8);
    }
    tl_raise("the fault did not happen");
}

/* ---- Programs ---------------------------------------------------------------------------- */

/* A value of this scope takes the place of one of a scope around it. */
static void assign(tl_context *tl, pe_state *s)
{
    slot *from = random_slot(s), *to = random_slot(s);
    if (!from || s->depth == 0 || from->depth != s->depth || from->is_ref)
        return;
    if (to && to->depth < s->depth && !to->is_ref) {
        tl_assign(&to->t, from->t);
        s->live_bytes -= bytes_of(&to->shape, to->dtype);
        to->shape = from->shape;
        to->dtype = from->dtype;
        to->known = from->known;
        to->shares = from->shares;
        from->live = false;
        return;
    }
    tl_tensor fresh = {0};
    tl_assign(&fresh, from->t);
    from->t = fresh;
    from->depth = s->depth - 1;
}

static void make_operation(tl_context *tl, pe_state *s)
{
    static const struct {
        unsigned feature; /* 0: always */
        int weight;
        void (*run)(tl_context *tl, pe_state *s);
    } kinds[] = {{0, 3, store},
                 {VECTOR, 3, unary},
                 {VECTOR, 4, binary},
                 {VECTOR, 1, ternary},
                 {VECTOR, 2, reduce},
                 {VECTOR, 3, move},
                 {VECTOR, 1, make_numbers},
                 {MATRIX, 4, dot},
                 {COMPOSITE, 1, composite},
                 {INDEX, 1, use_index},
                 {INDEX, 1, use_items},
                 {SYNC, 2, ask},
                 {SCOPES, 1, assign}};
    enum { KINDS = sizeof kinds / sizeof kinds[0], LOADS = 4 };
    int total = LOADS;
    for (int i = 0; i < KINDS; i++)
        total += !kinds[i].feature || has(s->p, kinds[i].feature) ? kinds[i].weight : 0;
    int64_t draw = below(&s->r, total);
    for (int i = 0; i < KINDS; i++) {
        draw -= !kinds[i].feature || has(s->p, kinds[i].feature) ? kinds[i].weight : 0;
        if (draw < 0) {
            kinds[i].run(tl, s);
            return;
        }
    }
    load(tl, s, random_shape(s));
}

/* The messages whose turn has come, if they are spread evenly over the steps. */
static void exchange(tl_context *tl, pe_state *s)
{
    const event_list *list = &s->launch->events[s->pe];
    while (s->next_event < list->count &&
           (int64_t)s->next_event * s->launch->steps <= (int64_t)s->step * list->count) {
        const event *e = &list->items[s->next_event++];
        switch (e->kind) {
        case SEND:
            send(tl, s, e);
            break;
        case RECV:
            receive(tl, s, e);
            break;
        case POST:
            post(tl, s, e);
            break;
        case TAKE:
            take(tl, s, e);
            break;
        }
    }
}

/* What was made in the scope that has just ended is gone. */
static void end_scope(pe_state *s)
{
    for (int i = 0; i < SLOTS; i++)
        if (s->slots[i].live && s->slots[i].depth > s->depth)
            forget(s, &s->slots[i]);
    for (int i = s->posted.first; i < s->posted.end; i++)
        if (s->posted.items[i % MAX_POSTED].depth > s->depth)
            s->posted.items[i % MAX_POSTED].depth = -1;
}

static void run_steps(tl_context *tl, pe_state *s, int until)
{
    while (s->step < until) {
        if (has(s->p, SCOPES) && s->depth < MAX_DEPTH && one_in(&s->r, 12)) {
            int end = s->step + 1 + (int)below(&s->r, 8);
            TL_SCOPE {
                s->depth++;
                run_steps(tl, s, end < until ? end : until);
                s->depth--;
            }
            end_scope(s);
            continue;
        }
        if (s->launch->fault_at[s->pe] == s->step)
            fail(tl, s);
        exchange(tl, s);
        make_operation(tl, s);
        if (has(s->p, SCOPES) && one_in(&s->r, 5)) {
            slot *v = random_slot(s);
            if (v)
                drop(tl, s, v);
        }
        s->step++;
    }
}

static void run_program(tl_context *tl, void *arg)
{
    pe_state *s = arg;
    run_steps(tl, s, s->launch->steps);
    if (s->launch->fault_at[s->pe] == s->step)
        fail(tl, s);
    exchange(tl, s);
}

/* Whose addresses the kernel was given, of the devices that it may run on. */
static int find_sip(const program *p, uint64_t va)
{
    for (int sip = 0; sip < p->sips; sip++)
        if (p->va[T_F16][sip] == va)
            return sip;
    return -1;
}

static void find_parts(pe_state *s, int sip, int of_sip)
{
    const program *p = s->p;
    for (int t = 0; t < TENSORS; t++) {
        int part = t == T_SHARED ? 0 : t == T_FAR ? (of_sip + p->far_shift) % p->per_sip : of_sip;
        s->part[t] = (tl_ptr)p->va[t][sip] +
                     part * p->elements[t] * (int64_t)kb_dtype_bytes(tensor_dtypes[t]);
    }
    int other = (int)below(&s->r, p->per_sip);
    s->other = (tl_ptr)p->va[T_F16][sip] + other * p->elements[T_F16] * 2;
}

/* Tensors make the kernel run on all PEs that have a part of them. */
KB_KERNEL(random_kernel, tl_ptr f16, tl_ptr f32, tl_ptr far, tl_ptr near, tl_ptr index,
          tl_ptr shared, int launch)
{
    program *p = tl_user();
    (void)f32, (void)far, (void)near, (void)index, (void)shared;
    int sip = find_sip(p, (uint64_t)f16);
    int of_sip = (int)(tl_program_id(1) * p->pes + tl_program_id(0));
    if (sip < 0 || of_sip >= p->per_sip)
        tl_raise("the kernel runs on a PE that is not in its plan");
    pe_state state = {.p = p,
                      .launch = &p->launches[launch],
                      .pe = sip * p->per_sip + of_sip,
                      .max_bytes = (int64_t)p->machine.tcm_bytes / 16};
    pe_state *s = &state;
    s->r = rng_make(p->seed, (uint64_t)launch, has(p, ALIKE) ? 0 : 1 + (uint64_t)s->pe);
    find_parts(s, sip, of_sip);
    if (has(p, FULL_TCM))
        s->max_bytes = (int64_t)p->machine.tcm_bytes / 10 * 8;
    if (s->launch->foreign)
        kb_error_free(tl_try(tl, run_program, s));
    else
        run_program(tl, s);
}

#endif
