/*
 * test_group.c: the process group with its queues, groups of some ranks, which ranks a caller
 * drives, and the timing of calls: late ranks, and work that continues meanwhile.
 */
#include "support/seed.h"
#include "trial.h"

#include <kernbench/ccl.h>
#include <kernbench/tl.h>

enum { WORLD = 4 };

static kb_context *open_four(const char *const *more)
{
    return open_sips(WORLD, 2, 1, more, (kb_context_options){.threads = 1});
}

/* All of it at one PE of the current device. */
static kb_tensor at_one_pe(kb_context *ctx, kb_shape shape, double value)
{
    kb_tensor_spec spec = {.dtype = KB_F32, .shape = shape, .access = KB_UNTIMED};
    kb_tensor tensor;
    expect_ok(kb_full(ctx, &spec, value, &tensor));
    return tensor;
}

static kb_tensor spread(kb_context *ctx, uint64_t elements, double value)
{
    static const kb_policy policy = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    kb_tensor_spec spec = {
        .dtype = KB_F32, .shape = KB_SHAPE(elements), .policy = &policy, .access = KB_UNTIMED};
    kb_tensor tensor;
    expect_ok(kb_full(ctx, &spec, value, &tensor));
    return tensor;
}

/* ---- Initialising ---- */

typedef struct moments {
    kb_time in[WORLD], out[WORLD];
} moments;

static kb_error *comes_and_goes(kb_context *ctx, uint32_t rank, void *arg)
{
    moments *m = arg;
    kb_co_sleep(kb_context_worker(ctx), rank * KB_NS);
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    m->in[rank] = kb_context_now(ctx);
    KB_TRY(kb_distributed_barrier(ctx, NULL));
    KB_TRY(kb_distributed_destroy_process_group(ctx));
    m->out[rank] = kb_context_now(ctx);
    return NULL;
}

/* The first rank has the queues installed, and all wait for that; the last one takes them out. */
static void installing_takes_time(void **state)
{
    (void)state;
    static const char *const ring[] = {"ccl.defaults.algorithm=ring_allreduce_tcm", NULL};
    kb_context *ctx = open_four(ring);
    kb_time took = 0;
    for (int i = 0; i < 2; i++) {
        moments m;
        kb_time start = kb_context_now(ctx);
        expect_ok(kb_spawn(ctx, comes_and_goes, &m, WORLD));
        assert_true(m.in[0] > start + KB_US);
        for (int rank = 1; rank < WORLD; rank++)
            assert_int_equal(m.in[rank], m.in[0]);
        int stayed = 0;
        for (int rank = 0; rank < WORLD; rank++)
            stayed += m.out[rank] > m.in[0] + KB_US;
        assert_int_equal(stayed, 1);
        assert_true(i == 0 || m.in[0] - start == took);
        took = m.in[0] - start;
    }
    kb_context_destroy(ctx);
}

typedef struct departures {
    uint32_t late[WORLD]; /* by rank: ns after the start that it joins */
    uint32_t ranks[WORLD], count;
} departures;

static kb_error *joins_and_leaves(kb_context *ctx, uint32_t rank, void *arg)
{
    departures *d = arg;
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    kb_co_sleep(kb_context_worker(ctx), d->late[rank] * KB_NS);
    KB_TRY(kb_distributed_barrier(ctx, NULL));
    d->ranks[d->count++] = rank;
    return NULL;
}

/* Whichever rank joins last, and whether all join at one instant: what ranks call behind a barrier
 * they call in the order of their numbers. */
static void ranks_leave_a_barrier_in_their_order(void **state)
{
    (void)state;
    static const char *const settings[] = {"ccl.defaults.algorithm=auto", NULL};
    kb_context *ctx = open_four(settings);
    for (uint32_t last = 0; last < 2 * WORLD; last++) {
        departures d = {.count = 0};
        d.late[last % WORLD] = 7;
        if (last >= WORLD)
            for (uint32_t rank = 0; rank < WORLD; rank++)
                d.late[rank] = (rank + last) % WORLD;
        kb_time before = kb_context_now(ctx);
        expect_ok(kb_spawn(ctx, joins_and_leaves, &d, WORLD));
        assert_int_equal(d.count, WORLD);
        for (uint32_t i = 0; i < WORLD; i++)
            assert_int_equal(d.ranks[i], i);
        /* and it takes no time */
        assert_int_equal(kb_context_now(ctx) - before, (last < WORLD ? 7 : WORLD - 1) * KB_NS);
    }
    kb_context_destroy(ctx);
}

static void with_auto_nothing_is_installed_before_it_is_needed(void **state)
{
    (void)state;
    kb_context *ctx = open_four(NULL);
    expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
    expect_ok(kb_distributed_destroy_process_group(ctx));
    assert_int_equal(kb_context_now(ctx), 0);
    kb_context_destroy(ctx);
}

static void a_plan_that_is_impossible_leaves_no_group(void **state)
{
    (void)state;
    static const char *const many[] = {"ccl.defaults.algorithm=mesh_allreduce_4",
                                       "ccl.algorithms.mesh_allreduce_4.world_size=10000", NULL};
    kb_context *ctx = open_four(many);
    expect_error(kb_distributed_init_process_group(ctx, "ahbm"), KB_ERR_INPUT,
                 "kb_distributed_init_process_group: 'mesh_allreduce_4' needs 10000 PEs as ranks, "
                 "but there are 32");
    assert_false(kb_distributed_is_initialized(ctx));
    kb_context_destroy(ctx);
    static const char *const odd[] = {"ccl.defaults.algorithm=mesh_allreduce_4",
                                      "ccl.algorithms.mesh_allreduce_4.world_size=7", NULL};
    ctx = open_four(odd);
    for (int i = 0; i < 2; i++)
        expect_error_about(kb_distributed_init_process_group(ctx, "ahbm"), KB_ERR_INPUT,
                           "kb_distributed_init_process_group: algorithm 'mesh_allreduce_4': ");
    assert_false(kb_distributed_is_initialized(ctx));
    kb_context_destroy(ctx);
}

static int plans_made;

static kb_error *connect_never(const kb_ccl_scope *scope, const kb_ccl_participants *participants,
                               kb_ccl_graph *graph)
{
    (void)scope, (void)participants, (void)graph;
    plans_made++;
    return kb_error_new(KB_ERR_INPUT, "nothing fits");
}

static const kb_ccl_topology never = {.name = "never", .connect = connect_never};
static const kb_ccl_plugin with_never = {.topologies = KB_CCL_LIST(&never)};

static kb_error *tries(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)rank, (void)arg;
    return kb_distributed_init_process_group(ctx, "ahbm");
}

/* A plan of very many ranks takes its time: it is not made again for each of them. */
static void a_plan_that_is_impossible_is_made_once(void **state)
{
    (void)state;
    static const char *const settings[] = {"ccl.defaults.algorithm=ring_rsag",
                                           "ccl.algorithms.ring_rsag.topology=never", NULL};
    const kb_ccl_plugin *plugins[] = {&with_never};
    kb_context *ctx = open_sips(
        WORLD, 2, 1, settings,
        (kb_context_options){.threads = 1, .ccl_plugins = plugins, .ccl_plugin_count = 1});
    plans_made = 0;
    expect_error(kb_spawn(ctx, tries, NULL, WORLD), KB_ERR_INPUT,
                 "4 of 4 workers failed: ranks 0-3: kb_distributed_init_process_group: algorithm "
                 "'ring_rsag': topology never: nothing fits");
    assert_int_equal(plans_made, 1);
    kb_context_destroy(ctx);
}

static void what_is_chosen_can_be_asked_for(void **state)
{
    (void)state;
    static const char *const tree[] = {"ccl.defaults.algorithm=tree_allreduce_7", NULL};
    kb_ccl_info info;
    kb_context *ctx = open_four(tree);
    expect_ok(kb_ccl_get_info(ctx, &info));
    assert_string_equal(info.algorithm, "tree_allreduce_7");
    assert_string_equal(info.validator, "");
    assert_int_equal(info.n_elem, 16);
    assert_int_equal(info.world, 7);
    assert_true(info.rank_is_pe && !info.reduce_shards && info.op == KB_SUM);
    kb_context_destroy(ctx);
    ctx = open_four(NULL);
    expect_ok(kb_ccl_get_info(ctx, &info));
    assert_string_equal(info.algorithm, "auto");
    assert_int_equal(info.world, WORLD);
    kb_context_destroy(ctx);
}

/* ---- Groups of some ranks ---- */

static kb_error *works_in_groups(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    kb_group pair, overlap;
    uint32_t own, size;
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    for (uint32_t first = 0; first < WORLD; first += 2) { /* {1, 0} and {3, 2} */
        kb_group group;
        KB_TRY(kb_distributed_new_group(ctx, (uint32_t[]){first + 1, first}, 2, &group));
        pair = rank / 2 == first / 2 ? group : pair;
    }
    KB_TRY(kb_distributed_new_group(ctx, (uint32_t[]){0, 2, 3}, 3, &overlap));
    KB_TRY(kb_distributed_get_group_rank(ctx, pair, &own));
    KB_TRY(kb_distributed_get_group_size(ctx, pair, &size));
    assert_int_equal(own, 1 - rank % 2);
    assert_int_equal(size, 2);

    kb_tensor x = spread(ctx, 500, rank + 1), blocks = spread(ctx, 1000, 0);
    kb_collective_options in_pair = {.group = pair}, in_overlap = {.group = overlap};
    KB_TRY(kb_distributed_all_gather(ctx, blocks, x, &in_pair));
    double front = first_of(ctx, blocks); /* of the group's rank 0 */
    assert_true(front == (double)(rank / 2 * 2 + 2));
    KB_TRY(kb_distributed_all_reduce(ctx, x, KB_SUM, &in_pair));
    assert_true(first_of(ctx, x) == (rank < 2 ? 3 : 7));
    KB_TRY(kb_distributed_get_group_rank(ctx, overlap, &own));
    assert_true(own == (rank == 0 ? 0 : rank == 1 ? UINT32_MAX : rank - 1));
    if (rank == 1)
        expect_error_about(kb_distributed_all_reduce(ctx, x, KB_SUM, &in_overlap), KB_ERR_INPUT,
                           "kb_distributed_all_reduce: rank 1 is not in group");
    else
        KB_TRY(kb_distributed_all_reduce(ctx, x, KB_SUM, &in_overlap));
    assert_true(first_of(ctx, x) == (rank == 1 ? 3 : 17));
    KB_TRY(kb_distributed_all_reduce(ctx, x, KB_SUM, NULL));
    assert_true(first_of(ctx, x) == 3 * 17 + 3);
    kb_collective_stats stats;
    KB_TRY(kb_distributed_get_stats(ctx, pair, &stats));
    assert_int_equal(stats.participants, 2);
    assert_int_equal(stats.size, 2000);
    assert_true(stats.bus_factor == 1 && stats.lower_bound > 0);
    return kb_distributed_destroy_process_group(ctx);
}

static void groups_of_some_ranks_work_side_by_side(void **state)
{
    (void)state;
    kb_context *ctx = open_four(NULL);
    for (int i = 0; i < 2; i++)
        expect_ok(kb_spawn(ctx, works_in_groups, NULL, WORLD));
    kb_context_destroy(ctx);
}

/* ---- From rank to rank ---- */

/* Three tensors, in various layouts, of this many elements: more than queues hold, or less. */
static kb_error *passes_on(kb_context *ctx, uint32_t rank, void *arg)
{
    uint64_t n = *(uint64_t *)arg;
    uint32_t next = (rank + 1) % WORLD, before = (rank + WORLD - 1) % WORLD;
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    kb_request sent[3], early;
    kb_tensor got[3];
    for (uint32_t i = 0; i < 3; i++)
        got[i] = i == 2 ? spread(ctx, n, 0) : at_one_pe(ctx, KB_SHAPE(n), 0);
    KB_TRY(kb_distributed_recv(ctx, got[0], before, &(kb_collective_options){.work = &early}));
    for (uint32_t i = 0; i < 3; i++) {
        double value = 10 * rank + i;
        kb_tensor mine = i == 1 ? spread(ctx, n, value) : at_one_pe(ctx, KB_SHAPE(n), value);
        KB_TRY(kb_distributed_send(ctx, mine, next, &(kb_collective_options){.work = &sent[i]}));
    }
    for (uint32_t i = 1; i < 3; i++)
        KB_TRY(kb_distributed_recv(ctx, got[i], before, NULL));
    KB_TRY(kb_request_wait(ctx, early, NULL));
    KB_TRY(kb_request_free(ctx, early));
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(first_of(ctx, got[i]) == 10 * before + i);
        KB_TRY(kb_request_wait(ctx, sent[i], NULL));
        KB_TRY(kb_request_free(ctx, sent[i]));
    }
    return NULL;
}

/* A collective after a send that is under way, and after the receive. */
static kb_error *sends_and_sums(kb_context *ctx, uint32_t rank, void *arg)
{
    uint64_t n = *(uint64_t *)arg;
    kb_request sent;
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    kb_tensor x = spread(ctx, n, rank + 1), sum = spread(ctx, 300, rank + 1);
    if (rank == 0)
        KB_TRY(kb_distributed_send(ctx, x, 3, &(kb_collective_options){.work = &sent}));
    if (rank == 3)
        KB_TRY(kb_distributed_recv(ctx, x, 0, NULL));
    KB_TRY(kb_distributed_all_reduce(ctx, sum, KB_SUM, NULL));
    assert_true(first_of(ctx, sum) == 10);
    assert_true(first_of(ctx, x) == (rank == 3 ? 1 : rank + 1));
    if (rank > 0)
        return NULL;
    KB_TRY(kb_request_wait(ctx, sent, NULL));
    return kb_request_free(ctx, sent);
}

static void sends_and_receives_are_matched_by_their_order(void **state)
{
    (void)state;
    kb_context *ctx = open_four(NULL);
    for (uint64_t n = 77; n < 100000; n *= 200) {
        expect_ok(kb_spawn(ctx, passes_on, &n, WORLD));
        expect_ok(kb_spawn(ctx, sends_and_sums, &n, WORLD));
    }
    expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
    kb_tensor x = at_one_pe(ctx, KB_SHAPE(1), 0);
    expect_error(kb_distributed_send(ctx, x, 1, NULL), KB_ERR_INPUT,
                 "kb_distributed_send: send: only workers can call it; use kb_tensor_copy() on "
                 "the host");
    kb_context_destroy(ctx);
}

/* ---- Coming back ---- */

typedef struct comeback {
    kb_time init[2], destroy; /* how long the last rank waited */
} comeback;

/* Ranks leave a microsecond apart, and come back at once. */
static kb_error *comes_back(kb_context *ctx, uint32_t rank, void *arg)
{
    comeback *c = arg;
    uint32_t all[] = {0, 1, 2, 3};
    kb_time times[4];
    kb_group group;
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    times[0] = kb_context_now(ctx);
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    c->init[0] = kb_context_now(ctx) - times[0];
    KB_TRY(kb_distributed_new_group(ctx, all, WORLD, &group));
    kb_co_sleep(kb_context_worker(ctx), rank * KB_US);
    times[1] = kb_context_now(ctx);
    KB_TRY(kb_distributed_destroy_process_group(ctx));
    assert_false(kb_distributed_is_initialized(ctx));
    times[2] = kb_context_now(ctx);
    if (rank < WORLD - 1)
        assert_int_equal(times[2], times[1]);
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    times[3] = kb_context_now(ctx);
    if (rank == WORLD - 1) {
        c->destroy = times[2] - times[1];
        c->init[1] = times[3] - times[2];
    } else { /* it has waited for those who left later */
        assert_true(times[3] - times[2] >= (WORLD - 1 - rank) * KB_US);
    }
    kb_tensor x = spread(ctx, 300, rank + 1);
    expect_error(
        kb_distributed_all_reduce(ctx, x, KB_SUM, &(kb_collective_options){.group = group}),
        KB_ERR_FAULT, "kb_distributed_all_reduce: invalid or destroyed group handle");
    KB_TRY(kb_distributed_all_reduce(ctx, x, KB_SUM, NULL));
    assert_true(first_of(ctx, x) == 10);
    return kb_distributed_destroy_process_group(ctx);
}

static void ranks_that_leave_can_come_back(void **state)
{
    (void)state;
    static const char *const ring[] = {"ccl.defaults.algorithm=ring_rsag", NULL};
    kb_context *ctx = open_four(ring);
    comeback c = {0};
    expect_ok(kb_spawn(ctx, comes_back, &c, WORLD));
    assert_true(c.destroy > 0);             /* queues were removed, */
    assert_int_equal(c.init[1], c.init[0]); /* and installed once more */
    kb_context_destroy(ctx);
    ctx = open_four(NULL); /* nothing is installed: all is done at once */
    expect_ok(kb_spawn(ctx, comes_back, &c, WORLD));
    kb_context_destroy(ctx);
}

typedef struct stay {
    bool joins; /* the rank that does not leave */
} stay;

static kb_error *one_does_not_leave(kb_context *ctx, uint32_t rank, void *arg)
{
    const stay *s = arg;
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    if (rank == 2 && !s->joins) {
        kb_co_sleep(kb_context_worker(ctx), KB_US);
        return NULL;
    }
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    if (rank == 2)
        return NULL;
    KB_TRY(kb_distributed_destroy_process_group(ctx));
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    assert_int_equal(kb_context_now(ctx), KB_US);
    return NULL;
}

/* One that has ended does not come any more; one that is in it and has ended will not leave. */
static void coming_back_waits_for_all(void **state)
{
    (void)state;
    kb_context *ctx = open_four(NULL);
    expect_ok(kb_spawn(ctx, one_does_not_leave, &(stay){.joins = false}, WORLD));
    kb_error *err = kb_spawn(ctx, one_does_not_leave, &(stay){.joins = true}, WORLD);
    assert_int_equal(kb_error_code(err), KB_ERR_DEADLOCK);
    static const char line[] = "rank 0 waits for all other ranks to leave the process group";
    assert_non_null(strstr(kb_error_detail(err), line));
    kb_error_free(err);
    uint64_t n = 77;
    expect_ok(kb_spawn(ctx, passes_on, &n, WORLD));
    kb_context_destroy(ctx);
}

/* ---- Who comes late ---- */

KB_KERNEL(doubles, tl_ptr x, int64_t n)
{
    tl_store(x, tl_mul(tl_load(x, tl_shape(n), TL_F32), 2));
}

typedef struct lateness {
    kb_time late;                     /* how much later rank 1 calls */
    kb_time called[2], done[2], read; /* by rank */
} lateness;

static kb_error *waits_for_the_late(kb_context *ctx, uint32_t rank, void *arg)
{
    lateness *l = arg;
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    kb_tensor x = spread(ctx, 64, rank + 1);
    KB_TRY(kb_distributed_all_reduce(ctx, x, KB_SUM, NULL)); /* has the queues installed */
    KB_TRY(kb_distributed_barrier(ctx, NULL));
    if (rank == 1) {
        kb_co_sleep(kb_context_worker(ctx), l->late);
        float numbers[64]; /* does not wait for rank 0, which waits for this one */
        KB_TRY(kb_tensor_to_host(ctx, x, KB_UNTIMED, numbers, sizeof numbers));
        assert_true(numbers[0] == 3);
        l->read = kb_context_now(ctx);
    }
    l->called[rank] = kb_context_now(ctx);
    KB_TRY(kb_distributed_all_reduce(ctx, x, KB_SUM, NULL));
    l->done[rank] = kb_context_now(ctx);
    assert_true(first_of(ctx, x) == 6);
    return NULL;
}

/* The early rank is done as much later as the late one comes, but for what it has done before. */
static void early_ranks_wait_for_late_ones(void **state)
{
    (void)state;
    lateness none = {0}, some = {.late = 100 * KB_US};
    kb_context *ctx = open_sips(2, 1, 1, NULL, (kb_context_options){.threads = 1});
    expect_ok(kb_spawn(ctx, waits_for_the_late, &none, 2));
    expect_ok(kb_spawn(ctx, waits_for_the_late, &some, 2));
    assert_int_equal(none.called[0], none.called[1]);
    assert_int_equal(some.called[1] - some.called[0], 100 * KB_US);
    assert_int_equal(some.read, some.called[1]);
    assert_true(some.done[0] > some.called[1]);
    kb_time together = none.done[0] - none.called[0];
    kb_time after = some.done[0] - some.called[1];
    assert_true(after <= together && after > together / 4);
    kb_context_destroy(ctx);
}

/* Rank 0 has a kernel run on another device while its collective waits for rank 1. */
static kb_error *computes_meanwhile(kb_context *ctx, uint32_t rank, void *arg)
{
    lateness *l = arg;
    kb_group pair;
    kb_request work;
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    KB_TRY(kb_distributed_new_group(ctx, (uint32_t[]){0, 1}, 2, &pair));
    if (rank > 1)
        return NULL;
    KB_TRY(kb_ahbm_set_device(ctx, 2 + rank));
    kb_tensor other = at_one_pe(ctx, KB_SHAPE(16), 5);
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    kb_tensor x = spread(ctx, 64, rank + 1);
    KB_TRY(kb_distributed_all_reduce(ctx, x, KB_SUM, &(kb_collective_options){.group = pair}));
    KB_TRY(kb_distributed_barrier(ctx, &(kb_collective_options){.group = pair}));
    if (rank == 1)
        kb_co_sleep(kb_context_worker(ctx), l->late);
    l->called[rank] = kb_context_now(ctx);
    KB_TRY(kb_distributed_all_reduce(ctx, x, KB_SUM,
                                     &(kb_collective_options){.group = pair, .work = &work}));
    assert_int_equal(kb_context_now(ctx), l->called[rank]); /* it does not wait */
    KB_TRY(kb_launch(ctx, "doubles", &doubles, other, 16));
    l->read = kb_context_now(ctx);
    if (rank == 0) {
        assert_false(is_done(ctx, work));
        assert_true(l->read < l->called[0] + l->late);
    }
    KB_TRY(kb_request_wait(ctx, work, NULL));
    assert_true(first_of(ctx, x) == 6 && first_of(ctx, other) == 10);
    return kb_request_free(ctx, work);
}

static void a_rank_can_go_on_while_its_collective_waits(void **state)
{
    (void)state;
    kb_context *ctx = open_four(NULL);
    lateness l = {.late = 100 * KB_US};
    expect_ok(kb_spawn(ctx, computes_meanwhile, &l, WORLD));
    kb_context_destroy(ctx);
}

/* ---- Who drives ---- */

/* One device, whichever it is. */
static void a_context_of_one_device_has_one_rank(void **state)
{
    (void)state;
    kb_context *ctx =
        open_sips(WORLD, 2, 1, NULL, (kb_context_options){.device = "sip:2", .threads = 1});
    expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
    kb_tensor x = spread(ctx, 100, 7), y = spread(ctx, 100, 0);
    expect_ok(kb_distributed_all_reduce(ctx, x, KB_AVG, NULL));
    assert_true(first_of(ctx, x) == 7);
    expect_ok(kb_distributed_all_gather(ctx, y, x, NULL));
    assert_true(first_of(ctx, y) == 7);
    kb_context_destroy(ctx);
}

typedef struct pe_ranks {
    const char *algorithm;
    uint32_t world, devices;
    kb_policy policy;
} pe_ranks;

#define ALL_PES                                                                                    \
    {                                                                                              \
        .cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE                                               \
    }
#define ONE_CUBE                                                                                   \
    {                                                                                              \
        .pe = KB_COLUMN_WISE, .num_cubes = 1                                                       \
    }

/* Rank r has n_elem times r + 1. */
static kb_error *drives_pes(kb_context *ctx, uint32_t rank, void *arg)
{
    enum { N = 24 };
    const pe_ranks *p = arg;
    uint32_t world, each = p->world / p->devices;
    if (rank > 0) {
        expect_error_about(kb_distributed_init_process_group(ctx, "ahbm"), KB_ERR_INPUT,
                           "the worker of rank 0 drives them all: there is nothing for rank 1");
        return NULL;
    }
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    KB_TRY(kb_distributed_get_world_size(ctx, &world));
    assert_int_equal(world, p->world);
    kb_tensor tensors[2];
    for (uint32_t device = 0; device < p->devices; device++) {
        float numbers[64 * N];
        for (uint32_t i = 0; i < each * N; i++)
            numbers[i] = (float)(device * each + i / N + 1);
        kb_tensor_spec spec = {.dtype = KB_F32,
                               .shape = KB_SHAPE(1, each * N),
                               .policy = &p->policy,
                               .access = KB_UNTIMED};
        KB_TRY(kb_ahbm_set_device(ctx, device));
        KB_TRY(kb_empty(ctx, &spec, &tensors[device]));
        KB_TRY(kb_tensor_set_slice(ctx, tensors[device], KB_UNTIMED, NULL, numbers,
                                   each * N * sizeof *numbers));
    }
    kb_collective call = {.kind = KB_ALL_REDUCE,
                          .inputs = tensors,
                          .count = p->devices,
                          .options = {.algorithm = p->algorithm}};
    KB_TRY(kb_distributed_call(ctx, &call));
    for (uint32_t device = 0; device < p->devices; device++) {
        float numbers[64 * N];
        KB_TRY(kb_tensor_to_host(ctx, tensors[device], KB_UNTIMED, numbers,
                                 each * N * sizeof *numbers));
        for (uint32_t i = 0; i < each * N; i++)
            assert_true(numbers[i] == (float)(p->world * (p->world + 1) / 2));
    }
    kb_collective_stats stats;
    KB_TRY(kb_distributed_get_stats(ctx, (kb_group){0}, &stats));
    assert_int_equal(stats.participants, p->world);
    assert_int_equal(stats.size, N * sizeof(float));
    return NULL;
}

static void one_caller_drives_ranks_that_are_pes(void **state)
{
    (void)state;
    static const struct {
        const char *settings[4];
        pe_ranks ranks;
    } ways[] = {
        {{"ccl.defaults.algorithm=mesh_allreduce_4"}, {"mesh_allreduce_4", 4, 1, ONE_CUBE}},
        {{"ccl.defaults.algorithm=ring_rsag_pes"}, {NULL, 16, 2, ALL_PES}},
        {{"ccl.defaults.algorithm=ring_allreduce_hbm",
          "ccl.algorithms.ring_allreduce_hbm.world_size=16"},
         {"ring_allreduce_hbm", 16, 2, ALL_PES}},
        {{"ccl.defaults.algorithm=tree_allreduce_7",
          "ccl.algorithms.tree_allreduce_7.world_size=8"},
         {"tree_allreduce_7", 8, 1, ALL_PES}},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        pe_ranks p = ways[i].ranks;
        kb_context *ctx = open_sips(2, 2, 1, ways[i].settings, (kb_context_options){.threads = 1});
        expect_ok(drives_pes(ctx, 0, &p)); /* outside workers */
        expect_ok(kb_distributed_destroy_process_group(ctx));
        expect_ok(kb_spawn(ctx, drives_pes, &p, 2));
        kb_context_destroy(ctx);
    }
}

/* Where shards are added up too: cubes times the sum of ranks. */
static kb_error *adds_up_shards(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    static const kb_policy policy = {.cube = KB_ROW_WISE, .num_pes = 1};
    kb_tensor_spec spec = {
        .name = "x", .dtype = KB_F16, .shape = KB_SHAPE(2, 8), .policy = &policy};
    kb_tensor x;
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    KB_TRY(kb_full(ctx, &spec, rank + 1, &x));
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    KB_TRY(kb_distributed_all_reduce(ctx, x, KB_SUM,
                                     &(kb_collective_options){.algorithm = "intercube_allreduce"}));
    assert_true(first_of(ctx, x) == 2 * 10);
    kb_collective_stats stats;
    KB_TRY(kb_distributed_get_stats(ctx, (kb_group){0}, &stats));
    assert_string_equal(stats.algorithm, "intercube_allreduce");
    assert_int_equal(stats.participants, 2 * WORLD);
    assert_int_equal(stats.size, 16);
    return NULL;
}

static void shards_are_added_up_if_asked_for(void **state)
{
    (void)state;
    static const char *const intercube[] = {"ccl.defaults.algorithm=intercube_allreduce", NULL};
    kb_context *ctx = open_four(intercube);
    expect_ok(kb_spawn(ctx, adds_up_shards, NULL, WORLD));
    kb_context_destroy(ctx);
}

/* ---- The same however it is run ---- */

static kb_time how_long(kb_context_options options)
{
    kb_rng rng;
    kb_rng_init(&rng, test_seed(99));
    options.threads = 1;
    kb_context *ctx = open_sips(3, 2, 1, NULL, options);
    kb_machine machine = kb_context_machine(ctx);
    for (int kind = 0; kind <= KB_ALL_TO_ALL; kind++) {
        trial t = {.kind = (kb_collective_kind)kind, .dtype = KB_F16, .world = 3, .block = 400};
        trial_draw(&t, &rng, &machine, kind % 2);
        trial_spawn(&t, ctx);
        trial_fini(&t);
    }
    kb_time now = kb_context_now(ctx);
    kb_context_destroy(ctx);
    return now;
}

static void times_do_not_depend_on_how_it_is_simulated(void **state)
{
    (void)state;
    kb_time plain = how_long((kb_context_options){0});
    assert_int_equal(how_long((kb_context_options){0}), plain);
    assert_int_equal(how_long((kb_context_options){.timing_only = true}), plain);
    assert_int_equal(how_long((kb_context_options){.no_elision = true}), plain);
}

/* ---- What is left ---- */

static void nothing_is_left_behind(void **state)
{
    (void)state;
    static notes seen;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(7));
    kb_context_options options = {
        .debug = true, .on_warning = note_warning, .on_warning_self = &seen, .threads = 1};
    for (int left = 0; left < 2; left++) {
        kb_context *ctx = open_sips(3, 2, 1, NULL, options);
        kb_machine machine = kb_context_machine(ctx);
        trial t = {.kind = KB_ALL_REDUCE, .dtype = KB_F16, .world = 3, .block = 100};
        trial_draw(&t, &rng, &machine, true);
        seen = (notes){0}; /* of settings */
        expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
        for (uint32_t rank = 0; rank < 3; rank++) {
            expect_ok(kb_ahbm_set_device(ctx, rank));
            trial_make(&t, ctx, rank);
        }
        expect_ok(trial_call_all(&t, ctx));
        for (uint32_t rank = 0; rank < 3; rank++)
            expect_ok(kb_tensor_free(ctx, t.inputs[rank].tensor));
        if (left)
            expect_ok(kb_distributed_destroy_process_group(ctx));
        trial_fini(&t);
        kb_context_destroy(ctx);
        expect_notes(&seen, "");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(installing_takes_time),
        cmocka_unit_test(ranks_leave_a_barrier_in_their_order),
        cmocka_unit_test(with_auto_nothing_is_installed_before_it_is_needed),
        cmocka_unit_test(a_plan_that_is_impossible_leaves_no_group),
        cmocka_unit_test(a_plan_that_is_impossible_is_made_once),
        cmocka_unit_test(what_is_chosen_can_be_asked_for),
        cmocka_unit_test(groups_of_some_ranks_work_side_by_side),
        cmocka_unit_test(ranks_that_leave_can_come_back),
        cmocka_unit_test(coming_back_waits_for_all),
        cmocka_unit_test(sends_and_receives_are_matched_by_their_order),
        cmocka_unit_test(early_ranks_wait_for_late_ones),
        cmocka_unit_test(a_rank_can_go_on_while_its_collective_waits),
        cmocka_unit_test(a_context_of_one_device_has_one_rank),
        cmocka_unit_test(one_caller_drives_ranks_that_are_pes),
        cmocka_unit_test(shards_are_added_up_if_asked_for),
        cmocka_unit_test(times_do_not_depend_on_how_it_is_simulated),
        cmocka_unit_test(nothing_is_left_behind),
    };
    return cmocka_run_group_tests_name("group", tests, NULL, NULL);
}
