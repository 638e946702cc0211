/*
 * vc_predict.h: predicts the virtual channel that a train takes behind a link. Private to net.
 */
#ifndef KB_NET_VC_PREDICT_H
#define KB_NET_VC_PREDICT_H

#include "conflict.h"
#include "fabric.h"

/*
 * Predicts the virtual channel of the class for a message whose first packet starts on the link at
 * `head`, after all trains that have reserved the link. Returns false if the choice is not certain:
 * some message passes the link then, or a packet leaves its channel at that instant. Precondition:
 * no packet waits in a channel of the class, and due turns have been taken.
 */
bool predict_vc(net *n, uint32_t at, uint32_t class, kb_time head, uint8_t *vc);

/*
 * Packet `v` has just chosen a virtual channel behind the link. Predicts again the channel of a
 * train that has reserved the link and has not started there. Returns false if the choice is not
 * certain.
 */
bool repredict_vc(net *n, const visit *v, uint32_t index);

#endif
