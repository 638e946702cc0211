/* engine_parallel_reference.c: packets move so that every step has an event of its own; see
 * packet_engine.inc. */
#define ENGINE engine_parallel_reference
#define ENGINE_ELIDES 0
#define ENGINE_SERIAL 0
#include "packet_engine.inc"
