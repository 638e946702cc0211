/*
 * format.h: how figures and axes are written: units, by the names of figures, and decimals.
 *
 *     "sim_ns": ns    "metrics.busbw_gbs": GB/s    "sip.ucie.bw_gbs": GB/s    "metrics.tflops"
 */
#ifndef KB_SWEEP_FORMAT_H
#define KB_SWEEP_FORMAT_H

#include "results.h"

/* The unit, "" if the name has none. */
const char *sweep_unit(const char *name);

/*
 * Appends a heading: the name without "metrics." and with its unit in words: "busbw GB/s", "sim
 * ns". Names of axes stay as the user wrote them.
 */
void sweep_append_title(kb_text *text, const sweep_column *column);

/*
 * How many decimals the numbers of a table column have: none if all are whole, three for ns, else
 * as many as the numbers need for about five digits. Numbers that are NaN do not count.
 */
int sweep_decimals(const sweep_column *column, const double *numbers, size_t count);

/* Appends a CSV document: a header and a line for each row; axes, status, message, bottleneck, and
 * all figures. */
void sweep_append_csv(kb_text *text, const sweep_results *results);

#endif
