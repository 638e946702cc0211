/*
 * ccl_yaml.h: ccl.yaml: the collectives with their parameters. Entries take what they do not
 * specify from `defaults`. All problems of a file are reported, each with its place.
 */
#ifndef KB_CCL_CONFIG_H
#define KB_CCL_CONFIG_H

#include <kernbench/ccl.h>

#include "base/base.h"
#include "registry.h"

enum { CCL_NO_ROOT = UINT32_MAX };
enum { CCL_MAX_SLOTS = 65536, CCL_MIN_SLOT_BYTES = 16, CCL_MAX_SLOT_BYTES = 64 << 20 };

typedef struct ccl_setting {
    const char *key;
    int64_t value;
} ccl_setting;

typedef struct ccl_entry {
    const char *name;
    const kb_ccl_algorithm *algorithm;
    const kb_ccl_topology *topology; /* NULL: none, the algorithm's own */
    const kb_ccl_mapper *mapper;
    const kb_ccl_validator *validator; /* NULL: none */
    kb_memory buffer;
    bool polls;
    uint32_t n_slots;
    uint32_t slots_times; /* n_slots has been multiplied by it, and so are those of a program */
    uint64_t slot_bytes;
    bool fit_slots; /* reduces the slot size if the queues would not fit otherwise */
    uint32_t vc_chunk_bytes;
    uint32_t credit_bytes;
    uint32_t world_size;     /* 0: the number of SIPs */
    uint32_t auto_max_ranks; /* auto ignores the entry if there are more ranks; 0: no limit */
    bool rank_is_pe;
    bool reduce_shards;
    kb_reduce_op reduce_op;       /* of ccl_allreduce */
    KB_VEC(ccl_setting) settings; /* given ones of n_elem, chunk_size, root_cube, w, h, kernel_* */
} ccl_entry;

/* A line of a table of measurements: up to this size the entry is the fastest. */
typedef struct ccl_tuned {
    kb_collective_kind kind;
    uint32_t world;
    uint64_t machine; /* topo_machine_hash() */
    uint64_t up_to_bytes;
    size_t entry;
} ccl_tuned;

typedef struct ccl_config {
    const char *path;          /* for messages */
    KB_VEC(ccl_entry) entries; /* in the order of the file */
    size_t chosen;             /* defaults.algorithm; CCL_AUTO if that is auto */
    ccl_entry automatic;       /* for auto: ranks and operation of `defaults`, without an
                                  algorithm */
    KB_VEC(ccl_tuned) tuned;   /* written by `kernbench ccl tune` */
    kb_arena names;
} ccl_config;

#define CCL_AUTO SIZE_MAX

/* That many slots times slots_times, up to what a queue can have. */
static inline uint32_t ccl_slots(uint32_t n_slots, uint32_t times)
{
    uint64_t slots = (uint64_t)n_slots * times;
    return slots < CCL_MAX_SLOTS ? (uint32_t)slots : CCL_MAX_SLOTS;
}

/* path NULL: the built-in file. Settings are strings such as "defaults.n_slots=8". */
KB_MUST_USE kb_error *ccl_config_load(const char *path, const char *const *settings,
                                      size_t setting_count, const ccl_registry *registry,
                                      ccl_config *config);
void ccl_config_fini(ccl_config *config);

/* NULL if there is no such entry. */
const ccl_entry *ccl_config_find(const ccl_config *config, const char *name);

/* The text of the built-in file, with its comments. */
extern const char ccl_builtin_text[];
extern const size_t ccl_builtin_length;

#endif
