/* engine_serial_reference.c: packets move so that every step has an event of its own, and ports
 * send one packet at a time; see packet_engine.inc. */
#define ENGINE engine_serial_reference
#define ENGINE_ELIDES 0
#define ENGINE_SERIAL 1
#include "packet_engine.inc"
