/* obs.h: what was observed in a run, for people and tools to look at. For cli alone. */
#ifndef KB_OBS_OBS_H
#define KB_OBS_OBS_H

#include "obs/draw_svg.h"
#include "obs/link_classes.h"
#include "obs/number.h"
#include "obs/trace.h"

#endif
