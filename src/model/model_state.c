/*
 * model_state.c: the models of a context, found by their handles. Their tensors are freed with the
 * context.
 */
#include <stdlib.h>

#include "model_state.h"

static void free_model(model *m)
{
    free(m->layers);
    free(m->cached);
    free(m->added);
    free(m);
}

static void state_fini(void *self)
{
    model_state *state = self;
    for (size_t i = 0; i < state->models.count; i++) {
        rt_debug_warn(state->ctx, "context destroyed: model '%s' was not freed",
                      state->models.items[i]->name);
        free_model(state->models.items[i]);
    }
    kb_vec_fini(&state->models);
    free(state);
}

static const rt_hooks hooks = {.fini = state_fini};

kb_error *model_get_state(kb_context *ctx, model_state **out)
{
    *out = rt_get_layer(ctx, RT_LAYER_MODEL);
    if (*out)
        return NULL;
    model_state *state = kb_alloc_zeroed(1, sizeof *state);
    if (!state)
        return kb_error_nomem();
    state->ctx = ctx;
    rt_set_layer(ctx, RT_LAYER_MODEL, &hooks, state);
    *out = state;
    return NULL;
}

kb_error *model_add(model_state *state, const kb_model_spec *spec, model **out)
{
    model *m = kb_alloc_zeroed(1, sizeof *m);
    *out = NULL;
    if (!m)
        return kb_error_nomem();
    m->layers = kb_alloc_zeroed((size_t)spec->layers, sizeof *m->layers);
    m->cached = kb_alloc_zeroed((size_t)spec->batch, sizeof *m->cached);
    m->added = kb_alloc_zeroed((size_t)spec->batch, sizeof *m->added);
    if (!m->layers || !m->cached || !m->added || !kb_vec_push(&state->models, m)) {
        free_model(m);
        return kb_error_nomem();
    }
    m->id = rt_make_handle(state->ctx, ++state->last_id);
    *out = m;
    return NULL;
}

kb_error *model_find(kb_context *ctx, const char *function, kb_model handle, model **out)
{
    const model_state *state = rt_get_layer(ctx, RT_LAYER_MODEL);
    for (size_t i = 0; state && i < state->models.count; i++)
        if (state->models.items[i]->id == handle.id) {
            *out = state->models.items[i];
            return NULL;
        }
    return rt_bad_handle(ctx, function, "model", "freed", handle.id);
}

void model_drop(kb_context *ctx, model *m)
{
    model_state *state = rt_get_layer(ctx, RT_LAYER_MODEL);
    for (size_t i = 0; i < state->models.count; i++)
        if (state->models.items[i] == m) {
            state->models.items[i] = state->models.items[--state->models.count];
            break;
        }
    free_model(m);
}
