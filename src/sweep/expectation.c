/* expectation.c: see expectation.h. */
#include "expectation.h"

#include <math.h>
#include <stdlib.h>

static const double min_seconds = 1e-6;

kb_error *sweep_expectation_init(sweep_expectation *e, const sweep_plan *plan)
{
    *e = (sweep_expectation){
        .sums = kb_alloc_zeroed(plan->value_count + 1, sizeof *e->sums),
        .counts = kb_alloc_zeroed(plan->value_count + 1, sizeof *e->counts),
    };
    return e->sums && e->counts ? NULL : kb_error_nomem();
}

void sweep_expectation_fini(sweep_expectation *e)
{
    free(e->sums);
    free(e->counts);
}

void sweep_expectation_add(sweep_expectation *e, const sweep_point *point, double seconds)
{
    double logarithm = log(seconds > min_seconds ? seconds : min_seconds);
    e->sum += logarithm;
    e->seconds += seconds;
    e->count++;
    for (size_t i = 0; i < point->values.count; i++) {
        e->sums[point->values.items[i]] += logarithm;
        e->counts[point->values.items[i]]++;
    }
}

double sweep_expectation_of(const sweep_expectation *e, const sweep_point *point)
{
    if (e->count == 0)
        return 0;
    double mean = e->sum / (double)e->count, logarithm = mean;
    for (size_t i = 0; i < point->values.count; i++) {
        uint32_t value = point->values.items[i];
        double count = e->counts[value];
        logarithm += (e->sums[value] - count * mean) / (count + 1);
    }
    return exp(logarithm);
}
