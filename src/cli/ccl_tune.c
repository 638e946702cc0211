/*
 * ccl_tune.c: the command that measures which algorithm is the best for which size, shows it, and
 * writes it down for `auto`.
 */
#include "ccl_tune.h"

#include "ccl.h"
#include "cli.h"
#include "collectives.h"
#include "crash.h"
#include "json.h"
#include "machine.h"
#include "obs/obs.h"
#include "progress.h"
#include "rt/rt.h"
#include "table.h"

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

/* In the order of kb_collective_kind; those that a program can call for all ranks. */
static const char *const collective_names[] = {
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce",
    "gather",     "scatter",    "all_to_all",     "all",
};
enum { ALL_COLLECTIVES = KB_ALL_TO_ALL + 1 };

static const cli_option options[] = {
    {.name = "--collective",
     .value = "NAME",
     .help = "which, or all; default: all_reduce",
     .kind = CLI_ENUM,
     CLI_NAMES(collective_names),
     CLI_INTO(tune_args, collective)},
    {.name = "--min",
     .value = "BYTES",
     .help = "the smallest size of one rank's buffer; default: 1KiB",
     .kind = CLI_BYTES,
     .min = 1,
     .max = 0x1p40,
     CLI_INTO(tune_args, min)},
    {.name = "--max",
     .value = "BYTES",
     .help = "the largest size; default: 16MiB",
     .kind = CLI_BYTES,
     .min = 1,
     .max = 0x1p40,
     CLI_INTO(tune_args, max)},
    {.name = "--factor",
     .value = "N",
     .help = "from size to size; default: 4",
     .kind = CLI_UINT,
     .min = 2,
     .max = 1 << 20,
     CLI_INTO(tune_args, factor)},
    {.name = "--output",
     .value = "FILE",
     .help = "writes a ccl.yaml with what was found out: the present one and a section `tuned`",
     .kind = CLI_STRING,
     CLI_INTO(tune_args, output)},
    COLLECTIVES_OPTIONS(tune_args),
};

/* ---- Measuring ---- */

static bool is_wanted(const tune_args *args, size_t kind)
{
    return args->collective == ALL_COLLECTIVES || args->collective == kind;
}

/* The largest is always among them. 0 if there are no more. */
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

/* Sizes of whole elements may be the same for two sizes that are asked for: then it is done. */
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
        .on_refused = tune_note_refused,
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
        tune_note_unfit(results, config);
        for (results->bytes = args->min; results->bytes != 0 && !err;
             results->bytes = next_size(args, results->bytes)) {
            err = measure_size(ctx, config, results);
            cli_progress_show(&progress, ++done);
        }
    }
    cli_progress_end(&progress);
    return err;
}

/* ---- Showing ---- */

static const ccl_measurement *find_result(const tune_row *row, size_t entry)
{
    for (size_t i = 0; i < row->results.count; i++)
        if (row->results.items[i].entry == entry)
            return &row->results.items[i];
    return NULL;
}

/* The rows of one collective, from `first` on; the columns are the entries that could do it. The
 * mark of the best is before its number, so that numbers end where their heads do. */
static kb_code print_collective(const ccl_config *config, const tune_rows *rows, size_t first,
                                size_t end)
{
    cli_column *columns = kb_alloc_zeroed(config->entries.count + 2, sizeof *columns);
    size_t *entries = kb_alloc_array(config->entries.count, sizeof *entries);
    if (!columns || !entries) {
        free(columns);
        free(entries);
        return cli_report(kb_error_nomem());
    }
    size_t count = 0;
    columns[0].title = "size";
    columns[1].title = "bound";
    for (size_t entry = 0; entry < config->entries.count; entry++) {
        bool measured = false;
        for (size_t i = first; i < end; i++)
            measured = measured || find_result(&rows->items[i], entry);
        if (!measured)
            continue;
        columns[count + 2].title = config->entries.items[entry].name;
        entries[count++] = entry;
    }
    cli_table table;
    cli_table_init(&table, columns, count + 2);
    for (size_t i = first; i < end; i++) {
        const tune_row *row = &rows->items[i];
        cli_table_cell(&table, "%s", obs_bytes(row->bytes).text);
        cli_table_cell(&table, "%s", obs_ns(row->results.items[0].bound).text);
        for (size_t k = 0; k < count; k++) {
            const ccl_measurement *result = find_result(row, entries[k]);
            bool best = result == &row->results.items[0]; /* of equals what auto takes */
            cli_table_cell(&table, "%s%s", best ? "* " : "",
                           result ? obs_ns(result->time).text : "-");
        }
    }
    kb_code code = cli_table_print(&table, stdout);
    free(columns);
    free(entries);
    return code;
}

static bool is_same_reason(const tune_left_out *a, const tune_left_out *b)
{
    return a->kind == b->kind && strcmp(a->why, b->why) == 0;
}

/* A line for each reason, with all that were left out for it. */
static void print_left_out(const ccl_config *config, const tune_results *results,
                           kb_collective_kind kind)
{
    const tune_left_out *all = results->left_out.items;
    for (size_t i = 0; i < results->left_out.count; i++) {
        size_t first = 0;
        while (!is_same_reason(&all[first], &all[i]))
            first++;
        if (all[i].kind != kind || first != i)
            continue;
        const char *before = "left out: ";
        for (size_t k = i; k < results->left_out.count; k++) {
            if (!is_same_reason(&all[k], &all[i]))
                continue;
            printf("%s%s", before, config->entries.items[all[k].entry].name);
            before = ", ";
        }
        printf(": %s\n", all[i].why);
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
            "time: all ranks call at one instant, queues are installed; until the last rank is done\n"
            "bound: from bandwidth and vector rate alone; no algorithm can be faster");
    kb_text_fini(&title);
    kb_code code = KB_OK;
    for (size_t first = 0, end; first < rows->count && code == KB_OK; first = end) {
        for (end = first; end < rows->count && rows->items[end].kind == rows->items[first].kind;)
            end++;
        putchar('\n');
        cli_print_heading(stdout, kb_collective_name(rows->items[first].kind));
        code = print_collective(config, rows, first, end);
        if (code == KB_OK && !args->common.quiet)
            print_left_out(config, results, rows->items[first].kind);
    }
    if (code == KB_OK && !args->common.quiet)
        puts(
            "\n--set ccl.defaults.algorithm=auto takes the best of each size, =NAME any other, also "
            "one that was left out.\n"
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

static json_t *left_out_json(const ccl_config *config, const tune_left_out *left_out)
{
    return json_pack("{s:s, s:s, s:s}", "collective", kb_collective_name(left_out->kind),
                     "algorithm", config->entries.items[left_out->entry].name, "why",
                     left_out->why);
}

static kb_code print_json(const tune_args *args, kb_context *ctx, const ccl_config *config,
                          const tune_results *results)
{
    json_t *rows = json_array(), *left_out = json_array();
    for (size_t i = 0; i < results->rows.count; i++)
        cli_json_append(&rows, row_json(config, &results->rows.items[i]));
    for (size_t i = 0; i < results->left_out.count; i++)
        cli_json_append(&left_out, left_out_json(config, &results->left_out.items[i]));
    return cli_json_print(json_pack("{s:o, s:i, s:o, s:o}", "topology",
                                    cli_json_machine(rt_machine(ctx), &args->common.settings),
                                    "world", (int)results->ranks.world, "rows", rows, "left_out",
                                    left_out));
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
        printf("Written to %s: with --ccl %s auto takes it without measuring.\n", args->output,
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
        return cli_fail(KB_ERR_INPUT,
                        "there is one rank, so there is nothing to measure: ranks are SIPs, and "
                        "--set system.sips.count=2 adds one, or what defaults of ccl.yaml say");
    crash_blame(c->plugin_file);
    err = measure_all(args, ctx, &c->config, &results);
    crash_blame(NULL);
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

static kb_code run_with(const tune_args *args)
{
    collectives c;
    cli_list settings = {0};
    kb_context *ctx = NULL;
    if (args->min > args->max)
        return cli_fail(KB_ERR_INPUT, "--min is more than --max");
    kb_code code = collectives_open(&args->collectives, &c);
    if (code == KB_OK)
        code = collectives_load(&c, &args->common.settings);
    if (code == KB_OK) {
        kb_error *err = open_context(args, &c, &settings, &ctx);
        code = err ? cli_report(err) : tune_in(args, ctx, &c);
    }
    kb_context_destroy(ctx);
    cli_list_fini(&settings);
    collectives_close(&c);
    return code;
}

static kb_code run_tune(const cli_command *self, int argc, char **argv)
{
    tune_args args = {.min = 1 << 10, .max = 16 << 20, .factor = 4};
    kb_code code = cli_parse(self, &argc, argv, &args);
    if (code == KB_OK)
        code = run_with(&args);
    collectives_args_fini(&args.collectives);
    cli_common_fini(&args.common);
    return code;
}

const cli_command ccl_tune_command = {
    .name = "ccl tune",
    .arguments = "[OPTIONS]",
    .summary = "which algorithm is the fastest for which size, by running them",
    .help =
        "All algorithms are run that auto may choose from, between all ranks (SIPs, unless defaults\n"
        "of ccl.yaml say otherwise), without data. A time is what run --bench ccl_NAME reports for the same\n"
        "size and algorithm. With --output auto need not measure any more: give the file with --ccl.\n",
    .example = "Example: kernbench ccl tune --max 1MiB --output ccl.yaml\n"
               "Example: kernbench ccl tune --collective all --set system.sips.count=4\n",
    CLI_OPTIONS(options),
    .has_machine = true,
    .run = run_tune,
};
