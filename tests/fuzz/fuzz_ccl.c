/*
 * fuzz_ccl.c: bytes as a ccl.yaml with overrides; of each algorithm that it has, the plan on a
 * small machine.
 */
#include "fuzz.h"

#include "ccl/ccl.h"
#include "ccl/config/ccl_yaml.h"
#include "ccl/config/registry.h"
#include "ccl/graph/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_WORLD = 64 };

static const char description[] =
    "system: { sips: { count: 3, topology: ring_1d } }\n"
    "sip: { cube_mesh: { w: 2, h: 2 } }\n"
    "cube: { noc: { w: 2, h: 2 }, pe_layout: { pe_per_corner: 1, corners: [NW, SE] } }\n";

static void check_plan(const ccl_entry *entry, const topo_machine *machine)
{
    uint32_t world = ccl_plan_world(entry, machine, TOPO_NONE), sips[MAX_WORLD];
    if (world > MAX_WORLD)
        return;
    for (uint32_t rank = 0; rank < world; rank++)
        sips[rank] = rank;
    ccl_plan plan;
    kb_error *err = ccl_plan_make(entry, machine, entry->rank_is_pe ? NULL : sips, world, &plan);
    if (err) {
        fuzz_check_refusal(err, NULL);
        return;
    }
    for (size_t i = 0; i < plan.queues.ends.count; i++)
        KB_ASSERT(plan.queues.ends.items[i].pe.sip < topo_machine_shape(machine)->sips);
    ccl_plan_fini(&plan);
}

/* Made once: to read its description takes longer than most inputs do. */
static const topo_machine *small_machine(void)
{
    static topo_machine *machine;
    topo_source source = {.text = description, .length = strlen(description)};
    kb_error *err = machine ? NULL : topo_machine_load(&source, &machine);
    KB_ASSERT(!err);
    return machine;
}

static void check_plans(const ccl_config *config)
{
    for (size_t i = 0; i < config->entries.count; i++)
        check_plan(&config->entries.items[i], small_machine());
}

/* The reader takes a file: one in memory, under this name. */
static void write_file(const fuzz_parts *parts, char *path, size_t size)
{
    int file = memfd_create("fuzz", 0);
    KB_ASSERT(file >= 0);
    for (size_t done = 0; done < parts->text_length;) {
        ssize_t wrote = write(file, parts->text + done, parts->text_length - done);
        KB_ASSERT(wrote > 0);
        done += (size_t)wrote;
    }
    KB_ASSERT(snprintf(path, size, "/proc/self/fd/%d", file) < (int)size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const origins[] = {"/proc/self/fd/", "--set ", "ccl.yaml", NULL};
    fuzz_parts parts = fuzz_split(data, size);
    char path[64];
    write_file(&parts, path, sizeof path);
    ccl_registry registry;
    ccl_config config;
    kb_error *err = ccl_registry_init(&registry, NULL, 0);
    KB_ASSERT(!err);
    err = ccl_config_load(path, parts.lines, parts.line_count, &registry, &config);
    if (err) {
        fuzz_check_refusal(err, origins);
    } else {
        check_plans(&config);
        ccl_config_fini(&config);
    }
    close(atoi(strrchr(path, '/') + 1));
    fuzz_parts_fini(&parts);
    return 0;
}
