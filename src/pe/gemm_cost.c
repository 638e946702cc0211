/*
 * gemm_cost.c: how long a plan should take, and what it costs.
 *
 * There are two clocks, one of the memory and one of the array: tile by tile the memory loads and
 * stores, and the array multiplies what has come. Equal tiles are counted together, so a plan is
 * weighed in a few steps, however large it is. Beginning and end, where one waits for the other,
 * are looked at closely.
 *
 * Integers only, so that every host finds the same. Not modelled: other users of the TCM and of the
 * memory; several memories at once; latencies, which all plans have alike.
 */
#include "gemm_private.h"

enum {
    /* What commands may cost at most, as a share of the time, is 1 / 2^6; and half of that if there
     * are so many. Loading costs that share of the time that it takes. */
    LITTLE_BITS = 6,
    MANY_COMMANDS = 1024,
};

/* Some of the slices of a tile, and how long they take each of those who work on them. */
typedef struct phase {
    uint64_t steps;
    uint64_t array;   /* with what passes the TCM, if that is slower */
    uint64_t loading; /* by the memory, */
    uint64_t memory;  /* with storing, or what the DMA needs at least for its commands */
} phase;

/* A tile: its last slice has other work than those before, since that is when c is stored. */
typedef struct tile_cost {
    uint64_t rows, columns;
    bool loads_a, loads_b;
    uint64_t commands;
    phase body, last; /* body: no steps if there is only one slice */
} tile_cost;

static uint64_t array_time(const gemm_search *s, uint64_t rows, uint64_t folds)
{
    const uint64_t fill = 2 * s->params->gemm_rows + s->params->gemm_columns - 2;
    uint64_t cycles = s->params->gemm_fill_per_fold ? plus(rows, fill) : rows;
    return times(times(folds, cycles), (uint64_t)s->params->gemm_cycle_fs);
}

/* The bytes that the array reads for this depth of k, which are more than it writes. */
static uint64_t tcm_bytes(const gemm_search *s, const tile_cost *t, uint64_t depths)
{
    const gemm_problem *is = s->problem;
    const uint64_t folds = KB_DIV_UP(t->columns, s->params->gemm_columns);
    const uint64_t a = times(times(times(t->rows, depths), is->a_bytes), folds);
    return plus(a, times(times(t->columns, depths), is->b_bytes));
}

static uint64_t sum_bytes(const tile_cost *t)
{
    return times(times(t->rows, t->columns), GEMM_SUM_BYTES);
}

bool gemm_folds_are_slow(const gemm_search *s, const gemm_plan *p)
{
    const tile_cost t = {.rows = p->tile_rows, .columns = p->tile_columns};
    const uint64_t array = array_time(s, t.rows, KB_DIV_UP(t.columns, p->width));
    const uint64_t bytes = plus(tcm_bytes(s, &t, p->fold), sum_bytes(&t));
    return times(bytes, s->tcm_fs_per_byte) > array;
}

/* Of `depths` of k and `columns` of b. */
static uint64_t loading_time(const gemm_search *s, const gemm_plan *p, const tile_cost *t,
                             uint64_t depths, uint64_t columns)
{
    uint64_t a = t->loads_a ? times(t->rows, p->a_bytes) : 0;
    uint64_t b = t->loads_b ? times(columns, p->b_bytes) : 0;
    return times(times(depths, plus(a, b)), s->fs_per_byte);
}

static uint64_t strips_of(const gemm_plan *p, const tile_cost *t)
{
    return KB_DIV_UP(t->columns, p->strip);
}

/* Slices that have `depths` of k together; `sums` of them add to sums. */
static phase weigh_phase(const gemm_search *s, const gemm_plan *p, const tile_cost *t,
                         uint64_t depths, uint64_t slices, uint64_t sums, uint64_t stored)
{
    const uint64_t strips = strips_of(p, t);
    const uint64_t folds = times(KB_DIV_UP(depths, p->fold), KB_DIV_UP(t->columns, p->width));
    const uint64_t loads = t->loads_b ? times(slices, strips) : t->loads_a ? slices : 0;
    const uint64_t loading = loading_time(s, p, t, depths, t->columns);
    uint64_t passed = plus(plus(tcm_bytes(s, t, depths), times(sum_bytes(t), sums)), stored);
    uint64_t latency = times(loads, 2 * (uint64_t)s->problem->latency); /* or queueing */
    return (phase){
        .steps = times(slices, strips),
        .array = kb_max(array_time(s, t->rows, folds), times(passed, s->tcm_fs_per_byte)),
        .loading = loading,
        .memory = kb_max(plus(loading, times(stored, s->fs_per_byte)),
                         plus(latency, loading) / s->params->dma_channels),
    };
}

static void add_phase(phase *sum, const phase *f)
{
    sum->steps = plus(sum->steps, f->steps);
    sum->array = plus(sum->array, f->array);
    sum->loading = plus(sum->loading, f->loading);
    sum->memory = plus(sum->memory, f->memory);
}

/* How many slices of full length follow each other at least, where one does. */
static uint64_t full_slices(const gemm_plan *p, uint64_t at, bool ends)
{
    const uint64_t left = p->k - at, behind = (ends ? 3 : 1) * p->slice;
    return left > behind + p->slice ? (left - behind) / p->slice : 1;
}

static void weigh_tile(const gemm_search *s, const gemm_plan *p, tile_cost *t, bool begins,
                       bool ends)
{
    uint64_t slices = 1, at = 0, depths;
    t->body = (phase){0};
    while (depths = gemm_slice_at(p, at, begins, ends), at + depths < p->k) {
        const uint64_t count = depths == p->slice ? full_slices(p, at, ends) : 1;
        phase f = weigh_phase(s, p, t, count * depths, count, count - (at == 0), 0);
        add_phase(&t->body, &f);
        slices += count;
        at += count * depths;
    }
    t->last =
        weigh_phase(s, p, t, depths, 1, slices > 1, times(times(t->rows, t->columns), p->c_bytes));
    const uint64_t strips = strips_of(p, t);
    t->commands = times(times(slices, strips), t->loads_b ? 2 : 1);
    t->commands = plus(t->commands, plus(strips, t->loads_b || !t->loads_a ? 0 : slices));
}

/* How much longer the array waits for `needed` than it is busy with what it has. */
static uint64_t wait_for(uint64_t needed, uint64_t busy)
{
    return needed > busy ? needed - busy : 0;
}

/*
 * How long the array waits in the first tile. It begins with a short slice; strips of that, and
 * then slices, grow to half of what came before until they have their full size. Each waits until
 * it has come, and what is left of the tile follows. The longest wait is for the first strip, for
 * the first one of full size, for the second slice, or for the first one of full size.
 */
static uint64_t first_wait(const gemm_search *s, const gemm_plan *p, const tile_cost *t, bool ends)
{
    /* Half of what came before is no more than what is left, or than a third of that. */
    const uint64_t share = ends ? 5 : 3;
    const uint64_t folds = KB_DIV_UP(p->k, p->fold), widths = KB_DIV_UP(t->columns, p->width);
    const uint64_t depths = kb_min(p->ramp, p->k), width = kb_min(p->width, t->columns);
    const uint64_t longest = kb_min(KB_DIV_UP(p->slice, p->fold), KB_DIV_UP(folds, share));
    const uint64_t widest = kb_min(KB_DIV_UP(p->strip, p->width), KB_DIV_UP(widths, 3)) * p->width;
    const uint64_t array = plus(t->body.array, t->last.array) / folds;
    const uint64_t loading = plus(t->body.loading, t->last.loading) / folds;
    const uint64_t short_slice = times(array, p->ramp / p->fold);
    const uint64_t strip = times(short_slice / widths, widest / p->width);

    uint64_t wait = loading_time(s, p, t, depths, width);
    wait = kb_max(wait, wait_for(loading_time(s, p, t, depths, 3 * widest), times(2, strip)));
    if (folds == 1)
        return wait;
    uint64_t second =
        plus(times(loading, p->ramp / p->fold), loading_time(s, p, t, depths, p->strip));
    wait = kb_max(wait, wait_for(second, short_slice));
    uint64_t full =
        plus(times(loading, 2 * longest), loading_time(s, p, t, longest * p->fold, p->strip));
    return kb_max(wait, wait_for(full, times(array, 2 * longest)));
}

/* When the memory and the array are done with what they had to do so far. */
typedef struct clocks {
    uint64_t memory, array;
} clocks;

/*
 * When the last tile is stored. Its last slice is short, and is stored in strips: from when one
 * strip, at most a third of it, is done; and when all is done the last strip is left.
 */
static uint64_t last_end(const gemm_search *s, const gemm_plan *p, const tile_cost *t,
                         const clocks *c)
{
    const uint64_t widths = KB_DIV_UP(t->columns, p->width);
    const uint64_t strips = kb_min(widths, kb_max(strips_of(p, t), 3));
    const uint64_t slice = array_time(s, t->rows, times(widths, p->ramp / p->fold));
    const uint64_t before = slice - slice / strips; /* from the first strip on */
    uint64_t storing = times(times(times(t->rows, t->columns), p->c_bytes), s->fs_per_byte);
    storing = kb_max(storing / widths, storing - kb_min(storing, before));
    return kb_max(plus(c->array, storing), c->memory);
}

/*
 * Does a phase `count` times. The memory may be ahead, by `lead`; the array begins when the first
 * step has come, and has at least the last step to do when that has.
 */
static void run_phase(clocks *c, const phase *f, uint64_t count, uint64_t lead)
{
    if (f->steps == 0)
        return;
    uint64_t memory = kb_max(c->memory, c->array - kb_min(c->array, lead));
    uint64_t start = kb_max(c->array, plus(memory, f->loading / f->steps));
    c->memory = plus(memory, times(count, f->memory));
    c->array = kb_max(plus(start, times(count, f->array)), plus(c->memory, f->array / f->steps));
}

/* Adds the time that passed since `before`, `count` times. */
static void repeat(clocks *c, const clocks *before, uint64_t count)
{
    c->memory = plus(c->memory, times(count, c->memory - before->memory));
    c->array = kb_max(plus(c->array, times(count, c->array - before->array)), c->memory);
}

/* Equal tiles one after the other. */
static void run_tiles(clocks *c, const tile_cost *t, uint64_t count, uint64_t lead)
{
    if (t->body.steps == 0) {
        run_phase(c, &t->last, count, lead);
        return;
    }
    clocks before = *c;
    for (uint64_t i = 0; i < kb_min(count, 2); i++) {
        before = *c;
        run_phase(c, &t->body, 1, lead);
        run_phase(c, &t->last, 1, lead);
    }
    if (count > 2)
        repeat(c, &before, count - 2);
}

/* Tiles of a line or stack: the first, those between, and the last if there are several. */
typedef struct part {
    uint64_t count, size;
} part;

static void cut_parts(uint64_t whole, uint64_t size, part parts[3])
{
    uint64_t count = KB_DIV_UP(whole, size);
    parts[0] = (part){1, size};
    parts[1] = (part){count > 2 ? count - 2 : 0, size};
    parts[2] = (part){count > 1, whole - (count - 1) * size};
}

typedef struct estimator {
    part lines[3], stacks[3];
    tile_cost tiles[3][3]; /* of a line and a stack */
    const tile_cost *last; /* of these, the one that the product ends with */
    uint64_t lead;
    bool rows_first;
} estimator;

/* The tiles of a line, or of a stack if these come first. */
static void run_pass(const estimator *e, clocks *c, int outer)
{
    const part *inners = e->rows_first ? e->stacks : e->lines;
    for (int inner = 0; inner < 3; inner++)
        if (inners[inner].count > 0)
            run_tiles(c, e->rows_first ? &e->tiles[outer][inner] : &e->tiles[inner][outer],
                      inners[inner].count, e->lead);
}

/* All of them: of those between the first and the last, two. */
static void run_passes(const estimator *e, clocks *c)
{
    const part *outers = e->rows_first ? e->lines : e->stacks;
    run_pass(e, c, 0);
    clocks before = *c;
    for (uint64_t i = 0; i < kb_min(outers[1].count, 2); i++) {
        before = *c;
        run_pass(e, c, 1);
    }
    if (outers[1].count > 2)
        repeat(c, &before, outers[1].count - 2);
    if (outers[2].count > 0)
        run_pass(e, c, 2);
}

/* All kinds of tiles; returns the number of commands. */
static uint64_t weigh_tiles(const gemm_search *s, const gemm_plan *p, estimator *e)
{
    uint64_t commands = 0;
    for (int i = 0; i < 9; i++) {
        const uint64_t count = times(e->lines[i / 3].count, e->stacks[i % 3].count);
        tile_cost *t = &e->tiles[i / 3][i % 3];
        if (count == 0)
            continue;
        t->rows = e->lines[i / 3].size;
        t->columns = e->stacks[i % 3].size;
        t->loads_a = p->a_bytes > 0 && (!p->keeps_a || i % 3 == 0);
        t->loads_b = p->b_bytes > 0 && (!p->keeps_b || i / 3 == 0);
        weigh_tile(s, p, t, t == &e->tiles[0][0], t == e->last);
        commands = plus(commands, times(count, t->commands));
    }
    return commands;
}

uint64_t gemm_count_loaded(const gemm_plan *p)
{
    const uint64_t a = times(times(p->m, p->k), p->a_bytes);
    const uint64_t b = times(times(p->k, p->n), p->b_bytes);
    return plus(times(a, p->keeps_a ? 1 : gemm_tile_stacks(p)),
                times(b, p->keeps_b ? 1 : gemm_tile_lines(p)));
}

/* Time; a little for commands, and for what is loaded: others may need the memory too. */
static uint64_t cost_of(const gemm_search *s, const gemm_plan *p, uint64_t time, uint64_t commands)
{
    const uint64_t loading = times(gemm_count_loaded(p), s->fs_per_byte);
    return plus(plus(time, loading >> LITTLE_BITS),
                times(time >> LITTLE_BITS, commands) / plus(commands, MANY_COMMANDS));
}

uint64_t gemm_cost(const gemm_search *s, gemm_plan *p)
{
    estimator e = {.rows_first = p->rows_first};
    cut_parts(p->m, p->tile_rows, e.lines);
    cut_parts(p->n, p->tile_columns, e.stacks);
    const tile_cost *first = &e.tiles[0][0];
    e.last = &e.tiles[e.lines[2].count > 0 ? 2 : 0][e.stacks[2].count > 0 ? 2 : 0];
    uint64_t commands = weigh_tiles(s, p, &e);
    clocks c = {.memory = 0, .array = first_wait(s, p, first, e.last == first)};
    e.lead = plus(c.array, times(first->last.array / first->last.steps, s->ahead));
    run_passes(&e, &c);
    p->estimate = last_end(s, p, e.last, &c);
    return cost_of(s, p, p->estimate, commands);
}

uint64_t gemm_least_cost(const gemm_search *s, const gemm_plan *p)
{
    const uint64_t width = kb_min(p->width, p->tile_columns);
    uint64_t stored = times(times(p->m, p->n), p->c_bytes);
    uint64_t alone = plus(times(kb_min(p->ramp, p->k),
                                plus(times(p->tile_rows, p->a_bytes), times(width, p->b_bytes))),
                          times(times(p->tile_rows, width), p->c_bytes));
    uint64_t array = times(times(s->folds, p->m), (uint64_t)s->params->gemm_cycle_fs);
    uint64_t memory = times(plus(gemm_count_loaded(p), stored), s->fs_per_byte);
    uint64_t time = kb_max(plus(array, times(alone, s->fs_per_byte)), memory);
    uint64_t strips =
        times(times(gemm_tile_lines(p), gemm_tile_stacks(p)), p->tile_columns / p->strip);
    return cost_of(s, p, time, times(strips, p->k / p->slice));
}
