#ifndef KERNELS_CPU_RANDOM_H
#define KERNELS_CPU_RANDOM_H
/* The words of philox4() for a stretch of elements, several blocks at a time: one
 * 64-bit lane holds a counter word of one block, because a product of two 32-bit
 * words needs the room.  Same bits as the plain form. */
#include "kernels/cpu/vec.h"
#include "kernels/kernel.h"

typedef uint64_t VecW __attribute__((vector_size(sizeof(Vec))));

enum {
    RANDOM_BLOCKS = LANES / 2,        /* blocks of one vector */
    RANDOM_CHAINS = 4,                /* vectors worked on at once: rounds depend on each other, chains do not */
    RANDOM_STRIDE = 4 * RANDOM_BLOCKS * RANDOM_CHAINS        /* words of a call of random_blocks() */
};

static inline VecW vec_product(VecW a, VecW b)       /* of the low halves */
{
#if LANES_ARE == 16
    return (VecW)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif LANES_ARE == 8
    return (VecW)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#else
    return (VecW)_mm_mul_epu32((__m128i)a, (__m128i)b);
#endif
}

typedef struct RandomKey { uint64_t seed, step; uint32_t key; } RandomKey;

/* RANDOM_STRIDE words from block number `block` on. */
static inline void random_blocks(const RandomKey *r, uint64_t block, uint32_t *out)
{
    const VecW low = (VecW){0} + UINT32_MAX, m0 = (VecW){0} + 0xD2511F53u, m1 = (VecW){0} + 0xCD9E8D57u;
    VecW c0[RANDOM_CHAINS], c1[RANDOM_CHAINS], c2[RANDOM_CHAINS], c3[RANDOM_CHAINS];
    VecW k0 = (VecW){0} + (r->seed & UINT32_MAX), k1 = (VecW){0} + r->key;
    for (int j = 0; j < RANDOM_CHAINS; j++) {
        VecW b = (VecW){0} + (block + (uint64_t)(j * RANDOM_BLOCKS));
        for (int i = 0; i < RANDOM_BLOCKS; i++)
            b[i] += (uint64_t)i;
        c0[j] = b & low;
        c1[j] = b >> 32;
        c2[j] = (VecW){0} + (r->step & UINT32_MAX);
        c3[j] = (VecW){0} + (r->seed >> 32);
    }
    for (int round = 0; round < 10; round++) {
        for (int j = 0; j < RANDOM_CHAINS; j++) {
            VecW p = vec_product(m0, c0[j]), q = vec_product(m1, c2[j]);
            c0[j] = (q >> 32) ^ c1[j] ^ k0;
            c2[j] = (p >> 32) ^ c3[j] ^ k1;
            c1[j] = q & low;
            c3[j] = p & low;
        }
        k0 = (k0 + 0x9E3779B9u) & low;
        k1 = (k1 + 0xBB67AE85u) & low;
    }
    for (int j = 0; j < RANDOM_CHAINS; j++) {
        VecW first = c0[j] | c1[j] << 32, second = c2[j] | c3[j] << 32;
        for (int i = 0; i < RANDOM_BLOCKS; i++) {
            uint64_t two[2] = {first[i], second[i]};
            memcpy(out + 4 * (j * RANDOM_BLOCKS + i), two, sizeof two);
        }
    }
}

/* Words a stretch of n elements needs room for: it may start and end within a block. */
#define RANDOM_ROOM(n) ((n) + 4 + RANDOM_STRIDE)

/* The words of elements first .. first + n - 1; returns where in `room` they are. */
static inline const uint32_t *random_words(const RandomKey *r, int64_t first, int64_t n, uint32_t *room)
{
    int64_t skip = first % 4;
    for (int64_t i = 0; i < n + skip; i += RANDOM_STRIDE)
        random_blocks(r, (uint64_t)(first / 4 + i / 4), room + i);
    return room + skip;
}

/* Kept elements are multiplied by `by`, dropped ones are 0. */
static inline Vec random_keep(const uint32_t *word, uint32_t threshold, Vec by)
{
    VecU w;
    memcpy(&w, word, sizeof w);
    return (Vec)((VecI)(w >= threshold) & (VecI)by);
}

#endif
