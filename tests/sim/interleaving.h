/*
 * interleaving.h: programs for coroutines and handlers, and traces of what they do. See
 * test_interleaving.c.
 */
#ifndef TESTS_SIM_INTERLEAVING_H
#define TESTS_SIM_INTERLEAVING_H

#include "support/expect.h"

#include "base/base.h"

enum {
    ACTORS = 14,
    OUTSIDE = ACTORS, /* the actor that is none: between runs */
    LENGTH = 14,
    SEMS = 3,
    CHANNELS = 2,
    LISTS = 2,
    RUNS = 4,
    OUTSIDE_OPS = 4,
    MAX_RUNS = RUNS + 40, /* more if they are stopped and fail */
    ENTRIES = 4096,
};

typedef enum kind {
    SLEEP,
    ACQUIRE,
    PUT,
    GET,
    WAIT,
    WAIT_UNTIL,
    /* From here on nothing blocks. */
    TRY_ACQUIRE,
    RELEASE,
    TRY_PUT,
    TRY_GET,
    WAKE_ONE,
    WAKE_ALL,
    SPAWN,
    KILL,
    POST,   /* schedules an event of its own */
    UNPOST, /* cancels that */
    CANCEL, /* an agent's wait */
    STOP,
    FAIL,
    EXIT,
    PUSH,
    POP,
    KINDS
} kind;

typedef struct op {
    kind kind;
    int which; /* semaphore, channel, list, actor; of POP: whether to run */
    int amount;
    kind inner; /* of PUSH: the operation that is the cleanup */
    int inner_which, inner_amount;
} op;

typedef struct program {
    int actors, at_start;
    bool agent[ACTORS], daemon[ACTORS];
    uint32_t id[ACTORS + 1];
    int length[ACTORS];
    op ops[ACTORS][LENGTH];
    op at_end[ACTORS]; /* of coroutines: what on_end does */
    uint64_t units[SEMS];
    uint32_t capacity[CHANNELS];
    kb_time until[RUNS];
    op outside[RUNS][OUTSIDE_OPS];
} program;

typedef struct entry {
    kb_time time;
    int actor;
    int op; /* number in its list; or one of these */
    uint64_t result;
} entry;

enum { CLEANUP = 100, NOTE = 200, STARTED = 300, ENDED, GONE, RAN };

typedef struct trace {
    entry entries[ENTRIES];
    int count;
    char words[MAX_RUNS][512]; /* what runs returned */
    int runs;
    uint64_t events, cancelled, resumes;
} trace;

static inline void record(trace *t, kb_time time, int actor, int number, uint64_t result)
{
    if (t->count < ENTRIES)
        t->entries[t->count++] = (entry){time, actor, number, result};
}

static inline uint64_t word_of(int actor, int number)
{
    return (uint64_t)(actor + 1) << 16 | (uint64_t)number;
}

/* What a run has returned, and what the counts are. */
void record_run(trace *t, kb_time now, kb_code code, const char *message, const char *detail);

/* What messages call actors; and semaphores, channels (twice: getters and putters) and lists. */
extern const char *const actor_names[];
extern const char *const thing_names[];

/* The program of a seed: interleaving_programs.c */
void draw_program(program *p, uint64_t seed);

/* What the engine does with it: interleaving_engine.c */
void run_engine(const program *p, bool elision, trace *t);

/* What the interpreter does: interleaving_reference.c */
void run_reference(const program *p, trace *t);

#endif
