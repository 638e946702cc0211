/*
 * walk.c: the critical path, from the end of the run to its begin: at each record back to what its
 * time waited for. Each step ends where the next one begins, so the chain has no gaps. A walk never
 * goes forward in time and in no cycle, as what is named was decided before.
 */
#include "path_private.h"

#include <stdlib.h>
#include <string.h>

typedef struct walk {
    const explain_recorder *recorder;
    explain_path *path; /* its steps in the order of the walk, the last one first */
    kb_time time;       /* what is later has steps */
    kb_reason_kind by;  /* why what comes after waits until `time` */
    bool failed;
} walk;

static bool is_own_time(kb_reason_kind kind)
{
    return kind == KB_REASON_NONE || kind == KB_REASON_TRANSFER || kind == KB_REASON_TCM ||
           kind == KB_REASON_WORK;
}

static bool is_kernel(const explain_recorder *r, const explain_record *record)
{
    const explain_site *site = &r->sites.items[record->site];
    return site->unit == KB_UNIT_CPU && strcmp(site->name, "kernel") == 0;
}

/* From `from` to the time of the walk; a step of no time is none. */
static void add_step(walk *w, uint32_t id, explain_step_kind kind, kb_time from, uint32_t launch)
{
    if (from >= w->time)
        return;
    explain_step step = {.from = from,
                         .to = w->time,
                         .id = id,
                         .kind = (uint8_t)kind,
                         .led_by = (uint8_t)w->by,
                         .launch = launch};
    w->failed |= !kb_vec_push(&w->path->steps, step);
    w->time = from;
}

/* ---- What was not recorded --------------------------------------------------------------- */

/* The kernel that ran on the PE just before that time, of those that were kept. */
static uint32_t find_kernel(const explain_recorder *r, uint32_t pe, kb_time before)
{
    uint32_t best = EXPLAIN_NONE;
    kb_time best_start = -1;
    for (size_t b = 0; b < r->blocks.count; b++)
        for (size_t i = 0; r->blocks.items[b] && i < BLOCK; i++) {
            const explain_record *k = &r->blocks.items[b][i];
            if (k->known && k->at == pe && k->start < before && k->end >= before &&
                k->start > best_start && is_kernel(r, k)) {
                best = (uint32_t)(b * BLOCK + i);
                best_start = k->start;
            }
        }
    for (size_t i = 0; i < r->late_capacity; i++) {
        const explain_record *k = &r->late[i];
        if (r->late_ids[i] != EXPLAIN_NONE && k->known && k->at == pe && k->start < before &&
            k->end >= before && k->start > best_start && is_kernel(r, k)) {
            best = r->late_ids[i];
            best_start = k->start;
        }
    }
    return best;
}

/* ---- The walk ---------------------------------------------------------------------------- */

/* Why a kernel that was begun waited: the rest of its step's time, and where the walk goes on. */
static uint32_t leave(walk *w, uint32_t id, const explain_record *record)
{
    const explain_recorder *r = w->recorder;
    const explain_record *next = explain_record_at(r, record->begun_id);
    w->by = (kb_reason_kind)record->begun;
    if (next)
        return record->begun_id;
    if (is_kernel(r, record) || r->sites.items[record->site].is_control)
        return EXPLAIN_NONE;
    uint32_t kernel = find_kernel(r, record->at, w->time);
    return kernel == id ? EXPLAIN_NONE : kernel;
}

/* The next record, and the time of the walk there. */
static uint32_t step_back(walk *w, uint32_t id)
{
    const explain_recorder *r = w->recorder;
    const explain_record *record = explain_record_at(r, id);
    bool kernel = is_kernel(r, record);
    if (record->end < w->time) /* its end was seen later */
        add_step(w, id, r->sites.items[record->site].is_control ? EXPLAIN_HOST : EXPLAIN_POLL,
                 record->end, record->launch);
    /* A kernel without operations ends by its own launch. */
    const explain_record *ended =
        record->ended_id != id ? explain_record_at(r, record->ended_id) : NULL;
    if (w->time == record->end && !is_own_time((kb_reason_kind)record->ended) && ended) {
        w->by = (kb_reason_kind)record->ended;
        if (kernel && ended->end < w->time) /* the pe_cpu's own time at the end */
            add_step(w, id, EXPLAIN_POLL, ended->end, record->launch);
        return record->ended_id;
    }
    bool whole = kernel && w->time == record->end && record->ended_id != id;
    add_step(w, id,
             whole    ? EXPLAIN_KERNEL
             : kernel ? EXPLAIN_START
                      : EXPLAIN_OWN,
             record->start, record->launch);
    return leave(w, id, record);
}

static void reverse(explain_path *path)
{
    for (size_t i = 0, j = path->steps.count; i + 1 < j; i++) {
        explain_step last = path->steps.items[--j];
        path->steps.items[j] = path->steps.items[i];
        path->steps.items[i] = last;
    }
}

/* A message belongs to the launch that it starts, or else to the one whose end it tells of. */
static void give_launches(explain_path *path)
{
    const explain_recorder *r = path->recorder;
    uint32_t next = 0, last = 0;
    for (size_t i = path->steps.count; i-- > 0;) {
        explain_step *step = &path->steps.items[i];
        const explain_record *record = explain_record_at(r, step->id);
        next = step->launch ? step->launch : next;
        if (record && r->sites.items[record->site].is_control &&
            strcmp(r->sites.items[record->site].name, "completion") != 0)
            step->launch = next;
    }
    for (size_t i = 0; i < path->steps.count; i++) {
        explain_step *step = &path->steps.items[i];
        last = step->launch ? step->launch : last;
        if (step->kind != EXPLAIN_HOST)
            step->launch = last;
    }
}

static const explain_site *control_site(const explain_path *path, const explain_step *step)
{
    const explain_record *record = explain_record_at(path->recorder, step->id);
    const explain_site *site = record ? &path->recorder->sites.items[record->site] : NULL;
    return site && site->is_control ? site : NULL;
}

/* Messages from a command of the host to the next one are of a launch if a kernel is among them. */
static void find_requests(explain_path *path)
{
    uint32_t host = topo_node_at(path->machine, TOPO_HOST, 0, 0, 0);
    bool has_kernel = false;
    size_t end = path->steps.count;
    for (size_t i = path->steps.count; i-- > 0;) {
        explain_step *step = &path->steps.items[i];
        const explain_site *site = control_site(path, step);
        has_kernel |= !site && step->id != EXPLAIN_NONE;
        bool is_first = i == 0 || (site && strcmp(site->name, "command") == 0 &&
                                   explain_record_at(path->recorder, step->id)->at == host);
        bool is_copy = site && strcmp(site->name, "copy") == 0;
        step->is_request = is_copy;
        if (!is_first)
            continue;
        for (size_t k = i; k < end && !has_kernel; k++)
            path->steps.items[k].is_request = control_site(path, &path->steps.items[k]) != NULL;
        end = i;
        has_kernel = false;
    }
}

static void add_hash(uint64_t *hash, uint64_t value)
{
    *hash = (*hash ^ value) * 0x100000001b3;
}

static void add_text_hash(uint64_t *hash, const char *text)
{
    for (; text && *text; text++)
        add_hash(hash, (unsigned char)*text);
}

static void sign(explain_path *path)
{
    const explain_recorder *r = path->recorder;
    uint64_t hash = 0xcbf29ce484222325, waits = hash;
    for (size_t i = 0; i < path->steps.count; i++) {
        const explain_step *step = &path->steps.items[i];
        const explain_record *record = explain_record_at(r, step->id);
        add_hash(&hash, (uint64_t)step->kind << 8 | step->led_by);
        if (!record)
            continue;
        const explain_site *site = &r->sites.items[record->site];
        add_hash(&hash, (uint64_t)record->at << 16 | (uint64_t)site->unit << 8 | record->ended);
        add_hash(&hash, (uint64_t)site->line);
        add_text_hash(&hash, site->name);
        for (uint32_t k = path->first_part.items[i]; k < path->first_part.items[i + 1]; k++) {
            const explain_part *part = &path->parts.items[k];
            bool has_link = part->link != TOPO_NONE;
            add_hash(&hash, has_link ? part->link : (uint64_t)part->resource << 8 | part->aspect);
        }
        add_hash(&waits, (uint64_t)record->queueing);
    }
    path->signature = hash;
    path->waits = waits;
}

kb_error *explain_find_path(const explain_recorder *recorder, kb_time end, explain_path *path)
{
    *path = (explain_path){.recorder = recorder, .machine = recorder->machine, .end = end};
    walk w = {.recorder = recorder, .path = path, .time = end};
    bool is_told =
        recorder->last_control_end >= recorder->last_end && recorder->last_control_end <= end;
    uint32_t id = is_told ? recorder->last_control : recorder->last;
    const explain_record *last = explain_record_at(recorder, id);
    if (last && last->end < end)
        add_step(&w, EXPLAIN_NONE, is_told ? EXPLAIN_HOST : EXPLAIN_STUCK, last->end, 0);
    /* No record is visited twice at one time, so there are at most two visits for each. */
    uint64_t left = 2 * recorder->recorded.operations + 2;
    while (last && id != EXPLAIN_NONE && w.time > 0 && !w.failed && left-- > 0)
        id = step_back(&w, id);
    add_step(&w, EXPLAIN_NONE, EXPLAIN_HOST, 0, 0);
    if (w.failed || recorder->out_of_memory) {
        explain_path_fini(path);
        return kb_error_nomem();
    }
    reverse(path);
    give_launches(path);
    find_requests(path);
    kb_error *err = explain_divide_path(path);
    if (err)
        explain_path_fini(path);
    else
        sign(path);
    return err;
}

void explain_path_fini(explain_path *path)
{
    kb_vec_fini(&path->steps);
    kb_vec_fini(&path->parts);
    kb_vec_fini(&path->first_part);
}
