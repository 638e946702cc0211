/*
 * test_messages.c: what the kinds of requests do, what is wrong with a message, and mappings. The
 * memory and the addresses that messages name are in test_addresses.c.
 *
 * Checks H6.
 */
#include "programs.h"

static void expect_parts(const kb_completion *c)
{
    assert_true(c->overhead >= 0 && c->wire >= 0 && c->drain >= 0 && c->queueing >= 0);
    assert_int_equal(c->overhead + c->wire + c->drain + c->queueing, c->ended - c->issued);
}

/* ---- Kinds ---- */

static void the_parts_of_every_kind_add_up(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_pe pe = {1, 1, 2};
    uint64_t va;
    expect_ok(kb_va_alloc(ctx, 4096, &va));
    const kb_message messages[] = {
        write_to(at(KB_HBM, 3, 1, 2, 5), 1000),
        write_to(at(KB_TCM, 0, 0, 1, 0), 1),
        write_to(at(KB_SRAM, 2, 1, 0, 7), 70000),
        read_from(at(KB_HBM, 3, 1, 2, 5), 1000),
        read_from(at(KB_TCM, 0, 0, 1, 0), 1),
        read_from(at(KB_SRAM, 2, 1, 0, 7), 70000),
        map_to(pe, va, hbm(1, 0), 4096),
        dma(pe, virtual_at(va), hbm(2, 0), 4096),
        dma(pe, at(KB_TCM, 1, 1, 2, 0), at(KB_TCM, 1, 1, 2, 64), 64), /* touches no fabric */
        dma(pe, at(KB_SRAM, 0, 0, 0, 0), at(KB_TCM, 1, 1, 2, 64), 300000),
        unmap_from(pe, va),
    };
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++) {
        kb_time before = kb_context_now(ctx);
        kb_request request = submit(ctx, messages[i]);
        assert_int_equal(kb_context_now(ctx), before);
        kb_completion c = wait_for(ctx, request);
        assert_int_equal(c.issued, before);
        assert_int_equal(c.ended, kb_context_now(ctx));
        assert_true(c.ended > c.issued);
        expect_parts(&c);
        bool moves = messages[i].kind != KB_MMU_MAP && messages[i].kind != KB_MMU_UNMAP;
        assert_int_equal(c.bytes, moves ? messages[i].bytes : 0);
        expect_ok(kb_request_free(ctx, request));
    }
    kb_context_destroy(ctx);
}

/* Behind others there is queueing, and the parts still add up. */
static void the_parts_add_up_when_requests_meet(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_request requests[40];
    for (uint32_t i = 0; i < 40; i++) {
        kb_location there = at(KB_HBM, i % SIPS, i % CUBES, i % PES, 0);
        kb_pe pe = {i % SIPS, i % CUBES, i / 2 % PES};
        requests[i] = submit(ctx, i % 3 == 0   ? write_to(there, 100 + i * 999)
                                  : i % 3 == 1 ? read_from(there, 100 + i * 999)
                                               : dma(pe, there, hbm(i / 4 % SIPS, 0), 100000));
    }
    kb_time queueing = 0;
    for (uint32_t i = 0; i < 40; i++) {
        kb_completion c = wait_for(ctx, requests[i]);
        expect_parts(&c);
        assert_int_equal(c.issued, 0);
        queueing += c.queueing;
    }
    assert_true(queueing > 0);
    kb_context_destroy(ctx);
}

/*
 * 1,000 bytes from the host to the TCM of a PE at the router of the IO chiplet's port, on a machine
 * of one SIP of one cube with one router. The way is host, switch, PCIe endpoint, IO router, UCIe
 * of the chiplet, UCIe of the cube, router, DMA of the PE. overhead  switch 5, endpoint 50, IO
 * router 1, two UCIe ports 16, router 1, DMA 5: 78 ns wire      100 + 100 + 5 + 5 + 5 mm and
 * nothing in the cube at 10 ps: 2.15 ns drain     1,000 bytes at 64 GB/s, the slowest on the
 * way: 15.625 ns
 */
static void a_write_takes_what_its_way_takes(void **state)
{
    (void)state;
    temporary file = file_of("system: { sips: { count: 1 } }\n"
                             "sip: { cube_mesh: { w: 1, h: 1 } }\n"
                             "cube: { noc: { k: 1 }, pe_layout: { pe_per_router: 1 } }\n");
    kb_context *ctx = open_small(&(kb_context_options){.topology = file.path});
    remove_file(&file);
    kb_completion c = wait_for(ctx, submit(ctx, write_to(at(KB_TCM, 0, 0, 0, 0), 1000)));
    assert_int_equal(c.overhead, 78 * KB_NS);
    assert_int_equal(c.wire, 2150 * KB_PS);
    assert_int_equal(c.drain, 15625 * KB_PS);
    assert_int_equal(c.queueing, 0);
    kb_context_destroy(ctx);
}

/*
 * A command to a PE is 16 bytes, 16 more for a range to map and 32 more for a copy. It goes over
 * 64 GB/s to the IO processor, and over 256 GB/s to the cube's and to the PE: 16 bytes more take
 * 0.25 + 0.0625 + 0.0625 ns more, 32 twice that. A copy inside the TCM takes 4096 / 512 = 8 ns
 * there.
 */
static void commands_take_as_long_as_they_are(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    const kb_pe pe = {2, 1, 3};
    uint64_t va;
    expect_ok(kb_va_alloc(ctx, 64, &va));
    kb_completion map = wait_for(ctx, submit(ctx, map_to(pe, va, hbm(0, 0), 64)));
    kb_completion unmap = wait_for(ctx, submit(ctx, unmap_from(pe, va)));
    kb_completion copy = wait_for(
        ctx, submit(ctx, dma(pe, at(KB_TCM, 2, 1, 3, 0), at(KB_TCM, 2, 1, 3, 4096), 4096)));
    assert_int_equal(map.drain - unmap.drain, 687500); /* 32, 32 and 16 bytes more */
    assert_int_equal(copy.drain - unmap.drain, 8750 * KB_PS);
    assert_int_equal(map.overhead, unmap.overhead);
    assert_int_equal(copy.overhead, unmap.overhead);
    assert_int_equal(map.wire, unmap.wire);
    kb_context_destroy(ctx);
}

/* Whatever the pieces that it goes in: alone in the machine nothing waits for others. */
static void a_lone_request_does_not_queue(void **state)
{
    (void)state;
    const kb_pe pe = {0, 0, 0};
    const kb_location places[] = {
        hbm(0, 0), at(KB_TCM, 0, 0, 0, 0), at(KB_HBM, 0, 1, 2, 0), at(KB_SRAM, 0, 0, 0, 0),
        hbm(1, 0), at(KB_TCM, 0, 0, 3, 0),
    };
    enum { count = sizeof places / sizeof *places };
    static const uint64_t sizes[] = {1, 4096, 100000, 1 << 20};
    kb_context *ctx = open_small(NULL);
    for (int i = 0; i < 4 * count * count; i++) {
        kb_location from = places[i % count], to = places[i / count % count];
        to.offset += 4 << 20;
        uint64_t bytes = sizes[i / count / count];
        kb_completion done = wait_for(ctx, submit(ctx, dma(pe, from, to, bytes)));
        assert_int_equal(done.queueing, 0);
        assert_int_equal(done.overhead + done.wire + done.drain, done.ended - done.issued);
    }
    kb_context_destroy(ctx);
}

static void fill(unsigned char *bytes, size_t count, unsigned seed)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (unsigned char)(i * 7 + seed + i / 256);
}

static void put(kb_context *ctx, kb_location to, const void *data, uint64_t bytes)
{
    kb_message message = write_to(to, bytes);
    message.data = data;
    (void)carry_out(ctx, message);
}

static void get(kb_context *ctx, kb_location from, void *into, uint64_t bytes)
{
    kb_message message = read_from(from, bytes);
    message.into = into;
    (void)carry_out(ctx, message);
}

static void what_was_written_is_read_and_copied(void **state)
{
    (void)state;
    enum { bytes = 10000 };
    static unsigned char data[bytes], back[bytes];
    kb_context *ctx = open_small(NULL);
    const kb_location stations[] = {
        at(KB_HBM, 0, 1, 3, 12345),
        at(KB_TCM, 1, 0, 1, 1),
        at(KB_SRAM, 3, 1, 0, 777),
        at(KB_TCM, 2, 1, 2, 64),
        hbm(0, 0),
    };
    fill(data, bytes, 1);
    put(ctx, stations[0], data, bytes);
    memset(data, 0, bytes);          /* it was copied */
    for (uint32_t i = 1; i < 5; i++) /* each time by another PE, near or far */
        (void)carry_out(ctx, dma((kb_pe){i % SIPS, i % CUBES, 3 - i % PES}, stations[i - 1],
                                 stations[i], bytes));
    fill(data, bytes, 1);
    for (uint32_t i = 0; i < 5; i++) {
        memset(back, 0xaa, bytes);
        get(ctx, stations[i], back, bytes);
        assert_memory_equal(back, data, bytes);
    }
    kb_context_destroy(ctx);
}

static void contents_change_when_a_write_is_submitted(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    char data[8] = "written", back[8] = "";
    kb_message message = write_to(hbm(0, 0), 8);
    message.data = data;
    kb_request writing = submit(ctx, message);
    kb_message reading = read_from(hbm(0, 0), 8);
    reading.into = back;
    kb_request request = submit(ctx, reading);
    assert_string_equal(back, "written"); /* filled when it is submitted */
    assert_int_equal(kb_context_now(ctx), 0);
    memset(back, 0, 8);
    (void)wait_for(ctx, request);
    assert_string_equal(back, "");
    (void)wait_for(ctx, writing);
    kb_context_destroy(ctx);
}

static void without_data_contents_stay_as_they_are(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    char back[4] = "zzz";
    get(ctx, hbm(0, 100), back, 4); /* nobody wrote there */
    assert_memory_equal(back, "\0\0\0\0", 4);
    put(ctx, hbm(0, 100), "abc", 4);
    kb_time with = carry_out(ctx, write_to(hbm(0, 100), 4));
    kb_time without = carry_out(ctx, read_from(hbm(0, 100), 4));
    assert_true(with > 0 && without > 0);
    get(ctx, hbm(0, 100), back, 4);
    assert_string_equal(back, "abc");
    kb_context_destroy(ctx);
}

/* What a DMA does by itself happens when its PE starts it, not when it was asked to. */
static void a_dma_moves_contents_when_its_pe_starts(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    put(ctx, hbm(0, 0), "old", 4);
    kb_request copying = submit(ctx, dma((kb_pe){0, 0, 0}, hbm(0, 0), hbm(1, 0), 4));
    char back[4] = "";
    kb_message reading = read_from(hbm(1, 0), 4);
    reading.into = back;
    expect_ok(kb_request_free(ctx, submit(ctx, reading)));
    assert_string_equal(back, ""); /* not there yet */
    kb_message message = write_to(hbm(0, 0), 4);
    message.data = "new";
    expect_ok(kb_request_free(ctx, submit(ctx, message)));
    (void)wait_for(ctx, copying);
    get(ctx, hbm(1, 0), back, 4);
    assert_string_equal(back, "new");
    kb_context_destroy(ctx);
}

static void a_dma_may_copy_onto_itself(void **state)
{
    (void)state;
    enum { bytes = 200000 };
    static unsigned char data[bytes], back[bytes];
    kb_context *ctx = open_small(NULL);
    fill(data, bytes, 3);
    put(ctx, hbm(0, 0), data, bytes);
    (void)carry_out(ctx, dma((kb_pe){0, 0, 1}, hbm(0, 0), hbm(0, 13), bytes - 13));
    get(ctx, hbm(0, 13), back, bytes - 13);
    assert_memory_equal(back, data, bytes - 13); /* as memmove(), not as memcpy() */
    kb_context_destroy(ctx);
}

static void in_timing_only_contexts_the_same_time_passes_and_nothing_is_kept(void **state)
{
    (void)state;
    kb_time ended[2];
    for (int only = 0; only < 2; only++) {
        kb_context *ctx = open_small(&(kb_context_options){.timing_only = only});
        assert_int_equal(kb_context_is_timing_only(ctx), only);
        char back[4] = "zzz";
        put(ctx, hbm(0, 0), "abc", 4);
        (void)carry_out(ctx, dma((kb_pe){1, 0, 1}, hbm(0, 0), hbm(1, 0), 4));
        for (uint32_t sip = 0; sip < 2; sip++) {
            get(ctx, hbm(sip, 0), back, 4);
            assert_string_equal(back, only ? "" : "abc");
        }
        expect_error_about(kb_request_wait(ctx, submit(ctx, faulty(0)), NULL), KB_ERR_FAULT,
                           "0xdead0000 is not mapped");
        ended[only] = kb_context_now(ctx);
        kb_context_destroy(ctx);
    }
    assert_int_equal(ended[0], ended[1]);
}

/* ---- Wrong messages ---- */

typedef struct wrong {
    kb_message message;
    kb_code code;
    const char *says;
} wrong;

static kb_message of_kind(int kind)
{
    return (kb_message){.kind = (kb_message_kind)kind, .bytes = 1};
}

static kb_location nowhere(void)
{
    return at((kb_memory)17, 0, 0, 0, 0);
}

static void refuse_all(kb_context *ctx, const wrong *wrongs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        kb_request request = {12345};
        kb_error *err = kb_request_submit(ctx, &wrongs[i].message, &request);
        expect_error_about(err, wrongs[i].code, wrongs[i].says);
        assert_int_equal(request.id, 0);
    }
    /* Nothing of it has left a trace. */
    assert_int_equal(kb_sim_get_stats(kb_context_sim(ctx)).pending, 0);
    expect_ok(kb_synchronize(ctx));
    assert_int_equal(kb_context_now(ctx), 0);
}

static void messages_about_what_is_not_there_are_refused(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    const kb_pe pe = {0, 0, 0};
    const uint64_t va = 0x100000000;
    const wrong wrongs[] = {
        {of_kind(5), KB_ERR_INPUT, "kb_request_submit: invalid message kind 5"},
        {of_kind(-1), KB_ERR_INPUT, "kb_request_submit: invalid message kind -1"},
        {write_to(hbm(0, 0), 0), KB_ERR_INPUT, "memory write: 0 bytes; expected at least 1"},
        {read_from(hbm(0, 0), 0), KB_ERR_INPUT, "memory read: 0 bytes; expected at least 1"},
        {dma(pe, hbm(0, 0), hbm(1, 0), 0), KB_ERR_INPUT, "PE DMA: 0 bytes; expected at least 1"},
        {map_to(pe, va, hbm(0, 0), 0), KB_ERR_INPUT, "MMU map: 0 bytes; expected at least 1"},

        {write_to(hbm(4, 0), 1), KB_ERR_INPUT,
         "memory write: sip4 does not exist: the machine has 4, numbered from 0"},
        {write_to(at(KB_HBM, 0, 2, 0, 0), 1), KB_ERR_INPUT,
         "memory write: cube2 does not exist: a SIP has 2, numbered from 0"},
        {read_from(at(KB_TCM, 0, 0, 4, 0), 1), KB_ERR_INPUT,
         "memory read: pe4 does not exist: a cube has 4, numbered from 0"},
        {read_from(at(KB_SRAM, UINT32_MAX, 0, 0, 0), 1), KB_ERR_INPUT,
         "memory read: sip4294967295 does not exist: the machine has 4, numbered from 0"},
        {write_to(nowhere(), 1), KB_ERR_INPUT,
         "memory write: invalid memory 17: expected hbm, tcm or sram"},
        {dma((kb_pe){0, 0, 4}, hbm(0, 0), hbm(1, 0), 1), KB_ERR_INPUT,
         "PE DMA: pe4 does not exist: a cube has 4, numbered from 0"},
        {dma((kb_pe){0, 2, 0}, hbm(0, 0), hbm(1, 0), 1), KB_ERR_INPUT, "PE DMA: cube2 does not"},
        {dma((kb_pe){4, 0, 0}, hbm(0, 0), hbm(1, 0), 1), KB_ERR_INPUT, "PE DMA: sip4 does not"},
        {map_to((kb_pe){0, 0, 4}, va, hbm(0, 0), 1), KB_ERR_INPUT, "MMU map: pe4 does not exist"},
        {unmap_from((kb_pe){9, 0, 0}, va), KB_ERR_INPUT, "MMU unmap: sip9 does not exist"},
    };
    refuse_all(ctx, wrongs, sizeof wrongs / sizeof *wrongs);
    kb_context_destroy(ctx);
}

static void messages_beyond_memories_and_addresses_are_refused(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_machine m = kb_context_machine(ctx);
    const kb_pe pe = {0, 0, 0};
    uint64_t va;
    expect_ok(kb_va_alloc(ctx, 4096, &va));
    const uint64_t last_va = 0x100000000 + ((uint64_t)1 << 48);
    const wrong wrongs[] = {
        {write_to(hbm(0, m.hbm_bytes), 1), KB_ERR_FAULT,
         "memory write: out of bounds: 1 byte at sip0.cube0.pe0.hbm+0x300000000; the capacity "
         "of the memory is 12884901888"},
        {write_to(hbm(0, 1), m.hbm_bytes), KB_ERR_FAULT, "out of bounds"},
        {write_to(hbm(0, 0), UINT64_MAX), KB_ERR_FAULT, "out of bounds"},
        {write_to(hbm(0, UINT64_MAX), 1), KB_ERR_FAULT, "out of bounds"},
        {write_to(hbm(0, UINT64_MAX), UINT64_MAX), KB_ERR_FAULT, "out of bounds"},
        {read_from(at(KB_TCM, 0, 0, 0, m.tcm_bytes), 1), KB_ERR_FAULT,
         "memory read: out of bounds: 1 byte at sip0.cube0.pe0.tcm+0xc00000"},
        {read_from(at(KB_SRAM, 1, 1, 0, m.sram_bytes - 3), 4), KB_ERR_FAULT,
         "memory read: out of bounds: 4 bytes at sip1.cube1.sram+0x1fffffd"},
        {dma(pe, hbm(0, m.hbm_bytes), hbm(1, 0), 1), KB_ERR_FAULT,
         "PE DMA: out of bounds: 1 byte at sip0"},
        {dma(pe, hbm(0, 0), hbm(1, m.hbm_bytes), 1), KB_ERR_FAULT,
         "PE DMA: out of bounds: 1 byte at sip1"},
        {dma(pe, nowhere(), hbm(1, 0), 1), KB_ERR_INPUT, "PE DMA: invalid memory 17"},
        {map_to(pe, va, hbm(0, m.hbm_bytes - 1), 2), KB_ERR_FAULT,
         "MMU map: out of bounds: 2 bytes at sip0"},

        {write_to(virtual_at(va), 1), KB_ERR_INPUT,
         "memory write: expected a physical memory, found KB_VIRTUAL: translate the address "
         "first"},
        {read_from(virtual_at(va), 1), KB_ERR_INPUT,
         "memory read: expected a physical memory, found KB_VIRTUAL"},
        {map_to(pe, va, virtual_at(va), 1), KB_ERR_INPUT,
         "MMU map: expected a physical memory, found KB_VIRTUAL"},

        {map_to(pe, va - 1, hbm(0, 0), 1), KB_ERR_FAULT,
         "MMU map: 1 bytes at 0xffffffff are not addresses that kb_va_alloc() gave"},
        {map_to(pe, va, hbm(0, 0), 4097), KB_ERR_FAULT, "are not addresses that"},
        {map_to(pe, va + 4096, hbm(0, 0), 1), KB_ERR_FAULT, "are not addresses that"},
        {map_to(pe, last_va, hbm(0, 0), 1), KB_ERR_FAULT, "are not addresses that"},
        {map_to(pe, last_va - 1, hbm(0, 0), 2), KB_ERR_FAULT, "are not addresses that"},
        {map_to(pe, UINT64_MAX, hbm(0, 0), 2), KB_ERR_FAULT, "are not addresses that"},
        {unmap_from(pe, va), KB_ERR_FAULT, "MMU unmap: nothing is mapped at 0x100000000 on sip0"},
    };
    refuse_all(ctx, wrongs, sizeof wrongs / sizeof *wrongs);
    kb_context_destroy(ctx);
}

static void the_last_byte_of_every_memory_can_be_written(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_machine m = kb_context_machine(ctx);
    const kb_location last[] = {
        at(KB_HBM, SIPS - 1, CUBES - 1, PES - 1, m.hbm_bytes - 1),
        at(KB_TCM, SIPS - 1, CUBES - 1, PES - 1, m.tcm_bytes - 1),
        at(KB_SRAM, SIPS - 1, CUBES - 1, 0, m.sram_bytes - 1),
    };
    for (int i = 0; i < 3; i++) {
        char byte = 0;
        put(ctx, last[i], "!", 1);
        get(ctx, last[i], &byte, 1);
        assert_int_equal(byte, '!');
    }
    kb_context_destroy(ctx);
}

/* ---- Mappings ---- */

static uint64_t some_addresses(kb_context *ctx, uint64_t bytes)
{
    uint64_t va;
    expect_ok(kb_va_alloc(ctx, bytes, &va));
    return va;
}

static const kb_pe pe0 = {0, 0, 0}, pe1 = {0, 0, 1}, far_pe = {0, 1, 3};

/* 64 bytes from the virtual address to where nobody minds. */
static kb_error *use_address(kb_context *ctx, kb_pe pe, uint64_t va)
{
    kb_request request = submit(ctx, dma(pe, virtual_at(va), at(KB_SRAM, 0, 0, 0, 0), 64));
    kb_error *err = kb_request_wait(ctx, request, NULL);
    expect_ok(kb_request_free(ctx, request));
    return err;
}

static void expect_unmapped(kb_context *ctx, kb_pe pe, uint64_t va)
{
    expect_error_about(use_address(ctx, pe, va), KB_ERR_FAULT, "is not mapped");
    expect_ok(kb_synchronize(ctx));
}

static void a_mapping_holds_from_its_message_to_the_next(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    uint64_t va = some_addresses(ctx, 8192);
    put(ctx, hbm(3, 4096), "elsewhere", 10);
    expect_unmapped(ctx, pe0, va);
    (void)carry_out(ctx, map_to(pe0, va, hbm(3, 4096), 8192));
    (void)carry_out(ctx, dma(pe0, virtual_at(va), hbm(0, 0), 10));
    char back[10];
    get(ctx, hbm(0, 0), back, 10);
    assert_string_equal(back, "elsewhere");
    expect_ok(use_address(ctx, pe0, va + 8192 - 64));
    expect_unmapped(ctx, pe0, va + 8192 - 63); /* one byte too many */
    expect_unmapped(ctx, pe0, va - 1);
    (void)carry_out(ctx, unmap_from(pe0, va));
    expect_unmapped(ctx, pe0, va);
    kb_context_destroy(ctx);
}

/* To the virtual address, too. */
static void a_dma_writes_to_virtual_addresses(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    uint64_t va = some_addresses(ctx, 4096);
    (void)carry_out(ctx, map_to(far_pe, va, at(KB_TCM, 2, 0, 1, 640), 4096));
    put(ctx, hbm(1, 0), "there", 6);
    (void)carry_out(ctx, dma(far_pe, hbm(1, 0), virtual_at(va + 100), 6));
    char back[6];
    get(ctx, at(KB_TCM, 2, 0, 1, 740), back, 6);
    assert_string_equal(back, "there");
    kb_context_destroy(ctx);
}

/* A DMA that is faulty from some byte on moves nothing. */
static void a_faulty_dma_moves_nothing(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    uint64_t va = some_addresses(ctx, 4096);
    (void)carry_out(ctx, map_to(pe0, va, hbm(0, 0), 4096));
    put(ctx, hbm(0, 0), "moved", 6);
    kb_request request = submit(ctx, dma(pe0, virtual_at(va), hbm(1, 0), 4097));
    expect_error_about(kb_request_wait(ctx, request, NULL), KB_ERR_FAULT, "is not mapped");
    char back[6] = "zzzzz";
    get(ctx, hbm(1, 0), back, 6);
    assert_string_equal(back, "");
    kb_context_destroy(ctx);
}

typedef struct early_bird {
    uint64_t va;
    kb_time sooner; /* by so much the DMA is submitted before the mapping; after it if negative */
    bool unmapping;
    kb_error *err;
    kb_time mapped;
} early_bird;

static kb_error *asks_early(kb_context *ctx, uint32_t rank, void *arg)
{
    early_bird *e = arg;
    kb_time delay = rank == 0 ? -e->sooner : e->sooner; /* rank 0 copies, rank 1 maps */
    if (delay > 0)
        kb_co_sleep(kb_context_worker(ctx), delay);
    if (rank == 0) {
        e->err = use_address(ctx, pe0, e->va);
        return NULL;
    }
    kb_message message = map_to(pe0, e->va, hbm(0, 0), 4096);
    e->mapped = carry_out(ctx, e->unmapping ? unmap_from(pe0, e->va) : message);
    return NULL;
}

static kb_error *ask(kb_time sooner, bool unmapping)
{
    kb_context *ctx = open_small(NULL);
    early_bird e = {.va = some_addresses(ctx, 4096), .sooner = sooner, .unmapping = unmapping};
    if (unmapping)
        (void)carry_out(ctx, map_to(pe0, e.va, hbm(0, 0), 4096));
    expect_ok(kb_spawn(ctx, asks_early, &e, 2));
    kb_context_destroy(ctx);
    return e.err;
}

/*
 * A command takes half of its time to get there. A DMA that is asked for a little before the
 * mapping is, gets there a little before; one that is asked for a little after it finds the
 * mapping, long before the host knows that it is done.
 */
static void mappings_take_effect_when_their_message_arrives(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_time whole = carry_out(ctx, map_to(pe0, some_addresses(ctx, 4096), hbm(0, 0), 4096));
    kb_context_destroy(ctx);
    for (int eighth = 1; eighth <= 3; eighth++) {
        kb_time some = whole * eighth / 8;
        expect_error_about(ask(some, false), KB_ERR_FAULT, "which is not mapped in this PE");
        expect_ok(ask(-some, false));
        expect_ok(ask(some, true));
        expect_error_about(ask(-some, true), KB_ERR_FAULT, "which is not mapped in this PE");
    }
}

static void each_pe_is_mapped_for_itself(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    uint64_t va = some_addresses(ctx, 4096);
    kb_message message = map_to(pe0, va, hbm(0, 0), 4096);
    (void)carry_out(ctx, message);
    expect_unmapped(ctx, pe1, va);
    message.pe = pe1; /* the same, into a second one */
    (void)carry_out(ctx, message);
    (void)carry_out(ctx, message); /* and once more, which changes nothing */
    message.pe = far_pe;
    (void)carry_out(ctx, message);
    expect_ok(use_address(ctx, pe0, va));
    expect_ok(use_address(ctx, pe1, va));
    (void)carry_out(ctx, unmap_from(pe0, va));
    expect_unmapped(ctx, pe0, va);
    expect_ok(use_address(ctx, pe1, va));
    expect_ok(use_address(ctx, far_pe, va));
    (void)carry_out(ctx, unmap_from((kb_pe){0, 1, 0}, va)); /* where it never was */
    expect_ok(use_address(ctx, pe1, va));
    (void)carry_out(ctx, unmap_from(pe1, va));
    (void)carry_out(ctx, unmap_from(far_pe, va));
    expect_unmapped(ctx, far_pe, va);
    kb_request request; /* it is in no PE any more */
    message = unmap_from(pe0, va);
    expect_error_about(kb_request_submit(ctx, &message, &request), KB_ERR_FAULT,
                       "MMU unmap: nothing is mapped at");
    kb_context_destroy(ctx);
}

/* Addresses mean something for each SIP. */
static void another_sip_may_map_the_same_addresses_to_something_else(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    uint64_t va = some_addresses(ctx, 4096);
    put(ctx, hbm(0, 0), "zero", 5);
    put(ctx, hbm(1, 0), "one!", 5);
    for (uint32_t sip = 0; sip < 2; sip++)
        (void)carry_out(ctx, map_to((kb_pe){sip, 0, 0}, va, hbm(sip, 0), 4096));
    for (uint32_t sip = 0; sip < 2; sip++) {
        char back[5];
        (void)carry_out(ctx, dma((kb_pe){sip, 0, 0}, virtual_at(va), hbm(sip, 64), 5));
        get(ctx, hbm(sip, 64), back, 5);
        assert_string_equal(back, sip == 0 ? "zero" : "one!");
    }
    (void)carry_out(ctx, unmap_from((kb_pe){0, 0, 0}, va));
    expect_unmapped(ctx, pe0, va);
    expect_ok(use_address(ctx, (kb_pe){1, 0, 0}, va));
    kb_context_destroy(ctx);
}

static void refuse_mapping(kb_context *ctx, kb_message message)
{
    kb_request request;
    expect_error_about(kb_request_submit(ctx, &message, &request), KB_ERR_INPUT,
                       "cannot be mapped: it overlaps");
}

static void mappings_that_overlap_are_refused(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    uint64_t va = some_addresses(ctx, 3 * 4096);
    (void)carry_out(ctx, map_to(pe0, va + 4096, hbm(0, 0), 4096));
    refuse_mapping(ctx, map_to(pe0, va + 4096, hbm(0, 1), 4096)); /* elsewhere */
    refuse_mapping(ctx, map_to(pe0, va + 4096, hbm(1, 0), 4096));
    refuse_mapping(ctx, map_to(pe0, va + 4096, at(KB_TCM, 0, 0, 0, 0), 4096));
    refuse_mapping(ctx, map_to(pe0, va + 4096, hbm(0, 0), 4095)); /* not as long */
    refuse_mapping(ctx, map_to(pe1, va + 4096, hbm(0, 0), 4097));
    refuse_mapping(ctx, map_to(pe0, va, hbm(0, 0), 4097)); /* by one byte at either end */
    refuse_mapping(ctx, map_to(pe0, va + 8191, hbm(0, 0), 1));
    refuse_mapping(ctx, map_to(pe0, va, hbm(0, 0), 3 * 4096));
    (void)carry_out(ctx, map_to(pe0, va, hbm(0, 0), 4096)); /* neighbours do not */
    (void)carry_out(ctx, map_to(pe0, va + 8192, hbm(0, 0), 4096));
    expect_ok(use_address(ctx, pe0, va + 4096 - 32)); /* from one into the next */
    kb_context_destroy(ctx);
}

/* While they are under way, too; and once it is unmapped the addresses can mean something else. */
static void a_mapping_under_way_is_there(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    uint64_t va = some_addresses(ctx, 4096);
    kb_request mapping = submit(ctx, map_to(pe0, va, hbm(0, 0), 4096));
    refuse_mapping(ctx, map_to(pe0, va, hbm(1, 0), 4096));
    expect_error_about(kb_va_free(ctx, va), KB_ERR_FAULT, "is still mapped on sip0");
    kb_request second = submit(ctx, map_to(pe1, va, hbm(0, 0), 4096)); /* the same one */
    (void)wait_for(ctx, mapping);
    (void)wait_for(ctx, second);
    kb_request gone = submit(ctx, unmap_from(pe0, va));
    kb_request gone_too = submit(ctx, unmap_from(pe1, va));
    refuse_mapping(ctx, map_to(pe0, va, hbm(1, 0), 4096));
    (void)wait_for(ctx, gone);
    (void)wait_for(ctx, gone_too);
    (void)carry_out(ctx, map_to(pe0, va, hbm(1, 0), 4096));
    expect_ok(use_address(ctx, pe0, va));
    kb_context_destroy(ctx);
}

static void mapping_and_unmapping_over_and_over_ends_well(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    uint64_t va = some_addresses(ctx, 4096);
    for (int i = 0; i < 50; i++) { /* in all orders of arrival that there may be */
        (void)submit(ctx, map_to(pe0, va, hbm(0, 0), 4096));
        (void)submit(ctx, unmap_from(pe0, va));
        (void)submit(ctx, map_to(far_pe, va, hbm(0, 0), 4096));
        (void)submit(ctx, unmap_from(pe1, va));
        (void)submit(ctx, unmap_from(far_pe, va));
        if (i % 3 == 0)
            expect_ok(kb_synchronize(ctx));
    }
    expect_ok(kb_synchronize(ctx));
    kb_context_destroy(ctx);
}

static void the_mapping_of_a_tensor_is_not_to_be_meddled_with(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_tensor x;
    kb_tensor_spec spec = bytes_spec("x", 5000);
    uint64_t va;
    expect_ok(kb_empty(ctx, &spec, &x));
    expect_ok(kb_tensor_va(ctx, x, &va));
    for (int synchronized = 0; synchronized < 2; synchronized++) {
        kb_request request;
        kb_message message = unmap_from(pe0, va);
        expect_error_about(kb_request_submit(ctx, &message, &request), KB_ERR_FAULT,
                           "MMU unmap: nothing is mapped at");
        message = map_to(pe0, va + 4999, hbm(0, 0), 1);
        expect_error_about(kb_request_submit(ctx, &message, &request), KB_ERR_FAULT,
                           "are not addresses that kb_va_alloc() gave");
        expect_error_about(kb_va_free(ctx, va), KB_ERR_FAULT, "no range of kb_va_alloc() starts");
        expect_ok(kb_synchronize(ctx));
    }
    expect_ok(use_address(ctx, pe0, va)); /* it is still there */
    expect_ok(kb_tensor_free(ctx, x));
    expect_ok(kb_synchronize(ctx));
    expect_unmapped(ctx, pe0, va);
    kb_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_parts_of_every_kind_add_up),
        cmocka_unit_test(the_parts_add_up_when_requests_meet),
        cmocka_unit_test(a_write_takes_what_its_way_takes),
        cmocka_unit_test(commands_take_as_long_as_they_are),
        cmocka_unit_test(a_lone_request_does_not_queue),
        cmocka_unit_test(what_was_written_is_read_and_copied),
        cmocka_unit_test(contents_change_when_a_write_is_submitted),
        cmocka_unit_test(without_data_contents_stay_as_they_are),
        cmocka_unit_test(a_dma_moves_contents_when_its_pe_starts),
        cmocka_unit_test(a_dma_may_copy_onto_itself),
        cmocka_unit_test(in_timing_only_contexts_the_same_time_passes_and_nothing_is_kept),
        cmocka_unit_test(messages_about_what_is_not_there_are_refused),
        cmocka_unit_test(messages_beyond_memories_and_addresses_are_refused),
        cmocka_unit_test(the_last_byte_of_every_memory_can_be_written),
        cmocka_unit_test(a_mapping_holds_from_its_message_to_the_next),
        cmocka_unit_test(a_dma_writes_to_virtual_addresses),
        cmocka_unit_test(a_faulty_dma_moves_nothing),
        cmocka_unit_test(mappings_take_effect_when_their_message_arrives),
        cmocka_unit_test(each_pe_is_mapped_for_itself),
        cmocka_unit_test(another_sip_may_map_the_same_addresses_to_something_else),
        cmocka_unit_test(mappings_that_overlap_are_refused),
        cmocka_unit_test(a_mapping_under_way_is_there),
        cmocka_unit_test(mapping_and_unmapping_over_and_over_ends_well),
        cmocka_unit_test(the_mapping_of_a_tensor_is_not_to_be_meddled_with),
    };
    return cmocka_run_group_tests_name("messages", tests, NULL, NULL);
}
