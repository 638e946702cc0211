/*
 * what_if.c: runs on better machines, in child processes.
 *
 * Each resource is made twice as good first, then 4 and 1.25 times where that had an effect, those
 * with the largest effect first. If there is no time to measure all of them alone, those of which
 * the critical path expects nothing, and those that come last, are made four times as good in one
 * run together: if that takes as long as the run itself, none of them has an effect.
 *
 * The time for all these runs begins when the run itself has ended. A run that has not ended when
 * it is over is killed, so it holds whatever the runs take.
 */
#include "what_if.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "child/child.h"
#include "cli.h"
#include "crash.h"
#include "explain_report.h"
#include "json.h"
#include "progress.h"
#include "what_if_table.h"

enum { TOGETHER = -1 };

static const explain_factor factors[FACTORS] = {{5, 4}, {2, 1}, {4, 1}};

typedef enum result_state { UNTRIED, MEASURED, NO_EFFECT_TOGETHER, NO_TIME, FAILS } result_state;

typedef struct result {
    result_state state;
    kb_time fs;      /* MEASURED: of the run */
    bool path_known; /* the next two are */
    bool same_path, same_waits;
    char *most;    /* what most of its path is spent at; NULL: not known */
    char *message; /* FAILS: the first line of what it said */
} result;

typedef struct candidate {
    const char *key, *name;
    bool is_group;             /* of resources that are candidates too */
    bool is_joint;             /* it is measured in one run with others first */
    const char *own;           /* a setting of the user's, which has one run: factor 2; else NULL */
    kb_text settings[FACTORS]; /* lines */
    kb_time estimate[FACTORS]; /* negative: none */
    result results[FACTORS];
} candidate;

struct what_if {
    what_if_options has;
    child_pool *pool;
    KB_VEC(candidate) candidates;
    kb_text together; /* settings of all that are measured in one run */
    result of_together;
    kb_time base;
    char signature[20], waits[20];
    double base_s;  /* time of the processor of the first run */
    double run_s;   /* what one more is expected to take, on a core of its own */
    double until_s; /* the others may take, on the wall */
    size_t started; /* so many of these */
    bool with_path; /* the others find their paths too */
    unsigned cores;
};

/* ---- One run, in a child ----------------------------------------------------------------- */

typedef struct job {
    what_if *of;
    const kb_text *settings; /* more of them; NULL: the run itself */
    bool with_path, is_base;
    cli_list all; /* in the child */
    run_path *path;
    int out;
} job;

static void on_op(void *self, const kb_op *op)
{
    const job *j = self;
    run_path_op(j->path, op);
}

static kb_error *on_ready(void *self, kb_context *ctx)
{
    job *j = self;
    return j->with_path ? run_path_begin(ctx, j->of->has.path_bytes, &j->path) : NULL;
}

static void on_warning(void *self, const char *line)
{
    const job *j = self;
    if (j->is_base && !j->of->has.quiet)
        cli_warn("%s", line);
}

/* A run that faults or deadlocks is explained up to there. */
static bool has_path(const job *j, const run_outcome *outcome)
{
    if (!j->path || !outcome->ctx)
        return false;
    switch (kb_error_code(outcome->error)) {
    case KB_OK:
    case KB_ERR_CHECK:
        return true;
    case KB_ERR_FAULT:
    case KB_ERR_DEADLOCK:
        return j->is_base;
    default:
        return false;
    }
}

static kb_error *send(int out, json_t *document)
{
    char *text = document ? json_dumps(document, JSON_COMPACT) : NULL;
    size_t left = text ? strlen(text) : 0;
    for (const char *at = text; left > 0;) {
        ssize_t written = write(out, at, left);
        if (written < 0 && errno != EINTR)
            break;
        at += written > 0 ? written : 0;
        left -= written > 0 ? (size_t)written : 0;
    }
    free(text);
    return text && left == 0 ? NULL : kb_error_new(KB_ERR_HOST, "a run could not send its result");
}

static kb_error *make_document(job *j, const run_outcome *outcome, json_t **document)
{
    if (j->is_base) {
        json_t *path;
        KB_TRY(run_path_json(j->path, outcome, j->of->has.steps, &path));
        *document = outcome->view ? run_document(outcome->view) : json_object();
        cli_json_set(document, "critical_path", path);
        return NULL;
    }
    *document = json_pack("{s:I}", "fs", (json_int_t)kb_context_now(outcome->ctx));
    return has_path(j, outcome) ? run_path_brief(j->path, outcome, document) : NULL;
}

static kb_code on_done(void *self, const run_outcome *outcome)
{
    job *j = self;
    json_t *document = NULL;
    kb_error *err = NULL;
    bool sends = j->is_base ? has_path(j, outcome) : outcome->ctx && !outcome->error;
    if (sends)
        err = make_document(j, outcome, &document);
    if (sends && !err)
        err = send(j->out, document);
    json_decref(document);
    kb_code code = outcome->error ? cli_print_error(outcome->error) : KB_OK;
    return err ? cli_report(err) : code;
}

/* The user's settings, and those of the job. */
static bool add_settings(job *j)
{
    const cli_list *has = j->of->has.settings;
    const char *lines = j->settings ? kb_text_peek(j->settings) : "";
    for (size_t i = 0; i < has->count; i++)
        if (!kb_vec_push(&j->all, has->items[i]))
            return false;
    char *copy = kb_alloc_array(strlen(lines) + 1, 1);
    if (!copy)
        return false;
    memcpy(copy, lines, strlen(lines) + 1);
    for (char *line = copy, *end; *line; line = end + 1) { /* until the child ends */
        end = strchr(line, '\n');
        *end = '\0';
        if (!kb_vec_push(&j->all, line))
            return false;
    }
    return true;
}

static int run_job(void *self, int out)
{
    job *j = self;
    const what_if_options *has = &j->of->has;
    j->out = out;
    if (!add_settings(j))
        return (int)cli_report(kb_error_nomem());
    run_options o = {
        .topology = has->topology,
        .settings = &j->all,
        .params = has->params,
        .device = has->device,
        .timing_only = !has->data,
        .stack_bytes = has->stack_bytes,
        .warn = on_warning,
        .op = j->with_path ? on_op : NULL,
        .reasons = j->with_path,
        .ready = on_ready,
        .done = on_done,
        .self = j,
    };
    return (int)run_once(has->program, &o);
}

/* ---- Making them ------------------------------------------------------------------------- */

static void leave(int status)
{
    crash_exit(status);
}

kb_error *what_if_create(const what_if_options *options, what_if **out)
{
    *out = NULL;
    what_if *runs = kb_alloc_zeroed(1, sizeof *runs);
    if (!runs)
        return kb_error_nomem();
    runs->has = *options;
    runs->cores = options->cores ? options->cores : child_count_cores();
    child_options children = {.slots = runs->cores, .enter = crash_enter_child, .leave = leave};
    kb_error *err = child_pool_create(&children, &runs->pool);
    if (err)
        free(runs);
    else
        *out = runs;
    return err;
}

void what_if_destroy(what_if *runs)
{
    if (!runs)
        return;
    child_pool_destroy(runs->pool);
    for (size_t i = 0; i < runs->candidates.count; i++)
        for (int f = 0; f < FACTORS; f++) {
            kb_text_fini(&runs->candidates.items[i].settings[f]);
            free(runs->candidates.items[i].results[f].message);
            free(runs->candidates.items[i].results[f].most);
        }
    free(runs->of_together.message);
    free(runs->of_together.most);
    kb_text_fini(&runs->together);
    kb_vec_fini(&runs->candidates);
    free(runs);
}

/* ---- The run itself ---------------------------------------------------------------------- */

/* The code of a child that ended, and for one that did not end by itself a message. */
static kb_code code_of(const child_result *r)
{
    if (r->end == CHILD_EXITED)
        return (kb_code)r->status;
    return cli_fail(KB_ERR_FAULT, "the run was ended by %s",
                    r->end == CHILD_SIGNALED ? strsignal(r->status) : "a limit");
}

kb_code what_if_base(what_if *runs, json_t **document)
{
    job j = {.of = runs, .with_path = true, .is_base = true};
    *document = NULL;
    fflush(NULL);
    kb_error *err = child_start(runs->pool, run_job, &j, 0);
    if (err)
        return cli_report(err);
    child_result r;
    if (!child_wait(runs->pool, -1, -1, &r))
        return cli_fail(KB_ERR_HOST, "the run has no result");
    runs->base_s = r.cpu_s;
    runs->until_s = cli_wall_seconds() + runs->has.seconds;
    if (r.bytes.length > 0)
        *document = json_loadb(kb_text_peek(&r.bytes), r.bytes.length, 0, NULL);
    kb_code code = code_of(&r);
    fputs(kb_text_peek(&r.messages), stderr);
    child_result_fini(&r);
    return code;
}

/* ---- What is tried ----------------------------------------------------------------------- */

static kb_time estimate_of(const json_t *path, const char *key, const char *factor)
{
    size_t i;
    const json_t *one;
    json_array_foreach(json_object_get(path, "estimates"), i,
                       one) if (strcmp(explain_string(one, "resource"), key) == 0)
    {
        const json_t *saves = json_object_get(json_object_get(one, "saves_fs"), factor);
        return json_is_integer(saves) ? json_integer_value(saves) : -1;
    }
    return -1;
}

/* Links in series that are as slow as each other, or as the memory behind them, help only together;
 * and a latency is that of many. */
static bool add_all_of_routes(what_if *runs)
{
    candidate c = {.key = "memories_and_links", .name = "all memories and links", .is_group = true};
    bool good = true;
    for (int f = 0; f < FACTORS; f++) {
        c.estimate[f] = -1;
        for (int is = EXPLAIN_HBM_BANDWIDTH; is <= EXPLAIN_WIRES; is++)
            explain_better(runs->has.machine, (explain_resource)is, factors[f], &c.settings[f]);
        good &= !c.settings[f].failed;
    }
    if (good && kb_vec_push(&runs->candidates, c))
        return true;
    for (int f = 0; f < FACTORS; f++)
        kb_text_fini(&c.settings[f]);
    return false;
}

static bool add_candidates(what_if *runs, const json_t *path)
{
    for (int is = 0; is < EXPLAIN_PROGRAM; is++) {
        candidate c = {.key = explain_resource_key((explain_resource)is),
                       .name = explain_resource_name((explain_resource)is)};
        bool failed = false;
        for (int f = 0; f < FACTORS; f++) {
            explain_better(runs->has.machine, (explain_resource)is, factors[f], &c.settings[f]);
            c.estimate[f] = estimate_of(path, c.key, factor_names[f]);
            failed |= c.settings[f].failed;
        }
        bool is_there = c.settings[HALF].length > 0;
        if (!failed && is_there && kb_vec_push(&runs->candidates, c))
            continue;
        for (int f = 0; f < FACTORS; f++)
            kb_text_fini(&c.settings[f]);
        if (is_there || failed)
            return false;
    }
    for (size_t i = 0; i < runs->has.own->count; i++) {
        const char *setting = runs->has.own->items[i];
        candidate c = {.key = "own", .name = setting, .own = setting};
        for (int f = 0; f < FACTORS; f++)
            c.estimate[f] = -1;
        kb_text_printf(&c.settings[HALF], "%s\n", c.own);
        if (c.settings[HALF].failed || !kb_vec_push(&runs->candidates, c))
            return false;
    }
    return add_all_of_routes(runs);
}

/* ---- Running several --------------------------------------------------------------------- */

typedef struct task {
    int candidate; /* or TOGETHER */
    int factor;
} task;

typedef KB_VEC(task) task_list;

static result *result_of(what_if *runs, const task *t)
{
    return t->candidate == TOGETHER ? &runs->of_together
                                    : &runs->candidates.items[t->candidate].results[t->factor];
}

static char *copy_bytes(const char *bytes, size_t length)
{
    char *copy = kb_alloc_zeroed(length + 1, 1);
    return copy ? memcpy(copy, bytes, length) : NULL;
}

static void take_result(what_if *runs, const task *t, const child_result *r)
{
    result *is = result_of(runs, t);
    if (r->end == CHILD_TIMEOUT) {
        is->state = NO_TIME;
        return;
    }
    json_t *document = r->end == CHILD_EXITED && r->status == 0 && r->bytes.length > 0
                           ? json_loadb(kb_text_peek(&r->bytes), r->bytes.length, 0, NULL)
                           : NULL;
    if (!document) {
        const char *said = kb_text_peek(&r->messages);
        is->state = FAILS;
        is->message = copy_bytes(said, strcspn(said, "\n"));
        return;
    }
    runs->run_s = r->wall_s;
    is->state = MEASURED;
    is->fs = explain_fs(document, "fs");
    is->path_known = json_object_get(document, "signature") != NULL;
    is->same_path = strcmp(explain_string(document, "signature"), runs->signature) == 0;
    is->same_waits = strcmp(explain_string(document, "waits"), runs->waits) == 0;
    const char *most = explain_string(document, "most");
    is->most = *most ? copy_bytes(most, strlen(most)) : NULL;
    json_decref(document);
}

/* Starts a run if it would end in time, and sees to it that it does. The first ones begin whatever
 * is expected of them, as long as there is time at all. */
static kb_error *start_in_time(what_if *runs, const task *t, job *j, size_t tag)
{
    double left = runs->until_s - cli_wall_seconds();
    if (left <= 0 || (left < runs->run_s && runs->started >= runs->cores)) {
        result_of(runs, t)->state = NO_TIME;
        return NULL;
    }
    runs->started++;
    child_pool_limit(runs->pool, left);
    return child_start(runs->pool, run_job, j, tag);
}

static kb_code run_tasks(what_if *runs, const task_list *tasks)
{
    job *jobs = kb_alloc_zeroed(tasks->count + 1, sizeof *jobs);
    if (!jobs)
        return cli_report(kb_error_nomem());
    kb_error *err = NULL;
    size_t next = 0;
    while (!err && (next < tasks->count || child_pool_running(runs->pool) > 0)) {
        while (!err && next < tasks->count && child_pool_running(runs->pool) < runs->cores) {
            const task *t = &tasks->items[next];
            jobs[next] =
                (job){.of = runs,
                      .with_path = runs->with_path,
                      .settings = t->candidate == TOGETHER
                                      ? &runs->together
                                      : &runs->candidates.items[t->candidate].settings[t->factor]};
            err = start_in_time(runs, t, &jobs[next], next);
            next++;
        }
        child_result r;
        if (!err && child_wait(runs->pool, -1, -1, &r)) {
            take_result(runs, &tasks->items[r.tag], &r);
            child_result_fini(&r);
        }
    }
    free(jobs);
    return err ? cli_report(err) : KB_OK;
}

/* ---- The plan ---------------------------------------------------------------------------- */

static bool is_expected(const what_if *runs, const candidate *c)
{
    return c->own || c->estimate[HALF] < 0 ||
           (double)c->estimate[HALF] >= WHAT_IF_MATTERS * (double)runs->base;
}

static kb_time gain_of(const what_if *runs, const result *r)
{
    return r->state == MEASURED ? runs->base - r->fs : 0;
}

/* By what the path expects, or what was measured; what the user asked for is first. */
static kb_time rank_of(const what_if *runs, const candidate *c)
{
    kb_time gain = gain_of(runs, &c->results[HALF]);
    if (c->own)
        gain = runs->base;
    else if (c->results[HALF].state == UNTRIED)
        gain = c->estimate[HALF] < 0 ? runs->base / 20 : c->estimate[HALF];
    return gain < 0 ? -gain : gain;
}

static bool add_task(task_list *tasks, int number, int factor)
{
    return kb_vec_push(tasks, ((task){number, factor}));
}

static void sort_tasks(const what_if *runs, task_list *tasks)
{
    for (size_t i = 1; i < tasks->count; i++) {
        task t = tasks->items[i];
        kb_time rank = rank_of(runs, &runs->candidates.items[t.candidate]);
        size_t at = i;
        for (; at > 0 &&
               rank_of(runs, &runs->candidates.items[tasks->items[at - 1].candidate]) < rank;
             at--)
            tasks->items[at] = tasks->items[at - 1];
        tasks->items[at] = t;
    }
}

/* So many runs fit into the time. */
static size_t count_fitting(const what_if *runs)
{
    static const double most = 1e6;
    double turns = runs->run_s > 0 ? runs->has.seconds / runs->run_s : most;
    size_t fitting = (size_t)(turns < most ? turns : most) * runs->cores;
    return fitting < runs->cores ? runs->cores : fitting;
}

/* Each at the factor 2 in order of rank, but those of which the path expects nothing, and those
 * for which no run is left, in one run together, the last one that fits. Settings of the user's and
 * groups of resources stay alone. */
static bool plan_first_runs(what_if *runs, task_list *tasks)
{
    bool good = true;
    for (size_t i = 0; i < runs->candidates.count; i++)
        good = good && add_task(tasks, (int)i, HALF);
    sort_tasks(runs, tasks);
    size_t fitting = count_fitting(runs), left = fitting > 1 ? fitting - 1 : 1, kept = 0;
    for (size_t i = 0; i < tasks->count && good; i++) {
        candidate *c = &runs->candidates.items[tasks->items[i].candidate];
        bool has_run = is_expected(runs, c) && left > 0;
        left -= has_run;
        c->is_joint = !has_run && !c->own && !c->is_group;
        if (has_run)
            tasks->items[kept++] = tasks->items[i];
        if (c->is_joint)
            kb_text_puts(&runs->together, kb_text_peek(&c->settings[MOST]));
    }
    tasks->count = kept;
    good = good && !runs->together.failed;
    return good && (runs->together.length == 0 || add_task(tasks, TOGETHER, MOST));
}

/* At the factor 2 what those runs have not told of. */
static bool plan_rest(what_if *runs, task_list *tasks)
{
    bool none = runs->of_together.state == MEASURED && runs->of_together.fs == runs->base;
    bool good = true;
    tasks->count = 0;
    for (size_t i = 0; i < runs->candidates.count; i++) {
        candidate *c = &runs->candidates.items[i];
        for (int f = 0; f < FACTORS && none && c->is_joint; f++)
            c->results[f].state = NO_EFFECT_TOGETHER;
        if (c->results[HALF].state == UNTRIED)
            good = good && add_task(tasks, (int)i, HALF);
    }
    sort_tasks(runs, tasks);
    return good;
}

/* `all`: each alone. */
static kb_code try_at_two(what_if *runs, bool all)
{
    task_list tasks = {0};
    kb_code code = KB_OK;
    if (!all)
        code =
            plan_first_runs(runs, &tasks) ? run_tasks(runs, &tasks) : cli_report(kb_error_nomem());
    if (code == KB_OK)
        code = plan_rest(runs, &tasks) ? run_tasks(runs, &tasks) : cli_report(kb_error_nomem());
    kb_vec_fini(&tasks);
    return code;
}

/* `all`: also where the factor 2 had none: a larger one may have. */
static kb_code try_others(what_if *runs, bool all)
{
    static const int order[] = {MOST, 0};
    kb_code code = KB_OK;
    for (size_t k = 0; k < sizeof order / sizeof order[0] && code == KB_OK; k++) {
        task_list tasks = {0};
        bool good = true;
        for (size_t i = 0; i < runs->candidates.count; i++) {
            candidate *c = &runs->candidates.items[i];
            if (c->results[HALF].state == NO_TIME)
                c->results[order[k]].state = NO_TIME;
            if (!c->own && c->results[order[k]].state == UNTRIED &&
                (all || gain_of(runs, &c->results[HALF]) != 0))
                good = good && add_task(&tasks, (int)i, order[k]);
        }
        sort_tasks(runs, &tasks);
        code = good ? run_tasks(runs, &tasks) : cli_report(kb_error_nomem());
        kb_vec_fini(&tasks);
    }
    return code;
}

/* ---- The document ------------------------------------------------------------------------ */

static json_t *result_json(const what_if *runs, const result *r)
{
    switch (r->state) {
    case MEASURED: {
        kb_time gain = gain_of(runs, r);
        return json_pack("{s:I, s:I, s:o, s:o, s:o, s:o}", "fs", (json_int_t)r->fs, "gain_fs",
                         (json_int_t)gain, "gain", cli_json_real((double)gain / (double)runs->base),
                         "same_path", r->path_known ? json_boolean(r->same_path) : json_null(),
                         "same_waits", r->path_known ? json_boolean(r->same_waits) : json_null(),
                         "most", r->most ? cli_json_text(r->most) : json_null());
    }
    case NO_EFFECT_TOGETHER:
        return json_pack("{s:I, s:I, s:f, s:n, s:b}", "fs", (json_int_t)runs->base, "gain_fs",
                         (json_int_t)0, "gain", 0.0, "same_path", "together", 1);
    case FAILS:
        return json_pack("{s:o}", "fails", cli_json_text(r->message ? r->message : ""));
    case NO_TIME:
        return json_pack("{s:s}", "not_measured", "no time left");
    case UNTRIED:
        break;
    }
    return json_null();
}

static json_t *settings_json(const kb_text *lines)
{
    json_t *array = json_array();
    const char *line = kb_text_peek(lines);
    while (*line) {
        size_t length = strcspn(line, "\n");
        cli_json_append(&array, json_stringn(line, length));
        line += length + (line[length] == '\n');
    }
    return array;
}

/* What the run that the candidate shares with others gains; null: it has none, or that of no
 * effect. */
static json_t *together_json(const what_if *runs, const candidate *c)
{
    kb_time gain = gain_of(runs, &runs->of_together);
    if (!c->is_joint || gain == 0)
        return json_null();
    return json_pack("{s:s, s:I, s:o}", "factor", factor_names[MOST], "gain_fs", (json_int_t)gain,
                     "gain", cli_json_real((double)gain / (double)runs->base));
}

static json_t *candidate_json(const what_if *runs, const candidate *c)
{
    json_t *measured = json_object(), *estimates = json_object();
    for (int f = 0; f < FACTORS; f++) {
        if (c->own && f != HALF)
            continue;
        const char *name = c->own ? "own" : factor_names[f];
        cli_json_set(&measured, name, result_json(runs, &c->results[f]));
        cli_json_set(&estimates, name,
                     c->estimate[f] < 0 ? json_null() : json_integer((json_int_t)c->estimate[f]));
    }
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o}", "resource", c->key, "name",
                     cli_json_text(c->name), "settings", settings_json(&c->settings[HALF]),
                     "measured", measured, "together", together_json(runs, c), "estimate_fs",
                     estimates);
}

static kb_time best_gain(const what_if *runs, const candidate *c)
{
    kb_time best = 0;
    for (int f = 0; f < FACTORS; f++) {
        kb_time gain = gain_of(runs, &c->results[f]);
        best = gain > best || best == 0 ? gain : best;
    }
    return gain_of(runs, &c->results[HALF]) != 0 ? gain_of(runs, &c->results[HALF]) : best;
}

/* By gain, then by what the path expects; a group comes behind what it consists of. */
static bool is_before(const what_if *runs, const candidate *a, const candidate *b)
{
    kb_time gain_a = best_gain(runs, a), gain_b = best_gain(runs, b);
    if (a->is_group != b->is_group)
        return b->is_group;
    return gain_a != gain_b ? gain_a > gain_b : a->estimate[HALF] > b->estimate[HALF];
}

static json_t *table_json(const what_if *runs)
{
    size_t count = runs->candidates.count;
    json_t *table = json_array();
    bool *done = kb_alloc_zeroed(count + 1, sizeof *done);
    for (size_t n = 0; n < count && done; n++) {
        size_t best = SIZE_MAX;
        for (size_t i = 0; i < count; i++)
            if (!done[i] && (best == SIZE_MAX || is_before(runs, &runs->candidates.items[i],
                                                           &runs->candidates.items[best])))
                best = i;
        done[best] = true;
        cli_json_append(&table, candidate_json(runs, &runs->candidates.items[best]));
    }
    free(done);
    return done ? table : NULL;
}

kb_code what_if_measure(what_if *runs, const json_t *path, json_t **table)
{
    *table = NULL;
    runs->base = explain_fs(path, "fs");
    snprintf(runs->signature, sizeof runs->signature, "%s", explain_string(path, "signature"));
    snprintf(runs->waits, sizeof runs->waits, "%s", explain_string(path, "waits"));
    if (!add_candidates(runs, path))
        return cli_report(kb_error_nomem());
    static const double without_path = 0.6; /* of the time with it */
    double all_s = runs->base_s * (double)(runs->candidates.count * FACTORS) / runs->cores;
    bool alone = all_s <= runs->has.seconds / 2;
    runs->with_path = alone;
    runs->run_s = alone ? runs->base_s : without_path * runs->base_s;
    kb_code code = try_at_two(runs, alone);
    if (code == KB_OK)
        code = try_others(runs, alone);
    if (code == KB_OK)
        *table = table_json(runs);
    return code == KB_OK && !*table ? cli_report(kb_error_nomem()) : code;
}
