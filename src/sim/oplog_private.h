/* oplog_private.h: the state of the log, which oplog.c (operations and their sums), causes.c (what
 * the time of PEs goes to), timeline.c (what the run is doing), ahead.c (what is told before its
 * time) and profile.c (the same by source line) share. */
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
    BYTES_BEGIN,
    BYTES_END,
    ENGINE_ITEM, /* of kb_oplog_begin() and kb_oplog_end(): an engine, or results that drain */
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
        kb_time free_at; /* of ENGINE_STARTS: its start is `at`; a vector operation's is `end` */
    };
    kb_time end;
    uint64_t bytes, flops;
    uint32_t sum; /* its index */
    uint32_t key; /* if the log is detailed: of the row in the profile, or NO_KEY */
    uint8_t kind; /* a transition_kind */
    uint8_t cause, unit;
    union {
        bool of_kernel;
        bool begins; /* of ENGINE_ITEM */
    };
} transition;

_Static_assert(sizeof(transition) <= 64, "one fits into a cache line");

/* The profile does not count the operation. */
#define NO_KEY UINT32_MAX

typedef struct pe_record {
    kb_time since; /* its time up to here has been charged; later than now if has_open */
    union {
        struct {
            uint32_t matrix, vector; /* commands that occupy the engines */
        };
        uint64_t engines; /* 0: none does */
    };
    uint32_t drains, needed_drains; /* products that drain; of these, that products wait for */
    uint16_t outstanding;           /* bit c: bytes of cause c are */
    uint8_t state;                  /* what counts now: a kb_cause, or one of the above */
    bool runs_kernel;
    bool takes_part;     /* it ran a kernel */
    bool odd;            /* both engines work, and an odd time of that has been charged */
    uint8_t units_ahead; /* bit u: starts or ends of unit u have been told ahead */
    bool has_open;       /* an engine's operation has started and not been counted */
    /* What is told ahead: from `first` to before `end`, sorted by (at, order). If has_open,
     * array[0] is an operation of an engine whose time is charged already; else it is free. */
    uint64_t due; /* the first one's time + 1; 0: nothing is pending */
    transition *first, *end;
    transition *append_limit; /* the array's end; NULL if the log is detailed */
    transition *array;
    uint32_t room;
    uint32_t next_ahead; /* number + 1 of the next PE in the list of those with an array */
    uint64_t bytes[BYTE_CAUSES];
    kb_time charged[KB_CAUSES]; /* to the kernel that runs */
    kb_time kernel_start;
    kb_time in_kernels; /* all that have ended */
    kb_time left_at;    /* what the kernel clock showed when its last kernel ended */
    unit_work units[KB_UNITS];
} __attribute__((aligned(64))) pe_record;

_Static_assert(offsetof(pe_record, array) == 64, "what every call reads is in one cache line");
_Static_assert(KB_UNITS <= 8, "units fit into a byte");

/* Names are constants, so they are known by their address. Of each unit: */
enum { KNOWN_NAME_BITS = 6, KNOWN_NAMES = 1 << KNOWN_NAME_BITS, MOST_KNOWN = KNOWN_NAMES / 2 };

typedef struct known_name {
    const char *name; /* NULL: none */
    uint32_t sum;     /* its index */
} known_name;

/* What kb_op_sum shows. */
typedef struct op_sum {
    const char *name;
    uint64_t count;
    uint64_t busy_low, busy_high; /* the halves of a kb_time_sum: two instructions add to it */
    uint64_t bytes, flops, kernel_bytes;
    kb_unit unit;
} op_sum;

_Static_assert(sizeof(op_sum) == 64, "its index is multiplied by a shift");

/* Of all operations of a unit: at most INT64_MAX. */
typedef struct unit_total {
    uint64_t bytes, flops;
} unit_total;

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
    bool watched;        /* there is a profile or a watcher of operations */
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
    KB_VEC(op_sum) sums;      /* in the order in which names were first told */
    KB_VEC(kb_op_sum) sorted; /* a sorted copy; has room for all */
    known_name known[KB_UNITS][KNOWN_NAMES];
    size_t known_count[KB_UNITS];
    bool has_spans[KB_UNITS]; /* the unit's operations are told so */
    unit_total totals[KB_UNITS];

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

/* ---- causes.c ---- */

/* Charges the PE's time up to then to the state that held. */
void kb_oplog_charge(kb_oplog *log, pe_record *record, kb_time at);

/* A kernel begins at the PE: which state holds. */
void kb_oplog_find_state(pe_record *record);

static inline kb_cause engine_cause(uint8_t unit)
{
    _Static_assert(KB_UNIT_MATH - KB_UNIT_GEMM == KB_CAUSE_VECTOR - KB_CAUSE_MATRIX, "same order");
    return (kb_cause)(unit - KB_UNIT_GEMM + KB_CAUSE_MATRIX);
}

/* Applies what is due at the PE; if the log is detailed, at all PEs in the order of time. */
void kb_oplog_apply_due(kb_oplog *log, pe_record *record);

/* The same, and counts operations that have ended: before sums are read. */
void kb_oplog_settle(kb_oplog *log, pe_record *record);

/* Applies the first transition of the PE, which is due, and removes it or moves it to its next
 * time. If the log is detailed. */
void kb_oplog_apply_first(kb_oplog *log, pe_record *record);

/* ---- ahead.c: what is told before its time ---- */

void kb_oplog_apply_all_due(kb_oplog *log);

/* If the log is detailed. */
void kb_oplog_apply_in_order(kb_oplog *log);

/* The log is detailed from now on. False for want of host memory. */
KB_MUST_USE bool kb_oplog_make_agenda(kb_oplog *log);

/* Frees all transitions and records. */
void kb_oplog_drop_ahead(kb_oplog *log);

/* A new transition in its place, whose kind and other fields are the caller's to set. Applies what
 * is due if there is no room. NULL if there is no memory: then the run fails. */
transition *kb_oplog_insert(kb_oplog *log, pe_record *record, kb_time at);

/* Keeps a copy of the record until its end. `told_at`: see due_item. */
void kb_oplog_keep_record(kb_oplog *log, const kb_op *op, kb_time told_at);

/* Shows the watcher the records that end by now. */
void kb_oplog_show_early(kb_oplog *log);

/* Whether nothing is due at the PE, nor has to be looked for. */
static inline bool is_caught_up(const kb_oplog *log, const pe_record *record)
{
    return KB_LIKELY(record->due - 1 > (uint64_t)log->sim->now && !log->detailed);
}

/* Before anything of the PE is charged or changed. */
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

/*
 * The same as kb_oplog_insert() if the new transition is the last one or the last but one, which is
 * most often; else NULL, and nothing has changed. So a call that returns early calls no function
 * and saves no registers. `at` may be now: then it is applied with the others that are due.
 */
static inline transition *append_transition(kb_oplog *log, pe_record *record, kb_time at)
{
    transition *t = record->end, *first = record->first;
    if (KB_UNLIKELY(t >= record->append_limit))
        return NULL;
    if (t != first && t[-1].at > at) {
        if (t - 1 != first && KB_UNLIKELY(t[-2].at > at))
            return NULL;
        *t = t[-1];
        record->end = t-- + 1;
    } else {
        record->end = t + 1;
    }
    if (t == first)
        record->due = (uint64_t)at + 1;
    t->at = at;
    t->order = log->told_ahead++;
    return t;
}

static inline transition *insert_transition(kb_oplog *log, pe_record *record, kb_time at)
{
    transition *t = append_transition(log, record, at);
    return KB_LIKELY(t != NULL) ? t : kb_oplog_insert(log, record, at);
}

/* ---- Sums of operations ---- */

/* The sum would be too large: fails the run. */
void kb_oplog_fail_sum(const kb_oplog *log, kb_unit unit);

/* No sum of bytes or flops is larger than the total of its unit, so none wraps around. False if
 * that would be more than INT64_MAX. */
static inline bool add_to_total(uint64_t *total, uint64_t more)
{
    *total += more;
    if (KB_LIKELY((int64_t)(*total | more) >= 0))
        return true;
    *total -= more;
    return false;
}

static inline void add_busy(op_sum *sum, kb_time time)
{
    sum->busy_high += __builtin_add_overflow(sum->busy_low, (uint64_t)time, &sum->busy_low);
}

static inline void add_to_sum(kb_oplog *log, uint32_t index, kb_unit unit, bool of_kernel,
                              kb_time time, uint64_t bytes, uint64_t flops)
{
    op_sum *sum = &log->sums.items[index];
    if (bytes != 0) {
        if (!add_to_total(&log->totals[unit].bytes, bytes)) {
            kb_oplog_fail_sum(log, unit);
            return;
        }
        sum->bytes += bytes;
        sum->kernel_bytes += of_kernel ? bytes : 0;
    }
    if (flops != 0) {
        if (!add_to_total(&log->totals[unit].flops, flops)) {
            kb_oplog_fail_sum(log, unit);
            return;
        }
        sum->flops += flops;
    }
    sum->count++;
    add_busy(sum, time);
}

/* ---- Units ---- */

static inline void start_unit(pe_record *record, kb_unit unit, kb_time at)
{
    unit_work *work = &record->units[unit];
    if (work->announced++ == 0)
        work->busy -= at;
}

static inline void end_unit(pe_record *record, kb_unit unit, kb_time start, kb_time end)
{
    unit_work *work = &record->units[unit];
    if (work->announced == 0)
        work->busy += end - start;
    else if (--work->announced == 0)
        work->busy += end;
}

/* Of a unit that is told ahead: an operation begins. */
static inline void add_span(pe_record *record, kb_unit unit, kb_time start, kb_time end)
{
    unit_work *work = &record->units[unit];
    kb_time from = start > work->ahead_to ? start : work->ahead_to;
    if (end > from) {
        work->busy += end - from;
        work->ahead_to = end;
    }
}

#endif
