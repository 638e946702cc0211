/*
 * calls.h: the public calls that take a tensor, and which of them show its contents to the host.
 *
 * Every such call begins with rt_enter(); whether it waits there for the caller's work is written
 * in the table and nowhere else. A test compares the table with the public header.
 */
#ifndef KB_RT_CALLS_H
#define KB_RT_CALLS_H

#include <stdbool.h>

#include <kernbench/kernbench.h>

typedef enum rt_call {
    RT_TENSOR_FREE,
    RT_TENSOR_SHAPE,
    RT_TENSOR_DTYPE,
    RT_TENSOR_NAME,
    RT_TENSOR_DEVICE,
    RT_TENSOR_VA,
    RT_TENSOR_SHARD_COUNT,
    RT_TENSOR_SHARD,
    RT_TENSOR_SHARD_LOCATION,
    RT_TENSOR_COPY_TO,
    RT_TENSOR_COPY_FROM,
    RT_TENSOR_TO_HOST,
    RT_TENSOR_GET,
    RT_TENSOR_SET,
    RT_TENSOR_GET_SLICE,
    RT_TENSOR_SET_SLICE,
    RT_TENSOR_FILL_SLICE,
    RT_TENSOR_REPR,
    RT_STREAM_COPY_TO,
    RT_STREAM_COPY_FROM,
    RT_BENCH_VERIFY,
    RT_CALLS
} rt_call;

typedef struct rt_call_entry {
    const char *function;
    const char *argument; /* which of its tensors is meant, NULL if it has one */
    bool shows_contents;
    bool host_has; /* unless it is a tensor of the host that nothing is on its way into */
    bool changes_contents, frees; /* these wait for work in streams that uses the tensor */
    bool waits_for_transfers;     /* of the caller: what it has in streams need not be over */
} rt_call_entry;

extern const rt_call_entry rt_calls[RT_CALLS];

#endif
