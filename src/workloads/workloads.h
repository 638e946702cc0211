/* workloads.h: programs that ship with the simulator. For the folders above. */
#ifndef KB_WORKLOADS_WORKLOADS_H
#define KB_WORKLOADS_WORKLOADS_H

#include "workloads/probe.h"
#include "workloads/traffic.h"
#include "workloads/validate.h"

#endif
