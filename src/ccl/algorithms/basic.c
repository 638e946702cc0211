/*
 * basic.c: simple collectives, as examples and for comparison. They move more bytes than necessary,
 * or take more steps, and overlap nothing: they suit a few KiB.
 */
#include "algorithms.h"

#include "ccl/graph/plan.h"

/* ---- hello_send: each PE gets the elements of its neighbour in the west ------------------- */

KB_KERNEL(hello_send, tl_ptr mine, int64_t count, kb_dtype dtype, int world, int64_t tile)
{
    for (int64_t begin = 0; begin < count && world > 1; begin += tile)
        TL_SCOPE {
            tl_ptr at = ccl_at(mine, begin, dtype);
            tl_dims shape = tl_shape(kb_min(tile, count - begin));
            tl_send("E", tl_load(at, shape, dtype));
            tl_store(at, tl_recv("W", shape, dtype));
        }
}

static kb_error *hello_send_arguments(const kb_ccl_call *call, const kb_ccl_target *target,
                                      kb_ccl_arguments *args)
{
    kb_ccl_add_address(args, target->output);
    kb_ccl_add_integer(args, (int64_t)target->elements);
    kb_ccl_add_integer(args, call->dtype);
    kb_ccl_add_integer(args, target->subgroup_size);
    kb_ccl_add_integer(args, ccl_tile_elements(call, 8));
    return NULL;
}

const kb_ccl_algorithm ccl_hello_send_algorithm = {
    .name = "hello_send",
    .summary = "sends to E, receives from W, stores; no reduction: the first kernel of the "
               "guide",
    .kernel = &hello_send,
    .by_name_only = true,
    .arguments = hello_send_arguments,
    .collectives = 1 << KB_ALL_REDUCE,
};

/* ---- ring: n-1 steps, each forwards and adds what was received ---------------------------- */

KB_KERNEL(ring, tl_ptr mine, int64_t count, kb_dtype dtype, kb_reduce_op op, int world,
          int64_t tile)
{
    const char *behind = tl_can_recv("W") ? "W" : "E"; /* "E": ring_1d_unidir */
    for (int64_t begin = 0; begin < count && world > 1; begin += tile)
        TL_SCOPE {
            ccl_tile t = {.at = ccl_at(mine, begin, dtype),
                          .shape = tl_shape(kb_min(tile, count - begin)),
                          .dtype = dtype,
                          .op = op};
            tl_tensor sum = tl_load(t.at, t.shape, dtype);
            ccl_ring_exchange(tl, &t, &sum, world, "E", behind);
            tl_store(t.at, ccl_finish(tl, op, sum, world));
        }
}

static kb_error *ring_arguments(const kb_ccl_call *call, const kb_ccl_target *target,
                                kb_ccl_arguments *args)
{
    ccl_add_common(call, target, args);
    kb_ccl_add_integer(args, target->subgroup_size);
    kb_ccl_add_integer(args, ccl_tile_elements(call, 8));
    return NULL;
}

const kb_ccl_algorithm ccl_ring_algorithm = {
    .name = "ring",
    .summary = "n-1 steps around a ring; each forwards what it received and accumulates it",
    .kernel = &ring,
    .arguments = ring_arguments,
    .collectives = 1 << KB_ALL_REDUCE,
    .topologies = ccl_ring_topologies,
};

/* ---- mesh: a ring along rows, then along columns ----------------------------------------- */

KB_KERNEL(mesh, tl_ptr mine, int64_t count, kb_dtype dtype, kb_reduce_op op, int w, int h,
          int64_t tile)
{
    for (int64_t begin = 0; begin < count && w * h > 1; begin += tile)
        TL_SCOPE {
            ccl_tile t = {.at = ccl_at(mine, begin, dtype),
                          .shape = tl_shape(kb_min(tile, count - begin)),
                          .dtype = dtype,
                          .op = op};
            tl_tensor sum = tl_load(t.at, t.shape, dtype);
            ccl_ring_exchange(tl, &t, &sum, w, "E", "W");
            ccl_ring_exchange(tl, &t, &sum, h, "S", "N");
            tl_store(t.at, ccl_finish(tl, op, sum, (int64_t)w * h));
        }
}

static kb_error *mesh_arguments(const kb_ccl_call *call, const kb_ccl_target *target,
                                kb_ccl_arguments *args)
{
    uint32_t w, h;
    KB_TRY(ccl_mesh_sides(call->scope, target->subgroup_size, &w, &h));
    ccl_add_common(call, target, args);
    kb_ccl_add_integer(args, w);
    kb_ccl_add_integer(args, h);
    kb_ccl_add_integer(args, ccl_tile_elements(call, 8));
    return NULL;
}

const kb_ccl_algorithm ccl_mesh_algorithm = {
    .name = "mesh",
    .summary = "a ring along the rows of a grid, then along its columns",
    .kernel = &mesh,
    .arguments = mesh_arguments,
    .collectives = 1 << KB_ALL_REDUCE,
    .topologies = ccl_mesh_topologies,
};

/* ---- tree: reduces up, broadcasts down --------------------------------------------------- */

static const char *const children[] = {"child_left", "child_right"};

KB_KERNEL(tree, tl_ptr mine, int64_t count, kb_dtype dtype, kb_reduce_op op, int world,
          int64_t tile)
{
    bool is_root = !tl_can_send("parent");
    for (int64_t begin = 0; begin < count && world > 1; begin += tile)
        TL_SCOPE {
            tl_ptr at = ccl_at(mine, begin, dtype);
            tl_dims shape = tl_shape(kb_min(tile, count - begin));
            tl_tensor sum = tl_load(at, shape, dtype);
            for (int i = 0; i < 2; i++)
                if (tl_can_recv(children[i]))
                    sum = ccl_combine(tl, op, sum, tl_recv(children[i], shape, dtype));
            if (is_root) {
                sum = ccl_finish(tl, op, sum, world);
            } else {
                tl_send("parent", sum);
                sum = tl_recv("parent", shape, dtype);
            }
            for (int i = 0; i < 2; i++)
                if (tl_can_send(children[i]))
                    tl_send(children[i], sum);
            tl_store(at, sum);
        }
}

const kb_ccl_algorithm ccl_tree_algorithm = {
    .name = "tree",
    .summary = "reduces up a binary tree, broadcasts down",
    .kernel = &tree,
    .arguments = ring_arguments,
    .collectives = 1 << KB_ALL_REDUCE,
    .topologies = ccl_tree_topologies,
    .same_bits = true,
};
