/*
 * pe_ring.c: an order of PEs in a ring for which the flows between neighbours, in both directions,
 * share few links.
 *
 * Cubes are in the order of a Hamiltonian cycle of their mesh. If both sides are odd there is none;
 * then the ring visits one cube twice, with half of its PEs each time. If a side is 1 the ring goes
 * there and back, with half of the PEs of each cube in each direction. The PEs of a cube have a
 * cyclic order around its routers, like a comb. The orientation of each cube (its first PE and the
 * sense of rotation) is chosen cube by cube to minimize shared links, until no cube improves. Cubes
 * 4 x 2 and routers 4 x 4:
 *
 *     0 > 1 > 2 > 3        . > . > . > .
 *     ^           v        ^   . < . < v
 *     4 < 5 < 6 < 7        ^   v > . > .
 *                          . < . < . < v
 *
 * Invariant: every rank is in the order once, on any machine. Not modelled: links of different
 * bandwidth, and orders that do not follow the routers.
 */
#include <stdlib.h>

#include "plan.h"
#include "rings.h"

/* Consecutive positions of the ring in one cube. The first holds PE number `from` of the cube's
 * order. */
typedef struct segment {
    uint32_t cube; /* of all cubes of the machine */
    uint32_t first, count, from;
} segment;

typedef struct tour {
    const kb_ccl_scope *scope;
    const topo_shape *shape;
    uint32_t *ranks;          /* by position in the ring: the result */
    uint32_t *comb;           /* ranks cube by cube, in cyclic order around the routers of each */
    uint32_t *comb_first;     /* by cube: its first entry in `comb`; and the end */
    uint32_t *segments_of;    /* two by cube: its segments, or TOPO_NONE */
    KB_VEC(segment) segments; /* in the order of the ring */
    uint32_t *flows;          /* by link: flows over it */
    uint32_t *steps;          /* buffer for a route */
} tour;

/* ---- Cyclic orders of a grid --------------------------------------------------------------- */

/* The position of (x, y): rows in alternating directions without column 0, which leads back. It is
 * a cycle if the number of rows is even. */
static uint32_t comb_index(uint32_t w, uint32_t h, uint32_t x, uint32_t y)
{
    if (w == 1 || x == 0)
        return w * h - 1 - y;
    return y * (w - 1) + (y % 2 == 0 ? x - 1 : w - 1 - x);
}

/* The same, transposed if that makes it a cycle. */
static uint32_t cycle_index(uint32_t w, uint32_t h, uint32_t x, uint32_t y)
{
    return h % 2 == 0 || w % 2 != 0 ? comb_index(w, h, x, y) : comb_index(h, w, y, x);
}

static uint32_t snake_index(uint32_t w, uint32_t x, uint32_t y)
{
    return y * w + (y % 2 == 0 ? x : w - 1 - x);
}

/* The kinds of closed walks through a grid. */
typedef enum cycle_kind { SNAKE_AND_BACK, CYCLE, ODD_CYCLE } cycle_kind;

static cycle_kind cycle_kind_of(uint32_t w, uint32_t h)
{
    if (w == 1 || h == 1)
        return SNAKE_AND_BACK;
    return w * h % 2 == 0 ? CYCLE : ODD_CYCLE;
}

/* The position of (x, y). For an odd cycle: of the cycle without the last row; add_odd_sip() adds
 * that row. */
static uint32_t position_in_cycle(cycle_kind c, uint32_t w, uint32_t h, uint32_t x, uint32_t y)
{
    if (c == SNAKE_AND_BACK)
        return snake_index(w, x, y);
    return c == CYCLE ? cycle_index(w, h, x, y) : comb_index(w, h - 1, x, y);
}

/* ---- The PEs of cubes ---------------------------------------------------------------------- */

static uint32_t cube_of(const tour *t, uint32_t rank)
{
    return (uint32_t)topo_cube_index(t->shape, t->scope->ranks[rank]);
}

/* The PEs of a cube, sorted by the position of their routers and then by number. */
static void sort_pes(const tour *t, uint32_t *pes)
{
    uint32_t w = t->shape->noc_w, h = t->shape->noc_h, count = 0;
    for (uint32_t index = 0; index < w * h; index++)
        for (uint32_t pe = 0; pe < t->shape->pes; pe++) {
            uint32_t router = topo_pe_router(t->scope->compiled, pe);
            if (cycle_index(w, h, router % w, router / w) == index)
                pes[count++] = pe;
        }
    KB_ASSERT(count == t->shape->pes);
}

/* `rank_of`: by PE of the machine: its rank, or TOPO_NONE. */
static void fill_orders(tour *t, const uint32_t *rank_of, const uint32_t *pes)
{
    uint32_t cubes = t->shape->sips * t->shape->cubes, count = 0;
    for (uint32_t cube = 0; cube < cubes; cube++) {
        t->comb_first[cube] = count;
        for (uint32_t i = 0; i < t->shape->pes; i++) {
            uint32_t rank = rank_of[(size_t)cube * t->shape->pes + pes[i]];
            if (rank != TOPO_NONE)
                t->comb[count++] = rank;
        }
    }
    t->comb_first[cubes] = count;
}

static kb_error *make_orders(tour *t)
{
    size_t all = t->shape->pe_count;
    uint32_t *rank_of = kb_alloc_array(all, sizeof *rank_of);
    uint32_t *pes = kb_alloc_array(t->shape->pes, sizeof *pes);
    bool all_there = rank_of && pes;
    if (all_there) {
        for (size_t i = 0; i < all; i++)
            rank_of[i] = TOPO_NONE;
        for (uint32_t rank = 0; rank < t->scope->world; rank++)
            rank_of[topo_pe_index(t->shape, t->scope->ranks[rank])] = rank;
        sort_pes(t, pes);
        fill_orders(t, rank_of, pes);
    }
    free(rank_of);
    free(pes);
    return all_there ? NULL : kb_error_nomem();
}

/* ---- Segments ------------------------------------------------------------------------------ */

static uint32_t pes_in(const tour *t, uint32_t cube)
{
    return t->comb_first[cube + 1] - t->comb_first[cube];
}

static kb_error *add_segment(tour *t, uint32_t cube, uint32_t from, uint32_t end)
{
    segment s = {.cube = cube, .from = from, .count = end - from};
    if (t->segments.count > 0) {
        const segment *last = &t->segments.items[t->segments.count - 1];
        s.first = last->first + last->count;
    }
    uint32_t *slot = &t->segments_of[2 * cube + (from > 0)];
    if (s.count == 0)
        return NULL;
    *slot = (uint32_t)t->segments.count;
    return kb_vec_push(&t->segments, s) ? NULL : kb_error_nomem();
}

static kb_error *add_cube(tour *t, uint32_t cube)
{
    return add_segment(t, cube, 0, pes_in(t, cube));
}

/*
 * `order`: a cycle without the last row. The cubes of the last row are inserted in pairs, from the
 * right, where the cycle follows the row above. The first cube of the last row is inserted between
 * two segments of the cube above it. Cubes 3 x 3:
 *
 *     0 > 1 > 2
 *     ^       v
 *     3 < 4   5      the ring visits 3 before 6 and after it
 *     |   ^   v
 *     6   7 < 8
 */
static kb_error *add_odd_sip(tour *t, uint32_t sip, const uint32_t *order)
{
    uint32_t w = t->shape->cube_w, above = w * (t->shape->cube_h - 2), base = sip * t->shape->cubes;
    for (uint32_t i = 0; i < above + w; i++) {
        uint32_t cube = base + order[i], pes = pes_in(t, cube);
        if (order[i] == above) {
            KB_TRY(add_segment(t, cube, 0, (pes + 1) / 2));
            KB_TRY(add_cube(t, cube + w));
            KB_TRY(add_segment(t, cube, (pes + 1) / 2, pes));
            continue;
        }
        KB_TRY(add_cube(t, cube));
        if (order[i] > above && order[i] % w % 2 == 0) {
            KB_TRY(add_cube(t, cube + w));
            KB_TRY(add_cube(t, cube + w - 1));
        }
    }
    return NULL;
}

/* `order`: the cubes of a SIP in the order of the walk. */
static kb_error *add_sip(tour *t, uint32_t sip, const uint32_t *order, bool is_cycle)
{
    uint32_t cubes = t->shape->cubes, base = sip * cubes;
    for (uint32_t i = 0; i < cubes; i++) {
        uint32_t pes = pes_in(t, base + order[i]);
        KB_TRY(add_segment(t, base + order[i], 0, is_cycle ? pes : (pes + 1) / 2));
    }
    for (uint32_t i = cubes; i-- > 0 && !is_cycle;) {
        uint32_t pes = pes_in(t, base + order[i]);
        KB_TRY(add_segment(t, base + order[i], (pes + 1) / 2, pes));
    }
    return NULL;
}

static kb_error *add_segments(tour *t)
{
    uint32_t w = t->shape->cube_w, h = t->shape->cube_h;
    cycle_kind c = cycle_kind_of(w, h);
    uint32_t rows = c == ODD_CYCLE ? h - 1 : h;
    uint32_t *order = kb_alloc_array(t->shape->cubes, sizeof *order);
    if (!order)
        return kb_error_nomem();
    for (uint32_t cube = 0; cube < rows * w; cube++)
        order[position_in_cycle(c, w, h, cube % w, cube / w)] = cube;
    for (uint32_t i = 0; i < 2 * t->shape->sips * t->shape->cubes; i++)
        t->segments_of[i] = TOPO_NONE;
    kb_error *err = NULL;
    for (uint32_t sip = 0; sip < t->shape->sips && !err; sip++)
        err = c == ODD_CYCLE ? add_odd_sip(t, sip, order) : add_sip(t, sip, order, c == CYCLE);
    free(order);
    return err;
}

/* ---- Flows --------------------------------------------------------------------------------- */

/* Arranges the PEs of a cube in an orientation: 2 * position of the first PE in the cube's order +
 * 1 if backwards. */
static void arrange_cube(tour *t, uint32_t cube, uint32_t orientation)
{
    uint32_t pes = pes_in(t, cube), begin = orientation / 2;
    const uint32_t *comb = &t->comb[t->comb_first[cube]];
    for (int k = 0; k < 2; k++) {
        uint32_t at = t->segments_of[2 * cube + (uint32_t)k];
        const segment *s = at == TOPO_NONE ? NULL : &t->segments.items[at];
        for (uint32_t i = 0; s && i < s->count; i++) {
            uint32_t turn = (s->from + i) % pes;
            t->ranks[s->first + i] =
                comb[orientation % 2 == 0 ? (begin + turn) % pes : (begin + pes - turn) % pes];
        }
    }
}

static uint64_t fourth_power(uint64_t n)
{
    return n * n * n * n;
}

/* Adds or removes the flow between two ranks. Returns by how much the cost changes: the sum over
 * links of the fourth power of their flows, so that one link with many flows is worse than many
 * links with few. */
static uint64_t change_flow(tour *t, uint32_t from, uint32_t to, bool add)
{
    kb_pe a = t->scope->ranks[from], b = t->scope->ranks[to];
    uint32_t source = topo_node_at(t->scope->compiled, TOPO_PE_DMA, a.sip, a.cube, a.pe);
    uint32_t target = topo_node_at(t->scope->compiled, TOPO_PE_DMA, b.sip, b.cube, b.pe);
    uint32_t count = topo_route(t->scope->compiled, source, target, true, t->steps);
    uint64_t change = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t *flows = &t->flows[topo_step_link(t->steps[i])];
        uint64_t before = *flows, after = add ? before + 1 : before - 1;
        *flows = (uint32_t)after;
        change += add ? fourth_power(after) - fourth_power(before)
                      : fourth_power(before) - fourth_power(after);
    }
    return change;
}

/* The flows in both directions between a position and the next. */
static uint64_t change_neighbours(tour *t, uint32_t index, bool add)
{
    uint32_t a = t->ranks[index], b = t->ranks[(index + 1) % t->scope->world];
    return a == b ? 0 : change_flow(t, a, b, add) + change_flow(t, b, a, add);
}

/* All flows that begin or end in a cube, each once: those into it, those between its PEs, and the
 * last flow of a segment unless it leads to the cube's other segment. */
static uint64_t change_cube(tour *t, uint32_t cube, bool add)
{
    uint32_t world = t->scope->world;
    uint64_t change = 0;
    for (uint32_t k = 0; k < 2; k++) {
        uint32_t at = t->segments_of[2 * cube + k];
        if (at == TOPO_NONE)
            continue;
        segment s = t->segments.items[at];
        uint32_t next = (s.first + s.count) % world;
        bool leaves = cube_of(t, t->ranks[next]) != cube;
        for (uint32_t i = 0; i < s.count + leaves; i++)
            change += change_neighbours(t, (s.first + world - 1 + i) % world, add);
    }
    return change;
}

/* Gives a cube its best orientation. False if it had that already. Among equal ones the current
 * orientation wins, then the first. */
static bool improve_cube(tour *t, uint32_t cube, uint32_t *orientation)
{
    uint32_t best = *orientation;
    uint64_t min = change_cube(t, cube, false);
    for (uint32_t i = 0; i < 2 * pes_in(t, cube); i++) {
        arrange_cube(t, cube, i);
        uint64_t cost = change_cube(t, cube, true);
        change_cube(t, cube, false);
        if (cost < min) {
            min = cost;
            best = i;
        }
    }
    bool better = best != *orientation;
    *orientation = best;
    arrange_cube(t, cube, best);
    change_cube(t, cube, true);
    return better;
}

/* ---- The ring ------------------------------------------------------------------------------ */

/* Each round removes some of the shared links; later rounds hardly improve the result. */
enum { MAX_ROUNDS = 4 };

static kb_error *improve(tour *t)
{
    uint32_t cubes = t->shape->sips * t->shape->cubes;
    uint32_t *orientations = kb_alloc_zeroed(cubes, sizeof *orientations);
    if (!orientations)
        return kb_error_nomem();
    for (uint32_t cube = 0; cube < cubes; cube++)
        arrange_cube(t, cube, 0);
    for (uint32_t index = 0; index < t->scope->world; index++)
        change_neighbours(t, index, true);
    bool better = true;
    for (int round = 0; round < MAX_ROUNDS && better; round++) {
        better = false;
        for (size_t i = 0; i < t->segments.count; i++) {
            const segment *s = &t->segments.items[i];
            if (s->from == 0 && improve_cube(t, s->cube, &orientations[s->cube]))
                better = true;
        }
    }
    free(orientations);
    return NULL;
}

static kb_error *tour_init(tour *t)
{
    size_t cubes = (size_t)t->shape->sips * t->shape->cubes;
    t->comb = kb_alloc_array(t->scope->world, sizeof *t->comb);
    t->comb_first = kb_alloc_array(cubes + 1, sizeof *t->comb_first);
    t->segments_of = kb_alloc_array(2 * cubes, sizeof *t->segments_of);
    t->steps = kb_alloc_array(t->shape->max_steps, sizeof *t->steps);
    t->flows =
        kb_alloc_zeroed(topo_machine_graph(t->scope->compiled)->links.count, sizeof *t->flows);
    bool made = t->comb && t->comb_first && t->segments_of && t->steps && t->flows;
    return made ? NULL : kb_error_nomem();
}

static void tour_fini(tour *t)
{
    free(t->comb);
    free(t->comb_first);
    free(t->segments_of);
    free(t->steps);
    free(t->flows);
    kb_vec_fini(&t->segments);
}

kb_error *ccl_pe_ring(const kb_ccl_scope *scope, uint32_t *ranks)
{
    for (uint32_t rank = 0; rank < scope->world; rank++)
        ranks[rank] = rank;
    if (!scope->compiled)
        return NULL;
    tour t = {.scope = scope, .shape = topo_machine_shape(scope->compiled), .ranks = ranks};
    kb_error *err = tour_init(&t);
    if (!err)
        err = make_orders(&t);
    if (!err)
        err = add_segments(&t);
    if (!err)
        err = improve(&t);
    tour_fini(&t);
    return err;
}
