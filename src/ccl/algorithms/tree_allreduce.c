/*
 * tree_allreduce.c: all-reduce along spanning trees of the SIPs (trees.h). A PE talks to the PEs in
 * its place of the other SIPs, along one tree or several ("channels"), each of which has its part
 * of the elements: sums go up to the root of the tree, results come down. Trees differ from lane to
 * lane so that all links are used alike.
 *
 * Tiles stream: while one goes up, results of earlier ones come down. `ahead` is how many tiles a
 * PE sends up before it deals with the first result. The receive of a result is posted before its
 * sum is sent: whoever sends a result finds its receiver ready, so no number of slots is too small.
 * Each element is summed along one tree: all members get the same bits.
 */
#include "algorithms.h"

#include <stdlib.h>

#include "base/base.h"
#include "ccl/graph/trees.h"

enum { MAX_CHANNELS = 16, MAX_AHEAD = 16 };

/* ---- The kernel -------------------------------------------------------------------------- */

/* A tree as one of its members sees it. */
typedef struct channel {
    ccl_label up;
    bool is_root;
    int number, children;
    tl_ptr at; /* its part of the elements */
    int64_t count;
    tl_tensor results[MAX_AHEAD]; /* that are to come down */
} channel;

/* False if this PE is joined to nobody in a channel of that number. */
static bool open_channel(tl_context *tl, int number, channel *c)
{
    *c = (channel){.number = number, .up = ccl_label_of("up", number)};
    c->is_root = !tl_can_send(c->up.text);
    while (tl_can_recv(ccl_label_of_two("down", number, c->children).text))
        c->children++;
    return !c->is_root || c->children > 0;
}

static ccl_tile tile_of(const channel *c, int64_t index, int64_t elements, kb_dtype dtype,
                        kb_reduce_op op)
{
    int64_t begin = ccl_min(index * elements, c->count);
    return (ccl_tile){.at = ccl_at(c->at, begin, dtype),
                      .shape = tl_shape(ccl_min(elements, c->count - begin)),
                      .dtype = dtype,
                      .op = op};
}

static void send_down(tl_context *tl, const channel *c, const ccl_tile *tile, tl_tensor result)
{
    for (int i = 0; i < c->children; i++)
        tl_send(ccl_label_of_two("down", c->number, i).text, result);
    tl_store(tile->at, result);
}

/* Our own and what the children send goes to the parent; at the root it turns around. */
static void go_up(tl_context *tl, const channel *c, const ccl_tile *tile, int64_t members,
                  tl_tensor *result)
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
            send_down(tl, c, tile, ccl_finish(tl, tile->op, sum, members));
        } else {
            tl_assign(result, tl_recv_async(c->up.text, tile->shape, tile->dtype));
            tl_send(c->up.text, sum);
        }
    }
}

static void come_down(tl_context *tl, const channel *c, const ccl_tile *tile, tl_tensor *result)
{
    if (tile->shape.dims[0] == 0 || c->is_root)
        return;
    send_down(tl, c, tile, *result);
    tl_free(*result);
    *result = (tl_tensor){0};
}

KB_KERNEL(trees, tl_ptr mine, int64_t count, kb_dtype dtype, kb_reduce_op op, int members,
          int ahead, int64_t tile)
{
    channel all[MAX_CHANNELS];
    int channels = 0;
    while (channels < MAX_CHANNELS && open_channel(tl, channels, &all[channels]))
        channels++;
    for (int i = 0; i < channels; i++) {
        all[i].at = ccl_at(mine, tl_part_begin(count, channels, i), dtype);
        all[i].count = tl_part_size(count, channels, i);
    }
    if (channels == 0)
        return;
    int64_t tiles = tl_cdiv(tl_cdiv(count, channels), tile);
    for (int64_t index = 0; index < tiles + ahead; index++) {
        for (int i = 0; i < channels; i++) {
            channel *c = &all[i];
            tl_tensor *result = &c->results[index % ahead];
            ccl_tile up = tile_of(c, index, tile, dtype, op);
            ccl_tile down = tile_of(c, index - ahead, tile, dtype, op);
            if (index >= ahead)
                come_down(tl, c, &down, result);
            if (index < tiles)
                go_up(tl, c, &up, members, result);
        }
    }
}

/* ---- Who is joined to whom --------------------------------------------------------------- */

/* Trees of a lane: with few lanes several each, as one tree alone leaves many links unused. */
static uint32_t channels_of(uint32_t lanes)
{
    return lanes >= MAX_CHANNELS ? 1 : (MAX_CHANNELS + lanes - 1) / lanes;
}

/* Both ways between each member and its parent, next to each other: queues pair what leads back
 * and forth in the order in which it is joined. */
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

static kb_error *connect_lane(const kb_ccl_scope *scope, const kb_ccl_members *members,
                              uint32_t lane, const ccl_tree *own, kb_ccl_graph *graph)
{
    uint32_t count, channels = channels_of(kb_ccl_circle_count(members));
    const kb_ccl_member *circle = kb_ccl_circle(members, lane, &count);
    kb_pe *pes = kb_alloc_zeroed(scope->world, sizeof *pes);
    if (!pes)
        return kb_error_nomem();
    for (uint32_t i = 0; i < count; i++)
        pes[circle[i].rank] = circle[i].pe;
    kb_error *err = NULL;
    for (uint32_t i = 0; i < channels && !err; i++)
        err = connect_tree(&own[i], i, pes, scope->world, graph);
    free(pes);
    return err;
}

static kb_error *check_lanes(const kb_ccl_scope *scope, const kb_ccl_members *members)
{
    for (uint32_t lane = 0; lane < kb_ccl_circle_count(members); lane++) {
        uint32_t count;
        kb_ccl_circle(members, lane, &count);
        if (count != scope->world)
            return kb_error_new(KB_ERR_INPUT,
                                "trees needs one PE of each rank in every group: mapper: lanes "
                                "or leader_only");
    }
    return NULL;
}

static kb_error *trees_connect(const kb_ccl_scope *scope, const kb_ccl_members *members,
                               kb_ccl_graph *graph)
{
    uint32_t lanes = kb_ccl_circle_count(members), channels = channels_of(lanes);
    ccl_trees all;
    KB_TRY(check_lanes(scope, members));
    KB_TRY(ccl_trees_init(&all, scope, lanes * channels));
    kb_error *err = NULL;
    for (uint32_t lane = 0; lane < lanes && !err; lane++)
        err = connect_lane(scope, members, lane, &all.items.items[(size_t)lane * channels], graph);
    ccl_trees_fini(&all);
    return err;
}

/* ---- Arguments --------------------------------------------------------------------------- */

static kb_error *trees_arguments(const kb_ccl_call *call, const kb_ccl_part *part,
                                 kb_ccl_arguments *args)
{
    int64_t ahead = kb_ccl_setting(call->scope, "kernel_ahead", 2);
    ahead = ahead < 1 ? 1 : ccl_min(ahead, MAX_AHEAD);
    ccl_add_common(call, part, args);
    kb_ccl_add_integer(args, part->circle_size);
    kb_ccl_add_integer(args, ahead);
    kb_ccl_add_integer(args, ccl_tile_elements(call, MAX_CHANNELS * (ahead + 4)));
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
