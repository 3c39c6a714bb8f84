#ifndef RUNTIME_CUDA_DEVICE_H
#define RUNTIME_CUDA_DEVICE_H
/* A rank on a GPU, private to this folder.
 *
 * The host issues all instructions of a list of calls and goes on; streams execute them, one for each stream
 * of the program, with an event for each that another stream waits for.  A list begins when all of the one
 * before is done, so what the host writes goes over a stream of its own in between.  Nothing is allocated and
 * nothing is waited for while a list is issued. */
#include <nccl.h>

#include "kernels/cuda/cuda.h"
#include "runtime/executor.h"
#include "runtime/ranks.h"

/* ---- marks: how far the streams have come ---- */

enum { SETUP_SECONDS = 120 };                         /* without a sign of life while communicators are made, and until they are connected */
enum { MARKS = 4096, MARK_EVERY = 8 };               /* marks at a time; instructions of the compute stream from one to the next */

/* An event after an instruction, on its stream; where it is timed, one before and one after it that know when they were reached. */
typedef struct Mark {
    cudaEvent_t event, begins, ends;
    int64_t     number, instr, step;  /* step: that it is of, or that it evaluates after */
    Call        call;
    Stream      stream;
    bool        timed, tallied, evaluates, along;    /* along: in the launch of another message, whose time it shares */
    int64_t     next;                 /* number of the next mark of the stream */
} Mark;

/* Marks are numbered as they are made; number k lies in mark[k % MARKS]. */
typedef struct Marks {
    Mark    mark[MARKS];
    int64_t made;
    int64_t first[STREAMS], last[STREAMS];           /* of a stream, the oldest that is not reached and the newest; -1: none */
    int64_t instr[STREAMS];           /* the last instruction that a stream is known to have done; -1: none */
    Call    call[STREAMS];
    int     skipped;                  /* instructions of the compute stream since its last mark */
} Marks;

/* ---- times ---- */

/* When an instruction ran, in seconds since the zero of its list. */
typedef struct Stretch { double begin, end; uint32_t instr; } Stretch;

/* Stretches of time that do not meet, in order. */
typedef struct Busy { Stretch *stretch; uint32_t n; } Busy;

typedef struct Timing {
    bool        on;                   /* the list that is issued is timed */
    cudaEvent_t zero;
    double      began;                /* by the host's clock, when that was reached */
    Stretch    *stretch[STREAMS]; uint32_t n[STREAMS];  /* of the step that is measured, as they ended */
    Busy        busy[2];              /* while it is told: in which computing, or what was told before, went on; and scratch */
    double     *least;                /* per instruction of communication: its quickest so far, in seconds; 0: none */
} Timing;

/* ---- windows: what passes between host and device ---- */

/* Pinned memory of the host.  What is lent to be written and not yet on its way lies at `from` and goes to `to`; more that
 * follows it there is lent behind it. */
typedef struct Window {
    char   *host;
    int64_t bytes, used;
    char   *to;                       /* NULL: nothing is lent */
    int64_t from, lent;
} Window;

/* Numbers that the host reads after every list: they come back together. */
enum { MOST_SCALARS = 64 };
typedef struct Scalars {
    TensorId id[MOST_SCALARS];
    uint32_t n;
    double  *host;                    /* pinned: one number each, as the device has it */
    bool     valid;                   /* some list was issued */
} Scalars;

/* ---- events of the program ---- */

/* An instruction that some wait names. */
typedef struct Recorded {
    cudaEvent_t *event;               /* by slot */
    uint32_t     last;                /* slot of the latest */
} Recorded;

/* ---- communicators ---- */

/* One for each group and stream, and one for the messages between two ranks: what is on one communicator runs in the
 * order in which it is issued. */
typedef struct Channel {
    RankGroup  ranks;
    uint32_t   use, id;               /* id: its place in the order in which all ranks make and end them */
    ncclComm_t comm;
    bool       stands;
} Channel;

/* An instruction of communication that waits for its neighbours; only messages do. */
typedef struct Message { KCall call; Call of; Mark *mark; } Message;

/* Messages between two ranks with nothing between them: they go in one launch. */
enum { MOST_HELD = 16 };
typedef struct Held { Message message[MOST_HELD]; uint32_t n; } Held;

/* ---- graphs ---- */

/* Of the instructions from where it lies to `end`, of which `last` is the last that runs. */
typedef struct Replay {
    cudaGraphExec_t exec;             /* NULL: there is none */
    uint32_t end, last;
    bool     by_first, by_last;       /* it is another one in the first, in the last micro-batch */
    bool     shared;                  /* with another kind of call, whose it is */
} Replay;

typedef struct Graphs {
    bool     on;                      /* the list that is issued replays them */
    Replay  *replay;                  /* by instruction, slot, kind of call; NULL: graphs were not asked for */
    uint32_t n;                       /* graphs in all */
    CudaStep *now;                    /* device memory: of the micro-batch of the call, its numbers */
    char    *inputs;                  /* and its inputs */
    int64_t *input_at;                /* per buffer: where its copy lies in `inputs` */
    uint32_t *feed, nfeed, *feed0;    /* buffers that are copied for a procedure; per procedure, and one more: its first */
} Graphs;

typedef struct DeviceRank {
    int          ordinal;             /* of the GPU among those of this machine */
    Status       failed;              /* the first failure; all that follows ends with it */
    bool         ready;               /* all procedures have run once: communicators are connected, kernels loaded */
    int64_t      instr;               /* being issued, for messages; -1: none */
    const char  *asked;               /* the call of NCCL that is waited for; NULL: none */
    cudaStream_t stream[STREAMS], side;              /* side: between host and device */
    cudaEvent_t  fed, done, end[STREAMS];            /* of the latest list: what it reads is there; all of it is done; one stream is */
    struct cublasLtContext *lt;
    char        *lt_work, *work;      /* of products; of other kernels: one at a time has it */
    int64_t      work_bytes, allocated;              /* allocated: of the device, in all */
    CudaKernel  *kernel;              /* per instruction; NULL: it communicates */
    CudaStep    *step, *step_host;    /* per micro-batch: of the list that runs; pinned, to be copied there */
    Recorded    *recorded;            /* per instruction; without events where nobody waits for it */
    uint32_t    *wait0;               /* per instruction, and one more: its first wait */
    uint32_t     slots;
    Marks        marks;
    Timing       times;
    Graphs       graphs;
    Window       out, in;             /* to the device; from it */
    Scalars      scalars;
    ncclComm_t   world;
    bool         world_stands;
    Channel     *channel; uint32_t nchannel, nid;    /* nid: ids of channels in the world, of which this rank has some */
    uint32_t    *via;                 /* per instruction of communication: its channel */
    Held         held;
    double       looked, idle;        /* of the wait that goes on: when the host looked last; seconds in which no stream got on, */
    double       slowest, limit;      /* the longest of these so far, and how long ends the run */
} DeviceRank;

/* One that was made. */
static inline void event_destroy(cudaEvent_t e)
{
    if (e)
        (void)cudaEventDestroy(e);
}

/* ---- fail.c ---- */

/* What went wrong, in one line, once; the rank has failed from then on.  cuda_failed(): of an error that is none of the call's own, where streams were. */
Status device_failed(const Rank *, const char *call, const char *why);
Status cuda_failed(const Rank *, const char *call, cudaError_t);

#define CUDA_TRY(rank, call) do { cudaError_t e_ = (call); if (e_ != cudaSuccess) return cuda_failed((rank), #call, e_); } while (0)

/* ---- facts.c ---- */

/* What the driver says of the devices; see Executor.devices. */
Status device_facts(Arena *, DeviceFacts *);

/* ---- executor.c ---- */

/* Memory of the device, which is counted; what there is not is said in bytes. */
Status device_allocate(const Rank *, char **out, int64_t bytes);

/* ---- wait.c ---- */

/* Before and after an instruction is issued on its stream; *out NULL: it has no mark.  Waits, if marks run out, until
 * streams have come further. */
Status mark_begin(const Rank *, uint32_t instr, const Call *, Mark **out);
Status mark_end(const Rank *, Mark *);
/* How far streams are known to have come: the marks between which they are. */
const char *streams_text(Arena *, const Rank *);
/* Until an event is reached.  Fails when the run was aborted, a communicator has an error, or no stream got on for too long. */
Status await_event(const Rank *, cudaEvent_t);
Status await_side(const Rank *);
/* For what else is waited for: a wait begins, and whether it may go on, asked before every look. */
void   await_begin(const Rank *);
Status await_more(const Rank *);
void   await_nap(int looks);                         /* after so many looks: the longer it takes, the less it is looked at */

/* ---- times.c ---- */

void   times_open(Rank *);
/* A list begins. */
Status times_begin(Rank *);
/* A mark with times was reached. */
Status times_take(const Rank *, const Mark *);
/* To the tally of the step that is measured, once all of its marks were reached. */
void   times_tell(const Rank *);

/* ---- window.c ---- */

Status windows_open(Rank *);
void   windows_close(DeviceRank *);
void  *window_edit(const Rank *, void *at, int64_t bytes);
Status window_look(const Rank *, const void *at, int64_t bytes, const void **out);
void   window_zero(const Rank *, void *at, int64_t bytes);
/* All that was lent is on its way on the side stream. */
Status windows_flush(const Rank *);
/* Have the scalars come back behind all that the compute stream has. */
Status scalars_return(const Rank *);

/* ---- issue.c ---- */

/* Find kernels.  An op without one is ERR_REJECT, named. */
Status issue_check(Rank *);
Status issue_open(Rank *);
void   issue_close(DeviceRank *, const Program *);
Status issue_calls(Rank *, const CallList *);
/* An instruction with its operands' addresses in a call; and its kernels, on their stream. */
KCall  issue_bind(Rank *, uint32_t instr, const Call *);
Status issue_kernel(const Rank *, const KCall *, const CudaStep *now);

/* ---- graphs.c ---- */

/* Capture all that the calls of a step are made of. */
Status graphs_open(Rank *);
void   graphs_close(DeviceRank *, const Program *);
/* That of an instruction and those that follow it in a call; NULL: it is issued by itself. */
const Replay *graphs_find(const Rank *, uint32_t instr, const Call *);
/* What graphs read of a call, before the first of them in it. */
Status graphs_feed(const Rank *, const Call *);

/* ---- comms.c ---- */

/* The communicators of the program, made by all ranks at once and in the same order. */
Status comms_open(Rank *);
void   comms_close(Rank *);
/* Put instructions of communication, all of one channel, on their streams, in one launch. */
Status comms_issue(Rank *, const Message *, uint32_t n);
static inline bool is_message(const Instr *in) { return in->op == OP_send || in->op == OP_recv; }
/* OK unless some communicator has an error. */
Status comms_check(const Rank *);

#endif
