/* engine_parallel.c: packets move with elision, for ports that send packets of all channels at a
 * time; see engine.h. */
#define ENGINE engine_parallel
#define ENGINE_ELIDES 1
#define ENGINE_SERIAL 0
#include "engine.h"
