/*
 * pe2pe.h: measurements and output of the bench pe2pe: targets, a table, a plot.
 */
#ifndef KB_BENCHES_PE2PE_H
#define KB_BENCHES_PE2PE_H

#include <kernbench/kernbench.h>

#include <stddef.h>
#include <stdint.h>

/* The distance of the target from the source, nearest first. */
typedef enum pe2pe_distance {
    PE2PE_NEIGHBOUR, /* the nearest PE of the cube */
    PE2PE_ACROSS,    /* the farthest PE of the cube */
    PE2PE_NEXT_CUBE,
    PE2PE_FAR_CUBE, /* the farthest cube of the SIP */
    PE2PE_OTHER_SIP,
    PE2PE_DISTANCES
} pe2pe_distance;

typedef enum pe2pe_method { PE2PE_QUEUE, PE2PE_DMA, PE2PE_METHODS } pe2pe_method;

/* As in metrics: "next_cube_dma_128". */
extern const char *const pe2pe_distance_names[], *const pe2pe_method_names[];

enum {
    PE2PE_MAX_BYTES = 1 << 20,
    PE2PE_MAX_SIZES = 21 /* 1, 2, 4, .. 2^20 */
};

typedef struct pe2pe_sizes {
    size_t count;
    uint64_t bytes[PE2PE_MAX_SIZES];
    uint64_t offset[PE2PE_MAX_SIZES]; /* of a size's bytes in the payload */
    uint64_t total;                   /* bytes of the payload */
} pe2pe_sizes;

typedef struct pe2pe_table {
    pe2pe_sizes sizes;
    const char *missing[PE2PE_DISTANCES]; /* why it is not measured; NULL: it is */
    kb_time latency[PE2PE_DISTANCES][PE2PE_METHODS][PE2PE_MAX_SIZES];
} pe2pe_table;

/* The target of each distance, or why there is none. */
void pe2pe_print_targets(kb_bench *bench, const pe2pe_table *table, const kb_pe *targets);

/* A line for each size; and metrics for --json. */
void pe2pe_print_table(kb_bench *bench, const pe2pe_table *table);

/* Latency over size, both axes logarithmic. */
void pe2pe_print_plot(kb_bench *bench, const pe2pe_table *table);

#endif
