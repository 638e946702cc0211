/*
 * profile.h: what the time of PEs goes to, by source line and operation.
 *
 * The log tells the profile what is under way on each PE and which line it belongs to, and charges
 * it the same intervals as itself: the rows' causes add up to the kernels' time exactly. Of a cause
 * that several operations share at a time each has its part in proportion to its bytes. Time in
 * which nothing is outstanding belongs to the line where the pe_cpu is.
 */
#ifndef KB_OPLOG_PROFILE_H
#define KB_OPLOG_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

typedef struct kb_profile kb_profile;

typedef struct kb_profile_row {
    const char *file; /* NULL: unknown */
    int line;
    kb_unit unit;
    const char *name; /* of the operation: "load" */
    uint64_t count, bytes, flops;
    kb_time_sum causes[KB_CAUSES]; /* over PEs */
    kb_time_sum time;              /* all of them */
} kb_profile_row;

/* In the order in which operations first began. */
const kb_profile_row *kb_profile_rows(const kb_profile *profile, size_t *count);

/* ---- For the log ---- */

/* NULL for want of host memory. */
kb_profile *kb_profile_create(uint64_t pes);
void kb_profile_destroy(kb_profile *profile);

/*
 * The key of an operation's row; of NULL that of what belongs to no line, 0. The texts of the
 * operation stay, the operation need not. The row itself is made when its key is first used below,
 * for which there is memory. False for want of host memory.
 */
KB_MUST_USE bool kb_profile_find_key(kb_profile *profile, const kb_op *op, uint32_t *key);

/* An item begins and ends. False for want of host memory. */
KB_MUST_USE bool kb_profile_begin(kb_profile *profile, uint64_t pe, kb_cause cause, uint64_t bytes,
                                  uint32_t key);
void kb_profile_end(kb_profile *profile, uint64_t pe, kb_cause cause, uint64_t bytes, uint32_t key);
void kb_profile_set_line(kb_profile *profile, uint64_t pe, uint32_t key);

/* Charges time of the PE to the cause. */
void kb_profile_charge(kb_profile *profile, uint64_t pe, kb_cause cause, kb_time time);

/* Whether kb_profile_count() is to be told of the operation: a scheduler's is counted by its
 * parts. */
bool kb_profile_counts(const kb_op *op);

/* An operation has ended. */
void kb_profile_count(kb_profile *profile, uint32_t key, uint64_t bytes, uint64_t flops);

#endif
