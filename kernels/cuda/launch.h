/* launch.h -- how kernels are launched and get dynamic shared memory.
 *
 * Kernels are CUDA C++, compiled by nvcc for GPUs and by a C++ compiler for the emulator of the tests
 * (tests/cudaemu), which defines CUDAEMU and includes its own header first.  No other file has <<<>>>. */
#ifndef CUDA_LAUNCH_H
#define CUDA_LAUNCH_H

/* PRUN_LAUNCH(kernel, grid, block, bytes of dynamic shared memory, stream, arguments...): a kernel template is
 * written in parentheses.  cudaGetLastError says whether it was refused.
 *
 * PRUN_DYNAMIC_SHARED(type, name): in a kernel, 'type *name' at the start of its dynamic shared memory. */
#ifdef CUDAEMU
#define PRUN_LAUNCH(kernel, grid, block, bytes, stream, ...) \
    ::cudaemu::launch(#kernel, kernel, grid, block, bytes, stream, __VA_ARGS__)
#define PRUN_DYNAMIC_SHARED(type, name) type *name = reinterpret_cast<type *>(::cudaemu::block_now.shared)
#else
#define PRUN_LAUNCH(kernel, grid, block, bytes, stream, ...) kernel<<<grid, block, bytes, stream>>>(__VA_ARGS__)
extern __shared__ __align__(1024) unsigned char prun_dynamic_shared[];
#define PRUN_DYNAMIC_SHARED(type, name) type *name = reinterpret_cast<type *>(prun_dynamic_shared)
#endif

#endif
