/*
 * tensor.c: creating, describing and freeing tensors.
 *
 * A tensor of a device has a block of memory in each PE that has shards, one range of virtual
 * addresses, and a mapping in the MMUs of its SIP. The first two exist from the start; the mapping
 * gets into the MMUs by a command, and out of them by another when the tensor is freed.
 */
#include "runtime.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK_ALIGN = 64 }; /* a burst of the memory, as most have it */

void rt_tensor_print(const rt_tensor *tensor, kb_text *text)
{
    size_t start = text->length;
    kb_text_printf(text, "'%s' ", tensor->name);
    kb_text_escape_from(text, start);
    mem_shape_print(&tensor->shape, text);
    kb_text_printf(text, " %s", kb_dtype_name(tensor->dtype));
}

kb_location rt_shard_location(const rt_tensor *tensor, size_t shard)
{
    const mem_shard *s = &tensor->placement.shards.items[shard];
    return (kb_location){
        .memory = tensor->memory,
        .pe = {tensor->sip, s->cube, s->pe},
        .offset = tensor->offsets[shard],
    };
}

kb_shard rt_describe_shard(const rt_tensor *tensor, size_t shard)
{
    const mem_shard *s = &tensor->placement.shards.items[shard];
    return (kb_shard){
        .sip = tensor->sip,
        .cube = s->cube,
        .pe = s->pe,
        .offset_bytes = s->offset_bytes,
        .nbytes = s->nbytes,
    };
}

/* ---- Parts ---- */

static kb_error *check_spec(kb_context *ctx, const kb_tensor_spec *spec, bool on_device)
{
    if (!spec)
        return kb_error_new(KB_ERR_INPUT, "the spec is NULL");
    if (!mem_dtype_exists(spec->dtype))
        return kb_error_new(KB_ERR_INPUT, "invalid dtype %d", (int)spec->dtype);
    if (spec->is_index && spec->dtype != KB_I32)
        return kb_error_new(KB_ERR_INPUT, "an index tensor of %s: expected i32",
                            kb_dtype_name(spec->dtype));
    if (!on_device)
        return NULL;
    if (spec->memory != KB_HBM && spec->memory != KB_TCM)
        return kb_error_new(KB_ERR_INPUT, "invalid memory %d: expected KB_HBM or KB_TCM",
                            (int)spec->memory);
    if (spec->access != KB_TIMED && spec->access != KB_UNTIMED)
        return kb_error_new(KB_ERR_INPUT,
                            "invalid access mode %d: expected KB_TIMED or "
                            "KB_UNTIMED",
                            (int)spec->access);
    uint32_t device = kb_ahbm_current_device(ctx);
    if (ctx->limited && device != ctx->only_sip)
        return kb_error_new(KB_ERR_INPUT,
                            "the current device is %u, but this context is limited to sip:%u",
                            device, ctx->only_sip);
    return NULL;
}

static kb_error *name_tensor(kb_context *ctx, rt_tensor *tensor, const char *name)
{
    kb_text text = KB_TEXT_INIT;
    if (name)
        kb_text_puts(&text, name);
    else
        kb_text_printf(&text, "tensor%ju", (uintmax_t)ctx->tensors_made + 1);
    tensor->name = kb_text_take(&text);
    return tensor->name ? NULL : kb_error_nomem();
}

/* A tensor that has nothing yet but what its spec says. NULL after an error. */
static kb_error *begin(kb_context *ctx, const kb_tensor_spec *spec, bool on_device, rt_tensor **out)
{
    *out = NULL;
    KB_TRY(check_spec(ctx, spec, on_device));
    uint64_t elements, id;
    KB_TRY(mem_shape_elements(&spec->shape, spec->dtype, &elements));
    rt_tensor *tensor = rt_table_add(&ctx->tensors, &id);
    if (!tensor)
        return kb_error_nomem();
    *tensor = (rt_tensor){
        .id = id,
        .shape = spec->shape,
        .dtype = spec->dtype,
        .bytes = elements * kb_dtype_bytes(spec->dtype),
        .on_host = !on_device,
        .is_index = spec->is_index,
        .memory = spec->memory,
        .access = on_device ? spec->access : KB_UNTIMED,
    };
    kb_error *err = name_tensor(ctx, tensor, spec->name);
    if (err) {
        rt_table_remove(&ctx->tensors, id);
        return err;
    }
    ctx->tensors_made++;
    *out = tensor;
    return NULL;
}

static void free_blocks(kb_context *ctx, rt_tensor *tensor)
{
    for (size_t i = 0; i < tensor->blocks.count; i++) {
        const kb_location *at = &tensor->blocks.items[i];
        kb_error_free(mem_memories_free(ctx->memories, at->pe, at->memory, at->offset));
    }
    tensor->blocks.count = 0;
}

/* What the tensor has of the host's memory. */
static void fini_tensor(rt_tensor *tensor)
{
    free(tensor->name);
    free(tensor->host);
    free(tensor->offsets);
    kb_vec_fini(&tensor->blocks);
    mem_grid_fini(&tensor->grid);
    mem_placement_fini(&tensor->placement);
}

/* Takes back all that it has, as if it had never been. */
static void discard(kb_context *ctx, rt_tensor *tensor)
{
    if (tensor->mapping)
        mem_mmu_drop(ctx->mmus[tensor->sip], tensor->mapping);
    if (tensor->va)
        (void)mem_allocator_give(&ctx->va, tensor->va);
    free_blocks(ctx, tensor);
    fini_tensor(tensor);
    rt_table_remove(&ctx->tensors, tensor->id);
}

/* One block for the shards of each PE, which follow each other in the placement. */
static kb_error *take_blocks(kb_context *ctx, rt_tensor *tensor)
{
    size_t count = tensor->placement.shards.count;
    const mem_shard *shards = tensor->placement.shards.items;
    tensor->offsets = kb_alloc_zeroed(count, sizeof *tensor->offsets);
    if (!tensor->offsets)
        return kb_error_nomem();
    for (size_t first = 0, end; first < count; first = end) {
        uint64_t bytes = 0;
        for (end = first; end < count && shards[end].cube == shards[first].cube &&
                          shards[end].pe == shards[first].pe;
             end++)
            bytes += shards[end].nbytes;
        if (bytes == 0)
            continue;
        if (!kb_vec_reserve(&tensor->blocks, 1))
            return kb_error_nomem();
        kb_location at = {.memory = tensor->memory,
                          .pe = {tensor->sip, shards[first].cube, shards[first].pe}};
        KB_TRY(mem_memories_alloc(ctx->memories, at.pe, at.memory, bytes, BLOCK_ALIGN, &at.offset));
        tensor->blocks.items[tensor->blocks.count++] = at;
        for (size_t i = first; i < end; i++)
            tensor->offsets[i] = at.offset + shards[i].pe_offset;
    }
    return NULL;
}

/* Cells of the grid in the order of their addresses. */
typedef struct cell_place {
    uint64_t offset;
    const uint32_t *shards;
} cell_place;

static int by_offset(const void *a, const void *b)
{
    const cell_place *x = a, *y = b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static void sort_cells(const rt_tensor *tensor, cell_place *cells, size_t count)
{
    const mem_grid *grid = &tensor->grid;
    for (size_t i = 0; i < count; i++) {
        const uint32_t *shards = grid->shards + i * grid->copies;
        cells[i] = (cell_place){tensor->placement.shards.items[shards[0]].offset_bytes, shards};
    }
    qsort(cells, count, sizeof *cells, by_offset);
}

/* The mapping: an extent for each cell of the grid, with its copies. */
static kb_error *add_mapping(kb_context *ctx, rt_tensor *tensor)
{
    const mem_grid *grid = &tensor->grid;
    size_t cells = grid->row_count * grid->column_count, copies = grid->copies;
    kb_error *err = kb_error_nomem();
    cell_place *cells_in_order = kb_alloc_array(cells, sizeof *cells_in_order);
    mem_extent *extents = kb_alloc_array(cells, sizeof *extents);
    kb_location *locations = kb_alloc_array(cells * copies, sizeof *locations);
    if (!cells_in_order || !extents || !locations)
        goto out;
    sort_cells(tensor, cells_in_order, cells);
    for (size_t i = 0; i < cells; i++) {
        const mem_shard *shard = &tensor->placement.shards.items[cells_in_order[i].shards[0]];
        extents[i] = (mem_extent){shard->offset_bytes, shard->nbytes, i * copies, copies};
        for (size_t c = 0; c < copies; c++)
            locations[i * copies + c] = rt_shard_location(tensor, cells_in_order[i].shards[c]);
    }
    mem_mapping_spec spec = {
        .name = tensor->name,
        .va = tensor->va,
        .bytes = tensor->bytes,
        .extents = extents,
        .extent_count = cells,
        .copies = locations,
        .copy_count = cells * copies,
        .has_dtype = true,
        .dtype = tensor->dtype,
        .is_index = tensor->is_index,
    };
    err = mem_mmu_add(ctx->mmus[tensor->sip], &spec, &tensor->mapping);
out:
    free(cells_in_order);
    free(extents);
    free(locations);
    return err;
}

/* Memory, addresses and a mapping; nothing that takes time. */
static kb_error *deploy(kb_context *ctx, rt_tensor *tensor, const kb_policy *policy)
{
    tensor->sip = kb_ahbm_current_device(ctx);
    tensor->policy = policy ? *policy : (kb_policy){.num_cubes = 1, .num_pes = 1};
    KB_TRY(mem_placement_init(&tensor->placement, &tensor->shape, tensor->dtype, policy,
                              ctx->shape->cubes, ctx->shape->pes));
    KB_TRY(mem_grid_init(&tensor->grid, &tensor->placement));
    KB_TRY(take_blocks(ctx, tensor));
    /* A page behind it stays unmapped: an access beyond the end is a fault. */
    KB_TRY(rt_va_take(ctx, (tensor->bytes ? tensor->bytes : 1) + MEM_VA_PAGE_BYTES, &tensor->va));
    return tensor->bytes ? add_mapping(ctx, tensor) : NULL;
}

/* ---- Mapping and freeing ---- */

static kb_error *map_job(rt_request *request, rt_job_kind kind, size_t ranges)
{
    rt_job *job;
    KB_TRY(rt_job_create(request->ctx, kind, request->sip, "mapping", &job));
    rt_job_set_mapping(job, request->mapping, ranges);
    kb_error *err = rt_job_add_all(job);
    if (err) {
        rt_job_destroy(job);
        return err;
    }
    return rt_job_submit(job, request);
}

static void install_everywhere(kb_context *ctx, const rt_tensor *tensor)
{
    for (uint32_t cube = 0; cube < ctx->shape->cubes; cube++)
        for (uint32_t pe = 0; pe < ctx->shape->pes; pe++)
            mem_mmu_install(ctx->mmus[tensor->sip], tensor->mapping, cube, pe);
}

/* The mapping and the addresses go when the MMUs have been told. */
static void unmapped(rt_request *request)
{
    kb_context *ctx = request->ctx;
    mem_mmu_drop(ctx->mmus[request->sip], request->mapping);
    (void)mem_allocator_give(&ctx->va, request->va);
}

static void unmap(rt_request *request)
{
    request->completion.issued = kb_sim_now(request->ctx->sim); /* now, if it had to wait */
    kb_error *err = map_job(request, RT_JOB_UNMAP, 0);
    rt_request_close(request, err); /* without a command, at once */
}

/* The tensor was freed while it was still being mapped: commands may overtake each other. */
static void mapped(rt_request *request)
{
    unmap(rt_table_get(&request->ctx->requests, request->then));
}

static kb_error *start_unmapping(kb_context *ctx, rt_tensor *tensor)
{
    rt_request *request;
    KB_TRY(rt_request_open(ctx, "unmap", tensor->name, &request));
    request->sip = tensor->sip;
    request->va = tensor->va;
    request->mapping = tensor->mapping;
    request->on_end = unmapped;
    tensor->va = 0;
    tensor->mapping = 0;
    rt_request *mapping = rt_table_get(&ctx->requests, tensor->map_request);
    if (mapping) {
        mapping->then = request->id;
        mapping->on_end = mapped;
    } else {
        unmap(request);
    }
    return NULL;
}

kb_error *kb_tensor_free(kb_context *ctx, kb_tensor handle)
{
    rt_tensor *tensor;
    KB_TRY(rt_enter(ctx, RT_TENSOR_FREE, handle, &tensor));
    KB_TRY(data_settle(ctx->store)); /* while what it is to hold is still its own */
    if (tensor->mapping && tensor->access == KB_TIMED)
        KB_TRY(start_unmapping(ctx, tensor));
    discard(ctx, tensor);
    return NULL;
}

/* One that could not be created: a command about it may be under way all the same. */
static void discard_failed(kb_context *ctx, rt_tensor *tensor)
{
    if (rt_table_get(&ctx->requests, tensor->map_request)) {
        kb_error *err = start_unmapping(ctx, tensor);
        if (err) { /* no memory for that either: the mapping stays until the context goes */
            kb_error_free(err);
            tensor->mapping = 0;
            tensor->va = 0;
        }
    }
    discard(ctx, tensor);
}

/* ---- Making ---- */

/* What creating takes time for: the mapping, and filling if contents were asked for. */
static kb_error *start(kb_context *ctx, rt_tensor *tensor, bool filled)
{
    if (tensor->mapping == 0)
        return NULL;
    if (tensor->access == KB_UNTIMED) {
        install_everywhere(ctx, tensor);
        return NULL;
    }
    rt_request *request;
    KB_TRY(rt_request_open(ctx, "map", tensor->name, &request));
    request->sip = tensor->sip;
    request->mapping = tensor->mapping;
    tensor->map_request = request->id;
    const mem_grid *grid = &tensor->grid; /* which knows of no empty shards */
    kb_error *err = map_job(request, RT_JOB_MAP, grid->row_count * grid->column_count);
    if (!err && filled)
        err = rt_time_fill(tensor, request);
    rt_request_close(request, NULL);
    return err;
}

/* Says what could not be made, and what may help. Takes the error over. */
static kb_error *explain(kb_error *err, const char *function, const kb_tensor_spec *spec)
{
    if (spec && !spec->policy && kb_error_code(err) == KB_ERR_FAULT)
        kb_error_add_detail(err, "without a policy all of a tensor goes to PE 0 of cube 0; a "
                                 "kb_policy spreads it");
    if (spec && spec->name)
        return kb_error_wrap(err, "%s: tensor '%s'", function, spec->name);
    return kb_error_wrap(err, "%s", function);
}

static kb_error *create(kb_context *ctx, const char *function, const kb_tensor_spec *spec,
                        const double *value, kb_tensor *handle)
{
    rt_tensor *tensor;
    *handle = (kb_tensor){0};
    kb_error *err = begin(ctx, spec, true, &tensor);
    if (!tensor)
        return explain(err, function, spec);
    err = deploy(ctx, tensor, spec->policy);
    if (!err && value) {
        mem_box whole = mem_box_whole(&tensor->placement.shape);
        err = rt_fill_box(ctx, tensor, &whole, *value);
    }
    if (!err)
        err = start(ctx, tensor, value != NULL);
    if (err) {
        discard_failed(ctx, tensor);
        return explain(err, function, spec);
    }
    *handle = (kb_tensor){tensor->id};
    return NULL;
}

kb_error *kb_empty(kb_context *ctx, const kb_tensor_spec *spec, kb_tensor *handle)
{
    return create(ctx, "kb_empty", spec, NULL, handle);
}

kb_error *kb_zeros(kb_context *ctx, const kb_tensor_spec *spec, kb_tensor *handle)
{
    return create(ctx, "kb_zeros", spec, &(double){0}, handle);
}

kb_error *kb_full(kb_context *ctx, const kb_tensor_spec *spec, double value, kb_tensor *handle)
{
    return create(ctx, "kb_full", spec, &value, handle);
}

static kb_error *take_host_data(kb_context *ctx, rt_tensor *tensor, const void *data, size_t bytes)
{
    if (bytes != tensor->bytes)
        return kb_error_new(KB_ERR_FAULT, "%zu byte%s given, but the elements take %ju", bytes,
                            kb_plural(bytes), (uintmax_t)tensor->bytes);
    tensor->placement.shape = mem_shape_normal(&tensor->shape);
    if (!rt_has_contents(ctx, tensor))
        return NULL;
    if (!data && bytes > 0)
        return kb_error_new(KB_ERR_FAULT, "data is NULL");
    tensor->host = kb_alloc_array(bytes, 1);
    if (!tensor->host)
        return kb_error_nomem();
    if (bytes > 0)
        memcpy(tensor->host, data, bytes);
    return NULL;
}

kb_error *kb_from_host(kb_context *ctx, const kb_tensor_spec *spec, const void *data, size_t bytes,
                       kb_tensor *handle)
{
    rt_tensor *tensor;
    *handle = (kb_tensor){0};
    kb_error *err = begin(ctx, spec, false, &tensor);
    if (tensor) {
        err = take_host_data(ctx, tensor, data, bytes);
        if (!err) {
            *handle = (kb_tensor){tensor->id};
            return NULL;
        }
        discard(ctx, tensor);
    }
    bool named = spec && spec->name;
    return named ? kb_error_wrap(err, "kb_from_host: tensor '%s'", spec->name)
                 : kb_error_wrap(err, "kb_from_host");
}

void rt_tensors_fini(kb_context *ctx)
{
    for (uint64_t id = rt_table_next(&ctx->tensors, 0); id; id = rt_table_next(&ctx->tensors, id))
        fini_tensor(rt_table_get(&ctx->tensors, id));
    rt_table_fini(&ctx->tensors);
}

/* ---- Describing ---- */

kb_error *kb_tensor_shape(kb_context *ctx, kb_tensor handle, kb_shape *shape)
{
    rt_tensor *tensor;
    KB_TRY(rt_enter(ctx, RT_TENSOR_SHAPE, handle, &tensor));
    *shape = tensor->shape;
    return NULL;
}

kb_error *kb_tensor_dtype(kb_context *ctx, kb_tensor handle, kb_dtype *dtype)
{
    rt_tensor *tensor;
    KB_TRY(rt_enter(ctx, RT_TENSOR_DTYPE, handle, &tensor));
    *dtype = tensor->dtype;
    return NULL;
}

kb_error *kb_tensor_name(kb_context *ctx, kb_tensor handle, const char **name)
{
    rt_tensor *tensor;
    KB_TRY(rt_enter(ctx, RT_TENSOR_NAME, handle, &tensor));
    *name = tensor->name;
    return NULL;
}

/* For what only tensors of devices have. */
static kb_error *enter_on_device(kb_context *ctx, rt_call call, kb_tensor handle,
                                 rt_tensor **tensor)
{
    KB_TRY(rt_enter(ctx, call, handle, tensor));
    if (!(*tensor)->on_host)
        return NULL;
    return kb_error_new(KB_ERR_FAULT,
                        "%s: tensor '%s' is on the host: copy it to a device "
                        "first",
                        rt_calls[call].function, (*tensor)->name);
}

kb_error *kb_tensor_device(kb_context *ctx, kb_tensor handle, uint32_t *sip)
{
    rt_tensor *tensor;
    KB_TRY(enter_on_device(ctx, RT_TENSOR_DEVICE, handle, &tensor));
    *sip = tensor->sip;
    return NULL;
}

kb_error *kb_tensor_va(kb_context *ctx, kb_tensor handle, uint64_t *va)
{
    rt_tensor *tensor;
    KB_TRY(enter_on_device(ctx, RT_TENSOR_VA, handle, &tensor));
    *va = tensor->va;
    return NULL;
}

kb_error *kb_plan_shards(kb_context *ctx, const kb_tensor_spec *spec, kb_shard *shards, size_t room,
                         size_t *count)
{
    mem_placement placement;
    *count = 0;
    if (!spec)
        return kb_error_new(KB_ERR_INPUT, "kb_plan_shards: the spec is NULL");
    kb_error *err = mem_placement_init(&placement, &spec->shape, spec->dtype, spec->policy,
                                       ctx->shape->cubes, ctx->shape->pes);
    if (err)
        return kb_error_wrap(err, "kb_plan_shards");
    uint32_t sip = kb_ahbm_current_device(ctx);
    for (; *count < placement.shards.count; ++*count) {
        const mem_shard *from = &placement.shards.items[*count];
        if (*count < room)
            shards[*count] =
                (kb_shard){sip, from->cube, from->pe, from->offset_bytes, from->nbytes};
    }
    mem_placement_fini(&placement);
    return NULL;
}

kb_error *kb_tensor_shard_count(kb_context *ctx, kb_tensor handle, size_t *count)
{
    rt_tensor *tensor;
    KB_TRY(rt_enter(ctx, RT_TENSOR_SHARD_COUNT, handle, &tensor));
    *count = tensor->placement.shards.count;
    return NULL;
}

/* NULL if there is none such. */
static const mem_shard *find_shard(const rt_tensor *tensor, size_t index)
{
    bool exists = index < tensor->placement.shards.count;
    return exists ? &tensor->placement.shards.items[index] : NULL;
}

static kb_error *no_such_shard(const rt_tensor *tensor, rt_call call, size_t index)
{
    return kb_error_new(KB_ERR_FAULT,
                        "%s: shard %zu of tensor '%s' does not exist: it has %zu, numbered "
                        "from 0",
                        rt_calls[call].function, index, tensor->name,
                        tensor->placement.shards.count);
}

kb_error *kb_tensor_shard(kb_context *ctx, kb_tensor handle, size_t index, kb_shard *shard)
{
    rt_tensor *tensor;
    KB_TRY(rt_enter(ctx, RT_TENSOR_SHARD, handle, &tensor));
    const mem_shard *found = find_shard(tensor, index);
    if (!found)
        return no_such_shard(tensor, RT_TENSOR_SHARD, index);
    *shard = rt_describe_shard(tensor, index);
    return NULL;
}

kb_error *kb_tensor_shard_location(kb_context *ctx, kb_tensor handle, size_t index,
                                   kb_location *location)
{
    rt_tensor *tensor;
    KB_TRY(rt_enter(ctx, RT_TENSOR_SHARD_LOCATION, handle, &tensor));
    const mem_shard *found = find_shard(tensor, index);
    if (!found)
        return no_such_shard(tensor, RT_TENSOR_SHARD_LOCATION, index);
    if (found->nbytes == 0)
        return kb_error_new(KB_ERR_FAULT, "%s: shard %zu of tensor '%s' is empty",
                            rt_calls[RT_TENSOR_SHARD_LOCATION].function, index, tensor->name);
    *location = rt_shard_location(tensor, index);
    return NULL;
}
