/* timeline.c: slices of lanes over a run: see timeline.h. */
#include "timeline.h"

#include <stdlib.h>

enum { MAX_SLICES = 80000, PER_LANE = 4 }; /* before neighbours are merged */

kb_error *timeline_init(timeline *t, size_t lanes)
{
    size_t of_lanes = lanes * PER_LANE;
    *t = (timeline){.lane_count = lanes, .max = of_lanes > MAX_SLICES ? of_lanes : MAX_SLICES};
    t->lanes = kb_alloc_zeroed(lanes, sizeof *t->lanes);
    return t->lanes ? NULL : kb_error_nomem();
}

void timeline_fini(timeline *t)
{
    for (size_t i = 0; t->lanes && i < t->lane_count; i++)
        kb_vec_fini(&t->lanes[i].slices);
    free(t->lanes);
    *t = (timeline){0};
}

static void absorb(timeline_slice *into, const timeline_slice *next)
{
    into->end = next->end > into->end ? next->end : into->end;
    into->start = next->start < into->start ? next->start : into->start;
    into->busy += next->busy;
    into->count += next->count;
    if (next->longest <= into->longest)
        return;
    into->longest = next->longest;
    into->title = next->title;
    into->place = next->place;
    into->group = next->group;
}

/* Merges neighbours; returns how many slices are left. */
static size_t merge_lane(timeline_lane *lane, kb_time resolution)
{
    timeline_slice *slices = lane->slices.items;
    size_t kept = 0;
    for (size_t i = 0; i < lane->slices.count; i++) {
        if (kept > 0 && slices[i].end - slices[kept - 1].start <= resolution)
            absorb(&slices[kept - 1], &slices[i]);
        else
            slices[kept++] = slices[i];
    }
    lane->slices.count = kept;
    return kept;
}

/*
 * Leaves at most half of the maximum, so a pass over all is rare. At a resolution of the whole run
 * a lane has one slice or two.
 */
static void merge(timeline *t, kb_time now)
{
    if (t->resolution == 0)
        t->resolution = now / MAX_SLICES + 1;
    for (;; t->resolution *= 2) {
        t->count = 0;
        for (size_t i = 0; i < t->lane_count; i++)
            t->count += merge_lane(&t->lanes[i], t->resolution);
        if (t->count <= t->max / 2 || t->resolution > now)
            return;
    }
}

bool timeline_add(timeline *t, size_t lane, const timeline_slice *slice)
{
    KB_ASSERT(lane < t->lane_count);
    if (t->count >= t->max)
        merge(t, slice->end);
    if (!kb_vec_push(&t->lanes[lane].slices, *slice))
        return false;
    t->count++;
    return true;
}
