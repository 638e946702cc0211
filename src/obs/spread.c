/* spread.c: amounts over time in equal bins: see spread.h. */
#include "spread.h"

#include <stdlib.h>

enum {
    MANY_BINS = 256,
    FEW_BINS = 128, /* if there are many rows */
    MANY_ROWS = 1 << 14,
};

kb_error *obs_spread_init(obs_spread *spread, size_t rows, kb_time first_width)
{
    *spread = (obs_spread){
        .width = first_width, .bins = rows > MANY_ROWS ? FEW_BINS : MANY_BINS, .rows = rows};
    spread->amounts = kb_alloc_zeroed(rows, sizeof *spread->amounts);
    return spread->amounts ? NULL : kb_error_nomem();
}

void obs_spread_fini(obs_spread *spread)
{
    for (size_t i = 0; spread->amounts && i < spread->rows; i++)
        free(spread->amounts[i]);
    free(spread->amounts);
    *spread = (obs_spread){0};
}

void obs_spread_merge(obs_spread *spread)
{
    spread->width *= 2;
    for (size_t row = 0; row < spread->rows; row++) {
        uint64_t *amounts = spread->amounts[row];
        for (size_t bin = 0; amounts && bin < spread->bins; bin++)
            amounts[bin] = 2 * bin + 1 < spread->bins ? amounts[2 * bin] + amounts[2 * bin + 1] : 0;
    }
}

/* floor(amount * part / whole), part <= whole. */
static uint64_t share(uint64_t amount, kb_time part, kb_time whole)
{
    return (uint64_t)((kb_u128)amount * (kb_u128)part / (kb_u128)whole);
}

static size_t bin_of(const obs_spread *spread, kb_time time)
{
    return (size_t)(time / spread->width);
}

bool obs_spread_add(obs_spread *spread, size_t row, kb_time start, kb_time end, uint64_t amount)
{
    KB_ASSERT(row < spread->rows && start >= 0 && end >= start);
    if (amount == 0)
        return true;
    if (!spread->amounts[row])
        spread->amounts[row] = kb_alloc_zeroed(spread->bins, sizeof(uint64_t));
    if (!spread->amounts[row])
        return false;
    kb_time last = end > start ? end - 1 : end;
    while (bin_of(spread, last) >= spread->bins)
        obs_spread_merge(spread);
    uint64_t done = 0;
    for (size_t bin = bin_of(spread, start); bin <= bin_of(spread, last); bin++) {
        kb_time until = (kb_time)(bin + 1) * spread->width;
        uint64_t total = until < end ? share(amount, until - start, end - start) : amount;
        spread->amounts[row][bin] += total - done;
        done = total;
    }
    return true;
}

size_t obs_spread_used(const obs_spread *spread, kb_time end)
{
    size_t used = end > 0 ? bin_of(spread, end - 1) + 1 : 0;
    return used < spread->bins ? used : spread->bins;
}
