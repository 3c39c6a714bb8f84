#ifndef RUNTIME_RUN_H
#define RUNTIME_RUN_H
/* Run, inside: what training and running forward share. */
#include "runtime/runtime.h"

typedef struct Run {
    Arena            *arena;
    Arena            *scratch;        /* of one save or dump, made large enough before step 0 */
    const Program    *program;
    const RunOptions *o;
    Rank              rank;
    Data             *train, *eval;   /* NULL: none */
    Log               log;
    int64_t           steps;          /* optimizer steps in all; without a loss, batches */
    int64_t           samples;        /* of the training stream consumed */
    int64_t           eval_samples;   /* that an evaluation uses */
    int64_t           trained;        /* steps of this process, */
    double            seconds, loss;  /* what they took, and the last one's loss */
    uint64_t          seed;
    int               lock;           /* of the save folder; -1: none */
    void            (*mark)(int64_t); /* told before each step, and after the last, how many are done; NULL */
} Run;

/* Steps or batches of the run from the data and the options. */
Status run_decide_steps(Run *);
Status run_dump(Run *, int64_t step, int64_t first, int64_t rows);

/* ---- outputs.c ---- */

/* Refuse what would destroy a file: an output that is an input, another output or a
 * checkpoint's; and bytes for a terminal.  Called before anything is written. */
Status run_check_files(Run *);

/* ---- sweep.c: forward passes ---- */

/* Decide which samples an evaluation covers; says what is left out. */
Status run_plan_evaluation(Run *);
/* Held-out loss over all of them. */
Status run_evaluate(Run *, int64_t step);
/* A program without a loss, once over its data. */
Status run_forward(Run *);

/* ---- memory.c ---- */

/* Let the heap grow in one piece and never shrink, so that what it holds at the end
 * is the most it held. */
void memory_settle(void);
void memory_report(const Rank *);

#endif
