/*
 * io.h: commands from the host to PEs, by way of the control processors.
 *
 *     host > io_cpu of the SIP > m_cpu of each cube > each PE      the command, fanned out
 *     host < io_cpu of the SIP < m_cpu of each cube < each PE      completions, joined
 *
 * Each arrow is a transfer through the fabric. A command has a header, a part for the control
 * processor of each cube, which keeps it for its PEs, and a part for each target. A control
 * processor hands the completion on when it has those of all it sent the command to.
 *
 *     static void on_arrive(void *self, uint64_t ticket, size_t target) {
 *         ... do the work; when it is done, now or later:
 *         io_finish(control, ticket, &parts, NULL);
 *     }
 */
#ifndef KB_IO_IO_H
#define KB_IO_IO_H

#include <stddef.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "net/net.h"
#include "topo/topo.h"

typedef struct io io;

enum {
    IO_HEADER_BYTES = 16,     /* of a command: kind, ticket, length */
    IO_COMPLETION_BYTES = 16, /* ticket and outcome */
};

/* All three must stay. */
KB_MUST_USE kb_error *io_create(kb_sim *sim, const topo_machine *machine, net *fabric, io **out);

/* Not while commands are under way, unless the simulator was abandoned. */
void io_destroy(io *control);

typedef struct io_target {
    uint32_t cube, pe;
    uint64_t bytes; /* of the command, for this one alone */
} io_target;

/* The command is at a target. io_finish() is to be called with the ticket, once. */
typedef void io_arrive_fn(void *self, uint64_t ticket, size_t target);

/*
 * All completions are back at the host. The receipt's parts are those of the chain of transfers and
 * work that was the last to end, which together are all of its time. Takes over the error: the one
 * of the first target that failed.
 */
typedef void io_done_fn(void *self, uint64_t arg, const net_receipt *receipt, kb_error *err);

typedef struct io_command {
    uint32_t sip;
    const io_target *targets; /* copied; by (cube, pe), at least one, none twice */
    size_t target_count;
    uint64_t cube_bytes; /* travels once to the SIP, and from there to each cube */
    io_arrive_fn *arrive;
    io_done_fn *done;
    void *self;
    uint64_t arg;
} io_command;

KB_MUST_USE kb_error *io_submit(io *control, const io_command *command);

/*
 * The target's work is done, at the present time. `work` has its parts, which must add up to the
 * time since it arrived; NULL if that is no time. Takes over the error.
 */
void io_finish(io *control, uint64_t ticket, const net_receipt *work, kb_error *err);

#endif
