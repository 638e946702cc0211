/*
 * engines.h: commands of the matrix engine and of the vector engine, whose times are computed
 * instead of simulated.
 *
 * A command begins when its engine is free and its inputs are there, in the order of the program,
 * and ends when its time is over and its bytes have passed the TCM. The two engines share the ports
 * of the TCM in the order of their begins. So a begin b is final when nothing that is not known yet
 * can begin earlier:
 *
 *   - the program issues nothing before b: its clock is there, or it waits for a result of that
 * time or later;
 *   - commands of the engines whose inputs are not known cannot begin before b;
 *   - no composite operation that was issued before b is under way, and no DMA command that copies
 *     inside the TCM: these use engines or ports from events.
 *
 * What is not final waits in the queue of its engine. It is looked at again when the program's
 * clock advances or an input becomes known, and at the latest in an event at b, where all of the
 * above is in the past.
 */
#ifndef KB_PE_ENGINES_H
#define KB_PE_ENGINES_H

#include <stdbool.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

enum { PE_MAX_INPUTS = 6 };

/* When a value is there. */
typedef struct pe_ready {
    kb_time at;          /* KB_FOREVER: not known yet */
    kb_time drains_from; /* of a product: its array was free then, only results were on their way;
                            0: of anything else */
    bool by_engine;      /* a command that waits in the queue of an engine of the PE makes it */
    uint32_t id;         /* of the record of what made it; 0: unknown */
} pe_ready;

/*
 * A command of an engine. The units keep a copy of one of the program until its times are known;
 * an internal one belongs to its issuer and must stay until then. So must the times of its inputs.
 */
typedef struct pe_work {
    struct pe_work *next; /* of an internal one: in the queue of its engine */
    kb_unit unit;         /* KB_UNIT_GEMM or KB_UNIT_MATH */
    bool internal;        /* of a composite operation: in a queue of its own, which has no limit */
    bool in_event;        /* `known` is to be called at its begin, not before */
    bool of_kernel;       /* it belongs to a launch */
    bool noted_drain;     /* the log knows whether it waits for results of a product */
    uint8_t input_count;
    uint8_t unknown_input;                 /* one that was not known when all were looked at last */
    const pe_ready *inputs[PE_MAX_INPUTS]; /* when the values that it reads are there */
    kb_time time;                          /* that it occupies the engine */
    kb_time tail;                          /* and how much later its result is there */
    uint64_t tcm_reads, tcm_writes;        /* bytes */
    kb_time issued;                        /* by the program's clock: the first one begins first; */
    uint64_t sequence;                     /* of one time, the first in the program */
    const char *name;                      /* for the log: a constant */
    uint64_t flops;
    kb_op *entry; /* for the log, if it is watched; else NULL. Stays until the times are known. Has
                     the record's id, and in begun_by the reason of its issue */
    /* Its times are known: they never change. The work is there until another one is issued to the
     * engine. */
    void (*known)(const struct pe_work *work, kb_time begin, pe_ready result);
    void *self, *arg;          /* these four are the issuer's own */
    pe_ready *result, *second; /* what it makes; `second` may be NULL */
} pe_work;

#endif
