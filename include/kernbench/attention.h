/*
 * attention.h: attention with a cache of keys and values, on all PEs of a device. Steps that add a
 * token to each of 8 sequences:
 *
 *     #include <kernbench/attention.h>
 *     #include <kernbench/kernbench.h>
 *
 *     static kb_error *decode(kb_context *ctx)
 *     {
 *         const kb_policy columns = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
 *         const kb_tensor_spec in = {.shape = KB_SHAPE(8, (64 + 2 * 8) * 128), .policy = &columns};
 *         const kb_tensor_spec result = {.shape = KB_SHAPE(8, 64 * 128), .policy = &columns};
 *         const kb_kv_cache_spec spec = {.batch = 8, .capacity = 256, .heads = 64, .kv_heads = 8,
 *                                        .head_dim = 128, .rope = {.style = KB_ROPE_HALF_SPLIT}};
 *         kb_tensor qkv, out;
 *         kb_kv_cache cache;
 *         KB_TRY(kb_full(ctx, &in, 0.5, &qkv));
 *         KB_TRY(kb_empty(ctx, &result, &out));
 *         KB_TRY(kb_kv_cache_create(ctx, &spec, &cache));
 *         for (uint32_t length = 0; length < 4; length++) {
 *             const kb_attention_decode_spec step = {.cache = cache, .qkv = qkv, .out = out};
 *             uint32_t cached[8], added[8];
 *             for (int b = 0; b < 8; b++) {
 *                 cached[b] = length;
 *                 added[b] = 1;
 *             }
 *             KB_TRY(kb_kv_cache_set_lengths(ctx, cache, cached, added));
 *             KB_TRY(kb_attention_decode(ctx, &step));
 *         }
 *         return kb_kv_cache_free(ctx, cache);
 *     }
 *
 * A cache has pages of `page_tokens` tokens of one kv head of one sequence. A page is in the HBM
 * slice of the PE that reads it. See docs/attention.md.
 *
 * Shapes and sizes are those of one device: with tensor parallelism each device has its part of the
 * heads.
 */
#ifndef KERNBENCH_ATTENTION_H
#define KERNBENCH_ATTENTION_H

#include <kernbench/kernbench.h>
#include <kernbench/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The cache --------------------------------------------------------------------------- */

/* A handle of a cache. That of a freed cache is invalid forever. */
typedef struct kb_kv_cache {
    uint64_t id;
} kb_kv_cache;

/* A page size that suits most contexts, for kb_kv_cache_spec.page_tokens. */
enum { KB_PAGE_TOKENS = 128 };

/* All zeros except for the sizes: f16, one layer, contiguous, no rotation. */
typedef struct kb_kv_cache_spec {
    const char *name;         /* of its tensors; copied; NULL: "kv_cache" */
    uint32_t batch;           /* sequences */
    uint32_t capacity;        /* maximum tokens of a sequence */
    uint32_t heads, kv_heads; /* of queries, a multiple of those of keys and values */
    uint32_t head_dim;
    uint32_t layers;          /* each has its own keys and values; 0: 1. Lengths and page tables are
                                 the same for all */
    kb_dtype dtype;           /* F16, BF16 or F32 */
    uint32_t page_tokens;     /* 0: contiguous; else pages are found by a table, and have this many
                                 tokens, for example KB_PAGE_TOKENS */
    uint32_t split;           /* PEs that share the keys of a sequence and head, 1 to the PEs of a
                                 head, at most 64; 0: the number with the shortest expected time
                               */
    const uint32_t *expected; /* lengths of the sequences, by which work is distributed; copied;
                                 NULL: all of them have `capacity` tokens */
    uint64_t page_seed;       /* paged: 0: pages are consecutive in memory; else they are
                                 shuffled by this seed */
    kb_rope rope;             /* of queries and keys */
    kb_access access;         /* for its creation and for kb_kv_cache_set_lengths() */
} kb_kv_cache_spec;

/* Creates a cache on the current device. All sequences are empty and not active. */
KB_API KB_MUST_USE kb_error *kb_kv_cache_create(kb_context *ctx, const kb_kv_cache_spec *spec,
                                                kb_kv_cache *cache);
KB_API KB_MUST_USE kb_error *kb_kv_cache_free(kb_context *ctx, kb_kv_cache cache);

/*
 * Sets the tokens of each sequence: `cached` are in the cache already, and `added` are appended by
 * the next calls, one call for each layer. Their sum may be up to `capacity`. A sequence without
 * added tokens is not active: its results are 0. With KB_UNTIMED the change is immediate, so it
 * must not be done while a step is pending.
 */
KB_API KB_MUST_USE kb_error *kb_kv_cache_set_lengths(kb_context *ctx, kb_kv_cache cache,
                                                     const uint32_t *cached, const uint32_t *added);

/* Keys or values of a sequence and kv head: `count` tokens from `token`. */
typedef struct kb_kv_range {
    uint32_t layer, sequence, kv_head;
    uint32_t token, count;
    bool values; /* else keys */
} kb_kv_range;

/* Reads or writes (count, head_dim) numbers, untimed. Written numbers are rounded to the cache's
 * dtype. Keys are rotated, as they are cached. */
KB_API KB_MUST_USE kb_error *kb_kv_cache_get(kb_context *ctx, kb_kv_cache cache,
                                             const kb_kv_range *range, float *numbers);
KB_API KB_MUST_USE kb_error *kb_kv_cache_set(kb_context *ctx, kb_kv_cache cache,
                                             const kb_kv_range *range, const float *numbers);

/* The layout of a cache. */
typedef struct kb_kv_cache_info {
    uint32_t pes;         /* PEs that have a part of it */
    uint32_t pes_of_head; /* PEs of each kv head */
    uint32_t heads_of_pe; /* kv heads of each PE: more than 1 if there are fewer PEs than heads */
    uint32_t split;       /* PEs that share the keys of a sequence and head */
    uint32_t page_tokens;
    bool is_paged;
    uint64_t pages; /* capacity of a PE, for each of its heads and each layer */
    uint64_t bytes; /* of the cache, all layers on all PEs */
    char rule[192]; /* the reason for the split, as a sentence */
} kb_kv_cache_info;

/* The layout of a cache with this spec, without creating it. */
KB_API KB_MUST_USE kb_error *kb_kv_cache_plan(kb_context *ctx, const kb_kv_cache_spec *spec,
                                              kb_kv_cache_info *info);
KB_API KB_MUST_USE kb_error *kb_kv_cache_get_info(kb_context *ctx, kb_kv_cache cache,
                                                  kb_kv_cache_info *info);

/* ---- Decode ------------------------------------------------------------------------------ */

/* All zeros except for the tensors: layer 0, all keys, waits for the result. */
typedef struct kb_attention_decode_spec {
    const char *name; /* of the launch, for reports; NULL: "attention_decode" */
    kb_kv_cache cache;
    uint32_t layer;
    kb_tensor qkv;    /* (batch, (heads + 2 * kv_heads) * head_dim): query heads, key heads, value
                         heads; any layout; the dtype of the cache */
    kb_tensor out;    /* (batch, heads * head_dim); any layout with one copy; the same dtype */
    bool out_by_cube; /* `out` has a copy in each cube: (cubes * batch, heads * head_dim), whose
                         rows are split over the cubes */
    uint32_t window;  /* number of last keys that a query sees, its own included; 0: all */
    double scale;     /* of the scores; 0: 1 / sqrt(head_dim) */
    kb_stream stream; /* as in kb_launch_options */
    kb_request *request; /* the same */
} kb_attention_decode_spec;

/*
 * One token for each sequence to which kb_kv_cache_set_lengths() adds one: rotates its query and
 * key by its position, which is the number of cached tokens, appends key and value to the cache,
 * and computes
 *
 *     out = softmax(scale * q * K^T) * V
 *
 * over the cached tokens and itself. Rows of sequences that are not active become 0. Scores and
 * sums are f32. The lengths are not changed: the program sets them before the next token.
 */
KB_API KB_MUST_USE kb_error *kb_attention_decode(kb_context *ctx,
                                                 const kb_attention_decode_spec *spec);

/* The minimum time of a step with the current lengths, if its work is divided evenly among all PEs
 * of the device: for each hardware unit by itself. */
typedef struct kb_attention_bounds {
    uint64_t cache_bytes; /* bytes of keys and values that are read */
    kb_time hbm;          /* to read them at the bandwidth of all HBM slices */
    kb_time vector;       /* passes over the scores: maximum, difference, exponential, sum */
    kb_time matrix;       /* scores, and probabilities times values */
    kb_time exponentials; /* of the scores alone: a part of `vector` */
} kb_attention_bounds;

KB_API KB_MUST_USE kb_error *kb_attention_decode_bounds(kb_context *ctx, kb_kv_cache cache,
                                                        uint32_t window,
                                                        kb_attention_bounds *bounds);

/* ---- Prefill ----------------------------------------------------------------------------- */

/*
 * Prefill is two calls: kb_kv_append() appends the new tokens to the cache, kb_attention_prefill()
 * computes their attention to all tokens up to themselves. Matrices have `prompt` rows for each
 * sequence of the cache: row b * prompt + i is added token i of sequence b
 * (kb_kv_cache_set_lengths()). At most `prompt` tokens are added, also when a graph is launched
 * again. Sequences with fewer added tokens leave rows unused. A prompt can be given in several
 * parts, each with the previous ones in the cache.
 */

typedef struct kb_kv_append_spec {
    const char *name; /* for reports; NULL: "kv_append" */
    kb_kv_cache cache;
    uint32_t layer;
    kb_tensor qkv; /* (batch * prompt, (heads + 2 * kv_heads) * head_dim): heads of queries, of keys
                      and of values, in any layout, in the cache's dtype */
    kb_tensor q;   /* (batch * prompt, heads * head_dim), for the rotated queries; {0}: these
                      replace the columns of queries in qkv. Not replicated. Unused rows stay as
                      they are */
    double scale;  /* of the scores, by which queries are multiplied; 0: 1 / sqrt(head_dim) */
    kb_stream stream;
    kb_request *request; /* as in kb_launch_options */
} kb_kv_append_spec;

/* Rotates queries and keys by the positions of their tokens, and appends keys and values to the
 * cache. */
KB_API KB_MUST_USE kb_error *kb_kv_append(kb_context *ctx, const kb_kv_append_spec *spec);

typedef struct kb_attention_prefill_spec {
    const char *name; /* for reports; NULL: "attention_prefill" */
    kb_kv_cache cache;
    uint32_t layer;
    kb_tensor q;      /* as kb_kv_append() made them, rotated and scaled: its q, or its qkv */
    kb_tensor out;    /* (batch * prompt, heads * head_dim), in any layout but replicated; unused
                         rows become 0 */
    bool out_by_cube; /* out is (cubes * batch * prompt, heads * head_dim), its rows split over the
                         cubes: each cube gets all rows */
    uint32_t window;  /* number of last keys that a query sees, its own included; 0: all */
    double scale;     /* a further factor of the scores; 0: none. It costs time */
    kb_stream stream;
    kb_request *request; /* as in kb_launch_options */
} kb_attention_prefill_spec;

/* out = softmax(q * K^T) * V for each token and head, over the keys of the tokens up to itself. */
KB_API KB_MUST_USE kb_error *kb_attention_prefill(kb_context *ctx,
                                                  const kb_attention_prefill_spec *spec);

/*
 * The minimum time of kb_attention_prefill() with the current lengths. Keys and values are read
 * once; `hbm` includes queries and results. `vector` excludes the sum, which the matrix
 * engine computes.
 */
KB_API KB_MUST_USE kb_error *kb_attention_prefill_bounds(kb_context *ctx, kb_kv_cache cache,
                                                         uint32_t window,
                                                         kb_attention_bounds *bounds);

#ifdef __cplusplus
}
#endif

#endif
