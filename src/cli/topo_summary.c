/* topo_summary.c: counts, capacities and bandwidths of a machine, its nodes and links. */
#include "topo_summary.h"

#include "cli.h"
#include "columns.h"
#include "json.h"
#include "machine_options.h"
#include "obs/obs.h"
#include "terminal.h"

#include <inttypes.h>

/* The nodes of a kind. */
typedef struct node_class {
    uint64_t count;
    kb_time overhead_fs; /* of each */
} node_class;

typedef struct summary {
    const topo_machine *machine;
    const topo_shape *shape;
    const topo_graph *graph;
    node_class nodes[TOPO_KINDS];
    link_classes links;
    uint64_t slice_rate, sram_rate; /* bytes a second */
} summary;

static kb_error *summarise(const topo_machine *machine, summary *s)
{
    *s = (summary){
        .machine = machine,
        .shape = topo_machine_shape(machine),
        .graph = topo_machine_graph(machine),
    };
    KB_TRY(link_classes_init(&s->links, machine));
    for (size_t i = 0; i < s->graph->nodes.count; i++) {
        const topo_node *node = &s->graph->nodes.items[i];
        node_class *c = &s->nodes[node->kind];
        if (c->count++ == 0)
            c->overhead_fs = node->overhead_fs;
    }
    const link_class *slice = link_classes_find(&s->links, TOPO_HBM_CTRL, TOPO_HBM_CTRL, true);
    const link_class *sram = link_classes_find(&s->links, TOPO_SRAM, TOPO_SRAM, true);
    s->slice_rate = slice ? slice->rate : 0;
    s->sram_rate = sram ? sram->rate : 0;
    return NULL;
}

static const char *impl_name(const summary *s, topo_kind kind)
{
    const topo_component *component = topo_machine_component(s->machine, kind);
    return component ? component->name : "";
}

static uint64_t cubes_of(const summary *s)
{
    return (uint64_t)s->shape->sips * s->shape->cubes;
}

static double gbs_of(uint64_t rate, uint64_t times)
{
    return (double)rate / (double)TOPO_GBS * (double)times;
}

/* ---- Tables ------------------------------------------------------------------------------ */

static const cli_column node_columns[] = {
    CLI_COLUMN("node", "kind", CLI_WORD),
    CLI_COLUMN("count", "count", CLI_COUNT),
    CLI_COLUMN("overhead ns", "overhead_ns", CLI_NS),
    CLI_COLUMN("implementation", "impl", CLI_WORD),
};

static void add_nodes(cli_table *table, const void *from)
{
    const summary *s = from;
    for (int kind = 0; kind < TOPO_KINDS; kind++) {
        const node_class *c = &s->nodes[kind];
        if (c->count > 0)
            CLI_ROW(table, {.text = topo_kind_name((topo_kind)kind)}, {.n = c->count},
                    {.n = c->overhead_fs}, {.text = impl_name(s, (topo_kind)kind)});
    }
}

static const cli_rows nodes = {CLI_COLUMNS(node_columns), add_nodes};

static const cli_column link_columns[] = {
    CLI_TEXT("link", CLI_WORD),
    CLI_JSON("between", CLI_LINK_CLASS),
    CLI_JSON("service", CLI_BOOL),
    CLI_COLUMN("count", "count", CLI_COUNT),
    CLI_COLUMN("GB/s", "gbs", CLI_RATE),
    CLI_TEXT("total GB/s", CLI_GBS),
    CLI_COLUMN("wire ns", "wire_ns", CLI_NS),
};

static void add_links(cli_table *table, const void *from)
{
    const summary *s = from;
    for (size_t i = 0; i < s->links.all.count; i++) {
        const link_class *c = &s->links.all.items[i];
        kb_text name = KB_TEXT_INIT;
        link_class_name(c, &name);
        kb_text_puts(&name, c->service ? " (service)" : "");
        CLI_ROW(table, {.text = cli_text(&name)}, {.link_class = c}, {.n = c->service},
                {.n = c->count}, {.n = c->rate}, {.real = gbs_of(c->rate, c->count)},
                {.n = c->wire_fs});
        kb_text_fini(&name);
    }
}

static const cli_rows links = {CLI_COLUMNS(link_columns), add_links};

/* ---- Text -------------------------------------------------------------------------------- */

static void print_machine(const summary *s)
{
    const topo_shape *m = s->shape;
    uint64_t cubes = cubes_of(s);
    printf("  SIPs     %u, %s", m->sips, topo_sip_pattern_name(m->sip_pattern));
    if (m->sip_h > 1)
        printf(" %u x %u", m->sip_w, m->sip_h);
    if (m->sips > 1)
        printf(", %s", m->sip_links ? "with direct SIP-to-SIP links" : "connected by the switch");
    printf("\n  cubes    %u x %u per SIP, %s total\n", m->cube_w, m->cube_h, obs_count(cubes).text);
    printf("  PEs      %u per cube, %s total\n", m->pes, obs_count(m->pe_count).text);
    printf("  NOC      %u x %u router%s per cube\n", m->noc_w, m->noc_h,
           kb_plural((uint64_t)m->noc_w * m->noc_h));
    printf("  HBM      %s per cube in %u slice%s of %s, %s total\n", obs_bytes(m->hbm_bytes).text,
           m->pes, kb_plural(m->pes), obs_bytes(m->slice_bytes).text,
           obs_bytes(m->hbm_bytes * cubes).text);
    printf("           %s GB/s per slice, %s per cube, %s total\n", obs_rate(s->slice_rate).text,
           obs_gbs(gbs_of(s->slice_rate, m->pes)).text,
           obs_gbs(gbs_of(s->slice_rate, m->pe_count)).text);
    printf("  SRAM     %s per cube, %s total\n", obs_bytes(m->sram_bytes).text,
           obs_bytes(m->sram_bytes * cubes).text);
    printf("           %s GB/s per cube, %s total\n", obs_rate(s->sram_rate).text,
           obs_gbs(gbs_of(s->sram_rate, cubes)).text);
    printf("  TCM      %s per PE, %s of it reserved for the scheduler, %s total\n",
           obs_bytes(m->tcm_bytes).text, obs_bytes(m->tcm_reserved_bytes).text,
           obs_bytes(m->tcm_bytes * m->pe_count).text);
    printf("  fabric   packets of %s; %u virtual channel%s per class and port, %s deep%s\n",
           obs_bytes(m->fabric.packet_bytes).text, m->fabric.vcs, kb_plural(m->fabric.vcs),
           obs_bytes(m->fabric.depth_bytes).text,
           m->fabric.serial_ports ? "; ports send one packet at a time" : "");
    printf("  graph    %s nodes, %s links; at most %u links on a route\n",
           obs_count(s->graph->nodes.count).text, obs_count(s->graph->links.count).text,
           m->max_steps);
}

kb_code topo_print_summary(const topo_machine *machine, const cli_list *settings)
{
    summary s;
    kb_error *err = summarise(machine, &s);
    if (err)
        return cli_report(err);
    kb_text title = KB_TEXT_INIT;
    kb_text_puts(&title, "Machine ");
    cli_machine_title(machine, settings, &title);
    kb_text_printf(&title, ", hash %016" PRIx64, topo_machine_hash(machine));
    cli_print_heading(stdout, cli_text(&title));
    kb_text_fini(&title);
    print_machine(&s);
    putchar('\n');
    kb_code code = cli_rows_print(&nodes, machine, &s);
    if (code == KB_OK) {
        putchar('\n');
        code = cli_rows_print(&links, machine, &s);
    }
    link_classes_fini(&s.links);
    return code;
}

/* ---- JSON -------------------------------------------------------------------------------- */

static json_t *memory_json(const summary *s)
{
    const topo_shape *m = s->shape;
    json_t *hbm =
        json_pack("{s:I, s:I, s:o, s:o}", "cube_bytes", (json_int_t)m->hbm_bytes, "slice_bytes",
                  (json_int_t)m->slice_bytes, "slice_gbs", cli_json_rate(s->slice_rate),
                  "total_gbs", cli_json_real(gbs_of(s->slice_rate, m->pe_count)));
    json_t *sram = json_pack("{s:I, s:o, s:o}", "cube_bytes", (json_int_t)m->sram_bytes, "cube_gbs",
                             cli_json_rate(s->sram_rate), "total_gbs",
                             cli_json_real(gbs_of(s->sram_rate, cubes_of(s))));
    json_t *tcm = json_pack("{s:I, s:I}", "pe_bytes", (json_int_t)m->tcm_bytes, "reserved_bytes",
                            (json_int_t)m->tcm_reserved_bytes);
    return json_pack("{s:o, s:o, s:o}", "hbm", hbm, "sram", sram, "tcm", tcm);
}

static json_t *shape_json(const summary *s)
{
    const topo_shape *m = s->shape;
    return json_pack("{s:{s:I, s:s, s:I, s:I, s:b}, s:{s:I, s:I, s:I}, s:I, s:I, s:{s:I, s:I}}",
                     "sips", "count", (json_int_t)m->sips, "pattern",
                     topo_sip_pattern_name(m->sip_pattern), "w", (json_int_t)m->sip_w, "h",
                     (json_int_t)m->sip_h, "direct_links", m->sip_links, "cubes_per_sip", "count",
                     (json_int_t)m->cubes, "w", (json_int_t)m->cube_w, "h", (json_int_t)m->cube_h,
                     "pes_per_cube", (json_int_t)m->pes, "pes", (json_int_t)m->pe_count, "noc", "w",
                     (json_int_t)m->noc_w, "h", (json_int_t)m->noc_h);
}

static json_t *fabric_json(const summary *s)
{
    const topo_shape *m = s->shape;
    return json_pack("{s:I, s:I, s:I, s:b}", "packet_bytes", (json_int_t)m->fabric.packet_bytes,
                     "vcs", (json_int_t)m->fabric.vcs, "depth_bytes",
                     (json_int_t)m->fabric.depth_bytes, "serial_ports", m->fabric.serial_ports);
}

kb_code topo_print_summary_json(const topo_machine *machine, const cli_list *settings)
{
    summary s;
    kb_error *err = summarise(machine, &s);
    if (err)
        return cli_report(err);
    json_t *document = json_pack(
        "{s:o, s:o, s:o, s:o, s:I, s:o, s:I, s:o}", "topology", cli_json_machine(machine, settings),
        "shape", shape_json(&s), "memory", memory_json(&s), "fabric", fabric_json(&s), "node_count",
        (json_int_t)s.graph->nodes.count, "nodes", cli_rows_json(&nodes, machine, &s), "link_count",
        (json_int_t)s.graph->links.count, "links", cli_rows_json(&links, machine, &s));
    link_classes_fini(&s.links);
    return cli_json_print(document);
}
