#ifndef BASE_ARENA_H
#define BASE_ARENA_H
/* Arena: memory with one lifetime, freed all at once.
 *
 * Everything the compiler side allocates lives in an arena named after its
 * lifetime: `input` (sources, syntax, diagnostics), `graph` (the IRs), and
 * `scratch` (one pass; marked and reset).  Allocation never returns NULL: when
 * the machine has no memory left the program says so and exits with status 3,
 * because no caller could do better. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Arena Arena;

Arena *arena_new(const char *name);
void  *arena_alloc(Arena *, size_t bytes);           /* zeroed, 16-byte aligned */
void  *arena_grow(Arena *, void *old, size_t old_bytes, size_t new_bytes);
/* A copy of so many bytes, with room for more after them, which holds anything. */
void  *arena_copy(Arena *, const void *from, size_t bytes, size_t room);
char  *arena_strndup(Arena *, const char *, size_t);
char  *arena_strdup(Arena *, const char *);
char  *arena_printf(Arena *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
char  *arena_vprintf(Arena *, const char *fmt, va_list);
size_t arena_bytes(const Arena *);                   /* handed out so far */
/* Forget everything handed out, but keep `room` bytes at hand: uses that stay below
 * that allocate nothing. */
void   arena_reset(Arena *, size_t room);
/* Another arena, which nobody keeps yet, is to live as long as this one, and is freed with it. */
void   arena_keep(Arena *, Arena *other);
void   arena_free(Arena *);

/* Says what could not be had, and ends the program with status 3: for whoever can do no
 * better, as long as no file is half written. */
_Noreturn void out_of_memory(size_t bytes, const char *what, ...) __attribute__((format(printf, 2, 3)));
/* The heap of libraries that would not notice: never NULL, else out_of_memory(). */
void *heap_alloc(size_t bytes);
void *heap_realloc(void *old, size_t bytes);

#define NEW(a, T)     ((T *)arena_alloc((a), sizeof(T)))
#define NEWN(a, T, n) ((T *)arena_alloc((a), sizeof(T) * (size_t)(n)))

/* Append one element to the array `v` of `n` elements that lives in arena `a`.
 * Capacity is the next power of two, so no third field is needed. */
#define PUSH(a, v, n, x)                                                        \
    do {                                                                        \
        if ((n) == 0 || ((n) & ((n) - 1)) == 0)                                 \
            (v) = arena_grow((a), (v), sizeof *(v) * (size_t)(n),               \
                             sizeof *(v) * ((n) ? 2 * (size_t)(n) : 1));        \
        (v)[(n)++] = (x);                                                       \
    } while (0)

/* Copy an array that was made by PUSH in another arena: more may be appended to it here. */
#define COPYN(a, v, n) arena_copy((a), (v), sizeof *(v) * (size_t)(n), sizeof *(v) * power_above(n))

/* The least power of two that is no less. */
static inline size_t power_above(size_t n)
{
    size_t power = 1;
    while (power < n)
        power *= 2;
    return power;
}

#endif
