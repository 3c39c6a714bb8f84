#ifndef PLANNER_INTRA_H
#define PLANNER_INTRA_H
/* Intra-op: how the ops of a model are split by tp.
 *
 * An exact dynamic program over the chain of forward ops, backward included.  A choice
 * cuts an op along an axis its signature allows, or leaves it whole; its backward ops are
 * cut alike.  What a state knows of each value that is still to be read: where it lies,
 * where it was converted to, what its readers have given to its gradient, and, where the
 * cut of its maker leaves it open, where its gradient is expected to lie; the expectation
 * is checked when the last reader has spoken.  Two ways to one state differ in nothing that
 * comes after, so only the better one is followed.
 *
 * Better is what takes less time, memory counted as time: the fastest way may need more than
 * there is, as when all ops are split along positions and no weight is.  The program is run for several
 * prices of a byte, and for rounds that are recomputed, where less is kept and forward is paid twice.
 *
 * Rounds of a repeat are split alike: a state guesses what the round before hands on, and
 * the end of the round must be what was guessed.
 *
 * Of a way stand the nanoseconds before fusion, so they are those of the program after the
 * pass `place`. */
#include "codegen/price.h"
#include "planner/chain.h"

enum { MOST_PARTS = 8 };

/* What makes one way better than another: its time in a step, and its memory. */
typedef struct Goal {
    int64_t micro;                    /* micro-batches a rank has in a step */
    double  param_ns, shared_ns;      /* of a weight element in a step: to update it, and to sum its gradient over tp */
    double  param_bytes, flight;      /* of memory: of a weight element and its states; micro-batches that are kept at a time */
    double  byte_ns;                  /* what a byte is worth, about; 0: nothing */
    bool    recomputes;               /* rounds may be recomputed */
    uint32_t width;                   /* no more states are followed than these best ones, so better ways may be missed; 0: all are */
    bool     closed;                  /* ops that are not given a cut are not cut */
} Goal;

typedef struct PartCost {             /* of one round of a part, on one rank */
    int64_t forward, backward;        /* ns of a micro-batch */
    int64_t again;                    /* ns more in backward when the round is recomputed; of a part before a repeat: when the
                                         first round is, more than of others */
    int64_t link, link_again;         /* of these ns, forward and backward together, and of `again`: communication that converts */
    int64_t saved, entry;             /* bytes kept for backward of a micro-batch; of the round's own input alone */
    int64_t params;                   /* weight elements */
    int64_t shared;                   /* of them, those whose gradients are summands over tp */
} PartCost;

typedef struct Way {
    uint8_t  *choice;                 /* per op of the chain's parts, in order: 0 whole, else 1 + its CutChoice */
    PartCost  part[MOST_PARTS];
    PartCost *op;                     /* per op likewise: its share of its part's, without what a later part adds */
    int64_t   ns, link;               /* of a micro-batch, all rounds of all parts, forward and backward; of them communication */
    int64_t   params, shared, saved;  /* of all rounds of all parts, as in PartCost */
    int64_t   again, kept;            /* were all rounds of repeats recomputed: ns more of a micro-batch, and bytes kept */
    double    step;                   /* ns, by the goal; nothing recomputed */
    bool      seed;                   /* it is canonical (canonical.h) */
} Way;

typedef struct Intra {
    const Chain *chain;
    CutChoice  **cut; uint32_t *ncut; /* per op of the parts */
    Way         *way; uint32_t nway;  /* none is worse than another in step, memory, and these when recomputed; the best step first */
    bool         cut_short;           /* states were left out: there may be better ways */
    const char  *why_not;             /* the chain has values the program cannot follow; NULL */
} Intra;

/* Ways for the plan's tp and number of micro-batches; the layout of the pricer says how ops are cut along
 * other axes (splits_given()).
 * `given`: ops that it cuts are cut so; NULL: all are free. */
void intra_solve(Arena *, Pricer *, const Chain *, Goal, const Layout *given, Intra *out);

#endif
