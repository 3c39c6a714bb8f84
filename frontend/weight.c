/* Weights: their place in the graph, how they start, and the sizes of tensors. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "frontend/elab.h"

/* ---- sizes ---- */

int64_t elements_of(Elab *e, const DimId *axis, int rank, Span at)
{
    int64_t n = 1, all = 0;
    bool wraps = false;
    for (int i = 0; i < rank; i++)
        wraps |= __builtin_mul_overflow(n, dim_of(e->g, axis[i])->extent, &n);
    if (wraps || n > ELEMENTS_LIMIT) {
        uint64_t from = 0;
        for (int i = 0; i < rank; i++)
            from |= e->dim_from[axis[i].i];
        note_overrides(e, fail(e, at, "a tensor %s has more than 2^56 elements", axes_text(e, axis, rank)), from);
        return -1;
    }
    all = e->elements + n;
    if (all > ELEMENTS_LIMIT) {
        fail_stop(e, at, "the tensors of the model have more than 2^56 elements");
        return -1;
    }
    e->elements = all;
    return n;
}

/* ---- weights ---- */

static void fill_fans(Elab *e, Init *init, const DimId *axis, int rank)
{
    if (init->fan_in)
        return;
    init->fan_in = init->fan_out = 1;
    for (int i = 0; i < rank; i++) {
        int64_t extent = dim_of(e->g, axis[i])->extent;
        if (i == rank - 1)
            init->fan_out = extent;
        if (i < rank - 1 || rank == 1)
            init->fan_in *= extent;
    }
}

ValueId weight_new(Elab *e, const char *path, const DimId *axis, int rank, DType dtype, Init init, bool frozen, bool decays, Span at)
{
    if (e->stopped || elements_of(e, axis, rank, at) < 0)
        return NO_VALUE;
    if (e->g->nweight >= OPS_LIMIT) {
        fail_stop(e, at, "the model has more than %d weights", OPS_LIMIT);
        return NO_VALUE;
    }
    ValueId v = graph_add_value(e->g, path, ROLE_WEIGHT, dtype, (uint8_t)rank, axis, at);
    fill_fans(e, &init, axis, rank);
    Weight w = {.value = v, .gradient = NO_VALUE, .init = init, .frozen = frozen, .decays = decays && !frozen};
    PUSH(e->g->arena, e->g->weight, e->g->nweight, w);
    return v;
}

/* ---- initialisers ---- */

typedef struct InitRow { const char *name; InitKind kind; uint32_t nparam; } InitRow;

static const InitRow init_row[] = {
#define X(name, nparam) {#name, INIT_##name, nparam},
    INIT_LIST(X)
#undef X
};

/* fan_in has no name in the language: it is what `auto` means. */
static const InitRow *init_find(const char *name)
{
    for (size_t i = 0; i < sizeof init_row / sizeof *init_row; i++)
        if (strcmp(init_row[i].name, name) == 0 && init_row[i].kind != INIT_fan_in)
            return &init_row[i];
    return NULL;
}

static bool init_params(Elab *e, Scope *s, const InitRow *row, const Node *args, double *param)
{
    for (uint32_t i = 0; i < row->nparam; i++) {
        const Node *arg = args->kid[i];
        Term t;
        if (arg->kind == N_KWARG) {
            fail(e, arg->at, "%s takes its numbers by position", row->name);
            return false;
        }
        if (!eval_real(e, s, arg, arena_printf(e->arena, "a number of %s", row->name), &t))
            return false;
        param[i] = t.f;
    }
    return true;
}

Term init_term(Elab *e, Scope *s, const Node *name, const Node *args)
{
    const InitRow *row = init_find(name->text);
    if (!row)
        return (Term){.kind = TERM_NONE};
    uint32_t nargs = args ? args->nkid : 0;
    static const char *const form[] = {"", "(std)", "(lo, hi)"};
    if (nargs != row->nparam) {
        Diag *d = fail(e, name->at, "%s takes %u number%s, but this has %u", row->name, row->nparam, row->nparam == 1 ? "" : "s", nargs);
        diag_note(e->ds, d, NOWHERE, "%s%s", row->name, form[row->nparam]);
        return POISON;
    }
    double param[2] = {0, 0};
    if (args && !init_params(e, s, row, args, param))
        return POISON;
    if (row->nparam == 1 && param[0] < 0) {
        fail(e, args->kid[0]->at, "the spread of %s must be at least 0, but it is %g", row->name, param[0]);
        return POISON;
    }
    if (row->nparam == 2 && param[0] > param[1]) {
        fail(e, args->at, "uniform(lo, hi) needs lo <= hi, but it has %g and %g", param[0], param[1]);
        return POISON;
    }
    Init *init = NEW(e->arena, Init);
    *init = (Init){.kind = row->kind, .a = param[0], .b = param[1]};
    return (Term){.kind = TERM_INIT, .init = init};
}

/* ---- the statement ---- */

/* What follows '~'; without it, normal(0.02), the usual start of a table. */
static bool weight_init(Elab *e, Scope *s, const Node *n, Init *out)
{
    *out = (Init){.kind = INIT_normal, .a = 0.02};
    if (node_absent(n))
        return true;
    Term t = n->kind == N_CALL && node_absent(n->kid[0]) ? init_term(e, s, n->kid[1], n->kid[2]) : (Term){.kind = TERM_NONE};
    if (n->kind == N_NAME)
        t = eval(e, s, n);
    if (t.kind == TERM_INIT)
        *out = *t.init;
    else if (t.kind != TERM_POISON) {
        Diag *d = fail(e, n->at, "'%s' is no initialiser", sources_text(e->ds->sources, n->at));
        diag_note(e->ds, d, NOWHERE, "zeros, ones, normal(std), trunc_normal(std), uniform(lo, hi), xavier, kaiming");
    }
    return t.kind == TERM_INIT;
}

bool declared_axes(Elab *e, const Scope *s, const char *what, const Node *axes, DimId *out)
{
    if (axes->nkid > MAX_RANK) {
        fail(e, axes->at, "%s has at most %d axes, but this has %u", what, MAX_RANK, axes->nkid);
        return false;
    }
    for (uint32_t i = 0; i < axes->nkid; i++) {
        const Node *n = axes->kid[i];
        if (n->kind != N_NAME) {
            fail(e, n->at, "%s names all its axes", what);
            return false;
        }
        out[i] = scope_dim(e, s, n);
        if (out[i].i == NO_DIM.i)
            return false;
        for (uint32_t j = 0; j < i; j++)
            if (same_dim(out[i], out[j])) {
                Diag *d = fail(e, n->at, "axis '%s' stands twice in this %s", n->text, strchr(what, ' ') + 1);
                diag_help(e->ds, d, "declare a second dim as long, for example 'dim other = %s'", n->text);
                return false;
            }
    }
    return true;
}

static Term declared_weight(Elab *e, Scope *s, const Node *n)
{
    DimId axis[MAX_RANK];
    Init init;
    bool ok = declared_axes(e, s, "a weight", n->kid[1], axis);
    if (!weight_init(e, s, n->kid[3], &init) || !ok)
        return POISON;
    DType dtype = node_absent(n->kid[2]) ? e->g->precision.weights : (DType)n->kid[2]->ival;
    if (!dtype_is_float(dtype)) {
        fail(e, n->kid[2]->at, "a weight has a floating-point dtype, but this is %s", dtype_name(dtype));
        return POISON;
    }
    int rank = (int)n->kid[1]->nkid;
    bool frozen = !node_absent(n->kid[4]);
    return term_tensor(weight_new(e, scope_path(e, s, n->kid[0]->text), axis, rank, dtype, init, frozen, rank >= 2, n->kid[0]->at));
}

void statement_weight(Elab *e, Scope *s, const Node *n)
{
    if (scope_find(s, n->kid[0]->text))              /* reported there, once */
        scope_declare(e, s, n->kid[0], SYM_WEIGHT, POISON);
    else
        scope_declare(e, s, n->kid[0], SYM_WEIGHT, declared_weight(e, s, n));
}
