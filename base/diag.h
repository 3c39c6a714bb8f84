#ifndef BASE_DIAG_H
#define BASE_DIAG_H
/* Sources and diagnostics: how a user's mistake is shown.
 *
 * All source files of a run lie in one address space of bytes; a Span is two
 * offsets into it, and file, line and column are computed only when a message
 * is printed.  Offset 0 is never part of a file: the span {0, 0} means "no
 * place", printed without an excerpt.  The command line is a source too, named
 * "<command line>", shown without an excerpt.
 *
 * A message is lower case, without a full stop, names in single quotes; it says
 * what was found and what was expected.  Notes point at other places; there is
 * at most one help. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/status.h"

typedef struct Span { uint32_t start, end; } Span;   /* bytes, end exclusive */
#define NOWHERE ((Span){0, 0})

static inline bool span_known(Span s) { return s.end != 0; }
static inline Span span_join(Span a, Span b) { return (Span){a.start, b.end}; }

/* One file: `text` holds `bytes` bytes and a final newline and NUL after them. */
typedef struct Source {
    const char *path;                 /* as shown in messages */
    const char *real;                 /* resolved path: a file is loaded once; '-': standard input */
    const char *text;
    uint32_t    start, bytes;         /* place in the address space */
    bool        excerpt;              /* false for the command line */
} Source;

typedef struct Sources {
    Arena   *arena;
    Source **file;
    uint32_t nfile;
    uint32_t end;                     /* first free offset */
} Sources;

Sources *sources_new(Arena *);
/* Add text under a name.  Returns NULL when the address space (2 GiB) is full. */
Source  *sources_add(Sources *, const char *path, const char *text, size_t bytes);
Source  *sources_of(const Sources *, Span);          /* NULL: nowhere */
/* The bytes a span covers, as a string in the sources' arena. */
const char *sources_text(const Sources *, Span);
uint32_t sources_line(const Sources *, uint32_t offset);   /* 1-based */

typedef enum Severity { SEV_NOTE, SEV_HELP, SEV_WARNING, SEV_ERROR } Severity;

enum { DIAG_LIMIT = 20, DIAG_RANGES = 2 };

typedef struct Diag Diag;
struct Diag {
    Severity    severity;
    Span        at;                   /* the caret, and what it underlines */
    Span        range[DIAG_RANGES];   /* operands underlined beside it */
    const char *text;
    Diag       *note;                 /* notes, then at most one help, in order */
    Diag       *next;
};

typedef struct Diags {
    Arena   *arena;
    Sources *sources;
    Diag    *first;
    int      errors;
} Diags;

Diags *diags_new(Sources *);
Diag  *diag_error(Diags *, Span at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
Diag  *diag_warn(Diags *, Span at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Neither: something to know. */
Diag  *diag_tell(Diags *, Span at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void   diag_range(Diag *, Span operand);
void   diag_note(Diags *, Diag *of, Span at, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
void   diag_help(Diags *, Diag *of, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Print everything once, in source order, at most DIAG_LIMIT errors, and forget it. */
void   diags_flush(Diags *, FILE *);
/* ERR_REJECT when an error was reported so far. */
Status diags_status(const Diags *);

/* The name in `pool` nearest to `word`, or NULL when none is near (edit distance
 * with transpositions, at most a third of the word's length, at least 1). */
const char *nearest_name(const char *word, const char *const *pool, size_t npool);

#endif
