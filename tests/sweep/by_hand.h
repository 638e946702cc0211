/*
 * by_hand.h: a small sweep that is worked out by hand.
 *
 * An all-reduce: 4KiB takes 100 ns whatever the bandwidth, 64KiB takes bytes / bandwidth, at least
 * 300 ns. `algo` changes nothing, bw 32 of 64KiB with `tree` fails.
 *
 *     bw GB/s    4KiB    64KiB
 *     32         100     2048
 *     64         100     1024
 *     128        100      512
 *     256        100      300
 *     512        100      300
 */
#ifndef TESTS_SWEEP_BY_HAND_H
#define TESTS_SWEEP_BY_HAND_H

#include "support/expect.h"

#include "sweep/results.h"

static inline const sweep_column *column(const sweep_results *r, const char *name)
{
    const sweep_column *found;
    expect_ok(sweep_find_column(r, "column", name, &found));
    return found;
}

static const char *const bws[] = {"512", "32", "64", "128", "256"};
static const char *const sizes[] = {"4KiB", "64KiB"};
static const char *const algos[] = {"ring", "tree"};

static inline double by_hand_ns(size_t bw, size_t size)
{
    static const double large[] = {300, 2048, 1024, 512, 300};
    return size == 0 ? 100 : large[bw];
}

static inline void fill_point(sweep_results *r, size_t row, size_t bw, size_t size, size_t algo)
{
    sweep_results_set_axis(r, row, 0, bws[bw]);
    sweep_results_set_axis(r, row, 1, sizes[size]);
    sweep_results_set_axis(r, row, 2, algos[algo]);
    if (bw == 1 && size == 1 && algo == 1) {
        sweep_results_set_status(r, row, "timeout", false, "took more than 10 s, \"tree\"");
        return;
    }
    double ns = by_hand_ns(bw, size);
    sweep_results_set_status(r, row, "ok", true, NULL);
    sweep_results_set_figure(r, row, "parameters.nbytes", size == 0 ? 4096 : 65536);
    sweep_results_set_figure(r, row, "sim_ns", ns);
    sweep_results_set_figure(r, row, "causes.message_ns", ns > 300 ? 10 : 60);
    sweep_results_set_figure(r, row, "causes.launch_ns", 50);
    sweep_results_set_figure(r, row, "causes.other_sips_ns", ns > 300 ? ns / 2 : 0);
    sweep_results_set_figure(r, row, "wall_s", (double)row * 0.25);
}

static inline sweep_results *by_hand(void)
{
    static const char *const axes[] = {"sip.ucie.bw_gbs", "nbytes", "algo"};
    sweep_results *r;
    expect_ok(sweep_results_create(axes, 3, 20, &r));
    size_t row = 0;
    for (size_t bw = 0; bw < 5; bw++)
        for (size_t size = 0; size < 2; size++)
            for (size_t algo = 0; algo < 2; algo++)
                fill_point(r, row++, bw, size, algo);
    expect_ok(sweep_results_finish(r));
    return r;
}

#endif
