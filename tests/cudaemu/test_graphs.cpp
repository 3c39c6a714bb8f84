/* test_graphs.cpp -- captured streams: replays, forks and joins, and what must not be captured. */
#include "harness.h"

#include <unistd.h>

static cudaEvent_t new_event()
{
    cudaEvent_t e;
    OK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    return e;
}

static void add_one(void *p)
{
    usleep(500);
    ++*static_cast<int *>(p);
}
static void twice(void *p) { *static_cast<int *>(p) *= 2; }

/* (x + 1) on a fork, joined, then twice that: three times over. */
static void replay()
{
    cudaStream_t a = new_stream(), b = new_stream();
    cudaEvent_t fork = new_event(), join = new_event();
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaStreamCaptureStatus status;
    int x = 1, y = 0;
    size_t nodes;
    OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
    OK(cudaEventRecord(fork, a));
    OK(cudaStreamWaitEvent(b, fork, 0));
    OK(cudaLaunchHostFunc(b, add_one, &x));
    OK(cudaLaunchHostFunc(a, add_one, &y));
    OK(cudaEventRecord(join, b));
    OK(cudaStreamWaitEvent(a, join, 0));
    OK(cudaLaunchHostFunc(a, twice, &x));
    OK(cudaStreamIsCapturing(b, &status));
    CHECK(status == cudaStreamCaptureStatusActive && x == 1);
    OK(cudaStreamEndCapture(a, &graph));
    OK(cudaGraphGetNodes(graph, nullptr, &nodes));
    CHECK(nodes == 3);
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphDestroy(graph));
    for (int i = 0; i < 3; i++)
        OK(cudaGraphLaunch(exec, i % 2 ? b : a));       /* one launch after another, whatever the stream */
    OK(cudaDeviceSynchronize());
    CHECK(x == ((1 + 1) * 2 + 1) * 2 * 2 + 2 && y == 3);
    OK(cudaGraphExecDestroy(exec));
}

static void unjoined()
{
    cudaStream_t a = new_stream(), b = new_stream();
    cudaEvent_t fork = new_event();
    cudaGraph_t graph;
    int x = 0;
    OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
    OK(cudaEventRecord(fork, a));
    OK(cudaStreamWaitEvent(b, fork, 0));
    OK(cudaLaunchHostFunc(b, add_one, &x));
    CHECK(cudaStreamEndCapture(a, &graph) == cudaErrorStreamCaptureUnjoined && !graph);
    OK(cudaLaunchHostFunc(b, add_one, &x));
    OK(cudaStreamSynchronize(b));
    CHECK(x == 1);
}

/* A call that waits loses the capture. */
static void waiting()
{
    cudaStream_t a = new_stream();
    cudaGraph_t graph;
    void *p;
    OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
    CHECK(cudaMalloc(&p, 4) == cudaErrorStreamCaptureUnsupported);
    CHECK(cudaStreamSynchronize(a) == cudaErrorStreamCaptureUnsupported);
    CHECK(cudaStreamEndCapture(a, &graph) == cudaErrorStreamCaptureInvalidated);
    OK(cudaMalloc(&p, 4));
}

static void isolation()
{
    cudaStream_t a = new_stream(), b = new_stream();
    cudaEvent_t outside = new_event(), inside = new_event();
    cudaGraph_t graph;
    OK(cudaEventRecord(outside, b));
    OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
    OK(cudaEventRecord(inside, a));
    CHECK(cudaEventSynchronize(inside) == cudaErrorCapturedEvent);
    CHECK(cudaStreamWaitEvent(a, outside, 0) == cudaErrorStreamCaptureIsolation);
    CHECK(cudaStreamEndCapture(a, &graph) == cudaErrorStreamCaptureInvalidated);
    CHECK(cudaStreamEndCapture(a, &graph) == cudaErrorIllegalState);
}

static const Case cases[] = {
    {"a graph of two streams, three times", replay, nullptr, nullptr},
    {"a graph of two streams, delayed", replay, nullptr, "CUDAEMU_SEED=4"},
    {"a fork that is not joined", unjoined, nullptr, nullptr},
    {"a call that waits", waiting, nullptr, nullptr},
    {"an event from outside", isolation, nullptr, nullptr},
};

int main(int argc, char **argv) { return RUN_CASES(argc, argv, cases); }
