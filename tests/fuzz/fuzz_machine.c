/* fuzz_machine.c: bytes as a machine file with overrides, made into a whole machine. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const origins[] = {"fuzz", "--set ", NULL};
    fuzz_parts parts = fuzz_split(data, size);
    topo_source source = {
        .path = "fuzz",
        .text = parts.text,
        .length = parts.text_length,
        .settings = parts.lines,
        .setting_count = parts.line_count,
    };
    topo_machine *machine;
    kb_error *err = fuzz_load_small(&source, &machine);
    if (err)
        fuzz_check_refusal(err, origins);
    else if (machine)
        fuzz_check_machine(machine);
    topo_machine_destroy(machine);
    fuzz_parts_fini(&parts);
    return 0;
}
