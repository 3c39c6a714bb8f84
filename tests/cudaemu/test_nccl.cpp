/* test_nccl.cpp -- collectives and transfers among threads and processes, and contracts that ranks break. */
#include "control.h"
#include "harness.h"

#include <nccl.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static ncclUniqueId new_id()
{
    ncclUniqueId id;
    OK(ncclGetUniqueId(&id));
    return id;
}

static ncclComm_t world(const ncclUniqueId &id, int n, int rank)
{
    ncclComm_t c;
    OK(ncclCommInitRank(&c, n, id, rank));
    return c;
}

/* A value that says whose it is and where. */
static float value(int rank, size_t i) { return (float)(rank * 1000 + (int)(i % 777)); }

static float *filled(int rank, size_t n)
{
    std::vector<float> v(n);
    for (size_t i = 0; i < n; i++)
        v[i] = value(rank, i);
    return device_floats(n, v.data());
}

/* ---- values ---- */

static void check_collectives(ncclComm_t c, int n, int rank, size_t count)
{
    cudaStream_t s = new_stream();
    size_t all = count * (size_t)n;
    float *in = filled(rank, all), *out = device_floats(all), ranks = (float)(n * (n - 1) / 2) * 1000, *got;
    OK(ncclAllReduce(in, out, count, ncclFloat, ncclSum, c, s));
    got = read_floats(out, count, s);
    for (size_t i = 0; i < count; i++)
        CHECK(got[i] == ranks + (float)n * (float)(i % 777));
    OK(ncclReduceScatter(in, out, count, ncclFloat, ncclMax, c, s));
    got = read_floats(out, count, s);
    for (size_t i = 0; i < count; i++)
        CHECK(got[i] == value(n - 1, (size_t)rank * count + i));
    OK(ncclAllGather(in, out, count, ncclFloat, c, s));
    got = read_floats(out, all, s);
    for (size_t i = 0; i < all; i++)
        CHECK(got[i] == value((int)(i / count), i % count));
    OK(ncclBroadcast(in, out, count, ncclFloat, n - 1, c, s));
    CHECK(read_floats(out, count, s)[count - 1] == value(n - 1, count - 1));
    OK(ncclReduce(in, out, count, ncclFloat, ncclAvg, 0, c, s));
    got = read_floats(out, count, s);
    CHECK(got[count - 1] == (rank ? value(n - 1, count - 1) : ranks / (float)n + (float)((count - 1) % 777)));
    OK(ncclAlltoAll(in, out, count, ncclFloat, c, s));
    got = read_floats(out, all, s);
    for (size_t i = 0; i < all; i++)
        CHECK(got[i] == value((int)(i / count), (size_t)rank * count + i % count));
    OK(ncclReduceScatter(in, in + (size_t)rank * count, count, ncclFloat, ncclMin, c, s));      /* in place */
    got = read_floats(in + (size_t)rank * count, count, s);
    for (size_t i = 0; i < count; i++)
        CHECK(got[i] == value(0, (size_t)rank * count + i));
}

/* To the next rank and back, and to oneself, in one group; then all to all by transfers. */
static void check_transfers(ncclComm_t c, int n, int rank, size_t count)
{
    cudaStream_t s = new_stream();
    float *in = filled(rank, count), *out = device_floats(count * (size_t)n), *got;
    int next = (rank + 1) % n, last = (rank + n - 1) % n;
    OK(ncclGroupStart());
    OK(ncclSend(in, count, ncclFloat, next, c, s));
    OK(ncclRecv(out, count, ncclFloat, last, c, s));
    OK(ncclGroupEnd());
    CHECK(read_floats(out, count, s)[count - 1] == value(last, count - 1));
    OK(ncclGroupStart());
    for (int p = 0; p < n; p++) {
        OK(ncclSend(in, count, ncclFloat, p, c, s));
        OK(ncclRecv(out + (size_t)p * count, count, ncclFloat, p, c, s));
    }
    OK(ncclGroupEnd());
    got = read_floats(out, count * (size_t)n, s);
    for (size_t i = 0; i < count * (size_t)n; i++)
        CHECK(got[i] == value((int)(i / count), i % count));
}

static void all_of(int n, int rank, const ncclUniqueId &id)
{
    ncclComm_t c = world(id, n, rank);
    for (size_t count : {(size_t)1, (size_t)130, (size_t)40001}) {
        check_collectives(c, n, rank, count);
        check_transfers(c, n, rank, count);
    }
    int size, me;
    OK(ncclCommCount(c, &size));
    OK(ncclCommUserRank(c, &me));
    CHECK(size == n && me == rank);
    OK(ncclCommDestroy(c));
}

static void threads()
{
    for (int n : {1, 2, 3, 4}) {
        ncclUniqueId id = new_id();
        on_ranks(n, [&](int r) { all_of(n, r, id); });
    }
}
static void processes()
{
    ncclUniqueId id = new_id();
    CHECK(in_processes(3, [&](int r) { all_of(3, r, id); }));
}
/* Every process makes the id by itself. */
static void named_processes()
{
    CHECK(in_processes(2, [&](int r) { all_of(2, r, new_id()); }));
    CHECK(in_processes(2, [&](int r) {
        all_of(2, r, new_id());
        all_of(2, r, new_id());         /* the same name again */
    }));
}

/* Who began to make it was killed, and its file is there. */
static void left_behind()
{
    std::string file = std::string("/dev/shm") + new_id().internal;
    pid_t child = fork();
    if (child == 0)
        world(new_id(), 2, 0);
    while (access(file.c_str(), F_OK) != 0)
        usleep(1000);
    usleep(50000);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    CHECK(access(file.c_str(), F_OK) == 0);
    CHECK(in_processes(2, [&](int r) { all_of(2, r, new_id()); }));
}

static void bf16_once_rounded()
{
    ncclUniqueId id = new_id();
    on_ranks(3, [&](int r) {
        ncclComm_t c = world(id, 3, r);
        cudaStream_t s = new_stream();
        /* 256 + 1 + 1: each sum rounded by itself would stay 256. */
        uint16_t x[2] = {(uint16_t)(r ? 0x3f80 : 0x4380), 0};
        float bits;
        memcpy(&bits, x, sizeof bits);
        float *d = device_floats(1, &bits);
        OK(ncclAllReduce(d, d, 1, ncclBfloat16, ncclSum, c, s));
        memcpy(x, read_floats(d, 1, s), sizeof x);
        CHECK(x[0] == 0x4381);
    });
}

/* ---- communicators ---- */

static void splits()
{
    ncclUniqueId id = new_id();
    on_ranks(4, [&](int r) {
        ncclComm_t all = world(id, 4, r), part, none;
        cudaStream_t s = new_stream();
        OK(ncclCommSplit(all, r % 2, -r, &part, nullptr));          /* {2, 0} and {3, 1} */
        OK(ncclCommSplit(all, r ? NCCL_SPLIT_NOCOLOR : 0, 0, &none, nullptr));
        CHECK((none != nullptr) == (r == 0));
        int me;
        OK(ncclCommUserRank(part, &me));
        CHECK(me == (r < 2));
        float *x = filled(r, 4), *y = device_floats(8);
        OK(ncclAllGather(x, y, 4, ncclFloat, part, s));
        CHECK(read_floats(y, 8, s)[0] == value(r % 2 + 2, 0) && read_floats(y, 8, s)[4] == value(r % 2, 0));
    });
}

static ncclResult_t wait_for(ncclComm_t c)
{
    ncclResult_t e;
    do {
        OK(ncclCommGetAsyncError(c, &e));
        usleep(100);
    } while (e == ncclInProgress);
    return e;
}

/* Made beside, used, split, of which nothing is seen before it is done; a rank comes late. */
static void non_blocking()
{
    static std::atomic<bool> seen_in_progress, split_begun;
    ncclUniqueId id = new_id();
    on_ranks(2, [&](int r) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        ncclComm_t c, part = nullptr;
        while (r && !seen_in_progress)
            usleep(1000);
        CHECK(ncclCommInitRankConfig(&c, 2, id, r, &config) == ncclInProgress);
        ncclResult_t e;
        OK(ncclCommGetAsyncError(c, &e));
        CHECK(r || e == ncclInProgress);
        seen_in_progress = true;
        OK(wait_for(c));
        while (r && !split_begun)
            usleep(1000);
        CHECK(ncclCommSplit(c, 0, r, &part, nullptr) == ncclInProgress);
        CHECK(r || !part);
        split_begun = true;
        OK(wait_for(c));
        OK(wait_for(part));
        cudaStream_t s = new_stream();
        float *x = filled(r, 100);
        for (int i = 0; i < 20; i++) {
            CHECK(ncclAllReduce(x, x, 100, ncclFloat, ncclMax, i % 2 ? c : part, s) == ncclInProgress);
            OK(wait_for(i % 2 ? c : part));
        }
        CHECK(read_floats(x, 100, s)[5] == value(1, 5));
    });
}

static void used_too_early()
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t c;
    ncclCommInitRankConfig(&c, 2, new_id(), 0, &config);
    ncclAllReduce(filled(0, 1), device_floats(1), 1, ncclFloat, ncclSum, c, new_stream());
}

static void used_again_too_early()
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t c;
    ncclCommInitRankConfig(&c, 1, new_id(), 0, &config);
    OK(wait_for(c));
    float *x = filled(0, 1);
    cudaStream_t s = new_stream();
    for (int i = 0; i < 2; i++)
        ncclAllReduce(x, x, 1, ncclFloat, ncclSum, c, s);
}

static void all_at_once()
{
    ncclComm_t c[3];
    cudaStream_t s[3];
    float *x[3];
    OK(ncclCommInitAll(c, 3, nullptr));
    for (int r = 0; r < 3; r++) {
        OK(cudaSetDevice(r));
        s[r] = new_stream();
        x[r] = filled(r, 10);
    }
    OK(ncclGroupStart());
    for (int r = 0; r < 3; r++) {
        OK(cudaSetDevice(r));
        OK(ncclAllReduce(x[r], x[r], 10, ncclFloat, ncclMax, c[r], s[r]));
    }
    OK(cudaSetDevice(0));
    /* A group is one operation for each device of a process. */
    OK(ncclGroupEnd());
    CHECK(read_floats(x[0], 10, s[0])[9] == value(2, 9));
}

/* Ranks capture collectives on two communicators and a transfer, and replay them. */
static void in_graphs()
{
    ncclUniqueId id = new_id();
    on_ranks(2, [&](int r) {
        ncclComm_t a = world(id, 2, r), b;
        OK(ncclCommSplit(a, 0, r, &b, nullptr));
        cudaStream_t s = new_stream();
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        float one = 1, *x = device_floats(1, &one), *y = device_floats(1);
        OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
        OK(ncclAllReduce(x, x, 1, ncclFloat, ncclSum, a, s));
        OK(ncclGroupStart());
        OK(ncclSend(x, 1, ncclFloat, 1 - r, a, s));
        OK(ncclRecv(y, 1, ncclFloat, 1 - r, a, s));
        OK(ncclGroupEnd());
        OK(ncclAllReduce(y, x, 1, ncclFloat, ncclSum, b, s));
        OK(cudaStreamEndCapture(s, &graph));
        OK(cudaGraphInstantiate(&exec, graph, 0));
        for (int i = 0; i < 3; i++)
            OK(cudaGraphLaunch(exec, s));
        OK(ncclAllReduce(x, x, 1, ncclFloat, ncclSum, a, s));
        CHECK(*read_floats(x, 1, s) == 128);
    });
}

/* ---- contracts ---- */

/* Two ranks; F gets the communicator, the rank and a stream. */
static void pair(void (*f)(ncclComm_t, int, cudaStream_t))
{
    ncclUniqueId id = new_id();
    on_ranks(2, [&](int r) {
        ncclComm_t c = world(id, 2, r);
        cudaStream_t s = new_stream();
        f(c, r, s);
        OK(cudaStreamSynchronize(s));
    });
}

static void reduce(ncclComm_t c, cudaStream_t s, size_t n, ncclDataType_t type = ncclFloat, ncclRedOp_t op = ncclSum)
{
    OK(ncclAllReduce(filled(0, 64), device_floats(64), n, type, op, c, s));
}
static void other_count() { pair([](ncclComm_t c, int r, cudaStream_t s) { reduce(c, s, r ? 8 : 9); }); }
static void other_type() { pair([](ncclComm_t c, int r, cudaStream_t s) { reduce(c, s, 8, r ? ncclFloat : ncclInt); }); }
static void other_reduction() { pair([](ncclComm_t c, int r, cudaStream_t s) { reduce(c, s, 8, ncclFloat, r ? ncclSum : ncclMax); }); }
static void other_operation()
{
    pair([](ncclComm_t c, int r, cudaStream_t s) {
        if (r)
            reduce(c, s, 8);
        else
            OK(ncclBroadcast(filled(0, 8), device_floats(8), 8, ncclFloat, 0, c, s));
    });
}
static void other_root()
{
    pair([](ncclComm_t c, int r, cudaStream_t s) { OK(ncclBroadcast(filled(0, 8), device_floats(8), 8, ncclFloat, r, c, s)); });
}
static void other_message()
{
    pair([](ncclComm_t c, int r, cudaStream_t s) {
        if (r)
            OK(ncclSend(filled(0, 8), 8, ncclFloat, 0, c, s));
        else
            OK(ncclRecv(device_floats(8), 7, ncclFloat, 1, c, s));
    });
}
static void same_calls()
{
    pair([](ncclComm_t c, int r, cudaStream_t s) {
        reduce(c, s, 8);
        if (r)
            OK(ncclSend(filled(0, 8), 8, ncclFloat, 0, c, s));
        else
            OK(ncclRecv(device_floats(8), 8, ncclFloat, 1, c, s));
    });
}

/* Two communicators, each rank with streams of its own for them. */
static void two_comms(bool exchanged, bool transfer)
{
    ncclUniqueId id = new_id();
    on_ranks(2, [&](int r) {
        ncclComm_t a = world(id, 2, r), b;
        OK(ncclCommSplit(a, 0, r, &b, nullptr));
        cudaStream_t s = new_stream(), t = new_stream();
        float *x = filled(r, 8), *y = filled(r, 8), *z = device_floats(8);
        auto on_b = [&]() {
            if (!transfer)
                OK(ncclAllReduce(y, y, 8, ncclFloat, ncclSum, b, t));
            else if (r)
                OK(ncclSend(y, 8, ncclFloat, 0, b, t));
            else
                OK(ncclRecv(z, 8, ncclFloat, 1, b, t));
        };
        if (exchanged && r)
            on_b();
        OK(ncclAllReduce(x, x, 8, ncclFloat, ncclSum, a, s));
        if (!exchanged || !r)
            on_b();
        OK(cudaStreamSynchronize(s));
        OK(cudaStreamSynchronize(t));
    });
}
static void orders_differ() { two_comms(true, false); }
static void orders_agree() { two_comms(false, false); }
static void orders_differ_transfer() { two_comms(true, true); }
static void orders_agree_transfer() { two_comms(false, true); }

/* In one group the order of communicators does not matter. */
static void grouped_orders()
{
    ncclUniqueId id = new_id();
    on_ranks(2, [&](int r) {
        ncclComm_t c[2];
        c[0] = world(id, 2, r);
        OK(ncclCommSplit(c[0], 0, r, &c[1], nullptr));
        cudaStream_t s = new_stream();
        float *x[2] = {filled(r, 8), filled(r, 8)};
        OK(ncclGroupStart());
        for (int i = 0; i < 2; i++)
            OK(ncclAllReduce(x[i ^ r], x[i ^ r], 8, ncclFloat, ncclMax, c[i ^ r], s));
        OK(ncclGroupEnd());
        CHECK(read_floats(x[0], 8, s)[1] == value(1, 1) && read_floats(x[1], 8, s)[2] == value(1, 2));
    });
}

/* Messages of both ranks to each other: each sends before it receives, on one communicator or on one for each direction. */
static void crossed(bool grouped, bool apart)
{
    ncclUniqueId id = new_id();
    on_ranks(2, [&](int r) {
        ncclComm_t c[2];
        c[0] = world(id, 2, r);
        OK(ncclCommSplit(c[0], 0, r, &c[1], nullptr));
        cudaStream_t s = new_stream(), t = new_stream();
        float *x = filled(r, 8), *y = device_floats(8);
        if (grouped)
            OK(ncclGroupStart());
        OK(ncclSend(x, 8, ncclFloat, 1 - r, c[apart ? r : 0], s));
        OK(ncclRecv(y, 8, ncclFloat, 1 - r, c[apart ? 1 - r : 0], t));
        if (grouped)
            OK(ncclGroupEnd());
        CHECK(read_floats(y, 8, t)[3] == value(1 - r, 3));
    });
}
static void crossed_messages() { crossed(false, false); }
static void crossed_orders() { crossed(false, true); }
static void crossed_group() { crossed(true, false); }
static void crossed_group_apart() { crossed(true, true); }

static void too_small()
{
    pair([](ncclComm_t c, int, cudaStream_t s) { ncclAllGather(filled(0, 8), device_floats(15), 8, ncclFloat, c, s); });
}
static void overlap()
{
    pair([](ncclComm_t c, int, cudaStream_t s) {
        float *x = filled(0, 16);
        ncclAllGather(x + 4, x, 8, ncclFloat, c, s);
    });
}
static void in_place()
{
    pair([](ncclComm_t c, int r, cudaStream_t s) {
        float *x = filled(r, 16);
        OK(ncclAllGather(x + 8 * r, x, 8, ncclFloat, c, s));
        CHECK(read_floats(x, 16, s)[8] == value(1, 8));
        OK(ncclAllReduce(x, x, 16, ncclFloat, ncclSum, c, s));
        CHECK(read_floats(x, 16, s)[8] == 2 * value(1, 8));
    });
}
static void host_buffer()
{
    static float host[8];
    pair([](ncclComm_t c, int, cudaStream_t s) { ncclAllReduce(host, host, 8, ncclFloat, ncclSum, c, s); });
}
static void on_default_stream()
{
    pair([](ncclComm_t c, int, cudaStream_t) { ncclAllReduce(filled(0, 8), device_floats(8), 8, ncclFloat, ncclSum, c, nullptr); });
}
static void destroyed()
{
    pair([](ncclComm_t c, int, cudaStream_t s) {
        OK(ncclCommDestroy(c));
        reduce(c, s, 8);
    });
}

/* ---- ranks that fail ---- */

/* One that never comes: the other one says what all do, has an error, and goes on. */
static void missing_rank()
{
    pair([](ncclComm_t c, int r, cudaStream_t s) {
        if (r)
            return;
        reduce(c, s, 8);
        OK(cudaStreamSynchronize(s));
        ncclResult_t e;
        OK(ncclCommGetAsyncError(c, &e));
        CHECK(e == ncclSystemError);
        exit(3);
    });
}

/* An abort ends what both wait for. */
static void aborted()
{
    static std::atomic<bool> waits;
    ncclUniqueId id = new_id();
    on_ranks(2, [&](int r) {
        ncclComm_t c = world(id, 2, r);
        cudaStream_t s = new_stream();
        ncclResult_t e = ncclSuccess;
        if (r == 0) {
            reduce(c, s, 8);
            waits = true;
            OK(cudaStreamSynchronize(s));
            OK(ncclCommGetAsyncError(c, &e));
            CHECK(e == ncclRemoteError);
            CHECK(ncclAllReduce(filled(0, 8), device_floats(8), 8, ncclFloat, ncclSum, c, s) == ncclRemoteError);
        } else {
            while (!waits)
                usleep(1000);
        }
        OK(ncclCommAbort(c));
    });
}

static void own_abort()
{
    pair([](ncclComm_t c, int r, cudaStream_t s) {
        if (r == 0) {
            reduce(c, s, 8);
            usleep(5000);
            OK(ncclCommAbort(c));
        }
    });
}

/* A fault in the second collective of device 1: its state says so, the other rank waits until it aborts. */
static void failing_collective()
{
    static std::atomic<bool> failed;
    CHECK(cudaemu_fail("collective:2=6@1"));
    ncclUniqueId id = new_id();
    on_ranks(2, [&](int r) {
        ncclComm_t c = world(id, 2, r);
        cudaStream_t s = new_stream();
        reduce(c, s, 8);
        reduce(c, s, 8);
        if (r) {
            OK(cudaStreamSynchronize(s));
            failed = true;
            CHECK(wait_for(c) == ncclRemoteError);
        } else {
            while (!failed)
                usleep(1000);
            ncclResult_t e = wait_for(c);
            CHECK(e == ncclSuccess || e == ncclRemoteError);    /* before the other one aborts, or after */
        }
        OK(ncclCommAbort(c));
    });
}

/* What has a name lies in memory that all programs of the machine share. */
static const std::string own = "NCCL_COMM_ID=localhost:" + std::to_string(getpid()), named = own + "1", left = own + "2";

static const Case cases[] = {
    {"collectives and transfers of threads", threads, nullptr, nullptr},
    {"collectives and transfers, delayed", threads, nullptr, "CUDAEMU_SEED=3"},
    {"collectives and transfers of processes", processes, nullptr, nullptr},
    {"processes that meet by NCCL_COMM_ID", named_processes, nullptr, named.c_str()},
    {"a communicator that a killed process left", left_behind, nullptr, left.c_str()},
    {"sums in bf16", bf16_once_rounded, nullptr, nullptr},
    {"splits", splits, nullptr, nullptr},
    {"communicators that do not block", non_blocking, nullptr, nullptr},
    {"communicators that do not block, delayed", non_blocking, nullptr, "CUDAEMU_SEED=8"},
    {"a communicator used before it is there", used_too_early, "still being made", nullptr},
    {"a communicator used before it has taken what came before", used_again_too_early, "taking the operation before", nullptr},
    {"all ranks in one thread", all_at_once, nullptr, nullptr},
    {"collectives in a graph", in_graphs, nullptr, nullptr},
    {"different counts", other_count, "ranks disagree", nullptr},
    {"different types", other_type, "ranks disagree", nullptr},
    {"different reductions", other_reduction, "ranks disagree", nullptr},
    {"different operations", other_operation, "ranks disagree", nullptr},
    {"different roots", other_root, "ranks disagree", nullptr},
    {"a message of another size", other_message, "ranks disagree", nullptr},
    {"the same calls", same_calls, nullptr, nullptr},
    {"two communicators in different orders", orders_differ, "in different orders", nullptr},
    {"two communicators in one order", orders_agree, nullptr, nullptr},
    {"a transfer and a collective in different orders", orders_differ_transfer, "in different orders", nullptr},
    {"a transfer and a collective in one order", orders_agree_transfer, nullptr, nullptr},
    {"different orders, when they are not compared", orders_differ, nullptr, "CUDAEMU_ORDER=0"},
    {"different orders in a group", grouped_orders, nullptr, nullptr},
    {"messages that wait for each other", crossed_messages, "in Send to rank", "CUDAEMU_TIMEOUT=1.5"},
    {"messages on two communicators in different orders", crossed_orders, "in different orders", nullptr},
    {"messages to each other in a group", crossed_group, nullptr, nullptr},
    {"messages to each other in a group, delayed", crossed_group, nullptr, "CUDAEMU_SEED=5"},
    {"messages to each other in a group of two communicators", crossed_group_apart, nullptr, nullptr},
    {"a buffer that is too small", too_small, "4 bytes beyond an allocation of 60 bytes", nullptr},
    {"buffers that overlap", overlap, "the buffers overlap", nullptr},
    {"buffers that overlap in place", in_place, nullptr, nullptr},
    {"a buffer of the host", host_buffer, "is not device memory", nullptr},
    {"a collective on the default stream", on_default_stream, "default stream", nullptr},
    {"a communicator that was destroyed", destroyed, "a communicator that was destroyed", nullptr},
    {"a missing rank", missing_rank, "rank 1: has called nothing yet", "CUDAEMU_TIMEOUT=1.5"},
    {"an abort by another rank", aborted, nullptr, nullptr},
    {"an abort of what a rank waits for", own_abort, nullptr, nullptr},
    {"a collective that fails", failing_collective, nullptr, nullptr},
};

int main(int argc, char **argv) { return RUN_CASES(argc, argv, cases); }
