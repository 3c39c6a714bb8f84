#ifndef KERNELS_PRODUCT_H
#define KERNELS_PRODUCT_H
/* Products as matrices.  The factors of a product fall into four groups: batch
 * (in both operands and the result), M (in the first and the result), N (in the
 * second and the result) and K (in both, summed).  Where each group can be walked
 * with one stride in both tensors that have it, in one order, the product is a
 * gemm per batch index, transposed as the strides say. */
#include "kernels/operand.h"

typedef struct Product {
    FactorSet batch, columns;         /* columns: the factors along a row of the result */
    Gemm      gemm;
    bool      swapped;                /* the gemm computes the transpose: second operand times first */
} Product;

/* The product of arguments 0 and 1, in either order, as gemms with beta 0; false: it is none. */
bool product_as_gemm(const KCall *, Product *);

/* Whether the bias, argument 2, has the result's type and lies along its rows, element for element. */
bool product_bias_fits(const KCall *, const Product *);

/* Operands of one type, and a result of it or, of bf16, of f32. */
bool product_types_fit(const KCall *);

#endif
