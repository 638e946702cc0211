/*
 * queue_install.c: installing queues in PEs, and removing them; the sets that the program has made.
 *
 * A set is installed by one command for each SIP that has participants, all sent at once. Once
 * something is under way, errors are returned when the request is waited for: a call that returns
 * an error has sent nothing.
 */
#include "runtime.h"

#include <inttypes.h>

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

/* ---- Sets of the program ---- */

kb_error *rt_add_queue_set(kb_context *ctx, ipcq_set *queues, kb_queue_set *handle)
{
    rt_queue_set *set = rt_table_add(&ctx->queue_sets, &handle->id);
    if (!set)
        return kb_error_nomem();
    *set = (rt_queue_set){.id = handle->id, .queues = queues};
    return NULL;
}

static kb_error *find_set(kb_context *ctx, const char *function, kb_queue_set handle,
                          rt_queue_set **set)
{
    *set = rt_table_get(&ctx->queue_sets, handle.id);
    return *set ? NULL : rt_bad_handle(ctx, function, "queue set", "removed", handle.id);
}

kb_error *rt_find_installed(kb_context *ctx, kb_queue_set handle, rt_queue_set **set)
{
    *set = NULL;
    if (handle.id == 0)
        return NULL;
    KB_TRY(find_set(ctx, "kb_launch_options.queues", handle, set));
    if ((*set)->installed)
        return NULL;
    return kb_error_new(KB_ERR_FAULT, "kb_launch_options.queues: the queue set is not installed; "
                                      "call kb_queues_install() first");
}

rt_queue_set *rt_queues_of_pe(kb_context *ctx, kb_pe pe)
{
    rt_queue_set *latest = NULL;
    for (uint64_t id = 0; (id = rt_table_next(&ctx->queue_sets, id)) != 0;) {
        rt_queue_set *set = rt_table_get(&ctx->queue_sets, id);
        if (set->installed && (!latest || set->order > latest->order) &&
            ipcq_is_member(set->queues, pe))
            latest = set;
    }
    return latest;
}

kb_error *rt_freshen_queue_sets(kb_context *ctx)
{
    for (uint64_t id = 0; (id = rt_table_next(&ctx->queue_sets, id)) != 0;) {
        rt_queue_set *set;
        while ((set = rt_table_get(&ctx->queue_sets, id)) && set->stale && set->kernels > 0)
            KB_TRY(kb_cooperative_yield(ctx));
        if (set && set->stale) {
            ipcq_set_reset(set->queues);
            set->stale = false;
        }
    }
    return NULL;
}

void rt_queue_sets_fini(kb_context *ctx)
{
    rt_table_fini(&ctx->queue_sets); /* the rings go with all queues */
}

/* ---- For users ---- */

kb_error *kb_queues_install(kb_context *ctx, kb_queue_set handle)
{
    rt_queue_set *set;
    kb_request request;
    KB_TRY(find_set(ctx, "kb_queues_install", handle, &set));
    if (set->order > 0)
        return kb_error_new(KB_ERR_FAULT, "kb_queues_install: the queue set was installed already");
    set->order = ++ctx->queue_sets_installed;
    kb_error *err = rt_install_queues(ctx, set->queues, &request);
    if (!err)
        err = rt_wait_and_free(ctx, request);
    set = rt_table_get(&ctx->queue_sets, handle.id);
    if (set)
        set->installed = !err;
    return err ? kb_error_wrap(err, "kb_queues_install") : NULL;
}

static void warn_of_unreceived(kb_context *ctx, const rt_queue_set *set)
{
    kb_text left = KB_TEXT_INIT;
    if (ipcq_print_unreceived(set->queues, &left))
        rt_warn(ctx, "kb_queues_remove: %s", kb_text_peek(&left));
    kb_text_fini(&left);
}

kb_error *kb_queues_remove(kb_context *ctx, kb_queue_set handle)
{
    rt_queue_set *set;
    kb_request request;
    KB_TRY(rt_settle(rt_caller_of(ctx)));
    KB_TRY(find_set(ctx, "kb_queues_remove", handle, &set));
    if (set->kernels > 0 || (set->order > 0 && !set->installed))
        return kb_error_new(KB_ERR_FAULT,
                            "kb_queues_remove: the queue set is in use: %" PRIu32
                            " running kernel%s may still send or receive",
                            set->kernels, kb_plural(set->kernels));
    ipcq_set *queues = set->queues;
    kb_error *err = NULL;
    if (set->installed) {
        warn_of_unreceived(ctx, set);
        set->installed = false;
        err = rt_remove_queues(ctx, queues, &request);
        if (!err)
            err = rt_wait_and_free(ctx, request);
    }
    if (err)
        return kb_error_wrap(err, "kb_queues_remove");
    rt_table_remove(&ctx->queue_sets, handle.id);
    ipcq_set_destroy(queues);
    return NULL;
}

kb_error *kb_queues_list(kb_context *ctx, kb_queue_set handle, kb_queue_info *infos, size_t room,
                         size_t *count)
{
    rt_queue_set *set;
    *count = 0;
    KB_TRY(find_set(ctx, "kb_queues_list", handle, &set));
    for (const ipcq_end *end; (end = ipcq_end_at(set->queues, *count)) != NULL; ++*count)
        if (*count < room)
            infos[*count] = ipcq_end_info(end);
    return NULL;
}

static void print_pe(kb_pe pe, kb_text *text)
{
    kb_text_printf(text, "%s", topo_pe_name(pe).text);
}

/* "sip0.cube0.pe0 E  to sip0.cube0.pe1: my_head 3, peer_tail_cache 2; from ..." */
static void print_info(const kb_queue_info *info, kb_text *text)
{
    print_pe(info->pe, text);
    kb_text_printf(text, " %s", info->direction);
    if (info->can_send) {
        kb_text_puts(text, "; to ");
        print_pe(info->to, text);
        kb_text_printf(text, ": my_head %" PRIu64 ", peer_tail_cache %" PRIu64, info->my_head,
                       info->peer_tail_cache);
    }
    if (info->can_receive) {
        kb_text_puts(text, "; from ");
        print_pe(info->from, text);
        kb_text_printf(text, ": peer_head_cache %" PRIu64 ", my_tail %" PRIu64 ", ring ",
                       info->peer_head_cache, info->my_tail);
        mem_location_print(&info->ring, text);
    }
}

static void dump_set(const rt_queue_set *set, kb_warning_fn *print, void *self)
{
    const ipcq_end *end;
    for (size_t i = 0; (end = ipcq_end_at(set->queues, i)) != NULL; i++) {
        kb_queue_info info = ipcq_end_info(end);
        kb_text text = KB_TEXT_INIT;
        print_info(&info, &text);
        print(self, kb_text_peek(&text));
        kb_text_fini(&text);
    }
}

kb_error *kb_queues_dump(kb_context *ctx, kb_queue_set handle, kb_warning_fn *print, void *self)
{
    if (handle.id != 0) {
        rt_queue_set *set;
        KB_TRY(find_set(ctx, "kb_queues_dump", handle, &set));
        dump_set(set, print, self);
        return NULL;
    }
    for (uint64_t id = 0; (id = rt_table_next(&ctx->queue_sets, id)) != 0;)
        dump_set(rt_table_get(&ctx->queue_sets, id), print, self);
    return NULL;
}
