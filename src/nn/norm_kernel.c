/*
 * norm_kernel.c: RMSNorm and LayerNorm on a PE.
 *
 * A PE processes a block of rows at a time, as many as fit its budget of the TCM. It goes through
 * the block twice, in chunks of rows: for the statistics, and to normalise. So loads overlap with
 * the first pass and stores with the second, and the engines do not wait for the statistics of one
 * chunk. If not even one row fits, a block is one row, which is loaded again, piece by piece, for
 * each step.
 */
#include "norm.h"

#include "rows.h"

enum {
    MAX_CHUNKS = 8,   /* of a block */
    MIN_CHUNK = 8192, /* elements, if the block has as many */
};

typedef struct addresses {
    tl_ptr x, residual, gain, bias, out, sum, scales;
} addresses;

/* A range of columns. */
typedef struct range {
    int64_t begin, end;
} range;

/* The share of a PE. */
typedef struct share {
    const nn_norm_plan *plan;
    addresses at;
    range seen;           /* columns of its statistics */
    range own;            /* columns that it normalises */
    bool stores_scales;   /* of all its rows; else, with an exchange, of some */
    tl_tensor gain, bias; /* (1, own columns), if they are kept */
    tl_tensor ones;       /* (seen columns, 1), for sums by the matrix engine */
    tl_tensor zero;       /* (1, 1) */
} share;

/* A block of rows, in chunks. */
typedef struct block {
    int64_t row, rows;
    int64_t step;                 /* rows of a chunk */
    bool is_kept;                 /* the values below are in the TCM */
    tl_tensor values[MAX_CHUNKS]; /* input: seen columns, in the dtype of the sum */
    tl_tensor normed[MAX_CHUNKS]; /* the same, normalised; only if quantised */
} block;

static int64_t width(range r)
{
    return r.end - r.begin;
}

static int64_t chunk_count(const block *b)
{
    return tl_cdiv(b->rows, b->step);
}

static tp_rect chunk_rect(const block *b, int64_t chunk, range columns)
{
    int64_t row = chunk * b->step;
    return (tp_rect){b->row + row, kb_min(b->step, b->rows - row), columns.begin, width(columns)};
}

/* The dtype of the input of the normalisation. */
static kb_dtype value_dtype(const nn_norm_plan *plan)
{
    return plan->has_residual ? plan->sum.dtype : plan->x.dtype;
}

/* x, or x + residual. */
static tl_tensor load_value(tl_context *tl, const share *s, tp_rect rect)
{
    const nn_norm_plan *plan = s->plan;
    tl_tensor x = nn_load(tl, &plan->x, s->at.x, rect);
    if (!plan->has_residual)
        return x;
    tl_tensor residual = nn_load(tl, &plan->residual, s->at.residual, rect);
    tl_tensor sum = tl_add(x, residual);
    tl_free(x);
    tl_free(residual);
    kb_dtype made = plan->x.dtype == plan->residual.dtype ? plan->x.dtype : KB_F32;
    return tp_cast(tl, sum, made, plan->sum.dtype);
}

/* A range of columns of a chunk. If the result is a kept value, *is_kept is true and it must not be
 * freed. */
static tl_tensor get_piece(tl_context *tl, const share *s, const block *b, int64_t chunk,
                           range columns, bool *is_kept)
{
    *is_kept = b->is_kept && columns.begin == s->seen.begin && columns.end == s->seen.end;
    if (*is_kept)
        return b->values[chunk];
    if (b->is_kept)
        return tl_slice(b->values[chunk], 1, columns.begin - s->seen.begin,
                        columns.end - s->seen.begin);
    return load_value(tl, s, chunk_rect(b, chunk, columns));
}

/* The next piece of the range, from `begin`: all of it if rows are kept. */
static range next_piece(const share *s, const block *b, range all, int64_t begin)
{
    int64_t size = b->is_kept ? width(all) : kb_min(s->plan->budget, all.end - begin);
    return (range){begin, kb_min(begin + size, all.end)};
}

/* ---- Statistics ---- */

/* Sums of the rows of (rows, columns). Consumes x if it is not kept. */
static tl_tensor sum_rows(tl_context *tl, const share *s, tl_tensor x, kb_dtype dtype, bool is_kept)
{
    tl_tensor sum;
    if (s->ones.id != 0) {
        sum = tl_dot(x, s->ones, .out_f32 = true);
    } else if (dtype == KB_F32) {
        sum = tl_sum(x, 1);
    } else {
        tl_tensor wide = tl_cast(x, TL_F32);
        sum = tl_sum(wide, 1);
        tl_free(wide);
    }
    if (!is_kept)
        tl_free(x);
    return sum;
}

/* In f32 for any dtype, because the sum with an f32 is f32. */
static tl_tensor square(tl_context *tl, const share *s, tl_tensor x, kb_dtype dtype)
{
    return dtype == KB_F32 ? tl_mul(x, x) : tl_fma(x, x, s->zero);
}

typedef enum statistic { SUM, SQUARES, MAGNITUDE } statistic;

/* Statistics of rows, each (rows of the block, 1), F32; {0}: none. */
typedef struct statistics {
    tl_tensor mean, inverse; /* 1 / sqrt(variance + eps) */
    tl_tensor inverse_scale;
} statistics;

/* The rows of the chunk, from a value for all rows of the block. */
static tl_tensor rows_of_chunk(tl_context *tl, const block *b, int64_t chunk, tl_tensor all)
{
    tp_rect rect = chunk_rect(b, chunk, (range){0});
    return tl_slice(all, 0, rect.row - b->row, rect.row - b->row + rect.rows);
}

static tl_tensor normalise(tl_context *tl, const share *s, const block *b, int64_t chunk,
                           const statistics *stats, range columns);

/* The largest magnitude of the normalised values, which are kept if rows are. */
static tl_tensor piece_magnitude(tl_context *tl, const share *s, block *b, int64_t chunk,
                                 const statistics *stats, range columns)
{
    tl_tensor y = normalise(tl, s, b, chunk, stats, columns);
    tl_tensor magnitudes = tl_abs(y), largest = tl_max(magnitudes, 1);
    tl_free(magnitudes);
    if (b->is_kept)
        b->normed[chunk] = y;
    else
        tl_free(y);
    return largest;
}

static tl_tensor piece_statistic(tl_context *tl, const share *s, block *b, int64_t chunk,
                                 const statistics *stats, statistic which, range columns)
{
    kb_dtype dtype = value_dtype(s->plan);
    if (which == MAGNITUDE)
        return piece_magnitude(tl, s, b, chunk, stats, columns);
    bool is_kept;
    tl_tensor x = get_piece(tl, s, b, chunk, columns, &is_kept);
    if (which == SUM)
        return sum_rows(tl, s, x, dtype, is_kept);
    tl_tensor squares;
    if (stats->mean.id != 0) {
        tl_tensor mean = rows_of_chunk(tl, b, chunk, stats->mean), centred = tl_sub(x, mean);
        squares = tl_mul(centred, centred);
        tl_free(mean);
        tl_free(centred);
    } else {
        squares = square(tl, s, x, dtype);
    }
    if (!is_kept)
        tl_free(x);
    return sum_rows(tl, s, squares, KB_F32, false);
}

/* Of the rows of a chunk, over the seen columns: (rows, 1). */
static tl_tensor chunk_statistic(tl_context *tl, const share *s, block *b, int64_t chunk,
                                 const statistics *stats, statistic which)
{
    tl_tensor total = {0};
    range piece = {s->seen.begin, s->seen.begin};
    do {
        piece = next_piece(s, b, s->seen, piece.end);
        tl_tensor next = width(piece) > 0
                             ? piece_statistic(tl, s, b, chunk, stats, which, piece)
                             : tl_zeros(tl_shape(chunk_rect(b, chunk, piece).rows, 1), TL_F32);
        if (total.id == 0) {
            total = next;
            continue;
        }
        tl_tensor both = which == MAGNITUDE ? tl_maximum(total, next) : tl_add(total, next);
        tl_free(total);
        tl_free(next);
        total = both;
    } while (piece.end < s->seen.end);
    return total;
}

/* Of all rows of the block, over all columns of the matrix: (rows, 1). */
static tl_tensor statistic_of(tl_context *tl, const share *s, block *b, const statistics *stats,
                              statistic which)
{
    tl_tensor parts[MAX_CHUNKS] = {{0}};
    int64_t count = chunk_count(b);
    for (int64_t i = 0; i < count; i++)
        parts[i] = chunk_statistic(tl, s, b, i, stats, which);
    tl_tensor all = parts[0];
    if (count > 1) {
        all = tl_concat_(tl, TL_DETAIL_HERE, 0, parts, (size_t)count);
        for (int64_t i = 0; i < count; i++)
            tl_free(parts[i]);
    }
    if (s->plan->division == NN_NORM_COLUMNS)
        all = nn_exchange(tl, &s->plan->peers, which == MAGNITUDE ? NN_MAX : NN_SUM, all, b->rows);
    return all;
}

/* The mean over the columns. Consumes the sums. */
static tl_tensor mean_of(tl_context *tl, const share *s, tl_tensor sums)
{
    tl_tensor mean = tl_mul(sums, 1.0 / (double)s->plan->x.columns);
    tl_free(sums);
    return mean;
}

/* Stores the scales of the rows, each from one PE. */
static void store_scales(tl_context *tl, const share *s, const block *b, tl_tensor scales)
{
    int64_t begin = 0, rows = b->rows;
    if (s->plan->division == NN_NORM_COLUMNS) {
        nn_pe own = nn_find_pe(tl, s->plan->peers.cubes, s->plan->peers.pes);
        begin = tl_part_begin(b->rows, own.count, own.index);
        rows = tl_part_size(b->rows, own.count, own.index);
    }
    if (rows == 0 || !s->stores_scales)
        return;
    tl_tensor part = tl_slice(scales, 0, begin, begin + rows);
    nn_store_rows(tl, &s->plan->scales, s->at.scales, b->row + begin, rows, part);
    tl_free(part);
}

/* The scale of a row is its largest magnitude divided by that of the dtype; for a row of 0 it is
 * tiny. */
static void find_scales(tl_context *tl, const share *s, block *b, statistics *stats)
{
    double largest = s->plan->quantisation == KB_QUANTISED_I8 ? 127 : 448;
    tl_tensor magnitudes = statistic_of(tl, s, b, stats, MAGNITUDE);
    tl_tensor positive = tl_maximum(magnitudes, 1e-12), scales = tl_mul(positive, 1 / largest);
    stats->inverse_scale = tl_div(1.0, scales);
    store_scales(tl, s, b, scales);
    tl_free(magnitudes);
    tl_free(positive);
    tl_free(scales);
}

static statistics find_statistics(tl_context *tl, const share *s, block *b)
{
    statistics stats = {0};
    if (s->plan->is_centred)
        stats.mean = mean_of(tl, s, statistic_of(tl, s, b, &stats, SUM));
    tl_tensor variance = mean_of(tl, s, statistic_of(tl, s, b, &stats, SQUARES));
    tl_tensor sum = tl_add(variance, s->plan->eps);
    stats.inverse = tl_rsqrt(sum);
    tl_free(variance);
    tl_free(sum);
    if (s->plan->quantisation != KB_NOT_QUANTISED)
        find_scales(tl, s, b, &stats);
    return stats;
}

/* ---- Normalisation ---- */

/* Columns of a vector, kept or loaded. */
static tl_tensor get_columns(tl_context *tl, const share *s, const tp_view *view, tl_ptr at,
                             tl_tensor kept, range columns)
{
    bool is_all = columns.begin == s->own.begin && columns.end == s->own.end;
    if (kept.id != 0 && is_all)
        return tl_reshape(kept, tl_shape(1, width(columns)));
    return nn_load(tl, view, at, (tp_rect){0, 1, columns.begin, width(columns)});
}

/* Multiplies by the gain, and adds the bias. Consumes x, which is F32. */
static tl_tensor apply_gain(tl_context *tl, const share *s, tl_tensor x, range columns)
{
    const nn_norm_plan *plan = s->plan;
    tl_tensor gain = {0}, bias = {0}, result = x;
    if (plan->has_gain)
        gain = get_columns(tl, s, &plan->gain, s->at.gain, s->gain, columns);
    if (plan->has_bias)
        bias = get_columns(tl, s, &plan->bias, s->at.bias, s->bias, columns);
    if (plan->has_gain && plan->has_bias)
        result = tl_fma(x, gain, bias);
    else if (plan->has_gain)
        result = tl_mul(x, gain);
    else if (plan->has_bias)
        result = tl_add(x, bias);
    if (plan->has_gain)
        tl_free(gain);
    if (plan->has_bias)
        tl_free(bias);
    if (result.id != x.id)
        tl_free(x);
    return result;
}

/* Columns of a chunk, normalised, in F32. */
static tl_tensor normalise(tl_context *tl, const share *s, const block *b, int64_t chunk,
                           const statistics *stats, range columns)
{
    bool is_kept;
    tl_tensor x = get_piece(tl, s, b, chunk, columns, &is_kept), centred = x;
    tl_tensor inverse = rows_of_chunk(tl, b, chunk, stats->inverse);
    if (stats->mean.id != 0) {
        tl_tensor mean = rows_of_chunk(tl, b, chunk, stats->mean);
        centred = tl_sub(x, mean);
        tl_free(mean);
    }
    tl_tensor scaled = tl_mul(centred, inverse);
    if (centred.id != x.id)
        tl_free(centred);
    if (!is_kept)
        tl_free(x);
    tl_free(inverse);
    return apply_gain(tl, s, scaled, columns);
}

/* Converts to the dtype of the output. Consumes y. Integers are rounded by adding 1.5 * 2^23,
 * beside which an f32 has no fraction. */
static tl_tensor finish(tl_context *tl, const share *s, const block *b, int64_t chunk,
                        const statistics *stats, tl_tensor y)
{
    static const double no_fraction = 12582912;
    const nn_norm_plan *plan = s->plan;
    if (plan->quantisation == KB_NOT_QUANTISED)
        return tp_cast(tl, y, KB_F32, plan->out.dtype);
    tl_tensor inverse = rows_of_chunk(tl, b, chunk, stats->inverse_scale), scaled;
    if (plan->quantisation == KB_QUANTISED_I8) {
        tl_tensor large = tl_fma(y, inverse, no_fraction);
        scaled = tl_sub(large, no_fraction);
        tl_free(large);
    } else {
        scaled = tl_mul(y, inverse);
    }
    tl_free(y);
    tl_free(inverse);
    return tp_cast(tl, scaled, KB_F32, plan->out.dtype);
}

/* Normalised columns of a chunk, kept or computed. */
static tl_tensor get_normed(tl_context *tl, const share *s, block *b, int64_t chunk,
                            const statistics *stats, range columns)
{
    tl_tensor all = b->normed[chunk];
    if (all.id == 0)
        return normalise(tl, s, b, chunk, stats, columns);
    tl_tensor own = tl_slice(all, 1, columns.begin - s->seen.begin, columns.end - s->seen.begin);
    tl_free(all);
    b->normed[chunk] = (tl_tensor){0};
    return own;
}

static void store_chunk(tl_context *tl, const share *s, block *b, int64_t chunk,
                        const statistics *stats)
{
    range piece = {s->own.begin, s->own.begin};
    while (piece.end < s->own.end) {
        piece = next_piece(s, b, s->own, piece.end);
        tp_rect rect = chunk_rect(b, chunk, piece);
        /* The sum may overwrite x or the residual, so it is stored after these have been
         * used. */
        tl_tensor y = get_normed(tl, s, b, chunk, stats, piece);
        if (s->plan->has_residual) {
            bool is_kept;
            tl_tensor x = get_piece(tl, s, b, chunk, piece, &is_kept);
            nn_store(tl, &s->plan->sum, s->at.sum, rect, x);
            if (!is_kept)
                tl_free(x);
        }
        tl_tensor out = finish(tl, s, b, chunk, stats, y);
        nn_store(tl, &s->plan->out, s->at.out, rect, out);
        tl_free(out);
    }
}

static void run_block(tl_context *tl, const share *s, block *b)
{
    for (int64_t i = 0; b->is_kept && i < chunk_count(b); i++)
        if (width(s->seen) > 0)
            b->values[i] = load_value(tl, s, chunk_rect(b, i, s->seen));
    statistics stats = find_statistics(tl, s, b);
    for (int64_t i = 0; i < chunk_count(b); i++) {
        store_chunk(tl, s, b, i, &stats);
        if (b->is_kept && width(s->seen) > 0)
            tl_free(b->values[i]);
    }
    if (stats.mean.id != 0)
        tl_free(stats.mean);
    if (stats.inverse_scale.id != 0)
        tl_free(stats.inverse_scale);
    tl_free(stats.inverse);
}

/* ---- The kernel ---- */

static void run_rows(tl_context *tl, const share *s, int64_t row, int64_t rows)
{
    int64_t columns = kb_max(1, width(s->seen)), step = s->plan->block_rows;
    for (int64_t done = 0; done < rows; done += step) {
        block b = {.row = row + done, .rows = kb_min(step, rows - done)};
        b.is_kept = columns <= s->plan->budget;
        b.step = kb_max(tl_cdiv(b.rows, MAX_CHUNKS), tl_cdiv(MIN_CHUNK, columns));
        b.step = kb_min(b.step, b.rows);
        run_block(tl, s, &b);
    }
}

/* Loads the vectors that all rows need, and constants. */
static void keep_vectors(tl_context *tl, share *s)
{
    const nn_norm_plan *plan = s->plan;
    bool fits = width(s->own) > 0 && width(s->own) <= plan->budget;
    const tp_rect own = {0, 1, s->own.begin, width(s->own)};
    if (plan->has_gain && fits)
        s->gain = nn_load(tl, &plan->gain, s->at.gain, own);
    if (plan->has_bias && fits)
        s->bias = nn_load(tl, &plan->bias, s->at.bias, own);
    if (plan->sums_by_dot && width(s->seen) > 0 && width(s->seen) <= plan->budget)
        s->ones = tl_full(tl_shape(width(s->seen), 1), TL_F32, 1);
    s->zero = tl_zeros(tl_shape(1, 1), TL_F32);
}

/* The rows of the PE, and its columns of them. */
static tp_rect find_share(tl_context *tl, const nn_norm_plan *plan)
{
    int64_t rows = plan->out.rows, columns = plan->out.columns;
    int64_t cube = tl_program_id(1), pe = tl_program_id(0);
    if (plan->division == NN_NORM_COPIES)
        return (tp_rect){.rows = rows, .columns = columns};
    if (plan->division == NN_NORM_COLUMNS || plan->own_rows) {
        tp_rect none = {.rows = plan->division == NN_NORM_COLUMNS ? rows : 0};
        return tp_block_count(&plan->out, cube, pe) > 0 ? tp_get_block(&plan->out, cube, pe, 0).at
                                                        : none;
    }
    nn_pe own = nn_find_pe(tl, plan->peers.cubes, plan->peers.pes);
    int64_t parts = kb_min(rows, own.count), part = own.index / plan->sharing;
    if (part >= parts)
        return (tp_rect){0};
    int64_t index = own.index % plan->sharing;
    return (tp_rect){tl_part_begin(rows, parts, part), tl_part_size(rows, parts, part),
                     tl_part_begin(columns, plan->sharing, index),
                     tl_part_size(columns, plan->sharing, index)};
}

KB_KERNEL(norm, tl_ptr x, tl_ptr residual, tl_ptr gain, tl_ptr bias, tl_ptr out, tl_ptr sum,
          tl_ptr scales, tl_ptr all_pes)
{
    (void)all_pes;
    const nn_norm_plan *plan = tl_user();
    tp_rect rect = find_share(tl, plan);
    if (rect.rows == 0)
        return;
    share s = {.plan = plan, .at = {x, residual, gain, bias, out, sum, scales}};
    s.own = (range){rect.column, rect.column + rect.columns};
    s.seen = plan->division == NN_NORM_COLUMNS ? s.own : (range){0, plan->x.columns};
    s.stores_scales = plan->division == NN_NORM_COLUMNS || rect.column == 0;
    keep_vectors(tl, &s);
    run_rows(tl, &s, rect.row, rect.rows);
}

kb_kernel nn_norm_kernel(void)
{
    return norm;
}
