/*
 * interleaving_programs.c: draws programs at random, in which everything occurs often enough; and
 * what both sides say alike of them.
 */
#include "interleaving.h"
#include "support/seed.h"

const char *const actor_names[] = {"a0", "a1", "a2", "a3",  "a4",  "a5",  "a6",
                                   "a7", "a8", "a9", "a10", "a11", "a12", "a13"};
const char *const thing_names[] = {"s0", "s1", "s2", "c0", "c1", "c0", "c1", "l0", "l1"};

/* How often each kind is drawn. */
static const uint8_t weights[KINDS] = {
    [SLEEP] = 30,      [ACQUIRE] = 12,    [PUT] = 10,     [GET] = 8,     [WAIT] = 6,
    [WAIT_UNTIL] = 10, [TRY_ACQUIRE] = 4, [RELEASE] = 16, [TRY_PUT] = 6, [TRY_GET] = 6,
    [WAKE_ONE] = 8,    [WAKE_ALL] = 4,    [SPAWN] = 6,    [KILL] = 5,    [POST] = 5,
    [UNPOST] = 2,      [CANCEL] = 4,      [STOP] = 1,     [FAIL] = 1,    [EXIT] = 1,
    [PUSH] = 10,       [POP] = 6,
};
static int below(kb_rng *rng, int bound)
{
    return (int)kb_rng_below(rng, (uint64_t)bound);
}

static kind draw_kind(kb_rng *rng, kind first, kind end)
{
    int total = 0;
    for (kind k = first; k < end; k++)
        total += weights[k];
    int drawn = below(rng, total);
    while (drawn >= weights[first])
        drawn -= weights[first++];
    return first;
}

static void draw_arguments(kb_rng *rng, kind k, int *which, int *amount)
{
    static const int durations[] = {0, 0, 1, 1, 2, 3, 5, 8};
    *amount = 0;
    switch (k) {
    case SLEEP:
    case POST:
        *which = 0;
        *amount = durations[below(rng, 8)];
        break;
    case ACQUIRE:
    case TRY_ACQUIRE:
    case RELEASE:
        *which = below(rng, SEMS);
        *amount = below(rng, 4);
        break;
    case PUT:
    case GET:
    case TRY_PUT:
    case TRY_GET:
        *which = below(rng, CHANNELS);
        break;
    case WAIT:
    case WAIT_UNTIL:
    case WAKE_ONE:
    case WAKE_ALL:
        *which = below(rng, LISTS);
        *amount = durations[below(rng, 8)] - (below(rng, 8) == 0);
        break;
    case KILL:
    case CANCEL:
        *which = below(rng, ACTORS);
        break;
    default:
        *which = below(rng, 2);
    }
}

static op draw_op(kb_rng *rng, kind first, kind end)
{
    op o = {.kind = draw_kind(rng, first, end)};
    draw_arguments(rng, o.kind, &o.which, &o.amount);
    o.inner = draw_kind(rng, SLEEP, PUSH);
    draw_arguments(rng, o.inner, &o.inner_which, &o.inner_amount);
    return o;
}

void draw_program(program *p, uint64_t seed)
{
    kb_rng rng;
    kb_rng_init(&rng, test_seed(seed));
    *p = (program){.actors = 2 + below(&rng, ACTORS - 1)};
    p->at_start = 1 + below(&rng, p->actors);
    int agents = below(&rng, 3); /* of three programs one has no agents, one half of them */
    for (int i = 0; i <= ACTORS; i++) {
        int j = below(&rng, i + 1); /* ids in random order */
        p->id[i] = p->id[j];
        p->id[j] = (uint32_t)i;
    }
    for (int i = 0; i < p->actors; i++) {
        p->agent[i] = below(&rng, 4) < agents;
        p->daemon[i] = below(&rng, 4) == 0;
        p->length[i] = 1 + below(&rng, LENGTH);
        for (int j = 0; j < p->length[i]; j++)
            p->ops[i][j] = draw_op(&rng, SLEEP, KINDS);
        p->at_end[i] = draw_op(&rng, TRY_ACQUIRE, STOP);
    }
    for (int i = 0; i < SEMS; i++)
        p->units[i] = kb_rng_below(&rng, 5);
    for (int i = 0; i < CHANNELS; i++)
        p->capacity[i] = 1 + (uint32_t)below(&rng, 3);
    kb_time until = 0;
    for (int i = 0; i < RUNS; i++) {
        until += below(&rng, 8);
        p->until[i] = below(&rng, 4) ? until : KB_FOREVER;
        for (int j = 0; j < OUTSIDE_OPS; j++)
            p->outside[i][j] = draw_op(&rng, TRY_ACQUIRE, STOP);
    }
}

void record_run(trace *t, kb_time now, kb_code code, const char *message, const char *detail)
{
    KB_ASSERT(t->runs < MAX_RUNS);
    snprintf(t->words[t->runs], sizeof t->words[0], "%d: %s: %s", (int)code, message, detail);
    record(t, now, OUTSIDE, RAN, (uint64_t)t->runs++);
}
