/* svg.h: texts in drawings: escaped, and the room that they take. */
#ifndef KB_BASE_SVG_H
#define KB_BASE_SVG_H

#include "base/text.h"

/* Appends a text for XML, which has no control characters. */
void kb_svg_append_text(kb_text *out, const char *text);

/* Maximum width of a text in common sans-serif fonts of that size; bold ones are a tenth wider. */
double kb_svg_text_width(const char *text, double size);

#endif
