/* Positions: rotary embedding (Su et al. 2021, pairs i and i + e/2) and the relative bias of T5 (Raffel et al. 2020). */
#include "kernels/cuda/device.cuh"
#include "kernels/relative.h"

struct Turn {
    Loop<3>   rows;                   /* all factors but the width and the positions; operands: y, x, given positions */
    int64_t   s, step[3];             /* positions, and the operands' strides along them */
    int64_t   half;
    AxisPlace place;                  /* of the positions, where none are given */
    Num       y, x, given;
    double    sign, log2_base;
};

/* The angle, position * base^(-2i/e), needs f64: positions go to 10^6, and a turn is all that f32 may lose against. */
static __global__ void __launch_bounds__(BLOCK) turn(Turn t, const CudaStep *now)
{
    for GRID_STRIDE(n, t.rows.n * t.s * t.half) {
        int64_t i = n % t.half, r = n / t.half, s = r % t.s;
        At<3> at = loop_at(t.rows, r / t.s);
        int64_t y = at.of[0] + s * t.step[0] + i, x = at.of[1] + s * t.step[1] + i;
        int64_t position = t.given.at ? num_int(t.given, at.of[2] + s * t.step[2]) : place_global(&t.place, s, now->micro);
        double turns = t.sign * (double)position * exp2(-(double)i / (double)t.half * t.log2_base) * 0.15915494309189535;      /* 1 / (2 pi) */
        float angle = (float)((turns - rint(turns)) * 6.283185307179586), sine = sinf(angle), cosine = cosf(angle);
        float a = num_get(t.x, x), b = num_get(t.x, x + t.half);
        num_put(t.y, y, a * cosine - b * sine);
        num_put(t.y, y + t.half, b * cosine + a * sine);
    }
}

static cudaError_t launch_turn(const CudaCall *c, double sign)
{
    const KCall *k = &c->call;
    const Tensor *t = k->argt[0];
    int s = k->in->arg_factor[0][t->rank - 3], e = k->in->arg_factor[0][t->rank - 1];
    Turn p;
    memset(&p, 0, sizeof p);
    p.rows = loop_over<3>(k, arg_factors(k, 0) & ~(1u << e) & ~(1u << s), {RESULT(0), 0, 1}, false);
    p.s = k->in->extent[s];
    for (int i = 0; i < 3; i++)
        p.step[i] = operand_stride(k, i == 0 ? RESULT(0) : i - 1, s);
    p.half = row_length(t) / 2;
    p.place = *factor_place(k, s);
    p.y = OUT(0);
    p.x = ARG(0);
    p.given = k->in->narg > 1 ? ARG(1) : Num{NULL, DT_i32};
    p.sign = sign;
    p.log2_base = log2(attr_real(k, "base"));
    int64_t n = p.rows.n * p.s * p.half;
    if (n)
        PRUN_LAUNCH(turn, blocks_of_threads(n), BLOCK, 0, c->stream, p, c->now);
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
