/*
 * races_private.h: what the files of the race check share. Private to tl.
 *
 *     message_order.c the order that messages make
 *     late.c          accesses that wait for messages
 *     races.c         recording: who touches what, and when in that order
 *     races_spans.c   which bytes are touched by several PEs
 *     races_find.c    which of these accesses are not ordered
 *     races_report.c  what is said of them
 */
#ifndef KB_TL_RACES_PRIVATE_H
#define KB_TL_RACES_PRIVATE_H

#include "late.h"
#include "message_order.h"
#include "races.h"
#include "tl_private.h"

/* Bytes that a call touches. */
#define RACE_OPEN UINT32_MAX

typedef struct race_access {
    tl_bytes at;
    uint64_t tick; /* on the clock of the order */
    kb_time time;
    const char *file, *call;
    int line;
    uint32_t run;
    tl_point reached; /* what its PE has waited for */
    tl_point after;   /* what it waits for itself */
    uint32_t sends;   /* of its run before it; RACE_OPEN: it comes before none */
    bool writes;
    bool late; /* it comes before those sends alone that come after `after` too */
} race_access;

/* A kernel on a PE, or a copy. */
typedef struct race_run {
    kb_pe pe;
    uint32_t thread;    /* in the order */
    const char *kernel; /* NULL: a copy */
    const char *launch; /* or of what the copy is */
    const char *stream; /* NULL: none worth naming */
    const char *scope;  /* NULL: not narrow */
    uint64_t number;    /* of the launch; 0: a copy */
    tl_point reached;   /* of a copy: what it comes after */
} race_run;

/* What bounds the host's memory; tests have smaller ones. */
typedef struct race_limits {
    size_t accesses;       /* that are kept */
    size_t spans;          /* that are sorted at a time, where a window can be cut in two, */
    uint64_t window_bytes; /* which has at least twice as many */
    size_t clock_numbers;  /* of all clocks that are there at a time */
} race_limits;

struct tl_races {
    const tl_runner *runner;
    const topo_shape *shape;
    tl_order *order;
    uint32_t users;
    bool cut_off; /* an access was left out */
    race_limits limits;
    KB_VEC(race_run) runs;
    KB_VEC(race_access) accesses; /* by tick */
};

/* ---- races_spans.c ---- */

/* Consecutive bytes of an access. */
typedef struct race_span {
    uint64_t start, end;
    uint32_t access;
} race_span;

typedef KB_VEC(race_span) race_spans;

/* A part of a memory that several PEs touch, one of them by writing. */
typedef struct race_window {
    uint64_t memory, start, end;
} race_window;

typedef KB_VEC(race_window) race_windows;

/* The accesses to each memory, in their order. A window concerns those of its own memory: looking
 * at all of them for every window would take too long in launches that touch many memories. */
typedef struct race_index {
    const tl_races *races;
    size_t count;
    struct race_indexed {
        uint64_t memory;
        uint32_t access;
    } * items; /* by memory, and then by access */
} race_index;

KB_MUST_USE kb_error *race_index_make(const tl_races *races, race_index *index);
void race_index_fini(race_index *index);

/* Finds all of them. */
KB_MUST_USE kb_error *race_find_windows(const race_index *index, race_windows *windows);

/* Appends what accesses touch of the window, cut to it. */
KB_MUST_USE kb_error *race_list_spans(const race_index *index, const race_window *window,
                                      race_spans *spans);

#endif
