/* row.c: parts of one row of a matrix: see row.h. */
#include "row.h"

static int64_t min_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The columns of a part, if all parts are equal; else 0. */
static int64_t width_of_parts(const tp_view *view)
{
    int64_t parts = view->cubes * view->pes;
    bool is_cut = view->tiling == KB_NOT_TILED && view->slabs == 1 &&
                  view->cube == KB_COLUMN_WISE && view->pe == KB_COLUMN_WISE;
    return is_cut && view->columns % parts == 0 ? view->columns / parts : 0;
}

static tl_ptr address_of(const tp_view *view, tl_ptr tensor, int64_t width, int64_t row,
                         int64_t column)
{
    int64_t element = (column / width * view->rows + row) * width + column % width;
    return tensor + element * (int64_t)kb_dtype_bytes(view->dtype);
}

tl_tensor nn_load_row(tl_context *tl, const tp_view *view, tl_ptr tensor, int64_t row,
                      int64_t column, int64_t columns)
{
    int64_t width = width_of_parts(view), first = width > 0 ? column / width * width : 0;
    int64_t parts = width > 0 ? tl_cdiv(column + columns - first, width) : 0;
    if (parts <= 1)
        return tp_load(tl, view, tensor, (tp_rect){row, 1, column, columns});
    tl_tensor whole = tl_load(address_of(view, tensor, width, row, first), tl_shape(parts, width),
                              view->dtype, .strides = tl_strides(view->rows * width, 1));
    tl_tensor flat = tl_reshape(whole, tl_shape(1, parts * width));
    tl_tensor part = tl_slice(flat, 1, column - first, column - first + columns);
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
        count = is_whole ? left / width * width : min_of(width - at, left);
        tl_tensor part = tl_slice(value, 1, done, done + count);
        tl_tensor shaped =
            tl_reshape(part, is_whole ? tl_shape(count / width, width) : tl_shape(1, count));
        tl_store(address_of(view, tensor, width, row, column + done), shaped,
                 .strides = tl_strides(view->rows * width, 1));
        tl_free(shaped);
        tl_free(part);
    }
}
