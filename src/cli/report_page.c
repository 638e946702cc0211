/*
 * report_page.c: reports as HTML: see report_page.h.
 *
 * Nothing in the data can end the script element that has them: every "<" is written as an escape.
 * The scripts of the page put texts into the page as text only.
 */
#include "report_page.h"

#include <string.h>

#include "cli.h"
#include "files.h"
#include "json.h"
#include "run_report.h"
#include "templates.h"

/* The scripts, in the order in which they refer to each other. */
static const char *const scripts[] = {
    report_text_js, report_svg_js,  report_table_js, report_machine_js,  report_timeline_js,
    report_time_js, report_path_js, report_plots_js, report_measured_js, report_page_js,
};

static void add_escaped_html(kb_text *page, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '<')
            kb_text_puts(page, "&lt;");
        else if (*text == '>')
            kb_text_puts(page, "&gt;");
        else if (*text == '&')
            kb_text_puts(page, "&amp;");
        else if (*text == '"')
            kb_text_puts(page, "&quot;");
        else
            kb_text_append(page, text, 1);
    }
}

/* A callback of jansson. In JSON these characters are in strings only. */
static int add_escaped_json(const char *bytes, size_t size, void *self)
{
    kb_text *page = self;
    for (size_t begun = 0, i = 0; i <= size; i++) {
        if (i < size && bytes[i] != '<' && bytes[i] != '>' && bytes[i] != '&')
            continue;
        kb_text_append(page, bytes + begun, i - begun);
        if (i < size)
            kb_text_printf(page, "\\u%04x", (unsigned)(unsigned char)bytes[i]);
        begun = i + 1;
    }
    return page->failed ? -1 : 0;
}

static void add_part(kb_text *page, const char *name, size_t length, const json_t *data)
{
    if (length == strlen("title") && memcmp(name, "title", length) == 0) {
        add_escaped_html(page, json_string_value(json_object_get(data, "title")));
    } else if (length == strlen("style") && memcmp(name, "style", length) == 0) {
        kb_text_puts(page, report_style_css);
    } else if (length == strlen("data") && memcmp(name, "data", length) == 0) {
        if (json_dump_callback(data, add_escaped_json, page,
                               JSON_COMPACT | JSON_REAL_PRECISION(12)) != 0)
            page->failed = true;
    } else {
        for (size_t i = 0; i < sizeof scripts / sizeof scripts[0]; i++)
            kb_text_puts(page, scripts[i]);
    }
}

/* Fills in the parts of the page, which are named as {{title}}. */
static void compose(kb_text *page, const json_t *data)
{
    const char *rest = report_page_html, *open;
    while ((open = strstr(rest, "{{")) != NULL) {
        const char *end = strstr(open, "}}");
        kb_text_append(page, rest, (size_t)(open - rest));
        add_part(page, open + 2, (size_t)(end - open - 2), data);
        rest = end + 2;
    }
    kb_text_puts(page, rest);
}

kb_error *report_write_page(const char *path, json_t *data)
{
    if (!data)
        return kb_error_nomem();
    kb_text page = KB_TEXT_INIT;
    compose(&page, data);
    kb_error *err = page.failed ? kb_error_nomem() : cli_write_file(path, &page);
    kb_text_fini(&page);
    json_decref(data);
    return err;
}

/* What differs when the same command runs again says nothing about the run. */
static json_t *copy_document(const json_t *document)
{
    static const char *const of_host[] = {"wall_s", "hops_per_s"};
    json_t *copy = json_copy((json_t *)(uintptr_t)document);
    for (size_t i = 0; copy && i < sizeof of_host / sizeof of_host[0]; i++)
        (void)json_object_del(copy, of_host[i]);
    return copy;
}

json_t *report_begin(const char *kind, const char *title, const char *command,
                     const json_t *document)
{
    json_t *data = json_object();
    cli_json_set(&data, "kind", json_string(kind));
    cli_json_set(&data, "title", cli_json_text(title));
    cli_json_set(&data, "command", command ? cli_json_text(command) : json_null());
    cli_json_set(&data, "version", json_string(kb_version()));
    cli_json_set(&data, "document", copy_document(document));
    return data;
}

/* The kinds of documents, by a key that no other kind has. */
static const struct {
    const char *key, *kind;
} kinds[] = {
    {"breakdown", "run"},
    {"pattern", "traffic"},
    {"cases", "probe"},
    {"points", "sweep"},
};

static const char *kind_of(const json_t *document)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (json_object_get(document, kinds[i].key))
            return kinds[i].kind;
    return NULL;
}

/* "traffic on default", "sweep over m, k" */
static void compose_title(const char *kind, const json_t *document, kb_text *title)
{
    const json_t *machine = json_object_get(document, "topology");
    const char *name = json_string_value(json_object_get(machine, "name"));
    const json_t *axes = json_object_get(document, "axes");
    kb_text_printf(title, "%s%s%s", kind, name ? " on " : "", name ? name : "");
    for (size_t i = 0; i < json_array_size(axes); i++) {
        const char *axis = json_string_value(json_object_get(json_array_get(axes, i), "axis"));
        kb_text_printf(title, "%s%s", i == 0 ? " over " : ", ", axis ? axis : "?");
    }
}

json_t *report_begin_document(const char *kind, const json_t *document, const char *command)
{
    kb_text title = KB_TEXT_INIT;
    compose_title(kind, document, &title);
    json_t *data = report_begin(kind, cli_text(&title), command, document);
    kb_text_fini(&title);
    return data;
}

kb_error *report_write_document(const char *path, const json_t *document, const char *command)
{
    const char *kind = kind_of(document);
    if (!kind)
        return kb_error_new(KB_ERR_INPUT,
                            "not a document of run, probe, traffic or sweep with --json");
    if (strcmp(kind, "run") == 0)
        return report_write_page(path, run_report_begin(document, command));
    return report_write_page(path, report_begin_document(kind, document, command));
}
