/* Arena: a list of chunks, each filled from the front. */
#include "base/arena.h"

#include <stdbool.h>
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
    Arena *kept, *next;                              /* those that live as long; of its keeper the next one kept */
};

/* No byte of the heap is taken for the message. */
void out_of_memory(size_t bytes, const char *what, ...)
{
    va_list ap;
    va_start(ap, what);
    fprintf(stderr, "error: out of memory: cannot have %zu bytes for ", bytes);
    vfprintf(stderr, what, ap);
    fprintf(stderr, "\n");
    va_end(ap);
    exit(3);
}

void *heap_alloc(size_t bytes)
{
    void *p = malloc(bytes);
    if (!p && bytes > 0)
        out_of_memory(bytes, "a library");
    return p;
}

void *heap_realloc(void *old, size_t bytes)
{
    void *p = realloc(old, bytes);
    if (!p && bytes > 0)
        out_of_memory(bytes, "a library");
    return p;
}

Arena *arena_new(const char *name)
{
    Arena *a = calloc(1, sizeof *a);
    if (!a)
        out_of_memory(sizeof *a, "a new arena '%s'", name);
    a->name = name;
    return a;
}

static size_t rounded(size_t bytes)
{
    return bytes == 0 ? ALIGN : (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

/* Room for so many bytes, which hold anything. */
static unsigned char *take(Arena *a, size_t bytes)
{
    size_t need = rounded(bytes);
    Chunk *c = a->chunk;
    if (!c || c->size - c->used < need) {
        size_t size = need > CHUNK_BYTES ? need : CHUNK_BYTES;
        Chunk *new = malloc(sizeof *new + size);
        if (!new)
            out_of_memory(sizeof *new + size, "arena '%s', which has %zu bytes", a->name, a->bytes);
        bool aside = c && need > CHUNK_BYTES / 2;        /* what is left of the one being filled is worth more */
        *new = (Chunk){.next = aside ? c->next : c, .size = size};
        *(aside ? &c->next : &a->chunk) = new;
        c = new;
    }
    c->used += need;
    a->bytes += need;
    return c->data + c->used - need;
}

void *arena_alloc(Arena *a, size_t bytes)
{
    return memset(take(a, bytes), 0, rounded(bytes));
}

/* Where it was the last that the arena gave out, it grows in place. */
void *arena_grow(Arena *a, void *old, size_t old_bytes, size_t new_bytes)
{
    Chunk *c = a->chunk;
    size_t had = old_bytes ? rounded(old_bytes) : 0, more = rounded(new_bytes) - had;
    unsigned char *p = old;
    if (old_bytes && p + had == c->data + c->used && c->size - c->used >= more) {
        c->used += more;
        a->bytes += more;
    } else {
        p = take(a, new_bytes);
        if (old_bytes)
            memcpy(p, old, old_bytes);
    }
    memset(p + old_bytes, 0, had + more - old_bytes);
    return p;
}

void *arena_copy(Arena *a, const void *from, size_t bytes, size_t room)
{
    unsigned char *p = take(a, room);
    if (bytes)
        memcpy(p, from, bytes);
    return p;
}

char *arena_strndup(Arena *a, const char *s, size_t n)
{
    char *p = (char *)take(a, n + 1);
    memcpy(p, s, n);
    p[n] = 0;
    return p;
}

char *arena_strdup(Arena *a, const char *s)
{
    return arena_strndup(a, s, strlen(s));
}

char *arena_vprintf(Arena *a, const char *fmt, va_list ap)
{
    char buffer[256];
    va_list again;
    va_copy(again, ap);
    size_t n = (size_t)vsnprintf(buffer, sizeof buffer, fmt, ap);
    char *p = (char *)take(a, n + 1);
    if (n < sizeof buffer)
        memcpy(p, buffer, n + 1);
    else
        vsnprintf(p, n + 1, fmt, again);
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
        c->used = 0;
    } else {
        free_chunks(c);
        a->chunk = NULL;
        (void)take(a, room);
        a->chunk->used = 0;
    }
    a->bytes = 0;
}

void arena_keep(Arena *a, Arena *other)
{
    other->next = a->kept;
    a->kept = other;
}

void arena_free(Arena *a)
{
    if (!a)
        return;
    for (Arena *k = a->kept, *next; k; k = next) {
        next = k->next;
        arena_free(k);
    }
    free_chunks(a->chunk);
    free(a);
}
