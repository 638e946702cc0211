/*
 * run_trace.c: the trace of a run. Its counters are sums over links, sampled from the fabric: links
 * by kind, as in the summary, and the HBM of each cube.
 */
#include "run_trace.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "files.h"
#include "obs/obs.h"

#define NO_COUNTER UINT32_MAX

/* The counters of a link. */
typedef struct link_counters {
    uint32_t kind;
    uint32_t hbm; /* or NO_COUNTER */
} link_counters;

struct run_trace {
    cli_output *output;
    obs_trace *trace;
    kb_context *ctx;
    net *fabric;
    size_t link_count;
    link_counters *links;
    KB_VEC(obs_counter) counters; /* of kinds of links, then of HBMs */
    size_t kind_count;
    KB_VEC(char *) names; /* of the counters */
};

static kb_time sample(void *self, uint64_t *counts)
{
    const run_trace *t = self;
    memset(counts, 0, t->counters.count * sizeof *counts);
    for (size_t i = 0; i < t->link_count; i++) {
        uint64_t bytes = net_link_get(t->fabric, (uint32_t)i).bytes;
        const link_counters *of = &t->links[i];
        counts[of->kind] += bytes;
        if (of->hbm != NO_COUNTER)
            counts[of->hbm] += bytes;
    }
    return kb_context_now(t->ctx);
}

/* Adds a counter; takes the name over. */
static kb_error *add_counter(run_trace *t, char *name, const kb_pe *cube, uint32_t *index)
{
    *index = (uint32_t)t->counters.count;
    if (!name || !kb_vec_push(&t->names, name)) {
        free(name);
        return kb_error_nomem();
    }
    obs_counter fresh = {.name = name, .of_cube = cube != NULL};
    if (cube)
        fresh.cube = *cube;
    return kb_vec_push(&t->counters, fresh) ? NULL : kb_error_nomem();
}

/* Classes that differ only in bandwidth or length have the same name and share a counter. */
static kb_error *count_class(run_trace *t, const link_class *class, uint32_t *index)
{
    kb_text text = KB_TEXT_INIT;
    kb_text_puts(&text, "link bandwidth: ");
    link_class_name(class, &text);
    char *name = kb_text_take(&text);
    for (*index = 0; name && *index < t->counters.count; ++*index)
        if (strcmp(t->counters.items[*index].name, name) == 0) {
            free(name);
            return NULL;
        }
    return add_counter(t, name, NULL, index);
}

static kb_error *count_kinds(run_trace *t, const topo_machine *machine)
{
    link_classes classes;
    KB_TRY(link_classes_init(&classes, machine));
    uint32_t *counters = kb_alloc_array(classes.all.count, sizeof *counters);
    kb_error *err = counters ? NULL : kb_error_nomem();
    for (size_t i = 0; !err && i < classes.all.count; i++)
        err = count_class(t, &classes.all.items[i], &counters[i]);
    for (size_t i = 0; counters && !err && i < t->link_count; i++)
        t->links[i] = (link_counters){
            .kind = counters[link_classes_index(&classes, machine, (uint32_t)i)],
            .hbm = NO_COUNTER,
        };
    t->kind_count = t->counters.count;
    free(counters);
    link_classes_fini(&classes);
    return err;
}

/* Each byte that an HBM slice serves passes its service link once. */
static kb_error *count_hbm(run_trace *t, const topo_machine *machine)
{
    const topo_shape *shape = topo_machine_shape(machine);
    const topo_graph *graph = topo_machine_graph(machine);
    for (uint32_t cube = 0; cube < shape->sips * shape->cubes; cube++) {
        const kb_pe at = {cube / shape->cubes, cube % shape->cubes, 0};
        kb_text name = KB_TEXT_INIT;
        kb_text_puts(&name, "HBM bandwidth");
        uint32_t index;
        KB_TRY(add_counter(t, kb_text_take(&name), &at, &index));
        for (uint32_t pe = 0; pe < shape->pes; pe++) {
            uint32_t node = topo_node_at(machine, TOPO_HBM_CTRL, at.sip, at.cube, pe);
            uint32_t service = graph->nodes.items[node].service;
            if (service != TOPO_NONE)
                t->links[service].hbm = index;
        }
    }
    return NULL;
}

static void destroy(run_trace *t)
{
    for (size_t i = 0; i < t->names.count; i++)
        free(t->names.items[i]);
    kb_vec_fini(&t->names);
    kb_vec_fini(&t->counters);
    free(t->links);
    free(t);
}

static kb_error *count(run_trace *t)
{
    rt_stats from = rt_get_stats(t->ctx);
    t->fabric = from.fabric;
    t->link_count = topo_machine_graph(from.machine)->links.count;
    t->links = kb_alloc_array(t->link_count, sizeof *t->links);
    if (!t->links)
        return kb_error_nomem();
    KB_TRY(count_kinds(t, from.machine));
    KB_TRY(count_hbm(t, from.machine));
    obs_counters counters = {
        .items = t->counters.items,
        .count = t->counters.count,
        .sample = sample,
        .self = t,
    };
    return obs_trace_count(t->trace, &counters);
}

kb_error *run_trace_open(const char *path, kb_context *ctx, run_trace **trace)
{
    *trace = NULL;
    run_trace *t = kb_alloc_zeroed(1, sizeof *t);
    if (!t)
        return kb_error_nomem();
    t->ctx = ctx;
    kb_machine machine = kb_context_machine(ctx);
    kb_error *err = cli_output_open(path, &t->output);
    if (!err)
        err = obs_trace_create(cli_output_file(t->output), path, &machine, &t->trace);
    if (!err)
        err = count(t);
    if (err) {
        kb_error_free(obs_trace_close(t->trace));
        cli_output_discard(t->output);
        destroy(t);
        return err;
    }
    *trace = t;
    return NULL;
}

void run_trace_op(run_trace *trace, const kb_op *op)
{
    if (trace)
        obs_trace_op(trace->trace, op);
}

void run_trace_state(run_trace *trace, uint64_t pe, kb_cause cause, kb_time start, kb_time end)
{
    if (trace)
        obs_trace_state(trace->trace, pe, cause, start, end);
}

void run_trace_tcm(run_trace *trace, const kb_pe *pe, kb_time now, uint64_t bytes)
{
    if (trace)
        obs_trace_tcm(trace->trace, *pe, now, bytes);
}

/* ---- The critical path ------------------------------------------------------------------- */

/* Arguments: the number of the operation's record, and "HBM bandwidth, fs". */
typedef struct step_notes {
    obs_note items[1 + EXPLAIN_MAX_PARTS];
    kb_text keys[1 + EXPLAIN_MAX_PARTS];
    size_t count;
} step_notes;

static void add_note(step_notes *notes, uint64_t number)
{
    notes->items[notes->count].key = cli_text(&notes->keys[notes->count]);
    notes->items[notes->count++].number = number;
}

/* Times that have the same name are one. */
static void add_time(step_notes *notes, const explain_part *part)
{
    kb_text *key = &notes->keys[notes->count];
    explain_part_name(part->resource, part->aspect, key);
    kb_text_puts(key, ", fs");
    for (size_t i = 0; i < notes->count; i++)
        if (strcmp(notes->items[i].key, cli_text(key)) == 0) {
            notes->items[i].number += (uint64_t)part->time;
            kb_text_fini(key);
            return;
        }
    add_note(notes, (uint64_t)part->time);
}

static void make_notes(const explain_path *path, size_t step, step_notes *notes)
{
    *notes = (step_notes){0};
    if (path->steps.items[step].id != EXPLAIN_NONE) {
        kb_text_puts(&notes->keys[0], "record");
        add_note(notes, path->steps.items[step].id);
    }
    for (uint32_t p = path->first_part.items[step]; p < path->first_part.items[step + 1]; p++)
        if (path->parts.items[p].time > 0)
            add_time(notes, &path->parts.items[p]);
}

static kb_error *put_step(run_trace *t, const explain_path *path, size_t i)
{
    const explain_step *step = &path->steps.items[i];
    step_notes notes;
    kb_text title = KB_TEXT_INIT;
    make_notes(path, i, &notes);
    explain_describe_step(path, step, &title);
    bool failed = title.failed;
    for (size_t k = 0; k < notes.count; k++)
        failed |= notes.keys[k].failed;
    obs_step shown = {step->from, step->to, cli_text(&title), notes.items, notes.count};
    if (!failed)
        obs_trace_step(t->trace, &shown);
    for (size_t k = 0; k < notes.count; k++)
        kb_text_fini(&notes.keys[k]);
    kb_text_fini(&title);
    return failed ? kb_error_nomem() : NULL;
}

kb_error *run_trace_path(run_trace *t, const explain_path *path)
{
    for (size_t i = 0; i < path->steps.count; i++)
        KB_TRY(put_step(t, path, i));
    return NULL;
}

/* ---- Opening and closing ----------------------------------------------------------------- */

static uint64_t add_saturated(uint64_t a, uint64_t b)
{
    return a < UINT64_MAX - b ? a + b : UINT64_MAX;
}

/* Adds up the bandwidths of the links of each kind that carried something. */
static kb_error *set_peaks(const run_trace *t)
{
    const topo_graph *graph = topo_machine_graph(rt_get_stats(t->ctx).machine);
    uint64_t *peaks = kb_alloc_zeroed(t->kind_count, sizeof *peaks);
    kb_error *err = peaks ? NULL : kb_error_nomem();
    for (size_t i = 0; peaks && i < t->link_count; i++)
        if (net_link_get(t->fabric, (uint32_t)i).bytes > 0) {
            uint64_t *peak = &peaks[t->links[i].kind];
            *peak = add_saturated(*peak, graph->rates.items[graph->links.items[i].rate]);
        }
    for (size_t i = 0; peaks && !err && i < t->kind_count; i++) {
        kb_text name = KB_TEXT_INIT;
        kb_text_printf(&name, "link utilization: %s",
                       strchr(t->counters.items[i].name, ':') + strlen(": "));
        err = obs_trace_set_peak(t->trace, i, cli_text(&name), peaks[i]);
        kb_text_fini(&name);
    }
    free(peaks);
    return err;
}

kb_error *run_trace_close(run_trace *trace)
{
    if (!trace)
        return NULL;
    kb_error *err = set_peaks(trace);
    if (err)
        kb_error_free(obs_trace_close(trace->trace));
    else
        err = obs_trace_close(trace->trace);
    if (err)
        cli_output_discard(trace->output);
    else
        err = cli_output_commit(trace->output);
    destroy(trace);
    return err;
}

void run_trace_discard(run_trace *trace)
{
    if (!trace)
        return;
    kb_error_free(obs_trace_close(trace->trace));
    cli_output_discard(trace->output);
    destroy(trace);
}
