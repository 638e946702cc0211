/*
 * tree_streams.c: all-reduce along spanning trees of the SIPs (trees.h), with a PE for each link of
 * each tree. A tree has a part of the elements, in the memories of any PEs. In every SIP a tree has
 * several stages, each on a PE of its own:
 *
 *     from the children             > +----------+
 *     the SIP's own, from memory    > | sums     | > to the sums of the parent's SIP, or at the
 *                                     +----------+   root to the results
 *                                     +----------+
 *     from the parent's SIP         > | results  | > to the results of a child's SIP
 *                                     +----------+
 *                                          v         one for each child; the last one stores
 *
 * The purpose is to use all links out of a SIP. The messages of a PE leave it in order, and so do,
 * approximately, those of a column of cubes: a message that waits for its link blocks others whose
 * link is free. Here a PE sends by one link alone, and so does a column if there are as many
 * columns as links. No stage waits for another tree, so each stream runs at the rate of its slowest
 * link, and any number of slots suffices.
 *
 * Invariant: a PE has at most one stage. Each element is summed along one tree, so all ranks get
 * the same bits. Not considered: the distance between a stage and the memory of its elements.
 */
#include "algorithms.h"

#include <stdlib.h>

#include "base/base.h"
#include "ccl/graph/trees.h"

/* Links of a SIP: to the east, north, west and south. Trees: fewer do not saturate a link, more
 * leave gaps between their messages. */
enum { MAX_LINKS = 4, FEW_TREES = 12, MANY_TREES = 24 };

/* Names of directions. A receiver uses the sender's name, so a name is unique at both ends: the
 * sums of a rank, the results for a rank, the results for the next stage of the same SIP. */
static ccl_label sums_of(int64_t tree, int64_t rank)
{
    return ccl_label_of_two("sums", tree, rank);
}

static ccl_label results_for(int64_t tree, int64_t rank)
{
    return ccl_label_of_two("results", tree, rank);
}

static ccl_label results_on(int64_t tree, int64_t stage)
{
    return ccl_label_of_two("on", tree, stage);
}

/* ---- The kernel -------------------------------------------------------------------------- */

typedef struct stage {
    int64_t tree;
    bool sums, is_root, stores;
    int inputs, outputs;
    ccl_label input[MAX_LINKS], output[2];
} stage;

static void add_input(stage *s, ccl_label label)
{
    KB_ASSERT(s->inputs < MAX_LINKS);
    s->input[s->inputs++] = label;
}

/* The stage of this PE that sums in a tree. False if there is none. */
static bool find_sum_stage(tl_context *tl, int64_t tree, int64_t rank, int64_t participants,
                           stage *s)
{
    ccl_label up = sums_of(tree, rank), across = results_for(tree, rank);
    bool is_root = tl_can_send(across.text);
    if (!is_root && !tl_can_send(up.text))
        return false;
    *s = (stage){.tree = tree, .sums = true, .is_root = is_root, .outputs = 1};
    s->output[0] = is_root ? across : up;
    for (int64_t child = 0; child < participants; child++)
        if (child != rank && tl_can_recv(sums_of(tree, child).text))
            add_input(s, sums_of(tree, child));
    return true;
}

static bool find_result_stage(tl_context *tl, int64_t tree, int64_t rank, int64_t participants,
                              stage *s)
{
    int64_t number = 0; /* among the result stages of the SIP */
    ccl_label from = results_for(tree, rank);
    while (!tl_can_recv(from.text)) {
        if (++number == MAX_LINKS)
            return false;
        from = results_on(tree, number);
    }
    *s = (stage){.tree = tree, .stores = true};
    add_input(s, from);
    ccl_label next = results_on(tree, number + 1);
    if (tl_can_send(next.text)) {
        s->output[s->outputs++] = next;
        s->stores = false;
    }
    for (int64_t child = 0; child < participants; child++)
        if (child != rank && tl_can_send(results_for(tree, child).text))
            s->output[s->outputs++] = results_for(tree, child);
    return true;
}

static bool find_stage(tl_context *tl, int64_t trees, int64_t rank, int64_t participants, stage *s)
{
    for (int64_t tree = 0; tree < trees; tree++)
        if (find_sum_stage(tl, tree, rank, participants, s) ||
            find_result_stage(tl, tree, rank, participants, s))
            return true;
    return false;
}

static void run_stage(tl_context *tl, const stage *s, const ccl_tile *tile, int64_t participants)
{
    tl_tensor value;
    if (s->sums) {
        value = tl_load(tile->at, tile->shape, tile->dtype);
        for (int i = 0; i < s->inputs; i++)
            value = ccl_combine(tl, tile->op, value,
                                tl_recv_async(s->input[i].text, tile->shape, tile->dtype));
        if (s->is_root)
            value = ccl_finish(tl, tile->op, value, participants);
    } else {
        value = tl_recv_async(s->input[0].text, tile->shape, tile->dtype);
    }
    for (int i = 0; i < s->outputs; i++)
        tl_send(s->output[i].text, value);
    if (s->stores)
        tl_store(tile->at, value);
}

KB_KERNEL(streams, tl_ptr whole, int64_t count, kb_dtype dtype, kb_reduce_op op, int participants,
          int rank, int trees, int64_t elements)
{
    stage s;
    if (!find_stage(tl, trees, rank, participants, &s))
        return;
    int64_t begin = tl_part_begin(count, trees, s.tree);
    int64_t end = begin + tl_part_size(count, trees, s.tree);
    for (; begin < end; begin += elements) {
        ccl_tile tile = {.at = ccl_at(whole, begin, dtype),
                         .shape = tl_shape(kb_min(elements, end - begin)),
                         .dtype = dtype,
                         .op = op};
        TL_SCOPE {
            run_stage(tl, &s, &tile, participants);
        }
    }
}

/* ---- How many trees ---------------------------------------------------------------------- */

static uint32_t common_divisor(uint32_t a, uint32_t b)
{
    return b == 0 ? a : common_divisor(b, a % b);
}

/*
 * The number of trees that uses the links evenly if possible: each tree has n-1 of the m links. A
 * rank needs a stage for sums and one for each child, or to store: at most one more than its links.
 */
static kb_error *count_trees(const kb_ccl_scope *scope, uint32_t *trees)
{
    ccl_tree_links links;
    *trees = 0;
    KB_TRY(ccl_count_tree_links(scope, &links));
    if (links.count == 0)
        return NULL;
    uint32_t pes = scope->machine.cubes * scope->machine.pes;
    uint32_t max = (uint32_t)kb_min(MANY_TREES, pes / (links.max_of_rank + 1));
    uint32_t even = links.count / common_divisor(links.count, scope->world - 1);
    uint32_t enough = (FEW_TREES + even - 1) / even * even;
    *trees = enough <= max ? enough : even <= max ? max / even * even : max;
    return NULL;
}

/* ---- Connections ------------------------------------------------------------------------- */

typedef struct layout {
    const kb_ccl_scope *scope;
    kb_ccl_graph *graph;
    bool *used;            /* by rank and PE of its SIP: has a stage */
    bool *connected;       /* by two ranks: whether a tree has a link between them */
    kb_pe *sums;           /* by rank: the sum stage of the current tree */
    kb_pe *result_sources; /* by rank: the PE that sends it results */
} layout;

/*
 * The number of the link between two ranks among those of the first, and how many links that has.
 */
static uint32_t link_to(const layout *l, uint32_t from, uint32_t to, uint32_t *links)
{
    uint32_t number = 0;
    *links = 0;
    for (uint32_t rank = 0; rank < l->scope->world; rank++) {
        number = rank == to ? *links : number;
        *links += l->connected[(size_t)from * l->scope->world + rank];
    }
    return number;
}

/*
 * Columns are distributed evenly over the links of the SIP; with fewer columns, links over columns.
 */
static bool is_column_of_link(const kb_machine *m, uint32_t column, uint32_t link, uint32_t links)
{
    return m->cube_w >= links ? column * links / m->cube_w == link
                              : column == link * m->cube_w / links;
}

/* A PE of the rank without a stage, for messages to another rank: in a column of that link if
 * possible, and near the IO chiplet. */
static kb_pe take_pe(layout *l, uint32_t rank, uint32_t to)
{
    const kb_machine *m = &l->scope->machine;
    uint32_t pes = m->cubes * m->pes, links, link = link_to(l, rank, to, &links);
    bool *used = &l->used[(size_t)rank * pes];
    uint32_t best = pes;
    bool is_best_column = false;
    for (uint32_t row = 0; row < m->cube_h && !is_best_column; row++)
        for (uint32_t i = 0; i < m->pes * m->cube_w && !is_best_column; i++) {
            uint32_t column = i % m->cube_w;
            uint32_t pe = (row * m->cube_w + column) * m->pes + i / m->cube_w;
            if (used[pe])
                continue;
            is_best_column = is_column_of_link(m, column, link, links);
            best = best == pes || is_best_column ? pe : best;
        }
    KB_ASSERT(best < pes);
    used[best] = true;
    return (kb_pe){l->scope->ranks[rank].sip, best / m->pes, best % m->pes};
}

/* The stages that forward a rank's results to its children. A rank without children has one stage,
 * which stores. */
static kb_error *connect_results(layout *l, const ccl_tree *tree, uint32_t number, uint32_t rank)
{
    uint32_t made = 0, world = l->scope->world;
    kb_pe from = l->result_sources[rank];
    ccl_label by = results_for(number, rank);
    for (uint32_t child = 0; child < world; child++) {
        if (tree->parent[child] != rank || child == rank)
            continue;
        kb_pe pe = take_pe(l, rank, child);
        KB_TRY(kb_ccl_connect(l->graph, from, by.text, pe));
        by = results_on(number, ++made);
        l->result_sources[child] = from = pe;
    }
    if (made > 0)
        return NULL;
    return kb_ccl_connect(l->graph, from, by.text, take_pe(l, rank, tree->parent[rank]));
}

/* Results start at the root: a rank is connected after its parent. */
static kb_error *connect_below(layout *l, const ccl_tree *tree, uint32_t number, uint32_t rank)
{
    KB_TRY(connect_results(l, tree, number, rank));
    for (uint32_t child = 0; child < l->scope->world; child++)
        if (tree->parent[child] == rank && child != rank)
            KB_TRY(connect_below(l, tree, number, child));
    return NULL;
}

static kb_error *connect_tree(layout *l, const ccl_tree *tree, uint32_t number)
{
    uint32_t world = l->scope->world;
    for (uint32_t rank = 0; rank < world; rank++)
        l->sums[rank] = take_pe(l, rank, tree->parent[rank]);
    for (uint32_t rank = 0; rank < world; rank++)
        if (rank != tree->root)
            KB_TRY(kb_ccl_connect(l->graph, l->sums[rank], sums_of(number, rank).text,
                                  l->sums[tree->parent[rank]]));
    l->result_sources[tree->root] = l->sums[tree->root];
    return connect_below(l, tree, number, tree->root);
}

static kb_error *connect_trees(layout *l, const ccl_trees *trees)
{
    size_t world = l->scope->world;
    for (size_t i = 0; i < trees->items.count; i++)
        for (uint32_t rank = 0; rank < world; rank++) {
            uint32_t parent = trees->items.items[i].parent[rank];
            l->connected[rank * world + parent] = l->connected[parent * world + rank] =
                rank != parent;
        }
    for (uint32_t i = 0; i < trees->items.count; i++)
        KB_TRY(connect_tree(l, &trees->items.items[i], i));
    return NULL;
}

static kb_error *make_layout(const kb_ccl_scope *scope, const ccl_trees *trees, kb_ccl_graph *graph)
{
    size_t world = scope->world, pes = (size_t)scope->machine.cubes * scope->machine.pes;
    layout l = {.scope = scope, .graph = graph};
    l.used = kb_alloc_zeroed(world * pes, sizeof *l.used);
    l.connected = kb_alloc_zeroed(world * world, sizeof *l.connected);
    l.sums = kb_alloc_array(world, sizeof *l.sums);
    l.result_sources = kb_alloc_array(world, sizeof *l.result_sources);
    bool made = l.used && l.connected && l.sums && l.result_sources;
    kb_error *err = made ? connect_trees(&l, trees) : kb_error_nomem();
    free(l.used);
    free(l.connected);
    free(l.sums);
    free(l.result_sources);
    return err;
}

/* ---- The algorithm ----------------------------------------------------------------------- */

static kb_error *check_scope(const kb_ccl_scope *scope, const kb_ccl_participants *participants)
{
    uint32_t pes = scope->machine.cubes * scope->machine.pes;
    if (kb_ccl_subgroup_count(participants) != pes)
        return kb_error_new(KB_ERR_INPUT,
                            "streams needs all PEs of the ranks' SIPs: mapper: lanes");
    return NULL;
}

static kb_error *streams_connect(const kb_ccl_scope *scope, const kb_ccl_participants *participants,
                                 kb_ccl_graph *graph)
{
    uint32_t count;
    ccl_trees trees;
    KB_TRY(check_scope(scope, participants));
    if (scope->world == 1)
        return NULL;
    KB_TRY(count_trees(scope, &count));
    if (count == 0)
        return kb_error_new(KB_ERR_INPUT, "streams needs a PE for each link of a SIP and one more");
    KB_TRY(ccl_trees_init(&trees, scope, count));
    kb_error *err = make_layout(scope, &trees, graph);
    ccl_trees_fini(&trees);
    return err;
}

static kb_error *streams_arguments(const kb_ccl_call *call, const kb_ccl_target *target,
                                   kb_ccl_arguments *args)
{
    uint32_t trees;
    KB_TRY(count_trees(call->scope, &trees));
    kb_ccl_add_address(args, target->whole);
    kb_ccl_add_integer(args, (int64_t)target->whole_elements);
    kb_ccl_add_integer(args, call->dtype);
    kb_ccl_add_integer(args, call->op);
    kb_ccl_add_integer(args, target->subgroup_size);
    kb_ccl_add_integer(args, target->rank);
    kb_ccl_add_integer(args, trees);
    kb_ccl_add_integer(args, ccl_tile_elements(call, 32));
    return NULL;
}

const kb_ccl_algorithm ccl_streams_algorithm = {
    .name = "streams",
    .summary = "reduces along trees of SIPs, with a dedicated PE for each link of each tree",
    .kernel = &streams,
    .connect = streams_connect,
    .arguments = streams_arguments,
    .collectives = 1 << KB_ALL_REDUCE,
    .mapper = "lanes",
    .same_bits = true,
    .shares_work = true,
};
