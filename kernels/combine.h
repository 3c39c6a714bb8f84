#ifndef KERNELS_COMBINE_H
#define KERNELS_COMBINE_H
/* Combine: several arrays into one, element by element, and copies: what the
 * collectives of the CPU are made of. */
#include <stdbool.h>

#include "kernels/kernel.h"

typedef enum ReduceOp { REDUCE_SUM, REDUCE_MAX } ReduceOp;

/* out[o][i] = ((in[0][i] op in[1][i]) op in[2][i]) ..., in this order and in the
 * type itself, for first <= i < end and every o.  An output may be one of the
 * inputs; otherwise arrays do not overlap.  A maximum of something that is no
 * number is no number; integers wrap around.  Addresses are multiples of the
 * element's size. */
typedef struct Combine {
    DType              dtype;         /* f32, f64, i32, i64 */
    ReduceOp           op;
    int                nin, nout;     /* at least 1 */
    const void *const *in;
    void *const       *out;
    int64_t            first, end;
    bool               stream;        /* write around the caches, where all outputs are aligned to 64 bytes */
} Combine;

bool combine_has(DType, ReduceOp);
void combine(const Combine *, Isa);
/* The arrays do not overlap. */
void copy_bytes(void *to, const void *from, int64_t bytes, bool stream, Isa);

#endif
