/* bench_main.c: reads the options, runs the suites one after the other, and writes the JSON file.
 */
#include "suite.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const bench_suite *const suites[] = {
    &bench_floor,       &bench_hold,   &bench_lockstep, &bench_cancel,  &bench_coroutine,
    &bench_mm1,         &bench_fabric, &bench_runtime,  &bench_kernels, &bench_messages,
    &bench_collectives, &bench_memory, &bench_commands,
};
enum { suite_count = sizeof suites / sizeof suites[0] };

static const char usage[] =
    "usage: kb-bench [--quick] [--only PREFIX] [--no-simpy] [--no-instructions] [--json FILE]\n"
    "       kb-bench --against BUILD [--quick] [--only PREFIX] [--json FILE]\n"
    "       kb-bench --check-instructions FILE | --update-instructions FILE [--only PREFIX]\n"
    "\n"
    "Measures the simulator; prints tables and writes all figures to a JSON file.\n"
    "\n"
    "  --quick            shorter runs, for a rough idea\n"
    "  --only PREFIX      only what has a name that begins so, such as hold.h4\n"
    "  --no-simpy         do not run SimPy to compare with\n"
    "  --no-instructions  do not count instructions with valgrind\n"
    "  --json FILE        where to write the figures (" KB_BUILD_DIR "/bench.json)\n"
    "  --against BUILD    run commands in turns with those of another build directory\n"
    "  --check-instructions FILE\n"
    "                     count the cases of the file; fail if one is 10 % above its figure\n"
    "  --update-instructions FILE\n"
    "                     count the cases of the file and write their figures into it\n";

static kb_error *unknown(const char *what, const char *word)
{
    static const char *const options[] = {
        "--quick", "--only", "--no-simpy",           "--no-instructions",    "--against",
        "--json",  "--help", "--check-instructions", "--update-instructions"};
    kb_suggestion near;

    kb_suggestion_search(&near, word, options, sizeof options / sizeof options[0]);
    return kb_error_new(KB_ERR_INPUT, "unknown %s '%s'%s", what, word,
                        kb_suggestion_near(&near, "; see --help"));
}

/* Options with a value, and where it goes. */
static const struct value_option {
    const char *name, *value;
    size_t offset; /* in bench */
} value_options[] = {
    {"--only", "PREFIX", offsetof(bench, only)},
    {"--json", "FILE", offsetof(bench, json)},
    {"--against", "BUILD", offsetof(bench, against)},
    {"--check-instructions", "FILE", offsetof(bench, check)},
    {"--update-instructions", "FILE", offsetof(bench, update)},
};

static const struct value_option *find_value_option(const char *word)
{
    for (size_t i = 0; i < sizeof value_options / sizeof value_options[0]; i++) {
        if (strcmp(word, value_options[i].name) == 0)
            return &value_options[i];
    }
    return NULL;
}

static kb_error *read_options(bench *b, char **words)
{
    for (; *words != NULL; words++) {
        const char *word = *words;
        const struct value_option *option = find_value_option(word);
        if (strcmp(word, "--quick") == 0) {
            b->quick = true;
        } else if (strcmp(word, "--no-simpy") == 0) {
            b->simpy = false;
        } else if (strcmp(word, "--no-instructions") == 0) {
            b->instructions = false;
        } else if (option != NULL) {
            const char *value = *++words;
            if (value == NULL || *value == '\0')
                return kb_error_new(KB_ERR_INPUT, "option '%s' wants a %s", word, option->value);
            memcpy((char *)b + option->offset, &value, sizeof value);
        } else {
            return unknown(word[0] == '-' ? "option" : "argument", word);
        }
    }
    return NULL;
}

const bench_work *bench_find_work(const char *name)
{
    for (size_t i = 0; i < suite_count; i++) {
        const bench_work *work = suites[i]->works;
        for (; work != NULL && work->name != NULL; work++) {
            if (strcmp(work->name, name) == 0)
                return work;
        }
    }
    return NULL;
}

/* What count.c has callgrind run: --count NAME EVENTS. */
static kb_error *run_work(const char *name, const char *events)
{
    char *end;
    uint64_t done = 0, number = strtoull(events, &end, 10);
    const bench_work *work = bench_find_work(name);

    if (work == NULL || *end != '\0')
        return kb_error_new(KB_ERR_INPUT, "nothing to count under '%s', or not '%s' events", name,
                            events);
    KB_TRY(work->run(work->pending, number, &done));
    printf("events: %" PRIu64 "\n", done);
    return NULL;
}

static kb_error *run_suites(bench *b)
{
    for (size_t i = 0; i < suite_count; i++) {
        if (b->against != NULL && suites[i] != &bench_commands)
            continue;
        KB_TRY(suites[i]->run(b));
        if (b->instructions && suites[i]->works != NULL)
            KB_TRY(bench_count(b, suites[i]->works));
        bench_print_table(b, suites[i]->title);
    }
    if (b->stats.count == 0)
        return kb_error_new(KB_ERR_INPUT, "no figure has a name that begins with '%s'", b->only);
    return NULL;
}

static kb_error *run_bench(bench *b)
{
    b->rounds = b->quick ? 3 : 5;
    b->on_terminal = isatty(STDERR_FILENO) == 1;
    if (b->check != NULL)
        return bench_check_counts(b, b->check);
    if (b->update != NULL)
        return bench_update_counts(b, b->update);
    KB_TRY(bench_probe_json(b));
    bench_print_host(b);
    bench_check_tools(b);
    KB_TRY(run_suites(b));
    KB_TRY(bench_write_json(b));
    printf("\nFigures: %s\n", b->json);
    return NULL;
}

/* A table that did not get out is no success. */
static kb_error *close_stdout(void)
{
    bool failed = ferror(stdout) != 0;

    errno = 0;
    if (fclose(stdout) == 0 && !failed)
        return NULL;
    return kb_error_new(KB_ERR_HOST, "cannot write the output: %s",
                        errno != 0 ? strerror(errno) : "an earlier write failed");
}

int main(int argc, char **argv)
{
    bench b = {
        .simpy = true,
        .instructions = true,
        .only = "",
        .json = KB_BUILD_DIR "/bench.json",
    };
    kb_error *err;

    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        fputs(usage, stdout);
        err = NULL;
    } else if (argc == 4 && strcmp(argv[1], "--count") == 0) {
        err = run_work(argv[2], argv[3]);
    } else if (argc > 2 && strcmp(argv[1], "--usage") == 0) {
        err = bench_print_usage((const char *const *)argv + 2);
    } else if (argc == 3 && strcmp(argv[1], "--memory") == 0) {
        err = bench_print_memory(argv[2]);
    } else {
        err = read_options(&b, argv + 1);
        if (err == NULL)
            err = run_bench(&b);
        bench_progress(&b, "%s", "");
    }
    if (err == NULL)
        err = close_stdout();
    if (err != NULL)
        fprintf(stderr, "kb-bench: %s\n%s", kb_error_message(err), kb_error_detail(err));
    kb_code code = kb_error_code(err);
    kb_error_free(err);
    kb_vec_fini(&b.stats);
    return (int)code;
}
