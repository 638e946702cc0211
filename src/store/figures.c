/*
 * figures.c: the numbers of a document, each under its name with dots.
 *
 * Names are in a table of their own. A store remembers those of the last document in their order:
 * documents of a sweep have the same, so that few are looked up.
 */
#include "store_private.h"

#include <stdlib.h>
#include <string.h>

typedef struct walk {
    store *s;
    int64_t run;
    size_t next; /* the name that is expected */
    kb_text name;
} walk;

void store_forget_figures(store *s)
{
    for (size_t i = 0; i < s->figures.count; i++)
        free(s->figures.items[i].name);
    s->figures.count = 0;
}

static void bind_text(sqlite3_stmt *statement, int at, const char *text)
{
    (void)sqlite3_bind_text(statement, at, text, -1, SQLITE_STATIC);
}

/* The number of a name in the table, which gets it if necessary. */
static kb_error *find_number(store *s, const char *name, int64_t *number)
{
    sqlite3_stmt *statement;
    KB_TRY(store_statement_get(s, STORE_FIND_FIGURE, &statement));
    bind_text(statement, 1, name);
    int result = sqlite3_step(statement);
    *number = result == SQLITE_ROW ? sqlite3_column_int64(statement, 0) : 0;
    (void)sqlite3_reset(statement);
    if (result == SQLITE_ROW)
        return NULL;
    if (result != SQLITE_DONE)
        return store_error(s, result);
    KB_TRY(store_statement_get(s, STORE_INSERT_FIGURE, &statement));
    bind_text(statement, 1, name);
    KB_TRY(store_run_statement(s, statement));
    *number = sqlite3_last_insert_rowid(s->db);
    return NULL;
}

/* The same through the names that are remembered. */
static kb_error *get_number(walk *w, const char *name, int64_t *number)
{
    store *s = w->s;
    size_t at = w->next++;
    if (at < s->figures.count && strcmp(s->figures.items[at].name, name) == 0) {
        *number = s->figures.items[at].number;
        return NULL;
    }
    KB_TRY(find_number(s, name, number));
    char *copy = store_copy_text(name);
    if (!copy)
        return kb_error_nomem();
    store_figure_name fresh = {.name = copy, .number = *number};
    if (at < s->figures.count) {
        free(s->figures.items[at].name);
        s->figures.items[at] = fresh;
        return NULL;
    }
    if (kb_vec_push(&s->figures, fresh))
        return NULL;
    free(copy);
    return kb_error_nomem();
}

static kb_error *add_value(walk *w, double value)
{
    int64_t number;
    sqlite3_stmt *statement;
    if (w->name.failed)
        return kb_error_nomem();
    KB_TRY(get_number(w, kb_text_peek(&w->name), &number));
    KB_TRY(store_statement_get(w->s, STORE_INSERT_VALUE, &statement));
    (void)sqlite3_bind_int64(statement, 1, w->run);
    (void)sqlite3_bind_int64(statement, 2, number);
    (void)sqlite3_bind_double(statement, 3, value);
    return store_run_statement(w->s, statement);
}

/* Arrays have no names for their items: views unfold them from the document. */
static kb_error *add_object(walk *w, const json_t *object)
{
    const char *key;
    json_t *value;
    size_t start = w->name.length;
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        kb_text_printf(&w->name, "%s%s", start > 0 ? "." : "", key);
        if (json_is_object(value))
            KB_TRY(add_object(w, value));
        else if (json_is_number(value))
            KB_TRY(add_value(w, json_number_value(value)));
        w->name.length = start;
    }
    return NULL;
}

kb_error *store_add_figures(store *s, int64_t run, const json_t *document)
{
    walk w = {.s = s, .run = run};
    kb_error *err = add_object(&w, document);
    kb_text_fini(&w.name);
    return err;
}

kb_error *store_each_figure(store *s, int64_t run,
                            kb_error *(*each)(void *self, const char *name, double value),
                            void *self)
{
    sqlite3_stmt *statement;
    int result;
    kb_error *err = NULL;
    KB_TRY(store_statement_get(s, STORE_EACH_FIGURE, &statement));
    (void)sqlite3_bind_int64(statement, 1, run);
    while (!err && (result = sqlite3_step(statement)) != SQLITE_DONE) {
        const char *name =
            result == SQLITE_ROW ? (const char *)sqlite3_column_text(statement, 0) : NULL;
        if (result != SQLITE_ROW)
            err = store_error(s, result);
        else
            err = name ? each(self, name, sqlite3_column_double(statement, 1)) : kb_error_nomem();
    }
    (void)sqlite3_reset(statement);
    return err;
}
