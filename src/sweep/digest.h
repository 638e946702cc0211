/*
 * digest.h: the hash of what determines a run: the first 128 bits of SHA-256 (FIPS 180-4).
 *
 * Texts are added with their length, so "ab" and "c" is not "a" and "bc".
 */
#ifndef KB_SWEEP_DIGEST_H
#define KB_SWEEP_DIGEST_H

#include "base/base.h"

#include <stddef.h>
#include <stdint.h>

enum { SWEEP_HEX = 32 + 1 };

/* A hash as 32 hexadecimal digits. */
typedef struct sweep_hash {
    char hex[SWEEP_HEX];
} sweep_hash;

typedef struct sweep_digest {
    uint32_t state[8];
    uint64_t length;
    unsigned char block[64];
} sweep_digest;

void sweep_digest_init(sweep_digest *digest);
void sweep_digest_bytes(sweep_digest *digest, const void *bytes, size_t size);
void sweep_digest_text(sweep_digest *digest, const char *text); /* NULL: not the same as "" */
void sweep_digest_number(sweep_digest *digest, uint64_t number);
sweep_hash sweep_digest_finish(sweep_digest *digest);

/* The hash of the contents of a file. */
KB_MUST_USE kb_error *sweep_digest_file(const char *path, sweep_hash *hash);

#endif
