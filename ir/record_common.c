/* The records that dumps of Graphs and Programs share: precision, optimizer,
 * starts of weights, attributes and factors. */
#include <stdlib.h>
#include <string.h>

#include "ir/record.h"

const char *dtype_name_at(unsigned i)
{
    return dtype_name((DType)i);
}

const char *op_name_at(unsigned i)
{
    return op_info[i].name;
}

const char *value_role_name(unsigned i)
{
    static const char *const name[VALUE_ROLES] = {"input", "weight", "activation", "gradient", "weight_gradient",
                                                  "step"};
    return name[i];
}

/* ---- precision ---- */

void record_put_precision(FILE *f, const Precision *p)
{
    fprintf(f, "precision compute=%s weights=%s grads=%s master=%s reduce=%s\n", dtype_name(p->compute),
            dtype_name(p->weights),
            dtype_name(p->grads), dtype_name(p->master), dtype_name(p->reduce));
}

static DType get_dtype(Records *r, const char *key)
{
    return (DType)record_word(r, key, DTYPES, dtype_name_at);
}

void record_get_precision(Records *r, Precision *p)
{
    p->compute = get_dtype(r, "compute");
    p->weights = get_dtype(r, "weights");
    p->grads = get_dtype(r, "grads");
    p->master = get_dtype(r, "master");
    p->reduce = get_dtype(r, "reduce");
}

/* ---- optimizer ---- */

enum { OPTIMIZERS = OPTIMIZER_ADAMW + 1, DECAYS = DECAY_LINEAR + 1 };

static const char *optimizer_name(unsigned i)
{
    static const char *const name[OPTIMIZERS] = {"none", "sgd", "adamw"};
    return name[i];
}

static const char *decay_name(unsigned i)
{
    static const char *const name[DECAYS] = {"none", "cosine", "linear"};
    return name[i];
}

void record_put_optimizer(FILE *f, const Optimizer *o)
{
    fprintf(f, "optimizer kind=%s", optimizer_name(o->kind));
    record_put_real(f, "lr", o->lr);
    record_put_real(f, "beta1", o->beta1);
    record_put_real(f, "beta2", o->beta2);
    record_put_real(f, "eps", o->eps);
    record_put_real(f, "weight_decay", o->weight_decay);
    record_put_real(f, "momentum", o->momentum);
    record_put_real(f, "clip", o->clip);
    record_put_real(f, "min_lr", o->min_lr);
    fprintf(f, " warmup=%lld steps=%lld decay=%s\n", (long long)o->warmup, (long long)o->steps, decay_name(o->decay));
}

void record_get_optimizer(Records *r, Optimizer *o)
{
    o->kind = (OptimizerKind)record_word(r, "kind", OPTIMIZERS, optimizer_name);
    o->lr = record_real(r, "lr");
    o->beta1 = record_real(r, "beta1");
    o->beta2 = record_real(r, "beta2");
    o->eps = record_real(r, "eps");
    o->weight_decay = record_real(r, "weight_decay");
    o->momentum = record_real(r, "momentum");
    o->clip = record_real(r, "clip");
    o->min_lr = record_real(r, "min_lr");
    o->warmup = record_int(r, "warmup", 0, INT64_MAX);
    o->steps = record_int(r, "steps", 0, INT64_MAX);
    o->decay = (DecayKind)record_word(r, "decay", DECAYS, decay_name);
}

/* ---- starts of weights ---- */

static const char *init_name(unsigned i)
{
    static const char *const name[INITS] = {
#define X(name, nparam) #name,
        INIT_LIST(X)
#undef X
    };
    return name[i];
}

void record_put_init(FILE *f, const Init *i)
{
    fprintf(f, " init=%s", init_name(i->kind));
    record_put_real(f, "a", i->a);
    record_put_real(f, "b", i->b);
    fprintf(f, " fan_in=%lld fan_out=%lld", (long long)i->fan_in, (long long)i->fan_out);
}

void record_get_init(Records *r, Init *i)
{
    i->kind = (InitKind)record_word(r, "init", INITS, init_name);
    i->a = record_real(r, "a");
    i->b = record_real(r, "b");
    i->fan_in = record_int(r, "fan_in", 0, INT64_MAX);
    i->fan_out = record_int(r, "fan_out", 0, INT64_MAX);
}

/* ---- attributes: none, auto, true, f32, 3 or 0.5, in the signature's order ---- */

static int attr_count(OpKind kind)
{
    const OpSig *sig = op_sig(kind);
    int n = 0;
    for (int i = 0; i < sig->nformal; i++)
        n += sig->formal[i].kind == SIG_SCALAR;
    return n;
}

static void put_attr(FILE *f, const Attr *a)
{
    switch (a->kind) {
    case ATTR_NONE: fputs("none", f); break;
    case ATTR_AUTO: fputs("auto", f); break;
    case ATTR_INT: fprintf(f, "%lld", (long long)a->i); break;
    case ATTR_REAL: put_real(f, a->f); break;
    case ATTR_BOOL: fputs(a->i ? "true" : "false", f); break;
    case ATTR_DTYPE: fputs(dtype_name((DType)a->i), f); break;
    }
}

void record_put_attrs(FILE *f, OpKind kind, const Attr *attr)
{
    fputs(" attrs=[", f);
    for (int i = 0; i < attr_count(kind); i++) {
        if (i)
            fputc(',', f);
        put_attr(f, &attr[i]);
    }
    fputc(']', f);
}

static Attr get_attr(Records *r, const char *text)
{
    Attr a;
    if (attr_word(text, &a))
        return a;
    if (!strpbrk(text, ".en"))
        return ATTR_I(record_item_int(r, "attrs", text, INT64_MIN, INT64_MAX));
    char *end;
    double v = strtod(text, &end);
    if (*end || end == text)
        record_fail(r, "%s: '%.30s' is no attribute", r->tag, text);
    return ATTR_F(v);
}

void record_get_attrs(Records *r, OpKind kind, Attr *attr)
{
    char *item[MAX_ATTRS];
    int n = record_list(r, "attrs", item, MAX_ATTRS);
    if (!r->failed && n != attr_count(kind))
        record_fail(r, "%s: %s has %d attributes, found %d", r->tag, op_info[kind].name, attr_count(kind), n);
    for (int i = 0; i < n; i++)
        attr[i] = get_attr(r, item[i]);
}

/* ---- factors of axes: one list per tensor ---- */

void record_put_factors(FILE *f, const char *key, int n, const uint8_t (*factor)[MAX_RANK])
{
    fprintf(f, " %s=[", key);
    for (int i = 0; i < n; i++) {
        fputs(i ? ",[" : "[", f);
        for (int x = 0; x < MAX_RANK && factor[i][x] != NO_FACTOR; x++)
            fprintf(f, x ? ",%d" : "%d", factor[i][x]);
        fputc(']', f);
    }
    fputc(']', f);
}

void record_get_factors(Records *r, const char *key, int n, int nfactor, uint8_t (*factor)[MAX_RANK])
{
    char *list[MAX_ARGS], *item[MAX_RANK];
    int found = record_list(r, key, list, MAX_ARGS);
    if (!r->failed && found != n)
        record_fail(r, "%s: expected %d lists in '%s', found %d", r->tag, n, key, found);
    for (int i = 0; i < found && !r->failed; i++) {
        int rank = record_items(r, key, list[i], item, MAX_RANK);
        for (int x = 0; x < rank && !r->failed; x++)
            factor[i][x] = (uint8_t)record_item_int(r, key, item[x], 0, nfactor - 1);
    }
}
