/* json.c: documents for programs. jansson writes numbers the same way in every locale. */
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

/* Hands the text over. */
static json_t *text_value(kb_text *text)
{
    json_t *value = text->failed ? NULL : json_stringn(kb_text_peek(text), text->length);
    kb_text_fini(text);
    return value;
}

json_t *cli_json_node(const topo_machine *machine, uint32_t node)
{
    kb_text text = KB_TEXT_INIT;
    topo_node_name(machine, node, &text);
    return text_value(&text);
}

json_t *cli_json_link(const topo_machine *machine, uint32_t link)
{
    kb_text text = KB_TEXT_INIT;
    topo_link_name(machine, link, &text);
    return text_value(&text);
}

json_t *cli_json_machine(const topo_machine *machine, const cli_list *settings)
{
    char hash[20];
    snprintf(hash, sizeof hash, "%016" PRIx64, topo_machine_hash(machine));
    json_t *set = json_array();
    for (size_t i = 0; i < settings->count; i++) {
        kb_text text = KB_TEXT_INIT;
        kb_text_puts(&text, settings->items[i]);
        kb_text_escape_from(&text, 0); /* it may be no UTF-8 */
        cli_json_append(&set, text_value(&text));
    }
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

static int append(const char *bytes, size_t size, void *text)
{
    kb_text_append(text, bytes, size);
    return ((kb_text *)text)->failed ? -1 : 0;
}

kb_code cli_json_print(json_t *document)
{
    /* Into a text of ours: json_dumps() of jansson 2.14 goes on behind a key that did not fit. */
    kb_text text = KB_TEXT_INIT;
    /* 15 digits are what a double keeps of any decimal number: 0.1 is printed as 0.1. */
    size_t flags = JSON_INDENT(2) | JSON_REAL_PRECISION(15);
    bool good = document && json_dump_callback(document, append, &text, flags) == 0 && !text.failed;
    json_decref(document);
    if (good)
        puts(kb_text_peek(&text)); /* main() sees whether it got out */
    kb_text_fini(&text);
    return good ? KB_OK : cli_report(kb_error_nomem());
}
