/*
 * works.h: what the tests of works share: queues between chosen PEs, kernels that talk through
 * them, and works whose steps are given as functions.
 */
#ifndef TESTS_RT_WORKS_H
#define TESTS_RT_WORKS_H

#include "programs.h"

#include <kernbench/tl.h>

#include "as_new.h"
#include "rt/rt.h"

/* ---- Queues ---- */

enum { MAX_MEMBERS = 16 };

/* E leads to the next of the PEs, W to the one before, the last is joined to the first. */
static inline kb_error *try_ring(kb_context *ctx, const kb_pe *pes, size_t count, ipcq_set **set)
{
    ipcq_settings settings = {
        .buffer = KB_TCM, .n_slots = 4, .slot_bytes = 256, .credit_bytes = 16};
    ipcq_edge edges[2 * MAX_MEMBERS];
    ipcq_plan plan;
    *set = NULL;
    assert_true(count <= MAX_MEMBERS);
    for (size_t i = 0; i < count; i++) {
        edges[2 * i] = (ipcq_edge){pes[i], "E", pes[(i + 1) % count]};
        edges[2 * i + 1] = (ipcq_edge){pes[i], "W", pes[(i + count - 1) % count]};
    }
    kb_error *err = ipcq_plan_init(&plan, edges, 2 * count, &settings);
    if (err)
        return err;
    err = ipcq_set_create(rt_queues(ctx), &plan, set);
    ipcq_plan_fini(&plan);
    return err;
}

static inline ipcq_set *ring_of(kb_context *ctx, const kb_pe *pes, size_t count)
{
    ipcq_set *set;
    expect_ok(try_ring(ctx, pes, count, &set));
    return set;
}

/* How long it took. */
static inline kb_time install(kb_context *ctx, ipcq_set *set)
{
    kb_request request;
    kb_time before = kb_context_now(ctx);
    expect_ok(rt_install_queues(ctx, set, &request));
    expect_ok(kb_request_wait(ctx, request, NULL));
    expect_ok(kb_request_free(ctx, request));
    return kb_context_now(ctx) - before;
}

static inline kb_time uninstall(kb_context *ctx, ipcq_set *set)
{
    kb_request request;
    kb_time before = kb_context_now(ctx);
    expect_ok(rt_remove_queues(ctx, set, &request));
    expect_ok(kb_request_wait(ctx, request, NULL));
    expect_ok(kb_request_free(ctx, request));
    return kb_context_now(ctx) - before;
}

static inline size_t count_installed(const ipcq_set *set)
{
    size_t count, installed = 0;
    const ipcq_member *members = ipcq_set_members(set, &count);
    for (size_t i = 0; i < count; i++)
        installed += members[i].installed;
    return installed;
}

/* An installed ring of the two first PEs of SIP 0. */
static const kb_pe two_pes[2] = {{0, 0, 0}, {0, 0, 1}};

static inline ipcq_set *installed_pair(kb_context *ctx)
{
    ipcq_set *set = ring_of(ctx, two_pes, 2);
    (void)install(ctx, set);
    return set;
}

/* ---- Kernels ---- */

/* Sends a number to the next one and stores what it gets. */
KB_KERNEL(pass_on, tl_ptr mine, float number)
{
    tl_send("E", tl_full(tl_shape(1), TL_F32, (double)number));
    tl_store(mine, tl_recv("W", tl_shape(1), TL_F32));
}

/* Receives before it sends: no message is ever sent. */
KB_KERNEL(receive_first, tl_ptr mine, float number)
{
    tl_store(mine, tl_recv("W", tl_shape(1), TL_F32));
    tl_send("E", tl_full(tl_shape(1), TL_F32, (double)number));
}

/* Stores a number. */
KB_KERNEL(put, tl_ptr mine, float number)
{
    tl_store(mine, tl_full(tl_shape(1), TL_F32, (double)number));
}

/* The first of them fails, and the others wait for it. */
KB_KERNEL(first_fails, tl_ptr mine, float number)
{
    if (number == 0)
        tl_load(0x10, tl_shape(4), TL_F32);
    tl_store(mine, tl_recv("W", tl_shape(1), TL_F32));
}

/* ---- Works ---- */

/* What a work consists of: its steps one after the other. */
typedef struct script script;
typedef kb_error *script_step(script *s, rt_work *work);

struct script {
    kb_context *ctx;
    script_step *const *steps;
    size_t step_count;
    ipcq_set *set;
    const kb_kernel *kernel;
    kb_tensor tensor; /* a number for each PE of a ring */
    const kb_pe *pes;
    size_t pe_count;
    float first; /* the number that the first PE is given; the others count on */

    /* What came of it. */
    rt_work *work; /* while there is one */
    kb_request request;
    size_t began;
    kb_time times[8]; /* when each step began */
    int done;
    kb_code code;
    char message[256];
};

static inline kb_error *script_next(void *self, rt_work *work, uint32_t step, bool *over)
{
    script *s = self;
    assert_int_equal(step, s->began);
    assert_true(s->began < s->step_count && !s->done);
    s->times[s->began++] = kb_context_now(s->ctx);
    *over = s->began == s->step_count;
    return s->steps[step](s, work);
}

static inline void script_done(void *self, const kb_error *err)
{
    script *s = self;
    s->done++;
    s->work = NULL;
    s->code = kb_error_code(err);
    snprintf(s->message, sizeof s->message, "%s", kb_error_message(err));
}

static inline kb_error *try_script(script *s)
{
    rt_work_options options = {.what = "script",
                               .label = "of a test",
                               .step = script_next,
                               .done = script_done,
                               .self = s};
    KB_TRY(rt_work_open(s->ctx, &options, &s->work, &s->request));
    rt_work_start(s->work);
    return NULL;
}

static inline void start_script(script *s)
{
    expect_ok(try_script(s));
}

static inline kb_error *finish_script(script *s)
{
    kb_error *err = kb_request_wait(s->ctx, s->request, NULL);
    expect_ok(kb_request_free(s->ctx, s->request));
    assert_int_equal(s->done, 1);
    assert_int_equal(s->code, kb_error_code(err));
    assert_string_equal(s->message, kb_error_message(err));
    return err;
}

/* A step: the kernel on all PEs of the ring in one SIP, with numbers from `first` on. */
static inline kb_error *launch_step(script *s, rt_work *work)
{
    uint64_t va;
    tl_arg args[MAX_MEMBERS][2];
    rt_target targets[MAX_MEMBERS];
    KB_TRY(kb_tensor_va(s->ctx, s->tensor, &va));
    for (size_t i = 0; i < s->pe_count; i++) {
        args[i][0] = (tl_arg)(va + 4 * i);
        args[i][1] = (tl_arg)s->first + (tl_arg)i;
        targets[i] = (rt_target){s->pes[i].cube, s->pes[i].pe, args[i]};
    }
    rt_launch_spec spec = {
        .name = "ring",
        .kernel = s->kernel,
        .sip = s->pes[0].sip,
        .queues = s->set,
        .targets = targets,
        .target_count = s->pe_count,
    };
    return rt_work_launch(work, &spec);
}

static inline kb_error *hold_step(script *s, rt_work *work)
{
    (void)s;
    rt_work_hold(work);
    return NULL;
}

static inline kb_error *empty_step(script *s, rt_work *work)
{
    (void)s, (void)work;
    return NULL;
}

static script_step *const one_launch[] = {launch_step};

/* A number for each of the PEs, on their device; untimed. */
static inline kb_tensor numbers_for(kb_context *ctx, uint32_t sip, size_t count)
{
    kb_tensor tensor;
    kb_tensor_spec spec = {
        .name = "numbers", .dtype = KB_F32, .shape = KB_SHAPE(count), .access = KB_UNTIMED};
    uint32_t before = kb_ahbm_current_device(ctx);
    expect_ok(kb_ahbm_set_device(ctx, sip));
    expect_ok(kb_zeros(ctx, &spec, &tensor));
    expect_ok(kb_ahbm_set_device(ctx, before));
    return tensor;
}

/* The kernel on a ring of these PEs of one SIP. */
static inline script ring_script(kb_context *ctx, const kb_kernel *kernel, ipcq_set *set,
                                 kb_tensor tensor, const kb_pe *pes, size_t count)
{
    return (script){
        .ctx = ctx,
        .steps = one_launch,
        .step_count = 1,
        .set = set,
        .kernel = kernel,
        .tensor = tensor,
        .pes = pes,
        .pe_count = count,
        .first = 10,
    };
}

static inline void expect_numbers(kb_context *ctx, kb_tensor tensor, const float *expected,
                                  size_t count)
{
    float found[MAX_MEMBERS];
    expect_ok(kb_tensor_to_host(ctx, tensor, KB_UNTIMED, found, count * sizeof *found));
    for (size_t i = 0; i < count; i++)
        assert_true(found[i] == expected[i]);
}

/* The queues of the pair work, and so does the context. */
static inline void expect_usable(kb_context *ctx, ipcq_set *set, kb_tensor numbers)
{
    ipcq_set_reset(set);
    script s = ring_script(ctx, &pass_on, set, numbers, two_pes, 2);
    start_script(&s);
    expect_ok(finish_script(&s));
    expect_numbers(ctx, numbers, (const float[]){11, 10}, 2);
    expect_as_new(ctx);
}

#endif
