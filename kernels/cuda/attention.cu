/* Attention: see attention.cuh; of bf16 see sdpa.h, then flash.cuh.  Scores of a tile of keys, their running maximum and sum, and the weighted values. */
#include "kernels/cuda/flash.cuh"

/* What a warp knows of its query so far. */
struct Running {
    float top, sum;
    float value[STRIPS];              /* sum of exp(score - top) kept v */
};

/* A tile's scores join in: returns the weight of this lane's key, and scales what is there to the new maximum. */
static __device__ __forceinline__ float join_scores(Running &r, float score)
{
    float top = fmaxf(r.top, warp_max(score));
    if (top == -INFINITY)
        return 0;
    float shrink = expf(r.top - top), p = expf(score - top);
    r.sum = r.sum * shrink + warp_sum(p);
    r.top = top;
#pragma unroll
    for (int k = 0; k < STRIPS; k++)
        r.value[k] *= shrink;
    return p;
}

static __global__ void __launch_bounds__(WARPS * WARP) attend(Attention a, const CudaStep *now)
{
    PRUN_DYNAMIC_SHARED(float, tile);
    int h = (int)blockIdx.y, lane = (int)threadIdx.x % WARP, first = (int)blockIdx.x * WARPS, i = first + (int)threadIdx.x / WARP;
    float *query = tile + TILE * (a.e + 1) + (int)threadIdx.x / WARP * a.e;
    int64_t lead = blockIdx.z, row = (int64_t)i * a.h + h, step = (int64_t)a.g * a.e;
    At<SEES> at = loop_at(a.lead, lead);
    int last = min(first + WARPS, a.s) - 1;
    Running r = {-INFINITY, 0, {}};
    load_row(query, a.q, at.of[SEE_Q] + row * a.e, i < a.s, a.e);
    for (int j0 = 0; j0 < a.t; j0 += TILE) {
        int j = j0 + lane, rows = min(TILE, a.t - j0);
        if (hidden(a, first, last, j0, j0 + rows - 1))
            continue;
        load_tile(tile, a.k, at.of[SEE_K] + j0 * step + key_head(a, h) * a.e, step, rows, a.e);
        bool sees = i < a.s && j < a.t && visible(a, at, i, j);
        float score = tile_dot(tile, query, a.e) * a.scale;
        if (sees && a.bias.at)
            score += num_get(a.bias, ((int64_t)h * a.s + i) * a.t + j);
        float p = join_scores(r, sees ? score : -INFINITY);
        if (sees)
            p *= kept(a, now, lead, i, h, j);
        load_tile(tile, a.v, at.of[SEE_V] + j0 * step + key_head(a, h) * a.e, step, rows, a.e);
        tile_add(r.value, tile, p, a.e);
    }
    if (i >= a.s)
        return;
    put_row(a.y, at.of[SEE_Y] + row * a.e, r.value, r.sum > 0 ? 1 / r.sum : 0, a.e);
    if (lane == 0 && a.lse.at)
        num_put(a.lse, at.of[SEE_LSE] + row, r.sum > 0 ? r.top + logf(r.sum) : -INFINITY);
}

CUDA_KERNEL(attention)
{
    cudaError_t status;
    if (sdpa_attention(c, &status))
        return status;
    Attention a = attention_of(c, 0, 3, {0, 1, 2, 3, 5, RESULT(0), RESULT(1), 0, 0, 0, 0});
    a.y = OUT(0);
    a.lse = OUT(1);
    if (a.lead.n && a.s && a.h && !flash_attention(c, a))
        PRUN_LAUNCH(attend, dim3((unsigned)((a.s + WARPS - 1) / WARPS), (unsigned)a.h, (unsigned)a.lead.n), WARPS * WARP,
                    attention_shared(a.e, 1), c->stream, a, c->now);
    return cudaGetLastError();
}
