/*
 * units_time.c: what the engines take, in cycles of their clocks.
 *
 * The matrix engine holds R x C weights. A product of m x k x n is cut into ceil(k / R) x
 * ceil(n / C) folds; each streams m rows of a through, one a cycle. Beyond these
 * folds a product takes 2R + C - 2 cycles: R to load the first weights, and R + C - 2 for the last
 * row to pass the array. k and n are rounded up to R and C, and pay for that; m is not.
 */
#include "units.h"

static uint64_t divide_up(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

/* Counts and times saturate: an engine that takes for ever ends the run (kb_sim_at()). */
static uint64_t times(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t plus(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

uint64_t pe_math_cycles(const topo_pe_params *params, uint64_t elements,
                        const uint32_t counts[PE_MATH_CLASSES])
{
    _Static_assert((int)PE_MATH_CLASSES == (int)TOPO_MATH_CLASSES, "a key for each class");
    uint64_t cycles = 0;
    for (int c = 0; c < PE_MATH_CLASSES; c++)
        if (counts[c] > 0)
            cycles = plus(cycles, times(counts[c], params->math_cycles[c]));
    return times(divide_up(elements, params->math_lanes), cycles);
}

kb_time pe_math_time(const topo_pe_params *params, uint64_t cycles)
{
    return kb_time_times(plus(cycles, params->math_latency_cycles), params->math_cycle_fs);
}

pe_gemm_time pe_gemm_time_of(const topo_pe_params *params, uint64_t m, uint64_t k, uint64_t n)
{
    uint64_t rows = params->gemm_rows, columns = params->gemm_columns;
    uint64_t folds = times(divide_up(k, rows), divide_up(n, columns));
    uint64_t fill = 2 * rows + columns - 2;
    kb_time cycle = params->gemm_cycle_fs;
    if (params->gemm_fill_per_fold) {
        uint64_t cycles = times(folds, plus(m, fill));
        return (pe_gemm_time){.occupied = kb_time_times(cycles > 0 ? cycles - 1 : 0, cycle)};
    }
    return (pe_gemm_time){.occupied = kb_time_times(times(folds, m), cycle),
                          .fill = kb_time_times(fill, cycle)};
}

uint64_t pe_gemm_flops(uint64_t m, uint64_t k, uint64_t n)
{
    return times(2, times(times(m, k), n));
}

uint64_t pe_gemm_reads(const topo_pe_params *params, uint64_t m, uint64_t k, uint64_t n,
                       uint32_t a_bytes, uint32_t b_bytes)
{
    uint64_t a = times(times(times(m, k), a_bytes), divide_up(n, params->gemm_columns));
    return plus(a, times(times(k, n), b_bytes));
}
