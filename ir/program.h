#ifndef IR_PROGRAM_H
#define IR_PROGRAM_H
/* Program: what one rank does.  codegen makes it, the simulator and every
 * backend execute it, and its buffers are the memory ledger: what is listed here
 * is exactly what prun maps before step 0.
 *
 * A Program has *buffers* (every byte the rank owns, each with class, lifetime
 * and offset), *instructions* (one op each, on buffers), *procedures* (runs of
 * instructions: begin, forward, backward, update, evaluate) and a *schedule* of
 * calls.  Procedures do not grow with the number of micro-batches.  An instruction is
 * on a *stream*; those of one stream follow each other, and *waits* order the rest.
 *
 * Arguments name tensors: a buffer's bytes under a shape.  A tensor axis knows
 * where its local elements lie in the global tensor; place_global() in place.h
 * alone turns local into global indices. */
#include <stdio.h>

#include "ir/graph.h"
#include "ir/plan.h"

typedef struct BufferId { uint32_t i; } BufferId;
typedef struct TensorId { uint32_t i; } TensorId;
#define NO_BUFFER ((BufferId){UINT32_MAX})
#define NO_TENSOR ((TensorId){UINT32_MAX})
static inline bool has_tensor(TensorId t) { return t.i != UINT32_MAX; }
static inline bool has_buffer(BufferId b) { return b.i != UINT32_MAX; }

/* Ledger classes, in the order of the tables users see. */
#define BUFFER_CLASS_LIST(X)                                                         \
    X(weights,     "weights")          /* computed with; the master too when one copy serves */ \
    X(master,      "master weights")                                                 \
    X(gradients,   "gradients")                                                      \
    X(moments,     "optimizer moments")                                              \
    X(inputs,      "input batch")      /* the whole local batch of a step */          \
    X(saved,       "saved for backward")                                             \
    X(working,     "working values")   /* live inside one procedure */               \
    X(workspace,   "kernel workspace")                                               \
    X(scalars,     "scalars")          /* loss, counts, norm */
typedef enum BufferClass {
#define X(name, text) CLASS_##name,
    BUFFER_CLASS_LIST(X)
#undef X
    CLASSES
} BufferClass;

const char *buffer_class_text(BufferClass);          /* as in the list above */

typedef enum MapPart { PART_PRIVATE, PART_SHARED } MapPart;   /* shared: peers read it */

enum { BUFFER_ALIGN = 64, PAD_ELEMENTS = 64 };       /* bytes; elements a flat tensor is padded to */

typedef struct Buffer {
    const char *name;                 /* a value's path, "bucket[2].gradients", ... */
    BufferClass cls;
    MapPart     part;
    int64_t     bytes;                /* of one slot, a multiple of BUFFER_ALIGN */
    uint32_t    slots;                /* copies for micro-batches in flight */
    bool        by_micro;             /* inputs: slot k holds micro-batch k, whatever the call's slot */
    int32_t     first, last;          /* instruction ids between which a slot is live; -1: always */
    int64_t     offset;               /* of slot 0 in its part of the map; slots follow each other */
} Buffer;

/* Where a local axis lies in the global one: see place.h. */
typedef struct AxisPlace {
    int64_t local, global;            /* extents; global unpadded, so the last parts may reach beyond it */
    int64_t origin;                   /* first global index, in micro-batch 0 */
    int64_t per_micro;                /* the batch axis: origin moves by this per micro-batch; else 0 */
    int64_t pad;                      /* elements that exist after the `global` ones and hold nothing; 0: none */
} AxisPlace;

typedef struct Tensor {
    const char *path;                 /* the value's */
    BufferId    buffer;
    int64_t     at;                   /* byte offset in the buffer's slot */
    DType       dtype;
    uint8_t     rank;
    AxisPlace   axis[MAX_RANK];
    ValueRole   role;
    bool        partial;              /* made as summands: the value is the sum over ranks of what they hold */
} Tensor;

/* When a result is added to what is there instead of replacing it. */
typedef enum Accumulate { ACC_NO, ACC_YES, ACC_AFTER_FIRST } Accumulate;   /* after the first micro-batch of a step */

/* Streams: queues of one device.  Instructions of one run one after the other, in the
 * order of the calls; of different ones at the same time, unless a wait forbids it. */
#define STREAM_LIST(X)                                                                   \
    X(compute)    /* kernels */                                                          \
    X(collective) /* conversions between placements, and scalars that ranks sum up */    \
    X(gradient)   /* sums of gradients, the norm, and weights that go back out */        \
    X(send) X(recv)   /* messages between stages */
typedef enum Stream {
#define X(name) STREAM_##name,
    STREAM_LIST(X)
#undef X
    STREAMS
} Stream;

const char *stream_name(unsigned);                   /* as in the list above */

/* In which calls of its procedure an instruction is executed: in all, or in that of the
 * last micro-batch of the step alone. */
typedef enum When { WHEN_ALWAYS, WHEN_LAST } When;

typedef struct Instr {
    OpKind      op;
    Stream      stream;
    When        when;
    const char *path;                 /* of the graph op(s) it came from */
    const char *key;                  /* random numbers */
    uint8_t     narg, nout, nfactor;
    TensorId    arg[MAX_ARGS], out[MAX_OUTS];        /* NO_TENSOR where absent or unused */
    uint32_t    group;                /* of communication: index into Program.group */
    Accumulate  acc;                  /* of result 0; a gradient bucket's */
    uint8_t     acc_out;              /* bit per result: which of them `acc` applies to */
    int64_t     extent[MAX_FACTORS];  /* local extents of the op's factors */
    char        role[MAX_FACTORS];
    uint8_t     arg_factor[MAX_ARGS][MAX_RANK];
    uint8_t     out_factor[MAX_OUTS][MAX_RANK];
    Attr        attr[MAX_ATTRS];
    TensorId    workspace;            /* NO_TENSOR: none needed */
    double      flops;                /* of this rank's part */
    int64_t     bytes;                /* arguments and results, each once */
} Instr;

#define PROC_LIST(X)                                                                     \
    X(begin)      /* once a step, per micro-batch: count labels */                        \
    X(agree)      /* once a step, after them: counts summed over ranks */                 \
    X(forward) X(backward)                                                               \
    X(update)     /* gradients summed over ranks; norm, clip, optimizer */                \
    X(evaluate)   /* forward only, dropout off */                                         \
    X(total)      /* after the last forward or evaluate: losses summed over ranks */
typedef enum ProcKind {
#define X(name) PROC_##name,
    PROC_LIST(X)
#undef X
    PROCS
} ProcKind;

typedef struct Proc {
    ProcKind kind;
    uint32_t chunk;
    uint32_t first, end;              /* instructions [first, end) */
} Proc;

typedef struct Call { uint32_t proc, micro, slot; } Call;

/* Before `instr` runs, its stream waits until `on`, of another stream, has run: in the
 * latest call that had the slot of this one (same_slot), or in the latest of all.  As
 * with events of CUDA, the latest are those before this instruction in the order of the
 * calls, and what has not run yet is not waited for.  An instruction that some wait
 * names is *recorded*: an event is an (instruction, slot). */
typedef struct Wait { uint32_t instr, on; bool same_slot; } Wait;

/* What the whole numbers of an input may be, from all that reads them on any stage. */
typedef struct InputLimit {
    bool        label;                /* read as labels, which have a mark for absent rows */
    const char *of;                   /* the smallest table, or logits, of which each number picks a row or class; NULL: none */
    int64_t     below;                /* rows or classes of that */
    bool        ignores;              /* every reader accepts `ignore` beside them */
    int64_t     ignore;
} InputLimit;

/* An input of the model.  All ranks have all of them; those that a rank does not read
 * have no tensor there. */
typedef struct Input {
    const char *name;
    TensorId    tensor;               /* filled by the loader: the rank's whole batch of a step; or NO_TENSOR */
    DType       dtype;
    uint8_t     rank;
    int64_t     extent[MAX_RANK];     /* of the batch of all ranks */
    InputLimit  limit;
} Input;

/* States of a bucket that ranks share out (ZeRO 1): the weights of the bucket lie end
 * to end, and each rank has the master copy and the moments of one part of that order.
 * Only in that part is its gradient the sum over all ranks after a step. */
typedef struct Shard {
    TensorId master, moment[2];       /* rank 1: those of elements first..end of the order; NO_TENSOR where there is none */
    int64_t  at;                      /* element of the order where this weight begins */
    int64_t  first, end;              /* elements of the order that this rank has */
} Shard;

/* A weight or state as checkpoints and dumps know it. */
typedef struct State {
    const char *path;                 /* of the weight */
    TensorId    weight, master, gradient, moment[2]; /* NO_TENSOR where there is none; master: what `weight` is rounded from */
    bool        sharded;              /* its master and moments are in `shard`, and those here are absent */
    Shard       shard;
    Init        init;
    bool        frozen, decays;
} State;

/* What a run tells of by a name that the model's text has for it.  The programs of all ranks have all of them. */
typedef struct NamedTensor {
    const char *name, *path;          /* path: the value's */
    TensorId    tensor;               /* NO_TENSOR: another stage's */
} NamedTensor;

/* Ranks that communicate with each other: ascending, or source and destination of a
 * send and its recv. */
typedef struct RankGroup { uint32_t *rank, n; } RankGroup;

typedef struct Program {
    Arena      *arena;
    Arena      *lists;                /* while it is made: of its lists of buffers, tensors and instructions; NULL: arena */
    const char *model;
    uint32_t    rank, nranks;         /* whose program, and how many there are: places in Plan.devices */
    RankGroup  *group; uint32_t ngroup;
    Buffer     *buffer; uint32_t nbuffer;
    Tensor     *tensor; uint32_t ntensor;
    Instr      *instr;  uint32_t ninstr;
    Proc       *proc;   uint32_t nproc;
    Call       *call;   uint32_t ncall;              /* one step */
    Wait       *wait;   uint32_t nwait;              /* in order of `instr` */
    Input      *input;  uint32_t ninput;
    State      *state;  uint32_t nstate;
    TensorId    loss, norm;           /* scalars; norm: sum of squares of all gradients */
    NamedTensor *term;  uint32_t nterm;              /* scalars: the losses that `loss` is a sum of; none: it is one by itself */
    NamedTensor *output; uint32_t noutput;           /* values the model outputs */
    Optimizer   optimizer;
    Precision   precision;
    int64_t     batch, microbatches;  /* global batch in samples; micro-batches a step */
    bool        full_only;            /* samples of a micro-batch are mixed: it must have all of its rows */
    int64_t     map_bytes[2];         /* by MapPart */
    int64_t     reserve, memory;      /* bytes of the device outside and in all */
    int         threads, comm_threads;               /* that compute; further ones that only communicate */
    double      model_flops, model_flops_causal;     /* of a step, all ranks */
    double      peak;                 /* FLOP/s of the device in the compute dtype: the base of MFU */
    int64_t     tokens;               /* of a step, for reports: graph_tokens() */
} Program;

Program *program_new(Arena *);
BufferId program_add_buffer(Program *, Buffer);
TensorId program_add_tensor(Program *, Tensor);
uint32_t program_add_instr(Program *, Instr);
/* The lists move to the program's arena: those that they grew out of stay behind. */
void     program_settle(Program *);

int64_t program_map_bytes(const Program *);          /* of both parts */

int64_t tensor_elements(const Tensor *);
int64_t tensor_bytes(const Tensor *);
/* Whether a call executes an instruction of its procedure. */
bool    instr_runs(const Instr *, const Program *, const Call *);
/* The sends that must have been taken before a procedure begins, as their receivers read where they lie: its own, and
 * those of what it makes anew, as a loss does whose gradient is made going forward and sent going backward.
 * Of procedure k they are instr[first[k]] to before instr[first[k + 1]]. */
typedef struct SentBefore { uint32_t *instr, *first; } SentBefore;
SentBefore program_sent_before(const Program *, Arena *);
double  instr_flops(const Instr *, const Program *);
void    instr_measure(Instr *, const Program *);      /* sets its flops and bytes */
int64_t instr_workspace(const Instr *, const Program *);   /* bytes, from ops.def */
const Attr *instr_attr(const Instr *, const char *name);

/* Whether the optimizer steps a copy of the weight that has more bits; not every rank has
 * it, or all of it. */
bool    state_is_rounded(const Program *, const State *);

/* Where the states' gradients lie, in order of buffer and place. */
typedef struct GradientPlace {
    BufferId buffer;
    int64_t  from, to, reach;         /* bytes of the buffer; reach: the largest `to` so far in it */
    uint32_t state;
} GradientPlace;
typedef struct GradientPlaces { GradientPlace *place; uint32_t n; } GradientPlaces;

GradientPlaces gradient_places(const Program *, Arena *);
/* The first place that shares bytes with a tensor, and the one after place i; n: none. */
uint32_t gradients_first(const GradientPlaces *, const Tensor *);
uint32_t gradients_next(const GradientPlaces *, const Tensor *, uint32_t i);

/* The verifier: shapes agree at every edge, every read has an earlier write, no
 * two live buffers overlap, every gradient is accumulated once per micro-batch,
 * everything lies inside the map.  Number of violations, each printed. */
int     program_check(const Program *, FILE *err);

void    program_print(FILE *, const Program *);
Status  program_read(Arena *, FILE *in, const char *name, FILE *err, Program **out);
/* What all ranks compare before step 0: a hash of the printed form. */
uint64_t program_hash(const Program *);

#endif
