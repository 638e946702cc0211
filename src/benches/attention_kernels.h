/* attention_kernels.h: the kernels of attention_ring.h. */
#ifndef KB_BENCHES_ATTENTION_KERNELS_H
#define KB_BENCHES_ATTENTION_KERNELS_H

#include <kernbench/tl.h>

/* The maximum of blocks of rows in a pass of kv. */
enum { ATTENTION_MAX_BLOCKS = 32 };

const kb_kernel *attention_mlo_kernel(void);
const kb_kernel *attention_kv_kernel(void);

#endif
