/* Report: aligned text, or JSON. */
#include "cli/report.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

Report *report_new(Arena *a)
{
    Report *r = NEW(a, Report);
    r->arena = a;
    return r;
}

Table *report_table(Report *r, const char *key, const Column *column, uint32_t ncolumn)
{
    Table *t = NEW(r->arena, Table);
    *t = (Table){.key = key, .column = column, .ncolumn = ncolumn};
    PUSH(r->arena, r->table, r->ntable, t);
    return t;
}

void table_row(const Report *r, Table *t, const Cell *cell)
{
    for (uint32_t i = 0; i < t->ncolumn; i++)
        PUSH(r->arena, t->cell, t->ncell, cell[i]);
}

Table *report_lines(Report *r, const char *key)
{
    static const Column columns[] = {{"name", "", SHOW_TEXT}, {"value", "", SHOW_TEXT}};
    return report_table(r, key, columns, 2);
}

void table_line(const Report *r, Table *t, const char *name, const char *text)
{
    Cell row[] = {CELL_TEXT(name), CELL_TEXT(text)};
    table_row(r, t, row);
}

void table_fact(const Report *r, Table *t, const char *key, Cell value)
{
    Fact f = {key, value};
    PUSH(r->arena, t->fact, t->nfact, f);
}

void report_leave_out_empty(Report *r)
{
    for (uint32_t i = 0; i < r->ntable; i++)
        r->table[i]->brief = true;
}

/* ---- folding ---- */

/* "[12]" at s: its number, and where it ends; false when there is none. */
static bool take_round(const char *s, int64_t *n, const char **end)
{
    char *after;
    if (s[0] != '[' || s[1] < '0' || s[1] > '9')
        return false;
    *n = strtoll(s + 1, &after, 10);
    *end = after + 1;
    return *after == ']';
}

/* A repeat as a text names it: "h" of "grad:h[3].attn.q". */
typedef struct Repeat { const char *name; size_t n; } Repeat;

static Repeat repeat_before(const char *text, const char *bracket)
{
    const char *s = bracket;
    while (s > text && !strchr(" ,:(", s[-1]))
        s--;
    return (Repeat){s, (size_t)(bracket - s)};
}

/* The first round that a text names, and of which repeat; -1: none. */
static int64_t first_round(const char *text, Repeat *of)
{
    int64_t n;
    const char *end;
    for (const char *s = text; *s; s++)
        if (take_round(s, &n, &end)) {
            *of = repeat_before(text, s);
            return n;
        }
    return -1;
}

/* A text whose rounds of a repeat are moved by first - base to last - base. */
static const char *rounds_text(Arena *a, const char *text, Repeat of, int64_t base, int64_t first, int64_t last)
{
    Text t = text_new(a);
    const char *end;
    for (const char *s = text; *s; s = end) {
        int64_t n;
        bool round = take_round(s, &n, &end);
        Repeat r = round ? repeat_before(text, s) : of;
        if (!round)
            end = s + 1;
        if (!round || r.n != of.n || strncmp(r.name, of.name, of.n) != 0)
            text_puts(&t, s, (size_t)(end - s));
        else if (first == last)
            text_add(&t, "[%lld]", (long long)(n - base + first));
        else
            text_add(&t, "[%lld..%lld]", (long long)(n - base + first), (long long)(n - base + last));
    }
    return t.s;
}

/* Rows that say the same of the rounds first..last; `row` says it of `round`. */
typedef struct Fold { const Cell *row; const char *form; Repeat of; int64_t round, first, last; } Fold;

/* What all rows of a fold have in common: texts as if they were of round 0. */
static const char *form_of(const Report *r, const Table *t, const Fold *f)
{
    Text form = text_new(r->arena);
    for (uint32_t k = 0; k < t->ncolumn; k++) {
        const Cell *c = &f->row[k];
        text_add(&form, "%s|%g|", c->text ? rounds_text(r->arena, c->text, f->of, f->round, 0, 0) : "", c->number);
    }
    return form.s;
}

/* Rounds come in order, or backwards. */
static bool joins(Fold *fold, uint32_t n, const Fold *x)
{
    for (uint32_t i = 0; i < n && x->round >= 0; i++) {
        Fold *f = &fold[i];
        if (strcmp(f->form, x->form) != 0 || (x->round != f->last + 1 && x->round != f->first - 1))
            continue;
        f->first = x->round < f->first ? x->round : f->first;
        f->last = x->round > f->last ? x->round : f->last;
        return true;
    }
    return false;
}

void table_fold(const Report *r, Table *t)
{
    Fold *fold = NULL;
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->ncell; i += t->ncolumn) {
        Fold x = {.row = &t->cell[i]};
        x.round = x.first = x.last = first_round(x.row[0].text, &x.of);
        x.form = form_of(r, t, &x);
        if (!joins(fold, n, &x))
            PUSH(r->arena, fold, n, x);
    }
    t->ncell = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < t->ncolumn; k++) {
            Cell c = fold[i].row[k];
            c.text = c.text ? rounds_text(r->arena, c.text, fold[i].of, fold[i].round, fold[i].first, fold[i].last) : NULL;
            t->cell[t->ncell++] = c;
        }
}

/* ---- printing ---- */

static const char *signed_text(Arena *a, double number, const char *size)
{
    return number == 0 ? size : arena_printf(a, "%s%s", number < 0 ? "-" : "+", size);
}

static const char *cell_text(Arena *a, const Cell *c, Show show)
{
    if (c->text)
        return c->text;
    switch (show) {
    case SHOW_COUNT:  return text_count(a, (int64_t)c->number);
    case SHOW_BYTES:  return text_bytes(a, (int64_t)c->number);
    case SHOW_FLOPS:  return text_si(a, c->number, "FLOP");
    case SHOW_NS:     return text_ns(a, (int64_t)c->number);
    case SHOW_RATIO:  return arena_printf(a, "%.2f", c->number);
    case SHOW_OFFSET: return arena_printf(a, "%lld", (long long)c->number);
    case SHOW_PART:   return arena_printf(a, "%.1f %%", c->number * 100);
    case SHOW_MORE_BYTES: return signed_text(a, c->number, text_bytes(a, (int64_t)(c->number < 0 ? -c->number : c->number)));
    case SHOW_MORE_NS:    return signed_text(a, c->number, text_ns(a, (int64_t)(c->number < 0 ? -c->number : c->number)));
    case SHOW_TEXT:   break;
    }
    return "";
}

/* Trailing blanks are not printed, so that texts compare as people see them. */
static void print_row(const Table *t, const char *const *text, const int *width, FILE *f)
{
    int pending = 0;
    for (uint32_t k = 0; k < t->ncolumn; k++) {
        int n = (int)strlen(text[k]);
        int left = t->column[k].show == SHOW_TEXT ? 0 : width[k] - n;
        if (n) {
            fprintf(f, "%*s%s", pending + left + (k ? 2 : 0), "", text[k]);
            pending = width[k] - n - left;
        } else {
            pending += width[k] + (k ? 2 : 0);
        }
    }
    fputc('\n', f);
}

static void print_table(const Report *r, const Table *t, FILE *f)
{
    uint32_t nrow = t->ncell / t->ncolumn;
    int *width = NEWN(r->arena, int, t->ncolumn);
    const char **text = NEWN(r->arena, const char *, (nrow + 1) * t->ncolumn);
    for (uint32_t i = 0; i < (nrow + 1) * t->ncolumn; i++) {
        uint32_t k = i % t->ncolumn;
        text[i] = i < t->ncolumn ? t->column[k].head
                                 : cell_text(r->arena, &t->cell[i - t->ncolumn], t->column[k].show);
        if ((int)strlen(text[i]) > width[k])
            width[k] = (int)strlen(text[i]);
    }
    bool headed = false;
    for (uint32_t k = 0; k < t->ncolumn; k++)
        headed |= t->column[k].head[0] != 0;
    for (uint32_t i = headed ? 0 : 1; i <= nrow; i++)
        print_row(t, text + i * t->ncolumn, width, f);
}

static json_t *cell_json(const Cell *c)
{
    bool whole = c->number == (double)(json_int_t)c->number;
    return c->text ? json_string(c->text) : whole ? json_integer((json_int_t)c->number) : json_real(c->number);
}

static json_t *facts_json(const Table *t)
{
    json_t *all = json_object();
    for (uint32_t i = 0; i < t->nfact; i++)
        json_object_set_new(all, t->fact[i].key, cell_json(&t->fact[i].value));
    return all;
}

static json_t *table_json(const Table *t)
{
    if (t->nfact)
        return facts_json(t);
    json_t *rows = json_array();
    for (uint32_t i = 0; i < t->ncell; i++) {
        const Cell *c = &t->cell[i];
        if (i % t->ncolumn == 0)
            json_array_append_new(rows, json_object());
        json_t *row = json_array_get(rows, i / t->ncolumn);
        json_object_set_new(row, t->column[i % t->ncolumn].key, cell_json(c));
    }
    return rows;
}

void report_print(const Report *r, FILE *f, bool json)
{
    bool some = false;
    for (uint32_t i = 0; i < r->ntable && !json; i++) {
        if (r->table[i]->brief && r->table[i]->ncell == 0)
            continue;
        fputs(some ? "\n" : "", f);
        some = true;
        print_table(r, r->table[i], f);
    }
    if (!json)
        return;
    json_set_alloc_funcs(heap_alloc, free);          /* what it has no memory for, it leaves out */
    json_t *all = json_object();
    for (uint32_t i = 0; i < r->ntable; i++)
        json_object_set_new(all, r->table[i]->key, table_json(r->table[i]));
    char *text = json_dumps(all, JSON_INDENT(1));    /* whole, or nothing of it is printed */
    fprintf(f, "%s\n", text);
    free(text);
    json_decref(all);
}
