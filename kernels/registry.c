/* The kernels there are, and which one runs. */
#include "kernels/cpu/cpu.h"
#include "kernels/forms.h"
#include "kernels/kernel.h"
#include "kernels/ref/ref.h"

static const Kernel plain[OP_KINDS] = {
#define REF(op) [OP_##op] = ref_##op,
#include "kernels/ref/ref.def"
#undef REF
};

typedef struct Fast { OpKind op; DType type; Kernel kernel[3]; } Fast;   /* v2, v3, v4 */

static const Fast fast[] = {
#define CPU(op, real) {OP_##op, DT_##real, {op##_##real##_v2, op##_##real##_v3, op##_##real##_v4}},
#include "kernels/cpu/cpu.def"
#undef CPU
};

Kernel kernel_ref(OpKind op)
{
    return plain[op];
}

/* A form that is there. */
static Kernel kernel_in(OpKind op, DType type, Isa isa, Form form)
{
    for (size_t i = 0; form == FORM_FAST && i < sizeof fast / sizeof *fast; i++)
        if (fast[i].op == op && fast[i].type == type)
            return fast[i].kernel[isa - ISA_V2];
    return form == FORM_PLAIN ? kernel_ref(op) : NULL;
}

Kernel kernel_find(OpKind op, DType type, Isa isa)
{
    return kernel_in(op, type, isa, form_find(op, type, isa));
}

Kernel kernel_of(const Instr *in, const Program *p, Isa isa)
{
    DType type;
    Form form = form_of(in, p, isa, &type);
    return kernel_in(in->op, type, isa, form);
}
