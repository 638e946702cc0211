/* nn_state.c: the state of nn in a context, created at the first call. */
#include "nn_state.h"

#include <stdlib.h>
#include <string.h>

struct nn_plan {
    nn_plan *next;
    kb_kernel kernel; /* with `numbers` as its user pointer */
    size_t bytes;
    _Alignas(16) unsigned char numbers[];
};

static void fini(void *self)
{
    nn_state *state = self;
    for (nn_plan *plan = state->plans, *next; plan; plan = next) {
        next = plan->next;
        free(plan);
    }
    for (nn_frequencies *entry = state->frequencies, *next; entry; entry = next) {
        next = entry->next;
        kb_error_free(kb_tensor_free(state->ctx, entry->tensor));
        free(entry);
    }
    for (nn_buffer *buffer = state->buffers, *next; buffer; buffer = next) {
        next = buffer->next;
        kb_error_free(kb_tensor_free(state->ctx, buffer->tensor));
        free(buffer);
    }
    free(state);
}

static const rt_hooks hooks = {.fini = fini};

kb_error *nn_get_state(kb_context *ctx, nn_state **out)
{
    *out = rt_get_layer(ctx, RT_LAYER_NN);
    if (*out)
        return NULL;
    nn_state *state = kb_alloc_zeroed(1, sizeof *state);
    if (!state)
        return kb_error_nomem();
    state->ctx = ctx;
    rt_set_layer(ctx, RT_LAYER_NN, &hooks, state);
    *out = state;
    return NULL;
}

kb_error *nn_get_kernel(kb_context *ctx, const kb_kernel *kernel, const void *numbers, size_t bytes,
                        const kb_kernel **planned)
{
    nn_state *state;
    KB_TRY(nn_get_state(ctx, &state));
    nn_plan *plan = state->plans;
    while (plan && (plan->kernel.run != kernel->run || plan->bytes != bytes ||
                    memcmp(plan->numbers, numbers, bytes) != 0))
        plan = plan->next;
    if (!plan) {
        plan = kb_alloc_array(1, sizeof *plan + bytes);
        if (!plan)
            return kb_error_nomem();
        memcpy(plan->numbers, numbers, bytes);
        plan->bytes = bytes;
        plan->kernel = *kernel;
        plan->kernel.user = plan->numbers;
        plan->next = state->plans;
        state->plans = plan;
    }
    *planned = &plan->kernel;
    return NULL;
}

kb_error *nn_get_buffer(kb_context *ctx, uint32_t sip, kb_stream stream, uint64_t rows,
                        uint64_t columns, kb_tensor *tensor)
{
    static const kb_policy one_pe = {.num_cubes = 1, .num_pes = 1};
    nn_state *state;
    KB_TRY(nn_get_state(ctx, &state));
    nn_buffer *buffer = state->buffers;
    while (buffer && (buffer->sip != sip || buffer->stream.id != stream.id ||
                      buffer->rows != rows || buffer->columns != columns))
        buffer = buffer->next;
    if (!buffer) {
        const kb_tensor_spec spec = {.name = "staging",
                                     .dtype = KB_F32,
                                     .shape = KB_SHAPE(rows, columns),
                                     .policy = &one_pe};
        buffer = kb_alloc_array(1, sizeof *buffer);
        if (!buffer)
            return kb_error_nomem();
        *buffer = (nn_buffer){.sip = sip, .stream = stream, .rows = rows, .columns = columns};
        kb_error *err = tp_make_tensor(ctx, sip, &spec, &buffer->tensor);
        if (err) {
            free(buffer);
            return err;
        }
        buffer->next = state->buffers;
        state->buffers = buffer;
    }
    *tensor = buffer->tensor;
    return NULL;
}
