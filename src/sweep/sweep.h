/* sweep.h: sweeps over settings and parameters. Included by cli only. */
#ifndef KB_SWEEP_SWEEP_H
#define KB_SWEEP_SWEEP_H

#include "sweep/expression.h"
#include "sweep/results.h"
#include "sweep/value.h"

#endif
