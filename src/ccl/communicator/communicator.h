/*
 * communicator.h: what collectives keep in a context. Private to ccl.
 *
 *     group.c       the process group and its subgroups: their ranks
 *     call.c        a call, from its arguments to its end
 *     recorded.c    a call that a graph makes
 *     epoch.c       which calls of the ranks belong together
 *     check_call.c  whether arguments make sense
 *     wiring.c      an entry of ccl.yaml for a group: plan, queues
 *     staging.c     layouts, and staging tensors
 *     targets.c     the kernel arguments of each PE
 *     select.c      which entry serves a call
 *     tune.c        which entry is the fastest
 *     validators.c  the layouts that algorithms need
 *     queue_sets.c  queues for ordinary launches
 *
 * A *seat* is a device of a group, with one tensor of a call. Where ranks are devices, seats are
 * ranks; where ranks are PEs, a seat has several of them.
 */
#ifndef KB_CCL_COMMUNICATOR_H
#define KB_CCL_COMMUNICATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/ccl.h>

#include "base/base.h"
#include "ccl/config/config.h"
#include "ccl/config/registry.h"
#include "ccl/graph/lower_bound.h"
#include "ccl/graph/plan.h"
#include "ranks.h"
#include "rt/rt.h"
#include "topo/topo.h"
#include "tune.h"

typedef struct ccl_state ccl_state;
typedef struct ccl_group ccl_group;
typedef struct ccl_wiring ccl_wiring;
typedef struct ccl_epoch ccl_epoch;
typedef struct ccl_op ccl_op;

/* ---- Calls ---- */

/* What all ranks have to agree upon. */
typedef struct ccl_signature {
    kb_collective_kind kind;
    kb_reduce_op op;
    kb_dtype dtype;
    uint32_t root;         /* or the other rank */
    kb_shape shape;        /* of what every rank has: the tensor, or the one with a single block */
    const char *algorithm; /* an entry's name or CCL_AUTO_NAME; NULL: what ccl.yaml configures */
} ccl_signature;

#define CCL_AUTO_NAME "auto"

/* Tensors to stage in: laid out for lanes, kept for the next call that needs the same. */
typedef struct ccl_stage {
    struct ccl_stage *next;
    uint32_t seat;
    kb_dtype dtype;
    kb_shape shape;
    kb_policy policy;
    kb_tensor tensor;
    bool busy;
} ccl_stage;

/*
 * How lanes share out a block: as a tensor of the rank that came first does, or canonically. Which
 * it is the first rank decides, by its own tensors; whoever has laid out his tensors otherwise
 * stages them.
 */
typedef struct ccl_base {
    bool canonical; /* one row, by columns over cubes and PEs */
    kb_tensor like;
    kb_shape block; /* of one block, laid out with: */
    kb_policy policy;
} ccl_base;

/* One device's share of a call. */
typedef struct ccl_share {
    uint32_t seat;
    kb_tensor input, output; /* of the caller; 0 if the rank needs none */
    ccl_stage *in, *out;     /* NULL: not staged. The same one in place */
    rt_target *targets;
    tl_arg *args;
    size_t target_count;
} ccl_share;

/* A call that is under way. */
struct ccl_op {
    ccl_op *next; /* of the group */
    ccl_group *group;
    ccl_epoch *epoch; /* NULL if the caller drives all ranks */
    ccl_wiring *wiring;
    ccl_signature what;
    ccl_base base;
    uint64_t size;    /* in bytes, as nccl-tests count */
    uint64_t part;    /* bytes of a PE's part */
    kb_memory memory; /* that the tensors are in */
    ccl_share *shares;
    size_t share_count;
    rt_work *work;             /* NULL until it begins */
    struct rt_stream *stream;  /* that it is in; NULL: in none */
    rt_work *graph;            /* that it is a node of; NULL: of none */
    uint64_t turn;             /* which of all that have begun in the context; 0: it has not */
    kb_text awaited;           /* what is said of who waits for it */
    ccl_op *behind;            /* the next one whose kernels are to be sent off */
    bool in_line, ready, held; /* ready: to be sent off as far as it is concerned */
};

/* ---- Groups ---- */

/* A PE that takes part. */
typedef struct ccl_spot {
    kb_pe pe;
    uint32_t rank;
    uint32_t circle, place, circle_size;
    const uint32_t *ranks; /* of the circle, by place */
} ccl_spot;

/* An entry of ccl.yaml for a group. */
struct ccl_wiring {
    ccl_wiring *next;
    const ccl_entry *entry;
    kb_error *refused; /* why there is no plan: all ranks get the same, and it is made once */
    ccl_plan plan;
    bool lanes;        /* works on tensors in any layout: the same PEs of every rank */
    bool mixes_shards; /* several PEs of a rank are in one circle */
    ccl_spot *spots;   /* by (seat, cube, pe) */
    size_t *first;     /* of each seat, and where the last one's end */
    size_t spot_count;
    uint32_t *ranks;    /* circle by circle, by place */
    ipcq_set *queues;   /* NULL until somebody needs them */
    kb_request install; /* kept until the wiring goes: all ranks wait for it */
    bool installed;
    bool stale;        /* kernels were ended before their time: messages are left in queues */
    uint32_t launched; /* calls whose kernels are under way */
};

/* The n-th call of each rank belong together. */
struct ccl_epoch {
    ccl_epoch *next;
    uint64_t number; /* from 0 */
    bool is_pair;    /* a send and its receive, which are counted for themselves: */
    uint32_t from, to;
    ccl_signature what; /* as the first said */
    uint32_t first;     /* its seat */
    ccl_wiring *wiring;
    ccl_base base;
    bool *joined; /* by seat */
    ccl_op **ops; /* by seat: under way */
    uint32_t joined_count, expected, op_count;
    bool begun;      /* some of its kernels have been sent off */
    bool cleared;    /* of a pair: one of the two has been sent off */
    kb_error *error; /* it has failed */
};

/* Sends and receives between two ranks so far. */
typedef struct ccl_pair {
    uint32_t from, to;
    uint64_t sent, received;
} ccl_pair;

/* What was measured to be the best. */
typedef struct ccl_choice {
    kb_collective_kind kind;
    kb_dtype dtype;
    kb_reduce_op op;
    uint32_t root;
    uint64_t bytes;
    const ccl_entry *entry;
} ccl_choice;

/* Of the last call that a seat has done. */
typedef struct ccl_last {
    const ccl_wiring *wiring; /* NULL: none; a barrier does not count */
    kb_collective_kind kind;
    kb_dtype dtype;
    kb_memory memory;
    uint64_t size, part;
} ccl_last;

struct ccl_group {
    ccl_state *state;
    uint64_t id; /* 0: all ranks */
    uint32_t world;
    uint32_t *members; /* by rank: its number in the process group */
    kb_pe *ranks;      /* by rank: where it is */
    uint32_t seats;
    uint32_t *sips;  /* by seat */
    uint64_t *calls; /* by seat: epochs joined */
    ccl_last *last;  /* by seat */
    ccl_epoch *epochs;
    KB_VEC(ccl_pair) pairs;
    ccl_wiring *wirings;
    ccl_op *ops;
    ccl_stage *stages;
    KB_VEC(ccl_choice) choices;
};

struct ccl_state {
    kb_context *ctx;
    const topo_machine *machine;
    ccl_registry registry;
    ccl_config config;
    bool has_config;
    const ccl_entry *chosen; /* NULL: auto */
    const ccl_entry *ranks;  /* says what ranks are: the chosen one, or that of auto */
    bool rank_is_pe;
    uint32_t world;

    bool exists;           /* there is a process group */
    bool of_driver;        /* who initialised it for all */
    bool *joined;          /* by rank: has initialised */
    bool *left;            /* by rank: has been in it, and is no more */
    bool *gone;            /* by rank: its worker has ended well, or there is none */
    uint64_t *groups_made; /* by rank: how many of the sub-groups it knows of */
    uint64_t last_id;      /* of a sub-group: none is used twice */
    uint64_t turns;        /* calls that have begun */
    ccl_op *line;          /* calls whose kernels are still to be sent off, in the order of calls */
    KB_VEC(ccl_group *) groups;  /* the first one is all ranks */
    KB_VEC(ccl_group *) leaving; /* of a process group that is gone: their queues are not yet */
    bool clearing;               /* somebody removes those */
    kb_waitlist returning;       /* ranks that want to initialise again */
    ccl_wiring *retired;         /* whose commands may still be under way: they go with the state */
};

/* ---- group.c ---- */

/* Made at the first call that needs it. */
KB_MUST_USE kb_error *ccl_get_state(kb_context *ctx, ccl_state **state);

/* The group, and the seats that the caller drives: *count of them from *seat on. */
KB_MUST_USE kb_error *ccl_find_group(kb_context *ctx, const char *function, kb_group handle,
                                     ccl_group **group, uint32_t *seat, uint32_t *count);

/* How users name it. */
kb_group ccl_group_handle(const kb_context *ctx, const ccl_group *group);

/* Nothing, or " of group 2". */
void ccl_print_group(const ccl_group *group, kb_text *text);

/* Waits until no call of the group is under way. */
KB_MUST_USE kb_error *ccl_await_calls(ccl_group *group);

/* ---- call.c ---- */

/* Those that are under way when the context goes. */
void ccl_free_calls(ccl_group *group);

/* A call of the caller that is checked, has joined its epoch and waits for nothing any more; takes
 * simulated time if need be. It is to be started, or dropped with the reason. */
KB_MUST_USE kb_error *ccl_prepare_call(kb_context *ctx, const char *function,
                                       const kb_collective *call, ccl_op **op);
KB_MUST_USE kb_error *ccl_start_call(ccl_op *op, struct rt_stream *stream, rt_work *graph,
                                     kb_request *request);
void ccl_drop_call(ccl_op *op, const kb_error *why);

/* ---- recorded.c ---- */

/* Records the call in the caller's graph. */
KB_MUST_USE kb_error *ccl_record_call(kb_context *ctx, const char *function,
                                      const kb_collective *call);

/* ---- epoch.c ---- */

/* "all_reduce(sum) of (4, 8) f16" */
void ccl_print_signature(const ccl_group *group, const ccl_signature *what, kb_text *text);

/* "collective 3 of group 1, all_reduce", or "send 3 from rank 0 to rank 1" */
void ccl_print_epoch(const ccl_group *group, const ccl_epoch *epoch, kb_text *text);

/* The epoch that the seat's next call belongs to, if another rank is in it already. */
ccl_epoch *ccl_peek_epoch(ccl_group *group, uint32_t seat, const ccl_signature *what);

/* Joins it: the first says what it is. An error if it has failed, or the call differs. */
KB_MUST_USE kb_error *ccl_join(ccl_op *op);

/* If the op is the last to end of those that use its queues: whether all was received. */
KB_MUST_USE kb_error *ccl_check_queues(const ccl_op *op);

/* The call is over. */
void ccl_leave(ccl_op *op);

/* Ends the calls of all who joined, and those that come behind them in the same queues. */
void ccl_fail_epoch(ccl_group *group, ccl_epoch *epoch, const kb_error *why);

/* A worker has ended: what it has not joined will not come about. */
void ccl_worker_missing(ccl_group *group);

/* All that not all have joined end. */
void ccl_abandon_epochs(ccl_group *group);
void ccl_free_epochs(ccl_group *group);

/* ---- wiring.c ---- */

/* That of the entry, made if need be; takes no time. */
KB_MUST_USE kb_error *ccl_get_wiring(ccl_group *group, const ccl_entry *entry, ccl_wiring **wiring);

/* Waits until its queues are installed. The first who comes here has them installed. */
KB_MUST_USE kb_error *ccl_install(ccl_group *group, ccl_wiring *wiring);

/* Waits until what was left in its queues can be forgotten, if something was. */
KB_MUST_USE kb_error *ccl_freshen(ccl_group *group, ccl_wiring *wiring);

/* Removes the queues of all and waits for it. */
KB_MUST_USE kb_error *ccl_remove_wirings(ccl_group *group);
void ccl_free_wirings(ccl_group *group);
void ccl_free_retired(ccl_state *state);

/* ---- check_call.c ---- */

/* Whether every rank has a block for each rank in what it is given, or is given. */
bool ccl_input_has_blocks(kb_collective_kind kind);
bool ccl_output_has_blocks(kb_collective_kind kind);
bool ccl_is_in_place(kb_collective_kind kind);
bool ccl_reduces(kb_collective_kind kind);
bool ccl_has_root(kb_collective_kind kind);
bool ccl_is_pair(kb_collective_kind kind); /* between two ranks: send and recv */

/* How many ranks of the group are on the seat: one, unless ranks are PEs. */
uint32_t ccl_ranks_on(const ccl_group *group, uint32_t seat);

/* Fills the op's shares, signature and size from a call for these seats. */
KB_MUST_USE kb_error *ccl_check_call(ccl_group *group, const kb_collective *call, uint32_t seat,
                                     uint32_t count, ccl_op *op);

KB_MUST_USE kb_error *ccl_no_such_entry(const ccl_config *config, const char *name);

/* The entry of that name, which has to be able to do it. */
KB_MUST_USE kb_error *ccl_find_entry(const ccl_group *group, kb_collective_kind kind,
                                     const char *name, const ccl_entry **entry);

/* ---- staging.c ---- */

/* How lanes are to share out the tensors of the op, which is the first of its epoch. */
KB_MUST_USE kb_error *ccl_choose_base(ccl_op *op);

/* Gives those shares tensors to stage in whose own are laid out otherwise; waits until they can be
 * used. */
KB_MUST_USE kb_error *ccl_stage_tensors(ccl_op *op);
void ccl_unstage(ccl_op *op);
void ccl_free_stages(ccl_group *group);

/* Copies of one step of the work: into the staging tensors, or out of them. */
KB_MUST_USE kb_error *ccl_copy_in(ccl_op *op);
KB_MUST_USE kb_error *ccl_copy_out(ccl_op *op);

/* ---- targets.c ---- */

/* What the PEs of each share are given. */
KB_MUST_USE kb_error *ccl_make_targets(ccl_op *op);
void ccl_drop_targets(ccl_op *op); /* as if they had not been made */
void ccl_free_shares(ccl_op *op);

/* Asks the entry's validator about the op's tensors and those of ranks that came before. */
KB_MUST_USE kb_error *ccl_validate(ccl_op *op);

/* ---- select.c ---- */

/* Gives the op, which is the first of its epoch, its wiring. */
KB_MUST_USE kb_error *ccl_select(ccl_op *op);

/* ---- tune.c ---- */

/* What auto means for this call. */
KB_MUST_USE kb_error *ccl_choose(ccl_group *group, const ccl_op *op, const ccl_entry **entry);

#endif
