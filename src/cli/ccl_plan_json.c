/* ccl_plan_json.c: a plan for programs: all of it, whatever --limit and --sip say. */
#include "ccl_plan.h"

#include "json.h"

static json_t *settings_json(const ccl_entry *entry)
{
    json_t *settings = json_object();
    for (size_t i = 0; i < entry->settings.count; i++)
        if (json_object_set_new(settings, entry->settings.items[i].key,
                                json_integer(entry->settings.items[i].value)) != 0) {
            json_decref(settings);
            return NULL;
        }
    return settings;
}

static json_t *entry_json(const ccl_plan *plan)
{
    const ccl_entry *entry = plan->entry;
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:s?, s:s, s:s, s:i, s:I, s:i, s:i, s:s, s:b, s:s, s:o}", "name",
        entry->name, "module", entry->algorithm->name, "topology",
        entry->topology ? entry->topology->name : "none", "mapper", entry->mapper->name,
        "validator", entry->validator ? entry->validator->name : NULL, "buffer_kind",
        plan_memory_name(entry->buffer), "backpressure", entry->polls ? "poll" : "sleep", "n_slots",
        (int)entry->n_slots, "slot_size", (json_int_t)plan->queues.settings.slot_bytes,
        "vc_chunk_size", (int)entry->vc_chunk_bytes, "ipcq_credit_size_bytes",
        (int)entry->credit_bytes, "rank", entry->rank_is_pe ? "pe" : "sip", "reduce_shards",
        entry->reduce_shards, "reduce_op", kb_reduce_op_name(entry->reduce_op), "settings",
        settings_json(entry));
}

static json_t *circles_json(const kb_ccl_participants *members)
{
    json_t *circles = json_array();
    for (uint32_t i = 0; i < kb_ccl_subgroup_count(members); i++) {
        uint32_t count;
        const kb_ccl_participant *member = kb_ccl_subgroup(members, i, &count);
        json_t *list = json_array();
        for (uint32_t k = 0; k < count; k++)
            cli_json_append(&list, json_pack("{s:i, s:s}", "rank", (int)member[k].rank, "pe",
                                             plan_pe_name(member[k].pe).text));
        cli_json_append(&circles, list);
    }
    return circles;
}

/* {"pe": ..., "direction": ...}, or null. */
static json_t *peer_json(const ipcq_plan *queues, size_t peer)
{
    if (peer == IPCQ_NONE)
        return json_null();
    const ipcq_plan_end *end = &queues->ends.items[peer];
    return json_pack("{s:s, s:s}", "pe", plan_pe_name(end->pe).text, "direction", end->direction);
}

static json_t *directions_json(const plan_view *view, const plan_pe *pe)
{
    const ipcq_plan *queues = &view->plan->queues;
    json_t *directions = json_array();
    for (size_t i = 0; i < pe->end_count; i++) {
        const ipcq_plan_end *end = &queues->ends.items[pe->first_end + i];
        bool receives = end->from != IPCQ_NONE;
        cli_json_append(&directions,
                        json_pack("{s:s, s:o, s:o, s:I}", "direction", end->direction, "sends_to",
                                  peer_json(queues, end->to), "receives_from",
                                  peer_json(queues, end->from), "ring_bytes",
                                  (json_int_t)(receives ? view->ring_bytes : 0)));
    }
    return directions;
}

static json_t *pes_json(const plan_view *view)
{
    json_t *pes = json_array();
    for (size_t i = 0; i < view->pes.count; i++) {
        const plan_pe *pe = &view->pes.items[i];
        cli_json_append(&pes, json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:I, s:I, s:o}",
                                        "name", plan_pe_name(pe->pe).text, "sip", (int)pe->pe.sip,
                                        "cube", (int)pe->pe.cube, "pe", (int)pe->pe.pe, "rank",
                                        (int)pe->rank, "circle", (int)pe->circle, "place",
                                        (int)pe->place, "ring_bytes", (json_int_t)pe->ring_bytes,
                                        "install_bytes", (json_int_t)pe->install_bytes,
                                        "directions", directions_json(view, pe)));
    }
    return pes;
}

kb_code plan_print_json(const plan_view *view)
{
    return cli_json_print(
        json_pack("{s:o, s:s, s:o, s:i, s:I, s:o, s:o}", "topology",
                  cli_json_machine(view->machine, &view->common->settings), "ccl",
                  view->config->path, "algorithm", entry_json(view->plan), "world_size",
                  (int)view->plan->scope.world, "memory_bytes", (json_int_t)view->room, "circles",
                  circles_json(&view->plan->participants), "pes", pes_json(view)));
}
