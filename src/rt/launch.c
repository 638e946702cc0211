/*
 * launch.c: kernels on the PEs of a device, by way of the control processors; a launch is done when
 * the last PE's completion is back. It is a part of its request.
 *
 * Kernels with queues may wait for each other: when one fails, all of its launch are stopped.
 *
 * A launch in a stream is a node: its command is held at the io_cpu until what comes before it has
 * ended. With a narrower scope it is sent on when what comes before it was: then its parts are held
 * at the m_cpus, or not at all, as PEs run what they are given in order.
 *
 * Commands may overtake each other on their way. So each PE has a list of the runs that were sent
 * to it and have not started there, in the order in which they left the io_cpu, or the host if they
 * are in no stream: one that has come waits until all before it have. It waits for commands alone,
 * and those always come.
 */
#include "launch.h"

#include <stdlib.h>

struct rt_turns {
    launch_run *first, *last;
};

kb_error *rt_turns_init(kb_context *ctx)
{
    ctx->turns = kb_alloc_zeroed(ctx->shape->pe_count, sizeof *ctx->turns);
    return ctx->turns ? NULL : kb_error_nomem();
}

void rt_turns_fini(kb_context *ctx)
{
    free(ctx->turns);
    ctx->turns = NULL;
}

void rt_launches_free(rt_launch *first)
{
    for (rt_launch *launch = first, *next; launch; launch = next) {
        next = launch->next;
        kb_vec_fini(&launch->targets);
        kb_error_free(launch->failure);
        kb_error_free(launch->stopped);
        kb_error_free(launch->passed_on);
        tl_races_release(launch->races);
        free(launch->args);
        free(launch->runs);
        free(launch->cubes);
        free(launch);
    }
}

/* ---- Making one ---- */

rt_launch *launch_add(rt_request *request, const kb_kernel *kernel, const char *name, uint32_t sip)
{
    rt_launch *launch = kb_alloc_zeroed(1, sizeof *launch);
    if (!launch)
        return NULL;
    if (request->last_launch)
        request->last_launch->next = launch;
    else
        request->launches = launch;
    request->last_launch = launch;
    launch->ctx = request->ctx;
    launch->request = request;
    launch->kernel = *kernel;
    launch->number = request->ctx->launches_made + 1;
    launch->sip = sip;
    launch->result.name = name;
    launch->result.sip = sip;
    return launch;
}

kb_error *launch_lay_out(rt_launch *launch)
{
    const io_target *targets = launch->targets.items;
    int64_t pes = 0; /* of the cube in hand */
    for (size_t i = 0; i < launch->targets.count; i++) {
        bool same_cube = i > 0 && targets[i].cube == targets[i - 1].cube;
        pes = same_cube ? pes + 1 : 1;
        launch->programs[0] = pes > launch->programs[0] ? pes : launch->programs[0];
        launch->programs[1] += !same_cube;
    }
    launch->runs = kb_alloc_zeroed(launch->targets.count, sizeof *launch->runs);
    return launch->runs ? NULL : kb_error_nomem();
}

void launch_choose_queues(rt_launch *launch, rt_queue_set *named)
{
    for (size_t i = 0; i < launch->targets.count; i++) {
        kb_pe pe = {launch->sip, launch->targets.items[i].cube, launch->targets.items[i].pe};
        launch_run *r = &launch->runs[i];
        r->set = named ? named : rt_queues_of_pe(launch->ctx, pe);
        r->queues = r->set ? r->set->queues : NULL;
        launch->has_queues |= r->queues != NULL;
    }
}

/* ---- Kernels ---- */

static void add_outcome(rt_launch *launch, const tl_outcome *outcome)
{
    kb_launch_result *result = &launch->result;
    if (result->pes == 0 || outcome->start < launch->first_start)
        launch->first_start = outcome->start;
    if (result->pes == 0 || outcome->end > launch->last_end)
        launch->last_end = outcome->end;
    result->pes++;
    for (int unit = 0; unit < KB_UNITS; unit++)
        result->busy[unit] += outcome->busy[unit];
    for (int cause = 0; cause < KB_CAUSES; cause++)
        result->causes[cause] += outcome->causes[cause];
    result->split = kb_split_causes(result->causes);
}

/* Kernels that end before their time leave messages in their queues. */
static void mark_stale(const rt_launch *launch)
{
    for (size_t i = 0; i < launch->targets.count; i++)
        if (launch->runs[i].set)
            launch->runs[i].set->stale = true;
}

/* Others may wait for a kernel that has failed, or could not be started. */
static void note_failure(rt_launch *launch, const kb_error *err)
{
    if (!err || !launch->has_queues || launch->stopped || launch->failure)
        return;
    launch->failure = kb_error_copy(err);
    mark_stale(launch);
    rt_works_stop_soon(launch->ctx);
}

/* In a stream of several launches, which one it was. */
static kb_error *blame(const rt_launch *launch, kb_error *err)
{
    if (!err || !launch->node || launch->node->inherits)
        return err;
    const char *name = launch->result.name;
    if (launch->stream)
        return kb_error_wrap(err, "launch '%s' in stream '%s'", name, launch->stream);
    return launch->recorded ? kb_error_wrap(err, "launch '%s' of a graph", name) : err;
}

/* No kernel of the launch starts any more; those that run may wait for others that do not. */
static void fall_behind(rt_launch *launch, const kb_error *passed_on)
{
    launch->passed_on = kb_error_copy(passed_on);
    launch->is_behind = launch->node->inherits = true;
    note_failure(launch, passed_on);
}

/* Launches of a narrow scope are at their PEs before it is known that one before them fails. */
static void stop_followers(rt_launch *launch, const kb_error *err)
{
    if (!launch->lane || launch->passed_on)
        return;
    launch->passed_on = kb_error_wrap(blame(launch, kb_error_copy(err)), "after failed work");
    kb_error_set_secondary(launch->passed_on);
    bool is_follower = false;
    for (size_t i = 0; i < launch->lane->flying.count; i++) {
        rt_launch *other = launch->lane->flying.items[i];
        if (is_follower && !other->passed_on && !other->stopped)
            fall_behind(other, launch->passed_on);
        is_follower = is_follower || other == launch;
    }
}

/* What the PE had to do is over, or never began. Takes the error. */
static void end_run(const launch_run *r, kb_error *err)
{
    kb_context *ctx = r->launch->ctx;
    kb_time now = kb_sim_now(ctx->sim);
    net_completion work = {.issued = r->arrived, .ended = now, .overhead = now - r->arrived};
    note_failure(r->launch, err);
    if (err)
        stop_followers(r->launch, err);
    if (r->set)
        r->set->kernels--;
    io_finish(ctx->control, r->ticket, &work, err);
}

/* The PE among those of its device. */
static size_t pe_of(const rt_launch *launch, size_t index)
{
    const io_target *target = &launch->targets.items[index];
    return (size_t)target->cube * launch->ctx->shape->pes + target->pe;
}

/* Where the lane's kernels on the PE are over, in the order that races are found by. */
static void note_mark(void *self, uint64_t index, tl_mark over)
{
    rt_launch *launch = self;
    kb_context *ctx = launch->ctx;
    rt_lane *lane = launch->lane;
    if (!lane || over == 0)
        return;
    launch->over = tl_mark_join(ctx->kernels, launch->over, over);
    if (!lane->marks)
        lane->marks =
            kb_alloc_zeroed((size_t)ctx->shape->cubes * ctx->shape->pes, sizeof *lane->marks);
    if (lane->marks)
        lane->marks[pe_of(launch, index)] = over;
    else
        kb_sim_fail(ctx->sim, kb_error_nomem());
}

/* What comes before a kernel, by its stream: all of what the launch waited for, and in a narrow
 * scope what was before it on its PE or in its cube. */
static tl_mark comes_after(void *self, uint64_t index)
{
    const rt_launch *launch = self;
    kb_context *ctx = launch->ctx;
    tl_mark mark = launch->node ? launch->node->after : 0;
    if (launch->scope == KB_SCOPE_DEVICE || !launch->lane || !launch->lane->marks)
        return mark;
    size_t pe = pe_of(launch, index), count = 1;
    if (launch->scope == KB_SCOPE_CUBE) {
        count = ctx->shape->pes;
        pe -= pe % count;
    }
    for (size_t i = 0; i < count; i++)
        mark = tl_mark_join(ctx->kernels, mark, launch->lane->marks[pe + i]);
    return mark;
}

static void kernel_done(void *self, uint64_t index, const tl_outcome *outcome, kb_error *err)
{
    rt_launch *launch = self;
    add_outcome(launch, outcome);
    end_run(&launch->runs[index], err);
}

static const char *scope_name(kb_scope scope)
{
    return scope == KB_SCOPE_CUBE ? "KB_SCOPE_CUBE" : scope == KB_SCOPE_PE ? "KB_SCOPE_PE" : NULL;
}

static const kb_error *refused(void *self, uint64_t index)
{
    (void)index;
    const rt_launch *launch = self;
    return launch->is_behind ? launch->passed_on : NULL;
}

static void start_run(const launch_run *r)
{
    rt_launch *launch = r->launch;
    size_t index = (size_t)(r - launch->runs);
    const io_target *target = &launch->targets.items[index];
    if (launch->stopped || launch->is_behind) {
        end_run(r, kb_error_copy(launch->stopped ? launch->stopped : launch->passed_on));
        return;
    }
    size_t own = launch->own_args ? index * launch->kernel.parameter_count : 0;
    tl_run kernel = {
        .kernel = &launch->kernel,
        .args = launch->args + own,
        .label = launch->result.name,
        .launch = launch->number,
        .posted = launch->posted,
        .pe = {launch->sip, target->cube, target->pe},
        .programs = {launch->programs[0], launch->programs[1]},
        .queues = r->queues,
        .races = launch->races,
        .stream = launch->stream,
        .scope = scope_name(launch->scope),
        .refused = refused,
        .after = comes_after,
        .over = note_mark,
        .done = kernel_done,
        .self = launch,
        .arg = index,
    };
    kb_error *err = tl_runner_start(launch->ctx->kernels, &kernel);
    if (err)
        end_run(r, err);
}

static rt_turns *turns_of(const rt_launch *launch, size_t index)
{
    const io_target *target = &launch->targets.items[index];
    kb_pe pe = {.sip = launch->sip, .cube = target->cube, .pe = target->pe};
    return &launch->ctx->turns[topo_pe_index(launch->ctx->shape, pe)];
}

/* The launch is on its way: its runs come after all that their PEs were sent before. */
static void queue_runs(rt_launch *launch)
{
    for (size_t i = 0; i < launch->targets.count; i++) {
        rt_turns *turns = turns_of(launch, i);
        launch_run *r = &launch->runs[i];
        *(turns->first ? &turns->last->next : &turns->first) = r;
        turns->last = r;
    }
}

/* Each run uses the queues of its PE until it has ended, or is known never to begin. */
static void hold_queues(rt_launch *launch)
{
    for (size_t i = 0; i < launch->targets.count; i++) {
        launch->runs[i].launch = launch;
        if (launch->runs[i].set)
            launch->runs[i].set->kernels++;
    }
}

static void release_queues(const rt_launch *launch)
{
    for (size_t i = 0; i < launch->targets.count; i++)
        if (launch->runs[i].set)
            launch->runs[i].set->kernels--;
}

static void arrive(void *self, uint64_t ticket, size_t index)
{
    rt_launch *launch = self;
    rt_turns *turns = turns_of(launch, index);
    launch_run *r = &launch->runs[index];
    r->is_here = true;
    r->ticket = ticket;
    r->arrived = kb_sim_now(launch->ctx->sim);
    while (turns->first && turns->first->is_here) {
        const launch_run *next = turns->first;
        turns->first = next->next;
        start_run(next);
    }
}

/* ---- The end ---- */

static void finish(rt_launch *launch, kb_time ended)
{
    kb_context *ctx = launch->ctx;
    kb_launch_result *result = &launch->result;
    launch->done = true;
    result->ended = ended;
    result->pe_exec = launch->last_end - launch->first_start;
    result->network = ended - result->issued - result->held - result->pe_exec;
    ctx->launches.items[ctx->launches.count++] = *result; /* it has room since it was submitted */
    ctx->launches_open--;
}

static void done(void *self, uint64_t arg, const net_completion *completion, kb_error *err)
{
    (void)arg;
    rt_launch *launch = self;
    finish(launch, completion->ended);
    err = blame(launch, err);
    if (launch->node)
        kb_oplog_launch_end(launch->ctx->log);
    err = launch->node
              ? rt_check_close(launch->ctx, err)
              : rt_check_end_request(launch->request, launch->races, launch->result.name, err);
    if (!launch->node)
        launch->races = NULL;
    rt_request_end_part(launch->request, completion, err);
}

static io_command command_of(rt_launch *launch)
{
    uint64_t argument_bytes = launch->kernel.parameter_count * LAUNCH_ARGUMENT_BYTES;
    return (io_command){
        .sip = launch->sip,
        .targets = launch->targets.items,
        .target_count = launch->targets.count,
        .cube_bytes = LAUNCH_KERNEL_BYTES + (launch->own_args ? 0 : argument_bytes),
        .arrive = arrive,
        .done = done,
        .self = launch,
    };
}

/* ---- In a stream ---- */

static bool is_first_in_cube(const rt_launch *launch, uint32_t cube)
{
    for (size_t i = 0; launch->lane->flying.items[i] != launch; i++)
        if (launch->lane->flying.items[i]->cubes[cube].open)
            return false;
    return true;
}

static void cube_held(void *self, uint64_t arg, uint32_t cube, uint64_t ticket)
{
    (void)arg;
    const rt_launch *launch = self;
    if (is_first_in_cube(launch, cube))
        io_release_cube(launch->ctx->control, ticket);
    else
        launch->cubes[cube].ticket = ticket;
}

static void cube_joined(void *self, uint64_t arg, uint32_t cube)
{
    (void)arg;
    const rt_launch *launch = self;
    const rt_lane *lane = launch->lane;
    launch->cubes[cube].open = false;
    for (size_t i = 0; i < lane->flying.count; i++) {
        const rt_launch *other = lane->flying.items[i];
        uint64_t ticket = other->cubes[cube].ticket;
        if (ticket == 0 || !is_first_in_cube(other, cube))
            continue;
        other->cubes[cube].ticket = 0;
        io_release_cube(other->ctx->control, ticket);
    }
}

static void joined(void *self, uint64_t arg, const kb_error *err)
{
    (void)arg;
    rt_launch *launch = self;
    rt_lane *lane = launch->lane;
    size_t left = 0;
    for (size_t i = 0; i < lane->flying.count; i++)
        if (lane->flying.items[i] != launch)
            lane->flying.items[left++] = lane->flying.items[i];
    lane->flying.count = left;
    launch->lane = NULL; /* which may go before the host knows */
    launch->node->over = launch->over;
    rt_check_over(launch->ctx, launch->races);
    launch->races = NULL;
    kb_error *named = err ? blame(launch, kb_error_copy(err)) : NULL;
    rt_node_end(launch->node, named);
    kb_error_free(named);
}

static io_command ordered_command(rt_launch *launch)
{
    io_command command = command_of(launch);
    command.joined = joined;
    command.cube_joined = cube_joined;
    command.cube_held = launch->scope == KB_SCOPE_CUBE ? cube_held : NULL;
    return command;
}

static void held(void *self, uint64_t arg, uint64_t ticket)
{
    (void)arg;
    rt_launch *launch = self;
    launch->ticket = ticket;
    launch->arrived = kb_sim_now(launch->ctx->sim);
    kb_oplog_launch_end(launch->ctx->log);
    rt_node_arrived(launch->node);
}

/* The control processors have the command: they need to be told what differs, and of nothing else.
 */
static kb_error *trigger(rt_launch *launch)
{
    io_command command = ordered_command(launch);
    command.recorded = true;
    command.cube_bytes = launch->changed * LAUNCH_ARGUMENT_BYTES;
    for (size_t i = 0; i < launch->targets.count; i++)
        launch->targets.items[i].bytes = 0;
    launch->result.issued = kb_sim_now(launch->ctx->sim);
    return io_submit(launch->ctx->control, &command);
}

static kb_error *begin_in_lane(rt_launch *launch)
{
    kb_context *ctx = launch->ctx;
    KB_TRY(rt_check_begin(ctx, &launch->races));
    rt_lane *lane = launch->lane;
    size_t before = lane->flying.count;
    if (!kb_vec_push(&lane->flying, launch))
        return kb_error_nomem();
    if (before > 0 && lane->flying.items[before - 1]->passed_on)
        fall_behind(launch, lane->flying.items[before - 1]->passed_on);
    for (size_t i = 0; i < launch->targets.count; i++)
        launch->cubes[launch->targets.items[i].cube].open = true;
    queue_runs(launch);
    return NULL;
}

static void begin(void *self)
{
    rt_launch *launch = self;
    kb_context *ctx = launch->ctx;
    kb_time now = kb_sim_now(ctx->sim);
    kb_oplog_launch_begin(ctx->log);
    kb_error *err = begin_in_lane(launch);
    if (launch->node->run || now > launch->arrived)
        launch->posted = kb_oplog_kernel_clock(ctx->log); /* until now it was not on its way */
    if (!err && launch->node->run) {
        err = trigger(launch);
    } else if (!err) {
        launch->result.held = now - launch->arrived;
        io_release(ctx->control, launch->ticket);
    }
    if (err)
        kb_sim_fail(ctx->sim, err);
}

static void cancel(void *self, const kb_error *why)
{
    rt_launch *launch = self;
    kb_context *ctx = launch->ctx;
    release_queues(launch);
    if (!launch->node->run) {
        launch->result.held = kb_sim_now(ctx->sim) - launch->arrived;
        kb_oplog_launch_begin(ctx->log);
        io_cancel(ctx->control, launch->ticket, kb_error_copy(why));
        return;
    }
    launch->result.issued = kb_sim_now(ctx->sim);
    finish(launch, launch->result.issued);
    rt_node_end(launch->node, why);
    rt_request_end_part(launch->request, NULL, rt_check_close(ctx, kb_error_copy(why)));
}

static const rt_node_actions launch_actions = {begin, cancel};

static kb_error *submit_in_stream(rt_launch *launch, rt_stream *stream, bool is_collective)
{
    kb_context *ctx = launch->ctx;
    rt_node_spec spec = {
        .actions = &launch_actions,
        .self = launch,
        .request = launch->request,
        .sip = launch->sip,
        .other_sip = TOPO_NONE,
        .scope = launch->scope,
        .is_launch = true,
        .is_collective = is_collective,
    };
    launch->cubes = kb_alloc_zeroed(ctx->shape->cubes, sizeof *launch->cubes);
    if (!launch->cubes)
        return kb_error_nomem();
    launch->lane = &stream->lanes[launch->sip];
    launch->stream = rt_stream_label(stream);
    launch->recorded = stream->run != NULL;
    KB_TRY(rt_node_open(stream, &spec, &launch->node));
    if (!stream->run) {
        io_command command = ordered_command(launch);
        command.held = held;
        kb_error *err = io_submit(ctx->control, &command);
        if (err) {
            launch->node->begun = true;
            rt_node_end(launch->node, NULL);
            return err;
        }
    }
    if (!stream->run)
        kb_oplog_launch_begin(ctx->log);
    hold_queues(launch);
    rt_check_open(ctx);
    return NULL;
}

static kb_error *submit_alone(rt_launch *launch)
{
    KB_TRY(rt_check_request(launch->request, &launch->races));
    io_command command = command_of(launch);
    kb_error *err = io_submit(launch->ctx->control, &command);
    if (err) {
        err = rt_check_end_request(launch->request, launch->races, launch->result.name, err);
        launch->races = NULL;
        return err;
    }
    hold_queues(launch);
    queue_runs(launch);
    return NULL;
}

kb_error *launch_submit(rt_launch *launch, rt_stream *stream, bool is_collective)
{
    kb_context *ctx = launch->ctx;
    if (!kb_vec_reserve(&ctx->launches, ctx->launches_open + 1))
        return kb_error_nomem();
    launch->result.issued = kb_sim_now(ctx->sim);
    launch->posted = kb_oplog_kernel_clock(ctx->log);
    ctx->launches_open++;
    if (launch->targets.count == 0) { /* no PE has a part of a tensor */
        finish(launch, launch->result.issued);
        return NULL;
    }
    kb_error *err = stream ? submit_in_stream(launch, stream, is_collective) : submit_alone(launch);
    if (err) {
        ctx->launches_open--;
        return err;
    }
    rt_request_add_part(launch->request);
    return NULL;
}

/* ---- On chosen PEs ---- */

static kb_error *take_targets(rt_launch *launch, const rt_launch_spec *spec)
{
    size_t each = spec->kernel->parameter_count;
    launch->own_args = true;
    launch->args = kb_alloc_array(spec->target_count * each, sizeof *launch->args);
    if (!launch->args || !kb_vec_reserve(&launch->targets, spec->target_count))
        return kb_error_nomem();
    for (size_t i = 0; i < spec->target_count; i++) {
        const rt_target *target = &spec->targets[i];
        launch->targets.items[launch->targets.count++] = (io_target){
            .cube = target->cube,
            .pe = target->pe,
            .bytes = LAUNCH_TARGET_BYTES + each * LAUNCH_ARGUMENT_BYTES,
        };
        for (size_t a = 0; a < each; a++)
            launch->args[i * each + a] = target->args[a];
    }
    return launch_lay_out(launch);
}

kb_error *rt_launch_on(rt_request *request, const rt_launch_spec *spec, rt_stream *stream)
{
    kb_context *ctx = request->ctx;
    const char *name = rt_keep_name(ctx, spec->name);
    rt_launch *launch = name ? launch_add(request, spec->kernel, name, spec->sip) : NULL;
    if (!launch)
        return kb_error_nomem();
    kb_error *err = take_targets(launch, spec);
    launch->has_queues = spec->queues != NULL;
    for (size_t i = 0; i < launch->targets.count && !err; i++)
        launch->runs[i].queues = spec->queues;
    if (!err)
        err = launch_submit(launch, stream, true);
    launch->done = launch->done || err; /* it will never run */
    KB_TRY(err);
    ctx->launches_made++;
    if (request->number == 0)
        request->number = launch->number;
    return NULL;
}

void rt_launch_stop(rt_launch *launch, const kb_error *why)
{
    if (launch->done || launch->stopped)
        return;
    launch->stopped = kb_error_copy(why);
    mark_stale(launch);
    if (launch->node && !launch->node->begun)
        rt_node_cancel(launch->node, why);
    else
        tl_runner_abort(launch->ctx->kernels, launch->number, why);
}

const kb_error *rt_launch_failure(const rt_launch *launch)
{
    return launch->stopped ? NULL : launch->failure;
}

rt_launch *rt_launch_next(const rt_launch *launch)
{
    return launch->next;
}
