#ifndef CODEGEN_EVENTS_H
#define CODEGEN_EVENTS_H
/* Private to the simulator: what it executes, and the execution.
 *
 * A *lane* is a stage's first rank.  It has a queue per stream that may run by itself; what may not is
 * on queue 0, that of compute.  A cpu device with a thread that communicates has one more queue, for all streams of
 * communication but sends.  A call executes a *recipe*, the procedure as *nodes*:
 * runs of computing instructions, collectives, messages.  Nodes of one queue follow each
 * other in the order of the calls; waits order the rest. */
#include "codegen/simulate.h"

typedef enum NodeKind {
    NODE_RUN,                         /* computing instructions one after the other */
    NODE_COLLECTIVE,                  /* with other ranks of the stage */
    NODE_MEETING,                     /* with ranks of other stages */
    NODE_SEND, NODE_RECV
} NodeKind;

/* A time taken apart: instructions alone by CostClass, communication that nothing is
 * computed beside by MeshAxis, and what overlap and sharing add. */
enum { SPENT_EXPOSED = COST_CLASSES, SPENT_SLOWED = SPENT_EXPOSED + MESH_AXES, SPENT_PARTS };
typedef struct Spent {
    int64_t ns[SPENT_PARTS];
    int64_t hidden[MESH_AXES];        /* communication beside computing or beside other; not of that time */
} Spent;

/* How long a run takes with a share of processor and memory, once it was asked for. */
typedef struct Share { double processor, memory; int64_t ns; } Share;
enum { SHARES = 4 };

typedef struct NodeWait { uint32_t instr, on; bool same_slot; } NodeWait;      /* as Wait of the program */

typedef struct Node {
    NodeKind  kind;
    uint32_t  queue;
    MeshAxis  axis;                   /* of communication: the outermost mesh axis */
    uint32_t  first, end;             /* instructions it is made of */
    NodeWait *wait; uint32_t nwait;
    uint32_t  link;                   /* messages: channel; meetings: which */
    int64_t   ns;                     /* alone */
    Spent     spent;                  /* of NODE_RUN, summing up to ns */
    Share    *share; uint32_t nshare; /* SHARES of them, once one is asked for */
} Node;

typedef struct Recipe {
    uint32_t  proc;
    Node     *node; uint32_t nnode;
    uint32_t *node_of;                /* per instruction of the procedure, from its first: its node, or NOTHING */
    uint32_t *in_queue[STREAMS]; uint32_t nin_queue[STREAMS];        /* nodes of a queue, in order */
    uint32_t *posts; uint32_t nposts; /* channels it sends on without waiting: what was sent before must have arrived before it starts */
} Recipe;

typedef struct Queue {
    uint32_t call, at;                /* its next node, or the one that runs: the at-th of that call's recipe in this queue */
    Node    *node;                    /* that node; NULL: behind the last call */
    uint32_t index;                   /* its number among all of the lane */
    uint32_t nmet;                    /* so many of its waits are over, the first ones */
    const int64_t *awaits;            /* in Lane.done: when the wait after them is over; NULL: not looked up */
    bool     running, armed;          /* armed: only the other side is missing */
    double   left, rate;              /* ns alone still to be done at `since`; ns alone done a ns */
    int64_t  start, since, finish;
} Queue;

typedef struct Lane {
    const Program *p;
    const Cost    *cost;
    Recipe       **recipe;            /* per call */
    uint32_t      *base;              /* per call: number of its first node among all of the lane */
    int64_t       *done;              /* per node of the lane: when it ended; -1: not yet */
    int64_t       *begun;             /* the same for its start; NULL: not wanted */
    uint32_t      *latest, *latest_slot;             /* [call][procedure]: the latest call of it before, of any slot or of the same; NOTHING */
    uint32_t      *proc_of;           /* per instruction */
    Queue          queue[STREAMS];
    int64_t        since;             /* time up to which it is accounted for */
    Spent          spent;
    int64_t        bubble;
    CallTime      *time;
    uint32_t       domain;            /* which it shares processors with; NOTHING: none */
    bool           courier;           /* all that it communicates is on QUEUE_COURIER */
} Lane;

/* The queue of a thread that only communicates. */
enum { QUEUE_COURIER = STREAM_gradient };

/* Messages from one stage to another, in order. */
typedef struct Channel { uint32_t from, to; bool posts; uint32_t sent, received; } Channel;

/* Ranks of several stages that do collectives together. */
typedef struct Meeting { const RankGroup *group; uint32_t *lane, nlane; uint32_t *queue; } Meeting;

/* Devices that share processors and memory. */
typedef struct Domain {
    double  cores, bandwidth;         /* 0: each device has its own */
    double *threads, *bytes;          /* per lane: what its ranks here ask for while they compute, */
    double *comm_threads, *comm_bytes;               /* and what their couriers do while they communicate */
} Domain;

typedef struct Events {
    Arena     *arena;
    Lane      *lane; uint32_t nlane;
    Channel   *channel; uint32_t nchannel;
    Meeting   *meeting; uint32_t nmeeting;
    Domain    *domain; uint32_t ndomain;
    double     slow_compute, slow_link;
    bool       alone;                 /* one call by itself: messages and meetings take no time and need no other side */
    int64_t    now;
    int64_t   *next;                  /* per leaf of the tournament, a lane or nothing: when its next node ends */
    uint32_t  *first, leaves;         /* the tournament: of each of its matches, from 1 on, the lane that ends first */
} Events;

/* Follow all lanes to their end; the time of the last event. */
int64_t events_run(Events *);

/* ---- recipes (recipe.c) ---- */

/* What recipes of a lane are made from. */
typedef struct Making {
    Arena         *arena;
    const Program *p;
    const Cost    *cost;              /* per instruction */
    const Plan    *plan;
    const Profile *profile;
    const Device  *device;
    uint32_t      *proc_of, *queue;   /* per instruction */
    NodeKind      *kind;              /* per instruction */
    MeshAxis      *axis;              /* per group of ranks: the outermost on which they differ */
    bool          *recorded;          /* per instruction: another queue waits for it */
    SentBefore     sent;              /* what each procedure waits for */
    Events        *events;            /* whose channels and meetings are named */
    uint32_t       lane;
} Making;

Making  making_new(Arena *, const Program *, const Cost *, const Plan *, const Profile *, const Device *, Events *, uint32_t lane);
/* Every instruction that a call runs; `call` tells the last micro-batch's from the others. */
Recipe *recipe_full(Making *, const Call *);
/* The same in few nodes: what is computed and converted between two messages is one, as
 * long as it takes alone. */
Recipe *recipe_short(Making *, const Recipe *full);
/* When each node of a recipe starts and ends where the call runs alone. */
void    recipe_alone(Making *, Recipe *, int64_t *start, int64_t *end, Lane *spent);

#endif
