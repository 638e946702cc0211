/*
 * run_path.c: the critical path of a run as JSON. All times are exact: "fs" is a whole number of
 * femtoseconds, and members of a group add up to the run. What is printed of a path, now or from a
 * store, is made from this document.
 */
#include "run_path.h"

#include "json.h"
#include "run_cause.h"

#include <stdlib.h>
#include <string.h>

enum { LARGEST = 10 };

struct run_path {
    kb_context *ctx;
    explain_recorder *recorder;
    explain_path path;
    bool is_found;
};

kb_error *run_path_begin(kb_context *ctx, uint64_t max_bytes, run_path **path)
{
    *path = NULL;
    run_path *made = kb_alloc_zeroed(1, sizeof *made);
    if (!made)
        return kb_error_nomem();
    rt_stats stats = rt_get_stats(ctx);
    made->ctx = ctx;
    kb_error *err = explain_recorder_create(stats.machine, stats.log, max_bytes, &made->recorder);
    if (err)
        free(made);
    else
        *path = made;
    return err;
}

void run_path_op(run_path *path, const kb_op *op)
{
    if (path)
        explain_record_op(path->recorder, op);
}

void run_path_end(run_path *path)
{
    if (!path)
        return;
    explain_path_fini(&path->path);
    explain_recorder_destroy(path->recorder);
    free(path);
}

/* A deadlock is the end: what comes later tells the host of it. */
static kb_time end_of(const run_outcome *outcome)
{
    kb_time deadlock_at = rt_get_stats(outcome->ctx).deadlock_at;
    bool is_deadlock = kb_error_code(outcome->error) == KB_ERR_DEADLOCK && deadlock_at > 0;
    return is_deadlock ? deadlock_at : kb_context_now(outcome->ctx);
}

kb_error *run_path_find(run_path *path, const run_outcome *outcome, const explain_path **found)
{
    *found = &path->path;
    if (path->is_found)
        return NULL;
    KB_TRY(explain_find_path(path->recorder, end_of(outcome), &path->path));
    path->is_found = true;
    return NULL;
}

static json_t *hash_json(uint64_t hash)
{
    char text[20];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)hash);
    return json_string(text);
}

static void add_signature(const explain_path *path, json_t **object)
{
    cli_json_set(object, "signature", hash_json(path->signature));
    cli_json_set(object, "waits", hash_json(path->waits));
}

kb_error *run_path_brief(run_path *path, const run_outcome *outcome, json_t **document)
{
    const explain_path *found;
    explain_groups groups;
    KB_TRY(run_path_find(path, outcome, &found));
    KB_TRY(explain_group_path(found, EXPLAIN_BY_RESOURCE, &groups));
    add_signature(found, document);
    if (groups.all.count > 0)
        cli_json_set(document, "most", cli_json_text(groups.all.items[0].name));
    explain_groups_fini(&groups);
    return NULL;
}

/* ---- Groups ------------------------------------------------------------------------------ */

static json_t *share_of(const explain_path *path, kb_time_sum time)
{
    return cli_json_real(run_share(time, path->end));
}

static kb_error *add_groups(const explain_path *path, explain_key key, json_t **object)
{
    explain_groups groups;
    KB_TRY(explain_group_path(path, key, &groups));
    json_t *array = json_array();
    for (size_t i = 0; i < groups.all.count; i++) {
        const explain_group *g = &groups.all.items[i];
        cli_json_append(&array,
                        json_pack("{s:o, s:I, s:o, s:o, s:I}", "name", cli_json_text(g->name), "fs",
                                  (json_int_t)g->time, "ns", cli_json_ns(g->time), "share",
                                  share_of(path, g->time), "steps", (json_int_t)g->steps));
    }
    explain_groups_fini(&groups);
    cli_json_set(object, explain_key_name(key), array);
    return NULL;
}

/* ---- Steps ------------------------------------------------------------------------------- */

static json_t *waited_json(const explain_path *path, const explain_record *record,
                           const explain_contention *at)
{
    if (at->link == TOPO_NONE || at->transfers == 0)
        return json_null();
    kb_text behind = KB_TEXT_INIT;
    const explain_record *other = explain_record_at(path->recorder, at->record);
    explain_step whole = {.from = other->start, .to = other->end, .id = at->record};
    explain_describe_step(path, &whole, &behind);
    json_t *json = json_pack("{s:o, s:o, s:I, s:o, s:o}", "ns", cli_json_ns(record->queueing),
                             "link", cli_json_link(path->machine, at->link), "transfers",
                             (json_int_t)at->transfers, "busy_for_them_ns", cli_json_ns(at->work),
                             "longest", cli_json_text(cli_text(&behind)));
    kb_text_fini(&behind);
    return json;
}

static json_t *parts_json(const explain_path *path, size_t step)
{
    json_t *parts = json_array();
    for (uint32_t p = path->first_part.items[step]; p < path->first_part.items[step + 1]; p++) {
        const explain_part *part = &path->parts.items[p];
        kb_text name = KB_TEXT_INIT;
        explain_part_name(part->resource, part->aspect, &name);
        json_t *json = json_pack("{s:o, s:s, s:s, s:I}", "name", cli_json_text(cli_text(&name)),
                                 "resource", explain_resource_key(part->resource), "aspect",
                                 explain_aspect_name(part->aspect), "fs", (json_int_t)part->time);
        kb_text_fini(&name);
        if (part->link != TOPO_NONE)
            cli_json_set(&json, "link", cli_json_link(path->machine, part->link));
        cli_json_append(&parts, json);
    }
    return parts;
}

static json_t *step_json(const explain_path *path, size_t i)
{
    const explain_step *step = &path->steps.items[i];
    const explain_record *record = explain_record_at(path->recorder, step->id);
    kb_text what = KB_TEXT_INIT;
    explain_describe_step(path, step, &what);
    json_t *json =
        json_pack("{s:I, s:I, s:o, s:o, s:s, s:o}", "from_fs", (json_int_t)step->from, "to_fs",
                  (json_int_t)step->to, "what", cli_json_text(cli_text(&what)), "launch",
                  cli_json_text(explain_launch_name(path->recorder, step->launch)), "led_by",
                  kb_reason_name((kb_reason_kind)step->led_by), "parts", parts_json(path, i));
    kb_text_fini(&what);
    if (record) {
        const explain_site *site = explain_site_at(path->recorder, record->site);
        cli_json_set(&json, "unit",
                     json_string(site->is_control ? "control" : kb_unit_name(site->unit)));
        cli_json_set(&json, "record", json_integer((json_int_t)step->id));
        if (!site->is_control && site->unit != KB_UNIT_HOST)
            cli_json_set(&json, "pe", json_integer((json_int_t)record->at));
    }
    return json;
}

typedef struct ranked {
    kb_time time;
    size_t step;
} ranked;

static int by_length(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->time != y->time)
        return x->time < y->time ? 1 : -1;
    return (x->step > y->step) - (x->step < y->step);
}

static int by_order(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    return (x->step > y->step) - (x->step < y->step);
}

static json_t *largest_json(const explain_path *path, const ranked *steps, size_t count,
                            kb_error **err)
{
    json_t *largest = json_array();
    for (size_t i = 0; i < count && i < LARGEST && !*err; i++) {
        json_t *json = step_json(path, steps[i].step);
        const explain_step *step = &path->steps.items[steps[i].step];
        const explain_record *record = explain_record_at(path->recorder, step->id);
        if (record && record->queueing > 0) {
            explain_contention at;
            *err = explain_find_contention(path->recorder, step->id, &at);
            if (!*err)
                cli_json_set(&json, "waited", waited_json(path, record, &at));
        }
        cli_json_append(&largest, json);
    }
    return largest;
}

static kb_error *add_steps(const explain_path *path, size_t most, json_t **object)
{
    size_t count = path->steps.count;
    ranked *steps = kb_alloc_array(count + 1, sizeof *steps);
    if (!steps)
        return kb_error_nomem();
    for (size_t i = 0; i < count; i++)
        steps[i] = (ranked){path->steps.items[i].to - path->steps.items[i].from, i};
    qsort(steps, count, sizeof *steps, by_length);
    kb_error *err = NULL;
    cli_json_set(object, "largest", largest_json(path, steps, count, &err));
    size_t shown = count < most ? count : most;
    qsort(steps, shown, sizeof *steps, by_order);
    json_t *chain = json_array();
    for (size_t i = 0; i < shown; i++)
        cli_json_append(&chain, step_json(path, steps[i].step));
    cli_json_set(object, "path", chain);
    free(steps);
    return err;
}

/* ---- Estimates --------------------------------------------------------------------------- */

static const explain_factor factors[] = {{5, 4}, {2, 1}, {4, 1}};

static json_t *estimates_json(const explain_path *path)
{
    json_t *all = json_array();
    for (int is = 0; is < EXPLAIN_PROGRAM; is++) {
        json_t *one =
            json_pack("{s:s, s:s}", "resource", explain_resource_key((explain_resource)is), "name",
                      explain_resource_name((explain_resource)is));
        json_t *saves = json_object();
        for (size_t f = 0; f < sizeof factors / sizeof factors[0]; f++) {
            char key[16];
            snprintf(key, sizeof key, "%g",
                     (double)factors[f].numerator / (double)factors[f].denominator);
            kb_time time = explain_estimate(path, (explain_resource)is, factors[f]);
            cli_json_set(&saves, key, time < 0 ? json_null() : json_integer((json_int_t)time));
        }
        cli_json_set(&one, "saves_fs", saves);
        cli_json_append(&all, one);
    }
    return all;
}

/* ---- All --------------------------------------------------------------------------------- */

static json_t *recorded_json(const explain_path *path)
{
    explain_recorded r = explain_get_recorded(path->recorder);
    return json_pack("{s:I, s:I, s:o, s:I}", "operations", (json_int_t)r.operations, "dropped",
                     (json_int_t)r.dropped, "dropped_from_ns", cli_json_ns(r.dropped_from), "bytes",
                     (json_int_t)r.bytes);
}

static kb_error *fill(const explain_path *path, const run_outcome *outcome, size_t steps,
                      json_t **object)
{
    cli_json_set(object, "fs", json_integer((json_int_t)path->end));
    cli_json_set(object, "ns", cli_json_ns(path->end));
    cli_json_set(object, "steps", json_integer((json_int_t)path->steps.count));
    add_signature(path, object);
    cli_json_set(object, "recorded", recorded_json(path));
    KB_TRY(run_cause_add(path, outcome, object));
    for (int key = 0; key < EXPLAIN_KEYS; key++)
        KB_TRY(add_groups(path, (explain_key)key, object));
    cli_json_set(object, "estimates", estimates_json(path));
    return add_steps(path, steps, object);
}

kb_error *run_path_json(run_path *path, const run_outcome *outcome, size_t steps, json_t **document)
{
    const explain_path *found;
    *document = NULL;
    KB_TRY(run_path_find(path, outcome, &found));
    json_t *object = json_object();
    kb_error *err = fill(found, outcome, steps, &object);
    if (!err && !object)
        err = kb_error_nomem();
    if (err)
        json_decref(object);
    else
        *document = object;
    return err;
}
