/* sort.h: sorting 64-bit numbers that are likely to come in a few ordered runs. Private to sim. */
#ifndef KB_SIM_SORT_H
#define KB_SIM_SORT_H

#include <stdint.h>

/* Ascending. `scratch` is as long as `words` and gets overwritten. */
void kb_sort_u64(uint64_t *words, uint64_t *scratch, uint32_t count);

/*
 * The rank of each of a few numbers: how many are smaller. No branch depends on the numbers. There
 * must be room for KB_RANK_ROOM(count) of both; what is behind the last number is overwritten.
 */
#define KB_RANK_ROOM(count) (((count) + 15) / 16 * 16)
void kb_rank_i32(int32_t *numbers, uint32_t count, uint32_t *ranks);

#endif
