/* Records: reading and writing the lines of a dump. */
#include "ir/record.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- writing ---- */

static void put_quoted(FILE *f, const char *s)
{
    fputc('"', f);
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            fputc('\\', f);
        if (*s == '\n')
            fputs("\\n", f);
        else
            fputc(*s, f);
    }
    fputc('"', f);
}

void record_put_string(FILE *f, const char *key, const char *value)
{
    fprintf(f, " %s=", key);
    put_quoted(f, value);
}

void put_real(FILE *f, double value)
{
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    fputs(text, f);
    if (!strpbrk(text, ".en"))        /* 3 is an integer; inf and nan have an n */
        fputs(".0", f);
}

void record_put_real(FILE *f, const char *key, double value)
{
    fprintf(f, " %s=", key);
    put_real(f, value);
}

void put_index(FILE *f, uint32_t i)
{
    if (i == UINT32_MAX)
        fputc('-', f);
    else
        fprintf(f, "%u", i);
}

/* ---- messages ---- */

void record_fail(Records *r, const char *fmt, ...)
{
    if (r->failed)
        return;
    va_list ap;
    fprintf(r->err, "%s:%u: error: ", r->name, r->line);
    va_start(ap, fmt);
    vfprintf(r->err, fmt, ap);
    va_end(ap);
    fputc('\n', r->err);
    r->failed = true;
}

/* ---- lines ---- */

static char *read_stream(Arena *a, FILE *in, size_t *bytes)
{
    size_t n = 0, cap = 1 << 16;
    char *text = arena_alloc(a, cap + 1);
    for (;;) {
        size_t got = fread(text + n, 1, cap - n, in);
        n += got;
        if (got == 0)
            break;
        if (n == cap) {
            text = arena_grow(a, text, n, 2 * cap + 1);
            cap *= 2;
        }
    }
    text[n] = 0;
    *bytes = n;
    return text;
}

/* The next line as a string of its own, without its end; NULL at the end. */
static char *next_line(Records *r)
{
    if (r->next == r->end)
        return NULL;
    char *line = r->next, *stop = memchr(line, '\n', (size_t)(r->end - line));
    r->next = stop ? stop + 1 : r->end;
    stop = stop ? stop : r->end;
    *stop = 0;
    r->line++;
    if (strlen(line) != (size_t)(stop - line))
        record_fail(r, "a zero byte in the line");
    return line;
}

Status records_open(Records *r, Arena *a, FILE *in, const char *name, FILE *err, const char *kind, int version)
{
    size_t bytes;
    *r = (Records){.arena = a, .name = name, .err = err};
    r->next = read_stream(a, in, &bytes);
    r->end = r->next + bytes;
    if (ferror(in)) {
        fprintf(err, "error: cannot read '%s': %s\n", name, strerror(errno));
        return ERR_IO;
    }
    const char *want = arena_printf(a, "%s %d", kind, version), *line = next_line(r);
    r->line = 1;
    if (!line || strcmp(line, want) != 0)
        record_fail(r, "expected '%s' in line 1, found '%.40s'", want, line ? line : "");
    return r->failed ? ERR_REJECT : OK;
}

static bool is_key(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* A string, its escapes undone in place; returns what follows it, or NULL. */
static char *read_string(char *p, Field *f)
{
    char *to = ++p;
    f->value = to;
    f->string = true;
    for (; *p && *p != '"'; p++) {
        if (*p == '\\' && p[1]) {
            p++;
            *to++ = *p == 'n' ? '\n' : *p;
        } else {
            *to++ = *p;
        }
    }
    if (!*p)
        return NULL;
    char *after = p + 1;
    *to = 0;
    return after;
}

/* Any other value: up to the next blank. */
static char *read_bare(char *p, Field *f)
{
    f->value = p;
    f->string = false;
    while (*p && *p != ' ')
        p++;
    return p;
}

/* "key=value" at p; returns what follows it, or NULL after a complaint. */
static char *read_field(Records *r, char *p)
{
    if (r->nfield == RECORD_FIELDS) {
        record_fail(r, "more than %d fields", RECORD_FIELDS);
        return NULL;
    }
    Field *f = &r->field[r->nfield];
    f->key = p;
    f->used = false;
    while (is_key(*p))
        p++;
    if (p == f->key || *p != '=') {
        record_fail(r, "expected key=value, found '%.20s'", f->key);
        return NULL;
    }
    *p++ = 0;
    p = *p == '"' ? read_string(p, f) : read_bare(p, f);
    if (!p || (*p && *p != ' ')) {
        record_fail(r, "expected a blank after the value of '%s'", f->key);
        return NULL;
    }
    r->nfield++;
    return p;
}

static void read_record(Records *r, char *line)
{
    char *p = line;
    r->nfield = 0;
    r->tag = line;
    while (is_key(*p))
        p++;
    if (p == line || (*p && *p != ' '))
        record_fail(r, "expected the name of a record, found '%.20s'", line);
    while (!r->failed && p && *p) {
        *p++ = 0;
        if (*p)
            p = read_field(r, p);
    }
}

static void check_all_used(Records *r)
{
    for (uint32_t i = 0; i < r->nfield; i++)
        if (!r->field[i].used)
            record_fail(r, "a %s has no '%s'", r->tag, r->field[i].key);
}

bool record_next(Records *r)
{
    check_all_used(r);
    r->nfield = 0;
    char *line = NULL;
    while (!r->failed && (line = next_line(r)) != NULL)
        if (*line && *line != '#')
            break;
    if (r->failed || !line)
        return false;
    read_record(r, line);
    return !r->failed;
}

/* ---- fields ---- */

static Field *find_field(Records *r, const char *key)
{
    for (uint32_t i = 0; i < r->nfield; i++)
        if (strcmp(r->field[i].key, key) == 0) {
            r->field[i].used = true;
            return &r->field[i];
        }
    return NULL;
}

/* The text of a bare value; NULL after a complaint. */
static char *bare(Records *r, const char *key)
{
    if (r->failed)
        return NULL;
    Field *f = find_field(r, key);
    if (!f || f->string) {
        record_fail(r, "%s: expected %s", r->tag, f ? "a bare value" : key);
        return NULL;
    }
    return f->value;
}

const char *record_maybe_string(Records *r, const char *key)
{
    Field *f = r->failed ? NULL : find_field(r, key);
    if (f && !f->string)
        record_fail(r, "%s: expected a string for '%s', found '%s'", r->tag, key, f->value);
    return f && f->string ? f->value : NULL;
}

const char *record_string(Records *r, const char *key)
{
    const char *s = record_maybe_string(r, key);
    if (!s)
        record_fail(r, "%s: expected '%s'", r->tag, key);
    return s ? s : "";
}

int64_t record_item_int(Records *r, const char *key, const char *item, int64_t lo, int64_t hi)
{
    char *end;
    errno = 0;
    long long v = strtoll(item, &end, 10);
    if (*item && !*end && !errno && v >= lo && v <= hi)
        return v;
    record_fail(r, "%s: '%s' must be an integer from %lld to %lld, found '%.30s'", r->tag, key,
                (long long)lo, (long long)hi, item);
    return lo;
}

uint32_t record_item_index(Records *r, const char *key, const char *item, uint32_t n)
{
    if (strcmp(item, "-") == 0)
        return UINT32_MAX;
    if (n == 0) {
        record_fail(r, "%s: '%s' must be '-', found '%.30s'", r->tag, key, item);
        return UINT32_MAX;
    }
    int64_t i = record_item_int(r, key, item, 0, (int64_t)n - 1);
    return r->failed ? UINT32_MAX : (uint32_t)i;
}

int64_t record_int(Records *r, const char *key, int64_t lo, int64_t hi)
{
    const char *text = bare(r, key);
    return text ? record_item_int(r, key, text, lo, hi) : lo;
}

bool record_has(const Records *r, const char *key)
{
    for (uint32_t i = 0; i < r->nfield; i++)
        if (strcmp(r->field[i].key, key) == 0)
            return true;
    return false;
}

uint32_t record_index(Records *r, const char *key, uint32_t n)
{
    const char *text = bare(r, key);
    return text ? record_item_index(r, key, text, n) : UINT32_MAX;
}

double record_real(Records *r, const char *key)
{
    const char *text = bare(r, key);
    if (!text)
        return 0;
    char *end;
    double v = strtod(text, &end);
    if (!*text || *end)
        record_fail(r, "%s: '%s' must be a number, found '%.30s'", r->tag, key, text);
    return v;
}

static const char *bool_name(unsigned i)
{
    return i ? "true" : "false";
}

unsigned record_word(Records *r, const char *key, unsigned n, const char *(*name_of)(unsigned))
{
    const char *text = bare(r, key);
    if (!text)
        return 0;
    for (unsigned i = 0; i < n; i++)
        if (strcmp(name_of(i), text) == 0)
            return i;
    record_fail(r, "%s: '%s' cannot be '%.30s'", r->tag, key, text);
    return 0;
}

bool record_bool(Records *r, const char *key)
{
    return record_word(r, key, 2, bool_name) == 1;
}

/* Cut "[a,[b,c],d]" into items at its own commas. */
int record_items(Records *r, const char *key, char *text, char **item, int max)
{
    if (*text != '[') {
        record_fail(r, "%s: '%s' must be a list, found '%.30s'", r->tag, key, text);
        return 0;
    }
    char *p = text + 1;
    int n = 0, depth = 0;
    if (*p == ']' && !p[1])
        return 0;
    for (char *start = p;; p++) {
        bool closes = *p == ']' && depth == 0;
        if (*p && !closes && (*p != ',' || depth > 0)) {
            depth += (*p == '[') - (*p == ']');
            continue;
        }
        if (!*p || n == max || (closes && p[1])) {
            record_fail(r, n == max ? "%s: '%s' has more than %d items" : "%s: the list of '%s' does not end", r->tag,
                        key, max);
            return 0;
        }
        *p = 0;
        item[n++] = start;
        start = p + 1;
        if (closes)
            return n;
    }
}

int record_list(Records *r, const char *key, char **item, int max)
{
    char *text = bare(r, key);
    return text ? record_items(r, key, text, item, max) : 0;
}
