/*
 * run_verdict.c: what bound a run, in one or two sentences.
 *
 * A run is compute bound if engines are busy for at least half of its time, else bound by the
 * largest other group of causes. The first sentence names the largest cause of that group and its
 * resource: an engine, a memory, a link or a PE. If the cause is outside kernels, a second sentence
 * has the largest cause inside them; if the run is compute bound with many stalls, the cause of the
 * stalls. A memory or link that is busy for most of the time bounds by its bandwidth, else by its
 * latency.
 */
#include "run.h"

#include <math.h>

static const double is_busy = 0.7;       /* utilization of a memory or link: bandwidth bound */
static const double is_full = 0.85;      /* utilization of HBM: at its practical maximum */
static const double is_idle = 0.5;       /* below this utilization: latency bound */
static const double matters = 0.2;       /* share of the run for a sentence on kernels */
static const double is_notable = 0.1;    /* share of the run for a clause */
static const double is_shortfall = 0.05; /* share of peak */

static double share_of(const run_stats *s, kb_time_sum part)
{
    return run_share(part, s->sim);
}

/* The largest cause of the group, of the causes before `end`; ties: the first. */
static int largest_in(const run_stats *s, run_group group, int end)
{
    int largest = -1;
    for (int c = 0; c < end; c++)
        if (run_group_of(c) == group && (largest < 0 || s->causes[c] > s->causes[largest]))
            largest = c;
    return largest;
}

/* The largest cause of the group that bounds the run, of the causes before `end`. */
static int largest_cause(const run_stats *s, int end, kb_time_sum *group_time)
{
    kb_time_sum groups[RUN_GROUPS] = {0}, others = 0;
    for (int c = 0; c < end; c++)
        groups[run_group_of(c)] += s->causes[c];
    int group = RUN_MEMORY;
    for (int g = RUN_MEMORY; g < RUN_GROUPS; g++) {
        others += groups[g];
        group = groups[g] > groups[group] ? g : group;
    }
    group = groups[RUN_COMPUTE] >= others ? RUN_COMPUTE : group;
    *group_time = groups[group];
    return largest_in(s, (run_group)group, end);
}

/* ---- Engines ----------------------------------------------------------------------------- */

/* Whether memory is at its maximum, and busier than the engines. */
static bool memory_bounds(const run_stats *s, double engine_busy)
{
    const run_roofline *r = &s->roofline;
    return r->gbs > fmax(is_full, engine_busy) * r->peak_gbs;
}

/* What is at its maximum when local memory is. */
static const char *memory_name(const run_stats *s)
{
    return s->roofline.links_limit
               ? "HBM, through links of the PEs that are slower than it, delivers"
               : "HBM delivers";
}

static void full_memory_verdict(const run_stats *s, const char *engines, double busy, kb_text *text)
{
    const run_roofline *r = &s->roofline;
    kb_text_printf(text,
                   "Memory bound: %s %s of %s GB/s, %s %% of peak, while kernels run: "
                   "bandwidth bound. The %s engines keep up with it, busy %s %% of the time",
                   memory_name(s), obs_gbs(r->gbs).text, obs_gbs(r->peak_gbs).text,
                   obs_percent(r->gbs / r->peak_gbs).text, engines, obs_percent(busy).text);
}

static void matrix_verdict(const run_stats *s, kb_text *text)
{
    const run_roofline *r = &s->roofline;
    const topo_pe_params *pe = &topo_machine_shape(s->machine)->pe;
    double reached = r->tflops / r->peak_tflops;
    double busy = share_of(s, s->causes[KB_CAUSE_MATRIX]);
    if (memory_bounds(s, r->occupied)) {
        full_memory_verdict(s, "matrix", busy, text);
        return;
    }
    kb_text_printf(text,
                   "Compute bound: the matrix engines are busy %s %% of the time and reach %s %% "
                   "of peak while kernels run",
                   obs_percent(busy).text, obs_percent(reached).text);
    if (r->occupied > reached + is_shortfall)
        kb_text_printf(text,
                       ", as %s %% of the array slots have no work: operands do not fill the "
                       "%u x %u array%s",
                       obs_percent(1 - r->slots).text, pe->gemm_rows, pe->gemm_columns,
                       pe->gemm_fill_per_fold ? ", or it fills and drains with each fold" : "");
}

static void vector_verdict(const run_stats *s, kb_text *text)
{
    double busy = share_of(s, s->causes[KB_CAUSE_VECTOR]);
    if (memory_bounds(s, s->roofline.vector_busy)) {
        full_memory_verdict(s, "vector", busy, text);
        return;
    }
    kb_text_printf(text,
                   "Compute bound: the vector engines are busy %s %% of the time, and %s %% while "
                   "kernels run",
                   obs_percent(busy).text, obs_percent(s->roofline.vector_busy).text);
}

/* Share of the run in which products wait only for the results of earlier products. */
static double dependent_share(const run_stats *s)
{
    const kb_timeline *t = &s->timeline;
    double of_kernels = t->pes > 0 ? run_share(t->needed_drain, t->kernels) / (double)t->pes : 0;
    return of_kernels * share_of(s, t->kernels);
}

static const char advice[] = "dependent products, each waits for the result of the one before; "
                             "interleave independent chains";

static void drain_verdict(const run_stats *s, kb_text *text)
{
    double share = share_of(s, s->causes[KB_CAUSE_MATRIX_DRAIN]);
    bool dependent = 2 * dependent_share(s) > share;
    kb_text_printf(text,
                   "Compute bound: %s %% of the time the matrix engines only drain their "
                   "pipelines: %s",
                   obs_percent(share).text,
                   dependent ? advice : "nothing else is under way until results are out");
}

/* Adds a sentence if the run is bound by something else. */
static void add_dependent_products(const run_stats *s, kb_text *text)
{
    double share = dependent_share(s);
    if (share >= is_notable)
        kb_text_printf(text,
                       ". %s %% of the time the matrix engines only drain their pipelines: %s",
                       obs_percent(share).text, advice);
}

/* ---- Memory ------------------------------------------------------------------------------ */

/* Utilization of the link while kernels run, or copies, which use it too. */
static double busy_share(const run_stats *s, const run_link *link)
{
    double share = run_share(link->busy, s->timeline.kernels + s->timeline.requesting);
    return share < 1 ? share : 1;
}

static void put_link(const run_stats *s, const run_link *link, kb_text *text)
{
    cli_short_link_name(s->machine, link->link, text);
    kb_text_printf(text, ", is busy %s %% of the time that kernels run",
                   obs_percent(busy_share(s, link)).text);
}

static void local_memory_verdict(const run_stats *s, kb_text *text)
{
    const run_roofline *r = &s->roofline;
    const run_link *busiest = run_find_busiest(s, RUN_LOCAL_MEMORY);
    double used = r->peak_gbs > 0 ? r->gbs / r->peak_gbs : 0;
    double stalled = run_share(s->causes[KB_CAUSE_LOCAL_MEMORY], s->timeline.kernels);
    kb_text_printf(text,
                   "Memory bound: stalled on local memory %s %% of the time; %s %s of "
                   "%s GB/s, %s %% of peak, while kernels run",
                   obs_percent(share_of(s, s->causes[KB_CAUSE_LOCAL_MEMORY])).text, memory_name(s),
                   obs_gbs(r->gbs).text, obs_gbs(r->peak_gbs).text, obs_percent(used).text);
    if (used >= is_busy) {
        kb_text_puts(text, ": bandwidth bound");
    } else if (busiest && busy_share(s, busiest) >= is_busy) {
        kb_text_puts(text, "; the busiest, ");
        put_link(s, busiest, text);
        kb_text_puts(text, ": bandwidth bound");
    } else if (used >= is_busy * stalled) {
        kb_text_puts(text, ": bandwidth bound while it lasts, but not overlapped with computing");
    } else {
        kb_text_puts(text, ": latency bound, too few bytes are outstanding at a time");
    }
}

static void tcm_verdict(const run_stats *s, kb_text *text)
{
    const topo_pe_params *pe = &topo_machine_shape(s->machine)->pe;
    kb_text_printf(text,
                   "Memory bound: stalled on TCM %s %% of the time; each direction of a PE's TCM "
                   "has %s GB/s",
                   obs_percent(share_of(s, s->causes[KB_CAUSE_TCM])).text,
                   obs_rate(pe->tcm_bytes_per_s).text);
}

/* ---- Communication ----------------------------------------------------------------------- */

/* The busiest link on the routes to what the PEs wait for; the busiest memory if that is busier. */
static void add_remote_resource(const run_stats *s, int cause, kb_text *text)
{
    bool in_sip = cause == KB_CAUSE_CUBE_PES || cause == KB_CAUSE_OTHER_CUBES;
    const run_link *link = run_find_busiest(s, in_sip ? RUN_IN_SIP : run_remote_links(s));
    const run_link *memory = run_find_busiest(s, RUN_LOCAL_MEMORY);
    if (!link)
        return;
    double busy = busy_share(s, link);
    if (memory && busy_share(s, memory) > fmax(busy, is_idle)) {
        kb_text_puts(text, "; the busiest memory, ");
        put_link(s, memory, text);
        busy = busy_share(s, memory);
    } else {
        kb_text_puts(text, "; the busiest link on the way, ");
        put_link(s, link, text);
    }
    if (busy >= is_busy)
        kb_text_puts(text, ": bandwidth bound");
    else if (busy < is_idle && cause != KB_CAUSE_MESSAGE && cause != KB_CAUSE_CREDIT)
        kb_text_puts(text, ": latency bound");
    else if (busy < is_idle)
        kb_text_printf(text, ": not its bandwidth, but the latency of messages or late %s",
                       cause == KB_CAUSE_MESSAGE ? "senders" : "receivers");
}

static void remote_verdict(const run_stats *s, int cause, kb_text *text)
{
    kb_text_printf(text, "Communication bound: %s %s %% of the time", run_cause_label(cause),
                   obs_percent(share_of(s, s->causes[cause])).text);
    if (cause == KB_CAUSE_CREDIT)
        kb_text_puts(text, "; receivers free their slots too late, or have too few");
    add_remote_resource(s, cause, text);
}

static void request_verdict(const run_stats *s, kb_text *text)
{
    const run_link *link = run_find_busiest(s, RUN_ANY);
    kb_text_printf(text,
                   "Host bound: %s %% of the time copies, mappings or queue set-up of the host are "
                   "under way, and no kernel runs",
                   obs_percent(share_of(s, s->causes[RUN_REQUESTS])).text);
    if (!link || link->utilization < is_notable)
        return;
    kb_text_puts(text, "; the busiest link, ");
    cli_short_link_name(s->machine, link->link, text);
    kb_text_printf(text, ", is busy %s %% of the run", obs_percent(link->utilization).text);
}

/* ---- Idle -------------------------------------------------------------------------------- */

static void imbalance_verdict(const run_stats *s, kb_text *text)
{
    const kb_timeline *t = &s->timeline;
    kb_text_printf(text,
                   "Load imbalance: %s %% of the time PEs have no kernel while others run one; "
                   "kernels take %s ns on %s, %s ns on average",
                   obs_percent(share_of(s, s->causes[KB_CAUSE_IMBALANCE])).text,
                   obs_ns(t->longest).text,
                   topo_pe_name(topo_pe_at(topo_machine_shape(s->machine), t->longest_pe)).text,
                   obs_ns(t->mean).text);
}

/* ---- The verdict ------------------------------------------------------------------------- */

static void put_cause(const run_stats *s, int cause, kb_text *text)
{
    obs_number share = obs_percent(share_of(s, s->causes[cause]));
    switch (cause) {
    case KB_CAUSE_MATRIX:
        matrix_verdict(s, text);
        break;
    case KB_CAUSE_VECTOR:
        vector_verdict(s, text);
        break;
    case KB_CAUSE_MATRIX_DRAIN:
        drain_verdict(s, text);
        break;
    case KB_CAUSE_LOCAL_MEMORY:
        local_memory_verdict(s, text);
        break;
    case KB_CAUSE_TCM:
        tcm_verdict(s, text);
        break;
    case KB_CAUSE_LAUNCH:
        kb_text_printf(text,
                       "Launch bound: %s %% of the time PEs wait for their launch to arrive while "
                       "others run theirs",
                       share.text);
        break;
    case RUN_LAUNCHES:
        kb_text_printf(text,
                       "Launch bound: %s %% of the time launches are under way between the host "
                       "and PEs, and no kernel runs",
                       share.text);
        break;
    case RUN_REQUESTS:
        request_verdict(s, text);
        break;
    case KB_CAUSE_ISSUE:
        kb_text_printf(
            text,
            "Issue bound: %s %% of the time the pe_cpus issue commands or start kernels, "
            "and nothing is outstanding; fewer and larger commands help",
            share.text);
        break;
    case KB_CAUSE_IMBALANCE:
        imbalance_verdict(s, text);
        break;
    case RUN_NOTHING:
        kb_text_printf(text, "Idle: %s %% of the time nothing is under way", share.text);
        break;
    default:
        remote_verdict(s, cause, text);
    }
}

/* The largest cause inside kernels, if the run is bound by something outside them. */
static void add_kernels(const run_stats *s, int cause, kb_text *text)
{
    kb_time_sum inside =
        s->timeline.kernels - s->causes[KB_CAUSE_LAUNCH] - s->causes[KB_CAUSE_IMBALANCE];
    bool is_outside = cause >= KB_CAUSES || cause == KB_CAUSE_LAUNCH || cause == KB_CAUSE_IMBALANCE;
    if (!is_outside || share_of(s, inside) < matters)
        return;
    run_stats kernels = *s;
    kernels.causes[KB_CAUSE_LAUNCH] = kernels.causes[KB_CAUSE_IMBALANCE] = 0;
    kb_time_sum group;
    int largest = largest_cause(&kernels, KB_CAUSES, &group);
    kb_text_printf(text, ". Inside kernels the largest part is: %s, %s %% of their time",
                   run_cause_label(largest),
                   obs_percent(run_share(s->causes[largest], inside)).text);
    if (run_group_of(largest) == RUN_COMMUNICATION)
        add_remote_resource(s, largest, text);
}

/* The largest stall of a run that is compute bound. */
static void add_stall(const run_stats *s, int cause, kb_text *text)
{
    int stall = -1;
    for (int c = 0; c < RUN_CAUSES; c++)
        if (run_group_of(c) != RUN_COMPUTE && (stall < 0 || s->causes[c] > s->causes[stall]))
            stall = c;
    if (run_group_of(cause) != RUN_COMPUTE || share_of(s, s->causes[stall]) < is_notable)
        return;
    kb_text_printf(text, ". The largest other part: %s, %s %% of the time", run_cause_label(stall),
                   obs_percent(share_of(s, s->causes[stall])).text);
    if (run_group_of(stall) == RUN_COMMUNICATION && stall < KB_CAUSES && stall != KB_CAUSE_LAUNCH)
        add_remote_resource(s, stall, text);
}

static const char *group_name(run_group group)
{
    static const char *const names[RUN_GROUPS] = {"compute", "memory", "communication", "idle"};
    return names[group];
}

int run_verdict_cause(const run_stats *s)
{
    kb_time_sum group;
    return s->sim == 0 ? RUN_NOTHING : largest_cause(s, RUN_CAUSES, &group);
}

void run_verdict(const run_stats *s, kb_text *text)
{
    if (s->sim == 0) {
        kb_text_puts(text, "Nothing took any time.");
        return;
    }
    kb_time_sum group;
    int cause = largest_cause(s, RUN_CAUSES, &group);
    put_cause(s, cause, text);
    if (share_of(s, group - s->causes[cause]) >= is_shortfall)
        kb_text_printf(text, " (%s in all: %s %%)", group_name(run_group_of(cause)),
                       obs_percent(share_of(s, group)).text);
    if (cause != KB_CAUSE_MATRIX_DRAIN)
        add_dependent_products(s, text);
    add_kernels(s, cause, text);
    add_stall(s, cause, text);
    kb_text_puts(text, ".");
}
