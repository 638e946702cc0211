/*
 * division.c: chooses the grid and the steps of a matrix product by a cost function.
 *
 * The time of a PE is the maximum of the times of array and memory, plus the part of the exchange
 * in the team that is not hidden behind products. Not modelled: contention between cubes for x, and
 * other users of the memory.
 */
#include "division.h"

#include "rt/rt.h"

/* ---- The machine ---- */

static uint64_t port_rate(const topo_machine *machine, uint32_t node)
{
    const topo_graph *graph = topo_machine_graph(machine);
    uint32_t router = topo_node_at(machine, TOPO_ROUTER, 0, 0, topo_pe_router(machine, 0));
    for (uint32_t i = graph->first_out[node]; i < graph->first_out[node + 1]; i++)
        if (graph->links.items[graph->out[i]].to == router)
            return topo_link_rate(graph, graph->out[i]);
    return topo_machine_shape(machine)->pe.tcm_bytes_per_s;
}

tp_pe_params tp_get_pe_params(kb_context *ctx)
{
    const topo_machine *machine = rt_machine(ctx);
    const topo_shape *shape = topo_machine_shape(machine);
    const topo_graph *graph = topo_machine_graph(machine);
    uint32_t slice = topo_node_at(machine, TOPO_HBM_CTRL, 0, 0, 0);
    uint64_t hbm = topo_link_rate(graph, graph->nodes.items[slice].service);
    uint64_t port = port_rate(machine, topo_node_at(machine, TOPO_PE_DMA, 0, 0, 0));
    return (tp_pe_params){
        .pes = shape->pes,
        .cubes = shape->cubes,
        .array_rows = shape->pe.gemm_rows,
        .array_columns = shape->pe.gemm_columns,
        .fill_cycles = 2 * (int64_t)shape->pe.gemm_rows + shape->pe.gemm_columns - 2,
        .cycle_ns = kb_to_ns(shape->pe.gemm_cycle_fs),
        .hbm_bytes_per_ns = (double)hbm / 1e9,
        .noc_bytes_per_ns = (double)port / 1e9,
        .vector_per_ns = shape->pe.math_lanes / kb_to_ns(shape->pe.math_cycle_fs),
        .tcm_bytes = (int64_t)kb_context_machine(ctx).tcm_bytes,
    };
}

enum {
    CHUNK_ROWS = 2,    /* array heights in a chunk: few, so that the array begins early; */
    LONG_CHUNK = 4,    /* the same if the first group waits for x: fewer loads */
    STRIP_COLUMNS = 2, /* array widths in a strip */
    PAIR = 2,          /* strips in a group */
    BLOCK_ROWS = 256,
};

/* ---- The grid ---- */

/* The share of the traffic through the ports of a cube that is not hidden. */
static const double exposed_share = 0.25;

/* A message between PEs of a team, from the last sum to the first addition. */
static const double message_ns = 200;

/* The cost of a further load of any size: its latency, divided by the channels of the DMA, as far
 * as loads of weights do not hide it. */
static const double piece_ns = 15;

static bool crosses_cubes(const tp_pe_params *pe, const tp_grid *g)
{
    return pe->pes % g->team != 0;
}

/* The whole exchange: through the port of a PE or, if teams cross cubes, the ports of its cube. */
static double exchange_ns(const tp_pe_params *pe, const tp_grid *g)
{
    double share = (double)(g->team - 1) / (double)g->team;
    double ns = (double)g->m_size * (double)g->n_size * share * 4 / pe->noc_bytes_per_ns;
    return crosses_cubes(pe, g) ? ns * (double)pe->pes / 2 : ns;
}

/* The part that is not hidden: that of the last strip of the last block and, if teams cross cubes,
 * the mutual slowdown of x and the exchange. */
static double exposed_exchange_ns(const tp_pe_params *pe, const tp_grid *g)
{
    if (g->team == 1)
        return 0;
    double sums = (double)kb_min(g->m_size, BLOCK_ROWS) *
                  (double)kb_min(g->n_size, STRIP_COLUMNS * pe->array_columns);
    double share = (double)(g->team - 1) / (double)g->team;
    double ns = sums * share * (4 / pe->noc_bytes_per_ns + 1 / pe->vector_per_ns) + message_ns;
    return crosses_cubes(pe, g) ? 2 * ns + exposed_share * exchange_ns(pe, g) : ns;
}

/* Bytes of x, and of weights, that a PE loads. */
static double x_bytes(const tp_problem *problem, const tp_grid *g)
{
    return (double)g->m_size * (double)g->k_size * (double)kb_dtype_bytes(problem->x);
}

static double w_bytes(const tp_problem *problem, const tp_grid *g)
{
    return (double)g->k_size * (double)g->n_size * (double)kb_dtype_bytes(problem->w);
}

/* The time to load data that is mostly in other cubes, limited by the ports of the cube: x and,
 * with several parts of m, the weights. */
static double arriving_ns(const tp_pe_params *pe, const tp_problem *problem, const tp_grid *g)
{
    if (pe->cubes == 1)
        return 0;
    double busy = (double)kb_min(pe->pes, g->m_parts * g->n_parts * g->team);
    double each = x_bytes(problem, g) + (g->m_parts > 1 ? w_bytes(problem, g) : 0);
    return each * busy / (2 * pe->noc_bytes_per_ns);
}

static double cost_ns(const tp_pe_params *pe, const tp_problem *problem, const tp_grid *g)
{
    double folds =
        (double)tl_cdiv(g->k_size, pe->array_rows) * (double)tl_cdiv(g->n_size, pe->array_columns);
    double array = (folds * (double)g->m_size + (double)pe->fill_cycles) * pe->cycle_ns;
    /* All parts of m load the weights from one copy. */
    double memory =
        (w_bytes(problem, g) * (double)g->m_parts + x_bytes(problem, g)) / pe->hbm_bytes_per_ns;
    /* x comes in pieces: its shards on the PEs. */
    double pieces = (double)(pe->cubes * pe->pes) * (double)g->k_size / (double)problem->k;
    memory += pieces * piece_ns;
    double arriving = arriving_ns(pe, problem, g);
    double slowest = array > memory ? array : memory;
    slowest = slowest > arriving ? slowest : arriving;
    double exchange = exchange_ns(pe, g);
    slowest = slowest > exchange ? slowest : exchange;
    double first_block = (double)kb_min(g->m_size, BLOCK_ROWS) / (double)g->m_size;
    return slowest + exposed_share * first_block * arriving + exposed_exchange_ns(pe, g);
}

/* The number of columns that must not be split. */
static int64_t column_unit(const tp_problem *problem)
{
    return problem->gated ? 2 : 1;
}

/* The grid with these numbers of parts, or fewer if rounding leaves some empty. */
static tp_grid make_grid(const tp_problem *problem, int64_t m_parts, int64_t n_parts, int64_t team)
{
    int64_t unit = column_unit(problem), units = problem->n / unit;
    tp_grid g = {
        .m_size = tl_cdiv(problem->m, kb_min(m_parts, problem->m)),
        .n_size = tl_cdiv(units, kb_min(n_parts, units)) * unit,
        .k_size = tl_cdiv(problem->k, kb_min(team, problem->k)),
    };
    g.m_parts = tl_cdiv(problem->m, g.m_size);
    g.n_parts = tl_cdiv(problem->n, g.n_size);
    g.team = tl_cdiv(problem->k, g.k_size);
    return g;
}

tp_grid tp_choose_grid(const tp_pe_params *pe, const tp_problem *problem, int64_t kept_k,
                       int64_t kept_n)
{
    int64_t all = pe->cubes * pe->pes;
    int64_t kept_team = kept_k > 0 ? tl_cdiv(problem->k, kept_k) : 0;
    int64_t kept_parts = kept_n > 0 ? tl_cdiv(problem->n, kept_n) : 0;
    bool keeps = kept_team > 0 && kept_team <= TP_MAX_TEAM && kept_team * kept_parts <= all &&
                 kept_n % column_unit(problem) == 0;
    tp_grid best = {0};
    double best_ns = 0;
    for (int64_t team = 1; team <= kb_min(all, TP_MAX_TEAM); team++)
        for (int64_t m_parts = 1; m_parts <= kb_min(all / team, problem->m); m_parts++) {
            if (keeps && (team != kept_team || m_parts * kept_parts * team > all))
                continue;
            tp_grid g =
                make_grid(problem, m_parts, keeps ? kept_parts : all / team / m_parts, team);
            if (keeps) {
                g.k_size = kept_k;
                g.n_size = kept_n;
                g.n_parts = kept_parts;
                g.team = kept_team;
            }
            double ns = cost_ns(pe, problem, &g);
            if (best.team == 0 || ns < best_ns) {
                best = g;
                best_ns = ns;
            }
        }
    return best;
}

/* ---- Steps ---- */

/* The columns of the array, or the smallest multiple with whole pairs. */
static int64_t strip_unit(const tp_pe_params *pe, const tp_problem *problem)
{
    return pe->array_columns * (pe->array_columns % column_unit(problem) == 0 ? 1 : 2);
}

/* Whether two alternating sums keep the array or the memory busy, for strips as wide as the array:
 * a product that adds to a sum waits until the previous one is out of the array. */
static bool hides_fill(const tp_pe_params *pe, const tp_problem *problem, const tp_steps *s)
{
    double array = (double)s->block * (double)tl_cdiv(s->chunk, pe->array_rows) * pe->cycle_ns;
    double memory = (double)(s->chunk * pe->array_columns) * (double)kb_dtype_bytes(problem->w) /
                    pe->hbm_bytes_per_ns;
    double pace = array > memory ? array : memory;
    return 2 * pace >= (double)pe->fill_cycles * pe->cycle_ns;
}

/* A quarter of the TCM is for x, a sixteenth for one piece of the weights. */
static void fit_pieces(const tp_pe_params *pe, const tp_problem *problem, const tp_grid *grid,
                       tp_steps *s)
{
    const int64_t unit = strip_unit(pe, problem), w_bytes = (int64_t)kb_dtype_bytes(problem->w);
    while (s->strip > unit && s->chunk * s->strip * w_bytes > pe->tcm_bytes / 16)
        s->strip -= unit;
    while (s->chunk > pe->array_rows && s->chunk * s->strip * w_bytes > pe->tcm_bytes / 16)
        s->chunk -= pe->array_rows;
    s->chunk = kb_max(s->chunk, KB_ROUND_UP(tl_cdiv(grid->k_size, TP_MAX_CHUNKS), pe->array_rows));
}

/* An eighth of the TCM is for the sums of one group; less for sums over ranks, because several
 * groups are in transit. The rest is for pieces in transit and for receive slots. A norm
 * temporarily needs x in f32. */
static void fit_sums(const tp_pe_params *pe, const tp_problem *problem, tp_steps *s)
{
    const int64_t x_bytes = problem->norm ? 4 : (int64_t)kb_dtype_bytes(problem->x);
    const int64_t room = pe->tcm_bytes / (s->chunks > 0 ? 32 : 8);
    while (s->chunks > 0 && s->strips > 1 && s->block * s->strip * s->strips * 4 > room)
        s->strips--;
    while (s->block > 1 && s->block * s->strip * s->strips * 4 > room)
        s->block = tl_cdiv(s->block, 2);
    while (s->block > 1 && s->block * s->chunk * x_bytes > pe->tcm_bytes / 16)
        s->block = tl_cdiv(s->block, 2);
}

tp_steps tp_choose_steps(const tp_pe_params *pe, const tp_problem *problem, const tp_grid *grid,
                         int64_t chunks)
{
    const int64_t unit = strip_unit(pe, problem);
    /* For few rows the time on the link is negligible, and small messages cost more than they hide.
     */
    chunks = kb_min(chunks, kb_max(2, grid->m_size / 2));
    tp_steps s = {.block = kb_min(grid->m_size, BLOCK_ROWS),
                  .chunk = (chunks > 0 ? LONG_CHUNK : CHUNK_ROWS) * pe->array_rows,
                  .strip = STRIP_COLUMNS * unit,
                  .strips = TP_MAX_STRIPS,
                  .chunks = chunks};
    while (s.strip > unit && tl_cdiv(grid->n_size, s.strip) < chunks)
        s.strip -= unit;
    while (s.chunk < grid->k_size && !hides_fill(pe, problem, &s))
        s.chunk *= 2;
    fit_pieces(pe, problem, grid, &s);
    fit_sums(pe, problem, &s);
    s.block = tl_cdiv(grid->m_size, tl_cdiv(grid->m_size, s.block)); /* equal blocks */
    s.local_x = problem->x_by_cube || pe->cubes == 1;
    s.keeps_x = s.block * grid->k_size * (int64_t)kb_dtype_bytes(problem->x) <= pe->tcm_bytes / 4;
    return s;
}

/*
 * For sums over ranks, groups have equal sizes. Otherwise groups have two strips, whose sums
 * alternate in the array, and the last group is small, because nothing hides its exchange. If x
 * comes from other cubes the first group is large: all of x arrives during it.
 *
 * A single strip has two alternating sums. Only the last strip is single, so the order of additions
 * does not depend on the location of x.
 */
int64_t tp_next_strips(const tp_steps *steps, int64_t strips, int64_t done, int64_t groups)
{
    int64_t left = strips - done, limit = steps->strips;
    if (steps->chunks > 0)
        return kb_min(limit, tl_cdiv(left, kb_max(steps->chunks - groups, 1)));
    int64_t before_last = kb_max(left - 1, 1);
    if (groups > 0 || steps->local_x)
        return before_last > PAIR ? PAIR + before_last % PAIR : before_last;
    int64_t count = kb_min(limit, before_last);
    return before_last - count == 1 ? count - 1 : count;
}

int64_t tp_count_groups(const tp_grid *grid, const tp_steps *steps)
{
    int64_t strips = tl_cdiv(grid->n_size, steps->strip), groups = 0;
    for (int64_t done = 0; done < strips; groups++)
        done += tp_next_strips(steps, strips, done, groups);
    return tl_cdiv(grid->m_size, steps->block) * groups;
}
