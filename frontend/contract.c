/* Assignments that name their axes: a product of tensors is a contraction (axes not
 * on the left are summed), anything else is put in the order of the left side. */
#include <string.h>

#include "frontend/elab.h"

/* The factors of the right side, and the product of those that are numbers. */
typedef struct Product {
    const Node *node[MAX_FACTORS];
    Term        term[MAX_FACTORS];
    uint32_t    n;                    /* tensors */
    uint32_t    nnode;                /* all factors */
    double      number;
    bool        poisoned;
} Product;

/* ---- products ---- */

/* Add up the axes that only x has and nobody keeps. */
static ValueId sum_own(Elab *e, const Scope *s, ValueId x, const Axes *other, const Axes *keep, Span at)
{
    Axes a = axes_of(e, x), own = axes_without(&a, other), over = axes_without(&own, keep);
    return over.n ? emit_sum(e, s, x, &over, false, "sum", at) : x;
}

/* Nothing is summed and `big` lies in the order wanted: an ordinary product will do. */
static bool is_elementwise(const Axes *big, const Axes *small, const Axes *keep)
{
    bool in_order = big->n == keep->n && memcmp(big->dim, keep->dim, sizeof *big->dim * (size_t)big->n) == 0;
    return in_order && axes_without(small, big).n == 0;
}

static ValueId emit_mul(Elab *e, const Scope *s, ValueId l, ValueId r, const Axes *keep, const char *base, Span at)
{
    ValueId both[2] = {l, r};
    for (int side = 0; side < 2; side++) {
        Axes a = axes_of(e, both[side]), order = axes_ordered(&a, keep);
        both[side] = emit_order(e, s, both[side], &order, at);
        if (!has_value(both[side]))
            return NO_VALUE;
    }
    OpSpec spec = op_start(e, s, OP_mul, base, at);
    op_take(&spec, both[0]);
    op_take(&spec, both[1]);
    op_give(&spec, keep->dim, keep->n, float_dtype(e, both, 2));
    return emit(e, &spec);
}

ValueId emit_product(Elab *e, const Scope *s, ValueId l, ValueId r, const Axes *keep, const char *base, Span at)
{
    Axes left = axes_of(e, l), right = axes_of(e, r);
    l = sum_own(e, s, l, &right, keep, at);
    r = has_value(l) ? sum_own(e, s, r, &left, keep, at) : l;
    if (!has_value(r))
        return NO_VALUE;
    left = axes_of(e, l);
    right = axes_of(e, r);
    if (is_elementwise(&left, &right, keep) || is_elementwise(&right, &left, keep))
        return emit_mul(e, s, l, r, keep, base, at);
    ValueId both[] = {l, r};
    OpSpec spec = op_start(e, s, OP_contract, base, at);
    op_take(&spec, l);
    op_take(&spec, r);
    op_give(&spec, keep->dim, keep->n, float_dtype(e, both, 2));
    return emit(e, &spec);
}

/* The axes of acc and next that the left side keeps or a later factor needs. */
static bool still_needed(Elab *e, const Product *p, uint32_t next, ValueId acc, const Axes *keep, Axes *out)
{
    Axes side[2] = {axes_of(e, acc), axes_of(e, p->term[next].value)};
    out->n = 0;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < side[k].n; i++) {
            DimId d = side[k].dim[i];
            bool needed = axes_have(keep, d);
            for (uint32_t f = next + 1; f < p->n && !needed; f++)
                needed = value_has_dim(e->g, p->term[f].value, d);
            if (!needed || axes_have(out, d))
                continue;
            if (out->n == MAX_RANK)
                return false;
            out->dim[out->n++] = d;
        }
    return true;
}

static ValueId emit_chain(Elab *e, Scope *s, const Product *p, const Axes *keep, const char *base, Span at)
{
    ValueId acc = p->term[0].value;
    for (uint32_t f = 1; f < p->n && has_value(acc); f++) {
        Axes part = *keep;
        bool last = f + 1 == p->n;
        if (!last && !still_needed(e, p, f, acc, keep, &part)) {
            fail(e, at, "the product of the first %u of these tensors has more than %d axes", f + 1, MAX_RANK);
            return NO_VALUE;
        }
        acc = emit_product(e, s, acc, p->term[f].value, &part, last ? base : "contract", at);
    }
    return acc;
}

/* ---- the right side ---- */

static void add_factor(Elab *e, Scope *s, const Node *n, const char *variable, Product *p)
{
    Term t = term_scalar(e, eval_named(e, s, n, variable));
    if (t.kind == TERM_TENSOR && p->n < MAX_FACTORS) {
        p->node[p->n] = n;
        p->term[p->n++] = t;
    } else if (t.kind == TERM_INT || t.kind == TERM_REAL) {
        p->number *= t.f;
    } else {
        if (t.kind == TERM_TENSOR && !p->poisoned)
            fail(e, n->at, "a product has at most %d tensors", MAX_FACTORS);
        else if (t.kind != TERM_POISON && t.kind != TERM_TENSOR)
            fail(e, n->at, "'*' needs numbers or tensors, but this is %s", term_describe(e, t));
        p->poisoned = true;
    }
}

static void factors_of(Elab *e, Scope *s, const Node *n, Product *p)
{
    if (n->kind == N_BINARY && n->ival == B_MUL) {
        factors_of(e, s, n->kid[0], p);
        factors_of(e, s, n->kid[1], p);
        return;
    }
    p->nnode++;
    add_factor(e, s, n, NULL, p);
}

static void right_side(Elab *e, Scope *s, const Node *stmt, Product *p)
{
    const Node *n = stmt->kid[2];
    *p = (Product){.number = 1};
    if (n->kind == N_BINARY && n->ival == B_MUL) {
        factors_of(e, s, n, p);
    } else {
        p->nnode = 1;
        add_factor(e, s, n, stmt->kid[0]->text, p);
    }
    if (p->n == 0 && !p->poisoned) {
        fail(e, n->at, "an assignment that names its axes needs a tensor on the right, but this is a number");
        p->poisoned = true;
    }
    for (uint32_t i = 0; i < p->n && p->nnode > 1; i++) {
        DType d = value_of(e->g, p->term[i].value)->dtype;
        if (dtype_is_float(d))
            continue;
        help_cast(e, fail(e, p->node[i]->at, "a product needs floating-point tensors, but this is %s %s", dtype_name(d), term_text(e, p->term[i])));
        p->poisoned = true;
    }
}

/* ---- the left side ---- */

static bool add_axis(Elab *e, const Node *at, DimId d, Axes *out)
{
    if (axes_have(out, d)) {
        fail(e, at->at, "axis '%s' stands twice on the left", dim_of(e->g, d)->name);
        return false;
    }
    if (out->n == MAX_RANK) {
        fail(e, at->at, "a tensor has at most %d axes", MAX_RANK);
        return false;
    }
    out->dim[out->n++] = d;
    return true;
}

/* '..' stands for the axes of the right side that have no name here. */
static bool add_dots(Elab *e, const Scope *s, const Node *at, const Product *p, Axes *out)
{
    for (uint32_t f = 0; f < p->n; f++) {
        Axes a = axes_of(e, p->term[f].value);
        for (int i = 0; i < a.n; i++) {
            bool named = axes_have(out, a.dim[i]);
            for (uint32_t k = 0; k < s->names->nsymbol && !named; k++)
                named = s->names->symbol[k].term.kind == TERM_DIM && same_dim(s->names->symbol[k].term.dim, a.dim[i]);
            if (!named && !add_axis(e, at, a.dim[i], out))
                return false;
        }
    }
    return true;
}

static bool left_side(Elab *e, const Scope *s, const Node *axes, const Product *p, Axes *out)
{
    out->n = 0;
    for (uint32_t i = 0; i < axes->nkid; i++) {
        const Node *n = axes->kid[i];
        if (n->kind == N_DOTS) {
            if (!add_dots(e, s, n, p, out))
                return false;
            continue;
        }
        if (n->kind != N_NAME) {
            fail(e, n->at, "'!' stands in op declarations only");
            return false;
        }
        DimId d = scope_dim(e, s, n);
        if (d.i == NO_DIM.i || !add_axis(e, n, d, out))
            return false;
    }
    return true;
}

static void note_factors(Elab *e, Diag *d, const Product *p)
{
    for (uint32_t i = 0; i < p->n; i++)
        diag_note(e->ds, d, p->node[i]->at, "this is %s", term_text(e, p->term[i]));
}

/* Every axis of the left is on the right. */
static bool left_is_found(Elab *e, const Node *axes, const Product *p, const Axes *left)
{
    for (int i = 0; i < left->n; i++) {
        bool found = false;
        for (uint32_t f = 0; f < p->n; f++)
            found |= value_has_dim(e->g, p->term[f].value, left->dim[i]);
        if (found)
            continue;
        const char *name = dim_of(e->g, left->dim[i])->name;
        Span at = axes->at;
        for (uint32_t k = 0; k < axes->nkid; k++)
            if (axes->kid[k]->kind == N_NAME && strcmp(axes->kid[k]->text, name) == 0)
                at = axes->kid[k]->at;
        note_factors(e, fail(e, at, "axis '%s' is on the left but nothing on the right has it", name), p);
        return false;
    }
    return true;
}

/* A single tensor must have exactly the axes of the left. */
static bool none_dropped(Elab *e, const Node *stmt, const Product *p, const Axes *left)
{
    Axes a = axes_of(e, p->term[0].value);
    for (int i = 0; i < a.n; i++) {
        if (axes_have(left, a.dim[i]))
            continue;
        const char *axis = dim_of(e->g, a.dim[i])->name;
        Diag *d = fail(e, stmt->kid[0]->at, "axis '%s' is on the right but not on the left", axis);
        note_factors(e, d, p);
        diag_help(e->ds, d, "to add up over it, write sum(%s, over = %s)", sources_text(e->ds->sources, p->node[0]->at), axis);
        return false;
    }
    return true;
}

static Term assigned_value(Elab *e, Scope *s, const Node *stmt)
{
    Product p;
    Axes left;
    right_side(e, s, stmt, &p);
    if (p.poisoned || !left_side(e, s, stmt->kid[1], &p, &left) || !left_is_found(e, stmt->kid[1], &p, &left))
        return POISON;
    if (p.n == 1 && !none_dropped(e, stmt, &p, &left))
        return POISON;
    const char *name = stmt->kid[0]->text;
    Span at = stmt->kid[2]->at;
    ValueId v = p.n > 1 ? emit_chain(e, s, &p, &left, name, at) : emit_order(e, s, p.term[0].value, &left, at);
    if (p.number < 1 || p.number > 1)                /* some factors are numbers */
        v = emit_number(e, s, OP_scale, v, p.number, NULL, at);
    return term_tensor(v);
}

void assign_axes(Elab *e, Scope *s, const Node *stmt)
{
    scope_assign(e, s, stmt->kid[0], assigned_value(e, s, stmt));
}
