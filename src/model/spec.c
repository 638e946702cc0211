/*
 * spec.c: specs of models: the shipped ones, checks, and parameter counts.
 */
#include <inttypes.h>
#include <stdio.h>

#include "model_state.h"

kb_model_spec kb_model_llama70b(void)
{
    return (kb_model_spec){
        .name = "llama70b",
        .hidden = 8192,
        .ffn = 28672,
        .heads = 64,
        .kv_heads = 8,
        .head_dim = 128,
        .vocab = 128256,
        .layers = 80,
        .dtype = KB_BF16,
        .norm_eps = 1e-5,
        .rope = {.style = KB_ROPE_HALF_SPLIT, .base = 500000},
    };
}

kb_model_spec kb_model_llama405b(void)
{
    kb_model_spec spec = kb_model_llama70b();
    spec.name = "llama405b";
    spec.hidden = 16384;
    spec.ffn = 53248;
    spec.heads = 128;
    spec.layers = 126;
    spec.rope.scaling = KB_ROPE_LLAMA3;
    spec.rope.factor = 8;
    spec.rope.low_freq_factor = 1;
    spec.rope.high_freq_factor = 4;
    spec.rope.original_max_position = 8192;
    return spec;
}

kb_model_spec model_complete(const kb_model_spec *spec)
{
    kb_model_spec complete = *spec;
    if (!complete.name)
        complete.name = "model";
    if (complete.norm_eps == 0)
        complete.norm_eps = 1e-5;
    if (complete.batch == 0)
        complete.batch = 1;
    return complete;
}

/* ---- Checks ---- */

/* Limits that prevent overflow below: 2^22 squared times 2^13 layers is below 2^63. */
static const uint64_t max_size = 1 << 22, max_layers = 1 << 13;

static kb_error *check_sizes(const kb_model_spec *spec)
{
    const struct {
        const char *name;
        uint64_t value, max;
    } sizes[] = {
        {"hidden", spec->hidden, max_size},     {"ffn", spec->ffn, max_size},
        {"heads", spec->heads, max_size},       {"kv_heads", spec->kv_heads, max_size},
        {"head_dim", spec->head_dim, max_size}, {"vocab", spec->vocab, max_size},
        {"layers", spec->layers, max_layers},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i].value == 0 || sizes[i].value > sizes[i].max)
            return kb_error_new(KB_ERR_INPUT, "model: %s is %" PRIu64 ": expected 1 to %" PRIu64,
                                sizes[i].name, sizes[i].value, sizes[i].max);
    if (spec->heads * spec->head_dim > max_size)
        return kb_error_new(KB_ERR_INPUT,
                            "model: heads * head_dim is %" PRIu64 ": expected at most %" PRIu64,
                            spec->heads * spec->head_dim, max_size);
    if (spec->batch > MODEL_MAX_BATCH || spec->context > MODEL_MAX_TOKENS ||
        spec->prompt > MODEL_MAX_TOKENS || spec->page_tokens > MODEL_MAX_TOKENS)
        return kb_error_new(
            KB_ERR_INPUT,
            "model: batch is at most %d, context, prompt and page_tokens are at most "
            "%d",
            MODEL_MAX_BATCH, MODEL_MAX_TOKENS);
    return NULL;
}

static kb_error *check_spec(const kb_model_spec *spec)
{
    KB_TRY(check_sizes(spec));
    if (spec->heads % spec->kv_heads != 0)
        return kb_error_new(
            KB_ERR_INPUT, "model: heads (%" PRIu64 ") is not a multiple of kv_heads (%" PRIu64 ")",
            spec->heads, spec->kv_heads);
    if (!mem_is_float(spec->dtype))
        return kb_error_new(KB_ERR_INPUT, "model: dtype is %s: expected f16, bf16 or f32",
                            (unsigned)spec->dtype < KB_DTYPES ? kb_dtype_name(spec->dtype) : "?");
    if (!(spec->norm_eps >= 0))
        return kb_error_new(KB_ERR_INPUT, "model: norm_eps is %g: expected 0 or more",
                            spec->norm_eps);
    return NULL;
}

/* A size that is divided over ranks must be divisible by their number. */
static kb_error *check_shared(const char *what, uint64_t size, uint32_t ranks)
{
    if (size % ranks == 0)
        return NULL;
    uint64_t below = size / ranks * ranks;
    char smaller[32] = "";
    if (below > 0)
        snprintf(smaller, sizeof smaller, "%" PRIu64 " or ", below);
    return kb_error_new(KB_ERR_INPUT,
                        "model: %s (%" PRIu64 ") is not divisible by the %" PRIu32
                        " ranks: %s%" PRIu64 " would be",
                        what, size, ranks, smaller, below + ranks);
}

kb_error *model_check(const kb_model_spec *spec, uint32_t ranks)
{
    KB_TRY(check_spec(spec));
    if (ranks == 0 || ranks > MODEL_MAX_RANKS)
        return kb_error_new(KB_ERR_INPUT, "model: %" PRIu32 " ranks: expected 1 to %d", ranks,
                            MODEL_MAX_RANKS);
    KB_TRY(check_shared("heads", spec->heads, ranks));
    /* With more ranks than kv heads, several ranks have the same head. */
    if (spec->kv_heads > ranks)
        KB_TRY(check_shared("kv_heads", spec->kv_heads, ranks));
    else if (ranks % spec->kv_heads != 0)
        return kb_error_new(KB_ERR_INPUT,
                            "model: %" PRIu32 " ranks are not divisible by kv_heads (%" PRIu64
                            "), and there are more ranks",
                            ranks, spec->kv_heads);
    KB_TRY(check_shared("ffn", spec->ffn, ranks));
    if (!spec->layers_only)
        KB_TRY(check_shared("vocab", spec->vocab, ranks));
    return NULL;
}

/* ---- Counts ---- */

model_share model_share_of(const kb_model_spec *spec, uint32_t ranks)
{
    model_share share = {
        .heads = spec->heads / ranks,
        .kv_heads = spec->kv_heads > ranks ? spec->kv_heads / ranks : 1,
        .ffn = spec->ffn / ranks,
        .vocab = spec->vocab / ranks,
    };
    share.q_columns = share.heads * spec->head_dim;
    share.kv_columns = share.kv_heads * spec->head_dim;
    share.qkv_columns = share.q_columns + 2 * share.kv_columns;
    return share;
}

kb_error *kb_model_count(const kb_model_spec *given, kb_model_counts *counts)
{
    kb_model_spec spec = model_complete(given);
    *counts = (kb_model_counts){0};
    KB_TRY(check_spec(&spec));
    uint64_t q = spec.heads * spec.head_dim, kv = spec.kv_heads * spec.head_dim;
    uint64_t attention = spec.hidden * (q + 2 * kv) + q * spec.hidden;
    uint64_t mlp = 3 * spec.hidden * spec.ffn;
    counts->layer = attention + mlp + 2 * spec.hidden;
    counts->embedding = spec.layers_only ? 0 : spec.vocab * spec.hidden;
    counts->head = spec.layers_only ? 0 : spec.vocab * spec.hidden + spec.hidden;
    counts->parameters = counts->embedding + spec.layers * counts->layer + counts->head;
    counts->cache_elements = 2 * kv * spec.layers;
    return NULL;
}

const char *kb_model_part_name(kb_model_part part)
{
    static const char *const names[KB_MODEL_PARTS] = {
        [KB_MODEL_EMBED] = "embed",   [KB_MODEL_QKV] = "qkv",
        [KB_MODEL_APPEND] = "append", [KB_MODEL_ATTENTION] = "attention",
        [KB_MODEL_OUT] = "out",       [KB_MODEL_GATE_UP] = "gate_up",
        [KB_MODEL_DOWN] = "down",     [KB_MODEL_HEAD] = "head",
        [KB_MODEL_SAMPLE] = "sample",
    };
    return (unsigned)part < KB_MODEL_PARTS ? names[part] : "?";
}
