#ifndef BASE_DEVICE_H
#define BASE_DEVICE_H
/* ON_DEVICE marks an inline function that kernels of a GPU call too: nvcc then compiles it for both. */
#ifdef __CUDACC__
#define ON_DEVICE __host__ __device__
#else
#define ON_DEVICE
#endif

#endif
