/*
 * gqa_llama70b.c: grouped-query attention as in Llama 70B over rings of PEs: prefill and decode,
 * for one user over the PEs of a cube and for several users over the cubes of a SIP.
 *
 * At validation scale results are computed and verified. At headline scale the shapes are those of
 * the model, and the run is timing-only unless verification is requested.
 */
#include <kernbench/kernbench.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention_ring.h"
#include "benches.h"

enum { VALIDATION, HEADLINE };

typedef struct panel {
    const char *name;
    attention_kind kind;
    bool is_multi_user;
} panel;

static const panel panels[] = {
    {"single_user_prefill", ATTENTION_KV, false},
    {"multi_user_prefill", ATTENTION_KV, true},
    {"single_user_decode", ATTENTION_MLO, false},
    {"multi_user_decode", ATTENTION_MLO, true},
};
enum { PANELS = sizeof panels / sizeof panels[0] };

/* ---- Shapes ------------------------------------------------------------------------------ */

/* A parameter, or its default. */
static uint64_t value_or(const kb_bench *bench, const char *name, uint64_t otherwise)
{
    int64_t value = kb_bench_param(bench, name);
    return value > 0 ? (uint64_t)value : otherwise;
}

/* Multi-user: at validation scale one ring over a few cubes, else a ring for each row of cubes. */
static attention_shape shape_of(const kb_bench *bench, const panel *p)
{
    kb_machine machine = kb_context_machine(kb_bench_context(bench));
    bool is_headline = kb_bench_param(bench, "scale") == HEADLINE;
    uint32_t few_cubes = machine.cubes < 4 ? machine.cubes : 4;
    uint32_t cubes = is_headline ? machine.cube_w : few_cubes;
    uint32_t rows = is_headline ? machine.cube_h : 1;
    uint64_t keys = value_or(bench, "context", is_headline ? 4096 : 64);
    uint64_t prompt = value_or(bench, "prompt", is_headline || keys < 16 ? keys : 16);
    return (attention_shape){
        .kind = p->kind,
        .over_cubes = p->is_multi_user,
        .rings = p->is_multi_user ? (uint32_t)value_or(bench, "users", rows) : 1,
        .ranks = (uint32_t)value_or(bench, "ranks", p->is_multi_user ? cubes : machine.pes),
        .dtype = kb_bench_param(bench, "dtype") == 0 ? KB_F16 : KB_BF16,
        .heads = value_or(bench, "heads", is_headline ? 64 : 16),
        .kv_heads = value_or(bench, "kv_heads", is_headline ? 8 : 2),
        .head_dim = value_or(bench, "head_dim", is_headline ? 128 : 64),
        .queries = p->kind == ATTENTION_MLO ? 1 : prompt,
        .keys = keys,
        .tile_keys = value_or(bench, "tile_keys", 0),
        .half_round = kb_bench_param(bench, "round") == 1,
        .n_slots = (uint32_t)value_or(bench, "n_slots", 0),
        .slot_bytes = value_or(bench, "slot_bytes", 0),
    };
}

/* ---- Numbers ----------------------------------------------------------------------------- */

/* The contents of the tensors. */
typedef struct contents {
    float *q, *k, *v, *o;
} contents;

static void free_contents(contents *c)
{
    free(c->q);
    free(c->k);
    free(c->v);
    free(c->o);
}

/* mlo: the query of the first rank of a ring is copied to all its ranks. */
static void copy_query(const attention_shape *s, uint16_t *q)
{
    size_t each = (size_t)(s->heads * s->head_dim);
    for (uint32_t rank = 0; rank < s->rings * s->ranks && s->kind == ATTENTION_MLO; rank++) {
        uint32_t first = rank - rank % s->ranks;
        if (rank != first)
            memcpy(q + rank * each, q + first * each, each * sizeof *q);
    }
}

/* Fills a tensor with random numbers; *floats are the numbers rounded to the dtype. */
static kb_error *fill(kb_context *ctx, const attention *a, kb_tensor tensor, uint64_t seed,
                      uint64_t count, float **floats)
{
    uint16_t *halves = malloc((size_t)count * sizeof *halves);
    *floats = malloc((size_t)count * sizeof **floats);
    kb_error *err = NULL;
    if (halves && *floats) {
        kb_bench_random(seed, a->shape.dtype, halves, (size_t)count);
        if (tensor.id == a->q.id)
            copy_query(&a->shape, halves);
        kb_convert(KB_F32, *floats, a->shape.dtype, halves, (size_t)count);
        err = kb_tensor_set_slice(ctx, tensor, KB_UNTIMED, NULL, halves,
                                  (size_t)count * sizeof *halves);
    } else {
        err = kb_error_new(KB_ERR_HOST, "out of memory");
    }
    free(halves);
    return err;
}

static kb_error *fill_all(kb_context *ctx, const attention *a, contents *c)
{
    const attention_shape *s = &a->shape;
    KB_TRY(fill(ctx, a, a->q, 1, attention_q_elements(s), &c->q));
    KB_TRY(fill(ctx, a, a->k, 2, attention_k_elements(s), &c->k));
    return fill(ctx, a, a->v, 3, attention_k_elements(s), &c->v);
}

/* ---- Reference --------------------------------------------------------------------------- */

/* softmax(q K^T / sqrt(dim)) V for a query of a head, over the keys up to its position. */
static void attend(const attention_shape *s, const contents *c, uint32_t ring, uint64_t head,
                   uint64_t query, double *weights, double *o)
{
    uint64_t kv_head = head / (s->heads / s->kv_heads);
    uint64_t keys = s->kind == ATTENTION_MLO ? s->keys : s->keys - s->queries + query + 1;
    attention_position place = s->kind == ATTENTION_MLO
                                   ? (attention_position){0, query}
                                   : attention_find(s->queries, s->ranks, query);
    double max = -HUGE_VAL, sum = 0;
    for (uint64_t key = 0; key < keys; key++) {
        double score = 0;
        for (uint64_t dim = 0; dim < s->head_dim; dim++)
            score += (double)c->q[attention_q_at(s, ring, place, head, dim)] *
                     (double)c->k[attention_k_at(s, ring, key, kv_head, dim)];
        weights[key] = score / sqrt((double)s->head_dim);
        max = fmax(max, weights[key]);
    }
    for (uint64_t dim = 0; dim < s->head_dim; dim++)
        o[dim] = 0;
    for (uint64_t key = 0; key < keys; key++) {
        double weight = exp(weights[key] - max);
        sum += weight;
        for (uint64_t dim = 0; dim < s->head_dim; dim++)
            o[dim] += weight * (double)c->v[attention_v_at(s, ring, key, kv_head, dim)];
    }
    for (uint64_t dim = 0; dim < s->head_dim; dim++)
        o[dim] /= sum;
}

/* Compares the result of a query, which is on one rank, or in mlo on all of them. f16 has 11 bits,
 * bf16 8: weights and then the result are rounded to these. */
static kb_error *compare(const panel *p, const attention_shape *s, const contents *c, uint32_t ring,
                         uint64_t head, uint64_t query, const double *expected)
{
    const double unit = s->dtype == KB_F16 ? 0x1p-10 : 0x1p-7;
    uint32_t copies = s->kind == ATTENTION_MLO ? s->ranks : 1;
    for (uint32_t copy = 0; copy < copies; copy++) {
        attention_position place = {copy, query};
        if (s->kind == ATTENTION_KV)
            place = attention_find(s->queries, s->ranks, query);
        for (uint64_t dim = 0; dim < s->head_dim; dim++) {
            double got = (double)c->o[attention_q_at(s, ring, place, head, dim)];
            double bound = unit * (fabs(expected[dim]) + 0.5);
            if (!(fabs(got - expected[dim]) <= bound))
                return kb_error_new(KB_ERR_CHECK,
                                    "%s: user %u, head %llu, query %llu, element %llu at rank %u: "
                                    "got %.9g, expected %.9g within %.3g",
                                    p->name, ring, (unsigned long long)head,
                                    (unsigned long long)query, (unsigned long long)dim, place.rank,
                                    got, expected[dim], bound);
        }
    }
    return NULL;
}

/* All results, or an evenly spaced sample if all would take long. */
static kb_error *compare_all(const panel *p, const attention_shape *s, const contents *c,
                             double *weights, double *expected)
{
    static const double max_steps = 2e8; /* computed in about a second */
    uint64_t count = s->rings * s->heads * s->queries;
    double steps = (double)count * (double)s->keys * (double)s->head_dim * 2;
    uint64_t stride = steps > max_steps ? (uint64_t)(steps / max_steps) + 1 : 1;
    for (uint64_t i = 0; i < count; i += stride) {
        uint64_t query = i % s->queries, head = i / s->queries % s->heads;
        uint32_t ring = (uint32_t)(i / s->queries / s->heads);
        attend(s, c, ring, head, query, weights, expected);
        KB_TRY(compare(p, s, c, ring, head, query, expected));
    }
    return NULL;
}

/* The numbers of a tensor of the dtype of the attention; free() them. */
static kb_error *read_tensor(kb_context *ctx, const attention *a, kb_tensor tensor, uint64_t count,
                             float **floats)
{
    uint16_t *halves = malloc((size_t)count * sizeof *halves);
    *floats = malloc((size_t)count * sizeof **floats);
    kb_error *err = halves && *floats ? kb_tensor_to_host(ctx, tensor, KB_UNTIMED, halves,
                                                          (size_t)count * sizeof *halves)
                                      : kb_error_new(KB_ERR_HOST, "out of memory");
    if (!err)
        kb_convert(KB_F32, *floats, a->shape.dtype, halves, (size_t)count);
    free(halves);
    return err;
}

/* At validation scale results are compared in every run that has data. */
static kb_error *verify(kb_bench *bench, const panel *p, const attention *a, contents *c)
{
    const attention_shape *s = &a->shape;
    kb_context *ctx = kb_bench_context(bench);
    bool is_wanted = kb_bench_verifies(bench) || kb_bench_param(bench, "scale") == VALIDATION;
    if (kb_context_is_timing_only(ctx) || !is_wanted)
        return NULL;
    KB_TRY(read_tensor(ctx, a, a->o, attention_q_elements(s), &c->o));
    double *weights = malloc((size_t)s->keys * sizeof *weights);
    double *expected = malloc((size_t)s->head_dim * sizeof *expected);
    kb_error *err = weights && expected ? compare_all(p, s, c, weights, expected)
                                        : kb_error_new(KB_ERR_HOST, "out of memory");
    free(weights);
    free(expected);
    if (!err)
        kb_bench_confirm(bench);
    return err;
}

/* ---- Report of a panel ------------------------------------------------------------------- */

/* Operations of all PEs so far. */
typedef struct totals {
    kb_op_total products, reads, writes, sends;
} totals;

static totals totals_now(kb_context *ctx)
{
    return (totals){.products = kb_context_op_total(ctx, KB_UNIT_GEMM, NULL),
                    .reads = kb_context_op_total(ctx, KB_UNIT_DMA_READ, NULL),
                    .writes = kb_context_op_total(ctx, KB_UNIT_DMA_WRITE, NULL),
                    .sends = kb_context_op_total(ctx, KB_UNIT_DMA_WRITE, "send")};
}

typedef struct stats {
    kb_time install; /* of the queues */
    kb_launch_result launch;
    totals before, after;
} stats;

static void detail(kb_bench *bench, const panel *p, const char *name, double value,
                   const char *unit)
{
    char full[80];
    snprintf(full, sizeof full, "%s.%s", p->name, name);
    kb_bench_detail(bench, full, value, unit);
}

static double grown(uint64_t before, uint64_t after)
{
    return (double)(after - before);
}

static void report_shape(kb_bench *bench, const panel *p, const attention_shape *s)
{
    detail(bench, p, "users", s->rings, "");
    detail(bench, p, "ranks", s->ranks, "of a user");
    detail(bench, p, "queries", (double)s->queries, "of a user");
    detail(bench, p, "keys", (double)s->keys, "of a user");
}

static void report(kb_bench *bench, const panel *p, const attention *made, const stats *f)
{
    const attention_shape *s = &made->shape;
    const totals *a = &f->before, *b = &f->after;
    const kb_split_time *split = &f->launch.split;
    double time = kb_to_ns(f->launch.ended - f->launch.issued);
    double all = kb_to_ns(split->compute + split->memory + split->communication + split->idle);
    double share = all > 0 ? 100 / all : 0;
    double products = grown(a->products.count, b->products.count);
    double reads = grown(a->reads.count, b->reads.count);
    double sends = grown(a->sends.count, b->sends.count);
    double stores = grown(a->writes.count, b->writes.count) - sends;
    double loaded = grown(a->reads.bytes, b->reads.bytes);
    double sent = grown(a->sends.bytes, b->sends.bytes);
    double stored = grown(a->writes.bytes, b->writes.bytes) - sent;
    double messages = (double)attention_messages(made);
    report_shape(bench, p, s);
    detail(bench, p, "time_ns", time, "from the launch until it is complete");
    detail(bench, p, "kernel_ns", kb_to_ns(f->launch.pe_exec), "from the first PE to the last");
    detail(bench, p, "install_ns", kb_to_ns(f->install), "to install the queues");
    detail(bench, p, "compute_ns", kb_to_ns(split->compute), "summed over PEs");
    detail(bench, p, "memory_ns", kb_to_ns(split->memory), "summed over PEs");
    detail(bench, p, "communication_ns", kb_to_ns(split->communication), "summed over PEs");
    detail(bench, p, "idle_ns", kb_to_ns(split->idle), "summed over PEs");
    detail(bench, p, "loaded_bytes", loaded, "read by DMA");
    detail(bench, p, "stored_bytes", stored, "written by DMA");
    detail(bench, p, "sent_bytes", sent, "through queues");
    detail(bench, p, "matrix_products", products, "");
    detail(bench, p, "flops", grown(a->products.flops, b->products.flops), "of these");
    detail(bench, p, "dmas", reads + stores + sends, "reads, stores and slots sent");
    detail(bench, p, "dma_reads", reads, "");
    detail(bench, p, "dma_stores", stores, "");
    detail(bench, p, "slots_sent", sends, "");
    detail(bench, p, "queue_messages", messages, "");
    kb_bench_print(bench,
                   "%-20s %6u %6u %12.3f %8.1f %7.1f %7.1f %6.1f %11.0f %11.0f %11.0f %9.0f %9.0f "
                   "%9.0f",
                   p->name, s->rings, s->ranks, time / 1e3, kb_to_ns(split->compute) * share,
                   kb_to_ns(split->memory) * share, kb_to_ns(split->communication) * share,
                   kb_to_ns(split->idle) * share, loaded, stored, sent, products,
                   reads + stores + sends, messages);
}

static void print_heading(kb_bench *bench)
{
    kb_bench_print(bench, "%-20s %6s %6s %12s %8s %7s %7s %6s %11s %11s %11s %9s %9s %9s", "panel",
                   "users", "ranks", "time us", "compute", "memory", "comm.", "idle", "loaded B",
                   "stored B", "sent B", "products", "DMAs", "messages");
    kb_bench_print(bench, "%-20s %6s %6s %12s %8s %7s %7s %6s", "", "", "a user", "", "%", "%", "%",
                   "%");
}

/* ---- Running ----------------------------------------------------------------------------- */

static kb_error *launch(kb_context *ctx, const attention *a, stats *f)
{
    kb_request request;
    size_t count;
    f->before = totals_now(ctx);
    KB_TRY(attention_launch(ctx, a, &request));
    KB_TRY(kb_request_wait(ctx, request, NULL));
    KB_TRY(kb_launch_results(ctx, request, &f->launch, 1, &count));
    f->after = totals_now(ctx);
    return kb_request_free(ctx, request);
}

static kb_error *run_attention(kb_bench *bench, const panel *p, const attention *a, stats *f)
{
    kb_context *ctx = kb_bench_context(bench);
    contents c = {0};
    kb_error *err = kb_context_is_timing_only(ctx) ? NULL : fill_all(ctx, a, &c);
    if (!err)
        err = launch(ctx, a, f);
    if (!err) {
        report(bench, p, a, f);
        err = verify(bench, p, a, &c);
    }
    free_contents(&c);
    return err;
}

static kb_error *run_panel(kb_bench *bench, const panel *p)
{
    kb_context *ctx = kb_bench_context(bench);
    attention_shape shape = shape_of(bench, p);
    attention a;
    stats f = {0};
    kb_time began = kb_context_now(ctx);
    kb_error *err = attention_create(ctx, &shape, &a);
    f.install = kb_context_now(ctx) - began;
    if (!err)
        err = run_attention(bench, p, &a, &f);
    kb_error *last = attention_destroy(ctx, &a);
    if (!err)
        return last;
    kb_error_free(last);
    return err;
}

static kb_error *run(kb_bench *bench)
{
    int64_t which = kb_bench_param(bench, "panel");
    KB_TRY(kb_ahbm_set_device(kb_bench_context(bench), kb_bench_device(bench, 0)));
    print_heading(bench);
    for (int i = 0; i < PANELS; i++)
        if (which == i || which == PANELS)
            KB_TRY(run_panel(bench, &panels[i]));
    return NULL;
}

static bool is_headline(const kb_bench *bench)
{
    return kb_bench_param(bench, "scale") == HEADLINE;
}

/* In the order of the panels. */
static const char *const panel_names[] = {"single_user_prefill",
                                          "multi_user_prefill",
                                          "single_user_decode",
                                          "multi_user_decode",
                                          "all",
                                          NULL};
static const char *const scale_names[] = {"validation", "headline", NULL};
static const char *const round_names[] = {"full", "half", NULL};
static const char *const dtype_names[] = {"f16", "bf16", NULL};

static const kb_param params[] = {
    {.name = "panel", .value = PANELS, .names = panel_names, .help = "what is run"},
    {.name = "scale",
     .names = scale_names,
     .help = "what 0 means below; validation is verified, headline is timing-only"},
    {.name = "context", .max = 1 << 20, .help = "keys of a user; 0: 64, headline 4096"},
    {.name = "prompt", .max = 1 << 20, .help = "queries in prefill; 0: 16, headline all keys"},
    {.name = "heads", .max = 4096, .help = "query heads; 0: 16, headline 64"},
    {.name = "kv_heads", .max = 4096, .help = "of which heads share each; 0: 2, headline 8"},
    {.name = "head_dim", .max = 4096, .help = "0: 64, headline 128"},
    {.name = "dtype", .names = dtype_names, .help = "of q, k, v and o"},
    {.name = "users",
     .max = 1 << 16,
     .help = "multi user: rings of cubes; 0: 1, headline one a row of cubes"},
    {.name = "ranks",
     .max = 1 << 16,
     .help = "of a ring; 0: all PEs of a cube; multi user 4 cubes, headline a row of cubes"},
    {.name = "round", .names = round_names, .help = "how far decode's partial results travel"},
    {.name = "tile_keys",
     .max = 1 << 16,
     .help = "the most keys of a product; 0: as many as fit in the TCM, in prefill 256 at most"},
    {.name = "n_slots", .max = 1 << 16, .help = "of a queue; 0: as ccl.yaml has it"},
    {.name = "slot_bytes", .max = 1 << 24, .help = "of a queue; 0: as ccl.yaml has it"},
};

const kb_bench_spec bench_gqa_llama70b = {
    .name = "gqa_llama70b",
    .summary = "grouped-query attention over rings of PEs or cubes: prefill and decode",
    .params = params,
    .param_count = sizeof params / sizeof params[0],
    .run = run,
    .is_timing_only = is_headline,
};
