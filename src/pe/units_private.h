/* units_private.h: the state of the units, which units.c, units_order.c and units_work.c share. */
#ifndef KB_PE_UNITS_PRIVATE_H
#define KB_PE_UNITS_PRIVATE_H

#include "units.h"
#include "units_tcm.h"

enum {
    NONE = 0, /* of operations and waiters: pools give out no index 0 */
    LANES = 4,
    FEW_RECTS = 2, /* need no memory of their own */
};

/* Something for the agenda: a unit that may have a command to begin, or a span that is ready. */
typedef struct task {
    struct task *next;
    struct lane *lane; /* NULL: it is a span's */
    uint32_t span;
    bool listed;
} task;

/* First in, first out. */
typedef struct queue {
    uint32_t first, last;
} queue;

/* A unit of a PE. */
typedef struct lane {
    task look;
    kb_source source;
    queue program, internal;
    uint32_t waiting;        /* in the first of these */
    uint32_t busy;           /* of its channels; an engine has one */
    uint32_t oldest, newest; /* of a DMA: under way, in the order of their beginnings */
    kb_unit unit;
    kb_waitlist room; /* those that found the first of the queues full */
} lane;

/* Where rectangles are, roughly: between two offsets of one memory, or in several. */
typedef struct bounds {
    uint64_t memory; /* a number of it */
    uint64_t start, end;
    bool several;
} bounds;

/* Memory that an operation under way touches. */
typedef struct mark {
    bounds where;
    uint32_t operation;
    bool writes;
} mark;

typedef struct pe_state {
    lane lanes[LANES];
    pe_tcm_port reads, writes; /* of the TCM */
    kb_waitlist progress;
    kb_waitlist done; /* those that wait for the one operation `awaited` */
    pe_op awaited;
    kb_pe pe;
    uint64_t number;
    uint64_t issued;     /* operations, ever */
    uint64_t under_way;  /* operations */
    uint32_t node;       /* of the DMA */
    uint32_t first_long; /* under way that has memory of its own for its rectangles */
    KB_VEC(mark) marks;  /* of all under way that later ones may have to wait for */
} pe_state;

/* Of a command of an engine. */
typedef struct engine_work {
    kb_time time, tail;
    uint64_t tcm_reads, tcm_writes; /* bytes */
} engine_work;

/* Of what touches memory: DMAs and most spans. */
typedef struct memory_work {
    mem_rect *rects;     /* what it reads, and then what it writes */
    kb_time not_before;  /* of a DMA: its own TCM has not passed what stays there */
    uint64_t streamed;   /* of a DMA: bytes that it has in the fabric */
    uint32_t transfers;  /* of a DMA: that have not ended */
    uint32_t read_count; /* of the rectangles */
    uint32_t marked;     /* which mark is its own, and 1; 0: none */
    uint32_t previous_long, next_long;
    mem_rect few[FEW_RECTS];
} memory_work;

/* Of a span. */
typedef struct span_work {
    task ready;
    void (*is_ready)(void *self, uint64_t arg);
} span_work;

/*
 * What all operations have comes first and is set in each; the rest is set only in those that it is
 * of, so a command costs the memory that it uses.
 */
typedef struct operation {
    pe_state *pe;
    lane *lane; /* NULL: a span */
    uint64_t sequence;
    pe_op product_before;    /* of a product: the last product that it comes after; 0: none */
    uint32_t waits_for;      /* so many operations */
    uint32_t waiters;        /* the first of those that wait for it */
    uint32_t previous, next; /* in its queue, and then among those under way in its lane */
    uint32_t rect_count;     /* what it reads and writes in memory */
    bool occupies;           /* its unit cannot begin another */
    bool drains;             /* its unit is free, its results are on their way */
    bool is_needed;          /* a product waits for nothing but these results */
    bool in_tcm;             /* the log knows that it is at its own TCM alone */
    bool watched;            /* `log` is there */
    bool of_kernel;          /* it belongs to a launch */
    kb_time start;
    void (*ended)(void *self, uint64_t arg);
    void *self;
    uint64_t arg;

    /* Commands. */
    kb_error *(*begun)(void *self, uint64_t arg);
    const char *name;
    uint64_t flops;
    uint64_t bytes; /* for the log */

    union {
        engine_work engine;
        memory_work memory;
    };
    span_work span;
    kb_op log; /* of a command, if somebody watches */
} operation;

typedef struct waiter {
    uint32_t operation;
    uint32_t next;
} waiter;

/* Bytes of a command at one node. */
typedef struct share {
    uint64_t bytes;
    uint32_t node;
    kb_cause cause; /* what a PE that waits for them waits for */
} share;

struct pe_units {
    pe_units_options has;
    const topo_shape *shape;
    pe_state **pes; /* by number; NULL until used */
    net_ways ways;
    kb_pool operations, waiters;
    KB_VEC(uint32_t) generations; /* of operations, by index */
    KB_VEC(uint32_t) blockers;    /* of the operation in hand */
    KB_VEC(share) shares;         /* of the command in hand */
    kb_handler on_free, on_end;
    task *agenda, *agenda_end;
    uint32_t depth; /* of calls in hand: the outermost sees to the agenda */
    bool failed;    /* so has the run: nothing begins any more */
};

static inline operation *operation_at(const pe_units *units, uint32_t index)
{
    return kb_pool_at(&units->operations, index);
}

static inline bool units_is_dma(kb_unit unit)
{
    return unit == KB_UNIT_DMA_READ || unit == KB_UNIT_DMA_WRITE;
}

/* ---- units.c ---- */

/* NULL if there is no memory. */
pe_state *units_need_pe(pe_units *units, kb_pe pe);

/* The operation waits for nobody any more, if so: its turn comes. */
void units_put_if_ready(pe_units *units, operation *op);

/* The operation is done. */
void units_end(pe_units *units, uint32_t index);

/* The run fails. */
void units_fail(pe_units *units, kb_error *err);

/* The product waits for one operation. If that is a product that drains, the log is told. */
void units_note_chain(pe_units *units, const operation *op);

/* The operation's entry for the log; NULL unless the log is watched. */
static inline const kb_op *units_entry(const operation *op)
{
    return op->watched ? &op->log : NULL;
}

/* ---- units_order.c: what waits for what ---- */

/* What an operation reads and writes in memory. */
typedef struct touches {
    const mem_rect *reads, *writes;
    size_t read_count, write_count;
} touches;

/* An operation that knows what it waits for, and is in no queue yet. */
KB_MUST_USE kb_error *units_make_operation(pe_units *units, kb_pe pe,
                                           const pe_op after[PE_MAX_AFTER], const touches *memory,
                                           bool unordered, uint32_t *index);
void units_give_operation(pe_units *units, uint32_t index);
pe_op units_name(const pe_units *units, uint32_t index);

/* Those in the list, an operation's `waiters`, wait for one less. */
void units_release_waiters(pe_units *units, uint32_t first);

/* ---- units_work.c: what a command does ---- */

/* It has been begun, so its start is known. It may end before this returns. */
KB_MUST_USE kb_error *units_begin_engine(pe_units *units, uint32_t index);
KB_MUST_USE kb_error *units_begin_dma(pe_units *units, uint32_t index);

#endif
