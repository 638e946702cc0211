/*
 * path_groups.c: the time of a path by what it has in common: each part of each step belongs to one
 * group of a key, so groups add up to the run.
 */
#include "path_private.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *explain_key_name(explain_key key)
{
    static const char *const names[EXPLAIN_KEYS] = {
        [EXPLAIN_BY_RESOURCE] = "by_resource",
        [EXPLAIN_BY_LAYER] = "by_layer",
        [EXPLAIN_BY_KERNEL] = "by_kernel",
        [EXPLAIN_BY_LINE] = "by_line",
        [EXPLAIN_BY_UNIT] = "by_unit",
        [EXPLAIN_BY_LINK] = "by_link",
        [EXPLAIN_BY_PLACE] = "by_place",
        [EXPLAIN_BY_REASON] = "by_reason",
        [EXPLAIN_BY_PE] = "by_pe",
        [EXPLAIN_BY_CATEGORY] = "by_category",
    };
    return names[key];
}

/* ---- Names ------------------------------------------------------------------------------- */

static const char *step_name(const explain_step *step)
{
    switch ((explain_step_kind)step->kind) {
    case EXPLAIN_START:
        return "kernel start";
    case EXPLAIN_POLL:
        return "polling";
    case EXPLAIN_KERNEL:
        return "kernel, not recorded in detail";
    case EXPLAIN_STUCK:
        return "stuck";
    default:
        return "host program";
    }
}

static const explain_site *site_of(const explain_path *path, const explain_step *step)
{
    const explain_record *record = explain_record_at(path->recorder, step->id);
    return record ? &path->recorder->sites.items[record->site] : NULL;
}

static void put_pe(const explain_path *path, uint32_t number, kb_text *text)
{
    const topo_shape *shape = topo_machine_shape(path->machine);
    kb_text_puts(text, topo_pe_name(topo_pe_at(shape, number)).text);
}

static const char *place_of(const explain_path *path, const explain_record *record)
{
    const topo_shape *shape = topo_machine_shape(path->machine);
    const topo_node *there = &topo_machine_graph(path->machine)->nodes.items[record->node];
    kb_pe pe = topo_pe_at(shape, record->at);
    if (there->kind < TOPO_ROUTER)
        return "host";
    if (there->sip != pe.sip)
        return "memory of other SIPs";
    if (there->cube != pe.cube)
        return "memory of other cubes";
    if (there->kind == TOPO_HBM_CTRL)
        return there->index == pe.pe ? "own HBM slice" : "other HBM slices of the cube";
    return there->kind == TOPO_SRAM ? "SRAM of the cube" : "TCM of other PEs of the cube";
}

static void put_line(const explain_site *site, kb_text *text)
{
    const char *base = strrchr(site->file, '/');
    kb_text_printf(text, "%s:%d", base ? base + 1 : site->file, site->line);
}

static bool is_of_pe(const explain_path *path, const explain_step *step)
{
    const explain_site *site = site_of(path, step);
    return site && !site->is_control && step->kind != EXPLAIN_HOST;
}

static void put_kernel(const explain_path *path, const explain_step *step, kb_text *text)
{
    const char *name = explain_launch_name(path->recorder, step->launch);
    kb_text_puts(text, *name ? name : "outside of kernels");
}

static void put_unit(const explain_path *path, const explain_step *step, kb_text *text)
{
    const explain_site *site = site_of(path, step);
    if (!site || step->kind == EXPLAIN_HOST)
        kb_text_puts(text, step_name(step));
    else
        kb_text_puts(text,
                     site->is_control ? "host and control processors" : kb_unit_name(site->unit));
}

static void put_name(const explain_path *path, const explain_step *step, const explain_part *part,
                     explain_key key, kb_text *text)
{
    const topo_graph *graph = topo_machine_graph(path->machine);
    const explain_site *site = site_of(path, step);
    const explain_record *record = explain_record_at(path->recorder, step->id);
    switch (key) {
    case EXPLAIN_BY_RESOURCE:
        explain_part_name(part->resource, part->aspect, text);
        break;
    case EXPLAIN_BY_LAYER:
        if (step->launch)
            kb_text_printf(text, "%" PRIu32 " ", step->launch);
        put_kernel(path, step, text);
        break;
    case EXPLAIN_BY_KERNEL:
        put_kernel(path, step, text);
        break;
    case EXPLAIN_BY_LINE:
        if (site && site->file && is_of_pe(path, step))
            put_line(site, text);
        else
            put_unit(path, step, text);
        break;
    case EXPLAIN_BY_UNIT:
        put_unit(path, step, text);
        break;
    case EXPLAIN_BY_LINK:
        if (part->link == TOPO_NONE)
            kb_text_puts(text, "no link");
        else
            kb_text_puts(text, explain_resource_name(explain_resource_of_link(graph, part->link)));
        break;
    case EXPLAIN_BY_PLACE:
        if (is_of_pe(path, step) && record->node != TOPO_NONE && step->kind == EXPLAIN_OWN)
            kb_text_puts(text, place_of(path, record));
        else
            kb_text_puts(text, "no transfer of a kernel");
        break;
    case EXPLAIN_BY_REASON:
        kb_text_puts(text, step->led_by == KB_REASON_NONE
                               ? "end"
                               : kb_reason_name((kb_reason_kind)step->led_by));
        break;
    case EXPLAIN_BY_PE:
        if (is_of_pe(path, step))
            put_pe(path, record->at, text);
        else
            put_unit(path, step, text);
        break;
    case EXPLAIN_BY_CATEGORY:
        kb_text_puts(text, explain_category_name(explain_category_of(path, step, part)));
        break;
    case EXPLAIN_KEYS:
        break;
    }
}

/* ---- Groups ------------------------------------------------------------------------------ */

/* A hash table over names, with the index of the group and 1. */
typedef struct index_table {
    uint32_t *slots;
    size_t capacity;
} index_table;

static size_t slot_of_name(const index_table *table, const explain_groups *groups, const char *name)
{
    uint64_t hash = 0xcbf29ce484222325;
    for (const char *c = name; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 0x100000001b3;
    size_t slot = hash & (table->capacity - 1);
    while (table->slots[slot] != 0 &&
           strcmp(groups->all.items[table->slots[slot] - 1].name, name) != 0)
        slot = (slot + 1) & (table->capacity - 1);
    return slot;
}

static bool grow_table(index_table *table, const explain_groups *groups)
{
    index_table wider = {.capacity = table->capacity ? 2 * table->capacity : 64};
    wider.slots = kb_alloc_zeroed(wider.capacity, sizeof *wider.slots);
    if (!wider.slots)
        return false;
    for (size_t i = 0; i < groups->all.count; i++)
        wider.slots[slot_of_name(&wider, groups, groups->all.items[i].name)] = (uint32_t)(i + 1);
    free(table->slots);
    *table = wider;
    return true;
}

static explain_group *need_group(explain_groups *groups, index_table *table, const char *name)
{
    if (2 * (groups->all.count + 1) > table->capacity && !grow_table(table, groups))
        return NULL;
    size_t slot = slot_of_name(table, groups, name);
    if (table->slots[slot] == 0) {
        char *own = kb_alloc_array(strlen(name) + 1, 1);
        if (!own || !kb_vec_push(&groups->all, ((explain_group){.name = own}))) {
            free(own);
            return NULL;
        }
        memcpy(own, name, strlen(name) + 1);
        table->slots[slot] = (uint32_t)groups->all.count;
    }
    return &groups->all.items[table->slots[slot] - 1];
}

static int by_time(const void *a, const void *b)
{
    const explain_group *x = a, *y = b;
    if (x->time != y->time)
        return x->time < y->time ? 1 : -1;
    return strcmp(x->name, y->name);
}

/* Whether all parts of a step have the same name. */
static bool is_of_steps(explain_key key)
{
    return key != EXPLAIN_BY_RESOURCE && key != EXPLAIN_BY_LINK && key != EXPLAIN_BY_CATEGORY;
}

static bool add_step(const explain_path *path, size_t i, explain_key key, explain_groups *groups,
                     index_table *table, kb_text *name)
{
    const explain_step *step = &path->steps.items[i];
    const explain_group *counted = NULL;
    for (uint32_t p = path->first_part.items[i]; p < path->first_part.items[i + 1]; p++) {
        const explain_part *part = &path->parts.items[p];
        name->length = 0;
        put_name(path, step, part, key, name);
        explain_group *group = need_group(groups, table, kb_text_peek(name));
        if (!group || name->failed)
            return false;
        group->time += is_of_steps(key) ? step->to - step->from : part->time;
        group->steps += group != counted;
        counted = group;
        if (is_of_steps(key))
            break;
    }
    return true;
}

kb_error *explain_group_path(const explain_path *path, explain_key key, explain_groups *groups)
{
    *groups = (explain_groups){0};
    index_table table = {0};
    kb_text name = KB_TEXT_INIT;
    bool good = true;
    for (size_t i = 0; i < path->steps.count && good; i++)
        good = add_step(path, i, key, groups, &table, &name);
    kb_text_fini(&name);
    free(table.slots);
    if (!good) {
        explain_groups_fini(groups);
        return kb_error_nomem();
    }
    if (groups->all.count > 0)
        qsort(groups->all.items, groups->all.count, sizeof groups->all.items[0], by_time);
    return NULL;
}

void explain_groups_fini(explain_groups *groups)
{
    for (size_t i = 0; i < groups->all.count; i++)
        free(groups->all.items[i].name);
    kb_vec_fini(&groups->all);
}

/* ---- Steps ------------------------------------------------------------------------------- */

void explain_describe_step(const explain_path *path, const explain_step *step, kb_text *text)
{
    const explain_record *record = explain_record_at(path->recorder, step->id);
    const explain_site *site = site_of(path, step);
    if (!record || step->kind == EXPLAIN_HOST || step->kind == EXPLAIN_STUCK) {
        kb_text_puts(text, step_name(step));
        return;
    }
    if (site->is_control) {
        kb_text_printf(text, "%s, ", site->name);
        topo_node_name(path->machine, record->at, text);
        if (record->node != record->at) {
            kb_text_puts(text, record->read ? " from " : " to ");
            topo_node_name(path->machine, record->node, text);
        }
        return;
    }
    kb_text_puts(text, step->kind == EXPLAIN_OWN ? site->name : step_name(step));
    if (site->file) {
        kb_text_puts(text, " of ");
        put_line(site, text);
    }
    kb_text_puts(text, " on ");
    put_pe(path, record->at, text);
    if (record->node != TOPO_NONE && step->kind == EXPLAIN_OWN) {
        kb_text_puts(text, record->read ? ", from " : ", to ");
        topo_node_name(path->machine, record->node, text);
    }
}
