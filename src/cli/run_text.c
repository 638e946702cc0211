/* run_text.c: the summary of a run as text. */
#include "run.h"

#include "stand_ins.h"
#include "terminal.h"

#include <math.h>
#include <string.h>

enum { SHOWN_KERNELS = 20, LINE_CHARACTERS = 100 };

static const char legend[] =
    "  Time by cause: mean over PEs that ran a kernel. Kernels: a launch counts once per SIP. Units:\n"
    "  time with at least one command, summed over PEs; % busy is of the PEs' time in kernels. Links:\n"
    "  one per direction; mean queue: packets waiting for the link, mean over the run; of links that\n"
    "  are alike, the one with the longest queue is shown; means by kind are over active links.\n";

/* ---- Time -------------------------------------------------------------------------------- */

/* "stalled on local memory 41.2 %" for each cause of the group, in descending order. */
static void print_causes(const run_stats *s, run_group group, int column)
{
    int order[RUN_CAUSES], at = column;
    size_t count = run_sort_causes(s->causes, RUN_CAUSES, order);
    bool is_first = true;
    for (size_t i = 0; i < count; i++) {
        double share = run_share(s->causes[order[i]], s->sim);
        if (run_group_of(order[i]) != group || (!is_first && share < 0.0005))
            continue;
        char text[100];
        int length = snprintf(text, sizeof text, "%s %s %%", run_cause_label(order[i]),
                              obs_percent(share).text);
        if (!is_first && at + 2 + length > LINE_CHARACTERS) {
            printf(",\n%*s", column, "");
            at = column - 2;
        } else {
            fputs(is_first ? "  " : ", ", stdout);
        }
        fputs(text, stdout);
        at += length + (is_first ? 0 : 2);
        is_first = false;
    }
    putchar('\n');
}

static void print_part(const run_stats *s, const char *name, kb_time_sum time, run_group group)
{
    int column = printf("  %-14s %14s ns  %5s %%", name, obs_ns(time).text,
                        obs_percent(run_share(time, s->sim)).text);
    print_causes(s, group, column + 2);
}

static void print_time(const run_view *view)
{
    const run_stats *s = view->stats;
    char title[80];
    snprintf(title, sizeof title, "Simulated time: %s ns", obs_ns(s->sim).text);
    cli_print_heading(stdout, title);
    print_part(s, "compute", s->split.compute, RUN_COMPUTE);
    print_part(s, "memory", s->split.memory, RUN_MEMORY);
    print_part(s, "communication", s->split.communication, RUN_COMMUNICATION);
    print_part(s, "idle", s->split.idle, RUN_IDLE);
    kb_text verdict = KB_TEXT_INIT;
    run_verdict(s, &verdict);
    cli_print_wrapped(stdout, cli_text(&verdict));
    kb_text_fini(&verdict);
}

/* ---- Kernels and units ------------------------------------------------------------------- */

enum { LAUNCHES = 1, TOTAL_MIN = 5, TOTAL_MAX, EXEC_MIN = 8, EXEC_MAX, HELD = 11, KERNEL_COLUMNS };

static const cli_column kernel_columns[KERNEL_COLUMNS] = {
    CLI_TEXT("kernel", CLI_WORD),          [LAUNCHES] = CLI_TEXT("launches", CLI_COUNT),
    CLI_TEXT("SIPs", CLI_INTEGER),         CLI_TEXT("PEs", CLI_COUNT),
    CLI_TEXT("total ns", CLI_NS),          [TOTAL_MIN] = CLI_TEXT("min", CLI_NS),
    [TOTAL_MAX] = CLI_TEXT("max", CLI_NS), CLI_TEXT("PE exec ns", CLI_NS),
    [EXEC_MIN] = CLI_TEXT("min", CLI_NS),  [EXEC_MAX] = CLI_TEXT("max", CLI_NS),
    CLI_TEXT("network ns", CLI_NS),        [HELD] = CLI_TEXT("held ns", CLI_NS),
};

/* Leaves out minimum and maximum if each kernel has one launch, and "held" if none was held. */
static void choose_kernel_columns(const run_stats *s, cli_column columns[static KERNEL_COLUMNS])
{
    static const int of_several[] = {LAUNCHES, TOTAL_MIN, TOTAL_MAX, EXEC_MIN, EXEC_MAX};
    bool any_held = false;
    for (size_t i = 0; i < s->kernels.count; i++)
        any_held = any_held || s->kernels.items[i].held_sum > 0;
    memcpy(columns, kernel_columns, sizeof kernel_columns);
    if (!any_held)
        columns[HELD].title = NULL;
    bool several = s->launch_count > s->kernels.count;
    for (size_t i = 0; i < sizeof of_several / sizeof of_several[0] && !several; i++)
        columns[of_several[i]].title = NULL;
}

static kb_code print_launches(const run_stats *s)
{
    cli_column columns[KERNEL_COLUMNS];
    size_t shown = s->kernels.count <= SHOWN_KERNELS ? s->kernels.count : SHOWN_KERNELS;
    cli_table table;
    choose_kernel_columns(s, columns);
    cli_table_init(&table, columns, KERNEL_COLUMNS);
    for (size_t i = 0; i < shown; i++) {
        const run_kernel *k = &s->kernels.items[i];
        kb_time_sum launches = (kb_time_sum)k->launches;
        CLI_ROW(&table, {.text = k->name}, {.n = launches}, {.n = k->sips}, {.n = k->pes},
                {.n = k->total_sum / launches}, {.n = k->total_min}, {.n = k->total_max},
                {.n = k->exec_sum / launches}, {.n = k->exec_min}, {.n = k->exec_max},
                {.n = k->network_sum / launches}, {.n = k->held_sum / launches});
    }
    kb_code code = cli_table_print(&table, stdout);
    if (s->kernels.count > shown)
        printf("  ... %zu more kernels\n", s->kernels.count - shown);
    return code;
}

static void print_busiest_unit(const run_stats *s)
{
    if (s->busiest_time == 0)
        return;
    printf("  Busiest unit: %s of %s, busy %s %% of the run\n", kb_unit_name(s->busiest_unit),
           topo_pe_name(topo_pe_at(topo_machine_shape(s->machine), s->busiest_pe)).text,
           obs_percent(run_share(s->busiest_time, s->sim)).text);
}

/* ---- Roofline ---------------------------------------------------------------------------- */

static const char *roof_name(run_roof roof)
{
    static const char *const names[] = {
        [RUN_MATRIX_ROOF] = "the matrix engines",
        [RUN_VECTOR_ROOF] = "the vector engines",
        [RUN_MEMORY_ROOF] = "local memory bandwidth",
        [RUN_REMOTE_ROOF] = "the busiest link of the fabric",
    };
    return names[roof];
}

static void print_remote(const run_stats *s)
{
    const run_roofline *r = &s->roofline;
    const run_link *link = run_find_busiest(s, run_remote_links(s));
    if (r->remote_gbs <= 0 || !link || r->remote_busy < 0.01)
        return;
    kb_text name = KB_TEXT_INIT;
    cli_short_link_name(s->machine, link->link, &name);
    printf("  remote memory  %10s GB/s; the busiest link, %s, %s %% busy\n",
           obs_gbs(r->remote_gbs).text, cli_text(&name), obs_percent(r->remote_busy).text);
    kb_text_fini(&name);
}

static void print_roofline(const run_stats *s)
{
    const run_roofline *r = &s->roofline;
    char title[120];
    snprintf(title, sizeof title, "Roofline of the %s PE%s that ran kernels, while they ran",
             obs_count(s->pes).text, s->pes == 1 ? "" : "s");
    cli_print_heading(stdout, title);
    if (r->tflops > 0)
        printf("  matrix engines %10.3f TFLOP/s of %.3f, %s %% of peak\n", r->tflops,
               r->peak_tflops, obs_percent(r->tflops / r->peak_tflops).text);
    if (r->tflops > 0 && r->slots < 0.95)
        printf("  array slots    %10s %% idle while the arrays are occupied\n",
               obs_percent(1 - r->slots).text);
    if (r->vector_busy > 0)
        printf("  vector engines %10.3f TFLOP/s of %.3f with simple operations, %s %% busy\n",
               r->vector_tflops, r->vector_peak_tflops, obs_percent(r->vector_busy).text);
    printf("  local memory   %10s GB/s of %s, %s %% of peak\n", obs_gbs(r->gbs).text,
           obs_gbs(r->peak_gbs).text, obs_percent(r->gbs / r->peak_gbs).text);
    print_remote(s);
    if (r->tflops > 0 && isfinite(r->intensity))
        printf("  intensity      %10.1f FLOP/byte of local memory; ridge at %.1f\n", r->intensity,
               r->ridge);
    printf("  roofline       %10s %% of the lowest roof: %s\n", obs_percent(r->of_roof).text,
           roof_name(r->roof));
}

/* ---- The summary ------------------------------------------------------------------------- */

static void print_title(const run_view *view)
{
    kb_text title = KB_TEXT_INIT;
    kb_text_printf(&title, "%s on machine ", view->spec->name);
    cli_machine_title(view->stats->machine, view->settings, &title);
    cli_print_heading(stdout, cli_text(&title));
    kb_text_fini(&title);
    if (view->spec->param_count > 0)
        printf("  parameters:");
    for (size_t i = 0; i < view->spec->param_count; i++) {
        const kb_param *param = &view->spec->params[i];
        int64_t value = kb_bench_param(view->bench, param->name);
        if (param->names)
            printf(" %s=%s", param->name, param->names[value]);
        else
            printf(" %s=%lld", param->name, (long long)value);
    }
    if (view->spec->param_count > 0)
        putchar('\n');
    if (view->by_bench)
        printf("  Timing-only, as the bench is too large for data with these parameters\n");
    else if (view->timing_only)
        printf("  Timing-only: nothing was computed\n");
    stand_ins_print(&view->stats->stand_ins, stdout);
}

static void print_metrics(const run_view *view)
{
    size_t count;
    const rt_metric *metrics = rt_bench_metrics(view->bench, &count);
    for (size_t i = 0; i < count; i++)
        if (!metrics[i].only_json)
            printf("  %s: %.6g%s%s\n", metrics[i].name, metrics[i].value,
                   metrics[i].unit[0] != '\0' ? " " : "", metrics[i].unit);
}

static void print_verdict(const run_view *view)
{
    static const char *const words[] = {
        [RT_NOT_VERIFIED] = "not done (--verify-data does it)",
        [RT_VERIFIED] = "passed (compared with a double-precision reference)",
        [RT_WRONG] = "FAILED",
    };
    rt_verdict verdict = rt_bench_verdict(view->bench);
    if (verdict == RT_NOT_VERIFIED && view->verify)
        printf("Verification: not done, the bench has no reference\n");
    else if (verdict == RT_NOT_VERIFIED && view->timing_only)
        printf("Verification: not done, a timing-only run has no data\n");
    else
        printf("Verification: %s\n", words[verdict]);
}

static void print_end(const run_view *view)
{
    const run_stats *s = view->stats;
    print_verdict(view);
    if (view->trace)
        printf("Trace: %s, for https://ui.perfetto.dev\n", view->trace);
    if (view->report)
        printf("Report: %s\n", view->report);
    if (!view->quiet)
        printf("%s events, %s hops in %.2f s: %.2f million hops/s\n", obs_count(s->events).text,
               obs_count(s->hops).text, view->wall_s, run_per_second(s->hops, view->wall_s) / 1e6);
}

static kb_code print_kernels(const run_view *view)
{
    const run_stats *s = view->stats;
    kb_code code = print_launches(s);
    putchar('\n');
    if (code == KB_OK)
        code = cli_rows_print(&run_units, s->machine, view);
    print_busiest_unit(s);
    putchar('\n');
    return code;
}

static kb_code print_links(const run_view *view)
{
    const topo_machine *machine = view->stats->machine;
    kb_code code = cli_rows_print(&run_busiest_links, machine, view);
    putchar('\n');
    if (code == KB_OK)
        code = cli_rows_print(&run_links_by_kind, machine, view);
    size_t omitted = run_count_omitted_kinds(view);
    if (code == KB_OK && omitted > 0)
        printf("  ... %zu more, none with a link that is busy for 1 %% (--verbose shows them)\n",
               omitted);
    putchar('\n');
    return code;
}

kb_code run_print_text(const run_view *view)
{
    const run_stats *s = view->stats;
    kb_code code = KB_OK;
    print_title(view);
    print_metrics(view);
    putchar('\n');
    print_time(view);
    putchar('\n');
    if (s->launch_count > 0)
        code = print_kernels(view);
    if (code == KB_OK && s->links.count > 0)
        code = print_links(view);
    if (s->pes > 0) {
        print_roofline(s);
        putchar('\n');
    }
    if (code == KB_OK && view->shows_profile && s->pes > 0) {
        code = run_print_profile(view);
        putchar('\n');
    }
    if (!view->quiet && s->pes > 0)
        printf("%s\n", legend);
    print_end(view);
    return code;
}
