/*
 * context.h: contexts, the machine that a context simulates, and the current device of a caller.
 */
#ifndef KERNBENCH_CONTEXT_H
#define KERNBENCH_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Contexts ---------------------------------------------------------------------------- */

/* A machine, the simulation of it, and everything that a program has there. */
typedef struct kb_context kb_context;

typedef struct kb_sim kb_sim; /* the simulator of a context: see sim.h */

/* Gets a warning: one line, valid during the call. */
typedef void kb_warning_fn(void *self, const char *line);

typedef struct kb_op kb_op; /* an operation: see profile.h */

/* Gets an operation that has ended; valid during the call, which must not use the context. */
typedef void kb_op_fn(void *self, const kb_op *op);

typedef struct kb_pe kb_pe; /* a PE of the machine: see memory.h */

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
                                    stderr if KERNBENCH_CCL_TRACE=1, else they are dropped */
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

#ifdef __cplusplus
}
#endif

#endif
