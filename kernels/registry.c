/* The kernels there are, and which one runs. */
#include "kernels/cpu/cpu.h"
#include "kernels/kernel.h"
#include "kernels/ref/ref.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

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

/* The levels are those of the x86-64 ABI supplement; the compiler's own test does
 * not know all their features under every compiler, so leaf 1 and the extended
 * leaf are read here. */
Isa isa_best(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d, extended = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !__get_cpuid(0x80000001, &a, &b, &extended, &d))
        return ISA_REF;
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("ssse3") || !__builtin_cpu_supports("popcnt"))
        return ISA_REF;
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("bmi") ||
        !__builtin_cpu_supports("bmi2") || !(c & bit_F16C) || !(c & bit_MOVBE) || !(extended & bit_LZCNT))
        return ISA_V2;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512cd") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
        return ISA_V3;
    return ISA_V4;
#else
    return ISA_REF;
#endif
}

const char *isa_name(Isa isa)
{
    static const char *const name[] = {"plain C", "x86-64-v2", "x86-64-v3", "x86-64-v4"};
    return name[isa];
}
