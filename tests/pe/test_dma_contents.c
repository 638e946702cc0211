/*
 * test_dma_contents.c: what DMAs move, by physical and by virtual addresses, against flat arrays;
 * what memories serve for it; and that nothing moves after a fault.
 *
 * The model: a few windows of memory as plain bytes, a table of what virtual addresses mean, and
 * moves that read everything before they write anything, byte by byte.
 */
#include "pe_rig.h"
#include "support/seed.h"

enum {
    WINDOW = 96 << 10, /* bytes of each memory that the test knows of */
    MAPPINGS = 3,
    MAX_EXTENTS = 6,
    MAX_MOVES = 5,
    PAGE = 4096,
};

static const char small_machine[] =
    "system: { sips: { count: 2 } }\n"
    "sip: { cube_mesh: { w: 2, h: 1 } }\n"
    "cube: { noc: { w: 2, h: 1 }, pe_layout: { pe_per_router: 1 } }\n";
enum { SIPS = 2, CUBES = 2, PES = 2, KINDS = 3 };

typedef struct known_extent {
    uint64_t offset, bytes;
    bool everywhere;  /* each PE of the SIP has a copy, at the same offset */
    kb_location copy; /* else this one */
} known_extent;

typedef struct known_mapping {
    uint64_t va, bytes;
    uint32_t sip;
    known_extent extents[MAX_EXTENTS];
    size_t count;
    bool installed[CUBES][PES];
    mem_mapping_id id;
} known_mapping;

typedef struct model {
    rig r;
    kb_rng rng;
    unsigned char bytes[SIPS][CUBES][PES][KINDS][WINDOW]; /* SRAM: of PE 0 */
    uint64_t served[SIPS][CUBES][PES][KINDS];
    known_mapping mappings[MAPPINGS];
    unsigned char buffer[MAX_MOVES][WINDOW];
} model;

static uint64_t below(model *m, uint64_t limit)
{
    return kb_rng_below(&m->rng, limit);
}

static kb_pe draw_pe(model *m)
{
    return (kb_pe){(uint32_t)below(m, SIPS), (uint32_t)below(m, CUBES), (uint32_t)below(m, PES)};
}

static unsigned char *window_of(model *m, const kb_location *at)
{
    uint32_t pe = at->memory == KB_SRAM ? 0 : at->pe.pe;
    return m->bytes[at->pe.sip][at->pe.cube][pe][at->memory];
}

/* ---- Mappings ---------------------------------------------------------------------------- */

static kb_location draw_copy(model *m, uint32_t sip, uint64_t bytes)
{
    kb_pe pe = draw_pe(m);
    return place((kb_memory)below(m, KINDS), sip, pe.cube, pe.pe, below(m, WINDOW - bytes + 1));
}

static void add_mapping(model *m, size_t index)
{
    known_mapping *k = &m->mappings[index];
    *k = (known_mapping){.va = MEM_VA_BASE + index * 64 * PAGE,
                         .sip = (uint32_t)below(m, SIPS),
                         .count = 1 + below(m, MAX_EXTENTS)};
    mem_extent extents[MAX_EXTENTS];
    kb_location copies[MAX_EXTENTS * CUBES * PES];
    size_t copy_count = 0;
    for (size_t i = 0; i < k->count; i++) {
        known_extent *e = &k->extents[i];
        *e = (known_extent){.offset = k->bytes,
                            .bytes = 1 + below(m, below(m, 2) ? 300 : 20000),
                            .everywhere = below(m, 3) == 0};
        e->copy = draw_copy(m, k->sip, e->bytes);
        if (e->everywhere)
            e->copy.memory = below(m, 2) ? KB_HBM : KB_TCM;
        k->bytes += e->bytes;
        extents[i] = (mem_extent){.offset = e->offset,
                                  .bytes = e->bytes,
                                  .first_copy = copy_count,
                                  .copy_count = e->everywhere ? CUBES * PES : 1};
        if (!e->everywhere)
            copies[copy_count++] = e->copy;
        for (uint32_t cube = 0; cube < CUBES && e->everywhere; cube++)
            for (uint32_t pe = 0; pe < PES; pe++)
                copies[copy_count++] = place(e->copy.memory, k->sip, cube, pe, e->copy.offset);
    }
    mem_mapping_spec spec = {.name = "x",
                             .va = k->va,
                             .bytes = k->bytes,
                             .extents = extents,
                             .extent_count = k->count,
                             .copies = copies,
                             .copy_count = copy_count};
    expect_ok(mem_mmu_add(m->r.mmus[k->sip], &spec, &k->id));
    for (uint32_t cube = 0; cube < CUBES; cube++)
        for (uint32_t pe = 0; pe < PES; pe++) {
            k->installed[cube][pe] = below(m, 8) > 0;
            if (k->installed[cube][pe])
                mem_mmu_install(m->r.mmus[k->sip], k->id, cube, pe);
        }
}

/* Where the PE finds one byte; false if it does not. */
static bool find_byte(model *m, kb_pe pe, const kb_location *at, uint64_t index, kb_location *found)
{
    if (at->memory != KB_VIRTUAL) {
        *found = *at;
        found->offset += index;
        return found->offset < WINDOW;
    }
    uint64_t va = at->offset + index;
    for (size_t i = 0; i < MAPPINGS; i++) {
        const known_mapping *k = &m->mappings[i];
        if (k->sip != pe.sip || !k->installed[pe.cube][pe.pe])
            continue;
        for (size_t j = 0; j < k->count; j++) {
            const known_extent *e = &k->extents[j];
            if (va < k->va + e->offset || va >= k->va + e->offset + e->bytes)
                continue;
            *found = e->copy;
            if (e->everywhere)
                found->pe = pe;
            found->offset += va - k->va - e->offset;
            return true;
        }
    }
    return false;
}

/* ---- Moves ------------------------------------------------------------------------------- */

static kb_location draw_end(model *m, kb_pe pe, uint64_t bytes)
{
    const known_mapping *k = &m->mappings[below(m, MAPPINGS)];
    if (below(m, 2) == 0 && k->sip == pe.sip && k->bytes >= bytes)
        return (kb_location){.memory = KB_VIRTUAL,
                             .offset = k->va + below(m, k->bytes - bytes + 1)};
    kb_pe other = below(m, 3) ? pe : draw_pe(m);
    return place((kb_memory)below(m, KINDS), other.sip, other.cube, other.pe,
                 below(m, WINDOW - bytes + 1));
}

static pe_move draw_move(model *m, kb_pe pe)
{
    static const uint64_t sizes[] = {8, 500, 9000, 40000, WINDOW};
    pe_move move = {.bytes = 1 + below(m, sizes[below(m, 5)]),
                    .fill = below(m, 10) == 0,
                    .time_only = below(m, 10) == 0};
    move.from = draw_end(m, pe, move.bytes);
    move.to = draw_end(m, pe, move.bytes);
    if (below(m, 4) == 0) { /* likely to overlap */
        move.to = move.from;
        move.to.offset += below(m, 2) ? below(m, 40) : 0;
        if (move.to.memory != KB_VIRTUAL && move.to.offset > WINDOW - move.bytes)
            move.to.offset = WINDOW - move.bytes;
    }
    return move;
}

static bool is_own_tcm(const kb_location *at, kb_pe pe)
{
    return at->memory == KB_TCM && at->pe.sip == pe.sip && at->pe.cube == pe.cube &&
           at->pe.pe == pe.pe;
}

static void serve(model *m, kb_pe pe, const kb_location *at)
{
    if (!is_own_tcm(at, pe))
        m->served[at->pe.sip][at->pe.cube][at->memory == KB_SRAM ? 0 : at->pe.pe][at->memory]++;
}

/* Reads into the buffers; false if some byte is nowhere. */
static bool model_read(model *m, kb_pe pe, const pe_move *moves, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (uint64_t at = 0; at < moves[i].bytes; at++) {
            kb_location from, to;
            if (!find_byte(m, pe, &moves[i].to, at, &to))
                return false;
            if (moves[i].fill)
                continue;
            if (!find_byte(m, pe, &moves[i].from, at, &from))
                return false;
            m->buffer[i][at] = window_of(m, &from)[from.offset];
        }
    return true;
}

static void model_write(model *m, kb_pe pe, const pe_move *moves, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (uint64_t at = 0; at < moves[i].bytes; at++) {
            kb_location from, to;
            assert_true(find_byte(m, pe, &moves[i].to, at, &to));
            serve(m, pe, &to);
            if (moves[i].fill)
                continue;
            assert_true(find_byte(m, pe, &moves[i].from, at, &from));
            serve(m, pe, &from);
            if (!moves[i].time_only)
                window_of(m, &to)[to.offset] = m->buffer[i][at];
        }
}

/* ---- Comparing --------------------------------------------------------------------------- */

static void expect_equal_contents(model *m, bool served)
{
    unsigned char *got = malloc(WINDOW);
    assert_non_null(got);
    const topo_graph *graph = topo_machine_graph(m->r.machine);
    for (uint32_t i = 0; i < SIPS * CUBES * PES * KINDS; i++) {
        uint32_t memory = i % KINDS, pe = i / KINDS % PES;
        kb_location at =
            place((kb_memory)memory, i / KINDS / PES / CUBES, i / KINDS / PES % CUBES, pe, 0);
        if (memory == KB_SRAM && pe > 0)
            continue;
        mem_memories_read(m->r.memories, &at, got, WINDOW);
        assert_memory_equal(got, window_of(m, &at), WINDOW);
        uint32_t service = graph->nodes.items[mem_memories_node(m->r.memories, &at)].service;
        if (served && memory != KB_TCM)
            assert_int_equal(net_link_get(m->r.fabric, service).bytes,
                             m->served[at.pe.sip][at.pe.cube][pe][memory]);
    }
    free(got);
}

static model *model_new(uint64_t seed, bool no_elision)
{
    model *m = calloc(1, sizeof *m);
    assert_non_null(m);
    m->r = rig_make(machine_of(small_machine), no_elision);
    kb_rng_init(&m->rng, test_seed(seed));
    for (uint32_t i = 0; i < SIPS * CUBES * PES * KINDS; i++) {
        kb_location at = place((kb_memory)(i % KINDS), i / KINDS / PES / CUBES,
                               i / KINDS / PES % CUBES, i / KINDS % PES, 0);
        if (at.memory == KB_SRAM && at.pe.pe > 0)
            continue;
        unsigned char *window = window_of(m, &at);
        for (size_t j = 0; j < WINDOW; j += sizeof(uint64_t))
            memcpy(window + j, &(uint64_t){kb_rng_u64(&m->rng)}, sizeof(uint64_t));
        expect_ok(mem_memories_write(m->r.memories, &at, window, WINDOW));
    }
    for (size_t i = 0; i < MAPPINGS; i++)
        add_mapping(m, i);
    return m;
}

static void model_free(model *m)
{
    rig_fini(&m->r);
    free(m);
}

typedef KB_VEC(net_completion) receipt_list;

/* One call at a time, so that the fabric's figures are those of the calls that did not fail. */
static void many_calls(uint64_t seed, bool no_elision, int rounds, receipt_list *completions,
                       int *faults)
{
    model *m = model_new(seed, no_elision);
    for (int round = 0; round < rounds; round++) {
        kb_pe pe = draw_pe(m);
        pe_move moves[MAX_MOVES];
        size_t count = 1 + below(m, MAX_MOVES);
        for (size_t i = 0; i < count; i++)
            moves[i] = draw_move(m, pe);
        bool good = model_read(m, pe, moves, count);
        if (good)
            model_write(m, pe, moves, count);
        outcome o = {.r = &m->r};
        expect_ok(pe_dma_start(m->r.dma, pe, "test", moves, count, on_outcome, &o, 5));
        /* Contents are there at once. */
        if (round % 8 == 0)
            expect_equal_contents(m, false);
        expect_ok(kb_sim_run(m->r.sim, KB_FOREVER));
        assert_int_equal(o.done, 1);
        assert_true(o.completion.queueing >= 0);
        assert_int_equal(kb_error_code(o.err), good ? KB_OK : KB_ERR_FAULT);
        if (!good)
            assert_int_equal(o.completion.ended, o.completion.issued);
        *faults += !good;
        kb_error_free(o.err);
        if (completions)
            assert_true(kb_vec_push(completions, o.completion));
    }
    expect_equal_contents(m, true);
    model_free(m);
}

static void moves_are_those_of_the_model(void **state)
{
    (void)state;
    int faults = 0;
    for (uint64_t seed = 0; seed < 12; seed++)
        many_calls(seed, false, 60, NULL, &faults);
    assert_in_range(faults, 20, 500);
}

static void elision_makes_no_difference(void **state)
{
    (void)state;
    for (uint64_t seed = 100; seed < 102; seed++) {
        receipt_list with = {0}, without = {0};
        int faults = 0;
        many_calls(seed, false, 40, &with, &faults);
        many_calls(seed, true, 40, &without, &faults);
        assert_int_equal(with.count, 40);
        assert_int_equal(without.count, 40);
        assert_memory_equal(with.items, without.items, 40 * sizeof *with.items);
        kb_vec_fini(&with);
        kb_vec_fini(&without);
    }
}

/* A small part of what a large move overwrites is written too, and another part of it is read. */
static void what_is_read_is_what_was_there_before(void **state)
{
    (void)state;
    model *m = model_new(7, false);
    kb_pe pe = {0, 0, 0};
    pe_move moves[] = {
        {.from = place(KB_HBM, 0, 0, 1, 0), .to = place(KB_HBM, 0, 0, 0, 0), .bytes = 12000},
        {.from = place(KB_HBM, 0, 0, 1, 50000), .to = place(KB_HBM, 0, 0, 0, 10), .bytes = 10},
        {.from = place(KB_HBM, 0, 0, 0, 50), .to = place(KB_HBM, 0, 1, 0, 0), .bytes = 10}};
    assert_true(model_read(m, pe, moves, 3));
    model_write(m, pe, moves, 3);
    outcome o = {.r = &m->r};
    expect_ok(pe_dma_start(m->r.dma, pe, "test", moves, 3, on_outcome, &o, 5));
    expect_equal_contents(m, false);
    model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moves_are_those_of_the_model),
        cmocka_unit_test(what_is_read_is_what_was_there_before),
        cmocka_unit_test(elision_makes_no_difference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
