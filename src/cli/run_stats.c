/*
 * run_stats.c: statistics of a run, collected from its context at the end.
 *
 * The time of the run is divided by cause, and the parts add up to it: while kernels run, by the
 * causes of the participating PEs, on average; while no kernel runs, by what is in progress:
 * launches, else copies, else nothing.
 */
#include "run.h"

#include <stdlib.h>
#include <string.h>

/* ---- Time by cause ----------------------------------------------------------------------- */

run_group run_group_of(int cause)
{
    if (cause == RUN_NOTHING)
        return RUN_IDLE;
    if (cause >= KB_CAUSES)
        return RUN_COMMUNICATION;
    kb_time_sum one[KB_CAUSES] = {0};
    one[cause] = 1;
    kb_split_time split = kb_split_causes(one);
    return split.compute         ? RUN_COMPUTE
           : split.memory        ? RUN_MEMORY
           : split.communication ? RUN_COMMUNICATION
                                 : RUN_IDLE;
}

const char *run_cause_key(int cause)
{
    switch (cause) {
    case RUN_LAUNCHES:
        return "no_kernel_launch";
    case RUN_REQUESTS:
        return "no_kernel_request";
    case RUN_NOTHING:
        return "no_kernel_idle";
    default:
        return kb_cause_name((kb_cause)cause);
    }
}

const char *run_cause_label(int cause)
{
    static const char *const labels[RUN_CAUSES] = {
        [KB_CAUSE_MATRIX] = "matrix engine busy",
        [KB_CAUSE_VECTOR] = "vector engine busy",
        [KB_CAUSE_MATRIX_DRAIN] = "matrix pipeline draining",
        [KB_CAUSE_LOCAL_MEMORY] = "stalled on local memory",
        [KB_CAUSE_TCM] = "stalled on TCM",
        [KB_CAUSE_CUBE_PES] = "waiting for other PEs of the cube",
        [KB_CAUSE_OTHER_CUBES] = "waiting for other cubes",
        [KB_CAUSE_OTHER_SIPS] = "waiting for other SIPs",
        [KB_CAUSE_MESSAGE] = "waiting for messages",
        [KB_CAUSE_CREDIT] = "waiting for credits",
        [KB_CAUSE_LAUNCH] = "waiting for a launch, other PEs run",
        [KB_CAUSE_ISSUE] = "issuing commands",
        [KB_CAUSE_IMBALANCE] = "no kernel, other PEs run",
        [RUN_LAUNCHES] = "launches under way, no kernel runs",
        [RUN_REQUESTS] = "host requests under way, no kernel runs",
        [RUN_NOTHING] = "nothing under way",
    };
    return labels[cause];
}

size_t run_sort_causes(const kb_time_sum *causes, int count, int *order)
{
    size_t sorted = 0;
    for (int c = 0; c < count; c++) {
        if (causes[c] <= 0)
            continue;
        size_t at = sorted++;
        for (; at > 0 && causes[order[at - 1]] < causes[c]; at--)
            order[at] = order[at - 1];
        order[at] = c;
    }
    return sorted;
}

static void split_time(run_stats *s, kb_oplog *log)
{
    s->timeline = kb_oplog_timeline(log);
    const kb_timeline *t = &s->timeline;
    s->pes = t->pes;
    /* Causes add up to pes * kernels; the parts to kernels, rounded as kb_divide_time() does. */
    kb_time_sum before = 0;
    kb_time given = 0;
    for (int c = 0; c < KB_CAUSES && t->pes > 0; c++) {
        before += t->causes[c];
        kb_time up_to = (kb_time)(before / (kb_time_sum)t->pes);
        s->causes[c] = up_to - given;
        given = up_to;
    }
    s->causes[RUN_LAUNCHES] = t->launching;
    s->causes[RUN_REQUESTS] = t->requesting;
    s->causes[RUN_NOTHING] = t->idle;
    kb_time_sum groups[RUN_GROUPS] = {0};
    for (int c = 0; c < RUN_CAUSES; c++)
        groups[run_group_of(c)] += s->causes[c];
    s->split = (kb_split_time){groups[RUN_COMPUTE], groups[RUN_MEMORY], groups[RUN_COMMUNICATION],
                               groups[RUN_IDLE]};
}

/* ---- Kernels ----------------------------------------------------------------------------- */

/* By name, then SIP, then order. */
static int compare_launches(const void *a, const void *b)
{
    const kb_launch_result *x = *(const kb_launch_result *const *)a;
    const kb_launch_result *y = *(const kb_launch_result *const *)b;
    int order = strcmp(x->name, y->name);
    if (order == 0)
        order = (x->sip > y->sip) - (x->sip < y->sip);
    return order != 0 ? order : (x > y) - (x < y);
}

static int compare_kernels(const void *a, const void *b)
{
    const run_kernel *x = a, *y = b;
    if (x->total_sum != y->total_sum)
        return x->total_sum < y->total_sum ? 1 : -1;
    return (x->first > y->first) - (x->first < y->first);
}

static void add_launch(run_kernel *k, const kb_launch_result *launch)
{
    kb_time total = launch->ended - launch->issued - launch->held;
    bool is_first = k->launches++ == 0;
    k->total_sum += total;
    k->exec_sum += launch->pe_exec;
    k->network_sum += launch->network;
    k->held_sum += launch->held;
    k->total_min = is_first || total < k->total_min ? total : k->total_min;
    k->total_max = total > k->total_max ? total : k->total_max;
    k->exec_min = is_first || launch->pe_exec < k->exec_min ? launch->pe_exec : k->exec_min;
    k->exec_max = launch->pe_exec > k->exec_max ? launch->pe_exec : k->exec_max;
}

/* Launches of one name, in the order of SIPs. */
static run_kernel sum_kernel(const run_stats *s, const kb_launch_result *const *of, size_t count)
{
    run_kernel kernel = {.name = of[0]->name, .first = SIZE_MAX};
    uint32_t max_pes = 0; /* of the current SIP */
    for (size_t i = 0; i < count; i++) {
        size_t index = (size_t)(of[i] - s->launches);
        kernel.first = index < kernel.first ? index : kernel.first;
        add_launch(&kernel, of[i]);
        max_pes = of[i]->pes > max_pes ? of[i]->pes : max_pes;
        if (i + 1 < count && of[i + 1]->sip == of[i]->sip)
            continue;
        kernel.sips++;
        kernel.pes += max_pes;
        max_pes = 0;
    }
    return kernel;
}

static kb_error *group_kernels(run_stats *s)
{
    size_t count = s->launch_count;
    if (count == 0)
        return NULL;
    const kb_launch_result **sorted = kb_alloc_array(count, sizeof *sorted);
    bool done = sorted;
    for (size_t i = 0; done && i < count; i++)
        sorted[i] = &s->launches[i];
    if (done)
        qsort(sorted, count, sizeof *sorted, compare_launches);
    for (size_t from = 0, to; done && from < count; from = to) {
        for (to = from + 1; to < count && strcmp(sorted[to]->name, sorted[from]->name) == 0;)
            to++;
        done = kb_vec_push(&s->kernels, sum_kernel(s, sorted + from, to - from));
    }
    free(sorted);
    if (!done)
        return kb_error_nomem();
    qsort(s->kernels.items, s->kernels.count, sizeof s->kernels.items[0], compare_kernels);
    return NULL;
}

/* ---- Units ------------------------------------------------------------------------------- */

/* A whole kernel does not count as work of the pe_cpu, which waits most of the time. */
static bool is_kernel(const kb_op_sum *sum)
{
    return sum->unit == KB_UNIT_CPU && strcmp(sum->name, "kernel") == 0;
}

static void sum_units(run_stats *s, kb_oplog *log)
{
    size_t count;
    const kb_op_sum *sums = kb_oplog_sums(log, &count);
    for (size_t i = 0; i < count; i++) {
        run_unit *unit = &s->units[sums[i].unit];
        if (is_kernel(&sums[i]))
            continue;
        unit->busy += sums[i].busy;
        unit->count += sums[i].count;
        unit->bytes += sums[i].bytes;
        unit->flops += sums[i].flops;
    }
    s->units[KB_UNIT_CPU].at_work = s->units[KB_UNIT_CPU].busy; /* one command at a time */
}

/* Units that move or compute data: the host, the pe_cpu and the scheduler only issue commands. */
static bool is_engine(kb_unit unit)
{
    return unit == KB_UNIT_DMA_READ || unit == KB_UNIT_DMA_WRITE || unit == KB_UNIT_GEMM ||
           unit == KB_UNIT_MATH;
}

static void sum_pes(run_stats *s, kb_oplog *log)
{
    for (uint64_t pe = 0; pe < topo_machine_shape(s->machine)->pe_count; pe++) {
        for (int unit = 0; unit < KB_UNITS; unit++) {
            kb_time busy = kb_oplog_busy(log, pe, (kb_unit)unit);
            if (unit != KB_UNIT_CPU)
                s->units[unit].at_work += busy;
            if (is_engine((kb_unit)unit) && busy > s->busiest_time) {
                s->busiest_time = busy;
                s->busiest_pe = pe;
                s->busiest_unit = (kb_unit)unit;
            }
        }
    }
}

/* ---- All -------------------------------------------------------------------------------- */

static kb_error *collect(run_stats *s, const rt_stats *from)
{
    net_stats fabric = net_get_stats(from->fabric);
    s->launches = from->launches;
    s->launch_count = from->launch_count;
    s->profile = kb_oplog_profile(from->log);
    s->hops = fabric.hops;
    s->trains = net_get_train_stats(from->fabric);
    s->engines = from->engines;
    s->link_bytes = fabric.link_bytes;
    split_time(s, from->log);
    sum_units(s, from->log);
    sum_pes(s, from->log);
    KB_TRY(group_kernels(s));
    KB_TRY(run_collect_links(s, from->fabric, from->log));
    return run_compute_roofline(s);
}

kb_error *run_stats_init(run_stats *s, kb_context *ctx)
{
    rt_stats from = rt_get_stats(ctx);
    *s = (run_stats){
        .machine = from.machine,
        .sim = kb_context_now(ctx),
        .events = kb_sim_get_stats(kb_context_sim(ctx)).events,
        .stand_ins = from.stand_ins,
    };
    kb_error *err = collect(s, &from);
    if (err)
        run_stats_fini(s);
    return err;
}

void run_stats_fini(run_stats *s)
{
    link_classes_fini(&s->classes);
    kb_vec_fini(&s->kernels);
    kb_vec_fini(&s->links);
    kb_vec_fini(&s->kinds);
}
