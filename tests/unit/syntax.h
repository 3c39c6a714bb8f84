#ifndef TESTS_UNIT_SYNTAX_H
#define TESTS_UNIT_SYNTAX_H
/* Texts under the parser, and what it said: shared by the tests of syntax. */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/ast.h"

#define COUNT(v) (sizeof(v) / sizeof *(v))

/* A text, and what is expected of it. */
typedef struct Case {
    const char *text, *want;
} Case;

typedef struct Run {
    Arena *arena;
    Diags *ds;
    Units  units;
} Run;

static inline Run run_new(void)
{
    Arena *a = arena_new("input");
    return (Run){.arena = a, .ds = diags_new(sources_new(a))};
}

static inline Run run_text_named(const char *name, const char *text, size_t bytes)
{
    Run r = run_new();
    assert_int_equal(parse_text(r.ds, name, text, bytes, (IncludePath){0}, &r.units), OK);
    return r;
}

static inline Run run_text(const char *text)
{
    return run_text_named("t", text, strlen(text));
}

/* Everything reported so far, as it would be printed. */
static inline const char *messages(Run *r)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    assert_non_null(f);
    diags_flush(r->ds, f);
    fclose(f);
    const char *copy = arena_strndup(r->arena, text, bytes);
    free(text);
    return copy;
}

static inline const Node *root(const Run *r)
{
    assert_true(r->units.nunit > 0);
    return r->units.unit[r->units.nunit - 1].root;
}

static inline const char *dump(Run *r)
{
    Text t = text_new(r->arena);
    node_print(&t, root(r));
    return t.s;
}

#endif
