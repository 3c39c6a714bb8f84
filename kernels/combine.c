/* Which form of combine() and copy_bytes() runs. */
#include "kernels/combine.h"

#include <assert.h>

#include "kernels/cpu/cpu.h"

bool combine_has(DType dtype, ReduceOp op)
{
    return (dtype == DT_f32 || dtype == DT_f64 || dtype == DT_i32 || dtype == DT_i64) && (op == REDUCE_SUM || op == REDUCE_MAX);
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

void copy_bytes(void *to, const void *from, int64_t bytes, bool stream, Isa isa)
{
    switch (isa) {
    case ISA_V4: copy_bytes_v4(to, from, bytes, stream); break;
    case ISA_V3: copy_bytes_v3(to, from, bytes, stream); break;
    default:     copy_bytes_v2(to, from, bytes, stream); break;
    }
}
