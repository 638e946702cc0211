/* support.h: stores in a scratch directory, with runs whose figures are known. */
#ifndef TESTS_STORE_SUPPORT_H
#define TESTS_STORE_SUPPORT_H

#include "support/expect.h"

#include "store/store.h"

/* A path in a new directory, for one store. */
typedef struct scratch {
    char directory[32];
    char path[64];
} scratch;

/* In memory if there is such a file system: stores sync their files. */
static inline scratch scratch_make(void)
{
    scratch made;
    const char *parent = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(made.directory, sizeof made.directory, "%s/kb-store-XXXXXX", parent);
    assert_non_null(mkdtemp(made.directory));
    snprintf(made.path, sizeof made.path, "%s/s.db", made.directory);
    return made;
}

static inline void scratch_remove(const scratch *made)
{
    static const char *const ends[] = {"", "-wal", "-shm", "-journal"};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        char path[80];
        snprintf(path, sizeof path, "%s%s", made->path, ends[i]);
        (void)unlink(path);
    }
    assert_int_equal(rmdir(made->directory), 0);
}

/* A document with a few figures, of a run that took so long. */
static inline json_t *document_of(int m, double sim_ns)
{
    json_t *document =
        json_pack("{s:s, s:{s:i}, s:n, s:f, s:s, s:{s:f, s:{s:i}}, s:[{s:s, s:i, s:f}]}", "bench",
                  "gemm", "parameters", "m", m, "verified", "sim_ns", sim_ns, "verdict", "compute",
                  "metrics", "tflops", 1.5, "busbw", "gbs", 7, "kernels", "name", "mm", "sip", 0,
                  "total_ns", sim_ns / 2);
    return document;
}

static inline store *open_store(const char *path, store_mode mode)
{
    store *s;
    expect_ok(store_open(path, mode, &s));
    return s;
}

static inline store_run run_of(const char *key, const json_t *document)
{
    return (store_run){
        .key = key,
        .bench = "gemm",
        .label = "first",
        .command = "kernbench run --bench gemm",
        .directory = "/somewhere",
        .machine_name = "default",
        .machine_hash = "00c0ffee00c0ffee",
        .machine_yaml = "system: {}\n",
        .wall_s = 0.25,
        .document = document,
    };
}

static inline int64_t add_run(store *s, const char *key, int m, double sim_ns)
{
    int64_t number;
    json_t *document = document_of(m, sim_ns);
    store_run run = run_of(key, document);
    expect_ok(store_add(s, &run, &number));
    json_decref(document);
    return number;
}

/* Counts rows, and keeps the last one's texts. */
typedef struct seen {
    int count;
    int64_t run;
    store_status status;
    char id[16], bench[32], parameters[100], settings[100], message[100], key[40];
    double sim_ns;
} seen;

static inline kb_error *see(void *self, const store_row *row)
{
    seen *s = self;
    s->count++;
    s->run = row->run;
    s->status = row->status;
    s->sim_ns = row->has_sim ? row->sim_ns : -1;
    snprintf(s->id, sizeof s->id, "%s", row->id);
    snprintf(s->bench, sizeof s->bench, "%s", row->bench);
    snprintf(s->parameters, sizeof s->parameters, "%s", row->parameters);
    snprintf(s->settings, sizeof s->settings, "%s", row->settings);
    snprintf(s->message, sizeof s->message, "%s", row->message ? row->message : "");
    snprintf(s->key, sizeof s->key, "%s", row->key ? row->key : "");
    return NULL;
}

static inline seen see_runs(store *s, store_filter filter)
{
    seen result = {0};
    expect_ok(store_each_run(s, &filter, see, &result));
    return result;
}

#endif
