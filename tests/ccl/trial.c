/* trial.c: collectives with known results. */
#include "trial.h"

#include <math.h>

bool trial_is_in_place(kb_collective_kind kind)
{
    return kind == KB_ALL_REDUCE || kind == KB_BROADCAST || kind == KB_REDUCE;
}

/* ---- Machines ---- */

static void ignore(void *self, const char *line)
{
    (void)self, (void)line;
}

kb_context *open_sips(uint32_t sips, uint32_t w, uint32_t h, const char *const *more,
                      kb_context_options options)
{
    char count[32], width[32], height[32];
    snprintf(count, sizeof count, "system.sips.count=%u", sips);
    snprintf(width, sizeof width, "sip.cube_mesh.w=%u", w);
    snprintf(height, sizeof height, "sip.cube_mesh.h=%u", h);
    const char *settings[24] = {
        count,
        width,
        height,
        "cube.noc.w=2",
        "cube.noc.h=2",
        "cube.pe_layout.pe_per_corner=1",
        "ccl.defaults.algorithm=auto",
    };
    size_t used = 7;
    for (; more && *more; more++)
        settings[used++] = *more;
    options.settings = settings;
    options.setting_count = used;
    options.on_warning = options.on_warning ? options.on_warning : ignore; /* settings like the
                                                                              default ones */
    kb_context *ctx;
    expect_ok(kb_context_create(&options, &ctx));
    return ctx;
}

kb_tensor filled_f16(kb_context *ctx, uint64_t elements, double value)
{
    static const kb_policy policy = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    kb_tensor_spec spec = {.name = "x",
                           .dtype = KB_F16,
                           .shape = KB_SHAPE(elements),
                           .policy = &policy,
                           .access = KB_UNTIMED};
    kb_tensor tensor;
    expect_ok(kb_full(ctx, &spec, value, &tensor));
    return tensor;
}

double first_of(kb_context *ctx, kb_tensor tensor)
{
    double value;
    kb_shape shape;
    expect_ok(kb_tensor_shape(ctx, tensor, &shape));
    kb_index zero = {.rank = shape.rank};
    expect_ok(kb_tensor_get(ctx, tensor, KB_UNTIMED, &zero, &value));
    return value;
}

/* ---- Numbers ---- */

static double draw_number(kb_rng *rng, kb_reduce_op op)
{
    static const double factors[] = {1, 2, -1, 1, 1};
    if (op == KB_PROD)
        return factors[below(rng, 5)];
    return (double)below(rng, 9) - 4;
}

static double combine(kb_reduce_op op, double a, double b)
{
    switch (op) {
    case KB_MAX:
        return fmax(a, b);
    case KB_MIN:
        return fmin(a, b);
    case KB_PROD:
        return a * b;
    case KB_SUM:
    case KB_AVG:
    case KB_REDUCE_OPS:
        break;
    }
    return a + b;
}

/* What all ranks' inputs give together, element by element. */
static double reduced(const trial *t, uint64_t element)
{
    double sum = t->inputs[0].numbers[element];
    for (uint32_t rank = 1; rank < t->world; rank++)
        sum = combine(t->op, sum, t->inputs[rank].numbers[element]);
    return t->op == KB_AVG ? sum / t->world : sum;
}

/* Element i of what the rank has afterwards, in its output or in place. */
static double expected(const trial *t, uint32_t rank, uint64_t i)
{
    uint64_t block = t->block > 0 ? t->block : 1;
    switch (t->kind) {
    case KB_ALL_REDUCE:
        return reduced(t, i);
    case KB_REDUCE:
        return rank == t->root ? reduced(t, i) : t->inputs[rank].numbers[i];
    case KB_BROADCAST:
        return t->inputs[t->root].numbers[i];
    case KB_ALL_GATHER:
    case KB_GATHER:
        return t->inputs[i / block].numbers[i % block];
    case KB_REDUCE_SCATTER:
        return reduced(t, rank * block + i);
    case KB_SCATTER:
        return t->inputs[t->root].numbers[rank * block + i];
    case KB_ALL_TO_ALL:
        return t->inputs[i / block].numbers[rank * block + i % block];
    case KB_SEND: /* from the root */
    case KB_RECV:
    case KB_BARRIER:
    case KB_COLLECTIVES:
        break;
    }
    return t->inputs[t->root].numbers[i];
}

/* ---- Drawing ---- */

/* So many elements in up to three dimensions. */
static kb_shape draw_shape_of(kb_rng *rng, uint64_t elements)
{
    if (one_in(rng, 3))
        return KB_SHAPE(elements);
    uint64_t rows = 1 + below(rng, 6);
    while (elements % rows != 0)
        rows--;
    uint64_t left = elements / rows, middle = 1 + below(rng, 3);
    while (left % middle != 0)
        middle--;
    if (one_in(rng, 3))
        return KB_SHAPE(rows, middle, left / middle);
    return KB_SHAPE(rows, left);
}

static void draw_side(trial *t, kb_rng *rng, trial_side *side, uint64_t elements)
{
    side->there = true;
    side->numbers = calloc(elements + 1, sizeof *side->numbers);
    assert_non_null(side->numbers);
    for (uint64_t i = 0; i < elements; i++)
        side->numbers[i] = draw_number(rng, t->op);
}

void trial_draw(trial *t, kb_rng *rng, const kb_machine *machine, bool mixed)
{
    kb_collective_kind kind = t->kind;
    bool in_blocks = kind == KB_REDUCE_SCATTER || kind == KB_SCATTER || kind == KB_ALL_TO_ALL;
    bool out_blocks = kind == KB_ALL_GATHER || kind == KB_GATHER || kind == KB_ALL_TO_ALL;
    uint64_t in_elements = t->block * (in_blocks ? t->world : 1);
    uint64_t out_elements = t->block * (out_blocks ? t->world : 1);
    kb_shape input = draw_shape_of(rng, in_elements), output = draw_shape_of(rng, out_elements);
    kb_policy in_policy = draw_policy(rng, machine), out_policy = draw_policy(rng, machine);
    if (in_blocks != out_blocks && one_in(rng, 2)) { /* lanes can work on these as they are */
        in_policy = out_policy = (kb_policy){.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
        input = in_blocks ? KB_SHAPE(t->world, t->block) : KB_SHAPE(t->block);
        output = out_blocks ? KB_SHAPE(t->world, t->block) : KB_SHAPE(t->block);
    }
    for (uint32_t rank = 0; rank < t->world; rank++) {
        trial_side *in = &t->inputs[rank], *out = &t->outputs[rank];
        draw_side(t, rng, in, in_elements);
        in->shape = input;
        in->policy = mixed ? draw_policy(rng, machine) : in_policy;
        if (trial_is_in_place(kind) || kind == KB_SEND)
            continue;
        draw_side(t, rng, out, out_elements);
        out->shape = output;
        out->policy = mixed ? draw_policy(rng, machine) : out_policy;
        in->there = kind != KB_SCATTER || rank == t->root;
        out->there = kind != KB_GATHER || rank == t->root;
    }
}

void trial_fini(trial *t)
{
    for (uint32_t rank = 0; rank < t->world; rank++) {
        free(t->inputs[rank].numbers);
        free(t->outputs[rank].numbers);
    }
}

/* ---- In a context ---- */

/* The numbers in the type. */
static unsigned char *to_bytes(const trial *t, const double *numbers, uint64_t count, size_t *bytes)
{
    *bytes = count * kb_dtype_bytes(t->dtype);
    unsigned char *data = new_bytes(*bytes);
    float *floats = calloc(count + 1, sizeof *floats);
    assert_non_null(floats);
    for (uint64_t i = 0; i < count; i++)
        floats[i] = (float)numbers[i];
    kb_convert(t->dtype, data, KB_F32, floats, count);
    free(floats);
    return data;
}

static void make_side(const trial *t, kb_context *ctx, trial_side *side)
{
    side->tensor = (kb_tensor){0};
    if (!side->there)
        return;
    kb_tensor_spec spec = {
        .dtype = t->dtype,
        .shape = side->shape,
        .memory = t->memory,
        .policy = &side->policy,
        .access = KB_UNTIMED,
    };
    expect_ok(kb_empty(ctx, &spec, &side->tensor));
    size_t bytes;
    unsigned char *data = to_bytes(t, side->numbers, elements_of(&side->shape), &bytes);
    expect_ok(kb_tensor_set_slice(ctx, side->tensor, KB_UNTIMED, NULL, data, bytes));
    free(data);
}

void trial_make(trial *t, kb_context *ctx, uint32_t rank)
{
    make_side(t, ctx, &t->inputs[rank]);
    if (!trial_is_in_place(t->kind))
        make_side(t, ctx, &t->outputs[rank]);
}

static void check_side(const trial *t, kb_context *ctx, const trial_side *side,
                       const double *numbers)
{
    size_t bytes;
    unsigned char *data = to_bytes(t, numbers, elements_of(&side->shape), &bytes);
    if (!kb_context_is_timing_only(ctx))
        expect_contents(ctx, side->tensor, KB_UNTIMED, data, bytes);
    free(data);
}

void trial_check(const trial *t, kb_context *ctx, uint32_t rank)
{
    bool in_place = trial_is_in_place(t->kind);
    const trial_side *in = &t->inputs[rank], *out = in_place ? in : &t->outputs[rank];
    if (!in_place && in->there)
        check_side(t, ctx, in, in->numbers); /* unchanged */
    if (!out->there)
        return;
    uint64_t count = elements_of(&out->shape);
    double *numbers = calloc(count + 1, sizeof *numbers);
    assert_non_null(numbers);
    for (uint64_t i = 0; i < count; i++)
        numbers[i] = expected(t, rank, i);
    check_side(t, ctx, out, numbers);
    free(numbers);
}

static kb_error *call_blocks(const trial *t, kb_context *ctx, uint32_t rank,
                             const kb_collective_options *options)
{
    kb_tensor input = t->inputs[rank].tensor, output = t->outputs[rank].tensor;
    switch (t->kind) {
    case KB_ALL_GATHER:
        return kb_distributed_all_gather(ctx, output, input, options);
    case KB_REDUCE_SCATTER:
        return kb_distributed_reduce_scatter(ctx, output, input, t->op, options);
    case KB_GATHER:
        return kb_distributed_gather(ctx, output, input, t->root, options);
    case KB_SCATTER:
        return kb_distributed_scatter(ctx, output, input, t->root, options);
    default:
        return kb_distributed_all_to_all(ctx, output, input, options);
    }
}

kb_error *trial_call(const trial *t, kb_context *ctx, uint32_t rank,
                     const kb_collective_options *options)
{
    kb_collective_options chosen = options ? *options : (kb_collective_options){0};
    chosen.algorithm = t->algorithm;
    kb_tensor tensor = t->inputs[rank].tensor;
    switch (t->kind) {
    case KB_ALL_REDUCE:
        return kb_distributed_all_reduce(ctx, tensor, t->op, &chosen);
    case KB_BROADCAST:
        return kb_distributed_broadcast(ctx, tensor, t->root, &chosen);
    case KB_REDUCE:
        return kb_distributed_reduce(ctx, tensor, t->root, t->op, &chosen);
    default:
        return call_blocks(t, ctx, rank, &chosen);
    }
}

kb_error *trial_call_all(const trial *t, kb_context *ctx)
{
    kb_tensor inputs[TRIAL_RANKS], outputs[TRIAL_RANKS];
    for (uint32_t rank = 0; rank < t->world; rank++) {
        inputs[rank] = t->inputs[rank].tensor;
        outputs[rank] = t->outputs[rank].tensor;
    }
    kb_collective call = {
        .kind = t->kind,
        .inputs = inputs,
        .outputs = trial_is_in_place(t->kind) ? inputs : outputs,
        .count = t->world,
        .op = t->op,
        .root = t->root,
        .options = {.algorithm = t->algorithm},
    };
    return kb_distributed_call(ctx, &call);
}

static kb_error *worker(kb_context *ctx, uint32_t rank, void *arg)
{
    trial *t = arg;
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    trial_make(t, ctx, rank);
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    KB_TRY(trial_call(t, ctx, rank, NULL));
    trial_check(t, ctx, rank);
    return NULL;
}

void trial_spawn(trial *t, kb_context *ctx)
{
    expect_ok(kb_spawn(ctx, worker, t, t->world));
}
