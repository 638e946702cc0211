/*
 * composite.c: the schedulers of the PEs. A product is done in the steps of its plan (gemm_plan.h),
 * in their order: what a step needs is loaded as soon as there is space, the array takes steps that
 * are loaded, and parts of c are stored when their last step is done. Each is a command to a unit,
 * so all of it overlaps with itself and with what the kernel does.
 *
 * Invariant: `used` is the space of all that is loaded or being loaded and still needed, and of
 * parts of c from their first step until they are stored; it is never more than the scheduler has.
 * Steps take their space in order, and what one step needs always fits beside what stays, so each
 * step finds it once those before it are done.
 *
 * At most as many loads are under way as the DMA has channels: they come in order, so more would
 * only hold up what the kernel itself loads.
 *
 * Products follow each other: when all steps of one have been handed out the next one begins.
 *
 * Not modelled: where in the TCM something lies, and how long the scheduler itself takes.
 */
#include "composite.h"

#include <stdlib.h>
#include <string.h>

#include "gemm_matrix.h"
#include "gemm_plan.h"

enum {
    NONE = 0,       /* of tasks: pools give out no index 0 */
    MAX_TASKS = 16, /* of a PE that are not multiplied: enough to keep all units busy */
    PLANS = 64,     /* that are remembered */
};

typedef struct scheduler scheduler;

/* A product. */
typedef struct job {
    struct job *prev, *next; /* of its PE, in the order of issue */
    scheduler *at;
    pe_product is; /* its rects mean nothing */
    gemm_matrix a, b, c;
    gemm_plan plan;
    gemm_cursor cursor;
    gemm_step step; /* the next one, */
    bool has_step;  /* if there is one */
    bool is_ready;  /* may begin */
    bool has_begun;
    kb_time ready_at, begun_at;
    kb_reason ready_by; /* if records have ids */
    uint64_t stores;    /* of steps that were handed out, not done */
    pe_op op;
} job;

/* A step that was handed out. */
typedef struct task {
    job *of;
    gemm_step step;
    bool is_loaded;
    bool is_final;            /* of its product */
    uint32_t next;            /* in the order of steps */
    uint32_t id;              /* of the record of its last command */
    pe_part part;             /* its command of the array */
    kb_op entry;              /* of that, for the log; */
    kb_op_access accesses[2]; /* and by what is loaded or stored, while the log is watched */
} task;

/* Of a PE. */
struct scheduler {
    pe_composites *all;
    kb_pe pe;
    job *first, *last; /* not done */
    job *current;      /* the first of these with steps to hand out */
    uint64_t under_way;
    uint64_t used;          /* bytes of its part of the TCM */
    uint32_t tasks;         /* not multiplied */
    uint32_t loads;         /* under way */
    uint32_t waiting, tail; /* tasks that the array has not been told of, in order */
    bool is_advancing;
    kb_reason by;      /* if records have ids: why it does now what it does */
    uint64_t last_job; /* the record of the last product that is done */
};

typedef struct known_plan {
    gemm_problem problem;
    gemm_plan plan;
} known_plan;

struct pe_composites {
    kb_sim *sim;
    const topo_machine *machine;
    const topo_shape *shape;
    pe_units *units;
    kb_oplog *log;
    scheduler **schedulers; /* by number of the PE; NULL until it is used */
    kb_pool tasks;
    gemm_rects rects; /* of the command in hand */
    uint32_t *steps;  /* of a route */
    known_plan *plans;
};

/* ---- Plans ------------------------------------------------------------------------------- */

/* What is known of the memories of a product. */
typedef struct pace {
    uint64_t bytes;
    kb_time time;    /* that they take, one memory after the other */
    kb_time latency; /* of the farthest */
} pace;

static uint32_t node_of(const pe_composites *all, const kb_location *at)
{
    topo_kind kind = at->memory == KB_HBM    ? TOPO_HBM_CTRL
                     : at->memory == KB_SRAM ? TOPO_SRAM
                                             : TOPO_PE_DMA;
    return topo_node_at(all->machine, kind, at->pe.sip, at->pe.cube,
                        kind == TOPO_SRAM ? 0 : at->pe.pe);
}

/* What the way adds to what passes it; *bytes_per_s becomes that of its narrowest link if that is
 * less. */
static kb_time look_at_way(pe_composites *all, uint32_t from, uint32_t to, bool data,
                           uint64_t *bytes_per_s)
{
    const topo_graph *graph = topo_machine_graph(all->machine);
    uint32_t count = topo_route(all->machine, from, to, data, all->steps);
    kb_time latency = topo_source_overhead(graph, from);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t link = topo_step_link(all->steps[i]);
        uint64_t rate = topo_link_rate(graph, link);
        *bytes_per_s = rate < *bytes_per_s ? rate : *bytes_per_s;
        latency = kb_time_add(latency, graph->links.items[link].wire_fs);
        latency = kb_time_add(latency, topo_link_overhead(graph, link));
    }
    return latency;
}

static void add_pace(pe_composites *all, kb_pe pe, const gemm_matrix *x, pace *p)
{
    uint32_t own = topo_node_at(all->machine, TOPO_PE_DMA, pe.sip, pe.cube, pe.pe);
    uint32_t last = TOPO_NONE;
    uint64_t bytes_per_s = 0;
    for (size_t i = 0; i < x->count; i++) {
        uint32_t node = node_of(all, &x->rects[i].at);
        if (node == own)
            continue;
        if (node != last) {
            bytes_per_s = TOPO_RATE_MAX;
            kb_time latency = look_at_way(all, own, node, false, &(uint64_t){TOPO_RATE_MAX});
            latency = kb_time_add(latency, look_at_way(all, node, own, true, &bytes_per_s));
            p->latency = latency > p->latency ? latency : p->latency;
            last = node;
        }
        uint64_t bytes = mem_rect_bytes(&x->rects[i]);
        p->bytes += bytes;
        p->time = kb_time_add(p->time, topo_rate_time(bytes_per_s, bytes));
    }
}

static bool is_same_problem(const gemm_problem *a, const gemm_problem *b)
{
    return a->m == b->m && a->k == b->k && a->n == b->n && a->a_bytes == b->a_bytes &&
           a->b_bytes == b->b_bytes && a->c_bytes == b->c_bytes && a->a_streams == b->a_streams &&
           a->b_streams == b->b_streams && a->bytes_per_s == b->bytes_per_s &&
           a->latency == b->latency && a->space == b->space;
}

/* Kernels do the same products over and over, on many PEs. */
static kb_error *find_plan(pe_composites *all, const gemm_problem *problem, gemm_plan *plan)
{
    uint64_t mixed = (problem->m * 31 + problem->k) * 31 + problem->n;
    known_plan *known = &all->plans[mixed % PLANS];
    if (!is_same_problem(&known->problem, problem)) {
        KB_TRY(gemm_plan_make(&all->shape->pe, problem, &known->plan));
        known->problem = *problem;
    }
    *plan = known->plan;
    return NULL;
}

static kb_error *make_plan(pe_composites *all, job *jb)
{
    pace p = {0};
    add_pace(all, jb->at->pe, &jb->a, &p);
    add_pace(all, jb->at->pe, &jb->b, &p);
    add_pace(all, jb->at->pe, &jb->c, &p);
    gemm_problem problem = {
        .m = jb->is.m,
        .k = jb->is.k,
        .n = jb->is.n,
        .a_bytes = jb->a.element_bytes,
        .b_bytes = jb->b.element_bytes,
        .c_bytes = jb->c.element_bytes,
        .a_streams = jb->a.count > 0,
        .b_streams = jb->b.count > 0,
        .space = all->shape->tcm_reserved_bytes,
        .bytes_per_s = all->shape->pe.tcm_bytes_per_s,
        .latency = p.latency,
    };
    if (p.time > 0) {
        const unsigned __int128 fs_per_s = (unsigned __int128)KB_S;
        problem.bytes_per_s = (uint64_t)(p.bytes * fs_per_s / (uint64_t)p.time);
    }
    KB_TRY(find_plan(all, &problem, &jb->plan));
    jb->has_step = gemm_plan_next(&jb->plan, &jb->cursor, &jb->step);
    return NULL;
}

/* ---- Products ---------------------------------------------------------------------------- */

static void job_destroy(job *jb)
{
    gemm_matrix_fini(&jb->a);
    gemm_matrix_fini(&jb->b);
    gemm_matrix_fini(&jb->c);
    free(jb);
}

static kb_op op_of(const job *jb, const char *name)
{
    const kb_op *op = &jb->is.op;
    return (kb_op){
        .name = name, .label = op->label, .launch = op->launch, .file = op->file, .line = op->line};
}

/* `last`: the record of its last store. */
static void end_job(job *jb, uint32_t last)
{
    scheduler *at = jb->at;
    pe_composites *all = at->all;
    kb_op op = jb->is.op;
    op.unit = KB_UNIT_SCHEDULER;
    op.name = "gemm";
    op.pe = at->pe;
    op.start = jb->begun_at;
    op.end = kb_sim_now(all->sim);
    op.bytes = jb->plan.loaded + jb->plan.stored;
    op.flops = pe_gemm_flops(jb->is.m, jb->is.k, jb->is.n);
    if (KB_UNLIKELY(op.id != 0))
        op.ended_by = (kb_reason){KB_REASON_INPUT, last};
    at->last_job = op.id;
    kb_oplog_add(all->log, pe_units_number(all->units, at->pe), &op);
    at->under_way--;
    KB_LIST_REMOVE(at->first, at->last, jb);
    KB_DEBUG_ASSERT(at->first || at->used == 0);
    if (jb->is.ended)
        jb->is.ended(jb->is.self, jb->is.arg);
    pe_units_close(all->units, jb->op); /* now what reads c may begin */
    job_destroy(jb);
}

/* ---- Steps ------------------------------------------------------------------------------- */

static void advance(scheduler *at);

static task *task_at(const scheduler *at, uint64_t index)
{
    return kb_pool_at(&at->all->tasks, (uint32_t)index);
}

static void fail(const scheduler *at, kb_error *err)
{
    if (err)
        kb_sim_fail(at->all->sim, err);
}

/* A command of the task gets an id, and the reason that it is issued now. */
static void give_id(const scheduler *at, task *t, kb_op *op)
{
    t->id = kb_oplog_new_id(at->all->log);
    op->id = t->id;
    if (KB_UNLIKELY(t->id != 0))
        op->begun_by = at->by;
}

static void on_stored(void *self, uint64_t arg)
{
    scheduler *at = self;
    const task *done = task_at(at, arg);
    job *jb = done->of;
    uint32_t id = done->id;
    at->by = (kb_reason){KB_REASON_SPACE, id};
    at->used -= gemm_sum_space(&jb->plan, done->step.rows, done->step.columns);
    kb_pool_give(&at->all->tasks, (uint32_t)arg);
    if (--jb->stores == 0 && !jb->has_step)
        end_job(jb, id);
    advance(at);
}

/* Adds what the DMA accesses of the matrix for a block of it. */
static void note_access(task *t, const pe_matrix *x, gemm_range rows, gemm_range columns, kb_op *op)
{
    if (KB_LIKELY(!x->access))
        return;
    kb_op_access *part = &t->accesses[op->access_count++];
    *part = *x->access;
    part->offset += rows.first * x->row_stride + columns.first * x->column_stride;
    part->bytes = (rows.count - 1) * x->row_stride + (columns.count - 1) * x->column_stride +
                  x->element_bytes;
    op->accesses = t->accesses;
}

static kb_error *store(scheduler *at, uint32_t t)
{
    pe_composites *all = at->all;
    task *done = task_at(at, t);
    const gemm_step *s = &done->step;
    all->rects.count = 0;
    const gemm_range rows = {s->row, s->rows}, columns = {s->column, s->columns};
    KB_TRY(gemm_matrix_cut(&done->of->c, rows, columns, &all->rects));
    pe_command command = {
        .unit = KB_UNIT_DMA_WRITE,
        .rects = all->rects.items,
        .rect_count = all->rects.count,
        .internal = true,
        .part_of = done->of->op,
        .ended = on_stored,
        .self = at,
        .arg = t,
        .op = op_of(done->of, "store"),
    };
    note_access(done, &done->of->is.c, rows, columns, &command.op);
    give_id(at, done, &command.op);
    pe_op op;
    return pe_units_issue(all->units, at->pe, &command, &op);
}

static void on_multiplied(void *self, uint64_t arg)
{
    scheduler *at = self;
    const task *done = task_at(at, arg);
    uint32_t id = done->id;
    at->by = (kb_reason){KB_REASON_INPUT, id};
    at->tasks--;
    at->used -= done->step.a_freed + done->step.b_freed;
    if (done->step.is_last)
        fail(at, store(at, (uint32_t)arg));
    else
        kb_pool_give(&at->all->tasks, (uint32_t)arg);
    at->by = (kb_reason){KB_REASON_SPACE, id};
    advance(at);
}

/* What the log is told of the array's command. */
static kb_op *entry_of(const scheduler *at, task *t)
{
    t->entry = op_of(t->of, "gemm");
    t->entry.unit = KB_UNIT_GEMM;
    t->entry.pe = at->pe;
    t->entry.flops = t->part.work.flops;
    give_id(at, t, &t->entry);
    return &t->entry;
}

/*
 * The array goes from one step to the next without waiting for results: only what is stored has to
 * have left it. If it fills and drains with each fold a step ends one cycle before the next may
 * begin.
 */
static void multiply(scheduler *at, uint32_t t)
{
    pe_composites *all = at->all;
    const topo_pe_params *params = &all->shape->pe;
    task *next = task_at(at, t);
    const job *jb = next->of;
    const gemm_step *s = &next->step;
    pe_gemm_time time = pe_gemm_time_of(params, s->rows, s->depths, s->columns);
    if (params->gemm_fill_per_fold && !next->is_final)
        time.occupied = kb_time_add(time.occupied, params->gemm_cycle_fs);
    uint64_t elements = s->rows * s->columns, sums = elements * GEMM_SUM_BYTES;
    pe_part *part = &next->part;
    pe_work *work = &part->work;
    part->ended = on_multiplied;
    part->self = at;
    part->arg = t;
    work->unit = KB_UNIT_GEMM;
    work->time = time.occupied;
    work->tail = s->is_last ? time.fill : 0;
    work->tcm_reads = pe_gemm_reads(params, s->rows, s->depths, s->columns, jb->a.element_bytes,
                                    jb->b.element_bytes) +
                      (s->is_first ? 0 : sums);
    work->tcm_writes = s->is_last ? elements * jb->c.element_bytes : sums;
    work->name = "gemm";
    work->of_kernel = jb->is.op.launch != 0;
    work->flops = pe_gemm_flops(s->rows, s->depths, s->columns);
    work->entry = KB_UNLIKELY(kb_oplog_is_watched(all->log)) ? entry_of(at, next) : NULL;
    pe_units_issue_part(all->units, jb->op, part);
}

/* The array takes steps in their order. */
static void multiply_loaded(scheduler *at)
{
    while (at->waiting != NONE && task_at(at, at->waiting)->is_loaded) {
        uint32_t t = at->waiting;
        at->waiting = task_at(at, t)->next;
        multiply(at, t);
    }
}

static void on_loaded(void *self, uint64_t arg)
{
    scheduler *at = self;
    task *t = task_at(at, arg);
    uint32_t id = t->id;
    t->is_loaded = true;
    at->loads--;
    at->by = (kb_reason){KB_REASON_INPUT, id};
    multiply_loaded(at);
    at->by = (kb_reason){KB_REASON_SPACE, id}; /* a channel for the next load */
    advance(at);
}

static kb_error *load(scheduler *at, uint32_t t)
{
    pe_composites *all = at->all;
    task *next = task_at(at, t);
    const job *jb = next->of;
    const gemm_step *s = &next->step;
    const gemm_range rows = {s->row, s->rows}, columns = {s->column, s->columns};
    const gemm_range depths = {s->depth, s->depths};
    kb_op op = op_of(jb, "load");
    all->rects.count = 0;
    if (s->a_loaded > 0) {
        KB_TRY(gemm_matrix_cut(&jb->a, rows, depths, &all->rects));
        note_access(next, &jb->is.a, rows, depths, &op);
    }
    if (s->b_loaded > 0) {
        KB_TRY(gemm_matrix_cut(&jb->b, depths, columns, &all->rects));
        note_access(next, &jb->is.b, depths, columns, &op);
    }
    give_id(at, next, &op);
    at->loads++;
    pe_command command = {
        .unit = KB_UNIT_DMA_READ,
        .rects = all->rects.items,
        .rect_count = all->rects.count,
        .internal = true,
        .part_of = jb->op,
        .ended = on_loaded,
        .self = at,
        .arg = t,
        .op = op,
    };
    pe_op issued;
    return pe_units_issue(all->units, at->pe, &command, &issued);
}

/* Whether the next step of the product can be handed out. */
static bool has_room(const scheduler *at, const job *jb)
{
    const gemm_step *s = &jb->step;
    uint64_t loaded = s->a_loaded + s->b_loaded;
    if (at->tasks == MAX_TASKS || at->used + loaded + s->sums > at->all->shape->tcm_reserved_bytes)
        return false;
    return loaded == 0 || at->loads < at->all->shape->pe.dma_channels;
}

/* Hands out the next step of the product: it is loaded, or waits for the array. */
static kb_error *hand_out(scheduler *at, job *jb)
{
    uint32_t t = kb_pool_take(&at->all->tasks);
    if (t == NONE)
        return kb_error_nomem();
    task *new = task_at(at, t);
    new->of = jb;
    new->step = jb->step;
    new->next = NONE;
    new->id = 0; /* the rest is set before it is used */
    uint64_t loaded = jb->step.a_loaded + jb->step.b_loaded;
    new->is_loaded = loaded == 0;
    at->tasks++;
    at->used += loaded + jb->step.sums;
    KB_DEBUG_ASSERT(at->used <= at->all->shape->tcm_reserved_bytes);
    jb->stores += jb->step.is_last;
    if (at->waiting == NONE)
        at->waiting = t;
    else
        task_at(at, at->tail)->next = t;
    at->tail = t;
    jb->has_step = gemm_plan_next(&jb->plan, &jb->cursor, &jb->step);
    new->is_final = !jb->has_step;
    if (loaded > 0)
        return load(at, t);
    multiply_loaded(at);
    return NULL;
}

static kb_error *begin(scheduler *at, job *jb)
{
    jb->has_begun = true;
    jb->begun_at = kb_sim_now(at->all->sim);
    if (KB_UNLIKELY(jb->is.op.id != 0)) {
        kb_reason freed = {KB_REASON_UNIT, at->by.id}; /* by a command of the product before it */
        at->by = jb->is.op.begun_by = jb->ready_at == jb->begun_at ? jb->ready_by : freed;
    }
    kb_oplog_start(at->all->log, pe_units_number(at->all->units, at->pe), jb->begun_at,
                   KB_UNIT_SCHEDULER);
    return jb->is.begun ? jb->is.begun(jb->is.self, jb->is.arg) : NULL;
}

static kb_error *try_advance(scheduler *at)
{
    while (at->current && at->current->is_ready) {
        job *jb = at->current;
        if (!jb->has_begun)
            KB_TRY(begin(at, jb));
        while (jb->has_step && has_room(at, jb))
            KB_TRY(hand_out(at, jb));
        if (jb->has_step)
            return NULL;
        at->current = jb->next;
    }
    return NULL;
}

/* Does what can be done now. What ends at once comes back here: then the call that is at it goes
 * on. */
static void advance(scheduler *at)
{
    if (at->is_advancing)
        return;
    at->is_advancing = true;
    fail(at, try_advance(at));
    at->is_advancing = false;
}

/* ---- Interface --------------------------------------------------------------------------- */

kb_error *pe_composites_create(kb_sim *sim, const topo_machine *machine, pe_units *units,
                               kb_oplog *log, pe_composites **out)
{
    *out = NULL;
    pe_composites *all = kb_alloc_zeroed(1, sizeof *all);
    if (!all)
        return kb_error_nomem();
    all->sim = sim;
    all->machine = machine;
    all->shape = topo_machine_shape(machine);
    all->units = units;
    all->log = log;
    kb_pool_init(&all->tasks, sizeof(task));
    all->schedulers = kb_alloc_zeroed(all->shape->pe_count, sizeof(scheduler *));
    all->steps = kb_alloc_array(all->shape->max_steps, sizeof *all->steps);
    all->plans = kb_alloc_zeroed(PLANS, sizeof *all->plans);
    if (!all->schedulers || !all->steps || !all->plans) {
        pe_composites_destroy(all);
        return kb_error_nomem();
    }
    *out = all;
    return NULL;
}

void pe_composites_destroy(pe_composites *composites)
{
    if (!composites)
        return;
    for (uint64_t pe = 0; composites->schedulers && pe < composites->shape->pe_count; pe++) {
        scheduler *at = composites->schedulers[pe];
        while (at && at->first) {
            job *jb = at->first;
            at->first = jb->next;
            job_destroy(jb);
        }
        free(at);
    }
    free(composites->schedulers);
    free(composites->steps);
    free(composites->plans);
    kb_vec_fini(&composites->rects);
    kb_pool_fini(&composites->tasks);
    free(composites);
}

static kb_error *need_scheduler(pe_composites *all, kb_pe pe, scheduler **out)
{
    scheduler **at = &all->schedulers[pe_units_number(all->units, pe)];
    if (!*at) {
        *at = kb_alloc_zeroed(1, sizeof **at);
        if (!*at)
            return kb_error_nomem();
        (*at)->all = all;
        (*at)->pe = pe;
    }
    *out = *at;
    return NULL;
}

static kb_error *fill_job(pe_composites *all, job *jb, const pe_product *product)
{
    KB_ASSERT(product->m > 0 && product->k > 0 && product->n > 0);
    KB_ASSERT(product->a.element_bytes > 0 && product->b.element_bytes > 0 &&
              product->c.element_bytes > 0);
    jb->is = *product;
    if (jb->is.op.id == 0)
        jb->is.op.id = kb_oplog_new_id(all->log);
    KB_TRY(gemm_matrix_init(&jb->a, &product->a, product->m, product->k));
    KB_TRY(gemm_matrix_init(&jb->b, &product->b, product->k, product->n));
    KB_TRY(gemm_matrix_init(&jb->c, &product->c, product->m, product->n));
    return make_plan(all, jb);
}

static void on_ready(void *self, uint64_t arg)
{
    job *jb = self;
    (void)arg;
    jb->is_ready = true;
    jb->ready_at = kb_sim_now(jb->at->all->sim);
    jb->ready_by = pe_units_begun_by(jb->at->all->units, jb->op);
    advance(jb->at);
}

/* Tells the units of it, which say when it may begin. */
static kb_error *open_job(pe_composites *all, job *jb, const pe_product *product)
{
    all->rects.count = 0;
    if (!kb_vec_reserve(&all->rects, jb->a.count + jb->b.count))
        return kb_error_nomem();
    for (size_t i = 0; i < jb->a.count; i++)
        all->rects.items[all->rects.count++] = jb->a.rects[i];
    for (size_t i = 0; i < jb->b.count; i++)
        all->rects.items[all->rects.count++] = jb->b.rects[i];
    pe_span span = {
        .reads = all->rects.items,
        .read_count = all->rects.count,
        .writes = jb->c.rects,
        .write_count = jb->c.count,
        .issued = product->issued,
        .uses_engines = true,
        .ready = on_ready,
        .self = jb,
        .id = jb->is.op.id,
        .issued_by = jb->is.op.begun_by,
    };
    memcpy(span.inputs, product->inputs, sizeof span.inputs);
    return pe_units_open(all->units, jb->at->pe, &span, &jb->op);
}

kb_error *pe_composites_issue(pe_composites *composites, kb_pe pe, const pe_product *product,
                              pe_op *op)
{
    *op = 0;
    scheduler *at = NULL;
    KB_TRY(need_scheduler(composites, pe, &at));
    job *jb = kb_alloc_zeroed(1, sizeof *jb);
    if (!jb)
        return kb_error_nomem();
    jb->at = at;
    kb_error *err = fill_job(composites, jb, product);
    if (!err)
        err = open_job(composites, jb, product); /* maybe it is ready at once, but not queued */
    if (err) {
        job_destroy(jb);
        return err;
    }
    *op = jb->op;
    KB_LIST_APPEND(at->first, at->last, jb);
    if (!at->current)
        at->current = jb;
    at->under_way++;
    advance(at);
    return NULL;
}

uint64_t pe_composites_under_way(const pe_composites *composites, kb_pe pe)
{
    const scheduler *at = composites->schedulers[pe_units_number(composites->units, pe)];
    return at ? at->under_way : 0;
}

uint64_t pe_composites_last_done(const pe_composites *composites, kb_pe pe)
{
    const scheduler *at = composites->schedulers[pe_units_number(composites->units, pe)];
    return at ? at->last_job : 0;
}
