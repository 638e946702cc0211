/* stand_ins.h: the values that a timing-only run replaced by stand-ins, in its summary. */
#ifndef KB_CLI_STAND_INS_H
#define KB_CLI_STAND_INS_H

#include "tl/tl.h"

#include <stdio.h>

#include "json.h"

/* Prints a line if there were any. */
void stand_ins_print(const tl_stand_ins *used, FILE *to);

/* {"count": 3, "first": "mine.c:12"}; first is null if there were none. */
json_t *stand_ins_json(const tl_stand_ins *used);

#endif
