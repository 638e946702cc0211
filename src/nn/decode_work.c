/*
 * decode_work.c: the tiles of keys of a PE. Sequences are in the order of the batch, and for each
 * sequence the heads of the PE. Invariant: all PEs that share sequences process them in the same
 * order.
 */
#include "decode.h"
#include "rows.h"

/* ---- Sequences ---- */

static void read_records(tl_context *tl, nn_work *work, tl_tensor loaded)
{
    nn_read_records(tl, loaded, work->first, work->count, work->sequences);
    work->next = work->head_index = 0;
}

static tl_tensor load_records(tl_context *tl, nn_work *work, int64_t first)
{
    work->first = first;
    work->count = kb_min(NN_RECORDS_AT_A_TIME, work->plan->layout.batch - first);
    return nn_load_records(tl, work->records, first, work->count);
}

/* ---- The new token ---- */

static void load_token(tl_context *tl, const nn_work *work, int64_t row, nn_unit *unit)
{
    const nn_decode_plan *plan = work->plan;
    const nn_cache_layout *layout = &plan->layout;
    int64_t dim = layout->head_dim, columns = layout->group * dim;
    unit->q = nn_load_row(tl, &plan->qkv, work->qkv, row, unit->kv_head * columns, columns);
    if (!unit->has_new)
        return;
    int64_t k = (layout->heads + unit->kv_head) * dim, v = k + layout->kv_heads * dim;
    unit->k = nn_load_row(tl, &plan->qkv, work->qkv, row, k, dim);
    unit->v = nn_load_row(tl, &plan->qkv, work->qkv, row, v, dim);
}

void nn_load_token(tl_context *tl, nn_work *work, nn_unit *unit)
{
    if (unit->s.index != 0 || work->early.q.id == 0) {
        load_token(tl, work, unit->s.index, unit);
        return;
    }
    unit->q = work->early.q;
    unit->k = work->early.k;
    unit->v = work->early.v;
    work->early = (nn_unit){0};
    if (!unit->has_new) {
        tl_free(unit->k);
        tl_free(unit->v);
    }
}

/* ---- Start ---- */

/* If all lanes share the first sequence: the loads that do not depend on its record. */
static void load_early(tl_context *tl, nn_work *work)
{
    const nn_cache_layout *layout = &work->plan->layout;
    int64_t row = layout->table_columns / layout->split;
    work->early = (nn_unit){.kv_head = nn_head_at(layout, work->pe, 0), .has_new = true};
    if (layout->split < layout->lanes || layout->heads_of_pe > 1 || work->early.kv_head < 0)
        return;
    if (layout->is_paged)
        work->early_slots = nn_load_slots(tl, layout, work->table, 0, work->lane * row,
                                          kb_min(NN_SLOT_WINDOW, row));
    load_token(tl, work, 0, &work->early);
}

void nn_begin_work(tl_context *tl, nn_work *work)
{
    work->pe = tl_program_id(1) * work->plan->layout.pes_of_cube + tl_program_id(0);
    work->lane = nn_lane_of_pe(&work->plan->layout, work->pe);
    work->slot_sequence = -1;
    tl_tensor loaded = load_records(tl, work, 0);
    load_early(tl, work);
    read_records(tl, work, loaded);
}

/* ---- Sequences and heads ---- */

/* The next sequence and head of this PE; false if there is none. */
static bool next_pair(tl_context *tl, nn_work *work, const nn_sequence **s, int64_t *kv_head)
{
    const nn_cache_layout *layout = &work->plan->layout;
    for (;;) {
        if (work->next == work->count) {
            if (work->first + work->count == layout->batch)
                return false;
            read_records(tl, work, load_records(tl, work, work->first + work->count));
        }
        *s = &work->sequences[work->next];
        *kv_head = nn_head_at(layout, work->pe, work->head_index);
        if (++work->head_index == layout->heads_of_pe) {
            work->head_index = 0;
            work->next++;
        }
        if (*kv_head >= 0)
            return true;
    }
}

/* ---- Units ---- */

/* False if this PE has no key of the sequence. */
static bool describe_unit(const nn_work *work, const nn_sequence *s, int64_t kv_head, nn_unit *unit)
{
    const nn_decode_plan *plan = work->plan;
    const nn_cache_layout *layout = &plan->layout;
    int64_t share = nn_share_of_lane(layout, s, work->lane);
    int64_t begin = plan->window > 0 ? kb_max(0, s->cached + 1 - plan->window) : 0;
    int64_t first = begin / layout->page_tokens, last = s->cached / layout->page_tokens;
    if (share < 0)
        return false;
    *unit = (nn_unit){.s = *s,
                      .kv_head = kv_head,
                      .share = share,
                      .begin = begin,
                      .sharers = kb_min(layout->split, last - first + 1),
                      .sharer = (share - first % layout->split + layout->split) % layout->split,
                      .has_new = last % layout->split == share};
    return unit->sharer < unit->sharers;
}

static void store_zeros(tl_context *tl, const nn_work *work, const nn_sequence *s, int64_t kv_head)
{
    const nn_cache_layout *layout = &work->plan->layout;
    const nn_unit unit = {.s = *s, .kv_head = kv_head};
    if (nn_share_of_lane(layout, s, work->lane) == 0)
        nn_store_heads(tl, work, &unit, 0, layout->group,
                       tl_zeros(tl_shape(layout->group, layout->head_dim), TL_F32));
}

/* Starts the next unit; false if there is none. */
static bool next_unit(tl_context *tl, nn_work *work)
{
    const nn_cache_layout *layout = &work->plan->layout;
    nn_unit *unit = &work->units[work->unit_count % NN_UNITS];
    const nn_sequence *s;
    int64_t kv_head;
    while (next_pair(tl, work, &s, &kv_head)) {
        if (s->added == 0) {
            store_zeros(tl, work, s, kv_head);
            continue;
        }
        if (!describe_unit(work, s, kv_head, unit))
            continue;
        int64_t first = unit->begin / layout->page_tokens;
        work->unit_count++;
        work->unit = unit;
        work->page = first / layout->split + (first % layout->split > unit->share);
        work->token = -1;
        return true;
    }
    work->unit = NULL;
    return false;
}

/* ---- Pages ---- */

/* The slot of page `index` of the unit's share. */
static int64_t slot_of(tl_context *tl, nn_work *work, const nn_unit *unit, int64_t index)
{
    const nn_cache_layout *layout = &work->plan->layout;
    if (!layout->is_paged)
        return unit->s.base + index;
    int64_t row = layout->table_columns / layout->split; /* columns of the share */
    if (work->slot_sequence != unit->s.index || index < work->slot_first ||
        index >= work->slot_first + work->slot_count) {
        bool is_early = work->early_slots.id != 0 && unit->s.index == 0 && index < NN_SLOT_WINDOW;
        work->slot_sequence = unit->s.index;
        work->slot_first = is_early ? 0 : index;
        work->slot_count = kb_min(NN_SLOT_WINDOW, row - work->slot_first);
        tl_tensor loaded = is_early ? work->early_slots
                                    : nn_load_slots(tl, layout, work->table, unit->s.index,
                                                    unit->share * row + index, work->slot_count);
        nn_read_slots(tl, loaded, work->slot_count, work->slots);
        if (is_early)
            work->early_slots = (tl_tensor){0};
    }
    return work->slots[index - work->slot_first];
}

/* The cached tokens of a page of the unit's share that are in the window: from, to. */
static bool range_of_page(const nn_cache_layout *layout, const nn_unit *unit, int64_t index,
                          int64_t *from, int64_t *to)
{
    int64_t start = (index * layout->split + unit->share) * layout->page_tokens;
    *from = kb_max(unit->begin - start, 0);
    *to = kb_min(unit->s.cached - start, layout->page_tokens);
    return *from < *to;
}

/* The next piece of the current unit; false if there is none. */
static bool next_piece(tl_context *tl, nn_work *work, nn_piece *piece)
{
    const nn_decode_plan *plan = work->plan;
    const nn_cache_layout *layout = &plan->layout;
    int64_t from, to, element = (int64_t)kb_dtype_bytes(layout->dtype);
    if (!range_of_page(layout, work->unit, work->page, &from, &to))
        return false;
    from = kb_max(from, work->token);
    int64_t tokens = kb_min(plan->piece_tokens, to - from);
    int64_t slot = slot_of(tl, work, work->unit, work->page);
    int64_t offset = nn_page_offset(layout, work->unit->kv_head, work->lane, slot);
    *piece = (nn_piece){.tokens = tokens,
                        .key_address = work->keys + offset + from * element,
                        .value_address = work->values + offset + from * layout->head_dim * element};
    work->token = from + tokens;
    if (work->token == to) {
        work->page++;
        work->token = -1;
    }
    return true;
}

bool nn_next_tile(tl_context *tl, nn_work *work, nn_tile *tile)
{
    const nn_decode_plan *plan = work->plan;
    const nn_cache_layout *layout = &plan->layout;
    bool is_first = work->unit == NULL;
    if (is_first && !next_unit(tl, work))
        return false;
    nn_unit *unit = work->unit;
    int64_t tokens = 0, from, to;
    tile->unit = unit;
    tile->count = 0;
    tile->is_first = is_first;
    while (tile->count < NN_TILE_PIECES && tokens < plan->tile_tokens &&
           next_piece(tl, work, &tile->pieces[tile->count]))
        tokens += tile->pieces[tile->count++].tokens;
    tile->is_last = !range_of_page(layout, unit, work->page, &from, &to);
    if (tile->is_first && unit->has_new)
        unit->new_slot =
            slot_of(tl, work, unit, unit->s.cached / layout->page_tokens / layout->split);
    if (tile->is_last)
        work->unit = NULL;
    return true;
}
