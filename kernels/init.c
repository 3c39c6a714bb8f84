/* Start values of weights: element i of a weight is a function of the seed, the
 * weight's path and i alone, so every device and every layout starts alike. */
#include <math.h>

#include "base/text.h"
#include "kernels/kernel.h"

static double poly(const double *coefficient, int degree, double x)
{
    double y = coefficient[degree];
    for (int i = degree - 1; i >= 0; i--)
        y = y * x + coefficient[i];
    return y;
}

/* The z with P(Z < z) = p of a standard normal Z, to 1e-16: algorithm AS 241,
 * PPND16 (Wichura, Applied Statistics 37, 1988).  Three rational functions: of
 * the middle, of the tails, of the far tails. */
static double normal_quantile(double p)
{
    static const double mid[2][8] = {
        {3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4,
         4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3},
        {1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
         2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3}};
    static const double tail[2][8] = {
        {1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0,
         1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4},
        {1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
         1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9}};
    static const double far[2][8] = {
        {6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0, 2.96560571828504891230e-1,
         2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7},
        {1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
         7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15}};
    double q = p - 0.5;
    if (fabs(q) <= 0.425) {
        double r = 0.180625 - q * q;
        return q * poly(mid[0], 7, r) / poly(mid[1], 7, r);
    }
    double r = sqrt(-log(q < 0 ? p : 1 - p));
    double z = r <= 5 ? poly(tail[0], 7, r - 1.6) / poly(tail[1], 7, r - 1.6)
                      : poly(far[0], 7, r - 5) / poly(far[1], 7, r - 5);
    return q < 0 ? -z : z;
}

/* P(Z < -2): a truncated normal keeps the part within two standard deviations. */
static const double below_minus_two = 0.022750131948179207;

/* Half the width of the uniform distributions of layers: xavier (Glorot and
 * Bengio 2010), kaiming (He et al. 2015, for ReLU), fan_in (what PyTorch's
 * Linear draws). */
static double half_width(const Init *init)
{
    double in = (double)init->fan_in, out = (double)init->fan_out;
    switch (init->kind) {
    case INIT_xavier:  return sqrt(6 / (in + out));
    case INIT_kaiming: return sqrt(6 / in);
    case INIT_fan_in:  return 1 / sqrt(in);
    default:           return 0;
    }
}

/* The start value made of u, uniform in (0, 1). */
static double start_value(const Init *init, double u)
{
    switch (init->kind) {
    case INIT_zeros:        return 0;
    case INIT_ones:         return 1;
    case INIT_normal:       return init->a * normal_quantile(u);
    case INIT_trunc_normal: return init->a * normal_quantile(below_minus_two + u * (1 - 2 * below_minus_two));
    case INIT_uniform:      return init->a + u * (init->b - init->a);
    default:                return (2 * u - 1) * half_width(init);
    }
}

void init_fill(const Init *init, const char *path, uint64_t seed, int64_t first, int64_t n, Reals out)
{
    uint32_t key = fnv1a(path);
    Philox four = {{0}};
    for (int64_t i = 0; i < n; i++) {
        uint64_t at = (uint64_t)(first + i);
        if (i == 0 || at % 4 == 0)
            four = philox4(seed, key, at / 4, 0);
        put(out, i, start_value(init, (four.word[at % 4] + 0.5) * 0x1p-32));
    }
}
