/*
 * model_report.h: the output of the benches of models: sizes, memory, times, bounds.
 */
#ifndef KB_BENCHES_MODEL_REPORT_H
#define KB_BENCHES_MODEL_REPORT_H

#include <kernbench/kernbench.h>
#include <kernbench/model.h>

#include "model_check.h"

typedef struct model_stats {
    kb_kv_cache_info cache;
    uint64_t prompt_tokens; /* of all sequences */
    kb_model_times prefill;
    kb_model_times decode; /* of all steps */
    uint64_t steps;
} model_stats;

void model_stats_add(model_stats *stats, const kb_model_times *times);

KB_MUST_USE kb_error *model_report_sizes(kb_bench *bench, const model_job *job, uint32_t ranks);
KB_MUST_USE kb_error *model_report_times(kb_bench *bench, const model_job *job, uint32_t ranks,
                                         const model_stats *stats);

#endif
