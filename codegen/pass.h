#ifndef CODEGEN_PASS_H
#define CODEGEN_PASS_H
/* Private to codegen: the passes, in the order driver.c calls them, and what
 * they share.  A pass reads and changes a Program that is valid before and after. */
#include "codegen/codegen.h"
#include "ir/layout.h"

enum { NOTHING = UINT32_MAX };        /* no instruction, axis or use of the kind asked for */

/* ---- how values meet micro-batches (micro.c) ---- */

/* WHOLE: the same in every micro-batch.  CUT: each has its own samples along one
 * axis.  PARTIAL: each has a summand.  A partial value of the forward pass holds the
 * sum so far, because the op that closes the batch adds to it; one of the backward
 * pass holds its own summand, because only a weight's gradient is accumulated. */
typedef enum MicroKind { MICRO_WHOLE, MICRO_CUT, MICRO_PARTIAL } MicroKind;
typedef struct MicroValue { MicroKind kind; uint32_t axis; } MicroValue;   /* axis: of CUT */

typedef struct Micro {
    int64_t     count;                /* micro-batches a step */
    MicroValue *value;                /* per value of the graph */
    uint8_t    *cut;                  /* per op: the factor that is cut, or NO_FACTOR */
    uint8_t    *once;                 /* per op: bit a: argument a is whole and meets a summand */
    OpId        obstacle;             /* first op that forbids cutting, or NO_OP */
    const char *why;                  /* of the obstacle, continuing "op 'X' " */
} Micro;

/* What cutting the batch does to every value; never fails. */
Micro micro_read(Arena *, const Graph *, int64_t count);
/* Diagnose a count that the batch or an op forbids. */
void  micro_check(Diags *, Arena *, const Graph *, const Micro *);
/* Whether op `o` sums over the batch in the forward or begin phase: its result 0
 * is added up over micro-batches. */
bool  micro_closes(const Graph *, const Micro *, OpId o);
/* Whether rows of a micro-batch that hold no sample would change a result. */
bool  micro_needs_full(const Graph *, const Micro *);

/* ---- what runs again in backward (recompute.c) ---- */

typedef struct Recompute {
    uint32_t *block; uint32_t nblock; /* per op: its block, from 1 on; 0: none */
    bool     *again;                  /* per op: runs again before the first backward op of its block */
} Recompute;

/* ---- lowering ---- */

typedef struct Lowering {
    const Graph   *g;
    const Plan    *plan;
    const Device  *device;
    const Cluster *cluster;
    Diags         *ds;
    Arena         *scratch;
    Losses         losses;            /* that the minimized number is a sum of */
    Micro          micro;
    Layout         layout;
    Recompute      recompute;
    uint32_t       stage, place;      /* of the rank: its stage, and its number in it */
    const uint32_t *op; uint32_t nop; /* ops that the stage executes, in their order */
    uint32_t      *weight_of; uint32_t nweight_of;   /* per state of the program: the graph's weight */
    Program       *p;
} Lowering;

/* What the programs of a plan's ranks share.  Made by codegen_open(). */
struct Codegen {
    Arena         *arena;
    Lowering       of_all;            /* what a Lowering says of every rank */
    const Program *blank;             /* what a Program says of every rank, without any content */
    uint32_t      *op, *first_op;     /* the ops of each stage, end to end; per stage, and one more: where they begin */
};

/* The Lowering of a rank, without a program. */
Lowering lowering_of(const Codegen *, uint32_t rank);

void support_check(const Lowering *);  /* diagnose what codegen and the device cannot do */
Recompute recompute_read(Lowering *);  /* from the plan's rules; the micro-batches are known */
void place(Lowering *);                /* ops -> instructions, values -> tensors */
void fuse(Program *, Arena *scratch);
void bucket(Lowering *);
void schedule(Lowering *);
/* Micro-batches in flight on the rank's stage. */
uint32_t schedule_slots(const Lowering *);
void memory(Lowering *);
/* What of it follows from the number of slots: lifetimes and offsets. */
void memory_map(Lowering *);
void streams(Program *, Arena *scratch);
int  verify(const Program *, FILE *err);
int  verify_update(const Program *, FILE *err);

/* A weight lies where it is read; one that nobody reads, on the first stage. */
bool weight_is_here(const Lowering *, ValueId weight);
/* Instruction of an op: extents, roles and attributes; no tensors yet. */
Instr instr_from_op(const Lowering *, OpId);
/* A tensor of a value in a placement, without a buffer. */
Tensor value_tensor(const Lowering *, ValueId, Placement);

/* The inputs of the model, and tensors, per value, for those that the stage reads (inputs.c). */
void place_inputs(Lowering *, TensorId *given);

/* Place an op by its distributed form, when it is cut along a factor that has one:
 * `whole` is the instruction as it would be otherwise (distribute.c). */
bool place_distributed(Lowering *, OpId, const Instr *whole);

/* ---- one op alone, to know what it costs (place.c) ---- */

typedef struct World World;
World *world_alone(Lowering *);
/* Instructions of an op at the end of the program, its arguments as it needs them. */
void   place_alone(Lowering *, World *, OpId);
/* Instructions that convert a value. */
void   convert_alone(Lowering *, World *, ValueId, Placement from, Placement to);

/* ---- conversions (convert.c) ---- */

/* The value, which lies as `from` in t, as `to`: instructions at the end of the
 * program, and the tensor they make. */
TensorId convert(Lowering *, ValueId, TensorId t, Placement from, Placement to);
/* One collective over the ranks that differ on the axes of a set, from the bytes of
 * src to those of dst. */
void     collective(Lowering *, OpKind, GridSet, const char *path, TensorId src, TensorId dst);
/* The same over these ranks of several stages. */
void     collective_over(Lowering *, OpKind, GridSet, StageSet, const char *path, TensorId src, TensorId dst);
/* To be called before any group is made. */
void     number_groups(Lowering *);
/* A value that crosses between stages, from or into the bytes of a tensor. */
void     message(Lowering *, OpKind, const Crossing *, TensorId);
/* The program's group of ranks that differ on the axes of a set; ALL_RANKS: of all
 * ranks of all stages. */
#define ALL_RANKS ((GridSet)UINT16_MAX)
uint32_t group_index(Lowering *, GridSet);

/* The result of a view op (rename, merge, unmerge): a tensor on the bytes of
 * `x`, after or before a transpose where the order of axes asks for one. */
TensorId view_place(Lowering *, const Op *, TensorId x, Tensor shape, TensorId bound);

/* ---- instructions and who uses what (code.c) ---- */

#define REMOVED OP_KINDS              /* op of an instruction that code_compact() drops */

Proc *proc_find(const Program *, ProcKind);          /* NULL: the program has none */
bool  proc_has(const Proc *, uint32_t instr);
bool  same_procedure(const Program *, uint32_t a, uint32_t b);
Attr *instr_set(Instr *, const char *name);          /* the attribute, to be written */
/* No tensors, and no factors of any. */
void  instr_clear(Instr *);
/* A tensor alone on a new buffer, which has the tensor's path for a name. */
TensorId code_own(Program *, Tensor, BufferClass);
int64_t  align_up(int64_t bytes, int64_t to);
/* An instruction without arguments yet, its attributes the op's defaults. */
Instr instr_new(OpKind, const char *path);
/* A copy of src into dst, as an instruction: shapes are equal. */
Instr instr_copy(const Program *, TensorId src, TensorId dst);
/* Axis x of dst is axis order[x] of src. */
Instr instr_transpose(const Program *, const char *path, TensorId src, TensorId dst, const uint8_t *order);

typedef struct Insertion { uint32_t before; Instr instr; ProcKind proc; } Insertion;
/* Insert in order of `before` (ties in the order given), each into its procedure,
 * which is made when the program has none of that kind. */
void code_insert(Program *, Arena *scratch, const Insertion *, uint32_t n);
void code_compact(Program *);
/* Drop tensors and buffers that nothing names. */
void code_sweep(Program *, Arena *scratch);

/* Who uses a buffer.  Instruction lists are in increasing order; entries whose
 * instruction was removed or rewritten are skipped when read. */
typedef struct UseList { uint32_t *instr, *tensor; uint32_t ninstr, ntensor; } UseList;
typedef struct Uses {
    Program *p;
    Arena   *arena;
    UseList *of;                      /* per buffer */
    bool    *kept;                    /* per buffer: read from outside the procedures, or across calls */
    bool    *gradient;                /* per buffer: a weight's gradient, not yet in an accumulator */
} Uses;

Uses     uses_read(Program *, Arena *);
void     uses_add(Uses *, uint32_t instr);           /* after rewriting an instruction */
void     uses_merge(Uses *, BufferId from, BufferId into);   /* all tensors of `from` move */
/* Whether only instructions read it, within one call: it may be changed or given away. */
bool     uses_free(const Uses *, BufferId);
uint32_t uses_reads(const Uses *, BufferId);         /* instructions that read it */
/* Where in the buffer's list the instructions from `instr` on stand. */
uint32_t uses_from(const Uses *, BufferId, uint32_t instr);
/* The first one after `after` (NOTHING: from the start) that reads. */
uint32_t uses_next_read(const Uses *, BufferId, uint32_t after);
uint32_t uses_writer(const Uses *, BufferId);        /* first; NOTHING: given from outside */
uint32_t uses_last_write(const Uses *, BufferId, uint32_t before);
uint32_t uses_last(const Uses *, BufferId);          /* last read or write */
/* Remove what computes nothing that is read or kept; results past the first that
 * nobody reads become NO_TENSOR. */
void     uses_remove_dead(Uses *);

bool     instr_reads(const Program *, const Instr *, BufferId);
bool     instr_writes(const Program *, const Instr *, BufferId);
/* Whether it sums accumulators of gradients over ranks, in place. */
bool     sums_gradients(const Program *, uint32_t instr);
static inline BufferId buffer_of(const Program *p, TensorId t) { return p->tensor[t.i].buffer; }

/* ---- additions that become accumulation (accumulate.c) ---- */

bool     accumulate_add(Uses *, uint32_t i);
void     accumulate_gradients(Program *, Arena *scratch);

#endif
