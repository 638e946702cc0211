/*
 * stream.c: streams and their events, as the program sees them.
 *
 * A stream has a lane on each device. What is in a lane is the end of a chain: the nodes that the
 * next one has to wait for. An event keeps such ends of all lanes of its stream, and what the
 * stream waits for itself. Once a node of any lane waits for that, the node stands for it: so
 * streams that wait for each other again and again do not hand on what they have waited for.
 */
#include "runtime.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- Streams ---- */

kb_error *rt_stream_init(rt_stream *stream, kb_context *ctx)
{
    stream->ctx = ctx;
    kb_waitlist_init(&stream->idle, "the work of a stream to end");
    stream->lanes = kb_alloc_zeroed(ctx->shape->sips, sizeof *stream->lanes);
    return stream->lanes ? NULL : kb_error_nomem();
}

void rt_stream_fini(rt_stream *stream)
{
    for (uint32_t sip = 0; stream->lanes && sip < stream->ctx->shape->sips; sip++) {
        rt_lane *lane = &stream->lanes[sip];
        kb_vec_fini(&lane->last.nodes);
        kb_vec_fini(&lane->waits.nodes);
        kb_vec_fini(&lane->flying);
        free(lane->marks);
    }
    kb_vec_fini(&stream->waits.nodes);
    free(stream->lanes);
    stream->lanes = NULL;
}

void rt_stream_drop(rt_stream *stream)
{
    for (uint32_t sip = 0; stream->lanes && sip < stream->ctx->shape->sips; sip++) {
        rt_moment_clear(&stream->lanes[sip].last);
        rt_moment_clear(&stream->lanes[sip].waits);
    }
    rt_moment_clear(&stream->waits);
    rt_stream_fini(stream);
}

const char *rt_stream_label(const rt_stream *stream)
{
    return stream->id == 0 ? NULL : stream->name;
}

kb_error *rt_streams_init(kb_context *ctx)
{
    ctx->default_stream.name = "default";
    return rt_stream_init(&ctx->default_stream, ctx);
}

void rt_streams_fini(kb_context *ctx)
{
    for (uint64_t id = 0; (id = rt_table_next(&ctx->streams, id)) != 0;)
        rt_stream_fini(rt_table_get(&ctx->streams, id));
    rt_table_fini(&ctx->streams);
    if (ctx->default_stream.ctx)
        rt_stream_fini(&ctx->default_stream);
    for (uint64_t id = 0; (id = rt_table_next(&ctx->stream_events, id)) != 0;) {
        rt_stream_event *event = rt_table_get(&ctx->stream_events, id);
        kb_vec_fini(&event->moment.nodes);
    }
    rt_table_fini(&ctx->stream_events);
}

kb_error *rt_find_stream(kb_context *ctx, const char *function, kb_stream handle,
                         rt_stream **stream)
{
    *stream = handle.id == 0 ? &ctx->default_stream : rt_table_get(&ctx->streams, handle.id);
    if (*stream)
        return NULL;
    return rt_bad_handle(ctx, function, "stream", "destroyed", handle.id);
}

kb_error *kb_stream_create(kb_context *ctx, const char *name, kb_stream *handle)
{
    char made_up[32];
    handle->id = 0;
    rt_stream *stream = rt_table_add(&ctx->streams, &handle->id);
    if (!stream)
        return kb_error_nomem();
    snprintf(made_up, sizeof made_up, "%ju", (uintmax_t)++ctx->streams_made);
    stream->id = handle->id;
    stream->name = rt_keep_name(ctx, name ? name : made_up);
    kb_error *err = stream->name ? rt_stream_init(stream, ctx) : kb_error_nomem();
    if (err) {
        rt_table_remove(&ctx->streams, handle->id);
        handle->id = 0;
    }
    return err;
}

kb_error *kb_stream_destroy(kb_context *ctx, kb_stream handle)
{
    rt_stream *stream;
    if (handle.id == 0)
        return kb_error_new(KB_ERR_FAULT, "kb_stream_destroy: the default stream stays");
    KB_TRY(rt_find_stream(ctx, "kb_stream_destroy", handle, &stream));
    if (stream->under_way > 0)
        return kb_error_new(KB_ERR_FAULT,
                            "kb_stream_destroy: stream '%s' has work under way: call "
                            "kb_stream_synchronize() first",
                            stream->name);
    rt_stream_drop(stream);
    rt_table_remove(&ctx->streams, handle.id);
    return NULL;
}

kb_error *kb_stream_synchronize(kb_context *ctx, kb_stream handle)
{
    static const char function[] = "kb_stream_synchronize";
    rt_stream *stream;
    KB_TRY(rt_refuse_recording(ctx, function));
    KB_TRY(rt_find_stream(ctx, function, handle, &stream));
    while (stream->under_way > 0) {
        KB_TRY(rt_block_on(ctx, &stream->idle));
        KB_TRY(rt_find_stream(ctx, function, handle, &stream));
    }
    for (uint32_t sip = 0; sip < ctx->shape->sips; sip++) {
        rt_moment_prune(ctx, &stream->lanes[sip].last);
        rt_observe(ctx, stream->lanes[sip].last.over);
    }
    return rt_take_faults(rt_caller_of(ctx));
}

/* ---- Events ---- */

static kb_error *find_event(kb_context *ctx, const char *function, kb_stream_event handle,
                            rt_stream_event **event)
{
    *event = rt_table_get(&ctx->stream_events, handle.id);
    if (*event)
        return NULL;
    return rt_bad_handle(ctx, function, "event", "freed", handle.id);
}

kb_error *kb_stream_event_create(kb_context *ctx, kb_stream_event *handle)
{
    handle->id = 0;
    return rt_table_add(&ctx->stream_events, &handle->id) ? NULL : kb_error_nomem();
}

kb_error *kb_stream_event_free(kb_context *ctx, kb_stream_event handle)
{
    rt_stream_event *event;
    KB_TRY(find_event(ctx, "kb_stream_event_free", handle, &event));
    rt_moment_clear(&event->moment);
    kb_vec_fini(&event->moment.nodes);
    rt_table_remove(&ctx->stream_events, handle.id);
    return NULL;
}

kb_error *rt_event_record(kb_context *ctx, rt_moment *moment, const rt_stream *stream)
{
    rt_moment_clear(moment);
    for (uint32_t sip = 0; sip < ctx->shape->sips; sip++)
        KB_TRY(rt_moment_add(ctx, moment, &stream->lanes[sip].last));
    return rt_moment_add(ctx, moment, &stream->waits);
}

kb_error *rt_event_wait(rt_stream *stream, const rt_moment *moment)
{
    kb_context *ctx = stream->ctx;
    for (uint32_t sip = 0; sip < ctx->shape->sips; sip++)
        KB_TRY(rt_moment_add(ctx, &stream->lanes[sip].waits, moment));
    return rt_moment_add(ctx, &stream->waits, moment);
}

kb_error *kb_stream_record(kb_context *ctx, kb_stream handle, kb_stream_event event_handle)
{
    static const char function[] = "kb_stream_record";
    rt_stream *stream;
    rt_stream_event *event;
    KB_TRY(rt_find_stream(ctx, function, handle, &stream));
    KB_TRY(find_event(ctx, function, event_handle, &event));
    if (rt_is_recording(ctx)) {
        event->in_graph = true;
        return rt_record_event(ctx, handle, event_handle, false);
    }
    event->recorded = true;
    return rt_event_record(ctx, &event->moment, stream);
}

kb_error *kb_stream_wait(kb_context *ctx, kb_stream handle, kb_stream_event event_handle)
{
    static const char function[] = "kb_stream_wait";
    rt_stream *stream;
    rt_stream_event *event;
    KB_TRY(rt_find_stream(ctx, function, handle, &stream));
    KB_TRY(find_event(ctx, function, event_handle, &event));
    if (rt_is_recording(ctx))
        return rt_record_event(ctx, handle, event_handle, true);
    if (!event->recorded)
        return kb_error_new(KB_ERR_FAULT,
                            "%s: the event was never recorded%s: call kb_stream_record() first",
                            function, event->in_graph ? " outside a graph" : "");
    return rt_event_wait(stream, &event->moment);
}
