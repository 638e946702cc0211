/* sweep_worker.c: runs points of a sweep: see sweep_worker.h. */
#include "sweep_worker.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "crash.h"
#include "effective.h"
#include "json.h"
#include "machine_options.h"

/* ---- Benches ------------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), ending = strlen(end);
    return length > ending && strcmp(text + length - ending, end) == 0;
}

const sweep_bench *sweep_worker_bench(const sweep_worker *worker, const char *name)
{
    for (size_t i = 0; i < worker->benches.count; i++)
        if (strcmp(worker->benches.items[i].name, name) == 0)
            return &worker->benches.items[i];
    return NULL;
}

/* Of FILE.c:NAME the file; NULL for a bench that is built in. */
static const char *file_of(sweep_worker *worker, const char *name)
{
    const char *colon = strrchr(name, ':');
    size_t length = colon && !strchr(colon, '/') ? (size_t)(colon - name) : strlen(name);
    char *file = kb_arena_strndup(&worker->arena, name, length);
    bool is_file = file && (strchr(file, '/') || ends_with(file, ".c") || ends_with(file, ".so") ||
                            ends_with(file, ".py"));
    return is_file ? file : NULL;
}

static kb_code open_bench(sweep_worker *worker, const char *name)
{
    if (sweep_worker_bench(worker, name))
        return KB_OK;
    sweep_bench bench = {.name = name, .file = file_of(worker, name)};
    bench.is_python = bench.file && ends_with(bench.file, ".py");
    if (bench.is_python && access(bench.file, R_OK) != 0)
        return cli_fail(KB_ERR_INPUT, "cannot read %s: %s", bench.file, strerror(errno));
    if (!kb_vec_push(&worker->benches, bench))
        return cli_report(kb_error_nomem());
    sweep_bench *opened = &worker->benches.items[worker->benches.count - 1];
    return bench.is_python ? KB_OK : run_program_open(&opened->program, name, &worker->collectives);
}

static kb_code open_benches(sweep_worker *worker)
{
    const sweep_plan *plan = worker->plan;
    kb_code code = KB_OK;
    for (size_t b = 0; b < plan->blocks.count && code == KB_OK; b++)
        if (plan->blocks.items[b].bench)
            code = open_bench(worker, plan->blocks.items[b].bench);
    for (size_t a = 0; a < plan->axes.count; a++) {
        const sweep_axis *axis = &plan->axes.items[a];
        if (axis->target != SWEEP_BENCH)
            continue;
        for (size_t v = 0; v < axis->values.count && code == KB_OK; v++)
            code = open_bench(worker, axis->values.items[v].text);
    }
    return code;
}

kb_code sweep_worker_open(sweep_worker *worker, const sweep_plan *plan)
{
    static const char default_file[] = "ccl.yaml";
    *worker = (sweep_worker){.plan = plan, .ccl = plan->ccl};
    kb_arena_init(&worker->arena);
    if (!worker->ccl && access(default_file, F_OK) == 0)
        worker->ccl = default_file;
    if (!getcwd(worker->directory, sizeof worker->directory))
        worker->directory[0] = '\0';
    worker->collectives = (collectives_args){
        .ccl = plan->ccl,
        .plugins = {.items = plan->plugins.items, .count = plan->plugins.count},
    };
    return open_benches(worker);
}

void sweep_worker_close(sweep_worker *worker)
{
    for (size_t i = 0; i < worker->benches.count; i++)
        if (!worker->benches.items[i].is_python)
            run_program_close(&worker->benches.items[i].program);
    kb_vec_fini(&worker->benches);
    kb_arena_fini(&worker->arena);
}

/* ---- A run --------------------------------------------------------------------------------- */

/* A point in its child. */
typedef struct point_run {
    const sweep_worker *worker;
    const sweep_bench *bench;
    sweep_point point;
    int64_t *values; /* of the parameters of the bench; NULL: not known */
    int out;
} point_run;

/* The lists are only read. */
static cli_list list_of(const sweep_texts *texts)
{
    return (cli_list){.items = texts->items, .count = texts->count};
}

static sweep_hash key_of(const point_run *r, const topo_machine *machine)
{
    size_t count = r->bench->is_python ? 0 : r->bench->program.spec->param_count;
    return sweep_keys_key(r->worker->keys, &r->point, topo_machine_hash(machine), r->values, count);
}

/* Sends the key, and the machine unless the store has it. *known: the store has the run. */
static kb_error *send_key(const point_run *r, const topo_machine *machine, bool *known)
{
    const sweep_worker *w = r->worker;
    sweep_key_frame frame = {0};
    sweep_hash key = key_of(r, machine);
    memcpy(frame.key, key.hex, sizeof frame.key);
    snprintf(frame.machine, sizeof frame.machine, "%016" PRIx64, topo_machine_hash(machine));
    const sweep_known_run *run = w->known ? sweep_known_find(w->known, key.hex) : NULL;
    frame.known = *known = sweep_is_good(run, w->force, w->retry_failed);
    bool sent = sweep_send_key(r->out, &frame, topo_machine_name(machine));
    const char *name = topo_machine_name(machine);
    if (sent && !*known && w->known && !sweep_known_has_machine(w->known, frame.machine, name)) {
        kb_text yaml = KB_TEXT_INIT;
        kb_error *err = effective_text(machine, &yaml);
        sent = !err && sweep_send_machine(r->out, kb_text_peek(&yaml), yaml.length);
        kb_text_fini(&yaml);
        KB_TRY(err);
    }
    return sent ? NULL : kb_error_new(KB_ERR_HOST, "the sweep has ended");
}

/* The machine is compiled. */
static kb_error *on_ready(void *self, kb_context *ctx)
{
    bool known;
    KB_TRY(send_key(self, rt_get_stats(ctx).machine, &known));
    if (known)
        crash_exit(KB_OK); /* nothing to run */
    return NULL;
}

static bool send_document(const point_run *r, const run_view *view)
{
    json_t *document = run_document(view);
    char *text = document ? json_dumps(document, JSON_COMPACT) : NULL;
    bool sent = text && sweep_send_document(r->out, text, strlen(text));
    free(text);
    json_decref(document);
    return sent;
}

static kb_code on_done(void *self, const run_outcome *outcome)
{
    const point_run *r = self;
    kb_code code = kb_error_code(outcome->error);
    bool sent = !outcome->view || send_document(r, outcome->view);
    sweep_end_frame end = {.code = (int32_t)code, .wall_s = outcome->wall_s};
    sent = sent && sweep_send_end(r->out, &end, kb_error_message(outcome->error));
    crash_exit(sent ? (int)code : (int)KB_ERR_HOST); /* there is no need to free anything */
}

/* The values of all parameters, as the run will have them. A wrong one is reported by the run. */
static void read_values(point_run *r)
{
    const kb_bench_spec *spec = r->bench->program.spec;
    kb_bench *bench;
    rt_bench_options o = {.settings = r->point.params.items,
                          .setting_count = r->point.params.count};
    kb_error *err = rt_bench_create(spec, &o, &bench);
    if (!err)
        r->values = kb_alloc_array(spec->param_count + 1, sizeof *r->values);
    for (size_t i = 0; r->values && i < spec->param_count; i++)
        r->values[i] = kb_bench_param(bench, spec->params[i].name);
    if (!err)
        rt_bench_destroy(bench);
    kb_error_free(err);
}

static int run_loaded(point_run *r)
{
    const sweep_plan *plan = r->worker->plan;
    cli_list settings = list_of(&r->point.settings), params = list_of(&r->point.params);
    run_options o = {
        .topology = r->point.topology,
        .settings = &settings,
        .params = &params,
        .device = plan->device,
        .verify = plan->verify,
        .timing_only = plan->timing_only,
        .check_races = plan->check_races,
        .stack_bytes = plan->stack_bytes,
        .ready = on_ready,
        .done = on_done,
        .self = r,
    };
    crash_enter_child();
    crash_enter_user_code(r->bench->file); /* its tables may be corrupt */
    read_values(r);
    crash_leave_user_code();
    return (int)run_once(&r->bench->program, &o);
}

/* ---- Benches in Python --------------------------------------------------------------------- */

/* An option of a command line; flags have no value. */
typedef struct command_option {
    const char *name, *value;
} command_option;

typedef struct command_options {
    KB_VEC(command_option) items;
    bool failed;
} command_options;

static void add(command_options *c, const char *name, const char *value)
{
    command_option option = {.name = name, .value = value};
    c->failed = c->failed || !kb_vec_push(&c->items, option);
}

static void add_texts(command_options *c, const char *name, const sweep_texts *texts)
{
    for (size_t i = 0; i < texts->count; i++)
        add(c, name, texts->items[i]);
}

/* Those of the command that runs the point by itself: kernbench run. */
static command_options compose(const sweep_worker *worker, const sweep_point *point)
{
    const sweep_plan *plan = worker->plan;
    command_options c = {0};
    add(&c, "--bench", point->bench);
    if (point->topology)
        add(&c, "--topology", point->topology);
    add_texts(&c, "--set", &point->settings);
    add_texts(&c, "--param", &point->params);
    if (plan->device)
        add(&c, "--device", plan->device);
    if (plan->ccl)
        add(&c, "--ccl", plan->ccl);
    add_texts(&c, "--plugin", &plan->plugins);
    if (plan->timing_only)
        add(&c, "--timing-only", NULL);
    if (plan->verify)
        add(&c, "--verify-data", NULL);
    if (plan->check_races)
        add(&c, "--check-races", NULL);
    return c;
}

static kb_error *load_machine(const sweep_point *point, topo_machine **machine)
{
    cli_list settings = list_of(&point->settings), own;
    if (!collectives_machine_settings(&settings, &own)) {
        cli_list_fini(&own);
        return kb_error_nomem();
    }
    topo_source source = {
        .path = point->topology, .settings = own.items, .setting_count = own.count};
    kb_error *err = topo_machine_load(&source, machine);
    cli_list_fini(&own);
    return err;
}

/* exec() takes words that are not constant, and does not change them. */
static char *word_of(const char *text)
{
    return (char *)(uintptr_t)text;
}

/* Becomes the program that runs the bench, whose output is the document. */
static kb_error *become_program(const point_run *r)
{
    KB_VEC(char *) words = {0};
    command_options c = compose(r->worker, &r->point);
    add(&c, "--json", NULL);
    add(&c, "--quiet", NULL);
    bool good = !c.failed && kb_vec_push(&words, word_of("kernbench")) &&
                kb_vec_push(&words, word_of("run"));
    for (size_t i = 0; i < c.items.count && good; i++) {
        good = kb_vec_push(&words, word_of(c.items.items[i].name));
        if (c.items.items[i].value)
            good = good && kb_vec_push(&words, word_of(c.items.items[i].value));
    }
    kb_vec_fini(&c.items);
    kb_error *err = good && kb_vec_push(&words, NULL) ? NULL : kb_error_nomem();
    if (!err && words.items && sweep_send_open_document(r->out) && dup2(r->out, STDOUT_FILENO) >= 0)
        execv("/proc/self/exe", words.items);
    if (!err)
        err = kb_error_new(KB_ERR_HOST, "cannot run the program: %s", strerror(errno));
    kb_vec_fini(&words);
    return err;
}

static int run_python(const point_run *r)
{
    topo_machine *machine = NULL;
    bool known = false;
    kb_error *err = load_machine(&r->point, &machine);
    if (!err)
        err = send_key(r, machine, &known);
    topo_machine_destroy(machine);
    if (known)
        return KB_OK;
    if (!err)
        err = become_program(r);
    return (int)cli_report(err);
}

int sweep_worker_run(void *self, size_t point, int out)
{
    point_run r = {.worker = self, .out = out};
    kb_error *err = sweep_plan_point(r.worker->plan, point, &r.point);
    if (err)
        return (int)cli_report(err);
    r.bench = sweep_worker_bench(r.worker, r.point.bench);
    int status = r.bench->is_python ? run_python(&r) : run_loaded(&r);
    free(r.values);
    sweep_point_fini(&r.point);
    return status;
}

/* ---- The record ---------------------------------------------------------------------------- */

void sweep_worker_describe(const sweep_worker *worker, const sweep_point *point, store_run *run,
                           kb_text *texts)
{
    const sweep_bench *bench = sweep_worker_bench(worker, point->bench);
    command_options c = compose(worker, point);
    kb_text_puts(texts, "kernbench run");
    for (size_t i = 0; i < c.items.count; i++) {
        const command_option *option = &c.items.items[i];
        if (option->value)
            cli_append_option(texts, option->name, option->value);
        else
            kb_text_printf(texts, " %s", option->name);
    }
    texts->failed = texts->failed || c.failed;
    kb_vec_fini(&c.items);
    run->bench = bench->is_python ? bench->name : bench->program.spec->name;
    run->bench_file = bench->file ? bench->name : NULL;
    run->params = (store_strings){point->params.items, point->params.count};
    run->settings = (store_strings){point->settings.items, point->settings.count};
    run->command = kb_text_peek(texts);
    run->directory = worker->directory[0] != '\0' ? worker->directory : NULL;
}
