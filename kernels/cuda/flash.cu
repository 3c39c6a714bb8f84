/* Attention of bf16 by tensor cores: see flash.cuh. */
#include "kernels/cuda/flash.cuh"

/* Keys that come by at a time, and whether the queries stay in registers; for W columns. */
template <int W> struct Forward {
    static constexpr bool HELD = W <= 128;
    static constexpr int  KEYS = W <= 128 ? 64 : 32;
    static constexpr int  TILES = HELD ? 2 * KEYS : ROWS + 2 * KEYS;      /* rows of shared memory; queries that are held go through those of v */
};

/* What a lane knows of its two rows so far; of `sum` only its own columns. */
template <int W> struct Running {
    float top[2], sum[2];
    float value[COLUMNS<W> / 8][4];   /* sum of exp(score - top) kept v */
};

/* A tile's scores join in: they become exp(score - top), and what is there shrinks to the new maximum. */
template <int W, int N> static __device__ __forceinline__ void join(Running<W> &r, float (&s)[N / 8][4])
{
    float top[2] = {r.top[0], r.top[1]}, shrink[2];
    EACH_OF_LANE(N, top[x / 2] = fmaxf(top[x / 2], s[n][x]))
#pragma unroll
    for (int i = 0; i < 2; i++) {
        top[i] = fmaxf(top[i], __shfl_xor_sync(0xffffffffu, top[i], 1));
        top[i] = fmaxf(top[i], __shfl_xor_sync(0xffffffffu, top[i], 2));
        float from = top[i] == -INFINITY ? 0 : top[i];
        shrink[i] = __expf(r.top[i] - from);
        r.top[i] = top[i];
        r.sum[i] *= shrink[i];
        top[i] = from;
    }
    EACH_OF_LANE(N, s[n][x] = __expf(s[n][x] - top[x / 2]); r.sum[x / 2] += s[n][x])
    EACH_OF_LANE(COLUMNS<W>, r.value[n][x] *= shrink[x / 2])
}

/* Values over sums, and the log-sum-exp of each row. */
template <int W> static __device__ __forceinline__ void finish(const Attention &a, const At<SEES> &at, Running<W> &r, int first, int h, int column)
{
    float by[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        r.sum[i] += __shfl_xor_sync(0xffffffffu, r.sum[i], 1);
        r.sum[i] += __shfl_xor_sync(0xffffffffu, r.sum[i], 2);
        by[i] = r.sum[i] > 0 ? 1 / r.sum[i] : 0;
        int query = first + (int)threadIdx.x / WARP * OWN + lane_row(2 * i);
        if (query < a.s && threadIdx.x % 4 == 0 && column == 0 && a.lse.at)
            num_put(a.lse, at.of[SEE_LSE] + (int64_t)query * a.h + h, r.sum[i] > 0 ? r.top[i] + logf(r.sum[i]) : -INFINITY);
    }
    put_rows<COLUMNS<W>>(a.y, at.of[SEE_Y] + ((int64_t)first * a.h + h) * a.e, (int64_t)a.h * a.e, a.s - first, a.e, column, r.value, by[0], by[1]);
}

template <int W> static __global__ void __launch_bounds__(WARPS * WARP, 2) flash_attend(Attention a, const CudaStep *now)
{
    constexpr int KEYS = Forward<W>::KEYS;
    PRUN_DYNAMIC_SHARED(Element, keys);
    Element *values = keys + KEYS * W, *queries = Forward<W>::HELD ? values : values + KEYS * W;
    int h = (int)blockIdx.y, warp = (int)threadIdx.x / WARP * OWN, first, column;
    int64_t lead = blockIdx.z, step = (int64_t)a.g * a.e, head = (int64_t)key_head(a, h) * a.e;
    LEADING(at, lead)
    block_rows<W>(a.s, true, &first, &column);
    Range range = keys_seen<KEYS>(a, first, min(first + ROWS, a.s) - 1);
    Running<W> r = {{-INFINITY, -INFINITY}, {0, 0}, {}};
    fetch<W, ROWS>(queries, a.q, at.of[SEE_Q] + ((int64_t)first * a.h + h) * a.e, (int64_t)a.h * a.e, a.s - first, a.e);
    fetch<W, KEYS>(keys, a.k, at.of[SEE_K] + range.first * step + head, step, a.t - range.first, a.e);
    await_tiles();
    Own<W, Forward<W>::HELD> own = own_rows<W, Forward<W>::HELD>(queries);
    __syncthreads();
    for (int j = range.first; j < range.end; j += KEYS) {
        float s[KEYS / 8][4];
        Pairs p = pairs_of(a, lead, first + warp, OWN, h, j, KEYS);
        fetch<W, KEYS>(values, a.v, at.of[SEE_V] + j * step + head, step, a.t - j, a.e);
        multiply<W, KEYS>(s, own, keys);
        await_tiles();                               /* the values are there, and nobody reads these keys any more */
        if (j + KEYS < range.end)
            fetch<W, KEYS>(keys, a.k, at.of[SEE_K] + (j + KEYS) * step + head, step, a.t - j - KEYS, a.e);
        score<KEYS, false>(a, at, p, s);
        join<W, KEYS>(r, s);
        unsigned keep = kept_bits<KEYS, false>(a, now, p);
        EACH_OF_LANE(KEYS, s[n][x] = keep >> (4 * n + x) & 1 ? s[n][x] * a.keep_by : 0)
        add_product<W, KEYS, COLUMNS<W>>(r.value, s, values, column);
        await_tiles();                               /* the next keys are there, and nobody reads these values */
    }
    finish<W>(a, at, r, first, h, column);
}

template <int W> static void launch(const CudaCall *c, const Attention &a)
{
    size_t shared = sizeof(Element) * W * Forward<W>::TILES;
    ask_shared(flash_attend<W>, shared);
    PRUN_LAUNCH((flash_attend<W>), dim3(row_blocks<W>(a.s), (unsigned)a.h, (unsigned)a.lead.n), WARPS * WARP, shared, c->stream, a, c->now);
}

bool flash_attention(const CudaCall *c, const Attention &a)
{
    static const Width width[] = {{64, launch<64>}, {128, launch<128>}, {256, launch<256>}};
    if (!is_bf16(a.q) || !is_bf16(a.k) || !is_bf16(a.v) || !is_bf16(a.y))
        return false;
    launch_width(width, c, a);
    return true;
}
