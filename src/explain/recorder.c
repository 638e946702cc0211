/*
 * recorder.c: records of what was done, by number. Records of 64 bytes stand in blocks; what they
 * have in common, names and source lines, is kept once (sites).
 *
 * When blocks take all the memory that they may, later records are kept in a hash table, but only
 * those of kernels and control messages: these are few, and lead from launch to launch.
 */
#include "recorder_private.h"

#include <stdlib.h>
#include <string.h>

/* ---- Making one -------------------------------------------------------------------------- */

static void on_transfer(void *self, const kb_oplog_transfer *transfer);
static void on_control(void *self, const kb_oplog_control *control);

kb_error *explain_recorder_create(const topo_machine *machine, kb_oplog *log, uint64_t max_bytes,
                                  explain_recorder **out)
{
    *out = NULL;
    explain_recorder *r = kb_alloc_zeroed(1, sizeof *r);
    if (!r)
        return kb_error_nomem();
    r->machine = machine;
    r->max_blocks = max_bytes / (BLOCK * sizeof(explain_record));
    kb_oplog_watch_path(log, &(kb_oplog_path_watcher){on_transfer, on_control, r});
    *out = r;
    return NULL;
}

void explain_recorder_destroy(explain_recorder *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->blocks.count; i++)
        free(r->blocks.items[i]);
    for (size_t i = 0; i < r->sites.count; i++) {
        free((char *)(uintptr_t)r->sites.items[i].label);
        free((char *)(uintptr_t)r->sites.items[i].file);
    }
    kb_vec_fini(&r->blocks);
    kb_vec_fini(&r->sites);
    kb_vec_fini(&r->launches);
    free(r->late);
    free(r->late_ids);
    free(r);
}

/* ---- Sites ------------------------------------------------------------------------------- */

static bool is_same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool is_same_site(const explain_site *a, const explain_site *b)
{
    return a->unit == b->unit && a->line == b->line && a->is_control == b->is_control &&
           is_same_text(a->name, b->name) && is_same_text(a->file, b->file) &&
           is_same_text(a->label, b->label);
}

static char *copy_text(const char *text)
{
    size_t size = text ? strlen(text) + 1 : 0;
    char *copy = text ? kb_alloc_array(size, 1) : NULL;
    return copy ? memcpy(copy, text, size) : NULL;
}

static uint32_t add_site(explain_recorder *r, const explain_site *site)
{
    for (size_t i = 0; i < r->sites.count; i++)
        if (is_same_site(&r->sites.items[i], site))
            return (uint32_t)i;
    explain_site own = *site;
    own.label = copy_text(site->label);
    own.file = copy_text(site->file);
    bool copied = (own.label || !site->label) && (own.file || !site->file);
    if (!copied || !kb_vec_push(&r->sites, own)) {
        free((char *)(uintptr_t)own.label);
        free((char *)(uintptr_t)own.file);
        r->out_of_memory = true;
        return 0;
    }
    return (uint32_t)(r->sites.count - 1);
}

/* The texts of a site stay, as a rule, so their addresses find it again. */
static uint32_t find_site(explain_recorder *r, const explain_site *site)
{
    uint64_t hash = (uint64_t)(uintptr_t)site->name ^ (uint64_t)(uintptr_t)site->label * 31 ^
                    (uint64_t)site->line * 0x9e3779b97f4a7c15;
    known_site *known = &r->known[(hash * 0x9e3779b97f4a7c15) >> (64 - KNOWN_BITS)];
    if (KB_LIKELY(known->index != 0) && known->name == site->name && known->label == site->label &&
        is_same_site(&r->sites.items[known->index - 1], site))
        return known->index - 1;
    uint32_t index = add_site(r, site);
    *known = (known_site){site->name, site->label, index + 1};
    return index;
}

const explain_site *explain_site_at(const explain_recorder *r, uint32_t site)
{
    return &r->sites.items[site];
}

/* ---- Records ----------------------------------------------------------------------------- */

/* The record with that number among the late ones, or the empty place for it. */
static size_t late_slot(const explain_recorder *r, uint32_t id)
{
    size_t slot = (id * 0x9e3779b97f4a7c15) >> 32 & (r->late_capacity - 1);
    while (r->late_ids[slot] != EXPLAIN_NONE && r->late_ids[slot] != id)
        slot = (slot + 1) & (r->late_capacity - 1);
    return slot;
}

static bool grow_late(explain_recorder *r)
{
    explain_recorder old = *r;
    r->late_capacity = old.late_capacity ? 2 * old.late_capacity : 1024;
    r->late = kb_alloc_zeroed(r->late_capacity, sizeof *r->late);
    r->late_ids = kb_alloc_zeroed(r->late_capacity, sizeof *r->late_ids);
    if (!r->late || !r->late_ids) {
        free(r->late);
        free(r->late_ids);
        *r = old;
        return false;
    }
    for (size_t i = 0; i < old.late_capacity; i++)
        if (old.late_ids[i] != EXPLAIN_NONE) {
            size_t slot = late_slot(r, old.late_ids[i]);
            r->late[slot] = old.late[i];
            r->late_ids[slot] = old.late_ids[i];
        }
    free(old.late);
    free(old.late_ids);
    return true;
}

static explain_record *need_late(explain_recorder *r, uint32_t id)
{
    if (2 * r->late_count >= r->late_capacity && !grow_late(r)) {
        r->out_of_memory = true;
        return NULL;
    }
    size_t slot = late_slot(r, id);
    r->late_count += r->late_ids[slot] == EXPLAIN_NONE;
    r->late_ids[slot] = id;
    return &r->late[slot];
}

/* A place for the record; NULL if there is none. `must`: it is of those that are always kept. */
static explain_record *need_record(explain_recorder *r, uint32_t id, bool must)
{
    size_t block = id / BLOCK;
    while (r->blocks.count <= block)
        if (!kb_vec_push(&r->blocks, NULL)) {
            r->out_of_memory = true;
            return NULL;
        }
    if (!r->blocks.items[block] && r->used_blocks < r->max_blocks) {
        r->blocks.items[block] = kb_alloc_zeroed(BLOCK, sizeof(explain_record));
        r->used_blocks += r->blocks.items[block] != NULL;
    }
    if (KB_LIKELY(r->blocks.items[block] != NULL))
        return &r->blocks.items[block][id % BLOCK];
    return must ? need_late(r, id) : NULL;
}

const explain_record *explain_record_at(const explain_recorder *r, uint32_t id)
{
    size_t block = id / BLOCK;
    const explain_record *record = NULL;
    if (id == EXPLAIN_NONE || block >= r->blocks.count)
        return NULL;
    if (r->blocks.items[block])
        record = &r->blocks.items[block][id % BLOCK];
    else if (r->late_capacity > 0 && r->late_ids[late_slot(r, id)] == id)
        record = &r->late[late_slot(r, id)];
    return record && record->known ? record : NULL;
}

/* ---- What the run tells ------------------------------------------------------------------ */

static void on_transfer(void *self, const kb_oplog_transfer *transfer)
{
    explain_record *record = need_record(self, transfer->id, false);
    if (!record)
        return;
    record->bandwidth = transfer->bandwidth;
    record->queueing = transfer->queueing;
    record->node = transfer->to;
    record->read = transfer->read;
}

static bool is_kernel(const kb_op *op)
{
    return op->unit == KB_UNIT_CPU && strcmp(op->name, "kernel") == 0;
}

static void note_launch(explain_recorder *r, uint64_t launch, uint32_t site)
{
    while (r->launches.count <= launch)
        if (!kb_vec_push(&r->launches, UINT32_MAX)) {
            r->out_of_memory = true;
            return;
        }
    r->launches.items[launch] = site;
}

static void note_last(explain_recorder *r, uint32_t id, kb_time end)
{
    if (end < r->last_end)
        return;
    r->last_end = end;
    r->last = id;
}

void explain_record_op(explain_recorder *r, const kb_op *op)
{
    if (!r || op->id == 0)
        return;
    r->recorded.operations++;
    bool kernel = is_kernel(op);
    explain_record *record = need_record(r, (uint32_t)op->id, kernel);
    if (!record) {
        if (r->recorded.dropped++ == 0)
            r->recorded.dropped_from = op->start;
        return;
    }
    explain_site site = {
        .unit = op->unit, .name = op->name, .label = op->label, .file = op->file, .line = op->line};
    bool moved = record->node != 0;
    record->start = op->start;
    record->end = op->end;
    record->begun_id = (uint32_t)op->begun_by.id;
    record->ended_id = (uint32_t)op->ended_by.id;
    record->begun = (uint8_t)op->begun_by.kind;
    record->ended = (uint8_t)op->ended_by.kind;
    record->site = find_site(r, &site);
    record->at = op->unit == KB_UNIT_HOST
                     ? 0
                     : (uint32_t)topo_pe_index(topo_machine_shape(r->machine), op->pe);
    record->node = moved ? record->node : TOPO_NONE;
    record->launch = (uint32_t)op->launch;
    record->known = true;
    if (kernel)
        note_launch(r, op->launch, record->site);
    if (!op->unfinished && op->unit != KB_UNIT_HOST)
        note_last(r, (uint32_t)op->id, op->end);
}

static void on_control(void *self, const kb_oplog_control *control)
{
    explain_recorder *r = self;
    const kb_oplog_transfer *moved = &control->moved;
    explain_record *record = need_record(r, moved->id, true);
    r->recorded.operations++;
    if (!record)
        return;
    explain_site site = {
        .unit = KB_UNIT_HOST, .is_control = true, .name = control->name, .label = ""};
    *record = (explain_record){
        .start = moved->issued,
        .end = control->end,
        .bandwidth = moved->bandwidth,
        .queueing = moved->queueing,
        .begun_id = (uint32_t)control->begun_by.id,
        .begun = (uint8_t)control->begun_by.kind,
        .ended = KB_REASON_TRANSFER,
        .site = find_site(r, &site),
        .at = moved->from,
        .node = moved->to,
        .read = moved->read,
        .known = true,
    };
    r->last_control = moved->id;
    r->last_control_end = control->end;
    note_last(r, moved->id, control->end);
}

explain_recorded explain_get_recorded(const explain_recorder *r)
{
    explain_recorded recorded = r->recorded;
    recorded.bytes = r->used_blocks * BLOCK * sizeof(explain_record) +
                     r->late_capacity * (sizeof *r->late + sizeof *r->late_ids);
    return recorded;
}

const char *explain_launch_name(const explain_recorder *r, uint32_t launch)
{
    if (launch >= r->launches.count || r->launches.items[launch] == UINT32_MAX)
        return "";
    return r->sites.items[r->launches.items[launch]].label;
}
