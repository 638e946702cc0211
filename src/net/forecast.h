/*
 * forecast.h: which virtual channel a train will take behind a link. Private to net.
 */
#ifndef KB_NET_FORECAST_H
#define KB_NET_FORECAST_H

#include "contact.h"
#include "fabric.h"

/*
 * The virtual channel of the class that a message takes whose first packet starts on the link at
 * `head`, after all trains that have reserved the link. False if that is not certain: then some
 * message is passing or will, or a packet leaves its channel at that very instant. No packet waits
 * in a channel of the class, and turns that are due have been taken.
 */
bool forecast_vc(net *n, uint32_t at, uint32_t class, kb_time head, uint8_t *vc);

/*
 * A packet has just chosen a virtual channel behind the link, as `v` says. Decides again which one
 * a train takes that has reserved the link and has not started there. False if that is not certain.
 */
bool forecast_again(net *n, const visit *v, uint32_t index);

#endif
