/* Convolution of images and its gradients, in direct loops: indices and formulas as in kernels/ref/conv.c. */
#include "kernels/cuda/device.cuh"

struct Conv {
    int64_t images, c, h, w, out, row, col, kh, kw, stride, pad;
    int64_t row0, col0;               /* where the rows and columns of the result start in the whole one */
};

/* From the shapes x[.., c, h, w], w[out, c, kh, kw] and y[.., out, row, col]. */
static Conv conv_of(const CudaCall *c, const Tensor *x, const Tensor *w, const Tensor *y)
{
    const AxisPlace *ax = &x->axis[x->rank - 3], *ay = &y->axis[y->rank - 3];
    Conv v = {0, ax[0].local, ax[1].local, ax[2].local, ay[0].local, ay[1].local, ay[2].local, w->axis[2].local, w->axis[3].local,
              attr_int(&c->call, "stride"), attr_int(&c->call, "pad"), place_global(&ay[1], 0, 0), place_global(&ay[2], 0, 0)};
    v.images = tensor_elements(x) / (v.c * v.h * v.w);
    return v;
}

/* Offset in its image of the pixel under tap (p, q) at place (i, j); -1: padding. */
static __device__ __forceinline__ int64_t pixel(const Conv &v, int64_t ch, int64_t i, int64_t j, int64_t p, int64_t q)
{
    int64_t y = (v.row0 + i) * v.stride + p - v.pad, x = (v.col0 + j) * v.stride + q - v.pad;
    return y < 0 || y >= v.h || x < 0 || x >= v.w ? -1 : (ch * v.h + y) * v.w + x;
}

static __device__ __forceinline__ int64_t tap(const Conv &v, int64_t o, int64_t ch, int64_t p, int64_t q)
{
    return ((o * v.c + ch) * v.kh + p) * v.kw + q;
}

/* A thread for each element of the result. */
static __global__ void __launch_bounds__(BLOCK) convolve(Conv v, Num y, Num x, Num w, Num b)
{
    for GRID_STRIDE(n, v.images * v.out * v.row * v.col) {
        int64_t j = n % v.col, i = n / v.col % v.row, o = n / (v.col * v.row) % v.out;
        int64_t image = n / (v.col * v.row * v.out) * v.c * v.h * v.w;
        float sum = b.at ? num_get(b, o) : 0;
        for (int64_t ch = 0; ch < v.c; ch++)
            for (int64_t k = 0; k < v.kh * v.kw; k++) {
                int64_t at = pixel(v, ch, i, j, k / v.kw, k % v.kw);
                if (at >= 0)
                    sum += num_get(x, image + at) * num_get(w, tap(v, o, ch, k / v.kw, k % v.kw));
            }
        num_put(y, n, sum);
    }
}

CUDA_KERNEL(conv2d)
{
    Conv v = conv_of(c, c->call.argt[0], c->call.argt[1], c->call.outt[0]);
    int64_t n = tensor_elements(c->call.outt[0]);
    if (n)
        PRUN_LAUNCH(convolve, blocks_of_threads(n), BLOCK, 0, c->stream, v, OUT(0), ARG(0), ARG(1), c->call.in->narg > 2 ? ARG(2) : Num{NULL, DT_f32});
    return cudaGetLastError();
}

/* The place of the result along one axis that sees pixel `at` under tap p; -1: none of this rank. */
static __device__ __forceinline__ int64_t place_under(const Conv &v, int64_t at, int64_t p, int64_t first, int64_t n)
{
    int64_t steps = at + v.pad - p, place = steps / v.stride - first;
    return steps < 0 || steps % v.stride != 0 || place < 0 || place >= n ? -1 : place;
}

/* A thread for each pixel: over all places that see it. */
static __global__ void __launch_bounds__(BLOCK) pixel_grads(Conv v, Num dx, Num dy, Num w)
{
    for GRID_STRIDE(n, v.images * v.c * v.h * v.w) {
        int64_t x = n % v.w, y = n / v.w % v.h, ch = n / (v.w * v.h) % v.c;
        int64_t image = n / (v.w * v.h * v.c) * v.out * v.row * v.col;
        float sum = 0;
        for (int64_t k = 0; k < v.kh * v.kw; k++) {
            int64_t i = place_under(v, y, k / v.kw, v.row0, v.row), j = place_under(v, x, k % v.kw, v.col0, v.col);
            for (int64_t o = 0; i >= 0 && j >= 0 && o < v.out; o++)
                sum += num_get(dy, image + (o * v.row + i) * v.col + j) * num_get(w, tap(v, o, ch, k / v.kw, k % v.kw));
        }
        num_put(dx, n, sum);
    }
}

CUDA_KERNEL(conv2d_grad_x)
{
    Conv v = conv_of(c, c->call.outt[0], c->call.argt[1], c->call.argt[0]);
    int64_t n = tensor_elements(c->call.outt[0]);
    if (n)
        PRUN_LAUNCH(pixel_grads, blocks_of_threads(n), BLOCK, 0, c->stream, v, OUT(0), ARG(0), ARG(1));
    return cudaGetLastError();
}

/* A block for each tap: over all images and places. */
static __global__ void __launch_bounds__(BLOCK) tap_grads(Conv v, Num dw, Num dy, Num x, bool adds)
{
    int64_t q = blockIdx.x % v.kw, p = blockIdx.x / v.kw % v.kh, ch = blockIdx.x / (v.kw * v.kh) % v.c, o = blockIdx.x / (v.kw * v.kh * v.c);
    int64_t places = v.row * v.col;
    float sum = 0;
    for (int64_t n = threadIdx.x; n < v.images * places; n += blockDim.x) {
        int64_t i = n % places, image = n / places, at = pixel(v, ch, i / v.col, i % v.col, p, q);
        if (at >= 0)
            sum += num_get(dy, (image * v.out + o) * places + i) * num_get(x, image * v.c * v.h * v.w + at);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        num_give(dw, blockIdx.x, sum, adds);
}

CUDA_KERNEL(conv2d_grad_w)
{
    Conv v = conv_of(c, c->call.argt[1], c->call.outt[0], c->call.argt[0]);
    int64_t n = tensor_elements(c->call.outt[0]);
    if (n)
        PRUN_LAUNCH(tap_grads, (unsigned)n, row_block(v.images * v.row * v.col * WIDE), 0, c->stream, v, OUT(0), ARG(0), ARG(1), kcall_adds(&c->call, 0));
    return cudaGetLastError();
}
