/*
 * child.c: child processes: see child.h.
 *
 * A child has ended when its process has, not when its pipes are closed: processes that it started
 * may keep those open. What is in the pipes then is its result.
 *
 * Memory is the resident memory as the kernel counts it. It is looked at several times a second,
 * and once more when the child has ended, from the exact peak: so a child that exceeds the limit
 * for a moment has exceeded it on every machine. Address space would be a limit that the kernel
 * enforces, but the stacks of coroutines take little memory and much address space.
 *
 * Not modelled: memory of processes that the child starts.
 */
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "interrupts.h"

static const double memory_period = 0.02; /* seconds between looks at the memory of children */
enum {
    FDS_OF_CHILD = 3,
    READ_BYTES = 64 << 10,
    MAX_READS = 16 /* of a pipe at a time: a child that writes without end delays others little */
};

typedef struct slot {
    pid_t pid; /* 0: free */
    int process, out, messages;
    double began, deadline;
    bool timed_out, out_of_memory;
    child_result result;
} slot;

struct child_pool {
    child_options options;
    pid_t parent;
    slot *slots;
    struct pollfd *fds; /* FDS_OF_CHILD of each slot, then one to be woken by */
    unsigned running;
    double looked; /* at the memory of children */
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

unsigned child_count_cores(void)
{
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof cores, &cores) != 0)
        return 1;
    int count = CPU_COUNT(&cores);
    return count > 0 ? (unsigned)count : 1;
}

/* ---- The pool ---------------------------------------------------------------------------- */

kb_error *child_pool_create(const child_options *options, child_pool **out)
{
    *out = NULL;
    KB_ASSERT(options->slots > 0);
    child_pool *pool = kb_alloc_zeroed(1, sizeof *pool);
    if (!pool)
        return kb_error_nomem();
    pool->options = *options;
    pool->parent = getpid();
    pool->slots = kb_alloc_zeroed(options->slots, sizeof *pool->slots);
    pool->fds = kb_alloc_zeroed((size_t)options->slots * FDS_OF_CHILD + 1, sizeof *pool->fds);
    if (!pool->slots || !pool->fds) {
        child_pool_destroy(pool);
        return kb_error_nomem();
    }
    *out = pool;
    return NULL;
}

void child_pool_limit(child_pool *pool, double seconds)
{
    pool->options.seconds = seconds;
}

unsigned child_pool_running(const child_pool *pool)
{
    return pool->running;
}

void child_result_fini(child_result *result)
{
    kb_text_fini(&result->bytes);
    kb_text_fini(&result->messages);
}

static void close_if_open(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

/* With the processes that it started, unless those left its group. */
static void kill_child(const slot *s)
{
    (void)kill(-s->pid, SIGKILL);
    (void)kill(s->pid, SIGKILL); /* it may not have its group yet */
}

static void free_slot(child_pool *pool, slot *s)
{
    close_if_open(&s->process);
    close_if_open(&s->out);
    close_if_open(&s->messages);
    s->pid = 0;
    pool->running--;
}

void child_pool_kill(child_pool *pool)
{
    for (unsigned i = 0; i < pool->options.slots; i++) {
        slot *s = &pool->slots[i];
        if (s->pid == 0)
            continue;
        kill_child(s);
        while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
            continue;
        child_result_fini(&s->result);
        free_slot(pool, s);
    }
}

void child_pool_destroy(child_pool *pool)
{
    if (!pool)
        return;
    if (pool->slots)
        child_pool_kill(pool);
    free(pool->slots);
    free(pool->fds);
    free(pool);
}

/* ---- Starting ---------------------------------------------------------------------------- */

static void leave(const child_pool *pool, int status)
{
    if (pool->options.leave)
        pool->options.leave(status);
    _exit(status);
}

/* When memory runs out the system ends a child rather than this process. */
static void volunteer_for_the_end(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)!write(fd, "1000", 4);
    (void)close(fd);
}

/* In the child. */
static bool redirect(int messages)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    bool good = null >= 0 && dup2(null, STDIN_FILENO) >= 0 && dup2(null, STDOUT_FILENO) >= 0 &&
                dup2(messages, STDERR_FILENO) >= 0;
    if (null >= 0)
        (void)close(null);
    (void)close(messages);
    return good;
}

/* In the child. */
static void run(const child_pool *pool, int (*function)(void *self, int out), void *self, int out,
                int messages)
{
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != pool->parent) /* which ended before the call above */
        leave(pool, KB_ERR_HOST);
    interrupts_forget();
    bool good = redirect(messages);
    volunteer_for_the_end();
    if (pool->options.enter)
        pool->options.enter();
    leave(pool, good ? function(self, out) : KB_ERR_HOST);
}

static slot *find_free(child_pool *pool)
{
    for (unsigned i = 0; i < pool->options.slots; i++)
        if (pool->slots[i].pid == 0)
            return &pool->slots[i];
    return NULL;
}

/* Not inherited by other programs; reading does not wait. */
static bool make_pipe(int ends[2])
{
    return pipe2(ends, O_CLOEXEC) == 0 && fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0;
}

/* Returns an errno, or 0. */
static int start(child_pool *pool, slot *s, int (*function)(void *self, int out), void *self)
{
    int out[2] = {-1, -1}, messages[2] = {-1, -1};
    int error = 0;
    s->process = -1;
    if (!make_pipe(out) || !make_pipe(messages))
        error = errno;
    if (error == 0 && (s->pid = fork()) < 0)
        error = errno;
    if (error == 0 && s->pid == 0)
        run(pool, function, self, out[1], messages[1]);
    close_if_open(&out[1]);
    close_if_open(&messages[1]);
    s->out = out[0];
    s->messages = messages[0];
    if (error == 0) {
        (void)setpgid(s->pid, s->pid);
        s->process = (int)syscall(SYS_pidfd_open, s->pid, 0);
        error = s->process < 0 ? errno : 0;
    }
    return error;
}

kb_error *child_start(child_pool *pool, int (*function)(void *self, int out), void *self,
                      uint64_t tag)
{
    slot *s = find_free(pool);
    KB_ASSERT(s);
    fflush(stdout); /* the child must not write it again */
    double began = now();
    *s = (slot){.began = began,
                .deadline = pool->options.seconds > 0 ? began + pool->options.seconds : 0,
                .result.tag = tag};
    pool->running++;
    int error = start(pool, s, function, self);
    if (error == 0)
        return NULL;
    if (s->pid > 0) {
        kill_child(s);
        (void)waitpid(s->pid, NULL, 0);
    }
    free_slot(pool, s);
    return kb_error_new(KB_ERR_HOST, "cannot start a process: %s", strerror(error));
}

/* ---- Waiting ----------------------------------------------------------------------------- */

/* Reads what there is, or much of it. Bytes beyond `max` are dropped; so are all if there is no
 * memory. */
static void drain(int *fd, kb_text *text, size_t max)
{
    static char buffer[READ_BYTES];
    for (int i = 0; i < MAX_READS && *fd >= 0; i++) {
        ssize_t size = read(*fd, buffer, sizeof buffer);
        if (size < 0 && errno == EINTR)
            continue;
        if (size < 0 && errno == EAGAIN)
            return;
        if (size <= 0) {
            close_if_open(fd);
            return;
        }
        size_t room = max - text->length;
        kb_text_append(text, buffer, (size_t)size < room ? (size_t)size : room);
    }
}

static void read_pipes(slot *s)
{
    drain(&s->out, &s->result.bytes, SIZE_MAX);
    drain(&s->messages, &s->result.messages, CHILD_MAX_MESSAGES);
}

static double seconds_of(struct timeval t)
{
    return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

static void note_end(const child_pool *pool, slot *s, int status, const struct rusage *used)
{
    child_result *r = &s->result;
    r->wall_s = now() - s->began;
    r->cpu_s = seconds_of(used->ru_utime) + seconds_of(used->ru_stime);
    r->peak_bytes = (uint64_t)used->ru_maxrss * 1024;
    r->end = WIFSIGNALED(status) ? CHILD_SIGNALED : CHILD_EXITED;
    r->status = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
    uint64_t limit = pool->options.memory_bytes;
    if (s->timed_out)
        r->end = CHILD_TIMEOUT;
    else if (s->out_of_memory || (limit > 0 && r->peak_bytes > limit))
        r->end = CHILD_NO_MEMORY;
}

/* Whether the child has ended; then its slot is free. */
static bool collect(child_pool *pool, slot *s, child_result *result)
{
    int status;
    struct rusage used;
    if (wait4(s->pid, &status, WNOHANG, &used) != s->pid)
        return false;
    read_pipes(s);
    note_end(pool, s, status, &used);
    *result = s->result;
    free_slot(pool, s);
    return true;
}

/* Resident memory of a process; 0 if it is not known. */
static uint64_t resident_bytes(pid_t pid)
{
    char path[64], text[128];
    snprintf(path, sizeof path, "/proc/%ld/statm", (long)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0)
        (void)close(fd);
    if (size <= 0)
        return 0;
    text[size] = '\0';
    const char *second = strchr(text, ' '); /* the first number is the size of the address space */
    uint64_t pages = second ? strtoull(second, NULL, 10) : 0;
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void enforce_limits(child_pool *pool, double t)
{
    uint64_t limit = pool->options.memory_bytes;
    bool looks = limit > 0 && t >= pool->looked + memory_period;
    if (looks)
        pool->looked = t;
    for (unsigned i = 0; i < pool->options.slots; i++) {
        slot *s = &pool->slots[i];
        if (s->pid == 0 || s->timed_out || s->out_of_memory)
            continue;
        s->timed_out = s->deadline > 0 && t >= s->deadline;
        s->out_of_memory = !s->timed_out && looks && resident_bytes(s->pid) > limit;
        if (s->timed_out || s->out_of_memory)
            kill_child(s);
    }
}

/* Seconds until something is to be done though nothing happens; negative: never. */
static double time_to_next(const child_pool *pool, double t, double until)
{
    double next = until;
    if (pool->options.memory_bytes > 0 && pool->running > 0 &&
        (next < 0 || pool->looked + memory_period < next))
        next = pool->looked + memory_period;
    for (unsigned i = 0; i < pool->options.slots; i++) {
        const slot *s = &pool->slots[i];
        if (s->pid != 0 && !s->timed_out && s->deadline > 0 && (next < 0 || s->deadline < next))
            next = s->deadline;
    }
    if (next < 0)
        return -1;
    return next > t ? next - t : 0;
}

static void fill_fds(const child_pool *pool, int wake)
{
    struct pollfd *fd = pool->fds;
    for (unsigned i = 0; i < pool->options.slots; i++) {
        const slot *s = &pool->slots[i];
        bool used = s->pid != 0;
        *fd++ = (struct pollfd){.fd = used ? s->process : -1, .events = POLLIN};
        *fd++ = (struct pollfd){.fd = used ? s->out : -1, .events = POLLIN};
        *fd++ = (struct pollfd){.fd = used ? s->messages : -1, .events = POLLIN};
    }
    *fd = (struct pollfd){.fd = wake, .events = POLLIN};
}

/* Waits for descriptors of children. True if `wake` can be read, or a signal was handled. */
static bool wait_for_events(child_pool *pool, double seconds, int wake)
{
    nfds_t count = (nfds_t)pool->options.slots * FDS_OF_CHILD + 1;
    struct timespec t = {.tv_sec = (time_t)seconds};
    t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
    fill_fds(pool, wake);
    int ready = ppoll(pool->fds, count, seconds < 0 ? NULL : &t, NULL);
    if (ready < 0)
        return errno == EINTR;
    return wake >= 0 && pool->fds[count - 1].revents != 0;
}

/* A child that has ended, if any, after reading what others have written. */
static bool find_ended(child_pool *pool, child_result *result)
{
    for (unsigned i = 0; i < pool->options.slots; i++) {
        slot *s = &pool->slots[i];
        const struct pollfd *fds = pool->fds + (size_t)i * FDS_OF_CHILD;
        if (s->pid == 0)
            continue;
        if (fds[1].revents != 0 || fds[2].revents != 0)
            read_pipes(s);
        if (fds[0].revents != 0 && collect(pool, s, result))
            return true;
    }
    return false;
}

bool child_wait(child_pool *pool, double seconds, int wake, child_result *result)
{
    double t = now();
    double until = seconds < 0 ? -1 : t + seconds;
    while (pool->running > 0 || wake >= 0 || until >= 0) {
        bool woken = wait_for_events(pool, time_to_next(pool, t, until), wake);
        if (find_ended(pool, result))
            return true;
        t = now();
        enforce_limits(pool, t);
        if (woken || (until >= 0 && t >= until))
            return false;
    }
    return false;
}
