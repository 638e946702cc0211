/*
 * create.c: the tensors of one rank's part of a model. Their creation takes no simulated time: a
 * run starts with the weights in place.
 */
#include <stdio.h>
#include <string.h>

#include "model_state.h"
#include "tp/tp.h"

/* ---- Weights ---- */

/* A vector, or a look-up table: on one PE, or split by rows. */
static kb_error *make_plain(kb_context *ctx, const model *m, const char *name,
                            kb_model_weight_kind kind, uint64_t layer, kb_tensor *tensor)
{
    static const kb_policy by_columns = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    static const kb_policy by_rows = {.cube = KB_ROW_WISE, .pe = KB_ROW_WISE};
    model_part part = model_part_of(&m->spec, &m->share, kind);
    const kb_tensor_spec spec = {
        .name = name,
        .dtype = m->spec.dtype,
        .shape = part.rows == 1 ? KB_SHAPE(part.columns) : KB_SHAPE(part.rows, part.columns),
        .policy = part.rows == 1 ? &by_columns : &by_rows,
        .access = KB_UNTIMED,
    };
    KB_TRY(tp_make_tensor(ctx, m->sip, &spec, tensor));
    return model_fill(ctx, m, kind, layer, *tensor);
}

static bool sums_over_ranks(kb_model_weight_kind kind)
{
    return kind == KB_MODEL_OUT_WEIGHT || kind == KB_MODEL_DOWN_WEIGHT;
}

/* The weights of a product, laid out for its most frequent number of rows. */
static kb_error *make_product(kb_context *ctx, const model *m, const char *name,
                              kb_model_weight_kind kind, uint64_t layer, kb_tensor *tensor)
{
    model_part part = model_part_of(&m->spec, &m->share, kind);
    kb_policy policy = model_weight_policy(ctx, &m->spec, &part, kind);
    const kb_tensor_spec spec = {
        .name = name,
        .dtype = m->spec.dtype,
        .shape = KB_SHAPE(part.rows, part.columns),
        .policy = &policy,
        .access = KB_UNTIMED,
    };
    KB_TRY(tp_make_tensor(ctx, m->sip, &spec, tensor));
    KB_TRY(model_fill(ctx, m, kind, layer, *tensor));
    return tp_matmul_prepare(ctx, *tensor, m->rank, sums_over_ranks(kind) ? m->ranks : 1);
}

static kb_error *make_layer(kb_context *ctx, model *m, uint64_t index)
{
    model_layer *layer = &m->layers[index];
    KB_TRY(make_plain(ctx, m, "attention_norm", KB_MODEL_ATTENTION_NORM, index,
                      &layer->attention_norm));
    KB_TRY(make_product(ctx, m, "w_qkv", KB_MODEL_QKV_WEIGHT, index, &layer->qkv));
    KB_TRY(make_product(ctx, m, "w_out", KB_MODEL_OUT_WEIGHT, index, &layer->out));
    KB_TRY(make_plain(ctx, m, "mlp_norm", KB_MODEL_MLP_NORM, index, &layer->mlp_norm));
    KB_TRY(make_product(ctx, m, "w_gate_up", KB_MODEL_GATE_UP_WEIGHT, index, &layer->gate_up));
    return make_product(ctx, m, "w_down", KB_MODEL_DOWN_WEIGHT, index, &layer->down);
}

static kb_error *make_weights(kb_context *ctx, model *m)
{
    for (uint64_t layer = 0; layer < m->spec.layers; layer++)
        KB_TRY(make_layer(ctx, m, layer));
    if (m->spec.layers_only)
        return NULL;
    KB_TRY(make_plain(ctx, m, "embedding", KB_MODEL_EMBEDDING_TABLE, 0, &m->embedding));
    KB_TRY(make_plain(ctx, m, "final_norm", KB_MODEL_FINAL_NORM, 0, &m->final_norm));
    return make_product(ctx, m, "w_head", KB_MODEL_HEAD_WEIGHT, 0, &m->head);
}

/* ---- Activations ---- */

static kb_error *make_rows(kb_context *ctx, const model *m, const char *name, uint64_t rows,
                           uint64_t columns, bool by_cube, kb_tensor *tensor)
{
    kb_policy policy = {.cube = by_cube ? KB_ROW_WISE : KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    uint64_t copies = by_cube ? kb_context_machine(ctx).cubes : 1;
    const kb_tensor_spec spec = {.name = name,
                                 .dtype = m->spec.dtype,
                                 .shape = KB_SHAPE(copies * rows, columns),
                                 .policy = &policy,
                                 .access = KB_UNTIMED};
    return tp_make_tensor(ctx, m->sip, &spec, tensor);
}

/* Split by heads: attention reads rows of a few heads on each PE. */
static kb_error *make_qkv(kb_context *ctx, const model *m, uint64_t rows, kb_tensor *tensor)
{
    const kb_policy policy = {
        .tiling = KB_TILED_COLUMN_MAJOR, .tile_rows = rows, .tile_columns = m->spec.head_dim};
    const kb_tensor_spec spec = {.name = "qkv",
                                 .dtype = m->spec.dtype,
                                 .shape = KB_SHAPE(rows, m->share.qkv_columns),
                                 .policy = &policy,
                                 .access = KB_UNTIMED};
    return tp_make_tensor(ctx, m->sip, &spec, tensor);
}

static kb_error *make_tokens(kb_context *ctx, const model *m, uint64_t count, kb_tensor *tensor)
{
    const kb_tensor_spec spec = {.name = "tokens",
                                 .dtype = KB_I32,
                                 .shape = KB_SHAPE(count),
                                 .policy = &(kb_policy){.num_cubes = 1, .num_pes = 1},
                                 .access = KB_UNTIMED,
                                 .is_index = true};
    return tp_make_tensor(ctx, m->sip, &spec, tensor);
}

static kb_error *make_step(kb_context *ctx, const model *m, uint64_t rows, model_rows *step)
{
    step->count = rows;
    step->by_cube = model_keeps_by_cube(rows);
    if (rows == 0)
        return NULL;
    if (!m->spec.layers_only)
        KB_TRY(make_tokens(ctx, m, rows, &step->tokens));
    KB_TRY(make_rows(ctx, m, "x", rows, m->spec.hidden, step->by_cube, &step->x));
    KB_TRY(make_qkv(ctx, m, rows, &step->qkv));
    KB_TRY(
        make_rows(ctx, m, "attention", rows, m->share.q_columns, step->by_cube, &step->attention));
    return make_rows(ctx, m, "gated", rows, m->share.ffn, step->by_cube, &step->gated);
}

static kb_error *make_logits(kb_context *ctx, model *m)
{
    const kb_tensor_spec spec = {.name = "logits",
                                 .dtype = KB_F32,
                                 .shape = KB_SHAPE(m->spec.batch, m->share.vocab),
                                 .access = KB_UNTIMED};
    if (m->spec.layers_only)
        return NULL;
    if (m->prefill.count > 0)
        KB_TRY(make_rows(ctx, m, "last", m->spec.batch, m->spec.hidden, false, &m->last));
    return tp_make_tensor(ctx, m->sip, &spec, &m->logits);
}

/* ---- The model ---- */

kb_kv_cache_spec model_cache_spec(const kb_model_spec *spec, const model_share *share)
{
    return (kb_kv_cache_spec){
        .name = "kv_cache",
        .batch = (uint32_t)spec->batch,
        .capacity = (uint32_t)spec->context,
        .heads = (uint32_t)share->heads,
        .kv_heads = (uint32_t)share->kv_heads,
        .head_dim = (uint32_t)spec->head_dim,
        .layers = (uint32_t)spec->layers,
        .dtype = spec->dtype,
        .page_tokens = (uint32_t)spec->page_tokens,
        .rope = spec->rope,
        .access = KB_UNTIMED,
    };
}

static kb_error *fill_model(kb_context *ctx, model *m)
{
    const kb_kv_cache_spec cache = model_cache_spec(&m->spec, &m->share);
    KB_TRY(make_weights(ctx, m));
    KB_TRY(kb_kv_cache_create(ctx, &cache, &m->cache));
    KB_TRY(make_step(ctx, m, m->spec.batch, &m->decode));
    KB_TRY(make_step(ctx, m, m->spec.batch * m->spec.prompt, &m->prefill));
    return make_logits(ctx, m);
}

/* The caller's rank and the number of ranks; 0 and 1 without model parallelism. */
static kb_error *find_rank(kb_context *ctx, uint32_t *rank, uint32_t *ranks)
{
    *rank = 0;
    *ranks = 1;
    if (!kb_tp_model_parallel_is_initialized(ctx))
        return NULL;
    KB_TRY(kb_tp_get_tensor_model_parallel_rank(ctx, rank));
    return kb_tp_get_tensor_model_parallel_world_size(ctx, ranks);
}

static kb_error *check_fit(kb_context *ctx, const kb_model_spec *spec, uint32_t ranks)
{
    kb_model_memory memory;
    KB_TRY(kb_model_plan_memory(ctx, spec, ranks, &memory));
    return memory.fits ? NULL : model_refuse(spec, ranks, &memory);
}

/* ---- End ---- */

/* Keeps the first error. */
static void free_tensor(kb_context *ctx, kb_tensor tensor, kb_error **first)
{
    kb_error *err = tensor.id != 0 ? kb_tensor_free(ctx, tensor) : NULL;
    if (*first)
        kb_error_free(err);
    else
        *first = err;
}

static void free_rows(kb_context *ctx, const model_rows *rows, kb_error **first)
{
    const kb_tensor all[] = {rows->tokens, rows->x, rows->qkv, rows->attention, rows->gated};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free_tensor(ctx, all[i], first);
}

/* Frees all tensors that were created. */
static kb_error *release(kb_context *ctx, model *m)
{
    kb_error *first = m->graph.id != 0 ? kb_graph_free(ctx, m->graph) : NULL;
    for (uint64_t i = 0; i < m->spec.layers; i++) {
        const model_layer *layer = &m->layers[i];
        const kb_tensor all[] = {layer->attention_norm, layer->qkv,     layer->out,
                                 layer->mlp_norm,       layer->gate_up, layer->down};
        for (size_t j = 0; j < sizeof all / sizeof all[0]; j++)
            free_tensor(ctx, all[j], &first);
    }
    free_rows(ctx, &m->decode, &first);
    free_rows(ctx, &m->prefill, &first);
    const kb_tensor others[] = {m->embedding, m->final_norm, m->head, m->last, m->logits};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        free_tensor(ctx, others[i], &first);
    if (m->cache.id != 0) {
        kb_error *err = kb_kv_cache_free(ctx, m->cache);
        if (first)
            kb_error_free(err);
        else
            first = err;
    }
    model_drop(ctx, m);
    return first;
}

kb_error *kb_model_create(kb_context *ctx, const kb_model_spec *given, kb_model *handle)
{
    const kb_model_spec spec = model_complete(given);
    model_state *state;
    model *m;
    uint32_t rank, ranks;
    *handle = (kb_model){0};
    KB_TRY(find_rank(ctx, &rank, &ranks));
    KB_TRY(model_check(&spec, ranks));
    if (spec.context == 0 || spec.prompt > spec.context)
        return kb_error_new(KB_ERR_INPUT,
                            "kb_model_create: context is %ju and prompt %ju: expected a context of "
                            "1 or more, and no longer prompt",
                            (uintmax_t)spec.context, (uintmax_t)spec.prompt);
    KB_TRY(check_fit(ctx, &spec, ranks));
    KB_TRY(model_get_state(ctx, &state));
    KB_TRY(model_add(state, &spec, &m));
    m->spec = spec;
    snprintf(m->name, sizeof m->name, "%s", spec.name);
    m->spec.name = m->name;
    m->rank = rank;
    m->ranks = ranks;
    m->sip = kb_ahbm_current_device(ctx);
    m->share = model_share_of(&spec, ranks);
    kb_error *err = fill_model(ctx, m);
    if (err) {
        kb_error_free(release(ctx, m));
        return kb_error_wrap(err, "kb_model_create: '%s'", spec.name);
    }
    handle->id = m->id;
    return NULL;
}

kb_error *kb_model_free(kb_context *ctx, kb_model handle)
{
    model *m;
    KB_TRY(model_find(ctx, "kb_model_free", handle, &m));
    return release(ctx, m);
}
