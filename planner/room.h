#ifndef PLANNER_ROOM_H
#define PLANNER_ROOM_H
/* Room: what memory adds to the bound of a configuration.
 *
 * A stage keeps the states of its weights, and for each micro-batch in flight what the backward
 * ops of its rounds read, or, of a round that is recomputed, what enters it; so a stage has only
 * so many rounds in so much time.  Of both, time and bytes, the least is taken that any splits
 * leave.  Read off the graph; nothing is estimated. */
#include "planner/units.h"

/* What a round of the model's one repeat has at least. */
typedef struct RoundNeeds {
    uint32_t rounds;                  /* 0: the model has no repeat of two or more, or several, or is not trained */
    uint32_t piece;                   /* the first of them */
    double   weights;                 /* trainable elements, on all ranks together */
    double   kept, entry;             /* bytes of all samples: kept for backward; of these, what enters the round */
} RoundNeeds;

/* A step of so many stages, each with so much room. */
typedef struct RoomAsked {
    uint32_t rounds, stages;
    double   micro;                   /* micro-batches of a step */
    double   share;                   /* of a step's time that all stages together spend on one micro-batch, at most */
    double   others;                  /* ns of a micro-batch: what is in no round */
    double   round, again;            /* ns of a micro-batch: a round; more where it is recomputed */
    double   states;                  /* bytes of a round's states on a rank */
    double   kept, entry;             /* bytes of a round for a micro-batch on a rank */
    double   room;                    /* bytes of memory */
    bool     gpipe, may_recompute;
} RoomAsked;

RoundNeeds room_read(const UnitTable *);
/* The least ns of a step, `least` or more; DBL_MAX: it does not fit. */
double     room_bound(const RoomAsked *, double least);

#endif
