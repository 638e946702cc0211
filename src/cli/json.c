/* json.c: values of JSON documents: see json.h. */
#include "json.h"

#include "cli.h"

#include <inttypes.h>
#include <math.h>

json_t *cli_json_ns(kb_time_sum time_fs)
{
    return json_real((double)time_fs / (double)KB_NS);
}

json_t *cli_json_count(kb_u128 count)
{
    return count <= INT64_MAX ? json_integer((json_int_t)count) : json_real((double)count);
}

json_t *cli_json_real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *cli_json_rate(uint64_t bytes_per_s)
{
    return json_real((double)bytes_per_s / (double)TOPO_GBS);
}

/* Frees the text. */
static json_t *take_text(kb_text *text)
{
    json_t *value = text->failed ? NULL : json_stringn(kb_text_peek(text), text->length);
    kb_text_fini(text);
    return value;
}

json_t *cli_json_text(const char *text)
{
    kb_text escaped = KB_TEXT_INIT;
    kb_text_puts(&escaped, text);
    kb_text_escape_from(&escaped, 0);
    return take_text(&escaped);
}

json_t *cli_json_node(const topo_machine *machine, uint32_t node)
{
    kb_text text = KB_TEXT_INIT;
    topo_node_name(machine, node, &text);
    return take_text(&text);
}

json_t *cli_json_link(const topo_machine *machine, uint32_t link)
{
    kb_text text = KB_TEXT_INIT;
    topo_link_name(machine, link, &text);
    return take_text(&text);
}

json_t *cli_json_machine(const topo_machine *machine, const cli_list *settings)
{
    char hash[20];
    snprintf(hash, sizeof hash, "%016" PRIx64, topo_machine_hash(machine));
    json_t *set = json_array();
    for (size_t i = 0; i < settings->count; i++)
        cli_json_append(&set, cli_json_text(settings->items[i]));
    return json_pack("{s:s, s:s, s:o}", "name", topo_machine_name(machine), "hash", hash, "set",
                     set);
}

void cli_json_append(json_t **array, json_t *value)
{
    if (*array && json_array_append_new(*array, value) == 0)
        return;
    if (!*array)
        json_decref(value);
    json_decref(*array);
    *array = NULL;
}

void cli_json_set(json_t **object, const char *key, json_t *value)
{
    if (*object && json_object_set_new(*object, key, value) == 0)
        return;
    if (!*object)
        json_decref(value);
    json_decref(*object);
    *object = NULL;
}

static int append(const char *bytes, size_t size, void *text)
{
    kb_text_append(text, bytes, size);
    return ((kb_text *)text)->failed ? -1 : 0;
}

kb_code cli_json_print(json_t *document)
{
    /* Not json_dumps(): in jansson 2.14 it continues after a key that ran out of memory. */
    kb_text text = KB_TEXT_INIT;
    /* A double keeps 15 digits of any decimal number: 0.1 is printed as 0.1. */
    size_t flags = JSON_INDENT(2) | JSON_REAL_PRECISION(15);
    bool good = document && json_dump_callback(document, append, &text, flags) == 0 && !text.failed;
    json_decref(document);
    if (good)
        puts(kb_text_peek(&text)); /* main() checks stdout */
    kb_text_fini(&text);
    return good ? KB_OK : cli_report(kb_error_nomem());
}
