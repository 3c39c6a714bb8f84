/* Calls: evaluating the arguments, finding the callee, and binding the arguments of
 * an op to the formals of its signature. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "frontend/elab.h"
#include "frontend/elsewhere.h"

/* ---- arguments as written ---- */

static Actuals eval_actuals(Elab *e, Scope *s, const Node *args, const Actual *piped)
{
    Actuals a = {.v = NEWN(e->arena, Actual, args->nkid + 1)};
    if (piped)
        a.v[a.n++] = *piped;
    for (uint32_t i = 0; i < args->nkid; i++) {
        const Node *n = args->kid[i], *value = n->kind == N_KWARG ? n->kid[1] : n;
        Term t = eval(e, s, value);
        a.v[a.n++] = (Actual){.term = t, .at = value, .key = n->kind == N_KWARG ? n->kid[0] : NULL};
    }
    return a;
}

/* ---- binding to a signature ---- */

static bool is_formal(const SigFormal *f)
{
    return f->kind != SIG_OWNED && f->kind != SIG_EXTRA;
}

static void note_arguments(Elab *e, Diag *d, OpKind kind)
{
    const OpSig *sig = op_sig(kind);
    Text t = text_new(e->arena);
    for (int i = 0; i < sig->nformal; i++)
        if (is_formal(&sig->formal[i]))
            text_add(&t, "%s%s", t.n ? ", " : "", sig->formal[i].name);
    diag_note(e->ds, d, NOWHERE, "%s(%s)", op_info[kind].name, t.s);
}

static int count_formals(const OpSig *sig)
{
    int n = 0;
    while (n < sig->nformal && is_formal(&sig->formal[n]))
        n++;
    return n;
}

/* Dims in a row may be given as one list: conv2d(image, [hidden, row, col], ..). */
static int spread(const OpSig *sig, int at, const Actual *a)
{
    int n = 0;
    while (at + n < sig->nformal && sig->formal[at + n].kind == SIG_DIM)
        n++;
    return n > 1 && a->term.kind == TERM_LIST && a->term.nitem == (uint32_t)n ? n : 1;
}

static void set_arg(Call *c, int formal, Term t, const Node *at)
{
    c->arg[formal] = (Arg){t, at, true};
}

static bool bind_position(Call *c, const Actual *a, int *next)
{
    int n = count_formals(c->sig);
    if (*next >= n) {
        Diag *d = fail(c->e, a->at->at, "%s takes %d argument%s, but this is one more", op_info[c->kind].name, n, n == 1 ? "" : "s");
        note_arguments(c->e, d, c->kind);
        return false;
    }
    int count = spread(c->sig, *next, a);
    for (int i = 0; i < count; i++)
        set_arg(c, *next + i, count > 1 ? a->term.item[i] : a->term, a->at);
    *next += count;
    return true;
}

static bool bind_name(Call *c, const Actual *a)
{
    const char *pool[SIG_FORMALS];
    int n = count_formals(c->sig);
    for (int i = 0; i < n; i++) {
        pool[i] = c->sig->formal[i].name;
        if (strcmp(pool[i], a->key->text) != 0)
            continue;
        if (c->arg[i].given) {
            note_arguments(c->e, fail(c->e, a->key->at, "argument '%s' of %s is given twice", pool[i], op_info[c->kind].name), c->kind);
            return false;
        }
        set_arg(c, i, a->term, a->at);
        return true;
    }
    Diag *d = fail(c->e, a->key->at, "%s has no argument '%s'%s", op_info[c->kind].name, a->key->text,
                   did_you_mean(c->e, a->key->text, pool, (size_t)n));
    note_arguments(c->e, d, c->kind);
    return false;
}

static bool bind_actuals(Call *c, Actuals actual)
{
    bool ok = true, named = false;
    int next = 0;
    for (uint32_t i = 0; i < actual.n; i++) {
        Actual *a = &actual.v[i];
        if (a->key && c->kind == OP_rename) {
            PUSH(c->e->arena, c->rest.v, c->rest.n, *a);
        } else if (a->key) {
            named = true;
            ok &= bind_name(c, a);
        } else if (named) {
            fail(c->e, a->at->at, "an argument by position cannot follow one by name");
            ok = false;
        } else {
            ok &= bind_position(c, a, &next);
        }
    }
    return ok;
}

/* A default of a signature: a literal of the language. */
static Term literal(const char *text)
{
    if (strcmp(text, "none") == 0)
        return (Term){.kind = TERM_NONE};
    if (strcmp(text, "auto") == 0)
        return (Term){.kind = TERM_AUTO};
    if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)
        return (Term){.kind = TERM_BOOL, .i = *text == 't'};
    DType dtype = dtype_find(text, (int)strlen(text));
    if (dtype != DTYPES)
        return (Term){.kind = TERM_DTYPE, .i = dtype};
    return strpbrk(text, ".e") ? term_real(strtod(text, NULL), 0) : term_int(strtoll(text, NULL, 10), 0);
}

static bool fill_defaults(Call *c)
{
    for (int i = 0; i < count_formals(c->sig); i++) {
        const SigFormal *f = &c->sig->formal[i];
        if (c->arg[i].given)
            continue;
        c->arg[i].at = c->node;
        for (uint32_t k = 0; k < c->e->nfallback; k++)
            if (c->e->fallback[k].op == c->kind && c->e->fallback[k].formal == i) {
                c->arg[i] = (Arg){c->e->fallback[k].term, c->e->fallback[k].at, true};
                break;
            }
        if (c->arg[i].given)
            continue;
        if (!f->fallback) {
            note_arguments(c->e, fail(c->e, c->node->at, "%s needs an argument for '%s'", op_info[c->kind].name, f->name), c->kind);
            return false;
        }
        c->arg[i].term = literal(f->fallback);
    }
    return true;
}

static bool any_poison(const Actuals *a)
{
    for (uint32_t i = 0; i < a->n; i++)
        if (a->v[i].term.kind == TERM_POISON)
            return true;
    return false;
}

static Term op_call(Elab *e, Scope *s, const Node *n, OpKind kind, Actuals actual, const char *base)
{
    Call c = {.e = e, .s = s, .node = n, .kind = kind, .sig = op_sig(kind), .base = base};
    if (!bind_actuals(&c, actual) || any_poison(&actual) || !fill_defaults(&c))
        return POISON;
    return op_lower(&c);
}

/* ---- callees ---- */

/* The one function on numbers. */
static Term sqrt_call(Elab *e, const Node *n, Actuals a)
{
    if (any_poison(&a))
        return POISON;
    Term x = a.n == 1 && !a.v[0].key ? term_scalar(e, a.v[0].term) : POISON;
    if ((x.kind != TERM_INT && x.kind != TERM_REAL) || !node_absent(n->kid[0])) {
        fail(e, n->at, "sqrt takes one number and no label");
        return POISON;
    }
    if (x.f < 0) {
        note_overrides(e, fail(e, n->at, "sqrt needs a number of at least 0, but this is %s", term_text(e, x)), x.from);
        return POISON;
    }
    return term_real(sqrt(x.f), x.from);
}

static Term unknown_callee(Elab *e, const Node *callee)
{
    const char **pool = NULL;
    uint32_t n = 0;
    for (int k = 0; k < OP_KINDS; k++)
        if (op_info[k].use != OP_INTERNAL)
            PUSH(e->arena, pool, n, op_info[k].name);
    for (uint32_t u = 0; u < e->units->nunit; u++)
        for (uint32_t i = 0; i < e->units->unit[u].root->nkid; i++) {
            const Node *item = e->units->unit[u].root->kid[i];
            if (item->kind == N_BLOCK)
                PUSH(e->arena, pool, n, item->kid[0]->text);
        }
    const char *help = elsewhere_op(callee->text), *near = help ? "" : did_you_mean(e, callee->text, pool, n);
    Diag *d = fail(e, callee->at, "unknown op or block '%s'%s", callee->text, near);
    if (!*near)
        diag_help(e->ds, d, "%s", help ? help : "models/std/ops.pmodel has the signatures of all ops; 'man pmodel' says what they do");
    return POISON;
}

/* A call that owns weights takes an instance name: its label, the one variable it is
 * assigned to, or the callee's name. */
static Term instance_call(Elab *e, Scope *s, const Node *n, const Node *block, OpKind kind, Actuals actual, const char *variable)
{
    const Node *label = n->kid[0], *callee = n->kid[1];
    const char *name = !node_absent(label) ? label->text : variable ? variable : callee->text;
    bool owns = block || op_owns_weights(kind);
    if (owns && !scope_instance(e, s, name, node_absent(label) ? n->at : label->at, callee->text))
        return POISON;
    return block ? block_call(e, n, block, actual, scope_path(e, s, name)) : op_call(e, s, n, kind, actual, name);
}

Term call_eval(Elab *e, Scope *s, const Node *n, const Actual *piped, const char *variable)
{
    const Node *callee = n->kid[1];
    OpKind kind = op_find(callee->text);
    bool is_op = kind != OP_KINDS && op_info[kind].use != OP_INTERNAL;
    const Node *block = e->g ? item_find(e->units, N_BLOCK, callee->text) : NULL;
    if (!is_op && !block && !piped && e->g && strcmp(callee->text, "sqrt") != 0) {
        Term init = init_term(e, s, callee, n->kid[2]);
        return init.kind == TERM_NONE ? unknown_callee(e, callee) : init;
    }
    Actuals actual = eval_actuals(e, s, n->kid[2], piped);
    if (strcmp(callee->text, "sqrt") == 0)
        return sqrt_call(e, n, actual);
    if (!e->g) {
        fail(e, n->at, "'%s' has no place in a machine: only numbers are computed here", callee->text);
        return POISON;
    }
    if (!is_op && !block)
        return unknown_callee(e, callee);
    return instance_call(e, s, n, block, kind, actual, variable);
}
