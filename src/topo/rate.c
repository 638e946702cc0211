/*
 * rate.c: the time that bytes take, in whole femtoseconds. Exact: nothing is rounded but the end of
 * a transfer, up.
 */
#include "rate.h"

__extension__ typedef unsigned __int128 wide;

static const uint64_t fs_per_s = 1000000000000000;

kb_time topo_rate_time(uint64_t bytes_per_s, uint64_t bytes)
{
    KB_DEBUG_ASSERT(bytes_per_s >= 1 && bytes_per_s <= TOPO_RATE_MAX);
    if (KB_LIKELY(bytes <= (uint64_t)KB_FOREVER / 2 / fs_per_s)) /* some KB: 64 bits will do */
        return (kb_time)((bytes * fs_per_s + (bytes_per_s - 1)) / bytes_per_s);
    wide time = ((wide)bytes * fs_per_s + (bytes_per_s - 1)) / bytes_per_s;
    return time > (wide)KB_FOREVER ? KB_FOREVER : (kb_time)time;
}

double topo_utilization(uint64_t bytes_per_s, uint64_t bytes, kb_time time)
{
    kb_time busy = topo_rate_time(bytes_per_s, bytes);
    if (time <= 0)
        return 0;
    return busy < time ? (double)busy / (double)time : 1;
}

topo_pace topo_pace_make(uint64_t bytes_per_s, uint64_t packet_bytes)
{
    KB_ASSERT(bytes_per_s >= 1 && bytes_per_s <= TOPO_RATE_MAX && packet_bytes >= 1);
    wide scaled = (wide)packet_bytes * fs_per_s;
    bool endless = scaled / bytes_per_s >= (wide)KB_FOREVER;
    return (topo_pace){
        .bytes_per_s = bytes_per_s,
        .packet_bytes = packet_bytes,
        .quotient = endless ? (uint64_t)KB_FOREVER : (uint64_t)(scaled / bytes_per_s),
        .remainder = endless ? 0 : (uint64_t)(scaled % bytes_per_s),
    };
}

/* ceil(index * remainder / bytes_per_s): what the leftovers of that many packets come to. */
static uint64_t leftovers(const topo_pace *pace, uint64_t index)
{
    uint64_t product;
    if (KB_LIKELY(!__builtin_mul_overflow(index, pace->remainder, &product)))
        return product / pace->bytes_per_s + (product % pace->bytes_per_s != 0);
    wide scaled = (wide)index * pace->remainder;
    return (uint64_t)(scaled / pace->bytes_per_s) + (scaled % pace->bytes_per_s != 0);
}

kb_time topo_pace_time(const topo_pace *pace, uint64_t index, uint64_t bytes)
{
    if (bytes == pace->packet_bytes)
        return (kb_time)(pace->quotient + leftovers(pace, index + 1) - leftovers(pace, index));
    uint64_t start = index * pace->packet_bytes;
    kb_time end = topo_rate_time(pace->bytes_per_s, start + bytes);
    return end < KB_FOREVER ? end - topo_rate_time(pace->bytes_per_s, start) : KB_FOREVER;
}
