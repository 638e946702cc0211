/*
 * random_kernel.h: random small kernels on a ring of PEs, with loads, stores, both engines,
 * composite operations, messages and values that come and go; on machines and with queues that are
 * random too.
 */
#ifndef TESTS_TL_RANDOM_KERNEL_H
#define TESTS_TL_RANDOM_KERNEL_H

#include "queue_rig.h"
#include "support/seed.h"

enum {
    PES = 4,
    STEPS = 60,
    MAX_VALUES = 6,
    REGION = 64 << 10, /* of memory that kernels load and store */
    MATRICES = 1 << 20,
    NOTES = PES * STEPS,
};

/* What the kernels of a run share. */
typedef struct plan {
    uint64_t seed;
    int64_t side; /* values are square matrices of f16 */
    int values;   /* that a kernel keeps */
    bool fits;    /* a message fits into the ring at once */
    bool composites, messages;
    bool more; /* what waits in other ways: results in place, gathers, messages to memory */
} plan;

static plan now_running;
static kb_time notes[NOTES]; /* what tl_now() said */
static size_t note_count[PES];

/* ---- The kernel -------------------------------------------------------------------------- */

typedef struct desk {
    tl_tensor values[MAX_VALUES];
    tl_future stored;
    bool has_stored;
    kb_rng rng;
} desk;

static tl_tensor *some_value(desk *d)
{
    return &d->values[kb_rng_below(&d->rng, (uint64_t)now_running.values)];
}

static void replace(tl_context *tl, tl_tensor *old, tl_tensor by)
{
    tl_free(*old);
    *old = by;
}

static tl_ptr some_place(desk *d, tl_ptr memory)
{
    return memory + (tl_ptr)(kb_rng_below(&d->rng, REGION / 256) * 256);
}

static void compute(tl_context *tl, desk *d)
{
    tl_tensor a = *some_value(d), b = *some_value(d);
    tl_tensor *to = some_value(d);
    switch (kb_rng_below(&d->rng, 5)) {
    case 0:
        replace(tl, to, tl_add(a, b));
        break;
    case 1:
        replace(tl, to, tl_exp(a));
        break;
    case 2:
        replace(tl, to, tl_full(tl_shape(now_running.side, now_running.side), TL_F16, 0.5));
        break;
    default:
        replace(tl, to, tl_dot(a, b));
        break;
    }
}

static void multiply_in_memory(tl_context *tl, desk *d, tl_ptr memory)
{
    tl_dims shape = tl_shape(64, 64);
    tl_ptr at = memory + MATRICES;
    tl_tensor a = tl_ref(at, shape, TL_F16), b = tl_ref(at + 8192, shape, TL_F16);
    tl_tensor out = tl_ref(at + 16384 * (1 + (tl_ptr)kb_rng_below(&d->rng, 2)), shape, TL_F16);
    d->stored = tl_composite(TL_GEMM, a, b, out);
    d->has_stored = true;
    tl_free(a);
    tl_free(b);
    tl_free(out);
}

static void move(tl_context *tl, desk *d, tl_ptr memory)
{
    tl_dims shape = tl_shape(now_running.side, now_running.side);
    if (kb_rng_below(&d->rng, 2)) {
        replace(tl, some_value(d), tl_load(some_place(d, memory), shape, TL_F16));
        return;
    }
    d->stored = tl_store(some_place(d, memory), *some_value(d));
    d->has_stored = true;
}

static void note_time(tl_context *tl)
{
    size_t pe = (size_t)tl_program_id(0);
    notes[pe * STEPS + note_count[pe]++] = tl_now();
}

static void await(tl_context *tl, desk *d)
{
    uint64_t what = kb_rng_below(&d->rng, 4);
    if (what == 0)
        note_time(tl);
    else if (what == 1 && d->has_stored)
        tl_wait(d->stored);
    else
        tl_wait(*some_value(d));
}

/* Calls that wait for something else than those below. */
static void do_more(tl_context *tl, desk *d, tl_ptr memory)
{
    tl_dims shape = tl_shape(now_running.side, now_running.side);
    tl_tensor *a = some_value(d), *b = some_value(d), *c = some_value(d);
    tl_tensor acc, index;
    switch (kb_rng_below(&d->rng, 5)) {
    case 0:
        if (now_running.values < MAX_VALUES)
            break; /* there is little TCM */
        acc = tl_zeros(shape, TL_F32);
        acc = tl_dot(*a, *b, .acc = acc);
        (void)tl_store(some_place(d, memory) + MATRICES / 2, acc);
        acc = tl_dot(*b, *c, .acc = acc); /* when it has been stored */
        tl_free(acc);
        break;
    case 1:
        index = tl_zeros(tl_shape(now_running.side, 1), TL_I32);
        tl_free(tl_gather(*a, index, 1));
        tl_free(index);
        break;
    case 2:
        (void)tl_store(memory + MATRICES / 2, *a);
        replace(tl, b, tl_load(memory + MATRICES / 2, shape, TL_F16));
        break;
    case 3: /* within its own memory, and again */
        (void)tl_store(memory + MATRICES / 2, *a);
        (void)tl_store(memory + MATRICES / 2, *b);
        break;
    default:
        (void)tl_item_or(tl_sum(tl_sum(*a, 0), 1), 0);
        break;
    }
}

static void do_something(tl_context *tl, desk *d, tl_ptr memory)
{
    if (now_running.more && kb_rng_below(&d->rng, 4) == 0) {
        do_more(tl, d, memory);
        return;
    }
    uint64_t what = kb_rng_below(&d->rng, 12);
    if (what < 6)
        compute(tl, d);
    else if (what < 10)
        move(tl, d, memory);
    else if (what == 10 && now_running.composites)
        multiply_in_memory(tl, d, memory);
    else
        await(tl, d);
}

/* To the next PE and from the one before. All PEs decide alike. */
static void exchange(tl_context *tl, desk *d, tl_ptr memory, kb_rng *shared)
{
    tl_dims shape = tl_shape(now_running.side, now_running.side);
    uint64_t how = kb_rng_below(shared, 4);
    if (now_running.more && kb_rng_below(shared, 3) == 0) {
        tl_ptr to = memory + MATRICES / 4;
        tl_tensor stored = tl_recv_async("W", shape, TL_F16, .dst = to);
        (void)tl_send("E", *some_value(d));
        if (how == 0)
            tl_wait(stored);
        if (how == 1)
            replace(tl, some_value(d), tl_load(to, shape, TL_F16));
        tl_free(stored);
        return;
    }
    if (how == 0 && now_running.fits) {
        (void)tl_send("E", *some_value(d));
        replace(tl, some_value(d), tl_recv("W", shape, TL_F16));
        return;
    }
    if (how == 1 && now_running.fits) {
        (void)tl_send("E", *some_value(d));
        do_something(tl, d, memory);
        replace(tl, some_value(d), tl_recv(TL_ANY, shape, TL_F16));
        return;
    }
    tl_tensor received = tl_recv_async("W", shape, TL_F16);
    if (how == 2)
        do_something(tl, d, memory);
    (void)tl_send("E", *some_value(d));
    if (how == 3)
        do_something(tl, d, memory);
    replace(tl, some_value(d), received);
}

KB_KERNEL(anything, tl_ptr memory)
{
    kb_rng shared;
    desk d = {.has_stored = false};
    kb_rng_init(&shared, now_running.seed);
    kb_rng_init(&d.rng, now_running.seed * 1000 + (uint64_t)tl_program_id(0));
    tl_dims shape = tl_shape(now_running.side, now_running.side);
    for (int i = 0; i < now_running.values; i++)
        d.values[i] = tl_load(some_place(&d, memory), shape, TL_F16);
    for (int i = 0; i < STEPS / 2; i++) {
        if (kb_rng_below(&shared, 4) == 0 && now_running.messages)
            exchange(tl, &d, memory, &shared);
        else
            do_something(tl, &d, memory);
    }
    note_time(tl);
}

/* ---- Machines ---------------------------------------------------------------------------- */

static const char *const machines[] = {
    NULL,
    "{ pe_cpu: { queue_depth: 1 } }",
    "{ pe_cpu: { queue_depth: 2 }, pe_dma: { channels: 1 } }",
    "{ pe_tcm: { capacity_mib: 2, reserved_mib: 1 } }",
    "{ pe_tcm: { capacity_mib: 2, reserved_mib: 1, bw_gbs: 100 }, pe_cpu: { queue_depth: 2 } }",
};

/* With `more`: much happens at one instant, or commands take longer to issue than to carry out. */
static const char *const more_machines[] = {
    "{ pe_cpu: { issue_ns: 0 } }",
    "{ pe_cpu: { issue_ns: 0, queue_depth: 1 }, pe_dma: { channels: 1 } }",
    "{ pe_cpu: { issue_ns: 200 } }",
    "{ pe_tcm: { bw_gbs: 20 }, pe_cpu: { queue_depth: 3 }, pe_dma: { channels: 3 } }",
};

static ipcq_settings random_settings(kb_rng *rng)
{
    static const kb_memory buffers[] = {KB_TCM, KB_TCM, KB_HBM, KB_SRAM};
    return (ipcq_settings){.buffer = buffers[kb_rng_below(rng, 4)],
                           .polls = kb_rng_below(rng, 3) == 0,
                           .n_slots = 1 + (uint32_t)kb_rng_below(rng, 4),
                           .slot_bytes = kb_rng_below(rng, 2) ? 1024 : 65536,
                           .credit_bytes = 16};
}

/* A machine with queues for the kernels of that seed, and `now_running` for them. */
static inline void prepare(uint64_t seed, bool more, rig_options options, rig *r)
{
    kb_rng rng;
    kb_rng_init(&rng, test_seed(seed));
    const char *machine = machines[kb_rng_below(&rng, sizeof machines / sizeof machines[0])];
    ipcq_settings settings = random_settings(&rng);
    bool large = kb_rng_below(&rng, 4) == 0;
    now_running = (plan){.seed = test_seed(seed) + 1,
                         .side = large ? 256 : 32,
                         .values = large ? 3 : MAX_VALUES,
                         .composites = kb_rng_below(&rng, 2),
                         .messages = kb_rng_below(&rng, 4) > 0,
                         .more = more};
    uint64_t bytes = (uint64_t)(now_running.side * now_running.side) * 2;
    if (large)
        settings.slot_bytes = 65536;
    if (large && settings.n_slots > 2)
        settings.n_slots = 2; /* there is little TCM */
    now_running.fits = bytes <= settings.n_slots * settings.slot_bytes;
    if (more && seed % 2 == 1)
        machine = more_machines[seed / 2 % (sizeof more_machines / sizeof more_machines[0])];
    memset(notes, 0, sizeof notes);
    memset(note_count, 0, sizeof note_count);
    expect_ok(rig_try_with(r, one_cube(machine), options));
    expect_ok(ring_try(r, PES, &settings));
}

#endif
