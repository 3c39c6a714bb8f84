#ifndef PLANNER_SPACE_H
#define PLANNER_SPACE_H
/* Space: what the search chooses from, cuts of stages and splits of ops apart: sizes of the mesh
 * axes, the order in which they nest on the devices, micro-batches, schedule, and whether optimizer
 * states are sharded. */
#include "codegen/cost.h"
#include "planner/rules.h"

/* A mesh on the devices. */
typedef struct Mesh {
    int64_t   size[MESH_AXES];
    const Decisions *d;               /* the rules on this mesh */
    uint32_t *device;                 /* mesh order -> device number */
    Pattern   copies, neighbours;     /* ranks that hold copies of a stage's weights; a rank and its place on the next stage */
    uint32_t  tp_stride, cp_stride;   /* in device numbers */
} Mesh;

typedef struct Config {
    const Mesh *mesh;
    int64_t     micro;
    bool        gpipe;                /* else 1f1b */
    bool        shard;                /* optimizer states over dp */
} Config;

typedef struct Space {
    Mesh   *mesh;   uint32_t nmesh;
    Config *config; uint32_t nconfig;
    bool    micro_left_out;           /* numbers of micro-batches beyond those tried */
} Space;

/* All that the rules allow, in one order.  most_stages: pieces of the chain.  Where the rules suit no
 * mesh, the diagnostics are those of the first. */
Status space_read(Arena *, Diags *, const PlanRequest *, const Decisions *, uint32_t most_stages, Space *out);

#endif
