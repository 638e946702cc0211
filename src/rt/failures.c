/*
 * failures.c: the report of failed workers: one error for all of them. Errors that only pass on the
 * failure of another worker are left out, and equal errors are reported once, with their ranks. The
 * code is that of the lowest rank.
 */
#include "runtime.h"

#include <string.h>

/* Different errors that later ones are compared with. Beyond, equal errors are reported again. */
enum { MAX_COMPARED = 64 };

/* Keeps the errors of workers that failed first. If there are none, keeps one consequence. */
static uint32_t forget_consequences(kb_context *ctx)
{
    uint32_t causes = 0, kept = 0;
    for (uint32_t rank = 0; rank < ctx->worker_count; rank++) {
        const kb_error *err = ctx->workers[rank].error;
        causes += err && !kb_error_is_secondary(err);
    }
    for (uint32_t rank = 0; rank < ctx->worker_count; rank++) {
        kb_error **err = &ctx->workers[rank].error;
        bool is_consequence = kb_error_is_secondary(*err);
        if (is_consequence && causes + kept > 0) {
            kb_error_free(*err);
            *err = NULL;
        } else if (is_consequence) {
            kept++;
        }
    }
    return causes + kept;
}

static bool are_equal(const kb_error *a, const kb_error *b)
{
    return strcmp(kb_error_message(a), kb_error_message(b)) == 0 &&
           strcmp(kb_error_detail(a), kb_error_detail(b)) == 0;
}

/* Groups failed workers by their error. The first rank of a group is its representative, and counts
 * the group. Returns the number of groups. */
static uint32_t group_errors(kb_context *ctx)
{
    uint32_t compared[MAX_COMPARED], groups = 0;
    for (uint32_t rank = 0; rank < ctx->worker_count; rank++) {
        rt_caller *worker = &ctx->workers[rank];
        if (!worker->error)
            continue;
        uint32_t known = groups < MAX_COMPARED ? groups : MAX_COMPARED, at = 0;
        while (at < known && !are_equal(ctx->workers[compared[at]].error, worker->error))
            at++;
        worker->representative = at < known ? compared[at] : rank;
        ctx->workers[worker->representative].group_size++;
        if (at < known)
            continue;
        if (groups < MAX_COMPARED)
            compared[groups] = rank;
        groups++;
    }
    return groups;
}

static bool represents(const kb_context *ctx, uint32_t representative, uint32_t rank)
{
    return ctx->workers[rank].error && ctx->workers[rank].representative == representative;
}

/* Appends "rank 3", or "ranks 0-3, 5": the group of this representative. */
static void print_ranks(const kb_context *ctx, uint32_t representative, kb_text *text)
{
    enum { MAX_RANGES = 16 };
    uint32_t left = ctx->workers[representative].group_size, rank = representative;
    kb_text_puts(text, left > 1 ? "ranks " : "rank ");
    for (uint32_t ranges = 0; left > 0 && ranges < MAX_RANGES; ranges++) {
        while (!represents(ctx, representative, rank))
            rank++;
        uint32_t first = rank;
        for (; left > 0 && represents(ctx, representative, rank); left--)
            rank++;
        kb_text_printf(text, "%s%u", ranges > 0 ? ", " : "", first);
        if (rank - first > 1)
            kb_text_printf(text, "%s%u", rank - first > 2 ? "-" : ", ", rank - 1);
    }
    if (left > 0)
        kb_text_printf(text, " and %u more", left);
}

/* Appends "ranks 0-3: what happened". */
static void print_error(const kb_context *ctx, uint32_t representative, kb_text *text)
{
    print_ranks(ctx, representative, text);
    kb_text_printf(text, ": %s", kb_error_message(ctx->workers[representative].error));
}

/* One line with the first errors. */
static kb_error *make_message(const kb_context *ctx, uint32_t failed, uint32_t most)
{
    kb_text text = KB_TEXT_INIT;
    kb_code code = KB_OK;
    uint32_t said = 0, told = 0;
    for (uint32_t rank = 0; rank < ctx->worker_count && said < most; rank++) {
        if (!represents(ctx, rank, rank))
            continue;
        if (said++ == 0)
            code = kb_error_code(ctx->workers[rank].error);
        else
            kb_text_puts(&text, "; ");
        print_error(ctx, rank, &text);
        told += ctx->workers[rank].group_size;
    }
    if (failed > told)
        kb_text_printf(&text, "; and %u more", failed - told);
    kb_error *all =
        text.failed ? kb_error_nomem()
                    : kb_error_new(code, "%u of %u worker%s failed: %s", failed, ctx->worker_count,
                                   kb_plural(ctx->worker_count), kb_text_peek(&text));
    kb_text_fini(&text);
    return all;
}

/* Each for itself, for kb_spawn_failures(). What there is no memory for is not listed. */
static void keep_failures(kb_context *ctx, uint32_t failed)
{
    if (!kb_vec_reserve(&ctx->failures, failed))
        return;
    for (uint32_t rank = 0; rank < ctx->worker_count; rank++)
        if (ctx->workers[rank].error)
            ctx->failures.items[ctx->failures.count++] =
                (rt_failure){rank, kb_error_copy(ctx->workers[rank].error)};
}

void rt_failures_forget(kb_context *ctx)
{
    for (size_t i = 0; i < ctx->failures.count; i++)
        kb_error_free(ctx->failures.items[i].error);
    kb_vec_fini(&ctx->failures);
}

size_t kb_spawn_failures(const kb_context *ctx, kb_failure *failures, size_t room)
{
    for (size_t i = 0; i < ctx->failures.count && i < room; i++) {
        const rt_failure *failure = &ctx->failures.items[i];
        failures[i] = (kb_failure){.rank = failure->rank,
                                   .code = kb_error_code(failure->error),
                                   .message = kb_error_message(failure->error)};
    }
    return ctx->failures.count;
}

kb_error *rt_sum_up_failures(kb_context *ctx)
{
    enum { IN_MESSAGE = 4 };
    uint32_t failed = forget_consequences(ctx);
    if (failed == 0)
        return NULL;
    keep_failures(ctx, failed);
    uint32_t groups = group_errors(ctx);
    kb_error *all = make_message(ctx, failed, IN_MESSAGE);
    for (uint32_t rank = 0; rank < ctx->worker_count; rank++) {
        if (!represents(ctx, rank, rank))
            continue;
        const kb_error *err = ctx->workers[rank].error;
        if (groups > IN_MESSAGE || kb_error_detail(err)[0] != '\0') {
            kb_text line = KB_TEXT_INIT;
            print_error(ctx, rank, &line);
            kb_error_add_detail(all, "%s", kb_text_peek(&line));
            kb_text_fini(&line);
        }
        kb_error_add_detail_of(all, err);
    }
    return all;
}
