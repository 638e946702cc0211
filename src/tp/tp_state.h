/*
 * tp_state.h: the state of tensor parallel layers in a context. Private to tp.
 *
 *     parallel_groups.c         tensor and data parallel groups
 *     layers.c         layers and their tensors
 *     linear.c         linear layers
 *     embedding.c      a table that is split by rows
 *     cross_entropy.c  the loss of logits that are split by columns
 *     regions.c        conversions between replicated tensors and split ones
 *     matmul.c         a matrix product of a device: the host side
 *     matmul_kernel.c  its kernel; matmul_private.h lists the other files of the kernel
 *     division.c       how it is divided among PEs, and in which steps
 *     match.c          compares the products of the ranks
 *     queue_cache.c    queue sets that the context keeps
 *     relayout.c       copies between layouts
 *     matrix_view.c    tensors as matrices, in any layout
 *     tp_state.c       this state
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
#include "division.h"
#include "matrix_view.h"
#include "queue_cache.h"
#include "rt/rt.h"

/* A planned matrix product. Running kernels read it, so it lives as long as the context. */
typedef struct tp_matmul_plan {
    struct tp_matmul_plan *next;
    kb_kernel kernel; /* with this plan as its user pointer */
    tp_view x, w, bias, gain, residual, out;
    bool has_bias, has_gain, has_residual;
    double eps; /* of the norm */
    tp_problem problem;
    tp_pe_params pe;
    tp_grid grid;
    tp_steps steps;
    int64_t x_column;    /* of x: the first one that is used */
    int64_t rank, ranks; /* of the sum over ranks; 1 rank: none */
    int64_t chunks;      /* of the sum over ranks */
    int64_t paced;       /* groups with a round of the barrier of teams; 0: no barrier */
    kb_dtype sum_dtype;  /* of values sent to other ranks */
} tp_matmul_plan;

/* A planned copy between layouts. */
typedef struct tp_relayout_plan {
    struct tp_relayout_plan *next;
    kb_kernel kernel;
    tp_view to, from, bias;
    bool has_bias;
    tp_rect at;                    /* of `to` */
    int64_t from_row, from_column; /* of the element that becomes the first one there */
    int64_t fold;                  /* columns of `to` that are side by side in `from` */
    int64_t piece_bytes;           /* TCM bytes for one piece */
} tp_relayout_plan;

/* A planned look-up in a table of embeddings. */
typedef struct tp_embedding_plan {
    struct tp_embedding_plan *next;
    kb_kernel kernel;
    tp_view table, out;
    int64_t first_token; /* of the rank */
    int64_t cubes, pes;  /* per device; per cube */
} tp_embedding_plan;

/* A planned step of the cross-entropy. */
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

/* A rank with its groups. */
typedef struct tp_rank {
    uint32_t size, index; /* tensor parallel; 0: not initialised */
    uint32_t first;       /* the group's first rank, in the process group */
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
    KB_VEC(tp_layer *) layers; /* by id - 1; NULL: freed */
    tp_matmul_plan *matmuls;
    tp_relayout_plan *relayouts;
    tp_embedding_plan *embeddings;
    tp_row_plan *row_steps;
    tp_queues *queues; /* see queue_cache.c */
    tp_matched_ranks *matched;
    kb_tensor *all_pes; /* by SIP: a byte on each of its PEs; {0}: not made yet */
};

/* Installed queues for teams of this size on `sips` devices; {0} if none are needed. They connect
 * the PEs of each team and, if there are several devices, the PEs of the same index on these. */
KB_MUST_USE kb_error *tp_get_team_queues(tp_state *state, uint32_t sip, uint32_t sips, int64_t team,
                                         kb_queue_set *set);

/* The direction to a PE of the own team, to another rank, and to another team. */
const char *tp_team_queue_name(int64_t index);
const char *tp_rank_name(int64_t rank);
const char *tp_pace_name(int64_t round);

/* The rounds after which each team has heard of all others: see pace.c. */
int64_t tp_pace_rounds(int64_t teams);

/* The round whose queue leads back to the sender of a mark of this round: two PEs share one queue
 * pair. If there is none, the round itself. */
int64_t tp_pace_back(int64_t teams, int64_t round);

/* ---- queue_cache.c ---- */

/* Called when workers have ended: drops sets whose installation failed, for which workers would
 * wait. */
void tp_retire_queues(tp_state *state);
void tp_free_queues(tp_state *state);

/* ---- parallel_groups.c ---- */

/* The caller's groups; an error that names the function if model parallelism is not initialised. */
KB_MUST_USE kb_error *tp_get_rank(kb_context *ctx, const char *function, tp_rank *entry);

/* ---- layers.c ---- */

/* Frees the remaining layers, when the context is destroyed. */
void tp_free_layers(tp_state *state);

/* ---- match.c ---- */

/* Called before the launch of a product with sums over ranks, with the device of the caller. An
 * error if another rank multiplies something else. */
KB_MUST_USE kb_error *tp_match_ranks(tp_state *state, uint32_t sip, const tp_matmul_plan *plan);

/* Called when workers have ended: the next workers start with their first call. */
void tp_forget_calls(tp_state *state);
void tp_free_matched_ranks(tp_state *state);

/* ---- Kernels ---- */

/* Without the plan, which is to be set as user pointer. */
kb_kernel tp_matmul_kernel(void);

/* The dtype of sums of products. */
kb_dtype tp_sum_dtype(kb_dtype x, kb_dtype w);

#endif
