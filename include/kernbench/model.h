/*
 * model.h: dense transformer decoders such as Llama: sizes, bounds, memory, and steps that run
 * on all PEs of one or more devices.
 *
 *     #include <kernbench/model.h>
 *
 *     static kb_error *generate(kb_context *ctx, uint32_t rank, void *arg)
 *     {
 *         kb_model_spec spec = kb_model_llama70b();
 *         kb_model model;
 *         kb_model_times times;
 *         (void)arg;
 *         spec.layers = 2;
 *         spec.context = 4096;
 *         KB_TRY(kb_ahbm_set_device(ctx, rank));
 *         KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
 *         KB_TRY(kb_tp_initialize_model_parallel(ctx, 2));
 *         KB_TRY(kb_model_create(ctx, &spec, &model));
 *         KB_TRY(kb_model_set_cached(ctx, model, (uint32_t[]){4095}));
 *         KB_TRY(kb_model_decode(ctx, model, &times));
 *         return kb_model_free(ctx, model);
 *     }
 *
 * A program runs this with kb_spawn(ctx, generate, NULL, 2), in a context that is timing-only: the
 * weights of such a model do not fit in the memory of a host. With data, a model has random weights
 * by a seed, which are the same for any number of ranks.
 *
 * All ranks of a tensor parallel group make the same calls in the same order. Without model
 * parallelism a model is on the current device alone. Steps run as a graph (decode) or in a stream
 * (prefill), without the host between layers, embedding and sampling.
 */
#ifndef KERNBENCH_MODEL_H
#define KERNBENCH_MODEL_H

#include <kernbench/attention.h>
#include <kernbench/kernbench.h>
#include <kernbench/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Specs ------------------------------------------------------------------------------- */

/* Each layer: x += attention(rms_norm(x)); x += down(silu(gate(n)) * up(n)) with n = rms_norm(x).
 * Weights have no biases; embedding and head are two tables. */
typedef struct kb_model_spec {
    const char *name; /* for reports; NULL: "model" */
    uint64_t hidden, ffn, heads, kv_heads, head_dim, vocab, layers;
    kb_dtype dtype;  /* of weights, activations and cache: F16, BF16 or F32 */
    double norm_eps; /* 0: 1e-5 */
    kb_rope rope;

    uint64_t batch;       /* sequences; 0: 1 */
    uint64_t context;     /* maximum tokens of a sequence */
    uint64_t prompt;      /* maximum tokens of each sequence in a prefill; 0: no prefill */
    uint64_t page_tokens; /* of the cache; 0: contiguous */
    bool layers_only;     /* no embedding and no head: see kb_model_set_hidden() */
    uint64_t seed;        /* of the weights, if there is data; 0 is a valid seed */
} kb_model_spec;

/* Llama 3 with 70 billion parameters and Llama 3.1 with 405 billion, in bf16; batch, context and
 * prompt are 0. */
KB_API kb_model_spec kb_model_llama70b(void);
KB_API kb_model_spec kb_model_llama405b(void);

/* ---- Closed forms ------------------------------------------------------------------------ */

typedef struct kb_model_counts {
    uint64_t parameters; /* in total; and of: */
    uint64_t embedding, layer, head;
    uint64_t cache_elements; /* keys and values of one token, in all layers */
} kb_model_counts;

/* An error if a size is 0, too large, or inconsistent with the others. */
KB_API KB_MUST_USE kb_error *kb_model_count(const kb_model_spec *spec, kb_model_counts *counts);

/* The memory of a device, in bytes. */
typedef struct kb_model_memory {
    uint64_t weights, cache, activations;
    uint64_t capacity;                     /* of its HBM */
    uint64_t slice_needed, slice_capacity; /* of the PE that needs most, and of an HBM slice */
    bool fits;
    uint64_t max_batch, max_context; /* that fit with all other sizes unchanged; 0: none */
    uint32_t min_ranks;              /* devices that it fits on; 0: none of up to 16 */
} kb_model_memory;

/* `ranks`: the number of devices of the model. Nothing is allocated. */
KB_API KB_MUST_USE kb_error *kb_model_plan_memory(kb_context *ctx, const kb_model_spec *spec,
                                                  uint32_t ranks, kb_model_memory *memory);

/* A step: `rows` new tokens in each sequence, after `cached` ones. */
typedef struct kb_model_step {
    uint64_t rows, cached;
} kb_model_step;

/* The minimum time of a step, for each resource of the machine by itself. */
typedef struct kb_model_bounds {
    kb_time weights;       /* reading them once, without the embedding */
    kb_time cache;         /* reading keys and values */
    kb_time matrix;        /* products on the matrix engines, those of attention included */
    kb_time communication; /* sums over ranks on the links between devices */
    kb_time memory;        /* weights + cache */
    kb_time best;          /* the largest of memory, matrix and communication */
} kb_model_bounds;

KB_API KB_MUST_USE kb_error *kb_model_bound(kb_context *ctx, const kb_model_spec *spec,
                                            uint32_t ranks, kb_model_step step,
                                            kb_model_bounds *bounds);

/* ---- Models ------------------------------------------------------------------------------ */

/* A handle of one rank's part of a model. That of a freed model is invalid forever. */
typedef struct kb_model {
    uint64_t id;
} kb_model;

/* Creates the model on the caller's device. If it does not fit, the error names sizes that would.
 * Takes no simulated time, except for the installation of queues. */
KB_API KB_MUST_USE kb_error *kb_model_create(kb_context *ctx, const kb_model_spec *spec,
                                             kb_model *model);
KB_API KB_MUST_USE kb_error *kb_model_free(kb_context *ctx, kb_model model);

/* The kernels of a step. */
typedef enum kb_model_part {
    KB_MODEL_EMBED,
    KB_MODEL_QKV,       /* with the norm before it */
    KB_MODEL_APPEND,    /* prefill: rotation, and keys and values to the cache */
    KB_MODEL_ATTENTION, /* decode: with rotation and append */
    KB_MODEL_OUT,       /* with sum over ranks and residual */
    KB_MODEL_GATE_UP,   /* with the norm before it and silu(gate) * up */
    KB_MODEL_DOWN,      /* with sum over ranks and residual */
    KB_MODEL_HEAD,      /* with the norm before it */
    KB_MODEL_SAMPLE,    /* argmax */
    KB_MODEL_PARTS
} kb_model_part;

KB_API const char *kb_model_part_name(kb_model_part part); /* "gate_up" */

/* The times of a step, on the caller's device, summed over layers. */
typedef struct kb_model_times {
    kb_time total;                 /* from the host's call to its end */
    kb_time parts[KB_MODEL_PARTS]; /* from the end of the previous part to the end of this */
    kb_time all_reduce; /* of `out` and `down`: the time that PEs wait for messages, on average */
    kb_time launch;     /* the rest: before the first part begins, and after the last one ends */
} kb_model_times;

/* One token for each sequence. The token that was sampled last, or given by kb_model_set_tokens(),
 * is appended to the cache; the next one is sampled (argmax) and stays on the device. */
KB_API KB_MUST_USE kb_error *kb_model_decode(kb_context *ctx, kb_model model,
                                             kb_model_times *times);

/* The prompts of all sequences: tokens is (batch, prompt), row by row; lengths are the numbers of
 * tokens of each, at least 1. They are appended to the cached tokens, and the next token is
 * sampled. NULL tokens: those on the device (0 at first). */
KB_API KB_MUST_USE kb_error *kb_model_prefill(kb_context *ctx, kb_model model,
                                              const int32_t *tokens, const uint32_t *lengths,
                                              kb_model_times *times);

/* ---- Contents ---------------------------------------------------------------------------- */

/* Untimed. One token for each sequence. In timing-only contexts sampled tokens are not computed. */
KB_API KB_MUST_USE kb_error *kb_model_set_tokens(kb_context *ctx, kb_model model,
                                                 const int32_t *tokens);
KB_API KB_MUST_USE kb_error *kb_model_get_tokens(kb_context *ctx, kb_model model, int32_t *tokens);

/* The number of tokens of each sequence in the cache. */
KB_API KB_MUST_USE kb_error *kb_model_set_cached(kb_context *ctx, kb_model model,
                                                 const uint32_t *cached);

/* Of the last step: (batch, vocab / ranks), the rank's columns. */
KB_API KB_MUST_USE kb_error *kb_model_get_logits(kb_context *ctx, kb_model model, float *logits);

/* The input and output rows of the layers: (batch, hidden) of decode, or (batch * prompt,
 * hidden) of prefill. Input rows are only for a model with `layers_only`. */
KB_API KB_MUST_USE kb_error *kb_model_set_hidden(kb_context *ctx, kb_model model, bool prefill,
                                                 const float *rows);
KB_API KB_MUST_USE kb_error *kb_model_get_hidden(kb_context *ctx, kb_model model, bool prefill,
                                                 float *rows);

KB_API KB_MUST_USE kb_error *kb_model_cache(kb_context *ctx, kb_model model, kb_kv_cache *cache);

/* A matrix or vector of weights, of the whole model. */
typedef enum kb_model_weight_kind {
    KB_MODEL_EMBEDDING_TABLE, /* (vocab, hidden) */
    KB_MODEL_ATTENTION_NORM,  /* (hidden) */
    KB_MODEL_QKV_WEIGHT,      /* (hidden, (heads + 2 * kv_heads) * head_dim): q, k, v */
    KB_MODEL_OUT_WEIGHT,      /* (heads * head_dim, hidden) */
    KB_MODEL_MLP_NORM,        /* (hidden) */
    KB_MODEL_GATE_UP_WEIGHT,  /* (hidden, 2 * ffn): pairs of columns (gate, up) */
    KB_MODEL_DOWN_WEIGHT,     /* (ffn, hidden) */
    KB_MODEL_FINAL_NORM,      /* (hidden) */
    KB_MODEL_HEAD_WEIGHT,     /* (hidden, vocab) */
    KB_MODEL_WEIGHTS
} kb_model_weight_kind;

/* The number of its elements, and their values, rounded to the model's dtype. `layer` is 0 for
 * weights that are in no layer. */
KB_API uint64_t kb_model_weight_elements(const kb_model_spec *spec, kb_model_weight_kind kind);
KB_API void kb_model_weight(const kb_model_spec *spec, kb_model_weight_kind kind, uint64_t layer,
                            float *elements);

#ifdef __cplusplus
}
#endif

#endif
