/*
 * pe.h: what is in a PE. So far its DMA.
 */
#ifndef KB_PE_PE_H
#define KB_PE_PE_H

#include "dma.h"

#endif
