/*
 * decode.h: attention of one new token for each sequence. Private to nn.
 *
 *     decode.c         the host side: checks, plan, launch
 *     decode_kernel.c  a PE's part: tiles of keys, running maximum, sum and result
 *     decode_work.c    the tiles of a PE and their order
 *     decode_merge.c   merges results of PEs that share a sequence
 */
#ifndef KB_NN_DECODE_H
#define KB_NN_DECODE_H

#include "cache.h"
#include "lane_queues.h"
#include "rope.h"

/* Numbers only: plans are compared byte by byte. */
typedef struct nn_decode_plan {
    nn_cache_layout layout;
    tp_view qkv, out;
    int64_t window; /* 0: none */
    double scale;
    int64_t pairs; /* rotated pairs of a head */
    kb_rope_style style;
    int64_t piece_tokens;      /* of a piece, the maximum */
    int64_t tile_tokens;       /* of a tile, approximately */
    const nn_lane_name *names; /* directions to lanes */
} nn_decode_plan;

enum {
    NN_TILE_PIECES = 8, /* the maximum */
    NN_TILES_AHEAD = 3, /* maximum of tiles that are loaded ahead */
    NN_PIECES_AHEAD = 4,
    NN_UNITS = 8, /* in flight: more than tiles */
};

/* ---- Work ---- */

/* A part of a page: keys and values of some tokens, loaded and multiplied together. */
typedef struct nn_piece {
    int64_t tokens, key_address, value_address;
    tl_tensor keys, values, scores;
} nn_piece;

/* A sequence and kv head, with this PE's keys. */
typedef struct nn_unit {
    nn_sequence s;
    int64_t kv_head, share;
    int64_t begin;              /* the first key in the window */
    int64_t sharers, sharer;    /* PEs that have keys of it; the index of this PE among them */
    bool has_new;               /* the new token is in a page of this PE */
    int64_t new_slot;           /* the slot of that page */
    tl_tensor q, k, v;          /* loaded; q is then rotated and scaled */
    tl_tensor max, sum, result; /* running: (group, 1), (group, 1), (group, head_dim) */
} nn_unit;

/* Pieces of a unit with one maximum. A unit whose only key is the new one has a tile without
 * pieces. */
typedef struct nn_tile {
    nn_unit *unit;
    int64_t count;
    nn_piece pieces[NN_TILE_PIECES];
    bool is_first, is_last;
} nn_tile;

/* Slots of the table that a PE reads at a time. */
enum { NN_SLOT_WINDOW = 256 }; /* of the table, that a PE reads at a time */

/* Iterates over the tiles of a PE. */
typedef struct nn_work {
    const nn_decode_plan *plan;
    tl_ptr qkv, out, keys, values, records, table;
    int64_t pe, lane;
    /* Sequences: the loaded records, and the next one. */
    nn_sequence sequences[NN_RECORDS_AT_A_TIME];
    int64_t first, count, next;
    int64_t head_index; /* the next head of the PE for the current sequence */
    /* The current unit, the next page of its share, and the next token there. */
    nn_unit units[NN_UNITS];
    int64_t unit_count; /* units so far */
    nn_unit *unit;      /* NULL: none */
    int64_t page, token;
    /* Slots of pages of the unit's share, from `slot_first`. */
    int64_t slots[NN_SLOT_WINDOW];
    int64_t slot_sequence, slot_first, slot_count;
    /* If all lanes share the first sequence: its loads that do not depend on the record, issued
     * before that arrives. */
    nn_unit early; /* q, k and v */
    tl_tensor early_slots;
} nn_work;

void nn_begin_work(tl_context *tl, nn_work *work);

/* Loads the query heads of the unit, and the new key and value if the unit has them. */
void nn_load_token(tl_context *tl, nn_work *work, nn_unit *unit);

/* The next tile; false if there is none. The loads of its pieces, and of the unit's q, k and v, are
 * left to the caller. Stores zeros for sequences that are not active. */
bool nn_next_tile(tl_context *tl, nn_work *work, nn_tile *tile);

/* ---- Merge ---- */

/* The exchange of a unit's results between its sharers. */
typedef struct nn_merge {
    bool is_open;
    nn_unit unit;
    int64_t row, rows;               /* query heads that this PE merges */
    tl_tensor stats[NN_MAX_SPLIT];   /* by sharer: (rows, 2): maximum and sum */
    tl_tensor results[NN_MAX_SPLIT]; /* by sharer: (rows, head_dim) */
} nn_merge;

/* Posts receives, and sends maxima and sums, before the unit's result is complete. */
void nn_begin_merge(tl_context *tl, const nn_work *work, const nn_unit *unit, nn_merge *merge);

/* Sends the unit's result. */
void nn_send_results(tl_context *tl, const nn_work *work, const nn_unit *unit, nn_merge *merge);

/* Merges and stores the received results. Does nothing if the merge is not open. */
void nn_end_merge(tl_context *tl, const nn_work *work, nn_merge *merge);

/* Rounds and stores query heads of a unit, (rows, head_dim). Consumes the value. */
void nn_store_heads(tl_context *tl, const nn_work *work, const nn_unit *unit, int64_t row,
                    int64_t rows, tl_tensor result);

/* ---- The kernel ---- */

/* Without the plan, which is to be set as user pointer. */
kb_kernel nn_decode_kernel(void);

#endif
