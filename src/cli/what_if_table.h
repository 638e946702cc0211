/*
 * what_if_table.h: what the runs on better machines and their table share.
 */
#ifndef KB_CLI_WHAT_IF_TABLE_H
#define KB_CLI_WHAT_IF_TABLE_H

enum { FACTORS = 3, HALF = 1 /* the factor 2 */, MOST = 2 /* the factor 4 */ };

/* Members of the document. */
static const char *const factor_names[FACTORS] = {"1.25", "2", "4"};

#define WHAT_IF_MATTERS 0.001 /* of the run: an effect that is worth a run or a row of its own */

#endif
