/*
 * tcm_values.c: values and the TCM that they hold, handles, and scopes.
 *
 * A handle's number has the kernel, the slot in the kernel's table and how often the slot was used
 * before, so one that was freed, or is another kernel's, is never taken for another. Each handle is
 * in the list of its scope.
 *
 * A value fits if its bytes fit, in multiples of 64; it has no address. Its bytes are released when
 * its last handle is gone and the last command that makes or reads it has ended. That time may be
 * ahead of the kernel's clock, or not known yet. What is counted as held is therefore an upper
 * bound; only if a value does not fit are the releases up to the clock looked at, and if that is
 * not enough the kernel waits for the next one.
 *
 * Not modelled: fragmentation of the TCM by values.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tl_private.h"

enum {
    GENERATION_BITS = 24,
    KERNEL_BITS = 64 - TL_SLOT_BITS - GENERATION_BITS,
    TCM_LINE = 64, /* bytes that are held together: a row of lanes */
    MANY_RELEASES = 32,
};

/* ---- Shapes ---- */

kb_shape tl_shape_of(const tl_dims *shape)
{
    kb_shape is = {.rank = (uint32_t)shape->rank};
    for (int i = 0; i < shape->rank; i++)
        is.dims[i] = (uint64_t)shape->dims[i];
    return is;
}

/* ---- Values ---- */

static tl_value *new_record(const tl_call *call, kb_dtype dtype, uint64_t bytes)
{
    tl_runner *runner = call->tl->runner;
    tl_value *value = kb_slab_take(&runner->values);
    if (!value)
        tl_fail(call, kb_error_nomem());
    value->refs = 1; /* one by one: many are made, and clearing one first takes as long again */
    value->handles = value->commands = value->readers = 0;
    value->dtype = dtype;
    value->structural = value->has_place = false;
    value->read_by = 0;
    value->bytes = bytes;
    value->number = ++runner->value_count;
    value->ready = (pe_ready){.at = KB_FOREVER};
    value->read_until = 0;
    value->after = 0;
    value->data = NULL;
    KB_RING_PUSH(&call->tl->values, &value->link);
    return value;
}

/* ---- The TCM ---- */

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + TCM_LINE - 1) & ~(uint64_t)(TCM_LINE - 1);
}

static void report_tcm(const tl_context *tl)
{
    mem_memories_report_tcm(tl->runner->has.memories, tl->run.pe);
}

/* Releases what is due by then. */
static void collect_releases(tl_context *tl, kb_time by)
{
    size_t kept = 0;
    uint64_t bytes = 0;
    kb_time latest = 0;
    for (size_t i = 0; i < tl->releases.count; i++) {
        const tl_release *r = &tl->releases.items[i];
        if (r->at > by) {
            tl->releases.items[kept++] = *r;
            continue;
        }
        bytes += r->bytes;
        if (r->at >= latest)
            tl->space_by = r->by;
        latest = kb_max(latest, r->at);
    }
    tl->releases.count = kept;
    mem_allocator_release(tl->tcm, bytes);
    if (bytes > 0 && KB_UNLIKELY(tl->synchronous))
        report_tcm(tl);
}

void tl_collect_releases(tl_context *tl)
{
    collect_releases(tl, kb_sim_now(tl->runner->has.sim));
}

/* `by`: the record that ends then. */
static void release_bytes(tl_context *tl, uint64_t bytes, kb_time at, uint32_t by)
{
    /* What comes next for the kernel is not before its clock, and not before now. */
    kb_time clock = kb_max(tl_clock(tl), kb_sim_now(tl->runner->has.sim));
    if (at <= clock || !kb_vec_push(&tl->releases, ((tl_release){at, bytes, by}))) {
        mem_allocator_release(tl->tcm, bytes); /* without host memory for it: a little early */
        tl->space_by = by;
        if (KB_UNLIKELY(tl->synchronous))
            report_tcm(tl);
        return;
    }
    if (KB_UNLIKELY(tl->synchronous))
        tl_schedule_release(tl, at);
    else if (tl->releases.count > MANY_RELEASES)
        collect_releases(tl, clock);
}

/* Of the TCM: what will be released without the kernel's doing, and what will not. */
typedef struct holdings {
    uint64_t passing, staying;
} holdings;

static holdings what_is_held(const tl_context *tl)
{
    holdings held = {0, 0};
    for (size_t i = 0; i < tl->releases.count; i++)
        held.passing += tl->releases.items[i].bytes;
    for (const tl_link *link = tl->values.next; link != &tl->values; link = link->next) {
        const tl_value *value = (const tl_value *)link;
        if (value->has_place && value->refs == value->commands)
            held.passing += value->bytes;
        else if (value->has_place)
            held.staying += value->bytes;
    }
    return held;
}

static kb_time next_release(const tl_context *tl)
{
    kb_time next = KB_FOREVER;
    for (size_t i = 0; i < tl->releases.count; i++)
        if (tl->releases.items[i].at < next)
            next = tl->releases.items[i].at;
    return next;
}

/* What could be done about a value that does not fit. */
static KB_NORETURN void fault_exhausted(const tl_call *call, uint64_t bytes, uint64_t staying)
{
    const tl_context *tl = call->tl;
    kb_error *err =
        mem_memories_tcm_exhausted(tl->runner->has.memories, tl->run.pe, round_up(bytes));
    if (staying > 0) {
        kb_error *explained = kb_error_new(KB_ERR_FAULT,
                                           "%s; values of this kernel hold %" PRIu64 " bytes: "
                                           "release them with tl_free or TL_SCOPE",
                                           kb_error_message(err), staying);
        kb_error_free(err);
        err = explained;
    }
    tl_fail(call, err);
}

static __attribute__((noinline)) void wait_for_tcm(const tl_call *call, uint64_t bytes)
{
    tl_context *tl = call->tl;
    uint64_t needed = round_up(bytes);
    collect_releases(tl, tl_clock(tl));
    if (mem_allocator_hold(tl->tcm, needed))
        return;
    tl_synchronise(tl);
    kb_time asked = tl_clock(tl);
    for (;;) {
        tl_collect_releases(tl);
        if (mem_allocator_hold(tl->tcm, needed)) {
            tl_explain_clock(tl, asked, KB_REASON_SPACE, tl->space_by);
            return;
        }
        holdings held = what_is_held(tl);
        if (held.passing == 0)
            fault_exhausted(call, bytes, held.staying);
        tl_wait_for_progress(call, next_release(tl));
    }
}

static void take_tcm(const tl_call *call, tl_value *value)
{
    tl_context *tl = call->tl;
    if (KB_UNLIKELY(!mem_allocator_hold(tl->tcm, round_up(value->bytes))))
        wait_for_tcm(call, value->bytes);
    value->has_place = true;
    if (KB_UNLIKELY(tl->synchronous))
        report_tcm(tl);
}

tl_value *tl_value_new(const tl_call *call, kb_dtype dtype, const tl_dims *shape)
{
    tl_value *value = new_record(call, dtype, tl_elements(shape) * kb_dtype_bytes(dtype));
    tl_value_take_place(call, value);
    return value;
}

void tl_value_take_place(const tl_call *call, tl_value *value)
{
    if (value->bytes > 0)
        take_tcm(call, value);
}

tl_value *tl_value_in_place_of(const tl_call *call, tl_value *other)
{
    tl_value *value = new_record(call, other->dtype, other->bytes);
    value->has_place = other->has_place;
    other->has_place = false;
    return value;
}

void tl_value_retain(tl_value *value)
{
    value->refs++;
}

static void destroy_value(tl_context *tl, tl_value *value)
{
    if (value->has_place) {
        kb_time at = value->read_until;
        uint32_t by = value->read_by;
        if (value->ready.at != KB_FOREVER && value->ready.at > at) {
            at = value->ready.at;
            by = value->ready.id;
        }
        release_bytes(tl, round_up(value->bytes), at, by);
    }
    if (value->data)
        data_release(tl->runner->has.store, value->data);
    KB_RING_REMOVE(&value->link);
    kb_slab_give(&tl->runner->values, value);
}

void tl_value_release(tl_context *tl, tl_value *value)
{
    KB_DEBUG_ASSERT(value->refs > 0); /* K4 */
    if (--value->refs == 0)
        destroy_value(tl, value);
}

/* ---- Handles ---- */

/* Never 0, and never such that a handle's number would be that of plain numbers. */
static uint64_t kernel_bits(const tl_context *tl)
{
    return (tl->kernel % ((1u << KERNEL_BITS) - 2) + 1) << (TL_SLOT_BITS + GENERATION_BITS);
}

static void enter_scope(tl_context *tl, uint32_t slot, uint32_t scope)
{
    tl_handle *handle = &tl->handles.items[slot];
    uint32_t *first = &tl->scopes.items[scope].first;
    handle->scope = scope;
    handle->prev = 0;
    handle->next = *first;
    if (*first)
        tl->handles.items[*first - 1].prev = slot + 1;
    *first = slot + 1;
}

static void leave_scope(tl_context *tl, tl_handle *handle)
{
    if (handle->next)
        tl->handles.items[handle->next - 1].prev = handle->prev;
    if (handle->prev)
        tl->handles.items[handle->prev - 1].next = handle->next;
    else
        tl->scopes.items[handle->scope].first = handle->next;
}

static uint32_t take_slot(const tl_call *call)
{
    tl_context *tl = call->tl;
    if (tl->free_handle) {
        uint32_t slot = tl->free_handle - 1;
        tl->free_handle = tl->handles.items[slot].next;
        return slot;
    }
    if (tl->handles.count == TL_MAX_HANDLES)
        tl_fault(call, "too many live values: the maximum is %d", TL_MAX_HANDLES);
    if (!kb_vec_push(&tl->handles, (tl_handle){0}))
        tl_fail(call, kb_error_nomem());
    return (uint32_t)tl->handles.count - 1;
}

/* A slot with a number of its own, in the innermost scope. */
static tl_handle *open_handle(const tl_call *call)
{
    tl_context *tl = call->tl;
    uint32_t slot = take_slot(call);
    tl_handle *handle = &tl->handles.items[slot];
    handle->generation = (handle->generation + 1) & ((1u << GENERATION_BITS) - 1);
    handle->id = tl->handle_bits | (uint64_t)handle->generation << TL_SLOT_BITS | slot;
    enter_scope(tl, slot, (uint32_t)tl->scopes.count - 1);
    return handle;
}

tl_tensor tl_handle_new(const tl_call *call, const tl_handle *place)
{
    KB_ASSERT(!place->value);
    tl_handle *handle = open_handle(call);
    handle->value = NULL;
    handle->first = 0;
    handle->dtype = place->dtype;
    handle->shape = place->shape;
    handle->ptr = place->ptr;
    handle->strides = place->strides;
    handle->filled = place->filled;
    handle->after = place->after;
    handle->reinterpret = place->reinterpret;
    return (tl_tensor){.id = handle->id};
}

tl_tensor tl_handle_of(const tl_call *call, tl_value *value, const tl_dims *shape)
{
    tl_handle *handle = open_handle(call);
    handle->value = value;
    handle->first = 0;
    handle->dtype = value->dtype;
    handle->shape = *shape;
    handle->elements = tl_elements(shape);
    value->handles++;
    return (tl_tensor){.id = handle->id};
}

void tl_handle_drop(tl_context *tl, tl_handle *handle, tl_end end)
{
    tl_value *value = handle->value;
    leave_scope(tl, handle);
    handle->id = 0;
    handle->value = NULL;
    handle->end = end;
    handle->next = tl->free_handle;
    tl->free_handle = (uint32_t)(handle - tl->handles.items) + 1;
    if (value) {
        value->handles--;
        tl_value_release(tl, value);
    }
}

void tl_handle_move(tl_context *tl, tl_handle *handle, uint32_t scope)
{
    leave_scope(tl, handle);
    enter_scope(tl, (uint32_t)(handle - tl->handles.items), scope);
}

/* What freed it is known until its slot is used again. */
static KB_NORETURN void fault_freed(const tl_call *call, uint64_t id)
{
    const tl_context *tl = call->tl;
    uint64_t slot = id & (TL_MAX_HANDLES - 1);
    uint64_t generation = id >> TL_SLOT_BITS & ((1u << GENERATION_BITS) - 1);
    const tl_handle *handle = slot < tl->handles.count ? &tl->handles.items[slot] : NULL;
    if (handle && handle->id == 0 && handle->generation == generation)
        tl_fault(call, "use of a value that was freed %s at %s:%d", handle->end.how,
                 tl_without_folders(handle->end.at.file), handle->end.at.line);
    tl_fault(call, "use of a freed value: freed by tl_free, as .acc of tl_dot, by tl_assign, "
                   "or at the end of its TL_SCOPE");
}

void tl_fault_not_there(const tl_call *call, tl_tensor tensor)
{
    if (tensor.id == 0)
        tl_fault(call, "invalid operand: not a tensor");
    if (tl_is_number(tensor))
        tl_fault(call, "expected a tensor, found a plain number: make it a tensor with tl_full");
    uint64_t kernel = ~(uint64_t)0 << (TL_SLOT_BITS + GENERATION_BITS);
    if ((tensor.id & kernel) != call->tl->handle_bits)
        tl_fault(call, "the value belongs to another kernel or PE");
    fault_freed(call, tensor.id);
}

void tl_describe(const tl_context *tl, tl_tensor x, tl_dims *shape, kb_dtype *dtype)
{
    const tl_handle *handle = &tl->handles.items[x.id & (TL_MAX_HANDLES - 1)];
    KB_ASSERT(handle->id == x.id);
    *shape = handle->shape;
    *dtype = handle->dtype;
}

tl_tensor tl_value_of_bytes(tl_context *tl, tl_srcloc at, tl_dims shape, kb_dtype dtype,
                            const void *bytes)
{
    tl_call call = tl_enter(tl, at, "TensorHandle");
    tl_check_dtype(&call, dtype);
    (void)tl_check_shape(&call, &shape);
    kb_shape form = tl_shape_of(&shape);
    tl_value *value = tl_value_new(&call, dtype, &shape);
    value->ready.at = tl_clock(tl);
    if (!tl->runner->has.timing_only)
        tl_check(&call, data_of_bytes(tl->runner->has.store, dtype, &form, bytes, &value->data));
    return tl_handle_of(&call, value, &shape);
}

uint64_t tl_kernel_bits(const tl_context *tl)
{
    return tl->handle_bits;
}

tl_operand tl_take_other(const tl_call *call, tl_tensor tensor)
{
    tl_context *tl = call->tl;
    if (tl_is_number(tensor))
        return (tl_operand){.dtype = KB_F32, .elements = 1, .number = tensor.number};
    tl_handle place = *tl_handle_find(call, tensor);
    tl_value *value = tl_load_place(call, &place, NULL, 0);
    KB_ASSERT(tl->temporary_count < TL_MAX_INPUTS);
    tl->temporaries[tl->temporary_count++] = value;
    return (tl_operand){.value = value,
                        .dtype = place.dtype,
                        .shape = place.shape,
                        .elements = tl_elements(&place.shape)};
}

void tl_release_temporaries(tl_context *tl)
{
    while (tl->temporary_count > 0)
        tl_value_release(tl, tl->temporaries[--tl->temporary_count]);
}

/* ---- Freeing ---- */

void tl_free_(tl_context *tl, tl_srcloc at, tl_tensor x)
{
    tl_call call = tl_enter(tl, at, "tl_free");
    if (!tl_is_number(x))
        tl_handle_drop(tl, tl_handle_find(&call, x), (tl_end){"by tl_free", at});
}

tl_scope tl_scope_begin_(tl_context *tl, tl_srcloc at)
{
    tl_call call = tl_enter(tl, at, "TL_SCOPE");
    if (!kb_vec_push(&tl->scopes, ((tl_scope_of_kernel){.at = at})))
        tl_fail(&call, kb_error_nomem());
    return (tl_scope){.tl = tl, .open = true};
}

void tl_scope_end_(tl_scope *scope)
{
    tl_context *tl = scope->tl;
    uint32_t depth = (uint32_t)tl->scopes.count - 1;
    KB_ASSERT(depth > 0);
    tl_end end = {"at the end of the TL_SCOPE", tl->scopes.items[depth].at};
    while (tl->scopes.items[depth].first)
        tl_handle_drop(tl, &tl->handles.items[tl->scopes.items[depth].first - 1], end);
    tl->scopes.count--;
}

void tl_assign_(tl_context *tl, tl_srcloc at, tl_tensor *variable, tl_tensor value)
{
    tl_call call = tl_enter(tl, at, "tl_assign");
    tl_handle *old = tl_handle_look_up(tl, variable->id);
    tl_handle *taken = tl_is_number(value) ? NULL : tl_handle_find(&call, value);
    if (old && old == taken)
        return;
    /* A variable that has no tensor yet is one of the scope around this one; one whose tensor is
     * used up (.acc) has given its scope away already. */
    uint32_t scope = (uint32_t)tl->scopes.count - 1;
    if (old)
        scope = old->scope;
    else if ((variable->id == 0 || tl_is_number(*variable)) && scope > 0)
        scope--;
    if (old)
        tl_handle_drop(tl, old, (tl_end){"by tl_assign", at});
    if (taken && scope < taken->scope)
        tl_handle_move(tl, taken, scope);
    *variable = value;
}

/* ---- All of a kernel ---- */

kb_error *tl_context_init(tl_context *tl)
{
    tl->handle_bits = kernel_bits(tl);
    KB_RING_INIT(&tl->values);
    KB_RING_INIT(&tl->commands);
    KB_RING_INIT(&tl->held_up);
    KB_RING_INIT(&tl->receives);
    kb_waitlist_init(&tl->arrivals, "a message from another PE");
    tl->tcm = mem_memories_tcm(tl->runner->has.memories, tl->run.pe);
    if (!tl->tcm)
        return kb_error_nomem();
    return kb_vec_push(&tl->scopes, (tl_scope_of_kernel){0}) ? NULL : kb_error_nomem();
}

void tl_context_fini(tl_context *tl)
{
    tl_forget_receives(tl);
    while (tl->held_up.next != &tl->held_up)
        tl_command_destroy((tl_command *)tl->held_up.next);
    while (tl->commands.next != &tl->commands)
        tl_command_destroy((tl_command *)tl->commands.next);
    while (tl->values.next != &tl->values)
        destroy_value(tl, (tl_value *)tl->values.next);
    if (tl->tcm)
        collect_releases(tl, KB_FOREVER);
    kb_vec_fini(&tl->releases);
    data_release(tl->runner->has.store, tl->mask);
    for (int i = 0; i < TL_MATRICES; i++)
        kb_vec_fini(&tl->rects[i]);
    tl_late_fini(&tl->checked.late);
    kb_vec_fini(&tl->scopes);
    kb_vec_fini(&tl->handles);
    kb_error_free(tl->error);
    kb_error_free(tl->failure);
    kb_error_free(tl->failing);
}
