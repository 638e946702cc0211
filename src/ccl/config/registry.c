/*
 * registry.c: finds algorithms, topologies, mappers and validators by name. Names of a kind are
 * unique, so the order of plugins does not matter. The lists are short: a linear search is fast
 * enough.
 */
#include "registry.h"

#include <string.h>

const kb_ccl_plugin ccl_shipped = {
    .algorithms = ccl_algorithms,
    .topologies = ccl_topologies,
    .mappers = ccl_mappers,
    .validators = ccl_validators,
};

const char *ccl_kind_name(ccl_kind kind)
{
    static const char *const names[CCL_KINDS] = {
        [CCL_ALGORITHM] = "module",
        [CCL_TOPOLOGY] = "topology",
        [CCL_MAPPER] = "mapper",
        [CCL_VALIDATOR] = "validator",
    };
    return names[kind];
}

/* ---- Iteration ---------------------------------------------------------------------------- */

/* Element `index` of a list that ends with NULL, or is NULL; false at the end. */
#define NAMED_AT(list, index, named)                                                               \
    ((list) && (list)[index] &&                                                                    \
     (*(named) = (ccl_named){.name = (list)[index]->name,                                          \
                             .summary = (list)[index]->summary,                                    \
                             .thing = (list)[index]},                                              \
      true))

static bool named_at(const kb_ccl_plugin *plugin, ccl_kind kind, size_t index, ccl_named *named)
{
    switch (kind) {
    case CCL_ALGORITHM:
        return NAMED_AT(plugin->algorithms, index, named);
    case CCL_TOPOLOGY:
        return NAMED_AT(plugin->topologies, index, named);
    case CCL_MAPPER:
        return NAMED_AT(plugin->mappers, index, named);
    case CCL_VALIDATOR:
        return NAMED_AT(plugin->validators, index, named);
    case CCL_KINDS:
        break;
    }
    return false;
}

bool ccl_registry_next(const ccl_registry *registry, ccl_kind kind, ccl_cursor *cursor,
                       ccl_named *named)
{
    for (; cursor->plugin <= registry->plugin_count; cursor->plugin++, cursor->index = 0) {
        const kb_ccl_plugin *plugin =
            cursor->plugin == 0 ? &ccl_shipped : registry->plugins[cursor->plugin - 1];
        if (named_at(plugin, kind, cursor->index, named)) {
            cursor->index++;
            return true;
        }
    }
    return false;
}

static const void *find(const ccl_registry *registry, ccl_kind kind, const char *name)
{
    ccl_named named;
    for (ccl_cursor at = {0}; ccl_registry_next(registry, kind, &at, &named);)
        if (strcmp(named.name, name) == 0)
            return named.thing;
    return NULL;
}

/* The shipped algorithm of a module name of the Python original; NULL if there is none. */
static const kb_ccl_algorithm *find_dotted(const char *name)
{
    static const char package[] = "kernbench.ccl.algorithms.", suffix[] = "_allreduce";
    if (strncmp(name, package, strlen(package)) != 0)
        return NULL;
    name += strlen(package);
    size_t length = strlen(name), cut = length;
    if (length > strlen(suffix) && strcmp(name + length - strlen(suffix), suffix) == 0)
        cut = length - strlen(suffix);
    for (const kb_ccl_algorithm *const *a = ccl_algorithms; *a; a++) {
        size_t own = strlen((*a)->name);
        if ((own == length || own == cut) && strncmp((*a)->name, name, own) == 0)
            return *a;
    }
    return NULL;
}

const void *ccl_find(const ccl_registry *registry, ccl_kind kind, const char *name)
{
    const void *thing = find(registry, kind, name);
    return thing || kind != CCL_ALGORITHM ? thing : find_dotted(name);
}

const kb_ccl_algorithm *ccl_find_algorithm(const ccl_registry *registry, const char *name)
{
    return ccl_find(registry, CCL_ALGORITHM, name);
}

const kb_ccl_topology *ccl_find_topology(const ccl_registry *registry, const char *name)
{
    return ccl_find(registry, CCL_TOPOLOGY, name);
}

const kb_ccl_mapper *ccl_find_mapper(const ccl_registry *registry, const char *name)
{
    return ccl_find(registry, CCL_MAPPER, name);
}

const kb_ccl_validator *ccl_find_validator(const ccl_registry *registry, const char *name)
{
    return ccl_find(registry, CCL_VALIDATOR, name);
}

const kb_ccl_mapper *ccl_default_mapper(const ccl_registry *registry,
                                        const kb_ccl_algorithm *algorithm)
{
    return ccl_find_mapper(registry, algorithm->mapper ? algorithm->mapper : "leader_only");
}

const kb_ccl_validator *ccl_default_validator(const ccl_registry *registry,
                                              const kb_ccl_mapper *mapper)
{
    return mapper->validator ? ccl_find_validator(registry, mapper->validator) : NULL;
}

/* ---- Checks of plugins -------------------------------------------------------------------- */

/* Whether the functions that its kind requires are there. */
static bool is_complete(ccl_kind kind, const ccl_named *named)
{
    switch (kind) {
    case CCL_ALGORITHM: {
        const kb_ccl_algorithm *algorithm = named->thing;
        return algorithm->kernel && algorithm->arguments;
    }
    case CCL_TOPOLOGY:
        return ((const kb_ccl_topology *)named->thing)->connect != NULL;
    case CCL_MAPPER:
        return ((const kb_ccl_mapper *)named->thing)->map != NULL;
    case CCL_VALIDATOR:
        return ((const kb_ccl_validator *)named->thing)->check != NULL;
    case CCL_KINDS:
        break;
    }
    return false;
}

/* The name of an unknown default mapper or validator; NULL: none. */
static const char *find_dangling(const ccl_registry *registry, ccl_kind kind, const void *thing)
{
    const kb_ccl_algorithm *algorithm = thing;
    const kb_ccl_mapper *mapper = thing;
    if (kind == CCL_ALGORITHM && algorithm->mapper)
        return ccl_find_mapper(registry, algorithm->mapper) ? NULL : algorithm->mapper;
    if (kind == CCL_MAPPER && mapper->validator)
        return ccl_find_validator(registry, mapper->validator) ? NULL : mapper->validator;
    return NULL;
}

/* `none` and `auto` have a meaning of their own in ccl.yaml. */
static bool is_reserved(const char *name)
{
    return name[0] == '\0' || strcmp(name, "none") == 0 || strcmp(name, "auto") == 0;
}

static kb_error *check_kind(const ccl_registry *registry, ccl_kind kind)
{
    const char *what = kind == CCL_ALGORITHM ? "algorithm" : ccl_kind_name(kind);
    ccl_named named;
    for (ccl_cursor at = {0}; ccl_registry_next(registry, kind, &at, &named);) {
        if (!named.name || is_reserved(named.name))
            return kb_error_new(KB_ERR_INPUT, "plugin %zu: its %s %zu %s%s%s", at.plugin, what,
                                at.index, named.name ? "cannot be called '" : "has no name",
                                named.name ? named.name : "", named.name ? "'" : "");
        if (!is_complete(kind, &named))
            return kb_error_new(KB_ERR_INPUT, "plugin %zu: %s '%s' lacks %s", at.plugin, what,
                                named.name,
                                kind == CCL_ALGORITHM ? "a kernel, or arguments" : "its function");
        const char *dangling = find_dangling(registry, kind, named.thing);
        if (dangling)
            return kb_error_new(KB_ERR_INPUT, "plugin %zu: %s '%s' names an unknown %s '%s'",
                                at.plugin, what, named.name,
                                kind == CCL_ALGORITHM ? "mapper" : "validator", dangling);
        if (find(registry, kind, named.name) != named.thing)
            return kb_error_new(KB_ERR_INPUT, "plugin %zu: another %s is called '%s' already",
                                at.plugin, what, named.name);
    }
    return NULL;
}

kb_error *ccl_registry_init(ccl_registry *registry, const kb_ccl_plugin *const *plugins,
                            size_t count)
{
    *registry = (ccl_registry){.plugins = plugins, .plugin_count = count};
    for (ccl_kind kind = 0; kind < CCL_KINDS; kind++)
        KB_TRY(check_kind(registry, kind));
    return NULL;
}
