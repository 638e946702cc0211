/*
 * ccl_yaml.c: the keys of ccl.yaml and their allowed values.
 *
 * A user's file is read together with the built-in file. Its defaults override the built-in ones.
 * Its entries come before the built-in ones and replace those of the same name. All entries of both
 * files take what they do not specify from the same defaults.
 */
#include "ccl_yaml.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char builtin_name[] = "built-in ccl.yaml";

enum {
    max_credit_bytes = 4096,
    max_side = 65536,
};
static const int64_t max_elements = (int64_t)1 << 40;

/* An entry while it is read; that of `defaults` has no name. */
typedef struct draft {
    ccl_entry entry;
    bool rank_given;
} draft;

typedef struct reader {
    ccl_config *config;
    const ccl_registry *registry;
    draft defaults;
    kb_config_node *chosen; /* defaults.algorithm */
    bool out_of_memory;
} reader;

/* ---- Names ------------------------------------------------------------------------------- */

/* Reports an unknown algorithm, topology, mapper or validator. */
static void note_unknown_thing(const reader *r, kb_config_node *node, ccl_kind kind,
                               const char *word)
{
    kb_suggestion near;
    ccl_named named;
    kb_suggestion_init(&near, word);
    for (ccl_cursor at = {0}; ccl_registry_next(r->registry, kind, &at, &named);)
        kb_suggestion_offer(&near, named.name);
    if (kind == CCL_TOPOLOGY)
        kb_suggestion_offer(&near, "none");
    kb_config_problem(node, "unknown %s '%s'%s", ccl_kind_name(kind), word,
                      kb_suggestion_full(&near, "; see kernbench list"));
}

/* The number of the entry that a node names. If there is none: reports it, and returns CCL_AUTO. */
static size_t read_entry_name(const reader *r, kb_config_node *node)
{
    const char *word = kb_config_string(node, NULL);
    if (!word)
        return CCL_AUTO;
    kb_suggestion near;
    kb_suggestion_init(&near, word);
    for (size_t i = 0; i < r->config->entries.count; i++) {
        kb_suggestion_offer(&near, r->config->entries.items[i].name);
        if (strcmp(r->config->entries.items[i].name, word) == 0)
            return i;
    }
    kb_config_problem(node, "unknown algorithm '%s'%s", word,
                      kb_suggestion_hint(&near, "; see kernbench list"));
    return CCL_AUTO;
}

/* ---- Keys of defaults and entries --------------------------------------------------------- */

static void set(reader *r, ccl_entry *entry, const char *key, int64_t value)
{
    for (size_t i = 0; i < entry->settings.count; i++) {
        if (strcmp(entry->settings.items[i].key, key) == 0) {
            entry->settings.items[i].value = value;
            return;
        }
    }
    ccl_setting setting = {.key = kb_arena_strdup(&r->config->names, key), .value = value};
    if (!setting.key || !kb_vec_push(&entry->settings, setting))
        r->out_of_memory = true;
}

static void read_setting(reader *r, kb_config_node *mapping, const char *key, int64_t min,
                         int64_t max, ccl_entry *entry)
{
    kb_config_node *node = kb_config_find(mapping, key);
    if (node)
        set(r, entry, key, kb_config_int(node, min, max, min));
}

static void read_queues(kb_config_node *mapping, ccl_entry *entry)
{
    static const char *const buffers[] = {"tcm", "hbm", "sram"};
    static const kb_memory memories[] = {KB_TCM, KB_HBM, KB_SRAM};
    size_t buffer = kb_config_enum(kb_config_find(mapping, "buffer_kind"), buffers, 3, 3);
    if (buffer < 3)
        entry->buffer = memories[buffer];
    static const char *const backpressures[] = {"sleep", "poll"};
    entry->polls = kb_config_enum(kb_config_find(mapping, "backpressure"), backpressures, 2,
                                  entry->polls ? 1 : 0) == 1;
    entry->n_slots = (uint32_t)kb_config_int(kb_config_find(mapping, "n_slots"), 1, CCL_MAX_SLOTS,
                                             entry->n_slots);
    entry->slot_bytes =
        (uint64_t)kb_config_int(kb_config_find(mapping, "slot_size"), CCL_MIN_SLOT_BYTES,
                                CCL_MAX_SLOT_BYTES, (int64_t)entry->slot_bytes);
    entry->vc_chunk_bytes = (uint32_t)kb_config_int(kb_config_find(mapping, "vc_chunk_size"), 1,
                                                    CCL_MAX_SLOT_BYTES, entry->vc_chunk_bytes);
    entry->credit_bytes = (uint32_t)kb_config_int(kb_config_find(mapping, "ipcq_credit_size_bytes"),
                                                  1, max_credit_bytes, entry->credit_bytes);
}

static void read_ranks(kb_config_node *mapping, draft *d)
{
    static const char *const ranks[] = {"sip", "pe"};
    d->entry.world_size = (uint32_t)kb_config_int(kb_config_find(mapping, "world_size"), 1,
                                                  INT32_MAX, d->entry.world_size);
    size_t rank = kb_config_enum(kb_config_find(mapping, "rank"), ranks, 2, 2);
    if (rank < 2) {
        d->entry.rank_is_pe = rank == 1;
        d->rank_given = true;
    }
}

static void read_shared(reader *r, kb_config_node *mapping, draft *d)
{
    read_queues(mapping, &d->entry);
    read_ranks(mapping, d);
    const char *ops[KB_REDUCE_OPS];
    for (int op = 0; op < KB_REDUCE_OPS; op++)
        ops[op] = kb_reduce_op_name((kb_reduce_op)op);
    d->entry.reduce_op = (kb_reduce_op)kb_config_enum(kb_config_find(mapping, "reduce_op"), ops,
                                                      KB_REDUCE_OPS, d->entry.reduce_op);
    read_setting(r, mapping, "n_elem", 1, max_elements, &d->entry);
    read_setting(r, mapping, "chunk_size", 1, max_elements, &d->entry);
}

static void read_defaults(reader *r, kb_config_node *root)
{
    kb_config_node *defaults = kb_config_mapping(kb_config_find(root, "defaults"));
    read_shared(r, defaults, &r->defaults);
    kb_config_node *chosen = kb_config_find(defaults, "algorithm");
    if (chosen)
        r->chosen = chosen;
    ccl_entry *entry = &r->defaults.entry;
    entry->slots_times = (uint32_t)kb_config_int(kb_config_find(defaults, "slots_times"), 1,
                                                 CCL_MAX_SLOTS, entry->slots_times);
}

/* ---- Entries ----------------------------------------------------------------------------- */

static const void *read_thing(const reader *r, kb_config_node *node, ccl_kind kind)
{
    const char *word = kb_config_string(node, NULL);
    const void *found = word ? ccl_find(r->registry, kind, word) : NULL;
    if (word && !found)
        note_unknown_thing(r, node, kind, word);
    return found;
}

static void read_topology(const reader *r, kb_config_node *mapping, ccl_entry *entry)
{
    kb_config_node *node = kb_config_need(mapping, "topology");
    const char *word = kb_config_source_text(node);
    bool is_none = word && strcmp(word, "none") == 0;
    if (!is_none)
        entry->topology = read_thing(r, node, CCL_TOPOLOGY);
    if (!entry->algorithm || (!is_none && !entry->topology))
        return;
    if (is_none && !entry->algorithm->connect)
        kb_config_problem(node, "module '%s' needs a topology, found none", entry->algorithm->name);
    if (!is_none && entry->algorithm->connect)
        kb_config_problem(node, "module '%s' defines its own topology: expected none",
                          entry->algorithm->name);
}

/* Some modules always reduce the shards within a SIP. Others do so if the mapper selects several
 * PEs of a rank; then the entry must have `reduce_shards: true` (check_meaning() in select.c). */
static void read_reduce_shards(kb_config_node *mapping, ccl_entry *entry)
{
    kb_config_node *node = kb_config_find(mapping, "reduce_shards");
    bool always = entry->algorithm && entry->algorithm->reduce_shards;
    entry->reduce_shards = kb_config_bool(node, always);
    if (always && !entry->reduce_shards)
        kb_config_problem(node, "module '%s' reduces the shards within each SIP: expected true",
                          entry->algorithm->name);
}

/* Unless the entry names them: the mapper that the module needs, and the validator that the mapper
 * needs. If ranks are PEs no validator is needed. */
static void read_participants(const reader *r, kb_config_node *mapping, ccl_entry *entry)
{
    kb_config_node *mapper = kb_config_find(mapping, "mapper");
    kb_config_node *validator = kb_config_find(mapping, "validator");
    if (mapper)
        entry->mapper = read_thing(r, mapper, CCL_MAPPER);
    else if (entry->algorithm)
        entry->mapper = ccl_default_mapper(r->registry, entry->algorithm);
    if (validator)
        entry->validator = read_thing(r, validator, CCL_VALIDATOR);
    else if (entry->mapper && !entry->rank_is_pe)
        entry->validator = ccl_default_validator(r->registry, entry->mapper);
}

static void read_entry_settings(reader *r, kb_config_node *mapping, ccl_entry *entry)
{
    kb_config_node *w = kb_config_find(mapping, "w"), *h = kb_config_find(mapping, "h");
    read_setting(r, mapping, "w", 1, max_side, entry);
    read_setting(r, mapping, "h", 1, max_side, entry);
    if (!w != !h)
        kb_config_problem(w ? w : h, "missing %s: w and h must be given together", w ? "h" : "w");
    read_setting(r, mapping, "root_cube", 0, INT32_MAX, entry);
    entry->auto_max_ranks = (uint32_t)kb_config_int(kb_config_find(mapping, "auto_max_ranks"), 1,
                                                    INT32_MAX, entry->auto_max_ranks);
    entry->fit_slots = kb_config_bool(kb_config_find(mapping, "fit_slots"), false);
    for (kb_config_node *node = NULL;
         (node = kb_config_find_prefixed(mapping, "kernel_", node)) != NULL;)
        set(r, entry, kb_config_key(node), kb_config_int(node, INT64_MIN, INT64_MAX, 0));
}

/* A new entry with the values of `defaults`. Its list of settings is its own. */
static draft begin_entry(reader *r, const char *name)
{
    draft d = r->defaults;
    d.entry.settings.items = NULL;
    d.entry.settings.count = d.entry.settings.capacity = 0;
    for (size_t i = 0; i < r->defaults.entry.settings.count; i++) {
        const ccl_setting *setting = &r->defaults.entry.settings.items[i];
        set(r, &d.entry, setting->key, setting->value);
    }
    d.entry.name = kb_arena_strdup(&r->config->names, name);
    d.entry.mapper = ccl_find_mapper(r->registry, "leader_only");
    if (!d.entry.name) {
        r->out_of_memory = true;
        d.entry.name = "";
    }
    return d;
}

/* `world_size` without `rank` counts PEs. */
static void settle_ranks(draft *d)
{
    if (d->entry.world_size > 0 && !d->rank_given)
        d->entry.rank_is_pe = true;
}

static void read_entry(reader *r, kb_config_node *node)
{
    const char *name = kb_config_key(node);
    kb_config_node *mapping = kb_config_mapping(node);
    draft d = begin_entry(r, name);
    if (strcmp(name, "auto") == 0)
        kb_config_problem(node, "'auto' is reserved: expected another name");
    read_shared(r, mapping, &d);
    settle_ranks(&d);
    d.entry.n_slots = ccl_slots(d.entry.n_slots, d.entry.slots_times);
    d.entry.algorithm = read_thing(r, kb_config_need(mapping, "module"), CCL_ALGORITHM);
    read_topology(r, mapping, &d.entry);
    read_participants(r, mapping, &d.entry);
    read_reduce_shards(mapping, &d.entry);
    read_entry_settings(r, mapping, &d.entry);
    bool replaced = ccl_config_find(r->config, name) != NULL;
    if (!replaced && kb_vec_push(&r->config->entries, d.entry))
        return;
    r->out_of_memory |= !replaced;
    kb_vec_fini(&d.entry.settings);
}

static void read_entries(reader *r, kb_config_node *root)
{
    kb_config_node *algorithms = kb_config_mapping(kb_config_find(root, "algorithms"));
    for (kb_config_node *node = kb_config_first(algorithms); node; node = kb_config_next(node))
        read_entry(r, node);
}

static void choose(reader *r)
{
    draft d = begin_entry(r, "auto");
    settle_ranks(&d);
    d.entry.n_slots = ccl_slots(d.entry.n_slots, d.entry.slots_times);
    r->config->automatic = d.entry;
    const char *word = kb_config_source_text(r->chosen);
    bool automatic = word && strcmp(word, "auto") == 0;
    r->config->chosen = automatic ? CCL_AUTO : read_entry_name(r, r->chosen);
}

/* ---- The measured table ------------------------------------------------------------------- */

static bool read_hash(kb_config_node *node, uint64_t *hash)
{
    const char *word = kb_config_string(node, NULL);
    if (!word)
        return false;
    size_t digits = strspn(word, "0123456789abcdef");
    if (digits != 16 || word[digits] != '\0') {
        kb_config_problem(node,
                          "expected the hash of a machine, 16 digits of 0-9 and a-f, "
                          "found '%.40s'",
                          word);
        return false;
    }
    *hash = strtoull(word, NULL, 16);
    return true;
}

static kb_collective_kind read_collective(kb_config_node *node)
{
    const char *names[KB_COLLECTIVES];
    for (int kind = 0; kind < KB_COLLECTIVES; kind++)
        names[kind] = kb_collective_name((kb_collective_kind)kind);
    return (kb_collective_kind)kb_config_enum(node, names, KB_COLLECTIVES, KB_COLLECTIVES);
}

static int by_question(const ccl_tuned *a, const ccl_tuned *b)
{
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    if (a->machine != b->machine)
        return a->machine < b->machine ? -1 : 1;
    if (a->world != b->world)
        return a->world < b->world ? -1 : 1;
    return (a->up_to_bytes > b->up_to_bytes) - (a->up_to_bytes < b->up_to_bytes);
}

static void read_tuned_line(reader *r, kb_config_node *item)
{
    kb_config_node *line = kb_config_mapping(item);
    kb_config_node *algorithm = kb_config_need(line, "algorithm");
    ccl_tuned tuned = {
        .kind = read_collective(kb_config_need(line, "collective")),
        .world = (uint32_t)kb_config_int(kb_config_need(line, "world"), 1, INT32_MAX, 0),
        .up_to_bytes =
            (uint64_t)kb_config_int(kb_config_need(line, "up_to_bytes"), 1, INT64_MAX, 0),
        .entry = read_entry_name(r, algorithm),
    };
    bool right = read_hash(kb_config_need(line, "machine"), &tuned.machine);
    right = right && tuned.kind < KB_COLLECTIVES && tuned.world > 0 && tuned.up_to_bytes > 0 &&
            tuned.entry != CCL_AUTO;
    if (!right)
        return;
    const ccl_entry *entry = &r->config->entries.items[tuned.entry];
    if (entry->algorithm && !(entry->algorithm->collectives & 1u << tuned.kind))
        kb_config_problem(algorithm, "'%s' does not implement %s", entry->name,
                          kb_collective_name(tuned.kind));
    for (size_t i = 0; i < r->config->tuned.count; i++)
        if (by_question(&r->config->tuned.items[i], &tuned) == 0)
            kb_config_problem(line,
                              "duplicate entry: same machine, collective, world and size as "
                              "entry %zu",
                              i + 1);
    if (!kb_vec_push(&r->config->tuned, tuned))
        r->out_of_memory = true;
}

static void read_tuned(reader *r, kb_config_node *root)
{
    kb_config_node *tuned = kb_config_sequence(kb_config_find(root, "tuned"));
    for (kb_config_node *item = kb_config_first(tuned); item; item = kb_config_next(item))
        read_tuned_line(r, item);
}

/* ---- Files and settings ------------------------------------------------------------------- */

/* The user's file, if any, and the built-in file. */
typedef struct sources {
    kb_config *file, *builtin;
} sources;

static kb_error *load_sources(const char *path, sources *s)
{
    KB_TRY(kb_config_load_text(builtin_name, ccl_builtin_text, ccl_builtin_length, &s->builtin));
    return path ? kb_config_load_file(path, &s->file) : NULL;
}

static void destroy_sources(sources *s)
{
    kb_config_destroy(s->file);
    kb_config_destroy(s->builtin);
}

static bool has_entry(kb_config *config, const char *name)
{
    kb_config_node *algorithms = kb_config_find(kb_config_root(config), "algorithms");
    return kb_config_find(algorithms, name) != NULL;
}

/* Whether a setting is for an entry of the built-in file. That must be known before settings are
 * applied, so it is looked up in copies. */
static kb_error *is_for_builtin(const char *path, const char *setting, bool *is)
{
    static const char prefix[] = "algorithms.";
    *is = false;
    if (strncmp(setting, prefix, strlen(prefix)) != 0)
        return NULL;
    const char *name = setting + strlen(prefix);
    kb_text entry = KB_TEXT_INIT;
    kb_text_append(&entry, name, strcspn(name, ".="));
    sources s = {0};
    kb_error *err = entry.failed ? kb_error_nomem() : load_sources(path, &s);
    if (!err)
        *is =
            !has_entry(s.file, kb_text_peek(&entry)) && has_entry(s.builtin, kb_text_peek(&entry));
    destroy_sources(&s);
    kb_text_fini(&entry);
    return err;
}

static kb_error *apply_settings(const sources *s, const char *path, const char *const *settings,
                                size_t count)
{
    for (size_t i = 0; i < count; i++) {
        bool for_builtin = !s->file;
        if (s->file)
            KB_TRY(is_for_builtin(path, settings[i], &for_builtin));
        kb_config_override_given(for_builtin ? s->builtin : s->file, "ccl.", settings[i]);
    }
    return NULL;
}

/* All problems of both files. */
static kb_error *finish(const sources *s)
{
    kb_error *err = s->file ? kb_config_finish(s->file) : NULL;
    kb_error *of_builtin = kb_config_finish(s->builtin);
    if (!err)
        return of_builtin;
    if (of_builtin) {
        const char *detail = kb_error_detail(of_builtin);
        if (*detail != '\0')
            kb_error_add_detail_of(err, of_builtin);
        else
            kb_error_add_detail(err, "%s", kb_error_message(of_builtin));
        kb_error_free(of_builtin);
    }
    return err;
}

static kb_error *read_sources(const sources *s, const ccl_registry *registry, ccl_config *config)
{
    reader r = {.config = config, .registry = registry};
    kb_config_node *builtin = kb_config_root(s->builtin);
    kb_config_node *file = s->file ? kb_config_root(s->file) : NULL;
    read_defaults(&r, builtin);
    read_defaults(&r, file);
    read_entries(&r, file);
    read_entries(&r, builtin);
    choose(&r);
    read_tuned(&r, file);
    read_tuned(&r, builtin);
    kb_vec_fini(&r.defaults.entry.settings);
    kb_error *err = finish(s);
    if (r.out_of_memory) {
        kb_error_free(err);
        return kb_error_nomem();
    }
    return err;
}

kb_error *ccl_config_load(const char *path, const char *const *settings, size_t setting_count,
                          const ccl_registry *registry, ccl_config *config)
{
    *config = (ccl_config){.chosen = CCL_AUTO};
    kb_arena_init(&config->names);
    config->path = path ? kb_arena_strdup(&config->names, path) : builtin_name;
    sources s = {0};
    kb_error *err = config->path ? load_sources(path, &s) : kb_error_nomem();
    if (!err)
        err = apply_settings(&s, path, settings, setting_count);
    if (!err)
        err = read_sources(&s, registry, config);
    destroy_sources(&s);
    if (err)
        ccl_config_fini(config);
    return err;
}

void ccl_config_fini(ccl_config *config)
{
    for (size_t i = 0; i < config->entries.count; i++)
        kb_vec_fini(&config->entries.items[i].settings);
    kb_vec_fini(&config->automatic.settings);
    kb_vec_fini(&config->entries);
    kb_vec_fini(&config->tuned);
    kb_arena_fini(&config->names);
}

const ccl_entry *ccl_config_find(const ccl_config *config, const char *name)
{
    for (size_t i = 0; i < config->entries.count; i++)
        if (strcmp(config->entries.items[i].name, name) == 0)
            return &config->entries.items[i];
    return NULL;
}
