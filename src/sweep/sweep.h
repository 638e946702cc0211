/* sweep.h: sweeps over settings and parameters. Included by cli only. */
#ifndef KB_SWEEP_SWEEP_H
#define KB_SWEEP_SWEEP_H

#include "sweep/effects.h"
#include "sweep/expression.h"
#include "sweep/format.h"
#include "sweep/groups.h"
#include "sweep/pivot.h"
#include "sweep/plot.h"
#include "sweep/results.h"
#include "sweep/select.h"
#include "sweep/value.h"

#endif
