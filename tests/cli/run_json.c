/*
 * run_json.c: reads the document of `kernbench run --json` from stdin: that it has what it
 * promises, and that its figures add up. Prints what is wrong.
 *
 *     run_json KEY...    prints the values of these members as well, such as roofline.peak_gbs
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

static int problems;

static void complain(const char *what, const char *detail)
{
    printf("%s: %s\n", what, detail);
    problems++;
}

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value))
        complain(key, "is no number");
    return json_number_value(value);
}

/* To the femtosecond, as far as doubles go. */
static bool same_ns(double a, double b)
{
    return fabs(a - b) <= 1e-6 + 1e-12 * fabs(a);
}

static void check_types(const json_t *document)
{
    static const char *const strings[] = {"bench", "verdict"};
    static const char *const numbers[] = {"sim_ns",     "wall_s", "events",
                                          "link_bytes", "hops",   "hops_per_s"};
    static const char *const objects[] = {"topology", "breakdown", "metrics", "parameters"};
    static const char *const arrays[] = {"kernels", "units", "busiest_links", "link_kinds"};
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++)
        if (!json_is_string(json_object_get(document, strings[i])))
            complain(strings[i], "is no string");
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        number(document, numbers[i]);
    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++)
        if (!json_is_object(json_object_get(document, objects[i])))
            complain(objects[i], "is no object");
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        if (!json_is_array(json_object_get(document, arrays[i])))
            complain(arrays[i], "is no array");
    const json_t *verified = json_object_get(document, "verified");
    if (!json_is_boolean(verified) && !json_is_null(verified))
        complain("verified", "is neither true, false nor null");
    if (!json_is_boolean(json_object_get(document, "timing_only")))
        complain("timing_only", "is neither true nor false");
    const json_t *topology = json_object_get(document, "topology");
    if (!json_is_string(json_object_get(topology, "name")) ||
        !json_is_string(json_object_get(topology, "hash")))
        complain("topology", "has no name or hash");
}

static void check_breakdown(const json_t *document)
{
    const json_t *parts = json_object_get(document, "breakdown");
    double sum = number(parts, "compute_ns") + number(parts, "memory_ns") +
                 number(parts, "communication_ns") + number(parts, "idle_ns");
    if (!same_ns(sum, number(document, "sim_ns")))
        complain("breakdown", "does not add up to sim_ns");
}

static void check_kernels(const json_t *document)
{
    const json_t *kernels = json_object_get(document, "kernels");
    for (size_t i = 0; i < json_array_size(kernels); i++) {
        const json_t *kernel = json_array_get(kernels, i);
        double total = number(kernel, "total_ns"), exec = number(kernel, "pe_exec_ns");
        if (!same_ns(total - exec, number(kernel, "network_ns")))
            complain("kernels", "network is not the rest");
        if (total <= 0 || exec < 0 || total > number(document, "sim_ns"))
            complain("kernels", "times are odd");
        number(kernel, "sip");
        if (!json_is_string(json_object_get(kernel, "name")))
            complain("kernels", "one has no name");
    }
}

static void check_links(const json_t *document)
{
    const json_t *links = json_object_get(document, "busiest_links");
    double last = 1;
    for (size_t i = 0; i < json_array_size(links); i++) {
        const json_t *link = json_array_get(links, i);
        double utilization = number(link, "utilization");
        if (utilization < 0 || utilization > last)
            complain("busiest_links", "are not in order, or more than full");
        last = utilization;
        if (number(link, "bytes") <= 0 || number(link, "waited_ns") < 0)
            complain("busiest_links", "figures are odd");
        if (!json_is_string(json_object_get(link, "link")))
            complain("busiest_links", "one has no name");
    }
    const json_t *kinds = json_object_get(document, "link_kinds");
    double bytes = 0;
    for (size_t i = 0; i < json_array_size(kinds); i++)
        bytes += number(json_array_get(kinds, i), "bytes");
    if (bytes != number(document, "link_bytes"))
        complain("link_kinds", "bytes do not add up to link_bytes");
}

/* The member of a member: "roofline.peak_gbs"; an index for arrays: "kernels.0.name". */
static void print_member(const json_t *at, char *path)
{
    for (char *word = strtok(path, "."); word; word = strtok(NULL, "."))
        at = json_is_array(at) ? json_array_get(at, (size_t)(word[0] - '0'))
                               : json_object_get(at, word);
    char *text = at ? json_dumps(at, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15)) : NULL;
    printf("%s\n", text ? text : "missing");
    free(text);
}

int main(int argc, char **argv)
{
    json_error_t error;
    json_t *document = json_loadf(stdin, JSON_REJECT_DUPLICATES, &error);
    if (!document) {
        printf("no JSON: %s at line %d\n", error.text, error.line);
        return 1;
    }
    check_types(document);
    check_breakdown(document);
    check_kernels(document);
    check_links(document);
    for (int i = 1; i < argc; i++)
        print_member(document, argv[i]);
    json_decref(document);
    return problems > 0;
}
