/*
 * check_run_json.c: reads the document of `kernbench run --json` from stdin: that it has what it
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

/* The causes whose names begin with one of these, summed. */
static double sum_causes(const json_t *causes, const char *const *names, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        char key[64];
        snprintf(key, sizeof key, "%s_ns", names[i]);
        sum += number(causes, key);
    }
    return sum;
}

/* Causes add up to the groups, and these to the run. */
static void check_causes(const json_t *document)
{
    static const char *const compute[] = {"matrix", "vector", "matrix_drain"};
    static const char *const memory[] = {"local_memory", "tcm"};
    static const char *const communication[] = {
        "cube_pes", "other_cubes", "other_sips",       "message",
        "credit",   "launch",      "no_kernel_launch", "no_kernel_request"};
    static const char *const idle[] = {"issue", "imbalance", "no_kernel_idle"};
    static const struct {
        const char *group;
        const char *const *names;
        size_t count;
    } groups[] = {{"compute_ns", compute, 3},
                  {"memory_ns", memory, 2},
                  {"communication_ns", communication, 8},
                  {"idle_ns", idle, 3}};
    const json_t *causes = json_object_get(document, "causes");
    const json_t *parts = json_object_get(document, "breakdown");
    for (size_t i = 0; i < 4; i++)
        if (!same_ns(sum_causes(causes, groups[i].names, groups[i].count),
                     number(parts, groups[i].group)))
            complain(groups[i].group, "is not the sum of its causes");
    if (json_object_size(causes) != 16)
        complain("causes", "there are others");
}

static double sum_members(json_t *object)
{
    double sum = 0;
    for (void *at = json_object_iter(object); at; at = json_object_iter_next(object, at))
        sum += json_number_value(json_object_iter_value(at));
    return sum;
}

/* Rows add up to the PEs' time while kernels run. */
static void check_profile(const json_t *document)
{
    const json_t *rows = json_object_get(document, "profile");
    if (!rows)
        return;
    json_t *causes = json_object_get(document, "causes");
    const json_t *roofline = json_object_get(document, "roofline");
    double in_kernels = sum_members(causes) - number(causes, "no_kernel_launch_ns") -
                        number(causes, "no_kernel_request_ns") -
                        number(causes, "no_kernel_idle_ns");
    double sum = 0, share = 0;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        double time = number(row, "time_ns");
        if (!same_ns(time, sum_members(json_object_get(row, "causes"))))
            complain("profile", "a row is not the sum of its causes");
        sum += time;
        share += number(row, "share");
        number(row, "commands");
        number(row, "line");
    }
    if (!same_ns(sum, in_kernels * number(roofline, "pes")) || fabs(share - 1) > 1e-9)
        complain("profile", "does not add up to the time of the PEs");
}

static void check_kernels(const json_t *document)
{
    const json_t *kernels = json_object_get(document, "kernels");
    for (size_t i = 0; i < json_array_size(kernels); i++) {
        const json_t *kernel = json_array_get(kernels, i);
        double total = number(kernel, "total_ns"), exec = number(kernel, "pe_exec_ns");
        if (!same_ns(total, exec + number(kernel, "network_ns")))
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
    check_causes(document);
    check_profile(document);
    check_kernels(document);
    check_links(document);
    for (int i = 1; i < argc; i++)
        print_member(document, argv[i]);
    json_decref(document);
    return problems > 0;
}
