/* fuzz.c: what the harnesses share. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "topo/machine_private.h"

enum { MAX_LINES = 16, MAX_LINKS = 30000 };

static char *copy(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    KB_ASSERT(text);
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

fuzz_parts fuzz_lines(const uint8_t *data, size_t size)
{
    fuzz_parts parts = {.rest = copy(data, size), .lines = malloc(MAX_LINES * sizeof(char *))};
    KB_ASSERT(parts.lines);
    char *rest = parts.rest;
    for (char *line; parts.line_count < MAX_LINES && (line = strsep(&rest, "\n"));)
        parts.lines[parts.line_count++] = line;
    return parts;
}

fuzz_parts fuzz_split(const uint8_t *data, size_t size)
{
    const uint8_t *split = size > 0 ? memchr(data, 0xfe, size) : NULL;
    size_t length = split ? (size_t)(split - data) : size;
    fuzz_parts parts = {0};
    if (split)
        parts = fuzz_lines(split + 1, size - length - 1);
    parts.text = copy(data, length);
    parts.text_length = length;
    return parts;
}

void fuzz_parts_fini(fuzz_parts *parts)
{
    free(parts->text);
    free(parts->rest);
    free(parts->lines);
}

bool fuzz_is_printable(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return false;
    return true;
}

static bool begins_with_one(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (strncmp(text, *words, strlen(*words)) == 0)
            return true;
    return false;
}

void fuzz_check_refusal(kb_error *err, const char *const *origins)
{
    const char *message = kb_error_message(err);
    KB_ASSERT(kb_error_code(err) == KB_ERR_INPUT);
    KB_ASSERT(message[0] != '\0' && fuzz_is_printable(message, strlen(message)));
    KB_ASSERT(!origins || begins_with_one(message, origins));
    for (const char *line = kb_error_detail(err); *line != '\0';) {
        size_t length = strcspn(line, "\n");
        KB_ASSERT(fuzz_is_printable(line, length));
        line += length + (line[length] == '\n');
    }
    kb_error_free(err);
}

/* Reading the default machine takes longer than most inputs do. */
static topo_description default_description(void)
{
    static topo_description description;
    static bool is_read;
    if (!is_read) {
        kb_error *err = topo_description_default(&description);
        KB_ASSERT(!err);
        is_read = true;
    }
    return description;
}

/* Reads the description as topo_machine_load() does, and counts the links that its graph would
 * have.
 */
static kb_error *count_links(const topo_source *source, uint64_t *links)
{
    topo_description description = default_description();
    kb_config *config;
    KB_TRY(kb_config_load_text(source->path, source->text, source->length, &config));
    for (size_t i = 0; i < source->setting_count; i++)
        kb_config_override(config, source->settings[i]);
    topo_description_read(&description, config, &source->registry);
    *links = topo_layout_count_links(&description);
    kb_error *err = kb_config_finish(config);
    kb_config_destroy(config);
    return err;
}

kb_error *fuzz_load_small(const topo_source *source, topo_machine **machine)
{
    uint64_t links;
    *machine = NULL;
    KB_TRY(count_links(source, &links));
    return links > MAX_LINKS ? NULL : topo_machine_load(source, machine);
}

static void check_graph(const topo_graph *graph)
{
    for (size_t i = 0; i < graph->nodes.count; i++)
        KB_ASSERT(graph->nodes.items[i].overhead_fs >= 0);
    for (size_t i = 0; i < graph->links.count; i++) {
        const topo_link *link = &graph->links.items[i];
        KB_ASSERT(link->from < graph->nodes.count && link->to < graph->nodes.count);
        KB_ASSERT(link->wire_fs >= 0 && topo_link_rate(graph, (uint32_t)i) > 0);
    }
}

/* The steps follow each other from one end to the other. */
static void check_route(const topo_machine *machine, uint32_t from, uint32_t to, uint32_t *steps)
{
    const topo_graph *graph = topo_machine_graph(machine);
    uint32_t count = topo_route(machine, from, to, true, steps), at = from;
    KB_ASSERT(count <= topo_machine_shape(machine)->max_steps);
    for (uint32_t i = 0; i < count; i++) {
        const topo_link *link = &graph->links.items[topo_step_link(steps[i])];
        KB_ASSERT(link->from == at);
        at = link->to;
    }
    KB_ASSERT(at == to);
}

void fuzz_check_machine(const topo_machine *machine)
{
    enum { ENDS = 5 };
    const topo_shape *shape = topo_machine_shape(machine);
    check_graph(topo_machine_graph(machine));
    uint32_t *steps = malloc((shape->max_steps + 1) * sizeof *steps);
    KB_ASSERT(steps);
    uint32_t sip = shape->sips - 1, cube = shape->cubes - 1, pe = shape->pes - 1;
    uint32_t ends[ENDS] = {
        topo_node_at(machine, TOPO_HOST, 0, 0, 0),
        topo_node_at(machine, TOPO_PE_DMA, 0, 0, 0),
        topo_node_at(machine, TOPO_PE_DMA, sip, cube, pe),
        topo_node_at(machine, TOPO_HBM_CTRL, sip / 2, cube / 2, pe / 2),
        topo_node_at(machine, TOPO_SRAM, sip, 0, 0),
    };
    for (size_t i = 0; i < ENDS; i++)
        for (size_t j = 0; j < ENDS; j++)
            if (ends[i] != ends[j])
                check_route(machine, ends[i], ends[j], steps);
    free(steps);
}
