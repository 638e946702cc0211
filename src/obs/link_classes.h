/* link_classes.h: the links of a machine by kind. */
#ifndef KB_OBS_LINK_CLASSES_H
#define KB_OBS_LINK_CLASSES_H

#include "topo/topo.h"

/* Links between two kinds of nodes with the same bandwidth and length, in both directions. */
typedef struct link_class {
    topo_kind a, b; /* the first link of the class goes from a to b */
    bool service;   /* service links of memories: a and b are the memory */
    uint64_t rate;
    kb_time wire_fs;
    uint64_t count; /* of directed links */
} link_class;

typedef struct link_classes {
    KB_VEC(link_class) all; /* in the order of the machine's links */
} link_classes;

KB_MUST_USE kb_error *link_classes_init(link_classes *classes, const topo_machine *machine);
void link_classes_fini(link_classes *classes);

/* The first class between these kinds, in either direction; NULL if there is none. */
const link_class *link_classes_find(const link_classes *classes, topo_kind a, topo_kind b,
                                    bool service);

/* The index in `all` of the class of a link of the same machine. */
size_t link_classes_index(const link_classes *classes, const topo_machine *machine, uint32_t link);

/* Appends "pe_dma - xbar", or "hbm_ctrl" for service links. */
void link_class_name(const link_class *c, kb_text *text);

#endif
