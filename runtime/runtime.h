#ifndef RUNTIME_RUNTIME_H
#define RUNTIME_RUNTIME_H
/* Runtime: executes a Program.  It sees programs and kernels only, never a model
 * file or a plan.
 *
 * A Rank is a Program bound to memory: the map its ledger describes, one KCall
 * per instruction prepared before step 0, a team of threads.  A Run is what
 * `prun` does with a rank: data in, steps, evaluation, checkpoints, a log.
 * Nothing is mapped, unmapped or allocated by our code between step 1 and the
 * last step. */
#include <math.h>
#include <stdio.h>

#include "base/status.h"
#include "base/file_uses.h"
#include "ir/program.h"
#include "kernels/kernel.h"
#include "runtime/stored.h"
#include "runtime/tally.h"

/* ---- map.c: the memory of a rank, exactly what the ledger says ---- */

typedef struct Map {
    char   *base;                     /* page-aligned; NULL: not mapped */
    int64_t bytes;                    /* of the ledger; the mapping is rounded up to pages */
    int64_t huge;                     /* bytes that lie in huge pages after touching */
} Map;

/* Map, ask for huge pages, touch every page.  Zeroed. */
Status map_open(Map *, int64_t bytes);
void   map_close(Map *);

/* ---- memory.c: the heap ---- */

/* Keep the freed buffers of libraries whole on all threads of a team: before the
 * libraries are called, and again before steps that must not grow the heap. */
void memory_fill_caches(Team *);

/* ---- rank.c: a program bound to memory and kernels ---- */

typedef struct Rank {
    const Program *program;
    Arena         *arena;
    const struct Executor *executor;
    struct DeviceRank *device;        /* what an executor that is not the cpu has of it; NULL */
    Map            map;               /* the private part; addresses of both parts are the executor's */
    char          *shared;            /* the part that peers see; NULL: the rank is alone, and so are the next five */
    struct World      *world;
    struct Endpoint   *end, *second;  /* second: the courier's; NULL: there is none */
    struct CommGroup  *all, **group;  /* of all ranks; per group of the program */
    struct Courier    *courier;       /* the thread that communicates; NULL: the rank does all in the order of the program */
    SentBefore     sent;              /* what each procedure waits for */
    int            reporter;          /* the rank that speaks for all */
    bool           differs;           /* from another rank's is the plan of one: all have seen it, and do not run */
    int            near;              /* ranks that share this one's processors, itself among them */
    struct Trace  *trace;             /* NULL: none */
    Tally         *tally;             /* of the step that is trained; NULL: none */
    bool           graphs;            /* kernels of steps are captured and replayed */
    double         timeout, slowest;  /* seconds: given (0: not) for an instruction of a peer; of the slowest one here */
    Team          *team;
    Isa            isa;
    KCall         *call;              /* one per instruction; addresses are of slot 0 */
    Kernel        *kernel;            /* one per instruction; NULL: the executor is not the cpu */
    KStep          step;
    bool           evaluates;         /* what goes on is an evaluation after that step */
    Optimizer      optimizer;         /* the program's, with --set applied */
    struct Watch  *watch; uint32_t nwatch;           /* values copied out as they are made */
    StoredList     weights, moments;  /* of all ranks */
} Rank;

/* A value to be copied out whenever it is made: `to` takes what the rank has of it, one
 * micro-batch after the other.  What is added to a value afterwards makes another one in
 * its memory. */
typedef struct Watch { TensorId tensor; bool cut; char *to; } Watch;   /* cut: by micro-batches */

/* Where result `k` of an instruction goes, executed for a micro-batch; NULL: it is not what is watched. */
static inline char *watch_place(const Watch *w, const KCall *c, uint32_t k, uint32_t micro)
{
    const Instr *in = c->in;
    bool added_to = in->acc == ACC_YES && (in->acc_out >> k & 1);
    if (!has_tensor(in->out[k]) || in->out[k].i != w->tensor.i || added_to)
        return NULL;
    return w->to + (w->cut ? micro * tensor_bytes(c->outt[k]) : 0);
}

/* On the cpu: map memory, find kernels, start the team, warm the kernels' libraries at the
 * program's shapes.  An op without a kernel is ERR_REJECT, named. */
Status rank_open(Rank *, Arena *, const Program *, Isa);
void   rank_close(Rank *);
/* Fill all weights from the seed, zero moments and gradients. */
void   rank_init(Rank *, uint64_t seed);
/* Where a part of the map begins; and which slot of a buffer a call works in. */
char  *rank_part(const Rank *, MapPart);
int64_t rank_slot(const Buffer *, uint32_t slot, uint32_t micro);
/* Address of a tensor, in a micro-batch's slot of its buffer; of what memory, the executor knows. */
void  *rank_at(const Rank *, TensorId, uint32_t slot, uint32_t micro);

/* Calls of a step or of an evaluation. */
typedef struct CallList {
    const Call *call; uint32_t n;
    bool        opens;                /* one of micro-batch 0 opens an accumulation window; else step.first stands */
} CallList;

/* Execute calls; on a device they may not be done when it returns. */
Status rank_calls(Rank *, const CallList *);
/* Until they are. */
Status rank_settle(const Rank *);
/* Execute one call: all instructions of a procedure on one slot and micro-batch.
 * rank->step.first says whether it opens an accumulation window.  Fails when a peer is
 * lost. */
Status rank_call(Rank *, const Call *);
/* One optimizer step over the batch lying in the input buffers; step.step is the
 * number of steps done before.  Loss and norm are read with rank_scalar().  A batch
 * without a label that counts is ERR_REJECT, the input named, and changes no weight. */
Status rank_train(Rank *);
double rank_scalar(const Rank *, TensorId);          /* of a settled rank; NAN when the device fails, which says so */
/* Whether this rank says what all ranks know. */
bool   rank_reports(const Rank *);
/* Once PROC_begin and PROC_agree have seen a whole window: the input of which no label
 * counts, "" at the ranks that leave it to another to say so; NULL: there is none. */
Status rank_unlabelled(const Rank *, const char **input);

/* Learning rate of the step after `done` steps: linear warm-up over steps 1..warmup,
 * then the decay, which ends at min_lr at step `steps`.  Later steps stay at min_lr, as
 * in Megatron-LM; a run that has any says so, and is refused where min_lr is 0.  Without
 * a decay, or with a warm-up as long as `steps`, the rate stays at lr after the warm-up,
 * and min_lr does not enter. */
double learning_rate(const Optimizer *, int64_t done);

/* ---- data.c: batches ---- */

typedef struct Data Data;

/* Open the SPECs of --data (or --eval) for the program's inputs; `spec` is a list
 * of n.  Everything that can be wrong with the files is found here: sizes against
 * headers, ids against extents (a stream over the file), too few samples. */
Status  data_open(Arena *, const Program *, const char *const *spec, uint32_t n, uint64_t seed, Data **out);
void    data_close(Data *);
int64_t data_samples(const Data *);                  /* in one epoch; -1: endless (random) */
/* Write global samples first..first+n of the stream into the input tensors at
 * batch rows row..row+n.  Sample k of the stream is sample (k mod N) of epoch
 * (k / N), epochs permuted by the seed when `shuffled`.  Fails when a file changed
 * since it was opened. */
Status  data_fill(const Data *, const Rank *, int64_t first, int64_t n, int64_t row, bool shuffled);
/* Mark batch rows row..row+n as absent (LABEL_PAD labels, zero inputs). */
void    data_pad(const Data *, const Rank *, int64_t n, int64_t row);
/* What makes these data: batch, samples, shape of each input, names and lengths of
 * the files.  Nothing of the layout is among it. */
typedef struct DataFact { const char *name, *text; } DataFact;
const DataFact *data_facts(Arena *, const Data *, uint32_t *n);
/* The file that a SPEC of --data or --eval names; NULL: none. */
const char *data_spec_file(Arena *, const Program *, const char *spec);
/* Number in the files of stream sample k: for --dump samples. */
int64_t data_sample_number(const Data *, int64_t k, bool shuffled);

/* ---- checkpoint.c ---- */

/* What a run must remember beside tensors. */
typedef struct Progress {
    int64_t  step;                    /* optimizer steps done */
    int64_t  samples;                 /* of the training stream consumed */
    uint64_t seed;
    const char *model;
    const Data *data;                 /* the training stream; not read back */
} Progress;

/* A checkpoint is DIR/step-NNNNNNNN/ with weights.safetensors, moments.safetensors
 * (names PATH.exp_avg ..., as PyTorch calls them) and state.json: the Progress, the
 * optimizer's settings, what the data were, and the length and XXH3 of both files, under
 * a check sum of its own.  It is written as step-NNNNNNNN.tmp and renamed when it is
 * complete, then DIR/latest is made to name it; every write is durable before the next
 * begins, so a crash at any moment leaves the checkpoint before it. */

/* Save; then remove all but the newest `keep`.  Called by all ranks at once, as is
 * checkpoint_load(), and it comes to the same for all.  The arena is for scratch. */
Status checkpoint_save(Arena *, const Rank *, const char *dir, int keep, const Progress *);
/* Progress of the checkpoint that DIR/latest names (or of DIR itself, if it is one),
 * and its folder.  When it cannot be resumed, the complete ones are named. */
Status checkpoint_find(Arena *, const char *dir, Progress *, const char **folder);
/* Name what lies in DIR beside it and is ignored: incomplete and later ones. */
void   checkpoint_ignored(Arena *, const char *dir, int64_t latest);
/* Its tensors into the rank (weights alone when it has no loss); refuses, by name,
 * whatever does not match.  Settings and data (NULL: none are read) that are not what they were are said. */
Status checkpoint_load(Arena *, Rank *, const char *folder, const Data *);

/* ---- steps.c ---- */

/* Claim DIR for this run, which makes it where it is not there: a second run into it is refused. */
typedef struct SaveLock { int fd; bool made; } SaveLock;             /* fd -1: none */
Status checkpoint_lock(Arena *, const char *dir, SaveLock *);
/* Give it up; a folder that was made and in which nothing was saved is taken away again. */
void   checkpoint_unlock(Arena *, const char *dir, SaveLock *);
/* What a claimed DIR is known by: two numbers, which are 0 where its claim is not to be seen. */
void   checkpoint_mark(Arena *, const char *dir, int64_t mark[2]);
/* Whether there is a checkpoint in DIR to go on from. */
bool   checkpoint_any(Arena *, const char *dir);
/* Say what lies in DIR of steps later than the one that a run saving there goes on from. */
void   checkpoint_left_behind(Arena *, const char *dir, int64_t from);
/* Refuse to save into DIR what another run has begun there: only a run resumed from
 * DIR, or from one of its checkpoints, goes on in it.  `resume` NULL: a fresh run. */
Status checkpoint_claim(Arena *, const char *dir, const char *resume);
/* The files of DIR that checkpoints use or are. */
void   checkpoint_uses(FileUses *, FileUseKind, const char *dir);
/* Refuse an output, called `what`, under a name that checkpoints in DIR may take. */
Status checkpoint_refuse_inside(Arena *, const char *dir, const char *what, const char *path);

/* ---- run.c: the training loop ---- */

/* One --dump KIND@STEP=FILE.  KIND is weights, moments or a weight's path, as they
 * are after STEP steps (0: before the first); or grads, a value's path, an output's name, or samples,
 * as step STEP made or read them.  Without a loss a step is a batch. */
typedef struct DumpSpec {
    const char *kind, *path;          /* path: of the file */
    int64_t     step;
    StoredList  list;                 /* found by dump_prepare(); empty: samples */
} DumpSpec;

/* Check the specs against the program and the steps first+1..last of the run, and
 * make room for what is copied as it is made.  Called by all ranks at once, as is
 * dump_write(), and it comes to the same for all. */
Status dump_prepare(Arena *, Rank *, DumpSpec *, uint32_t n, int64_t first, int64_t last);
/* Write those due after `step` steps, the last of which read the `rows` samples of
 * the stream from `first` on.  The arena is for scratch. */
Status dump_write(Arena *, const Rank *, const Data *, const DumpSpec *, uint32_t n, int64_t step, int64_t first, int64_t rows);

/* ---- settings.c: --set KEY=VALUE on the optimizer ---- */

/* What the optimizer of that kind does not have is refused, and so is what has no
 * effect beside the other settings or, `steps_given`, beside --steps. */
Status settings_apply(Optimizer *, const char *const *set, uint32_t n, bool steps_given);

/* ---- log.c: what a run says while it runs ---- */

typedef struct Log {
    FILE   *file;                     /* JSON lines; NULL: none */
    const char *path;                 /* the file's; "-": standard output */
    bool    failed;                   /* a line did not reach it, which was said */
    char    buffer[8192];             /* the file's, so that stdio allocates nothing */
    bool    terminal;                 /* a status line on stderr */
    bool    silent;                   /* another rank speaks */
    int64_t first, steps;             /* done before, and in all: for the ETA */
    double  started;                  /* seconds, monotonic */
} Log;

/* The losses that a loss is a sum of, each before its weight; n is 0 where it is one by itself. */
typedef struct LossParts {
    const NamedTensor *of;
    const double      *value;
    uint32_t           n;
} LossParts;

/* A loss as people read it: four decimals, from a million on a power of ten; one that is no number has no sign. */
typedef struct OneLossText { char text[32]; } OneLossText;
const char *loss_text(OneLossText *, double);                        /* losses.c */

/* As people read them behind the loss: " (a 1.0000, b 0.5000)", or nothing. */
typedef struct LossText { char text[512]; } LossText;
const char *losses_text(LossText *, const LossParts *);              /* losses.c */

/* A number as people read it: one that is none has no sign. */
static inline double plain(double x) { return isnan(x) ? (double)NAN : x; }

/* `unit`: of what `tokens` counts, for people; the log's keys are the same for every model. */
typedef struct StepReport { int64_t step, tokens; const char *unit; double loss, norm, lr, seconds, mfu; LossParts parts; } StepReport;

/* path NULL: no file; "-": standard output.  A resumed run adds to the file, from
 * which lines of steps after `first` are removed: it takes these steps again. */
Status log_open(Arena *, Log *, const char *path, bool add, int64_t first, int64_t steps);
Status log_step(Log *, const StepReport *);
Status log_eval(Log *, int64_t step, double loss, const LossParts *);
void   log_note(Log *, const char *text);            /* to people only */
Status log_close(Log *);
double seconds_now(void);             /* monotonic */

typedef struct RunOptions {
    const char *const *data;  uint32_t ndata;
    const char *const *eval;  uint32_t neval;
    int64_t     eval_every, save_every, keep, steps; /* 0: not given */
    uint64_t    seed;
    bool        seed_given;           /* a resumed run keeps its seed; another one given is refused */
    const char *save, *resume, *log;                 /* NULL: not given */
    const char *const *set;   uint32_t nset;         /* KEY=VALUE for the optimizer */
    DumpSpec   *dump;         uint32_t ndump;
    Isa         isa;
    const struct Executor *executor;    /* NULL: the cpu */
    double      timeout;              /* seconds; 0: not given */
    const char *trace;                /* a file; NULL: not given */
    bool        graphs;
    FileUses   *uses;                 /* what the program was read from; the run adds its own */
} RunOptions;

/* Train, or run forward once over the data when the program has no loss.  `parts`: what a
 * step's time is told in; NULL: it is not told. */
Status run(Arena *, const Program *, const TallyParts *parts, const RunOptions *);

#endif
