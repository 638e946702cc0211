/*
 * test_stream_collectives.c: collectives in streams and in graphs, mixed with launches and with
 * collectives outside of streams, differently on each rank. For every choice of the ranks, results
 * are those of the calls one by one, and there is no deadlock.
 *
 * Checks G2.
 */
#include "support/seed.h"
#include "trial.h"

#include <kernbench/tl.h>

enum { MAX_RANKS = 4, MAX_CALLS = 8, STREAMS = 3, OUTSIDE = STREAMS, LATER = STREAMS + 1, WAYS };

KB_KERNEL(add_one, tl_ptr x, int n)
{
    tl_ptr mine = x + (tl_program_id(1) * tl_num_programs(0) + tl_program_id(0)) * n * 2;
    tl_store(mine, tl_add(tl_load(mine, tl_shape(n), TL_F16), 1));
}

/* ---- Programs ------------------------------------------------------------------------------ */

typedef struct call {
    trial t;
    bool by_pair;            /* of ranks 1 and 0, in this order */
    uint32_t way[MAX_RANKS]; /* a stream, or outside of streams: waited for at once, or later */
    uint32_t launch_in[MAX_RANKS]; /* 0: a launch before it in the default stream; else none */
    bool yields[MAX_RANKS];
} call;

typedef struct program {
    uint64_t seed;
    uint32_t world, w;
    size_t count;
    call calls[MAX_CALLS];
    bool as_graph;
    int rounds;        /* launches of the graph */
    uint32_t failing;  /* the rank that fails; `world`: none */
    size_t failing_at; /* before this call, or this round */
    bool leaves;       /* it ends early instead, */
    int failing_after; /* how many of its own launches end before it fails */
} program;

static const kb_collective_kind kinds[] = {KB_ALL_REDUCE, KB_ALL_GATHER, KB_REDUCE_SCATTER,
                                           KB_BROADCAST,  KB_REDUCE,     KB_GATHER,
                                           KB_SCATTER,    KB_ALL_TO_ALL};

static void draw_call(kb_rng *rng, const program *p, const kb_machine *machine, call *c)
{
    c->by_pair = one_in(rng, 4);
    c->t = (trial){
        .kind = kinds[below(rng, sizeof kinds / sizeof *kinds)],
        .op = one_in(rng, 2) ? KB_MAX : KB_MIN, /* the same again if they are repeated */
        .dtype = one_in(rng, 2) ? KB_F32 : KB_F16,
        .world = c->by_pair ? 2 : p->world,
        .block = 1 + below(rng, 200),
        .algorithm = "auto",
    };
    c->t.root = (uint32_t)below(rng, c->t.world);
    trial_draw(&c->t, rng, machine, one_in(rng, 2));
    uint32_t way = (uint32_t)below(rng, p->as_graph ? STREAMS : WAYS);
    bool alike = one_in(rng, 3);
    for (uint32_t rank = 0; rank < p->world; rank++) {
        c->way[rank] = alike ? way : (uint32_t)below(rng, p->as_graph ? STREAMS : WAYS);
        c->launch_in[rank] = (uint32_t)below(rng, STREAMS + 1);
        c->yields[rank] = one_in(rng, 4);
    }
}

static kb_context *draw_program(program *p, uint64_t seed, bool as_graph)
{
    kb_rng rng;
    kb_rng_init(&rng, test_seed(seed));
    *p = (program){.seed = seed,
                   .world = 2 + (uint32_t)below(&rng, MAX_RANKS - 1),
                   .w = 1 + (uint32_t)below(&rng, 2),
                   .as_graph = as_graph,
                   .count = 1 + below(&rng, MAX_CALLS),
                   .rounds = as_graph ? 1 + (int)below(&rng, 3) : 1};
    p->failing = p->world;
    kb_context *ctx = open_sips(p->world, p->w, 1, NULL, (kb_context_options){.threads = 1});
    kb_machine machine = kb_context_machine(ctx);
    for (size_t i = 0; i < p->count; i++)
        draw_call(&rng, p, &machine, &p->calls[i]);
    return ctx;
}

static void program_fini(program *p)
{
    for (size_t i = 0; i < p->count; i++)
        trial_fini(&p->calls[i].t);
}

/* ---- A rank -------------------------------------------------------------------------------- */

typedef struct rank_state {
    program *p;
    kb_context *ctx;
    uint32_t rank;
    kb_group pair;
    kb_stream streams[STREAMS];
    kb_tensor own;
    uint32_t launches;
    kb_request later[MAX_CALLS];
    size_t later_count;
} rank_state;

/* The rank within the call's group; UINT32_MAX: it is not in it. */
static uint32_t device_index_of(const rank_state *r, const call *c)
{
    if (!c->by_pair)
        return r->rank;
    return r->rank < 2 ? 1 - r->rank : UINT32_MAX;
}

static kb_error *launch_some(rank_state *r, uint32_t stream)
{
    kb_request request;
    kb_launch_options options = {.stream = r->streams[stream],
                                 .request = r->p->as_graph ? NULL : &request};
    KB_TRY(kb_launch_with(r->ctx, &options, &add_one, r->own, 10));
    return r->p->as_graph ? NULL : kb_request_free(r->ctx, request);
}

/* All launches are on one tensor: so they are all in the default stream. */
static kb_error *make_call(rank_state *r, call *c)
{
    uint32_t device = device_index_of(r, c), way = c->way[r->rank];
    kb_request *later = &r->later[r->later_count];
    kb_collective_options options = {.group = c->by_pair ? r->pair : (kb_group){0}};
    if (c->launch_in[r->rank] == 0) {
        KB_TRY(launch_some(r, 0));
        r->launches++;
    }
    if (c->yields[r->rank] && !r->p->as_graph)
        KB_TRY(kb_cooperative_yield(r->ctx));
    if (device == UINT32_MAX)
        return NULL;
    if (way < STREAMS)
        options.stream = &r->streams[way];
    bool waits = r->p->as_graph || way == OUTSIDE;
    if (!waits)
        options.work = later;
    KB_TRY(trial_call(&c->t, r->ctx, device, &options));
    r->later_count += !waits;
    return NULL;
}

/* Time passes first; then it fails, or ends early. */
static kb_error *go_wrong(rank_state *r)
{
    for (int i = 0; i < r->p->failing_after; i++)
        KB_TRY(kb_launch(r->ctx, NULL, &add_one, r->own, 10));
    return r->p->leaves ? NULL : kb_error_new(KB_ERR_INPUT, "enough");
}

static kb_error *make_calls(rank_state *r)
{
    program *p = r->p;
    for (size_t i = 0; i < p->count; i++) {
        if (r->rank == p->failing && i == p->failing_at && !p->as_graph)
            return go_wrong(r);
        KB_TRY(make_call(r, &p->calls[i]));
    }
    for (size_t i = 0; i < r->later_count; i++) {
        KB_TRY(kb_request_wait(r->ctx, r->later[i], NULL));
        KB_TRY(kb_request_free(r->ctx, r->later[i]));
    }
    return NULL;
}

/* The first call also outside of streams, just before the graph is launched. */
static kb_error *start_outside(rank_state *r)
{
    const call *c = &r->p->calls[0];
    uint32_t device = device_index_of(r, c);
    kb_collective_options options = {.group = c->by_pair ? r->pair : (kb_group){0},
                                     .work = &r->later[r->later_count]};
    if (device == UINT32_MAX || r->p->seed % 2 == 0)
        return NULL;
    KB_TRY(trial_call(&c->t, r->ctx, device, &options));
    return kb_request_free(r->ctx, r->later[r->later_count]);
}

static kb_error *launch_graph(rank_state *r)
{
    program *p = r->p;
    kb_graph graph;
    KB_TRY(kb_graph_begin(r->ctx, NULL, &graph));
    KB_TRY(make_calls(r));
    KB_TRY(kb_graph_end(r->ctx, graph));
    for (int round = 0; round < p->rounds; round++) {
        kb_request request;
        if (r->rank == p->failing && (size_t)round == p->failing_at % (size_t)p->rounds)
            return go_wrong(r);
        KB_TRY(start_outside(r));
        bool waits = (round + (int)r->rank) % 2;
        kb_graph_options options = {.stream = r->streams[round % STREAMS],
                                    .request = waits ? NULL : &request};
        KB_TRY(kb_graph_launch(r->ctx, graph, &options));
        if (waits)
            continue;
        KB_TRY(kb_request_wait(r->ctx, request, NULL));
        KB_TRY(kb_request_free(r->ctx, request));
    }
    return kb_graph_free(r->ctx, graph);
}

static kb_error *worker(kb_context *ctx, uint32_t rank, void *arg)
{
    rank_state r = {.p = arg, .ctx = ctx, .rank = rank};
    program *p = arg;
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    KB_TRY(kb_distributed_new_group(ctx, (uint32_t[]){1, 0}, 2, &r.pair));
    for (uint32_t i = 1; i < STREAMS; i++)
        KB_TRY(kb_stream_create(ctx, NULL, &r.streams[i]));
    for (size_t i = 0; i < p->count; i++)
        if (device_index_of(&r, &p->calls[i]) != UINT32_MAX)
            trial_make(&p->calls[i].t, ctx, device_index_of(&r, &p->calls[i]));
    uint32_t pes = kb_context_machine(ctx).cubes * kb_context_machine(ctx).pes;
    r.own = filled_f16(ctx, 10 * pes, 0);
    KB_TRY(p->as_graph ? launch_graph(&r) : make_calls(&r));
    KB_TRY(kb_synchronize(ctx));
    if (p->failing < p->world)
        return NULL;
    for (size_t i = 0; i < p->count; i++)
        if (device_index_of(&r, &p->calls[i]) != UINT32_MAX)
            trial_check(&p->calls[i].t, ctx, device_index_of(&r, &p->calls[i]));
    assert_true(first_of(ctx, r.own) == r.launches * (double)p->rounds);
    return NULL;
}

static void expect_well(const program *p, kb_error *err)
{
    if (err)
        fail_msg("seed %ju: %s\n%s", (uintmax_t)p->seed, kb_error_message(err),
                 kb_error_detail(err));
}

/* ---- Tests --------------------------------------------------------------------------------- */

static void run_seeds(bool as_graph, uint64_t rounds)
{
    static program p;
    for (uint64_t seed = 1; seed <= rounds; seed++) {
        kb_context *ctx = draw_program(&p, seed, as_graph);
        expect_well(&p, kb_spawn(ctx, worker, &p, p.world));
        program_fini(&p);
        kb_context_destroy(ctx);
    }
}

static void ranks_may_choose_their_streams(void **state)
{
    (void)state;
    run_seeds(false, fewer_if_slow(100));
}

static void graphs_have_collectives(void **state)
{
    (void)state;
    run_seeds(true, fewer_if_slow(100));
}

/* A rank fails or leaves somewhere: the others are told, or had what they needed; and the context
 * goes on. */
static void a_rank_may_fail_anywhere(void **state)
{
    (void)state;
    static program p;
    uint64_t rounds = fewer_if_slow(150), told = 0;
    for (uint64_t seed = 1; seed <= rounds; seed++) {
        kb_rng rng;
        kb_rng_init(&rng, test_seed(seed + 1000));
        kb_context *ctx = draw_program(&p, seed, one_in(&rng, 2));
        p.failing = (uint32_t)below(&rng, p.world);
        p.failing_at = below(&rng, p.count);
        p.leaves = one_in(&rng, 2);
        p.failing_after = (int)below(&rng, 12);
        kb_error *err = kb_spawn(ctx, worker, &p, p.world);
        if (err && !strstr(kb_error_message(err), p.leaves ? "rank" : "enough"))
            fail_msg("seed %ju: %s\n%s", (uintmax_t)seed, kb_error_message(err),
                     kb_error_detail(err));
        if (!p.leaves)
            assert_non_null(err);
        told += err != NULL;
        kb_error_free(err);
        p.failing = p.world;
        expect_well(&p, kb_spawn(ctx, worker, &p, p.world));
        program_fini(&p);
        kb_context_destroy(ctx);
    }
    assert_true(told > rounds / 2);
}

/* ---- Outside workers ----------------------------------------------------------------------- */

enum { WIDE = 12, CUBE_PES = 4 };

/* Adds to the PE's element what its predecessor in the ring has. */
KB_KERNEL(add_previous, tl_ptr x)
{
    tl_ptr mine = x + (tl_program_id(1) * tl_num_programs(0) + tl_program_id(0)) * 2;
    tl_tensor own = tl_load(mine, tl_shape(1), TL_F16);
    tl_send("E", own);
    tl_store(mine, tl_add(own, tl_recv("W", tl_shape(1), TL_F16)));
}

static kb_queue_set install_ring(kb_context *ctx, size_t stride)
{
    kb_pe pes[WIDE];
    for (size_t i = 0; i < WIDE; i++) {
        size_t pe = i * stride % WIDE;
        pes[i] = (kb_pe){.cube = (uint32_t)(pe / CUBE_PES), .pe = (uint32_t)(pe % CUBE_PES)};
    }
    kb_queue_set set;
    expect_ok(kb_queues_create(
        ctx, &(kb_queue_spec){.topology = "ring_1d", .pes = pes, .pe_count = WIDE}, &set));
    expect_ok(kb_queues_install(ctx, set));
    return set;
}

static kb_error *launch_ring(kb_context *ctx, kb_stream stream, kb_queue_set set, kb_tensor x,
                             bool recorded)
{
    kb_request request;
    kb_launch_options options = {
        .stream = stream, .queues = set, .request = recorded ? NULL : &request};
    KB_TRY(kb_launch_with(ctx, &options, &add_previous, x));
    return recorded ? NULL : kb_request_free(ctx, request);
}

/* Two rings and an all-reduce, each in a stream of its own, three times over; the same PEs run all
 * of them. With all elements alike, a ring doubles them. */
static void queue_sets_and_collectives_share_pes(void **state)
{
    (void)state;
    for (int recorded = 0; recorded < 2; recorded++) {
        kb_context *ctx = open_sips(2, 3, 1, NULL, (kb_context_options){.threads = 1});
        expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
        kb_queue_set sets[] = {install_ring(ctx, 1), install_ring(ctx, 5)};
        kb_stream streams[3];
        kb_tensor x[] = {filled_f16(ctx, WIDE, 1), filled_f16(ctx, WIDE, 3)}, sums[2];
        kb_graph graph;
        for (uint32_t sip = 0; sip < 2; sip++) {
            expect_ok(kb_ahbm_set_device(ctx, sip));
            sums[sip] = filled_f16(ctx, 100, sip + 1);
        }
        for (int i = 0; i < 3; i++)
            expect_ok(kb_stream_create(ctx, NULL, &streams[i]));
        if (recorded)
            expect_ok(kb_graph_begin(ctx, NULL, &graph));
        for (int round = 0; round < 3; round++) {
            kb_request request;
            kb_collective reduce = {
                .kind = KB_ALL_REDUCE,
                .inputs = sums,
                .outputs = sums,
                .count = 2,
                .options = {.stream = &streams[2], .work = recorded ? NULL : &request}};
            for (int i = 0; i < 2; i++)
                expect_ok(launch_ring(ctx, streams[i], sets[i], x[i], recorded));
            expect_ok(kb_distributed_call(ctx, &reduce));
            if (!recorded)
                expect_ok(kb_request_free(ctx, request));
        }
        if (recorded) {
            expect_ok(kb_graph_end(ctx, graph));
            expect_ok(kb_graph_launch(ctx, graph, NULL));
        }
        expect_ok(kb_synchronize(ctx));
        assert_true(first_of(ctx, x[0]) == 8 && first_of(ctx, x[1]) == 24);
        assert_true(first_of(ctx, sums[0]) == 12 && first_of(ctx, sums[1]) == 12);
        for (size_t i = 0; i < 2; i++)
            expect_ok(kb_queues_remove(ctx, sets[i])); /* no kernel uses them any more */
        kb_context_destroy(ctx);
    }
}

/* Whatever is under way goes with the context, at any moment. */
static void contexts_may_go_at_any_moment(void **state)
{
    (void)state;
    uint64_t rounds = fewer_if_slow(60);
    for (uint64_t seed = 1; seed <= rounds; seed++) {
        kb_rng rng;
        kb_rng_init(&rng, test_seed(seed));
        kb_context *ctx = open_sips(2, 1, 1, NULL, (kb_context_options){.threads = 1});
        kb_tensor sums[2];
        kb_stream side;
        kb_graph graph;
        kb_request request;
        expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
        expect_ok(kb_stream_create(ctx, "side", &side));
        for (uint32_t sip = 0; sip < 2; sip++) {
            expect_ok(kb_ahbm_set_device(ctx, sip));
            sums[sip] = filled_f16(ctx, 40, sip + 1);
        }
        bool recorded = one_in(&rng, 2);
        if (recorded)
            expect_ok(kb_graph_begin(ctx, NULL, &graph));
        for (int i = 0; i < 3; i++) {
            kb_collective reduce = {
                .kind = KB_ALL_REDUCE,
                .inputs = sums,
                .outputs = sums,
                .count = 2,
                .options = {.stream = &side, .work = recorded ? NULL : &request}};
            expect_ok(kb_distributed_call(ctx, &reduce));
        }
        if (recorded) {
            expect_ok(kb_graph_end(ctx, graph));
            expect_ok(kb_graph_launch(ctx, graph, &(kb_graph_options){.request = &request}));
        }
        expect_ok(kb_sim_run(kb_context_sim(ctx),
                             kb_context_now(ctx) + (kb_time)below(&rng, 12 * KB_US)));
        kb_context_destroy(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_may_choose_their_streams),
        cmocka_unit_test(graphs_have_collectives),
        cmocka_unit_test(a_rank_may_fail_anywhere),
        cmocka_unit_test(queue_sets_and_collectives_share_pes),
        cmocka_unit_test(contexts_may_go_at_any_moment),
    };
    return cmocka_run_group_tests_name("stream collectives", tests, NULL, NULL);
}
