#ifndef IR_CLUSTER_H
#define IR_CLUSTER_H
/* Cluster: the machine a plan is for.  Nested levels, inner to outer; each joins
 * devices or smaller levels and gives the link one device sees.  Made by the
 * frontend from a .pcluster, read by codegen's costs and by the planner. */
#include <stdio.h>

#include "base/diag.h"
#include "ir/dtype.h"

typedef enum Backend { BACKEND_CPU, BACKEND_CUDA } Backend;

/* Fraction of peak at a problem size; interpolated on the logarithm of `at`. */
typedef struct CurvePoint { double at, fraction; } CurvePoint;
typedef struct Curve { CurvePoint *point; uint32_t npoint; } Curve;

typedef struct Device {
    const char *name, *doc;
    Backend backend;
    int64_t memory, reserve;          /* bytes; reserve: context, libraries, heap */
    double  bandwidth;                /* bytes/s of device memory */
    double  peak[DTYPES];             /* FLOP/s of matmuls; 0: the device cannot compute in it */
    Curve   efficiency;               /* matmul FLOP -> fraction of peak */
    double  launch;                   /* seconds to start one kernel */
    int     threads;                  /* cpu: threads per rank; 0 for cuda */
    Span    at;
} Device;

typedef enum Topology { TOPO_SWITCH, TOPO_RING, TOPO_FULL, TOPO_MESH } Topology;

/* `count` times a device or a smaller level. */
typedef struct Group { int64_t count; int32_t device, level; } Group;   /* one of the two is -1 */

typedef struct Level {
    const char *name;
    Group   *group; uint32_t ngroup;
    double   link;                    /* bytes/s a device sees, per direction */
    double   latency;                 /* seconds a hop */
    double   efficiency;              /* fraction of `link` that collectives reach */
    Topology topology;
    int      cores;                   /* processors its devices share; 0: each its own */
    Span     at;
} Level;

typedef struct Cluster {
    Arena      *arena;
    const char *name, *doc;
    Device     *device; uint32_t ndevice;            /* kinds */
    Level      *level;  uint32_t nlevel;             /* inner to outer; the last is the whole */
    double      host_memory, host_link;              /* bytes a node; bytes/s a device; 0 unknown */
    uint32_t    ndevices;                            /* devices in all */
    uint32_t   *kind;                                /* device number -> index into device */
    const char *text;                                /* the device and cluster items, `fmt` form, params applied */
    Span        at;
} Cluster;

void cluster_print(FILE *, const Cluster *);         /* the language's own form; reads back through frontend */
int  cluster_check(const Cluster *, FILE *err);

#endif
