#ifndef IR_OPS_H
#define IR_OPS_H
/* The op table as C: enum and rows made from ops.def, and the signatures read. */
#include <stdbool.h>
#include <stdint.h>

typedef enum OpKind {
#define OP(name, use, signature, saves, flops, workspace, linear, flags) OP_##name,
#include "ir/ops.def"
#undef OP
    OP_KINDS
} OpKind;

typedef enum OpUse { OP_USER, OP_SYNTAX, OP_INTERNAL } OpUse;

enum OpFlag {
    OPF_INPLACE = 1, OPF_VIEW = 2, OPF_ACCUM = 4, OPF_CHEAP = 8, OPF_MATMUL = 16, OPF_RANDOM = 32, OPF_NOGRAD = 64,
    OPF_COMM = 128
};

/* One axis pattern of a tensor in a signature: '..', or a letter of role.  An axis
 * of one letter has that role; the longer names have the letters of SIG_ROLE_LIST,
 * and '..' has '.'. */
typedef struct SigAxis { const char *name; char role; bool dots, whole; } SigAxis;

#define SIG_ROLE_LIST(X)                                                              \
    X(out, 'n')                        /* what a linear map or convolution makes */   \
    X(to, 'm')                         /* the joined axis of merge and concat */      \
    X(row, 'i') X(col, 'j')            /* of a convolution's result */                \
    X(kh, 'a') X(kw, 'a')              /* area of its window */                       \
    X(expert, 'x') X(slot, 'p')

/* EXTRA: a tensor that a pass over the Graph supplies and the language does not
 * know (cross_entropy's count of valid labels); not in the signature's text. */
typedef enum SigFormalKind { SIG_TENSOR, SIG_DIM, SIG_SCALAR, SIG_OWNED, SIG_EXTRA } SigFormalKind;

enum { SIG_AXES = 6, SIG_FORMALS = 14 };

/* A tensor, dim or scalar of a signature.  A scalar's default is kept as text.  A
 * few scalars of the language take a tensor (attention's mask, bias and doc, rope's
 * at): `tensor` is set and `axis` holds the pattern; in a Graph the tensor is an
 * argument, and the attribute of that name stays `none`. */
typedef struct SigFormal {
    SigFormalKind kind;
    const char   *name;
    const char   *fallback;           /* default literal; NULL: required */
    bool          optional;           /* tensors marked '?' */
    bool          tensor;             /* a scalar that takes a tensor */
    uint8_t       naxis;
    SigAxis       axis[SIG_AXES];
} SigFormal;

/* A signature, read.  `formal` lists inputs in the order written, then owned
 * weights, then the extra tensors; `result` holds the `nresult` results of the language, then the `nsaved`
 * ones saved for backward. */
typedef struct OpSig {
    uint8_t   nformal, nresult, nsaved;
    SigFormal formal[SIG_FORMALS];
    SigFormal result[6];
} OpSig;

typedef struct OpInfo {
    const char *name, *signature, *saves, *linear;
    OpUse       use;
    unsigned    flags;                /* OPF_ bits */
} OpInfo;

extern const OpInfo op_info[OP_KINDS];

/* Whether large ones are bound by the peak of arithmetic, not by memory. */
bool op_computes(OpKind);

/* The kind called `name`, or OP_KINDS. */
OpKind op_find(const char *name);
/* The signature of a kind; read once per process, from the table (our bug if it
 * does not parse: asserted, and tested for every row). */
const OpSig *op_sig(OpKind);

/* An op's arguments in a Graph: the tensors, then the scalars that take a tensor,
 * then the owned weights, then the extra tensors. */
int              op_narg(OpKind);
const SigFormal *op_arg(OpKind, int i);
/* The number of the argument called `name` in the signature, or -1. */
int              op_arg_index(OpKind, const char *name);

#endif
