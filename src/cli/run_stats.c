/*
 * run_stats.c: what came of a run, gathered from its context when it is over.
 *
 * The run's time is divided by cause, and the parts add up to it: while kernels run, as the PEs
 * that take part in the run spend their time, on average; while none runs, launches, else copies,
 * else nothing is under way.
 */
#include "run.h"

#include <stdlib.h>
#include <string.h>

/* ---- Where the time went ----------------------------------------------------------------- */

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

static void split_time(run_stats *f, kb_oplog *log)
{
    f->timeline = kb_oplog_timeline(log);
    const kb_timeline *t = &f->timeline;
    f->pes = t->pes;
    /* Causes add up to pes * kernels; the parts, rounded as kb_divide_time() does, to kernels. */
    kb_time_sum before = 0;
    kb_time given = 0;
    for (int c = 0; c < KB_CAUSES && t->pes > 0; c++) {
        before += t->causes[c];
        kb_time up_to = (kb_time)(before / (kb_time_sum)t->pes);
        f->causes[c] = up_to - given;
        given = up_to;
    }
    f->causes[RUN_LAUNCHES] = t->launching;
    f->causes[RUN_REQUESTS] = t->requesting;
    f->causes[RUN_NOTHING] = t->idle;
    kb_time_sum groups[RUN_GROUPS] = {0};
    for (int c = 0; c < RUN_CAUSES; c++)
        groups[run_group_of(c)] += f->causes[c];
    f->split = (kb_split_time){groups[RUN_COMPUTE], groups[RUN_MEMORY], groups[RUN_COMMUNICATION],
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
static run_kernel sum_kernel(const run_stats *f, const kb_launch_result *const *of, size_t count)
{
    run_kernel kernel = {.name = of[0]->name, .first = SIZE_MAX};
    uint32_t most = 0; /* PEs of the SIP in hand */
    for (size_t i = 0; i < count; i++) {
        size_t place = (size_t)(of[i] - f->launches);
        kernel.first = place < kernel.first ? place : kernel.first;
        add_launch(&kernel, of[i]);
        most = of[i]->pes > most ? of[i]->pes : most;
        if (i + 1 < count && of[i + 1]->sip == of[i]->sip)
            continue;
        kernel.sips++;
        kernel.pes += most;
        most = 0;
    }
    return kernel;
}

static kb_error *group_kernels(run_stats *f)
{
    size_t count = f->launch_count;
    if (count == 0)
        return NULL;
    const kb_launch_result **sorted = kb_alloc_array(count, sizeof *sorted);
    bool right = sorted;
    for (size_t i = 0; right && i < count; i++)
        sorted[i] = &f->launches[i];
    if (right)
        qsort(sorted, count, sizeof *sorted, compare_launches);
    for (size_t from = 0, to; right && from < count; from = to) {
        for (to = from + 1; to < count && strcmp(sorted[to]->name, sorted[from]->name) == 0;)
            to++;
        right = kb_vec_push(&f->kernels, sum_kernel(f, sorted + from, to - from));
    }
    free(sorted);
    if (!right)
        return kb_error_nomem();
    qsort(f->kernels.items, f->kernels.count, sizeof f->kernels.items[0], compare_kernels);
    return NULL;
}

/* ---- Units ------------------------------------------------------------------------------- */

/* A kernel as a whole is no work of the pe_cpu, which waits most of the time. */
static bool is_kernel(const kb_op_sum *sum)
{
    return sum->unit == KB_UNIT_CPU && strcmp(sum->name, "kernel") == 0;
}

static void sum_units(run_stats *f, kb_oplog *log)
{
    size_t count;
    const kb_op_sum *sums = kb_oplog_sums(log, &count);
    for (size_t i = 0; i < count; i++) {
        run_unit *unit = &f->units[sums[i].unit];
        if (is_kernel(&sums[i]))
            continue;
        unit->busy += sums[i].busy;
        unit->count += sums[i].count;
        unit->bytes += sums[i].bytes;
        unit->flops += sums[i].flops;
    }
    f->units[KB_UNIT_CPU].at_work = f->units[KB_UNIT_CPU].busy; /* one command at a time */
}

/* What takes data somewhere or changes it: the host, the pe_cpu and the scheduler only order it. */
static bool is_engine(kb_unit unit)
{
    return unit == KB_UNIT_DMA_READ || unit == KB_UNIT_DMA_WRITE || unit == KB_UNIT_GEMM ||
           unit == KB_UNIT_MATH;
}

static void look_at_pes(run_stats *f, kb_oplog *log)
{
    for (uint64_t pe = 0; pe < topo_machine_shape(f->machine)->pe_count; pe++) {
        for (int unit = 0; unit < KB_UNITS; unit++) {
            kb_time busy = kb_oplog_busy(log, pe, (kb_unit)unit);
            if (unit != KB_UNIT_CPU)
                f->units[unit].at_work += busy;
            if (is_engine((kb_unit)unit) && busy > f->busiest_time) {
                f->busiest_time = busy;
                f->busiest_pe = pe;
                f->busiest_unit = (kb_unit)unit;
            }
        }
    }
}

/* ---- All of it --------------------------------------------------------------------------- */

static kb_error *gather(run_stats *f, const rt_stats *from)
{
    net_stats fabric = net_get_stats(from->fabric);
    f->launches = from->launches;
    f->launch_count = from->launch_count;
    f->profile = kb_oplog_profile(from->log);
    f->hops = fabric.hops;
    f->trains = net_get_train_stats(from->fabric);
    f->engines = from->engines;
    f->link_bytes = fabric.link_bytes;
    split_time(f, from->log);
    sum_units(f, from->log);
    look_at_pes(f, from->log);
    KB_TRY(group_kernels(f));
    KB_TRY(run_links_gather(f, from->fabric, from->log));
    return run_roofline_gather(f);
}

kb_error *run_stats_init(run_stats *f, kb_context *ctx)
{
    rt_stats from = rt_get_stats(ctx);
    *f = (run_stats){
        .machine = from.machine,
        .sim = kb_context_now(ctx),
        .events = kb_sim_get_stats(kb_context_sim(ctx)).events,
        .stand_ins = from.stand_ins,
    };
    kb_error *err = gather(f, &from);
    if (err)
        run_stats_fini(f);
    return err;
}

void run_stats_fini(run_stats *f)
{
    link_classes_fini(&f->classes);
    kb_vec_fini(&f->kernels);
    kb_vec_fini(&f->links);
    kb_vec_fini(&f->kinds);
}
