/* rows.c: loads and stores of rows of matrices in kernels, in as few commands as the layout allows.
 */
#include "rows.h"
#include "base/base.h"

/* A band of rows, divided into stripes of columns. Each stripe is packed; stripes are consecutive
 * in memory. */
typedef struct stripes {
    int64_t row, rows;     /* of the band */
    int64_t first;         /* the first element of the band in the tensor */
    int64_t width, height; /* of each stripe */
} stripes;

/* The width of the parts of the columns, if all have the same width; else 0. */
static int64_t stripe_width(const tp_view *view)
{
    int64_t parts = 1;
    if (view->cube == KB_COLUMN_WISE)
        parts *= view->cubes;
    if (view->pe == KB_COLUMN_WISE)
        parts *= view->pes;
    return view->columns % parts == 0 ? view->columns / parts : 0;
}

/* Rows that are split over PEs are consecutive in memory, so only splits of columns matter: over
 * cubes and PEs, or over the PEs of a cube within the band of rows of the cube. A single row is
 * always contiguous. */
static bool find_stripes(const tp_view *view, int64_t row, stripes *found)
{
    if (view->tiling != KB_NOT_TILED || view->cube_copies > 1)
        return false;
    *found = (stripes){.rows = view->rows, .width = view->columns, .height = view->rows};
    if (view->rows == 1)
        return true;
    found->width = stripe_width(view);
    if (view->cube == KB_ROW_WISE && view->pe == KB_COLUMN_WISE) {
        tp_block block = tp_find_block(view, row, 0);
        found->row = block.at.row;
        found->rows = found->height = block.at.rows;
        found->first = block.at.row * view->columns;
    }
    return found->width > 0;
}

/* A rectangle of whole stripes, as a block of three axes. */
typedef struct strided {
    int64_t first, count; /* element; stripes */
    int64_t width, distance;
} strided;

static bool is_strided(const tp_view *view, const tp_rect *rect, strided *found)
{
    stripes s;
    if (rect->rows == 0 || rect->columns == 0 || !find_stripes(view, rect->row, &s))
        return false;
    if (rect->row + rect->rows > s.row + s.rows)
        return false;
    int64_t stripe = rect->column / s.width, inside = rect->column % s.width;
    bool is_one = inside + rect->columns <= s.width;
    if (!is_one && (inside != 0 || rect->columns % s.width != 0))
        return false;
    found->first = s.first + stripe * s.height * s.width + (rect->row - s.row) * s.width + inside;
    found->count = is_one ? 1 : rect->columns / s.width;
    found->width = s.width;
    found->distance = s.height * s.width;
    return true;
}

tl_tensor nn_load(tl_context *tl, const tp_view *view, tl_ptr tensor, tp_rect rect)
{
    strided s;
    if (!is_strided(view, &rect, &s))
        return tp_load(tl, view, tensor, rect);
    tl_ptr at = tensor + s.first * (int64_t)kb_dtype_bytes(view->dtype);
    if (s.count == 1)
        return tl_load(at, tl_shape(rect.rows, rect.columns), view->dtype,
                       .strides = tl_strides(s.width, 1));
    tl_tensor loaded = tl_load(at, tl_shape(rect.rows, s.count, s.width), view->dtype,
                               .strides = tl_strides(s.width, s.distance, 1));
    tl_tensor rows = tl_reshape(loaded, tl_shape(rect.rows, rect.columns));
    tl_free(loaded);
    return rows;
}

void nn_store(tl_context *tl, const tp_view *view, tl_ptr tensor, tp_rect rect, tl_tensor value)
{
    strided s;
    if (!is_strided(view, &rect, &s)) {
        tp_store(tl, view, tensor, rect, value);
        return;
    }
    tl_ptr at = tensor + s.first * (int64_t)kb_dtype_bytes(view->dtype);
    if (s.count == 1) {
        tl_store(at, value, .strides = tl_strides(s.width, 1));
        return;
    }
    tl_tensor apart = tl_reshape(value, tl_shape(rect.rows, s.count, s.width));
    tl_store(at, apart, .strides = tl_strides(s.width, s.distance, 1));
    tl_free(apart);
}

/* ---- Parts of one row ---- */

/* The columns of a part, if a row is split into equal parts with addresses at equal distances; else
 * 0. By cube: of each copy. */
static int64_t width_of_parts(const tp_view *view)
{
    if (view->tiling != KB_NOT_TILED)
        return view->tile_rows >= view->rows && view->columns % view->tile_columns == 0
                   ? view->tile_columns
                   : 0;
    bool is_cut =
        (view->cube_copies > 1 || view->cube == KB_COLUMN_WISE) && view->pe == KB_COLUMN_WISE;
    return is_cut ? stripe_width(view) : 0;
}

static tl_ptr address_in_row(const tp_view *view, tl_ptr tensor, int64_t width, int64_t copy,
                             int64_t row, int64_t column)
{
    int64_t before = copy * view->rows * view->columns;
    int64_t element = before + (column / width * view->rows + row) * width + column % width;
    return tensor + element * (int64_t)kb_dtype_bytes(view->dtype);
}

/* The copy of this PE's cube. */
static int64_t own_copy(tl_context *tl, const tp_view *view)
{
    return view->cube_copies > 1 ? tl_program_id(1) : 0;
}

tl_tensor nn_load_row(tl_context *tl, const tp_view *view, tl_ptr tensor, int64_t row,
                      int64_t column, int64_t columns)
{
    int64_t width = width_of_parts(view), end = column + columns;
    if (width == 0 || column / width == (end - 1) / width)
        return tp_load(tl, view, tensor, (tp_rect){row, 1, column, columns});
    int64_t first = column / width * width, count = tl_cdiv(end - first, width) * width;
    tl_tensor whole = tl_load(address_in_row(view, tensor, width, own_copy(tl, view), row, first),
                              tl_shape(count / width, width), view->dtype,
                              .strides = tl_strides(view->rows * width, 1));
    tl_tensor flat = tl_reshape(whole, tl_shape(1, count));
    tl_tensor part = tl_slice(flat, 1, column - first, end - first);
    tl_free(flat);
    tl_free(whole);
    return part;
}

void nn_store_row(tl_context *tl, const tp_view *view, tl_ptr tensor, int64_t row, int64_t column,
                  int64_t columns, tl_tensor value)
{
    int64_t width = width_of_parts(view);
    if (width == 0) {
        tp_store(tl, view, tensor, (tp_rect){row, 1, column, columns}, value);
        return;
    }
    for (int64_t done = 0, count; done < columns; done += count) {
        int64_t left = columns - done, at = (column + done) % width;
        bool is_whole = at == 0 && left >= width;
        count = is_whole ? left / width * width : kb_min(width - at, left);
        tl_tensor part = tl_slice(value, 1, done, done + count);
        tl_tensor shaped =
            tl_reshape(part, is_whole ? tl_shape(count / width, width) : tl_shape(1, count));
        for (int64_t step = 0; step < view->cube_copies; step++) {
            int64_t copy = tp_cube_copy_at(tl, view, step);
            tl_store(address_in_row(view, tensor, width, copy, row, column + done), shaped,
                     .strides = tl_strides(view->rows * width, 1));
        }
        tl_free(shaped);
        tl_free(part);
    }
}

/* ---- The PE ---- */

nn_pe nn_find_pe(tl_context *tl, int64_t cubes, int64_t pes)
{
    return (nn_pe){.index = tl_program_id(1) * pes + tl_program_id(0), .count = cubes * pes};
}

/* ---- A number for each row ---- */

/* The part of [first, first + count) in one row of the tensor. */
static tp_rect next_indices(const tp_view *view, int64_t first, int64_t count)
{
    int64_t column = first % view->columns;
    return (tp_rect){first / view->columns, 1, column, kb_min(count, view->columns - column)};
}

tl_tensor nn_load_indices(tl_context *tl, const tp_view *view, tl_ptr tensor, int64_t first,
                          int64_t count)
{
    tl_tensor all = {0};
    if (view->columns == 1) {
        all = nn_load(tl, view, tensor, (tp_rect){first, count, 0, 1});
        count = 0;
    }
    while (count > 0) {
        tp_rect rect = next_indices(view, first, count);
        tl_tensor part = nn_load(tl, view, tensor, rect);
        first += rect.columns;
        count -= rect.columns;
        if (all.id == 0) {
            all = part;
            continue;
        }
        tl_tensor joined = tl_concat(1, all, part);
        tl_free(all);
        tl_free(part);
        all = joined;
    }
    return all;
}

void nn_store_rows(tl_context *tl, const tp_view *view, tl_ptr tensor, int64_t first, int64_t count,
                   tl_tensor value)
{
    if (view->columns == 1) {
        nn_store(tl, view, tensor, (tp_rect){first, count, 0, 1}, value);
        return;
    }
    for (int64_t done = 0; done < count;) {
        tp_rect rect = next_indices(view, first + done, count - done);
        tl_tensor part = tl_slice(value, 0, done, done + rect.columns);
        tl_tensor row = tl_reshape(part, tl_shape(1, rect.columns));
        nn_store(tl, view, tensor, rect, row);
        tl_free(row);
        tl_free(part);
        done += rect.columns;
    }
}
