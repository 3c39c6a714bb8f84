#ifndef RUNTIME_RUN_H
#define RUNTIME_RUN_H
/* Run, inside: what training and running forward share. */
#include <sched.h>

#include "runtime/ranks.h"

/* Where a rank of more ranks than cores begins (seat.c); a thread's own.  near: ranks that share them. */
typedef struct Seat { cpu_set_t before; bool taken; } Seat;
void seat_take(Seat *, uint32_t rank, uint32_t near, int threads);
/* From here on it may be moved. */
void seat_leave(const Seat *);

typedef struct Run {
    Arena            *arena;
    Arena            *scratch;        /* of one save or dump, made large enough before step 0 */
    const Program    *program;
    const RunOptions *o;
    const Peers      *peers;
    bool              speaks;         /* says what is true of the whole run */
    bool              alike;          /* what ended it was seen by all ranks */
    Optimizer         optimizer;      /* the program's, with --set applied */
    Rank              rank;
    Data             *train, *eval;   /* NULL: none; of train only where no sample of it is read */
    DumpSpec         *dump;           /* those of the options, prepared */
    Log               log;
    int64_t           steps;          /* optimizer steps in all; without a loss, batches */
    int64_t           samples;        /* of the training stream consumed */
    int64_t           eval_samples;   /* that an evaluation uses */
    Progress          from;           /* of the checkpoint to resume, */
    const char       *folder;         /* and its folder; NULL: none */
    int64_t           trained;        /* steps of this process, */
    double            seconds, loss;  /* what they took, and the last one's loss */
    double           *part, *eval_part;              /* the losses that it is a sum of, and those of an evaluation; see losses_read() */
    Tally            *tally;          /* where their time went; NULL: it is not told */
    uint64_t          seed;
    SaveLock          lock;           /* of the save folder */
    void            (*mark)(int64_t); /* told before each step, and after the last, how many are done; NULL */
} Run;

/* Whether there are optimizer steps.  The loss may be another stage's. */
static inline bool run_trains(const Program *p)
{
    return has_tensor(p->loss) || has_tensor(p->norm);
}

/* Losses of a step or an evaluation, by name. */
static inline LossParts run_parts(const Run *r, const double *value)
{
    return (LossParts){r->program->term, value, r->program->nterm};
}

/* Whether these change the weights: without an optimizer they compute the loss and gradients. */
static inline bool run_updates(const Program *p)
{
    return p->optimizer.kind != OPTIMIZER_NONE;
}

/* ---- prepare.c: all that can be known before memory is mapped ---- */

/* Options against the program, data, the checkpoint to resume, the number of steps.
 * Where there are many ranks, it is done before they start, and by each of them. */
Status run_prepare(Run *);
/* What run_prepare() opened. */
void   run_close(Run *);
/* A line for people, from the rank that speaks. */
void   run_note(const Run *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Optimizer steps that the options, or else the model, ask for; 0: neither does. */
int64_t run_length(const Run *);
/* Steps or batches of the run from the data and the options. */
Status run_decide_steps(Run *);
Status run_dump(Run *, int64_t step, int64_t first, int64_t rows);
/* How the message of a run that was stopped after `step` ends: what is not done, and nobody
 * would know by itself. */
const char *run_left_undone(const Run *, int64_t step);

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
/* Once all is made that lives through the run: room for what libraries take in a step. */
void memory_leave_room(void);
/* What memory the ranks hold, in one line of the rank that speaks. */
Status memory_report(const Run *);

#endif
