/*
 * flat.c: copies between tensors by the count of elements, row by row, whatever their shapes and
 * layouts. Contents go at once, by way of the host's memory; time passes as PEs send what they have
 * to where it belongs, one transfer for each pair of shards, as in every copy between devices.
 *
 * Both tensors are walked along together, in stretches that are in one cell of each one's grid; so
 * the work grows with the rows, not with the elements.
 */
#include "runtime.h"

#include <stdlib.h>

/* ---- Contents ---- */

/*
 * The next box of a range: as much of it as is a box. A range is few boxes: the rest of a row, the
 * rest of a matrix, .., whole blocks, .., the beginning of a matrix, of a row.
 */
static mem_box next_box(const kb_shape *shape, uint64_t first, uint64_t count)
{
    mem_box box = mem_box_whole(shape);
    uint64_t block = mem_box_elements(&box); /* elements of one index of the axis, times its size */
    for (uint32_t axis = 0; axis < box.rank; axis++) {
        uint64_t size = box.size[axis];
        block /= size;
        box.start[axis] = first / block;
        box.size[axis] = 1;
        first %= block;
        if (first > 0 || count < block)
            continue;
        uint64_t wanted = count / block, left = size - box.start[axis];
        box.size[axis] = wanted < left ? wanted : left;
        break;
    }
    return box;
}

/* Moves the range between the tensor and an array. */
static kb_error *move_range(kb_context *ctx, rt_tensor *tensor, uint64_t first, uint64_t count,
                            unsigned char *data, bool write)
{
    while (count > 0) {
        mem_box box = next_box(&tensor->placement.shape, first, count);
        KB_TRY(write ? rt_write_box(ctx, tensor, &box, data)
                     : rt_read_box(ctx, tensor, &box, data));
        uint64_t moved = mem_box_elements(&box);
        data += moved * kb_dtype_bytes(tensor->dtype);
        first += moved;
        count -= moved;
    }
    return NULL;
}

static kb_error *copy_contents(kb_context *ctx, rt_tensor *to, rt_tensor *from,
                               const rt_flat_copy *copy)
{
    if (!rt_has_contents(ctx, to) || !rt_has_contents(ctx, from))
        return NULL;
    unsigned char *data = kb_alloc_array(copy->count, kb_dtype_bytes(to->dtype));
    if (!data)
        return kb_error_nomem();
    kb_error *err = move_range(ctx, from, copy->from_first, copy->count, data, false);
    if (!err)
        err = move_range(ctx, to, copy->to_first, copy->count, data, true);
    free(data);
    return err;
}

/* ---- Which cells meet ---- */

/* A walk over the elements of a tensor. */
typedef struct walk {
    const mem_grid *grid;
    uint64_t rows, columns; /* of the tensor: its first and its last axis */
    uint64_t row_elements;  /* of one index of the first axis */
    uint64_t at;
    size_t row, column; /* the cell that it is in */
    uint64_t left;      /* elements that follow without a break in the cell */
} walk;

static void find_cell(walk *w)
{
    const mem_grid *grid = w->grid;
    uint64_t row = w->at / w->row_elements, column = w->at % w->columns;
    while (w->row + 1 < grid->row_count && grid->rows[w->row + 1] <= row)
        w->row++;
    if (column == 0)
        w->column = 0;
    while (w->column + 1 < grid->column_count && grid->columns[w->column + 1] <= column)
        w->column++;
    if (grid->column_count == 1) {
        uint64_t end = w->row + 1 < grid->row_count ? grid->rows[w->row + 1] : w->rows;
        w->left = end * w->row_elements - w->at;
    } else {
        bool is_last = w->column + 1 == grid->column_count;
        w->left = (is_last ? w->columns : grid->columns[w->column + 1]) - column;
    }
}

static walk begin_walk(const rt_tensor *tensor, uint64_t first)
{
    const kb_shape *shape = &tensor->placement.shape;
    mem_box whole = mem_box_whole(shape);
    walk w = {
        .grid = &tensor->grid,
        .rows = shape->dims[0],
        .columns = shape->dims[shape->rank - 1],
        .row_elements = mem_box_elements(&whole) / shape->dims[0],
        .at = first,
    };
    find_cell(&w);
    return w;
}

static void go_on(walk *w, uint64_t count)
{
    w->at += count;
    w->left -= count;
    if (w->left == 0 && w->at < w->rows * w->row_elements)
        find_cell(w);
}

static size_t cell_of(const walk *w)
{
    return w->row * w->grid->column_count + w->column;
}

/* The elements of a cell of one tensor that belong into a cell of the other. */
typedef struct meeting {
    size_t from, to;
    uint64_t elements;
} meeting;

typedef struct meetings {
    KB_VEC(meeting) items;
    size_t unsorted_from; /* before that one, no pair of cells is there twice */
} meetings;

static int by_cells(const void *a, const void *b)
{
    const meeting *x = a, *y = b;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    return (x->to > y->to) - (x->to < y->to);
}

/* Adds up those of the same cells. */
static void merge(meetings *all)
{
    meeting *items = all->items.items;
    size_t kept = 0;
    if (all->items.count > 0)
        qsort(items, all->items.count, sizeof *items, by_cells);
    for (size_t i = 0; i < all->items.count; i++) {
        if (kept > 0 && by_cells(&items[kept - 1], &items[i]) == 0)
            items[kept - 1].elements += items[i].elements;
        else
            items[kept++] = items[i];
    }
    all->items.count = all->unsorted_from = kept;
}

/* Rows repeat the same pairs: they are merged whenever there are twice as many as needed be. */
static kb_error *add_meeting(meetings *all, meeting fresh)
{
    enum { FEW = 4096 };
    if (all->items.count >= FEW && all->items.count >= 2 * all->unsorted_from)
        merge(all);
    return kb_vec_push(&all->items, fresh) ? NULL : kb_error_nomem();
}

static kb_error *find_meetings(const rt_tensor *to, const rt_tensor *from, const rt_flat_copy *copy,
                               meetings *all)
{
    walk source = begin_walk(from, copy->from_first), target = begin_walk(to, copy->to_first);
    for (uint64_t left = copy->count; left > 0;) {
        uint64_t count = source.left < target.left ? source.left : target.left;
        count = count < left ? count : left;
        KB_TRY(add_meeting(all, (meeting){cell_of(&source), cell_of(&target), count}));
        go_on(&source, count);
        go_on(&target, count);
        left -= count;
    }
    merge(all);
    return NULL;
}

/* ---- Time ---- */

/* All copies of the target's cell get it, each from the copy of the source that is the nearest. */
static kb_error *add_sendings(kb_context *ctx, const rt_tensor *to, const rt_tensor *from,
                              const meeting *m, rt_sendings *sendings)
{
    const uint32_t *sources = from->grid.shards + m->from * from->grid.copies;
    const uint32_t *targets = to->grid.shards + m->to * to->grid.copies;
    for (size_t copy = 0; copy < to->grid.copies; copy++) {
        const mem_shard *target = &to->placement.shards.items[targets[copy]];
        kb_pe pe = {to->sip, target->cube, target->pe};
        rt_sending fresh = {
            .from_shard = rt_nearest_shard(from, sources, pe, ctx->shape->pes),
            .to_shard = targets[copy],
            .bytes = m->elements * kb_dtype_bytes(to->dtype),
        };
        if (!kb_vec_push(sendings, fresh))
            return kb_error_nomem();
    }
    return NULL;
}

static kb_error *make_job(kb_context *ctx, const rt_tensor *to, const rt_tensor *from,
                          const rt_flat_copy *copy, rt_job **job)
{
    meetings all = {0};
    rt_sendings sendings = {0};
    kb_error *err = find_meetings(to, from, copy, &all);
    for (size_t i = 0; i < all.items.count && !err; i++)
        err = add_sendings(ctx, to, from, &all.items.items[i], &sendings);
    if (!err)
        err = rt_make_sendings(ctx, to, from, &sendings, job);
    kb_vec_fini(&all.items);
    kb_vec_fini(&sendings);
    return err;
}

static bool is_inside(const rt_tensor *tensor, uint64_t first, uint64_t count)
{
    uint64_t elements = tensor->bytes / kb_dtype_bytes(tensor->dtype);
    return first <= elements && count <= elements - first;
}

static bool is_idle(const rt_tensor *to, const rt_tensor *from, const rt_flat_copy *copy)
{
    return copy->count == 0 || (to == from && copy->to_first == copy->from_first);
}

/* Boxes need no walk. */
static bool is_whole(const rt_tensor *to, const rt_tensor *from, const rt_flat_copy *copy)
{
    return copy->count * kb_dtype_bytes(to->dtype) == to->bytes &&
           mem_shape_equal(&to->placement.shape, &from->placement.shape);
}

kb_error *rt_flat_contents(kb_context *ctx, rt_tensor *to, rt_tensor *from,
                           const rt_flat_copy *copy)
{
    KB_ASSERT(to->dtype == from->dtype && is_inside(to, copy->to_first, copy->count));
    KB_ASSERT(is_inside(from, copy->from_first, copy->count));
    if (is_idle(to, from, copy))
        return NULL;
    return is_whole(to, from, copy) ? rt_copy_contents(ctx, to, from)
                                    : copy_contents(ctx, to, from, copy);
}

kb_error *rt_make_flat(kb_context *ctx, const rt_tensor *to, const rt_tensor *from,
                       const rt_flat_copy *copy, rt_job **job)
{
    KB_ASSERT(!to->on_host && !from->on_host);
    *job = NULL;
    if (is_idle(to, from, copy))
        return NULL;
    return is_whole(to, from, copy) ? rt_make_copy(ctx, to, from, job)
                                    : make_job(ctx, to, from, copy, job);
}

kb_error *rt_copy_flat(rt_request *request, rt_tensor *to, rt_tensor *from,
                       const rt_flat_copy *copy)
{
    rt_job *job;
    KB_TRY(rt_flat_contents(request->ctx, to, from, copy));
    KB_TRY(rt_make_flat(request->ctx, to, from, copy, &job));
    return job ? rt_job_submit(job, request) : NULL;
}
