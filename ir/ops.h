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
    OPF_INPLACE = 1, OPF_VIEW = 2, OPF_ACCUM = 4, OPF_CHEAP = 8, OPF_MATMUL = 16, OPF_RANDOM = 32, OPF_NOGRAD = 64
};

/* One axis pattern of a tensor in a signature: '..', or a letter of role. */
typedef struct SigAxis { const char *name; char role; bool dots, whole; } SigAxis;

typedef enum SigFormalKind { SIG_TENSOR, SIG_DIM, SIG_SCALAR, SIG_OWNED } SigFormalKind;

enum { SIG_AXES = 6, SIG_FORMALS = 14 };

/* A tensor, dim or scalar of a signature.  A scalar's default is kept as text. */
typedef struct SigFormal {
    SigFormalKind kind;
    const char   *name;
    const char   *fallback;           /* default literal; NULL: required */
    bool          optional;           /* tensors marked '?' */
    uint8_t       naxis;
    SigAxis       axis[SIG_AXES];
} SigFormal;

/* A signature, read.  `formal` lists inputs in the order written, owned weights
 * last; results first those of the language, then those saved for backward. */
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

/* The kind called `name`, or OP_KINDS. */
OpKind op_find(const char *name);
/* The signature of a kind; read once per process, from the table (our bug if it
 * does not parse: asserted, and tested for every row). */
const OpSig *op_sig(OpKind);

#endif
