/* Overrides: -D name=value on the command line, or a .plan's `set name = value`. */
#include <string.h>

#include "frontend/elab.h"

/* ---- reading one ---- */

static bool on_command_line(const Elab *e, const Define *d)
{
    const Source *s = sources_of(e->ds->sources, d->at);
    return !s || !s->excerpt;
}

static const char *form(Elab *e, const Define *d)
{
    return arena_printf(e->arena, on_command_line(e, d) ? "-D %s" : "set %s", d->name);
}

/* ---- its kind ---- */

/* Mistakes inside are kept from the user; the first of them, or NULL, is `*first`. */
static Term eval_quietly(Elab *e, Scope *s, const Node *n, Span text, const char **first)
{
    Diags *ds = e->ds;
    bool stopped = e->stopped;
    fail_settle(e);
    e->ds = diags_new(ds->sources);
    if (!n)
        n = parse_expression(e->ds, text);
    Term t = n ? term_scalar(e, eval(e, s, n)) : POISON;
    fail_settle(e);
    *first = e->ds->first ? e->ds->first->text : NULL;
    e->ds = ds;
    e->stopped = stopped;
    return t;
}

/* On the command line a message must say which value it is about. */
static Term value_of_define(Elab *e, Scope *s, const Define *d)
{
    if (d->node)
        return term_scalar(e, eval(e, s, d->node));
    const char *mistake;
    Term t = eval_quietly(e, s, NULL, d->at, &mistake);
    if (mistake)
        fail(e, d->at, "%s=%s: %s", form(e, d), d->value, mistake);
    return t;
}

static bool fits_param(Term was, Term *now)
{
    if (was.kind == TERM_REAL && now->kind == TERM_INT)
        now->kind = TERM_REAL;
    return was.kind == now->kind || was.kind == TERM_POISON || was.kind == TERM_NONE || was.kind == TERM_AUTO;
}

static const char *kind_phrase(Term was)
{
    switch (was.kind) {
    case TERM_INT:    return "a whole number";
    case TERM_REAL:   return "a number";
    case TERM_BOOL:   return "true or false";
    case TERM_STRING: return "a string in quotes";
    case TERM_DTYPE:  return "a dtype";
    default:          return "of the same kind as its default";
    }
}

static Term check_kind(Elab *e, Scope *s, const Define *d, const Node *bind, bool dim, Term t)
{
    if (t.kind == TERM_POISON)
        return t;
    if (dim && (t.kind != TERM_INT || t.i <= 0)) {
        fail(e, d->at, "%s: dim '%s' must be a positive whole number, but this is %s", form(e, d), d->name, term_describe(e, t));
        return POISON;
    }
    const char *mistake;                             /* of a value that is replaced: it does not count */
    Term was = dim ? t : eval_quietly(e, s, bind->kid[1], NOWHERE, &mistake);
    if (fits_param(was, &t))
        return t;
    fail(e, d->at, "%s: param '%s' must be %s, but this is %s", form(e, d), d->name, kind_phrase(was), term_describe(e, t));
    return POISON;
}

/* ---- taking ---- */

static void record(Elab *e, const Define *d, Term *t)
{
    bool line = on_command_line(e, d);
    const char *note = line ? arena_printf(e->arena, "%s = %s comes from the command line (-D %s=%s)", d->name, term_text(e, *t), d->name, d->value)
                            : arena_printf(e->arena, "%s = %s is set here", d->name, term_text(e, *t));
    uint32_t n = e->noverride;
    PUSH(e->arena, e->override_at, n, line ? NOWHERE : d->at);
    PUSH(e->arena, e->override_note, e->noverride, note);
    t->from |= n - 1 < 64 ? (uint64_t)1 << (n - 1) : 0;
    if (!e->g)
        return;
    Override o = {arena_strdup(e->g->arena, d->name), arena_strdup(e->g->arena, d->value)};
    for (uint32_t i = 0; i < e->g->noverride; i++)   /* a dim of a repeat is declared once a round */
        if (strcmp(e->g->override[i].name, o.name) == 0)
            return;
    PUSH(e->g->arena, e->g->override, e->g->noverride, o);
}

/* As in make, the command line counts more than the file; but nobody should have to guess it. */
static void note_replaced(Elab *e, const Define *set, const Define *by)
{
    if (!on_command_line(e, set) && on_command_line(e, by) && strcmp(set->value, by->value) != 0)
        diag_tell(e->ds, set->at, "'%s = %s' does not count: '%s=%s' on the command line does", form(e, set), set->value, form(e, by), by->value);
}

bool define_take(Elab *e, Scope *s, const Node *bind, bool dim, Term *out)
{
    Define *d = NULL;                                /* the last of a name counts */
    bool taken = false;
    for (uint32_t i = 0; i < e->ndefine; i++) {
        if (strcmp(e->define[i].name, bind->kid[0]->text) != 0)
            continue;
        if (d)
            note_replaced(e, d, &e->define[i]);
        d = &e->define[i];
        taken |= d->used;
        d->used = true;
    }
    if (!d)
        return false;
    *out = POISON;
    if (taken && s->kind == SCOPE_CLUSTER) {
        diag_note(e->ds, fail(e, d->named, "%s: the model and the cluster both have a param '%s'", form(e, d), d->name), bind->kid[0]->at,
                  "the cluster's is declared here");
        return true;
    }
    *out = check_kind(e, s, d, bind, dim, value_of_define(e, s, d));
    if (out->kind != TERM_POISON)
        record(e, d, out);
    return true;
}

/* ---- those that nothing took ---- */

typedef struct Pool { Arena *arena; const char **name; uint32_t n; } Pool;

/* Names a kind of declaration has in a body, those inside repeats and ifs too. */
static void collect(Pool *p, const Node *n, NodeKind kind)
{
    for (uint32_t i = 0; i < n->nkid; i++) {
        const Node *k = n->kid[i];
        if (k->kind == N_STMTS || k->kind == N_REPEAT || k->kind == N_IF || k->kind == kind)
            collect(p, k, kind);
        else if (k->kind == N_BIND && n->kind == kind)
            PUSH(p->arena, p->name, p->n, k->kid[0]->text);
    }
}

static bool holds(const Pool *p, const char *name)
{
    for (uint32_t i = 0; i < p->n; i++)
        if (strcmp(p->name[i], name) == 0)
            return true;
    return false;
}

static const char **all_names(Elab *e, const Pool *a, const Pool *b)
{
    const char **all = NEWN(e->arena, const char *, a->n + b->n + 1);
    for (uint32_t i = 0; i < a->n + b->n; i++)
        all[i] = i < a->n ? a->name[i] : b->name[i - a->n];
    return all;
}

/* `params`: of the cluster. */
static void report_unused(Elab *e, const Define *d, const char *model, const Pool *open, const Pool *lets, const Pool *params)
{
    if (holds(open, d->name))
        fail(e, d->named, "%s: model '%s' declares '%s' only where this form of it does not come", form(e, d), model, d->name);
    else if (holds(lets, d->name))
        fail(e, d->named, "%s: '%s' is a let of model '%s'; only a dim or param can be replaced", form(e, d), d->name, model);
    else
        fail(e, d->named, "%s: %smodel '%s' has no dim or param '%s'%s", form(e, d), params->n ? "the cluster has no param and " : "", model, d->name,
             did_you_mean(e, d->name, all_names(e, open, params), open->n + params->n));
}

Status defines_check(Diags *ds, const Units *units, const Units *machine, const Graph *g, const Define *define, uint32_t ndefine)
{
    Elab e = {.ds = ds, .arena = ds->arena, .units = units};
    const Node *model = item_find(units, N_MODEL, g->name);
    Pool open = {.arena = ds->arena}, lets = {.arena = ds->arena}, params = {.arena = ds->arena};
    if (model) {
        collect(&open, model->kid[2], N_DIMS);
        collect(&open, model->kid[2], N_PARAMS);
        collect(&lets, model->kid[2], N_LETS);
    }
    for (uint32_t u = 0; machine && u < machine->nunit; u++)
        for (uint32_t i = 0; i < machine->unit[u].root->nkid; i++)
            if (machine->unit[u].root->kid[i]->kind == N_CLUSTER)
                collect(&params, machine->unit[u].root->kid[i]->kid[2], N_PARAMS);
    for (uint32_t i = 0; i < ndefine; i++)
        if (!define[i].used)
            report_unused(&e, &define[i], g->name, &open, &lets, &params);
    return diags_status(ds);
}
