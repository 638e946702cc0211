/*
 * decode_merge.c: merges the results of the PEs that share the keys of a sequence and head (its
 * sharers). Query heads are distributed over the sharers; each merges the results of all sharers
 * for its query heads, in the order of sharers, so results do not depend on timing:
 *
 *     m = max(m_i)    w_i = exp(m_i - m)    result = sum(w_i * result_i) / sum(w_i * sum_i)
 *
 * Maxima and sums are sent before results are complete, so the weights are ready when the results
 * arrive.
 */
#include "decode.h"

/* The number of parts of the query heads. */
static int64_t part_count(const nn_work *work, const nn_unit *unit)
{
    return kb_min(work->plan->layout.group, unit->sharers);
}

/*
 * The sharer that merges a part. Owners are spaced evenly, so that messages go to different cubes.
 */
static int64_t owner_of(const nn_work *work, const nn_unit *unit, int64_t part)
{
    return part * unit->sharers / part_count(work, unit);
}

/* The part that the sharer merges; -1: none. */
static int64_t part_of(const nn_work *work, const nn_unit *unit, int64_t sharer)
{
    int64_t part = tl_cdiv(sharer * part_count(work, unit), unit->sharers);
    bool is_owner = part < part_count(work, unit) && owner_of(work, unit, part) == sharer;
    return is_owner ? part : -1;
}

static const char *name_of(const nn_work *work, const nn_unit *unit, int64_t sharer)
{
    const nn_cache_layout *layout = &work->plan->layout;
    int64_t share = unit->begin / layout->page_tokens + sharer;
    return work->plan->names[(unit->s.first + share % layout->split) % layout->lanes];
}

/*
 * Sends each owner its query heads of the value, (group, ..). Sharers begin with different owners.
 */
static void send_parts(tl_context *tl, const nn_work *work, const nn_unit *unit, tl_tensor value)
{
    int64_t group = work->plan->layout.group, parts = part_count(work, unit);
    for (int64_t step = 1; step <= parts; step++) {
        int64_t part = (unit->sharer * parts / unit->sharers + step) % parts;
        int64_t to = owner_of(work, unit, part), row = tl_part_begin(group, parts, part);
        if (to == unit->sharer)
            continue;
        tl_tensor rows = tl_slice(value, 0, row, row + tl_part_size(group, parts, part));
        tl_send(name_of(work, unit, to), rows);
        tl_free(rows);
    }
}

void nn_begin_merge(tl_context *tl, const nn_work *work, const nn_unit *unit, nn_merge *merge)
{
    const nn_cache_layout *layout = &work->plan->layout;
    int64_t parts = part_count(work, unit), part = part_of(work, unit, unit->sharer);
    *merge = (nn_merge){.is_open = part >= 0, .unit = *unit};
    if (merge->is_open) {
        merge->row = tl_part_begin(layout->group, parts, part);
        merge->rows = tl_part_size(layout->group, parts, part);
    }
    for (int64_t from = 0; from < unit->sharers && merge->is_open; from++) {
        if (from == unit->sharer)
            continue;
        const char *name = name_of(work, unit, from);
        merge->stats[from] = tl_recv_async(name, tl_shape(merge->rows, 2), TL_F32);
        merge->results[from] = tl_recv_async(name, tl_shape(merge->rows, layout->head_dim), TL_F32);
    }
    tl_tensor stats = tl_concat(1, unit->max, unit->sum);
    send_parts(tl, work, unit, stats);
    if (merge->is_open)
        merge->stats[unit->sharer] = tl_slice(stats, 0, merge->row, merge->row + merge->rows);
    tl_free(stats);
}

void nn_send_results(tl_context *tl, const nn_work *work, const nn_unit *unit, nn_merge *merge)
{
    send_parts(tl, work, unit, unit->result);
    if (merge->is_open)
        merge->results[unit->sharer] =
            tl_slice(unit->result, 0, merge->row, merge->row + merge->rows);
}

/* (sharers, rows, 1): the factor of each result. */
static tl_tensor make_weights(tl_context *tl, const nn_merge *merge)
{
    tl_tensor weights = {0};
    int64_t sharers = merge->unit.sharers;
    TL_SCOPE {
        tl_tensor all = tl_concat_(tl, TL_DETAIL_HERE, 0, merge->stats, (size_t)sharers);
        tl_tensor stats = tl_reshape(all, tl_shape(sharers, merge->rows, 2));
        tl_tensor max = tl_slice(stats, 2, 0, 1), sum = tl_slice(stats, 2, 1, 2);
        tl_tensor weight = tl_exp(tl_sub(max, tl_max(max, 0)));
        tl_assign(&weights, tl_div(weight, tl_sum(tl_mul(weight, sum), 0)));
    }
    return weights;
}

void nn_end_merge(tl_context *tl, const nn_work *work, nn_merge *merge)
{
    if (!merge->is_open)
        return;
    tl_tensor weights = make_weights(tl, merge), total = {0};
    for (int64_t sharer = 0; sharer < merge->unit.sharers; sharer++) {
        tl_tensor part = tl_slice(weights, 0, sharer, sharer + 1);
        tl_tensor weight = tl_reshape(part, tl_shape(merge->rows, 1));
        tl_tensor more = total.id == 0 ? tl_mul(merge->results[sharer], weight)
                                       : tl_fma(merge->results[sharer], weight, total);
        if (total.id != 0)
            tl_free(total);
        total = more;
        tl_free(weight);
        tl_free(part);
        tl_free(merge->results[sharer]);
        tl_free(merge->stats[sharer]);
    }
    tl_free(weights);
    nn_store_heads(tl, work, &merge->unit, merge->row, merge->rows, total);
    merge->is_open = false;
}
