/*
 * model_reference.c: computes one token at a time through all layers, directly by the formulas.
 */
#include "model_reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct reference {
    kb_model_spec spec;
    float *weights[KB_MODEL_WEIGHTS]; /* of all layers, one behind the other */
    double *keys, *values;            /* (layer, sequence, token, kv_heads * head_dim) */
};

static uint64_t kv_columns(const kb_model_spec *spec)
{
    return spec->kv_heads * spec->head_dim;
}

static bool is_in_layers(kb_model_weight_kind kind)
{
    return kind != KB_MODEL_EMBEDDING_TABLE && kind != KB_MODEL_FINAL_NORM &&
           kind != KB_MODEL_HEAD_WEIGHT;
}

static const float *weight_of(const reference *ref, kb_model_weight_kind kind, uint64_t layer)
{
    return ref->weights[kind] + layer * kb_model_weight_elements(&ref->spec, kind);
}

static double *numbers(uint64_t count)
{
    return calloc(count > 0 ? (size_t)count : 1, sizeof(double));
}

static kb_error *no_memory(void)
{
    return kb_error_new(KB_ERR_HOST, "out of memory");
}

/* ---- Creation ---- */

static kb_error *make_weights(reference *ref)
{
    for (int i = 0; i < KB_MODEL_WEIGHTS; i++) {
        kb_model_weight_kind kind = (kb_model_weight_kind)i;
        uint64_t count = is_in_layers(kind) ? ref->spec.layers : !ref->spec.layers_only;
        uint64_t each = kb_model_weight_elements(&ref->spec, kind);
        ref->weights[i] = malloc((size_t)(count * each + 1) * sizeof(float));
        if (!ref->weights[i])
            return no_memory();
        for (uint64_t layer = 0; layer < count; layer++)
            kb_model_weight(&ref->spec, kind, layer, ref->weights[i] + layer * each);
    }
    return NULL;
}

kb_error *reference_create(const kb_model_spec *spec, reference **out)
{
    uint64_t tokens = spec->layers * spec->batch * spec->context * kv_columns(spec);
    reference *ref = calloc(1, sizeof *ref);
    *out = ref;
    if (!ref)
        return no_memory();
    ref->spec = *spec;
    ref->keys = numbers(tokens);
    ref->values = numbers(tokens);
    kb_error *err = ref->keys && ref->values ? make_weights(ref) : no_memory();
    if (err) {
        reference_destroy(ref);
        *out = NULL;
    }
    return err;
}

void reference_destroy(reference *ref)
{
    if (!ref)
        return;
    for (int i = 0; i < KB_MODEL_WEIGHTS; i++)
        free(ref->weights[i]);
    free(ref->keys);
    free(ref->values);
    free(ref);
}

static uint64_t place_of(const reference *ref, uint64_t layer, uint64_t sequence, uint64_t token)
{
    const kb_model_spec *spec = &ref->spec;
    return ((layer * spec->batch + sequence) * spec->context + token) * kv_columns(spec);
}

double *reference_keys(reference *ref, uint64_t layer, uint64_t sequence, uint64_t token)
{
    return ref->keys + place_of(ref, layer, sequence, token);
}

double *reference_values(reference *ref, uint64_t layer, uint64_t sequence, uint64_t token)
{
    return ref->values + place_of(ref, layer, sequence, token);
}

/* ---- Layers ---- */

static void rms_norm(const reference *ref, const double *x, const float *gain, double *out)
{
    uint64_t n = ref->spec.hidden;
    double squares = 0;
    for (uint64_t i = 0; i < n; i++)
        squares += x[i] * x[i];
    double scale = 1 / sqrt(squares / (double)n + ref->spec.norm_eps);
    for (uint64_t i = 0; i < n; i++)
        out[i] = x[i] * scale * (double)gain[i];
}

/* out (columns) = x (rows) * w (rows, columns) */
static void multiply(const double *x, const float *w, uint64_t rows, uint64_t columns, double *out)
{
    memset(out, 0, (size_t)columns * sizeof *out);
    for (uint64_t row = 0; row < rows; row++)
        for (uint64_t column = 0; column < columns; column++)
            out[column] += x[row] * (double)w[row * columns + column];
}

/* The rotation angle of a pair of elements at a position. */
static double angle_of(const kb_rope *rope, uint64_t dims, uint64_t pair, uint64_t position)
{
    static const double pi = 3.14159265358979323846;
    double base = rope->base > 0 ? rope->base : 10000;
    double frequency = pow(base, -2.0 * (double)pair / (double)dims);
    if (rope->scaling == KB_ROPE_LINEAR)
        frequency /= rope->factor;
    if (rope->scaling == KB_ROPE_LLAMA3) {
        double turns = (double)rope->original_max_position * frequency / (2 * pi);
        double smooth =
            (turns - rope->low_freq_factor) / (rope->high_freq_factor - rope->low_freq_factor);
        smooth = smooth < 0 ? 0 : smooth > 1 ? 1 : smooth;
        frequency *= smooth + (1 - smooth) / rope->factor;
    }
    return frequency * (double)position;
}

static void rotate(const reference *ref, uint64_t position, double *head)
{
    const kb_rope *rope = &ref->spec.rope;
    uint64_t dims = rope->dims > 0 ? rope->dims : ref->spec.head_dim;
    for (uint64_t pair = 0; rope->style != KB_ROPE_NONE && pair < dims / 2; pair++) {
        bool halves = rope->style == KB_ROPE_HALF_SPLIT;
        double *a = &head[halves ? pair : 2 * pair];
        double *b = &head[halves ? pair + dims / 2 : 2 * pair + 1];
        double angle = angle_of(rope, dims, pair, position), first = *a;
        *a = first * cos(angle) - *b * sin(angle);
        *b = *b * cos(angle) + first * sin(angle);
    }
}

/* softmax(q K^T / sqrt(dim)) V of one head over the tokens up to the position. */
static void attend(reference *ref, uint64_t layer, uint64_t sequence, uint64_t position,
                   uint64_t head, const double *q, double *weights, double *out)
{
    const kb_model_spec *spec = &ref->spec;
    uint64_t kv_head = head / (spec->heads / spec->kv_heads), dim = spec->head_dim;
    double max = -HUGE_VAL, sum = 0;
    for (uint64_t token = 0; token <= position; token++) {
        const double *k = reference_keys(ref, layer, sequence, token) + kv_head * dim;
        double score = 0;
        for (uint64_t i = 0; i < dim; i++)
            score += q[i] * k[i];
        weights[token] = score / sqrt((double)dim);
        max = fmax(max, weights[token]);
    }
    for (uint64_t i = 0; i < dim; i++)
        out[i] = 0;
    for (uint64_t token = 0; token <= position; token++) {
        const double *v = reference_values(ref, layer, sequence, token) + kv_head * dim;
        double weight = exp(weights[token] - max);
        sum += weight;
        for (uint64_t i = 0; i < dim; i++)
            out[i] += weight * v[i];
    }
    for (uint64_t i = 0; i < dim; i++)
        out[i] /= sum;
}

/* Intermediate values of a layer. */
typedef struct buffers {
    double *normal, *qkv, *attention, *gate_up, *gated, *added, *weights;
} buffers;

static void add_attention(reference *ref, const buffers *b, uint64_t layer, uint64_t sequence,
                          uint64_t position, double *x)
{
    const kb_model_spec *spec = &ref->spec;
    uint64_t dim = spec->head_dim, q = spec->heads * dim, kv = kv_columns(spec);
    rms_norm(ref, x, weight_of(ref, KB_MODEL_ATTENTION_NORM, layer), b->normal);
    multiply(b->normal, weight_of(ref, KB_MODEL_QKV_WEIGHT, layer), spec->hidden, q + 2 * kv,
             b->qkv);
    for (uint64_t head = 0; head < spec->heads + spec->kv_heads; head++)
        rotate(ref, position, b->qkv + head * dim);
    memcpy(reference_keys(ref, layer, sequence, position), b->qkv + q, (size_t)kv * sizeof(double));
    memcpy(reference_values(ref, layer, sequence, position), b->qkv + q + kv,
           (size_t)kv * sizeof(double));
    for (uint64_t head = 0; head < spec->heads; head++)
        attend(ref, layer, sequence, position, head, b->qkv + head * dim, b->weights,
               b->attention + head * dim);
    multiply(b->attention, weight_of(ref, KB_MODEL_OUT_WEIGHT, layer), q, spec->hidden, b->added);
    for (uint64_t i = 0; i < spec->hidden; i++)
        x[i] += b->added[i];
}

static void add_mlp(const reference *ref, const buffers *b, uint64_t layer, double *x)
{
    const kb_model_spec *spec = &ref->spec;
    rms_norm(ref, x, weight_of(ref, KB_MODEL_MLP_NORM, layer), b->normal);
    multiply(b->normal, weight_of(ref, KB_MODEL_GATE_UP_WEIGHT, layer), spec->hidden, 2 * spec->ffn,
             b->gate_up);
    for (uint64_t i = 0; i < spec->ffn; i++) {
        double gate = b->gate_up[2 * i], up = b->gate_up[2 * i + 1];
        b->gated[i] = gate / (1 + exp(-gate)) * up;
    }
    multiply(b->gated, weight_of(ref, KB_MODEL_DOWN_WEIGHT, layer), spec->ffn, spec->hidden,
             b->added);
    for (uint64_t i = 0; i < spec->hidden; i++)
        x[i] += b->added[i];
}

static void free_buffers(buffers *b)
{
    double *all[] = {b->normal, b->qkv, b->attention, b->gate_up, b->gated, b->added, b->weights};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

static bool make_buffers(const kb_model_spec *spec, buffers *b)
{
    uint64_t q = spec->heads * spec->head_dim;
    *b = (buffers){
        .normal = numbers(spec->hidden),
        .qkv = numbers(q + 2 * kv_columns(spec)),
        .attention = numbers(q),
        .gate_up = numbers(2 * spec->ffn),
        .gated = numbers(spec->ffn),
        .added = numbers(spec->hidden),
        .weights = numbers(spec->context),
    };
    return b->normal && b->qkv && b->attention && b->gate_up && b->gated && b->added && b->weights;
}

kb_error *reference_layers(reference *ref, uint64_t sequence, uint64_t position, double *x)
{
    buffers b;
    kb_error *err = make_buffers(&ref->spec, &b) ? NULL : no_memory();
    for (uint64_t layer = 0; !err && layer < ref->spec.layers; layer++) {
        add_attention(ref, &b, layer, sequence, position, x);
        add_mlp(ref, &b, layer, x);
    }
    free_buffers(&b);
    return err;
}

/* ---- Ends ---- */

void reference_embed(const reference *ref, int32_t token, double *x)
{
    const float *row = ref->weights[KB_MODEL_EMBEDDING_TABLE] + (uint64_t)token * ref->spec.hidden;
    for (uint64_t i = 0; i < ref->spec.hidden; i++)
        x[i] = (double)row[i];
}

kb_error *reference_logits(const reference *ref, const double *x, double *logits)
{
    double *normal = numbers(ref->spec.hidden);
    if (!normal)
        return no_memory();
    rms_norm(ref, x, ref->weights[KB_MODEL_FINAL_NORM], normal);
    multiply(normal, ref->weights[KB_MODEL_HEAD_WEIGHT], ref->spec.hidden, ref->spec.vocab, logits);
    free(normal);
    return NULL;
}
