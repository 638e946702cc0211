/* ccl_plan_report.h: prints the plan of a collective. */
#ifndef KB_CLI_CCL_PLAN_REPORT_H
#define KB_CLI_CCL_PLAN_REPORT_H

#include "ccl/ccl.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "options.h"

/* A participating PE. */
typedef struct plan_pe {
    kb_pe pe;
    uint32_t rank, group, index;
    size_t first_end, end_count; /* its ends of queues, in the plan */
    uint64_t slots_bytes;        /* all slots that it receives into */
    uint64_t install_bytes;      /* size of the command that installs its queues; 0: no command */
} plan_pe;

typedef struct plan_view {
    const cli_common *common;
    const topo_machine *machine;
    const ccl_config *config;
    const ccl_plan *plan;
    KB_VEC(plan_pe) pes;   /* by (sip, cube, pe) */
    uint64_t slots_bytes;  /* all slots of one direction */
    uint64_t memory_bytes; /* of the memory that the slots are in */
    uint32_t only_sip;     /* the text has only PEs of this SIP, or TOPO_NONE */
    uint64_t limit;        /* maximum rows of a table of the text; 0: no limit */
} plan_view;

/* Prints the plan as text or as JSON. */
KB_MUST_USE kb_code plan_print(const plan_view *view);

#endif
