/*
 * arrivals.c: Bernoulli and Poisson arrivals, with one draw for each.
 *
 * The cycles without an arrival between two of them are geometric: the whole part of E / -ln(1 - p)
 * for an exponential E of mean 1, since that exceeds k with probability (1 - p)^k. Logarithms of C
 * libraries differ in the last bit, so this one is computed in integers; what is done in floating
 * point is one division, which is the same everywhere.
 */
#include "arrivals.h"

__extension__ typedef unsigned __int128 wide;

const char *const traffic_process_names[TRAFFIC_PROCESSES] = {
    [TRAFFIC_BERNOULLI] = "bernoulli",
    [TRAFFIC_POISSON] = "poisson",
};

enum {
    fraction_bits = 57,
    tick_bits = 8, /* a tick of Poisson arrivals is 2^-8 fs: rounding does not show in the rate */
};

static const uint64_t one = (uint64_t)1 << fraction_bits;
static const uint64_t ln2 = 99893036290645747; /* in units of 2^-57 */

/* -ln(q), argument and result in units of 2^-57, for q in (0, 1]. */
static uint64_t minus_log(uint64_t q)
{
    uint64_t whole = 0;
    for (; q < one / 2; q *= 2)
        whole += ln2;
    /* -ln(q) = 2 artanh(z) = 2 (z + z^3/3 + z^5/5 + ...), and z is at most 1/3. */
    uint64_t z = (uint64_t)((wide)(one - q) * one / (one + q));
    uint64_t square = (uint64_t)((wide)z * z >> fraction_bits);
    uint64_t sum = 0;
    for (uint64_t n = 1, power = z; power > 0; n += 2) {
        sum += power / n;
        power = (uint64_t)((wide)power * square >> fraction_bits);
    }
    return whole + 2 * sum;
}

static kb_error *init_bernoulli(arrivals *a, const traffic_options *options, uint64_t bytes_per_s,
                                uint32_t packet_bytes, kb_time last)
{
    uint64_t cycle_bytes = packet_bytes < options->bytes ? packet_bytes : options->bytes;
    if (options->cycle_bytes > 0)
        cycle_bytes = options->cycle_bytes;
    wide chance = (wide)options->rate_ppb * cycle_bytes;
    wide certain = (wide)TRAFFIC_RATE_ONE * options->bytes;
    if (chance > certain)
        return kb_error_new(
            KB_ERR_INPUT,
            "a PE would issue more than one transfer per packet time to offer %.9g of its "
            "link's bandwidth in transfers of %ju bytes; a lower rate or the process poisson "
            "can do",
            (double)options->rate_ppb / 1e9, (uintmax_t)options->bytes);
    a->cycle = topo_pace_make(bytes_per_s, cycle_bytes);
    if (chance < certain) {
        uint64_t p = (uint64_t)((chance << fraction_bits) / certain);
        uint64_t log_miss = p == 0 ? 1 : minus_log(one - p);
        a->log_miss = (double)log_miss * 0x1p-57;
    }
    uint64_t cycle_fs = a->cycle.quotient + (a->cycle.remainder > 0);
    a->last_moment = cycle_fs == 0 ? 0 : (uint64_t)last / cycle_fs;
    return NULL;
}

static void init_poisson(arrivals *a, const traffic_options *options, uint64_t bytes_per_s,
                         kb_time last)
{
    const uint64_t fs_per_s = (uint64_t)KB_S;
    /* bytes / (rate * bandwidth), in steps that do not overflow. */
    wide gap = (((wide)options->bytes * fs_per_s << tick_bits) + bytes_per_s / 2) / bytes_per_s;
    gap = (gap * TRAFFIC_RATE_ONE + options->rate_ppb / 2) / options->rate_ppb;
    a->mean_gap = gap < INT64_MAX ? (uint64_t)gap : INT64_MAX;
    a->last_moment = (uint64_t)last << tick_bits;
}

kb_error *arrivals_init(arrivals *a, const traffic_options *options, uint64_t bytes_per_s,
                        uint32_t packet_bytes, kb_time last)
{
    *a = (arrivals){.process = options->process};
    KB_ASSERT(last <= INT64_MAX >> tick_bits);
    if (options->process == TRAFFIC_BERNOULLI)
        return init_bernoulli(a, options, bytes_per_s, packet_bytes, last);
    init_poisson(a, options, bytes_per_s, last);
    return NULL;
}

void arrivals_start(arrivals_stream *stream, uint64_t seed, uint32_t pe)
{
    uint64_t of_pe = kb_splitmix64(&seed) + pe;
    kb_rng_init(&stream->rng, kb_splitmix64(&of_pe));
    stream->moment = 0;
}

/* ceil(cycle * bytes / bandwidth). */
static kb_time cycle_time(const topo_pace *pace, uint64_t cycle)
{
    if (KB_LIKELY(pace->remainder == 0))
        return (kb_time)(cycle * pace->quotient);
    return topo_rate_time(pace->bytes_per_s, cycle * pace->packet_bytes);
}

static kb_time finish(arrivals_stream *stream)
{
    stream->moment = UINT64_MAX;
    return KB_FOREVER;
}

static kb_time next_bernoulli(const arrivals *a, arrivals_stream *stream)
{
    uint64_t gap = 0;
    if (a->log_miss > 0)
        gap = (uint64_t)(kb_rng_exponential(&stream->rng) / a->log_miss); /* below 54 * 2^57 */
    if (stream->moment > a->last_moment || gap > a->last_moment - stream->moment)
        return finish(stream);
    stream->moment += gap + 1;
    return cycle_time(&a->cycle, stream->moment - 1);
}

static kb_time next_poisson(const arrivals *a, arrivals_stream *stream)
{
    uint64_t gap = (uint64_t)kb_rng_exponential_time(&stream->rng, (kb_time)a->mean_gap);
    if (stream->moment > a->last_moment || gap > a->last_moment - stream->moment)
        return finish(stream);
    stream->moment += gap;
    return (kb_time)(stream->moment >> tick_bits);
}

kb_time arrivals_next(const arrivals *a, arrivals_stream *stream)
{
    return a->process == TRAFFIC_BERNOULLI ? next_bernoulli(a, stream) : next_poisson(a, stream);
}
