/*
 * launch_call.c: what a program asks for: a kernel on the PEs that have a part of its tensors, on
 * the devices of those. A device's share is an rt_launch (launch.c).
 *
 * What the caller has sent on its way before, outside streams (copies, mappings), has to be there
 * first. What is in streams need not be over: the devices keep the order.
 */
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "launch.h"

const char *rt_keep_name(kb_context *ctx, const char *name)
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
        return rt_bad_handle(ctx, "", "tensor", "freed", handle.id);
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
            io_target target = {.cube = cube, .pe = pe, .bytes = LAUNCH_TARGET_BYTES};
            if (marked[(size_t)cube * shape->pes + pe] && !kb_vec_push(&launch->targets, target))
                return kb_error_nomem();
        }
    }
    return NULL;
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

kb_error *rt_launch_devices(kb_context *ctx, const rt_launch_call *call, bool *devices)
{
    return find_devices(ctx, call->args, call->count, devices);
}

kb_error *rt_launch_mark(kb_context *ctx, const rt_launch_call *call, uint32_t sip, bool *marked)
{
    for (size_t i = 0; i < call->count; i++) {
        if (call->args[i].kind == KB_ARG_INTEGER || call->args[i].kind == KB_ARG_REAL)
            continue;
        rt_tensor *tensor;
        KB_TRY(tensor_on(ctx, &call->args[i], i, sip, &tensor));
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
    KB_TRY(launch_lay_out(launch));
    launch_choose_queues(launch, named);
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

/* Adds an rt_launch for each device to the request. */
static kb_error *add_launches(rt_request *request, const rt_launch_call *call, rt_queue_set *queues,
                              const bool *devices)
{
    const char *name = rt_keep_name(request->ctx, call->name);
    for (uint32_t sip = 0; sip < request->ctx->shape->sips; sip++) {
        if (!devices[sip])
            continue;
        rt_launch *launch = name ? launch_add(request, call->kernel, name, sip) : NULL;
        if (!launch)
            return kb_error_nomem();
        launch->scope = call->scope;
        launch->changed = call->changed;
        KB_TRY(prepare(launch, call->args, call->count, queues));
    }
    return NULL;
}

static kb_error *use_tensors(rt_request *request, const rt_launch_call *call)
{
    for (size_t i = 0; i < call->count; i++) {
        size_t count;
        const kb_tensor *handles = tensors_of(&call->args[i], &count);
        for (size_t j = 0; j < count; j++)
            KB_TRY(rt_request_use(request, handles[j]));
    }
    return NULL;
}

static rt_launch *first_behind(const rt_request *request, const rt_launch *last)
{
    return last ? last->next : request->launches;
}

kb_error *rt_launch_start(rt_request *request, const rt_launch_call *call, rt_stream *stream)
{
    kb_context *ctx = request->ctx;
    const rt_launch *last = request->last_launch;
    rt_queue_set *queues;
    KB_TRY(rt_find_installed(ctx, call->queues, &queues));
    bool *devices = kb_alloc_zeroed(ctx->shape->sips, sizeof *devices);
    if (!devices)
        return kb_error_nomem();
    kb_error *err = find_devices(ctx, call->args, call->count, devices);
    if (!err)
        err = add_launches(request, call, queues, devices);
    free(devices);
    if (!err)
        err = use_tensors(request, call);
    if (!err)
        ctx->launches_made++;
    if (!err && request->number == 0)
        request->number = ctx->launches_made;
    rt_launch *launch = first_behind(request, last);
    for (; launch && !err; launch = launch->next)
        err = launch_submit(launch, stream, false);
    for (; launch; launch = launch->next)
        launch->done = true; /* these will never run */
    return err;
}

/* One step: the launch is sent off. */
typedef struct one_launch {
    const rt_launch_call *call;
    rt_stream *stream;
    bool failed; /* could not be sent off, or not all of it */
} one_launch;

static kb_error *launch_step(void *self, rt_work *work, uint32_t step, bool *over)
{
    one_launch *one = self;
    (void)step;
    *over = true;
    kb_error *err = rt_launch_start(rt_work_request(work), one->call, one->stream);
    one->failed = err != NULL;
    return err;
}

static void forget_call(void *self, const kb_error *err)
{
    (void)self, (void)err;
}

/* Kernels may wait for each other, so a launch is a work: it can be stopped as a whole. */
static kb_error *send_off(kb_context *ctx, const rt_launch_call *call, rt_stream *stream,
                          kb_request *handle)
{
    one_launch one = {.call = call, .stream = stream};
    rt_work *work;
    rt_work_options options = {
        .what = "launch",
        .label = call->name,
        .step = launch_step,
        .done = forget_call,
        .self = &one,
        .stream = stream,
    };
    KB_TRY(rt_work_open(ctx, &options, &work, handle));
    rt_work_start(work); /* takes the only step, so the call may go */
    return one.failed ? rt_wait_and_free(ctx, *handle) : NULL;
}

kb_error *rt_launch_check(const rt_launch_call *call)
{
    if (!call->kernel)
        return kb_error_new(KB_ERR_INPUT, "the kernel is NULL");
    if (call->scope < KB_SCOPE_DEVICE || call->scope > KB_SCOPE_PE)
        return kb_error_new(KB_ERR_INPUT,
                            "invalid scope %d: expected KB_SCOPE_DEVICE, KB_SCOPE_CUBE or "
                            "KB_SCOPE_PE",
                            (int)call->scope);
    return rt_check_arguments(call->kernel, call->args, call->count);
}

kb_error *rt_launch_get_ready(kb_context *ctx, const rt_launch_call *call)
{
    KB_TRY(rt_wait_for_transfers(rt_caller_of(ctx)));
    KB_TRY(wait_for_mappings(ctx, call->args, call->count));
    return rt_freshen_queue_sets(ctx);
}

static kb_error *launch_kernel(kb_context *ctx, const rt_launch_call *call, kb_stream handle,
                               kb_request *request)
{
    rt_stream *stream;
    KB_TRY(rt_launch_check(call));
    KB_TRY(rt_launch_get_ready(ctx, call));
    KB_TRY(rt_find_stream(ctx, "kb_launch_options.stream", handle, &stream));
    return send_off(ctx, call, stream, request);
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
    rt_launch_call call = {.name = options->name ? options->name : kernel->name,
                           .kernel = kernel,
                           .args = args,
                           .count = arg_count,
                           .queues = options->queues,
                           .scope = options->scope};
    kb_error *err = rt_is_recording(ctx) ? rt_record_launch(ctx, &call, options->stream)
                                         : launch_kernel(ctx, &call, options->stream, &own);
    if (err)
        return kb_error_wrap(err, "launch of '%s'", call.name);
    if (options->request) {
        *options->request = own;
        return NULL;
    }
    return rt_is_recording(ctx) ? NULL : rt_wait_and_free(ctx, own);
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
