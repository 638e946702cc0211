/*
 * oplog.h: what was done and when. Every operation that takes time is told to the log. The log adds
 * up as it goes and hands each record to the watcher, if there is one; it keeps none whose time has
 * passed, so its size does not depend on the length of a run.
 *
 * Calls have a time `at` (for operations: their `end` or `start`), which is now or later. A model
 * that knows early what happens at a PE may say so at once: the log keeps it and applies it when
 * that time comes, so that all results at any time are those of calls made at their times. Calls
 * of one PE with the same `at` apply in the order of the calls. What is told ahead lies between
 * kb_oplog_kernel_begin() and kb_oplog_kernel_end() of its PE.
 *
 * Of each PE it also knows what its time goes to (kb_cause): causes.c has the rule. The causes of a
 * kernel add up to the time that it ran on the PE; those of all PEs that take part in a run add up
 * to their number times the time in which at least one kernel ran. Of the run as a whole the log
 * knows for how long at least one kernel ran, for how long otherwise something was under way, and
 * for how long nothing was: these add up to the run. All of it to the femtosecond.
 *
 * If there is no host memory for what the log has to remember, it fails the run.
 */
#ifndef KB_OPLOG_OPLOG_H
#define KB_OPLOG_OPLOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "profile.h"

typedef struct kb_oplog kb_oplog;

/* `pes`: of the machine, which are numbered from 0. */
KB_MUST_USE kb_error *kb_oplog_create(kb_sim *sim, uint64_t pes, kb_oplog **log);
void kb_oplog_destroy(kb_oplog *log);

/* Gets every record, in the order of ends; with equal ends, in the order of calls, those of
 * kb_oplog_add_ahead() first. NULL: no watcher. Before the first operation. */
void kb_oplog_watch(kb_oplog *log, kb_op_fn *fn, void *self);

/* Whether the log wants whole records, for a watcher or a profile. */
bool kb_oplog_is_watched(const kb_oplog *log);

/* Records get numbers and reasons from now on, as long as there is a watcher of operations. Before
 * the first operation. */
void kb_oplog_give_ids(kb_oplog *log);

/* The number of the next record, from 1 on; 0 if none are given. Code that passes numbers and
 * reasons on needs no test of its own: 0 is passed on as well. Fails the run after 2^32 - 1. */
uint32_t kb_oplog_new_id(kb_oplog *log);

#define KB_OPLOG_HOST UINT64_MAX

/* The operation ends at op->end. `pe` is the number of its PE, or KB_OPLOG_HOST. Its name is a
 * constant: the log keeps the pointer. Its other texts stay until then; accesses are copied. */
void kb_oplog_add(kb_oplog *log, uint64_t pe, const kb_op *op);

/* What the sums need of an operation. */
typedef struct kb_op_brief {
    const char *name; /* a constant */
    kb_unit unit;
    bool of_kernel; /* it belongs to a launch */
    kb_time start, end;
    uint64_t bytes, flops;
} kb_op_brief;

/* The same if the log is not watched: nothing else of the operation matters then. */
void kb_oplog_count(kb_oplog *log, uint64_t pe, const kb_op_brief *op);

/* The same for `count` parts of an operation of their unit that is announced itself: only the sums
 * by name have to know. */
void kb_oplog_count_parts(kb_oplog *log, kb_unit unit, const char *name, uint64_t count,
                          kb_time busy);

/*
 * The same for a command of the DMA with one transfer, if the log is not watched, now: in one call
 * what kb_oplog_start() of its unit and kb_oplog_begin() of its bytes tell; and what kb_oplog_end()
 * of these and kb_oplog_count() tell. The cause is one of bytes.
 */
void kb_oplog_begin_transfer(kb_oplog *log, uint64_t pe, kb_time at, kb_unit unit, kb_cause cause,
                             uint64_t bytes);
void kb_oplog_end_transfer(kb_oplog *log, uint64_t pe, kb_cause cause, const kb_op_brief *op);

/* Something that is no work, such as waiting, ends at op->end: it counts nowhere, and only the
 * watcher gets it. */
void kb_oplog_show(kb_oplog *log, const kb_op *op);

/*
 * The operation begins at op->start and its end is known: it counts when it begins, and the watcher
 * gets it in the order of ends. Starts may come in any order. Of a unit all operations are told
 * this way, or none; its time at work is that with at least one under way.
 */
void kb_oplog_add_ahead(kb_oplog *log, uint64_t pe, const kb_op *op);

/* The same if the log is not watched, and the operation does not belong to a launch. */
void kb_oplog_count_ahead(kb_oplog *log, uint64_t pe, kb_unit unit, const char *name, kb_time start,
                          kb_time end, uint64_t bytes);

/* The watcher gets the records whose time has come. Else it gets them when the log is told of
 * something else. */
void kb_oplog_show_due(kb_oplog *log);

/* The watcher gets the operations that kb_oplog_add_ahead() has begun up to now, although they end
 * later. For the end of a run. */
void kb_oplog_flush(kb_oplog *log);

/* The unit of the PE takes up an operation: one more kb_oplog_add() is going to end it. Only for
 * units that do several at a time; of such a unit all are to be announced. */
void kb_oplog_start(kb_oplog *log, uint64_t pe, kb_time at, kb_unit unit);

/* An operation of an engine, all of whose times are known. */
typedef struct kb_work {
    const char *name; /* a constant */
    kb_unit unit;     /* KB_UNIT_GEMM or KB_UNIT_MATH */
    bool of_kernel;   /* it belongs to a launch */
    kb_time start;
    kb_time free_at; /* the engine is free; before `end` if results drain until then */
    kb_time end;
    uint64_t flops;
    const kb_op *op; /* if the log is watched: the record, with the same times */
} kb_work;

/*
 * Operations of an engine are told in the order of their starts, each of which is not before the
 * last one's free_at. Engines are told this way, or by kb_oplog_begin() and kb_oplog_end(), not
 * both. The same in one call as
 *
 *     at start      kb_oplog_start() of the unit, kb_oplog_begin() of KB_CAUSE_MATRIX or _VECTOR
 *     at free_at    if that is before end: KB_CAUSE_MATRIX_DRAIN begins, KB_CAUSE_MATRIX ends
 *     at end        kb_oplog_end() of the cause, and kb_oplog_count() or kb_oplog_add()
 */
void kb_oplog_work(kb_oplog *log, uint64_t pe, const kb_work *work);

/* ---- What the time of a PE goes to ---- */

/*
 * Something begins or ends at the PE:
 *
 *     KB_CAUSE_MATRIX, _VECTOR    the engine is occupied
 *     KB_CAUSE_MATRIX_DRAIN       results of a product are on their way, the engine is free
 *     KB_CAUSE_LOCAL_MEMORY to _CREDIT    `bytes` are outstanding; 0 counts as 1
 *
 * `op` is the operation it belongs to, for the profile: name, unit, file and line. It may be NULL
 * if the log is not watched, or if there is no such operation. The texts stay, `op` need not.
 */
void kb_oplog_begin(kb_oplog *log, uint64_t pe, kb_time at, kb_cause cause, uint64_t bytes,
                    const kb_op *op);
void kb_oplog_end(kb_oplog *log, uint64_t pe, kb_time at, kb_cause cause, uint64_t bytes,
                  const kb_op *op);

/* The PE's next product waits for nothing but these draining results, from then on; or no longer.
 * Then they count before bytes that are outstanding, else behind them. */
void kb_oplog_need_drain(kb_oplog *log, uint64_t pe, kb_time at, bool needed);

/* The PE's program is at this line: what is issued from then on, or waited for without anything
 * outstanding, is charged to it in the profile. Only if the log is watched. */
void kb_oplog_set_line(kb_oplog *log, uint64_t pe, kb_time at, const kb_op *op);

/* Time so far in which at least one kernel ran. */
kb_time kb_oplog_kernel_clock(const kb_oplog *log);

/* A kernel starts at the PE, now; its launch was posted when the kernel clock showed `posted`. A PE
 * runs one at a time. */
void kb_oplog_kernel_begin(kb_oplog *log, uint64_t pe, kb_time posted);

/* It ends there, now; what its time went to is added to `causes`. */
void kb_oplog_kernel_end(kb_oplog *log, uint64_t pe, kb_time_sum causes[KB_CAUSES]);

/* A request of the host is under way, and no longer is. */
void kb_oplog_request_begin(kb_oplog *log);
void kb_oplog_request_end(kb_oplog *log);

/* A launch is on its way, from the host or from a control processor, until its completion is there;
 * not while it is held. */
void kb_oplog_launch_begin(kb_oplog *log);
void kb_oplog_launch_end(kb_oplog *log);

/* Gets what a PE's time mostly goes to, interval by interval. */
typedef void kb_state_fn(void *self, uint64_t pe, kb_cause cause, kb_time start, kb_time end);

/* While no kernel runs. NULL ends it. */
KB_MUST_USE kb_error *kb_oplog_watch_states(kb_oplog *log, kb_state_fn *fn, void *self);

/* Keeps a profile by source line from now on. Before the first operation. */
KB_MUST_USE kb_error *kb_oplog_start_profile(kb_oplog *log);

/* NULL if none is kept. Stays the log's. */
const kb_profile *kb_oplog_profile(kb_oplog *log);

/*
 * How time is divided: the first `part` of `total` weights have whole * part / total, rounded down,
 * and each weight has what it adds to that. So parts add up to the whole, and each is within a
 * femtosecond of its share.
 */
kb_time kb_part_of_time(kb_time whole, uint64_t part, uint64_t total);
void kb_divide_time(kb_time whole, const uint64_t *weights, size_t count, kb_time *parts);

/* ---- What critical paths need besides operations ---- */

/* The transfer with which the record's operation ended: of several, the last. */
typedef struct kb_oplog_transfer {
    uint32_t id;       /* of the record */
    uint32_t from, to; /* nodes: of the PE or the sender, and of the memory or the receiver */
    bool read;         /* the data come from `to` */
    kb_time issued, ended;
    kb_time latency, bandwidth, queueing; /* add up to ended - issued */
} kb_oplog_transfer;

/*
 * What no unit of a PE does: a message between the host and control processors, with the time that
 * its receiver works on it; data of copies of the host. It is a record like those of operations,
 * but only the watcher of paths gets it.
 */
typedef struct kb_oplog_control {
    const char *name; /* a constant: "command", "completion", "signal", "copy", "trigger" */
    kb_time end;      /* from the end of its transfer, the receiver works */
    kb_oplog_transfer moved;
    kb_reason begun_by; /* what was told to the sender before; 0: nothing, it is the first */
} kb_oplog_control;

typedef struct kb_oplog_path_watcher {
    void (*transfer)(void *self, const kb_oplog_transfer *transfer); /* before the operation */
    void (*control)(void *self, const kb_oplog_control *control);
    void *self;
} kb_oplog_path_watcher;

/* Before the first operation, and only if records have numbers. */
void kb_oplog_watch_path(kb_oplog *log, const kb_oplog_path_watcher *watcher);
bool kb_oplog_is_path_watched(const kb_oplog *log);

void kb_oplog_tell_transfer(kb_oplog *log, const kb_oplog_transfer *transfer);

/* It ends now: what is sent at this instant is sent because of it. */
void kb_oplog_tell_control(kb_oplog *log, kb_oplog_control *control);

/* The same for an operation that control processors are told of: the kernel with that record. */
void kb_oplog_note_control(kb_oplog *log, uint32_t id);

/* The last record of the two calls before; 0: there is none, or paths are not watched. Because of
 * it the host or a control processor sends what it sends now. */
uint32_t kb_oplog_control_cause(const kb_oplog *log);

/* ---- Sums ---- */

typedef struct kb_op_sum {
    kb_unit unit;
    const char *name; /* "add" */
    uint64_t count;
    kb_time_sum busy; /* of their times */
    uint64_t bytes, flops;
    uint64_t kernel_bytes; /* of those bytes: of operations that belong to launches */
} kb_op_sum;

/* Of all operations so far, by unit and name; ordered by unit, then name. Good until the next
 * operation. */
const kb_op_sum *kb_oplog_sums(kb_oplog *log, size_t *count);

/* How long the unit of the PE was at work so far: of a unit whose operations are announced or told
 * ahead, the time with at least one; of others, the sum of their times. */
kb_time kb_oplog_busy(kb_oplog *log, uint64_t pe, kb_unit unit);

typedef struct kb_timeline {
    kb_time kernels;    /* at least one runs */
    kb_time launching;  /* none runs, but a launch is under way */
    kb_time requesting; /* no launch either, but another request */
    kb_time idle;
    uint64_t pes;                  /* that ran a kernel so far: they take part */
    kb_time_sum causes[KB_CAUSES]; /* over these: adds up to pes * kernels */
    uint64_t bytes[KB_CAUSES];     /* of what was begun while a kernel ran there */
    kb_time_sum both_engines;      /* of the causes' sum: both engines worked, */
    kb_time_sum needed_drain;      /* products waited for nothing but results that drain */
    kb_time_sum in_kernels;        /* of the PEs' time: the kernels' own */
    uint64_t longest_pe;           /* the PE whose kernels took longest, all together, */
    kb_time longest, mean;         /* and how long they took, there and on average */
} kb_timeline;

kb_timeline kb_oplog_timeline(kb_oplog *log);

#endif
