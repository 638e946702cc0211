/*
 * team_sums.c: adds up the partial sums of the PEs of a team.
 *
 * The rows of a strip are distributed over the PEs. Each adds up its rows of all PEs, in the order
 * of PEs, so the result does not depend on timing.
 *
 * Receives are posted before the sends of the same group, and all PEs go through the groups in the
 * same order. So a PE that waits for a slot waits for a PE that is behind it: there is no deadlock.
 */
#include "matmul_private.h"

tp_rect tp_strip_of(const team_pe *me, const group *g, int64_t strip)
{
    int64_t width = me->plan->steps.strip;
    tp_rect at = g->rect;
    at.column += strip * width;
    at.columns = kb_min(width, g->rect.columns - strip * width);
    return at;
}

/*
 * The rows of a strip are split into parts. The first part goes to a different PE for each strip.
 */
static int64_t part_count(const team_pe *me, const group *g)
{
    return kb_min(g->rect.rows, me->plan->grid.team);
}

static int64_t owner_of(const team_pe *me, const group *g, int64_t strip, int64_t part)
{
    return (part + (g->first + strip) * part_count(me, g)) % me->plan->grid.team;
}

static tp_rect part_of(const team_pe *me, const group *g, int64_t strip, int64_t part)
{
    tp_rect at = tp_strip_of(me, g, strip);
    int64_t parts = part_count(me, g);
    at.row += tl_part_begin(g->rect.rows, parts, part);
    at.rows = tl_part_size(g->rect.rows, parts, part);
    return at;
}

/* Stores a complete part of the product, or passes it to the sum over ranks. */
static void put_part(tl_context *tl, const team_pe *me, const group *g, const tp_rect *at,
                     tl_tensor sum, part_operands *operands, rank_batch *batch)
{
    const kb_dtype dtype = tp_team_sum_dtype(me);
    if (me->plan->ranks > 1) {
        rank_piece *piece = &batch->pieces[batch->count++];
        *piece = (rank_piece){.at = *at};
        piece->own = tp_cast(tl, sum, dtype, me->plan->sum_dtype);
        return;
    }
    if (g->scale.id != 0) {
        int64_t begin = at->row - g->rect.row;
        tl_tensor scale = tl_slice(g->scale, 0, begin, begin + at->rows);
        tl_tensor scaled = tl_mul(sum, scale);
        tl_free(scale);
        tl_free(sum);
        sum = scaled;
    }
    tp_store_part(tl, me, at, tp_finish_part(tl, me, sum, dtype, at, operands));
}

/* For a part without a sum over ranks. */
static part_operands load_operands(tl_context *tl, const team_pe *me, const tp_rect *at)
{
    return me->plan->ranks > 1 ? (part_operands){0} : tp_load_operands(tl, me, at);
}

/* This PE's sums of a part of a strip. */
static tl_tensor own_part(tl_context *tl, const team_pe *me, const group *g, int64_t strip,
                          int64_t part)
{
    int64_t begin = tl_part_begin(g->rect.rows, part_count(me, g), part);
    return tl_slice(g->sums[strip], 0, begin,
                    begin + tl_part_size(g->rect.rows, part_count(me, g), part));
}

/* The parts of a group that this PE adds up: at most the rows of a strip times the strips, divided
 * by the PEs of the team. */
enum { MAX_OWN_PARTS = TP_MAX_STRIPS };

typedef struct own_parts {
    int64_t count;
    struct {
        int64_t strip, part;
        part_operands operands;
        tl_tensor from[TP_MAX_TEAM];
    } parts[MAX_OWN_PARTS];
} own_parts;

static void post_receives(tl_context *tl, const team_pe *me, const group *g, own_parts *own)
{
    kb_dtype dtype = tp_team_sum_dtype(me);
    own->count = 0;
    for (int64_t strip = 0; strip < g->count; strip++)
        for (int64_t part = 0; part < part_count(me, g); part++) {
            if (owner_of(me, g, strip, part) != me->index)
                continue;
            tp_rect at = part_of(me, g, strip, part);
            int64_t i = own->count++;
            own->parts[i].strip = strip;
            own->parts[i].part = part;
            for (int64_t from = 0; from < me->plan->grid.team; from++)
                if (from != me->index)
                    own->parts[i].from[from] = tl_recv_async(tp_team_queue_name(from),
                                                             tl_shape(at.rows, at.columns), dtype);
            own->parts[i].operands = load_operands(tl, me, &at);
        }
}

/* Starts with the next PE, so that not all send to the same one. */
static void send_parts(tl_context *tl, const team_pe *me, const group *g)
{
    int64_t team = me->plan->grid.team;
    for (int64_t strip = 0; strip < g->count; strip++)
        for (int64_t step = 1; step < team; step++)
            for (int64_t part = 0; part < part_count(me, g); part++)
                if (owner_of(me, g, strip, part) == (me->index + step) % team) {
                    tl_tensor value = own_part(tl, me, g, strip, part);
                    tl_send(tp_team_queue_name((me->index + step) % team), value);
                    tl_free(value);
                }
}

static tl_tensor add_up(tl_context *tl, const team_pe *me, const group *g, const own_parts *own,
                        int64_t i)
{
    tl_tensor sum = {0};
    for (int64_t from = 0; from < me->plan->grid.team; from++) {
        tl_tensor next = from == me->index
                             ? own_part(tl, me, g, own->parts[i].strip, own->parts[i].part)
                             : own->parts[i].from[from];
        if (sum.id == 0) {
            sum = next;
            continue;
        }
        tl_tensor more = tl_add(sum, next);
        tl_free(sum);
        tl_free(next);
        sum = more;
    }
    return sum;
}

/* Adds the even and odd sums of a single strip. */
static void join_sums(tl_context *tl, group *g)
{
    tl_tensor both = tl_add(g->sums[0], g->odd);
    tl_free(g->sums[0]);
    tl_free(g->odd);
    g->sums[0] = both;
}

static void finish_alone(tl_context *tl, const team_pe *me, group *g, rank_batch *batch)
{
    for (int64_t strip = 0; strip < g->count; strip++) {
        tp_rect at = tp_strip_of(me, g, strip);
        part_operands operands = load_operands(tl, me, &at);
        put_part(tl, me, g, &at, g->sums[strip], &operands, batch);
    }
}

static void finish_in_team(tl_context *tl, const team_pe *me, group *g, rank_batch *batch)
{
    own_parts own;
    post_receives(tl, me, g, &own);
    send_parts(tl, me, g);
    for (int64_t i = 0; i < own.count; i++) {
        tp_rect at = part_of(me, g, own.parts[i].strip, own.parts[i].part);
        tl_tensor sum = add_up(tl, me, g, &own, i);
        put_part(tl, me, g, &at, sum, &own.parts[i].operands, batch);
    }
    for (int64_t strip = 0; strip < g->count; strip++)
        tl_free(g->sums[strip]);
}

void tp_finish_group(tl_context *tl, const team_pe *me, group *g, rank_batch *batch)
{
    if (g->count == 0)
        return;
    if (g->odd.id != 0)
        join_sums(tl, g);
    if (me->plan->grid.team == 1)
        finish_alone(tl, me, g, batch);
    else
        finish_in_team(tl, me, g, batch);
    if (g->scale.id != 0 && g->is_last)
        tl_free(g->scale);
    g->count = 0;
}
