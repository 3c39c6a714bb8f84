/* Literals: integers, reals and quantities with units, each checked for range. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/syntax.h"

/* The digits without their '_' separators. */
static const char *without_separators(Arena *a, const char *text, int n)
{
    char *s = arena_alloc(a, (size_t)n + 1);
    size_t used = 0;
    for (int i = 0; i < n; i++)
        if (text[i] != '_')
            s[used++] = text[i];
    return s;
}

Node *number_int(Lexer *lx, Span at)
{
    Node *node = node_leaf(lx, N_INT, at);
    errno = 0;
    node->ival = strtoll(without_separators(lx->arena, node->text, (int)strlen(node->text)), NULL, 10);
    if (errno == ERANGE)
        diag_error(lx->ds, at, "integer '%.60s' is too large: at most %lld", node->text, (long long)INT64_MAX);
    return node;
}

/* ---- units ---- */

/* A number in this unit is number * 10^ten * 2^two in the base of its kind; kept
 * as exponents so that 3.35 TB/s is read as 3.35e12, correctly rounded. */
typedef struct UnitScale {
    const char *text;
    UnitKind    kind;
    int         ten, two;
} UnitScale;

static const UnitScale plain_units[] = {
    {"s", UNIT_SECONDS, 0, 0}, {"ms", UNIT_SECONDS, -3, 0}, {"us", UNIT_SECONDS, -6, 0},
    {"ns", UNIT_SECONDS, -9, 0}, {"%", UNIT_FRACTION, -2, 0},
};

/* Units that take a prefix. */
static const UnitScale prefixed_units[] = {
    {"B", UNIT_BYTES, 0, 0}, {"B/s", UNIT_BYTES_PER_S, 0, 0}, {"b", UNIT_BYTES, 0, -3},
    {"b/s", UNIT_BYTES_PER_S, 0, -3}, {"FLOP", UNIT_FLOP, 0, 0}, {"FLOP/s", UNIT_FLOP_PER_S, 0, 0},
};

#define COUNT(v) (sizeof(v) / sizeof *(v))

static const UnitScale *unit_named(const UnitScale *unit, size_t n, const char *text)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(unit[i].text, text) == 0)
            return &unit[i];
    return NULL;
}

static bool counts_flop(UnitKind kind)
{
    return kind == UNIT_FLOP || kind == UNIT_FLOP_PER_S;
}

/* Binary prefixes are for bytes and bits only. */
static bool read_unit(const char *u, UnitScale *out)
{
    static const char letters[] = "kMGTPE";
    const UnitScale *found = unit_named(plain_units, COUNT(plain_units), u);
    const char *letter = u[0] == 'K' ? letters : strchr(letters, u[0]);
    int power = letter && u[0] && !found ? (int)(letter - letters) + 1 : 0;
    bool binary = power && u[1] == 'i';
    if (!found)
        found = unit_named(prefixed_units, COUNT(prefixed_units), u + (power > 0) + binary);
    if (!found || (binary && counts_flop(found->kind)))
        return false;
    *out = *found;
    out->ten += binary ? 0 : 3 * power;
    out->two += binary ? 10 * power : 0;
    return true;
}

/* ---- values ---- */

/* Digits, a point, and '_' between digits: behind the last of them it is of what follows, as in 1_GB. */
static int span_mantissa(const char *text)
{
    static const char digits[] = "0123456789";
    int n = 0;
    while (text[n] && (strchr(digits, text[n]) || text[n] == '.' || (text[n] == '_' && text[n + 1] && strchr(digits, text[n + 1]))))
        n++;
    return n;
}

/* The length of a number's mantissa, and its exponent's value when it has one. */
static int read_mantissa(const char *text, int *exponent, int *length)
{
    int n = span_mantissa(text);
    int sign = text[n] && text[n + 1] && strchr("+-", text[n + 1]) ? 1 : 0;
    int digits = text[n] == 'e' || text[n] == 'E' ? (int)strspn(text + n + 1 + sign, "0123456789") : 0;
    *exponent = 0;
    *length = digits ? n + 1 + sign + digits : n;
    for (int i = 0; i < digits && *exponent < 100000; i++)
        *exponent = *exponent * 10 + (text[n + 1 + sign + i] - '0');
    if (digits && text[n + 1] == '-')
        *exponent = -*exponent;
    return n;
}

/* The value in the unit's base; it may not become infinite, or zero unless written so. */
static double read_value(Lexer *lx, const Node *node, const UnitScale *unit)
{
    int exponent, length, n = read_mantissa(node->text, &exponent, &length);
    const char *mantissa = without_separators(lx->arena, node->text, n);
    bool zero = mantissa[strspn(mantissa, "0.")] == 0;
    double value = ldexp(strtod(arena_printf(lx->arena, "%se%d", mantissa, exponent + unit->ten), NULL), unit->two);
    if (isinf(value) || (value == 0 && !zero)) {
        diag_error(lx->ds, node->at, "number '%.60s' is too %s for 64-bit floating point", node->text,
                   isinf(value) ? "large" : "small");
        return 0;
    }
    return value;
}

Node *number_real(Lexer *lx, Span at)
{
    static const UnitScale none = {"", UNIT_NUMBER, 0, 0};
    Node *node = node_leaf(lx, N_REAL, at);
    node->fval = read_value(lx, node, &none);
    return node;
}

Node *number_quantity(Lexer *lx, Span at)
{
    Node *node = node_leaf(lx, N_QUANTITY, at);
    int exponent, length;
    read_mantissa(node->text, &exponent, &length);
    const char *u = node->text + length + strspn(node->text + length, " \t");
    UnitScale unit;
    if (!read_unit(u, &unit)) {
        Diag *d = diag_error(lx->ds, at, "unknown unit '%.60s' behind '%.*s'", u, length > 60 ? 60 : length, node->text);
        if (strpbrk(u, "0123456789"))
            diag_help(lx->ds, d, "no name starts with a digit; as text it is written \"%.60s\"", node->text);
        else
            diag_help(lx->ds, d, "the units are B, b, B/s, b/s, FLOP, FLOP/s (with k M G T P E, or Ki Mi Gi Ti Pi Ei "
                                 "for bytes and bits), s, ms, us, ns and %%");
        return node;
    }
    node->fval = read_value(lx, node, &unit);
    node->ival = unit.kind;
    return node;
}
