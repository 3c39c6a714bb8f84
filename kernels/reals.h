#ifndef KERNELS_REALS_H
#define KERNELS_REALS_H
/* Numbers of the three types that kernels compute with. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "ir/dtype.h"

/* bf16: the upper half of an f32.  To it numbers are rounded to the nearest, of two
 * equally near ones to the even one; what is no number stays none, what is too large
 * becomes infinite, and the small ones lose bits like those of f32. */
typedef uint16_t Bf16;

static inline float bf16_value(Bf16 x)
{
    uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline Bf16 bf16_round(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (Bf16)(bits >> 16 | 0x40);            /* its bits that say so may all be in the lower half */
    return (Bf16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Rounded once: the f32 in between keeps in its last bit that something was cut off. */
static inline Bf16 bf16_round_double(double x)
{
    float f = (float)x;
    uint32_t bits;
    if (isnan(x) || (double)f == x)
        return bf16_round(f);
    memcpy(&bits, &f, sizeof bits);
    bits -= fabs((double)f) > fabs(x);
    bits |= 1;
    memcpy(&f, &bits, sizeof f);
    return bf16_round(f);
}

/* Reals: numbers in a row, each read as a double and written rounded to their type. */
typedef struct Reals { DType dtype; void *at; } Reals;               /* f32, f64 or bf16; at NULL: there are none */

static inline double get(Reals x, int64_t i)
{
    switch ((int)x.dtype) {
    case DT_f64: return ((const double *)x.at)[i];
    case DT_f32: return (double)((const float *)x.at)[i];
    default:     return (double)bf16_value(((const Bf16 *)x.at)[i]);
    }
}

static inline void put(Reals x, int64_t i, double value)
{
    switch ((int)x.dtype) {
    case DT_f64: ((double *)x.at)[i] = value; break;
    case DT_f32: ((float *)x.at)[i] = (float)value; break;
    default:     ((Bf16 *)x.at)[i] = bf16_round_double(value); break;
    }
}

/* The numbers from element i on. */
static inline Reals reals_from(Reals x, int64_t i)
{
    return (Reals){x.dtype, x.at ? (char *)x.at + i * dtype_bytes(x.dtype) : NULL};
}

#endif
