/*
 * suite_messages.c: what commands and small transfers cost on the default machine, timing only,
 * with all of its 256 PEs at work: most of what collectives do.
 *
 * ring: each PE sends messages of 16 bytes or of 4 KiB to the TCM of the next one of its SIP, adds
 * two values after each, and waits until the message is there, as it would for one to come. A
 * message is two commands and a transfer. add: it only adds, as fast as it can: one command each.
 */
#include "suite.h"

#include <kernbench/tl.h>

#include "rt/rt.h"

enum { SLOTS = 8, SIPS = 2, MESH = 4, MESSAGES = 65280 };

/* Where the PE at a position of the ring has its slots: cubes take turns row by row, to and fro. */
static int64_t slots_of(int64_t position, int64_t pes)
{
    int64_t row = position / pes / MESH, column = position / pes % MESH;
    int64_t cube = row * MESH + (row % 2 ? MESH - 1 - column : column);
    return (cube * pes + position % pes) * SLOTS;
}

KB_KERNEL(pass_on, tl_ptr x, int64_t elements, int64_t times, int sends)
{
    int64_t pes = tl_num_programs(0), all = tl_num_programs(1) * pes;
    int64_t row = tl_program_id(1) / MESH, column = tl_program_id(1) % MESH;
    int64_t position =
        (row * MESH + (row % 2 ? MESH - 1 - column : column)) * pes + tl_program_id(0);
    int64_t own = slots_of(position, pes), next = slots_of((position + 1) % all, pes);
    tl_tensor sum = tl_load(x + own * elements * 2, tl_shape(elements), TL_F16);
    tl_tensor one = tl_load(x + own * elements * 2, tl_shape(elements), TL_F16);
    for (int64_t i = 0; i < times; i++) {
        tl_future sent = {0};
        if (sends)
            sent = tl_store(x + (next + i % SLOTS) * elements * 2, sum);
        tl_assign(&sum, tl_add(sum, one));
        tl_wait(sent);
    }
}

typedef struct cost {
    double ns;
    uint64_t messages, events, hops;
} cost;

/* At least this many messages, the same number from each PE. */
static kb_error *pass_messages(kb_context *ctx, uint64_t elements, uint64_t messages, bool sends,
                               cost *c)
{
    kb_machine machine = kb_context_machine(ctx);
    uint64_t pes = (uint64_t)machine.cubes * machine.pes, all = pes * machine.sips;
    uint64_t times = (messages + all - 1) / all;
    const kb_policy by_columns = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    kb_tensor_spec spec = {.shape = KB_SHAPE(1, pes * SLOTS * elements),
                           .memory = KB_TCM,
                           .policy = &by_columns,
                           .access = KB_UNTIMED};
    kb_tensor slots[SIPS];
    for (uint32_t sip = 0; sip < SIPS; sip++) {
        KB_TRY(kb_ahbm_set_device(ctx, sip));
        KB_TRY(kb_empty(ctx, &spec, &slots[sip]));
    }
    uint64_t events = kb_sim_get_stats(kb_context_sim(ctx)).events;
    double start = bench_clock_ns();
    KB_TRY(kb_launch(ctx, NULL, &pass_on, KB_EACH(slots, SIPS), elements, times, sends));
    *c = (cost){.ns = bench_clock_ns() - start,
                .messages = times * all,
                .events = kb_sim_get_stats(kb_context_sim(ctx)).events - events,
                .hops = net_get_stats(rt_get_stats(ctx).fabric).hops};
    return NULL;
}

static kb_error *run_case(uint64_t elements, uint64_t messages, bool sends, cost *c)
{
    kb_context *ctx;
    KB_TRY(kb_context_create(&(kb_context_options){.timing_only = true}, &ctx));
    kb_error *err = pass_messages(ctx, elements, messages, sends, c);
    kb_context_destroy(ctx);
    return err;
}

static kb_error *measure(bench *b, const char *name, uint64_t elements, bool sends)
{
    cost best = {0};
    if (!bench_wants(b, "messages.%s", name))
        return NULL;
    bench_progress(b, "messages.%s", name);
    for (unsigned round = 0; round < b->rounds; round++) {
        cost c;
        KB_TRY(run_case(elements, MESSAGES, sends, &c));
        if (best.ns == 0 || c.ns < best.ns)
            best = c;
    }
    double messages = (double)best.messages;
    bench_report(b, best.ns / messages, "ns/message", "messages.%s.ns", name);
    bench_report(b, (double)best.events / messages, "events/message", "messages.%s.events", name);
    bench_report(b, (double)best.hops / messages, "hops/message", "messages.%s.hops", name);
    return NULL;
}

static kb_error *run(bench *b)
{
    KB_TRY(measure(b, "add", 8, false));
    KB_TRY(measure(b, "ring16", 8, true));
    return measure(b, "ring4096", 2048, true);
}

static kb_error *count_sends(uint32_t elements, uint64_t messages, uint64_t *done)
{
    cost c = {0};
    kb_error *err = run_case(elements, messages, true, &c);
    *done = c.messages;
    return err;
}

static kb_error *count_adds(uint32_t elements, uint64_t messages, uint64_t *done)
{
    cost c = {0};
    kb_error *err = run_case(elements, messages, false, &c);
    *done = c.messages;
    return err;
}

static const bench_work works[] = {
    {"messages.add", count_adds, 8, 5120, 25600},
    {"messages.ring16", count_sends, 8, 5120, 25600},
    {"messages.ring4096", count_sends, 2048, 5120, 25600},
    {0},
};

const bench_suite bench_messages = {
    .title = "Messages: commands and small transfers between neighbours, 256 PEs",
    .run = run,
    .works = works,
};
