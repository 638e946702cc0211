/*
 * profile.h: what took simulated time: the operations of hardware units, what determined their
 * begin and end, and what the time of PEs goes to.
 */
#ifndef KERNBENCH_PROFILE_H
#define KERNBENCH_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/base.h>
#include <kernbench/context.h>
#include <kernbench/memory.h>
#include <kernbench/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Operations -------------------------------------------------------------------------- */

/* What operations are done by. */
typedef enum kb_unit {
    KB_UNIT_HOST,      /* requests: transfers, commands, launches */
    KB_UNIT_CPU,       /* pe_cpu: a kernel, as a whole; and issuing its commands */
    KB_UNIT_DMA_READ,  /* pe_dma */
    KB_UNIT_DMA_WRITE, /* pe_dma */
    KB_UNIT_GEMM,      /* pe_gemm */
    KB_UNIT_MATH,      /* pe_math */
    KB_UNIT_SCHEDULER, /* pe_scheduler: composite operations, as a whole */
    KB_UNIT_IPCQ,      /* pe_ipcq: credits on their way back; and waiting, which is no work and
                          counts nowhere: "recv" for a message, "await credit" for a slot */
    KB_UNITS
} kb_unit;

KB_API const char *kb_unit_name(kb_unit unit); /* "pe_gemm" */

/*
 * What an operation accesses in the memory of a tensor: the bytes from the first to the last one
 * accessed, in the order of their addresses. With strides or a mask there may be gaps in between.
 */
typedef struct kb_op_access {
    const char *tensor;     /* its name */
    kb_dtype dtype;         /* of its elements */
    bool write;             /* else read */
    uint64_t offset, bytes; /* the offset is from the start of the tensor */
} kb_op_access;

/*
 * What determined when an operation began or ended: of all that it waited for, what came last. `id`
 * names the record of an operation, which began no later. Where the time is not that record's end
 * it is said here. docs/decisions/0032-causes-of-times.md has the rule.
 */
typedef enum kb_reason_kind {
    KB_REASON_NONE,   /* not known, or not asked for (kb_context_options.reasons) */
    KB_REASON_QUEUE,  /* the operation in front of it in its queue began then; id: that one */
    KB_REASON_LAUNCH, /* the kernel started; id: the kernel's record. The pe_cpu's overhead comes in
                         between. Of a kernel itself: its launch arrived; id: 0 */
    KB_REASON_ISSUE,  /* the pe_cpu issued it; id: the record of the issue, or of polling */
    KB_REASON_ROOM,   /* a queue had room; id: the operation that left it then: by beginning, or in
                         the scheduler's queue by ending */
    KB_REASON_UNIT,   /* the engine, a channel of the DMA or the scheduler became free; id: what it
                         did before, which may end later if it is a product whose results drain. Of
                         a kernel: the kernel before it on the PE */
    KB_REASON_ORDER,  /* an operation on the same bytes ended; id: that one */
    KB_REASON_SPACE,  /* space in the TCM was released; id: the operation that used it last. Of a
                         command of a composite operation also: fewer such commands were under way */
    KB_REASON_INPUT,  /* a value was there, or what the kernel waited for; id: what made it */
    KB_REASON_MESSAGE,  /* a message was there; id: its send, or that of its last part */
    KB_REASON_CREDIT,   /* a credit was there; id: the record of the credit */
    KB_REASON_TRANSFER, /* of an end: its own last transfer ended; id: 0 */
    KB_REASON_TCM,      /* of an end: its bytes passed a port of the TCM; id: the operation that
                           used the port when it began, 0 if none is known */
    KB_REASON_WORK,     /* of an end: the operation's own time was over; id: 0 */
    KB_REASON_KINDS
} kb_reason_kind;

KB_API const char *kb_reason_name(kb_reason_kind kind); /* "message" */

typedef struct kb_reason {
    kb_reason_kind kind;
    uint64_t id; /* of a record; 0: none */
} kb_reason;

/* Something that took time. Everything that does is one of these. */
struct kb_op {
    kb_unit unit;
    const char *name;  /* what: "load", "add", "kernel", "copy" */
    const char *label; /* of what: the launch, the tensor; "" if of nothing in particular */
    kb_pe pe;          /* of the unit; means nothing for the host */
    kb_time start, end;
    uint64_t bytes; /* moved */
    uint64_t flops;
    uint64_t result;      /* the number of the value that it made, 0 if none */
    uint64_t operands[3]; /* and of those that it used */
    uint64_t launch;      /* the number of the launch that it is of, from 1 on; 0 if of none */
    uint64_t message; /* of "send" and "recv": the number of the message, from 1 on; 0 if none */
    const char *direction; /* of "send", "recv" and "await credit": of the queue; else NULL */
    const kb_op_access *accesses; /* to tensors, by DMAs and composite operations */
    size_t access_count;
    bool unfinished;  /* it was under way when the run failed, at `end` */
    const char *file; /* of the kernel; NULL if it is of none */
    int line;
    uint64_t id; /* its number, from 1 on, in no particular order; this and the next two are 0
                    unless kb_context_options.reasons is set */
    kb_reason begun_by, ended_by;
};

/* Sums over operations. */
typedef struct kb_op_total {
    uint64_t count;
    kb_time_sum busy; /* of their times */
    uint64_t bytes, flops;
} kb_op_total;

/*
 * All operations of a unit so far, on all PEs: those of that name ("send"), or all if it is NULL.
 * What it grows by during a launch is the launch's own if nothing else is under way. A message that
 * takes several slots of its queue is one "send" for each.
 */
KB_API kb_op_total kb_context_op_total(kb_context *ctx, kb_unit unit, const char *name);

/*
 * What the time of a PE goes to. At each instant: the engines, if one works; else what the PE's
 * outstanding bytes wait for, in proportion to these bytes; else issuing. A PE without a kernel
 * counts as long as other PEs run one: until its launch arrives, or because it has finished.
 * docs/decisions/0015-attribution.md has the rule.
 */
typedef enum kb_cause {
    /* Compute. */
    KB_CAUSE_MATRIX,       /* the matrix engine is occupied; half of it if both engines work */
    KB_CAUSE_VECTOR,       /* the vector engine works */
    KB_CAUSE_MATRIX_DRAIN, /* the matrix engine is free, its last results are on their way out */
    /* Memory. */
    KB_CAUSE_LOCAL_MEMORY, /* HBM or SRAM of the PE's cube */
    KB_CAUSE_TCM,          /* the PE's own TCM */
    /* Communication. */
    KB_CAUSE_CUBE_PES,    /* TCM of other PEs of the cube */
    KB_CAUSE_OTHER_CUBES, /* memory of other cubes of the SIP */
    KB_CAUSE_OTHER_SIPS,  /* memory of other SIPs */
    KB_CAUSE_MESSAGE,     /* a message that has not arrived */
    KB_CAUSE_CREDIT,      /* a free slot at a receiver */
    KB_CAUSE_LAUNCH,      /* the launch of its next kernel is on its way, other PEs run theirs */
    /* Idle. */
    KB_CAUSE_ISSUE,     /* the pe_cpu issues a command or starts a kernel: nothing is outstanding */
    KB_CAUSE_IMBALANCE, /* it has no kernel and none is on its way, other PEs run theirs */
    KB_CAUSES
} kb_cause;

KB_API const char *kb_cause_name(kb_cause cause); /* "local_memory" */

/* The same in four groups. */
typedef struct kb_split_time {
    kb_time_sum compute;       /* an engine works, or results leave it */
    kb_time_sum memory;        /* stalled on memory of the cube */
    kb_time_sum communication; /* waiting for other PEs, cubes and SIPs, or for a launch */
    kb_time_sum idle;          /* none of them */
} kb_split_time;

KB_API kb_split_time kb_split_causes(const kb_time_sum causes[KB_CAUSES]);

#ifdef __cplusplus
}
#endif

#endif
