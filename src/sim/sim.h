/*
 * sim.h: the discrete-event engine, for the folders above. Most of it is public: events, handlers,
 * coroutines and waiting are in <kernbench/kernbench.h>.
 */
#ifndef KB_SIM_SIM_H
#define KB_SIM_SIM_H

#include <kernbench/kernbench.h>

/* A kb_log_clock: the time of the kb_sim that is its context. */
kb_time kb_sim_clock(const void *sim);

#endif
