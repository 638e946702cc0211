/*
 * eventset.c: the less frequent paths of the event set: growing, far events, crowded buckets, and
 * fitting the wheel to the traffic. eventset.h has the idea, the invariants and the fast paths.
 */
#include "sim/eventset.h"

#include <stdlib.h>
#include <string.h>

/* The wheel aims at this many buckets an event: few are shared then, and few words of bits empty.
 */
enum { BUCKETS_PER_EVENT = 2 };

/*
 * How many times the mean delay a wheel reaches; segments and heap take the rest. Delays of
 * hardware spread over a decade, and moving an event out of its segment costs about as much as
 * adding one; but from some size on a longer wheel costs more in cache misses than it saves.
 */
enum { REACH = 16, LARGE_REACH = 4, LARGE = 1 << 14 };

enum { FIRST_CAPACITY = 256, MAX_CAPACITY = 1 << 30 };
enum { MIN_BUCKETS = 128, MAX_BUCKETS = 1 << 24, MAX_SHIFT = 32 };
enum { FIRST_SHIFT = 20, MIN_WINDOW = 1024, MIN_SWEEP = 64 };

/* ---- Memory ---- */

/* A node that was never used: no event has a negative time. */
static kb_node fresh_node(uint32_t next)
{
    return (kb_node){.time = -1, .next = next};
}

static bool grow(kb_eventset *set)
{
    uint32_t capacity = set->capacity ? 2 * set->capacity : FIRST_CAPACITY;
    if (capacity > MAX_CAPACITY)
        return false;
    kb_node *nodes = kb_alloc_large(2 * (size_t)capacity, sizeof *nodes);
    kb_heap_entry *heap = kb_alloc_large(capacity, sizeof *heap);
    uint64_t *words = kb_alloc_large(capacity, sizeof *words);
    uint64_t *scratch = kb_alloc_large(capacity, sizeof *scratch);
    if (!nodes || !heap || !words || !scratch) {
        free(nodes);
        free(heap);
        free(words);
        free(scratch);
        return false;
    }

    kb_node *run = nodes + capacity, *next = nodes, *run_first = run, *run_end = run;
    if (set->capacity) {
        run_first = run + (set->run_first - set->run);
        run_end = run + (set->run_end - set->run);
        next = kb_eventset_is_of_run(set, set->next) ? run + (set->next - set->run)
                                                     : nodes + (set->next - set->nodes);
        memcpy(nodes, set->nodes, set->capacity * sizeof *nodes);
        memcpy(run, set->run, (size_t)(set->run_end - set->run) * sizeof *run);
        memcpy(heap, set->heap, set->heap_count * sizeof *heap);
    } else {
        nodes[0] = (kb_node){.time = KB_FOREVER, .key = UINT64_MAX};
    }
    free(set->nodes);
    free(set->heap);
    free(set->words);
    free(set->scratch);
    set->nodes = nodes;
    set->run = run;
    set->run_first = run_first;
    set->run_end = run_end;
    set->next = next;
    set->heap = heap;
    set->words = words;
    set->scratch = scratch;

    /* Growing happens when no node is free: the new ones are the list. */
    uint32_t first = set->capacity ? set->capacity : 1;
    for (uint32_t i = first; i < capacity; i++)
        nodes[i] = fresh_node(i + 1 < capacity ? i + 1 : 0);
    set->free_node = first;
    set->capacity = capacity;
    return true;
}

kb_event kb_eventset_push_slowly(kb_eventset *set, kb_time time, uint64_t key, uint32_t handler,
                                 uint64_t arg)
{
    if (!grow(set))
        return (kb_event){.key = key, .slot = 0};
    return kb_eventset_push(set, time, key, handler, arg);
}

uint32_t kb_eventset_peak(const kb_eventset *set)
{
    uint32_t peak = set->capacity - 1;
    while (peak > 0 && set->nodes[peak].time < 0)
        peak--; /* E6 */
    return peak;
}

/* ---- Heap ---- */

static bool entry_before(const kb_heap_entry *a, const kb_heap_entry *b)
{
    return kb_before(a->time, a->key, b->time, b->key);
}

static void heap_push(kb_eventset *set, uint32_t index)
{
    const kb_node *node = &set->nodes[index];
    kb_heap_entry entry = {.time = node->time, .key = node->key, .node = index};
    kb_heap_entry *heap = set->heap;
    uint32_t hole = set->heap_count++;
    while (hole > 0 && entry_before(&entry, &heap[(hole - 1) / 2])) {
        heap[hole] = heap[(hole - 1) / 2];
        hole = (hole - 1) / 2;
    }
    heap[hole] = entry;
    set->heap_time = heap[0].time;
}

static uint32_t heap_pop(kb_eventset *set)
{
    kb_heap_entry *heap = set->heap;
    uint32_t index = heap[0].node;
    uint32_t count = --set->heap_count;
    kb_heap_entry last = heap[count];
    uint32_t hole = 0;
    for (;;) {
        uint32_t child = 2 * hole + 1;
        if (child >= count)
            break;
        if (child + 1 < count && entry_before(&heap[child + 1], &heap[child]))
            child++;
        if (!entry_before(&heap[child], &last))
            break;
        heap[hole] = heap[child];
        hole = child;
    }
    heap[hole] = last;
    set->heap_time = count ? heap[0].time : KB_FOREVER;
    return index;
}

/* ---- Segments ---- */

static uint64_t segment_of(const kb_eventset *set, uint64_t bucket)
{
    return bucket >> set->segment_shift;
}

static uint64_t limit_segment(const kb_eventset *set)
{
    return segment_of(set, set->base + set->span);
}

kb_event kb_eventset_insert_far(kb_eventset *set, uint32_t index, kb_event event)
{
    uint64_t bucket = (uint64_t)set->nodes[index].time >> set->shift;
    uint64_t segment = segment_of(set, bucket);
    if (segment - limit_segment(set) >= KB_SEGMENTS) {
        heap_push(set, index); /* beyond the last segment, or a latecomer before base */
        return event;
    }
    uint32_t slot = (uint32_t)segment % KB_SEGMENTS;
    set->nodes[index].next = set->segments[slot];
    set->segments[slot] = index;
    set->segment_bits |= UINT64_C(1) << slot;
    set->in_segments++;
    return event;
}

static void insert(kb_eventset *set, uint32_t index)
{
    kb_node *node = &set->nodes[index];
    (void)kb_eventset_insert(set, node, index, node->time, (kb_event){0});
}

/* The event becomes `next`; the one that was goes where its time belongs. */
kb_event kb_eventset_put_first(kb_eventset *set, uint32_t index, kb_event event)
{
    kb_node *before = set->next;
    set->next = &set->nodes[index];
    if (kb_eventset_is_of_run(set, before))
        set->run_first--;
    else if (before != set->nodes)
        insert(set, kb_eventset_index(set, before));
    return event;
}

static void set_base(kb_eventset *set, uint64_t base)
{
    set->base = base;
    set->span = ((segment_of(set, base) + 2) << set->segment_shift) - base;
    set->word = ((uint32_t)base & set->mask) >> 6;
}

/* Moves base forward, and into the wheel what thereby comes within its limit. */
static void advance_base(kb_eventset *set, uint64_t base)
{
    if (KB_LIKELY(segment_of(set, set->base ^ base) == 0)) { /* the limit stays */
        set->span -= base - set->base;
        set->base = base;
        set->word = ((uint32_t)base & set->mask) >> 6;
        return;
    }
    uint64_t segment = limit_segment(set);
    uint64_t limit = segment_of(set, base) + 2;
    set_base(set, base);

    if (limit - segment > KB_SEGMENTS)
        limit = segment + KB_SEGMENTS; /* each list once */
    for (; segment < limit && set->in_segments; segment++) {
        uint32_t slot = (uint32_t)segment % KB_SEGMENTS;
        uint32_t index = set->segments[slot];
        set->segments[slot] = 0;
        set->segment_bits &= ~(UINT64_C(1) << slot);
        while (index) {
            uint32_t next = set->nodes[index].next;
            set->in_segments--;
            insert(set, index);
            index = next;
        }
    }
}

/* The first segment that is not empty; there must be one. */
static uint64_t first_segment(const kb_eventset *set)
{
    uint64_t from = limit_segment(set);
    uint32_t turn = (uint32_t)from % KB_SEGMENTS;
    uint64_t bits = set->segment_bits;
    if (turn)
        bits = bits >> turn | bits << (KB_SEGMENTS - turn);
    return from + (uint64_t)__builtin_ctzll(bits);
}

/* ---- Geometry ---- */

static uint32_t words_of(const kb_eventset *set)
{
    return (set->mask + 1) / 64;
}

/* An empty wheel from the bucket `base` on. */
static void reset_wheel(kb_eventset *set, uint64_t base)
{
    memset(set->heads, 0, ((size_t)set->mask + 1) * sizeof *set->heads);
    memset(set->bits, 0, words_of(set) * sizeof *set->bits);
    memset(set->segments, 0, sizeof set->segments);
    set->segment_bits = 0;
    set->in_segments = 0;
    set->in_wheel = 0;
    set->heap_count = 0;
    set->heap_time = KB_FOREVER;
    set_base(set, base);
}

/* False, with all as it was, if there is no memory. */
static bool resize_wheel(kb_eventset *set, uint32_t buckets)
{
    uint32_t *heads = kb_alloc_large(buckets, sizeof *heads);
    uint64_t *bits = kb_alloc_array(buckets / 64, sizeof *bits);
    if (!heads || !bits) {
        free(heads);
        free(bits);
        return false;
    }
    free(set->heads);
    free(set->bits);
    set->heads = heads;
    set->bits = bits;
    set->mask = buckets - 1;
    set->segment_shift = (uint32_t)__builtin_ctz(buckets) - 1;
    return true;
}

/* Adds the events of a list to `found`, or frees those that were cancelled. */
static uint32_t collect_list(kb_eventset *set, uint32_t index, uint32_t *found, uint32_t count)
{
    while (index) {
        uint32_t next = set->nodes[index].next;
        if (set->nodes[index].handler) {
            found[count++] = index;
        } else {
            kb_eventset_release(set, &set->nodes[index]);
            set->dead--;
        }
        index = next;
    }
    return count;
}

/*
 * Lays all events out anew, but `next` and the run, without those that were cancelled. During a run
 * only the number of buckets may change.
 */
static void rebuild(kb_eventset *set, uint32_t shift, uint32_t buckets, bool run)
{
    KB_DEBUG_ASSERT(!run || shift == set->shift);
    uint32_t *found = (uint32_t *)set->scratch;
    uint32_t count = 0;
    for (uint32_t word = 0; word < words_of(set); word++) {
        for (uint64_t bits = set->bits[word]; bits; bits &= bits - 1) {
            uint32_t head = set->heads[word * 64 + (uint32_t)__builtin_ctzll(bits)];
            count = collect_list(set, head, found, count);
        }
    }
    for (uint32_t i = 0; i < KB_SEGMENTS; i++)
        count = collect_list(set, set->segments[i], found, count);
    for (uint32_t i = 0; i < set->heap_count; i++) {
        set->nodes[set->heap[i].node].next = 0;
        count = collect_list(set, set->heap[i].node, found, count);
    }

    if (buckets == set->mask + 1 || resize_wheel(set, buckets))
        set->shift = shift;
    kb_time from = set->next != set->nodes ? set->next->time : set->window_time;
    reset_wheel(set, run ? set->base : (uint64_t)from >> set->shift);
    for (uint32_t i = 0; i < count; i++)
        insert(set, found[i]);
    set->cancels = 0;
}

static uint32_t ceil_log2(uint64_t x)
{
    return x <= 1 ? 0 : 64 - (uint32_t)__builtin_clzll(x - 1);
}

static uint32_t buckets_for(uint32_t pending)
{
    uint64_t reach = pending <= LARGE ? REACH : LARGE_REACH;
    uint64_t buckets = UINT64_C(1) << ceil_log2(reach * pending * BUCKETS_PER_EVENT);
    if (buckets < MIN_BUCKETS)
        return MIN_BUCKETS;
    return buckets < MAX_BUCKETS ? (uint32_t)buckets : MAX_BUCKETS;
}

/*
 * Fits the wheel to the events since the last look: as wide a bucket as gives BUCKETS_PER_EVENT at
 * their rate, and as many buckets as reach a multiple of their mean delay, which by Little's law is
 * pending / rate. Buckets up to four times too narrow and wheels up to four times too long are left
 * alone: they cost little, and what wavers is not rebuilt time and again.
 */
static void tune(kb_eventset *set)
{
    uint64_t taken = set->taken - set->window_taken;
    kb_time elapsed = set->next->time - set->window_time;
    set->window_taken = set->taken;
    set->window_time = set->next->time;
    uint32_t pending = kb_eventset_pending(set), half = pending / 2;
    set->tune_at = set->taken + (half > MIN_WINDOW ? half : MIN_WINDOW);
    if (elapsed <= 0)
        return; /* many at one instant; or before a cancelled event that was next */

    uint64_t width = (uint64_t)elapsed / (taken * BUCKETS_PER_EVENT);
    uint32_t shift = width ? 63 - (uint32_t)__builtin_clzll(width) : 0;
    if (shift > MAX_SHIFT)
        shift = MAX_SHIFT;
    uint32_t buckets = buckets_for(pending);
    uint64_t present = (uint64_t)set->mask + 1;
    bool wrong_width = shift > set->shift + 1 || shift < set->shift;
    bool wrong_size = buckets > present || (uint64_t)buckets * 8 <= present;
    /* A far event that was next for a while, and is not any more, has taken base with it. */
    bool strayed = set->base > ((uint64_t)set->next->time >> set->shift) + set->mask;
    if (wrong_width || wrong_size || strayed)
        rebuild(set, shift, buckets, false);
}

/* ---- Taking the next event ---- */

/* From a word that is used up to the next that is not; the wheel must not be empty. */
static void next_word(kb_eventset *set)
{
    uint32_t last = words_of(set) - 1;
    uint64_t base = set->base & ~UINT64_C(63);
    uint32_t word = set->word;
    do {
        word = (word + 1) & last;
        base += 64;
    } while (set->bits[word] == 0);
    advance_base(set, base);
}

/* The number of the first bucket that is not empty, when it is in the present word. */
static uint64_t first_bucket(const kb_eventset *set)
{
    return (set->base & ~UINT64_C(63)) + (uint64_t)__builtin_ctzll(set->bits[set->word]);
}

/*
 * Sorts a run by time and key. These are longer than words: the upper half of a word is 32 bits of
 * them, and what is equal in these is sorted by the next 32. Times differ in the lowest `time_bits`
 * alone, which come first. The bits of part 0 are in the words already.
 */
enum { LAST_PART = 2 };

static void sort_words(kb_eventset *set, uint64_t *run, uint32_t count, uint32_t time_bits,
                       uint32_t part)
{
    kb_sort_u64(run, set->scratch, count);
    if (part == LAST_PART)
        return;
    for (uint32_t i = 1; i < count; i++) {
        uint32_t first = i - 1;
        if (KB_LIKELY(run[i] >> 32 != run[first] >> 32))
            continue;
        for (; i < count && run[i] >> 32 == run[first] >> 32; i++)
            ;
        for (uint32_t j = first; j < i; j++) {
            uint32_t node = (uint32_t)run[j];
            uint64_t key = set->nodes[node].key;
            run[j] = (part == 0 ? key >> time_bits : key) << 32 | node;
        }
        sort_words(set, run + first, i - first, time_bits, part + 1);
    }
}

/* Makes part 0 of the words: times have to be in them if they differ. */
static uint32_t make_words(const kb_eventset *set, uint64_t *run, uint32_t count,
                           uint64_t difference)
{
    uint32_t time_bits = difference ? 64 - (uint32_t)__builtin_clzll(difference) : 0;
    for (uint32_t i = 0; i < count; i++) {
        const kb_node *node = &set->nodes[(uint32_t)run[i]];
        uint32_t time = (uint32_t)((uint64_t)node->time << (32 - time_bits));
        run[i] = (time | node->key >> 32 >> time_bits) << 32 | (uint32_t)run[i];
    }
    return time_bits;
}

/*
 * Most runs are short, and all their times are the same or all differ. So their order is decided by
 * 31 bits of each event, which are ranked without branches.
 */
enum { RANKED_RUN = 48 };

/* What a list of events has to be ranked by, in the order of the list. */
typedef struct short_run {
    uint32_t count;
    bool goes_on; /* the list is too long for this */
    bool has_one_time;
    uint32_t nodes[RANKED_RUN];
    int32_t keys[KB_RANK_ROOM(RANKED_RUN)]; /* their upper bits */
} short_run;

static inline void read_list(const kb_eventset *set, uint32_t head, short_run *list)
{
    const kb_node *nodes = set->nodes;
    kb_time time = nodes[head].time;
    uint64_t difference = 0;
    uint32_t count = 0, i = head;
    do {
        const kb_node *node = &nodes[i];
        difference |= (uint64_t)(node->time ^ time);
        list->nodes[count] = i;
        list->keys[count] = (int32_t)(node->key >> 33);
        count++;
        i = node->next;
    } while (i && KB_LIKELY(count < RANKED_RUN));
    list->count = count;
    list->goes_on = i != 0;
    list->has_one_time = difference == 0;
}

/* Times in a bucket differ in `shift` bits. */
static __attribute__((noinline)) void read_times(const kb_eventset *set, short_run *list)
{
    uint32_t narrow = set->shift > 31;
    for (uint32_t i = 0; i < list->count; i++)
        list->keys[i] = (int32_t)((uint32_t)set->nodes[list->nodes[i]].time >> narrow & INT32_MAX);
}

/* Copies the event of a node to the run: a handle does not find it there any more (E4). */
static inline void copy_to_run(kb_eventset *set, uint32_t position, uint32_t index)
{
    kb_node *node = &set->nodes[index], *copy = &set->run[position];
    *copy = *node;
    copy->next = index;
    node->handler = 0;
}

/* Copies the events in order to the run; false if 31 bits do not tell their order. */
static bool rank_list(kb_eventset *set, short_run *list)
{
    uint32_t ranks[KB_RANK_ROOM(RANKED_RUN)], count = list->count, sum = 0;
    if (!list->has_one_time)
        read_times(set, list);
    kb_rank_i32(list->keys, count, ranks);
    for (uint32_t i = 0; i < count; i++)
        sum += ranks[i];
    if (KB_UNLIKELY(sum != count * (count - 1) / 2)) /* less if some are equal */
        return false;
    for (uint32_t i = 0; i < count; i++)
        copy_to_run(set, ranks[i], list->nodes[i]);
    return true;
}

/*
 * A list of events as words: what orders each, and its node. What orders it is its source and
 * whether it is not the source's first event of all, as credits of the net are.
 */
typedef struct long_run {
    uint64_t *words; /* at the end of set->words, in the order in which they were scheduled */
    uint32_t count;
    uint32_t least, most; /* of what orders them */
    uint64_t difference;  /* of their times: 0 if they share it */
} long_run;

/* Ascends with the key, though not strictly: see kb_source_make(). */
static inline uint32_t order_of(uint64_t key)
{
    enum { SOURCE_SHIFT = 40 };
    return (uint32_t)(key >> SOURCE_SHIFT) << 1 | ((key << (64 - SOURCE_SHIFT)) != 0);
}

/*
 * Copies events that share their time to the run in order, if their sources are near each other, as
 * where a whole machine acts in step: each has a place in a table. False if they are not, or if two
 * have one place.
 */
static bool place_list(kb_eventset *set, const long_run *list)
{
    enum { SPARSE = 32 };
    uint32_t count = list->count, range = list->most - list->least + 1;
    uint32_t words = range / 64 + 1;
    if (range / SPARSE > count || count > UINT16_MAX || words + range / 4 + 1 > set->capacity)
        return false;
    uint64_t *bits = set->scratch;
    uint16_t *positions = (uint16_t *)(bits + words);
    memset(bits, 0, words * sizeof *bits);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t place = (uint32_t)(list->words[i] >> 32) - list->least;
        uint64_t bit = UINT64_C(1) << place % 64;
        if (KB_UNLIKELY(bits[place / 64] & bit))
            return false;
        bits[place / 64] |= bit;
        positions[place] = (uint16_t)i;
    }
    uint32_t end = 0;
    for (uint32_t word = 0; word < words; word++)
        for (uint64_t left = bits[word]; left; left &= left - 1) {
            uint32_t place = word * 64 + (uint32_t)__builtin_ctzll(left);
            copy_to_run(set, end++, (uint32_t)list->words[positions[place]]);
        }
    return true;
}

/*
 * The list has the newest event first. Turned round, it is mostly in order already, or made of a
 * few ordered stretches; so it fills the array from the end.
 */
static long_run read_long_list(kb_eventset *set, uint32_t head)
{
    const kb_node *nodes = set->nodes;
    uint64_t *end = set->words + set->capacity, *word = end;
    uint64_t difference = 0;
    uint32_t least = UINT32_MAX, most = 0;
    kb_time time = nodes[head].time;
    for (uint32_t i = head; i; i = nodes[i].next) {
        uint32_t order = order_of(nodes[i].key);
        difference |= (uint64_t)(nodes[i].time ^ time);
        least = order < least ? order : least;
        most = order > most ? order : most;
        *--word = (uint64_t)order << 32 | i;
        set->last_run_node = i;
    }
    return (long_run){.words = word,
                      .count = (uint32_t)(end - word),
                      .least = least,
                      .most = most,
                      .difference = difference};
}

/* Copies the events of a list of any length to the run, in order; returns how many they are. */
static __attribute__((noinline)) uint32_t sort_list(kb_eventset *set, uint32_t head)
{
    long_run list = read_long_list(set, head);
    if (list.difference == 0 && place_list(set, &list))
        return list.count;
    uint32_t time_bits = make_words(set, list.words, list.count, list.difference);
    sort_words(set, list.words, list.count, time_bits, 0);
    for (uint32_t i = 0; i < list.count; i++)
        copy_to_run(set, i, (uint32_t)list.words[i]);
    return list.count;
}

/* Gives the nodes of the run back, which is over. */
static inline void end_run(kb_eventset *set)
{
    if (set->run_nodes == 0)
        return;
    set->nodes[set->last_run_node].next = set->free_node;
    set->free_node = set->run_nodes;
    set->run_nodes = 0;
}

/* Makes the first bucket of the wheel the run. */
static void start_run(kb_eventset *set)
{
    uint64_t bucket = first_bucket(set);
    uint32_t slot = (uint32_t)bucket & set->mask;
    short_run list;
    end_run(set);
    uint32_t head = set->heads[slot];
    read_list(set, head, &list);
    uint32_t count = list.count;
    set->run_nodes = head;
    set->last_run_node = list.nodes[count - 1];
    if (KB_UNLIKELY(list.goes_on || !rank_list(set, &list)))
        count = sort_list(set, head);

    set->run_first = set->run;
    set->run_end = set->run + count;
    set->in_wheel -= count;
    set->heads[slot] = 0;
    set->bits[set->word] &= set->bits[set->word] - 1;
    advance_base(set, bucket + 1); /* E3 */
}

/* The next of the run; or of the heap, if something there comes before it. */
static kb_node *take_from_run(kb_eventset *set)
{
    kb_node *first = set->run_first;
    if (KB_UNLIKELY(set->heap_time <= first->time) &&
        kb_before(set->heap[0].time, set->heap[0].key, first->time, first->key))
        return &set->nodes[heap_pop(set)];
    set->run_first++;
    return first;
}

/* From the heap, when all else is later: the wheel, if it is empty, goes along with the clock. */
static kb_node *take_from_heap(kb_eventset *set)
{
    uint64_t bucket = (uint64_t)set->heap_time >> set->shift;
    if (set->in_wheel == 0 && bucket > set->base)
        advance_base(set, bucket);
    return &set->nodes[heap_pop(set)];
}

/* The earliest event, when there is no run; nodes[0] if there is none at all. */
static kb_node *take_earliest(kb_eventset *set)
{
    if (set->in_wheel == 0 && set->in_segments) {
        uint64_t bucket = first_segment(set) << set->segment_shift;
        if (set->heap_count && (uint64_t)set->heap_time >> set->shift < bucket)
            return take_from_heap(set);
        advance_base(set, bucket);
    }
    if (set->in_wheel == 0)
        return set->heap_count ? take_from_heap(set) : set->nodes;
    if (set->bits[set->word] == 0)
        next_word(set);
    if (set->heap_count && (uint64_t)set->heap_time >> set->shift < first_bucket(set))
        return &set->nodes[heap_pop(set)];
    start_run(set);
    return take_from_run(set);
}

/* Makes the earliest event that was not cancelled the next. */
static __attribute__((noinline)) void stage_any(kb_eventset *set)
{
    for (;;) {
        bool run = set->run_first < set->run_end;
        if (!run && set->taken >= set->tune_at)
            tune(set);
        if (!run && set->in_wheel && set->bits[set->word] == 0) {
            next_word(set);
            kb_eventset_stage(set); /* as usual again */
            return;
        }
        kb_node *node = run ? take_from_run(set) : take_earliest(set);
        if (node == set->nodes || node->handler) {
            set->next = node;
            return;
        }
        kb_eventset_release(set, node);
        set->dead--;
    }
}

void kb_eventset_stage_slowly(kb_eventset *set)
{
    if (set->in_wheel + set->in_segments + set->heap_count == 0 && set->run_first == set->run_end)
        set->next = set->nodes;
    else
        stage_any(set);
}

/* ---- The rest ---- */

/* The event's copy in the run; NULL if it is not there. */
static kb_node *find_in_run(const kb_eventset *set, kb_event event)
{
    for (kb_node *copy = set->run_first - kb_eventset_is_of_run(set, set->next);
         copy < set->run_end; copy++)
        if (copy->next == event.slot && copy->key == event.key && copy->handler)
            return copy;
    return NULL;
}

bool kb_eventset_cancel(kb_eventset *set, kb_event event)
{
    if (event.slot == 0 || event.slot >= set->capacity)
        return false;
    kb_node *node = &set->nodes[event.slot];
    if (node->handler == 0)
        node = find_in_run(set, event);
    if (!node || node->key != event.key)
        return false;
    if (node == set->next) {
        kb_eventset_release(set, node);
        kb_eventset_stage(set);
    } else {
        node->handler = 0;
        set->dead++;
    }
    uint32_t pending = kb_eventset_pending(set);
    if (++set->cancels >= MIN_SWEEP && set->cancels > pending) {
        bool run = set->run_first < set->run_end || kb_eventset_is_of_run(set, set->next);
        rebuild(set, set->shift, buckets_for(pending), run);
    }
    return true;
}

void kb_eventset_clear(kb_eventset *set)
{
    /* In this order: the peak is remembered by which nodes are fresh. */
    uint32_t used = kb_eventset_peak(set);
    for (uint32_t i = 1; i <= used; i++) {
        set->nodes[i].handler = 0;
        set->nodes[i].next = i + 1 < set->capacity ? i + 1 : 0;
    }
    set->free_node = 1;
    set->dead = 0;
    set->cancels = 0;
    set->run_first = set->run_end = set->run;
    set->run_nodes = 0;
    if (set->mask + 1 > MIN_BUCKETS)
        (void)resize_wheel(set, MIN_BUCKETS); /* keeps the old one if there is no memory */
    set->tune_at = set->taken + MIN_WINDOW;
    reset_wheel(set, (uint64_t)set->window_time >> set->shift);
    set->next = set->nodes;
}

bool kb_eventset_init(kb_eventset *set)
{
    *set = (kb_eventset){.shift = FIRST_SHIFT, .tune_at = MIN_WINDOW};
    if (!grow(set) || !resize_wheel(set, MIN_BUCKETS)) {
        kb_eventset_fini(set);
        return false;
    }
    reset_wheel(set, 0);
    set->next = set->nodes;
    return true;
}

void kb_eventset_fini(kb_eventset *set)
{
    free(set->nodes);
    free(set->heap);
    free(set->words);
    free(set->scratch);
    free(set->heads);
    free(set->bits);
    *set = (kb_eventset){0};
}
