/*
 * sweep_plan.c: building a plan, and finding its points: see sweep_plan.h.
 *
 * A later word on a key replaces an earlier one: options of the command line come after the file.
 */
#include "sweep_plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

kb_error *sweep_plan_create(sweep_plan **out)
{
    *out = kb_alloc_zeroed(1, sizeof **out);
    if (!*out)
        return kb_error_nomem();
    kb_arena_init(&(*out)->arena);
    (*out)->repeat = 1;
    return NULL;
}

static void fini_block(sweep_block *block)
{
    kb_vec_fini(&block->settings);
    kb_vec_fini(&block->params);
    kb_vec_fini(&block->axes);
    for (size_t i = 0; i < block->zips.count; i++)
        kb_vec_fini(&block->zips.items[i]);
    kb_vec_fini(&block->zips);
    for (size_t i = 0; i < block->dimensions.count; i++)
        kb_vec_fini(&block->dimensions.items[i].axes);
    kb_vec_fini(&block->dimensions);
}

void sweep_plan_destroy(sweep_plan *plan)
{
    if (!plan)
        return;
    for (size_t i = 0; i < plan->axes.count; i++)
        kb_vec_fini(&plan->axes.items[i].values);
    kb_vec_fini(&plan->axes);
    kb_vec_fini(&plan->columns);
    fini_block(&plan->common);
    for (size_t i = 0; i < plan->blocks.count; i++)
        fini_block(&plan->blocks.items[i]);
    kb_vec_fini(&plan->blocks);
    for (size_t i = 0; i < plan->conditions.count; i++)
        sweep_expression_destroy(plan->conditions.items[i].expression);
    kb_vec_fini(&plan->conditions);
    for (size_t i = 0; i < plan->derived.count; i++)
        sweep_expression_destroy(plan->derived.items[i].expression);
    kb_vec_fini(&plan->derived);
    kb_vec_fini(&plan->views);
    kb_vec_fini(&plan->plugins);
    free(plan->selected);
    kb_arena_fini(&plan->arena);
    free(plan);
}

/* ---- Keys -------------------------------------------------------------------------------- */

static const char param_prefix[] = "param.";
enum { PARAM_PREFIX = sizeof param_prefix - 1 };

sweep_target sweep_target_of(const char *key)
{
    if (strcmp(key, "topology") == 0)
        return SWEEP_TOPOLOGY;
    if (strcmp(key, "bench") == 0)
        return SWEEP_BENCH;
    if (strncmp(key, param_prefix, PARAM_PREFIX) == 0)
        return SWEEP_PARAM;
    return strchr(key, '.') ? SWEEP_SETTING : SWEEP_PARAM;
}

/* What the key sets: without "param.". */
static const char *name_of(const char *key)
{
    return strncmp(key, param_prefix, PARAM_PREFIX) == 0 ? key + PARAM_PREFIX : key;
}

static bool same_thing(const char *a, const char *b)
{
    return sweep_target_of(a) == sweep_target_of(b) && strcmp(name_of(a), name_of(b)) == 0;
}

/* ---- Parts ------------------------------------------------------------------------------- */

static kb_error *make_value(kb_arena *arena, const sweep_axis *axis, const char *text,
                            sweep_axis_value *value)
{
    *value = (sweep_axis_value){.text = text, .value = sweep_value_of_text(text)};
    if (axis->target == SWEEP_SETTING || axis->target == SWEEP_PARAM) {
        value->setting = kb_arena_printf(arena, "%s=%s", axis->name, text);
        return value->setting ? NULL : kb_error_nomem();
    }
    value->setting = text;
    return NULL;
}

static int by_text(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    return strcmp(*x, *y);
}

static kb_error *check_different(const char *origin, const sweep_texts *values)
{
    sweep_texts sorted = {0};
    kb_error *err = kb_vec_reserve(&sorted, values->count) ? NULL : kb_error_nomem();
    for (size_t i = 0; i < values->count && !err; i++)
        sorted.items[sorted.count++] = values->items[i];
    if (sorted.count > 1)
        qsort(sorted.items, sorted.count, sizeof *sorted.items, by_text);
    for (size_t i = 1; i < sorted.count && !err; i++)
        if (strcmp(sorted.items[i], sorted.items[i - 1]) == 0)
            err = kb_error_new(KB_ERR_INPUT, "%s: the value '%.80s' is there twice", origin,
                               sorted.items[i]);
    kb_vec_fini(&sorted);
    return err;
}

static kb_error *fill_axis(kb_arena *arena, sweep_axis *axis, const sweep_texts *values)
{
    if (!kb_vec_reserve(&axis->values, values->count))
        return kb_error_nomem();
    for (size_t i = 0; i < values->count; i++)
        KB_TRY(
            make_value(arena, axis, values->items[i], &axis->values.items[axis->values.count++]));
    return NULL;
}

kb_error *sweep_block_add_axis(sweep_plan *plan, sweep_block *block, const char *key,
                               const char *origin, const sweep_texts *values)
{
    if (values->count == 0)
        return kb_error_new(KB_ERR_INPUT, "%s: an axis needs a value", origin);
    KB_TRY(check_different(origin, values));
    sweep_axis axis = {
        .key = kb_arena_strdup(&plan->arena, key),
        .origin = origin,
        .target = sweep_target_of(key),
    };
    if (!axis.key || !kb_vec_push(&plan->axes, axis))
        return kb_error_nomem();
    sweep_axis *added = &plan->axes.items[plan->axes.count - 1];
    added->name = name_of(added->key);
    KB_TRY(fill_axis(&plan->arena, added, values));
    return kb_vec_push(&block->axes, plan->axes.count - 1) ? NULL : kb_error_nomem();
}

kb_error *sweep_block_fix(sweep_plan *plan, sweep_fixed_list *list, const char *key,
                          const char *value, const char *origin)
{
    sweep_fixed fixed = {
        .key = kb_arena_strdup(&plan->arena, key),
        .setting = kb_arena_printf(&plan->arena, "%s=%s", name_of(key), value),
        .origin = origin,
    };
    return fixed.key && fixed.setting && kb_vec_push(list, fixed) ? NULL : kb_error_nomem();
}

/* ---- Options of the command line ---------------------------------------------------------- */

static void drop_axis_of_block(const sweep_plan *plan, sweep_block *block, const char *key)
{
    size_t kept = 0;
    for (size_t i = 0; i < block->axes.count; i++)
        if (!same_thing(plan->axes.items[block->axes.items[i]].key, key))
            block->axes.items[kept++] = block->axes.items[i];
    block->axes.count = kept;
}

static void drop_fixed(sweep_fixed_list *list, const char *key)
{
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++)
        if (!same_thing(list->items[i].key, key))
            list->items[kept++] = list->items[i];
    list->count = kept;
}

/* Forgets what the file says of the key. */
static void drop(sweep_plan *plan, const char *key, bool axes_alone)
{
    for (size_t i = 0; i <= plan->blocks.count; i++) {
        sweep_block *block = i < plan->blocks.count ? &plan->blocks.items[i] : &plan->common;
        drop_axis_of_block(plan, block, key);
        if (axes_alone)
            continue;
        drop_fixed(&block->settings, key);
        drop_fixed(&block->params, key);
    }
}

/* Splits "key=value"; the key is copied. */
static kb_error *split(sweep_plan *plan, const char *option, const char *text, const char **key,
                       const char **value)
{
    const char *equals = strchr(text, '=');
    if (!equals || equals == text)
        return kb_error_new(KB_ERR_INPUT, "%s %.80s: expected KEY=VALUE", option, text);
    *key = kb_arena_strndup(&plan->arena, text, (size_t)(equals - text));
    *value = equals + 1;
    return *key ? NULL : kb_error_nomem();
}

static kb_error *make_origin(sweep_plan *plan, const char *option, const char *key,
                             const char **origin)
{
    *origin = kb_arena_printf(&plan->arena, "%s %.80s", option, key);
    return *origin ? NULL : kb_error_nomem();
}

kb_error *sweep_plan_bench(sweep_plan *plan, const char *bench)
{
    drop(plan, "bench", true);
    if (plan->blocks.count > 1)
        return kb_error_new(KB_ERR_INPUT,
                            "--bench %.80s: the plan has several benches with "
                            "parameters of their own",
                            bench);
    if (plan->blocks.count == 0 && !kb_vec_push(&plan->blocks, (sweep_block){0}))
        return kb_error_nomem();
    plan->blocks.items[0].bench = bench;
    return NULL;
}

kb_error *sweep_plan_over(sweep_plan *plan, const char *text)
{
    const char *key, *list, *origin;
    sweep_texts values = {0};
    KB_TRY(split(plan, "--over", text, &key, &list));
    KB_TRY(make_origin(plan, "--over", key, &origin));
    drop(plan, key, false);
    if (sweep_target_of(key) == SWEEP_TOPOLOGY)
        plan->topology = NULL;
    kb_error *err = sweep_expand_list(list, &plan->arena, &values);
    if (err)
        err = kb_error_wrap(err, "%s", origin);
    else
        err = sweep_block_add_axis(plan, &plan->common, key, origin, &values);
    kb_vec_fini(&values);
    return err;
}

static kb_error *fix(sweep_plan *plan, const char *option, sweep_fixed_list *list, const char *text)
{
    const char *key, *value, *origin;
    KB_TRY(split(plan, option, text, &key, &value));
    KB_TRY(make_origin(plan, option, key, &origin));
    drop(plan, key, false);
    return sweep_block_fix(plan, list, key, value, origin);
}

kb_error *sweep_plan_set(sweep_plan *plan, const char *text)
{
    return fix(plan, "--set", &plan->common.settings, text);
}

kb_error *sweep_plan_param(sweep_plan *plan, const char *text)
{
    return fix(plan, "--param", &plan->common.params, text);
}

kb_error *sweep_plan_zip(sweep_plan *plan, const char *text)
{
    sweep_texts keys = {0};
    kb_error *err = sweep_expand_list(text, &plan->arena, &keys);
    if (!err && !kb_vec_push(&plan->common.zips, keys))
        err = kb_error_nomem();
    if (err)
        kb_vec_fini(&keys);
    return err;
}

kb_error *sweep_plan_where(sweep_plan *plan, const char *text)
{
    sweep_formula condition = {0};
    KB_TRY(sweep_expression_parse("--where", text, &condition.expression));
    if (kb_vec_push(&plan->conditions, condition))
        return NULL;
    sweep_expression_destroy(condition.expression);
    return kb_error_nomem();
}

/* ---- Dimensions of a block ---------------------------------------------------------------- */

static const sweep_axis *axis_of(const sweep_plan *plan, size_t index)
{
    return &plan->axes.items[index];
}

static size_t *all_axes(const sweep_plan *plan, const sweep_block *block, size_t *count)
{
    size_t *axes = kb_alloc_array(plan->common.axes.count + block->axes.count + 1, sizeof *axes);
    *count = 0;
    for (size_t i = 0; axes && i < plan->common.axes.count; i++)
        axes[(*count)++] = plan->common.axes.items[i];
    for (size_t i = 0; axes && i < block->axes.count; i++)
        axes[(*count)++] = block->axes.items[i];
    return axes;
}

static bool has_key(const sweep_texts *keys, const char *key)
{
    for (size_t i = 0; i < keys->count; i++)
        if (same_thing(keys->items[i], key))
            return true;
    return false;
}

/* The dimension with an axis that is zipped with this one; NULL if there is none yet. */
static sweep_dimension *find_zipped(const sweep_plan *plan, sweep_block *block,
                                    const sweep_axis *axis)
{
    for (size_t z = 0; z < plan->common.zips.count + block->zips.count; z++) {
        const sweep_texts *keys = z < plan->common.zips.count
                                      ? &plan->common.zips.items[z]
                                      : &block->zips.items[z - plan->common.zips.count];
        if (!has_key(keys, axis->key))
            continue;
        for (size_t d = 0; d < block->dimensions.count; d++)
            if (has_key(keys, axis_of(plan, block->dimensions.items[d].axes.items[0])->key))
                return &block->dimensions.items[d];
    }
    return NULL;
}

static kb_error *add_to_dimension(const sweep_plan *plan, sweep_block *block, size_t index)
{
    const sweep_axis *axis = axis_of(plan, index);
    sweep_dimension *dimension = find_zipped(plan, block, axis);
    if (!dimension) {
        sweep_dimension added = {.length = axis->values.count};
        if (!kb_vec_push(&block->dimensions, added))
            return kb_error_nomem();
        dimension = &block->dimensions.items[block->dimensions.count - 1];
    }
    if (dimension->length != axis->values.count) {
        const sweep_axis *other = axis_of(plan, dimension->axes.items[0]);
        return kb_error_new(
            KB_ERR_INPUT, "%s: zipped axes need as many values each: %s has %zu, %s has %zu",
            axis->origin, other->key, dimension->length, axis->key, axis->values.count);
    }
    return kb_vec_push(&dimension->axes, index) ? NULL : kb_error_nomem();
}

/* Every key of a zip must be an axis. */
static kb_error *check_zips(const sweep_plan *plan, const sweep_zips *zips, const size_t *axes,
                            size_t count)
{
    for (size_t z = 0; z < zips->count; z++) {
        const sweep_texts *keys = &zips->items[z];
        if (keys->count < 2)
            return kb_error_new(KB_ERR_INPUT, "zip of %.80s: expected two axes or more",
                                keys->count > 0 ? keys->items[0] : "nothing");
        for (size_t k = 0; k < keys->count; k++) {
            kb_suggestion near;
            size_t i = 0;
            kb_suggestion_init(&near, keys->items[k]);
            for (; i < count && !same_thing(axis_of(plan, axes[i])->key, keys->items[k]); i++)
                kb_suggestion_offer(&near, axis_of(plan, axes[i])->key);
            if (i == count)
                return kb_error_new(KB_ERR_INPUT, "zip: '%.80s' is not an axis%s", keys->items[k],
                                    kb_suggestion_hint(&near, ""));
        }
    }
    return NULL;
}

/* No key may be said twice. */
static kb_error *check_keys(const sweep_plan *plan, const sweep_block *block, const size_t *axes,
                            size_t count)
{
    const sweep_fixed_list *lists[] = {&plan->common.settings, &block->settings,
                                       &plan->common.params, &block->params};
    for (size_t i = 0; i < count; i++) {
        const sweep_axis *axis = axis_of(plan, axes[i]);
        for (size_t j = 0; j < i; j++)
            if (same_thing(axis->key, axis_of(plan, axes[j])->key))
                return kb_error_new(KB_ERR_INPUT, "%s: there is another axis over %s", axis->origin,
                                    axis->key);
        for (size_t l = 0; l < sizeof lists / sizeof lists[0]; l++)
            for (size_t f = 0; f < lists[l]->count; f++)
                if (same_thing(axis->key, lists[l]->items[f].key))
                    return kb_error_new(KB_ERR_INPUT, "%s: %s has a fixed value too (%s)",
                                        axis->origin, axis->key, lists[l]->items[f].origin);
        if (axis->target == SWEEP_TOPOLOGY && plan->topology)
            return kb_error_new(KB_ERR_INPUT, "%s: the topology has a fixed value too",
                                axis->origin);
        if (axis->target == SWEEP_BENCH && block->bench)
            return kb_error_new(KB_ERR_INPUT, "%s: the bench has a fixed value too", axis->origin);
    }
    return NULL;
}

static bool has_bench(const sweep_plan *plan, const size_t *axes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (axis_of(plan, axes[i])->target == SWEEP_BENCH)
            return true;
    return false;
}

static kb_error *count_points(const sweep_plan *plan, sweep_block *block, uint64_t first)
{
    block->first = first;
    block->count = plan->repeat;
    for (size_t d = 0; d < block->dimensions.count; d++)
        if (__builtin_mul_overflow(block->count, block->dimensions.items[d].length, &block->count))
            block->count = UINT64_MAX;
    if (block->count > SWEEP_MAX_POINTS - first)
        return kb_error_new(KB_ERR_INPUT, "the plan has more than %d points", SWEEP_MAX_POINTS);
    return NULL;
}

static kb_error *finish_block(const sweep_plan *plan, sweep_block *block, uint64_t first)
{
    size_t count;
    size_t *axes = all_axes(plan, block, &count);
    kb_error *err = axes ? check_keys(plan, block, axes, count) : kb_error_nomem();
    if (!err)
        err = check_zips(plan, &plan->common.zips, axes, count);
    if (!err)
        err = check_zips(plan, &block->zips, axes, count);
    if (!err && !block->bench && !has_bench(plan, axes, count))
        err = kb_error_new(KB_ERR_INPUT, "the plan has no bench; give --bench NAME, see "
                                         "kernbench list");
    for (size_t i = 0; axes && i < count && !err; i++)
        err = add_to_dimension(plan, block, axes[i]);
    free(axes);
    return err ? err : count_points(plan, block, first);
}

/* ---- Columns ----------------------------------------------------------------------------- */

static kb_error *add_column(sweep_plan *plan, const char *key, size_t *column)
{
    for (*column = 0; *column < plan->columns.count; ++*column)
        if (same_thing(plan->columns.items[*column], key))
            return NULL;
    return kb_vec_push(&plan->columns, key) ? NULL : kb_error_nomem();
}

/* Of the bench if there are several, of the axes, and of the repetitions. */
static kb_error *add_columns(sweep_plan *plan)
{
    size_t column;
    if (plan->blocks.count > 1)
        KB_TRY(add_column(plan, "bench", &column));
    for (size_t b = 0; b < plan->blocks.count; b++) {
        const sweep_block *block = &plan->blocks.items[b];
        for (size_t d = 0; d < block->dimensions.count; d++) {
            const sweep_dimension *dimension = &block->dimensions.items[d];
            for (size_t i = 0; i < dimension->axes.count; i++) {
                sweep_axis *axis = &plan->axes.items[dimension->axes.items[i]];
                KB_TRY(add_column(plan, axis->key, &axis->column));
            }
        }
    }
    return plan->repeat > 1 ? add_column(plan, "repeat", &column) : NULL;
}

/* ---- Points ------------------------------------------------------------------------------ */

void sweep_point_fini(sweep_point *point)
{
    kb_vec_fini(&point->settings);
    kb_vec_fini(&point->params);
    kb_vec_fini(&point->values);
    free(point->cells);
    point->cells = NULL;
}

static bool same_key(const char *setting, const char *other)
{
    size_t length = strcspn(setting, "=");
    return length == strcspn(other, "=") && memcmp(setting, other, length) == 0;
}

/* Appends "key=value", or puts it in the place of an earlier one of the same key. */
static bool put(sweep_texts *texts, const char *setting)
{
    for (size_t i = 0; i < texts->count; i++) {
        if (same_key(texts->items[i], setting)) {
            texts->items[i] = setting;
            return true;
        }
    }
    return kb_vec_push(texts, setting);
}

static kb_error *apply_fixed(const sweep_fixed_list *list, sweep_texts *texts)
{
    for (size_t i = 0; i < list->count; i++)
        if (!put(texts, list->items[i].setting))
            return kb_error_nomem();
    return NULL;
}

static kb_error *apply_value(const sweep_axis *axis, size_t which, sweep_point *point)
{
    const sweep_axis_value *value = &axis->values.items[which];
    bool good = kb_vec_push(&point->values, axis->first_id + (uint32_t)which);
    point->cells[axis->column] = value->text;
    switch (axis->target) {
    case SWEEP_SETTING:
        good = good && kb_vec_push(&point->settings, value->setting);
        break;
    case SWEEP_PARAM:
        good = good && kb_vec_push(&point->params, value->setting);
        break;
    case SWEEP_TOPOLOGY:
        point->topology = value->text;
        break;
    case SWEEP_BENCH:
        point->bench = value->text;
        break;
    }
    return good ? NULL : kb_error_nomem();
}

static const sweep_block *block_of(const sweep_plan *plan, uint64_t number)
{
    size_t b = 0;
    while (number >= plan->blocks.items[b].first + plan->blocks.items[b].count)
        b++;
    return &plan->blocks.items[b];
}

/* The values of the axes, from the number of the point: the last dimension is the fastest. */
static kb_error *apply_axes(const sweep_plan *plan, const sweep_block *block, uint64_t number,
                            sweep_point *point)
{
    uint64_t left = number - block->first, span = block->count / plan->repeat;
    point->repeat = (uint32_t)(left % plan->repeat);
    left /= plan->repeat;
    for (size_t d = 0; d < block->dimensions.count; d++) {
        const sweep_dimension *dimension = &block->dimensions.items[d];
        span /= dimension->length;
        size_t which = (size_t)(left / span);
        left %= span;
        for (size_t i = 0; i < dimension->axes.count; i++)
            KB_TRY(apply_value(axis_of(plan, dimension->axes.items[i]), which, point));
    }
    return NULL;
}

/* A point by its number before conditions. */
static kb_error *find_point(const sweep_plan *plan, uint64_t number, sweep_point *point)
{
    if (!point->cells)
        point->cells = kb_alloc_array(plan->columns.count + 1, sizeof *point->cells);
    if (!point->cells)
        return kb_error_nomem();
    const sweep_block *block = block_of(plan, number);
    for (size_t i = 0; i < plan->columns.count; i++)
        point->cells[i] = NULL;
    point->settings.count = point->params.count = point->values.count = 0;
    point->bench = block->bench;
    point->topology = plan->topology;
    KB_TRY(apply_fixed(&plan->common.settings, &point->settings));
    KB_TRY(apply_fixed(&block->settings, &point->settings));
    KB_TRY(apply_fixed(&plan->common.params, &point->params));
    KB_TRY(apply_fixed(&block->params, &point->params));
    KB_TRY(apply_axes(plan, block, number, point));
    if (plan->blocks.count > 1)
        point->cells[0] = point->bench;
    if (plan->repeat > 1)
        point->cells[plan->columns.count - 1] = plan->repeats[point->repeat];
    return NULL;
}

kb_error *sweep_plan_point(const sweep_plan *plan, size_t index, sweep_point *point)
{
    KB_ASSERT(index < plan->point_count);
    return find_point(plan, plan->selected ? plan->selected[index] : index, point);
}

/* ---- Conditions and shards ----------------------------------------------------------------- */

/* The value of a column; a sweep_get_value. */
static sweep_value value_of_column(const void *self, size_t column)
{
    const sweep_point *point = self;
    return point->cells[column] ? sweep_value_of_text(point->cells[column]) : SWEEP_NONE;
}

static bool is_selected(const sweep_plan *plan, const sweep_point *point)
{
    for (size_t i = 0; i < plan->conditions.count; i++)
        if (!sweep_expression_holds(plan->conditions.items[i].expression, value_of_column, point))
            return false;
    return true;
}

static kb_error *select_points(sweep_plan *plan, uint64_t total)
{
    sweep_point point = {0};
    kb_error *err = NULL;
    size_t kept = 0, number = 0;
    plan->selected = kb_alloc_array((size_t)total + 1, sizeof *plan->selected);
    if (!plan->selected)
        return kb_error_nomem();
    for (uint64_t i = 0; i < total && !err; i++) {
        if (plan->conditions.count > 0)
            err = find_point(plan, i, &point);
        if (err || (plan->conditions.count > 0 && !is_selected(plan, &point)))
            continue;
        if (plan->shards == 0 || number % plan->shards == plan->shard)
            plan->selected[kept++] = i;
        number++;
    }
    sweep_point_fini(&point);
    plan->point_count = kept;
    if (!err && number == 0)
        err = kb_error_new(KB_ERR_INPUT, "no point of the plan satisfies its conditions");
    return err;
}

static kb_error *number_points(sweep_plan *plan, uint64_t total)
{
    plan->point_count = (size_t)total;
    for (size_t i = 0; i < plan->conditions.count; i++)
        KB_TRY(sweep_expression_bind(plan->conditions.items[i].expression, plan->columns.items,
                                     plan->columns.count));
    return plan->conditions.count > 0 || plan->shards > 0 ? select_points(plan, total) : NULL;
}

static kb_error *make_repeats(sweep_plan *plan)
{
    plan->repeats = kb_arena_alloc_array(&plan->arena, (size_t)plan->repeat, sizeof *plan->repeats,
                                         _Alignof(const char *));
    for (uint64_t i = 0; plan->repeats && i < plan->repeat; i++) {
        plan->repeats[i] = kb_arena_printf(&plan->arena, "%" PRIu64, i + 1);
        if (!plan->repeats[i])
            return kb_error_nomem();
    }
    return plan->repeats ? NULL : kb_error_nomem();
}

kb_error *sweep_plan_finish(sweep_plan *plan)
{
    uint64_t total = 0;
    if (plan->repeat > SWEEP_MAX_POINTS)
        return kb_error_new(KB_ERR_INPUT, "the plan has more than %d points", SWEEP_MAX_POINTS);
    KB_TRY(make_repeats(plan));
    if (plan->blocks.count == 0 && !kb_vec_push(&plan->blocks, (sweep_block){0}))
        return kb_error_nomem();
    for (size_t b = 0; b < plan->blocks.count; b++) {
        sweep_block *block = &plan->blocks.items[b];
        KB_TRY(finish_block(plan, block, total));
        total += block->count;
    }
    KB_TRY(add_columns(plan));
    for (size_t i = 0; i < plan->axes.count; i++) {
        plan->axes.items[i].first_id = plan->value_count;
        plan->value_count += (uint32_t)plan->axes.items[i].values.count;
    }
    return number_points(plan, total);
}
