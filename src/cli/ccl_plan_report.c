/*
 * ccl_plan_report.c: prints the plan of a collective: its entry of ccl.yaml, the participating PEs
 * and the queues between them, as text and as JSON.
 */
#include "ccl_plan_report.h"

#include "cli.h"
#include "columns.h"
#include "json.h"
#include "machine_options.h"
#include "obs/obs.h"
#include "terminal.h"

#include <inttypes.h>
#include <string.h>

static const char reading[] =
    "\n"
    "  group: PEs that reduce the same part of the ranks' tensors; index: a PE's position in it.\n"
    "  direction: the name of a queue in a kernel, as in tl_send(\"E\", value). slots: buffers for\n"
    "  messages, in the receiver's memory. install: bytes of the command that installs the queues.\n";

static bool is_shown(const plan_view *view, kb_pe pe)
{
    return view->only_sip == TOPO_NONE || view->only_sip == pe.sip;
}

static const char *memory_name(kb_memory memory)
{
    return memory == KB_TCM ? "tcm" : memory == KB_HBM ? "hbm" : "sram";
}

/* How many rows --limit omitted. */
static void print_omitted(const plan_view *view, uint64_t count, const char *what, bool by_sip)
{
    if (view->limit > 0 && count > view->limit)
        printf("  .. and %" PRIu64 " more %s%s; --limit 0 shows all%s\n", count - view->limit, what,
               kb_plural(count - view->limit),
               by_sip && view->only_sip == TOPO_NONE ? ", --sip N only one SIP" : "");
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
    print_line("buffer_kind", "%s, %s", memory_name(entry->buffer), of);
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

/* ---- SIPs and groups ---------------------------------------------------------------------- */

/* A SIP, or all of them. */
typedef struct total {
    uint64_t pes, ends, slots_bytes, install_bytes;
} total;

static void add_pe(total *t, const plan_pe *pe)
{
    t->pes++;
    t->ends += pe->end_count;
    t->slots_bytes += pe->slots_bytes;
    t->install_bytes += pe->install_bytes;
}

static void add_total(cli_table *table, const char *name, const total *t)
{
    CLI_ROW(table, {.text = name}, {.n = t->pes}, {.n = t->ends}, {.n = t->slots_bytes},
            {.n = t->install_bytes});
}

static kb_code print_sips(const plan_view *view)
{
    static const cli_column columns[] = {
        CLI_TEXT("SIP", CLI_WORD),         CLI_TEXT("PEs", CLI_COUNT),
        CLI_TEXT("directions", CLI_COUNT), CLI_TEXT("slots total", CLI_BYTES),
        CLI_TEXT("install", CLI_BYTES),
    };
    cli_table table;
    total all = {0};
    uint64_t sips = 0;
    cli_table_init(&table, CLI_COLUMNS(columns));
    for (size_t i = 0, next; i < view->pes.count; i = next) {
        total of_sip = {0};
        uint32_t sip = view->pes.items[i].pe.sip;
        for (next = i; next < view->pes.count && view->pes.items[next].pe.sip == sip; next++) {
            add_pe(&of_sip, &view->pes.items[next]);
            add_pe(&all, &view->pes.items[next]);
        }
        char name[16];
        snprintf(name, sizeof name, "%" PRIu32, sip);
        if (!is_full(view, sips++))
            add_total(&table, name, &of_sip);
    }
    add_total(&table, "all", &all);
    kb_code code = cli_table_print(&table, stdout);
    print_omitted(view, sips, "SIP", false);
    return code;
}

/* The PEs of a group; of a long one the first and the last. */
static void append_members(const plan_view *view, uint32_t group, kb_text *text)
{
    enum { SHOWN = 4 };
    uint32_t count;
    const kb_ccl_participant *members = kb_ccl_subgroup(&view->plan->participants, group, &count);
    bool all = view->limit == 0 || count <= SHOWN + 1;
    for (uint32_t i = 0; i < count; i++) {
        bool skipped = !all && i >= SHOWN - 1 && i + 1 < count;
        if (skipped && i == SHOWN - 1)
            kb_text_puts(text, " ..");
        if (!skipped)
            kb_text_printf(text, "%s%s", i > 0 ? " " : "", topo_pe_name(members[i].pe).text);
    }
}

static kb_code print_groups(const plan_view *view)
{
    static const cli_column columns[] = {CLI_TEXT("group", CLI_INTEGER),
                                         CLI_TEXT("PEs", CLI_INTEGER),
                                         CLI_TEXT("in order", CLI_WORD)};
    uint32_t groups = kb_ccl_subgroup_count(&view->plan->participants);
    cli_table table;
    cli_table_init(&table, CLI_COLUMNS(columns));
    for (uint32_t i = 0; i < groups && !is_full(view, i); i++) {
        uint32_t count;
        kb_text members = KB_TEXT_INIT;
        (void)kb_ccl_subgroup(&view->plan->participants, i, &count);
        append_members(view, i, &members);
        CLI_ROW(&table, {.n = i}, {.n = count}, {.text = cli_text(&members)});
        kb_text_fini(&members);
    }
    kb_code code = cli_table_print(&table, stdout);
    print_omitted(view, groups, "group", false);
    return code;
}

static json_t *groups_json(const kb_ccl_participants *members)
{
    json_t *groups = json_array();
    for (uint32_t i = 0; i < kb_ccl_subgroup_count(members); i++) {
        uint32_t count;
        const kb_ccl_participant *member = kb_ccl_subgroup(members, i, &count);
        json_t *list = json_array();
        for (uint32_t k = 0; k < count; k++)
            cli_json_append(&list, json_pack("{s:i, s:s}", "rank", (int)member[k].rank, "pe",
                                             topo_pe_name(member[k].pe).text));
        cli_json_append(&groups, list);
    }
    return groups;
}

/* ---- PEs and queues ------------------------------------------------------------------------ */

/* {"pe": ..., "direction": ...}, or null. */
static json_t *peer_json(const ipcq_plan *queues, size_t peer)
{
    if (peer == IPCQ_NONE)
        return json_null();
    const ipcq_plan_end *end = &queues->ends.items[peer];
    return json_pack("{s:s, s:s}", "pe", topo_pe_name(end->pe).text, "direction", end->direction);
}

static json_t *directions_json(const plan_view *view, const plan_pe *pe)
{
    const ipcq_plan *queues = &view->plan->queues;
    json_t *directions = json_array();
    for (size_t i = 0; i < pe->end_count; i++) {
        const ipcq_plan_end *end = &queues->ends.items[pe->first_end + i];
        bool receives = end->from != IPCQ_NONE;
        cli_json_append(&directions,
                        json_pack("{s:s, s:o, s:o, s:I}", "direction", end->direction, "sends_to",
                                  peer_json(queues, end->to), "receives_from",
                                  peer_json(queues, end->from), "ring_bytes",
                                  (json_int_t)(receives ? view->slots_bytes : 0)));
    }
    return directions;
}

/* The text has the PEs of --sip up to --limit, the JSON all. */
static void add_pes(cli_table *table, const plan_view *view, uint64_t *rows)
{
    for (size_t i = 0; i < view->pes.count; i++) {
        const plan_pe *pe = &view->pes.items[i];
        if (!table->is_json && (!is_shown(view, pe->pe) || is_full(view, (*rows)++)))
            continue;
        CLI_ROW(table, {.text = topo_pe_name(pe->pe).text}, {.n = pe->pe.sip}, {.n = pe->pe.cube},
                {.n = pe->pe.pe}, {.n = pe->rank}, {.n = pe->group}, {.n = pe->index},
                {.n = pe->end_count}, {.n = pe->slots_bytes},
                {.real = (double)pe->slots_bytes / (double)view->memory_bytes},
                {.n = pe->install_bytes},
                {.json = table->is_json ? directions_json(view, pe) : NULL});
    }
}

enum { SHARE_COLUMN = 9, PE_COLUMNS = 12 };

static void init_pe_columns(cli_column columns[static PE_COLUMNS], kb_memory memory)
{
    static const cli_column all[PE_COLUMNS] = {
        CLI_COLUMN("PE", "name", CLI_WORD),
        CLI_JSON("sip", CLI_INTEGER),
        CLI_JSON("cube", CLI_INTEGER),
        CLI_JSON("pe", CLI_INTEGER),
        CLI_COLUMN("rank", "rank", CLI_INTEGER),
        CLI_COLUMN("group", "circle", CLI_INTEGER),
        CLI_COLUMN("index", "place", CLI_INTEGER),
        CLI_TEXT("directions", CLI_INTEGER),
        CLI_COLUMN("slots total", "ring_bytes", CLI_BYTES),
        [SHARE_COLUMN] = CLI_TEXT("% of the cube's SRAM", CLI_SHARE),
        CLI_COLUMN("install", "install_bytes", CLI_BYTES),
        CLI_JSON("directions", CLI_NESTED),
    };
    memcpy(columns, all, sizeof all);
    if (memory != KB_SRAM)
        columns[SHARE_COLUMN].title = memory == KB_TCM ? "% of its TCM" : "% of its HBM slice";
}

static kb_code print_pes(const plan_view *view)
{
    cli_column columns[PE_COLUMNS];
    uint64_t rows = 0;
    cli_table table;
    init_pe_columns(columns, view->plan->entry->buffer);
    cli_table_init(&table, columns, PE_COLUMNS);
    add_pes(&table, view, &rows);
    kb_code code = cli_table_print(&table, stdout);
    print_omitted(view, rows, "PE", true);
    return code;
}

static json_t *pes_json(const plan_view *view)
{
    cli_column columns[PE_COLUMNS];
    uint64_t rows = 0;
    cli_table table;
    init_pe_columns(columns, view->plan->entry->buffer);
    cli_table_init_json(&table, columns, PE_COLUMNS);
    add_pes(&table, view, &rows);
    return table.rows;
}

static void add_peer(kb_text *text, const ipcq_plan *queues, size_t peer)
{
    if (peer == IPCQ_NONE) {
        kb_text_puts(text, "none");
        return;
    }
    const ipcq_plan_end *end = &queues->ends.items[peer];
    kb_text_printf(text, "%s %s", topo_pe_name(end->pe).text, end->direction);
}

static void add_direction(cli_table *table, const ipcq_plan *queues, const ipcq_plan_end *end)
{
    const ipcq_settings *settings = &queues->settings;
    kb_text to = KB_TEXT_INIT, from = KB_TEXT_INIT, slots = KB_TEXT_INIT;
    add_peer(&to, queues, end->to);
    add_peer(&from, queues, end->from);
    if (end->from == IPCQ_NONE)
        kb_text_puts(&slots, "none");
    else
        kb_text_printf(&slots, "%" PRIu32 " x %s in %s", settings->n_slots,
                       obs_bytes(settings->slot_bytes).text, memory_name(settings->buffer));
    CLI_ROW(table, {.text = topo_pe_name(end->pe).text}, {.text = end->direction},
            {.text = cli_text(&to)}, {.text = cli_text(&from)}, {.text = cli_text(&slots)});
    kb_text_fini(&to);
    kb_text_fini(&from);
    kb_text_fini(&slots);
}

static kb_code print_directions(const plan_view *view)
{
    static const cli_column columns[] = {
        CLI_TEXT("PE", CLI_WORD),       CLI_TEXT("direction", CLI_WORD),
        CLI_TEXT("sends to", CLI_WORD), CLI_TEXT("receives from", CLI_WORD),
        CLI_TEXT("slots", CLI_WORD),
    };
    const ipcq_plan *queues = &view->plan->queues;
    uint64_t rows = 0;
    cli_table table;
    cli_table_init(&table, CLI_COLUMNS(columns));
    for (size_t i = 0; i < queues->ends.count; i++) {
        const ipcq_plan_end *end = &queues->ends.items[i];
        if (is_shown(view, end->pe) && !is_full(view, rows++))
            add_direction(&table, queues, end);
    }
    kb_code code = cli_table_print(&table, stdout);
    print_omitted(view, rows, "direction", true);
    return code;
}

/* ---- All of it ----------------------------------------------------------------------------- */

static json_t *settings_json(const ccl_entry *entry)
{
    json_t *settings = json_object();
    for (size_t i = 0; i < entry->settings.count; i++)
        cli_json_set(&settings, entry->settings.items[i].key,
                     json_integer(entry->settings.items[i].value));
    return settings;
}

static json_t *entry_json(const ccl_plan *plan)
{
    const ccl_entry *entry = plan->entry;
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:s?, s:s, s:s, s:i, s:I, s:i, s:i, s:s, s:b, s:s, s:o}", "name",
        entry->name, "module", entry->algorithm->name, "topology",
        entry->topology ? entry->topology->name : "none", "mapper", entry->mapper->name,
        "validator", entry->validator ? entry->validator->name : NULL, "buffer_kind",
        memory_name(entry->buffer), "backpressure", entry->polls ? "poll" : "sleep", "n_slots",
        (int)entry->n_slots, "slot_size", (json_int_t)plan->queues.settings.slot_bytes,
        "vc_chunk_size", (int)entry->vc_chunk_bytes, "ipcq_credit_size_bytes",
        (int)entry->credit_bytes, "rank", entry->rank_is_pe ? "pe" : "sip", "reduce_shards",
        entry->reduce_shards, "reduce_op", kb_reduce_op_name(entry->reduce_op), "settings",
        settings_json(entry));
}

static kb_code print_json(const plan_view *view)
{
    return cli_json_print(json_pack("{s:o, s:s, s:o, s:i, s:I, s:o, s:o}", "topology",
                                    cli_json_machine(view->machine, &view->common->settings), "ccl",
                                    view->config->path, "algorithm", entry_json(view->plan),
                                    "world_size", (int)view->plan->scope.world, "memory_bytes",
                                    (json_int_t)view->memory_bytes, "circles",
                                    groups_json(&view->plan->participants), "pes", pes_json(view)));
}

static kb_code print_text(const plan_view *view)
{
    static kb_code (*const parts[])(const plan_view *) = {print_sips, print_groups, print_pes,
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

kb_code plan_print(const plan_view *view)
{
    return view->common->json ? print_json(view) : print_text(view);
}
