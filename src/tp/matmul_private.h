/*
 * matmul_private.h: what the files of the kernel of matrix products share.
 *
 *     matmul_kernel.c  a PE's part: x, weights, products, in which order
 *     norm.c           the RMSNorm of x
 *     team_sums.c      partial sums of the members of a team
 *     rank_sums.c      sums over ranks
 *     pace.c           teams that send sums to other ranks keep pace
 *     part.c           bias, gate, residual and rounding of what is complete
 */
#ifndef KB_TP_MATMUL_PRIVATE_H
#define KB_TP_MATMUL_PRIVATE_H

#include "state.h"

/* A part of out that is finished and not stored yet; see part.c. */
typedef struct held_part {
    tp_rect at;
    tl_tensor value; /* 0: none */
} held_part;

/* A PE in its team, and what it has to do. */
typedef struct member {
    const tp_matmul_plan *plan;
    tl_ptr x, w, bias, gain, residual, out;
    int64_t index, team;             /* which member, and of which rectangle */
    tp_rect rect;                    /* of out, counted in columns of w: the team's */
    int64_t depth, depths;           /* of k */
    tl_tensor xs[TP_MAX_CHUNKS];     /* of x, by chunks of k; 0: not loaded */
    tl_tensor gains[TP_MAX_CHUNKS];  /* of the norm */
    tl_tensor squares, last_squares; /* of the block's rows: see norm.c */
    held_part *held;
} member;

/* A group of strips: the sums of this member. */
typedef struct group {
    tp_rect rect;  /* of out, in columns of w */
    int64_t first; /* strip of the rectangle */
    int64_t count; /* 0: there is none */
    bool is_first; /* of the block of rows */
    bool is_last;
    tl_tensor scale; /* 1 / rms of the rows, if there is a norm */
    tl_tensor sums[TP_MAX_STRIPS];
    tl_tensor odd; /* sums of odd chunks, if they were made apart */
} group;

/* What is added to a part of the product. */
typedef struct part_operands {
    tl_tensor bias, residual; /* 0: none */
} part_operands;

/* A part of the product that is complete on this rank, on its way to the sum over ranks. */
typedef struct rank_piece {
    tp_rect at;                      /* of out, in columns of w */
    tl_tensor own;                   /* this rank's */
    part_operands operands;          /* of this rank's share */
    tl_tensor others[TP_MAX_RANKS];  /* what other ranks have of this rank's share */
    tl_tensor results[TP_MAX_RANKS]; /* sums, by the rank that makes them */
} rank_piece;

/* Those of a group. A member has at most one part of each strip. */
typedef struct rank_batch {
    int64_t count;
    rank_piece pieces[TP_MAX_STRIPS];
} rank_batch;

enum {
    TP_RANK_LAG = 2, /* groups from one stage of the sum over ranks to the next */
    TP_RANK_BATCHES = 2 * TP_RANK_LAG + 1
};

/* Groups in the stages of the sum over ranks; see rank_sums.c. */
typedef struct rank_sums {
    int64_t newest;
    rank_batch batches[TP_RANK_BATCHES]; /* in turn */
    int64_t marks;                       /* that were sent: see pace.c */
    tl_tensor mark;                      /* from another team */
} rank_sums;

static inline kb_dtype tp_member_sum_dtype(const member *me)
{
    return tp_sum_dtype(me->plan->is.x, me->plan->is.w);
}

/* ---- norm.c ---- */

/* x of a chunk times the gain. Uses up x. If these rows are new, notes their squares. */
tl_tensor tp_apply_gain(tl_context *tl, member *me, int64_t chunk, tl_tensor x, bool is_new);

/* 1 / rms of the rows whose squares were noted, from the squares of all members. */
tl_tensor tp_exchange_squares(tl_context *tl, member *me, int64_t rows);

/* ---- part.c ---- */

/* Loads what is added to a part: early, so that it is there when the sum is. */
part_operands tp_load_operands(tl_context *tl, const member *me, const tp_rect *at);

/* Adds bias and residual, applies the gate and rounds to the dtype of out. Uses up the sum, which
 * has this dtype, and the operands. */
tl_tensor tp_finish_part(tl_context *tl, const member *me, tl_tensor sum, kb_dtype dtype,
                         const tp_rect *at, part_operands *operands);

/* Stores a part that is finished, and uses it up. A small part of a sum over ranks that goes to
 * a matrix by cube is held until the next one is there. */
void tp_store_part(tl_context *tl, const member *me, const tp_rect *at, tl_tensor value);

/* Stores what is held. */
void tp_flush_parts(tl_context *tl, const member *me);

/* Where a part is in out: with a gate, each pair of columns is one. */
tp_rect tp_out_rect(const member *me, const tp_rect *at);

/* ---- team_sums.c ---- */

/* Columns of one strip of a group. */
tp_rect tp_strip_of(const member *me, const group *g, int64_t strip);

/* Exchanges the sums of the group in the team, and stores what is this member's, or hands it to the
 * sums over ranks. Then the group is empty. */
void tp_finish_group(tl_context *tl, const member *me, group *g, rank_batch *batch);

/* ---- rank_sums.c ---- */

/* Where the pieces of the next group go. */
rank_batch *tp_new_rank_batch(rank_sums *sums);

/* Takes each group one step further. False if there is none left. */
bool tp_advance_rank_sums(tl_context *tl, const member *me, rank_sums *sums);

/* ---- pace.c ---- */

/* Tells another team that the sums of this batch are there, and waits for what it was told itself
 * the last time. */
void tp_keep_pace(tl_context *tl, const member *me, rank_sums *sums, const rank_batch *batch);

/* The rounds that are left when the member has no groups left. */
void tp_end_pace(tl_context *tl, const member *me, rank_sums *sums);

#endif
