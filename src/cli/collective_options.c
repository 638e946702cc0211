/* collective_options.c: loads ccl.yaml and plugins with collectives. */
#include "collective_options.h"

#include "cli.h"
#include "crash.h"

#include <string.h>
#include <unistd.h>

static const char prefix[] = "ccl.";
enum { PREFIX = sizeof prefix - 1 };

static bool is_of_collectives(const char *setting)
{
    return strncmp(setting, prefix, PREFIX) == 0;
}

kb_code collectives_add_plugin(collectives *c, const kb_ccl_plugin *added)
{
    if (added && !kb_vec_push(&c->plugins, added))
        return cli_report(kb_error_nomem());
    return KB_OK;
}

static kb_code load_plugin(collectives *c, const char *file)
{
    plugin p;
    kb_code code = plugin_open_collectives(file, &p);
    return code == KB_OK ? collectives_add_plugin(c, p.collectives) : code;
}

kb_code collectives_load_plugins(collectives *c, const collectives_args *args)
{
    static const char default_file[] = "ccl.yaml";
    *c = (collectives){.file = args->ccl};
    if (args->plugins.count > 0)
        c->plugin_file = args->plugins.items[0];
    if (!c->file && access(default_file, F_OK) == 0)
        c->file = default_file;
    kb_code code = KB_OK;
    for (size_t i = 0; i < args->plugins.count && code == KB_OK; i++)
        code = load_plugin(c, args->plugins.items[i]);
    return code;
}

/* Reads the tables of the plugins, and may call their functions. */
static kb_error *load(const collectives *c, const cli_list *settings, ccl_registry *registry,
                      ccl_config *config)
{
    crash_enter_user_code(c->plugin_file);
    kb_error *err = ccl_registry_init(registry, c->plugins.items, c->plugins.count);
    if (!err)
        err = ccl_config_load(c->file, settings->items, settings->count, registry, config);
    crash_leave_user_code();
    return err;
}

/* Those of the settings that are of ccl.yaml. */
static kb_error *load_config(const collectives *c, const cli_list *settings, ccl_registry *registry,
                             ccl_config *config)
{
    cli_list ours = {0};
    kb_error *err = NULL;
    for (size_t i = 0; i < settings->count && !err; i++)
        if (is_of_collectives(settings->items[i]) &&
            !kb_vec_push(&ours, settings->items[i] + PREFIX))
            err = kb_error_nomem();
    if (!err)
        err = load(c, &ours, registry, config);
    cli_list_fini(&ours);
    return err;
}

kb_error *collectives_check_config(const collectives *c, const cli_list *settings)
{
    ccl_registry registry;
    ccl_config config;
    KB_TRY(load_config(c, settings, &registry, &config));
    ccl_config_fini(&config);
    return NULL;
}

kb_code collectives_init(collectives *c, const collectives_args *args, const cli_list *settings)
{
    kb_code code = collectives_load_plugins(c, args);
    if (code != KB_OK)
        return code;
    kb_error *err = load_config(c, settings, &c->registry, &c->config);
    c->has_config = !err;
    return err ? cli_report(err) : KB_OK;
}

void collectives_fini(collectives *c)
{
    if (c->has_config)
        ccl_config_fini(&c->config);
    kb_vec_fini(&c->plugins);
}

bool collectives_machine_settings(const cli_list *settings, cli_list *machine_settings)
{
    bool done = true;
    *machine_settings = (cli_list){0};
    for (size_t i = 0; i < settings->count && done; i++)
        if (!is_of_collectives(settings->items[i]))
            done = kb_vec_push(machine_settings, settings->items[i]);
    return done;
}
