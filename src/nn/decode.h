/*
 * decode.h: attention of one new token for each sequence. Private to nn.
 *
 *     decode.c         host: checks, plan, launch
 *     decode_kernel.c  a PE's part: tiles of keys, running maximum, sum and result
 *     decode_work.c    which tiles a PE has, in which order
 *     decode_merge.c   results of PEs that share a sequence
 */
#ifndef KB_NN_DECODE_H
#define KB_NN_DECODE_H

#include "cache.h"
#include "lane_queues.h"
#include "rope.h"

/* What kernels know besides their arguments. Compared byte by byte. */
typedef struct nn_decode_plan {
    nn_cache_layout is;
    tp_view qkv, out;
    int64_t window; /* 0: none */
    double scale;
    int64_t pairs; /* that are rotated */
    kb_rope_style style;
    int64_t piece_tokens;      /* of a page, that are loaded and multiplied at a time, at most */
    int64_t tile_tokens;       /* that have one maximum, about */
    const nn_lane_name *names; /* of queues to lanes */
} nn_decode_plan;

enum {
    NN_TILE_PIECES = 8, /* at most */
    NN_TILES_AHEAD = 3, /* that are loaded before they are needed, at most */
    NN_PIECES_AHEAD = 4,
    NN_UNITS = 8, /* that are under way: more than tiles */
};

/* ---- Work ---- */

/* A part of a page: keys and values of some tokens. */
typedef struct nn_piece {
    int64_t tokens, key_address, value_address;
    tl_tensor keys, values, scores;
} nn_piece;

/* A sequence and kv head, as far as this PE has its keys. */
typedef struct nn_unit {
    nn_sequence s;
    int64_t kv_head, share;
    int64_t begin;              /* the first key that is seen */
    int64_t members, member;    /* PEs that have keys of it, and which of them this one is */
    bool has_new;               /* the new token is in a page of this PE */
    int64_t new_slot;           /* of that page */
    tl_tensor q, k, v;          /* loaded; q is then rotated and scaled */
    tl_tensor max, sum, result; /* running: (group, 1), (group, 1), (group, head_dim) */
} nn_unit;

/* Pieces of a unit. A unit whose only key is the new one has a tile without pieces. */
typedef struct nn_tile {
    nn_unit *unit;
    int64_t count;
    nn_piece pieces[NN_TILE_PIECES];
    bool is_first, is_last;
} nn_tile;

enum { NN_SLOT_WINDOW = 256 }; /* of the table, that a PE reads at a time */

/* Goes through the tiles of a PE. */
typedef struct nn_work {
    const nn_decode_plan *plan;
    tl_ptr qkv, out, keys, values, records, table;
    int64_t pe, lane;
    /* Sequences: some of the records, and the next of these. */
    nn_sequence sequences[NN_RECORDS_AT_A_TIME];
    int64_t first, count, next;
    int64_t place; /* the next head of the PE for the sequence in hand */
    /* The unit in hand, and its next page (a number of its share) and token there. */
    nn_unit units[NN_UNITS];
    int64_t unit_count; /* so far */
    nn_unit *unit;      /* NULL: none */
    int64_t page, token;
    /* Slots of pages of the unit's share, from `slot_first` on. */
    int64_t slots[NN_SLOT_WINDOW];
    int64_t slot_sequence, slot_first, slot_count;
    /* What the first sequence is sure to need, if it is shared by all lanes: loaded before its
     * record is there. */
    nn_unit early; /* q, k and v */
    tl_tensor early_slots;
} nn_work;

void nn_begin_work(tl_context *tl, nn_work *work);

/* Loads the unit's query heads and, if it has it, the new key and value. */
void nn_load_token(tl_context *tl, nn_work *work, nn_unit *unit);

/* The next tile; false if there is none. Its pieces are not loaded, the unit's q, k and v neither.
 * Rows of sequences that are not active are stored on the way. */
bool nn_next_tile(tl_context *tl, nn_work *work, nn_tile *tile);

/* ---- Merging ---- */

/* Results of a unit that are under way between its members. */
typedef struct nn_merge {
    bool is_open;
    nn_unit unit;
    int64_t row, rows;               /* query heads that this PE merges */
    tl_tensor stats[NN_MAX_SPLIT];   /* (rows, 2): maximum and sum, by member */
    tl_tensor results[NN_MAX_SPLIT]; /* (rows, head_dim) */
} nn_merge;

/* Posts receives, and sends maxima and sums: before the unit's result is complete. */
void nn_begin_merge(tl_context *tl, const nn_work *work, const nn_unit *unit, nn_merge *merge);

/* Sends the result, which is the unit's. */
void nn_send_results(tl_context *tl, const nn_work *work, const nn_unit *unit, nn_merge *merge);

/* Merges what was received, and stores it. Nothing if the merge is not open. */
void nn_end_merge(tl_context *tl, const nn_work *work, nn_merge *merge);

/* Rounds query heads of a unit, (rows, head_dim), and stores them. Uses up the value. */
void nn_store_heads(tl_context *tl, const nn_work *work, const nn_unit *unit, int64_t row,
                    int64_t rows, tl_tensor result);

/* ---- The kernel ---- */

/* Without a plan: that is its user. */
kb_kernel nn_decode_kernel(void);

#endif
