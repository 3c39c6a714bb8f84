/* The gradient of attention: see attention.cuh; of bf16 see sdpa.h, then flash.cuh.  With D = dy . y of a query, and per key P = exp(score - lse):
 * dS = P (kept dy . v - D); dq = scale dS k, dk = scale dS^T q, dv = (kept P)^T dy, dbias = dS summed over leading indices. */
#include "kernels/cuda/flash.cuh"

/* A warp for each query and head: D. */
static __global__ void __launch_bounds__(WARPS * WARP) query_dots(Attention a)
{
    int64_t rows = (int64_t)a.s * a.h, n = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP, row = n % rows;
    if (n >= rows * a.lead.n)
        return;
    At<SEES> at = loop_at(a.lead, n / rows);
    float sum = 0;
    for (int i = (int)threadIdx.x % WARP * WIDE; i < a.e; i += WARP * WIDE) {
        Wide dy = wide_get(a.dy, at.of[SEE_DY] + row * a.e + i, wide_left(a.e, i)), y = wide_get(a.y, at.of[SEE_Y] + row * a.e + i, wide_left(a.e, i));
        EACH_OF_WIDE(sum += dy.of[k] * y.of[k])
    }
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0)
        a.dots[n] = sum;
}

/* P of query i, head h and key j from the product of their vectors. */
static __device__ __forceinline__ float probability(const Attention &a, const At<SEES> &at, float product, int i, int h, int j)
{
    float score = product * a.scale + (a.bias.at ? num_get(a.bias, ((int64_t)h * a.s + i) * a.t + j) : 0);
    return expf(score - num_get(a.lse, at.of[SEE_LSE] + (int64_t)i * a.h + h));
}

/* dq: a warp for each query, over tiles of keys; v before k, whose tile stays for the sum. */
static __global__ void __launch_bounds__(WARPS * WARP) query_grads(Attention a, const CudaStep *now)
{
    PRUN_DYNAMIC_SHARED(float, tile);
    int h = (int)blockIdx.y, first = (int)blockIdx.x * WARPS, i = first + (int)threadIdx.x / WARP, last = min(first + WARPS, a.s) - 1;
    float *query = tile + TILE * (a.e + 1) + (int)threadIdx.x / WARP * 2 * a.e, *dy = query + a.e, sum[STRIPS] = {};
    int64_t lead = blockIdx.z, row = (int64_t)i * a.h + h, step = (int64_t)a.g * a.e;
    At<SEES> at = loop_at(a.lead, lead);
    load_row(query, a.q, at.of[SEE_Q] + row * a.e, i < a.s, a.e);
    load_row(dy, a.dy, at.of[SEE_DY] + row * a.e, i < a.s, a.e);
    float dot = i < a.s ? a.dots[lead * a.s * a.h + row] : 0;
    for (int j0 = 0; j0 < a.t; j0 += TILE) {
        int j = j0 + (int)threadIdx.x % WARP, rows = min(TILE, a.t - j0);
        if (hidden(a, first, last, j0, j0 + rows - 1))
            continue;
        load_tile(tile, a.v, at.of[SEE_V] + j0 * step + key_head(a, h) * a.e, step, rows, a.e);
        float dp = tile_dot(tile, dy, a.e);
        load_tile(tile, a.k, at.of[SEE_K] + j0 * step + key_head(a, h) * a.e, step, rows, a.e);
        float product = tile_dot(tile, query, a.e), ds = 0;
        if (i < a.s && j < a.t && visible(a, at, i, j))
            ds = probability(a, at, product, i, h, j) * (kept(a, now, lead, i, h, j) * dp - dot);
        tile_add(sum, tile, ds, a.e);
    }
    if (i < a.s)
        put_row(a.dq, at.of[SEE_DQ] + row * a.e, sum, a.scale, a.e);
}

/* One tile of queries of head h, for the key j of a warp. */
static __device__ __forceinline__ void add_queries(const Attention &a, const CudaStep *now, const At<SEES> &at, float *tile, const float *key,
                                                   int64_t lead, int i0, int h, int j, float (&dk)[STRIPS], float (&dv)[STRIPS])
{
    int i = i0 + (int)threadIdx.x % WARP, rows = min(TILE, a.s - i0);
    int64_t step = (int64_t)a.h * a.e, from = i0 * step + (int64_t)h * a.e;
    bool sees = i < a.s && j < a.t && visible(a, at, i, j);
    float keep = sees ? kept(a, now, lead, i, h, j) : 0;
    load_tile(tile, a.q, at.of[SEE_Q] + from, step, rows, a.e);
    float product = tile_dot(tile, key, a.e), p = sees ? probability(a, at, product, i, h, j) : 0;
    load_tile(tile, a.dy, at.of[SEE_DY] + from, step, rows, a.e);
    float dp = tile_dot(tile, key + a.e, a.e), dot = sees ? a.dots[(lead * a.s + i) * a.h + h] : 0;
    tile_add(dv, tile, p * keep, a.e);
    load_tile(tile, a.q, at.of[SEE_Q] + from, step, rows, a.e);
    tile_add(dk, tile, p * (keep * dp - dot), a.e);
}

/* dk and dv: a warp for each key, over tiles of queries of all heads that read its key head. */
static __global__ void __launch_bounds__(WARPS * WARP) key_grads(Attention a, const CudaStep *now)
{
    PRUN_DYNAMIC_SHARED(float, tile);
    int u = (int)blockIdx.y, first = (int)blockIdx.x * WARPS, j = first + (int)threadIdx.x / WARP, last = min(first + WARPS, a.t) - 1;
    float *key = tile + TILE * (a.e + 1) + (int)threadIdx.x / WARP * 2 * a.e, dk[STRIPS] = {}, dv[STRIPS] = {};
    int64_t lead = blockIdx.z, row = ((int64_t)j * a.g + u) * a.e;
    At<SEES> at = loop_at(a.lead, lead);
    load_row(key, a.k, at.of[SEE_K] + row, j < a.t, a.e);
    load_row(key + a.e, a.v, at.of[SEE_V] + row, j < a.t, a.e);
    for (int h = 0; h < a.h; h++) {
        if (key_head(a, h) != u)
            continue;
        for (int i0 = 0; i0 < a.s; i0 += TILE)
            if (!hidden(a, i0, min(i0 + TILE, a.s) - 1, first, last))
                add_queries(a, now, at, tile, key, lead, i0, h, j, dk, dv);
    }
    if (j < a.t && a.dk.at)
        put_row(a.dk, at.of[SEE_DK] + row, dk, a.scale, a.e);
    if (j < a.t && a.dv.at)
        put_row(a.dv, at.of[SEE_DV] + row, dv, 1, a.e);
}

/* dbias: a thread for each head, query and key, over all leading indices. */
static __global__ void __launch_bounds__(BLOCK) bias_grads(Attention a, const CudaStep *now)
{
    for GRID_STRIDE(n, (int64_t)a.h * a.s * a.t) {
        int j = (int)(n % a.t), i = (int)(n / a.t % a.s), h = (int)(n / a.t / a.s);
        int64_t row = (int64_t)i * a.h + h, other = ((int64_t)j * a.g + key_head(a, h)) * a.e;
        float sum = 0;
        for (int64_t lead = 0; lead < a.lead.n; lead++) {
            At<SEES> at = loop_at<SEES, true>(a.lead, lead);
            if (!visible(a, at, i, j))
                continue;
            float product = 0, dp = 0;
            for (int x = 0; x < a.e; x++) {
                product += num_get(a.q, at.of[SEE_Q] + row * a.e + x) * num_get(a.k, at.of[SEE_K] + other + x);
                dp += num_get(a.dy, at.of[SEE_DY] + row * a.e + x) * num_get(a.v, at.of[SEE_V] + other + x);
            }
            sum += probability(a, at, product, i, h, j) * (kept(a, now, lead, i, h, j) * dp - a.dots[lead * a.s * a.h + row]);
        }
        num_put(a.dbias, n, sum);
    }
}

/* dq, dk and dv by tiles without tensor cores. */
static void launch_grads(const CudaCall *c, const Attention &a)
{
    size_t shared = attention_shared(a.e, 2);
    if (a.dq.at && a.s && a.h)
        PRUN_LAUNCH(query_grads, dim3((unsigned)((a.s + WARPS - 1) / WARPS), (unsigned)a.h, (unsigned)a.lead.n), WARPS * WARP, shared,
                    c->stream, a, c->now);
    if ((a.dk.at || a.dv.at) && a.t && a.g)
        PRUN_LAUNCH(key_grads, dim3((unsigned)((a.t + WARPS - 1) / WARPS), (unsigned)a.g, (unsigned)a.lead.n), WARPS * WARP, shared,
                    c->stream, a, c->now);
}

CUDA_KERNEL(attention_grad)
{
    cudaError_t status;
    if (sdpa_attention_grad(c, &status))
        return status;
    Attention a = attention_of(c, 1, 6, {1, 2, 3, 6, 8, 4, 5, 0, RESULT(0), RESULT(1), RESULT(2)});
    a.dy = ARG(0);
    a.y = ARG(4);
    a.lse = ARG(5);
    a.dq = OUT(0);
    a.dk = OUT(1);
    a.dv = OUT(2);
    a.dbias = c->call.in->nout > 3 ? OUT(3) : Num{NULL, DT_f32};
    a.dots = reinterpret_cast<float *>(static_cast<double *>(c->call.work) + CUDA_PARTS);
    int64_t rows = (int64_t)a.s * a.h * a.lead.n, pairs = (int64_t)a.h * a.s * a.t;
    if (rows)
        PRUN_LAUNCH(query_dots, (unsigned)((rows + WARPS - 1) / WARPS), WARPS * WARP, 0, c->stream, a);
    if (a.lead.n && !flash_attention_grad(c, a))
        launch_grads(c, a);
    if (a.dbias.at && pairs)
        PRUN_LAUNCH(bias_grads, blocks_of_threads(pairs), BLOCK, 0, c->stream, a, c->now);
    return cudaGetLastError();
}
