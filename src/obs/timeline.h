/*
 * timeline.h: slices of lanes over a run, in bounded memory. Private to obs.
 *
 * While there are few, each is kept as it is. When there are too many, neighbours on a lane that
 * together take less than a resolution become one slice, which knows how many operations it stands
 * for and how long they took; the resolution doubles until there are few again. So detail is lost
 * where a page could not show it, and first where slices are short.
 */
#ifndef KB_OBS_TIMELINE_H
#define KB_OBS_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "base/base.h"

typedef struct timeline_slice {
    kb_time start, end;
    kb_time busy;          /* of its operations; less than the span if there are gaps */
    kb_time longest;       /* of its operations: the one that it is named after */
    uint32_t title, place; /* numbers of texts */
    uint32_t count;        /* operations */
    uint32_t group;        /* of the longest; the caller's meaning */
} timeline_slice;

typedef struct timeline_lane {
    KB_VEC(timeline_slice) slices; /* in the order of their ends */
} timeline_lane;

typedef struct timeline {
    timeline_lane *lanes;
    size_t lane_count;
    size_t count, max; /* of all slices */
    kb_time resolution;
} timeline;

KB_MUST_USE kb_error *timeline_init(timeline *t, size_t lanes);
void timeline_fini(timeline *t);

/* Adds a slice of one operation; slices of a lane come in the order of their ends. False if out of
 * memory. */
KB_MUST_USE bool timeline_add(timeline *t, size_t lane, const timeline_slice *slice);

#endif
