#ifndef KERNELS_CUDA_SDPA_H
#define KERNELS_CUDA_SDPA_H
/* Attention by cuDNN where it can: its plans in this process, and calls; private to this folder. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/sdpa_graph.h"

/* Scratch bytes of an attention or its gradient by cuDNN, whose plan for the current device is compiled if need be: that takes a second
 * or two.  0: it is left to the kernels here. */
int64_t sdpa_workspace(const Instr *, const Program *);

/* The plan of a call; NULL: it has none, or operands that are not aligned. */
const SdpaPlan *sdpa_plan_of(const CudaCall *);
cudaError_t     sdpa_execute(const CudaCall *, const SdpaPlan *);
static inline float *sdpa_lse(const CudaCall *c, const SdpaPlan *p) { return (float *)((char *)c->call.work + p->lse); }

/* The op, and how it went; false: it has no plan, and nothing was done. */
bool sdpa_attention(const CudaCall *, cudaError_t *status);
bool sdpa_attention_grad(const CudaCall *, cudaError_t *status);

#endif
