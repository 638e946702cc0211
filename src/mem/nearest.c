/* nearest.c: the choice among copies, by binary search. */
#include "nearest.h"

#include <stdbool.h>

#include "base/base.h"

static bool is_before(kb_pe a, kb_pe b)
{
    if (a.sip != b.sip)
        return a.sip < b.sip;
    return a.cube != b.cube ? a.cube < b.cube : a.pe < b.pe;
}

/* The first that is not before the PE. */
static size_t first_from(const mem_copies *copies, kb_pe pe)
{
    size_t low = 0, high = copies->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (is_before(copies->pe_of(copies->self, middle), pe))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

size_t mem_nearest_copy(const mem_copies *copies, kb_pe pe, uint32_t pes)
{
    KB_ASSERT(copies->count > 0);
    size_t own = first_from(copies, pe);
    if (own < copies->count && !is_before(pe, copies->pe_of(copies->self, own)))
        return own;
    size_t first = first_from(copies, (kb_pe){.sip = pe.sip, .cube = pe.cube});
    size_t past = first_from(copies, (kb_pe){.sip = pe.sip, .cube = pe.cube + 1});
    if (past > first)
        return first + pe.pe % (past - first);
    return ((uint64_t)pe.cube * pes + pe.pe) % copies->count;
}
