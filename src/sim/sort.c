/*
 * sort.c: natural merge sort. What is already in order, or in reverse order, costs one look; r such
 * runs cost log2(r) passes. Components that act in step schedule in order, so r is small in
 * practice.
 *
 * Runs wait on a stack of lengths, and the two on top are merged unless the lower is twice as long.
 * So lengths at least double downwards, and the stack is never higher than log2(count) + 1.
 */
#include "sim/sort.h"

#include <stdbool.h>
#include <string.h>

enum { SHORT = 24, SHORT_RUN = 8, MAX_STACK = 34 };

/* Sorts words[0, count), of which the first `sorted` are in order. */
static void insertion_sort(uint64_t *words, uint32_t sorted, uint32_t count)
{
    for (uint32_t i = sorted; i < count; i++) {
        uint64_t word = words[i];
        uint32_t hole = i;
        for (; hole > 0 && word < words[hole - 1]; hole--)
            words[hole] = words[hole - 1];
        words[hole] = word;
    }
}

static void reverse(uint64_t *words, uint32_t count)
{
    for (uint32_t i = 0; i < count / 2; i++) {
        uint64_t word = words[i];
        words[i] = words[count - 1 - i];
        words[count - 1 - i] = word;
    }
}

/* Makes an ascending run of the first words, as long as it comes cheap; returns its length. */
static uint32_t make_run(uint64_t *words, uint32_t count)
{
    uint32_t end = 1;
    while (end < count && words[end - 1] <= words[end])
        end++;
    if (end == 1) {
        while (end < count && words[end] < words[end - 1])
            end++;
        reverse(words, end);
    }
    if (end < SHORT_RUN) {
        uint32_t longer = count < SHORT_RUN ? count : SHORT_RUN;
        insertion_sort(words, end, longer);
        end = longer;
    }
    return end;
}

/* Merges two runs, the first at words[0, left), the second at words[left, left + right). */
static void merge(uint64_t *words, uint32_t left, uint32_t right, uint64_t *scratch)
{
    memcpy(scratch, words, left * sizeof *words);
    const uint64_t *a = scratch;
    const uint64_t *a_end = scratch + left;
    const uint64_t *b = words + left;
    const uint64_t *b_end = b + right;
    uint64_t *out = words;
    while (a < a_end && b < b_end) {
        /* Which one is smaller is a coin toss: computed, not branched on. */
        bool take_b = *b < *a;
        const uint64_t *taken = take_b ? b : a;
        *out++ = *taken;
        b += take_b;
        a += !take_b;
    }
    memcpy(out, a, (size_t)(a_end - a) * sizeof *out); /* what is left of b is in place */
}

void kb_sort_u64(uint64_t *words, uint64_t *scratch, uint32_t count)
{
    if (count <= SHORT) {
        insertion_sort(words, 1, count);
        return;
    }
    uint32_t lengths[MAX_STACK];
    uint32_t depth = 0;
    uint32_t done = 0;
    while (done < count || depth > 1) {
        bool last = done == count;
        if (depth > 1 && (last || lengths[depth - 2] / 2 < lengths[depth - 1])) {
            uint32_t left = lengths[depth - 2];
            uint32_t right = lengths[depth - 1];
            merge(words + done - left - right, left, right, scratch);
            depth--;
            lengths[depth - 1] = left + right;
        } else {
            lengths[depth] = make_run(words + done, count - done);
            done += lengths[depth++];
        }
    }
}

/* ---- Ranks ---- */

typedef int32_t lanes __attribute__((vector_size(16)));

enum { LANES = 4 };

/* The ranks of LANES * vectors numbers from `first` on. */
static inline __attribute__((always_inline)) void rank_block(const int32_t *numbers, uint32_t count,
                                                             uint32_t first, uint32_t vectors,
                                                             uint32_t *ranks)
{
    lanes own[LANES], rank[LANES];
    for (uint32_t v = 0; v < vectors; v++) {
        memcpy(&own[v], &numbers[first + LANES * v], sizeof own[v]);
        rank[v] = (lanes){0};
    }
    for (uint32_t i = 0; i < count; i++) {
        lanes other = {numbers[i], numbers[i], numbers[i], numbers[i]};
        for (uint32_t v = 0; v < vectors; v++)
            rank[v] -= other < own[v]; /* true is -1 */
    }
    for (uint32_t v = 0; v < vectors; v++)
        memcpy(&ranks[first + LANES * v], &rank[v], sizeof rank[v]);
}

void kb_rank_i32(int32_t *numbers, uint32_t count, uint32_t *ranks)
{
    uint32_t first = 0;
    for (uint32_t i = count; i < KB_RANK_ROOM(count); i++)
        numbers[i] = 0;
    for (; count - first > 8 && first < count; first += 16)
        rank_block(numbers, count, first, 4, ranks);
    if (first < count)
        rank_block(numbers, count, first, 2, ranks);
}
