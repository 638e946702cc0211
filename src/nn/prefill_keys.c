/* prefill_keys.c: loads keys and values of a sequence from the pages of its cache, on any PE of the
 * device. */
#include "prefill.h"

/* ---- Slots of pages ---- */

int64_t nn_count_page_slots(const nn_prefill_plan *plan)
{
    const nn_cache_layout *layout = &plan->cache;
    if (!layout->is_paged)
        return 0;
    int64_t pages = plan->chunk / layout->page_tokens + 2;
    return layout->split * (pages / layout->split + 2);
}

void nn_read_page_slots(tl_context *tl, const nn_cache_layout *layout, tl_ptr table,
                        const nn_sequence *sequence, int64_t key, int64_t count,
                        nn_page_slots *slots)
{
    if (!layout->is_paged)
        return;
    int64_t columns = layout->table_columns / layout->split;
    slots->first_row = key / layout->page_tokens / layout->split;
    slots->rows = (key + count - 1) / layout->page_tokens / layout->split - slots->first_row + 1;
    int64_t first = sequence->index * layout->table_columns + slots->first_row;
    tl_tensor loaded =
        tl_load(table + first * (int64_t)sizeof(int32_t), tl_shape(layout->split, slots->rows),
                TL_I32, .strides = tl_strides(columns, 1));
    nn_read_slots(tl, loaded, layout->split * slots->rows, slots->slots);
}

static int64_t slot_of(const nn_cache_layout *layout, const nn_page_slots *slots,
                       const nn_sequence *sequence, int64_t page)
{
    if (!layout->is_paged)
        return nn_contiguous_slot(layout, sequence, page);
    return slots
        ->slots[page % layout->split * slots->rows + page / layout->split - slots->first_row];
}

/* ---- Loads ---- */

/* The part of the range in one page. */
typedef struct page_part {
    int64_t offset;       /* of the page, in the tensor */
    int64_t token, count; /* in the page */
} page_part;

static page_part find_part(const nn_cache_layout *layout, const nn_page_slots *slots,
                           const nn_key_range *range, int64_t key)
{
    int64_t page = key / layout->page_tokens, left = range->key + range->count - key;
    page_part part = {.token = key % layout->page_tokens};
    part.count = kb_min(layout->page_tokens - part.token, left);
    part.offset =
        nn_page_offset(layout, range->kv_head, nn_lane_of_page(layout, range->sequence, page),
                       slot_of(layout, slots, range->sequence, page));
    return part;
}

tl_tensor nn_load_keys(tl_context *tl, const nn_cache_layout *layout,
                       const nn_cache_tensors *tensors, const nn_page_slots *slots,
                       const nn_key_range *range)
{
    tp_concat across = {.axis = 1};
    int64_t bytes = (int64_t)kb_dtype_bytes(layout->dtype);
    for (int64_t done = 0; done < range->count;) {
        page_part part = find_part(layout, slots, range, range->key + done);
        tl_ptr at = tensors->keys + part.offset + part.token * bytes;
        tp_concat_add(tl, &across,
                      tl_load(at, tl_shape(layout->head_dim, part.count), layout->dtype,
                              .strides = tl_strides(layout->page_tokens, 1)));
        done += part.count;
    }
    return tp_concat_finish(tl, &across);
}

tl_tensor nn_load_values(tl_context *tl, const nn_cache_layout *layout,
                         const nn_cache_tensors *tensors, const nn_page_slots *slots,
                         const nn_key_range *range)
{
    tp_concat down = {.axis = 0};
    int64_t bytes = (int64_t)kb_dtype_bytes(layout->dtype);
    for (int64_t done = 0; done < range->count;) {
        page_part part = find_part(layout, slots, range, range->key + done);
        tl_ptr at = tensors->values + part.offset + part.token * layout->head_dim * bytes;
        tp_concat_add(tl, &down,
                      tl_load(at, tl_shape(part.count, layout->head_dim), layout->dtype));
        done += part.count;
    }
    return tp_concat_finish(tl, &down);
}
