/* ccl_plan_text.c: a plan for people: the entry, who takes part, and who is joined to whom. */
#include "ccl_plan.h"

#include "cli.h"
#include "machine.h"
#include "obs/obs.h"
#include "table.h"

#include <inttypes.h>

static const char reading[] =
    "\n"
    "  group: PEs that reduce the same part of the ranks' tensors; index: a PE's position in it.\n"
    "  direction: the name of a queue in a kernel, as in tl_send(\"E\", value). slots: buffers for\n"
    "  messages, in the receiver's memory. install: bytes of the command that installs the queues.\n";

static bool is_shown(const plan_view *view, kb_pe pe)
{
    return view->only_sip == TOPO_NONE || view->only_sip == pe.sip;
}

/* What a table left out. */
static void print_rest(const plan_view *view, uint64_t count, const char *what)
{
    if (view->limit > 0 && count > view->limit)
        printf("  .. and %" PRIu64 " more %s%s; --limit 0 shows all%s\n", count - view->limit, what,
               kb_plural(count - view->limit),
               view->only_sip == TOPO_NONE ? ", --sip N only one SIP" : "");
}

static bool is_full(const plan_view *view, uint64_t rows)
{
    return view->limit > 0 && rows >= view->limit;
}

/* ---- The entry ---------------------------------------------------------------------------- */

static void print_line(const char *name, const char *format, ...) KB_PRINTF(2, 3);
static void print_line(const char *name, const char *format, ...)
{
    va_list args;
    printf("  %-14s ", name);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

static void print_settings(const ccl_entry *entry)
{
    for (size_t i = 0; i < entry->settings.count; i++)
        print_line(entry->settings.items[i].key, "%" PRId64, entry->settings.items[i].value);
}

static void print_entry(const plan_view *view)
{
    const ccl_entry *entry = view->plan->entry;
    const char *of = entry->buffer == KB_SRAM ? "of the cube" : "of the receiver";
    print_line("module", "%s%s", entry->algorithm->name,
               entry->reduce_shards ? " (also reduces the shards within each SIP)" : "");
    print_line("topology", "%s",
               entry->topology ? entry->topology->name : "none (defined by the module)");
    print_line("mapper", "%s", entry->mapper->name);
    print_line("validator", "%s", entry->validator ? entry->validator->name : "none");
    print_line("buffer_kind", "%s, %s", plan_memory_name(entry->buffer), of);
    print_line("n_slots", "%" PRIu32, entry->n_slots);
    print_line("slot_size", "%s", obs_bytes(view->plan->queues.settings.slot_bytes).text);
    print_line("backpressure", "%s", entry->polls ? "poll" : "sleep");
    print_line("credit", "%s", obs_bytes(entry->credit_bytes).text);
    print_line("vc_chunk_size", "%s", obs_bytes(entry->vc_chunk_bytes).text);
    print_line("reduce_op", "%s", kb_reduce_op_name(entry->reduce_op));
    print_settings(entry);
    print_line("ranks", "%" PRIu32 " %s%s", view->plan->scope.world,
               entry->rank_is_pe ? "PE" : "SIP", kb_plural(view->plan->scope.world));
}

/* ---- Who takes part ----------------------------------------------------------------------- */

typedef struct total {
    uint64_t pes, ends, ring_bytes, install_bytes;
} total;

static void add(total *t, const plan_pe *pe)
{
    t->pes++;
    t->ends += pe->end_count;
    t->ring_bytes += pe->ring_bytes;
    t->install_bytes += pe->install_bytes;
}

static void add_total(cli_table *table, const char *name, const total *t)
{
    cli_table_cell(table, "%s", name);
    cli_table_cell(table, "%s", obs_count(t->pes).text);
    cli_table_cell(table, "%s", obs_count(t->ends).text);
    cli_table_cell(table, "%s", obs_bytes(t->ring_bytes).text);
    cli_table_cell(table, "%s", obs_bytes(t->install_bytes).text);
}

static kb_code print_sips(const plan_view *view)
{
    static const cli_column columns[] = {{.title = "SIP", .left = true},
                                         {.title = "PEs"},
                                         {.title = "directions"},
                                         {.title = "slots total"},
                                         {.title = "install"}};
    cli_table table;
    total all = {0};
    uint64_t sips = 0;
    cli_table_init(&table, columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0, next; i < view->pes.count; i = next) {
        total of_sip = {0};
        uint32_t sip = view->pes.items[i].pe.sip;
        for (next = i; next < view->pes.count && view->pes.items[next].pe.sip == sip; next++) {
            add(&of_sip, &view->pes.items[next]);
            add(&all, &view->pes.items[next]);
        }
        char name[16];
        snprintf(name, sizeof name, "%" PRIu32, sip);
        if (!is_full(view, sips++))
            add_total(&table, name, &of_sip);
    }
    add_total(&table, "all", &all);
    kb_code code = cli_table_print(&table, stdout);
    if (view->limit > 0 && sips > view->limit)
        printf("  .. and %" PRIu64 " more SIP%s; --limit 0 shows all\n", sips - view->limit,
               kb_plural(sips - view->limit));
    return code;
}

/* A long one is shown by its beginning and its end. */
static void append_members(const plan_view *view, uint32_t circle, kb_text *text)
{
    enum { SHOWN = 4 };
    uint32_t count;
    const kb_ccl_participant *members = kb_ccl_subgroup(&view->plan->participants, circle, &count);
    bool all = view->limit == 0 || count <= SHOWN + 1;
    for (uint32_t i = 0; i < count; i++) {
        bool skipped = !all && i >= SHOWN - 1 && i + 1 < count;
        if (skipped && i == SHOWN - 1)
            kb_text_puts(text, " ..");
        if (!skipped)
            kb_text_printf(text, "%s%s", i > 0 ? " " : "", plan_pe_name(members[i].pe).text);
    }
}

static kb_code print_circles(const plan_view *view)
{
    static const cli_column columns[] = {
        {.title = "group"}, {.title = "PEs"}, {.title = "in order", .left = true}};
    uint32_t circles = kb_ccl_subgroup_count(&view->plan->participants);
    cli_table table;
    cli_table_init(&table, columns, sizeof columns / sizeof columns[0]);
    for (uint32_t i = 0; i < circles && !is_full(view, i); i++) {
        uint32_t count;
        kb_text members = KB_TEXT_INIT;
        (void)kb_ccl_subgroup(&view->plan->participants, i, &count);
        append_members(view, i, &members);
        cli_table_cell(&table, "%" PRIu32, i);
        cli_table_cell(&table, "%" PRIu32, count);
        cli_table_cell(&table, "%s", cli_text(&members));
        kb_text_fini(&members);
    }
    kb_code code = cli_table_print(&table, stdout);
    if (view->limit > 0 && circles > view->limit)
        printf("  .. and %" PRIu64 " more group%s; --limit 0 shows all\n", circles - view->limit,
               kb_plural(circles - view->limit));
    return code;
}

static kb_code print_pes(const plan_view *view)
{
    kb_memory memory = view->plan->entry->buffer;
    const char *share = memory == KB_TCM   ? "% of its TCM"
                        : memory == KB_HBM ? "% of its HBM slice"
                                           : "% of the cube's SRAM";
    const cli_column columns[] = {{.title = "PE", .left = true},
                                  {.title = "rank"},
                                  {.title = "group"},
                                  {.title = "index"},
                                  {.title = "directions"},
                                  {.title = "slots total"},
                                  {.title = share},
                                  {.title = "install"}};
    uint64_t rows = 0;
    cli_table table;
    cli_table_init(&table, columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < view->pes.count; i++) {
        const plan_pe *pe = &view->pes.items[i];
        if (!is_shown(view, pe->pe) || is_full(view, rows++))
            continue;
        cli_table_cell(&table, "%s", plan_pe_name(pe->pe).text);
        cli_table_cell(&table, "%" PRIu32, pe->rank);
        cli_table_cell(&table, "%" PRIu32, pe->circle);
        cli_table_cell(&table, "%" PRIu32, pe->place);
        cli_table_cell(&table, "%zu", pe->end_count);
        cli_table_cell(&table, "%s", obs_bytes(pe->ring_bytes).text);
        cli_table_cell(&table, "%s", obs_percent((double)pe->ring_bytes / (double)view->room).text);
        cli_table_cell(&table, "%s", obs_bytes(pe->install_bytes).text);
    }
    kb_code code = cli_table_print(&table, stdout);
    print_rest(view, rows, "PE");
    return code;
}

/* ---- Neighbour graph ----------------------------------------------------------------------- */

static void add_peer(cli_table *table, const plan_view *view, size_t peer)
{
    if (peer == IPCQ_NONE) {
        cli_table_cell(table, "none");
        return;
    }
    const ipcq_plan_end *end = &view->plan->queues.ends.items[peer];
    cli_table_cell(table, "%s %s", plan_pe_name(end->pe).text, end->direction);
}

static kb_code print_directions(const plan_view *view)
{
    static const cli_column columns[] = {{.title = "PE", .left = true},
                                         {.title = "direction", .left = true},
                                         {.title = "sends to", .left = true},
                                         {.title = "receives from", .left = true},
                                         {.title = "slots", .left = true}};
    const ipcq_plan *queues = &view->plan->queues;
    uint64_t rows = 0;
    cli_table table;
    cli_table_init(&table, columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < queues->ends.count; i++) {
        const ipcq_plan_end *end = &queues->ends.items[i];
        if (!is_shown(view, end->pe) || is_full(view, rows++))
            continue;
        cli_table_cell(&table, "%s", plan_pe_name(end->pe).text);
        cli_table_cell(&table, "%s", end->direction);
        add_peer(&table, view, end->to);
        add_peer(&table, view, end->from);
        if (end->from == IPCQ_NONE)
            cli_table_cell(&table, "none");
        else
            cli_table_cell(&table, "%" PRIu32 " x %s in %s", queues->settings.n_slots,
                           obs_bytes(queues->settings.slot_bytes).text,
                           plan_memory_name(queues->settings.buffer));
    }
    kb_code code = cli_table_print(&table, stdout);
    print_rest(view, rows, "direction");
    return code;
}

kb_code plan_print_text(const plan_view *view)
{
    static kb_code (*const parts[])(const plan_view *) = {print_sips, print_circles, print_pes,
                                                          print_directions};
    kb_text title = KB_TEXT_INIT;
    kb_text_printf(&title, "Plan of '%s' of %s on ", view->plan->entry->name, view->config->path);
    cli_machine_title(view->machine, &view->common->settings, &title);
    kb_text_escape_from(&title, 0);
    cli_print_heading(stdout, cli_text(&title));
    kb_text_fini(&title);
    print_entry(view);
    kb_code code = KB_OK;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0] && code == KB_OK; i++) {
        putchar('\n');
        if (i == 3 && view->plan->queues.ends.count == 0)
            printf("  No queues: %s.\n", view->plan->scope.world == 1
                                             ? "a single rank does not communicate"
                                             : "no PEs are connected");
        else
            code = parts[i](view);
    }
    if (code == KB_OK && !view->common->quiet)
        fputs(reading, stdout);
    return code;
}
