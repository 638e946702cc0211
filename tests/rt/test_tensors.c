/*
 * test_tensors.c: what a tensor is: its name, shape and text, its memory and addresses from its
 * creation until it is freed, and who sees what it was made with.
 */
#include "tensors.h"

#include "rt/runtime.h"
#include "support/seed.h"

/* ---- Describing -------------------------------------------------------------------------- */

static void a_tensor_says_what_it_is(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(THREE_SIPS);
    char name[] = "weights";
    kb_policy policy = {.cube = KB_ROW_WISE};
    kb_tensor_spec spec = {
        .name = name, .shape = KB_SHAPE(3, 4), .dtype = KB_BF16, .policy = &policy};
    kb_tensor x;
    expect_ok(kb_ahbm_set_device(ctx, 2));
    expect_ok(kb_empty(ctx, &spec, &x));
    name[0] = 'W'; /* the spec was copied */
    policy.cube = KB_COLUMN_WISE;
    kb_shape shape;
    kb_dtype dtype;
    const char *text;
    uint32_t sip;
    size_t count;
    kb_shard shard;
    expect_ok(kb_tensor_shape(ctx, x, &shape));
    assert_int_equal(shape.rank, 2);
    assert_int_equal(shape.dims[0], 3);
    assert_int_equal(shape.dims[1], 4);
    expect_ok(kb_tensor_dtype(ctx, x, &dtype));
    assert_int_equal(dtype, KB_BF16);
    expect_ok(kb_tensor_name(ctx, x, &text));
    assert_string_equal(text, "weights");
    expect_ok(kb_tensor_device(ctx, x, &sip));
    assert_int_equal(sip, 2);
    expect_ok(kb_tensor_shard_count(ctx, x, &count));
    assert_int_equal(count, 8);
    expect_ok(kb_tensor_shard(ctx, x, 7, &shard));
    assert_int_equal(shard.nbytes, 8); /* one row */
    kb_location at;
    expect_error(kb_tensor_shard(ctx, x, 8, &shard), KB_ERR_FAULT,
                 "kb_tensor_shard: shard 8 of tensor 'weights' does not exist: it has 8, "
                 "numbered from 0");
    expect_error(kb_tensor_shard_location(ctx, x, 8, &at), KB_ERR_FAULT,
                 "kb_tensor_shard_location: shard 8 of tensor 'weights' does not exist: it has 8, "
                 "numbered from 0");
    kb_context_destroy(ctx);
}

static void names_are_made_up_where_none_is_given(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(ONE_PE);
    kb_tensor_spec spec = {.shape = KB_SHAPE(1), .dtype = KB_I8};
    kb_tensor tensors[3];
    expect_ok(kb_empty(ctx, &spec, &tensors[0]));
    expect_ok(kb_from_host(ctx, &spec, "x", 1, &tensors[1]));
    expect_ok(kb_tensor_free(ctx, tensors[0]));
    expect_ok(kb_zeros(ctx, &spec, &tensors[0])); /* in the place of the first one */
    spec.name = "";
    expect_ok(kb_empty(ctx, &spec, &tensors[2]));
    const char *names[3];
    for (int i = 0; i < 3; i++)
        expect_ok(kb_tensor_name(ctx, tensors[i], &names[i]));
    assert_true(strlen(names[0]) > 0 && strlen(names[1]) > 0);
    assert_string_not_equal(names[0], names[1]);
    assert_string_equal(names[2], "");
    kb_context_destroy(ctx);
}

/* Messages are one line, whatever names have in them. */
static void names_cannot_break_messages(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(ONE_PE);
    kb_tensor_spec spec = {.name = "a\nb", .shape = KB_SHAPE(2), .dtype = KB_I8};
    kb_tensor x;
    expect_ok(kb_empty(ctx, &spec, &x));
    char byte;
    expect_error(kb_tensor_to_host(ctx, x, KB_UNTIMED, &byte, 1), KB_ERR_FAULT,
                 "kb_tensor_to_host: tensor 'a\\n"
                 "b': 1 byte given, but the elements take 2");
    kb_context_destroy(ctx);
}

static void tensors_of_the_host_are_on_no_device(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(ONE_PE);
    kb_tensor_spec spec = {.name = "h", .shape = KB_SHAPE(2), .dtype = KB_I8};
    kb_tensor h;
    expect_ok(kb_from_host(ctx, &spec, "ab", 2, &h));
    uint32_t sip;
    uint64_t va;
    size_t count;
    kb_shard shard;
    expect_error(kb_tensor_device(ctx, h, &sip), KB_ERR_FAULT,
                 "kb_tensor_device: tensor 'h' is on the host: copy it to a device first");
    expect_error(kb_tensor_va(ctx, h, &va), KB_ERR_FAULT,
                 "kb_tensor_va: tensor 'h' is on the host: copy it to a device first");
    expect_ok(kb_tensor_shard_count(ctx, h, &count));
    assert_int_equal(count, 0);
    expect_error(kb_tensor_shard(ctx, h, 0, &shard), KB_ERR_FAULT,
                 "kb_tensor_shard: shard 0 of tensor 'h' does not exist: it has 0, numbered "
                 "from 0");
    assert_int_equal(kb_context_now(ctx), 0);
    kb_context_destroy(ctx);
}

static void an_empty_shard_is_nowhere(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(THREE_SIPS);
    kb_policy policy = {.cube = KB_COLUMN_WISE, .num_pes = 1};
    kb_tensor_spec spec = {.name = "x", .shape = KB_SHAPE(3, 1), .dtype = KB_I8, .policy = &policy};
    kb_tensor x;
    kb_location at;
    kb_shard shard;
    expect_ok(kb_empty(ctx, &spec, &x));
    expect_ok(kb_tensor_shard_location(ctx, x, 0, &at));
    expect_ok(kb_tensor_shard(ctx, x, 1, &shard));
    assert_int_equal(shard.nbytes, 0);
    assert_int_equal(shard.cube, 1);
    expect_error(kb_tensor_shard_location(ctx, x, 1, &at), KB_ERR_FAULT,
                 "kb_tensor_shard_location: shard 1 of tensor 'x' is empty");
    kb_context_destroy(ctx);
}

/* ---- The text ---------------------------------------------------------------------------- */

static void expect_repr(kb_context *ctx, kb_tensor tensor, const char *expected)
{
    for (int access = KB_TIMED; access <= KB_UNTIMED; access++) {
        char *text;
        expect_ok(kb_tensor_repr(ctx, tensor, (kb_access)access, &text));
        assert_string_equal(text, expected);
        free(text);
    }
}

/* (1 + 2 + 3 - 4) / 4 is 0.5, and the root of 1 + 4 + 9 + 16 is 5.47723. */
static void its_text_has_shape_dtype_mean_and_norm(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(THREE_SIPS);
    const int8_t numbers[] = {1, 2, 3, -4};
    kb_policy policy = {.cube = KB_COLUMN_WISE, .pe = KB_REPLICATE};
    kb_tensor_spec spec = {.name = "x", .shape = KB_SHAPE(2, 2), .dtype = KB_I8, .policy = &policy};
    kb_tensor h, x;
    expect_ok(kb_from_host(ctx, &spec, numbers, sizeof numbers, &h));
    expect_repr(ctx, h, "'x' (2, 2) i8 on the host, mean 0.5, norm 5.47723");
    expect_ok(kb_ahbm_set_device(ctx, 1));
    expect_ok(kb_empty(ctx, &spec, &x));
    expect_ok(kb_tensor_copy(ctx, x, h, KB_TIMED));
    expect_repr(ctx, x, "'x' (2, 2) i8 on sip1, mean 0.5, norm 5.47723");
    spec = (kb_tensor_spec){.name = "row", .shape = KB_SHAPE(3), .dtype = KB_F16};
    expect_ok(kb_full(ctx, &spec, 0.25, &x));
    expect_repr(ctx, x, "'row' (3,) f16 on sip1, mean 0.25, norm 0.433013");
    spec = (kb_tensor_spec){.name = "scalar", .dtype = KB_F32};
    expect_ok(kb_full(ctx, &spec, -2, &x));
    expect_repr(ctx, x, "'scalar' () f32 on sip1, mean -2, norm 2");
    spec = (kb_tensor_spec){.name = "nothing", .shape = KB_SHAPE(0, 5), .dtype = KB_F8E5M2};
    expect_ok(kb_zeros(ctx, &spec, &x));
    expect_repr(ctx, x, "'nothing' (0, 5) f8e5m2 on sip1");
    kb_context_destroy(ctx);
}

/* ---- Creating ---------------------------------------------------------------------------- */

typedef struct bad_spec {
    kb_tensor_spec spec;
    const char *message;
} bad_spec;

static void specs_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    static const kb_policy third_cube = {.num_cubes = 3}, fifth_pe = {.num_pes = 5};
    static const kb_policy no_split = {.cube = (kb_split)3};
    static const kb_policy no_tile = {.tiling = KB_TILED_ROW_MAJOR, .tile_rows = 1};
    static const bad_spec bad[] = {
        {{.name = "x", .dtype = KB_DTYPES}, "kb_empty: tensor 'x': invalid dtype 7"},
        {{.dtype = (kb_dtype)-1}, "kb_empty: invalid dtype -1"},
        {{.memory = KB_SRAM}, "kb_empty: invalid memory 2: expected KB_HBM or KB_TCM"},
        {{.memory = KB_VIRTUAL}, "kb_empty: invalid memory 3: expected KB_HBM or KB_TCM"},
        {{.access = (kb_access)2},
         "kb_empty: invalid access mode 2: expected KB_TIMED or "
         "KB_UNTIMED"},
        {{.policy = &third_cube}, NULL},
        {{.policy = &fifth_pe}, NULL},
        {{.policy = &no_split}, NULL},
        {{.policy = &no_tile}, NULL},
        {{.shape = {.rank = 9}}, NULL},
        {{.shape = {2, {(uint64_t)1 << 32, (uint64_t)1 << 32}}}, NULL},
        {{.shape = {1, {UINT64_MAX}}, .dtype = KB_F32}, NULL},
    };
    kb_context *ctx = open_machine(THREE_SIPS);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        kb_tensor x;
        kb_error *err = kb_empty(ctx, &bad[i].spec, &x);
        if (bad[i].message)
            assert_string_equal(kb_error_message(err), bad[i].message);
        assert_int_equal(kb_error_code(err), KB_ERR_INPUT);
        kb_error_free(err);
    }
    assert_int_equal(ctx->va.used.count, 0);
    assert_int_equal(rt_table_next(&ctx->tensors, 0), 0);
    kb_context_destroy(ctx);
}

static void data_of_the_host_has_to_fit(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(ONE_PE);
    kb_tensor_spec spec = {.name = "h", .shape = KB_SHAPE(2, 3), .dtype = KB_F16};
    kb_tensor h;
    expect_error(kb_from_host(ctx, &spec, "short", 5, &h), KB_ERR_FAULT,
                 "kb_from_host: tensor 'h': 5 bytes given, but the elements take 12");
    expect_error(kb_from_host(ctx, &spec, "much too long", 13, &h), KB_ERR_FAULT,
                 "kb_from_host: tensor 'h': 13 bytes given, but the elements take 12");
    spec.dtype = KB_DTYPES;
    expect_error(kb_from_host(ctx, &spec, "", 0, &h), KB_ERR_INPUT,
                 "kb_from_host: tensor 'h': invalid dtype 7");
    /* What means nothing for it is not looked at. */
    spec = (kb_tensor_spec){.dtype = KB_I8,
                            .memory = KB_SRAM,
                            .access = (kb_access)9,
                            .policy = &(kb_policy){.num_cubes = 99}};
    expect_ok(kb_from_host(ctx, &spec, "a", 1, &h));
    expect_contents(ctx, h, KB_TIMED, "a", 1);
    kb_context_destroy(ctx);
}

static void tensors_are_made_on_the_device_of_the_run_alone(void **state)
{
    (void)state;
    kb_context *ctx = open_context(THREE_SIPS, (kb_context_options){.device = "sip:1"});
    kb_tensor_spec spec = {.shape = KB_SHAPE(2), .dtype = KB_I8};
    kb_tensor x;
    uint32_t sip;
    expect_ok(kb_empty(ctx, &spec, &x));
    expect_ok(kb_tensor_device(ctx, x, &sip));
    assert_int_equal(sip, 1);
    expect_ok(kb_ahbm_set_device(ctx, 0));
    expect_error(kb_empty(ctx, &spec, &x), KB_ERR_INPUT,
                 "kb_empty: the current device is 0, but this context is limited to "
                 "sip:1");
    expect_ok(kb_from_host(ctx, &spec, "ab", 2, &x)); /* which is on none */
    kb_context_destroy(ctx);
}

/* Creating does not wait; what it started takes time, or none untimed. */
static void creating_takes_time_unless_untimed(void **state)
{
    (void)state;
    typedef kb_error *make_fn(kb_context *, const kb_tensor_spec *, kb_tensor *);
    static make_fn *const makers[] = {kb_empty, kb_zeros};
    for (int maker = 0; maker < 2; maker++) {
        kb_context *ctx = open_machine(THREE_SIPS);
        kb_policy policy = {.cube = KB_ROW_WISE, .pe = KB_COLUMN_WISE};
        kb_tensor_spec spec = {
            .shape = KB_SHAPE(64, 64), .dtype = KB_F32, .policy = &policy, .access = KB_UNTIMED};
        kb_tensor x;
        expect_ok(makers[maker](ctx, &spec, &x));
        expect_ok(kb_synchronize(ctx));
        assert_int_equal(kb_context_now(ctx), 0);
        spec.access = KB_TIMED;
        expect_ok(makers[maker](ctx, &spec, &x));
        assert_int_equal(kb_context_now(ctx), 0);
        expect_ok(kb_synchronize(ctx));
        assert_true(kb_context_now(ctx) > KB_US);
        kb_time before = kb_context_now(ctx);
        expect_ok(kb_tensor_free(ctx, x));
        assert_int_equal(kb_context_now(ctx), before);
        expect_ok(kb_synchronize(ctx));
        assert_true(kb_context_now(ctx) > before + KB_US);
        kb_context_destroy(ctx);
    }
}

/* ---- Who sees zeros and full ------------------------------------------------------------- */

/* Fills all memory there is with something, so that what is made next has to be made. */
static void dirty(kb_context *ctx, kb_memory memory)
{
    unsigned char junk[4096];
    memset(junk, 0x5a, sizeof junk);
    kb_machine machine = kb_context_machine(ctx);
    for (uint32_t i = 0; i < machine.cubes * machine.pes; i++) {
        kb_location at = {.memory = memory, .pe = {0, i / machine.pes, i % machine.pes}};
        host_writes(ctx, at, junk, sizeof junk);
    }
}

static void expect_everywhere(kb_context *ctx, kb_tensor x, const unsigned char *element,
                              size_t each, uint64_t elements)
{
    size_t bytes = each * elements, shards;
    unsigned char *expected = new_bytes(bytes), *found = new_bytes(bytes);
    for (uint64_t i = 0; i < elements; i++)
        memcpy(expected + i * each, element, each);
    expect_contents(ctx, x, KB_TIMED, expected, bytes);
    expect_ok(kb_tensor_shard_count(ctx, x, &shards));
    uint64_t va;
    expect_ok(kb_tensor_va(ctx, x, &va));
    for (size_t i = 0; i < shards; i++) {
        kb_shard shard;
        kb_location at;
        expect_ok(kb_tensor_shard(ctx, x, i, &shard));
        if (shard.nbytes == 0)
            continue;
        expect_ok(kb_tensor_shard_location(ctx, x, i, &at));
        host_reads(ctx, at, found, shard.nbytes);
        expect_bytes(found, expected, shard.nbytes);
        pe_reads(ctx, at.pe, va, found, bytes);
        expect_bytes(found, expected, bytes);
    }
    free(expected);
    free(found);
}

/* 2.5, and 2 in integers, in each dtype; least byte first. */
static const unsigned char two_and_a_half[KB_DTYPES][4] = {
    [KB_F16] = {0x00, 0x41}, [KB_BF16] = {0x20, 0x40}, [KB_F32] = {0x00, 0x00, 0x20, 0x40},
    [KB_F8E4M3] = {0x42},    [KB_F8E5M2] = {0x41},     [KB_I8] = {2},
    [KB_I32] = {2},
};

static void zeros_and_full_are_seen_by_all(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(ODD_ONES);
    static const unsigned char zero[4] = {0};
    for (int n = 0; n < 2 * KB_DTYPES * 4; n++) {
        kb_policy policy = {.cube = (kb_split)(n % 3), .pe = (kb_split)(n / 3 % 3)};
        kb_dtype dtype = (kb_dtype)(n % KB_DTYPES);
        kb_tensor_spec spec = {
            .shape = KB_SHAPE(4, 7),
            .dtype = dtype,
            .policy = &policy,
            .memory = n & 1 ? KB_TCM : KB_HBM,
            .access = n & 2 ? KB_UNTIMED : KB_TIMED,
        };
        dirty(ctx, spec.memory);
        kb_tensor x;
        if (n & 4)
            expect_ok(kb_zeros(ctx, &spec, &x));
        else
            expect_ok(kb_full(ctx, &spec, 2.5, &x));
        expect_everywhere(ctx, x, n & 4 ? zero : two_and_a_half[dtype], kb_dtype_bytes(dtype), 28);
        expect_ok(kb_tensor_free(ctx, x));
        expect_ok(kb_synchronize(ctx));
    }
    kb_context_destroy(ctx);
}

/* What a tensor had is not there for the next one. */
static void an_empty_one_has_zeros_where_nobody_wrote(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(ONE_PE);
    kb_tensor_spec spec = {.shape = KB_SHAPE(5000), .dtype = KB_I32, .access = KB_UNTIMED};
    unsigned char *zeros = new_bytes(20000);
    kb_tensor x;
    kb_location first, second;
    expect_ok(kb_full(ctx, &spec, 7, &x));
    expect_ok(kb_tensor_shard_location(ctx, x, 0, &first));
    expect_ok(kb_tensor_free(ctx, x));
    expect_ok(kb_empty(ctx, &spec, &x));
    expect_ok(kb_tensor_shard_location(ctx, x, 0, &second));
    assert_int_equal(second.offset, first.offset);
    expect_contents(ctx, x, KB_UNTIMED, zeros, 20000);
    free(zeros);
    kb_context_destroy(ctx);
}

/* ---- Virtual addresses ------------------------------------------------------------------- */

static void every_tensor_has_a_range_of_its_own(void **state)
{
    (void)state;
    enum { COUNT = 50 };
    kb_context *ctx = open_machine(THREE_SIPS);
    kb_rng rng;
    kb_rng_init(&rng, test_seed(3));
    uint64_t starts[COUNT], ends[COUNT];
    for (int i = 0; i < COUNT; i++) {
        kb_tensor_spec spec = {
            .shape = KB_SHAPE(below(&rng, 20000)), .dtype = KB_I8, .access = KB_UNTIMED};
        kb_tensor x;
        expect_ok(kb_ahbm_set_device(ctx, (uint32_t)i % 3)); /* one range for all devices */
        expect_ok(kb_empty(ctx, &spec, &x));
        expect_ok(kb_tensor_va(ctx, x, &starts[i]));
        assert_int_equal(starts[i] % 4096, 0);
        assert_true(starts[i] >= 0x100000000);
        ends[i] = starts[i] + spec.shape.dims[0];
        assert_true(ends[i] <= 0x100000000 + ((uint64_t)1 << 48));
        for (int j = 0; j < i; j++)
            assert_true(starts[i] != starts[j] && (ends[i] <= starts[j] || ends[j] <= starts[i]));
    }
    assert_int_equal(starts[0], 0x100000000);
    kb_context_destroy(ctx);
}

static kb_error *touch(kb_context *ctx, kb_pe pe, uint64_t va)
{
    kb_location scratch = {.memory = KB_TCM, .pe = pe, .offset = 1 << 20};
    return try_dma(ctx, pe, scratch, at_va(va), 1);
}

/* The message names the request, the PE, the address and the nearest tensor. */
static void addresses_of_a_freed_tensor_fault(void **state)
{
    (void)state;
    for (int access = KB_TIMED; access <= KB_UNTIMED; access++) {
        kb_context *ctx = open_machine(THREE_SIPS);
        kb_tensor_spec spec = {
            .shape = KB_SHAPE(5000), .dtype = KB_I8, .access = (kb_access)access};
        kb_tensor x, y;
        spec.name = "x";
        expect_ok(kb_empty(ctx, &spec, &x));
        spec.name = "y";
        expect_ok(kb_empty(ctx, &spec, &y));
        expect_ok(kb_synchronize(ctx));
        kb_pe pe = {0, 1, 2};
        expect_ok(touch(ctx, pe, 0x100000000));
        expect_ok(touch(ctx, pe, 0x100000000 + 4999));
        expect_error(touch(ctx, pe, 0x100000000 + 5000), KB_ERR_FAULT,
                     "PE DMA on sip0.cube1.pe2: address 0x100001388 is not mapped: it is just "
                     "past the end of tensor 'x' (i8, 0x100000000 to 0x100001388)");
        expect_ok(kb_tensor_free(ctx, x));
        expect_ok(kb_synchronize(ctx));
        expect_error(
            touch(ctx, pe, 0x100000000), KB_ERR_FAULT,
            "PE DMA on sip0.cube1.pe2: address 0x100000000 is not mapped: it is "
            "0x3000 bytes before the start of tensor 'y' (i8, 0x100003000 to 0x100004388)");
        expect_ok(touch(ctx, pe, 0x100003000));
        expect_ok(kb_tensor_free(ctx, y));
        expect_ok(kb_synchronize(ctx));
        expect_error(touch(ctx, pe, 0x100003000), KB_ERR_FAULT,
                     "PE DMA on sip0.cube1.pe2: address 0x100003000 is not mapped: no tensor "
                     "is mapped");
        kb_context_destroy(ctx);
    }
}

/* An access beyond the end of a tensor does not hit the next one, whatever the size. */
static void there_is_a_gap_behind_a_tensor(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(ONE_PE);
    kb_tensor_spec spec = {.name = "x", .shape = KB_SHAPE(4096), .dtype = KB_I8};
    kb_tensor x, y;
    expect_ok(kb_empty(ctx, &spec, &x));
    expect_ok(kb_empty(ctx, &spec, &y));
    expect_ok(kb_synchronize(ctx));
    expect_ok(touch(ctx, (kb_pe){0}, 0x100000fff));
    expect_error(touch(ctx, (kb_pe){0}, 0x100001000), KB_ERR_FAULT,
                 "PE DMA on sip0.cube0.pe0: address 0x100001000 is not mapped: it is just past the "
                 "end of tensor 'x' (i8, 0x100000000 to 0x100001000)");
    kb_context_destroy(ctx);
}

/* A tensor is mapped in all PEs of its SIP, and in none of another. */
static void a_tensor_is_mapped_on_its_own_device(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(THREE_SIPS);
    kb_tensor_spec spec = {.name = "x", .shape = KB_SHAPE(1), .dtype = KB_I8};
    kb_tensor x;
    expect_ok(kb_ahbm_set_device(ctx, 1));
    expect_ok(kb_empty(ctx, &spec, &x));
    expect_ok(kb_synchronize(ctx));
    for (uint32_t i = 0; i < 8; i++)
        expect_ok(touch(ctx, (kb_pe){1, i / 4, i % 4}, 0x100000000));
    expect_error(touch(ctx, (kb_pe){2, 0, 0}, 0x100000000), KB_ERR_FAULT,
                 "PE DMA on sip2.cube0.pe0: address 0x100000000 is not mapped: no tensor is "
                 "mapped");
    kb_context_destroy(ctx);
}

/* Looked at in every step of the machine: each PE's MMU gets the mapping when the command does. */
static void mappings_arrive_and_leave_one_by_one(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(TALL);
    kb_tensor_spec spec = {.shape = KB_SHAPE(1), .dtype = KB_I8};
    kb_tensor x;
    expect_ok(kb_empty(ctx, &spec, &x));
    mem_mapping_id id = mem_mmu_find(ctx->mmus[0], 0x100000000);
    assert_true(id != 0);
    uint32_t installed = 0, steps = 0;
    assert_int_equal(mem_mmu_installed(ctx->mmus[0], id), 0);
    while (ctx->driver.under_way > 0) {
        expect_ok(kb_sim_run(ctx->sim, kb_sim_next_time(ctx->sim)));
        uint32_t now = mem_mmu_installed(ctx->mmus[0], id);
        assert_true(now >= installed);
        steps += now > installed;
        installed = now;
    }
    assert_int_equal(installed, 12);
    assert_true(steps > 1);
    expect_ok(kb_tensor_free(ctx, x));
    assert_int_equal(mem_mmu_installed(ctx->mmus[0], id), 12);
    for (steps = 0; ctx->driver.under_way > 0;) {
        expect_ok(kb_sim_run(ctx->sim, kb_sim_next_time(ctx->sim)));
        if (mem_mmu_find(ctx->mmus[0], 0x100000000) == 0)
            break;
        uint32_t now = mem_mmu_installed(ctx->mmus[0], id);
        assert_true(now <= installed);
        steps += now < installed;
        installed = now;
    }
    assert_int_equal(installed, 0);
    assert_true(steps > 1);
    expect_ok(kb_synchronize(ctx));
    assert_int_equal(mem_mmu_find(ctx->mmus[0], 0x100000000), 0);
    assert_int_equal(ctx->va.used.count, 0);
    kb_context_destroy(ctx);
}

/*
 * A mapping with many ranges is a long message: 16 KiB and more, 256 ns at the host's link alone.
 * A request of some bytes that is sent behind it takes another channel and comes first.
 */
static void what_overtakes_the_mapping_faults(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(ONE_PE);
    kb_policy policy = {.tiling = KB_TILED_ROW_MAJOR, .tile_rows = 1, .tile_columns = 1};
    kb_tensor_spec spec = {
        .name = "x", .shape = KB_SHAPE(32, 32), .dtype = KB_I8, .policy = &policy};
    kb_tensor x;
    expect_ok(kb_empty(ctx, &spec, &x));
    expect_error(
        touch(ctx, (kb_pe){0}, 0x100000000), KB_ERR_FAULT,
        "PE DMA on sip0.cube0.pe0: address 0x100000000 is not mapped: it lies in "
        "tensor 'x' (i8, 0x100000000 to 0x100000400), which is not mapped in this PE (yet, or no "
        "longer)");
    expect_ok(kb_synchronize(ctx));
    expect_ok(touch(ctx, (kb_pe){0}, 0x100000000));
    kb_context_destroy(ctx);
}

/* Freed at once, with its mapping still on the way: in the end nothing is mapped. */
static void a_tensor_can_be_freed_before_it_is_mapped(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(TALL);
    kb_tensor_spec spec = {.shape = KB_SHAPE(100), .dtype = KB_I8};
    kb_tensor x, y;
    uint64_t va;
    for (int n = 0; n < 3; n++) {
        expect_ok(kb_zeros(ctx, &spec, &x));
        expect_ok(kb_tensor_va(ctx, x, &va));
        expect_ok(kb_tensor_free(ctx, x));
        /* Its memory is free again, its addresses are not yet. */
        expect_ok(kb_empty(ctx, &spec, &y));
        uint64_t other_va;
        expect_ok(kb_tensor_va(ctx, y, &other_va));
        assert_true(va != other_va);
        kb_location at;
        expect_ok(kb_tensor_shard_location(ctx, y, 0, &at));
        assert_int_equal(at.offset, 0);
        expect_ok(kb_synchronize(ctx));
        assert_int_equal(mem_mmu_find(ctx->mmus[0], va), 0);
        expect_ok(touch(ctx, (kb_pe){0, 5, 1}, other_va));
        expect_ok(kb_tensor_free(ctx, y));
    }
    expect_ok(kb_synchronize(ctx));
    assert_int_equal(ctx->va.used.count, 0);
    kb_context_destroy(ctx);
}

/* The long message of the mapping is still under way when the short one of unmapping is sent. */
static void unmapping_cannot_overtake_mapping(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(ONE_PE);
    kb_policy policy = {.tiling = KB_TILED_ROW_MAJOR, .tile_rows = 1, .tile_columns = 1};
    kb_tensor_spec spec = {
        .name = "x", .shape = KB_SHAPE(32, 32), .dtype = KB_I8, .policy = &policy};
    kb_tensor x;
    expect_ok(kb_empty(ctx, &spec, &x));
    expect_ok(kb_synchronize(ctx));
    kb_time mapping = kb_context_now(ctx);
    expect_ok(kb_tensor_free(ctx, x));
    expect_ok(kb_synchronize(ctx));
    kb_time both = kb_context_now(ctx);
    expect_ok(kb_empty(ctx, &spec, &x));
    expect_ok(kb_tensor_free(ctx, x));
    expect_ok(kb_synchronize(ctx));
    assert_true(both > mapping);
    assert_int_equal(kb_context_now(ctx), 2 * both); /* one after the other, as before */
    assert_int_equal(ctx->va.used.count, 0);
    kb_context_destroy(ctx);
}

/* ---- Freeing ----------------------------------------------------------------------------- */

static void a_handle_that_was_freed_is_never_another_one(void **state)
{
    (void)state;
    enum { COUNT = 1000 };
    kb_context *ctx = open_machine(ONE_PE);
    kb_tensor_spec spec = {.shape = KB_SHAPE(1), .dtype = KB_I8, .access = KB_UNTIMED};
    static kb_tensor dead[COUNT];
    kb_shape shape;
    for (int i = 0; i < COUNT; i++) {
        expect_ok(kb_empty(ctx, &spec, &dead[i]));
        expect_ok(kb_tensor_free(ctx, dead[i]));
        expect_error(kb_tensor_free(ctx, dead[i]), KB_ERR_FAULT,
                     "kb_tensor_free: invalid or freed tensor handle");
    }
    kb_tensor x;
    expect_ok(kb_empty(ctx, &spec, &x));
    for (int i = 0; i < COUNT; i++)
        expect_error(kb_tensor_shape(ctx, dead[i], &shape), KB_ERR_FAULT,
                     "kb_tensor_shape: invalid or freed tensor handle");
    kb_tensor made_up[] = {{0}, {1}, {UINT64_MAX}, {x.id + 1}, {x.id + ((uint64_t)1 << 32)}};
    for (size_t i = 0; i < sizeof made_up / sizeof *made_up; i++)
        expect_error(kb_tensor_shape(ctx, made_up[i], &shape), KB_ERR_FAULT,
                     "kb_tensor_shape: invalid or freed tensor handle");
    expect_ok(kb_tensor_shape(ctx, x, &shape));
    kb_context_destroy(ctx);
}

/* Leaving a context frees what is left, with everything still under way. */
static void a_context_frees_its_tensors(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(THREE_SIPS);
    kb_policy policy = {.cube = KB_ROW_WISE};
    kb_tensor_spec spec = {.shape = KB_SHAPE(100, 3), .dtype = KB_F32, .policy = &policy};
    unsigned char *data = new_bytes(1200);
    kb_tensor x, y, h;
    expect_ok(kb_from_host(ctx, &spec, data, 1200, &h));
    expect_ok(kb_zeros(ctx, &spec, &x));
    expect_ok(kb_full(ctx, &spec, 1, &y));
    expect_ok(kb_tensor_copy(ctx, x, h, KB_TIMED));
    expect_ok(kb_tensor_free(ctx, y));
    kb_context_destroy(ctx);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tensor_says_what_it_is),
        cmocka_unit_test(names_are_made_up_where_none_is_given),
        cmocka_unit_test(names_cannot_break_messages),
        cmocka_unit_test(tensors_of_the_host_are_on_no_device),
        cmocka_unit_test(an_empty_shard_is_nowhere),
        cmocka_unit_test(its_text_has_shape_dtype_mean_and_norm),
        cmocka_unit_test(specs_that_make_no_sense_are_refused),
        cmocka_unit_test(data_of_the_host_has_to_fit),
        cmocka_unit_test(tensors_are_made_on_the_device_of_the_run_alone),
        cmocka_unit_test(creating_takes_time_unless_untimed),
        cmocka_unit_test(zeros_and_full_are_seen_by_all),
        cmocka_unit_test(an_empty_one_has_zeros_where_nobody_wrote),
        cmocka_unit_test(every_tensor_has_a_range_of_its_own),
        cmocka_unit_test(addresses_of_a_freed_tensor_fault),
        cmocka_unit_test(there_is_a_gap_behind_a_tensor),
        cmocka_unit_test(a_tensor_is_mapped_on_its_own_device),
        cmocka_unit_test(mappings_arrive_and_leave_one_by_one),
        cmocka_unit_test(what_overtakes_the_mapping_faults),
        cmocka_unit_test(a_tensor_can_be_freed_before_it_is_mapped),
        cmocka_unit_test(unmapping_cannot_overtake_mapping),
        cmocka_unit_test(a_handle_that_was_freed_is_never_another_one),
        cmocka_unit_test(a_context_frees_its_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
