/*
 * trees.c: packs spanning trees.
 *
 * On a mesh of SIPs without wrap around, trees are combs: a row and all columns, or a column and
 * all rows. Of w x h = n SIPs with m links, let each of the h rows be the back of (w-1)/m of the
 * combs and each of the w columns the back of (h-1)/m. Then every link is in (n-1)/m of the combs,
 * and no comb is deeper than half of its back plus the length of its teeth. Each comb takes the
 * back whose links were used least so far, which approximates these shares.
 *
 * On other graphs a tree takes the links that earlier trees used least (Kruskal's algorithm,
 * weighted by the number of trees that a link is in), so all links are in almost equally many
 * trees.
 *
 * The root is in the middle of its tree, which minimizes the depth.
 *
 * Invariant: each tree spans all ranks. All links have the same weight: the direct links of SIPs
 * have one bandwidth.
 */
#include "trees.h"

#include <stdlib.h>

typedef struct sip_link {
    uint32_t a, b;  /* ranks */
    uint32_t trees; /* number of trees that it is in */
    uint64_t last;  /* value of packing.choices when it was last chosen */
    uint32_t index;
    bool goes_south; /* in a grid: to the south, else to the east */
    uint32_t line;   /* its column if it goes south, else its row */
} sip_link;

/* Working memory while trees are made. */
typedef struct packing {
    uint32_t world;
    KB_VEC(sip_link) links;
    uint64_t choices;       /* so far */
    uint32_t *set;          /* by rank: union-find parent */
    uint32_t *first, *next; /* links of the tree by rank: first[rank], next[2 * index + side] */
    uint32_t *chosen;       /* indices of these links */
    uint32_t *queue;        /* ranks in the order of breadth-first search */
} packing;

enum { NONE = UINT32_MAX };

/* ---- The graph --------------------------------------------------------------------------- */

static kb_error *add_link(packing *p, sip_link l)
{
    l.index = (uint32_t)p->links.count;
    return kb_vec_push(&p->links, l) ? NULL : kb_error_nomem();
}

/* A ring of the ranks in order. Two ranks have one link. */
static kb_error *add_ring(packing *p)
{
    for (uint32_t rank = 0; rank + 1 < p->world; rank++)
        KB_TRY(add_link(p, (sip_link){.a = rank, .b = rank + 1}));
    return p->world > 2 ? add_link(p, (sip_link){.a = p->world - 1}) : NULL;
}

/*
 * From each SIP to the east and to the south, as on the machine: a row of two does not wrap around.
 */
static kb_error *add_sip_links(packing *p, const kb_ccl_scope *scope, const uint32_t *rank_of)
{
    uint32_t w = scope->sip_w, h = scope->sip_h;
    bool wraps = scope->sips != KB_SIPS_MESH;
    if (w == 0 || h == 0)
        return NULL;
    for (uint32_t sip = 0; sip < w * h; sip++) {
        uint32_t x = sip % w, y = sip / w;
        uint32_t east = y * w + (x + 1) % w, south = (y + 1) % h * w + x;
        if (rank_of[sip] == NONE)
            continue;
        if ((x + 1 < w || (wraps && w >= 3)) && rank_of[east] != NONE)
            KB_TRY(add_link(p, (sip_link){.a = rank_of[sip], .b = rank_of[east], .line = y}));
        if ((y + 1 < h || (wraps && h >= 3)) && rank_of[south] != NONE)
            KB_TRY(add_link(
                p, (sip_link){rank_of[sip], rank_of[south], .goes_south = true, .line = x}));
    }
    return NULL;
}

static kb_error *add_links(packing *p, const kb_ccl_scope *scope)
{
    if (!scope->sip_links || scope->rank_is_pe)
        return add_ring(p);
    uint32_t sips = scope->sip_w * scope->sip_h;
    uint32_t *rank_of = kb_alloc_array(sips, sizeof *rank_of);
    if (!rank_of)
        return kb_error_nomem();
    for (uint32_t sip = 0; sip < sips; sip++)
        rank_of[sip] = NONE;
    for (uint32_t rank = 0; rank < scope->world; rank++)
        rank_of[scope->ranks[rank].sip] = rank;
    kb_error *err = add_sip_links(p, scope, rank_of);
    free(rank_of);
    return err;
}

/* ---- One tree ---------------------------------------------------------------------------- */

/* Least used first. Among equally used links the one that was chosen last comes first: breaking
 * ties by index makes similar trees, and loads that differ by up to 10 % more. */
static int by_use(const void *a, const void *b)
{
    const sip_link *x = a, *y = b;
    if (x->trees != y->trees)
        return x->trees < y->trees ? -1 : 1;
    if (x->last != y->last)
        return x->last > y->last ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static uint32_t representative(packing *p, uint32_t rank)
{
    while (p->set[rank] != rank)
        rank = p->set[rank] = p->set[p->set[rank]];
    return rank;
}

/* Makes the link at index i link number `count` of the tree. */
static void choose_link(packing *p, uint32_t i, uint32_t count)
{
    sip_link *l = &p->links.items[i];
    l->trees++;
    l->last = ++p->choices;
    p->next[(size_t)2 * count] = p->first[l->a];
    p->next[(size_t)2 * count + 1] = p->first[l->b];
    p->first[l->a] = 2 * count;
    p->first[l->b] = 2 * count + 1;
    p->chosen[count] = i;
}

/* Chooses world - 1 links; fewer if the graph is not connected. Returns their number. */
static uint32_t choose_least_used(packing *p)
{
    for (uint32_t rank = 0; rank < p->world; rank++)
        p->set[rank] = rank;
    if (p->links.count > 0)
        qsort(p->links.items, p->links.count, sizeof *p->links.items, by_use);
    uint32_t count = 0;
    for (uint32_t i = 0; i < p->links.count && count + 1 < p->world; i++) {
        const sip_link *l = &p->links.items[i];
        uint32_t a = representative(p, l->a), b = representative(p, l->b);
        if (a == b)
            continue;
        p->set[a] = b;
        choose_link(p, i, count++);
    }
    return count;
}

/*
 * Whether a link is in the comb whose back is this row (or column): teeth are perpendicular to it.
 */
static bool is_in_comb(const sip_link *l, bool back_is_row, uint32_t back)
{
    return l->goes_south == back_is_row || l->line == back;
}

static uint32_t choose_comb(packing *p, uint32_t w, uint32_t h)
{
    uint32_t best = 0, count = 0;
    uint64_t min = UINT64_MAX;
    for (uint32_t comb = 0; comb < h + w; comb++) { /* rows, then columns */
        uint64_t use = 0;
        for (uint32_t i = 0; i < p->links.count; i++) {
            const sip_link *l = &p->links.items[i];
            use += is_in_comb(l, comb < h, comb < h ? comb : comb - h) ? l->trees : 0;
        }
        if (use < min) {
            min = use;
            best = comb;
        }
    }
    for (uint32_t i = 0; i < p->links.count; i++)
        if (is_in_comb(&p->links.items[i], best < h, best < h ? best : best - h))
            choose_link(p, i, count++);
    return count;
}

/* Whether the ranks are all SIPs of a two-dimensional mesh. With one dimension there is only one
 * comb. */
static bool is_whole_mesh(const kb_ccl_scope *scope)
{
    return scope->sip_links && !scope->rank_is_pe && scope->sips == KB_SIPS_MESH &&
           scope->sip_w > 1 && scope->sip_h > 1 && scope->world == scope->sip_w * scope->sip_h;
}

/* False if the graph is not connected. */
static bool choose_links(packing *p, const kb_ccl_scope *scope)
{
    for (uint32_t rank = 0; rank < p->world; rank++)
        p->first[rank] = NONE;
    uint32_t count =
        is_whole_mesh(scope) ? choose_comb(p, scope->sip_w, scope->sip_h) : choose_least_used(p);
    return count + 1 == p->world;
}

/* Breadth-first search from the root: the parent of each rank. Returns the rank that is farthest
 * away. */
static uint32_t find_parents(packing *p, uint32_t root, uint32_t *parent)
{
    uint32_t known = 0;
    parent[root] = root;
    p->queue[known++] = root;
    for (uint32_t i = 0; i < known; i++) {
        uint32_t rank = p->queue[i];
        for (uint32_t end = p->first[rank]; end != NONE; end = p->next[end]) {
            const sip_link *l = &p->links.items[p->chosen[end / 2]];
            uint32_t other = l->a == rank ? l->b : l->a;
            if (other == parent[rank])
                continue;
            parent[other] = rank;
            p->queue[known++] = other;
        }
    }
    return p->queue[known - 1];
}

/* The middle of the longest path in the tree. */
static uint32_t find_middle(packing *p, uint32_t *parent)
{
    uint32_t one_end = find_parents(p, 0, parent);
    uint32_t other_end = find_parents(p, one_end, parent), length = 0;
    for (uint32_t rank = other_end; rank != one_end; rank = parent[rank])
        length++;
    uint32_t middle = other_end;
    for (uint32_t i = 0; i < length / 2; i++)
        middle = parent[middle];
    return middle;
}

static kb_error *add_tree(ccl_trees *trees, packing *p, const kb_ccl_scope *scope)
{
    ccl_tree tree = {.parent = kb_alloc_array(p->world, sizeof *tree.parent)};
    if (!tree.parent || !kb_vec_push(&trees->items, tree)) {
        free(tree.parent);
        return kb_error_nomem();
    }
    if (!choose_links(p, scope))
        return kb_error_new(KB_ERR_INPUT, "the direct links do not connect all SIPs of the group");
    ccl_tree *made = &trees->items.items[trees->items.count - 1];
    made->root = find_middle(p, made->parent);
    find_parents(p, made->root, made->parent);
    return NULL;
}

/* ---- All trees --------------------------------------------------------------------------- */

static kb_error *packing_init(packing *p, const kb_ccl_scope *scope)
{
    size_t world = scope->world;
    *p = (packing){.world = scope->world};
    p->set = kb_alloc_array(world, sizeof *p->set);
    p->first = kb_alloc_array(world, sizeof *p->first);
    p->next = kb_alloc_array(world, 2 * sizeof *p->next);
    p->chosen = kb_alloc_array(world, sizeof *p->chosen);
    p->queue = kb_alloc_array(world, sizeof *p->queue);
    if (!p->set || !p->first || !p->next || !p->chosen || !p->queue)
        return kb_error_nomem();
    return add_links(p, scope);
}

static void packing_fini(packing *p)
{
    kb_vec_fini(&p->links);
    free(p->set);
    free(p->first);
    free(p->next);
    free(p->chosen);
    free(p->queue);
}

kb_error *ccl_trees_init(ccl_trees *trees, const kb_ccl_scope *scope, uint32_t count)
{
    packing p;
    *trees = (ccl_trees){0};
    kb_error *err = packing_init(&p, scope);
    for (uint32_t i = 0; i < count && !err; i++)
        err = add_tree(trees, &p, scope);
    packing_fini(&p);
    if (err)
        ccl_trees_fini(trees);
    return err;
}

void ccl_trees_fini(ccl_trees *trees)
{
    for (size_t i = 0; i < trees->items.count; i++)
        free(trees->items.items[i].parent);
    kb_vec_fini(&trees->items);
}

kb_error *ccl_count_tree_links(const kb_ccl_scope *scope, ccl_tree_links *links)
{
    packing p = {.world = scope->world};
    *links = (ccl_tree_links){0};
    kb_error *err = add_links(&p, scope);
    for (uint32_t rank = 0; rank < scope->world && !err; rank++) {
        uint32_t own = 0;
        for (size_t i = 0; i < p.links.count; i++)
            own += p.links.items[i].a == rank || p.links.items[i].b == rank;
        links->max_of_rank = own > links->max_of_rank ? own : links->max_of_rank;
    }
    links->count = (uint32_t)p.links.count;
    kb_vec_fini(&p.links);
    return err;
}
