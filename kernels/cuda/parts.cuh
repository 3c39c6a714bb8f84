/* parts.cuh -- sums of many terms with few results: the terms are cut into parts, so that enough blocks are busy.
 *
 * Blocks along x have packs of results; in a block, threads of one threadIdx.x sum every blockDim.y-th term of a pack.  Where that
 * makes few blocks and terms are many, blocks along y have a part of the terms each and leave its sums in scratch; launch_parts()
 * adds them up.  Private to kernels/cuda. */
#ifndef KERNELS_CUDA_PARTS_CUH
#define KERNELS_CUDA_PARTS_CUH

#include "kernels/cuda/device.cuh"

/* A block of sums over rows: packs of columns side by side, and threads for each. */
constexpr int PACKS = 4, LANES = BLOCK / PACKS;
static_assert(2 * PACKS * WIDE == CUDA_BLOCK_SUMS, "a block of the gradients of scale and shift has so many sums");

/* The fewest terms that a thread has of a part: 512 rows for a block of LANES.  With fewer a second kernel, which takes a few
 * microseconds, costs more than the first one gains. */
constexpr int64_t PART_TERMS = 8;

struct Parts {
    int64_t n, terms, packs;          /* how many; terms of each; packs of results */
    Wide   *sum;                      /* in scratch, of each result tensor, part and pack; where n > 1 */
};

/* Where sums go. */
struct Into {
    Num  y;
    bool adds;
};

/* As many parts as make CUDA_SUM_BLOCKS blocks or a little less, while threads have PART_TERMS: the registers of these kernels leave room
 * for four blocks, so that this is one wave on the 132 multiprocessors of an H100.  It is a constant all the same: the order of a sum
 * follows from shapes alone.  What lies in scratch is bounded by the number of blocks. */
static inline Parts parts_of(const CudaCall *c, int64_t packs, int64_t terms, dim3 block)
{
    int64_t blocks = (packs + block.x - 1) / block.x, n = blocks ? CUDA_SUM_BLOCKS / blocks : 1, most = terms / (block.y * PART_TERMS);
    n = n < most ? n : most;
    n = n > 1 ? n : 1;
    return Parts{n, (terms + n - 1) / n, packs, static_cast<Wide *>(c->call.work)};
}

static inline dim3 parts_grid(const Parts &p, dim3 block)
{
    return dim3((unsigned)((p.packs + block.x - 1) / block.x), (unsigned)p.n);
}

/* The end of a block's terms, which begin at blockIdx.y * p.terms. */
static __device__ __forceinline__ int64_t part_end(const Parts &p, int64_t terms)
{
    return min(((int64_t)blockIdx.y + 1) * p.terms, terms);
}

/* The sum over threads of one threadIdx.x, by halving: blockDim.y is a power of two.  It is for the one with threadIdx.y 0. */
static inline __device__ Wide column_sum(Wide sum)
{
    __shared__ Wide part[BLOCK];
    unsigned me = threadIdx.y * blockDim.x + threadIdx.x;
    part[me] = sum;
    __syncthreads();
    for (unsigned rest = blockDim.y / 2; rest; rest /= 2) {
        if (threadIdx.y < rest)
            EACH_OF_WIDE(part[me].of[k] += part[me + rest * blockDim.x].of[k])
        __syncthreads();
    }
    return part[me];
}

/* The sums of pack i: where there are no parts into its n results from element `at` on, times `by`; else into scratch, as those of
 * result tensor `which`. */
static __device__ __forceinline__ void part_give(const Parts &p, int which, int64_t i, const Into &to, int64_t at, int n, Wide sum, float by)
{
    if (p.n > 1) {
        p.sum[(which * p.n + blockIdx.y) * p.packs + i] = sum;
    } else if (to.y.at) {
        EACH_OF_WIDE(sum.of[k] *= by)
        wide_give(to.y, at, n, sum, to.adds);
    }
}

/* The parts of one or two result tensors, into them; their packs are those of operand 0 of `kept`.  Nothing where there are no parts. */
void launch_parts(const CudaCall *c, const Packs<2> &kept, const Parts &p, Into first, Into second, const Mean &mean);

#endif
