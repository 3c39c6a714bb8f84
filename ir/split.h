#ifndef IR_SPLIT_H
#define IR_SPLIT_H
/* Splits: what cutting a factor of an op does, read from its signature alone
 * (DESIGN 3, "Rule").  Micro-batches cut the batch in time, mesh axes cut any
 * factor in space; both ask here. */
#include "ir/graph.h"

/* How the op depends on an argument: 'l', 'j' or '-', as ops.def has them; a cast
 * that loses no bits is linear, whatever the table says of casts. */
char op_linear(const Graph *, const Op *, int arg);

bool op_arg_has(const Graph *, const Op *, int arg, uint8_t factor);
bool op_args_have(const Graph *, const Op *, uint8_t factor);
bool op_out_has(const Graph *, const Op *, int out, uint8_t factor);

/* Whether the signature marks the axis of this role '!'. */
bool op_needs_whole(OpKind, char role);

/* Whether results that lack the factor are sums over it, so that each part of a cut
 * makes a summand. */
bool op_sums_over(const Graph *, const Op *, uint8_t factor);

/* Whether the factor has a distributed form: with it cut, results that lack it are
 * whole all the same, because the parts exchange what they need. */
bool op_distributes(const Op *, uint8_t factor);

/* Whether the factor may be cut: not marked '!', and every result that lacks it is a
 * sum or has a distributed form. */
bool op_may_split(const Graph *, const Op *, uint8_t factor);

/* The first forward op that would see padding of a dim; NO_OP: it may be padded. */
OpId padding_obstacle(const Graph *, DimId);
/* What an axis that is padded to a multiple of `pad` is best padded to, so that `size` ranks can split it. */
int64_t padding_for(int64_t extent, int64_t pad, int64_t size);

#endif
