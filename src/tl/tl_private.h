/*
 * tl_private.h: what the files of tl know of a kernel that runs. Private to tl.
 *
 *     runner.c   kernels on PEs: their turn, their beginning, their end
 *     fault.c    what is said of a mistake, and what it ends
 *     try.c      errors that return through the frames of a kernel
 *     tcm_values.c  values and their TCM, handles, scopes
 *     command.c  operations on their way through the units
 *     memory.c   load, store, ref          math.c     elements, along an axis
 *     matrix.c   dot, composite            pieces.c   reshape, slice, split, concat
 *     queue.c    send                      pick.c     gather, scatter, topk
 *     receive.c  receive
 *     control.c  grid, wait, item          instant.c  commands in runs without time
 *     races.c    who touches what          message_order.c  what messages order
 *
 * A handle (what a tl_tensor names) is a value in some shape, or a place in memory. A value is
 * counted by its handles, by the commands that make it or read it and are not done, and by the call
 * in hand; its TCM goes back with the last of them.
 *
 * A kernel may stop in the middle of any call that waits: what a call has in hand there is owned by
 * the context, never by its stack alone.
 */
#ifndef KB_TL_PRIVATE_H
#define KB_TL_PRIVATE_H

#include <string.h>

#include "late.h"
#include "message_order.h"
#include "tl.h"

/* An item of a ring (base/list.h); the first member of what is listed. */
typedef struct tl_link {
    struct tl_link *next, *prev;
} tl_link;

/* Elements in the TCM of a PE. Their number and type are fixed, their shape is the handle's. */
typedef struct tl_value {
    tl_link link;
    uint32_t refs;
    uint32_t handles, commands; /* of these refs; commands of which the end is not known */
    uint32_t readers;           /* and of these commands */
    kb_dtype dtype;
    bool structural; /* made of numbers alone: `data` is there at once, in every run */
    bool has_place;
    uint32_t read_by;   /* the record that `read_until` is the end of; 0 without ids */
    uint64_t bytes;     /* in the TCM */
    uint64_t number;    /* for the log */
    pe_ready ready;     /* when it is there */
    kb_time read_until; /* by commands of which that is known */
    tl_point after;     /* what it waits for beyond what the PE has waited for; 0: nothing */
    data_value *data;   /* NULL until it begins to be made, without data, and if it never will be:
                           it was to be received, or depends on what was, by a kernel that stopped */
} tl_value;

/* TCM that is released at a time ahead of the kernel's clock. */
typedef struct tl_release {
    kb_time at;
    uint64_t bytes;
    uint32_t by; /* the record that ends then; 0 without ids */
} tl_release;

/* What an operation works on: a value in a shape, or a number. */
typedef struct tl_operand {
    tl_value *value; /* NULL: a plain number; of shape (), unless it stands for a tensor */
    kb_dtype dtype;
    tl_dims shape;
    uint64_t elements; /* of the shape; of a number: 1 */
    uint64_t first;    /* element of the value: it may have more than the shape */
    double number;
} tl_operand;

/* What freed a handle. */
typedef struct tl_end {
    const char *how; /* "by tl_free" */
    tl_srcloc at;
} tl_end;

typedef struct tl_handle {
    uint64_t id;         /* 0: of none */
    uint32_t generation; /* of the slot */
    uint32_t scope;      /* how deep */
    uint32_t next, prev; /* in the scope, or free; slot + 1, 0 is none */
    tl_value *value;     /* NULL: a place in memory */
    kb_dtype dtype;
    uint64_t elements; /* of a value: as its shape has */
    union {
        tl_dims shape;
        tl_end end; /* of one that is gone, until its slot is used again */
    };
    uint64_t first; /* of a value: which element is the first */
    tl_ptr ptr;     /* of a place */
    tl_dims strides;
    pe_op filled;     /* a place: what puts something there; 0: unknown */
    tl_point after;   /* a place: the same, in the order of races.c */
    bool reinterpret; /* a place: whatever dtype the tensor there has */
} tl_handle;

typedef struct tl_scope_of_kernel {
    uint32_t first; /* handle: slot + 1 */
    tl_srcloc at;
} tl_scope_of_kernel;

enum { TL_MAX_INPUTS = DATA_MAX_INPUTS, TL_MATRICES = 3 };

typedef struct tl_details tl_details;

/* Makes the result's data, or changes memory: when the command begins. */
typedef kb_error *tl_bind_fn(tl_details *details);

/*
 * What is known of an operation beside its values and its time: for `bind`, and for the log while
 * it is watched. There is none in a run without data that nothing watches.
 */
struct tl_details {
    tl_context *tl;
    tl_bind_fn *bind;
    tl_value *result, *second; /* that it makes; or NULL */
    tl_dims shape;             /* of the result; of what is stored */
    uint32_t input_count;
    tl_operand inputs[TL_MAX_INPUTS];
    tl_srcloc at;     /* of the call, */
    const char *name; /* and its name */
    bool reads_index; /* a load of a tensor that has contents in every run */

    /* Of engines. */
    data_op op;
    uint32_t axis;
    int64_t first; /* of tl_arange */
    double number; /* of tl_full; what a load has where its mask is 0 */
    kb_op entry;   /* while the log is watched; its id is there for all units */

    /* Of loads, stores, sends and composites. */
    pe_rects rects[TL_MATRICES]; /* what a DMA moves; or of a, b and c */
    uint64_t row_bytes;          /* of what is moved, as its rectangles have it */
    bool masked;                 /* by its last input, which is not structural */
    ipcq_message *message;       /* that is sent */
    data_value *product;         /* what is to become c */
    uint32_t access_count;
    kb_op_access accesses[TL_MATRICES]; /* for the log, while it is watched */
};

/*
 * A command of the DMA or of the scheduler from when it is issued until it is done; in a run
 * without time, of any unit.
 */
typedef struct tl_command {
    tl_link link;
    tl_context *tl;
    tl_value *result, *second; /* NULL: it makes no value, or only one */
    uint32_t value_count;
    tl_point after;                                    /* its inputs wait for this */
    tl_value *values[TL_MAX_INPUTS];                   /* that it reads: counted */
    tl_details *details;                               /* NULL: there are none */
    kb_error *(*conclude)(struct tl_command *command); /* when it is done, unless NULL */
    ipcq_segment segment;                              /* of a send */
    pe_op ticket; /* in a run without time, if it waits for a receive; */
    kb_unit unit; /* and whose it would be */
} tl_command;

/* A receive from its call until the value is there, and is stored if it is to be. */
typedef struct tl_receive {
    tl_link link;
    ipcq_receive posted;
    tl_context *tl;
    const char *name; /* of the call */
    tl_value *value;  /* counted as by a command; NULL: it is over */
    tl_dims shape;
    uint64_t message;   /* its number, once it is there */
    uint64_t sequence;  /* of the call, among commands of the program */
    tl_point point;     /* at which it is there */
    pe_op op;           /* open until the value is stored; 0: it is not to be */
    tl_command *store;  /* to .dst */
    kb_error *mismatch; /* what arrived is something else */
    uint32_t index;     /* in its pool; 0: the context's own */
    bool in_call;       /* tl_recv_() has it in hand, and gives it back */
    bool any_form;      /* the value gets the dtype and the shape of what arrives */
    bool whole;         /* the message has come */
    bool there;         /* and so has what had to be read; or it never will */
    bool may_store;     /* what was there before is done with */
    bool is_storing;
    bool withdrawn;
    uint32_t id;         /* of the record that ends when the value is there; 0 without ids */
    kb_reason issued_by; /* with ids: what determined when it was posted */
} tl_receive;

/* Accesses of an operation that goes on until it is waited for: records of the race check. */
typedef struct tl_open_accesses {
    pe_op op;
    size_t first, end;
} tl_open_accesses;

/* A direction that is found without looking. */
typedef struct tl_direction {
    uint32_t key;     /* the first two letters of its name; 0: nothing is here */
    const char *name; /* the end's own */
    ipcq_end *end;
} tl_direction;

enum { TL_RECENT = 4, TL_RECENT_ACCESSES = 8 };

/* A kernel in the order of its launch. */
typedef struct tl_checked {
    uint32_t run, thread; /* its number in the launch, and in the order */
    tl_point reached;     /* the PE has waited for this */
    tl_point writes;      /* and its stores and sends have to wait for that; 0: for nothing more */
    uint32_t sends;
    uint32_t recent[TL_RECENT_ACCESSES]; /* by line: its last access + 1 */
    tl_late late; /* its accesses that wait for what the PE has not waited for */
} tl_checked;

struct tl_context { /* NOLINT(clang-analyzer-optin.performance.Padding): one a kernel */
    tl_runner *runner;
    tl_run run;
    uint64_t pe;        /* its number */
    uint64_t kernel;    /* how many were started before, and 1 */
    tl_context *next;   /* on the same PE */
    kb_co *co;          /* NULL before its turn, and when it is gone */
    pe_cpu *cpu;        /* its clock; NULL in a run without time */
    bool synchronous;   /* it does not run ahead: watchers get what happens in the order of time */
    uint32_t ahead;     /* commands since its clock was global time */
    bool over;          /* it has returned, or made a mistake */
    bool stopped;       /* its next call ends it */
    kb_error *error;    /* which mistake */
    kb_error *failure;  /* that it has failed the run with */
    kb_error *failing;  /* a mistake ahead of global time */
    uint32_t under_way; /* commands */
    kb_time start;
    uint32_t id;                  /* of its record; this and the next three only with ids */
    kb_reason begun_by, ended_by; /* what determined its begin, and its end as far as is known */
    kb_reason arrived_by;         /* and the last receive that ended */
    uint32_t space_by;            /* the record at the end of which TCM was released last */
    kb_time busy_before[KB_UNITS];
    kb_time issuing;          /* how long so far */
    uint64_t unlogged_issues; /* that the log is told of at the end */

    tl_link values, commands; /* heads: all there are */
    mem_allocator *tcm;       /* of its PE */
    KB_VEC(tl_release) releases;
    tl_link receives;
    tl_receive receive;   /* of a call that waits until its value is there */
    kb_waitlist arrivals; /* woken when a receive goes on */

    /* In a run without time: commands that wait for a receive, the newest first. */
    tl_link held_up;
    uint64_t tickets;       /* given out */
    tl_context *next_to_go; /* on the runner's list of those that can go on */
    bool can_go_on;         /* it is on that list */

    KB_VEC(tl_handle) handles;
    uint64_t handle_bits; /* of the numbers of all its handles */
    uint32_t free_handle; /* slot + 1 */
    KB_VEC(tl_scope_of_kernel) scopes;

    KB_VEC(tl_open_accesses) open_accesses;
    size_t first_open_access; /* of the call in hand */

    tl_direction recent[TL_RECENT];
    uint32_t next_recent;
    tl_checked checked; /* if the launch is */

    /* Of the call in hand. */
    tl_value *temporaries[TL_MAX_INPUTS]; /* refs that were loaded for it */
    uint32_t temporary_count;
    data_value *mask; /* a byte for each element */
    bool is_index;    /* what was resolved last is in a tensor that has contents in every run */
    pe_rects rects[TL_MATRICES];
    pe_translations translations;
    ipcq_message *unsent; /* no command has it yet */
    pe_op delivery;       /* of the message that is being sent in segments */
    bool lacks_credit;    /* the log knows that the PE waits for it: */
    kb_time lacks_since;
    const ipcq_end *lacks_on;
    ipcq_end *awaits_credit_on; /* it is not known when that has a credit; NULL: none */
    tl_srcloc lacks_at;
    kb_reason lacks_by;   /* with ids: what determined lacks_since */
    uint64_t lacks_bytes; /* what it is to send */
};

/* The kernels of a PE: the one that runs, then those that wait; NULL if there are none. */
typedef struct tl_turns {
    tl_context *first, *last;
} tl_turns;

struct tl_runner {
    tl_runner_options has;
    const topo_pe_params *params;
    tl_turns *turns; /* by PE */
    uint64_t pe_count;
    uint64_t started;     /* kernels, ever */
    uint64_t value_count; /* ever */
    kb_slab values, commands, details;
    kb_pool receives;
    KB_VEC(char *) tensor_names;    /* that the log was told of; sorted */
    tl_order *order;                /* of launches that are checked; NULL until there is one */
    tl_context *to_go, *last_to_go; /* kernels that can go on, in a run without time */
    bool is_going;                  /* that list is being worked off */
    tl_stand_ins stand_ins;
    kb_handler on_release, on_drained;
    uint32_t window; /* commands that a kernel issues ahead of global time at most */
};

/* The kernel's own time: where its program is. */
static inline kb_time tl_clock(const tl_context *tl)
{
    return tl->cpu ? tl->cpu->clock : kb_sim_now(tl->runner->has.sim);
}

/* Waits until global time is the kernel's. */
static inline void tl_synchronise(tl_context *tl)
{
    tl->ahead = 0;
    if (tl->cpu)
        pe_cpu_synchronise(tl->cpu);
}

/* An operation of the kernel has ended: that is the end of the kernel unless something is later. */
static inline void tl_note_end(tl_context *tl, uint32_t id)
{
    if (KB_UNLIKELY(id != 0))
        tl->ended_by = (kb_reason){KB_REASON_INPUT, id};
}

/* The kernel's clock has been advanced since it was `asked`, if at all, because of that. */
static inline void tl_explain_clock(const tl_context *tl, kb_time asked, kb_reason_kind kind,
                                    uint64_t id)
{
    if (tl->cpu)
        pe_cpu_explain(tl->cpu, asked, kind, id);
}

/* ---- fault.c ---- */

/* A call of the kernel's. */
typedef struct tl_call {
    tl_context *tl;
    tl_srcloc at;
    const char *name; /* "tl_add" */
} tl_call;

/* How a call begins. */
static inline tl_call tl_enter(tl_context *tl, tl_srcloc at, const char *name)
{
    if (KB_UNLIKELY(tl->stopped))
        kb_co_exit(
            tl->co); /* by what its last call led to, or by an error that tl_try() returned */
    if (KB_UNLIKELY(tl->synchronous))
        tl_synchronise(tl);
    kb_co_set_line(tl->co, (kb_line){at.file, at.line});
    return (tl_call){tl, at, name};
}

/* The kernel made a mistake and ends here; in a tl_try(), that call does. */
KB_NORETURN void tl_fault(const tl_call *call, const char *format, ...) KB_PRINTF(2, 3);

/* The same with an error, which it takes over. One that is no fault of the kernel fails the run. */
KB_NORETURN void tl_fail(const tl_call *call, kb_error *err);

/* What its message has besides: the kernel, where, when and the call. Takes over the error. */
kb_error *tl_locate_error(const tl_call *call, kb_error *err);

static inline void tl_check(const tl_call *call, kb_error *err)
{
    if (KB_UNLIKELY(err != NULL))
        tl_fail(call, err);
}

const char *tl_without_folders(const char *path);

typedef struct tl_shape_text {
    char text[96];
} tl_shape_text;

/* "(4, 8)" */
tl_shape_text tl_shape_print(const tl_dims *shape);

/* Elements of a shape: a fault if a dimension is negative or they are beyond counting. */
uint64_t tl_check_shape(const tl_call *call, const tl_dims *shape);
void tl_check_dtype(const tl_call *call, kb_dtype dtype);

/* ---- tcm_values.c ---- */

/* Of a shape that was checked. */
static inline uint64_t tl_elements(const tl_dims *shape)
{
    uint64_t elements = 1;
    for (int i = 0; i < shape->rank; i++)
        elements *= (uint64_t)shape->dims[i];
    return elements;
}

static inline bool tl_same_shape(const tl_dims *a, const tl_dims *b)
{
    if (a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i])
            return false;
    return true;
}

kb_shape tl_shape_of(const tl_dims *shape);

/* With its place, for which it may wait. Counted once, for the caller. */
tl_value *tl_value_new(const tl_call *call, kb_dtype dtype, const tl_dims *shape);

/* Gives a value without a place the one that its bytes take; may wait for it. */
void tl_value_take_place(const tl_call *call, tl_value *value);

/* A value in the place of another, which has none any more. */
tl_value *tl_value_in_place_of(const tl_call *call, tl_value *other);
void tl_value_retain(tl_value *value);
void tl_value_release(tl_context *tl, tl_value *value);

/* A handle for a place in memory; for a value, of which it takes over one count. */
tl_tensor tl_handle_new(const tl_call *call, const tl_handle *place);
tl_tensor tl_handle_of(const tl_call *call, tl_value *value, const tl_dims *shape);
void tl_handle_drop(tl_context *tl, tl_handle *handle, tl_end end);

enum { TL_SLOT_BITS = 18, TL_MAX_HANDLES = 1 << TL_SLOT_BITS };

static inline bool tl_is_number(tl_tensor tensor)
{
    return tensor.id == tl_scalar(0).id;
}

/* NULL if it is not there, or never was. */
static inline tl_handle *tl_handle_look_up(const tl_context *tl, uint64_t id)
{
    uint64_t slot = id & (TL_MAX_HANDLES - 1);
    if (KB_UNLIKELY(slot >= tl->handles.count))
        return NULL;
    tl_handle *handle = &tl->handles.items[slot];
    return KB_LIKELY(handle->id == id) && id != 0 ? handle : NULL;
}

KB_NORETURN void tl_fault_not_there(const tl_call *call, tl_tensor tensor);

/* A fault unless the tensor is there. Good until the next handle is made. */
static inline tl_handle *tl_handle_find(const tl_call *call, tl_tensor tensor)
{
    tl_handle *handle = tl_handle_look_up(call->tl, tensor.id);
    if (KB_UNLIKELY(!handle))
        tl_fault_not_there(call, tensor);
    return handle;
}

/* Moves it to another scope. */
void tl_handle_move(tl_context *tl, tl_handle *handle, uint32_t scope);

/* A number, or what is at a place. */
tl_operand tl_take_other(const tl_call *call, tl_tensor tensor);

/* What a call is given: a place in memory is loaded, and is there until the call is over. */
static inline void tl_take_to(const tl_call *call, tl_tensor tensor, tl_operand *operand)
{
    const tl_handle *handle = tl_handle_look_up(call->tl, tensor.id);
    if (KB_UNLIKELY(!handle || !handle->value)) {
        *operand = tl_take_other(call, tensor);
        return;
    }
    operand->value = handle->value;
    operand->dtype = handle->dtype;
    operand->shape = handle->shape;
    operand->elements = handle->elements;
    operand->first = handle->first;
    operand->number = 0;
}

static inline tl_operand tl_take(const tl_call *call, tl_tensor tensor)
{
    tl_operand operand;
    tl_take_to(call, tensor, &operand);
    return operand;
}

void tl_release_temporaries(tl_context *tl);

static inline void tl_end_call(tl_context *tl)
{
    if (KB_UNLIKELY(tl->temporary_count > 0))
        tl_release_temporaries(tl);
}

/* Releases the TCM of values that are gone by now. */
void tl_collect_releases(tl_context *tl);

kb_error *tl_context_init(tl_context *tl); /* the parts above */
void tl_context_fini(tl_context *tl);      /* with all values, handles and commands */

/* ---- command.c ---- */

static inline uint64_t tl_operand_bytes(const tl_operand *operand)
{
    return operand->value ? operand->elements * kb_dtype_bytes(operand->dtype) : 0;
}

static inline bool tl_is_structural(const tl_operand *operand)
{
    return !operand->value || operand->value->structural;
}

/* What the operand has, in its shape; to be released. */
kb_error *tl_operand_data(tl_context *tl, const tl_operand *operand, data_value **data);

/* One with these inputs, which are counted until it is done, and so is the result. It has details
 * if the run needs them, or the command does. */
tl_command *tl_command_new(const tl_call *call, const tl_operand *inputs, uint32_t count,
                           tl_value *result, const tl_dims *shape, bool needs_details);

void tl_command_destroy(tl_command *command);

/*
 * What a unit of the DMA is told of the command, with nothing to move yet. What the log's entry has
 * besides the name is set only if the command has details: else it is not read, and clearing it
 * would take longer than all the rest.
 */
static inline void tl_describe_move(const tl_command *command, kb_unit unit, const char *name,
                                    pe_command *what)
{
    _Static_assert(offsetof(pe_command, op) + sizeof(kb_op) == sizeof(pe_command), "it is last");
    memset(what, 0, offsetof(pe_command, op));
    if (KB_UNLIKELY(command->details != NULL))
        what->op = (kb_op){0};
    what->unit = unit;
    what->op.name = name;
    what->op.flops = 0;
}

/* Hands it to a unit of the DMA, when there is room: takes the pe_cpu's time. `what` has what the
 * unit needs; the rest is filled in. */
pe_op tl_issue(const tl_call *call, tl_command *command, pe_command *what);

/* The same for the scheduler. */
pe_op tl_issue_product(const tl_call *call, tl_command *command, pe_product *what);

/* The same without a unit, for what comes when it is told to: only takes its time. */
void tl_spend_issue_time(const tl_call *call);

/* What the log is told of everything that the call does. */
kb_op tl_log_entry(const tl_call *call, const char *name);

/* Makes the data when the command begins, unless an input will never be there; concludes it and
 * lets it go when it is done. */
kb_error *tl_command_begun(void *self, uint64_t arg);
void tl_command_ended(void *self, uint64_t arg);

/* Whether it has to be told that it begins: else there are no numbers, or they are there. */
bool tl_command_binds_later(const tl_command *command);

/* Until something of the PE ends or becomes known, at the latest until then. Call
 * tl_synchronise() first. */
void tl_wait_for_progress(const tl_call *call, kb_time deadline);

/* The kernel's clock is when the operation is done, or the value is there, or later. */
void tl_wait_for(const tl_call *call, pe_op op);
void tl_wait_for_value(const tl_call *call, const tl_value *value);

/* Wakes the kernel if it waits for a message. */
void tl_wake(tl_context *tl);

/* ---- memory.c ---- */

/* Brings what is there into the TCM; mask NULL: all of it. Counted once, for the caller. */
tl_value *tl_load_place(const tl_call *call, const tl_handle *place, const tl_operand *mask,
                        double other);

/*
 * Finds where the place really is, for tl_rects_of(); without what the mask leaves out, unless it
 * is NULL. As a matrix it keeps its rows; else rows may be single elements.
 */
void tl_resolve(const tl_call *call, const tl_handle *place, data_value *mask, int which,
                bool as_matrix);

/* A fault if two elements of the place are one. */
void tl_check_apart(const tl_call *call, const tl_handle *place);

/* What was found; if the command has details it is the command's from here on. */
const pe_rects *tl_rects_of(tl_command *command, int which);

uint64_t tl_row_bytes(const tl_dims *shape, kb_dtype dtype);

/* A packed place, if it can be one; and what stores a value there, which is not issued yet and has
 * its rectangles in every run. */
tl_handle tl_packed_place(const tl_call *call, tl_ptr ptr, const tl_dims *shape, kb_dtype dtype);
tl_command *tl_prepare_store(const tl_call *call, const tl_handle *place, tl_value *value);

/* ---- access.c: which tensors commands access, for the log ---- */

/* The command accesses the tensor at the place. NULL if the log is not watched, and if the place is
 * in no tensor or has no elements. */
const kb_op_access *tl_note_access(const tl_call *call, tl_command *command, const tl_handle *place,
                                   bool write);
void tl_free_tensor_names(tl_runner *runner);

/* ---- math.c ---- */

/* What an operation on both computes in. */
kb_dtype tl_dtypes_meet(kb_dtype a, kb_dtype b);

/* The type that a number has beside a tensor of the type: an integer type only if it fits. */
kb_dtype tl_number_beside(double number, kb_dtype dtype);

/* The shape that both are repeated to. False if they do not fit. */
bool tl_broadcast(const tl_dims *a, const tl_dims *b, tl_dims *both);

/* An axis counted from the first; -1 is the last. A fault if there is no such axis. */
uint32_t tl_check_axis(const tl_call *call, const tl_dims *shape, int axis);

/* Operations of the vector engine do not compute with f8. */
void tl_check_not_f8(const tl_call *call, const tl_operand *operand);

/* An operand that cannot be a number. */
tl_operand tl_take_value(const tl_call *call, tl_tensor x);

/* An operation of an engine that has been checked. */
typedef struct tl_work {
    data_op op;
    tl_operand inputs[TL_MAX_INPUTS];
    uint32_t input_count;
    kb_dtype dtype; /* of the result */
    tl_dims shape;
    uint32_t axis;
    double number; /* of tl_full */
    int64_t first; /* of tl_arange, tl_slice */
    tl_bind_fn *bind;
    bool checks_data; /* `bind` may find a mistake of the kernel in the data */
    uint64_t cycles;  /* of the vector engine */
    uint64_t flops;
    uint64_t tcm_reads, tcm_writes; /* bytes */
    kb_unit unit;                   /* these three are as in pe_work */
    kb_time time, tail;
} tl_work;

/* The least s such that 2^s is n or more. */
static inline uint32_t tl_log2_up(uint64_t n)
{
    uint32_t s = 0;
    while (s < 63 && (UINT64_C(1) << s) < n)
        s++;
    return s;
}

/* Cycles of `moves` passes over the elements. */
uint64_t tl_move_cycles(const tl_context *tl, uint64_t elements, uint32_t moves);

/* Issues it to the vector engine; the result was made for it, and so was `second`, unless that is
 * NULL. */
void tl_issue_work(const tl_call *call, tl_work *is, tl_value *result, tl_value *second);

/* The same to either engine; how long it takes is known. */
void tl_issue_engine(const tl_call *call, const tl_work *is, tl_value *result, tl_value *second);

/* Makes the data by data_apply(). */
kb_error *tl_bind_op(tl_details *details);

/* ---- queue.c, receive.c ---- */

/* The kernel has ended, perhaps in the middle of a send. */
void tl_end_send(tl_context *tl);

/* Shows the log what the kernel waits for, as unfinished. */
void tl_show_waits(tl_context *tl);

/* The kernel has returned: waits for what it has not received, so that a deadlock has its name. */
void tl_await_receives(tl_context *tl);

/* The kernel ends early: what it has not received will never be there. */
void tl_withdraw_receives(tl_context *tl);
void tl_forget_receives(tl_context *tl); /* nothing waits for them either */

/* ---- races.c: nothing unless the launch is checked ---- */

kb_error *tl_checked_begin(tl_context *tl);

/* All that it issued is over: where it is, in the order. */
tl_mark tl_checked_end(tl_context *tl);

/* What comes after both, apart from what the PE has waited for. */
tl_point tl_join(const tl_call *call, tl_point a, tl_point b);

/* The same, and after those accesses before it in the program that have to come first as they touch
 * the same bytes, and that wait for something themselves. */
tl_point tl_after_conflicts(const tl_call *call, const pe_rects *rects, bool writes,
                            tl_point after);

/* The PE has waited for it. */
void tl_acquire(const tl_call *call, tl_point point);

/* A store or a send is put into the queue of the DMA, behind those before it: what it waits for
 * there. */
tl_point tl_queue_write(const tl_call *call, tl_point after);

/* A message is sent, of a value that waits for `after`: what it carries. */
uint64_t tl_checked_send(const tl_call *call, tl_point after);

/* A receive is issued; and has its message, with what that carries. */
tl_point tl_checked_receive(const tl_call *call);
void tl_checked_arrive(const tl_context *tl, tl_point receive, uint64_t message);

typedef struct tl_touch {
    const pe_rects *rects;
    bool writes;
    bool in_queue;  /* a store: it comes before all later sends */
    bool open;      /* it comes before no send until it is closed */
    tl_point after; /* what it waits for */
    bool waited;    /* and the PE does so too, at once */
} tl_touch;

void tl_record_access(const tl_call *call, const tl_touch *touch);

/*
 * A composite touches memory from its call until it is done, and no later send waits for it: its
 * accesses are open, and come before nothing of other PEs, until the kernel has waited for it.
 */
void tl_begin_open_accesses(tl_context *tl);
void tl_name_open_accesses(const tl_call *call, pe_op op);
void tl_close_accesses(tl_context *tl, pe_op op); /* nothing if it has none */

/* ---- instant.c: in a run without time ---- */

/* A command that is in no queue of a unit. */
#define TL_NO_UNIT KB_UNIT_HOST

/* At once, or if it waits for a receive, when it can. What names it; 0: it is done. */
pe_op tl_instant_issue(tl_command *command, kb_unit unit);
bool tl_instant_is_done(const tl_context *tl, pe_op op);

/* Something of the kernel's has been received: does what waited for it. Maybe not at once, if this
 * is called by what another kernel does. */
void tl_instant_go_on(tl_context *tl);

/* ---- runner.c ---- */

/* The kernel ends wherever it waits, with the error, which is taken over. It may be gone then. */
void tl_context_stop(tl_context *tl, kb_error *err);

/* A command of the kernel is done. */
void tl_context_progress(tl_context *tl);

/* TCM of its values is released then: for a watcher of its use. */
void tl_schedule_release(tl_context *tl, kb_time at);

#endif
