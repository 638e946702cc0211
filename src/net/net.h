/*
 * net.h: the transport, and orders to it between nodes of a machine.
 */
#ifndef KB_NET_NET_H
#define KB_NET_NET_H

#include "transfer_order.h"
#include "transport.h"

#endif
