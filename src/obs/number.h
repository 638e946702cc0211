/* number.h: numbers as text, for commands and drawings. */
#ifndef KB_OBS_NUMBER_H
#define KB_OBS_NUMBER_H

#include "base/base.h"

#include <kernbench/kernbench.h>

#include <stdint.h>

typedef struct obs_number {
    char text[56]; /* fits a number of 128 bits with commas */
} obs_number;

obs_number obs_ns(kb_time_sum time_fs);    /* "135.250", to the picosecond */
obs_number obs_bytes(uint64_t bytes);      /* exact: "4 KiB", "1.5 MiB", "4097 B" */
obs_number obs_rate(uint64_t bytes_per_s); /* GB/s, all digits: "204.8" */
obs_number obs_gbs(double gbs);            /* "28.31" */
obs_number obs_percent(double share);      /* 0.5 is "50.0" */
obs_number obs_count(kb_u128 count);       /* "12,345" */

/* Bandwidth in GB/s (bytes per ns); 0 if the time is 0. */
double obs_bandwidth(uint64_t bytes, kb_time time_fs);

#endif
