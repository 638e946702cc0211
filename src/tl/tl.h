/*
 * tl.h: running kernels. What a kernel may call is in <kernbench/tl.h>.
 */
#ifndef KB_TL_TL_H
#define KB_TL_TL_H

#include <stdint.h>

#include <kernbench/kernbench.h>
#include <kernbench/tl.h>

#include "data/data.h"
#include "ipcq/ipcq.h"
#include "mem/mem.h"
#include "oplog/oplog.h"
#include "pe/pe.h"
#include "races.h"
#include "sim/sim.h"
#include "topo/topo.h"

typedef struct tl_runner tl_runner; /* what the kernels of a machine share */

typedef struct tl_runner_options {
    kb_sim *sim;
    const topo_machine *machine;
    mem_memories *memories;
    mem_mmu *const *mmus; /* one a SIP */
    pe_units *units;
    pe_composites *composites;
    kb_oplog *log;
    data_store *store; /* of values */
    ipcq *queues;      /* NULL: kernels cannot send or receive */
    bool timing_only; /* memory has no contents: values exist only where they do not depend on it */
    bool instant; /* commands take no time and no units (units, composites and fabric are NULL): for
                     mock runs, with data */
    uint32_t window; /* how many commands a kernel issues ahead of global time at most, and 1: the
                        results do not depend on it. 0: a default */
    uint32_t first_source; /* in the order of events: one for each PE */
} tl_runner_options;

/* All that the options name must stay. */
KB_MUST_USE kb_error *tl_runner_create(const tl_runner_options *options, tl_runner **runner);

/* Not while kernels run, unless the simulator was abandoned. */
void tl_runner_destroy(tl_runner *runner);

/* How a kernel ended on a PE. */
typedef struct tl_outcome {
    kb_time start, end;     /* its turn came; it and all its commands were done */
    kb_time busy[KB_UNITS]; /* of the PE's units meanwhile; of the pe_cpu, issuing commands */
    kb_time_sum causes[KB_CAUSES]; /* what the PE's time went to meanwhile */
} tl_outcome;

/* Takes over the error. */
typedef void tl_done_fn(void *self, uint64_t arg, const tl_outcome *outcome, kb_error *err);

typedef struct tl_run {
    const kb_kernel *kernel;
    const tl_arg *args; /* as many as it has parameters; must stay until it is done */
    const char *label;  /* the name of the launch; must stay */
    uint64_t launch;    /* its number */
    kb_time posted;     /* what kb_oplog_kernel_clock() showed when the host sent it */
    kb_pe pe;
    int64_t programs[2]; /* what tl_num_programs() says */
    ipcq_set *queues;    /* whose directions it has; NULL: none */
    tl_races *races;     /* of its launch; must stay. NULL: it is not checked */
    const char *stream;  /* that the launch is in; NULL: none worth naming. Must stay */
    const char *scope;   /* that it declared, if it is a narrow one; else NULL. Must stay */
    /* Called when it begins: why it must not, which stays; NULL if it may. May be NULL itself. */
    const kb_error *(*refused)(void *self, uint64_t arg);
    tl_mark (*after)(void *self, uint64_t arg); /* called when it begins: what comes before all of
                                                   it. NULL: nothing */
    void (*over)(void *self, uint64_t arg,
                 tl_mark over); /* called before the next one on the PE
                                   begins: where it is over. May be NULL */
    tl_done_fn *done;
    void *self;
    uint64_t arg;
} tl_run;

/*
 * Runs the kernel on the PE, behind those that were started there before. It takes the pe_cpu's
 * overhead to begin. `done` is called when it and everything that it issued are done.
 */
KB_MUST_USE kb_error *tl_runner_start(tl_runner *runner, const tl_run *run);

/* The run has failed: shows the log's watcher the kernels under way and what they wait for, as
 * unfinished. */
void tl_runner_show_unfinished(const tl_runner *runner);

/*
 * Ends the kernels of a launch, wherever they wait, with a copy of the error; those that have not
 * begun too. What they have issued goes its way first; receives that are not satisfied are
 * withdrawn. `done` is called as usual.
 */
void tl_runner_abort(tl_runner *runner, uint64_t launch, const kb_error *why);

/* Numbers that kernels asked for with tl_item_or() in a run without data: how many were replaced by
 * their stand-ins, and where that was first so. */
typedef struct tl_stand_ins {
    uint64_t count;
    tl_srcloc first;
} tl_stand_ins;

tl_stand_ins tl_runner_stand_ins(const tl_runner *runner);

/* ---- For kernels in other languages -------------------------------------------------------- */

/* What a tensor of the kernel is: its shape and dtype. Not of a plain number. */
void tl_describe(const tl_context *tl, tl_tensor x, tl_dims *shape, kb_dtype *dtype);

kb_pe tl_pe(const tl_context *tl);

/* What tl_num_programs() says; also when the kernel is being stopped. */
int64_t tl_programs(const tl_context *tl, int axis);

/* The part of the numbers of tensors that all of the kernel have in common. */
uint64_t tl_kernel_bits(const tl_context *tl);

/* Receives the next value, whatever its shape and dtype. It gets its TCM when it has arrived. */
tl_tensor tl_recv_any_form(tl_context *tl, tl_srcloc at, const char *direction);

/* A value of the kernel with these numbers, which takes TCM and no time. */
tl_tensor tl_value_of_bytes(tl_context *tl, tl_srcloc at, tl_dims shape, kb_dtype dtype,
                            const void *bytes);

/* All elements of a value, row by row in its dtype, after waiting for them as tl_item() does; false
 * if a run without data has none. */
bool tl_read_value(tl_context *tl, tl_srcloc at, tl_tensor x, void *data);

#endif
