/*
 * kernbench.h: what a program that uses libkernbench may call.
 *
 * Here a matrix is cut by rows over the cubes of a device and by columns over the PEs of each, goes
 * there through the fabric of the simulated machine, and comes back:
 *
 *     #include <kernbench/kernbench.h>
 *     #include <stdio.h>
 *
 *     static kb_error *there_and_back(kb_context *ctx)
 *     {
 *         const float numbers[2][3] = {{1, 2, 3}, {4, 5, 6}};
 *         float back[2][3];
 *         const kb_policy policy = {.cube = KB_ROW_WISE, .pe = KB_COLUMN_WISE};
 *         const kb_tensor_spec spec = {
 *             .name = "x", .dtype = KB_F32, .shape = KB_SHAPE(2, 3), .policy = &policy};
 *         kb_tensor host, x;
 *         KB_TRY(kb_from_host(ctx, &spec, numbers, sizeof numbers, &host));
 *         KB_TRY(kb_empty(ctx, &spec, &x));
 *         KB_TRY(kb_tensor_copy(ctx, x, host, KB_FABRIC));
 *         KB_TRY(kb_tensor_to_host(ctx, x, KB_FABRIC, back, sizeof back));
 *         printf("%g came back after %.3f ns\n", back[1][2], kb_to_ns(kb_context_now(ctx)));
 *         KB_TRY(kb_tensor_free(ctx, host));
 *         return kb_tensor_free(ctx, x);
 *     }
 *
 *     int main(void)
 *     {
 *         kb_context *ctx;
 *         kb_error *err = kb_context_create(NULL, &ctx);
 *         if (!err)
 *             err = there_and_back(ctx);
 *         if (err)
 *             fprintf(stderr, "%s\n", kb_error_message(err));
 *         int code = (int)kb_error_code(err);
 *         kb_error_free(err);
 *         kb_context_destroy(ctx);
 *         return code;
 *     }
 *
 * Names follow PyTorch's where it has the thing. Calls that can fail return an error, NULL if all
 * went well, and their results through their last arguments; a handle that could not be had is 0.
 * The first argument is the context; then come the object or objects, through which door (whether
 * it takes simulated time), what goes in, and what comes out.
 *
 * Nothing here is global: a context belongs to the thread that uses it, and a process may have
 * many. The parts: time, errors, the host runtime (contexts, tensors, requests, launches, workers,
 * the process group, benches), and the engine beneath it (simulator, events, coroutines, waiting),
 * which works on its own too.
 */
#ifndef KERNBENCH_KERNBENCH_H
#define KERNBENCH_KERNBENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KB_API __attribute__((visibility("default")))
#define KB_MUST_USE __attribute__((warn_unused_result))
#define KB_NORETURN __attribute__((noreturn))
#define KB_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* The version of the library, such as "0.1.0". */
KB_API const char *kb_version(void);

/* ---- Time -------------------------------------------------------------------------------- */

/*
 * Simulated time and durations, in femtoseconds: never negative, at most 9,223 s (2.5 hours). The
 * last instant of the clock is KB_FOREVER - 1. Work that would take longer than that ends the run
 * with KB_ERR_INPUT; a deadline of KB_FOREVER never comes.
 */
typedef int64_t kb_time;

/* A sum of times, over PEs, links or commands: it passes 9,223 s long before the clock does. */
__extension__ typedef __int128 kb_time_sum;

#define KB_PS ((kb_time)1000)
#define KB_NS (1000 * KB_PS)
#define KB_US (1000 * KB_NS)
#define KB_MS (1000 * KB_US)
#define KB_S (1000 * KB_MS)

#define KB_FOREVER INT64_MAX

/* a + b, and count * each; KB_FOREVER if that is more than a kb_time holds. None is negative. */
static inline kb_time kb_time_add(kb_time a, kb_time b)
{
    kb_time sum;
    return __builtin_expect(__builtin_add_overflow(a, b, &sum), 0) ? KB_FOREVER : sum;
}

static inline kb_time kb_time_times(uint64_t count, kb_time each)
{
    kb_time product;
    return __builtin_mul_overflow(count, each, &product) ? KB_FOREVER : product;
}

/* For printing: of a time, or of a sum of times. */
static inline double kb_to_ns(kb_time_sum time)
{
    return (double)time / (double)KB_NS;
}

/* Operations in a time, in 10^12 a second; 0 if no time has passed. */
static inline double kb_to_tflops(double flops, kb_time time)
{
    return time > 0 ? flops * 1e3 / (double)time : 0;
}

/* ---- Errors ------------------------------------------------------------------------------ */

/* What kind of thing went wrong. The value is the exit code of the command line. */
typedef enum kb_code {
    KB_OK = 0,
    KB_ERR_CHECK = 1,    /* a check failed: verification, comparison */
    KB_ERR_INPUT = 2,    /* bad usage or a bad input file */
    KB_ERR_FAULT = 3,    /* the simulated program did something wrong */
    KB_ERR_DEADLOCK = 4, /* the simulated program waits for what cannot happen */
    KB_ERR_BUG = 70,     /* a bug in KernBench, or in the program that calls it */
    KB_ERR_HOST = 71     /* the host refused: out of memory, disk full */
} kb_code;

/* NULL is success. Whoever gets an error frees it. */
typedef struct kb_error kb_error;

KB_API kb_code kb_error_code(const kb_error *err);        /* KB_OK for NULL */
KB_API const char *kb_error_message(const kb_error *err); /* one line: place, context, cause */
KB_API const char *kb_error_detail(const kb_error *err);  /* further lines, "" if there are none */
KB_API void kb_error_free(kb_error *err);

/*
 * An error of one's own. Never NULL: if memory is short, the one about that. A code that is no
 * error of kb_code becomes KB_ERR_FAULT, and the detail says so.
 */
KB_API KB_MUST_USE kb_error *kb_error_new(kb_code code, const char *format, ...) KB_PRINTF(2, 3);

/* Hands an error on to the caller: KB_TRY(kb_zeros(ctx, &spec, &x)); */
#define KB_TRY(expr)                                                                               \
    do {                                                                                           \
        kb_error *kb_try_error_ = (expr);                                                          \
        if (__builtin_expect(kb_try_error_ != NULL, 0))                                            \
            return kb_try_error_;                                                                  \
    } while (0)

/* ==== The host runtime ==================================================================== */

typedef struct kb_sim kb_sim; /* the engine: see below */
typedef struct kb_co kb_co;

/* ---- Contexts ---------------------------------------------------------------------------- */

/* A machine, the simulation of it, and everything that a program has there. */
typedef struct kb_context kb_context;

/* Gets a warning: one line, valid during the call. */
typedef void kb_warning_fn(void *self, const char *line);

typedef struct kb_op kb_op; /* something that took time: see Operations */

/* Gets an operation that has ended; valid during the call, which must not use the context. */
typedef void kb_op_fn(void *self, const kb_op *op);

typedef struct kb_pe kb_pe; /* a PE of the machine: see Where things are */

/*
 * Gets the bytes of a PE's TCM that are allocated, whenever they change: values of kernels, tensors
 * and receive rings, without what the scheduler keeps for itself. Must not use the context.
 */
typedef void kb_tcm_fn(void *self, const kb_pe *pe, kb_time now, uint64_t bytes);

/*
 * What becomes of data races: two PEs of a launch, or work of two streams, touch the same bytes,
 * one of them by writing, and neither messages, a stream nor an event order the two.
 */
typedef enum kb_race_check {
    KB_RACES_WARN, /* a warning; timing-only contexts do not look */
    KB_RACES_FAIL, /* the launch that ends last fails with KB_ERR_FAULT, also in a timing-only
                      context */
    KB_RACES_OFF
} kb_race_check;

/* All zeros is the default machine, with data. */
typedef struct kb_context_options {
    const char *topology;        /* a file, or the name of a built-in machine; NULL: "default" */
    const char *const *settings; /* "cube.noc.w=8": override the file's */
    size_t setting_count;
    const char *device; /* "sip:1": memory is to be had there alone; NULL or "all": no limit */
    bool timing_only;   /* no contents, but for index tensors: what the host reads is 0 */
    bool debug;         /* warn of what is probably a mistake; KERNBENCH_DEBUG=1 does too */
    kb_warning_fn *on_warning; /* NULL: to stderr */
    void *on_warning_self;
    size_t stack_bytes; /* of each worker and each kernel, 16 KiB to 1 GiB; 0 means 1 MiB */
    bool no_elision;    /* see kb_sim_options */
    unsigned threads;   /* that compute contents; 0: as many as the host has cores */
    kb_op_fn *on_op;    /* gets every operation; NULL: they are only added up */
    void *on_op_self;
    kb_tcm_fn *on_tcm; /* gets every change of the TCM in use; may be NULL */
    void *on_tcm_self;
    const char *ccl; /* a file that says how collectives are done; NULL: what is built in. Settings
                        that begin with "ccl." override it */
    const struct kb_ccl_plugin *const *ccl_plugins; /* kernbench/ccl.h */
    size_t ccl_plugin_count;
    kb_warning_fn *on_note; /* gets a line for each choice that a rule made for the program, such as
                               the algorithm of a collective; NULL: none */
    void *on_note_self;
    kb_warning_fn *on_ccl_trace; /* gets a line for every send and receive of a queue; NULL: to
                                    stderr if KERNBENCH_CCL_TRACE=1, else nobody does */
    void *on_ccl_trace_self;
    kb_race_check races;
    bool reasons; /* operations that on_op gets are numbered and say what determined their begin and
                     their end (kb_reason) */
} kb_context_options;

/* NULL options are the default ones. *ctx is NULL after an error. */
KB_API KB_MUST_USE kb_error *kb_context_create(const kb_context_options *options, kb_context **ctx);

/* Frees all that is left in it. Not from inside a worker. */
KB_API void kb_context_destroy(kb_context *ctx);

KB_API kb_time kb_context_now(const kb_context *ctx);

/*
 * The simulator, for coroutines and handlers of one's own: of the source ids the last 2^16 but
 * KB_SOURCE_ID_MAX are free for them. Not to be abandoned.
 */
KB_API kb_sim *kb_context_sim(kb_context *ctx);

KB_API bool kb_context_is_timing_only(const kb_context *ctx);

/*
 * The time so far in which at least one kernel ran, on whichever PEs. What it grows by during a
 * launch is the time that the roofline of `kernbench run` divides by. (pe_exec of a launch result
 * is of one device: devices that do not start at the same time run for longer in all.)
 */
KB_API kb_time kb_context_kernel_time(const kb_context *ctx);

/* What the machine has. Programs should take their counts from here. */
typedef struct kb_machine {
    const char *name;
    uint32_t sips;
    uint32_t cubes; /* of a SIP: cube_w * cube_h, numbered row by row */
    uint32_t cube_w, cube_h;
    uint32_t pes;        /* of a cube */
    uint64_t hbm_bytes;  /* of a PE's slice */
    uint64_t tcm_bytes;  /* of a PE, without what its scheduler keeps */
    uint64_t sram_bytes; /* of a cube */
} kb_machine;

KB_API kb_machine kb_context_machine(const kb_context *ctx);

/* ---- Devices ----------------------------------------------------------------------------- */

/*
 * A device is a SIP. Each worker has a current one, on which its tensors are created: SIP 0, or the
 * one that the context is limited to, until it is set.
 */
KB_API KB_MUST_USE kb_error *kb_ahbm_set_device(kb_context *ctx, uint32_t sip);
KB_API uint32_t kb_ahbm_current_device(kb_context *ctx);
KB_API uint32_t kb_ahbm_device_count(const kb_context *ctx);

/* Whether the caller has set its device. Never warns. */
KB_API bool kb_ahbm_device_is_set(kb_context *ctx);

/* The same under the names that do not say what kind of device it is. */
KB_API KB_MUST_USE kb_error *kb_accelerator_set_device_index(kb_context *ctx, uint32_t sip);
KB_API uint32_t kb_accelerator_current_device_index(kb_context *ctx);

/* ---- Numbers ----------------------------------------------------------------------------- */

typedef enum kb_dtype {
    KB_F16,
    KB_BF16,
    KB_F32,
    KB_F8E4M3, /* storage only: 4 bits of exponent, NaN but no infinity, up to 448 */
    KB_F8E5M2, /* storage only: 5 bits of exponent, as IEEE would have it, up to 57344 */
    KB_I8,
    KB_I32,
    KB_DTYPES
} kb_dtype;

KB_API size_t kb_dtype_bytes(kb_dtype dtype);     /* 0 if there is none such */
KB_API const char *kb_dtype_name(kb_dtype dtype); /* "f16" */

/*
 * Converts numbers: to the nearest, to even if two are equally near. What is too large becomes
 * infinite, or NaN in F8E4M3. From floating point to integers as C does, towards 0, but what is out
 * of range becomes the nearest there is, and NaN 0. The arrays must not overlap.
 */
KB_API void kb_convert(kb_dtype to_dtype, void *to, kb_dtype from_dtype, const void *from,
                       size_t count);

/* ---- Where things are -------------------------------------------------------------------- */

typedef struct kb_pe {
    uint32_t sip;
    uint32_t cube; /* of the SIP */
    uint32_t pe;   /* of the cube */
} kb_pe;

typedef enum kb_memory {
    KB_HBM,    /* the PE's slice */
    KB_TCM,    /* the PE's own memory */
    KB_SRAM,   /* of the cube; the PE does not matter */
    KB_VIRTUAL /* an address that a PE's MMU translates; the PE does not matter */
} kb_memory;

typedef struct kb_location {
    kb_memory memory;
    kb_pe pe;
    uint64_t offset; /* in that memory; the address itself if it is virtual */
} kb_location;

/*
 * Physical addresses have 51 bits and name 16 SIPs of 32 cubes of 16 PEs; what is beyond is an
 * error. The format is in docs/decisions/0008-memory.md.
 */
KB_API KB_MUST_USE kb_error *kb_location_to_pa(const kb_context *ctx, kb_location location,
                                               uint64_t *pa);
KB_API KB_MUST_USE kb_error *kb_location_from_pa(const kb_context *ctx, uint64_t pa,
                                                 kb_location *location);

/* The ranges of the address space: memories, and what a PE has in its resource window. */
typedef enum kb_pa_range {
    KB_PA_HBM,  /* of a cube: all slices, one behind the other */
    KB_PA_SRAM, /* of a cube */
    KB_PA_M_CPU,
    KB_PA_TCM, /* of a PE, as the following */
    KB_PA_IPCQ,
    KB_PA_SCRATCHPAD,
    KB_PA_REGISTERS,
    KB_PA_STATUS,
    KB_PA_RESERVED,
    KB_PA_RANGES
} kb_pa_range;

/* What a physical address means. */
typedef struct kb_pa_fields {
    kb_pa_range range;
    uint32_t rack, sip, cube;
    uint32_t pe;     /* 0 unless the range is that of a PE */
    uint64_t offset; /* in the range */
} kb_pa_fields;

/* Inverse to each other; both refuse what is out of range, and say which field it is. */
KB_API KB_MUST_USE kb_error *kb_pa_encode(const kb_pa_fields *fields, uint64_t *pa);
KB_API KB_MUST_USE kb_error *kb_pa_decode(uint64_t pa, kb_pa_fields *fields);

/* An offset in the PE's slice of the HBM, of which each PE of the cube has `slice_bytes`. */
KB_API KB_MUST_USE kb_error *kb_pa_of_slice(kb_pe pe, uint64_t offset, uint64_t slice_bytes,
                                            uint64_t *pa);

enum { KB_NAME_BYTES = 96 };

/* "sip1.cube0.pe3.ipcq+0x1234" */
KB_API KB_MUST_USE kb_error *kb_pa_name(uint64_t pa, char name[KB_NAME_BYTES]);

/* ---- Tensors ----------------------------------------------------------------------------- */

/* Names a tensor of its context. One that was freed is never taken for another. */
typedef struct kb_tensor {
    uint64_t id;
} kb_tensor;

enum { KB_MAX_DIMS = 8 };

typedef struct kb_shape {
    uint32_t rank;
    uint64_t dims[KB_MAX_DIMS];
} kb_shape;

/* KB_SHAPE(4, 8) is a kb_shape. */
#define KB_SHAPE(...)                                                                              \
    ((kb_shape){.rank = sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t),                      \
                .dims = {__VA_ARGS__}})

/* How one level of a device, its cubes or the PEs of a cube, shares a tensor. */
typedef enum kb_split {
    KB_REPLICATE,   /* each has all of it */
    KB_COLUMN_WISE, /* the last axis is split */
    KB_ROW_WISE     /* the first axis is split */
} kb_split;

typedef enum kb_tiling {
    KB_NOT_TILED,
    KB_TILED_COLUMN_MAJOR, /* tiles are dealt out to the PEs along the last axis first */
    KB_TILED_ROW_MAJOR     /* along the first axis first */
} kb_tiling;

/*
 * How a tensor is laid out in its device. A tensor of one dimension counts as one row. Sizes need
 * not divide: parts differ by one row or column at most, and some may be empty. All zeros is a copy
 * of it at every PE.
 */
typedef struct kb_policy {
    kb_split cube, pe;           /* over the cubes, and then over the PEs of each */
    uint32_t num_cubes, num_pes; /* use the first so many; 0 means all */
    kb_tiling tiling;            /* unless KB_NOT_TILED: instead of the splits */
    uint64_t tile_rows, tile_columns;
} kb_policy;

/* Whether something takes simulated time. */
typedef enum kb_door {
    KB_FABRIC,  /* through the fabric of the machine, as hardware would */
    KB_BACKDOOR /* in no time at all: to set a stage, or to look without disturbing */
} kb_door;

typedef struct kb_tensor_spec {
    const char *name; /* for messages; copied; NULL: one is made up */
    kb_dtype dtype;
    kb_shape shape;
    kb_memory memory;        /* KB_HBM or KB_TCM */
    const kb_policy *policy; /* copied; NULL: all of it at PE 0 of cube 0 */
    kb_door door;            /* for making it, mapping it and freeing it */
    bool is_index;           /* I32 alone: its numbers decide addresses (page tables, lengths, token
                                ids), so it has contents in timing-only contexts too: those that the
                                host writes. What kernels store there is not computed */
} kb_tensor_spec;

/*
 * Creates a tensor on the current device. It has memory at once; that it is being mapped into the
 * device's MMUs is work under way of the caller. It has whatever is in its memory, which is 0 where
 * nobody wrote.
 */
KB_API KB_MUST_USE kb_error *kb_empty(kb_context *ctx, const kb_tensor_spec *spec,
                                      kb_tensor *tensor);

/* The same, and filled with 0, by the DMAs of the PEs that have it: more work under way. */
KB_API KB_MUST_USE kb_error *kb_zeros(kb_context *ctx, const kb_tensor_spec *spec,
                                      kb_tensor *tensor);

/* The same, and filled with the value, rounded to the dtype. */
KB_API KB_MUST_USE kb_error *kb_full(kb_context *ctx, const kb_tensor_spec *spec, double value,
                                     kb_tensor *tensor);

/*
 * A tensor that stays with the host: it is on no device. `data` has the elements row by row in the
 * spec's dtype, `bytes` of them in all; it is copied. The spec's memory, policy and door mean
 * nothing.
 */
KB_API KB_MUST_USE kb_error *kb_from_host(kb_context *ctx, const kb_tensor_spec *spec,
                                          const void *data, size_t bytes, kb_tensor *tensor);

/* Does not wait. In a cleanup of a worker that is being unwound it works too. */
KB_API KB_MUST_USE kb_error *kb_tensor_free(kb_context *ctx, kb_tensor tensor);

/* These look at the tensor and not at its contents: they never wait. A name is good until the
 * tensor is freed. */
KB_API KB_MUST_USE kb_error *kb_tensor_shape(kb_context *ctx, kb_tensor tensor, kb_shape *shape);
KB_API KB_MUST_USE kb_error *kb_tensor_dtype(kb_context *ctx, kb_tensor tensor, kb_dtype *dtype);
KB_API KB_MUST_USE kb_error *kb_tensor_name(kb_context *ctx, kb_tensor tensor, const char **name);
KB_API KB_MUST_USE kb_error *kb_tensor_device(kb_context *ctx, kb_tensor tensor, uint32_t *sip);
KB_API KB_MUST_USE kb_error *kb_tensor_va(kb_context *ctx, kb_tensor tensor, uint64_t *va);

/* A part of a tensor in one PE's memory: a block of rows and columns, stored without gaps. */
typedef struct kb_shard {
    uint32_t sip, cube, pe;
    uint64_t offset_bytes; /* its place in the tensor's virtual addresses */
    uint64_t nbytes;       /* 0 where there was nothing left to share out */
} kb_shard;

/* The shards that a tensor of this shape, dtype and policy has on the current device; makes none.
 * Writes at most `room`, and how many there are. */
KB_API KB_MUST_USE kb_error *kb_plan_shards(kb_context *ctx, const kb_tensor_spec *spec,
                                            kb_shard *shards, size_t room, size_t *count);

/* Shards come in the order of (cube, pe, offset_bytes). A tensor of the host has none. */
KB_API KB_MUST_USE kb_error *kb_tensor_shard_count(kb_context *ctx, kb_tensor tensor,
                                                   size_t *count);
KB_API KB_MUST_USE kb_error *kb_tensor_shard(kb_context *ctx, kb_tensor tensor, size_t index,
                                             kb_shard *shard);

/* Where the shard's first byte is. An empty shard is nowhere: an error. */
KB_API KB_MUST_USE kb_error *kb_tensor_shard_location(kb_context *ctx, kb_tensor tensor,
                                                      size_t index, kb_location *location);

/*
 * Calls that change contents do not wait: the transfers are work under way of the caller. What the
 * host sees of contents follows the order of its calls alone, never their timing.
 *
 * Calls that show contents to the host (to_host, get, get_slice, repr, and copy for where it copies
 * from unless that is a tensor of the host) first wait for all work under way of the calling
 * worker, and of nobody else: to see what others have sent on its way, meet them in a barrier. If
 * some of that work has failed and nobody was told, they return its fault, and show nothing.
 */

/*
 * Into any layout of the same shape and dtype, on a device or the host, from any other. Between
 * devices the PEs that have the data send it; the host sends each copy of a replicated tensor by
 * itself. Copying a tensor to itself does nothing.
 */
KB_API KB_MUST_USE kb_error *kb_tensor_copy(kb_context *ctx, kb_tensor to, kb_tensor from,
                                            kb_door door);

/* All elements, row by row, in the tensor's dtype. `bytes` must be what that takes. */
KB_API KB_MUST_USE kb_error *kb_tensor_to_host(kb_context *ctx, kb_tensor tensor, kb_door door,
                                               void *data, size_t bytes);

/* Which element: as many numbers as the tensor has dimensions. */
typedef struct kb_index {
    uint32_t rank;
    uint64_t at[KB_MAX_DIMS];
} kb_index;

/* KB_INDEX(3, 7) is a kb_index. */
#define KB_INDEX(...)                                                                              \
    ((kb_index){.rank = sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t), .at = {__VA_ARGS__}})

/* One element, as in kb_tensor_get(ctx, x, KB_FABRIC, &KB_INDEX(3, 7), &value). */
KB_API KB_MUST_USE kb_error *kb_tensor_get(kb_context *ctx, kb_tensor tensor, kb_door door,
                                           const kb_index *index, double *value);
KB_API KB_MUST_USE kb_error *kb_tensor_set(kb_context *ctx, kb_tensor tensor, kb_door door,
                                           const kb_index *index, double value);

/* Elements from `start` to before `stop` along an axis. */
typedef struct kb_span {
    uint64_t start, stop; /* KB_END: to the end */
} kb_span;

#define KB_END UINT64_MAX

/* One range for each of the first axes; of the others all is meant. */
typedef struct kb_slice {
    uint32_t rank;
    kb_span ranges[KB_MAX_DIMS];
} kb_slice;

/* KB_SLICE({0, 2}, {1, KB_END}) is a kb_slice. */
#define KB_SLICE(...)                                                                              \
    ((kb_slice){.rank = sizeof((kb_span[]){__VA_ARGS__}) / sizeof(kb_span),                        \
                .ranges = {__VA_ARGS__}})

/*
 * The elements of a slice, row by row; all of the tensor if the slice is NULL. `bytes` must be what
 * they take.
 */
KB_API KB_MUST_USE kb_error *kb_tensor_get_slice(kb_context *ctx, kb_tensor tensor, kb_door door,
                                                 const kb_slice *slice, void *data, size_t bytes);
KB_API KB_MUST_USE kb_error *kb_tensor_set_slice(kb_context *ctx, kb_tensor tensor, kb_door door,
                                                 const kb_slice *slice, const void *data,
                                                 size_t bytes);

/* Sets all elements of the slice to the same. */
KB_API KB_MUST_USE kb_error *kb_tensor_fill_slice(kb_context *ctx, kb_tensor tensor, kb_door door,
                                                  const kb_slice *slice, double value);

/* "'x' (4, 8) f16 on sip0, mean 0.5, norm 4": free() it. */
KB_API KB_MUST_USE kb_error *kb_tensor_repr(kb_context *ctx, kb_tensor tensor, kb_door door,
                                            char **text);

/* ---- Memory of one's own ----------------------------------------------------------------- */

/* For requests that are not about tensors. `align` is a power of two. */
KB_API KB_MUST_USE kb_error *kb_memory_alloc(kb_context *ctx, kb_pe pe, kb_memory memory,
                                             uint64_t bytes, uint64_t align, kb_location *location);
KB_API KB_MUST_USE kb_error *kb_memory_free(kb_context *ctx, kb_location location);

/* A range of virtual addresses, in whole pages of 4 KiB. It is mapped nowhere. */
KB_API KB_MUST_USE kb_error *kb_va_alloc(kb_context *ctx, uint64_t bytes, uint64_t *va);
KB_API KB_MUST_USE kb_error *kb_va_free(kb_context *ctx, uint64_t va);

/* ---- Requests ---------------------------------------------------------------------------- */

typedef enum kb_message_kind {
    KB_MEMORY_WRITE, /* the host writes `data` to `to` */
    KB_MEMORY_READ,  /* the host reads what is at `from` into `into` */
    KB_PE_DMA,       /* the DMA of `pe` copies from `from` to `to` */
    KB_MMU_MAP,      /* addresses from `va` on, had from kb_va_alloc(), mean `to`, for `pe` */
    KB_MMU_UNMAP     /* the range that was mapped at `va` no longer is, in the MMU of `pe` */
} kb_message_kind;

typedef struct kb_message {
    kb_message_kind kind;
    uint64_t bytes; /* at least 1; 0 for KB_MMU_UNMAP */
    kb_location from, to;
    kb_pe pe;
    uint64_t va;
    const void *data; /* copied; NULL: contents stay as they are */
    void *into;       /* filled when the request is submitted; NULL: only time is wanted */
} kb_message;

/* Names a request of its context. One that was freed is never taken for another. */
typedef struct kb_request {
    uint64_t id;
} kb_request;

/* How the time of a request came about: the four parts add up to ended - issued. */
typedef struct kb_completion {
    kb_time issued, ended;
    kb_time overhead; /* of nodes on the way */
    kb_time wire;
    kb_time drain;    /* of the bytes, at the slowest link of each way */
    kb_time queueing; /* behind others */
    uint64_t bytes;
} kb_completion;

/*
 * Requests under way at the same time are not ordered among each other. Each handle is to be freed
 * with kb_request_free() when it is no longer wanted.
 */
KB_API KB_MUST_USE kb_error *kb_request_submit(kb_context *ctx, const kb_message *message,
                                               kb_request *request);

/*
 * Lets simulated time pass until it is done, and at once if it is. A fault of the request, such as
 * an unmapped address, is returned here, every time. `completion` may be NULL.
 */
KB_API KB_MUST_USE kb_error *kb_request_wait(kb_context *ctx, kb_request request,
                                             kb_completion *completion);

/* Whether it is done, without waiting. */
KB_API KB_MUST_USE kb_error *kb_request_test(kb_context *ctx, kb_request request, bool *done);

/* Forgets the handle; the request goes on. Those that are left are freed with the context. Nothing
 * happens if it is 0. */
KB_API KB_MUST_USE kb_error *kb_request_free(kb_context *ctx, kb_request request);

/* Waits for all work under way of the caller. Returns the fault of what failed, if something did.
 */
KB_API KB_MUST_USE kb_error *kb_synchronize(kb_context *ctx);

/* ---- Operations -------------------------------------------------------------------------- */

/* What operations are done by. */
typedef enum kb_unit {
    KB_UNIT_HOST,      /* requests: transfers, commands, launches */
    KB_UNIT_CPU,       /* pe_cpu: a kernel, as a whole; and issuing its commands */
    KB_UNIT_DMA_READ,  /* pe_dma */
    KB_UNIT_DMA_WRITE, /* pe_dma */
    KB_UNIT_GEMM,      /* pe_gemm */
    KB_UNIT_MATH,      /* pe_math */
    KB_UNIT_SCHEDULER, /* pe_scheduler: composite operations, as a whole */
    KB_UNIT_IPCQ,      /* pe_ipcq: credits on their way back; and waiting, which is no work and
                          counts nowhere: "recv" for a message, "await credit" for a slot */
    KB_UNITS
} kb_unit;

KB_API const char *kb_unit_name(kb_unit unit); /* "pe_gemm" */

/*
 * What an operation accesses in the memory of a tensor: the bytes from the first to the last one
 * accessed, in the order of their addresses. With strides or a mask there may be gaps in between.
 */
typedef struct kb_op_access {
    const char *tensor;     /* its name */
    kb_dtype dtype;         /* of its elements */
    bool write;             /* else read */
    uint64_t offset, bytes; /* the offset is from the start of the tensor */
} kb_op_access;

/*
 * What determined when an operation began or ended: of all that it waited for, what came last. `id`
 * names the record of an operation, which began no later. Where the time is not that record's end
 * it is said here. docs/decisions/0032-causes-of-times.md has the rule.
 */
typedef enum kb_reason_kind {
    KB_REASON_NONE,   /* not known, or not asked for (kb_context_options.reasons) */
    KB_REASON_QUEUE,  /* the operation in front of it in its queue began then; id: that one */
    KB_REASON_LAUNCH, /* the kernel started; id: the kernel's record. The pe_cpu's overhead comes in
                         between. Of a kernel itself: its launch arrived; id: 0 */
    KB_REASON_ISSUE,  /* the pe_cpu issued it; id: the record of the issue, or of polling */
    KB_REASON_ROOM,   /* a queue had room; id: the operation that left it then: by beginning, or in
                         the scheduler's queue by ending */
    KB_REASON_UNIT,   /* the engine, a channel of the DMA or the scheduler became free; id: what it
                         did before, which may end later if it is a product whose results drain. Of
                         a kernel: the kernel before it on the PE */
    KB_REASON_ORDER,  /* an operation on the same bytes ended; id: that one */
    KB_REASON_SPACE,  /* space in the TCM was released; id: the operation that used it last. Of a
                         command of a composite operation also: fewer such commands were under way */
    KB_REASON_INPUT,  /* a value was there, or what the kernel waited for; id: what made it */
    KB_REASON_MESSAGE,  /* a message was there; id: its send, or that of its last part */
    KB_REASON_CREDIT,   /* a credit was there; id: the record of the credit */
    KB_REASON_TRANSFER, /* of an end: its own last transfer ended; id: 0 */
    KB_REASON_TCM,      /* of an end: its bytes passed a port of the TCM; id: the operation that
                           used the port when it began, 0 if none is known */
    KB_REASON_WORK,     /* of an end: the operation's own time was over; id: 0 */
    KB_REASON_KINDS
} kb_reason_kind;

KB_API const char *kb_reason_name(kb_reason_kind kind); /* "message" */

typedef struct kb_reason {
    kb_reason_kind kind;
    uint64_t id; /* of a record; 0: none */
} kb_reason;

/* Something that took time. Everything that does is one of these. */
struct kb_op {
    kb_unit unit;
    const char *name;  /* what: "load", "add", "kernel", "copy" */
    const char *label; /* of what: the launch, the tensor; "" if of nothing in particular */
    kb_pe pe;          /* of the unit; means nothing for the host */
    kb_time start, end;
    uint64_t bytes; /* moved */
    uint64_t flops;
    uint64_t result;      /* the number of the value that it made, 0 if none */
    uint64_t operands[3]; /* and of those that it used */
    uint64_t launch;      /* the number of the launch that it is of, from 1 on; 0 if of none */
    uint64_t message; /* of "send" and "recv": the number of the message, from 1 on; 0 if none */
    const char *direction; /* of "send", "recv" and "await credit": of the queue; else NULL */
    const kb_op_access *accesses; /* to tensors, by DMAs and composite operations */
    size_t access_count;
    bool unfinished;  /* it was under way when the run failed, at `end` */
    const char *file; /* of the kernel; NULL if it is of none */
    int line;
    uint64_t id; /* its number, from 1 on, in no particular order; this and the next two are 0
                    unless kb_context_options.reasons is set */
    kb_reason begun_by, ended_by;
};

/* Sums over operations. */
typedef struct kb_op_total {
    uint64_t count;
    kb_time_sum busy; /* of their times */
    uint64_t bytes, flops;
} kb_op_total;

/*
 * All operations of a unit so far, on all PEs: those of that name ("send"), or all if it is NULL.
 * What it grows by during a launch is the launch's own if nothing else is under way. A message that
 * takes several slots of its queue is one "send" for each.
 */
KB_API kb_op_total kb_context_op_total(kb_context *ctx, kb_unit unit, const char *name);

/*
 * What the time of a PE goes to. At each instant: the engines, if one works; else what the PE's
 * outstanding bytes wait for, in proportion to these bytes; else issuing. A PE without a kernel
 * counts as long as other PEs run one: until its launch arrives, or because it has finished.
 * docs/decisions/0015-attribution.md has the rule.
 */
typedef enum kb_cause {
    /* Compute. */
    KB_CAUSE_MATRIX,       /* the matrix engine is occupied; half of it if both engines work */
    KB_CAUSE_VECTOR,       /* the vector engine works */
    KB_CAUSE_MATRIX_DRAIN, /* the matrix engine is free, its last results are on their way out */
    /* Memory. */
    KB_CAUSE_LOCAL_MEMORY, /* HBM or SRAM of the PE's cube */
    KB_CAUSE_TCM,          /* the PE's own TCM */
    /* Communication. */
    KB_CAUSE_CUBE_PES,    /* TCM of other PEs of the cube */
    KB_CAUSE_OTHER_CUBES, /* memory of other cubes of the SIP */
    KB_CAUSE_OTHER_SIPS,  /* memory of other SIPs */
    KB_CAUSE_MESSAGE,     /* a message that has not arrived */
    KB_CAUSE_CREDIT,      /* a free slot at a receiver */
    KB_CAUSE_LAUNCH,      /* the launch of its next kernel is on its way, other PEs run theirs */
    /* Idle. */
    KB_CAUSE_ISSUE,     /* the pe_cpu issues a command or starts a kernel: nothing is outstanding */
    KB_CAUSE_IMBALANCE, /* it has no kernel and none is on its way, other PEs run theirs */
    KB_CAUSES
} kb_cause;

KB_API const char *kb_cause_name(kb_cause cause); /* "local_memory" */

/* The same in four groups. */
typedef struct kb_split_time {
    kb_time_sum compute;       /* an engine works, or results leave it */
    kb_time_sum memory;        /* stalled on memory of the cube */
    kb_time_sum communication; /* waiting for other PEs, cubes and SIPs, or for a launch */
    kb_time_sum idle;          /* none of them */
} kb_split_time;

KB_API kb_split_time kb_split_causes(const kb_time_sum causes[KB_CAUSES]);

/* ---- Launching kernels ------------------------------------------------------------------- */

/* A kernel: see KB_KERNEL in <kernbench/tl.h>. */
typedef struct kb_kernel kb_kernel;

typedef enum kb_arg_kind { KB_ARG_INTEGER, KB_ARG_REAL, KB_ARG_TENSOR, KB_ARG_TENSORS } kb_arg_kind;

/* What a kernel is given. */
typedef struct kb_arg {
    kb_arg_kind kind;
    int64_t integer;
    double real;
    kb_tensor tensor;
    const kb_tensor *tensors; /* one for each device that it is launched on */
    size_t tensor_count;
} kb_arg;

static inline kb_arg kb_arg_integer(int64_t integer)
{
    kb_arg arg = {KB_ARG_INTEGER, integer, 0, {0}, NULL, 0};
    return arg;
}

static inline kb_arg kb_arg_real(double real)
{
    kb_arg arg = {KB_ARG_REAL, 0, real, {0}, NULL, 0};
    return arg;
}

static inline kb_arg kb_arg_unsigned(uint64_t integer)
{
    return integer > INT64_MAX ? kb_arg_real((double)integer) : kb_arg_integer((int64_t)integer);
}

static inline kb_arg kb_arg_tensor(kb_tensor tensor)
{
    kb_arg arg = {KB_ARG_TENSOR, 0, 0, tensor, NULL, 0};
    return arg;
}

/* Each device gets the one that is on it: KB_EACH(shards_of_w, 4). */
static inline kb_arg kb_arg_tensors(const kb_tensor *tensors, size_t count)
{
    kb_arg arg = {KB_ARG_TENSORS, 0, 0, {0}, tensors, count};
    return arg;
}

static inline kb_arg kb_arg_same(kb_arg arg)
{
    return arg;
}

#define KB_EACH(tensors, count) kb_arg_tensors((tensors), (count))

/*
 * Runs the kernel on every PE that has a part of one of the tensors, and waits until all are done:
 *
 *     KB_TRY(kb_launch(ctx, "scale", &scale, x, 256, 0.5));
 *
 * The name is for reports; NULL: the kernel's own. The tensors are on one device, or in sets of one
 * for each device (KB_EACH): all devices are told before any is waited for. The kernel sees the
 * addresses of those of its device. A launch is sent when all that the caller sent before outside
 * streams has arrived (copies, mappings). Launches of a stream run one after the other: the next
 * one starts when the one before has ended on all its PEs. In C++, use kb_launch_args().
 */
#define kb_launch(ctx, label, kernel, ...)                                                         \
    kb_launch_with((ctx), (&(kb_launch_options){.name = (label)}), (kernel), __VA_ARGS__)

/* The same without waiting: *handle is a request to be waited for and freed. */
#define kb_launch_async(ctx, handle, label, kernel, ...)                                           \
    kb_launch_with((ctx), (&(kb_launch_options){.name = (label), .request = (handle)}), (kernel),  \
                   __VA_ARGS__)

/* A set of queues between PEs: see Queues between PEs. */
typedef struct kb_queue_set {
    uint64_t id;
} kb_queue_set;

/* A sequence of work on devices: see Streams. 0 is the default stream. */
typedef struct kb_stream {
    uint64_t id;
} kb_stream;

/* Which results of the work before it in its stream a launch needs. */
typedef enum kb_scope {
    KB_SCOPE_DEVICE, /* all of it: it starts when that has ended on all PEs */
    KB_SCOPE_CUBE,   /* what the same cube made: it starts there when its PEs have ended */
    KB_SCOPE_PE      /* what the same PE made: it starts there at once */
} kb_scope;

/* How a kernel is launched. NULL and all zeros: as kb_launch() does. */
typedef struct kb_launch_options {
    const char *name;    /* for reports; NULL: the kernel's own */
    kb_request *request; /* NULL: the call waits. Else it does not, and this becomes a request to be
                            waited for and freed */
    kb_queue_set queues; /* that the kernel sends and receives by; 0: on each PE the set that was
                            installed there last, if any */
    kb_stream stream;
    kb_scope scope; /* the race check finds accesses that need a wider one */
} kb_launch_options;

#define kb_launch_with(ctx, options, kernel, ...)                                                  \
    kb_launch_args((ctx), (options), (kernel), KB_ARGS_(__VA_ARGS__))

KB_API KB_MUST_USE kb_error *kb_launch_args(kb_context *ctx, const kb_launch_options *options,
                                            const kb_kernel *kernel, const kb_arg *args,
                                            size_t arg_count);

/* What became of a launch on one device. */
typedef struct kb_launch_result {
    const char *name; /* good as long as the context */
    uint32_t sip;
    uint32_t pes; /* that ran it */
    kb_time issued, ended;
    kb_time pe_exec;            /* from the first PE that began to the last that ended */
    kb_time held;               /* at the io_cpu, until what came before in its stream had ended */
    kb_time network;            /* all the rest: on the way there and back */
    kb_time_sum busy[KB_UNITS]; /* of the units of all PEs */
    kb_split_time split;        /* of the PEs' time in this kernel, summed over all PEs */
    kb_time_sum causes[KB_CAUSES]; /* the same in detail; of LAUNCH and IMBALANCE there is none */
} kb_launch_result;

/* Of a launch that is done: one a device, in their order. Writes at most `room`, and how many there
 * are. */
KB_API KB_MUST_USE kb_error *kb_launch_results(kb_context *ctx, kb_request request,
                                               kb_launch_result *results, size_t room,
                                               size_t *count);

/* How many there are of something, up to 16, and something done to each. */
#define KB_COUNT_(...)                                                                             \
    KB_PICK_17_(__VA_ARGS__, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)
#define KB_PICK_17_(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, chosen, ...) chosen
#define KB_JOIN_(a, b) KB_JOIN_AS_IS_(a, b)
#define KB_JOIN_AS_IS_(a, b) a##b

#define KB_ARGS_(...)                                                                              \
    (const kb_arg[]){KB_JOIN_(KB_EACH_, KB_COUNT_(__VA_ARGS__))(KB_ARG_, __VA_ARGS__)},            \
        KB_COUNT_(__VA_ARGS__)
#define KB_ARG_(x)                                                                                 \
    _Generic((x), kb_tensor                                                                        \
             : kb_arg_tensor, kb_arg                                                               \
             : kb_arg_same, float                                                                  \
             : kb_arg_real, double                                                                 \
             : kb_arg_real, unsigned long                                                          \
             : kb_arg_unsigned, unsigned long long                                                 \
             : kb_arg_unsigned, default                                                            \
             : kb_arg_integer)(x)

#define KB_EACH_1(f, x) f(x)
#define KB_EACH_2(f, x, ...) f(x), KB_EACH_1(f, __VA_ARGS__)
#define KB_EACH_3(f, x, ...) f(x), KB_EACH_2(f, __VA_ARGS__)
#define KB_EACH_4(f, x, ...) f(x), KB_EACH_3(f, __VA_ARGS__)
#define KB_EACH_5(f, x, ...) f(x), KB_EACH_4(f, __VA_ARGS__)
#define KB_EACH_6(f, x, ...) f(x), KB_EACH_5(f, __VA_ARGS__)
#define KB_EACH_7(f, x, ...) f(x), KB_EACH_6(f, __VA_ARGS__)
#define KB_EACH_8(f, x, ...) f(x), KB_EACH_7(f, __VA_ARGS__)
#define KB_EACH_9(f, x, ...) f(x), KB_EACH_8(f, __VA_ARGS__)
#define KB_EACH_10(f, x, ...) f(x), KB_EACH_9(f, __VA_ARGS__)
#define KB_EACH_11(f, x, ...) f(x), KB_EACH_10(f, __VA_ARGS__)
#define KB_EACH_12(f, x, ...) f(x), KB_EACH_11(f, __VA_ARGS__)
#define KB_EACH_13(f, x, ...) f(x), KB_EACH_12(f, __VA_ARGS__)
#define KB_EACH_14(f, x, ...) f(x), KB_EACH_13(f, __VA_ARGS__)
#define KB_EACH_15(f, x, ...) f(x), KB_EACH_14(f, __VA_ARGS__)
#define KB_EACH_16(f, x, ...) f(x), KB_EACH_15(f, __VA_ARGS__)
#define KB_EACH_INDEX_(f, ...) KB_JOIN_(KB_INDEX_, KB_COUNT_(__VA_ARGS__))(f)
#define KB_INDEX_1(f) f(0)
#define KB_INDEX_2(f) KB_INDEX_1(f), f(1)
#define KB_INDEX_3(f) KB_INDEX_2(f), f(2)
#define KB_INDEX_4(f) KB_INDEX_3(f), f(3)
#define KB_INDEX_5(f) KB_INDEX_4(f), f(4)
#define KB_INDEX_6(f) KB_INDEX_5(f), f(5)
#define KB_INDEX_7(f) KB_INDEX_6(f), f(6)
#define KB_INDEX_8(f) KB_INDEX_7(f), f(7)
#define KB_INDEX_9(f) KB_INDEX_8(f), f(8)
#define KB_INDEX_10(f) KB_INDEX_9(f), f(9)
#define KB_INDEX_11(f) KB_INDEX_10(f), f(10)
#define KB_INDEX_12(f) KB_INDEX_11(f), f(11)
#define KB_INDEX_13(f) KB_INDEX_12(f), f(12)
#define KB_INDEX_14(f) KB_INDEX_13(f), f(13)
#define KB_INDEX_15(f) KB_INDEX_14(f), f(14)
#define KB_INDEX_16(f) KB_INDEX_15(f), f(15)

/* ---- Streams ----------------------------------------------------------------------------- */

/*
 * A stream is a sequence of launches, copies and collectives. On each device they run in order, and
 * the order is kept there: the io_cpu holds what the host has sent until the work before it has
 * ended, so a dependent launch does not wait for the host.
 *
 *     kb_stream copies;
 *     kb_stream_event loaded;
 *     KB_TRY(kb_stream_create(ctx, "copies", &copies));
 *     KB_TRY(kb_stream_event_create(ctx, &loaded));
 *     KB_TRY(kb_stream_copy(ctx, copies, x, from_host, NULL));
 *     KB_TRY(kb_stream_record(ctx, copies, loaded));
 *     KB_TRY(kb_stream_wait(ctx, KB_DEFAULT_STREAM, loaded));
 *     KB_TRY(kb_launch_async(ctx, &request, "scale", &scale, x, 256, 0.5));
 *
 * Work of one stream gives the results of the order of calls. Work of two streams has no order
 * unless an event makes one: if both touch the same bytes, that is a data race, which is reported.
 * A PE runs one kernel at a time; kernels of two streams take turns on it. Collectives start on
 * each device in the order of their calls, whatever streams they are in.
 *
 * If work of a stream fails, what is in the stream behind it does not start, and fails too.
 *
 * Calls outside streams that show contents wait for all work of the caller; those that change or
 * free a tensor wait if the caller's work in streams uses it.
 */
#define KB_DEFAULT_STREAM ((kb_stream){0})

/* The name is for reports; NULL: a number. */
KB_API KB_MUST_USE kb_error *kb_stream_create(kb_context *ctx, const char *name, kb_stream *stream);

/* An error while it has work under way. Those that are left go with the context. */
KB_API KB_MUST_USE kb_error *kb_stream_destroy(kb_context *ctx, kb_stream stream);

/* Waits for all work of the stream. Returns the fault of the caller's work that failed, if any. */
KB_API KB_MUST_USE kb_error *kb_stream_synchronize(kb_context *ctx, kb_stream stream);

/*
 * Copies a tensor as kb_tensor_copy() does, in the stream: contents change when its turn comes. As
 * a launch, it waits for what the caller sent before outside streams. *request, unless NULL, is to
 * be waited for and freed.
 */
KB_API KB_MUST_USE kb_error *kb_stream_copy(kb_context *ctx, kb_stream stream, kb_tensor to,
                                            kb_tensor from, kb_request *request);

/* A moment in a stream. */
typedef struct kb_stream_event {
    uint64_t id;
} kb_stream_event;

KB_API KB_MUST_USE kb_error *kb_stream_event_create(kb_context *ctx, kb_stream_event *event);
KB_API KB_MUST_USE kb_error *kb_stream_event_free(kb_context *ctx, kb_stream_event event);

/* The event happens when all that is in the stream so far has ended, on all devices. */
KB_API KB_MUST_USE kb_error *kb_stream_record(kb_context *ctx, kb_stream stream,
                                              kb_stream_event event);

/* What comes into the stream from now on starts after the event, as it was recorded last. */
KB_API KB_MUST_USE kb_error *kb_stream_wait(kb_context *ctx, kb_stream stream,
                                            kb_stream_event event);

/* ---- Graphs ------------------------------------------------------------------------------ */

/*
 * A graph is a recorded sequence of launches, copies and collectives, with the order that their
 * streams and events make. The control processors keep it: to launch it takes one message of the
 * host to each device, and a node needs no decoding, only a count of completions and a trigger.
 *
 *     kb_graph step;
 *     KB_TRY(kb_graph_begin(ctx, "step", &step));
 *     KB_TRY(kb_launch(ctx, "up", &up, x, w1, h));     // recorded, not run
 *     KB_TRY(kb_launch(ctx, "down", &down, h, w2, y));
 *     KB_TRY(kb_graph_end(ctx, step));
 *     for (int i = 0; i < 100; i++)
 *         KB_TRY(kb_graph_launch(ctx, step, NULL));
 *     KB_TRY(kb_graph_free(ctx, step));
 *
 * Until kb_graph_end(), what the caller launches and copies (kb_stream_copy(), and kb_tensor_copy()
 * through the fabric), and its collectives, are recorded. Their requests become 0, which may be
 * freed and nothing else. Host reads, waiting and changes of contents are errors meanwhile; other
 * calls take effect at once.
 */
typedef struct kb_graph {
    uint64_t id;
} kb_graph;

/* Waits for the caller's work first. The name is for reports; NULL: "graph". */
KB_API KB_MUST_USE kb_error *kb_graph_begin(kb_context *ctx, const char *name, kb_graph *graph);

/* Sends the graph to its devices and waits until they have it. */
KB_API KB_MUST_USE kb_error *kb_graph_end(kb_context *ctx, kb_graph graph);

/* An error while it runs. Those that are left go with the context. */
KB_API KB_MUST_USE kb_error *kb_graph_free(kb_context *ctx, kb_graph graph);

typedef struct kb_graph_options {
    kb_stream stream;    /* the graph as a whole is in this stream */
    kb_request *request; /* NULL: the call waits. Else it does not, and this becomes a request to be
                            waited for and freed */
} kb_graph_options;

/*
 * Runs all of it. NULL options: in the default stream, and waits. A graph that runs cannot be
 * launched again. kb_launch_results() of the request has its launches in order, without those of
 * collectives; `issued` and `ended` are as the io_cpu sees them.
 */
KB_API KB_MUST_USE kb_error *kb_graph_launch(kb_context *ctx, kb_graph graph,
                                             const kb_graph_options *options);

/* Nodes are numbered from 0 in the order in which they were recorded. Finds the first launch, copy
 * (named as the tensor it copies to) or collective of that name. */
KB_API KB_MUST_USE kb_error *kb_graph_node_count(kb_context *ctx, kb_graph graph, size_t *count);
KB_API KB_MUST_USE kb_error *kb_graph_find(kb_context *ctx, kb_graph graph, const char *name,
                                           size_t *node);

/*
 * Changes an argument of a recorded launch, from 0, or of a copy (0: to, 1: from), for all launches
 * of the graph to come. A tensor has to be placed as the one before: the PEs that run the node, and
 * what they are sent, are recorded.
 */
KB_API KB_MUST_USE kb_error *kb_graph_set_arg(kb_context *ctx, kb_graph graph, size_t node,
                                              size_t index, kb_arg arg);

/* ---- Queues between PEs ------------------------------------------------------------------ */

/*
 * Kernels of ordinary launches can send and receive (tl_send(), tl_recv()) once queues are
 * installed in their PEs. A program says which PEs are connected, and in which directions:
 *
 *     const kb_queue_spec ring = {.topology = "ring_1d", .pes = pes, .pe_count = 8};
 *     KB_TRY(kb_queues_create(ctx, &ring, &set));
 *     KB_TRY(kb_queues_install(ctx, set));
 *     KB_TRY(kb_launch(ctx, "halo", &halo, x, rows));
 *     KB_TRY(kb_queues_remove(ctx, set));
 *
 * A kernel runs only on PEs that have a part of its tensors: connect those, which kb_plan_shards()
 * lists. A PE that waits for one without a kernel waits for ever: a deadlock, which is reported.
 *
 * Sets coexist with each other and with those of collectives. A message that a launch leaves behind
 * is there for the next one, unless a kernel of the launch failed: then all of its kernels are
 * stopped, and its queues are empty when they are used next.
 */

/* What `from` sends in the direction arrives at `to`. */
typedef struct kb_queue_edge {
    kb_pe from;
    const char *direction;
    kb_pe to;
} kb_queue_edge;

/* Connections, in one of three ways; and the queues' form, in which 0 is what ccl.yaml says. */
typedef struct kb_queue_spec {
    const char *algorithm; /* 1. as this entry of ccl.yaml connects its PEs, */
    uint32_t world;        /*    for this many ranks; 0: as many as the entry has */
    const char *topology;  /* 2. a topology by name (kernbench list), */
    const kb_pe *pes;      /*    over these PEs, in this order */
    size_t pe_count;
    uint32_t w, h;              /*    its sides, if it has two dimensions; 0: a square */
    const kb_queue_edge *edges; /* 3. one by one */
    size_t edge_count;
    const char *buffer_kind; /* where receivers have their slots: "tcm", "hbm" or "sram" */
    uint32_t n_slots;        /* of a queue */
    uint64_t slot_bytes;
} kb_queue_spec;

/* Plans the queues and reserves their slots. Takes no time: nothing is installed yet. */
KB_API KB_MUST_USE kb_error *kb_queues_create(kb_context *ctx, const kb_queue_spec *spec,
                                              kb_queue_set *set);

/* Installs the queues in all their PEs, by commands through the fabric, and waits. */
KB_API KB_MUST_USE kb_error *kb_queues_install(kb_context *ctx, kb_queue_set set);

/* Waits for the caller's own work, removes the queues from their PEs, waits, and frees the set.
 * Warns of messages that were never received. Not while a launch of others uses it. */
KB_API KB_MUST_USE kb_error *kb_queues_remove(kb_context *ctx, kb_queue_set set);

/* A direction of a PE: the plan, and where its queue pair stands. */
typedef struct kb_queue_info {
    kb_pe pe;
    const char *direction;      /* good as long as the set */
    bool can_send, can_receive; /* what of the following there is: */
    kb_pe to, from;             /* the peers */
    kb_location ring;           /* its slots for what it receives */
    uint64_t ring_bytes;        /* all of them */
    uint64_t my_head;           /* slots that it filled at its peer */
    uint64_t peer_tail_cache;   /* and those that it knows to be free again */
    uint64_t peer_head_cache;   /* slots that its peer filled here */
    uint64_t my_tail;           /* and those that are free again */
} kb_queue_info;

/* All directions of a set, by PE; at any time. Writes at most `room`, and how many there are. */
KB_API KB_MUST_USE kb_error *kb_queues_list(kb_context *ctx, kb_queue_set set, kb_queue_info *infos,
                                            size_t room, size_t *count);

/* The same as text, a line each; {0}: of all sets that the program has made. */
KB_API KB_MUST_USE kb_error *kb_queues_dump(kb_context *ctx, kb_queue_set set, kb_warning_fn *print,
                                            void *self);

/* ---- Workers ----------------------------------------------------------------------------- */

/* What a worker does. Its error, if any, becomes that of kb_spawn(). */
typedef kb_error *kb_worker_fn(kb_context *ctx, uint32_t rank, void *arg);

/*
 * Runs fn(ctx, rank, arg) once for each rank from 0 to nprocs - 1 and returns when all are done,
 * with all their work. They are coroutines of one thread: while one waits, others go on, in the
 * order of their ranks, and time passes only when all wait. If one fails, the others are unwound,
 * what is under way ends, and the error says which ranks failed and why; the context can be used
 * on. Not inside a worker. Their stacks are small (kb_context_options): large arrays belong on the
 * heap.
 */
KB_API KB_MUST_USE kb_error *kb_spawn(kb_context *ctx, kb_worker_fn *fn, void *arg,
                                      uint32_t nprocs);

/* A rank that failed in the last kb_spawn(), and how; ranks that were only aborted are not listed.
 */
typedef struct kb_failure {
    uint32_t rank;
    kb_code code;
    const char *message; /* good until the next kb_spawn() */
} kb_failure;

/* In the order of ranks. Writes at most `room`, and returns how many there are. */
KB_API size_t kb_spawn_failures(const kb_context *ctx, kb_failure *failures, size_t room);

/*
 * Lets the other workers go on that can. If none can, time passes until a request of anybody ends.
 * For long loops, and for loops around kb_request_test().
 */
KB_API KB_MUST_USE kb_error *kb_cooperative_yield(kb_context *ctx);

/* The calling worker, to push cleanups with kb_co_push_cleanup(); NULL outside workers. */
KB_API kb_co *kb_context_worker(kb_context *ctx);

/* ---- The process group ------------------------------------------------------------------- */

/*
 * Ranks that do things together. Rank r is the worker of rank r and has device r; with `--device`
 * there is one rank. Each worker initialises the group for itself, or the program outside workers
 * does it once for all, and then stands for all ranks. Queues between PEs are installed by
 * commands through the fabric, which takes simulated time; it returns when all are.
 *
 * ccl.yaml may say that ranks are PEs (`rank: pe`, or a `world_size`): the first so many of the
 * machine. One worker then drives all of them, with one tensor for each device that has some.
 */
KB_API KB_MUST_USE kb_error *kb_distributed_init_process_group(kb_context *ctx,
                                                               const char *backend); /* "ahbm" */

/*
 * Removes the queues. The last rank to call it waits until they are; a rank that initialises again
 * waits until all ranks have left and they are. Groups go with it.
 */
KB_API KB_MUST_USE kb_error *kb_distributed_destroy_process_group(kb_context *ctx);
KB_API bool kb_distributed_is_initialized(kb_context *ctx);

/* Errors before the group is initialised. Outside workers the rank is 0. */
KB_API KB_MUST_USE kb_error *kb_distributed_get_rank(kb_context *ctx, uint32_t *rank);
KB_API KB_MUST_USE kb_error *kb_distributed_get_world_size(kb_context *ctx, uint32_t *size);
KB_API KB_MUST_USE kb_error *kb_distributed_get_backend(kb_context *ctx, const char **backend);

/* Some of the ranks. All zeros: all of them. */
typedef struct kb_group {
    uint64_t id;
} kb_group;

/*
 * A group of these ranks, which become its ranks 0, 1, .. in the order given. Every rank calls it,
 * also those that are not in it; calls are matched by their order. It lasts as long as the process
 * group.
 */
KB_API KB_MUST_USE kb_error *kb_distributed_new_group(kb_context *ctx, const uint32_t *ranks,
                                                      size_t count, kb_group *group);

/* The caller's rank in the group, UINT32_MAX if it is not in it; and how many there are. */
KB_API KB_MUST_USE kb_error *kb_distributed_get_group_rank(kb_context *ctx, kb_group group,
                                                           uint32_t *rank);
KB_API KB_MUST_USE kb_error *kb_distributed_get_group_size(kb_context *ctx, kb_group group,
                                                           uint32_t *size);

typedef enum kb_reduce_op { KB_SUM, KB_MAX, KB_MIN, KB_PROD, KB_AVG, KB_REDUCE_OPS } kb_reduce_op;

KB_API const char *kb_reduce_op_name(kb_reduce_op op); /* "sum" */

typedef enum kb_collective_kind {
    KB_ALL_REDUCE,
    KB_ALL_GATHER,
    KB_REDUCE_SCATTER,
    KB_BROADCAST,
    KB_REDUCE,
    KB_GATHER,
    KB_SCATTER,
    KB_ALL_TO_ALL,
    KB_SEND,
    KB_RECV,
    KB_BARRIER,
    KB_COLLECTIVES
} kb_collective_kind;

KB_API const char *kb_collective_name(kb_collective_kind kind); /* "all_reduce" */

/* How a collective is called. NULL and all zeros: among all ranks, and it waits. */
typedef struct kb_collective_options {
    kb_group group;
    kb_request *work;      /* NULL: the call waits. Else it does not, and this becomes a request
                              to be waited for and freed */
    const char *algorithm; /* an entry of ccl.yaml, or "auto", the fastest that works in any layout.
                              NULL: the entry that defaults.algorithm names where it can do the
                              collective and the tensor has the layout that it needs, else "auto" */
    const kb_stream *stream; /* NULL: in none: starts when the caller's work in streams has ended.
                                Else in this one, and sends and receives do not pass each other */
} kb_collective_options;

/*
 * Collectives. All ranks of the group call the same one, with the same shapes, dtype, operation and
 * root: calls are matched by their order, and one that differs from the others fails at once, with
 * who, what and where; so do all when a rank ends without having joined. Each rank starts when it
 * calls, and a result is there when the call, or its work, is done: ranks that come later make the
 * others wait.
 *
 * Tensors are on the rank's device, in any layout. Elements are counted row by row. Where there is
 * a block for each rank, blocks follow each other in the order of ranks. With "auto" results are
 * the same bits on every rank, and a reduction is element by element over the ranks. Entries of
 * ccl.yaml may need a certain layout, differ in the last bits between ranks, or combine the shards
 * inside a SIP too (reduce_shards): a call that needs the plain result asks for "auto".
 *
 * What a collective under way uses is not to be changed or freed. Where there is an input and an
 * output, these are two tensors.
 *
 * Kernels of a rank run in the order of its calls, as in one stream. So an asynchronous send or
 * receive holds back what its rank calls later, but for other sends and receives, until the other
 * rank has called its part; and if that rank first waits for one of those later calls, neither goes
 * on: it is a deadlock, and is reported. Both ranks should have the two in the same order.
 */

/* The sum (or what `op` says) of the ranks' tensors, element by element, becomes each of them. */
KB_API KB_MUST_USE kb_error *kb_distributed_all_reduce(kb_context *ctx, kb_tensor tensor,
                                                       kb_reduce_op op,
                                                       const kb_collective_options *options);

/* The inputs of all ranks, one behind the other, become the output of each. */
KB_API KB_MUST_USE kb_error *kb_distributed_all_gather(kb_context *ctx, kb_tensor output,
                                                       kb_tensor input,
                                                       const kb_collective_options *options);

/* Of the sum of the inputs, rank r gets block r. */
KB_API KB_MUST_USE kb_error *kb_distributed_reduce_scatter(kb_context *ctx, kb_tensor output,
                                                           kb_tensor input, kb_reduce_op op,
                                                           const kb_collective_options *options);

/* The root's tensor becomes that of all. */
KB_API KB_MUST_USE kb_error *kb_distributed_broadcast(kb_context *ctx, kb_tensor tensor,
                                                      uint32_t root,
                                                      const kb_collective_options *options);

/* As all_reduce, but only the root's tensor changes. */
KB_API KB_MUST_USE kb_error *kb_distributed_reduce(kb_context *ctx, kb_tensor tensor, uint32_t root,
                                                   kb_reduce_op op,
                                                   const kb_collective_options *options);

/* The root's output gets the inputs of all; only the root needs an output ({0} elsewhere). */
KB_API KB_MUST_USE kb_error *kb_distributed_gather(kb_context *ctx, kb_tensor output,
                                                   kb_tensor input, uint32_t root,
                                                   const kb_collective_options *options);

/* Each rank's output gets its block of the root's input; only the root needs one. */
KB_API KB_MUST_USE kb_error *kb_distributed_scatter(kb_context *ctx, kb_tensor output,
                                                    kb_tensor input, uint32_t root,
                                                    const kb_collective_options *options);

/* Block s of rank r's output is block r of rank s's input. */
KB_API KB_MUST_USE kb_error *kb_distributed_all_to_all(kb_context *ctx, kb_tensor output,
                                                       kb_tensor input,
                                                       const kb_collective_options *options);

/* From rank to rank: only these two call it. The n-th send from a rank to another is matched with
 * the n-th receive there from that rank. */
KB_API KB_MUST_USE kb_error *kb_distributed_send(kb_context *ctx, kb_tensor tensor, uint32_t to,
                                                 const kb_collective_options *options);
KB_API KB_MUST_USE kb_error *kb_distributed_recv(kb_context *ctx, kb_tensor tensor, uint32_t from,
                                                 const kb_collective_options *options);

/* Waits for the caller's own work, unless it returns work, and then until all ranks have called. */
KB_API KB_MUST_USE kb_error *kb_distributed_barrier(kb_context *ctx,
                                                    const kb_collective_options *options);

/*
 * The same with everything said, for those who drive several ranks: outside workers one tensor for
 * each rank of the group, and where ranks are PEs one for each device that has some.
 */
typedef struct kb_collective {
    kb_collective_kind kind;
    const kb_tensor *inputs, *outputs; /* the same where it works in place */
    size_t count;                      /* of each */
    kb_reduce_op op;
    uint32_t root; /* or the other rank */
    kb_collective_options options;
} kb_collective;

KB_API KB_MUST_USE kb_error *kb_distributed_call(kb_context *ctx, const kb_collective *call);

/* What is known of a collective before it runs, and of the last one. */
typedef struct kb_collective_figures {
    const char *algorithm; /* that is used, or was: the entry's name */
    kb_time lower_bound;   /* no algorithm can be faster on this machine */
    double bus_factor;     /* bus bandwidth = size / time * this, as in nccl-tests */
    uint64_t size;         /* in bytes, as in nccl-tests: of one rank's larger buffer */
    uint32_t participants;
} kb_collective_figures;

/* Of the caller's last collective in the group that is done. */
KB_API KB_MUST_USE kb_error *kb_distributed_get_figures(kb_context *ctx, kb_group group,
                                                        kb_collective_figures *figures);

/* ---- Benches ----------------------------------------------------------------------------- */

/*
 * A bench is a program that the command line runs. A file with this in it is compiled and run by
 * "kernbench run --bench ./mine.c" (docs/tutorial.md); those that ship are made the same way:
 *
 *     static const kb_param params[] = {
 *         {.name = "n", .value = 256, .min = 1, .max = 1 << 20, .help = "elements"}};
 *
 *     static kb_error *run(kb_bench *bench)
 *     {
 *         kb_context *ctx = kb_bench_context(bench);
 *         int64_t n = kb_bench_param(bench, "n");
 *         ...
 *         return kb_bench_verify(bench, y, expected, 1e-3, 1e-3);
 *     }
 *
 *     static const kb_bench_spec mine = {
 *         .name = "mine",
 *         .summary = "what it does",
 *         .params = params,
 *         .param_count = 1,
 *         .run = run,
 *     };
 *
 *     KB_EXPORT_BENCHES(&mine);
 */
typedef struct kb_bench kb_bench;

/* What can be given with --param: a whole number (4096, or 4KiB), or one of several names. */
typedef struct kb_param {
    const char *name;
    int64_t value; /* unless it is given; of names the index */
    int64_t min, max;
    const char *help;
    const char *const *names; /* the last one is NULL; min and max are then not looked at. NULL: it
                                 is a number */
} kb_param;

typedef struct kb_bench_spec {
    const char *name;
    const char *summary; /* one line */
    const kb_param *params;
    size_t param_count;
    kb_error *(*run)(kb_bench *bench);
    /* NULL, or whether it is too large for data with these parameters: it then runs timing-only,
     * unless it is to be verified, and the run says so. There is no context yet. */
    bool (*is_timing_only)(const kb_bench *bench);
} kb_bench_spec;

/* What a file with benches ends with. */
#define KB_EXPORT_BENCHES(...)                                                                     \
    KB_API extern const char kb_exported_interface[];                                              \
    const char kb_exported_interface[] = KB_INTERFACE;                                             \
    KB_API extern const kb_bench_spec *const kb_exported_benches[];                                \
    const kb_bench_spec *const kb_exported_benches[] = {__VA_ARGS__, NULL}

/* Which headers a file was compiled with: those of another interface are refused. */
#define KB_INTERFACE "0.2"

KB_API kb_context *kb_bench_context(const kb_bench *bench);

/* The SIPs that it may use, all or the one of --device: their count, and the number of one. */
KB_API uint32_t kb_bench_device_count(const kb_bench *bench);
KB_API uint32_t kb_bench_device(const kb_bench *bench, uint32_t index);

/* A parameter's value, of names the index. One that the bench does not have is a bug of the bench:
 * the run ends. */
KB_API int64_t kb_bench_param(const kb_bench *bench, const char *name);

/* Whether results are to be verified: then there is data. */
KB_API bool kb_bench_verifies(const kb_bench *bench);

/* A line of its own in the output. */
KB_API void kb_bench_print(kb_bench *bench, const char *format, ...) KB_PRINTF(2, 3);

/* A figure of its own: in the summary and among the `metrics` of --json. Figures named "a.x" and
 * "a.y" are the members x and y of an object `a` there. */
KB_API void kb_bench_metric(kb_bench *bench, const char *name, double value, const char *unit);

/* The same for --json alone: a figure that the bench prints itself. */
KB_API void kb_bench_detail(kb_bench *bench, const char *name, double value, const char *unit);

/*
 * Waits for the caller's work, as every look at contents does, and then compares a tensor with what
 * it should be, row by row, if results are to be verified: each element may be off by absolute +
 * relative * |expected|; where NaN is expected, anything is right. The error has the first element
 * that is further off. Comparing takes no simulated time. Of a replicated tensor one copy is
 * compared. If nothing is to be verified, `expected` may be NULL.
 */
KB_API KB_MUST_USE kb_error *kb_bench_verify(kb_bench *bench, kb_tensor tensor,
                                             const double *expected, double relative,
                                             double absolute);

/* For a bench that compares results by itself: they were right. (If they are not, it returns an
 * error of KB_ERR_CHECK.) */
KB_API void kb_bench_confirm(kb_bench *bench);

/* Numbers to fill tensors with: the same for the same seed, everywhere; from -1 to 1, in types of
 * whole numbers -1, 0 or 1. */
KB_API void kb_bench_random(uint64_t seed, kb_dtype dtype, void *data, size_t count);

/* ==== The engine ========================================================================== */

/*
 * The engine can be used without a machine. A clerk serves customers, two at a time, for three
 * nanoseconds each:
 *
 *     static void customer(kb_co *co, void *desk)
 *     {
 *         kb_sem_acquire(co, desk, 1);
 *         kb_co_sleep(co, 3 * KB_NS);
 *         kb_sem_release(kb_co_sim(co), desk, 1);
 *     }
 *
 *     int main(void)
 *     {
 *         kb_sim *sim;
 *         kb_error *err = kb_sim_create(NULL, &sim);
 *         kb_sem desk;
 *         kb_sem_init(&desk, "desk", 2);
 *         for (uint32_t i = 0; i < 5 && !err; i++)
 *             err = kb_co_spawn(sim, &(kb_co_options){.name = "customer", .source_id = i},
 *                               customer, &desk, NULL);
 *         if (!err)
 *             err = kb_sim_run(sim, KB_FOREVER);
 *         if (err)
 *             fprintf(stderr, "%s\n", kb_error_message(err));
 *         else
 *             printf("closed at %" PRId64 " fs\n", kb_sim_now(sim));    // 9000000: 9 ns
 *         kb_error_free(err);
 *         kb_sim_destroy(sim);
 *     }
 */

/* ---- The simulator ----------------------------------------------------------------------- */

typedef struct kb_sim_options {
    size_t stack_bytes; /* of each coroutine, 16 KiB to 1 GiB; 0 means 64 KiB */
    bool no_elision;    /* every step goes through the event set: slower, the same results */
} kb_sim_options;

/* NULL options are the default ones. *sim is NULL after an error. */
KB_API KB_MUST_USE kb_error *kb_sim_create(const kb_sim_options *options, kb_sim **sim);

/* Unwinds the coroutines that are left: their cleanups run. Not while it runs. */
KB_API void kb_sim_destroy(kb_sim *sim);

KB_API kb_time kb_sim_now(const kb_sim *sim);

/*
 * Runs all events up to and including `until`, and leaves the clock there. With KB_FOREVER it
 * leaves the clock at the last event; and if then a coroutine that is no daemon still waits, it
 * returns KB_ERR_DEADLOCK with the list of who waits for what. Returns early after kb_sim_stop(),
 * and with the error that kb_sim_fail() was given. Not to be called from handlers or coroutines.
 */
KB_API KB_MUST_USE kb_error *kb_sim_run(kb_sim *sim, kb_time until);

/* Makes run return when the event in hand is done. A later run goes on from there. */
KB_API void kb_sim_stop(kb_sim *sim);

/* The same, with an error to return. Takes it over; of several the first one counts. */
KB_API void kb_sim_fail(kb_sim *sim, kb_error *err);

/*
 * Forgets all events and unwinds all coroutines; meanwhile none can be spawned. The clock stays,
 * and the simulator can be used on. Not to be called from coroutines.
 */
KB_API void kb_sim_abandon(kb_sim *sim);

typedef struct kb_sim_stats {
    uint64_t events;      /* taken from the event set and run */
    uint64_t elided;      /* steps that needed no event because nothing came before them */
    uint64_t cancelled;   /* events cancelled before their time */
    uint64_t resumes;     /* switches into a coroutine */
    uint32_t pending;     /* events waiting now */
    uint32_t max_pending; /* the most there ever were, with cancelled ones not yet swept out */
    uint32_t coroutines;  /* alive now */
} kb_sim_stats;

/* Looks through memory for max_pending: for reports, not for every event. */
KB_API kb_sim_stats kb_sim_get_stats(const kb_sim *sim);

/* ---- Events and handlers ----------------------------------------------------------------- */

/*
 * Events are totally ordered by (time, source id, sequence at the source), so the order depends
 * on what is simulated and not on how. Each thing that schedules has a source of its own, with an
 * id that no other one has at the time; ids should follow the structure of what is modelled.
 */
typedef struct kb_source {
    uint64_t next_key;
} kb_source;

#define KB_SOURCE_ID_MAX ((1u << 24) - 1)

static inline kb_source kb_source_make(uint32_t id)
{
    kb_source source = {(uint64_t)id << 40}; /* 2^40 events a source before ids would run over */
    return source;
}

/* Runs to completion; must not block. */
typedef void kb_handler_fn(kb_sim *sim, void *self, uint64_t arg);

typedef uint32_t kb_handler;

KB_API KB_MUST_USE kb_error *kb_sim_add_handler(kb_sim *sim, kb_handler_fn *fn, void *self,
                                                kb_handler *handler);

/* Names one scheduled event, for cancelling it. Never names another one later. */
typedef struct kb_event {
    uint64_t key;
    uint64_t slot;
} kb_event;

/*
 * Calls the handler with `arg` at time `when`, which must not be in the past. If there is no
 * memory for the event, the run fails with KB_ERR_HOST; if `when` is KB_FOREVER, and so past the
 * end of the clock, with KB_ERR_INPUT.
 */
KB_API kb_event kb_sim_at(kb_sim *sim, kb_source *source, kb_time when, kb_handler handler,
                          uint64_t arg);

/* The same, `delay` from now. */
KB_API kb_event kb_sim_after(kb_sim *sim, kb_source *source, kb_time delay, kb_handler handler,
                             uint64_t arg);

/* False if the event has happened or was cancelled before. */
KB_API bool kb_sim_cancel(kb_sim *sim, kb_event event);

/*
 * Skips an event: if the one that `source` would schedule for `when` would be the very next to
 * happen, moves the clock there and returns true, and the caller does at once what its handler
 * would have done. Otherwise nothing has happened, and the caller schedules it.
 */
KB_API bool kb_sim_advance(kb_sim *sim, kb_source *source, kb_time when);

/* ---- Coroutines -------------------------------------------------------------------------- */

/*
 * A function with a stack of its own that can sleep and wait. It must not change the floating
 * point environment, nor block the thread. The calls that take a kb_co as their first argument are
 * for the coroutine itself.
 */
typedef void kb_co_fn(kb_co *co, void *arg);

typedef struct kb_co_options {
    const char *name;          /* for messages; copied */
    uint32_t source_id;        /* its place in the order of events */
    bool daemon;               /* may be left waiting at the end: no deadlock */
    void (*on_end)(void *arg); /* called when it is gone, also if it never started; may be NULL */
} kb_co_options;

/*
 * The coroutine starts at the present time, when its turn comes. If `co` is not NULL it gets a
 * handle that is good until the coroutine ends; so is its source. NULL options are the default
 * ones.
 */
KB_API KB_MUST_USE kb_error *kb_co_spawn(kb_sim *sim, const kb_co_options *options, kb_co_fn *fn,
                                         void *arg, kb_co **co);

KB_API kb_sim *kb_co_sim(const kb_co *co);
KB_API const char *kb_co_name(const kb_co *co);
KB_API kb_source *kb_co_source(kb_co *co);

/* A sleep of 0 lets everything go first that comes before this coroutine at the present time. */
KB_API void kb_co_sleep(kb_co *co, kb_time duration);

/* Ends the coroutine from anywhere in it, as if its function had returned. */
KB_API KB_NORETURN void kb_co_exit(kb_co *co);

/*
 * Unwinds a suspended coroutine: wherever it waits, that call does not return; its cleanups run on
 * its stack, the newest first, and it is gone. In a cleanup, calls that would block return at once.
 * C++ destructors do not run: use cleanups. The frames of a kernel can return by themselves:
 * tl_try().
 */
KB_API void kb_co_kill(kb_co *co);

/*
 * A cleanup runs when the coroutine ends while it is pushed. It mostly lives in a local variable,
 * and is then to be popped before the function around it returns:
 *
 *     kb_cleanup undo;
 *     kb_co_push_cleanup(co, &undo, free, buffer);
 *     ...
 *     kb_co_pop_cleanup(co, true);
 */
typedef struct kb_cleanup {
    struct kb_cleanup *below;
    void (*fn)(void *arg);
    void *arg;
} kb_cleanup;

KB_API void kb_co_push_cleanup(kb_co *co, kb_cleanup *cleanup, void (*fn)(void *), void *arg);
KB_API void kb_co_pop_cleanup(kb_co *co, bool run);

/*
 * For a handler of SIGSEGV: the name of the coroutine in whose guard page the address is, or NULL.
 * Allocates nothing and takes no locks.
 */
KB_API const char *kb_sim_stack_overflow(const kb_sim *sim, const void *address);

/* ---- Waiting ----------------------------------------------------------------------------- */

/*
 * Something that waits, in order of arrival: a coroutine, or an event that is scheduled when its
 * turn comes. Handlers, which cannot block, wait with a kb_waiter of their own and the _then calls:
 * these return true if nothing had to be waited for and no event will come, or false, and then the
 * handler is called when the thing has been done. The kb_waiter must stay until then.
 *
 * Lists, semaphores and channels must stay while somebody waits in them: before they go after a run
 * that failed, kb_sim_abandon() the simulator.
 */
typedef struct kb_waiter {
    struct kb_waiter *next, *prev;
    struct kb_waitlist *list; /* NULL when it does not wait */
    kb_source *source;
    kb_handler handler;
    uint64_t arg;
    uint64_t value; /* units wanted of a semaphore; the word to put into or got from a channel */
    kb_event event; /* of its handler, once its turn has come */
    struct kb_sem *granted; /* what it was given units of */
} kb_waiter;

typedef struct kb_waitlist {
    kb_waiter *head, *tail;
    const char *name;   /* for reports of deadlock; not copied */
    struct kb_sem *sem; /* whose list it is, NULL for others */
} kb_waitlist;

static inline void kb_waiter_init(kb_waiter *waiter, kb_source *source, kb_handler handler,
                                  uint64_t arg)
{
    kb_waiter fresh = {NULL, NULL, NULL, source, handler, arg, 0, {0, 0}, NULL};
    *waiter = fresh;
}

KB_API void kb_waitlist_init(kb_waitlist *list, const char *name);
KB_API void kb_wait(kb_co *co, kb_waitlist *list);
KB_API bool kb_wait_until(kb_co *co, kb_waitlist *list, kb_time deadline); /* false: too late */
KB_API void kb_wait_then(kb_waitlist *list, kb_waiter *waiter);
KB_API bool kb_wake_one(kb_sim *sim, kb_waitlist *list); /* false if nobody waits */
KB_API void kb_wake_all(kb_sim *sim, kb_waitlist *list);

/*
 * Its handler will not be called; units that it was given go back, but words that a channel has
 * handed over or taken do not. False if it has been called, or does not wait.
 */
KB_API bool kb_waiter_cancel(kb_sim *sim, kb_waiter *waiter);

/* A count that can be taken from and given back to. First come, first served. Not to be copied. */
typedef struct kb_sem {
    kb_waitlist waiters;
    uint64_t available;
} kb_sem;

KB_API void kb_sem_init(kb_sem *sem, const char *name, uint64_t available);
KB_API bool kb_sem_acquire(kb_co *co, kb_sem *sem, uint64_t units); /* false in a cleanup only */
KB_API bool kb_sem_try_acquire(kb_sem *sem, uint64_t units);
KB_API bool kb_sem_acquire_then(kb_sem *sem, uint64_t units, kb_waiter *waiter);
KB_API void kb_sem_release(kb_sim *sim, kb_sem *sem, uint64_t units);

/* A bounded queue of 64-bit words: numbers, indices or pointers. The capacity is at least 1. */
typedef struct kb_channel {
    kb_waitlist getters, putters;
    uint64_t *words;
    uint32_t capacity, first, count;
} kb_channel;

KB_API KB_MUST_USE kb_error *kb_channel_init(kb_channel *channel, const char *name,
                                             uint32_t capacity);
KB_API void kb_channel_fini(kb_channel *channel);
KB_API bool kb_channel_put(kb_co *co, kb_channel *channel, uint64_t word); /* as kb_sem_acquire */
KB_API uint64_t kb_channel_get(kb_co *co, kb_channel *channel); /* in a cleanup, use try_get */
KB_API bool kb_channel_try_put(kb_sim *sim, kb_channel *channel, uint64_t word);
KB_API bool kb_channel_try_get(kb_sim *sim, kb_channel *channel, uint64_t *word);
KB_API bool kb_channel_put_then(kb_sim *sim, kb_channel *channel, uint64_t word, kb_waiter *waiter);
KB_API bool kb_channel_get_then(kb_sim *sim, kb_channel *channel, kb_waiter *waiter);

#ifdef __cplusplus
}
#endif

#endif
