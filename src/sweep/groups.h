/*
 * groups.h: points that have the values of some axes in common.
 *
 * Groups are in the order of the values of those axes, as the plan has them. The rows of a group
 * are in the order of one more axis (numbers ascending, else as in the plan), then of the plan.
 */
#ifndef KB_SWEEP_GROUPS_H
#define KB_SWEEP_GROUPS_H

#include "results.h"

typedef struct sweep_row_groups {
    size_t *rows;   /* all rows, group after group */
    size_t *starts; /* of the groups in rows, and the end: count + 1 numbers */
    size_t count;
} sweep_row_groups;

/*
 * Groups the rows by the axes for which in_common is true, one for each axis of the results; by
 * `along` within a group (NULL: by the plan alone). With ok_only the others are left out.
 */
KB_MUST_USE kb_error *sweep_group(const sweep_results *results, const bool *in_common,
                                  const sweep_column *along, bool ok_only, sweep_row_groups *out);

/* Groups of the rows that are ok and differ in this axis alone, in its order. */
KB_MUST_USE kb_error *sweep_group_along(const sweep_results *results, const sweep_column *axis,
                                        sweep_row_groups *out);

void sweep_row_groups_fini(sweep_row_groups *groups);

static inline size_t sweep_group_size(const sweep_row_groups *groups, size_t group)
{
    return groups->starts[group + 1] - groups->starts[group];
}

/* The rows of a group. */
static inline const size_t *sweep_group_rows(const sweep_row_groups *groups, size_t group)
{
    return groups->rows + groups->starts[group];
}

/*
 * The ranks of the values of an axis: by number if all are numbers, else as in the plan. The caller
 * frees the array; NULL if there is no memory.
 */
KB_MUST_USE uint32_t *sweep_rank_values(const sweep_column *axis);

#endif
