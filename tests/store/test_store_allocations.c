/*
 * test_store_allocations.c: whichever allocation fails, of the store, of SQLite or of jansson,
 * there is an error or the right result, and the file is whole.
 */
#include "support.h"

#include <sqlite3.h>

#include "support/failing_alloc.h"

/* The allocator of SQLite: as its own one, through malloc() of this program. */
static void *take(int size)
{
    size_t *block = malloc(sizeof *block + (size_t)size);
    if (!block)
        return NULL;
    *block = (size_t)size;
    return block + 1;
}

static void give(void *memory)
{
    if (memory)
        free((size_t *)memory - 1);
}

static int size_of(void *memory)
{
    return memory ? (int)((size_t *)memory)[-1] : 0;
}

static void *resize(void *memory, int size)
{
    size_t *block = realloc(memory ? (size_t *)memory - 1 : NULL, sizeof *block + (size_t)size);
    if (!block)
        return NULL;
    *block = (size_t)size;
    return block + 1;
}

static int round_up(int size)
{
    return (size + 7) & ~7;
}

static int start(void *data)
{
    (void)data;
    return SQLITE_OK;
}

static void stop(void *data)
{
    (void)data;
}

static void *json_take(size_t size)
{
    return malloc(size);
}

static void json_give(void *memory)
{
    free(memory);
}

static scratch at;
static int kept;

static void check(kb_error *err)
{
    if (err && kb_error_code(err) != KB_ERR_HOST)
        fail_msg("%s", kb_error_message(err));
    kb_error_free(err);
}

static kb_error *count_figure(void *self, const char *name, double value)
{
    (void)name, (void)value;
    ++*(int *)self;
    return NULL;
}

static void use_store(void)
{
    store *s;
    int64_t run;
    int figures = 0;
    json_t *document = document_of(64, 100);
    store_run added = run_of("a", document);
    kb_error *err = document ? store_open(at.path, STORE_WRITE, &s) : kb_error_nomem();
    if (err) {
        json_decref(document);
        check(err);
        return;
    }
    err = store_add(s, &added, &run);
    kept += !err;
    json_decref(document);
    check(err);
    check(store_add_request(s, "r", "a"));
    seen row = {0};
    check(store_each_run(s, &(store_filter){.last = 1}, see, &row));
    check(store_find(s, "@last", &run));
    check(store_each_figure(s, 1, count_figure, &figures));
    check(store_get_document(s, 1, &document));
    json_decref(document);
    store_close(s);
}

static void failures_are_reported(void **state)
{
    (void)state;
    at = scratch_make();
    use_store(); /* what is allocated once */
    failing_alloc_try_all(use_store);
    store *s = open_store(at.path, STORE_READ);
    assert_int_equal(see_runs(s, (store_filter){0}).count, kept);
    store_close(s);
    scratch_remove(&at);
}

/* Each time anew. */
static void create_store(void)
{
    store *s;
    check(store_open(at.path, STORE_WRITE, &s));
    store_close(s);
    (void)unlink(at.path);
}

static void creating_fails_too(void **state)
{
    (void)state;
    at = scratch_make();
    create_store();
    failing_alloc_try_all(create_store);
    scratch_remove(&at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failures_are_reported),
        cmocka_unit_test(creating_fails_too),
    };
    static const sqlite3_mem_methods methods = {take,     give,  resize, size_of,
                                                round_up, start, stop,   NULL};
    if (sqlite3_config(SQLITE_CONFIG_MALLOC, &methods) != SQLITE_OK)
        return 1;
    json_set_alloc_funcs(json_take, json_give);
    return cmocka_run_group_tests_name("store-allocations", tests, NULL, NULL);
}
