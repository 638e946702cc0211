/*
 * work.h: what collectives need of the runtime: who calls, queues installed in PEs, kernels on
 * chosen PEs with arguments of their own, copies between tensors by the count of elements, and
 * requests that consist of steps.
 */
#ifndef KB_RT_WORK_H
#define KB_RT_WORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/kernbench.h>
#include <kernbench/tl.h>

#include "ipcq/ipcq.h"
#include "net/net.h"
#include "topo/topo.h"

/* ---- The context ---- */

/* The calling worker's rank; RT_DRIVER for the program outside workers. */
#define RT_DRIVER UINT32_MAX
uint32_t rt_caller_rank(kb_context *ctx);
uint32_t rt_worker_count(const kb_context *ctx);                /* 0 while none run */
bool rt_worker_has_ended(const kb_context *ctx, uint32_t rank); /* also if there is none such */

/* Lets time pass until the list is woken, or the machine has ended something. */
KB_MUST_USE kb_error *rt_block_on(kb_context *ctx, kb_waitlist *list);

const topo_machine *rt_machine(const kb_context *ctx);
ipcq *rt_queues(const kb_context *ctx);

/* The SIP that the context is limited to, or TOPO_NONE. */
uint32_t rt_only_sip(const kb_context *ctx);

/* Those of the options that are about collectives; they stay as long as the context. */
typedef struct rt_ccl_options {
    const char *file;            /* NULL: what is built in */
    const char *const *settings; /* without "ccl." */
    size_t setting_count;
    const struct kb_ccl_plugin *const *plugins;
    size_t plugin_count;
} rt_ccl_options;
const rt_ccl_options *rt_get_ccl_options(const kb_context *ctx);

/* Others from here on, which are copied. */
KB_MUST_USE kb_error *rt_set_ccl_options(kb_context *ctx, const rt_ccl_options *options);

/*
 * Handles of layers: a number from 1 on, below 2^44, with the context. The number of a handle is 0
 * if it belongs to another context. rt_bad_handle() is the error for one that names nothing: `what`
 * it should name and how that goes ("freed"); `function` may be "".
 */
uint64_t rt_make_handle(const kb_context *ctx, uint64_t number);
uint64_t rt_number_of(const kb_context *ctx, uint64_t handle);
KB_MUST_USE kb_error *rt_bad_handle(const kb_context *ctx, const char *function, const char *what,
                                    const char *gone, uint64_t handle);

/* For kb_context_options.on_note: a line that was told before is not told again. */
void rt_note(kb_context *ctx, const char *format, ...) KB_PRINTF(2, 3);

void rt_warn(kb_context *ctx, const char *format, ...) KB_PRINTF(2, 3);

/* For debug mode. */
void rt_debug_warn(kb_context *ctx, const char *format, ...) KB_PRINTF(2, 3);

/* Layers above the runtime that keep state in a context, the lowest first. */
typedef enum rt_layer {
    RT_LAYER_CCL,
    RT_LAYER_TP,
    RT_LAYER_DTENSOR,
    RT_LAYER_NN,
    RT_LAYER_ATTENTION,
    RT_LAYER_MODEL,
    RT_LAYERS
} rt_layer;

/*
 * What a layer is told, lowest layer first. A hook may be NULL. The hooks are called when workers
 * begin, when the function of one has returned without an error (or it was killed), behind all
 * other workers, when all are gone and, if one failed, their kernels with them, and when the
 * context is destroyed (highest layer first): then nothing moves any more, and kernels are gone.
 */
typedef struct rt_hooks {
    void (*workers_begin)(void *self);
    void (*worker_ended)(void *self, uint32_t rank);
    void (*workers_gone)(void *self, bool failed);
    void (*fini)(void *self);
} rt_hooks;

void rt_set_layer(kb_context *ctx, rt_layer layer, const rt_hooks *hooks, void *self);
void *rt_get_layer(const kb_context *ctx, rt_layer layer); /* NULL until set */

/* Another context on the same machine, timing-only and without limits, for measuring: with these
 * options for collectives. The machine is shared: it has to be destroyed first. */
KB_MUST_USE kb_error *rt_context_like(kb_context *ctx, kb_context **other);

/* ---- Tensors, as collectives see them ---- */

typedef struct rt_tensor_view {
    const char *name;
    kb_shape shape;
    kb_dtype dtype;
    uint32_t sip;
    kb_memory memory;
    uint64_t va, elements, bytes;
    bool on_host;
    bool replicated;
    bool is_index;
    kb_policy policy;       /* that it was made with */
    const kb_shard *shards; /* good until the next call of this kind */
    size_t shard_count;
} rt_tensor_view;

/* KB_ERR_FAULT if it was freed or never was one. */
KB_MUST_USE kb_error *rt_view_tensor(kb_context *ctx, kb_tensor tensor, rt_tensor_view *view);

/* Whether the two, of the same shape and dtype, are laid out alike, the SIP apart. */
bool rt_same_layout(kb_context *ctx, kb_tensor a, kb_tensor b);

/* Which elements a shard has: rows and columns of the tensor seen as (first axis, all others).
 * Without columns if it is empty, or no such rectangle (of three axes or more, split by columns).
 */
typedef struct rt_shard_box {
    uint64_t row, rows, column, columns;
} rt_shard_box;
rt_shard_box rt_get_shard_box(kb_context *ctx, kb_tensor handle, size_t shard);

/* Waits for the caller's transfers and mappings, and for the tensor's mapping, as a launch does. */
KB_MUST_USE kb_error *rt_wait_for_tensor(kb_context *ctx, kb_tensor tensor);

/* ---- Queues ---- */

/* Commands through the fabric to all PEs of the set; done when all are. The second is for those
 * that have them, and forgets what is left in them first. After an error nothing is under way; what
 * goes wrong later the request tells. The request is to be freed. */
KB_MUST_USE kb_error *rt_install_queues(kb_context *ctx, ipcq_set *set, kb_request *request);
KB_MUST_USE kb_error *rt_remove_queues(kb_context *ctx, ipcq_set *set, kb_request *request);

/* Queues that the program has made: takes them over. */
KB_MUST_USE kb_error *rt_add_queue_set(kb_context *ctx, ipcq_set *queues, kb_queue_set *set);

/* ---- Streams and graphs ---- */

struct rt_stream;

/* The program's stream. */
KB_MUST_USE kb_error *rt_find_stream(kb_context *ctx, const char *function, kb_stream handle,
                                     struct rt_stream **stream);

/* Waits for what the caller has in streams; or for all that it has outside of them. */
KB_MUST_USE kb_error *rt_settle_streams(kb_context *ctx);
KB_MUST_USE kb_error *rt_settle_others(kb_context *ctx);

/* Whether the caller records a graph. */
bool rt_is_recording(kb_context *ctx);

struct rt_work;

/*
 * Something that a graph records for another layer. When the graph is launched: `check` finds what
 * is wrong; `prepare` may wait; `replay` starts it as nodes of the stream, and holds the graph's
 * work until it is over. If something went wrong after `prepare`, `drop` is called instead.
 */
typedef struct rt_recorded {
    const char *name; /* copied */
    void *self;
    const bool *devices; /* by SIP: which take part; copied */
    uint64_t pe_bytes;   /* what each of their PEs is told when the graph is recorded */
    kb_error *(*check)(void *self);
    kb_error *(*prepare)(void *self);
    kb_error *(*replay)(void *self, struct rt_work *graph, struct rt_stream *stream);
    void (*drop)(void *self, const kb_error *why);
    void (*free)(void *self);
} rt_recorded;

/* Takes over `self`, also after an error. */
KB_MUST_USE kb_error *rt_record(kb_context *ctx, const rt_recorded *recorded, kb_stream stream);

/* ---- Work: a request of the caller in steps ---- */

typedef struct rt_work rt_work;

/*
 * Begins the next step, the first one with step 0: adds parts to the work, none if there is nothing
 * to do; the next step begins when they have ended. *over: the work ends with this step. Not called
 * any more after a part, or a step, failed.
 */
typedef kb_error *rt_step_fn(void *self, rt_work *work, uint32_t step, bool *over);

typedef struct rt_work_options {
    const char *what, *label; /* for the op log: "all_reduce", and of what */
    rt_step_fn *step;
    void (*done)(void *self, const kb_error *err); /* once; the work is gone afterwards. Not called
                                                      if the context goes before */
    void *self;
    bool moves_nothing;       /* a barrier: reads of tensors do not wait for it */
    const char *waits_for;    /* what is said of who waits for it in a deadlock; must stay. NULL: a
                                 request */
    struct rt_stream *stream; /* its launches and copies are nodes of it; NULL: of none */
} rt_work_options;

/* The handle is to be freed; it counts as a launch of the caller. Nothing begins yet. */
KB_MUST_USE kb_error *rt_work_open(kb_context *ctx, const rt_work_options *options, rt_work **work,
                                   kb_request *request);

/* The first step begins, now. It may be done before this returns. */
void rt_work_start(rt_work *work);

/* Waits for a request and frees it, also if the worker is unwound meanwhile. */
KB_MUST_USE kb_error *rt_wait_and_free(kb_context *ctx, kb_request request);

/* Ends the kernels of the work, wherever they wait, and what is held; the work ends with a copy of
 * this error when all has ended, which may be before this returns. */
void rt_work_abort(rt_work *work, const kb_error *why);

/* Ends the kernels of the work alone, and what of it has not begun. */
void rt_work_stop(rt_work *work, const kb_error *why);

/* The work, which is in a stream, uses the tensor until it ends. */
KB_MUST_USE kb_error *rt_work_use(rt_work *work, kb_tensor tensor);

typedef struct rt_target {
    uint32_t cube, pe;
    const tl_arg *args; /* as many as the kernel has parameters; copied */
} rt_target;

typedef struct rt_launch_spec {
    const char *name;
    const kb_kernel *kernel;
    uint32_t sip;
    ipcq_set *queues;         /* NULL: none */
    const rt_target *targets; /* by (cube, pe) */
    size_t target_count;
} rt_launch_spec;

/* A launch on these PEs. It is a kernel launch like any other; but if one of its kernels fails and
 * it has queues, all kernels of the work are ended. */
KB_MUST_USE kb_error *rt_work_launch(rt_work *work, const rt_launch_spec *spec);

/* Elements [from_first, from_first + count) of one tensor become those of another from to_first on,
 * counted row by row; both on devices, of one dtype. PEs that have them send them. */
typedef struct rt_flat_copy {
    kb_tensor to, from;
    uint64_t to_first, from_first, count;
} rt_flat_copy;

KB_MUST_USE kb_error *rt_work_copy(rt_work *work, const rt_flat_copy *copy);

/* A part that ends when it is told to. Releasing does nothing once the work was aborted. */
void rt_work_hold(rt_work *work);
void rt_work_release(rt_work *work, kb_error *err);

/* A part that keeps the work until it is ended, also once the work was aborted. */
void rt_work_add_part(rt_work *work);
void rt_work_end_part(rt_work *work, kb_error *err);

#endif
