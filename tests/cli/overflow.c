/*
 * overflow.c MODE: crashes in the way that MODE says, for crash.sh to see what is reported.
 *
 *     sanitized  succeeds if the crash report is left to a sanitizer
 *     recurse    a coroutine calls itself until its stack is used up
 *     array      a coroutine has a variable larger than its stack
 *     cleanup    the same, while it is unwound on another coroutine's behalf
 *     thread     recurse, in a thread that is not the first, while another simulator waits
 *     beside     recurse, after another thread has said that it runs another simulator
 *     name       recurse, with a name that is not fit to print
 *     null       a coroutine uses a null pointer
 *     handler    a handler of an event does, beside a coroutine
 *     outside    the same, without any coroutine
 *     divide     a division by zero; ill: an instruction that is none; abort: abort()
 *     exit       exit(), during the run
 *     forgotten  recurse, in a simulator that is watched no more
 *     ruined     a null pointer, and what is watched is no simulator
 *     sent       SIGSEGV comes from kill()
 *     none       does nothing wrong
 *
 * With "user" behind MODE the code is a file of the user's; with "host" the simulator does not run.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cli/crash.h"
#include "cli/descriptors.h"
#include "cli/exit_hooks.h"
#include "sim/sim.h"

enum { STACK = 32 * 1024 };

static kb_waitlist list;
static volatile int depth_wanted = 1 << 30;

/* Uses what is below it after the call, so that it stays a call. */
static __attribute__((noinline)) int recurse(volatile char *above, int depth)
{
    volatile char frame[100];
    frame[0] = (char)(above[0] + depth);
    if (depth > depth_wanted)
        return 0;
    int below = recurse(frame, depth + 1);
    return below + frame[0];
}

static void recurses(kb_co *co, void *arg)
{
    volatile char top[1] = {0};
    (void)arg;
    kb_co_sleep(co, 5);
    printf("%d\n", recurse(top, 0));
}

static void has_an_array(kb_co *co, void *arg)
{
    (void)arg;
    kb_co_sleep(co, 5);
    char large[STACK + 10000];
    char *volatile unknown = large; /* so that the array is not cut into what is used of it */
    for (size_t i = 0; i < sizeof large; i += 1000)
        unknown[i] = 1;
    printf("%d\n", unknown[1000]);
}

static void recurses_in_cleanup(void *arg)
{
    (void)arg;
    volatile char top[1] = {0};
    printf("%d\n", recurse(top, 0));
}

static void waits(kb_co *co, void *arg)
{
    kb_cleanup cleanup;
    kb_co_push_cleanup(co, &cleanup, recurses_in_cleanup, NULL);
    if (!arg)
        kb_co_pop_cleanup(co, false);
    kb_wait(co, &list);
    if (arg)
        kb_co_pop_cleanup(co, false);
}

static kb_co *victim;

static void kills(kb_co *co, void *arg)
{
    (void)arg;
    kb_co_sleep(co, 5);
    kb_co_kill(victim);
}

static void use_null(void)
{
    volatile int *volatile nothing = NULL;
    *nothing = 1;
}

static void divide_by_zero(void)
{
    volatile int zero = 0;
    printf("%d\n", 5 / zero);
}

static void do_ill(void)
{
    __builtin_trap();
}

static void leave(void)
{
    printf("printed before\n");
    exit(0);
}

static const struct {
    const char *mode;
    void (*fn)(void);
} mistakes[] = {
    {"null", use_null}, {"divide", divide_by_zero}, {"ill", do_ill}, {"abort", abort},
    {"exit", leave},
};

static void makes_mistake(kb_co *co, void *arg)
{
    void (*const *fn)(void) = arg;
    kb_co_sleep(co, 5);
    kb_co_set_line(co, (kb_line){"/home/user/mine.c", 27});
    (*fn)();
}

static void handles_badly(kb_sim *sim, void *self, uint64_t arg)
{
    (void)sim, (void)self, (void)arg;
    use_null();
}

static void spawn(kb_sim *sim, const char *name, unsigned id, kb_co_fn *fn, void *arg, kb_co **co)
{
    kb_error *err = kb_co_spawn(
        sim, &(kb_co_options){.name = name, .source_id = id, .daemon = true}, fn, arg, co);
    if (err)
        abort();
}

static kb_sim *make_sim(void)
{
    kb_sim *sim;
    kb_error *err = kb_sim_create(&(kb_sim_options){.stack_bytes = STACK}, &sim);
    if (err)
        abort();
    crash_watch(sim, STACK);
    spawn(sim, "bystander", 100, waits, NULL, NULL);
    return sim;
}

static void run(kb_sim *sim)
{
    kb_error *err = kb_sim_run(sim, KB_FOREVER);
    if (err)
        abort();
    crash_watch(NULL, 0);
    kb_sim_destroy(sim);
}

static void *run_in_thread(void *arg)
{
    (void)arg;
    kb_sim *sim = make_sim();
    spawn(sim, "kernel of the thread", 1, recurses, NULL, NULL);
    run(sim);
    return NULL;
}

static void *watch_in_thread(void *arg)
{
    (void)arg;
    return make_sim();
}

static void in_thread(void *(*fn)(void *))
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, fn, NULL) != 0 || pthread_join(thread, NULL) != 0)
        abort();
}

/* Whether the mode is one of these. */
static bool make_mistake(kb_sim *sim, const char *mode, bool in_coroutine)
{
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        if (strcmp(mode, mistakes[i].mode) != 0)
            continue;
        static void (*fn)(void);
        fn = mistakes[i].fn;
        if (!in_coroutine)
            fn();
        spawn(sim, "scale on sip0.cube1.pe2", 1, makes_mistake, &fn, NULL);
        return true;
    }
    return false;
}

static void crash(const char *mode, bool in_coroutine)
{
    kb_sim *sim = make_sim();
    if (make_mistake(sim, mode, in_coroutine)) {
        run(sim);
        return;
    }
    if (strcmp(mode, "recurse") == 0 || strcmp(mode, "forgotten") == 0) {
        spawn(sim, "kernel 'deep', PE 7", 1, recurses, NULL, NULL);
    } else if (strcmp(mode, "array") == 0) {
        spawn(sim, "kernel 'wide', PE 8", 1, has_an_array, NULL, NULL);
    } else if (strcmp(mode, "name") == 0) {
        spawn(sim, "a\nb\033[31m%s\177", 1, recurses, NULL, NULL);
    } else if (strcmp(mode, "cleanup") == 0) {
        spawn(sim, "victim", 1, waits, sim, &victim);
        spawn(sim, "killer", 2, kills, NULL, NULL);
    } else if (strcmp(mode, "handler") == 0) {
        static kb_source source;
        kb_handler handler;
        source = kb_source_make(3);
        if (kb_sim_add_handler(sim, handles_badly, NULL, &handler))
            abort();
        kb_sim_at(sim, &source, 7, handler, 0);
    } else if (strcmp(mode, "thread") == 0) {
        in_thread(run_in_thread);
    } else if (strcmp(mode, "beside") == 0) {
        in_thread(watch_in_thread);
        spawn(sim, "kernel of main", 1, recurses, NULL, NULL);
    } else if (strcmp(mode, "outside") == 0) {
        use_null();
    } else if (strcmp(mode, "sent") == 0) {
        kill(getpid(), SIGSEGV);
    }
    if (strcmp(mode, "forgotten") == 0)
        crash_watch(NULL, 0);
    if (strcmp(mode, "ruined") == 0) {
        crash_watch((const kb_sim *)(uintptr_t)8, 0);
        use_null();
    }
    run(sim);
}

int main(int argc, char **argv)
{
    kb_waitlist_init(&list, "list");
    descriptors_open();
    (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}); /* no files left about */
    bool installed = crash_install(exit_hooks_exit);
    if (argc < 2)
        return crash_finish(2);
    if (strcmp(argv[1], "sanitized") == 0)
        return crash_finish(installed);
    if (argc > 2)
        crash_note_user_file("./mine.c");
    crash_enter_user_code(argc > 2 ? "./mine.c" : NULL);
    crash(argv[1], argc < 3 || strcmp(argv[2], "host") != 0);
    crash_leave_user_code();
    printf("no crash\n");
    return crash_finish(0);
}
