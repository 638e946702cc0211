/* fuzz_set.c: lines as values of --set, on a small machine. */
#include "fuzz.h"

#include <string.h>

static const char description[] =
    "name: small\n"
    "system: { sips: { count: 3, topology: ring_1d } }\n"
    "sip: { cube_mesh: { w: 2, h: 1 } }\n"
    "cube: { noc: { w: 2, h: 2 }, pe_layout: { pe_per_corner: 1, corners: [NW, SE] } }\n";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const origins[] = {"fuzz", "--set ", NULL};
    fuzz_parts parts = fuzz_lines(data, size);
    topo_source source = {
        .path = "fuzz",
        .text = description,
        .length = strlen(description),
        .settings = parts.lines,
        .setting_count = parts.line_count,
    };
    topo_machine *machine;
    kb_error *err = fuzz_load_small(&source, &machine);
    if (err) {
        fuzz_check_refusal(err, origins);
    } else if (machine) {
        const char *idle = topo_machine_idle_settings(machine);
        KB_ASSERT(!idle || strlen(idle) > 0);
        fuzz_check_machine(machine);
    }
    topo_machine_destroy(machine);
    fuzz_parts_fini(&parts);
    return 0;
}
