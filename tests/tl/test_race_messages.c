/*
 * test_race_messages.c: which messages order what, case by case; what a kernel may do with the
 * dtypes of memory that it receives to and sends from; and that any allocation of the host may
 * fail. Random cases are in test_race_order.c.
 */
#include "queue_rig.h"

#include "support/failing_alloc.h"
#include "tl/races_private.h"

#define SHARED ((tl_ptr)0x900000000)
enum { BYTES = 1 << 16 };

typedef void scene_fn(tl_context *tl, tl_ptr x, int64_t pe);

/* The scene in hand: a kernel cannot be given a function. */
static scene_fn *scene;

KB_KERNEL(play, tl_ptr x)
{
    scene(tl, x, tl_program_id(0));
}

#define SCENE(name) static void name(tl_context *tl, tl_ptr x, int64_t pe)

static tl_tensor ones(tl_context *tl)
{
    return tl_full(tl_shape(8), TL_F16, 1);
}

static void load(tl_context *tl, tl_ptr x)
{
    tl_load(x, tl_shape(8), TL_F16);
}

/* ---- Scenes of PE 0, which sends E, and PE 1, which receives W ----------------------------- */

SCENE(store_send_load)
{
    if (pe == 0) {
        tl_store(x, ones(tl));
        tl_send("E", ones(tl));
    } else {
        ignore(tl_recv("W", tl_shape(8), TL_F16));
        load(tl, x);
    }
}

SCENE(send_store_load)
{
    if (pe == 0) {
        tl_send("E", ones(tl));
        tl_store(x, ones(tl));
    } else {
        ignore(tl_recv("W", tl_shape(8), TL_F16));
        load(tl, x);
    }
}

SCENE(load_before_the_value_is_there)
{
    if (pe == 0) {
        tl_store(x, ones(tl));
        tl_send("E", ones(tl));
    } else {
        tl_tensor v = tl_recv_async("W", tl_shape(8), TL_F16);
        load(tl, x);
        tl_wait(v);
    }
}

SCENE(load_after_waiting)
{
    if (pe == 0) {
        tl_store(x, ones(tl));
        tl_send("E", ones(tl));
    } else {
        tl_tensor v = tl_recv_async("W", tl_shape(8), TL_F16);
        tl_wait(tl_add(v, 1));
        load(tl, x);
    }
}

SCENE(store_of_what_will_arrive)
{
    if (pe == 0) {
        load(tl, x);
        tl_send("E", ones(tl));
    } else {
        tl_store(x, tl_mul(tl_recv_async("W", tl_shape(8), TL_F16), 2));
    }
}

/* The load has to wait for the store, and so for the message. */
SCENE(load_of_what_is_stored)
{
    if (pe == 0) {
        tl_store(x + 16, ones(tl));
        tl_send("E", ones(tl));
    } else {
        tl_store(x, tl_recv_async("W", tl_shape(8), TL_F16));
        tl_load(x, tl_shape(16), TL_F16);
    }
}

SCENE(receive_to_what_was_read)
{
    if (pe == 0) {
        load(tl, x);
        tl_send("E", tl_ref(x, tl_shape(8), TL_F16));
    } else {
        ignore(tl_recv("W", tl_shape(8), TL_F16, .dst = x));
    }
}

/* PE 1 tells PE 0 that it has received, before it has. */
SCENE(promise)
{
    if (pe == 0) {
        tl_send("E", ones(tl));
        ignore(tl_recv("E", tl_shape(8), TL_F16));
        load(tl, x);
    } else {
        ignore(tl_recv_async("W", tl_shape(8), TL_F16, .dst = x));
        tl_send("W", ones(tl));
    }
}

SCENE(promise_kept)
{
    if (pe == 0) {
        tl_send("E", ones(tl));
        ignore(tl_recv("E", tl_shape(8), TL_F16));
        load(tl, x);
    } else {
        tl_wait(tl_recv_async("W", tl_shape(8), TL_F16, .dst = x));
        tl_send("W", ones(tl));
    }
}

/* Room in the queue is no message: that PE 0 could send a second one says nothing. */
SCENE(credit)
{
    if (pe == 0) {
        for (int i = 0; i < 5; i++)
            tl_send("E", ones(tl));
        tl_store(x, ones(tl));
    } else {
        load(tl, x);
        for (int i = 0; i < 5; i++)
            ignore(tl_recv("W", tl_shape(8), TL_F16));
    }
}

SCENE(reads_alone)
{
    (void)pe;
    load(tl, x);
}

/* ---- Running ------------------------------------------------------------------------------ */

static topo_machine *machine;

static kb_error *map_shared(rig *r, bool typed)
{
    mem_extent extent = {.bytes = BYTES, .copy_count = 1};
    kb_location at = {.memory = KB_HBM, .pe = {0, 0, 1}, .offset = 2 * MEMORY_BYTES};
    mem_mapping_spec spec = {.name = "x",
                             .va = (uint64_t)SHARED,
                             .bytes = BYTES,
                             .extents = &extent,
                             .extent_count = 1,
                             .copies = &at,
                             .copy_count = 1,
                             .has_dtype = typed,
                             .dtype = KB_F16};
    mem_mapping_id id;
    KB_TRY(mem_mmu_add(r->mmus[0], &spec, &id));
    mem_mmu_install(r->mmus[0], id, 0, 0);
    mem_mmu_install(r->mmus[0], id, 0, 1);
    return NULL;
}

static kb_error *start_both(rig *r, tl_races *races, ending *ends)
{
    static const tl_arg args[] = {SHARED};
    for (uint32_t i = 0; i < 2; i++)
        KB_TRY(tl_runner_start(r->runner, &(tl_run){.kernel = &play,
                                                    .args = args,
                                                    .label = "test",
                                                    .launch = 1,
                                                    .pe = pe_at(i),
                                                    .programs = {2, 1},
                                                    .queues = r->set,
                                                    .races = races,
                                                    .done = on_done,
                                                    .self = &ends[i],
                                                    .arg = 7}));
    return kb_sim_run(r->sim, KB_FOREVER);
}

/* How much is kept; 0: as much as usual. */
static size_t max_accesses, max_nodes;
static bool cut_off;

static void limit(tl_races *races)
{
    if (max_accesses > 0)
        races->limits.accesses = max_accesses;
    if (max_nodes > 0)
        races->order->max_nodes = max_nodes;
}

/* What is said of the scene; whatever fails is returned. */
static kb_error *report(scene_fn *what, kb_text *text)
{
    rig r;
    ending ends[2] = {{0}, {0}};
    tl_races *races = NULL;
    scene = what;
    kb_error *err = rig_try(&r, machine, false);
    if (!err)
        err = map_shared(&r, true);
    if (!err)
        err = ring_try(&r, 2, &small_slots);
    if (!err)
        err = tl_races_create(r.runner, &races);
    if (!err)
        limit(races);
    if (!err)
        err = start_both(&r, races, ends);
    for (int i = 0; i < 2; i++)
        if (err)
            kb_error_free(ends[i].err);
        else
            err = ends[i].err;
    if (!err)
        err = tl_races_report(races, text, &cut_off);
    rig_drop(&r);
    tl_races_release(races); /* which outlives the runner here */
    return err;
}

static void expect_said(scene_fn *what, const char *first, const char *second)
{
    kb_text text = KB_TEXT_INIT;
    expect_ok(report(what, &text));
    assert_false(cut_off);
    const char *said = kb_text_peek(&text);
    if (!first)
        assert_string_equal(said, "");
    else if (!strstr(said, first) || !strstr(said, second))
        fail_msg("no '%s' and '%s' in '%s'", first, second, said);
    kb_text_fini(&text);
}

static void messages_order_what_is_around_them(void **state)
{
    (void)state;
    expect_said(store_send_load, NULL, NULL);
    expect_said(send_store_load, "pe0 writes them", "pe1 reads them");
    expect_said(load_before_the_value_is_there, "pe1 reads them", "pe0 writes them");
    expect_said(load_after_waiting, NULL, NULL);
    expect_said(store_of_what_will_arrive, NULL, NULL);
    expect_said(load_of_what_is_stored, NULL, NULL);
    expect_said(receive_to_what_was_read, NULL, NULL);
    expect_said(promise_kept, NULL, NULL);
    expect_said(credit, "pe1 reads them", "pe0 writes them");
    expect_said(reads_alone, NULL, NULL);
}

static void what_is_received_later_is_written_later(void **state)
{
    (void)state;
    kb_text text = KB_TEXT_INIT;
    expect_ok(report(promise, &text));
    assert_non_null(
        strstr(kb_text_peek(&text),
               "16 bytes at sip0.cube0.pe1.hbm+0x4000000, in tensor 'x' (f16, 0x900000000 to "
               "0x900010000) from offset 0x0 on, elements 0 to 7: "));
    assert_non_null(strstr(kb_text_peek(&text), "(tl_recv_async at test_race_messages.c:"));
    kb_text_fini(&text);
}

/* ---- Limits ------------------------------------------------------------------------------- */

SCENE(race_and_go_on)
{
    tl_store(x, ones(tl));
    for (int i = 0; i < 4; i++) {
        tl_send(pe == 0 ? "E" : "W", ones(tl));
        ignore(tl_recv(pe == 0 ? "E" : "W", tl_shape(8), TL_F16));
        load(tl, x + 64 * (i + 1));
    }
}

/* What came before the end is checked, and it is said that the rest was not. */
static void what_is_too_long_is_cut_off(void **state)
{
    (void)state;
    static const struct {
        size_t accesses, nodes;
    } limits[] = {{2, 0}, {0, 4}, {9, 0}, {0, 16}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        kb_text text = KB_TEXT_INIT;
        max_accesses = limits[i].accesses;
        max_nodes = limits[i].nodes;
        expect_ok(report(race_and_go_on, &text));
        assert_true(cut_off);
        assert_non_null(strstr(kb_text_peek(&text), "data race in launch 'test': 16 bytes at "));
        kb_text_fini(&text);
    }
    max_accesses = 10; /* all there are */
    max_nodes = 17;
    kb_text text = KB_TEXT_INIT;
    expect_ok(report(race_and_go_on, &text));
    assert_false(cut_off);
    kb_text_fini(&text);
    max_accesses = max_nodes = 0;
}

/* ---- Dtypes ------------------------------------------------------------------------------- */

SCENE(receive_as_f32)
{
    if (pe == 0)
        tl_send("E", tl_full(tl_shape(4), TL_F32, 1));
    else
        ignore(tl_recv("W", tl_shape(4), TL_F32, .dst = x));
}

SCENE(send_as_i8)
{
    if (pe == 0)
        tl_send("E", tl_ref(x, tl_shape(4), TL_I8));
    else
        ignore(tl_recv("W", tl_shape(4), TL_I8));
}

SCENE(reinterpret)
{
    if (pe == 0)
        tl_send("E", tl_ref(x + 4, tl_shape(4), TL_F32, .reinterpret = true));
    else
        ignore(tl_recv("W", tl_shape(4), TL_F32, .dst = x + 32, .reinterpret = true));
}

static void expect_dtype_fault(scene_fn *what, const char *text)
{
    rig r = rig_make(one_cube("{ pe_layout: { pe_per_router: 2 }, noc: { w: 1, h: 1 } }"), false);
    ending ends[2] = {{0}, {0}};
    expect_ok(map_shared(&r, true));
    expect_ok(ring_try(&r, 2, &small_slots));
    scene = what;
    kb_error_free(start_both(&r, NULL, ends)); /* the other one waits for ever */
    kb_error *err = ends[0].err ? ends[0].err : ends[1].err;
    if (!strstr(kb_error_message(err), text))
        fail_msg("no '%s' in '%s'", text, kb_error_message(err));
    assert_int_equal(kb_error_code(err), KB_ERR_FAULT);
    kb_error_free(err);
    rig_fini(&r);
}

static void messages_have_the_dtype_of_memory(void **state)
{
    (void)state;
    expect_dtype_fault(receive_as_f32, ": tl_recv: tensor 'x' (f16, 0x900000000 to 0x900010000) is "
                                       "accessed as f32 at 0x900000000; if that is intended, "
                                       ".reinterpret = true says so");
    expect_dtype_fault(send_as_i8, ": tl_send: tensor 'x' (f16, 0x900000000 to 0x900010000) is "
                                   "accessed as i8 at 0x900000000; if that is intended, "
                                   ".reinterpret = true says so");
    expect_said(reinterpret, NULL, NULL);
}

/* ---- Allocations -------------------------------------------------------------------------- */

/* All that the check keeps: joins of what was received, late accesses, races. */
SCENE(much)
{
    const char *to = pe == 0 ? "E" : "W";
    tl_tensor sum = ones(tl);
    for (int i = 0; i < 3; i++) {
        tl_send(to, ones(tl));
        tl_send(to, ones(tl));
        tl_tensor v = tl_recv_async(to, tl_shape(8), TL_F16);
        sum = tl_add(sum, v);
        tl_store(x + 16 * i, sum);
        tl_tensor place = tl_recv_async(to, tl_shape(8), TL_F16, .dst = x + 4096 * (i + 1));
        tl_load(x, tl_shape(1024), TL_F16, .mask = tl_gt(tl_max(v, 0), 0));
        tl_wait(i == 1 ? sum : place);
    }
}

static void report_much(void)
{
    kb_text text = KB_TEXT_INIT;
    kb_error *err = report(much, &text);
    if (err)
        assert_int_equal(kb_error_code(err), KB_ERR_HOST);
    else
        assert_true(text.length > 0);
    kb_error_free(err);
    kb_text_fini(&text);
}

static void any_allocation_may_fail(void **state)
{
    (void)state;
    failing_alloc_try_all(report_much);
}

static int load_machine(void **state)
{
    (void)state;
    machine = one_cube("{ pe_layout: { pe_per_router: 2 }, noc: { w: 1, h: 1 } }");
    return 0;
}

static int unload_machine(void **state)
{
    (void)state;
    topo_machine_destroy(machine);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_order_what_is_around_them),
        cmocka_unit_test(what_is_received_later_is_written_later),
        cmocka_unit_test(what_is_too_long_is_cut_off),
        cmocka_unit_test(messages_have_the_dtype_of_memory),
        cmocka_unit_test(any_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, load_machine, unload_machine);
}
