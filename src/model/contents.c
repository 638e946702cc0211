/*
 * contents.c: what the host sees of a model and puts into it, without simulated time.
 */
#include <stdlib.h>
#include <string.h>

#include "state.h"

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
    return kb_tensor_set_slice(ctx, m->decode.tokens, KB_BACKDOOR, NULL, tokens,
                               (size_t)m->spec.batch * sizeof *tokens);
}

kb_error *kb_model_get_tokens(kb_context *ctx, kb_model handle, int32_t *tokens)
{
    model *m;
    KB_TRY(model_find(ctx, "kb_model_get_tokens", handle, &m));
    KB_TRY(need_ends("kb_model_get_tokens", m));
    return kb_tensor_get_slice(ctx, m->decode.tokens, KB_BACKDOOR, NULL, tokens,
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
    return kb_tensor_get_slice(ctx, m->logits, KB_BACKDOOR, NULL, logits,
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

static kb_error *find_rows(kb_context *ctx, const char *function, kb_model handle, bool prefill,
                           model **m, const model_rows **rows)
{
    KB_TRY(model_find(ctx, function, handle, m));
    *rows = prefill ? &(*m)->prefill : &(*m)->decode;
    return (*rows)->count > 0
               ? NULL
               : kb_error_new(KB_ERR_INPUT, "%s: '%s' has no prompt: set kb_model_spec.prompt",
                              function, (*m)->name);
}

/* Copies of each row: one in each cube, or one. */
static size_t copies_of(kb_context *ctx, const model_rows *rows)
{
    return rows->by_cube ? kb_context_machine(ctx).cubes : 1;
}

kb_error *kb_model_set_hidden(kb_context *ctx, kb_model handle, bool prefill, const float *numbers)
{
    const model_rows *rows;
    model *m;
    KB_TRY(find_rows(ctx, "kb_model_set_hidden", handle, prefill, &m, &rows));
    size_t count = (size_t)(rows->count * m->spec.hidden), copies = copies_of(ctx, rows);
    size_t bytes = count * kb_dtype_bytes(m->spec.dtype);
    unsigned char *data = kb_alloc_array(copies, bytes);
    if (!data)
        return kb_error_nomem();
    for (size_t i = 0; i < copies; i++)
        kb_convert(m->spec.dtype, data + i * bytes, KB_F32, numbers, count);
    kb_error *err = kb_tensor_set_slice(ctx, rows->x, KB_BACKDOOR, NULL, data, copies * bytes);
    free(data);
    return err;
}

kb_error *kb_model_get_hidden(kb_context *ctx, kb_model handle, bool prefill, float *numbers)
{
    const model_rows *rows;
    model *m;
    KB_TRY(find_rows(ctx, "kb_model_get_hidden", handle, prefill, &m, &rows));
    size_t count = (size_t)(rows->count * m->spec.hidden), copies = copies_of(ctx, rows);
    size_t bytes = count * kb_dtype_bytes(m->spec.dtype);
    unsigned char *data = kb_alloc_array(copies, bytes);
    if (!data)
        return kb_error_nomem();
    kb_error *err = kb_tensor_get_slice(ctx, rows->x, KB_BACKDOOR, NULL, data, copies * bytes);
    if (!err)
        kb_convert(KB_F32, numbers, m->spec.dtype, data, count);
    free(data);
    return err;
}
