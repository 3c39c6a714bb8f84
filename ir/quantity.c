/* Quantities: the shortest text that reads back exactly. */
#include "ir/quantity.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A unit is 10^ten * 2^two of the base; number and unit are put together as the
 * frontend does it, so "3.35 TB/s" is the double nearest to 3.35e12. */
typedef struct Prefix { const char *text; int ten, two; } Prefix;

static const Prefix decimal[] = {{"P", 15, 0}, {"T", 12, 0}, {"G", 9, 0}, {"M", 6, 0}, {"k", 3, 0}, {"", 0, 0}};
static const Prefix binary[] = {{"Ti", 0, 40}, {"Gi", 0, 30}, {"Mi", 0, 20}, {"Ki", 0, 10}};
static const Prefix parts[] = {{"", 0, 0}, {"m", -3, 0}, {"u", -6, 0}, {"n", -9, 0}};

enum { TEXT_BYTES = 48 };

static double read_back(const char *digits, const Prefix *p)
{
    char text[TEXT_BYTES + 8];
    snprintf(text, sizeof text, "%se%d", digits, p->ten);
    return ldexp(strtod(text, NULL), p->two);
}

/* The fewest digits that give `value` in this unit; false when none do without an
 * exponent, or the number would be below 1. */
static int digits_in(double value, const Prefix *p, char *out)
{
    double scaled = ldexp(value, -p->two) / pow(10, p->ten);
    for (int n = 1; n <= 17; n++) {
        snprintf(out, TEXT_BYTES, "%.*g", n, scaled);
        if (!strpbrk(out, "en") && read_back(out, p) == value)
            return scaled >= 1 || value == 0;
    }
    return 0;
}

/* Shorter texts win, then the units tried first. */
static void try_prefixes(double value, const Prefix *p, size_t n, char *best, const char **unit)
{
    char text[TEXT_BYTES];
    for (size_t i = 0; i < n; i++)
        if (digits_in(value, &p[i], text) && (!*unit || strlen(text) < strlen(best))) {
            memcpy(best, text, sizeof text);
            *unit = p[i].text;
        }
}

void quantity_put(FILE *f, double value, QuantityKind kind)
{
    static const char *const base[] = {"B", "B/s", "FLOP", "FLOP/s", "s"};
    char text[TEXT_BYTES] = "";
    const char *unit = NULL;
    if (kind == QUANTITY_SECONDS)
        try_prefixes(value, parts, sizeof parts / sizeof *parts, text, &unit);
    else
        try_prefixes(value, decimal, sizeof decimal / sizeof *decimal, text, &unit);
    if (kind == QUANTITY_BYTES || kind == QUANTITY_BYTES_PER_S)
        try_prefixes(value, binary, sizeof binary / sizeof *binary, text, &unit);
    if (unit) {
        fprintf(f, "%s %s%s", text, unit, base[kind]);
        return;
    }
    real_print(f, value);               /* below the smallest unit, or with an exponent */
    fprintf(f, " %s", base[kind]);
}

void real_print(FILE *f, double value)
{
    char text[TEXT_BYTES];
    for (int n = 1; n <= 17; n++) {
        snprintf(text, sizeof text, "%.*g", n, value);
        if (strtod(text, NULL) == value)
            break;
    }
    if (strstr(text, "e+0"))                         /* 100 reads better than 1e+02 */
        snprintf(text, sizeof text, "%.0f", value);
    fputs(text, f);
}
