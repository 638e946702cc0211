/*
 * registry.h: algorithms, topologies, mappers and validators by name: those that ship, and those of
 * plugins.
 */
#ifndef KB_CCL_REGISTRY_H
#define KB_CCL_REGISTRY_H

#include <kernbench/ccl.h>

#include "base/base.h"

typedef struct ccl_registry {
    const kb_ccl_plugin *const *plugins; /* besides ccl_shipped */
    size_t plugin_count;
} ccl_registry;

/* All that ship. */
extern const kb_ccl_plugin ccl_shipped;

/* A name that two have is an error, and so is a thing that lacks what it needs. */
KB_MUST_USE kb_error *ccl_registry_init(ccl_registry *registry, const kb_ccl_plugin *const *plugins,
                                        size_t count);

typedef enum ccl_kind {
    CCL_ALGORITHM,
    CCL_TOPOLOGY,
    CCL_MAPPER,
    CCL_VALIDATOR,
    CCL_KINDS
} ccl_kind;

/* NULL if there is none such. A shipped algorithm also answers to the dotted module name that files
 * of the Python original use: kernbench.ccl.algorithms.ring_allreduce is ring. */
const void *ccl_find(const ccl_registry *registry, ccl_kind kind, const char *name);
const kb_ccl_algorithm *ccl_find_algorithm(const ccl_registry *registry, const char *name);
const kb_ccl_topology *ccl_find_topology(const ccl_registry *registry, const char *name);
const kb_ccl_mapper *ccl_find_mapper(const ccl_registry *registry, const char *name);
const kb_ccl_validator *ccl_find_validator(const ccl_registry *registry, const char *name);

/* The mapper of entries of the algorithm, and the validator of entries with the mapper, that name
 * none. The validator is NULL where any layout will do. */
const kb_ccl_mapper *ccl_default_mapper(const ccl_registry *registry,
                                        const kb_ccl_algorithm *algorithm);
const kb_ccl_validator *ccl_default_validator(const ccl_registry *registry,
                                              const kb_ccl_mapper *mapper);

/* All of a kind, those that ship first: begin with a cursor of zeros. False behind the last. */
typedef struct ccl_cursor {
    size_t plugin, index;
} ccl_cursor;

typedef struct ccl_named {
    const char *name, *summary;
    const void *thing; /* of the kind's type */
} ccl_named;

bool ccl_registry_next(const ccl_registry *registry, ccl_kind kind, ccl_cursor *cursor,
                       ccl_named *named);

/* "module", "topology", "mapper", "validator": as the key in ccl.yaml. */
const char *ccl_kind_name(ccl_kind kind);

/* Those that ship: algorithms.c, topologies.c, mappers.c, validators.c. They end with NULL. */
extern const kb_ccl_algorithm *const ccl_algorithms[];
extern const kb_ccl_topology *const ccl_topologies[];
extern const kb_ccl_mapper *const ccl_mappers[];
extern const kb_ccl_validator *const ccl_validators[];

#endif
