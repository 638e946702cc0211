/* engine_parallel_reference.c: packets move so that every step has an event of its own; see
 * engine.h. */
#define ENGINE engine_parallel_reference
#define ENGINE_ELIDES 0
#define ENGINE_SERIAL 0
#include "engine.h"
