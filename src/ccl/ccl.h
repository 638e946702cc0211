/*
 * ccl.h: collectives, as other folders see them. The sources are in subfolders; includes point from
 * a subfolder to those above it in this list, and other folders include this header alone:
 *
 *     config        ccl.yaml, and the registry of algorithms, topologies, mappers and validators
 *     graph         participants and connections: rings, trees, topologies, mappers, queue plans;
 *                   the lower bound of the time
 *     algorithms    the kernels of collectives, and mock runs of kernels
 *     communicator  process group and subgroups, calls and their matching, staging, selection
 *
 * algorithms and communicator do not include each other: a call finds its algorithm in the
 * registry.
 */
#ifndef KB_CCL_CCL_H
#define KB_CCL_CCL_H

#include <kernbench/ccl.h>

#include "ccl/communicator/ranks.h"
#include "ccl/communicator/tune.h"
#include "ccl/config/ccl_yaml.h"
#include "ccl/config/registry.h"
#include "ccl/graph/lower_bound.h"
#include "ccl/graph/plan.h"

#endif
