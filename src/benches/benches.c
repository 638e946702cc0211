/* benches.c: the table of benches that ship. */
#include "benches.h"

const kb_bench_spec *const benches[] = {
    &bench_gemm_single_pe, &bench_qkv_gemm, &bench_qkv_gemm_multi_pe, &bench_va_offset_verify, NULL,
};
