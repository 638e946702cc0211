/*
 * trial.h: one collective, with the inputs of all ranks and the expected outputs, by a reference
 * that is independent of machines and layouts. Numbers are small integers, so that sums and
 * products of a few are exact in every dtype, in any order.
 */
#ifndef TESTS_CCL_TRIAL_H
#define TESTS_CCL_TRIAL_H

#include "rt/programs.h"
#include "rt/tensors.h"

enum { TRIAL_RANKS = 16 };

/* A tensor of a rank. */
typedef struct trial_side {
    bool there;
    kb_shape shape;
    kb_policy policy;
    double *numbers; /* before, row by row */
    kb_tensor tensor;
} trial_side;

typedef struct trial {
    kb_collective_kind kind;
    kb_reduce_op op;
    kb_dtype dtype;
    uint32_t root;
    const char *algorithm;
    uint32_t world;
    uint64_t block; /* elements of one block */
    kb_memory memory;
    trial_side inputs[TRIAL_RANKS], outputs[TRIAL_RANKS]; /* in place: the inputs alone */
} trial;

bool trial_is_in_place(kb_collective_kind kind);

/* Draws everything that is not said yet: shapes, layouts (another one for every rank if `mixed`),
 * numbers. */
void trial_draw(trial *t, kb_rng *rng, const kb_machine *machine, bool mixed);
void trial_fini(trial *t);

/* Makes the rank's tensors on the current device, filled, in no time. */
void trial_make(trial *t, kb_context *ctx, uint32_t rank);

/* The rank's tensors have what they should have. */
void trial_check(const trial *t, kb_context *ctx, uint32_t rank);

/* Calls the collective for the rank. */
kb_error *trial_call(const trial *t, kb_context *ctx, uint32_t rank,
                     const kb_collective_options *options);

/* Calls it for all ranks at once, from outside workers. */
kb_error *trial_call_all(const trial *t, kb_context *ctx);

/* Makes, calls and checks with a worker for each rank. */
void trial_spawn(trial *t, kb_context *ctx);

/* A machine of SIPs of w x h cubes of four PEs; `more` are further settings, ended by NULL.
 */
kb_context *open_sips(uint32_t sips, uint32_t w, uint32_t h, const char *const *more,
                      kb_context_options options);

/* A tensor of f16 on the current device, cut over its PEs, in no time. */
kb_tensor filled_f16(kb_context *ctx, uint64_t elements, double value);

double first_of(kb_context *ctx, kb_tensor tensor); /* its first element */

#endif
