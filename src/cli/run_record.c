/* run_record.c: what the store keeps of a run: see run_record.h. */
#include "run_record.h"

#include <inttypes.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "effective.h"
#include "machine_options.h"

static void append_list(kb_text *text, const char *option, const cli_list *list)
{
    for (size_t i = 0; list && i < list->count; i++)
        cli_append_option(text, option, list->items[i]);
}

static void append_flag(kb_text *text, const char *option, bool is_set)
{
    if (is_set)
        kb_text_printf(text, " %s", option);
}

void run_record_command(const run_request *request, kb_text *text)
{
    const run_options *o = request->options;
    size_t start = text->length;
    kb_text_puts(text, "kernbench run");
    cli_append_option(text, "--bench", request->bench);
    append_list(text, "--param", o->params);
    if (o->topology)
        cli_append_option(text, "--topology", o->topology);
    append_list(text, "--set", o->settings);
    if (request->collectives->ccl)
        cli_append_option(text, "--ccl", request->collectives->ccl);
    append_list(text, "--plugin", &request->collectives->plugins);
    if (o->device)
        cli_append_option(text, "--device", o->device);
    append_flag(text, "--verify-data", o->verify);
    append_flag(text, "--timing-only", o->timing_only);
    append_flag(text, "--check-races", o->check_races);
    append_flag(text, "--profile", o->profile);
    if (o->stack_bytes != 0 && o->stack_bytes != RUN_DEFAULT_STACK)
        kb_text_printf(text, " --stack-bytes %llu", (unsigned long long)o->stack_bytes);
    kb_text_escape_from(text, start);
}

static void add_directory(run_record *record)
{
    char path[4096];
    if (!getcwd(path, sizeof path))
        return;
    kb_text_puts(&record->directory, path);
    record->run.directory = kb_text_peek(&record->directory);
}

/* Of this process: a process that makes one run, or else all of its runs so far. */
static void add_usage(store_run *run)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0)
        return;
    run->cpu_s = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                 1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    run->peak_bytes = (uint64_t)usage.ru_maxrss * 1024;
}

static kb_error *add_machine(run_record *record, const topo_machine *machine)
{
    snprintf(record->hash, sizeof record->hash, "%016" PRIx64, topo_machine_hash(machine));
    record->run.machine_name = topo_machine_name(machine);
    record->run.machine_hash = record->hash;
    KB_TRY(effective_text(machine, &record->yaml));
    record->run.machine_yaml = kb_text_peek(&record->yaml);
    return NULL;
}

static store_strings strings_of(const cli_list *list)
{
    return list ? (store_strings){list->items, list->count} : (store_strings){0};
}

static bool is_file(const char *bench)
{
    return strchr(bench, '/') || strchr(bench, '.');
}

static void fill(run_record *record, const run_request *request, const run_outcome *outcome)
{
    kb_code code = kb_error_code(outcome->error);
    run_record_command(request, &record->command);
    record->run = (store_run){
        .bench = outcome->view ? outcome->view->spec->name : request->bench,
        .bench_file = is_file(request->bench) ? request->bench : NULL,
        .params = strings_of(request->options->params),
        .settings = strings_of(request->options->settings),
        .command = kb_text_peek(&record->command),
        .status = store_status_of(code),
        .exit_code = (int)code,
        .message = outcome->error ? kb_error_message(outcome->error) : NULL,
        .wall_s = outcome->wall_s,
        .document = record->document,
    };
    add_usage(&record->run);
    add_directory(record);
}

kb_error *run_record_init(run_record *record, const run_request *request,
                          const run_outcome *outcome)
{
    *record = (run_record){0};
    if (outcome->view) {
        record->document = run_document(outcome->view);
        if (!record->document)
            return kb_error_nomem();
    }
    fill(record, request, outcome);
    if (outcome->ctx)
        KB_TRY(add_machine(record, rt_get_stats(outcome->ctx).machine));
    return record->command.failed || record->directory.failed ? kb_error_nomem() : NULL;
}

void run_record_fini(run_record *record)
{
    json_decref(record->document);
    kb_text_fini(&record->command);
    kb_text_fini(&record->directory);
    kb_text_fini(&record->yaml);
}
