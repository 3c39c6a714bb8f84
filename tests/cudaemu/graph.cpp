/* graph.cpp -- graphs: what streams would have done is kept, and done at each launch.
 *
 * The streams of a capture are lanes.  A launch gives each lane a stream and orders the lanes by what was waited
 * for while capturing and by nothing else: a missing event shows in a graph as it does without. */
#include "stream.h"

#include <cstring>

namespace cudaemu {

static thread_local int captures;       /* that this thread began and that forbid unsafe calls */

int capture_add(cudaStream_t s, Operation op)
{
    Capture *c = s->capture;
    int n = (int)c->graph->nodes.size();
    std::vector<int> &frontier = c->frontier[(size_t)s->lane];
    c->graph->nodes.push_back(CUgraph_st::Node{std::move(op), s->lane, frontier});
    frontier.assign(1, n);
    return n;
}

cudaError_t capture_break(cudaStream_t s)
{
    s->capture->broken = true;
    return fail(cudaErrorStreamCaptureUnsupported);
}

cudaError_t capture_wait(cudaStream_t s, Capture *c, int node)
{
    if (!s->capture) {
        s->capture = c;
        s->lane = (int)c->lanes.size();
        c->lanes.push_back(s);
        c->frontier.emplace_back();
    } else if (s->capture != c) {
        s->capture->broken = c->broken = true;
        return fail(cudaErrorStreamCaptureMerge);
    }
    c->frontier[(size_t)s->lane].push_back(node);
    return cudaSuccess;
}

bool is_thread_capturing() { return captures > 0; }

/* Whether the origin comes after all that the other lanes do. */
static bool is_joined(const Capture *c)
{
    std::vector<char> reached(c->graph->nodes.size(), 0);
    std::vector<int> open = c->frontier[0];
    while (!open.empty()) {
        int n = open.back();
        open.pop_back();
        if (reached[(size_t)n])
            continue;
        reached[(size_t)n] = 1;
        const std::vector<int> &after = c->graph->nodes[(size_t)n].after;
        open.insert(open.end(), after.begin(), after.end());
    }
    for (const std::vector<int> &lane : c->frontier)
        for (int n : lane)
            if (!reached[(size_t)n])
                return false;
    return true;
}

} /* namespace cudaemu */

using namespace cudaemu;

extern "C" cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode mode)
{
    CUDAEMU_ENTER("cudaStreamBeginCapture");
    s = resolve(s, "cudaStreamBeginCapture");
    if (!s)
        return fail(cudaErrorInvalidResourceHandle);
    if (s->is_default)
        return fail(cudaErrorStreamCaptureUnsupported);
    if (s->capture)
        return fail(cudaErrorIllegalState);
    Capture *c = new Capture{new CUgraph_st(), mode, {s}, {{}}, false};
    s->capture = c;
    s->lane = 0;
    captures += mode != cudaStreamCaptureModeRelaxed;
    return cudaSuccess;
}

extern "C" cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph)
{
    CUDAEMU_ENTER("cudaStreamEndCapture");
    *graph = nullptr;
    s = resolve(s, "cudaStreamEndCapture");
    if (!s || !s->capture)
        return fail(s ? cudaErrorIllegalState : cudaErrorInvalidResourceHandle);
    Capture *c = s->capture;        /* never freed: events still name it */
    if (s->lane != 0)
        return fail(cudaErrorStreamCaptureUnmatched);
    captures -= c->mode != cudaStreamCaptureModeRelaxed;
    bool joined = is_joined(c);
    for (cudaStream_t lane : c->lanes)
        lane->capture = nullptr;
    c->graph->lanes = (int)c->lanes.size();
    if (c->broken || !joined) {
        delete c->graph;
        return fail(c->broken ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnjoined);
    }
    *graph = c->graph;
    return cudaSuccess;
}

extern "C" cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus *status)
{
    CUDAEMU_ENTER("cudaStreamIsCapturing");
    s = resolve(s, "cudaStreamIsCapturing");
    if (!s)
        return fail(cudaErrorInvalidResourceHandle);
    *status = !s->capture ? cudaStreamCaptureStatusNone
            : s->capture->broken ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

/* ---- graphs that can be launched ---- */

struct CUgraphExec_st {
    std::vector<CUgraph_st::Node> nodes;
    std::vector<char> waited;               /* by node: another lane waits for it */
    std::vector<cudaStream_t> lanes;        /* the first one is whatever stream it is launched on */
    TokenRef last;                          /* the launch before */
};

extern "C" cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    CUDAEMU_ENTER("cudaGraphInstantiate");
    CUgraphExec_st *x = new CUgraphExec_st();
    x->nodes = graph->nodes;
    x->waited.assign(x->nodes.size(), 0);
    for (const CUgraph_st::Node &n : x->nodes)
        for (int before : n.after)
            if (x->nodes[(size_t)before].lane != n.lane)
                x->waited[(size_t)before] = 1;
    x->lanes.push_back(nullptr);
    for (int l = 1; l < graph->lanes; l++)
        x->lanes.push_back(stream_new(cudaStreamNonBlocking));
    *exec = x;
    return cudaSuccess;
}

extern "C" cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    return cudaGraphInstantiate(exec, graph, flags);
}

extern "C" cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t)
{
    CUDAEMU_ENTER("cudaGraphUpload");
    return cudaSuccess;
}

extern "C" cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s)
{
    CUDAEMU_ENTER("cudaGraphLaunch");
    s = resolve(s, "cudaGraphLaunch");
    if (!s)
        return fail(cudaErrorInvalidResourceHandle);
    if (s->capture)
        return capture_break(s);
    if (x->last)
        stream_wait(s, x->last);
    TokenRef start = stream_mark(s);
    x->lanes[0] = s;
    for (size_t l = 1; l < x->lanes.size(); l++)
        stream_wait(x->lanes[l], start);
    std::vector<TokenRef> done(x->nodes.size());
    for (size_t i = 0; i < x->nodes.size(); i++) {
        const CUgraph_st::Node &n = x->nodes[i];
        cudaStream_t lane = x->lanes[(size_t)n.lane];
        for (int before : n.after)
            if (x->nodes[(size_t)before].lane != n.lane)
                stream_wait(lane, done[(size_t)before]);
        if (n.op.run)
            stream_push(lane, n.op);
        if (x->waited[i])
            done[i] = stream_mark(lane);
    }
    for (size_t l = 1; l < x->lanes.size(); l++)
        stream_wait(s, stream_mark(x->lanes[l]));
    x->last = stream_mark(s);
    return cudaSuccess;
}

extern "C" cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *n)
{
    CUDAEMU_ENTER("cudaGraphGetNodes");
    size_t have = 0;
    for (const CUgraph_st::Node &node : graph->nodes)
        have += node.op.run ? 1 : 0;
    if (nodes)
        return fail(cudaErrorNotSupported);     /* only how many there are */
    *n = have;
    return cudaSuccess;
}

extern "C" cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    CUDAEMU_ENTER("cudaGraphDestroy");
    delete graph;
    return cudaSuccess;
}

extern "C" cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x)
{
    CUDAEMU_ENTER("cudaGraphExecDestroy");
    if (x->last)
        x->last->wait();
    for (size_t l = 1; l < x->lanes.size(); l++)
        stream_delete(x->lanes[l]);
    delete x;
    return cudaSuccess;
}
