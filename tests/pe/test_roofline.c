/*
 * test_roofline.c: how near products come to what the machine can do at best.
 *
 * Of m x k x n there are two bounds:
 *
 *   compute = (ceil(k / R) * ceil(n / C) * m + fill) cycles, fill = 2R + C - 2
 *   memory  = (bytes of a, b and c, each once) / (bandwidth of the memory that they are in)
 *
 * The default PE has R = C = 64 at 1 GHz, so fill is 190 ns, and 204.8 GB/s to its own slice, whose
 * latency is 90 ns for a read and 83 for a write (test_dma.c).
 *
 * No product is faster than either. None can reach them: at least the first operands have to come,
 * and the last result has to go. If the array is the slower side that is 90 + 83 ns; if the memory
 * is, 190 ns of fill come to that, since the last bytes have to pass the array too. These 363 ns
 * are 5 % of 38 times the fill, so there is no such law below that. What holds, here and in sweeps
 * of tens of thousands of random shapes:
 *
 *   elements of 1 or 2 bytes: at most 5 % above the larger bound, if that is 55 times the fill
 *   elements of 4 bytes:      at most 5 %, if it is 250 times the fill; the TCM is busy then: the
 *                             array reads 256 of its 512 GB/s for a alone, besides b and the sums
 *   smaller ones:             at most 700 ns above the larger bound (1 or 2 bytes)
 */
#include "composite_rig.h"
#include "support/seed.h"

static const kb_time fill = (2 * 64 + 64 - 2) * KB_NS;

static uint64_t divide_up(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

/* The larger bound; `bytes_per_s` is of the memory. */
static kb_time bound_of(uint64_t m, uint64_t k, uint64_t n, uint32_t bytes, uint64_t bytes_per_s)
{
    kb_time compute = (kb_time)(divide_up(k, 64) * divide_up(n, 64) * m) * KB_NS + fill;
    kb_time memory = topo_rate_time(bytes_per_s, (m * k + k * n + m * n) * bytes);
    return compute > memory ? compute : memory;
}

static const uint64_t slice_bytes_per_s = 204800000000;

static void check_law(composite_rig *r, uint64_t m, uint64_t k, uint64_t n, uint32_t bytes)
{
    plain_product p;
    plain_make(&p, m, k, n, bytes);
    r->has.entries = 0;
    kb_time time = time_product(r, &p.is), bound = bound_of(m, k, n, bytes, slice_bytes_per_s);
    kb_time near = (bytes > 2 ? 250 : 55) * fill;
    bool is_right = time >= bound && (bound < near || time <= bound + bound / 20) &&
                    (bytes > 2 || bound >= near || time <= bound + 700 * KB_NS);
    if (!is_right)
        fail_msg("%d x %d x %d of %d bytes: %.1f ns, the bound is %.1f", (int)m, (int)k, (int)n,
                 (int)bytes, kb_to_ns(time), kb_to_ns(bound));
}

/* Layers of models, square ones, tall and wide ones, ragged ones, one that is bound by both. */
static void known_shapes(void **state)
{
    (void)state;
    static const uint64_t shapes[][3] = {
        {128, 12288, 96}, {1, 2048, 2048}, {16, 2048, 1024}, {128, 1024, 512}, {512, 512, 512},
        {4096, 64, 64},   {64, 64, 4096},  {64, 8192, 64},   {40, 1024, 1024}, {333, 777, 555},
        {65, 65, 4097},   {2049, 63, 127}, {1, 1, 65536},    {8192, 1, 65},    {3, 8191, 130},
        {256, 128, 1024}, {31, 999, 1999}, {100, 100, 100},  {1, 1, 1},        {64, 64, 64},
        {1, 64, 64},      {200, 1, 1},     {17, 300, 9},
    };
    composite_rig r;
    composite_rig_make(&r, default_machine());
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_law(&r, shapes[i][0], shapes[i][1], shapes[i][2], i % 4 ? 2 : 1);
    check_law(&r, 256, 1024, 1024, 4);
    check_law(&r, 16, 4000, 1000, 4);
    composite_rig_fini(&r);
}

static uint64_t any_size(kb_rng *rng)
{
    uint64_t size = 1 + kb_rng_below(rng, (uint64_t)1 << between(rng, 1, 14));
    return size > 64 && between(rng, 0, 2) == 0 ? size / 64 * 64 : size;
}

static void random_shapes(void **state)
{
    (void)state;
    composite_rig r;
    composite_rig_make(&r, default_machine());
    kb_rng rng;
    kb_rng_init(&rng, test_seed(31));
    for (int tried = 0; tried < 50;) {
        uint64_t m = any_size(&rng), k = any_size(&rng), n = any_size(&rng);
        uint32_t bytes = 1u << between(&rng, 0, 2);
        kb_time bound = bound_of(m, k, n, bytes, slice_bytes_per_s);
        if (bound > 300 * fill || (tried % 2 == 0 && bound < 55 * fill))
            continue;
        check_law(&r, m, k, n, bytes);
        tried++;
    }
    composite_rig_fini(&r);
}

/* The SRAM of the cube: 256 GB/s, which is what the PE's port carries. */
static void operands_in_the_sram(void **state)
{
    (void)state;
    static const uint64_t shapes[][3] = {{16, 2000, 1500}, {512, 640, 256}, {48, 1600, 1000}};
    composite_rig r;
    composite_rig_make(&r, default_machine());
    for (int i = 0; i < 3; i++) {
        uint64_t m = shapes[i][0], k = shapes[i][1], n = shapes[i][2];
        plain_product p;
        plain_make(&p, m, k, n, 2);
        p.a.at = (kb_location){.memory = KB_SRAM, .offset = 0};
        p.b.at = (kb_location){.memory = KB_SRAM, .offset = 8 << 20};
        p.c.at = (kb_location){.memory = KB_SRAM, .offset = 24 << 20};
        kb_time time = time_product(&r, &p.is), bound = bound_of(m, k, n, 2, 256 * TOPO_GBS);
        assert_true(bound >= 100 * fill);
        assert_true(time >= bound && time <= bound + bound / 20);
    }
    composite_rig_fini(&r);
}

/* With a quarter of the space and an array of 32 x 32 the laws are the same. */
static void another_machine(void **state)
{
    (void)state;
    composite_rig r;
    composite_rig_make(&r, machine_with("cube.pe_tcm.reserved_mib=1", "cube.pe_gemm.rows=32",
                                        "cube.pe_gemm.columns=32", NULL));
    static const uint64_t shapes[][3] = {{300, 1000, 200}, {20, 3000, 1000}, {1000, 32, 1000}};
    for (int i = 0; i < 3; i++) {
        uint64_t m = shapes[i][0], k = shapes[i][1], n = shapes[i][2];
        plain_product p;
        plain_make(&p, m, k, n, 2);
        kb_time compute = (kb_time)(divide_up(k, 32) * divide_up(n, 32) * m + 94) * KB_NS;
        kb_time memory = topo_rate_time(slice_bytes_per_s, (m * k + k * n + m * n) * 2);
        kb_time bound = compute > memory ? compute : memory, time = time_product(&r, &p.is);
        assert_true(time >= bound && time <= bound + bound / 20);
    }
    composite_rig_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_shapes),
        cmocka_unit_test(random_shapes),
        cmocka_unit_test(operands_in_the_sram),
        cmocka_unit_test(another_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
