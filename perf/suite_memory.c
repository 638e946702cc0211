/*
 * suite_memory.c: what a PE takes on a machine of 4,096 PEs, measured in a process of its own.
 *
 * idle: the machine is there and nothing has run. running: each PE has run a kernel that loads,
 * sends and adds; what was resident most, without the stacks of the kernels. 64 bytes a link and 16
 * a virtual channel are not the PE's.
 *
 * Stacks are the only mappings without reserved swap space (`nr` in /proc/self/smaps).
 */
#include "suite.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <kernbench/tl.h>

#include "rt/rt.h"

enum { SIPS = 32, MAX_SIPS = 512, ELEMENTS = 8, TIMES = 100 };

KB_KERNEL(exchange, tl_ptr x, int64_t elements, int64_t times)
{
    int64_t all = tl_num_programs(0) * tl_num_programs(1);
    int64_t me = tl_program_id(1) * tl_num_programs(0) + tl_program_id(0);
    tl_tensor sum = tl_load(x + me * elements * 2, tl_shape(elements), TL_F16);
    for (int64_t i = 0; i < times; i++) {
        tl_future sent = tl_store(x + (me + 1) % all * elements * 2, sum);
        tl_assign(&sum, tl_add(sum, 1));
        tl_wait(sent);
    }
}

/* ---- In the process of its own ---- */

static uint64_t kib_of(const char *line, const char *label)
{
    size_t length = strlen(label);
    return strncmp(line, label, length) == 0 ? strtoull(line + length, NULL, 10) : 0;
}

/* Anonymous memory that is resident, and that of stacks. */
static kb_error *read_resident(uint64_t *all, uint64_t *stacks)
{
    char line[256];
    uint64_t of_mapping = 0;
    FILE *file = fopen("/proc/self/smaps", "r");

    if (file == NULL)
        return kb_error_new(KB_ERR_HOST, "cannot read /proc/self/smaps");
    *all = *stacks = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        uint64_t anonymous = kib_of(line, "Anonymous:");
        if (anonymous > 0)
            of_mapping = anonymous * 1024;
        if (strncmp(line, "VmFlags:", 8) != 0)
            continue;
        *all += of_mapping;
        if (strstr(line, " nr") != NULL)
            *stacks += of_mapping;
        of_mapping = 0;
    }
    fclose(file);
    return NULL;
}

/* The part of the machine that is not a PE's. */
static uint64_t bytes_of_links(kb_context *ctx)
{
    rt_stats stats = rt_get_stats(ctx);
    uint64_t links = topo_machine_graph(stats.machine)->links.count;
    return links * (64 + 16 * (uint64_t)net_channels_per_link(stats.fabric));
}

static kb_error *run_kernels(kb_context *ctx, uint32_t sips)
{
    static kb_tensor tensors[MAX_SIPS];
    kb_machine machine = kb_context_machine(ctx);
    uint64_t elements = (uint64_t)machine.cubes * machine.pes * ELEMENTS;
    const kb_policy by_columns = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    kb_tensor_spec spec = {.shape = KB_SHAPE(1, elements),
                           .memory = KB_TCM,
                           .policy = &by_columns,
                           .access = KB_UNTIMED};
    for (uint32_t sip = 0; sip < sips; sip++) {
        KB_TRY(kb_ahbm_set_device(ctx, sip));
        KB_TRY(kb_empty(ctx, &spec, &tensors[sip]));
    }
    return kb_launch(ctx, NULL, &exchange, KB_EACH(tensors, sips), ELEMENTS, TIMES);
}

static kb_error *print_memory(kb_context *ctx, uint32_t sips, uint64_t before)
{
    uint64_t idle, running, stacks;
    uint64_t links = bytes_of_links(ctx);
    kb_machine machine = kb_context_machine(ctx);
    uint64_t pes = (uint64_t)machine.sips * machine.cubes * machine.pes;

    KB_TRY(read_resident(&idle, &stacks));
    KB_TRY(run_kernels(ctx, sips));
    KB_TRY(read_resident(&running, &stacks));
    printf("pes: %" PRIu64 "\nidle: %" PRIu64 "\nrunning: %" PRIu64 "\nstacks: %" PRIu64 "\n", pes,
           idle - before - links, running - stacks - before - links, stacks);
    return NULL;
}

kb_error *bench_print_memory(const char *sips)
{
    char setting[64];
    const char *const settings[] = {setting};
    uint64_t before, stacks, count = strtoull(sips, NULL, 10);
    kb_context_options options = {.timing_only = true, .settings = settings, .setting_count = 1};
    kb_context *ctx;

    if (count == 0 || count > MAX_SIPS)
        return kb_error_new(KB_ERR_INPUT, "expected 1 to %d SIPs, found '%s'", MAX_SIPS, sips);
    snprintf(setting, sizeof setting, "system.sips.count=%" PRIu64, count);
    KB_TRY(read_resident(&before, &stacks));
    KB_TRY(kb_context_create(&options, &ctx));
    kb_error *err = print_memory(ctx, (uint32_t)count, before);
    kb_context_destroy(ctx);
    return err;
}

/* ---- The suite ---- */

static double number_after(const char *output, const char *label)
{
    const char *found = strstr(output, label);
    return found != NULL ? strtod(found + strlen(label), NULL) : 0;
}

static kb_error *run(bench *b)
{
    char program[4096], output[4096], sips[16];

    if (!bench_wants(b, "memory"))
        return NULL;
    bench_progress(b, "memory");
    KB_TRY(bench_self(program, sizeof program));
    snprintf(sips, sizeof sips, "%d", SIPS);
    KB_TRY(bench_capture((const char *[]){program, "--memory", sips, NULL}, output, sizeof output,
                         NULL));
    double pes = number_after(output, "pes: ");
    if (pes <= 0)
        return kb_error_new(KB_ERR_CHECK, "the memory of PEs was not measured");
    bench_report(b, number_after(output, "idle: ") / pes, "bytes/PE", "memory.idle_pe.bytes");
    bench_report(b, number_after(output, "running: ") / pes, "bytes/PE", "memory.running_pe.bytes");
    bench_report(b, number_after(output, "stacks: ") / pes, "bytes/PE", "memory.stack.bytes");
    return NULL;
}

const bench_suite bench_memory = {
    .title = "Memory: of a PE that is idle, of one that runs a kernel, and of its stack",
    .run = run,
};
