/* attention_kernels.h: the kernels of attention_ring.h, and the layout of their tensors. */
#ifndef KB_BENCHES_ATTENTION_KERNELS_H
#define KB_BENCHES_ATTENTION_KERNELS_H

#include <kernbench/tl.h>

const kb_kernel *attention_mlo_kernel(void);
const kb_kernel *attention_kv_kernel(void);

#endif
