/*
 * fuzz_config.c: throws bytes at the configuration reader. Nothing may crash, leak or hang, and
 * every refusal must be a KB_ERR_INPUT of one line.
 *
 * With libFuzzer:  clang -fsanitize=fuzzer,address,undefined -DKB_LIBFUZZER ... -lyaml
 * Without it, a program that replays stored inputs: fuzz_config FILE_OR_DIRECTORY...
 *
 * What comes after the first 0xFE byte of an input, which no YAML text can hold, are overrides, one
 * up to each newline.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_refusal(kb_error *err)
{
    KB_ASSERT(kb_error_code(err) == KB_ERR_INPUT);
    KB_ASSERT(strncmp(kb_error_message(err), "fuzz", 4) == 0 ||
              strncmp(kb_error_message(err), "--set ", 6) == 0);
    for (const char *c = kb_error_message(err); *c; c++)
        KB_ASSERT((unsigned char)*c >= 0x20 && *c != 0x7f);
    kb_error_free(err);
}

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
    const uint8_t *split = size > 0 ? memchr(data, 0xfe, size) : NULL;
    size_t text_size = split ? (size_t)(split - data) : size;
    for (int whole = 0; whole < 2; whole++) {
        kb_config *config;
        kb_error *err = kb_config_load_text("fuzz", (const char *)data, text_size, &config);
        if (err) {
            KB_ASSERT(!config);
            check_refusal(err);
            return 0;
        }
        if (split) {
            size_t length = size - text_size - 1;
            char *settings = malloc(length + 1);
            KB_ASSERT(settings);
            memcpy(settings, split + 1, length);
            settings[length] = '\0';
            char *rest = settings;
            for (char *line; (line = strsep(&rest, "\n"));)
                kb_config_override(config, line);
            free(settings);
        }
        if (whole)
            read_all(kb_config_root(config), 0);
        else
            read_known_keys(kb_config_root(config));
        err = kb_config_finish(config);
        if (err)
            check_refusal(err);
        kb_config_destroy(config);
    }
    return 0;
}

#ifndef KB_LIBFUZZER

static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return 1;
    }
    kb_text text = KB_TEXT_INIT;
    char block[4096];
    size_t got;
    while ((got = fread(block, 1, sizeof block, file)) > 0)
        kb_text_append(&text, block, got);
    fclose(file);
    LLVMFuzzerTestOneInput((const uint8_t *)kb_text_peek(&text), text.length);
    kb_text_fini(&text);
    return 0;
}

static int replay_directory(const char *path)
{
    DIR *directory = opendir(path);
    if (!directory) {
        perror(path);
        return 1;
    }
    int failures = 0, count = 0;
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (entry->d_name[0] == '.')
            continue;
        char name[4096];
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        failures += replay_file(name);
        count++;
    }
    closedir(directory);
    printf("%s: %d inputs replayed\n", path, count);
    return failures + (count == 0);
}

int main(int argc, char **argv)
{
    int failures = argc < 2;
    for (int i = 1; i < argc; i++) {
        struct stat status;
        bool is_directory = stat(argv[i], &status) == 0 && S_ISDIR(status.st_mode);
        failures += is_directory ? replay_directory(argv[i]) : replay_file(argv[i]);
    }
    return failures > 0;
}

#endif
