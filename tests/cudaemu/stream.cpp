/* stream.cpp -- streams are OS threads with a queue, events are places in them.
 *
 * With a seed a stream waits for a random time before some operations, so that what is not ordered comes in
 * different orders.  Objects that are destroyed stay in memory, to know them when they are used again. */
#include "stream.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <unistd.h>

namespace cudaemu {

static Lock streams_lock;
static std::vector<cudaStream_t> &all_streams()
{
    static std::vector<cudaStream_t> *list = new std::vector<cudaStream_t>();
    return *list;
}
static std::vector<void *> &graveyard()     /* keeps leak checkers content */
{
    static std::vector<void *> *list = new std::vector<void *>();
    return *list;
}
static cudaStream_t default_streams[MAX_DEVICES];

/* ---- the thread of a stream ---- */

/* A process that ends does not wait for its streams, but what runs must not meet libraries that are gone. */
static std::atomic<bool> ending;
static std::atomic<int> running_tasks;

static void end_streams()
{
    ending = true;
    for (int i = 0; i < 2000 && running_tasks.load(); i++)
        usleep(1000);
}

static void say_start(cudaStream_t s, const char *what)
{
    if (settings().trace)
        fprintf(stderr, "cudaemu: device %d, stream %d: %s\n", s->device, s->id, what);
}

static void run_task(cudaStream_t s, Task *t, Random *random)
{
    acquire(t->edge.get());
    if (settings().seed && random->below(4) == 0)
        usleep(random->below(settings().delay_us + 1));
    if (!t->op.internal)
        say_start(s, t->op.what);
    running = t->op.what;
    int code = t->op.kind && !sticky(s->device) ? fault(t->op.kind) : 0;
    if (code)
        set_sticky(s->device, (cudaError_t)code);
    if (t->op.run && (t->op.internal || !sticky(s->device)))
        t->op.run();
    running = nullptr;
    release(&s->finished);
}

static void *stream_main(void *p)
{
    cudaStream_t s = static_cast<cudaStream_t>(p);
    use_device(s->device);
    memory_watch_thread();
    Random random((uint64_t)s->id << 32);
    place = ((uint64_t)s->id << 32) + 1;
    for (;;) {
        for (int n; !s->pending.load() && !s->stop.load();) {
            n = s->pending.load();
            if (!n)
                futex(&s->pending, FUTEX_WAIT_PRIVATE, 0);
        }
        if (s->stop.load() && !s->pending.load())
            return nullptr;
        Task t;
        {
            Hidden hidden;
            Guard guard(s->lock);
            t = std::move(s->queue.front());
            s->queue.pop_front();
        }
        running_tasks++;
        if (ending.load()) {
            running_tasks--;
            for (;;)
                pause();
        }
        run_task(s, &t, &random);
        running_tasks--;
        if (!t.op.is_mark)
            s->unfinished--;
        {
            Hidden hidden;
            t = Task();
        }
        s->pending--;
    }
}

cudaStream_t stream_new(unsigned flags)
{
    static int streams;
    static const int registered = atexit(end_streams);
    (void)registered;
    cudaStream_t s = new CUstream_st();
    s->device = current_device();
    s->flags = flags;
    {
        Guard guard(streams_lock);
        s->id = streams++;
        all_streams().push_back(s);
    }
    if (pthread_create(&s->thread, nullptr, stream_main, s))
        fatal("no thread for a stream");
    return s;
}

void stream_delete(cudaStream_t s)
{
    stream_mark(s)->wait();
    s->live = 0;
    s->stop = true;
    {
        Guard guard(streams_lock);
        std::vector<cudaStream_t> &v = all_streams();
        for (size_t i = 0; i < v.size(); i++)
            if (v[i] == s) {
                v[i] = v.back();
                v.pop_back();
                break;
            }
        graveyard().push_back(s);
    }
    stream_push(s, Operation{nullptr, "the end of a stream", nullptr, {}, true});
    pthread_join(s->thread, nullptr);
}

/* ---- enqueueing ---- */

void stream_push(cudaStream_t s, Operation op)
{
    Task t;
    t.edge.reset(new char(0));
    if (!op.orders.empty()) {
        std::vector<TokenRef> before;
        TokenRef mine = std::make_shared<Token>();
        {
            Guard guard(streams_lock);
            for (Order *o : op.orders) {
                if (o->last)
                    before.push_back(o->last);
                o->last = mine;
            }
        }
        std::function<void()> run = std::move(op.run);
        op.orders.clear();
        /* The order is NCCL's, and none that a program may count on: the sanitizer is not told. */
        const char *what = op.what;
        op.run = [before, mine, run, s, what]() {
            for (const TokenRef &b : before)
                while (!b->done.load())
                    futex(&b->done, FUTEX_WAIT_PRIVATE, 0);
            say_start(s, what);
            if (!sticky(s->device))
                run();
            mine->set();
        };
        op.internal = true;
    }
    if (!op.is_mark)
        s->unfinished++;
    t.op = std::move(op);
    release(t.edge.get());
    Guard guard(s->lock);
    s->queue.push_back(std::move(t));
    if (s->pending++ == 0)
        futex(&s->pending, FUTEX_WAKE_PRIVATE, 1);
}

/* The legacy default stream waits for all that may block with it, and they for it. */
static void join_default(cudaStream_t s)
{
    std::vector<cudaStream_t> others;
    {
        Guard guard(streams_lock);
        if (s->is_default) {
            for (cudaStream_t x : all_streams())
                if (x != s && x->device == s->device && !(x->flags & cudaStreamNonBlocking) && x->pending.load())
                    others.push_back(x);
        } else if (!(s->flags & cudaStreamNonBlocking) && default_streams[s->device]) {
            others.push_back(default_streams[s->device]);
        }
    }
    for (cudaStream_t x : others)
        stream_wait(s, stream_mark(x));
}

cudaError_t enqueue(cudaStream_t s, Operation op)
{
    if (s->capture) {
        capture_add(s, std::move(op));
        return cudaSuccess;
    }
    join_default(s);
    stream_push(s, std::move(op));
    return cudaSuccess;
}

void order_wait(Order *o)
{
    TokenRef last;
    {
        Guard guard(streams_lock);
        last = o->last;
    }
    if (last)
        last->wait();
}

TokenRef stream_mark(cudaStream_t s)
{
    TokenRef t = std::make_shared<Token>();
    stream_push(s, Operation{[t]() { t->set(); }, "a mark", nullptr, {}, true, true});
    return t;
}

void stream_wait(cudaStream_t s, TokenRef t)
{
    stream_push(s, Operation{[t]() { t->wait(); }, "waiting for an event", nullptr, {}, true});
}

void device_wait(int device)
{
    std::vector<cudaStream_t> list;
    {
        Guard guard(streams_lock);
        for (cudaStream_t s : all_streams())
            if (s->device == device && s->pending.load())
                list.push_back(s);
            else if (s->device == device)
                acquire(&s->finished);
    }
    std::vector<TokenRef> marks;
    for (cudaStream_t s : list)
        marks.push_back(stream_mark(s));
    for (const TokenRef &t : marks)
        t->wait();
}

static cudaStream_t default_stream()
{
    int d = current_device();
    {
        Guard guard(streams_lock);
        if (default_streams[d])
            return default_streams[d];
    }
    cudaStream_t s = stream_new(cudaStreamDefault);
    s->is_default = true;
    Guard guard(streams_lock);
    return default_streams[d] = s;
}

cudaStream_t resolve(cudaStream_t s, const char *call)
{
    if (s == cudaStreamPerThread) {
        fatal("%s on the stream of the thread, which is not emulated", call);
    } else if (!s || s == cudaStreamLegacy) {
        if (settings().strict)
            report("%s on the default stream: every operation needs a stream of its own choice", call);
        return default_stream();
    } else if (s->live.load() != CUstream_st::LIVE) {
        report("%s on a stream that was destroyed", call);
        return nullptr;
    }
    return s;
}

} /* namespace cudaemu */

using namespace cudaemu;

/* ---- streams ---- */

extern "C" cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags)
{
    CUDAEMU_ENTER("cudaStreamCreateWithFlags");
    *s = stream_new(flags);
    return cudaSuccess;
}

extern "C" cudaError_t cudaStreamCreate(cudaStream_t *s)
{
    CUDAEMU_ENTER("cudaStreamCreate");
    *s = stream_new(cudaStreamDefault);
    return cudaSuccess;
}

extern "C" cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int)
{
    CUDAEMU_ENTER("cudaStreamCreateWithPriority");
    *s = stream_new(flags);
    return cudaSuccess;
}

extern "C" cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    CUDAEMU_ENTER("cudaStreamDestroy");
    s = resolve(s, "cudaStreamDestroy");
    if (!s)
        return fail(cudaErrorInvalidResourceHandle);
    stream_delete(s);
    return cudaSuccess;
}

extern "C" cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    CUDAEMU_ENTER("cudaStreamSynchronize");
    s = resolve(s, "cudaStreamSynchronize");
    if (!s)
        return fail(cudaErrorInvalidResourceHandle);
    if (s->capture)
        return capture_break(s);
    join_default(s);
    stream_mark(s)->wait();
    return sticky(current_device());
}

extern "C" cudaError_t cudaStreamQuery(cudaStream_t s)
{
    CUDAEMU_ENTER("cudaStreamQuery");
    s = resolve(s, "cudaStreamQuery");
    if (!s)
        return fail(cudaErrorInvalidResourceHandle);
    if (s->capture)
        return capture_break(s);
    if (s->unfinished.load())
        return cudaErrorNotReady;
    acquire(&s->finished);
    return cudaSuccess;
}

extern "C" cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t event, unsigned)
{
    CUDAEMU_ENTER("cudaStreamWaitEvent");
    s = resolve(s, "cudaStreamWaitEvent");
    CUevent_st *e = event_of(event, "cudaStreamWaitEvent");
    if (!s || !e)
        return fail(cudaErrorInvalidResourceHandle);
    TokenRef token;
    {
        Guard guard(e->lock);
        token = e->token;
    }
    if (e->capture)
        return capture_wait(s, e->capture, e->node);
    if (s->capture && token) {
        capture_break(s);
        return fail(cudaErrorStreamCaptureIsolation);
    }
    if (token)
        stream_wait(s, token);
    return cudaSuccess;
}

extern "C" cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t function, void *data)
{
    CUDAEMU_ENTER("cudaLaunchHostFunc");
    s = resolve(s, "cudaLaunchHostFunc");
    if (!s)
        return fail(cudaErrorInvalidResourceHandle);
    return enqueue(s, Operation{[function, data]() {
        in_host_function = true;
        function(data);
        in_host_function = false;
    }, "a host function", nullptr, {}, false});
}

/* ---- events ---- */

CUevent_st *cudaemu::event_of(cudaEvent_t e, const char *call)
{
    if (e && e->live.load() == CUevent_st::LIVE)
        return e;
    report("%s with %s", call, e ? "an event that was destroyed" : "no event");
    return nullptr;
}

extern "C" cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags)
{
    CUDAEMU_ENTER("cudaEventCreateWithFlags");
    *e = new CUevent_st();
    (*e)->device = current_device();
    (*e)->timing = !(flags & cudaEventDisableTiming);
    return cudaSuccess;
}

extern "C" cudaError_t cudaEventCreate(cudaEvent_t *e)
{
    return cudaEventCreateWithFlags(e, cudaEventDefault);
}

extern "C" cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    CUDAEMU_ENTER("cudaEventDestroy");
    CUevent_st *e = event_of(event, "cudaEventDestroy");
    if (!e)
        return fail(cudaErrorInvalidResourceHandle);
    e->live = 0;
    e->token.reset();
    Guard guard(streams_lock);
    graveyard().push_back(e);
    return cudaSuccess;
}

extern "C" cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t s)
{
    CUDAEMU_ENTER("cudaEventRecord");
    s = resolve(s, "cudaEventRecord");
    CUevent_st *e = event_of(event, "cudaEventRecord");
    if (!s || !e)
        return fail(cudaErrorInvalidResourceHandle);
    if (e->device != s->device)
        return fail(cudaErrorInvalidResourceHandle);
    if (s->capture) {
        e->capture = s->capture;
        e->node = capture_add(s, Operation{nullptr, "an event", nullptr, {}, true});
        return cudaSuccess;
    }
    join_default(s);
    TokenRef token = stream_mark(s);
    Guard guard(e->lock);
    e->capture = nullptr;
    e->token = token;
    return cudaSuccess;
}

extern "C" cudaError_t cudaEventQuery(cudaEvent_t event)
{
    CUDAEMU_ENTER("cudaEventQuery");
    CUevent_st *e = event_of(event, "cudaEventQuery");
    if (!e)
        return fail(cudaErrorInvalidResourceHandle);
    if (e->capture)
        return fail(cudaErrorCapturedEvent);
    Guard guard(e->lock);
    return !e->token || e->token->is_done() ? cudaSuccess : cudaErrorNotReady;
}

extern "C" cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    CUDAEMU_ENTER("cudaEventSynchronize");
    CUevent_st *e = event_of(event, "cudaEventSynchronize");
    if (!e)
        return fail(cudaErrorInvalidResourceHandle);
    if (e->capture)
        return fail(cudaErrorCapturedEvent);
    TokenRef token;
    {
        Guard guard(e->lock);
        token = e->token;
    }
    if (token)
        token->wait();
    return sticky(current_device());
}

extern "C" cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    CUDAEMU_ENTER("cudaEventElapsedTime");
    CUevent_st *a = event_of(from, "cudaEventElapsedTime"), *b = event_of(to, "cudaEventElapsedTime");
    if (!a || !b || !a->token || !b->token || !a->timing || !b->timing)
        return fail(cudaErrorInvalidResourceHandle);
    if (!a->token->is_done() || !b->token->is_done())
        return fail(cudaErrorNotReady);
    *ms = (float)((b->token->when - a->token->when) * 1e3);
    return cudaSuccess;
}
