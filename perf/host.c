/* host.c: the machine that is measured on, and its clock. */
#include "suite.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

double bench_clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* The CPU the thread stays on from now, or -1. */
static int pin(void)
{
    cpu_set_t set;
    int cpu = sched_getcpu();

    CPU_ZERO(&set);
    if (cpu < 0 || cpu >= CPU_SETSIZE)
        return -1;
    CPU_SET((size_t)cpu, &set);
    return sched_setaffinity(0, sizeof set, &set) == 0 ? cpu : -1;
}

static void read_cpu_model(char *model, size_t size)
{
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "r");

    snprintf(model, size, "unknown processor");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        char *value = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || value == NULL)
            continue;
        value[strcspn(value, "\n")] = '\0';
        snprintf(model, size, "%s", value + 1 + strspn(value + 1, " "));
        break;
    }
    if (file != NULL)
        fclose(file);
}

#ifdef __clang__
static const char compiler[] = "clang", compiler_version[] = __clang_version__;
#else
static const char compiler[] = "gcc", compiler_version[] = __VERSION__;
#endif

void bench_print_host(const bench *b)
{
    char model[128];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);

    read_cpu_model(model, sizeof model);
    printf("%s, %ld core%s; ", model, cores, cores == 1 ? "" : "s");
    printf("%s %.*s; ", compiler, (int)strcspn(compiler_version, " "), compiler_version);
    int cpu = pin();
    if (cpu >= 0)
        printf("pinned to CPU %d; ", cpu);
    printf("best of %u\n", b->rounds);
    if (!bench_is_release)
        puts("This is no release build: its figures say nothing about the simulator.");
    fflush(stdout);
}
