/* dtensor.h: distributed tensors. Other folders use the public interface alone. */
#ifndef KB_DTENSOR_DTENSOR_H
#define KB_DTENSOR_DTENSOR_H

#include <kernbench/dtensor.h>

#endif
