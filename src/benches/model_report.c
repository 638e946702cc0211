/*
 * model_report.c: text and metrics of the benches of models.
 */
#include "model_report.h"

#include <stdio.h>
#include <string.h>

void model_stats_add(model_stats *stats, const kb_model_times *times)
{
    kb_model_times *sum = &stats->decode;
    stats->steps++;
    sum->total += times->total;
    sum->all_reduce += times->all_reduce;
    sum->launch += times->launch;
    for (int part = 0; part < KB_MODEL_PARTS; part++)
        sum->parts[part] += times->parts[part];
}

/* "70,553,706,496" */
static const char *with_commas(uint64_t number, char text[32])
{
    char digits[24];
    int count = snprintf(digits, sizeof digits, "%llu", (unsigned long long)number), at = 0;
    for (int i = 0; i < count; i++) {
        if (i > 0 && (count - i) % 3 == 0)
            text[at++] = ',';
        text[at++] = digits[i];
    }
    text[at] = '\0';
    return text;
}

/* ---- Sizes ---- */

/* The limits of the parameters: larger numbers are of no use. */
static const uint64_t batch_limit = 1 << 16, context_limit = 1 << 22;

typedef struct number_text {
    char text[40];
} number_text;

static number_text print_max(uint64_t number, uint64_t limit)
{
    number_text out;
    snprintf(out.text, sizeof out.text, "%llu%s",
             (unsigned long long)(number < limit ? number : limit),
             number < limit ? "" : " and more");
    return out;
}

static void print_memory(kb_bench *bench, const kb_model_memory *memory)
{
    char devices[48] = "no number of devices up to 16";
    if (memory->min_ranks > 0)
        snprintf(devices, sizeof devices, "%u device%s or more", memory->min_ranks,
                 memory->min_ranks == 1 ? "" : "s");
    kb_bench_print(bench,
                   "memory of a device: weights %.2f GiB, cache %.2f GiB, activations %.2f MiB, "
                   "of %.2f GiB",
                   (double)memory->weights / 0x1p30, (double)memory->cache / 0x1p30,
                   (double)memory->activations / 0x1p20, (double)memory->capacity / 0x1p30);
    kb_bench_print(bench, "maximum with other sizes unchanged: batch %s, context %s, %s",
                   print_max(memory->max_batch, batch_limit).text,
                   print_max(memory->max_context, context_limit).text, devices);
    kb_bench_detail(bench, "memory.weights_bytes", (double)memory->weights, "of a device");
    kb_bench_detail(bench, "memory.cache_bytes", (double)memory->cache, "of a device");
    kb_bench_detail(bench, "memory.activation_bytes", (double)memory->activations, "of a device");
    kb_bench_detail(bench, "memory.capacity_bytes", (double)memory->capacity, "of a device");
    kb_bench_detail(bench, "memory.most_batch", (double)memory->max_batch, "that would fit");
    kb_bench_detail(bench, "memory.most_context", (double)memory->max_context, "that would fit");
    kb_bench_detail(bench, "memory.least_devices", memory->min_ranks, "that it would fit on");
}

kb_error *model_report_sizes(kb_bench *bench, const model_job *job, uint32_t ranks)
{
    char parameters[32], elements[32];
    kb_model_spec spec = job->spec;
    kb_model_counts counts;
    kb_model_memory memory;
    spec.layers = job->all_layers;
    KB_TRY(kb_model_count(&spec, &counts));
    KB_TRY(kb_model_plan_memory(kb_bench_context(bench), &spec, ranks, &memory));
    kb_bench_print(bench, "%s: %s parameters in %llu layer%s, %s, on %u device%s",
                   spec.layers_only ? "layers alone" : spec.name,
                   with_commas(counts.parameters, parameters), (unsigned long long)spec.layers,
                   spec.layers == 1 ? "" : "s", kb_dtype_name(spec.dtype), ranks,
                   ranks == 1 ? "" : "s");
    kb_bench_print(bench,
                   "hidden %llu, ffn %llu, heads %llu, kv_heads %llu, head_dim %llu, vocab %llu",
                   (unsigned long long)spec.hidden, (unsigned long long)spec.ffn,
                   (unsigned long long)spec.heads, (unsigned long long)spec.kv_heads,
                   (unsigned long long)spec.head_dim, (unsigned long long)spec.vocab);
    kb_bench_print(bench, "cache of a token: %s elements, %.2f KiB",
                   with_commas(counts.cache_elements, elements),
                   (double)(counts.cache_elements * kb_dtype_bytes(spec.dtype)) / 1024);
    kb_bench_detail(bench, "parameters", (double)counts.parameters, "");
    kb_bench_detail(bench, "cache_elements_per_token", (double)counts.cache_elements, "");
    print_memory(bench, &memory);
    if (job->spec.layers < job->all_layers)
        kb_bench_print(bench,
                       "%llu of the %llu layers are run:", (unsigned long long)job->spec.layers,
                       (unsigned long long)job->all_layers);
    return NULL;
}

/* ---- Times ---- */

/* Decode or prefill. */
typedef struct phase {
    const char *name;
    const kb_model_times *times; /* of all its steps */
    uint64_t steps;
    uint64_t tokens; /* of a step, all sequences */
    kb_model_step shape;
} phase;

static double us_of(kb_time time, uint64_t steps)
{
    return kb_to_ns(time) / 1e3 / (double)steps;
}

static void detail(kb_bench *bench, const phase *p, const char *group, const char *name,
                   double value, const char *unit)
{
    char full[96];
    snprintf(full, sizeof full, "%s.%s%s", p->name, group, name);
    kb_bench_detail(bench, full, value, unit);
}

static void print_part(kb_bench *bench, const phase *p, const char *name, kb_time time)
{
    char full[48];
    double share = p->times->total > 0 ? 100 * (double)time / (double)p->times->total : 0;
    kb_bench_print(bench, "  %-12s %12.3f us %6.1f %%", name, us_of(time, p->steps), share);
    snprintf(full, sizeof full, "%s_us", name);
    detail(bench, p, "", full, us_of(time, p->steps), "of a step");
}

static void print_parts(kb_bench *bench, const phase *p, uint32_t ranks)
{
    for (int part = 0; part < KB_MODEL_PARTS; part++)
        if (p->times->parts[part] > 0)
            print_part(bench, p, kb_model_part_name((kb_model_part)part), p->times->parts[part]);
    print_part(bench, p, "launch", p->times->launch);
    kb_bench_print(bench, "  (norms are part of qkv, gate_up and head; residuals of out and down)");
    if (ranks == 1)
        return;
    print_part(bench, p, "all_reduce", p->times->all_reduce);
    kb_bench_print(bench, "  (the part of out and down in which a PE waits for messages, on "
                          "average)");
}

static void print_bound(kb_bench *bench, const phase *p, const char *name, kb_time bound)
{
    char full[48];
    double time = us_of(p->times->total, p->steps), us = us_of(bound, 1);
    kb_bench_print(bench, "  %-26s %12.3f us %6.1f %% of the step", name, us,
                   time > 0 ? 100 * us / time : 0);
    snprintf(full, sizeof full, "%s_us", name);
    for (char *at = full; *at; at++)
        if (*at == ' ')
            *at = '_';
    detail(bench, p, "bound_", full, us, "at least");
}

/* The communication that products did not hide. */
static void print_overlap(kb_bench *bench, const phase *p, const kb_model_bounds *bounds)
{
    double all = us_of(bounds->communication, 1), exposed = us_of(p->times->all_reduce, p->steps);
    if (all <= 0)
        return;
    if (exposed >= all) {
        kb_bench_print(bench,
                       "  PEs waited for messages longer than the links need for them: none of it "
                       "is overlapped, and latency counts");
        detail(bench, p, "", "overlapped", 0, "% of communication");
        return;
    }
    double hidden = 100 * (1 - exposed / all);
    kb_bench_print(bench,
                   "  of %.3f us on the links, PEs waited for %.3f us: %.1f %% is overlapped", all,
                   exposed, hidden);
    detail(bench, p, "", "overlapped", hidden, "% of communication");
}

static kb_error *print_bounds(kb_bench *bench, const phase *p, const kb_model_spec *spec,
                              uint32_t ranks)
{
    kb_model_bounds bounds;
    KB_TRY(kb_model_bound(kb_bench_context(bench), spec, ranks, p->shape, &bounds));
    kb_bench_print(bench, "bounds of a step, each by itself:");
    print_bound(bench, p, "weights", bounds.weights);
    print_bound(bench, p, "cache", bounds.cache);
    print_bound(bench, p, "weights and cache", bounds.memory);
    print_bound(bench, p, "matrix", bounds.matrix);
    if (ranks > 1)
        print_bound(bench, p, "communication", bounds.communication);
    print_bound(bench, p, "largest", bounds.best);
    print_overlap(bench, p, &bounds);
    detail(bench, p, "", "share_of_bound",
           100 * us_of(bounds.best, 1) / us_of(p->times->total, p->steps), "%");
    return NULL;
}

/* The minimum time of the whole model, and the resource that determines it. */
static kb_error *print_whole_bound(kb_bench *bench, const phase *p, const model_job *job,
                                   uint32_t ranks)
{
    kb_model_spec spec = job->spec;
    kb_model_bounds bounds;
    spec.layers = job->all_layers;
    KB_TRY(kb_model_bound(kb_bench_context(bench), &spec, ranks, p->shape, &bounds));
    const char *what = bounds.best == bounds.memory   ? "weights and cache"
                       : bounds.best == bounds.matrix ? "matrix"
                                                      : "communication";
    kb_bench_print(bench, "the largest bound of the whole model is that of %s, %.3f ms", what,
                   us_of(bounds.best, 1) / 1e3);
    detail(bench, p, "", "all_layers_bound_ms", us_of(bounds.best, 1) / 1e3, "at least");
    return NULL;
}

/* All layers take the same time, so the time of a few gives that of all. */
static kb_error *print_all_layers(kb_bench *bench, const phase *p, const model_job *job,
                                  uint32_t ranks)
{
    static const kb_model_part in_layers[] = {KB_MODEL_QKV, KB_MODEL_APPEND,  KB_MODEL_ATTENTION,
                                              KB_MODEL_OUT, KB_MODEL_GATE_UP, KB_MODEL_DOWN};
    kb_time layers = 0;
    for (size_t i = 0; i < sizeof in_layers / sizeof in_layers[0]; i++)
        layers += p->times->parts[in_layers[i]];
    double layer = us_of(layers, p->steps) / (double)job->spec.layers;
    double once = us_of(p->times->total - layers, p->steps);
    double all = (once + layer * (double)job->all_layers) / 1e3;
    detail(bench, p, "", "layer_us", layer, "of a step, one layer");
    if (job->spec.layers >= job->all_layers)
        return NULL;
    kb_bench_print(bench,
                   "%llu of %llu layers were run: a layer takes %.3f us; all of them and the rest "
                   "of the step, %.3f ms",
                   (unsigned long long)job->spec.layers, (unsigned long long)job->all_layers, layer,
                   all);
    detail(bench, p, "", "all_layers_ms", all, "expected if all layers were run");
    return print_whole_bound(bench, p, job, ranks);
}

static kb_error *report_phase(kb_bench *bench, const phase *p, const model_job *job, uint32_t ranks)
{
    double us = us_of(p->times->total, p->steps);
    kb_bench_print(bench, "%s: %.3f us a step, %.1f tokens/s", p->name, us,
                   (double)p->tokens / us * 1e6);
    detail(bench, p, "", "step_us", us, "");
    print_parts(bench, p, ranks);
    KB_TRY(print_bounds(bench, p, &job->spec, ranks));
    return print_all_layers(bench, p, job, ranks);
}

kb_error *model_report_times(kb_bench *bench, const model_job *job, uint32_t ranks,
                             const model_stats *stats)
{
    const kb_model_spec *spec = &job->spec;
    if (stats->cache.rule[0] != '\0')
        kb_bench_print(bench, "cache: %s", stats->cache.rule);
    if (job->prompt > 0) {
        /* Bounds are those of prompts of the mean length. */
        const phase prefill = {"prefill",
                               &stats->prefill,
                               1,
                               stats->prompt_tokens,
                               {.rows = stats->prompt_tokens / spec->batch}};
        KB_TRY(report_phase(bench, &prefill, job, ranks));
        kb_bench_metric(bench, spec->layers_only ? "prefill_time" : "time_to_first_token",
                        kb_to_ns(stats->prefill.total) / 1e6, "ms");
    }
    if (stats->steps > 0) {
        uint64_t first = job->prompt > 0 ? job->prompt : job->context - 1;
        const phase decode = {"decode",
                              &stats->decode,
                              stats->steps,
                              spec->batch,
                              {.rows = 1, .cached = first + (stats->steps - 1) / 2}};
        double us = us_of(stats->decode.total, stats->steps);
        KB_TRY(report_phase(bench, &decode, job, ranks));
        kb_bench_metric(bench, spec->layers_only ? "decode_time" : "time_per_token", us / 1e3,
                        "ms");
        if (!spec->layers_only)
            kb_bench_metric(bench, "tokens_per_second", (double)spec->batch / us * 1e6, "tokens/s");
    }
    return NULL;
}
