#ifndef PLANNER_UNITS_H
#define PLANNER_UNITS_H
/* Units: what the pieces of a model take on the ranks that share its ops, the tp (and cp) ranks of
 * a stage, for one size of a micro-batch.  Configurations that differ only in the
 * rest share their units.
 *
 * An *option* is one way to split the ops.  Its times are those of the program before fusion, less
 * what fusion may save (codegen/price.h); *least* times are what no program goes below. */
#include "planner/intra.h"
#include "planner/pieces.h"
#include "planner/space.h"

typedef struct PieceCost {            /* of a micro-batch, on one rank */
    double forward, backward;         /* ns */
    double again;                     /* ns more where it is recomputed */
    double saved, entry;              /* bytes kept for backward; of what it reads of others alone */
    double params, shared;            /* weight elements; those whose gradients are summed over tp */
} PieceCost;

typedef struct Least { double forward, backward; } Least;    /* ns */

typedef struct Option {
    uint8_t   *choice;                /* per op of the chain, as in Way; NULL: nothing is open */
    PieceCost *piece;                 /* per piece */
    Least     *least;                 /* per piece, with these splits */
    PieceCost  all;                   /* sums over pieces */
} Option;

typedef struct UnitKey { int64_t tp, cp, micro; uint32_t tp_stride, cp_stride, kind; } UnitKey;   /* micro: pieces that the batch is cut in */

typedef struct Unit {
    UnitKey   key;
    uint32_t *lies;                   /* [level][rank]: the rank's unit of that level of the machine, numbered as they come; NULL: no other unit is like it */
    bool      legal;                  /* the batch can be cut so */
    Least    *least, sum;             /* per piece, with any splits; of all pieces */
    double   *again;                  /* likewise, per piece: ns more where it is recomputed */
    Option   *option; uint32_t noption;
    bool      solved;                 /* the options are here */
    Goal      goal;                   /* what they were judged by */
    bool      every;                  /* they are all the ways to split the ops */
    Intra     choices;                /* what the numbers of Option.choice mean */
    Least   **priced;                 /* per op of the chain and choice: least times; NULL: rules give the splits */
} Unit;

typedef struct UnitTable {
    Arena             *arena;
    const PlanRequest *q;
    const Decisions   *d;
    Chain              chain;
    Pieces             pieces;
    OpId              *op; uint32_t nop;             /* of the chain's parts, in order */
    uint32_t          *index;         /* per op of the graph: place in `op` of the one it is like; NOTHING */
    bool              *again;         /* per op of the graph, as chain_again() */
    PriceGraph        *prices;        /* the graph, as all pricers read it */
    OpId             **backward; uint32_t *nbackward; /* per op of the chain: its backward ops, sums apart */
    double            *weights;       /* per piece: trainable elements that no piece before it reads */
    double             positional;    /* of all of these: those of weights that have the axis that cp splits */
    uint32_t          *given_begin;   /* per stage: its first piece, where rules cut; NULL: the cuts are open */
    bool               no_sums;       /* not all gradients are summed over the copies of a weight */
    bool               may_recompute; /* rounds may be recomputed, and no rule says which */
    Unit             **unit; uint32_t nunit;
    Links              links;         /* where devices lie */
    Diags             *said;          /* what was wrong with units that are not legal */
    const char        *why_not;       /* ways to split the ops were not followed, as in Intra; NULL: they were */
    Sources           *sources;
} UnitTable;

UnitTable units_open(Arena *, Diags *, const PlanRequest *, const Decisions *);
/* What follows from the model and its rules alone: backward, weights, no_sums, may_recompute. */
void      units_read_model(UnitTable *);
/* Find where rules cut, on the meshes that they allow. */
void      units_take_cuts(UnitTable *, const Mesh *, uint32_t nmesh);
/* The unit of a stage of a configuration, its least times known. */
Unit     *units_find(UnitTable *, const Config *, uint32_t stage);
/* The solved unit with as many ranks, lying likewise, whose micro-batch is nearest in size; NULL: there is none. */
const Unit *units_like(const UnitTable *, const Unit *);
/* The first configuration that asks sets what its unit's options are judged by. */
void      units_ask(const UnitTable *, Unit *, const Config *);
/* Find its options. */
void      units_solve(UnitTable *, Unit *, const Config *, uint32_t stage);
/* The cuts of an option as rules; their number. */
uint32_t  units_rules(Arena *, const Unit *, const Option *, Rule **out);

#endif
