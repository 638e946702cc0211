/*
 * races_find.c: which accesses to the same bytes are not ordered.
 *
 * Accesses are gone through in an order that respects the order of the program and of messages: by
 * the clock at which each could begin. For each byte and each PE the last read and the last write
 * so far are kept: if the last of a PE comes before an access, all before it do too, and if it does
 * not, it is a race, as what comes later in this order comes before nothing earlier. So each access
 * is compared with one of each PE, not with all.
 *
 * "Comes before" is a comparison of two numbers: how many messages the PE had sent when it made the
 * first access, and how many of its messages are known at the second. Accesses that wait for a
 * receive come before few sends: these are counted by themselves.
 *
 * A clock has a column for each PE that is looked at. If there are too many points and PEs for
 * memory, columns are computed some at a time.
 */
#include "races_private.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_FLAGS = 256 }; /* of a late access: receives that it waits for */

/* Whose accesses are ordered alike: a run's, or those of a run that wait for a point. */
typedef struct column {
    uint32_t run;
    tl_point after; /* 0: the run's */
} column;

/* The last accesses of a column to some bytes, and those of the next column. Numbers + 1. */
typedef struct cell {
    uint32_t column;
    uint32_t last[2]; /* read, write */
    uint32_t next;
} cell;

typedef struct finder {
    const tl_races *races;
    race_index index;
    tl_race_fn *found;
    void *self;
    race_windows windows;
    uint64_t *times; /* of points */

    KB_VEC(column) columns; /* sorted: those of runs first */
    const column *in_hand;  /* some of these, */
    size_t hand_count;
    tl_order_columns counted; /* the same, as the order sees them */
    uint32_t *clocks;
    size_t row; /* numbers of a clock */

    /* Of a window. */
    race_spans spans;
    KB_VEC(uint64_t) bounds; /* where spans begin and end */
    uint32_t *heads;         /* the first cell of what is between two bounds */
    KB_VEC(cell) cells;
} finder;

/* ---- Columns ---- */

static int by_column(const void *a, const void *b)
{
    const column *x = a, *y = b;
    if ((x->after != 0) != (y->after != 0))
        return x->after != 0 ? 1 : -1;
    if (x->after != y->after)
        return x->after < y->after ? -1 : 1;
    return x->run < y->run ? -1 : x->run > y->run;
}

static column column_of_access(const race_access *access)
{
    return (column){.run = access->run, .after = access->late ? access->after : 0};
}

/* All that have an access in a window, each once. */
static kb_error *list_columns(finder *f)
{
    for (size_t w = 0; w < f->windows.count; w++) {
        f->spans.count = 0;
        KB_TRY(race_list_spans(&f->index, &f->windows.items[w], &f->spans));
        for (size_t i = 0; i < f->spans.count; i++) {
            column c = column_of_access(&f->races->accesses.items[f->spans.items[i].access]);
            size_t known = f->columns.count;
            if (known > 0 && by_column(&f->columns.items[known - 1], &c) == 0)
                continue;
            if (!kb_vec_push(&f->columns, c))
                return kb_error_nomem();
        }
    }
    if (f->columns.count > 0)
        qsort(f->columns.items, f->columns.count, sizeof *f->columns.items, by_column);
    size_t left = 0;
    for (size_t i = 0; i < f->columns.count; i++)
        if (left == 0 || by_column(&f->columns.items[left - 1], &f->columns.items[i]) != 0)
            f->columns.items[left++] = f->columns.items[i];
    f->columns.count = left;
    return NULL;
}

static uint32_t thread_of(const finder *f, uint32_t run)
{
    return f->races->runs.items[run].thread;
}

/* Its number among those in hand; UINT32_MAX: it is none of them. */
static uint32_t find_column(const finder *f, const race_access *access)
{
    if (!access->late)
        return f->counted.of_thread[thread_of(f, access->run)];
    column key = column_of_access(access);
    const column *is = bsearch(&key, f->in_hand, f->hand_count, sizeof key, by_column);
    return is ? (uint32_t)(is - f->in_hand) : UINT32_MAX;
}

/* Takes in a column of accesses that wait. */
static kb_error *add_late(finder *f, const column *is)
{
    tl_order_columns *counted = &f->counted;
    uint32_t thread = thread_of(f, is->run);
    tl_order_late late = {.first = (uint32_t)counted->flags.count,
                          .next = counted->first_late[thread]};
    if (!tl_order_list_receives(f->races->order, is->after, &counted->flags))
        return kb_error_nomem();
    late.count = (uint32_t)counted->flags.count - late.first;
    if (late.count > MAX_FLAGS) { /* only sends that wait for the same join come after them */
        late.count = 1;
        counted->flags.items[late.first] = is->after;
        counted->flags.count = late.first + 1;
    }
    if (!kb_vec_push(&counted->late, late))
        return kb_error_nomem();
    counted->first_late[thread] = (uint32_t)counted->late.count;
    return NULL;
}

/* Takes the next columns in hand, from `first` on: as many as clocks have room for. */
static kb_error *take_columns(finder *f, size_t first)
{
    const tl_order *order = f->races->order;
    tl_order_columns *counted = &f->counted;
    size_t most = f->races->limits.clock_numbers / order->nodes.count;
    counted->thread_count = counted->late.count = counted->flags.count = 0;
    for (uint32_t i = 0; i <= order->threads; i++) {
        counted->of_thread[i] = UINT32_MAX;
        counted->first_late[i] = 0;
    }
    f->in_hand = f->columns.items + first;
    f->hand_count = 0;
    while (first + f->hand_count < f->columns.count &&
           (f->hand_count == 0 || tl_order_row(counted) < most)) {
        const column *is = &f->in_hand[f->hand_count++];
        if (is->after != 0)
            KB_TRY(add_late(f, is));
        else
            counted->of_thread[thread_of(f, is->run)] = (uint32_t)counted->thread_count++;
    }
    f->row = tl_order_row(counted);
    free(f->clocks);
    f->clocks = kb_alloc_array(order->nodes.count, f->row * sizeof *f->clocks);
    if (!f->clocks || !tl_order_clocks(order, counted, f->clocks))
        return kb_error_nomem();
    return NULL;
}

/* ---- A window ---- */

/* When it could begin, on the clock. */
static uint64_t begin_of(const finder *f, const race_access *access)
{
    uint64_t reached = f->times[access->reached], after = f->times[access->after];
    uint64_t later = reached > after ? reached : after;
    return later > access->tick ? later : access->tick;
}

typedef struct ordered_span {
    uint64_t begin;
    race_span span;
} ordered_span;

static int by_begin(const void *a, const void *b)
{
    const ordered_span *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->span.access != y->span.access)
        return x->span.access < y->span.access ? -1 : 1;
    return x->span.start < y->span.start ? -1 : x->span.start > y->span.start;
}

/* Brings the spans into the order in which they could begin. */
static kb_error *sort_spans(finder *f)
{
    ordered_span *list = kb_alloc_array(f->spans.count, sizeof *list);
    if (!list)
        return kb_error_nomem();
    for (size_t i = 0; i < f->spans.count; i++)
        list[i] = (ordered_span){
            .begin = begin_of(f, &f->races->accesses.items[f->spans.items[i].access]),
            .span = f->spans.items[i]};
    qsort(list, f->spans.count, sizeof *list, by_begin);
    for (size_t i = 0; i < f->spans.count; i++)
        f->spans.items[i] = list[i].span;
    free(list);
    return NULL;
}

static int by_number(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

static kb_error *list_bounds(finder *f)
{
    f->bounds.count = 0;
    if (!kb_vec_reserve(&f->bounds, 2 * f->spans.count))
        return kb_error_nomem();
    uint64_t *items = f->bounds.items;
    size_t count = 0, left = 0;
    for (size_t i = 0; i < f->spans.count; i++) {
        items[count++] = f->spans.items[i].start;
        items[count++] = f->spans.items[i].end;
    }
    qsort(items, count, sizeof *items, by_number);
    for (size_t i = 0; i < count; i++)
        if (left == 0 || items[left - 1] != items[i])
            items[left++] = items[i];
    f->bounds.count = left;
    free(f->heads);
    f->heads = kb_alloc_zeroed(left, sizeof *f->heads);
    return f->heads ? NULL : kb_error_nomem();
}

static size_t find_bound(const finder *f, uint64_t at)
{
    const uint64_t *is = bsearch(&at, f->bounds.items, f->bounds.count, sizeof at, by_number);
    KB_ASSERT(is);
    return (size_t)(is - f->bounds.items);
}

/* Whether an earlier access, of the column, is ordered before this one. */
static bool comes_before(const finder *f, const race_access *first, uint32_t col,
                         const race_access *second)
{
    uint32_t reached = f->clocks[second->reached * f->row + col];
    uint32_t after = f->clocks[second->after * f->row + col];
    return (reached > after ? reached : after) > first->sends;
}

static tl_race_side side_of(const finder *f, const race_access *access)
{
    const race_run *run = &f->races->runs.items[access->run];
    return (tl_race_side){.pe = run->pe,
                          .kernel = run->kernel,
                          .launch = run->launch,
                          .stream = run->stream,
                          .scope = run->scope,
                          .number = run->number,
                          .call = access->call,
                          .file = access->file,
                          .line = access->line,
                          .writes = access->writes,
                          .time = access->time,
                          .id = access->tick};
}

static kb_location location_of(const tl_races *races, uint64_t memory, uint64_t offset)
{
    const topo_shape *shape = races->shape;
    uint64_t pe = memory / KB_VIRTUAL, cube = pe / shape->pes;
    return (kb_location){.memory = (kb_memory)(memory % KB_VIRTUAL),
                         .pe = {(uint32_t)(cube / shape->cubes), (uint32_t)(cube % shape->cubes),
                                (uint32_t)(pe % shape->pes)},
                         .offset = offset};
}

/* Reports name the access first that was issued first, however far kernels ran ahead. */
static bool was_issued_before(const tl_race_side *a, const tl_race_side *b)
{
    const uint64_t x[] = {(uint64_t)a->time, a->pe.sip, a->pe.cube, a->pe.pe, a->id};
    const uint64_t y[] = {(uint64_t)b->time, b->pe.sip, b->pe.cube, b->pe.pe, b->id};
    size_t i = 0;
    while (i + 1 < sizeof x / sizeof x[0] && x[i] == y[i])
        i++;
    return x[i] < y[i];
}

static void tell(const finder *f, const race_access *one, const race_access *other, size_t bound)
{
    const uint64_t *at = &f->bounds.items[bound];
    tl_race_side a = side_of(f, one), b = side_of(f, other);
    bool is_first = was_issued_before(&a, &b);
    tl_race race = {.first = is_first ? a : b,
                    .second = is_first ? b : a,
                    .at = location_of(f->races, one->at.memory, at[0]),
                    .bytes = at[1] - at[0]};
    f->found(f->self, &race);
}

/* Compares with all that touched these bytes before. */
static void compare(const finder *f, const race_access *access, size_t bound)
{
    const race_access *all = f->races->accesses.items;
    for (uint32_t c = f->heads[bound]; c != 0; c = f->cells.items[c - 1].next) {
        const cell *is = &f->cells.items[c - 1];
        if (f->in_hand[is->column].run == access->run)
            continue;
        for (int writes = access->writes ? 0 : 1; writes < 2; writes++) {
            if (is->last[writes] == 0)
                continue;
            const race_access *other = &all[is->last[writes] - 1];
            if (!comes_before(f, other, is->column, access))
                tell(f, other, access, bound);
        }
    }
}

/* It is the last of its column now, unless one with more sends before it was there. */
static kb_error *keep(finder *f, uint32_t number, uint32_t col, size_t bound)
{
    const race_access *all = f->races->accesses.items, *access = &all[number];
    cell *is = NULL;
    for (uint32_t c = f->heads[bound]; c != 0 && !is; c = f->cells.items[c - 1].next)
        if (f->cells.items[c - 1].column == col)
            is = &f->cells.items[c - 1];
    if (!is) {
        if (!kb_vec_push(&f->cells, ((cell){.column = col, .next = f->heads[bound]})))
            return kb_error_nomem();
        f->heads[bound] = (uint32_t)f->cells.count;
        is = &f->cells.items[f->cells.count - 1];
    }
    uint32_t *last = &is->last[access->writes];
    if (*last == 0 || all[*last - 1].sends <= access->sends)
        *last = number + 1;
    return NULL;
}

static kb_error *search_window(finder *f, const race_window *window)
{
    f->spans.count = 0;
    f->cells.count = 0;
    KB_TRY(race_list_spans(&f->index, window, &f->spans));
    KB_TRY(sort_spans(f));
    KB_TRY(list_bounds(f));
    for (size_t i = 0; i < f->spans.count; i++) {
        const race_span *span = &f->spans.items[i];
        const race_access *access = &f->races->accesses.items[span->access];
        if (begin_of(f, access) == UINT64_MAX)
            break; /* this one and those behind it never began */
        uint32_t col = find_column(f, access);
        for (size_t b = find_bound(f, span->start); f->bounds.items[b] < span->end; b++) {
            compare(f, access, b);
            if (col != UINT32_MAX)
                KB_TRY(keep(f, span->access, col, b));
        }
    }
    return NULL;
}

/* ---- All of it ---- */

static kb_error *search(finder *f)
{
    const tl_order *order = f->races->order;
    KB_TRY(list_columns(f));
    f->times = tl_order_times(order);
    f->counted.of_thread = kb_alloc_array((size_t)order->threads + 1, sizeof(uint32_t));
    f->counted.first_late = kb_alloc_array((size_t)order->threads + 1, sizeof(uint32_t));
    if (!f->times || !f->counted.of_thread || !f->counted.first_late)
        return kb_error_nomem();
    for (size_t first = 0; first < f->columns.count; first += f->hand_count) {
        KB_TRY(take_columns(f, first));
        for (size_t w = 0; w < f->windows.count; w++)
            KB_TRY(search_window(f, &f->windows.items[w]));
    }
    return NULL;
}

kb_error *tl_races_find(const tl_races *races, tl_race_fn *found, void *self, bool *cut_off)
{
    finder f = {.races = races, .found = found, .self = self};
    *cut_off = races->cut_off;
    kb_error *err = race_index_make(races, &f.index);
    if (!err)
        err = race_find_windows(&f.index, &f.windows);
    if (!err && f.windows.count > 0)
        err = search(&f);
    race_index_fini(&f.index);
    kb_vec_fini(&f.windows);
    kb_vec_fini(&f.columns);
    kb_vec_fini(&f.spans);
    kb_vec_fini(&f.bounds);
    kb_vec_fini(&f.cells);
    free(f.heads);
    free(f.times);
    kb_vec_fini(&f.counted.late);
    kb_vec_fini(&f.counted.flags);
    free(f.counted.of_thread);
    free(f.counted.first_late);
    free(f.clocks);
    return err;
}
