/* sweep.h: sweeps over settings and parameters. Included by cli only. */
#ifndef KB_SWEEP_SWEEP_H
#define KB_SWEEP_SWEEP_H

#include "sweep/digest.h"
#include "sweep/drive.h"
#include "sweep/effects.h"
#include "sweep/expression.h"
#include "sweep/format.h"
#include "sweep/frames.h"
#include "sweep/groups.h"
#include "sweep/known.h"
#include "sweep/pivot.h"
#include "sweep/plot.h"
#include "sweep/point_key.h"
#include "sweep/point_record.h"
#include "sweep/ranges.h"
#include "sweep/remote.h"
#include "sweep/results.h"
#include "sweep/runner.h"
#include "sweep/select.h"
#include "sweep/sweep_plan.h"
#include "sweep/value.h"

#endif
