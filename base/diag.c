/* Sources and diagnostics: spans, excerpts with carets, near names. */
#include "base/diag.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

Sources *sources_new(Arena *a)
{
    Sources *s = NEW(a, Sources);
    s->arena = a;
    s->end = 1;
    return s;
}

Source *sources_add(Sources *ss, const char *path, const char *text, size_t bytes)
{
    if (bytes > INT32_MAX || ss->end > INT32_MAX - bytes)
        return NULL;
    Source *s = NEW(ss->arena, Source);
    char *copy = arena_alloc(ss->arena, bytes + 2);
    memcpy(copy, text, bytes);
    copy[bytes] = '\n';
    *s = (Source){.path = arena_strdup(ss->arena, path), .real = path, .text = copy,
                  .start = ss->end, .bytes = (uint32_t)bytes, .excerpt = true};
    ss->end += (uint32_t)bytes + 2;      /* the final newline and end of file have places too */
    PUSH(ss->arena, ss->file, ss->nfile, s);
    return s;
}

Source *sources_of(const Sources *ss, Span at)
{
    if (!span_known(at))
        return NULL;
    for (uint32_t i = ss->nfile; i-- > 0;)
        if (at.start >= ss->file[i]->start)
            return ss->file[i];
    return NULL;
}

const char *sources_text(const Sources *ss, Span at)
{
    const Source *s = sources_of(ss, at);
    if (!s)
        return "";
    return arena_strndup(ss->arena, s->text + (at.start - s->start), at.end - at.start);
}

uint32_t sources_line(const Sources *ss, uint32_t offset)
{
    const Source *s = sources_of(ss, (Span){offset, offset + 1});
    uint32_t line = 1;
    for (uint32_t i = 0; s && i < offset - s->start; i++)
        line += s->text[i] == '\n';
    return line;
}

/* ---- building ---- */

Diags *diags_new(Sources *ss)
{
    Diags *ds = NEW(ss->arena, Diags);
    ds->arena = ss->arena;
    ds->sources = ss;
    return ds;
}

static Diag *diag_make(Diags *ds, Severity severity, Span at, const char *fmt, va_list ap)
{
    Diag *d = NEW(ds->arena, Diag);
    *d = (Diag){.severity = severity, .at = at, .text = arena_vprintf(ds->arena, fmt, ap)};
    return d;
}

/* Insert in source order; messages without a place come last, as reported. */
static void diag_insert(Diags *ds, Diag *d)
{
    Diag **p = &ds->first;
    while (*p && (!span_known(d->at) || (span_known((*p)->at) && (*p)->at.start <= d->at.start)))
        p = &(*p)->next;
    d->next = *p;
    *p = d;
}

Diag *diag_error(Diags *ds, Span at, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    Diag *d = diag_make(ds, SEV_ERROR, at, fmt, ap);
    va_end(ap);
    diag_insert(ds, d);
    ds->errors++;
    return d;
}

Diag *diag_warn(Diags *ds, Span at, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    Diag *d = diag_make(ds, SEV_WARNING, at, fmt, ap);
    va_end(ap);
    diag_insert(ds, d);
    return d;
}

Diag *diag_tell(Diags *ds, Span at, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    Diag *d = diag_make(ds, SEV_NOTE, at, fmt, ap);
    va_end(ap);
    diag_insert(ds, d);
    return d;
}

void diag_range(Diag *d, Span operand)
{
    for (int i = 0; i < DIAG_RANGES; i++)
        if (!span_known(d->range[i])) {
            d->range[i] = operand;
            return;
        }
}

static void diag_append(Diag *of, Diag *d)
{
    Diag **p = &of->note;
    while (*p)
        p = &(*p)->next;
    *p = d;
}

void diag_note(Diags *ds, Diag *of, Span at, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    diag_append(of, diag_make(ds, SEV_NOTE, at, fmt, ap));
    va_end(ap);
}

void diag_help(Diags *ds, Diag *of, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    diag_append(of, diag_make(ds, SEV_HELP, NOWHERE, fmt, ap));
    va_end(ap);
}

Status diags_status(const Diags *ds)
{
    return ds->errors ? ERR_REJECT : OK;
}

/* ---- printing ---- */

/* Where a span starts: its line's text, and the 0-based column in it. */
typedef struct Place {
    const Source *source;
    const char   *line;               /* start of the line in the source */
    int           number, column, length;
} Place;

static Place place_of(const Sources *ss, Span at)
{
    const Source *s = sources_of(ss, at);
    if (!s)
        return (Place){0};
    uint32_t here = at.start - s->start, start = here;
    while (start > 0 && s->text[start - 1] != '\n')
        start--;
    /* The text may hold zero bytes; its final newline always ends the search. */
    const char *line = s->text + start, *end = memchr(line, '\n', s->bytes + 1 - start);
    int length = (int)(end - line), column = (int)(here - start);
    if (length > 0 && line[length - 1] == '\r')
        length--;
    return (Place){s, line, (int)sources_line(ss, at.start), column < length ? column : length, length};
}

/* Underline `at` in `mark` with `c`, as far as it lies on the line at place p. */
static void underline(char *mark, const Place *p, Span at, char c)
{
    uint32_t line = p->source->start + (uint32_t)(p->line - p->source->text);
    for (uint32_t i = at.start; i < at.end; i++)
        if (i >= line && i < line + (uint32_t)p->length)
            mark[i - line] = c;
}

/* How many bytes at s are shown as they are, as one character; 0: what a terminal would obey instead, or no
 * text, and is shown as its number. */
static int shown_bytes(const char *s, size_t left)
{
    unsigned char c = (unsigned char)*s, next = left > 1 ? (unsigned char)s[1] : 0;
    bool control = (c < 0x20 && c != '\t') || c == 0x7F || (c == 0xC2 && next < 0xA0);
    return control ? 0 : utf8_length(s, left);
}

/* One character of a line, and the mark below it. */
typedef struct Cell { int bytes, columns; bool shown; char mark; } Cell;

static Cell cell_at(const Place *p, const char *mark, int at)
{
    int n = shown_bytes(p->line + at, (size_t)(p->length - at)), bytes = n > 0 ? n : 1;
    bool caret = memchr(mark + at, '^', (size_t)bytes) != NULL;
    return (Cell){.bytes = bytes, .columns = n > 0 ? 1 : 4, .shown = n > 0, .mark = caret ? '^' : mark[at]};
}

/* The bytes of a line that are shown: all, or those around the caret. */
typedef struct Window { int first, end; } Window;

static Window window_of(const Place *p, const char *mark)
{
    enum { WIDTH = 160, BEFORE = 60 };               /* columns */
    int caret = 0, all = 0, columns = 0;
    for (int i = 0, n; i < p->length; i += n) {
        Cell c = cell_at(p, mark, i);
        n = c.bytes;
        caret += i < p->column ? c.columns : 0;
        all += c.columns;
    }
    int from = all <= WIDTH || caret <= BEFORE ? 0 : caret - BEFORE;
    Window w = {0, 0};
    for (int i = 0, n; i < p->length && columns < from + WIDTH; i += n, w.end = i) {
        Cell c = cell_at(p, mark, i);
        n = c.bytes;
        columns += c.columns;
        w.first = columns <= from ? i + n : w.first;
    }
    return w;
}

/* Tabs stand below tabs, so that the caret is where it should be. */
static void add_cell(Text *line, Text *marks, const Place *p, int at, const Cell *c)
{
    if (c->shown) {
        text_puts(line, p->line + at, (size_t)c->bytes);
        text_puts(marks, p->line[at] == '\t' && c->mark == ' ' ? "\t" : &c->mark, 1);
        return;
    }
    text_add(line, "\\x%02X", (unsigned char)p->line[at]);
    text_add(marks, "%c%s", c->mark, c->mark == ' ' ? "   " : "~~~");
}

static void print_excerpt(const Sources *ss, const Diag *d, const Place *p, FILE *f)
{
    char *mark = arena_alloc(ss->arena, (size_t)p->length + 2);
    Text line = text_new(ss->arena), marks = text_new(ss->arena);
    memset(mark, ' ', (size_t)p->length + 1);
    for (int i = 0; i < DIAG_RANGES; i++)
        underline(mark, p, d->range[i], '~');
    underline(mark, p, d->at, '~');
    mark[p->column] = '^';
    Window w = window_of(p, mark);
    for (int i = w.first, n; i < w.end; i += n) {
        Cell c = cell_at(p, mark, i);
        n = c.bytes;
        add_cell(&line, &marks, p, i, &c);
    }
    text_puts(&marks, &mark[p->length], w.end == p->length);
    while (marks.n > 0 && marks.s[marks.n - 1] == ' ')
        marks.s[--marks.n] = 0;
    fprintf(f, "%5d | %s%s%s\n", p->number, w.first > 0 ? ".. " : "", line.s, w.end < p->length ? " .." : "");
    fprintf(f, "      | %s%s\n", w.first > 0 ? "   " : "", marks.s);
}

static const char *severity_text(Severity s)
{
    static const char *const text[] = {"note", "help", "warning", "error"};
    return text[s];
}

static void diag_print(const Sources *ss, const Diag *d, FILE *f)
{
    Place p = place_of(ss, d->at);
    if (p.source && p.source->excerpt)
        fprintf(f, "%s:%d:%d: ", p.source->path, p.number, p.column + 1);
    else if (p.source)
        fprintf(f, "%s: ", p.source->path);
    fprintf(f, "%s: %s\n", severity_text(d->severity), d->text);
    if (p.source && p.source->excerpt)
        print_excerpt(ss, d, &p, f);
}

/* Whether the same was said of the same place before: some rules are checked once a layout. */
static bool is_repeated(const Diags *ds, const Diag *d)
{
    const Diag *x = ds->first;
    while (x != d && (x->severity != d->severity || x->at.start != d->at.start || x->at.end != d->at.end || strcmp(x->text, d->text) != 0))
        x = x->next;
    return x != d;
}

void diags_flush(Diags *ds, FILE *f)
{
    int shown = 0, errors = 0;
    for (const Diag *d = ds->first; d; d = d->next) {
        if (is_repeated(ds, d))
            continue;
        errors += d->severity == SEV_ERROR;
        if (errors > DIAG_LIMIT)
            break;
        diag_print(ds->sources, d, f);
        shown += d->severity == SEV_ERROR;
        for (const Diag *n = d->note; n; n = n->next)
            diag_print(ds->sources, n, f);
    }
    if (errors > shown)
        fprintf(f, "error: more than %d errors; the rest are not shown\n", DIAG_LIMIT);
    ds->first = NULL;
}

/* ---- near names ---- */

static int min3(int a, int b, int c)
{
    int m = a < b ? a : b;
    return m < c ? m : c;
}

/* Edit distance with adjacent transpositions (optimal string alignment). */
static int edit_distance(const char *a, const char *b)
{
    enum { MAX = 64 };
    int row[3][MAX + 1], na = (int)strlen(a), nb = (int)strlen(b);
    if (na > MAX || nb > MAX)
        return MAX;
    for (int j = 0; j <= nb; j++)
        row[0][j] = j;
    for (int i = 1; i <= na; i++) {
        int *now = row[i % 3], *up = row[(i + 2) % 3], *up2 = row[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= nb; j++) {
            now[j] = min3(up[j] + 1, now[j - 1] + 1, up[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && up2[j - 2] + 1 < now[j])
                now[j] = up2[j - 2] + 1;
        }
    }
    return row[na % 3][nb];
}

const char *nearest_name(const char *word, const char *const *pool, size_t npool)
{
    int n = (int)strlen(word), best = n / 3 > 1 ? n / 3 + 1 : 2;
    const char *found = NULL;
    for (size_t i = 0; i < npool; i++) {
        int d = edit_distance(word, pool[i]);
        if (d > 0 && d < best) {
            best = d;
            found = pool[i];
        }
    }
    return found;
}
