/* failing_ranks.h: allocations fail in turn while two ranks work. */
#ifndef TESTS_TP_FAILING_RANKS_H
#define TESTS_TP_FAILING_RANKS_H

#include "support/failing_alloc.h"

#include "tp_ranks.h"

/* With the n-th allocation failing; false if there were fewer. */
static inline bool fail_nth_allocation(kb_worker_fn *fn, long n, failing_alloc_mode mode)
{
    kb_context *ctx =
        open_machine((machine_size){.sips = 2, .w = 1, .h = 1, .pes = 2}, (kb_context_options){0});
    failing_alloc_arm(n, mode);
    kb_error *err = kb_spawn(ctx, fn, NULL, 2);
    bool failed = failing_alloc_disarm();
    if (err && kb_error_code(err) != KB_ERR_HOST)
        fail_msg("allocation %ld: %s", n, kb_error_message(err));
    if (!failed)
        expect_ok(err);
    kb_error_free(err);
    kb_context_destroy(ctx);
    return failed;
}

/* Every one of the first, then fewer and fewer. What comes of it is an error about memory, and
 * nothing is lost. */
static inline void fail_each_allocation(kb_worker_fn *fn)
{
    for (int mode = FAIL_ONCE; mode <= FAIL_ONWARDS; mode++) {
        size_t before = failing_alloc_live();
        bool failed = true;
        for (long n = 1; failed; n += n < 100 ? 1 : n < 1000 ? 7 : 31) {
            failed = fail_nth_allocation(fn, n, (failing_alloc_mode)mode);
            assert_int_equal(failing_alloc_live(), before);
        }
    }
}

#endif
