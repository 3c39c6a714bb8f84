#ifndef CODEGEN_PRICE_H
#define CODEGEN_PRICE_H
/* Price: what an op or a conversion costs under cuts that nobody has decided on yet,
 * in one micro-batch.  Each is lowered alone, by the passes' own functions, and its
 * instructions are costed: so a sum of prices is the time of the program before fusion.
 * Least prices leave out what fusion may save: no program is faster than their sum.
 *
 * Cuts and placements are those of pricer_layout(), which the caller writes. */
#include "codegen/cost.h"
#include "ir/layout.h"

typedef struct Pricer Pricer;

/* What is asked of a graph whatever the plan, read once for all pricers. */
typedef struct PriceGraph PriceGraph;
PriceGraph *price_graph(Arena *, const Graph *);

/* For the plan's mesh, devices and number of micro-batches; its splits and stages do not
 * matter.  The diagnostics are those of layout_open(). */
Status  pricer_open(Arena *, Diags *, const PriceGraph *, const Plan *, const Cluster *, const Profile *, bool least, Pricer **out);
void    pricer_close(Pricer *);
Layout *pricer_layout(Pricer *);
const Plan *pricer_plan(const Pricer *);

/* Nanoseconds of an op, its arguments as it needs them; *link, where it is not NULL: of them,
 * those of communication. */
int64_t price_op(Pricer *, OpId, int64_t *link);
/* Nanoseconds to convert a value from one placement to another; 0: they are equal.  *link: of
 * them, those of communication. */
int64_t price_conversion(Pricer *, ValueId, Placement from, Placement to, int64_t *link);
/* Bytes of a value in a placement, of one micro-batch. */
int64_t price_bytes(const Pricer *, ValueId, Placement);

#endif
