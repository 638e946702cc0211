/*
 * trace_check.c TRACE [RESULTS]: checks the trace of a run, and that it adds up to what the
 * document of `kernbench run --json` says: each unit's slices to its busy time, the bandwidth of
 * each kind of links to their bytes, and that of the HBMs of all cubes to what these served. The
 * states of PEs take as long as the kernels.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "trace_file.h"

static int compare_units(const trace_facts *facts, const json_t *units)
{
    for (size_t i = 0; i < json_array_size(units); i++) {
        const json_t *unit = json_array_get(units, i);
        const char *name = json_string_value(json_object_get(unit, "unit"));
        double busy_ns = json_number_value(json_object_get(unit, "busy_ns"));
        const trace_category *category = trace_find(facts, name);
        double found_ns = category ? (double)category->time_fs * 1e-6 : 0;
        if (fabs(found_ns - busy_ns) > 1e-6 * (1 + 1e-9 * busy_ns)) {
            printf("%s: slices of %.6f ns, but busy for %.6f ns\n", name, found_ns, busy_ns);
            return 1;
        }
    }
    return 0;
}

/* "ucie - ucie", or "sram" if it is a memory that serves. */
static void name_kind(const json_t *kind, char name[96])
{
    const json_t *between = json_object_get(kind, "between");
    const char *a = json_string_value(json_array_get(between, 0));
    const char *b = json_string_value(json_array_get(between, 1));
    if (json_is_true(json_object_get(kind, "service")))
        snprintf(name, 96, "link bandwidth: %s", a);
    else
        snprintf(name, 96, "link bandwidth: %s - %s", a, b);
}

/* Kinds that differ in bandwidth or length alone have one counter. */
static double bytes_of(const json_t *kinds, const char *name)
{
    double sum = 0;
    for (size_t i = 0; i < json_array_size(kinds); i++) {
        char other[96];
        name_kind(json_array_get(kinds, i), other);
        if (strcmp(other, name) == 0)
            sum += json_number_value(json_object_get(json_array_get(kinds, i), "bytes"));
    }
    return sum;
}

static int compare_bytes(const trace_facts *facts, const char *name, double bytes)
{
    double found = trace_sum_counters(facts, name);
    if (fabs(found - bytes) < 1e-3 + 1e-9 * bytes)
        return 0;
    printf("%s: adds up to %.3f bytes, but %.0f were carried\n", name, found, bytes);
    return 1;
}

static int compare_links(const trace_facts *facts, const json_t *results)
{
    const json_t *kinds = json_object_get(results, "link_kinds");
    double all = 0, in_trace = 0;
    for (size_t i = 0; i < json_array_size(kinds); i++) {
        char name[96];
        name_kind(json_array_get(kinds, i), name);
        if (compare_bytes(facts, name, bytes_of(kinds, name)) != 0)
            return 1;
        all += json_number_value(json_object_get(json_array_get(kinds, i), "bytes"));
    }
    for (size_t i = 0; i < facts->counter_count; i++)
        if (strncmp(facts->counters[i].name, "link bandwidth: ", 16) == 0)
            in_trace += facts->counters[i].integral;
    if (fabs(all - in_trace) > 1e-2 + 1e-9 * all) {
        printf("links carried %.0f bytes, in the trace %.3f\n", all, in_trace);
        return 1;
    }
    return compare_bytes(facts, "HBM bandwidth", bytes_of(kinds, "link bandwidth: hbm_ctrl"));
}

static int compare_states(const trace_facts *facts)
{
    const trace_category *states = trace_find(facts, "state");
    const trace_category *kernels = trace_find(facts, "kernel");
    if ((states ? states->time_fs : 0) == (kernels ? kernels->time_fs : 0))
        return 0;
    printf("states and kernels do not take the same time\n");
    return 1;
}

static int compare(const trace_facts *facts, const char *path)
{
    json_t *results = json_load_file(path, 0, NULL);
    const json_t *units = json_object_get(results, "units");
    if (json_array_size(units) == 0) {
        printf("the results have no units\n");
        return 1;
    }
    int code = compare_units(facts, units) | compare_links(facts, results) | compare_states(facts);
    json_decref(results);
    return code;
}

int main(int argc, char **argv)
{
    if (argc != 2 && argc != 3)
        return 2;
    trace_facts facts = trace_read(argv[1]);
    if (facts.problem[0] != '\0') {
        printf("%s\n", facts.problem);
        return 1;
    }
    int code = argc == 3 ? compare(&facts, argv[2]) : 0;
    printf("%llu slices, %llu arrows, %zu counters\n", (unsigned long long)facts.slices,
           (unsigned long long)facts.arrows, facts.counter_count);
    free(facts.counters);
    return code;
}
