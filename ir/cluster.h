#ifndef IR_CLUSTER_H
#define IR_CLUSTER_H
/* Cluster: the machine a plan is for.  Nested levels, inner to outer; each joins
 * devices or smaller levels and gives the link one device sees.  Made by the
 * frontend from a .pcluster, read by codegen's costs and by the planner. */
#include <stdio.h>

#include "base/diag.h"
#include "ir/dtype.h"
#include "ir/ops.h"
#include "ir/quantity.h"

typedef enum Backend { BACKEND_CPU, BACKEND_CUDA } Backend;

/* Fraction of a rate that is reached at a problem size: FLOP of ops that are bound by
 * the peak (op_computes()), bytes of those bound by memory.  Interpolated on the logarithm
 * of `at`, from a first point at 0 on `at` itself; constant beyond both ends. */
typedef struct CurvePoint { double at, fraction; } CurvePoint;
#define CURVE_MOST_MEMORY 100.0       /* the most of a memory's bandwidth: caches are faster than it; of a peak, 1 */
typedef struct Curve { CurvePoint *point; uint32_t npoint; } Curve;

/* The curve of an op: of all its instructions, or of those that have one of its optional tensors or switches
 * ("bias", "exact"), or that compute in one dtype (bf16 where anything is bf16, else that of the
 * first number), or both.  Of several that fit, one with the option counts before one with the dtype. */
typedef struct OpCurve {
    OpKind  op;
    Curve   curve;
    uint8_t with;                     /* 1 + the option's place in the signature; 0: with any */
    uint8_t typed;                    /* 1 + the DType; 0: in any */
} OpCurve;

enum { MOST_COMM_THREADS = 1 };       /* all that a rank communicates follows one order, the program's */

typedef struct Device {
    const char *name, *doc;
    Backend backend;
    int64_t memory, reserve;          /* bytes; reserve: context, libraries, heap */
    double  bandwidth;                /* bytes/s of device memory */
    double  peak[DTYPES];             /* FLOP/s of matmuls; 0: the device cannot compute in it */
    Curve   efficiency;               /* of matmuls, and of ops bound by the peak without a curve of their own */
    Curve   memory_efficiency;        /* of `bandwidth`, of ops bound by memory without one */
    OpCurve *of_op; uint32_t nof_op;  /* in the order of op_curve_order(), each once */
    int64_t sms;                      /* cuda: multiprocessors, among which tiles of a matmul are dealt out; 0: tiles are not counted */
    double  tile;                     /* cuda: speed of a matmul's 128x128 tile against the 256x128 one, 0..1; smaller ones lose as much again */
    double  depth;                    /* elements summed at which a matmul reaches half of its speed */
    double  unaligned;                /* speed of a matmul whose rows do not begin at multiples of 16 bytes, of what it is else; 0: as fast */
    double  attention_depth;          /* key positions at which attention does */
    double  launch;                   /* seconds to start one kernel */
    int     threads;                  /* cpu: threads per rank that compute; 0 for cuda */
    int     comm_threads;             /* cpu: further ones, which only communicate, beside computing: 0 or MOST_COMM_THREADS; 0 for cuda */
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
    double   bandwidth;               /* bytes/s of memory its devices share; 0: each its own */
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

/* Whether a device communicates while it computes. */
bool device_overlaps(const Device *);
/* The curve of an op as such, or the one that stands for its kind; it may have no points. */
const Curve *device_curve(const Device *, OpKind);
/* By op, option and dtype: below 0, 0 or above 0. */
int          op_curve_order(const OpCurve *, const OpCurve *);
/* "OP", "OP.OPTION", "OP.DTYPE" or "OP.OPTION.DTYPE", as after "efficiency.". */
const char  *op_curve_name(const OpCurve *, char *text, size_t room);
enum { OP_CURVE_NAME = 64 };          /* room that is enough */
/* The option of an op that is called so, as OpCurve.with; 0: it has none. */
uint8_t      op_option(OpKind, const char *name);

void curve_print(FILE *, const Curve *, QuantityKind at);   /* a list of points */
void cluster_print(FILE *, const Cluster *);         /* the language's own form; reads back through frontend */
int  cluster_check(const Cluster *, FILE *err);

#endif
