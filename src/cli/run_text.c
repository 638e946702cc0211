/* run_text.c: the results of the run command for people. */
#include "run.h"

#include "cli.h"
#include "machine.h"
#include "stand_ins.h"
#include "table.h"

#include <math.h>
#include <string.h>

enum { SHOWN_KERNELS = 20, LINE_CHARACTERS = 100 };

static const char legend[] =
    "  Time: while kernels run, that of the PEs that ran one, on average. Kernels: launches count\n"
    "  once for each SIP. Units: busy with at least one command, summed over PEs; the shares are of\n"
    "  the PEs' time in kernels. Links count in each direction; mean queue: packets that wait for\n"
    "  the link behind other transfers, on average over the run; of links that are alike, the one\n"
    "  with the longest queue is shown; means by kind are over links of devices that work.\n";

/* ---- Time -------------------------------------------------------------------------------- */

/* "stalled on local memory 41.2 %", for each cause of the group that shows; the largest first. */
static void print_causes(const run_stats *f, run_group group, int column)
{
    bool done[RUN_CAUSES] = {0};
    int at = column;
    for (bool is_first = true;; is_first = false) {
        int most = -1;
        for (int c = 0; c < RUN_CAUSES; c++)
            if (run_group_of(c) == group && !done[c] && f->causes[c] > 0 &&
                (most < 0 || f->causes[c] > f->causes[most]))
                most = c;
        if (most < 0 || (!is_first && run_share(f->causes[most], f->sim) < 0.0005))
            break;
        done[most] = true;
        char text[100];
        int length = snprintf(text, sizeof text, "%s %s %%", run_cause_label(most),
                              obs_percent(run_share(f->causes[most], f->sim)).text);
        if (is_first)
            fputs("  ", stdout);
        if (!is_first && at + 2 + length > LINE_CHARACTERS) {
            printf(",\n%*s", column, "");
            at = column;
        } else if (!is_first) {
            fputs(", ", stdout);
            at += 2;
        }
        fputs(text, stdout);
        at += length;
    }
    putchar('\n');
}

static void print_part(const run_stats *f, const char *name, kb_time_sum time, run_group group)
{
    int column = printf("  %-14s %14s ns  %5s %%", name, obs_ns(time).text,
                        obs_percent(run_share(time, f->sim)).text);
    print_causes(f, group, column + 2);
}

static void print_time(const run_view *view)
{
    const run_stats *f = view->stats;
    const kb_split_time *s = &f->split;
    char title[80];
    snprintf(title, sizeof title, "Simulated time: %s ns", obs_ns(f->sim).text);
    cli_print_heading(stdout, title);
    print_part(f, "compute", s->compute, RUN_COMPUTE);
    print_part(f, "memory", s->memory, RUN_MEMORY);
    print_part(f, "communication", s->communication, RUN_COMMUNICATION);
    print_part(f, "idle", s->idle, RUN_IDLE);
    kb_text verdict = KB_TEXT_INIT;
    run_verdict(f, &verdict);
    cli_print_wrapped(stdout, cli_text(&verdict));
    kb_text_fini(&verdict);
}

/* ---- Kernels and units ------------------------------------------------------------------- */

/* Mean, least and most; the mean alone if no kernel has several launches. */
static void put_times(cli_table *table, const run_kernel *k, kb_time_sum sum, kb_time min,
                      kb_time max, bool several)
{
    cli_table_cell(table, "%s", obs_ns(sum / (kb_time_sum)k->launches).text);
    if (!several)
        return;
    cli_table_cell(table, "%s", obs_ns(min).text);
    cli_table_cell(table, "%s", obs_ns(max).text);
}

static kb_code print_launches(const run_stats *f)
{
    static const cli_column one[] = {
        {.title = "kernel", .left = true},
        {.title = "SIPs"},
        {.title = "PEs"},
        {.title = "total ns"},
        {.title = "PE exec ns"},
        {.title = "network ns"},
        {.title = "held ns"},
    };
    static const cli_column many[] = {
        {.title = "kernel", .left = true},
        {.title = "launches"},
        {.title = "SIPs"},
        {.title = "PEs"},
        {.title = "total ns"},
        {.title = "min"},
        {.title = "max"},
        {.title = "PE exec ns"},
        {.title = "min"},
        {.title = "max"},
        {.title = "network ns"},
        {.title = "held ns"},
    };
    bool several = f->launch_count > f->kernels.count;
    bool held = false; /* some were, by what came before in their stream */
    for (size_t i = 0; i < f->kernels.count; i++)
        held = held || f->kernels.items[i].held_sum > 0;
    size_t shown = f->kernels.count <= SHOWN_KERNELS ? f->kernels.count : SHOWN_KERNELS;
    cli_table table;
    if (several)
        cli_table_init(&table, many, sizeof many / sizeof many[0] - !held);
    else
        cli_table_init(&table, one, sizeof one / sizeof one[0] - !held);
    for (size_t i = 0; i < shown; i++) {
        const run_kernel *k = &f->kernels.items[i];
        cli_table_cell(&table, "%s", k->name);
        if (several)
            cli_table_cell(&table, "%s", obs_count(k->launches).text);
        cli_table_cell(&table, "%u", k->sips);
        cli_table_cell(&table, "%s", obs_count(k->pes).text);
        put_times(&table, k, k->total_sum, k->total_min, k->total_max, several);
        put_times(&table, k, k->exec_sum, k->exec_min, k->exec_max, several);
        cli_table_cell(&table, "%s", obs_ns(k->network_sum / (kb_time_sum)k->launches).text);
        if (held)
            cli_table_cell(&table, "%s", obs_ns(k->held_sum / (kb_time_sum)k->launches).text);
    }
    kb_code code = cli_table_print(&table, stdout);
    if (f->kernels.count > shown)
        printf("  ... %zu more kernels\n", f->kernels.count - shown);
    return code;
}

static kb_code print_units(const run_stats *f)
{
    static const cli_column columns[] = {
        {.title = "unit", .left = true},
        {.title = "commands"},
        {.title = "busy ns"},
        {.title = "% busy"},
        {.title = "bytes"},
        {.title = "MFLOP"},
    };
    cli_table table;
    cli_table_init(&table, columns, sizeof columns / sizeof columns[0]);
    for (int i = 0; i < KB_UNITS; i++) {
        const run_unit *unit = &f->units[i];
        if (i == KB_UNIT_HOST || unit->count == 0)
            continue;
        cli_table_cell(&table, "%s", kb_unit_name((kb_unit)i));
        cli_table_cell(&table, "%s", obs_count(unit->count).text);
        cli_table_cell(&table, "%s", obs_ns(unit->at_work).text);
        cli_table_cell(&table, "%s",
                       obs_percent(run_share(unit->at_work, f->timeline.in_kernels)).text);
        cli_table_cell(&table, "%s", unit->bytes > 0 ? obs_count(unit->bytes).text : "-");
        if (unit->flops > 0)
            cli_table_cell(&table, "%.3f", (double)unit->flops * 1e-6);
        else
            cli_table_cell(&table, "%s", "-");
    }
    return cli_table_print(&table, stdout);
}

static void print_busiest_unit(const run_stats *f)
{
    if (f->busiest_time == 0)
        return;
    const topo_shape *shape = topo_machine_shape(f->machine);
    uint64_t cube = f->busiest_pe / shape->pes;
    printf("  Busiest unit: %s of sip%llu.cube%llu.pe%llu, busy %s %% of the run\n",
           kb_unit_name(f->busiest_unit), (unsigned long long)(cube / shape->cubes),
           (unsigned long long)(cube % shape->cubes),
           (unsigned long long)(f->busiest_pe % shape->pes),
           obs_percent(run_share(f->busiest_time, f->sim)).text);
}

/* ---- Links ------------------------------------------------------------------------------- */

/* Links that are used less are left out, unless they are asked for. */
static const double negligible = 0.01;

static kb_code print_links(const run_stats *f, bool all)
{
    static const cli_column columns[] = {{.title = "busiest links", .left = true},
                                         {.title = "bytes"},
                                         {.title = "util %"},
                                         {.title = "mean queue"}};
    cli_table table;
    cli_table_init(&table, columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < f->links.count && (all || i < RUN_BUSIEST); i++) {
        const run_link *link = &f->links.items[i];
        if (i > 0 && link->utilization < negligible && !all)
            break;
        kb_text name = KB_TEXT_INIT;
        cli_short_link_name(f->machine, link->link, &name);
        if (link->alike > 0)
            kb_text_printf(&name, " and %s more like it", obs_count(link->alike).text);
        cli_table_cell(&table, "%s", cli_text(&name));
        cli_table_cell(&table, "%s", obs_count(link->bytes).text);
        cli_table_cell(&table, "%s", obs_percent(link->utilization).text);
        cli_table_cell(&table, "%.2f", link->queue);
        kb_text_fini(&name);
    }
    return cli_table_print(&table, stdout);
}

static kb_code print_kinds(const run_stats *f, bool all)
{
    static const cli_column columns[] = {{.title = "links by kind", .left = true},
                                         {.title = "GB/s"},
                                         {.title = "links"},
                                         {.title = "bytes"},
                                         {.title = "mean util %"},
                                         {.title = "max util %"},
                                         {.title = "mean queue"}};
    cli_table table;
    cli_table_init(&table, columns, sizeof columns / sizeof columns[0]);
    size_t shown = 0;
    for (; shown < f->kinds.count; shown++) {
        const run_kind *k = &f->kinds.items[shown];
        if (shown > 0 && k->max < negligible && !all)
            break;
        kb_text name = KB_TEXT_INIT;
        link_class_name(k->kind, &name);
        cli_table_cell(&table, "%s", cli_text(&name));
        cli_table_cell(&table, "%s", obs_rate(k->kind->rate).text);
        cli_table_cell(&table, "%s", obs_count(k->active).text);
        cli_table_cell(&table, "%s", obs_count(k->bytes).text);
        cli_table_cell(&table, "%s", obs_percent(k->mean).text);
        cli_table_cell(&table, "%s", obs_percent(k->max).text);
        cli_table_cell(&table, "%.2f", k->queue);
        kb_text_fini(&name);
    }
    kb_code code = cli_table_print(&table, stdout);
    if (shown < f->kinds.count)
        printf("  ... %zu more, none with a link that is busy for 1 %% (--verbose shows them)\n",
               f->kinds.count - shown);
    return code;
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

static void print_remote(const run_stats *f)
{
    const run_roofline *r = &f->roofline;
    const run_link *link = run_busiest(f, run_remote_way(f));
    if (r->remote_gbs <= 0 || !link || r->remote_busy < negligible)
        return;
    kb_text name = KB_TEXT_INIT;
    cli_short_link_name(f->machine, link->link, &name);
    printf("  remote memory  %10s GB/s; the busiest link, %s, %s %% busy\n",
           obs_gbs(r->remote_gbs).text, cli_text(&name), obs_percent(r->remote_busy).text);
    kb_text_fini(&name);
}

static void print_roofline(const run_stats *f)
{
    const run_roofline *r = &f->roofline;
    char title[120];
    snprintf(title, sizeof title, "Roofline of the %s PE%s that ran kernels, while they ran",
             obs_count(f->pes).text, f->pes == 1 ? "" : "s");
    cli_print_heading(stdout, title);
    if (r->tflops > 0)
        printf("  matrix engines %10.3f TFLOP/s of %.3f, %s %% of peak\n", r->tflops,
               r->peak_tflops, obs_percent(r->tflops / r->peak_tflops).text);
    if (r->tflops > 0 && r->slots < 0.95)
        printf("  array slots    %10s %% without work while the arrays are occupied\n",
               obs_percent(1 - r->slots).text);
    if (r->vector_busy > 0)
        printf("  vector engines %10.3f TFLOP/s of %.3f with simple operations, %s %% busy\n",
               r->vector_tflops, r->vector_peak_tflops, obs_percent(r->vector_busy).text);
    printf("  local memory   %10s GB/s of %s that HBM has, %s %% of peak\n", obs_gbs(r->gbs).text,
           obs_gbs(r->peak_gbs).text, obs_percent(r->gbs / r->peak_gbs).text);
    print_remote(f);
    if (r->tflops > 0 && isfinite(r->intensity))
        printf("  intensity      %10.1f FLOP a byte of local memory, the ridge is at %.1f\n",
               r->intensity, r->ridge);
    printf("  of the roof    %10s %%; the nearest roof: %s\n", obs_percent(r->of_roof).text,
           roof_name(r->roof));
}

/* ---- All of it --------------------------------------------------------------------------- */

static void print_title(const run_view *view)
{
    kb_text title = KB_TEXT_INIT;
    kb_text_printf(&title, "%s on machine ", view->spec->name);
    cli_machine_title(view->stats->machine, &view->common->settings, &title);
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
    if (view->by_itself)
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
    else
        printf("Verification: %s\n", words[verdict]);
}

static void print_end(const run_view *view)
{
    const run_stats *f = view->stats;
    print_verdict(view);
    if (view->trace)
        printf("Trace: %s, for https://ui.perfetto.dev\n", view->trace);
    if (!view->common->quiet)
        printf("%s events, %s hops in %.2f s: %.2f million hops/s\n", obs_count(f->events).text,
               obs_count(f->hops).text, view->wall_s, run_per_second(f->hops, view->wall_s) / 1e6);
}

static kb_code print_kernels(const run_view *view)
{
    const run_stats *f = view->stats;
    kb_code code = print_launches(f);
    putchar('\n');
    if (code == KB_OK)
        code = print_units(f);
    print_busiest_unit(f);
    putchar('\n');
    return code;
}

kb_code run_print_text(const run_view *view)
{
    const run_stats *f = view->stats;
    kb_code code = KB_OK;
    print_title(view);
    print_metrics(view);
    putchar('\n');
    print_time(view);
    putchar('\n');
    if (f->launch_count > 0)
        code = print_kernels(view);
    if (code == KB_OK && f->links.count > 0) {
        code = print_links(f, view->verbose);
        putchar('\n');
        if (code == KB_OK)
            code = print_kinds(f, view->verbose);
        putchar('\n');
    }
    if (f->pes > 0) {
        print_roofline(f);
        putchar('\n');
    }
    if (code == KB_OK && f->profile && f->pes > 0) {
        code = run_profile_print(f, view->verbose);
        putchar('\n');
    }
    if (!view->common->quiet && f->pes > 0)
        printf("%s\n", legend);
    print_end(view);
    return code;
}
