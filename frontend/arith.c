/* Arithmetic on scalars: whole numbers stay whole and never wrap, '/' on whole
 * numbers must divide, quantities keep their unit. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "frontend/elab.h"

/* The source text of an operand with its value: "d (768)"; a literal stands alone. */
static const char *operand(Elab *e, const Node *n, Term t)
{
    const char *text = sources_text(e->ds->sources, n->at), *value = term_text(e, t);
    return strcmp(text, value) == 0 ? value : arena_printf(e->arena, "%s (%s)", text, value);
}

static Term bad(Elab *e, Diag *d, Term l, Term r)
{
    note_overrides(e, d, l.from | r.from);
    return POISON;
}

static Term overflow(Elab *e, const Node *n, Term l, Term r)
{
    return bad(e, fail(e, n->at, "%s %s %s does not fit 64 bits", operand(e, n->kid[0], l),
                       sources_text(e->ds->sources, n->op), operand(e, n->kid[1], r)), l, r);
}

/* ---- whole numbers ---- */

static Term divide_whole(Elab *e, const Node *n, Term l, Term r)
{
    if (r.i == 0)
        return bad(e, fail(e, n->at, "%s is divided by zero: %s", operand(e, n->kid[0], l), operand(e, n->kid[1], r)), l, r);
    if (l.i == INT64_MIN && r.i == -1)
        return overflow(e, n, l, r);
    int64_t rest = l.i % r.i;
    if (n->ival == B_MOD)                            /* takes the sign of the divisor */
        return term_int(rest && (rest < 0) != (r.i < 0) ? rest + r.i : rest, l.from | r.from);
    if (rest != 0)
        return bad(e, fail(e, n->at, "%s is not divisible by %s", operand(e, n->kid[0], l), operand(e, n->kid[1], r)), l, r);
    return term_int(l.i / r.i, l.from | r.from);
}

static Term whole(Elab *e, const Node *n, Term l, Term r)
{
    int64_t x = 0;
    bool wraps = false;
    switch (n->ival) {
    case B_ADD: wraps = __builtin_add_overflow(l.i, r.i, &x); break;
    case B_SUB: wraps = __builtin_sub_overflow(l.i, r.i, &x); break;
    case B_MUL: wraps = __builtin_mul_overflow(l.i, r.i, &x); break;
    default:    return divide_whole(e, n, l, r);
    }
    return wraps ? overflow(e, n, l, r) : term_int(x, l.from | r.from);
}

/* ---- reals and quantities ---- */

static double real_of(int64_t op, double a, double b)
{
    switch (op) {
    case B_ADD: return a + b;
    case B_SUB: return a - b;
    case B_MUL: return a * b;
    case B_DIV: return a / b;
    default:    return a - b * floor(a / b);
    }
}

static Term real(Elab *e, const Node *n, Term l, Term r)
{
    bool divides = n->ival == B_DIV || n->ival == B_MOD;
    if (divides && fpclassify(r.f) == FP_ZERO)
        return bad(e, fail(e, n->at, "%s is divided by zero: %s", operand(e, n->kid[0], l), operand(e, n->kid[1], r)), l, r);
    double x = real_of(n->ival, l.f, r.f);
    if (!isfinite(x))
        return bad(e, fail(e, n->at, "the result of this is not a finite number"), l, r);
    return term_real(x, l.from | r.from);
}

/* A quantity may be scaled by a number, and added to, or divided by, one of its own unit. */
static Term quantity(Elab *e, const Node *n, Term l, Term r)
{
    bool both = l.kind == TERM_QUANTITY && r.kind == TERM_QUANTITY, same = both && l.i == r.i;
    bool sum = n->ival == B_ADD || n->ival == B_SUB, scale = !both && (n->ival == B_MUL || (n->ival == B_DIV && l.kind == TERM_QUANTITY));
    if (!(same && (sum || n->ival == B_DIV)) && !scale) {
        fail(e, n->at, "cannot combine %s and %s with '%s'", term_describe(e, l), term_describe(e, r),
             sources_text(e->ds->sources, n->op));
        return POISON;
    }
    Term x = real(e, n, l, r);
    if (x.kind == TERM_POISON || (same && n->ival == B_DIV))
        return x;
    x.kind = TERM_QUANTITY;
    x.i = l.kind == TERM_QUANTITY ? l.i : r.i;
    return x;
}

static bool is_plain(Term t)
{
    return t.kind == TERM_INT || t.kind == TERM_REAL;
}

Term arith_binary(Elab *e, const Node *n, Term l, Term r)
{
    if (l.kind == TERM_INT && r.kind == TERM_INT)
        return whole(e, n, l, r);
    if (is_plain(l) && is_plain(r))
        return real(e, n, l, r);
    bool numbers = (is_plain(l) || l.kind == TERM_QUANTITY) && (is_plain(r) || r.kind == TERM_QUANTITY);
    if (numbers)
        return quantity(e, n, l, r);
    bool left = !is_plain(l) && l.kind != TERM_QUANTITY;
    fail(e, n->kid[left ? 0 : 1]->at, "'%s' needs numbers or tensors, but this is %s", sources_text(e->ds->sources, n->op),
         term_describe(e, left ? l : r));
    return POISON;
}

Term arith_negate(Elab *e, const Node *n, Term t)
{
    if (t.kind == TERM_INT && t.i != INT64_MIN)
        return term_int(-t.i, t.from);
    if (t.kind == TERM_REAL)
        return term_real(-t.f, t.from);
    fail(e, n->at, "'-' needs a number or a tensor, but this is %s", term_describe(e, t));
    return POISON;
}

/* ---- comparison ---- */

/* -1, 0, 1; 2: not equal and not ordered; 3: not comparable. */
static int order(Term l, Term r)
{
    bool words = l.kind == TERM_NONE || l.kind == TERM_AUTO || r.kind == TERM_NONE || r.kind == TERM_AUTO;
    if (l.kind == TERM_INT && r.kind == TERM_INT)
        return (l.i > r.i) - (l.i < r.i);
    if (is_plain(l) && is_plain(r))
        return (l.f > r.f) - (l.f < r.f);
    if (l.kind != r.kind)
        return words ? 2 : 3;
    switch (l.kind) {
    case TERM_BOOL:
    case TERM_DTYPE:    return l.i == r.i ? 0 : 2;
    case TERM_STRING:   return strcmp(l.s, r.s) == 0 ? 0 : 2;
    case TERM_NONE:
    case TERM_AUTO:     return 0;
    case TERM_QUANTITY: return l.i == r.i ? (l.f > r.f) - (l.f < r.f) : 3;
    default:            return 3;
    }
}

Term arith_compare(Elab *e, const Node *n, Term l, Term r)
{
    int o = order(l, r);
    bool equality = n->ival == B_EQ || n->ival == B_NE;
    if (o == 3 || (!equality && !(o >= -1 && o <= 1 && (is_plain(l) || l.kind == TERM_QUANTITY)))) {
        fail(e, n->at, "cannot compare %s with %s", term_describe(e, l), term_describe(e, r));
        return POISON;
    }
    bool is = n->ival == B_EQ ? o == 0 : n->ival == B_NE ? o != 0 : n->ival == B_LT ? o < 0 :
              n->ival == B_GT ? o > 0 : n->ival == B_LE ? o <= 0 : o >= 0;
    return (Term){.kind = TERM_BOOL, .i = is, .from = l.from | r.from};
}
