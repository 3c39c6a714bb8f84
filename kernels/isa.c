/* Which instruction set this CPU has. */
#include "kernels/kernel.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

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
