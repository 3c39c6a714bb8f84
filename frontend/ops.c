/* The table of the language's ops: of what kind each argument is, and what beyond
 * the signature a call must satisfy.  A new op needs a row here, one in ops.def, a
 * gradient rule and a kernel. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "frontend/elab.h"

/* kinds: a letter per formal of the signature, owned weights left out.
 *   f floating-point tensor   i whole-number tensor   b bool tensor   x any tensor   r route
 *   d dim, or a number: a fresh dim   D the same, or a list   A an axis   a an axis or a list
 *   n whole, at least 1   s any whole   u real in [0, 1)   z real >= 0   + real > 0
 *   B bool   T dtype   I initialiser
 * `none` and `auto` are taken where they are the signature's default. */
typedef struct OpRow {
    const char *kinds;
    InitKind    init;                                /* of the first owned weight */
    bool      (*before)(Call *), (*after)(Call *);   /* around call_bind(); NULL: nothing to do */
    Term      (*lower)(Call *);                      /* instead of all of it */
} OpRow;

static const OpRow row[OP_KINDS] = {
    [OP_embed]         = {.kinds = "if"},
    [OP_iota]          = {.kinds = "d"},
    [OP_linear]        = {.kinds = "fDaaBI", .init = INIT_fan_in, .lower = lower_linear},
    [OP_matmul]        = {.kinds = "ffa", .lower = lower_matmul},
    [OP_conv2d]        = {.kinds = "fdddnnsBI", .init = INIT_fan_in, .before = before_conv2d, .after = after_conv2d},
    [OP_layernorm]     = {.kinds = "fzB", .init = INIT_ones},
    [OP_rmsnorm]       = {.kinds = "fz", .init = INIT_ones},
    [OP_softmax]       = {.kinds = "f"},
    [OP_dropout]       = {.kinds = "fu", .lower = lower_dropout},
    [OP_gelu]          = {.kinds = "fB"},
    [OP_relu]          = {.kinds = "f"},
    [OP_silu]          = {.kinds = "f"},
    [OP_tanh]          = {.kinds = "f"},
    [OP_cast]          = {.kinds = "xT", .lower = lower_cast},
    [OP_rope]          = {.kinds = "fA+i", .before = before_rope, .after = after_rope},
    [OP_attention]     = {.kinds = "fffBn+bfui", .after = after_attention},
    [OP_relative_bias] = {.kinds = "dddnnB", .init = INIT_normal, .before = before_relative_bias},
    [OP_router]        = {.kinds = "fdn", .init = INIT_fan_in, .after = after_router},
    [OP_dispatch]      = {.kinds = "fr+", .after = after_dispatch},
    [OP_combine]       = {.kinds = "fr"},
    [OP_load_balance]  = {.kinds = "r"},
    [OP_rename]        = {.kinds = "x", .lower = lower_rename},
    [OP_merge]         = {.kinds = "xad", .lower = lower_merge},
    [OP_concat]        = {.kinds = "ffAd", .lower = lower_concat},
    [OP_mean]          = {.kinds = "fa", .lower = lower_reduce},
    [OP_sum]           = {.kinds = "fa", .lower = lower_reduce},
    [OP_zeros]         = {.kinds = ""},
    [OP_cross_entropy] = {.kinds = "fisu", .before = before_cross_entropy},
};

bool op_owns_weights(OpKind k)
{
    const OpSig *sig = op_sig(k);
    for (int i = 0; i < sig->nformal; i++)
        if (sig->formal[i].kind == SIG_OWNED)
            return true;
    return false;
}

/* ---- kinds of arguments ---- */

static const char *kind_phrase(char kind)
{
    switch (kind) {
    case 'f': return "a floating-point tensor";
    case 'i': return "a tensor of whole numbers";
    case 'b': return "a tensor of booleans";
    case 'x': return "a tensor";
    case 'r': return "a route, made by router()";
    case 'd': return "a dim or a positive whole number";
    case 'D': return "a dim, a positive whole number or a list of them";
    case 'A': return "an axis";
    case 'a': return "an axis or a list of axes";
    case 'n': return "a whole number of at least 1";
    case 's': return "a whole number";
    case 'u': return "a number of at least 0 and below 1";
    case 'z': return "a number of at least 0";
    case '+': return "a number above 0";
    case 'B': return "true or false";
    case 'T': return "a floating-point dtype";
    default:  return "an initialiser";
    }
}

static bool tensor_fits(Elab *e, char kind, const Term *t)
{
    if (t->kind != TERM_TENSOR)
        return false;
    DType d = value_of(e->g, t->value)->dtype;
    bool is_float = dtype_is_float(d), is_bool = d == DT_bool;
    return kind == 'x' || (kind == 'f' && is_float) || (kind == 'b' && is_bool) || (kind == 'i' && !is_float && !is_bool);
}

static bool real_fits(char kind, Term *t)
{
    if (t->kind != TERM_INT && t->kind != TERM_REAL)
        return false;
    t->kind = TERM_REAL;
    return kind == 'u' ? t->f >= 0 && t->f < 1 : kind == 'z' ? t->f >= 0 : t->f > 0;
}

/* A number becomes a fresh dim called like the formal. */
static bool to_dim(Elab *e, const char *formal, Term *t, Span at)
{
    if (t->kind == TERM_INT)
        *t = term_dim(elab_dim(e, formal, t->i, at, t->from));
    return t->kind == TERM_DIM;
}

static bool list_fits(Elab *e, char kind, const char *formal, Term *t, Span at)
{
    if (t->kind != TERM_LIST) {                      /* one of them: a list of one */
        Term *one = NEW(e->arena, Term);
        *one = *t;
        *t = (Term){.kind = TERM_LIST, .item = one, .nitem = 1};
    } else {
        Term *copy = NEWN(e->arena, Term, t->nitem);
        memcpy(copy, t->item, sizeof *copy * t->nitem);
        t->item = copy;
    }
    for (uint32_t i = 0; i < t->nitem; i++)
        if (kind == 'D' ? !to_dim(e, formal, &t->item[i], at) : t->item[i].kind != TERM_DIM)
            return false;
    return t->nitem <= MAX_RANK;
}

static bool fits(Elab *e, char kind, const char *formal, Term *t, Span at)
{
    bool number = strchr("nsuz+", kind) != NULL;
    if (number)
        *t = term_scalar(e, *t);
    switch (kind) {
    case 'f': case 'i': case 'b': case 'x': return tensor_fits(e, kind, t);
    case 'r': return t->kind == TERM_ROUTE;
    case 'd': return to_dim(e, formal, t, at);
    case 'A': return t->kind == TERM_DIM;
    case 'D': case 'a': return list_fits(e, kind, formal, t, at);
    case 'n': return t->kind == TERM_INT && t->i >= 1;
    case 's': return t->kind == TERM_INT;
    case 'B': return t->kind == TERM_BOOL;
    case 'T': return t->kind == TERM_DTYPE && dtype_is_float((DType)t->i);
    case 'I': return t->kind == TERM_INIT;
    default:  return real_fits(kind, t);
    }
}

bool op_check_arg(Elab *e, OpKind k, int formal, Term *t, Span at)
{
    const SigFormal *f = &op_sig(k)->formal[formal];
    char kind = row[k].kinds[formal];
    bool word = (t->kind == TERM_NONE || t->kind == TERM_AUTO) && f->fallback;
    if (word && strcmp(f->fallback, t->kind == TERM_NONE ? "none" : "auto") == 0)
        return true;
    Term was = *t;
    int errors = e->ds->errors;
    if (fits(e, kind, f->name, t, at))
        return true;
    if (errors != e->ds->errors || e->stopped)       /* a dim of a bad extent, reported there */
        return false;
    const char *dtype = was.kind == TERM_TENSOR ? arena_printf(e->arena, " of %s", dtype_name(value_of(e->g, was.value)->dtype)) : "";
    Diag *d = fail(e, at, "'%s' of %s must be %s, but this is %s%s", f->name, op_info[k].name, kind_phrase(kind), term_describe(e, was), dtype);
    note_overrides(e, d, was.from);
    if (kind == 'f' && was.kind == TERM_TENSOR)
        help_cast(e, d);
    return false;
}

/* ---- lowering ---- */

static bool check_args(Call *c)
{
    const char *kinds = row[c->kind].kinds;
    for (int i = 0; kinds[i]; i++)
        if (!op_check_arg(c->e, c->kind, i, &c->arg[i].term, c->arg[i].at->at))
            return false;
    return true;
}

Term op_lower(Call *c)
{
    const OpRow *r = &row[c->kind];
    assert(r->kinds && "every op of the language has a row");
    if (!check_args(c))
        return POISON;
    c->init = (Init){.kind = r->init, .a = r->init == INIT_normal ? 0.02 : 0};
    if (r->lower)
        return r->lower(c);
    if ((r->before && !r->before(c)) || !call_bind(c) || (r->after && !r->after(c)))
        return POISON;
    return call_emit(c);
}
