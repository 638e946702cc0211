/*
 * benches.h: the shipped benches. Each is a file that uses the public headers alone, like a bench
 * of a user, and ends with its kb_bench_spec.
 */
#ifndef KB_BENCHES_BENCHES_H
#define KB_BENCHES_BENCHES_H

#include <kernbench/kernbench.h>

extern const kb_bench_spec bench_gemm_single_pe;
extern const kb_bench_spec bench_qkv_gemm;
extern const kb_bench_spec bench_qkv_gemm_multi_pe;
extern const kb_bench_spec bench_va_offset_verify;
extern const kb_bench_spec bench_halo;
extern const kb_bench_spec bench_launch_chain;
extern const kb_bench_spec bench_matmul_composite;
extern const kb_bench_spec bench_pe2pe;
extern const kb_bench_spec bench_tp_mlp;
extern const kb_bench_spec bench_gqa_llama70b;
extern const kb_bench_spec bench_gqa_prefill;
extern const kb_bench_spec bench_gqa_decode;
extern const kb_bench_spec bench_llama70b_layer, bench_llama70b_decode, bench_llama70b_prefill;
extern const kb_bench_spec bench_ccl_allreduce, bench_ipcq_allreduce;
extern const kb_bench_spec bench_ccl_all_gather, bench_ccl_reduce_scatter, bench_ccl_broadcast;
extern const kb_bench_spec bench_ccl_reduce, bench_ccl_gather, bench_ccl_scatter;
extern const kb_bench_spec bench_ccl_all_to_all, bench_ccl_sendrecv;

/* In the order of `kernbench list`; ends with NULL. */
extern const kb_bench_spec *const benches[];

#endif
