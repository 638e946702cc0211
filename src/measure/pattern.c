/*
 * pattern.c: to which PE each PE sends: the fixed patterns, on the grid of routers of a level.
 */
#include "pattern.h"

#include <stdlib.h>

const char *const traffic_pattern_names[TRAFFIC_PATTERNS] = {
    [TRAFFIC_UNIFORM] = "uniform", [TRAFFIC_TRANSPOSE] = "transpose",
    [TRAFFIC_BITCOMP] = "bitcomp", [TRAFFIC_NEIGHBOR] = "neighbor",
    [TRAFFIC_HOTSPOT] = "hotspot",
};

const char *const traffic_level_names[TRAFFIC_LEVELS] = {
    [TRAFFIC_CUBE] = "cube",
    [TRAFFIC_SIP] = "sip",
    [TRAFFIC_SYSTEM] = "system",
};

/* A router of a level. */
typedef struct point {
    uint32_t x, y;
} point;

/* The grid of a level, and which PEs of a cube are at which of its routers. */
typedef struct grid {
    const topo_shape *shape;
    uint32_t w, h;           /* of the level, in routers */
    uint32_t cubes_w;        /* of the level, in cubes */
    uint32_t cube_w, cube_h; /* of a SIP in the level; 1 x 1 if the level is a cube */
    uint32_t *first;         /* by router of a cube: where its PEs begin in `pes` */
    uint32_t *pes;           /* in order of routers, and of numbers within a router */
    uint32_t *slot;          /* by PE of a cube: which of its router's it is */
} grid;

static kb_error *sort_pes(grid *g, const topo_machine *machine)
{
    uint32_t routers = g->shape->noc_w * g->shape->noc_h, pes = g->shape->pes;
    g->first = kb_alloc_zeroed((size_t)routers + 1, sizeof *g->first);
    g->pes = kb_alloc_array(pes, sizeof *g->pes);
    g->slot = kb_alloc_array(pes, sizeof *g->slot);
    if (!g->first || !g->pes || !g->slot)
        return kb_error_nomem();
    for (uint32_t pe = 0; pe < pes; pe++)
        g->slot[pe] = g->first[topo_pe_router(machine, pe) + 1]++;
    for (uint32_t r = 0; r < routers; r++)
        g->first[r + 1] += g->first[r];
    for (uint32_t pe = 0; pe < pes; pe++)
        g->pes[g->first[topo_pe_router(machine, pe)] + g->slot[pe]] = pe;
    return NULL;
}

static kb_error *grid_init(grid *g, const topo_machine *machine, traffic_level level)
{
    const topo_shape *shape = topo_machine_shape(machine);
    bool joins_cubes = level != TRAFFIC_CUBE, joins_sips = level == TRAFFIC_SYSTEM;
    *g = (grid){.shape = shape,
                .cube_w = joins_cubes ? shape->cube_w : 1,
                .cube_h = joins_cubes ? shape->cube_h : 1};
    g->cubes_w = g->cube_w * (joins_sips ? shape->sip_w : 1);
    g->w = g->cubes_w * shape->noc_w;
    g->h = g->cube_h * (joins_sips ? shape->sip_h : 1) * shape->noc_h;
    return sort_pes(g, machine);
}

static void grid_fini(grid *g)
{
    free(g->slot);
    free(g->pes);
    free(g->first);
}

/* The number of a cube within the level. */
static uint32_t cube_at(const grid *g, uint32_t x, uint32_t y)
{
    uint32_t sips_w = g->cubes_w / g->cube_w;
    uint32_t sip = y / g->cube_h * sips_w + x / g->cube_w;
    return (sip * g->cube_h + y % g->cube_h) * g->cube_w + x % g->cube_w;
}

static uint32_t router_at(const grid *g, point at)
{
    return at.y % g->shape->noc_h * g->shape->noc_w + at.x % g->shape->noc_w;
}

static uint32_t pes_at(const grid *g, point at)
{
    uint32_t router = router_at(g, at);
    return g->first[router + 1] - g->first[router];
}

/* Of the level; where there are fewer PEs than at the sender's router, they are shared. */
static uint32_t pe_at(const grid *g, point at, uint32_t slot)
{
    uint32_t cube = cube_at(g, at.x / g->shape->noc_w, at.y / g->shape->noc_h);
    uint32_t pe = g->pes[g->first[router_at(g, at)] + slot % pes_at(g, at)];
    return cube * g->shape->pes + pe;
}

static uint32_t distance(uint32_t a, uint32_t b)
{
    return a > b ? a - b : b - a;
}

/* If several are equally near, the first by row. */
static point nearest_to_middle(const grid *g)
{
    point best = {0};
    uint32_t best_distance = UINT32_MAX;
    for (uint32_t y = 0; y < g->h; y++) {
        for (uint32_t x = 0; x < g->w; x++) {
            uint32_t away = distance(2 * x, g->w - 1) + distance(2 * y, g->h - 1);
            if (away < best_distance && pes_at(g, (point){x, y}) > 0) {
                best = (point){x, y};
                best_distance = away;
            }
        }
    }
    return best;
}

static bool is_power_of_two(uint32_t x)
{
    return (x & (x - 1)) == 0;
}

static kb_error *check_grid(const grid *g, const traffic_options *options)
{
    const char *level = traffic_level_names[options->level];
    if (options->pattern == TRAFFIC_TRANSPOSE && g->w != g->h)
        return kb_error_new(
            KB_ERR_INPUT,
            "the pattern transpose needs as many rows of routers as columns; the %s "
            "has %u x %u",
            level, g->w, g->h);
    if (options->pattern == TRAFFIC_BITCOMP && !(is_power_of_two(g->w) && is_power_of_two(g->h)))
        return kb_error_new(KB_ERR_INPUT,
                            "the pattern bitcomp needs rows and columns of routers that are powers "
                            "of two; the %s has %u x %u",
                            level, g->w, g->h);
    if (!options->hot_given)
        return NULL;
    if (options->pattern != TRAFFIC_HOTSPOT)
        return kb_error_new(KB_ERR_INPUT, "--hot needs --pattern hotspot");
    if (options->hot_x >= g->w || options->hot_y >= g->h)
        return kb_error_new(KB_ERR_INPUT,
                            "no such router %u,%u for the hot spot: the %s has %u x %u",
                            options->hot_x, options->hot_y, level, g->w, g->h);
    return NULL;
}

static point target_of(const grid *g, traffic_pattern which, point from, point hot)
{
    switch (which) {
    case TRAFFIC_TRANSPOSE:
        return (point){from.y, from.x};
    case TRAFFIC_BITCOMP:
        return (point){g->w - 1 - from.x, g->h - 1 - from.y};
    case TRAFFIC_NEIGHBOR:
        return (point){(from.x + 1) % g->w, (from.y + 1) % g->h};
    default:
        return hot;
    }
}

/* The targets of the PEs of one level; the others are alike. */
static kb_error *fill_group(pattern *p, const grid *g, const traffic_options *options)
{
    point hot = {options->hot_x, options->hot_y};
    if (options->pattern == TRAFFIC_HOTSPOT && !options->hot_given)
        hot = nearest_to_middle(g);
    for (uint32_t y = 0; y < g->h; y++) {
        for (uint32_t x = 0; x < g->w; x++) {
            point from = {x, y}, to = target_of(g, options->pattern, from, hot);
            uint32_t pes = pes_at(g, from);
            if (pes > 0 && pes_at(g, to) == 0)
                return kb_error_new(KB_ERR_INPUT,
                                    "the pattern %s has the PEs at router %u,%u of the %s send to "
                                    "router %u,%u, which has none",
                                    traffic_pattern_names[options->pattern], x, y,
                                    traffic_level_names[options->level], to.x, to.y);
            for (uint32_t slot = 0; slot < pes; slot++)
                p->targets[pe_at(g, from, slot)] = pe_at(g, to, slot);
        }
    }
    return NULL;
}

static kb_error *fill_targets(pattern *p, const topo_machine *machine,
                              const traffic_options *options)
{
    p->targets = kb_alloc_array(p->count, sizeof *p->targets);
    if (!p->targets)
        return kb_error_nomem();
    grid g;
    kb_error *err = grid_init(&g, machine, options->level);
    if (!err)
        err = check_grid(&g, options);
    if (!err)
        err = fill_group(p, &g, options);
    grid_fini(&g);
    for (uint32_t pe = p->group; !err && pe < p->count; pe++)
        p->targets[pe] = p->targets[pe - p->group] + p->group;
    return err;
}

kb_error *pattern_init(pattern *p, const topo_machine *machine, const traffic_options *options)
{
    const topo_shape *shape = topo_machine_shape(machine);
    *p = (pattern){.count = (uint32_t)shape->pe_count};
    KB_ASSERT(shape->pe_count <= UINT32_MAX);
    p->group = shape->pes;
    if (options->level != TRAFFIC_CUBE)
        p->group *= shape->cubes;
    if (options->level == TRAFFIC_SYSTEM)
        p->group *= shape->sips;

    p->nodes = kb_alloc_array(p->count, sizeof *p->nodes);
    if (!p->nodes)
        return kb_error_nomem();
    uint32_t *next = p->nodes;
    for (uint32_t sip = 0; sip < shape->sips; sip++)
        for (uint32_t cube = 0; cube < shape->cubes; cube++)
            for (uint32_t pe = 0; pe < shape->pes; pe++)
                *next++ = topo_node_at(machine, TOPO_PE_DMA, sip, cube, pe);

    if (options->pattern != TRAFFIC_UNIFORM)
        return fill_targets(p, machine, options);
    if (options->hot_given)
        return kb_error_new(KB_ERR_INPUT, "--hot needs --pattern hotspot");
    return NULL;
}

void pattern_fini(pattern *p)
{
    free(p->targets);
    free(p->nodes);
}
