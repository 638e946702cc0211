/* measure.h: measurements of a machine: probes, synthetic traffic, validation. For the folders
 * above. */
#ifndef KB_MEASURE_MEASURE_H
#define KB_MEASURE_MEASURE_H

#include "measure/probe.h"
#include "measure/traffic.h"
#include "measure/validate.h"

#endif
