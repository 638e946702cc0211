/*
 * point_key.h: what identifies a point.
 *
 * The key is a hash of all that determines the result of its run, so the same machine written in
 * two ways has one key. It needs the machine, compiled. The request is a hash of what the plan
 * says, with the contents of the files that it names; the store remembers which request led to
 * which key.
 *
 * Left out: files that a file of a bench includes.
 */
#ifndef KB_SWEEP_POINT_KEY_H
#define KB_SWEEP_POINT_KEY_H

#include "digest.h"
#include "sweep_plan.h"

/* The hash of a file, or of a name if it is none. */
typedef struct sweep_named_hash {
    const char *name;
    sweep_hash hash;
} sweep_named_hash;

typedef struct sweep_keys {
    const sweep_plan *plan;
    sweep_digest common; /* of what all points have in common */
    KB_VEC(sweep_named_hash) benches, topologies;
} sweep_keys;

/* `ccl`: the file that configures collectives, NULL: the built-in one. The plan stays the
 * caller's. sweep_keys_fini() must be called in any case. */
KB_MUST_USE kb_error *sweep_keys_init(sweep_keys *keys, const sweep_plan *plan, const char *ccl);
void sweep_keys_fini(sweep_keys *keys);

/* To be called for each bench of the plan; `file` is NULL if it is built in. */
KB_MUST_USE kb_error *sweep_keys_add_bench(sweep_keys *keys, const char *bench, const char *file);

/* To be called for each topology: a file, or the name of a built-in machine. */
KB_MUST_USE kb_error *sweep_keys_add_topology(sweep_keys *keys, const char *topology);

sweep_hash sweep_keys_request(const sweep_keys *keys, const sweep_point *point);

/* `values`: of all parameters of the bench. NULL: it is not known which it has, and those that were
 * given count. */
sweep_hash sweep_keys_key(const sweep_keys *keys, const sweep_point *point, uint64_t machine,
                          const int64_t *values, size_t count);

#endif
