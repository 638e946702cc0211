/*
 * path_watch.c: what the watcher of critical paths gets besides operations, and which message of
 * the host and the control processors came last. These only act when they are told of something, so
 * what came last is why they send what they send at that instant.
 */
#include "oplog_private.h"

void kb_oplog_watch_path(kb_oplog *log, const kb_oplog_path_watcher *watcher)
{
    KB_ASSERT(log->gives_ids && watcher->transfer && watcher->control);
    log->paths = *watcher;
}

bool kb_oplog_is_path_watched(const kb_oplog *log)
{
    return log->paths.transfer != NULL;
}

void kb_oplog_tell_transfer(kb_oplog *log, const kb_oplog_transfer *transfer)
{
    if (log->paths.transfer)
        log->paths.transfer(log->paths.self, transfer);
}

void kb_oplog_tell_control(kb_oplog *log, kb_oplog_control *control)
{
    if (!log->paths.control)
        return;
    control->moved.id = kb_oplog_new_id(log);
    if (control->moved.id == 0)
        return; /* there are too many, and the run fails */
    log->paths.control(log->paths.self, control);
    log->control_cause = control->moved.id;
}

void kb_oplog_note_control(kb_oplog *log, uint32_t id)
{
    if (log->paths.control && id != 0)
        log->control_cause = id;
}

uint32_t kb_oplog_control_cause(const kb_oplog *log)
{
    return log->control_cause;
}
