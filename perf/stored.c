/*
 * stored.c: counts of instructions that are kept in a file, such as perf/instructions.txt, so that
 * CI sees when one rises.
 *
 * The file has a line for each case, its name and its instructions; lines that begin with # are
 * kept as they are when the figures are written anew. Counts do not depend on what else the machine
 * does, but they do on the compiler, hence the margin.
 */
#include "suite.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double margin = 0.10;

typedef struct stored_case {
    const bench_work *work;
    double stored;
} stored_case;

/* Reads "NAME FIGURE". */
static kb_error *parse_case(const char *path, char *line, stored_case *found)
{
    char *gap = strchr(line, ' '), *end = NULL;
    double figure = gap != NULL ? strtod(gap, &end) : 0;

    if (gap == NULL || figure <= 0 || *end != '\0')
        return kb_error_new(KB_ERR_INPUT, "%s: expected a name and a figure, found '%s'", path,
                            line);
    *gap = '\0';
    *found = (stored_case){.work = bench_find_work(line), .stored = figure};
    if (found->work == NULL)
        return kb_error_new(KB_ERR_INPUT, "%s: there is no case '%s'", path, line);
    return NULL;
}

typedef kb_error *case_fn(void *self, const stored_case *c, double counted);

/* Counts the cases of the file that --only leaves, one by one. Comments go to `comments`. */
static kb_error *count_cases(const bench *b, const char *path, FILE *file, kb_text *comments,
                             case_fn *fn, void *self)
{
    char line[256];
    bool any = false;

    while (fgets(line, sizeof line, file) != NULL) {
        stored_case c;
        double counted = 0;
        line[strcspn(line, "\n")] = '\0';
        if (line[0] == '#' || line[0] == '\0') {
            kb_text_printf(comments, "%s\n", line);
            continue;
        }
        KB_TRY(parse_case(path, line, &c));
        if (bench_wants(b, "%s", c.work->name)) {
            bench_progress(b, "%s.instructions", c.work->name);
            KB_TRY(bench_count_work(c.work, &counted));
            bench_progress(b, "%s", "");
            any = true;
        }
        KB_TRY(fn(self, &c, counted));
    }
    if (!any)
        return kb_error_new(KB_ERR_INPUT, "%s: no case has a name that begins with '%s'", path,
                            b->only);
    return NULL;
}

static kb_error *read_cases(const bench *b, const char *path, kb_text *comments, case_fn *fn,
                            void *self)
{
    const char *reason = bench_why_no_instructions();
    if (reason != NULL)
        return kb_error_new(KB_ERR_HOST, "cannot count instructions: %s", reason);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return kb_error_new(KB_ERR_INPUT, "cannot read %s: %s", path, strerror(errno));
    kb_error *err = count_cases(b, path, file, comments, fn, self);
    fclose(file);
    return err;
}

/* ---- Check ---- */

/* Says what became of a case; counts those that rose too far. */
static kb_error *compare(void *self, const stored_case *c, double counted)
{
    unsigned *risen = self;
    double change = counted / c->stored - 1;
    const char *verdict = "";

    if (counted == 0)
        return NULL;
    if (change > margin) {
        verdict = ": ROSE by more than 10 %";
        ++*risen;
    } else if (change < -margin) {
        verdict = "; fell: store the new figure";
    }
    printf("%-26s %9.1f -> %9.1f instructions, %+.1f %%%s\n", c->work->name, c->stored, counted,
           100 * change, verdict);
    return NULL;
}

kb_error *bench_check_counts(const bench *b, const char *path)
{
    kb_text comments = KB_TEXT_INIT;
    unsigned risen = 0;
    kb_error *err = read_cases(b, path, &comments, compare, &risen);

    kb_text_fini(&comments);
    KB_TRY(err);
    if (risen > 0)
        return kb_error_new(KB_ERR_CHECK,
                            "%u case%s rose by more than 10 %%; if that is intended, run: ./kb "
                            "bench --update-instructions %s",
                            risen, risen == 1 ? "" : "s", path);
    return NULL;
}

/* ---- Update ---- */

static kb_error *add_line(void *self, const stored_case *c, double counted)
{
    kb_text *lines = self;
    if (counted > 0)
        printf("%-26s %9.1f -> %9.1f instructions\n", c->work->name, c->stored, counted);
    kb_text_printf(lines, "%s %.1f\n", c->work->name, counted > 0 ? counted : c->stored);
    return NULL;
}

static kb_error *write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    if (file == NULL)
        return kb_error_new(KB_ERR_INPUT, "cannot write %s: %s", path, strerror(errno));
    bool failed = fputs(text, file) < 0;
    if (fclose(file) != 0 || failed)
        return kb_error_new(KB_ERR_HOST, "cannot write %s", path);
    return NULL;
}

kb_error *bench_update_counts(const bench *b, const char *path)
{
    kb_text text = KB_TEXT_INIT;
    kb_error *err = read_cases(b, path, &text, add_line, &text);

    if (err == NULL)
        err = write_text(path, kb_text_peek(&text));
    kb_text_fini(&text);
    return err;
}
