/* The CUDA kernels there are, and which one runs. */
#include "kernels/cuda/limits.h"
#include "kernels/cuda/sdpa.h"

static const CudaKernel table[OP_KINDS] = {
#define CUDA(op) [OP_##op] = cuda_##op,
#include "kernels/cuda/cuda.def"
#undef CUDA
};

/* f64 only where a number stands beside tensors: counts, norms. */
static bool type_fits(const Tensor *t)
{
    return !dtype_is_float(t->dtype) || t->dtype == DT_f32 || t->dtype == DT_bf16 || (t->dtype == DT_f64 && t->rank == 0);
}

static bool types_fit(const Instr *in, const Program *p)
{
    bool fit = true;
    for (int a = 0; a < in->narg; a++)
        fit = fit && (!has_tensor(in->arg[a]) || type_fits(&p->tensor[in->arg[a].i]));
    for (int k = 0; k < in->nout; k++)
        fit = fit && (!has_tensor(in->out[k]) || type_fits(&p->tensor[in->out[k].i]));
    return fit;
}

static bool is_attention(const Instr *in)
{
    return in->op == OP_attention || in->op == OP_attention_grad;
}

/* Rows of shared memory hold so much and no more, nor do grids, which have an axis of heads and one of leading indices. */
static bool fits(const Instr *in, const Program *p)
{
    int q = in->op == OP_attention_grad ? 1 : 0;
    if (is_attention(in)) {
        const Tensor *t = &p->tensor[in->arg[q].i];
        int64_t heads = t->axis[t->rank - 2].local, of_one = t->axis[t->rank - 3].local * heads * row_length(t);
        return row_length(t) <= CUDA_HEAD_MOST && heads <= CUDA_GRID_MOST && tensor_elements(t) <= CUDA_GRID_MOST * of_one;
    }
    return in->op != OP_router || row_length(&p->tensor[in->out[0].i]) <= CUDA_EXPERTS_MOST;
}

CudaKernel cuda_kernel_of(const Instr *in, const Program *p)
{
    return types_fit(in, p) && fits(in, p) ? table[in->op] : NULL;
}

static bool is_sum(const Instr *in)
{
    return in->op == OP_reduce || in->op == OP_layernorm_grad || in->op == OP_rmsnorm_grad;
}

/* A partial sum of each block, or many of each; for the gradient of attention also a number for each query and head, for that of a table two
 * arrays of keys to sort; or what cuDNN wants. */
int64_t cuda_workspace(const Instr *in, const Program *p)
{
    int64_t library = is_attention(in) ? sdpa_workspace(in, p) : 0;
    int64_t rows = in->op == OP_attention_grad ? tensor_elements(&p->tensor[in->arg[5].i]) : 0;
    int64_t tokens = in->op == OP_embed_grad ? tensor_elements(&p->tensor[in->arg[0].i]) : 0;
    int64_t sums = is_sum(in) ? CUDA_SUM_BLOCKS * CUDA_BLOCK_SUMS * (int64_t)sizeof(float) : 0;
    int64_t own = CUDA_PARTS * (int64_t)sizeof(double) + sums + rows * (int64_t)sizeof(float) + 2 * tokens * (int64_t)sizeof(uint64_t);
    return own > library ? own : library;
}
