/*
 * rate.h: bandwidths, and the time that bytes take at one.
 *
 * A bandwidth is a whole number of bytes a second, so a decimal number of GB/s with up to nine
 * digits after the point is exact. x bytes take T(x) = ceil(x * 10^15 / bandwidth) femtoseconds,
 * and bytes [o, o + p) of a transfer take T(o + p) - T(o): the parts of a transfer add up to the
 * whole, however it is cut.
 */
#ifndef KB_TOPO_RATE_H
#define KB_TOPO_RATE_H

#include <stdbool.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "base/base.h"

/* 10^15 bytes a second: a byte a femtosecond. */
#define TOPO_RATE_MAX ((uint64_t)1000 * 1000 * 1000 * 1000 * 1000)

/* T(x), or KB_FOREVER if that is more. The rate is in 1 .. TOPO_RATE_MAX. */
kb_time topo_rate_time(uint64_t bytes_per_s, uint64_t bytes);

/*
 * The share of `time` that a link of this rate is busy with `bytes`: the utilization of every
 * report. At most 1: a packet counts when it starts, so the last one may end after the time.
 */
double topo_utilization(uint64_t bytes_per_s, uint64_t bytes, kb_time time);

/*
 * A rate made ready for transfers that are cut into packets of one size. Offsets are whole numbers
 * of packets.
 */
typedef struct topo_pace {
    uint64_t bytes_per_s;
    uint64_t packet_bytes;
    uint64_t quotient;  /* whole femtoseconds of a packet, KB_FOREVER at most */
    uint64_t remainder; /* and what is left, in parts of bytes_per_s */
} topo_pace;

topo_pace topo_pace_make(uint64_t bytes_per_s, uint64_t packet_bytes);

/* The time of packet `index` of a transfer, which has `bytes` bytes (the last one may have fewer);
 * KB_FOREVER if it ends later than that. */
kb_time topo_pace_time(const topo_pace *pace, uint64_t index, uint64_t bytes);

/* Whether packets of `bytes` take `quotient` each, at every position in their transfer. */
static inline bool topo_pace_is_even(const topo_pace *pace, uint64_t bytes)
{
    return pace->remainder == 0 && bytes == pace->packet_bytes;
}

#endif
