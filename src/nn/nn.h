/* nn.h: the interface of nn for the folders above, besides the public headers. */
#ifndef KB_NN_NN_H
#define KB_NN_NN_H

#include "rope.h"

#endif
