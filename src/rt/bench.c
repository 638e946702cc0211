/*
 * bench.c: a bench while it runs: its parameters, lines, metrics, and the verification of its
 * results. Nothing here takes simulated time.
 *
 * Calls that return nothing cannot say that memory ran out: that is kept, and rt_bench_run() says
 * it when the bench is done.
 */
#include "bench.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

struct kb_bench {
    const kb_bench_spec *spec;
    kb_context *ctx; /* NULL before it runs */
    int64_t *values; /* of its parameters */
    bool verifies;
    void (*print)(void *self, const char *line);
    void (*give_up)(void *self, kb_error *err);
    void *self;
    KB_VEC(rt_metric) metrics;
    rt_verdict verdict;
    bool out_of_memory;
};

/* ---- Parameters ---- */

static bool is_allowed(const kb_param *param, int64_t value)
{
    if (!param->names)
        return value >= param->min && value <= param->max;
    int64_t count = 0;
    while (param->names[count])
        count++;
    return value >= 0 && value < count;
}

/* A bench that was compiled elsewhere may say anything. */
static kb_error *check_spec(const kb_bench_spec *spec)
{
    if (!spec->name || !spec->summary || !spec->run)
        return kb_error_new(KB_ERR_INPUT, "bench '%s' lacks a name, a summary or a function to run",
                            spec->name ? spec->name : "");
    for (size_t i = 0; i < spec->param_count; i++) {
        const kb_param *param = &spec->params[i];
        if (!param->name || !is_allowed(param, param->value))
            return kb_error_new(KB_ERR_INPUT,
                                "bench '%s': parameter %zu has no name, or its default is out "
                                "of its range",
                                spec->name, i + 1);
    }
    return NULL;
}

static size_t find_param(const kb_bench_spec *spec, const char *name, size_t length)
{
    size_t i = 0;
    while (i < spec->param_count && (strlen(spec->params[i].name) != length ||
                                     memcmp(spec->params[i].name, name, length) != 0))
        i++;
    return i;
}

static kb_error *unknown_param(const kb_bench_spec *spec, const char *setting, size_t length)
{
    kb_text word = KB_TEXT_INIT;
    kb_suggestion near;
    kb_text_append(&word, setting, length);
    kb_suggestion_init(&near, kb_text_peek(&word));
    for (size_t i = 0; i < spec->param_count; i++)
        kb_suggestion_offer(&near, spec->params[i].name);
    kb_error *err = kb_error_new(
        KB_ERR_INPUT, "unknown parameter '%.80s' of bench '%s'%s", kb_text_peek(&word), spec->name,
        spec->param_count > 0 ? kb_suggestion_hint(&near, "") : ": it has no parameters");
    kb_text_fini(&word);
    return err;
}

static kb_error *read_name(const kb_bench_spec *spec, const kb_param *param, const char *text,
                           int64_t *value)
{
    kb_suggestion near;
    kb_suggestion_init(&near, text);
    for (int64_t i = 0; param->names[i]; i++) {
        if (strcmp(param->names[i], text) == 0) {
            *value = i;
            return NULL;
        }
        kb_suggestion_offer(&near, param->names[i]);
    }
    return kb_error_new(KB_ERR_INPUT, "parameter %s of bench '%s': unknown value '%.80s'%s",
                        param->name, spec->name, text, kb_suggestion_hint(&near, ""));
}

static kb_error *read_number(const kb_bench_spec *spec, const kb_param *param, const char *text,
                             int64_t *value)
{
    int64_t number;
    uint64_t bytes;
    bool is_number = kb_decimal_parse(text, 0, &number) == KB_DECIMAL_OK;
    if (!is_number && kb_bytes_parse(text, &bytes) && bytes <= INT64_MAX) {
        number = (int64_t)bytes;
        is_number = true;
    }
    if (is_number && is_allowed(param, number)) {
        *value = number;
        return NULL;
    }
    kb_text max = KB_TEXT_INIT; /* in the form of what was given: with a unit, if that has one */
    if (param->max > 0 && strpbrk(text, "KMGTB"))
        kb_bytes_print_limit((uint64_t)param->max, &max);
    else
        kb_decimal_print(param->max, 0, &max);
    kb_error *err = kb_error_new(KB_ERR_INPUT,
                                 "parameter %s of bench '%s': expected a whole number%s from "
                                 "%" PRId64 " to %s, found '%.80s'",
                                 param->name, spec->name, param->max >= 4096 ? " (4096, 4KiB)" : "",
                                 param->min, kb_text_peek(&max), text);
    kb_text_fini(&max);
    return err;
}

static kb_error *read_setting(kb_bench *bench, const char *setting)
{
    const kb_bench_spec *spec = bench->spec;
    size_t length = strcspn(setting, "=");
    if (setting[length] == '\0')
        return kb_error_new(KB_ERR_INPUT, "parameter '%.80s': expected NAME=VALUE", setting);
    size_t which = find_param(spec, setting, length);
    if (which == spec->param_count)
        return unknown_param(spec, setting, length);
    const kb_param *param = &spec->params[which];
    const char *text = setting + length + 1;
    return param->names ? read_name(spec, param, text, &bench->values[which])
                        : read_number(spec, param, text, &bench->values[which]);
}

static kb_error *read_settings(kb_bench *bench, const rt_bench_options *options)
{
    bench->values = kb_alloc_array(bench->spec->param_count, sizeof *bench->values);
    if (!bench->values)
        return kb_error_nomem();
    for (size_t i = 0; i < bench->spec->param_count; i++)
        bench->values[i] = bench->spec->params[i].value;
    for (size_t i = 0; i < options->setting_count; i++)
        KB_TRY(read_setting(bench, options->settings[i]));
    return NULL;
}

/* Ends the run, or the process if the bench runs by itself. */
static KB_NORETURN void give_up_on_param(const kb_bench *bench, const char *name)
{
    if (bench->give_up)
        bench->give_up(bench->self, kb_error_wrap(unknown_param(bench->spec, name, strlen(name)),
                                                  "kb_bench_param"));
    kb_text text = KB_TEXT_INIT;
    kb_text_printf(&text, "bench '%s' has a parameter '%s'", bench->spec->name, name);
    kb_check_failed(__FILE__, __LINE__, kb_text_peek(&text));
}

int64_t kb_bench_param(const kb_bench *bench, const char *name)
{
    size_t which = find_param(bench->spec, name, strlen(name));
    if (which == bench->spec->param_count)
        give_up_on_param(bench, name);
    return bench->values[which];
}

/* ---- From beginning to end ---- */

kb_error *rt_bench_create(const kb_bench_spec *spec, const rt_bench_options *options,
                          kb_bench **out)
{
    *out = NULL;
    KB_TRY(check_spec(spec));
    kb_bench *bench = kb_alloc_zeroed(1, sizeof *bench);
    if (!bench)
        return kb_error_nomem();
    bench->spec = spec;
    bench->verifies = options->verify;
    bench->print = options->print;
    bench->give_up = options->give_up;
    bench->self = options->self;
    kb_error *err = read_settings(bench, options);
    if (err) {
        rt_bench_destroy(bench);
        return err;
    }
    *out = bench;
    return NULL;
}

void rt_bench_destroy(kb_bench *bench)
{
    if (!bench)
        return;
    for (size_t i = 0; i < bench->metrics.count; i++) {
        free(bench->metrics.items[i].name);
        free(bench->metrics.items[i].unit);
    }
    kb_vec_fini(&bench->metrics);
    free(bench->values);
    free(bench);
}

bool rt_bench_is_timing_only(const kb_bench *bench)
{
    return !bench->verifies && bench->spec->is_timing_only && bench->spec->is_timing_only(bench);
}

/* The frames of the simulator are gone: nothing of the context can be used any more. */
static KB_NORETURN void give_up_on_jump(const kb_bench *bench)
{
    if (bench->give_up)
        bench->give_up(bench->self,
                       kb_error_new(KB_ERR_FAULT,
                                    "bench '%s' left a running simulation: a kernel or worker must "
                                    "not longjmp() out of itself",
                                    bench->spec->name));
    kb_check_failed(__FILE__, __LINE__, "the bench returned while its simulation was running");
}

kb_error *rt_bench_run(kb_bench *bench, kb_context *ctx)
{
    KB_ASSERT(!bench->verifies || !kb_context_is_timing_only(ctx));
    bench->ctx = ctx;
    ctx->is_of_bench = true;
    kb_sim_own(ctx->sim, true);
    bool was_running = kb_sim_is_running(ctx->sim); /* a worker runs the bench */
    kb_error *err = bench->spec->run(bench);
    ctx->is_of_bench = false;
    kb_sim_own(ctx->sim, false);
    if (kb_sim_is_running(ctx->sim) && !was_running)
        give_up_on_jump(bench);
    if (ctx->destroyed_by_bench && !err)
        err = kb_error_new(KB_ERR_FAULT,
                           "bench '%s' called kb_context_destroy() for the context that it runs "
                           "in: the context is not the bench's to destroy",
                           bench->spec->name);
    if (kb_sim_refused_destruction(ctx->sim) && !err)
        err = kb_error_new(KB_ERR_FAULT,
                           "bench '%s' called kb_sim_destroy() for the simulator of its context: "
                           "the simulator goes with the context",
                           bench->spec->name);
    if (!err)
        err = kb_synchronize(ctx); /* what it left under way is part of it */
    if (err && kb_error_code(err) != KB_ERR_CHECK) {
        tl_runner_show_unfinished(ctx->kernels);
        rt_requests_show_unfinished(ctx);
    }
    kb_oplog_flush(ctx->log);
    if (kb_error_code(err) == KB_ERR_CHECK)
        bench->verdict = RT_WRONG; /* perhaps by a comparison of its own */
    if (!err && bench->out_of_memory)
        err = kb_error_nomem();
    return err;
}

rt_verdict rt_bench_verdict(const kb_bench *bench)
{
    return bench->verdict;
}

const rt_metric *rt_bench_metrics(const kb_bench *bench, size_t *count)
{
    *count = bench->metrics.count;
    return bench->metrics.items;
}

kb_context *kb_bench_context(const kb_bench *bench)
{
    return bench->ctx;
}

uint32_t kb_bench_device_count(const kb_bench *bench)
{
    return bench->ctx->limited ? 1 : bench->ctx->shape->sips;
}

uint32_t kb_bench_device(const kb_bench *bench, uint32_t index)
{
    KB_ASSERT(index < kb_bench_device_count(bench));
    return bench->ctx->limited ? bench->ctx->only_sip : index;
}

bool kb_bench_verifies(const kb_bench *bench)
{
    return bench->verifies;
}

/* ---- What it tells ---- */

void kb_bench_print(kb_bench *bench, const char *format, ...)
{
    if (!bench->print)
        return;
    kb_text text = KB_TEXT_INIT;
    va_list args;
    va_start(args, format);
    kb_text_vprintf(&text, format, args);
    va_end(args);
    if (text.failed)
        bench->out_of_memory = true;
    else
        bench->print(bench->self, kb_text_peek(&text));
    kb_text_fini(&text);
}

/* A copy; NULL if there is no memory. */
static char *copy_of(const char *string)
{
    kb_text text = KB_TEXT_INIT;
    kb_text_puts(&text, string);
    return kb_text_take(&text);
}

static void add_metric(kb_bench *bench, const char *name, double value, const char *unit,
                       bool only_json)
{
    rt_metric metric = {copy_of(name), copy_of(unit ? unit : ""), value, only_json};
    if (metric.name && metric.unit && kb_vec_push(&bench->metrics, metric))
        return;
    free(metric.name);
    free(metric.unit);
    bench->out_of_memory = true;
}

void kb_bench_metric(kb_bench *bench, const char *name, double value, const char *unit)
{
    add_metric(bench, name, value, unit, false);
}

void kb_bench_detail(kb_bench *bench, const char *name, double value, const char *unit)
{
    add_metric(bench, name, value, unit, true);
}

/* ---- Comparing ---- */

/* Numbers of a tensor, some at a time, as doubles: exact for every type there is. */
enum { CHUNK = 1024 };

static void to_doubles(kb_dtype dtype, const unsigned char *from, size_t count, double *to)
{
    if (dtype == KB_I32) {
        for (size_t i = 0; i < count; i++) {
            int32_t number;
            memcpy(&number, from + i * sizeof number, sizeof number);
            to[i] = number;
        }
        return;
    }
    float numbers[CHUNK];
    kb_convert(KB_F32, numbers, dtype, from, count);
    for (size_t i = 0; i < count; i++)
        to[i] = (double)numbers[i];
}

typedef struct bounds {
    double relative, absolute;
} bounds;

/* What is expected to be NaN is not compared. A NaN that is found is never right. */
static bool is_right(double got, double expected, const bounds *b)
{
    if (isnan(expected))
        return true;
    if (isinf(expected))
        return isinf(got) && signbit(got) == signbit(expected);
    return fabs(got - expected) <= b->absolute + b->relative * fabs(expected);
}

typedef struct mistake {
    uint64_t at; /* the first, counted row by row */
    double got, expected;
    uint64_t count;
} mistake;

static mistake compare(kb_dtype dtype, const unsigned char *data, uint64_t elements,
                       const double *expected, const bounds *b)
{
    mistake found = {0};
    double numbers[CHUNK];
    size_t bytes = kb_dtype_bytes(dtype);
    for (uint64_t first = 0; first < elements; first += CHUNK) {
        size_t count = elements - first < CHUNK ? (size_t)(elements - first) : CHUNK;
        to_doubles(dtype, data + first * bytes, count, numbers);
        for (size_t i = 0; i < count; i++) {
            if (is_right(numbers[i], expected[first + i], b))
                continue;
            if (found.count++ == 0)
                found = (mistake){first + i, numbers[i], expected[first + i], 1};
        }
    }
    return found;
}

/* Appends "[3, 7] at sip0.cube1.pe2" for an element, counted row by row. */
static void print_element(const rt_tensor *tensor, uint64_t at, kb_text *text)
{
    const kb_shape *shape = &tensor->placement.shape;
    mem_box box = mem_box_whole(shape);
    for (uint32_t axis = shape->rank; axis-- > 0; at /= shape->dims[axis]) {
        box.start[axis] = at % shape->dims[axis];
        box.size[axis] = 1;
    }
    kb_text_puts(text, "[");
    uint32_t lead = shape->rank - tensor->shape.rank; /* axes that the tensor does not have */
    for (uint32_t axis = lead; axis < shape->rank; axis++)
        kb_text_printf(text, "%s%" PRIu64, axis > lead ? ", " : "", box.start[axis]);
    kb_text_puts(text, "]");
    if (tensor->on_host) {
        kb_text_puts(text, " on the host");
        return;
    }
    mem_cells cells = mem_grid_find(&tensor->grid, &box);
    uint32_t shard = *mem_grid_cell(&tensor->grid, cells.first_row, cells.first_column);
    const mem_shard *where = &tensor->placement.shards.items[shard];
    kb_pe pe = {tensor->sip, where->cube, where->pe};
    kb_text_printf(text, " at %s", topo_pe_name(pe).text);
}

static kb_error *wrong(const rt_tensor *tensor, const mistake *found, uint64_t elements,
                       const bounds *b)
{
    kb_text text = KB_TEXT_INIT;
    print_element(tensor, found->at, &text);
    kb_error *err =
        kb_error_new(KB_ERR_CHECK,
                     "'%s'%s: got %.9g, expected %.9g within %.3g; %" PRIu64 " of %" PRIu64
                     " elements are wrong",
                     tensor->name, kb_text_peek(&text), found->got, found->expected,
                     b->absolute + b->relative * fabs(found->expected), found->count, elements);
    kb_text_fini(&text);
    return err;
}

void kb_bench_confirm(kb_bench *bench)
{
    if (bench->verdict == RT_NOT_VERIFIED)
        bench->verdict = RT_VERIFIED;
}

kb_error *kb_bench_verify(kb_bench *bench, kb_tensor handle, const double *expected,
                          double relative, double absolute)
{
    rt_tensor *tensor;
    KB_TRY(rt_enter(bench->ctx, RT_BENCH_VERIFY, handle, &tensor));
    if (!bench->verifies)
        return NULL;
    if (!expected)
        return kb_error_new(KB_ERR_INPUT,
                            "kb_bench_verify: missing reference of '%s': `expected` is NULL",
                            tensor->name);
    mem_box whole = mem_box_whole(&tensor->placement.shape);
    uint64_t elements = mem_box_elements(&whole);
    unsigned char *data = kb_alloc_array((size_t)elements, kb_dtype_bytes(tensor->dtype));
    if (!data)
        return kb_error_nomem();
    bounds b = {relative, absolute};
    size_t bytes = (size_t)elements * kb_dtype_bytes(tensor->dtype);
    kb_error *err = kb_tensor_to_host(bench->ctx, handle, KB_UNTIMED, data, bytes);
    if (!err) {
        mistake found = compare(tensor->dtype, data, elements, expected, &b);
        err = found.count > 0 ? wrong(tensor, &found, elements, &b) : NULL;
    }
    if (!err)
        kb_bench_confirm(bench);
    free(data);
    return err;
}

/* ---- Numbers to begin with ---- */

void kb_bench_random(uint64_t seed, kb_dtype dtype, void *data, size_t count)
{
    kb_rng rng;
    bool whole = mem_is_integer(dtype);
    unsigned char *to = data;
    kb_rng_init(&rng, seed);
    for (size_t first = 0; first < count; first += CHUNK) {
        size_t some = count - first < CHUNK ? count - first : CHUNK;
        float numbers[CHUNK];
        for (size_t i = 0; i < some; i++)
            numbers[i] =
                whole ? (float)kb_rng_below(&rng, 3) - 1 : (float)(2 * kb_rng_double(&rng) - 1);
        kb_convert(dtype, to + first * kb_dtype_bytes(dtype), KB_F32, numbers, some);
    }
}
