/* recorder_private.h: the state of a recorder. Private to explain. */
#ifndef KB_EXPLAIN_RECORDER_PRIVATE_H
#define KB_EXPLAIN_RECORDER_PRIVATE_H

#include "explain.h"

enum { BLOCK = 1 << 16, KNOWN_BITS = 12 };

/* Texts by address, and the index of their site and 1; 0: empty. */
typedef struct known_site {
    const char *name, *label;
    uint32_t index;
} known_site;

struct explain_recorder {
    const topo_machine *machine;
    KB_VEC(explain_record *) blocks; /* by number / BLOCK; NULL: no memory was left for it */
    size_t used_blocks, max_blocks;
    explain_record *late; /* a hash table by number */
    uint32_t *late_ids;
    size_t late_count, late_capacity;
    KB_VEC(explain_site) sites;
    known_site known[1 << KNOWN_BITS];
    KB_VEC(uint32_t) launches; /* by number: the site of its kernels; UINT32_MAX: not known */
    uint32_t last_control;     /* the control message that ended last */
    kb_time last_control_end;
    uint32_t last; /* the record that ended last */
    kb_time last_end;
    explain_recorded recorded;
    bool out_of_memory; /* the path cannot be found */
};

#endif
