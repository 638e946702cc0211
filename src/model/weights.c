/*
 * weights.c: the values of the weights: random by a seed, and equal for any number of ranks.
 * Matrices are scaled by 1 / sqrt(inputs), so that activations keep their magnitude; gains are near
 * 1.
 */
#include <math.h>
#include <stdlib.h>

#include "model_state.h"

/* The size of the whole matrix. Rows are inputs; a vector is one row. */
static model_part whole_of(const kb_model_spec *spec, kb_model_weight_kind kind)
{
    const model_share all = model_share_of(spec, 1);
    uint64_t qkv = all.q_columns + 2 * spec->kv_heads * spec->head_dim;
    switch (kind) {
    case KB_MODEL_EMBEDDING_TABLE:
        return (model_part){spec->vocab, spec->hidden};
    case KB_MODEL_QKV_WEIGHT:
        return (model_part){spec->hidden, qkv};
    case KB_MODEL_OUT_WEIGHT:
        return (model_part){all.q_columns, spec->hidden};
    case KB_MODEL_GATE_UP_WEIGHT:
        return (model_part){spec->hidden, 2 * spec->ffn};
    case KB_MODEL_DOWN_WEIGHT:
        return (model_part){spec->ffn, spec->hidden};
    case KB_MODEL_HEAD_WEIGHT:
        return (model_part){spec->hidden, spec->vocab};
    case KB_MODEL_ATTENTION_NORM:
    case KB_MODEL_MLP_NORM:
    case KB_MODEL_FINAL_NORM:
    case KB_MODEL_WEIGHTS:
        break;
    }
    return (model_part){1, spec->hidden};
}

model_part model_part_of(const kb_model_spec *spec, const model_share *share,
                         kb_model_weight_kind kind)
{
    model_part part = whole_of(spec, kind);
    if (kind == KB_MODEL_QKV_WEIGHT)
        part.columns = share->qkv_columns;
    else if (kind == KB_MODEL_OUT_WEIGHT)
        part.rows = share->q_columns;
    else if (kind == KB_MODEL_GATE_UP_WEIGHT)
        part.columns = 2 * share->ffn;
    else if (kind == KB_MODEL_DOWN_WEIGHT)
        part.rows = share->ffn;
    else if (kind == KB_MODEL_HEAD_WEIGHT)
        part.columns = share->vocab;
    return part;
}

/* ---- Numbers ---- */

static bool is_gain(kb_model_weight_kind kind)
{
    return kind == KB_MODEL_ATTENTION_NORM || kind == KB_MODEL_MLP_NORM ||
           kind == KB_MODEL_FINAL_NORM;
}

uint64_t kb_model_weight_elements(const kb_model_spec *spec, kb_model_weight_kind kind)
{
    model_part all = whole_of(spec, kind);
    return all.rows * all.columns;
}

void kb_model_weight(const kb_model_spec *spec, kb_model_weight_kind kind, uint64_t layer,
                     float *elements)
{
    model_part all = whole_of(spec, kind);
    uint64_t count = all.rows * all.columns;
    /* Uniform, with a standard deviation of 1 for rows of the embedding. */
    double inputs = kind == KB_MODEL_EMBEDDING_TABLE ? 1 : (double)all.rows;
    double range = is_gain(kind) ? 0.25 : sqrt(3 / inputs), middle = is_gain(kind) ? 1 : 0;
    kb_rng rng;
    kb_rng_init(&rng, (spec->seed * 4096 + layer) * KB_MODEL_WEIGHTS + (uint64_t)kind);
    for (uint64_t i = 0; i < count; i++) {
        unsigned char rounded[8];
        float number = (float)(middle + range * (2 * kb_rng_double(&rng) - 1));
        kb_convert(spec->dtype, rounded, KB_F32, &number, 1);
        kb_convert(KB_F32, &elements[i], spec->dtype, rounded, 1);
    }
}

/* ---- A rank's part ---- */

/* The column of the whole matrix for a column of the rank's queries, keys and values. With more
 * ranks than kv heads, several ranks have the same head. */
static uint64_t qkv_column(const model *m, uint64_t column)
{
    const model_share *share = &m->share;
    uint64_t q_all = m->spec.heads * m->spec.head_dim, kv_all = m->spec.kv_heads * m->spec.head_dim;
    uint64_t kv_first = m->rank * m->spec.kv_heads / m->ranks * m->spec.head_dim;
    if (column < share->q_columns)
        return m->rank * share->q_columns + column;
    column -= share->q_columns;
    if (column < share->kv_columns)
        return q_all + kv_first + column;
    return q_all + kv_all + kv_first + column - share->kv_columns;
}

static uint64_t whole_column(const model *m, kb_model_weight_kind kind, uint64_t column)
{
    if (kind == KB_MODEL_QKV_WEIGHT)
        return qkv_column(m, column);
    if (kind == KB_MODEL_GATE_UP_WEIGHT)
        return 2 * m->share.ffn * m->rank + column;
    if (kind == KB_MODEL_HEAD_WEIGHT)
        return m->rank * m->share.vocab + column;
    return column;
}

static uint64_t whole_row(const model *m, kb_model_weight_kind kind, uint64_t row)
{
    if (kind == KB_MODEL_OUT_WEIGHT)
        return m->rank * m->share.q_columns + row;
    if (kind == KB_MODEL_DOWN_WEIGHT)
        return m->rank * m->share.ffn + row;
    return row;
}

static void take_part(const model *m, kb_model_weight_kind kind, const float *all, float *mine)
{
    model_part whole = whole_of(&m->spec, kind), part = model_part_of(&m->spec, &m->share, kind);
    for (uint64_t row = 0; row < part.rows; row++) {
        const float *from = all + whole_row(m, kind, row) * whole.columns;
        for (uint64_t column = 0; column < part.columns; column++)
            *mine++ = from[whole_column(m, kind, column)];
    }
}

kb_error *model_fill(kb_context *ctx, const model *m, kb_model_weight_kind kind, uint64_t layer,
                     kb_tensor tensor)
{
    if (kb_context_is_timing_only(ctx))
        return NULL;
    model_part part = model_part_of(&m->spec, &m->share, kind);
    size_t all = (size_t)kb_model_weight_elements(&m->spec, kind);
    size_t mine = (size_t)(part.rows * part.columns), bytes = kb_dtype_bytes(m->spec.dtype);
    kb_error *err = kb_error_nomem();
    float *whole = kb_alloc_array(all, sizeof *whole), *taken = kb_alloc_array(mine, sizeof *taken);
    unsigned char *rounded = kb_alloc_array(mine, bytes);
    if (whole && taken && rounded) {
        kb_model_weight(&m->spec, kind, layer, whole);
        take_part(m, kind, whole, taken);
        kb_convert(m->spec.dtype, rounded, KB_F32, taken, mine);
        kb_error_free(err);
        err = kb_tensor_set_slice(ctx, tensor, KB_UNTIMED, NULL, rounded, mine * bytes);
    }
    free(whole);
    free(taken);
    free(rounded);
    return err;
}
