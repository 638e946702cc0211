/*
 * arena.h: a bump allocator, for things that are made one by one and go away together.
 *
 * Addresses are stable until fini. Nothing is freed singly. Not for sharing by threads.
 */
#ifndef KB_BASE_ARENA_H
#define KB_BASE_ARENA_H

#include <stddef.h>

#include <kernbench/kernbench.h>

typedef struct kb_arena_chunk kb_arena_chunk;

typedef struct kb_arena {
    kb_arena_chunk *chunks; /* the first is being filled; the others are full */
    char *next;             /* the free part of the first */
    char *end;
    size_t chunk_size; /* of the next chunk to be made */
} kb_arena;

/* Takes no memory yet, so it cannot fail. */
void kb_arena_init(kb_arena *arena);
void kb_arena_fini(kb_arena *arena);

/* Uninitialised bytes; `align` is a power of two. NULL if there is no memory. */
KB_MUST_USE void *kb_arena_alloc(kb_arena *arena, size_t size, size_t align);
KB_MUST_USE void *kb_arena_alloc_array(kb_arena *arena, size_t count, size_t size, size_t align);

/* One T, zeroed. */
#define KB_ARENA_NEW(arena, T) ((T *)kb_arena_alloc_zeroed((arena), sizeof(T), _Alignof(T)))
KB_MUST_USE void *kb_arena_alloc_zeroed(kb_arena *arena, size_t size, size_t align);

KB_MUST_USE char *kb_arena_strdup(kb_arena *arena, const char *string);
/* `length` bytes, whatever they are, and a NUL. */
KB_MUST_USE char *kb_arena_strndup(kb_arena *arena, const char *bytes, size_t length);
KB_MUST_USE char *kb_arena_printf(kb_arena *arena, const char *format, ...) KB_PRINTF(2, 3);

#endif
