/* draw_svg.h: a drawing of a machine. */
#ifndef KB_OBS_DRAW_SVG_H
#define KB_OBS_DRAW_SVG_H

#include "topo/topo.h"

/* Appends a whole SVG document. */
KB_MUST_USE kb_error *draw_svg(const topo_machine *machine, kb_text *out);

#endif
