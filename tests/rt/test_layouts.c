/*
 * test_layouts.c: whatever the layout, a tensor that was copied in comes back bit for bit, and each
 * of its bytes is where it should be: for the host at its shard's location, for PEs at its virtual
 * address. Compared with the plain model of layout.c.
 */
#include "support/seed.h"
#include "tensors.h"

/* A tensor and what must be in it. */
typedef struct subject {
    kb_context *ctx;
    kb_machine machine;
    kb_tensor_spec spec;
    kb_policy policy;
    uint32_t sip;
    kb_tensor tensor;
    unsigned char *data;
    size_t bytes;
} subject;

/* Contents as random bits: NaNs of all kinds are among them. */
static subject deploy(kb_context *ctx, kb_rng *rng, const kb_tensor_spec *spec)
{
    subject s = {.ctx = ctx, .machine = kb_context_machine(ctx), .spec = *spec};
    if (spec->policy) {
        s.policy = *spec->policy;
        s.spec.policy = NULL; /* whoever needs it takes s.policy */
    } else {
        s.policy = (kb_policy){.num_cubes = 1, .num_pes = 1};
    }
    s.sip = (uint32_t)below(rng, s.machine.sips);
    s.bytes = bytes_of(spec);
    s.data = draw_bytes(rng, s.bytes);
    expect_ok(kb_ahbm_set_device(ctx, s.sip));
    switch (below(rng, 3)) {
    case 0:
        expect_ok(kb_empty(ctx, spec, &s.tensor));
        break;
    case 1:
        expect_ok(kb_zeros(ctx, spec, &s.tensor));
        break;
    default:
        expect_ok(kb_full(ctx, spec, 3, &s.tensor));
    }
    kb_tensor host;
    expect_ok(kb_from_host(ctx, spec, s.data, s.bytes, &host));
    expect_ok(kb_tensor_copy(ctx, s.tensor, host, draw_access(rng)));
    expect_ok(kb_tensor_free(ctx, host));
    return s;
}

static void discard(subject *s)
{
    expect_ok(kb_tensor_free(s->ctx, s->tensor));
    free(s->data);
}

static void expect_back(const subject *s, kb_access access)
{
    expect_contents(s->ctx, s->tensor, access, s->data, s->bytes);
}

/* The tensor's bytes in the order of its addresses. */
static unsigned char *in_address_order(const subject *s, const layout *l)
{
    size_t each = kb_dtype_bytes(s->spec.dtype);
    unsigned char *bytes = new_bytes(s->bytes);
    for (size_t i = 0; i < l->count; i++) {
        unsigned char *part = layout_bytes(&l->parts[i], s->data, each);
        memcpy(bytes + l->parts[i].offset * each, part, l->parts[i].count * each);
        free(part);
    }
    return bytes;
}

/* Any PE of the SIP sees any part of the tensor at its addresses, over the ends of shards too. */
static void expect_addresses(const subject *s, const layout *l, kb_rng *rng, int tries)
{
    uint64_t va;
    expect_ok(kb_tensor_va(s->ctx, s->tensor, &va));
    assert_int_equal(va % 4096, 0);
    unsigned char *expected = in_address_order(s, l);
    unsigned char *found = new_bytes(s->bytes);
    while (tries-- > 0) {
        kb_pe pe = {s->sip, (uint32_t)below(rng, s->machine.cubes),
                    (uint32_t)below(rng, s->machine.pes)};
        uint64_t start = one_in(rng, 3) ? 0 : below(rng, s->bytes);
        uint64_t bytes = one_in(rng, 3) ? s->bytes - start : 1 + below(rng, s->bytes - start);
        pe_reads(s->ctx, pe, va + start, found, bytes);
        expect_bytes(found, expected + start, bytes);
    }
    free(found);
    free(expected);
}

static void expect_all(const subject *s, kb_rng *rng)
{
    expect_back(s, KB_UNTIMED);
    expect_back(s, KB_TIMED);
    layout l = layout_of(&s->spec.shape, &s->policy, &s->machine);
    expect_shards(s->ctx, s->tensor, &l, s->data);
    if (s->bytes > 0)
        expect_addresses(s, &l, rng, 2);
    layout_fini(&l);
}

/* Several live at a time: none may touch another. */
static void random_tensors_come_back(const char *yaml, uint64_t seed, uint64_t count)
{
    enum { LIVE = 4 };
    kb_rng rng;
    kb_rng_init(&rng, test_seed(seed));
    kb_context *ctx = open_machine(yaml);
    kb_machine machine = kb_context_machine(ctx);
    subject live[LIVE] = {0};
    for (uint64_t n = 0; n < count; n++) {
        subject *s = &live[n % LIVE];
        if (n >= LIVE) {
            expect_all(s, &rng);
            discard(s);
        }
        kb_policy policy;
        kb_tensor_spec spec = draw_spec(&rng, &machine, &policy);
        *s = deploy(ctx, &rng, &spec);
        if (one_in(&rng, 2))
            expect_back(s, draw_access(&rng));
    }
    for (uint64_t n = 0; n < LIVE && n < count; n++) {
        expect_all(&live[n], &rng);
        discard(&live[n]);
    }
    kb_context_destroy(ctx);
}

static void any_tensor_comes_back_bit_for_bit(void **state)
{
    (void)state;
    for (int m = 0; m < SMALL_MACHINES; m++)
        random_tensors_come_back(small_machines[m], 100 + (uint64_t)m, cases(400));
}

static void so_it_does_on_the_default_machine(void **state)
{
    (void)state;
    random_tensors_come_back(NULL, 7, cases(20));
}

/* Policies one by one: both levels, restricted or not, and both tilings, in both memories. */
static kb_policy policy_number(int n)
{
    if (n >= 36)
        return (kb_policy){
            .tiling = n & 1 ? KB_TILED_ROW_MAJOR : KB_TILED_COLUMN_MAJOR,
            .tile_rows = 2,
            .tile_columns = 3,
            .num_cubes = n & 2 ? 2 : 0,
            .num_pes = n & 4 ? 2 : 0,
        };
    return (kb_policy){
        .cube = (kb_split)(n % 3),
        .pe = (kb_split)(n / 3 % 3),
        .num_cubes = n / 9 % 2 ? 2 : 0,
        .num_pes = n / 18 ? 2 : 0,
    };
}

static void every_policy_and_dtype_comes_back(void **state)
{
    (void)state;
    static const kb_shape shapes[] = {
        {0},         {1, {1}},    {1, {7}},       {2, {1, 1}},
        {2, {7, 5}}, {2, {2, 0}}, {3, {5, 2, 4}}, {4, {2, 3, 1, 7}},
    };
    enum { POLICIES = 44, SHAPES = sizeof shapes / sizeof *shapes };
    kb_rng rng;
    kb_rng_init(&rng, test_seed(5));
    kb_context *ctx = open_machine(ODD_ONES);
    uint64_t step = POLICIES * SHAPES / cases(POLICIES * SHAPES);
    for (uint64_t n = 0; n < POLICIES * SHAPES; n += step) {
        kb_policy policy = policy_number((int)(n % POLICIES));
        kb_tensor_spec spec = {
            .shape = shapes[n / POLICIES],
            .dtype = (kb_dtype)(n % KB_DTYPES),
            .memory = n % 2 ? KB_TCM : KB_HBM,
            .policy = &policy,
            .access = n % 3 ? KB_UNTIMED : KB_TIMED,
        };
        subject s = deploy(ctx, &rng, &spec);
        expect_all(&s, &rng);
        discard(&s);
    }
    kb_context_destroy(ctx);
}

/* Shards larger than a page of contents, and rows that are longer. */
static void large_tensors_come_back(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(6));
    kb_context *ctx = open_machine(ODD_ONES);
    for (int n = 0; n < 4; n++) {
        kb_policy policy = {
            .cube = n & 1 ? KB_COLUMN_WISE : KB_ROW_WISE,
            .pe = n & 2 ? KB_COLUMN_WISE : KB_REPLICATE,
        };
        kb_tensor_spec spec = {
            .shape = KB_SHAPE(37, 5003), .dtype = KB_F16, .policy = &policy, .access = KB_UNTIMED};
        subject s = deploy(ctx, &rng, &spec);
        expect_back(&s, KB_UNTIMED);
        discard(&s);
    }
    kb_context_destroy(ctx);
}

/* The same policy on another SIP differs in nothing else. */
static void sips_are_alike(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(THREE_SIPS);
    kb_policy policy = {.cube = KB_COLUMN_WISE, .pe = KB_ROW_WISE};
    kb_tensor_spec spec = {.shape = KB_SHAPE(9, 5), .dtype = KB_F32, .policy = &policy};
    kb_tensor tensors[3];
    for (uint32_t sip = 0; sip < 3; sip++) {
        expect_ok(kb_ahbm_set_device(ctx, sip));
        expect_ok(kb_empty(ctx, &spec, &tensors[sip]));
        uint32_t device;
        expect_ok(kb_tensor_device(ctx, tensors[sip], &device));
        assert_int_equal(device, sip);
    }
    size_t count;
    expect_ok(kb_tensor_shard_count(ctx, tensors[0], &count));
    assert_int_equal(count, 8);
    for (size_t i = 0; i < count; i++) {
        kb_shard first, other;
        kb_location first_at, other_at;
        expect_ok(kb_tensor_shard(ctx, tensors[0], i, &first));
        expect_ok(kb_tensor_shard_location(ctx, tensors[0], i, &first_at));
        for (uint32_t sip = 1; sip < 3; sip++) {
            expect_ok(kb_tensor_shard(ctx, tensors[sip], i, &other));
            assert_int_equal(other.sip, sip);
            assert_int_equal(other.cube, first.cube);
            assert_int_equal(other.pe, first.pe);
            assert_int_equal(other.offset_bytes, first.offset_bytes);
            assert_int_equal(other.nbytes, first.nbytes);
            expect_ok(kb_tensor_shard_location(ctx, tensors[sip], i, &other_at));
            assert_int_equal(other_at.pe.sip, sip);
            assert_int_equal(other_at.offset, first_at.offset);
        }
    }
    kb_context_destroy(ctx);
}

/* What one PE writes to an address is there in its own copy, and in no other. */
static void each_pe_has_its_own_copy(void **state)
{
    (void)state;
    enum { BYTES = 12 };
    kb_context *ctx = open_machine(ODD_ONES);
    kb_policy policy = {0};
    kb_tensor_spec spec = {.shape = KB_SHAPE(3), .dtype = KB_F32, .policy = &policy};
    for (int memory = KB_HBM; memory <= KB_TCM; memory++) {
        spec.memory = (kb_memory)memory;
        kb_tensor x;
        uint64_t va;
        expect_ok(kb_full(ctx, &spec, 1, &x));
        expect_ok(kb_tensor_va(ctx, x, &va));
        expect_ok(kb_synchronize(ctx));
        for (uint32_t pe = 0; pe < 9; pe++) {
            unsigned char mine[BYTES];
            memset(mine, (int)(pe + 1), BYTES);
            pe_writes(ctx, (kb_pe){0, pe / 3, pe % 3}, va, mine, BYTES);
        }
        for (uint32_t pe = 0; pe < 9; pe++) {
            unsigned char expected[BYTES], found[BYTES];
            memset(expected, (int)(pe + 1), BYTES);
            pe_reads(ctx, (kb_pe){0, pe / 3, pe % 3}, va, found, BYTES);
            assert_memory_equal(found, expected, BYTES);
            kb_location at;
            expect_ok(kb_tensor_shard_location(ctx, x, pe, &at));
            host_reads(ctx, at, found, BYTES);
            assert_memory_equal(found, expected, BYTES);
        }
        expect_ok(kb_tensor_free(ctx, x));
    }
    kb_context_destroy(ctx);
}

/* Two of three PEs of two of three cubes have copies; the others use one that is near. */
static void those_without_a_copy_see_a_near_one(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(ODD_ONES);
    kb_policy policy = {.num_cubes = 2, .num_pes = 2};
    kb_tensor_spec spec = {
        .shape = KB_SHAPE(1), .dtype = KB_I8, .policy = &policy, .access = KB_UNTIMED};
    kb_tensor x;
    uint64_t va;
    expect_ok(kb_empty(ctx, &spec, &x));
    expect_ok(kb_tensor_va(ctx, x, &va));
    for (size_t i = 0; i < 4; i++) {
        kb_location at;
        expect_ok(kb_tensor_shard_location(ctx, x, i, &at));
        host_writes(ctx, at, &(unsigned char){(unsigned char)(10 * at.pe.cube + at.pe.pe)}, 1);
    }
    for (uint32_t cube = 0; cube < 3; cube++) {
        for (uint32_t pe = 0; pe < 3; pe++) {
            unsigned char seen;
            pe_reads(ctx, (kb_pe){0, cube, pe}, va, &seen, 1);
            if (cube < 2 && pe < 2)
                assert_int_equal(seen, 10 * cube + pe);
            else if (cube < 2)
                assert_int_equal(seen / 10, cube);
        }
    }
    kb_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_tensor_comes_back_bit_for_bit),
        cmocka_unit_test(so_it_does_on_the_default_machine),
        cmocka_unit_test(every_policy_and_dtype_comes_back),
        cmocka_unit_test(large_tensors_come_back),
        cmocka_unit_test(sips_are_alike),
        cmocka_unit_test(each_pe_has_its_own_copy),
        cmocka_unit_test(those_without_a_copy_see_a_near_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
