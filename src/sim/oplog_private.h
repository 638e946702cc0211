/* oplog_private.h: the state of the log, which oplog.c (operations and their sums), causes.c (what
 * the time of PEs goes to) and profile.c (the same by source line) share. */
#ifndef KB_SIM_OPLOG_PRIVATE_H
#define KB_SIM_OPLOG_PRIVATE_H

#include "oplog.h"
#include "profile.h"

#include "sim/engine.h"

typedef struct unit_work {
    kb_time busy; /* lacks `now` while operations that were announced are under way */
    union {
        uint64_t announced; /* operations under way */
        kb_time ahead_to;   /* of a unit that is told ahead: `busy` has all of them up to here */
    };
} unit_work;

/* Of the causes those of which bytes are outstanding, from LOCAL_MEMORY to CREDIT. */
enum { BYTE_CAUSES = KB_CAUSE_CREDIT - KB_CAUSE_LOCAL_MEMORY + 1 };

/* States of a PE besides the causes that count alone: both engines work; a product waits for
 * nothing but results that drain; bytes of several causes are outstanding. */
enum { BOTH_ENGINES = KB_CAUSES, NEEDED_DRAIN, DIVIDED };

typedef struct pe_record {
    kb_time since;                  /* its time up to here has been charged */
    uint32_t matrix, vector;        /* commands that occupy the engines */
    uint32_t drains, needed_drains; /* products that drain; of these, that products wait for */
    uint16_t outstanding;           /* bit c: bytes of cause c are */
    uint8_t state;                  /* what counts now: a kb_cause, or one of the above */
    bool runs_kernel;
    bool takes_part; /* it ran a kernel */
    bool odd;        /* both engines work, and an odd time of that has been charged */
    uint64_t bytes[BYTE_CAUSES];
    kb_time charged[KB_CAUSES]; /* to the kernel that runs */
    kb_time kernel_start;
    kb_time in_kernels; /* all that have ended */
    kb_time left_at;    /* what the kernel clock showed when its last kernel ended */
    unit_work units[KB_UNITS];
} __attribute__((aligned(64))) pe_record;

/* Names are constants, so they are known by their address. */
enum { KNOWN_NAME_BITS = 8, KNOWN_NAMES = 1 << KNOWN_NAME_BITS, MOST_KNOWN = KNOWN_NAMES / 2 };

typedef struct known_name {
    const char *name; /* NULL: none */
    kb_unit unit;
    uint32_t sum; /* its index */
} known_name;

/* A record whose time has not come. */
typedef struct early_op {
    kb_op op;
    uint64_t order;
} early_op;

/* The interval of a PE that its watcher has not been told of. */
typedef struct shown_state {
    kb_time start, end; /* equal: none */
    uint8_t cause;
} shown_state;

struct kb_oplog {
    kb_sim *sim;
    pe_record *pes; /* in pe_memory, where cache lines begin */
    uint64_t pe_count;
    bool detailed; /* there is a profile or a watcher of states */
    kb_profile *profile;
    kb_op_fn *watch;
    void *watcher;
    kb_state_fn *watch_states;
    void *state_watcher;
    shown_state *shown; /* by PE */
    void *pe_memory;

    KB_VEC(early_op) early;   /* while there is a watcher: a heap, by end and order of telling */
    uint64_t early_count;     /* ever */
    KB_VEC(kb_op_sum) sums;   /* in the order in which names were first told */
    KB_VEC(kb_op_sum) sorted; /* a sorted copy; has room for all */
    known_name known[KNOWN_NAMES];
    size_t known_count;
    bool told_ahead[KB_UNITS];                           /* the unit's operations are */
    uint64_t unit_bytes[KB_UNITS], unit_flops[KB_UNITS]; /* of all names: at most INT64_MAX */

    kb_timeline timeline; /* its causes lack the kernels that run, and PEs that wait for others */
    kb_time charged_to;   /* the run's time up to here is in the timeline */
    uint64_t kernels, requests, launches;
};

static inline pe_record *record_of(const kb_oplog *log, uint64_t pe)
{
    KB_ASSERT(pe < log->pe_count);
    return &log->pes[pe];
}

/* Tells the watcher of states what it has not been told. For the end of a run. */
void kb_oplog_flush_states(kb_oplog *log);

#endif
