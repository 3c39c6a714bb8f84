/* Manual: see manual.h. */
#include "cli/pages/manual.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { LINE_BYTES = 2048, CELLS = 4 };

/* What the lines so far leave open. */
typedef struct Page {
    bool block;                       /* inside a block of code */
    bool code, bold;                  /* inside `code`, **bold**, which may go on on the next line */
    int  rows;                        /* of the table that is being read; 0: none */
    char head[CELLS][64];             /* its first row */
} Page;

static void put(char c, bool code)
{
    if (c == '\\')
        fputs("\\e", stdout);
    else if (code && c == '-')
        fputs("\\-", stdout);
    else
        putchar(c);
}

/* What those who have the pages installed find in place of a page that is linked to. */
static const struct { const char *address, *name; } installed[] = {
    {"language.md", "pmodel(5)"}, {"rules.md", "pplan-rules(5)"}, {"../models/README.md", "the README.md of the bundled models"},
};

/* A link, "[text](address)" from its [ on: returns where it ends. */
static const char *put_link(const char *s)
{
    const char *text = s + 1, *end = strstr(text, "]("), *address = end + 2;
    size_t n = strcspn(address, ")");
    for (size_t i = 0; i < sizeof installed / sizeof *installed; i++)
        if (strlen(installed[i].address) == n && strncmp(installed[i].address, address, n) == 0) {
            fputs(installed[i].name, stdout);
            return address + n;
        }
    printf("%.*s", (int)(end - text), text);
    return address + n;
}

/* Text of one line: what stands between two ` or two ** is bold; links are put_link()'s. */
static void put_text(Page *p, const char *s)
{
    if (*s == '.' || *s == '\'')
        fputs("\\&", stdout);
    for (; *s; s++) {
        if (*s == '`' || (!p->code && s[0] == '*' && s[1] == '*')) {
            bool *on = *s == '`' ? &p->code : &p->bold;
            s += *s == '*';
            *on = !*on;
            fputs(*on ? "\\fB" : "\\fR", stdout);
        } else if (!p->code && *s == '[' && strstr(s, "](")) {
            s = put_link(s);
        } else {
            put(*s, p->code);
        }
    }
}

/* The cells of a row, cut out of it in place; a | in `code` would be one too, so no page has one. */
static int cells_of(char *line, char *cell[CELLS])
{
    int n = 0;
    for (char *at = strtok(line, "|"); at && n < CELLS; at = strtok(NULL, "|")) {
        while (*at == ' ')
            at++;
        size_t length = strlen(at);
        while (length > 0 && at[length - 1] == ' ')
            at[--length] = 0;
        cell[n++] = at;
    }
    return n;
}

/* A row: what its first cell names, said by the second; the others go by their headings. */
static void put_row(Page *p, char *line)
{
    char *cell[CELLS] = {"", "", "", ""};
    int n = cells_of(line, cell);
    p->rows++;
    for (int i = 0; i < n && p->rows == 1; i++)
        snprintf(p->head[i], sizeof p->head[i], "%s", cell[i]);
    if (p->rows <= 2)                                /* the headings, and the line below them */
        return;
    fputs(".TP\n", stdout);
    put_text(p, cell[0]);
    putchar('\n');
    put_text(p, n > 1 ? cell[1] : "");
    for (int i = 2; i < n; i++) {
        printf(" (%s: ", p->head[i]);
        put_text(p, cell[i]);
        putchar(')');
    }
    fputs(".\n", stdout);
}

static void put_heading(const char *text)
{
    fputs(".SH ", stdout);
    for (; *text; text++)
        putchar(toupper((unsigned char)*text));
    putchar('\n');
}

static void put_title(const char *name, const char *version, const char *title)
{
    fputs(".TH ", stdout);
    for (const char *c = name; *c; c++)
        put((char)toupper((unsigned char)*c), true);
    printf(" 5 \"\" \"pplan %s\"\n.SH NAME\n", version);
    for (const char *c = name; *c; c++)
        put(*c, true);
    printf(" \\- %c%s\n.SH DESCRIPTION\n", tolower((unsigned char)title[0]), title + 1);
}

static void put_line(Page *p, const char *name, const char *version, char *line)
{
    if (strncmp(line, "```", 3) == 0) {
        p->block = !p->block;
        puts(p->block ? ".PP\n.nf\n.RS 4" : ".RE\n.fi");
        return;
    }
    if (p->block) {
        printf("%s", *line == '.' || *line == '\'' ? "\\&" : "");
        for (; *line; line++)
            put(*line, true);
        putchar('\n');
        return;
    }
    if (*line == '|') {
        put_row(p, line);
        return;
    }
    p->rows = 0;
    if (strncmp(line, "# ", 2) == 0) {
        put_title(name, version, line + 2);
    } else if (strncmp(line, "## ", 3) == 0) {
        put_heading(line + 3);
    } else if (strncmp(line, "- ", 2) == 0) {
        puts(".IP \\(bu 2");
        put_text(p, line + 2);
        putchar('\n');
    } else if (!*line) {
        puts(".PP");
    } else {
        put_text(p, line + strspn(line, " "));
        putchar('\n');
    }
}

void manual_print(const char *name, const char *version)
{
    Page p = {0};
    char line[LINE_BYTES];
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        put_line(&p, name, version, line);
    }
}
