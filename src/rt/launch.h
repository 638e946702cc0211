/*
 * launch.h: a launch on one device, from its targets to its end. Private to rt.
 *
 *     launch_call.c   what a program asks for: devices, PEs, arguments
 *     launch.c        commands, turns of PEs, results
 */
#ifndef KB_RT_LAUNCH_H
#define KB_RT_LAUNCH_H

#include "runtime.h"

enum {
    LAUNCH_KERNEL_BYTES = 64, /* of a command: where the code is, the grid, how many arguments */
    LAUNCH_ARGUMENT_BYTES = 8,
    LAUNCH_TARGET_BYTES = 16, /* for each PE: its position in the grid */
};

/* What one PE does of a launch. */
typedef struct launch_run {
    rt_launch *launch;
    struct launch_run *next; /* for the same PE, launched later */
    ipcq_set *queues;        /* NULL: none */
    rt_queue_set *set;       /* that they belong to; NULL if they are no queues of the program */
    bool is_here;            /* its command is at the PE: */
    uint64_t ticket;
    kb_time arrived;
} launch_run;

/* Of a cube, as launches of its lane see it. */
typedef struct launch_cube {
    bool open;       /* not all its PEs are done, as the m_cpu sees it */
    uint64_t ticket; /* of a part that is held there; 0: none is */
} launch_cube;

struct rt_launch {
    kb_context *ctx;
    rt_request *request;
    rt_launch *next;  /* of the same request */
    kb_kernel kernel; /* a copy: the program's may go when its call returns */
    uint64_t number;
    uint32_t sip;
    bool has_queues; /* some of its kernels have */
    bool own_args;   /* each target has its own, one behind the other; else all have the same */
    bool done;
    bool recorded; /* in a stream */
    tl_arg *args;
    kb_error *failure;   /* of a kernel that others may wait for; NULL: none has failed */
    kb_error *stopped;   /* why none is to start any more; NULL while they may */
    kb_error *passed_on; /* what launches behind it in its stream fail with; NULL: nothing */
    bool is_behind;      /* it has that from one before it: its kernels do not start any more */
    tl_races *races;     /* counted until it is over; NULL: it is not checked */
    launch_run *runs;    /* one a target */
    KB_VEC(io_target) targets;
    int64_t programs[2];
    kb_time first_start, last_end;
    kb_time posted; /* by the kernel clock of the log */
    kb_launch_result result;

    /* Of a launch in a stream. */
    rt_node *node; /* NULL: it is in none */
    rt_lane *lane;
    const char *stream; /* for reports; NULL: none worth naming */
    kb_scope scope;
    uint64_t ticket;    /* of its command, at the io_cpu */
    kb_time arrived;    /* there */
    uint64_t changed;   /* of a recorded launch: arguments that are not as recorded */
    launch_cube *cubes; /* by cube */
    tl_mark over;       /* of the runs so far */
};

/* Adds a launch without targets to the request; it has the number of the launch to be made next.
 * NULL if there is no memory. */
rt_launch *launch_add(rt_request *request, const kb_kernel *kernel, const char *name, uint32_t sip);

/* The targets are known: they are numbered, and each has a run. */
KB_MUST_USE kb_error *launch_lay_out(rt_launch *launch);

/* Which queues each PE has: those of the set, or the ones that were installed there last. */
void launch_choose_queues(rt_launch *launch, rt_queue_set *named);

/* Sends it off: in a stream, or with NULL at once. */
KB_MUST_USE kb_error *launch_submit(rt_launch *launch, rt_stream *stream, bool is_collective);

#endif
