/*
 * ccl_plan.c: the command that shows how PEs are joined for a collective: what a plan says, without
 * running anything.
 */
#include "ccl_plan.h"

#include "ccl.h"
#include "cli.h"
#include "collectives.h"
#include "crash.h"
#include "machine.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct plan_args {
    cli_common common;
    collectives_args collectives;
    const char *algorithm;
    uint64_t sip, limit;
} plan_args;

enum { NO_SIP = UINT32_MAX, DEFAULT_LIMIT = 16 };

static const cli_option options[] = {
    {.name = "--algorithm",
     .value = "NAME",
     .help = "an entry of ccl.yaml; default: defaults.algorithm of that file",
     .kind = CLI_STRING,
     CLI_INTO(plan_args, algorithm)},
    {.name = "--sip",
     .value = "N",
     .help = "prints only the PEs of this SIP",
     .kind = CLI_UINT,
     .min = 0,
     .max = 65535,
     CLI_INTO(plan_args, sip)},
    {.name = "--limit",
     .value = "N",
     .help = "maximum rows of each table; 0: no limit; default: 16",
     .kind = CLI_UINT,
     CLI_INTO(plan_args, limit)},
    COLLECTIVES_OPTIONS(plan_args),
};

/* ---- What is shown ------------------------------------------------------------------------ */

plan_name plan_pe_name(kb_pe pe)
{
    plan_name name;
    snprintf(name.text, sizeof name.text, "sip%" PRIu32 ".cube%" PRIu32 ".pe%" PRIu32, pe.sip,
             pe.cube, pe.pe);
    return name;
}

const char *plan_memory_name(kb_memory memory)
{
    return memory == KB_TCM ? "tcm" : memory == KB_HBM ? "hbm" : "sram";
}

static int compare_pes(kb_pe a, kb_pe b)
{
    if (a.sip != b.sip)
        return a.sip < b.sip ? -1 : 1;
    if (a.cube != b.cube)
        return a.cube < b.cube ? -1 : 1;
    return (a.pe > b.pe) - (a.pe < b.pe);
}

static int by_pe(const void *a, const void *b)
{
    return compare_pes(((const plan_pe *)a)->pe, ((const plan_pe *)b)->pe);
}

static kb_error *gather_members(plan_view *view)
{
    const kb_ccl_participants *members = &view->plan->participants;
    for (uint32_t circle = 0; circle < kb_ccl_subgroup_count(members); circle++) {
        uint32_t count;
        const kb_ccl_participant *member = kb_ccl_subgroup(members, circle, &count);
        for (uint32_t place = 0; place < count; place++) {
            plan_pe pe = {.pe = member[place].pe,
                          .rank = member[place].rank,
                          .circle = circle,
                          .place = place};
            if (!kb_vec_push(&view->pes, pe))
                return kb_error_nomem();
        }
    }
    if (view->pes.count > 0)
        qsort(view->pes.items, view->pes.count, sizeof *view->pes.items, by_pe);
    return NULL;
}

/* Both PEs and ends are in the order of PEs. */
static void gather_ends(plan_view *view)
{
    size_t end = 0;
    const ipcq_plan *queues = &view->plan->queues;
    for (size_t i = 0; i < view->pes.count; i++) {
        plan_pe *pe = &view->pes.items[i];
        pe->first_end = end;
        while (end < queues->ends.count && compare_pes(queues->ends.items[end].pe, pe->pe) == 0) {
            pe->ring_bytes += queues->ends.items[end].from != IPCQ_NONE ? view->ring_bytes : 0;
            end++;
        }
        pe->end_count = end - pe->first_end;
        if (pe->end_count > 0)
            pe->install_bytes = IPCQ_SETTINGS_BYTES + pe->end_count * IPCQ_END_BYTES;
    }
    KB_ASSERT(end == queues->ends.count);
}

static kb_code show(const plan_args *args, const collectives *c, const topo_machine *machine,
                    const ccl_plan *plan)
{
    const kb_machine *m = &plan->scope.machine;
    const ipcq_settings *settings = &plan->queues.settings;
    plan_view view = {
        .common = &args->common,
        .machine = machine,
        .config = &c->config,
        .plan = plan,
        .ring_bytes = settings->n_slots * settings->slot_bytes,
        .room = settings->buffer == KB_TCM   ? m->tcm_bytes
                : settings->buffer == KB_HBM ? m->hbm_bytes
                                             : m->sram_bytes,
        .only_sip = args->sip == NO_SIP ? TOPO_NONE : (uint32_t)args->sip,
        .limit = args->limit,
    };
    kb_error *err = gather_members(&view);
    kb_code code;
    if (err) {
        code = cli_report(err);
    } else {
        gather_ends(&view);
        code = args->common.json ? plan_print_json(&view) : plan_print_text(&view);
    }
    kb_vec_fini(&view.pes);
    return code;
}

/* ---- The plan ----------------------------------------------------------------------------- */

static kb_code no_such_entry(const ccl_config *config, const char *word)
{
    char buffer[CLI_CLIP];
    kb_suggestion near;
    if (strcmp(word, "auto") == 0)
        return cli_fail(KB_ERR_INPUT,
                        "'auto' selects an algorithm by size (see kernbench ccl tune) "
                        "and has no plan of its own: choose one with --algorithm; see "
                        "kernbench list");
    kb_suggestion_init(&near, word);
    for (size_t i = 0; i < config->entries.count; i++)
        kb_suggestion_offer(&near, config->entries.items[i].name);
    return cli_fail(KB_ERR_INPUT, "--algorithm: %s has no algorithm '%s'%s", config->path,
                    cli_clip(word, buffer), kb_suggestion_hint(&near, "; see kernbench list"));
}

/* Ranks 0, 1, .. on SIPs 0, 1, .. */
static kb_error *make_plan(const ccl_entry *entry, const topo_machine *machine, ccl_plan *plan)
{
    uint32_t world = ccl_plan_world(entry, machine, TOPO_NONE), *sips = NULL;
    if (!entry->rank_is_pe) {
        sips = kb_alloc_array(world, sizeof *sips);
        if (!sips)
            return kb_error_nomem();
        for (uint32_t rank = 0; rank < world; rank++)
            sips[rank] = rank;
    }
    kb_error *err = ccl_plan_make(entry, machine, sips, world, plan);
    free(sips);
    return err;
}

static kb_code plan_on(const plan_args *args, const collectives *c, const topo_machine *machine)
{
    const ccl_config *config = &c->config;
    const char *chosen =
        config->chosen == CCL_AUTO ? "auto" : config->entries.items[config->chosen].name;
    const char *name = args->algorithm ? args->algorithm : chosen;
    const ccl_entry *entry = ccl_config_find(config, name);
    uint32_t sips = topo_machine_shape(machine)->sips;
    if (!entry)
        return no_such_entry(config, name);
    if (args->sip != NO_SIP && args->sip >= sips)
        return cli_fail(KB_ERR_INPUT,
                        "--sip: no such SIP: the machine has %" PRIu32 " SIP%s, numbered from 0",
                        sips, kb_plural(sips));
    ccl_plan plan;
    crash_blame(c->plugin_file);
    kb_error *err = make_plan(entry, machine, &plan);
    crash_blame(NULL);
    if (err)
        return cli_report(err);
    kb_code code = show(args, c, machine, &plan);
    ccl_plan_fini(&plan);
    return code;
}

static kb_code run_with(const plan_args *args)
{
    collectives c;
    topo_machine *machine = NULL;
    cli_common of_machine = args->common;
    kb_code code = collectives_open(&args->collectives, &c);
    if (code == KB_OK)
        code = collectives_load(&c, &args->common.settings);
    bool split = collectives_other_settings(&args->common.settings, &of_machine.settings);
    if (code == KB_OK)
        code = split ? cli_load_machine(&of_machine, &machine) : cli_report(kb_error_nomem());
    if (code == KB_OK)
        code = plan_on(args, &c, machine);
    topo_machine_destroy(machine);
    cli_list_fini(&of_machine.settings);
    collectives_close(&c);
    return code;
}

static kb_code run_plan(const cli_command *self, int argc, char **argv)
{
    plan_args args = {.sip = NO_SIP, .limit = DEFAULT_LIMIT};
    kb_code code = cli_parse(self, &argc, argv, &args);
    if (code == KB_OK)
        code = run_with(&args);
    collectives_args_fini(&args.collectives);
    cli_common_fini(&args.common);
    return code;
}

const cli_command ccl_plan_command = {
    .name = "ccl plan",
    .arguments = "[OPTIONS]",
    .summary = "print the PEs that take part in a collective, and the queues between them",
    .help = "The plan is for a process group of all SIPs of the machine. Nothing is "
            "simulated.\n",
    .example =
        "Example: kernbench ccl plan\n"
        "Example: kernbench ccl plan --algorithm ring_rsag --sip 1 --limit 0\n"
        "Example: kernbench ccl plan --set system.sips.count=4 --set ccl.defaults.n_slots=8\n",
    CLI_OPTIONS(options),
    .has_machine = true,
    .run = run_plan,
};
