/*
 * test_copies.c: copies between tensors of any two layouts, devices and the host; and that what the
 * host sees follows the order of its calls, whatever is still under way.
 */
#include "support/seed.h"
#include "tensors.h"

/* ---- Any two layouts --------------------------------------------------------------------- */

/* A tensor of the shape and dtype, anywhere. */
typedef struct place {
    kb_policy policy;
    kb_tensor_spec spec;
    bool on_host;
    kb_tensor tensor;
} place;

static void draw_place(place *p, kb_context *ctx, kb_rng *rng, const kb_shape *shape,
                       kb_dtype dtype)
{
    kb_machine machine = kb_context_machine(ctx);
    p->spec = draw_spec(rng, &machine, &p->policy);
    p->spec.shape = *shape;
    p->spec.dtype = dtype;
    p->on_host = one_in(rng, 6);
    expect_ok(kb_ahbm_set_device(ctx, (uint32_t)below(rng, machine.sips)));
    if (p->on_host) {
        size_t bytes = bytes_of(&p->spec);
        unsigned char *data = new_bytes(bytes);
        expect_ok(kb_from_host(ctx, &p->spec, data, bytes, &p->tensor));
        free(data);
    } else {
        expect_ok(kb_empty(ctx, &p->spec, &p->tensor));
    }
}

static void expect_there(kb_context *ctx, const place *p, const unsigned char *data)
{
    expect_contents(ctx, p->tensor, KB_UNTIMED, data, bytes_of(&p->spec));
    if (p->on_host)
        return;
    kb_machine machine = kb_context_machine(ctx);
    layout l = layout_of(&p->spec.shape, p->spec.policy, &machine);
    expect_shards(ctx, p->tensor, &l, data);
    layout_fini(&l);
}

/* A chain of copies, each into another layout. */
static void random_chain(kb_context *ctx, kb_rng *rng)
{
    enum { LENGTH = 4 };
    kb_shape shape = draw_shape(rng);
    kb_dtype dtype = (kb_dtype)below(rng, KB_DTYPES);
    kb_tensor_spec spec = {.shape = shape, .dtype = dtype};
    size_t bytes = bytes_of(&spec);
    unsigned char *data = draw_bytes(rng, bytes);
    kb_tensor first;
    place *places = calloc(LENGTH, sizeof *places);
    assert_non_null(places);
    expect_ok(kb_from_host(ctx, &spec, data, bytes, &first));
    for (int i = 0; i < LENGTH; i++) {
        draw_place(&places[i], ctx, rng, &shape, dtype);
        kb_tensor from = i > 0 ? places[i - 1].tensor : first;
        expect_ok(kb_tensor_copy(ctx, places[i].tensor, from, draw_access(rng)));
    }
    for (int i = LENGTH - 1; i >= 0; i--) {
        expect_there(ctx, &places[i], data);
        expect_ok(kb_tensor_free(ctx, places[i].tensor));
    }
    expect_ok(kb_tensor_free(ctx, first));
    free(places);
    free(data);
}

static void layouts_can_be_changed_into_each_other(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(21));
    for (int m = 0; m < SMALL_MACHINES; m++) {
        kb_context *ctx = open_machine(small_machines[m]);
        for (uint64_t n = cases(150); n > 0; n--)
            random_chain(ctx, &rng);
        kb_context_destroy(ctx);
    }
}

static void so_they_can_on_the_default_machine(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(22));
    kb_context *ctx = open_machine(NULL);
    for (uint64_t n = cases(6); n > 0; n--)
        random_chain(ctx, &rng);
    kb_context_destroy(ctx);
}

/* More than a page of contents in a shard, and pieces of several sizes for the DMA. */
static void large_tensors_change_layout_between_devices(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(THREE_SIPS);
    kb_rng rng;
    kb_rng_init(&rng, test_seed(23));
    kb_policy rows = {.cube = KB_ROW_WISE, .pe = KB_ROW_WISE};
    kb_policy columns = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    kb_tensor_spec spec = {.shape = KB_SHAPE(301, 401), .dtype = KB_F16, .policy = &rows};
    size_t bytes = bytes_of(&spec);
    unsigned char *data = draw_bytes(&rng, bytes);
    kb_tensor h, x, y;
    expect_ok(kb_from_host(ctx, &spec, data, bytes, &h));
    expect_ok(kb_empty(ctx, &spec, &x));
    expect_ok(kb_ahbm_set_device(ctx, 2));
    spec.policy = &columns;
    expect_ok(kb_empty(ctx, &spec, &y));
    expect_ok(kb_tensor_copy(ctx, x, h, KB_UNTIMED));
    expect_ok(kb_tensor_copy(ctx, y, x, KB_TIMED));
    expect_contents(ctx, y, KB_UNTIMED, data, bytes);
    free(data);
    kb_context_destroy(ctx);
}

/*
 * Copies that a program made different show which one was read: the one at the destination, else
 * one in its cube. On three cubes of three PEs each byte says where it was.
 */
static void of_copies_the_nearest_is_read(void **state)
{
    (void)state;
    static const kb_policy sources[] = {
        {0},
        {.num_pes = 2},
        {.cube = KB_REPLICATE, .pe = KB_COLUMN_WISE},
        {.cube = KB_COLUMN_WISE, .pe = KB_REPLICATE, .num_pes = 2},
    };
    static const kb_policy everywhere = {0};
    for (size_t n = 0; n < sizeof sources / sizeof *sources; n++) {
        kb_context *ctx = open_machine(ODD_ONES);
        kb_tensor_spec spec = {
            .shape = KB_SHAPE(9), .dtype = KB_I8, .policy = &sources[n], .access = KB_UNTIMED};
        kb_tensor from, to;
        size_t shards;
        expect_ok(kb_empty(ctx, &spec, &from));
        expect_ok(kb_tensor_shard_count(ctx, from, &shards));
        for (size_t i = 0; i < shards; i++) {
            kb_location at;
            kb_shard shard;
            unsigned char who[9];
            expect_ok(kb_tensor_shard(ctx, from, i, &shard));
            expect_ok(kb_tensor_shard_location(ctx, from, i, &at));
            memset(who, (int)(10 * shard.cube + shard.pe), sizeof who);
            host_writes(ctx, at, who, shard.nbytes);
        }
        spec.policy = &everywhere;
        expect_ok(kb_empty(ctx, &spec, &to));
        expect_ok(kb_tensor_copy(ctx, to, from, KB_UNTIMED));
        for (size_t i = 0; i < 9; i++) {
            kb_location at;
            unsigned char found[9];
            expect_ok(kb_tensor_shard_location(ctx, to, i, &at));
            host_reads(ctx, at, found, 9);
            for (unsigned e = 0; e < 9; e++) {
                bool at_home = n == 0 || (n == 1 && at.pe.pe < 2);
                uint32_t cube = n == 3 ? e / 3 : at.pe.cube;
                assert_int_equal(found[e] / 10, cube);
                if (at_home)
                    assert_int_equal(found[e] % 10, at.pe.pe);
            }
        }
        kb_context_destroy(ctx);
    }
}

/* ---- Mistakes ---------------------------------------------------------------------------- */

static kb_tensor make(kb_context *ctx, const char *name, kb_shape shape, kb_dtype dtype)
{
    kb_tensor_spec spec = {.name = name, .shape = shape, .dtype = dtype, .access = KB_UNTIMED};
    kb_tensor made;
    expect_ok(kb_zeros(ctx, &spec, &made));
    return made;
}

static void shapes_and_dtypes_have_to_match(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(ONE_PE);
    kb_tensor x = make(ctx, "x", KB_SHAPE(2, 3), KB_F16);
    const struct {
        kb_tensor from;
        const char *message;
    } bad[] = {
        {make(ctx, "a", KB_SHAPE(3, 2), KB_F16),
         "kb_tensor_copy: 'a' (3, 2) f16 does not fit into 'x' (2, 3) f16"},
        {make(ctx, "b", KB_SHAPE(6), KB_F16),
         "kb_tensor_copy: 'b' (6,) f16 does not fit into 'x' (2, 3) f16"},
        {make(ctx, "c", KB_SHAPE(2, 3, 1), KB_F16),
         "kb_tensor_copy: 'c' (2, 3, 1) f16 does not fit into 'x' (2, 3) f16"},
        {make(ctx, "d", KB_SHAPE(2, 3), KB_BF16),
         "kb_tensor_copy: 'd' (2, 3) bf16 does not fit into 'x' (2, 3) f16: the dtypes differ; "
         "kb_convert() converts"},
        {make(ctx, "e", (kb_shape){0}, KB_F16),
         "kb_tensor_copy: 'e' () f16 does not fit into 'x' (2, 3) f16"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        expect_ok(kb_tensor_fill_slice(ctx, bad[i].from, KB_UNTIMED, &(kb_slice){0}, 1));
        expect_error(kb_tensor_copy(ctx, x, bad[i].from, KB_TIMED), KB_ERR_FAULT, bad[i].message);
    }
    expect_contents(ctx, x, KB_UNTIMED, (unsigned char[12]){0}, 12);
    expect_ok(kb_synchronize(ctx));
    assert_int_equal(kb_context_now(ctx), 0);
    kb_context_destroy(ctx);
}

static void which_of_the_two_was_freed_is_said(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(ONE_PE);
    kb_tensor x = make(ctx, "x", KB_SHAPE(2), KB_I8), y = make(ctx, "y", KB_SHAPE(2), KB_I8);
    expect_ok(kb_tensor_free(ctx, y));
    expect_error(kb_tensor_copy(ctx, x, y, KB_TIMED), KB_ERR_FAULT,
                 "kb_tensor_copy: from: invalid or freed tensor handle");
    expect_error(kb_tensor_copy(ctx, y, x, KB_TIMED), KB_ERR_FAULT,
                 "kb_tensor_copy: to: invalid or freed tensor handle");
    kb_context_destroy(ctx);
}

/* ---- Copies that move nothing ------------------------------------------------------------ */

static void a_copy_to_itself_changes_nothing_and_takes_no_time(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(ONE_PE);
    kb_tensor x = make(ctx, "x", KB_SHAPE(2), KB_I8);
    expect_ok(kb_tensor_fill_slice(ctx, x, KB_UNTIMED, &(kb_slice){0}, 5));
    expect_ok(kb_tensor_copy(ctx, x, x, KB_TIMED));
    expect_contents(ctx, x, KB_UNTIMED, "\5\5", 2);
    assert_int_equal(kb_context_now(ctx), 0);
    kb_context_destroy(ctx);
}

static void between_tensors_of_the_host_no_time_passes(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(ONE_PE);
    kb_tensor_spec spec = {.shape = KB_SHAPE(3), .dtype = KB_I8};
    kb_tensor a, b;
    expect_ok(kb_from_host(ctx, &spec, "abc", 3, &a));
    expect_ok(kb_from_host(ctx, &spec, "xyz", 3, &b));
    expect_ok(kb_tensor_copy(ctx, b, a, KB_TIMED));
    expect_contents(ctx, b, KB_TIMED, "abc", 3);
    assert_int_equal(kb_context_now(ctx), 0);
    kb_context_destroy(ctx);
}

/* ---- The order of calls ------------------------------------------------------------------ */

enum { SIDE = 60, BYTES = SIDE * SIDE };

static kb_tensor host_full(kb_context *ctx, int value)
{
    unsigned char data[BYTES];
    memset(data, value, BYTES);
    kb_tensor_spec spec = {.shape = KB_SHAPE(SIDE, SIDE), .dtype = KB_I8};
    kb_tensor made;
    expect_ok(kb_from_host(ctx, &spec, data, BYTES, &made));
    return made;
}

static kb_tensor device_full(kb_context *ctx, uint32_t sip, const kb_policy *policy, double value)
{
    kb_tensor_spec spec = {.shape = KB_SHAPE(SIDE, SIDE), .dtype = KB_I8, .policy = policy};
    kb_tensor made;
    expect_ok(kb_ahbm_set_device(ctx, sip));
    expect_ok(kb_full(ctx, &spec, value, &made));
    return made;
}

static void expect_full(kb_context *ctx, kb_tensor tensor, int value)
{
    unsigned char expected[BYTES];
    memset(expected, value, BYTES);
    expect_contents(ctx, tensor, KB_TIMED, expected, BYTES);
}

static const kb_policy by_rows = {.cube = KB_ROW_WISE, .pe = KB_COLUMN_WISE};

static void of_two_copies_the_later_one_counts(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(THREE_SIPS);
    kb_tensor x = device_full(ctx, 0, &by_rows, 0), near = device_full(ctx, 0, NULL, 1),
              far = device_full(ctx, 2, &by_rows, 2);
    kb_tensor one = host_full(ctx, 3), other = host_full(ctx, 4);
    expect_ok(kb_tensor_copy(ctx, x, one, KB_TIMED));
    expect_ok(kb_tensor_copy(ctx, x, other, KB_TIMED));
    expect_full(ctx, x, 4);
    /* The far one takes longer, so its transfers end behind those of the near one. */
    expect_ok(kb_tensor_copy(ctx, x, far, KB_TIMED));
    expect_ok(kb_tensor_copy(ctx, x, near, KB_TIMED));
    expect_full(ctx, x, 1);
    expect_ok(kb_tensor_copy(ctx, x, far, KB_TIMED));
    expect_ok(kb_tensor_copy(ctx, x, one, KB_TIMED));
    expect_ok(kb_tensor_copy(ctx, x, near, KB_UNTIMED));
    expect_full(ctx, x, 1);
    kb_context_destroy(ctx);
}

static void what_is_set_after_a_copy_stays(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(THREE_SIPS);
    kb_tensor x = device_full(ctx, 1, &by_rows, 0), one = host_full(ctx, 3);
    expect_ok(kb_tensor_copy(ctx, x, one, KB_TIMED));
    expect_ok(kb_tensor_set(ctx, x, KB_UNTIMED, &KB_INDEX(SIDE - 1, SIDE - 1), 9));
    expect_ok(kb_tensor_set(ctx, x, KB_TIMED, &KB_INDEX(0, 0), 8));
    unsigned char expected[BYTES];
    memset(expected, 3, BYTES);
    expected[0] = 8;
    expected[BYTES - 1] = 9;
    expect_contents(ctx, x, KB_TIMED, expected, BYTES);
    kb_context_destroy(ctx);
}

static void a_copy_has_what_was_there_when_it_was_asked_for(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(THREE_SIPS);
    kb_tensor from = device_full(ctx, 0, &by_rows, 1), to = device_full(ctx, 2, NULL, 0);
    kb_tensor one = host_full(ctx, 3), back = host_full(ctx, 0);
    expect_ok(kb_tensor_copy(ctx, to, from, KB_TIMED));
    expect_ok(kb_tensor_fill_slice(ctx, from, KB_UNTIMED, &(kb_slice){0}, 7));
    expect_full(ctx, to, 1);
    expect_full(ctx, from, 7);
    /* From a tensor of the host, and from the caller's own array. */
    expect_ok(kb_tensor_copy(ctx, to, one, KB_TIMED));
    expect_ok(kb_tensor_fill_slice(ctx, one, KB_TIMED, &(kb_slice){0}, 6));
    expect_full(ctx, to, 3);
    unsigned char row[SIDE];
    memset(row, 5, SIDE);
    expect_ok(kb_tensor_fill_slice(ctx, to, KB_TIMED, &(kb_slice){0}, 5));
    expect_ok(kb_tensor_set_slice(ctx, to, KB_TIMED, &KB_SLICE({3, 4}), row, SIDE));
    memset(row, 0, SIDE);
    expect_full(ctx, to, 5);
    /* Into one of the host. */
    expect_ok(kb_tensor_copy(ctx, back, to, KB_TIMED));
    expect_ok(kb_tensor_fill_slice(ctx, to, KB_UNTIMED, &(kb_slice){0}, 4));
    expect_full(ctx, back, 5);
    kb_context_destroy(ctx);
}

/* What is under way into memory that was freed cannot spoil what is there now. */
static void memory_can_be_used_again_at_once(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(THREE_SIPS);
    kb_tensor one = host_full(ctx, 3), far = device_full(ctx, 2, &by_rows, 2);
    kb_tensor old = device_full(ctx, 0, &by_rows, 0);
    kb_location before, after;
    expect_ok(kb_tensor_shard_location(ctx, old, 5, &before));
    expect_ok(kb_tensor_copy(ctx, old, far, KB_TIMED));
    expect_ok(kb_tensor_copy(ctx, old, one, KB_TIMED));
    expect_ok(kb_tensor_free(ctx, old));
    kb_tensor fresh = device_full(ctx, 0, &by_rows, 9);
    expect_ok(kb_tensor_shard_location(ctx, fresh, 5, &after));
    assert_memory_equal(&before, &after, sizeof before);
    expect_ok(kb_tensor_free(ctx, one)); /* where it came from may go too */
    expect_ok(kb_tensor_free(ctx, far));
    kb_tensor third = device_full(ctx, 2, &by_rows, 8);
    expect_full(ctx, fresh, 9);
    expect_full(ctx, third, 8);
    kb_context_destroy(ctx);
}

/* ---- Random programs --------------------------------------------------------------------- */

enum { TENSORS = 4 };

typedef struct program {
    kb_context *ctx;
    kb_rng rng;
    kb_shape shape;
    size_t bytes;
    place places[TENSORS];
    unsigned char *data[TENSORS];
} program;

static void remake(program *p, int i)
{
    draw_place(&p->places[i], p->ctx, &p->rng, &p->shape, KB_I8);
    memset(p->data[i], 0, p->bytes);
}

static void overwrite(program *p, int i)
{
    unsigned char *fresh = draw_bytes(&p->rng, p->bytes);
    uint64_t stop = p->shape.dims[0], start = below(&p->rng, stop + 1);
    size_t skip = p->bytes / stop * start;
    expect_ok(kb_tensor_set_slice(p->ctx, p->places[i].tensor, draw_access(&p->rng),
                                  &KB_SLICE({start, stop}), fresh + skip, p->bytes - skip));
    memcpy(p->data[i] + skip, fresh + skip, p->bytes - skip);
    free(fresh);
}

/* Mostly without waiting; a look now and then. */
static void step(program *p)
{
    kb_context *ctx = p->ctx;
    int i = (int)below(&p->rng, TENSORS), j = (int)below(&p->rng, TENSORS);
    kb_access access = one_in(&p->rng, 4) ? KB_UNTIMED : KB_TIMED;
    switch (below(&p->rng, 8)) {
    case 0:
    case 1:
    case 2:
        expect_ok(kb_tensor_copy(ctx, p->places[i].tensor, p->places[j].tensor, access));
        memmove(p->data[i], p->data[j], p->bytes);
        break;
    case 3:
    case 4:
        overwrite(p, i);
        break;
    case 5:
        expect_ok(kb_tensor_fill_slice(ctx, p->places[i].tensor, access, &(kb_slice){0}, 7));
        memset(p->data[i], 7, p->bytes);
        break;
    case 6:
        expect_ok(kb_tensor_free(ctx, p->places[i].tensor));
        remake(p, i);
        break;
    default:
        expect_contents(ctx, p->places[i].tensor, access, p->data[i], p->bytes);
    }
}

static void any_program_sees_the_order_of_its_calls(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(120); n++) {
        program *p = calloc(1, sizeof *p);
        assert_non_null(p);
        kb_rng_init(&p->rng, test_seed(1000 + n));
        p->ctx = open_machine(small_machines[n % SMALL_MACHINES]);
        p->shape = KB_SHAPE(1 + below(&p->rng, 12), 1 + below(&p->rng, 60));
        p->bytes = elements_of(&p->shape);
        for (int i = 0; i < TENSORS; i++) {
            p->data[i] = new_bytes(p->bytes);
            remake(p, i);
        }
        for (int i = 0; i < 40; i++)
            step(p);
        for (int i = 0; i < TENSORS; i++) {
            expect_there(p->ctx, &p->places[i], p->data[i]);
            free(p->data[i]);
        }
        kb_context_destroy(p->ctx);
        free(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_can_be_changed_into_each_other),
        cmocka_unit_test(so_they_can_on_the_default_machine),
        cmocka_unit_test(large_tensors_change_layout_between_devices),
        cmocka_unit_test(of_copies_the_nearest_is_read),
        cmocka_unit_test(shapes_and_dtypes_have_to_match),
        cmocka_unit_test(which_of_the_two_was_freed_is_said),
        cmocka_unit_test(a_copy_to_itself_changes_nothing_and_takes_no_time),
        cmocka_unit_test(between_tensors_of_the_host_no_time_passes),
        cmocka_unit_test(of_two_copies_the_later_one_counts),
        cmocka_unit_test(what_is_set_after_a_copy_stays),
        cmocka_unit_test(a_copy_has_what_was_there_when_it_was_asked_for),
        cmocka_unit_test(memory_can_be_used_again_at_once),
        cmocka_unit_test(any_program_sees_the_order_of_its_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
