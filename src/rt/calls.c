/* calls.c: the table of calls that take a tensor. */
#include "calls.h"

const rt_call_entry rt_calls[RT_CALLS] = {
    [RT_TENSOR_FREE] = {"kb_tensor_free", NULL, false, false, .frees = true},
    [RT_TENSOR_SHAPE] = {"kb_tensor_shape", NULL, false, false},
    [RT_TENSOR_DTYPE] = {"kb_tensor_dtype", NULL, false, false},
    [RT_TENSOR_NAME] = {"kb_tensor_name", NULL, false, false},
    [RT_TENSOR_DEVICE] = {"kb_tensor_device", NULL, false, false},
    [RT_TENSOR_VA] = {"kb_tensor_va", NULL, false, false},
    [RT_TENSOR_SHARD_COUNT] = {"kb_tensor_shard_count", NULL, false, false},
    [RT_TENSOR_SHARD] = {"kb_tensor_shard", NULL, false, false},
    [RT_TENSOR_SHARD_LOCATION] = {"kb_tensor_shard_location", NULL, false, false},
    [RT_TENSOR_COPY_TO] = {"kb_tensor_copy", "to", false, false, .changes_contents = true},
    [RT_TENSOR_COPY_FROM] = {"kb_tensor_copy", "from", true, true},
    [RT_TENSOR_TO_HOST] = {"kb_tensor_to_host", NULL, true, false},
    [RT_TENSOR_GET] = {"kb_tensor_get", NULL, true, false},
    [RT_TENSOR_SET] = {"kb_tensor_set", NULL, false, false, .changes_contents = true},
    [RT_TENSOR_GET_SLICE] = {"kb_tensor_get_slice", NULL, true, false},
    [RT_TENSOR_SET_SLICE] = {"kb_tensor_set_slice", NULL, false, false, .changes_contents = true},
    [RT_TENSOR_FILL_SLICE] = {"kb_tensor_fill_slice", NULL, false, false, .changes_contents = true},
    [RT_TENSOR_REPR] = {"kb_tensor_repr", NULL, true, false},
    [RT_STREAM_COPY_TO] = {"kb_stream_copy", "to", false, false, .waits_for_transfers = true},
    [RT_STREAM_COPY_FROM] = {"kb_stream_copy", "from", false, false, .waits_for_transfers = true},
    [RT_BENCH_VERIFY] = {"kb_bench_verify", NULL, true, false},
};
