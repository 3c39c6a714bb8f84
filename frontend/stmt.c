/* Statements: declarations, assignments, repeats, choices. */
#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "frontend/elab.h"

/* ---- declarations ---- */

static void declare_dim(Elab *e, Scope *s, const Node *bind)
{
    const Node *name = bind->kid[0];
    Term t;
    if (scope_find(s, name->text)) {
        scope_declare(e, s, name, SYM_DIM, POISON);
        return;
    }
    if (s->kind != SCOPE_MODEL || !define_take(e, s, bind, true, &t))
        t = term_scalar(e, eval(e, s, bind->kid[1]));
    if (t.kind != TERM_INT && t.kind != TERM_POISON) {
        Diag *d = fail(e, bind->kid[1]->at, "dim '%s' must be a positive whole number, but it is %s", name->text, term_describe(e, t));
        note_overrides(e, d, t.from);
    }
    DimId d = t.kind == TERM_INT ? elab_dim(e, name->text, t.i, name->at, t.from) : NO_DIM;
    scope_declare(e, s, name, SYM_DIM, term_dim(d));
    if (s->kind == SCOPE_MODEL && s->rounds == 0 && strcmp(name->text, "batch") == 0)
        e->g->batch = d;
}

static bool is_setting(Term t)
{
    return t.kind == TERM_INT || t.kind == TERM_REAL || t.kind == TERM_BOOL || t.kind == TERM_STRING || t.kind == TERM_DTYPE ||
           t.kind == TERM_NONE || t.kind == TERM_AUTO || t.kind == TERM_INIT || t.kind == TERM_POISON;
}

static void declare_number(Elab *e, Scope *s, const Node *bind, bool param)
{
    Term t;
    if (scope_find(s, bind->kid[0]->text)) {
        scope_declare(e, s, bind->kid[0], SYM_PARAM, POISON);
        return;
    }
    if (!param || !define_take(e, s, bind, false, &t))
        t = term_scalar(e, eval(e, s, bind->kid[1]));
    if (!is_setting(t)) {
        fail(e, bind->kid[1]->at, "%s '%s' must be a number, boolean, string or dtype, but this is %s", param ? "param" : "let",
             bind->kid[0]->text, term_describe(e, t));
        t = POISON;
    }
    scope_declare(e, s, bind->kid[0], param ? SYM_PARAM : SYM_LET, t);
}

static void statement_dims(Elab *e, Scope *s, const Node *n)
{
    for (uint32_t i = 0; i < n->nkid; i++)
        declare_dim(e, s, n->kid[i]);
}

static void statement_params(Elab *e, Scope *s, const Node *n)
{
    for (uint32_t i = 0; i < n->nkid; i++)
        declare_number(e, s, n->kid[i], true);
}

static void statement_lets(Elab *e, Scope *s, const Node *n)
{
    for (uint32_t i = 0; i < n->nkid; i++)
        declare_number(e, s, n->kid[i], false);
}

static bool input_axes(Elab *e, const Scope *s, const Node *n, DimId *axis)
{
    const Node *axes = n->kid[1];
    if (!declared_axes(e, s, "an input", axes, axis))
        return false;
    for (uint32_t i = 1; i < axes->nkid; i++)
        if (same_dim(axis[i], e->g->batch)) {
            fail(e, axes->kid[i]->at, "'batch' must be the first axis of input '%s': data files hold whole samples", n->kid[0]->text);
            return false;
        }
    return true;
}

static void statement_input(Elab *e, Scope *s, const Node *n)
{
    DimId axis[MAX_RANK];
    Term t = POISON;
    bool fresh = !scope_find(s, n->kid[0]->text);
    int rank = (int)n->kid[1]->nkid;
    if (fresh && input_axes(e, s, n, axis) && elements_of(e, axis, rank, n->at) >= 0)
        t = term_tensor(graph_add_value(e->g, n->kid[0]->text, ROLE_INPUT, (DType)n->kid[2]->ival, (uint8_t)rank, axis, n->kid[0]->at));
    scope_declare(e, s, n->kid[0], SYM_INPUT, t);
}

/* ---- what must hold ---- */

static void names_in(Elab *e, const Scope *s, const Node *n, Text *out, uint64_t *from)
{
    const Symbol *sym = n->kind == N_NAME ? scope_find(s, n->text) : NULL;
    if (sym && sym->term.kind != TERM_POISON) {
        const char *pair = arena_printf(e->arena, "%s = %s", n->text, term_text(e, sym->term));
        *from |= term_scalar(e, sym->term).from;
        if (!strstr(out->s, pair))
            text_add(out, "%s%s", out->n ? ", " : "", pair);
    }
    for (uint32_t i = 0; i < n->nkid; i++)
        names_in(e, s, n->kid[i], out, from);
}

static void statement_require(Elab *e, Scope *s, const Node *n)
{
    Term t = eval(e, s, n->kid[0]);
    if (t.kind == TERM_POISON || (t.kind == TERM_BOOL && t.i))
        return;
    if (t.kind != TERM_BOOL) {
        fail(e, n->kid[0]->at, "require needs a condition, but this is %s", term_describe(e, t));
        return;
    }
    const char *text = sources_text(e->ds->sources, n->kid[0]->at);
    Diag *d = fail(e, n->kid[0]->at, "%s", node_absent(n->kid[1]) ? "a requirement does not hold" : n->kid[1]->text);
    Text values = text_new(e->arena);
    uint64_t from = 0;
    names_in(e, s, n->kid[0], &values, &from);
    diag_note(e->ds, d, NOWHERE, "%s does not hold%s%s", text, values.n ? ": " : "", values.s);
    note_overrides(e, d, from);
}

/* ---- assignments ---- */

static void assign_several(Elab *e, Scope *s, const Node *targets, const Node *value)
{
    Term t = eval(e, s, value);
    bool fits = t.kind == TERM_TUPLE && t.nitem == targets->nkid;
    if (!fits && t.kind != TERM_POISON)
        fail(e, value->at, "%u names on the left, but %u value%s on the right", targets->nkid, t.kind == TERM_TUPLE ? t.nitem : 1,
             t.kind == TERM_TUPLE && t.nitem != 1 ? "s" : "");
    for (uint32_t i = 0; i < targets->nkid; i++)
        scope_assign(e, s, targets->kid[i], fits ? t.item[i] : POISON);
}

static void statement_assign(Elab *e, Scope *s, const Node *n)
{
    const Node *targets = n->kid[0], *value = n->kid[1];
    if (targets->nkid > 1) {
        assign_several(e, s, targets, value);
        return;
    }
    Term t = eval_named(e, s, value, targets->kid[0]->text);
    if (t.kind == TERM_TUPLE) {
        fail(e, value->at, "this is %u values, but there is one name on the left", t.nitem);
        t = POISON;
    }
    scope_assign(e, s, targets->kid[0], t);
}

static void statement_return(Elab *e, Scope *s, const Node *n)
{
    Term t = {.kind = TERM_TUPLE, .nitem = n->nkid, .item = NEWN(e->arena, Term, n->nkid)};
    bool poisoned = false;
    for (uint32_t i = 0; i < n->nkid; i++) {
        t.item[i] = eval(e, s, n->kid[i]);
        if (t.item[i].kind == TERM_TUPLE && n->nkid > 1) {
            fail(e, n->kid[i]->at, "this is %u values; name them first", t.item[i].nitem);
            poisoned = true;
        }
        poisoned |= t.item[i].kind == TERM_POISON;
    }
    s->returned = true;
    s->result_at = n->at;
    s->result = poisoned ? POISON : n->nkid == 1 ? t.item[0] : t;
}

static void statement_output(Elab *e, Scope *s, const Node *n)
{
    for (uint32_t i = 0; i < n->nkid; i++) {
        const Symbol *sym = scope_lookup(e, s, n->kid[i]);
        if (!sym || sym->term.kind == TERM_POISON)
            continue;
        if (sym->term.kind == TERM_TENSOR)
            PUSH(e->g->arena, e->g->output, e->g->noutput, ((NamedValue){arena_strdup(e->g->arena, n->kid[i]->text), sym->term.value}));
        else
            fail(e, n->kid[i]->at, "an output is a tensor, but '%s' is %s", n->kid[i]->text, term_describe(e, sym->term));
    }
}

static const char *name_or(const Node *minimize, const char *other)
{
    const Node *what = minimize->kid[0];
    return what->kind == N_NAME ? what->text : other;
}

static void minimized_twice(Elab *e, const Node *first, const Node *second)
{
    Diag *d = fail(e, second->at, "a model minimizes one value");
    if (!d)
        return;
    diag_note(e->ds, d, first->at, "the first 'minimize' is here");
    diag_help(e->ds, d, "minimize their sum, for instance 'minimize %s + 0.5 * %s'", name_or(first, "first"), name_or(second, "second"));
}

static void statement_minimize(Elab *e, Scope *s, const Node *n)
{
    if (e->minimize) {
        minimized_twice(e, e->minimize, n);
        return;
    }
    e->minimize = n;
    Term t = eval(e, s, n->kid[0]);
    if (t.kind == TERM_POISON)
        return;
    const Value *val = t.kind == TERM_TENSOR ? value_of(e->g, t.value) : NULL;
    if (val && val->rank == 0 && dtype_is_float(val->dtype)) {
        /* The log and the sums over micro-batches and ranks have no less than f32. */
        e->g->loss = dtype_bytes(val->dtype) < dtype_bytes(DT_f32) ? emit_cast(e, t.value, DT_f32, n->at) : t.value;
        return;
    }
    Diag *d = fail(e, n->kid[0]->at, "minimize needs a single number, but this is %s%s", val ? "" : term_describe(e, t), val ? value_text(e, t.value) : "");
    if (val && val->rank)
        diag_help(e->ds, d, "reduce it first, for example with mean(..., over = %s)", dim_of(e->g, val->axis[val->rank - 1])->name);
}

/* ---- repeat ---- */

static bool same_shape(Elab *e, Term a, Term b)
{
    bool tensors = (a.kind == TERM_TENSOR && b.kind == TERM_TENSOR) || (a.kind == TERM_ROUTE && b.kind == TERM_ROUTE);
    if (!tensors)
        return (a.kind == b.kind && a.kind != TERM_TENSOR) || (term_is_number(a) && term_is_number(b));
    const Value *x = value_of(e->g, a.value), *y = value_of(e->g, b.value);
    return x->rank == y->rank && memcmp(x->axis, y->axis, sizeof *x->axis * x->rank) == 0;
}

/* Names that existed before the round must keep their shape through it. */
static void check_carried(Elab *e, Scope *s, const Node *label, const Term *before, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        Symbol *sym = &s->names->symbol[i];
        if (sym->term.kind == TERM_POISON || before[i].kind == TERM_POISON || same_shape(e, before[i], sym->term))
            continue;
        bool tensors = before[i].kind == TERM_TENSOR && sym->term.kind == TERM_TENSOR;
        Diag *d = fail(e, label->at, "repeat changes '%s' from %s to %s", sym->name,
                       tensors ? term_text(e, before[i]) : term_describe(e, before[i]),
                       tensors ? term_text(e, sym->term) : term_describe(e, sym->term));
        diag_note(e->ds, d, sym->assigned, "'%s' is last assigned here", sym->name);
        diag_note(e->ds, d, NOWHERE, "every round must hand the next one what it was given");
        sym->term = POISON;
    }
}

static void run_round(Elab *e, Scope *s, const Node *n, const char *base, int64_t i, Term *before)
{
    Names *names = s->names;
    uint32_t nbefore = names->nsymbol;
    for (uint32_t k = 0; k < nbefore; k++)
        before[k] = names->symbol[k].term;
    Scope round = scope_round(s, arena_printf(e->arena, "%s[%" PRId64 "]", base, i));
    if (!node_absent(n->kid[2]))
        scope_declare(e, &round, n->kid[2], SYM_INDEX, term_int(i, 0));
    elab_step(e, n->at);                             /* an empty round is one too */
    run_statements(e, &round, n->kid[3]);
    check_carried(e, s, n->kid[1], before, nbefore);
    names->nsymbol = nbefore;                        /* what is left is local to the round */
}

static void statement_repeat(Elab *e, Scope *s, const Node *n)
{
    Term count;
    const Node *label = n->kid[1];
    bool named = scope_instance(e, s, label->text, label->at, NULL);
    if (!eval_whole(e, s, n->kid[0], "the number of rounds", 0, ROUNDS_LIMIT, &count) || !named)
        return;
    const char *base = scope_path(e, s, label->text);
    Term *before = NEWN(e->arena, Term, s->names->nsymbol + 1);
    int errors = e->ds->errors;
    for (int64_t i = 0; i < count.i && errors == e->ds->errors && !e->stopped; i++)
        run_round(e, s, n, base, i, before);
}

/* ---- if ---- */

static void statement_if(Elab *e, Scope *s, const Node *n)
{
    Term t = eval(e, s, n->kid[0]);
    if (t.kind != TERM_BOOL) {
        if (t.kind != TERM_POISON)
            fail(e, n->kid[0]->at, "a condition is true or false, but this is %s", term_describe(e, t));
        s->names->unsure = true;
        return;
    }
    s->nested++;
    if (t.i)
        run_statements(e, s, n->kid[1]);
    else if (!node_absent(n->kid[2]))
        run_statements(e, s, n->kid[2]);
    s->nested--;
}

/* ---- dispatch ---- */

typedef struct Row {
    NodeKind kind;
    void (*run)(Elab *, Scope *, const Node *);
    const char *word;
    bool in_model, in_block, nested, in_rounds;      /* where it may stand */
} Row;

static const Row rows[] = {
    {N_DIMS, statement_dims, "dim", true, true, true, true},
    {N_PARAMS, statement_params, "param", true, false, true, false},
    {N_LETS, statement_lets, "let", true, true, true, true},
    {N_REQUIRE, statement_require, "require", true, true, true, true},
    {N_INPUT, statement_input, "input", true, false, true, false},
    {N_WEIGHT, statement_weight, "weight", true, true, true, true},
    {N_OUTPUT, statement_output, "output", true, false, true, false},
    {N_MINIMIZE, statement_minimize, "minimize", true, false, true, false},
    {N_RETURN, statement_return, "return", false, true, true, false},
    {N_ASSIGN, statement_assign, "an assignment", true, true, true, true},
    {N_AXASSIGN, assign_axes, "an assignment", true, true, true, true},
    {N_REPEAT, statement_repeat, "repeat", true, true, true, true},
    {N_IF, statement_if, "if", true, true, true, true},
    {N_PRECISION, model_precision, "precision", true, false, false, false},
    {N_OPTIMIZER, model_optimizer, "optimizer", true, false, true, false},
    {N_DEFAULTS, model_defaults, "defaults", true, false, false, false},
};

static bool may_stand(Elab *e, const Scope *s, const Node *n, const Row *row)
{
    const char *where = s->kind == SCOPE_MODEL && !row->in_model ? "a model" : s->kind == SCOPE_BLOCK && !row->in_block ? "a block" :
                        s->rounds && !row->in_rounds ? "a repeat" : s->nested && !row->nested ? "an if" : NULL;
    if (where)
        fail(e, n->at, "'%s' cannot stand in %s", row->word, where);
    return !where;
}

static void run_statement(Elab *e, Scope *s, const Node *n)
{
    if (!elab_step(e, n->at))
        return;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].kind == n->kind && may_stand(e, s, n, &rows[i]))
            rows[i].run(e, s, n);
}

void run_statements(Elab *e, Scope *s, const Node *stmts)
{
    if (e->depth >= DEPTH_LIMIT && !e->stopped)
        fail_stop(e, stmts->at, "statements and blocks are nested more than %d deep here", DEPTH_LIMIT);
    e->depth++;
    for (uint32_t i = 0; i < stmts->nkid && !e->stopped; i++) {
        if (s->returned) {
            fail(e, stmts->kid[i]->at, "this comes after 'return' and is never reached");
            break;
        }
        run_statement(e, s, stmts->kid[i]);
    }
    e->depth--;
}
