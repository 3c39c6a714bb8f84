/* Loading: a file, or text in memory, and everything it includes. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/files.h"
#include "base/text.h"
#include "frontend/syntax.h"

/* Files that include one another deeper than this are refused. */
enum { INCLUDE_LIMIT = 64 };

typedef struct Loader {
    Diags       *ds;
    Arena       *arena;
    IncludePath  path;
    const char **seen;                /* resolved paths, each once */
    uint32_t     nseen;
    uint32_t     depth;               /* of includes being read */
    Units       *out;
} Loader;

/* ---- text ---- */

static void not_text(Diags *ds, const Source *source, uint32_t byte, const char *what)
{
    uint32_t at = source->start + byte;
    diag_error(ds, (Span){at, at + 1}, "byte 0x%02x %s: a file of this language is text in UTF-8", (unsigned char)source->text[byte], what);
}

/* A file with a zero byte or a byte that is not UTF-8 is not text at all. */
static bool is_text(Diags *ds, const Source *source)
{
    const char *s = source->text, *zero = memchr(s, 0, source->bytes);
    if (zero) {
        not_text(ds, source, (uint32_t)(zero - s), "is in no text, so this is another kind of file");
        return false;
    }
    for (uint32_t i = 0; i < source->bytes;) {
        int n = utf8_length(s + i, source->bytes - i);
        if (n == 0) {
            not_text(ds, source, i, "is not UTF-8");
            return false;
        }
        i += (uint32_t)n;
    }
    return true;
}

Node *source_tree(Diags *ds, const Source *source)
{
    Node *root = is_text(ds, source) ? syntax_file(ds, source) : NULL;
    if (!root) {
        root = NEW(ds->arena, Node);
        *root = (Node){.kind = N_FILE_, .at = {source->start, source->start}, .height = 1};
    }
    return root;
}

Node *parse_expression(Diags *ds, Span text)
{
    const Source *source = sources_of(ds->sources, text);
    int errors = ds->errors;
    Node *root = is_text(ds, source) ? syntax_expression(ds, source, text) : NULL;
    return ds->errors == errors ? root : NULL;
}

/* ---- files ---- */

static void load(Loader *, Source *);

/* The folder of a path with its '/', or "" for one without folder. */
static const char *folder_of(Arena *a, const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? arena_strndup(a, path, (size_t)(slash - path) + 1) : "";
}

/* The path without links and dots, or NULL with errno set. */
static const char *resolve(Arena *a, const char *path)
{
    char real[PATH_MAX];
    return realpath(path, real) ? arena_strdup(a, real) : NULL;
}

static bool seen_before(Loader *l, const char *real)
{
    for (uint32_t i = 0; i < l->nseen; i++)
        if (strcmp(l->seen[i], real) == 0)
            return true;
    PUSH(l->arena, l->seen, l->nseen, real);
    return false;
}

static Source *add_source(Diags *ds, const char *path, const char *real, const char *text, size_t bytes, Span from)
{
    Source *source = sources_add(ds->sources, path, text, bytes);
    if (!source) {
        diag_error(ds, from, "'%s' is too large: all files together may have 2 GiB", path);
        return NULL;
    }
    source->real = real ? real : source->path;
    return source;
}

/* Read an included file that exists. */
static void read_included(Loader *l, const Node *name, const char *path, const char *real)
{
    struct stat st;
    size_t bytes = 0;
    if (seen_before(l, real))
        return;
    if (stat(real, &st) == 0 && !S_ISREG(st.st_mode)) {
        diag_error(l->ds, name->at, "cannot include '%s': it is not a file", path);
        return;
    }
    const char *text = read_file(l->arena, real, &bytes);
    if (!text) {
        diag_error(l->ds, name->at, "cannot read '%s': %s", path, strerror(errno));
        return;
    }
    Source *source = add_source(l->ds, path, real, text, bytes, name->at);
    if (source)
        load(l, source);
}

/* Where a file may lie: in a first folder, then in every -I folder. */
static IncludePath places(Arena *a, const char *first, IncludePath dirs)
{
    const char **dir = NEWN(a, const char *, dirs.ndir + 1);
    dir[0] = first;
    for (uint32_t i = 0; i < dirs.ndir; i++)
        dir[i + 1] = dirs.dir[i];
    return (IncludePath){dir, dirs.ndir + 1};
}

static void not_found(Loader *l, const Node *name, IncludePath in)
{
    bool absolute = name->text[0] == '/';
    Diag *d = diag_error(l->ds, name->at, "cannot find '%s'%s", name->text, file_hint(l->arena, name->text, in.dir, in.ndir));
    for (uint32_t i = 0; i < in.ndir && !absolute; i++)
        diag_note(l->ds, d, NOWHERE, "looked for '%s'", file_join(l->arena, in.dir[i], name->text));
    if (!l->path.ndir && !absolute)
        diag_help(l->ds, d, "-I DIR names a folder to look in");
}

static void include(Loader *l, const Source *from, const Node *name)
{
    IncludePath in = places(l->arena, folder_of(l->arena, from->path), l->path);  /* beside the including file */
    uint32_t n = name->text[0] == '/' ? 1 : in.ndir;
    if (l->depth == INCLUDE_LIMIT) {
        diag_error(l->ds, name->at, "included too deeply: at most %d files may wait for one another", INCLUDE_LIMIT);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        const char *path = name->text[0] == '/' ? name->text : file_join(l->arena, in.dir[i], name->text);
        const char *real = resolve(l->arena, path);
        if (real) {
            read_included(l, name, path, real);
            return;
        }
    }
    not_found(l, name, in);
}

/* Parse a source; its includes come before it in the list. */
static void load(Loader *l, Source *source)
{
    Node *root = source_tree(l->ds, source);
    l->depth++;
    for (uint32_t i = 0; i < root->nkid; i++)
        if (root->kid[i]->kind == N_INCLUDE)
            include(l, source, root->kid[i]->kid[0]);
    l->depth--;
    PUSH(l->arena, l->out->unit, l->out->nunit, ((Unit){source, root}));
}

/* ---- entry points ---- */

static Status parse_source(Diags *ds, Source *source, IncludePath dirs, Units *out)
{
    Loader l = {.ds = ds, .arena = ds->arena, .path = dirs, .out = out};
    *out = (Units){0};
    if (!source)                      /* too large, and reported */
        return OK;
    seen_before(&l, source->real);
    load(&l, source);
    return OK;
}

/* A file named on the command line: beside where includes are looked for, it is meant here. */
static Status not_read(Arena *a, const char *path, int reason, IncludePath dirs)
{
    IncludePath in = places(a, "", dirs);
    fprintf(stderr, "error: cannot read '%s': %s%s\n", path, strerror(reason), reason == ENOENT ? file_hint(a, path, in.dir, in.ndir) : "");
    return status_unopened(reason);
}

Status read_source(Diags *ds, const char *path, IncludePath dirs, Source **out)
{
    bool standard_input = strcmp(path, "-") == 0;
    size_t bytes = 0;
    const char *text = standard_input ? read_stream(ds->arena, stdin, &bytes) : read_file(ds->arena, path, &bytes);
    if (!text)
        return not_read(ds->arena, path, errno, dirs);
    const char *real = standard_input ? path : resolve(ds->arena, path);
    *out = add_source(ds, standard_input ? "<stdin>" : path, real, text, bytes, NOWHERE);
    return OK;
}

Status parse_file(Diags *ds, const char *path, IncludePath dirs, Units *out)
{
    Source *source = NULL;
    *out = (Units){0};
    TRY(read_source(ds, path, dirs, &source));
    return parse_source(ds, source, dirs, out);
}

Status parse_text(Diags *ds, const char *name, const char *text, size_t bytes, IncludePath dirs, Units *out)
{
    return parse_source(ds, add_source(ds, name, NULL, text, bytes, NOWHERE), dirs, out);
}
