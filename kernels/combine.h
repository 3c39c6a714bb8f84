#ifndef KERNELS_COMBINE_H
#define KERNELS_COMBINE_H
/* Combine: several arrays into one, element by element, and copies: what the
 * collectives of the CPU are made of. */
#include <stdbool.h>

#include "kernels/kernel.h"

typedef enum ReduceOp { REDUCE_SUM, REDUCE_MAX } ReduceOp;

/* out[o][i] = ((in[0][i] op in[1][i]) op in[2][i]) ..., in this order and in the
 * type itself, of bf16 in f32 and rounded at the end, for first <= i < end and every o.
 * An output may be one of the inputs; otherwise arrays do not overlap.  A maximum of
 * something that is no number is no number; integers wrap around.  Addresses are
 * multiples of the element's size. */
typedef struct Combine {
    DType              dtype;         /* f32, f64, bf16, i32, i64 */
    ReduceOp           op;
    int                nin, nout;     /* at least 1 */
    const void *const *in;
    void *const       *out;
    int64_t            first, end;
    bool               stream;        /* write around the caches, where all outputs are aligned to 64 bytes */
} Combine;

bool combine_has(DType, ReduceOp);
void combine(const Combine *, Isa);

/* How a copy writes.  A plain store first reads the line it is going to replace.
 * The processor's string instruction does not, yet the result stays in the caches;
 * and a core that wrote what it reads was measured to write that again sooner.
 * Streaming goes around the caches. */
typedef enum CopyWay { COPY_PLAIN, COPY_STRING, COPY_STREAM } CopyWay;

/* The arrays do not overlap.  Where an array does not begin with a cache line, a copy
 * may be plain all the same. */
void copy_bytes(void *to, const void *from, int64_t bytes, CopyWay, Isa);

/* What the best way depends on.  Read once: asking takes longer than a small copy. */
typedef struct Caches {
    int64_t last;                     /* bytes of the last level */
    bool    strings;                  /* string instructions are fast */
} Caches;

Caches  caches_read(void);
/* `touched`: bytes that all who copy, or combine, at the same time read and write. */
CopyWay copy_way(const Caches *, int64_t touched);
/* Of arrays that are not combined in place: there the lines to write were just read. */
bool    combine_streams(const Caches *, int64_t touched);

#endif
