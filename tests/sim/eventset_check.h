/*
 * eventset_check.h: walks all places of an event set and asserts the invariants E1 to E6 of
 * eventset.h. It knows the fields of the set, and has to change when they do.
 */
#ifndef TESTS_SIM_EVENTSET_CHECK_H
#define TESTS_SIM_EVENTSET_CHECK_H

#include "support/expect.h"

#include "sim/eventset.h"

typedef struct census {
    const kb_eventset *set;
    uint8_t *seen; /* by node: in how many places it was found */
    uint32_t alive, dead;
} census;

/* An event found in a place. None may come before `next` (E1). */
static void count_event(census *all, const kb_node *node)
{
    const kb_eventset *set = all->set;
    if (node->handler) {
        all->alive++;
        assert_true(set->next != set->nodes);
        assert_false(kb_before(node->time, node->key, set->next->time, set->next->key));
    } else {
        all->dead++;
    }
}

/* A node found in a place. None may be in two. */
static const kb_node *found(census *all, uint32_t index)
{
    const kb_eventset *set = all->set;
    assert_in_range(index, 1, set->capacity - 1);
    assert_int_equal(all->seen[index]++, 0);
    const kb_node *node = &set->nodes[index];
    assert_true(node->time >= 0);
    count_event(all, node);
    return node;
}

/* E2, the first half: the wheel covers [base, limit), and limit ends a segment. */
static inline void check_wheel(census *all)
{
    const kb_eventset *set = all->set;
    uint64_t segment = (uint64_t)1 << set->segment_shift;
    assert_true((uint64_t)set->mask + 1 == 2 * segment);
    assert_true(set->base + set->span == (set->base / segment + 2) * segment);
    assert_int_equal(set->word, (set->base & set->mask) / 64);
    assert_true(set->shift <= 32);
    uint32_t count = 0;
    for (uint32_t slot = 0; slot <= set->mask; slot++) {
        uint32_t head = set->heads[slot];
        assert_true((set->bits[slot / 64] >> slot % 64 & 1) == (head != 0));
        for (uint32_t link = head; link; count++) {
            const kb_node *node = found(all, link);
            uint64_t bucket = (uint64_t)node->time >> set->shift;
            assert_true(bucket >= set->base && bucket < set->base + set->span);
            assert_int_equal(bucket & set->mask, slot);
            link = node->next;
        }
    }
    assert_int_equal(count, set->in_wheel);
}

/* E2, the second half: segment lists are within 64 segments from limit on. */
static inline void check_segments(census *all)
{
    const kb_eventset *set = all->set;
    uint64_t limit = (set->base + set->span) >> set->segment_shift;
    uint32_t count = 0;
    for (uint32_t slot = 0; slot < KB_SEGMENTS; slot++) {
        assert_true((set->segment_bits >> slot & 1) == (set->segments[slot] != 0));
        for (uint32_t i = set->segments[slot]; i; i = set->nodes[i].next, count++) {
            uint64_t segment = (uint64_t)found(all, i)->time >> set->shift >> set->segment_shift;
            assert_true(segment >= limit && segment < limit + KB_SEGMENTS);
            assert_int_equal(segment % KB_SEGMENTS, slot);
        }
    }
    assert_int_equal(count, set->in_segments);
}

static inline void check_heap(census *all)
{
    const kb_eventset *set = all->set;
    for (uint32_t i = 0; i < set->heap_count; i++) {
        const kb_heap_entry *entry = &set->heap[i];
        const kb_node *node = found(all, entry->node);
        assert_true(node->time == entry->time && node->key == entry->key);
        const kb_heap_entry *parent = &set->heap[i ? (i - 1) / 2 : 0];
        assert_false(kb_before(entry->time, entry->key, parent->time, parent->key));
    }
    assert_true(set->heap_time == (set->heap_count ? set->heap[0].time : KB_FOREVER));
}

/* E3: base is past the bucket of the run. Its events ascend. Its nodes have handler 0 (E4). */
static inline void check_run(census *all)
{
    const kb_eventset *set = all->set;
    assert_true(set->run == set->nodes + set->capacity);
    assert_true(set->run <= set->run_first && set->run_first <= set->run_end);
    assert_true(set->run_end <= set->run + set->capacity);
    uint32_t nodes = 0;
    for (uint32_t i = set->run_nodes; i; i = set->nodes[i].next, nodes++) {
        assert_in_range(i, 1, set->capacity - 1);
        assert_int_equal(all->seen[i]++, 0);
        assert_int_equal(set->nodes[i].handler, 0);
        if (set->nodes[i].next == 0)
            assert_int_equal(i, set->last_run_node);
    }
    for (const kb_node *copy = set->run_first; copy < set->run_end; copy++) {
        const kb_node *node = &set->nodes[copy->next];
        assert_true(all->seen[copy->next] == 1);
        assert_true(node->time == copy->time && node->key == copy->key);
        assert_true(set->base > (uint64_t)copy->time >> set->shift);
        count_event(all, copy);
        if (copy > set->run_first)
            assert_true(kb_before(copy[-1].time, copy[-1].key, copy->time, copy->key));
    }
    if (set->run_first < set->run_end)
        assert_int_equal(nodes, set->run_end - set->run);
}

/* E4: free nodes have handler 0. E6: those never used come last, and in order. */
static inline void check_free(census *all)
{
    const kb_eventset *set = all->set;
    uint32_t highest_used = 0, listed = 0, last = 0;
    bool fresh = false;
    for (uint32_t i = set->free_node; i; i = set->nodes[i].next, listed++) {
        assert_true(i < set->capacity);
        assert_int_equal(all->seen[i]++, 0);
        assert_int_equal(set->nodes[i].handler, 0);
        if (fresh)
            assert_int_equal(i, last + 1);
        fresh |= set->nodes[i].time < 0;
        assert_true((set->nodes[i].time < 0) == fresh);
        last = i;
    }
    if (fresh)
        assert_int_equal(last, set->capacity - 1);
    for (uint32_t i = 1; i < set->capacity; i++) {
        assert_int_equal(all->seen[i], 1); /* in one place or free: no node is lost */
        if (set->nodes[i].time >= 0)
            highest_used = i;
    }
    assert_int_equal(kb_eventset_peak(set), highest_used);
}

static inline void check_invariants(const kb_eventset *set)
{
    census all = {.set = set, .seen = calloc(set->capacity, 1)};
    assert_non_null(all.seen);
    const kb_node *next = set->next;
    if (next != set->nodes) {
        assert_int_not_equal(next->handler, 0);
        if (kb_eventset_is_of_run(set, next)) {
            assert_ptr_equal(next + 1, set->run_first);
            count_event(&all, next);
        } else {
            (void)found(&all, (uint32_t)(next - set->nodes));
        }
    } else {
        assert_int_equal(next->handler, 0);
        assert_true(next->time == KB_FOREVER && next->key == UINT64_MAX);
    }
    check_wheel(&all);
    check_segments(&all);
    check_heap(&all);
    check_run(&all);
    check_free(&all);
    assert_int_equal(kb_eventset_pending(set), all.alive);
    assert_int_equal(set->dead, all.dead);
    free(all.seen);
}

#endif
