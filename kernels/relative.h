#ifndef KERNELS_RELATIVE_H
#define KERNELS_RELATIVE_H
/* Buckets of the relative bias of T5 (Raffel et al. 2020). */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/device.h"

typedef struct RelativeBuckets { int64_t n, reach; bool two_way; } RelativeBuckets;

/* Bucket of a key `ahead` positions after its query: one each for the near half, the far
 * half in equal steps of the logarithm up to `reach`; with `two_way` the keys after
 * the query have buckets of their own.  The small number keeps distances that
 * are exact powers in the upper bucket. */
ON_DEVICE static inline int64_t relative_bucket(RelativeBuckets b, int64_t ahead)
{
    int64_t n = b.n, first = 0, distance = -ahead;
    if (b.two_way) {
        n /= 2;
        first = ahead > 0 ? n : 0;
        distance = ahead > 0 ? ahead : -ahead;
    }
    distance = distance > 0 ? distance : 0;
    int64_t near = n / 2;
    if (distance < near)
        return first + distance;
    double far = log((double)distance / (double)near) / log((double)b.reach / (double)near);
    int64_t bucket = near + (int64_t)(far * (double)(n - near) + 1e-9);
    return first + (bucket < n - 1 ? bucket : n - 1);
}

#endif
