/* Arena: a list of chunks, each filled from the front. */
#include "base/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 64 * 1024, ALIGN = 16 };

typedef struct Chunk {
    struct Chunk *next;
    size_t used, size;                               /* bytes of `data` */
    _Alignas(ALIGN) unsigned char data[];
} Chunk;

struct Arena {
    const char *name;
    Chunk *chunk;                                    /* the one being filled */
    size_t bytes;
};

static void *must(void *p, const Arena *a)
{
    if (p)
        return p;
    fprintf(stderr, "error: out of memory (arena '%s', %zu bytes in use)\n",
            a ? a->name : "new", a ? a->bytes : 0);
    exit(3);
}

Arena *arena_new(const char *name)
{
    Arena *a = must(calloc(1, sizeof *a), NULL);
    a->name = name;
    return a;
}

void *arena_alloc(Arena *a, size_t bytes)
{
    size_t need = (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    if (need == 0)
        need = ALIGN;
    Chunk *c = a->chunk;
    if (!c || c->size - c->used < need) {
        size_t size = need > CHUNK_BYTES ? need : CHUNK_BYTES;
        c = must(calloc(1, sizeof *c + size), a);
        c->size = size;
        c->next = a->chunk;
        a->chunk = c;
    }
    void *p = c->data + c->used;
    c->used += need;
    a->bytes += need;
    return p;
}

void *arena_grow(Arena *a, void *old, size_t old_bytes, size_t new_bytes)
{
    void *p = arena_alloc(a, new_bytes);
    if (old_bytes)
        memcpy(p, old, old_bytes);
    return p;
}

char *arena_strndup(Arena *a, const char *s, size_t n)
{
    char *p = arena_alloc(a, n + 1);
    memcpy(p, s, n);
    return p;
}

char *arena_strdup(Arena *a, const char *s)
{
    return arena_strndup(a, s, strlen(s));
}

char *arena_vprintf(Arena *a, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    char *p = arena_alloc(a, (size_t)n + 1);
    vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    return p;
}

char *arena_printf(Arena *a, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *p = arena_vprintf(a, fmt, ap);
    va_end(ap);
    return p;
}

size_t arena_bytes(const Arena *a)
{
    return a->bytes;
}

static void free_chunks(Chunk *c)
{
    for (Chunk *next; c; c = next) {
        next = c->next;
        free(c);
    }
}

void arena_reset(Arena *a, size_t room)
{
    Chunk *c = a->chunk;
    if (c && !c->next && c->size >= room) {
        memset(c->data, 0, c->used);
        c->used = 0;
    } else {
        free_chunks(c);
        a->chunk = NULL;
        arena_alloc(a, room);
        a->chunk->used = 0;
    }
    a->bytes = 0;
}

void arena_free(Arena *a)
{
    if (!a)
        return;
    free_chunks(a->chunk);
    free(a);
}
