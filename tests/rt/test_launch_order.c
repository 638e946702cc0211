/*
 * test_launch_order.c: a PE starts kernels in the order in which they were launched, also when
 * their commands overtake each other: a short one goes past a long one that is held up.
 *
 * Checks H7.
 */
#include "tensors.h"
#include "works.h"

/* Two cubes of four PEs; the host is at the first, and the link between them is slow. */
#define SLOW_LINK                                                                                  \
    "system: { sips: { count: 1 } }\n"                                                             \
    "sip: { cube_mesh: { w: 1, h: 2 }, ucie: { bw_gbs: 1 } }\n"                                    \
    "cube: { noc: { k: 2 }, pe_layout: { pe_per_router: 1 } }\n"

enum { FAR_CUBE = 1, FAR_PES = 4, LAUNCHES = 12 };

/* Appends a bit to a number. */
KB_KERNEL(append, tl_ptr number, int bit)
{
    tl_store(number, tl_add(tl_mul(tl_load(number, tl_shape(1), TL_F32), 2), bit));
}

/* The same, with so many arguments that its command is several packets. */
KB_KERNEL(append_at_length, tl_ptr number, int bit, int a, int b, int c, int d, int e, int f, int g,
          int h)
{
    (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h;
    tl_store(number, tl_add(tl_mul(tl_load(number, tl_shape(1), TL_F32), 2), bit));
}

typedef struct launch {
    bool is_long;
    uint64_t va;
    int bit;
    kb_request request;
    rt_work *work;
} launch;

/* A short one is for the first PE of the far cube alone. */
static kb_error *launch_far(void *self, rt_work *work, uint32_t number, bool *over)
{
    (void)number;
    const launch *l = self;
    tl_arg args[FAR_PES][10] = {0};
    rt_target targets[FAR_PES];
    for (uint32_t pe = 0; pe < FAR_PES; pe++) {
        args[pe][0] = (tl_arg)(l->va + 4 * pe);
        args[pe][1] = (tl_arg)l->bit;
        targets[pe] = (rt_target){FAR_CUBE, pe, args[pe]};
    }
    *over = true;
    rt_launch_spec spec = {.name = "append",
                           .kernel = l->is_long ? &append_at_length : &append,
                           .targets = targets,
                           .target_count = l->is_long ? FAR_PES : 1};
    return rt_work_launch(work, &spec);
}

static void done(void *self, const kb_error *err)
{
    (void)err;
    launch *l = self;
    l->work = NULL;
}

/* Long ones and short ones in turns, all at once; one of them may be stopped on its way. */
static void launch_all(int stopped)
{
    kb_context *ctx = open_machine(SLOW_LINK);
    kb_tensor numbers = numbers_for(ctx, 0, FAR_PES);
    launch launches[LAUNCHES];
    float expected[FAR_PES] = {0};
    for (int i = 0; i < LAUNCHES; i++) {
        launch *l = &launches[i];
        *l = (launch){.is_long = i % 2 == 0, .bit = i % 3 == 0};
        for (int pe = 0; pe < (l->is_long ? FAR_PES : 1) && i != stopped; pe++)
            expected[pe] = 2 * expected[pe] + (float)l->bit;
        expect_ok(kb_tensor_va(ctx, numbers, &l->va));
        rt_work_options options = {
            .what = "launch", .label = "", .step = launch_far, .done = done, .self = l};
        expect_ok(rt_work_open(ctx, &options, &l->work, &l->request));
        rt_work_start(l->work);
    }
    if (stopped < LAUNCHES) {
        kb_error *why = kb_error_new(KB_ERR_FAULT, "not this one");
        rt_work_abort(launches[stopped].work, why);
        kb_error_free(why);
    }
    for (int i = 0; i < LAUNCHES; i++) {
        kb_error *err = kb_request_wait(ctx, launches[i].request, NULL);
        assert_string_equal(kb_error_message(err), i == stopped ? "not this one" : "");
        kb_error_free(err);
        expect_ok(kb_request_free(ctx, launches[i].request));
    }
    expect_numbers(ctx, numbers, expected, FAR_PES);
    kb_context_destroy(ctx);
}

static void kernels_start_in_the_order_of_launches(void **state)
{
    (void)state;
    launch_all(LAUNCHES);
}

static void what_was_stopped_holds_up_nobody(void **state)
{
    (void)state;
    for (int stopped = 0; stopped < LAUNCHES; stopped++)
        launch_all(stopped);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_start_in_the_order_of_launches),
        cmocka_unit_test(what_was_stopped_holds_up_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
