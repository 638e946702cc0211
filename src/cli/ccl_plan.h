/*
 * ccl_plan.h: what the files of the ccl plan command share.
 *
 *     ccl_plan.c       options; makes the plan and gathers what is shown of it
 *     ccl_plan_text.c  for people          ccl_plan_json.c  for programs
 */
#ifndef KB_CLI_CCL_PLAN_H
#define KB_CLI_CCL_PLAN_H

#include "ccl/ccl.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "options.h"

/* A PE that takes part. */
typedef struct plan_pe {
    kb_pe pe;
    uint32_t rank, circle, place;
    size_t first_end, end_count; /* of the plan's queues */
    uint64_t ring_bytes;         /* of slots where it receives */
    uint64_t install_bytes;      /* of the command that tells it of its queues; 0: none is needed */
} plan_pe;

typedef struct plan_view {
    const cli_common *common;
    const topo_machine *machine;
    const ccl_config *config;
    const ccl_plan *plan;
    KB_VEC(plan_pe) pes; /* by (sip, cube, pe) */
    uint64_t ring_bytes; /* of one direction */
    uint64_t room;       /* of the memory that a PE's slots are in */
    uint32_t only_sip;   /* PEs of this one alone are shown, or TOPO_NONE */
    uint64_t limit;      /* rows of a table; 0: all */
} plan_view;

/* "sip0.cube5.pe3" */
typedef struct plan_name {
    char text[48];
} plan_name;
plan_name plan_pe_name(kb_pe pe);

/* "tcm", "hbm", "sram" */
const char *plan_memory_name(kb_memory memory);

KB_MUST_USE kb_code plan_print_text(const plan_view *view);
KB_MUST_USE kb_code plan_print_json(const plan_view *view);

#endif
