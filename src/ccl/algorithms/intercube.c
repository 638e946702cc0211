/*
 * intercube.c: over PE 0 of every cube, along the mesh of cubes, which does not wrap around:
 *
 *     > > > v      Rows are reduced towards the column of the root cube, then that column
 *     > > > v      towards the root. The roots of the SIPs exchange their sums. The result is
 *     > > > v      broadcast along the column, then along the rows. The root is the south-east
 *     > > > R      cube unless the entry has root_cube.
 *
 * Every cube is connected to the same cube of the neighbour SIPs, so any cube can be the root.
 */
#include "algorithms.h"

#include <inttypes.h>

/* ---- The kernel -------------------------------------------------------------------------- */

/* The position of a root among the roots of all SIPs. */
typedef struct sip_grid {
    kb_sip_pattern pattern;
    int64_t x, y, w, h;
} sip_grid;

static void exchange(tl_context *tl, const ccl_tile *tile, tl_tensor *sum, const sip_grid *sips)
{
    if (sips->pattern != KB_SIPS_MESH) { /* a ring is a torus of one row */
        ccl_ring_exchange(tl, tile, sum, sips->w, "global_E", "global_W");
        ccl_ring_exchange(tl, tile, sum, sips->h, "global_S", "global_N");
        return;
    }
    const ccl_line lines[] = {
        {sips->x, sips->w, sips->w - 1, "global_E", "global_W"},
        {sips->y, sips->h, sips->h - 1, "global_S", "global_N"},
    };
    for (int i = 0; i < 2; i++) {
        ccl_reduce_along(tl, tile, sum, lines[i]);
        ccl_broadcast_along(tl, tile, sum, lines[i]);
    }
}

KB_KERNEL(intercube, tl_ptr mine, int64_t count, kb_dtype dtype, kb_reduce_op op, int w, int h,
          int root, kb_sip_pattern sip_pattern, int sip, int sip_w, int sip_h, int64_t tile)
{
    int64_t cube = tl_program_id(1);
    const ccl_line row = {cube % w, w, root % w, "E", "W"};
    const ccl_line column = {cube / w, h, root / w, "S", "N"};
    const sip_grid sips = {sip_pattern, sip % sip_w, sip / sip_w, sip_w, sip_h};

    for (int64_t begin = 0; begin < count; begin += tile)
        TL_SCOPE {
            ccl_tile t = {.at = ccl_at(mine, begin, dtype),
                          .shape = tl_shape(kb_min(tile, count - begin)),
                          .dtype = dtype,
                          .op = op};
            tl_tensor sum = tl_load(t.at, t.shape, dtype);
            ccl_reduce_along(tl, &t, &sum, row);
            if (row.index == row.root) {
                ccl_reduce_along(tl, &t, &sum, column);
                if (column.index == column.root) {
                    exchange(tl, &t, &sum, &sips);
                    sum = ccl_finish(tl, op, sum, (int64_t)w * h * sip_w * sip_h);
                }
                ccl_broadcast_along(tl, &t, &sum, column);
            }
            ccl_broadcast_along(tl, &t, &sum, row);
            tl_store(t.at, sum);
        }
}

/* ---- Connections ------------------------------------------------------------------------- */

/* Whether the ranks are all SIPs of a grid. Other groups are a ring of their ranks. */
static bool is_whole_grid(const kb_ccl_scope *scope)
{
    return scope->sips != KB_SIPS_RING && scope->world == scope->machine.sips;
}

static kb_error *check_participants(const kb_ccl_scope *scope, uint64_t count)
{
    if (!scope->rank_is_pe && count == (uint64_t)scope->world * scope->machine.cubes)
        return NULL;
    return kb_error_new(KB_ERR_INPUT, "intercube needs PE 0 of every cube of all ranks in one "
                                      "group: mapper: cube_leaders and rank: sip");
}

static kb_error *find_root(const kb_ccl_scope *scope, int64_t *root)
{
    int64_t last = (int64_t)scope->machine.cubes - 1;
    *root = kb_ccl_setting(scope, "root_cube", last);
    if (*root >= 0 && *root <= last)
        return NULL;
    return kb_error_new(KB_ERR_INPUT, "root_cube is %" PRId64 ", but cubes are 0 to %" PRId64,
                        *root, last);
}

/* A step to a neighbour in a grid. */
typedef struct grid_step {
    const char *direction;
    int dx, dy;
} grid_step;

/* False if the neighbour does not exist or is the same node. */
static bool step_to(uint32_t w, uint32_t h, bool wraps, grid_step step, uint32_t from, uint32_t *to)
{
    int64_t x = (int64_t)(from % w) + step.dx, y = (int64_t)(from / w) + step.dy;
    if (wraps) {
        x = (x + w) % w;
        y = (y + h) % h;
    }
    if (x < 0 || x >= w || y < 0 || y >= h || y * w + x == from)
        return false;
    *to = (uint32_t)(y * w + x);
    return true;
}

static const grid_step cube_steps[] = {{"N", 0, -1}, {"S", 0, 1}, {"E", 1, 0}, {"W", -1, 0}};
static const grid_step sip_steps[] = {
    {"global_N", 0, -1}, {"global_S", 0, 1}, {"global_E", 1, 0}, {"global_W", -1, 0}};

static kb_error *connect_participant(const kb_ccl_scope *scope,
                                     const kb_ccl_participant *participant, kb_ccl_graph *graph)
{
    const kb_machine *machine = &scope->machine;
    bool whole = is_whole_grid(scope);
    uint32_t sip_w = whole ? scope->sip_w : scope->world, sip_h = whole ? scope->sip_h : 1;
    uint32_t sip = whole ? participant->pe.sip : participant->rank, to;
    for (int i = 0; i < 4; i++)
        if (step_to(machine->cube_w, machine->cube_h, false, cube_steps[i], participant->pe.cube,
                    &to))
            KB_TRY(kb_ccl_connect(graph, participant->pe, cube_steps[i].direction,
                                  (kb_pe){participant->pe.sip, to, 0}));
    for (int i = 0; i < 4; i++) {
        bool wraps = !whole || scope->sips != KB_SIPS_MESH;
        if (!step_to(sip_w, sip_h, wraps, sip_steps[i], sip, &to))
            continue;
        kb_pe peer = {whole ? to : scope->ranks[to].sip, participant->pe.cube, 0};
        KB_TRY(kb_ccl_connect(graph, participant->pe, sip_steps[i].direction, peer));
    }
    return NULL;
}

static kb_error *intercube_connect(const kb_ccl_scope *scope,
                                   const kb_ccl_participants *participants, kb_ccl_graph *graph)
{
    int64_t root;
    uint32_t count;
    const kb_ccl_participant *subgroup = kb_ccl_subgroup(participants, 0, &count);
    KB_TRY(check_participants(scope, count));
    KB_TRY(find_root(scope, &root));
    for (uint32_t i = 0; i < count; i++)
        KB_TRY(connect_participant(scope, &subgroup[i], graph));
    return NULL;
}

static kb_error *intercube_arguments(const kb_ccl_call *call, const kb_ccl_target *target,
                                     kb_ccl_arguments *args)
{
    const kb_ccl_scope *scope = call->scope;
    bool whole = is_whole_grid(scope);
    int64_t root;
    KB_TRY(check_participants(scope, target->subgroup_size));
    KB_TRY(find_root(scope, &root));
    ccl_add_common(call, target, args);
    kb_ccl_add_integer(args, scope->machine.cube_w);
    kb_ccl_add_integer(args, scope->machine.cube_h);
    kb_ccl_add_integer(args, root);
    kb_ccl_add_integer(args, whole ? scope->sips : KB_SIPS_RING);
    kb_ccl_add_integer(args, whole ? target->pe.sip : target->rank);
    kb_ccl_add_integer(args, whole ? scope->sip_w : scope->world);
    kb_ccl_add_integer(args, whole ? scope->sip_h : 1);
    kb_ccl_add_integer(args, ccl_tile_elements(call, 8));
    return NULL;
}

const kb_ccl_algorithm ccl_intercube_algorithm = {
    .name = "intercube",
    .summary = "reduces over the mesh of cubes to a root cube, exchanges between SIPs, "
               "broadcasts back; reduces the shards of the cubes",
    .kernel = &intercube,
    .connect = intercube_connect,
    .arguments = intercube_arguments,
    .collectives = 1 << KB_ALL_REDUCE,
    .mapper = "cube_leaders",
    .reduce_shards = true,
};
