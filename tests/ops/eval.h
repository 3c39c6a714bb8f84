#ifndef TESTS_OPS_EVAL_H
#define TESTS_OPS_EVAL_H
/* Eval: a Graph executed op by op, each value in an array of its own.  What tests
 * of kernels and gradients need, and nothing of codegen or the runtime. */
#include "ir/graph.h"
#include "kernels/kernel.h"

typedef struct Eval {
    Graph   *g;
    Program *program;                 /* tensor v is value v */
    void   **data;                    /* per value */
    DType    compute;
    Isa      isa;
    KStep    step;
    Team    *team;
} Eval;

/* Arrays for all values of the graph as it stands, filled with 0x7f bytes: what is
 * read before it is written shows. */
Eval *eval_new(Graph *, DType compute, Isa, Team *);
void  eval_free(Eval *);

/* The op as an instruction, its tensors and extents whole. */
Instr eval_instr(const Eval *, OpId);

/* Run one op, or all of a phase, in order. */
void  eval_op(Eval *, OpId);
void  eval_phase(Eval *, Phase);

/* Run one op in another way: other memory, another kernel, adding to its results. */
typedef struct Trial {
    Isa   isa;
    Team *team;
    void *arg[MAX_ARGS], *out[MAX_OUTS];             /* NULL: the Eval's */
    Accumulate acc;
    uint8_t    acc_out;
} Trial;
void  eval_trial(Eval *, OpId, const Trial *);

size_t eval_bytes(const Eval *, ValueId);
/* Elements as doubles, whatever the dtype. */
double eval_get(const Eval *, ValueId, int64_t i);
double eval_get_from(const Eval *, ValueId, const void *data, int64_t i);
void   eval_set(Eval *, ValueId, int64_t i, double);

/* A product summed to one number may cancel: its size is what it is on average.  0 for
 * other ops. */
double eval_usual_size(const Eval *, OpId);

/* An array of its own for one value: nothing beside it may be touched. */
void *eval_array(size_t bytes);

#endif
