#ifndef IR_PROFILE_H
#define IR_PROFILE_H
/* Profile: how a runtime executes a program, as far as time and memory depend on it: what
 * it overlaps, adds, keeps and pads.  A few constants, never code.  Made by the frontend
 * from a .pprofile, read by the simulator and by what shows memory; the profile
 * `prun` describes our own runtime, whose memory is the map of the program itself. */
#include <stdio.h>

#include "base/diag.h"
#include "ir/ops.h"

/* What runs beside compute on a device that has streams; with `false` compute waits for it. */
#define OVERLAP_LIST(X)                                                                 \
    X(collective)                     /* conversions between placements, where not waited for */ \
    X(gradient)                       /* sums of gradients, while backward goes on */    \
    X(scatter)                        /* those of them that leave each rank its part, where the optimizer is sharded */ \
    X(send) X(recv)                   /* messages between stages */
typedef enum OverlapKind {
#define X(name) OVERLAP_##name,
    OVERLAP_LIST(X)
#undef X
    OVERLAPS
} OverlapKind;

/* Bytes an op's result costs in backward, in parts of its own bytes, in place of what prun keeps of it. */
typedef struct Keep { OpKind op; double part; } Keep;

typedef struct Profile {
    Arena      *arena;
    const char *name, *doc;
    bool        overlap[OVERLAPS];
    bool        fuses_sums;           /* a matmul adds to a gradient of more bits itself; else what it made is added by another pass */
    bool        packs;                /* what is communicated is packed first, and unpacked after: it lies in memory another way */
    double      slow_compute;         /* 1 or more: compute takes this times longer while communication runs beside it */
    double      slow_link;            /* likewise communication while compute runs */
    double      slow_matmul;          /* 1 or more: its matmuls against the device's curve */
    double      slow_attention;       /* 1 or more: its attention against the device's best kernel */
    double      slow_memory;          /* 1 or more: ops bound by memory against ours: kernels that are not fused move values again */
    double      step;                 /* seconds a step takes beyond its instructions: loading, logging, the host */
    double      issue;                /* seconds the host takes to issue an instruction: a procedure takes no less for all of its own */
    double      issue_rank;           /* seconds more for each rank of a collective, where there are stages */
    double      message;              /* seconds a message between stages takes beyond its link: shapes sent first, the host waiting */
    double      stall;                /* seconds that a step, and each message in it, waits on more devices than these */
    int64_t     stall_above;
    Keep       *keep; uint32_t nkeep; /* in the order of ops.def, each op once */
    bool        holds_gradients;      /* gradients in the weights' own type besides the sums */
    bool        converts_gradients;   /* a step begins with f32 copies of the gradients of fewer bits that it updates by */
    double      late_gathers;         /* part of what forward gathers whose memory is not back when the next is asked for: the host frees it
                                       * long before the device has read it.  Not where hosts stall */
    int64_t     late_within;          /* where stages wait for messages too, of groups up to so many devices alone */
    double      pad;                  /* 1 or more: memory taken for a byte that is not a state: fragments of an allocator */
    int64_t     reserve;              /* bytes of a device the runtime needs beyond the device's own reserve */
    Span        at;
} Profile;

const char *overlap_name(OverlapKind);
/* Seconds of a stall on so many devices. */
double      profile_stall(const Profile *, uint32_t ndevices);
/* What is kept of an op's result in backward, or NULL: what prun keeps. */
const Keep *profile_keep(const Profile *, OpKind);

void profile_print(FILE *, const Profile *);         /* the language's own form; reads back through frontend */
int  profile_check(const Profile *, FILE *err);

#endif
