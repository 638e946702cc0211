/*
 * communicator.h: the process group, its groups and their calls. Private to ccl.
 *
 *     distributed.c   kb_distributed_*: the calls of programs
 *     group.c         the process group and groups of its ranks
 *     call.c          a call, from its arguments to its end
 *     launch_order.c  the order in which calls launch their kernels
 *     barrier.c       barriers
 *     recorded.c      calls in graphs
 *     epoch.c         matching: which calls of the ranks belong together
 *     check_call.c    checks of arguments
 *     instance.c      an entry of ccl.yaml for a group: plan, queues
 *     staging.c       layouts, and staging tensors
 *     targets.c       the kernel arguments of each participant
 *     select_entry.c        the entry that serves a call
 *     tune.c          measurements: the fastest entry
 *     validators.c    the layouts that algorithms need
 *     queue_sets.c    queues for ordinary launches
 *
 * The devices of a group are numbered from 0: `device` is this number, and group->sips[device] its
 * SIP. A call has one tensor, or one input and one output, for each device. Where ranks are devices
 * `device` is the rank in the group; where ranks are PEs a device has several ranks.
 */
#ifndef KB_CCL_COMMUNICATOR_H
#define KB_CCL_COMMUNICATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/ccl.h>

#include "base/base.h"
#include "ccl/config/ccl_yaml.h"
#include "ccl/config/registry.h"
#include "ccl/graph/lower_bound.h"
#include "ccl/graph/plan.h"
#include "ranks.h"
#include "rt/rt.h"
#include "topo/topo.h"
#include "tune.h"

typedef struct ccl_state ccl_state;
typedef struct ccl_group ccl_group;
typedef struct ccl_instance ccl_instance;
typedef struct ccl_epoch ccl_epoch;
typedef struct ccl_op ccl_op;

/* ---- Calls ---- */

/* The properties of a call that must be equal on all ranks. */
typedef struct ccl_signature {
    kb_collective_kind kind;
    kb_reduce_op op;
    kb_dtype dtype;
    uint32_t root;         /* or the other rank of a pair */
    kb_shape shape;        /* of the tensor that every rank has: the one with a single block */
    const char *algorithm; /* an entry's name or CCL_AUTO_NAME; NULL: as configured in ccl.yaml */
} ccl_signature;

#define CCL_AUTO_NAME "auto"

/* A staging tensor: laid out for lanes, and kept for later calls with the same layout. */
typedef struct ccl_staging {
    struct ccl_staging *next;
    uint32_t device;
    kb_dtype dtype;
    kb_shape shape;
    kb_policy policy;
    kb_tensor tensor;
    bool busy;
} ccl_staging;

/*
 * How lanes divide a block: as a tensor of the first rank of the epoch does, or canonically. The
 * first rank chooses by its own tensors. Ranks with other layouts use staging tensors.
 */
typedef struct ccl_lane_layout {
    bool canonical; /* one row, by columns over cubes and PEs */
    kb_tensor like;
    kb_shape block; /* the shape of one block, and its policy: */
    kb_policy policy;
} ccl_lane_layout;

/* The part of one device in a call. */
typedef struct ccl_share {
    uint32_t device;
    kb_tensor input, output; /* of the caller; 0: none */
    ccl_staging *in, *out;   /* NULL: not staged. Equal for collectives in place */
    rt_target *targets;
    tl_arg *args;
    size_t target_count;
} ccl_share;

/* A call from its checks to its end. */
struct ccl_op {
    ccl_op *next; /* in the list of the group */
    ccl_group *group;
    ccl_epoch *epoch; /* NULL if the caller drives all ranks */
    ccl_instance *instance;
    ccl_signature signature;
    ccl_lane_layout lane_layout;
    uint64_t size;    /* in bytes, as nccl-tests count */
    uint64_t part;    /* bytes of one participant's part */
    kb_memory memory; /* of the tensors */
    ccl_share *shares;
    size_t share_count;
    rt_work *work;            /* NULL before the start */
    struct rt_stream *stream; /* NULL: none */
    rt_work *graph;           /* the graph that it is a node of; NULL: none */
    uint64_t sequence;        /* start number in the context, from 1; 0: not started */
    kb_text awaited;          /* describes the call for those that wait for it */

    /* Until the kernels are launched, see launch_order.c: */
    ccl_op *next_pending;
    bool is_pending;
    bool ready;   /* tensors are staged: it may launch when its turn comes */
    bool blocked; /* the work is held until ccl_can_continue() */
};

/* ---- Groups ---- */

/* A participant of an instance. */
typedef struct ccl_participant {
    kb_pe pe;
    uint32_t rank;
    uint32_t subgroup, index, subgroup_size;
    const uint32_t *ranks; /* of the subgroup, by index */
} ccl_participant;

/* An entry of ccl.yaml for a group: its plan, and its queues in the PEs. */
struct ccl_instance {
    ccl_instance *next;
    const ccl_entry *entry;
    kb_error *refused; /* why there is no plan; all ranks get a copy */
    ccl_plan plan;
    bool lanes;                    /* the mapper is `lanes`: works on tensors in any layout */
    bool mixes_shards;             /* several PEs of a rank are in one subgroup */
    ccl_participant *participants; /* sorted by (device, cube, pe) */
    size_t *first;                 /* by device: its first participant; and the end */
    size_t participant_count;
    uint32_t *ranks;    /* subgroup by subgroup, by index */
    ipcq_set *queues;   /* NULL until the first call */
    kb_request install; /* of the queues; kept, because all ranks wait for it */
    bool installed;
    bool stale;        /* kernels were aborted: queues may hold messages */
    uint32_t launched; /* calls that have started and not ended */
};

/* The n-th calls of all ranks of a group, which belong together. */
struct ccl_epoch {
    ccl_epoch *next;
    uint64_t number; /* from 0 */
    bool is_pair;    /* a send and its receive, which are numbered by pair of ranks: */
    uint32_t from, to;
    ccl_signature signature; /* of the first call */
    uint32_t first;          /* its device */
    ccl_instance *instance;
    ccl_lane_layout lane_layout;
    bool *joined; /* by device */
    ccl_op **ops; /* by device: calls that have not ended */
    uint32_t joined_count, expected, op_count;
    bool begun;      /* a call has started */
    bool launched;   /* of a pair: one of the two has launched its kernels */
    kb_error *error; /* why it has failed */
};

/* The numbers of sends and receives between two ranks so far. */
typedef struct ccl_pair {
    uint32_t from, to;
    uint64_t sent, received;
} ccl_pair;

/* A cached choice of auto. */
typedef struct ccl_choice {
    kb_collective_kind kind;
    kb_dtype dtype;
    kb_reduce_op op;
    uint32_t root;
    uint64_t bytes;
    const ccl_entry *entry;
} ccl_choice;

/* The last finished call of a device, for kb_distributed_get_stats(). */
typedef struct ccl_last {
    const ccl_instance *instance; /* NULL: none; barriers do not count */
    kb_collective_kind kind;
    kb_dtype dtype;
    kb_memory memory;
    uint64_t size, part;
} ccl_last;

struct ccl_group {
    ccl_state *state;
    uint64_t id; /* 0: all ranks */
    uint32_t world;
    uint32_t *global_ranks; /* by rank: its rank in the process group */
    kb_pe *ranks;           /* by rank: its PE, or PE 0 of cube 0 of its SIP */
    uint32_t device_count;
    uint32_t *sips;  /* by device */
    uint64_t *calls; /* by device: epochs joined */
    ccl_last *last;  /* by device */
    ccl_epoch *epochs;
    KB_VEC(ccl_pair) pairs;
    ccl_instance *instances;
    ccl_op *ops;
    ccl_staging *staging;
    KB_VEC(ccl_choice) choices;
};

struct ccl_state {
    kb_context *ctx;
    const topo_machine *machine;
    ccl_registry registry;
    ccl_config config;
    bool has_config;
    const ccl_entry *chosen; /* NULL: auto */
    const ccl_entry *ranks;  /* defines what ranks are: the chosen entry, or that of auto */
    bool rank_is_pe;
    uint32_t world;

    bool exists;           /* the process group is initialised */
    bool of_driver;        /* by the program outside workers, for all ranks */
    bool *joined;          /* by rank: has initialised */
    bool *left;            /* by rank: has initialised and left */
    bool *gone;            /* by rank: its worker has ended without error, or there is none */
    uint64_t *groups_made; /* by rank: how many groups it has made */
    uint64_t last_id;      /* of a group; ids are not reused */
    uint64_t last_sequence;
    ccl_op *pending;             /* started calls that have not launched, in the order of calls */
    KB_VEC(ccl_group *) groups;  /* the first one is all ranks */
    KB_VEC(ccl_group *) leaving; /* groups of a former process group, with queues to remove */
    bool clearing;               /* a rank is removing these queues */
    kb_waitlist returning;       /* ranks that wait to initialise again */
    ccl_instance *retired; /* commands for their queues may be pending: freed with the state */
};

/* ---- group.c ---- */

/* Creates the state at the first call. */
KB_MUST_USE kb_error *ccl_get_state(kb_context *ctx, ccl_state **state);

/* The group, and the devices that the caller drives: *count of them, from *device. */
KB_MUST_USE kb_error *ccl_find_group(kb_context *ctx, const char *function, kb_group handle,
                                     ccl_group **group, uint32_t *device, uint32_t *count);

/* The handle for programs. */
kb_group ccl_group_handle(const kb_context *ctx, const ccl_group *group);

/* Prints nothing for all ranks, or " of group 2". */
void ccl_print_group(const ccl_group *group, kb_text *text);

/* ---- call.c ---- */

/* Frees the calls that have not ended when the context is destroyed. */
void ccl_free_calls(ccl_group *group);

/* Checks a call, joins its epoch, and waits until it can start, in simulated time. The caller then
 * starts it, or drops it with the reason. */
KB_MUST_USE kb_error *ccl_prepare_call(kb_context *ctx, const char *function,
                                       const kb_collective *call, ccl_op **op);
KB_MUST_USE kb_error *ccl_start_call(ccl_op *op, struct rt_stream *stream, rt_work *graph,
                                     kb_request *request);
void ccl_drop_call(ccl_op *op, const kb_error *why);

/* NULL if there is no memory. */
ccl_op *ccl_new_op(ccl_group *group, uint32_t shares);
void ccl_free_op(ccl_op *op);

/* Fails the epoch of a call that cannot be completed, for the other ranks. */
void ccl_fail_others(ccl_op *op, const kb_error *why);

/* Waits for the request, or returns it as *work if that is not NULL. */
KB_MUST_USE kb_error *ccl_wait_or_return(kb_context *ctx, kb_request request, kb_request *work);

/* ---- launch_order.c ---- */

void ccl_append_pending(ccl_op *op);
void ccl_remove_pending(ccl_op *op);

/* Whether the next step of the call may begin: to stage its tensors, or if `ready` to launch. */
bool ccl_can_continue(const ccl_op *op);

/* Releases the blocked calls that can continue now. */
void ccl_release_runnable(const ccl_state *state);

/* A send or receive that precedes the call and whose other rank has not called yet; or NULL. */
const ccl_op *ccl_find_unmatched(const ccl_op *op);

/* ---- barrier.c ---- */

KB_MUST_USE kb_error *ccl_run_barrier(kb_context *ctx, const char *function,
                                      const kb_collective *call);

/* ---- recorded.c ---- */

/* Records the call in the caller's graph. */
KB_MUST_USE kb_error *ccl_record_call(kb_context *ctx, const char *function,
                                      const kb_collective *call);

/* ---- epoch.c ---- */

/* "all_reduce(sum) of (4, 8) f16" */
void ccl_print_signature(const ccl_group *group, const ccl_signature *signature, kb_text *text);

/* "collective 3 of group 1, all_reduce", or "send 3 from rank 0 to rank 1" */
void ccl_print_epoch(const ccl_group *group, const ccl_epoch *epoch, kb_text *text);

/* The epoch of the device's next call, if another rank has joined it already; else NULL. */
ccl_epoch *ccl_peek_epoch(ccl_group *group, uint32_t device, const ccl_signature *signature);

/* Joins the epoch; the first call defines its signature. An error if the epoch has failed or the
 * signatures differ. */
KB_MUST_USE kb_error *ccl_join(ccl_op *op);

/* If the call is the last one that uses its queues: an error if messages were not received. */
KB_MUST_USE kb_error *ccl_check_queues(const ccl_op *op);

/* Leaves the epoch when the call has ended. */
void ccl_leave(ccl_op *op);

/* Aborts the calls of the epoch, and of later epochs in the same queues. */
void ccl_fail_epoch(ccl_group *group, ccl_epoch *epoch, const kb_error *why);

/* Fails the epochs that a worker ended without joining. */
void ccl_worker_missing(ccl_group *group);

/* Fails the epochs that not all ranks have joined. */
void ccl_abandon_epochs(ccl_group *group);
void ccl_free_epochs(ccl_group *group);

/* ---- instance.c ---- */

/* The instance of the entry, created at the first call. Takes no simulated time. */
KB_MUST_USE kb_error *ccl_get_instance(ccl_group *group, const ccl_entry *entry,
                                       ccl_instance **instance);

/* Waits until its queues are installed. The first caller starts the installation. */
KB_MUST_USE kb_error *ccl_install(ccl_group *group, ccl_instance *instance);

/* If its queues are stale: waits until its kernels have ended, and discards the messages. */
KB_MUST_USE kb_error *ccl_reset_stale_queues(ccl_group *group, ccl_instance *instance);

/* Removes the queues of all instances, and waits for that. */
KB_MUST_USE kb_error *ccl_remove_instances(ccl_group *group);
void ccl_free_instances(ccl_group *group);
void ccl_free_retired(ccl_state *state);

/* ---- check_call.c ---- */

/* Whether the input (or output) of every rank has a block for each rank. */
bool ccl_input_has_blocks(kb_collective_kind kind);
bool ccl_output_has_blocks(kb_collective_kind kind);
bool ccl_is_in_place(kb_collective_kind kind);
bool ccl_reduces(kb_collective_kind kind);
bool ccl_has_root(kb_collective_kind kind);
bool ccl_output_is_reference(kb_collective_kind kind); /* every rank has the output */
bool ccl_is_pair(kb_collective_kind kind);             /* between two ranks: send and recv */

/* The number of ranks of the group on a device: 1 unless ranks are PEs. */
uint32_t ccl_ranks_on(const ccl_group *group, uint32_t device);

/*
 * Checks a call for `count` devices from `device`, and fills the op's shares, signature and size.
 */
KB_MUST_USE kb_error *ccl_check_call(ccl_group *group, const kb_collective *call, uint32_t device,
                                     uint32_t count, ccl_op *op);

KB_MUST_USE kb_error *ccl_no_such_entry(const ccl_config *config, const char *name);

/* The entry of that name; an error if it cannot serve the collective and group. */
KB_MUST_USE kb_error *ccl_find_entry(const ccl_group *group, kb_collective_kind kind,
                                     const char *name, const ccl_entry **entry);

/* ---- staging.c ---- */

/* Chooses how lanes divide the tensors, for the first call of an epoch. */
KB_MUST_USE kb_error *ccl_choose_layout(ccl_op *op);

/*
 * Gives staging tensors to shares whose tensors have another layout, and waits until they are free.
 */
KB_MUST_USE kb_error *ccl_stage_tensors(ccl_op *op);
void ccl_release_staging(ccl_op *op);
void ccl_free_staging(ccl_group *group);

/* Steps of the work: copies into the staging tensors, or out of them. */
KB_MUST_USE kb_error *ccl_copy_in(ccl_op *op);
KB_MUST_USE kb_error *ccl_copy_out(ccl_op *op);

/* ---- targets.c ---- */

/* Makes the kernel arguments of all participants. */
KB_MUST_USE kb_error *ccl_make_targets(ccl_op *op);
void ccl_drop_targets(ccl_op *op);
void ccl_free_shares(ccl_op *op);

/*
 * Runs the entry's validator on the tensors of the op, and of ranks that joined the epoch before.
 */
KB_MUST_USE kb_error *ccl_validate(ccl_op *op);

/* ---- select_entry.c ---- */

/* Selects the entry for the first call of an epoch, and sets its instance. */
KB_MUST_USE kb_error *ccl_select(ccl_op *op);

/* ---- tune.c ---- */

/* The entry that auto selects for the call. */
KB_MUST_USE kb_error *ccl_choose(ccl_group *group, const ccl_op *op, const ccl_entry **entry);

#endif
