/*
 * operations.h: random operations of a kernel, on values that it has or makes for the purpose. What
 * does not fit together is left out: an operation may come to nothing.
 */
#ifndef RANDOM_KERNELS_OPERATIONS_H
#define RANDOM_KERNELS_OPERATIONS_H

#include "values.h"

/* ---- Memory ------------------------------------------------------------------------------ */

static inline slot *load(tl_context *tl, pe_state *s, tl_dims shape)
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
static inline slot *any_value(tl_context *tl, pe_state *s)
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

static inline void store(tl_context *tl, pe_state *s)
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

static inline void unary(tl_context *tl, pe_state *s)
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

static inline tl_tensor apply_binary(tl_context *tl, pe_state *s, tl_tensor a, tl_tensor b,
                                     bool *compares)
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
static inline slot *partner(pe_state *s, const slot *x, tl_dims *both)
{
    slot *y = one_in(&s->r, 4) ? NULL : random_slot(s);
    if (y && broadcast(&x->shape, &y->shape, both))
        return y;
    *both = x->shape;
    return NULL;
}

static inline void binary(tl_context *tl, pe_state *s)
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

static inline void ternary(tl_context *tl, pe_state *s)
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

static inline void reduce(tl_context *tl, pe_state *s)
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
static inline void move(tl_context *tl, pe_state *s)
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
    switch (below(&s->r, 6)) {
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
        if (one_in(&s->r, 2))
            tl_split(x->t, axis, parts, 2);
        else
            tl_split_sizes(x->t, axis, parts, length - length / 2, length / 2);
        shape.dims[axis] = length - length / 2;
        put(tl, s, parts[0], shape, dtype)->shares = true;
        shape.dims[axis] = length / 2;
        put(tl, s, parts[1], shape, dtype)->shares = true;
        return;
    }
    case 4:
        if (bytes_of(&shape, dtype) > 4096)
            return;
        shape.dims[axis] *= 8; /* more than one command takes */
        put(tl, s, tl_concat(axis, x->t, x->t, x->t, x->t, x->t, x->t, x->t, x->t), shape, dtype);
        return;
    default:
        shape.dims[axis] *= 2;
        put(tl, s, tl_concat(axis, x->t, x->t), shape, dtype);
    }
}

static inline void make_numbers(tl_context *tl, pe_state *s)
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

static inline slot *find_matrix(pe_state *s, int64_t rows, kb_dtype dtype, int64_t columns)
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

static inline void dot(tl_context *tl, pe_state *s)
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

static inline void composite(tl_context *tl, pe_state *s)
{
    int64_t most = has(s->p, LARGE) ? 100 : 40;
    int64_t m = 1 + below(&s->r, most), k = 1 + below(&s->r, most), n = 1 + below(&s->r, most);
    tl_dims left = tl_shape(m, k), right = tl_shape(k, n), result = tl_shape(m, n);
    tl_dims a_strides = random_strides(s, &left, true), b_strides = random_strides(s, &right, true);
    tl_dims c_strides = random_strides(s, &result, true);
    spot a = random_spot(s, &left, &a_strides, false);
    spot b = random_spot(s, &right, &b_strides, false);
    for (int i = 0; i < 6 && b.dtype != a.dtype; i++)
        b = random_spot(s, &right, &b_strides, false);
    spot c = random_spot(s, &result, &c_strides, true);
    if (!a.fits || !b.fits || !c.fits || a.reinterpret || b.reinterpret || c.reinterpret ||
        a.dtype != b.dtype)
        return;
    make_room(tl, s, bytes_of(&left, a.dtype));
    bool holds = one_in(&s->r, 4);
    tl_tensor x = holds ? tl_load(a.ptr, left, a.dtype, .strides = a_strides)
                        : tl_ref(a.ptr, left, a.dtype, .strides = a_strides);
    tl_tensor y = tl_ref(b.ptr, right, b.dtype, .strides = b_strides);
    tl_tensor out = tl_ref(c.ptr, result, c.dtype, .strides = c_strides);
    s->futures[below(&s->r, FUTURES)] = tl_composite(TL_GEMM, x, y, out);
    if (holds)
        put(tl, s, x, left, a.dtype);
}

/* ---- Indices ----------------------------------------------------------------------------- */

/* Elements of the index tensor are 0 or 1. */
static inline void use_index(tl_context *tl, pe_state *s)
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
static inline void use_items(tl_context *tl, pe_state *s)
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

static inline void ask(tl_context *tl, pe_state *s)
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

#endif
