/* Sparse layers: router, dispatch, combine, load balance; what route, prob and token hold is said at the head of
 * ir/ops.def, the formulas are those of kernels/ref/experts.c.  The tokens in an expert's slots ascend, so a token's slot
 * is found by halving. */
#include "kernels/cuda/device.cuh"

struct Sparse { int64_t groups, s, d, experts, slots; };

/* From the shapes tokens[.., s, d] and slots[.., expert, slot, d]. */
static Sparse sparse_of(const Tensor *tokens, const Tensor *slots)
{
    Sparse m = {0, tokens->axis[tokens->rank - 2].local, row_length(tokens), slots->axis[slots->rank - 3].local, slots->axis[slots->rank - 2].local};
    m.groups = m.s && m.d ? tensor_elements(tokens) / (m.s * m.d) : 0;
    return m;
}

/* ---- router: a warp for each token, all its probabilities in shared memory ---- */

/* Weight of an expert before the division by their sum: its probability if it is one of the `top` best, else 0. */
static __device__ float chosen(const float *p, int64_t n, int64_t e, int64_t top)
{
    int64_t better = 0;
    for (int64_t o = 0; o < n; o++)
        better += p[o] > p[e] || (o < e && p[o] == p[e]);
    return better < top ? p[e] : 0;
}

/* Logits and probabilities are rounded to the type of `route`, which decides what is equal. */
static __global__ void __launch_bounds__(WARP) choose(Num x, Num w, Num route, Num prob, int64_t d, int64_t n, int64_t most)
{
    PRUN_DYNAMIC_SHARED(float, p);
    int64_t row = blockIdx.x;
    float top = -INFINITY, sum = 0, total = 0;
    for (int64_t e = threadIdx.x; e < n; e += WARP) {
        float logit = 0;
        for (int64_t i = 0; i < d; i++)
            logit += num_get(x, row * d + i) * num_get(w, i * n + e);
        p[e] = num_round(route.dtype, logit);
        top = fmaxf(top, p[e]);
    }
    top = warp_max(top);
    for (int64_t e = threadIdx.x; e < n; e += WARP)
        sum += expf(p[e] - top);
    sum = warp_sum(sum);
    for (int64_t e = threadIdx.x; e < n; e += WARP) {
        p[e] = num_round(route.dtype, expf(p[e] - top) / sum);
        if (prob.at)
            num_put(prob, row * n + e, p[e]);
    }
    __syncwarp();
    for (int64_t e = threadIdx.x; e < n; e += WARP)
        total += chosen(p, n, e, most);
    total = warp_sum(total);
    for (int64_t e = threadIdx.x; e < n; e += WARP)
        num_put(route, row * n + e, chosen(p, n, e, most) / total);
}

CUDA_KERNEL(router)
{
    int64_t n = row_length(c->call.argt[1]), rows = row_count(c->call.argt[0]);
    if (rows)
        PRUN_LAUNCH(choose, (unsigned)rows, WARP, (size_t)n * sizeof(float), c->stream, ARG(0), ARG(1), OUT(0), OUT(1),
                    row_length(c->call.argt[0]), n, attr_int(&c->call, "top"));
    return cudaGetLastError();
}

/* Gradient of the logits: through the weights of the chosen, their own, and the softmax. */
static __global__ void __launch_bounds__(WARP) choose_grad(Num droute, Num dprob, Num route, Num prob, Num dx, int64_t n)
{
    int64_t at = (int64_t)blockIdx.x * n;
    float total = 0, inner = 0, mean = 0;
    for (int64_t e = threadIdx.x; e < n; e += WARP) {
        total += num_get(route, at + e) != 0 ? num_get(prob, at + e) : 0;
        inner += droute.at ? num_get(droute, at + e) * num_get(route, at + e) : 0;
    }
    total = 1 / warp_sum(total);                     /* not read where nothing is chosen */
    inner = warp_sum(inner);
    for (int turn = 0; turn < 2; turn++) {
        for (int64_t e = threadIdx.x; e < n; e += WARP) {
            float p = num_get(prob, at + e), own = dprob.at ? num_get(dprob, at + e) : 0;
            if (droute.at && num_get(route, at + e) != 0)
                own += (num_get(droute, at + e) - inner) * total;
            if (turn == 0)
                mean += p * own;
            else
                num_put(dx, at + e, p * (own - mean));
        }
        if (turn == 0)
            mean = warp_sum(mean);
    }
}

CUDA_KERNEL(router_grad)
{
    int64_t n = row_length(c->call.outt[0]), rows = row_count(c->call.outt[0]);
    if (rows)
        PRUN_LAUNCH(choose_grad, (unsigned)rows, WARP, 0, c->stream, ARG(0), ARG(1), ARG(2), ARG(3), OUT(0), n);
    return cudaGetLastError();
}

/* ---- dispatch and combine ---- */

/* A block for each group and expert fills its slots in order; what is left holds zeros and token -1. */
static __global__ void __launch_bounds__(BLOCK) fill_slots(Sparse m, Num x, Num route, Num y, Num token)
{
    int64_t g = blockIdx.x / m.experts, e = blockIdx.x % m.experts, first = (int64_t)blockIdx.x * m.slots, slot = 0;
    for (int64_t from = 0; from < m.s && slot < m.slots; from += WARP) {
        int64_t s = from + threadIdx.x % WARP;
        unsigned takes = __ballot_sync(0xffffffffu, s < m.s && num_get(route, (g * m.s + s) * m.experts + e) != 0);
        for (; takes && slot < m.slots; takes &= takes - 1, slot++) {
            s = from + __ffs((int)takes) - 1;
            for ROW_STRIDE(i, m.d)
                wide_put(y, (first + slot) * m.d + i, wide_left(m.d, i), wide_get(x, (g * m.s + s) * m.d + i, wide_left(m.d, i)));
            if (threadIdx.x == 0 && token.at)
                num_put_int(token, first + slot, s);
        }
    }
    int64_t empty = (m.slots - slot) * m.d;
    for ROW_STRIDE(i, empty)
        wide_put(y, (first + slot) * m.d + i, wide_left(empty, i), Wide{});
    for (int64_t i = slot + threadIdx.x; token.at && i < m.slots; i += blockDim.x)
        num_put_int(token, first + i, -1);
}

CUDA_KERNEL(dispatch)
{
    Sparse m = sparse_of(c->call.argt[0], c->call.outt[0]);
    int64_t blocks = m.groups * m.experts;
    if (blocks)
        PRUN_LAUNCH(fill_slots, (unsigned)blocks, row_block(m.d), 0, c->stream, m, ARG(0), ARG(1), OUT(0), OUT(1));
    return cudaGetLastError();
}

/* The slot of token s among those from `first`, or -1. */
static __device__ int64_t slot_with(const Num &token, int64_t first, int64_t slots, int64_t s)
{
    int64_t low = 0, high = slots;
    while (low < high) {
        int64_t middle = (low + high) / 2, at = num_int(token, first + middle);
        if (at >= 0 && at < s)
            low = middle + 1;
        else
            high = middle;
    }
    return low < slots && num_int(token, first + low) == s ? low : -1;
}

/* A block for each token: the rows of its slots, expert after expert, times its weight there; without `route`, times 1. */
static __global__ void __launch_bounds__(BLOCK) gather_slots(Sparse m, Num y, Num route, Num token, Num out)
{
    int64_t g = blockIdx.x / m.s, s = blockIdx.x % m.s;
    for ROW_STRIDE(i, m.d) {
        int left = wide_left(m.d, i);
        Wide sum = {};
        for (int64_t e = 0; e < m.experts; e++) {
            int64_t first = (g * m.experts + e) * m.slots, slot = slot_with(token, first, m.slots, s);
            if (slot < 0)
                continue;
            float weight = route.at ? num_get(route, (int64_t)blockIdx.x * m.experts + e) : 1;
            Wide w = wide_get(y, (first + slot) * m.d + i, left);
            EACH_OF_WIDE(sum.of[k] += weight * w.of[k])
        }
        wide_put(out, (int64_t)blockIdx.x * m.d + i, left, sum);
    }
}

CUDA_KERNEL(dispatch_grad)
{
    Sparse m = sparse_of(c->call.outt[0], c->call.argt[0]);
    if (m.groups)
        PRUN_LAUNCH(gather_slots, (unsigned)(m.groups * m.s), row_block(m.d), 0, c->stream, m, ARG(0), (Num{NULL, DT_f32}), ARG(1), OUT(0));
    return cudaGetLastError();
}

CUDA_KERNEL(combine)
{
    Sparse m = sparse_of(c->call.outt[0], c->call.argt[0]);
    if (m.groups)
        PRUN_LAUNCH(gather_slots, (unsigned)(m.groups * m.s), row_block(m.d), 0, c->stream, m, ARG(0), ARG(1), ARG(2), OUT(0));
    return cudaGetLastError();
}

/* A block for each slot: the gradients of its row and of its token's weight. */
static __global__ void __launch_bounds__(BLOCK) slot_grads(Sparse m, Num dout, Num y, Num route, Num token, Num dy, Num droute)
{
    int64_t at = blockIdx.x, s = num_int(token, at), g = at / (m.experts * m.slots), e = at / m.slots % m.experts;
    int64_t row = (g * m.s + s) * m.experts + e, from = (g * m.s + s) * m.d;
    float sum = 0, weight = s < 0 ? 0 : num_get(route, row);
    for ROW_STRIDE(i, m.d) {
        int left = wide_left(m.d, i);
        Wide d = {}, row_of_y = {};
        if (s >= 0) {
            d = wide_get(dout, from + i, left);
            row_of_y = wide_get(y, at * m.d + i, left);
        }
        EACH_OF_WIDE(sum += d.of[k] * row_of_y.of[k]; d.of[k] *= weight)
        if (dy.at)
            wide_put(dy, at * m.d + i, left, d);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0 && droute.at && s >= 0)
        num_put(droute, row, sum);
}

CUDA_KERNEL(combine_grad)
{
    Sparse m = sparse_of(c->call.argt[0], c->call.argt[1]);
    int64_t slots = m.groups * m.experts * m.slots;
    cudaError_t e = clear(c, 1);
    if (!e && slots)
        PRUN_LAUNCH(slot_grads, (unsigned)slots, row_block(m.d), 0, c->stream, m, ARG(0), ARG(1), ARG(2), ARG(3), OUT(0), OUT(1));
    return e ? e : cudaGetLastError();
}

/* ---- load balance ---- */

/* Part of the tokens of a sequence that chose expert e; by a block.  In f32 counts are exact to 2^24. */
static __device__ float share(const Num &route, int64_t first, int64_t s, int64_t n, int64_t e)
{
    float count = 0;
    for (int64_t i = threadIdx.x; i < s; i += blockDim.x)
        count += num_get(route, first + i * n + e) != 0;
    return block_sum(count) / (float)s;
}

static __global__ void __launch_bounds__(BLOCK) balance(Num route, Num prob, Num y, int64_t s, int64_t n)
{
    int64_t first = (int64_t)blockIdx.x * s * n;
    float sum = 0;
    for (int64_t e = 0; e < n; e++) {
        float part = share(route, first, s, n, e), p = 0;
        for (int64_t i = threadIdx.x; i < s; i += blockDim.x)
            p += num_get(prob, first + i * n + e);
        sum += part * p;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        num_put(y, blockIdx.x, sum * (float)n / (float)s);
}

CUDA_KERNEL(load_balance)
{
    const Tensor *t = c->call.argt[0];
    int64_t n = row_length(t), s = t->axis[t->rank - 2].local, groups = tensor_elements(c->call.outt[0]);
    if (groups)
        PRUN_LAUNCH(balance, (unsigned)groups, row_block(s * WIDE), 0, c->stream, ARG(0), ARG(1), OUT(0), s, n);
    return cudaGetLastError();
}

/* A block for each group and expert. */
static __global__ void __launch_bounds__(BLOCK) balance_grad(Num dy, Num route, Num dprob, int64_t s, int64_t n)
{
    int64_t g = blockIdx.x / n, e = blockIdx.x % n, first = g * s * n;
    float value = num_get(dy, g) * share(route, first, s, n, e) * (float)n / (float)s;
    for (int64_t i = threadIdx.x; i < s; i += blockDim.x)
        num_put(dprob, first + i * n + e, value);
}

CUDA_KERNEL(load_balance_grad)
{
    const Tensor *t = c->call.argt[1];
    int64_t n = row_length(t), s = t->axis[t->rank - 2].local, blocks = s ? tensor_elements(c->call.outt[0]) / s : 0;
    if (blocks)
        PRUN_LAUNCH(balance_grad, (unsigned)blocks, row_block(s * WIDE), 0, c->stream, ARG(0), ARG(1), OUT(0), s, n);
    return cudaGetLastError();
}
