/*
 * point_record.c: see point_record.h. A child that ended without saying how has crashed: it was
 * ended by a signal, or by the program's handler of crashes, which says so on stderr.
 */
#include "point_record.h"

#include <jansson.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "frames.h"

static const char program_prefix[] = "kernbench: ";

/* How the point ended, with a message if it failed. */
typedef struct ending {
    store_status status;
    int exit_code;
    double wall_s;
    kb_text message;
} ending;

/* The last line of the messages that the program wrote, or else the last line of all. */
static void append_last_message(kb_text *text, const kb_text *messages)
{
    const char *at = kb_text_peek(messages), *found = NULL, *last = NULL;
    size_t prefix = sizeof program_prefix - 1;
    for (; *at != '\0'; at += strcspn(at, "\n"), at += *at == '\n') {
        if (strncmp(at, program_prefix, prefix) == 0)
            found = at + prefix;
        if (*at != '\n')
            last = at;
    }
    found = found ? found : last;
    if (!found)
        return;
    size_t start = text->length;
    kb_text_append(text, found, strcspn(found, "\n"));
    kb_text_escape_from(text, start);
}

static void end_by_signal(const child_result *result, ending *e)
{
    const char *name = sigabbrev_np(result->status);
    e->status = STORE_CRASHED;
    e->exit_code = 128 + result->status;
    kb_text_printf(&e->message, "ended by signal %d", result->status);
    if (name)
        kb_text_printf(&e->message, " (SIG%s)", name);
    if (result->status == SIGKILL)
        kb_text_puts(&e->message, ", perhaps because the host ran out of memory");
}

/* It ended by itself. */
static void end_by_exit(const child_result *result, const sweep_frames *report, ending *e)
{
    e->exit_code = report->has_end ? report->end.code : result->status;
    bool orderly = report->has_end || report->is_open;
    e->status = orderly ? store_status_of((kb_code)e->exit_code) : STORE_CRASHED;
    if (report->has_end) {
        e->wall_s = report->end.wall_s;
        kb_text_append(&e->message, report->message, report->message_length);
    } else if (e->status != STORE_OK) {
        append_last_message(&e->message, &result->messages);
    }
    if (e->message.length == 0 && e->status != STORE_OK)
        kb_text_printf(&e->message, "ended with exit status %d", result->status);
}

static void find_ending(const child_result *result, const sweep_frames *report, ending *e)
{
    *e = (ending){.wall_s = result->wall_s};
    switch (result->end) {
    case CHILD_EXITED:
        end_by_exit(result, report, e);
        return;
    case CHILD_SIGNALED:
        end_by_signal(result, e);
        return;
    case CHILD_TIMEOUT:
        e->status = STORE_TIMEOUT;
        e->exit_code = 128 + SIGKILL;
        kb_text_puts(&e->message, "exceeded the limit of time (--timeout)");
        return;
    case CHILD_NO_MEMORY:
        e->status = STORE_NO_MEMORY;
        e->exit_code = 128 + SIGKILL;
        kb_text_printf(&e->message, "exceeded the limit of memory (--memory-per-point): %s",
                       kb_bytes_print(result->peak_bytes).text);
        return;
    }
}

/* The document; a run that ended well without one is none. */
static json_t *read_document(const sweep_frames *report, ending *e)
{
    json_t *document =
        report->document ? json_loadb(report->document, report->document_length, 0, NULL) : NULL;
    if (!document && e->status == STORE_OK) {
        e->status = STORE_CRASHED;
        kb_text_puts(&e->message, "ended without a result");
    }
    return document;
}

static kb_error *add(const sweep_recorder *r, const sweep_point *point, const store_run *run,
                     const char *request, sweep_known_run *known)
{
    store_run added = *run;
    added.request = request;
    kb_text texts = KB_TEXT_INIT;
    r->describe(r->self, point, &added, &texts);
    kb_error *err = texts.failed ? kb_error_nomem() : store_add(r->store, &added, &known->id);
    kb_text_fini(&texts);
    KB_TRY(err);
    if (run->machine_yaml)
        KB_TRY(sweep_known_add_machine(r->known, run->machine_hash, run->machine_name));
    KB_TRY(sweep_known_add(r->known, run->key, known));
    return sweep_known_add_request(r->known, request, run->key);
}

static kb_error *add_run(const sweep_recorder *r, const sweep_point *point, const char *request,
                         const child_result *result, const sweep_frames *report, const ending *e,
                         const json_t *document, sweep_known_run *known)
{
    char *name =
        report->has_key ? strndup(report->machine_name, report->machine_name_length) : NULL;
    char *yaml = report->machine ? strndup(report->machine, report->machine_length) : NULL;
    kb_error *err = NULL;
    if ((report->has_key && !name) || (report->machine && !yaml) || e->message.failed)
        err = kb_error_nomem();
    store_run run = {
        .key = report->has_key ? report->key.key : request,
        .request = request,
        .machine_name = name,
        .machine_hash = report->has_key ? report->key.machine : NULL,
        .machine_yaml = yaml,
        .status = e->status,
        .exit_code = e->exit_code,
        .message = e->message.length > 0 ? kb_text_peek(&e->message) : NULL,
        .wall_s = e->wall_s,
        .cpu_s = result->cpu_s,
        .peak_bytes = result->peak_bytes,
        .document = document,
    };
    if (!err)
        err = add(r, point, &run, request, known);
    free(name);
    free(yaml);
    return err;
}

/* The child found that the store has the point, under another request. */
static kb_error *take_known(const sweep_recorder *r, const char *request, const char *key,
                            sweep_known_run *run)
{
    *run = *sweep_known_find(r->known, key);
    if (r->store)
        KB_TRY(store_add_request(r->store, request, key));
    return sweep_known_add_request(r->known, request, key);
}

kb_error *sweep_record(const sweep_recorder *r, const sweep_point *point, const char *request,
                       const child_result *result, sweep_known_run *run)
{
    sweep_frames report;
    ending e;
    if (result->bytes.failed || result->messages.failed)
        return kb_error_nomem();
    sweep_read_frames(kb_text_peek(&result->bytes), result->bytes.length, &report);
    if (report.has_key && report.key.known && sweep_known_find(r->known, report.key.key))
        return take_known(r, request, report.key.key, run);
    find_ending(result, &report, &e);
    json_t *document = read_document(&report, &e);
    *run = (sweep_known_run){.status = e.status, .wall_s = e.wall_s};
    kb_error *err = NULL;
    if (r->store)
        err = add_run(r, point, request, result, &report, &e, document, run);
    json_decref(document);
    kb_text_fini(&e.message);
    return err;
}
