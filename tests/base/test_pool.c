/* test_pool.c: indices, reuse, stable addresses, poison; behaviour without memory. */
#include "support/expect.h"
#include "support/failing_alloc.h"
#include "support/seed.h"

#include "base/base.h"
#include "base/sanitize.h"

typedef struct thing {
    uint64_t a, b;
    char c;
} thing;

static void indices_start_at_one_and_are_reused_last_first(void **state)
{
    (void)state;
    kb_pool pool;
    kb_pool_init(&pool, sizeof(thing));
    assert_int_equal(kb_pool_take(&pool), 1);
    assert_int_equal(kb_pool_take(&pool), 2);
    assert_int_equal(kb_pool_take(&pool), 3);
    assert_int_equal(kb_pool_live(&pool), 3);
    kb_pool_give(&pool, 1);
    kb_pool_give(&pool, 3);
    assert_int_equal(kb_pool_live(&pool), 1);
    assert_int_equal(kb_pool_take(&pool), 3);
    assert_int_equal(kb_pool_take(&pool), 1);
    assert_int_equal(kb_pool_take(&pool), 4);
    kb_pool_fini(&pool);
    assert_int_equal(kb_pool_live(&pool), 0);
    assert_int_equal(kb_pool_take(&pool), 1); /* usable again */
    kb_pool_fini(&pool);
}

static void objects_stay_where_they_are(void **state)
{
    (void)state;
    enum { count = 5 * KB_POOL_CHUNK + 17 };
    kb_pool pool;
    kb_pool_init(&pool, sizeof(thing));
    thing **seen = kb_alloc_array(count + 1, sizeof *seen);
    assert_non_null(seen);
    for (uint32_t i = 1; i <= count; i++) {
        assert_int_equal(kb_pool_take(&pool), i);
        seen[i] = kb_pool_at(&pool, i);
        assert_int_equal((uintptr_t)seen[i] % _Alignof(max_align_t), 0);
        *seen[i] = (thing){.a = i, .b = ~(uint64_t)i, .c = (char)i};
    }
    for (uint32_t i = 1; i <= count; i++) {
        assert_ptr_equal(kb_pool_at(&pool, i), seen[i]);
        assert_int_equal(seen[i]->a, i);
        assert_int_equal(seen[i]->b, ~(uint64_t)i);
    }
    assert_int_equal(kb_pool_live(&pool), count);
    free(seen);
    kb_pool_fini(&pool);
}

static void sizes_are_served(void **state)
{
    (void)state;
    const size_t sizes[] = {1, 3, 4, 5, 16, 63, 64, 128, 4096};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        kb_pool pool;
        kb_pool_init(&pool, sizes[s]);
        for (uint32_t i = 1; i < 100; i++) {
            assert_int_equal(kb_pool_take(&pool), i);
            memset(kb_pool_at(&pool, i), (int)i, sizes[s]);
            if (sizes[s] % 64 == 0)
                assert_int_equal((uintptr_t)kb_pool_at(&pool, i) % 64, 0);
        }
        for (uint32_t i = 1; i < 100; i++) {
            const unsigned char *bytes = kb_pool_at(&pool, i);
            for (size_t j = 0; j < sizes[s]; j++)
                assert_int_equal(bytes[j], i);
        }
        kb_pool_fini(&pool);
    }
}

/* Against a plain model: an array that says who is live. */
static void random_use_matches_a_model(void **state)
{
    (void)state;
    enum { limit = 3000 };
    static bool live[limit + 1];
    uint32_t held[limit], held_count = 0;
    kb_pool pool;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(7));
    kb_pool_init(&pool, 8);
    for (int step = 0; step < 100000; step++) {
        bool take = held_count == 0 || (held_count < limit && kb_rng_below(&rng, 100) < 51);
        if (take) {
            uint32_t index = kb_pool_take(&pool);
            assert_in_range(index, 1, limit);
            assert_false(live[index]);
            live[index] = true;
            uint64_t tag = (uint64_t)index * 1000003u;
            memcpy(kb_pool_at(&pool, index), &tag, sizeof tag);
            held[held_count++] = index;
        } else {
            uint32_t which = (uint32_t)kb_rng_below(&rng, held_count);
            uint32_t index = held[which];
            held[which] = held[--held_count];
            uint64_t tag;
            memcpy(&tag, kb_pool_at(&pool, index), sizeof tag);
            assert_int_equal(tag, (uint64_t)index * 1000003u);
            live[index] = false;
            kb_pool_give(&pool, index);
        }
        assert_int_equal(kb_pool_live(&pool), held_count);
    }
    kb_pool_fini(&pool);
}

static void reserve_makes_takes_succeed(void **state)
{
    (void)state;
    enum { count = 3 * KB_POOL_CHUNK };
    kb_pool pool;
    kb_pool_init(&pool, 32);
    for (uint32_t i = 1; i <= 10; i++)
        assert_int_equal(kb_pool_take(&pool), i);
    for (uint32_t i = 1; i <= 5; i++)
        kb_pool_give(&pool, i);
    assert_true(kb_pool_reserve(&pool, count));
    failing_alloc_arm(1, FAIL_ONWARDS);
    for (uint32_t i = 0; i < count; i++)
        assert_int_not_equal(kb_pool_take(&pool), 0);
    assert_false(failing_alloc_disarm());
    kb_pool_fini(&pool);
}

static void give_twice(void)
{
    kb_pool pool;
    kb_pool_init(&pool, 8);
    uint32_t index = kb_pool_take(&pool);
    kb_pool_give(&pool, index);
    kb_pool_give(&pool, index);
}

static void give_zero(void)
{
    kb_pool pool;
    kb_pool_init(&pool, 8);
    kb_pool_give(&pool, 0);
}

static void misuse_is_caught(void **state)
{
    (void)state;
#ifdef NDEBUG
    (void)give_twice;
    (void)give_zero;
    skip();
#else
    expect_abort(give_twice, "assertion failed: is_live(pool, index)");
    expect_abort(give_zero, "assertion failed: index != 0");
#endif
}

static void free_objects_are_poisoned(void **state)
{
    (void)state;
#ifdef KB_ASAN
    kb_pool pool;
    kb_pool_init(&pool, 24);
    uint32_t index = kb_pool_take(&pool);
    char *object = kb_pool_at(&pool, index);
    assert_false(__asan_address_is_poisoned(object + 23));
    assert_true(__asan_address_is_poisoned(object + 24));
    kb_pool_give(&pool, index);
    assert_true(__asan_address_is_poisoned(object));
    assert_int_equal(kb_pool_take(&pool), index);
    assert_false(__asan_address_is_poisoned(object));
    kb_pool_fini(&pool);
#else
    skip();
#endif
}

static void use_without_memory(void)
{
    kb_pool pool;
    kb_pool_init(&pool, 40);
    uint32_t taken = 0, failures = 0;
    for (int i = 0; i < 10 * KB_POOL_CHUNK; i++) {
        uint32_t index = kb_pool_take(&pool);
        if (index == 0) {
            failures++;
            continue;
        }
        assert_int_equal(index, ++taken); /* a failed take loses no index */
        memset(kb_pool_at(&pool, index), 1, 40);
    }
    assert_int_equal(kb_pool_live(&pool), taken);
    assert_int_equal(taken + failures, 10 * KB_POOL_CHUNK);
    kb_pool_fini(&pool);
}

static void survives_lack_of_memory(void **state)
{
    (void)state;
    failing_alloc_try_all(use_without_memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(indices_start_at_one_and_are_reused_last_first),
        cmocka_unit_test(objects_stay_where_they_are),
        cmocka_unit_test(sizes_are_served),
        cmocka_unit_test(random_use_matches_a_model),
        cmocka_unit_test(reserve_makes_takes_succeed),
        cmocka_unit_test(misuse_is_caught),
        cmocka_unit_test(free_objects_are_poisoned),
        cmocka_unit_test(survives_lack_of_memory),
    };
    return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
