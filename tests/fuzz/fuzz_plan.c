/*
 * fuzz_plan.c: bytes as a plan of a sweep with options: "over key=1..4", "zip a,b", "where EXPR",
 * "set key=value", "param name=value", "bench name". A plan that is accepted has points, each with
 * a bench, and no point is there twice.
 */
#include "fuzz.h"

#include <string.h>

#include "sweep/sweep_plan.h"

enum { MAX_VALUES = 2000, MAX_POINTS = 2000 };

typedef kb_error *apply_option(sweep_plan *plan, const char *text);

static const struct {
    const char *name;
    apply_option *apply;
} options[] = {{"over ", sweep_plan_over},   {"zip ", sweep_plan_zip},
               {"where ", sweep_plan_where}, {"set ", sweep_plan_set},
               {"param ", sweep_plan_param}, {"bench ", sweep_plan_bench}};

static kb_error *apply(sweep_plan *plan, const char *line)
{
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        size_t length = strlen(options[i].name);
        if (strncmp(line, options[i].name, length) == 0)
            return options[i].apply(plan, line + length);
    }
    return NULL;
}

/* Whether the plan can be looked at within a moment. */
static bool is_small(const sweep_plan *plan)
{
    uint64_t values = 0, points = plan->repeat;
    for (size_t i = 0; i < plan->axes.count; i++) {
        values += plan->axes.items[i].values.count;
        points *= plan->axes.items[i].values.count;
        if (points > MAX_POINTS)
            return false;
    }
    return values <= MAX_VALUES && points * plan->blocks.count <= MAX_POINTS;
}

/* Points differ in the value of an axis, or in the number of the repetition. */
static bool differ(const sweep_point *a, const sweep_point *b)
{
    return a->repeat != b->repeat || a->values.count != b->values.count ||
           strcmp(a->bench, b->bench) != 0 || a->values.count == 0 ||
           memcmp(a->values.items, b->values.items, a->values.count * sizeof *a->values.items) != 0;
}

static void check_points(const sweep_plan *plan)
{
    sweep_point points[2] = {0};
    for (size_t i = 0; i < plan->point_count; i++) {
        sweep_point *point = &points[i % 2];
        kb_error *err = sweep_plan_point(plan, i, point);
        KB_ASSERT(!err && point->bench);
        for (size_t s = 0; s < point->settings.count; s++)
            KB_ASSERT(strchr(point->settings.items[s], '='));
        for (size_t c = 0; c < plan->columns.count; c++)
            KB_ASSERT(!point->cells[c] || point->cells[c][0] != '\0');
        KB_ASSERT(i == 0 || plan->blocks.count > 1 || differ(point, &points[(i + 1) % 2]));
    }
    sweep_point_fini(&points[0]);
    sweep_point_fini(&points[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_parts parts = fuzz_split(data, size);
    sweep_plan *plan;
    kb_error *err = sweep_plan_create(&plan);
    KB_ASSERT(!err);
    if (parts.text_length > 0)
        err = sweep_plan_read_text(plan, "plan.yaml", parts.text, parts.text_length);
    for (size_t i = 0; i < parts.line_count && !err; i++)
        err = apply(plan, parts.lines[i]);
    if (!err && is_small(plan)) {
        err = sweep_plan_finish(plan);
        if (!err)
            check_points(plan);
    }
    if (err)
        fuzz_check_refusal(err, NULL);
    sweep_plan_destroy(plan);
    fuzz_parts_fini(&parts);
    return 0;
}
