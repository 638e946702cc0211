/*
 * activity.c: what a report shows of a run over its time: see activity.h.
 *
 * Links are sampled when an operation ends, at most once a bin; what they carried since the last
 * sample is spread evenly over the time since then. States are exact.
 */
#include "activity.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "trace_slice.h"

enum {
    MAX_PES_WITH_UNITS = 1024, /* more PEs have lanes for states and kernels alone */
    MAX_PES_SHOWN = 8192,
    TITLES = 0 /* the kind of texts */
};

activity_group obs_activity_group(kb_cause cause)
{
    kb_time_sum causes[KB_CAUSES] = {0};
    causes[cause] = 1;
    kb_split_time split = kb_split_causes(causes);
    return split.compute         ? ACTIVITY_COMPUTE
           : split.memory        ? ACTIVITY_MEMORY
           : split.communication ? ACTIVITY_COMMUNICATION
                                 : ACTIVITY_IDLE;
}

const char *activity_unit_name(activity_unit unit)
{
    static const char *const names[ACTIVITY_UNITS] = {
        [ACTIVITY_STATE] = "state",         [ACTIVITY_KERNEL] = "kernel",
        [ACTIVITY_GEMM] = "pe_gemm",        [ACTIVITY_MATH] = "pe_math",
        [ACTIVITY_DMA_READ] = "dma read",   [ACTIVITY_DMA_WRITE] = "dma write",
        [ACTIVITY_SCHEDULER] = "scheduler", [ACTIVITY_WAIT] = "queue wait",
    };
    return names[unit];
}

/* ---- Links ------------------------------------------------------------------------------- */

static void sample(obs_activity *a)
{
    kb_time now = a->sample(a->self, a->sampled);
    kb_time start = a->sampled_at < now ? a->sampled_at : now;
    for (size_t i = 0; i < a->links.rows; i++) {
        if (a->sampled[i] <= a->totals[i])
            continue;
        if (!obs_spread_add(&a->links, i, start, now, a->sampled[i] - a->totals[i]))
            a->failed = true;
        a->totals[i] = a->sampled[i];
    }
    a->sampled_at = now;
}

static void note_time(obs_activity *a, kb_time time)
{
    if (time <= a->end)
        return;
    a->end = time;
    if (time - a->sampled_at >= a->links.width)
        sample(a);
}

/* ---- Texts ------------------------------------------------------------------------------- */

static uint32_t number_of(obs_activity *a, const char *text)
{
    bool fresh;
    uint32_t number = intern_text(&a->texts, TITLES, text, &fresh);
    a->failed = a->failed || number == 0;
    return number;
}

/* With too many different titles, operations are called by their names alone. */
static uint32_t title_of(obs_activity *a, const kb_op *op)
{
    if (intern_is_large(&a->texts))
        return number_of(a, op->name);
    kb_text title = KB_TEXT_INIT;
    obs_compose_title(op, &title);
    a->failed = a->failed || title.failed;
    uint32_t number = number_of(a, kb_text_peek(&title));
    kb_text_fini(&title);
    return number;
}

/* "attention.c:17"; 0 if it has none. */
static uint32_t place_of(obs_activity *a, const kb_op *op)
{
    if (!op->file || intern_is_large(&a->texts))
        return 0;
    kb_text place = KB_TEXT_INIT;
    const char *slash = strrchr(op->file, '/');
    kb_text_printf(&place, "%s:%d", slash ? slash + 1 : op->file, op->line);
    uint32_t number = number_of(a, kb_text_peek(&place));
    kb_text_fini(&place);
    return number;
}

void obs_activity_each_text(const obs_activity *a,
                            void (*each)(void *self, uint32_t number, const char *text), void *self)
{
    for (size_t i = 0; i < a->texts.size; i++)
        if (a->texts.entries[i].text)
            each(self, a->texts.entries[i].number, a->texts.entries[i].text);
}

/* ---- Operations -------------------------------------------------------------------------- */

/* Returns ACTIVITY_UNITS for what has no lane. */
static activity_unit unit_of(const kb_op *op)
{
    switch (op->unit) {
    case KB_UNIT_GEMM:
        return ACTIVITY_GEMM;
    case KB_UNIT_MATH:
        return ACTIVITY_MATH;
    case KB_UNIT_DMA_READ:
        return ACTIVITY_DMA_READ;
    case KB_UNIT_DMA_WRITE:
        return ACTIVITY_DMA_WRITE;
    case KB_UNIT_SCHEDULER:
        return ACTIVITY_SCHEDULER;
    case KB_UNIT_IPCQ:
        return obs_is_wait(op) ? ACTIVITY_WAIT : ACTIVITY_UNITS;
    default:
        return obs_is_kernel(op) ? ACTIVITY_KERNEL : ACTIVITY_UNITS;
    }
}

static void add_slice(obs_activity *a, size_t lane, const timeline_slice *slice)
{
    if (!timeline_add(&a->timeline, lane, slice))
        a->failed = true;
}

/* The lane of a PE's unit; false if it has none. */
static bool find_lane(const obs_activity *a, uint64_t pe, activity_unit unit, size_t *lane)
{
    *lane = 1 + pe * a->lanes_per_pe + unit;
    return pe < a->shown_pes && unit < a->lanes_per_pe;
}

static activity_kernel *find_kernel(obs_activity *a, uint32_t title)
{
    for (size_t i = a->kernels.count; i > 0; i--)
        if (a->kernels.items[i - 1].title == title)
            return &a->kernels.items[i - 1];
    if (kb_vec_push(&a->kernels, ((activity_kernel){.title = title})))
        return &a->kernels.items[a->kernels.count - 1];
    a->failed = true;
    return NULL;
}

/* The work of launches by name. A kernel's own time is known when it ends. */
static void add_work(obs_activity *a, const kb_op *op, activity_unit unit)
{
    bool moves = unit == ACTIVITY_DMA_READ || unit == ACTIVITY_DMA_WRITE;
    if (op->launch == 0 || (unit != ACTIVITY_KERNEL && unit != ACTIVITY_GEMM && !moves))
        return;
    activity_kernel *kernel = find_kernel(a, number_of(a, op->label[0] ? op->label : "kernel"));
    if (!kernel)
        return;
    if (unit == ACTIVITY_KERNEL) {
        kernel->runs++;
        kernel->time += (kb_time_sum)(op->end - op->start);
    } else if (unit == ACTIVITY_GEMM) {
        kernel->flops += op->flops;
    } else {
        kernel->bytes += op->bytes;
    }
}

static activity_wait *find_wait(obs_activity *a, uint32_t title)
{
    for (size_t i = 0; i < a->waits.count; i++)
        if (a->waits.items[i].title == title)
            return &a->waits.items[i];
    if (kb_vec_push(&a->waits, ((activity_wait){.title = title})))
        return &a->waits.items[a->waits.count - 1];
    a->failed = true;
    return NULL;
}

static void add_wait(obs_activity *a, const kb_op *op, uint64_t pe, uint32_t title)
{
    activity_wait *wait = find_wait(a, title);
    kb_time time = op->end - op->start;
    if (!wait || time == 0)
        return;
    wait->count++;
    wait->time += (kb_time_sum)time;
    a->wait_of_pe[pe] = kb_time_add(a->wait_of_pe[pe], time);
    if (time > wait->longest) {
        wait->longest = time;
        wait->longest_pe = pe;
    }
}

void obs_activity_op(obs_activity *a, const kb_op *op)
{
    note_time(a, op->end);
    a->ops++;
    timeline_slice slice = {
        .start = op->start,
        .end = op->end,
        .busy = op->end - op->start,
        .longest = op->end - op->start,
        .count = 1,
    };
    if (op->unit == KB_UNIT_HOST) {
        slice.title = title_of(a, op);
        add_slice(a, 0, &slice);
        return;
    }
    activity_unit unit = unit_of(op);
    if (unit == ACTIVITY_UNITS)
        return;
    uint64_t pe = topo_pe_index(a->shape, op->pe);
    size_t lane;
    add_work(a, op, unit);
    bool shown = find_lane(a, pe, unit, &lane);
    if (shown || unit == ACTIVITY_WAIT)
        slice.title = title_of(a, op);
    if (unit == ACTIVITY_WAIT)
        add_wait(a, op, pe, slice.title);
    slice.place = shown ? place_of(a, op) : 0;
    if (shown)
        add_slice(a, lane, &slice);
}

void obs_activity_state(obs_activity *a, uint64_t pe, kb_cause cause, kb_time start, kb_time end)
{
    activity_group group = obs_activity_group(cause);
    size_t lane;
    if (!obs_spread_add(&a->pes, pe * ACTIVITY_GROUPS + group, start, end, (uint64_t)(end - start)))
        a->failed = true;
    if (!find_lane(a, pe, ACTIVITY_STATE, &lane))
        return;
    add_slice(a, lane,
              &(timeline_slice){
                  .start = start,
                  .end = end,
                  .busy = end - start,
                  .longest = end - start,
                  .title = number_of(a, kb_cause_name(cause)),
                  .count = 1,
                  .group = group,
              });
}

/* ---- Begin and end ----------------------------------------------------------------------- */

void obs_activity_destroy(obs_activity *a)
{
    if (!a)
        return;
    obs_spread_fini(&a->links);
    obs_spread_fini(&a->pes);
    timeline_fini(&a->timeline);
    intern_fini(&a->texts);
    kb_vec_fini(&a->kernels);
    kb_vec_fini(&a->waits);
    free(a->wait_of_pe);
    free(a->totals);
    free(a->sampled);
    free(a);
}

static kb_error *init(obs_activity *a)
{
    size_t links = topo_machine_graph(a->machine)->links.count;
    uint64_t pes = a->shape->pe_count;
    a->shown_pes = pes < MAX_PES_SHOWN ? pes : MAX_PES_SHOWN;
    a->lanes_per_pe = pes > MAX_PES_WITH_UNITS ? ACTIVITY_KERNEL + 1 : ACTIVITY_UNITS;
    a->totals = kb_alloc_zeroed(links, sizeof *a->totals);
    a->sampled = kb_alloc_zeroed(links, sizeof *a->sampled);
    a->wait_of_pe = kb_alloc_zeroed(pes, sizeof *a->wait_of_pe);
    if (!a->totals || !a->sampled || !a->wait_of_pe)
        return kb_error_nomem();
    KB_TRY(obs_spread_init(&a->links, links, KB_NS));
    KB_TRY(obs_spread_init(&a->pes, pes * ACTIVITY_GROUPS, KB_NS));
    return timeline_init(&a->timeline, 1 + a->shown_pes * a->lanes_per_pe);
}

kb_error *obs_activity_create(const topo_machine *machine, obs_links_fn *fn, void *self,
                              obs_activity **out)
{
    *out = NULL;
    obs_activity *a = kb_alloc_zeroed(1, sizeof *a);
    if (!a)
        return kb_error_nomem();
    a->machine = machine;
    a->shape = topo_machine_shape(machine);
    a->sample = fn;
    a->self = self;
    kb_error *err = init(a);
    if (err) {
        obs_activity_destroy(a);
        return err;
    }
    *out = a;
    return NULL;
}

kb_error *obs_activity_finish(obs_activity *a)
{
    sample(a);
    a->end = a->sampled_at > a->end ? a->sampled_at : a->end;
    return a->failed ? kb_error_nomem() : NULL;
}
