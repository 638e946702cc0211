/*
 * cache.h: where keys and values are, for the kernels of attention. Private to nn.
 *
 * The PEs of a device are numbered by (cube, pe). Each kv head has `lanes` PEs that follow each
 * other; if there are fewer PEs than heads, head h is at PE h % pes. A sequence has `split` lanes
 * of each head, from lane first on; page t of its keys is at lane (first + t % split) % lanes:
 *
 *     lanes 4, split 2, first 2:    lane   0   1   2   3
 *                                   page   -   -   0   1
 *                                          -   -   2   3
 *
 * If the split divides the lanes, `first` is a multiple of it; so if all lanes share a sequence, it
 * is 0. A page is in a *slot* of the lane's memory: base + t / split, or what the table says. All
 * heads have it in the same slot. K pages are (head_dim, page_tokens), V pages (page_tokens,
 * head_dim).
 *
 * Index tensors with a copy at each PE say what a kernel has to know: a record for each sequence,
 * and its row of the table.
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

/* Numbers that do not change. Kernels have a copy in their plan. */
typedef struct nn_cache_layout {
    int64_t batch, capacity;
    int64_t heads, kv_heads, head_dim;
    int64_t group;              /* query heads of a kv head */
    int64_t pes, pes_of_cube;   /* of the device; of a cube */
    int64_t lanes, split;       /* PEs of a kv head; PEs of these that share a sequence */
    int64_t heads_of_pe;        /* at most */
    int64_t page_tokens, slots; /* slots: of a PE, for each of its heads */
    int64_t table_columns;      /* pages that a sequence may have, a multiple of `split` */
    kb_dtype dtype;
    bool is_paged;
} nn_cache_layout;

/* The columns of the records. */
typedef enum nn_record_column {
    NN_CACHED, /* tokens in the cache before the call */
    NN_ADDED,  /* tokens that the call adds */
    NN_FIRST,  /* lane of the first page */
    NN_BASE,   /* slot of the first page, if it is contiguous */
    NN_RECORD
} nn_record_column;

/* A sequence as kernels read it. */
typedef struct nn_sequence {
    int64_t index; /* in the batch */
    int64_t cached, added, first, base;
} nn_sequence;

/* The name of a queue to a lane. */
typedef char nn_lane_name[8];

/* The cache of the host. Kernels do not use it: their plans have a copy of the layout. */
typedef struct nn_cache {
    char *name;
    uint32_t sip;
    uint32_t layers;
    nn_cache_layout is;
    kb_rope rope;
    kb_access access;
    kb_tensor *keys, *values; /* by layer: (pes * heads_of_pe * slots * rows of a page, columns) */
    kb_tensor records, table; /* I32: (batch, NN_RECORD), (batch, table_columns); {0}: contiguous */
    int32_t *record_values, *table_values; /* what these have */
    kb_kv_cache_info info;
    kb_queue_set queues;            /* between lanes; {0}: no sequence is split */
    const nn_lane_name *lane_names; /* of the queue to each lane */
} nn_cache;

/* The cache of the handle. An error that begins with the function's name if it is invalid. */
KB_MUST_USE kb_error *nn_find_cache(kb_context *ctx, const char *function, kb_kv_cache handle,
                                    nn_cache **cache);

/* ---- Addresses: for hosts and kernels ---- */

static inline int64_t nn_pages_of(const nn_cache_layout *is, int64_t tokens)
{
    return tl_cdiv(tokens, is->page_tokens);
}

/* The PE of a lane of a kv head, and which of the PE's heads that is. */
static inline int64_t nn_pe_of(const nn_cache_layout *is, int64_t kv_head, int64_t lane)
{
    return is->heads_of_pe > 1 ? kv_head % is->pes : kv_head * is->lanes + lane;
}

/* The head that the PE has at that place of its heads; -1: none. */
static inline int64_t nn_head_at(const nn_cache_layout *is, int64_t pe, int64_t place)
{
    int64_t head = is->heads_of_pe > 1 ? place * is->pes + pe : pe / is->lanes;
    return head < is->kv_heads ? head : -1;
}

/* The lane of a PE in its heads. */
static inline int64_t nn_lane_of_pe(const nn_cache_layout *is, int64_t pe)
{
    return is->heads_of_pe > 1 ? 0 : pe % is->lanes;
}

/* Which of the sequence's `split` lanes a lane is; -1: none of them. Its pages are this one, this
 * one + split, .. */
static inline int64_t nn_share_of_lane(const nn_cache_layout *is, const nn_sequence *s,
                                       int64_t lane)
{
    int64_t share = (lane - s->first + is->lanes) % is->lanes;
    return share < is->split ? share : -1;
}

static inline int64_t nn_lane_of_page(const nn_cache_layout *is, const nn_sequence *s, int64_t page)
{
    return (s->first + page % is->split) % is->lanes;
}

/* The slot of a page of a contiguous cache. */
static inline int64_t nn_contiguous_slot(const nn_cache_layout *is, const nn_sequence *s,
                                         int64_t page)
{
    return s->base + page / is->split;
}

/* Where the table has the slot of a page, in the row of the sequence: pages of a lane follow each
 * other. */
static inline int64_t nn_table_column(const nn_cache_layout *is, int64_t page)
{
    return page % is->split * (is->table_columns / is->split) + page / is->split;
}

/* The number of a page in the tensor of keys, and in that of values. */
static inline int64_t nn_page_number(const nn_cache_layout *is, int64_t kv_head, int64_t lane,
                                     int64_t slot)
{
    int64_t place = is->heads_of_pe > 1 ? kv_head / is->pes : 0;
    return (nn_pe_of(is, kv_head, lane) * is->heads_of_pe + place) * is->slots + slot;
}

/* Its first byte, counted from the tensor's. */
static inline int64_t nn_page_offset(const nn_cache_layout *is, int64_t kv_head, int64_t lane,
                                     int64_t slot)
{
    return nn_page_number(is, kv_head, lane, slot) * is->page_tokens * is->head_dim *
           (int64_t)kb_dtype_bytes(is->dtype);
}

/* ---- In kernels ---- */

/* Sequences whose records a kernel reads at a time, at most; and slots of the table. */
enum { NN_RECORDS_AT_A_TIME = 64, NN_SLOTS_AT_A_TIME = 1024 };

/* Loads of the two, which can be issued before either is read. */
tl_tensor nn_load_records(tl_context *tl, tl_ptr records, int64_t first, int64_t count);
tl_tensor nn_load_slots(tl_context *tl, const nn_cache_layout *is, tl_ptr table, int64_t sequence,
                        int64_t column, int64_t count);

/* Waits for what was loaded and reads it: `count` sequences from `first` on. Frees the value. */
void nn_read_records(tl_context *tl, tl_tensor loaded, int64_t first, int64_t count,
                     nn_sequence *sequences);

/* The same of slots of the table. */
void nn_read_slots(tl_context *tl, tl_tensor loaded, int64_t count, int64_t *slots);

#endif
