/*
 * choices_kernel.h: a kernel that makes random operations: an interpreter of choices, which each PE
 * draws by itself, and of the messages that the plan has for it.
 */
#ifndef RANDOM_KERNELS_KERNEL_H
#define RANDOM_KERNELS_KERNEL_H

#include "operations.h"

/* ---- Messages ---------------------------------------------------------------------------- */

static inline tl_dims message_shape(const event *e)
{
    return e->elements % 4 == 0 && e->elements > 0 ? tl_shape(4, e->elements / 4)
                                                   : tl_shape(e->elements);
}

/* A value of the shape: one that is there, which may have come as a message, or a new one. */
static inline slot *make_message(tl_context *tl, pe_state *s, const event *e)
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

static inline void send(tl_context *tl, pe_state *s, const event *e)
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

static inline void receive(tl_context *tl, pe_state *s, const event *e)
{
    const char *direction = s->p->sets[s->launch->set].edges[e->edge].recv;
    tl_dims shape = message_shape(e);
    if (s->expects_another)
        shape = tl_shape(e->elements + 1);
    make_room(tl, s, bytes_of(&shape, e->dtype));
    if (one_in(&s->r, 16))
        note_number(s, "can receive", tl_can_recv(direction));
    if (s->p->any[s->pe])
        direction = TL_ANY;
    tl_ptr dst = 0;
    if (e->elements > 0 && one_in(&s->r, 4))
        dst = s->part[e->dtype == KB_F16 ? T_F16 : T_F32];
    tl_tensor t;
    if (one_in(&s->r, 4) || s->expects_another) {
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

static inline void post(tl_context *tl, pe_state *s, const event *e)
{
    posted_list *posted = &s->posted;
    const char *direction = s->p->sets[s->launch->set].edges[e->edge].recv;
    make_room(tl, s, bytes_of(&(tl_dims){1, {e->elements}}, e->dtype));
    tl_tensor t = tl_recv_async(s->p->any[s->pe] ? TL_ANY : direction, message_shape(e), e->dtype);
    posted->items[posted->end % MAX_POSTED].t = t;
    posted->items[posted->end++ % MAX_POSTED].depth = s->depth;
}

static inline void take(tl_context *tl, pe_state *s, const event *e)
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

static inline void fail(tl_context *tl, pe_state *s)
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

/* What is wrong shows later: in the numbers of an index, or in the message that comes. */
static inline void fail_later(tl_context *tl, pe_state *s)
{
    if (one_in(&s->r, 2)) {
        s->expects_another = true;
        return;
    }
    tl_tensor x = tl_zeros(tl_shape(4), TL_F32);
    tl_tensor index = tl_load(s->part[T_F32], tl_shape(64), TL_I32, .reinterpret = true);
    put(tl, s, tl_gather(x, index, 0), tl_shape(64), TL_F32);
}

static inline void fail_if_planned(tl_context *tl, pe_state *s)
{
    if (s->launch->fault_at[s->pe] != s->step)
        return;
    if (has(s->p, LATE_FAULTS))
        fail_later(tl, s);
    else
        fail(tl, s);
}

/* ---- Programs ---------------------------------------------------------------------------- */

/* A value of this scope takes the place of one of a scope around it. */
static inline void assign(tl_context *tl, pe_state *s)
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

static inline void make_operation(tl_context *tl, pe_state *s)
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
                 {COMPOSITE, 3, composite},
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
static inline void exchange(tl_context *tl, pe_state *s)
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
static inline void end_scope(pe_state *s)
{
    for (int i = 0; i < SLOTS; i++)
        if (s->slots[i].live && s->slots[i].depth > s->depth)
            forget(s, &s->slots[i]);
    for (int i = s->posted.first; i < s->posted.end; i++)
        if (s->posted.items[i % MAX_POSTED].depth > s->depth)
            s->posted.items[i % MAX_POSTED].depth = -1;
}

static inline void run_steps(tl_context *tl, pe_state *s, int until)
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
        fail_if_planned(tl, s);
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

static inline void run_program(tl_context *tl, void *arg)
{
    pe_state *s = arg;
    run_steps(tl, s, s->launch->steps);
    fail_if_planned(tl, s);
    exchange(tl, s);
}

/* Whose addresses the kernel was given, of the devices that it may run on. */
static inline int find_sip(const program *p, uint64_t va)
{
    for (int sip = 0; sip < p->sips; sip++)
        if (p->va[T_F16][sip] == va)
            return sip;
    return -1;
}

static inline void find_parts(pe_state *s, int sip, int of_sip)
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
