/*
 * ccl_tune_file.c: writes results into a ccl.yaml, as its section `tuned`. The rest of the text,
 * comments included, does not change.
 */
#include "ccl_tune.h"

#include "files.h"

#include <inttypes.h>
#include <string.h>

/* ---- The text without the section ---- */

/* Whether the line belongs to the sequence or mapping above it. */
static bool continues(const char *line)
{
    return *line == ' ' || *line == '-' || *line == '\n' || *line == '\r';
}

static void append_without_section(const char *text, kb_text *out)
{
    bool inside = false;
    while (*text != '\0') {
        size_t length = strcspn(text, "\n");
        length += text[length] == '\n';
        bool begins = strncmp(text, "tuned:", 6) == 0;
        inside = begins || (inside && continues(text));
        if (!inside)
            kb_text_append(out, text, length);
        text += length;
    }
    size_t end = out->length;
    while (end > 0 && (out->bytes[end - 1] == '\n' || out->bytes[end - 1] == ' '))
        end--;
    if (end == 0)
        return;
    out->length = end;
    out->bytes[end] = '\0';
    kb_text_puts(out, "\n\n");
}

/* ---- The section ---- */

static void append_line(kb_text *out, const ccl_tuned *line, const char *algorithm)
{
    kb_text_printf(out,
                   "  - { collective: %s, world: %" PRIu32 ", machine: \"%016" PRIx64
                   "\", up_to_bytes: %" PRIu64 ", algorithm: %s }\n",
                   kb_collective_name(line->kind), line->world, line->machine, line->up_to_bytes,
                   algorithm);
}

static bool is_measured(const tune_subject *subject, const tune_rows *rows, const ccl_tuned *line)
{
    bool kind = false;
    for (size_t i = 0; i < rows->count; i++)
        kind = kind || rows->items[i].kind == line->kind;
    return kind && line->machine == subject->machine && line->world == subject->world;
}

static size_t best_of(const tune_row *row)
{
    return row->results.items[0].entry;
}

static void append_section(const ccl_config *config, const tune_subject *subject,
                           const tune_rows *rows, kb_text *out)
{
    kb_text_puts(out,
                 "tuned: # by kernbench ccl tune: the fastest up to which size; auto takes it\n");
    for (size_t i = 0; i < config->tuned.count; i++) {
        const ccl_tuned *line = &config->tuned.items[i];
        if (!is_measured(subject, rows, line))
            append_line(out, line, config->entries.items[line->entry].name);
    }
    for (size_t i = 0; rows->items && i < rows->count; i++) {
        const tune_row *row = &rows->items[i], *next = i + 1 < rows->count ? row + 1 : NULL;
        if (next && next->kind == row->kind && best_of(next) == best_of(row))
            continue;
        ccl_tuned line = {
            .kind = row->kind,
            .world = subject->world,
            .machine = subject->machine,
            .up_to_bytes = row->bytes,
        };
        append_line(out, &line, config->entries.items[best_of(row)].name);
    }
}

kb_error *tune_write(const char *path, const char *source, const ccl_config *config,
                     const tune_subject *subject, const tune_rows *rows)
{
    kb_text text = KB_TEXT_INIT, out = KB_TEXT_INIT;
    kb_error *err = NULL;
    if (source)
        err = cli_read_file(source, &text);
    else
        kb_text_append(&text, ccl_builtin_text, ccl_builtin_length);
    if (!err) {
        append_without_section(kb_text_peek(&text), &out);
        append_section(config, subject, rows, &out);
        err = text.failed || out.failed ? kb_error_nomem() : cli_write_file(path, &out);
    }
    kb_text_fini(&text);
    kb_text_fini(&out);
    return err;
}
