/*
 * replay.h: looks at the bookings of a run and says whether the laws were kept. Knows nothing of
 * how the transport works, but what channels, links and sources may do.
 */
#ifndef TESTS_NET_REPLAY_H
#define TESTS_NET_REPLAY_H

#include "net/scenario.h"

/* Fails with a message if not. `what` says which run it was. */
void replay_check(const scenario *s, const outcome *o, const char *what);

#endif
