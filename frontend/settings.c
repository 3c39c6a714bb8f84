/* Blocks of `key = value`: tables of typed keys, and the three blocks of a model. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "frontend/elab.h"
#include "frontend/elsewhere.h"

/* ---- keys ---- */

const char *key_text(Elab *e, const Node *key)
{
    Text t = text_new(e->arena);
    for (uint32_t i = 0; i < key->nkid; i++)
        text_add(&t, "%s%s", i ? "." : "", key->kid[i]->text);
    return t.s;
}

static bool in_range(Elab *e, const Node *n, const Key *k, double x, uint64_t from)
{
    if (x >= k->lo && (k->below ? x < k->hi : x <= k->hi))
        return true;
    const char *limit = isinf(k->hi) ? "" : arena_printf(e->arena, " and %s %g", k->below ? "below" : "at most", k->hi);
    Diag *d = fail(e, n->at, "%s must be at least %g%s, but it is %g", k->name, k->lo, limit, x);
    note_overrides(e, d, from);
    return false;
}

static void read_number(Elab *e, Scope *s, const Node *n, const Key *k)
{
    Term t;
    if (eval_real(e, s, n, k->name, &t) && in_range(e, n, k, t.f, t.from))
        *(double *)k->out = t.f;
}

static void read_whole(Elab *e, Scope *s, const Node *n, const Key *k)
{
    Term t;
    int64_t hi = k->hi < 9e18 ? (int64_t)k->hi : INT64_MAX;
    if (eval_whole(e, s, n, k->name, (int64_t)k->lo, hi, &t))
        *(int64_t *)k->out = t.i;
}

/* A word is read from the source, so that it may also be a name of the model. */
static void read_word(Elab *e, const Node *n, const Key *k)
{
    const char *word = n->kind == N_NONE ? "none" : n->kind == N_NAME ? n->text : NULL;
    size_t nword = 0;
    while (k->words[nword]) {
        if (word && strcmp(word, k->words[nword]) == 0) {
            *(int *)k->out = (int)nword;
            return;
        }
        nword++;
    }
    Text list = text_new(e->arena);
    for (size_t i = 0; i < nword; i++)
        text_add(&list, "%s%s", i ? ", " : "", k->words[i]);
    const char *known = word && strcmp(k->name, "backend") == 0 ? elsewhere_backend(word) : NULL;
    fail(e, n->at, "%s must be one of %s, but this is '%s'%s", k->name, list.s, sources_text(e->ds->sources, n->at),
         known ? arena_printf(e->arena, "; did you mean '%s'?", known) : word ? did_you_mean(e, word, k->words, nword) : "");
}

static void read_value(Elab *e, Scope *s, const Node *n, const Key *k)
{
    DType dtype;
    bool flag;
    switch (k->type) {
    case KEY_REAL:     read_number(e, s, n, k); break;
    case KEY_WHOLE:    read_whole(e, s, n, k); break;
    case KEY_WORD:     read_word(e, n, k); break;
    case KEY_QUANTITY: eval_quantity(e, s, n, k->name, k->unit, k->lo, k->out); break;
    case KEY_DTYPE:
        if (eval_dtype(e, s, n, k->name, &dtype))
            *(int *)k->out = (int)dtype;
        break;
    case KEY_BOOL:
        if (eval_bool(e, s, n, k->name, &flag))
            *(int *)k->out = flag;
        break;
    case KEY_OTHER:
        break;
    }
}

void settings_pair(Elab *e, Scope *s, const Node *pair, const char *what, Key *key, size_t nkey)
{
    const char *name = key_text(e, pair->kid[0]), **pool = NEWN(e->arena, const char *, nkey + 1);
    for (size_t i = 0; i < nkey; i++) {
        pool[i] = key[i].name;
        if (strcmp(key[i].name, name) != 0)
            continue;
        if (key[i].at) {
            diag_note(e->ds, fail(e, pair->at, "'%s' is set twice", name), key[i].at->at, "it is set here");
            return;
        }
        key[i].at = pair;
        read_value(e, s, pair->kid[1], &key[i]);
        return;
    }
    Diag *d = fail(e, pair->kid[0]->at, "%s has no setting '%s'%s", what, name, did_you_mean(e, name, pool, nkey));
    Text list = text_new(e->arena);
    for (size_t i = 0; i < nkey; i++)
        text_add(&list, "%s%s", i ? ", " : "", key[i].name);
    diag_note(e->ds, d, NOWHERE, "its settings are %s", list.s);
}

void settings_read(Elab *e, Scope *s, const Node *settings, const char *what, Key *key, size_t nkey)
{
    for (uint32_t i = 0; i < settings->nkid && !e->stopped; i++)
        settings_pair(e, s, settings->kid[i], what, key, nkey);
}

/* ---- precision ---- */

void model_precision(Elab *e, Scope *s, const Node *n)
{
    if (span_known(e->precision_at)) {
        diag_note(e->ds, fail(e, n->at, "a model has one 'precision'"), e->precision_at, "the first is here");
        return;
    }
    if (e->g->nop || e->g->nweight) {
        fail(e, n->at, "'precision' must come before the first weight and the first op");
        return;
    }
    e->precision_at = n->at;
    int compute = DT_f32, weights = DTYPES, grads = DTYPES, master = DTYPES, reduce = DTYPES;
    Key key[] = {
        {"compute", KEY_DTYPE, &compute, 0, 0, NULL, UNIT_NUMBER, NULL, false}, {"weights", KEY_DTYPE, &weights, 0, 0, NULL, UNIT_NUMBER, NULL, false},
        {"grads", KEY_DTYPE, &grads, 0, 0, NULL, UNIT_NUMBER, NULL, false},     {"master", KEY_DTYPE, &master, 0, 0, NULL, UNIT_NUMBER, NULL, false},
        {"reduce", KEY_DTYPE, &reduce, 0, 0, NULL, UNIT_NUMBER, NULL, false},
    };
    settings_read(e, s, n->kid[0], "precision", key, sizeof key / sizeof *key);
    for (size_t i = 0; i < sizeof key / sizeof *key; i++) {
        int *t = key[i].out;
        if (*t == DTYPES || dtype_is_float((DType)*t))
            continue;
        const Node *value = key[i].at->kid[1];
        const Symbol *sym = value->kind == N_NAME ? scope_find(s, value->text) : NULL;
        Diag *d = fail(e, value->at, "%s must be a floating-point dtype, but this is %s", key[i].name, dtype_name((DType)*t));
        note_overrides(e, d, sym ? sym->term.from : 0);
        *t = DT_f32;
    }
    int sums = compute == DT_f64 ? DT_f64 : DT_f32;
    e->g->precision = (Precision){
        .compute = (DType)compute, .weights = (DType)(weights == DTYPES ? compute : weights), .grads = (DType)(grads == DTYPES ? sums : grads),
        .master = (DType)(master == DTYPES ? sums : master), .reduce = (DType)(reduce == DTYPES ? sums : reduce),
    };
}

/* ---- optimizer: the defaults are PyTorch's ---- */

enum { ADAMW = 1, SGD = 2 };

typedef struct OptimizerRow { const char *name; OptimizerKind kind; int bit; Optimizer start; } OptimizerRow;

static const OptimizerRow optimizers[] = {
    {"adamw", OPTIMIZER_ADAMW, ADAMW, {.kind = OPTIMIZER_ADAMW, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 1e-2}},
    {"sgd", OPTIMIZER_SGD, SGD, {.kind = OPTIMIZER_SGD, .lr = 1e-3}},
};

static const OptimizerRow *optimizer_find(Elab *e, const Node *name)
{
    const char *pool[sizeof optimizers / sizeof *optimizers];
    size_t n = sizeof pool / sizeof *pool;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(optimizers[i].name, name->text) == 0)
            return &optimizers[i];
        pool[i] = optimizers[i].name;
    }
    Diag *d = fail(e, name->at, "unknown optimizer '%s'%s", name->text, did_you_mean(e, name->text, pool, n));
    diag_note(e->ds, d, NOWHERE, "there are adamw and sgd");
    return NULL;
}

/* What lr, min_lr and decay say together (see learning_rate() in runtime/). */
static void check_decay(Elab *e, const Node *n, const Optimizer *o, const Key *key, size_t nkey)
{
    const Node *min_lr = NULL;
    for (size_t i = 0; i < nkey; i++)
        if (strcmp(key[i].name, "min_lr") == 0)
            min_lr = key[i].at;
    if (o->decay == DECAY_NONE && min_lr) {
        Diag *d = fail(e, min_lr->at, "min_lr has no effect: the rate does not decay");
        diag_help(e->ds, d, "add 'decay = cosine' or 'decay = linear', or leave min_lr out");
    } else if (o->min_lr > o->lr) {
        fail(e, n->at, "min_lr (%g) is larger than lr (%g)", o->min_lr, o->lr);
    }
}

void model_optimizer(Elab *e, Scope *s, const Node *n)
{
    static const char *const decays[] = {"none", "cosine", "linear", NULL};     /* as DecayKind */
    if (span_known(e->optimizer_at)) {
        diag_note(e->ds, fail(e, n->at, "a model has one optimizer"), e->optimizer_at, "the first is here");
        return;
    }
    e->optimizer_at = n->at;
    const OptimizerRow *row = optimizer_find(e, n->kid[0]);
    if (!row)
        return;
    Optimizer o = row->start;
    int decay = DECAY_NONE;
    const struct { Key key; int bits; } all[] = {
        {{"lr", KEY_REAL, &o.lr, 0, INFINITY, NULL, UNIT_NUMBER, NULL, false}, ADAMW | SGD},
        {{"beta1", KEY_REAL, &o.beta1, 0, 1, NULL, UNIT_NUMBER, NULL, true}, ADAMW},
        {{"beta2", KEY_REAL, &o.beta2, 0, 1, NULL, UNIT_NUMBER, NULL, true}, ADAMW},
        {{"eps", KEY_REAL, &o.eps, 1e-30, INFINITY, NULL, UNIT_NUMBER, NULL, false}, ADAMW},
        {{"momentum", KEY_REAL, &o.momentum, 0, 1, NULL, UNIT_NUMBER, NULL, true}, SGD},
        {{"weight_decay", KEY_REAL, &o.weight_decay, 0, INFINITY, NULL, UNIT_NUMBER, NULL, false}, ADAMW | SGD},
        {{"clip", KEY_REAL, &o.clip, 0, INFINITY, NULL, UNIT_NUMBER, NULL, false}, ADAMW | SGD},
        {{"warmup", KEY_WHOLE, &o.warmup, 0, INFINITY, NULL, UNIT_NUMBER, NULL, false}, ADAMW | SGD},
        {{"decay", KEY_WORD, &decay, 0, 0, decays, UNIT_NUMBER, NULL, false}, ADAMW | SGD},
        {{"min_lr", KEY_REAL, &o.min_lr, 0, INFINITY, NULL, UNIT_NUMBER, NULL, false}, ADAMW | SGD},
        {{"steps", KEY_WHOLE, &o.steps, 0, INFINITY, NULL, UNIT_NUMBER, NULL, false}, ADAMW | SGD},
    };
    Key key[sizeof all / sizeof *all];
    size_t nkey = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].bits & row->bit)
            key[nkey++] = all[i].key;
    settings_read(e, s, n->kid[1], arena_printf(e->arena, "optimizer %s", row->name), key, nkey);
    o.decay = (DecayKind)decay;
    check_decay(e, n, &o, key, nkey);
    e->g->optimizer = o;
}

/* ---- defaults ---- */

/* The formal of `op.argument`; -1 with a message. */
static int default_formal(Elab *e, const Node *key, OpKind *kind)
{
    const char *pool[OP_KINDS];
    size_t n = 0;
    if (key->nkid != 2) {
        fail(e, key->at, "a default is 'op.argument', but this is '%s'", key_text(e, key));
        return -1;
    }
    *kind = op_find(key->kid[0]->text);
    if (*kind == OP_KINDS || op_info[*kind].use == OP_INTERNAL) {
        for (int k = 0; k < OP_KINDS; k++)
            if (op_info[k].use != OP_INTERNAL)
                pool[n++] = op_info[k].name;
        fail(e, key->kid[0]->at, "no op is called '%s'%s", key->kid[0]->text, did_you_mean(e, key->kid[0]->text, pool, n));
        return -1;
    }
    const OpSig *sig = op_sig(*kind);
    Text list = text_new(e->arena);
    for (int f = 0; f < sig->nformal; f++) {
        if (sig->formal[f].kind != SIG_SCALAR || sig->formal[f].tensor)
            continue;
        if (strcmp(sig->formal[f].name, key->kid[1]->text) == 0)
            return f;
        pool[n++] = sig->formal[f].name;
        text_add(&list, "%s%s", list.n ? ", " : "", sig->formal[f].name);
    }
    Diag *d = fail(e, key->kid[1]->at, "%s has no argument '%s' to set%s", key->kid[0]->text, key->kid[1]->text,
                   did_you_mean(e, key->kid[1]->text, pool, n));
    diag_note(e->ds, d, NOWHERE, n ? "%s can have defaults for %s" : "%s has no defaults%s", key->kid[0]->text, list.s);
    return -1;
}

static void read_default(Elab *e, Scope *s, const Node *pair)
{
    OpKind kind;
    int formal = default_formal(e, pair->kid[0], &kind);
    if (formal < 0)
        return;
    for (uint32_t i = 0; i < e->nfallback; i++)
        if (e->fallback[i].op == kind && e->fallback[i].formal == formal) {
            diag_note(e->ds, fail(e, pair->at, "'%s' is set twice", key_text(e, pair->kid[0])), e->fallback[i].at->at, "it is set here");
            return;
        }
    Default d = {.op = kind, .formal = formal, .term = eval(e, s, pair->kid[1]), .at = pair->kid[1]};
    if (d.term.kind != TERM_POISON && op_check_arg(e, kind, formal, &d.term, pair->kid[1]->at))
        PUSH(e->arena, e->fallback, e->nfallback, d);
}

void model_defaults(Elab *e, Scope *s, const Node *n)
{
    if (e->g->nop) {
        fail(e, n->at, "'defaults' must come before the first op: it holds for the whole model");
        return;
    }
    for (uint32_t i = 0; i < n->kid[0]->nkid && !e->stopped; i++)
        read_default(e, s, n->kid[0]->kid[i]);
}
