/* The kernels there are, and which one runs. */
#include "kernels/cpu/cpu.h"
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

/* Plain forms read these, too, and no others. */
static bool computes_in(DType t)
{
    return t == DT_f64 || t == DT_f32 || t == DT_bf16;
}

Kernel kernel_find(OpKind op, DType type, Isa isa)
{
    if (!computes_in(type))
        return NULL;
    for (size_t i = 0; isa != ISA_REF && i < sizeof fast / sizeof *fast; i++)
        if (fast[i].op == op && fast[i].type == type)
            return fast[i].kernel[isa - ISA_V2];
    return kernel_ref(op);
}

/* ---- the type that an instruction computes in ---- */

typedef struct Types { bool f64, f32, bf16, other; } Types;

/* Counts, norms and their like are f64 beside any type. */
static void see(Types *s, const Tensor *t)
{
    if (!dtype_is_float(t->dtype) || (t->dtype == DT_f64 && t->rank == 0))
        return;
    s->f64 |= t->dtype == DT_f64;
    s->f32 |= t->dtype == DT_f32;
    s->bf16 |= t->dtype == DT_bf16;
    s->other |= !computes_in(t->dtype);
}

static Types types_of(const Instr *in, const Program *p)
{
    Types s = {0};
    for (int a = 0; a < in->narg; a++)
        if (has_tensor(in->arg[a]))
            see(&s, &p->tensor[in->arg[a].i]);
    for (int k = 0; k < in->nout; k++)
        if (has_tensor(in->out[k]))
            see(&s, &p->tensor[in->out[k].i]);
    return s;
}

Kernel kernel_of(const Instr *in, const Program *p, Isa isa)
{
    Types s = types_of(in, p);
    if (s.other)
        return NULL;
    if (s.f64 && (s.f32 || s.bf16))
        return kernel_ref(in->op);
    bool none = !s.f64 && !s.f32 && !s.bf16;
    DType type = none ? p->precision.compute : s.bf16 ? DT_bf16 : s.f64 ? DT_f64 : DT_f32;
    return kernel_find(in->op, type, isa);
}
