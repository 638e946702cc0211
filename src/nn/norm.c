/* norm.c: RMSNorm and LayerNorm: the host side: checks, and the division of the work. */
#include "norm.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "layer.h"
#include "rows.h"

enum {
    MAX_SHARING = 8,      /* PEs of one row: each reads the whole row */
    TCM_PER_ELEMENT = 64, /* bytes, for the values of a block, and those in flight */
    DOT_ROWS = 4,         /* of a PE: with fewer, the fill of the matrix engine takes longer */
};

static const double default_eps = 1e-5;

typedef struct norm_call {
    nn_call call;
    const kb_norm_spec *spec;
    kb_norm_outputs *outputs;
    nn_output made[3];
    nn_norm_plan plan;
} norm_call;

/* ---- Checks ---- */

static kb_error *check_numbers(const norm_call *c)
{
    const kb_norm_spec *spec = c->spec;
    if (!(spec->eps >= 0) || !isfinite(spec->eps))
        return kb_error_new(KB_ERR_INPUT, "%s: eps is %g: expected at least 0", c->call.function,
                            spec->eps);
    if ((unsigned)spec->quantisation > KB_QUANTISED_I8)
        return kb_error_new(KB_ERR_INPUT, "%s: invalid quantisation %u", c->call.function,
                            (unsigned)spec->quantisation);
    if (spec->bias.id != 0 && !c->plan.is_centred)
        return kb_error_new(KB_ERR_INPUT, "%s: a bias is given: kb_layer_norm() has one",
                            c->call.function);
    if (spec->residual.id == 0 && c->outputs->sum.id != 0)
        return kb_error_new(KB_ERR_INPUT, "%s: a sum is given, but no residual", c->call.function);
    if (spec->quantisation == KB_NOT_QUANTISED && c->outputs->scales.id != 0)
        return kb_error_new(KB_ERR_INPUT, "%s: scales are given, but the output is not quantised",
                            c->call.function);
    return NULL;
}

static kb_error *take_inputs(norm_call *c)
{
    const kb_norm_spec *spec = c->spec;
    nn_norm_plan *plan = &c->plan;
    KB_TRY(check_numbers(c));
    KB_TRY(nn_take_input(&c->call, "x", spec->x, NN_FLOATS, &plan->x));
    plan->has_residual = spec->residual.id != 0;
    plan->has_gain = spec->gain.id != 0;
    plan->has_bias = spec->bias.id != 0;
    if (plan->has_residual) {
        KB_TRY(nn_take_input(&c->call, "residual", spec->residual, NN_FLOATS, &plan->residual));
        KB_TRY(nn_check_size(&c->call, "residual", &plan->residual, &plan->x));
    }
    if (plan->has_gain)
        KB_TRY(nn_take_vector(&c->call, "gain", spec->gain, plan->x.columns, &plan->gain));
    if (plan->has_bias)
        KB_TRY(nn_take_vector(&c->call, "bias", spec->bias, plan->x.columns, &plan->bias));
    plan->quantisation = spec->quantisation;
    plan->eps = (float)(spec->eps > 0 ? spec->eps : default_eps);
    return NULL;
}

/* All outputs of a call must have the same number of copies. */
static kb_error *check_same_copies(const norm_call *c, const char *what, const tp_view *view)
{
    if (view->copies == c->plan.out.copies)
        return NULL;
    return kb_error_new(KB_ERR_INPUT,
                        "%s: the output has %" PRId64 " copies and the %s %" PRId64
                        ": expected as many",
                        c->call.function, c->plan.out.copies, what, view->copies);
}

static kb_error *take_out(norm_call *c)
{
    kb_shape shape;
    nn_norm_plan *plan = &c->plan;
    nn_output_spec spec = {.what = "output",
                           .dtype = plan->x.dtype,
                           .dtypes = NN_FLOATS,
                           .like = c->spec->x,
                           .name = c->spec->name};
    if (plan->quantisation != KB_NOT_QUANTISED) {
        spec.dtype = plan->quantisation == KB_QUANTISED_I8 ? KB_I8 : KB_F8E4M3;
        spec.dtypes = NN_DTYPE(spec.dtype);
    }
    KB_TRY(kb_tensor_shape(c->call.ctx, c->spec->x, &shape));
    spec.shape = shape;
    KB_TRY(nn_take_output(&c->call, &spec, &c->outputs->out, &c->made[0], &plan->out));
    return nn_check_copies(&c->call, "output", &plan->out);
}

static kb_error *take_outputs(norm_call *c)
{
    nn_norm_plan *plan = &c->plan;
    KB_TRY(take_out(c));
    if (plan->has_residual) {
        nn_output_spec spec = {.what = "sum",
                               .dtype = plan->residual.dtype,
                               .dtypes = NN_DTYPE(plan->residual.dtype),
                               .like = c->outputs->out};
        KB_TRY(kb_tensor_shape(c->call.ctx, c->spec->x, &spec.shape));
        KB_TRY(nn_take_output(&c->call, &spec, &c->outputs->sum, &c->made[1], &plan->sum));
        KB_TRY(check_same_copies(c, "sum", &plan->sum));
    }
    if (plan->quantisation != KB_NOT_QUANTISED) {
        static const char what[] = "scales";
        kb_shape shape;
        KB_TRY(kb_tensor_shape(c->call.ctx, c->spec->x, &shape));
        nn_output_spec spec = {.what = what,
                               .shape = nn_shape_of_rows(&shape),
                               .dtype = KB_F32,
                               .dtypes = NN_DTYPE(KB_F32),
                               .like = plan->out.copies > 1 ? c->outputs->out : (kb_tensor){0}};
        KB_TRY(nn_take_rows_output(&c->call, &spec, plan->x.rows, &c->outputs->scales, &c->made[2],
                                   &plan->scales));
        KB_TRY(check_same_copies(c, what, &plan->scales));
    }
    return NULL;
}

/* ---- Division of the work ---- */

static bool is_one_of(kb_tensor tensor, const norm_call *c)
{
    return tensor.id != 0 && (tensor.id == c->spec->x.id || tensor.id == c->spec->residual.id);
}

/* Whether the output is split by columns alone, into more than one part. */
static bool is_cut_by_columns(const tp_view *out)
{
    bool cubes = out->cubes > 1, pes = out->pes > 1;
    return out->tiling == KB_NOT_TILED && out->copies == 1 && (cubes || pes) &&
           (!cubes || out->cube == KB_COLUMN_WISE) && (!pes || out->pe == KB_COLUMN_WISE);
}

/* Whether the rows of the output are split over all PEs. */
static bool is_cut_by_rows(const tp_view *out, int64_t pes)
{
    return out->tiling == KB_NOT_TILED && out->copies == 1 && out->cubes * out->pes == pes &&
           (out->cubes == 1 || out->cube == KB_ROW_WISE) &&
           (out->pes == 1 || out->pe == KB_ROW_WISE);
}

/* The columns of the PE that has the most of them. */
static int64_t widest_part(const tp_view *out)
{
    int64_t columns = out->columns;
    if (out->cube == KB_COLUMN_WISE)
        columns = tl_cdiv(columns, out->cubes);
    return out->pe == KB_COLUMN_WISE ? tl_cdiv(columns, out->pes) : columns;
}

static void share_out(norm_call *c)
{
    nn_norm_plan *plan = &c->plan;
    kb_machine machine = kb_context_machine(c->call.ctx);
    int64_t pes = (int64_t)machine.cubes * machine.pes;
    bool is_in_place = is_one_of(c->outputs->out, c) || is_one_of(c->outputs->sum, c);
    plan->peers = (nn_peers){.cubes = machine.cubes, .pes = machine.pes};
    plan->budget = kb_max(1, (int64_t)machine.tcm_bytes / TCM_PER_ELEMENT);
    plan->sharing = 1;
    int64_t rows_of_pe = tl_cdiv(plan->x.rows, pes);
    if (plan->out.copies > 1) {
        plan->division = NN_NORM_COPIES;
        rows_of_pe = plan->x.rows;
    } else if (is_cut_by_columns(&plan->out) && nn_can_exchange(&machine)) {
        plan->division = NN_NORM_COLUMNS;
        rows_of_pe = plan->x.rows;
    } else {
        plan->division = NN_NORM_ROWS;
        /* With fewer rows than PEs, several PEs share a row, unless one PE must process whole rows.
         */
        plan->own_rows = is_cut_by_rows(&plan->out, pes) &&
                         (is_in_place || plan->out.rows / plan->out.row_unit >= pes);
        int64_t sharing = kb_min(pes / kb_min(plan->x.rows, pes), MAX_SHARING);
        if (!is_in_place && !plan->own_rows)
            plan->sharing = kb_min(sharing, plan->x.columns);
    }
    int64_t seen = plan->division == NN_NORM_COLUMNS ? widest_part(&plan->out) : plan->x.columns;
    plan->block_rows = kb_max(1, plan->budget / seen);
    plan->sums_by_dot = rows_of_pe >= DOT_ROWS;
}

static kb_error *launch(norm_call *c)
{
    const kb_norm_spec *spec = c->spec;
    const kb_tensor tensors[] = {spec->x,         spec->residual,  spec->gain,        spec->bias,
                                 c->outputs->out, c->outputs->sum, c->outputs->scales};
    kb_kernel kernel = nn_norm_kernel();
    nn_launch_spec launch = {.name = spec->name,
                             .kernel = &kernel,
                             .plan = &c->plan,
                             .plan_bytes = sizeof c->plan,
                             .tensors = tensors,
                             .tensor_count = sizeof tensors / sizeof tensors[0],
                             .stream = spec->stream,
                             .request = spec->request};
    if (!launch.name)
        launch.name = c->plan.is_centred ? "layer_norm" : "rms_norm";
    if (c->plan.division == NN_NORM_COLUMNS)
        KB_TRY(nn_get_queues(c->call.ctx, c->call.sip, &launch.queues));
    return nn_launch(&c->call, &launch);
}

static kb_error *run(kb_context *ctx, const char *function, bool is_centred,
                     const kb_norm_spec *spec, kb_norm_outputs *outputs)
{
    norm_call c;
    memset(&c, 0, sizeof c); /* padding too: plans are compared byte by byte */
    c.call = (nn_call){.ctx = ctx, .function = function};
    c.spec = spec;
    c.outputs = outputs;
    c.plan.is_centred = is_centred;
    KB_TRY(take_inputs(&c));
    kb_error *err = take_outputs(&c);
    if (!err) {
        share_out(&c);
        err = launch(&c);
    }
    return nn_end_outputs(&c.call, err, c.made, sizeof c.made / sizeof c.made[0]);
}

kb_error *kb_rms_norm(kb_context *ctx, const kb_norm_spec *spec, kb_norm_outputs *outputs)
{
    return run(ctx, "kb_rms_norm", false, spec, outputs);
}

kb_error *kb_layer_norm(kb_context *ctx, const kb_norm_spec *spec, kb_norm_outputs *outputs)
{
    return run(ctx, "kb_layer_norm", true, spec, outputs);
}
