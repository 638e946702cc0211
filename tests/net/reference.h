/*
 * reference.h: the transport once more, as plainly as possible, to compare with: it shares no code
 * with src/net, leaves out no event, and looks through everything every time. Parallel ports only.
 */
#ifndef TESTS_NET_REFERENCE_H
#define TESTS_NET_REFERENCE_H

#include "net/scenario.h"

/* What should come of the scenario. */
outcome *reference_run(const scenario *s);

#endif
