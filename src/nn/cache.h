/*
 * cache.h: the layout of keys and values, for the kernels of attention. Private to nn.
 *
 * The PEs of a device are numbered by (cube, pe). Each kv head has `lanes` consecutive PEs; if
 * there are fewer PEs than heads, head h is on PE h % pes. A sequence has `split` lanes of each
 * head, from lane `first`; page t of its keys is on lane (first + t % split) % lanes:
 *
 *     lanes 4, split 2, first 2:    lane   0   1   2   3
 *                                   page   -   -   0   1
 *                                          -   -   2   3
 *
 * If the split divides the lanes, `first` is a multiple of it; so if all lanes share a sequence, it
 * is 0. A page is in a *slot* of the lane's memory: base + t / split, or the number in the table.
 * The slot is the same for all heads. K pages are (head_dim, page_tokens), V pages (page_tokens,
 * head_dim).
 *
 * Kernels read index tensors with a copy on each PE: a record for each sequence, and its row of the
 * table.
 */
#ifndef KB_NN_CACHE_H
#define KB_NN_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include <kernbench/attention.h>
#include <kernbench/kernbench.h>
#include <kernbench/tl.h>

#include "base/base.h"
#include "tp/tp.h"

enum { NN_MAX_SPLIT = 64 };

/* The constants of a cache. Kernels have a copy in their plan. */
typedef struct nn_cache_layout {
    int64_t batch, capacity;
    int64_t heads, kv_heads, head_dim;
    int64_t group;              /* query heads of a kv head */
    int64_t pes, pes_of_cube;   /* per device; per cube */
    int64_t lanes, split;       /* PEs of a kv head; PEs that share a sequence and head */
    int64_t heads_of_pe;        /* the maximum */
    int64_t page_tokens, slots; /* slots: per PE and head */
    int64_t table_columns;      /* maximum pages of a sequence, a multiple of `split` */
    kb_dtype dtype;
    bool is_paged;
} nn_cache_layout;

/* The columns of the records. */
typedef enum nn_record_column {
    NN_CACHED, /* tokens in the cache before the call */
    NN_ADDED,  /* tokens that the call adds */
    NN_FIRST,  /* lane of the first page */
    NN_BASE,   /* slot of the first page; contiguous caches only */
    NN_RECORD
} nn_record_column;

/* A sequence as kernels read it. */
typedef struct nn_sequence {
    int64_t index; /* in the batch */
    int64_t cached, added, first, base;
} nn_sequence;

/* The direction to a lane. */
typedef char nn_lane_name[8];

/* A cache on the host. Kernels have a copy of the layout in their plans. */
typedef struct nn_cache {
    char *name;
    uint32_t sip;
    uint32_t layers;
    nn_cache_layout layout;
    kb_rope rope;
    kb_access access;
    kb_tensor *keys, *values; /* by layer: (pes * heads_of_pe * slots * rows of a page, columns) */
    kb_tensor records, table; /* I32: (batch, NN_RECORD), (batch, table_columns); {0}: contiguous */
    int32_t *record_values, *table_values; /* contents of these */
    kb_kv_cache_info info;
    kb_queue_set queues;            /* between lanes; {0}: no sequence is split */
    const nn_lane_name *lane_names; /* directions by lane */
} nn_cache;

/* The cache of the handle. If it is invalid: an error with the function's name. */
KB_MUST_USE kb_error *nn_find_cache(kb_context *ctx, const char *function, kb_kv_cache handle,
                                    nn_cache **cache);

/* ---- Addresses, on the host and in kernels ---- */

static inline int64_t nn_pages_of(const nn_cache_layout *layout, int64_t tokens)
{
    return tl_cdiv(tokens, layout->page_tokens);
}

/* The PE of a lane of a kv head. */
static inline int64_t nn_pe_of(const nn_cache_layout *layout, int64_t kv_head, int64_t lane)
{
    return layout->heads_of_pe > 1 ? kv_head % layout->pes : kv_head * layout->lanes + lane;
}

/* The kv head at an index among those of the PE; -1: none. */
static inline int64_t nn_head_at(const nn_cache_layout *layout, int64_t pe, int64_t head_index)
{
    int64_t head = layout->heads_of_pe > 1 ? head_index * layout->pes + pe : pe / layout->lanes;
    return head < layout->kv_heads ? head : -1;
}

/* The lane of a PE, in all of its heads. */
static inline int64_t nn_lane_of_pe(const nn_cache_layout *layout, int64_t pe)
{
    return layout->heads_of_pe > 1 ? 0 : pe % layout->lanes;
}

/* The index of a lane among the `split` lanes of the sequence; -1: none of them. Its pages are
 * index, index + split, ... */
static inline int64_t nn_share_of_lane(const nn_cache_layout *layout, const nn_sequence *s,
                                       int64_t lane)
{
    int64_t share = (lane - s->first + layout->lanes) % layout->lanes;
    return share < layout->split ? share : -1;
}

static inline int64_t nn_lane_of_page(const nn_cache_layout *layout, const nn_sequence *s,
                                      int64_t page)
{
    return (s->first + page % layout->split) % layout->lanes;
}

/* The slot of a page of a contiguous cache. */
static inline int64_t nn_contiguous_slot(const nn_cache_layout *layout, const nn_sequence *s,
                                         int64_t page)
{
    return s->base + page / layout->split;
}

/* The column of the table with the slot of a page. Pages of a lane are consecutive. */
static inline int64_t nn_table_column(const nn_cache_layout *layout, int64_t page)
{
    return page % layout->split * (layout->table_columns / layout->split) + page / layout->split;
}

/* The number of a page in the tensors of keys and values. */
static inline int64_t nn_page_number(const nn_cache_layout *layout, int64_t kv_head, int64_t lane,
                                     int64_t slot)
{
    int64_t head_index = layout->heads_of_pe > 1 ? kv_head / layout->pes : 0;
    return (nn_pe_of(layout, kv_head, lane) * layout->heads_of_pe + head_index) * layout->slots +
           slot;
}

/* The offset of its first byte in the tensor. */
static inline int64_t nn_page_offset(const nn_cache_layout *layout, int64_t kv_head, int64_t lane,
                                     int64_t slot)
{
    return nn_page_number(layout, kv_head, lane, slot) * layout->page_tokens * layout->head_dim *
           (int64_t)kb_dtype_bytes(layout->dtype);
}

/* ---- In kernels ---- */

/* The maximum of records, and of slots of the table, that a kernel reads at a time. */
enum { NN_RECORDS_AT_A_TIME = 64, NN_SLOTS_AT_A_TIME = 1024 };

/* Issue the loads of records and slots. */
tl_tensor nn_load_records(tl_context *tl, tl_ptr records, int64_t first, int64_t count);
tl_tensor nn_load_slots(tl_context *tl, const nn_cache_layout *layout, tl_ptr table,
                        int64_t sequence, int64_t column, int64_t count);

/* Waits for the loads and reads `count` sequences from `first`. Frees the value. */
void nn_read_records(tl_context *tl, tl_tensor loaded, int64_t first, int64_t count,
                     nn_sequence *sequences);

/* The same for slots of the table. */
void nn_read_slots(tl_context *tl, tl_tensor loaded, int64_t count, int64_t *slots);

#endif
