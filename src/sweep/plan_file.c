/*
 * plan_file.c: plans as YAML files. docs/sweeps.md has the keys.
 *
 * All problems of a file are reported, each with its place. What depends on several keys, such as
 * axes that are zipped, is checked by sweep_plan_finish().
 */
#include "sweep_plan.h"

#include <inttypes.h>
#include <string.h>

static const double max_seconds = 1e9;

typedef struct reader {
    sweep_plan *plan;
    kb_error *error; /* no memory */
} reader;

/* Notes the error of a value as a problem of the file, and frees it. */
static void note(reader *r, kb_config_node *node, kb_error *err)
{
    if (!err)
        return;
    if (kb_error_code(err) == KB_ERR_HOST && !r->error) {
        r->error = err;
        return;
    }
    kb_config_problem(node, "%s", kb_error_message(err));
    kb_error_free(err);
}

static void note_nomem(reader *r)
{
    if (!r->error)
        r->error = kb_error_nomem();
}

/* "plan.yaml:7:3: over.rows", for messages of later checks. */
static const char *origin_of(reader *r, const kb_config_node *node, const char *key)
{
    kb_srcloc loc = kb_config_loc(node);
    const char *origin =
        kb_arena_printf(&r->plan->arena, "%s:%d:%d: %s", loc.file, loc.line, loc.column, key);
    if (!origin)
        note_nomem(r);
    return origin ? origin : "";
}

/* A copy in the plan; NULL if there is no such key. */
static const char *read_string(reader *r, kb_config_node *node)
{
    const char *text = kb_config_string(node, NULL);
    const char *copy = text ? kb_arena_strdup(&r->plan->arena, text) : NULL;
    if (text && !copy)
        note_nomem(r);
    return copy;
}

static uint64_t read_bytes(kb_config_node *node, uint64_t min)
{
    const char *text = kb_config_string(node, NULL);
    uint64_t bytes = 0;
    if (text && (!kb_bytes_parse(text, &bytes) || bytes < min))
        kb_config_problem(
            node, "expected a number of bytes of at least %" PRIu64 ", such as 4GiB, found '%.80s'",
            min, text);
    return bytes;
}

/* ---- Values ------------------------------------------------------------------------------ */

static void read_value(reader *r, kb_config_node *node, sweep_texts *values)
{
    const char *text = kb_config_string(node, NULL);
    if (!text)
        return;
    const char *copy = kb_arena_strdup(&r->plan->arena, text);
    if (copy)
        note(r, node, sweep_expand(copy, &r->plan->arena, values));
    else
        note_nomem(r);
}

/* A scalar, which may be a range, or a sequence of them. */
static void read_values(reader *r, kb_config_node *node, sweep_texts *values)
{
    if (node && kb_config_source_text(node)) {
        read_value(r, node, values);
        return;
    }
    kb_config_node *list = kb_config_sequence(node);
    if (list && kb_config_count(list) == 0)
        kb_config_problem(list, "expected a value or more");
    for (kb_config_node *item = kb_config_first(list); item; item = kb_config_next(item))
        read_value(r, item, values);
}

/* A text or a sequence of texts, as they are. */
static void read_texts(reader *r, kb_config_node *node, sweep_texts *texts)
{
    bool is_list = node && !kb_config_source_text(node);
    kb_config_node *item = is_list ? kb_config_first(kb_config_sequence(node)) : node;
    for (; item; item = is_list ? kb_config_next(item) : NULL) {
        const char *text = read_string(r, item);
        if (text && !kb_vec_push(texts, text))
            note_nomem(r);
    }
}

/* ---- Parts of a block ---------------------------------------------------------------------- */

static void read_axis(reader *r, kb_config_node *node, const char *key, sweep_block *block)
{
    sweep_texts values = {0};
    read_values(r, node, &values);
    if (values.count > 0) {
        kb_error *err = sweep_block_add_axis(r->plan, block, key, key, &values);
        if (err)
            note(r, node, err);
        else
            r->plan->axes.items[r->plan->axes.count - 1].origin = origin_of(r, node, key);
    }
    kb_vec_fini(&values);
}

static void read_over(reader *r, kb_config_node *node, sweep_block *block)
{
    kb_config_node *over = kb_config_mapping(node);
    for (kb_config_node *axis = kb_config_first(over); axis; axis = kb_config_next(axis))
        read_axis(r, axis, kb_config_key(axis), block);
}

static void read_fixed(reader *r, kb_config_node *node, sweep_fixed_list *list)
{
    kb_config_node *mapping = kb_config_mapping(node);
    for (kb_config_node *item = kb_config_first(mapping); item; item = kb_config_next(item)) {
        const char *value = kb_config_string(item, NULL);
        if (value)
            note(r, item,
                 sweep_block_fix(r->plan, list, kb_config_key(item), value,
                                 origin_of(r, item, kb_config_key(item))));
    }
}

static void read_zip(reader *r, kb_config_node *node, sweep_block *block)
{
    sweep_texts keys = {0};
    read_texts(r, kb_config_sequence(node), &keys);
    if (node && keys.count < 2)
        kb_config_problem(node, "expected two axes or more, such as [a, b]");
    if (kb_vec_push(&block->zips, keys))
        return;
    kb_vec_fini(&keys);
    note_nomem(r);
}

/* [a, b], or [[a, b], [c, d]]. */
static void read_zips(reader *r, kb_config_node *node, sweep_block *block)
{
    kb_config_node *list = kb_config_sequence(node);
    kb_config_node *first = kb_config_first(list);
    if (!list)
        return;
    if (!first || kb_config_source_text(first)) {
        read_zip(r, list, block);
        return;
    }
    for (kb_config_node *item = first; item; item = kb_config_next(item))
        read_zip(r, item, block);
}

static void read_block(reader *r, kb_config_node *mapping, sweep_block *block)
{
    read_fixed(r, kb_config_find(mapping, "set"), &block->settings);
    read_fixed(r, kb_config_find(mapping, "param"), &block->params);
    read_over(r, kb_config_find(mapping, "over"), block);
    read_zips(r, kb_config_find(mapping, "zip"), block);
}

/* ---- The plan ------------------------------------------------------------------------------ */

static sweep_block *add_block(reader *r)
{
    if (!kb_vec_push(&r->plan->blocks, (sweep_block){0})) {
        note_nomem(r);
        return NULL;
    }
    return &r->plan->blocks.items[r->plan->blocks.count - 1];
}

/* A name; several names, which are an axis; or a mapping from names to what is their own. */
static void read_bench(reader *r, kb_config_node *node)
{
    if (!node)
        return;
    if (kb_config_source_text(node)) {
        sweep_block *block = add_block(r);
        if (block)
            block->bench = read_string(r, node);
        return;
    }
    if (kb_config_first(node) && !kb_config_key(kb_config_first(node))) { /* a sequence */
        read_axis(r, node, "bench", &r->plan->common);
        return;
    }
    kb_config_node *mapping = kb_config_mapping(node);
    if (mapping && kb_config_count(mapping) == 0)
        kb_config_problem(mapping, "expected a bench or more");
    for (kb_config_node *item = kb_config_first(mapping); item; item = kb_config_next(item)) {
        sweep_block *block = add_block(r);
        if (!block)
            return;
        block->bench = kb_arena_strdup(&r->plan->arena, kb_config_key(item));
        if (!block->bench)
            note_nomem(r);
        read_block(r, item, block);
    }
}

static void read_formula(reader *r, kb_config_node *node, const char *name, bool derived)
{
    const char *text = kb_config_string(node, NULL);
    sweep_formula formula = {0};
    if (!text)
        return;
    const char *origin = origin_of(r, node, name);
    kb_error *err = sweep_expression_parse(origin, text, &formula.expression);
    if (err) { /* its message begins with the place, which the problem has too */
        const char *message = kb_error_message(err);
        size_t length = strlen(origin);
        bool begins = strncmp(message, origin, length) == 0 && message[length] == ':';
        kb_config_problem(node, "%s", begins ? message + length + 2 : message);
        kb_error_free(err);
        return;
    }
    formula.name = kb_arena_strdup(&r->plan->arena, name);
    bool good = formula.name && (derived ? kb_vec_push(&r->plan->derived, formula)
                                         : kb_vec_push(&r->plan->conditions, formula));
    if (good)
        return;
    sweep_expression_destroy(formula.expression);
    note_nomem(r);
}

static void read_formulas(reader *r, kb_config_node *root)
{
    kb_config_node *where = kb_config_find(root, "where");
    bool is_list = where && !kb_config_source_text(where);
    kb_config_node *item = is_list ? kb_config_first(kb_config_sequence(where)) : where;
    for (; item; item = is_list ? kb_config_next(item) : NULL)
        read_formula(r, item, "where", false);
    kb_config_node *derived = kb_config_mapping(kb_config_find(root, "derived"));
    for (item = kb_config_first(derived); item; item = kb_config_next(item))
        read_formula(r, item, kb_config_key(item), true);
}

static void add_view(reader *r, const char *name, const char *value)
{
    const char *view = value ? kb_arena_printf(&r->plan->arena, "--%s=%s", name, value)
                             : kb_arena_printf(&r->plan->arena, "--%s", name);
    if (!view || !kb_vec_push(&r->plan->views, view))
        note_nomem(r);
}

/* Options of the command that show results; the command knows them. */
static void read_views(reader *r, kb_config_node *node)
{
    kb_config_node *show = kb_config_mapping(node);
    for (kb_config_node *item = kb_config_first(show); item; item = kb_config_next(item)) {
        sweep_texts values = {0};
        const char *text = kb_config_source_text(item);
        if (text && strcmp(text, "true") == 0) {
            add_view(r, kb_config_key(item), NULL);
            continue;
        }
        read_texts(r, item, &values);
        for (size_t i = 0; i < values.count; i++)
            add_view(r, kb_config_key(item), values.items[i]);
        kb_vec_fini(&values);
    }
}

static void read_run_options(reader *r, kb_config_node *root)
{
    sweep_plan *plan = r->plan;
    plan->topology = read_string(r, kb_config_find(root, "topology"));
    plan->device = read_string(r, kb_config_find(root, "device"));
    plan->ccl = read_string(r, kb_config_find(root, "ccl"));
    read_texts(r, kb_config_find(root, "plugins"), &plan->plugins);
    plan->timing_only = kb_config_bool(kb_config_find(root, "timing_only"), false);
    kb_config_node *verify = kb_config_find(root, "verify_data");
    plan->verify = kb_config_bool(verify, false);
    if (plan->verify && plan->timing_only)
        kb_config_problem(verify, "verify_data and timing_only are mutually exclusive");
    plan->check_races = kb_config_bool(kb_config_find(root, "check_races"), false);
    plan->stack_bytes = read_bytes(kb_config_find(root, "stack_bytes"), 16 << 10);
}

static void read_sweep_options(reader *r, kb_config_node *root)
{
    sweep_plan *plan = r->plan;
    plan->store = read_string(r, kb_config_find(root, "store"));
    plan->timeout_s =
        kb_config_double(kb_config_find(root, "timeout"), kb_above_up_to(0, max_seconds), 0);
    plan->memory_bytes = read_bytes(kb_config_find(root, "memory_per_point"), 1 << 20);
    plan->workers =
        (uint64_t)kb_config_int(kb_config_find(root, "workers"), 1, SWEEP_MAX_WORKERS, 0);
    plan->repeat = (uint64_t)kb_config_int(kb_config_find(root, "repeat"), 1, SWEEP_MAX_POINTS, 1);
}

static void read_root(reader *r, kb_config_node *root)
{
    read_bench(r, kb_config_find(root, "bench"));
    read_run_options(r, root);
    read_block(r, root, &r->plan->common);
    kb_config_node *seeds = kb_config_find(root, "seeds");
    if (seeds)
        read_axis(r, seeds, "seed", &r->plan->common);
    read_formulas(r, root);
    read_sweep_options(r, root);
    read_views(r, kb_config_find(root, "show"));
}

static kb_error *read_config(sweep_plan *plan, kb_config *config)
{
    reader r = {.plan = plan};
    read_root(&r, kb_config_root(config));
    kb_error *err = kb_config_finish(config);
    if (!r.error)
        return err;
    kb_error_free(err);
    return r.error;
}

kb_error *sweep_plan_read(sweep_plan *plan, const char *path)
{
    kb_config *config;
    KB_TRY(kb_config_load_file(path, &config));
    kb_error *err = read_config(plan, config);
    kb_config_destroy(config);
    return err;
}

kb_error *sweep_plan_read_text(sweep_plan *plan, const char *name, const char *text, size_t length)
{
    kb_config *config;
    KB_TRY(kb_config_load_text(name, text, length, &config));
    kb_error *err = read_config(plan, config);
    kb_config_destroy(config);
    return err;
}
