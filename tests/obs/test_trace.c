/*
 * test_trace.c: traces of operations that are made up here: where they are shown, what they say,
 * and what happens if they cannot be written.
 */
#include "support/expect.h"
#include "support/seed.h"

#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>

#include "base/base.h"
#include "obs/obs.h"
#include "trace_file.h"

static const kb_machine machine = {.name = "tiny", .sips = 2, .cubes = 3, .pes = 4};

static const char *path_of_trace(void)
{
    static char path[64];
    snprintf(path, sizeof path, "/tmp/kb-trace-%ld.json", (long)getpid());
    return path;
}

static FILE *file_of_trace;

static kb_error *open_trace(const char *path, obs_trace **trace)
{
    file_of_trace = fopen(path, "w");
    assert_non_null(file_of_trace);
    return obs_trace_create(file_of_trace, path, &machine, trace);
}

static kb_error *close_trace(obs_trace *trace)
{
    kb_error *err = obs_trace_close(trace);
    (void)fclose(file_of_trace);
    return err;
}

static kb_op op_of(kb_unit unit, const char *name, kb_pe pe, kb_time start, kb_time end)
{
    return (kb_op){.unit = unit, .name = name, .label = "", .pe = pe, .start = start, .end = end};
}

static int compare_ends(const void *a, const void *b)
{
    const kb_op *x = a, *y = b;
    return (x->end > y->end) - (x->end < y->end);
}

/* Writes the operations in the order of their ends. */
static void write_trace(kb_op *ops, size_t count)
{
    obs_trace *trace;
    expect_ok(open_trace(path_of_trace(), &trace));
    if (count > 0)
        qsort(ops, count, sizeof *ops, compare_ends);
    for (size_t i = 0; i < count; i++)
        obs_trace_op(trace, &ops[i]);
    expect_ok(close_trace(trace));
}

/* A trace without problems. */
static trace_facts read_back(void)
{
    trace_facts facts = trace_read(path_of_trace());
    assert_string_equal(facts.problem, "");
    return facts;
}

static json_t *load(void)
{
    json_t *root = json_load_file(path_of_trace(), 0, NULL);
    assert_non_null(root);
    return root;
}

/* The n-th event of a phase. */
static const json_t *event_of(const json_t *root, const char *phase, size_t n)
{
    const json_t *all = json_object_get(root, "traceEvents");
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *event = json_array_get(all, i);
        if (strcmp(json_string_value(json_object_get(event, "ph")), phase) == 0 && n-- == 0)
            return event;
    }
    fail_msg("no such event");
    return NULL;
}

static int64_t fs_of(const json_t *event)
{
    return llround(json_number_value(json_object_get(event, "ts")) * 1e9);
}

static void expect_member(const json_t *object, const char *key, const char *value)
{
    const char *found = json_string_value(json_object_get(object, key));
    assert_non_null(found);
    assert_string_equal(found, value);
}

/* ---- What is shown ----------------------------------------------------------------------- */

static void an_empty_trace_is_one(void **state)
{
    (void)state;
    write_trace(NULL, 0);
    trace_facts facts = read_back();
    assert_int_equal(facts.slices, 0);
    assert_int_equal(facts.threads, 0);
}

/* Every femtosecond is in the text: 1 us is 10^9 of them. */
static void times_are_exact(void **state)
{
    (void)state;
    kb_op op = op_of(KB_UNIT_GEMM, "dot", (kb_pe){1, 2, 3}, 1, 12345678901);
    op.flops = 64;
    write_trace(&op, 1);
    read_back();
    char text[2000] = "";
    FILE *file = fopen(path_of_trace(), "r");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    assert_non_null(strstr(text, "\"ts\":0.000000001,\"dur\":12.345678900,"));
}

static void an_operation_says_what_it_was(void **state)
{
    (void)state;
    kb_op op = op_of(KB_UNIT_DMA_READ, "load", (kb_pe){1, 2, 3}, 5, 9);
    op.label = "a \"launch\" \\ \n \x01 caf\xc3\xa9 \xff";
    op.bytes = 4096;
    op.flops = 7;
    op.file = "my kernel.c";
    op.line = 42;
    write_trace(&op, 1);
    read_back();
    json_t *root = load();
    const json_t *slice = event_of(root, "X", 0), *args = json_object_get(slice, "args");
    expect_member(slice, "name", "load");
    expect_member(slice, "cat", "pe_dma_read");
    expect_member(args, "label", "a \"launch\" \\ \n \x01 caf\xc3\xa9 \xef\xbf\xbd");
    expect_member(args, "file", "my kernel.c");
    assert_int_equal(json_integer_value(json_object_get(args, "line")), 42);
    assert_int_equal(json_integer_value(json_object_get(args, "bytes")), 4096);
    assert_int_equal(json_integer_value(json_object_get(args, "flops")), 7);
    assert_null(json_object_get(args, "record")); /* it has none, */
    assert_null(json_object_get(args, "begun_by"));
    expect_member(json_object_get(event_of(root, "M", 0), "args"), "name", "sip1.cube2");
    expect_member(json_object_get(event_of(root, "M", 2), "args"), "name", "pe3 pe_dma read 0");
    expect_member(json_object_get(root, "otherData"), "machine", "tiny");
    json_decref(root);
}

static void an_operation_says_what_determined_its_times(void **state)
{
    (void)state;
    kb_op op = op_of(KB_UNIT_IPCQ, "recv", (kb_pe){1, 2, 3}, 5, 9);
    op.id = 18;
    op.begun_by = (kb_reason){KB_REASON_ISSUE, 16};
    op.ended_by = (kb_reason){KB_REASON_MESSAGE, 17};
    write_trace(&op, 1);
    json_t *root = load();
    const json_t *args = json_object_get(event_of(root, "X", 0), "args");
    assert_int_equal(json_integer_value(json_object_get(args, "record")), 18);
    expect_member(args, "begun_by", "issue of record 16");
    expect_member(args, "ended_by", "message of record 17");
    json_decref(root);
    op.ended_by = (kb_reason){KB_REASON_WORK, 0};
    write_trace(&op, 1);
    root = load();
    expect_member(json_object_get(event_of(root, "X", 0), "args"), "ended_by", "work");
    json_decref(root);
}

static void units_have_threads_of_their_own(void **state)
{
    (void)state;
    kb_op ops[2 * KB_UNITS + 1];
    size_t count = 0;
    for (int unit = 0; unit < KB_UNITS; unit++)
        for (uint32_t pe = 0; pe < 2; pe++)
            ops[count++] = op_of((kb_unit)unit, "something", (kb_pe){0, 0, pe}, 10, 20);
    ops[count++] = op_of(KB_UNIT_CPU, "kernel", (kb_pe){0, 0, 0}, 0, 30);
    write_trace(ops, count);
    trace_facts facts = read_back();
    assert_int_equal(facts.slices, count);
    assert_int_equal(facts.threads, count); /* those of the host at the same time, too */
    for (int unit = 0; unit < KB_UNITS; unit++) {
        const trace_category *category = trace_find(&facts, kb_unit_name((kb_unit)unit));
        assert_non_null(category);
        assert_int_equal(category->slices, 2);
        assert_int_equal(category->time_fs, 20);
    }
    assert_int_equal(trace_find(&facts, "kernel")->time_fs, 30);
}

/* ---- Lanes ------------------------------------------------------------------------------- */

/* The most that are under way at a time; what ends when another starts is not. */
static size_t depth_of(const kb_op *ops, size_t count)
{
    size_t most = 0;
    for (size_t i = 0; i < count; i++) {
        size_t depth = 0;
        for (size_t k = 0; k < count; k++)
            depth += ops[k].start <= ops[i].start && ops[k].end > ops[i].start;
        most = depth > most ? depth : most;
    }
    return most;
}

static void lanes_are_as_few_as_can_be(void **state)
{
    (void)state;
    enum { OPS = 60 };
    kb_rng rng;
    kb_rng_init(&rng, test_seed(7));
    for (int round = 0; round < 200; round++) {
        kb_op ops[OPS];
        uint64_t span = 1 + kb_rng_below(&rng, 400), longest = 1 + kb_rng_below(&rng, 100);
        for (int i = 0; i < OPS; i++) {
            kb_time start = (kb_time)kb_rng_below(&rng, span);
            kb_time end = start + 1 + (kb_time)kb_rng_below(&rng, longest);
            ops[i] = op_of(KB_UNIT_DMA_WRITE, "store", (kb_pe){0, 1, 2}, start, end);
        }
        write_trace(ops, OPS);
        trace_facts facts = read_back();
        assert_int_equal(facts.threads, depth_of(ops, OPS));
    }
}

/* ---- Arrows ------------------------------------------------------------------------------ */

static void arrows_go_from_launches_to_kernels(void **state)
{
    (void)state;
    kb_op ops[16];
    size_t count = 0;
    for (uint64_t launch = 1; launch <= 2; launch++) {
        kb_time at = 100 * (kb_time)launch;
        ops[count] = op_of(KB_UNIT_HOST, "launch", (kb_pe){0}, at, at + 150);
        ops[count].label = "gemm";
        ops[count++].launch = launch;
        for (uint32_t pe = 0; pe < 3; pe++) {
            ops[count] = op_of(KB_UNIT_CPU, "kernel", (kb_pe){pe % 2, 0, pe}, at + 10, at + 99);
            ops[count].label = "gemm";
            ops[count++].launch = launch;
        }
    }
    ops[count] = op_of(KB_UNIT_CPU, "kernel", (kb_pe){1, 1, 1}, 10, 20); /* its launch never ends */
    ops[count++].launch = 3;
    ops[count] = op_of(KB_UNIT_MATH, "add", (kb_pe){0}, 120, 130); /* no kernel */
    ops[count++].launch = 1;
    write_trace(ops, count);
    trace_facts facts = read_back();
    assert_int_equal(facts.arrows, 6);
    json_t *root = load();
    const json_t *from = event_of(root, "s", 0), *to = event_of(root, "f", 0);
    assert_int_equal(json_integer_value(json_object_get(from, "pid")), 1); /* the host */
    assert_true(json_integer_value(json_object_get(to, "pid")) > 1);
    assert_int_equal(fs_of(from), 100); /* the launch's start, and the kernel's */
    assert_int_equal(fs_of(to), 110);
    expect_member(event_of(root, "X", 0), "name", "kernel"); /* it has no label */
    json_decref(root);
}

static kb_op message_op(kb_unit unit, const char *name, uint32_t pe, uint64_t message,
                        kb_time start, kb_time end)
{
    kb_op op = op_of(unit, name, (kb_pe){.pe = pe}, start, end);
    op.message = message;
    return op;
}

/*
 * Message 1 goes from PE 0 to PE 1, which waits for it from 5 on; message 2, in two parts, was
 * there before PE 0 asked for it; nobody receives message 3. Waiting for a credit is shown, and no
 * more.
 */
static void arrows_go_from_sends_to_receives(void **state)
{
    (void)state;
    kb_op ops[] = {
        message_op(KB_UNIT_IPCQ, "await credit", 0, 0, 0, 10),
        message_op(KB_UNIT_DMA_WRITE, "send", 1, 2, 10, 20),
        message_op(KB_UNIT_DMA_WRITE, "send", 0, 1, 10, 25),
        message_op(KB_UNIT_IPCQ, "recv", 1, 1, 5, 25),
        message_op(KB_UNIT_DMA_WRITE, "send", 1, 2, 20, 30),
        message_op(KB_UNIT_IPCQ, "recv", 0, 2, 40, 40),
        message_op(KB_UNIT_DMA_WRITE, "send", 0, 3, 40, 50),
    };
    write_trace(ops, sizeof ops / sizeof ops[0]);
    trace_facts facts = read_back();
    assert_int_equal(facts.arrows, 2);
    const trace_category *waits = trace_find(&facts, "wait");
    assert_non_null(waits);
    assert_int_equal(waits->time_fs, 10 + 20 + 0);
    assert_null(trace_find(&facts, "pe_ipcq")); /* it did nothing */
    json_t *root = load();
    /* Message 1 leaves at 10 and is there at 25, when the receive ends: 24 is the last instant in
     * its slice. Message 2 leaves at 10; its receive begins and ends at 40. */
    assert_int_equal(fs_of(event_of(root, "s", 0)), 10);
    assert_int_equal(fs_of(event_of(root, "f", 0)), 24);
    assert_int_equal(fs_of(event_of(root, "s", 1)), 10);
    assert_int_equal(fs_of(event_of(root, "f", 1)), 40);
    expect_member(event_of(root, "f", 0), "name", "message");
    json_decref(root);
    free(facts.counters);
}

/* ---- Titles ------------------------------------------------------------------------------ */

/* What a slice of this operation is called. */
static void expect_title(kb_op op, const char *title)
{
    write_trace(&op, 1);
    read_back();
    json_t *root = load();
    expect_member(event_of(root, "X", 0), "name", title);
    json_decref(root);
}

static void slices_are_called_by_what_they_do(void **state)
{
    (void)state;
    const kb_pe pe = {0, 0, 0};
    kb_op_access accesses[3] = {
        {.tensor = "c", .dtype = KB_F16, .write = true, .bytes = 2},
        {.tensor = "a", .dtype = KB_F16, .bytes = 2},
        {.tensor = "b\"\n", .dtype = KB_F16, .bytes = 2},
    };
    kb_op op = op_of(KB_UNIT_DMA_READ, "load", pe, 1, 2);
    expect_title(op, "load");
    op.accesses = &accesses[1];
    op.access_count = 1;
    expect_title(op, "load a");
    op.access_count = 2;
    expect_title(op, "load a, b\"\n");
    op = op_of(KB_UNIT_DMA_WRITE, "store", pe, 1, 2);
    op.accesses = accesses;
    op.access_count = 1;
    expect_title(op, "store c");
    op = op_of(KB_UNIT_SCHEDULER, "gemm", pe, 1, 2);
    op.accesses = accesses;
    op.access_count = 3;
    expect_title(op, "gemm a, b\"\n to c");
    op = op_of(KB_UNIT_IPCQ, "recv", pe, 1, 2);
    expect_title(op, "waiting for message");
    op.direction = "E";
    expect_title(op, "waiting for message from E");
    op.name = "await credit";
    expect_title(op, "waiting for credit on E");
    op = op_of(KB_UNIT_DMA_WRITE, "send", pe, 1, 2);
    op.direction = "global_W";
    expect_title(op, "send global_W");
    op = op_of(KB_UNIT_HOST, "copy", pe, 1, 2);
    op.label = "x";
    expect_title(op, "copy x");
}

static void expect_access(size_t offset, size_t bytes, kb_dtype dtype, const char *text)
{
    kb_op_access access = {.tensor = "x", .dtype = dtype, .offset = offset, .bytes = bytes};
    kb_op op = op_of(KB_UNIT_DMA_READ, "load", (kb_pe){0}, 1, 2);
    op.accesses = &access;
    op.access_count = 1;
    write_trace(&op, 1);
    read_back();
    json_t *root = load();
    const json_t *args = json_object_get(event_of(root, "X", 0), "args");
    char *found = json_dumps(json_array_get(json_object_get(args, "tensors"), 0), JSON_COMPACT);
    assert_non_null(found);
    assert_string_equal(found, text);
    free(found);
    json_decref(root);
}

/* 8 bytes from byte 4 on are elements 1 and 2 of f32; 3 bytes are no whole elements. */
static void accesses_are_ranges_of_elements(void **state)
{
    (void)state;
    expect_access(4, 8, KB_F32,
                  "{\"tensor\":\"x\",\"dtype\":\"f32\",\"access\":\"read\",\"first_element\":1,"
                  "\"end_element\":3}");
    expect_access(4, 3, KB_F32,
                  "{\"tensor\":\"x\",\"dtype\":\"f32\",\"access\":\"read\",\"first_byte\":4,"
                  "\"end_byte\":7}");
}

static void what_never_ended_says_so(void **state)
{
    (void)state;
    kb_op ops[2] = {op_of(KB_UNIT_IPCQ, "recv", (kb_pe){0}, 5, 9),
                    op_of(KB_UNIT_HOST, "launch", (kb_pe){0}, 1, 9)};
    ops[0].unfinished = ops[1].unfinished = true;
    write_trace(ops, 2);
    trace_facts facts = read_back();
    assert_null(trace_find(&facts, "host")); /* it counts for nothing */
    json_t *root = load();
    const json_t *args = json_object_get(event_of(root, "X", 0), "args");
    assert_true(json_is_true(json_object_get(args, "unfinished")));
    json_decref(root);
}

/* Slices of no time, one behind the other at one instant, in any number. */
static void slices_may_take_no_time(void **state)
{
    (void)state;
    kb_op ops[3];
    for (size_t i = 0; i < 3; i++)
        ops[i] = op_of(KB_UNIT_MATH, "add", (kb_pe){0}, 7, 7);
    write_trace(ops, 3);
    trace_facts facts = read_back();
    assert_int_equal(facts.slices, 3);
    assert_int_equal(facts.threads, 1);
}

/* ---- Counters ---------------------------------------------------------------------------- */

/* A fabric of two counters, and its clock. */
typedef struct fabric {
    uint64_t counts[2];
    kb_time now;
} fabric;

static kb_time sample(void *self, uint64_t *counts)
{
    const fabric *f = self;
    counts[0] = f->counts[0];
    counts[1] = f->counts[1];
    return f->now;
}

static obs_trace *open_counted(fabric *f)
{
    const obs_counter counters[2] = {
        {.name = "link bandwidth: \"odd\""},
        {.name = "HBM bandwidth", .of_cube = true, .cube = {1, 2, 0}},
    };
    obs_trace *trace;
    expect_ok(open_trace(path_of_trace(), &trace));
    expect_ok(obs_trace_count(trace, &(obs_counters){counters, 2, sample, f}));
    return trace;
}

static const trace_counter *counter_of(const trace_facts *facts, const char *name)
{
    for (size_t i = 0; i < facts->counter_count; i++)
        if (strcmp(facts->counters[i].name, name) == 0)
            return &facts->counters[i];
    fail_msg("no such counter: %s", name);
    return NULL;
}

static void tell_op(obs_trace *trace, kb_time end)
{
    kb_op op = op_of(KB_UNIT_MATH, "add", (kb_pe){0}, end, end);
    obs_trace_op(trace, &op);
}

/*
 * 5,000 bytes in the first 100 ns are 50 GB/s; then nothing for 100 ns; then 600 bytes in the last
 * 10 ns, which are less than a bin and are added to it: 600 bytes in 110 ns. The clock of the
 * fabric counts, not that of operations which are told late.
 */
static void bandwidth_is_bytes_by_time(void **state)
{
    (void)state;
    fabric f = {{5000, 0}, 100 * KB_NS};
    obs_trace *trace = open_counted(&f);
    tell_op(trace, 90 * KB_NS);
    tell_op(trace, 95 * KB_NS);
    f.now = 200 * KB_NS;
    tell_op(trace, 200 * KB_NS);
    f = (fabric){{5600, 0}, 210 * KB_NS};
    expect_ok(close_trace(trace));
    trace_facts facts = read_back();
    assert_int_equal(facts.counter_count, 1); /* the other never counted anything */
    const trace_counter *c = counter_of(&facts, "link bandwidth: \"odd\"");
    assert_string_equal(c->unit, "GB/s");
    assert_int_equal(c->events, 3);
    assert_true(fabs(c->max - 50) < 1e-12);
    assert_int_equal(c->last_fs, 210 * KB_NS);
    assert_true(fabs(c->integral - 5600) < 1e-9);
    json_t *root = load();
    assert_int_equal(fs_of(event_of(root, "C", 0)), 0);
    assert_int_equal(fs_of(event_of(root, "C", 1)), 100 * KB_NS);
    json_decref(root);
    free(facts.counters);
}

/* Bytes that nothing was told after, and in a run that took no time. */
static void what_is_counted_at_the_end_is_not_lost(void **state)
{
    (void)state;
    fabric f = {{0, 77}, 0};
    expect_ok(close_trace(open_counted(&f)));
    trace_facts facts = read_back();
    const trace_counter *c = counter_of(&facts, "HBM bandwidth");
    assert_true(fabs(c->integral - 77) < 1e-9);
    assert_int_equal(c->pid, 3 + 1 * 3 + 2); /* behind the host, the fabric, and SIP 0's cubes */
    free(facts.counters);
}

/* Whatever comes when: sums are exact, and the trace stays small. */
static void bandwidths_add_up(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(11));
    for (int round = 0; round < 10; round++) {
        fabric f = {0};
        obs_trace *trace = open_counted(&f);
        uint64_t steps = kb_rng_below(&rng, 3000), far = 1 + kb_rng_below(&rng, KB_US);
        uint64_t peak = 0;
        for (uint64_t i = 0; i < steps; i++) {
            f.now += (kb_time)kb_rng_below(&rng, far);
            f.counts[0] += kb_rng_below(&rng, 10000);
            f.counts[1] += kb_rng_below(&rng, 3) == 0 ? 256 : 0;
            uint64_t used = kb_rng_below(&rng, 1000);
            peak = used > peak ? used : peak;
            tell_op(trace, f.now);
            obs_trace_tcm(trace, (kb_pe){1, 0, 3}, f.now, used);
        }
        f.counts[0] += 100; /* after the last operation */
        f.now += (kb_time)kb_rng_below(&rng, 2) * KB_NS;
        expect_ok(close_trace(trace));
        trace_facts facts = read_back();
        double sum = trace_sum_counters(&facts, "link bandwidth: \"odd\"");
        assert_true(fabs(sum - (double)f.counts[0]) < 1e-6 * (1 + (double)f.counts[0] * 1e-6));
        sum = trace_sum_counters(&facts, "HBM bandwidth");
        assert_true(fabs(sum - (double)f.counts[1]) < 1e-6 * (1 + (double)f.counts[1] * 1e-6));
        for (size_t i = 0; i < facts.counter_count; i++)
            assert_true(facts.counters[i].events <= 1025);
        if (steps > 0) {
            const trace_counter *tcm = counter_of(&facts, "pe3 TCM in use");
            assert_true(tcm->max == (double)peak);
            assert_string_equal(tcm->unit, "bytes");
        }
        free(facts.counters);
    }
}

/* 64 bytes from 100 ns on, 4096 for a moment, 0 at the end. */
static void tcm_in_use_is_a_peak_for_each_bin(void **state)
{
    (void)state;
    fabric f = {.now = 100 * KB_NS};
    obs_trace *trace = open_counted(&f);
    obs_trace_tcm(trace, (kb_pe){0, 0, 1}, f.now, 64);
    f.now = 200 * KB_NS;
    obs_trace_tcm(trace, (kb_pe){0, 0, 1}, f.now, 4096);
    f.now += KB_NS;
    obs_trace_tcm(trace, (kb_pe){0, 0, 1}, f.now, 0);
    f.now = 300 * KB_NS;
    expect_ok(close_trace(trace));
    trace_facts facts = read_back();
    const trace_counter *c = counter_of(&facts, "pe1 TCM in use");
    assert_int_equal(c->events, 4);
    assert_true(c->max == 4096 && c->last == 0); /* NOLINT */
    /* 64 bytes for 100 ns, 4096 for the bin from there to the end. */
    assert_true(fabs(c->integral - (64 * 100.0 + 4096 * 100.0)) < 1e-6);
    free(facts.counters);
}

/* ---- Perfetto's format ------------------------------------------------------------------- */

static uint64_t read_varint(const unsigned char **at)
{
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        unsigned char byte = *(*at)++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return value;
    }
}

/* The flags of a packet: field 13. Before it are its time and its sequence, as integers. */
static uint64_t flags_of(const unsigned char *at)
{
    for (;;) {
        uint64_t tag = read_varint(&at), value = read_varint(&at);
        if (tag == 13 << 3)
            return value;
        assert_int_equal(tag & 7, 0);
    }
}

static size_t count_cleared(const unsigned char *at, size_t size)
{
    const unsigned char *end = at + size;
    size_t cleared = 0;
    while (at < end) {
        assert_int_equal(read_varint(&at), 1 << 3 | 2);
        uint64_t length = read_varint(&at), flags = flags_of(at);
        assert_true(flags == 2 || flags == 3);
        cleared += flags == 3;
        at += length;
    }
    assert_ptr_equal(at, end);
    return cleared;
}

/* 140,000 titles: more than two tables of 65,536 texts hold. */
static void the_table_of_texts_is_bounded(void **state)
{
    (void)state;
    char path[64], label[16];
    snprintf(path, sizeof path, "/tmp/kb-trace-%ld.pftrace", (long)getpid());
    obs_trace *trace;
    expect_ok(open_trace(path, &trace));
    for (int i = 0; i < 140000; i++) {
        kb_op op = op_of(KB_UNIT_CPU, "kernel", (kb_pe){0}, i, i + 1);
        snprintf(label, sizeof label, "k%d", i);
        op.label = label;
        obs_trace_op(trace, &op);
    }
    expect_ok(close_trace(trace));
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    unsigned char *bytes = malloc(32 << 20);
    size_t size = fread(bytes, 1, 32 << 20, file);
    (void)fclose(file);
    (void)unlink(path);
    assert_true(size > 0 && size < 32 << 20);
    /* A title and a label for each, so after 32,768 of them; and the first packet. */
    assert_int_equal(count_cleared(bytes, size), 1 + 140000 / 32768);
    free(bytes);
}

/* ---- Failures ---------------------------------------------------------------------------- */

static void no_trace_need_not_be_closed(void **state)
{
    (void)state;
    expect_ok(obs_trace_close(NULL));
}

/* Enough that it does not stay in a buffer. */
static void tell_much(obs_trace *trace)
{
    for (kb_time i = 0; i < 1000; i++) {
        kb_op op = op_of(KB_UNIT_MATH, "add", (kb_pe){0}, i, i + 1);
        obs_trace_op(trace, &op);
    }
}

static void a_full_device_is_told_at_the_end(void **state)
{
    (void)state;
    obs_trace *trace;
    expect_ok(open_trace("/dev/full", &trace));
    tell_much(trace);
    expect_error(close_trace(trace), KB_ERR_HOST,
                 "cannot write /dev/full: No space left on device");
    assert_int_equal(access("/dev/full", F_OK), 0);
    expect_ok(open_trace("/dev/full", &trace)); /* nothing but its frame */
    expect_error(close_trace(trace), KB_ERR_HOST,
                 "cannot write /dev/full: No space left on device");
}

static void half_a_file_is_an_error(void **state)
{
    (void)state;
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){.rlim_cur = 10000, .rlim_max = before.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    obs_trace *trace;
    expect_ok(open_trace(path_of_trace(), &trace));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    tell_much(trace);
    kb_error *err = close_trace(trace);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(kb_error_code(err), KB_ERR_HOST);
    assert_non_null(strstr(kb_error_message(err), ": File too large"));
    kb_error_free(err);
}

static int remove_trace(void **state)
{
    (void)state;
    (void)unlink(path_of_trace());
    return 0;
}

/* PE 1 of cube 2 of SIP 1 of 2 x 3 x 4: number (1 * 3 + 2) * 4 + 1. */
static void states_have_a_track(void **state)
{
    (void)state;
    obs_trace *trace;
    expect_ok(open_trace(path_of_trace(), &trace));
    obs_trace_state(trace, 21, KB_CAUSE_ISSUE, 0, 5 * KB_NS);
    obs_trace_state(trace, 21, KB_CAUSE_OTHER_SIPS, 5 * KB_NS, 7 * KB_NS);
    expect_ok(close_trace(trace));
    trace_facts facts = read_back();
    assert_int_equal(facts.slices, 2);
    assert_int_equal(trace_find(&facts, "state")->time_fs, 7 * KB_NS);
    json_t *root = load();
    char *text = json_dumps(root, JSON_COMPACT);
    assert_non_null(strstr(text, "sip1.cube2"));
    assert_non_null(strstr(text, "pe1 state"));
    assert_non_null(strstr(text, "\"name\":\"other_sips\""));
    free(text);
    json_decref(root);
    (void)unlink(path_of_trace());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_trace_is_one),
        cmocka_unit_test(times_are_exact),
        cmocka_unit_test(an_operation_says_what_it_was),
        cmocka_unit_test(an_operation_says_what_determined_its_times),
        cmocka_unit_test(units_have_threads_of_their_own),
        cmocka_unit_test(lanes_are_as_few_as_can_be),
        cmocka_unit_test(arrows_go_from_launches_to_kernels),
        cmocka_unit_test(arrows_go_from_sends_to_receives),
        cmocka_unit_test(slices_are_called_by_what_they_do),
        cmocka_unit_test(accesses_are_ranges_of_elements),
        cmocka_unit_test(what_never_ended_says_so),
        cmocka_unit_test(slices_may_take_no_time),
        cmocka_unit_test(bandwidth_is_bytes_by_time),
        cmocka_unit_test(what_is_counted_at_the_end_is_not_lost),
        cmocka_unit_test(bandwidths_add_up),
        cmocka_unit_test(tcm_in_use_is_a_peak_for_each_bin),
        cmocka_unit_test(states_have_a_track),
        cmocka_unit_test(the_table_of_texts_is_bounded),
        cmocka_unit_test(no_trace_need_not_be_closed),
        cmocka_unit_test(a_full_device_is_told_at_the_end),
        cmocka_unit_test(half_a_file_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, remove_trace);
}
