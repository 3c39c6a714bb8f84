/* Forms: see forms.h.  kernel_of() is made from the same answers. */
#include "kernels/forms.h"

#include "base/text.h"

static const bool plain[OP_KINDS] = {
#define REF(op) [OP_##op] = true,
#include "kernels/ref/ref.def"
#undef REF
};

static const bool fast[OP_KINDS][DTYPES] = {
#define CPU(op, real) [OP_##op][DT_##real] = true,
#include "kernels/cpu/cpu.def"
#undef CPU
};

/* Plain forms read these, too, and no others. */
static bool computes_in(DType t)
{
    return t == DT_f64 || t == DT_f32 || t == DT_bf16;
}

Form form_find(OpKind op, DType type, Isa isa)
{
    if (!computes_in(type))
        return FORM_NONE;
    return isa != ISA_REF && fast[op][type] ? FORM_FAST : plain[op] ? FORM_PLAIN : FORM_NONE;
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

/* Tiles of attention add no bias. */
static bool has_bias(const Instr *in)
{
    int bias = in->op == OP_attention ? 4 : in->op == OP_attention_grad ? 7 : in->narg;
    return bias < in->narg && has_tensor(in->arg[bias]);
}

Form form_of(const Instr *in, const Program *p, Isa isa, DType *type)
{
    Types s = types_of(in, p);
    bool none = !s.f64 && !s.f32 && !s.bf16;
    *type = none ? p->precision.compute : s.bf16 ? DT_bf16 : s.f64 ? DT_f64 : DT_f32;
    Form form = s.other ? FORM_NONE : form_find(in->op, *type, isa);
    bool mixed = s.f64 && (s.f32 || s.bf16);
    return form == FORM_FAST && (mixed || has_bias(in)) ? FORM_PLAIN : form;
}

/* ---- what is slow ---- */

/* FLOP of one instruction: a plain form does some 100 MFLOP a second. */
static const double felt = 1e7;

static void add_plain(Text *list, bool said[OP_KINDS], const Program *p, Isa isa)
{
    for (uint32_t i = 0; i < p->ninstr; i++) {
        const Instr *in = &p->instr[i];
        DType type;
        if (said[in->op] || in->flops < felt || form_of(in, p, isa, &type) != FORM_PLAIN)
            continue;
        text_add(list, "%s%s%s", list->n ? ", " : "", op_info[in->op].name, has_bias(in) ? " with a bias" : "");
        said[in->op] = true;
    }
}

const char *forms_plain(Arena *a, const Program *const *p, uint32_t n, Isa isa)
{
    bool said[OP_KINDS] = {false};
    Text list = text_new(a);
    for (uint32_t i = 0; i < n; i++)
        if (p[i])
            add_plain(&list, said, p[i], isa);
    return list.s;
}
