/*
 * test_queues.c: what kernels send and receive, how long it takes, and what it waits for.
 *
 * In these tests PE 0 and PE 1 are at one router. What one sends to the other's TCM passes its DMA,
 * the router and the other DMA: 5 + 1 + 5 ns, and the bytes at 256 GB/s. A credit of 16 bytes takes
 * 11.0625 ns. A kernel begins after 20 ns, a command takes 1 ns to issue, and tl_full() of up to 64
 * elements 5 ns.
 */
#include "queue_rig.h"

enum { OUT = 1 << 20 };

/* ---- There and back ---- */

KB_KERNEL(pass, tl_ptr memory, int n)
{
    tl_send("E", tl_full(tl_shape(n), TL_F32, (double)tl_program_id(0)));
    tl_store(memory + OUT, tl_recv("W", tl_shape(n), TL_F32));
}

static void what_is_sent_east_arrives_from_the_west(void **state)
{
    (void)state;
    rig r = ring_of(4, &small_slots);
    uint64_t before = tcm_free_at(&r, 0);
    (void)run_all(&r, 4, pass, MEMORY, 8);
    for (uint32_t i = 0; i < 4; i++)
        assert_true(number_at(&r, i, OUT, KB_F32) == (i + 3) % 4);
    assert_int_equal(tcm_free_at(&r, 0), before);
    rig_fini(&r);
}

/* Both directions lead to the same PE, and each message still comes by its own. */
KB_KERNEL(both_ways, tl_ptr memory)
{
    double me = (double)tl_program_id(0);
    tl_send("W", tl_full(tl_shape(1), TL_F32, 10 + me));
    tl_send("E", tl_full(tl_shape(1), TL_F32, 20 + me));
    tl_store(memory + OUT, tl_recv("W", tl_shape(1), TL_F32));
    tl_store(memory + OUT + 4, tl_recv("E", tl_shape(1), TL_F32));
}

static void a_ring_of_two_does_not_mix_up_its_directions(void **state)
{
    (void)state;
    rig r = ring_of(2, &small_slots);
    (void)run_all(&r, 2, both_ways, MEMORY);
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(number_at(&r, i, OUT, KB_F32) == 20 + (1 - i));
        assert_true(number_at(&r, i, OUT + 4, KB_F32) == 10 + (1 - i));
    }
    rig_fini(&r);
}

KB_KERNEL(ask, tl_ptr memory)
{
    tl_store(memory + OUT, tl_full(tl_shape(1), TL_F32,
                                   tl_can_send("E") + 10 * tl_can_recv("E") +
                                       100 * tl_can_send("parent") + 1000 * tl_can_recv(TL_ANY)));
}

static void a_kernel_can_ask_for_directions(void **state)
{
    (void)state;
    rig r = rig_default();
    (void)time_of(&r, ask, MEMORY);
    assert_true(number_at(&r, 0, OUT, KB_F32) == 0); /* it has no queues */
    const ipcq_edge one_way[] = {{pe_at(0), "E", pe_at(1)}};
    expect_ok(connect_try(&r, one_way, 1, &small_slots));
    (void)run_all(&r, 3, ask, MEMORY);
    assert_true(number_at(&r, 0, OUT, KB_F32) == 1);
    assert_true(number_at(&r, 1, OUT, KB_F32) == 10); /* by the sender's name of it */
    assert_true(number_at(&r, 2, OUT, KB_F32) == 0);  /* has no part in it */
    rig_fini(&r);
}

/* ---- Times ---- */

KB_KERNEL(stream, tl_ptr memory, int n, int times)
{
    if (tl_program_id(0) == 0) {
        tl_tensor x = tl_full(tl_shape(n), TL_F32, 3);
        for (int i = 0; i < times; i++)
            tl_send("E", x);
    } else {
        for (int i = 0; i < times; i++)
            TL_SCOPE {
                tl_store(memory + OUT, tl_recv("W", tl_shape(n), TL_F32));
            }
    }
}

KB_KERNEL(receive_only, tl_ptr memory, int n, int times)
{
    (void)memory;
    tl_tensor x = tl_full(tl_shape(n), TL_F32, 3);
    for (int i = 0; i < times; i++)
        if (tl_program_id(0) == 0)
            tl_send("E", x);
        else
            ignore(tl_recv("W", tl_shape(n), TL_F32));
}

static kb_time time_of_stream(ipcq_settings settings, int times)
{
    rig r = ring_of(2, &settings);
    ending ends[2];
    expect_ok(run_on(&r, 2, &receive_only, (const tl_arg[]){MEMORY, 64, times}, ends));
    for (int i = 0; i < 2; i++)
        expect_ok(ends[i].err);
    rig_fini(&r);
    return ends[1].outcome.end;
}

/*
 * The value is there at 20 + 1 + 5 = 26, and its 256 bytes at the peer at 26 + 11 + 1 = 38: the
 * receiver waits for them. A second one goes right behind it: one channel of the DMA has the
 * first, another the second, and the link is free 1 ns after the first began: 39.
 */
static void a_message_takes_the_time_of_its_bytes(void **state)
{
    (void)state;
    assert_int_equal(time_of_stream(small_slots, 1), 38 * KB_NS);
    assert_int_equal(time_of_stream(small_slots, 2), 39 * KB_NS);
}

/*
 * One slot. The first message is there at 38, as above. It is taken over at once, so the credit is
 * back at 38 + 11.0625 = 49.0625, the next command is issued by 50.0625, and arrives at 62.0625;
 * each further one comes 24.0625 later.
 */
static void a_sender_without_credit_sleeps(void **state)
{
    (void)state;
    ipcq_settings one = small_slots;
    one.n_slots = 1;
    assert_int_equal(time_of_stream(one, 1), 38 * KB_NS);
    assert_int_equal(time_of_stream(one, 2), 62062500);
    assert_int_equal(time_of_stream(one, 3), 62062500 + 24062500);
}

/*
 * The same, but the sender asks at 22 (when it has issued the first) and every 8 ns from then on:
 * it sees the credit of 49.0625 at 54, and the message arrives 1 + 12 later. For the third one it
 * asks from 55 on, has the credit of 67 + 11.0625 at 79, and it is there at 92.
 */
static void a_sender_without_credit_polls(void **state)
{
    (void)state;
    ipcq_settings one = small_slots;
    one.n_slots = 1;
    one.polls = true;
    assert_int_equal(time_of_stream(one, 2), 67 * KB_NS);
    assert_int_equal(time_of_stream(one, 3), 92 * KB_NS);
}

/* PE 0 of that is busy for 22 - 20, then for 32 of polling and 1 of issuing, and so on. */
static void polling_keeps_the_pe_cpu_busy(void **state)
{
    (void)state;
    for (int polls = 0; polls < 2; polls++) {
        ipcq_settings one = small_slots;
        one.n_slots = 1;
        one.polls = polls;
        rig r = ring_of(2, &one);
        ending ends[2];
        expect_ok(run_on(&r, 2, &receive_only, (const tl_arg[]){MEMORY, 64, 3}, ends));
        kb_time asking = polls ? (54 - 22) + (79 - 55) : 0;
        assert_int_equal(ends[0].outcome.busy[KB_UNIT_CPU], (4 + asking) * KB_NS);
        size_t count;
        const kb_op_sum *sums = kb_oplog_sums(r.log, &count);
        uint64_t found = 0;
        for (size_t i = 0; i < count; i++)
            if (strcmp(sums[i].name, "poll") == 0)
                found += sums[i].count;
        assert_int_equal(found, polls ? 2 : 0);
        rig_fini(&r);
    }
}

/*
 * Rings in HBM: a write of 256 bytes to the peer's slice takes 83.04 + 1.25 (as a store to one's
 * own), so it is there at 110.29; the receiver reads it from its slice in 90.1425 + 1.25.
 */
static void rings_outside_the_tcm_are_read_by_the_dma(void **state)
{
    (void)state;
    ipcq_settings far = small_slots;
    far.buffer = KB_HBM;
    assert_int_equal(time_of_stream(far, 1), 201682500);
}

/* Waiting for others is communication: all of it, but for issuing. */
static void waiting_counts_as_communication(void **state)
{
    (void)state;
    ipcq_settings one = small_slots;
    one.n_slots = 1;
    rig r = ring_of(2, &one);
    ending ends[2];
    expect_ok(run_on(&r, 2, &stream, (const tl_arg[]){MEMORY, 64, 2}, ends));
    /* PE 0 computes for 5, and sends or waits from 26 until 62.0625 but for 1 of issuing. Its
     * sends, to another PE of its cube, take 12 each. It lacks credit from 22 to 49.0625: for as
     * many bytes as it sends from 26 to 38, so they share that time; alone from there on. */
    const kb_time_sum *causes = ends[0].outcome.causes;
    assert_int_equal(causes[KB_CAUSE_VECTOR], 5 * KB_NS);
    assert_int_equal(causes[KB_CAUSE_CUBE_PES], 6 * KB_NS + 12 * KB_NS);
    assert_int_equal(causes[KB_CAUSE_CREDIT], 6 * KB_NS + 11062500);
    kb_split_time split = kb_split_causes(causes);
    assert_int_equal(split.memory, 0);
    assert_int_equal(split.communication, 24 * KB_NS + 11062500);
    assert_int_equal(split.idle, 62062500 - 5 * KB_NS - 24 * KB_NS - 11062500);
    /* PE 1 waits from 21 until 38, and has a store under way from 39 on, for more than 83 ns. From
     * 40 to 62.0625 it waits for as many bytes of the second message as well. */
    assert_int_equal(ends[1].outcome.causes[KB_CAUSE_MESSAGE], 17 * KB_NS + 22062500 / 2);
    assert_int_equal(kb_split_causes(ends[1].outcome.causes).communication,
                     17 * KB_NS + 22062500 / 2);
    rig_fini(&r);
}

typedef struct waits {
    size_t count;
    kb_op ops[8]; /* sends, and waiting for messages and credits */
} waits;

static void keep_wait(void *self, const kb_op *op)
{
    waits *kept = self;
    bool is_credit = op->unit == KB_UNIT_IPCQ && strcmp(op->name, "credit") == 0;
    if ((op->unit == KB_UNIT_IPCQ && !is_credit) || strcmp(op->name, "send") == 0)
        kept->ops[kept->count++] = *op;
}

static void expect_wait(const kb_op *op, const char *name, uint32_t pe, uint64_t message,
                        kb_time start, kb_time end)
{
    assert_string_equal(op->name, name);
    assert_string_equal(op->direction, strcmp(name, "recv") == 0 ? "W" : "E");
    assert_false(op->unfinished);
    assert_int_equal(op->pe.pe, pe);
    assert_int_equal(op->message, message);
    assert_int_equal(op->start, start);
    assert_int_equal(op->end, end);
}

/*
 * Two messages and one slot, as above: PE 0 sends from 26 on, has no credit from 22 until 49.0625,
 * and sends again from 50.0625 on. PE 1 waits from 22 and from 39 on. Whoever watches is told; in
 * the sums there is nothing of it.
 */
static void waiting_is_shown_with_its_message(void **state)
{
    (void)state;
    ipcq_settings one = small_slots;
    one.n_slots = 1;
    rig r = ring_of(2, &one);
    waits kept = {0};
    kb_oplog_watch(r.log, keep_wait, &kept);
    ending ends[2];
    expect_ok(run_on(&r, 2, &receive_only, (const tl_arg[]){MEMORY, 64, 2}, ends));
    assert_int_equal(kept.count, 5);
    expect_wait(&kept.ops[0], "send", 0, 1, 26 * KB_NS, 38 * KB_NS);
    expect_wait(&kept.ops[1], "recv", 1, 1, 22 * KB_NS, 38 * KB_NS);
    expect_wait(&kept.ops[2], "await credit", 0, 0, 22 * KB_NS, 49062500);
    expect_wait(&kept.ops[3], "send", 0, 2, 50062500, 62062500);
    expect_wait(&kept.ops[4], "recv", 1, 2, 39 * KB_NS, 62062500);
    assert_int_equal(kept.ops[4].bytes, 256);
    assert_true(kept.ops[4].line > 0);
    size_t count;
    const kb_op_sum *sums = kb_oplog_sums(r.log, &count);
    for (size_t i = 0; i < count; i++)
        assert_true(sums[i].unit != KB_UNIT_IPCQ || strcmp(sums[i].name, "credit") == 0);
    rig_fini(&r);
}

/* ---- Sizes ---- */

static double sum_of(rig *r, uint32_t pe, uint64_t offset, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += number_at(r, pe, offset + 4 * i, KB_F32);
    return sum;
}

KB_KERNEL(pass_range, tl_ptr memory, int n)
{
    if (tl_program_id(0) == 0)
        tl_send("E", tl_arange(0, n));
    else
        tl_store(memory + OUT, tl_cast(tl_recv("W", tl_shape(n), TL_I32), TL_F32));
}

/* As large as a slot, a byte more, many slots, more than the ring has. */
static void a_message_may_have_any_size(void **state)
{
    (void)state;
    static const int sizes[] = {0, 1, 63, 64, 65, 128, 255, 256, 257, 1000};
    static const kb_memory kinds[] = {KB_TCM, KB_HBM, KB_SRAM};
    for (size_t k = 0; k < 3; k++)
        for (uint32_t n_slots = 1; n_slots <= 4; n_slots += 3)
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                ipcq_settings settings = small_slots;
                settings.buffer = kinds[k];
                settings.n_slots = n_slots;
                rig r = ring_of(2, &settings);
                int n = sizes[i];
                (void)run_all(&r, 2, pass_range, MEMORY, n);
                assert_true(sum_of(&r, 1, OUT, (size_t)n) == (double)n * (n - 1) / 2);
                rig_fini(&r);
            }
}

KB_KERNEL(send_two, tl_ptr memory, int n, int m, int sync)
{
    if (tl_program_id(0) == 1) {
        ignore(tl_recv("W", tl_shape(n), TL_I8));
        ignore(tl_recv("W", tl_shape(m), TL_I8));
        return;
    }
    tl_tensor x = tl_full(tl_shape(n), TL_I8, 1);
    tl_tensor y = tl_full(tl_shape(m), TL_I8, 1);
    tl_wait(x);
    tl_wait(y);
    kb_time start = tl_now();
    if (sync)
        tl_send_sync("E", x);
    else
        tl_wait(tl_send("E", x));
    tl_store(memory + OUT, tl_full(tl_shape(1), TL_F32, (double)(tl_now() - start) / 1e6));
    tl_send("E", y);
}

/*
 * Slots of 256 bytes, and a message of 256: 1 ns to issue, and 12. Of 1024: the last of 4 segments
 * is issued after 4 ns, when the link has taken 3 of them: 4 + 12. Of 257: the byte is issued at 2,
 * when the link is free again, and there 11 + 1 / 256 later. Slots of 4096, and 4097 bytes: the
 * byte is issued at 2 too, and its packet goes in between those of the first segment, so it is
 * there long before: all are after 1 + 11 + 4097 / 256.
 */
static void waiting_for_a_send_waits_until_all_of_it_is_there(void **state)
{
    (void)state;
    static const struct {
        uint64_t slot;
        int bytes;
        double ns;
    } cases[] = {{256, 256, 13}, {256, 1024, 16}, {256, 257, 13.003907}, {4096, 4097, 28.003907}};
    for (int sync = 0; sync < 2; sync++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            ipcq_settings settings = small_slots;
            settings.slot_bytes = cases[i].slot;
            rig r = ring_of(2, &settings);
            (void)run_all(&r, 2, send_two, MEMORY, cases[i].bytes, 1, sync);
            assert_true(number_at(&r, 0, OUT, KB_F32) == (double)(float)cases[i].ns);
            rig_fini(&r);
        }
}

/* ---- Receiving from any ---- */

KB_KERNEL(gather, tl_ptr memory, int times)
{
    int64_t me = tl_program_id(0);
    if (me > 0) {
        for (int i = 0; i < times; i++)
            TL_SCOPE {
                tl_send("hub", tl_full(tl_shape(1), TL_F32, (double)(10 * me + i)));
            }
        return;
    }
    tl_wait(tl_load(memory, tl_shape(100000), TL_F32)); /* all that can come is there */
    for (int i = 0; i < 3 * times; i++) {
        const char *from = NULL;
        tl_tensor x = tl_recv(TL_ANY, tl_shape(1), TL_F32, .from = &from);
        tl_store(memory + OUT + 8 * i, x);
        tl_store(memory + OUT + 8 * i + 4,
                 tl_full(tl_shape(1), TL_F32, strtod(from + strlen("from"), NULL)));
    }
}

static void any_takes_turns(void **state)
{
    (void)state;
    rig r = rig_default();
    const ipcq_edge edges[] = {
        {pe_at(1), "hub", pe_at(0)},   {pe_at(2), "hub", pe_at(0)},   {pe_at(3), "hub", pe_at(0)},
        {pe_at(0), "from1", pe_at(1)}, {pe_at(0), "from2", pe_at(2)}, {pe_at(0), "from3", pe_at(3)},
    };
    expect_ok(connect_try(&r, edges, 6, &small_slots));
    (void)run_all(&r, 4, gather, MEMORY, 3);
    for (uint32_t i = 0; i < 9; i++) {
        uint32_t from = 1 + i % 3;
        assert_true(number_at(&r, 0, OUT + 8 * i, KB_F32) == 10 * from + i / 3);
        assert_true(number_at(&r, 0, OUT + 8 * i + 4, KB_F32) == from);
    }
    rig_fini(&r);
}

/* ---- To a destination ---- */

KB_KERNEL(to_memory, tl_ptr memory, int n, int async)
{
    if (tl_program_id(0) == 0) {
        tl_send("E", tl_add(tl_arange(0, n), 1));
        return;
    }
    tl_store(memory + OUT, tl_full(tl_shape(n), TL_I32, 77));
    tl_tensor there = async ? tl_recv_async("W", tl_shape(n), TL_I32, .dst = memory + OUT)
                            : tl_recv("W", tl_shape(n), TL_I32, .dst = memory + OUT);
    tl_wait(there);
    tl_tensor back = tl_load(memory + OUT, tl_shape(n), TL_I32);
    tl_store(memory + OUT + 4096, tl_cast(back, TL_F32));
    tl_store(memory + OUT + 8192, tl_mul(tl_cast(there, TL_F32), 2));
}

static void what_is_received_can_be_stored(void **state)
{
    (void)state;
    static const kb_memory kinds[] = {KB_TCM, KB_HBM, KB_SRAM};
    for (size_t k = 0; k < 3; k++)
        for (int async = 0; async < 2; async++)
            for (int n = 0; n <= 100; n += 50) {
                ipcq_settings settings = small_slots;
                settings.buffer = kinds[k];
                rig r = ring_of(2, &settings);
                uint64_t before = tcm_free_at(&r, 1);
                (void)run_all(&r, 2, to_memory, MEMORY, n, async);
                assert_true(sum_of(&r, 1, OUT + 4096, (size_t)n) == (double)n * (n + 1) / 2);
                assert_true(sum_of(&r, 1, OUT + 8192, (size_t)n) == (double)n * (n + 1));
                assert_int_equal(tcm_free_at(&r, 1), before);
                rig_fini(&r);
            }
}

/* A receive into memory does not hold up what is sent after it: else these two would wait for each
 * other. What was stored there before does not overtake it. */
KB_KERNEL(receive_first, tl_ptr memory)
{
    tl_store(memory + OUT, tl_full(tl_shape(64), TL_F32, 5));
    tl_tensor there = tl_recv_async("W", tl_shape(64), TL_F32, .dst = memory + OUT);
    tl_send("E", tl_full(tl_shape(64), TL_F32, (double)tl_program_id(0)));
    tl_store(memory + OUT + 512, there);
}

static void a_receive_into_memory_does_not_hold_up_sends(void **state)
{
    (void)state;
    rig r = ring_of(2, &small_slots);
    (void)run_all(&r, 2, receive_first, MEMORY);
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(sum_of(&r, i, OUT, 64) == 64 * (1 - i));
        assert_true(sum_of(&r, i, OUT + 512, 64) == 64 * (1 - i));
    }
    rig_fini(&r);
}

/* ---- Asynchronous receives ---- */

KB_KERNEL(post_first, tl_ptr memory, int count, int ends_early)
{
    tl_tensor posted[8], sent[8], sum = tl_zeros(tl_shape(8), TL_F32);
    for (int i = 0; i < count; i++) {
        posted[i] = tl_recv_async("W", tl_shape(8), TL_F32);
        sent[i] = tl_full(tl_shape(8), TL_F32, 1 << i);
    }
    for (int i = 0; i < count; i++)
        tl_assign(&sum, tl_add(sum, tl_mul(posted[i], i + 1)));
    for (int i = 0; i < count; i++)
        tl_send("E", sent[i]); /* while the vector engine waits */
    if (ends_early)
        return;
    tl_wait(posted[count - 1]);
    tl_store(memory + OUT, sum);
}

/* Posted before anything was sent, and used as operands at once. */
static void receives_are_values_before_they_are_there(void **state)
{
    (void)state;
    static const kb_memory kinds[] = {KB_TCM, KB_HBM, KB_SRAM};
    for (size_t k = 0; k < 3; k++)
        for (int early = 0; early < 2; early++) {
            ipcq_settings settings = small_slots;
            settings.buffer = kinds[k];
            rig r = ring_of(4, &settings);
            uint64_t before = tcm_free_at(&r, 3);
            (void)run_all(&r, 4, post_first, MEMORY, 6, early);
            double expected = early ? 0 : 1 * 1 + 2 * 2 + 3 * 4 + 4 * 8 + 5 * 16 + 6 * 32;
            for (uint32_t i = 0; i < 4; i++)
                assert_true(number_at(&r, i, OUT, KB_F32) == expected);
            assert_int_equal(tcm_free_at(&r, 3), before); /* they came although it had returned */
            rig_fini(&r);
        }
}

KB_KERNEL(fill_the_tcm, tl_ptr memory, int n)
{
    if (tl_program_id(0) == 0) {
        tl_wait(tl_load(memory, tl_shape(1000), TL_F32));
        tl_send("E", tl_full(tl_shape(n), TL_F32, 2));
        return;
    }
    tl_free(tl_recv_async("W", tl_shape(n), TL_F32));
    tl_store(memory + OUT, tl_full(tl_shape(n), TL_F32, 4)); /* has to wait for its place */
}

static void a_freed_receive_gives_its_place_back_when_it_has_come(void **state)
{
    (void)state;
    ipcq_settings settings = small_slots;
    settings.slot_bytes = 64 << 10;
    rig r = ring_of(2, &settings);
    int n = (7 << 20) / 4; /* of 12 MiB, of which the rings take 512 KiB */
    (void)run_all(&r, 2, fill_the_tcm, MEMORY, n);
    assert_true(number_at(&r, 1, OUT + 4 * (uint64_t)(n - 1), KB_F32) == 4);
    rig_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_sent_east_arrives_from_the_west),
        cmocka_unit_test(a_ring_of_two_does_not_mix_up_its_directions),
        cmocka_unit_test(a_kernel_can_ask_for_directions),
        cmocka_unit_test(a_message_takes_the_time_of_its_bytes),
        cmocka_unit_test(a_sender_without_credit_sleeps),
        cmocka_unit_test(a_sender_without_credit_polls),
        cmocka_unit_test(polling_keeps_the_pe_cpu_busy),
        cmocka_unit_test(rings_outside_the_tcm_are_read_by_the_dma),
        cmocka_unit_test(waiting_counts_as_communication),
        cmocka_unit_test(waiting_is_shown_with_its_message),
        cmocka_unit_test(a_message_may_have_any_size),
        cmocka_unit_test(waiting_for_a_send_waits_until_all_of_it_is_there),
        cmocka_unit_test(any_takes_turns),
        cmocka_unit_test(what_is_received_can_be_stored),
        cmocka_unit_test(a_receive_into_memory_does_not_hold_up_sends),
        cmocka_unit_test(receives_are_values_before_they_are_there),
        cmocka_unit_test(a_freed_receive_gives_its_place_back_when_it_has_come),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
