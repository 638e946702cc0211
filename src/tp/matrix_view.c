/*
 * matrix_view.c: where the elements of a matrix are. The rule is that of src/mem/placement.c: parts
 * of equal size, or one larger for the first ones; first over the cubes, then over the PEs of each.
 * Tiles are distributed one by one.
 */
#include "matrix_view.h"

#include <inttypes.h>
#include <string.h>

#include "rt/rt.h"

/* ---- Host ---- */

static int64_t product_of_rows(const kb_shape *shape, int64_t *unit)
{
    int64_t rows = 1;
    *unit = 1;
    for (uint32_t axis = 0; axis + 1 < shape->rank; axis++) {
        rows *= (int64_t)shape->dims[axis];
        if (axis > 0)
            *unit *= (int64_t)shape->dims[axis];
    }
    return rows;
}

tp_view tp_view_plan(const kb_machine *machine, const kb_shape *shape, kb_dtype dtype,
                     const kb_policy *policy)
{
    static const kb_policy one_pe = {.num_cubes = 1, .num_pes = 1};
    const kb_policy *p = policy ? policy : &one_pe;
    tp_view view;
    memset(&view, 0, sizeof view); /* also the padding: views are compared byte by byte */
    view.rows = product_of_rows(shape, &view.row_unit);
    view.columns = shape->rank > 0 ? (int64_t)shape->dims[shape->rank - 1] : 1;
    view.dtype = dtype;
    view.cube = p->cube;
    view.pe = p->pe;
    view.tiling = p->tiling;
    view.cubes = p->num_cubes > 0 ? p->num_cubes : machine->cubes;
    view.pes = p->num_pes > 0 ? p->num_pes : machine->pes;
    view.tile_rows = (int64_t)p->tile_rows * view.row_unit;
    view.tile_columns = (int64_t)p->tile_columns;
    view.copies = view.cube_copies = 1;
    if (view.tiling == KB_NOT_TILED && view.cube == KB_REPLICATE)
        view.copies *= view.cubes;
    if (view.tiling == KB_NOT_TILED && view.pe == KB_REPLICATE)
        view.copies *= view.pes;
    return view;
}

kb_error *tp_view_make(kb_context *ctx, kb_tensor tensor, tp_view *view)
{
    rt_tensor_view seen;
    KB_TRY(rt_view_tensor(ctx, tensor, &seen));
    if (seen.on_host)
        return kb_error_new(KB_ERR_INPUT,
                            "tensor '%s' is on the host: copy it to a device first "
                            "(kb_tensor_copy)",
                            seen.name);
    kb_machine machine = kb_context_machine(ctx);
    *view = tp_view_plan(&machine, &seen.shape, seen.dtype, &seen.policy);
    return NULL;
}

kb_error *tp_view_make_by_cube(kb_context *ctx, kb_tensor tensor, tp_view *view)
{
    int64_t cubes = kb_context_machine(ctx).cubes;
    KB_TRY(tp_view_make(ctx, tensor, view));
    if (view->tiling != KB_NOT_TILED || view->cube != KB_ROW_WISE || view->cubes != cubes ||
        view->row_unit != 1 || view->copies != 1 || view->rows % cubes != 0)
        return kb_error_new(KB_ERR_INPUT,
                            "a tensor of %" PRId64 " rows is not a matrix by cube: its rows have "
                            "to be cut over all %" PRId64 " cubes, the same number for each",
                            view->rows, cubes);
    view->cube_copies = cubes;
    view->rows /= cubes;
    return NULL;
}

/* ---- Blocks ---- */

/* The part that contains a position, for n positions in parts as defined by tl_part_begin(). */
static int64_t part_of(int64_t n, int64_t parts, int64_t position)
{
    int64_t each = n / parts, larger = n % parts;
    if (position < larger * (each + 1))
        return position / (each + 1);
    return larger + (position - larger * (each + 1)) / each;
}

/* Reduces the block to one of `parts` parts, in units of `unit` rows. */
static void take_part(tp_block *block, const tp_view *view, kb_split split, int64_t parts,
                      int64_t part)
{
    tp_rect *at = &block->at;
    int64_t bytes = (int64_t)kb_dtype_bytes(view->dtype);
    if (split == KB_ROW_WISE) {
        int64_t units = at->rows / view->row_unit;
        int64_t begin = tl_part_begin(units, parts, part) * view->row_unit;
        block->offset += begin * at->columns * bytes;
        at->row += begin;
        at->rows = tl_part_size(units, parts, part) * view->row_unit;
    } else if (split == KB_COLUMN_WISE) {
        int64_t begin = tl_part_begin(at->columns, parts, part);
        block->offset += begin * at->rows * bytes;
        at->column += begin;
        at->columns = tl_part_size(at->columns, parts, part);
    }
}

static int64_t find_part(const tp_block *block, const tp_view *view, kb_split split, int64_t parts,
                         int64_t row, int64_t column)
{
    if (split == KB_ROW_WISE)
        return part_of(block->at.rows / view->row_unit, parts,
                       (row - block->at.row) / view->row_unit);
    if (split == KB_COLUMN_WISE)
        return part_of(block->at.columns, parts, column - block->at.column);
    return 0;
}

static tp_block tile_at(const tp_view *view, int64_t down, int64_t across)
{
    tp_rect at = {.row = down * view->tile_rows, .column = across * view->tile_columns};
    at.rows = kb_min(view->rows - at.row, view->tile_rows);
    at.columns = kb_min(view->columns - at.column, view->tile_columns);
    /* Tiles before this one along the outer axis are complete. */
    int64_t before = view->tiling == KB_TILED_COLUMN_MAJOR
                         ? at.row * view->columns + at.rows * at.column
                         : at.column * view->rows + at.columns * at.row;
    return (tp_block){at, before * (int64_t)kb_dtype_bytes(view->dtype)};
}

static tp_block whole(const tp_view *view)
{
    return (tp_block){.at = {.rows = view->rows * view->cube_copies, .columns = view->columns}};
}

tp_block tp_find_block(const tp_view *view, int64_t row, int64_t column)
{
    if (view->tiling != KB_NOT_TILED)
        return tile_at(view, row / view->tile_rows, column / view->tile_columns);
    tp_block block = whole(view);
    take_part(&block, view, view->cube, view->cubes,
              find_part(&block, view, view->cube, view->cubes, row, column));
    take_part(&block, view, view->pe, view->pes,
              find_part(&block, view, view->pe, view->pes, row, column));
    return block;
}

int64_t tp_block_count(const tp_view *view, int64_t cube, int64_t pe)
{
    if (cube >= view->cubes || pe >= view->pes)
        return 0;
    if (view->tiling == KB_NOT_TILED)
        return 1;
    int64_t tiles =
        tl_cdiv(view->rows, view->tile_rows) * tl_cdiv(view->columns, view->tile_columns);
    int64_t index = cube * view->pes + pe, all = view->cubes * view->pes;
    return index < tiles ? (tiles - 1 - index) / all + 1 : 0;
}

tp_block tp_get_block(const tp_view *view, int64_t cube, int64_t pe, int64_t index)
{
    if (view->tiling != KB_NOT_TILED) {
        int64_t tile = index * view->cubes * view->pes + cube * view->pes + pe;
        int64_t down = tl_cdiv(view->rows, view->tile_rows);
        int64_t across = tl_cdiv(view->columns, view->tile_columns);
        return view->tiling == KB_TILED_COLUMN_MAJOR ? tile_at(view, tile / across, tile % across)
                                                     : tile_at(view, tile % down, tile / down);
    }
    tp_block block = whole(view);
    take_part(&block, view, view->cube, view->cubes, cube);
    take_part(&block, view, view->pe, view->pes, pe);
    return block;
}

/* ---- In kernels ---- */

/* The intersection of the rectangle and the block that has its first element. */
static tp_rect first_piece(const tp_block *block, const tp_rect *rect)
{
    tp_rect piece = *rect;
    piece.rows = kb_min(rect->rows, block->at.row + block->at.rows - rect->row);
    piece.columns = kb_min(rect->columns, block->at.column + block->at.columns - rect->column);
    return piece;
}

static tl_ptr address_of(const tp_view *view, const tp_block *block, tl_ptr tensor,
                         const tp_rect *piece)
{
    int64_t before =
        (piece->row - block->at.row) * block->at.columns + piece->column - block->at.column;
    return tensor + block->offset + before * (int64_t)kb_dtype_bytes(view->dtype);
}

bool tp_find_address(const tp_view *view, tl_ptr tensor, const tp_rect *rect, tl_ptr *address,
                     int64_t *stride)
{
    tp_block block = tp_find_block(view, rect->row, rect->column);
    tp_rect piece = first_piece(&block, rect);
    *address = address_of(view, &block, tensor, rect);
    *stride = block.at.columns;
    return view->cube_copies == 1 && piece.rows == rect->rows && piece.columns == rect->columns;
}

static tl_tensor load_piece(tl_context *tl, const tp_view *view, const tp_block *block,
                            tl_ptr tensor, const tp_rect *piece)
{
    return tl_load(address_of(view, block, tensor, piece), tl_shape(piece->rows, piece->columns),
                   view->dtype, .strides = tl_strides(block->at.columns, 1));
}

tl_tensor tp_concat_finish(tl_context *tl, tp_concat *j)
{
    tl_tensor all = j->parts[0];
    if (j->count > 1) {
        all = tl_concat_(tl, TL_DETAIL_HERE, j->axis, j->parts, j->count);
        for (size_t i = 0; i < j->count; i++)
            tl_free(j->parts[i]);
    }
    j->parts[0] = all;
    j->count = 1;
    return all;
}

void tp_concat_add(tl_context *tl, tp_concat *j, tl_tensor part)
{
    if (j->count == sizeof j->parts / sizeof j->parts[0])
        (void)tp_concat_finish(tl, j);
    j->parts[j->count++] = part;
}

/* Whole rows of the rectangle: as many as the blocks of its first row have in common. */
static tl_tensor load_band(tl_context *tl, const tp_view *view, tl_ptr tensor, tp_rect rect)
{
    tp_concat across = {.axis = 1};
    while (rect.columns > 0) {
        tp_block block = tp_find_block(view, rect.row, rect.column);
        tp_rect piece = first_piece(&block, &rect);
        tp_concat_add(tl, &across, load_piece(tl, view, &block, tensor, &piece));
        rect.column += piece.columns;
        rect.columns -= piece.columns;
    }
    return tp_concat_finish(tl, &across);
}

tl_tensor tp_load(tl_context *tl, const tp_view *view, tl_ptr tensor, tp_rect rect)
{
    tp_concat down = {.axis = 0};
    if (view->cube_copies > 1)
        rect.row += tl_program_id(1) * view->rows;
    while (rect.rows > 0) {
        tp_block block = tp_find_block(view, rect.row, rect.column);
        tp_rect band = rect;
        band.rows = first_piece(&block, &rect).rows;
        tp_concat_add(tl, &down, load_band(tl, view, tensor, band));
        rect.row += band.rows;
        rect.rows -= band.rows;
    }
    return tp_concat_finish(tl, &down);
}

/* A part of a value: the value itself, or a copy of the part. */
static tl_tensor part_of_value(tl_context *tl, tl_tensor value, const tp_rect *rect,
                               const tp_rect *piece)
{
    tl_tensor part = value;
    if (piece->rows < rect->rows)
        part = tl_slice(part, 0, piece->row - rect->row, piece->row - rect->row + piece->rows);
    if (piece->columns < rect->columns) {
        int64_t begin = piece->column - rect->column;
        tl_tensor narrow = tl_slice(part, 1, begin, begin + piece->columns);
        if (part.id != value.id)
            tl_free(part);
        part = narrow;
    }
    return part;
}

int64_t tp_cube_copy_at(tl_context *tl, const tp_view *view, int64_t step)
{
    if (view->cube_copies == 1)
        return 0;
    int64_t first = tl_program_id(1) + 1 + tl_program_id(0) * view->cube_copies / view->pes;
    return (first + step) % view->cube_copies;
}

/* Stores a piece that is in one shard; by cube: in the same shard of each cube. */
static void store_piece(tl_context *tl, const tp_view *view, tl_ptr tensor, const tp_rect *piece,
                        tl_tensor value)
{
    for (int64_t step = 0; step < view->cube_copies; step++) {
        tp_rect at = *piece;
        at.row += tp_cube_copy_at(tl, view, step) * view->rows;
        tp_block block = tp_find_block(view, at.row, at.column);
        tl_store(address_of(view, &block, tensor, &at), value,
                 .strides = tl_strides(block.at.columns, 1));
    }
}

void tp_store(tl_context *tl, const tp_view *view, tl_ptr tensor, tp_rect rect, tl_tensor value)
{
    for (int64_t row = rect.row, rows = 0; row < rect.row + rect.rows; row += rows)
        for (int64_t column = rect.column; column < rect.column + rect.columns;) {
            tp_block block = tp_find_block(view, row, column);
            tp_rect left = {row, rect.row + rect.rows - row, column,
                            rect.column + rect.columns - column};
            tp_rect piece = first_piece(&block, &left);
            tl_tensor part = part_of_value(tl, value, &rect, &piece);
            store_piece(tl, view, tensor, &piece, part);
            if (part.id != value.id)
                tl_free(part);
            rows = piece.rows;
            column += piece.columns;
        }
}
