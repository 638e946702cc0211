/*
 * matmul_private.h: what the kernel of matrix products (matmul_kernel.c) shares with its sums over
 * ranks (rank_sums.c).
 */
#ifndef KB_TP_MATMUL_PRIVATE_H
#define KB_TP_MATMUL_PRIVATE_H

#include "state.h"

/* A PE in its team, and what it has to do. */
typedef struct member {
    const tp_matmul_plan *plan;
    tl_ptr x, w, bias, out;
    int64_t index, team;         /* which member, and of which rectangle */
    tp_rect rect;                /* of out: the team's */
    int64_t depth, depths;       /* of k */
    tl_tensor xs[TP_MAX_CHUNKS]; /* of x, by chunks of k; 0: not loaded */
} member;

/* A group of strips: the sums of this member. */
typedef struct group {
    tp_rect rect;  /* of out */
    int64_t first; /* strip of the rectangle */
    int64_t count; /* 0: there is none */
    tl_tensor sums[TP_MAX_STRIPS];
    tl_tensor odd; /* sums of odd chunks, if they were made apart */
} group;

/* A part of the product that is complete on this rank, on its way to the sum over ranks. */
typedef struct rank_piece {
    tp_rect at;                      /* of out */
    tl_tensor own;                   /* this rank's */
    tl_tensor others[TP_MAX_RANKS];  /* what other ranks have of this rank's share */
    tl_tensor results[TP_MAX_RANKS]; /* sums, by the rank that makes them */
} rank_piece;

/* Those of a group. A member has at most one part of each strip. */
typedef struct rank_batch {
    int64_t count;
    rank_piece pieces[TP_MAX_STRIPS];
} rank_batch;

/* Groups in the stages of the sum over ranks; see rank_sums.c. */
typedef struct rank_sums {
    rank_batch complete, scattered, gathered;
} rank_sums;

static inline kb_dtype tp_member_sum_dtype(const member *me)
{
    return tp_sum_dtype(me->plan->is.x, me->plan->is.w);
}

/* Adds the bias and rounds to the dtype of out. Uses up the sum, which has this dtype. */
tl_tensor tp_finish_sum(tl_context *tl, const member *me, const tp_rect *at, tl_tensor sum,
                        kb_dtype dtype);

/* Takes each group one stage further. False if there is none left. */
bool tp_advance_rank_sums(tl_context *tl, const member *me, rank_sums *sums);

#endif
