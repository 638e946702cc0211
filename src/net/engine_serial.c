/* engine_serial.c: packets move with elision, for ports that send one packet at a time; see
 * packet_engine.inc. */
#define ENGINE engine_serial
#define ENGINE_ELIDES 1
#define ENGINE_SERIAL 1
#include "packet_engine.inc"
