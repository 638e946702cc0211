/*
 * validate_private.h: what the files of validate share. Private to them.
 */
#ifndef KB_MEASURE_VALIDATE_PRIVATE_H
#define KB_MEASURE_VALIDATE_PRIVATE_H

#include "traffic.h"
#include "validate.h"

typedef struct validation {
    const validate_options *options;
    validate_report *report;
    uint64_t done, total; /* steps, for progress */
} validation;

/* A step is done. */
void validate_step(validation *v);

/* The mesh of the reference values, with packets of `packet_flits`. */
KB_MUST_USE kb_error *validate_mesh(uint32_t k, uint32_t packet_flits, topo_machine **machine);

enum { VALIDATE_FLIT_BYTES = 8 };

/* What an idle mesh takes on average over all pairs: 4 cycles a router, 1 a flit, and 1. */
double validate_idle(uint32_t k, uint32_t flits);

/* validate_forms.c */
KB_MUST_USE kb_error *validate_forms(validation *v);
uint64_t validate_forms_steps(void);

/* ---- Reference values -------------------------------------------------------------------- */

typedef struct reference_point {
    uint64_t rate_ppb;
    double latency, ci95;
} reference_point;

typedef struct reference_curve {
    uint32_t k, flits;
    uint64_t doubling_ppb;
    size_t first, count; /* of its points */
} reference_curve;

typedef struct reference_mesh {
    KB_VEC(reference_curve) curves;
    KB_VEC(reference_point) points;
} reference_mesh;

/* What is left after an error is good for reference_fini(). */
KB_MUST_USE kb_error *reference_load(reference_mesh *mesh);
void reference_fini(reference_mesh *mesh);

/* The text of reference/mesh-uniform.yaml. */
extern const char reference_mesh_text[];
extern const size_t reference_mesh_length;

#endif
