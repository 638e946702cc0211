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
 *
 * A command may be held at the io_cpu, or its parts at the m_cpus, until something else has
 * happened on the device: so commands follow each other without the host. A recorded command is
 * known to the control processors: a trigger goes down the tree and counts come up, and neither
 * touches the host (docs/decisions/0021-streams-and-graphs.md).
 */
#ifndef KB_IO_IO_H
#define KB_IO_IO_H

#include <stddef.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "net/net.h"
#include "oplog/oplog.h"
#include "topo/topo.h"

typedef struct io io;

enum {
    IO_HEADER_BYTES = 16,     /* of a command: kind, ticket, length */
    IO_COMPLETION_BYTES = 16, /* ticket and outcome */
};

/* All three must stay. Uses one source id. */
KB_MUST_USE kb_error *io_create(kb_sim *sim, const topo_machine *machine, net *fabric,
                                uint32_t source_id, io **out);

/* The log that gets messages, for critical paths. It must stay. */
void io_set_log(io *control, kb_oplog *log);

/* Not while commands are under way, unless the simulator was abandoned. */
void io_destroy(io *control);

typedef struct io_target {
    uint32_t cube, pe;
    uint64_t bytes; /* of the command, for this one alone */
} io_target;

/* The command is at a target. io_finish() is to be called with the ticket, once. */
typedef void io_arrive_fn(void *self, uint64_t ticket, size_t target);

/*
 * All completions are back at the host. The completion's parts are those of the chain of transfers
 * and work that was the last to end, which together are all of its time. Takes over the error: the
 * one of the first target that failed.
 */
typedef void io_done_fn(void *self, uint64_t arg, const net_completion *completion, kb_error *err);

/* The command is at the io_cpu, decoded. io_release() or io_cancel() is to be called, once, which
 * may be during this call. */
typedef void io_held_fn(void *self, uint64_t arg, uint64_t ticket);

/* The part of the command for a cube is at its m_cpu. io_release_cube() is to be called, once. */
typedef void io_cube_held_fn(void *self, uint64_t arg, uint32_t cube, uint64_t ticket);

/* All completions are at the io_cpu; or those of the cube are at its m_cpu. */
typedef void io_joined_fn(void *self, uint64_t arg, const kb_error *err);
typedef void io_cube_joined_fn(void *self, uint64_t arg, uint32_t cube);

typedef struct io_command {
    uint32_t sip;
    const io_target *targets; /* copied; by (cube, pe), at least one, none twice */
    size_t target_count;
    uint64_t cube_bytes; /* travels once to the SIP, and from there to each cube */
    bool recorded;       /* begins at the io_cpu, by a trigger, and is done when all completions are
                            joined there: nothing goes to the host or comes from it. Of a recorded
                            command, the bytes are those that differ from what was recorded */
    io_arrive_fn *arrive;
    io_done_fn *done;
    io_held_fn *held;               /* NULL: is sent on at once, as with the following three */
    io_cube_held_fn *cube_held;     /* may be NULL */
    io_joined_fn *joined;           /* may be NULL */
    io_cube_joined_fn *cube_joined; /* may be NULL */
    void *self;
    uint64_t arg;
} io_command;

KB_MUST_USE kb_error *io_submit(io *control, const io_command *command);

/* Sends a command on that was held. */
void io_release(io *control, uint64_t ticket);
void io_release_cube(io *control, uint64_t ticket);

/* A command that was held ends with the error, which it takes over; no target gets it. */
void io_cancel(io *control, uint64_t ticket, kb_error *err);

/* ---- Messages ---- */

typedef enum io_message_kind {
    IO_HOST_TO_DEVICE, /* a command for the io_cpu alone: is decoded */
    IO_HOST_SIGNAL,    /* the same, which is only counted */
    IO_DEVICE_TO_HOST,
    IO_CUBE_SIGNAL,     /* from the m_cpu of cube `peer` to the io_cpu: is counted */
    IO_DEVICE_TO_DEVICE /* a signal from io_cpu to io_cpu: is counted */
} io_message_kind;

typedef struct io_message {
    io_message_kind kind;
    uint32_t sip;   /* of the io_cpu, */
    uint32_t peer;  /* and of the one that gets a signal; or the cube that sends one */
    uint64_t bytes; /* behind the header */
    net_done_fn *done;
    void *self;
    uint64_t arg;
} io_message;

/* One message between the host and an io_cpu, or between two io_cpus. */
KB_MUST_USE kb_error *io_send(io *control, const io_message *message);

/*
 * The target's work is done, at the present time. `work` has its parts, which must add up to the
 * time since it arrived; NULL if that is no time. Takes over the error.
 */
void io_finish(io *control, uint64_t ticket, const net_completion *work, kb_error *err);

#endif
