/* groups.c: see groups.h. Rows are sorted by indices of values, which takes n log n comparisons. */
#include "groups.h"

#include <stdlib.h>

/* ---- Ranks ------------------------------------------------------------------------------- */

static int compare_values(const void *a, const void *b, void *values)
{
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    double x = ((const sweep_value *)values)[i].number, y = ((const sweep_value *)values)[j].number;
    if (x < y || x > y)
        return x < y ? -1 : 1;
    return (i > j) - (i < j);
}

uint32_t *sweep_rank_values(const sweep_column *axis)
{
    size_t count = axis->values.count;
    uint32_t *order = kb_alloc_array(count, sizeof *order);
    uint32_t *ranks = kb_alloc_array(count, sizeof *ranks);
    if (order && ranks) {
        for (size_t i = 0; i < count; i++)
            order[i] = (uint32_t)i;
        if (sweep_is_numeric(axis))
            qsort_r(order, count, sizeof *order, compare_values, axis->values.items);
        for (size_t i = 0; i < count; i++)
            ranks[order[i]] = (uint32_t)i;
    } else {
        free(ranks);
        ranks = NULL;
    }
    free(order);
    return ranks;
}

/* ---- Groups ------------------------------------------------------------------------------ */

typedef struct sorter {
    const sweep_results *results;
    const bool *in_common;
    const sweep_column *along;
    const uint32_t *ranks; /* of the values of `along` */
} sorter;

static int compare_keys(const sorter *s, size_t a, size_t b)
{
    for (size_t i = 0; i < s->results->axis_count; i++) {
        const uint32_t *index = s->results->columns.items[i].index;
        if (s->in_common[i] && index[a] != index[b])
            return index[a] < index[b] ? -1 : 1;
    }
    return 0;
}

/* Rows without a value of the axis come last. */
static uint32_t rank_of(const sorter *s, size_t row)
{
    uint32_t index = s->along->index[row];
    return index == SWEEP_NO_VALUE ? SWEEP_NO_VALUE : s->ranks[index];
}

static int compare_rows(const void *x, const void *y, void *self)
{
    const sorter *s = self;
    size_t a = *(const size_t *)x, b = *(const size_t *)y;
    int by_key = compare_keys(s, a, b);
    if (by_key != 0)
        return by_key;
    if (s->along && rank_of(s, a) != rank_of(s, b))
        return rank_of(s, a) < rank_of(s, b) ? -1 : 1;
    return (a > b) - (a < b);
}

static void sort_into_groups(const sorter *s, bool ok_only, sweep_row_groups *out)
{
    size_t count = 0;
    for (size_t row = 0; row < s->results->row_count; row++)
        if (!ok_only || s->results->rows[row].ok)
            out->rows[count++] = row;
    qsort_r(out->rows, count, sizeof *out->rows, compare_rows, (void *)(uintptr_t)s);
    for (size_t i = 0; i < count; i++)
        if (i == 0 || compare_keys(s, out->rows[i - 1], out->rows[i]) != 0)
            out->starts[out->count++] = i;
    out->starts[out->count] = count;
}

kb_error *sweep_group(const sweep_results *results, const bool *in_common,
                      const sweep_column *along, bool ok_only, sweep_row_groups *out)
{
    *out = (sweep_row_groups){
        .rows = kb_alloc_array(results->row_count, sizeof(size_t)),
        .starts = kb_alloc_array(results->row_count + 1, sizeof(size_t)),
    };
    uint32_t *ranks = along ? sweep_rank_values(along) : NULL;
    sorter s = {results, in_common, along, ranks};
    bool good = out->rows && out->starts && (ranks || !along);
    if (good)
        sort_into_groups(&s, ok_only, out);
    else
        sweep_row_groups_fini(out);
    free(ranks);
    return good ? NULL : kb_error_nomem();
}

kb_error *sweep_group_along(const sweep_results *results, const sweep_column *axis,
                            sweep_row_groups *out)
{
    bool *others = kb_alloc_array(results->axis_count, sizeof *others);
    if (!others)
        return kb_error_nomem();
    for (size_t i = 0; i < results->axis_count; i++)
        others[i] = &results->columns.items[i] != axis;
    kb_error *err = sweep_group(results, others, axis, true, out);
    free(others);
    return err;
}

void sweep_row_groups_fini(sweep_row_groups *groups)
{
    free(groups->rows);
    free(groups->starts);
    *groups = (sweep_row_groups){0};
}
