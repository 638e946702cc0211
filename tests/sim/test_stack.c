/*
 * test_stack.c: stacks are reused, guarded, and refused with a message.
 *
 * mmap(), munmap(), madvise() and mprotect() are wrapped: they count what is mapped and fail when
 * told to. So every way of getting a guard, and of getting none, is tried on any kernel.
 */
#include "support/expect.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>

#include "base/base.h"
#include "sim/stack.h"

void *__real_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *address, size_t length);
int __real_madvise(void *address, size_t length, int advice);
int __real_mprotect(void *address, size_t length, int protection);
void *__wrap_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset);
int __wrap_munmap(void *address, size_t length);
int __wrap_madvise(void *address, size_t length, int advice);
int __wrap_mprotect(void *address, size_t length, int protection);

static bool no_mmap, no_madvise, no_mprotect;
static size_t mapped_bytes, maps;

void *__wrap_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    if (no_mmap) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    void *base = __real_mmap(address, length, protection, flags, fd, offset);
    if (base != MAP_FAILED) {
        mapped_bytes += length;
        maps++;
    }
    return base;
}

int __wrap_munmap(void *address, size_t length)
{
    int result = __real_munmap(address, length);
    if (result == 0) {
        mapped_bytes -= length;
        maps--;
    }
    return result;
}

int __wrap_madvise(void *address, size_t length, int advice)
{
    if (no_madvise) {
        errno = EINVAL; /* as an old kernel says */
        return -1;
    }
    return __real_madvise(address, length, advice);
}

int __wrap_mprotect(void *address, size_t length, int protection)
{
    if (no_mprotect) {
        errno = EACCES;
        return -1;
    }
    return __real_mprotect(address, length, protection);
}

static kb_stack take(kb_stack_pool *pool)
{
    kb_stack stack = {0};
    expect_ok(kb_stack_take(pool, &stack));
    assert_non_null(stack.base);
    return stack;
}

static void sizes_are_rounded_up_to_pages(void **state)
{
    (void)state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const struct {
        size_t asked, got;
    } cases[] = {{1, page},
                 {page - 1, page},
                 {page, page},
                 {page + 1, 2 * page},
                 {10 * page - 7, 10 * page},
                 {1 << 20, 1 << 20}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kb_stack_pool pool;
        kb_stack_pool_init(&pool, cases[i].asked);
        assert_int_equal(pool.bytes, cases[i].got);
        assert_int_equal(pool.mapped, 0);
        kb_stack stack = take(&pool);
        assert_ptr_equal(kb_stack_low(stack), stack.base + KB_STACK_GUARD);
        memset(kb_stack_low(stack), 0x5a, pool.bytes); /* all of it is there to be used */
        assert_in_range(pool.length, KB_STACK_GUARD + pool.bytes,
                        KB_STACK_GUARD + pool.bytes + page);
        assert_int_equal(pool.length % (2 * page), page); /* tops differ in where caches put them */
        assert_int_equal(mapped_bytes, pool.length);
        kb_stack_give(&pool, stack);
        kb_stack_pool_fini(&pool);
        assert_int_equal(mapped_bytes, 0);
    }
}

static void a_pool_that_was_not_used_maps_nothing(void **state)
{
    (void)state;
    kb_stack_pool pool;
    kb_stack_pool_init(&pool, 65536);
    assert_int_equal(maps, 0);
    kb_stack_pool_fini(&pool);
    assert_int_equal(maps, 0);
}

/* Law: nothing is mapped while one that was given back is left; the last given is taken first. */
static void stacks_are_used_again(void **state)
{
    (void)state;
    enum { count = 10 };
    kb_stack_pool pool;
    kb_stack_pool_init(&pool, 16384);
    kb_stack stacks[count];
    for (int i = 0; i < count; i++) {
        stacks[i] = take(&pool);
        memset(kb_stack_low(stacks[i]), i, pool.bytes);
        for (int j = 0; j < i; j++) {
            /* None overlaps another. */
            size_t length = pool.length;
            assert_true(stacks[i].base >= stacks[j].base + length ||
                        stacks[j].base >= stacks[i].base + length);
        }
    }
    for (int i = 0; i < count; i++) {
        const char *low = kb_stack_low(stacks[i]);
        assert_int_equal(low[0], i);
        assert_int_equal(low[pool.bytes - 1], i);
    }
    assert_int_equal(maps, count);
    assert_int_equal(pool.mapped, count);
    for (int i = 0; i < count; i++)
        kb_stack_give(&pool, stacks[i]);
    assert_int_equal(maps, count); /* kept */
    for (int i = count - 1; i >= 0; i--) {
        kb_stack again = take(&pool);
        assert_ptr_equal(again.base, stacks[i].base);
        memset(kb_stack_low(again), 0xff, pool.bytes);
    }
    assert_int_equal(maps, count);
    kb_stack more = take(&pool);
    assert_int_equal(maps, count + 1);
    kb_stack_give(&pool, more);
    for (int i = 0; i < count; i++)
        kb_stack_give(&pool, stacks[i]);
    kb_stack_pool_fini(&pool);
    assert_int_equal(maps, 0);
    assert_int_equal(mapped_bytes, 0);
}

/* The signal of which a child dies that writes to the address; 0 if it lives. */
static int signal_of_touching(char *address)
{
    fflush(stdout);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); /* a sanitizer's handler would turn it into a report */
        signal(SIGBUS, SIG_DFL);
        *(volatile char *)address = 1;
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status))
        return WTERMSIG(status);
    assert_int_equal(WEXITSTATUS(status), 0);
    return 0;
}

static void expect_guarded(kb_stack stack, size_t bytes)
{
    assert_int_equal(signal_of_touching(kb_stack_low(stack)), 0);
    assert_int_equal(signal_of_touching(kb_stack_low(stack) + bytes - 1), 0);
    assert_int_equal(signal_of_touching(kb_stack_low(stack) - 1), SIGSEGV);
    assert_int_equal(signal_of_touching(stack.base + KB_STACK_GUARD / 2), SIGSEGV);
    assert_int_equal(signal_of_touching(stack.base), SIGSEGV);
}

/* Law: every address of the guard faults, also when the stack is used for the second time. */
static void the_guard_faults(void **state)
{
    (void)state;
    kb_stack_pool pool;
    kb_stack_pool_init(&pool, 65536);
    kb_stack stack = take(&pool);
    expect_guarded(stack, pool.bytes);
    kb_stack_give(&pool, stack);
    kb_stack again = take(&pool);
    assert_ptr_equal(again.base, stack.base);
    expect_guarded(again, pool.bytes);
    kb_stack_give(&pool, again);
    kb_stack_pool_fini(&pool);
}

static void an_old_kernel_gets_the_same_guard(void **state)
{
    (void)state;
    kb_stack_pool pool;
    kb_stack_pool_init(&pool, 65536);
    no_madvise = true;
    kb_stack stack = take(&pool);
    no_madvise = false;
    expect_guarded(stack, pool.bytes);
    kb_stack_give(&pool, stack);
    kb_stack_pool_fini(&pool);
    assert_int_equal(maps, 0);
}

static void a_refused_stack_says_why_and_what_to_do(void **state)
{
    (void)state;
    kb_stack_pool pool;
    kb_stack_pool_init(&pool, 65536);
    kb_stack stack = {0};
    no_mmap = true;
    expect_error(kb_stack_take(&pool, &stack), KB_ERR_HOST,
                 "cannot allocate a stack of 64 KiB for a coroutine (0 exist): Cannot allocate "
                 "memory; use smaller stacks, or raise the limits (ulimit -v, sysctl "
                 "vm.max_map_count)");
    no_mmap = false;
    kb_stack first = take(&pool);
    kb_stack second = take(&pool);
    no_mmap = true;
    expect_error(kb_stack_take(&pool, &stack), KB_ERR_HOST,
                 "cannot allocate a stack of 64 KiB for a coroutine (2 exist): Cannot allocate "
                 "memory; use smaller stacks, or raise the limits (ulimit -v, sysctl "
                 "vm.max_map_count)");
    kb_stack_give(&pool, second);
    assert_ptr_equal(take(&pool).base, second.base); /* one that is there needs no mmap() */
    no_mmap = false;
    kb_stack_give(&pool, second);
    kb_stack_give(&pool, first);
    kb_stack_pool_fini(&pool);
    assert_int_equal(maps, 0);
}

/* A stack without a guard is not handed out, and is not left mapped either. */
static void a_stack_that_cannot_be_guarded_is_refused(void **state)
{
    (void)state;
    kb_stack_pool pool;
    kb_stack_pool_init(&pool, 4096);
    kb_stack stack = {0};
    no_madvise = no_mprotect = true;
    expect_error(kb_stack_take(&pool, &stack), KB_ERR_HOST,
                 "cannot allocate a stack of 4 KiB for a coroutine (0 exist): Permission "
                 "denied; use smaller stacks, or raise the limits (ulimit -v, sysctl "
                 "vm.max_map_count)");
    no_madvise = no_mprotect = false;
    assert_int_equal(maps, 0);
    assert_int_equal(mapped_bytes, 0);
    assert_int_equal(pool.mapped, 0);
    kb_stack_give(&pool, take(&pool));
    kb_stack_pool_fini(&pool);
}

static void lose_a_stack(void)
{
    kb_stack_pool pool;
    kb_stack_pool_init(&pool, 4096);
    (void)take(&pool);
    kb_stack_pool_fini(&pool);
}

static void a_stack_that_was_not_given_back_is_a_bug(void **state)
{
    (void)state;
    expect_abort(lose_a_stack, "assertion failed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_rounded_up_to_pages),
        cmocka_unit_test(a_pool_that_was_not_used_maps_nothing),
        cmocka_unit_test(stacks_are_used_again),
        cmocka_unit_test(the_guard_faults),
        cmocka_unit_test(an_old_kernel_gets_the_same_guard),
        cmocka_unit_test(a_refused_stack_says_why_and_what_to_do),
        cmocka_unit_test(a_stack_that_cannot_be_guarded_is_refused),
        cmocka_unit_test(a_stack_that_was_not_given_back_is_a_bug),
    };
    return cmocka_run_group_tests_name("stack", tests, NULL, NULL);
}
