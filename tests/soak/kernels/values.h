/*
 * values.h: what a kernel has at a time: its values, with their shapes, types and scopes; and where
 * in memory it may read and write.
 *
 * A PE writes only to its own parts of tensors. What it learns (the time, a number, a direction) is
 * noted, but decides nothing: so a program takes the same time with and without data.
 */
#ifndef RANDOM_KERNELS_VALUES_H
#define RANDOM_KERNELS_VALUES_H

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
    bool expects_another; /* shape: its next receive is wrong */
} pe_state;

/* ---- Notes ------------------------------------------------------------------------------- */

/* What depends on data has a name that begins with "data". */
static inline void take_note(pe_state *s, const char *what, const char *value)
{
    note_list *list = &s->p->notes[s->pe];
    list->items = grow(list->items, list->count, &list->room, sizeof *list->items);
    snprintf(list->items[list->count++].text, sizeof list->items->text, "%s %s", what, value);
}

static inline void note_number(pe_state *s, const char *what, double number)
{
    char text[32];
    snprintf(text, sizeof text, "%.17g", number);
    take_note(s, what, text);
}

/* ---- Shapes ------------------------------------------------------------------------------ */

static inline int64_t elements_of(const tl_dims *shape)
{
    int64_t n = 1;
    for (int i = 0; i < shape->rank; i++)
        n *= shape->dims[i];
    return n;
}

static inline int64_t bytes_of(const tl_dims *shape, kb_dtype dtype)
{
    return elements_of(shape) * (int64_t)kb_dtype_bytes(dtype);
}

static inline bool same_dims(const tl_dims *a, const tl_dims *b)
{
    return a->rank == b->rank && memcmp(a->dims, b->dims, (size_t)a->rank * sizeof a->dims[0]) == 0;
}

/* The shape that both are repeated to. */
static inline bool broadcast(const tl_dims *a, const tl_dims *b, tl_dims *out)
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

static inline tl_dims random_shape(pe_state *s)
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

static inline bool is_float(kb_dtype dtype)
{
    return dtype == KB_F16 || dtype == KB_BF16 || dtype == KB_F32;
}

/* The type in which two meet. */
static inline kb_dtype meet(kb_dtype a, kb_dtype b)
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

static inline void forget(pe_state *s, slot *v)
{
    if (!v->is_ref)
        s->live_bytes -= bytes_of(&v->shape, v->dtype);
    v->live = false;
}

static inline void drop(tl_context *tl, pe_state *s, slot *v)
{
    tl_free(v->t);
    forget(s, v);
}

static inline slot *random_slot(pe_state *s)
{
    int first = (int)below(&s->r, SLOTS);
    for (int i = 0; i < SLOTS; i++)
        if (s->slots[(first + i) % SLOTS].live)
            return &s->slots[(first + i) % SLOTS];
    return NULL;
}

/* Frees values until these bytes may be taken. */
static inline void make_room(tl_context *tl, pe_state *s, int64_t bytes)
{
    slot *v;
    while (s->live_bytes + bytes > s->max_bytes && (v = random_slot(s)) != NULL)
        drop(tl, s, v);
}

static inline slot *free_slot(pe_state *s)
{
    for (int i = 0; i < SLOTS; i++)
        if (!s->slots[i].live)
            return &s->slots[i];
    return NULL;
}

static inline slot *put(tl_context *tl, pe_state *s, tl_tensor t, tl_dims shape, kb_dtype dtype)
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

static inline slot *put_ref(tl_context *tl, pe_state *s, tl_tensor t, tl_dims shape, kb_dtype dtype)
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

static inline int64_t span_of(const tl_dims *shape, const tl_dims *strides)
{
    int64_t last = 0, packed = 1;
    for (int i = shape->rank; i-- > 0;) {
        last += (shape->dims[i] - 1) * (strides->rank ? strides->dims[i] : packed);
        packed *= shape->dims[i];
    }
    return last + 1;
}

static inline spot random_spot(pe_state *s, const tl_dims *shape, const tl_dims *strides,
                               bool writes)
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

static inline tl_dims random_strides(pe_state *s, const tl_dims *shape, bool writes)
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
static inline tl_tensor random_mask(tl_context *tl, pe_state *s, const tl_dims *shape)
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

#endif
