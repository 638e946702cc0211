/*
 * my_collective.c: an all-reduce around a ring: a kernel, and the function that makes its
 * arguments. my_collective.yaml says which PEs take part and how they are connected. Run it with
 *
 *     kernbench run --bench ccl_allreduce --ccl my_collective.yaml --plugin my_collective.c
 */
#include <kernbench/ccl.h>

/*
 * Runs on each participating PE. The PEs form a ring: "E" leads to the next PE, "W" to the previous
 * one. Each PE forwards what it receives, and adds it to its sum.
 */
KB_KERNEL(my_collective, tl_ptr mine, int64_t count, kb_dtype dtype, int participants)
{
    tl_tensor sum = tl_load(mine, tl_shape(count), dtype);
    tl_tensor passing = sum;
    for (int step = 1; step < participants; step++) {
        tl_send("E", passing);
        passing = tl_recv("W", tl_shape(count), dtype);
        sum = tl_add(sum, passing);
    }
    tl_store(mine, sum);
}

/* The kernel's arguments on one PE: one for each parameter, in their order. */
static kb_error *arguments(const kb_ccl_call *call, const kb_ccl_target *target,
                           kb_ccl_arguments *args)
{
    kb_ccl_add_address(args, target->output);
    kb_ccl_add_integer(args, (int64_t)target->elements);
    kb_ccl_add_integer(args, call->dtype);
    kb_ccl_add_integer(args, target->subgroup_size);
    return NULL;
}

static const kb_ccl_algorithm algorithm = {
    .name = "my_collective",
    .summary = "all-reduce around a ring",
    .kernel = &my_collective,
    .arguments = arguments,
    .collectives = 1 << KB_ALL_REDUCE,
};

static const kb_ccl_plugin plugin = {.algorithms = KB_CCL_LIST(&algorithm)};

KB_EXPORT_CCL(&plugin);
