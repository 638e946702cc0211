/* machine_options.c: loads the machine that --topology and --set describe. */
#include "machine_options.h"

#include "cli.h"

#include <string.h>

kb_error *cli_try_machine(const cli_common *common, topo_machine **machine)
{
    *machine = NULL;
    topo_source source = {
        .path = common->topology,
        .settings = common->settings.items,
        .setting_count = common->settings.count,
    };
    return topo_machine_load(&source, machine);
}

/* One warning for each line. */
static void warn_of_idle_settings(const topo_machine *machine)
{
    const char *line = topo_machine_idle_settings(machine);
    while (line && *line != '\0') {
        size_t length = strcspn(line, "\n");
        cli_warn("%.*s", (int)length, line);
        line += length + (line[length] == '\n');
    }
}

kb_code cli_load_machine(const cli_common *common, topo_machine **machine)
{
    kb_error *err = cli_try_machine(common, machine);
    if (err)
        return cli_report(err);
    if (!common->quiet)
        warn_of_idle_settings(*machine);
    return KB_OK;
}

void cli_machine_title(const topo_machine *machine, const cli_list *settings, kb_text *text)
{
    size_t start = text->length;
    kb_text_printf(text, "'%s'", topo_machine_name(machine));
    for (size_t i = 0; i < settings->count; i++)
        kb_text_printf(text, "%s%s", i == 0 ? " with " : ", ", settings->items[i]);
    kb_text_escape_from(text, start);
}

/* In quotes if a shell would interpret it. */
void cli_append_option(kb_text *text, const char *option, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-+=.,:/@%";
    kb_text_printf(text, " %s ", option);
    if (word[0] != '\0' && word[strspn(word, plain)] == '\0') {
        kb_text_puts(text, word);
        return;
    }
    kb_text_puts(text, "'");
    for (; *word != '\0'; word++)
        kb_text_append(text, *word == '\'' ? "'\\''" : word, *word == '\'' ? 4 : 1);
    kb_text_puts(text, "'");
}

void cli_machine_options(const cli_common *common, kb_text *text)
{
    size_t start = text->length;
    if (common->topology)
        cli_append_option(text, "--topology", common->topology);
    for (size_t i = 0; i < common->settings.count; i++)
        cli_append_option(text, "--set", common->settings.items[i]);
    kb_text_escape_from(text, start);
}

void cli_short_link_name(const topo_machine *machine, uint32_t link, kb_text *text)
{
    const topo_link *l = &topo_machine_graph(machine)->links.items[link];
    kb_text from = KB_TEXT_INIT, to = KB_TEXT_INIT;
    topo_node_name(machine, l->from, &from);
    topo_node_name(machine, l->to, &to);
    const char *a = kb_text_peek(&from), *b = kb_text_peek(&to);
    size_t shared = 0; /* length of the common prefix, which ends with a point */
    for (size_t i = 0; a[i] != '\0' && a[i] == b[i]; i++)
        if (a[i] == '.')
            shared = i + 1;
    kb_text_puts(text, a);
    if (l->from != l->to) /* the service link of a memory leads from it to itself */
        kb_text_printf(text, ">%s", b + shared);
    text->failed = text->failed || from.failed || to.failed;
    kb_text_fini(&from);
    kb_text_fini(&to);
}
