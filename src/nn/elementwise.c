/*
 * elementwise.c: element-wise layers: SwiGLU, GELU, sums. Each PE computes its shards of the output
 * from the same indices of the inputs: in its own memory if the layouts are equal. Large shards are
 * processed in pieces, so that loads, the vector engine and stores overlap.
 */
#include <inttypes.h>
#include <string.h>

#include "layer.h"
#include "rows.h"

typedef enum element_op { SWIGLU, SWIGLU_PAIRS, GELU, ADD } element_op;

/* Numbers only: plans are compared byte by byte. */
typedef struct element_plan {
    element_op op;
    tp_view a, b, out;
    int64_t piece; /* elements */
} element_plan;

enum {
    TCM_PER_ELEMENT = 128, /* bytes, for a few pieces in flight with several values each */
    MAX_PIECE = 16384,
};

/* ---- The kernel ---- */

/* Splits alternating columns into gate and up. Consumes x, (rows, 2 * columns). */
static void take_pairs_apart(tl_context *tl, tl_tensor x, const tp_rect *at, tl_tensor *gate,
                             tl_tensor *up)
{
    tl_tensor pairs = tl_reshape(x, tl_shape(at->rows, at->columns, 2));
    tl_tensor even = tl_slice(pairs, 2, 0, 1), odd = tl_slice(pairs, 2, 1, 2);
    *gate = tl_reshape(even, tl_shape(at->rows, at->columns));
    *up = tl_reshape(odd, tl_shape(at->rows, at->columns));
    tl_free(x);
    tl_free(pairs);
    tl_free(even);
    tl_free(odd);
}

/* silu(gate) * up in f32. Consumes both. */
static tl_tensor apply_swiglu(tl_context *tl, kb_dtype dtype, tl_tensor gate, tl_tensor up)
{
    tl_tensor wide = tp_cast(tl, gate, dtype, KB_F32), activated = tl_silu(wide);
    tl_tensor result = tl_mul(activated, up);
    tl_free(wide);
    tl_free(activated);
    tl_free(up);
    return result;
}

/*
 * The dtype of the computation: that of the output, if the operation rounds to it once; else f32.
 */
static kb_dtype result_dtype(const element_plan *plan)
{
    bool is_one = plan->a.dtype == plan->out.dtype &&
                  (plan->op == GELU || (plan->op == ADD && plan->b.dtype == plan->out.dtype));
    return is_one ? plan->out.dtype : KB_F32;
}

/* Consumes x. */
static tl_tensor apply_gelu(tl_context *tl, const element_plan *plan, tl_tensor x)
{
    tl_tensor wide = tp_cast(tl, x, plan->a.dtype, result_dtype(plan)), result = tl_gelu(wide);
    tl_free(wide);
    return result;
}

/* Consumes both. */
static tl_tensor apply_add(tl_context *tl, const element_plan *plan, tl_tensor a, tl_tensor b)
{
    if (plan->a.dtype == plan->b.dtype)
        a = tp_cast(tl, a, plan->a.dtype, result_dtype(plan));
    tl_tensor sum = tl_add(a, b);
    tl_free(a);
    tl_free(b);
    return sum;
}

static void run_piece(tl_context *tl, const element_plan *plan, tl_ptr a_at, tl_ptr b_at,
                      tl_ptr out_at, const tp_rect *at)
{
    tp_rect from = *at;
    if (plan->op == SWIGLU_PAIRS) {
        from.column *= 2;
        from.columns *= 2;
    }
    tl_tensor a = nn_load(tl, &plan->a, a_at, from), b = {0}, result;
    if (plan->op == SWIGLU || plan->op == ADD)
        b = nn_load(tl, &plan->b, b_at, *at);
    if (plan->op == SWIGLU_PAIRS)
        take_pairs_apart(tl, a, at, &a, &b);
    if (plan->op == ADD)
        result = apply_add(tl, plan, a, b);
    else if (plan->op == GELU)
        result = apply_gelu(tl, plan, a);
    else
        result = apply_swiglu(tl, plan->a.dtype, a, b);
    result = tp_cast(tl, result, result_dtype(plan), plan->out.dtype);
    nn_store(tl, &plan->out, out_at, *at, result);
    tl_free(result);
}

KB_KERNEL(elements, tl_ptr a, tl_ptr b, tl_ptr out, tl_ptr all_pes)
{
    (void)all_pes;
    const element_plan *plan = tl_user();
    int64_t cube = tl_program_id(1), pe = tl_program_id(0);
    for (int64_t i = 0; i < tp_block_count(&plan->out, cube, pe); i++) {
        const tp_rect block = tp_get_block(&plan->out, cube, pe, i).at;
        int64_t columns = kb_max(1, kb_min(block.columns, plan->piece));
        int64_t rows = kb_max(1, plan->piece / columns);
        for (int64_t row = 0; row < block.rows; row += rows)
            for (int64_t column = 0; column < block.columns; column += columns) {
                const tp_rect at = {block.row + row, kb_min(rows, block.rows - row),
                                    block.column + column, kb_min(columns, block.columns - column)};
                run_piece(tl, plan, a, b, out, &at);
            }
    }
}

/* ---- The host ---- */

typedef struct element_call {
    nn_call call;
    const char *name;
    const char *a_name, *b_name; /* for messages */
    element_op op;
    kb_tensor a, b;
    kb_stream stream;
    kb_request *request;
} element_call;

/* The size of the output: that of the input, or half of it. */
static kb_error *find_shape(const element_call *c, const tp_view *a, kb_shape *shape)
{
    KB_TRY(kb_tensor_shape(c->call.ctx, c->a, shape));
    if (c->op != SWIGLU_PAIRS)
        return NULL;
    if (a->columns % 2 != 0)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: %s has %" PRId64 " columns: expected pairs of columns (gate, up)",
                            c->call.function, c->a_name, a->columns);
    shape->dims[shape->rank - 1] /= 2;
    return NULL;
}

static kb_error *launch(element_call *c, element_plan *plan, kb_tensor out)
{
    const kb_tensor tensors[] = {c->a, c->b, out};
    const uint64_t tcm = kb_context_machine(c->call.ctx).tcm_bytes;
    plan->op = c->op;
    plan->piece = kb_max(1, kb_min(MAX_PIECE, (int64_t)tcm / TCM_PER_ELEMENT));
    const nn_launch_spec launch = {.name = c->name,
                                   .kernel = &elements,
                                   .plan = plan,
                                   .plan_bytes = sizeof *plan,
                                   .tensors = tensors,
                                   .tensor_count = sizeof tensors / sizeof tensors[0],
                                   .stream = c->stream,
                                   .request = c->request};
    return nn_launch(&c->call, &launch);
}

static kb_error *run(element_call *c, kb_tensor *out)
{
    element_plan plan;
    nn_output made = {0};
    memset(&plan, 0, sizeof plan); /* padding too */
    KB_TRY(nn_take_input(&c->call, c->a_name, c->a, NN_FLOATS, &plan.a));
    nn_output_spec spec = {.what = "output",
                           .dtype = plan.a.dtype,
                           .dtypes = NN_FLOATS,
                           .like = c->a,
                           .name = c->name};
    KB_TRY(find_shape(c, &plan.a, &spec.shape));
    if (c->op == SWIGLU || c->op == ADD) {
        KB_TRY(nn_take_input(&c->call, c->b_name, c->b, NN_FLOATS, &plan.b));
        KB_TRY(nn_check_size(&c->call, c->b_name, &plan.b, &plan.a));
    }
    kb_error *err = nn_take_output(&c->call, &spec, out, &made, &plan.out);
    if (!err && c->op == SWIGLU_PAIRS && out->id == c->a.id)
        err = kb_error_new(KB_ERR_INPUT, "%s: the output cannot be %s itself", c->call.function,
                           c->a_name);
    if (!err)
        err = launch(c, &plan, *out);
    return nn_end_outputs(&c->call, err, &made, 1);
}

kb_error *kb_swiglu(kb_context *ctx, const kb_swiglu_spec *spec, kb_tensor *out)
{
    element_call c = {.call = {.ctx = ctx, .function = "kb_swiglu"},
                      .name = spec->name ? spec->name : "swiglu",
                      .a_name = "gate",
                      .b_name = "up",
                      .op = spec->up.id != 0 ? SWIGLU : SWIGLU_PAIRS,
                      .a = spec->gate,
                      .b = spec->up,
                      .stream = spec->stream,
                      .request = spec->request};
    return run(&c, out);
}

kb_error *kb_gelu(kb_context *ctx, const kb_gelu_spec *spec, kb_tensor *out)
{
    element_call c = {.call = {.ctx = ctx, .function = "kb_gelu"},
                      .name = spec->name ? spec->name : "gelu",
                      .a_name = "x",
                      .op = GELU,
                      .a = spec->x,
                      .stream = spec->stream,
                      .request = spec->request};
    return run(&c, out);
}

kb_error *kb_add(kb_context *ctx, const kb_add_spec *spec, kb_tensor *out)
{
    element_call c = {.call = {.ctx = ctx, .function = "kb_add"},
                      .name = spec->name ? spec->name : "add",
                      .a_name = "a",
                      .b_name = "b",
                      .op = ADD,
                      .a = spec->a,
                      .b = spec->b,
                      .stream = spec->stream,
                      .request = spec->request};
    return run(&c, out);
}
