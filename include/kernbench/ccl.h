/*
 * ccl.h: for those who write collectives of their own. docs/collectives.md walks through one.
 *
 * A collective is a kernel (kernbench/tl.h) plus what ccl.yaml says of it: which PEs take part (a
 * mapper), who is joined to whom (a topology), what layout the tensor must have (a validator), and
 * how the kernel's arguments are made. Each has a name. Those that ship are made with this header
 * too; a file that ends with KB_EXPORT_CCL(&mine) adds others:
 *
 *     KB_KERNEL(pass_on, tl_ptr mine, int64_t count, int dtype)
 *     {
 *         tl_send("E", tl_load(mine, tl_shape(count), (kb_dtype)dtype));
 *         tl_store(mine, tl_recv("W", tl_shape(count), (kb_dtype)dtype));
 *     }
 *
 *     static kb_error *arguments(const kb_ccl_call *call, const kb_ccl_part *part,
 *                                kb_ccl_arguments *args)
 *     {
 *         kb_ccl_add_address(args, part->output);
 *         kb_ccl_add_integer(args, (int64_t)part->elements);
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

/* What a group of ranks looks like, when a plan is made for it. */
typedef struct kb_ccl_scope {
    kb_machine machine;
    kb_sip_pattern sips;   /* system.sips.topology */
    uint32_t sip_w, sip_h; /* of all SIPs of the machine; count x 1 for a ring */
    bool sip_links;     /* SIPs have direct links along the pattern; else they meet at a switch */
    uint32_t world;     /* ranks of the group */
    bool rank_is_pe;    /* else a rank is a SIP */
    const kb_pe *ranks; /* by rank: the PE, or PE 0 of cube 0 of the SIP */
    const char *entry;  /* of ccl.yaml: its name */
    const struct ccl_entry *settings;    /* see kb_ccl_setting() */
    const struct topo_machine *compiled; /* for what ships: the links; NULL if not known */
} kb_ccl_scope;

/* A number that the entry has (n_elem, chunk_size, root_cube, w, h, kernel_*), or the fallback. */
KB_API int64_t kb_ccl_setting(const kb_ccl_scope *scope, const char *key, int64_t fallback);

/* ---- Mappers: who takes part ------------------------------------------------------------- */

/*
 * PEs that take part. They stand in circles: a topology joins those of a circle, each circle by
 * itself. With one PE a rank there is one circle; a mapper may have many, such as one for each
 * place in a SIP.
 */
typedef struct kb_ccl_members kb_ccl_members;

/* Appends a PE to a circle: circles are numbered from 0, without gaps. */
KB_API KB_MUST_USE kb_error *kb_ccl_add_member(kb_ccl_members *members, uint32_t circle,
                                               uint32_t rank, kb_pe pe);

typedef struct kb_ccl_member {
    uint32_t rank;
    kb_pe pe;
} kb_ccl_member;

KB_API uint32_t kb_ccl_circle_count(const kb_ccl_members *members);
KB_API const kb_ccl_member *kb_ccl_circle(const kb_ccl_members *members, uint32_t circle,
                                          uint32_t *count);

typedef struct kb_ccl_mapper {
    const char *name, *summary;
    kb_error *(*map)(const kb_ccl_scope *scope, kb_ccl_members *members);
    /* The layout that puts a shard on each PE that takes part: the validator of entries that name
     * none, where ranks are SIPs. NULL: any layout will do. */
    const char *validator;
} kb_ccl_mapper;

/* ---- Topologies: who is joined to whom ---------------------------------------------------- */

typedef struct kb_ccl_graph kb_ccl_graph;

/* Whatever `from` sends in the direction arrives at `to`. */
KB_API KB_MUST_USE kb_error *kb_ccl_connect(kb_ccl_graph *graph, kb_pe from, const char *direction,
                                            kb_pe to);

typedef struct kb_ccl_topology {
    const char *name, *summary;
    kb_error *(*connect)(const kb_ccl_scope *scope, const kb_ccl_members *members,
                         kb_ccl_graph *graph);
} kb_ccl_topology;

/* ---- Validators: what layout is needed ----------------------------------------------------- */

/* The shards of one rank's tensor, in the order of (cube, pe, offset). */
typedef struct kb_ccl_layout {
    const char *tensor; /* its name */
    uint32_t rank;
    const kb_shard *shards;
    size_t shard_count;
    bool replicated; /* some elements are there more than once */
} kb_ccl_layout;

typedef struct kb_ccl_validator {
    const char *name, *summary;
    /* NULL if the layouts will do; else an error that says what is needed, and which policy gives
     * it. One layout for each rank that is known by now. */
    kb_error *(*check)(const kb_ccl_scope *scope, const kb_ccl_layout *layouts, size_t count);
} kb_ccl_validator;

/* ---- Algorithms --------------------------------------------------------------------------- */

/* A collective that is being called. */
typedef struct kb_ccl_call {
    const kb_ccl_scope *scope;
    kb_collective_kind kind;
    kb_reduce_op op;
    kb_dtype dtype;
    uint32_t root;
    uint64_t slot_bytes; /* of the queues */
    uint32_t n_slots;
} kb_ccl_call;

/* What one PE has to do with it. */
typedef struct kb_ccl_part {
    kb_pe pe;
    uint32_t rank;
    uint32_t circle, place; /* among the members */
    uint32_t circle_size;
    const uint32_t *ranks;  /* of the circle's members, by place; NULL: as their places */
    uint64_t input, output; /* virtual addresses; the same if it works in place */
    uint64_t elements;      /* of this PE in one block: all of its part, or what one rank gets of
                               it where the input or output has a block for each rank */
    uint64_t whole;         /* the virtual address of all that the rank has, of its output if that
                               is another tensor; not where ranks are PEs */
    uint64_t whole_elements;
} kb_ccl_part;

enum { KB_CCL_MAX_ARGUMENTS = 16 };

/* More than there is room for are counted, and the call is refused. */
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
    unsigned collectives; /* 1 << KB_ALL_REDUCE | ...: which it can do */
    const char *mapper;   /* of entries that name none; NULL: leader_only */
    bool reduce_shards;   /* also adds up the shards inside a SIP: another operation */
    bool same_bits;       /* every rank gets the same bits */
    bool by_name_only;    /* does something else than its collectives mean, such as a demonstration:
                             only calls that name its entry use it */
    /* NULL, or those of the topologies that ship that have the directions it needs, ended by NULL:
     * entries with another one are refused. Topologies of plugins are taken as they are. */
    const char *const *topologies;
    bool shares_work; /* PEs work on all that their rank has: those without a part run too.
                         Only where ranks are SIPs */
    /* NULL, or who is joined to whom, for entries with `topology: none`. */
    kb_error *(*connect)(const kb_ccl_scope *scope, const kb_ccl_members *members,
                         kb_ccl_graph *graph);
    /* Appends the kernel's arguments for one PE: as many as it has parameters. */
    kb_error *(*arguments)(const kb_ccl_call *call, const kb_ccl_part *part,
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

/* Of pointers to one kind of thing: .mappers = KB_CCL_LIST(&a, &b). */
#define KB_CCL_LIST(first, ...)                                                                    \
    (__typeof__(*(first)) *const[])                                                                \
    {                                                                                              \
        (first), ##__VA_ARGS__, NULL                                                               \
    }

/* What a file with collectives ends with; it may have benches too (KB_EXPORT_BENCHES). */
#define KB_EXPORT_CCL(plugin)                                                                      \
    KB_API extern const char kb_exported_ccl_interface[];                                          \
    const char kb_exported_ccl_interface[] = KB_INTERFACE;                                         \
    KB_API extern const kb_ccl_plugin *const kb_exported_ccl;                                      \
    const kb_ccl_plugin *const kb_exported_ccl = (plugin)

/* ---- What ccl.yaml chooses ---------------------------------------------------------------- */

typedef struct kb_ccl_info {
    const char *algorithm; /* defaults.algorithm: an entry's name, or "auto" */
    unsigned collectives;  /* that the entry can do, as in kb_ccl_algorithm; all with "auto" */
    const char *validator; /* the entry's; "" if it has none */
    int64_t n_elem;        /* elements of a shard in its bench; 0 if it does not say */
    uint32_t world;        /* ranks that a process group has */
    bool rank_is_pe;
    bool reduce_shards;
    kb_reduce_op op;
} kb_ccl_info;

/* Needs no process group. */
KB_API KB_MUST_USE kb_error *kb_ccl_get_info(kb_context *ctx, kb_ccl_info *info);

/* ---- Mock runs ------------------------------------------------------------------------------ */

typedef struct kb_mock_edge {
    uint32_t from; /* a rank */
    const char *direction;
    uint32_t to;
} kb_mock_edge;

/* Edges that are being listed. */
typedef struct kb_mock_graph kb_mock_graph;
KB_API KB_MUST_USE kb_error *kb_mock_connect(kb_mock_graph *graph, uint32_t from,
                                             const char *direction, uint32_t to);

/*
 * Runs a kernel on all ranks without a machine: no time passes, queues have no bounds and are just
 * lists. For unit tests of kernels: a small one takes less than a millisecond, most of which is
 * reading a description. As queues have no bounds it cannot find a lack of credits; an unknown
 * direction, a wrong shape and a deadlock are errors as in a real run. Each rank has a buffer of
 * `elements` in its memory.
 */
typedef struct kb_mock {
    const kb_kernel *kernel;
    uint32_t ranks;
    /* Where ranks are, for tl_program_id(): filled up in their order. */
    uint32_t pes_per_cube;  /* 0: all in one cube */
    uint32_t cubes_per_sip; /* 0: as many as are needed */
    /* Which ranks are connected: by a list, */
    const kb_mock_edge *edges;
    size_t edge_count;
    const char *topology; /* by a topology that ships ("ring_1d"), over the ranks in their order, */
    uint32_t w, h;        /* with these sides if it has two dimensions (0: a square), */
    /* or by a function that connects one rank to its neighbours; NULL: none. */
    kb_error *(*neighbours)(void *self, uint32_t rank, kb_mock_graph *graph);
    kb_dtype dtype;
    uint64_t elements; /* of a rank's buffer */
    /* Buffers are slices of one tensor: that of rank r is at the address and r times its bytes, as
     * base + pid * stride. Else every rank sees its own at the address. */
    bool sliced;
    /* Each rank has a memory of its own instead, from address 0 on: its buffer is at its rank times
     * the buffer's bytes, and there is 0 around it. Messages may then be left unreceived. */
    bool own_memory;
    /* Appends the kernel's arguments for a rank, whose buffer is at that address. NULL: none. */
    void (*arguments)(void *self, uint32_t rank, uint64_t address, kb_ccl_arguments *args);
    void *self;
    size_t stack_bytes; /* of a kernel, as in kb_context_options; 0 means 64 KiB */
} kb_mock;

/* `data`: the ranks' buffers one behind the other, in the mock's dtype; each is replaced by what is
 * in it afterwards. */
KB_API KB_MUST_USE kb_error *kb_mock_run(const kb_mock *mock, void *data, size_t bytes);

#endif
