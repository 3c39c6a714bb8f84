/* Blocks: binding a header to the actual arguments, and expanding the body. */
#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "frontend/elab.h"

/* One expansion. */
typedef struct Expansion {
    Elab       *e;
    Scope      *inner;
    const Node *call, *block;
    Actuals     actual;
    bool        ok;
} Expansion;

static const char *block_name(const Expansion *x)
{
    return x->block->kid[0]->text;
}

static void note_formal(Expansion *x, Diag *d, const Node *formal)
{
    diag_note(x->e->ds, d, formal->kid[0]->at, "'%s' is declared here", formal->kid[0]->text);
    x->ok = false;
}

static const char *pattern_text(Elab *e, const Node *axes)
{
    Text t = text_new(e->arena);
    for (uint32_t i = 0; i < axes->nkid; i++)
        text_add(&t, "%s%s", i ? ", " : "", axes->kid[i]->kind == N_DOTS ? ".." : axes->kid[i]->text);
    return arena_printf(e->arena, "[%s]", t.s);
}

/* ---- tensors: the names of a pattern bind from the right ---- */

static void bind_axis(Expansion *x, const Node *name, DimId d, const Node *at)
{
    Elab *e = x->e;
    const Symbol *old = scope_find(x->inner, name->text);
    if (!old) {
        scope_declare(e, x->inner, name, SYM_FORMAL, term_dim(d));
        return;
    }
    if (old->term.kind == TERM_DIM && same_dim(old->term.dim, d))
        return;
    x->ok = false;
    if (old->term.kind != TERM_DIM)                  /* poisoned, or the header names something else so */
        return;
    const Dim *was = dim_of(e->g, old->term.dim), *is = dim_of(e->g, d);
    Span declared = old->declared;
    Diag *bad = fail(e, at->at, "axis '%s' of %s is already '%s' (%" PRId64 "), but here it would be '%s' (%" PRId64 ")", name->text,
                     block_name(x), was->name, was->extent, is->name, is->extent);
    diag_note(e->ds, bad, declared, "'%s' must be the same axis in every argument", name->text);
}

static void bind_tensor(Expansion *x, const Node *formal, Term t, const Node *at)
{
    Elab *e = x->e;
    const Node *pattern = formal->kid[1];
    if (t.kind != TERM_TENSOR) {
        note_formal(x, fail(e, at->at, "'%s' of %s is a tensor, but this is %s", formal->kid[0]->text, block_name(x), term_describe(e, t)), formal);
        return;
    }
    const Value *val = value_of(e->g, t.value);
    bool dots = pattern->nkid && pattern->kid[0]->kind == N_DOTS;
    uint32_t named = pattern->nkid - dots;
    if (val->rank < named || (!dots && val->rank != named)) {
        note_formal(x, fail(e, at->at, "%s wants %s%s, but this is %s", block_name(x), formal->kid[0]->text, pattern_text(e, pattern),
                            value_text(e, t.value)), formal);
        return;
    }
    for (uint32_t i = 0; i < named; i++)
        bind_axis(x, pattern->kid[i + dots], val->axis[val->rank - named + i], at);
}

static Term bind_dim(Expansion *x, const Node *formal, Term t, const Node *at)
{
    Elab *e = x->e;
    if (t.kind == TERM_DIM)
        return t;
    if (t.kind == TERM_INT)
        return term_dim(elab_dim(e, formal->kid[0]->text, t.i, at->at, t.from));
    note_formal(x, fail(e, at->at, "'%s' of %s is a dim, but this is %s", formal->kid[0]->text, block_name(x), term_describe(e, t)), formal);
    return POISON;
}

/* ---- formals ---- */

/* The argument of formal `i`: by position, by name, or NULL. */
static const Actual *actual_of(Expansion *x, uint32_t i, const Node *formal)
{
    const Actual *found = NULL;
    for (uint32_t k = 0; k < x->actual.n; k++) {
        const Actual *a = &x->actual.v[k];
        bool mine = a->key ? strcmp(a->key->text, formal->kid[0]->text) == 0 : k == i;
        if (mine && found) {
            fail(x->e, a->key ? a->key->at : a->at->at, "argument '%s' of %s is given twice", formal->kid[0]->text, block_name(x));
            x->ok = false;
        } else if (mine) {
            found = a;
        }
    }
    return found;
}

static void bind_formal(Expansion *x, uint32_t i, const Node *formal)
{
    Elab *e = x->e;
    const Actual *a = actual_of(x, i, formal);
    bool has_default = formal->kind != N_TENSOR && !node_absent(formal->kid[1]);
    Term t = a ? a->term : POISON;
    const Node *at = a ? a->at : has_default ? formal->kid[1] : x->call;
    if (!a && has_default)
        t = eval(e, x->inner, formal->kid[1]);
    else if (!a)
        note_formal(x, fail(e, x->call->at, "%s needs an argument for '%s'", block_name(x), formal->kid[0]->text), formal);
    if (t.kind == TERM_TUPLE) {
        fail(e, at->at, "this is %s; an argument is one", term_describe(e, t));
        t = POISON;
    }
    x->ok &= t.kind != TERM_POISON;
    if (t.kind != TERM_POISON && formal->kind == N_TENSOR)
        bind_tensor(x, formal, t, at);
    if (t.kind != TERM_POISON && formal->kind == N_DIMFORMAL)
        t = bind_dim(x, formal, t, at);
    scope_declare(e, x->inner, formal->kid[0], SYM_FORMAL, t);
}

/* Arguments no formal takes. */
static void check_surplus(Expansion *x, const Node *formals)
{
    Elab *e = x->e;
    const char **pool = NEWN(e->arena, const char *, formals->nkid + 1);
    for (uint32_t f = 0; f < formals->nkid; f++)
        pool[f] = formals->kid[f]->kid[0]->text;
    bool named = false;
    for (uint32_t k = 0; k < x->actual.n; k++) {
        const Actual *a = &x->actual.v[k];
        Diag *d = NULL;
        bool known = false;
        for (uint32_t f = 0; f < formals->nkid && a->key; f++)
            known |= strcmp(a->key->text, pool[f]) == 0;
        if (a->key && !known)
            d = fail(e, a->key->at, "%s has no argument '%s'%s", block_name(x), a->key->text, did_you_mean(e, a->key->text, pool, formals->nkid));
        else if (!a->key && named)
            d = fail(e, a->at->at, "an argument by position cannot follow one by name");
        else if (!a->key && k >= formals->nkid)
            d = fail(e, a->at->at, "%s takes %u argument%s, but this is one more", block_name(x), formals->nkid, formals->nkid == 1 ? "" : "s");
        named |= a->key != NULL;
        if (d)
            note_formal(x, d, x->block);
    }
}

/* ---- results ---- */

static void check_result(Expansion *x, const Node *result, Term t)
{
    Elab *e = x->e;
    const Node *axes = result->kind == N_AXES ? result : result->kind == N_TENSOR ? result->kid[1] : NULL;
    if (!axes || t.kind == TERM_POISON)
        return;
    bool dots = axes->nkid && axes->kid[0]->kind == N_DOTS, same = t.kind == TERM_TENSOR || t.kind == TERM_ROUTE;
    const Value *val = same ? value_of(e->g, t.value) : NULL;
    uint32_t named = axes->nkid - dots;
    same = same && val->rank >= named && (dots || val->rank == named);
    for (uint32_t i = 0; same && i < named; i++) {
        const Symbol *sym = scope_find(x->inner, axes->kid[i + dots]->text);
        same = sym && sym->term.kind == TERM_DIM && same_dim(sym->term.dim, val->axis[val->rank - named + i]);
    }
    if (same)
        return;
    Diag *d = fail(e, x->inner->result_at, "block '%s' promises %s, but this is %s", block_name(x), pattern_text(e, axes), term_describe(e, t));
    diag_note(e->ds, d, result->at, "the promise is here");
}

static void check_results(Expansion *x, Term t)
{
    const Node *results = x->block->kid[2];
    if (node_absent(results) || t.kind == TERM_POISON)
        return;
    uint32_t n = t.kind == TERM_TUPLE ? t.nitem : 1;
    if (n != results->nkid) {
        Diag *d = fail(x->e, x->inner->result_at, "block '%s' promises %u value%s, but this is %u", block_name(x), results->nkid,
                       results->nkid == 1 ? "" : "s", n);
        diag_note(x->e->ds, d, results->at, "the promise is here");
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        check_result(x, results->kid[i], t.kind == TERM_TUPLE ? t.item[i] : t);
}

/* ---- expansion ---- */

static bool expands_itself(Elab *e, const Node *call, const Node *block)
{
    for (const Use *u = e->use; u; u = u->up)
        if (u->block == block) {
            Diag *d = fail(e, call->at, "block '%s' calls itself", block->kid[0]->text);
            diag_note(e->ds, d, block->kid[0]->at, "'%s' is declared here", block->kid[0]->text);
            return true;
        }
    return false;
}

/* Run the body inside the chain of uses. */
static Term expand(Expansion *x, const char *path)
{
    Elab *e = x->e;
    Use *use = NEW(e->arena, Use);
    *use = (Use){e->use, x->block, path, x->call->at};
    e->use = use;
    run_statements(e, x->inner, x->block->kid[3]);
    Term t = x->inner->returned ? x->inner->result : POISON;
    if (!x->inner->returned && !x->inner->names->unsure && !e->stopped)
        fail(e, x->block->kid[0]->at, "block '%s' returns nothing", block_name(x));
    check_results(x, t);
    e->use = use->up;
    return t;
}

Term block_call(Elab *e, const Node *call, const Node *block, Actuals actual, const char *path)
{
    const Node *formals = block->kid[1];
    if (expands_itself(e, call, block))
        return POISON;
    Expansion x = {e, scope_new(e, SCOPE_BLOCK, path), call, block, actual, true};
    check_surplus(&x, formals);
    for (uint32_t i = 0; i < formals->nkid; i++)
        bind_formal(&x, i, formals->kid[i]);
    return x.ok ? expand(&x, path) : POISON;
}
