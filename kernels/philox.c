/* Philox4x32-10: ten rounds of two 32 x 32 -> 64 bit products, crossed (Salmon,
 * Moraes, Dror, Shaw: Parallel random numbers, as easy as 1, 2, 3; SC 2011). */
#include <math.h>

#include "kernels/kernel.h"

static const uint32_t multiplier[2] = {0xD2511F53u, 0xCD9E8D57u};
static const uint32_t weyl[2] = {0x9E3779B9u, 0xBB67AE85u};

Philox philox4(uint64_t seed, uint32_t key, uint64_t block, uint64_t step)
{
    uint32_t k0 = (uint32_t)seed, k1 = key;
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32), c2 = (uint32_t)step, c3 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p = (uint64_t)multiplier[0] * c0, q = (uint64_t)multiplier[1] * c2;
        uint32_t n0 = (uint32_t)(q >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)q;
        c3 = (uint32_t)p;
        c0 = n0;
        c2 = n2;
        k0 += weyl[0];
        k1 += weyl[1];
    }
    return (Philox){{c0, c1, c2, c3}};
}

uint64_t dropout_threshold(double p)
{
    return (uint64_t)floor(p * 0x1p32);
}
