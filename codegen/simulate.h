#ifndef CODEGEN_SIMULATE_H
#define CODEGEN_SIMULATE_H
/* Simulate: how long one step of a plan takes.  The programs of the plan are followed exactly as their
 * schedules say: queues of streams, waits, messages, sums over stages.
 *
 * One rank stands for its stage: the first, whose instructions take as long as those of
 * the slowest of its likes.  So 16,384 devices cost what one pipeline costs. */
#include "codegen/cost.h"

typedef struct CallTime { int64_t start, end, idle; } CallTime;      /* ns from the start of the step; idle: of them, waiting for other stages */

/* Where the time of a stage goes; the parts sum up to the step. */
typedef struct StageTimes {
    int64_t   by_class[COST_CLASSES]; /* ns of its instructions, alone */
    int64_t   slowed;                 /* what they take more because of what runs beside them, here or on other ranks */
    int64_t   exposed[MESH_AXES];     /* communication that nothing is computed beside, by the outermost mesh axis it crosses */
    int64_t   hidden[MESH_AXES];      /* communication beside computing or beside what is exposed; no part of the sum */
    int64_t   bubble;                 /* waiting for other stages */
    int64_t   extra;                  /* Profile.step, and its stalls */
    int64_t   update;                 /* of these parts: while the update was called, but for waiting for other stages */
    CallTime *call;                   /* per call of the program */
    const Cost *cost;                 /* per instruction of the program; those outside the schedule are not filled in */
} StageTimes;

/* ns, 32 years: beyond what a step is counted to, whose instructions take a quarter of it at most. */
#define SIMULATE_MOST ((int64_t)1000000000000000000)

typedef struct Simulation {
    int64_t     ns;                   /* of the step; SIMULATE_MOST: it, or an instruction, takes longer than is counted, and nothing else is known */
    StageTimes *stage; uint32_t nstage;
    double      mfu, mfu_causal, hfu; /* 0 where no peak or no time is known */
} Simulation;

/* `rank`: by place in plan->devices, the first of each stage and of each kind of device in it; the
 * others may be NULL.  A program without calls (no loss) takes no time. */
Simulation simulate(Arena *, const Cluster *, const Plan *, const Profile *, Program *const *rank);

/* The outermost mesh axis on which ranks of a group differ. */
MeshAxis group_axis(const Plan *, const RankGroup *);

/* Per instruction of a stage's first program: ns from the start of its call to its own, where the call
 * runs alone (of backward the last micro-batch's); -1: no call runs it. */
int64_t *simulate_instructions(Arena *, const Cluster *, const Plan *, const Profile *, const Program *, const StageTimes *);

/* Bytes a rank needs under a profile, beyond the reserve of its device (keeps.c): with prun those of its map. */
int64_t profile_bytes(const Program *, const Profile *);
/* What its allocator has handed out where the device has room: without what it pads, with what the host frees late. */
int64_t profile_allocated(const Program *, const Profile *);

#endif
