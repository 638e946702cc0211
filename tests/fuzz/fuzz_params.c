/* fuzz_params.c: lines as values of --param, for each bench that ships. */
#include "fuzz.h"

#include "benches/benches.h"
#include "rt/bench.h"

static void check_value(const kb_param *param, int64_t value)
{
    if (!param->names) {
        KB_ASSERT(value >= param->min && value <= param->max);
        return;
    }
    KB_ASSERT(value >= 0);
    for (int64_t i = 0; i <= value; i++)
        KB_ASSERT(param->names[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const origins[] = {"parameter ", "unknown parameter ", NULL};
    fuzz_parts parts = fuzz_lines(data, size);
    rt_bench_options options = {.settings = parts.lines, .setting_count = parts.line_count};
    for (const kb_bench_spec *const *spec = benches; *spec; spec++) {
        kb_bench *bench;
        kb_error *err = rt_bench_create(*spec, &options, &bench);
        if (err) {
            KB_ASSERT(!bench);
            fuzz_check_refusal(err, origins);
            continue;
        }
        for (size_t i = 0; i < (*spec)->param_count; i++)
            check_value(&(*spec)->params[i], kb_bench_param(bench, (*spec)->params[i].name));
        (void)rt_bench_is_timing_only(bench);
        rt_bench_destroy(bench);
    }
    fuzz_parts_fini(&parts);
    return 0;
}
