/*
 * test_data_alloc.c: no host memory, and no threads. What fails can be tried again, and then is
 * right.
 */
#include "data/data_rig.h"
#include "support/failing_alloc.h"

#include <errno.h>
#include <pthread.h>

static bool threads_fail;
static int threads_left; /* that can be started, if they fail */

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                          void *arg);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                          void *arg)
{
    if (threads_fail && threads_left-- <= 0)
        return EAGAIN;
    return __real_pthread_create(thread, attr, start, arg);
}

/* ---- Memory ------------------------------------------------------------------------------ */

static topo_machine *machine;

/* Tries until there is memory: at most once more, if one allocation fails; false if none does. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        kb_error *err_ = (call);                                                                   \
        if (err_ && kb_error_code(err_) == KB_ERR_HOST) {                                          \
            kb_error_free(err_);                                                                   \
            err_ = (call);                                                                         \
        }                                                                                          \
        if (err_) {                                                                                \
            assert_int_equal(kb_error_code(err_), KB_ERR_HOST);                                    \
            kb_error_free(err_);                                                                   \
            return false;                                                                          \
        }                                                                                          \
    } while (0)

typedef struct world {
    mem_memories *memories;
    data_store *store;
    data_value *a, *b, *product, *sum, *mask, *row, *back, *total, *order, *picked, *added;
} world;

/* Whether all of it could be done. Values are NULL until they are made. */
static bool live(world *w)
{
    const kb_shape shape = KB_SHAPE(8, 8), line = KB_SHAPE(8, 1);
    TRY(data_full(w->store, KB_F16, &shape, 0.5, &w->a));
    TRY(data_arange(w->store, KB_F16, 0, 8, &w->row));
    TRY(data_apply(w->store, DATA_ADD, KB_F16, &shape, (data_value *[]){w->a, w->row}, 2, 0,
                   &w->b));
    TRY(data_dot(w->store, w->a, w->b, NULL, KB_F16, &w->product));
    TRY(data_apply(w->store, DATA_GT, KB_I8, &shape, (data_value *[]){w->b, w->a}, 2, 0, &w->mask));
    mem_rect rects[2] = {row_at(0, 4000, 128), row_at(1, 0, 128)};
    TRY(data_write(w->store, rects, 1, 128, w->product, NULL));
    TRY(data_write(w->store, rects, 1, 128, w->b, w->mask));
    TRY(data_write(w->store, rects + 1, 1, 128, w->product, NULL));
    TRY(data_read(w->store, &(data_source){KB_F16, shape, 128, rects, 1, 0}, &w->back));
    TRY(data_apply(w->store, DATA_SUM, KB_F16, &line, &w->back, 1, 1, &w->sum));
    TRY(data_apply(w->store, DATA_SUM, KB_F16, &(kb_shape){2, {1, 1}}, &w->sum, 1, 0, &w->total));
    TRY(data_apply(w->store, DATA_TOPK, KB_I32, &shape, &w->back, 1, 1, &w->order));
    TRY(data_apply(w->store, DATA_GATHER, KB_F16, &shape, (data_value *[]){w->back, w->order}, 2, 1,
                   &w->picked));
    TRY(data_apply(w->store, DATA_SCATTER_ADD, KB_F16, &shape,
                   (data_value *[]){w->picked, w->order, w->back}, 3, 1, &w->added));
    double number;
    TRY(data_item(w->store, w->added, 0, &number));
    /* A row is 2, 1.5, 2.5, .., 7.5; in order 7.5, .., 2.5, 2, 1.5, from 7, .., 2, 0, 1. So what is
     * added to the first, 7.5, is element 6 of the row: 6.5. */
    assert_true(number == 14);
    TRY(data_item(w->store, w->total, 0, &number));
    TRY(data_settle(w->store));
    /* Column 0 is of the product, 8 * 0.5 * 0.5 = 2; the others of b: 1.5 + .. + 7.5 = 31.5. */
    assert_true(number == 8 * 33.5);
    return true;
}

static void program(unsigned threads)
{
    world w = {0};
    kb_error *err = mem_memories_create(machine, TOPO_NONE, &w.memories);
    if (!err)
        err = data_store_create(&(data_options){w.memories, threads, 0}, &w.store);
    if (!err) {
        (void)live(&w);
        data_value *all[] = {w.a,    w.b,     w.product, w.sum,    w.mask, w.row,
                             w.back, w.total, w.order,   w.picked, w.added};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            data_release(w.store, all[i]);
    }
    kb_error_free(err);
    data_store_destroy(w.store);
    mem_memories_destroy(w.memories);
}

static void alone(void)
{
    program(1);
}

static void with_threads(void)
{
    program(3);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    machine = machine_of(RIG_MACHINE);
    failing_alloc_try_all(alone);
    failing_alloc_try_all(with_threads);
    topo_machine_destroy(machine);
}

/* ---- Threads ----------------------------------------------------------------------------- */

/* Enough to be worth sharing. */
static void use_threads(void)
{
    rig r = rig_make(4, 0);
    data_value *a = full(&r, KB_F16, KB_SHAPE(200000), 3), *b = apply2(&r, DATA_MUL, a, a);
    for (uint64_t i = 0; i < 200000; i += 33333)
        assert_true(item(&r, b, i) == 9);
    drop(&r, a);
    drop(&r, b);
    rig_end(&r);
}

static void threads_that_cannot_be_started(void **state)
{
    (void)state;
    threads_fail = true;
    for (int left = 0; left <= 3; left++) {
        threads_left = left;
        use_threads();
        assert_true(threads_left <= 0); /* it tried */
    }
    threads_fail = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(threads_that_cannot_be_started),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
