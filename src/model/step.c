/*
 * step.c: the steps of a model. A layer is five kernels in decode and six in prefill
 * (docs/decisions/0026-transformer-models.md). Decode is recorded as a graph once and launched for
 * each token; prefill is a stream of launches, which are long enough to hide the host's messages.
 */
#include <stdlib.h>
#include <string.h>

#include "model_state.h"
#include "tp/tp.h"

/* The launches of a step, to add up their times. */
typedef struct launches {
    KB_VEC(kb_request) requests; /* 0: recorded in a graph */
} launches;

/* The place for the request of the next launch. */
static kb_error *next_request(launches *made, kb_request **request)
{
    const kb_request none = {0};
    if (!kb_vec_push(&made->requests, none))
        return kb_error_nomem();
    *request = &made->requests.items[made->requests.count - 1];
    return NULL;
}

/* ---- Products ---- */

/* The chunks of sums over ranks that overlap with a product. More than 8 were not faster at 64
 * rows; for few rows the product uses fewer. */
enum { CHUNKS = 8 };

static kb_error *multiply(kb_context *ctx, launches *made, tp_matmul_spec *product)
{
    kb_request *request;
    KB_TRY(next_request(made, &request));
    product->request = request;
    return tp_matmul(ctx, product);
}

/* A product of normalised rows. */
static kb_error *multiply_norm(kb_context *ctx, const model *m, const model_rows *rows,
                               launches *made, kb_model_part part, kb_tensor gain, kb_tensor w,
                               kb_tensor out)
{
    bool gated = part == KB_MODEL_GATE_UP;
    tp_matmul_spec product = {
        .name = kb_model_part_name(part),
        .x = rows->x,
        .x_by_cube = rows->by_cube,
        .norm_gain = gain,
        .norm_eps = m->spec.norm_eps,
        .w = w,
        .gated = gated,
        .out = out,
        .out_by_cube = gated && rows->by_cube,
    };
    return multiply(ctx, made, &product);
}

/* A product whose sum over ranks is added to x. */
static kb_error *multiply_add(kb_context *ctx, const model *m, const model_rows *rows,
                              launches *made, kb_model_part part, kb_tensor x, kb_tensor w)
{
    tp_matmul_spec product = {
        .name = kb_model_part_name(part),
        .x = x,
        .x_by_cube = rows->by_cube,
        .w = w,
        .out = rows->x,
        .out_by_cube = rows->by_cube,
        .residual = rows->x,
        .rank = m->rank,
        .ranks = m->ranks,
        .chunks = CHUNKS,
        .sum_dtype = m->spec.dtype,
    };
    return multiply(ctx, made, &product);
}

/* ---- Layers ---- */

/* Rotation and append come first, because PEs read keys and values that other PEs append. */
static kb_error *attend_prompt(kb_context *ctx, const model *m, const model_rows *rows,
                               launches *made, uint64_t layer)
{
    kb_kv_append_spec append = {
        .name = kb_model_part_name(KB_MODEL_APPEND),
        .cache = m->cache,
        .layer = (uint32_t)layer,
        .qkv = rows->qkv,
    };
    KB_TRY(next_request(made, &append.request));
    KB_TRY(kb_kv_append(ctx, &append));
    kb_attention_prefill_spec attention = {
        .name = kb_model_part_name(KB_MODEL_ATTENTION),
        .cache = m->cache,
        .layer = (uint32_t)layer,
        .q = rows->qkv,
        .out = rows->attention,
        .out_by_cube = rows->by_cube,
    };
    KB_TRY(next_request(made, &attention.request));
    return kb_attention_prefill(ctx, &attention);
}

static kb_error *attend_token(kb_context *ctx, const model *m, const model_rows *rows,
                              launches *made, uint64_t layer)
{
    kb_attention_decode_spec attention = {
        .name = kb_model_part_name(KB_MODEL_ATTENTION),
        .cache = m->cache,
        .layer = (uint32_t)layer,
        .qkv = rows->qkv,
        .out = rows->attention,
        .out_by_cube = rows->by_cube,
    };
    KB_TRY(next_request(made, &attention.request));
    return kb_attention_decode(ctx, &attention);
}

static kb_error *run_layer(kb_context *ctx, const model *m, const model_rows *rows, launches *made,
                           uint64_t index)
{
    const model_layer *layer = &m->layers[index];
    KB_TRY(multiply_norm(ctx, m, rows, made, KB_MODEL_QKV, layer->attention_norm, layer->qkv,
                         rows->qkv));
    KB_TRY(rows == &m->prefill ? attend_prompt(ctx, m, rows, made, index)
                               : attend_token(ctx, m, rows, made, index));
    KB_TRY(multiply_add(ctx, m, rows, made, KB_MODEL_OUT, rows->attention, layer->out));
    KB_TRY(multiply_norm(ctx, m, rows, made, KB_MODEL_GATE_UP, layer->mlp_norm, layer->gate_up,
                         rows->gated));
    return multiply_add(ctx, m, rows, made, KB_MODEL_DOWN, rows->gated, layer->down);
}

/* ---- Before and after the layers ---- */

static kb_error *embed(kb_context *ctx, const model *m, const model_rows *rows, launches *made)
{
    kb_request *request;
    kb_tensor out = rows->x;
    KB_TRY(next_request(made, &request));
    const kb_embedding_spec spec = {
        .name = kb_model_part_name(KB_MODEL_EMBED),
        .table = m->embedding,
        .tokens = rows->tokens,
        .out_by_cube = rows->by_cube,
        .request = request,
    };
    return kb_embedding(ctx, &spec, &out);
}

/* Prefill: the last row of each sequence goes through the head. */
static kb_error *take_last_rows(kb_context *ctx, const model *m, launches *made)
{
    for (uint64_t i = 0; i < m->spec.batch; i++) {
        kb_request *request;
        KB_TRY(next_request(made, &request));
        /* By cube, the rows of the first copy come first. */
        const tp_relayout_spec copy = {
            .name = kb_model_part_name(KB_MODEL_HEAD),
            .to = m->last,
            .from = m->prefill.x,
            .at = {(int64_t)i, 1, 0, (int64_t)m->spec.hidden},
            .from_row = (int64_t)(i * m->spec.prompt + m->added[i] - 1),
            .request = request,
        };
        KB_TRY(tp_relayout(ctx, &copy));
    }
    return NULL;
}

static kb_error *sample(kb_context *ctx, const model *m, const model_rows *rows, launches *made)
{
    const model_rows last = {.x = m->last};
    if (rows == &m->prefill)
        KB_TRY(take_last_rows(ctx, m, made));
    KB_TRY(multiply_norm(ctx, m, rows == &m->prefill ? &last : rows, made, KB_MODEL_HEAD,
                         m->final_norm, m->head, m->logits));
    kb_tensor tokens = m->decode.tokens;
    kb_argmax_spec spec = {.name = kb_model_part_name(KB_MODEL_SAMPLE), .logits = m->logits};
    if (m->ranks > 1)
        return kb_vocab_parallel_argmax(ctx, &spec, &tokens);
    KB_TRY(next_request(made, &spec.request));
    return kb_argmax(ctx, &spec, &tokens);
}

static kb_error *run_step(kb_context *ctx, const model *m, const model_rows *rows, launches *made)
{
    if (!m->spec.layers_only)
        KB_TRY(embed(ctx, m, rows, made));
    for (uint64_t layer = 0; layer < m->spec.layers; layer++)
        KB_TRY(run_layer(ctx, m, rows, made, layer));
    return m->spec.layers_only ? NULL : sample(ctx, m, rows, made);
}

/* ---- Times ---- */

/* Launches without the name of a part belong to the previous part. */
static kb_model_part find_part(const char *name, kb_model_part before)
{
    for (int part = 0; part < KB_MODEL_PARTS; part++)
        if (strcmp(name, kb_model_part_name((kb_model_part)part)) == 0)
            return (kb_model_part)part;
    return before;
}

typedef struct time_sums {
    kb_model_times *times;
    kb_time first, last; /* begin of the first launch, end of the last one */
    kb_model_part part;
} time_sums;

static void add_launch(time_sums *sums, const kb_launch_result *result)
{
    kb_model_times *times = sums->times;
    sums->part = find_part(result->name, sums->part);
    if (sums->first < 0)
        sums->first = sums->last = result->issued;
    if (result->ended > sums->last)
        times->parts[sums->part] += result->ended - sums->last;
    sums->last = result->ended > sums->last ? result->ended : sums->last;
    if ((sums->part == KB_MODEL_OUT || sums->part == KB_MODEL_DOWN) && result->pes > 0)
        times->all_reduce +=
            (kb_time)((result->causes[KB_CAUSE_OTHER_SIPS] + result->causes[KB_CAUSE_MESSAGE] +
                       result->causes[KB_CAUSE_CREDIT]) /
                      result->pes);
}

static kb_error *add_request(kb_context *ctx, kb_request request, time_sums *sums)
{
    size_t count;
    KB_TRY(kb_launch_results(ctx, request, NULL, 0, &count));
    kb_launch_result *results = kb_alloc_array(count, sizeof *results);
    if (!results)
        return kb_error_nomem();
    kb_error *err = kb_launch_results(ctx, request, results, count, &count);
    for (size_t i = 0; !err && i < count; i++)
        add_launch(sums, &results[i]);
    free(results);
    return err;
}

static void finish_times(const time_sums *sums, kb_time total)
{
    kb_model_times *times = sums->times;
    times->total = total;
    times->launch = total;
    for (int part = 0; part < KB_MODEL_PARTS; part++)
        times->launch -= times->parts[part];
}

/* ---- Lengths ---- */

static kb_error *check_room(const char *function, const model *m)
{
    for (uint64_t i = 0; i < m->spec.batch; i++)
        if (m->cached[i] + (uint64_t)m->added[i] > m->spec.context)
            return kb_error_new(KB_ERR_INPUT,
                                "%s: sequence %ju has %u tokens and gets %u more, but the context "
                                "of '%s' is %ju",
                                function, (uintmax_t)i, m->cached[i], m->added[i], m->name,
                                (uintmax_t)m->spec.context);
    return NULL;
}

static kb_error *begin_step(kb_context *ctx, const char *function, const model *m)
{
    KB_TRY(check_room(function, m));
    return kb_kv_cache_set_lengths(ctx, m->cache, m->cached, m->added);
}

static void end_step(model *m)
{
    for (uint64_t i = 0; i < m->spec.batch; i++)
        m->cached[i] += m->added[i];
}

/* ---- Decode ---- */

static kb_error *record(kb_context *ctx, model *m)
{
    launches made = {0};
    KB_TRY(kb_graph_begin(ctx, m->name, &m->graph));
    kb_error *err = run_step(ctx, m, &m->decode, &made);
    kb_error *ended = kb_graph_end(ctx, m->graph);
    kb_vec_fini(&made.requests);
    if (!err)
        err = ended;
    else
        kb_error_free(ended);
    if (err) {
        kb_error_free(kb_graph_free(ctx, m->graph));
        m->graph = (kb_graph){0};
    }
    return err;
}

kb_error *kb_model_decode(kb_context *ctx, kb_model handle, kb_model_times *times)
{
    static const char function[] = "kb_model_decode";
    kb_model_times unused;
    model *m;
    KB_TRY(model_find(ctx, function, handle, &m));
    for (uint64_t i = 0; i < m->spec.batch; i++)
        m->added[i] = 1;
    KB_TRY(begin_step(ctx, function, m));
    if (m->graph.id == 0)
        KB_TRY(record(ctx, m));
    times = times ? times : &unused;
    *times = (kb_model_times){0};
    time_sums sums = {.times = times, .first = -1};
    kb_request request;
    kb_time began = kb_context_now(ctx);
    KB_TRY(kb_graph_launch(ctx, m->graph, &(kb_graph_options){.request = &request}));
    KB_TRY(kb_request_wait(ctx, request, NULL));
    kb_time took = kb_context_now(ctx) - began;
    kb_error *err = add_request(ctx, request, &sums);
    kb_error *freed = kb_request_free(ctx, request);
    if (err) {
        kb_error_free(freed);
        return err;
    }
    finish_times(&sums, took);
    end_step(m);
    return freed;
}

/* ---- Prefill ---- */

/* Waits for all launches, adds up their times if there was no error, and frees the requests. */
static kb_error *end_launches(kb_context *ctx, const model *m, kb_error *err, launches *made,
                              time_sums *sums, kb_time began)
{
    for (size_t i = 0; i < made->requests.count; i++) {
        kb_request request = made->requests.items[i];
        if (request.id == 0)
            continue;
        kb_error *failed = kb_request_wait(ctx, request, NULL);
        if (!failed && !err)
            failed = add_request(ctx, request, sums);
        kb_error *freed = kb_request_free(ctx, request);
        kb_error_free(freed);
        if (!err)
            err = failed;
        else
            kb_error_free(failed);
    }
    if (!err) {
        /* Over several ranks it has no request: the call waits for it. */
        if (m->ranks > 1 && !m->spec.layers_only)
            sums->times->parts[KB_MODEL_SAMPLE] += kb_context_now(ctx) - sums->last;
        finish_times(sums, kb_context_now(ctx) - began);
    }
    kb_vec_fini(&made->requests);
    return err;
}

static kb_error *take_lengths(model *m, const uint32_t *lengths)
{
    for (uint64_t i = 0; i < m->spec.batch; i++) {
        m->added[i] = lengths ? lengths[i] : (uint32_t)m->spec.prompt;
        if (m->added[i] == 0 || m->added[i] > m->spec.prompt)
            return kb_error_new(KB_ERR_INPUT,
                                "kb_model_prefill: the prompt of sequence %ju has %u tokens: "
                                "expected 1 to %ju",
                                (uintmax_t)i, m->added[i], (uintmax_t)m->spec.prompt);
    }
    return NULL;
}

kb_error *kb_model_prefill(kb_context *ctx, kb_model handle, const int32_t *tokens,
                           const uint32_t *lengths, kb_model_times *times)
{
    static const char function[] = "kb_model_prefill";
    kb_model_times unused;
    launches made = {0};
    model *m;
    KB_TRY(model_find(ctx, function, handle, &m));
    if (m->prefill.count == 0)
        return kb_error_new(KB_ERR_INPUT, "%s: '%s' has no prompt: set kb_model_spec.prompt",
                            function, m->name);
    KB_TRY(take_lengths(m, lengths));
    if (tokens && !m->spec.layers_only)
        KB_TRY(kb_tensor_set_slice(ctx, m->prefill.tokens, KB_UNTIMED, NULL, tokens,
                                   (size_t)m->prefill.count * sizeof *tokens));
    KB_TRY(begin_step(ctx, function, m));
    times = times ? times : &unused;
    *times = (kb_model_times){0};
    time_sums sums = {.times = times, .first = -1};
    kb_time began = kb_context_now(ctx);
    kb_error *err = run_step(ctx, m, &m->prefill, &made);
    KB_TRY(end_launches(ctx, m, err, &made, &sums, began));
    end_step(m);
    return NULL;
}
