/*
 * units.h: the units of the PEs: matrix engine, vector engine, the two sides of the DMA, and the
 * TCM that they share. Commands are issued to a PE's units in the order of its program; each unit
 * takes its commands in that order and begins one when it is free, the operations that the command
 * comes after are done, and (DMA) no earlier command of the same PE that is not done moves the same
 * bytes of memory, unless both only read. So the units overlap, and the program means what it says.
 *
 *     pe_op loaded, added;
 *     pe_command load = {.unit = KB_UNIT_DMA_READ, .rects = rects, .rect_count = count};
 *     KB_TRY(pe_units_issue(units, pe, &load, &loaded));
 *     pe_command add = {.unit = KB_UNIT_MATH, .after = {loaded}, .time = pe_math_time(...)};
 *     KB_TRY(pe_units_issue(units, pe, &add, &added));
 *
 * The TCM has two servers, one for what units read from it and one for what they write. An engine
 * books its bytes at both when it begins, behind what is booked already, and does not end before
 * they are through: so it takes the time of its engine or of its bytes, whichever is longer, and
 * more if others are at the TCM. What a DMA moves passes the TCM on its way, in time that engines
 * leave, and if they left too little, afterwards (units_tcm.h).
 */
#ifndef KB_PE_UNITS_H
#define KB_PE_UNITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "mem/mem.h"
#include "net/net.h"
#include "sim/sim.h"
#include "topo/topo.h"

typedef struct pe_units pe_units; /* of all PEs of a machine; a PE costs little until it is used */

typedef struct pe_units_options {
    kb_sim *sim;
    const topo_machine *machine;
    net *fabric;
    mem_memories *memories;
    kb_oplog *log;
    uint32_t first_source; /* in the order of events: pe_units_source_count() from here on */
} pe_units_options;

/* All that the options name must stay. */
KB_MUST_USE kb_error *pe_units_create(const pe_units_options *options, pe_units **units);

/* Not while something is under way, unless the simulator was abandoned. */
void pe_units_destroy(pe_units *units);
uint32_t pe_units_source_count(const topo_machine *machine);

/* Names an operation that was issued. Once it is done it is as good as 0, which is none. */
typedef uint64_t pe_op;

enum { PE_MAX_AFTER = 6 };

typedef struct pe_command {
    kb_unit unit;                   /* KB_UNIT_GEMM, _MATH, _DMA_READ or _DMA_WRITE */
    kb_time time;                   /* engines: how long it occupies the unit */
    kb_time tail;                   /* and how much later its result is there: it is done then */
    uint64_t tcm_reads, tcm_writes; /* engines: bytes; DMAs know themselves */
    const mem_rect *rects;          /* DMAs: what is moved; copied */
    size_t rect_count;              /* none: nothing is moved, and it takes no time */
    pe_op after[PE_MAX_AFTER];
    bool internal; /* of a composite operation, which knows itself what overlaps what: it waits only
                      for `after`, has a queue of its own, and no limit there */
    bool apart;    /* no other command of this PE touches the same bytes while it is under way */

    /* Called when it begins, which is when a DMA reads memory or changes it; and when it is done.
     * Both may be NULL, and may issue commands. An error of the first fails the run. */
    kb_error *(*begun)(void *self, uint64_t arg);
    void (*ended)(void *self, uint64_t arg);
    void *self;
    uint64_t arg;

    kb_op op; /* for the log: name, label, flops, result, operands, launch, file, line; the rest is
                 filled in */
} pe_command;

/* It may begin, and even be done, before this returns; *op is set before that. After an error
 * nothing was issued. */
KB_MUST_USE kb_error *pe_units_issue(pe_units *units, kb_pe pe, const pe_command *command,
                                     pe_op *op);

/* Whether the unit's queue takes another command that is not internal: fewer than queue_depth wait
 * there to begin. Issuing does not ask. */
bool pe_units_has_room(pe_units *units, kb_pe pe, kb_unit unit);

bool pe_units_is_done(const pe_units *units, pe_op op);

/* Operations of the PE that are not done. */
uint64_t pe_units_under_way(pe_units *units, kb_pe pe);

/* Waits until the unit's queue takes another; until the operation is done. A PE has one program, so
 * one coroutine at a time may wait for an operation of it. */
void pe_units_wait_for_room(pe_units *units, kb_pe pe, kb_unit unit, kb_co *co);
void pe_units_wait_for(pe_units *units, pe_op op, kb_co *co);

/* Woken whenever an operation of the PE has ended, or a queue that was full has room. NULL for want
 * of host memory. */
kb_waitlist *pe_units_progress(pe_units *units, kb_pe pe);

/* The PE's number in the op log. */
uint64_t pe_units_number(const pe_units *units, kb_pe pe);

/* ---- What engines take ---- */

typedef enum pe_math_class {
    PE_MATH_MOVE,
    PE_MATH_DIVIDE,
    PE_MATH_EXP,
    PE_MATH_GATHER, /* at places that an index says */
    PE_MATH_CLASSES
} pe_math_class;

/* ceil(elements / lanes) * (cycles of the classes, summed). `counts`: how often an element passes
 * in each class. */
uint64_t pe_math_cycles(const topo_pe_figures *figures, uint64_t elements,
                        const uint32_t counts[PE_MATH_CLASSES]);

/* The time of an operation that takes `cycles`: these, and the latency. */
kb_time pe_math_time(const topo_pe_figures *figures, uint64_t cycles);

/* How long m x k x n occupies the matrix engine, and what passes afterwards until the last result
 * is there. */
typedef struct pe_gemm_time {
    kb_time occupied, fill;
} pe_gemm_time;

pe_gemm_time pe_gemm_time_of(const topo_pe_figures *figures, uint64_t m, uint64_t k, uint64_t n);

/* 2 m k n; UINT64_MAX if that is more, which the log refuses. */
uint64_t pe_gemm_flops(uint64_t m, uint64_t k, uint64_t n);

/* What such a command reads of the TCM: a once for each fold of columns, and b once. One that adds
 * to what is there reads that too, which is not counted here. */
uint64_t pe_gemm_reads(const topo_pe_figures *figures, uint64_t m, uint64_t k, uint64_t n,
                       uint32_t a_bytes, uint32_t b_bytes);

/* ---- Operations of many commands --------------------------------------------------------- */

/*
 * Something that a PE does with many internal commands, such as a composite operation. It counts as
 * one operation from when it is opened until it is closed: others can come after it, and it takes
 * part in the rule about the same bytes of memory with all that it reads and writes.
 */
typedef struct pe_span {
    const mem_rect *reads, *writes; /* copied */
    size_t read_count, write_count;
    pe_op after[PE_MAX_AFTER];
    /* Called once, when all that it comes after is done: maybe before pe_units_open() returns, but
     * then *op is set already. It may issue commands, open others and close this one. NULL: nobody
     * asks, as it comes after nothing. */
    void (*ready)(void *self, uint64_t arg);
    void *self;
    uint64_t arg;
} pe_span;

/* After an error nothing has been opened, and `ready` is not called. */
KB_MUST_USE kb_error *pe_units_open(pe_units *units, kb_pe pe, const pe_span *span, pe_op *op);

/* It is done: what comes after it may begin, and who waits for progress is woken. Only after
 * `ready` was called. The log is told of it by whoever closes it. */
void pe_units_close(pe_units *units, pe_op op);

#endif
