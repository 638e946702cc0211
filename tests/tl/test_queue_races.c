/*
 * test_queue_races.c: values, not addresses (K1): what was received or sent does not change,
 * whatever becomes of the slot or the memory that it was in. Each way in which addresses would go
 * wrong, with rings of every kind and of one slot and four, and in a run without time; and all of
 * it takes the same time with events elided, without, and without data.
 *
 * Checks Q4.
 */
#include "queue_rig.h"

enum { N = 64, OUT = 1 << 20 };

/* ---- Slots that are used again ---- */

/* 8 messages of one shape through the same slots; all are held, and looked at in the end. */
KB_KERNEL(hold_all, tl_ptr memory)
{
    tl_tensor held[8];
    for (int i = 0; i < 8; i++)
        if (tl_program_id(0) == 0)
            tl_send("E", tl_add(tl_load(memory, tl_shape(N), TL_F32), i));
        else
            held[i] = tl_recv("W", tl_shape(N), TL_F32);
    for (int i = 8; i-- > 0 && tl_program_id(0) == 1;)
        tl_store(memory + OUT + 4096 * i, tl_mul(held[i], 2));
}

static void check_held(rig *r)
{
    for (int i = 0; i < 8; i++)
        assert_true(number_at(r, 1, OUT + 4096 * (uint64_t)i + 4, KB_F32) == 2 * (i + 1));
}

/* Others have another shape and type: more rows, fewer bytes. */
KB_KERNEL(hold_shapes, tl_ptr memory)
{
    bool sends = tl_program_id(0) == 0;
    tl_tensor big = {0}, small = {0};
    for (int i = 0; i < 6; i++)
        TL_SCOPE {
            if (sends) {
                tl_tensor x = tl_load(memory, tl_shape(8, 8), TL_F32);
                tl_send("E", tl_add(x, 10 * i));
                tl_send("E", tl_cast(tl_add(tl_reshape(x, tl_shape(N)), 10 * i + 1), TL_F16));
                continue;
            }
            tl_tensor b = tl_recv("W", tl_shape(8, 8), TL_F32);
            tl_tensor s = tl_recv("W", tl_shape(N), TL_F16);
            if (i == 1) {
                tl_assign(&big, b);
                tl_assign(&small, s);
            }
        }
    if (sends)
        return;
    tl_store(memory + OUT, big);
    tl_store(memory + OUT + 4096, small);
}

static void check_shapes(rig *r)
{
    for (uint64_t i = 0; i < N; i++) {
        assert_true(number_at(r, 1, OUT + 4 * i, KB_F32) == 10 + (double)i);
        assert_true(number_at(r, 1, OUT + 4096 + 2 * i, KB_F16) == 11 + (double)i);
    }
}

/* One operand was in a slot that is used again, the other in scratch that is used again, before the
 * operation begins: the vector engine has much to do first. */
KB_KERNEL(slot_and_scratch, tl_ptr memory)
{
    bool sends = tl_program_id(0) == 0;
    if (sends) {
        for (int i = 0; i < 5; i++)
            tl_send("E", tl_add(tl_load(memory, tl_shape(N), TL_F32), 100 * i));
        return;
    }
    tl_tensor busy = tl_zeros(tl_shape(1 << 14), TL_F32);
    tl_tensor scratch = tl_load(memory, tl_shape(N), TL_F32);
    tl_tensor got = tl_recv("W", tl_shape(N), TL_F32);
    for (int i = 0; i < 4; i++)
        tl_assign(&busy, tl_exp(busy));
    tl_tensor sum = tl_add(got, scratch);
    tl_free(got);
    tl_free(scratch);
    tl_store(memory, tl_full(tl_shape(N), TL_F32, -1)); /* where scratch was loaded from */
    for (int i = 1; i < 5; i++)
        TL_SCOPE {
            ignore(tl_full(tl_shape(N), TL_F32, -i));
            ignore(tl_recv("W", tl_shape(N), TL_F32));
        }
    tl_store(memory + OUT, sum);
}

static void check_sum(rig *r)
{
    for (uint64_t i = 0; i < N; i++)
        assert_true(number_at(r, 1, OUT + 4 * i, KB_F32) == 2 * (double)i);
}

/* ---- Values that are passed on ---- */

/* Nobody has computed what is passed on, and nobody has received it when it is. */
KB_KERNEL(chain, tl_ptr memory)
{
    int64_t me = tl_program_id(0), last = tl_num_programs(0) - 1;
    for (int i = 0; i < 3; i++)
        TL_SCOPE {
            tl_tensor x = me == 0 ? tl_add(tl_load(memory, tl_shape(N), TL_F32), i)
                                  : tl_recv_async("W", tl_shape(N), TL_F32);
            if (me < last) {
                tl_send("E", x);
                tl_send("E", tl_mul(x, 2));
            }
            if (me > 0) {
                tl_tensor doubled = tl_recv_async("W", tl_shape(N), TL_F32);
                if (me == last)
                    tl_store(memory + OUT + 4096 * i, tl_sub(doubled, x));
            }
        }
}

/* The last has x and 2 x of the one before it, which are all the x of PE 0: the difference is x. */
static void check_chain(rig *r)
{
    for (uint64_t i = 0; i < 3; i++)
        for (uint64_t j = 0; j < N; j++)
            assert_true(number_at(r, 7, OUT + 4096 * i + 4 * j, KB_F32) == (double)(i + j));
}

/* Around the ring and back to where it came from, adding at each PE. */
KB_KERNEL(all_the_way_round, tl_ptr memory)
{
    tl_tensor x = tl_load(memory, tl_shape(N), TL_F32);
    for (int64_t i = 0; i < tl_num_programs(0); i++) {
        tl_send("E", x);
        x = tl_add(tl_recv_async("W", tl_shape(N), TL_F32), (double)(tl_program_id(0) + 1));
    }
    tl_store(memory + OUT, x);
}

static void check_round(rig *r)
{
    for (uint32_t pe = 0; pe < 8; pe++)
        for (uint64_t j = 0; j < N; j++)
            assert_true(number_at(r, pe, OUT + 4 * j, KB_F32) == (double)j + 36);
}

/* ---- Senders that go on ---- */

/* What is sent is what was in memory when the DMA came to it, not what is stored there next. */
KB_KERNEL(overwrite_source, tl_ptr memory)
{
    if (tl_program_id(0) == 1) {
        for (int i = 0; i < 3; i++)
            tl_store(memory + OUT + 4096 * i, tl_recv("W", tl_shape(N), TL_F32));
        return;
    }
    tl_tensor after = tl_full(tl_shape(N), TL_F32, -7);
    tl_tensor loaded = tl_load(memory, tl_shape(N), TL_F32);
    tl_wait(after);
    tl_send("E", tl_ref(memory, tl_shape(N), TL_F32));
    tl_store(memory, after);
    tl_send("E", loaded);
    tl_send("E", tl_ref(memory, tl_shape(N), TL_F32));
}

static void check_source(rig *r)
{
    for (uint64_t j = 0; j < N; j++) {
        assert_true(number_at(r, 1, OUT + 4 * j, KB_F32) == (double)j);
        assert_true(number_at(r, 1, OUT + 4096 + 4 * j, KB_F32) == (double)j);
        assert_true(number_at(r, 1, OUT + 8192 + 4 * j, KB_F32) == -7);
    }
}

/* What is freed after it was sent is used for something else. */
KB_KERNEL(free_after_send, tl_ptr memory)
{
    for (int i = 0; i < 6; i++)
        TL_SCOPE {
            if (tl_program_id(0) == 1) {
                tl_store(memory + OUT + 4096 * i, tl_recv("W", tl_shape(N), TL_F32));
                continue;
            }
            tl_tensor x = tl_add(tl_load(memory, tl_shape(N), TL_F32), i);
            tl_send("E", x);
            tl_free(x);
            for (int j = 0; j < 4; j++)
                ignore(tl_full(tl_shape(N), TL_F32, -1));
        }
}

static void check_freed(rig *r)
{
    for (uint64_t i = 0; i < 6; i++)
        for (uint64_t j = 0; j < N; j++)
            assert_true(number_at(r, 1, OUT + 4096 * i + 4 * j, KB_F32) == (double)(i + j));
}

/* What was received into memory and sent on from there; then other things come there. */
KB_KERNEL(through_memory, tl_ptr memory)
{
    int64_t me = tl_program_id(0);
    for (int i = 0; i < 4; i++)
        if (me == 0)
            tl_send("E", tl_add(tl_load(memory, tl_shape(N), TL_F32), i));
        else if (me == 1)
            tl_send("E", tl_recv_async("W", tl_shape(N), TL_F32, .dst = memory + OUT));
        else
            tl_store(memory + OUT + 4096 * i, tl_recv("W", tl_shape(N), TL_F32));
}

static void check_through(rig *r)
{
    for (uint64_t i = 0; i < 4; i++)
        for (uint64_t j = 0; j < N; j++)
            assert_true(number_at(r, 2, OUT + 4096 * i + 4 * j, KB_F32) == (double)(i + j));
}

/* ---- All of them, in every way ---- */

static const struct {
    const kb_kernel *kernel;
    uint32_t pes;
    void (*check)(rig *r);
} races[] = {
    {&hold_all, 2, check_held},           {&hold_shapes, 2, check_shapes},
    {&slot_and_scratch, 2, check_sum},    {&chain, 8, check_chain},
    {&all_the_way_round, 8, check_round}, {&overwrite_source, 2, check_source},
    {&free_after_send, 2, check_freed},   {&through_memory, 3, check_through},
};

static kb_time run_race(size_t which, const ipcq_settings *settings, rig_options options)
{
    rig r = ring_with(races[which].pes, settings, options);
    for (uint32_t pe = 0; pe < races[which].pes && !options.timing_only; pe++)
        for (uint64_t i = 0; i < N; i++)
            put_at(&r, pe, 4 * i, KB_F32, (double)i);
    uint64_t before = tcm_free_at(&r, 0);
    kb_time took =
        run_all_args(&r, races[which].pes, races[which].kernel, (const tl_arg[]){MEMORY});
    assert_int_equal(tcm_free_at(&r, 0), before);
    if (!options.timing_only)
        races[which].check(&r);
    else
        assert_int_equal(mem_memories_content_bytes(r.memories), 0);
    rig_fini(&r);
    return took;
}

static void try_races(kb_memory buffer)
{
    for (uint32_t n_slots = 1; n_slots <= 4; n_slots += 3)
        for (size_t i = 0; i < sizeof races / sizeof *races; i++) {
            /* A message fits into a slot, or takes several. */
            for (uint64_t bytes = 96; bytes <= 256; bytes += 160) {
                ipcq_settings settings = small_slots;
                settings.buffer = buffer;
                settings.n_slots = n_slots;
                settings.slot_bytes = bytes;
                if (bytes == 96 && n_slots == 1 && races[i].kernel == &all_the_way_round)
                    continue; /* all send first, and nobody has begun to receive */
                kb_time took = run_race(i, &settings, (rig_options){0});
                assert_int_equal(run_race(i, &settings, (rig_options){.no_elision = true}), took);
                assert_int_equal(run_race(i, &settings, (rig_options){.timing_only = true}), took);
            }
        }
}

static void values_do_not_change_with_rings_in_tcm(void **state)
{
    (void)state;
    try_races(KB_TCM);
}

static void values_do_not_change_with_rings_in_hbm(void **state)
{
    (void)state;
    try_races(KB_HBM);
}

static void values_do_not_change_with_rings_in_sram(void **state)
{
    (void)state;
    try_races(KB_SRAM);
}

static void values_do_not_change_without_time(void **state)
{
    (void)state;
    const ipcq_settings no_rings = {.buffer = KB_TCM};
    for (size_t i = 0; i < sizeof races / sizeof *races; i++)
        assert_int_equal(run_race(i, &no_rings, (rig_options){.instant = true}), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_do_not_change_with_rings_in_tcm),
        cmocka_unit_test(values_do_not_change_with_rings_in_hbm),
        cmocka_unit_test(values_do_not_change_with_rings_in_sram),
        cmocka_unit_test(values_do_not_change_without_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
