/* The gradient of attention of bf16 by tensor cores: see flash.cuh; formulas at the head of attention_grad.cu.  dq has a kernel
 * of its own, which multiplies queries and keys once more, so that nothing is summed by atomics. */
#include "kernels/cuda/flash.cuh"

/* Others that come by at a time, and whether own rows stay in registers. */
template <int W> struct Backward {
    static constexpr int  KEYS = W <= 64 ? 64 : 32, QUERIES = W <= 64 ? 32 : 16;
    static constexpr bool QUERIES_HELD = W <= 128, KEYS_HELD = W <= 64;
};

/* Products of q and k become P as it was kept, and those of dy and v dS. */
template <int N, bool BY_KEY> static __device__ __forceinline__ void score_grads(const Attention &a, const At<SEES> &at, const CudaStep *now,
                                                                                 const Pairs &p, float (&s)[N / 8][4], float (&dp)[N / 8][4])
{
    score<N, BY_KEY>(a, at, p, s);
    unsigned bits = kept_bits<N, BY_KEY>(a, now, p);
#pragma unroll
    for (int n = 0; n < N / 8; n++) {
        float lse[2], dot[2];                        /* of a lane's two queries: its rows, or its columns here */
#pragma unroll
        for (int q = 0; q < 2; q++) {
            int i = min(query_of<BY_KEY>(p, n, BY_KEY ? q : 2 * q), a.s - 1);
            lse[q] = num_get(a.lse, at.of[SEE_LSE] + (int64_t)i * a.h + p.h);
            dot[q] = a.dots[(p.lead * a.s + i) * a.h + p.h];
        }
#pragma unroll
        for (int x = 0; x < 4; x++) {
            int q = BY_KEY ? x % 2 : x / 2;
            float plain = s[n][x] != -INFINITY ? __expf(s[n][x] - lse[q]) : 0, keep = bits >> (4 * n + x) & 1 ? a.keep_by : 0;
            s[n][x] = plain * keep;
            dp[n][x] = plain * (keep * dp[n][x] - dot[q]);
        }
    }
}

/* dq: over tiles of keys. */
template <int W> static __global__ void __launch_bounds__(WARPS * WARP, 2) flash_query_grads(Attention a, const CudaStep *now)
{
    constexpr int N = Backward<W>::KEYS, C = COLUMNS<W>;
    constexpr bool HELD = Backward<W>::QUERIES_HELD;
    PRUN_DYNAMIC_SHARED(Element, queries);
    Element *dys = queries + ROWS * W, *keys = dys + ROWS * W, *values = keys + N * W;
    int h = (int)blockIdx.y, warp = (int)threadIdx.x / WARP * OWN, first, column;
    LEADING(at, blockIdx.z)
    block_rows<W>(a.s, true, &first, &column);
    int64_t step = (int64_t)a.g * a.e, head = (int64_t)key_head(a, h) * a.e;
    int64_t query = ((int64_t)first * a.h + h) * a.e, query_step = (int64_t)a.h * a.e;
    Range range = keys_seen<N>(a, first, min(first + ROWS, a.s) - 1);
    float dq[C / 8][4] = {};
    fetch<W, ROWS>(queries, a.q, at.of[SEE_Q] + query, query_step, a.s - first, a.e);
    fetch<W, ROWS>(dys, a.dy, at.of[SEE_DY] + query, query_step, a.s - first, a.e);
    await_tiles();
    Own<W, HELD> own_q = own_rows<W, HELD>(queries), own_dy = own_rows<W, HELD>(dys);
    for (int j = range.first; j < range.end; j += N) {
        float s[N / 8][4], dp[N / 8][4];
        fetch<W, N>(keys, a.k, at.of[SEE_K] + j * step + head, step, a.t - j, a.e);
        fetch<W, N>(values, a.v, at.of[SEE_V] + j * step + head, step, a.t - j, a.e);
        await_tiles();
        multiply<W, N>(s, own_q, keys);
        multiply<W, N>(dp, own_dy, values);
        score_grads<N, false>(a, at, now, pairs_of(a, blockIdx.z, first + warp, OWN, h, j, N), s, dp);
        add_product<W, N, C>(dq, dp, keys, column);
        __syncthreads();                             /* nobody reads these tiles any more */
    }
    put_rows<C>(a.dq, at.of[SEE_DQ] + query, query_step, a.s - first, a.e, column, dq, a.scale, a.scale);
}

/* dk and dv: over tiles of queries of all heads that read the key head. */
template <int W> static __global__ void __launch_bounds__(WARPS * WARP, 2) flash_key_grads(Attention a, const CudaStep *now)
{
    constexpr int N = Backward<W>::QUERIES, C = COLUMNS<W>;
    constexpr bool HELD = Backward<W>::KEYS_HELD;
    PRUN_DYNAMIC_SHARED(Element, keys);
    Element *values = keys + ROWS * W, *queries = values + ROWS * W, *dys = queries + N * W;
    int u = (int)blockIdx.y, first, column;
    LEADING(at, blockIdx.z)
    block_rows<W>(a.t, false, &first, &column);
    int64_t key = ((int64_t)first * a.g + u) * a.e, key_step = (int64_t)a.g * a.e, step = (int64_t)a.h * a.e;
    Range range = queries_seeing<N>(a, first, min(first + ROWS, a.t) - 1);
    float dk[C / 8][4] = {}, dv[C / 8][4] = {};
    fetch<W, ROWS>(keys, a.k, at.of[SEE_K] + key, key_step, a.t - first, a.e);
    fetch<W, ROWS>(values, a.v, at.of[SEE_V] + key, key_step, a.t - first, a.e);
    await_tiles();
    Own<W, HELD> own_k = own_rows<W, HELD>(keys), own_v = own_rows<W, HELD>(values);
    for (int h = 0; h < a.h; h++)
        for (int i = range.first; key_head(a, h) == u && i < range.end; i += N) {
            float s[N / 8][4], dp[N / 8][4];
            Pairs p = pairs_of(a, blockIdx.z, i, N, h, first + (int)threadIdx.x / WARP * OWN, OWN);
            fetch<W, N>(queries, a.q, at.of[SEE_Q] + i * step + (int64_t)h * a.e, step, a.s - i, a.e);
            fetch<W, N>(dys, a.dy, at.of[SEE_DY] + i * step + (int64_t)h * a.e, step, a.s - i, a.e);
            await_tiles();
            multiply<W, N>(s, own_k, queries);
            multiply<W, N>(dp, own_v, dys);
            score_grads<N, true>(a, at, now, p, s, dp);
            add_product<W, N, C>(dv, s, dys, column);
            add_product<W, N, C>(dk, dp, queries, column);
            __syncthreads();                         /* nobody reads these tiles any more */
        }
    if (a.dk.at)
        put_rows<C>(a.dk, at.of[SEE_DK] + key, key_step, a.t - first, a.e, column, dk, a.scale, a.scale);
    if (a.dv.at)
        put_rows<C>(a.dv, at.of[SEE_DV] + key, key_step, a.t - first, a.e, column, dv, 1, 1);
}

template <int W> static void launch(const CudaCall *c, const Attention &a)
{
    size_t by_query = sizeof(Element) * W * (2 * ROWS + 2 * Backward<W>::KEYS), by_key = sizeof(Element) * W * (2 * ROWS + 2 * Backward<W>::QUERIES);
    ask_shared(flash_query_grads<W>, by_query);
    ask_shared(flash_key_grads<W>, by_key);
    if (a.dq.at && a.s && a.h)
        PRUN_LAUNCH((flash_query_grads<W>), dim3(row_blocks<W>(a.s), (unsigned)a.h, (unsigned)a.lead.n), WARPS * WARP, by_query, c->stream, a, c->now);
    if ((a.dk.at || a.dv.at) && a.t && a.g)
        PRUN_LAUNCH((flash_key_grads<W>), dim3(row_blocks<W>(a.t), (unsigned)a.g, (unsigned)a.lead.n), WARPS * WARP, by_key, c->stream, a, c->now);
}

bool flash_attention_grad(const CudaCall *c, const Attention &a)
{
    static const Width width[] = {{64, launch<64>}, {128, launch<128>}, {256, launch<256>}};
    bool fits = is_bf16(a.q) && is_bf16(a.k) && is_bf16(a.v) && is_bf16(a.dy);
    fits = fits && (!a.dq.at || is_bf16(a.dq)) && (!a.dk.at || is_bf16(a.dk)) && (!a.dv.at || is_bf16(a.dv));
    if (fits)
        launch_width(width, c, a);
    return fits;
}
