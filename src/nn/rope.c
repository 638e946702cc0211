/*
 * rope.c: rotary position embedding. Frequencies are computed in double precision and rounded once
 * to f32; an angle is the product of a position and a frequency, in f32.
 */
#include "rope.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nn_state.h"

/* ---- Checks ---- */

static kb_error *check_scaling(const char *function, const kb_rope *rope)
{
    if ((unsigned)rope->scaling > KB_ROPE_LLAMA3)
        return kb_error_new(KB_ERR_INPUT, "%s: rope: invalid scaling %u", function,
                            (unsigned)rope->scaling);
    if (rope->scaling == KB_ROPE_UNSCALED)
        return NULL;
    if (!(rope->factor >= 1) || !isfinite(rope->factor))
        return kb_error_new(KB_ERR_INPUT, "%s: rope: factor is %g: expected at least 1", function,
                            rope->factor);
    if (rope->scaling == KB_ROPE_LINEAR)
        return NULL;
    if (!(rope->low_freq_factor > 0) || !(rope->high_freq_factor > rope->low_freq_factor) ||
        !isfinite(rope->high_freq_factor))
        return kb_error_new(KB_ERR_INPUT,
                            "%s: rope: low_freq_factor is %g and high_freq_factor is %g: expected "
                            "0 < low_freq_factor < high_freq_factor",
                            function, rope->low_freq_factor, rope->high_freq_factor);
    if (rope->original_max_position == 0)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: rope: original_max_position is 0: llama3 scaling needs it",
                            function);
    return NULL;
}

kb_error *nn_check_rope(const char *function, const kb_rope *rope, uint32_t head_dim)
{
    if ((unsigned)rope->style > KB_ROPE_INTERLEAVED)
        return kb_error_new(KB_ERR_INPUT, "%s: rope: invalid style %u", function,
                            (unsigned)rope->style);
    if (rope->style == KB_ROPE_NONE)
        return NULL;
    uint32_t dims = rope->dims > 0 ? rope->dims : head_dim;
    if (dims == 0 || dims % 2 != 0)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: rope: %" PRIu32 " elements of a head are rotated: expected an "
                            "even number of at least 2",
                            function, dims);
    if (dims > head_dim)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: rope: dims is %" PRIu32 ": a head has %" PRIu32 " elements",
                            function, dims, head_dim);
    if (rope->base != 0 && (!(rope->base > 0) || !isfinite(rope->base)))
        return kb_error_new(KB_ERR_INPUT, "%s: rope: base is %g: expected more than 0", function,
                            rope->base);
    return check_scaling(function, rope);
}

/* ---- Frequencies ---- */

uint32_t nn_rope_pairs(const kb_rope *rope, uint32_t head_dim)
{
    if (rope->style == KB_ROPE_NONE)
        return 0;
    return (rope->dims > 0 ? rope->dims : head_dim) / 2;
}

static double scale_llama3(const kb_rope *rope, double frequency)
{
    double turns = (double)rope->original_max_position * frequency / (2 * M_PI);
    if (turns > rope->high_freq_factor)
        return frequency;
    if (turns < rope->low_freq_factor)
        return frequency / rope->factor;
    double share =
        (turns - rope->low_freq_factor) / (rope->high_freq_factor - rope->low_freq_factor);
    return (1 - share) * frequency / rope->factor + share * frequency;
}

void nn_rope_frequencies(const kb_rope *rope, uint32_t head_dim, float *inv_freq)
{
    uint32_t pairs = nn_rope_pairs(rope, head_dim);
    double base = rope->base > 0 ? rope->base : 10000;
    for (uint32_t i = 0; i < pairs; i++) {
        double frequency = pow(base, -(double)i / pairs);
        if (rope->scaling == KB_ROPE_LINEAR)
            frequency /= rope->factor;
        else if (rope->scaling == KB_ROPE_LLAMA3)
            frequency = scale_llama3(rope, frequency);
        inv_freq[i] = (float)frequency;
    }
}

/* ---- The tensor ---- */

static kb_error *fill_tensor(kb_context *ctx, uint32_t sip, const float *numbers, uint32_t pairs,
                             kb_tensor *tensor)
{
    static const kb_policy all = {.cube = KB_REPLICATE, .pe = KB_REPLICATE};
    const kb_tensor_spec spec = {.name = "rope frequencies",
                                 .dtype = KB_F32,
                                 .shape = KB_SHAPE(pairs),
                                 .policy = &all,
                                 .access = KB_UNTIMED};
    KB_TRY(tp_make_tensor(ctx, sip, &spec, tensor));
    kb_error *err =
        kb_tensor_set_slice(ctx, *tensor, KB_UNTIMED, NULL, numbers, pairs * sizeof *numbers);
    if (err) {
        kb_error_free(kb_tensor_free(ctx, *tensor));
        *tensor = (kb_tensor){0};
    }
    return err;
}

/* The device's tensor with these frequencies, or NULL. */
static const nn_frequencies *find_frequencies(const nn_state *state, uint32_t sip,
                                              const float *numbers, uint32_t pairs)
{
    const nn_frequencies *entry = state->frequencies;
    while (entry && (entry->sip != sip || entry->pairs != pairs ||
                     memcmp(entry->numbers, numbers, pairs * sizeof *numbers) != 0))
        entry = entry->next;
    return entry;
}

static kb_error *add_frequencies(nn_state *state, const char *function, uint32_t sip,
                                 const float *numbers, uint32_t pairs, kb_tensor *tensor)
{
    if (rt_is_recording(state->ctx))
        return kb_error_new(KB_ERR_FAULT,
                            "%s: a graph is being recorded, and the rope's frequencies are not on "
                            "the device yet: call kb_rope_prepare() before",
                            function);
    nn_frequencies *entry = kb_alloc_array(1, sizeof *entry + pairs * sizeof entry->numbers[0]);
    if (!entry)
        return kb_error_nomem();
    kb_error *err = fill_tensor(state->ctx, sip, numbers, pairs, &entry->tensor);
    if (err) {
        free(entry);
        return err;
    }
    entry->sip = sip;
    entry->pairs = pairs;
    memcpy(entry->numbers, numbers, pairs * sizeof *numbers);
    entry->next = state->frequencies;
    state->frequencies = entry;
    *tensor = entry->tensor;
    return NULL;
}

kb_error *nn_get_frequencies(kb_context *ctx, const char *function, uint32_t sip,
                             const kb_rope *rope, uint32_t head_dim, kb_tensor *tensor)
{
    nn_state *state;
    uint32_t pairs = nn_rope_pairs(rope, head_dim);
    *tensor = (kb_tensor){0};
    if (pairs == 0)
        return NULL;
    KB_TRY(nn_get_state(ctx, &state));
    float *numbers = kb_alloc_array(pairs, sizeof *numbers);
    if (!numbers)
        return kb_error_nomem();
    nn_rope_frequencies(rope, head_dim, numbers);
    const nn_frequencies *found = find_frequencies(state, sip, numbers, pairs);
    kb_error *err = NULL;
    if (found)
        *tensor = found->tensor;
    else
        err = add_frequencies(state, function, sip, numbers, pairs, tensor);
    free(numbers);
    return err;
}

kb_error *kb_rope_prepare(kb_context *ctx, uint32_t sip, const kb_rope *rope, uint32_t head_dim)
{
    static const char function[] = "kb_rope_prepare";
    kb_tensor tensor;
    uint32_t sips = kb_context_machine(ctx).sips;
    if (sip >= sips)
        return kb_error_new(KB_ERR_INPUT, "%s: invalid device %" PRIu32 ": there are %" PRIu32,
                            function, sip, sips);
    KB_TRY(nn_check_rope(function, rope, head_dim));
    return nn_get_frequencies(ctx, function, sip, rope, head_dim, &tensor);
}

/* ---- Angles ---- */

tl_tensor nn_load_frequencies(tl_context *tl, tl_ptr frequencies, int64_t pairs)
{
    return tl_load(frequencies, tl_shape(1, pairs), TL_F32);
}

/* Consumes the angles, (tokens, pairs). */
static nn_angles cosines_and_sines(tl_context *tl, tl_tensor angles, int64_t tokens, int64_t pairs)
{
    tl_tensor spread = tl_reshape(angles, tl_shape(tokens, 1, pairs));
    nn_angles result = {.cosines = tl_cos(spread), .sines = tl_sin(spread)};
    result.minus_sines = tl_neg(result.sines);
    tl_free(spread);
    tl_free(angles);
    return result;
}

nn_angles nn_angles_at(tl_context *tl, tl_tensor frequencies, int64_t pairs, int64_t position)
{
    return cosines_and_sines(tl, tl_mul(frequencies, position), 1, pairs);
}

nn_angles nn_angles_of(tl_context *tl, tl_tensor frequencies, int64_t pairs, tl_tensor positions,
                       int64_t tokens)
{
    return cosines_and_sines(tl, tl_mul(frequencies, positions), tokens, pairs);
}

void nn_free_angles(tl_context *tl, const nn_angles *angles)
{
    tl_free(angles->cosines);
    tl_free(angles->sines);
    tl_free(angles->minus_sines);
}

/* ---- Rotation ---- */

/* a * cosines + b * sines. */
static tl_tensor turn(tl_context *tl, tl_tensor a, tl_tensor b, tl_tensor cosines, tl_tensor sines)
{
    tl_tensor scaled = tl_mul(a, cosines);
    tl_tensor turned = tl_fma(b, sines, scaled);
    tl_free(scaled);
    return turned;
}

nn_pairs nn_rotate_pairs(tl_context *tl, const nn_heads *h, const nn_pairs *x,
                         const nn_angles *angles)
{
    const tl_dims shape = tl_shape(h->tokens, h->heads, h->pairs);
    tl_tensor a = tl_reshape(x->first, shape), b = tl_reshape(x->second, shape);
    nn_pairs turned = {.first = turn(tl, a, b, angles->cosines, angles->minus_sines),
                       .second = turn(tl, b, a, angles->cosines, angles->sines)};
    tl_free(a);
    tl_free(b);
    return turned;
}

/* Splits heads into the first and second elements of pairs. `all` is (tokens, heads, head_dim). */
static nn_pairs take_apart(tl_context *tl, const nn_heads *h, tl_tensor all)
{
    int64_t pairs = h->pairs, dims = 2 * pairs;
    if (h->style == KB_ROPE_HALF_SPLIT)
        return (nn_pairs){tl_slice(all, 2, 0, pairs), tl_slice(all, 2, pairs, dims)};
    tl_tensor rotated = dims < h->head_dim ? tl_slice(all, 2, 0, dims) : all;
    tl_tensor apart = tl_reshape(rotated, tl_shape(h->tokens, h->heads, pairs, 2));
    nn_pairs result = {tl_slice(apart, 3, 0, 1), tl_slice(apart, 3, 1, 2)};
    tl_free(apart);
    if (rotated.id != all.id)
        tl_free(rotated);
    return result;
}

/* The inverse of take_apart(): (tokens, heads, 2 * pairs). */
static tl_tensor put_together(tl_context *tl, const nn_heads *h, const nn_pairs *apart)
{
    if (h->style == KB_ROPE_HALF_SPLIT)
        return tl_concat(2, apart->first, apart->second);
    const tl_dims single = tl_shape(h->tokens, h->heads, h->pairs, 1);
    tl_tensor first = tl_reshape(apart->first, single);
    tl_tensor second = tl_reshape(apart->second, single);
    tl_tensor both = tl_concat(3, first, second);
    tl_tensor result = tl_reshape(both, tl_shape(h->tokens, h->heads, 2 * h->pairs));
    tl_free(first);
    tl_free(second);
    tl_free(both);
    return result;
}

static void free_pairs(tl_context *tl, const nn_pairs *pairs)
{
    tl_free(pairs->first);
    tl_free(pairs->second);
}

/* Appends the elements of heads that are not rotated. */
static tl_tensor add_rest(tl_context *tl, const nn_heads *h, tl_tensor all, tl_tensor rotated)
{
    tl_tensor rest = tl_slice(all, 2, 2 * h->pairs, h->head_dim);
    tl_tensor cast = tl_cast(rest, TL_F32);
    tl_tensor joined = tl_concat(2, rotated, cast);
    tl_free(rest);
    tl_free(cast);
    tl_free(rotated);
    return joined;
}

tl_tensor nn_rotate(tl_context *tl, const nn_heads *h, tl_tensor x, const nn_angles *angles)
{
    const tl_dims rows = tl_shape(h->tokens * h->heads, h->head_dim);
    tl_tensor all = tl_reshape(x, tl_shape(h->tokens, h->heads, h->head_dim)), result;
    if (h->pairs == 0) {
        result = tl_cast(all, TL_F32);
    } else {
        nn_pairs apart = take_apart(tl, h, all);
        nn_pairs turned = nn_rotate_pairs(tl, h, &apart, angles);
        result = put_together(tl, h, &turned);
        free_pairs(tl, &apart);
        free_pairs(tl, &turned);
        if (2 * h->pairs < h->head_dim)
            result = add_rest(tl, h, all, result);
    }
    tl_free(all);
    tl_tensor shaped = tl_reshape(result, rows);
    tl_free(result);
    return shaped;
}
