/*
 * tl_private.h: what the files of tl know of a kernel that runs. Private to tl.
 *
 *     runner.c   kernels on PEs: their turn, their beginning, their end
 *     fault.c    what is said of a mistake, and what it ends
 *     value.c    values and their TCM, handles, scopes
 *     command.c  operations on their way through the units
 *     memory.c   load, store, ref          math.c     elements, reductions, shapes
 *     matrix.c   dot, composite            control.c  grid, wait, item
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

#include "tl.h"

/* In a circle through the head of its list; the first member of what is listed. */
typedef struct tl_link {
    struct tl_link *next, *prev;
} tl_link;

static inline void tl_link_to(tl_link *head, tl_link *link)
{
    *link = (tl_link){.next = head->next, .prev = head};
    head->next->prev = link;
    head->next = link;
}

static inline void tl_unlink(tl_link *link)
{
    link->next->prev = link->prev;
    link->prev->next = link->next;
}

/* Elements in the TCM of a PE. Their number and type are fixed, their shape is the handle's. */
typedef struct tl_value {
    tl_link link;
    uint32_t index; /* in its pool */
    uint32_t refs;
    uint32_t handles, commands; /* of these refs */
    uint32_t readers;           /* and of the commands */
    kb_dtype dtype;
    bool structural; /* made of numbers alone: `data` is there at once, in every run */
    bool has_place;
    uint64_t offset, bytes; /* in the TCM */
    uint64_t number;        /* for the log */
    pe_op made;
    data_value *data; /* NULL until it begins to be made, and without data */
} tl_value;

/* What an operation works on: a value in a shape, or a number. */
typedef struct tl_operand {
    tl_value *value; /* NULL: a plain number, of shape () */
    kb_dtype dtype;
    tl_dims shape;
    double number;
} tl_operand;

/* What freed a handle. */
typedef struct tl_end {
    const char *how; /* "by tl_free" */
    tl_place at;
} tl_end;

typedef struct tl_handle {
    uint64_t id;         /* 0: nobody's */
    uint32_t generation; /* of the slot */
    uint32_t scope;      /* how deep */
    uint32_t next, prev; /* in the scope, or free; slot + 1, 0 is none */
    tl_value *value;     /* NULL: a place in memory */
    kb_dtype dtype;
    tl_dims shape;
    tl_ptr ptr; /* of a place */
    tl_dims strides;
    tl_end end; /* of one that is gone: until its slot is used again */
} tl_handle;

typedef struct tl_scope_of_kernel {
    uint32_t first; /* handle: slot + 1 */
    tl_place at;
} tl_scope_of_kernel;

enum { TL_MAX_INPUTS = 3, TL_MATRICES = 3 };

/* An operation from when it is issued until it is done. */
typedef struct tl_command {
    tl_link link;
    uint32_t index; /* in its pool */
    uint32_t input_count;
    tl_context *tl;
    tl_operand inputs[TL_MAX_INPUTS];
    tl_value *result;   /* NULL: it makes no value */
    tl_dims shape;      /* of the result; of what is stored */
    uint64_t row_bytes; /* of what is moved, as its rectangles have it */

    /* When it begins: makes the result's data, or changes memory. When it is done, unless NULL. */
    kb_error *(*bind)(struct tl_command *command);
    kb_error *(*conclude)(struct tl_command *command);

    data_op op;
    uint32_t axis;
    int64_t first; /* of tl_arange */
    double number; /* of tl_full; what a load has where its mask is 0 */
    bool masked;   /* by its last input, which is not structural */

    pe_rects rects[TL_MATRICES]; /* what a DMA moves; or of a, b and c. Only with data */
    data_value *product;         /* what is to become c */
} tl_command;

struct tl_context {
    tl_runner *runner;
    tl_run run;
    uint64_t pe;        /* its number */
    uint64_t kernel;    /* how many were started before, and 1 */
    tl_context *next;   /* on the same PE */
    kb_co *co;          /* NULL before its turn, and when it is gone */
    bool over;          /* it has returned, or made a mistake */
    kb_error *error;    /* which one */
    uint32_t under_way; /* commands */
    kb_time start;
    kb_time busy_before[KB_UNITS];
    kb_time issuing; /* how long so far */

    tl_link values, commands; /* heads: all there are */
    KB_VEC(tl_handle) handles;
    uint32_t free_handle; /* slot + 1 */
    KB_VEC(tl_scope_of_kernel) scopes;

    /* Of the call in hand. */
    tl_value *temporaries[TL_MAX_INPUTS]; /* refs that were loaded for it */
    uint32_t temporary_count;
    data_value *mask; /* a byte for each element */
    pe_rects rects[TL_MATRICES];
};

/* The kernels of a PE: the one that runs, then those that wait; NULL if there are none. */
typedef struct tl_turns {
    tl_context *first, *last;
} tl_turns;

struct tl_runner {
    tl_runner_options has;
    const topo_pe_figures *figures;
    tl_turns *turns; /* by PE */
    uint64_t pe_count;
    uint64_t started;     /* kernels, ever */
    uint64_t value_count; /* ever */
    kb_pool values, commands;
};

/* ---- fault.c ---- */

/* A call of the kernel's. */
typedef struct tl_call {
    tl_context *tl;
    tl_place at;
    const char *name; /* "tl_add" */
} tl_call;

/* How a call begins. */
static inline tl_call tl_enter(tl_context *tl, tl_place at, const char *name)
{
    kb_co_set_line(tl->co, (kb_line){at.file, at.line});
    return (tl_call){tl, at, name};
}

/* The kernel made a mistake and ends here. */
KB_NORETURN void tl_fault(const tl_call *call, const char *format, ...) KB_PRINTF(2, 3);

/* The same with an error, which it takes over. One that is no fault of the kernel fails the run. */
KB_NORETURN void tl_fail(const tl_call *call, kb_error *err);

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

/* ---- value.c ---- */

uint64_t tl_elements(const tl_dims *shape); /* of a shape that was checked */
bool tl_same_shape(const tl_dims *a, const tl_dims *b);
kb_shape tl_shape_of(const tl_dims *shape);

/* With its place, for which it may wait. Counted once, for the caller. */
tl_value *tl_value_new(const tl_call *call, kb_dtype dtype, const tl_dims *shape);

/* The same, in the place of another, which has none any more. */
tl_value *tl_value_in_place_of(const tl_call *call, tl_value *other);
void tl_value_retain(tl_value *value);
void tl_value_release(tl_context *tl, tl_value *value);

/* A handle for a value, which takes over one count of it; for a place in memory. */
tl_tensor tl_handle_new(const tl_call *call, const tl_handle *is);
tl_tensor tl_handle_of(const tl_call *call, tl_value *value, const tl_dims *shape);
void tl_handle_drop(tl_context *tl, tl_handle *handle, tl_end end);

/* A fault unless the tensor is there. Good until the next handle is made. */
tl_handle *tl_handle_find(const tl_call *call, tl_tensor tensor);
bool tl_is_number(tl_tensor tensor);

/* Moves it to another scope. */
void tl_handle_move(tl_context *tl, tl_handle *handle, uint32_t scope);

/* What a call is given: a place in memory is loaded, and is there until the call is over. */
tl_operand tl_take(const tl_call *call, tl_tensor tensor);
void tl_end_call(tl_context *tl);

kb_error *tl_context_init(tl_context *tl); /* the parts above */
void tl_context_fini(tl_context *tl);      /* with all values, handles and commands */

/* ---- command.c ---- */

static inline bool tl_is_structural(const tl_operand *operand)
{
    return !operand->value || operand->value->structural;
}

/* What the operand has, in its shape; to be released. */
kb_error *tl_operand_data(tl_context *tl, const tl_operand *operand, data_value **data);

/* One with these inputs, which are counted until it is done, and so is the result. */
tl_command *tl_command_new(const tl_call *call, const tl_operand *inputs, uint32_t count,
                           tl_value *result, const tl_dims *shape);

void tl_command_destroy(tl_command *command);

/* Hands it to a unit, when there is room: takes the pe_cpu's time. `what` has what the unit needs;
 * the rest is filled in. */
pe_op tl_issue(const tl_call *call, tl_command *command, pe_command *what);

/* The same for the scheduler. */
pe_op tl_issue_product(const tl_call *call, tl_command *command, pe_product *what);

void tl_wait_for_progress(const tl_call *call);
void tl_wait_for(const tl_call *call, pe_op op);

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

/* What was found; with data it is the command's from here on. */
const pe_rects *tl_rects_of(tl_command *command, int which);

uint64_t tl_row_bytes(const tl_dims *shape, kb_dtype dtype);

/* ---- math.c ---- */

static inline bool tl_is_float(kb_dtype dtype)
{
    return dtype != KB_I8 && dtype != KB_I32;
}

static inline bool tl_is_f8(kb_dtype dtype)
{
    return dtype == KB_F8E4M3 || dtype == KB_F8E5M2;
}

/* What an operation on both computes in. */
kb_dtype tl_dtypes_meet(kb_dtype a, kb_dtype b);

/* The shape that both are repeated to. False if they do not fit. */
bool tl_broadcast(const tl_dims *a, const tl_dims *b, tl_dims *both);

/* ---- runner.c ---- */

/* A command of the kernel is done. */
void tl_context_progress(tl_context *tl);

#endif
