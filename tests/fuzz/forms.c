/* Forms: what is printed must read back to what prints the same. */
#include "tests/fuzz/forms.h"

#include <ftw.h>
#include <stdlib.h>
#include <string.h>

typedef struct Memory { FILE *f; char *text; size_t n; } Memory;

static void memory_open(Memory *m)
{
    m->f = open_memstream(&m->text, &m->n);
    if (!m->f)
        abort();
}

static const char *memory_take(Memory *m, Arena *a)
{
    fclose(m->f);
    const char *text = arena_strndup(a, m->text, m->n);
    free(m->text);
    return text;
}

const char *graph_form(Arena *a, const Graph *g)
{
    Memory m;
    memory_open(&m);
    graph_print(m.f, g);
    return memory_take(&m, a);
}

const char *program_form(Arena *a, const Program *p)
{
    Memory m;
    memory_open(&m);
    program_print(m.f, p);
    return memory_take(&m, a);
}

const char *cluster_form(Arena *a, const Cluster *cl)
{
    Memory m;
    memory_open(&m);
    cluster_print(m.f, cl);
    return memory_take(&m, a);
}

const char *plan_form(Arena *a, const Plan *plan, const Graph *g)
{
    Memory m;
    memory_open(&m);
    plan_print(m.f, plan, g);
    return memory_take(&m, a);
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
