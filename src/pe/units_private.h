/*
 * units_private.h: the state of the units, which units.c, units_order.c, units_work.c, engines.c
 * and cpu.c share.
 */
#ifndef KB_PE_UNITS_PRIVATE_H
#define KB_PE_UNITS_PRIVATE_H

#include "tcm_port.h"
#include "units.h"

enum {
    NONE = 0, /* of waiters: pools give out no index 0 */
    LANES = 2,
    ENGINES = 2,
    SOURCES = LANES + ENGINES, /* of events, each PE */
    FEW_RECTS = 2,             /* need no memory of their own */
};

/* What is to be looked at before the call in hand returns to the simulator. */
typedef enum task_kind { LOOK_AT_LANES, LOOK_AT_ENGINES, LOOK_AT_SPAN, RESUME_PROGRAM } task_kind;

typedef struct task {
    struct task *next;
    void *of; /* a pe_state or an operation */
    task_kind kind;
    bool listed;
} task;

typedef struct operation operation;

/* First in, first out. */
typedef struct queue {
    operation *first, *last; /* the last is unused if there is no first */
} queue;

/* What happened last, if records have ids. */
typedef struct happening {
    kb_time at;
    uint64_t id; /* of the record; 0: nothing has happened */
} happening;

/* The command of an engine whose bytes are the last to pass a port of the TCM. */
typedef struct port_user {
    kb_time begin, passed; /* it begins, and its bytes have passed */
    uint64_t id;
} port_user;

/* An engine of the DMA. */
typedef struct lane {
    struct pe_state *pe;
    kb_source source;
    queue program, internal, host;
    uint32_t waiting;           /* in the first of these */
    uint32_t busy;              /* of its channels */
    uint32_t busy_for_host;     /* of these: with copies of the host */
    operation *oldest, *newest; /* under way, in the order of their begins */
    kb_unit unit;
    happening freed;                         /* a channel, when all were busy */
    happening program_begun, internal_begun; /* a command of the queue */
} lane;

typedef struct work_queue {
    pe_work *first, *last;
} work_queue;

/* The matrix engine or the vector engine. */
typedef struct engine {
    kb_time free_at;
    kb_time looked_at; /* an event of the last command's end, which looks at both engines */
    work_queue internal;
    pe_work *waiting_works; /* commands of the program that wait: a ring of a power of two */
    uint32_t room;          /* in it, */
    uint32_t first_waiting; /* the first of them, */
    uint32_t waiting;       /* and how many there are */
    uint32_t issued;        /* commands of the program, modulo the depth of its queue */
    kb_time *begins;        /* of the last of them, by number modulo that depth */
    uint32_t *begin_ids;    /* the same of their records; NULL if these have no ids */
    uint32_t last_id;       /* the record of the last command that has begun */
    uint32_t in_ring;       /* how many of these have been issued: at most the depth */
} engine;

/* Where rectangles are, roughly: between two offsets of one memory, or in several. */
typedef struct bounds {
    uint64_t memory; /* a number of it */
    uint64_t start, end;
    bool several;
} bounds;

/* Memory that an operation under way touches. */
typedef struct mark {
    bounds where;
    operation *op;
    bool writes;
} mark;

/* An event; at KB_FOREVER: none. */
typedef struct timer {
    kb_event event;
    kb_time at;
} timer;

typedef struct pe_state {
    pe_cpu cpu; /* first */
    struct pe_units *units;
    task resume; /* the program */
    task look;   /* at the engines */
    task look_at_lanes;
    engine engines[ENGINES];
    KB_VEC(operation *) event_users; /* that use engines or their ports from events */
    operation *first_user;           /* of these, the one that was issued first; NULL: none */
    kb_source engine_source;
    timer begins;            /* at the begin of the next command of the DMA */
    timer issues;            /* the same for one that begins when the program issues it */
    kb_time program_at;      /* the program's event of this time has come */
    kb_event frontier;       /* at the begin of an engine's next command, */
    kb_time frontier_at;     /* which is this; KB_FOREVER: none */
    tcm_port reads, writes;  /* of the TCM */
    port_user port_users[2]; /* of these, if records have ids */
    lane lanes[LANES];
    uint32_t in_queues;  /* operations in the queues of both lanes */
    kb_waitlist waiters; /* the program, if it waits for units */
    kb_pe pe;
    uint64_t number;
    uint64_t issued;         /* commands, ever */
    uint64_t under_way;      /* operations */
    uint32_t node;           /* of the DMA */
    operation *first_long;   /* under way that has memory of its own for its rectangles */
    operation *first_polled; /* span that waits for an input */
    operation *first_due;    /* span that waits for the program's event of its time */
    KB_VEC(mark) marks;      /* of all under way that later ones may have to wait for */
} pe_state;

/* Of what touches memory: DMAs and most spans. */
typedef struct memory_work {
    mem_rect *rects;     /* what it reads, and then what it writes */
    kb_time not_before;  /* of a DMA: its own TCM has not passed what stays there */
    uint64_t streamed;   /* of a DMA: bytes that it has in the fabric */
    uint32_t transfers;  /* of a DMA: that have not ended */
    uint32_t read_count; /* of the rectangles */
    uint32_t marked;     /* which mark is its own, and 1; 0: none */
    bool copies_in_tcm;  /* of a DMA: it books at the ports */
    mem_rect few[FEW_RECTS];
    operation *previous_long, *next_long;
    net_done_fn *moved; /* of a copy of the host */
} memory_work;

/* Of a span. */
typedef struct span_work {
    task ready;
    void (*is_ready)(void *self, uint64_t arg);
    operation *next_polled;
    operation *next_due; /* among spans that the program issued ahead; */
    kb_event event;      /* at its begin */
    bool uses_engines;
} span_work;

/*
 * A command of the DMA, a span, or a command of an engine that has events. What all have comes
 * first and is set in each; the rest is set only in those that it is of. With many PEs an operation
 * is in no cache when its turn comes: what commands of the DMA use is in five lines.
 */
struct operation {
    pe_state *pe;
    lane *lane;             /* NULL: a span, or a command of an engine */
    operation *prev, *next; /* in its queue, and then among those under way in its lane */
    kb_time issued;         /* of two that can begin, the one that was issued first does, */
    uint64_t sequence;      /* and of one time the first issued: see units_issued_before() */
    kb_time earliest;       /* issued, and inputs that are known */
    uint32_t index;         /* in its pool */
    uint32_t waits_for;     /* the number of operations that it waits for */

    uint32_t waiters;    /* the first of those that wait for it */
    uint32_t rect_count; /* what it reads and writes in memory */
    uint32_t id;         /* of its record, or of the one that ends with it; 0: none */
    uint32_t input_id;   /* the record of the input that `earliest` is of; 0: of none */
    uint8_t input_count;
    bool is_engine;
    bool internal;  /* of a command of the DMA: it is in the queue for these */
    bool ahead;     /* the program issued it before its own event of that time */
    bool in_tcm;    /* the log knows that it is at its own TCM alone */
    bool lags;      /* its bytes have not all passed the TCM */
    bool moves;     /* the log was told of it as one transfer, for `cause` */
    bool watched;   /* `log` is there */
    bool of_kernel; /* it belongs to a launch */
    bool of_host;   /* it belongs to a copy of the host */
    bool forwards;  /* see pe_command */
    bool fills;
    bool held_up;  /* the log knows that it waits for a channel that the host has */
    uint8_t cause; /* a kb_cause */
    void (*ended)(void *self, uint64_t arg);
    void *self;
    uint64_t arg;
    kb_error *(*begun)(void *self, uint64_t arg); /* of a command */

    const pe_ready *inputs[PE_MAX_INPUTS]; /* not known yet */
    kb_time start;
    uint64_t bytes; /* this and the next two: of a command, for the log */

    const char *name;
    uint64_t flops;
    union {
        pe_work work;
        memory_work memory;
    };
    pe_ready gate; /* of a command of an engine: the operations that it comes after are done */
    span_work span;
    happening released; /* if it has an id: the last operation that it came after */
    kb_op log;          /* of a command, if the log is watched; of a span with an id: begun_by */
};

typedef struct waiter {
    operation *op;
    uint32_t next;
} waiter;

/* Bytes of a command at one node. */
typedef struct share {
    uint64_t bytes;
    uint32_t node;
    kb_cause cause; /* what a PE that waits for them waits for */
} share;

/* What a number of bytes takes at a port of the TCM. */
enum { TCM_TIMES = 16 };

typedef struct tcm_time {
    uint64_t bytes;
    kb_time time;
} tcm_time;

struct pe_units {
    pe_units_options has;
    const topo_shape *shape;
    pe_state **pes; /* by number; NULL until used */
    net_route_buffer routes;
    kb_pool operations, waiters;
    KB_VEC(uint32_t) generations; /* of operations, by index */
    KB_VEC(operation *) blockers; /* of the operation in hand */
    KB_VEC(share) shares;         /* of the command in hand */
    kb_handler on_begins, on_issues, on_frontier, on_span, on_end, on_part_end, on_passed,
        on_watched;
    tcm_time tcm_times[TCM_TIMES]; /* by bytes: most commands are of a few sizes */
    pe_stats stats;
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

static inline kb_time units_tcm_time(pe_units *units, uint64_t bytes)
{
    tcm_time *known = &units->tcm_times[bytes * UINT64_C(0x9e3779b97f4a7c15) >> 60];
    _Static_assert(TCM_TIMES == 16, "four bits name one");
    if (KB_UNLIKELY(known->bytes != bytes))
        *known = (tcm_time){bytes, topo_rate_time(units->shape->pe.tcm_bytes_per_s, bytes)};
    return known->time;
}

static inline engine *units_engine(pe_state *state, kb_unit unit)
{
    return &state->engines[unit - KB_UNIT_GEMM];
}

static inline lane *units_lane(pe_state *state, kb_unit unit)
{
    KB_ASSERT(unit >= KB_UNIT_DMA_READ && unit <= KB_UNIT_DMA_WRITE);
    return &state->lanes[unit - KB_UNIT_DMA_READ];
}

static inline bool units_is_own_tcm(const kb_location *where, kb_pe pe)
{
    return where->memory == KB_TCM && where->pe.sip == pe.sip && where->pe.cube == pe.cube &&
           where->pe.pe == pe.pe;
}

/*
 * Commands of the program are issued ahead of global time, internal ones from events: what counts
 * is the time of issue, not the order of the calls. The program's events are the last of an
 * instant, so of one time its commands come behind those that events issued.
 */
#define BY_PROGRAM (UINT64_C(1) << 63) /* in a sequence number */

static inline bool units_issued_before(kb_time a, uint64_t a_sequence, kb_time b,
                                       uint64_t b_sequence)
{
    return a != b ? a < b : a_sequence < b_sequence;
}

/*
 * Takes the inputs that are known out of the list; `earliest` becomes the latest of their times if
 * it is earlier. True if none is left.
 */
static inline bool units_fold_inputs(operation *op)
{
    uint8_t left = 0;
    for (uint8_t i = 0; i < op->input_count; i++) {
        const pe_ready *input = op->inputs[i];
        if (input->at == KB_FOREVER) {
            op->inputs[left++] = input;
        } else if (input->at >= op->earliest) {
            op->earliest = input->at;
            op->input_id = input->id;
        }
    }
    op->input_count = left;
    return left == 0;
}

/* ---- units.c ---- */

/* NULL if there is no memory. */
pe_state *units_need_pe(pe_units *units, kb_pe pe);

/* A call of the units begins and ends: what it has led to is done before the outermost returns. */
static inline void units_enter(pe_units *units)
{
    units->depth++;
}

void units_work_off_agenda(pe_units *units);

static inline void units_leave(pe_units *units)
{
    if (units->depth == 1 && units->agenda)
        units_work_off_agenda(units);
    units->depth--;
}

void units_put(pe_units *units, task *t);

/* Whether the program is at a time that its own events have not come to: it waited for something
 * at its clock, which is now, and was resumed by an event that comes before its own. */
static inline bool units_is_program_early(const pe_state *state, kb_time now)
{
    return state->cpu.clock == now && state->program_at != now;
}

/* The operation waits for nothing any more, if so: its turn comes. */
void units_put_if_ready(pe_units *units, operation *op);

/* A time has become known, or an operation has ended: what waits for it may go on, but for the
 * engines themselves. */
void units_poll_inputs(pe_units *units, pe_state *state);

/* The operation is done. */
void units_end(pe_units *units, operation *op);

/* The run fails. */
void units_fail(pe_units *units, kb_error *err);

/* The operation's entry for the log; NULL unless the log is watched. */
static inline const kb_op *units_entry(const operation *op)
{
    return op->watched ? &op->log : NULL;
}

/* The operation makes commands of engines begin in events no more. */
void units_remove_event_user(pe_units *units, operation *op);

/* ---- cpu.c ---- */

/* Something of the PE has ended, begun or become known: the program goes on if it waits for it. */
void units_progress(pe_units *units, pe_state *state);
void units_resume_program(pe_state *state);

/* The engines' commands whose times have become final. */
void units_look_at_engines(pe_state *state);

/* ---- engines.c ---- */

/* What the program waits for, if the engines make it. */
typedef struct engine_goal {
    const pe_ready *value; /* this is known; or NULL */
    const engine *room;    /* this has room for a command of the program; or NULL */
} engine_goal;

/*
 * Computes begins and ends as far as they are final, given that the program issues nothing before
 * `limit`, or before its goal is reached. Makes sure that there is an event at the next begin that
 * is not final, unless the program runs.
 */
void engines_advance(pe_state *state, kb_time limit, engine_goal goal);

/* Appends a command to the queue of its engine: one of the program, which is copied, or an internal
 * one, which stays. */
void engines_put(pe_state *state, const pe_work *work);
void engines_put_internal(pe_state *state, pe_work *work);

bool engine_has_room(const pe_units *units, const engine *e, kb_time *from);
void engines_fini(pe_state *state);

/* ---- units_order.c: what waits for what ---- */

/* What an operation reads and writes in memory. */
typedef struct touches {
    const mem_rect *reads, *writes;
    size_t read_count, write_count;
} touches;

/* An operation that knows what it waits for, and is in no queue yet. */
KB_MUST_USE kb_error *units_make_operation(pe_units *units, pe_state *state,
                                           const pe_op after[PE_MAX_INPUTS], const touches *memory,
                                           bool unordered, operation **op);
void units_give_operation(pe_units *units, operation *op);
pe_op units_name(const pe_units *units, uint32_t index);

/* Those in the list, an operation's `waiters`, wait for one less. */
void units_release_waiters(pe_units *units, uint32_t first);

/* ---- reasons.c: why operations begin and end when they do; only if records have ids ---- */

/* The command of the DMA leaves its queue and begins now; or the span begins. */
void units_explain_begin(operation *op, kb_time now);

/* When an engine's command begins, its bytes have passed the ports of the TCM, and it ends. */
typedef struct work_times {
    kb_time begin, read, written, end;
} work_times;

/* Before the log and the engine are told of it. */
void units_explain_work(pe_state *state, engine *e, const pe_work *work, const work_times *t);

/* The record of the command with that number in the ring of begins. */
void units_note_begin_id(pe_units *units, engine *e, uint32_t number, uint64_t id);

/* The operation ends now: its channel of the DMA becomes free, and others and the program may wait
 * for it. */
void units_note_end(const pe_units *units, const operation *op);

/* ---- units_work.c: what a command of the DMA does ---- */

/* It has been begun, so its start is known. It may end before this returns. */
KB_MUST_USE kb_error *units_begin_dma(pe_units *units, operation *op);

/* The transfers have ended, and the TCM may have passed all by now. */
void units_finish_dma(pe_units *units, operation *op);

/* The command waits for nothing but a channel, and copies of the host have some: until it begins
 * its PE waits for the memory that it is to move something in. */
void units_begin_hold_up(pe_units *units, operation *op);
void units_end_hold_up(pe_units *units, operation *op);

#endif
