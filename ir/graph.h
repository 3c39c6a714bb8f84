#ifndef IR_GRAPH_H
#define IR_GRAPH_H
/* Graph: what the frontend makes and everything after it reads.  Start here.
 *
 * A Graph describes one whole training step (or one inference pass) of the
 * *global* model: no device, no split, no micro-batch.  Dims, values and ops
 * live in three dense arrays and name each other by index, so a pass keeps what
 * it learns in a plain array of the same length.  Ops are stored in an order in
 * which every op comes after the makers of its arguments; forward ops keep
 * source order, backward and update ops follow.
 *
 * An op's *factors* are the axes of its iteration space, as in an einsum: each
 * axis of each argument and result is labelled with one factor.  A linear layer
 * x[batch, seq, hidden] * w[hidden, ffn] has factors batch, seq, hidden (role k,
 * summed) and ffn (role n, made).  What a split of an axis does to an op is read
 * from its factors alone (DESIGN 3); a value may carry one dim under two roles
 * (a square weight), which is why layouts attach to factors, not to dims. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/diag.h"
#include "ir/dtype.h"
#include "ir/ops.h"

enum { MAX_RANK = 8, MAX_ARGS = 10, MAX_OUTS = 5, MAX_FACTORS = 16, MAX_ATTRS = 8 };
enum { NO_FACTOR = 0xFF };

typedef struct DimId   { uint32_t i; } DimId;        /* distinct types cannot be mixed up */
typedef struct ValueId { uint32_t i; } ValueId;
typedef struct OpId    { uint32_t i; } OpId;
#define NO_VALUE ((ValueId){UINT32_MAX})
#define NO_OP    ((OpId){UINT32_MAX})
#define NO_DIM   ((DimId){UINT32_MAX})
static inline bool has_value(ValueId v) { return v.i != UINT32_MAX; }
static inline bool has_op(OpId o) { return o.i != UINT32_MAX; }
static inline bool same_dim(DimId a, DimId b) { return a.i == b.i; }

/* A named axis.  Two dims may share a name (each block instance makes its own
 * head_dim); rules on a name mean all of them. */
typedef struct Dim {
    const char *name;                 /* "hidden" */
    int64_t     extent;               /* elements, > 0 */
    Span        at;                   /* where it was declared */
} Dim;

typedef enum ValueRole {
    ROLE_INPUT,                       /* given by the data loader, batch first */
    ROLE_WEIGHT,                      /* trained or frozen; weight_of() has its start values */
    ROLE_ACTIVATION,                  /* made by a forward op */
    ROLE_GRADIENT,                    /* made by a backward op, gradient of an activation */
    ROLE_WEIGHT_GRADIENT,             /* the whole gradient of a weight */
    ROLE_STEP                         /* made once per step: label counts, norms */
} ValueRole;

/* A tensor: row-major in the order of its axes. */
typedef struct Value {
    const char *path;                 /* "h[3].attn.q"; gradients "grad:h[3].attn.q" */
    ValueRole   role;
    DType       dtype;
    uint8_t     rank;
    DimId       axis[MAX_RANK];
    OpId        maker;                /* NO_OP for inputs and weights */
    ValueId     gradient;             /* its whole gradient, from graph_differentiate(); NO_VALUE; not in dumps */
    const char *variable;             /* of a single number: what the text assigned it to last; NULL; not in dumps */
    Span        at;
} Value;

/* What an attribute is; NONE and AUTO are the words of the language. */
typedef enum AttrKind { ATTR_NONE, ATTR_AUTO, ATTR_INT, ATTR_REAL, ATTR_BOOL, ATTR_DTYPE } AttrKind;
typedef struct Attr { AttrKind kind; int64_t i; double f; } Attr;   /* f is set for INT too */

typedef enum Phase { PHASE_BEGIN, PHASE_FORWARD, PHASE_BACKWARD, PHASE_UPDATE } Phase;

typedef struct Factor {
    DimId   dim;                      /* gives the global extent */
    char    role;                     /* the axis letter in the signature; '.' for its '..' */
} Factor;

typedef struct Op {
    OpKind      kind;
    Phase       phase;
    const char *path;                 /* "h[3].attn.q"; backward ops "grad:h[3].attn.q" */
    const char *key;                  /* whose random numbers it draws: the forward op's path */
    OpId        forward;              /* backward ops: the op differentiated; else NO_OP */
    ValueId     sum_of;               /* backward `add` of two gradients of one value: that value; else NO_VALUE */
    ValueId     give[MAX_ARGS];       /* forward ops: what they add to the gradient of each argument; not in dumps */
    uint8_t     narg, nout, nfactor;
    ValueId     arg[MAX_ARGS];        /* NO_VALUE where an optional argument is absent */
    ValueId     out[MAX_OUTS];
    Factor      factor[MAX_FACTORS];
    uint8_t     forward_factor[MAX_FACTORS];         /* backward ops: the factor of the forward op it is, or NO_FACTOR */
    uint8_t     arg_factor[MAX_ARGS][MAX_RANK];      /* axis -> factor */
    uint8_t     out_factor[MAX_OUTS][MAX_RANK];
    Attr        attr[MAX_ATTRS];      /* in the order of the signature's scalars */
    Span        at;
} Op;

/* How a weight starts: one number per element from its path and the seed. */
#define INIT_LIST(X) X(zeros, 0) X(ones, 0) X(normal, 1) X(trunc_normal, 1) X(uniform, 2) X(xavier, 0) X(kaiming, 0) X(fan_in, 0)
typedef enum InitKind {
#define X(name, nparam) INIT_##name,
    INIT_LIST(X)
#undef X
    INITS
} InitKind;
typedef struct Init {
    InitKind kind;
    double   a, b;                    /* std, or lo and hi */
    int64_t  fan_in, fan_out;         /* global extents summed and made: xavier, kaiming, fan_in */
} Init;

typedef struct Weight {
    ValueId value, gradient;          /* gradient NO_VALUE when frozen or unused */
    Init    init;
    bool    frozen, decays;           /* decays: weight_decay applies (rank >= 2, not a norm or bias) */
} Weight;

/* precision { } of the model, resolved. */
typedef struct Precision { DType compute, weights, grads, master, reduce; } Precision;

typedef enum OptimizerKind { OPTIMIZER_NONE, OPTIMIZER_SGD, OPTIMIZER_ADAMW } OptimizerKind;
typedef enum DecayKind { DECAY_NONE, DECAY_COSINE, DECAY_LINEAR } DecayKind;

/* optimizer NAME { }: defaults are PyTorch's; `clip` 0 means none. */
typedef struct Optimizer {
    OptimizerKind kind;
    double  lr, beta1, beta2, eps, weight_decay, momentum, clip, min_lr;
    int64_t warmup, steps;            /* optimizer steps; steps: where the decay ends, 0 = the run's length */
    DecayKind decay;
} Optimizer;

/* Moments that an optimizer keeps of a weight element. */
int optimizer_moments(const Optimizer *);

/* A value under the name that the model's text has for it. */
typedef struct NamedValue { const char *name; ValueId value; } NamedValue;

typedef struct Override { const char *name, *text; } Override;    /* -D name=text */

typedef struct Graph {
    Arena      *arena;
    const char *name, *doc;           /* of the model */
    Dim        *dim;      uint32_t ndim;
    Value      *value;    uint32_t nvalue;
    Op         *op;       uint32_t nop;
    Weight     *weight;   uint32_t nweight;          /* in order of declaration */
    NamedValue *output;   uint32_t noutput;
    Override   *override; uint32_t noverride;
    ValueId     loss;                 /* the value minimized, or NO_VALUE: inference */
    DimId       batch;                /* the dim called batch, or NO_DIM */
    Precision   precision;
    Optimizer   optimizer;
} Graph;

Graph  *graph_new(Arena *);
DimId   graph_add_dim(Graph *, const char *name, int64_t extent, Span at);
ValueId graph_add_value(Graph *, const char *path, ValueRole, DType, uint8_t rank, const DimId *axis, Span at);

static inline Dim   *dim_of(const Graph *g, DimId d)     { return &g->dim[d.i]; }
static inline Value *value_of(const Graph *g, ValueId v) { return &g->value[v.i]; }
static inline Op    *op_of(const Graph *g, OpId o)       { return &g->op[o.i]; }
Weight *weight_of(const Graph *, ValueId);           /* NULL when v is no weight */
int64_t value_elements(const Graph *, ValueId);
bool    value_has_dim(const Graph *, ValueId, DimId);
int64_t graph_parameters(const Graph *);             /* elements of all weights */

/* A new op's description.  Labels are factors by number, chosen by the caller;
 * with `by_dim` set they are derived: axes with one dim share a factor, except
 * that a value's second axis of one dim is a factor of its own. */
typedef struct OutSpec { const char *suffix; DType dtype; uint8_t rank; DimId axis[MAX_RANK]; uint8_t label[MAX_RANK]; } OutSpec;
typedef struct OpSpec {
    OpKind      kind;
    Phase       phase;
    const char *path, *key;           /* key NULL: the path */
    OpId        forward;
    uint8_t     narg, nout;
    ValueId     arg[MAX_ARGS];
    uint8_t     label[MAX_ARGS][MAX_RANK];
    OutSpec     out[MAX_OUTS];        /* suffix NULL: the op's path, else path:suffix */
    Attr        attr[MAX_ATTRS];      /* start from op_defaults() */
    bool        by_dim;
    Span        at;
} OpSpec;
/* A spec with the kind's default attributes and no arguments, labelled by dim. */
OpSpec op_spec(OpKind, Phase, const char *path, Span at);
/* Append the op and its result values (role from the phase); roles of factors
 * come from the signature.  Asserts what graph_check() checks for one op. */
OpId   graph_add_op(Graph *, const OpSpec *);

/* Attribute by the name in the signature; asserts that it exists. */
const Attr *op_attr(const Op *, const char *name);
int         op_attr_index(OpKind, const char *name);  /* -1: no such attribute */
bool        op_same_attrs(const Op *, const Op *);
#define ATTR_I(v) ((Attr){ATTR_INT, (v), (double)(v)})
#define ATTR_F(v) ((Attr){ATTR_REAL, 0, (v)})
#define ATTR_B(v) ((Attr){ATTR_BOOL, (v), 0})
#define ATTR_T(v) ((Attr){ATTR_DTYPE, (v), 0})
/* none, auto, true, false or a dtype; false: the text is no such word. */
bool        attr_word(const char *text, Attr *out);

/* ---- passes over a Graph ---- */

/* Supply the arguments the language does not know, to training and inference
 * alike; does nothing the second time.
 *   cross_entropy  count: the valid labels of the whole batch, from one count_labels
 *                  op in PHASE_BEGIN per distinct (labels, ignore)
 *   combine        token: what the dispatch that filled its slots saved
 *   load_balance   prob: what the router that made its route saved */
void graph_complete(Graph *);

/* Append the backward ops: gradients of every trained weight that reaches the
 * loss.  Needs a loss; completes the graph first.  One rule per op, in grad_rules.c. */
void graph_differentiate(Graph *);

/* The losses that the minimized number is a sum of, each before its weight, in order of the text (losses.c); n is 0
 * where it is one by itself. */
typedef struct Losses { NamedValue *of; uint32_t n; } Losses;
Losses graph_losses(const Graph *, Arena *);

/* Whether some weight that is not frozen reaches the loss. */
bool graph_trains(const Graph *);

/* Number of broken invariants, each printed to `err`. */
int  graph_check(const Graph *, FILE *err);

/* The dump form: version in line 1, one record a line, key=value.  What prints
 * reads back to an equal graph (spans excepted). */
void   graph_print(FILE *, const Graph *);
Status graph_read(Arena *, FILE *in, const char *name, FILE *err, Graph **out);

/* FLOPs and bytes of one call at the op's full (global) extents. */
double op_flops(const Graph *, OpId);
double op_bytes(const Graph *, OpId);                /* each argument read and result written once */

/* Model FLOPs of a step, as MFU counts them (PaLM appendix B, Megatron): forward
 * matmuls and attention, times three when training; recomputation never counts.
 * `causal` leaves out the masked half of causal attention. */
double graph_model_flops(const Graph *, bool causal);
/* Samples of a step: the batch, or 1 without a batch axis. */
int64_t graph_samples(const Graph *);
/* Tokens of a step: the labels of the first cross_entropy; without one, the elements of
 * the largest input of whole numbers, but no fewer than the samples.  Where they equal
 * the samples, people read "samples". */
int64_t graph_tokens(const Graph *);

#endif
