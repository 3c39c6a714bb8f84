#ifndef KERNELS_CUDA_SDPA_GRAPH_H
#define KERNELS_CUDA_SDPA_GRAPH_H
/* Attention and its gradient as graphs of cuDNN (its name for them: scaled dot-product attention); private to this folder.
 *
 * The log-sum-exp is as ours, natural and of scaled scores, but its axes are [b, h, s]: of other orders cuDNN makes wrong numbers
 * before 9.26.  Nothing here needs CUDA. */
#include "kernels/cuda/cudnn.h"
#include "kernels/operand.h"

/* What a plan depends on beside the device; no padding, so that shapes compare as bytes. */
typedef struct Sdpa {
    int64_t  b, h, g, s, t, e;        /* batch, query and key heads, queries, keys, width of a head */
    uint32_t causal, gradient;
} Sdpa;

/* The tensors of a call, by number. */
enum { SDPA_Q = 1, SDPA_K, SDPA_V, SDPA_Y, SDPA_LSE, SDPA_DY, SDPA_DQ, SDPA_DK, SDPA_DV, SDPA_DOTS, SDPA_SCALE, SDPA_HIDDEN, SDPA_ONE, SDPA_NUMBERS };

typedef struct SdpaPlan {
    Dnn     graph;                    /* what the plan was made from */
    void   *plan;
    int64_t scratch;                  /* bytes of the plan's own, at the start of the workspace */
    int64_t lse, dots;                /* where these begin: f32, [b, h, s] */
    int64_t bytes;                    /* of all */
    bool    causal;
} SdpaPlan;

/* Which attention is asked of cuDNN: NULL, and its shape, for a call of which only shapes are known; else why it is not. */
const char *sdpa_shape(const KCall *, Sdpa *);
/* A plan that wants no more than `most` bytes of scratch.  Whether there is one; if not, the graph says why. */
bool sdpa_compile(const Cudnn *, const Sdpa *, void *device, int64_t most, SdpaPlan *);

#endif
