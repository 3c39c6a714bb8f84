#ifndef KERNELS_REF_REF_H
#define KERNELS_REF_REF_H
/* The plain forms: what each op means, in loops to be read.  One thread, and
 * arithmetic in double whatever the element type; the fast forms are measured
 * against them, and they against finite differences. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/operand.h"
#include "kernels/ref/functions.h"

#define REF(op)                              \
    void ref_##op##_f32(const KCall *c);     \
    void ref_##op##_f64(const KCall *c);
#include "kernels/ref/ref.def"
#undef REF

/* Head of the plain form of an op, inside a template body (each_real.h). */
#define REF_KERNEL(op) void NAME(ref_##op)(const KCall *c)

/* An operand as an array of REAL; NULL when absent. */
#define ARG(i) ((const REAL *)ref_operand(c->argt[i], c->arg[i], DT_REAL))
#define OUT(i) ((REAL *)ref_operand(c->outt[i], c->out[i], DT_REAL))

static inline void *ref_operand(const Tensor *t, const void *p, DType dtype)
{
    assert(!p || t->dtype == dtype);
    (void)t;
    (void)dtype;
    return (void *)(uintptr_t)p;
}

#endif
