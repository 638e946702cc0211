/*
 * matrix_view.h: a tensor as a matrix (product of all axes but the last, last axis), in any layout.
 * Kernels use it to find, load and store rectangles.
 *
 * The addresses of a tensor are those of its shards, one after the other, and each shard is packed.
 * So a rectangle is contiguous in addresses only within one shard.
 *
 * A matrix *by cube* is a copy in each cube, for activations that all PEs read. It is a tensor of
 * (cubes * rows, columns) whose rows are split over the cubes: each cube has all rows of the
 * matrix. Loads read the copy of the PE's own cube, stores write all copies. (A replicated tensor
 * does not allow that: its address is the PE's own copy, so a PE cannot write the others.)
 */
#ifndef KB_TP_MATRIX_VIEW_H
#define KB_TP_MATRIX_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include <kernbench/kernbench.h>
#include <kernbench/tl.h>

/* Numbers only: views are compared byte by byte. */
typedef struct tp_view {
    int64_t rows, columns;
    int64_t row_unit; /* rows of one index of the first axis, which are not split */
    kb_dtype dtype;
    kb_split cube, pe;
    kb_tiling tiling;
    int64_t cubes, pes; /* over which it is split */
    int64_t tile_rows, tile_columns;
    int64_t copies;      /* of each element, at the same address */
    int64_t cube_copies; /* by cube: the number of cubes; else 1 */
} tp_view;

/* A view of a tensor in HBM. An error for a tensor of the host. */
KB_MUST_USE kb_error *tp_view_make(kb_context *ctx, kb_tensor tensor, tp_view *view);

/* A view of a matrix by cube. An error for another layout: it must be {.cube = KB_ROW_WISE} over
 * all cubes, with a number of rows that they divide. */
KB_MUST_USE kb_error *tp_view_make_by_cube(kb_context *ctx, kb_tensor tensor, tp_view *view);

/* A view for a tensor of this shape, dtype and policy, without the tensor. */
tp_view tp_view_plan(const kb_machine *machine, const kb_shape *shape, kb_dtype dtype,
                     const kb_policy *policy);

typedef struct tp_rect {
    int64_t row, rows, column, columns;
} tp_rect;

/* A shard: its rectangle, and the offset of its first byte in the tensor. */
typedef struct tp_block {
    tp_rect at;
    int64_t offset;
} tp_block;

/* The shard that contains the element. */
tp_block tp_find_block(const tp_view *view, int64_t row, int64_t column);

/* The number of shards of a PE, and one of them, which may be empty. */
int64_t tp_block_count(const tp_view *view, int64_t cube, int64_t pe);
tp_block tp_get_block(const tp_view *view, int64_t cube, int64_t pe, int64_t index);

/* ---- In kernels ---- */

/* Loads a rectangle. If it is in several shards, the vector engine concatenates the parts. By cube:
 * from the copy of this cube. */
tl_tensor tp_load(tl_context *tl, const tp_view *view, tl_ptr tensor, tp_rect rect);

/* The address of a rectangle in one shard, and its row stride in elements. False if it is in
 * several shards or has several copies. */
bool tp_find_address(const tp_view *view, tl_ptr tensor, const tp_rect *rect, tl_ptr *address,
                     int64_t *stride);

/* Values to be concatenated along an axis. The vector engine concatenates six in one command, and
 * five more in each further one. */
typedef struct tp_concat {
    int axis;
    size_t count;
    tl_tensor parts[16];
} tp_concat;

/* The parts are freed after concatenation. tp_concat_finish() needs at least one. */
void tp_concat_add(tl_context *tl, tp_concat *joint, tl_tensor part);
tl_tensor tp_concat_finish(tl_context *tl, tp_concat *joint);

/* The copy of a matrix by cube that this PE stores at a step: PEs of a cube go through the copies
 * in different directions, and PEs of different cubes begin with different copies. Otherwise 0. */
int64_t tp_cube_copy_at(tl_context *tl, const tp_view *view, int64_t step);

/* Stores a value with the shape of the rectangle. By cube: to all copies, in the order of
 * tp_cube_copy_at(). */
void tp_store(tl_context *tl, const tp_view *view, tl_ptr tensor, tp_rect rect, tl_tensor value);

#endif
