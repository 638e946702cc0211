/*
 * exchange.h: all PEs of a device combine rows of numbers, of which each PE has partial results.
 * Private to nn.
 *
 * Queues connect each PE with the other PEs of its cube, and with the PE of the same index in every
 * other cube. An exchange of rows has three steps:
 *
 *     1. within a cube, PE q receives part q of the rows from all PEs, and combines it;
 *     2. the PEs q of all cubes send each other their part q, and combine it;
 *     3. within a cube, each PE receives the other parts.
 *
 * Invariant: all PEs get the same bits, because step 2 combines in the order of cubes.
 */
#ifndef KB_NN_EXCHANGE_H
#define KB_NN_EXCHANGE_H

#include <stdint.h>

#include <kernbench/kernbench.h>
#include <kernbench/tl.h>

#include "nn_state.h"

/* ---- Host ---- */

/* The maximum of PEs per cube, and of cubes: with more, the queues would take too much TCM. */
enum { NN_MAX_PEERS = 64 };

/* Whether the device can exchange: it has several PEs, and their queues fit. */
bool nn_can_exchange(const kb_machine *machine);

/* Installed queues of the device. */
KB_MUST_USE kb_error *nn_get_queues(kb_context *ctx, uint32_t sip, kb_queue_set *set);

/* ---- In kernels: called by all PEs of the device, with the same shapes ---- */

typedef struct nn_peers {
    int64_t cubes, pes;
} nn_peers;

typedef enum nn_combine { NN_SUM, NN_MAX } nn_combine;

/* The sum or the maximum over all PEs of x (rows, 1), F32. Consumes x. */
tl_tensor nn_exchange(tl_context *tl, const nn_peers *peers, nn_combine how, tl_tensor x,
                      int64_t rows);

/* The largest element of each row and its index: both (rows, 1), F32 and I32. */
typedef struct nn_largest {
    tl_tensor values, indices;
} nn_largest;

/* The largest of each row of (rows, n) values and indices. Of equal ones the first; NaN is larger
 * than any number. Consumes both. */
nn_largest nn_choose_largest(tl_context *tl, nn_largest all);

/*
 * The same over all PEs, in their order; consumes x. With `to_all`, all PEs end with all rows.
 * Else PE q of every cube ends with part q of the rows (tl_part_begin()), and {0} if that is none.
 */
nn_largest nn_exchange_largest(tl_context *tl, const nn_peers *peers, nn_largest x, int64_t rows,
                               bool to_all);

#endif
