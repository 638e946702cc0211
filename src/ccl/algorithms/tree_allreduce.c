/*
 * tree_allreduce.c: all-reduce along spanning trees of the SIPs (trees.h). A PE communicates with
 * the PEs at its position in the other SIPs, along one tree or several, each with a part of the
 * elements: sums go up to the root of the tree, results come down. Lanes use different trees, so
 * that all links are used evenly.
 *
 * Tiles are pipelined: while one goes up, results of earlier ones come down. `ahead` is the number
 * of tiles that a PE sends up before it handles the first result. The receive of a result is posted
 * before the sum is sent, so a sender of results always finds its receiver ready, and any number of
 * slots suffices. Invariant: each element is summed along one tree, so all ranks get the same bits.
 */
#include "algorithms.h"

#include <stdlib.h>

#include "base/base.h"
#include "ccl/graph/trees.h"

enum { MAX_TREES = 16, MAX_AHEAD = 16 };

/* ---- The kernel -------------------------------------------------------------------------- */

/* This PE's node in one tree. */
typedef struct tree_node {
    ccl_label up;
    bool is_root;
    int number, children;
    tl_ptr at; /* of the tree's elements */
    int64_t count;
    tl_tensor results[MAX_AHEAD]; /* posted receives */
} tree_node;

/* False if this PE has no tree of that number. */
static bool find_node(tl_context *tl, int number, tree_node *c)
{
    *c = (tree_node){.number = number, .up = ccl_label_of("up", number)};
    c->is_root = !tl_can_send(c->up.text);
    while (tl_can_recv(ccl_label_of_two("down", number, c->children).text))
        c->children++;
    return !c->is_root || c->children > 0;
}

static ccl_tile tile_of(const tree_node *c, int64_t tile_index, int64_t elements, kb_dtype dtype,
                        kb_reduce_op op)
{
    int64_t begin = kb_min(tile_index * elements, c->count);
    return (ccl_tile){.at = ccl_at(c->at, begin, dtype),
                      .shape = tl_shape(kb_min(elements, c->count - begin)),
                      .dtype = dtype,
                      .op = op};
}

static void send_down(tl_context *tl, const tree_node *c, const ccl_tile *tile, tl_tensor result)
{
    for (int i = 0; i < c->children; i++)
        tl_send(ccl_label_of_two("down", c->number, i).text, result);
    tl_store(tile->at, result);
}

/*
 * Sends the sum of the own tile and the children's to the parent. The root sends the result down.
 */
static void reduce_up(tl_context *tl, const tree_node *c, const ccl_tile *tile,
                      int64_t participants, tl_tensor *result)
{
    if (tile->shape.dims[0] == 0)
        return;
    TL_SCOPE {
        tl_tensor sum = tl_load(tile->at, tile->shape, tile->dtype);
        for (int i = 0; i < c->children; i++) {
            const char *child = ccl_label_of_two("down", c->number, i).text;
            sum = ccl_combine(tl, tile->op, sum, tl_recv_async(child, tile->shape, tile->dtype));
        }
        if (c->is_root) {
            send_down(tl, c, tile, ccl_finish(tl, tile->op, sum, participants));
        } else {
            tl_assign(result, tl_recv_async(c->up.text, tile->shape, tile->dtype));
            tl_send(c->up.text, sum);
        }
    }
}

static void broadcast_down(tl_context *tl, const tree_node *c, const ccl_tile *tile,
                           tl_tensor *result)
{
    if (tile->shape.dims[0] == 0 || c->is_root)
        return;
    send_down(tl, c, tile, *result);
    tl_free(*result);
    *result = (tl_tensor){0};
}

KB_KERNEL(trees, tl_ptr mine, int64_t count, kb_dtype dtype, kb_reduce_op op, int participants,
          int ahead, int64_t tile)
{
    tree_node all[MAX_TREES];
    int tree_count = 0;
    while (tree_count < MAX_TREES && find_node(tl, tree_count, &all[tree_count]))
        tree_count++;
    for (int i = 0; i < tree_count; i++) {
        all[i].at = ccl_at(mine, tl_part_begin(count, tree_count, i), dtype);
        all[i].count = tl_part_size(count, tree_count, i);
    }
    if (tree_count == 0)
        return;
    int64_t tiles = tl_cdiv(tl_cdiv(count, tree_count), tile);
    for (int64_t tile_index = 0; tile_index < tiles + ahead; tile_index++) {
        for (int i = 0; i < tree_count; i++) {
            tree_node *c = &all[i];
            tl_tensor *result = &c->results[tile_index % ahead];
            ccl_tile up = tile_of(c, tile_index, tile, dtype, op);
            ccl_tile down = tile_of(c, tile_index - ahead, tile, dtype, op);
            if (tile_index >= ahead)
                broadcast_down(tl, c, &down, result);
            if (tile_index < tiles)
                reduce_up(tl, c, &up, participants, result);
        }
    }
}

/* ---- Connections ------------------------------------------------------------------------- */

/* Several if there are few lanes, because one tree leaves many links unused. */
static uint32_t trees_per_lane(uint32_t lanes)
{
    return lanes >= MAX_TREES ? 1 : (MAX_TREES + lanes - 1) / lanes;
}

/* Both directions between a participant and its parent are connected consecutively: queues pair
 * opposite directions in the order of connection. */
static kb_error *connect_tree(const ccl_tree *tree, uint32_t number, const kb_pe *pes,
                              uint32_t world, kb_ccl_graph *graph)
{
    ccl_label up = ccl_label_of("up", number);
    for (uint32_t parent = 0; parent < world; parent++) {
        uint32_t children = 0;
        for (uint32_t child = 0; child < world; child++) {
            if (tree->parent[child] != parent || child == parent)
                continue;
            ccl_label down = ccl_label_of_two("down", number, children++);
            KB_TRY(kb_ccl_connect(graph, pes[child], up.text, pes[parent]));
            KB_TRY(kb_ccl_connect(graph, pes[parent], down.text, pes[child]));
        }
    }
    return NULL;
}

static kb_error *connect_lane(const kb_ccl_scope *scope, const kb_ccl_participants *participants,
                              uint32_t lane, const ccl_tree *own, kb_ccl_graph *graph)
{
    uint32_t count, tree_count = trees_per_lane(kb_ccl_subgroup_count(participants));
    const kb_ccl_participant *subgroup = kb_ccl_subgroup(participants, lane, &count);
    kb_pe *pes = kb_alloc_zeroed(scope->world, sizeof *pes);
    if (!pes)
        return kb_error_nomem();
    for (uint32_t i = 0; i < count; i++)
        pes[subgroup[i].rank] = subgroup[i].pe;
    kb_error *err = NULL;
    for (uint32_t i = 0; i < tree_count && !err; i++)
        err = connect_tree(&own[i], i, pes, scope->world, graph);
    free(pes);
    return err;
}

static kb_error *check_lanes(const kb_ccl_scope *scope, const kb_ccl_participants *participants)
{
    for (uint32_t lane = 0; lane < kb_ccl_subgroup_count(participants); lane++) {
        uint32_t count;
        kb_ccl_subgroup(participants, lane, &count);
        if (count != scope->world)
            return kb_error_new(KB_ERR_INPUT,
                                "trees needs one PE of each rank in every group: mapper: lanes "
                                "or leader_only");
    }
    return NULL;
}

static kb_error *trees_connect(const kb_ccl_scope *scope, const kb_ccl_participants *participants,
                               kb_ccl_graph *graph)
{
    uint32_t lanes = kb_ccl_subgroup_count(participants), tree_count = trees_per_lane(lanes);
    ccl_trees all;
    KB_TRY(check_lanes(scope, participants));
    KB_TRY(ccl_trees_init(&all, scope, lanes * tree_count));
    kb_error *err = NULL;
    for (uint32_t lane = 0; lane < lanes && !err; lane++)
        err = connect_lane(scope, participants, lane, &all.items.items[(size_t)lane * tree_count],
                           graph);
    ccl_trees_fini(&all);
    return err;
}

/* ---- Arguments --------------------------------------------------------------------------- */

static kb_error *trees_arguments(const kb_ccl_call *call, const kb_ccl_target *target,
                                 kb_ccl_arguments *args)
{
    int64_t ahead = kb_ccl_setting(call->scope, "kernel_ahead", 2);
    ahead = ahead < 1 ? 1 : kb_min(ahead, MAX_AHEAD);
    ccl_add_common(call, target, args);
    kb_ccl_add_integer(args, target->subgroup_size);
    kb_ccl_add_integer(args, ahead);
    kb_ccl_add_integer(args, ccl_tile_elements(call, MAX_TREES * (ahead + 4)));
    return NULL;
}

const kb_ccl_algorithm ccl_trees_algorithm = {
    .name = "trees",
    .summary = "reduces up and broadcasts down several spanning trees that share the SIP links "
               "evenly",
    .kernel = &trees,
    .connect = trees_connect,
    .arguments = trees_arguments,
    .collectives = 1 << KB_ALL_REDUCE,
    .mapper = "lanes",
    .same_bits = true,
};
