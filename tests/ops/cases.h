#ifndef TESTS_OPS_CASES_H
#define TESTS_OPS_CASES_H
/* Cases: small graphs, each around one op with one choice of attributes.  The test
 * of gradients differentiates them; the test of kernels compares the forms of every
 * op that appears in them. */
#include "tests/ops/eval.h"

typedef struct Fill { double lo, hi; } Fill;         /* range of a value's random numbers */

typedef struct Case Case;
typedef struct Maker {
    Graph *g;
    Fill  *fill;                      /* per value given from outside */
    int    scale;                     /* 0: extents of a few elements; 1: of real blocks, odd */
    DType  real;                      /* dtype of all reals */
    const Case *of;
} Maker;

struct Case {
    const char *name;
    OpKind      op;                   /* the one it is about */
    ValueId   (*make)(Maker *);       /* its result */
    bool        forward_only;         /* no rule of differentiation: fusions, optimizers */
};

const Case *case_at(int i);           /* NULL: there are fewer */

/* The case's graph.  With `loss`, a weighted sum of the result is its loss; all
 * inputs of reals are weights, so each gets a gradient. */
Maker case_make(Arena *, const Case *, int scale, DType real, bool loss);

/* Fill everything given from outside with the case's random numbers. */
void case_fill(const Maker *, Eval *);

#endif
