#ifndef PLANNER_INTRA_STEP_H
#define PLANNER_INTRA_STEP_H
/* Private to intra: the steps of the dynamic program, and what one choice at one step does
 * to what is known of the values that it reads and makes. */
#include "planner/intra.h"

enum { MOST_CODES = 32, MOST_USES = 8, MOST_NEEDS = 64, MOST_IN = 12, MOST_OUT = MAX_OUTS, MOST_LIVE = 24, KNOWN_LISTS = 4096 };
enum { CODE_NONE = 0xFF };

/* A value that is still to be read, or the promise of a round. */
typedef enum SlotKind {
    SLOT_VALUE,
    SLOT_BEFORE,                      /* what the round before handed on, as rounds after the first read it */
    SLOT_PROMISE,                     /* what it is guessed to be, kept to the end of the round */
    SLOT_GIVEN                        /* a weight or input that several ops read */
} SlotKind;
typedef struct Slot { ValueId value; SlotKind kind; uint32_t part, first, last; } Slot;   /* steps: live after first, to last */

/* What is known of a slot's value.  Placements are codes of the table in Solver. */
typedef struct Rec {
    uint8_t  made, needs;             /* where it lies; needs: index into Solver.needs, of its maker's backward ops */
    uint8_t  expect;                  /* where its gradient must turn out to lie; CODE_NONE: anywhere */
    uint8_t  kept;                    /* its bytes were counted as saved; of a given value: two readers want it in two ways */
    uint32_t seen, seen_back;         /* bits of codes: it was converted to these, in forward and in backward */
    uint32_t seen_again;              /* likewise by ops that run again when the round is recomputed */
    uint8_t  given[MOST_USES];        /* by use: the gradient it gave */
} Rec;

/* Placements that gradients must be brought to for the backward ops of a maker. */
typedef struct Needs { uint8_t n, code[4]; } Needs;

typedef enum StepKind { STEP_OP, STEP_ENTER, STEP_LEAVE, STEP_GIVE } StepKind;   /* give: guess where a given value lies */
typedef struct Step {
    StepKind  kind;
    OpId      op;
    uint32_t  part, index;            /* index: of the op in the choices of a Way */
    uint32_t  in[MOST_IN], nin;       /* slots whose records it reads and changes */
    uint32_t  out[MOST_OUT], nout;    /* slots it begins */
    uint32_t *live, nlive;            /* slots after it, ascending */
    uint32_t *source;                 /* per live slot: where its record comes from: `in`, then MOST_IN + `out`, then
                                         MOST_IN + MOST_OUT + `live` of the step before */
    uint32_t  read[MOST_IN];          /* per slot of `in`: its place in `live` of the step before */
} Step;

typedef struct Move {                 /* one choice at one step, from given records */
    bool      legal;
    PartCost  cost, before;           /* of the step's part; of the part before it */
    Rec       in[MOST_IN], out[MOST_OUT];
} Move;

/* What a run looks for: the way that takes least when a byte kept costs so much, with all rounds recomputed or none. */
typedef struct Asked {
    double         byte_ns;
    bool           again;
    const uint8_t *only;              /* per op: the one choice; NULL: all are open */
} Asked;

typedef struct Solver {
    Arena       *arena;
    Pricer      *pricer;
    Layout      *l;
    const Graph *g;
    const Chain *chain;
    Goal         goal;
    Asked        asked;
    uint32_t     width;                              /* states of a step that are followed */
    const Layout *given;                             /* cuts that rules give; NULL: none */
    Intra       *out;
    uint16_t   (*fixed)[MAX_GRID];                   /* per op: its cuts along axes of the grid that are not chosen here */
    GridSet      fixed_axes;                         /* all of those axes */
    DimId        fixed_dim[MAX_GRID];                /* per axis of the grid: what it cuts in the first op that it does; NO_DIM */
    Placement    code[MOST_CODES]; uint32_t ncode;
    Needs        needs[MOST_NEEDS]; uint32_t nneeds;
    Slot        *slot; uint32_t nslot;
    Step        *step; uint32_t nstep;
    OpId       **backward; uint32_t *nbackward;      /* per forward op: its backward ops, sums apart */
    OpId       **sums; uint32_t *nsums;              /* per value: the adds of its gradient, in order */
    uint32_t   (*uses)[2]; uint32_t nuses;           /* op and argument, in order of the chain */
    uint32_t    *use0;                               /* per value, and one more: its uses */
    bool        *again;                              /* per op: it runs again when its round is recomputed */
    int64_t    **priced;                             /* per step: ns forward and backward by choice, -1: not known */
    uint32_t   **guesses;                            /* per step and choice: what step_guesses() says */
    Rec        **guess;                              /* per step that guesses records: these, of each guess as many as there are values */
    struct Known ***known;                           /* per step: lists of its moves so far, by hash */
    bool         lost;                               /* a table was too small: answers are not complete */
} Solver;

/* Ways through all steps, into the solver's `out` (intra_ways.c). */
void     ways_solve(Arena *, Solver *);
/* Of the axes that are not chosen here, those that cut the op, whatever is chosen. */
GridSet  step_fixed(const Solver *, OpId);
/* Parts that a placement splits axis x of a value in. */
int64_t  step_ways(const Grid *, const Placement *, int x);
/* Whether the gradient of an op's result is that of an argument too. */
bool     step_passes_on(const Solver *, const Op *);
/* Guesses of a step that a state must choose between: 1 when none is open. */
uint32_t step_guesses(Solver *, const Step *, uint32_t choice);
void     step_move(Solver *, const Step *, uint32_t choice, uint32_t guess, const Rec *in, Move *out);
/* Where a value given from outside may lie, as records. */
uint32_t step_gifts(Solver *, ValueId, Rec **out);
/* The records that the round before may hand on: of each guess one of each value that is carried. */
uint32_t step_promises(Solver *, uint32_t part, Rec **out);

#endif
