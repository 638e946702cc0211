/*
 * capacity.c: the HBM that a model needs on a device, and what would fit.
 *
 * A tensor has a part in the slice of each PE; parts are nearly equal. The fullest slice decides:
 * sizes that do not divide leave unused space in others.
 */
#include <inttypes.h>

#include "model_state.h"
#include "tp/tp.h"

/* For few rows the copies are small stores, which take longer than loads from other cubes: measured
 * in docs/decisions/0023-tensor-parallel.md, and with whole layers of Llama 70B. */
bool model_keeps_by_cube(uint64_t rows)
{
    return rows >= 32;
}

/* The rows of the dominant step: prefill, if there is a prompt. */
static uint64_t usual_rows(const kb_model_spec *spec)
{
    return spec->batch * (spec->prompt > 0 ? spec->prompt : 1);
}

kb_policy model_weight_policy(kb_context *ctx, const kb_model_spec *spec, const model_part *part,
                              kb_model_weight_kind kind)
{
    kb_policy w, x, out;
    uint64_t rows = kind == KB_MODEL_HEAD_WEIGHT ? spec->batch : usual_rows(spec);
    tp_best_layout(ctx, rows, part->rows, part->columns, spec->dtype,
                   kind == KB_MODEL_GATE_UP_WEIGHT, &w, &x, &out);
    return w;
}

/* ---- Sums ---- */

/* Bytes of a device, and of its fullest slice. */
typedef struct size {
    uint64_t all, slice;
} size;

/* UINT64_MAX on overflow, which is more than any device has. */
static uint64_t times(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t plus(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

/* The columns of a tensor: all of them, and those in the fullest slice. */
typedef struct width {
    uint64_t all, slice;
} width;

static void add(size *sum, uint64_t rows, width columns, uint64_t bytes)
{
    sum->all = plus(sum->all, times(times(rows, columns.all), bytes));
    sum->slice = plus(sum->slice, times(times(rows, columns.slice), bytes));
}

static uint64_t divide_round_up(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

static uint64_t per_pe(const kb_machine *machine, uint64_t n)
{
    return divide_round_up(divide_round_up(n, machine->cubes), machine->pes);
}

static size weights_of(kb_context *ctx, const kb_model_spec *spec, const model_share *share)
{
    const kb_machine machine = kb_context_machine(ctx);
    uint64_t bytes = kb_dtype_bytes(spec->dtype);
    size sum = {0};
    for (int kind = 0; kind < KB_MODEL_WEIGHTS; kind++) {
        bool is_end = kind == KB_MODEL_EMBEDDING_TABLE || kind == KB_MODEL_FINAL_NORM ||
                      kind == KB_MODEL_HEAD_WEIGHT;
        if (is_end && spec->layers_only)
            continue;
        model_part part = model_part_of(spec, share, (kb_model_weight_kind)kind);
        uint64_t slice = per_pe(&machine, part.columns);
        if (kind == KB_MODEL_EMBEDDING_TABLE) {
            slice = per_pe(&machine, part.rows) * part.columns;
        } else if (part.rows > 1) {
            kb_policy policy = model_weight_policy(ctx, spec, &part, (kb_model_weight_kind)kind);
            slice = policy.tile_rows * policy.tile_columns;
        }
        add(&sum, is_end ? 1 : spec->layers, (width){part.rows * part.columns, slice}, bytes);
    }
    return sum;
}

static void add_rows(size *sum, const kb_machine *machine, const kb_model_spec *spec,
                     const model_share *share, uint64_t rows)
{
    uint64_t bytes = kb_dtype_bytes(spec->dtype), pes = (uint64_t)machine->cubes * machine->pes;
    const uint64_t columns[] = {spec->hidden, share->q_columns, share->ffn};
    bool by_cube = model_keeps_by_cube(rows);
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++)
        add(sum, rows,
            (width){columns[i] * (by_cube ? machine->cubes : 1),
                    by_cube ? divide_round_up(columns[i], machine->pes)
                            : per_pe(machine, columns[i])},
            bytes);
    uint64_t heads = share->heads + 2 * share->kv_heads;
    add(sum, rows, (width){share->qkv_columns, spec->head_dim * divide_round_up(heads, pes)},
        bytes);
    if (!spec->layers_only)
        add(sum, rows, (width){1, 1}, sizeof(int32_t)); /* tokens: all on one PE */
}

static size activations_of(const kb_machine *machine, const kb_model_spec *spec,
                           const model_share *share)
{
    size sum = {0};
    add_rows(&sum, machine, spec, share, spec->batch);
    if (spec->prompt > 0)
        add_rows(&sum, machine, spec, share, spec->batch * spec->prompt);
    if (spec->layers_only)
        return sum;
    add(&sum, spec->batch, (width){share->vocab, per_pe(machine, share->vocab)}, sizeof(float));
    if (spec->prompt > 0) /* the last row of each sequence */
        add(&sum, spec->batch, (width){spec->hidden, per_pe(machine, spec->hidden)},
            kb_dtype_bytes(spec->dtype));
    return sum;
}

/* The tokens of each of its kv heads for which a PE has slots. A plan is exact. For many sequences
 * a plan takes too long; then sequences are assumed to be packed on each PE, in pages of up to 512
 * tokens. */
static uint64_t tokens_of_pe(kb_context *ctx, const kb_model_spec *spec, const model_share *share,
                             uint64_t lanes, bool *out_of_memory)
{
    static const uint64_t max_planned = 1024, longest_page = 512;
    uint64_t page = spec->page_tokens > 0 ? spec->page_tokens : longest_page;
    uint64_t tokens =
        times(divide_round_up(spec->batch, lanes), divide_round_up(spec->context, page) * page);
    if (spec->batch > max_planned || divide_round_up(spec->context, page) > max_planned * 64)
        return tokens;
    const kb_kv_cache_spec cache = model_cache_spec(spec, share);
    kb_kv_cache_info info;
    kb_error *err = kb_kv_cache_plan(ctx, &cache, &info);
    if (!err)
        tokens = times(info.pages, info.page_tokens);
    *out_of_memory |= kb_error_code(err) == KB_ERR_HOST;
    kb_error_free(err); /* creation reports it */
    return tokens;
}

static size cache_of(kb_context *ctx, const kb_model_spec *spec, const model_share *share,
                     bool *out_of_memory)
{
    const kb_machine machine = kb_context_machine(ctx);
    uint64_t page = spec->page_tokens > 0 ? spec->page_tokens : KB_PAGE_TOKENS;
    uint64_t pes = (uint64_t)machine.cubes * machine.pes;
    uint64_t lanes = pes / share->kv_heads > 0 ? pes / share->kv_heads : 1;
    uint64_t heads = divide_round_up(share->kv_heads, pes),
             layers = 2 * spec->layers; /* keys, values */
    size sum = {0};
    if (spec->context == 0)
        return sum;
    uint64_t tokens = tokens_of_pe(ctx, spec, share, lanes, out_of_memory);
    add(&sum, layers * spec->head_dim, (width){times(tokens * heads, pes), times(tokens, heads)},
        kb_dtype_bytes(spec->dtype));
    /* Each PE has a copy of the records, 4 numbers per sequence, and of the table of pages. */
    uint64_t numbers = 4 + (spec->page_tokens > 0 ? divide_round_up(spec->context, page) : 0);
    add(&sum, spec->batch, (width){pes * numbers, numbers}, sizeof(int32_t));
    return sum;
}

/* ---- Required and maximum sizes ---- */

/* *out_of_memory becomes true if the host has no memory for the computation; then the result is an
 * estimate. */
static kb_model_memory need(kb_context *ctx, const kb_model_spec *spec, uint32_t ranks,
                            bool *out_of_memory)
{
    const kb_machine machine = kb_context_machine(ctx);
    const model_share share = model_share_of(spec, ranks);
    size weights = weights_of(ctx, spec, &share),
         cache = cache_of(ctx, spec, &share, out_of_memory);
    size activations = activations_of(&machine, spec, &share);
    kb_model_memory memory = {
        .weights = weights.all,
        .cache = cache.all,
        .activations = activations.all,
        .capacity = machine.hbm_bytes * machine.cubes * machine.pes,
        .slice_needed = plus(plus(weights.slice, cache.slice), activations.slice),
        .slice_capacity = machine.hbm_bytes,
    };
    /* Each tensor is aligned to a burst. */
    memory.slice_needed = plus(memory.slice_needed, times(spec->layers * 8 + 32, 64));
    memory.fits = memory.slice_needed <= memory.slice_capacity;
    return memory;
}

/* The maximum batch, or context, that fits with all other sizes unchanged; 0: none. */
static uint64_t find_max(kb_context *ctx, const kb_model_spec *given, uint32_t ranks, bool is_batch,
                         bool *out_of_memory)
{
    kb_model_spec spec = *given;
    uint64_t *number = is_batch ? &spec.batch : &spec.context;
    uint64_t low = 0, above = (is_batch ? MODEL_MAX_BATCH : MODEL_MAX_TOKENS) + 1;
    while (low + 1 < above) {
        *number = low + (above - low) / 2;
        if (need(ctx, &spec, ranks, out_of_memory).fits)
            low = *number;
        else
            above = *number;
    }
    /* The context must hold the prompt. */
    return is_batch || low >= given->prompt ? low : 0;
}

static uint32_t find_min_ranks(kb_context *ctx, const kb_model_spec *spec, bool *out_of_memory)
{
    for (uint32_t ranks = 1; ranks <= MODEL_MAX_RANKS; ranks++) {
        kb_error *err = model_check(spec, ranks);
        bool can_be_divided = !err;
        *out_of_memory |= kb_error_code(err) == KB_ERR_HOST;
        kb_error_free(err);
        if (can_be_divided && need(ctx, spec, ranks, out_of_memory).fits)
            return ranks;
    }
    return 0;
}

kb_error *kb_model_plan_memory(kb_context *ctx, const kb_model_spec *given, uint32_t ranks,
                               kb_model_memory *memory)
{
    const kb_model_spec spec = model_complete(given);
    *memory = (kb_model_memory){0};
    KB_TRY(model_check(&spec, ranks));
    bool out_of_memory = false;
    *memory = need(ctx, &spec, ranks, &out_of_memory);
    memory->max_batch = find_max(ctx, &spec, ranks, true, &out_of_memory);
    memory->max_context = find_max(ctx, &spec, ranks, false, &out_of_memory);
    memory->min_ranks = find_min_ranks(ctx, &spec, &out_of_memory);
    return out_of_memory ? kb_error_nomem() : NULL;
}

kb_error *model_refuse(const kb_model_spec *spec, uint32_t ranks, const kb_model_memory *memory)
{
    kb_text fits = KB_TEXT_INIT;
    if (memory->max_batch > 0)
        kb_text_printf(&fits, "batch %" PRIu64, memory->max_batch);
    if (memory->max_context > 0)
        kb_text_printf(&fits, "%scontext %" PRIu64, memory->max_batch > 0 ? ", or " : "",
                       memory->max_context);
    if (memory->min_ranks > 0)
        kb_text_printf(&fits, "%s%" PRIu32 " device%s",
                       memory->max_batch > 0 || memory->max_context > 0 ? ", or " : "",
                       memory->min_ranks, kb_plural(memory->min_ranks));
    kb_error *err = kb_error_new(
        KB_ERR_INPUT,
        "'%s' does not fit on %" PRIu32 " device%s: of its HBM slice of %s the fullest PE "
        "needs %s (a device: weights %s, cache %s, activations %s). %s%s",
        spec->name, ranks, kb_plural(ranks), kb_bytes_print(memory->slice_capacity).text,
        kb_bytes_print(memory->slice_needed).text, kb_bytes_print(memory->weights).text,
        kb_bytes_print(memory->cache).text, kb_bytes_print(memory->activations).text,
        fits.failed || kb_text_peek(&fits)[0] == '\0' ? "" : "Would fit: ",
        fits.failed ? "" : kb_text_peek(&fits));
    kb_text_fini(&fits);
    return err;
}
