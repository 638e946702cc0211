/*
 * runtime.h: what the files of rt know of a context. Private to rt.
 *
 *     context.c            a context, from creation to the end
 *     worker.c             workers: starting, waiting, their devices
 *     request.c            handles of requests, completions
 *     memory_requests.c    requests on memory: writes, reads, mappings
 *     job.c                commands to PEs: DMA, MMU
 *     tensor.c             tensors: creating, describing, freeing
 *     tensor_access.c      contents of tensors: copies, elements, slices
 *     tensor_view.c        tensors as collectives see them
 *     move.c               contents and their transfers
 *     flat.c               copies by the count of elements
 *     launch_call.c        the call that launches a kernel
 *     launch.c             launches under way
 *     arguments.c          the arguments of kernels
 *     node.c               dependencies between launches and copies
 *     stream.c             streams and their events
 *     copy.c               copies in streams
 *     graph.c              recorded sequences of work
 *     race_check.c         which launches are checked for data races together
 *     work.c               requests of several steps
 *     queue_install.c      installing queues in PEs
 *     calls.c              which calls wait for pending work
 *     bench.c              running benches
 *     failures.c           the report of failed workers
 *     handles.c            handles and their contexts
 *     handle_table.c       objects by their handles
 *
 * work.h is what the layer of collectives above sees of all this.
 */
#ifndef KB_RT_RUNTIME_H
#define KB_RT_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "base/base.h"
#include "calls.h"
#include "data/data.h"
#include "device_order.h"
#include "handle_table.h"
#include "io/io.h"
#include "ipcq/ipcq.h"
#include "mem/mem.h"
#include "net/net.h"
#include "oplog/oplog.h"
#include "pe/pe.h"
#include "sim/sim.h"
#include "tl/tl.h"
#include "topo/topo.h"
#include "work.h"

/*
 * Source ids: workers by rank, then what has to come after all workers at an
 * instant, then the machine, what the program adds itself, and at last what comes after everything
 * at an instant.
 */
enum {
    RT_MAX_WORKERS = 1 << 16,
    RT_AFTER_WORKERS = RT_MAX_WORKERS,
    RT_MACHINE = RT_MAX_WORKERS + 1,
    RT_PROGRAM = KB_SOURCE_ID_MAX - (1 << 16), /* from here on: the program's own */
    RT_AFTER_ALL = KB_SOURCE_ID_MAX,
};

typedef struct rt_request rt_request;
typedef struct rt_launch rt_launch;
typedef struct rt_turns rt_turns;
typedef struct rt_copy rt_copy;

/* Who calls: a worker, or the program outside workers. */
typedef struct rt_caller {
    kb_context *ctx;
    uint32_t rank;
    bool device_set, device_warned;
    uint32_t device;
    uint32_t under_way;                   /* its requests that move something and have not ended */
    uint32_t launches;                    /* of them */
    kb_waitlist idle;                     /* woken when none of them is, or launches alone */
    rt_request *first_fault, *last_fault; /* failed requests whose errors were not reported */
    bool nameless_fault;                  /* one of them has no handle: it stays for being told */
    rt_work *works;                       /* its own that were not aborted, the newest first */
    uint32_t streamed;                    /* of those under way: in streams */
    tl_mark over;                         /* of its own that have ended, for races */
    uint64_t recording;                   /* the graph that it records; 0: none */

    /* Of a worker alone. */
    kb_co *co; /* NULL when it is gone */
    kb_worker_fn *fn;
    void *arg;
    bool ended;                  /* its function is done */
    bool to_be_told_of, told_of; /* that it has ended well, to the layer of collectives */
    kb_error *error;             /* what its function returned */
    uint32_t representative;     /* if it failed: the first rank whose error says the same */
    uint32_t group_size;         /* how many that one speaks for */
} rt_caller;

/* Something under way, in one or several parts that start together. */
struct rt_request {
    kb_context *ctx;
    uint64_t id;
    rt_caller *owner; /* NULL if it has ended */
    bool counts;      /* in its owner's work under way */
    bool is_launch, logs_launch;
    bool has_handle; /* stays when it is done, until the user frees it */
    bool done;
    uint32_t parts;   /* not yet ended */
    const char *what; /* for the op log: "copy" */
    char label[40];   /* and of what, as much as fits */
    kb_completion completion;
    kb_error *error;
    bool untold; /* it failed, and is in its owner's list of faults: */
    rt_request *fault_before, *fault_after;
    kb_waitlist waiters;
    void (*on_end)(rt_request *request); /* NULL or called when it is done; may use these: */
    uint64_t tensor, va, then;           /* then: a request that waits for this one */
    mem_mapping_id mapping;
    uint32_t sip;
    rt_launch *launches, *last_launch; /* its parts, one a device, */
    uint64_t number;                   /* and the number of the first */
    tl_races *races;       /* of launches under way, which count it; NULL: none, or not checked */
    rt_work *work;         /* whose request it is, until it ends: NULL for most */
    rt_stream *stream;     /* that it is in; NULL: none */
    char awaited[96];      /* what is said of who waits for it, if it is in a named stream */
    rt_node *nodes;        /* of it, until it ends */
    rt_copy *copies;       /* in streams */
    KB_VEC(uint64_t) uses; /* tensors that its nodes use, until it ends */
    tl_mark over;          /* for races, when it has ended */
};

typedef struct rt_tensor {
    uint64_t id;
    char *name;
    kb_shape shape;
    kb_dtype dtype;
    uint64_t bytes; /* once, without copies */

    unsigned char *host; /* the contents of a tensor of the host; NULL in timing-only contexts */
    bool on_host;
    bool is_index;     /* it has contents in timing-only contexts too */
    uint32_t arriving; /* copies under way into it, for one of the host */
    uint32_t in_use;   /* by work in streams that has not ended: how often */

    uint32_t sip;
    kb_memory memory;
    kb_access access;
    uint64_t va;
    mem_mapping_id mapping; /* 0 if it has no bytes */
    uint64_t map_request;   /* under way until it is mapped, and gone afterwards */
    kb_policy policy;
    mem_placement placement;
    mem_grid grid;
    KB_VEC(kb_location) blocks; /* of memory, one in each PE that has shards */
    uint64_t *offsets;          /* by shard: where it starts in its PE's memory */
} rt_tensor;

/* Queues of the program's own. */
typedef struct rt_queue_set {
    uint64_t id;
    ipcq_set *queues;
    bool installed;
    uint64_t order;   /* among those that are installed: the larger, the later */
    uint32_t kernels; /* that use it and have not ended */
    bool stale;       /* a kernel was ended before its time: messages may be left */
} rt_queue_set;

/* A rank that failed. */
typedef struct rt_failure {
    uint32_t rank;
    kb_error *error;
} rt_failure;

struct rt_job;

typedef struct rt_raw_mapping {
    mem_mapping_id id;
    uint32_t sip;
    uint64_t va, bytes;
    kb_location to;
    uint32_t requests; /* about it, under way */
} rt_raw_mapping;

struct kb_context {          /* NOLINT(clang-analyzer-optin.performance.Padding): there is one */
    uint32_t number;         /* in its handles */
    bool is_of_bench;        /* which must not destroy it, */
    bool destroyed_by_bench; /* and has tried to */
    kb_sim *sim;
    topo_machine *machine;
    bool owns_machine; /* else it is another context's */
    const topo_shape *shape;
    net *fabric;
    net_route_buffer routes;
    uint32_t host_node;
    mem_memories *memories;
    mem_mmu **mmus; /* one a SIP */
    mem_allocator va;
    io *control;
    pe_dma *dma;
    kb_oplog *log;
    data_store *store;
    pe_units *units;
    pe_composites *composites;
    ipcq *queues;
    tl_runner *kernels;

    bool timing_only;
    kb_race_check race_check;
    bool no_elision;
    size_t stack_bytes;
    bool debug;
    bool broken;  /* the simulation ran out of memory */
    bool limited; /* to one SIP: */
    uint32_t only_sip;
    kb_warning_fn *on_warning;
    void *on_warning_self;
    kb_tcm_fn *on_tcm;
    void *on_tcm_self;

    rt_table requests, tensors, queue_sets, streams, stream_events, graphs;
    rt_stream default_stream;
    uint64_t streams_made;
    rt_nodes *collectives; /* by SIP: nodes of collectives that have not begun, in order of calls */
    rt_node *newest_node;
    uint64_t node_stamps; /* searches among them so far */
    kb_pool signals;      /* between nodes of different devices, under way */
    rt_check checked;
    tl_mark observed;              /* what the program has waited for */
    uint64_t queue_sets_installed; /* ever */
    uint64_t tensors_made;
    struct rt_job *jobs;               /* commands under way */
    KB_VEC(char *) names;              /* of launches */
    KB_VEC(kb_launch_result) launches; /* that are done */
    uint64_t launches_made;
    size_t launches_open;       /* results to come, one a device: there is room for them */
    rt_turns *turns;            /* by PE of the machine: launches that have not started there */
    KB_VEC(kb_location) grants; /* memory and addresses (KB_VIRTUAL) that the user asked for */
    KB_VEC(rt_raw_mapping) raw_mappings;

    rt_caller driver;
    bool driver_waits;
    rt_caller *workers;          /* NULL while none run */
    KB_VEC(rt_failure) failures; /* of the last that ran */
    uint32_t worker_count, workers_alive;
    kb_event failure;   /* a worker has failed: ends the run behind all else of its instant */
    kb_event ends;      /* workers have ended: tells of it behind all workers of the instant */
    bool halted;        /* workers are stopped, and not by themselves */
    uint32_t under_way; /* requests of all, with and without owner */
    uint32_t moving;    /* those of them that move something */

    kb_source after_workers, after_all;
    kb_handler on_failure, on_ends, on_turn, on_step, on_stop, on_cancel;
    kb_waitlist yielders;
    kb_event turn;       /* decides on the next turn of yielders, or gives it */
    bool turn_pending;   /* it is settled when yielders have their next turn: */
    bool turn_at_end;    /* when the next request ends */
    bool went_on;        /* a worker has started or stopped waiting since the last turn */
    kb_time deadlock_at; /* of the last one; 0: there was none */
    uint32_t vain_turns; /* in a row, in which none did while nothing else could move */

    rt_work *loose_works; /* that were aborted, or whose owner is gone */
    bool stop_pending;    /* launches of which a kernel has failed are about to be stopped */
    KB_VEC(kb_shard) seen_shards; /* of the last rt_view_tensor() */

    rt_ccl_options ccl_options; /* with copies of their own: */
    char *ccl_file;
    KB_VEC(char *) ccl_settings;
    KB_VEC(const struct kb_ccl_plugin *) ccl_plugins;
    kb_warning_fn *on_note;
    void *on_note_self;
    KB_VEC(char *) notes; /* that were made: each is told once */
    kb_warning_fn *on_ccl_trace;
    void *on_ccl_trace_self;
    struct {
        const rt_hooks *hooks; /* NULL until the layer has state */
        void *self;
    } layers[RT_LAYERS];
};

/* ---- handles.c ---- */

uint32_t rt_new_context_number(void);

/* ---- failures.c ---- */

/* One error for all workers that have failed; NULL if none has. */
KB_MUST_USE kb_error *rt_sum_up_failures(kb_context *ctx);
void rt_failures_forget(kb_context *ctx);

/* ---- worker.c ---- */

rt_caller *rt_caller_of(kb_context *ctx);
kb_error *rt_workers_init(kb_context *ctx);
void rt_caller_fini(rt_caller *caller);

/* An error once the simulation has run out of memory. */
KB_MUST_USE kb_error *rt_check_whole(const kb_context *ctx);

/* A request has ended: for those who wait for any. */
void rt_request_ended(kb_context *ctx);

/* Waits for the caller's work, and returns what failed of it; the second, for all but launches. */
KB_MUST_USE kb_error *rt_settle(rt_caller *caller);
KB_MUST_USE kb_error *rt_wait_for_transfers(rt_caller *caller);

/* Begins a call on a tensor: waits if the table says so, and finds the tensor. */
KB_MUST_USE kb_error *rt_enter(kb_context *ctx, rt_call call, kb_tensor handle, rt_tensor **tensor);

/* ---- request.c ---- */

/*
 * A request of the caller, with one part that is not ended: the caller's own. `what` it is and of
 * what (NULL: of nothing in particular) are for the op log.
 */
KB_MUST_USE kb_error *rt_request_open(kb_context *ctx, const char *what, const char *label,
                                      rt_request **request);
void rt_request_add_part(rt_request *request);

/* Reading tensors does not wait for it. To be called at once. */
void rt_request_moves_nothing(rt_request *request);

/* Transfers and mappings of others do not wait for it. To be said at once. `all_of_it`: to the log
 * it is a launch from its beginning to its end; else its launches tell the log themselves. */
void rt_request_is_launch(rt_request *request, bool all_of_it);

/* A part has ended; of the parts the last one says how the time came about. Takes the error. */
void rt_request_end_part(rt_request *request, const net_completion *transfer, kb_error *err);

/* Ends the caller's own part, which took no time. */
void rt_request_close(rt_request *request, kb_error *err);

/* A transfer between the host and a location, as a part of the request. */
KB_MUST_USE kb_error *rt_request_transfer(rt_request *request, const kb_location *location,
                                          uint64_t bytes, bool read);

/* For critical paths: a transfer between the host and a memory that has ended, and the record
 * because of which it began. */
void rt_tell_host_copy(kb_context *ctx, uint64_t cause, uint32_t node, bool read,
                       const net_completion *completion);

/* Its nodes use the tensor until it has ended. */
KB_MUST_USE kb_error *rt_request_use(rt_request *request, kb_tensor tensor);

/* It is in the stream. To be said at once. */
void rt_request_in_stream(rt_request *request, rt_stream *stream);

/* A handle for the user. */
kb_request rt_request_handle(rt_request *request);

/* The first fault of what the caller had under way, of which it now was told; NULL if all went
 * well. */
KB_MUST_USE kb_error *rt_take_faults(rt_caller *caller);

/* The run has failed: shows the log's watcher those under way, as unfinished. */
void rt_requests_show_unfinished(kb_context *ctx);

/* Requests lose their owner. */
void rt_requests_disown(kb_context *ctx);
void rt_requests_fini(kb_context *ctx);

/* ---- memory_requests.c ---- */

/* A range of virtual addresses, in whole pages. */
KB_MUST_USE kb_error *rt_va_take(kb_context *ctx, uint64_t bytes, uint64_t *va);

/* ---- job.c ---- */

/* A command to PEs of one SIP that is being put together: what each is to do. */
typedef struct rt_job rt_job;

typedef enum rt_job_kind {
    RT_JOB_DMA,
    RT_JOB_MAP,
    RT_JOB_UNMAP,
    RT_JOB_INSTALL,
    RT_JOB_REMOVE,
    RT_JOB_RECORD /* control processors and PEs keep what they are told */
} rt_job_kind;

KB_MUST_USE kb_error *rt_job_create(kb_context *ctx, rt_job_kind kind, uint32_t sip,
                                    const char *who, rt_job **job);
void rt_job_destroy(rt_job *job);

/* Moves are to be added PE by PE, in order of (cube, pe). */
KB_MUST_USE kb_error *rt_job_add_move(rt_job *job, uint32_t cube, uint32_t pe, const pe_move *move);

/* One PE, or all of the SIP. */
KB_MUST_USE kb_error *rt_job_add_pe(rt_job *job, uint32_t cube, uint32_t pe);
KB_MUST_USE kb_error *rt_job_add_all(rt_job *job);

/* The mapping that it is about, and how many ranges that has. */
void rt_job_set_mapping(rt_job *job, mem_mapping_id mapping, size_t ranges);

/* The queues that it is about. */
void rt_job_set_queues(rt_job *job, ipcq_set *set);

/* A PE, and what the command has to tell it. */
KB_MUST_USE kb_error *rt_job_add_target(rt_job *job, uint32_t cube, uint32_t pe, uint64_t bytes);

/* What the control processor of each cube is told. */
void rt_job_set_cube_bytes(rt_job *job, uint64_t bytes);

/* Sends it off as a part of the request. The job is gone afterwards, also after an error. */
KB_MUST_USE kb_error *rt_job_submit(rt_job *job, rt_request *request);

/* The same in an order with other work: see io_command. */
typedef struct rt_job_order {
    bool recorded;
    void (*held)(void *self, uint64_t ticket);
    void (*joined)(void *self, const kb_error *err);
    kb_error *(*done)(void *self, kb_error *err); /* as the host sees it; what is wrong then */
    void *self;
} rt_job_order;
KB_MUST_USE kb_error *rt_job_submit_ordered(rt_job *job, rt_request *request,
                                            const rt_job_order *order);

/* All that are under way, when the simulator has been abandoned. */
void rt_jobs_fini(kb_context *ctx);

/* ---- tensor.c ---- */

void rt_tensors_fini(kb_context *ctx);

/* "x (4, 8) f16" */
void rt_tensor_print(const rt_tensor *tensor, kb_text *text);

/* Where a shard is. */
kb_location rt_shard_location(const rt_tensor *tensor, size_t shard);

/* What users see of it. */
kb_shard rt_describe_shard(const rt_tensor *tensor, size_t shard);

/* ---- tensor_access.c ---- */

/* Whether one can be copied to the other: the same shape and dtype. */
KB_MUST_USE kb_error *rt_check_alike(const rt_tensor *to, const rt_tensor *from);

/* ---- move.c ---- */

/* False if the context is timing-only, but for index tensors. */
static inline bool rt_has_contents(const kb_context *ctx, const rt_tensor *tensor)
{
    return !ctx->timing_only || tensor->is_index;
}

/* Contents of a box, row by row, without time. */
KB_MUST_USE kb_error *rt_write_box(kb_context *ctx, rt_tensor *tensor, const mem_box *box,
                                   const void *data);
KB_MUST_USE kb_error *rt_read_box(kb_context *ctx, const rt_tensor *tensor, const mem_box *box,
                                  void *data);
KB_MUST_USE kb_error *rt_fill_box(kb_context *ctx, rt_tensor *tensor, const mem_box *box,
                                  double value);
KB_MUST_USE kb_error *rt_copy_contents(kb_context *ctx, rt_tensor *to, const rt_tensor *from);

/* The time that it takes to write a box to all copies, or to read it from one. */
KB_MUST_USE kb_error *rt_time_box(const rt_tensor *tensor, const mem_box *box, bool read,
                                  rt_request *request);

/* The time of a copy from device to device, and of filling with what PEs make up. */
KB_MUST_USE kb_error *rt_time_copy(const rt_tensor *to, const rt_tensor *from, rt_request *request);
KB_MUST_USE kb_error *rt_time_fill(const rt_tensor *tensor, rt_request *request);

/* What one shard sends to another. */
typedef struct rt_sending {
    size_t from_shard, to_shard;
    uint64_t bytes;
} rt_sending;

typedef KB_VEC(rt_sending) rt_sendings;

/* Of the shards of a cell the one that a PE, of whatever SIP, gets its elements from. */
size_t rt_nearest_shard(const rt_tensor *from, const uint32_t *shards, kb_pe pe, uint32_t pes);

/* Has the PEs of `from` send. Sorts the list. *job is NULL if there is nothing to send. */
KB_MUST_USE kb_error *rt_make_sendings(kb_context *ctx, const rt_tensor *to, const rt_tensor *from,
                                       rt_sendings *sendings, rt_job **job);

/* The same for a copy of the whole tensor. */
KB_MUST_USE kb_error *rt_make_copy(kb_context *ctx, const rt_tensor *to, const rt_tensor *from,
                                   rt_job **job);

/* Calls `fn` for each transfer that writing a box to all copies takes, or reading it from one. */
typedef kb_error *rt_transfer_fn(void *self, const kb_location *at, uint64_t bytes);
KB_MUST_USE kb_error *rt_each_transfer(const rt_tensor *tensor, const mem_box *box, bool read,
                                       rt_transfer_fn *fn, void *self);

/* ---- flat.c ---- */

/* Copies by the count of elements: contents at once, time as parts of the request. */
KB_MUST_USE kb_error *rt_copy_flat(rt_request *request, rt_tensor *to, rt_tensor *from,
                                   const rt_flat_copy *copy);

/* The two by themselves. *job is NULL if nothing is to be sent. */
KB_MUST_USE kb_error *rt_flat_contents(kb_context *ctx, rt_tensor *to, rt_tensor *from,
                                       const rt_flat_copy *copy);
KB_MUST_USE kb_error *rt_make_flat(kb_context *ctx, const rt_tensor *to, const rt_tensor *from,
                                   const rt_flat_copy *copy, rt_job **job);

/* ---- copy.c ---- */

/* A copy in a stream as a part of the request: contents change when it begins. */
KB_MUST_USE kb_error *rt_copy_start(rt_request *request, const rt_flat_copy *copy,
                                    rt_stream *stream);
void rt_copies_free(rt_copy *first);

/* ---- launch_call.c ---- */

/* The same text for as long as the context; NULL if there is no memory. */
const char *rt_keep_name(kb_context *ctx, const char *name);

/* What a program asks for. */
typedef struct rt_launch_call {
    const char *name;
    const kb_kernel *kernel;
    const kb_arg *args;
    size_t count;
    kb_queue_set queues; /* 0: on each PE those that were installed last */
    kb_scope scope;
    uint64_t changed; /* arguments of a recorded launch that differ from what was recorded */
} rt_launch_call;

/* Whether it makes sense; waits for what has to be there first; launches it in the stream, as
 * parts of the request. */
KB_MUST_USE kb_error *rt_launch_check(const rt_launch_call *call);
KB_MUST_USE kb_error *rt_launch_get_ready(kb_context *ctx, const rt_launch_call *call);
KB_MUST_USE kb_error *rt_launch_start(rt_request *request, const rt_launch_call *call,
                                      rt_stream *stream);

/* Marks the PEs of a device that run it: by cube and PE. */
KB_MUST_USE kb_error *rt_launch_mark(kb_context *ctx, const rt_launch_call *call, uint32_t sip,
                                     bool *marked);
KB_MUST_USE kb_error *rt_launch_devices(kb_context *ctx, const rt_launch_call *call, bool *devices);

/* ---- graph.c ---- */

KB_MUST_USE kb_error *rt_record_launch(kb_context *ctx, const rt_launch_call *call,
                                       kb_stream stream);
KB_MUST_USE kb_error *rt_record_copy(kb_context *ctx, kb_tensor to, kb_tensor from,
                                     kb_stream stream);
void rt_graphs_init(kb_context *ctx);
void rt_graphs_fini(kb_context *ctx);

/* ---- launch.c ---- */

KB_MUST_USE kb_error *rt_turns_init(kb_context *ctx);
void rt_turns_fini(kb_context *ctx);

void rt_launches_free(rt_launch *first);

/* ---- queue_install.c ---- */

/* The set that was installed last in the PE; NULL if none is. */
rt_queue_set *rt_queues_of_pe(kb_context *ctx, kb_pe pe);

/* The set of that number, which has to be installed; NULL for 0. */
KB_MUST_USE kb_error *rt_find_installed(kb_context *ctx, kb_queue_set handle, rt_queue_set **set);

/* Waits until what failed kernels left in the sets can be forgotten, and forgets it. */
KB_MUST_USE kb_error *rt_freshen_queue_sets(kb_context *ctx);
void rt_queue_sets_fini(kb_context *ctx);

/* A launch on chosen PEs as a part of the request, in the stream if there is one. */
KB_MUST_USE kb_error *rt_launch_on(rt_request *request, const rt_launch_spec *spec,
                                   rt_stream *stream);

/* Ends its kernels, also those that are still to come there. */
void rt_launch_stop(rt_launch *launch, const kb_error *why);

/* Why one of its kernels with queues failed, unless it was stopped since; else NULL. */
const kb_error *rt_launch_failure(const rt_launch *launch);

rt_launch *rt_launch_next(const rt_launch *launch); /* of the same request */

/* Waits until the tensor is mapped, or gone. */
KB_MUST_USE kb_error *rt_wait_for_mapping(kb_context *ctx, kb_tensor tensor);

/* ---- work.c ---- */

KB_MUST_USE kb_error *rt_works_init(kb_context *ctx);

rt_request *rt_work_request(const rt_work *work);

/* A part of the work's request has ended. */
void rt_work_advance(rt_work *work);

/* Aborts all works of the caller; of the driver and all workers: whether there was one. */
void rt_works_abort(rt_caller *caller, const kb_error *why);
bool rt_works_abort_all(kb_context *ctx, const kb_error *why);

/* The caller is about to go; its works stay. */
void rt_works_disown(rt_caller *caller);

/* A kernel with queues has failed: others of its work may wait for it, and are to end too. */
void rt_works_stop_soon(kb_context *ctx);
void rt_works_fini(kb_context *ctx);

#endif
