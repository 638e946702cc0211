/*
 * tune.c: measures which entry is the fastest for a call. Entries that compute the same in any
 * layout are run timing-only in a separate context on the same machine, and the fastest is chosen.
 * This takes no simulated time, and is done once for each size. Sizes above 16 MiB use the order at
 * 16 MiB.
 *
 * The measurement is that of the benches ccl_*: all ranks call at one instant, with queues
 * installed and no other load, on tensors that are split evenly over all PEs and need no staging
 * (whose time does not depend on the entry). The time ends when the last rank is done. Here one
 * caller drives all ranks, in the benches there is a worker for each rank; both launch kernels in
 * the order of ranks, so the times are equal to the femtosecond. Not measured: groups of some of
 * the ranks if ranks are PEs; there the first suitable entry is used.
 */
#include "tune.h"

#include <stdlib.h>
#include <string.h>

#include "communicator.h"

static const uint64_t largest_measured = 16 << 20;

ccl_fitness ccl_entry_fitness(const ccl_entry *entry, kb_collective_kind kind, uint32_t world,
                              bool rank_is_pe)
{
    const kb_ccl_algorithm *algorithm = entry->algorithm;
    if (!(algorithm->collectives >> kind & 1))
        return CCL_OTHER_COLLECTIVE;
    if (entry->rank_is_pe != rank_is_pe)
        return CCL_OTHER_RANKS;
    if (entry->world_size != 0 && entry->world_size != world)
        return CCL_OTHER_WORLD;
    if (entry->auto_max_ranks != 0 && world > entry->auto_max_ranks)
        return CCL_TOO_MANY_RANKS;
    if (algorithm->reduce_shards || entry->reduce_shards)
        return CCL_OTHER_OPERATION;
    if (!rank_is_pe && strcmp(entry->mapper->name, "lanes") != 0)
        return CCL_ONE_LAYOUT;
    return algorithm->same_bits ? CCL_FITS : CCL_OTHER_BITS;
}

/* Whether auto may select the entry for such a call. */
static bool is_candidate(const ccl_state *state, const ccl_entry *entry, kb_collective_kind kind,
                         uint32_t world)
{
    return ccl_entry_fitness(entry, kind, world, state->rank_is_pe) == CCL_FITS;
}

static kb_error *none_can(const ccl_config *config, kb_collective_kind kind)
{
    return kb_error_new(KB_ERR_INPUT, "no algorithm in %s can do %s in any layout", config->path,
                        kb_collective_name(kind));
}

/* ---- Measuring ---- */

/* Blocks of the larger one of input and output: the size of a call includes all of them. */
static uint64_t blocks_of(kb_collective_kind kind, uint32_t world)
{
    return ccl_input_has_blocks(kind) || ccl_output_has_blocks(kind) ? world : 1;
}

uint64_t ccl_whole_size(kb_collective_kind kind, uint32_t world, kb_dtype dtype, uint64_t bytes)
{
    uint64_t grain = blocks_of(kind, world) * kb_dtype_bytes(dtype);
    return bytes > grain ? bytes / grain * grain : grain;
}

/* A context for measurements, with tensors on the devices of all ranks. */
typedef struct bench {
    kb_context *ctx;
    ccl_group *group;   /* of that context */
    kb_tensor *tensors; /* inputs and outputs by device; and small ones for the first call */
} bench;

enum { INPUTS, OUTPUTS, SMALL_INPUTS, SMALL_OUTPUTS, ROLES };

static kb_tensor *role(const bench *b, int which)
{
    return b->tensors + (size_t)which * b->group->device_count;
}

/* A rank that is a device has its blocks split over all PEs; a rank that is a PE has them as a
 * tile. */
static kb_error *make_tensor(const bench *b, uint32_t device, kb_dtype dtype, uint64_t blocks,
                             uint64_t elements, kb_tensor *tensor)
{
    kb_policy policy = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    kb_tensor_spec spec = {
        .name = "measured",
        .dtype = dtype,
        .shape = KB_SHAPE(blocks, elements),
        .policy = &policy,
        .access = KB_UNTIMED,
    };
    if (b->group->state->rank_is_pe) {
        spec.shape = KB_SHAPE(1, ccl_ranks_on(b->group, device) * blocks * elements);
        policy = (kb_policy){
            .tiling = KB_TILED_COLUMN_MAJOR, .tile_rows = 1, .tile_columns = blocks * elements};
    }
    KB_TRY(kb_ahbm_set_device(b->ctx, b->group->sips[device]));
    return kb_empty(b->ctx, &spec, tensor);
}

static kb_error *make_tensors(const bench *b, const ccl_question *question, bool small)
{
    kb_collective_kind kind = question->kind;
    kb_dtype dtype = question->dtype;
    uint64_t in_blocks = ccl_input_has_blocks(kind) ? b->group->world : 1;
    uint64_t out_blocks = ccl_output_has_blocks(kind) ? b->group->world : 1;
    uint64_t grain = blocks_of(kind, b->group->world) * kb_dtype_bytes(dtype);
    uint64_t size = small ? 0 : question->bytes;
    uint64_t elements = ccl_whole_size(kind, b->group->world, dtype, size) / grain;
    kb_tensor *inputs = role(b, small ? SMALL_INPUTS : INPUTS);
    kb_tensor *outputs = role(b, small ? SMALL_OUTPUTS : OUTPUTS);
    for (uint32_t device = 0; device < b->group->device_count; device++) {
        KB_TRY(make_tensor(b, device, dtype, in_blocks, elements, &inputs[device]));
        outputs[device] = inputs[device];
        if (!ccl_is_in_place(kind))
            KB_TRY(make_tensor(b, device, dtype, out_blocks, elements, &outputs[device]));
    }
    return NULL;
}

static void close_bench(bench *b)
{
    free(b->tensors);
    kb_context_destroy(b->ctx);
    *b = (bench){0};
}

static kb_error *fill_bench(bench *b, const ccl_question *question)
{
    kb_group handle = {0};
    uint32_t device, device_count;
    KB_TRY(kb_distributed_init_process_group(b->ctx, "ahbm"));
    if (question->ranks)
        KB_TRY(kb_distributed_new_group(b->ctx, question->ranks, question->rank_count, &handle));
    KB_TRY(ccl_find_group(b->ctx, "ccl_measure", handle, &b->group, &device, &device_count));
    b->tensors = kb_alloc_zeroed((size_t)ROLES * device_count, sizeof *b->tensors);
    if (!b->tensors)
        return kb_error_nomem();
    KB_TRY(make_tensors(b, question, false));
    return make_tensors(b, question, true);
}

static kb_error *open_bench(kb_context *like, const ccl_question *question, bench *b)
{
    *b = (bench){0};
    KB_TRY(rt_context_like(like, &b->ctx));
    kb_error *err = fill_bench(b, question);
    if (err)
        close_bench(b);
    return err;
}

static kb_collective make_call(const bench *b, const ccl_question *question, const char *algorithm,
                               bool small)
{
    return (kb_collective){
        .kind = question->kind,
        .inputs = role(b, small ? SMALL_INPUTS : INPUTS),
        .outputs = role(b, small ? SMALL_OUTPUTS : OUTPUTS),
        .count = b->group->device_count,
        .op = question->op,
        .root = question->root,
        .options = {.group = ccl_group_handle(b->ctx, b->group), .algorithm = algorithm},
    };
}

/* The time of a call; KB_FOREVER if it exceeds the limit. A first call, with small tensors,
 * installs the queues. */
static kb_error *measure(const bench *b, const ccl_question *question, const char *algorithm,
                         kb_time limit, ccl_measurement *result)
{
    kb_collective call = make_call(b, question, algorithm, true);
    KB_TRY(kb_distributed_call(b->ctx, &call));
    call = make_call(b, question, algorithm, false);
    kb_request work;
    kb_completion completion;
    kb_time before = kb_context_now(b->ctx);
    bool done = true;
    call.options.work = &work;
    KB_TRY(kb_distributed_call(b->ctx, &call));
    if (limit != KB_FOREVER) {
        KB_TRY(kb_sim_run(kb_context_sim(b->ctx), kb_time_add(before, limit)));
        KB_TRY(kb_request_test(b->ctx, work, &done));
    }
    result->time = KB_FOREVER;
    if (!done)
        return NULL; /* destroyed with the context */
    KB_TRY(kb_request_wait(b->ctx, work, &completion));
    result->time = completion.ended - before;
    KB_TRY(kb_request_free(b->ctx, work));
    kb_collective_stats stats;
    KB_TRY(kb_distributed_get_stats(b->ctx, ccl_group_handle(b->ctx, b->group), &stats));
    result->bound = stats.lower_bound;
    return NULL;
}

static int by_time(const void *a, const void *b)
{
    const ccl_measurement *x = a, *y = b;
    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    return (x->entry > y->entry) - (x->entry < y->entry);
}

/* Skips entries that do not work on this machine; *refused is the last error, for the case that
 * none works. After an error, and after a call that exceeded the limit, the context is replaced. */
static kb_error *measure_all(kb_context *ctx, const ccl_config *config,
                             const ccl_question *question, bench *b, ccl_measurements *results,
                             kb_error **refused)
{
    ccl_state *state;
    KB_TRY(ccl_get_state(ctx, &state));
    kb_time limit = KB_FOREVER;
    uint32_t world = b->group->world;
    for (size_t i = 0; i < config->entries.count; i++) {
        const ccl_entry *entry = &config->entries.items[i];
        if (!is_candidate(state, entry, question->kind, world))
            continue;
        if (!b->ctx)
            KB_TRY(open_bench(ctx, question, b));
        ccl_measurement result = {.entry = i};
        kb_error *err = measure(b, question, entry->name, limit, &result);
        if (kb_error_code(err) == KB_ERR_HOST)
            return err;
        if (err && question->on_refused)
            question->on_refused(question->self, i, err);
        if (err || result.time == KB_FOREVER) {
            close_bench(b);
            kb_error_free(*refused);
            *refused = err;
            continue;
        }
        if (question->best_only && result.time < limit)
            limit = result.time;
        if (!kb_vec_push(results, result))
            return kb_error_nomem();
    }
    return NULL;
}

kb_error *ccl_measure(kb_context *ctx, const ccl_config *config, const ccl_question *question,
                      ccl_measurements *results)
{
    bench b;
    kb_error *refused = NULL;
    results->count = 0;
    KB_TRY(open_bench(ctx, question, &b));
    kb_error *err = measure_all(ctx, config, question, &b, results, &refused);
    close_bench(&b);
    if (!err && results->count == 0) {
        err = refused ? refused : none_can(config, question->kind);
        refused = NULL;
    }
    kb_error_free(refused);
    if (results->count > 0)
        qsort(results->items, results->count, sizeof *results->items, by_time);
    return err;
}

/* ---- Choosing ---- */

/* The first entry that works for the group; NULL if there are several and they are to be measured.
 * An error if there is none. Sends use the first one, because two ranks must agree on it. */
static kb_error *only_candidate(ccl_group *group, kb_collective_kind kind, const ccl_entry **out)
{
    const ccl_state *state = group->state;
    kb_error *refused = none_can(&state->config, kind);
    size_t count = 0;
    *out = NULL;
    for (size_t i = 0; i < state->config.entries.count; i++) {
        const ccl_entry *entry = &state->config.entries.items[i];
        ccl_instance *instance;
        if (!is_candidate(state, entry, kind, group->world))
            continue;
        kb_error *err = ccl_get_instance(group, entry, &instance);
        if (!err) {
            *out = count++ == 0 ? entry : *out;
            continue;
        }
        kb_error_free(refused);
        refused = err;
        if (kb_error_code(err) == KB_ERR_HOST)
            return err;
    }
    if (count == 0)
        return refused;
    kb_error_free(refused);
    bool can_be_measured = !ccl_is_pair(kind) && (!state->rank_is_pe || group->id == 0);
    if (count > 1 && group->world > 1 && can_be_measured)
        *out = NULL;
    return NULL;
}

/* From the table that `kernbench ccl tune` wrote: the entry of the smallest size not below that of
 * the call. */
static const ccl_entry *look_up(const ccl_group *group, const ccl_op *op)
{
    const ccl_state *state = group->state;
    const ccl_tuned *best = NULL;
    uint64_t machine = topo_machine_hash(state->machine);
    for (size_t i = 0; i < state->config.tuned.count && group->id == 0; i++) {
        const ccl_tuned *t = &state->config.tuned.items[i];
        bool is_ours = t->machine == machine && t->kind == op->signature.kind &&
                       t->world == group->world && t->up_to_bytes >= op->size;
        if (is_ours && (!best || t->up_to_bytes < best->up_to_bytes))
            best = t;
    }
    if (!best)
        return NULL;
    const ccl_entry *entry = &state->config.entries.items[best->entry];
    return is_candidate(state, entry, op->signature.kind, group->world) ? entry : NULL;
}

static kb_error *measure_choice(ccl_group *group, const ccl_op *op, uint64_t bytes,
                                const ccl_entry **entry)
{
    ccl_state *state = group->state;
    const ccl_question question = {
        .kind = op->signature.kind,
        .bytes = bytes,
        .dtype = op->signature.dtype,
        .op = op->signature.op,
        .root = op->signature.root,
        .ranks = group->id == 0 ? NULL : group->global_ranks,
        .rank_count = group->world,
        .best_only = true,
    };
    ccl_measurements results = {0};
    kb_error *err = ccl_measure(state->ctx, &state->config, &question, &results);
    if (!err)
        *entry = &state->config.entries.items[results.items[0].entry];
    kb_vec_fini(&results);
    return err ? kb_error_wrap(err, "choosing an algorithm") : NULL;
}

kb_error *ccl_choose(ccl_group *group, const ccl_op *op, const ccl_entry **entry)
{
    ccl_choice new = {
        .kind = op->signature.kind,
        .dtype = op->signature.dtype,
        .op = ccl_reduces(op->signature.kind) ? op->signature.op : KB_SUM,
        .root = ccl_has_root(op->signature.kind) ? op->signature.root : 0,
        .bytes = op->size < largest_measured ? op->size : largest_measured,
    };
    for (size_t i = 0; i < group->choices.count; i++) {
        const ccl_choice *choice = &group->choices.items[i];
        if (choice->kind == new.kind && choice->dtype == new.dtype && choice->op == new.op &&
            choice->root == new.root && choice->bytes == new.bytes) {
            *entry = choice->entry;
            return NULL;
        }
    }
    *entry = look_up(group, op);
    if (*entry)
        return NULL; /* not cached: the table has ranges of sizes */
    KB_TRY(only_candidate(group, op->signature.kind, entry));
    if (!*entry)
        KB_TRY(measure_choice(group, op, new.bytes, entry));
    new.entry = *entry;
    return kb_vec_push(&group->choices, new) ? NULL : kb_error_nomem();
}
