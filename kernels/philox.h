#ifndef KERNELS_PHILOX_H
#define KERNELS_PHILOX_H
/* Random numbers: Philox4x32-10, ten rounds of two 32 x 32 -> 64 bit products, crossed (Salmon,
 * Moraes, Dror, Shaw: Parallel random numbers, as easy as 1, 2, 3; SC 2011), DESIGN 3. */
#include <math.h>
#include <stdint.h>

#include "base/device.h"

typedef struct Philox { uint32_t word[4]; } Philox;

/* Output words for elements 4*block .. 4*block+3 of the op or weight with key `key`. */
ON_DEVICE static inline Philox philox4(uint64_t seed, uint32_t key, uint64_t block, uint64_t step)
{
    uint32_t k0 = (uint32_t)seed, k1 = key;
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32), c2 = (uint32_t)step, c3 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p = (uint64_t)0xD2511F53u * c0, q = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(q >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)q;
        c3 = (uint32_t)p;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    Philox out = {{c0, c1, c2, c3}};
    return out;
}

/* A dropout element is kept when its word is >= this. */
static inline uint64_t dropout_threshold(double p)
{
    return (uint64_t)floor(p * 0x1p32);
}

#endif
