/*
 * pattern.h: to which PE each PE sends. Private to traffic.
 *
 * PEs are numbered through the machine, cube by cube and SIP by SIP, so the PEs of a level are a
 * row of numbers.
 */
#ifndef KB_MEASURE_PATTERN_H
#define KB_MEASURE_PATTERN_H

#include <stdint.h>

#include "traffic.h"

typedef struct pattern {
    uint32_t count;    /* of PEs */
    uint32_t group;    /* PEs of a level */
    uint32_t *nodes;   /* by PE */
    uint32_t *targets; /* PE by PE; NULL for uniform */
} pattern;

/* What is left after an error is good for pattern_fini(). */
KB_MUST_USE kb_error *pattern_init(pattern *p, const topo_machine *machine,
                                   const traffic_options *options);
void pattern_fini(pattern *p);

static inline uint32_t pattern_draw(const pattern *p, uint32_t pe, kb_rng *rng)
{
    if (p->targets)
        return p->targets[pe];
    return pe / p->group * p->group + (uint32_t)kb_rng_below(rng, p->group);
}

#endif
