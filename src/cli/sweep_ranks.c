/*
 * sweep_ranks.c: ranks that run points of a sweep: see sweep_ranks.h.
 *
 * A rank does not see the store. It knows which machines it has sent, so that their files are sent
 * once; and it runs a point that the store may have under another request.
 */
#include "sweep_ranks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli.h"
#include "crash.h"
#include "descriptors.h"

/* ---- Messages ---------------------------------------------------------------------------- */

kb_error *sweep_messages_catch(sweep_messages *messages)
{
    fflush(stderr);
    messages->stderr_before = dup(STDERR_FILENO);
    messages->memory = memfd_create("messages", MFD_CLOEXEC);
    if (messages->stderr_before < 0 || messages->memory < 0 ||
        dup2(messages->memory, STDERR_FILENO) < 0)
        return kb_error_new(KB_ERR_HOST, "cannot redirect stderr: %s", strerror(errno));
    descriptors_adopt();
    return NULL;
}

void sweep_messages_release(sweep_messages *messages, kb_text *text)
{
    char bytes[4096];
    ssize_t size;
    fflush(stderr);
    (void)dup2(messages->stderr_before, STDERR_FILENO);
    descriptors_adopt();
    (void)lseek(messages->memory, 0, SEEK_SET);
    while ((size = read(messages->memory, bytes, sizeof bytes)) > 0)
        kb_text_append(text, bytes, (size_t)size);
    (void)close(messages->memory);
    (void)close(messages->stderr_before);
}

/* ---- Points ------------------------------------------------------------------------------ */

/* Notes a machine whose file is on its way to rank 0. */
static kb_error *note_machine(void *self, const child_result *result)
{
    sweep_known *known = self;
    sweep_frames report;
    sweep_read_frames(kb_text_peek(&result->bytes), result->bytes.length, &report);
    if (!report.has_key || !report.machine)
        return NULL;
    char *name = strndup(report.machine_name, report.machine_name_length);
    kb_error *err =
        name ? sweep_known_add_machine(known, report.key.machine, name) : kb_error_nomem();
    free(name);
    return err;
}

static kb_error *serve(mpi_job *job, sweep_worker *worker, sweep_known *known,
                       const child_options *options)
{
    sweep_local *local;
    worker->known = known;
    KB_TRY(sweep_local_create(options, (sweep_work){sweep_worker_run, worker}, &local));
    sweep_runner runner = sweep_local_runner(local);
    interrupts_hold();
    kb_error *err = sweep_serve(job, &runner, note_machine, known);
    sweep_local_destroy(local);
    worker->known = NULL;
    return err;
}

kb_code sweep_ranks_serve(mpi_job *job, sweep_worker *worker, const child_options *options)
{
    sweep_known *known;
    kb_error *err = sweep_known_create(&known);
    if (!err)
        err = serve(job, worker, known, options);
    sweep_known_destroy(known);
    return err ? cli_report(err) : KB_OK;
}
