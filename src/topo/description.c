/*
 * description.c: the keys of a machine file, in one table: `rows`.
 *
 * A row is a key with its field, unit and range; or a component, whose model declares its keys; or
 * a group of keys that depend on each other and have functions of their own. Reading, printing and
 * hashing walk the table, so a new key is one row. The order of rows is the order of the hash:
 * moving a row changes the hash of all machines.
 *
 * What one key may hold is checked where it is read; what several must hold together, right after.
 * A check that cannot be made because a value is wrong is made with the default instead.
 */
#include "description.h"

#include <inttypes.h>
#include <string.h>

enum {
    max_tcm_mib = 256,        /* addresses have room for that */
    max_array_side = 1 << 16, /* of the matrix engine */
    max_lanes = 1 << 16,
    max_cycles = 1 << 16,
    max_queue = 1 << 16,
    max_channels = 1 << 10,
};

typedef struct reader {
    topo_description *d;
    const topo_registry *registry;
    kb_config_node *root;
    uint64_t slice_bytes; /* of a PE, before the file is read */
    bool previous_right;  /* the row before the current one is right */
    bool pes_right;       /* the layout of PEs is */
} reader;

/* FNV-1a over values, each as eight bytes with the lowest first: the same on every computer. */
typedef struct hash {
    uint64_t state;
} hash;

/* Keys that depend on each other. */
typedef struct group {
    void (*read)(reader *r);
    void (*print)(const topo_description *d, kb_text *text);
    void (*add)(hash *h, const topo_description *d); /* to the hash */
} group;

typedef struct row {
    topo_key key;         /* of a component: the path of its mapping */
    const char *settings; /* of a component: the mapping of its settings, unless that is its own */
    const group *group;
    void (*before)(reader *r);            /* sets a default that depends on rows above */
    void (*check)(reader *r, bool right); /* the key itself is right */
    topo_kind kind;
    uint16_t link; /* of a component with an inherited key: the field with its link's rate */
    bool is_part;  /* a component; `kind` says which */
    bool hashes_rate;
} row;

/* ---- Components -------------------------------------------------------------------------- */

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

/* The rate of the component's link, which is the default of its inherited keys. */
static uint64_t link_rate(const row *w, const topo_description *d)
{
    uint64_t rate;
    memcpy(&rate, (const char *)d + w->link, sizeof rate);
    return rate;
}

static void read_part(const reader *r, const row *w)
{
    const char *name = topo_kind_name(w->kind);
    kb_config_node *node = kb_config_mapping(topo_key_find(r->root, w->key.path));
    topo_part *part = &r->d->parts[w->kind];
    if (w->settings) /* {kind, impl, SETTINGS} */
        kb_config_enum(kb_config_find(node, "kind"), &name, 1, 0);
    part->impl = read_impl(r, kb_config_find(node, "impl"), w->kind);
    kb_config_node *settings =
        w->settings ? kb_config_mapping(kb_config_find(node, w->settings)) : node;
    for (size_t i = 0; i < part->impl->key_count; i++) {
        const topo_key *key = &part->impl->keys[i];
        if (key->inherited)
            topo_key_set(key, &part->is, link_rate(w, r->d));
        topo_key_read(key, settings, &part->is);
    }
    if (part->impl->derive)
        part->impl->derive(settings, &part->is);
    if (w->kind == TOPO_UCIE)
        r->d->parts[TOPO_IO_UCIE] = *part;
}

/* The implementation, if it is not the built-in one, and the settings. */
static void print_part(const topo_description *d, const row *w, kb_text *text)
{
    const topo_part *part = &d->parts[w->kind];
    kb_text prefix = KB_TEXT_INIT;
    kb_text_printf(&prefix, "%s%s%s", w->key.path, w->settings ? "." : "",
                   w->settings ? w->settings : "");
    if (part->impl != topo_component_builtin(w->kind))
        kb_text_printf(text, "%s.impl=%s\n", w->key.path, part->impl->name);
    for (size_t i = 0; i < part->impl->key_count; i++) {
        const topo_key *key = &part->impl->keys[i];
        if (!key->inherited || topo_key_get(key, &part->is) != link_rate(w, d))
            topo_key_print(key, kb_text_peek(&prefix), &part->is, text);
    }
    text->failed |= prefix.failed;
    kb_text_fini(&prefix);
}

/* ---- Hash -------------------------------------------------------------------------------- */

static void add_byte(hash *h, unsigned char byte)
{
    static const uint64_t prime = 0x100000001b3;
    h->state = (h->state ^ byte) * prime;
}

static void add(hash *h, uint64_t value)
{
    for (unsigned shift = 0; shift < 64; shift += 8)
        add_byte(h, (unsigned char)(value >> shift));
}

static void add_text(hash *h, const char *text)
{
    do
        add_byte(h, (unsigned char)*text);
    while (*text++ != '\0');
}

/* Equal effective bandwidths hash alike, however they are set. */
static void add_parts(hash *h, const topo_description *d)
{
    for (int kind = 0; kind < TOPO_KINDS; kind++) {
        const topo_part *part = &d->parts[kind];
        bool is_memory = kind == TOPO_HBM_CTRL || kind == TOPO_SRAM;
        add_text(h, part->impl ? part->impl->name : "");
        add(h, (uint64_t)part->is.timing.latency_fs);
        add(h, (uint64_t)part->is.count_fs);
        add(h, (uint64_t)part->is.trigger_fs);
        add(h, is_memory ? part->is.timing.bytes_per_s : 0);
        add(h, part->is.bytes);
    }
}

/* ---- Name -------------------------------------------------------------------------------- */

static void read_name(reader *r)
{
    kb_config_node *node = kb_config_find(r->root, "name");
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

static void print_name(const topo_description *d, kb_text *text)
{
    size_t start = text->length;
    kb_text_printf(text, "name=%s", d->name);
    kb_text_escape_from(text, start); /* after a file's name, which may be any bytes */
    kb_text_puts(text, "\n");
}

static const group name_group = {.read = read_name, .print = print_name};

/* ---- SIPs and the links between them ----------------------------------------------------- */

static const topo_key sip_count_key = {.path = "system.sips.count",
                                       TOPO_COUNT(topo_description, sips, 1, TOPO_MAX_SIPS)};
static const topo_key sip_w_key = {.path = "system.sips.w",
                                   TOPO_COUNT(topo_description, sip_w, 1, TOPO_MAX_SIPS)};
static const topo_key sip_h_key = {.path = "system.sips.h",
                                   TOPO_COUNT(topo_description, sip_h, 1, TOPO_MAX_SIPS)};

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
    uint32_t root = square_root(d->sips);
    bool right = topo_key_read(&sip_w_key, r->root, d);
    right = topo_key_read(&sip_h_key, r->root, d) && right;
    uint32_t given_w = d->sip_w, given_h = d->sip_h;
    d->sip_w = d->sips;
    d->sip_h = 1;
    if (!right || !count_and_pattern_are_right)
        return;
    kb_config_node *count = topo_key_nearest(r->root, sip_count_key.path);
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

static void read_sips(reader *r)
{
    static const char *const names[] = {"ring_1d", "torus_2d", "mesh_2d", "mesh_2d_no_wrap"};
    static const topo_sip_pattern patterns[] = {TOPO_RING_1D, TOPO_TORUS_2D, TOPO_TORUS_2D,
                                                TOPO_MESH_2D_NO_WRAP};
    enum { pattern_count = sizeof names / sizeof names[0] };
    topo_description *d = r->d;
    kb_config_node *sips = kb_config_mapping(topo_key_find(r->root, "system.sips"));
    bool right = topo_key_read(&sip_count_key, r->root, d);
    kb_config_node *topology = kb_config_find(sips, "topology");
    size_t named = kb_config_enum(topology, names, pattern_count, pattern_count);
    if (named < pattern_count)
        d->sip_pattern = patterns[named];
    read_sip_sides(r, sips, right && (named < pattern_count || !topology));
    d->sip_links = kb_config_mapping(kb_config_find(sips, "link")) != NULL;
}

static void print_sips(const topo_description *d, kb_text *text)
{
    topo_key_print(&sip_count_key, "", d, text);
    kb_text_printf(text, "system.sips.topology=%s\n", topo_sip_pattern_name(d->sip_pattern));
    if (d->sip_pattern != TOPO_RING_1D) {
        topo_key_print(&sip_w_key, "", d, text);
        topo_key_print(&sip_h_key, "", d, text);
    }
}

static void add_sips(hash *h, const topo_description *d)
{
    add(h, d->sips);
    add(h, d->sip_w);
    add(h, d->sip_h);
    add(h, d->sip_pattern);
    add(h, d->sip_links);
}

static const group sip_group = {.read = read_sips, .print = print_sips, .add = add_sips};

static const topo_key sip_link_keys[] = {
    {.path = "bw_gbs", TOPO_GB_S(topo_description, sip_to_sip.bytes_per_s)},
    {.path = "length_mm", TOPO_MM(topo_description, sip_to_sip.length_nm)},
    {.path = "overhead_ns", TOPO_NS(topo_description, parts[TOPO_SIP_PORT].is.timing.latency_fs)},
};
enum { sip_link_key_count = sizeof sip_link_keys / sizeof sip_link_keys[0] };
static const char sip_link_path[] = "system.sips.link";

/* There is no default link, so all of its keys are needed. */
static void read_sip_link(reader *r)
{
    topo_description *d = r->d;
    kb_config_node *link = topo_key_find(r->root, sip_link_path);
    d->sip_to_sip = (topo_wire){.bytes_per_s = TOPO_RATE_MIN};
    d->parts[TOPO_SIP_PORT] = (topo_part){0};
    for (size_t i = 0; d->sip_links && i < sip_link_key_count; i++) {
        kb_config_need(link, sip_link_keys[i].path);
        topo_key_read(&sip_link_keys[i], link, d);
    }
}

static void print_sip_link(const topo_description *d, kb_text *text)
{
    for (size_t i = 0; d->sip_links && i < sip_link_key_count; i++)
        topo_key_print(&sip_link_keys[i], sip_link_path, d, text);
}

static void add_sip_link(hash *h, const topo_description *d)
{
    add(h, d->sip_to_sip.bytes_per_s);
    add(h, d->sip_to_sip.length_nm);
}

static const group sip_link_group = {
    .read = read_sip_link, .print = print_sip_link, .add = add_sip_link};

/* ---- Routers and PEs of a cube ----------------------------------------------------------- */

/* The short form of a square mesh: k for w and h. */
static void read_square(reader *r)
{
    topo_description *d = r->d;
    kb_config_node *noc = topo_key_find(r->root, "cube.noc");
    kb_config_node *k = kb_config_find(noc, "k");
    if (k && (kb_config_find(noc, "w") || kb_config_find(noc, "h")))
        kb_config_problem(k, "expected either k (w = h = k), or w and h");
    if (k)
        d->noc_w = d->noc_h = (uint32_t)kb_config_int(k, 1, TOPO_MAX_SIDE, d->noc_w);
}

static const group square_group = {.read = read_square};

static const topo_key per_router_key = {
    .path = "cube.pe_layout.pe_per_router",
    TOPO_COUNT(topo_description, pe_per_router, 1, TOPO_MAX_PES)};
static const topo_key per_corner_key = {
    .path = "cube.pe_layout.pe_per_corner",
    TOPO_COUNT(topo_description, pe_per_corner, 1, TOPO_MAX_PES)};

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

static void read_pe_layout(reader *r)
{
    topo_description *d = r->d;
    kb_config_node *layout = kb_config_mapping(topo_key_find(r->root, "cube.pe_layout"));
    kb_config_node *per_router = kb_config_find(layout, "pe_per_router");
    kb_config_node *per_corner = kb_config_find(layout, "pe_per_corner");
    kb_config_node *corners = kb_config_find(layout, "corners");
    if (per_router && (per_corner || corners))
        kb_config_problem(per_router,
                          "expected either pe_per_router, or pe_per_corner and corners");
    bool right = topo_key_read(&per_corner_key, r->root, d);
    right = read_corners(r, corners) && right;
    if (per_corner || corners)
        d->pe_per_router = 0;
    right = topo_key_read(&per_router_key, r->root, d) && right;

    uint32_t routers = d->noc_w * d->noc_h; /* 4096 * 4096 at most */
    uint32_t pes =
        d->pe_per_router ? d->pe_per_router * routers : d->pe_per_corner * d->corner_count;
    if (right && pes > TOPO_MAX_PES) {
        const topo_key *key = d->pe_per_router ? &per_router_key : &per_corner_key;
        kb_config_problem(topo_key_nearest(r->root, key->path),
                          "expected at most %d PEs per cube, found %" PRIu32, TOPO_MAX_PES, pes);
        right = false;
    }
    if (right)
        d->pes = pes;
    r->pes_right = right;
}

static void print_pe_layout(const topo_description *d, kb_text *text)
{
    if (d->pe_per_router > 0) {
        kb_text_printf(text, "cube.pe_layout={ pe_per_router: %" PRIu32 " }\n", d->pe_per_router);
        return;
    }
    kb_text_printf(text, "cube.pe_layout={ pe_per_corner: %" PRIu32 ", corners: [",
                   d->pe_per_corner);
    for (uint32_t i = 0; i < d->corner_count; i++)
        kb_text_printf(text, "%s%s", i > 0 ? ", " : "", topo_corner_names[d->corners[i]]);
    kb_text_puts(text, "] }\n");
}

static void add_pe_layout(hash *h, const topo_description *d)
{
    add(h, d->pe_per_router);
    if (d->pe_per_router)
        return;
    add(h, d->pe_per_corner);
    add(h, d->corner_count);
    for (uint32_t i = 0; i < d->corner_count; i++)
        add(h, d->corners[i]);
}

static const group pe_layout_group = {
    .read = read_pe_layout, .print = print_pe_layout, .add = add_pe_layout};

/* ---- Memories ---------------------------------------------------------------------------- */

/* A file that has more PEs and does not say how much HBM has more slices. */
static void keep_slice_size(reader *r)
{
    if (r->pes_right && r->slice_bytes > 0)
        r->d->hbm_bytes = r->slice_bytes * r->d->pes;
}

static void check_hbm(reader *r, bool right)
{
    const topo_description *d = r->d;
    if (right && r->pes_right && d->hbm_bytes % d->pes != 0)
        kb_config_problem(topo_key_nearest(r->root, "cube.hbm_gib"),
                          "expected a size divisible into %" PRIu32 " equal slices, one per PE, "
                          "found %.9g GiB",
                          d->pes, (double)d->hbm_bytes / (double)(1 << 30));
}

static void check_tcm(reader *r, bool right)
{
    const topo_description *d = r->d;
    if (right && r->previous_right && d->tcm_reserved_bytes >= d->tcm_bytes)
        kb_config_problem(topo_key_nearest(r->root, "cube.pe_tcm.reserved_mib"),
                          "expected less than the TCM capacity of %.9g MiB, found %.9g MiB",
                          (double)d->tcm_bytes / (double)(1 << 20),
                          (double)d->tcm_reserved_bytes / (double)(1 << 20));
}

/* ---- The table --------------------------------------------------------------------------- */

static const char *const port_names[] = {"parallel", "serial"};
static const char *const fill_names[] = {"once", "per_fold"};

#define D topo_description
#define KEY(name, ...) .key = {.path = (name), __VA_ARGS__}
/* NOLINTBEGIN(bugprone-macro-parentheses): names are parts of string literals */
#define WIRE(name, field)                                                                          \
    {KEY(name ".bw_gbs", TOPO_GB_S(D, field.bytes_per_s))},                                        \
    {                                                                                              \
        KEY(name ".length_mm", TOPO_MM(D, field.length_nm))                                        \
    }
/* NOLINTEND(bugprone-macro-parentheses) */
#define PART(name, of_kind) .key = {.path = (name)}, .is_part = true, .kind = (of_kind)

static const row rows[] = {
    {.group = &name_group},

    {KEY("system.ns_per_mm", TOPO_DECIMAL(D, wire_delay, 9, 0, TOPO_GIGA))},
    {.group = &sip_group},
    {PART("system.components.host", TOPO_HOST), .settings = "attrs"},
    {PART("system.components.switch", TOPO_SWITCH), .settings = "attrs"},
    WIRE("system.host_to_switch", host_to_switch),
    WIRE("system.sip_to_switch", sip_to_switch),
    {.group = &sip_link_group},

    {KEY("fabric.packet_bytes", TOPO_COUNT(D, fabric.packet_bytes, 1, TOPO_MAX_PACKET_BYTES))},
    {KEY("fabric.vcs", TOPO_COUNT(D, fabric.vcs, 1, TOPO_MAX_VCS))},
    {KEY("fabric.depth_bytes", TOPO_COUNT(D, fabric.depth_bytes, 0, TOPO_MAX_DEPTH_BYTES))},
    {KEY("fabric.ports", TOPO_CHOICE(D, fabric.serial_ports, port_names))},

    {KEY("sip.cube_mesh.w", TOPO_COUNT(D, cube_w, 1, TOPO_MAX_SIDE))},
    {KEY("sip.cube_mesh.h", TOPO_COUNT(D, cube_h, 1, TOPO_MAX_SIDE))},
    {KEY("sip.cube_pitch_mm", TOPO_MM(D, cube_pitch_nm))},
    {PART("sip.io.pcie_ep", TOPO_PCIE_EP)},
    {PART("sip.io.io_cpu", TOPO_IO_CPU)},
    {PART("sip.io.io_noc", TOPO_IO_NOC)},
    WIRE("sip.io.io_noc", io),
    {PART("sip.ucie", TOPO_UCIE), .hashes_rate = true},

    {KEY("cube.noc.w", TOPO_COUNT(D, noc_w, 1, TOPO_MAX_SIDE))},
    {KEY("cube.noc.h", TOPO_COUNT(D, noc_h, 1, TOPO_MAX_SIDE))},
    {.group = &square_group},
    {PART("cube.noc.router", TOPO_ROUTER)},
    WIRE("cube.noc", noc),
    {.group = &pe_layout_group},
    {PART("cube.xbar", TOPO_XBAR)},
    {KEY("cube.xbar.length_mm", TOPO_MM(D, xbar_length_nm))},
    {KEY("cube.ucie_to_noc_bw_gbs", TOPO_GB_S(D, ucie_to_noc))},
    {KEY("cube.pe_to_noc_bw_gbs", TOPO_GB_S(D, pe_to_noc))},
    {KEY("cube.pe_to_xbar_bw_gbs", TOPO_GB_S(D, pe_to_xbar))},
    {KEY("cube.noc_to_xbar_bw_gbs", TOPO_GB_S(D, noc_to_xbar))},
    {KEY("cube.xbar_to_hbm_bw_gbs", TOPO_GB_S(D, xbar_to_hbm))},
    {KEY("cube.xbar_to_sram_bw_gbs", TOPO_GB_S(D, xbar_to_sram))},
    {KEY("cube.hbm_gib", TOPO_GIB(D, hbm_bytes)), .before = keep_slice_size, .check = check_hbm},
    {PART("cube.hbm_ctrl", TOPO_HBM_CTRL), .link = offsetof(D, xbar_to_hbm)},
    {PART("cube.sram", TOPO_SRAM)},
    {KEY("cube.pe_tcm.capacity_mib", TOPO_MIB_FROM(D, tcm_bytes, 1, max_tcm_mib))},
    {KEY("cube.pe_tcm.reserved_mib", TOPO_MIB_FROM(D, tcm_reserved_bytes, 0, max_tcm_mib)),
     .check = check_tcm},
    {PART("cube.m_cpu", TOPO_M_CPU)},

    {KEY("cube.pe_cpu.overhead_ns", TOPO_NS(D, pe.cpu_overhead_fs))},
    {KEY("cube.pe_cpu.issue_ns", TOPO_NS(D, pe.cpu_issue_fs))},
    {KEY("cube.pe_cpu.queue_depth", TOPO_COUNT(D, pe.queue_depth, 1, max_queue))},
    {PART("cube.pe_dma", TOPO_PE_DMA)},
    {KEY("cube.pe_dma.channels", TOPO_COUNT(D, pe.dma_channels, 1, max_channels))},
    {KEY("cube.pe_gemm.rows", TOPO_COUNT(D, pe.gemm_rows, 1, max_array_side))},
    {KEY("cube.pe_gemm.columns", TOPO_COUNT(D, pe.gemm_columns, 1, max_array_side))},
    {KEY("cube.pe_gemm.cycle_ns", TOPO_CYCLE_NS(D, pe.gemm_cycle_fs))},
    {KEY("cube.pe_gemm.fill", TOPO_CHOICE(D, pe.gemm_fill_per_fold, fill_names))},
    {KEY("cube.pe_math.lanes", TOPO_COUNT(D, pe.math_lanes, 1, max_lanes))},
    {KEY("cube.pe_math.cycle_ns", TOPO_CYCLE_NS(D, pe.math_cycle_fs))},
    {KEY("cube.pe_math.move_cycles", TOPO_COUNT(D, pe.math_cycles[0], 1, max_cycles))},
    {KEY("cube.pe_math.div_cycles", TOPO_COUNT(D, pe.math_cycles[1], 1, max_cycles))},
    {KEY("cube.pe_math.exp_cycles", TOPO_COUNT(D, pe.math_cycles[2], 1, max_cycles))},
    {KEY("cube.pe_math.gather_cycles", TOPO_COUNT(D, pe.math_cycles[3], 1, max_cycles))},
    {KEY("cube.pe_math.latency_cycles", TOPO_COUNT(D, pe.math_latency_cycles, 0, max_cycles))},
    {KEY("cube.pe_tcm.bw_gbs", TOPO_GB_S(D, pe.tcm_bytes_per_s))},
};

enum { row_count = sizeof rows / sizeof rows[0] };

static bool read_row(reader *r, const row *w)
{
    if (w->before)
        w->before(r);
    if (w->group)
        w->group->read(r);
    else if (w->is_part)
        read_part(r, w);
    else
        return topo_key_read(&w->key, r->root, r->d);
    return true;
}

void topo_description_read(topo_description *description, kb_config *config,
                           const topo_registry *registry)
{
    reader r = {.d = description, .registry = registry, .root = kb_config_root(config)};
    r.slice_bytes = description->pes > 0 ? description->hbm_bytes / description->pes : 0;
    for (size_t i = 0; i < row_count; i++) {
        bool right = read_row(&r, &rows[i]);
        if (rows[i].check)
            rows[i].check(&r, right);
        r.previous_right = right;
    }
}

void topo_description_print(const topo_description *description, kb_text *text)
{
    for (size_t i = 0; i < row_count; i++) {
        const row *w = &rows[i];
        if (w->group && w->group->print)
            w->group->print(description, text);
        else if (w->is_part)
            print_part(description, w, text);
        else if (!w->group)
            topo_key_print(&w->key, "", description, text);
    }
}

uint64_t topo_description_hash(const topo_description *description)
{
    static const uint64_t offset_basis = 0xcbf29ce484222325;
    hash h = {offset_basis};
    for (size_t i = 0; i < row_count; i++) {
        const row *w = &rows[i];
        if (w->group && w->group->add)
            w->group->add(&h, description);
        else if (w->hashes_rate)
            add(&h, description->parts[w->kind].is.timing.bytes_per_s);
        else if (!w->group && !w->is_part)
            add(&h, topo_key_get(&w->key, description));
    }
    add_parts(&h, description);
    return h.state;
}
