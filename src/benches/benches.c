/* benches.c: the table of benches that ship. */
#include "benches.h"

const kb_bench_spec *const benches[] = {
    &bench_gemm_single_pe,
    &bench_qkv_gemm,
    &bench_qkv_gemm_multi_pe,
    &bench_va_offset_verify,
    &bench_halo,
    &bench_launch_chain,
    &bench_matmul_composite,
    &bench_pe2pe,
    &bench_tp_mlp,
    &bench_gqa_llama70b,
    &bench_gqa_prefill,
    &bench_gqa_decode,
    &bench_ccl_allreduce,
    &bench_ipcq_allreduce,
    &bench_ccl_all_gather,
    &bench_ccl_reduce_scatter,
    &bench_ccl_broadcast,
    &bench_ccl_reduce,
    &bench_ccl_gather,
    &bench_ccl_scatter,
    &bench_ccl_all_to_all,
    &bench_ccl_sendrecv,
    NULL,
};
