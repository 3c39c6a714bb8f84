#ifndef CODEGEN_BUCKET_H
#define CODEGEN_BUCKET_H
/* Buckets: made by bucket.c, updated by update.c.  Private to the two. */
#include "codegen/pass.h"

/* What the tensors of a bucket share. */
typedef struct BucketKind {
    DType    dtype, grads;            /* of the weights, of their gradients */
    bool     decays;
    GridSet  reduce, shard, split;    /* shard: of reduce, where its states are shared out */
    StageSet tied;                    /* stages with a copy of the weight, when there are several */
} BucketKind;

/* The flat order of a bucket is cut into equal parts, one for each rank of the shard
 * axes; a bucket that is not shared out is one part. */
typedef struct Bucket {
    BucketKind kind;
    bool     full;
    uint32_t ready;                   /* instruction that completes its gradients */
    bool     updated;                 /* by this rank: it has the moments of its part */
    int64_t  elements;                /* padded */
    int64_t  first, part;             /* elements of the part that is this rank's */
    uint32_t *state, nstate;          /* members, in order */
    uint32_t nmoment;
    TensorId weights, gradients;      /* flat, rank 1 */
    TensorId master, moment[2];       /* of this rank's part alone; NO_TENSOR where there is none */
} Bucket;

typedef struct Buckets {
    Lowering *lw;
    Program *p;
    Arena   *scratch;
    Bucket  *bucket;
    uint32_t nbucket;
} Buckets;

/* Sums of gradients over ranks, in the backward procedure or after it; and the update
 * procedure: the norm, the optimizer, and weights given to the ranks that did not update
 * them. */
void add_update(Buckets *);

#endif
