/*
 * results.c: see results.h. A table of 100,000 points has one number for each figure of a point and
 * one index for each axis: texts of axes are kept once.
 */
#include "results.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Making ------------------------------------------------------------------------------ */

static sweep_column *add_column(sweep_results *r, const char *name, bool is_axis)
{
    sweep_column column = {.name = kb_arena_strdup(&r->arena, name), .is_axis = is_axis};
    size_t rows = r->row_count;
    if (is_axis)
        column.index = kb_alloc_array(rows, sizeof *column.index);
    else
        column.numbers = kb_alloc_array(rows, sizeof *column.numbers);
    if (!column.name || !(is_axis ? (void *)column.index : (void *)column.numbers) ||
        !kb_vec_push(&r->columns, column)) {
        free(column.index);
        free(column.numbers);
        r->failed = true;
        return NULL;
    }
    for (size_t i = 0; i < rows; i++) {
        if (is_axis)
            column.index[i] = SWEEP_NO_VALUE;
        else
            column.numbers[i] = (double)NAN;
    }
    return &r->columns.items[r->columns.count - 1];
}

kb_error *sweep_results_create(const char *const *axes, size_t axis_count, size_t row_count,
                               sweep_results **out)
{
    sweep_results *r = kb_alloc_zeroed(1, sizeof *r);
    if (!r)
        return kb_error_nomem();
    kb_arena_init(&r->arena);
    r->axis_count = axis_count;
    r->row_count = row_count;
    r->rows = kb_alloc_zeroed(row_count, sizeof *r->rows);
    r->failed = !r->rows;
    for (size_t i = 0; i < axis_count && !r->failed; i++)
        add_column(r, axes[i], true);
    r->next_column = axis_count;
    if (r->failed) {
        sweep_results_destroy(r);
        return kb_error_nomem();
    }
    *out = r;
    return NULL;
}

void sweep_results_destroy(sweep_results *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->columns.count; i++) {
        kb_vec_fini(&r->columns.items[i].values);
        free(r->columns.items[i].slots);
        free(r->columns.items[i].index);
        free(r->columns.items[i].numbers);
    }
    kb_vec_fini(&r->columns);
    free(r->rows);
    free(r->names);
    kb_arena_fini(&r->arena);
    free(r);
}

/* ---- Values of axes ---------------------------------------------------------------------- */

static uint64_t hash_value(sweep_value value)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    const unsigned char *bytes = (const unsigned char *)value.text;
    size_t length = strlen(value.text);
    double number = value.number + 0.0; /* 0 and -0 are equal */
    if (value.is_number) {
        bytes = (const unsigned char *)&number;
        length = sizeof number;
    }
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash ^ hash >> 32;
}

/* The slot of that value, or the empty one where it belongs. The count is a power of two. */
static uint32_t *find_slot(const sweep_column *axis, sweep_value value)
{
    size_t at = (size_t)hash_value(value) & (axis->slot_count - 1);
    while (axis->slots[at] != 0 &&
           !sweep_values_equal(axis->values.items[axis->slots[at] - 1], value))
        at = (at + 1) & (axis->slot_count - 1);
    return &axis->slots[at];
}

/* Keeps half of the slots empty. */
static bool reserve_slots(sweep_column *axis)
{
    if (2 * (axis->values.count + 1) <= axis->slot_count)
        return true;
    size_t count = axis->slot_count > 0 ? 2 * axis->slot_count : 16;
    uint32_t *slots = kb_alloc_zeroed(count, sizeof *slots);
    if (!slots)
        return false;
    free(axis->slots);
    axis->slots = slots;
    axis->slot_count = count;
    for (size_t i = 0; i < axis->values.count; i++)
        *find_slot(axis, axis->values.items[i]) = (uint32_t)i + 1;
    return true;
}

/* The index of the value that is written so; its text is that of the first row that has it. */
static uint32_t intern(sweep_results *r, sweep_column *axis, const char *text)
{
    sweep_value value = sweep_value_of_text(text);
    if (!reserve_slots(axis)) {
        r->failed = true;
        return SWEEP_NO_VALUE;
    }
    uint32_t *slot = find_slot(axis, value);
    if (*slot == 0) {
        value.text = kb_arena_strdup(&r->arena, text);
        if (!value.text || !kb_vec_push(&axis->values, value)) {
            r->failed = true;
            return SWEEP_NO_VALUE;
        }
        *slot = (uint32_t)axis->values.count;
    }
    return *slot - 1;
}

/* ---- Filling ----------------------------------------------------------------------------- */

void sweep_results_set_axis(sweep_results *r, size_t row, size_t axis, const char *text)
{
    KB_ASSERT(row < r->row_count && axis < r->axis_count);
    sweep_column *column = &r->columns.items[axis];
    column->index[row] = intern(r, column, text);
}

static const char *copy(sweep_results *r, const char *text)
{
    char *same = text ? kb_arena_strdup(&r->arena, text) : NULL;
    r->failed |= text && !same;
    return same;
}

void sweep_results_set_status(sweep_results *r, size_t row, const char *status, bool ok,
                              const char *message)
{
    KB_ASSERT(row < r->row_count);
    r->rows[row] = (sweep_row){.status = copy(r, status), .ok = ok, .message = copy(r, message)};
}

static bool ends_with(const char *name, const char *end)
{
    size_t length = strlen(name), part = strlen(end);
    return length >= part && strcmp(name + length - part, end) == 0;
}

static sweep_figure_kind kind_of(const char *name)
{
    if (strncmp(name, "parameters.", strlen("parameters.")) == 0)
        return SWEEP_PARAMETER;
    if (strcmp(name, "wall_s") == 0 || strcmp(name, "cpu_s") == 0 ||
        strcmp(name, "peak_bytes") == 0 || (!strchr(name, '.') && ends_with(name, "_per_s")))
        return SWEEP_WALL;
    return SWEEP_RESULT;
}

/* Figures of most rows come in the same order, so the column is mostly the next one. */
static sweep_column *figure_column(sweep_results *r, const char *name)
{
    size_t figures = r->columns.count - r->axis_count;
    for (size_t n = 0; n < figures; n++) {
        if (r->next_column >= r->columns.count)
            r->next_column = r->axis_count;
        sweep_column *column = &r->columns.items[r->next_column++];
        if (strcmp(column->name, name) == 0)
            return column;
    }
    sweep_column *column = add_column(r, name, false);
    if (column)
        column->kind = kind_of(name);
    r->next_column = r->columns.count;
    return column;
}

void sweep_results_set_figure(sweep_results *r, size_t row, const char *name, double number)
{
    KB_ASSERT(row < r->row_count);
    sweep_column *column = figure_column(r, name);
    if (column)
        column->numbers[row] = number;
}

/* ---- Finishing --------------------------------------------------------------------------- */

/* The largest figure causes.NAME_ns; the first one of several. */
static void find_bottlenecks(sweep_results *r)
{
    static const char prefix[] = "causes.", unit[] = "_ns";
    double *largest = kb_alloc_zeroed(r->row_count, sizeof *largest);
    r->failed |= !largest;
    for (size_t c = r->axis_count; c < r->columns.count && !r->failed; c++) {
        const sweep_column *column = &r->columns.items[c];
        const char *cause = column->name + strlen(prefix);
        if (strncmp(column->name, prefix, strlen(prefix)) != 0 || !ends_with(cause, unit))
            continue;
        const char *name = kb_arena_strndup(&r->arena, cause, strlen(cause) - strlen(unit));
        r->failed |= !name;
        for (size_t row = 0; row < r->row_count; row++) {
            if (r->rows[row].ok && column->numbers[row] > largest[row]) {
                largest[row] = column->numbers[row];
                r->rows[row].bottleneck = name;
            }
        }
    }
    free(largest);
}

static void list_names(sweep_results *r)
{
    free(r->names);
    r->names = kb_alloc_array(r->columns.count, sizeof *r->names);
    r->failed |= !r->names;
    for (size_t i = 0; i < r->columns.count && r->names; i++)
        r->names[i] = r->columns.items[i].name;
}

kb_error *sweep_results_finish(sweep_results *r)
{
    find_bottlenecks(r);
    list_names(r);
    return r->failed ? kb_error_nomem() : NULL;
}

kb_error *sweep_results_derive(sweep_results *r, const char *name, sweep_expression *expression)
{
    KB_TRY(sweep_expression_bind(expression, r->names, r->columns.count));
    for (size_t i = 0; i < r->columns.count; i++)
        if (strcmp(r->names[i], name) == 0)
            return kb_error_new(KB_ERR_INPUT,
                                "derived metric '%s': the points have a figure or an "
                                "axis of that name",
                                name);
    sweep_column *column = add_column(r, name, false);
    for (size_t row = 0; row < r->row_count && column; row++) {
        sweep_row_view view = {r, row};
        sweep_value value = r->rows[row].ok
                                ? sweep_expression_evaluate(expression, sweep_row_value, &view)
                                : SWEEP_NONE;
        column->numbers[row] = value.none ? (double)NAN : value.number;
    }
    list_names(r);
    return r->failed ? kb_error_nomem() : NULL;
}

/* ---- Reading ----------------------------------------------------------------------------- */

kb_error *sweep_find_column(const sweep_results *r, const char *what, const char *name,
                            const sweep_column **out)
{
    size_t index;
    KB_TRY(sweep_find_name(what, name, r->names, r->columns.count, &index));
    *out = &r->columns.items[index];
    return NULL;
}

kb_error *sweep_find_axis(const sweep_results *r, const char *what, const char *name,
                          const sweep_column **out)
{
    size_t index;
    KB_TRY(sweep_find_name(what, name, r->names, r->axis_count, &index));
    *out = &r->columns.items[index];
    return NULL;
}

sweep_value sweep_cell(const sweep_column *column, size_t row)
{
    if (!column->is_axis)
        return sweep_number(column->numbers[row]);
    uint32_t index = column->index[row];
    return index == SWEEP_NO_VALUE ? SWEEP_NONE : column->values.items[index];
}

bool sweep_is_numeric(const sweep_column *axis)
{
    for (size_t i = 0; i < axis->values.count; i++)
        if (!axis->values.items[i].is_number)
            return false;
    return true;
}

void sweep_append_value(kb_text *text, sweep_value value)
{
    if (value.none)
        return;
    if (value.text)
        kb_text_puts(text, value.text);
    else
        sweep_append_number(text, value.number);
}

sweep_value sweep_row_value(const void *row_view, size_t column)
{
    const sweep_row_view *view = row_view;
    return sweep_cell(&view->results->columns.items[column], view->row);
}
