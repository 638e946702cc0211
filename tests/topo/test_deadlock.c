/*
 * test_deadlock.c: law L10. The channels that packets hold while they wait for others make a graph;
 * if it has no cycle the fabric cannot deadlock.
 *
 * A vertex is a link with a class of channels: request or reply, each before or after entering the
 * cube of the destination, and one for both beyond the wrap-around of a ring of SIPs. An edge goes
 * from each step of a route to the next. Routes are taken between all pairs of ends; on large
 * machines between random ones.
 *
 * What may be a request and what a reply: data from a memory to something else is a reply, and what
 * goes to a memory is a request (docs/decisions/0007-routing.md).
 *
 * Checks T5.
 */
#include "random_machines.h"
#include "support/seed.h"

enum { class_count = 5, wrapped_class = 4 };

/* How classes are told apart; fewer than there are, for tests that must fail. */
typedef enum rule { ALL_CLASSES, ONE_CLASS, NO_PHASES, NO_WRAPPED } rule;

typedef KB_VEC(uint32_t) vertex_list;

typedef struct channel_graph {
    const topo_machine *machine;
    rule rules;
    size_t vertex_count;
    vertex_list *next;
    uint32_t *steps;
} channel_graph;

static channel_graph channel_graph_make(const topo_machine *machine, rule rules)
{
    channel_graph g = {.machine = machine, .rules = rules};
    g.vertex_count = topo_machine_graph(machine)->links.count * class_count;
    g.next = kb_alloc_zeroed(g.vertex_count, sizeof *g.next);
    g.steps = kb_alloc_array(topo_machine_shape(machine)->max_steps, sizeof *g.steps);
    assert_true(g.next && g.steps);
    return g;
}

static void channel_graph_fini(channel_graph *g)
{
    for (size_t i = 0; i < g->vertex_count; i++)
        kb_vec_fini(&g->next[i]);
    free(g->next);
    free(g->steps);
}

static uint32_t vertex_of(const channel_graph *g, uint32_t step, bool reply)
{
    topo_phase phase = topo_step_phase(step);
    uint32_t class = phase == TOPO_WRAPPED ? wrapped_class : (reply ? 2 : 0) + (uint32_t)phase;
    if (g->rules == ONE_CLASS)
        class = 0;
    else if (g->rules == NO_PHASES)
        class = reply ? 2 : 0;
    else if (g->rules == NO_WRAPPED && phase == TOPO_WRAPPED)
        class = reply ? 2 : 0;
    return topo_step_link(step) * class_count + class;
}

static void add_edge(channel_graph *g, uint32_t from, uint32_t to)
{
    vertex_list *next = &g->next[from];
    for (size_t i = 0; i < next->count; i++)
        if (next->items[i] == to)
            return;
    assert_true(kb_vec_push(next, to));
}

static void add_route(channel_graph *g, uint32_t from, uint32_t to, bool data, bool reply)
{
    uint32_t count = topo_route(g->machine, from, to, data, g->steps);
    assert_true(count <= topo_machine_shape(g->machine)->max_steps);
    for (uint32_t i = 1; i < count; i++)
        add_edge(g, vertex_of(g, g->steps[i - 1], reply), vertex_of(g, g->steps[i], reply));
}

static void add_routes(channel_graph *g, uint32_t from, uint32_t to)
{
    bool from_memory = is_memory(g->machine, from), to_memory = is_memory(g->machine, to);
    for (int data = 0; data <= 1; data++) {
        if (to_memory || !from_memory)
            add_route(g, from, to, data, false);
        if (!to_memory)
            add_route(g, from, to, data, true);
    }
}

/* All pairs if that is few enough, else so many at random. */
static void add_all_routes(channel_graph *g, size_t most)
{
    node_list ends = list_ends(g->machine);
    kb_rng rng;
    kb_rng_init(&rng, test_seed(11));
    if (ends.count * ends.count <= most) {
        for (size_t i = 0; i < ends.count; i++)
            for (size_t j = 0; j < ends.count; j++)
                add_routes(g, ends.items[i], ends.items[j]);
    } else {
        for (size_t i = 0; i < most; i++)
            add_routes(g, ends.items[kb_rng_below(&rng, ends.count)],
                       ends.items[kb_rng_below(&rng, ends.count)]);
    }
    kb_vec_fini(&ends);
}

/* Takes away vertices that nothing leads to, until none is left or all that are left lead in
 * circles. */
static bool has_cycle(const channel_graph *g)
{
    uint32_t *into = kb_alloc_zeroed(g->vertex_count, sizeof *into);
    uint32_t *free_ones = kb_alloc_array(g->vertex_count, sizeof *free_ones);
    assert_true(into && free_ones);
    for (size_t v = 0; v < g->vertex_count; v++)
        for (size_t i = 0; i < g->next[v].count; i++)
            into[g->next[v].items[i]]++;
    size_t found = 0;
    for (uint32_t v = 0; v < g->vertex_count; v++)
        if (into[v] == 0)
            free_ones[found++] = v;
    for (size_t done = 0; done < found; done++) {
        const vertex_list *next = &g->next[free_ones[done]];
        for (size_t i = 0; i < next->count; i++)
            if (--into[next->items[i]] == 0)
                free_ones[found++] = next->items[i];
    }
    free(free_ones);
    free(into);
    return found < g->vertex_count;
}

static bool machine_has_cycle(const topo_machine *machine, rule rules, size_t most)
{
    channel_graph g = channel_graph_make(machine, rules);
    add_all_routes(&g, most);
    bool cycle = has_cycle(&g);
    channel_graph_fini(&g);
    return cycle;
}

static const size_t all = SIZE_MAX;

static void machines_that_ship_cannot_deadlock(void **state)
{
    (void)state;
    for (const topo_builtin *builtin = topo_builtins; builtin->name; builtin++) {
        topo_machine *machine;
        expect_ok(topo_machine_load(&(topo_source){.path = builtin->name}, &machine));
        if (machine_has_cycle(machine, ALL_CLASSES, all))
            fail_msg("%s can deadlock", builtin->name);
        topo_machine_destroy(machine);
    }
}

static void expect_acyclic(const char *text)
{
    topo_machine *machine = machine_of(text);
    if (machine_has_cycle(machine, ALL_CLASSES, all))
        fail_msg("can deadlock:\n%s", text);
    topo_machine_destroy(machine);
}

/* NOCs of all small shapes: in narrow ones traffic to a side and traffic that passes share links.
 */
static void no_shape_of_noc_can_deadlock(void **state)
{
    (void)state;
    for (unsigned w = 1; w <= 4; w++) {
        for (unsigned h = 1; h <= 4; h++) {
            char text[256];
            snprintf(
                text, sizeof text,
                "system: { sips: { count: 2 } }\n"
                "sip: { cube_mesh: { w: 2, h: 3 } }\n"
                "cube: { noc: { w: %u, h: %u }, pe_layout: { pe_per_router: 1 }, hbm_gib: %u }\n",
                w, h, w * h);
            expect_acyclic(text);
        }
    }
}

static void no_pattern_of_sips_can_deadlock(void **state)
{
    (void)state;
    static const char *const patterns[] = {"ring_1d", "torus_2d", "mesh_2d_no_wrap"};
    for (unsigned p = 0; p < 3; p++) {
        for (unsigned w = 1; w <= 5; w++) {
            for (unsigned h = 1; h <= (p == 0 ? 1 : 5); h++) {
                char text[320], sides[32] = "";
                if (p > 0)
                    snprintf(sides, sizeof sides, "w: %u, h: %u, ", w, h);
                snprintf(text, sizeof text,
                         "system: { sips: { count: %u, %stopology: %s, "
                         "link: { bw_gbs: 1, length_mm: 1, overhead_ns: 1 } } }\n"
                         "sip: { cube_mesh: { w: 2, h: 1 } }\n"
                         "cube: { noc: { k: 1 }, pe_layout: { pe_per_router: 1 } }\n",
                         w * h, sides, patterns[p]);
                expect_acyclic(text);
            }
        }
    }
}

static void random_machines_cannot_deadlock(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(5));
    for (int round = 0; round < 60; round++) {
        char *text = random_description(&rng);
        topo_machine *machine = machine_of(text);
        if (machine_has_cycle(machine, ALL_CLASSES, 60000))
            fail_msg("can deadlock:\n%s", text);
        topo_machine_destroy(machine);
        free(text);
    }
}

static void large_machines_cannot_deadlock(void **state)
{
    (void)state;
    static const char link[] = "system.sips.link.bw_gbs=1";
    static const char *const settings[][6] = {
        {"system.sips.count=64"},
        {"sip.cube_mesh.w=11", "sip.cube_mesh.h=7", "cube.noc.w=3", "cube.noc.h=7"},
        {"system.sips.count=36", "system.sips.topology=torus_2d", link,
         "system.sips.link.length_mm=1", "system.sips.link.overhead_ns=1"},
        {"system.sips.count=17", link, "system.sips.link.length_mm=1",
         "system.sips.link.overhead_ns=1"},
    };
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        size_t count = 0;
        while (count < 6 && settings[i][count])
            count++;
        topo_machine *machine;
        expect_ok(topo_machine_load(&(topo_source){.settings = settings[i], .setting_count = count},
                                    &machine));
        assert_false(machine_has_cycle(machine, ALL_CLASSES, 100000));
        topo_machine_destroy(machine);
    }
}

/* That the test can fail at all: without classes plain XY routing over cubes is cyclic. */
static void without_classes_there_are_cycles(void **state)
{
    (void)state;
    topo_machine *machine =
        machine_with("sip.cube_mesh.w=2", "sip.cube_mesh.h=2", "system.sips.count=1", NULL);
    assert_true(machine_has_cycle(machine, ONE_CLASS, all));
    assert_true(machine_has_cycle(machine, NO_PHASES, all));
    assert_false(machine_has_cycle(machine, ALL_CLASSES, all));
    topo_machine_destroy(machine);
}

/*
 * A ring needs the class beyond the wrap-around as soon as two steps in a row are taken from every
 * place: in a ring of four odd places take them westwards.
 */
static void without_the_wrapped_class_rings_are_cyclic(void **state)
{
    (void)state;
    for (unsigned sips = 2; sips <= 6; sips++) {
        char text[256];
        snprintf(
            text, sizeof text,
            "system: { sips: { count: %u, link: { bw_gbs: 1, length_mm: 1, overhead_ns: 1 } } }\n"
            "sip: { cube_mesh: { w: 1, h: 1 } }\n",
            sips);
        topo_machine *machine = machine_of(text);
        assert_int_equal(machine_has_cycle(machine, NO_WRAPPED, all), sips >= 5);
        assert_false(machine_has_cycle(machine, ALL_CLASSES, all));
        topo_machine_destroy(machine);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(machines_that_ship_cannot_deadlock),
        cmocka_unit_test(no_shape_of_noc_can_deadlock),
        cmocka_unit_test(no_pattern_of_sips_can_deadlock),
        cmocka_unit_test(random_machines_cannot_deadlock),
        cmocka_unit_test(large_machines_cannot_deadlock),
        cmocka_unit_test(without_classes_there_are_cycles),
        cmocka_unit_test(without_the_wrapped_class_rings_are_cyclic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
