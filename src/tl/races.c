/*
 * races.c: what kernels touch, and what they know of others when they do.
 *
 * A kernel's place in the order is `reached`: the last point for which the pe_cpu has waited. An
 * operation on values that were received asynchronously comes after a point of its own besides,
 * which its result has too. The write side of the DMA takes its commands in order: so what waits
 * there passes its point on to the stores and sends behind it.
 *
 * Accesses of one line that continue each other, with nothing sent or received in between, are one.
 */
#include "races_private.h"

#include <stdlib.h>

static const race_limits limits = {
    .accesses = 1 << 22,
    .spans = 1 << 20,
    .window_bytes = 4096,
    .clock_numbers = 1 << 24, /* 64 MiB */
};

kb_error *tl_races_create(tl_runner *runner, tl_races **out)
{
    *out = NULL;
    if (!runner->order)
        runner->order = tl_order_create();
    tl_races *races = runner->order ? kb_alloc_zeroed(1, sizeof *races) : NULL;
    if (!races)
        return kb_error_nomem();
    *races = (tl_races){
        .runner = runner,
        .shape = topo_machine_shape(runner->has.machine),
        .order = runner->order,
        .users = 1,
        .limits = limits,
    };
    tl_order_retain(races->order);
    tl_order_open(races->order);
    *out = races;
    return NULL;
}

void tl_races_retain(tl_races *races)
{
    races->users++;
}

bool tl_races_is_last(const tl_races *races)
{
    return races->users == 1;
}

void tl_races_release(tl_races *races)
{
    if (!races || --races->users > 0)
        return;
    tl_order_close(races->order);
    tl_order_release(races->order);
    kb_vec_fini(&races->runs);
    kb_vec_fini(&races->accesses);
    free(races);
}

/* ---- Order between launches ---- */

static tl_point point_of(const tl_order *order, tl_mark mark)
{
    return mark >> 32 == order->generation ? (tl_point)mark : 0;
}

tl_mark tl_mark_join(tl_runner *runner, tl_mark a, tl_mark b)
{
    tl_order *order = runner ? runner->order : NULL; /* a context on its way out has no runner */
    if (!order)
        return 0;
    tl_point both = tl_order_join(order, point_of(order, a), point_of(order, b));
    return both != 0 ? tl_order_name(order, both) : 0;
}

size_t tl_races_points(const tl_races *races)
{
    return races->order->nodes.count;
}

size_t tl_races_accesses(const tl_races *races)
{
    return races->accesses.count;
}

/* What a thread does after this point comes after all that it did before. */
static tl_mark end_thread(tl_order *order, tl_point a, tl_point b, uint32_t thread, uint32_t sends)
{
    tl_point end = tl_order_send(order, a, b, thread, sends + 1);
    return end != 0 ? tl_order_name(order, end) : 0;
}

kb_error *tl_races_begin_copy(tl_races *races, const tl_copy *copy, uint32_t *number)
{
    race_run run = {
        .pe = copy->pe,
        .thread = ++races->order->threads,
        .launch = copy->label,
        .stream = copy->stream,
        .reached = point_of(races->order, copy->after),
    };
    *number = (uint32_t)races->runs.count;
    return kb_vec_push(&races->runs, run) ? NULL : kb_error_nomem();
}

tl_mark tl_races_end_copy(tl_races *races, uint32_t number)
{
    const race_run *run = &races->runs.items[number];
    return end_thread(races->order, run->reached, 0, run->thread, 0);
}

kb_error *tl_checked_begin(tl_context *tl)
{
    tl_races *races = tl->run.races;
    if (!races)
        return NULL;
    race_run run = {
        .pe = tl->run.pe,
        .thread = ++races->order->threads,
        .kernel = tl->run.kernel->name,
        .launch = tl->run.label,
        .stream = tl->run.stream,
        .scope = tl->run.scope,
        .number = tl->run.launch,
    };
    tl_mark after = tl->run.after ? tl->run.after(tl->run.self, tl->run.arg) : 0;
    tl->checked = (tl_checked){.run = (uint32_t)races->runs.count,
                               .thread = run.thread,
                               .reached = point_of(races->order, after)};
    return kb_vec_push(&races->runs, run) ? NULL : kb_error_nomem();
}

/* ---- Points ---- */

static tl_order *order_of(const tl_call *call)
{
    return call->tl->run.races->order;
}

static tl_point made(const tl_call *call, tl_point point)
{
    if (KB_UNLIKELY(order_of(call)->failed))
        tl_fail(call, kb_error_nomem());
    return point;
}

/* What the PE has not waited for already; 0: it has. */
static tl_point unless_acquired(const tl_order *order, tl_point point)
{
    return order->nodes.items[point].acquired ? 0 : point;
}

tl_point tl_join(const tl_call *call, tl_point a, tl_point b)
{
    if (KB_LIKELY((a | b) == 0))
        return 0;
    tl_order *order = order_of(call);
    return made(call, tl_order_join(order, unless_acquired(order, a), unless_acquired(order, b)));
}

void tl_acquire(const tl_call *call, tl_point point)
{
    tl_checked *checked = &call->tl->checked;
    if (KB_LIKELY(point == 0))
        return;
    tl_order *order = order_of(call);
    if (unless_acquired(order, point) == 0)
        return;
    bool follows = order->nodes.items[point].before[0] == checked->reached;
    checked->reached = follows ? point : tl_order_join(order, checked->reached, point);
    tl_order_acquire(order, checked->reached);
    tl_late_clean(&checked->late, order);
    (void)made(call, checked->reached);
}

tl_point tl_queue_write(const tl_call *call, tl_point after)
{
    tl_checked *checked = &call->tl->checked;
    if (KB_LIKELY((after | checked->writes) == 0))
        return 0;
    checked->writes = tl_join(call, checked->writes, after);
    return checked->writes;
}

uint64_t tl_checked_send(const tl_call *call, tl_point after)
{
    tl_context *tl = call->tl;
    if (!tl->run.races)
        return 0;
    tl_order *order = order_of(call);
    tl_point last = tl_queue_write(call, after);
    tl_point send = made(call, tl_order_send(order, tl->checked.reached, last, tl->checked.thread,
                                             ++tl->checked.sends));
    return tl_order_name(order, send);
}

tl_point tl_checked_receive(const tl_call *call)
{
    if (!call->tl->run.races)
        return 0;
    return made(call, tl_order_receive(order_of(call), call->tl->checked.reached));
}

void tl_checked_arrive(const tl_context *tl, tl_point receive, uint64_t message)
{
    if (tl->run.races)
        tl_order_arrive(tl->run.races->order, receive, message);
}

/* ---- Accesses ---- */

static tl_bytes bytes_of(const tl_races *races, const mem_rect *rect)
{
    bool is_run = rect->rows == 1 || rect->stride <= rect->bytes;
    return (tl_bytes){
        .memory = mem_memory_index(races->shape, &rect->at),
        .offset = rect->at.offset,
        .rows = is_run ? 1 : rect->rows,
        .stride = is_run ? 0 : rect->stride,
        .bytes = is_run ? mem_rect_end(rect) - rect->at.offset : rect->bytes,
    };
}

typedef struct conflicts {
    const tl_call *call;
    tl_point after;
} conflicts;

static void add_conflict(void *self, const tl_late_entry *entry)
{
    conflicts *c = self;
    c->after = tl_join(c->call, c->after, entry->after);
}

tl_point tl_after_conflicts(const tl_call *call, const pe_rects *rects, bool writes, tl_point after)
{
    tl_late *late = &call->tl->checked.late;
    if (KB_LIKELY(late->entries.count == 0))
        return after;
    conflicts c = {call, after};
    for (size_t i = 0; i < rects->count; i++) {
        if (mem_rect_bytes(&rects->items[i]) == 0)
            continue;
        tl_bytes at = bytes_of(call->tl->run.races, &rects->items[i]);
        tl_late_find(late, &at, writes, add_conflict, &c);
    }
    return c.after;
}

/* Whether all but the bytes is the same. */
static bool is_alike(const race_access *a, const race_access *b)
{
    return a->at.memory == b->at.memory && a->line == b->line && a->file == b->file &&
           a->call == b->call && a->reached == b->reached && a->after == b->after &&
           a->sends == b->sends && a->writes == b->writes && a->late == b->late && a->run == b->run;
}

/* Makes `more` a part of the bytes, if both together are one block. */
static bool absorb(tl_bytes *at, const tl_bytes *more)
{
    if (at->rows == 1 && more->rows == 1) {
        uint64_t end = tl_bytes_end(at), more_end = tl_bytes_end(more);
        if (more->offset < at->offset || more->offset > end)
            return false;
        at->bytes = (more_end > end ? more_end : end) - at->offset;
        return true;
    }
    if (at->rows == 1 || more->rows == 1 || at->stride != more->stride || at->bytes != more->bytes)
        return false;
    if (more->offset == at->offset && more->rows <= at->rows)
        return true;
    if (more->offset != at->offset + at->rows * at->stride)
        return false;
    at->rows += more->rows;
    return true;
}

static bool add_access(tl_races *races, tl_checked *checked, const race_access *access)
{
    uint32_t *recent = &checked->recent[(unsigned)access->line % TL_RECENT_ACCESSES];
    bool open = access->sends == RACE_OPEN; /* to be closed by itself: it is not merged */
    if (*recent != 0 && !open) {
        race_access *last = &races->accesses.items[*recent - 1];
        if (is_alike(last, access) && absorb(&last->at, &access->at))
            return true;
    }
    if (races->accesses.count >= races->limits.accesses) {
        races->cut_off = true;
        return true;
    }
    if (!kb_vec_push(&races->accesses, *access))
        return false;
    *recent = open ? 0 : (uint32_t)races->accesses.count;
    return true;
}

void tl_begin_open_accesses(tl_context *tl)
{
    if (tl->run.races)
        tl->first_open_access = tl->run.races->accesses.count;
}

void tl_name_open_accesses(const tl_call *call, pe_op op)
{
    tl_context *tl = call->tl;
    if (!tl->run.races || tl->run.races->accesses.count == tl->first_open_access)
        return;
    tl_open_accesses open = {op, tl->first_open_access, tl->run.races->accesses.count};
    if (!kb_vec_push(&tl->open_accesses, open))
        tl_fail(call, kb_error_nomem());
}

void tl_close_accesses(tl_context *tl, pe_op op)
{
    for (size_t i = 0; i < tl->open_accesses.count; i++) {
        tl_open_accesses open = tl->open_accesses.items[i];
        if (open.op != op)
            continue;
        race_access *all = tl->run.races->accesses.items;
        for (size_t k = open.first; k < open.end; k++)
            if (all[k].run == tl->checked.run) /* others ran while it was issued */
                all[k].sends = tl->checked.sends;
        tl->open_accesses.items[i] = tl->open_accesses.items[--tl->open_accesses.count];
        return;
    }
}

static void close_all(tl_context *tl)
{
    while (tl->open_accesses.count > 0)
        tl_close_accesses(tl, tl->open_accesses.items[0].op);
}

tl_mark tl_checked_end(tl_context *tl)
{
    const tl_checked *checked = &tl->checked;
    if (!tl->run.races)
        return 0;
    tl_order *order = tl->run.races->order;
    close_all(tl);
    /* Everything that waited for something has had it. */
    tl_point last = checked->writes;
    for (size_t i = 0; i < checked->late.entries.count; i++)
        last = tl_order_join(order, last, checked->late.entries.items[i].after);
    return end_thread(order, checked->reached, last, checked->thread, checked->sends);
}

kb_error *tl_races_add_copied(tl_races *races, uint32_t number, const kb_location *at,
                              uint64_t bytes, bool writes)
{
    const race_run *run = &races->runs.items[number];
    if (races->order->full || races->accesses.count >= races->limits.accesses)
        races->cut_off = true;
    if (races->cut_off || bytes == 0)
        return NULL;
    race_access access = {
        .at = {.memory = mem_memory_index(races->shape, at),
               .offset = at->offset,
               .rows = 1,
               .bytes = bytes},
        .tick = tl_order_tick(races->order),
        .time = kb_sim_now(races->runner->has.sim),
        .call = "copy",
        .run = number,
        .reached = run->reached,
        .writes = writes,
    };
    return kb_vec_push(&races->accesses, access) ? NULL : kb_error_nomem();
}

void tl_record_access(const tl_call *call, const tl_touch *touch)
{
    tl_context *tl = call->tl;
    tl_races *races = tl->run.races;
    if (!races)
        return;
    if (KB_UNLIKELY(races->order->full))
        races->cut_off = true;
    if (KB_UNLIKELY(races->cut_off))
        return;
    bool waits = touch->after != 0 && !touch->waited;
    race_access access = {
        .tick = tl_order_tick(races->order),
        .time = tl_clock(tl),
        .file = call->at.file,
        .call = call->name,
        .line = call->at.line,
        .run = tl->checked.run,
        .reached = tl->checked.reached,
        .after = touch->after,
        .sends = touch->open ? RACE_OPEN : tl->checked.sends,
        .writes = touch->writes,
        .late = waits && !touch->in_queue,
    };
    for (size_t i = 0; i < touch->rects->count; i++) {
        if (mem_rect_bytes(&touch->rects->items[i]) == 0)
            continue;
        access.at = bytes_of(races, &touch->rects->items[i]);
        tl_late_entry entry = {.at = access.at,
                               .after = touch->after,
                               .writes = touch->writes,
                               .in_queue = touch->in_queue};
        if (!add_access(races, &tl->checked, &access) ||
            (waits && !tl_late_add(&tl->checked.late, &entry)))
            tl_fail(call, kb_error_nomem());
    }
}
