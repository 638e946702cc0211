/* oplog_private.h: the state of the log, which oplog.c (operations and their sums), causes.c (what
 * the time of PEs goes to), ahead.c (what is told before its time) and profile.c (the same by
 * source line) share. */
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

typedef enum transition_kind {
    ITEM_BEGINS,
    ITEM_ENDS,
    DRAIN_IS_NEEDED,
    DRAIN_IS_NOT_NEEDED,
    LINE_IS_SET,
    UNIT_STARTS,
    OP_ENDS,     /* it counts */
    SPAN_BEGINS, /* an operation of kb_oplog_add_ahead(): it counts */
    ROW_COUNTS,  /* in the profile alone */
    /* The same entry of the list, one after the other: */
    ENGINE_STARTS,
    ENGINE_DRAINS,
    ENGINE_ENDS,
} transition_kind;

/* Something that happens at a PE later than now: which fields mean something is up to its kind. */
typedef struct transition {
    kb_time at;
    uint64_t order; /* of the call: among all of the log */
    union {
        kb_time start;
        kb_time free_at; /* of ENGINE_STARTS: its start is `at` */
    };
    kb_time end;
    uint64_t bytes, flops;
    uint32_t sum; /* its index */
    uint32_t key; /* of the row in the profile, or NO_KEY */
    uint8_t kind; /* a transition_kind */
    uint8_t cause, unit;
    bool of_kernel;
} transition;

_Static_assert(sizeof(transition) <= 64, "one fits into a cache line");

/* The profile does not count the operation. */
#define NO_KEY UINT32_MAX

typedef struct pe_record {
    kb_time since;                  /* its time up to here has been charged */
    uint32_t matrix, vector;        /* commands that occupy the engines */
    uint32_t drains, needed_drains; /* products that drain; of these, that products wait for */
    uint16_t outstanding;           /* bit c: bytes of cause c are */
    uint8_t state;                  /* what counts now: a kb_cause, or one of the above */
    bool runs_kernel;
    bool takes_part; /* it ran a kernel */
    bool odd;        /* both engines work, and an odd time of that has been charged */
    /* What is told ahead: pending[first] to pending[end - 1], sorted by (at, order). */
    uint64_t due; /* the first one's time + 1; 0: nothing is pending */
    transition *pending;
    uint32_t first, end, room;
    uint32_t next_ahead; /* number + 1 of the next PE in the list of those with an array */
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
    bool is_span; /* it was told by kb_oplog_add_ahead() */
    kb_op op;
    kb_op_access accesses[];
} early_op;

/* Sorted by (at, told_at, order). */
typedef struct due_item {
    kb_time at;
    kb_time told_at; /* when it would have been told if not ahead */
    uint64_t order;
    union {
        early_op *record; /* owned */
        uint64_t pe;
    };
} due_item;

typedef KB_VEC(due_item) due_heap;

/* The interval of a PE that its watcher has not been told of. */
typedef struct shown_state {
    kb_time start, end; /* equal: none */
    uint8_t cause;
} shown_state;

struct kb_oplog {
    kb_sim *sim;
    pe_record *pes; /* in pe_memory, where cache lines begin; the last + 1 is for what has no PE */
    uint64_t pe_count;
    bool detailed;       /* there is a profile or a watcher of states */
    bool incomplete;     /* the log lacks something for want of host memory: the run has failed */
    uint32_t ahead_pes;  /* number + 1 of the first PE with an array of transitions */
    uint64_t told_ahead; /* transitions and records, ever */
    kb_profile *profile;
    kb_op_fn *watch;
    void *watcher;
    kb_state_fn *watch_states;
    void *state_watcher;
    shown_state *shown; /* by PE */
    void *pe_memory;

    due_heap early;           /* while there is a watcher: records, by end */
    due_heap agenda;          /* if detailed: the first transitions of PEs; some are stale */
    KB_VEC(kb_op_sum) sums;   /* in the order in which names were first told */
    KB_VEC(kb_op_sum) sorted; /* a sorted copy; has room for all */
    known_name known[KNOWN_NAMES];
    size_t known_count;
    bool has_spans[KB_UNITS];                            /* the unit's operations are told so */
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

/* Of what has no PE. */
static inline pe_record *record_without_pe(const kb_oplog *log)
{
    return &log->pes[log->pe_count];
}

/* Tells the watcher of states what it has not been told. For the end of a run. */
void kb_oplog_flush_states(kb_oplog *log);

/* The log cannot remember something: fails the run. */
void kb_oplog_fail_memory(kb_oplog *log);

/* The key of the operation's row; 0 if there is no profile, or no memory: then the run fails. */
uint32_t kb_oplog_find_key(kb_oplog *log, const kb_op *op);

/* ---- causes.c, oplog.c: transitions that happen ---- */

/* Applies what is due at the PE; if the log is detailed, at all PEs in the order of time. */
void kb_oplog_apply_due(kb_oplog *log, pe_record *record);

/* Applies the first transition of the PE, which is due, and removes it or moves it to its next
 * time. */
void kb_oplog_apply_first(kb_oplog *log, pe_record *record);
void kb_oplog_apply_op_end(kb_oplog *log, pe_record *record, const transition *t);
void kb_oplog_apply_span(kb_oplog *log, pe_record *record, const transition *t);

/* ---- ahead.c: what is told before its time ---- */

void kb_oplog_apply_all_due(kb_oplog *log);

/* If the log is detailed. */
void kb_oplog_apply_in_order(kb_oplog *log);

/* The log is detailed from now on. False for want of host memory. */
KB_MUST_USE bool kb_oplog_make_agenda(kb_oplog *log);

/* Frees all transitions and records. */
void kb_oplog_drop_ahead(kb_oplog *log);

/* Applies what is due, and makes room for another transition. False if there is no memory: then the
 * run fails. */
KB_MUST_USE bool kb_oplog_make_room(kb_oplog *log, pe_record *record);

/* A transition became the PE's first one while the log is detailed. */
void kb_oplog_put_on_agenda(kb_oplog *log, const pe_record *record);

/* Keeps a copy of the record until its end. `told_at`: see due_item. */
void kb_oplog_keep_record(kb_oplog *log, const kb_op *op, kb_time told_at);

/* Shows the watcher the records that end by now. */
void kb_oplog_show_early(kb_oplog *log);

/* Whether nothing is due at the PE, nor has to be looked for. */
static inline bool is_caught_up(const kb_oplog *log, const pe_record *record)
{
    return KB_LIKELY(record->due - 1 > (uint64_t)log->sim->now && !log->detailed);
}

/* Before anything of the PE is charged, changed or read. */
static inline void catch_up(kb_oplog *log, pe_record *record)
{
    if (!is_caught_up(log, record))
        kb_oplog_apply_due(log, record);
}

/* Whether it is told ahead. */
static inline bool is_ahead(const kb_oplog *log, kb_time at)
{
    KB_ASSERT(at >= log->sim->now);
    return at > log->sim->now;
}

static inline void set_due(pe_record *record)
{
    record->due = (uint64_t)record->pending[record->first].at + 1;
}

/* Whether there is room, and no agenda. */
static inline bool can_insert(const kb_oplog *log, const pe_record *record)
{
    return KB_LIKELY(record->end < record->room && !log->detailed);
}

/* A new transition, whose kind and other fields are the caller's to set. There must be room; the
 * log must not be detailed, or the agenda is the caller's as well. */
static inline transition *insert_in_room(kb_oplog *log, pe_record *record, kb_time at)
{
    transition *first = record->pending + record->first;
    transition *t = record->pending + record->end++;
    for (; t > first && t[-1].at > at; t--)
        *t = t[-1];
    t->at = at;
    t->order = log->told_ahead++;
    if (t == first)
        record->due = (uint64_t)at + 1;
    return t;
}

/* The same for any log. NULL if there is no memory: then the run fails. */
static inline transition *insert_transition(kb_oplog *log, pe_record *record, kb_time at)
{
    if (KB_UNLIKELY(record->end == record->room) && !kb_oplog_make_room(log, record))
        return NULL;
    transition *t = insert_in_room(log, record, at);
    if (KB_UNLIKELY(log->detailed) && t == record->pending + record->first)
        kb_oplog_put_on_agenda(log, record);
    return t;
}

static inline void start_unit(pe_record *record, kb_unit unit, kb_time at)
{
    unit_work *work = &record->units[unit];
    if (work->announced++ == 0)
        work->busy -= at;
}

#endif
