/*
 * topologies.c: the topologies that ship. A topology makes connections (from, direction, to) in
 * each subgroup; a subgroup of one has none. In a subgroup of two both directions lead to the same
 * PE; the queues keep E and W apart.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "plan.h"

/* A subgroup to be connected. */
typedef struct subgroup {
    const kb_ccl_scope *scope;
    const kb_ccl_participant *participants;
    uint32_t count, number;
    kb_ccl_graph *graph;
} subgroup;

typedef kb_error *subgroup_fn(const subgroup *c);

static kb_error *for_each_subgroup(const kb_ccl_scope *scope,
                                   const kb_ccl_participants *participants, kb_ccl_graph *graph,
                                   subgroup_fn *connect)
{
    for (uint32_t i = 0; i < kb_ccl_subgroup_count(participants); i++) {
        subgroup c = {.scope = scope, .number = i, .graph = graph};
        c.participants = kb_ccl_subgroup(participants, i, &c.count);
        KB_TRY(connect(&c));
    }
    return NULL;
}

static kb_error *connect_by_index(const subgroup *c, uint32_t from, const char *direction,
                                  uint32_t to)
{
    return kb_ccl_connect(c->graph, c->participants[from].pe, direction, c->participants[to].pe);
}

/* Connects one participant to both neighbours in a ring of `count` participants that are `stride`
 * apart. `index` is its position in the ring. */
static kb_error *connect_in_ring(const subgroup *c, uint32_t first, uint32_t stride, uint32_t count,
                                 uint32_t index, const char *next, const char *previous)
{
    if (count < 2)
        return NULL;
    uint32_t self = first + index * stride;
    KB_TRY(connect_by_index(c, self, next, first + (index + 1) % count * stride));
    return connect_by_index(c, self, previous, first + (index + count - 1) % count * stride);
}

/* ---- Rings ------------------------------------------------------------------------------- */

static kb_error *ring(const subgroup *c)
{
    for (uint32_t i = 0; i < c->count; i++)
        KB_TRY(connect_in_ring(c, 0, 1, c->count, i, "E", "W"));
    return NULL;
}

static kb_error *connect_ring(const kb_ccl_scope *scope, const kb_ccl_participants *participants,
                              kb_ccl_graph *graph)
{
    return for_each_subgroup(scope, participants, graph, ring);
}

static kb_error *one_way_ring(const subgroup *c)
{
    for (uint32_t i = 0; i < c->count && c->count > 1; i++)
        KB_TRY(connect_by_index(c, i, "E", (i + 1) % c->count));
    return NULL;
}

static kb_error *connect_one_way_ring(const kb_ccl_scope *scope,
                                      const kb_ccl_participants *participants, kb_ccl_graph *graph)
{
    return for_each_subgroup(scope, participants, graph, one_way_ring);
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
        return kb_error_new(
            KB_ERR_INPUT, "expected w * h participants, %" PRId64 " * %" PRId64 ", found %" PRIu32,
            given_w, given_h, count);
    if (given_w == 0 && root * root != count)
        return kb_error_new(KB_ERR_INPUT,
                            "%" PRIu32 " participants are not a square: set w and h in the entry",
                            count);
    return NULL;
}

static kb_error *torus(const subgroup *c)
{
    uint32_t w, h;
    KB_TRY(ccl_mesh_sides(c->scope, c->count, &w, &h));
    for (uint32_t i = 0; i < c->count; i++) {
        uint32_t x = i % w, y = i / w;
        KB_TRY(connect_in_ring(c, x, w, h, y, "S", "N"));
        KB_TRY(connect_in_ring(c, y * w, 1, w, x, "E", "W"));
    }
    return NULL;
}

static kb_error *connect_torus(const kb_ccl_scope *scope, const kb_ccl_participants *participants,
                               kb_ccl_graph *graph)
{
    return for_each_subgroup(scope, participants, graph, torus);
}

static kb_error *mesh(const subgroup *c)
{
    uint32_t w, h;
    KB_TRY(ccl_mesh_sides(c->scope, c->count, &w, &h));
    for (uint32_t i = 0; i < c->count; i++) {
        uint32_t x = i % w, y = i / w;
        if (y > 0)
            KB_TRY(connect_by_index(c, i, "N", i - w));
        if (y + 1 < h)
            KB_TRY(connect_by_index(c, i, "S", i + w));
        if (x + 1 < w)
            KB_TRY(connect_by_index(c, i, "E", i + 1));
        if (x > 0)
            KB_TRY(connect_by_index(c, i, "W", i - 1));
    }
    return NULL;
}

static kb_error *connect_mesh(const kb_ccl_scope *scope, const kb_ccl_participants *participants,
                              kb_ccl_graph *graph)
{
    return for_each_subgroup(scope, participants, graph, mesh);
}

/* ---- Trees ------------------------------------------------------------------------------- */

/* Indices are those of a binary heap. */
static kb_error *tree(const subgroup *c)
{
    for (uint32_t i = 0; i < c->count; i++) {
        uint64_t left = 2 * (uint64_t)i + 1;
        if (i > 0)
            KB_TRY(connect_by_index(c, i, "parent", (i - 1) / 2));
        if (left < c->count)
            KB_TRY(connect_by_index(c, i, "child_left", (uint32_t)left));
        if (left + 1 < c->count)
            KB_TRY(connect_by_index(c, i, "child_right", (uint32_t)left + 1));
    }
    return NULL;
}

static kb_error *connect_tree(const kb_ccl_scope *scope, const kb_ccl_participants *participants,
                              kb_ccl_graph *graph)
{
    return for_each_subgroup(scope, participants, graph, tree);
}

/* ---- Three levels ------------------------------------------------------------------------ */

static bool same_sip(const kb_ccl_participant *a, const kb_ccl_participant *b)
{
    return a->pe.sip == b->pe.sip;
}

static bool same_cube(const kb_ccl_participant *a, const kb_ccl_participant *b)
{
    return same_sip(a, b) && a->pe.cube == b->pe.cube;
}

/* Connects the participants indices[0 .. count) in a ring. */
static kb_error *connect_indices(const subgroup *c, const uint32_t *indices, uint32_t count,
                                 const char *next, const char *previous)
{
    for (uint32_t i = 0; i < count && count > 1; i++) {
        KB_TRY(connect_by_index(c, indices[i], next, indices[(i + 1) % count]));
        KB_TRY(connect_by_index(c, indices[i], previous, indices[(i + count - 1) % count]));
    }
    return NULL;
}

/* Connects the rings of one level: each run of participants for which `same_ring` holds is a ring.
 * The first of each ring takes part in the next level; *indices and *count become those. */
static kb_error *connect_level(const subgroup *c, uint32_t *indices, uint32_t *count,
                               bool (*same_ring)(const kb_ccl_participant *,
                                                 const kb_ccl_participant *),
                               const char *next, const char *previous)
{
    uint32_t leaders = 0;
    for (uint32_t first = 0, end; first < *count; first = end) {
        end = first + 1;
        while (end < *count &&
               same_ring(&c->participants[indices[first]], &c->participants[indices[end]]))
            end++;
        KB_TRY(connect_indices(c, indices + first, end - first, next, previous));
        indices[leaders++] = indices[first];
    }
    *count = leaders;
    return NULL;
}

static kb_error *three_levels(const subgroup *c)
{
    uint32_t count = c->count;
    uint32_t *indices = kb_alloc_array(count, sizeof *indices);
    if (!indices)
        return kb_error_nomem();
    for (uint32_t i = 0; i < count; i++)
        indices[i] = i;
    kb_error *err = connect_level(c, indices, &count, same_cube, "E", "W");
    if (!err)
        err = connect_level(c, indices, &count, same_sip, "N", "S");
    if (!err)
        err = connect_indices(c, indices, count, "global_E", "global_W");
    free(indices);
    return err;
}

static kb_error *connect_three_levels(const kb_ccl_scope *scope,
                                      const kb_ccl_participants *participants, kb_ccl_graph *graph)
{
    return for_each_subgroup(scope, participants, graph, three_levels);
}

/* ---- Pairs ------------------------------------------------------------------------------- */

static kb_error *pairs(const subgroup *c)
{
    for (uint32_t from = 0; from < c->count; from++) {
        for (uint32_t to = 0; to < c->count; to++) {
            char direction[16];
            snprintf(direction, sizeof direction, "r%" PRIu32, to);
            if (to != from)
                KB_TRY(connect_by_index(c, from, direction, to));
        }
    }
    return NULL;
}

static kb_error *connect_pairs(const kb_ccl_scope *scope, const kb_ccl_participants *participants,
                               kb_ccl_graph *graph)
{
    return for_each_subgroup(scope, participants, graph, pairs);
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

static const struct sip_direction {
    const char *direction;
    int dx, dy;
} directions[] = {{"global_N", 0, -1}, {"global_S", 0, 1}, {"global_E", 1, 0}, {"global_W", -1, 0}};

/* `subgroup_of`: by PE of the machine, the number of its subgroup plus 1, or 0. */
static kb_error *connect_neighbour_sips(const subgroup *c, const uint32_t *subgroup_of)
{
    for (uint32_t i = 0; i < c->count; i++) {
        kb_pe pe = c->participants[i].pe;
        for (size_t k = 0; k < sizeof directions / sizeof directions[0]; k++) {
            kb_pe peer = pe;
            peer.sip = ccl_sip_neighbour(c->scope, pe.sip, directions[k].dx, directions[k].dy);
            if (peer.sip != TOPO_NONE && subgroup_of[pe_number(c->scope, peer)] == c->number + 1)
                KB_TRY(kb_ccl_connect(c->graph, pe, directions[k].direction, peer));
        }
    }
    return NULL;
}

static kb_error *connect_sip_links(const kb_ccl_scope *scope,
                                   const kb_ccl_participants *participants, kb_ccl_graph *graph)
{
    const kb_machine *m = &scope->machine;
    uint32_t *subgroup_of =
        kb_alloc_zeroed((size_t)m->sips * m->cubes * m->pes, sizeof *subgroup_of);
    if (!subgroup_of)
        return kb_error_nomem();
    subgroup c = {.scope = scope, .graph = graph};
    for (uint32_t i = 0; i < kb_ccl_subgroup_count(participants); i++) {
        c.participants = kb_ccl_subgroup(participants, i, &c.count);
        for (uint32_t k = 0; k < c.count; k++)
            subgroup_of[pe_number(scope, c.participants[k].pe)] = i + 1;
    }
    kb_error *err = NULL;
    for (; c.number < kb_ccl_subgroup_count(participants) && !err; c.number++) {
        c.participants = kb_ccl_subgroup(participants, c.number, &c.count);
        err = connect_neighbour_sips(&c, subgroup_of);
    }
    free(subgroup_of);
    return err;
}

/* ---- The table --------------------------------------------------------------------------- */

static const kb_ccl_topology ring_1d = {
    .name = "ring_1d",
    .summary = "a ring: E to the next participant, W to the previous one",
    .connect = connect_ring,
};

static const kb_ccl_topology ring_1d_unidir = {
    .name = "ring_1d_unidir",
    .summary = "a one-way ring: E to the next participant; messages are received from E too",
    .connect = connect_one_way_ring,
};

static const kb_ccl_topology mesh_2d = {
    .name = "mesh_2d",
    .summary = "a 2D torus: N S E W in rows of w participants; square unless w and h are given",
    .connect = connect_torus,
};

static const kb_ccl_topology torus_2d = {
    .name = "torus_2d",
    .summary = "the same as mesh_2d",
    .connect = connect_torus,
};

static const kb_ccl_topology mesh_2d_no_wrap = {
    .name = "mesh_2d_no_wrap",
    .summary = "a 2D mesh: N S E W in rows of w participants; edges have fewer directions",
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
    .summary = "all to all: r0, r1, .. to the participant of that index",
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
