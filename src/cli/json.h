/*
 * json.h: results for programs. With --json a command prints exactly one document, and nothing else
 * on stdout.
 *
 * Values are made with jansson. json_pack() gives NULL if memory runs out anywhere in it, and so do
 * these; cli_json_print() says so.
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

/* A whole number; one that jansson's integers do not hold, as a real number. */
json_t *cli_json_count(kb_u128 count);

/* A number: jansson makes none of infinity or NaN; these become null. */
json_t *cli_json_real(double value);

/* GB/s. */
json_t *cli_json_rate(uint64_t bytes_per_s);

json_t *cli_json_node(const topo_machine *machine, uint32_t node);
json_t *cli_json_link(const topo_machine *machine, uint32_t link);

/* {"name": ..., "hash": ..., "set": [...]}: which machine the results are of. */
json_t *cli_json_machine(const topo_machine *machine, const cli_list *settings);

/* Appends to an array and takes the value over. On failure *array becomes NULL. */
void cli_json_append(json_t **array, json_t *value);

/* Prints the document, which may be NULL, and frees it. */
KB_MUST_USE kb_code cli_json_print(json_t *document);

#endif
