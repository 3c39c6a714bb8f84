/* NCCL with one rank: communicators as `prun` makes them, and each collective that it calls, whose result is what went in.
 *
 * A plan of one rank communicates nothing, so this is what shows on a machine with one GPU that NCCL is there, that it
 * starts, and that its calls mean what runtime/cuda takes them to mean. */
#include <nccl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ELEMENTS = 4096, BYTES = 8 * ELEMENTS, PATIENCE = 30 };    /* BYTES: of the widest type; PATIENCE: seconds for a call */

typedef struct Rank {
    ncclComm_t   world, comm;         /* comm: split from the world */
    cudaStream_t stream;
    char        *from, *to;           /* device */
} Rank;

static void cuda(cudaError_t e, const char *call)
{
    if (e == cudaSuccess)
        return;
    printf("not ok %s: %s\n", call, cudaGetErrorString(e));
    exit(1);
}
#define CUDA(call) cuda((call), #call)

/* Until NCCL has taken a call on a communicator that does not block. */
static ncclResult_t taken(ncclComm_t comm, ncclResult_t e)
{
    const time_t end = time(NULL) + PATIENCE;
    while (e == ncclInProgress && time(NULL) < end) {
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
        ncclResult_t asked = ncclCommGetAsyncError(comm, &e);
        e = asked == ncclSuccess ? e : asked;
    }
    return e;
}

static void nccl(ncclComm_t comm, ncclResult_t e, const char *call)
{
    e = taken(comm, e);
    if (e == ncclSuccess)
        return;
    printf("not ok %s: %s\n", call, ncclGetErrorString(e));
    exit(1);
}

static void open_rank(Rank *r)
{
    static const ncclConfig_t unblocked = NCCL_CONFIG_INITIALIZER;
    ncclConfig_t config = unblocked;
    ncclUniqueId id;
    config.blocking = 0;
    CUDA(cudaSetDevice(0));
    CUDA(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking));
    CUDA(cudaMalloc((void **)&r->from, BYTES));
    CUDA(cudaMalloc((void **)&r->to, BYTES));
    nccl(NULL, ncclGetUniqueId(&id), "ncclGetUniqueId");
    ncclResult_t e = ncclCommInitRankConfig(&r->world, 1, id, 0, &config);
    nccl(r->world, e, "ncclCommInitRankConfig");
    e = ncclCommSplit(r->world, 0, 0, &r->comm, &config);
    nccl(r->world, e, "ncclCommSplit");
    nccl(r->comm, ncclInProgress, "ncclCommSplit");
    puts("ok a world of one rank, and a communicator split from it");
}

static void close_rank(Rank *r)
{
    nccl(r->comm, ncclCommFinalize(r->comm), "ncclCommFinalize");
    ncclResult_t split = ncclCommDestroy(r->comm);
    nccl(r->world, ncclCommFinalize(r->world), "ncclCommFinalize");
    ncclResult_t world = ncclCommDestroy(r->world);
    CUDA(cudaFree(r->from));
    CUDA(cudaFree(r->to));
    CUDA(cudaStreamDestroy(r->stream));
    printf("%s both end\n", split == ncclSuccess && world == ncclSuccess ? "ok" : "not ok");
}

/* ---- collectives ---- */

/* A call of a collective on n elements of a type, as runtime/cuda/comms.c has it. */
typedef ncclResult_t (*Collective)(const Rank *, size_t n, ncclDataType_t);

static ncclResult_t all_reduce(const Rank *r, size_t n, ncclDataType_t t)
{
    return ncclAllReduce(r->from, r->to, n, t, ncclSum, r->comm, r->stream);
}

static ncclResult_t reduce_scatter(const Rank *r, size_t n, ncclDataType_t t)
{
    return ncclReduceScatter(r->from, r->to, n, t, ncclSum, r->comm, r->stream);
}

static ncclResult_t reduce(const Rank *r, size_t n, ncclDataType_t t)
{
    return ncclReduce(r->from, r->to, n, t, ncclSum, 0, r->comm, r->stream);
}

static ncclResult_t all_gather(const Rank *r, size_t n, ncclDataType_t t)
{
    return ncclAllGather(r->from, r->to, n, t, r->comm, r->stream);
}

static ncclResult_t broadcast(const Rank *r, size_t n, ncclDataType_t t)
{
    return ncclBroadcast(r->from, r->to, n, t, 0, r->comm, r->stream);
}

static ncclResult_t all_to_all(const Rank *r, size_t n, ncclDataType_t t)
{
    return ncclAlltoAll(r->from, r->to, n, t, r->comm, r->stream);
}

/* To itself, which NCCL takes in a group only. */
static ncclResult_t message(const Rank *r, size_t n, ncclDataType_t t)
{
    ncclResult_t e = ncclGroupStart();
    if (e == ncclSuccess)
        e = ncclSend(r->from, n, t, 0, r->comm, r->stream);
    if (e == ncclSuccess || e == ncclInProgress)
        e = ncclRecv(r->to, n, t, 0, r->comm, r->stream);
    ncclResult_t end = ncclGroupEnd();
    return e == ncclSuccess || e == ncclInProgress ? end : e;
}

typedef struct Type { const char *name; ncclDataType_t type; int bytes; } Type;
static const Type f32 = {"f32", ncclFloat32, 4}, bf16 = {"bf16", ncclBfloat16, 2}, f64 = {"f64", ncclFloat64, 8},
                  i32 = {"i32", ncclInt32, 4}, i64 = {"i64", ncclInt64, 8}, raw = {"bytes", ncclUint8, 1};

/* Numbers whose bits are no NaN in any type. */
static void give(const Rank *r, unsigned char *bytes, int seed)
{
    for (int i = 0; i < BYTES; i++)
        bytes[i] = (unsigned char)((i * 37 + seed) % 61);
    CUDA(cudaMemcpyAsync(r->from, bytes, BYTES, cudaMemcpyHostToDevice, r->stream));
    CUDA(cudaMemsetAsync(r->to, 0xff, BYTES, r->stream));
    CUDA(cudaStreamSynchronize(r->stream));
}

/* Whether what came out is what went in; NCCL's own error is said. */
static bool holds(const Rank *r, const char *name, Collective call, const Type *t)
{
    static unsigned char want[BYTES], got[BYTES];
    size_t bytes = (size_t)t->bytes * ELEMENTS;
    give(r, want, t->bytes + name[0]);
    nccl(r->comm, call(r, ELEMENTS, t->type), name);
    CUDA(cudaMemcpyAsync(got, r->to, bytes, cudaMemcpyDeviceToHost, r->stream));
    CUDA(cudaStreamSynchronize(r->stream));
    return memcmp(got, want, bytes) == 0;
}

typedef struct Row { const char *name; Collective call; const Type *type; } Row;
static const Row rows[] = {
    {"all_reduce", all_reduce, &f32}, {"all_reduce", all_reduce, &bf16}, {"all_reduce", all_reduce, &f64}, {"all_reduce", all_reduce, &i32},
    {"all_reduce", all_reduce, &i64}, {"reduce_scatter", reduce_scatter, &f32}, {"reduce_scatter", reduce_scatter, &bf16},
    {"reduce_to", reduce, &f32}, {"all_gather", all_gather, &raw}, {"broadcast", broadcast, &raw}, {"all_to_all", all_to_all, &raw},
    {"send and recv", message, &raw},
};

int main(void)
{
    Rank r = {0};
    bool all = true;
    open_rank(&r);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool good = holds(&r, rows[i].name, rows[i].call, rows[i].type);
        printf("%s %s of %s\n", good ? "ok" : "not ok", rows[i].name, rows[i].type->name);
        all = all && good;
    }
    close_rank(&r);
    return !all;
}
