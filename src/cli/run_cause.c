/*
 * run_cause.c: one sentence that names what a run's time went to, from its critical path.
 *
 * A PE with more work than the others comes first: whatever it does, the cure is to share its work.
 * Then senders without free slots. Else it is the category with most of the path's time, and for
 * transfers what their time is: one link or memory that they share, the bandwidth of a slow link,
 * or the route to memory that is far.
 */
#include "run_cause.h"

#include "json.h"

#include <math.h>
#include <string.h>

static const double is_stalled = 0.25; /* of the path: waiting for slots */
static const double is_shared = 0.25;  /* of a category: waiting behind others */
static const double is_notable = 0.1;  /* of the path: worth a note */
static const double is_same = 0.02;    /* a difference of two shares that is none */

/* A finding with the path that it is of. */
typedef struct view {
    const explain_path *path;
    const explain_findings *f;
    const run_stats *stats;  /* NULL: there are none */
    const kb_error *failure; /* how the run failed; NULL: it did not */
} view;

static const char *percent(const view *v, kb_time_sum time, obs_number *number)
{
    *number = obs_percent(run_share(time, v->path->end));
    return number->text;
}

static void put_share(const view *v, kb_time_sum time, kb_text *text)
{
    kb_text_printf(text, "%s %% of the critical path",
                   obs_percent(run_share(time, v->path->end)).text);
}

/* ---- Which cause ------------------------------------------------------------------------- */

static bool is_transfer(explain_category c)
{
    return c == EXPLAIN_IN_LOCAL_MEMORY || c == EXPLAIN_IN_CUBE_PES ||
           c == EXPLAIN_IN_OTHER_CUBES || c == EXPLAIN_IN_OTHER_SIPS || c == EXPLAIN_IN_MESSAGES ||
           c == EXPLAIN_IN_REQUESTS;
}

static bool is_hot(const view *v, const explain_share *share)
{
    const topo_graph *graph = topo_machine_graph(v->path->machine);
    return v->f->has_hot_memory && share->link != TOPO_NONE &&
           graph->links.items[share->link].from == v->f->hot_node &&
           graph->links.items[share->link].to == v->f->hot_node;
}

/* The link is not the memory's or the crossbar's, and slower than these, or shared. */
static bool is_slow_link(const view *v, const explain_share *share)
{
    const topo_graph *graph = topo_machine_graph(v->path->machine);
    if (share->link == TOPO_NONE)
        return false;
    switch (explain_resource_of_link(graph, share->link)) {
    case EXPLAIN_HBM_BANDWIDTH:
    case EXPLAIN_SRAM:
    case EXPLAIN_XBAR:
        return false;
    default:
        return run_share(share->aspects[EXPLAIN_QUEUEING], share->time) >= is_shared ||
               2 * share->link_time >= share->time;
    }
}

static const char *cause_of_transfers(const view *v, explain_category c)
{
    const explain_share *share = &v->f->shares[c];
    kb_time_sum moving = share->aspects[EXPLAIN_BANDWIDTH] + share->aspects[EXPLAIN_QUEUEING];
    if (is_hot(v, share) && 2 * moving >= share->time)
        return "hot_memory";
    if (c == EXPLAIN_IN_REQUESTS)
        return "host_request";
    if (c == EXPLAIN_IN_LOCAL_MEMORY)
        return 2 * moving >= share->time ? "local_memory_bandwidth" : "local_memory_latency";
    if (is_slow_link(v, share))
        return "slow_link";
    return c == EXPLAIN_IN_MESSAGES ? "message_latency" : "far_operand";
}

static const char *cause_of(const view *v)
{
    static const char *const of[EXPLAIN_CATEGORIES] = {
        [EXPLAIN_IN_MATRIX] = "matrix",       [EXPLAIN_IN_DRAINS] = "dependent_products",
        [EXPLAIN_IN_VECTOR] = "vector",       [EXPLAIN_IN_TCM] = "tcm",
        [EXPLAIN_IN_CREDITS] = "queue_slots", [EXPLAIN_IN_LAUNCHES] = "launch",
        [EXPLAIN_IN_ISSUES] = "issue",        [EXPLAIN_IN_PROGRAM] = "program",
        [EXPLAIN_IN_NEVER] = "stuck",
    };
    if (v->path->end == 0)
        return "nothing";
    if (v->f->has_straggler)
        return "straggler";
    if (run_share(v->f->stalled, v->path->end) >= is_stalled)
        return "queue_slots";
    explain_category c = v->f->largest;
    return is_transfer(c) ? cause_of_transfers(v, c) : of[c];
}

/* ---- Sentences --------------------------------------------------------------------------- */

static void put_link(const view *v, uint32_t link, kb_text *text)
{
    cli_short_link_name(v->path->machine, link, text);
}

static void put_node(const view *v, uint32_t node, kb_text *text)
{
    topo_node_name(v->path->machine, node, text);
}

/* "latency 12.1 %, bandwidth 40.0 %, waiting behind others 47.9 %" of the category. */
static void put_aspects(const explain_share *share, kb_text *text)
{
    kb_text_printf(text, "latency %s %%, bandwidth %s %%, waiting behind others %s %% of that",
                   obs_percent(run_share(share->aspects[EXPLAIN_LATENCY], share->time)).text,
                   obs_percent(run_share(share->aspects[EXPLAIN_BANDWIDTH], share->time)).text,
                   obs_percent(run_share(share->aspects[EXPLAIN_QUEUEING], share->time)).text);
}

static void put_transfers(const view *v, explain_category c, const char *cause, kb_text *text)
{
    const explain_share *share = &v->f->shares[c];
    if (strcmp(cause, "hot_memory") == 0) {
        kb_text_puts(text, "a hot memory, ");
        put_node(v, v->f->hot_node, text);
        kb_text_printf(text, ", which serves %.1f times as many bytes as an even share; ",
                       v->f->hot_share);
    } else if (strcmp(cause, "slow_link") == 0) {
        kb_text_puts(text, "one link, ");
        put_link(v, share->link, text);
        kb_text_printf(
            text, " with %s GB/s; ",
            obs_rate(topo_link_rate(topo_machine_graph(v->path->machine), share->link)).text);
    } else if (strcmp(cause, "far_operand") == 0) {
        kb_text_puts(text, "a far operand, in ");
        put_node(v, share->node, text);
        kb_text_puts(text, "; ");
    } else if (strcmp(cause, "local_memory_bandwidth") == 0) {
        kb_text_puts(text, "bandwidth of local memory; ");
    } else if (strcmp(cause, "local_memory_latency") == 0) {
        kb_text_puts(text, "latency of local memory, too few bytes are under way at a time; ");
    } else if (strcmp(cause, "message_latency") == 0) {
        kb_text_puts(text, "latency of messages; ");
    }
    kb_text_puts(text, explain_category_name(c));
    kb_text_puts(text, " are ");
    put_share(v, share->time, text);
    kb_text_puts(text, " (");
    put_aspects(share, text);
    kb_text_puts(text, ")");
}

static void put_category(const view *v, explain_category c, const char *cause, kb_text *text)
{
    const explain_share *share = &v->f->shares[c];
    switch (c) {
    case EXPLAIN_IN_DRAINS:
        kb_text_puts(text, "dependent products: results on their way out of the matrix engine, "
                           "which the next operation needs, are ");
        break;
    case EXPLAIN_IN_VECTOR:
        kb_text_puts(text, "vector work: the vector engine is ");
        break;
    case EXPLAIN_IN_MATRIX:
        kb_text_puts(text, "matrix work: the matrix engine is ");
        break;
    case EXPLAIN_IN_LAUNCHES:
        kb_text_puts(text, "launch latency: messages between the host, control processors and PEs, "
                           "and starts of kernels, are ");
        break;
    case EXPLAIN_IN_CREDITS:
        kb_text_puts(text, "too few queue slots: credits on their way back are ");
        break;
    case EXPLAIN_IN_ISSUES:
        kb_text_puts(text, "the pe_cpu issues commands: that is ");
        break;
    case EXPLAIN_IN_TCM:
        kb_text_puts(text, "bandwidth of the TCM: its ports are ");
        break;
    case EXPLAIN_IN_PROGRAM:
        kb_text_puts(text, "the program: times in which nothing of the machine is under way are ");
        break;
    case EXPLAIN_IN_NEVER:
        kb_text_puts(text, "that PEs wait for messages or slots that never come: that is ");
        break;
    case EXPLAIN_IN_REQUESTS:
        kb_text_puts(text, "requests of the host: its copies, mappings and set-up of queues are ");
        break;
    default:
        put_transfers(v, c, cause, text);
        return;
    }
    put_share(v, share->time, text);
}

static void put_straggler(const view *v, kb_text *text)
{
    const topo_shape *shape = topo_machine_shape(v->path->machine);
    const explain_findings *f = v->f;
    kb_text_printf(text, "a straggler, %s: ", topo_pe_name(topo_pe_at(shape, f->straggler)).text);
    put_share(v, f->straggler_time, text);
    kb_text_printf(text,
                   " is on this PE, whose operations take %.1f times as long as the median over "
                   "PEs; the most there: ",
                   f->straggler_work);
    kb_text_printf(text, "%s", explain_category_name(f->largest));
}

static void put_stalls(const view *v, kb_text *text)
{
    const topo_shape *shape = topo_machine_shape(v->path->machine);
    const explain_findings *f = v->f;
    kb_text_puts(text, "too few queue slots: in ");
    put_share(v, f->stalled, text);
    kb_text_printf(text,
                   " a sender waits for a free slot of its receiver, %llu time%s, mostly of %s",
                   (unsigned long long)f->stalls, kb_plural(f->stalls),
                   topo_pe_name(topo_pe_at(shape, f->stalled_pe)).text);
}

static void put_headline(const view *v, const char *cause, kb_text *text)
{
    if (v->failure)
        kb_text_printf(text, "The run fails: %s. It ends at %s ns. The main cause of that time is ",
                       kb_error_message(v->failure), obs_ns(v->path->end).text);
    else
        kb_text_printf(text, "The run takes %s ns. The main cause is ", obs_ns(v->path->end).text);
    if (strcmp(cause, "nothing") == 0)
        kb_text_puts(text, "that nothing takes simulated time");
    else if (strcmp(cause, "straggler") == 0)
        put_straggler(v, text);
    else if (strcmp(cause, "queue_slots") == 0 && v->f->largest != EXPLAIN_IN_CREDITS)
        put_stalls(v, text);
    else
        put_category(v, v->f->largest, cause, text);
    kb_text_puts(text, ".");
}

/* ---- Notes: what else stands out --------------------------------------------------------- */

static void add_note(json_t **notes, kb_text *text)
{
    cli_json_append(notes, cli_json_text(cli_text(text)));
    text->length = 0;
}

static json_t *notes_json(const view *v, const char *cause)
{
    const explain_findings *f = v->f;
    json_t *notes = json_array();
    kb_text text = KB_TEXT_INIT;
    obs_number n;
    if (strcmp(cause, "straggler") == 0) {
        put_category(v, f->largest,
                     is_transfer(f->largest) ? cause_of_transfers(v, f->largest) : "", &text);
        add_note(&notes, &text);
    }
    if (strcmp(cause, "queue_slots") != 0 && run_share(f->stalled, v->path->end) >= is_notable) {
        kb_text_printf(&text, "senders on the path wait for free slots, %s %% of it",
                       percent(v, f->stalled, &n));
        add_note(&notes, &text);
    }
    if (f->working_pes < f->pes) {
        kb_text_printf(&text, "only %llu of %llu PEs that run kernels have operations in them",
                       (unsigned long long)f->working_pes, (unsigned long long)f->pes);
        add_note(&notes, &text);
    }
    if (f->has_hot_memory && strcmp(cause, "hot_memory") != 0 && !f->has_straggler) {
        put_node(v, f->hot_node, &text);
        kb_text_printf(&text, " serves %.1f times as many bytes as an even share", f->hot_share);
        add_note(&notes, &text);
    }
    explain_recorded r = explain_get_recorded(v->path->recorder);
    if (r.dropped > 0) {
        kb_text_printf(&text,
                       "records of operations were full at %s ns: of the %s later ones the path "
                       "has whole kernels",
                       obs_ns(r.dropped_from).text, obs_count(r.dropped).text);
        add_note(&notes, &text);
    }
    kb_text_fini(&text);
    return notes;
}

/* ---- The summary's verdict --------------------------------------------------------------- */

/* The category of the cause that the summary names. */
static explain_category category_of_verdict(int cause)
{
    static const explain_category of[RUN_CAUSES] = {
        [KB_CAUSE_MATRIX] = EXPLAIN_IN_MATRIX,
        [KB_CAUSE_VECTOR] = EXPLAIN_IN_VECTOR,
        [KB_CAUSE_MATRIX_DRAIN] = EXPLAIN_IN_DRAINS,
        [KB_CAUSE_LOCAL_MEMORY] = EXPLAIN_IN_LOCAL_MEMORY,
        [KB_CAUSE_TCM] = EXPLAIN_IN_TCM,
        [KB_CAUSE_CUBE_PES] = EXPLAIN_IN_CUBE_PES,
        [KB_CAUSE_OTHER_CUBES] = EXPLAIN_IN_OTHER_CUBES,
        [KB_CAUSE_OTHER_SIPS] = EXPLAIN_IN_OTHER_SIPS,
        [KB_CAUSE_MESSAGE] = EXPLAIN_IN_MESSAGES,
        [KB_CAUSE_CREDIT] = EXPLAIN_IN_CREDITS,
        [KB_CAUSE_LAUNCH] = EXPLAIN_IN_LAUNCHES,
        [KB_CAUSE_ISSUE] = EXPLAIN_IN_ISSUES,
        [KB_CAUSE_IMBALANCE] = EXPLAIN_CATEGORIES,
        [RUN_LAUNCHES] = EXPLAIN_IN_LAUNCHES,
        [RUN_REQUESTS] = EXPLAIN_IN_REQUESTS,
        [RUN_NOTHING] = EXPLAIN_IN_PROGRAM,
    };
    return of[cause];
}

static bool agrees(const view *v, const char *cause, int verdict)
{
    if (strcmp(cause, "straggler") == 0)
        return verdict == KB_CAUSE_IMBALANCE;
    if (strcmp(cause, "queue_slots") == 0)
        return verdict == KB_CAUSE_CREDIT;
    return category_of_verdict(verdict) == v->f->largest;
}

/* Why the two differ. */
static void put_difference(const view *v, int verdict, kb_text *text)
{
    const run_stats *s = v->stats;
    explain_category c = category_of_verdict(verdict);
    kb_time_sum on_path = c < EXPLAIN_CATEGORIES ? v->f->shares[c].time : 0;
    double mean = run_share(s->causes[verdict], s->sim);
    kb_text_printf(text,
                   "The summary of the run names another cause, \"%s\": that is %s %% of the time "
                   "as a mean over %llu PE%s",
                   run_cause_label(verdict), obs_percent(mean).text, (unsigned long long)s->pes,
                   kb_plural(s->pes));
    bool is_engine = verdict == KB_CAUSE_VECTOR || verdict == KB_CAUSE_MATRIX;
    if (is_engine && v->f->largest == EXPLAIN_IN_TCM)
        kb_text_puts(text, "; there an engine counts as busy while ports of the TCM hold it up");
    else if (verdict == KB_CAUSE_IMBALANCE)
        kb_text_puts(text, "; the path is what the PEs that still work are busy with");
    else if (verdict == KB_CAUSE_MESSAGE || verdict == KB_CAUSE_CREDIT)
        kb_text_puts(text, "; the path is what those are busy with that others wait for");
    else if (fabs(mean - run_share(on_path, v->path->end)) < is_same)
        kb_text_printf(
            text,
            "; it is as much of the critical path, but there %s are more, which the mean "
            "counts under several causes, as PEs differ in what they wait for",
            explain_category_name(v->f->largest));
    else
        kb_text_printf(text,
                       "; of the critical path it is %s %%, as only what decides the end counts "
                       "there, and neither what is overlapped with it nor what other PEs do",
                       obs_percent(run_share(on_path, v->path->end)).text);
    kb_text_puts(text, ".");
}

/* ---- The bound --------------------------------------------------------------------------- */

/* What no program could beat that does this work on this machine. */
typedef struct bound {
    const char *name, *key, *of;
    explain_category category;
    double seconds;
} bound;

enum { BOUNDS = 4 };

/* A launch and its completion on an idle machine, to the nearest PE. */
static double launch_seconds(const view *v)
{
    const topo_shape *shape = topo_machine_shape(v->path->machine);
    if (v->stats->launch_count == 0)
        return 0;
    kb_time least =
        2 * shape->io_cpu.decode_fs + 2 * shape->m_cpu.decode_fs + shape->pe.cpu_overhead_fs;
    return (double)least / (double)KB_S;
}

static void find_bounds(const view *v, bound bounds[static BOUNDS])
{
    const run_stats *s = v->stats;
    const run_roofline *r = &s->roofline;
    double kernels = (double)s->timeline.kernels / (double)KB_S;
    bounds[0] =
        (bound){"FLOPs of matrix products over the peak of the PEs used", "matrix", "matrix",
                EXPLAIN_IN_MATRIX, r->peak_tflops > 0 ? kernels * r->tflops / r->peak_tflops : 0};
    bounds[1] = (bound){"work of the vector engines, on all PEs used alike", "vector", "vector",
                        EXPLAIN_IN_VECTOR, kernels * r->vector_busy};
    bounds[2] =
        (bound){"bytes of local memory over the peak of the PEs' slices", "local_memory", "HBM",
                EXPLAIN_IN_LOCAL_MEMORY, r->peak_gbs > 0 ? kernels * r->gbs / r->peak_gbs : 0};
    bounds[3] = (bound){"one launch and its completion", "launch", "launch", EXPLAIN_IN_LAUNCHES,
                        launch_seconds(v)};
}

/* The run's time beyond the bound, by category: these add up to it. What the bound has of a
 * category and the path has not is done while the path goes through others: negative. */
static json_t *gap_json(const view *v, const bound *lowest, kb_time bound_time)
{
    json_t *gap = json_array();
    for (int c = 0; c < EXPLAIN_CATEGORIES; c++) {
        kb_time_sum time = v->f->shares[c].time;
        if (c == (int)lowest->category)
            time -= bound_time;
        if (time == 0)
            continue;
        cli_json_append(&gap, json_pack("{s:s, s:s, s:I, s:o}", "key",
                                        explain_category_key((explain_category)c), "name",
                                        explain_category_name((explain_category)c), "fs",
                                        (json_int_t)time, "ns", cli_json_ns(time)));
    }
    return gap;
}

/* Bounds that the bench states itself: metrics in ns whose names end with "bound" or "bound_ns". */
static void add_stated_bounds(const run_outcome *outcome, json_t **bounds)
{
    size_t count;
    const rt_metric *metrics = rt_bench_metrics(outcome->view->bench, &count);
    for (size_t i = 0; i < count; i++) {
        const char *at = strstr(metrics[i].name, "bound");
        bool is_time = strncmp(metrics[i].unit, "ns", 2) == 0;
        if (at && is_time && (strcmp(at, "bound") == 0 || strcmp(at, "bound_ns") == 0))
            cli_json_append(bounds,
                            json_pack("{s:o, s:s, s:o}", "name", cli_json_text(metrics[i].name),
                                      "key", "bench", "ns", cli_json_real(metrics[i].value)));
    }
}

static json_t *bound_json(const view *v, const run_outcome *outcome)
{
    bound bounds[BOUNDS];
    const bound *lowest = bounds;
    json_t *all = json_array();
    find_bounds(v, bounds);
    for (size_t i = 0; i < BOUNDS; i++) {
        lowest = bounds[i].seconds > lowest->seconds ? &bounds[i] : lowest;
        if (bounds[i].seconds > 0)
            cli_json_append(&all,
                            json_pack("{s:s, s:s, s:o}", "name", bounds[i].name, "key",
                                      bounds[i].key, "ns", cli_json_real(bounds[i].seconds * 1e9)));
    }
    add_stated_bounds(outcome, &all);
    kb_time time = (kb_time)(lowest->seconds * (double)KB_S);
    if (time == 0) {
        json_decref(all);
        return json_null();
    }
    return json_pack(
        "{s:s, s:s, s:I, s:o, s:I, s:o, s:o}", "name", lowest->name, "key", lowest->key, "fs",
        (json_int_t)time, "share", cli_json_real(run_share(time, v->path->end)), "gap_fs",
        (json_int_t)(v->path->end - time), "gap", gap_json(v, lowest, time), "bounds", all);
}

/* ---- All --------------------------------------------------------------------------------- */

static void add_verdict(const view *v, const char *cause, json_t **object)
{
    kb_text text = KB_TEXT_INIT;
    run_verdict(v->stats, &text);
    cli_json_set(object, "verdict", cli_json_text(cli_text(&text)));
    text.length = 0;
    int verdict = run_verdict_cause(v->stats);
    bool same = agrees(v, cause, verdict);
    cli_json_set(object, "agrees", json_boolean(same));
    if (!same)
        put_difference(v, verdict, &text);
    cli_json_set(object, "difference", same ? json_null() : cli_json_text(cli_text(&text)));
    kb_text_fini(&text);
}

kb_error *run_cause_add(const explain_path *path, const run_outcome *outcome, json_t **object)
{
    explain_findings f;
    KB_TRY(explain_find(path, &f));
    view v = {.path = path,
              .f = &f,
              .stats = outcome->view ? outcome->view->stats : NULL,
              .failure = outcome->error && kb_error_code(outcome->error) != KB_ERR_CHECK
                             ? outcome->error
                             : NULL};
    const char *cause = cause_of(&v);
    kb_text text = KB_TEXT_INIT;
    put_headline(&v, cause, &text);
    cli_json_set(object, "failure",
                 v.failure ? cli_json_text(kb_error_message(v.failure)) : json_null());
    cli_json_set(object, "cause", json_string(cause));
    cli_json_set(object, "category", json_string(explain_category_key(f.largest)));
    cli_json_set(object, "headline", cli_json_text(cli_text(&text)));
    kb_text_fini(&text);
    cli_json_set(object, "notes", notes_json(&v, cause));
    if (v.stats && path->end > 0 && !v.failure) {
        add_verdict(&v, cause, object);
        cli_json_set(object, "bound", bound_json(&v, outcome));
    }
    return NULL;
}
