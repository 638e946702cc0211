/* oplog_private.h: the state of the log, which oplog.c (operations and their sums), causes.c (what
 * the time of PEs goes to), merge_edges.c (the same if the log is not detailed), engine_work.c
 * (operations of engines), run_states.c (what the run is doing), ahead.c (what is told before its
 * time) and profile.c (the same by source line) share. */
#ifndef KB_OPLOG_OPLOG_PRIVATE_H
#define KB_OPLOG_OPLOG_PRIVATE_H

#include "oplog.h"
#include "profile.h"

#include "sim/sim.h"

typedef struct unit_work {
    kb_time busy; /* lacks `now` while operations that were announced are under way */
    union {
        uint64_t announced; /* operations under way */
        kb_time ahead_to;   /* of a unit with spans: `busy` has all of them up to here */
    };
} unit_work;

/* Of the causes those of which bytes are outstanding, from LOCAL_MEMORY to CREDIT: their slots are
 * counted from the first one. */
enum { BYTE_CAUSES = KB_CAUSE_CREDIT - KB_CAUSE_LOCAL_MEMORY + 1 };

/* States of a PE besides the causes that count alone: bytes of several causes are outstanding; both
 * engines work; a product waits for nothing but results that drain. From PAIR on: bytes of two
 * causes are, those in the slots (state - PAIR) / SLOTS and (state - PAIR) % SLOTS. */
enum { DIVIDED = KB_CAUSES, BOTH_ENGINES, NEEDED_DRAIN, PAIR = 64 };

enum { SLOT_BITS = 3, SLOTS = 1 << SLOT_BITS };
_Static_assert((int)BYTE_CAUSES <= SLOTS, "a slot fits");

typedef enum transition_kind {
    ITEM_CHANGES, /* of kb_oplog_begin() and kb_oplog_end(): what is no byte_change */
    SPAN_BEGINS,  /* an operation of kb_oplog_add_ahead() that is no span: it counts */
    DRAIN_IS_NEEDED,
    DRAIN_IS_NOT_NEEDED,
    LINE_IS_SET,
    UNIT_STARTS,
    OP_ENDS,    /* it counts */
    ROW_COUNTS, /* in the profile alone */
    /* Of kb_oplog_work() if the log is detailed: the same entry of the list, one after the other.
     */
    ENGINE_STARTS,
    ENGINE_DRAINS,
    ENGINE_ENDS,
} transition_kind;

/* Something that happens at a PE later than now: which fields mean something is up to its kind. */
typedef struct transition {
    kb_time at;
    uint64_t order; /* if the log is detailed: of the call, among all of the log */
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
        bool begins; /* of ITEM_CHANGES */
    };
} transition;

_Static_assert(sizeof(transition) <= 64, "one fits into a cache line");

/* ---- If the log is not detailed: what merge_edges.c applies ---- */

/* Bytes begin or end to be outstanding, now or later. */
typedef struct byte_change {
    kb_time at;
    int64_t what; /* how many more there are * SLOTS + the cause's slot */
} byte_change;

/* A change has less; what has more, or none, is a transition. */
#define MAX_CHANGE_BYTES (UINT64_C(1) << 56)

typedef enum edge_kind {
    TRANSFER_BEGINS, /* UNIT_STARTS and a byte change */
    TRANSFER_ENDS,   /* a byte change and OP_ENDS */
    UNIT_EDGE_STARTS,
    UNIT_EDGE_ENDS,
    LAST_EDGE, /* none: what is behind the last one */
} edge_kind;

/* An operation of a unit begins or ends, told at that time: so edges come in order. One that ends
 * takes two entries of the list: the second one has the rest. */
typedef union edge {
    struct {
        kb_time at;
        uint32_t bytes;
        uint8_t kind; /* an edge_kind */
        uint8_t slot; /* of its cause */
        uint8_t unit;
        bool of_kernel;
    };
    struct {
        kb_time start;
        const char *name;
    };
} edge;

_Static_assert(sizeof(edge) == 16, "a list of few takes little");

/* An operation of kb_oplog_count_ahead(). */
typedef struct span {
    kb_time start, end;
} span;

/* Past transitions that are kept in front of a PE's first one, at least. */
enum { PAST = 2 };

/* What a PE is told until it is applied. */
enum { EDGE_ROOM = 16, MAX_CHANGES = 12, MAX_SPANS = 5 };

/* Operations of one name that count together. */
typedef struct op_run {
    const char *name; /* NULL: none */
    uint64_t time, bytes, flops;
    uint32_t count;
    uint8_t unit;
    bool of_kernel;
} op_run;

/* Changes and spans are sorted by time and start at [1]: what is in front of them is of the past.
 * Behind the last edge and the last change there is room for one that never comes. */
typedef struct pe_buffer {
    op_run edge_run, span_run,
        engine_run;      /* of what has been applied, but is not in the sums yet */
    uint64_t span_bytes; /* of each span; unit and name are those of span_run */
    edge edges[EDGE_ROOM + 1];
    byte_change changes[1 + MAX_CHANGES + 1];
    span spans[1 + MAX_SPANS];
} pe_buffer;

/* An operation of an engine that has not been counted. See engine_work.c. */
typedef struct engine_op {
    kb_time start, free_at, end; /* as in kb_work */
    uint64_t flops;
    const char *name;
    kb_unit unit;
} engine_op;

/* The profile does not count the operation. */
#define NO_KEY UINT32_MAX

typedef struct pe_record {
    kb_time since;    /* its time up to here has been charged; later than now if an engine works */
    kb_time next_due; /* the first transition's time, or KB_FOREVER; 0: new, or a detailed log */
    kb_time engines_to;          /* all operations of engines that were told end up to here */
    const engine_op *next_op;    /* the first that is not passed; NULL: there was none */
    edge *edge_end, *edge_limit; /* limits are NULL if the log is detailed, or there was none */
    byte_change *change_end, *change_limit;
    span *span_end, *span_limit;
    engine_op *op_end, *op_limit; /* sorted by start; *op_end never starts */
    engine_op *ops;
    pe_buffer *buffer; /* NULL: there was none */
    union {
        struct {
            uint32_t matrix, vector; /* items that occupy the engines */
        };
        uint64_t engines; /* 0: none does */
    };
    uint32_t drains, needed_drains; /* products that drain; of these, that products wait for */
    uint16_t outstanding;           /* bit s: bytes of the cause in slot s are */
    uint8_t state;                  /* what counts now: a kb_cause, or one of the above */
    bool runs_kernel;
    bool takes_part; /* it ran a kernel */
    bool odd;        /* both engines work, and an odd time of that has been charged */
    bool mixed_ops;  /* some of `ops` overlap, or drain */
    /* What is told ahead: from `first` to before `end`, sorted by time, those of the same time in
     * the order of the calls. Two or more before `first` are in the past. */
    transition *first, *end;
    transition *append_limit; /* the array's end; NULL if the log is detailed */
    transition *array;
    uint32_t op_room, room;
    uint32_t byte_transitions; /* in the array: until they are applied there are no byte changes */
    uint32_t next_ahead;       /* number + 1 of the next PE in the list of those with memory */
    uint64_t bytes[BYTE_CAUSES]; /* outstanding */
    kb_time charged[KB_CAUSES];  /* to the kernel that runs; of engines what has been counted */
    unit_work units[KB_UNITS];
    kb_time kernel_start;
    kb_time in_kernels; /* all that have ended */
    kb_time left_at;    /* what the kernel clock showed when its last kernel ended */
} __attribute__((aligned(64))) pe_record;

_Static_assert(sizeof(pe_record) == 512, "idle PEs take little");

/* A PE that is used has these, and FIRST_ROOM operations of engines: 1520 bytes in all. */
_Static_assert(sizeof(pe_buffer) <= 720, "a PE that runs a kernel takes little");

/* Names are constants, so they are known by their address. Of each unit: */
enum { KNOWN_NAME_BITS = 6, KNOWN_NAMES = 1 << KNOWN_NAME_BITS, MAX_KNOWN = KNOWN_NAMES / 2 };

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
    const kb_clock *clock; /* its */
    pe_record *pes; /* in pe_memory, where cache lines begin; the last + 1 is for what has no PE */
    uint64_t pe_count;
    bool detailed;       /* there is a profile or a watcher of states */
    bool watched;        /* there is a profile or a watcher of operations */
    bool gives_ids;      /* to records, if there is a watcher of operations */
    bool incomplete;     /* the log lacks something for want of host memory: the run has failed */
    uint32_t ahead_pes;  /* number + 1 of the first PE with memory of its own */
    uint64_t told_ahead; /* transitions and records, ever */
    uint32_t last_id;    /* that was given */
    kb_profile *profile;
    kb_oplog_path_watcher paths; /* nothing in it: paths are not watched */
    uint32_t control_cause;      /* see kb_oplog_control_cause() */
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
    uint8_t states[2][1 << BYTE_CAUSES]; /* by the causes of which bytes are outstanding; [1]:
                                            results drain */
    uint64_t uncounted[KB_CAUSES];       /* bytes that began while no kernel ran */

    kb_timeline timeline; /* its causes lack the kernels that run, and PEs that wait for others */
    kb_time charged_to;   /* the run's time up to here is in the timeline */
    uint64_t kernels, requests, launches;
};

static inline pe_record *record_of(const kb_oplog *log, uint64_t pe)
{
    KB_DEBUG_ASSERT(pe < log->pe_count);
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

/* Charges time in the PE's state, which several causes share or a profile or a watcher sees. */
void kb_oplog_charge_shared(kb_oplog *log, pe_record *record, kb_time time);

/* What kb_oplog_begin() or kb_oplog_end() is told, in any log. */
void kb_oplog_tell_item(kb_oplog *log, pe_record *record, kb_time at, kb_cause cause,
                        uint64_t bytes, const kb_op *op, bool begins);

/* For a new log. */
void kb_oplog_make_states(kb_oplog *log);

/* A kernel begins at the PE: which state holds. */
void kb_oplog_find_state(pe_record *record);

static inline kb_cause engine_cause(uint8_t unit)
{
    _Static_assert(KB_UNIT_MATH - KB_UNIT_GEMM == KB_CAUSE_VECTOR - KB_CAUSE_MATRIX, "same order");
    return (kb_cause)(unit - KB_UNIT_GEMM + KB_CAUSE_MATRIX);
}

/* Applies what is due at the PE; if the log is detailed, at all PEs in the order of time. */
void kb_oplog_apply_due(kb_oplog *log, pe_record *record);

/* Applies the first transition of the PE, which is due, and removes it or moves it to its next
 * time. If the log is detailed. */
void kb_oplog_apply_first(kb_oplog *log, pe_record *record);

/* ---- ahead.c: what is told before its time ---- */

void kb_oplog_apply_all_due(kb_oplog *log);

/* If the log is detailed. */
void kb_oplog_apply_in_order(kb_oplog *log);

/* The log is detailed from now on. False for want of host memory. */
KB_MUST_USE bool kb_oplog_make_agenda(kb_oplog *log);

/* Frees all that PEs have, and records. */
void kb_oplog_drop_ahead(kb_oplog *log);

/* The PE gets memory of its own: puts it on the list of PEs with memory. */
void kb_oplog_link_pe(kb_oplog *log, pe_record *record);

/* A new transition, inserted in order, whose kind and other fields are the caller's to set. Applies
 * what is due if there is no room. NULL if there is no memory: then the run fails. */
transition *kb_oplog_insert(kb_oplog *log, pe_record *record, kb_time at);

/* Keeps a copy of the record until its end. `told_at`: see due_item. */
void kb_oplog_keep_record(kb_oplog *log, const kb_op *op, kb_time told_at);

/* Shows the watcher the records that end by now. */
void kb_oplog_show_early(kb_oplog *log);

static inline bool is_empty(const pe_record *record)
{
    const pe_buffer *buffer = record->buffer;
    return !buffer ||
           (record->edge_end == buffer->edges && record->change_end == buffer->changes + 1 &&
            record->span_end == buffer->spans + 1);
}

/* Before anything of the PE is charged, changed or read. */
static inline void catch_up(kb_oplog *log, pe_record *record)
{
    if (record->next_due <= log->clock->now || !is_empty(record))
        kb_oplog_apply_due(log, record);
}

/* Whether it is told ahead. */
static inline bool is_ahead(const kb_oplog *log, kb_time at)
{
    KB_ASSERT(at >= log->clock->now); /* K8 */
    return at > log->clock->now;
}

/*
 * The same as kb_oplog_insert() if the new transition is the last one or the last but one, which is
 * most often; else NULL, and nothing has changed. So a call that returns early calls no function
 * and saves no registers. `at` may be now: then it is applied with the others that are due.
 */
static inline transition *append_transition(pe_record *record, kb_time at)
{
    transition *t = record->end;
    if (KB_UNLIKELY(t >= record->append_limit))
        return NULL;
    if (t[-1].at > at) { /* those before the first one are in the past */
        if (KB_UNLIKELY(t[-2].at > at))
            return NULL;
        *t = t[-1];
        record->end = t-- + 1;
    } else {
        record->end = t + 1;
    }
    if (at < record->next_due)
        record->next_due = at;
    t->at = at;
    return t;
}

static inline transition *insert_transition(kb_oplog *log, pe_record *record, kb_time at)
{
    transition *t = append_transition(record, at);
    return KB_LIKELY(t != NULL) ? t : kb_oplog_insert(log, record, at);
}

/* ---- merge_edges.c: what begins and ends, if the log is not detailed ---- */

/* What of the PE's buffer has not been applied. */
typedef struct merge_position {
    edge *edge;
    byte_change *change;
    span *span;
} merge_position;

/* Applies what is in the buffer up to then, from there on. */
void kb_oplog_merge(kb_oplog *log, pe_record *record, merge_position *from, kb_time at);

/* The first position of the PE's buffer; and all in front of that one has been applied. */
merge_position kb_oplog_merge_begin(const pe_record *record);
void kb_oplog_merge_end(pe_record *record, const merge_position *to);

/* Opens the PE's buffer, which it may have to get first. False: the log is detailed, or there is no
 * memory and the run fails. */
bool kb_oplog_open_buffer(kb_oplog *log, pe_record *record);

/* Moves the runs of the PE's buffer to the sums. */
void kb_oplog_count_runs(kb_oplog *log, const pe_record *record);

/* Makes room for another edge, which may take applying what is due. False: edges are not kept. */
bool kb_oplog_make_edge_room(kb_oplog *log, pe_record *record);

/* An edge at the present time, of one entry or two, whose other fields are the caller's to set; or
 * NULL. */
static inline edge *append_edge(kb_oplog *log, pe_record *record, kb_time now, size_t entries)
{
    KB_DEBUG_ASSERT(now == log->clock->now);
    edge *e = record->edge_end;
    if (KB_UNLIKELY(e >= record->edge_limit)) {
        if (!kb_oplog_make_edge_room(log, record))
            return NULL;
        e = record->edge_end;
    }
    record->edge_end = e + entries;
    e->at = now;
    return e;
}

/* ---- engine_work.c: operations of engines, if the log is not detailed ---- */

/* Charges the PE's time up to the operations that start before then, and goes to their ends. */
void kb_oplog_pass_engines(kb_oplog *log, pe_record *record, kb_time at);

/* Counts the operations that have been passed and have ended. */
void kb_oplog_count_worked(kb_oplog *log, pe_record *record);

/* What operations that have not been counted add to the PE's causes up to now. */
typedef struct work_so_far {
    kb_time matrix, vector;
    kb_time both; /* both engines work */
} work_so_far;

work_so_far kb_oplog_work_so_far(const kb_oplog *log, const pe_record *record);

/* The same for the time at work of the PE's engine: all of it. */
kb_time kb_oplog_engine_busy(const kb_oplog *log, const pe_record *record, kb_unit unit);

/* Adds the PE's operations that have ended but are not counted to the sums, or takes them back. */
void kb_oplog_show_worked(kb_oplog *log, const pe_record *record, bool back);

/* ---- Sums of operations ---- */

enum { NO_SUM = UINT32_MAX };

/* Where the name belongs in the table of its unit. */
static inline size_t slot_of(const char *name)
{
    return (uintptr_t)name * UINT64_C(0x9e3779b97f4a7c15) >> (64 - KNOWN_NAME_BITS);
}

/* The index of the sum, or NO_SUM. */
uint32_t kb_oplog_find_known(kb_oplog *log, kb_unit unit, const char *name);

/* Where it is most often: if it is there, known->name is the name. */
static inline const known_name *look_up(const kb_oplog *log, kb_unit unit, const char *name)
{
    KB_DEBUG_ASSERT((size_t)unit < KB_UNITS);
    return &log->known[unit][slot_of(name)];
}

static inline uint32_t sum_of(kb_oplog *log, kb_unit unit, const char *name)
{
    const known_name *known = look_up(log, unit, name);
    return KB_LIKELY(known->name == name) ? known->sum : kb_oplog_find_known(log, unit, name);
}

/* An operation of kb_oplog_count_ahead() that is no span of a buffer. */
void kb_oplog_tell_span(kb_oplog *log, pe_record *record, kb_unit unit, const char *name,
                        kb_time start, kb_time end, uint64_t bytes);

/* The record goes to the watcher at its end. */
void kb_oplog_show_at_end(kb_oplog *log, const kb_op *op);

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

/* False if the sum would be too large: then the run fails. */
static inline bool add_to_sum(kb_oplog *log, uint32_t index, kb_unit unit, bool of_kernel,
                              kb_time time, uint64_t bytes, uint64_t flops)
{
    op_sum *sum = &log->sums.items[index];
    if (bytes != 0) {
        if (!add_to_total(&log->totals[unit].bytes, bytes)) {
            kb_oplog_fail_sum(log, unit);
            return false;
        }
        sum->bytes += bytes;
        sum->kernel_bytes += of_kernel ? bytes : 0;
    }
    if (flops != 0) {
        if (!add_to_total(&log->totals[unit].flops, flops)) {
            kb_oplog_fail_sum(log, unit);
            return false;
        }
        sum->flops += flops;
    }
    sum->count++;
    add_busy(sum, time);
    return true;
}

/* Whether it has as much as it may before some more are added. */
static inline bool is_full(const op_run *run)
{
    return (run->time | run->flops) > INT64_MAX || run->count > INT32_MAX;
}

/* Moves them to the sums. If there is no memory, or a sum would be too large, the run fails. */
void kb_oplog_count_run(kb_oplog *log, op_run *run);

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

/* Of a unit with spans: an operation begins. */
static inline void extend_span(unit_work *work, kb_time start, kb_time end)
{
    kb_time from = start > work->ahead_to ? start : work->ahead_to;
    if (end > from) {
        work->busy += end - from;
        work->ahead_to = end;
    }
}

static inline void add_span(pe_record *record, kb_unit unit, kb_time start, kb_time end)
{
    extend_span(&record->units[unit], start, end);
}

#endif
