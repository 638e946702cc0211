/* sort.h: sorting 128-bit numbers that are likely to come in a few ordered runs. Private to sim. */
#ifndef KB_SIM_SORT_H
#define KB_SIM_SORT_H

#include <stdint.h>

#include "base/base.h"

/* Ascending. `scratch` is as long as `words` and gets overwritten. */
void kb_sort_u128(kb_u128 *words, kb_u128 *scratch, uint32_t count);

#endif
