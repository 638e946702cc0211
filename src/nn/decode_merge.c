/*
 * decode_merge.c: the results of PEs that share the keys of a sequence and head. Query heads are
 * dealt out to the members; each member merges what all have of its query heads, in the order of
 * members, so that results do not depend on timing:
 *
 *     m = max(m_i)    w_i = exp(m_i - m)    result = sum(w_i * result_i) / sum(w_i * sum_i)
 *
 * Maxima and sums are sent before results are complete, so that the weights are there when the
 * results are.
 */
#include "decode.h"

static int64_t min_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Parts of the query heads. */
static int64_t part_count(const nn_work *work, const nn_unit *unit)
{
    return min_of(work->plan->is.group, unit->members);
}

/* The member that merges a part. They are as far apart as possible: messages come in to different
 * cubes. */
static int64_t owner_of(const nn_work *work, const nn_unit *unit, int64_t part)
{
    return part * unit->members / part_count(work, unit);
}

/* The part that the member merges; -1: none. */
static int64_t part_of(const nn_work *work, const nn_unit *unit, int64_t member)
{
    int64_t part = tl_cdiv(member * part_count(work, unit), unit->members);
    bool is_owner = part < part_count(work, unit) && owner_of(work, unit, part) == member;
    return is_owner ? part : -1;
}

static const char *name_of(const nn_work *work, const nn_unit *unit, int64_t member)
{
    const nn_cache_layout *is = &work->plan->is;
    int64_t share = unit->begin / is->page_tokens + member;
    return work->plan->names[(unit->s.first + share % is->split) % is->lanes];
}

/* Sends each owner its query heads of the value, (group, ..): different ones first. */
static void send_parts(tl_context *tl, const nn_work *work, const nn_unit *unit, tl_tensor value)
{
    int64_t group = work->plan->is.group, parts = part_count(work, unit);
    for (int64_t step = 1; step <= parts; step++) {
        int64_t part = (unit->member * parts / unit->members + step) % parts;
        int64_t to = owner_of(work, unit, part), row = tl_part_begin(group, parts, part);
        if (to == unit->member)
            continue;
        tl_tensor rows = tl_slice(value, 0, row, row + tl_part_size(group, parts, part));
        tl_send(name_of(work, unit, to), rows);
        tl_free(rows);
    }
}

void nn_begin_merge(tl_context *tl, const nn_work *work, const nn_unit *unit, nn_merge *merge)
{
    const nn_cache_layout *is = &work->plan->is;
    int64_t parts = part_count(work, unit), part = part_of(work, unit, unit->member);
    *merge = (nn_merge){.is_open = part >= 0, .unit = *unit};
    if (merge->is_open) {
        merge->row = tl_part_begin(is->group, parts, part);
        merge->rows = tl_part_size(is->group, parts, part);
    }
    for (int64_t from = 0; from < unit->members && merge->is_open; from++) {
        if (from == unit->member)
            continue;
        const char *name = name_of(work, unit, from);
        merge->stats[from] = tl_recv_async(name, tl_shape(merge->rows, 2), TL_F32);
        merge->results[from] = tl_recv_async(name, tl_shape(merge->rows, is->head_dim), TL_F32);
    }
    tl_tensor stats = tl_concat(1, unit->max, unit->sum);
    send_parts(tl, work, unit, stats);
    if (merge->is_open)
        merge->stats[unit->member] = tl_slice(stats, 0, merge->row, merge->row + merge->rows);
    tl_free(stats);
}

void nn_send_results(tl_context *tl, const nn_work *work, const nn_unit *unit, nn_merge *merge)
{
    send_parts(tl, work, unit, unit->result);
    if (merge->is_open)
        merge->results[unit->member] =
            tl_slice(unit->result, 0, merge->row, merge->row + merge->rows);
}

/* (members, rows, 1): what each result is multiplied by. */
static tl_tensor make_weights(tl_context *tl, const nn_merge *merge)
{
    tl_tensor weights = {0};
    int64_t members = merge->unit.members;
    TL_SCOPE {
        tl_tensor all = tl_concat_(tl, TL_DETAIL_HERE, 0, merge->stats, (size_t)members);
        tl_tensor stats = tl_reshape(all, tl_shape(members, merge->rows, 2));
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
    for (int64_t member = 0; member < merge->unit.members; member++) {
        tl_tensor part = tl_slice(weights, 0, member, member + 1);
        tl_tensor weight = tl_reshape(part, tl_shape(merge->rows, 1));
        tl_tensor more = total.id == 0 ? tl_mul(merge->results[member], weight)
                                       : tl_fma(merge->results[member], weight, total);
        if (total.id != 0)
            tl_free(total);
        total = more;
        tl_free(weight);
        tl_free(part);
        tl_free(merge->results[member]);
        tl_free(merge->stats[member]);
    }
    tl_free(weights);
    nn_store_heads(tl, work, &merge->unit, merge->row, merge->rows, total);
    merge->is_open = false;
}
