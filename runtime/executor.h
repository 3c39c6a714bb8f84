#ifndef RUNTIME_EXECUTOR_H
#define RUNTIME_EXECUTOR_H
/* Executor: where the memory of a rank lies, and who executes its instructions.
 *
 * One table of functions for each kind of device.  All else in this folder goes through it and
 * dereferences no address of rank_at() itself: on the cpu such an address is memory of this process, elsewhere
 * it is the device's, and what the host reads and writes passes through staging that was made before step 0. */
#include "runtime/runtime.h"

/* The devices of this machine that an executor may have, which are all of one kind. */
typedef struct DeviceFacts {
    const char *name;                 /* the driver's */
    int         count;
    int64_t     memory, free, cache;  /* bytes of the first: in all, free now, of the cache that all of it shares */
} DeviceFacts;

/* Whether an executor has a kernel for an instruction, and which. */
typedef enum KernelForm { KERNEL_NONE, KERNEL_PLAIN, KERNEL_OWN } KernelForm;       /* plain: for operands of any types, slow */

typedef struct Executor {
    const char *name;                 /* as --device has it */
    bool        peers_read;           /* ranks of one machine read each other's memory where it lies: the shared part of the map is the world's */
    bool        graphs;               /* it has kernels captured before step 0 and launched at once: --graphs */
    bool        ahead;                /* calls return before they are executed: settle() waits for that */
    uint32_t    measures_every;       /* steps from one to the next whose instructions are timed, after a run's first few */

    /* Why no device of its kind is there; NULL: there is one. */
    const char *(*absent)(void);
    /* What executes, with versions, for --version. */
    const char *(*about)(Arena *);
    /* What devices there are; NULL: the processor itself is the device.  Of several kinds is ERR_REJECT, said. */
    Status (*devices)(Arena *, DeviceFacts *);
    KernelForm (*form)(const Instr *, const Program *, Isa);

    /* Kernels and memory of rank->program, before it meets the others.  An op without a kernel is ERR_REJECT, named. */
    Status (*open)(Rank *);
    /* After they met: all that is left to do before the first call. */
    Status (*join)(Rank *);
    /* The last before step 0: what is asked of the run (trace, tally, watched values) is known. */
    Status (*ready)(Rank *);
    /* What open() and join() made, however far they came. */
    void   (*close)(Rank *);

    /* Execute calls in the order of the program. */
    Status (*calls)(Rank *, const CallList *);
    /* Until all that was called is done; OK when it went well. */
    Status (*settle)(const Rank *);

    /* Bytes of the rank's memory, no more than RANK_WINDOW of them, or a sample of an input.  edit(): where the host writes all of them; they are there
     * for the next call or look, and what is lent stands until the next edit.  look(): what all that was called leaves
     * there; it stands until the next look.  What goes wrong in edit() and zero() is said by what comes next. */
    void  *(*edit)(const Rank *, void *at, int64_t bytes);
    Status (*look)(const Rank *, const void *at, int64_t bytes, const void **out);
    void   (*zero)(const Rank *, void *at, int64_t bytes);

    /* What memory a rank that is alone holds, for people. */
    const char *(*memory)(Arena *, const Rank *);
    /* What is to be said of the forms of kernels that it took; NULL: nothing. */
    const char *(*forms_note)(Arena *, const Rank *);
} Executor;

enum { RANK_WINDOW = 32 << 20 };      /* bytes */

/* This process: memory that is mapped, kernels of kernels/cpu and kernels/ref. */
extern const Executor executor_cpu;
static inline const Executor *executor_or_cpu(const Executor *e) { return e ? e : &executor_cpu; }

#endif
