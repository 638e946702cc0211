/* cmd_ccl_plan.c: the command `ccl plan`: makes the plan of a collective, without running it. */
#include "ccl_plan_report.h"

#include "cli.h"
#include "cmd_ccl.h"
#include "collective_options.h"
#include "crash.h"
#include "machine_options.h"

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
    CLI_OPTION("--algorithm", "NAME", CLI_STRING, plan_args, algorithm,
               "an entry of ccl.yaml; default: defaults.algorithm of that file"),
    CLI_OPTION("--sip", "N", CLI_UINT, plan_args, sip, "prints only the PEs of this SIP", .min = 0,
               .max = 65535),
    CLI_OPTION("--limit", "N", CLI_UINT, plan_args, limit,
               "maximum rows of each table; 0: no limit; default: 16"),
    COLLECTIVES_OPTIONS(plan_args),
};

/* ---- PEs and their queues ----------------------------------------------------------------- */

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
    for (uint32_t group = 0; group < kb_ccl_subgroup_count(members); group++) {
        uint32_t count;
        const kb_ccl_participant *member = kb_ccl_subgroup(members, group, &count);
        for (uint32_t i = 0; i < count; i++) {
            plan_pe pe = {.pe = member[i].pe, .rank = member[i].rank, .group = group, .index = i};
            if (!kb_vec_push(&view->pes, pe))
                return kb_error_nomem();
        }
    }
    if (view->pes.count > 0)
        qsort(view->pes.items, view->pes.count, sizeof *view->pes.items, by_pe);
    return NULL;
}

/* PEs and ends of queues are both sorted by PE. */
static void gather_ends(plan_view *view)
{
    size_t end = 0;
    const ipcq_plan *queues = &view->plan->queues;
    for (size_t i = 0; i < view->pes.count; i++) {
        plan_pe *pe = &view->pes.items[i];
        pe->first_end = end;
        while (end < queues->ends.count && compare_pes(queues->ends.items[end].pe, pe->pe) == 0) {
            pe->slots_bytes += queues->ends.items[end].from != IPCQ_NONE ? view->slots_bytes : 0;
            end++;
        }
        pe->end_count = end - pe->first_end;
        if (pe->end_count > 0)
            pe->install_bytes = IPCQ_SETTINGS_BYTES + pe->end_count * IPCQ_END_BYTES;
    }
    KB_ASSERT(end == queues->ends.count);
}

static kb_code print_view(const plan_args *args, const collectives *c, const topo_machine *machine,
                          const ccl_plan *plan)
{
    const kb_machine *m = &plan->scope.machine;
    const ipcq_settings *settings = &plan->queues.settings;
    plan_view view = {
        .common = &args->common,
        .machine = machine,
        .config = &c->config,
        .plan = plan,
        .slots_bytes = settings->n_slots * settings->slot_bytes,
        .memory_bytes = settings->buffer == KB_TCM   ? m->tcm_bytes
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
        code = plan_print(&view);
    }
    kb_vec_fini(&view.pes);
    return code;
}

/* ---- The plan ----------------------------------------------------------------------------- */

static kb_code report_unknown_entry(const ccl_config *config, const char *word)
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

static kb_code print_plan(const plan_args *args, const collectives *c, const topo_machine *machine)
{
    const ccl_config *config = &c->config;
    const char *selected =
        config->chosen == CCL_AUTO ? "auto" : config->entries.items[config->chosen].name;
    const char *name = args->algorithm ? args->algorithm : selected;
    const ccl_entry *entry = ccl_config_find(config, name);
    uint32_t sips = topo_machine_shape(machine)->sips;
    if (!entry)
        return report_unknown_entry(config, name);
    if (args->sip != NO_SIP && args->sip >= sips)
        return cli_fail(KB_ERR_INPUT,
                        "--sip: no such SIP: the machine has %" PRIu32 " SIP%s, numbered from 0",
                        sips, kb_plural(sips));
    ccl_plan plan;
    crash_enter_user_code(c->plugin_file);
    kb_error *err = make_plan(entry, machine, &plan);
    crash_leave_user_code();
    if (err)
        return cli_report(err);
    kb_code code = print_view(args, c, machine, &plan);
    ccl_plan_fini(&plan);
    return code;
}

static kb_code run_plan(const cli_call *call)
{
    const plan_args *args = call->args;
    collectives c;
    topo_machine *machine = NULL;
    cli_common of_machine = args->common;
    kb_code code = collectives_init(&c, &args->collectives, &args->common.settings);
    bool done = collectives_machine_settings(&args->common.settings, &of_machine.settings);
    if (code == KB_OK)
        code = done ? cli_load_machine(&of_machine, &machine) : cli_report(kb_error_nomem());
    if (code == KB_OK)
        code = print_plan(args, &c, machine);
    topo_machine_destroy(machine);
    cli_list_fini(&of_machine.settings);
    collectives_fini(&c);
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
    CLI_ARGS(plan_args, .sip = NO_SIP, .limit = DEFAULT_LIMIT),
    .machine = CLI_MACHINE_OPTIONS,
    .run = run_plan,
};
