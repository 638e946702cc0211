/*
 * probe_json.c: reads the output of probe --json from stdin and checks it; for probe.sh. With
 * arguments CASE KEY it prints that number instead.
 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static int failures;

static void expect(int good, const char *name, const char *what)
{
    if (good)
        return;
    failures++;
    fprintf(stderr, "%s: %s\n", name, what);
}

static double number(const json_t *object, const char *key, const char *name)
{
    const json_t *value = json_object_get(object, key);
    expect(json_is_number(value), name, key);
    return json_number_value(value);
}

/* What the nodes and links of the way add, one by one and by kind, is what the case says. */
static void check_parts(const json_t *c, const char *name)
{
    const json_t *item;
    size_t i;
    double overhead = number(c, "overhead_ns", name), wire = number(c, "wire_ns", name), kinds = 0;
    json_array_foreach(json_object_get(c, "overhead_by_kind"), i, item)
    {
        double all = number(item, "total_ns", name);
        double each = number(item, "each_ns", name), count = number(item, "count", name);
        expect(fabs(each * count - all) < 1e-6, name, "count x each");
        expect(json_is_string(json_object_get(item, "kind")), name, "kind");
        kinds += all;
    }
    expect(fabs(kinds - overhead) < 1e-6, name, "the kinds do not add up");
    json_array_foreach(json_object_get(c, "path"), i, item)
    {
        overhead -= number(item, "overhead_ns", name);
        wire -= number(item, "wire_ns", name);
    }
    expect(fabs(overhead) < 1e-6 && fabs(wire) < 1e-6, name, "the stops do not add up");
}

static void check_path(const json_t *c, const char *name, double total)
{
    const json_t *path = json_object_get(c, "path"), *stop;
    size_t i, count = json_array_size(path);
    double before = 0;
    expect(count >= 2, name, "path");
    json_array_foreach(path, i, stop)
    {
        double at = number(stop, "at_ns", name);
        expect(json_is_string(json_object_get(stop, "node")), name, "node");
        expect(i == 0 || json_is_string(json_object_get(stop, "link")), name, "link");
        expect(i == 0 || number(stop, "link_gbs", name) > 0, name, "link_gbs");
        expect(at >= before, name, "at_ns goes back");
        before = at;
    }
    expect(before == total, name, "the path does not end at the total");
}

static void check_sweep(const json_t *c, const char *name)
{
    const json_t *sweep = json_object_get(c, "sweep"), *point;
    size_t i;
    double bytes = 2048, time = 0, gbs = 0;
    expect(json_array_size(sweep) == 9, name, "sweep");
    json_array_foreach(sweep, i, point)
    {
        double b = number(point, "nbytes", name), t = number(point, "total_ns", name);
        double g = number(point, "effective_gbs", name), u = number(point, "utilization", name);
        expect(b == 2 * bytes, name, "sizes of the sweep");
        expect(t > time && g > gbs, name, "the sweep is not monotone");
        expect(fabs(b / t - g) < 1e-9 * g && u > 0 && u <= 1, name, "bandwidth of the sweep");
        bytes = b;
        time = t;
        gbs = g;
    }
    expect(bytes == 1 << 20, name, "the sweep does not end at 1 MiB");
}

static void check_case(const json_t *c)
{
    const char *name = json_string_value(json_object_get(c, "name"));
    expect(name != NULL, "?", "name");
    name = name ? name : "?";
    double total = number(c, "total_ns", name);
    double parts = number(c, "overhead_ns", name) + number(c, "wire_ns", name) +
                   number(c, "drain_ns", name) + number(c, "queueing_ns", name);
    expect(fabs(total - parts) < 1e-6, name, "the parts do not add up");
    expect(number(c, "queueing_ns", name) == 0, name, "queueing of a lone transfer");
    double gbs = number(c, "effective_gbs", name), most = number(c, "bottleneck_gbs", name);
    expect(fabs(number(c, "nbytes", name) / total - gbs) < 1e-9 * gbs, name, "effective_gbs");
    expect(fabs(gbs / most - number(c, "utilization", name)) < 1e-9, name, "utilization");
    expect(json_is_string(json_object_get(c, "bottleneck_link")), name, "bottleneck_link");
    check_parts(c, name);
    check_path(c, name, total);
    check_sweep(c, name);
}

static void check_load(const json_t *c)
{
    const char *name = json_string_value(json_object_get(c, "name"));
    const json_t *points = json_object_get(c, "load"), *point;
    size_t i;
    expect(number(c, "capacity_gbs", name) > 0, name, "capacity_gbs");
    expect(json_array_size(points) > 5, name, "load");
    json_array_foreach(points, i, point)
    {
        double mean = number(point, "mean_ns", name), p99 = number(point, "p99_ns", name);
        expect(mean > 0 && p99 <= number(point, "max_ns", name), name, "latencies");
        expect(number(point, "utilization", name) <= 1, name, "utilization");
        expect(number(point, "accepted_gbs", name) > 0, name, "accepted_gbs");
        expect(number(point, "waited_ns", name) >= 0, name, "waited_ns");
        expect(number(point, "wait_ns", name) >= 0, name, "wait_ns");
    }
}

int main(int argc, char **argv)
{
    json_error_t error;
    json_t *document = json_loadf(stdin, JSON_REJECT_DUPLICATES, &error);
    const json_t *cases = json_object_get(document, "cases"), *c;
    size_t i;
    if (json_array_size(cases) == 0) {
        fprintf(stderr, "no cases: %s\n", error.text);
        return 1;
    }
    json_array_foreach(cases, i, c)
    {
        const char *name = json_string_value(json_object_get(c, "name"));
        if (argc == 3 && name && strcmp(name, argv[1]) == 0)
            printf("%.15g\n", json_number_value(json_object_get(c, argv[2])));
        else if (argc < 3 && json_object_get(c, "load"))
            check_load(c);
        else if (argc < 3)
            check_case(c);
    }
    json_decref(document);
    return failures > 0;
}
