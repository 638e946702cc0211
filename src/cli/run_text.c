/* run_text.c: the results of the run command for people. */
#include "run.h"

#include "cli.h"
#include "machine.h"
#include "stand_ins.h"
#include "table.h"

#include <math.h>
#include <string.h>

enum { SHOWN_LAUNCHES = 10 };

static const char reading[] =
    "  At work: with at least one command under way, summed over PEs; the shares are of the time\n"
    "  that PEs ran kernels. Waited: what packets waited for the link behind other transfers,\n"
    "  summed; of links that are alike, the one that waited most is shown. Links count in each\n"
    "  direction.\n";

static double share(kb_time part, kb_time whole)
{
    return whole > 0 ? (double)part / (double)whole : 0;
}

/* ---- Time -------------------------------------------------------------------------------- */

static void print_part(const run_figures *f, const char *name, kb_time time, const char *what)
{
    printf("  %-14s %14s ns  %5s %%  %s\n", name, cli_ns(time).text,
           cli_percent(share(time, f->sim)).text, what);
}

static void print_time(const run_view *view)
{
    const run_figures *f = view->figures;
    const kb_split_time *s = &f->split;
    char title[80];
    snprintf(title, sizeof title, "Simulated time: %s ns", cli_ns(f->sim).text);
    cli_print_heading(stdout, title);
    print_part(f, "compute", s->compute, "matrix or vector engines at work");
    print_part(f, "memory", s->memory, "else: PEs wait for memory of their cube");
    print_part(f, "communication", s->communication,
               "else: for other cubes and devices, or launches are on their way");
    print_part(f, "idle", s->idle, "none of these");
    kb_text verdict = KB_TEXT_INIT;
    run_verdict(f, &verdict);
    cli_print_wrapped(stdout, kb_text_peek(&verdict));
    kb_text_fini(&verdict);
}

/* ---- Kernels and units ------------------------------------------------------------------- */

static kb_code print_launches(const run_figures *f)
{
    static const cli_column columns[] = {
        {.title = "kernel", .left = true},
        {.title = "SIP"},
        {.title = "PEs"},
        {.title = "total ns"},
        {.title = "PE exec ns"},
        {.title = "network ns"},
    };
    size_t shown = f->launch_count <= SHOWN_LAUNCHES ? f->launch_count : SHOWN_LAUNCHES;
    cli_table table;
    cli_table_init(&table, columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < shown; i++) {
        const kb_launch_result *launch = &f->launches[i];
        cli_table_cell(&table, "%s", launch->name);
        cli_table_cell(&table, "%u", launch->sip);
        cli_table_cell(&table, "%u", launch->pes);
        cli_table_cell(&table, "%s", cli_ns(launch->ended - launch->issued).text);
        cli_table_cell(&table, "%s", cli_ns(launch->pe_exec).text);
        cli_table_cell(&table, "%s", cli_ns(launch->network).text);
    }
    kb_code code = cli_table_print(&table, stdout);
    if (f->launch_count > shown)
        printf("  ... %zu more\n", f->launch_count - shown);
    return code;
}

static kb_code print_units(const run_figures *f)
{
    static const cli_column columns[] = {
        {.title = "unit", .left = true}, {.title = "commands"}, {.title = "at work ns"},
        {.title = "% of PE time"},       {.title = "bytes"},    {.title = "MFLOP"},
    };
    cli_table table;
    cli_table_init(&table, columns, sizeof columns / sizeof columns[0]);
    for (int i = 0; i < KB_UNITS; i++) {
        const run_unit *unit = &f->units[i];
        if (i == KB_UNIT_HOST || unit->count == 0)
            continue;
        cli_table_cell(&table, "%s", kb_unit_name((kb_unit)i));
        cli_table_cell(&table, "%s", cli_count(unit->count).text);
        cli_table_cell(&table, "%s", cli_ns(unit->at_work).text);
        cli_table_cell(&table, "%s", cli_percent(share(unit->at_work, f->pe_time)).text);
        cli_table_cell(&table, "%s", unit->bytes > 0 ? cli_count(unit->bytes).text : "-");
        if (unit->flops > 0)
            cli_table_cell(&table, "%.3f", (double)unit->flops * 1e-6);
        else
            cli_table_cell(&table, "%s", "-");
    }
    return cli_table_print(&table, stdout);
}

static void print_busiest_unit(const run_figures *f)
{
    if (f->busiest_time == 0)
        return;
    const topo_shape *shape = topo_machine_shape(f->machine);
    uint64_t cube = f->busiest_pe / shape->pes;
    printf("  Busiest: %s of sip%llu.cube%llu.pe%llu, at work for %s %% of the run\n",
           kb_unit_name(f->busiest_unit), (unsigned long long)(cube / shape->cubes),
           (unsigned long long)(cube % shape->cubes),
           (unsigned long long)(f->busiest_pe % shape->pes),
           cli_percent(share(f->busiest_time, f->sim)).text);
}

/* ---- Links ------------------------------------------------------------------------------- */

/* Links that are used less are left out, unless they are asked for. */
static const double negligible = 0.01;

static kb_code print_links(const run_figures *f, bool all)
{
    static const cli_column columns[] = {{.title = "busiest links", .left = true},
                                         {.title = "bytes"},
                                         {.title = "util %"},
                                         {.title = "waited ns"}};
    cli_table table;
    cli_table_init(&table, columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < f->links.count && (all || i < RUN_BUSIEST); i++) {
        const run_link *link = &f->links.items[i];
        if (i > 0 && link->utilization < negligible && !all)
            break;
        kb_text name = KB_TEXT_INIT;
        cli_short_link_name(f->machine, link->link, &name);
        if (link->alike > 0)
            kb_text_printf(&name, " and %s more like it", cli_count(link->alike).text);
        cli_table_cell(&table, "%s", kb_text_peek(&name));
        cli_table_cell(&table, "%s", cli_count(link->bytes).text);
        cli_table_cell(&table, "%s", cli_percent(link->utilization).text);
        cli_table_cell(&table, "%s", cli_ns(link->waited).text);
        kb_text_fini(&name);
    }
    return cli_table_print(&table, stdout);
}

static kb_code print_kinds(const run_figures *f, bool all)
{
    static const cli_column columns[] = {{.title = "links by kind", .left = true},
                                         {.title = "GB/s"},
                                         {.title = "count"},
                                         {.title = "bytes"},
                                         {.title = "mean util %"},
                                         {.title = "max util %"},
                                         {.title = "waited ns"}};
    cli_table table;
    cli_table_init(&table, columns, sizeof columns / sizeof columns[0]);
    size_t shown = 0;
    for (; shown < f->kinds.count; shown++) {
        const run_kind *k = &f->kinds.items[shown];
        if (shown > 0 && k->max < negligible && !all)
            break;
        kb_text name = KB_TEXT_INIT;
        link_class_name(k->kind, &name);
        cli_table_cell(&table, "%s", kb_text_peek(&name));
        cli_table_cell(&table, "%s", cli_rate(k->kind->rate).text);
        cli_table_cell(&table, "%s", cli_count(k->kind->count).text);
        cli_table_cell(&table, "%s", cli_count(k->bytes).text);
        cli_table_cell(&table, "%s", cli_percent(k->mean).text);
        cli_table_cell(&table, "%s", cli_percent(k->max).text);
        cli_table_cell(&table, "%s", cli_ns(k->waited).text);
        kb_text_fini(&name);
    }
    kb_code code = cli_table_print(&table, stdout);
    if (shown < f->kinds.count)
        printf("  ... %zu more, no link of them used for 1 %% (--verbose shows them)\n",
               f->kinds.count - shown);
    return code;
}

/* ---- Roofline ---------------------------------------------------------------------------- */

static void print_roofline(const run_figures *f)
{
    const run_roofline *r = &f->roofline;
    char title[80];
    snprintf(title, sizeof title, "Roofline of the %s PE%s that ran kernels",
             cli_count(f->pes).text, f->pes == 1 ? "" : "s");
    cli_print_heading(stdout, title);
    if (r->tflops > 0)
        printf("  matrix engines %10.3f TFLOP/s of %.3f, %s %%\n", r->tflops, r->peak_tflops,
               cli_percent(r->tflops / r->peak_tflops).text);
    if (r->tflops > 0 && r->slots < 0.95)
        printf("  array slots    %10s %% without work, as arrays fill and where shapes are no "
               "multiple of them\n",
               cli_percent(1 - r->slots).text);
    printf("  DMAs           %10s GB/s of %s that their HBM gives, %s %%\n", cli_gbs(r->gbs).text,
           cli_gbs(r->peak_gbs).text, cli_percent(r->gbs / r->peak_gbs).text);
    if (r->tflops <= 0)
        return;
    bool memory = r->intensity < r->ridge;
    if (isfinite(r->intensity))
        printf("  intensity      %10.1f FLOP a byte; %s bounds it (the ridge is at %.1f)\n",
               r->intensity, memory ? "bandwidth" : "the peak", r->ridge);
    printf("  of the roof    %10s %% of %.3f TFLOP/s\n",
           cli_percent(r->tflops / r->roof_tflops).text, r->roof_tflops);
}

/* ---- All of it --------------------------------------------------------------------------- */

static void print_title(const run_view *view)
{
    kb_text title = KB_TEXT_INIT;
    kb_text_printf(&title, "%s on machine ", view->spec->name);
    cli_machine_title(view->figures->machine, &view->common->settings, &title);
    cli_print_heading(stdout, kb_text_peek(&title));
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
    stand_ins_print(&view->figures->stand_ins, stdout);
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
        [RT_NOT_VERIFIED] = "not checked: --verify-data does that",
        [RT_VERIFIED] = "right, compared with a reference",
        [RT_WRONG] = "WRONG",
    };
    rt_verdict verdict = rt_bench_verdict(view->bench);
    if (verdict == RT_NOT_VERIFIED && view->verify)
        printf("Results: the bench has compared nothing\n");
    else
        printf("Results: %s\n", words[verdict]);
}

static void print_end(const run_view *view)
{
    const run_figures *f = view->figures;
    print_verdict(view);
    if (view->trace)
        printf("Trace: %s, for https://ui.perfetto.dev\n", view->trace);
    if (!view->common->quiet)
        printf("%s events, %s hops in %.2f s: %.2f million hops/s\n", cli_count(f->events).text,
               cli_count(f->hops).text, view->wall_s, run_per_second(f->hops, view->wall_s) / 1e6);
}

static kb_code print_kernels(const run_view *view)
{
    const run_figures *f = view->figures;
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
    const run_figures *f = view->figures;
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
    if (!view->common->quiet && f->pes > 0)
        printf("%s\n", reading);
    print_end(view);
    return code;
}
