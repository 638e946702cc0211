/*
 * rings.c: rings around the SIPs of a group, along their direct links.
 *
 * A ring is a Hamiltonian cycle and uses two links of each SIP. All links are busy if there are
 * enough rings and each link is in the same number of them. A torus splits into two cycles without
 * a common link (here 3 x 3; open ends are links that wrap around):
 *
 *      |  |  |              |
 *     -0--1  2-       0  1--2          Each cycle is used in both directions: four rings, which use
 *         |  |        |  |             every link of every SIP once in each direction.
 *      3--4  5-      -3  4--5-
 *      |     |           |             Where SIPs have three links (4 x 2), three cycles that share
 *     -6  7--8       -6--7  8-         each link between two of them do the same.
 *      |  |  |              |
 *
 * The cycles are found by a search, which is fast for so few SIPs. If the links do not split
 * evenly, one cycle is used. If there is no cycle (an odd number of SIPs without wrap around), the
 * ring goes through the grid row by row in alternating directions; its last step takes several
 * links, none of which another step uses in the same direction.
 *
 * Invariant: every ring has every rank once. Not modelled: closed walks that use some links more
 * than once, which could use links that a single cycle leaves idle.
 */
#include "rings.h"

#include <stdlib.h>

#include "plan.h"

/* The SIPs that an address can name, each with a link to the east and one to the south. */
enum { MAX_WORLD = 16, MAX_LINKS = 2 * MAX_WORLD, MAX_CYCLES = 6, MAX_DEGREE = 4 };

/* Limits the search. All patterns of up to 16 SIPs that were tried need fewer steps. */
enum { MAX_STEPS = 1 << 20 };

typedef struct neighbour {
    uint32_t rank, link;
} neighbour;

typedef struct search {
    uint32_t world, links, steps;
    uint32_t degree[MAX_WORLD];
    neighbour next[MAX_WORLD][MAX_DEGREE];
    uint32_t left[MAX_LINKS]; /* how many more cycles may use each link */
    uint32_t cycles;          /* to be found */
    uint32_t ranks[MAX_CYCLES][MAX_WORLD];
} search;

/* ---- The graph --------------------------------------------------------------------------- */

static void add_link(search *s, uint32_t a, uint32_t b)
{
    s->next[a][s->degree[a]++] = (neighbour){b, s->links};
    s->next[b][s->degree[b]++] = (neighbour){a, s->links++};
}

/* Links between ranks, each once. A row of two does not wrap around. */
static void add_links(search *s, const kb_ccl_scope *scope)
{
    uint32_t rank_of[MAX_WORLD];
    for (uint32_t sip = 0; sip < scope->machine.sips; sip++)
        rank_of[sip] = TOPO_NONE;
    for (uint32_t rank = 0; rank < scope->world; rank++)
        rank_of[scope->ranks[rank].sip] = rank;
    for (uint32_t sip = 0; sip < scope->machine.sips; sip++) {
        uint32_t east = ccl_sip_neighbour(scope, sip, 1, 0);
        uint32_t south = ccl_sip_neighbour(scope, sip, 0, 1);
        if (rank_of[sip] == TOPO_NONE)
            continue;
        if (east != TOPO_NONE && rank_of[east] != TOPO_NONE && (scope->sip_w > 2 || east > sip))
            add_link(s, rank_of[sip], rank_of[east]);
        if (south != TOPO_NONE && rank_of[south] != TOPO_NONE && (scope->sip_h > 2 || south > sip))
            add_link(s, rank_of[sip], rank_of[south]);
    }
}

/* ---- Cycles ------------------------------------------------------------------------------ */

static bool find_cycle(search *s, uint32_t cycle);

/* Extends the path of this cycle, which has `length` ranks (the bits in `seen`), and then finds the
 * remaining cycles. */
static bool extend(search *s, uint32_t cycle, uint32_t length, uint32_t seen)
{
    uint32_t last = s->ranks[cycle][length - 1];
    if (s->steps++ >= MAX_STEPS)
        return false;
    for (uint32_t i = 0; i < s->degree[last]; i++) {
        neighbour n = s->next[last][i];
        bool closes = length == s->world && n.rank == s->ranks[cycle][0];
        if (s->left[n.link] == 0 || (!closes && (seen >> n.rank & 1) != 0))
            continue;
        s->left[n.link]--;
        if (length < s->world)
            s->ranks[cycle][length] = n.rank;
        if (closes ? find_cycle(s, cycle + 1)
                   : extend(s, cycle, length + 1, seen | UINT32_C(1) << n.rank))
            return true;
        s->left[n.link]++;
    }
    return false;
}

static bool find_cycle(search *s, uint32_t cycle)
{
    if (cycle == s->cycles)
        return true;
    s->ranks[cycle][0] = 0;
    return extend(s, cycle, 1, 1);
}

/* Finds `cycles` cycles with each link in at most `share` of them. */
static bool find_cycles(search *s, uint32_t cycles, uint32_t share)
{
    for (uint32_t rank = 0; rank < s->world; rank++)
        if (s->degree[rank] * share < 2 * cycles)
            return false;
    for (uint32_t i = 0; i < s->links; i++)
        s->left[i] = share;
    s->cycles = cycles;
    s->steps = 0;
    return find_cycle(s, 0);
}

/* Finds the smallest number of cycles that uses all links evenly, or else one cycle. False if there
 * is none. */
static bool find_best(search *s)
{
    for (uint32_t cycles = 1; cycles <= MAX_CYCLES; cycles++)
        if (s->links > 0 && cycles * s->world % s->links == 0 &&
            find_cycles(s, cycles, cycles * s->world / s->links))
            return true;
    return s->world > 2 && find_cycles(s, 1, 1);
}

/* ---- Rings ------------------------------------------------------------------------------- */

/* Whether rank r is SIP r, for all SIPs of a grid. */
static bool is_whole_grid(const kb_ccl_scope *scope)
{
    bool all = scope->world == scope->machine.sips && scope->sips != KB_SIPS_RING;
    for (uint32_t rank = 0; rank < scope->world && all; rank++)
        all = scope->ranks[rank].sip == rank;
    return all;
}

/* Row after row, every other one backwards. Other groups are in the order of their ranks. */
static void follow_grid(const kb_ccl_scope *scope, uint32_t *ring)
{
    uint32_t w = scope->sip_w;
    bool is_grid = scope->sip_links && is_whole_grid(scope);
    for (uint32_t i = 0; i < scope->world; i++)
        ring[i] = is_grid && i / w % 2 == 1 ? (i / w + 1) * w - 1 - i % w : i;
}

static kb_error *rings_alloc(ccl_rings *rings, uint32_t count, uint32_t world)
{
    *rings = (ccl_rings){.count = count, .world = world};
    rings->ranks = kb_alloc_array((size_t)count * world, sizeof *rings->ranks);
    return rings->ranks ? NULL : kb_error_nomem();
}

kb_error *ccl_rings_init(ccl_rings *rings, const kb_ccl_scope *scope)
{
    uint32_t world = scope->world, cycles = 1;
    search s = {.world = world};
    bool found = scope->sip_links && scope->machine.sips <= MAX_WORLD;
    if (found) {
        add_links(&s, scope);
        found = find_best(&s);
    }
    if (found)
        cycles = s.cycles;
    KB_TRY(rings_alloc(rings, scope->sip_links ? 2 * cycles : 1, world));
    if (!found)
        follow_grid(scope, rings->ranks);
    for (uint32_t i = 0; i < cycles * world && found; i++)
        rings->ranks[i] = s.ranks[i / world][i % world];
    for (uint32_t ring = cycles; ring < rings->count; ring++) { /* the same backwards */
        const uint32_t *forth = ccl_ring(rings, ring - cycles);
        for (uint32_t i = 0; i < world; i++)
            rings->ranks[ring * world + i] = forth[(world - i) % world];
    }
    return NULL;
}

bool ccl_columns_go_one_way(const kb_ccl_scope *scope)
{
    bool is_torus = scope->sips == KB_SIPS_TORUS;
    bool has_three = is_torus && (scope->sip_w == 2) != (scope->sip_h == 2);
    uint32_t rings = is_torus && scope->sip_w > 2 && scope->sip_h > 2 ? 4 : 2;
    return !scope->sip_links || (!has_three && scope->machine.cube_w % rings == 0);
}

void ccl_rings_fini(ccl_rings *rings)
{
    free(rings->ranks);
    *rings = (ccl_rings){0};
}
