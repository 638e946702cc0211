/* test_trace_alloc.c: whichever allocation fails, a trace is whole or says that it is not. */
#include "support/expect.h"

#include "obs/obs.h"
#include "support/failing_alloc.h"

static const kb_machine machine = {.name = "tiny", .sips = 1, .cubes = 1, .pes = 2};
static char path[64];
static bool is_json;

static kb_time sample(void *self, uint64_t *counts)
{
    kb_time *now = self;
    *now += 50 * KB_NS;
    counts[0] = (uint64_t)*now;
    return *now;
}

static kb_error *write_trace(FILE *file)
{
    obs_trace *trace;
    kb_time now = 0;
    const obs_counter counter = {.name = "links"};
    const kb_op_access access = {.tensor = "x", .bytes = 4};
    KB_TRY(obs_trace_create(file, path, &machine, &trace));
    kb_error *err = obs_trace_count(trace, &(obs_counters){&counter, 1, sample, &now});
    if (!err)
        err = obs_trace_set_peak(trace, 0, "utilization", 1000);
    if (err) {
        kb_error_free(obs_trace_close(trace));
        return err;
    }
    for (kb_time i = 0; i < 40; i++) {
        kb_op op = {.unit = i % 4 == 0 ? KB_UNIT_CPU : KB_UNIT_DMA_READ,
                    .name = i % 4 == 0 ? "kernel" : "load",
                    .label = "",
                    .pe = {.pe = (uint32_t)(i % 2)},
                    .start = i / 8,
                    .end = (i + 1) * KB_NS,
                    .launch = 1,
                    .accesses = &access,
                    .access_count = 1};
        obs_trace_op(trace, &op);
        obs_trace_tcm(trace, op.pe, op.end, 64);
        obs_trace_state(trace, (uint64_t)(i % 2), KB_CAUSE_ISSUE, i, i + 1);
    }
    return obs_trace_close(trace);
}

static void body(void)
{
    FILE *file = fopen(path, "w+");
    assert_non_null(file);
    kb_error *err = write_trace(file);
    if (err) {
        assert_int_equal(kb_error_code(err), KB_ERR_HOST);
    } else if (is_json) {
        char end[4] = "";
        assert_int_equal(fseek(file, -3, SEEK_END), 0);
        assert_int_equal(fread(end, 1, 3, file), 3);
        assert_string_equal(end, "]}\n");
    }
    (void)fclose(file);
    kb_error_free(err);
    (void)unlink(path);
}

static void whichever_allocation_fails(void **state)
{
    (void)state;
    is_json = true;
    snprintf(path, sizeof path, "/tmp/kb-trace-alloc-%ld.json", (long)getpid());
    failing_alloc_try_all(body);
}

static void whichever_allocation_fails_for_perfetto(void **state)
{
    (void)state;
    is_json = false;
    snprintf(path, sizeof path, "/tmp/kb-trace-alloc-%ld.pftrace", (long)getpid());
    failing_alloc_try_all(body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whichever_allocation_fails),
        cmocka_unit_test(whichever_allocation_fails_for_perfetto),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
