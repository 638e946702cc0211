/* dtensor.h: distributed tensors. Their interface is public; nothing in src looks inside. */
#ifndef KB_DTENSOR_DTENSOR_H
#define KB_DTENSOR_DTENSOR_H

#include <kernbench/dtensor.h>

#endif
