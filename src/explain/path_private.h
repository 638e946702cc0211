/* path_private.h: what the files of explain share about paths. */
#ifndef KB_EXPLAIN_PATH_PRIVATE_H
#define KB_EXPLAIN_PATH_PRIVATE_H

#include "recorder_private.h"

/* Fills parts and first_part. */
KB_MUST_USE kb_error *explain_divide_path(explain_path *path);

/* The transfers of a recorder, by begin: to find those under way at a time. */
typedef struct explain_transfers explain_transfers;

KB_MUST_USE kb_error *explain_transfers_create(const explain_recorder *recorder,
                                               explain_transfers **out);
void explain_transfers_destroy(explain_transfers *transfers);
kb_error *explain_contention_at(explain_transfers *transfers, uint32_t id, explain_contention *out);

/* The route of the record's transfer: of the data, and before it of a read's request. */
typedef struct explain_route {
    uint32_t *steps; /* links; room for twice the machine's max_steps */
    uint32_t count;
    uint32_t data;    /* the first of them that the data take */
    uint32_t slowest; /* the slowest link of the data; TOPO_NONE: there is none */
} explain_route;

void explain_find_route(const explain_recorder *recorder, const explain_record *record,
                        explain_route *route);

/* findings.c */
explain_category explain_category_of(const explain_path *path, const explain_step *step,
                                     const explain_part *part);

#endif
