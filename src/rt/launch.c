/*
 * launch.c: running kernels. A launch goes to the devices of its tensors, on each to the PEs that
 * have a part of one of them, by way of the control processors; it is done when the last PE's
 * completion is back. A device's share of it is an rt_launch, a part of its request. Works say
 * themselves which PEs run what with which arguments (rt_launch_on).
 *
 * Kernels with queues may wait for each other: when one fails, all of its launch are stopped.
 *
 * What the caller has sent on its way before (copies, mappings) has to be there first. Other
 * launches need not be over: PEs run what they are given in order.
 *
 * Commands may overtake each other on their way. So each PE has a list of the runs that were sent
 * to it and have not started there, in the order of their launches: one that has come waits until
 * all before it have. It waits for commands alone, and those always come.
 */
#include "runtime.h"

#include <stdlib.h>
#include <string.h>

#include "arguments.h"

enum {
    KERNEL_BYTES = 64, /* of a command: where the code is, the grid, how many arguments */
    ARGUMENT_BYTES = 8,
    TARGET_BYTES = 16, /* for each PE: its place in the grid */
};

/* What one PE does of a launch. */
typedef struct run {
    rt_launch *launch;
    struct run *next;  /* for the same PE, launched later */
    ipcq_set *queues;  /* NULL: none */
    rt_queue_set *set; /* that they belong to; NULL if they are no queues of the program */
    bool is_here;      /* its command is at the PE: */
    uint64_t ticket;
    kb_time arrived;
} run;

struct rt_turns {
    run *first, *last;
};

struct rt_launch {
    kb_context *ctx;
    rt_request *request;
    rt_launch *next; /* of the same request */
    const kb_kernel *kernel;
    uint64_t number;
    uint32_t sip;
    bool has_queues; /* some of its kernels have */
    tl_arg *args;
    bool own_args;     /* each target has its own, one behind the other; else all have these */
    kb_error *failure; /* of a kernel that others may wait for; NULL: none has failed */
    kb_error *stopped; /* why none is to start any more; NULL while they may */
    bool done;
    tl_races *races; /* counted until it is done; NULL: it is not checked */
    run *runs;       /* one a target */
    KB_VEC(io_target) targets;
    int64_t programs[2];
    kb_time first_start, last_end;
    kb_time posted; /* by the kernel clock of the log */
    kb_launch_result result;
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
        tl_races_release(launch->races);
        free(launch->args);
        free(launch->runs);
        free(launch);
    }
}

/* The same text for as long as the context; NULL if there is no memory. */
static const char *keep_name(kb_context *ctx, const char *name)
{
    for (size_t i = 0; i < ctx->names.count; i++)
        if (strcmp(ctx->names.items[i], name) == 0)
            return ctx->names.items[i];
    if (!kb_vec_reserve(&ctx->names, 1))
        return NULL;
    kb_text text = KB_TEXT_INIT;
    kb_text_puts(&text, name);
    char *copy = kb_text_take(&text);
    if (copy)
        ctx->names.items[ctx->names.count++] = copy;
    return copy;
}

/* ---- On which devices ---- */

static const kb_tensor *tensors_of(const kb_arg *arg, size_t *count)
{
    *count = arg->kind == KB_ARG_TENSOR ? 1 : arg->kind == KB_ARG_TENSORS ? arg->tensor_count : 0;
    return arg->kind == KB_ARG_TENSOR ? &arg->tensor : arg->tensors;
}

/* The tensor, which has to be on a device. */
static kb_error *find_tensor(kb_context *ctx, kb_tensor handle, rt_tensor **tensor)
{
    *tensor = rt_table_get(&ctx->tensors, handle.id);
    if (!*tensor)
        return kb_error_new(KB_ERR_FAULT, "invalid or freed tensor handle");
    if (!(*tensor)->on_host)
        return NULL;
    kb_text text = KB_TEXT_INIT;
    rt_tensor_print(*tensor, &text);
    kb_error *err = kb_error_new(KB_ERR_FAULT, "%s is on the host: copy it to a device first",
                                 kb_text_peek(&text));
    kb_text_fini(&text);
    return err;
}

/* Marks the devices that have tensors among the arguments. */
static kb_error *find_devices(kb_context *ctx, const kb_arg *args, size_t arg_count, bool *devices)
{
    bool any = false;
    for (size_t i = 0; i < arg_count; i++) {
        size_t count;
        const kb_tensor *handles = tensors_of(&args[i], &count);
        for (size_t j = 0; j < count; j++) {
            rt_tensor *tensor;
            kb_error *err = find_tensor(ctx, handles[j], &tensor);
            if (err)
                return kb_error_wrap(err, "argument %zu", i + 1);
            devices[tensor->sip] = true;
            any = true;
        }
    }
    if (any)
        return NULL;
    return kb_error_new(KB_ERR_FAULT, "no tensor among its arguments: cannot determine the "
                                      "device");
}

/* Which of the argument's tensors is on the device: exactly one is. */
static kb_error *tensor_on(kb_context *ctx, const kb_arg *arg, size_t index, uint32_t sip,
                           rt_tensor **out)
{
    size_t count, found = 0;
    const kb_tensor *handles = tensors_of(arg, &count);
    const rt_tensor *other = NULL;
    rt_tensor *match = NULL;
    *out = NULL;
    for (size_t i = 0; i < count; i++) {
        rt_tensor *tensor;
        KB_TRY(find_tensor(ctx, handles[i], &tensor));
        if (tensor->sip == sip) {
            match = tensor;
            found++;
        } else {
            other = tensor;
        }
    }
    if (found == 1) {
        *out = match;
        return NULL;
    }
    if (found > 1)
        return kb_error_new(KB_ERR_FAULT, "argument %zu: KB_EACH() has several tensors on sip%u",
                            index + 1, sip);
    return kb_error_new(
        KB_ERR_FAULT,
        "argument %zu: '%s' is on sip%u, while others are on sip%u; KB_EACH() gives "
        "each device its own",
        index + 1, other ? other->name : "", other ? other->sip : 0, sip);
}

/* ---- On which PEs ---- */

static void mark_pes(const kb_context *ctx, const rt_tensor *tensor, bool *marked)
{
    for (size_t i = 0; i < tensor->placement.shards.count; i++) {
        const mem_shard *shard = &tensor->placement.shards.items[i];
        if (shard->nbytes > 0)
            marked[(size_t)shard->cube * ctx->shape->pes + shard->pe] = true;
    }
}

static kb_error *list_targets(rt_launch *launch, const bool *marked)
{
    const topo_shape *shape = launch->ctx->shape;
    for (uint32_t cube = 0; cube < shape->cubes; cube++) {
        for (uint32_t pe = 0; pe < shape->pes; pe++) {
            io_target target = {.cube = cube, .pe = pe, .bytes = TARGET_BYTES};
            if (marked[(size_t)cube * shape->pes + pe] && !kb_vec_push(&launch->targets, target))
                return kb_error_nomem();
        }
    }
    return NULL;
}

/* The targets are known: they are numbered, and each has a run. */
static kb_error *lay_out(rt_launch *launch)
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

/* Which queues each PE has: those of the set, or the ones that were installed there last. */
static void choose_queues(rt_launch *launch, rt_queue_set *named)
{
    for (size_t i = 0; i < launch->targets.count; i++) {
        kb_pe pe = {launch->sip, launch->targets.items[i].cube, launch->targets.items[i].pe};
        run *r = &launch->runs[i];
        r->set = named ? named : rt_queues_of_pe(launch->ctx, pe);
        r->queues = r->set ? r->set->queues : NULL;
        launch->has_queues |= r->queues != NULL;
    }
}

static tl_arg number_of(const kb_arg *arg)
{
    return arg->kind == KB_ARG_REAL ? (tl_arg)arg->real : (tl_arg)arg->integer;
}

/* What the kernel is given on this device; marks who runs it. */
static kb_error *fill_arguments(rt_launch *launch, const kb_arg *args, size_t count, bool *marked)
{
    kb_context *ctx = launch->ctx;
    launch->args = kb_alloc_array(count, sizeof *launch->args);
    if (!launch->args)
        return kb_error_nomem();
    for (size_t i = 0; i < count; i++) {
        if (args[i].kind == KB_ARG_INTEGER || args[i].kind == KB_ARG_REAL) {
            launch->args[i] = number_of(&args[i]);
            continue;
        }
        rt_tensor *tensor;
        kb_error *err = tensor_on(ctx, &args[i], i, launch->sip, &tensor);
        if (!tensor)
            return err;
        launch->args[i] = (tl_arg)tensor->va;
        mark_pes(ctx, tensor, marked);
    }
    return NULL;
}

static kb_error *prepare(rt_launch *launch, const kb_arg *args, size_t count, rt_queue_set *named)
{
    const topo_shape *shape = launch->ctx->shape;
    bool *marked = kb_alloc_zeroed((size_t)shape->cubes * shape->pes, sizeof *marked);
    if (!marked)
        return kb_error_nomem();
    kb_error *err = fill_arguments(launch, args, count, marked);
    if (!err)
        err = list_targets(launch, marked);
    free(marked);
    KB_TRY(err);
    KB_TRY(lay_out(launch));
    choose_queues(launch, named);
    return NULL;
}

/* ---- Under way ---- */

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

/* What the PE had to do is over, or never began. Takes the error. */
static void end_run(const run *r, kb_error *err)
{
    kb_context *ctx = r->launch->ctx;
    kb_time now = kb_sim_now(ctx->sim);
    net_receipt work = {.issued = r->arrived, .ended = now, .overhead = now - r->arrived};
    note_failure(r->launch, err);
    if (r->set)
        r->set->kernels--;
    io_finish(ctx->control, r->ticket, &work, err);
}

static void kernel_done(void *self, uint64_t index, const tl_outcome *outcome, kb_error *err)
{
    rt_launch *launch = self;
    add_outcome(launch, outcome);
    end_run(&launch->runs[index], err);
}

static void start_run(const run *r)
{
    rt_launch *launch = r->launch;
    size_t index = (size_t)(r - launch->runs);
    const io_target *target = &launch->targets.items[index];
    if (launch->stopped) {
        end_run(r, kb_error_copy(launch->stopped));
        return;
    }
    size_t own = launch->own_args ? index * launch->kernel->parameter_count : 0;
    tl_run kernel = {
        .kernel = launch->kernel,
        .args = launch->args + own,
        .label = launch->result.name,
        .launch = launch->number,
        .posted = launch->posted,
        .pe = {launch->sip, target->cube, target->pe},
        .programs = {launch->programs[0], launch->programs[1]},
        .queues = r->queues,
        .races = launch->races,
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
    const topo_shape *shape = launch->ctx->shape;
    const io_target *target = &launch->targets.items[index];
    size_t cube = (size_t)launch->sip * shape->cubes + target->cube;
    return &launch->ctx->turns[cube * shape->pes + target->pe];
}

/* The launch is on its way: its runs come after all that their PEs were sent before. */
static void queue_runs(rt_launch *launch)
{
    for (size_t i = 0; i < launch->targets.count; i++) {
        rt_turns *turns = turns_of(launch, i);
        run *r = &launch->runs[i];
        r->launch = launch;
        if (r->set)
            r->set->kernels++;
        *(turns->first ? &turns->last->next : &turns->first) = r;
        turns->last = r;
    }
}

static void arrive(void *self, uint64_t ticket, size_t index)
{
    rt_launch *launch = self;
    rt_turns *turns = turns_of(launch, index);
    run *r = &launch->runs[index];
    r->is_here = true;
    r->ticket = ticket;
    r->arrived = kb_sim_now(launch->ctx->sim);
    while (turns->first && turns->first->is_here) {
        const run *next = turns->first;
        turns->first = next->next;
        start_run(next);
    }
}

/* ---- Races ---- */

/* Launches of a request that are under way at the same time are checked together. */
static kb_error *begin_check(rt_launch *launch)
{
    rt_request *request = launch->request;
    if (launch->ctx->race_check == KB_RACES_OFF)
        return NULL;
    if (request->races)
        tl_races_retain(request->races);
    else
        KB_TRY(tl_races_create(launch->ctx->kernels, &request->races));
    launch->races = request->races;
    return NULL;
}

/* Who asked for a fault is not told that all is well when not all was looked at. */
static kb_error *report_cut_off(const rt_launch *launch)
{
    static const char format[] =
        "launch '%s' has too many accesses and messages to look for data races in all of them: "
        "those of its beginning were checked";
    if (launch->ctx->race_check == KB_RACES_FAIL)
        return kb_error_new(KB_ERR_FAULT, format, launch->result.name);
    rt_warn(launch->ctx, format, launch->result.name);
    return NULL;
}

/* What is wrong is said, or returned. */
static kb_error *report_races(const rt_launch *launch)
{
    kb_context *ctx = launch->ctx;
    kb_text text = KB_TEXT_INIT;
    bool cut_off = false;
    kb_error *err = tl_races_report(launch->races, &text, &cut_off);
    bool fails = ctx->race_check == KB_RACES_FAIL;
    if (!err && text.length > 0 && fails)
        err = kb_error_new(KB_ERR_FAULT, "%s", kb_text_peek(&text));
    else if (!err && text.length > 0)
        rt_warn(ctx, "%s", kb_text_peek(&text));
    if (!err && cut_off)
        err = report_cut_off(launch);
    kb_text_fini(&text);
    return err;
}

/* The launch is over, with this error, which it takes; what is wrong with it now. The last of those
 * that are checked together looks; one that failed has other things to say. */
static kb_error *end_check(rt_launch *launch, kb_error *err)
{
    rt_request *request = launch->request;
    if (!launch->races)
        return err;
    bool is_last = tl_races_is_last(launch->races);
    if (is_last && !err && !request->error)
        err = report_races(launch);
    if (is_last)
        request->races = NULL;
    tl_races_release(launch->races);
    launch->races = NULL;
    return err;
}

static void finish(rt_launch *launch, kb_time ended)
{
    kb_context *ctx = launch->ctx;
    kb_launch_result *result = &launch->result;
    launch->done = true;
    result->ended = ended;
    result->pe_exec = launch->last_end - launch->first_start;
    result->network = ended - result->issued - result->pe_exec;
    ctx->launches.items[ctx->launches.count++] = *result; /* it has room since it was submitted */
    ctx->launches_open--;
}

static void done(void *self, uint64_t arg, const net_receipt *receipt, kb_error *err)
{
    (void)arg;
    rt_launch *launch = self;
    finish(launch, receipt->ended);
    rt_request_end_part(launch->request, receipt, end_check(launch, err));
}

static kb_error *submit(rt_launch *launch)
{
    kb_context *ctx = launch->ctx;
    if (!kb_vec_reserve(&ctx->launches, ctx->launches_open + 1))
        return kb_error_nomem();
    launch->result.issued = kb_sim_now(ctx->sim);
    launch->posted = kb_oplog_kernel_clock(ctx->log);
    ctx->launches_open++;
    if (launch->targets.count == 0) { /* nobody has anything */
        finish(launch, launch->result.issued);
        return NULL;
    }
    kb_error *unchecked = begin_check(launch);
    if (unchecked) {
        ctx->launches_open--;
        return unchecked;
    }
    uint64_t argument_bytes = launch->kernel->parameter_count * ARGUMENT_BYTES;
    io_command command = {
        .sip = launch->sip,
        .targets = launch->targets.items,
        .target_count = launch->targets.count,
        .cube_bytes = KERNEL_BYTES + (launch->own_args ? 0 : argument_bytes),
        .arrive = arrive,
        .done = done,
        .self = launch,
    };
    kb_error *err = io_submit(ctx->control, &command);
    if (err) {
        ctx->launches_open--;
        return end_check(launch, err);
    }
    queue_runs(launch);
    rt_request_add_part(launch->request);
    return NULL;
}

/* ---- Launching ---- */

kb_error *rt_wait_for_mapping(kb_context *ctx, kb_tensor handle)
{
    for (;;) {
        const rt_tensor *tensor = rt_table_get(&ctx->tensors, handle.id);
        rt_request *mapping = tensor ? rt_table_get(&ctx->requests, tensor->map_request) : NULL;
        if (!mapping)
            return NULL;
        KB_TRY(rt_block_on(ctx, &mapping->waiters));
    }
}

/* What the caller and others have sent to the tensors' devices before has to be there. */
static kb_error *wait_for_mappings(kb_context *ctx, const kb_arg *args, size_t arg_count)
{
    for (size_t i = 0; i < arg_count; i++) {
        size_t count;
        const kb_tensor *handles = tensors_of(&args[i], &count);
        for (size_t j = 0; j < count; j++)
            KB_TRY(rt_wait_for_mapping(ctx, handles[j]));
    }
    return NULL;
}

/* A launch of the request that has no targets yet; it has the number of the launch to be made
 * next. NULL if there is no memory. */
static rt_launch *add_launch(rt_request *request, const kb_kernel *kernel, const char *name,
                             uint32_t sip)
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
    launch->kernel = kernel;
    launch->number = request->ctx->launches_made + 1;
    launch->sip = sip;
    launch->result.name = name;
    launch->result.sip = sip;
    return launch;
}

/* What a call of kb_launch() asks for. */
typedef struct launch_call {
    const char *name;
    const kb_kernel *kernel;
    const kb_arg *args;
    size_t count;
    rt_queue_set *queues; /* NULL: on each PE those that were installed last */
    rt_request *request;
    bool failed; /* could not be sent off, or not all of it */
} launch_call;

/* Adds an rt_launch for each device to the request. */
static kb_error *add_launches(const launch_call *call, const char *name, const bool *devices)
{
    rt_request *request = call->request;
    for (uint32_t sip = 0; sip < request->ctx->shape->sips; sip++) {
        if (!devices[sip])
            continue;
        rt_launch *launch = add_launch(request, call->kernel, name, sip);
        if (!launch)
            return kb_error_nomem();
        KB_TRY(prepare(launch, call->args, call->count, call->queues));
    }
    return NULL;
}

static kb_error *start(const launch_call *call)
{
    rt_request *request = call->request;
    kb_context *ctx = request->ctx;
    const char *kept = keep_name(ctx, call->name);
    bool *devices = kb_alloc_zeroed(ctx->shape->sips, sizeof *devices);
    if (!devices || !kept) {
        free(devices);
        return kb_error_nomem();
    }
    kb_error *err = find_devices(ctx, call->args, call->count, devices);
    if (!err)
        err = add_launches(call, kept, devices);
    free(devices);
    KB_TRY(err);
    request->number = ++ctx->launches_made;
    for (rt_launch *launch = request->launches; launch; launch = launch->next)
        KB_TRY(submit(launch));
    return NULL;
}

static kb_error *start_plain(kb_context *ctx, launch_call *call, kb_request *handle)
{
    KB_TRY(rt_request_open(ctx, "launch", call->name, &call->request));
    rt_request_is_launch(call->request);
    kb_error *err = start(call);
    if (!err)
        *handle = rt_request_handle(call->request);
    rt_request_close(call->request, NULL); /* what was sent off in spite of an error goes its way */
    return err;
}

static kb_error *launch_step(void *self, rt_work *work, uint32_t step, bool *over)
{
    launch_call *call = self;
    (void)step;
    *over = true;
    call->request = rt_work_request(work);
    kb_error *err = start(call);
    call->failed = err != NULL;
    return err;
}

static void forget_call(void *self, const kb_error *err)
{
    (void)self, (void)err;
}

/* Kernels with queues wait for each other, so the launch is a work: it can be stopped as a whole.
 */
static kb_error *start_with_queues(kb_context *ctx, launch_call *call, kb_request *handle)
{
    rt_work *work;
    rt_work_options options = {
        .what = "launch",
        .label = call->name,
        .step = launch_step,
        .done = forget_call,
        .self = call,
    };
    KB_TRY(rt_work_open(ctx, &options, &work, handle));
    rt_work_start(work); /* takes the only step, so the call may go */
    return call->failed ? rt_wait_and_free(ctx, *handle) : NULL;
}

static kb_error *launch_kernel(kb_context *ctx, launch_call *call, kb_queue_set queues,
                               kb_request *handle)
{
    KB_TRY(rt_check_arguments(call->kernel, call->args, call->count));
    KB_TRY(rt_wait_for_transfers(rt_caller_of(ctx)));
    KB_TRY(wait_for_mappings(ctx, call->args, call->count));
    KB_TRY(rt_freshen_queue_sets(ctx));
    KB_TRY(rt_find_installed(ctx, queues, &call->queues));
    return rt_has_queue_sets(ctx) ? start_with_queues(ctx, call, handle)
                                  : start_plain(ctx, call, handle);
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
            .bytes = TARGET_BYTES + each * ARGUMENT_BYTES,
        };
        for (size_t a = 0; a < each; a++)
            launch->args[i * each + a] = target->args[a];
    }
    return lay_out(launch);
}

kb_error *rt_launch_on(rt_request *request, const rt_launch_spec *spec)
{
    kb_context *ctx = request->ctx;
    const char *name = keep_name(ctx, spec->name);
    rt_launch *launch = name ? add_launch(request, spec->kernel, name, spec->sip) : NULL;
    if (!launch)
        return kb_error_nomem();
    kb_error *err = take_targets(launch, spec);
    launch->has_queues = spec->queues != NULL;
    for (size_t i = 0; i < launch->targets.count && !err; i++)
        launch->runs[i].queues = spec->queues;
    if (!err)
        err = submit(launch);
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

/* ---- For users ---- */

kb_error *kb_launch_args(kb_context *ctx, const kb_launch_options *options, const kb_kernel *kernel,
                         const kb_arg *args, size_t arg_count)
{
    static const kb_launch_options defaults = {0};
    kb_request own = {0};
    options = options ? options : &defaults;
    if (options->request)
        *options->request = own;
    if (!kernel)
        return kb_error_new(KB_ERR_INPUT, "kb_launch: the kernel is NULL");
    launch_call call = {.name = options->name ? options->name : kernel->name,
                        .kernel = kernel,
                        .args = args,
                        .count = arg_count};
    kb_error *err = launch_kernel(ctx, &call, options->queues, &own);
    if (err)
        return kb_error_wrap(err, "launch of '%s'", call.name);
    if (options->request) {
        *options->request = own;
        return NULL;
    }
    return rt_wait_and_free(ctx, own);
}

kb_error *kb_launch_results(kb_context *ctx, kb_request handle, kb_launch_result *results,
                            size_t room, size_t *count)
{
    const rt_request *request = rt_table_get(&ctx->requests, handle.id);
    *count = 0;
    if (!request || !request->has_handle || !request->launches)
        return kb_error_new(KB_ERR_FAULT, "kb_launch_results: invalid or freed launch request");
    if (!request->done)
        return kb_error_new(KB_ERR_FAULT, "kb_launch_results: the launch is not done: wait for it "
                                          "first");
    for (const rt_launch *launch = request->launches; launch; launch = launch->next, ++*count)
        if (*count < room)
            results[*count] = launch->result;
    return NULL;
}
