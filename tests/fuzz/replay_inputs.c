/* replay_inputs.c: a program that gives stored inputs to a harness: test-fuzz-NAME
 * FILE_OR_FOLDER... */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fuzz.h"

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
    bool failed = ferror(file) || text.failed;
    fclose(file);
    if (failed)
        fprintf(stderr, "%s: cannot be read\n", path);
    else
        LLVMFuzzerTestOneInput((const uint8_t *)kb_text_peek(&text), text.length);
    kb_text_fini(&text);
    return failed;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int replay_folder(const char *path)
{
    struct dirent **entries;
    int count = scandir(path, &entries, NULL, by_name), failures = 0, inputs = 0;
    if (count < 0) {
        perror(path);
        return 1;
    }
    for (int i = 0; i < count; i++) {
        char name[4096];
        snprintf(name, sizeof name, "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.') {
            failures += replay_file(name);
            inputs++;
        }
        free(entries[i]);
    }
    free(entries);
    printf("%s: %d inputs replayed\n", path, inputs);
    return failures + (inputs == 0);
}

int main(int argc, char **argv)
{
    int failures = argc < 2;
    for (int i = 1; i < argc; i++) {
        struct stat status;
        bool is_folder = stat(argv[i], &status) == 0 && S_ISDIR(status.st_mode);
        failures += is_folder ? replay_folder(argv[i]) : replay_file(argv[i]);
    }
    return failures > 0;
}
