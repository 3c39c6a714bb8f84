/* ptx.h -- the only place for inline PTX: products of tensor cores, loads of their operands, asynchronous copies.
 *
 * Beside each stands what the emulator of the tests does instead.  Sources: PTX ISA, sections "Matrix fragments for
 * mma.m16n8k16 with floating point type", "ldmatrix", "cp.async".  All are called by whole warps. */
#ifndef CUDA_PTX_H
#define CUDA_PTX_H

#include <cuda_bf16.h>

#ifndef CUDAEMU

/* The address of shared memory that PTX wants. */
static __device__ __forceinline__ unsigned ptx_shared_address(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

/* d += a b: d 16 x 8 in f32, a 16 x 16 by rows, b 16 x 8 by columns in bf16, two to a register.  With g = lane / 4 and
 * t = 2 (lane % 4), a lane holds of a: [g][t..], [g + 8][t..], [g][t + 8..], [g + 8][t + 8..]; of b: [t..][g],
 * [t + 8..][g]; of d: [g][t], [g][t + 1], [g + 8][t], [g + 8][t + 1]. */
static __device__ __forceinline__ void ptx_mma_bf16(float d[4], const unsigned a[4], const unsigned b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Four (two) matrices of 8 x 8 elements of 16 bits from shared memory.  Lane 8 i + j gives the address of row j of matrix i,
 * 16 bytes aligned to 16; it gets of matrix i the elements [lane / 4][2 (lane % 4)..], or of the transposed one. */
static __device__ __forceinline__ void ptx_ldmatrix_x4(unsigned r[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(ptx_shared_address(row)) : "memory");
}
static __device__ __forceinline__ void ptx_ldmatrix_x4_transposed(unsigned r[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(ptx_shared_address(row)) : "memory");
}
static __device__ __forceinline__ void ptx_ldmatrix_x2(unsigned r[2], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];\n"
                 : "=r"(r[0]), "=r"(r[1]) : "r"(ptx_shared_address(row)) : "memory");
}
static __device__ __forceinline__ void ptx_ldmatrix_x2_transposed(unsigned r[2], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];\n"
                 : "=r"(r[0]), "=r"(r[1]) : "r"(ptx_shared_address(row)) : "memory");
}

/* 16 bytes from global to shared memory, both aligned to 16; only the first VALID are read, the others become zero.  The copy
 * is there when its group has been waited for, and for other threads after a barrier then. */
static __device__ __forceinline__ void ptx_copy_async(void *shared, const void *global, unsigned valid)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n"
                 :: "r"(ptx_shared_address(shared)), "l"(__cvta_generic_to_global(global)), "r"(valid) : "memory");
}
/* Ends a group of copies. */
static __device__ __forceinline__ void ptx_copy_async_commit() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
/* Waits for all groups of this thread but the last PENDING. */
template <int PENDING> static __device__ __forceinline__ void ptx_copy_async_wait()
{
    asm volatile("cp.async.wait_group %0;\n" :: "n"(PENDING) : "memory");
}

#else

/* A fragment's two elements. */
static inline void ptx_unpack(unsigned pair, float out[2])
{
    out[0] = __uint_as_float(pair << 16);
    out[1] = __uint_as_float(pair & 0xffff0000u);
}

inline void ptx_mma_bf16(float d[4], const unsigned a[4], const unsigned b[2], CUDAEMU_HERE)
{
    unsigned both[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
    const ::cudaemu::Exchange *e = ::cudaemu::exchange(0xffffffffu, both, sizeof both, false, CUDAEMU_SITE("mma"));
    unsigned lane = ::cudaemu::thread_now->lane, g = lane / 4, t = 2 * (lane % 4);
    for (unsigned i = 0; i < 4; i++) {
        unsigned lower = i / 2, column = t + i % 2;      /* row g + 8 lower */
        for (unsigned from = 0; from < 4; from++)
            for (unsigned upper = 0; upper < 2; upper++) {
                float x[2], y[2];
                unsigned words[6];
                memcpy(words, e->lane[4 * g + from], sizeof words);
                ptx_unpack(words[lower + 2 * upper], x);
                memcpy(words, e->lane[4 * column + from], sizeof words);
                ptx_unpack(words[4 + upper], y);
                d[i] += x[0] * y[0] + x[1] * y[1];
            }
    }
    ::cudaemu::exchange_read(e);
}

/* COUNT matrices; the rows' addresses travel, the elements are read by who gets them. */
template <unsigned COUNT> inline void ptx_ldmatrix(unsigned *r, const void *row, bool transposed, ::cudaemu::Site site)
{
    ::cudaemu::misaligned(row, 16, "ldmatrix");
    const ::cudaemu::Exchange *e = ::cudaemu::exchange(0xffffffffu, &row, sizeof row, false, site);
    unsigned lane = ::cudaemu::thread_now->lane, g = lane / 4, t = 2 * (lane % 4);
    for (unsigned m = 0; m < COUNT; m++) {
        r[m] = 0;
        for (unsigned i = 0; i < 2; i++) {
            unsigned from = transposed ? t + i : g, element = transposed ? g : t + i;
            const unsigned short *values = ::cudaemu::lane_value<const unsigned short *>(e, 8 * m + from);
            r[m] |= (unsigned)values[element] << 16 * i;
        }
    }
    ::cudaemu::exchange_read(e);
}
inline void ptx_ldmatrix_x4(unsigned r[4], const void *row, CUDAEMU_HERE) { ptx_ldmatrix<4>(r, row, false, CUDAEMU_SITE("ldmatrix")); }
inline void ptx_ldmatrix_x4_transposed(unsigned r[4], const void *row, CUDAEMU_HERE)
{
    ptx_ldmatrix<4>(r, row, true, CUDAEMU_SITE("ldmatrix"));
}
inline void ptx_ldmatrix_x2(unsigned r[2], const void *row, CUDAEMU_HERE) { ptx_ldmatrix<2>(r, row, false, CUDAEMU_SITE("ldmatrix")); }
inline void ptx_ldmatrix_x2_transposed(unsigned r[2], const void *row, CUDAEMU_HERE)
{
    ptx_ldmatrix<2>(r, row, true, CUDAEMU_SITE("ldmatrix"));
}

inline void ptx_copy_async(void *shared, const void *global, unsigned valid) { ::cudaemu::async_copy(shared, global, 16, valid); }
inline void ptx_copy_async_commit() { ::cudaemu::async_commit(); }
template <int PENDING> inline void ptx_copy_async_wait() { ::cudaemu::async_wait(PENDING); }

#endif

#endif
