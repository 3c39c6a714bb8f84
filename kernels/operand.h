#ifndef KERNELS_OPERAND_H
#define KERNELS_OPERAND_H
/* Operands: what kernels ask about the tensors of a call - strides by factor,
 * elements of any dtype, attributes - and Walk, a loop nest over factors.
 *
 * An op means what it says about its factors, not about positions of axes: with
 * the stride of each operand along each factor, one loop nest serves every
 * order of axes and every broadcast (a factor an operand lacks has stride 0). */
#include "kernels/kernel.h"

enum { OPERANDS = MAX_ARGS + MAX_OUTS };             /* arguments, then results from number MAX_ARGS */

typedef uint32_t FactorSet;                          /* bit per factor */

FactorSet arg_factors(const KCall *, int arg);       /* empty for an absent operand */
FactorSet out_factors(const KCall *, int out);
int       factor_of(FactorSet);                      /* the only member of a set */
int64_t   set_extent(const KCall *, FactorSet);      /* product of the local extents */

/* Elements between neighbours along a factor; 0 when the operand lacks it. */
int64_t arg_stride(const KCall *, int arg, int factor);
int64_t out_stride(const KCall *, int out, int factor);

/* Where a factor lies in the global tensor, from any operand that has it. */
const AxisPlace *factor_place(const KCall *, int factor);

/* What `mean` divides by: the product of the global extents of the factors,
 * samples of the whole accumulation window for the micro-batched one. */
double mean_count(const KCall *, FactorSet);

/* Walk: all indices of some factors in row-major order of factor numbers.
 *     for (Walk w = walk_over(c, set); w.more; walk_next(&w))
 *         y[w.at[MAX_ARGS]] = x[w.at[0]]; */
typedef struct Walk {
    int     depth;
    int     factor[MAX_FACTORS];                     /* outermost first */
    int64_t extent[MAX_FACTORS], index[MAX_FACTORS]; /* by loop */
    int64_t stride[MAX_FACTORS][OPERANDS];
    int64_t at[OPERANDS];                            /* element of each operand */
    uint8_t present[OPERANDS], npresent;             /* operands the instruction has: only those move */
    bool    more;
} Walk;

Walk walk_over(const KCall *, FactorSet);
void walk_next(Walk *);
/* Start an inner walk again at the elements where an outer one stands. */
void walk_from(Walk *inner, const Walk *outer);
/* Stand at the i-th index of the walk. */
void walk_seek(Walk *, int64_t i);
/* Index along a factor that the walk runs over. */
int64_t walk_index(const Walk *, int factor);

/* Row-major tensors seen as rows along their last axis. */
static inline int64_t row_length(const Tensor *t)
{
    return t->rank ? t->axis[t->rank - 1].local : 1;
}

/* Elements of any dtype the op may have there. */
int64_t int_at(const Tensor *, const void *, int64_t i);             /* integers and bool */
void    int_put(const Tensor *, void *, int64_t i, int64_t value);
double  real_at(const Tensor *, const void *, int64_t i);            /* f32, f64, bf16 and integers */
void    real_put(const Tensor *, void *, int64_t i, double value);   /* the same */

/* Attributes of the instruction. */
double  attr_real(const KCall *, const char *name);
int64_t attr_int(const KCall *, const char *name);
bool    attr_bool(const KCall *, const char *name);
bool    attr_given(const KCall *, const char *name);                 /* neither `none` nor `auto` */

#endif
