/*
 * units.h: the units of the PEs: pe_cpu, matrix engine, vector engine, the two engines of the DMA,
 * and the TCM that they share.
 *
 * A PE has a clock of its own (pe_cpu.clock), which runs ahead of global time: its program issues
 * commands at that clock without waiting, as long as nothing that it asks for is unknown. Each unit
 * takes its commands in the order of the program and begins one when the unit is free, the values
 * that it reads are there, and (DMA) no earlier command of the same PE that touches the same bytes
 * of memory is under way, unless both only read.
 *
 * A command of an engine has no events: its begin and end are computed as soon as they cannot
 * change any more (engines.h), maybe ahead of global time. A command of the DMA begins in an event,
 * as it moves packets and reads or changes memory then.
 *
 *     pe_command load = {.unit = KB_UNIT_DMA_READ, .rects = rects, .rect_count = count,
 *                        .issued = cpu->clock, .ended = on_loaded, ...};
 *     KB_TRY(pe_units_issue(units, pe, &load, &op));
 *     pe_work *add = pe_cpu_next_work(cpu, KB_UNIT_MATH);
 *     add->inputs[0] = &loaded, ...;
 *     if (!pe_cpu_resolve(cpu, add, &sum))
 *         pe_cpu_queue(cpu, add);
 *
 * The TCM has two ports, one for what units read from it and one for what they write (tcm_port.h).
 * Copies of the host (dma.h) are commands to the same engines of the DMA.
 */
#ifndef KB_PE_UNITS_H
#define KB_PE_UNITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "engines.h"
#include "mem/mem.h"
#include "net/net.h"
#include "oplog/oplog.h"
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

/* How the times of engines' commands came about. */
typedef struct pe_stats {
    uint64_t resolved;           /* known when they were issued */
    uint64_t waited_for_input;   /* an input was not known then, */
    uint64_t waited_for_command; /* or an earlier command was not, */
    uint64_t waited_for_event;   /* or they had to begin in an event */
} pe_stats;

pe_stats pe_units_get_stats(const pe_units *units);

/* The PE's number in the op log. */
uint64_t pe_units_number(const pe_units *units, kb_pe pe);

/* Names an operation that was issued. Once it is done it is as good as 0, which is none. */
typedef uint64_t pe_op;

typedef struct pe_command {
    kb_unit unit;                   /* KB_UNIT_GEMM, _MATH, _DMA_READ or _DMA_WRITE */
    kb_time issued;                 /* now or later; 0 means now */
    kb_time time;                   /* engines: how long it occupies the unit */
    kb_time tail;                   /* and how much later its result is there: it is done then */
    uint64_t tcm_reads, tcm_writes; /* engines: bytes; DMAs know themselves */
    const mem_rect *rects;          /* DMAs: what is moved; copied */
    size_t rect_count;              /* none: nothing is moved, and it takes no time */
    /* When the values that it reads are there. Must stay until it begins; pe_units_poll() when one
     * becomes known. NULL: none. */
    const pe_ready *inputs[PE_MAX_INPUTS];
    pe_op after[PE_MAX_INPUTS]; /* operations that it comes after */
    bool internal; /* of a composite operation, which knows itself what overlaps what: it waits only
                      for `after` and `inputs`, has a queue of its own, and no limit there */
    pe_op part_of; /* internal: the span that it belongs to; 0: none */
    uint64_t sequence; /* internal: pe_cpu_take_sequence() of the call that it is of; 0: none */
    bool apart; /* no other command of this PE touches the same bytes while it is under way */
    /* Of the DMA, with one rectangle: it belongs to a copy of the host. It comes after nothing, has
     * a queue of its own, and begins before others of the same issue time. The log is not told
     * of it: it knows the request of the host. */
    bool of_host;
    bool forwards; /* of_host: writes what a read has just brought (net_order.forwarded) */
    bool fills;    /* of_host: writes what the DMA makes up: it reads nothing from the TCM */

    /* Called when it begins, which is when a DMA reads memory or changes it; and when it is done.
     * Both may be NULL, and may issue commands. An error of the first fails the run. */
    kb_error *(*begun)(void *self, uint64_t arg);
    void (*ended)(void *self, uint64_t arg);
    net_done_fn *moved; /* of_host: called when its transfer has ended; may be NULL */
    void *self;
    uint64_t arg;

    kb_op op; /* for the log: name, flops (of engines), launch; and if it is watched: label, result,
                 operands, file, line, id (0: it gets one), and in begun_by the reason of its issue.
                 The rest is filled in */
} pe_command;

/* It may begin, and even be done, before this returns; *op is set before that. After an error
 * nothing was issued. */
KB_MUST_USE kb_error *pe_units_issue(pe_units *units, kb_pe pe, const pe_command *command,
                                     pe_op *op);

bool pe_units_is_done(const pe_units *units, pe_op op);

/* Operations of the PE that are not done. */
uint64_t pe_units_under_way(pe_units *units, kb_pe pe);

/* A time that commands of the PE were given as an input is known now. */
void pe_units_poll(pe_units *units, kb_pe pe);

/* ---- The pe_cpu -------------------------------------------------------------------------- */

/* What the program of a PE waits for. */
typedef enum pe_wait {
    PE_RUNS,            /* nothing: it runs, or there is none */
    PE_SLEEPS,          /* its clock */
    PE_WAITS_FOR_ANY,   /* anything that becomes known or ends */
    PE_WAITS_FOR_ROOM,  /* in the queue of a unit */
    PE_WAITS_FOR_OP,    /* the end of an operation */
    PE_WAITS_FOR_VALUE, /* a time to become known */
    PE_WAITS_FOR_OTHERS /* something outside of this PE's units: pe_cpu_wake() */
} pe_wait;

typedef struct pe_cpu {
    kb_time clock;       /* its own time; while the program runs: now or later */
    kb_time horizon;     /* while it does not run: it issues nothing before this */
    kb_time engines_end; /* the latest known end of an engine's command */
    uint32_t queued;     /* commands that wait in the queues of both engines */
    bool shares_units;   /* something else issues commands to its units, from events: a composite
                            operation, or a copy inside the TCM. The program should follow global
                            time meanwhile, so that commands are issued in the order of time */
    pe_wait waits;
    kb_unit room_of;
    pe_op op;
    const pe_ready *value;
    kb_co *co;
    /* Only if records have ids: */
    kb_reason clock_by; /* what advanced the clock to where it is, but for the pe_cpu's own time */
    uint32_t awaited;   /* what ended the last wait for an operation or for a queue of the DMA */
    uint32_t last_to_end; /* the record that ends at engines_end */
} pe_cpu;

/*
 * The clock has been advanced since it was `asked`, if at all, because of that. Without ids nothing
 * has a reason, and none is noted.
 */
static inline void pe_cpu_explain(pe_cpu *cpu, kb_time asked, kb_reason_kind kind, uint64_t id)
{
    if (KB_UNLIKELY(id != 0) && cpu->clock > asked)
        cpu->clock_by = (kb_reason){kind, id};
}

/* NULL for want of host memory. */
pe_cpu *pe_units_cpu(pe_units *units, kb_pe pe);

/* A program begins or ends on the PE, now; one at a time. */
void pe_cpu_begin(pe_cpu *cpu, kb_co *co);
void pe_cpu_end(pe_cpu *cpu);

/*
 * Each of these advances the program's clock to when it can go on, and suspends the program only
 * if that time is not known. Called by the program itself.
 */
void pe_cpu_await_room(pe_cpu *cpu, kb_unit unit); /* in the unit's queue */
void pe_cpu_await_op(pe_cpu *cpu, pe_op op);
void pe_cpu_await_value(pe_cpu *cpu, const pe_ready *ready);

/* Sleeps until global time is the program's clock. */
void pe_cpu_synchronise(pe_cpu *cpu);

/* Suspends the program until an operation of the PE ends or a time becomes known, at the latest
 * until then. Call pe_cpu_synchronise() first: the clock is global time, before and after. */
void pe_cpu_await_progress(pe_cpu *cpu, kb_time deadline);

/* Suspends the program until pe_cpu_wake(). The list is for reports of deadlocks. */
void pe_cpu_suspend(pe_cpu *cpu, kb_waitlist *list);
void pe_cpu_wake(pe_cpu *cpu);

/* The program's next place among commands of one issue time, for one that an event will issue. */
uint64_t pe_cpu_take_sequence(pe_cpu *cpu);

/* pe_units_issue() for the program's PE. */
KB_MUST_USE kb_error *pe_cpu_issue(pe_cpu *cpu, const pe_command *command, pe_op *op);

/* An event of the PE. */
void pe_cpu_schedule(pe_cpu *cpu, kb_time at, kb_handler handler, uint64_t arg);

/*
 * How the program issues a command of an engine at its clock, when there is room in the queue.
 * pe_cpu_next_work() returns the command to be filled in, with its unit set: all but `next` and
 * `sequence`. NULL if there is no host memory. Then pe_cpu_resolve() is true if its times are final
 * at once: *result is set, and nothing else happens. Else pe_cpu_queue() puts it into the queue,
 * and its `known` is called later.
 */
pe_work *pe_cpu_next_work(pe_cpu *cpu, kb_unit unit);
bool pe_cpu_resolve(pe_cpu *cpu, const pe_work *work, pe_ready *result);
void pe_cpu_queue(pe_cpu *cpu, pe_work *work);

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
uint64_t pe_math_cycles(const topo_pe_params *params, uint64_t elements,
                        const uint32_t counts[PE_MATH_CLASSES]);

/* The time of an operation that takes `cycles`: these, and the latency. */
kb_time pe_math_time(const topo_pe_params *params, uint64_t cycles);

/* How long m x k x n occupies the matrix engine, and what passes afterwards until the last result
 * is there. */
typedef struct pe_gemm_time {
    kb_time occupied, fill;
} pe_gemm_time;

pe_gemm_time pe_gemm_time_of(const topo_pe_params *params, uint64_t m, uint64_t k, uint64_t n);

/* 2 m k n; UINT64_MAX if that is more, which the log refuses. */
uint64_t pe_gemm_flops(uint64_t m, uint64_t k, uint64_t n);

/* What such a command reads of the TCM: a once for each fold of columns, and b once. One that adds
 * to what is there reads that too, which is not counted here. */
uint64_t pe_gemm_reads(const topo_pe_params *params, uint64_t m, uint64_t k, uint64_t n,
                       uint32_t a_bytes, uint32_t b_bytes);

/* ---- Operations of many commands --------------------------------------------------------- */

/*
 * Something that a PE does with many internal commands, such as a composite operation. It counts as
 * one operation from when it is opened until it is closed: others can come after it, and it takes
 * part in the rule about the same bytes of memory with all that it reads and writes.
 */
typedef struct pe_span {
    kb_time issued;                 /* now or later; 0 means now */
    const mem_rect *reads, *writes; /* copied */
    size_t read_count, write_count;
    const pe_ready *inputs[PE_MAX_INPUTS]; /* as of a command */
    bool uses_engines;                     /* it will issue commands of engines */
    /* Called once, when all that it comes after is done: maybe before pe_units_open() returns, but
     * then *op is set already. It may issue commands, open others and close this one. NULL: it
     * comes after nothing. */
    void (*ready)(void *self, uint64_t arg);
    void *self;
    uint64_t arg;
    uint64_t id;         /* of the record whose end is its own; 0: none, or not known yet */
    kb_reason issued_by; /* the reason of its issue */
} pe_span;

/* After an error nothing has been opened, and `ready` is not called. */
KB_MUST_USE kb_error *pe_units_open(pe_units *units, kb_pe pe, const pe_span *span, pe_op *op);

/*
 * A command of an engine that is part of a span. It is issued now and waits for nothing but its
 * engine. Of `work` its issuer fills in the unit, what it takes, and what the log is told.
 */
typedef struct pe_part {
    pe_work work;                            /* first */
    void (*ended)(void *self, uint64_t arg); /* called when it is done: its memory is free then */
    void *self;
    uint64_t arg;
} pe_part;

/* The part belongs to its issuer and stays where it is until it is done. */
void pe_units_issue_part(pe_units *units, pe_op span, pe_part *part);

/* Of a span with an id, from `ready` on: what determined when that was called. */
kb_reason pe_units_begun_by(const pe_units *units, pe_op op);

/* The record whose end is that of the span has this id. */
void pe_units_set_id(pe_units *units, pe_op op, uint64_t id);

/* It is done, now: what comes after it may begin. Only after `ready` was called. The log is told of
 * it by its owner. */
void pe_units_close(pe_units *units, pe_op op);

#endif
