/*
 * context.c: making a context and leaving it. Everything that a program makes in a context belongs
 * to the context, so leaving it frees all that is left.
 */
#include "rt.h"
#include "runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_STACK = 1 << 20, MIN_STACK = 16 << 10, MAX_STACK = 1 << 30 };

static void warn_line(kb_context *ctx, const char *line)
{
    if (ctx->on_warning)
        ctx->on_warning(ctx->on_warning_self, line);
    else
        fprintf(stderr, "kernbench: warning: %s\n", line);
}

static void KB_PRINTF(2, 0) warn_formatted(kb_context *ctx, const char *format, va_list args)
{
    kb_text text = KB_TEXT_INIT;
    kb_text_vprintf(&text, format, args);
    kb_text_escape_from(&text, 0);
    warn_line(ctx, text.failed ? "out of memory for the text of a warning" : kb_text_peek(&text));
    kb_text_fini(&text);
}

void rt_warn(kb_context *ctx, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    warn_formatted(ctx, format, args);
    va_end(args);
}

void rt_debug_warn(kb_context *ctx, const char *format, ...)
{
    if (!ctx->debug)
        return;
    va_list args;
    va_start(args, format);
    warn_formatted(ctx, format, args);
    va_end(args);
}

/* Whether the line is new; it is remembered. A line that cannot be kept is told again. */
static bool is_new_note(kb_context *ctx, const char *line)
{
    for (size_t i = 0; i < ctx->notes.count; i++)
        if (strcmp(ctx->notes.items[i], line) == 0)
            return false;
    kb_text text = KB_TEXT_INIT;
    kb_text_puts(&text, line);
    char *kept = kb_text_take(&text);
    if (!kept || !kb_vec_push(&ctx->notes, kept))
        free(kept);
    return true;
}

void rt_note(kb_context *ctx, const char *format, ...)
{
    if (!ctx->on_note)
        return;
    kb_text text = KB_TEXT_INIT;
    va_list args;
    va_start(args, format);
    kb_text_vprintf(&text, format, args);
    va_end(args);
    kb_text_escape_from(&text, 0);
    const char *note = text.failed ? "out of memory for the text of a note" : kb_text_peek(&text);
    if (is_new_note(ctx, note))
        ctx->on_note(ctx->on_note_self, note);
    kb_text_fini(&text);
}

/* ---- Making ---- */

static kb_error *parse_device(kb_context *ctx, const char *device)
{
    if (!device || strcmp(device, "all") == 0)
        return NULL;
    uint32_t sip = 0;
    size_t digits = 0;
    if (strncmp(device, "sip:", 4) == 0) {
        for (const char *c = device + 4; *c >= '0' && *c <= '9' && digits < 9; c++, digits++)
            sip = sip * 10 + (uint32_t)(*c - '0');
        if (device[4 + digits] != '\0')
            digits = 0;
    }
    if (digits == 0)
        return kb_error_new(KB_ERR_INPUT, "unknown device '%s': expected all, or sip:N as in sip:0",
                            device);
    if (sip >= ctx->shape->sips)
        return kb_error_new(KB_ERR_INPUT,
                            "no such device '%s': the machine has %u SIP%s, numbered from 0",
                            device, ctx->shape->sips, kb_plural(ctx->shape->sips));
    ctx->limited = true;
    ctx->only_sip = sip;
    return NULL;
}

/* One warning a line. */
static void warn_of_idle_settings(kb_context *ctx)
{
    const char *line = topo_machine_idle_settings(ctx->machine);
    while (line && *line != '\0') {
        int length = (int)strcspn(line, "\n");
        rt_warn(ctx, "%.*s", length, line);
        line += length + (line[length] == '\n');
    }
}

static void use_machine(kb_context *ctx, topo_machine *machine)
{
    ctx->machine = machine;
    ctx->shape = topo_machine_shape(machine);
    ctx->host_node = topo_node_at(machine, TOPO_HOST, 0, 0, 0);
}

/* Settings that begin with "ccl." are not about the machine. */
static const char ccl_prefix[] = "ccl.";

/* The settings that are about collectives, without the prefix, or all others. NULL: no memory. */
static const char **pick_settings(const kb_context_options *options, bool about_ccl, size_t *count)
{
    const size_t prefix = sizeof ccl_prefix - 1;
    const char **picked = kb_alloc_array(options->setting_count, sizeof *picked);
    *count = 0;
    for (size_t i = 0; i < options->setting_count && picked; i++) {
        const char *setting = options->settings[i];
        if ((strncmp(setting, ccl_prefix, prefix) == 0) == about_ccl)
            picked[(*count)++] = setting + (about_ccl ? prefix : 0);
    }
    return picked;
}

static kb_error *load_machine(kb_context *ctx, const kb_context_options *options)
{
    size_t count;
    const char **settings = pick_settings(options, false, &count);
    if (!settings)
        return kb_error_nomem();
    topo_source source = {
        .path = options->topology,
        .settings = settings,
        .setting_count = count,
    };
    topo_machine *machine;
    kb_error *err = topo_machine_load(&source, &machine);
    free(settings);
    KB_TRY(err);
    ctx->owns_machine = true;
    use_machine(ctx, machine);
    warn_of_idle_settings(ctx);
    return parse_device(ctx, options->device);
}

static char *copy_text(const char *text)
{
    kb_text copy = KB_TEXT_INIT;
    kb_text_puts(&copy, text);
    return kb_text_take(&copy);
}

/* Copies what options say of collectives. */
static kb_error *keep_ccl_options(kb_context *ctx, const rt_ccl_options *options)
{
    if (options->file) {
        ctx->ccl_file = copy_text(options->file);
        if (!ctx->ccl_file)
            return kb_error_nomem();
    }
    if (!kb_vec_reserve(&ctx->ccl_settings, options->setting_count) ||
        !kb_vec_reserve(&ctx->ccl_plugins, options->plugin_count))
        return kb_error_nomem();
    for (size_t i = 0; i < options->setting_count; i++) {
        char *copy = copy_text(options->settings[i]);
        if (!copy)
            return kb_error_nomem();
        ctx->ccl_settings.items[ctx->ccl_settings.count++] = copy;
    }
    for (size_t i = 0; i < options->plugin_count; i++)
        ctx->ccl_plugins.items[ctx->ccl_plugins.count++] = options->plugins[i];
    ctx->ccl_options = (rt_ccl_options){
        .file = ctx->ccl_file,
        .settings = (const char *const *)ctx->ccl_settings.items,
        .setting_count = ctx->ccl_settings.count,
        .plugins = ctx->ccl_plugins.items,
        .plugin_count = ctx->ccl_plugins.count,
    };
    return NULL;
}

static void drop_ccl_options(kb_context *ctx)
{
    for (size_t i = 0; i < ctx->ccl_settings.count; i++)
        free(ctx->ccl_settings.items[i]);
    kb_vec_fini(&ctx->ccl_settings);
    kb_vec_fini(&ctx->ccl_plugins);
    free(ctx->ccl_file);
    ctx->ccl_file = NULL;
}

kb_error *rt_set_ccl_options(kb_context *ctx, const rt_ccl_options *options)
{
    drop_ccl_options(ctx);
    return keep_ccl_options(ctx, options);
}

static kb_error *find_ccl_options(kb_context *ctx, const kb_context_options *options)
{
    size_t count;
    const char **settings = pick_settings(options, true, &count);
    if (!settings)
        return kb_error_nomem();
    rt_ccl_options found = {
        .file = options->ccl,
        .settings = settings,
        .setting_count = count,
        .plugins = options->ccl_plugins,
        .plugin_count = options->ccl_plugin_count,
    };
    kb_error *err = keep_ccl_options(ctx, &found);
    free(settings);
    return err;
}

static void trace_to_stderr(void *self, const char *line)
{
    (void)self;
    fprintf(stderr, "%s\n", line);
}

static bool is_set(const char *variable)
{
    const char *value = getenv(variable);
    return value && strcmp(value, "1") == 0;
}

/*
 * How far kernels run ahead: results do not depend on it, and tests show that. 0: the default.
 */
static kb_error *read_window(uint32_t *window)
{
    static const char variable[] = "KERNBENCH_RUN_AHEAD";
    const char *value = getenv(variable);
    *window = 0;
    if (!value || !*value)
        return NULL;
    char *end;
    unsigned long number = strtoul(value, &end, 10);
    if (*end || value[0] == '-' || number < 1 || number > 1000000)
        return kb_error_new(KB_ERR_INPUT, "%s: invalid value '%s': expected 1 to 1000000", variable,
                            value);
    *window = (uint32_t)number;
    return NULL;
}

static void choose_trace(kb_context *ctx, const kb_context_options *options)
{
    ctx->on_note = options->on_note;
    ctx->on_note_self = options->on_note_self;
    ctx->on_ccl_trace = options->on_ccl_trace;
    ctx->on_ccl_trace_self = options->on_ccl_trace_self;
    if (!ctx->on_ccl_trace && is_set("KERNBENCH_CCL_TRACE"))
        ctx->on_ccl_trace = trace_to_stderr;
}

static void report_tcm(void *self, kb_pe pe, uint64_t used)
{
    const kb_context *ctx = self;
    ctx->on_tcm(ctx->on_tcm_self, &pe, kb_sim_now(ctx->sim), used);
}

static kb_error *make_memory(kb_context *ctx, const kb_context_options *options)
{
    KB_TRY(mem_memories_create(ctx->machine, ctx->limited ? ctx->only_sip : TOPO_NONE,
                               &ctx->memories));
    KB_TRY(data_store_create(
        &(data_options){.memories = ctx->memories, .threads = options->threads}, &ctx->store));
    ctx->on_tcm = options->on_tcm;
    ctx->on_tcm_self = options->on_tcm_self;
    if (ctx->on_tcm)
        mem_memories_watch_tcm(ctx->memories, report_tcm, ctx);
    mem_allocator_init(&ctx->va, MEM_VA_BASE, MEM_VA_BYTES, MEM_NEXT_FIT);
    const topo_shape *shape = ctx->shape;
    ctx->mmus = kb_alloc_zeroed(shape->sips, sizeof(mem_mmu *));
    if (!ctx->mmus)
        return kb_error_nomem();
    for (uint32_t sip = 0; sip < shape->sips; sip++)
        KB_TRY(mem_mmu_create(sip, shape->cubes, shape->pes, &ctx->mmus[sip]));
    return NULL;
}

/* The first source id of each kind of component in PEs. */
typedef struct first_sources {
    uint32_t units, kernels;
} first_sources;

static kb_error *make_pes(kb_context *ctx, const first_sources *first)
{
    pe_units_options unit_options = {
        .sim = ctx->sim,
        .machine = ctx->machine,
        .fabric = ctx->fabric,
        .memories = ctx->memories,
        .log = ctx->log,
        .first_source = first->units,
    };
    KB_TRY(pe_units_create(&unit_options, &ctx->units));
    pe_dma_options dma_options = {
        .sim = ctx->sim,
        .machine = ctx->machine,
        .units = ctx->units,
        .memories = ctx->memories,
        .mmus = ctx->mmus,
        .store = ctx->store,
    };
    KB_TRY(pe_dma_create(&dma_options, &ctx->dma));
    KB_TRY(pe_composites_create(ctx->sim, ctx->machine, ctx->units, ctx->log, &ctx->composites));
    ipcq_options queue_options = {
        .sim = ctx->sim,
        .machine = ctx->machine,
        .fabric = ctx->fabric,
        .memories = ctx->memories,
        .store = ctx->store,
        .log = ctx->log,
        .trace = ctx->on_ccl_trace,
        .trace_self = ctx->on_ccl_trace_self,
    };
    KB_TRY(ipcq_create(&queue_options, &ctx->queues));
    tl_runner_options runner_options = {
        .sim = ctx->sim,
        .machine = ctx->machine,
        .memories = ctx->memories,
        .mmus = ctx->mmus,
        .units = ctx->units,
        .composites = ctx->composites,
        .log = ctx->log,
        .store = ctx->store,
        .queues = ctx->queues,
        .timing_only = ctx->timing_only,
        .first_source = first->kernels,
    };
    KB_TRY(read_window(&runner_options.window));
    return tl_runner_create(&runner_options, &ctx->kernels);
}

static kb_error *make_machine(kb_context *ctx, const kb_context_options *options)
{
    KB_TRY(net_create_for(ctx->sim, ctx->machine, RT_MACHINE, options->no_elision, &ctx->fabric));
    uint64_t control = RT_MACHINE + (uint64_t)net_source_count(ctx->fabric);
    uint64_t units = control + 1;
    uint64_t kernels = units + pe_units_source_count(ctx->machine);
    if (kernels + ctx->shape->pe_count > RT_PROGRAM)
        return kb_error_new(KB_ERR_INPUT, "the machine is too large to run programs on");
    KB_TRY(kb_oplog_create(ctx->sim, ctx->shape->pe_count, &ctx->log));
    kb_oplog_watch(ctx->log, options->on_op, options->on_op_self);
    if (options->reasons)
        kb_oplog_give_ids(ctx->log);
    KB_TRY(net_route_buffer_init(&ctx->routes, ctx->machine));
    KB_TRY(io_create(ctx->sim, ctx->machine, ctx->fabric, (uint32_t)control, &ctx->control));
    io_set_log(ctx->control, ctx->log);
    KB_TRY(rt_turns_init(ctx));
    KB_TRY(rt_nodes_init(ctx));
    KB_TRY(rt_streams_init(ctx));
    return make_pes(ctx, &(first_sources){(uint32_t)units, (uint32_t)kernels});
}

/* What stands on the machine. */
static kb_error *build_on(kb_context *ctx, const kb_context_options *options)
{
    ctx->timing_only = options->timing_only;
    ctx->race_check = options->races;
    if (options->timing_only && options->races == KB_RACES_WARN)
        ctx->race_check = KB_RACES_OFF;
    ctx->stack_bytes = options->stack_bytes ? options->stack_bytes : DEFAULT_STACK;
    ctx->no_elision = options->no_elision;
    if (options->races < KB_RACES_WARN || options->races > KB_RACES_OFF)
        return kb_error_new(KB_ERR_INPUT,
                            "races is %d; expected KB_RACES_WARN, KB_RACES_FAIL or KB_RACES_OFF",
                            (int)options->races);
    if (ctx->stack_bytes < MIN_STACK || ctx->stack_bytes > MAX_STACK)
        return kb_error_new(KB_ERR_INPUT, "invalid stack size of %zu bytes: expected %d to %d",
                            ctx->stack_bytes, MIN_STACK, MAX_STACK);
    kb_sim_options sim_options = {
        .stack_bytes = ctx->stack_bytes,
        .no_elision = options->no_elision,
    };
    KB_TRY(kb_sim_create(&sim_options, &ctx->sim));
    KB_TRY(rt_workers_init(ctx));
    KB_TRY(rt_works_init(ctx));
    KB_TRY(make_memory(ctx, options));
    return make_machine(ctx, options);
}

static kb_error *build(kb_context *ctx, const kb_context_options *options)
{
    ctx->debug = options->debug || is_set("KERNBENCH_DEBUG");
    ctx->on_warning = options->on_warning;
    ctx->on_warning_self = options->on_warning_self;
    choose_trace(ctx, options);
    KB_TRY(find_ccl_options(ctx, options));
    KB_TRY(load_machine(ctx, options));
    return build_on(ctx, options);
}

static kb_context *new_context(void)
{
    kb_context *ctx = kb_alloc_zeroed(1, sizeof *ctx);
    if (!ctx)
        return NULL;
    ctx->number = rt_new_context_number();
    rt_table_init(&ctx->requests, sizeof(rt_request), ctx->number);
    rt_table_init(&ctx->tensors, sizeof(rt_tensor), ctx->number);
    rt_table_init(&ctx->queue_sets, sizeof(rt_queue_set), ctx->number);
    rt_table_init(&ctx->streams, sizeof(rt_stream), ctx->number);
    rt_table_init(&ctx->stream_events, sizeof(rt_stream_event), ctx->number);
    rt_graphs_init(ctx);
    return ctx;
}

kb_error *kb_context_create(const kb_context_options *options, kb_context **out)
{
    *out = NULL;
    kb_context *ctx = new_context();
    if (!ctx)
        return kb_error_nomem();
    kb_error *err = build(ctx, options ? options : &(kb_context_options){0});
    if (err) {
        kb_context_destroy(ctx);
        return err;
    }
    *out = ctx;
    return NULL;
}

kb_error *rt_context_like(kb_context *ctx, kb_context **out)
{
    *out = NULL;
    kb_context *other = new_context();
    if (!other)
        return kb_error_nomem();
    kb_context_options options = {
        .timing_only = true,
        .stack_bytes = ctx->stack_bytes,
        .no_elision = ctx->no_elision,
        .threads = 1,
    };
    use_machine(other, ctx->machine);
    kb_error *err = keep_ccl_options(other, &ctx->ccl_options);
    if (!err)
        err = build_on(other, &options);
    if (err) {
        kb_context_destroy(other);
        return err;
    }
    *out = other;
    return NULL;
}

/* ---- Leaving ---- */

/* Warns of one thing that was left. Takes the text over. */
static void warn_of_leak(kb_context *ctx, size_t count, kb_text *what)
{
    rt_debug_warn(ctx, "context destroyed: %s %s not freed", kb_text_peek(what),
                  kb_noun(count, "was", "were"));
    kb_text_fini(what);
}

static void report_leaks(kb_context *ctx)
{
    kb_text text = KB_TEXT_INIT;
    for (uint64_t id = rt_table_next(&ctx->tensors, 0); id; id = rt_table_next(&ctx->tensors, id)) {
        const rt_tensor *tensor = rt_table_get(&ctx->tensors, id);
        kb_text_puts(&text, "tensor ");
        rt_tensor_print(tensor, &text);
        if (!tensor->on_host)
            kb_text_printf(&text, " on sip%u", tensor->sip);
        warn_of_leak(ctx, 1, &text);
    }
    for (size_t i = 0; i < ctx->grants.count; i++) {
        kb_text_puts(&text, "memory at ");
        mem_location_print(&ctx->grants.items[i], &text);
        warn_of_leak(ctx, 1, &text);
    }
    size_t requests = 0;
    for (uint64_t id = rt_table_next(&ctx->requests, 0); id; id = rt_table_next(&ctx->requests, id))
        requests += ((const rt_request *)rt_table_get(&ctx->requests, id))->has_handle;
    if (requests > 0) {
        kb_text_printf(&text, "%zu request handle%s", requests, kb_plural(requests));
        warn_of_leak(ctx, requests, &text);
    }
    if (ctx->driver.first_fault)
        rt_debug_warn(ctx, "context destroyed: a failed request was never waited for: %s",
                      kb_error_message(ctx->driver.first_fault->error));
}

static void free_texts(kb_context *ctx)
{
    for (size_t i = 0; i < ctx->names.count; i++)
        free(ctx->names.items[i]);
    kb_vec_fini(&ctx->names);
    for (size_t i = 0; i < ctx->notes.count; i++)
        free(ctx->notes.items[i]);
    kb_vec_fini(&ctx->notes);
    drop_ccl_options(ctx);
}

void kb_context_destroy(kb_context *ctx)
{
    if (!ctx)
        return;
    if (ctx->is_of_bench) { /* rt_bench_run() says so when the bench is done */
        ctx->destroyed_by_bench = true;
        return;
    }
    KB_ASSERT(!ctx->workers);
    if (ctx->memories)
        mem_memories_watch_tcm(ctx->memories, NULL, NULL);
    if (ctx->sim)
        kb_sim_abandon(ctx->sim); /* cleanups of coroutines may still use everything */
    rt_check_fini(ctx);
    tl_runner_destroy(ctx->kernels); /* first: what kernels wait for is in queues */
    ctx->kernels = NULL;
    for (int layer = RT_LAYERS - 1; layer >= 0; layer--)
        if (ctx->layers[layer].hooks && ctx->layers[layer].hooks->fini)
            ctx->layers[layer].hooks->fini(ctx->layers[layer].self);
    if (ctx->debug)
        report_leaks(ctx);
    rt_tensors_fini(ctx);
    rt_queue_sets_fini(ctx);
    rt_failures_forget(ctx);
    rt_works_fini(ctx);
    pe_composites_destroy(ctx->composites);
    pe_dma_destroy(ctx->dma);
    pe_units_destroy(ctx->units);
    ipcq_destroy(ctx->queues);
    io_destroy(ctx->control);
    rt_jobs_fini(ctx);
    rt_requests_fini(ctx);
    rt_graphs_fini(ctx);
    rt_streams_fini(ctx);
    rt_nodes_fini_all(ctx);
    rt_turns_fini(ctx);
    rt_caller_fini(&ctx->driver);
    net_route_buffer_fini(&ctx->routes);
    net_destroy(ctx->fabric);
    for (uint32_t sip = 0; ctx->mmus && sip < ctx->shape->sips; sip++)
        mem_mmu_destroy(ctx->mmus[sip]);
    free(ctx->mmus);
    mem_allocator_fini(&ctx->va);
    data_store_destroy(ctx->store);
    mem_memories_destroy(ctx->memories);
    kb_oplog_destroy(ctx->log);
    free_texts(ctx);
    kb_vec_fini(&ctx->launches);
    kb_vec_fini(&ctx->grants);
    kb_vec_fini(&ctx->raw_mappings);
    kb_vec_fini(&ctx->seen_shards);
    kb_sim_destroy(ctx->sim);
    if (ctx->owns_machine)
        topo_machine_destroy(ctx->machine);
    free(ctx);
}

/* ---- Looking at it ---- */

kb_time kb_context_now(const kb_context *ctx)
{
    return kb_sim_now(ctx->sim);
}

kb_sim *kb_context_sim(kb_context *ctx)
{
    return ctx->sim;
}

void rt_redirect_ccl_trace(kb_context *ctx, kb_warning_fn *on_ccl_trace, void *self)
{
    ipcq_redirect_trace(ctx->queues, on_ccl_trace, self);
}

rt_stats rt_get_stats(kb_context *ctx)
{
    return (rt_stats){
        .machine = ctx->machine,
        .fabric = ctx->fabric,
        .log = ctx->log,
        .launches = ctx->launches.items,
        .launch_count = ctx->launches.count,
        .stand_ins = tl_runner_stand_ins(ctx->kernels),
        .engines = pe_units_get_stats(ctx->units),
        .deadlock_at = ctx->deadlock_at,
    };
}

const topo_machine *rt_machine(const kb_context *ctx)
{
    return ctx->machine;
}

ipcq *rt_queues(const kb_context *ctx)
{
    return ctx->queues;
}

uint32_t rt_only_sip(const kb_context *ctx)
{
    return ctx->limited ? ctx->only_sip : TOPO_NONE;
}

const rt_ccl_options *rt_get_ccl_options(const kb_context *ctx)
{
    return &ctx->ccl_options;
}

void rt_set_layer(kb_context *ctx, rt_layer layer, const rt_hooks *hooks, void *self)
{
    ctx->layers[layer].hooks = hooks;
    ctx->layers[layer].self = self;
}

void *rt_get_layer(const kb_context *ctx, rt_layer layer)
{
    return ctx->layers[layer].self;
}

bool kb_context_is_timing_only(const kb_context *ctx)
{
    return ctx->timing_only;
}

kb_time kb_context_kernel_time(const kb_context *ctx)
{
    return kb_oplog_timeline(ctx->log).kernels;
}

kb_op_total kb_context_op_total(kb_context *ctx, kb_unit unit, const char *name)
{
    kb_op_total total = {0};
    size_t count;
    const kb_op_sum *sums = kb_oplog_sums(ctx->log, &count);
    for (size_t i = 0; i < count; i++) {
        if (sums[i].unit != unit || (name && strcmp(sums[i].name, name) != 0))
            continue;
        total.count += sums[i].count;
        total.busy += sums[i].busy;
        total.bytes += sums[i].bytes;
        total.flops += sums[i].flops;
    }
    return total;
}

kb_machine kb_context_machine(const kb_context *ctx)
{
    const topo_shape *shape = ctx->shape;
    return (kb_machine){
        .name = topo_machine_name(ctx->machine),
        .sips = shape->sips,
        .cubes = shape->cubes,
        .cube_w = shape->cube_w,
        .cube_h = shape->cube_h,
        .pes = shape->pes,
        .hbm_bytes = shape->slice_bytes,
        .tcm_bytes = shape->tcm_bytes - shape->tcm_reserved_bytes,
        .sram_bytes = shape->sram_bytes,
    };
}
