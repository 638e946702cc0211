/*
 * test_access.c: what a kernel may touch of a tensor: its own elements, whole, as what they are.
 * Everything else is a fault with the kernel, the PE, the line and the tensor, with data and
 * without.
 */
#include "tensors.h"

#include <kernbench/tl.h>

/* ---- Kernels: what is wrong with each is the text that follows it ------------------------- */

static int line; /* of the mistake */
#define HERE (line = __LINE__)

#define TENSOR "tensor 'x' (f16, 0x100000000 to 0x100000080)"
#define INTENDED "; if that is intended, .reinterpret = true says so"

KB_KERNEL(load_as_f32, tl_ptr x)
{
    HERE, tl_load(x + 8, tl_shape(4), TL_F32);
}
#define LOAD_AS_F32 "tl_load: " TENSOR " is accessed as f32 at 0x100000008" INTENDED

KB_KERNEL(load_as_bf16, tl_ptr x)
{
    HERE, tl_load(x, tl_shape(4), TL_BF16);
}
#define LOAD_AS_BF16 "tl_load: " TENSOR " is accessed as bf16 at 0x100000000" INTENDED

KB_KERNEL(store_f32, tl_ptr x)
{
    tl_tensor v = tl_full(tl_shape(4), TL_F32, 1);
    HERE, (void)tl_store(x, v);
}
#define STORE_F32 "tl_store: " TENSOR " is accessed as f32 at 0x100000000" INTENDED

KB_KERNEL(ref_as_i8, tl_ptr x)
{
    tl_tensor v = tl_ref(x, tl_shape(4), TL_I8);
    tl_wait((HERE, tl_abs(v)));
}
#define REF_AS_I8 "tl_abs: " TENSOR " is accessed as i8 at 0x100000000" INTENDED

KB_KERNEL(product_of_f32, tl_ptr x)
{
    tl_tensor a = tl_ref(x, tl_shape(4, 4), TL_F16), out = tl_ref(x, tl_shape(4, 4), TL_F32);
    HERE, (void)tl_composite(TL_GEMM, a, a, out);
}
#define PRODUCT_OF_F32 "tl_composite: " TENSOR " is accessed as f32 at 0x100000000" INTENDED

KB_KERNEL(load_at_odd_byte, tl_ptr x)
{
    HERE, tl_load(x + 3, tl_shape(4), TL_F16);
}
#define LOAD_AT_ODD_BYTE                                                                           \
    "tl_load: address 0x100000003 is misaligned: its offset in " TENSOR                            \
    " is 0x3, no multiple of the element size 2"

KB_KERNEL(store_reinterpreted_at_2, tl_ptr x)
{
    tl_tensor v = tl_full(tl_shape(4), TL_F32, 1);
    HERE, (void)tl_store(x + 2, v, .reinterpret = true);
}
#define STORE_REINTERPRETED_AT_2                                                                   \
    "tl_store: address 0x100000002 is misaligned: its offset in " TENSOR                           \
    " is 0x2, no multiple of the element size 4"

KB_KERNEL(load_past_the_end, tl_ptr x)
{
    HERE, tl_load(x + 2, tl_shape(64), TL_F16);
}
#define LOAD_PAST_THE_END                                                                          \
    "tl_load: the MMU on sip0.cube0.pe0: address 0x100000080 is not mapped: it is just past the "  \
    "end of " TENSOR

KB_KERNEL(store_past_the_end, tl_ptr x)
{
    tl_tensor v = tl_full(tl_shape(2), TL_F16, 1);
    HERE, (void)tl_store(x + 126, v);
}
#define STORE_PAST_THE_END                                                                         \
    "tl_store: the MMU on sip0.cube0.pe0: address 0x100000080 is not mapped: it is just past the " \
    "end of " TENSOR

/* The next tensor begins a page and a gap further on: 0x2000 bytes, 4096 elements. */
KB_KERNEL(load_two_tensors, tl_ptr x)
{
    HERE, tl_load(x, tl_shape(2, 4), TL_F16, .strides = tl_strides(4096, 1));
}
#define LOAD_TWO_TENSORS                                                                           \
    "tl_load: the access leaves " TENSOR                                                           \
    ": its address 0x100002000 is in tensor 'y' (f16, 0x100002000 to 0x100002080)"

/* ---- Kernels that are right --------------------------------------------------------------- */

KB_KERNEL(reinterpret, tl_ptr x)
{
    tl_tensor words = tl_load(x, tl_shape(4), TL_I32, .reinterpret = true);
    tl_store(x + 16, words, .reinterpret = true);
    tl_tensor bytes = tl_ref(x + 1, tl_shape(3), TL_I8, .reinterpret = true);
    tl_store(x + 33, tl_abs(bytes), .reinterpret = true);
}

/* What a mask leaves out may be anywhere: before the tensor, behind it, in another one. */
KB_KERNEL(masked, tl_ptr x)
{
    tl_tensor i = tl_arange(0, 256);
    tl_tensor in = tl_mul(tl_ge(i, 64), tl_lt(i, 128));
    tl_tensor v = tl_load(x - 128, tl_shape(256), TL_F16, .mask = in);
    tl_store(x - 128, v, .mask = in);
    tl_tensor rows = tl_reshape(tl_lt(tl_arange(0, 2), 1), tl_shape(2, 1));
    tl_load(x, tl_shape(2, 4), TL_F16, .strides = tl_strides(4096, 1), .mask = rows);
    tl_load(x + 1, tl_shape(0), TL_F32); /* nothing */
}

KB_KERNEL(across_shards, tl_ptr x)
{
    tl_tensor v = tl_load(x, tl_shape(64), TL_F16);
    if (tl_program_id(0) == 0 && tl_program_id(1) == 0)
        tl_store(x, v);
}

/* ---- Running ------------------------------------------------------------------------------ */

typedef struct two {
    kb_context *ctx;
    kb_tensor x, y;
} two;

static two open_two(const char *machine, bool timing_only, const kb_policy *policy)
{
    two t = {.ctx = open_context(machine, (kb_context_options){.timing_only = timing_only})};
    kb_tensor_spec spec = {.name = "x", .dtype = KB_F16, .shape = KB_SHAPE(64), .policy = policy};
    spec.access = KB_UNTIMED;
    expect_ok(kb_zeros(t.ctx, &spec, &t.x));
    spec.name = "y";
    expect_ok(kb_zeros(t.ctx, &spec, &t.y));
    uint64_t x, y;
    expect_ok(kb_tensor_va(t.ctx, t.x, &x));
    expect_ok(kb_tensor_va(t.ctx, t.y, &y));
    assert_int_equal(x, 0x100000000);
    assert_int_equal(y, 0x100002000);
    return t;
}

static void expect_mistake(const kb_kernel *kernel, const char *text, bool timing_only)
{
    two t = open_two(ONE_PE, timing_only, NULL);
    kb_error *err = kb_launch(t.ctx, NULL, kernel, t.x);
    char prefix[128], place[64];
    snprintf(prefix, sizeof prefix, "kernel '%s' on sip0.cube0.pe0 at ", kernel->name);
    snprintf(place, sizeof place, " ns, test_access.c:%d: ", line);
    const char *message = kb_error_message(err);
    if (strncmp(message, prefix, strlen(prefix)) != 0)
        fail_msg("%s", message);
    const char *said = strstr(message, place);
    if (!said)
        fail_msg("no%s in %s", place, message);
    assert_string_equal(said + strlen(place), text);
    assert_int_equal(kb_error_code(err), KB_ERR_FAULT);
    kb_error_free(err);
    kb_context_destroy(t.ctx);
}

static void mistakes_are_faults(void **state)
{
    (void)state;
    static const struct {
        const kb_kernel *kernel;
        const char *text;
    } mistakes[] = {
        {&load_as_f32, LOAD_AS_F32},
        {&load_as_bf16, LOAD_AS_BF16},
        {&store_f32, STORE_F32},
        {&ref_as_i8, REF_AS_I8},
        {&product_of_f32, PRODUCT_OF_F32},
        {&load_at_odd_byte, LOAD_AT_ODD_BYTE},
        {&store_reinterpreted_at_2, STORE_REINTERPRETED_AT_2},
        {&load_past_the_end, LOAD_PAST_THE_END},
        {&store_past_the_end, STORE_PAST_THE_END},
        {&load_two_tensors, LOAD_TWO_TENSORS},
    };
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++)
        for (int timing_only = 0; timing_only < 2; timing_only++)
            expect_mistake(mistakes[i].kernel, mistakes[i].text, timing_only);
}

static void what_is_no_mistake_runs(void **state)
{
    (void)state;
    static const kb_policy by_columns = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    for (int m = 0; m < SMALL_MACHINES; m++) {
        two t = open_two(small_machines[m], false, &by_columns);
        expect_ok(kb_launch(t.ctx, NULL, &across_shards, t.x));
        kb_context_destroy(t.ctx);
    }
    two t = open_two(ONE_PE, false, NULL);
    uint16_t data[64], back[64];
    for (int i = 0; i < 64; i++)
        data[i] = (uint16_t)(0x0101 * (i + 1));
    expect_ok(kb_tensor_set_slice(t.ctx, t.x, KB_UNTIMED, NULL, data, sizeof data));
    expect_ok(kb_launch(t.ctx, NULL, &reinterpret, t.x));
    expect_ok(kb_launch(t.ctx, NULL, &masked, t.x));
    expect_ok(kb_tensor_get_slice(t.ctx, t.x, KB_UNTIMED, NULL, back, sizeof back));
    assert_memory_equal(back + 8, data, 16);
    assert_memory_equal((char *)back + 33, (char *)data + 1, 3);
    kb_context_destroy(t.ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mistakes_are_faults),
        cmocka_unit_test(what_is_no_mistake_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
