/* attention.cuh -- what the kernels of attention and of its gradient share; private to kernels/cuda.
 *
 * softmax(scale q k^T + bias + mask) v and its gradient by the saved log-sum-exp, natural and of scaled scores (Rabe,
 * Staats 2021; Dao et al. 2022).  A warp has a query (or a key, for dk and dv), a block four of them that read the same tiles
 * of 32 rows in shared memory; a lane scores a row of the tile against its warp's vector, and owns every 32nd column of its sum. */
#ifndef KERNELS_CUDA_ATTENTION_CUH
#define KERNELS_CUDA_ATTENTION_CUH

#include "kernels/cuda/device.cuh"

#define _Noreturn __attribute__((noreturn))
extern "C" {
#include "kernels/cuda/sdpa.h"
#include "kernels/heads.h"
}
#undef _Noreturn

constexpr int WARPS = 4, TILE = WARP, STRIPS = CUDA_HEAD_MOST / WARP;

/* Operands of the loop over leading indices. */
enum { SEE_Q, SEE_K, SEE_V, SEE_MASK, SEE_DOC, SEE_Y, SEE_LSE, SEE_DY, SEE_DQ, SEE_DK, SEE_DV, SEES };

struct Attention {
    Loop<SEES> lead;
    Num        q, k, v, mask, bias, doc, y, lse, dy, dq, dk, dv, dbias;
    float     *dots;                  /* dy . y of each query and head, in the order of lse's rows of each leading index */
    int        s, h, e, t, g, group;  /* group: query heads that read a key head, in the whole tensor */
    AxisPlace  query, key, head, key_head;
    float      scale, keep_by;        /* keep_by: 1 / (1 - dropout) */
    bool       causal;
    int64_t    window;
    uint64_t   threshold;             /* of dropout; 0: none */
    uint32_t   random;
    int        rank;
    AxisPlace  matrix[MAX_RANK];      /* places of all probabilities */
};

/* Of a call whose q, k and v begin at argument `q` and mask, bias and doc at `mask`. */
static inline Attention attention_of(const CudaCall *c, int q, int mask, const int (&seen)[SEES])
{
    Heads n = heads_of(&c->call, q, mask + 2);
    Attention a;
    memset(&a, 0, sizeof a);
    a.lead = loop_over<SEES>(&c->call, heads_leading(&c->call, q), seen, false);
    a.q = ARG(q);
    a.k = ARG(q + 1);
    a.v = ARG(q + 2);
    a.mask = ARG(mask);
    a.bias = ARG(mask + 1);
    a.doc = ARG(mask + 2);
    a.s = (int)n.s;
    a.h = (int)n.h;
    a.e = (int)n.e;
    a.t = (int)n.t;
    a.g = (int)n.g;
    a.group = (int)(n.head.global / n.key_head.global);
    a.query = n.query;
    a.key = n.key;
    a.head = n.head;
    a.key_head = n.key_head;
    a.scale = (float)n.scale;
    a.keep_by = (float)(1 / (1 - n.dropout));
    a.causal = n.causal;
    a.window = n.window;
    a.threshold = dropout_threshold(n.dropout);
    a.random = n.random;
    a.rank = n.matrix.rank;
    memcpy(a.matrix, n.matrix.axis, sizeof a.matrix);
    return a;
}

/* The key head that query head h reads, both by local number. */
static __device__ __forceinline__ int key_head(const Attention &a, int h)
{
    return (int)((a.head.origin + h) / a.group - a.key_head.origin);
}

/* By position, mask and document. */
static __device__ __forceinline__ bool visible(const Attention &a, const At<SEES> &at, int i, int j)
{
    int64_t query = place_global(&a.query, i, 0), key = place_global(&a.key, j, 0);
    if ((a.causal && key > query) || (a.window && key <= query - a.window))
        return false;
    if (a.mask.at && num_int(a.mask, at.of[SEE_MASK] + j) == 0)
        return false;
    return !a.doc.at || num_int(a.doc, at.of[SEE_DOC] + j) == num_int(a.doc, at.of[SEE_DOC] + query - a.key.origin);
}

/* Whether no query of i.. sees a key of j.. by position alone; both ends included. */
static __device__ __forceinline__ bool hidden(const Attention &a, int i, int i_end, int j, int j_end)
{
    int64_t first = place_global(&a.query, i, 0), last = place_global(&a.query, i_end, 0);
    return (a.causal && place_global(&a.key, j, 0) > last) || (a.window && place_global(&a.key, j_end, 0) <= first - a.window);
}

/* What dropout multiplies the probability of query i, head h and key j by. */
static __device__ __forceinline__ float kept(const Attention &a, const CudaStep *now, int64_t lead, int i, int h, int j)
{
    if (a.threshold == 0)
        return 1;
    uint64_t at = (uint64_t)(place_row_of(a.matrix, a.rank, (lead * a.h + h) * a.s + i, now->micro) + j);
    return philox4(now->seed, a.random, at / 4, (uint64_t)now->step).word[at % 4] >= a.threshold ? a.keep_by : 0;
}

/* TILE rows of e numbers into shared memory, row r from x[from + r step]; zeros behind `rows`.  All threads of the block. */
static __device__ __forceinline__ void load_tile(float *tile, const Num &x, int64_t from, int64_t step, int rows, int e)
{
    __syncthreads();                                 /* the tile before has been read */
    for (int n = (int)threadIdx.x; n < TILE * e; n += WARPS * WARP) {
        int r = n / e, i = n % e;
        tile[r * (e + 1) + i] = r < rows ? num_get(x, from + r * step + i) : 0;
    }
    __syncthreads();
}

/* A row into a warp's own place. */
static __device__ __forceinline__ void load_row(float *row, const Num &x, int64_t from, bool there, int e)
{
    for (int i = (int)threadIdx.x % WARP; i < e; i += WARP)
        row[i] = there ? num_get(x, from + i) : 0;
    __syncwarp();
}

/* Row of this lane times the warp's vector. */
static __device__ __forceinline__ float tile_dot(const float *tile, const float *vector, int e)
{
    const float *row = tile + (threadIdx.x % WARP) * (unsigned)(e + 1);
    float sum = 0;
    for (int i = 0; i < e; i++)
        sum += row[i] * vector[i];
    return sum;
}

/* sum += p of each row times the row; a lane's columns are its number, that + 32, ... */
static __device__ __forceinline__ void tile_add(float (&sum)[STRIPS], const float *tile, float p, int e)
{
    for (int r = 0; r < TILE; r++) {
        float weight = __shfl_sync(0xffffffffu, p, r);
#pragma unroll
        for (int k = 0; k < STRIPS; k++) {
            int i = k * WARP + (int)threadIdx.x % WARP;
            if (i < e)
                sum[k] += weight * tile[r * (e + 1) + i];
        }
    }
}

static __device__ __forceinline__ void put_row(const Num &y, int64_t at, const float (&sum)[STRIPS], float by, int e)
{
#pragma unroll
    for (int k = 0; k < STRIPS; k++) {
        int i = k * WARP + (int)threadIdx.x % WARP;
        if (i < e)
            num_put(y, at + i, sum[k] * by);
    }
}

/* Grid: (blocks of WARPS rows, heads, leading indices); shared memory: a tile and `vectors` of each warp. */
static inline size_t attention_shared(int e, int vectors)
{
    return sizeof(float) * (size_t)(TILE * (e + 1) + WARPS * vectors * e);
}

#endif
