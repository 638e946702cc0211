/*
 * fuzz_rewrite.c: bytes as a machine file with overrides, which `topo --print` writes into the
 * text, or prints with all settings. Both texts must describe the same machine.
 */
#include "fuzz.h"

#include "cli/effective.h"
#include "cli/rewrite.h"

static void check_same(const topo_machine *machine, const kb_text *text)
{
    topo_source source = {.path = "fuzz", .text = kb_text_peek(text), .length = text->length};
    topo_machine *again;
    KB_ASSERT(!text->failed);
    kb_error *err = topo_machine_load(&source, &again);
    KB_ASSERT(!err);
    KB_ASSERT(topo_machine_hash(again) == topo_machine_hash(machine));
    topo_machine_destroy(again);
}

static void check_rewritten(const topo_machine *machine, const fuzz_parts *parts)
{
    kb_text text = KB_TEXT_INIT;
    kb_error *err = NULL;
    kb_text_append(&text, parts->text, parts->text_length);
    for (size_t i = 0; i < parts->line_count && !err; i++)
        err = rewrite_setting(&text, parts->lines[i]);
    if (err)
        fuzz_check_refusal(err, NULL);
    else
        check_same(machine, &text);
    kb_text_fini(&text);
}

static void check_effective(const topo_machine *machine)
{
    kb_text text = KB_TEXT_INIT;
    kb_error *err = effective_text(machine, &text);
    KB_ASSERT(!err);
    check_same(machine, &text);
    kb_text_fini(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
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
    if (!err && machine) {
        check_rewritten(machine, &parts);
        check_effective(machine);
    }
    kb_error_free(err);
    topo_machine_destroy(machine);
    fuzz_parts_fini(&parts);
    return 0;
}
