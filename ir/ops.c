/* The op table as data: rows, signatures read once, and look-ups by name. */
#include "ir/ops.h"

#include <assert.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "ir/sig.h"

#define USER      OP_USER
#define SYNTAX    OP_SYNTAX
#define INTERNAL  OP_INTERNAL
#define INPLACE   OPF_INPLACE
#define VIEW      OPF_VIEW
#define ACCUM     OPF_ACCUM
#define CHEAP     OPF_CHEAP
#define MATMUL    OPF_MATMUL
#define RANDOM    OPF_RANDOM
#define NOGRAD    OPF_NOGRAD
#define COMM      OPF_COMM

const OpInfo op_info[OP_KINDS] = {
#define OP(name, use, signature, saves, flops, workspace, linear, flags) {#name, signature, saves, linear, use, flags},
#include "ir/ops.def"
#undef OP
};

/* Scalars that take a tensor.  The language has no optional tensors, so there
 * they stand among the scalars with the default `none`. */
static const struct { OpKind op; const char *pattern; } tensor_scalars[] = {
    {OP_rope, "at[.., s]"},
    {OP_attention, "mask[.., t!]"},
    {OP_attention, "bias[h, s, t!]"},
    {OP_attention, "doc[.., t!]"},
};

/* Arguments that graph_complete() fills in. */
static const struct { OpKind op; const char *pattern; } extra_args[] = {
    {OP_cross_entropy, "count[]?"},
    {OP_combine, "token[.., expert, slot!]?"},
    {OP_load_balance, "prob[.., s!, expert!]?"},
};

enum { POOL_BYTES = 32 * 1024 };

/* Filled once, then only read. */
static struct {
    pthread_once_t once;
    OpSig          sig[OP_KINDS];
    char           names[POOL_BYTES];
} table = {.once = PTHREAD_ONCE_INIT};

bool op_computes(OpKind k)
{
    return op_info[k].flags & OPF_MATMUL || k == OP_attention_grad;     /* whose FLOPs no MFU counts as they are */
}

OpKind op_find(const char *name)
{
    int k = 0;
    while (k < OP_KINDS && strcmp(op_info[k].name, name) != 0)
        k++;
    return (OpKind)k;
}

static SigFormal *formal_of_pattern(OpSig *sig, const char *pattern)
{
    size_t n = strcspn(pattern, "[");
    for (int i = 0; i < sig->nformal; i++)
        if (strlen(sig->formal[i].name) == n && strncmp(sig->formal[i].name, pattern, n) == 0)
            return &sig->formal[i];
    return NULL;
}

static void add_tensor_scalars(SigPool *pool)
{
    for (size_t i = 0; i < sizeof tensor_scalars / sizeof *tensor_scalars; i++) {
        SigFormal *f = formal_of_pattern(&table.sig[tensor_scalars[i].op], tensor_scalars[i].pattern);
        assert(f && f->kind == SIG_SCALAR);
        const char *error = sig_read_tensor(tensor_scalars[i].pattern, pool, f);
        assert(!error);
        (void)error;
        f->tensor = true;
    }
}

static void add_extra_args(SigPool *pool)
{
    for (size_t i = 0; i < sizeof extra_args / sizeof *extra_args; i++) {
        OpSig *sig = &table.sig[extra_args[i].op];
        assert(sig->nformal < SIG_FORMALS);
        SigFormal *f = &sig->formal[sig->nformal++];
        f->kind = SIG_EXTRA;
        const char *error = sig_read_tensor(extra_args[i].pattern, pool, f);
        assert(!error);
        (void)error;
    }
}

static void read_table(void)
{
    SigPool pool = {table.names, 0, POOL_BYTES};
    for (int k = 0; k < OP_KINDS; k++) {
        const char *error = sig_read(op_info[k].signature, op_info[k].saves, &pool, &table.sig[k]);
        assert(!error);
        (void)error;
    }
    add_tensor_scalars(&pool);
    add_extra_args(&pool);
}

const OpSig *op_sig(OpKind k)
{
    assert(k < OP_KINDS);
    pthread_once(&table.once, read_table);
    return &table.sig[k];
}

/* In which group of arguments a formal stands, or -1: it is no argument. */
static int argument_group(const SigFormal *f)
{
    if (f->kind == SIG_TENSOR)
        return 0;
    if (f->kind == SIG_SCALAR && f->tensor)
        return 1;
    return f->kind == SIG_OWNED ? 2 : f->kind == SIG_EXTRA ? 3 : -1;
}

int op_narg(OpKind k)
{
    const OpSig *sig = op_sig(k);
    int n = 0;
    for (int i = 0; i < sig->nformal; i++)
        n += argument_group(&sig->formal[i]) >= 0;
    return n;
}

const SigFormal *op_arg(OpKind k, int i)
{
    const OpSig *sig = op_sig(k);
    for (int group = 0; group < 4; group++)
        for (int f = 0; f < sig->nformal; f++)
            if (argument_group(&sig->formal[f]) == group && i-- == 0)
                return &sig->formal[f];
    return NULL;
}

int op_arg_index(OpKind k, const char *name)
{
    for (int i = 0; i < op_narg(k); i++)
        if (strcmp(op_arg(k, i)->name, name) == 0)
            return i;
    return -1;
}
