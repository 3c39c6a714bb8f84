/* csv: the reader. */
#include "bench/accuracy/csv.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

typedef struct Reader { Arena *arena; const char *at; uint32_t line; } Reader;

static bool ends_cell(char c)
{
    return c == ',' || c == '\n' || c == '\r' || c == 0;
}

/* One cell, without its quotes. */
static char *read_cell(Reader *r)
{
    Text t = text_new(r->arena);
    bool quoted = *r->at == '"';
    if (!quoted) {
        const char *from = r->at;
        while (!ends_cell(*r->at))
            r->at++;
        return arena_strndup(r->arena, from, (size_t)(r->at - from));
    }
    for (r->at++; *r->at && !(*r->at == '"' && r->at[1] != '"'); r->at++) {
        r->line += *r->at == '\n';
        r->at += *r->at == '"';
        text_puts(&t, r->at, 1);
    }
    r->at += *r->at == '"';
    while (!ends_cell(*r->at))
        r->at++;
    return t.s;
}

static CsvRow read_row(Reader *r)
{
    CsvRow row = {.line = r->line};
    for (;;) {
        char *cell = read_cell(r);
        PUSH(r->arena, row.cell, row.ncell, cell);
        if (*r->at != ',')
            break;
        r->at++;
    }
    r->at += *r->at == '\r';
    r->line += *r->at == '\n';
    r->at += *r->at == '\n';
    return row;
}

static bool is_empty(const CsvRow *row)
{
    return row->ncell == 1 && !row->cell[0][0];
}

Status csv_read(Arena *a, const char *path, Csv *out)
{
    size_t bytes;
    char *text = read_file(a, path, &bytes);
    *out = (Csv){.path = path};
    if (!text) {
        fprintf(stderr, "error: cannot read '%s': %s\n", path, strerror(errno));
        return ERR_IO;
    }
    Reader r = {.arena = a, .at = text, .line = 1};
    out->head = read_row(&r);
    if (is_empty(&out->head)) {
        fprintf(stderr, "error: '%s' has no line of column names\n", path);
        return ERR_REJECT;
    }
    while (*r.at) {
        CsvRow row = read_row(&r);
        if (!is_empty(&row))
            PUSH(a, out->row, out->nrow, row);
    }
    return OK;
}

static uint32_t find_column(const Csv *c, const char *name)
{
    uint32_t i = 0;
    while (i < c->head.ncell && strcmp(c->head.cell[i], name) != 0)
        i++;
    return i;
}

const char *csv_cell(const Csv *c, const CsvRow *row, const char *column)
{
    uint32_t i = find_column(c, column);
    return i < c->head.ncell && i < row->ncell ? row->cell[i] : "";
}

Status csv_needs(const Csv *c, const char *const *column, uint32_t ncolumn)
{
    bool missing = false;
    for (uint32_t i = 0; i < ncolumn; i++)
        if (find_column(c, column[i]) == c->head.ncell) {
            fprintf(stderr, "%s '%s'", missing ? "," : "error: a table of measured rows lacks the column", column[i]);
            missing = true;
        }
    if (!missing)
        return OK;
    fprintf(stderr, " (in '%s')\n", c->path);
    return ERR_REJECT;
}
