#ifndef KERNELS_REF_REF_H
#define KERNELS_REF_REF_H
/* The plain forms: what each op means, in loops to be read, for operands of any types.
 * One thread, and arithmetic in double whatever the types; the fast forms are measured
 * against them, and they against finite differences. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/operand.h"
#include "kernels/ref/functions.h"

#define REF(op) void ref_##op(const KCall *c);
#include "kernels/ref/ref.def"
#undef REF

/* Head of the plain form of an op. */
#define REF_KERNEL(op) void ref_##op(const KCall *c)

/* An operand as numbers. */
#define ARG(i) ref_operand(c->argt[i], c->arg[i])
#define OUT(i) ref_operand(c->outt[i], c->out[i])

static inline Reals ref_operand(const Tensor *t, void *p)
{
    assert(!p || dtype_is_float(t->dtype));
    return (Reals){p ? t->dtype : DT_f32, p};
}

/* A number, or it added to what is there. */
static inline void give(Reals x, int64_t i, double value, bool adds)
{
    put(x, i, adds ? get(x, i) + value : value);
}

/* Zeros of any type. */
static inline void clear(const Tensor *t, void *p)
{
    if (p)
        memset(p, 0, (size_t)tensor_bytes(t));
}

#endif
