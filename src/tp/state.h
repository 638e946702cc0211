/*
 * state.h: what tensor parallel layers keep in a context. Private to tp.
 *
 *     view.c         matrices in any layout         plan.c        who computes what
 *     matmul.c       a matrix product, from host    matmul_kernel.c   and in the PEs
 *     relayout.c     copies between layouts         state.c       this state
 */
#ifndef KB_TP_STATE_H
#define KB_TP_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/kernbench.h>
#include <kernbench/tl.h>

#include "base/base.h"
#include "plan.h"
#include "rt/rt.h"
#include "view.h"

/* A matrix product that was planned. Kernels under way read it, so it lives as long as the context.
 */
typedef struct tp_matmul_plan {
    struct tp_matmul_plan *next;
    kb_kernel kernel; /* whose user is this plan */
    tp_view x, w, bias, out;
    bool has_bias;
    tp_problem is;
    tp_pe_params pe;
    tp_grid grid;
    tp_steps steps;
} tp_matmul_plan;

/* A copy between layouts that was planned; the same. */
typedef struct tp_relayout_plan {
    struct tp_relayout_plan *next;
    kb_kernel kernel;
    tp_view to, from, bias;
    bool has_bias;
    tp_rect at;                    /* of `to` */
    int64_t from_row, from_column; /* of the element that becomes the first one there */
    int64_t piece_bytes;           /* of the TCM, for a piece of it */
} tp_relayout_plan;

/* Queues between the members of all teams of a size on one device. */
typedef struct tp_team_queues {
    struct tp_team_queues *next;
    uint32_t sip;
    int64_t team;
    kb_queue_set set;
    bool installed;
} tp_team_queues;

typedef struct tp_state {
    kb_context *ctx;
    tp_matmul_plan *matmuls;
    tp_relayout_plan *relayouts;
    tp_team_queues *queues;
    kb_tensor *everywhere; /* by SIP: a byte at each of its PEs; 0 until it is needed */
} tp_state;

/* Made at the first call that needs it. */
KB_MUST_USE kb_error *tp_get_state(kb_context *ctx, tp_state **state);

/* A tensor that each PE of the device has: a launch with it runs on all of them. */
KB_MUST_USE kb_error *tp_get_everywhere(tp_state *state, uint32_t sip, kb_tensor *tensor);

/* Installed queues for teams of this size; {0} for teams of one. */
KB_MUST_USE kb_error *tp_get_team_queues(tp_state *state, uint32_t sip, int64_t team,
                                         kb_queue_set *set);

/* The name of the queue to a member of one's team. */
const char *tp_member_name(int64_t member);

/* ---- Kernels ---- */

/* Without a plan: that is their user. */
kb_kernel tp_matmul_kernel(void);
kb_kernel tp_relayout_kernel(void);

/* The dtype that sums of products are made in. */
kb_dtype tp_sum_dtype(kb_dtype x, kb_dtype w);

/* The value in another dtype; itself if it has that. If it is another one, x is freed. */
tl_tensor tp_cast(tl_context *tl, tl_tensor x, kb_dtype from, kb_dtype to);

#endif
