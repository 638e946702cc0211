/*
 * oplog.h: what was done and when. Every operation that takes time is told to the log when it has
 * ended, or when it begins if its end is known. The log adds up as it goes, and hands each record
 * to whoever wants all of them; it keeps none, so its size does not depend on the length of a run.
 *
 * Of a PE that runs a kernel it also knows what it is doing at each instant: computing; else
 * waiting for memory; else for communication; else nothing. These four add up to the time that
 * kernels ran there, to the femtosecond. Of the run as a whole it knows for how long at least one
 * kernel ran, for how long otherwise something was under way, and for how long nothing was: these
 * three add up to the run.
 *
 * If there is no host memory for what the log has to remember, it fails the run.
 */
#ifndef KB_SIM_OPLOG_H
#define KB_SIM_OPLOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

typedef struct kb_oplog kb_oplog;

/* `pes`: of the machine, which are numbered from 0. */
KB_MUST_USE kb_error *kb_oplog_create(kb_sim *sim, uint64_t pes, kb_oplog **log);
void kb_oplog_destroy(kb_oplog *log);

/* Gets every record, in the order of ends. NULL: nobody does. Before the first operation. */
void kb_oplog_watch(kb_oplog *log, kb_op_fn *fn, void *self);
bool kb_oplog_is_watched(const kb_oplog *log);

#define KB_OPLOG_HOST UINT64_MAX

/* The operation has ended, now. `pe` is the number of its PE, or KB_OPLOG_HOST. Its name is a
 * constant: the log keeps the pointer. */
void kb_oplog_add(kb_oplog *log, uint64_t pe, const kb_op *op);

/* What the sums need of an operation. */
typedef struct kb_op_brief {
    const char *name; /* a constant */
    kb_unit unit;
    bool of_kernel; /* it belongs to a launch */
    kb_time start;
    uint64_t bytes, flops;
} kb_op_brief;

/* The same while nobody watches: then nothing else of it matters. */
void kb_oplog_count(kb_oplog *log, uint64_t pe, const kb_op_brief *op);

/* The same for so many parts of an operation of their unit that is announced itself: only the sums
 * by name have to know. */
void kb_oplog_count_parts(kb_oplog *log, kb_unit unit, const char *name, uint64_t count,
                          kb_time busy);

/* Something that is no work, such as waiting, has ended, now: it counts nowhere, and only whoever
 * gets every record gets it. */
void kb_oplog_show(kb_oplog *log, const kb_op *op);

/*
 * The operation has begun, now, and when it ends is known: it counts at once, and whoever gets
 * every record gets it in its place: its texts must stay until then. Of a unit all operations are
 * told this way, or none; its time at work is that with at least one.
 */
void kb_oplog_add_ahead(kb_oplog *log, uint64_t pe, const kb_op *op);

/* The same while nobody watches. */
void kb_oplog_count_ahead(kb_oplog *log, uint64_t pe, const kb_op_brief *op, kb_time end);

/* Whoever gets every record gets those too that end later than now. For the end of a run. */
void kb_oplog_flush(kb_oplog *log);

/* The unit of the PE takes up an operation, now: one more kb_oplog_add() is going to end it. Only
 * for units that do several at a time; of such a unit all are to be announced. */
void kb_oplog_start(kb_oplog *log, uint64_t pe, kb_unit unit);

/* What a PE can be busy with. */
typedef enum kb_activity { KB_COMPUTING, KB_MEMORY, KB_COMMUNICATING, KB_ACTIVITIES } kb_activity;

/* Something of the kind begins or ends at the PE, now. */
void kb_oplog_begin(kb_oplog *log, uint64_t pe, kb_activity activity);
void kb_oplog_end(kb_oplog *log, uint64_t pe, kb_activity activity);

/* A kernel starts at the PE, and ends there with what the PE did meanwhile. A PE runs one at a
 * time. */
void kb_oplog_kernel_begin(kb_oplog *log, uint64_t pe);
kb_split_time kb_oplog_kernel_end(kb_oplog *log, uint64_t pe);

/* A request of the host is under way, and no longer. */
void kb_oplog_request_begin(kb_oplog *log);
void kb_oplog_request_end(kb_oplog *log);

/* ---- Sums ---- */

typedef struct kb_op_sum {
    kb_unit unit;
    const char *name; /* "add" */
    uint64_t count;
    kb_time busy; /* sum of their times */
    uint64_t bytes, flops;
    uint64_t kernel_bytes; /* of those bytes: of operations that belong to launches */
} kb_op_sum;

/* Of all operations so far, by unit and name; ordered by unit, then name. Good until the next
 * operation. */
const kb_op_sum *kb_oplog_sums(kb_oplog *log, size_t *count);

/* How long the unit of the PE was at work so far: of a unit whose operations are announced or told
 * ahead, the time with at least one; of others, the sum of their times. */
kb_time kb_oplog_busy(const kb_oplog *log, uint64_t pe, kb_unit unit);

typedef struct kb_timeline {
    kb_time kernels;       /* at least one runs */
    kb_time communicating; /* none runs, but requests are under way */
    kb_time idle;
    kb_split_time pes; /* summed over all PEs that ran a kernel */
} kb_timeline;

kb_timeline kb_oplog_timeline(const kb_oplog *log);

#endif
