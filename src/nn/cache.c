/*
 * cache.c: creates caches of keys and values, and reads and writes them from the host. cache.h
 * describes the layout, cache_layout.c chooses it.
 */
#include "cache.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cache_layout.h"
#include "lane_queues.h"
#include "rope.h"
#include "rt/rt.h"

/* ---- The caches of a context ---- */

typedef struct nn_caches {
    KB_VEC(nn_cache *) items; /* by id - 1; NULL: freed */
    nn_lane_names *lane_names;
} nn_caches;

static void destroy_cache(nn_cache *cache)
{
    if (!cache)
        return;
    free(cache->keys);
    free(cache->values);
    free(cache->record_values);
    free(cache->table_values);
    free(cache->name);
    free(cache);
}

static void fini(void *self)
{
    nn_caches *caches = self;
    for (size_t i = 0; i < caches->items.count; i++)
        destroy_cache(caches->items.items[i]);
    kb_vec_fini(&caches->items);
    nn_free_lane_names(caches->lane_names);
    free(caches);
}

static const rt_hooks hooks = {.fini = fini};

static kb_error *get_caches(kb_context *ctx, nn_caches **out)
{
    *out = rt_get_layer(ctx, RT_LAYER_ATTENTION);
    if (*out)
        return NULL;
    *out = kb_alloc_zeroed(1, sizeof **out);
    if (!*out)
        return kb_error_nomem();
    rt_set_layer(ctx, RT_LAYER_ATTENTION, &hooks, *out);
    return NULL;
}

kb_error *nn_find_cache(kb_context *ctx, const char *function, kb_kv_cache handle, nn_cache **out)
{
    const nn_caches *caches = rt_get_layer(ctx, RT_LAYER_ATTENTION);
    *out = NULL;
    uint64_t number = rt_number_of(ctx, handle.id);
    if (caches && number > 0 && number <= caches->items.count)
        *out = caches->items.items[number - 1];
    if (*out)
        return NULL;
    return rt_bad_handle(ctx, function, "cache", "freed", handle.id);
}

/* ---- Creation ---- */

enum { MAX_HEADS = 1 << 16, MAX_HEAD_DIM = 1 << 16, MAX_LAYERS = 1 << 16 };

static kb_error *check_sizes(const char *function, const kb_kv_cache_spec *s)
{
    if (s->batch == 0 || s->batch > INT32_MAX || s->capacity == 0 || s->capacity > INT32_MAX)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: batch is %" PRIu32 " and capacity %" PRIu32
                            ": both must be from 1 to %d",
                            function, s->batch, s->capacity, INT32_MAX);
    if (s->head_dim == 0 || s->head_dim > MAX_HEAD_DIM)
        return kb_error_new(KB_ERR_INPUT, "%s: head_dim is %" PRIu32 ": it must be from 1 to %d",
                            function, s->head_dim, MAX_HEAD_DIM);
    if (s->kv_heads == 0 || s->heads > MAX_HEADS || s->heads == 0 || s->heads % s->kv_heads != 0)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: heads is %" PRIu32 " and kv_heads %" PRIu32
                            ": heads must be a multiple of kv_heads, from 1 to %d",
                            function, s->heads, s->kv_heads, MAX_HEADS);
    if (s->layers > MAX_LAYERS)
        return kb_error_new(KB_ERR_INPUT, "%s: layers is %" PRIu32 ": the maximum is %d", function,
                            s->layers, MAX_LAYERS);
    return NULL;
}

static kb_error *check_spec(const char *function, const kb_kv_cache_spec *s, int64_t lanes)
{
    KB_TRY(check_sizes(function, s));
    if (!mem_is_float(s->dtype))
        return kb_error_new(KB_ERR_INPUT, "%s: dtype is %s: expected f16, bf16 or f32", function,
                            (unsigned)s->dtype < KB_DTYPES ? kb_dtype_name(s->dtype) : "invalid");
    if (s->page_tokens > s->capacity && s->page_tokens > INT32_MAX)
        return kb_error_new(KB_ERR_INPUT, "%s: page_tokens is %" PRIu32 ": the maximum is %d",
                            function, s->page_tokens, INT32_MAX);
    if (s->page_tokens == 0 && s->page_seed != 0)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: page_seed needs page_tokens: pages of a contiguous "
                            "cache are not shuffled",
                            function);
    if ((int64_t)s->split > lanes || s->split > NN_MAX_SPLIT)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: split is %" PRIu32 ": a kv head has %" PRId64
                            " PEs, and the maximum is %d",
                            function, s->split, lanes, NN_MAX_SPLIT);
    for (uint32_t b = 0; s->expected && b < s->batch; b++)
        if (s->expected[b] > s->capacity)
            return kb_error_new(KB_ERR_INPUT,
                                "%s: sequence %" PRIu32 " is expected to have %" PRIu32
                                " tokens: the capacity is %" PRIu32,
                                function, b, s->expected[b], s->capacity);
    return nn_check_rope(function, &s->rope, s->head_dim);
}

static int64_t lanes_of(int64_t pes, uint32_t kv_heads)
{
    return kv_heads > 0 && pes > kv_heads ? pes / kv_heads : 1;
}

static void begin_layout(const kb_machine *machine, const kb_kv_cache_spec *spec,
                         nn_cache_layout *layout)
{
    int64_t pes = (int64_t)machine->cubes * machine->pes;
    memset(layout, 0,
           sizeof *layout); /* padding too: plans that contain it are compared byte by byte */
    layout->batch = spec->batch;
    layout->capacity = spec->capacity;
    layout->heads = spec->heads;
    layout->kv_heads = spec->kv_heads;
    layout->head_dim = spec->head_dim;
    layout->group = spec->heads / spec->kv_heads;
    layout->pes = pes;
    layout->pes_of_cube = machine->pes;
    layout->lanes = lanes_of(pes, spec->kv_heads);
    layout->heads_of_pe = tl_cdiv(spec->kv_heads, pes);
    layout->dtype = spec->dtype;
    layout->is_paged = spec->page_tokens > 0;
}

static kb_error *make_index(kb_context *ctx, const nn_cache *cache, int64_t columns,
                            const int32_t *numbers, kb_tensor *tensor)
{
    static const kb_policy replicated = {.cube = KB_REPLICATE, .pe = KB_REPLICATE};
    const kb_tensor_spec spec = {.name = cache->name,
                                 .dtype = KB_I32,
                                 .shape =
                                     KB_SHAPE((uint64_t)cache->layout.batch, (uint64_t)columns),
                                 .policy = &replicated,
                                 .access = cache->access,
                                 .is_index = true};
    KB_TRY(kb_empty(ctx, &spec, tensor));
    return kb_tensor_set_slice(ctx, *tensor, cache->access, NULL, numbers,
                               (size_t)(cache->layout.batch * columns) * sizeof *numbers);
}

static kb_error *make_pages(kb_context *ctx, nn_cache *cache)
{
    static const kb_policy by_pe = {.cube = KB_ROW_WISE, .pe = KB_ROW_WISE};
    const nn_cache_layout *layout = &cache->layout;
    uint64_t pages = (uint64_t)(layout->pes * layout->heads_of_pe * layout->slots);
    kb_tensor_spec spec = {
        .name = cache->name, .dtype = layout->dtype, .policy = &by_pe, .access = cache->access};
    for (uint32_t layer = 0; layer < cache->layers; layer++) {
        spec.shape = KB_SHAPE(pages * (uint64_t)layout->head_dim, (uint64_t)layout->page_tokens);
        KB_TRY(kb_empty(ctx, &spec, &cache->keys[layer]));
        spec.shape = KB_SHAPE(pages * (uint64_t)layout->page_tokens, (uint64_t)layout->head_dim);
        KB_TRY(kb_empty(ctx, &spec, &cache->values[layer]));
    }
    return NULL;
}

static void note_layout(nn_cache *cache)
{
    const nn_cache_layout *layout = &cache->layout;
    kb_kv_cache_info *info = &cache->info;
    info->pes =
        (uint32_t)(layout->heads_of_pe > 1 ? layout->pes : layout->lanes * layout->kv_heads);
    info->pes_of_head = (uint32_t)layout->lanes;
    info->heads_of_pe = (uint32_t)layout->heads_of_pe;
    info->split = (uint32_t)layout->split;
    info->page_tokens = (uint32_t)layout->page_tokens;
    info->is_paged = layout->is_paged;
    info->pages = (uint64_t)layout->slots;
    info->bytes = 2 * (uint64_t)cache->layers *
                  (uint64_t)(layout->pes * layout->heads_of_pe * layout->slots) *
                  (uint64_t)(layout->head_dim * layout->page_tokens) *
                  kb_dtype_bytes(layout->dtype);
}

/* Frees the tensors. An error means that the context has failed. */
static kb_error *free_tensors(kb_context *ctx, nn_cache *cache)
{
    kb_error *first = NULL;
    kb_tensor *const single[] = {&cache->records, &cache->table};
    for (uint32_t i = 0; i < 2 + 2 * cache->layers; i++) {
        kb_tensor *tensor = i < 2 ? single[i] : (i % 2 ? cache->keys : cache->values) + (i - 2) / 2;
        kb_error *err = tensor->id != 0 ? kb_tensor_free(ctx, *tensor) : NULL;
        *tensor = (kb_tensor){0};
        if (!first)
            first = err;
        else
            kb_error_free(err);
    }
    return first;
}

static kb_error *fill_cache(kb_context *ctx, const kb_kv_cache_spec *spec, nn_caches *caches,
                            nn_cache *cache)
{
    const char *name = spec->name ? spec->name : "kv_cache";
    size_t name_bytes = strlen(name) + 1;
    cache->name = kb_alloc_array(name_bytes, 1);
    cache->keys = kb_alloc_zeroed(cache->layers, sizeof *cache->keys);
    cache->values = kb_alloc_zeroed(cache->layers, sizeof *cache->values);
    if (!cache->name || !cache->keys || !cache->values)
        return kb_error_nomem();
    memcpy(cache->name, name, name_bytes);
    KB_TRY(nn_plan_cache(ctx, spec, cache));
    KB_TRY(nn_set_lane_queues(ctx, &caches->lane_names, cache));
    KB_TRY(kb_rope_prepare(ctx, cache->sip, &cache->rope, spec->head_dim));
    kb_error *err = make_pages(ctx, cache);
    if (!err)
        err = make_index(ctx, cache, NN_RECORD, cache->record_values, &cache->records);
    if (!err && cache->layout.is_paged)
        err =
            make_index(ctx, cache, cache->layout.table_columns, cache->table_values, &cache->table);
    if (err)
        kb_error_free(free_tensors(ctx, cache));
    note_layout(cache);
    return err;
}

/* Makes a cache without names and tensors. */
static kb_error *begin_cache(kb_context *ctx, const char *function, const kb_kv_cache_spec *spec,
                             nn_cache **out)
{
    kb_machine machine = kb_context_machine(ctx);
    int64_t pes = (int64_t)machine.cubes * machine.pes;
    KB_TRY(check_spec(function, spec, lanes_of(pes, spec->kv_heads)));
    nn_cache *cache = kb_alloc_zeroed(1, sizeof *cache);
    *out = cache;
    if (!cache)
        return kb_error_nomem();
    begin_layout(&machine, spec, &cache->layout);
    cache->layers = spec->layers > 0 ? spec->layers : 1;
    return NULL;
}

kb_error *kb_kv_cache_plan(kb_context *ctx, const kb_kv_cache_spec *spec, kb_kv_cache_info *info)
{
    nn_cache *cache;
    *info = (kb_kv_cache_info){0};
    KB_TRY(begin_cache(ctx, "kb_kv_cache_plan", spec, &cache));
    kb_error *err = nn_plan_cache(ctx, spec, cache);
    if (!err) {
        note_layout(cache);
        *info = cache->info;
    }
    destroy_cache(cache);
    return err;
}

kb_error *kb_kv_cache_create(kb_context *ctx, const kb_kv_cache_spec *spec, kb_kv_cache *handle)
{
    static const char function[] = "kb_kv_cache_create";
    nn_caches *caches;
    nn_cache *cache;
    *handle = (kb_kv_cache){0};
    KB_TRY(get_caches(ctx, &caches));
    KB_TRY(begin_cache(ctx, function, spec, &cache));
    cache->sip = kb_ahbm_current_device(ctx);
    cache->rope = spec->rope;
    cache->access = spec->access;
    kb_error *err = fill_cache(ctx, spec, caches, cache);
    if (err)
        err = kb_error_wrap(err, "%s", function);
    else if (!kb_vec_push(&caches->items, cache)) {
        kb_error_free(free_tensors(ctx, cache));
        err = kb_error_nomem();
    }
    if (err) {
        destroy_cache(cache);
        return err;
    }
    *handle = (kb_kv_cache){rt_make_handle(ctx, caches->items.count)};
    return NULL;
}

kb_error *kb_kv_cache_free(kb_context *ctx, kb_kv_cache handle)
{
    nn_cache *cache;
    nn_caches *caches = rt_get_layer(ctx, RT_LAYER_ATTENTION);
    KB_TRY(nn_find_cache(ctx, "kb_kv_cache_free", handle, &cache));
    kb_error *err = free_tensors(ctx, cache);
    destroy_cache(cache);
    caches->items.items[rt_number_of(ctx, handle.id) - 1] = NULL;
    return err;
}

/* ---- Lengths ---- */

kb_error *kb_kv_cache_set_lengths(kb_context *ctx, kb_kv_cache handle, const uint32_t *cached,
                                  const uint32_t *added)
{
    static const char function[] = "kb_kv_cache_set_lengths";
    nn_cache *cache;
    KB_TRY(nn_find_cache(ctx, function, handle, &cache));
    const nn_cache_layout *layout = &cache->layout;
    for (int64_t b = 0; b < layout->batch; b++)
        if ((int64_t)cached[b] + added[b] > layout->capacity)
            return kb_error_new(KB_ERR_INPUT,
                                "%s: sequence %" PRId64 ": %" PRIu32 " cached and %" PRIu32
                                " added tokens exceed the capacity of %" PRId64,
                                function, b, cached[b], added[b], layout->capacity);
    for (int64_t b = 0; b < layout->batch; b++) {
        cache->record_values[b * NN_RECORD + NN_CACHED] = (int32_t)cached[b];
        cache->record_values[b * NN_RECORD + NN_ADDED] = (int32_t)added[b];
    }
    return kb_tensor_set_slice(ctx, cache->records, cache->access, NULL, cache->record_values,
                               (size_t)(layout->batch * NN_RECORD) * sizeof *cache->record_values);
}

/* The sequence as kernels read it. */
static nn_sequence get_sequence(const nn_cache *cache, int64_t index)
{
    const int32_t *record = &cache->record_values[index * NN_RECORD];
    return (nn_sequence){.index = index,
                         .cached = record[NN_CACHED],
                         .added = record[NN_ADDED],
                         .first = record[NN_FIRST],
                         .base = record[NN_BASE]};
}

/* ---- Access by the host ---- */

static kb_error *check_range(const char *function, const nn_cache *cache, const kb_kv_range *r)
{
    const nn_cache_layout *layout = &cache->layout;
    if (r->layer < cache->layers && r->sequence < layout->batch && r->kv_head < layout->kv_heads &&
        r->token <= layout->capacity && r->count <= layout->capacity - r->token)
        return NULL;
    return kb_error_new(KB_ERR_INPUT,
                        "%s: layer %" PRIu32 ", sequence %" PRIu32 ", kv head %" PRIu32 ", %" PRIu32
                        " tokens from %" PRIu32 ": the cache has %" PRIu32 " layers, %" PRId64
                        " sequences, %" PRId64 " kv heads, %" PRId64 " tokens",
                        function, r->layer, r->sequence, r->kv_head, r->count, r->token,
                        cache->layers, layout->batch, layout->kv_heads, layout->capacity);
}

/* Tokens of a page, and their slice of the tensor of keys or values. */
typedef struct page_part {
    kb_tensor tensor;
    kb_slice slice;
    int64_t tokens;
} page_part;

static page_part find_part(const nn_cache *cache, const kb_kv_range *r, int64_t token)
{
    const nn_cache_layout *layout = &cache->layout;
    nn_sequence s = get_sequence(cache, r->sequence);
    int64_t page = token / layout->page_tokens, at = token % layout->page_tokens;
    int64_t slot = layout->is_paged ? cache->table_values[r->sequence * layout->table_columns +
                                                          nn_table_column(layout, page)]
                                    : nn_contiguous_slot(layout, &s, page);
    uint64_t number =
        (uint64_t)nn_page_number(layout, r->kv_head, nn_lane_of_page(layout, &s, page), slot);
    int64_t left = (int64_t)r->token + r->count - token, room = layout->page_tokens - at;
    page_part part = {.tokens = kb_min(left, room)};
    uint64_t first = (uint64_t)at, end = (uint64_t)(at + part.tokens),
             dim = (uint64_t)layout->head_dim;
    if (r->values) {
        uint64_t row = number * (uint64_t)layout->page_tokens;
        part.tensor = cache->values[r->layer];
        part.slice = KB_SLICE({row + first, row + end});
    } else {
        part.tensor = cache->keys[r->layer];
        part.slice = KB_SLICE({number * dim, number * dim + dim}, {first, end});
    }
    return part;
}

/* Converts between the order of the tensor and (tokens, head_dim). */
static void transpose(float *to, const float *from, int64_t rows, int64_t columns)
{
    for (int64_t row = 0; row < rows; row++)
        for (int64_t column = 0; column < columns; column++)
            to[column * rows + row] = from[row * columns + column];
}

/* Buffers for one part: in the cache's dtype, and transposed. */
typedef struct part_buffers {
    void *stored;
    float *turned;
} part_buffers;

static kb_error *make_buffers(const nn_cache_layout *layout, part_buffers *buffers)
{
    size_t count = (size_t)(layout->page_tokens * layout->head_dim);
    buffers->stored = kb_alloc_array(count, kb_dtype_bytes(layout->dtype));
    buffers->turned = kb_alloc_array(count, sizeof *buffers->turned);
    return buffers->stored && buffers->turned ? NULL : kb_error_nomem();
}

static kb_error *read_part(kb_context *ctx, const nn_cache_layout *layout, const page_part *part,
                           bool values, const part_buffers *b, float *numbers)
{
    size_t count = (size_t)(part->tokens * layout->head_dim);
    KB_TRY(kb_tensor_get_slice(ctx, part->tensor, KB_UNTIMED, &part->slice, b->stored,
                               count * kb_dtype_bytes(layout->dtype)));
    kb_convert(KB_F32, values ? numbers : b->turned, layout->dtype, b->stored, count);
    if (!values)
        transpose(numbers, b->turned, layout->head_dim, part->tokens);
    return NULL;
}

static kb_error *write_part(kb_context *ctx, const nn_cache_layout *layout, const page_part *part,
                            bool values, const part_buffers *b, const float *numbers)
{
    size_t count = (size_t)(part->tokens * layout->head_dim);
    if (!values)
        transpose(b->turned, numbers, part->tokens, layout->head_dim);
    kb_convert(layout->dtype, b->stored, KB_F32, values ? numbers : b->turned, count);
    return kb_tensor_set_slice(ctx, part->tensor, KB_UNTIMED, &part->slice, b->stored,
                               count * kb_dtype_bytes(layout->dtype));
}

/* Reads into `to`, or writes `from` if `to` is NULL. */
static kb_error *move_range(kb_context *ctx, const char *function, kb_kv_cache handle,
                            const kb_kv_range *r, float *to, const float *from)
{
    nn_cache *cache;
    part_buffers buffers;
    KB_TRY(nn_find_cache(ctx, function, handle, &cache));
    KB_TRY(check_range(function, cache, r));
    const nn_cache_layout *layout = &cache->layout;
    kb_error *err = make_buffers(layout, &buffers);
    for (int64_t done = 0, tokens; done < r->count && !err; done += tokens) {
        page_part part = find_part(cache, r, r->token + done);
        tokens = part.tokens;
        err = to ? read_part(ctx, layout, &part, r->values, &buffers, to + done * layout->head_dim)
                 : write_part(ctx, layout, &part, r->values, &buffers,
                              from + done * layout->head_dim);
    }
    free(buffers.stored);
    free(buffers.turned);
    return err;
}

kb_error *kb_kv_cache_get(kb_context *ctx, kb_kv_cache cache, const kb_kv_range *range,
                          float *numbers)
{
    return move_range(ctx, "kb_kv_cache_get", cache, range, numbers, NULL);
}

kb_error *kb_kv_cache_set(kb_context *ctx, kb_kv_cache cache, const kb_kv_range *range,
                          const float *numbers)
{
    return move_range(ctx, "kb_kv_cache_set", cache, range, NULL, numbers);
}

kb_error *kb_kv_cache_get_info(kb_context *ctx, kb_kv_cache handle, kb_kv_cache_info *info)
{
    nn_cache *cache;
    *info = (kb_kv_cache_info){0};
    KB_TRY(nn_find_cache(ctx, "kb_kv_cache_get_info", handle, &cache));
    *info = cache->info;
    return NULL;
}

/* ---- In kernels ---- */

tl_tensor nn_load_records(tl_context *tl, tl_ptr records, int64_t first, int64_t count)
{
    return tl_load(records + first * NN_RECORD * 4, tl_shape(count, NN_RECORD), TL_I32);
}

tl_tensor nn_load_slots(tl_context *tl, const nn_cache_layout *layout, tl_ptr table,
                        int64_t sequence, int64_t column, int64_t count)
{
    return tl_load(table + (sequence * layout->table_columns + column) * 4, tl_shape(count),
                   TL_I32);
}

void nn_read_records(tl_context *tl, tl_tensor loaded, int64_t first, int64_t count,
                     nn_sequence *sequences)
{
    int64_t numbers[NN_RECORDS_AT_A_TIME * NN_RECORD];
    KB_ASSERT(count <= NN_RECORDS_AT_A_TIME);
    nn_read_slots(tl, loaded, count * NN_RECORD, numbers);
    for (int64_t i = 0; i < count; i++) {
        const int64_t *record = &numbers[i * NN_RECORD];
        sequences[i] = (nn_sequence){.index = first + i,
                                     .cached = record[NN_CACHED],
                                     .added = record[NN_ADDED],
                                     .first = record[NN_FIRST],
                                     .base = record[NN_BASE]};
    }
}

void nn_read_slots(tl_context *tl, tl_tensor loaded, int64_t count, int64_t *slots)
{
    tl_items(loaded, slots, count);
    tl_free(loaded);
}
