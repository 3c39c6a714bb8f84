/* Ops that make one element of one element of each argument, at the speed of memory. */
#include "kernels/cpu/gates.h"
#include "kernels/cpu/runs.h"
#include "kernels/ref/ref.h"

/* y = f(x [, y]), lane by lane; without runs the plain form works. */
#define EACH1(op, by_, f)                                              \
    static void op##_run(const Run *r)                                 \
    {                                                                  \
        const Vec by = vec_all(r->by);                                 \
        (void)by;                                                      \
        for (int64_t i = 0; i < r->n; i += LANES) {                    \
            Vec x = run_take(r, 0, i);                                 \
            run_give(r, 0, i, f);                                      \
        }                                                              \
    }                                                                  \
    CPU_REALS(op)                                                \
    {                                                                  \
        if (!each_run(c, op##_run, by_))                               \
            ref_##op(c);                                         \
    }

#define EACH2(op, f)                                                   \
    static void op##_run(const Run *r)                                 \
    {                                                                  \
        for (int64_t i = 0; i < r->n; i += LANES) {                    \
            Vec x = run_take(r, 0, i), y = run_take(r, 1, i);          \
            run_give(r, 0, i, f);                                      \
        }                                                              \
    }                                                                  \
    CPU_REALS(op)                                                \
    {                                                                  \
        if (!each_run(c, op##_run, 0))                                 \
            ref_##op(c);                                         \
    }

EACH2(add, x + y)
EACH2(sub, x - y)
EACH2(mul, x * y)
EACH2(div, x / y)
EACH1(scale, (float)attr_real(c, "by"), x * by)
EACH1(shift, (float)attr_real(c, "by"), x + by)
EACH1(reciprocal, (float)attr_real(c, "by"), by / x)
EACH1(relu, 0, vec_where(x < by, by, x))
EACH1(silu, 0, silu(x))
EACH2(relu_grad, vec_where(y > vec_all(0), x, vec_all(0)))
EACH2(tanh_grad, x * (vec_all(1) - y * y))
EACH2(silu_grad, x * silu_slope(y))
EACH2(silu_mul, silu(x) * y)

/* Lanes from element i on of whole numbers or booleans. */
static Vec whole_take(const Run *r, int64_t i)
{
    float x[LANES] = {0};
    int64_t n = r->n - i < LANES ? r->n - i : LANES, step = !r->repeats[0], first = i * step;
#define WHOLE(type)                                                  \
    for (int64_t k = 0; k < n; k++)                                  \
        x[k] = (float)((const type *)r->arg[0].at)[first + k * step]; \
    break
    switch ((int)r->arg[0].dtype) {
    case DT_i64: WHOLE(int64_t);
    case DT_i32: WHOLE(int32_t);
    case DT_i16: WHOLE(int16_t);
    case DT_i8:  WHOLE(int8_t);
    default:     WHOLE(uint8_t);
    }
#undef WHOLE
    return vec_load(x);
}

static void cast_run(const Run *r)
{
    bool whole = !dtype_is_float(r->arg[0].dtype);
    for (int64_t i = 0; i < r->n; i += LANES)
        run_give(r, 0, i, whole ? whole_take(r, i) : run_take(r, 0, i));
}

CPU_REALS(cast)
{
    if (!each_run(c, cast_run, 0))
        ref_cast(c);
}

/* x times its gate, and the gradient times the slope there, in one of the two forms. */
#define GELU(form, gate, slope)                                              \
    static void form##_run(const Run *r)                                     \
    {                                                                        \
        for (int64_t i = 0; i < r->n; i += LANES) {                          \
            Vec x = run_take(r, 0, i);                                       \
            run_give(r, 0, i, x * gate(x));                                  \
        }                                                                    \
    }                                                                        \
    static void form##_grad_run(const Run *r)                                \
    {                                                                        \
        for (int64_t i = 0; i < r->n; i += LANES)                            \
            run_give(r, 0, i, run_take(r, 0, i) * slope(run_take(r, 1, i))); \
    }

GELU(gelu, gelu_gate, gelu_slope)
GELU(gelu_exact, gelu_exact_gate, gelu_exact_slope)

CPU_REALS(gelu)
{
    if (!each_run(c, attr_bool(c, "exact") ? gelu_exact_run : gelu_run, 0))
        ref_gelu(c);
}

CPU_REALS(gelu_grad)
{
    if (!each_run(c, attr_bool(c, "exact") ? gelu_exact_grad_run : gelu_grad_run, 0))
        ref_gelu_grad(c);
}

static void silu_mul_grad_run(const Run *r)
{
    for (int64_t i = 0; i < r->n; i += LANES) {
        Vec g = run_take(r, 0, i), x = run_take(r, 1, i), y = run_take(r, 2, i);
        Vec s = vec_sigmoid(x);
        run_give(r, 0, i, g * y * s * vec_fma(x, vec_all(1) - s, vec_all(1)));
        run_give(r, 1, i, g * x * s);
    }
}

CPU_REALS(silu_mul_grad)
{
    if (!each_run(c, silu_mul_grad_run, 0))
        ref_silu_mul_grad(c);
}
