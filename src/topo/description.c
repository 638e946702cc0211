/*
 * description.c: the keys of a machine's description, and what they may hold.
 *
 * What one key may hold is checked where it is read; what several must hold together, right after.
 * A check that cannot be made because a figure is wrong is made with the default figure instead.
 */
#include "description.h"

#include <inttypes.h>
#include <string.h>

#include "quantity.h"

typedef struct reader {
    topo_description *d;
    const topo_registry *registry;
    kb_config_node *root;
} reader;

/* Which implementation a node names: the default if none, or if it is wrong. */
static const topo_component *read_impl(const reader *r, kb_config_node *node, topo_kind kind)
{
    const topo_component *fallback = topo_component_builtin(kind);
    const char *name = kb_config_string(node, fallback->name);
    const topo_component *found = topo_component_find(r->registry, name);
    if (found && found->kind == kind)
        return found;
    if (found) {
        kb_config_problem(node,
                          "expected a component of kind %s, found '%s', which is of kind "
                          "%s",
                          topo_kind_name(kind), name, topo_kind_name(found->kind));
        return fallback;
    }
    kb_suggestion near;
    kb_suggestion_init(&near, name);
    topo_component_offer(r->registry, kind, &near);
    kb_config_problem(node, "unknown component '%s'%s", name, kb_suggestion_hint(&near, ""));
    return fallback;
}

/* A component whose settings stand beside its impl. */
static kb_config_node *read_part(const reader *r, kb_config_node *mapping, const char *key,
                                 topo_kind kind)
{
    kb_config_node *node = kb_config_mapping(kb_config_find(mapping, key));
    topo_part *part = &r->d->parts[kind];
    part->impl = read_impl(r, kb_config_find(node, "impl"), kind);
    part->impl->read(node, &part->is);
    return node;
}

/* A component of system.components: {kind, impl, attrs}. */
static void read_system_part(const reader *r, kb_config_node *components, topo_kind kind)
{
    const char *name = topo_kind_name(kind);
    kb_config_node *node = kb_config_mapping(kb_config_find(components, name));
    topo_part *part = &r->d->parts[kind];
    kb_config_enum(kb_config_find(node, "kind"), &name, 1, 0);
    part->impl = read_impl(r, kb_config_find(node, "impl"), kind);
    part->impl->read(kb_config_mapping(kb_config_find(node, "attrs")), &part->is);
}

static void read_wire(kb_config_node *mapping, topo_wire *wire)
{
    topo_read_bandwidth(mapping, "bw_gbs", &wire->bytes_per_s);
    topo_read_length(mapping, "length_mm", &wire->length_nm);
}

static uint32_t square_root(uint32_t square)
{
    uint32_t root = 0;
    while ((uint64_t)(root + 1) * (root + 1) <= square)
        root++;
    return root;
}

/* The sides of a ring are its length and 1; those of a 2D pattern are given, or equal. */
static void read_sip_sides(const reader *r, kb_config_node *sips, bool count_and_pattern_are_right)
{
    topo_description *d = r->d;
    kb_config_node *w = kb_config_find(sips, "w"), *h = kb_config_find(sips, "h");
    uint32_t root = square_root(d->sips), given_w = 0, given_h = 0;
    bool right = topo_read_count(sips, "w", 1, TOPO_MAX_SIPS, &given_w);
    right = topo_read_count(sips, "h", 1, TOPO_MAX_SIPS, &given_h) && right;
    d->sip_w = d->sips;
    d->sip_h = 1;
    if (!right || !count_and_pattern_are_right)
        return;
    kb_config_node *count = topo_blame(sips, "count", r->root);
    if (d->sip_pattern == TOPO_RING_1D) {
        kb_config_problem(w ? w : h, "w and h need a 2D topology, such as torus_2d");
    } else if (w && h) {
        d->sip_w = given_w;
        d->sip_h = given_h;
        if (!kb_config_find(sips, "count") && given_w * given_h <= TOPO_MAX_SIPS)
            d->sips = given_w * given_h;
        else if (given_w * given_h != d->sips)
            kb_config_problem(count, "expected w * h, which is %" PRIu32 ", found %" PRIu32,
                              given_w * given_h, d->sips);
    } else if (w || h) {
        kb_config_problem(w ? w : h, "missing %s: w and h must be given together", w ? "h" : "w");
    } else if (root * root == d->sips) {
        d->sip_w = d->sip_h = root;
    } else {
        kb_config_problem(count, "expected a square number, or w and h, found %" PRIu32, d->sips);
    }
}

static void read_sips(const reader *r, kb_config_node *sips)
{
    static const char *const names[] = {"ring_1d", "torus_2d", "mesh_2d", "mesh_2d_no_wrap"};
    static const topo_sip_pattern patterns[] = {TOPO_RING_1D, TOPO_TORUS_2D, TOPO_TORUS_2D,
                                                TOPO_MESH_2D_NO_WRAP};
    enum { pattern_count = sizeof names / sizeof names[0] };
    topo_description *d = r->d;
    bool right = topo_read_count(sips, "count", 1, TOPO_MAX_SIPS, &d->sips);
    kb_config_node *topology = kb_config_find(sips, "topology");
    size_t named = kb_config_enum(topology, names, pattern_count, pattern_count);
    if (named < pattern_count)
        d->sip_pattern = patterns[named];
    read_sip_sides(r, sips, right && (named < pattern_count || !topology));

    kb_config_node *link = kb_config_mapping(kb_config_find(sips, "link"));
    d->sip_links = link != NULL;
    d->sip_to_sip = (topo_wire){.bytes_per_s = TOPO_RATE_MIN};
    d->parts[TOPO_SIP_PORT] = (topo_part){0};
    if (!link)
        return;
    kb_config_need(link, "bw_gbs");
    kb_config_need(link, "length_mm");
    kb_config_need(link, "overhead_ns");
    read_wire(link, &d->sip_to_sip);
    topo_read_time(link, "overhead_ns", &d->parts[TOPO_SIP_PORT].is.overhead_fs);
}

static void read_system(const reader *r, kb_config_node *system)
{
    static const int64_t one = 1000000000;
    topo_description *d = r->d;
    kb_config_node *delay = kb_config_find(system, "ns_per_mm");
    d->wire_delay = (uint64_t)kb_config_decimal(delay, 9, 0, one, (int64_t)d->wire_delay);
    read_sips(r, kb_config_mapping(kb_config_find(system, "sips")));
    kb_config_node *components = kb_config_mapping(kb_config_find(system, "components"));
    read_system_part(r, components, TOPO_HOST);
    read_system_part(r, components, TOPO_SWITCH);
    read_wire(kb_config_find(system, "host_to_switch"), &d->host_to_switch);
    read_wire(kb_config_find(system, "sip_to_switch"), &d->sip_to_switch);
}

static void read_fabric(const reader *r, kb_config_node *fabric)
{
    topo_description *d = r->d;
    topo_read_count(fabric, "packet_bytes", 1, TOPO_MAX_PACKET_BYTES, &d->packet_bytes);
    topo_read_count(fabric, "vcs", 1, TOPO_MAX_VCS, &d->vcs);
    topo_read_count(fabric, "depth_bytes", 0, TOPO_MAX_DEPTH_BYTES, &d->depth_bytes);
    static const char *const ports[] = {"parallel", "serial"};
    d->serial_ports =
        kb_config_enum(kb_config_find(fabric, "ports"), ports, 2, d->serial_ports) == 1;
}

static void read_sip(const reader *r, kb_config_node *sip)
{
    topo_description *d = r->d;
    kb_config_node *mesh = kb_config_find(sip, "cube_mesh");
    topo_read_count(mesh, "w", 1, TOPO_MAX_SIDE, &d->cube_w);
    topo_read_count(mesh, "h", 1, TOPO_MAX_SIDE, &d->cube_h);
    topo_read_length(sip, "cube_pitch_mm", &d->cube_pitch_nm);
    kb_config_node *ucie = read_part(r, sip, "ucie", TOPO_UCIE);
    d->parts[TOPO_IO_UCIE] = d->parts[TOPO_UCIE];
    topo_read_bandwidth(ucie, "bw_gbs", &d->ucie_bandwidth);
    kb_config_node *io = kb_config_find(sip, "io");
    read_part(r, io, "pcie_ep", TOPO_PCIE_EP);
    read_part(r, io, "io_cpu", TOPO_IO_CPU);
    read_wire(read_part(r, io, "io_noc", TOPO_IO_NOC), &d->io);
}

static void read_noc(const reader *r, kb_config_node *noc)
{
    topo_description *d = r->d;
    kb_config_node *k = kb_config_find(noc, "k");
    bool sides = kb_config_find(noc, "w") || kb_config_find(noc, "h");
    topo_read_count(noc, "w", 1, TOPO_MAX_SIDE, &d->noc_w);
    topo_read_count(noc, "h", 1, TOPO_MAX_SIDE, &d->noc_h);
    if (k && sides)
        kb_config_problem(k, "expected either k (w = h = k), or w and h");
    if (k)
        d->noc_w = d->noc_h = (uint32_t)kb_config_int(k, 1, TOPO_MAX_SIDE, d->noc_w);
    read_part(r, noc, "router", TOPO_ROUTER);
    read_wire(noc, &d->noc);
}

/* False if there is a list and it is wrong. */
static bool read_corners(const reader *r, kb_config_node *corners)
{
    topo_description *d = r->d;
    if (!kb_config_sequence(corners))
        return !corners;
    topo_corner list[TOPO_CORNERS];
    uint32_t count = 0;
    bool used[TOPO_CORNERS] = {false}, right = true;
    for (kb_config_node *item = kb_config_first(corners); item; item = kb_config_next(item)) {
        size_t corner = kb_config_enum(item, topo_corner_names, TOPO_CORNERS, TOPO_CORNERS);
        bool twice = corner < TOPO_CORNERS && used[corner];
        if (twice)
            kb_config_problem(item, "duplicate corner %s", topo_corner_names[corner]);
        right &= corner < TOPO_CORNERS && !twice;
        if (corner < TOPO_CORNERS && !twice) {
            used[corner] = true;
            list[count++] = (topo_corner)corner;
        }
    }
    if (kb_config_count(corners) == 0)
        kb_config_problem(corners, "expected at least one corner, found none");
    if (!right || count == 0)
        return false;
    memcpy(d->corners, list, count * sizeof list[0]);
    d->corner_count = count;
    return true;
}

/* False if there is no telling how many PEs there are. */
static bool read_pe_layout(const reader *r, kb_config_node *layout)
{
    topo_description *d = r->d;
    kb_config_node *per_router = kb_config_find(layout, "pe_per_router");
    kb_config_node *per_corner = kb_config_find(layout, "pe_per_corner");
    kb_config_node *corners = kb_config_find(layout, "corners");
    if (per_router && (per_corner || corners))
        kb_config_problem(per_router,
                          "expected either pe_per_router, or pe_per_corner and corners");
    bool right = topo_read_count(layout, "pe_per_corner", 1, TOPO_MAX_PES, &d->pe_per_corner);
    right = read_corners(r, corners) && right;
    if (per_corner || corners)
        d->pe_per_router = 0;
    right = topo_read_count(layout, "pe_per_router", 1, TOPO_MAX_PES, &d->pe_per_router) && right;

    uint32_t routers = d->noc_w * d->noc_h; /* 4096 * 4096 at most */
    uint32_t pes =
        d->pe_per_router ? d->pe_per_router * routers : d->pe_per_corner * d->corner_count;
    if (right && pes > TOPO_MAX_PES) {
        kb_config_problem(
            topo_blame(layout, d->pe_per_router ? "pe_per_router" : "pe_per_corner", r->root),
            "expected at most %d PEs per cube, found %" PRIu32, TOPO_MAX_PES, pes);
        right = false;
    }
    if (right)
        d->pes = pes;
    return right;
}

/* Addresses have room for so much of a PE's TCM. */
enum { max_tcm_mib = 256 };

static void read_tcm(const reader *r, kb_config_node *tcm)
{
    topo_description *d = r->d;
    bool right = topo_read_bytes_within(tcm, "capacity_mib", 20, 1, max_tcm_mib, &d->tcm_bytes);
    right =
        topo_read_bytes_within(tcm, "reserved_mib", 20, 0, max_tcm_mib, &d->tcm_reserved_bytes) &&
        right;
    if (right && d->tcm_reserved_bytes >= d->tcm_bytes)
        kb_config_problem(topo_blame(tcm, "reserved_mib", r->root),
                          "expected less than the TCM capacity of %.9g MiB, found %.9g MiB",
                          (double)d->tcm_bytes / (double)(1 << 20),
                          (double)d->tcm_reserved_bytes / (double)(1 << 20));
}

enum {
    max_array_side = 1 << 16, /* of the matrix engine */
    max_lanes = 1 << 16,
    max_cycles = 1 << 16,
    max_queue = 1 << 16,
    max_channels = 1 << 10,
};

/* The cycle of an engine. */
static void read_engines(kb_config_node *cube, topo_pe_params *pe)
{
    kb_config_node *cpu = kb_config_mapping(kb_config_find(cube, "pe_cpu"));
    topo_read_time(cpu, "overhead_ns", &pe->cpu_overhead_fs);
    topo_read_time(cpu, "issue_ns", &pe->cpu_issue_fs);
    topo_read_count(cpu, "queue_depth", 1, max_queue, &pe->queue_depth);

    kb_config_node *gemm = kb_config_mapping(kb_config_find(cube, "pe_gemm"));
    static const char *const fills[] = {"once", "per_fold"};
    topo_read_count(gemm, "rows", 1, max_array_side, &pe->gemm_rows);
    topo_read_count(gemm, "columns", 1, max_array_side, &pe->gemm_columns);
    topo_read_cycle(gemm, "cycle_ns", &pe->gemm_cycle_fs);
    size_t fill = kb_config_enum(kb_config_find(gemm, "fill"), fills, 2, 2);
    if (fill < 2) /* else it is not there: as it was */
        pe->gemm_fill_per_fold = fill == 1;

    kb_config_node *math = kb_config_mapping(kb_config_find(cube, "pe_math"));
    topo_read_count(math, "lanes", 1, max_lanes, &pe->math_lanes);
    topo_read_cycle(math, "cycle_ns", &pe->math_cycle_fs);
    for (int i = 0; i < TOPO_MATH_CLASSES; i++)
        topo_read_count(math, topo_math_class_keys[i], 1, max_cycles, &pe->math_cycles[i]);
    topo_read_count(math, "latency_cycles", 0, max_cycles, &pe->math_latency_cycles);
}

static void read_cube(const reader *r, kb_config_node *cube)
{
    topo_description *d = r->d;
    uint64_t slice = d->pes > 0 ? d->hbm_bytes / d->pes : 0;
    read_noc(r, kb_config_mapping(kb_config_find(cube, "noc")));
    bool right = read_pe_layout(r, kb_config_mapping(kb_config_find(cube, "pe_layout")));
    kb_config_node *xbar = read_part(r, cube, "xbar", TOPO_XBAR);
    topo_read_length(xbar, "length_mm", &d->xbar_length_nm);
    /* A controller is as fast as its link unless it says so itself. */
    topo_read_bandwidth(cube, "xbar_to_hbm_bw_gbs", &d->xbar_to_hbm);
    if (kb_config_find(cube, "xbar_to_hbm_bw_gbs"))
        d->parts[TOPO_HBM_CTRL].is.raw_bytes_per_s = d->xbar_to_hbm;
    read_part(r, cube, "hbm_ctrl", TOPO_HBM_CTRL);
    read_part(r, cube, "sram", TOPO_SRAM);
    read_part(r, cube, "m_cpu", TOPO_M_CPU);
    kb_config_node *tcm = kb_config_mapping(kb_config_find(cube, "pe_tcm"));
    read_tcm(r, tcm);
    topo_read_bandwidth(tcm, "bw_gbs", &d->pe.tcm_bytes_per_s);
    read_engines(cube, &d->pe);
    kb_config_node *dma = read_part(r, cube, "pe_dma", TOPO_PE_DMA);
    topo_read_count(dma, "channels", 1, max_channels, &d->pe.dma_channels);
    topo_read_bandwidth(cube, "ucie_to_noc_bw_gbs", &d->ucie_to_noc);
    topo_read_bandwidth(cube, "pe_to_noc_bw_gbs", &d->pe_to_noc);
    topo_read_bandwidth(cube, "pe_to_xbar_bw_gbs", &d->pe_to_xbar);
    topo_read_bandwidth(cube, "noc_to_xbar_bw_gbs", &d->noc_to_xbar);
    topo_read_bandwidth(cube, "xbar_to_sram_bw_gbs", &d->xbar_to_sram);
    if (right && slice > 0 && !kb_config_find(cube, "hbm_gib"))
        d->hbm_bytes = slice * d->pes; /* more PEs, more slices */
    right = topo_read_bytes(cube, "hbm_gib", 30, &d->hbm_bytes) && right;
    if (right && d->hbm_bytes % d->pes != 0)
        kb_config_problem(topo_blame(cube, "hbm_gib", r->root),
                          "expected a size divisible into %" PRIu32 " equal slices, one per PE, "
                          "found %.9g GiB",
                          d->pes, (double)d->hbm_bytes / (double)(1 << 30));
}

static void read_name(const reader *r, kb_config_node *node)
{
    const char *name = kb_config_string(node, r->d->name);
    bool printable = true;
    for (const char *c = name; *c != '\0'; c++)
        printable = printable && (unsigned char)*c >= ' ' && *c != 0x7f;
    if (strlen(name) > TOPO_MAX_NAME)
        kb_config_problem(node, "expected a name of at most %d bytes", TOPO_MAX_NAME);
    else if (!printable)
        kb_config_problem(node, "expected a name without control characters");
    else if (name != r->d->name)
        memcpy(r->d->name, name, strlen(name) + 1);
}

void topo_description_read(topo_description *description, kb_config *config,
                           const topo_registry *registry)
{
    kb_config_node *root = kb_config_root(config);
    reader r = {.d = description, .registry = registry, .root = root};
    read_name(&r, kb_config_find(root, "name"));
    read_system(&r, kb_config_mapping(kb_config_find(root, "system")));
    read_fabric(&r, kb_config_mapping(kb_config_find(root, "fabric")));
    read_sip(&r, kb_config_mapping(kb_config_find(root, "sip")));
    read_cube(&r, kb_config_mapping(kb_config_find(root, "cube")));
}
