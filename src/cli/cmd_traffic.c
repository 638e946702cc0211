/* cmd_traffic.c: the command `traffic`: latency and throughput under synthetic traffic. */
#include "cli.h"
#include "columns.h"
#include "json.h"
#include "machine_options.h"
#include "obs/obs.h"
#include "progress.h"
#include "report_page.h"

#include <stdlib.h>
#include <string.h>

#include "measure/measure.h"

typedef struct traffic_args {
    cli_common common;
    size_t pattern, process, level;
    const char *rate, *warmup, *measure, *hot, *report;
    uint64_t bytes, seed;
} traffic_args;

static const cli_option options[] = {
    CLI_OPTION("--pattern", "NAME", CLI_ENUM, traffic_args, pattern,
               "destinations: uniform (default), transpose, bitcomp, neighbor, hotspot",
               CLI_NAMES(traffic_pattern_names)),
    CLI_OPTION("--level", "NAME", CLI_ENUM, traffic_args, level,
               "scope of the traffic: cube (default), sip, or system",
               CLI_NAMES(traffic_level_names)),
    CLI_OPTION("--process", "NAME", CLI_ENUM, traffic_args, process,
               "issue times of transfers: bernoulli (default): in each packet time with the\n"
               "same probability; poisson: at any time",
               CLI_NAMES(traffic_process_names)),
    CLI_OPTION("--rate", "R", CLI_STRING, traffic_args, rate,
               "offered load as a fraction of the bandwidth of a PE's link to its router;\n"
               "default: 0.1"),
    CLI_OPTION("--bytes", "N", CLI_SIZE, traffic_args, bytes,
               "size of a transfer in bytes, or as 64KiB; default: one packet", .min = 1,
               .max = (double)TRAFFIC_MAX_BYTES),
    CLI_OPTION("--seed", "N", CLI_UINT, traffic_args, seed,
               "seed of the random numbers; default: 1"),
    CLI_OPTION("--warmup-ns", "T", CLI_STRING, traffic_args, warmup,
               "warm-up: simulated ns before the measurement window; default: 2000"),
    CLI_OPTION("--measure-ns", "T", CLI_STRING, traffic_args, measure,
               "length of the measurement window in simulated ns; default: 10000"),
    CLI_OPTION("--hot", "X,Y", CLI_STRING, traffic_args, hot,
               "with --pattern hotspot: the destination router; default: the one with PEs\n"
               "nearest to the middle"),
    CLI_OPTION("--report", "FILE", CLI_STRING, traffic_args, report,
               "also writes the results as one HTML page"),
};

/* ---- Options ----------------------------------------------------------------------------- */

/* An option whose value is a decimal number; min and max are times 10^digits. */
typedef struct decimal_option {
    const char *name;
    int digits;
    int64_t min, max;
} decimal_option;

static kb_code read_decimal(const decimal_option *option, const char *text, int64_t *value)
{
    char buffer[CLI_CLIP];
    kb_decimal_result result = kb_decimal_parse(text, option->digits, value);
    if (result == KB_DECIMAL_OK && *value >= option->min && *value <= option->max)
        return KB_OK;
    if (result == KB_DECIMAL_TOO_FINE)
        return cli_fail(KB_ERR_INPUT, "%s: expected at most %d digits after the point, found '%s'",
                        option->name, option->digits, cli_clip(text, buffer));
    kb_text range = KB_TEXT_INIT;
    kb_decimal_print_range(option->min, option->max, option->digits, &range);
    kb_code code = cli_fail(KB_ERR_INPUT, "%s: expected a decimal number %s, found '%s'",
                            option->name, kb_text_peek(&range), cli_clip(text, buffer));
    kb_text_fini(&range);
    return code;
}

static kb_code read_hot(const char *text, traffic_options *o)
{
    char x[16];
    uint64_t at[2] = {UINT64_MAX, UINT64_MAX};
    const char *comma = strchr(text, ',');
    if (comma && (size_t)(comma - text) < sizeof x) {
        memcpy(x, text, (size_t)(comma - text));
        x[comma - text] = '\0';
        if (!cli_read_uint(x, &at[0]) || !cli_read_uint(comma + 1, &at[1]))
            at[0] = UINT64_MAX;
    }
    if (at[0] > UINT32_MAX || at[1] > UINT32_MAX) {
        char buffer[CLI_CLIP];
        return cli_fail(KB_ERR_INPUT, "--hot: expected a router, such as 3,3, found '%s'",
                        cli_clip(text, buffer));
    }
    o->hot_given = true;
    o->hot_x = (uint32_t)at[0];
    o->hot_y = (uint32_t)at[1];
    return KB_OK;
}

static kb_code read_args(const traffic_args *args, const topo_machine *machine, traffic_options *o)
{
    *o = (traffic_options){
        .pattern = (traffic_pattern)args->pattern,
        .process = (traffic_process)args->process,
        .level = (traffic_level)args->level,
        .bytes = args->bytes > 0 ? args->bytes : topo_machine_shape(machine)->fabric.packet_bytes,
        .seed = args->seed,
    };
    static const decimal_option rate_option = {"--rate", 9, 1, (int64_t)TRAFFIC_MAX_RATE};
    static const decimal_option warmup_option = {"--warmup-ns", 6, 0, TRAFFIC_MAX_TIME};
    static const decimal_option measure_option = {"--measure-ns", 6, 2, TRAFFIC_MAX_TIME};
    int64_t rate = 0;
    kb_code code = read_decimal(&rate_option, args->rate, &rate);
    o->rate_ppb = (uint64_t)rate;
    if (code == KB_OK)
        code = read_decimal(&warmup_option, args->warmup, &o->warmup);
    if (code == KB_OK)
        code = read_decimal(&measure_option, args->measure, &o->measure);
    if (code == KB_OK && args->hot)
        code = read_hot(args->hot, o);
    return code;
}

/* ---- Results ----------------------------------------------------------------------------- */

/* What the links of a kind carried in the window. */
typedef struct kind_load {
    const link_class *kind;
    double mean, max; /* utilization */
    kb_time_sum waited_fs;
} kind_load;

typedef struct traffic_view {
    const topo_machine *machine;
    const cli_common *common;
    const traffic_options *options;
    const traffic_result *result;
    const kind_load *kinds; /* the one with the busiest link first */
    size_t kind_count;
} traffic_view;

/* ---- Tables ------------------------------------------------------------------------------ */

static const cli_column link_columns[] = {
    CLI_COLUMN("busiest links", "link", CLI_LINK),
    CLI_COLUMN("bytes", "bytes", CLI_COUNT),
    CLI_COLUMN("util %", "utilization", CLI_SHARE),
    CLI_COLUMN("waited ns, sum", "waited_ns", CLI_NS),
};

static void add_links(cli_table *table, const void *view)
{
    const traffic_view *v = view;
    for (uint32_t i = 0; i < v->result->busiest_count; i++) {
        const traffic_link *link = &v->result->busiest[i];
        CLI_ROW(table, {.n = link->link}, {.n = link->bytes}, {.real = link->utilization},
                {.n = link->waited_fs});
    }
}

static const cli_rows busiest_links = {CLI_COLUMNS(link_columns), add_links};

static const cli_column kind_columns[] = {
    CLI_COLUMN("links by kind", "between", CLI_LINK_CLASS),
    CLI_JSON("service", CLI_BOOL),
    CLI_COLUMN("GB/s", "gbs", CLI_RATE),
    CLI_COLUMN("count", "count", CLI_COUNT),
    CLI_COLUMN("mean util %", "mean_utilization", CLI_SHARE),
    CLI_COLUMN("max util %", "max_utilization", CLI_SHARE),
    CLI_COLUMN("waited ns, sum", "waited_ns", CLI_NS),
};

/* The text has only kinds that carried something. */
static void add_kinds(cli_table *table, const void *view)
{
    const traffic_view *v = view;
    for (size_t i = 0; i < v->kind_count && (table->is_json || v->kinds[i].max > 0); i++) {
        const kind_load *k = &v->kinds[i];
        CLI_ROW(table, {.link_class = k->kind}, {.n = k->kind->service}, {.n = k->kind->rate},
                {.n = k->kind->count}, {.real = k->mean}, {.real = k->max}, {.n = k->waited_fs});
    }
}

static const cli_rows links_by_kind = {CLI_COLUMNS(kind_columns), add_kinds};

/* ---- Text -------------------------------------------------------------------------------- */

static double rate_gbs(const traffic_result *r)
{
    return (double)r->bytes_per_s / (double)TOPO_GBS;
}

static double per_second(uint64_t count, double seconds)
{
    return seconds > 0 ? (double)count / seconds : 0;
}

static kb_time nearest_fs(double time)
{
    return (kb_time)(time + 0.5);
}

static void print_load(const char *name, double load, const traffic_result *r)
{
    printf("  %-9s %6.2f %% of each PE's %s GB/s: %s GB/s per PE, %s GB/s total\n", name,
           100 * load, obs_rate(r->bytes_per_s).text, obs_gbs(load * rate_gbs(r)).text,
           obs_gbs(load * rate_gbs(r) * (double)r->pes).text);
}

/* The first few arrivals had the shortest routes: they do not represent the others. */
static bool has_latency(const traffic_result *r)
{
    return r->arrived > 0 && 20 * r->arrived >= r->measured;
}

static void print_latency(const traffic_view *v)
{
    const traffic_result *r = v->result;
    if (!has_latency(r)) {
        printf("  latency   not meaningful: only %s of %s measured transfers arrived\n",
               obs_count(r->arrived).text, obs_count(r->measured).text);
        return;
    }
    printf("  latency   mean %s ns, p50 %s ns, p99 %s ns, max %s ns\n",
           obs_ns(nearest_fs(r->mean_fs)).text, obs_ns(r->p50_fs).text, obs_ns(r->p99_fs).text,
           obs_ns(r->max_fs).text);
    printf("            over %s transfers issued in the window of %s ns\n",
           obs_count(r->arrived).text, obs_ns(v->options->measure).text);
}

static void print_saturation(const traffic_result *r)
{
    if (!r->saturated)
        return;
    printf("  saturated: offered load exceeds throughput, so latency grows with the length of the\n"
           "            run%s\n",
           r->arrived < r->measured && has_latency(r) ? "; the latency shown is a lower bound"
                                                      : "");
}

/* Why the run ended before all transfers arrived. */
static void print_end(const traffic_view *v)
{
    const traffic_result *r = v->result;
    if (r->end == TRAFFIC_CROWDED)
        printf("  cut off   at %s ns, with %s transfers in flight: the maximum of a run\n",
               obs_ns(r->ended_fs).text, obs_count(r->live).text);
    if (r->end == TRAFFIC_PATIENCE)
        printf(
            "  cut off   at %s ns, ten windows after the measurement window: %s of its transfers\n"
            "            had not arrived\n",
            obs_ns(r->ended_fs).text, obs_count(r->measured - r->arrived).text);
    if (r->too_short)
        printf("  too short: a single transfer takes up to %s ns, so the window does not show the\n"
               "            throughput; try --measure-ns %s\n",
               obs_ns(r->lone_fs).text, obs_ns((kb_time_sum)10 * r->lone_fs).text);
}

static void print_title(const traffic_view *v)
{
    const traffic_options *o = v->options;
    kb_text title = KB_TEXT_INIT;
    cli_machine_title(v->machine, &v->common->settings, &title);
    printf("Traffic on machine %s: %s within %s %s, %s\n", cli_text(&title),
           traffic_pattern_names[o->pattern], o->level == TRAFFIC_SYSTEM ? "the" : "each",
           traffic_level_names[o->level], traffic_process_names[o->process]);
    kb_text_fini(&title);
}

static kb_code print_text(const traffic_view *v)
{
    const traffic_options *o = v->options;
    const traffic_result *r = v->result;
    print_title(v);
    printf("  %s PE%s, transfers of %s, seed %llu\n", obs_count(r->pes).text, kb_plural(r->pes),
           obs_bytes(o->bytes).text, (unsigned long long)o->seed);
    print_load("offered", r->offered, r);
    print_load("accepted", r->accepted, r);
    print_latency(v);
    print_saturation(r);
    print_end(v);
    printf("\n");
    kb_code code = cli_rows_print(&busiest_links, v->machine, v);
    printf("\n");
    if (code == KB_OK)
        code = cli_rows_print(&links_by_kind, v->machine, v);
    if (!v->common->quiet)
        printf(
            "\n  waited: sum over all packets of their waiting time for the link. Each direction of a\n"
            "  link is counted separately.\n"
            "\n  %s transfers, %s hops, %s events in %.2f s: %.2f million hops/s\n",
            obs_count(r->transfers).text, obs_count(r->hops).text, obs_count(r->events).text,
            r->wall_s, per_second(r->hops, r->wall_s) / 1e6);
    return code;
}

/* ---- JSON -------------------------------------------------------------------------------- */

/* null if too few transfers arrived. */
static json_t *latency_json(const traffic_result *r, double time)
{
    return has_latency(r) ? cli_json_real(time / (double)KB_NS) : json_null();
}

static json_t *options_json(const traffic_view *v)
{
    const traffic_options *o = v->options;
    return json_pack("{s:o, s:s, s:s, s:s, s:I, s:I, s:o, s:o}", "topology",
                     cli_json_machine(v->machine, &v->common->settings), "pattern",
                     traffic_pattern_names[o->pattern], "process",
                     traffic_process_names[o->process], "level", traffic_level_names[o->level],
                     "nbytes", (json_int_t)o->bytes, "seed", (json_int_t)o->seed, "warmup_ns",
                     cli_json_ns(o->warmup), "measure_ns", cli_json_ns(o->measure));
}

static json_t *result_json(const traffic_view *v)
{
    const traffic_result *r = v->result;
    static const char *const ends[] = {
        [TRAFFIC_COMPLETE] = NULL, [TRAFFIC_PATIENCE] = "patience", [TRAFFIC_CROWDED] = "memory"};
    double gbs = rate_gbs(r), all = gbs * (double)r->pes;
    return json_pack(
        "{s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:s?, s:b, s:I, s:I, s:o, s:o, s:o, s:o, s:o,"
        " s:o, s:o, s:I, s:I, s:I, s:o, s:o}",
        "pes", (json_int_t)r->pes, "injection_gbs", cli_json_rate(r->bytes_per_s), "offered",
        cli_json_real(r->offered), "offered_gbs", cli_json_real(r->offered * all),
        "offered_gbs_per_pe", cli_json_real(r->offered * gbs), "created", cli_json_real(r->created),
        "accepted", cli_json_real(r->accepted), "accepted_gbs", cli_json_real(r->accepted * all),
        "accepted_gbs_per_pe", cli_json_real(r->accepted * gbs), "saturated", r->saturated,
        "cut_off", ends[r->end], "too_short", r->too_short, "measured", (json_int_t)r->measured,
        "arrived", (json_int_t)r->arrived, "mean_ns", latency_json(r, r->mean_fs), "p50_ns",
        latency_json(r, (double)r->p50_fs), "p99_ns", latency_json(r, (double)r->p99_fs), "max_ns",
        latency_json(r, (double)r->max_fs), "busiest_links",
        cli_rows_json(&busiest_links, v->machine, v), "links_by_kind",
        cli_rows_json(&links_by_kind, v->machine, v), "sim_ns", cli_json_ns(r->ended_fs),
        "transfers", (json_int_t)r->transfers, "events", (json_int_t)r->events, "hops",
        (json_int_t)r->hops, "wall_s", cli_json_real(r->wall_s), "hops_per_s",
        cli_json_real(per_second(r->hops, r->wall_s)));
}

static json_t *make_document(const traffic_view *v)
{
    json_t *document = options_json(v), *result = result_json(v);
    if (!document || !result || json_object_update(document, result) != 0) {
        json_decref(document);
        document = NULL;
    }
    json_decref(result);
    return document;
}

/* ---- Running ----------------------------------------------------------------------------- */

static void show_progress(void *self, const traffic_progress *progress)
{
    cli_progress_show(self, (uint64_t)(progress->now / KB_NS));
}

/* Descending utilization of the busiest link; ties: order of kinds. */
static int compare_kinds(const void *a, const void *b)
{
    const kind_load *x = a, *y = b;
    if (x->max < y->max || x->max > y->max)
        return x->max < y->max ? 1 : -1;
    return (x->kind > y->kind) - (x->kind < y->kind);
}

static void sum_kinds(const topo_machine *machine, const link_classes *classes,
                      const traffic_link *links, kind_load *kinds)
{
    for (size_t i = 0; i < classes->all.count; i++)
        kinds[i] = (kind_load){.kind = &classes->all.items[i]};
    for (uint32_t link = 0; link < topo_machine_graph(machine)->links.count; link++) {
        kind_load *k = &kinds[link_classes_index(classes, machine, link)];
        k->mean += links[link].utilization / (double)k->kind->count;
        if (links[link].utilization > k->max)
            k->max = links[link].utilization;
        k->waited_fs += links[link].waited_fs;
    }
    qsort(kinds, classes->all.count, sizeof *kinds, compare_kinds);
}

static void append_number(kb_text *command, const char *option, uint64_t number)
{
    kb_text_printf(command, " %s %llu", option, (unsigned long long)number);
}

/* What makes the same measurement again. */
static void compose_command(const traffic_view *v, const traffic_args *args, kb_text *command)
{
    kb_text_puts(command, "kernbench traffic");
    cli_append_option(command, "--pattern", traffic_pattern_names[args->pattern]);
    cli_append_option(command, "--level", traffic_level_names[args->level]);
    cli_append_option(command, "--process", traffic_process_names[args->process]);
    cli_append_option(command, "--rate", args->rate);
    append_number(command, "--bytes", v->options->bytes);
    append_number(command, "--seed", args->seed);
    cli_append_option(command, "--warmup-ns", args->warmup);
    cli_append_option(command, "--measure-ns", args->measure);
    if (args->hot)
        cli_append_option(command, "--hot", args->hot);
    cli_machine_options(v->common, command);
}

static kb_code write_report(const traffic_view *v, const traffic_args *args)
{
    json_t *document = make_document(v);
    kb_text command = KB_TEXT_INIT;
    compose_command(v, args, &command);
    kb_error *err = document ? report_write_document(args->report, document, cli_text(&command))
                             : kb_error_nomem();
    kb_text_fini(&command);
    json_decref(document);
    return err ? cli_report(err) : KB_OK;
}

static kb_code print_result(traffic_view *v, const traffic_args *args, const traffic_link *links)
{
    link_classes classes;
    kb_error *err = link_classes_init(&classes, v->machine);
    if (err)
        return cli_report(err);
    kind_load *kinds = kb_alloc_array(classes.all.count, sizeof *kinds);
    kb_code code;
    if (kinds) {
        sum_kinds(v->machine, &classes, links, kinds);
        v->kinds = kinds;
        v->kind_count = classes.all.count;
        code = v->common->json ? cli_json_print(make_document(v)) : print_text(v);
        if (code == KB_OK && args->report)
            code = write_report(v, args);
    } else {
        code = cli_report(kb_error_nomem());
    }
    free(kinds);
    link_classes_fini(&classes);
    return code;
}

static kb_code run_with(const cli_call *call, traffic_options o)
{
    uint64_t until = (uint64_t)(o.warmup / KB_NS) + (uint64_t)(o.measure / KB_NS);
    cli_progress progress = cli_progress_start("simulated ns", until, call->common->quiet);
    o.progress = show_progress;
    o.self = &progress;
    traffic_result result;
    kb_error *err = traffic_run(call->machine, &o, &result);
    cli_progress_end(&progress);
    if (err)
        return cli_report(err);
    traffic_view view = {
        .machine = call->machine, .common = call->common, .options = &o, .result = &result};
    return print_result(&view, call->args, o.links);
}

static kb_code run_traffic(const cli_call *call)
{
    traffic_options o;
    kb_code code = read_args(call->args, call->machine, &o);
    if (code != KB_OK)
        return code;
    o.links = kb_alloc_zeroed(topo_machine_graph(call->machine)->links.count, sizeof *o.links);
    code = o.links ? run_with(call, o) : cli_report(kb_error_nomem());
    free(o.links);
    return code;
}

const cli_command cli_traffic_command = {
    .name = "traffic",
    .arguments = "[OPTIONS]",
    .summary = "measure latency and throughput under synthetic traffic between PEs",
    .help =
        "Every PE writes to other PEs at random times, without waiting for earlier transfers.\n"
        "Latency is the time from the creation of a transfer to the arrival of its last byte.\n"
        "\n"
        "Patterns are defined on the W x H grid of routers of the level: transpose sends from\n"
        "(x, y) to (y, x), bitcomp to (W-1-x, H-1-y), neighbor to (x+1, y+1) modulo W and H,\n"
        "hotspot to one router. At level sip the cubes of a SIP form one grid, at level system\n"
        "all SIPs do. A PE may send to itself (uniform, and the diagonal of transpose): such a\n"
        "transfer goes to the PE's router and back.\n",
    .example =
        "Example: kernbench traffic --pattern uniform --level sip --rate 0.1 --bytes 256\n"
        "Example: kernbench traffic --topology mesh-reference --set cube.noc.k=4 --rate 0.3\n",
    CLI_OPTIONS(options),
    CLI_ARGS(traffic_args, .rate = "0.1", .warmup = "2000", .measure = "10000", .seed = 1),
    .machine = CLI_MACHINE,
    .run = run_traffic,
};
