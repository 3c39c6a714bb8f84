#ifndef PLANNER_CHAIN_H
#define PLANNER_CHAIN_H
/* Chain: the forward ops of a model as parts that follow each other, of which some are
 * rounds of a repeat that are all alike.  Alike rounds are looked at once, and get the
 * same splits.
 *
 * Rounds are alike when they have the same ops of the same extents, joined in the same
 * way, and hand some values to the next: an activation, and beside it, say, a sum of losses. */
#include "ir/graph.h"

enum { MOST_CARRIED = 2 };

typedef struct Segment {
    OpId     *op; uint32_t nop;       /* of the first round, in order */
    uint32_t  rounds;                 /* 1: no repeat */
    const char *scope;                /* of a repeat: "h" */
    int64_t   first;                  /* number of its first round */
    ValueId   in[MOST_CARRIED], out[MOST_CARRIED];   /* of a repeat: what the first round reads of others before, and what it hands on for that */
    uint32_t  ncarried;
} Segment;

/* A forward value and who uses it, in the first round. */
typedef struct Chain {
    const Graph *g;
    Segment     *part; uint32_t npart;
    uint32_t *part_of;                /* per op: its part; NOTHING for what is no forward op */
    OpId     *like;                   /* per op: the op of the first round that it is like */
} Chain;

Chain chain_read(Arena *, const Graph *);

/* Which of the values that enter a repeat, or that a round hands on, this one is; ncarried: none. */
uint32_t chain_entry(const Segment *, ValueId);
uint32_t chain_handed_on(const Segment *, ValueId);

/* Whether two ops belong to one round of one part. */
bool  chain_same_round(const Chain *, OpId, OpId);

/* Per op: it is one of a repeat, and runs again in backward when its round is recomputed. */
bool *chain_again(Arena *, const Chain *);

#endif
