/* Text: string building and number formats. */
#include "base/text.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

Text text_new(Arena *a)
{
    Text t = {.arena = a, .cap = 64};
    t.s = arena_alloc(a, t.cap);
    return t;
}

static void reserve(Text *t, size_t more)
{
    if (t->n + more + 1 <= t->cap)
        return;
    size_t cap = t->cap * 2;
    while (cap < t->n + more + 1)
        cap *= 2;
    t->s = arena_grow(t->arena, t->s, t->n + 1, cap);
    t->cap = cap;
}

void text_puts(Text *t, const char *s, size_t n)
{
    reserve(t, n);
    memcpy(t->s + t->n, s, n);
    t->n += n;
    t->s[t->n] = 0;
}

void text_add(Text *t, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    reserve(t, (size_t)n);
    vsnprintf(t->s + t->n, (size_t)n + 1, fmt, again);
    va_end(again);
    t->n += (size_t)n;
}

int utf8_length(const char *text, size_t left)
{
    const unsigned char *s = (const unsigned char *)text;
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    int n = s[0] < 0x80 ? 1 : s[0] < 0xC2 ? 0 : s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : s[0] < 0xF5 ? 4 : 0;
    if (n < 2)
        return n;
    if ((size_t)n > left)
        return 0;
    uint32_t code = s[0] & (0x7Fu >> n);
    for (int i = 1; i < n; i++) {
        if ((s[i] & 0xC0) != 0x80)
            return 0;
        code = code << 6 | (s[i] & 0x3F);
    }
    bool surrogate = code >= 0xD800 && code < 0xE000;
    return code < least[n] || surrogate || code > 0x10FFFF ? 0 : n;
}

const char *text_count(Arena *a, int64_t n)
{
    char digits[32];
    int len = snprintf(digits, sizeof digits, "%lld", (long long)n);
    int sign = n < 0;
    Text t = text_new(a);
    for (int i = 0; i < len; i++) {
        if (i > sign && (len - i) % 3 == 0)
            text_puts(&t, ",", 1);
        text_puts(&t, digits + i, 1);
    }
    return t.s;
}

const char *text_si(Arena *a, double value, const char *unit)
{
    static const char *const prefix[] = {"", "k", "M", "G", "T", "P", "E", "Z"};
    size_t p = 0;
    while (fabs(value) >= 999.5 && p + 1 < sizeof prefix / sizeof *prefix) {
        value /= 1000;
        p++;
    }
    int decimals = p == 0 && value == floor(value) ? 0 : fabs(value) < 9.995 ? 2 : fabs(value) < 99.95 ? 1 : 0;
    return arena_printf(a, "%.*f %s%s", decimals, value, prefix[p], unit);
}

const char *text_bytes(Arena *a, int64_t bytes)
{
    return text_si(a, (double)bytes, "B");
}

const char *text_ns(Arena *a, int64_t ns)
{
    static const char *const unit[] = {"ns", "us", "ms", "s"};
    double value = (double)ns;
    size_t u = 0;
    while (fabs(value) >= 999.5 && u + 1 < sizeof unit / sizeof *unit) {
        value /= 1000;
        u++;
    }
    int decimals = u == 0 ? 0 : fabs(value) < 9.995 ? 2 : fabs(value) < 99.95 ? 1 : 0;
    return arena_printf(a, "%.*f %s", decimals, value, unit[u]);
}

const char *text_divisors(Arena *a, int64_t n)
{
    enum { SHOWN = 6, TRIED = 1 << 20 };             /* of a long axis the larger ones are no numbers of devices */
    Text t = text_new(a);
    int seen = 0;
    if (n <= 1)
        return "there is nothing left of it to split: leave this out";
    text_add(&t, "numbers that divide %lld: ", (long long)n);
    for (int64_t i = 2; i < n && i < TRIED && seen < SHOWN; i++)
        if (n % i == 0 && ++seen)
            text_add(&t, "%lld, ", (long long)i);
    if (seen < SHOWN)
        text_add(&t, "%lld", (long long)n);
    else
        text_add(&t, "..");
    return t.s;
}

uint32_t fnv1a(const char *s)
{
    uint32_t h = 2166136261u;
    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 16777619u;
    return h;
}

/* ---- streams ---- */

/* What glibc's own streams into memory have no room for they drop, and say nothing. */
static ssize_t keep_text(void *cookie, const char *from, size_t n)
{
    TextStream *s = cookie;
    if (s->missing)
        return 0;
    if (s->room - s->n < n) {
        size_t room = 2 * (s->room + n);
        char *text = realloc(s->text, room);
        if (!text) {
            s->missing = room;
            return 0;
        }
        s->text = text;
        s->room = room;
    }
    memcpy(s->text + s->n, from, n);
    s->n += n;
    return (ssize_t)n;
}

void text_stream_open(TextStream *s)
{
    *s = (TextStream){0};
    s->f = fopencookie(s, "w", (cookie_io_functions_t){.write = keep_text});
    if (!s->f)
        out_of_memory(BUFSIZ, "a text");
}

const char *text_stream_take(TextStream *s, Arena *a, size_t *bytes)
{
    fclose(s->f);
    if (s->missing)
        out_of_memory(s->missing, "a text");
    const char *text = arena_strndup(a, s->text ? s->text : "", s->n);
    free(s->text);
    if (bytes)
        *bytes = s->n;
    return text;
}

/* ---- files ---- */

char *read_stream(Arena *a, FILE *f, size_t *bytes)
{
    size_t n = 0, cap = 1 << 16;
    char *buf = arena_alloc(a, cap + 1);
    for (;;) {
        size_t got = fread(buf + n, 1, cap - n, f);
        n += got;
        if (n < cap)
            break;
        buf = arena_grow(a, buf, cap, cap * 2 + 1);
        cap *= 2;
    }
    if (ferror(f)) {
        errno = errno ? errno : EIO;
        return NULL;
    }
    buf[n] = 0;
    *bytes = n;
    return buf;
}

char *read_file(Arena *a, const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    if (!f && errno == ENOMEM)
        out_of_memory(sizeof *f, "the file '%s'", path);
    if (!f)
        return NULL;
    char *buf = read_stream(a, f, bytes);
    int reason = errno;
    fclose(f);
    errno = reason;
    return buf;
}
