/* Names, dims and paths of a model or block body. */
#include <inttypes.h>
#include <string.h>

#include "frontend/elab.h"
#include "frontend/elsewhere.h"

static const char *const symbol_word[] = {
    [SYM_DIM] = "a dim", [SYM_PARAM] = "a param", [SYM_LET] = "a let", [SYM_INPUT] = "an input", [SYM_WEIGHT] = "a weight",
    [SYM_FORMAL] = "an argument", [SYM_INDEX] = "the number of the round", [SYM_VARIABLE] = "a variable",
};

Scope *scope_new(Elab *e, ScopeKind kind, const char *path)
{
    Scope *s = NEW(e->arena, Scope);
    *s = (Scope){.kind = kind, .names = NEW(e->arena, Names), .path = path};
    return s;
}

Scope scope_round(const Scope *of, const char *path)
{
    return (Scope){.kind = of->kind, .names = of->names, .path = path, .nested = of->nested + 1, .rounds = of->rounds + 1};
}

Symbol *scope_find(const Scope *s, const char *name)
{
    for (uint32_t i = s->names->nsymbol; i-- > 0;)
        if (strcmp(s->names->symbol[i].name, name) == 0)
            return &s->names->symbol[i];
    return NULL;
}

static const char *nearest_symbol(Elab *e, const Scope *s, const char *name)
{
    uint32_t n = s->names->nsymbol;
    const char **pool = NEWN(e->arena, const char *, n + 1);
    for (uint32_t i = 0; i < n; i++)
        pool[i] = s->names->symbol[i].name;
    return near_name(name, pool, n);
}

Symbol *scope_lookup(Elab *e, const Scope *s, const Node *name)
{
    Symbol *found = scope_find(s, name->text);
    if (found || s->names->unsure)
        return found;
    const char *near = nearest_symbol(e, s, name->text), *value = elsewhere_value(name->text);
    if (value) {
        fail(e, name->at, "unknown name '%s'; did you mean '%s'?", name->text, value);
        return NULL;
    }
    if (!near) {
        fail(e, name->at, "unknown name '%s'", name->text);
        return NULL;
    }
    Diag *d = fail(e, name->at, "unknown name '%s'; did you mean '%s'?", name->text, near);
    diag_note(e->ds, d, scope_find(s, near)->declared, "'%s' is declared here", near);
    return NULL;
}

static void add(Elab *e, Scope *s, const Node *name, SymbolKind kind, Term term)
{
    Names *all = s->names;
    if (all->nsymbol == all->cap) {                  /* rounds shrink the array again: no PUSH */
        uint32_t cap = all->cap ? 2 * all->cap : 4;
        all->symbol = arena_grow(e->arena, all->symbol, sizeof(Symbol) * all->cap, sizeof(Symbol) * cap);
        all->cap = cap;
    }
    all->symbol[all->nsymbol++] = (Symbol){name->text, kind, term, name->at, name->at};
}

void scope_declare(Elab *e, Scope *s, const Node *name, SymbolKind kind, Term term)
{
    Symbol *old = scope_find(s, name->text);
    if (!old) {
        add(e, s, name, kind, term);
        return;
    }
    Diag *d = fail(e, name->at, "'%s' is declared already, as %s", name->text, symbol_word[old->kind]);
    diag_note(e->ds, d, old->declared, "'%s' is declared here", name->text);
}

/* Losses go by the names of variables. */
static void note_name(const Elab *e, Term t, const char *name)
{
    Value *v = t.kind == TERM_TENSOR ? value_of(e->g, t.value) : NULL;
    if (v && v->rank == 0)
        v->variable = arena_strdup(e->g->arena, name);
}

/* What may be assigned: variables, inputs and the tensors and numbers a block is given. */
void scope_assign(Elab *e, Scope *s, const Node *name, Term term)
{
    Symbol *old = scope_find(s, name->text);
    note_name(e, term, name->text);
    if (!old) {
        add(e, s, name, SYM_VARIABLE, term);
        return;
    }
    bool fixed = old->kind == SYM_DIM || old->kind == SYM_PARAM || old->kind == SYM_LET || old->kind == SYM_WEIGHT ||
                 old->kind == SYM_INDEX || (old->kind == SYM_FORMAL && old->term.kind == TERM_DIM);
    if (fixed) {
        Diag *d = fail(e, name->at, "cannot assign '%s': it is %s", name->text,
                       old->kind == SYM_FORMAL ? "a dim" : symbol_word[old->kind]);
        diag_note(e->ds, d, old->declared, "'%s' is declared here", name->text);
        return;
    }
    old->term = term;
    old->assigned = name->at;
}

const char *scope_path(Elab *e, const Scope *s, const char *name)
{
    return *s->path ? arena_printf(e->arena, "%s.%s", s->path, name) : name;
}

bool scope_instance(Elab *e, Scope *s, const char *name, Span at, const char *callee)
{
    for (uint32_t i = 0; i < s->ninstance; i++) {
        if (strcmp(s->instance[i].name, name) != 0)
            continue;
        Diag *d = fail(e, at, "two %s named '%s' would share weight names here", callee ? "instances" : "repeats or instances", name);
        diag_note(e->ds, d, s->instance[i].at, "the first '%s' is here", name);
        if (callee)
            diag_help(e->ds, d, "label one of them, for example 'fc2: %s(...)'", callee);
        return false;
    }
    Instance one = {name, at};
    PUSH(e->arena, s->instance, s->ninstance, one);
    return true;
}

/* ---- dims ---- */

DimId elab_dim(Elab *e, const char *name, int64_t extent, Span at, uint64_t from)
{
    if (extent <= 0 || extent > EXTENT_LIMIT) {
        Diag *d = extent <= 0
            ? fail(e, at, "dim '%s' must be a positive whole number, but it is %" PRId64, name, extent)
            : fail(e, at, "dim '%s' is %" PRId64 ", more than the limit of 2^40", name, extent);
        note_overrides(e, d, from);
        return NO_DIM;
    }
    if (e->g->ndim >= OPS_LIMIT) {
        fail_stop(e, at, "the model has more than %d dims", OPS_LIMIT);
        return NO_DIM;
    }
    PUSH(e->arena, e->dim_from, e->ndim_from, from);
    return graph_add_dim(e->g, name, extent, at);
}

DimId scope_dim(Elab *e, const Scope *s, const Node *name)
{
    Symbol *sym = scope_lookup(e, s, name);
    if (!sym || sym->term.kind == TERM_POISON)
        return NO_DIM;
    if (sym->term.kind == TERM_DIM)
        return sym->term.dim;
    Diag *d = fail(e, name->at, "'%s' is not a dim, so it cannot name an axis", name->text);
    diag_note(e->ds, d, sym->declared, "'%s' is declared here", name->text);
    return NO_DIM;
}

/* ---- items ---- */

const Node *item_find(const Units *units, NodeKind kind, const char *name)
{
    for (uint32_t u = units->nunit; u-- > 0;)
        for (uint32_t i = units->unit[u].root->nkid; i-- > 0;) {
            const Node *item = units->unit[u].root->kid[i];
            if (item->kind == kind && strcmp(item->kid[0]->text, name) == 0)
                return item;
        }
    return NULL;
}

const Node *item_chosen(const Units *units, NodeKind kind, const char *name)
{
    if (name)
        return item_find(units, kind, name);
    for (uint32_t u = units->nunit; u-- > 0;)
        for (uint32_t i = units->unit[u].root->nkid; i-- > 0;)
            if (units->unit[u].root->kid[i]->kind == kind)
                return units->unit[u].root->kid[i];
    return NULL;
}

const char *item_near(Elab *e, NodeKind kind, const char *name)
{
    const char **pool = NULL;
    uint32_t n = 0;
    for (uint32_t u = 0; u < e->units->nunit; u++)
        for (uint32_t i = 0; i < e->units->unit[u].root->nkid; i++)
            if (e->units->unit[u].root->kid[i]->kind == kind)
                PUSH(e->arena, pool, n, e->units->unit[u].root->kid[i]->kid[0]->text);
    return did_you_mean(e, name, pool, n);
}

/* The names that paths of ops are made of: those between points and rounds. */
static void add_steps(Arena *a, const char *path, const char ***pool, uint32_t *n)
{
    while (*path) {
        size_t length = strcspn(path, ".[");
        if (length)
            PUSH(a, *pool, *n, arena_strndup(a, path, length));
        path += length;
        path += *path == '[' ? strcspn(path, "]") : 0;
        path += *path != 0;
    }
}

const char *near_step(Elab *e, const Graph *g, const Path *p)
{
    const char **pool = NULL;
    uint32_t n = 0, i = 0, k = 0;
    for (uint32_t o = 0; o < g->nop; o++)
        add_steps(e->arena, g->op[o].path, &pool, &n);
    for (i = 0; i < p->nstep; i++) {
        for (k = 0; k < n && p->step[i].name && strcmp(pool[k], p->step[i].name) != 0;)
            k++;
        if (p->step[i].name && k == n)
            return did_you_mean(e, p->step[i].name, pool, n);
    }
    return "";
}
