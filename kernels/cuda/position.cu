/* Positions: rotary embedding (Su et al. 2021, pairs i and i + e/2) and the relative bias of T5 (Raffel et al. 2020). */
#include "kernels/cuda/device.cuh"
#include "kernels/relative.h"

/* A slot: up to WIDE neighbouring pairs of one position.  Their angles cost far more than the turn itself, f64 among it, and all heads share them,
 * and all samples unless each has positions of its own.  So a block computes those of WARP slots, each thread one, and then turns the rows
 * that share them, a slot by each lane and a row by each warp at a time. */
struct Turn {
    Loop<4>   slots;                  /* operands: y, x, the position (of those given, or along its axis), the pair */
    Loop<2>   rows;                   /* what shares a position; operands: y, x */
    int64_t   half;
    AxisPlace place;                  /* of the positions, where none are given */
    Num       y, x, given;
    double    sign, log2_base;
};

/* Rows are walked by as many blocks side by side as make this many in all, where there are rows for them; but by no more than TURN_PARTS. */
enum { TURN_BLOCKS = 1024, TURN_PARTS = 64, TURN_ROWS = BLOCK / WARP };
static_assert(TURN_ROWS == WIDE, "a warp for each pair of a slot");

/* position * base^(-2i/e) needs f64: positions go to 10^6, and a turn is all that f32 may lose against. */
static __device__ __forceinline__ float turn_angle(const Turn &t, int64_t position, int64_t i)
{
    double turns = t.sign * (double)position * exp2(-(double)i / (double)t.half * t.log2_base) * 0.15915494309189535;      /* 1 / (2 pi) */
    return (float)((turns - rint(turns)) * 6.283185307179586);
}

static __global__ void __launch_bounds__(BLOCK) turn(Turn t, const CudaStep *now)
{
    __shared__ float cosines[WIDE][WARP], sines[WIDE][WARP];
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    int64_t slot = (int64_t)blockIdx.x * WARP + lane;
    At<4> at = loop_at(t.slots, slot < t.slots.n ? slot : 0);
    int64_t i = at.of[3], position = t.given.at ? num_int(t.given, at.of[2]) : place_global(&t.place, at.of[2], now->micro);
    float angle = turn_angle(t, position, i + warp);
    cosines[warp][lane] = cosf(angle);
    sines[warp][lane] = sinf(angle);
    __syncthreads();
    if (slot >= t.slots.n)
        return;
    Wide cosine, sine;
    EACH_OF_WIDE(cosine.of[k] = cosines[k][lane]; sine.of[k] = sines[k][lane])
    int n = wide_left(t.half, i);
    for (int64_t r = (int64_t)blockIdx.y * TURN_ROWS + warp; r < t.rows.n; r += (int64_t)gridDim.y * TURN_ROWS) {
        At<2> row = loop_at(t.rows, r);
        int64_t y = at.of[0] + row.of[0], x = at.of[1] + row.of[1];
        Wide a = wide_get(t.x, x, n), b = wide_get(t.x, x + t.half, n), low, high;
        EACH_OF_WIDE(low.of[k] = a.of[k] * cosine.of[k] - b.of[k] * sine.of[k]; high.of[k] = b.of[k] * cosine.of[k] + a.of[k] * sine.of[k])
        wide_put(t.y, y, n, low);
        wide_put(t.y, y + t.half, n, high);
    }
}

/* The slots of all positions: along the factors of a set, s among them. */
static Loop<4> turn_slots(const KCall *k, FactorSet set, int s, bool given)
{
    Loop<4> l;
    memset(&l, 0, sizeof l);
    l.n = 1;
    for (int f = 0; f < k->in->nfactor; f++) {
        int64_t step[4] = {out_stride(k, 0, f), arg_stride(k, 0, f), given ? arg_stride(k, 1, f) : f == s, 0};
        if (set >> f & 1)
            loop_append(&l, k->in->extent[f], step);
    }
    int64_t step[4] = {WIDE, WIDE, 0, WIDE};
    loop_append(&l, (row_length(k->argt[0]) / 2 + WIDE - 1) / WIDE, step);
    return l;
}

static cudaError_t launch_turn(const CudaCall *c, double sign)
{
    const KCall *k = &c->call;
    const Tensor *t = k->argt[0];
    int s = k->in->arg_factor[0][t->rank - 3], e = k->in->arg_factor[0][t->rank - 1];
    FactorSet all = arg_factors(k, 0) & ~(1u << e), own = 1u << s | (arg_factors(k, 1) & all);
    Turn p;
    memset(&p, 0, sizeof p);
    p.half = row_length(t) / 2;
    p.rows = loop_over<2>(k, all & ~own, {RESULT(0), 0}, true);
    p.place = *factor_place(k, s);
    p.y = OUT(0);
    p.x = ARG(0);
    p.given = k->in->narg > 1 ? ARG(1) : Num{NULL, DT_i32};
    p.slots = turn_slots(k, own, s, p.given.at != NULL);
    p.sign = sign;
    p.log2_base = log2(attr_real(k, "base"));
    if (p.slots.n == 0 || p.rows.n == 0)
        return cudaGetLastError();
    int64_t across = (p.slots.n + WARP - 1) / WARP, parts = (p.rows.n + TURN_ROWS - 1) / TURN_ROWS;
    unsigned down = blocks_for(parts, blocks_for((TURN_BLOCKS + across - 1) / across, TURN_PARTS));
    PRUN_LAUNCH(turn, dim3((unsigned)across, down), BLOCK, 0, c->stream, p, c->now);
    return cudaGetLastError();
}

CUDA_KERNEL(rope)
{
    return launch_turn(c, 1);
}

CUDA_KERNEL(rope_grad)
{
    return launch_turn(c, -1);
}

/* ---- relative bias: [h, s, t] from w[bucket, h] ---- */

struct Relative {
    int64_t h, s, t, ahead;           /* ahead: of key 0 before query 0 */
    RelativeBuckets buckets;
};

static Relative relative_of(const CudaCall *c, const AxisPlace *axis)
{
    return Relative{axis[0].local, axis[1].local, axis[2].local, place_global(&axis[2], 0, 0) - place_global(&axis[1], 0, 0),
                    {attr_int(&c->call, "buckets"), attr_int(&c->call, "reach"), attr_bool(&c->call, "two_way")}};
}

static __global__ void __launch_bounds__(BLOCK) relative_values(Relative r, Num y, Num w)
{
    for GRID_STRIDE(n, r.h * r.s * r.t) {
        int64_t j = n % r.t, i = n / r.t % r.s, h = n / (r.t * r.s);
        num_put(y, n, num_get(w, relative_bucket(r.buckets, r.ahead + j - i) * r.h + h));
    }
}

CUDA_KERNEL(relative_bias)
{
    Relative r = relative_of(c, c->call.outt[0]->axis);
    int64_t n = r.h * r.s * r.t;
    if (n)
        PRUN_LAUNCH(relative_values, blocks_of_threads(n), BLOCK, 0, c->stream, r, OUT(0), ARG(0));
    return cudaGetLastError();
}

/* A block for each bucket and head: its threads sum the diagonals whose distance is in the bucket. */
static __global__ void __launch_bounds__(BLOCK) relative_sums(Relative r, Num dw, Num dy, bool adds)
{
    int64_t bucket = blockIdx.x, h = blockIdx.y;
    float sum = 0;
    for (int64_t d = threadIdx.x; d < r.s + r.t - 1; d += blockDim.x) {
        int64_t ahead = d - (r.s - 1);               /* j - i, all along the diagonal */
        if (relative_bucket(r.buckets, r.ahead + ahead) != bucket)
            continue;
        for (int64_t i = ahead < 0 ? -ahead : 0; i < r.s && i + ahead < r.t; i++)
            sum += num_get(dy, (h * r.s + i) * r.t + i + ahead);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        num_give(dw, bucket * r.h + h, sum, adds);
}

CUDA_KERNEL(relative_bias_grad)
{
    Relative r = relative_of(c, c->call.argt[0]->axis);
    if (r.h)
        PRUN_LAUNCH(relative_sums, dim3((unsigned)r.buckets.n, (unsigned)r.h), 128, 0, c->stream, r, OUT(0), ARG(0), kcall_adds(&c->call, 0));
    return cudaGetLastError();
}
