/* Forms: what is printed must read back to what prints the same. */
#include "tests/fuzz/forms.h"

#include <ftw.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

const char *graph_form(Arena *a, const Graph *g)
{
    TextStream s;
    text_stream_open(&s);
    graph_print(s.f, g);
    return text_stream_take(&s, a, NULL);
}

const char *program_form(Arena *a, const Program *p)
{
    TextStream s;
    text_stream_open(&s);
    program_print(s.f, p);
    return text_stream_take(&s, a, NULL);
}

const char *cluster_form(Arena *a, const Cluster *cl)
{
    TextStream s;
    text_stream_open(&s);
    cluster_print(s.f, cl);
    return text_stream_take(&s, a, NULL);
}

const char *profile_form(Arena *a, const Profile *p)
{
    TextStream s;
    text_stream_open(&s);
    profile_print(s.f, p);
    return text_stream_take(&s, a, NULL);
}

const char *plan_form(Arena *a, const Plan *plan, const Graph *g)
{
    TextStream s;
    text_stream_open(&s);
    plan_print(s.f, plan, g);
    return text_stream_take(&s, a, NULL);
}

static FILE *text_stream(const char *text)
{
    FILE *f = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
    if (!f)
        abort();
    return f;
}

const char *check_graph_form(Arena *a, const Graph *g)
{
    const char *text = graph_form(a, g);
    Graph *back;
    FILE *f = text_stream(text);
    Status s = graph_read(a, f, "printed", stderr, &back);
    fclose(f);
    if (s != OK)
        return "a printed graph does not read back";
    return strcmp(text, graph_form(a, back)) == 0 ? NULL : "a graph reads back to another one";
}

const char *check_program_form(Arena *a, const Program *p)
{
    const char *text = program_form(a, p);
    Program *back;
    FILE *f = text_stream(text);
    Status s = program_read(a, f, "printed", stderr, &back);
    fclose(f);
    if (s != OK)
        return "a printed program does not read back";
    return strcmp(text, program_form(a, back)) == 0 ? NULL : "a program reads back to another one";
}

const char *read_mutant(const char *text, size_t bytes, IncludePath includes, const char *(*check)(Arena *, Diags *, const Units *))
{
    Arena *input = arena_new("input"), *a = arena_new("graph");
    Diags *ds = diags_new(sources_new(input));
    Units units;
    const char *wrong = NULL;
    if (parse_text(ds, "mutant", text, bytes, includes, &units) == OK && diags_status(ds) == OK)
        wrong = check(a, ds, &units);
    diags_flush(ds, stderr);
    arena_free(a);
    arena_free(input);
    return wrong;
}

/* ---- files ---- */

const char *scratch_open(Arena *a)
{
    const char *tmp = getenv("TMP");
    char *folder = arena_printf(a, "%s/fuzz.XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(folder))
        abort();
    return folder;
}

void scratch_write(const char *path, const void *bytes, size_t n)
{
    remove(path);                     /* a file that is cut to nothing and written anew goes to disk at once */
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f) != 0)
        abort();
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

void scratch_close(const char *folder)
{
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}
