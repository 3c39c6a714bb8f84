#ifndef IR_LAYOUT_H
#define IR_LAYOUT_H
/* Layout: where every value of a Graph lies under a Plan.  It follows from the
 * plan's mesh and split rules by one function, layout_read(), and is never stored.
 *
 * The *grid* of a stage is its mesh without pp, each mesh axis in as many parts as
 * are used apart, without those of size 1: with four kv heads, tp = 6 is the grid
 * axes tp (2) and tp (3), the first outermost.  A *placement* says of a value, per
 * grid axis, whether it is whole, split along one of its axes, or partial.  Several
 * grid axes may split one value axis; the first one is then the outermost cut.
 *
 * An op is *cut* per grid axis along one of its factors (query heads and the kv heads
 * they read together, where both divide).  From the cuts follow the placements of
 * its results as made, and those it needs its arguments in; where a value is made
 * in one and needed in another stands a conversion. */
#include "ir/plan.h"
#include "ir/program.h"

enum { MAX_GRID = 12 };

typedef struct GridAxis {
    MeshAxis axis;
    MeshPart part;                    /* of a mesh axis the user made in parts */
    uint32_t size, stride;            /* coordinate of rank r: r / stride % size */
} GridAxis;

typedef struct Grid {
    GridAxis axis[MAX_GRID]; uint32_t n;
    uint32_t nranks;                  /* of a stage */
} Grid;

typedef uint16_t GridSet;             /* a bit per grid axis */

enum { PLACE_WHOLE = -1, PLACE_PARTIAL = -2 };       /* else the value axis that is split */
typedef struct Placement { int8_t on[MAX_GRID]; } Placement;

/* Stages of a pipeline.  Forward ops are cut between in their order; backward ops go
 * with them.  What depends on weights alone (positions, tables) is executed wherever
 * it is used, and so its gradients, like those of a weight used on several stages,
 * are summands, one a stage. */
typedef uint64_t StageSet;            /* a bit per stage */
enum { MAX_STAGES = 64 };

/* A value that is made on one stage and read on another, there in the same place of
 * the mesh; a partial one is completed first.  It goes from neighbour to neighbour, and each
 * stage on its way passes it on: with a message past a neighbour a stage that runs ahead would
 * wait for one that cannot have come to it yet (1F1B), and that one for the gradient it sent. */
typedef struct Crossing { ValueId value; uint32_t from, to; } Crossing;

typedef struct Layout {
    const Graph *g;
    Grid       grid;
    uint16_t (*cut)[MAX_GRID];        /* per op and grid axis: a bit per factor; 0: not cut */
    Placement *value;                 /* per value: as its maker, the loader or the checkpoint leaves it */
    GridSet   *agree;                 /* per value: where each rank has a summand that is completed once a step, before
                                         the first forward op: label counts */
    int64_t   *pad;                   /* per dim: elements added */
    GridSet   *reduce;                /* per weight: where its gradient is partial when backward is done */
    GridSet   *shard;                 /* per weight: of `reduce`, where its optimizer states are shared out */
    uint32_t   nstages;
    StageSet  *stages;                /* per op: where it is executed */
    StageSet  *used;                  /* per value: where it is, and where it is read */
    Crossing  *crossing; uint32_t ncrossing;         /* in order of the values */
} Layout;

/* Whether a value is made on a stage, or given to it by the loader or a checkpoint. */
bool layout_has(const Layout *, ValueId, uint32_t stage);

/* Rules that cannot be met are diagnostics at the rule. */
Status layout_read(Arena *, Diags *, const Graph *, const Plan *, Layout *out);

/* What op needs of argument `arg`, which is there. */
Placement layout_need(const Layout *, OpId, int arg);
/* Where that argument counts on coordinate 0 alone: it is whole there and adds to
 * what is partial. */
GridSet   layout_once(const Layout *, OpId, int arg);

/* ---- choosing cuts: for who looks for them, op by op ---- */

/* A way to cut an op along a mesh axis: what `split NAME in PATH by AXIS` does to it. */
typedef struct CutChoice { const char *name; uint16_t cut[MAX_GRID]; } CutChoice;

/* The layout of one stage before any `split` rule: grid, padding, ops cut by dp alone.
 * Cuts and placements are the caller's to write; what follows from them is asked below. */
Status    layout_open(Arena *, Diags *, const Graph *, const Plan *, Layout *out);
/* The choices of a forward op that divide, one per name of an axis; none is along the
 * batch, which is for dp. */
uint32_t  layout_choices(Arena *, const Layout *, OpId, MeshAxis, CutChoice **out);
/* The cut of a backward op, from those of forward ops and, of sums, its arguments. */
void      layout_cut_backward(Layout *, OpId);
/* Where result k lies as it is made, from the op's cut and its arguments' placements. */
Placement layout_made(const Layout *, OpId, int k);

/* Elements of a factor on one rank, all micro-batches together. */
int64_t   layout_extent(const Layout *, OpId, uint8_t factor);

uint32_t  grid_coordinate(const Grid *, uint32_t rank, uint32_t axis);
/* The ranks that differ from `rank` on the axes of a set alone, ascending; arena memory. */
RankGroup grid_group(Arena *, const Grid *, uint32_t rank, GridSet);
/* "tp", "dp.inner and tp" */
const char *grid_names(Arena *, const Grid *, GridSet);

static inline bool placement_equal(const Grid *g, Placement a, Placement b)
{
    uint32_t d = 0;
    while (d < g->n && a.on[d] == b.on[d])
        d++;
    return d == g->n;
}
Placement placement_whole(void);
GridSet   placement_on(const Grid *, Placement, int kind);     /* grid axes with that entry */
/* A tensor of a value as `rank` has it, in micro-batch 0; `micro`: the axis that is
 * cut into `count` micro-batches, or -1.  Partial counts as whole. */
Tensor    layout_tensor(const Layout *, ValueId, Placement, uint32_t rank, int micro, int64_t count);

#endif
