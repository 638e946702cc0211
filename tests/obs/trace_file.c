/* trace_file.c: checks a trace: see trace_file.h. */
#include "trace_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

/* An event of any phase. */
typedef struct event {
    int64_t pid, tid;
    int64_t start, end; /* fs */
    int64_t id;         /* of an arrow */
} event;

typedef struct events {
    event *items;
    size_t count;
} events;

typedef struct reader {
    trace_facts facts;
    events slices, thread_names, process_names, starts, finishes;
} reader;

__attribute__((format(printf, 2, 3))) static void complain(reader *r, const char *format, ...)
{
    if (r->facts.problem[0] != '\0')
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(r->facts.problem, sizeof r->facts.problem, format, args);
    va_end(args);
}

static void push(events *list, event e)
{
    if ((list->count & (list->count - 1)) == 0) {
        size_t room = list->count == 0 ? 1 : 2 * list->count;
        list->items = realloc(list->items, room * sizeof e);
        if (!list->items)
            abort();
    }
    list->items[list->count++] = e;
}

/* By thread, then start; of equal starts the longer one first, which has the others in it. */
static int compare(const void *a, const void *b)
{
    const event *x = a, *y = b;
    if (x->pid != y->pid)
        return x->pid < y->pid ? -1 : 1;
    if (x->tid != y->tid)
        return x->tid < y->tid ? -1 : 1;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return (x->end < y->end) - (x->end > y->end);
}

static int compare_ids(const void *a, const void *b)
{
    const event *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static void sort(events *list, int (*order)(const void *, const void *))
{
    if (list->count > 0)
        qsort(list->items, list->count, sizeof list->items[0], order);
}

static const event *find(const events *list, int64_t pid, int64_t tid)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->items[i].pid == pid && (tid < 0 || list->items[i].tid == tid))
            return &list->items[i];
    return NULL;
}

/* ---- Reading ---- */

/* Microseconds as femtoseconds: a double has them exactly up to 9 seconds. */
static int64_t read_time(reader *r, const json_t *e, const char *key)
{
    const json_t *value = json_object_get(e, key);
    double time = json_number_value(value);
    if (!json_is_number(value) || time < 0)
        complain(r, "%s is no time", key);
    return llround(time * 1e9);
}

static const char *read_string(reader *r, const json_t *e, const char *key)
{
    const char *text = json_string_value(json_object_get(e, key));
    if (!text)
        complain(r, "an event has no %s", key);
    return text ? text : "";
}

static void add_to_category(reader *r, const char *name, int64_t time)
{
    trace_facts *f = &r->facts;
    size_t i = 0;
    while (i < f->category_count && strcmp(f->categories[i].name, name) != 0)
        i++;
    if (i == TRACE_CATEGORIES) {
        complain(r, "too many categories");
        return;
    }
    if (i == f->category_count)
        snprintf(f->categories[f->category_count++].name, sizeof f->categories[0].name, "%s", name);
    f->categories[i].slices++;
    f->categories[i].time_fs += time;
}

static void read_slice(reader *r, const json_t *e, event at)
{
    at.start = read_time(r, e, "ts");
    int64_t time = read_time(r, e, "dur");
    at.end = at.start + time;
    if (read_string(r, e, "name")[0] == '\0')
        complain(r, "a slice has no name");
    if (!json_is_object(json_object_get(e, "args")))
        complain(r, "a slice has no args");
    add_to_category(r, read_string(r, e, "cat"), time);
    r->facts.slices++;
    push(&r->slices, at);
}

static void read_metadata(reader *r, const json_t *e, event at)
{
    const char *name = read_string(r, e, "name");
    const json_t *args = json_object_get(e, "args");
    bool sorts = strstr(name, "_sort_index") != NULL;
    if (sorts ? !json_is_integer(json_object_get(args, "sort_index"))
              : !json_is_string(json_object_get(args, "name")))
        complain(r, "metadata without a value");
    if (strcmp(name, "thread_name") == 0) {
        if (find(&r->thread_names, at.pid, at.tid))
            complain(r, "a thread has two names");
        push(&r->thread_names, at);
    } else if (strcmp(name, "process_name") == 0) {
        if (find(&r->process_names, at.pid, -1))
            complain(r, "a process has two names");
        push(&r->process_names, at);
    } else if (!sorts) {
        complain(r, "unknown metadata '%s'", name);
    }
}

static void read_arrow(reader *r, const json_t *e, event at, events *into)
{
    const json_t *id = json_object_get(e, "id");
    if (!json_is_integer(id))
        complain(r, "an arrow has no id");
    at.id = json_integer_value(id);
    at.start = read_time(r, e, "ts");
    read_string(r, e, "name");
    read_string(r, e, "cat");
    if (strcmp(read_string(r, e, "bp"), "e") != 0)
        complain(r, "an arrow does not bind to the enclosing slice");
    push(into, at);
}

static trace_counter *need_counter(reader *r, int64_t pid, const char *name, const char *unit)
{
    trace_facts *f = &r->facts;
    for (size_t i = f->counter_count; i-- > 0;)
        if (f->counters[i].pid == pid && strcmp(f->counters[i].name, name) == 0)
            return &f->counters[i];
    if (f->counter_count == TRACE_COUNTERS) {
        complain(r, "too many counters");
        return NULL;
    }
    if (!f->counters) {
        f->counters = calloc(TRACE_COUNTERS, sizeof *f->counters);
        if (!f->counters)
            abort();
    }
    trace_counter *fresh = &f->counters[f->counter_count++];
    fresh->pid = pid;
    snprintf(fresh->name, sizeof fresh->name, "%s", name);
    snprintf(fresh->unit, sizeof fresh->unit, "%s", unit);
    return fresh;
}

/* Values hold until the next event of the counter; these come in the order of time. */
static void read_counter(reader *r, const json_t *e, int64_t pid)
{
    json_t *args = json_object_get(e, "args");
    void *member = json_object_iter(args);
    if (!member || json_object_size(args) != 1) {
        complain(r, "a counter without a value, or with several");
        return;
    }
    double value = json_number_value(json_object_iter_value(member));
    int64_t time = read_time(r, e, "ts");
    trace_counter *c =
        need_counter(r, pid, read_string(r, e, "name"), json_object_iter_key(member));
    if (!json_is_number(json_object_iter_value(member)) || !(value >= 0) || !isfinite(value))
        complain(r, "a counter is not a number from 0 on");
    if (!c)
        return;
    if (c->events > 0 && time <= c->last_fs)
        complain(r, "counter %s goes back in time at %" PRId64 " fs", c->name, time);
    c->integral += c->last * (double)(time - c->last_fs) * 1e-6;
    c->last = value;
    c->last_fs = time;
    c->max = value > c->max ? value : c->max;
    c->events++;
}

static void read_event(reader *r, const json_t *e)
{
    const char *phase = read_string(r, e, "ph");
    const json_t *pid = json_object_get(e, "pid"), *tid = json_object_get(e, "tid");
    if (!json_is_integer(pid) || !json_is_integer(tid))
        complain(r, "an event has no pid or tid");
    event at = {.pid = json_integer_value(pid), .tid = json_integer_value(tid)};
    if (strcmp(phase, "X") == 0)
        read_slice(r, e, at);
    else if (strcmp(phase, "M") == 0)
        read_metadata(r, e, at);
    else if (strcmp(phase, "s") == 0)
        read_arrow(r, e, at, &r->starts);
    else if (strcmp(phase, "f") == 0)
        read_arrow(r, e, at, &r->finishes);
    else if (strcmp(phase, "C") == 0)
        read_counter(r, e, at.pid);
    else
        complain(r, "unknown phase '%s'", phase);
}

/* ---- Checking ---- */

/* Slices of a thread are apart, or one is in the other. */
static void check_threads(reader *r)
{
    enum { DEEPEST = 16 };
    int64_t open[DEEPEST];
    size_t depth = 0;
    for (size_t i = 0; i < r->slices.count; i++) {
        const event *s = &r->slices.items[i];
        const event *last = i > 0 ? s - 1 : NULL;
        if (!last || last->pid != s->pid || last->tid != s->tid) {
            depth = 0;
            r->facts.threads++;
            if (!find(&r->thread_names, s->pid, s->tid) || !find(&r->process_names, s->pid, -1))
                complain(r, "thread %" PRId64 " of process %" PRId64 " has no name", s->tid,
                         s->pid);
        }
        while (depth > 0 && open[depth - 1] <= s->start)
            depth--;
        if (depth > 0 && open[depth - 1] < s->end)
            complain(
                r, "slices of thread %" PRId64 " of process %" PRId64 " overlap at %" PRId64 " fs",
                s->tid, s->pid, s->start);
        if (depth < DEEPEST)
            open[depth++] = s->end;
    }
}

static bool is_in(const event *slice, const event *arrow)
{
    return slice->pid == arrow->pid && slice->tid == arrow->tid;
}

/*
 * Viewers bind the end of an arrow to the slice that encloses it: one that begins then, or is under
 * way and ends later.
 */
static bool binds(const events *slices, const event *arrow)
{
    size_t low = 0, high = slices->count;
    event wanted = {.pid = arrow->pid, .tid = arrow->tid, .start = arrow->start, .end = INT64_MAX};
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (compare(&slices->items[middle], &wanted) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < slices->count && is_in(&slices->items[low], arrow) &&
        slices->items[low].start == arrow->start)
        return true;
    return low > 0 && is_in(&slices->items[low - 1], arrow) &&
           slices->items[low - 1].end > arrow->start;
}

static void check_arrows(reader *r)
{
    sort(&r->starts, compare_ids);
    sort(&r->finishes, compare_ids);
    if (r->starts.count != r->finishes.count)
        complain(r, "%zu arrows begin, %zu end", r->starts.count, r->finishes.count);
    for (size_t i = 0; i < r->starts.count && i < r->finishes.count; i++) {
        const event *from = &r->starts.items[i], *to = &r->finishes.items[i];
        if (from->id != to->id || (i > 0 && from->id == from[-1].id))
            complain(r, "arrow %" PRId64 " is not one", from->id);
        if (from->start > to->start)
            complain(r, "arrow %" PRId64 " goes back in time", from->id);
        if (!binds(&r->slices, from) || !binds(&r->slices, to))
            complain(r, "arrow %" PRId64 " does not bind to slices", from->id);
    }
    r->facts.arrows = r->starts.count;
}

static void check_counters(reader *r)
{
    for (size_t i = 0; i < r->facts.counter_count; i++) {
        const trace_counter *c = &r->facts.counters[i];
        if (!find(&r->process_names, c->pid, -1))
            complain(r, "counter %s is of process %" PRId64 ", which has no name", c->name, c->pid);
        if (strcmp(c->unit, "GB/s") == 0 && c->last > 0)
            complain(r, "counter %s does not end with 0", c->name);
    }
}

trace_facts trace_read(const char *path)
{
    reader r = {0};
    json_error_t error;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    const json_t *all = json_object_get(root, "traceEvents");
    if (!json_is_array(all))
        complain(&r, "no trace: %s at line %d", error.text, error.line);
    for (size_t i = 0; i < json_array_size(all); i++)
        read_event(&r, json_array_get(all, i));
    sort(&r.slices, compare);
    check_threads(&r);
    check_arrows(&r);
    check_counters(&r);
    json_decref(root);
    free(r.slices.items);
    free(r.thread_names.items);
    free(r.process_names.items);
    free(r.starts.items);
    free(r.finishes.items);
    return r.facts;
}

double trace_sum_counters(const trace_facts *facts, const char *name)
{
    double sum = 0;
    for (size_t i = 0; i < facts->counter_count; i++)
        if (strcmp(facts->counters[i].name, name) == 0)
            sum += facts->counters[i].integral;
    return sum;
}

const trace_category *trace_find(const trace_facts *facts, const char *name)
{
    for (size_t i = 0; i < facts->category_count; i++)
        if (strcmp(facts->categories[i].name, name) == 0)
            return &facts->categories[i];
    return NULL;
}
