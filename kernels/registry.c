/* The kernels there are, and which one runs. */
#include "kernels/cpu/cpu.h"
#include "kernels/kernel.h"
#include "kernels/ref/ref.h"

static const Kernel plain[OP_KINDS][2] = {           /* f32, f64 */
#define REF(op) [OP_##op] = {ref_##op##_f32, ref_##op##_f64},
#include "kernels/ref/ref.def"
#undef REF
};

typedef struct Fast { OpKind op; DType compute; Kernel kernel[3]; } Fast;   /* v2, v3, v4 */

static const Fast fast[] = {
#define CPU(op, real) {OP_##op, DT_##real, {op##_##real##_v2, op##_##real##_v3, op##_##real##_v4}},
#include "kernels/cpu/cpu.def"
#undef CPU
};

Kernel kernel_ref(OpKind op, DType compute)
{
    if (compute != DT_f32 && compute != DT_f64)
        return NULL;
    return plain[op][compute == DT_f64];
}

Kernel kernel_find(OpKind op, DType compute, Isa isa)
{
    for (size_t i = 0; isa != ISA_REF && i < sizeof fast / sizeof *fast; i++)
        if (fast[i].op == op && fast[i].compute == compute)
            return fast[i].kernel[isa - ISA_V2];
    return kernel_ref(op, compute);
}
