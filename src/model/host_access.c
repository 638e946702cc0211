/*
 * host_access.c: reads and writes of a model's tokens, lengths, hidden rows and logits by the host,
 * without simulated time.
 */
#include <stdlib.h>
#include <string.h>

#include "model_state.h"

static kb_error *need_ends(const char *function, const model *m)
{
    return m->spec.layers_only
               ? kb_error_new(KB_ERR_INPUT, "%s: '%s' has layers alone, no embedding and no head",
                              function, m->name)
               : NULL;
}

kb_error *kb_model_set_tokens(kb_context *ctx, kb_model handle, const int32_t *tokens)
{
    model *m;
    KB_TRY(model_find(ctx, "kb_model_set_tokens", handle, &m));
    KB_TRY(need_ends("kb_model_set_tokens", m));
    return kb_tensor_set_slice(ctx, m->decode.tokens, KB_UNTIMED, NULL, tokens,
                               (size_t)m->spec.batch * sizeof *tokens);
}

kb_error *kb_model_get_tokens(kb_context *ctx, kb_model handle, int32_t *tokens)
{
    model *m;
    KB_TRY(model_find(ctx, "kb_model_get_tokens", handle, &m));
    KB_TRY(need_ends("kb_model_get_tokens", m));
    return kb_tensor_get_slice(ctx, m->decode.tokens, KB_UNTIMED, NULL, tokens,
                               (size_t)m->spec.batch * sizeof *tokens);
}

kb_error *kb_model_set_cached(kb_context *ctx, kb_model handle, const uint32_t *cached)
{
    model *m;
    KB_TRY(model_find(ctx, "kb_model_set_cached", handle, &m));
    for (uint64_t i = 0; i < m->spec.batch; i++)
        if (cached[i] > m->spec.context)
            return kb_error_new(KB_ERR_INPUT,
                                "kb_model_set_cached: sequence %ju has %u tokens, but the context "
                                "of '%s' is %ju",
                                (uintmax_t)i, cached[i], m->name, (uintmax_t)m->spec.context);
    memcpy(m->cached, cached, (size_t)m->spec.batch * sizeof *cached);
    return NULL;
}

kb_error *kb_model_get_logits(kb_context *ctx, kb_model handle, float *logits)
{
    model *m;
    KB_TRY(model_find(ctx, "kb_model_get_logits", handle, &m));
    KB_TRY(need_ends("kb_model_get_logits", m));
    return kb_tensor_get_slice(ctx, m->logits, KB_UNTIMED, NULL, logits,
                               (size_t)(m->spec.batch * m->share.vocab) * sizeof *logits);
}

kb_error *kb_model_cache(kb_context *ctx, kb_model handle, kb_kv_cache *cache)
{
    model *m;
    KB_TRY(model_find(ctx, "kb_model_cache", handle, &m));
    *cache = m->cache;
    return NULL;
}

/* ---- Hidden rows ---- */

/* The hidden rows of a model in the layout of their tensor. */
typedef struct hidden_rows {
    kb_tensor tensor;
    kb_dtype dtype;
    size_t count;        /* elements of a copy */
    size_t copies;       /* of each row: one in each cube, or one */
    size_t bytes;        /* of all copies */
    unsigned char *data; /* a buffer for these */
} hidden_rows;

static kb_error *begin_hidden(kb_context *ctx, const char *function, kb_model handle, bool prefill,
                              hidden_rows *hidden)
{
    model *m;
    KB_TRY(model_find(ctx, function, handle, &m));
    const model_rows *rows = prefill ? &m->prefill : &m->decode;
    if (rows->count == 0)
        return kb_error_new(KB_ERR_INPUT, "%s: '%s' has no prompt: set kb_model_spec.prompt",
                            function, m->name);
    *hidden = (hidden_rows){.tensor = rows->x,
                            .dtype = m->spec.dtype,
                            .count = (size_t)(rows->count * m->spec.hidden),
                            .copies = rows->by_cube ? kb_context_machine(ctx).cubes : 1};
    hidden->bytes = hidden->copies * hidden->count * kb_dtype_bytes(hidden->dtype);
    hidden->data = kb_alloc_array(hidden->bytes, 1);
    return hidden->data ? NULL : kb_error_nomem();
}

kb_error *kb_model_set_hidden(kb_context *ctx, kb_model handle, bool prefill, const float *numbers)
{
    hidden_rows h;
    KB_TRY(begin_hidden(ctx, "kb_model_set_hidden", handle, prefill, &h));
    for (size_t i = 0; i < h.copies; i++)
        kb_convert(h.dtype, h.data + i * (h.bytes / h.copies), KB_F32, numbers, h.count);
    kb_error *err = kb_tensor_set_slice(ctx, h.tensor, KB_UNTIMED, NULL, h.data, h.bytes);
    free(h.data);
    return err;
}

kb_error *kb_model_get_hidden(kb_context *ctx, kb_model handle, bool prefill, float *numbers)
{
    hidden_rows h;
    KB_TRY(begin_hidden(ctx, "kb_model_get_hidden", handle, prefill, &h));
    kb_error *err = kb_tensor_get_slice(ctx, h.tensor, KB_UNTIMED, NULL, h.data, h.bytes);
    if (!err)
        kb_convert(KB_F32, numbers, h.dtype, h.data, h.count);
    free(h.data);
    return err;
}
