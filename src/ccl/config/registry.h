/*
 * registry.h: algorithms, topologies, mappers and validators by name: the shipped ones, and those
 * of plugins.
 */
#ifndef KB_CCL_REGISTRY_H
#define KB_CCL_REGISTRY_H

#include <kernbench/ccl.h>

#include "base/base.h"

typedef struct ccl_registry {
    const kb_ccl_plugin *const *plugins; /* in addition to ccl_shipped */
    size_t plugin_count;
} ccl_registry;

/* The shipped ones. */
extern const kb_ccl_plugin ccl_shipped;

/* Refuses duplicate names, and plugins without required functions. */
KB_MUST_USE kb_error *ccl_registry_init(ccl_registry *registry, const kb_ccl_plugin *const *plugins,
                                        size_t count);

typedef enum ccl_kind {
    CCL_ALGORITHM,
    CCL_TOPOLOGY,
    CCL_MAPPER,
    CCL_VALIDATOR,
    CCL_KINDS
} ccl_kind;

/* NULL if there is no such name. A shipped algorithm is also found by the dotted module name that
 * files of the Python original use: kernbench.ccl.algorithms.ring_allreduce is ring. */
const void *ccl_find(const ccl_registry *registry, ccl_kind kind, const char *name);
const kb_ccl_algorithm *ccl_find_algorithm(const ccl_registry *registry, const char *name);
const kb_ccl_topology *ccl_find_topology(const ccl_registry *registry, const char *name);
const kb_ccl_mapper *ccl_find_mapper(const ccl_registry *registry, const char *name);
const kb_ccl_validator *ccl_find_validator(const ccl_registry *registry, const char *name);

/* The mapper for entries of the algorithm, and the validator for entries with the mapper, that name
 * none. The validator is NULL if any layout is accepted. */
const kb_ccl_mapper *ccl_default_mapper(const ccl_registry *registry,
                                        const kb_ccl_algorithm *algorithm);
const kb_ccl_validator *ccl_default_validator(const ccl_registry *registry,
                                              const kb_ccl_mapper *mapper);

/*
 * Iterates over a kind, shipped ones first. Start with a cursor of zeros; returns false at the end.
 */
typedef struct ccl_cursor {
    size_t plugin, index;
} ccl_cursor;

typedef struct ccl_named {
    const char *name, *summary;
    const void *thing; /* of the kind's type */
} ccl_named;

bool ccl_registry_next(const ccl_registry *registry, ccl_kind kind, ccl_cursor *cursor,
                       ccl_named *named);

/* "module", "topology", "mapper" or "validator": the key in ccl.yaml. */
const char *ccl_kind_name(ccl_kind kind);

/*
 * The shipped ones, in algorithms.c, topologies.c, mappers.c and validators.c. Lists end with NULL.
 */
extern const kb_ccl_algorithm *const ccl_algorithms[];
extern const kb_ccl_topology *const ccl_topologies[];
extern const kb_ccl_mapper *const ccl_mappers[];
extern const kb_ccl_validator *const ccl_validators[];

#endif
