/*
 * embedded.c: what stands in for crash.c and exits.c where the commands are a part of another
 * program, which handles crashes and interrupts itself.
 */
#include "embedded.h"

#include <setjmp.h>

#include "cli.h"
#include "crash.h"

/* Where a command goes that cannot go on. */
static jmp_buf leaving;
static int status_at_leaving;

kb_code cli_run_embedded(int argc, char **argv, const kb_bench_spec *spec, uint64_t stack_bytes)
{
    kb_code code;
    embedded_bench_given = (embedded_bench){spec, stack_bytes};
    if (setjmp(leaving) == 0)
        code = cli_run(argc, argv);
    else
        code = (kb_code)status_at_leaving;
    embedded_bench_given = (embedded_bench){0};
    return code;
}

KB_NORETURN void crash_exit(int status)
{
    status_at_leaving = status;
    longjmp(leaving, 1);
}

void crash_watch(const kb_sim *sim, size_t stack_bytes)
{
    (void)sim, (void)stack_bytes;
}

void crash_blame(const char *file)
{
    (void)file;
}

void crash_loading(const char *file)
{
    (void)file;
}

void crash_show_progress(bool on)
{
    (void)on;
}

void crash_wipe(void)
{
}
