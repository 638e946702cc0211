/* point_record.h: what came of a point's child, as a run in the store. */
#ifndef KB_SWEEP_POINT_RECORD_H
#define KB_SWEEP_POINT_RECORD_H

#include "child/child.h"
#include "store/store.h"

#include "known.h"
#include "sweep_plan.h"

typedef struct sweep_recorder {
    store *store; /* NULL: nothing is kept */
    sweep_known *known;
    void (*describe)(void *self, const sweep_point *point, store_run *run, kb_text *texts);
    void *self;
} sweep_recorder;

/* *run: how it ended, or the run that the store had already. */
KB_MUST_USE kb_error *sweep_record(const sweep_recorder *recorder, const sweep_point *point,
                                   const char *request, const child_result *result,
                                   sweep_known_run *run);

#endif
