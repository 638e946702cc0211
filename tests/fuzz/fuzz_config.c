/*
 * fuzz_config.c: bytes as a YAML file, read with every getter of the configuration reader.
 *
 * What comes after the first 0xFE byte of an input, which no YAML text can hold, are overrides, one
 * up to each newline.
 */
#include <string.h>

#include "fuzz.h"

static const char *const origins[] = {"fuzz", "--set ", NULL};

/* Reads with every getter, in a way that depends on the input's own shape. */
static void read_all(kb_config_node *node, int depth)
{
    static const char *const names[] = {"ring_1d", "torus_2d", "mesh_2d"};
    size_t visited = 0;
    for (kb_config_node *child = kb_config_first(node); child; child = kb_config_next(child)) {
        const char *key = kb_config_key(child);
        switch ((visited++ + (key ? strlen(key) : 0)) % 8) {
        case 0:
            kb_config_int(child, -5, 1000000, 0);
            break;
        case 1:
            kb_config_double(child, kb_above_up_to(0, 1), 1);
            break;
        case 2:
            kb_config_bool(child, false);
            break;
        case 3:
            KB_ASSERT(kb_config_string(child, "fallback")[0] != '\0');
            break;
        case 4:
            KB_ASSERT(kb_config_enum(child, names, 3, 3) <= 3);
            break;
        case 5:
            kb_config_problem(child, "odd: %s", kb_config_source_text(child) ? "scalar" : "other");
            break;
        case 6:
            kb_config_int(kb_config_need(child, "count"), 1, 16, 1);
            break;
        default:
            break;
        }
        KB_ASSERT(depth <= 50);
        read_all(child, depth + 1);
    }
}

static void read_known_keys(kb_config_node *root)
{
    kb_config_node *system = kb_config_mapping(kb_config_need(root, "system"));
    kb_config_double(kb_config_find(system, "ns_per_mm"), kb_above(0), 0.01);
    kb_config_node *sips = kb_config_find(system, "sips");
    kb_config_int(kb_config_need(sips, "count"), 1, 16, 2);
    kb_config_node *corners = kb_config_sequence(kb_config_find(root, "corners"));
    for (kb_config_node *item = kb_config_first(corners); item; item = kb_config_next(item))
        kb_config_string(item, "NW");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_parts parts = fuzz_split(data, size);
    for (int whole = 0; whole < 2; whole++) {
        kb_config *config;
        kb_error *err = kb_config_load_text("fuzz", parts.text, parts.text_length, &config);
        if (err) {
            KB_ASSERT(!config);
            fuzz_check_refusal(err, origins);
            break;
        }
        for (size_t i = 0; i < parts.line_count; i++)
            kb_config_override(config, parts.lines[i]);
        if (whole)
            read_all(kb_config_root(config), 0);
        else
            read_known_keys(kb_config_root(config));
        err = kb_config_finish(config);
        if (err)
            fuzz_check_refusal(err, origins);
        kb_config_destroy(config);
    }
    fuzz_parts_fini(&parts);
    return 0;
}
