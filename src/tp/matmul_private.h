/*
 * matmul_private.h: the parts of the matmul kernel.
 *
 *     matmul_kernel.c  a PE's part: the order of loads and products
 *     fused_norm.c     the RMSNorm of x
 *     team_sums.c      partial sums of the PEs of a team
 *     rank_sums.c      sums over ranks
 *     pace.c           synchronizes teams that send sums to other ranks
 *     epilogue.c       bias, gate, residual, rounding, store
 */
#ifndef KB_TP_MATMUL_PRIVATE_H
#define KB_TP_MATMUL_PRIVATE_H

#include "tp_state.h"

/* A finished part of out that is not stored yet; see epilogue.c. */
typedef struct held_part {
    tp_rect at;
    tl_tensor value; /* 0: none */
} held_part;

/* A PE of a team, with its part of the product. */
typedef struct team_pe {
    const tp_matmul_plan *plan;
    tl_ptr x, w, bias, gain, residual, out;
    int64_t index, team;             /* index in the team; number of the team */
    tp_rect rect;                    /* the team's rectangle of out, in columns of w */
    int64_t depth, depths;           /* this PE's part of k: begin and size */
    tl_tensor xs[TP_MAX_CHUNKS];     /* x by chunk of k; 0: not loaded */
    tl_tensor gains[TP_MAX_CHUNKS];  /* of the norm */
    tl_tensor squares, last_squares; /* of the block's rows: see fused_norm.c */
    held_part *held;
} team_pe;

/* A group of strips with the sums of this PE. */
typedef struct group {
    tp_rect rect;  /* of out, in columns of w */
    int64_t first; /* strip of the rectangle */
    int64_t count; /* of strips; 0: no group */
    bool is_first; /* of the block of rows */
    bool is_last;
    tl_tensor scale; /* 1 / rms of the rows, if there is a norm */
    tl_tensor sums[TP_MAX_STRIPS];
    tl_tensor odd; /* separate sums of odd chunks */
} group;

/* Operands that are added to a part of the product. */
typedef struct part_operands {
    tl_tensor bias, residual; /* 0: none */
} part_operands;

/* A part of the product that is complete on this rank, for the sum over ranks. */
typedef struct rank_piece {
    tp_rect at;                      /* of out, in columns of w */
    tl_tensor own;                   /* this rank's */
    part_operands operands;          /* of this rank's share */
    tl_tensor others[TP_MAX_RANKS];  /* this rank's share, from other ranks */
    tl_tensor results[TP_MAX_RANKS]; /* sums, by the rank that computes them */
} rank_piece;

/* The parts of a group. A PE has at most one part of each strip. */
typedef struct rank_batch {
    int64_t count;
    rank_piece pieces[TP_MAX_STRIPS];
} rank_batch;

enum {
    TP_RANK_LAG = 2, /* groups between stages of the sum over ranks */
    TP_RANK_BATCHES = 2 * TP_RANK_LAG + 1
};

/* Groups in the stages of the sum over ranks; see rank_sums.c. */
typedef struct rank_sums {
    int64_t newest;
    rank_batch batches[TP_RANK_BATCHES]; /* a circular buffer */
    int64_t marks;                       /* sent so far: see pace.c */
    tl_tensor mark;                      /* the receive from another team */
} rank_sums;

static inline kb_dtype tp_team_sum_dtype(const team_pe *me)
{
    return tp_sum_dtype(me->plan->problem.x, me->plan->problem.w);
}

/* ---- fused_norm.c ---- */

/* x of a chunk times the gain. Consumes x. If `is_new`, adds the squares of these rows. */
tl_tensor tp_apply_gain(tl_context *tl, team_pe *me, int64_t chunk, tl_tensor x, bool is_new);

/* 1 / rms of the rows, from the squares of all PEs of the team. */
tl_tensor tp_exchange_squares(tl_context *tl, team_pe *me, int64_t rows);

/* ---- epilogue.c ---- */

/* Loads the operands of a part early, so that they arrive before its sum is complete. */
part_operands tp_load_operands(tl_context *tl, const team_pe *me, const tp_rect *at);

/* Adds bias and residual, applies the gate, and rounds to the dtype of out. Consumes the sum, which
 * has `dtype`, and the operands. */
tl_tensor tp_finish_part(tl_context *tl, const team_pe *me, tl_tensor sum, kb_dtype dtype,
                         const tp_rect *at, part_operands *operands);

/* Stores a finished part and consumes it. A small part of a sum over ranks that goes to a matrix by
 * cube is held until the next part, and stored with it. */
void tp_store_part(tl_context *tl, const team_pe *me, const tp_rect *at, tl_tensor value);

/* Stores the held part. */
void tp_flush_parts(tl_context *tl, const team_pe *me);

/* The rectangle of a part in out: with a gate, a pair of columns is one. */
tp_rect tp_out_rect(const team_pe *me, const tp_rect *at);

/* ---- team_sums.c ---- */

/* The columns of one strip of a group. */
tp_rect tp_strip_of(const team_pe *me, const group *g, int64_t strip);

/* Exchanges the sums of the group in the team, and stores this PE's parts or passes them to the
 * sums over ranks. The group is empty afterwards. */
void tp_finish_group(tl_context *tl, const team_pe *me, group *g, rank_batch *batch);

/* ---- rank_sums.c ---- */

/* The batch for the pieces of the next group. */
rank_batch *tp_new_rank_batch(rank_sums *sums);

/* Advances each group by one stage. False if there is none left. */
bool tp_advance_rank_sums(tl_context *tl, const team_pe *me, rank_sums *sums);

/* ---- pace.c ---- */

/* Tells another team that the sums of this batch have arrived, and waits for the previous mark that
 * this team receives. */
void tp_keep_pace(tl_context *tl, const team_pe *me, rank_sums *sums, const rank_batch *batch);

/* The remaining rounds when the PE has no groups left. */
void tp_end_pace(tl_context *tl, const team_pe *me, rank_sums *sums);

#endif
