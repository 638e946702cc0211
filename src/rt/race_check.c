/*
 * race_check.c: which launches are checked for data races together, and what becomes of what is
 * found.
 *
 * Launches and copies of streams are checked together as long as one of them is under way as the
 * host sees it: they may touch the same bytes without an order between them, whether or not their
 * times overlap. What has accumulated is looked at earlier when there is much of it and nothing
 * runs: then a race between two nodes of which one was over by that time is not found.
 *
 * Launches of works that are in no stream are checked by request.
 */
#include "runtime.h"

/* The search takes time in proportion to points times kernels. */
enum { MANY_POINTS = 1 << 12, MANY_ACCESSES = 1 << 18 };

/* Who asked for a fault is not told that all is well when not all was looked at. */
static kb_error *report_cut_off(kb_context *ctx, const char *what)
{
    static const char format[] =
        "%s has too many accesses and messages to look for data races in all of them: "
        "those of its beginning were checked";
    if (ctx->race_check == KB_RACES_FAIL)
        return kb_error_new(KB_ERR_FAULT, format, what);
    rt_warn(ctx, format, what);
    return NULL;
}

/* What is wrong is said, or returned. */
static kb_error *report(kb_context *ctx, const tl_races *races, const char *what)
{
    kb_text text = KB_TEXT_INIT;
    bool cut_off = false;
    kb_error *err = tl_races_report(races, &text, &cut_off);
    bool fails = ctx->race_check == KB_RACES_FAIL;
    if (!err && text.length > 0 && fails)
        err = kb_error_new(KB_ERR_FAULT, "%s", kb_text_peek(&text));
    else if (!err && text.length > 0)
        rt_warn(ctx, "%s", kb_text_peek(&text));
    if (!err && cut_off)
        err = report_cut_off(ctx, what);
    kb_text_fini(&text);
    return err;
}

/* ---- Streams ---- */

static void look(kb_context *ctx)
{
    rt_check *check = &ctx->checked;
    if (!check->races)
        return;
    /* Work that failed has other things to say. */
    kb_error *err =
        check->failed ? NULL : report(ctx, check->races, "what is under way in streams");
    tl_races_release(check->races);
    check->races = NULL;
    if (check->found)
        kb_error_free(err);
    else
        check->found = err;
}

void rt_check_open(kb_context *ctx)
{
    ctx->checked.open++;
}

kb_error *rt_check_begin(kb_context *ctx, tl_races **races)
{
    rt_check *check = &ctx->checked;
    *races = NULL;
    if (ctx->race_check == KB_RACES_OFF)
        return NULL;
    bool is_much = check->races && (tl_races_points(check->races) > MANY_POINTS ||
                                    tl_races_accesses(check->races) > MANY_ACCESSES);
    if (is_much && check->running == 0)
        look(ctx);
    if (!check->races)
        KB_TRY(tl_races_create(ctx->kernels, &check->races));
    tl_races_retain(check->races);
    check->running++;
    *races = check->races;
    return NULL;
}

void rt_check_over(kb_context *ctx, tl_races *races)
{
    if (!races)
        return;
    ctx->checked.running--;
    tl_races_release(races);
}

kb_error *rt_check_close(kb_context *ctx, kb_error *err)
{
    rt_check *check = &ctx->checked;
    check->failed |= err != NULL;
    if (--check->open == 0) {
        look(ctx);
        check->failed = false;
    }
    if (err || !check->found) /* whatever failed says what is worth more; the rest waits */
        return err;
    err = check->found;
    check->found = NULL;
    return err;
}

void rt_check_fini(kb_context *ctx)
{
    tl_races_release(ctx->checked.races);
    kb_error_free(ctx->checked.found);
}

void rt_observe(kb_context *ctx, tl_mark over)
{
    if (ctx->kernels) /* else the context is about to go: there is nothing left to order */
        ctx->observed = tl_mark_join(ctx->kernels, ctx->observed, over);
}

/* ---- Requests ---- */

kb_error *rt_check_request(rt_request *request, tl_races **races)
{
    *races = NULL;
    if (request->ctx->race_check == KB_RACES_OFF)
        return NULL;
    if (request->races)
        tl_races_retain(request->races);
    else
        KB_TRY(tl_races_create(request->ctx->kernels, &request->races));
    *races = request->races;
    return NULL;
}

/* The last launch that is checked together with others looks for races; one that failed reports its
 * own error. */
kb_error *rt_check_end_request(rt_request *request, tl_races *races, const char *name,
                               kb_error *err)
{
    if (!races)
        return err;
    bool is_last = tl_races_is_last(races);
    if (is_last && !err && !request->error) {
        kb_text what = KB_TEXT_INIT;
        kb_text_printf(&what, "launch '%s'", name);
        err = report(request->ctx, races, kb_text_peek(&what));
        kb_text_fini(&what);
    }
    if (is_last)
        request->races = NULL;
    tl_races_release(races);
    return err;
}
