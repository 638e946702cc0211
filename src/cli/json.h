/*
 * json.h: values of JSON documents. With --json a command prints exactly one document on stdout,
 * and nothing else.
 *
 * Values are made with jansson. Like json_pack(), these return NULL if memory runs out anywhere in
 * the value; cli_json_print() reports it.
 */
#ifndef KB_CLI_JSON_H
#define KB_CLI_JSON_H

#include "base/base.h"

#include <jansson.h>
#include <kernbench/kernbench.h>

#include <stdint.h>

#include "topo/topo.h"

#include "options.h"

/* Nanoseconds, exact to the femtosecond up to a second. */
json_t *cli_json_ns(kb_time_sum time_fs);

/* A whole number; as a real number if it does not fit jansson's integers. */
json_t *cli_json_count(kb_u128 count);

/* A real number; null for infinity and NaN, which JSON does not have. */
json_t *cli_json_real(double value);

/* GB/s. */
json_t *cli_json_rate(uint64_t bytes_per_s);

/* A text of the user's, escaped as on a terminal: it may contain invalid UTF-8. */
json_t *cli_json_text(const char *text);

json_t *cli_json_node(const topo_machine *machine, uint32_t node);
json_t *cli_json_link(const topo_machine *machine, uint32_t link);

/* The machine of the results: {"name": ..., "hash": ..., "set": [...]}. */
json_t *cli_json_machine(const topo_machine *machine, const cli_list *settings);

/* Appends to an array and takes the value over. On failure *array becomes NULL. */
void cli_json_append(json_t **array, json_t *value);

/* Sets a member of an object and takes the value over. On failure *object becomes NULL. */
void cli_json_set(json_t **object, const char *key, json_t *value);

/* Prints the document, which may be NULL, and frees it. */
KB_MUST_USE kb_code cli_json_print(json_t *document);

#endif
