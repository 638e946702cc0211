/*
 * ring_rsag.c: rings on which every PE sends no byte more than it has to.
 *
 * What is to be reduced is cut into n chunks, one for each member of the ring. In a reduce-scatter
 * of n-1 steps the sum of a chunk starts behind its member and goes around to it; each member that
 * it passes adds its own. In an all-gather of n-1 steps each member's chunk goes around, and all
 * store it. Both together are an all-reduce; with three members:
 *
 *     step        0     1                              0     1
 *     member 0    c2 >  c1 >                           c0 >  c2 >
 *     member 1    c0 >  c2 >   now each has the sum    c1 >  c0 >
 *     member 2    c1 >  c0 >   of its own chunk        c2 >  c1 >
 *
 * Three things keep all of a PE busy at once:
 *  - Half of the elements go around the other way: the links of a machine lead both ways. Where
 *    other PEs of the same column do that (rings.h) all go one way.
 *  - Reducing needs the vector engine most, gathering the links alone. So chunks are cut into
 *    slices, and while one is reduced the one before is gathered, step by step. As nothing can be
 *    gathered with the first slice that one is small, and the next grows as fast as the vector
 *    engine can follow.
 *  - A slice is reduced in pieces, so that one is added while others are on their way. It is
 *    gathered as a whole, which takes fewer commands. If there are many slices they are reduced as
 *    a whole, too: then they stay at hand until they are gathered, which spares the memory a load.
 *
 * Nothing here waits: receives and loads are issued, and what is computed from them waits for them
 * in the units. The receive of a piece is posted one step ahead, before this step's piece is sent.
 * So whoever is behind all others always finds its successor ready, and no number of slots is too
 * small. Each element is summed in one place: all members get the same bits.
 */
#include "algorithms.h"

#include "base/base.h"
#include "ccl/graph/rings.h"

enum { MAX_PIECES = 4 }; /* of a slice */

/* A ring as one of its members sees it. */
typedef struct ring {
    int64_t members, place;
    const char *ahead, *behind;
    tl_ptr input, output; /* of all chunks */
    tl_ptr own;           /* where the sum of our own chunk goes, and what we have to give is */
    int64_t elements;     /* of all chunks, or of each if they are blocks in the order of ranks */
    bool has_blocks;
    int64_t order; /* of the ranks */
    kb_dtype dtype;
    kb_reduce_op op;
    int64_t slice; /* elements of a whole one */
    bool grows;    /* the first is half as large, the second three quarters */
} ring;

/* ---- What is where ----------------------------------------------------------------------- */

/* Consecutive elements. */
typedef struct span {
    int64_t begin, count;
} span;

/* The chunk of the member at a place, which may be any number of rounds away. */
static span chunk_of(const ring *r, int64_t place)
{
    int64_t chunk = (place % r->members + r->members) % r->members;
    if (r->has_blocks)
        return (span){ccl_rank_at(r->order, chunk) * r->elements, r->elements};
    return (span){tl_part_begin(r->elements, r->members, chunk),
                  tl_part_size(r->elements, r->members, chunk)};
}

/* Where a slice begins in its chunk, if that is long enough. */
static int64_t slice_begin(const ring *r, int64_t slice)
{
    if (!r->grows)
        return slice * r->slice;
    int64_t quarters = slice < 2 ? 2 * slice : 4 * slice - 3;
    return r->slice * quarters / 4;
}

static int64_t slices_of(const ring *r)
{
    int64_t largest = r->has_blocks ? r->elements : tl_cdiv(r->elements, r->members), slices = 0;
    while (slice_begin(r, slices) < largest)
        slices++;
    return slices;
}

/* A piece of a chunk: of each slice as many as there are. The last ones may be short, or empty. */
typedef struct piece {
    int64_t slice, index, pieces;
} piece;

static span piece_of(const ring *r, int64_t place, piece p)
{
    span chunk = chunk_of(r, place);
    int64_t slice = slice_begin(r, p.slice), whole = slice_begin(r, p.slice + 1) - slice;
    int64_t size = tl_cdiv(whole, p.pieces), end = ccl_min(slice + whole, chunk.count);
    int64_t begin = ccl_min(slice + p.index * size, end);
    return (span){chunk.begin + begin, ccl_min(size, end - begin)};
}

/* ---- A step ------------------------------------------------------------------------------ */

static tl_tensor load_span(tl_context *tl, const ring *r, tl_ptr base, span s)
{
    return tl_load(ccl_at(base, s.begin, r->dtype), tl_shape(s.count), r->dtype);
}

/* Posts a receive for as many elements as the span has, in place of what was received before. */
static void expect(tl_context *tl, const ring *r, span next, tl_tensor *arriving)
{
    if (arriving->id)
        tl_free(*arriving);
    *arriving = (tl_tensor){0};
    if (next.count > 0)
        tl_assign(arriving, tl_recv_async(r->behind, tl_shape(next.count), r->dtype));
}

/* One step of the reduce-scatter, for one piece: adds our own to what arrives, and sends it on. In
 * the last step it is our own chunk's: it is stored, and stays in *arriving. */
static void reduce_piece(tl_context *tl, const ring *r, int64_t step, piece p, tl_tensor *arriving)
{
    bool is_last = step == r->members - 1;
    span here = piece_of(r, r->place - 1 - step, p);
    span next = is_last ? (span){0} : piece_of(r, r->place - 2 - step, p);
    TL_SCOPE {
        tl_tensor sum = {0};
        if (here.count > 0)
            sum = load_span(tl, r, r->input, here);
        if (here.count > 0 && step > 0)
            sum = ccl_combine(tl, r->op, *arriving, sum);
        expect(tl, r, next, arriving);
        if (here.count > 0 && !is_last)
            tl_send(r->ahead, sum);
        if (here.count > 0 && is_last) {
            int64_t offset = here.begin - chunk_of(r, r->place).begin;
            tl_assign(arriving, ccl_finish(tl, r->op, sum, r->members));
            tl_store(ccl_at(r->own, offset, r->dtype), *arriving);
        }
    }
}

/* One step of the all-gather, for one piece: stores what arrives, and sends it on. In the first
 * step it is our own chunk's, which may be in *arriving; it is only sent. */
static void gather_piece(tl_context *tl, const ring *r, int64_t step, piece p, tl_tensor *arriving)
{
    bool is_last = step == r->members - 1;
    span here = piece_of(r, r->place - step, p);
    span next = is_last ? (span){0} : piece_of(r, r->place - step - 1, p);
    tl_tensor value = *arriving;
    *arriving = (tl_tensor){0};
    TL_SCOPE {
        expect(tl, r, next, arriving);
        if (here.count > 0 && !value.id) {
            span own = {here.begin - chunk_of(r, r->place).begin, here.count};
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

/* Way 0 goes along E, way 1 along W. On a ring that has but one way, what comes is received there.
 */
static ring ring_along(tl_context *tl, int way, int64_t members, int64_t place)
{
    const char *ahead = way == 0 ? "E" : "W", *behind = way == 0 ? "W" : "E";
    return (ring){.members = members,
                  .place = way == 0 ? place : members - 1 - place,
                  .ahead = ahead,
                  .behind = tl_can_recv(behind) ? behind : ahead};
}

/* What was reduced in one piece is at hand when it is to be gathered, and need not be loaded. */
static void hand_over(int ways, tl_tensor reduced[][MAX_PIECES], tl_tensor *gathering)
{
    for (int way = 0; way < ways; way++) {
        gathering[way] = reduced[way][0];
        reduced[way][0] = (tl_tensor){0};
    }
}

KB_KERNEL(ring_rsag, tl_ptr mine, int64_t count, kb_dtype dtype, kb_reduce_op op, int members,
          int place, int ways, int64_t slice, int pieces, bool grows)
{
    ring r[2];
    tl_tensor reducing[2][MAX_PIECES] = {0}, gathering[2] = {0};
    if (members == 1)
        return;
    if (!tl_can_send("W"))
        ways = 1;
    for (int way = 0; way < ways; way++) {
        r[way] = ring_along(tl, way, members, place);
        r[way].input = r[way].output = ccl_at(mine, tl_part_begin(count, ways, way), dtype);
        r[way].elements = tl_part_size(count, ways, way);
        r[way].dtype = dtype;
        r[way].op = op;
        r[way].slice = slice;
        r[way].grows = grows;
        r[way].own = ccl_at(r[way].input, chunk_of(&r[way], r[way].place).begin, dtype);
    }

    int64_t slices = slices_of(&r[0]); /* way 1 may have fewer */
    for (int64_t s = 0; s <= slices; s++) {
        if (pieces == 1)
            hand_over(ways, reducing, gathering);
        for (int64_t step = 0; step < members; step++) {
            for (int i = 0; i < pieces && s < slices; i++)
                for (int way = 0; way < ways; way++)
                    reduce_piece(tl, &r[way], step, (piece){s, i, pieces}, &reducing[way][i]);
            for (int way = 0; way < ways && s > 0; way++)
                gather_piece(tl, &r[way], step, (piece){s - 1, 0, 1}, &gathering[way]);
        }
    }
}

/* ---- Reduce-scatter and all-gather alone -------------------------------------------------- */

/* One that goes along E, with a block for each rank. */
static ring ring_of_blocks(tl_context *tl, int64_t members, int64_t place, int64_t order,
                           int64_t count, kb_dtype dtype, int64_t slice)
{
    ring r = ring_along(tl, 0, members, place);
    r.elements = count;
    r.has_blocks = true;
    r.order = order;
    r.dtype = dtype;
    r.slice = slice;
    return r;
}

KB_KERNEL(ring_reduce_scatter, tl_ptr input, tl_ptr output, int64_t count, kb_dtype dtype,
          kb_reduce_op op, int members, int place, int64_t order, int64_t slice, int pieces)
{
    ring r = ring_of_blocks(tl, members, place, order, count, dtype, slice);
    r.input = input;
    r.own = output;
    r.op = op;
    tl_tensor arriving[MAX_PIECES] = {0};
    for (int64_t s = 0; s < slices_of(&r); s++)
        for (int64_t step = 0; step < members; step++)
            for (int i = 0; i < pieces; i++)
                reduce_piece(tl, &r, step, (piece){s, i, pieces}, &arriving[i]);
}

KB_KERNEL(ring_all_gather, tl_ptr input, tl_ptr output, int64_t count, kb_dtype dtype, int members,
          int place, int64_t order, int64_t slice, int pieces)
{
    ring r = ring_of_blocks(tl, members, place, order, count, dtype, slice);
    r.own = input;
    r.output = output;
    tl_tensor arriving[MAX_PIECES] = {0};
    for (int64_t s = 0; s < slices_of(&r); s++) {
        for (int64_t step = 0; step < members; step++)
            for (int i = 0; i < pieces; i++)
                gather_piece(tl, &r, step, (piece){s, i, pieces}, &arriving[i]);
        TL_SCOPE { /* what we have is not among what arrives */
            span to = piece_of(&r, place, (piece){s, 0, 1});
            span from = {to.begin - chunk_of(&r, place).begin, to.count};
            tl_store(ccl_at(output, to.begin, dtype), load_span(tl, &r, input, from));
        }
    }
}

/* ---- Arguments --------------------------------------------------------------------------- */

/*
 * How large slices are, in bytes. Measured on the default machine: with less a DMA with four
 * channels spends its time waiting for memory, with more a step takes longer than it has to.
 */
enum { SMALL_SLICE = 8192, USUAL_SLICE = 16384, LARGE_SLICE = 32768 };

/* From so many usual slices on they are reduced as a whole. Measured over PEs: with fewer, waiting
 * for whole slices costs more than loading them. */
enum { MANY_SLICES = 6 };

typedef struct cut {
    int64_t slice, pieces;
} cut;

/* For chunks of so many elements, that may be handed over from reducing to gathering. The entry may
 * say otherwise: kernel_slice, in elements, and kernel_pieces. */
static cut cut_of(const kb_ccl_call *call, int64_t elements, bool hands_over)
{
    int64_t size = (int64_t)kb_dtype_bytes(call->dtype), bytes = elements * size;
    int64_t slice = bytes / 4;
    bool stays = hands_over && bytes >= (int64_t)MANY_SLICES * USUAL_SLICE;
    slice = slice < USUAL_SLICE || stays ? USUAL_SLICE : ccl_min(slice, LARGE_SLICE);
    slice = kb_ccl_setting(call->scope, "kernel_slice", slice / size);
    slice = ccl_min(slice, ccl_tile_elements(call, 32));
    int64_t pieces = stays || ccl_min(bytes, slice * size) < SMALL_SLICE ? 1 : 2;
    pieces = kb_ccl_setting(call->scope, "kernel_pieces", pieces);
    pieces = pieces < 1 ? 1 : ccl_min(pieces, MAX_PIECES);
    return (cut){slice < 1 ? 1 : slice, pieces};
}

static kb_error *ring_rsag_arguments(const kb_ccl_call *call, const kb_ccl_part *part,
                                     kb_ccl_arguments *args)
{
    int64_t elements = (int64_t)part->elements, members = part->circle_size;
    bool is_small = elements * (int64_t)kb_dtype_bytes(call->dtype) < members * SMALL_SLICE;
    bool both = !is_small && (call->scope->rank_is_pe || !ccl_columns_go_one_way(call->scope));
    int64_t ways = kb_ccl_setting(call->scope, "kernel_ways", both ? 2 : 1);
    ways = ways == 1 ? 1 : 2;
    int64_t chunk = tl_cdiv(elements, members * ways);
    cut c = cut_of(call, chunk, true);
    ccl_add_common(call, part, args);
    kb_ccl_add_integer(args, members);
    kb_ccl_add_integer(args, part->place);
    kb_ccl_add_integer(args, ways);
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

static kb_error *add_block_ring(const kb_ccl_call *call, const kb_ccl_part *part,
                                kb_ccl_arguments *args)
{
    int64_t order;
    KB_TRY(ccl_order_of_ranks(call, part, &order));
    cut c = cut_of(call, (int64_t)part->elements, false);
    kb_ccl_add_integer(args, part->circle_size);
    kb_ccl_add_integer(args, part->place);
    kb_ccl_add_integer(args, order);
    kb_ccl_add_integer(args, c.slice);
    kb_ccl_add_integer(args, c.pieces);
    return NULL;
}

static kb_error *ring_reduce_scatter_arguments(const kb_ccl_call *call, const kb_ccl_part *part,
                                               kb_ccl_arguments *args)
{
    kb_ccl_add_address(args, part->input);
    ccl_add_common(call, part, args);
    return add_block_ring(call, part, args);
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

static kb_error *ring_all_gather_arguments(const kb_ccl_call *call, const kb_ccl_part *part,
                                           kb_ccl_arguments *args)
{
    kb_ccl_add_address(args, part->input);
    kb_ccl_add_address(args, part->output);
    kb_ccl_add_integer(args, (int64_t)part->elements);
    kb_ccl_add_integer(args, call->dtype);
    return add_block_ring(call, part, args);
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
