/* Which form of combine() and copy_bytes() runs, and how it writes. */
#include "kernels/combine.h"

#include <assert.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "kernels/cpu/cpu.h"

bool combine_has(DType dtype, ReduceOp op)
{
    return (dtype == DT_f32 || dtype == DT_f64 || dtype == DT_bf16 || dtype == DT_i32 || dtype == DT_i64) && (op == REDUCE_SUM || op == REDUCE_MAX);
}

void combine(const Combine *c, Isa isa)
{
    assert(combine_has(c->dtype, c->op) && c->nin >= 1 && c->nout >= 1);
    switch (isa) {
    case ISA_V4: combine_v4(c); break;
    case ISA_V3: combine_v3(c); break;
    default:     combine_v2(c); break;
    }
}

void copy_bytes(void *to, const void *from, int64_t bytes, CopyWay way, Isa isa)
{
    switch (isa) {
    case ISA_V4: copy_bytes_v4(to, from, bytes, way); break;
    case ISA_V3: copy_bytes_v3(to, from, bytes, way); break;
    default:     copy_bytes_v2(to, from, bytes, way); break;
    }
}

/* ---- the choice of a way ---- */

static bool has_fast_strings(void)
{
#if defined(__x86_64__)
    enum { ENHANCED_MOVSB = 1 << 9 };
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & ENHANCED_MOVSB);
#else
    return false;
#endif
}

/* Virtual machines may report the sum of all sockets' caches. */
Caches caches_read(void)
{
    enum { USUAL = 32 << 20 };
    int64_t bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return (Caches){.last = bytes > 0 && bytes < USUAL ? bytes : USUAL, .strings = has_fast_strings()};
}

/* Measured with two processes that copy from each other.  Below half of the last cache
 * strings are no faster.  At twice of it a copy and the next read of it cost as much together
 * either way, and the copy alone is faster streamed; at one and a half, strings win both. */
CopyWay copy_way(const Caches *c, int64_t touched)
{
    if (touched >= 2 * c->last)
        return COPY_STREAM;
    return c->strings && touched >= c->last / 2 ? COPY_STRING : COPY_PLAIN;
}

bool combine_streams(const Caches *c, int64_t touched)
{
    return touched >= c->last;
}
