#ifndef KERNELS_CPU_ROWS_H
#define KERNELS_CPU_ROWS_H
/* Operands as numbers of f32 or bf16, or as arrays of float, and how sums are cut. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/lanes.h"
#include "kernels/ref/ref.h"

#define ARG_F32(i) ((const float *)floats_of(c->argt[i], c->arg[i]))
#define OUT_F32(i) ((float *)floats_of(c->outt[i], c->out[i]))

static inline void *floats_of(const Tensor *t, void *p)
{
    assert(!p || t->dtype == DT_f32);
    (void)t;
    return p;
}

/* A sum over many items is cut into this many pieces, summed one after the other
 * in double and then joined in order, whatever the size of the team. */
enum { SUM_PIECES = 64 };

#endif
