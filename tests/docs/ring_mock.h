/*
 * ring_mock.h: a mock run of a kernel that sends its elements to E and stores what comes from W. In
 * a ring each rank ends with the elements of the previous one.
 */
#include <stdio.h>

#include <kernbench/ccl.h>

enum { RANKS = 5, ELEMENTS = 7 };

typedef void arguments_fn(void *self, uint32_t rank, uint64_t address, kb_ccl_arguments *args);

/* 0 if every element is right. The arguments are those for KB_F32 and ELEMENTS elements. */
static inline int ring_mock(const kb_kernel *kernel, arguments_fn *arguments)
{
    kb_mock_edge edges[2 * RANKS];
    float data[RANKS][ELEMENTS];
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        edges[2 * rank] = (kb_mock_edge){rank, "E", (rank + 1) % RANKS};
        edges[2 * rank + 1] = (kb_mock_edge){rank, "W", (rank + RANKS - 1) % RANKS};
        for (uint32_t i = 0; i < ELEMENTS; i++)
            data[rank][i] = (float)(100 * rank + i);
    }
    const kb_mock mock = {.kernel = kernel,
                          .ranks = RANKS,
                          .edges = edges,
                          .edge_count = 2 * RANKS,
                          .dtype = KB_F32,
                          .elements = ELEMENTS,
                          .arguments = arguments};
    kb_error *err = kb_mock_run(&mock, data, sizeof data);
    if (err)
        fprintf(stderr, "%s\n", kb_error_message(err));
    int wrong = (int)kb_error_code(err);
    kb_error_free(err);
    for (uint32_t rank = 0; rank < RANKS && !wrong; rank++)
        for (uint32_t i = 0; i < ELEMENTS; i++)
            wrong |= data[rank][i] != (float)(100 * ((rank + RANKS - 1) % RANKS) + i);
    return wrong;
}
