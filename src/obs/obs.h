/* obs.h: traces, activity over time, drawings, and numbers as text. Included by cli only. */
#ifndef KB_OBS_OBS_H
#define KB_OBS_OBS_H

#include "obs/activity.h"
#include "obs/draw_svg.h"
#include "obs/link_classes.h"
#include "obs/number.h"
#include "obs/trace.h"

#endif
