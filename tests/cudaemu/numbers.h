/* numbers.h -- bf16 and fp16 as 16 bits, read as f32 and rounded to the nearest. */
#ifndef CUDAEMU_NUMBERS_H
#define CUDAEMU_NUMBERS_H

#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>

namespace cudaemu {

inline float from_bf16(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Ties to even; a NaN stays one. */
inline uint16_t to_bf16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return f != f ? 0x7fff : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline float from_f16(uint16_t x)
{
    __half_raw raw;
    raw.x = x;
    return __half2float(__half(raw));
}

inline uint16_t to_f16(float f) { return __half_raw(__float2half_rn(f)).x; }

} /* namespace cudaemu */

#endif
