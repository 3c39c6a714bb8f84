#ifndef RUNTIME_RANKS_H
#define RUNTIME_RANKS_H
/* Ranks: a program of many ranks, each bound to its part of a World. */
#include "runtime/comm/comm.h"
#include "runtime/runtime.h"

/* What a rank knows of the others. */
typedef struct Peers {
    World   *world;
    uint64_t hash;                    /* of what all must have in common: plan, version, options */
    double   timeout;                 /* seconds; 0: max(10, 20 x the slowest instruction of any rank) */
    bool     threads;                 /* of one process */
} Peers;

/* rank_open() for rank `program->rank` of a world.  Called by all ranks at once: they
 * compare their hashes, and warm their libraries in step with each other. */
Status rank_join(Rank *, Arena *, const Program *, Isa, const Peers *);

/* ---- exchange.c: what ranks say to each other ---- */

enum { GROUP_OF_ALL, GROUPS_OF_RUN };                /* ids of groups; those of the program follow */
/* How many groups the world of these programs has. */
uint32_t ranks_groups(const Program *const *, uint32_t n);

/* Compare hashes, find who reports, make the groups. */
Status exchange_open(Rank *, const Peers *);
void   exchange_close(Rank *);
/* Execute an instruction of communication. */
Status exchange(const Rank *, const KCall *);
/* Element by element over all ranks, the same everywhere; nothing for a rank that is
 * alone.  n <= 16. */
Status rank_agree(const Rank *, int64_t *v, int n, ReduceOp);
/* An instruction begins, or, instr = -1, other work that is none: the rank is alive. */
void   exchange_begin(const Rank *, int64_t instr);
/* Agree on how long a rank may take for an instruction, unless that was given. */
Status exchange_pace(Rank *);

#endif
