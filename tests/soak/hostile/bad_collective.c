/* bad_collective.c: a collective that does what acts.h has: its arguments are made on the host's
 * side.
 */
#include "acts.h"

#include <kernbench/ccl.h>

KB_KERNEL(hostile, tl_ptr mine, int64_t count, kb_dtype dtype, int participants)
{
    act_at("kernel");
    tl_tensor sum = tl_load(mine, tl_shape(count), dtype);
    tl_tensor passing = sum;
    for (int step = 1; step < participants; step++) {
        tl_send("E", passing);
        passing = tl_recv("W", tl_shape(count), dtype);
        sum = tl_add(sum, passing);
    }
    tl_store(mine, sum);
}

static kb_error *arguments(const kb_ccl_call *call, const kb_ccl_target *target,
                           kb_ccl_arguments *args)
{
    act_in_thread();
    act_at("host");
    kb_ccl_add_address(args, target->output);
    kb_ccl_add_integer(args, (int64_t)target->elements);
    kb_ccl_add_integer(args, call->dtype);
    kb_ccl_add_integer(args, target->subgroup_size);
    return NULL;
}

static const kb_ccl_algorithm algorithm = {
    .name = "hostile",
    .summary = "all-reduce around a ring",
    .kernel = &hostile,
    .arguments = arguments,
    .collectives = 1 << KB_ALL_REDUCE,
};

static const kb_ccl_plugin plugin = {.algorithms = KB_CCL_LIST(&algorithm)};

KB_EXPORT_CCL(&plugin);
