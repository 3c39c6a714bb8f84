/* Evaluation of expressions: dispatch by node, names, lists, conditions, and the
 * typed evaluations that settings use. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "frontend/elab.h"

/* ---- making terms ---- */

Term term_int(int64_t i, uint64_t from)
{
    return (Term){.kind = TERM_INT, .i = i, .f = (double)i, .from = from};
}

Term term_real(double f, uint64_t from)
{
    return (Term){.kind = TERM_REAL, .f = f, .from = from};
}

Term term_dim(DimId d)
{
    return d.i == NO_DIM.i ? POISON : (Term){.kind = TERM_DIM, .dim = d};
}

Term term_tensor(ValueId v)
{
    return has_value(v) ? (Term){.kind = TERM_TENSOR, .value = v} : POISON;
}

static Term term_flag(TermKind kind, int64_t i)
{
    return (Term){.kind = kind, .i = i};
}

bool term_is_number(Term t)
{
    return t.kind == TERM_INT || t.kind == TERM_REAL || t.kind == TERM_DIM;
}

Term term_scalar(const Elab *e, Term t)
{
    return t.kind == TERM_DIM ? term_int(dim_of(e->g, t.dim)->extent, e->dim_from[t.dim.i]) : t;
}

/* ---- nodes ---- */

static Term eval_name(Elab *e, Scope *s, const Node *n)
{
    if (!scope_find(s, n->text) && e->g) {           /* linear(.., init = xavier) */
        Term init = init_term(e, s, n, NULL);
        if (init.kind != TERM_NONE)
            return init;
    }
    const Symbol *sym = scope_lookup(e, s, n);
    return sym ? sym->term : POISON;
}

static Term eval_list(Elab *e, Scope *s, const Node *n)
{
    Term t = {.kind = TERM_LIST, .nitem = n->nkid, .item = NEWN(e->arena, Term, n->nkid + 1)};
    bool poisoned = false;
    for (uint32_t i = 0; i < n->nkid; i++) {
        t.item[i] = eval(e, s, n->kid[i]);
        t.from |= t.item[i].from;
        poisoned |= t.item[i].kind == TERM_POISON;
    }
    return poisoned ? POISON : t;
}

/* A condition: 1, 0, or -1 after a message. */
static int eval_condition(Elab *e, Scope *s, const Node *n)
{
    Term t = eval(e, s, n);
    if (t.kind == TERM_BOOL)
        return t.i != 0;
    if (t.kind != TERM_POISON)
        fail(e, n->at, "a condition is true or false, but this is %s", term_describe(e, t));
    return -1;
}

static Term eval_logic(Elab *e, Scope *s, const Node *n)
{
    int left = eval_condition(e, s, n->kid[0]);
    if (left < 0)
        return POISON;
    if (left == (n->ival == B_OR))                   /* decided by the left side */
        return term_flag(TERM_BOOL, left);
    int right = eval_condition(e, s, n->kid[1]);
    return right < 0 ? POISON : term_flag(TERM_BOOL, right);
}

static Term eval_binary(Elab *e, Scope *s, const Node *n)
{
    if (n->ival == B_OR || n->ival == B_AND)
        return eval_logic(e, s, n);
    Term l = eval(e, s, n->kid[0]), r = eval(e, s, n->kid[1]);
    if (l.kind == TERM_POISON || r.kind == TERM_POISON)
        return POISON;
    if (n->ival >= B_EQ && n->ival <= B_GE)
        return arith_compare(e, n, term_scalar(e, l), term_scalar(e, r));
    if (l.kind == TERM_TENSOR || r.kind == TERM_TENSOR)
        return tensor_binary(e, s, n, l, r);
    return arith_binary(e, n, term_scalar(e, l), term_scalar(e, r));
}

static Term eval_not(Elab *e, Scope *s, const Node *n)
{
    int c = eval_condition(e, s, n->kid[0]);
    return c < 0 ? POISON : term_flag(TERM_BOOL, !c);
}

static Term eval_negate(Elab *e, Scope *s, const Node *n)
{
    Term t = eval(e, s, n->kid[0]);
    if (t.kind == TERM_POISON)
        return t;
    return t.kind == TERM_TENSOR ? tensor_negate(e, s, n, t) : arith_negate(e, n, term_scalar(e, t));
}

static Term eval_if(Elab *e, Scope *s, const Node *n, const char *variable)
{
    int c = eval_condition(e, s, n->kid[0]);
    return c < 0 ? POISON : eval_named(e, s, n->kid[c ? 1 : 2], variable);
}

static Term eval_pipe(Elab *e, Scope *s, const Node *n, const char *variable)
{
    Actual left = {.term = eval(e, s, n->kid[0]), .at = n->kid[0]};
    return call_eval(e, s, n->kid[1], &left, variable);
}

static Term eval_select(Elab *e, Scope *s, const Node *n)
{
    Term t = eval(e, s, n->kid[0]);
    if (t.kind == TERM_POISON)
        return t;
    if (t.kind == TERM_TENSOR)
        return tensor_select(e, s, n, t);
    fail(e, n->kid[0]->at, "only a tensor can be selected from, but this is %s", term_describe(e, t));
    return POISON;
}

static Term eval_node(Elab *e, Scope *s, const Node *n, const char *variable)
{
    switch (n->kind) {
    case N_NAME:     return eval_name(e, s, n);
    case N_INT:      return term_int(n->ival, 0);
    case N_REAL:     return term_real(n->fval, 0);
    case N_QUANTITY: return (Term){.kind = TERM_QUANTITY, .f = n->fval, .i = n->ival};
    case N_STRING:   return (Term){.kind = TERM_STRING, .s = n->text};
    case N_DTYPE:    return term_flag(TERM_DTYPE, n->ival);
    case N_TRUE_:    return term_flag(TERM_BOOL, 1);
    case N_FALSE_:   return term_flag(TERM_BOOL, 0);
    case N_NONE:     return term_flag(TERM_NONE, 0);
    case N_AUTO:     return term_flag(TERM_AUTO, 0);
    case N_LIST:     return eval_list(e, s, n);
    case N_BINARY:   return eval_binary(e, s, n);
    case N_NOT:      return eval_not(e, s, n);
    case N_NEG:      return eval_negate(e, s, n);
    case N_COND:     return eval_if(e, s, n, variable);
    case N_CALL:     return call_eval(e, s, n, NULL, variable);
    case N_PIPE:     return eval_pipe(e, s, n, variable);
    case N_SELECT:   return eval_select(e, s, n);
    default:
        assert(false && "no expression");
        return POISON;
    }
}

bool elab_step(Elab *e, Span at)
{
    if (++e->steps > STEPS_LIMIT && !e->stopped)
        fail_stop(e, at, "the model takes more than %d steps to elaborate", STEPS_LIMIT);
    return !e->stopped;
}

Term eval_named(Elab *e, Scope *s, const Node *n, const char *variable)
{
    elab_step(e, n->at);
    if (e->depth >= DEPTH_LIMIT && !e->stopped)
        fail_stop(e, n->at, "expressions and blocks are nested more than %d deep here", DEPTH_LIMIT);
    if (e->stopped)
        return POISON;
    e->depth++;
    Term t = eval_node(e, s, n, variable);
    e->depth--;
    return t;
}

Term eval(Elab *e, Scope *s, const Node *n)
{
    return eval_named(e, s, n, NULL);
}

/* ---- typed evaluation ---- */

static bool wrong(Elab *e, const Node *n, const char *what, const char *wanted, Term t)
{
    if (t.kind != TERM_POISON) {
        Diag *d = fail(e, n->at, "%s must be %s, but this is %s", what, wanted, term_describe(e, t));
        note_overrides(e, d, t.from);
    }
    return false;
}

bool eval_whole(Elab *e, Scope *s, const Node *n, const char *what, int64_t lo, int64_t hi, Term *out)
{
    Term t = term_scalar(e, eval(e, s, n));
    if (t.kind != TERM_INT)
        return wrong(e, n, what, "a whole number", t);
    if (t.i < lo || t.i > hi)
        return wrong(e, n, what, hi == INT64_MAX ? arena_printf(e->arena, "at least %" PRId64, lo)
                                                 : arena_printf(e->arena, "from %" PRId64 " to %" PRId64, lo, hi), t);
    *out = t;
    return true;
}

bool eval_real(Elab *e, Scope *s, const Node *n, const char *what, Term *out)
{
    Term t = term_scalar(e, eval(e, s, n));
    bool percent = t.kind == TERM_QUANTITY && t.i == UNIT_FRACTION;
    if (t.kind != TERM_INT && t.kind != TERM_REAL && !percent)
        return wrong(e, n, what, "a number", t);
    *out = term_real(t.f, t.from);
    return true;
}

bool eval_bool(Elab *e, Scope *s, const Node *n, const char *what, bool *out)
{
    Term t = eval(e, s, n);
    if (t.kind != TERM_BOOL)
        return wrong(e, n, what, "true or false", t);
    *out = t.i != 0;
    return true;
}

bool eval_dtype(Elab *e, Scope *s, const Node *n, const char *what, DType *out)
{
    Term t = eval(e, s, n);
    if (t.kind != TERM_DTYPE)
        return wrong(e, n, what, "a dtype", t);
    *out = (DType)t.i;
    return true;
}

static const char *unit_phrase(UnitKind u)
{
    static const char *const phrase[] = {
        [UNIT_NUMBER] = "a number", [UNIT_BYTES] = "a size in bytes, such as 80 GB", [UNIT_BYTES_PER_S] = "a rate in bytes per second, such as 450 GB/s",
        [UNIT_FLOP] = "work in FLOP, such as 16 GFLOP", [UNIT_FLOP_PER_S] = "a speed in FLOP per second, such as 989 TFLOP/s",
        [UNIT_SECONDS] = "a time in seconds, such as 4 us", [UNIT_FRACTION] = "a fraction, such as 0.8",
    };
    return phrase[u];
}

/* No machine comes near; sums of bytes, and of nanoseconds over a program, stay within 63 bits. */
static double unit_most(UnitKind u)
{
    return u == UNIT_BYTES ? (double)ELEMENTS_LIMIT : u == UNIT_SECONDS ? 10000 : 1e24;
}

static bool quantity_in_range(Elab *e, const Node *n, const char *what, UnitKind unit, double lo, double v)
{
    const char *base = unit_text(unit);
    if (v >= lo && v <= unit_most(unit))
        return true;
    fail(e, n->at, "%s must be at least %g%s and at most %g%s, but it is %g%s", what, lo, base, unit_most(unit), base, v, base);
    return false;
}

bool eval_quantity(Elab *e, Scope *s, const Node *n, const char *what, UnitKind unit, double lo, double *out)
{
    Term t = term_scalar(e, eval(e, s, n));
    bool plain = t.kind == TERM_INT || t.kind == TERM_REAL;
    bool fits = t.kind == TERM_QUANTITY ? t.i == (int64_t)unit : plain && (unit == UNIT_NUMBER || unit == UNIT_FRACTION);
    if (!fits)
        return wrong(e, n, what, unit_phrase(unit), t);
    if (!quantity_in_range(e, n, what, unit, lo, t.f))
        return false;
    *out = t.f;
    return true;
}
