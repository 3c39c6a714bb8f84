#ifndef CLI_REPORT_H
#define CLI_REPORT_H
/* Report: tables a command prints, as aligned text or as JSON from the same cells. */
#include <stdbool.h>
#include <stdio.h>

#include "base/arena.h"

typedef enum Show {
    SHOW_TEXT, SHOW_COUNT, SHOW_BYTES, SHOW_FLOPS, SHOW_NS, SHOW_RATIO, SHOW_OFFSET,
    SHOW_PART,                        /* of a whole: "41.2 %" */
    SHOW_MORE_BYTES, SHOW_MORE_NS     /* differences, with their sign */
} Show;

typedef struct Column { const char *key, *head; Show show; } Column;      /* key: the JSON name */
typedef struct Cell { const char *text; double number; } Cell;
#define CELL_TEXT(s) ((Cell){.text = (s)})
#define CELL_NUMBER(x) ((Cell){.number = (double)(x)})

typedef struct Fact { const char *key; Cell value; } Fact;

typedef struct Table {
    const char   *key;
    const Column *column; uint32_t ncolumn;
    Cell         *cell;   uint32_t ncell;            /* row by row */
    Fact         *fact;   uint32_t nfact;            /* when there are any, JSON is these and not the rows */
    bool          brief;                             /* text does without it when it has no rows */
} Table;

typedef struct Report {
    Arena  *arena;
    Table **table; uint32_t ntable;
} Report;

Report *report_new(Arena *);
/* `column` must outlive the report. */
Table  *report_table(Report *, const char *key, const Column *column, uint32_t ncolumn);
/* A table of lines for people, a name and a text each; JSON has its facts. */
Table  *report_lines(Report *, const char *key);
void    table_line(const Report *, Table *, const char *name, const char *text);
/* One row: ncolumn cells. */
void    table_row(const Report *, Table *, const Cell *);
/* Make one row of those that differ in the round of a repeat alone: "h[0..3].ln1".  It
 * is the repeat that the row's first text names first. */
void    table_fold(const Report *, Table *);
/* A figure of a table whose rows are sentences for people. */
void    table_fact(const Report *, Table *, const char *key, Cell);
/* Text does without those of the tables so far that have no rows. */
void    report_leave_out_empty(Report *);
/* Print all tables; JSON is one object with a list of objects per table, or one object of its facts. */
void    report_print(const Report *, FILE *, bool json);

#endif
