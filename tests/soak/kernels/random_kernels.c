/*
 * random_kernels.c: a bench that is a random program: launches of random kernels on all PEs of the
 * machine, which send each other messages, in streams and graphs, with copies beside them.
 *
 *     kernbench run --bench tests/soak/kernels/random_kernels.c --param seed=7 --param size=20
 *
 * runs it in the context of the command line, for its --trace, --profile and --json. With
 * record=yes it has a context of its own, with the settings (one a line) of the variable
 * KERNELS_SETTINGS, and writes all that this context tells to the file KERNELS_RECORD.
 * tests/soak/kernels.py compares these texts between builds.
 */
#include <inttypes.h>

#include "choices_kernel.h"
#include "program.h"
#include "record.h"

enum { PART = 8192 }; /* elements of a PE's part of a tensor */

#define SAY(p, ...)                                                                                \
    do {                                                                                           \
        if ((p)->out)                                                                              \
            fprintf((p)->out, __VA_ARGS__);                                                        \
    } while (0)

/* ---- Tensors ----------------------------------------------------------------------------- */

static kb_error *fill(program *p, int t, kb_tensor tensor, uint64_t seed)
{
    int64_t count = p->elements[t] * (t == T_SHARED ? 1 : p->per_sip);
    size_t bytes = (size_t)count * kb_dtype_bytes(tensor_dtypes[t]);
    void *data = malloc(bytes);
    if (!data)
        return kb_error_new(KB_ERR_HOST, "out of memory");
    kb_bench_random(seed, tensor_dtypes[t], data, (size_t)count);
    int32_t *numbers = data;
    for (int64_t i = 0; t == T_INDEX && i < count; i++)
        numbers[i] &= 1;
    kb_error *err = kb_tensor_set_slice(p->ctx, tensor, KB_UNTIMED, NULL, data, bytes);
    free(data);
    return err;
}

static kb_error *create_tensors(program *p, int sip)
{
    static const char *const names[TENSORS] = {"f16", "f32", "far", "near", "index", "shared"};
    const kb_policy cut = {.cube = KB_COLUMN_WISE,
                           .pe = KB_COLUMN_WISE,
                           .num_cubes = (uint32_t)p->cubes,
                           .num_pes = (uint32_t)p->pes};
    KB_TRY(kb_ahbm_set_device(p->ctx, (uint32_t)sip));
    for (int t = 0; t < TENSORS; t++) {
        bool is_shared = t == T_SHARED;
        uint64_t count = (uint64_t)p->elements[t] * (is_shared ? 1 : (uint64_t)p->per_sip);
        const kb_tensor_spec spec = {.name = names[t],
                                     .dtype = tensor_dtypes[t],
                                     .shape = KB_SHAPE(count),
                                     .memory = t == T_NEAR ? KB_TCM : KB_HBM,
                                     .policy = is_shared && !p->shared_is_cut ? NULL : &cut,
                                     .access = KB_UNTIMED,
                                     .is_index = t == T_INDEX};
        KB_TRY(kb_empty(p->ctx, &spec, &p->tensors[t][sip]));
        KB_TRY(kb_tensor_va(p->ctx, p->tensors[t][sip], &p->va[t][sip]));
        KB_TRY(fill(p, t, p->tensors[t][sip], p->seed + (uint64_t)(t * MAX_SIPS + sip)));
    }
    return NULL;
}

/* A number that stands for the contents. */
static kb_error *write_contents(program *p, int t, int sip)
{
    size_t bytes = (size_t)p->elements[t] * (t == T_SHARED ? 1 : (size_t)p->per_sip) *
                   kb_dtype_bytes(tensor_dtypes[t]);
    unsigned char *data = malloc(bytes);
    if (!data)
        return kb_error_new(KB_ERR_HOST, "out of memory");
    kb_error *err = kb_tensor_to_host(p->ctx, p->tensors[t][sip], KB_UNTIMED, data, bytes);
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes && !err; i++)
        hash = (hash ^ data[i]) * 0x100000001b3u;
    free(data);
    if (!err)
        SAY(p, "data %d.%d %016" PRIx64 "\n", sip, t, hash);
    return err;
}

/* ---- Queues ------------------------------------------------------------------------------ */

static kb_error *install(program *p, queue_plan *q)
{
    kb_pe pes[MAX_PES];
    kb_queue_edge edges[MAX_EDGES];
    for (int i = 0; i < p->count; i++)
        pes[i] = pe_at(p, i);
    for (int i = 0; i < q->edge_count; i++)
        edges[i] = (kb_queue_edge){pes[q->edges[i].from], q->edges[i].send, pes[q->edges[i].to]};
    kb_queue_spec spec = {
        .buffer_kind = q->buffer_kind, .n_slots = q->n_slots, .slot_bytes = q->slot_bytes};
    if (q->is_ring) {
        spec.topology = "ring_1d";
        spec.pes = pes;
        spec.pe_count = (size_t)p->count;
    } else {
        spec.edges = edges;
        spec.edge_count = (size_t)q->edge_count;
    }
    KB_TRY(kb_queues_create(p->ctx, &spec, &q->set));
    return kb_queues_install(p->ctx, q->set);
}

/* Where all queues stand. */
static kb_error *write_queues(program *p, const queue_plan *q)
{
    kb_queue_info infos[2 * MAX_EDGES];
    size_t count;
    KB_TRY(kb_queues_list(p->ctx, q->set, infos, 2 * MAX_EDGES, &count));
    for (size_t i = 0; i < count && i < 2 * MAX_EDGES; i++) {
        const kb_queue_info *is = &infos[i];
        SAY(p, "queue %u.%u.%u %s %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", is->pe.sip,
            is->pe.cube, is->pe.pe, is->direction, is->my_head, is->peer_tail_cache,
            is->peer_head_cache, is->my_tail);
    }
    return NULL;
}

/* ---- Launches ---------------------------------------------------------------------------- */

static void write_result(program *p, const kb_launch_result *is)
{
    SAY(p, "launch %s sip %u pes %u from %lld to %lld pe_exec %lld held %lld network %lld busy",
        is->name, is->sip, is->pes, (long long)is->issued, (long long)is->ended,
        (long long)is->pe_exec, (long long)is->held, (long long)is->network);
    for (int i = 0; i < KB_UNITS; i++)
        SAY(p, " %lld", (long long)is->busy[i]);
    SAY(p, " causes");
    for (int i = 0; i < KB_CAUSES; i++)
        SAY(p, " %lld", (long long)is->causes[i]);
    SAY(p, "\n");
}

/* Says what failed, and keeps the first of it: a program goes on after it. */
static void write_error(program *p, const char *what, kb_error *err, kb_error **first)
{
    if (!err)
        return;
    SAY(p, "error %s: code %d: %s\n", what, (int)kb_error_code(err), kb_error_message(err));
    const char *detail = kb_error_detail(err);
    while (*detail) {
        size_t length = strcspn(detail, "\n");
        SAY(p, "error   %.*s\n", (int)length, detail);
        detail += length + (detail[length] == '\n');
    }
    if (*first)
        kb_error_free(err);
    else
        *first = err;
}

static kb_error *launch(program *p, int index, const kb_launch_options *options)
{
    const launch_plan *l = &p->launches[index];
    kb_arg args[TENSORS + 1];
    kb_kernel kernel = random_kernel;
    kernel.user = p;
    for (int t = 0; t < TENSORS; t++)
        args[t] = l->sip >= 0 ? kb_arg_tensor(p->tensors[t][l->sip])
                              : kb_arg_tensors(p->tensors[t], (size_t)p->sips);
    args[TENSORS] = kb_arg_integer(index);
    return kb_launch_args(p->ctx, options, &kernel, args, TENSORS + 1);
}

/* The request of a launch is done: its figures, or why it failed. */
static void finish(program *p, kb_request request, kb_error **first)
{
    kb_launch_result results[MAX_SIPS];
    size_t count = 0;
    kb_error *err = kb_request_wait(p->ctx, request, NULL);
    if (!err)
        err = kb_launch_results(p->ctx, request, results, MAX_SIPS, &count);
    for (size_t i = 0; i < count && i < MAX_SIPS; i++)
        write_result(p, &results[i]);
    write_error(p, "launch", err, first);
    write_error(p, "request", kb_request_free(p->ctx, request), first);
}

/* ---- Copies beside kernels --------------------------------------------------------------- */

typedef struct copies {
    kb_stream stream;
    kb_tensor host, here, there; /* no kernel touches them */
    kb_location from, to;        /* of a PE's DMA */
    kb_pe pe;
} copies;

static kb_error *prepare_copies(program *p, copies *c)
{
    static const float numbers[4096];
    const kb_policy cut = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    kb_tensor_spec spec = {.name = "beside", .dtype = KB_F32, .policy = &cut, .access = KB_UNTIMED};
    spec.shape = KB_SHAPE((uint64_t)(1 + below(&p->r, 4096)));
    size_t bytes = (size_t)spec.shape.dims[0] * sizeof numbers[0];
    KB_TRY(kb_stream_create(p->ctx, "copies", &c->stream));
    KB_TRY(kb_from_host(p->ctx, &spec, numbers, bytes, &c->host));
    KB_TRY(kb_ahbm_set_device(p->ctx, 0));
    KB_TRY(kb_empty(p->ctx, &spec, &c->here));
    KB_TRY(kb_ahbm_set_device(p->ctx, (uint32_t)(p->sips - 1)));
    KB_TRY(kb_empty(p->ctx, &spec, &c->there));
    c->pe = pe_at(p, (int)below(&p->r, p->count));
    KB_TRY(kb_memory_alloc(p->ctx, c->pe, KB_HBM, 4096, 64, &c->from));
    return kb_memory_alloc(p->ctx, pe_at(p, (int)below(&p->r, p->count)), KB_HBM, 4096, 64, &c->to);
}

static kb_error *start_copy(program *p, copies *c)
{
    switch (below(&p->r, 5)) {
    case 0:
        return kb_stream_copy(p->ctx, c->stream, c->here, c->host, NULL);
    case 1:
        return kb_stream_copy(p->ctx, c->stream, c->there, c->here, NULL);
    case 2:
        return kb_stream_copy(p->ctx, c->stream, c->host, c->there, NULL);
    case 3:
        return kb_tensor_fill_slice(p->ctx, c->here, KB_TIMED, NULL, 1);
    default: {
        kb_request request;
        kb_message dma = {.kind = KB_PE_DMA,
                          .bytes = 1 + (uint64_t)below(&p->r, 4096),
                          .from = c->from,
                          .to = c->to,
                          .pe = c->pe};
        if (one_in(&p->r, 2))
            dma.from = (kb_location){KB_VIRTUAL, c->pe, p->va[T_SHARED][c->pe.sip]};
        KB_TRY(kb_request_submit(p->ctx, &dma, &request));
        return kb_request_free(p->ctx, request);
    }
    }
}

/* ---- The program ------------------------------------------------------------------------- */

/* All launches, some of them at a time. */
static void run_launches(program *p, copies *c, kb_error **first)
{
    kb_stream streams[4] = {KB_DEFAULT_STREAM};
    kb_request requests[MAX_LAUNCHES];
    int pending = 0;
    for (int i = 0; i < p->stream_count; i++)
        write_error(p, "stream", kb_stream_create(p->ctx, NULL, &streams[i + 1]), first);
    for (int i = 0; i < p->launch_count; i++) {
        const launch_plan *l = &p->launches[i];
        if (has(p, COPIES))
            write_error(p, "copy", start_copy(p, c), first);
        kb_launch_options options = {
            .request = &requests[pending], .stream = streams[l->stream], .scope = l->scope};
        if (l->set >= 0)
            options.queues = p->sets[l->set].set;
        kb_error *err = launch(p, i, &options);
        write_error(p, "call", err, first);
        pending += !err;
        if (has(p, COPIES))
            write_error(p, "copy", start_copy(p, c), first);
        if (l->waits)
            while (pending > 0)
                finish(p, requests[--pending], first);
        if (*first && p->gives_up)
            return;
    }
    while (pending > 0 && !(*first && p->gives_up))
        finish(p, requests[--pending], first);
}

/* The launches again, as a graph that is launched twice. Not with receives from any direction: the
 * host does not wait between launches (see program.h). */
static kb_error *run_graph(program *p)
{
    kb_graph graph;
    KB_TRY(kb_graph_begin(p->ctx, NULL, &graph));
    for (int i = 0; i < p->launch_count; i++) {
        const launch_plan *l = &p->launches[i];
        kb_launch_options options = {.scope = l->scope};
        if (l->set >= 0)
            options.queues = p->sets[l->set].set;
        KB_TRY(launch(p, i, &options));
    }
    KB_TRY(kb_graph_end(p->ctx, graph));
    KB_TRY(kb_graph_launch(p->ctx, graph, NULL));
    KB_TRY(kb_graph_launch(p->ctx, graph, NULL));
    return kb_graph_free(p->ctx, graph);
}

static kb_error *run(program *p, kb_error **first)
{
    copies beside = {0};
    for (int sip = 0; sip < p->sips; sip++)
        KB_TRY(create_tensors(p, sip));
    KB_TRY(kb_synchronize(p->ctx));
    for (int i = 0; i < p->set_count; i++)
        KB_TRY(install(p, &p->sets[i]));
    if (has(p, COPIES))
        KB_TRY(prepare_copies(p, &beside));
    run_launches(p, &beside, first);
    if (*first && p->gives_up)
        return NULL;
    write_error(p, "synchronize", kb_synchronize(p->ctx), first);
    if (has(p, GRAPHS) && !has(p, ANY) && !*first)
        write_error(p, "graph", run_graph(p), first);
    for (int i = 0; i < p->set_count; i++)
        write_error(p, "list", write_queues(p, &p->sets[i]), first);
    for (int i = 0; i < p->set_count; i++)
        write_error(p, "remove", kb_queues_remove(p->ctx, p->sets[i].set), first);
    return NULL;
}

static void choose(program *p)
{
    p->r = rng_make(p->seed, 1, 2);
    p->machine = kb_context_machine(p->ctx);
    p->sips = p->machine.sips < MAX_SIPS ? (int)p->machine.sips : MAX_SIPS;
    p->cubes = 1 + (int)below(&p->r, p->machine.cubes);
    p->pes = 1 + (int)below(&p->r, p->machine.pes);
    while (p->sips * p->cubes * p->pes > MAX_PES)
        p->cubes > 1 ? p->cubes-- : p->pes--;
    p->per_sip = p->cubes * p->pes;
    p->count = p->sips * p->per_sip;
    bool is_large = has(p, LARGE) && one_in(&p->r, 2);
    p->rows = 1 + below(&p->r, is_large ? 64 : 12);
    p->columns = 1 + below(&p->r, is_large ? 120 : 50);
    p->shared_is_cut = one_in(&p->r, 2);
    p->gives_up = one_in(&p->r, 3);
    p->far_shift = (int)below(&p->r, p->per_sip);
    for (int t = 0; t < TENSORS; t++)
        p->elements[t] = t == T_NEAR ? 1024 : PART;
    if (has(p, FULL_TCM)) { /* values of up to an eighth of it */
        p->rows = 4 + below(&p->r, 12);
        p->columns = (int64_t)p->machine.tcm_bytes / 16 / p->rows / 4;
        if (p->columns > 2000)
            p->columns = 2000;
    }
    plan_queues(p);
    plan_launches(p);
}

static void write_notes(program *p)
{
    for (int pe = 0; pe < p->count; pe++)
        for (int i = 0; i < p->notes[pe].count; i++) {
            const char *text = p->notes[pe].items[i].text;
            bool is_data = strncmp(text, "data ", 5) == 0;
            SAY(p, "%s %d.%d %s\n", is_data ? "data" : "note", pe, i, is_data ? text + 5 : text);
        }
}

static void write_totals(program *p, kb_unit unit)
{
    static const char *const names[] = {NULL, "load", "store", "send", "recv", "issue", "dot"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        kb_op_total total = kb_context_op_total(p->ctx, unit, names[i]);
        if (total.count > 0)
            SAY(p, "total %s %s %llu busy %lld bytes %llu flops %llu\n", kb_unit_name(unit),
                names[i] ? names[i] : "all", (unsigned long long)total.count, (long long)total.busy,
                (unsigned long long)total.bytes, (unsigned long long)total.flops);
    }
}

static kb_error *write_end(program *p)
{
    write_notes(p);
    for (int sip = 0; sip < p->sips; sip++)
        for (int t = 0; t < TENSORS; t++)
            KB_TRY(write_contents(p, t, sip));
    for (int unit = 0; unit < KB_UNITS; unit++)
        write_totals(p, (kb_unit)unit);
    SAY(p, "end %lld kernels %lld\n", (long long)kb_context_now(p->ctx),
        (long long)kb_context_kernel_time(p->ctx));
    return NULL;
}

/* ---- The bench --------------------------------------------------------------------------- */

static const char *const no_yes[] = {"no", "yes", NULL};
static const char *const race_checks[] = {"warn", "fail", "off", NULL};

static const kb_param params[] = {
    {.name = "seed", .value = 1, .min = 0, .max = INT64_MAX, .help = "of all choices"},
    {.name = "size", .value = 20, .min = 1, .max = 1000, .help = "steps of a kernel, at most"},
    {.name = "features", .value = 0xfff, .min = 0, .max = 0xfffffff, .help = "bits of program.h"},
    {.name = "record", .value = 0, .names = no_yes, .help = "in a context of its own"},
    {.name = "timing_only", .value = 0, .names = no_yes, .help = "of that context"},
    {.name = "no_elision", .value = 0, .names = no_yes, .help = "of that context"},
    {.name = "watch", .value = 1, .names = no_yes, .help = "that context tells each operation"},
    {.name = "tcm", .value = 0, .names = no_yes, .help = "and each change of the TCM in use"},
    {.name = "races", .value = 0, .names = race_checks, .help = "of that context"},
};

enum { MAX_SETTINGS = 64 };

static kb_error *create_context(kb_bench *bench, recorder *r, char *settings, kb_context **ctx)
{
    const char *list[MAX_SETTINGS];
    size_t count = 0;
    for (char *at = strtok(settings, "\n"); at && count < MAX_SETTINGS; at = strtok(NULL, "\n"))
        list[count++] = at;
    bool watches = kb_bench_param(bench, "watch");
    return kb_context_create(
        &(kb_context_options){.settings = list,
                              .setting_count = count,
                              .timing_only = kb_bench_param(bench, "timing_only"),
                              .no_elision = kb_bench_param(bench, "no_elision"),
                              .on_warning = on_warning,
                              .on_warning_self = r,
                              .threads = 1,
                              .on_op = watches ? on_op : NULL,
                              .on_op_self = r,
                              .on_tcm = kb_bench_param(bench, "tcm") ? on_tcm : NULL,
                              .on_tcm_self = r,
                              .on_ccl_trace = watches ? on_message : NULL,
                              .on_ccl_trace_self = r,
                              .races = (kb_race_check)kb_bench_param(bench, "races")},
        ctx);
}

static kb_error *run_in(kb_bench *bench, kb_context *ctx, FILE *out)
{
    program *p = calloc(1, sizeof *p);
    if (!p)
        return kb_error_new(KB_ERR_HOST, "out of memory");
    p->ctx = ctx;
    p->out = out;
    p->seed = (uint64_t)kb_bench_param(bench, "seed");
    p->size = (int)kb_bench_param(bench, "size");
    p->features = (unsigned)kb_bench_param(bench, "features");
    choose(p);
    kb_error *first = NULL, *err = run(p, &first);
    if (!err && out)
        err = write_end(p);
    kb_bench_metric(bench, "launches", p->launch_count, "");
    kb_bench_metric(bench, "PEs", p->count, "");
    plan_fini(p);
    free(p);
    if (!err)
        return first;
    kb_error_free(first);
    return err;
}

static kb_error *run_recorded(kb_bench *bench, FILE *out)
{
    recorder r = {0};
    kb_context *ctx = NULL;
    const char *given = getenv("KERNELS_SETTINGS");
    char *settings = strdup(given ? given : "");
    if (!settings)
        return kb_error_new(KB_ERR_HOST, "out of memory");
    kb_error *err = create_context(bench, &r, settings, &ctx);
    if (!err)
        err = run_in(bench, ctx, out);
    kb_context_destroy(ctx);
    write_record(&r, out);
    recorder_fini(&r);
    free(settings);
    return err;
}

static kb_error *run_bench(kb_bench *bench)
{
    if (!kb_bench_param(bench, "record"))
        return run_in(bench, kb_bench_context(bench), NULL);
    const char *path = getenv("KERNELS_RECORD");
    FILE *out = fopen(path ? path : "/dev/stdout", "w");
    if (!out)
        return kb_error_new(KB_ERR_HOST, "cannot write %s", path);
    kb_error *err = run_recorded(bench, out);
    fclose(out);
    return err;
}

static const kb_bench_spec random_kernels = {
    .name = "random_kernels",
    .summary = "a random program: kernels with random operations and messages",
    .params = params,
    .param_count = sizeof params / sizeof params[0],
    .run = run_bench,
};

KB_EXPORT_BENCHES(&random_kernels);
