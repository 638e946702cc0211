/*
 * compute.c: computes some values and all they need.
 *
 * They are ordered as they were made, so inputs come first. A thread takes the next part of
 * the first value that has one left, and waits for the inputs: other threads have these in hand, as
 * they come earlier, so one thread never waits. All memory is allocated before and all references
 * are released after that, by the owner alone.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "blas.h"
#include "data_private.h"

/* Less is done by the time a thread has woken up. About a nanosecond each, as data_kernel.cost. */
static const uint64_t worth_sharing = 200000;

/* ---- The list of what to compute --------------------------------------------------------- */

static void forget_collected(data_store *store)
{
    for (size_t i = 0; i < store->collected.count; i++)
        store->collected.items[i]->is_collected = false;
    store->collected.count = 0;
}

kb_error *data_collect(data_store *store, data_value *value)
{
    if (value->is_computed || value->is_collected)
        return NULL;
    if (!kb_vec_push(&store->collected, value)) {
        forget_collected(store);
        return kb_error_nomem();
    }
    value->is_collected = true;
    return NULL;
}

static int by_serial(const void *a, const void *b)
{
    const data_value *const *left = a, *const *right = b;
    return ((*left)->serial > (*right)->serial) - ((*left)->serial < (*right)->serial);
}

static kb_error *collect_inputs(data_store *store)
{
    const data_value_list *list = &store->collected;
    for (size_t i = 0; i < list->count; i++)
        for (uint32_t j = 0; j < list->items[i]->input_count; j++)
            KB_TRY(data_collect(store, list->items[i]->inputs[j]));
    if (list->count > 1)
        qsort(list->items, list->count, sizeof *list->items, by_serial);
    return NULL;
}

/* ---- Parts ------------------------------------------------------------------------------- */

static bool is_ready(const data_value *value)
{
    return atomic_load_explicit(&value->parts_left, memory_order_acquire) == 0;
}

/* Most are ready soon, and sleeping and waking takes long. */
static void wait_for(data_job *job, const data_value *input)
{
    enum { patience = 50 };
    for (int i = 0; i < patience && !is_ready(input); i++)
        sched_yield();
    if (is_ready(input))
        return;
    pthread_mutex_lock(&job->lock);
    atomic_fetch_add(&job->sleepers, 1);
    while (atomic_load(&input->parts_left) > 0)
        pthread_cond_wait(&job->computed, &job->lock);
    atomic_fetch_sub(&job->sleepers, 1);
    pthread_mutex_unlock(&job->lock);
}

/*
 * A thread that goes to sleep first says so and then looks again; here the order is reversed. All
 * of it is in one order, so either they see that it is ready, or they are seen here.
 */
static void finish_part(data_job *job, data_value *value)
{
    bool is_last = atomic_fetch_sub(&value->parts_left, 1) == 1;
    if (!is_last || atomic_load(&job->sleepers) == 0)
        return;
    pthread_mutex_lock(&job->lock);
    pthread_cond_broadcast(&job->computed);
    pthread_mutex_unlock(&job->lock);
}

void data_job_run(data_job *job, data_scratch *scratch)
{
    size_t at = 0, count = job->values->count;
    for (;;) {
        uint64_t item = atomic_fetch_add_explicit(&job->next_item, 1, memory_order_relaxed);
        while (at < count && item >= job->first_items[at + 1])
            at++;
        if (at == count)
            return;
        data_value *value = job->values->items[at];
        for (uint32_t i = 0; i < value->input_count; i++)
            wait_for(job, value->inputs[i]);
        data_kernel_of(value->op)->run(value, item - job->first_items[at], scratch);
        finish_part(job, value);
    }
}

/* What the list costs, and how much of that must be done one after the other. */
typedef struct effort {
    uint64_t work, path;
    bool needs_scratch, needs_blas;
} effort;

/* Numbers the parts. There is room for the numbers. */
static effort prepare(data_store *store)
{
    effort all = {0};
    uint64_t items = 0;
    for (size_t i = 0; i < store->collected.count; i++) {
        data_value *value = store->collected.items[i];
        const data_kernel *kernel = data_kernel_of(value->op);
        uint64_t parts = kernel->parts(value), cost = kernel->cost(value);
        atomic_store_explicit(&value->parts_left, parts, memory_order_relaxed);
        store->first_items.items[i] = items;
        items += parts;
        value->soonest = 0;
        for (uint32_t j = 0; j < value->input_count; j++)
            if (value->inputs[j]->soonest > value->soonest)
                value->soonest = value->inputs[j]->soonest;
        value->soonest += parts ? cost / parts : 0;
        all.work += cost;
        all.path = value->soonest > all.path ? value->soonest : all.path;
        all.needs_scratch |= kernel->needs_scratch;
        all.needs_blas |= kernel->needs_blas;
    }
    store->first_items.items[store->collected.count] = items;
    return all;
}

/* ---- All of it --------------------------------------------------------------------------- */

static bool alloc_results(data_store *store)
{
    for (size_t i = 0; i < store->collected.count; i++)
        if (!data_value_alloc(store->collected.items[i]))
            return false;
    return true;
}

static bool need_scratches(data_store *store, unsigned count)
{
    if (store->scratch_count >= count)
        return true;
    data_scratch *scratches = kb_alloc_large(count, sizeof *scratches);
    if (!scratches)
        return false;
    free(store->scratches);
    store->scratches = scratches;
    store->scratch_count = count;
    return true;
}

/* Runs what is prepared, with whatever help there is and is worth it. */
static kb_error *run(data_store *store, const effort *all)
{
    data_job job = {
        .values = &store->collected,
        .first_items = store->first_items.items,
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .computed = PTHREAD_COND_INITIALIZER,
    };
    bool shares = store->threads && all->work >= worth_sharing && all->work / 3 >= all->path / 2;
    unsigned threads = 1 + (shares ? data_threads_start(store->threads) : 0);
    if (all->needs_scratch && !need_scratches(store, threads))
        return kb_error_nomem();
    if (all->needs_blas)
        KB_TRY(data_blas_begin(&threads));
    if (threads > 1)
        data_threads_run(store->threads, &job, store->scratches);
    else
        data_job_run(&job, store->scratches);
    if (all->needs_blas)
        data_blas_end(threads);
    return NULL;
}

static kb_error *compute_collected(data_store *store)
{
    store->first_items.count = 0;
    if (!kb_vec_reserve(&store->first_items, store->collected.count + 1) || !alloc_results(store))
        return kb_error_nomem();
    effort all = prepare(store);
    return run(store, &all);
}

static void finish(data_store *store)
{
    for (size_t i = 0; i < store->collected.count; i++) {
        data_value *value = store->collected.items[i];
        value->is_collected = false;
        value->soonest = 0;
        data_value_is_computed(value);
    }
    store->stats.computed += store->collected.count;
    store->collected.count = 0;
}

/* All is as it was before. */
static void give_up(data_store *store)
{
    for (size_t i = 0; i < store->collected.count; i++) {
        data_value *value = store->collected.items[i];
        atomic_store_explicit(&value->parts_left, 0, memory_order_relaxed);
        value->soonest = 0;
        data_value_unalloc(value);
    }
    forget_collected(store);
}

kb_error *data_compute(data_store *store)
{
    if (store->collected.count == 0)
        return NULL;
    KB_TRY(collect_inputs(store));
    kb_error *err = compute_collected(store);
    if (err)
        give_up(store);
    else
        finish(store);
    return err;
}

/* ---- Operations -------------------------------------------------------------------------- */

unsigned data_op_inputs(data_op op)
{
#define INPUTS(op, name, inputs, kernel) [DATA_##op] = (inputs),
    static const unsigned char inputs[] = {TL_DETAIL_EACH_OP(INPUTS)};
#undef INPUTS
    return inputs[op];
}

const data_kernel *data_kernel_of(int op)
{
#define KERNEL(op, name, inputs, kernel) [DATA_##op] = &data_##kernel##_kernel,
    static const data_kernel *const kernels[] = {
        TL_DETAIL_EACH_OP(KERNEL)[DATA_DOT] = &data_dot_kernel,
        [DATA_FULL] = &data_full_kernel,
        [DATA_ARANGE] = &data_arange_kernel,
    };
#undef KERNEL
    return kernels[op];
}
