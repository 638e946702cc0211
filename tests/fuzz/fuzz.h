/*
 * fuzz.h: what the harnesses of this folder share.
 *
 * A harness is a file fuzz_NAME.c with LLVMFuzzerTestOneInput(). Nothing may crash, leak or hang,
 * whatever the bytes are, and every refusal must be a KB_ERR_INPUT of one line that says where the
 * mistake is. With clang's libFuzzer (preset `fuzz`) it is the program fuzz-NAME; else
 * replay_inputs.c makes a test of it, which replays tests/corpus/NAME.
 */
#ifndef KB_TESTS_FUZZ_FUZZ_H
#define KB_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "topo/topo.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An input of two parts: a text, and after the first 0xFE byte, which no YAML text can hold, lines.
 * Both end in NUL; the text may have NULs inside. */
typedef struct fuzz_parts {
    char *text;
    size_t text_length;
    char *rest;
    const char **lines;
    size_t line_count;
} fuzz_parts;

fuzz_parts fuzz_split(const uint8_t *data, size_t size);
/* All bytes as lines. */
fuzz_parts fuzz_lines(const uint8_t *data, size_t size);
void fuzz_parts_fini(fuzz_parts *parts);

/* Checks that the error is a mistake of the input, that its message is one printable line that
 * begins with one of the origins (a list that ends with NULL; NULL: any), and that its detail is
 * printable. Frees it. */
void fuzz_check_refusal(kb_error *err, const char *const *origins);

/* Whether a line is fit for a terminal: no control characters. */
bool fuzz_is_printable(const char *text, size_t length);

/* Loads the machine from `text`, unless its graph would have too many links for one execution to be
 * fast: then it returns NULL, and *machine is NULL. */
kb_error *fuzz_load_small(const topo_source *source, topo_machine **machine);

/* Checks the graph of a machine, and routes between some of its nodes. */
void fuzz_check_machine(const topo_machine *machine);

#endif
