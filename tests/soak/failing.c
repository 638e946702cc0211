/*
 * failing.c: a library to preload, which makes allocations of a program fail.
 *
 *     LD_PRELOAD=libfailing.so KB_FAIL_AT=17 KB_FAIL_MODE=once kernbench topo
 *
 * KB_FAIL_AT     the number of the allocation that fails, from 1; without it none fails
 * KB_FAIL_MODE   "once", or "onwards": all that follow fail too
 * KB_FAIL_COUNT  a file that gets the number of allocations when the program exits
 * KB_FAIL_SITES  a file that gets the number of each allocation whose calls on the stack are new
 * KB_FAIL_FROM   "start": counts from the start of the process on, see below
 * KB_FAIL_SHOW   if set, each allocation that fails shows where it comes from, on stderr
 *
 * Allocations are counted from the start of main(), or from the first call that the dynamic linker
 * makes after it has relocated this library: those of constructors are among them. They are those
 * of the malloc family in all libraries, and anonymous mappings that the program itself makes:
 * stacks of coroutines and large blocks. Children of the program are left alone. Only for glibc,
 * and not for programs with a sanitizer, which has an allocator of its own.
 */
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <dlfcn.h>

/* What glibc calls the functions that are replaced here. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t align, size_t size);

typedef int main_function(int argc, char **argv, char **variables);

static atomic_long allocations;
static atomic_bool active;
static bool is_prepared;
static long fail_at = 0;
static bool onwards, show;
static char environment[1 << 17];
static char count_path[4096];
static main_function *program_main;
static uintptr_t program_start, program_end;

/* Frames that tell places apart, and a table of the places that were seen; it never fills up. */
enum { site_frames = 14, site_slots = 1 << 16 };
static uint64_t sites[site_slots];
static int sites_fd = -1;
static atomic_flag sites_lock = ATOMIC_FLAG_INIT;
static _Thread_local bool looking __attribute__((tls_model("initial-exec"))); /* see fails() */

/* Whether no allocation before came from the same calls. */
static bool add_site(uint64_t hash)
{
    for (size_t i = 0; i < site_slots; i++) {
        uint64_t *slot = &sites[(hash + i) % site_slots];
        if (*slot == hash)
            return false;
        if (*slot == 0) {
            *slot = hash;
            return true;
        }
    }
    return false;
}

static void note_site(long number)
{
    void *frames[site_frames];
    looking = true;
    int count = backtrace(frames, site_frames);
    uint64_t hash = 14695981039346656037u; /* FNV-1a, over whole addresses */
    for (int i = 0; i < count; i++)
        hash = (hash ^ (uintptr_t)frames[i]) * 1099511628211u;
    hash |= 1; /* 0 is an empty slot */
    while (atomic_flag_test_and_set(&sites_lock))
        ;
    if (add_site(hash))
        dprintf(sites_fd, "%ld\n", number);
    atomic_flag_clear(&sites_lock);
    looking = false;
}

static void show_place(long number)
{
    void *frames[40];
    looking = true;
    dprintf(STDERR_FILENO, "allocation %ld fails:\n", number);
    backtrace_symbols_fd(frames, backtrace(frames, 40), STDERR_FILENO);
    looking = false;
}

/* getenv() does not work before constructors of the C library have run. */
static const char *get_setting(const char *name)
{
    size_t length = strlen(name);
    for (const char *at = environment; *at; at += strlen(at) + 1)
        if (strncmp(at, name, length) == 0 && at[length] == '=')
            return at + length + 1;
    return NULL;
}

static void read_environment(void)
{
    size_t length = 0;
    ssize_t got = 0;
    int fd = open("/proc/self/environ", O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && length < sizeof environment - 2 &&
           (got = read(fd, environment + length, sizeof environment - 2 - length)) > 0)
        length += (size_t)got;
    if (fd >= 0)
        close(fd);
}

/* With the first allocation of the process, while there is one thread. */
static void prepare(void)
{
    is_prepared = true;
    read_environment();
    const char *at = get_setting("KB_FAIL_AT"), *mode = get_setting("KB_FAIL_MODE");
    const char *from = get_setting("KB_FAIL_FROM");
    fail_at = at ? atol(at) : 0;
    onwards = mode && strcmp(mode, "onwards") == 0;
    show = get_setting("KB_FAIL_SHOW") != NULL;
    atomic_store(&active, from && strcmp(from, "start") == 0);
}

/* Counts an allocation; whether it is to fail. What backtrace() and dprintf() allocate is not. */
static bool fails(void)
{
    if (!is_prepared)
        prepare();
    if (!atomic_load_explicit(&active, memory_order_relaxed) || looking)
        return false;
    long number = atomic_fetch_add(&allocations, 1) + 1;
    if (sites_fd >= 0)
        note_site(number);
    if (fail_at == 0 || number < fail_at || (number > fail_at && !onwards))
        return false;
    if (show)
        show_place(number);
    errno = ENOMEM;
    return true;
}

void *malloc(size_t size)
{
    return fails() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return fails() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
    return fails() ? NULL : __libc_realloc(old, size);
}

void *reallocarray(void *old, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(old, bytes);
}

void *memalign(size_t align, size_t size);
void *memalign(size_t align, size_t size)
{
    return fails() ? NULL : __libc_memalign(align, size);
}

void *aligned_alloc(size_t align, size_t size)
{
    return memalign(align, size);
}

int posix_memalign(void **block, size_t align, size_t size)
{
    void *made = memalign(align, size);
    if (!made)
        return ENOMEM;
    *block = made;
    return 0;
}

void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    uintptr_t caller = (uintptr_t)__builtin_return_address(0);
    bool own = caller >= program_start && caller < program_end;
    if (own && (flags & MAP_ANONYMOUS) && fails())
        return MAP_FAILED;
    return (void *)syscall(SYS_mmap, address, length, protection, flags, fd, offset);
}

void *mmap64(void *address, size_t length, int protection, int flags, int fd, off_t offset)
    __attribute__((alias("mmap")));

/* The first object is the program itself. */
static int find_program(struct dl_phdr_info *object, size_t size, void *unused)
{
    (void)size;
    (void)unused;
    program_start = UINTPTR_MAX;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_X))
            continue;
        uintptr_t start = object->dlpi_addr + segment->p_vaddr;
        if (start < program_start)
            program_start = start;
        if (start + segment->p_memsz > program_end)
            program_end = start + segment->p_memsz;
    }
    return 1;
}

static int counted_main(int argc, char **argv, char **variables)
{
    if (!is_prepared)
        prepare();
    const char *count = get_setting("KB_FAIL_COUNT"), *sites_path = get_setting("KB_FAIL_SITES");
    if (sites_path) /* high, as the program may care about the first numbers */
        sites_fd = fcntl(open(sites_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666),
                         F_DUPFD_CLOEXEC, 100);
    if (count)
        snprintf(count_path, sizeof count_path, "%s", count);
    unsetenv("LD_PRELOAD"); /* for children */
    dl_iterate_phdr(find_program, NULL);
    atomic_store(&active, true);
    return program_main(argc, argv, variables);
}

int __libc_start_main(main_function *main, int argc, char **argv, void (*init)(void),
                      void (*fini)(void), void (*rtld_fini)(void), void *stack_end);

int __libc_start_main(main_function *main, int argc, char **argv, void (*init)(void),
                      void (*fini)(void), void (*rtld_fini)(void), void *stack_end)
{
    typedef int start_function(main_function *, int, char **, void (*)(void), void (*)(void),
                               void (*)(void), void *);
    start_function *start;
    *(void **)&start = dlsym(RTLD_NEXT, "__libc_start_main");
    program_main = main;
    return start(counted_main, argc, argv, init, fini, rtld_fini, stack_end);
}

/* After main() and the handlers of atexit. */
__attribute__((destructor)) static void write_count(void)
{
    atomic_store(&active, false);
    int fd = count_path[0] ? open(count_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : -1;
    if (fd < 0)
        return;
    dprintf(fd, "%ld\n", atomic_load(&allocations));
    close(fd);
}
