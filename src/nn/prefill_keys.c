/* prefill_keys.c: loads keys and values of a sequence from the pages of its cache, wherever these
 * are. */
#include "prefill.h"

#include "minmax.h"

/* ---- Slots of pages ---- */

int64_t nn_count_page_slots(const nn_prefill_plan *plan)
{
    const nn_cache_layout *is = &plan->cache;
    if (!is->is_paged)
        return 0;
    int64_t pages = plan->chunk / is->page_tokens + 2;
    return is->split * (pages / is->split + 2);
}

void nn_read_page_slots(tl_context *tl, const nn_cache_layout *is, tl_ptr table,
                        const nn_sequence *sequence, int64_t key, int64_t count,
                        nn_page_slots *slots)
{
    if (!is->is_paged)
        return;
    int64_t columns = is->table_columns / is->split;
    slots->first_row = key / is->page_tokens / is->split;
    slots->rows = (key + count - 1) / is->page_tokens / is->split - slots->first_row + 1;
    int64_t first = sequence->index * is->table_columns + slots->first_row;
    tl_tensor loaded =
        tl_load(table + first * (int64_t)sizeof(int32_t), tl_shape(is->split, slots->rows), TL_I32,
                .strides = tl_strides(columns, 1));
    nn_read_slots(tl, loaded, is->split * slots->rows, slots->slots);
}

static int64_t slot_of(const nn_cache_layout *is, const nn_page_slots *slots,
                       const nn_sequence *sequence, int64_t page)
{
    if (!is->is_paged)
        return nn_contiguous_slot(is, sequence, page);
    return slots->slots[page % is->split * slots->rows + page / is->split - slots->first_row];
}

/* ---- Loads ---- */

/* A part of the range that is in one page. */
typedef struct page_part {
    int64_t offset;       /* of the page, in the tensor */
    int64_t token, count; /* in the page */
} page_part;

static page_part find_part(const nn_cache_layout *is, const nn_page_slots *slots,
                           const nn_key_range *range, int64_t key)
{
    int64_t page = key / is->page_tokens, left = range->key + range->count - key;
    page_part part = {.token = key % is->page_tokens};
    part.count = nn_min(is->page_tokens - part.token, left);
    part.offset = nn_page_offset(is, range->kv_head, nn_lane_of_page(is, range->sequence, page),
                                 slot_of(is, slots, range->sequence, page));
    return part;
}

tl_tensor nn_load_keys(tl_context *tl, const nn_cache_layout *is, const nn_cache_tensors *tensors,
                       const nn_page_slots *slots, const nn_key_range *range)
{
    tp_joint across = {.axis = 1};
    int64_t bytes = (int64_t)kb_dtype_bytes(is->dtype);
    for (int64_t done = 0; done < range->count;) {
        page_part part = find_part(is, slots, range, range->key + done);
        tl_ptr at = tensors->keys + part.offset + part.token * bytes;
        tp_add_part(tl, &across,
                    tl_load(at, tl_shape(is->head_dim, part.count), is->dtype,
                            .strides = tl_strides(is->page_tokens, 1)));
        done += part.count;
    }
    return tp_join(tl, &across);
}

tl_tensor nn_load_values(tl_context *tl, const nn_cache_layout *is, const nn_cache_tensors *tensors,
                         const nn_page_slots *slots, const nn_key_range *range)
{
    tp_joint down = {.axis = 0};
    int64_t bytes = (int64_t)kb_dtype_bytes(is->dtype);
    for (int64_t done = 0; done < range->count;) {
        page_part part = find_part(is, slots, range, range->key + done);
        tl_ptr at = tensors->values + part.offset + part.token * is->head_dim * bytes;
        tp_add_part(tl, &down, tl_load(at, tl_shape(part.count, is->head_dim), is->dtype));
        done += part.count;
    }
    return tp_join(tl, &down);
}
