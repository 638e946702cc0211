/*
 * pe_ring.c: the order in which a ring goes through PEs, so that the flows between neighbours, both
 * ways around, share few links.
 *
 * Cubes come in the order of a Hamiltonian cycle of their mesh. If both sides are odd there is
 * none, but one that comes through a single cube twice, with half of its PEs each time. If a side
 * is 1 the ring goes there and back, with half of a cube's PEs each way. The PEs of a cube have a
 * cyclic order around its routers, like a comb; where to begin, and which way around, is chosen
 * cube by cube such that links are shared least with all other flows, until nothing gets better.
 * Cubes 4 x 2 and routers 4 x 4:
 *
 *     0 > 1 > 2 > 3        . > . > . > .
 *     ^           v        ^   . < . < v
 *     4 < 5 < 6 < 7        ^   v > . > .
 *                          . < . < . < v
 *
 * Invariant: every rank is in the order once, whatever the machine looks like. Ignored: that links
 * differ in bandwidth, and orders that are not around the routers.
 */
#include <stdlib.h>

#include "plan.h"
#include "rings.h"

/* Consecutive places of the ring that are in one cube: from which one of its PEs, in their order.
 */
typedef struct stop {
    uint32_t cube; /* of all cubes of the machine */
    uint32_t first, count, from;
} stop;

typedef struct tour {
    const kb_ccl_scope *scope;
    const topo_shape *shape;
    uint32_t *ranks;      /* by place: what is wanted */
    uint32_t *comb;       /* ranks cube by cube, each cube's around its routers */
    uint32_t *comb_first; /* by cube, and the end */
    uint32_t *stops_of;   /* by cube: its stops, two each, or TOPO_NONE */
    KB_VEC(stop) stops;   /* in the order of places */
    uint32_t *flows;      /* by link */
    uint32_t *steps;      /* of a route */
} tour;

/* ---- Cyclic orders of a grid --------------------------------------------------------------- */

/* Where (x, y) comes: rows from left to right and back without column 0, which leads back. It is a
 * cycle if the rows are even in number. */
static uint32_t comb_place(uint32_t w, uint32_t h, uint32_t x, uint32_t y)
{
    if (w == 1 || x == 0)
        return w * h - 1 - y;
    return y * (w - 1) + (y % 2 == 0 ? x - 1 : w - 1 - x);
}

/* The same with rows and columns changed if that makes it a cycle. */
static uint32_t cycle_place(uint32_t w, uint32_t h, uint32_t x, uint32_t y)
{
    return h % 2 == 0 || w % 2 != 0 ? comb_place(w, h, x, y) : comb_place(h, w, y, x);
}

static uint32_t snake_place(uint32_t w, uint32_t x, uint32_t y)
{
    return y * w + (y % 2 == 0 ? x : w - 1 - x);
}

/* Which ways there are around a grid. */
typedef enum course { THERE_AND_BACK, CYCLE, ODD_CYCLE } course;

static course course_around(uint32_t w, uint32_t h)
{
    if (w == 1 || h == 1)
        return THERE_AND_BACK;
    return w * h % 2 == 0 ? CYCLE : ODD_CYCLE;
}

/* Where (x, y) comes; of an odd cycle where it would come without the last row, which is not asked
 * for. */
static uint32_t course_place(course c, uint32_t w, uint32_t h, uint32_t x, uint32_t y)
{
    if (c == THERE_AND_BACK)
        return snake_place(w, x, y);
    return c == CYCLE ? cycle_place(w, h, x, y) : comb_place(w, h - 1, x, y);
}

/* ---- The PEs of cubes ---------------------------------------------------------------------- */

static uint32_t cube_of(const tour *t, uint32_t rank)
{
    kb_pe pe = t->scope->ranks[rank];
    return pe.sip * t->shape->cubes + pe.cube;
}

/* The PEs of a cube by where their routers come; those of a router in their order. */
static void sort_pes(const tour *t, uint32_t *pes)
{
    uint32_t w = t->shape->noc_w, h = t->shape->noc_h, count = 0;
    for (uint32_t place = 0; place < w * h; place++)
        for (uint32_t pe = 0; pe < t->shape->pes; pe++) {
            uint32_t router = topo_pe_router(t->scope->compiled, pe);
            if (cycle_place(w, h, router % w, router / w) == place)
                pes[count++] = pe;
        }
    KB_ASSERT(count == t->shape->pes);
}

/* `rank_of`: by PE of the machine, or TOPO_NONE. */
static void fill_combs(tour *t, const uint32_t *rank_of, const uint32_t *pes)
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

static kb_error *make_combs(tour *t)
{
    size_t all = t->shape->pe_count;
    uint32_t *rank_of = kb_alloc_array(all, sizeof *rank_of);
    uint32_t *pes = kb_alloc_array(t->shape->pes, sizeof *pes);
    bool all_there = rank_of && pes;
    if (all_there) {
        for (size_t i = 0; i < all; i++)
            rank_of[i] = TOPO_NONE;
        for (uint32_t rank = 0; rank < t->scope->world; rank++)
            rank_of[(size_t)cube_of(t, rank) * t->shape->pes + t->scope->ranks[rank].pe] = rank;
        sort_pes(t, pes);
        fill_combs(t, rank_of, pes);
    }
    free(rank_of);
    free(pes);
    return all_there ? NULL : kb_error_nomem();
}

/* ---- Stops --------------------------------------------------------------------------------- */

static uint32_t pes_in(const tour *t, uint32_t cube)
{
    return t->comb_first[cube + 1] - t->comb_first[cube];
}

static kb_error *add_stop(tour *t, uint32_t cube, uint32_t from, uint32_t end)
{
    stop s = {.cube = cube, .from = from, .count = end - from};
    if (t->stops.count > 0) {
        const stop *last = &t->stops.items[t->stops.count - 1];
        s.first = last->first + last->count;
    }
    uint32_t *slot = &t->stops_of[2 * cube + (from > 0)];
    if (s.count == 0)
        return NULL;
    *slot = (uint32_t)t->stops.count;
    return kb_vec_push(&t->stops, s) ? NULL : kb_error_nomem();
}

static kb_error *add_cube(tour *t, uint32_t cube)
{
    return add_stop(t, cube, 0, pes_in(t, cube));
}

/*
 * `order`: a cycle without the last row. That comes in by twos, from the right, where the cycle
 * goes along the row above; its first cube is between two stops of the one above it. Cubes 3 x 3:
 *
 *     0 > 1 > 2
 *     ^       v
 *     3 < 4   5      3 is on the way to 6, and again on the way back
 *     |   ^   v
 *     6   7 < 8
 */
static kb_error *add_odd_sip(tour *t, uint32_t sip, const uint32_t *order)
{
    uint32_t w = t->shape->cube_w, above = w * (t->shape->cube_h - 2), base = sip * t->shape->cubes;
    for (uint32_t i = 0; i < above + w; i++) {
        uint32_t cube = base + order[i], pes = pes_in(t, cube);
        if (order[i] == above) {
            KB_TRY(add_stop(t, cube, 0, (pes + 1) / 2));
            KB_TRY(add_cube(t, cube + w));
            KB_TRY(add_stop(t, cube, (pes + 1) / 2, pes));
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

/* `order`: the cubes of a SIP. */
static kb_error *add_sip(tour *t, uint32_t sip, const uint32_t *order, bool is_cycle)
{
    uint32_t cubes = t->shape->cubes, base = sip * cubes;
    for (uint32_t i = 0; i < cubes; i++) {
        uint32_t pes = pes_in(t, base + order[i]);
        KB_TRY(add_stop(t, base + order[i], 0, is_cycle ? pes : (pes + 1) / 2));
    }
    for (uint32_t i = cubes; i-- > 0 && !is_cycle;) {
        uint32_t pes = pes_in(t, base + order[i]);
        KB_TRY(add_stop(t, base + order[i], (pes + 1) / 2, pes));
    }
    return NULL;
}

static kb_error *add_stops(tour *t)
{
    uint32_t w = t->shape->cube_w, h = t->shape->cube_h;
    course c = course_around(w, h);
    uint32_t rows = c == ODD_CYCLE ? h - 1 : h;
    uint32_t *order = kb_alloc_array(t->shape->cubes, sizeof *order);
    if (!order)
        return kb_error_nomem();
    for (uint32_t cube = 0; cube < rows * w; cube++)
        order[course_place(c, w, h, cube % w, cube / w)] = cube;
    for (uint32_t i = 0; i < 2 * t->shape->sips * t->shape->cubes; i++)
        t->stops_of[i] = TOPO_NONE;
    kb_error *err = NULL;
    for (uint32_t sip = 0; sip < t->shape->sips && !err; sip++)
        err = c == ODD_CYCLE ? add_odd_sip(t, sip, order) : add_sip(t, sip, order, c == CYCLE);
    free(order);
    return err;
}

/* ---- Flows --------------------------------------------------------------------------------- */

/* A way in which a cube's PEs can stand: 2 * where the first of the comb comes + backwards. */
static void place_cube(tour *t, uint32_t cube, uint32_t way)
{
    uint32_t pes = pes_in(t, cube), begin = way / 2;
    const uint32_t *comb = &t->comb[t->comb_first[cube]];
    for (int k = 0; k < 2; k++) {
        uint32_t at = t->stops_of[2 * cube + (uint32_t)k];
        const stop *s = at == TOPO_NONE ? NULL : &t->stops.items[at];
        for (uint32_t i = 0; s && i < s->count; i++) {
            uint32_t turn = (s->from + i) % pes;
            t->ranks[s->first + i] =
                comb[way % 2 == 0 ? (begin + turn) % pes : (begin + pes - turn) % pes];
        }
    }
}

static uint64_t fourth_power(uint64_t n)
{
    return n * n * n * n;
}

/* The flow between two ranks is added, or taken away; returns by how much links are shared more, or
 * less. One link with many flows is worse than many with few. */
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

/* Both ways between a place and the next. */
static uint64_t change_place(tour *t, uint32_t place, bool add)
{
    uint32_t a = t->ranks[place], b = t->ranks[(place + 1) % t->scope->world];
    return a == b ? 0 : change_flow(t, a, b, add) + change_flow(t, b, a, add);
}

/* All flows that begin or end in a cube, each once: those that lead into it, those between its PEs,
 * and the last of a stop unless it leads to the cube's other one. */
static uint64_t change_cube(tour *t, uint32_t cube, bool add)
{
    uint32_t world = t->scope->world;
    uint64_t change = 0;
    for (uint32_t k = 0; k < 2; k++) {
        uint32_t at = t->stops_of[2 * cube + k];
        if (at == TOPO_NONE)
            continue;
        stop s = t->stops.items[at];
        uint32_t next = (s.first + s.count) % world;
        bool leaves = cube_of(t, t->ranks[next]) != cube;
        for (uint32_t i = 0; i < s.count + leaves; i++)
            change += change_place(t, (s.first + world - 1 + i) % world, add);
    }
    return change;
}

/* Has a cube's PEs stand in the best way. False if they did already; of ways that are alike the
 * first is taken, but none without need. */
static bool improve_cube(tour *t, uint32_t cube, uint32_t *way)
{
    uint32_t best = *way;
    uint64_t least = change_cube(t, cube, false);
    for (uint32_t i = 0; i < 2 * pes_in(t, cube); i++) {
        place_cube(t, cube, i);
        uint64_t cost = change_cube(t, cube, true);
        change_cube(t, cube, false);
        if (cost < least) {
            least = cost;
            best = i;
        }
    }
    bool better = best != *way;
    *way = best;
    place_cube(t, cube, best);
    change_cube(t, cube, true);
    return better;
}

/* ---- All of it ----------------------------------------------------------------------------- */

/* Each time around takes a few of the links that are shared away; what is left then hardly changes.
 */
enum { MAX_ROUNDS = 4 };

static kb_error *improve(tour *t)
{
    uint32_t cubes = t->shape->sips * t->shape->cubes;
    uint32_t *ways = kb_alloc_zeroed(cubes, sizeof *ways);
    if (!ways)
        return kb_error_nomem();
    for (uint32_t cube = 0; cube < cubes; cube++)
        place_cube(t, cube, 0);
    for (uint32_t place = 0; place < t->scope->world; place++)
        change_place(t, place, true);
    bool better = true;
    for (int round = 0; round < MAX_ROUNDS && better; round++) {
        better = false;
        for (size_t i = 0; i < t->stops.count; i++) {
            const stop *s = &t->stops.items[i];
            if (s->from == 0 && improve_cube(t, s->cube, &ways[s->cube]))
                better = true;
        }
    }
    free(ways);
    return NULL;
}

static kb_error *tour_init(tour *t)
{
    size_t cubes = (size_t)t->shape->sips * t->shape->cubes;
    t->comb = kb_alloc_array(t->scope->world, sizeof *t->comb);
    t->comb_first = kb_alloc_array(cubes + 1, sizeof *t->comb_first);
    t->stops_of = kb_alloc_array(2 * cubes, sizeof *t->stops_of);
    t->steps = kb_alloc_array(t->shape->max_steps, sizeof *t->steps);
    t->flows =
        kb_alloc_zeroed(topo_machine_graph(t->scope->compiled)->links.count, sizeof *t->flows);
    bool made = t->comb && t->comb_first && t->stops_of && t->steps && t->flows;
    return made ? NULL : kb_error_nomem();
}

static void tour_fini(tour *t)
{
    free(t->comb);
    free(t->comb_first);
    free(t->stops_of);
    free(t->steps);
    free(t->flows);
    kb_vec_fini(&t->stops);
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
        err = make_combs(&t);
    if (!err)
        err = add_stops(&t);
    if (!err)
        err = improve(&t);
    tour_fini(&t);
    return err;
}
