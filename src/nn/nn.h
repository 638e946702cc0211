/* nn.h: layers of transformers: what folders above use of it besides the public headers. */
#ifndef KB_NN_NN_H
#define KB_NN_NN_H

#include "rope.h"

#endif
