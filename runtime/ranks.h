#ifndef RUNTIME_RANKS_H
#define RUNTIME_RANKS_H
/* Ranks: a program of many ranks, each bound to its part of a World. */
#include "runtime/comm/comm.h"
#include "runtime/runtime.h"
#include "runtime/trace.h"

/* What a rank knows of the others and of the run. */
typedef struct Peers {
    World   *world;                   /* NULL: there is one rank */
    const struct Executor *executor;    /* NULL: the cpu */
    uint64_t hash;                    /* of what all must have in common: plan, version, options */
    Trace   *trace;                   /* NULL: none */
    const TallyParts *parts;          /* what a step's time is told in; NULL: it is not told */
    double   timeout;                 /* seconds; 0: max(10, 20 x the slowest instruction of any rank) */
    bool     cold;                    /* nothing is called before who opens it does; otherwise every procedure once */
    int64_t  pss;                     /* of the process before it mapped the world; 0: ranks are threads of one */
} Peers;

/* rank_open() for rank `program->rank` of a world.  Called by all ranks at once: they
 * compare their hashes, and warm their libraries in step with each other. */
Status rank_join(Rank *, Arena *, const Program *, Isa, const Peers *);

/* ---- exchange.c: what ranks say to each other ---- */

enum { GROUP_OF_ALL, GROUPS_OF_RUN };                /* ids of groups; those of the program follow */
/* How many groups the world of these programs has. */
uint32_t ranks_groups(const Program *const *, uint32_t n);

/* Compare hashes, find who reports, make the groups. */
Status exchange_open(Rank *, const Peers *);
void   exchange_close(Rank *);
static inline bool communicates(const Instr *in) { return op_info[in->op].flags & OPF_COMM; }
/* Execute an instruction of communication. */
Status exchange(const Rank *, const KCall *);
/* Before a procedure is called: until its buffers may be written again. */
Status exchange_settle(const Rank *, uint32_t proc);
/* Element by element over all ranks, the same everywhere; nothing for a rank that is
 * alone. */
enum { MOST_AGREED = 16 };            /* numbers at once */
Status rank_agree(const Rank *, int64_t *v, int n, ReduceOp);
/* The losses that the program's is a sum of, program->nterm of them, whichever rank has them (losses.c). */
Status losses_read(const Rank *, double *of);
/* What came of something that ranks did, each on its own: OK when it went well for all.  A
 * rank that failed has said why. */
Status rank_outcome(const Rank *, Status mine);
/* An instruction begins, or, instr = -1, other work that is none: the rank is alive. */
void   exchange_begin(const Rank *, int64_t instr);
/* Seconds that the thread which executes an instruction of communication has waited for other ranks so far. */
double exchange_waited(const Rank *, const Instr *);
/* Nanoseconds of the slowest instruction so far, and how long a peer may take where that
 * of all ranks was `slowest`, unless a time was given. */
int64_t exchange_slowest(const Rank *);
void    exchange_pace(const Rank *, int64_t slowest);

/* ---- run.c ---- */

/* run() up to the point where memory is mapped: what is wrong with options, data and
 * files is said once, before ranks start. */
Status run_check(Arena *, const Program *, const RunOptions *);
/* run() for one rank.  A failure that not all ranks see by themselves ends the run of
 * all. */
Status run_rank(Arena *, const Program *, const RunOptions *, const Peers *);

/* From now on stop_signals() end a run after its step, and a write that cannot be done only fails; of the first that calls it,
 * and by run_rank() itself. */
void run_hold_signals(void);

/* Proportional set size of the process in bytes: its own pages, and its share of those
 * it maps with others; 0: the system does not tell. */
int64_t memory_pss(void);

/* ---- starting ranks, from a process that then waits for them ---- */

/* The programs of all ranks, in order, and what they have in common. */
typedef struct Crew {
    const Program *const *program;
    uint32_t              n;
    uint64_t              hash;       /* see Peers */
    const RunOptions     *o;
    const TallyParts *const *parts;   /* by rank, for those that are threads; see Peers */
} Crew;

/* Check options, data and files, for all stages. */
Status crew_check(Arena *, const Crew *);
/* A world for a crew. */
Status crew_world(const Crew *, WorldFiles *);
/* After the run was aborted: what the rank to blame was doing, on stderr. */
void   crew_explain(const Crew *, const World *);

/* threads.c: as threads of this process, each with memory of its own. */
Status crew_as_threads(Arena *, const Crew *);

/* launch.c: as processes that execute this program again.  `argv`: of this process; `input`:
 * what it read from standard input, NULL: nothing.  What asks to stop is passed on; a
 * rank that dies, or is stopped for long, ends the run; when all have ended, none is left. */
Status crew_as_processes(Arena *, const Crew *, char *const *argv, const char *input);

/* member.c: in a process that was started as a rank. */
typedef struct Member {
    int        rank;
    WorldFiles files;
    int        trace;                 /* Traces.fd */
    int        life;                  /* a pipe that ends with the launcher */
    int        launcher;              /* process id */
} Member;
/* What the launcher says, as an entry of the environment, and how it is read; false:
 * this process is no rank. */
const char *member_entry(Arena *, const Member *);
bool        member_read(Member *);
/* From now on, end when the launcher does. */
Status      member_watch(const Member *);
/* Run its program. */
Status      member_run(Arena *, const Program *, const Member *, uint64_t hash, const TallyParts *, const RunOptions *);

/* ---- hosted.c: in a process that another program started as a rank ---- */

/* Who started this process: a user or a script; mpirun, or srun with MPI; srun without it, as
 * one of several; torchrun, or what sets the same variables, likewise. */
typedef enum Starter { STARTER_USER, STARTER_MPI, STARTER_SRUN, STARTER_TORCHRUN } Starter;
Starter     starter(void);
const char *starter_name(Starter);    /* of the two that start ranks */

/* A rank that MPI or torchrun started.  Rank 0 checks all first, and speaks, as a launcher does; the others
 * wait for it in hosted_gate(), and then read the same files. */
typedef struct Hosted Hosted;
Status hosted_open(Arena *, Starter, Hosted **);
int    hosted_rank(const Hosted *);
Starter hosted_by(const Hosted *);
/* What came of something at all ranks, when all have come here: the worst. */
Status hosted_gate(Hosted *, Status mine);
/* Standard input of rank 0 to all. */
Status hosted_share_input(Hosted *);
Status hosted_check_size(const Hosted *, uint32_t nranks);
/* Run its program, once all ranks have theirs.  The crew's programs are there at rank 0 alone. */
Status hosted_run(Hosted *, Arena *, const Program *, const Crew *, const TallyParts *);
/* Leave with this status, when all do.  After a run was aborted it does not return. */
void   hosted_close(Hosted *, Status);

#endif
