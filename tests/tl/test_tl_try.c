/*
 * test_tl_try.c: errors that are returned to the frames of a kernel. What a kernel does in tl_try()
 * is compared with the same kernel without it: both end with the same error at the same time.
 */
#include "queue_rig.h"

#include "foreign.h"
#include "support/failing_alloc.h"

/* A kernel that is a function of these tests; `user` is its foreign, or an array of them. */
static kb_kernel kernel_of(void (*body)(tl_context *, const tl_arg *), void *user)
{
    return (kb_kernel){.name = "foreign",
                       .parameters = "tl_ptr memory",
                       .parameter_count = 1,
                       .file = __FILE__,
                       .line = 1,
                       .run = body,
                       .user = user};
}

static const tl_arg memory_arg[] = {MEMORY};

static ending run_body(rig *r, void (*body)(tl_context *, const tl_arg *), void *user)
{
    kb_kernel kernel = kernel_of(body, user);
    return run_args(r, &kernel, memory_arg);
}

static void expect_same_ending(const ending *a, const ending *b)
{
    assert_int_equal(a->done, b->done);
    assert_string_equal(kb_error_message(a->err), kb_error_message(b->err));
    assert_string_equal(kb_error_detail(a->err), kb_error_detail(b->err));
    assert_int_equal(kb_error_code(a->err), kb_error_code(b->err));
    assert_int_equal(a->outcome.start, b->outcome.start);
    assert_int_equal(a->outcome.end, b->outcome.end);
    assert_memory_equal(a->outcome.busy, b->outcome.busy, sizeof a->outcome.busy);
    assert_memory_equal(a->outcome.causes, b->outcome.causes, sizeof a->outcome.causes);
}

/* ---- Mistakes ---------------------------------------------------------------------------- */

static void load_beyond(tl_context *tl, void *arg)
{
    (void)arg;
    tl_load(MEMORY + (tl_ptr)MEMORY_BYTES, tl_shape(4), TL_F16);
}

static void add_shapes_that_differ(tl_context *tl, void *arg)
{
    (void)arg;
    ignore(tl_add(tl_arange(0, 4), tl_arange(0, 5)));
}

static void use_what_was_freed(tl_context *tl, void *arg)
{
    (void)arg;
    TL_SCOPE {
        tl_tensor x = tl_arange(0, 4);
        tl_free(x);
        TL_SCOPE {
            tl_wait(x);
        }
    }
}

/* Waits for what was freed, which does not suffice. */
static void fill_the_tcm(tl_context *tl, void *arg)
{
    (void)arg;
    for (;;) {
        tl_tensor passing = tl_load(MEMORY, tl_shape(64, 1024), TL_F32);
        tl_store(MEMORY, passing);
        tl_free(passing);
        tl_zeros(tl_shape(64, 1024), TL_F32);
    }
}

static void receive_without_queues(tl_context *tl, void *arg)
{
    (void)arg;
    ignore(tl_recv("W", tl_shape(4), TL_F32));
}

static foreign_op *const mistakes[] = {load_beyond, add_shapes_that_differ, use_what_was_freed,
                                       fill_the_tcm, receive_without_queues};

enum { MISTAKES = sizeof mistakes / sizeof mistakes[0] };

static foreign_op *mistake;

static void store_some(tl_context *tl, void *arg)
{
    (void)arg;
    tl_store(MEMORY, tl_full(tl_shape(8, 1024), TL_F16, 3));
}

/* With commands under way, which are done before the kernel is. */
static void make_a_mistake(tl_context *tl, const tl_arg *args)
{
    (void)args;
    foreign *f = tl_user();
    uint32_t depth = foreign_enter(f);
    if (foreign_call(f, tl, store_some, NULL))
        (void)foreign_call(f, tl, mistake, NULL);
    foreign_leave(f, depth);
}

static void errors_are_the_same_as_without(void **state)
{
    (void)state;
    for (int i = 0; i < MISTAKES; i++)
        for (int instant = 0; instant < 2; instant++) {
            foreign with = {0}, without = {.bare = true};
            ending ends[2];
            mistake = mistakes[i];
            for (int bare = 0; bare < 2; bare++) {
                rig r;
                expect_ok(rig_try_with(&r, one_cube(NULL), (rig_options){.instant = instant}));
                ends[bare] = run_body(&r, make_a_mistake, bare ? &without : &with);
                assert_true(get_one(&r, 0, TL_F16) == 3);
                expect_tcm_free(&r);
                rig_fini(&r);
            }
            expect_same_ending(&ends[0], &ends[1]);
            assert_int_equal(kb_error_code(ends[0].err), KB_ERR_FAULT);
            assert_string_equal(with.message, kb_error_message(ends[0].err));
            assert_int_equal(with.errors, 1);
            expect_balanced(&with);
            assert_int_equal(without.depth, 2); /* its frames were skipped */
            kb_error_free(ends[0].err);
            kb_error_free(ends[1].err);
        }
}

/* ---- Without errors ---------------------------------------------------------------------- */

static void add_one(tl_context *tl, void *arg)
{
    tl_ptr at = *(tl_ptr *)arg;
    tl_store(at, tl_add(tl_load(at, tl_shape(256), TL_F32), 1));
}

static void add_some(tl_context *tl, const tl_arg *args)
{
    foreign *f = tl_user();
    for (tl_ptr i = 0; i < 8; i++) {
        tl_ptr at = (tl_ptr)args[0] + i % 3 * 1024;
        if (!foreign_call(f, tl, add_one, &at))
            return;
    }
}

static void a_kernel_without_errors_is_the_same(void **state)
{
    (void)state;
    kb_time times[2];
    for (int bare = 0; bare < 2; bare++) {
        rig r = rig_default();
        foreign f = {.bare = bare};
        times[bare] = time_of_ending(run_body(&r, add_some, &f));
        expect_numbers(&r, 1020, TL_F32, 3, 3);
        expect_numbers(&r, 2044, TL_F32, 3, 2);
        expect_balanced(&f);
        assert_int_equal(f.errors, 0);
        rig_fini(&r);
    }
    assert_int_equal(times[0], times[1]);
}

/* ---- What comes after an error ----------------------------------------------------------- */

static void count(tl_context *tl, void *arg)
{
    (void)tl;
    ++*(int *)arg;
}

static int counted;
static kb_time time_of_error, time_of_return;

static void ignore_the_error(tl_context *tl, const tl_arg *args)
{
    (void)args;
    foreign *f = tl_user();
    (void)foreign_call(f, tl, load_beyond, NULL);
    time_of_error = tl_now();
    for (int i = 0; i < 3; i++) {
        (void)foreign_call(f, tl, count, &counted);
        (void)foreign_call(f, tl, add_shapes_that_differ, NULL);
    }
    time_of_return = tl_now();
}

static void an_error_cannot_be_ignored(void **state)
{
    (void)state;
    rig r = rig_default();
    foreign f = {0};
    counted = 0;
    ending e = run_body(&r, ignore_the_error, &f);
    expect_balanced(&f); /* each error was the same */
    assert_int_equal(f.errors, 7);
    assert_int_equal(counted, 0); /* further calls are not made */
    assert_int_equal(time_of_error, time_of_return);
    assert_non_null(strstr(f.message, "tl_load: "));
    expect_error(e.err, KB_ERR_FAULT, f.message);
    assert_int_equal(run_body(&r, add_some, &(foreign){0}).done, 1); /* the PE is free again */
    rig_fini(&r);
}

static void go_on_outside(tl_context *tl, const tl_arg *args)
{
    foreign *f = tl_user();
    (void)foreign_call(f, tl, load_beyond, NULL);
    (void)foreign_enter(f);
    tl_store((tl_ptr)args[0], tl_full(tl_shape(1), TL_F32, 1));
    f->errors = 100; /* which is not reached */
}

static void an_operation_outside_ends_the_kernel(void **state)
{
    (void)state;
    rig r = rig_default();
    foreign f = {0};
    ending e = run_body(&r, go_on_outside, &f);
    assert_int_equal(f.errors, 1);
    assert_int_equal(f.depth, 1);
    expect_error(e.err, KB_ERR_FAULT, f.message);
    assert_true(get_one(&r, 0, TL_F32) == 0);
    rig_fini(&r);
}

/* A frame in C around the call: its scope ends as usual, also that of a call that was skipped. */
static void keep_scopes(tl_context *tl, const tl_arg *args)
{
    (void)args;
    foreign *f = tl_user();
    TL_SCOPE {
        tl_arange(0, 8);
        TL_SCOPE {
            (void)foreign_call(f, tl, use_what_was_freed, NULL);
        }
    }
}

static void scopes_end_after_an_error(void **state)
{
    (void)state;
    rig r = rig_default();
    foreign f = {0};
    expect_error(run_body(&r, keep_scopes, &f).err, KB_ERR_FAULT, f.message);
    expect_balanced(&f);
    expect_tcm_free(&r);
    rig_fini(&r);
}

/* ---- Nesting ----------------------------------------------------------------------------- */

typedef struct level {
    foreign *f;
    int deeper;        /* levels below */
    bool operates;     /* after the level below it has returned: which ends the call */
    int *came_further; /* calls that went on after an operation that had to end them */
} level;

static void descend(tl_context *tl, void *arg);

static bool nest(foreign *f, tl_context *tl, level *at)
{
    uint32_t depth = foreign_enter(f);
    bool is_complete = foreign_call(f, tl, descend, at);
    foreign_leave(f, depth);
    return is_complete;
}

static void descend(tl_context *tl, void *arg)
{
    level *at = arg;
    if (at->deeper == 0)
        load_beyond(tl, NULL);
    level below = *at;
    below.deeper--;
    (void)nest(at->f, tl, &below);
    if (!at->operates)
        return;
    (void)tl_program_id(0);
    ++*at->came_further;
}

static bool nested_operates;
static int came_further;

static void go_deep(tl_context *tl, const tl_arg *args)
{
    (void)args;
    foreign *f = tl_user();
    level top = {.f = f, .deeper = 6, .operates = nested_operates, .came_further = &came_further};
    (void)nest(f, tl, &top);
}

static void calls_nest(void **state)
{
    (void)state;
    for (int operates = 0; operates < 2; operates++) {
        rig r = rig_default();
        foreign f = {0};
        nested_operates = operates;
        came_further = 0;
        ending e = run_body(&r, go_deep, &f);
        expect_balanced(&f);
        assert_int_equal(f.entered, 14);
        assert_int_equal(f.errors, 7); /* each level sees it */
        assert_int_equal(came_further, 0);
        expect_error(e.err, KB_ERR_FAULT, f.message);
        rig_fini(&r);
    }
}

/* ---- Cleanups ---------------------------------------------------------------------------- */

static kb_sim *cleanup_sim;
static char order[64];

static void note_order(void *what)
{
    strncat(order, what, sizeof order - 1 - strlen(order));
}

static void fail_with_cleanups(tl_context *tl, void *arg)
{
    (void)arg;
    kb_co *co = kb_sim_current(cleanup_sim);
    kb_cleanup cleanups[2];
    kb_co_push_cleanup(co, &cleanups[0], note_order, (char[]){"1 "});
    kb_co_push_cleanup(co, &cleanups[1], note_order, (char[]){"2 "});
    load_beyond(tl, NULL);
}

static void have_a_cleanup(tl_context *tl, const tl_arg *args)
{
    (void)args;
    kb_co *co = kb_sim_current(cleanup_sim);
    kb_cleanup cleanup;
    kb_co_push_cleanup(co, &cleanup, note_order, (char[]){"outer"});
    (void)foreign_call(tl_user(), tl, fail_with_cleanups, NULL);
    note_order((char[]){"returned "});
    (void)tl_program_id(0);
}

static void cleanups_of_the_call_run(void **state)
{
    (void)state;
    rig r = rig_default();
    foreign f = {0};
    cleanup_sim = r.sim;
    order[0] = '\0';
    expect_error(run_body(&r, have_a_cleanup, &f).err, KB_ERR_FAULT, f.message);
    assert_string_equal(order, "2 1 returned outer");
    expect_balanced(&f);
    rig_fini(&r);
}

/* A cleanup of the kernel is made of foreign frames too. */
typedef struct late_frames {
    foreign *f;
    tl_context *tl;
} late_frames;

static void enter_late(void *arg)
{
    const late_frames *late = arg;
    (void)foreign_call(late->f, late->tl, count, &counted);
    (void)foreign_call(late->f, late->tl, load_beyond, NULL);
}

static void wait_with_a_cleanup(tl_context *tl, const tl_arg *args)
{
    (void)args;
    late_frames late = {tl_user(), tl};
    kb_cleanup cleanup;
    kb_co_push_cleanup(kb_sim_current(cleanup_sim), &cleanup, enter_late, &late);
    ignore(tl_recv("W", tl_shape(4), TL_F32)); /* not in tl_try(): ends the kernel */
}

static void a_cleanup_that_tries_gets_the_error(void **state)
{
    (void)state;
    rig r = ring_of(2, &small_slots);
    foreign f = {0};
    kb_kernel kernel = kernel_of(wait_with_a_cleanup, &f);
    ending e;
    cleanup_sim = r.sim;
    counted = 0;
    expect_ok(start_on(&r, pe0, &kernel, memory_arg, &e));
    expect_ok(kb_sim_run(r.sim, 10000 * KB_NS));
    assert_int_equal(f.entered, 0);
    kb_sim_abandon(r.sim);
    expect_balanced(&f);
    assert_int_equal(f.errors, 2);
    assert_int_equal(counted, 0);
    rig_fini(&r);
}

/* ---- Being stopped ----------------------------------------------------------------------- */

static void receive(tl_context *tl, void *arg)
{
    (void)arg;
    ignore(tl_recv("W", tl_shape(4), TL_F32));
}

static void wait_for_a_message(tl_context *tl, const tl_arg *args)
{
    (void)args;
    foreign *f = tl_user();
    uint32_t depth = foreign_enter(f);
    while (foreign_call(f, tl, receive, NULL))
        ;
    (void)foreign_call(f, tl, count, &counted); /* a destructor */
    (void)foreign_call(f, tl, receive, NULL);
    foreign_leave(f, depth);
}

static void a_deadlock_leaves_frames_until_the_end(void **state)
{
    (void)state;
    rig r = ring_of(2, &small_slots);
    foreign f = {0};
    kb_kernel kernel = kernel_of(wait_for_a_message, &f);
    ending e;
    counted = 0;
    expect_ok(start_on(&r, pe0, &kernel, memory_arg, &e));
    kb_error *err = kb_sim_run(r.sim, KB_FOREVER);
    assert_int_equal(kb_error_code(err), KB_ERR_DEADLOCK);
    kb_error_free(err);
    assert_int_equal(f.depth, 2);
    kb_time before = kb_sim_now(r.sim);
    kb_sim_abandon(r.sim);
    assert_int_equal(kb_sim_now(r.sim), before);
    expect_balanced(&f);
    assert_int_equal(f.errors, 3);
    assert_int_equal(counted, 0);
    assert_int_equal(f.code, KB_ERR_FAULT);
    assert_string_equal(f.message, "kernel 'foreign' on sip0.cube0.pe0: stopped, because the "
                                   "simulation is being torn down");
    assert_int_equal(e.done, 0); /* as without tl_try() */
    rig_fini(&r);
}

/* The simulator is abandoned at all times of a run. */
static void a_run_may_be_abandoned_at_any_time(void **state)
{
    (void)state;
    kb_time step = 7 * KB_NS, at = 0;
    for (bool is_over = false; !is_over; at += step) {
        rig r = rig_default();
        foreign f = {0};
        kb_kernel kernel = kernel_of(add_some, &f);
        ending e;
        expect_ok(start_on(&r, pe0, &kernel, memory_arg, &e));
        expect_ok(kb_sim_run(r.sim, at));
        is_over = e.done;
        kb_sim_abandon(r.sim);
        assert_int_equal(e.done, is_over);
        expect_balanced(&f);
        assert_true(is_over || f.errors <= 1);
        rig_fini(&r);
    }
    assert_true(at > 10 * step);
}

/* A launch on several PEs, which fails with the first of its kernels. */
typedef struct launch {
    rig *r;
    ending ends[MAX_PES];
    uint32_t aborts;
} launch;

static void launch_done(void *self, uint64_t arg, const tl_outcome *outcome, kb_error *err)
{
    launch *l = self;
    ending *e = &l->ends[arg];
    e->done++;
    e->outcome = *outcome;
    e->err = err;
    if (err && l->aborts++ == 0)
        tl_runner_abort(l->r->runner, 1, err);
}

static kb_error *start_launch(launch *l, uint32_t pes, const kb_kernel *kernel)
{
    for (uint32_t i = 0; i < pes; i++)
        KB_TRY(tl_runner_start(l->r->runner, &(tl_run){.kernel = kernel,
                                                       .args = memory_arg,
                                                       .label = "test",
                                                       .launch = 1,
                                                       .pe = pe_at(i),
                                                       .programs = {pes, 1},
                                                       .queues = l->r->set,
                                                       .done = launch_done,
                                                       .self = l,
                                                       .arg = i}));
    return NULL;
}

static void free_errors(launch *l)
{
    for (int i = 0; i < MAX_PES; i++)
        kb_error_free(l->ends[i].err);
}

/* ---- Random programs --------------------------------------------------------------------- */

/*
 * Every PE runs a random tree of frames with operations between them; now and then an operation is
 * a mistake, and mostly some PEs wait for messages that never come. The same seed makes the same
 * program with and without tl_try().
 */
typedef struct player {
    foreign f; /* the first member */
    uint64_t random;
    uint32_t mistakes_in; /* one operation of this number is a mistake */
    int budget;           /* of operations */
} player;

static uint32_t pick(player *p, uint32_t below)
{
    p->random = p->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(p->random >> 33) % below;
}

static void find_own(tl_context *tl, void *arg)
{
    *(int64_t *)arg = tl_program_id(0);
}

static void act(tl_context *tl, player *p)
{
    static const char *const directions[] = {"E", "W"};
    if (pick(p, p->mistakes_in) == 0)
        mistakes[pick(p, 4)](tl, NULL);
    switch (pick(p, 7)) {
    case 0:
        store_some(tl, NULL);
        break;
    case 1:
        tl_wait(tl_load(MEMORY, tl_shape(2, 1024), TL_F16));
        break;
    case 2:
        TL_SCOPE {
            tl_tensor x = tl_load(MEMORY, tl_shape(64, 64), TL_F16);
            tl_store(MEMORY + 4096, tl_dot(x, x));
        }
        break;
    case 3:
        tl_send_sync(directions[pick(p, 2)], tl_full(tl_shape(16), TL_F32, 2));
        break;
    case 4:
        ignore(tl_recv(directions[pick(p, 2)], tl_shape(16), TL_F32));
        break;
    case 5:
        tl_recv_async(directions[pick(p, 2)], tl_shape(16), TL_F32);
        break;
    default:
        tl_send(directions[pick(p, 2)], tl_full(tl_shape(16), TL_F32, 1));
    }
}

static bool play(player *p, tl_context *tl, int depth);

static void act_and_play(tl_context *tl, void *arg)
{
    player *p = arg;
    int depth = (int)p->f.depth;
    act(tl, p);
    if (depth < 24 && pick(p, 3) > 0) {
        (void)play(p, tl, depth);
        if (pick(p, 2) == 0)
            act(tl, p);
    }
}

static bool play(player *p, tl_context *tl, int depth)
{
    uint32_t frame = foreign_enter(&p->f);
    bool goes_on = true;
    for (uint32_t i = 1 + pick(p, 3); i > 0 && goes_on && p->budget-- > 0; i--)
        goes_on = foreign_call(&p->f, tl, act_and_play, p);
    if (depth == 0 && pick(p, 2) == 0)
        (void)foreign_call(&p->f, tl, store_some, NULL); /* a destructor, or an error ignored */
    foreign_leave(&p->f, frame);
    return goes_on;
}

static void run_player(tl_context *tl, const tl_arg *args)
{
    (void)args;
    player *players = tl_user();
    int64_t own = 0;
    kb_error *err = tl_try(tl, find_own, &own);
    if (err) {
        kb_error_free(err);
        return;
    }
    player *p = &players[own];
    while (p->budget > 0 && play(p, tl, 0))
        ;
}

static void deal(player *players, uint64_t seed, bool bare)
{
    for (uint32_t i = 0; i < MAX_PES; i++)
        players[i] = (player){.f = {.bare = bare},
                              .random = seed * 1000 + i,
                              .mistakes_in = seed % 3 == 0 ? 8 : 60,
                              .budget = 12};
}

/* Until it ends or, for some seeds, up to a time. Returns what the run returned. */
static kb_error *play_launch(rig *r, launch *l, player *players, uint32_t pes, kb_time until)
{
    static kb_kernel kernel; /* stays until the rig is gone: so long its frames may be there */
    kernel = kernel_of(run_player, players);
    *l = (launch){.r = r};
    KB_TRY(start_launch(l, pes, &kernel));
    return kb_sim_run(r->sim, until);
}

/* What a program came to, to be sure that the seeds have all kinds. */
typedef struct tally {
    int faults, deadlocks, abandoned, stopped_waiting, complete;
} tally;

static void compare_play(uint64_t seed, rig_options options, tally *t)
{
    static player players[2][MAX_PES];
    launch launches[2];
    kb_error *errs[2];
    uint32_t pes = 2 + (uint32_t)(seed % (MAX_PES - 1));
    kb_time until = seed % 5 == 4 ? (kb_time)(seed * 37 % 4000) * KB_NS : KB_FOREVER;
    for (int bare = 0; bare < 2; bare++) {
        static const ipcq_settings no_rings = {.buffer = KB_TCM};
        rig r = ring_with(pes, options.instant ? &no_rings : &small_slots, options);
        deal(players[bare], seed, bare);
        errs[bare] = play_launch(&r, &launches[bare], players[bare], pes, until);
        rig_fini(&r);
    }
    assert_string_equal(kb_error_message(errs[0]), kb_error_message(errs[1]));
    assert_string_equal(kb_error_detail(errs[0]), kb_error_detail(errs[1]));
    t->deadlocks += kb_error_code(errs[0]) == KB_ERR_DEADLOCK;
    for (uint32_t i = 0; i < pes; i++) {
        const ending *e = &launches[0].ends[i];
        const foreign *f = &players[0][i].f;
        expect_same_ending(e, &launches[1].ends[i]);
        expect_balanced(f);
        if (e->err && f->errors > 0)
            assert_string_equal(f->message, kb_error_message(e->err));
        t->faults += e->err != NULL;
        t->abandoned += !e->done && f->errors > 0;
        t->stopped_waiting += f->errors > 0 && players[1][i].f.depth > 2;
        t->complete += e->done && !e->err;
    }
    for (int i = 0; i < 2; i++) {
        free_errors(&launches[i]);
        kb_error_free(errs[i]);
    }
}

static void random_programs_end_alike(void **state)
{
    (void)state;
    tally t = {0};
    for (uint64_t seed = 1; seed <= 90; seed++) {
        compare_play(seed, (rig_options){.no_elision = seed % 4 == 1}, &t);
        compare_play(seed, (rig_options){.instant = true}, &t);
        compare_play(seed, (rig_options){.timing_only = true}, &t);
    }
    assert_true(t.faults > 50 && t.deadlocks > 20 && t.abandoned > 50);
    assert_true(t.stopped_waiting > 50 && t.complete > 50);
}

/* ---- No memory --------------------------------------------------------------------------- */

static topo_machine *machine;
static uint64_t seed_without_memory;
static int without_memory; /* frames that saw that error */

static void play_without_memory(void)
{
    enum { PES = 3 };
    static player players[MAX_PES];
    launch l = {0};
    rig r;
    deal(players, seed_without_memory, false);
    kb_error *err = rig_try(&r, machine, false);
    if (!err)
        err = ring_try(&r, PES, &small_slots);
    if (!err)
        err = play_launch(&r, &l, players, PES, KB_FOREVER);
    rig_drop(&r);
    if (err && kb_error_code(err) != KB_ERR_DEADLOCK)
        assert_int_equal(kb_error_code(err), KB_ERR_HOST);
    for (int i = 0; i < PES; i++) {
        const foreign *f = &players[i].f;
        assert_int_equal(f->depth, 0);
        assert_int_equal(f->entered, f->left);
        assert_int_equal(f->skipped, 0);
        without_memory += f->code == KB_ERR_HOST;
    }
    kb_error_free(err);
    free_errors(&l);
}

static void frames_return_if_there_is_no_memory(void **state)
{
    (void)state;
    machine = one_cube(NULL);
    without_memory = 0;
    for (seed_without_memory = 3; seed_without_memory < 5; seed_without_memory++)
        failing_alloc_try_all(play_without_memory);
    assert_true(without_memory > 0);
    topo_machine_destroy(machine);
}

/* An error of the host, not of the kernel: it fails the run, and the frames see that error. */
static void use_up_the_memory(tl_context *tl, void *arg)
{
    (void)arg;
    failing_alloc_arm(1, FAIL_ONCE);
    for (;;)
        tl_ref(MEMORY, tl_shape(1), TL_F16); /* until the table of handles has to grow */
}

static void lack_memory(tl_context *tl, const tl_arg *args)
{
    (void)args;
    (void)foreign_call(tl_user(), tl, use_up_the_memory, NULL);
    (void)foreign_call(tl_user(), tl, count, &counted);
}

static void frames_see_an_error_of_the_host(void **state)
{
    (void)state;
    rig r = rig_default();
    foreign f = {0};
    kb_kernel kernel = kernel_of(lack_memory, &f);
    ending e;
    counted = 0;
    expect_ok(start_on(&r, pe0, &kernel, memory_arg, &e));
    kb_error *err = kb_sim_run(r.sim, KB_FOREVER);
    assert_true(failing_alloc_disarm());
    expect_balanced(&f);
    assert_int_equal(f.errors, 2);
    assert_int_equal(f.code, KB_ERR_HOST);
    assert_int_equal(counted, 0);
    assert_int_equal(e.done, 0); /* as without tl_try() */
    expect_error(err, KB_ERR_HOST, f.message);
    rig_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_are_the_same_as_without),
        cmocka_unit_test(a_kernel_without_errors_is_the_same),
        cmocka_unit_test(an_error_cannot_be_ignored),
        cmocka_unit_test(an_operation_outside_ends_the_kernel),
        cmocka_unit_test(scopes_end_after_an_error),
        cmocka_unit_test(calls_nest),
        cmocka_unit_test(cleanups_of_the_call_run),
        cmocka_unit_test(a_cleanup_that_tries_gets_the_error),
        cmocka_unit_test(a_deadlock_leaves_frames_until_the_end),
        cmocka_unit_test(a_run_may_be_abandoned_at_any_time),
        cmocka_unit_test(random_programs_end_alike),
        cmocka_unit_test(frames_return_if_there_is_no_memory),
        cmocka_unit_test(frames_see_an_error_of_the_host),
    };
    return cmocka_run_group_tests_name("try", tests, NULL, NULL);
}
