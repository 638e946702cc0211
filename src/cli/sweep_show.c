/*
 * sweep_show.c: see sweep_show.h. The results are read from the store, in the order of the plan, so
 * what is printed does not depend on when and where points ran.
 */
#include "sweep_show.h"

#include <inttypes.h>

#include "cli.h"
#include "json.h"
#include "sweep_status.h"

/* ---- Reading the store --------------------------------------------------------------------- */

typedef struct filling {
    sweep_results *results;
    size_t row;
} filling;

static kb_error *add_figure(void *self, const char *name, double value)
{
    const filling *f = self;
    sweep_results_set_figure(f->results, f->row, name, value);
    return NULL;
}

static kb_error *add_status(void *self, const store_row *run)
{
    const filling *f = self;
    sweep_results_set_status(f->results, f->row, store_status_name(run->status),
                             run->status == STORE_OK, run->message);
    return NULL;
}

static kb_error *fill_row(const sweep_show_input *in, filling *f, sweep_point *point)
{
    const sweep_outcome *outcome = sweep_drive_outcome(in->drive, f->row);
    KB_TRY(sweep_plan_point(in->plan, f->row, point));
    for (size_t c = 0; c < in->plan->columns.count; c++)
        if (point->cells[c])
            sweep_results_set_axis(f->results, f->row, c, point->cells[c]);
    if (!outcome->done)
        return NULL;
    if (outcome->status == STORE_OK) {
        sweep_results_set_status(f->results, f->row, store_status_name(STORE_OK), true, NULL);
    } else {
        store_filter filter = {.run = outcome->run};
        KB_TRY(store_each_run(in->store, &filter, add_status, f));
    }
    return store_each_figure(in->store, outcome->run, add_figure, f);
}

static kb_error *fill(const sweep_show_input *in, sweep_results *results)
{
    filling f = {.results = results};
    sweep_point point = {0};
    kb_error *err = NULL;
    for (; f.row < in->plan->point_count && !err; f.row++)
        err = fill_row(in, &f, &point);
    sweep_point_fini(&point);
    return err ? err : sweep_results_finish(results);
}

static kb_error *read_results(const sweep_show_input *in, sweep_results **out)
{
    const sweep_plan *plan = in->plan;
    KB_TRY(sweep_results_create(plan->columns.items, plan->columns.count, plan->point_count, out));
    kb_error *err = fill(in, *out);
    bool has_figures = (*out)->columns.count > plan->columns.count; /* else all have failed */
    for (size_t d = 0; d < plan->derived.count && !err && has_figures; d++)
        err = sweep_results_derive(*out, plan->derived.items[d].name,
                                   plan->derived.items[d].expression);
    if (!err)
        return NULL;
    sweep_results_destroy(*out);
    *out = NULL;
    return err;
}

static size_t count_failed(const sweep_show_input *in)
{
    size_t failed = 0;
    for (size_t i = 0; i < in->plan->point_count; i++)
        failed += sweep_drive_outcome(in->drive, i)->status != STORE_OK;
    return failed;
}

kb_code sweep_show_results(const sweep_show_input *in)
{
    const sweep_plan *plan = in->plan;
    sweep_results *results = NULL;
    KB_VEC(const char *) derived = {0};
    kb_error *err = NULL;
    for (size_t d = 0; d < plan->derived.count && !err; d++)
        if (!kb_vec_push(&derived, plan->derived.items[d].name))
            err = kb_error_nomem();
    if (!err)
        err = read_results(in, &results);
    kb_code code = err ? cli_report(err)
                       : sweep_report_print(results, in->report, derived.items, derived.count,
                                            in->common->json, in->common->quiet);
    if (code == KB_ERR_CHECK)
        code = cli_fail(code, "%zu of %zu points failed", count_failed(in), plan->point_count);
    sweep_results_destroy(results);
    kb_vec_fini(&derived);
    return code;
}

/* ---- The plan ------------------------------------------------------------------------------- */

enum { LISTED_POINTS = 100 };

static kb_error *list_points(const sweep_show_input *in)
{
    const sweep_plan *plan = in->plan;
    sweep_point point = {0};
    kb_error *err = NULL;
    size_t listed = plan->point_count < LISTED_POINTS ? plan->point_count : LISTED_POINTS;
    for (size_t i = 0; i < listed && !err; i++) {
        kb_text line = KB_TEXT_INIT;
        err = sweep_plan_point(plan, i, &point);
        for (size_t c = 0; c < plan->columns.count && !err; c++)
            if (point.cells[c])
                kb_text_printf(&line, "  %s=%s", plan->columns.items[c], point.cells[c]);
        kb_text_escape_from(&line, 0);
        printf("%s%s\n", line.length > 0 ? cli_text(&line) : "  one point",
               sweep_drive_is_stored(in->drive, i) ? "  (stored)" : "");
        kb_text_fini(&line);
    }
    if (listed < plan->point_count)
        printf("  ... and %zu more\n", plan->point_count - listed);
    sweep_point_fini(&point);
    return err;
}

/* As in the document of the results. */
static json_t *cell_json(const char *text)
{
    sweep_value value = sweep_value_of_text(text);
    return value.is_number ? cli_json_real(value.number) : cli_json_text(text);
}

static json_t *points_json(const sweep_show_input *in, kb_error **err)
{
    json_t *points = json_array();
    sweep_point point = {0};
    for (size_t i = 0; i < in->plan->point_count && !*err; i++) {
        json_t *axes = json_object();
        *err = sweep_plan_point(in->plan, i, &point);
        for (size_t c = 0; c < in->plan->columns.count && !*err; c++)
            if (point.cells[c])
                cli_json_set(&axes, in->plan->columns.items[c], cell_json(point.cells[c]));
        cli_json_append(&points, axes);
    }
    sweep_point_fini(&point);
    return points;
}

/* `seconds`: negative if the time is not known. */
static kb_code print_plan_json(const sweep_show_input *in, double seconds)
{
    kb_error *err = NULL;
    json_t *points = points_json(in, &err);
    if (err) {
        json_decref(points);
        return cli_report(err);
    }
    json_int_t stored = (json_int_t)sweep_drive_stored(in->drive);
    return cli_json_print(
        json_pack("{s:I, s:I, s:I, s:o, s:o}", "points", (json_int_t)in->plan->point_count,
                  "stored", stored, "workers", (json_int_t)in->workers, "estimated_s",
                  seconds < 0 ? json_null() : cli_json_real(seconds), "list", points));
}

kb_code sweep_show_plan(const sweep_show_input *in)
{
    double seconds;
    kb_error *err = sweep_drive_estimate(in->drive, in->workers, &seconds);
    if (!err && in->common->json)
        return print_plan_json(in, seconds);
    size_t stored = sweep_drive_stored(in->drive), points = in->plan->point_count;
    if (!err) {
        printf("%zu point%s, %zu stored, %zu to run:\n", points, kb_plural(points), stored,
               points - stored);
        err = list_points(in);
    }
    if (err)
        return cli_report(err);
    if (points == stored)
        return KB_OK;
    kb_text time = KB_TEXT_INIT;
    sweep_append_duration(&time, seconds);
    if (seconds < 0)
        printf("The time is not known: none of the points that were tried has ended well.\n");
    else
        printf("About %s with %zu worker%s, by points that ran.\n", cli_text(&time), in->workers,
               kb_plural(in->workers));
    kb_text_fini(&time);
    return KB_OK;
}
