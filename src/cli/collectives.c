/* collectives.c: finds ccl.yaml and plugins with collectives, and reads them. */
#include "collectives.h"

#include "cli.h"
#include "crash.h"

#include <string.h>
#include <unistd.h>

static const char prefix[] = "ccl.";
enum { PREFIX = sizeof prefix - 1 };

static bool is_about_collectives(const char *setting)
{
    return strncmp(setting, prefix, PREFIX) == 0;
}

void collectives_args_fini(collectives_args *args)
{
    cli_list_fini(&args->plugins);
}

kb_code collectives_add(collectives *c, const kb_ccl_plugin *one)
{
    if (one && !kb_vec_push(&c->plugins, one))
        return cli_report(kb_error_nomem());
    return KB_OK;
}

static kb_code open_plugin(collectives *c, const char *file)
{
    plugin p;
    kb_code code = plugin_open_collectives(file, &p);
    return code == KB_OK ? collectives_add(c, p.collectives) : code;
}

kb_code collectives_open(const collectives_args *args, collectives *c)
{
    static const char here[] = "ccl.yaml";
    *c = (collectives){.file = args->ccl};
    if (args->plugins.count > 0)
        c->plugin_file = args->plugins.items[0];
    if (!c->file && access(here, F_OK) == 0)
        c->file = here;
    kb_code code = KB_OK;
    for (size_t i = 0; i < args->plugins.count && code == KB_OK; i++)
        code = open_plugin(c, args->plugins.items[i]);
    return code;
}

/* Reads what the plugins export, and may call their functions. */
static kb_error *load(collectives *c, const cli_list *settings)
{
    crash_blame(c->plugin_file);
    kb_error *err = ccl_registry_init(&c->registry, c->plugins.items, c->plugins.count);
    if (!err)
        err = ccl_config_load(c->file, settings->items, settings->count, &c->registry, &c->config);
    crash_blame(NULL);
    return err;
}

kb_code collectives_load(collectives *c, const cli_list *settings)
{
    cli_list ours = {0};
    kb_error *err = NULL;
    for (size_t i = 0; i < settings->count && !err; i++)
        if (is_about_collectives(settings->items[i]) &&
            !kb_vec_push(&ours, settings->items[i] + PREFIX))
            err = kb_error_nomem();
    if (!err)
        err = load(c, &ours);
    c->has_config = !err;
    cli_list_fini(&ours);
    return err ? cli_report(err) : KB_OK;
}

void collectives_close(collectives *c)
{
    if (c->has_config)
        ccl_config_fini(&c->config);
    kb_vec_fini(&c->plugins);
}

bool collectives_other_settings(const cli_list *settings, cli_list *others)
{
    bool done = true;
    *others = (cli_list){0};
    for (size_t i = 0; i < settings->count && done; i++)
        if (!is_about_collectives(settings->items[i]))
            done = kb_vec_push(others, settings->items[i]);
    return done;
}
