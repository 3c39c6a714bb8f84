/* Look-up in a table, of which a rank may hold some rows, and its gradient.
 *
 * The gradient is deterministic without atomics, lists or scratch: the first token that has an id adds up the gradients
 * of all tokens with that id, in their order.  That compares ids in pairs, 32 at a time: for 16384 tokens 4 million
 * comparisons of a warp for each strip of columns. */
#include "kernels/cuda/device.cuh"

struct Table {
    Loop<2> tokens;                   /* operands: ids, the tensor with a row for each token */
    Num     ids, table, rows;
    int64_t origin, valid, d, stride; /* first row of this rank, and how many there are; stride: between a row's elements in `rows` */
};

static Table table_of(const CudaCall *c, const Tensor *table, const int (&seen)[2])
{
    Table t;
    memset(&t, 0, sizeof t);
    t.tokens = loop_over<2>(&c->call, arg_factors(&c->call, 0), seen, false);
    t.ids = ARG(0);
    t.origin = table->axis[0].origin;
    t.valid = place_valid(&table->axis[0]);
    t.d = row_length(table);
    return t;
}

/* Local row of a token's id, or -1: another rank's. */
static __device__ __forceinline__ int64_t table_row(const Table &t, int64_t id)
{
    int64_t row = id - t.origin;
    return row >= 0 && row < t.valid ? row : -1;
}

static __global__ void __launch_bounds__(BLOCK) look_up(Table t)
{
    At<2> at = loop_at(t.tokens, blockIdx.x);
    int64_t row = table_row(t, num_int(t.ids, at.of[0]));
    for ROW_STRIDE(i, t.d) {
        int left = wide_left(t.d, i);
        Wide w = {};
        if (row >= 0)
            w = wide_get(t.table, row * t.d + i, left);
        if (t.stride == 1)
            wide_put(t.rows, at.of[1] + i, left, w);
        else
            EACH_OF_WIDE(if (k < left) num_put(t.rows, at.of[1] + (i + k) * t.stride, w.of[k]))
    }
}

CUDA_KERNEL(embed)
{
    Table t = table_of(c, c->call.argt[1], {0, RESULT(0)});
    t.table = ARG(1);
    t.rows = OUT(0);
    t.stride = out_stride(&c->call, 0, c->call.in->arg_factor[1][1]);
    if (t.tokens.n)
        PRUN_LAUNCH(look_up, (unsigned)t.tokens.n, row_block(t.d), 0, c->stream, t);
    return cudaGetLastError();
}

/* Whether a token before `token` has this id; by a warp. */
static __device__ bool seen_before(const Table &t, int64_t token, int64_t id)
{
    for (int64_t from = 0; from < token; from += WARP) {
        int64_t i = from + threadIdx.x % WARP;
        if (__any_sync(0xffffffffu, i < token && num_int(t.ids, loop_at(t.tokens, i).of[0]) == id))
            return true;
    }
    return false;
}

/* A block of one warp: a token and a strip of columns, one to a lane. */
static __global__ void __launch_bounds__(WARP) add_up(Table t, bool adds)
{
    int64_t token = blockIdx.x, column = (int64_t)blockIdx.y * WARP + threadIdx.x, id = num_int(t.ids, loop_at(t.tokens, token).of[0]);
    int64_t row = table_row(t, id);
    float sum = 0;
    if (row < 0 || seen_before(t, token, id))
        return;
    for (int64_t from = token; from < t.tokens.n; from += WARP) {
        int64_t i = from + threadIdx.x;
        unsigned same = __ballot_sync(0xffffffffu, i < t.tokens.n && num_int(t.ids, loop_at(t.tokens, i).of[0]) == id);
        for (; same; same &= same - 1) {
            At<2> at = loop_at(t.tokens, from + __ffs((int)same) - 1);
            sum += column < t.d ? num_get(t.rows, at.of[1] + column * t.stride) : 0;
        }
    }
    if (column < t.d)
        num_give(t.table, row * t.d + column, sum, adds);
}

CUDA_KERNEL(embed_grad)
{
    Table t = table_of(c, c->call.outt[0], {0, 1});
    t.table = OUT(0);
    t.rows = ARG(1);
    t.stride = arg_stride(&c->call, 1, c->call.in->out_factor[0][1]);
    bool adds = kcall_adds(&c->call, 0);
    cudaError_t e = adds ? cudaSuccess : clear(c, 0);
    if (!e && t.tokens.n && t.d)
        PRUN_LAUNCH(add_up, dim3((unsigned)t.tokens.n, (unsigned)((t.d + WARP - 1) / WARP)), WARP, 0, c->stream, t, adds);
    return e ? e : cudaGetLastError();
}
