#ifndef KERNELS_KERNEL_H
#define KERNELS_KERNEL_H
/* Kernels: one instruction of a Program, executed on memory of this process.
 *
 * A kernel gets its instruction, the addresses of its tensors, and a team of
 * threads.  Tensors are row-major and contiguous in the order of their axes.
 * Kernels never allocate, never print and never fail: what can be wrong with a
 * program or with data is checked before they run (they assert it).
 *
 * Every op has a plain C form in kernels/ref/, for operands of any types; fast forms in
 * kernels/cpu/ are built once per instruction set and preferred where they exist.
 * All sums run in an order that depends on shapes and team size only, so the same
 * program, binary and CPU kind give the same bits. */
#include "ir/place.h"
#include "ir/program.h"
#include "kernels/philox.h"
#include "kernels/reals.h"
#include "kernels/team.h"

/* Numbers of the current step that every kernel may read. */
typedef struct KStep {
    uint64_t seed;
    int64_t  step;                    /* optimizer steps done before this one: 0, 1, ... */
    int64_t  micro;                   /* micro-batch of this call */
    int64_t  samples;                 /* samples this accumulation window covers (the global batch; all of them when evaluating) */
    bool     first;                   /* first micro-batch of the window: ACC_AFTER_FIRST overwrites */
    double   lr;                      /* already scheduled */
    double   correction1, correction2;               /* 1 - beta^t of AdamW */
    const Optimizer *optimizer;
} KStep;

typedef struct KCall {
    const Instr  *in;
    const Tensor *argt[MAX_ARGS], *outt[MAX_OUTS];   /* shapes; NULL where absent */
    void         *arg[MAX_ARGS], *out[MAX_OUTS];     /* NULL where absent or unused */
    void         *work;               /* instr_workspace() bytes */
    const KStep  *step;
    Team         *team;
} KCall;

/* Whether result `out` of this call is added to instead of overwritten. */
static inline bool kcall_adds(const KCall *c, int out)
{
    return (c->in->acc_out >> out & 1) && (c->in->acc == ACC_YES || (c->in->acc == ACC_AFTER_FIRST && !c->step->first));
}

typedef void (*Kernel)(const KCall *);

/* Label of a row the loader added to fill a batch: never counted, no loss, no gradient. */
#define LABEL_PAD INT32_MIN

/* The instruction sets fast kernels are built for; ISA_REF: the plain forms only. */
typedef enum Isa { ISA_REF, ISA_V2, ISA_V3, ISA_V4 } Isa;
Isa         isa_best(void);           /* of this CPU */
const char *isa_name(Isa);

/* The fastest form the ISA allows for an instruction, by the types of its operands; NULL
 * when the CPU backend cannot run it (say so by name). */
Kernel kernel_of(const Instr *, const Program *, Isa);
/* The fast form for operands that are all f32, or all f64, or bf16 and perhaps f32 among
 * them (scalars may be f64); without one, the plain form.  NULL: no form computes in this type. */
Kernel kernel_find(OpKind, DType, Isa);
/* The plain form; NULL: the op is not executed by a kernel. */
Kernel kernel_ref(OpKind);

/* ---- matrices: one gemm() over providers (oneDNN for f32 and bf16, BLAS for f64) ---- */

/* C[m,n] = alpha A B + beta C, row-major; ta/tb: the operand is stored transposed.
 * Without a team (NULL) the calling thread computes all of it: a worker's own matrix. */
typedef struct Gemm {
    bool    ta, tb;
    int64_t m, n, k, lda, ldb, ldc;
    double  alpha, beta;
} Gemm;
void        gemm_f32(Team *, const Gemm *, const float *a, const float *b, float *c);
void        gemm_f64(Team *, const Gemm *, const double *a, const double *b, double *c);
/* Sums in f32, C in f32 or bf16; alpha is 1. */
void        gemm_bf16(Team *, const Gemm *, const Bf16 *a, const Bf16 *b, void *c, DType type);
/* Providers and versions, for --version: "oneDNN 2.6.3 (f32, bf16), OpenBLAS 0.3.21 (f64)". */
const char *gemm_providers(void);

/* Fill `n` elements starting at global element `first` of a weight. */
void init_fill(const Init *, const char *path, uint64_t seed, int64_t first, int64_t n, Reals out);

#endif
