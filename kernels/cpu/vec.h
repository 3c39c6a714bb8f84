#ifndef KERNELS_CPU_VEC_H
#define KERNELS_CPU_VEC_H
/* Vec: as many floats as a register of the instruction set holds, and the few
 * functions the fast kernels are written with.  Arithmetic on Vec is the
 * compiler's (+ - * / work lane by lane); what it lacks stands here. */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#define LANES_ARE 16
typedef __m512 Vec;
#define VEC_OP(op) _mm512_##op
#elif defined(__AVX2__)
#define LANES_ARE 8
typedef __m256 Vec;
#define VEC_OP(op) _mm256_##op
#else
#define LANES_ARE 4
typedef __m128 Vec;
#define VEC_OP(op) _mm_##op
#endif

enum { LANES = LANES_ARE };
typedef int32_t  VecI __attribute__((vector_size(sizeof(Vec))));      /* lanes as integers; all bits set: true */
typedef uint32_t VecU __attribute__((vector_size(sizeof(Vec))));

static inline Vec vec_load(const float *p)
{
    return VEC_OP(loadu_ps)(p);
}

static inline void vec_store(float *p, Vec x)
{
    VEC_OP(storeu_ps)(p, x);
}

/* The first n < LANES lanes; the others are 0, and not written. */
static inline Vec vec_load_part(const float *p, int64_t n)
{
    float lane[LANES] = {0};
    for (int64_t i = 0; i < n; i++)
        lane[i] = p[i];
    return vec_load(lane);
}

static inline void vec_store_part(float *p, Vec x, int64_t n)
{
    float lane[LANES];
    vec_store(lane, x);
    for (int64_t i = 0; i < n; i++)
        p[i] = lane[i];
}

/* All lanes or, near the end of an array, `left` of them. */
static inline Vec vec_take(const float *p, int64_t left)
{
    return left >= LANES ? vec_load(p) : vec_load_part(p, left);
}

static inline void vec_give(float *p, Vec x, int64_t left)
{
    if (left >= LANES)
        vec_store(p, x);
    else
        vec_store_part(p, x, left);
}

/* bf16: as many as a Vec has lanes, in half the bytes; see kernels/reals.h. */
typedef uint16_t VecH __attribute__((vector_size(sizeof(Vec) / 2)));

static inline Vec vec_widen(const uint16_t *p, int64_t left)
{
    VecH h = {0};
    memcpy(&h, p, left >= LANES ? sizeof h : sizeof *p * (size_t)left);
    return (Vec)(__builtin_convertvector(h, VecU) << 16);
}

static inline void vec_round(uint16_t *p, Vec x, int64_t left)
{
    VecU bits = (VecU)x, even = bits + 0x7fff + (bits >> 16 & 1), none = (VecU)(x != x);
    VecU y = (none & (bits | 0x400000)) | (~none & even);
    VecH h = __builtin_convertvector(y >> 16, VecH);
    memcpy(p, &h, left >= LANES ? sizeof h : sizeof *p * (size_t)left);
}

static inline Vec vec_all(float x)
{
    return VEC_OP(set1_ps)(x);
}

/* a b + c; rounded once where the instruction set can. */
static inline Vec vec_fma(Vec a, Vec b, Vec c)
{
#if defined(__FMA__)
    return VEC_OP(fmadd_ps)(a, b, c);
#else
    return a * b + c;
#endif
}

/* The second operand where one is no number. */
static inline Vec vec_max(Vec a, Vec b)
{
    return VEC_OP(max_ps)(a, b);
}

static inline Vec vec_min(Vec a, Vec b)
{
    return VEC_OP(min_ps)(a, b);
}

static inline Vec vec_sqrt(Vec a)
{
    return VEC_OP(sqrt_ps)(a);
}

static inline Vec vec_where(VecI mask, Vec yes, Vec no)
{
    return (Vec)((mask & (VecI)yes) | (~mask & (VecI)no));
}

/* Lanes 0, 1, .. */
static inline VecI vec_count(void)
{
    VecI n = {0};
    for (int i = 0; i < LANES; i++)
        n[i] = i;
    return n;
}

/* Lane by lane in a fixed order. */
static inline float vec_sum(Vec x)
{
    float lane[LANES];
    vec_store(lane, x);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

static inline float vec_top(Vec x)
{
    float lane[LANES];
    vec_store(lane, x);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] = lane[i] > lane[i + half] ? lane[i] : lane[i + half];
    return lane[0];
}

/* e^x to 2 ulp.  With n = round(x / ln 2) and r = x - n ln 2, |r| < 0.35, it is 2^n
 * times the Taylor sum to r^7, whose rest is below 1e-8; n goes straight into the
 * exponent.  ln 2 is split so that n times its upper part is exact.  Below the least
 * normal number the result is 0. */
static inline Vec vec_exp(Vec x)
{
    const Vec lowest = vec_all(-87.0f), highest = vec_all(88.72283f);
    Vec in = vec_min(highest, vec_max(lowest, x));
    VecI n = (VecI)VEC_OP(cvtps_epi32)(in * vec_all(1.44269504f));
    Vec whole = __builtin_convertvector(n, Vec);
    Vec r = vec_fma(whole, vec_all(-0x1.62e4p-1f), in);
    r = vec_fma(whole, vec_all(-0x1.7f7d1cp-20f), r);
    Vec p = vec_all(1.0f / 5040);
    p = vec_fma(p, r, vec_all(1.0f / 720));
    p = vec_fma(p, r, vec_all(1.0f / 120));
    p = vec_fma(p, r, vec_all(1.0f / 24));
    p = vec_fma(p, r, vec_all(1.0f / 6));
    p = vec_fma(p, r, vec_all(0.5f));
    p = vec_fma(p, r, vec_all(1.0f));
    p = vec_fma(p, r, vec_all(1.0f));
    Vec y = (Vec)((VecI)p + (n << 23));
    y = vec_where(x < lowest, vec_all(0.0f), y);
    return vec_where(x > highest, vec_all(__builtin_inff()), y);
}

/* 1 / (1 + e^-x) */
static inline Vec vec_sigmoid(Vec x)
{
    return vec_all(1.0f) / (vec_all(1.0f) + vec_exp(-x));
}

#endif
