#ifndef BASE_TEXT_H
#define BASE_TEXT_H
/* Text: a growing string in an arena, and the few number formats people read. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"

/* A growing string; `s` is always NUL-terminated (and "" when empty). */
typedef struct Text {
    Arena *arena;
    char  *s;
    size_t n, cap;
} Text;

Text text_new(Arena *);
void text_add(Text *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void text_puts(Text *, const char *s, size_t n);

/* The length of the UTF-8 character that starts at s, of which `left` bytes are there; 0 when none does. */
int utf8_length(const char *s, size_t left);

/* "124,439,808" */
const char *text_count(Arena *, int64_t n);
/* "1.51 GB": decimal units, three significant digits, as network and disk sizes are quoted. */
const char *text_bytes(Arena *, int64_t bytes);
const char *text_ns(Arena *, int64_t ns);              /* "950 ns", "4.00 us", "30.5 ms", "12.3 s" */
/* "191.6 GFLOP": decimal units; `unit` is appended to the prefix. */
const char *text_si(Arena *, double value, const char *unit);

/* "numbers that divide 8: 2, 4, 8", six of them at most; of 1, what is to be done. */
const char *text_divisors(Arena *, int64_t n);

/* FNV-1a, 32 bits: the key of an op's random numbers (DESIGN: random numbers). */
uint32_t fnv1a(const char *s);

/* A stream into memory: print to `f`, then take the text.  What the machine has no memory
 * for ends the program, as in an arena. */
typedef struct TextStream {
    FILE  *f;                         /* writes to this struct, which must stay where it is */
    char  *text;                      /* n bytes, in room for more; this struct's own */
    size_t n, room, missing;          /* missing: bytes that could not be had; 0: all could */
} TextStream;
void        text_stream_open(TextStream *);
const char *text_stream_take(TextStream *, Arena *, size_t *bytes);      /* bytes without the NUL; NULL: not asked */

/* Read a whole file. NULL with errno set when it cannot be, but for memory, whose lack ends the program; `*bytes` excludes
 * the NUL. */
char *read_file(Arena *, const char *path, size_t *bytes);
/* The same for what is left of an open stream. */
char *read_stream(Arena *, FILE *, size_t *bytes);

#endif
