#ifndef KERNELS_CPU_CPU_H
#define KERNELS_CPU_CPU_H
/* Fast kernels: every file of this folder is compiled once per instruction set,
 * with -DISA=v2, v3 and v4, and its functions carry that suffix.  cpu.def lists
 * them; the registry prefers them to the plain forms. */
#include "kernels/combine.h"

#define CPU(op, real)                          \
    void op##_##real##_v2(const KCall *c);     \
    void op##_##real##_v3(const KCall *c);     \
    void op##_##real##_v4(const KCall *c);
#include "kernels/cpu/cpu.def"
#undef CPU

/* The calling thread's own product of two matrices, none of its extents 0: gemm()
 * takes it where it beats the library. */
void multiply_f32_v2(const Gemm *, const float *a, const float *b, float *c);
void multiply_f32_v3(const Gemm *, const float *a, const float *b, float *c);
void multiply_f32_v4(const Gemm *, const float *a, const float *b, float *c);

/* combine() and copy_bytes(), see kernels/combine.h. */
#define COMBINE_FORMS(isa)                       \
    void combine_##isa(const Combine *);         \
    void copy_bytes_##isa(void *to, const void *from, int64_t bytes, CopyWay);
COMBINE_FORMS(v2) COMBINE_FORMS(v3) COMBINE_FORMS(v4)
#undef COMBINE_FORMS

/* CPU_KERNEL(gelu, f32) { ... } defines gelu_f32_v3(c) when ISA is v3. */
#define CPU_PASTE_(op, real, isa) op##_##real##_##isa
#define CPU_PASTE(op, real, isa)  CPU_PASTE_(op, real, isa)
#define CPU_KERNEL(op, real)      void CPU_PASTE(op, real, ISA)(const KCall *c)

/* CPU_REALS(gelu) { ... } defines one function for operands of f32 and of bf16. */
#define CPU_REALS(op)                          \
    static void op##_reals(const KCall *c);    \
    CPU_KERNEL(op, f32) { op##_reals(c); }     \
    CPU_KERNEL(op, bf16) { op##_reals(c); }    \
    static void op##_reals(const KCall *c)

#endif
