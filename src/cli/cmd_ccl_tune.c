/*
 * cmd_ccl_tune.c: the command `ccl tune`: measures which algorithm is the fastest for each size,
 * prints the times, and writes the choice to a file for `auto`.
 */
#include "ccl_tune.h"

#include "cli.h"
#include "cmd_ccl.h"
#include "collective_options.h"
#include "columns.h"
#include "crash.h"
#include "json.h"
#include "machine_options.h"
#include "obs/obs.h"
#include "progress.h"
#include "rt/rt.h"
#include "terminal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct tune_args {
    cli_common common;
    collectives_args collectives;
    size_t collective;
    uint64_t min, max, factor;
    const char *output;
} tune_args;

/* In the order of kb_collective_kind: those that all ranks call. */
static const char *const collective_names[] = {
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce",
    "gather",     "scatter",    "all_to_all",     "all",
};
enum { ALL_COLLECTIVES = KB_ALL_TO_ALL + 1 };

static const cli_option options[] = {
    CLI_OPTION("--collective", "NAME", CLI_ENUM, tune_args, collective,
               "a collective, or all; default: all_reduce", CLI_NAMES(collective_names)),
    CLI_OPTION("--min", "BYTES", CLI_SIZE, tune_args, min,
               "the smallest size of one rank's buffer; default: 1KiB", .min = 1, .max = 0x1p40),
    CLI_OPTION("--max", "BYTES", CLI_SIZE, tune_args, max, "the largest size; default: 16MiB",
               .min = 1, .max = 0x1p40),
    CLI_OPTION("--factor", "N", CLI_UINT, tune_args, factor,
               "ratio of a size to the one before; default: 4", .min = 2, .max = 1 << 20),
    CLI_OPTION("--output", "FILE", CLI_STRING, tune_args, output,
               "writes the present ccl.yaml with a section `tuned`, which has the results"),
    COLLECTIVES_OPTIONS(tune_args),
};

/* ---- Measuring ---- */

static bool is_wanted(const tune_args *args, size_t kind)
{
    return args->collective == ALL_COLLECTIVES || args->collective == kind;
}

/* The sizes end with --max. 0 if there are no more. */
static uint64_t next_size(const tune_args *args, uint64_t bytes)
{
    if (bytes == args->max)
        return 0;
    return bytes * args->factor < args->max ? bytes * args->factor : args->max;
}

static uint64_t count_sizes(const tune_args *args)
{
    uint64_t count = 0;
    for (uint64_t bytes = args->min; bytes != 0; bytes = next_size(args, bytes))
        count++;
    return count;
}

/* Sizes are rounded to whole elements, so two of the requested sizes may be the same. */
static bool is_measured(const tune_results *results, uint64_t bytes)
{
    const tune_rows *rows = &results->rows;
    const tune_row *last = rows->count > 0 ? &rows->items[rows->count - 1] : NULL;
    return last && last->kind == results->kind && last->bytes == bytes;
}

static kb_error *measure_size(kb_context *ctx, const ccl_config *config, tune_results *results)
{
    const ccl_question question = {
        .kind = results->kind,
        .bytes = ccl_whole_size(results->kind, results->ranks.world, KB_F16, results->bytes),
        .dtype = KB_F16,
        .op = KB_SUM,
        .on_refused = tune_exclude_failed,
        .self = results,
    };
    if (is_measured(results, question.bytes))
        return NULL;
    tune_row row = {.kind = results->kind, .bytes = question.bytes};
    kb_error *err = ccl_measure(ctx, config, &question, &row.results);
    if (!err && (results->failed || !kb_vec_push(&results->rows, row)))
        err = kb_error_nomem();
    if (err)
        kb_vec_fini(&row.results);
    return err;
}

static kb_error *measure_all(const tune_args *args, kb_context *ctx, const ccl_config *config,
                             tune_results *results)
{
    uint64_t kinds = args->collective == ALL_COLLECTIVES ? ALL_COLLECTIVES : 1, done = 0;
    cli_progress progress =
        cli_progress_start("sizes", kinds * count_sizes(args), args->common.quiet);
    kb_error *err = NULL;
    for (size_t kind = 0; kind < ALL_COLLECTIVES && !err; kind++) {
        if (!is_wanted(args, kind))
            continue;
        results->kind = (kb_collective_kind)kind;
        tune_exclude_unfit(results, config);
        for (results->bytes = args->min; results->bytes != 0 && !err;
             results->bytes = next_size(args, results->bytes)) {
            err = measure_size(ctx, config, results);
            cli_progress_show(&progress, ++done);
        }
    }
    cli_progress_end(&progress);
    return err;
}

/* ---- Text ---- */

static const ccl_measurement *find_result(const tune_row *row, size_t entry)
{
    for (size_t i = 0; i < row->results.count; i++)
        if (row->results.items[i].entry == entry)
            return &row->results.items[i];
    return NULL;
}

static bool is_in_rows(const tune_row *rows, size_t count, size_t entry)
{
    bool found = false;
    for (size_t i = 0; i < count && !found; i++)
        found = find_result(&rows[i], entry) != NULL;
    return found;
}

/* "* 135.250" for the best, whose mark is before its number so that numbers stay aligned. */
static void add_time(kb_text *cell, const tune_row *row, size_t entry)
{
    const ccl_measurement *result = find_result(row, entry);
    bool is_best = result == &row->results.items[0]; /* of equal times the one that auto selects */
    kb_text_printf(cell, "%s%s", is_best ? "* " : "", result ? obs_ns(result->time).text : "-");
}

/* Rows of one collective; a column for each entry that was measured. */
static kb_error *fill_table(cli_table *table, const ccl_config *config, const tune_row *rows,
                            size_t count, cli_column *columns)
{
    size_t column_count = 2;
    columns[0] = (cli_column)CLI_TEXT("size", CLI_BYTES);
    columns[1] = (cli_column)CLI_TEXT("bound", CLI_NS);
    for (size_t entry = 0; entry < config->entries.count; entry++)
        if (is_in_rows(rows, count, entry))
            columns[column_count++] =
                (cli_column)CLI_TEXT(config->entries.items[entry].name, CLI_FIGURE);
    cli_value *values = kb_alloc_zeroed(column_count, sizeof *values);
    kb_text *times = kb_alloc_zeroed(column_count, sizeof *times);
    cli_table_init(table, columns, column_count);
    for (size_t i = 0; values && times && i < count; i++) {
        size_t column = 2;
        values[0].n = rows[i].bytes;
        values[1].n = rows[i].results.items[0].bound;
        for (size_t entry = 0; entry < config->entries.count; entry++) {
            if (!is_in_rows(rows, count, entry))
                continue;
            times[column].length = 0;
            add_time(&times[column], &rows[i], entry);
            values[column].text = cli_text(&times[column]);
            column++;
        }
        cli_table_row(table, values, column_count);
    }
    for (size_t i = 0; times && i < column_count; i++)
        kb_text_fini(&times[i]);
    bool good = values && times;
    free(values);
    free(times);
    return good ? NULL : kb_error_nomem();
}

static kb_code print_collective(const ccl_config *config, const tune_row *rows, size_t count)
{
    cli_column *columns = kb_alloc_zeroed(config->entries.count + 2, sizeof *columns);
    cli_table table;
    kb_error *err = columns ? fill_table(&table, config, rows, count, columns) : kb_error_nomem();
    kb_code code = err ? cli_report(err) : cli_table_print(&table, stdout);
    free(columns);
    return code;
}

static bool is_same_reason(const tune_excluded *a, const tune_excluded *b)
{
    return a->kind == b->kind && strcmp(a->reason, b->reason) == 0;
}

/* A line for each reason, with all entries that were excluded for it. */
static void print_excluded(const ccl_config *config, const tune_results *results,
                           kb_collective_kind kind)
{
    const tune_excluded *all = results->excluded.items;
    for (size_t i = 0; i < results->excluded.count; i++) {
        size_t first = 0;
        while (!is_same_reason(&all[first], &all[i]))
            first++;
        if (all[i].kind != kind || first != i)
            continue;
        const char *before = "excluded: ";
        for (size_t k = i; k < results->excluded.count; k++) {
            if (!is_same_reason(&all[k], &all[i]))
                continue;
            printf("%s%s", before, config->entries.items[all[k].entry].name);
            before = ", ";
        }
        printf(": %s\n", all[i].reason);
    }
}

static kb_code print_text(const tune_args *args, kb_context *ctx, const ccl_config *config,
                          const tune_results *results)
{
    const tune_rows *rows = &results->rows;
    kb_text title = KB_TEXT_INIT;
    cli_machine_title(rt_machine(ctx), &args->common.settings, &title);
    printf("Machine %s, %" PRIu32 " ranks. Times in ns, * is the best.\n", cli_text(&title),
           results->ranks.world);
    if (!args->common.quiet)
        puts(
            "size: bytes of one rank's buffer (of the larger one, if input and output differ), f16\n"
            "time: all ranks call at once, queues are installed; until the last rank is done\n"
            "bound: minimum time, from bandwidth and vector rate");
    kb_text_fini(&title);
    kb_code code = KB_OK;
    for (size_t first = 0, end; first < rows->count && code == KB_OK; first = end) {
        for (end = first; end < rows->count && rows->items[end].kind == rows->items[first].kind;)
            end++;
        putchar('\n');
        cli_print_heading(stdout, kb_collective_name(rows->items[first].kind));
        code = print_collective(config, &rows->items[first], end - first);
        if (code == KB_OK && !args->common.quiet)
            print_excluded(config, results, rows->items[first].kind);
    }
    if (code == KB_OK && !args->common.quiet)
        puts(
            "\n--set ccl.defaults.algorithm=auto selects the best of each size, =NAME any other, also "
            "an excluded one.\n"
            "Where packets wait for each other, times depend on the order in which links serve them: "
            "a faster link\n"
            "can make an algorithm some percent slower (docs/collectives.md, section 9).");
    return code;
}

static json_t *row_json(const ccl_config *config, const tune_row *row)
{
    json_t *times = json_array();
    for (size_t i = 0; i < row->results.count; i++)
        cli_json_append(&times, json_pack("{s:s, s:o}", "algorithm",
                                          config->entries.items[row->results.items[i].entry].name,
                                          "time_ns", cli_json_ns(row->results.items[i].time)));
    return json_pack("{s:s, s:I, s:o, s:s, s:o}", "collective", kb_collective_name(row->kind),
                     "bytes", (json_int_t)row->bytes, "bound_ns",
                     cli_json_ns(row->results.items[0].bound), "best",
                     config->entries.items[row->results.items[0].entry].name, "results", times);
}

static json_t *excluded_json(const ccl_config *config, const tune_excluded *excluded)
{
    return json_pack("{s:s, s:s, s:s}", "collective", kb_collective_name(excluded->kind),
                     "algorithm", config->entries.items[excluded->entry].name, "why",
                     excluded->reason);
}

static kb_code print_json(const tune_args *args, kb_context *ctx, const ccl_config *config,
                          const tune_results *results)
{
    json_t *rows = json_array(), *excluded = json_array();
    for (size_t i = 0; i < results->rows.count; i++)
        cli_json_append(&rows, row_json(config, &results->rows.items[i]));
    for (size_t i = 0; i < results->excluded.count; i++)
        cli_json_append(&excluded, excluded_json(config, &results->excluded.items[i]));
    return cli_json_print(json_pack("{s:o, s:i, s:o, s:o}", "topology",
                                    cli_json_machine(rt_machine(ctx), &args->common.settings),
                                    "world", (int)results->ranks.world, "rows", rows, "left_out",
                                    excluded));
}

/* ---- The command ---- */

static kb_code finish(const tune_args *args, kb_context *ctx, const collectives *c,
                      const tune_results *results)
{
    const ccl_config *config = &c->config;
    kb_code code = args->common.json ? print_json(args, ctx, config, results)
                                     : print_text(args, ctx, config, results);
    if (code != KB_OK || !args->output)
        return code;
    tune_subject subject = {
        .machine = topo_machine_hash(rt_machine(ctx)),
        .world = results->ranks.world,
    };
    kb_error *err = tune_write(args->output, c->file, config, &subject, &results->rows);
    if (err)
        return cli_report(err);
    if (!args->common.json && !args->common.quiet)
        printf("Wrote %s: with --ccl %s, auto does not need to measure.\n", args->output,
               args->output);
    return KB_OK;
}

static kb_code tune_in(const tune_args *args, kb_context *ctx, const collectives *c)
{
    tune_results results = {0};
    kb_error *err = kb_ccl_get_info(ctx, &results.ranks);
    if (err)
        return cli_report(err);
    if (results.ranks.world < 2)
        return cli_fail(
            KB_ERR_INPUT,
            "cannot tune with a single rank: ranks are SIPs unless defaults of ccl.yaml "
            "say otherwise; add SIPs with --set system.sips.count=2");
    crash_enter_user_code(c->plugin_file);
    err = measure_all(args, ctx, &c->config, &results);
    crash_leave_user_code();
    kb_code code = err ? cli_report(err) : finish(args, ctx, c, &results);
    tune_results_fini(&results);
    return code;
}

/* What ranks are does not depend on what ccl.yaml chooses: as `defaults` say, or else devices. */
static kb_error *open_context(const tune_args *args, const collectives *c, cli_list *settings,
                              kb_context **ctx)
{
    for (size_t i = 0; i < args->common.settings.count; i++)
        if (!kb_vec_push(settings, args->common.settings.items[i]))
            return kb_error_nomem();
    if (!kb_vec_push(settings, "ccl.defaults.algorithm=auto"))
        return kb_error_nomem();
    const kb_context_options o = {
        .topology = args->common.topology,
        .settings = settings->items,
        .setting_count = settings->count,
        .timing_only = true,
        .ccl = c->file,
        .ccl_plugins = c->plugins.items,
        .ccl_plugin_count = c->plugins.count,
    };
    return kb_context_create(&o, ctx);
}

static kb_code check_options(const cli_call *call)
{
    const tune_args *args = call->args;
    return args->min > args->max ? cli_fail(KB_ERR_INPUT, "--min is greater than --max") : KB_OK;
}

static kb_code run_tune(const cli_call *call)
{
    const tune_args *args = call->args;
    collectives c;
    cli_list settings = {0};
    kb_context *ctx = NULL;
    kb_code code = collectives_init(&c, &args->collectives, &args->common.settings);
    if (code == KB_OK) {
        kb_error *err = open_context(args, &c, &settings, &ctx);
        code = err ? cli_report(err) : tune_in(args, ctx, &c);
    }
    kb_context_destroy(ctx);
    cli_list_fini(&settings);
    collectives_fini(&c);
    return code;
}

const cli_command ccl_tune_command = {
    .name = "ccl tune",
    .arguments = "[OPTIONS]",
    .summary = "measure which algorithm is the fastest for each size",
    .help =
        "Runs all algorithms that auto can select, between all ranks (SIPs, unless defaults of\n"
        "ccl.yaml say otherwise), without data. Times are those of run --bench ccl_NAME for the same\n"
        "size and algorithm. With the file of --output, given with --ccl, auto does not measure.\n",
    .example = "Example: kernbench ccl tune --max 1MiB --output ccl.yaml\n"
               "Example: kernbench ccl tune --collective all --set system.sips.count=4\n",
    CLI_OPTIONS(options),
    CLI_ARGS(tune_args, .min = 1 << 10, .max = 16 << 20, .factor = 4),
    .machine = CLI_MACHINE_OPTIONS,
    .check = check_options,
    .run = run_tune,
};
