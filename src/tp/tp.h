/* tp.h: the interface of tensor parallelism for the folders above, besides the public header. */
#ifndef KB_TP_TP_H
#define KB_TP_TP_H

#include "device.h"
#include "division.h"
#include "matmul.h"
#include "matrix_view.h"
#include "queue_cache.h"
#include "relayout.h"

#endif
