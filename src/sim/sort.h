/* sort.h: sorting 64-bit numbers that are likely to come in a few ordered runs. Private to sim. */
#ifndef KB_SIM_SORT_H
#define KB_SIM_SORT_H

#include <stdint.h>

/* Ascending. `scratch` is as long as `words` and gets overwritten. */
void kb_sort_u64(uint64_t *words, uint64_t *scratch, uint32_t count);

#endif
