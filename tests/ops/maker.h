#ifndef TESTS_OPS_MAKER_H
#define TESTS_OPS_MAKER_H
/* Private to the cases: the words they are written with, and their tables. */
#include "tests/ops/cases.h"

#define AXES(...) (int)(sizeof((DimId[]){__VA_ARGS__}) / sizeof(DimId)), (DimId[]){__VA_ARGS__}
#define SCALAR    0, NULL
#define ARGS(...) (int)(sizeof((ValueId[]){__VA_ARGS__}) / sizeof(ValueId)), (ValueId[]){__VA_ARGS__}

DimId   dim(Maker *, const char *name, int64_t small, int64_t large);
double  extent(const Maker *, DimId);
ValueId value(Maker *, const char *name, ValueRole, DType, Fill, int rank, const DimId *axis);
/* Reals that get a gradient; in a range that keeps away from where functions end. */
ValueId reals_in(Maker *, const char *name, double lo, double hi, int rank, const DimId *axis);
ValueId reals(Maker *, const char *name, int rank, const DimId *axis);
/* Integers lo .. hi - 1. */
ValueId integers(Maker *, const char *name, DType, double lo, double hi, int rank, const DimId *axis);

OpSpec  start(Maker *, OpKind, int narg, const ValueId *arg);
void    set(OpSpec *, const char *name, Attr);
void    result(OpSpec *, const char *suffix, DType, int rank, const DimId *axis);
/* Append; the first result. */
ValueId finish(Maker *, const OpSpec *);
ValueId simple(Maker *, OpKind, int narg, const ValueId *arg, int rank, const DimId *axis);

extern const Case basic_cases[], layer_cases[];
extern const int  nbasic_cases, nlayer_cases;

#endif
