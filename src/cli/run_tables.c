/* run_tables.c: units and links of a run as tables, for the text and the JSON of its summary. */
#include "run.h"

/* Less utilized links are omitted from the text, unless all are requested. */
static const double negligible = 0.01;

/* ---- Units ------------------------------------------------------------------------------- */

static const cli_column unit_columns[] = {
    CLI_COLUMN("unit", "unit", CLI_WORD),
    CLI_COLUMN("commands", "count", CLI_COUNT),
    CLI_JSON("busy_ns", CLI_NS),
    CLI_COLUMN("busy ns", "at_work_ns", CLI_NS),
    CLI_COLUMN("% busy", "share", CLI_SHARE),
    CLI_COLUMN("bytes", "bytes", CLI_COUNT, .zero = "-"),
    CLI_COLUMN("MFLOP", "flops", CLI_MFLOP, .zero = "-"),
};

/* The text is about kernels: it does not have the host. */
static void add_units(cli_table *table, const void *view)
{
    const run_stats *s = ((const run_view *)view)->stats;
    for (int i = 0; i < KB_UNITS; i++) {
        const run_unit *unit = &s->units[i];
        if (unit->count == 0 || (i == KB_UNIT_HOST && !table->is_json))
            continue;
        CLI_ROW(table, {.text = kb_unit_name((kb_unit)i)}, {.n = unit->count}, {.n = unit->busy},
                {.n = unit->at_work}, {.real = run_share(unit->at_work, s->timeline.in_kernels)},
                {.n = unit->bytes}, {.n = unit->flops});
    }
}

const cli_rows run_units = {CLI_COLUMNS(unit_columns), add_units};

/* ---- Busiest links ----------------------------------------------------------------------- */

static const cli_column link_columns[] = {
    CLI_TEXT("busiest links", CLI_WORD),
    CLI_JSON("link", CLI_LINK),
    CLI_JSON("alike", CLI_COUNT),
    CLI_COLUMN("bytes", "bytes", CLI_COUNT),
    CLI_COLUMN("util %", "utilization", CLI_SHARE),
    CLI_JSON("waited_ns", CLI_NS),
    CLI_COLUMN("mean queue", "mean_queue", CLI_REAL, .decimals = 2),
};

static void add_links(cli_table *table, const void *view)
{
    const run_stats *s = ((const run_view *)view)->stats;
    bool all = ((const run_view *)view)->verbose && !table->is_json;
    for (size_t i = 0; i < s->links.count && (all || i < RUN_BUSIEST); i++) {
        const run_link *link = &s->links.items[i];
        if (i > 0 && link->utilization < negligible && !all && !table->is_json)
            break;
        kb_text name = KB_TEXT_INIT;
        cli_short_link_name(s->machine, link->link, &name);
        if (link->alike > 0)
            kb_text_printf(&name, " and %s more like it", obs_count(link->alike).text);
        CLI_ROW(table, {.text = cli_text(&name)}, {.n = link->link}, {.n = link->alike},
                {.n = link->bytes}, {.real = link->utilization}, {.n = link->waited},
                {.real = link->queue});
        kb_text_fini(&name);
    }
}

const cli_rows run_busiest_links = {CLI_COLUMNS(link_columns), add_links};

/* ---- Links by kind ----------------------------------------------------------------------- */

static const cli_column kind_columns[] = {
    CLI_COLUMN("links by kind", "between", CLI_LINK_CLASS),
    CLI_JSON("service", CLI_BOOL),
    CLI_COLUMN("GB/s", "gbs", CLI_RATE),
    CLI_JSON("count", CLI_COUNT),
    CLI_COLUMN("links", "active", CLI_COUNT),
    CLI_COLUMN("bytes", "bytes", CLI_COUNT),
    CLI_COLUMN("mean util %", "mean_utilization", CLI_SHARE),
    CLI_COLUMN("max util %", "max_utilization", CLI_SHARE),
    CLI_JSON("waited_ns", CLI_NS),
    CLI_COLUMN("mean queue", "mean_queue", CLI_REAL, .decimals = 2),
};

size_t run_count_omitted_kinds(const run_view *view)
{
    const run_stats *s = view->stats;
    size_t shown = view->verbose || s->kinds.count == 0 ? s->kinds.count : 1;
    while (shown < s->kinds.count && s->kinds.items[shown].max >= negligible)
        shown++;
    return s->kinds.count - shown;
}

static void add_kinds(cli_table *table, const void *view)
{
    const run_stats *s = ((const run_view *)view)->stats;
    size_t omitted = table->is_json ? 0 : run_count_omitted_kinds(view);
    for (size_t i = 0; i < s->kinds.count - omitted; i++) {
        const run_kind *k = &s->kinds.items[i];
        CLI_ROW(table, {.link_class = k->kind}, {.n = k->kind->service}, {.n = k->kind->rate},
                {.n = k->kind->count}, {.n = k->active}, {.n = (kb_time_sum)k->bytes},
                {.real = k->mean}, {.real = k->max}, {.n = k->waited}, {.real = k->queue});
    }
}

const cli_rows run_links_by_kind = {CLI_COLUMNS(kind_columns), add_kinds};
