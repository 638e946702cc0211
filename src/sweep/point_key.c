/* point_key.c: see point_key.h. What begins a hash says which kind it is. */
#include "point_key.h"

#include <string.h>
#include <unistd.h>

static kb_error *add_file(sweep_digest *digest, const char *path)
{
    sweep_hash hash;
    KB_TRY(sweep_digest_file(path, &hash));
    sweep_digest_text(digest, hash.hex);
    return NULL;
}

kb_error *sweep_keys_init(sweep_keys *keys, const sweep_plan *plan, const char *ccl)
{
    *keys = (sweep_keys){.plan = plan};
    sweep_digest *d = &keys->common;
    sweep_digest_init(d);
    sweep_digest_text(d, kb_version());
    sweep_digest_text(d, plan->device ? plan->device : "all");
    sweep_digest_number(d, (uint64_t)plan->timing_only | (uint64_t)plan->verify << 1 |
                               (uint64_t)plan->check_races << 2);
    sweep_digest_number(d, plan->stack_bytes);
    sweep_digest_number(d, plan->plugins.count);
    for (size_t i = 0; i < plan->plugins.count; i++)
        KB_TRY(add_file(d, plan->plugins.items[i]));
    if (ccl)
        return add_file(d, ccl);
    sweep_digest_text(d, NULL);
    return NULL;
}

void sweep_keys_fini(sweep_keys *keys)
{
    kb_vec_fini(&keys->benches);
    kb_vec_fini(&keys->topologies);
}

static sweep_hash hash_of_name(const char *name)
{
    sweep_digest digest;
    sweep_digest_init(&digest);
    sweep_digest_text(&digest, name);
    return sweep_digest_finish(&digest);
}

/* A file of several benches has their names behind it: both count. */
kb_error *sweep_keys_add_bench(sweep_keys *keys, const char *bench, const char *file)
{
    sweep_named_hash named = {.name = bench};
    const char *slash = strrchr(bench, '/');
    sweep_digest digest;
    sweep_digest_init(&digest);
    sweep_digest_text(&digest, slash ? slash + 1 : bench);
    if (file)
        KB_TRY(add_file(&digest, file));
    named.hash = sweep_digest_finish(&digest);
    return kb_vec_push(&keys->benches, named) ? NULL : kb_error_nomem();
}

static const sweep_hash *find_bench(const sweep_keys *keys, const char *bench)
{
    size_t i = 0;
    while (i < keys->benches.count && strcmp(keys->benches.items[i].name, bench) != 0)
        i++;
    KB_ASSERT(i < keys->benches.count);
    return &keys->benches.items[i].hash;
}

kb_error *sweep_keys_add_topology(sweep_keys *keys, const char *topology)
{
    sweep_named_hash named = {.name = topology, .hash = hash_of_name(topology)};
    if (access(topology, F_OK) == 0) /* else it is the name of a built-in machine */
        KB_TRY(sweep_digest_file(topology, &named.hash));
    return kb_vec_push(&keys->topologies, named) ? NULL : kb_error_nomem();
}

static const char *find_topology(const sweep_keys *keys, const char *topology)
{
    size_t i = 0;
    if (!topology)
        return NULL;
    while (i < keys->topologies.count && strcmp(keys->topologies.items[i].name, topology) != 0)
        i++;
    KB_ASSERT(i < keys->topologies.count);
    return keys->topologies.items[i].hash.hex;
}

/* The order in which they were given does not matter: a sum of hashes. No text is there twice. */
static void add_set(sweep_digest *digest, const sweep_texts *texts, const char *prefix)
{
    uint32_t sum[8] = {0};
    for (size_t i = 0; i < texts->count; i++) {
        sweep_digest one;
        if (strncmp(texts->items[i], prefix, strlen(prefix)) != 0)
            continue;
        sweep_digest_init(&one);
        sweep_digest_text(&one, texts->items[i]);
        (void)sweep_digest_finish(&one);
        for (int w = 0; w < 8; w++)
            sum[w] += one.state[w];
    }
    for (int w = 0; w < 8; w++)
        sweep_digest_number(digest, sum[w]);
}

sweep_hash sweep_keys_request(const sweep_keys *keys, const sweep_point *point)
{
    sweep_digest digest = keys->common;
    sweep_digest_text(&digest, "request");
    sweep_digest_text(&digest, find_bench(keys, point->bench)->hex);
    sweep_digest_text(&digest, find_topology(keys, point->topology));
    sweep_digest_number(&digest, point->repeat);
    add_set(&digest, &point->settings, "");
    add_set(&digest, &point->params, "");
    return sweep_digest_finish(&digest);
}

sweep_hash sweep_keys_key(const sweep_keys *keys, const sweep_point *point, uint64_t machine,
                          const int64_t *values, size_t count)
{
    sweep_digest digest = keys->common;
    sweep_digest_text(&digest, "key");
    sweep_digest_text(&digest, find_bench(keys, point->bench)->hex);
    sweep_digest_number(&digest, machine);
    sweep_digest_number(&digest, point->repeat);
    add_set(&digest, &point->settings, "ccl.");
    if (!values) {
        add_set(&digest, &point->params, "");
        return sweep_digest_finish(&digest);
    }
    for (size_t i = 0; i < count; i++)
        sweep_digest_number(&digest, (uint64_t)values[i]);
    return sweep_digest_finish(&digest);
}
