/*
 * machine.c: from a file or a built-in description to a machine, and what can be asked of it.
 *
 * If there are settings, the description is read again for each of them, without it, to see whether
 * it changes anything. That compares descriptions; only one graph is made.
 */
#include "machine.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "machine_private.h"

/* ---- Reading ----------------------------------------------------------------------------- */

static const topo_builtin *find_builtin(const char *name)
{
    for (const topo_builtin *builtin = topo_builtins; builtin->name; builtin++)
        if (strcmp(builtin->name, name) == 0)
            return builtin;
    return NULL;
}

static kb_error *load_builtin(const topo_builtin *builtin, kb_config **config)
{
    return kb_config_load_text(builtin->name, builtin->text, builtin->length, config);
}

static kb_error *no_such_machine(const char *path)
{
    kb_suggestion near;
    kb_suggestion_init(&near, path);
    for (const topo_builtin *builtin = topo_builtins; builtin->name; builtin++)
        kb_suggestion_offer(&near, builtin->name);
    return kb_error_new(KB_ERR_INPUT, "no such file or built-in machine: '%s'%s", path,
                        kb_suggestion_hint(&near, ""));
}

/* A file goes before a built-in machine of the same name. */
static kb_error *load_config(const topo_source *source, kb_config **config)
{
    const char *path = source->path;
    const topo_builtin *builtin = find_builtin(path ? path : "default");
    if (source->text)
        return kb_config_load_text(path ? path : "machine", source->text, source->length, config);
    if (path && access(path, F_OK) == 0)
        return kb_config_load_file(path, config);
    if (builtin)
        return load_builtin(builtin, config);
    *config = NULL;
    return no_such_machine(path);
}

/* What a machine is called whose description does not say: as its file, without folder and ending.
 */
static void name_after(const char *path, char name[TOPO_MAX_NAME + 1])
{
    const char *slash = strrchr(path, '/');
    const char *start = slash ? slash + 1 : path;
    const char *dot = strrchr(start, '.');
    size_t length = dot && dot > start ? (size_t)(dot - start) : strlen(start);
    if (length > TOPO_MAX_NAME)
        length = TOPO_MAX_NAME;
    memcpy(name, start, length);
    name[length] = '\0';
}

kb_error *topo_description_default(topo_description *description)
{
    static const topo_registry builtin_components = {0};
    kb_config *config;
    KB_TRY(load_builtin(find_builtin("default"), &config));
    topo_description_read(description, config, &builtin_components);
    kb_error *err = kb_config_finish(config);
    kb_config_destroy(config);
    return err;
}

/* The length of what is before the = of a setting. */
static size_t key_length(const char *setting)
{
    return strcspn(setting, "=");
}

static bool same_key(const char *a, const char *b)
{
    size_t length = key_length(a);
    return length == key_length(b) && memcmp(a, b, length) == 0;
}

/* Too many links to number is a problem of the description too, and is found before memory is
 * taken. */
static void check_size(const topo_description *d, kb_config *config)
{
    uint64_t links = topo_layout_count_links(d);
    if (links > TOPO_MAX_LINKS)
        kb_config_problem(kb_config_root(config),
                          "machine too large: %" PRIu64 " links, the maximum is %u", links,
                          TOPO_MAX_LINKS);
}

/*
 * Reads the source into a description that holds the defaults already. Leaves out the settings of
 * the same key as `without`, which may be NULL.
 */
static kb_error *read_config(const topo_source *source, const char *without, topo_description *d,
                             kb_config **config)
{
    KB_TRY(load_config(source, config));
    for (size_t i = 0; i < source->setting_count; i++)
        if (!without || !same_key(source->settings[i], without))
            kb_config_override(*config, source->settings[i]);
    if (source->path || source->text)
        name_after(source->path ? source->path : "machine", d->name);
    topo_description_read(d, *config, &source->registry);
    return NULL;
}

static kb_error *read_source(const topo_source *source, const char *without, topo_description *d)
{
    kb_config *config;
    KB_TRY(read_config(source, without, d, &config));
    check_size(d, config);
    kb_error *err = kb_config_finish(config);
    kb_config_destroy(config);
    return err;
}

kb_error *topo_check_settings(const topo_source *source)
{
    kb_config *config;
    topo_description description = {0};
    KB_TRY(topo_description_default(&description));
    KB_TRY(read_config(source, NULL, &description, &config));
    kb_error *err = kb_config_finish_overrides(config);
    kb_config_destroy(config);
    return err;
}

/* ---- Settings without effect ------------------------------------------------------------- */

static bool is_replaced(const topo_source *source, size_t setting)
{
    for (size_t i = setting + 1; i < source->setting_count; i++)
        if (same_key(source->settings[i], source->settings[setting]))
            return true;
    return false;
}

/* Whether the machine is the same without the setting. One that cannot do without it is not. */
static kb_error *is_idle(const topo_source *source, const topo_machine *machine,
                         const char *setting, const topo_description *defaults, bool *idle)
{
    topo_description without = *defaults;
    kb_error *err = read_source(source, setting, &without);
    if (kb_error_code(err) == KB_ERR_HOST)
        return err;
    *idle = !err && topo_description_hash(&without) == machine->hash &&
            strcmp(without.name, machine->description.name) == 0;
    kb_error_free(err);
    return NULL;
}

static kb_error *find_idle_settings(topo_machine *machine, const topo_source *source,
                                    const topo_description *defaults)
{
    kb_error *err = NULL;
    kb_text lines = KB_TEXT_INIT;
    for (size_t i = 0; i < source->setting_count && !err; i++) {
        const char *setting = source->settings[i];
        bool idle = false;
        if (is_replaced(source, i)) {
            kb_text_printf(&lines, "--set %s has no effect: a later --set overrides it\n", setting);
            continue;
        }
        err = is_idle(source, machine, setting, defaults, &idle);
        if (idle)
            kb_text_printf(&lines,
                           "--set %s has no effect: the machine already has this "
                           "value\n",
                           setting);
    }
    if (!err && lines.length > 0)
        lines.bytes[lines.length - 1] = '\0'; /* the last line end */
    if (!err && (lines.length > 0 || lines.failed)) {
        machine->idle_settings = kb_text_take(&lines);
        err = machine->idle_settings ? NULL : kb_error_nomem();
    }
    kb_text_fini(&lines);
    return err;
}

/* ---- The machine ------------------------------------------------------------------------- */

static topo_control_params control_params(const topo_description *d, topo_kind kind)
{
    const topo_parameters *is = &d->parts[kind].is;
    return (topo_control_params){is->timing.latency_fs, is->count_fs, is->trigger_fs};
}

static topo_shape make_shape(const topo_description *d, const topo_layout *l)
{
    return (topo_shape){
        .sips = d->sips,
        .sip_pattern = d->sip_pattern,
        .sip_w = d->sip_w,
        .sip_h = d->sip_h,
        .sip_links = d->sip_links,
        .cube_w = d->cube_w,
        .cube_h = d->cube_h,
        .cubes = l->cube_count,
        .noc_w = d->noc_w,
        .noc_h = d->noc_h,
        .pes = d->pes,
        .pe_count = (uint64_t)d->sips * l->cube_count * d->pes,
        .hbm_bytes = d->hbm_bytes,
        .slice_bytes = d->hbm_bytes / d->pes,
        .sram_bytes = d->parts[TOPO_SRAM].is.bytes,
        .tcm_bytes = d->tcm_bytes,
        .tcm_reserved_bytes = d->tcm_reserved_bytes,
        .io_cpu = control_params(d, TOPO_IO_CPU),
        .m_cpu = control_params(d, TOPO_M_CPU),
        .pe = d->pe,
        .fabric = d->fabric,
        .max_steps = topo_max_steps(l),
    };
}

static kb_error *load(topo_machine *machine, const topo_source *source)
{
    topo_description defaults = {0};
    KB_TRY(topo_description_default(&defaults));
    machine->description = defaults;
    KB_TRY(read_source(source, NULL, &machine->description));
    machine->hash = topo_description_hash(&machine->description);
    KB_TRY(find_idle_settings(machine, source, &defaults));
    KB_TRY(topo_layout_init(&machine->layout, &machine->description));
    machine->shape = make_shape(&machine->description, &machine->layout);
    KB_TRY(topo_compile(machine));
    return topo_check_reach(machine);
}

kb_error *topo_machine_load(const topo_source *source, topo_machine **machine)
{
    *machine = kb_alloc_zeroed(1, sizeof **machine);
    if (!*machine)
        return kb_error_nomem();
    kb_error *err = load(*machine, source);
    if (err) {
        topo_machine_destroy(*machine);
        *machine = NULL;
    }
    return err;
}

void topo_machine_destroy(topo_machine *machine)
{
    if (!machine)
        return;
    topo_graph_fini(&machine->graph);
    topo_layout_fini(&machine->layout);
    free(machine->idle_settings);
    free(machine);
}

void topo_machine_print_settings(const topo_machine *machine, kb_text *text)
{
    topo_description_print(&machine->description, text);
}

const char *topo_machine_idle_settings(const topo_machine *machine)
{
    return machine->idle_settings;
}

const topo_shape *topo_machine_shape(const topo_machine *machine)
{
    return &machine->shape;
}

const topo_graph *topo_machine_graph(const topo_machine *machine)
{
    return &machine->graph;
}

const char *topo_machine_name(const topo_machine *machine)
{
    return machine->description.name;
}

uint64_t topo_machine_hash(const topo_machine *machine)
{
    return machine->hash;
}

const topo_component *topo_machine_component(const topo_machine *machine, topo_kind kind)
{
    return machine->description.parts[kind].impl;
}

uint32_t topo_pe_router(const topo_machine *machine, uint32_t pe)
{
    const topo_layout *l = &machine->layout;
    KB_ASSERT(pe < l->pe_count);
    return (uint32_t)l->pes[pe].at.y * l->noc_w + l->pes[pe].at.x;
}

/* An offset in a cube, or TOPO_NONE. */
static uint32_t node_in_cube(const topo_layout *l, topo_kind kind, uint32_t index)
{
    switch (kind) {
    case TOPO_ROUTER:
        return index < l->noc_w * l->noc_h ? index : TOPO_NONE;
    case TOPO_HBM_CTRL:
        return index < l->pe_count ? l->memory_node + index : TOPO_NONE;
    case TOPO_PE_DMA:
        return index < l->pe_count ? l->pe_node + index : TOPO_NONE;
    case TOPO_XBAR:
        return index == 0 ? l->xbar_node : TOPO_NONE;
    case TOPO_SRAM:
        return index == 0 ? l->memory_node + l->pe_count : TOPO_NONE;
    case TOPO_M_CPU:
        return index == 0 ? l->m_cpu_node : TOPO_NONE;
    default:
        return TOPO_NONE;
    }
}

/* A number, or TOPO_NONE. */
static uint32_t node_in_io(const topo_layout *l, topo_kind kind, uint32_t sip, uint32_t index)
{
    const topo_sip_layout *s = &l->sips[sip];
    switch (kind) {
    case TOPO_PCIE_EP:
        return index == 0 ? s->io_node + TOPO_NODE_EP : TOPO_NONE;
    case TOPO_IO_CPU:
        return index == 0 ? s->io_node + TOPO_NODE_IO_CPU : TOPO_NONE;
    case TOPO_IO_NOC:
        return index == 0 ? s->io_node + TOPO_NODE_IO_NOC : TOPO_NONE;
    case TOPO_IO_UCIE:
        return index < l->cube_w ? s->io_node + TOPO_IO_NODES + index : TOPO_NONE;
    case TOPO_SIP_PORT:
        return index < TOPO_SIDES ? s->port_node[index] : TOPO_NONE;
    default:
        return TOPO_NONE;
    }
}

uint32_t topo_node_at(const topo_machine *machine, topo_kind kind, uint32_t sip, uint32_t cube,
                      uint32_t index)
{
    const topo_layout *l = &machine->layout;
    if (kind == TOPO_HOST || kind == TOPO_SWITCH) {
        uint32_t node = kind == TOPO_HOST ? TOPO_NODE_HOST : TOPO_NODE_SWITCH;
        return sip == 0 && cube == 0 && index == 0 ? node : TOPO_NONE;
    }
    if (sip >= l->sip_count || cube >= l->cube_count)
        return TOPO_NONE;
    uint32_t in_io = node_in_io(l, kind, sip, index);
    if (in_io != TOPO_NONE)
        return cube == 0 ? in_io : TOPO_NONE;
    const topo_cube_layout *c = &l->cubes[cube];
    uint32_t first = l->sips[sip].cube_node;
    if (kind == TOPO_UCIE) {
        bool has = index < TOPO_SIDES && c->port_node[index] != TOPO_NONE;
        return has ? first + c->port_node[index] : TOPO_NONE;
    }
    uint32_t in_cube = node_in_cube(l, kind, index);
    return in_cube != TOPO_NONE ? first + c->first_node + in_cube : TOPO_NONE;
}
