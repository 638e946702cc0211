/*
 * dma.c: copies of the host by the DMAs of the PEs. What is to be moved is cut into pieces, each
 * contiguous in one memory at both ends. A piece is commands to the two engines of its PE's DMA
 * (units.h), which kernels use too:
 *
 *     from memory to memory    a read, and when that has ended a write
 *     into the own TCM         a read
 *     out of the own TCM       a write
 *     inside the own TCM       a read and a write at a time: the engine that reads puts bytes into
 *                              the TCM, the one that writes takes them out
 *     a fill                   a write, or a read into the own TCM: nothing is there to be read
 *
 * Pieces that are only read or only written are as long as they can be, and are issued at once.
 * What is both goes in smaller ones, of which at most PE_DMA_READ_AHEAD_BYTES are under way to the
 * DMA: memories answer all who read in turns, so if all were asked for at once all would come at
 * the end, and nothing could be written before.
 *
 * Pieces wait for others of the same call, which is no queueing: it is their bytes that take time.
 * So of what is left of the time of a call without the overhead and wire of the piece that ended
 * last, as much is drain as all pieces would have drained one after the other, and the rest is
 * queueing: for links, memories, channels of the DMA and the TCM. (What they overlap may hide that
 * much queueing.)
 */
#include "dma.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { NONE = 0 }; /* of pieces and jobs: pools give out no index 0 */

/* What a call moves at a time. */
typedef struct segment {
    kb_location from, to;
    uint64_t bytes;
    bool fill;
    bool copies; /* contents */
    bool reads;  /* through the fabric */
    bool writes;
} segment;

typedef struct piece {
    segment moves;
    kb_time overhead, wire; /* of its transfers so far */
    uint32_t commands;      /* that have not ended */
    uint32_t job;
    uint32_t next; /* that waits for its turn */
} piece;

/* What one call started. */
typedef struct job {
    pe_dma_done_fn *done; /* NULL: the caller was aborted */
    void *self;
    uint64_t arg;
    kb_time issued;
    kb_time drain;        /* of all commands so far */
    uint64_t ahead;       /* bytes asked for that are to be written */
    kb_pe pe;             /* of the DMA */
    uint32_t left;        /* pieces that have not ended */
    uint32_t first, last; /* pieces that wait for their turn */
} job;

/* A part of a memory. */
typedef struct span {
    uint64_t memory; /* which one */
    uint64_t start, end;
} span;

struct pe_dma {
    pe_dma_options has;
    kb_pool jobs, pieces;
    KB_VEC(segment) segments; /* of the call in hand */
    KB_VEC(span) spans;       /* and what it writes to */
};

static job *job_at(const pe_dma *dma, uint32_t index)
{
    return kb_pool_at(&dma->jobs, index);
}

static piece *piece_at(const pe_dma *dma, uint32_t index)
{
    return kb_pool_at(&dma->pieces, index);
}

kb_error *pe_dma_create(const pe_dma_options *options, pe_dma **out)
{
    *out = NULL;
    pe_dma *dma = kb_alloc_zeroed(1, sizeof *dma);
    if (!dma)
        return kb_error_nomem();
    dma->has = *options;
    kb_pool_init(&dma->jobs, sizeof(job));
    kb_pool_init(&dma->pieces, sizeof(piece));
    *out = dma;
    return NULL;
}

void pe_dma_destroy(pe_dma *dma)
{
    if (!dma)
        return;
    kb_vec_fini(&dma->spans);
    kb_vec_fini(&dma->segments);
    kb_pool_fini(&dma->pieces);
    kb_pool_fini(&dma->jobs);
    free(dma);
}

/* ---- Cutting ----------------------------------------------------------------------------- */

static bool is_own_tcm(const kb_location *at, kb_pe pe)
{
    return at->memory == KB_TCM && at->pe.sip == pe.sip && at->pe.cube == pe.cube &&
           at->pe.pe == pe.pe;
}

/* Who does it. */
typedef struct actor {
    kb_pe pe;
    const char *who;
} actor;

static kb_error *check_bounds(const pe_dma *dma, actor by, const kb_location *at, uint64_t bytes)
{
    kb_error *err = mem_memories_check(dma->has.memories, at, bytes);
    return err ? kb_error_wrap(err, "%s on %s", by.who, topo_pe_name(by.pe).text) : NULL;
}

/* Where byte `at` of what is at `whole` is, and how many of `*bytes` from there on are together. */
static kb_error *resolve(const pe_dma *dma, actor by, const kb_location *whole, uint64_t at,
                         kb_location *place, uint64_t *bytes)
{
    if (whole->memory != KB_VIRTUAL) { /* checked already */
        *place = *whole;
        place->offset += at;
        return NULL;
    }
    const mem_mmu *mmu = dma->has.mmus[by.pe.sip];
    uint64_t run, va = whole->offset + at;
    if (!mem_mmu_translate(mmu, by.pe.cube, by.pe.pe, va, place, &run))
        return mem_mmu_fault(mmu, by.who, by.pe.cube, by.pe.pe, va);
    *bytes = run < *bytes ? run : *bytes;
    return check_bounds(dma, by, place, *bytes);
}

/* The first ones are smaller, so that not all that are asked for at once come at once. */
static uint64_t limit_of_copies(size_t index)
{
    enum { ahead = PE_DMA_READ_AHEAD_BYTES / PE_DMA_PIECE_BYTES };
    return index < ahead ? (index + 1) * (PE_DMA_PIECE_BYTES / ahead) : PE_DMA_PIECE_BYTES;
}

static kb_error *cut_move(pe_dma *dma, actor by, const pe_move *move)
{
    if (move->bytes == 0)
        return kb_error_new(KB_ERR_BUG, "DMA transfer of 0 bytes");
    if (!move->fill && move->from.memory != KB_VIRTUAL)
        KB_TRY(check_bounds(dma, by, &move->from, move->bytes));
    if (move->to.memory != KB_VIRTUAL)
        KB_TRY(check_bounds(dma, by, &move->to, move->bytes));
    size_t index = 0;
    for (uint64_t at = 0; at < move->bytes; index++) {
        segment s = {.bytes = move->bytes - at, .fill = move->fill};
        if (!move->fill)
            KB_TRY(resolve(dma, by, &move->from, at, &s.from, &s.bytes));
        KB_TRY(resolve(dma, by, &move->to, at, &s.to, &s.bytes));
        s.reads = !move->fill && !is_own_tcm(&s.from, by.pe);
        s.writes = !is_own_tcm(&s.to, by.pe);
        s.copies = !move->fill && !move->time_only;
        uint64_t limit = limit_of_copies(index);
        if (s.reads && s.writes && s.bytes > limit)
            s.bytes = limit;
        if (!kb_vec_push(&dma->segments, s))
            return kb_error_nomem();
        at += s.bytes;
    }
    return NULL;
}

static kb_error *cut(pe_dma *dma, actor by, const pe_move *moves, size_t count)
{
    const topo_shape *shape = topo_machine_shape(dma->has.machine);
    if (!topo_has_pe(shape, by.pe))
        return kb_error_new(KB_ERR_BUG, "no such DMA: %s", topo_pe_name(by.pe).text);
    dma->segments.count = 0;
    for (size_t i = 0; i < count; i++)
        KB_TRY(cut_move(dma, by, &moves[i]));
    return NULL;
}

/* ---- Contents ---------------------------------------------------------------------------- */

static span span_of(const pe_dma *dma, const kb_location *at, uint64_t bytes)
{
    return (span){.memory = mem_memory_index(topo_machine_shape(dma->has.machine), at),
                  .start = at->offset,
                  .end = at->offset + bytes};
}

static int by_place(const void *a, const void *b)
{
    const span *x = a, *y = b;
    if (x->memory != y->memory)
        return x->memory < y->memory ? -1 : 1;
    return (x->start > y->start) - (x->start < y->start);
}

/* Whether one of the sorted spans meets it. Each one's end is the largest so far in its memory. */
static bool meets(const span *sorted, size_t count, const span *s)
{
    size_t low = 0, high = count; /* those before low start before the end of s */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const span *m = &sorted[middle];
        if (m->memory < s->memory || (m->memory == s->memory && m->start < s->end))
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 && sorted[low - 1].memory == s->memory && sorted[low - 1].end > s->start;
}

/* Whether something is written to that is read as well. */
static kb_error *find_overlap(pe_dma *dma, bool *found)
{
    *found = false;
    dma->spans.count = 0;
    for (size_t i = 0; i < dma->segments.count; i++) {
        const segment *s = &dma->segments.items[i];
        if (s->copies && !kb_vec_push(&dma->spans, span_of(dma, &s->to, s->bytes)))
            return kb_error_nomem();
    }
    span *spans = dma->spans.items;
    size_t count = dma->spans.count;
    if (count == 0)
        return NULL;
    qsort(spans, count, sizeof *spans, by_place);
    for (size_t i = 1; i < count; i++)
        if (spans[i].memory == spans[i - 1].memory && spans[i].end < spans[i - 1].end)
            spans[i].end = spans[i - 1].end;
    for (size_t i = 0; i < dma->segments.count && !*found; i++) {
        const segment *s = &dma->segments.items[i];
        span read = span_of(dma, &s->from, s->bytes);
        *found = s->copies && meets(spans, count, &read);
    }
    return NULL;
}

/* Reads everything before it writes anything. */
static kb_error *copy_by_buffer(pe_dma *dma)
{
    uint64_t bytes = 0; /* of memories that exist: it fits */
    for (size_t i = 0; i < dma->segments.count; i++)
        bytes += dma->segments.items[i].copies ? dma->segments.items[i].bytes : 0;
    unsigned char *buffer = kb_alloc_array(bytes, 1), *next = buffer;
    if (!buffer)
        return kb_error_nomem();
    for (size_t i = 0; i < dma->segments.count; i++) {
        const segment *s = &dma->segments.items[i];
        if (!s->copies)
            continue;
        mem_memories_read(dma->has.memories, &s->from, next, s->bytes);
        next += s->bytes;
    }
    kb_error *err = NULL;
    next = buffer;
    for (size_t i = 0; i < dma->segments.count && !err; i++) {
        const segment *s = &dma->segments.items[i];
        if (!s->copies)
            continue;
        err = mem_memories_write(dma->has.memories, &s->to, next, s->bytes);
        next += s->bytes;
    }
    free(buffer);
    return err;
}

static kb_error *copy_contents(pe_dma *dma)
{
    bool overlaps;
    if (dma->has.store)
        KB_TRY(data_settle(dma->has.store));
    KB_TRY(find_overlap(dma, &overlaps));
    if (overlaps)
        return copy_by_buffer(dma);
    for (size_t i = 0; i < dma->segments.count; i++) {
        const segment *s = &dma->segments.items[i];
        if (s->copies)
            KB_TRY(mem_memories_copy(dma->has.memories, &s->to, &s->from, s->bytes));
    }
    return NULL;
}

/* ---- Commands ---------------------------------------------------------------------------- */

static bool is_copy_of_memories(const piece *pc)
{
    return pc->moves.reads && pc->moves.writes;
}

/* At one end of a piece is the TCM, unless the DMA makes up the bytes. */
static kb_time tcm_time(const pe_dma *dma, const piece *pc)
{
    const topo_shape *shape = topo_machine_shape(dma->has.machine);
    return topo_rate_time(shape->pe.tcm_bytes_per_s, pc->moves.bytes);
}

static void on_moved(void *self, uint64_t arg, const net_completion *moved)
{
    pe_dma *dma = self;
    piece *pc = piece_at(dma, (uint32_t)arg);
    kb_time in_tcm = pc->moves.fill ? 0 : tcm_time(dma, pc);
    pc->overhead += moved->overhead;
    pc->wire += moved->wire;
    job_at(dma, pc->job)->drain += moved->drain > in_tcm ? moved->drain : in_tcm;
}

/* What the call took, when its last piece has ended. */
static net_completion sum_up(const job *jb, const piece *last, kb_time now)
{
    kb_time left = now - jb->issued - last->overhead - last->wire;
    kb_time drain = left < jb->drain ? left : jb->drain;
    return (net_completion){
        .issued = jb->issued,
        .ended = now,
        .overhead = last->overhead,
        .wire = last->wire,
        .drain = drain,
        .queueing = left - drain,
    };
}

static void end_piece(pe_dma *dma, uint32_t p)
{
    piece ended = *piece_at(dma, p);
    kb_pool_give(&dma->pieces, p);
    job *under_way = job_at(dma, ended.job);
    if (!ended.moves.reads && !ended.moves.writes)
        under_way->drain += tcm_time(dma, &ended);
    if (--under_way->left > 0)
        return;
    job jb = *under_way;
    kb_pool_give(&dma->jobs, ended.job);
    net_completion completion = sum_up(&jb, &ended, kb_sim_now(dma->has.sim));
    if (jb.done)
        jb.done(jb.self, jb.arg, &completion, NULL);
}

static void on_ended(void *self, uint64_t arg)
{
    pe_dma *dma = self;
    if (--piece_at(dma, (uint32_t)arg)->commands == 0)
        end_piece(dma, (uint32_t)arg);
}

static void on_read(void *self, uint64_t arg);

/* The read of a piece, or its write. */
static kb_error *issue(pe_dma *dma, uint32_t p, bool read)
{
    piece *pc = piece_at(dma, p);
    bool goes_on = is_copy_of_memories(pc);
    mem_rect rect = {
        .at = read && !pc->moves.fill ? pc->moves.from : pc->moves.to,
        .rows = 1,
        .bytes = pc->moves.bytes,
    };
    pe_command command = {
        .unit = read ? KB_UNIT_DMA_READ : KB_UNIT_DMA_WRITE,
        .rects = &rect,
        .rect_count = 1,
        .of_host = true,
        .forwards = goes_on && !read,
        .fills = pc->moves.fill && !read,
        .ended = goes_on && read ? on_read : on_ended,
        .moved = on_moved,
        .self = dma,
        .arg = p,
    };
    KB_TRY(pe_units_issue(dma->has.units, job_at(dma, pc->job)->pe, &command, &(pe_op){0}));
    pc->commands++;
    return NULL;
}

/* Issues the reads whose turn has come. */
static kb_error *issue_waiting(pe_dma *dma, uint32_t j)
{
    job *jb = job_at(dma, j);
    while (jb->first != NONE) {
        uint32_t p = jb->first;
        const piece *pc = piece_at(dma, p);
        if (jb->ahead > 0 && jb->ahead + pc->moves.bytes > PE_DMA_READ_AHEAD_BYTES)
            return NULL;
        KB_TRY(issue(dma, p, true));
        jb->ahead += pc->moves.bytes;
        jb->first = pc->next;
    }
    return NULL;
}

static void on_read(void *self, uint64_t arg)
{
    pe_dma *dma = self;
    uint32_t p = (uint32_t)arg;
    piece *pc = piece_at(dma, p);
    job *jb = job_at(dma, pc->job);
    pc->commands--;
    if (!jb->done) {
        end_piece(dma, p);
        return;
    }
    jb->ahead -= pc->moves.bytes;
    kb_error *err = issue(dma, p, false);
    if (!err)
        err = issue_waiting(dma, pc->job);
    if (err)
        kb_sim_fail(dma->has.sim, err);
}

/* All commands of a piece that is not copied from memory to memory. */
static kb_error *issue_at_once(pe_dma *dma, uint32_t p)
{
    const segment *s = &piece_at(dma, p)->moves;
    bool inside_tcm = !s->reads && !s->writes && !s->fill;
    if (!s->writes)
        KB_TRY(issue(dma, p, true));
    return s->writes || inside_tcm ? issue(dma, p, false) : NULL;
}

/* Takes a piece for the segment, and issues its commands or puts it in the queue. */
static kb_error *add_piece(pe_dma *dma, uint32_t j, const segment *s)
{
    job *jb = job_at(dma, j);
    uint32_t p = kb_pool_take(&dma->pieces);
    if (p == NONE)
        return kb_error_nomem();
    *piece_at(dma, p) = (piece){.moves = *s, .job = j};
    jb->left++;
    if (s->reads && s->writes) {
        if (jb->first == NONE)
            jb->first = p;
        else
            piece_at(dma, jb->last)->next = p;
        jb->last = p;
        return NULL;
    }
    kb_error *err = issue_at_once(dma, p);
    if (err && piece_at(dma, p)->commands == 0) {
        kb_pool_give(&dma->pieces, p);
        jb->left--;
    }
    return err;
}

/* What is under way ends without a call. */
static void give_up(pe_dma *dma, uint32_t j)
{
    job *jb = job_at(dma, j);
    jb->done = NULL;
    while (jb->first != NONE) {
        uint32_t p = jb->first;
        jb->first = piece_at(dma, p)->next;
        kb_pool_give(&dma->pieces, p);
        jb->left--;
    }
    if (jb->left == 0)
        kb_pool_give(&dma->jobs, j);
}

static kb_error *start_pieces(pe_dma *dma, uint32_t j)
{
    for (size_t i = 0; i < dma->segments.count; i++)
        KB_TRY(add_piece(dma, j, &dma->segments.items[i]));
    return issue_waiting(dma, j);
}

/* ---- Starting ---------------------------------------------------------------------------- */

static bool is_fault(const kb_error *err)
{
    kb_code code = kb_error_code(err);
    return code == KB_ERR_FAULT || code == KB_ERR_INPUT;
}

kb_error *pe_dma_start(pe_dma *dma, kb_pe pe, const char *who, const pe_move *moves, size_t count,
                       pe_dma_done_fn *done, void *self, uint64_t arg)
{
    kb_time now = kb_sim_now(dma->has.sim);
    net_completion nothing = {.issued = now, .ended = now};
    kb_error *err = cut(dma, (actor){.pe = pe, .who = who}, moves, count);
    if (err && !is_fault(err))
        return err;
    if (err) {
        done(self, arg, &nothing, err);
        return NULL;
    }
    KB_TRY(copy_contents(dma));
    uint32_t j = kb_pool_take(&dma->jobs);
    if (j == NONE)
        return kb_error_nomem();
    *job_at(dma, j) = (job){
        .done = done,
        .self = self,
        .arg = arg,
        .issued = now,
        .pe = pe,
    };
    err = start_pieces(dma, j);
    if (err) {
        give_up(dma, j);
        return err;
    }
    if (job_at(dma, j)->left == 0) {
        kb_pool_give(&dma->jobs, j);
        done(self, arg, &nothing, NULL);
    }
    return NULL;
}
