/*
 * validate.h: checks the model against independent results: those of a cycle-level simulator of
 * networks on chip, which are part of the program (reference/mesh-uniform.yaml), and closed forms.
 *
 *     validate_report report;
 *     KB_TRY(validate_run(&(validate_options){.quick = true}, &report));
 *     ... report.judged, report.inside ...
 *     validate_report_fini(&report);
 *
 * Seeds are fixed: the results are the same every time, on every machine.
 */
#ifndef KB_MEASURE_VALIDATE_H
#define KB_MEASURE_VALIDATE_H

#include <stdbool.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "base/base.h"

/* How far the mesh may be off: 10 % of the reference, and the reference's own uncertainty. */
#define VALIDATE_BAR 0.10

/* A load point of the mesh. Latencies are in cycles, which are ns. */
typedef struct validate_point {
    uint32_t k, flits;
    double rate;
    double reference, ci95;
    double ours, ours_p99;
    double error; /* of ours: 0.05 is 5 % too slow */
    bool saturated;
    bool judged; /* the reference is below twice the latency of an idle mesh */
    bool inside;
} validate_point;

/* Where latency is twice that of an idle mesh. */
typedef struct validate_doubling {
    uint32_t k, flits;
    double reference, ours, error;
    bool inside;
} validate_doubling;

/* A load point with transfers of 16 flits that move as larger packets. Shown, not judged. */
typedef struct validate_packet {
    uint32_t k, packet_flits;
    double rate;
    double reference, ours, error;
    double hops, events; /* a transfer: what it takes to simulate */
} validate_packet;

/* A closed form. */
typedef struct validate_form {
    const char *group;                /* what is checked */
    char name[72];                    /* the case */
    double expected, ours, tolerance; /* ns; ours is inside if it is not further off */
    bool inside;
} validate_form;

typedef struct validate_report {
    KB_VEC(validate_point) points;
    KB_VEC(validate_doubling) doublings;
    KB_VEC(validate_packet) packets;
    KB_VEC(validate_form) forms;
    uint32_t judged, inside;
    double worst; /* the largest error of a judged load point, either way */
    uint64_t hops;
} validate_report;

typedef struct validate_options {
    bool quick;         /* fewer points and shorter windows */
    uint32_t transfers; /* minimum to measure for each load point; 0: as many as needed */
    void (*progress)(void *self, uint64_t done, uint64_t total); /* may be NULL */
    void *self;
} validate_options;

KB_MUST_USE kb_error *validate_run(const validate_options *options, validate_report *report);
void validate_report_fini(validate_report *report);

#endif
