/*
 * queues.c: installing queues in PEs, and removing them.
 *
 * A set is installed by one command for each SIP that has members, all sent at once. Whoever waits
 * for the request learns of everything that went wrong once something is under way: a call that
 * returns an error has sent nothing.
 */
#include "runtime.h"

/* ---- Installing and removing ---- */

/* Adds those members from `first` on that are in the same SIP. */
static kb_error *add_members(rt_job *job, const ipcq_member *members, size_t count, size_t first,
                             bool install)
{
    for (size_t i = first; i < count && members[i].pe.sip == members[first].pe.sip; i++) {
        const ipcq_member *member = &members[i];
        if (install || member->installed)
            KB_TRY(rt_job_add_target(job, member->pe.cube, member->pe.pe,
                                     install ? member->bytes : 0));
    }
    return NULL;
}

/* The command to the SIP that member `first` is in. */
static kb_error *command_sip(rt_request *request, ipcq_set *set, size_t first, bool install)
{
    size_t count;
    const ipcq_member *members = ipcq_set_members(set, &count);
    rt_job *job;
    KB_TRY(rt_job_create(request->ctx, install ? RT_JOB_INSTALL : RT_JOB_REMOVE,
                         members[first].pe.sip, request->what, &job));
    rt_job_set_queues(job, set);
    kb_error *err = add_members(job, members, count, first, install);
    if (err) {
        rt_job_destroy(job);
        return err;
    }
    return rt_job_submit(job, request);
}

static kb_error *command_members(kb_context *ctx, ipcq_set *set, bool install, kb_request *handle)
{
    rt_request *request;
    *handle = (kb_request){0};
    KB_TRY(rt_request_open(ctx, install ? "install" : "remove", "queues", &request));
    size_t count;
    const ipcq_member *members = ipcq_set_members(set, &count);
    kb_error *err = NULL;
    uint32_t last_sip = TOPO_NONE;
    bool any = false;
    for (size_t i = 0; i < count && !err; i++) {
        bool wanted = install || members[i].installed;
        if (!wanted || members[i].pe.sip == last_sip)
            continue;
        last_sip = members[i].pe.sip;
        err = command_sip(request, set, i, install);
        any = any || !err;
    }
    if (err && !any) {
        rt_request_close(request, NULL);
        return err;
    }
    *handle = rt_request_handle(request);
    rt_request_close(request, err);
    return NULL;
}

kb_error *rt_install_queues(kb_context *ctx, ipcq_set *set, kb_request *request)
{
    return command_members(ctx, set, true, request);
}

kb_error *rt_remove_queues(kb_context *ctx, ipcq_set *set, kb_request *request)
{
    ipcq_set_reset(set);
    return command_members(ctx, set, false, request);
}
