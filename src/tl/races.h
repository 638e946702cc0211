/*
 * races.h: finding data races between the PEs of a launch, and between launches.
 *
 * Two accesses of different kernels to the same bytes of a memory, one of them a write, are a race
 * unless one is ordered before the other: by the order of the program in a PE, by messages from PE
 * to PE, and by the order of launches. Memory is compared as it is, not by virtual address: copies
 * of a replicated tensor are different memory.
 *
 *     tl_races *races;
 *     KB_TRY(tl_races_create(runner, &races));        // .races of every tl_run of the launch
 *     ...
 *     KB_TRY(tl_races_report(races, &text, &cut_off)); // when the kernels are done
 *     tl_races_release(races);
 *
 * docs/decisions/0016-access-checks.md says what orders what, and what is not seen.
 */
#ifndef KB_TL_RACES_H
#define KB_TL_RACES_H

#include <stdbool.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "base/base.h"

typedef struct tl_races tl_races;
struct tl_runner;

/* One more launch that is checked together: counted, for the caller. */
KB_MUST_USE kb_error *tl_races_create(struct tl_runner *runner, tl_races **races);
void tl_races_retain(tl_races *races);
void tl_races_release(tl_races *races);

/* Whether the caller's is the only count. */
bool tl_races_is_last(const tl_races *races);

/* A place in the order of all that is checked at the same time; 0: nothing comes before. It means
 * nothing any more, which is no error, once all of that is over. */
typedef uint64_t tl_mark;

/* Where both are over. */
tl_mark tl_mark_join(struct tl_runner *runner, tl_mark a, tl_mark b);

/* How much the check keeps: points of the order, and accesses. */
size_t tl_races_points(const tl_races *races);
size_t tl_races_accesses(const tl_races *races);

/* A copy by DMAs, as if it were a kernel: it is checked with the launches. Texts must stay. */
typedef struct tl_copy {
    const char *label;  /* of what */
    const char *stream; /* NULL: none worth naming */
    kb_pe pe;           /* one that takes part */
    tl_mark after;
} tl_copy;

/* Opens a copy, which has a number then, adds what it reads and writes, says where it is over. */
KB_MUST_USE kb_error *tl_races_begin_copy(tl_races *races, const tl_copy *copy, uint32_t *number);
KB_MUST_USE kb_error *tl_races_add_copied(tl_races *races, uint32_t number, const kb_location *at,
                                          uint64_t bytes, bool writes);
tl_mark tl_races_end_copy(tl_races *races, uint32_t number);

/* What one of the two did. */
typedef struct tl_race_side {
    kb_pe pe;
    const char *kernel; /* NULL: a copy */
    const char *launch; /* or of what the copy is */
    const char *stream; /* NULL: none worth naming */
    const char *scope;  /* that the launch declared, if it is a narrow one; else NULL */
    uint64_t number;    /* of the launch */
    const char *call;   /* "tl_store" */
    const char *file;
    int line;
    bool writes;
    kb_time time; /* when it was issued */
    uint64_t id;  /* of the access, in its launch */
} tl_race_side;

typedef struct tl_race {
    tl_race_side first, second;
    kb_location at; /* the bytes that both touch */
    uint64_t bytes;
} tl_race;

typedef void tl_race_fn(void *self, const tl_race *race);

/*
 * Calls `found` for races: every byte that is raced for is in one of them, and of the second
 * accesses none is left out. In an order that depends on the program alone. *cut_off: accesses were
 * left out, as there are too many.
 */
KB_MUST_USE kb_error *tl_races_find(const tl_races *races, tl_race_fn *found, void *self,
                                    bool *cut_off);

/* Appends what is to be said: the first race and how many accesses race besides; nothing if there
 * is none. */
KB_MUST_USE kb_error *tl_races_report(const tl_races *races, kb_text *text, bool *cut_off);

#endif
