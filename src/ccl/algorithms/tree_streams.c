/*
 * tree_streams.c: all-reduce along spanning trees of the SIPs (trees.h), with a PE for each step
 * of each tree. A tree has its part of the elements, whichever PEs' memories these are in; in every
 * SIP it has stations, each a PE of its own:
 *
 *     from the children             > +----------+
 *     the SIP's own, out of memory  > | sums     | > to the sums of the parent's SIP, or at the
 *                                     +----------+   root to the results
 *                                     +----------+
 *     from the parent's SIP         > | results  | > to the results of a child's SIP
 *                                     +----------+
 *                                          v         one for each child; the last one stores
 *
 * The way out of a SIP is what this is about. The messages of a PE leave it one after the other,
 * and so do those of a column of cubes, more or less: one that waits for its link holds up others
 * whose link is free. Here a PE sends by one link alone, and so do those of a column if there are
 * as many columns as links. And nothing that a PE does waits for something that another tree has to
 * do first: streams go as fast as their slowest link, and no number of slots is too small.
 *
 * Invariant: a PE has one station at most. Each element is summed along one tree: all ranks get the
 * same bits. Ignored: how far a station is from the memory that its elements are in.
 */
#include "algorithms.h"

#include <stdlib.h>

#include "base/base.h"
#include "ccl/graph/trees.h"

/* Links of a SIP: to the east, north, west and south. Trees: with fewer the streams of a link do
 * not fill it, with more they take turns in ways that leave gaps. */
enum { MAX_LINKS = 4, FEW_TREES = 12, MANY_TREES = 24 };

/*
 * Names of directions. Whoever receives knows them by the sender's name, so that has to be unique
 * at both ends: the sums of a rank, the results for a rank, the results for the next station of
 * the same SIP.
 */
static ccl_label sums_of(int64_t tree, int64_t rank)
{
    return ccl_label_of_two("sums", tree, rank);
}

static ccl_label results_for(int64_t tree, int64_t rank)
{
    return ccl_label_of_two("results", tree, rank);
}

static ccl_label results_on(int64_t tree, int64_t station)
{
    return ccl_label_of_two("on", tree, station);
}

/* ---- The kernel -------------------------------------------------------------------------- */

typedef struct station {
    int64_t tree;
    bool sums, is_root, stores;
    int inputs, outputs;
    ccl_label input[MAX_LINKS], output[2];
} station;

static void add_input(station *s, ccl_label label)
{
    KB_ASSERT(s->inputs < MAX_LINKS);
    s->input[s->inputs++] = label;
}

/* The station of this PE in a tree. False if it has none there. */
static bool open_sums(tl_context *tl, int64_t tree, int64_t rank, int64_t members, station *s)
{
    ccl_label up = sums_of(tree, rank), across = results_for(tree, rank);
    bool is_root = tl_can_send(across.text);
    if (!is_root && !tl_can_send(up.text))
        return false;
    *s = (station){.tree = tree, .sums = true, .is_root = is_root, .outputs = 1};
    s->output[0] = is_root ? across : up;
    for (int64_t child = 0; child < members; child++)
        if (child != rank && tl_can_recv(sums_of(tree, child).text))
            add_input(s, sums_of(tree, child));
    return true;
}

static bool open_results(tl_context *tl, int64_t tree, int64_t rank, int64_t members, station *s)
{
    int64_t number = 0; /* among those of the SIP */
    ccl_label from = results_for(tree, rank);
    while (!tl_can_recv(from.text)) {
        if (++number == MAX_LINKS)
            return false;
        from = results_on(tree, number);
    }
    *s = (station){.tree = tree, .stores = true};
    add_input(s, from);
    ccl_label next = results_on(tree, number + 1);
    if (tl_can_send(next.text)) {
        s->output[s->outputs++] = next;
        s->stores = false;
    }
    for (int64_t child = 0; child < members; child++)
        if (child != rank && tl_can_send(results_for(tree, child).text))
            s->output[s->outputs++] = results_for(tree, child);
    return true;
}

static bool find_station(tl_context *tl, int64_t trees, int64_t rank, int64_t members, station *s)
{
    for (int64_t tree = 0; tree < trees; tree++)
        if (open_sums(tl, tree, rank, members, s) || open_results(tl, tree, rank, members, s))
            return true;
    return false;
}

static void pass_on(tl_context *tl, const station *s, const ccl_tile *tile, int64_t members)
{
    tl_tensor value;
    if (s->sums) {
        value = tl_load(tile->at, tile->shape, tile->dtype);
        for (int i = 0; i < s->inputs; i++)
            value = ccl_combine(tl, tile->op, value,
                                tl_recv_async(s->input[i].text, tile->shape, tile->dtype));
        if (s->is_root)
            value = ccl_finish(tl, tile->op, value, members);
    } else {
        value = tl_recv_async(s->input[0].text, tile->shape, tile->dtype);
    }
    for (int i = 0; i < s->outputs; i++)
        tl_send(s->output[i].text, value);
    if (s->stores)
        tl_store(tile->at, value);
}

KB_KERNEL(streams, tl_ptr whole, int64_t count, kb_dtype dtype, kb_reduce_op op, int members,
          int rank, int trees, int64_t elements)
{
    station s;
    if (!find_station(tl, trees, rank, members, &s))
        return;
    int64_t begin = tl_part_begin(count, trees, s.tree);
    int64_t end = begin + tl_part_size(count, trees, s.tree);
    for (; begin < end; begin += elements) {
        ccl_tile tile = {.at = ccl_at(whole, begin, dtype),
                         .shape = tl_shape(ccl_min(elements, end - begin)),
                         .dtype = dtype,
                         .op = op};
        TL_SCOPE {
            pass_on(tl, &s, &tile, members);
        }
    }
}

/* ---- How many trees ---------------------------------------------------------------------- */

static uint32_t common_divisor(uint32_t a, uint32_t b)
{
    return b == 0 ? a : common_divisor(b, a % b);
}

/*
 * As many as share the links evenly, if that is possible: each has n-1 of the m links. A rank needs
 * a station for the sums and one for each child, or to store: at most one more than it has links.
 */
static kb_error *count_trees(const kb_ccl_scope *scope, uint32_t *trees)
{
    ccl_tree_links links;
    *trees = 0;
    KB_TRY(ccl_count_tree_links(scope, &links));
    if (links.count == 0)
        return NULL;
    uint32_t pes = scope->machine.cubes * scope->machine.pes;
    uint32_t most = (uint32_t)ccl_min(MANY_TREES, pes / (links.most + 1));
    uint32_t even = links.count / common_divisor(links.count, scope->world - 1);
    uint32_t enough = (FEW_TREES + even - 1) / even * even;
    *trees = enough <= most ? enough : even <= most ? most / even * even : most;
    return NULL;
}

/* ---- Who is joined to whom --------------------------------------------------------------- */

typedef struct layout {
    const kb_ccl_scope *scope;
    kb_ccl_graph *graph;
    bool *taken;  /* by rank and PE of its SIP */
    bool *joined; /* by two ranks: a tree has a link between them */
    kb_pe *sums;  /* by rank, of one tree */
    kb_pe *feeds; /* by rank: who sends it results */
} layout;

/* The number of the link from one rank to another among those of the first, and how many it has. */
static uint32_t link_to(const layout *l, uint32_t from, uint32_t to, uint32_t *links)
{
    uint32_t number = 0;
    *links = 0;
    for (uint32_t rank = 0; rank < l->scope->world; rank++) {
        number = rank == to ? *links : number;
        *links += l->joined[(size_t)from * l->scope->world + rank];
    }
    return number;
}

/* Columns share the links of the SIP evenly, or the other way around if there are fewer. */
static bool column_serves(const kb_machine *m, uint32_t column, uint32_t link, uint32_t links)
{
    return m->cube_w >= links ? column * links / m->cube_w == link
                              : column == link * m->cube_w / links;
}

/* A PE of the rank that has no station yet, for what leaves to another rank: of a column that
 * serves this link, or of any if there is none left; the nearer to the IO chiplet the better. */
static kb_pe take_pe(layout *l, uint32_t rank, uint32_t to)
{
    const kb_machine *m = &l->scope->machine;
    uint32_t pes = m->cubes * m->pes, links, link = link_to(l, rank, to, &links);
    bool *taken = &l->taken[(size_t)rank * pes];
    uint32_t best = pes;
    bool best_serves = false;
    for (uint32_t row = 0; row < m->cube_h && !best_serves; row++)
        for (uint32_t i = 0; i < m->pes * m->cube_w && !best_serves; i++) {
            uint32_t column = i % m->cube_w;
            uint32_t pe = (row * m->cube_w + column) * m->pes + i / m->cube_w;
            if (taken[pe])
                continue;
            best_serves = column_serves(m, column, link, links);
            best = best == pes || best_serves ? pe : best;
        }
    KB_ASSERT(best < pes);
    taken[best] = true;
    return (kb_pe){l->scope->ranks[rank].sip, best / m->pes, best % m->pes};
}

/* The stations that pass a rank's results on to its children. Without any it has one that stores.
 */
static kb_error *connect_results(layout *l, const ccl_tree *tree, uint32_t number, uint32_t rank)
{
    uint32_t made = 0, world = l->scope->world;
    kb_pe from = l->feeds[rank];
    ccl_label by = results_for(number, rank);
    for (uint32_t child = 0; child < world; child++) {
        if (tree->parent[child] != rank || child == rank)
            continue;
        kb_pe pe = take_pe(l, rank, child);
        KB_TRY(kb_ccl_connect(l->graph, from, by.text, pe));
        by = results_on(number, ++made);
        l->feeds[child] = from = pe;
    }
    if (made > 0)
        return NULL;
    return kb_ccl_connect(l->graph, from, by.text, take_pe(l, rank, tree->parent[rank]));
}

/* Results go from the root on: a rank's stations can be joined when its parent's are. */
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
    l->feeds[tree->root] = l->sums[tree->root];
    return connect_below(l, tree, number, tree->root);
}

static kb_error *connect_trees(layout *l, const ccl_trees *trees)
{
    size_t world = l->scope->world;
    for (size_t i = 0; i < trees->items.count; i++)
        for (uint32_t rank = 0; rank < world; rank++) {
            uint32_t parent = trees->items.items[i].parent[rank];
            l->joined[rank * world + parent] = l->joined[parent * world + rank] = rank != parent;
        }
    for (uint32_t i = 0; i < trees->items.count; i++)
        KB_TRY(connect_tree(l, &trees->items.items[i], i));
    return NULL;
}

static kb_error *make_layout(const kb_ccl_scope *scope, const ccl_trees *trees, kb_ccl_graph *graph)
{
    size_t world = scope->world, pes = (size_t)scope->machine.cubes * scope->machine.pes;
    layout l = {.scope = scope, .graph = graph};
    l.taken = kb_alloc_zeroed(world * pes, sizeof *l.taken);
    l.joined = kb_alloc_zeroed(world * world, sizeof *l.joined);
    l.sums = kb_alloc_array(world, sizeof *l.sums);
    l.feeds = kb_alloc_array(world, sizeof *l.feeds);
    bool made = l.taken && l.joined && l.sums && l.feeds;
    kb_error *err = made ? connect_trees(&l, trees) : kb_error_nomem();
    free(l.taken);
    free(l.joined);
    free(l.sums);
    free(l.feeds);
    return err;
}

/* ---- The algorithm ----------------------------------------------------------------------- */

static kb_error *check_scope(const kb_ccl_scope *scope, const kb_ccl_members *members)
{
    uint32_t pes = scope->machine.cubes * scope->machine.pes;
    if (kb_ccl_circle_count(members) != pes)
        return kb_error_new(KB_ERR_INPUT,
                            "streams needs all PEs of the ranks' SIPs: mapper: lanes");
    return NULL;
}

static kb_error *streams_connect(const kb_ccl_scope *scope, const kb_ccl_members *members,
                                 kb_ccl_graph *graph)
{
    uint32_t count;
    ccl_trees trees;
    KB_TRY(check_scope(scope, members));
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

static kb_error *streams_arguments(const kb_ccl_call *call, const kb_ccl_part *part,
                                   kb_ccl_arguments *args)
{
    uint32_t trees;
    KB_TRY(count_trees(call->scope, &trees));
    kb_ccl_add_address(args, part->whole);
    kb_ccl_add_integer(args, (int64_t)part->whole_elements);
    kb_ccl_add_integer(args, call->dtype);
    kb_ccl_add_integer(args, call->op);
    kb_ccl_add_integer(args, part->circle_size);
    kb_ccl_add_integer(args, part->rank);
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
