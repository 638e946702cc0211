/* ccl.h: collectives: what the layers above and the command line see of them. */
#ifndef KB_CCL_CCL_H
#define KB_CCL_CCL_H

#include <kernbench/ccl.h>

#include "bound.h"
#include "config.h"
#include "plan.h"
#include "ranks.h"
#include "registry.h"
#include "tune.h"

#endif
