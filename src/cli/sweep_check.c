/*
 * sweep_check.c: see sweep_check.h. Each value of each axis is looked at in one point, in which all
 * other axes have their first value. A key of a machine may depend on a value of another axis, such
 * as a component that it selects: so it is wrong only if no point that is looked at has it.
 */
#include "sweep_check.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char ccl_prefix[] = "ccl.";
enum { CCL_PREFIX = sizeof ccl_prefix - 1, MAX_CHECKED = 64 };

/* ---- Parameters ---------------------------------------------------------------------------- */

static kb_error *check_param(const sweep_bench *bench, const char *setting, const char *origin)
{
    kb_bench *made;
    if (bench->is_python)
        return NULL;
    rt_bench_options o = {.settings = &setting, .setting_count = 1};
    kb_error *err = rt_bench_create(bench->program.spec, &o, &made);
    if (err)
        return kb_error_wrap(err, "%s", origin);
    rt_bench_destroy(made);
    return NULL;
}

static kb_error *check_params_of(const sweep_bench *bench, const sweep_fixed_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        KB_TRY(check_param(bench, list->items[i].setting, list->items[i].origin));
    return NULL;
}

static const sweep_axis *find_axis(const sweep_plan *plan, const sweep_block *block,
                                   sweep_target target)
{
    for (size_t d = 0; d < block->dimensions.count; d++)
        for (size_t i = 0; i < block->dimensions.items[d].axes.count; i++) {
            const sweep_axis *axis = &plan->axes.items[block->dimensions.items[d].axes.items[i]];
            if (axis->target == target)
                return axis;
        }
    return NULL;
}

static kb_error *check_axis_of(const sweep_bench *bench, const sweep_axis *axis)
{
    if (axis->target != SWEEP_PARAM)
        return NULL;
    for (size_t v = 0; v < axis->values.count; v++)
        KB_TRY(check_param(bench, axis->values.items[v].setting, axis->origin));
    return NULL;
}

/* All parameters of a block, for one of its benches. */
static kb_error *check_bench(const sweep_worker *worker, const sweep_block *block, const char *name)
{
    const sweep_plan *plan = worker->plan;
    const sweep_bench *bench = sweep_worker_bench(worker, name);
    KB_TRY(check_params_of(bench, &plan->common.params));
    KB_TRY(check_params_of(bench, &block->params));
    for (size_t d = 0; d < block->dimensions.count; d++)
        for (size_t i = 0; i < block->dimensions.items[d].axes.count; i++)
            KB_TRY(
                check_axis_of(bench, &plan->axes.items[block->dimensions.items[d].axes.items[i]]));
    return NULL;
}

static kb_error *check_benches(const sweep_worker *worker, const sweep_block *block)
{
    if (block->bench)
        return check_bench(worker, block, block->bench);
    const sweep_axis *benches = find_axis(worker->plan, block, SWEEP_BENCH);
    for (size_t v = 0; v < benches->values.count; v++)
        KB_TRY(check_bench(worker, block, benches->values.items[v].text));
    return NULL;
}

/* ---- Settings and topologies ---------------------------------------------------------------- */

/* A point of the block in which each axis has its first value, but for one of them. */
typedef struct sample {
    const sweep_plan *plan;
    const sweep_block *block;
    const sweep_axis *axis; /* NULL: all have their first */
    size_t value;
    const char *topology;
    sweep_texts machine, ccl; /* settings; of ccl.yaml without the prefix */
} sample;

static bool add_setting(sample *s, const char *setting)
{
    if (strncmp(setting, ccl_prefix, CCL_PREFIX) == 0)
        return kb_vec_push(&s->ccl, setting + CCL_PREFIX);
    return kb_vec_push(&s->machine, setting);
}

static bool add_axis(sample *s, const sweep_axis *axis)
{
    size_t value = axis == s->axis ? s->value : 0;
    if (axis->target == SWEEP_TOPOLOGY)
        s->topology = axis->values.items[value].text;
    return axis->target != SWEEP_SETTING || add_setting(s, axis->values.items[value].setting);
}

static kb_error *fill_sample(sample *s)
{
    const sweep_fixed_list *lists[] = {&s->plan->common.settings, &s->block->settings};
    bool good = true;
    s->machine.count = s->ccl.count = 0;
    s->topology = s->plan->topology;
    for (size_t l = 0; l < 2; l++)
        for (size_t i = 0; i < lists[l]->count; i++)
            good = good && add_setting(s, lists[l]->items[i].setting);
    for (size_t d = 0; d < s->block->dimensions.count; d++)
        for (size_t i = 0; i < s->block->dimensions.items[d].axes.count; i++)
            good = good &&
                   add_axis(s, &s->plan->axes.items[s->block->dimensions.items[d].axes.items[i]]);
    return good ? NULL : kb_error_nomem();
}

static kb_error *check_machine(const sample *s)
{
    topo_source source = {
        .path = s->topology, .settings = s->machine.items, .setting_count = s->machine.count};
    return topo_check_settings(&source);
}

static kb_error *check_ccl(const sweep_worker *worker, const sample *s)
{
    cli_list settings = {0};
    kb_error *err = NULL;
    for (size_t i = 0; i < s->ccl.count && !err; i++)
        if (!kb_vec_push(&settings, s->ccl.items[i] - CCL_PREFIX))
            err = kb_error_nomem();
    for (size_t i = 0; i < worker->benches.count && !err; i++)
        if (!worker->benches.items[i].is_python)
            err =
                collectives_check_config(&worker->benches.items[i].program.collectives, &settings);
    cli_list_fini(&settings);
    return err;
}

static kb_error *check_sample(const sweep_worker *worker, sample *s)
{
    KB_TRY(fill_sample(s));
    kb_error *err = check_machine(s);
    return err ? err : check_ccl(worker, s);
}

/* An error if none of its values is good. */
static kb_error *check_axis(const sweep_worker *worker, sample *s, const sweep_axis *axis)
{
    kb_error *first = NULL;
    s->axis = axis;
    for (s->value = 0; s->value < axis->values.count && s->value < MAX_CHECKED; s->value++) {
        kb_error *err = check_sample(worker, s);
        if (!err || kb_error_code(err) == KB_ERR_HOST) {
            kb_error_free(first);
            return err;
        }
        if (first)
            kb_error_free(err);
        else
            first = err;
    }
    return first;
}

static kb_error *check_settings(const sweep_worker *worker, const sweep_block *block)
{
    sample s = {.plan = worker->plan, .block = block};
    bool has_axes = false;
    kb_error *err = NULL;
    for (size_t d = 0; d < block->dimensions.count && !err; d++)
        for (size_t i = 0; i < block->dimensions.items[d].axes.count && !err; i++) {
            const sweep_axis *axis =
                &worker->plan->axes.items[block->dimensions.items[d].axes.items[i]];
            if (axis->target != SWEEP_SETTING && axis->target != SWEEP_TOPOLOGY)
                continue;
            has_axes = true;
            err = check_axis(worker, &s, axis);
        }
    s.axis = NULL;
    if (!err && !has_axes)
        err = check_sample(worker, &s);
    kb_vec_fini(&s.machine);
    kb_vec_fini(&s.ccl);
    return err;
}

static bool is_builtin(const char *topology)
{
    for (const topo_builtin *builtin = topo_builtins; builtin->name; builtin++)
        if (strcmp(builtin->name, topology) == 0)
            return true;
    return false;
}

/* Of an axis: one that does not exist is a mistake even if others do. */
static kb_error *check_topologies(const sweep_plan *plan, const sweep_block *block)
{
    const sweep_axis *axis = find_axis(plan, block, SWEEP_TOPOLOGY);
    for (size_t v = 0; axis && v < axis->values.count; v++) {
        const char *topology = axis->values.items[v].text;
        if (access(topology, F_OK) != 0 && !is_builtin(topology))
            return kb_error_new(KB_ERR_INPUT, "%s: no such file or built-in machine: '%.80s'",
                                axis->origin, topology);
    }
    return NULL;
}

kb_error *sweep_check(const sweep_worker *worker)
{
    const sweep_plan *plan = worker->plan;
    for (size_t b = 0; b < plan->blocks.count; b++) {
        KB_TRY(check_benches(worker, &plan->blocks.items[b]));
        KB_TRY(check_topologies(plan, &plan->blocks.items[b]));
        KB_TRY(check_settings(worker, &plan->blocks.items[b]));
    }
    return NULL;
}
