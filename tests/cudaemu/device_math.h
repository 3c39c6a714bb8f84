/* device_math.h -- loads and stores with hints, bit casts, fast functions, atomics of a kernel; part of device.h.
 *
 * Fast functions are the exact ones: results differ from a GPU's in the last digits. */
#ifndef CUDAEMU_DEVICE_MATH_H
#define CUDAEMU_DEVICE_MATH_H

/* ---- loads and stores with a hint for the caches, which are not emulated ---- */

template <class T> inline T __ldg(const T *p) { return *p; }
template <class T> inline T __ldcs(const T *p) { return *p; }
template <class T> inline T __ldcg(const T *p) { return *p; }
template <class T> inline T __ldca(const T *p) { return *p; }
template <class T> inline T __ldlu(const T *p) { return *p; }
template <class T> inline void __stcs(T *p, T v) { *p = v; }
template <class T> inline void __stcg(T *p, T v) { *p = v; }
template <class T> inline void __stwb(T *p, T v) { *p = v; }
template <class T> inline void __stwt(T *p, T v) { *p = v; }

/* ---- bits ---- */

#define CUDAEMU_CAST(name, To, From)    \
    inline To name(From x)              \
    {                                   \
        To r;                           \
        memcpy(&r, &x, sizeof r);       \
        return r;                       \
    }
CUDAEMU_CAST(__float_as_uint, unsigned, float)
CUDAEMU_CAST(__uint_as_float, float, unsigned)
CUDAEMU_CAST(__float_as_int, int, float)
CUDAEMU_CAST(__int_as_float, float, int)
CUDAEMU_CAST(__double_as_longlong, long long, double)
CUDAEMU_CAST(__longlong_as_double, double, long long)
#undef CUDAEMU_CAST

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __brev(unsigned x)
{
    unsigned r = 0;
    for (int i = 0; i < 32; i++)
        r |= (x >> i & 1) << (31 - i);
    return r;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector)
{
    unsigned long long bytes = (unsigned long long)y << 32 | x;
    unsigned r = 0;
    for (int i = 0; i < 4; i++)
        r |= (unsigned)(bytes >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
    return r;
}

/* ---- functions; glibc has names of its own like CUDA's fast ones ---- */

namespace cudaemu {
inline float fast_exp(float x) { return expf(x); }
inline float fast_exp10(float x) { return powf(10.0f, x); }
inline float fast_log(float x) { return logf(x); }
inline float fast_log2(float x) { return log2f(x); }
inline float fast_pow(float x, float y) { return powf(x, y); }
inline float fast_sin(float x) { return sinf(x); }
inline float fast_cos(float x) { return cosf(x); }
}
#define __expf ::cudaemu::fast_exp
#define __exp10f ::cudaemu::fast_exp10
#define __logf ::cudaemu::fast_log
#define __log2f ::cudaemu::fast_log2
#define __powf ::cudaemu::fast_pow
#define __sinf ::cudaemu::fast_sin
#define __cosf ::cudaemu::fast_cos
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __frsqrt_rn(float a) { return 1.0f / sqrtf(a); }
inline float __saturatef(float a) { return a > 0 ? (a < 1 ? a : 1.0f) : 0.0f; }

template <class A, class B> using CudaemuCommon = std::enable_if_t<std::is_arithmetic<A>::value && std::is_arithmetic<B>::value, std::common_type_t<A, B>>;
template <class A, class B> inline CudaemuCommon<A, B> min(A a, B b)
{
    typedef std::common_type_t<A, B> C;
    return (C)b < (C)a ? (C)b : (C)a;
}
template <class A, class B> inline CudaemuCommon<A, B> max(A a, B b)
{
    typedef std::common_type_t<A, B> C;
    return (C)a < (C)b ? (C)b : (C)a;
}

/* ---- atomics; stronger than a GPU's, which order nothing: a missing fence is not seen ---- */

namespace cudaemu {
/* P := step(P), as one; the old value. */
template <class T, class Step> inline T change(T *p, Step step)
{
    T before, after;
    __atomic_load(p, &before, __ATOMIC_ACQUIRE);
    do
        after = step(before);
    while (!__atomic_compare_exchange(p, &before, &after, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
    return before;
}
template <class T> struct Same { typedef T type; };     /* keeps an argument from choosing T */
}
#define CUDAEMU_ATOMIC(name, expression)                                                    \
    template <class T> inline T name(T *p, typename ::cudaemu::Same<T>::type v)             \
    {                                                                                       \
        return ::cudaemu::change(p, [v](T o) { return (T)(expression); });                  \
    }
CUDAEMU_ATOMIC(atomicAdd, o + v)
CUDAEMU_ATOMIC(atomicSub, o - v)
CUDAEMU_ATOMIC(atomicMax, o < v ? v : o)
CUDAEMU_ATOMIC(atomicMin, v < o ? v : o)
CUDAEMU_ATOMIC(atomicAnd, o & v)
CUDAEMU_ATOMIC(atomicOr, o | v)
CUDAEMU_ATOMIC(atomicXor, o ^ v)
CUDAEMU_ATOMIC(atomicInc, o >= v ? 0 : o + 1)
CUDAEMU_ATOMIC(atomicDec, o == 0 || o > v ? v : o - 1)
#undef CUDAEMU_ATOMIC
template <class T> inline T atomicExch(T *p, typename ::cudaemu::Same<T>::type v)
{
    T before;
    __atomic_exchange(p, &v, &before, __ATOMIC_ACQ_REL);
    return before;
}
template <class T> inline T atomicCAS(T *p, typename ::cudaemu::Same<T>::type compare, typename ::cudaemu::Same<T>::type v)
{
    __atomic_compare_exchange(p, &compare, &v, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    return compare;
}

#endif
