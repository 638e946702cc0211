/*
 * trace_check.c TRACE RESULTS: checks the trace of a run, and that each unit's slices add up to
 * what the document of `kernbench run --json` says that it was busy for.
 */
#include <math.h>
#include <stdio.h>
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

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    trace_facts facts = trace_read(argv[1]);
    if (facts.problem[0] != '\0') {
        printf("%s\n", facts.problem);
        return 1;
    }
    json_t *results = json_load_file(argv[2], 0, NULL);
    const json_t *units = json_object_get(results, "units");
    if (json_array_size(units) == 0) {
        printf("the results have no units\n");
        return 1;
    }
    int code = compare_units(&facts, units);
    json_decref(results);
    printf("%llu slices, %llu arrows\n", (unsigned long long)facts.slices,
           (unsigned long long)facts.arrows);
    return code;
}
