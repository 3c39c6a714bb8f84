/* stream.h -- streams, events and captures, as stream.cpp and graph.cpp see them. */
#ifndef CUDAEMU_STREAM_H
#define CUDAEMU_STREAM_H

#include "internal.h"

#include <deque>
#include <pthread.h>

namespace cudaemu {

/* What a stream's thread does next.  EDGE is what the sanitizer is told of: who issues it comes before. */
struct Task {
    Operation op;
    std::unique_ptr<char> edge;
};

/* A graph in the making.  A lane is a stream that takes part. */
struct Capture {
    CUgraph_st *graph;
    cudaStreamCaptureMode mode;
    std::vector<cudaStream_t> lanes;            /* the first one began it */
    std::vector<std::vector<int>> frontier;     /* by lane: nodes that its next one comes after */
    bool broken;
};

} /* namespace cudaemu */

struct CUstream_st {
    static const unsigned LIVE = 0x73747265;
    std::atomic<unsigned> live{LIVE};
    int device, id;
    unsigned flags;
    bool is_default = false;
    cudaemu::Lock lock;
    std::deque<cudaemu::Task> queue;            /* under lock */
    std::atomic<int> pending{0};                /* tasks queued or running */
    std::atomic<int> unfinished{0};             /* the same without marks */
    std::atomic<bool> stop{false};
    pthread_t thread;
    cudaemu::Capture *capture = nullptr;
    int lane = 0;                               /* in the capture */
    uint64_t finished = 0;                      /* edge from its tasks to who sees it idle */
};

struct CUevent_st {
    static const unsigned LIVE = 0x6576656e;
    std::atomic<unsigned> live{LIVE};
    int device;
    bool timing;
    cudaemu::Lock lock;
    cudaemu::TokenRef token;                    /* of the last record; NULL before */
    cudaemu::Capture *capture = nullptr;        /* that the last record belongs to */
    int node = -1;
};

struct CUgraph_st {
    struct Node {
        cudaemu::Operation op;                  /* no function: it only joins */
        int lane;
        std::vector<int> after;
    };
    std::vector<Node> nodes;
    int lanes = 1;
};

namespace cudaemu {

/* A node on the stream's lane, and its number. */
int capture_add(cudaStream_t s, Operation op);
/* The stream waits for a node: it joins the capture if it is in none. */
cudaError_t capture_wait(cudaStream_t s, Capture *c, int node);
/* A call that has no place in a graph: the capture is lost. */
cudaError_t capture_break(cudaStream_t s);
CUevent_st *event_of(cudaEvent_t e, const char *call);
/* At the end of a stream, whether it is captured or not. */
void stream_push(cudaStream_t s, Operation op);

} /* namespace cudaemu */

#endif
