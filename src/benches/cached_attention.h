/*
 * cached_attention.h: parameters, numbers and verification for gqa_decode and gqa_prefill. A decode
 * step is a prompt of one token for each sequence.
 */
#ifndef KB_BENCHES_CACHED_ATTENTION_H
#define KB_BENCHES_CACHED_ATTENTION_H

#include <kernbench/attention.h>
#include <kernbench/kernbench.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- Parameters ---- */

extern const char *const attention_scale_names[], *const attention_dtype_names[],
                                                      *const attention_yes_names[];

#define ATTENTION_SCALE_PARAM                                                                      \
    {                                                                                              \
        .name = "scale", .names = attention_scale_names,                                           \
        .help = "what 0 means below; large shapes are timing-only, others are verified"            \
    }
#define ATTENTION_HEAD_PARAMS                                                                      \
    {.name = "heads", .max = 4096, .help = "query heads; 0: 16, headline 64"},                     \
        {.name = "kv_heads", .max = 4096, .help = "of keys and values; 0: 2, headline 8"},         \
        {.name = "head_dim", .max = 4096, .help = "0: 64, headline 128"},                          \
    {                                                                                              \
        .name = "dtype", .names = attention_dtype_names, .help = "of cache, queries and results"   \
    }
#define ATTENTION_WINDOW_PARAM                                                                     \
    {                                                                                              \
        .name = "window", .max = 1 << 22, .help = "last keys that a query sees; 0: all"            \
    }
#define ATTENTION_SEED_PARAM                                                                       \
    {                                                                                              \
        .name = "seed", .value = 1, .max = 1 << 30, .help = "of numbers, lengths and pages"        \
    }

/* A parameter; 0 is replaced by its default at the scale of the run. */
uint32_t attention_param(const kb_bench *bench, const char *name, uint32_t validation,
                         uint32_t headline);

/* A cache with the heads, dtype and split of the parameters. The bench sets batch, capacity and
 * pages. */
kb_kv_cache_spec attention_cache_spec(const kb_bench *bench);

/* ---- A run ---- */

typedef struct attention_run {
    kb_bench *bench;
    kb_kv_cache_spec spec;
    uint32_t prompt; /* rows of each sequence in qkv and out */
    uint32_t window;
    uint64_t seed;
    uint32_t *cached, *added; /* by sequence; added: up to `prompt` */
    kb_kv_cache cache;
    kb_tensor qkv, out;
    float *rows;          /* of qkv; NULL without data */
    float *keys, *values; /* (sequence, kv head, token, dim) */
} attention_run;

/* Sets the device of the bench, and allocates the lengths. attention_end() must be called also
 * after an error. */
KB_MUST_USE kb_error *attention_begin(attention_run *run, kb_bench *bench,
                                      const kb_kv_cache_spec *spec, uint32_t prompt);
void attention_end(attention_run *run);

/* Columns of q and out; of qkv. */
size_t attention_q_columns(const kb_kv_cache_spec *spec);
size_t attention_qkv_columns(const kb_kv_cache_spec *spec);

/* A tensor with the rows of all sequences. */
KB_MUST_USE kb_error *attention_make_rows(const attention_run *run, const char *name,
                                          const kb_policy *policy, size_t columns,
                                          kb_tensor *tensor);

/* Fills qkv, and the cache before the new tokens, with random numbers, untimed. */
KB_MUST_USE kb_error *attention_fill(attention_run *run);

/* Waits for a launch and returns its times. */
KB_MUST_USE kb_error *attention_wait(kb_context *ctx, kb_request request, kb_launch_result *result);

/* Compares `out` with the reference. Rows beyond the tokens of a sequence must be 0. */
KB_MUST_USE kb_error *attention_verify(const attention_run *run);

#endif
