/*
 * match.c: compares products with sums over ranks before they are launched. Their kernels exchange
 * messages: a rank that multiplies other shapes would cause a deadlock, or parts of a wrong size.
 *
 * The n-th call of a rank matches the n-th call of every other rank. The first rank to call records
 * its plan; the record is removed when all ranks have called.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tp_state.h"

/* A call that some ranks have made. */
typedef struct noted_call {
    const tp_matmul_plan *plan; /* of the first rank that made it */
    int64_t callers;
} noted_call;

struct tp_matched_ranks {
    struct tp_matched_ranks *next;
    uint32_t sip, ranks;          /* the first device, and the number of ranks */
    uint64_t calls[TP_MAX_RANKS]; /* by rank */
    uint64_t retired;             /* calls that all ranks have made */
    KB_VEC(noted_call) noted;     /* the calls after these */
};

void tp_forget_calls(tp_state *state)
{
    for (tp_matched_ranks *ranks = state->matched; ranks; ranks = ranks->next) {
        memset(ranks->calls, 0, sizeof ranks->calls);
        ranks->retired = 0;
        ranks->noted.count = 0;
    }
}

void tp_free_matched_ranks(tp_state *state)
{
    for (tp_matched_ranks *ranks = state->matched, *next; ranks; ranks = next) {
        next = ranks->next;
        kb_vec_fini(&ranks->noted);
        free(ranks);
    }
}

static tp_matched_ranks *find_ranks(tp_state *state, uint32_t sip, uint32_t count)
{
    tp_matched_ranks *ranks = state->matched;
    while (ranks && (ranks->sip != sip || ranks->ranks != count))
        ranks = ranks->next;
    if (ranks)
        return ranks;
    ranks = kb_alloc_zeroed(1, sizeof *ranks);
    if (!ranks)
        return NULL;
    ranks->sip = sip;
    ranks->ranks = count;
    ranks->next = state->matched;
    state->matched = ranks;
    return ranks;
}

static bool same_product(const tp_matmul_plan *a, const tp_matmul_plan *b)
{
    return a->problem.m == b->problem.m && a->problem.k == b->problem.k &&
           a->problem.n == b->problem.n && a->problem.x == b->problem.x &&
           a->problem.gated == b->problem.gated && a->chunks == b->chunks &&
           memcmp(&a->grid, &b->grid, sizeof a->grid) == 0;
}

static kb_error *refuse(const tp_matmul_plan *plan, const tp_matmul_plan *first)
{
    return kb_error_new(KB_ERR_INPUT,
                        "ranks of a tensor parallel group do not match: rank %" PRId64
                        " multiplies (%" PRId64 ", %" PRId64 ") * (%" PRId64 ", %" PRId64
                        ") %s in %" PRId64 " chunks, but rank %" PRId64 " (%" PRId64 ", %" PRId64
                        ") * (%" PRId64 ", %" PRId64 ") %s in %" PRId64
                        " chunks: shapes, dtype, overlap and batch have to be the same",
                        plan->rank, plan->problem.m, plan->problem.k, plan->problem.k,
                        plan->problem.n, kb_dtype_name(plan->problem.x), plan->chunks, first->rank,
                        first->problem.m, first->problem.k, first->problem.k, first->problem.n,
                        kb_dtype_name(first->problem.x), first->chunks);
}

static void retire_calls(tp_matched_ranks *ranks)
{
    size_t done = 0;
    while (done < ranks->noted.count && ranks->noted.items[done].callers == ranks->ranks)
        done++;
    if (done == 0)
        return;
    ranks->noted.count -= done;
    ranks->retired += done;
    memmove(ranks->noted.items, ranks->noted.items + done,
            ranks->noted.count * sizeof *ranks->noted.items);
}

kb_error *tp_match_ranks(tp_state *state, uint32_t sip, const tp_matmul_plan *plan)
{
    tp_matched_ranks *ranks = find_ranks(state, sip - (uint32_t)plan->rank, (uint32_t)plan->ranks);
    if (!ranks)
        return kb_error_nomem();
    size_t index = (size_t)(ranks->calls[plan->rank] - ranks->retired);
    KB_ASSERT(index <= ranks->noted.count);
    if (index == ranks->noted.count && !kb_vec_push(&ranks->noted, ((noted_call){.plan = plan})))
        return kb_error_nomem();
    noted_call *call = &ranks->noted.items[index];
    if (!same_product(plan, call->plan))
        return refuse(plan, call->plan);
    ranks->calls[plan->rank]++;
    call->callers++;
    retire_calls(ranks);
    return NULL;
}
