/*
 * memory_requests.c: requests of the user that are about memory and not about tensors, and the
 * memory and addresses that they need. What is wrong with a message is said when it is submitted;
 * what only the machine can find out (an unmapped address) when the request is waited for.
 */
#include "runtime.h"

#include <inttypes.h>
#include <stdio.h>

/* ---- Memory and addresses ---- */

static kb_location *find_grant(kb_context *ctx, const kb_location *at)
{
    for (size_t i = 0; i < ctx->grants.count; i++) {
        const kb_location *own = &ctx->grants.items[i];
        bool same_cube = own->pe.sip == at->pe.sip && own->pe.cube == at->pe.cube;
        bool same_place = at->memory == KB_VIRTUAL ||
                          (same_cube && (at->memory == KB_SRAM || own->pe.pe == at->pe.pe));
        if (own->memory == at->memory && own->offset == at->offset && same_place)
            return &ctx->grants.items[i];
    }
    return NULL;
}

static void drop_grant(kb_context *ctx, kb_location *grant)
{
    *grant = ctx->grants.items[--ctx->grants.count];
}

kb_error *kb_memory_alloc(kb_context *ctx, kb_pe pe, kb_memory memory, uint64_t bytes,
                          uint64_t align, kb_location *location)
{
    if (!kb_vec_reserve(&ctx->grants, 1))
        return kb_error_nomem();
    kb_location at = {.memory = memory, .pe = pe};
    kb_error *err = mem_memories_alloc(ctx->memories, pe, memory, bytes, align, &at.offset);
    if (err)
        return kb_error_wrap(err, "kb_memory_alloc");
    ctx->grants.items[ctx->grants.count++] = at;
    *location = at;
    return NULL;
}

kb_error *kb_memory_free(kb_context *ctx, kb_location location)
{
    kb_location *grant = location.memory == KB_VIRTUAL ? NULL : find_grant(ctx, &location);
    if (!grant) {
        kb_text text = KB_TEXT_INIT;
        mem_location_print(&location, &text);
        kb_error *err = kb_error_new(KB_ERR_FAULT,
                                     "kb_memory_free: no allocation of kb_memory_alloc() "
                                     "starts at %s",
                                     kb_text_peek(&text));
        kb_text_fini(&text);
        return err;
    }
    KB_TRY(data_settle(ctx->store)); /* while what it is to hold is still its own */
    drop_grant(ctx, grant);
    return mem_memories_free(ctx->memories, location.pe, location.memory, location.offset);
}

kb_error *kb_va_alloc(kb_context *ctx, uint64_t bytes, uint64_t *va)
{
    if (!kb_vec_reserve(&ctx->grants, 1))
        return kb_error_nomem();
    kb_error *err = rt_va_take(ctx, bytes, va);
    if (err)
        return kb_error_wrap(err, "kb_va_alloc");
    ctx->grants.items[ctx->grants.count++] = (kb_location){.memory = KB_VIRTUAL, .offset = *va};
    return NULL;
}

static rt_raw_mapping *raw_mapping_in(kb_context *ctx, const mem_span *span)
{
    for (size_t i = 0; i < ctx->raw_mappings.count; i++) {
        rt_raw_mapping *raw = &ctx->raw_mappings.items[i];
        if (raw->va < span->start + span->bytes && span->start < raw->va + raw->bytes)
            return raw;
    }
    return NULL;
}

kb_error *kb_va_free(kb_context *ctx, uint64_t va)
{
    kb_location *grant = find_grant(ctx, &(kb_location){.memory = KB_VIRTUAL, .offset = va});
    if (!grant)
        return kb_error_new(KB_ERR_FAULT,
                            "kb_va_free: no range of kb_va_alloc() starts at 0x%" PRIx64, va);
    const mem_span *span = mem_allocator_find(&ctx->va, va);
    const rt_raw_mapping *raw = raw_mapping_in(ctx, span);
    if (raw)
        return kb_error_new(KB_ERR_FAULT,
                            "kb_va_free: 0x%" PRIx64 " is still mapped on sip%u: unmap it first",
                            raw->va, raw->sip);
    drop_grant(ctx, grant);
    (void)mem_allocator_give(&ctx->va, va);
    return NULL;
}

kb_error *rt_va_take(kb_context *ctx, uint64_t bytes, uint64_t *va)
{
    uint64_t pages = bytes / MEM_VA_PAGE_BYTES + (bytes % MEM_VA_PAGE_BYTES != 0);
    if (bytes == 0)
        return kb_error_new(KB_ERR_INPUT, "invalid size of 0 bytes");
    mem_taken taken = bytes > MEM_VA_BYTES ? MEM_EXHAUSTED
                                           : mem_allocator_take(&ctx->va, pages * MEM_VA_PAGE_BYTES,
                                                                MEM_VA_PAGE_BYTES, va);
    if (taken == MEM_NO_HOST_MEMORY)
        return kb_error_nomem();
    if (taken == MEM_EXHAUSTED)
        return kb_error_new(KB_ERR_FAULT,
                            "out of virtual addresses: %" PRIu64 " bytes requested, %" PRIu64
                            " free, the largest range %" PRIu64,
                            bytes, ctx->va.free_bytes, mem_allocator_largest(&ctx->va));
    return NULL;
}

/* ---- Addresses in words ---- */

kb_error *kb_location_to_pa(const kb_context *ctx, kb_location location, uint64_t *pa)
{
    return mem_location_to_pa(ctx->memories, &location, pa);
}

kb_error *kb_location_from_pa(const kb_context *ctx, uint64_t pa, kb_location *location)
{
    return mem_location_from_pa(ctx->memories, pa, location);
}

/* Of each public range: the unit, and of a PE the component. */
static const struct {
    mem_unit unit;
    mem_component component;
} pa_ranges[KB_PA_RANGES] = {
    [KB_PA_HBM] = {MEM_UNIT_HBM, MEM_TCM},
    [KB_PA_SRAM] = {MEM_UNIT_SRAM, MEM_TCM},
    [KB_PA_M_CPU] = {MEM_UNIT_M_CPU, MEM_TCM},
    [KB_PA_TCM] = {MEM_UNIT_PE, MEM_TCM},
    [KB_PA_IPCQ] = {MEM_UNIT_PE, MEM_IPCQ},
    [KB_PA_SCRATCHPAD] = {MEM_UNIT_PE, MEM_SCRATCHPAD},
    [KB_PA_REGISTERS] = {MEM_UNIT_PE, MEM_REGISTERS},
    [KB_PA_STATUS] = {MEM_UNIT_PE, MEM_STATUS},
    [KB_PA_RESERVED] = {MEM_UNIT_PE, MEM_RESERVED},
};

kb_error *kb_pa_encode(const kb_pa_fields *fields, uint64_t *pa)
{
    if ((unsigned)fields->range >= KB_PA_RANGES)
        return kb_error_new(KB_ERR_INPUT, "kb_pa_encode: invalid range %d", (int)fields->range);
    bool of_pe = pa_ranges[fields->range].unit == MEM_UNIT_PE;
    if (!of_pe && fields->pe != 0)
        return kb_error_new(KB_ERR_INPUT,
                            "kb_pa_encode: pe is %" PRIu32 ", but the range is that of "
                            "a cube: expected 0",
                            fields->pe);
    mem_pa decoded = {
        .rack = fields->rack,
        .sip = fields->sip,
        .cube = fields->cube,
        .unit = pa_ranges[fields->range].unit,
        .pe = fields->pe,
        .component = pa_ranges[fields->range].component,
        .offset = fields->offset,
    };
    return mem_pa_encode(&decoded, pa);
}

kb_error *kb_pa_decode(uint64_t pa, kb_pa_fields *fields)
{
    mem_pa decoded;
    KB_TRY(mem_pa_decode(pa, &decoded));
    int range = 0;
    while (pa_ranges[range].unit != decoded.unit ||
           (decoded.unit == MEM_UNIT_PE && pa_ranges[range].component != decoded.component))
        range++;
    *fields = (kb_pa_fields){
        .range = (kb_pa_range)range,
        .rack = decoded.rack,
        .sip = decoded.sip,
        .cube = decoded.cube,
        .pe = decoded.pe,
        .offset = decoded.offset,
    };
    return NULL;
}

kb_error *kb_pa_of_slice(kb_pe pe, uint64_t offset, uint64_t slice_bytes, uint64_t *pa)
{
    mem_pa decoded;
    KB_TRY(mem_pa_pe_hbm(pe.sip, pe.cube, pe.pe, offset, slice_bytes, &decoded));
    return mem_pa_encode(&decoded, pa);
}

kb_error *kb_pa_name(uint64_t pa, char name[KB_NAME_BYTES])
{
    mem_pa decoded;
    KB_TRY(mem_pa_decode(pa, &decoded));
    kb_text text = KB_TEXT_INIT;
    mem_pa_print(&decoded, &text);
    snprintf(name, KB_NAME_BYTES, "%s", kb_text_peek(&text));
    kb_error *err = text.failed ? kb_error_nomem() : NULL;
    kb_text_fini(&text);
    return err;
}

/* ---- Messages ---- */

static kb_error *check_pe(const kb_context *ctx, kb_pe pe)
{
    return mem_memories_check(ctx->memories, &(kb_location){.memory = KB_TCM, .pe = pe}, 1);
}

static kb_error *check_end(const kb_context *ctx, const kb_location *location, uint64_t bytes)
{
    if (location->memory == KB_VIRTUAL)
        return NULL; /* the PE's MMU will see */
    return mem_memories_check(ctx->memories, location, bytes);
}

static kb_error *host_message(rt_request *request, const kb_message *message)
{
    kb_context *ctx = request->ctx;
    bool read = message->kind == KB_MEMORY_READ;
    const kb_location *at = read ? &message->from : &message->to;
    KB_TRY(rt_request_transfer(request, at, message->bytes, read));
    KB_TRY(data_settle(ctx->store));
    if (read && message->into)
        mem_memories_read(ctx->memories, at, message->into, message->bytes);
    if (!read && message->data && !ctx->timing_only)
        return mem_memories_write(ctx->memories, at, message->data, message->bytes);
    return NULL;
}

static kb_error *dma_message(rt_request *request, const kb_message *message)
{
    kb_context *ctx = request->ctx;
    rt_job *job;
    KB_TRY(rt_job_create(ctx, RT_JOB_DMA, message->pe.sip, "PE DMA", &job));
    pe_move move = {
        .from = message->from,
        .to = message->to,
        .bytes = message->bytes,
        .time_only = ctx->timing_only,
    };
    kb_error *err = rt_job_add_move(job, message->pe.cube, message->pe.pe, &move);
    if (err) {
        rt_job_destroy(job);
        return err;
    }
    return rt_job_submit(job, request);
}

/* ---- Mappings ---- */

static rt_raw_mapping *find_raw(kb_context *ctx, uint32_t sip, uint64_t va)
{
    for (size_t i = 0; i < ctx->raw_mappings.count; i++) {
        rt_raw_mapping *raw = &ctx->raw_mappings.items[i];
        if (raw->sip == sip && raw->va == va)
            return raw;
    }
    return NULL;
}

static bool same_location(const kb_location *a, const kb_location *b)
{
    return a->memory == b->memory && a->offset == b->offset && a->pe.sip == b->pe.sip &&
           a->pe.cube == b->pe.cube && (a->pe.pe == b->pe.pe || a->memory == KB_SRAM);
}

/* The mapping of the message: the one that is there, or a new one. */
static kb_error *raw_mapping_for(kb_context *ctx, const kb_message *message, rt_raw_mapping **out)
{
    rt_raw_mapping *raw = find_raw(ctx, message->pe.sip, message->va);
    *out = raw;
    if (raw && raw->bytes == message->bytes && same_location(&raw->to, &message->to))
        return NULL;
    if (!kb_vec_reserve(&ctx->raw_mappings, 1))
        return kb_error_nomem();
    mem_extent extent = {.bytes = message->bytes, .copy_count = 1};
    mem_mapping_spec spec = {
        .va = message->va,
        .bytes = message->bytes,
        .extents = &extent,
        .extent_count = 1,
        .copies = &message->to,
        .copy_count = 1,
    };
    mem_mapping_id id;
    KB_TRY(mem_mmu_add(ctx->mmus[message->pe.sip], &spec, &id));
    *out = &ctx->raw_mappings.items[ctx->raw_mappings.count++];
    **out = (rt_raw_mapping){
        .id = id,
        .sip = message->pe.sip,
        .va = message->va,
        .bytes = message->bytes,
        .to = message->to,
    };
    return NULL;
}

/* A mapping that is in no MMU, and is not about to be installed, is forgotten. */
static void drop_if_unused(kb_context *ctx, mem_mapping_id id, uint32_t sip)
{
    for (size_t i = 0; i < ctx->raw_mappings.count; i++) {
        rt_raw_mapping *raw = &ctx->raw_mappings.items[i];
        if (raw->id != id || raw->sip != sip)
            continue;
        if (raw->requests == 0 && mem_mmu_installed(ctx->mmus[sip], id) == 0) {
            mem_mmu_drop(ctx->mmus[sip], id);
            *raw = ctx->raw_mappings.items[--ctx->raw_mappings.count];
        }
        return;
    }
}

static void mapping_request_ended(rt_request *request)
{
    kb_context *ctx = request->ctx;
    rt_raw_mapping *raw = find_raw(ctx, request->sip, request->va);
    raw->requests--;
    drop_if_unused(ctx, request->mapping, request->sip);
}

static kb_error *mapping_job(rt_request *request, const kb_message *message, rt_raw_mapping *raw)
{
    bool map = message->kind == KB_MMU_MAP;
    rt_job *job;
    KB_TRY(rt_job_create(request->ctx, map ? RT_JOB_MAP : RT_JOB_UNMAP, message->pe.sip, "MMU map",
                         &job));
    rt_job_set_mapping(job, raw->id, map ? 1 : 0);
    kb_error *err = rt_job_add_pe(job, message->pe.cube, message->pe.pe);
    if (err) {
        rt_job_destroy(job);
        return err;
    }
    return rt_job_submit(job, request);
}

static kb_error *mapping_message(rt_request *request, const kb_message *message)
{
    kb_context *ctx = request->ctx;
    rt_raw_mapping *raw;
    if (message->kind == KB_MMU_MAP) {
        KB_TRY(raw_mapping_for(ctx, message, &raw));
    } else {
        raw = find_raw(ctx, message->pe.sip, message->va);
        if (!raw)
            return kb_error_new(KB_ERR_FAULT, "nothing is mapped at 0x%" PRIx64 " on sip%u",
                                message->va, message->pe.sip);
    }
    mem_mapping_id id = raw->id;
    kb_error *err = mapping_job(request, message, raw);
    if (err) {
        drop_if_unused(ctx, id, message->pe.sip);
        return err;
    }
    raw->requests++;
    request->mapping = id;
    request->sip = message->pe.sip;
    request->va = message->va;
    request->on_end = mapping_request_ended;
    return NULL;
}

/* What is mapped has to be the program's own. */
static kb_error *check_addresses(kb_context *ctx, const kb_message *message)
{
    const mem_span *span = mem_allocator_find(&ctx->va, message->va);
    bool own = span && find_grant(ctx, &(kb_location){.memory = KB_VIRTUAL, .offset = span->start});
    if (own && message->bytes <= span->bytes - (message->va - span->start))
        return NULL;
    return kb_error_new(KB_ERR_FAULT,
                        "%" PRIu64 " bytes at 0x%" PRIx64 " are not addresses that kb_va_alloc() "
                        "gave",
                        message->bytes, message->va);
}

static const char *const kind_names[] = {
    [KB_MEMORY_WRITE] = "memory write", [KB_MEMORY_READ] = "memory read", [KB_PE_DMA] = "PE DMA",
    [KB_MMU_MAP] = "MMU map",           [KB_MMU_UNMAP] = "MMU unmap",
};

static kb_error *check_message(kb_context *ctx, const kb_message *message)
{
    bool unmap = message->kind == KB_MMU_UNMAP;
    if (!unmap && message->bytes == 0)
        return kb_error_new(KB_ERR_INPUT, "0 bytes; expected at least 1");
    switch (message->kind) {
    case KB_MEMORY_WRITE:
        return mem_memories_check(ctx->memories, &message->to, message->bytes);
    case KB_MEMORY_READ:
        return mem_memories_check(ctx->memories, &message->from, message->bytes);
    case KB_PE_DMA:
        KB_TRY(check_pe(ctx, message->pe));
        KB_TRY(check_end(ctx, &message->from, message->bytes));
        return check_end(ctx, &message->to, message->bytes);
    case KB_MMU_MAP:
        KB_TRY(check_pe(ctx, message->pe));
        KB_TRY(check_addresses(ctx, message));
        return mem_memories_check(ctx->memories, &message->to, message->bytes);
    case KB_MMU_UNMAP:
        return check_pe(ctx, message->pe);
    }
    return NULL;
}

kb_error *kb_request_submit(kb_context *ctx, const kb_message *message, kb_request *handle)
{
    *handle = (kb_request){0};
    if ((unsigned)message->kind >= sizeof kind_names / sizeof *kind_names)
        return kb_error_new(KB_ERR_INPUT, "kb_request_submit: invalid message kind %d",
                            (int)message->kind);
    const char *name = kind_names[message->kind];
    kb_error *err = check_message(ctx, message);
    if (err)
        return kb_error_wrap(err, "%s", name);
    rt_request *request;
    KB_TRY(rt_request_open(ctx, name, NULL, &request));
    switch (message->kind) {
    case KB_MEMORY_WRITE:
    case KB_MEMORY_READ:
        err = host_message(request, message);
        break;
    case KB_PE_DMA:
        err = dma_message(request, message);
        break;
    case KB_MMU_MAP:
    case KB_MMU_UNMAP:
        err = mapping_message(request, message);
        break;
    }
    if (!err)
        *handle = rt_request_handle(request);
    rt_request_close(request, NULL);
    return err ? kb_error_wrap(err, "%s", name) : NULL;
}
