/*
 * my_collective.c: a collective of one's own. It is a kernel, and how its arguments are made; who
 * takes part and who is joined to whom is in my_collective.yaml. Try it with
 *
 *     kernbench run --bench ccl_allreduce --ccl my_collective.yaml --plugin my_collective.c
 */
#include <kernbench/ccl.h>

/*
 * Runs on each PE that takes part, all in a ring: "E" leads to the next one, "W" to the one before.
 * Each passes on what it received, and adds it up.
 */
KB_KERNEL(my_collective, tl_ptr mine, int64_t count, kb_dtype dtype, int members)
{
    tl_tensor sum = tl_load(mine, tl_shape(count), dtype);
    tl_tensor passing = sum;
    for (int step = 1; step < members; step++) {
        tl_send("E", passing);
        passing = tl_recv("W", tl_shape(count), dtype);
        sum = tl_add(sum, passing);
    }
    tl_store(mine, sum);
}

/* What the kernel is given on one PE: as many as it has parameters, in their order. */
static kb_error *arguments(const kb_ccl_call *call, const kb_ccl_part *part, kb_ccl_arguments *args)
{
    kb_ccl_add_address(args, part->output);
    kb_ccl_add_integer(args, (int64_t)part->elements);
    kb_ccl_add_integer(args, call->dtype);
    kb_ccl_add_integer(args, part->circle_size);
    return NULL;
}

static const kb_ccl_algorithm algorithm = {
    .name = "my_collective",
    .summary = "what it does, in a line",
    .kernel = &my_collective,
    .arguments = arguments,
    .collectives = 1 << KB_ALL_REDUCE,
};

static const kb_ccl_plugin plugin = {.algorithms = KB_CCL_LIST(&algorithm)};

KB_EXPORT_CCL(&plugin);
