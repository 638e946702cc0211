/*
 * test_compute_threads.c: a program of all operations gives the same bytes with any number of
 * threads, in whatever order they are looked at, and however much may wait. Meant for
 * ThreadSanitizer too.
 *
 * Checks K6.
 */
#include "data/data_rig.h"
#include "support/seed.h"

enum { N = 280, STEPS = 16 };

/* Results of a program, in the order they were made. */
typedef struct results {
    data_value *values[2 * STEPS + 8];
    size_t count;
} results;

static data_value *keep(results *all, data_value *value)
{
    all->values[all->count++] = value;
    return value;
}

/* Matrices and rows that depend on each other, some large enough to be cut. */
static results program(rig *r, uint64_t seed)
{
    results all = {0};
    kb_rng_init(&r->rng, test_seed(seed));
    const kb_shape square = KB_SHAPE(N, N), column = KB_SHAPE(N, 1);
    data_value *a = keep(&all, random_value(r, KB_F16, square, false));
    data_value *b = keep(&all, random_value(r, KB_F16, square, false));
    data_value *small = full(r, KB_F16, KB_SHAPE(1), 0.03125);
    for (int i = 0; i < STEPS; i++) {
        data_value *made, *pair[] = {a, b};
        uint32_t axis = (uint32_t)kb_rng_below(&r->rng, 2);
        switch (kb_rng_below(&r->rng, 10)) {
        case 0:
            made = dot(r, a, b, NULL, KB_F16);
            break;
        case 1:
            made = dot(r, a, b, a, KB_F16);
            break;
        case 2:
            made = apply(r, DATA_SOFTMAX, KB_F16, square, &a, axis);
            break;
        case 3:
            made = apply(r, DATA_TRANSPOSE, KB_F16, square, &a, 0);
            break;
        case 4: {
            data_value *sums = keep(&all, apply(r, DATA_SUM, KB_F16, column, &b, 1));
            made = apply(r, DATA_SUB, KB_F16, square, (data_value *[]){a, sums}, 0);
            break;
        }
        case 5:
            made = apply(r, DATA_CUMSUM, KB_F16, square, &a, axis);
            break;
        case 6: {
            data_value *order = keep(&all, apply(r, DATA_TOPK, KB_I32, square, &b, axis));
            made = apply(r, DATA_GATHER, KB_F16, square, (data_value *[]){a, order}, axis);
            break;
        }
        case 7: {
            kb_shape first = KB_SHAPE(axis == 0 ? 1 : N, axis == 1 ? 1 : N);
            data_value *best = keep(&all, apply(r, DATA_ARGMAX, KB_I32, first, &a, axis));
            made = apply(r, DATA_SCATTER_ADD, KB_F16, square, (data_value *[]){a, best, b}, axis);
            break;
        }
        case 8: {
            data_value *halves[2];
            expect_ok(data_slice(r->store, a, axis, 0, N / 3, &halves[0]));
            expect_ok(data_slice(r->store, b, axis, N / 3, N, &halves[1]));
            expect_ok(data_concat(r->store, halves, 2, axis, &made));
            drop(r, halves[0]);
            drop(r, halves[1]);
            break;
        }
        default:
            made = apply(r, DATA_MAXIMUM, KB_F16, square, pair, 0);
        }
        data_value *less = apply(r, DATA_MUL, KB_F16, square, (data_value *[]){made, small}, 0);
        drop(r, made);
        a = b;
        b = keep(&all, less);
    }
    drop(r, small);
    return all;
}

static uint64_t hash_of(rig *r, data_value *value)
{
    uint64_t hash = 1469598103934665603u;
    const unsigned char *bytes = bytes_of(r, value);
    uint64_t count = elements_of(data_shape(value)) * kb_dtype_bytes(data_dtype(value));
    for (uint64_t i = 0; i < count; i++)
        hash = (hash ^ bytes[i]) * 1099511628211u;
    return hash;
}

typedef enum order { FORWARDS, BACKWARDS, LAST_ALONE } order;

/* Hashes of all results; those that are not looked at are 0. */
static size_t run(unsigned threads, uint64_t pending_bytes, order looks, uint64_t seed,
                  uint64_t *hashes)
{
    rig r = rig_make(threads, pending_bytes);
    results all = program(&r, seed);
    memset(hashes, 0, all.count * sizeof *hashes);
    if (looks == LAST_ALONE) {
        for (size_t i = 0; i + 1 < all.count; i++)
            drop(&r, all.values[i]);
        hashes[all.count - 1] = hash_of(&r, all.values[all.count - 1]);
        drop(&r, all.values[all.count - 1]);
    } else {
        for (size_t i = 0; i < all.count; i++) {
            size_t at = looks == FORWARDS ? i : all.count - 1 - i;
            hashes[at] = hash_of(&r, all.values[at]);
        }
        for (size_t i = 0; i < all.count; i++)
            drop(&r, all.values[i]);
    }
    rig_end(&r);
    return all.count;
}

static void the_same_with_any_number_of_threads(void **state)
{
    (void)state;
    static const unsigned threads[] = {1, 2, 5};
    for (uint64_t seed = 0; seed < cases(2); seed++) {
        uint64_t expected[2 * STEPS + 8], found[2 * STEPS + 8];
        size_t count = run(1, 0, FORWARDS, seed, expected);
        for (size_t t = 0; t < sizeof threads / sizeof *threads; t++)
            for (int looks = BACKWARDS; looks <= LAST_ALONE; looks++) {
                run(threads[t], looks == BACKWARDS ? 0 : (uint64_t)1 << 20, (order)looks, seed,
                    found);
                for (size_t i = looks == LAST_ALONE ? count - 1 : 0; i < count; i++)
                    assert_int_equal(found[i], expected[i]);
            }
    }
}

/* So many products at once that all threads are in the BLAS: it must not mix them up. */
static void many_products_at_once(void **state)
{
    (void)state;
    enum { products = 40, size = 96 };
    rig r = rig_make(5, 0);
    data_value *a[products], *made[products];
    const kb_shape shape = KB_SHAPE(size, size);
    for (size_t i = 0; i < products; i++) {
        data_value *row;
        expect_ok(data_arange(r.store, KB_F32, (int64_t)i, size, &row));
        data_value *ones = full(&r, KB_F32, shape, 1);
        a[i] = apply(&r, DATA_MUL, KB_F32, shape, (data_value *[]){ones, row}, 0);
        drop(&r, ones);
        drop(&r, row);
    }
    for (size_t i = 0; i < products; i++) {
        data_value *product = dot(&r, a[i], a[(i + 1) % products], NULL, KB_F32);
        write_row(&r, 0, i * size * size * 4, product, NULL);
        made[i] = product;
    }
    expect_ok(data_settle(r.store)); /* all at once */
    for (size_t i = 0; i < products; i++) {
        /* The sum of i .. i + 95, times the column's own number. */
        double sum = (double)(i * size + size * (size - 1) / 2);
        for (uint64_t j = 0; j < size; j += 19)
            assert_true(item(&r, made[i], 5 * size + j) == sum * (double)((i + 1) % products + j));
        drop(&r, a[i]);
        drop(&r, made[i]);
    }
    rig_end(&r);
}

/* A thread has nothing to do but wait for the one before: it must neither hang nor hurry. */
static void chains_in_parts(void **state)
{
    (void)state;
    rig r = rig_make(5, 0);
    enum { elements = 100000, links = 20 };
    data_value *one = full(&r, KB_F32, KB_SHAPE(elements), 1), *x = data_retain(one);
    for (int i = 0; i < links; i++) {
        data_value *next = apply2(&r, DATA_ADD, x, one);
        drop(&r, x);
        x = next;
    }
    for (uint64_t i = 0; i < elements; i += 9999)
        assert_true(item(&r, x, i) == links + 1);
    drop(&r, one);
    drop(&r, x);
    rig_end(&r);
}

/*
 * Sums that take long and are one part each, and what needs them at once: whoever takes that has to
 * wait, for so long that it sleeps, and has to be woken.
 */
static void long_sums(void **state)
{
    (void)state;
    enum { elements = 1 << 18, sums = 6 };
    rig r = rig_make(3, 0);
    data_value *ones = full(&r, KB_I8, KB_SHAPE(elements), 1), *made[sums];
    (void)bytes_of(&r, ones);
    for (uint64_t round = 0; round < cases(20); round++) { /* who takes what is up to the host */
        for (int i = 0; i < sums; i++) {
            data_value *sum = apply(&r, DATA_SUM, KB_I32, KB_SHAPE(1), &ones, 0);
            made[i] = apply2(&r, DATA_ADD, sum, sum);
            write_row(&r, 0, (uint64_t)i * 4, made[i], NULL);
            drop(&r, sum);
        }
        expect_ok(data_settle(r.store)); /* all at once */
        for (int i = 0; i < sums; i++) {
            assert_true(item(&r, made[i], 0) == 2 * elements);
            drop(&r, made[i]);
        }
    }
    drop(&r, ones);
    rig_end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_with_any_number_of_threads),
        cmocka_unit_test(many_products_at_once),
        cmocka_unit_test(chains_in_parts),
        cmocka_unit_test(long_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
