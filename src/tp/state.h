/*
 * state.h: what tensor parallel layers keep in a context. Private to tp.
 *
 *     groups.c         which ranks work together
 *     layers.c         making layers, and their tensors
 *     linear.c         linear layers: forward
 *     embedding.c      a table that is cut by rows
 *     cross_entropy.c  the loss of logits that are cut by columns
 *     regions.c        between replicated tensors and those that are cut by columns
 *     matmul.c         a matrix product of a device: host
 *     matmul_kernel.c  the same in its PEs; matmul_private.h lists the files around it
 *     match.c          compares what the ranks multiply
 *     plan.c           who computes what, in which steps
 *     queues.c         queue sets that the context keeps
 *     relayout.c       copies between layouts
 *     view.c           matrices in any layout
 *     state.c          this state
 */
#ifndef KB_TP_STATE_H
#define KB_TP_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/kernbench.h>
#include <kernbench/tl.h>

#include "base/base.h"
#include "device.h"
#include "plan.h"
#include "queues.h"
#include "rt/rt.h"
#include "view.h"

/* A matrix product that was planned. Kernels under way read it, so it lives as long as the context.
 */
typedef struct tp_matmul_plan {
    struct tp_matmul_plan *next;
    kb_kernel kernel; /* whose user is this plan */
    tp_view x, w, bias, gain, residual, out;
    bool has_bias, has_gain, has_residual;
    double eps; /* of the norm */
    tp_problem is;
    tp_pe_params pe;
    tp_grid grid;
    tp_steps steps;
    int64_t x_column;    /* of x: the first one that is used */
    int64_t rank, ranks; /* whose sums are added up; 1 rank: they are not */
    int64_t chunks;      /* in which that is done */
    int64_t paced;       /* groups after which teams tell each other; 0: they do not */
    kb_dtype sum_dtype;  /* of what they send */
} tp_matmul_plan;

/* A copy between layouts that was planned; the same. */
typedef struct tp_relayout_plan {
    struct tp_relayout_plan *next;
    kb_kernel kernel;
    tp_view to, from, bias;
    bool has_bias;
    tp_rect at;                    /* of `to` */
    int64_t from_row, from_column; /* of the element that becomes the first one there */
    int64_t fold;                  /* columns of `to` that are side by side in `from` */
    int64_t piece_bytes;           /* of the TCM, for a piece of it */
} tp_relayout_plan;

/* A table of embeddings and the tokens of a call; the same. */
typedef struct tp_embedding_plan {
    struct tp_embedding_plan *next;
    kb_kernel kernel;
    tp_view table, out;
    int64_t first_token; /* of the rank */
    int64_t cubes, pes;  /* of the device; of a cube */
} tp_embedding_plan;

/* A step of the cross-entropy; the same. */
typedef enum tp_row_step { TP_ROW_MAX, TP_ROW_SUM_EXP, TP_ROW_PREDICT, TP_ROW_LOSS } tp_row_step;
typedef struct tp_row_plan {
    struct tp_row_plan *next;
    kb_kernel kernel;
    tp_row_step step;
    tp_view logits;
    int64_t rows;
    int64_t first_column; /* of the rank, in the vocabulary */
    int64_t piece;        /* columns at a time */
    int64_t cubes, pes;
} tp_row_plan;

/* A rank, in its groups. */
typedef struct tp_rank {
    uint32_t size, index; /* tensor parallel; 0: not initialised */
    uint32_t first;       /* rank of the tensor parallel group, in the process group */
    uint32_t data_size, data_index;
    kb_group tensor_group, data_group;
} tp_rank;

typedef struct tp_layer tp_layer;
typedef struct tp_queues tp_queues;
typedef struct tp_matched_ranks tp_matched_ranks;

struct tp_state {
    kb_context *ctx;
    tp_rank *ranks; /* by rank of the process group */
    uint32_t rank_count;
    KB_VEC(tp_layer *) layers; /* by their numbers, from 1; NULL: freed */
    tp_matmul_plan *matmuls;
    tp_relayout_plan *relayouts;
    tp_embedding_plan *embeddings;
    tp_row_plan *row_steps;
    tp_queues *queues; /* see queues.c */
    tp_matched_ranks *matched;
    kb_tensor *everywhere; /* by SIP: a byte at each of its PEs; 0 until it is needed */
};

/*
 * Installed queues for teams of this size on `sips` devices; {0} if none are needed. They connect
 * the members of each team and, if there are several devices, the PEs of the same index on these.
 */
KB_MUST_USE kb_error *tp_get_team_queues(tp_state *state, uint32_t sip, uint32_t sips, int64_t team,
                                         kb_queue_set *set);

/* The name of the queue to a member of one's team, to another rank, and to another team. */
const char *tp_member_name(int64_t member);
const char *tp_rank_name(int64_t rank);
const char *tp_pace_name(int64_t round);

/* After how many rounds each of as many teams has heard of all: see pace.c. */
int64_t tp_pace_rounds(int64_t teams);

/* The round whose queue leads back to the team that a mark of this round comes from: two PEs have
 * one queue, in both directions. If there is none, the round itself. */
int64_t tp_pace_back(int64_t teams, int64_t round);

/* ---- queues.c ---- */

/* Workers have ended: sets whose installation failed are not used, or workers would wait for it. */
void tp_retire_queues(tp_state *state);
void tp_free_queues(tp_state *state);

/* ---- groups.c ---- */

/* The caller's; an error that names the function if model parallelism is not initialised. */
KB_MUST_USE kb_error *tp_get_rank(kb_context *ctx, const char *function, tp_rank *entry);

/* ---- layers.c ---- */

/* All that are left, when the context goes. */
void tp_free_layers(tp_state *state);

/* ---- match.c ---- */

/* The caller is about to launch a product whose sums go over several ranks; its device. An error if
 * another rank multiplies something else. */
KB_MUST_USE kb_error *tp_match_ranks(tp_state *state, uint32_t sip, const tp_matmul_plan *plan);

/* Workers have ended: the next ones begin with their first call. */
void tp_forget_calls(tp_state *state);
void tp_free_matched_ranks(tp_state *state);

/* ---- Kernels ---- */

/* Without a plan: that is their user. */
kb_kernel tp_matmul_kernel(void);
kb_kernel tp_relayout_kernel(void);

/* The dtype that sums of products are made in. */
kb_dtype tp_sum_dtype(kb_dtype x, kb_dtype w);

#endif
