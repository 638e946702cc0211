/*
 * ccl.h: the interface for new collectives. docs/collectives.md is the guide.
 *
 * A collective is a kernel (kernbench/tl.h) and an entry in ccl.yaml, which names a mapper (it
 * selects the participating PEs), a topology (it connects them), a validator (it checks the layout
 * of the tensors) and the algorithm, which makes the kernel's arguments. The collectives that ship
 * use this header too. A file that ends with KB_EXPORT_CCL(&mine) adds others:
 *
 *     KB_KERNEL(pass_on, tl_ptr mine, int64_t count, int dtype)
 *     {
 *         tl_send("E", tl_load(mine, tl_shape(count), (kb_dtype)dtype));
 *         tl_store(mine, tl_recv("W", tl_shape(count), (kb_dtype)dtype));
 *     }
 *
 *     static kb_error *arguments(const kb_ccl_call *call, const kb_ccl_target *target,
 *                                kb_ccl_arguments *args)
 *     {
 *         kb_ccl_add_address(args, target->output);
 *         kb_ccl_add_integer(args, (int64_t)target->elements);
 *         kb_ccl_add_integer(args, call->dtype);
 *         return NULL;
 *     }
 *
 *     static const kb_ccl_algorithm pass_on_algorithm = {
 *         .name = "pass_on", .kernel = &pass_on, .arguments = arguments,
 *         .collectives = 1 << KB_ALL_REDUCE};
 *     static const kb_ccl_plugin mine = {.algorithms = KB_CCL_LIST(&pass_on_algorithm)};
 *     KB_EXPORT_CCL(&mine);
 */
#ifndef KERNBENCH_CCL_H
#define KERNBENCH_CCL_H

#include <kernbench/kernbench.h>
#include <kernbench/tl.h>

/* ---- The machine and the ranks ----------------------------------------------------------- */

typedef enum kb_sip_pattern { KB_SIPS_RING, KB_SIPS_TORUS, KB_SIPS_MESH } kb_sip_pattern;

/* The ranks for which a plan is made, and their machine. */
typedef struct kb_ccl_scope {
    kb_machine machine;
    kb_sip_pattern sips;   /* system.sips.topology */
    uint32_t sip_w, sip_h; /* of all SIPs of the machine; count x 1 for a ring */
    bool sip_links;     /* SIPs have direct links along the pattern; else a switch connects them */
    uint32_t world;     /* ranks of the group */
    bool rank_is_pe;    /* else a rank is a SIP */
    const kb_pe *ranks; /* by rank: the PE, or PE 0 of cube 0 of the SIP */
    const char *entry;  /* name of the entry in ccl.yaml */
    const struct ccl_entry *settings;    /* see kb_ccl_setting() */
    const struct topo_machine *compiled; /* the links, for the mappers that ship; may be NULL */
} kb_ccl_scope;

/* A number of the entry (n_elem, chunk_size, root_cube, w, h, kernel_*), or the fallback if the
 * entry does not have it. */
KB_API int64_t kb_ccl_setting(const kb_ccl_scope *scope, const char *key, int64_t fallback);

/* ---- Mappers: the participants ----------------------------------------------------------- */

/*
 * The participating PEs, in subgroups. A topology connects the participants of a subgroup with each
 * other. Mappers such as `leader_only` make one subgroup; `lanes` makes one for each PE of a SIP.
 */
typedef struct kb_ccl_participants kb_ccl_participants;

/* Appends a PE to a subgroup. Subgroups are numbered from 0 without gaps. */
KB_API KB_MUST_USE kb_error *kb_ccl_add_participant(kb_ccl_participants *participants,
                                                    uint32_t subgroup, uint32_t rank, kb_pe pe);

typedef struct kb_ccl_participant {
    uint32_t rank;
    kb_pe pe;
} kb_ccl_participant;

KB_API uint32_t kb_ccl_subgroup_count(const kb_ccl_participants *participants);
KB_API const kb_ccl_participant *kb_ccl_subgroup(const kb_ccl_participants *participants,
                                                 uint32_t subgroup, uint32_t *count);

typedef struct kb_ccl_mapper {
    const char *name, *summary;
    kb_error *(*map)(const kb_ccl_scope *scope, kb_ccl_participants *participants);
    /* The validator of entries that name none and whose ranks are SIPs: it checks that each
     * participant has a shard. NULL: any layout is accepted. */
    const char *validator;
} kb_ccl_mapper;

/* ---- Topologies: the connections --------------------------------------------------------- */

typedef struct kb_ccl_graph kb_ccl_graph;

/* Connects two PEs: messages that `from` sends in the direction arrive at `to`. */
KB_API KB_MUST_USE kb_error *kb_ccl_connect(kb_ccl_graph *graph, kb_pe from, const char *direction,
                                            kb_pe to);

typedef struct kb_ccl_topology {
    const char *name, *summary;
    kb_error *(*connect)(const kb_ccl_scope *scope, const kb_ccl_participants *participants,
                         kb_ccl_graph *graph);
} kb_ccl_topology;

/* ---- Validators: the required layout ------------------------------------------------------- */

/* The shards of one rank's tensor, in the order of (cube, pe, offset). */
typedef struct kb_ccl_layout {
    const char *tensor; /* its name */
    uint32_t rank;
    const kb_shard *shards;
    size_t shard_count;
    bool replicated; /* some elements have several copies */
} kb_ccl_layout;

typedef struct kb_ccl_validator {
    const char *name, *summary;
    /* NULL if the layouts are valid; else an error that names the required layout and the policy
     * for it. There is one layout for each rank that has called so far. */
    kb_error *(*check)(const kb_ccl_scope *scope, const kb_ccl_layout *layouts, size_t count);
} kb_ccl_validator;

/* ---- Algorithms --------------------------------------------------------------------------- */

/* The collective call for which arguments are made. */
typedef struct kb_ccl_call {
    const kb_ccl_scope *scope;
    kb_collective_kind kind;
    kb_reduce_op op;
    kb_dtype dtype;
    uint32_t root;
    uint64_t slot_bytes; /* of the queues */
    uint32_t n_slots;
} kb_ccl_call;

/*
 * A participant in a call, with its part of the tensors: the kernel's arguments are made from it.
 */
typedef struct kb_ccl_target {
    kb_pe pe;
    uint32_t rank;
    uint32_t subgroup, index; /* index: the position in the subgroup, from 0 */
    uint32_t subgroup_size;
    const uint32_t *ranks;  /* of the subgroup's participants, by index; NULL: rank = index */
    uint64_t input, output; /* virtual addresses; equal for collectives in place */
    uint64_t elements;      /* of this PE, in one block. Where the input or output has a block for
                               each rank this is the size of one block; else of the whole part */
    uint64_t whole;         /* virtual address of the rank's whole tensor: of the output if that is
                               another tensor. Only where ranks are SIPs */
    uint64_t whole_elements;
} kb_ccl_target;

enum { KB_CCL_MAX_ARGUMENTS = 16 };

/* Arguments beyond the maximum are counted but not stored, and the call is refused. */
typedef struct kb_ccl_arguments {
    size_t count;
    tl_arg items[KB_CCL_MAX_ARGUMENTS];
} kb_ccl_arguments;

KB_API void kb_ccl_add_address(kb_ccl_arguments *args, uint64_t address);
KB_API void kb_ccl_add_integer(kb_ccl_arguments *args, int64_t number);

typedef struct kb_ccl_algorithm {
    const char *name; /* what ccl.yaml names as `module` */
    const char *summary;
    const kb_kernel *kernel;
    unsigned collectives; /* 1 << KB_ALL_REDUCE | ...: those that it implements */
    const char *mapper;   /* for entries that name none; NULL: leader_only */
    bool reduce_shards;   /* also reduces the shards within a SIP, which is another operation */
    bool same_bits;       /* all ranks get bitwise identical results */
    bool by_name_only;    /* does not compute the collective, such as a demonstration:
                             only calls that name its entry use it */
    /* The shipped topologies with the directions that the kernel needs, ended by NULL: entries with
     * another shipped topology are refused. NULL: any. Topologies of plugins are not checked. */
    const char *const *topologies;
    bool shares_work; /* PEs work on the whole tensor of their rank: PEs without a part run too.
                         Only where ranks are SIPs */
    /* The connections, for entries with `topology: none`; else NULL. */
    kb_error *(*connect)(const kb_ccl_scope *scope, const kb_ccl_participants *participants,
                         kb_ccl_graph *graph);
    /* Appends the kernel's arguments for one PE, one for each parameter. */
    kb_error *(*arguments)(const kb_ccl_call *call, const kb_ccl_target *target,
                           kb_ccl_arguments *args);
} kb_ccl_algorithm;

/* ---- Plugins -------------------------------------------------------------------------------- */

/* Lists end with NULL; a list may be NULL. */
typedef struct kb_ccl_plugin {
    const kb_ccl_algorithm *const *algorithms;
    const kb_ccl_topology *const *topologies;
    const kb_ccl_mapper *const *mappers;
    const kb_ccl_validator *const *validators;
} kb_ccl_plugin;

/* A list of pointers that ends with NULL: .mappers = KB_CCL_LIST(&a, &b). */
#define KB_CCL_LIST(first, ...)                                                                    \
    (__typeof__(*(first)) *const[])                                                                \
    {                                                                                              \
        (first), ##__VA_ARGS__, NULL                                                               \
    }

/* Exports the collectives of a file, at its end. The file may have benches too (KB_EXPORT_BENCHES).
 */
#define KB_EXPORT_CCL(plugin)                                                                      \
    KB_API extern const char kb_exported_ccl_interface[];                                          \
    const char kb_exported_ccl_interface[] = KB_INTERFACE;                                         \
    KB_API extern const kb_ccl_plugin *const kb_exported_ccl;                                      \
    const kb_ccl_plugin *const kb_exported_ccl = (plugin)

/* ---- The configuration in ccl.yaml -------------------------------------------------------- */

typedef struct kb_ccl_info {
    const char *algorithm; /* defaults.algorithm: an entry's name, or "auto" */
    unsigned collectives;  /* of the entry, as in kb_ccl_algorithm; all with "auto" */
    const char *validator; /* the entry's; "" if it has none */
    int64_t n_elem;        /* elements of a shard in its bench; 0 if not given */
    uint32_t world;        /* ranks of the process group */
    bool rank_is_pe;
    bool reduce_shards;
    kb_reduce_op op;
} kb_ccl_info;

/* Can be called before the process group is initialised. */
KB_API KB_MUST_USE kb_error *kb_ccl_get_info(kb_context *ctx, kb_ccl_info *info);

/* ---- Mock runs ------------------------------------------------------------------------------ */

typedef struct kb_mock_edge {
    uint32_t from; /* a rank */
    const char *direction;
    uint32_t to;
} kb_mock_edge;

/* The connections of a mock run. */
typedef struct kb_mock_graph kb_mock_graph;
KB_API KB_MUST_USE kb_error *kb_mock_connect(kb_mock_graph *graph, uint32_t from,
                                             const char *direction, uint32_t to);

/*
 * Runs a kernel on all ranks without a machine: no simulated time passes, and queues are unbounded.
 * It is for unit tests of kernels: a small run takes less than a millisecond, mostly to parse a
 * machine description. A mock run finds unknown directions, wrong shapes and deadlocks, with the
 * errors of a real run, but no lack of credits. Each rank has a buffer of `elements` elements in
 * its memory.
 */
typedef struct kb_mock {
    const kb_kernel *kernel;
    uint32_t ranks;
    /* Location of the ranks, for tl_program_id(): ranks fill cubes and SIPs in order. */
    uint32_t pes_per_cube;  /* 0: all in one cube */
    uint32_t cubes_per_sip; /* 0: all in one SIP */
    /* The connections: a list, */
    const kb_mock_edge *edges;
    size_t edge_count;
    const char *topology; /* or a shipped topology ("ring_1d") over the ranks in order, */
    uint32_t w, h;        /* with these sides if it is two-dimensional (0: a square), */
    /* or a function that connects one rank to its neighbours; NULL: none. */
    kb_error *(*neighbours)(void *self, uint32_t rank, kb_mock_graph *graph);
    kb_dtype dtype;
    uint64_t elements; /* of the buffer of a rank */
    /* Buffers are slices of one tensor: the buffer of rank r is at base + r * bytes. Else every
     * rank has its own buffer at the same virtual address. */
    bool sliced;
    /* Each rank has a memory of its own instead, from address 0 on: its buffer is at its rank times
     * the buffer's bytes, and there is 0 around it. Messages may then be left unreceived. */
    bool own_memory;
    /* Appends the kernel's arguments for a rank with its buffer at the address. NULL: none. */
    void (*arguments)(void *self, uint32_t rank, uint64_t address, kb_ccl_arguments *args);
    void *self;
    size_t stack_bytes; /* of a kernel, as in kb_context_options; 0 means 64 KiB */
} kb_mock;

/* `data` has the buffers of the ranks one after the other, in the dtype of the mock. On return it
 * has their final contents. */
KB_API KB_MUST_USE kb_error *kb_mock_run(const kb_mock *mock, void *data, size_t bytes);

#endif
