#ifndef PLANNER_STAGES_H
#define PLANNER_STAGES_H
/* Stages: a chain of pieces cut into the stages of a pipeline, and how many rounds of each are
 * recomputed; what a step of that takes and needs, estimated and bounded below.
 *
 * A *staged* candidate has everything that a plan decides. */
#include "planner/room.h"

typedef struct Candidate {
    const Config *config;
    uint32_t      option;             /* of the unit of stage 0; all stages split ops alike */
    uint32_t     *begin;              /* per stage, and one more: its first piece */
    uint32_t     *again;              /* per stage: of its rounds the first so many are recomputed */
    double        bound;              /* ns: no program of it takes less */
    double        ns;                 /* estimated */
    double        bytes;              /* estimated, of the rank that needs most, beyond what its device has; < 0: it fits */
} Candidate;

/* What staging is asked of: a configuration and one way to split its ops. */
typedef struct Staging {
    UnitTable    *t;
    const Config *config;
    uint32_t      option;
    uint32_t      stages;
    Unit        **unit;               /* per stage */
    double        more_bytes, rate;   /* learned of plans like it: bytes beyond the estimate, and times it */
    /* what follows from these, so that it is found once */
    double        state_bytes;        /* of a weight element */
    double        sum_ns, end_ns;     /* of a weight element: to sum its gradient over copies; to update it and gather its copies */
    double        hop_ns;             /* of a micro-batch from a stage to the next */
    bool          overlaps;           /* communication may run beside computing */
    double        crowd, stage_crowd; /* threads per processor where all ranks compute, and where those of a stage do; 1 or more */
} Staging;

/* A bound for all candidates of a configuration; infinite where it is not legal. */
double staging_bound(UnitTable *, const Config *);
/* That bound, or what memory makes of it; infinite where no layout of the configuration fits. */
double staging_room(UnitTable *, const Config *, const RoundNeeds *, double bound);
/* Bytes that a rank of it has too few of, at the least, whatever its cuts and splits; -DBL_MAX: that is not known. */
double staging_lack(const UnitTable *, const Config *, const RoundNeeds *);
Staging staging_open(Arena *, UnitTable *, const Config *, uint32_t option);
/* ns that no estimate of the option goes below, whatever the cuts. */
double staging_least(const Staging *);
/* The same of a configuration whose options are not known: a guess, from a unit like its own; DBL_MAX: it will not fit. */
double staging_guess(UnitTable *, const Config *);
/* The best cuts by estimate; false: no cuts are. */
bool   staging_best(Arena *, const Staging *, Candidate *out);
/* Those that need the least memory, by estimates; false: there are none. */
bool   staging_leanest(Arena *, const Staging *, Candidate *out);
/* The same with one stage, not the first, beginning so many pieces later; false: there is no such cut. */
bool   staging_recut(Arena *, const Staging *, const Candidate *, uint32_t stage, int by, Candidate *out);
/* Fill in bound, ns and bytes. */
void   staging_measure(const Staging *, Candidate *);

/* Calls with every candidate, in one order, until it says no; their number, at most `most` + 1. */
typedef bool (*EachCandidate)(void *ctx, const Candidate *);
uint64_t staging_each(const Staging *, uint64_t most, EachCandidate, void *ctx);

#endif
