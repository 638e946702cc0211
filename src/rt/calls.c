/* calls.c: the table of calls that take a tensor. */
#include "calls.h"

#include <string.h>

#include "rt.h"

const rt_call_entry rt_calls[RT_CALLS] = {
    [RT_TENSOR_FREE] = {.function = "kb_tensor_free", .frees = true},
    [RT_TENSOR_SHAPE] = {.function = "kb_tensor_shape"},
    [RT_TENSOR_DTYPE] = {.function = "kb_tensor_dtype"},
    [RT_TENSOR_NAME] = {.function = "kb_tensor_name"},
    [RT_TENSOR_DEVICE] = {.function = "kb_tensor_device"},
    [RT_TENSOR_VA] = {.function = "kb_tensor_va"},
    [RT_TENSOR_SHARD_COUNT] = {.function = "kb_tensor_shard_count"},
    [RT_TENSOR_SHARD] = {.function = "kb_tensor_shard"},
    [RT_TENSOR_SHARD_LOCATION] = {.function = "kb_tensor_shard_location"},
    [RT_TENSOR_COPY_TO] = {.function = "kb_tensor_copy",
                           .argument = "to",
                           .changes_contents = true},
    [RT_TENSOR_COPY_FROM] = {.function = "kb_tensor_copy",
                             .argument = "from",
                             .shows_contents = true,
                             .host_has = true},
    [RT_TENSOR_TO_HOST] = {.function = "kb_tensor_to_host", .shows_contents = true},
    [RT_TENSOR_GET] = {.function = "kb_tensor_get", .shows_contents = true},
    [RT_TENSOR_SET] = {.function = "kb_tensor_set", .changes_contents = true},
    [RT_TENSOR_GET_SLICE] = {.function = "kb_tensor_get_slice", .shows_contents = true},
    [RT_TENSOR_SET_SLICE] = {.function = "kb_tensor_set_slice", .changes_contents = true},
    [RT_TENSOR_FILL_SLICE] = {.function = "kb_tensor_fill_slice", .changes_contents = true},
    [RT_TENSOR_REPR] = {.function = "kb_tensor_repr", .shows_contents = true},
    [RT_STREAM_COPY_TO] = {.function = "kb_stream_copy",
                           .argument = "to",
                           .waits_for_transfers = true},
    [RT_STREAM_COPY_FROM] = {.function = "kb_stream_copy",
                             .argument = "from",
                             .waits_for_transfers = true},
    [RT_BENCH_VERIFY] = {.function = "kb_bench_verify", .shows_contents = true},
};

bool rt_shows_contents(const char *function)
{
    for (int call = 0; call < RT_CALLS; call++)
        if (rt_calls[call].shows_contents && strcmp(rt_calls[call].function, function) == 0)
            return true;
    return false;
}
