/* Mutated models, plans and machines through parser and formatter.  A text that
 * still parses must keep its tree when it is formatted, and formatting again must
 * change nothing. */
#include <string.h>

#include "frontend/ast.h"
#include "tests/fuzz/mutate.h"

static const char *const words[] = {
#define X(token, text, where) text,
#include "frontend/words.def"
#undef X
    "(", ")", "[", "]", "{", "}", ",", ";", "\n", ":", "~", "!", ".", "..", "|>", "->", "=", "==", "!=", "<", ">", "<=",
    ">=", "+", "-", "*", "/", "%", "\"s\"", "# c\n", "f32", "bf16", "1", "2.5", "80 GB", "4 us", "50%", "a: f(x)", "x |> f",
    "[a, ..]", "{ a = 1 }", "if a then b else c", "if a { } else { }", "plan { ", "model m {", "cluster c {",
    "stage 1 { mesh a = 2 * 2 }", "(a, b.outer)", NULL,
};

static const char *const files[] = {
    "models/*.pmodel", "models/*/*.pmodel", "models/*/*.pcluster", "tests/golden/syntax/*.pmodel",
    "tests/golden/syntax/*.pplan", "tests/golden/syntax/*.pcluster", NULL,
};

/* The tree and the messages are printed, to be sure that they can be. */
static void print_all(Diags *ds, const Units *units)
{
    FILE *nowhere = fopen("/dev/null", "w");
    Text t = text_new(ds->arena);
    for (uint32_t i = 0; i < units->nunit; i++)
        node_print(&t, units->unit[i].root);
    if (!nowhere)
        return;
    diags_flush(ds, nowhere);
    fclose(nowhere);
}

static const char *check_format(Diags *ds, const Unit *unit)
{
    const char *once = format_source(ds->arena, ds, unit->source);
    if (!once)                        /* the text has mistakes */
        return NULL;
    fuzz_accept();
    Units units;
    parse_text(ds, "formatted", once, strlen(once), (IncludePath){0}, &units);
    const Unit *after = &units.unit[units.nunit - 1];
    const char *twice = format_source(ds->arena, ds, after->source);
    if (!twice)
        return "the formatted text has mistakes";
    if (!nodes_equal(unit->root, after->root))
        return "formatting changed the tree";
    return strcmp(once, twice) == 0 ? NULL : "formatting twice is not formatting once";
}

/* Texts short enough for a command line are read as an expression too. */
static void check_expression(Diags *ds, const char *text, size_t bytes)
{
    Source *s = bytes < 200 ? sources_add(ds->sources, "<command line>", text, bytes) : NULL;
    if (s)
        parse_expression(ds, (Span){s->start, s->start + s->bytes});
}

static const char *run(const char *text, size_t bytes)
{
    Arena *a = arena_new("input");
    Diags *ds = diags_new(sources_new(a));
    Units units;
    parse_text(ds, "mutant", text, bytes, (IncludePath){0}, &units);
    const char *wrong = check_format(ds, &units.unit[units.nunit - 1]);
    check_expression(ds, text, bytes);
    print_all(ds, &units);
    arena_free(a);
    return wrong;
}

int main(int argc, char **argv)
{
    const Fuzz fuzz = {.run = run, .word = words, .files = files};
    return fuzz_main(argc, argv, &fuzz);
}
