/*
 * ring_rsag.c: bandwidth-optimal rings: reduce-scatter, all-gather, and all-reduce as both.
 *
 * The elements are divided into n chunks, one for each participant of the ring. In a reduce-scatter
 * of n-1 steps the sum of a chunk starts at the successor of its participant and goes around to it;
 * each participant on the way adds its own elements. In an all-gather of n-1 steps each
 * participant's chunk goes around, and all store it. With three participants:
 *
 *     step        0     1                              0     1
 *     index 0     c2 >  c1 >                           c0 >  c2 >
 *     index 1     c0 >  c2 >   each has the sum of     c1 >  c0 >
 *     index 2     c1 >  c0 >   its own chunk           c2 >  c1 >
 *
 * Three techniques keep all units of a PE busy:
 *
 * - Half of the elements go around in the other direction, because links are bidirectional. If
 *   other PEs of the same column use the other direction (rings.h), one direction is enough.
 * - The reduce-scatter is limited by the vector engine, the all-gather by the links. So chunks are
 *   divided into slices, and while a slice is reduced the previous one is gathered, step by step.
 *   The first slice is small, because nothing is gathered meanwhile; later ones grow at the rate
 *   that the vector engine can follow.
 * - A slice is reduced in pieces, so that one piece is added while others are in transit. It is
 *   gathered as a whole, which takes fewer commands. If there are many slices they are also reduced
 *   as a whole: the result stays in the TCM until it is gathered, which saves a load.
 *
 * The kernel does not wait: receives and loads are issued, and operations on their values wait for
 * them in the units. The receive of a piece is posted one step ahead, before this step's piece is
 * sent. So the participant that is behind all others always finds its successor ready, and any
 * number of slots suffices. Invariant: each element is summed at one participant, so all get the
 * same bits.
 */
#include "algorithms.h"

#include "base/base.h"
#include "ccl/graph/rings.h"

enum { MAX_PIECES = 4 }; /* of a slice */

/* A ring from the view of one participant, in one direction. */
typedef struct ring {
    int64_t participants, index;
    const char *ahead, *behind;
    tl_ptr input, output; /* of all chunks */
    tl_ptr own;       /* of the own chunk: the sum of a reduce-scatter, input of an all-gather */
    int64_t elements; /* of all chunks; if has_blocks, of each (a block for each rank) */
    bool has_blocks;
    int64_t order; /* see ccl_order_of_ranks() */
    kb_dtype dtype;
    kb_reduce_op op;
    int64_t slice; /* elements of a full slice */
    bool grows;    /* the first slice has half of that, the second three quarters */
} ring;

/* ---- Chunks, slices, pieces -------------------------------------------------------------- */

/* Consecutive elements. */
typedef struct span {
    int64_t begin, count;
} span;

/* The chunk of the participant at an index, taken modulo the number of participants. */
static span chunk_of(const ring *r, int64_t index)
{
    int64_t chunk = (index % r->participants + r->participants) % r->participants;
    if (r->has_blocks)
        return (span){ccl_rank_at(r->order, chunk) * r->elements, r->elements};
    return (span){tl_part_begin(r->elements, r->participants, chunk),
                  tl_part_size(r->elements, r->participants, chunk)};
}

/* The first element of a slice in a chunk that is long enough. */
static int64_t slice_begin(const ring *r, int64_t slice)
{
    if (!r->grows)
        return slice * r->slice;
    int64_t quarters = slice < 2 ? 2 * slice : 4 * slice - 3;
    return r->slice * quarters / 4;
}

static int64_t slices_of(const ring *r)
{
    int64_t largest = r->has_blocks ? r->elements : tl_cdiv(r->elements, r->participants),
            slices = 0;
    while (slice_begin(r, slices) < largest)
        slices++;
    return slices;
}

/* A piece of a slice. The last ones of a chunk may be short or empty. */
typedef struct piece {
    int64_t slice, index, pieces;
} piece;

static span piece_of(const ring *r, int64_t index, piece p)
{
    span chunk = chunk_of(r, index);
    int64_t slice = slice_begin(r, p.slice), whole = slice_begin(r, p.slice + 1) - slice;
    int64_t size = tl_cdiv(whole, p.pieces), end = kb_min(slice + whole, chunk.count);
    int64_t begin = kb_min(slice + p.index * size, end);
    return (span){chunk.begin + begin, kb_min(size, end - begin)};
}

/* ---- A step ------------------------------------------------------------------------------ */

static tl_tensor load_span(tl_context *tl, const ring *r, tl_ptr base, span s)
{
    return tl_load(ccl_at(base, s.begin, r->dtype), tl_shape(s.count), r->dtype);
}

/* Posts a receive for the elements of the span, and frees the previous value of *arriving. */
static void post_receive(tl_context *tl, const ring *r, span next, tl_tensor *arriving)
{
    if (arriving->id)
        tl_free(*arriving);
    *arriving = (tl_tensor){0};
    if (next.count > 0)
        tl_assign(arriving, tl_recv_async(r->behind, tl_shape(next.count), r->dtype));
}

/* One step of the reduce-scatter for one piece: adds the own elements to what arrives, and sends
 * the sum. The last step completes the own chunk: the result is stored, and stays in *arriving. */
static void reduce_piece(tl_context *tl, const ring *r, int64_t step, piece p, tl_tensor *arriving)
{
    bool is_last = step == r->participants - 1;
    span here = piece_of(r, r->index - 1 - step, p);
    span next = is_last ? (span){0} : piece_of(r, r->index - 2 - step, p);
    TL_SCOPE {
        tl_tensor sum = {0};
        if (here.count > 0)
            sum = load_span(tl, r, r->input, here);
        if (here.count > 0 && step > 0)
            sum = ccl_combine(tl, r->op, *arriving, sum);
        post_receive(tl, r, next, arriving);
        if (here.count > 0 && !is_last)
            tl_send(r->ahead, sum);
        if (here.count > 0 && is_last) {
            int64_t offset = here.begin - chunk_of(r, r->index).begin;
            tl_assign(arriving, ccl_finish(tl, r->op, sum, r->participants));
            tl_store(ccl_at(r->own, offset, r->dtype), *arriving);
        }
    }
}

/* One step of the all-gather for one piece: stores what arrives, and sends it on. The first step
 * sends the own chunk, which may be in *arriving. */
static void gather_piece(tl_context *tl, const ring *r, int64_t step, piece p, tl_tensor *arriving)
{
    bool is_last = step == r->participants - 1;
    span here = piece_of(r, r->index - step, p);
    span next = is_last ? (span){0} : piece_of(r, r->index - step - 1, p);
    tl_tensor value = *arriving;
    *arriving = (tl_tensor){0};
    TL_SCOPE {
        post_receive(tl, r, next, arriving);
        if (here.count > 0 && !value.id) {
            span own = {here.begin - chunk_of(r, r->index).begin, here.count};
            tl_assign(&value, load_span(tl, r, r->own, own));
        }
        if (here.count > 0 && !is_last)
            tl_send(r->ahead, value);
        if (here.count > 0 && step > 0)
            tl_store(ccl_at(r->output, here.begin, r->dtype), value);
    }
    if (value.id)
        tl_free(value);
}

/* ---- All-reduce -------------------------------------------------------------------------- */

/* Direction 0 sends by E, direction 1 by W. On a one-way ring messages are received by the sender's
 * name. */
static ring ring_along(tl_context *tl, int dir, int64_t participants, int64_t index)
{
    const char *ahead = dir == 0 ? "E" : "W", *behind = dir == 0 ? "W" : "E";
    return (ring){.participants = participants,
                  .index = dir == 0 ? index : participants - 1 - index,
                  .ahead = ahead,
                  .behind = tl_can_recv(behind) ? behind : ahead};
}

/* A slice that was reduced in one piece is still in the TCM and is gathered without a load. */
static void reuse_reduced(int directions, tl_tensor reduced[][MAX_PIECES], tl_tensor *gathering)
{
    for (int dir = 0; dir < directions; dir++) {
        gathering[dir] = reduced[dir][0];
        reduced[dir][0] = (tl_tensor){0};
    }
}

KB_KERNEL(ring_rsag, tl_ptr mine, int64_t count, kb_dtype dtype, kb_reduce_op op, int participants,
          int index, int directions, int64_t slice, int pieces, bool grows)
{
    ring r[2];
    tl_tensor reducing[2][MAX_PIECES] = {0}, gathering[2] = {0};
    if (participants == 1)
        return;
    if (!tl_can_send("W"))
        directions = 1;
    for (int dir = 0; dir < directions; dir++) {
        r[dir] = ring_along(tl, dir, participants, index);
        r[dir].input = r[dir].output = ccl_at(mine, tl_part_begin(count, directions, dir), dtype);
        r[dir].elements = tl_part_size(count, directions, dir);
        r[dir].dtype = dtype;
        r[dir].op = op;
        r[dir].slice = slice;
        r[dir].grows = grows;
        r[dir].own = ccl_at(r[dir].input, chunk_of(&r[dir], r[dir].index).begin, dtype);
    }

    int64_t slices = slices_of(&r[0]); /* direction 1 may have fewer */
    for (int64_t s = 0; s <= slices; s++) {
        if (pieces == 1)
            reuse_reduced(directions, reducing, gathering);
        for (int64_t step = 0; step < participants; step++) {
            for (int i = 0; i < pieces && s < slices; i++)
                for (int dir = 0; dir < directions; dir++)
                    reduce_piece(tl, &r[dir], step, (piece){s, i, pieces}, &reducing[dir][i]);
            for (int dir = 0; dir < directions && s > 0; dir++)
                gather_piece(tl, &r[dir], step, (piece){s - 1, 0, 1}, &gathering[dir]);
        }
    }
}

/* ---- Reduce-scatter and all-gather alone -------------------------------------------------- */

/* A ring in direction E with a block for each rank. */
static ring ring_of_blocks(tl_context *tl, int64_t participants, int64_t index, int64_t order,
                           int64_t count, kb_dtype dtype, int64_t slice)
{
    ring r = ring_along(tl, 0, participants, index);
    r.elements = count;
    r.has_blocks = true;
    r.order = order;
    r.dtype = dtype;
    r.slice = slice;
    return r;
}

KB_KERNEL(ring_reduce_scatter, tl_ptr input, tl_ptr output, int64_t count, kb_dtype dtype,
          kb_reduce_op op, int participants, int index, int64_t order, int64_t slice, int pieces)
{
    ring r = ring_of_blocks(tl, participants, index, order, count, dtype, slice);
    r.input = input;
    r.own = output;
    r.op = op;
    tl_tensor arriving[MAX_PIECES] = {0};
    for (int64_t s = 0; s < slices_of(&r); s++)
        for (int64_t step = 0; step < participants; step++)
            for (int i = 0; i < pieces; i++)
                reduce_piece(tl, &r, step, (piece){s, i, pieces}, &arriving[i]);
}

KB_KERNEL(ring_all_gather, tl_ptr input, tl_ptr output, int64_t count, kb_dtype dtype,
          int participants, int index, int64_t order, int64_t slice, int pieces)
{
    ring r = ring_of_blocks(tl, participants, index, order, count, dtype, slice);
    r.own = input;
    r.output = output;
    tl_tensor arriving[MAX_PIECES] = {0};
    for (int64_t s = 0; s < slices_of(&r); s++) {
        for (int64_t step = 0; step < participants; step++)
            for (int i = 0; i < pieces; i++)
                gather_piece(tl, &r, step, (piece){s, i, pieces}, &arriving[i]);
        TL_SCOPE { /* the own block */
            span to = piece_of(&r, index, (piece){s, 0, 1});
            span from = {to.begin - chunk_of(&r, index).begin, to.count};
            tl_store(ccl_at(output, to.begin, dtype), load_span(tl, &r, input, from));
        }
    }
}

/* ---- Arguments --------------------------------------------------------------------------- */

/* Slice sizes in bytes, measured on the default machine: with smaller slices a DMA of four channels
 * waits for memory latency, with larger ones the steps take longer. */
enum { SMALL_SLICE = 8192, USUAL_SLICE = 16384, LARGE_SLICE = 32768 };

/* From this number of slices on, slices are reduced as a whole. Measured over PEs: with fewer,
 * waiting for whole slices costs more than the load. */
enum { MANY_SLICES = 6 };

typedef struct cut {
    int64_t slice, pieces;
} cut;

/* The slices and pieces for chunks of this size. `may_reuse`: a reduced slice may stay in the TCM
 * until it is gathered. The entry can override: kernel_slice, in elements, and kernel_pieces. */
static cut cut_of(const kb_ccl_call *call, int64_t elements, bool may_reuse)
{
    int64_t size = (int64_t)kb_dtype_bytes(call->dtype), bytes = elements * size;
    int64_t slice = bytes / 4;
    bool reuses = may_reuse && bytes >= (int64_t)MANY_SLICES * USUAL_SLICE;
    slice = slice < USUAL_SLICE || reuses ? USUAL_SLICE : kb_min(slice, LARGE_SLICE);
    slice = kb_ccl_setting(call->scope, "kernel_slice", slice / size);
    slice = kb_min(slice, ccl_tile_elements(call, 32));
    int64_t pieces = reuses || kb_min(bytes, slice * size) < SMALL_SLICE ? 1 : 2;
    pieces = kb_ccl_setting(call->scope, "kernel_pieces", pieces);
    pieces = pieces < 1 ? 1 : kb_min(pieces, MAX_PIECES);
    return (cut){slice < 1 ? 1 : slice, pieces};
}

static kb_error *ring_rsag_arguments(const kb_ccl_call *call, const kb_ccl_target *target,
                                     kb_ccl_arguments *args)
{
    int64_t elements = (int64_t)target->elements, participants = target->subgroup_size;
    bool is_small = elements * (int64_t)kb_dtype_bytes(call->dtype) < participants * SMALL_SLICE;
    bool both = !is_small && (call->scope->rank_is_pe || !ccl_columns_go_one_way(call->scope));
    int64_t directions = kb_ccl_setting(call->scope, "kernel_ways", both ? 2 : 1);
    directions = directions == 1 ? 1 : 2;
    int64_t chunk = tl_cdiv(elements, participants * directions);
    cut c = cut_of(call, chunk, true);
    ccl_add_common(call, target, args);
    kb_ccl_add_integer(args, participants);
    kb_ccl_add_integer(args, target->index);
    kb_ccl_add_integer(args, directions);
    kb_ccl_add_integer(args, c.slice);
    kb_ccl_add_integer(args, c.pieces);
    kb_ccl_add_integer(args, chunk > c.slice);
    return NULL;
}

const kb_ccl_algorithm ccl_ring_rsag_algorithm = {
    .name = "ring_rsag",
    .summary = "pipelined reduce-scatter and all-gather around a ring, in both directions",
    .kernel = &ring_rsag,
    .arguments = ring_rsag_arguments,
    .collectives = 1 << KB_ALL_REDUCE,
    .topologies = ccl_ring_topologies,
    .mapper = "lanes",
    .same_bits = true,
};

static kb_error *add_block_ring(const kb_ccl_call *call, const kb_ccl_target *target,
                                kb_ccl_arguments *args)
{
    int64_t order;
    KB_TRY(ccl_order_of_ranks(call, target, &order));
    cut c = cut_of(call, (int64_t)target->elements, false);
    kb_ccl_add_integer(args, target->subgroup_size);
    kb_ccl_add_integer(args, target->index);
    kb_ccl_add_integer(args, order);
    kb_ccl_add_integer(args, c.slice);
    kb_ccl_add_integer(args, c.pieces);
    return NULL;
}

static kb_error *ring_reduce_scatter_arguments(const kb_ccl_call *call, const kb_ccl_target *target,
                                               kb_ccl_arguments *args)
{
    kb_ccl_add_address(args, target->input);
    ccl_add_common(call, target, args);
    return add_block_ring(call, target, args);
}

const kb_ccl_algorithm ccl_ring_reduce_scatter_algorithm = {
    .name = "ring_reduce_scatter",
    .summary = "reduce-scatter around a ring",
    .kernel = &ring_reduce_scatter,
    .arguments = ring_reduce_scatter_arguments,
    .collectives = 1 << KB_REDUCE_SCATTER,
    .topologies = ccl_ring_topologies,
    .mapper = "lanes",
    .same_bits = true,
};

static kb_error *ring_all_gather_arguments(const kb_ccl_call *call, const kb_ccl_target *target,
                                           kb_ccl_arguments *args)
{
    kb_ccl_add_address(args, target->input);
    kb_ccl_add_address(args, target->output);
    kb_ccl_add_integer(args, (int64_t)target->elements);
    kb_ccl_add_integer(args, call->dtype);
    return add_block_ring(call, target, args);
}

const kb_ccl_algorithm ccl_ring_all_gather_algorithm = {
    .name = "ring_all_gather",
    .summary = "all-gather around a ring",
    .kernel = &ring_all_gather,
    .arguments = ring_all_gather_arguments,
    .collectives = 1 << KB_ALL_GATHER,
    .topologies = ccl_ring_topologies,
    .mapper = "lanes",
    .same_bits = true,
};
