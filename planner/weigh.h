#ifndef PLANNER_WEIGH_H
#define PLANNER_WEIGH_H
/* Weigh: the figures of one layout, whether or not it fits.  They are those that `pplan
 * estimate` shows of it: its rules go through planner_choose(), its programs are
 * simulated, and only numbers stay. */
#include "codegen/simulate.h"
#include "planner/planner.h"

/* Parts of a stage's time, which sum up to the step: by class of instruction, exposed
 * communication by mesh axis, and the rest. */
enum { TIME_EXPOSED = COST_CLASSES, TIME_SLOWED = TIME_EXPOSED + MESH_AXES, TIME_IDLE, TIME_RUNTIME, TIME_PARTS };

int64_t     time_part(const StageTimes *, int part);
const char *time_part_key(Arena *, int part);        /* "exposed_dp" */
const char *time_part_text(Arena *, int part);       /* "exposed communication over dp" */

/* The stage that waits least for the others. */
uint32_t busiest_stage(const Simulation *);

/* A buffer that is live where the sum of them is largest. */
typedef struct Live { const char *name; BufferClass cls; int64_t bytes; } Live;

enum { PEAK_BUFFERS = 5 };

/* Where a program needs the most memory. */
typedef struct Peak {
    const char *op, *path;            /* of the instruction */
    uint32_t    instr;
    int64_t     bytes;                /* live there, slots counted */
    Live        largest[PEAK_BUFFERS]; uint32_t n;   /* of the buffers, in order of size */
} Peak;

Peak peak_of(Arena *, const Program *);

typedef struct Figures {
    int64_t  ns;                      /* of the step */
    double   mfu;
    uint32_t stage;                   /* the busiest */
    int64_t  part[TIME_PARTS];        /* of its time, ns */
    uint32_t rank;                    /* the fullest */
    int64_t  map, reserve, memory;    /* its bytes: needed, outside, in all */
    int64_t  by_class[CLASSES];       /* before sharing by lifetime */
    Peak     peak;
    int64_t  microbatches;
} Figures;

Figures figures_of(Arena *, const Plan *, const Programs *, const Simulation *);
/* Bytes too much; <= 0: it fits. */
int64_t figures_excess(const Figures *);
/* Weights, gradients and what the optimizer keeps: they do not shrink with the micro-batch. */
int64_t figures_states(const Figures *);

/* Who asks, and about which model and machine; its rules and use are replaced. */
typedef struct Weigher {
    Arena             *arena;         /* what is answered stays here */
    Sources           *sources;
    const PlanRequest *request;
} Weigher;

typedef struct Weighed {
    bool        legal;                /* else there are no figures */
    Figures     figures;
    const char *layout;               /* all that was decided, as rules; equal layouts have equal texts */
    Diags      *said;                 /* what planning it said: not shown yet */
    const char *refused;              /* why it is not legal: the first error */
} Weighed;

Weighed weigh(const Weigher *, const Rules *, PlanUse);
/* The same of a plan that was made already. */
Weighed weigh_plan(const Weigher *, const Plan *, const Programs *, const Simulation *);
static inline bool weighed_fits(const Weighed *w) { return w->legal && figures_excess(&w->figures) <= 0; }

#endif
