#ifndef KERNELS_CUDA_LIMITS_H
#define KERNELS_CUDA_LIMITS_H
/* Sizes that launchers and their table agree on. */
#include "kernels/cuda/cuda.h"

enum {
    CUDA_PARTS = 1024,                /* most blocks that a sum over all rows is cut into */
    CUDA_SUM_BLOCKS = 512,            /* most blocks of sums whose terms are cut into parts, and numbers that each leaves in scratch */
    CUDA_BLOCK_SUMS = 64,
    CUDA_GRID_MOST = 65535,           /* blocks along the second and third axis of a grid */
    CUDA_HEAD_MOST = 256,             /* widest head of attention: a tile of keys must fit in 48 KB */
    CUDA_EXPERTS_MOST = 4096          /* most experts of a router: a row of probabilities must */
};

#endif
