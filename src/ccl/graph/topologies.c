/*
 * topologies.c: who is joined to whom in a circle of PEs. Each makes edges (from, direction, to)
 * for one circle at a time; a circle of one has none. In a circle of two both ways lead to the
 * other PE: that E and W are then the same peer is for the queues to keep apart.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "plan.h"

/* A circle whose members are being joined. */
typedef struct circle {
    const kb_ccl_scope *scope;
    const kb_ccl_member *members;
    uint32_t count, number;
    kb_ccl_graph *graph;
} circle;

typedef kb_error *circle_fn(const circle *c);

static kb_error *for_each_circle(const kb_ccl_scope *scope, const kb_ccl_members *members,
                                 kb_ccl_graph *graph, circle_fn *join)
{
    for (uint32_t i = 0; i < kb_ccl_circle_count(members); i++) {
        circle c = {.scope = scope, .number = i, .graph = graph};
        c.members = kb_ccl_circle(members, i, &c.count);
        KB_TRY(join(&c));
    }
    return NULL;
}

static kb_error *join(const circle *c, uint32_t from, const char *direction, uint32_t to)
{
    return kb_ccl_connect(c->graph, c->members[from].pe, direction, c->members[to].pe);
}

/* Both ways along a ring of `count` members, `stride` apart, for the one that is `place`-th of it.
 */
static kb_error *join_ring(const circle *c, uint32_t first, uint32_t stride, uint32_t count,
                           uint32_t place, const char *next, const char *previous)
{
    if (count < 2)
        return NULL;
    uint32_t self = first + place * stride;
    KB_TRY(join(c, self, next, first + (place + 1) % count * stride));
    return join(c, self, previous, first + (place + count - 1) % count * stride);
}

/* ---- Rings ------------------------------------------------------------------------------- */

static kb_error *ring(const circle *c)
{
    for (uint32_t i = 0; i < c->count; i++)
        KB_TRY(join_ring(c, 0, 1, c->count, i, "E", "W"));
    return NULL;
}

static kb_error *connect_ring(const kb_ccl_scope *scope, const kb_ccl_members *members,
                              kb_ccl_graph *graph)
{
    return for_each_circle(scope, members, graph, ring);
}

static kb_error *one_way_ring(const circle *c)
{
    for (uint32_t i = 0; i < c->count && c->count > 1; i++)
        KB_TRY(join(c, i, "E", (i + 1) % c->count));
    return NULL;
}

static kb_error *connect_one_way_ring(const kb_ccl_scope *scope, const kb_ccl_members *members,
                                      kb_ccl_graph *graph)
{
    return for_each_circle(scope, members, graph, one_way_ring);
}

/* ---- Two dimensions ---------------------------------------------------------------------- */

kb_error *ccl_mesh_sides(const kb_ccl_scope *scope, uint32_t count, uint32_t *w, uint32_t *h)
{
    int64_t given_w = kb_ccl_setting(scope, "w", 0), given_h = kb_ccl_setting(scope, "h", 0);
    uint32_t root = 0;
    while ((uint64_t)(root + 1) * (root + 1) <= count)
        root++;
    *w = given_w > 0 ? (uint32_t)given_w : root;
    *h = given_h > 0 ? (uint32_t)given_h : root;
    if (given_w > 0 && given_w * given_h != count)
        return kb_error_new(KB_ERR_INPUT,
                            "expected w * h members, %" PRId64 " * %" PRId64 ", found %" PRIu32,
                            given_w, given_h, count);
    if (given_w == 0 && root * root != count)
        return kb_error_new(
            KB_ERR_INPUT, "%" PRIu32 " members are not a square: set w and h in the entry", count);
    return NULL;
}

static kb_error *torus(const circle *c)
{
    uint32_t w, h;
    KB_TRY(ccl_mesh_sides(c->scope, c->count, &w, &h));
    for (uint32_t i = 0; i < c->count; i++) {
        uint32_t x = i % w, y = i / w;
        KB_TRY(join_ring(c, x, w, h, y, "S", "N"));
        KB_TRY(join_ring(c, y * w, 1, w, x, "E", "W"));
    }
    return NULL;
}

static kb_error *connect_torus(const kb_ccl_scope *scope, const kb_ccl_members *members,
                               kb_ccl_graph *graph)
{
    return for_each_circle(scope, members, graph, torus);
}

static kb_error *mesh(const circle *c)
{
    uint32_t w, h;
    KB_TRY(ccl_mesh_sides(c->scope, c->count, &w, &h));
    for (uint32_t i = 0; i < c->count; i++) {
        uint32_t x = i % w, y = i / w;
        if (y > 0)
            KB_TRY(join(c, i, "N", i - w));
        if (y + 1 < h)
            KB_TRY(join(c, i, "S", i + w));
        if (x + 1 < w)
            KB_TRY(join(c, i, "E", i + 1));
        if (x > 0)
            KB_TRY(join(c, i, "W", i - 1));
    }
    return NULL;
}

static kb_error *connect_mesh(const kb_ccl_scope *scope, const kb_ccl_members *members,
                              kb_ccl_graph *graph)
{
    return for_each_circle(scope, members, graph, mesh);
}

/* ---- Trees ------------------------------------------------------------------------------- */

/* Places are those of a binary heap. */
static kb_error *tree(const circle *c)
{
    for (uint32_t i = 0; i < c->count; i++) {
        uint64_t left = 2 * (uint64_t)i + 1;
        if (i > 0)
            KB_TRY(join(c, i, "parent", (i - 1) / 2));
        if (left < c->count)
            KB_TRY(join(c, i, "child_left", (uint32_t)left));
        if (left + 1 < c->count)
            KB_TRY(join(c, i, "child_right", (uint32_t)left + 1));
    }
    return NULL;
}

static kb_error *connect_tree(const kb_ccl_scope *scope, const kb_ccl_members *members,
                              kb_ccl_graph *graph)
{
    return for_each_circle(scope, members, graph, tree);
}

/* ---- Three levels ------------------------------------------------------------------------ */

static bool same_sip(const kb_ccl_member *a, const kb_ccl_member *b)
{
    return a->pe.sip == b->pe.sip;
}

static bool same_cube(const kb_ccl_member *a, const kb_ccl_member *b)
{
    return same_sip(a, b) && a->pe.cube == b->pe.cube;
}

/* Joins places[0 .. count) in a ring. */
static kb_error *join_places(const circle *c, const uint32_t *places, uint32_t count,
                             const char *next, const char *previous)
{
    for (uint32_t i = 0; i < count && count > 1; i++) {
        KB_TRY(join(c, places[i], next, places[(i + 1) % count]));
        KB_TRY(join(c, places[i], previous, places[(i + count - 1) % count]));
    }
    return NULL;
}

/*
 * Rings of one level: each run of places that have the same in common is a ring, and the first of
 * each goes on to the next level. Returns how many these are; they replace the places.
 */
static kb_error *join_level(const circle *c, uint32_t *places, uint32_t *count,
                            bool (*alike)(const kb_ccl_member *, const kb_ccl_member *),
                            const char *next, const char *previous)
{
    uint32_t leaders = 0;
    for (uint32_t first = 0, end; first < *count; first = end) {
        end = first + 1;
        while (end < *count && alike(&c->members[places[first]], &c->members[places[end]]))
            end++;
        KB_TRY(join_places(c, places + first, end - first, next, previous));
        places[leaders++] = places[first];
    }
    *count = leaders;
    return NULL;
}

static kb_error *three_levels(const circle *c)
{
    uint32_t count = c->count;
    uint32_t *places = kb_alloc_array(count, sizeof *places);
    if (!places)
        return kb_error_nomem();
    for (uint32_t i = 0; i < count; i++)
        places[i] = i;
    kb_error *err = join_level(c, places, &count, same_cube, "E", "W");
    if (!err)
        err = join_level(c, places, &count, same_sip, "N", "S");
    if (!err)
        err = join_places(c, places, count, "global_E", "global_W");
    free(places);
    return err;
}

static kb_error *connect_three_levels(const kb_ccl_scope *scope, const kb_ccl_members *members,
                                      kb_ccl_graph *graph)
{
    return for_each_circle(scope, members, graph, three_levels);
}

/* ---- Pairs ------------------------------------------------------------------------------- */

static kb_error *pairs(const circle *c)
{
    for (uint32_t from = 0; from < c->count; from++) {
        for (uint32_t to = 0; to < c->count; to++) {
            char direction[16];
            snprintf(direction, sizeof direction, "r%" PRIu32, to);
            if (to != from)
                KB_TRY(join(c, from, direction, to));
        }
    }
    return NULL;
}

static kb_error *connect_pairs(const kb_ccl_scope *scope, const kb_ccl_members *members,
                               kb_ccl_graph *graph)
{
    return for_each_circle(scope, members, graph, pairs);
}

/* ---- Along the SIPs ---------------------------------------------------------------------- */

uint32_t ccl_sip_neighbour(const kb_ccl_scope *scope, uint32_t sip, int dx, int dy)
{
    uint32_t w = scope->sip_w, h = scope->sip_h, x = sip % w, y = sip / w;
    bool wraps = scope->sips != KB_SIPS_MESH;
    uint32_t length = dx != 0 ? w : h, at = dx != 0 ? x : y;
    bool ahead = dx + dy > 0, at_edge = ahead ? at + 1 == length : at == 0;
    if (length < 2 || (at_edge && !wraps))
        return TOPO_NONE;
    at = (at + (ahead ? 1 : length - 1)) % length;
    return dx != 0 ? y * w + at : at * w + x;
}

static size_t pe_number(const kb_ccl_scope *scope, kb_pe pe)
{
    return ((size_t)pe.sip * scope->machine.cubes + pe.cube) * scope->machine.pes + pe.pe;
}

static const struct way {
    const char *direction;
    int dx, dy;
} ways[] = {{"global_N", 0, -1}, {"global_S", 0, 1}, {"global_E", 1, 0}, {"global_W", -1, 0}};

/* `circle_of`: by PE of the machine, the number of its circle and 1, or 0. */
static kb_error *join_sips(const circle *c, const uint32_t *circle_of)
{
    for (uint32_t i = 0; i < c->count; i++) {
        kb_pe pe = c->members[i].pe;
        for (size_t k = 0; k < sizeof ways / sizeof ways[0]; k++) {
            kb_pe peer = pe;
            peer.sip = ccl_sip_neighbour(c->scope, pe.sip, ways[k].dx, ways[k].dy);
            if (peer.sip != TOPO_NONE && circle_of[pe_number(c->scope, peer)] == c->number + 1)
                KB_TRY(kb_ccl_connect(c->graph, pe, ways[k].direction, peer));
        }
    }
    return NULL;
}

static kb_error *connect_sip_links(const kb_ccl_scope *scope, const kb_ccl_members *members,
                                   kb_ccl_graph *graph)
{
    const kb_machine *m = &scope->machine;
    uint32_t *circle_of = kb_alloc_zeroed((size_t)m->sips * m->cubes * m->pes, sizeof *circle_of);
    if (!circle_of)
        return kb_error_nomem();
    circle c = {.scope = scope, .graph = graph};
    for (uint32_t i = 0; i < kb_ccl_circle_count(members); i++) {
        c.members = kb_ccl_circle(members, i, &c.count);
        for (uint32_t k = 0; k < c.count; k++)
            circle_of[pe_number(scope, c.members[k].pe)] = i + 1;
    }
    kb_error *err = NULL;
    for (; c.number < kb_ccl_circle_count(members) && !err; c.number++) {
        c.members = kb_ccl_circle(members, c.number, &c.count);
        err = join_sips(&c, circle_of);
    }
    free(circle_of);
    return err;
}

/* ---- All of them ------------------------------------------------------------------------- */

static const kb_ccl_topology ring_1d = {
    .name = "ring_1d",
    .summary = "a ring: E to the next member, W to the previous one",
    .connect = connect_ring,
};

static const kb_ccl_topology ring_1d_unidir = {
    .name = "ring_1d_unidir",
    .summary = "a one-way ring: E to the next member; messages are received from E too",
    .connect = connect_one_way_ring,
};

static const kb_ccl_topology mesh_2d = {
    .name = "mesh_2d",
    .summary = "a 2D torus: N S E W in rows of w members; square unless w and h are given",
    .connect = connect_torus,
};

static const kb_ccl_topology torus_2d = {
    .name = "torus_2d",
    .summary = "the same as mesh_2d",
    .connect = connect_torus,
};

static const kb_ccl_topology mesh_2d_no_wrap = {
    .name = "mesh_2d_no_wrap",
    .summary = "a 2D mesh: N S E W in rows of w members; edges have fewer directions",
    .connect = connect_mesh,
};

static const kb_ccl_topology tree_binary = {
    .name = "tree_binary",
    .summary = "a binary tree: parent, child_left, child_right, in heap order",
    .connect = connect_tree,
};

static const kb_ccl_topology hierarchical_3level = {
    .name = "hierarchical_3level",
    .summary = "rings: E W over the PEs of a cube, N S over the first PEs of the cubes of a "
               "SIP, global_E global_W over the SIPs",
    .connect = connect_three_levels,
};

static const kb_ccl_topology all_pairs = {
    .name = "pairs",
    .summary = "all to all: r0, r1, .. to the member of that index",
    .connect = connect_pairs,
};

static const kb_ccl_topology sip_links = {
    .name = "sip_links",
    .summary = "global_N global_S global_E global_W to the same PE of neighbour SIPs along "
               "system.sips.topology",
    .connect = connect_sip_links,
};

const kb_ccl_topology *const ccl_topologies[] = {
    &ring_1d,     &ring_1d_unidir,      &mesh_2d,   &torus_2d,  &mesh_2d_no_wrap,
    &tree_binary, &hierarchical_3level, &all_pairs, &sip_links, NULL};
