/* test_arena.c: alignment, growth, strings, poison; behaviour without memory. */
#include "support/expect.h"
#include "support/failing_alloc.h"

#include "base/base.h"
#include "base/sanitize.h"

static void blocks_are_aligned_and_apart(void **state)
{
    (void)state;
    enum { count = 2000 };
    kb_arena arena;
    kb_arena_init(&arena);
    unsigned char *blocks[count];
    for (size_t i = 0; i < count; i++) {
        size_t align = (size_t)1 << (i % 9), size = i % 97;
        blocks[i] = kb_arena_alloc(&arena, size, align);
        assert_non_null(blocks[i]);
        assert_int_equal((uintptr_t)blocks[i] % align, 0);
        memset(blocks[i], (int)(i % 251), size);
    }
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < i % 97; j++)
            assert_int_equal(blocks[i][j], i % 251);
    }
    kb_arena_fini(&arena);
}

static void empty_blocks_have_their_own_address(void **state)
{
    (void)state;
    kb_arena arena;
    kb_arena_init(&arena);
    void *a = kb_arena_alloc(&arena, 0, 1), *b = kb_arena_alloc(&arena, 0, 1);
    assert_non_null(a);
    assert_non_null(b);
    assert_ptr_not_equal(a, b);
    kb_arena_fini(&arena);
}

static void large_blocks_fit(void **state)
{
    (void)state;
    kb_arena arena;
    kb_arena_init(&arena);
    char *small = kb_arena_strdup(&arena, "small");
    char *large = kb_arena_alloc(&arena, 5 << 20, 64);
    assert_non_null(large);
    memset(large, 1, 5 << 20);
    assert_string_equal(small, "small");
    assert_null(kb_arena_alloc(&arena, SIZE_MAX, 1));
    assert_null(kb_arena_alloc(&arena, SIZE_MAX - 8, 16));
    assert_null(kb_arena_alloc_array(&arena, SIZE_MAX / 2, 3, 1));
    kb_arena_fini(&arena);
}

static void strings_are_copied(void **state)
{
    (void)state;
    kb_arena arena;
    kb_arena_init(&arena);
    char source[] = "abc";
    char *copy = kb_arena_strdup(&arena, source);
    source[0] = 'x';
    assert_string_equal(copy, "abc");
    assert_memory_equal(kb_arena_strndup(&arena, "a\0b", 3), "a\0b", 4);
    assert_string_equal(kb_arena_strndup(&arena, NULL, 0), "");
    assert_string_equal(kb_arena_printf(&arena, "%d-%s", 7, "x"), "7-x");
    struct pair {
        int a, b;
    } *pair = KB_ARENA_NEW(&arena, struct pair);
    assert_int_equal(pair->a | pair->b, 0);
    kb_arena_fini(&arena);
}

static void what_is_not_handed_out_is_poisoned(void **state)
{
    (void)state;
#ifdef KB_ASAN
    kb_arena arena;
    kb_arena_init(&arena);
    char *a = kb_arena_alloc(&arena, 24, 8), *b = kb_arena_alloc(&arena, 8, 8);
    assert_false(__asan_address_is_poisoned(a));
    assert_false(__asan_address_is_poisoned(a + 23));
    assert_true(__asan_address_is_poisoned(a + 24));
    assert_false(__asan_address_is_poisoned(b));
    assert_true(__asan_address_is_poisoned(b + 8));
    kb_arena_fini(&arena);
#else
    skip();
#endif
}

static void use_without_memory(void)
{
    kb_arena arena;
    kb_arena_init(&arena);
    for (size_t i = 0; i < 20; i++) {
        char *block = kb_arena_alloc(&arena, 1000 * i, 16);
        if (block)
            memset(block, 1, 1000 * i);
        char *string = kb_arena_printf(&arena, "%zu", i);
        if (string)
            assert_int_equal(strtoul(string, NULL, 10), i);
    }
    char *block = kb_arena_alloc(&arena, 1 << 20, 16);
    if (block)
        memset(block, 1, 1 << 20);
    kb_arena_fini(&arena);
}

static void survives_lack_of_memory(void **state)
{
    (void)state;
    failing_alloc_try_all(use_without_memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_aligned_and_apart),
        cmocka_unit_test(empty_blocks_have_their_own_address),
        cmocka_unit_test(large_blocks_fit),
        cmocka_unit_test(strings_are_copied),
        cmocka_unit_test(what_is_not_handed_out_is_poisoned),
        cmocka_unit_test(survives_lack_of_memory),
    };
    return cmocka_run_group_tests_name("arena", tests, NULL, NULL);
}
