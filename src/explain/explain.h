/*
 * explain.h: why a run took as long as it did: its critical path.
 *
 *     explain_recorder *recorder;
 *     KB_TRY(explain_recorder_create(ctx, limit, &recorder)); // before the run; its operations go
 * to explain_record_op(recorder, op);                        // this: kb_context_options.on_op
 *     ... the run ...
 *     explain_path path;
 *     KB_TRY(explain_find_path(recorder, kb_context_now(ctx), &path));
 *     explain_groups groups;
 *     KB_TRY(explain_group(&path, EXPLAIN_BY_KERNEL, &groups));
 *     explain_groups_fini(&groups);
 *     explain_path_fini(&path);
 *     explain_recorder_destroy(recorder);
 *
 * The path is a chain of steps from time 0 to the end of the run, without gaps or overlaps. Each
 * step is a time in which one thing was under way that the end of the run waited for, and has parts
 * that add up to it: the resource that the time was spent at, and how. So groups of parts add up to
 * the run, to the femtosecond. docs/decisions/0036-critical-path.md has the rules.
 */
#ifndef KB_EXPLAIN_EXPLAIN_H
#define KB_EXPLAIN_EXPLAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "base/base.h"
#include "oplog/oplog.h"
#include "topo/topo.h"

#include "resource.h"

/* ---- Recording --------------------------------------------------------------------------- */

typedef struct explain_recorder explain_recorder;

enum { EXPLAIN_NONE = 0 }; /* no record; and no launch */

/* What an operation does, where in the program. Shared by all operations of which it is true. */
typedef struct explain_site {
    kb_unit unit;
    bool is_control;   /* a message of control processors, or a copy of the host */
    const char *name;  /* "load", "kernel", "command" */
    const char *label; /* of a kernel: the launch; else what the operation says */
    const char *file;  /* NULL: of no kernel */
    int line;
} explain_site;

/* An operation. */
typedef struct explain_record {
    kb_time start, end;
    kb_time bandwidth, queueing; /* of its last transfer, if it has one */
    uint32_t begun_id, ended_id; /* records; see kb_reason */
    uint32_t site;
    uint32_t at;     /* the number of its PE; of a control message: the node that sends */
    uint32_t node;   /* of its last transfer: the memory or the receiver; TOPO_NONE: it has none */
    uint32_t launch; /* its number; 0: of none */
    uint8_t begun, ended; /* kb_reason_kind */
    bool read;            /* of its transfer: from `node` */
    bool known;           /* it has been recorded */
} explain_record;

_Static_assert(sizeof(explain_record) == 64, "a record takes 64 bytes");

/*
 * Records take `max_bytes` at most. Beyond that only kernels and control messages are kept: later
 * parts of the path are whole kernels. The log is that of the machine's context.
 */
KB_MUST_USE kb_error *explain_recorder_create(const topo_machine *machine, kb_oplog *log,
                                              uint64_t max_bytes, explain_recorder **out);
void explain_recorder_destroy(explain_recorder *recorder);

/* Gets an operation, or nothing if `recorder` is NULL. */
void explain_record_op(explain_recorder *recorder, const kb_op *op);

typedef struct explain_recorded {
    uint64_t operations;  /* all of them */
    uint64_t dropped;     /* of which there are no records, */
    kb_time dropped_from; /* because these were full from then on */
    uint64_t bytes;       /* of memory */
} explain_recorded;

explain_recorded explain_get_recorded(const explain_recorder *recorder);

/* ---- The path ---------------------------------------------------------------------------- */

/* What a step is, beyond its operation's own time. */
typedef enum explain_step_kind {
    EXPLAIN_OWN,    /* the operation was under way */
    EXPLAIN_START,  /* the pe_cpu starts the kernel */
    EXPLAIN_POLL,   /* the pe_cpu sees the end of the operation that late */
    EXPLAIN_KERNEL, /* the kernel, of which nothing else was recorded */
    EXPLAIN_HOST,   /* nothing that the program had ordered was under way */
    EXPLAIN_STUCK,  /* of a run that failed: from its last operation's end on */
    EXPLAIN_STEP_KINDS
} explain_step_kind;

typedef struct explain_step {
    kb_time from, to;
    uint32_t id;     /* its record; EXPLAIN_NONE: none */
    uint8_t kind;    /* explain_step_kind */
    uint8_t led_by;  /* kb_reason_kind: why the next step waited for this one */
    bool is_request; /* a message of what is no launch: a copy, a mapping, queues */
    uint32_t launch; /* the launch that it belongs to; messages belong to the launch that
                        they are of; 0: none */
} explain_step;

/* A share of a step's time. */
typedef struct explain_part {
    explain_resource resource;
    explain_aspect aspect;
    kb_time time;
    uint32_t link; /* TOPO_NONE, or the link of a bandwidth, or the one that packets waited for */
} explain_part;

enum { EXPLAIN_MAX_PARTS = 2 * EXPLAIN_RESOURCES + 2 };

typedef struct explain_path {
    const explain_recorder *recorder;
    const topo_machine *machine;
    kb_time end;
    KB_VEC(explain_step) steps; /* in the order of time */
    KB_VEC(explain_part) parts; /* of step i: from first_part[i] to first_part[i + 1] */
    KB_VEC(uint32_t) first_part;
    /* Equal for paths over the same operations and links for the same reasons; and if transfers
     * also wait for as long behind others. */
    uint64_t signature, waits;
} explain_path;

KB_MUST_USE kb_error *explain_find_path(const explain_recorder *recorder, kb_time end,
                                        explain_path *path);
void explain_path_fini(explain_path *path);

const explain_record *explain_record_at(const explain_recorder *recorder, uint32_t id);
const explain_site *explain_site_at(const explain_recorder *recorder, uint32_t site);

/* The name of the launch, "" if it is not known. */
const char *explain_launch_name(const explain_recorder *recorder, uint32_t launch);

/* ---- Whom a transfer waited for ---------------------------------------------------------- */

/* Where the packets of a transfer waited, and behind whom. */
typedef struct explain_contention {
    uint32_t link;      /* the link with most work of transfers under way; TOPO_NONE: none */
    uint64_t transfers; /* how many others were under way over it */
    uint32_t record;    /* the one that used it longest in that time */
    kb_time work;       /* what all others took of the link in that time */
} explain_contention;

/* Of the record's transfer. */
KB_MUST_USE kb_error *explain_find_contention(const explain_recorder *recorder, uint32_t id,
                                              explain_contention *out);

/* ---- Groups ------------------------------------------------------------------------------ */

typedef enum explain_key {
    EXPLAIN_BY_RESOURCE, /* and aspect: "HBM bandwidth" */
    EXPLAIN_BY_LAYER,    /* launches in their order, by name */
    EXPLAIN_BY_KERNEL,   /* launches of a name */
    EXPLAIN_BY_LINE,     /* source lines */
    EXPLAIN_BY_UNIT,     /* pe_gemm, pe_dma_read, host */
    EXPLAIN_BY_LINK,     /* kinds of links, of bandwidth and waiting */
    EXPLAIN_BY_PLACE,    /* of what transfers access: own slice, cube, other cubes, other SIPs */
    EXPLAIN_BY_REASON,   /* why the next step waited for this one */
    EXPLAIN_BY_PE,
    EXPLAIN_BY_CATEGORY,
    EXPLAIN_KEYS
} explain_key;

const char *explain_key_name(explain_key key); /* "by_resource", as in JSON */

typedef struct explain_group {
    char *name;
    kb_time_sum time;
    uint64_t steps;
} explain_group;

/* In descending order of time; they add up to the path's end. */
typedef struct explain_groups {
    KB_VEC(explain_group) all;
} explain_groups;

KB_MUST_USE kb_error *explain_group_path(const explain_path *path, explain_key key,
                                         explain_groups *groups);
void explain_groups_fini(explain_groups *groups);

/* Appends what a step is: "load of w.c:12 on sip0.cube0.pe1, from sip0.cube3.hbm_ctrl1". */
void explain_describe_step(const explain_path *path, const explain_step *step, kb_text *text);

/* ---- Findings ---------------------------------------------------------------------------- */

/* What the time of a path goes to, in the words of a kernel's author. Each part of it is in one. */
typedef enum explain_category {
    EXPLAIN_IN_MATRIX,
    EXPLAIN_IN_DRAINS, /* results leave the matrix engine, and what comes next needs them */
    EXPLAIN_IN_VECTOR,
    EXPLAIN_IN_TCM,
    EXPLAIN_IN_LOCAL_MEMORY, /* transfers with memories of the PE's cube */
    EXPLAIN_IN_CUBE_PES,     /* with TCM of its other PEs */
    EXPLAIN_IN_OTHER_CUBES,
    EXPLAIN_IN_OTHER_SIPS,
    EXPLAIN_IN_MESSAGES, /* through queues */
    EXPLAIN_IN_CREDITS,
    EXPLAIN_IN_LAUNCHES, /* messages of control processors, and starts of kernels */
    EXPLAIN_IN_REQUESTS, /* of the host: copies, mappings, queues */
    EXPLAIN_IN_ISSUES,
    EXPLAIN_IN_PROGRAM,
    EXPLAIN_IN_NEVER, /* of a run that failed: waiting for a message or a slot until it did */
    EXPLAIN_CATEGORIES
} explain_category;

const char *explain_category_name(explain_category category); /* "transfers with other cubes" */
const char *explain_category_key(explain_category category);  /* "other_cubes", as in JSON */

/* Of the parts of a category. */
typedef struct explain_share {
    kb_time_sum time;
    kb_time_sum aspects[EXPLAIN_ASPECTS]; /* add up to it */
    uint32_t link;         /* where most of its bandwidth and queueing is; TOPO_NONE: nowhere */
    kb_time_sum link_time; /* bandwidth and queueing there */
    uint32_t node;         /* the memory or receiver where most of its time is; TOPO_NONE */
    kb_time_sum node_time;
} explain_share;

typedef struct explain_findings {
    explain_share shares[EXPLAIN_CATEGORIES]; /* the times add up to the path's end */
    explain_category largest;
    uint64_t pes, working_pes; /* that have kernels; of these, with operations in them */
    /* A PE that most of the path is on, though it has more to do than the others. */
    bool has_straggler;
    uint64_t straggler;         /* its number */
    kb_time_sum straggler_time; /* of the path, there */
    double straggler_work;      /* of it, in units of the median over PEs that work: time of its
                                   engines, and bytes wherever they are */
    /* Senders on the path waited for a free slot: that time, without work of receivers. */
    kb_time_sum stalled;
    uint64_t stalls;
    uint64_t stalled_pe; /* the receiver that most of it was for */
    /* A memory on the path that more bytes go to than to an even share of all memories in use. */
    bool has_hot_memory;
    uint32_t hot_node;
    double hot_share; /* of bytes, in units of the mean over PEs that work */
} explain_findings;

KB_MUST_USE kb_error *explain_find(const explain_path *path, explain_findings *findings);

/* What the path says of a resource that is so many times as good: the time that it would save at
 * least, were the path the same. Negative: the path cannot say, as with capacities. */
kb_time explain_estimate(const explain_path *path, explain_resource resource,
                         explain_factor factor);

#endif
