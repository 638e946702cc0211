/* cmd_sweep_merge.c: the command `sweep merge`: puts stores together, such as those of shards. */
#include "cli.h"

#include <inttypes.h>

#include "store/store.h"

typedef struct merge_args {
    bool quiet;
} merge_args;

static const cli_option options[] = {
    CLI_OPTION("--quiet", NULL, CLI_FLAG, merge_args, quiet, "does not say what was added"),
};

static kb_code merge(store *s, const char *path, bool quiet)
{
    uint64_t added, present;
    kb_error *err = store_merge(s, path, &added, &present);
    if (err)
        return cli_report(err);
    if (!quiet)
        printf("%s: %" PRIu64 " run%s added, %" PRIu64 " there already\n", path, added,
               kb_plural(added), present);
    return KB_OK;
}

static kb_code run_merge(const cli_call *call)
{
    const merge_args *args = call->args;
    store *s;
    kb_error *err = store_open(call->words[0], STORE_WRITE, &s);
    if (err)
        return cli_report(err);
    kb_code code = KB_OK;
    for (int i = 1; i < call->word_count && code == KB_OK; i++)
        code = merge(s, call->words[i], args->quiet);
    store_close(s);
    return code;
}

static kb_code check_words(const cli_call *call)
{
    if (call->word_count >= 2)
        return KB_OK;
    return cli_fail(KB_ERR_INPUT,
                    "expected two stores or more: kernbench sweep merge OUT.db IN.db ...");
}

const cli_command cli_sweep_merge_command = {
    .name = "sweep merge",
    .arguments = "OUT.db IN.db ...",
    .summary = "put stores together, such as those of the shards of a sweep",
    .help = "Adds to the first store, which need not exist, what it lacks of the others.\n",
    .example = "Example: kernbench sweep merge all.db shard-*.db\n",
    CLI_OPTIONS(options),
    CLI_ARGS(merge_args, .quiet = false),
    .max_words = 65536,
    .check = check_words,
    .run = run_merge,
};
