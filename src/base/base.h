/*
 * base.h: what every other folder may use of base. Include this one, not the parts.
 *
 * Nothing in base keeps global state, exits, or writes anywhere unasked.
 */
#ifndef KB_BASE_BASE_H
#define KB_BASE_BASE_H

#include "base/alloc.h"
#include "base/arena.h"
#include "base/check.h"
#include "base/config.h"
#include "base/decimal.h"
#include "base/error.h"
#include "base/list.h"
#include "base/minmax.h"
#include "base/pool.h"
#include "base/rng.h"
#include "base/sanitize.h"
#include "base/slab.h"
#include "base/suggest.h"
#include "base/svg.h"
#include "base/text.h"
#include "base/utf8.h"
#include "base/vec.h"

#endif
