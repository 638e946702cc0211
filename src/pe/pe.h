/*
 * pe.h: what is in a PE: its DMA for requests of the host, its units, its scheduler.
 */
#ifndef KB_PE_PE_H
#define KB_PE_PE_H

#include "composite.h"
#include "dma.h"
#include "region.h"
#include "units.h"

#endif
