/* tp.h: tensor parallelism: what folders above use of it besides the public header. */
#ifndef KB_TP_TP_H
#define KB_TP_TP_H

#include "device.h"
#include "matmul.h"
#include "plan.h"
#include "queues.h"
#include "relayout.h"
#include "view.h"

#endif
