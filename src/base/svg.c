/* svg.c: see svg.h. */
#include "base/svg.h"

#include <stdbool.h>
#include <string.h>

void kb_svg_append_text(kb_text *out, const char *text)
{
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '&':
            kb_text_puts(out, "&amp;");
            break;
        case '<':
            kb_text_puts(out, "&lt;");
            break;
        case '>':
            kb_text_puts(out, "&gt;");
            break;
        case '"':
            kb_text_puts(out, "&quot;");
            break;
        default:
            kb_text_append(out, (unsigned char)*text < ' ' ? "?" : text, 1);
        }
    }
}

/* Width relative to the size, of DejaVu Sans, the widest of the usual fonts, rounded up. Characters
 * that are not ASCII count as wide as high. */
static double letter_width(unsigned char letter)
{
    if (letter >= 0x80)
        return letter >= 0xC0 ? 1 : 0; /* the first byte of several */
    if (strchr("ijlfrtI.,:;'|!()[]/\\- ", letter))
        return 0.42;
    if (strchr("mwMW%@", letter))
        return 1;
    bool small = (letter >= 'a' && letter <= 'z') || (letter >= '0' && letter <= '9');
    return small || letter == '_' ? 0.64 : 0.85;
}

double kb_svg_text_width(const char *text, double size)
{
    double width = 0;
    for (; *text != '\0'; text++)
        width += letter_width((unsigned char)*text);
    return width * size;
}
