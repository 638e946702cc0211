/* digest.c: SHA-256, in the words of FIPS 180-4. See digest.h. */
#include "digest.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate(uint32_t x, int by)
{
    return x >> by | x << (32 - by);
}

static void extend(uint32_t w[static 64], const unsigned char *block)
{
    for (int t = 0; t < 16; t++, block += 4)
        w[t] = (uint32_t)block[0] << 24 | (uint32_t)block[1] << 16 | (uint32_t)block[2] << 8 |
               block[3];
    for (int t = 16; t < 64; t++) {
        uint32_t s0 = rotate(w[t - 15], 7) ^ rotate(w[t - 15], 18) ^ w[t - 15] >> 3;
        uint32_t s1 = rotate(w[t - 2], 17) ^ rotate(w[t - 2], 19) ^ w[t - 2] >> 10;
        w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
}

static void add_block(sweep_digest *digest, const unsigned char *block)
{
    uint32_t w[64], v[8]; /* v: a to h */
    extend(w, block);
    memcpy(v, digest->state, sizeof v);
    for (int t = 0; t < 64; t++) {
        uint32_t s1 = rotate(v[4], 6) ^ rotate(v[4], 11) ^ rotate(v[4], 25);
        uint32_t choice = (v[4] & v[5]) ^ (~v[4] & v[6]);
        uint32_t first = v[7] + s1 + choice + constants[t] + w[t];
        uint32_t s0 = rotate(v[0], 2) ^ rotate(v[0], 13) ^ rotate(v[0], 22);
        uint32_t majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += first;
        v[0] = first + s0 + majority;
    }
    for (int i = 0; i < 8; i++)
        digest->state[i] += v[i];
}

void sweep_digest_init(sweep_digest *digest)
{
    *digest = (sweep_digest){.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
                                       0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void sweep_digest_bytes(sweep_digest *digest, const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    size_t used = digest->length % sizeof digest->block;
    digest->length += size;
    while (size > 0) {
        size_t room = sizeof digest->block - used;
        size_t part = size < room ? size : room;
        memcpy(digest->block + used, at, part);
        at += part;
        size -= part;
        used = (used + part) % sizeof digest->block;
        if (used == 0)
            add_block(digest, digest->block);
    }
}

void sweep_digest_number(sweep_digest *digest, uint64_t number)
{
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(number >> 8 * i);
    sweep_digest_bytes(digest, bytes, sizeof bytes);
}

void sweep_digest_text(sweep_digest *digest, const char *text)
{
    if (!text) {
        sweep_digest_number(digest, UINT64_MAX);
        return;
    }
    size_t length = strlen(text);
    sweep_digest_number(digest, length);
    sweep_digest_bytes(digest, text, length);
}

sweep_hash sweep_digest_finish(sweep_digest *digest)
{
    static const unsigned char padding[64] = {0x80};
    unsigned char bits[8];
    uint64_t length = digest->length;
    for (int i = 0; i < 8; i++)
        bits[i] = (unsigned char)(length * 8 >> 8 * (7 - i));
    sweep_digest_bytes(digest, padding, 1 + (119 - length % 64) % 64);
    sweep_digest_bytes(digest, bits, sizeof bits);
    sweep_hash hash;
    for (size_t i = 0; i < 4; i++)
        snprintf(hash.hex + 8 * i, 9, "%08x", digest->state[i]);
    return hash;
}

kb_error *sweep_digest_file(const char *path, sweep_hash *hash)
{
    sweep_digest digest;
    char buffer[4096];
    size_t size;
    FILE *file = fopen(path, "rb");
    if (!file)
        return kb_error_new(kb_code_of_errno(errno), "cannot read %s: %s", path, strerror(errno));
    sweep_digest_init(&digest);
    errno = 0;
    while ((size = fread(buffer, 1, sizeof buffer, file)) > 0)
        sweep_digest_bytes(&digest, buffer, size);
    int error = ferror(file) ? errno : 0;
    fclose(file);
    if (error != 0)
        return kb_error_new(kb_code_of_errno(error), "cannot read %s: %s", path, strerror(error));
    *hash = sweep_digest_finish(&digest);
    return NULL;
}
