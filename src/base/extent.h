/*
 * extent.h: blocks for pools, side by side in extents of the size of a huge page.
 *
 * A model that is larger than the caches looks at its objects in no order that a processor could
 * foresee, and then finding the page of each costs more than fetching it, unless pages are huge. A
 * huge page is worth its memory once it is full. So a block comes from one of two kinds of extents:
 * for a pool that is small, those with ordinary pages, which take memory as they are touched; for a
 * pool that has outgrown its first block, those with huge ones.
 *
 * Extents belong to the process; all functions can be called by any thread. Not for a child that is
 * forked while other threads call them.
 */
#ifndef KB_BASE_EXTENT_H
#define KB_BASE_EXTENT_H

#include <stdbool.h>
#include <stddef.h>

#include <kernbench/kernbench.h>

/* Uninitialised bytes, aligned to cache lines. NULL if there is no memory. */
KB_MUST_USE void *kb_extent_alloc(size_t bytes, bool huge);

/* What is left of its extent is given back to the system with its last block. */
void kb_extent_free(void *block);

/* The extent of this block is in use throughout: from now on in a huge page, if there are any. */
void kb_extent_make_huge(void *block);

#endif
