/* engine_parallel.c: packets move with elision, for ports that send packets of all channels at a
 * time; see packet_engine.inc. */
#define ENGINE engine_parallel
#define ENGINE_ELIDES 1
#define ENGINE_SERIAL 0
#include "packet_engine.inc"
