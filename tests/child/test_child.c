/* test_child.c: functions in child processes: results, crashes, limits, interrupts. */
#include "support/expect.h"

#include "child/child.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static child_pool *make_pool(child_options options)
{
    child_pool *pool;
    expect_ok(child_pool_create(&options, &pool));
    return pool;
}

static child_result run_alone(child_options options, int (*function)(void *self, int out),
                              void *self)
{
    options.slots = 1;
    child_pool *pool = make_pool(options);
    child_result result;
    expect_ok(child_start(pool, function, self, 7));
    assert_int_equal(child_pool_running(pool), 1);
    assert_true(child_wait(pool, -1, -1, &result));
    assert_int_equal(result.tag, 7);
    assert_int_equal(child_pool_running(pool), 0);
    child_pool_destroy(pool);
    return result;
}

static int answer(void *self, int out)
{
    const char *text = self;
    fprintf(stderr, "a message\n");
    printf("discarded\n");
    fflush(stdout);
    char c;
    bool empty = read(STDIN_FILENO, &c, 1) == 0;
    return write(out, text, strlen(text)) == (ssize_t)strlen(text) && empty ? 5 : 6;
}

static void hands_back_what_it_writes(void **state)
{
    (void)state;
    char text[] = "forty-two";
    child_result r = run_alone((child_options){0}, answer, text);
    assert_int_equal(r.end, CHILD_EXITED);
    assert_int_equal(r.status, 5);
    assert_string_equal(kb_text_peek(&r.bytes), text);
    assert_string_equal(kb_text_peek(&r.messages), "a message\n");
    assert_true(r.wall_s > 0 && r.peak_bytes > 0 && r.cpu_s >= 0);
    child_result_fini(&r);
}

enum { LARGE = 5 << 20 };

static int write_much(void *self, int out)
{
    (void)self;
    static char block[1 << 16];
    memset(block, 'x', sizeof block);
    for (size_t sent = 0; sent < LARGE;) {
        ssize_t size = write(out, block, sizeof block);
        if (size < 0 || write(STDERR_FILENO, block, sizeof block) < 0)
            return 1;
        sent += (size_t)size;
    }
    return 0;
}

static void reads_more_than_a_pipe_holds(void **state)
{
    (void)state;
    child_result r = run_alone((child_options){0}, write_much, NULL);
    assert_int_equal(r.status, 0);
    assert_int_equal(r.bytes.length, LARGE);
    assert_int_equal(r.messages.length, CHILD_MAX_MESSAGES);
    child_result_fini(&r);
}

static int crash(void *self, int out)
{
    (void)self;
    assert_int_equal(write(out, "part", 4), 4);
    signal(SIGABRT, SIG_DFL);
    (void)raise(SIGABRT);
    return 0;
}

static void tells_the_signal(void **state)
{
    (void)state;
    child_result r = run_alone((child_options){0}, crash, NULL);
    assert_int_equal(r.end, CHILD_SIGNALED);
    assert_int_equal(r.status, SIGABRT);
    assert_string_equal(kb_text_peek(&r.bytes), "part");
    child_result_fini(&r);
}

static int hang(void *self, int out)
{
    (void)self, (void)out;
    while (true)
        pause();
    return 0;
}

static void ends_what_takes_too_long(void **state)
{
    (void)state;
    child_result r = run_alone((child_options){.seconds = 0.05}, hang, NULL);
    assert_int_equal(r.end, CHILD_TIMEOUT);
    assert_true(r.wall_s >= 0.05);
    child_result_fini(&r);
}

/* The limit is that of the time when a child starts. */
static void limits_those_that_start_later(void **state)
{
    (void)state;
    child_result r;
    child_pool *pool = make_pool((child_options){.slots = 2});
    expect_ok(child_start(pool, hang, NULL, 0));
    child_pool_limit(pool, 0.02);
    expect_ok(child_start(pool, hang, NULL, 1));
    assert_true(child_wait(pool, -1, -1, &r));
    assert_int_equal(r.tag, 1);
    assert_int_equal(r.end, CHILD_TIMEOUT);
    child_result_fini(&r);
    assert_false(child_wait(pool, 0.05, -1, &r));
    child_pool_destroy(pool);
}

enum { PAGES = 1 << 15, PAGE = 4096 }; /* 128 MiB */

/* Touches so much memory, then ends or hangs. */
static int take_memory(void *self, int out)
{
    char *bytes = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < PAGES; i++)
        bytes[i * PAGE] = 1;
    return self ? hang(NULL, out) : 0;
}

static void ends_what_takes_too_much_memory(void **state)
{
    (void)state;
    char hangs[] = "";
    child_options options = {.memory_bytes = 64 << 20};
    child_result r = run_alone(options, take_memory, hangs);
    assert_int_equal(r.end, CHILD_NO_MEMORY);
    child_result_fini(&r);
    r = run_alone(options, take_memory, NULL); /* perhaps too short for a look */
    assert_int_equal(r.end, CHILD_NO_MEMORY);
    assert_true(r.peak_bytes > 64 << 20);
    child_result_fini(&r);
    options.memory_bytes = 1 << 30;
    r = run_alone(options, take_memory, NULL);
    assert_int_equal(r.end, CHILD_EXITED);
    child_result_fini(&r);
}

/* A process of the child's keeps the pipes open. */
static int leave_a_process(void *self, int out)
{
    (void)self;
    pid_t pid = fork();
    if (pid == 0)
        hang(NULL, out);
    return write(out, &pid, sizeof pid) == (ssize_t)sizeof pid ? 0 : 1;
}

static void does_not_wait_for_grandchildren(void **state)
{
    (void)state;
    child_result r = run_alone((child_options){0}, leave_a_process, NULL);
    assert_int_equal(r.end, CHILD_EXITED);
    assert_int_equal(r.bytes.length, sizeof(pid_t));
    pid_t left;
    memcpy(&left, r.bytes.bytes, sizeof left);
    (void)kill(left, SIGKILL);
    child_result_fini(&r);
}

static int return_number(void *self, int out)
{
    const int *number = self;
    return write(out, number, sizeof *number) == (ssize_t)sizeof *number ? *number : 99;
}

static void runs_several_at_a_time(void **state)
{
    (void)state;
    enum { COUNT = 40, SLOTS = 3 };
    int numbers[COUNT], started = 0, ended = 0, sum = 0;
    child_pool *pool = make_pool((child_options){.slots = SLOTS, .seconds = 60});
    while (ended < COUNT) {
        while (started < COUNT && child_pool_running(pool) < SLOTS) {
            numbers[started] = started;
            expect_ok(child_start(pool, return_number, &numbers[started], (uint64_t)started));
            started++;
        }
        child_result r;
        assert_true(child_wait(pool, -1, -1, &r));
        assert_int_equal(r.status, r.tag);
        assert_memory_equal(r.bytes.bytes, &numbers[r.tag], sizeof(int));
        child_result_fini(&r);
        sum += r.status;
        ended++;
    }
    assert_int_equal(sum, COUNT * (COUNT - 1) / 2);
    child_pool_destroy(pool);
}

static void waits_no_longer_than_asked(void **state)
{
    (void)state;
    child_result r;
    child_pool *pool = make_pool((child_options){.slots = 2});
    assert_false(child_wait(pool, -1, -1, &r)); /* nothing runs */
    expect_ok(child_start(pool, hang, NULL, 0));
    assert_false(child_wait(pool, 0.01, -1, &r));
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_false(child_wait(pool, -1, ends[0], &r));
    close(ends[0]);
    close(ends[1]);
    child_pool_destroy(pool); /* kills it */
}

/* Holds interrupts, gets two signals, and tells how it went by its end. */
static int be_interrupted(void *self, int out)
{
    (void)out;
    int count = *(const int *)self;
    struct sigaction plain = {.sa_handler = SIG_DFL};
    sigaction(SIGINT, &plain, NULL);
    interrupts_hold();
    if (interrupts_signal() != 0)
        return 10;
    for (int i = 0; i < count; i++)
        (void)raise(SIGINT);
    if (interrupts_signal() != (count > 0 ? SIGINT : 0))
        return 11;
    fprintf(stderr, "in order\n");
    interrupts_release();
    return 12;
}

static void holds_one_interrupt(void **state)
{
    (void)state;
    for (int count = 0; count <= 2; count++) {
        child_result r = run_alone((child_options){0}, be_interrupted, &count);
        assert_int_equal(r.end, count == 0 ? CHILD_EXITED : CHILD_SIGNALED);
        assert_int_equal(r.status, count == 0 ? 12 : SIGINT);
        assert_string_equal(kb_text_peek(&r.messages), count < 2 ? "in order\n" : "");
        child_result_fini(&r);
    }
}

/* A parent that is killed: its child must end too. Sends the child's pid. */
static int die_with_a_child(void *self, int out)
{
    (void)self;
    child_pool *pool = make_pool((child_options){.slots = 1});
    expect_ok(child_start(pool, hang, NULL, 0));
    if (write(out, "x", 1) != 1)
        return 1;
    (void)raise(SIGKILL);
    return 0;
}

/* Nobody but the child of the child has the write end of this pipe: it is closed when that ends. */
static void children_end_with_their_parent(void **state)
{
    (void)state;
    int ends[2];
    char c;
    assert_int_equal(pipe(ends), 0);
    child_pool *pool = make_pool((child_options){.slots = 1});
    expect_ok(child_start(pool, die_with_a_child, NULL, 0));
    close(ends[1]);
    child_result r;
    assert_true(child_wait(pool, -1, -1, &r));
    assert_int_equal(r.status, SIGKILL);
    assert_int_equal(read(ends[0], &c, 1), 0);
    close(ends[0]);
    child_result_fini(&r);
    child_pool_destroy(pool);
}

static void counts_cores(void **state)
{
    (void)state;
    assert_true(child_count_cores() >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hands_back_what_it_writes),
        cmocka_unit_test(reads_more_than_a_pipe_holds),
        cmocka_unit_test(tells_the_signal),
        cmocka_unit_test(ends_what_takes_too_long),
        cmocka_unit_test(limits_those_that_start_later),
        cmocka_unit_test(ends_what_takes_too_much_memory),
        cmocka_unit_test(does_not_wait_for_grandchildren),
        cmocka_unit_test(runs_several_at_a_time),
        cmocka_unit_test(waits_no_longer_than_asked),
        cmocka_unit_test(holds_one_interrupt),
        cmocka_unit_test(children_end_with_their_parent),
        cmocka_unit_test(counts_cores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
