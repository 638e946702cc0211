/*
 * view.h: a tensor as a matrix, in whatever layout it is stored: (product of all axes but the last,
 * last axis). Kernels use it to find, load and store rectangles.
 *
 * A tensor's addresses are those of its shards, one behind the other, and each shard is packed. So
 * a rectangle is one block of addresses only as far as it is in one shard.
 *
 * Activations that all PEs read can be kept once in each cube. A replicated tensor does not serve
 * for that: its address means the PE's own copy, so no PE can write the others. A matrix *by cube*
 * is a tensor of (cubes * rows, columns) whose rows are cut over the cubes: each cube has all rows
 * of the matrix. Loads read the copy of the PE's own cube, stores write all copies.
 */
#ifndef KB_TP_VIEW_H
#define KB_TP_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include <kernbench/kernbench.h>
#include <kernbench/tl.h>

/* Only numbers: views are compared byte by byte. */
typedef struct tp_view {
    int64_t rows, columns;
    int64_t row_unit; /* rows of one index of the first axis, which a shard has all of */
    kb_dtype dtype;
    kb_split cube, pe;
    kb_tiling tiling;
    int64_t cubes, pes; /* that share it */
    int64_t tile_rows, tile_columns;
    int64_t copies; /* of each element, at the same address */
    int64_t slabs;  /* by cube: the number of cubes, each with all rows; else 1 */
} tp_view;

/* Of a tensor in HBM. An error for one of the host. */
KB_MUST_USE kb_error *tp_view_make(kb_context *ctx, kb_tensor tensor, tp_view *view);

/* The same of a matrix by cube. An error if it is not laid out as one: {.cube = KB_ROW_WISE} over
 * all cubes, with a number of rows that they divide. */
KB_MUST_USE kb_error *tp_view_make_by_cube(kb_context *ctx, kb_tensor tensor, tp_view *view);

/* Of a tensor of this shape, dtype and policy on a device of this machine. */
tp_view tp_view_plan(const kb_machine *machine, const kb_shape *shape, kb_dtype dtype,
                     const kb_policy *policy);

typedef struct tp_rect {
    int64_t row, rows, column, columns;
} tp_rect;

/* A shard: its rectangle, and its first byte, counted from the tensor's. */
typedef struct tp_block {
    tp_rect at;
    int64_t offset;
} tp_block;

/* The shard that has the element. */
tp_block tp_find_block(const tp_view *view, int64_t row, int64_t column);

/* The number of shards that the PE has, and one of them; it may be empty. */
int64_t tp_block_count(const tp_view *view, int64_t cube, int64_t pe);
tp_block tp_get_block(const tp_view *view, int64_t cube, int64_t pe, int64_t index);

/* ---- In kernels ---- */

/* Loads a rectangle. If it is in several shards, the parts are joined by the vector engine. By
 * cube: from the copy of this cube. */
tl_tensor tp_load(tl_context *tl, const tp_view *view, tl_ptr tensor, tp_rect rect);

/* Where a rectangle is that is in one shard: its address, and how far it is from row to row, in
 * elements. False if it is in several shards or has several copies. */
bool tp_find_place(const tp_view *view, tl_ptr tensor, const tp_rect *rect, tl_ptr *address,
                   int64_t *stride);

/* Values that become one, along an axis. The vector engine joins six in one command, and five more
 * in each further one. */
typedef struct tp_joint {
    int axis;
    size_t count;
    tl_tensor parts[16];
} tp_joint;

/* The parts are freed when they have been joined. tp_join() needs at least one. */
void tp_add_part(tl_context *tl, tp_joint *joint, tl_tensor part);
tl_tensor tp_join(tl_context *tl, tp_joint *joint);

/* The copy of a matrix by cube that this PE stores at a step: PEs of a cube begin with copies in
 * different directions, and PEs of different cubes with different copies. Else 0. */
int64_t tp_slab_at(tl_context *tl, const tp_view *view, int64_t step);

/* Stores a value, whose shape is the rectangle's. By cube: to all copies, in the order of
 * tp_slab_at(). */
void tp_store(tl_context *tl, const tp_view *view, tl_ptr tensor, tp_rect rect, tl_tensor value);

#endif
