#ifndef KERNELS_GEMM_H
#define KERNELS_GEMM_H
/* Private to the matrices: one thread's products. */
#include <oneapi/dnnl/dnnl.h>

#include "kernels/operand.h"

/* oneDNN's word on a product: whatever is not a success ends the process, with status 3. */
void gemm_made(dnnl_status_t, const Gemm *);

/* Tell the OpenMP runtime that the calling thread works alone. */
void work_alone(void);

/* C = A B + beta C on the calling thread, no extent 0; C is f32 or bf16.  The second form
 * needs nothing of the CPU: it converts block by block to f32. */
void multiply_bf16(const Gemm *, const Bf16 *a, const Bf16 *b, Reals c);
void multiply_bf16_blocks(const Gemm *, const Bf16 *a, const Bf16 *b, Reals c);

#endif
