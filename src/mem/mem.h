/*
 * mem.h: memory as programs see it: addresses, who has which part of a memory, what is in it, how
 * tensors are laid out, and what numbers are made of. No simulated time passes here.
 */
#ifndef KB_MEM_MEM_H
#define KB_MEM_MEM_H

#include "address.h"
#include "allocator.h"
#include "box.h"
#include "contents.h"
#include "dtype.h"
#include "grid.h"
#include "memories.h"
#include "mmu.h"
#include "nearest.h"
#include "placement.h"
#include "rect.h"

#endif
