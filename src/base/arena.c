/*
 * arena.c: a bump allocator over a list of chunks, each twice the last up to a limit. Memory is
 * handed out from the first chunk of the list:
 *
 *     chunks -> [in use] -> [full] -> [full] -> NULL
 *                 next^
 *
 * A request that does not fit gets a new chunk; the tail of the old one is lost. Under
 * AddressSanitizer every byte not handed out is poisoned.
 */
#include "base/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/sanitize.h"

enum { first_chunk_size = 4096, last_chunk_size = 1 << 20 };

struct kb_arena_chunk {
    kb_arena_chunk *next;
    size_t size; /* of bytes */
    _Alignas(max_align_t) char bytes[];
};

void kb_arena_init(kb_arena *arena)
{
    *arena = (kb_arena){.chunk_size = first_chunk_size};
}

void kb_arena_fini(kb_arena *arena)
{
    for (kb_arena_chunk *chunk = arena->chunks, *next; chunk; chunk = next) {
        next = chunk->next;
        kb_unpoison(chunk->bytes, chunk->size);
        free(chunk);
    }
    kb_arena_init(arena);
}

/* Adds a chunk with `size` free bytes at least. */
static bool add_chunk(kb_arena *arena, size_t size)
{
    size_t chunk_size = size > arena->chunk_size ? size : arena->chunk_size;
    size_t bytes;
    if (!kb_size_add(sizeof(kb_arena_chunk), chunk_size, &bytes))
        return false;
    kb_arena_chunk *chunk = malloc(bytes);
    if (!chunk)
        return false;
    *chunk = (kb_arena_chunk){.next = arena->chunks, .size = chunk_size};
    kb_poison(chunk->bytes, chunk->size);
    arena->chunks = chunk;
    arena->next = chunk->bytes;
    arena->end = chunk->bytes + chunk->size;
    if (arena->chunk_size < last_chunk_size)
        arena->chunk_size *= 2;
    return true;
}

void *kb_arena_alloc(kb_arena *arena, size_t size, size_t align)
{
    KB_ASSERT(align != 0 && (align & (align - 1)) == 0);
    if (size == 0)
        size = 1; /* even nothing has an address of its own */
    size_t room;  /* with what the alignment may cost */
    if (!kb_size_add(size, KB_REDZONE, &room) || !kb_size_add(room, align - 1, &room))
        return NULL;
    if (room > (size_t)(arena->end - arena->next) && !add_chunk(arena, room))
        return NULL;
    char *block = arena->next + (-(uintptr_t)arena->next & (align - 1));
    arena->next = block + size + KB_REDZONE;
    kb_unpoison(block, size);
    return block;
}

void *kb_arena_alloc_array(kb_arena *arena, size_t count, size_t size, size_t align)
{
    size_t bytes;
    return kb_size_mul(count, size, &bytes) ? kb_arena_alloc(arena, bytes, align) : NULL;
}

void *kb_arena_alloc_zeroed(kb_arena *arena, size_t size, size_t align)
{
    void *block = kb_arena_alloc(arena, size, align);
    return block ? memset(block, 0, size) : NULL;
}

char *kb_arena_strdup(kb_arena *arena, const char *string)
{
    return kb_arena_strndup(arena, string, strlen(string));
}

char *kb_arena_strndup(kb_arena *arena, const char *bytes, size_t length)
{
    size_t size;
    char *copy = kb_size_add(length, 1, &size) ? kb_arena_alloc(arena, size, 1) : NULL;
    if (!copy)
        return NULL;
    if (length > 0)
        memcpy(copy, bytes, length);
    copy[length] = '\0';
    return copy;
}

char *kb_arena_printf(kb_arena *arena, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *string = length < 0 ? NULL : kb_arena_alloc(arena, (size_t)length + 1, 1);
    if (!string)
        return NULL;
    va_start(args, format);
    vsnprintf(string, (size_t)length + 1, format, args);
    va_end(args);
    return string;
}
