/*
 * context.c: making a context and leaving it. Everything that a program makes in a context belongs
 * to the context, so leaving it frees all that is left.
 */
#include "rt.h"
#include "runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_STACK = 1 << 20, LEAST_STACK = 16 << 10, MOST_STACK = 1 << 30 };

static void warn_line(kb_context *ctx, const char *line)
{
    if (ctx->on_warning)
        ctx->on_warning(ctx->on_warning_self, line);
    else
        fprintf(stderr, "kernbench: warning: %s\n", line);
}

void rt_warn(kb_context *ctx, const char *format, ...)
{
    if (!ctx->debug)
        return;
    kb_text text = KB_TEXT_INIT;
    va_list args;
    va_start(args, format);
    kb_text_vprintf(&text, format, args);
    va_end(args);
    kb_text_escape_from(&text, 0);
    warn_line(ctx, kb_text_peek(&text));
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
        return kb_error_new(KB_ERR_INPUT, "device '%s': expected all, or sip:N as in sip:0",
                            device);
    if (sip >= ctx->shape->sips)
        return kb_error_new(KB_ERR_INPUT, "device '%s': the machine has %u SIPs, from 0 on", device,
                            ctx->shape->sips);
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
        kb_text text = KB_TEXT_INIT;
        kb_text_printf(&text, "%.*s", length, line);
        warn_line(ctx, kb_text_peek(&text));
        kb_text_fini(&text);
        line += length + (line[length] == '\n');
    }
}

static kb_error *load_machine(kb_context *ctx, const kb_context_options *options)
{
    topo_source source = {
        .path = options->topology,
        .settings = options->settings,
        .setting_count = options->setting_count,
    };
    KB_TRY(topo_machine_load(&source, &ctx->machine));
    ctx->shape = topo_machine_shape(ctx->machine);
    ctx->host_node = topo_node_at(ctx->machine, TOPO_HOST, 0, 0, 0);
    warn_of_idle_settings(ctx);
    return parse_device(ctx, options->device);
}

static kb_error *make_memory(kb_context *ctx, const kb_context_options *options)
{
    KB_TRY(mem_memories_create(ctx->machine, ctx->limited ? ctx->only_sip : TOPO_NONE,
                               &ctx->memories));
    KB_TRY(data_store_create(
        &(data_options){.memories = ctx->memories, .threads = options->threads}, &ctx->store));
    mem_allocator_init(&ctx->va, MEM_VA_BASE, MEM_VA_BYTES, MEM_NEXT_FIT);
    const topo_shape *shape = ctx->shape;
    ctx->mmus = kb_alloc_zeroed(shape->sips, sizeof(mem_mmu *));
    if (!ctx->mmus)
        return kb_error_nomem();
    for (uint32_t sip = 0; sip < shape->sips; sip++)
        KB_TRY(mem_mmu_create(sip, shape->cubes, shape->pes, &ctx->mmus[sip]));
    return NULL;
}

/* PEs, with their places in the order of events. */
static kb_error *make_pes(kb_context *ctx, uint32_t first_unit, uint32_t first_kernel)
{
    pe_units_options unit_options = {
        .sim = ctx->sim,
        .machine = ctx->machine,
        .fabric = ctx->fabric,
        .memories = ctx->memories,
        .log = ctx->log,
        .first_source = first_unit,
    };
    KB_TRY(pe_units_create(&unit_options, &ctx->units));
    KB_TRY(pe_composites_create(ctx->sim, ctx->machine, ctx->units, ctx->log, &ctx->composites));
    tl_runner_options runner_options = {
        .sim = ctx->sim,
        .machine = ctx->machine,
        .memories = ctx->memories,
        .mmus = ctx->mmus,
        .units = ctx->units,
        .composites = ctx->composites,
        .log = ctx->log,
        .store = ctx->store,
        .timing_only = ctx->timing_only,
        .first_source = first_kernel,
    };
    return tl_runner_create(&runner_options, &ctx->kernels);
}

static kb_error *make_machine(kb_context *ctx, const kb_context_options *options)
{
    KB_TRY(net_create_for(ctx->sim, ctx->machine, RT_MACHINE, options->no_elision, &ctx->fabric));
    uint64_t units = RT_MACHINE + (uint64_t)net_source_count(ctx->fabric);
    uint64_t kernels = units + pe_units_source_count(ctx->machine);
    if (kernels + ctx->shape->pe_count > RT_PROGRAM)
        return kb_error_new(KB_ERR_INPUT, "the machine is too large to run programs on");
    KB_TRY(kb_oplog_create(ctx->sim, ctx->shape->pe_count, &ctx->log));
    kb_oplog_watch(ctx->log, options->on_op, options->on_op_self);
    KB_TRY(net_ways_init(&ctx->ways, ctx->machine));
    KB_TRY(io_create(ctx->sim, ctx->machine, ctx->fabric, &ctx->control));
    pe_dma_options dma_options = {
        .sim = ctx->sim,
        .machine = ctx->machine,
        .fabric = ctx->fabric,
        .memories = ctx->memories,
        .mmus = ctx->mmus,
        .store = ctx->store,
    };
    KB_TRY(pe_dma_create(&dma_options, &ctx->dma));
    return make_pes(ctx, (uint32_t)units, (uint32_t)kernels);
}

static kb_error *build(kb_context *ctx, const kb_context_options *options)
{
    const char *debug = getenv("KERNBENCH_DEBUG");
    ctx->debug = options->debug || (debug && strcmp(debug, "1") == 0);
    ctx->timing_only = options->timing_only;
    ctx->on_warning = options->on_warning;
    ctx->on_warning_self = options->on_warning_self;
    size_t stack_bytes = options->stack_bytes ? options->stack_bytes : DEFAULT_STACK;
    if (stack_bytes < LEAST_STACK || stack_bytes > MOST_STACK)
        return kb_error_new(KB_ERR_INPUT, "stacks of %zu bytes; expected %d to %d", stack_bytes,
                            LEAST_STACK, MOST_STACK);
    KB_TRY(load_machine(ctx, options));
    kb_sim_options sim_options = {
        .stack_bytes = stack_bytes,
        .no_elision = options->no_elision,
    };
    KB_TRY(kb_sim_create(&sim_options, &ctx->sim));
    KB_TRY(rt_workers_init(ctx));
    KB_TRY(make_memory(ctx, options));
    return make_machine(ctx, options);
}

kb_error *kb_context_create(const kb_context_options *options, kb_context **out)
{
    *out = NULL;
    kb_context *ctx = kb_alloc_zeroed(1, sizeof *ctx);
    if (!ctx)
        return kb_error_nomem();
    rt_table_init(&ctx->requests, sizeof(rt_request));
    rt_table_init(&ctx->tensors, sizeof(rt_tensor));
    kb_error *err = build(ctx, options ? options : &(kb_context_options){0});
    if (err) {
        kb_context_destroy(ctx);
        return err;
    }
    *out = ctx;
    return NULL;
}

/* ---- Leaving ---- */

/* Warns of one thing that was left. Takes the text over. */
static void warn_of_leak(kb_context *ctx, kb_text *what)
{
    rt_warn(ctx, "leaving the context: %s was not freed", kb_text_peek(what));
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
        warn_of_leak(ctx, &text);
    }
    for (size_t i = 0; i < ctx->grants.count; i++) {
        kb_text_puts(&text, "memory at ");
        mem_location_print(&ctx->grants.items[i], &text);
        warn_of_leak(ctx, &text);
    }
    size_t requests = 0;
    for (uint64_t id = rt_table_next(&ctx->requests, 0); id; id = rt_table_next(&ctx->requests, id))
        requests += ((const rt_request *)rt_table_get(&ctx->requests, id))->has_handle;
    if (requests > 0) {
        kb_text_printf(&text, "the handle of %zu request%s", requests, requests > 1 ? "s" : "");
        warn_of_leak(ctx, &text);
    }
    if (ctx->driver.first_fault)
        rt_warn(ctx, "leaving the context: nobody was told that a request failed: %s",
                kb_error_message(ctx->driver.first_fault->error));
}

void kb_context_destroy(kb_context *ctx)
{
    if (!ctx)
        return;
    KB_ASSERT(!ctx->workers);
    if (ctx->sim)
        kb_sim_abandon(ctx->sim); /* cleanups of coroutines may still use everything */
    if (ctx->debug)
        report_leaks(ctx);
    rt_group_fini(ctx);
    rt_tensors_fini(ctx);
    tl_runner_destroy(ctx->kernels);
    pe_composites_destroy(ctx->composites);
    pe_units_destroy(ctx->units);
    pe_dma_destroy(ctx->dma);
    io_destroy(ctx->control);
    rt_jobs_fini(ctx);
    rt_requests_fini(ctx);
    rt_caller_fini(&ctx->driver);
    net_ways_fini(&ctx->ways);
    net_destroy(ctx->fabric);
    for (uint32_t sip = 0; ctx->mmus && sip < ctx->shape->sips; sip++)
        mem_mmu_destroy(ctx->mmus[sip]);
    free(ctx->mmus);
    mem_allocator_fini(&ctx->va);
    data_store_destroy(ctx->store);
    mem_memories_destroy(ctx->memories);
    kb_oplog_destroy(ctx->log);
    for (size_t i = 0; i < ctx->names.count; i++)
        free(ctx->names.items[i]);
    kb_vec_fini(&ctx->names);
    kb_vec_fini(&ctx->launches);
    kb_vec_fini(&ctx->grants);
    kb_vec_fini(&ctx->raw_mappings);
    kb_sim_destroy(ctx->sim);
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

rt_figures rt_get_figures(kb_context *ctx)
{
    return (rt_figures){
        .machine = ctx->machine,
        .fabric = ctx->fabric,
        .log = ctx->log,
        .launches = ctx->launches.items,
        .launch_count = ctx->launches.count,
    };
}

bool kb_context_is_timing_only(const kb_context *ctx)
{
    return ctx->timing_only;
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
