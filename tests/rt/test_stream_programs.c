/*
 * test_stream_programs.c: random programs of launches, copies and events in several streams,
 * against a plain model that runs them in the order of calls, and a model of which work comes
 * before which.
 *
 * Checks G3.
 */
#include "ordered.h"
#include "programs.h"
#include "support/seed.h"

enum {
    MAX_STREAMS = 4,
    MAX_TENSORS = 7,
    MAX_STEPS = 160,
    MAX_PES = 24,
    MAX_THREADS = 40 * MAX_PES,
    WORDS = (MAX_THREADS + 63) / 64,
    ELEMENTS = MAX_PES * BLOCK
};

/* ---- Programs ------------------------------------------------------------------------------ */

typedef enum step_kind {
    MIX,       /* to, from, distance */
    OWN,       /* to, work */
    NEIGHBOUR, /* to, from */
    COPY,      /* to, from */
    RECORD,
    WAIT,
    SYNCHRONIZE,
    SYNCHRONIZE_STREAM,
    READ,
    SET,
    RENEW /* the tensor is freed and made anew */
} step_kind;

typedef struct step {
    step_kind kind;
    uint32_t stream, event;
    uint32_t to, from; /* tensors */
    int number;
    kb_scope scope;
} step;

typedef struct place {
    bool on_host;
    uint32_t sip, cubes;
} place;

typedef struct program {
    const char *machine;
    uint32_t sips, cubes, pes;
    uint32_t streams, tensors, events;
    place places[MAX_TENSORS];
    step steps[MAX_STEPS];
    size_t count;
} program;

static bool is_launch(const step *s)
{
    return s->kind == MIX || s->kind == OWN || s->kind == NEIGHBOUR;
}

static bool is_work(const step *s)
{
    return is_launch(s) || s->kind == COPY;
}

/* The device that its node is of, and the other one of a copy. */
static uint32_t sip_of(const program *p, const step *s)
{
    const place *to = &p->places[s->to], *from = &p->places[s->from];
    if (is_launch(s))
        return to->sip;
    return from->on_host ? to->sip : from->sip;
}

static uint32_t other_sip_of(const program *p, const step *s)
{
    const place *to = &p->places[s->to], *from = &p->places[s->from];
    bool across = s->kind == COPY && !to->on_host && !from->on_host;
    return across ? to->sip : sip_of(p, s);
}

/* A launch runs on the PEs that have a part of its tensors. */
static uint32_t pes_of(const program *p, const step *s)
{
    uint32_t cubes = p->places[s->to].cubes;
    if (s->kind != OWN && p->places[s->from].cubes > cubes)
        cubes = p->places[s->from].cubes;
    return cubes * p->pes;
}

/* ---- What comes before what ---------------------------------------------------------------- */

typedef struct set {
    uint64_t words[WORDS];
} set;

static void join(set *a, const set *b)
{
    for (size_t i = 0; i < WORDS; i++)
        a->words[i] |= b->words[i];
}

static void put(set *a, uint32_t i)
{
    a->words[i / 64] |= (uint64_t)1 << i % 64;
}

static bool has(const set *a, uint32_t i)
{
    return a->words[i / 64] >> i % 64 & 1;
}

/* What a PE, or a copy, does in a step. */
typedef struct thread {
    set past;      /* threads that have ended before it begins */
    size_t step;   /* that it belongs to */
    uint32_t pe;   /* of a launch */
    uint32_t span; /* steps of the host before it, which may have taken time */
} thread;

/* A stream on a device. */
typedef struct lane {
    set ended;  /* before the next node begins, whatever its scope */
    set narrow; /* launches that a narrow one only follows on PEs or in cubes */
    set by_pe[MAX_PES];
} lane;

typedef struct order {
    lane lanes[MAX_STREAMS][3];
    set events[MAX_STEPS];
    set observed;
    set all; /* so far */
    thread threads[MAX_THREADS];
    uint32_t count, span;
} order;

/* The blocks of a tensor that a thread touches: [first, first + count). */
typedef struct touch {
    uint32_t tensor, first, count;
    bool writes;
} touch;

static size_t touches_of(const program *p, const thread *t, touch *touches)
{
    const step *s = &p->steps[t->step];
    uint32_t all = p->cubes * p->pes, count = is_launch(s) ? pes_of(p, s) : 1;
    if (s->kind == COPY) {
        touches[0] = (touch){s->from, 0, all, false};
        touches[1] = (touch){s->to, 0, all, true};
        return 2;
    }
    if (s->kind == OWN) {
        touches[0] = (touch){s->to, t->pe, 1, true};
        return 1;
    }
    uint32_t cube = t->pe - t->pe % p->pes;
    uint32_t other =
        s->kind == MIX ? (t->pe + (uint32_t)s->number) % count : cube + (t->pe - cube + 1) % p->pes;
    touches[0] = (touch){s->from, other, 1, false};
    touches[1] = (touch){s->from, t->pe, 1, false};
    touches[2] = (touch){s->to, t->pe, 1, true};
    if (s->kind == NEIGHBOUR) {
        touches[1] = touches[2];
        return 2;
    }
    return 3;
}

static bool do_conflict(const program *p, const thread *a, const thread *b)
{
    touch of_a[3], of_b[3];
    size_t count_a = touches_of(p, a, of_a), count_b = touches_of(p, b, of_b);
    for (size_t i = 0; i < count_a; i++)
        for (size_t k = 0; k < count_b; k++) {
            const touch *x = &of_a[i], *y = &of_b[k];
            bool same = x->tensor == y->tensor && !p->places[x->tensor].on_host;
            if (same && (x->writes || y->writes) && x->first < y->first + y->count &&
                y->first < x->first + x->count)
                return true;
        }
    return false;
}

/* Without the tensors of the host: these are not looked at for races, but matter for results. */
static bool clash_on_host(const program *p, const step *a, const step *b)
{
    if (a->kind != COPY || b->kind != COPY)
        return false;
    const place *places = p->places;
    return (places[a->to].on_host && (a->to == b->to || a->to == b->from)) ||
           (places[b->to].on_host && a->from == b->to);
}

/* Adds the threads of a step. */
static void add_work(order *o, const program *p, size_t index)
{
    const step *s = &p->steps[index];
    uint32_t sip = sip_of(p, s), other = other_sip_of(p, s), first = o->count;
    lane *here = &o->lanes[s->stream][sip], *far = &o->lanes[s->stream][other];
    bool narrow = is_launch(s) && s->scope != KB_SCOPE_DEVICE;
    uint32_t count = is_launch(s) ? pes_of(p, s) : 1;
    set begins = here->ended;
    join(&begins, &o->observed);
    if (!narrow)
        join(&begins, &here->narrow);
    if (far != here) {
        join(&begins, &far->ended);
        join(&begins, &far->narrow);
    }
    for (uint32_t pe = 0; pe < count; pe++) {
        assert_true(o->count < MAX_THREADS);
        thread *t = &o->threads[o->count++];
        *t = (thread){.past = begins, .step = index, .pe = pe, .span = o->span};
        uint32_t cube = pe - pe % p->pes;
        for (uint32_t i = 0; narrow && i < p->pes; i++)
            if (s->scope == KB_SCOPE_CUBE || cube + i == pe)
                join(&t->past, &here->by_pe[cube + i]);
    }
    join(&here->ended, &begins);
    for (uint32_t i = first; i < o->count; i++) {
        set done = o->threads[i].past;
        put(&done, i);
        join(&o->all, &done);
        if (is_launch(s)) {
            join(&here->narrow, &done);
            join(&here->by_pe[o->threads[i].pe], &done);
        } else {
            join(&here->ended, &done);
            join(&far->ended, &done);
        }
    }
}

static void add_step(order *o, const program *p, size_t index)
{
    const step *s = &p->steps[index];
    if (is_work(s)) {
        add_work(o, p, index);
        return;
    }
    set so_far = {0};
    for (uint32_t sip = 0; sip < p->sips; sip++) {
        join(&so_far, &o->lanes[s->stream][sip].ended);
        join(&so_far, &o->lanes[s->stream][sip].narrow);
    }
    switch (s->kind) {
    case RECORD:
        o->events[s->event] = so_far;
        break;
    case WAIT:
        for (uint32_t sip = 0; sip < p->sips; sip++)
            join(&o->lanes[s->stream][sip].ended, &o->events[s->event]);
        break;
    case SYNCHRONIZE:
    case READ:
        o->span++;
        join(&o->observed, &o->all);
        break;
    default:
        o->span++;
        break;
    }
}

typedef enum verdict { ORDERED, MAYBE, RACE } verdict;

/* Whether two threads conflict and nothing orders them. Those between which the host may have
 * waited may have been looked at apart. */
static verdict judge(const program *p, order *o)
{
    verdict v = ORDERED;
    *o = (order){0};
    for (size_t i = 0; i < p->count; i++)
        add_step(o, p, i);
    for (uint32_t b = 0; b < o->count; b++)
        for (uint32_t a = 0; a < b; a++) {
            const thread *x = &o->threads[a], *y = &o->threads[b];
            if (x->step == y->step || has(&y->past, a) || !do_conflict(p, x, y))
                continue;
            if (x->span == y->span)
                return RACE;
            v = MAYBE;
        }
    return v;
}

/* ---- Drawing programs ---------------------------------------------------------------------- */

static step *append(program *p, step s)
{
    assert_true(p->count < MAX_STEPS);
    p->steps[p->count] = s;
    return &p->steps[p->count++];
}

static void draw_places(kb_rng *rng, program *p)
{
    p->tensors = 3 + (uint32_t)below(rng, MAX_TENSORS - 2);
    for (uint32_t i = 0; i < p->tensors; i++)
        p->places[i] =
            (place){.on_host = i > 1 && one_in(rng, 4),
                    .sip = (uint32_t)below(rng, p->sips),
                    .cubes = one_in(rng, 2) ? p->cubes : 1 + (uint32_t)below(rng, p->cubes)};
    p->places[1].sip = p->places[0].sip;
}

static step draw_work(kb_rng *rng, const program *p)
{
    step s = {.stream = (uint32_t)below(rng, p->streams)};
    for (;;) {
        s.kind = (step_kind)below(rng, COPY + 1);
        s.to = (uint32_t)below(rng, p->tensors);
        s.from = (uint32_t)below(rng, p->tensors);
        const place *to = &p->places[s.to], *from = &p->places[s.from];
        if (s.to == s.from && s.kind != OWN)
            continue;
        if (s.kind == COPY ? to->on_host && from->on_host : to->on_host)
            continue;
        if ((s.kind == MIX || s.kind == NEIGHBOUR) && (from->on_host || from->sip != to->sip))
            continue;
        break;
    }
    s.from = s.kind == OWN ? s.to : s.from;
    s.scope = is_launch(&s) ? (kb_scope)below(rng, 3) : KB_SCOPE_DEVICE;
    s.number = s.kind == MIX ? (int)below(rng, 5) : (int)below(rng, 40);
    return s;
}

static step draw_host_step(kb_rng *rng, const program *p)
{
    step s = {.kind = (step_kind)(SYNCHRONIZE + (int)below(rng, 5)),
              .stream = (uint32_t)below(rng, p->streams),
              .to = (uint32_t)below(rng, p->tensors),
              .number = (int)below(rng, 100)};
    s.from = s.to;
    return s;
}

/* Orders the last step behind those that it conflicts with: by events before it, or a wider
 * scope. Those of the host are waited for. */
static void make_ordered(program *p, order *o)
{
    step s = p->steps[--p->count];
    for (;;) {
        *o = (order){0};
        append(p, s);
        for (size_t i = 0; i < p->count; i++)
            add_step(o, p, i);
        uint32_t b = o->count, found = UINT32_MAX;
        while (b > 0 && o->threads[b - 1].step == p->count - 1 && found == UINT32_MAX) {
            b--;
            for (uint32_t a = 0; a < b && found == UINT32_MAX; a++)
                if (o->threads[a].step != p->count - 1 && !has(&o->threads[b].past, a) &&
                    (do_conflict(p, &o->threads[a], &o->threads[b]) ||
                     clash_on_host(p, &p->steps[o->threads[a].step], &s)))
                    found = a;
        }
        if (found == UINT32_MAX)
            return;
        p->count--;
        uint32_t stream = p->steps[o->threads[found].step].stream;
        bool same_lane = stream == s.stream && is_launch(&s) && s.scope != KB_SCOPE_DEVICE;
        if (same_lane && sip_of(p, &p->steps[o->threads[found].step]) == sip_of(p, &s)) {
            s.scope = (kb_scope)(s.scope - 1);
            continue;
        }
        append(p, (step){.kind = RECORD, .stream = stream, .event = p->events});
        append(p, (step){.kind = WAIT, .stream = s.stream, .event = p->events++});
    }
}

static void draw_program(kb_rng *rng, program *p, const char *machine, bool host_steps)
{
    static order o;
    kb_context *ctx = open_machine(machine);
    kb_machine m = kb_context_machine(ctx);
    kb_context_destroy(ctx);
    *p = (program){.machine = machine,
                   .sips = m.sips,
                   .cubes = m.cubes,
                   .pes = m.pes,
                   .streams = 1 + (uint32_t)below(rng, MAX_STREAMS)};
    draw_places(rng, p);
    uint64_t works = 2 + below(rng, 22);
    for (uint64_t i = 0; i < works; i++) {
        append(p, draw_work(rng, p));
        make_ordered(p, &o);
        if (host_steps && one_in(rng, 6))
            append(p, draw_host_step(rng, p));
    }
    assert_int_equal(judge(p, &o), ORDERED);
}

/* ---- The order of calls -------------------------------------------------------------------- */

typedef struct model {
    float data[MAX_TENSORS][ELEMENTS];
} model;

static void model_init(model *m, const program *p)
{
    for (uint32_t i = 0; i < p->tensors; i++)
        for (uint32_t k = 0; k < p->cubes * p->pes * BLOCK; k++)
            m->data[i][k] = (float)(i + k % 7);
}

static void model_launch(model *m, const program *p, const step *s)
{
    static float from[ELEMENTS];
    uint32_t count = pes_of(p, s);
    memcpy(from, m->data[s->from], sizeof from);
    for (uint32_t pe = 0; pe < count; pe++) {
        uint32_t cube = pe - pe % p->pes;
        uint32_t other =
            s->kind == MIX ? (pe + (uint32_t)s->number) % count : cube + (pe - cube + 1) % p->pes;
        for (uint32_t i = 0; i < BLOCK; i++) {
            float *to = &m->data[s->to][pe * BLOCK + i];
            float mine = from[pe * BLOCK + i], far = from[other * BLOCK + i];
            *to = s->kind == OWN   ? mine + (float)s->number
                  : s->kind == MIX ? mine * 0.5f + far + (float)s->number
                                   : far + 1;
        }
    }
}

static void model_step(model *m, const program *p, const step *s)
{
    uint32_t count = p->cubes * p->pes * BLOCK;
    if (is_launch(s))
        model_launch(m, p, s);
    else if (s->kind == COPY)
        memcpy(m->data[s->to], m->data[s->from], count * sizeof(float));
    else if (s->kind == SET)
        m->data[s->to][(uint32_t)s->number % count] = (float)s->number;
    else if (s->kind == RENEW)
        memset(m->data[s->to], 0, count * sizeof(float));
}

/* ---- Real ones ----------------------------------------------------------------------------- */

typedef struct machine {
    const program *p;
    kb_context *ctx;
    kb_stream streams[MAX_STREAMS];
    kb_stream_event events[MAX_STEPS];
    kb_tensor tensors[MAX_TENSORS];
    bool recording;
} machine;

static kb_tensor make_tensor(const machine *m, uint32_t index, const float *data)
{
    const place *at = &m->p->places[index];
    char name[16];
    snprintf(name, sizeof name, "t%u", index);
    kb_policy policy = by_blocks;
    policy.num_cubes = at->cubes;
    kb_tensor_spec spec = {.name = name,
                           .dtype = KB_F32,
                           .shape = KB_SHAPE(block_elements(m->ctx)),
                           .policy = &policy,
                           .access = KB_UNTIMED};
    size_t bytes = block_elements(m->ctx) * sizeof *data;
    kb_tensor x;
    expect_ok(kb_ahbm_set_device(m->ctx, at->sip));
    if (at->on_host)
        spec.policy = NULL;
    if (at->on_host || kb_context_is_timing_only(m->ctx))
        expect_ok(at->on_host ? kb_from_host(m->ctx, &spec, data, bytes, &x)
                              : kb_zeros(m->ctx, &spec, &x));
    else {
        expect_ok(kb_zeros(m->ctx, &spec, &x));
        expect_ok(kb_tensor_set_slice(m->ctx, x, KB_UNTIMED, NULL, data, bytes));
    }
    return x;
}

static void machine_init(machine *m, const program *p, kb_context_options options)
{
    static model start;
    options.races = KB_RACES_FAIL;
    *m = (machine){.p = p, .ctx = open_context(p->machine, options)};
    model_init(&start, p);
    for (uint32_t i = 0; i < p->tensors; i++)
        m->tensors[i] = make_tensor(m, i, start.data[i]);
    for (uint32_t i = 1; i < p->streams; i++)
        expect_ok(kb_stream_create(m->ctx, NULL, &m->streams[i]));
    for (uint32_t i = 0; i < p->events; i++)
        expect_ok(kb_stream_event_create(m->ctx, &m->events[i]));
}

static kb_error *do_launch(const machine *m, const step *s)
{
    kb_request request;
    kb_launch_options options = {.stream = m->streams[s->stream],
                                 .scope = s->scope,
                                 .request = m->recording ? NULL : &request};
    kb_tensor to = m->tensors[s->to], from = m->tensors[s->from];
    if (s->kind == MIX)
        KB_TRY(kb_launch_with(m->ctx, &options, &mix, to, from, s->number, 0.5, s->number));
    else if (s->kind == OWN)
        KB_TRY(kb_launch_with(m->ctx, &options, &own, to, s->number / 4, s->number));
    else
        KB_TRY(kb_launch_with(m->ctx, &options, &from_neighbour, to, from));
    return m->recording ? NULL : kb_request_free(m->ctx, request);
}

static kb_error *do_step(machine *m, const step *s)
{
    static const float zeros[ELEMENTS];
    kb_context *ctx = m->ctx;
    double value;
    switch (s->kind) {
    case MIX:
    case OWN:
    case NEIGHBOUR:
        return do_launch(m, s);
    case COPY:
        return kb_stream_copy(ctx, m->streams[s->stream], m->tensors[s->to], m->tensors[s->from],
                              NULL);
    case RECORD:
        return kb_stream_record(ctx, m->streams[s->stream], m->events[s->event]);
    case WAIT:
        return kb_stream_wait(ctx, m->streams[s->stream], m->events[s->event]);
    case SYNCHRONIZE:
        return kb_synchronize(ctx);
    case SYNCHRONIZE_STREAM:
        return kb_stream_synchronize(ctx, m->streams[s->stream]);
    case READ:
        return kb_tensor_get(ctx, m->tensors[s->to], KB_UNTIMED, &KB_INDEX(1), &value);
    case SET:
        return kb_tensor_set(ctx, m->tensors[s->to], s->number % 2 ? KB_UNTIMED : KB_TIMED,
                             &KB_INDEX((uint64_t)s->number % block_elements(ctx)), s->number);
    case RENEW:
        KB_TRY(kb_tensor_free(ctx, m->tensors[s->to]));
        m->tensors[s->to] = make_tensor(m, s->to, zeros);
        return NULL;
    }
    return NULL;
}

static kb_error *do_steps(machine *m)
{
    for (size_t i = 0; i < m->p->count; i++)
        KB_TRY(do_step(m, &m->p->steps[i]));
    return NULL;
}

static void print_program(const program *p)
{
    static const char *const kinds[] = {"mix",    "own",  "neighbour", "copy",
                                        "record", "wait", "sync",      "sync stream",
                                        "read",   "set",  "renew"};
    print_message("%s%u streams\n", p->machine, p->streams);
    for (uint32_t i = 0; i < p->tensors; i++)
        print_message("t%u: %s%u, %u cubes\n", i, p->places[i].on_host ? "host " : "sip",
                      p->places[i].sip, p->places[i].cubes);
    for (size_t i = 0; i < p->count; i++) {
        const step *s = &p->steps[i];
        print_message("%zu: %s stream %u event %u t%u <- t%u, %d, scope %d\n", i, kinds[s->kind],
                      s->stream, s->event, s->to, s->from, s->number, (int)s->scope);
    }
}

static void expect_model(const machine *m, const model *expected, uint64_t seed)
{
    static float found[ELEMENTS];
    size_t bytes = block_elements(m->ctx) * sizeof(float);
    for (uint32_t i = 0; i < m->p->tensors; i++) {
        expect_ok(kb_tensor_to_host(m->ctx, m->tensors[i], KB_UNTIMED, found, bytes));
        for (size_t k = 0; k < bytes / sizeof(float); k++) {
            if (found[k] == expected->data[i][k])
                continue;
            print_program(m->p);
            fail_msg("seed %ju: element %zu of t%u is %g, not %g", (uintmax_t)seed, k, i,
                     (double)found[k], (double)expected->data[i][k]);
        }
    }
}

static void expect_well(const program *p, kb_error *err, uint64_t seed)
{
    if (!err)
        return;
    print_program(p);
    fail_msg("seed %ju: %s\n%s", (uintmax_t)seed, kb_error_message(err), kb_error_detail(err));
}

static const char *draw_machine(kb_rng *rng)
{
    return small_machines[below(rng, SMALL_MACHINES)];
}

/* ---- Tests --------------------------------------------------------------------------------- */

/* In the order of calls, whatever streams the steps are in. */
static void ordered_programs_give_the_results_of_their_calls(void **state)
{
    (void)state;
    static program p;
    static model expected;
    uint64_t rounds = fewer_if_slow(300);
    for (uint64_t seed = 1; seed <= rounds; seed++) {
        kb_rng rng;
        machine m;
        kb_rng_init(&rng, test_seed(seed));
        draw_program(&rng, &p, draw_machine(&rng), true);
        machine_init(&m, &p, (kb_context_options){0});
        expect_well(&p, do_steps(&m), seed);
        expect_well(&p, kb_synchronize(m.ctx), seed);
        model_init(&expected, &p);
        for (size_t i = 0; i < p.count; i++)
            model_step(&expected, &p, &p.steps[i]);
        expect_model(&m, &expected, seed);
        kb_context_destroy(m.ctx);
    }
}

/* Without one of its waits, or with a scope too narrow, a program has a race or still has none. */
static void races_are_found_where_there_are_some(void **state)
{
    (void)state;
    static program p;
    static order o;
    uint64_t rounds = fewer_if_slow(300), races = 0;
    for (uint64_t seed = 1; seed <= rounds; seed++) {
        kb_rng rng;
        machine m;
        kb_rng_init(&rng, test_seed(seed));
        draw_program(&rng, &p, draw_machine(&rng), one_in(&rng, 3));
        for (int tries = 0; tries < 20; tries++) {
            step *s = &p.steps[below(&rng, p.count)];
            if (s->kind == WAIT)
                *s = (step){.kind = RECORD, .event = s->event, .stream = s->stream};
            else if (is_launch(s) && one_in(&rng, 4))
                s->scope = KB_SCOPE_PE;
            else
                continue;
            break;
        }
        verdict v = judge(&p, &o);
        machine_init(&m, &p, (kb_context_options){0});
        kb_error *err = do_steps(&m);
        if (!err)
            err = kb_synchronize(m.ctx);
        if (v == ORDERED)
            expect_well(&p, err, seed);
        if (v == RACE && !err) {
            print_program(&p);
            fail_msg("seed %ju: a race is not found", (uintmax_t)seed);
        }
        if (err)
            expect_texts(err, KB_ERR_FAULT, "data race", NULL);
        races += v == RACE;
        kb_context_destroy(m.ctx);
    }
    assert_true(races > rounds / 20);
}

static void record_program(machine *m, kb_graph *graph)
{
    expect_ok(kb_graph_begin(m->ctx, "program", graph));
    m->recording = true;
    expect_ok(do_steps(m));
    m->recording = false;
    expect_ok(kb_graph_end(m->ctx, *graph));
}

/* As a graph, launched in one of its streams, with the calls themselves in between: all streams
 * follow each other by events, and the graph's own stream by itself. */
static kb_error *alternate(machine *m, kb_graph graph, uint32_t in)
{
    kb_stream_event before, after;
    kb_request request;
    kb_graph_options options = {.stream = m->streams[in], .request = &request};
    expect_ok(kb_stream_event_create(m->ctx, &before));
    expect_ok(kb_stream_event_create(m->ctx, &after));
    for (int round = 0; round < 2; round++) {
        KB_TRY(do_steps(m));
        for (uint32_t i = 0; i < m->p->streams; i++) {
            if (i == in)
                continue;
            KB_TRY(kb_stream_record(m->ctx, m->streams[i], before));
            KB_TRY(kb_stream_wait(m->ctx, m->streams[in], before));
        }
        KB_TRY(kb_graph_launch(m->ctx, graph, &options));
        KB_TRY(kb_stream_record(m->ctx, m->streams[in], after));
        for (uint32_t i = 0; i < m->p->streams; i++)
            if (i != in)
                KB_TRY(kb_stream_wait(m->ctx, m->streams[i], after));
        KB_TRY(round == 1 ? do_steps(m) : kb_request_wait(m->ctx, request, NULL));
        KB_TRY(kb_request_wait(m->ctx, request, NULL));
        KB_TRY(kb_request_free(m->ctx, request));
    }
    return kb_synchronize(m->ctx);
}

static void graphs_do_what_their_calls_do(void **state)
{
    (void)state;
    static program p;
    static model expected;
    uint64_t rounds = fewer_if_slow(150);
    for (uint64_t seed = 1; seed <= rounds; seed++) {
        kb_rng rng;
        machine m;
        kb_graph graph;
        kb_rng_init(&rng, test_seed(seed));
        draw_program(&rng, &p, draw_machine(&rng), false);
        machine_init(&m, &p, (kb_context_options){0});
        record_program(&m, &graph);
        for (int round = 0; round < 2; round++)
            expect_well(&p, kb_graph_launch(m.ctx, graph, NULL), seed);
        model_init(&expected, &p);
        for (int round = 0; round < 2; round++)
            for (size_t i = 0; i < p.count; i++)
                model_step(&expected, &p, &p.steps[i]);
        expect_model(&m, &expected, seed);
        if (p.streams == 1) { /* else the streams have no order from one round to the next */
            expect_well(&p, alternate(&m, graph, 0), seed);
            for (int round = 0; round < 5; round++)
                for (size_t i = 0; i < p.count; i++)
                    model_step(&expected, &p, &p.steps[i]);
            expect_model(&m, &expected, seed);
        }
        kb_context_destroy(m.ctx);
    }
}

/* Times do not depend on contents, nor on how the simulator works them out. */
static void times_are_the_same_without_contents(void **state)
{
    (void)state;
    static program p;
    uint64_t rounds = fewer_if_slow(100);
    for (uint64_t seed = 1; seed <= rounds; seed++) {
        static const kb_context_options ways[] = {{0}, {.timing_only = true}, {.no_elision = true}};
        kb_time ends[3];
        kb_rng rng;
        kb_rng_init(&rng, test_seed(seed));
        bool as_graph = one_in(&rng, 2);
        draw_program(&rng, &p, draw_machine(&rng), !as_graph);
        for (int way = 0; way < 3; way++) {
            machine m;
            kb_graph graph;
            machine_init(&m, &p, ways[way]);
            if (as_graph) {
                record_program(&m, &graph);
                expect_well(&p, kb_graph_launch(m.ctx, graph, NULL), seed);
                expect_well(&p, kb_graph_launch(m.ctx, graph, NULL), seed);
            } else {
                expect_well(&p, do_steps(&m), seed);
                expect_well(&p, kb_synchronize(m.ctx), seed);
            }
            ends[way] = kb_context_now(m.ctx);
            kb_context_destroy(m.ctx);
        }
        assert_int_equal(ends[0], ends[1]);
        assert_int_equal(ends[0], ends[2]);
    }
}

/* Whatever is under way goes with the context, at any moment. */
static void contexts_may_go_at_any_moment(void **state)
{
    (void)state;
    static program p;
    uint64_t rounds = fewer_if_slow(200);
    for (uint64_t seed = 1; seed <= rounds; seed++) {
        kb_rng rng;
        machine m;
        kb_graph graph;
        kb_request request;
        kb_rng_init(&rng, test_seed(seed));
        draw_program(&rng, &p, draw_machine(&rng), false);
        machine_init(&m, &p, (kb_context_options){0});
        if (one_in(&rng, 2)) {
            record_program(&m, &graph);
            expect_ok(kb_graph_launch(m.ctx, graph, &(kb_graph_options){.request = &request}));
        } else {
            expect_ok(do_steps(&m));
        }
        expect_ok(kb_sim_run(kb_context_sim(m.ctx),
                             kb_context_now(m.ctx) + (kb_time)below(&rng, 30 * KB_US)));
        kb_context_destroy(m.ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ordered_programs_give_the_results_of_their_calls),
        cmocka_unit_test(races_are_found_where_there_are_some),
        cmocka_unit_test(graphs_do_what_their_calls_do),
        cmocka_unit_test(times_are_the_same_without_contents),
        cmocka_unit_test(contexts_may_go_at_any_moment),
    };
    return cmocka_run_group_tests_name("stream programs", tests, NULL, NULL);
}
