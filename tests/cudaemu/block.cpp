/* block.cpp -- runs the threads of a block: fibers, barriers and warp operations.
 *
 * An OS thread takes the threads of a block one after another.  Only where one must wait, at a barrier or for
 * other lanes, does it leave it on its stack and go on with another one: a kernel without barriers costs a call
 * per thread.  A seed changes the order in which threads start and go on. */
#include "device.h"
#include "internal.h"

#include <cstdio>
#include <cstdlib>

#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

namespace cudaemu {

__thread ThreadState *thread_now;
__thread BlockState block_now;

enum : size_t { SHARED_ALIGNMENT = 1024, SHARED_ROOM = SHARED_OPTIN + SHARED_ALIGNMENT };

struct AsyncCopy {
    void *to;
    const void *from;
    unsigned bytes, valid;          /* what is beyond VALID becomes zero */
    bool committed;
    unsigned group;
};

/* A stack that CUDA threads run on, and what the one on it now waits for. */
struct Fiber {
    void *sp;
    char *stack;
    void *tsan;
    ThreadState state;
    unsigned barriers;              /* that its thread has passed */
    int value;                      /* what a barrier gives it */
    unsigned group;                 /* of its asynchronous copies */
    std::vector<AsyncCopy> copies;
    Fiber *next;
};

/* An exchange in progress; Exchange comes first, for the lanes. */
struct OpenExchange {
    Exchange values;
    unsigned mask, arrived, unread;
    Site site;
    Fiber *waiting;
    OpenExchange *next;
};
struct Warp {
    OpenExchange *open, *spare;
    unsigned alive;                 /* lanes that have not left the kernel */
};

struct Runner {
    const Launch *launch;
    Fiber home;                     /* the OS thread's own stack */
    Fiber *now, *idle, *ready, *ready_last;
    unsigned count, started, alive;
    unsigned short order[1024];
    unsigned ordered;               /* threads that ORDER is for */
    bool shuffled, watched;         /* by the seed; each thread is one of the sanitizer's */
    Random random;
    Fiber *at_barrier;
    unsigned arrived, generation;
    BarrierKind kind;
    Site site;
    int result;
    unsigned left_after;            /* barriers passed by the threads that have left; ~0 as long as none has */
    Warp warp[32];
    uint64_t edge[4];               /* for the thread sanitizer, to which 8 bytes are one: start, end, barriers by turns */
    char *shared;
    std::vector<Fiber *> fibers;
    std::vector<OpenExchange *> exchanges;

    Runner();
    ~Runner();
};
static thread_local Runner *runner;

/* Goes on where TO stopped, until something goes on with FROM.  Inline, as a call would spoil the processor's guesses of
 * returns: fibers of a kernel stop at the same few places. */
static inline void switch_stacks(Fiber *from, Fiber *to)
{
    void **save = &from->sp, *load = to->sp;
    asm volatile("leaq -128(%%rsp), %%rsp\n\t"        /* what a function without calls may keep below */
                 "pushq %%rbp\n\t"
                 "leaq 1f(%%rip), %%rax\n\t"
                 "pushq %%rax\n\t"
                 "movq %%rsp, (%%rdi)\n\t"
                 "movq %%rsi, %%rsp\n\t"
                 "popq %%rax\n\t"
                 "jmpq *%%rax\n\t"
                 "1:\n\t"
                 "popq %%rbp\n\t"
                 "leaq 128(%%rsp), %%rsp\n\t"
                 : "+D"(save), "+S"(load)
                 :
                 : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "memory", "cc", "xmm0", "xmm1",
                   "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}

static void switch_to(Runner *r, Fiber *to)
{
    Fiber *from = r->now;
    if (from == to)
        return;
    r->now = to;
    thread_now = &to->state;
    if (r->watched)
        __tsan_switch_to_fiber(to->tsan, 1);
    switch_stacks(from, to);
}

/* ---- lists of fibers ---- */

static void make_ready(Runner *r, Fiber *list)
{
    while (list) {
        Fiber *f = list;
        list = f->next;
        f->next = nullptr;
        if (!r->ready)
            r->ready = r->ready_last = f;
        else if (r->shuffled && r->random.below(2)) {
            f->next = r->ready;
            r->ready = f;
        } else {
            r->ready_last->next = f;
            r->ready_last = f;
        }
    }
}

static void fiber_main();

static Fiber *new_fiber(Runner *r)
{
    Hidden hidden;
    Fiber *f = new Fiber();
    f->stack = stack_new();
    f->tsan = settings().threads ? __tsan_create_fiber(0) : nullptr;
    /* Stacks that end at one distance from a page compete for the same few lines of the cache. */
    size_t skew = 64 + 128 * (r->fibers.size() % 31);
    void **sp = reinterpret_cast<void **>(f->stack + STACK_BYTES - skew);
    *--sp = nullptr;                                    /* where a return address would be: aligns the stack too */
    *--sp = reinterpret_cast<void *>(fiber_main);
    f->sp = sp;
    r->fibers.push_back(f);
    return f;
}

/* ---- deadlocks ---- */

static bool same_site(Site a, Site b) { return a.line == b.line && (a.file == b.file || !strcmp(a.file, b.file)); }

static std::string site_text(Site s)
{
    const char *base = strrchr(s.file, '/');
    return std::string(s.what) + " (" + (base ? base + 1 : s.file) + ":" + std::to_string(s.line) + ")";
}

static std::string who_waits(Runner *r)
{
    std::string text;
    if (r->arrived)
        text += "; " + std::to_string(r->arrived) + " threads wait at " + site_text(r->site);
    for (unsigned w = 0; w < 32; w++)
        for (OpenExchange *e = r->warp[w].open; e; e = e->next) {
            char lanes[96];
            snprintf(lanes, sizeof lanes, "; warp %u: lanes %08x of mask %08x wait at ", w, e->arrived, e->mask);
            text += lanes + site_text(e->site);
        }
    return text;
}

/* The thread on this fiber cannot go on: some other one does. */
static void run_another(Runner *r)
{
    bool can_start = r->started < r->count;
    if (r->ready && (!can_start || (r->shuffled && r->random.below(2)))) {
        Fiber *f = r->ready;
        r->ready = f->next;
        switch_to(r, f);
    } else if (can_start) {
        Fiber *f = r->idle;
        if (f)
            r->idle = f->next;
        else
            f = new_fiber(r);
        switch_to(r, f);
    } else if (!r->alive) {
        switch_to(r, &r->home);
    } else {
        fatal("deadlock: %u threads of the block can not go on%s", r->alive, who_waits(r).c_str());
    }
}

/* ---- barriers ---- */

static void open_barrier(Runner *r)
{
    for (Fiber *f = r->at_barrier; f; f = f->next)
        f->value = r->result;
    Fiber *list = r->at_barrier;
    r->at_barrier = nullptr;
    r->arrived = 0;
    r->generation++;
    make_ready(r, list);
}

int barrier(BarrierKind kind, int predicate, Site site)
{
    Runner *r = runner;
    if (!r)
        fatal("%s is called outside a kernel", site_text(site).c_str());
    Fiber *self = r->now;
    if (!r->arrived) {
        r->kind = kind;
        r->site = site;
        r->result = kind == BARRIER_AND;
        if (r->left_after != ~0u)
            report("divergent barrier: a thread waits at %s, but others have left the kernel without it", site_text(site).c_str());
    } else if (!same_site(r->site, site)) {
        report("divergent barrier: this thread waits at %s, others of the block at %s", site_text(site).c_str(), site_text(r->site).c_str());
    }
    switch (kind) {
    case BARRIER_PLAIN: break;
    case BARRIER_COUNT: r->result += predicate != 0; break;
    case BARRIER_AND: r->result = r->result && predicate; break;
    case BARRIER_OR: r->result = r->result || predicate; break;
    }
    r->arrived++;
    self->barriers++;
    const uint64_t *edge = &r->edge[2 + (r->generation & 1)];
    release(edge);
    if (r->arrived == r->alive) {
        self->value = r->result;
        open_barrier(r);
    } else {
        self->next = r->at_barrier;
        r->at_barrier = self;
        run_another(r);
    }
    acquire(edge);
    return self->value;
}

/* ---- warp operations ---- */

static OpenExchange *open_exchange(Runner *r, Warp *w, unsigned mask, Site site)
{
    Hidden hidden;
    OpenExchange *e = w->spare;
    if (e) {
        w->spare = e->next;
    } else {
        e = new OpenExchange();
        r->exchanges.push_back(e);
    }
    e->mask = mask;
    e->arrived = e->unread = 0;
    e->site = site;
    e->waiting = nullptr;
    e->next = w->open;
    w->open = e;
    return e;
}

/* The exchange that LANE joins.  Lanes of its mask that wait for it somewhere else are a mistake. */
static OpenExchange *join_exchange(Runner *r, Warp *w, unsigned mask, unsigned lane, Site site)
{
    if (!(mask >> lane & 1))
        report("lane %u is not in the mask %08x of its %s", lane, mask, site_text(site).c_str());
    if (mask & ~w->alive)
        report("the mask %08x of %s names lanes that have left the kernel or are not in the block (%08x are there)", mask,
               site_text(site).c_str(), w->alive);
    for (OpenExchange *e = w->open; e; e = e->next) {
        if (e->mask == mask && same_site(e->site, site))
            return e;
        if (e->mask >> lane & 1 && e->arrived & mask)      /* each waits for the other */
            report("divergent warp: lane %u is at %s with mask %08x, lanes %08x at %s with mask %08x", lane, site_text(site).c_str(), mask,
                   e->arrived, site_text(e->site).c_str(), e->mask);
    }
    return open_exchange(r, w, mask, site);
}

const Exchange *exchange(unsigned mask, const void *value, size_t bytes, bool ordered, Site site)
{
    Runner *r = runner;
    if (!r)
        fatal("%s is called outside a kernel", site_text(site).c_str());
    Fiber *self = r->now;
    Warp *w = &r->warp[self->state.warp];
    OpenExchange *e = join_exchange(r, w, mask, self->state.lane, site);
    {
        Hidden hidden;
        memcpy(e->values.lane[self->state.lane], value, bytes);
    }
    e->arrived |= 1u << self->state.lane;
    if (ordered)
        release(e);
    if (e->arrived == (e->mask & w->alive)) {
        OpenExchange **at = &w->open;
        while (*at != e)
            at = &(*at)->next;
        *at = e->next;
        e->unread = e->arrived;
        make_ready(r, e->waiting);
    } else {
        self->next = e->waiting;
        e->waiting = self;
        run_another(r);
    }
    if (ordered)
        acquire(e);
    return &e->values;
}

void exchange_read(const Exchange *values)
{
    Runner *r = runner;
    OpenExchange *e = reinterpret_cast<OpenExchange *>(const_cast<Exchange *>(values));
    e->unread &= ~(1u << r->now->state.lane);
    if (!e->unread) {
        Warp *w = &r->warp[r->now->state.warp];
        e->next = w->spare;
        w->spare = e;
    }
}

void report_lane(unsigned lane, unsigned mask, Site site)
{
    report("%s reads lane %u, which is not in its mask %08x", site_text(site).c_str(), lane, mask);
}

void misaligned(const void *p, unsigned alignment, const char *what)
{
    if (reinterpret_cast<uintptr_t>(p) % alignment)
        report("%s at address %p, which is not aligned to %u bytes", what, p, alignment);
}

/* ---- asynchronous copies ---- */

void async_copy(void *shared, const void *global, unsigned bytes, unsigned valid)
{
    misaligned(shared, bytes, "an asynchronous copy");
    if (valid)
        misaligned(global, bytes, "an asynchronous copy");
    Fiber *f = runner->now;
    f->copies.push_back(AsyncCopy{shared, global, bytes, valid, false, f->group});
}

void async_commit()
{
    Fiber *f = runner->now;
    for (AsyncCopy &c : f->copies)
        c.committed = true;
    f->group++;
}

/* Makes the copies of all groups but the last PENDING ones. */
void async_wait(unsigned pending)
{
    Fiber *f = runner->now;
    size_t kept = 0;
    for (AsyncCopy &c : f->copies)
        if (!c.committed || c.group + pending >= f->group) {
            f->copies[kept++] = c;
        } else {
            note_read(c.from, c.valid);
            note_write(c.to, c.bytes);
            Hidden hidden;
            if (c.valid)
                memcpy(c.to, c.from, c.valid);
            memset(static_cast<char *>(c.to) + c.valid, 0, c.bytes - c.valid);
        }
    f->copies.resize(kept);
}

/* ---- a thread's life ---- */

static void start_thread(Runner *r, Fiber *f)
{
    unsigned i = r->order[r->started++];
    dim3 b = r->launch->block;
    f->state.linear = i;
    f->state.lane = i & 31;
    f->state.warp = i >> 5;
    f->state.thread = uint3{i % b.x, i / b.x % b.y, i / (b.x * b.y)};
    f->barriers = f->group = 0;
    f->copies.clear();
    acquire(&r->edge[0]);
}

static void end_thread(Runner *r, Fiber *f)
{
    release(&r->edge[1]);
    Warp *w = &r->warp[f->state.warp];
    for (OpenExchange *e = w->open; e; e = e->next)
        if (e->mask >> f->state.lane & 1)
            report("lane %u leaves the kernel while others wait for it at %s", f->state.lane, site_text(e->site).c_str());
    w->alive &= ~(1u << f->state.lane);
    r->alive--;
    if (!f->copies.empty())
        report("a thread leaves the kernel with %zu asynchronous copies that it did not wait for", f->copies.size());
    if (r->arrived)
        report("divergent barrier: a thread leaves the kernel while others wait at %s", site_text(r->site).c_str());
    else if (r->left_after != ~0u && r->left_after != f->barriers)
        report("divergent barrier: a thread leaves the kernel after %u barriers, others after %u", f->barriers, r->left_after);
    r->left_after = f->barriers;
    if (r->alive && r->arrived == r->alive)
        open_barrier(r);
}

static void fiber_main()
{
    for (;;) {
        Runner *r = runner;
        Fiber *self = r->now;
        while (r->started < r->count) {
            start_thread(r, self);
            r->launch->body();
            end_thread(r, self);
            if (r->watched)
                break;
        }
        if (!r->watched) {      /* a thread of the sanitizer's is one thread of the kernel's */
            self->next = r->idle;
            r->idle = self;
        }
        run_another(r);
    }
}

/* ---- a block ---- */

Runner::Runner() : random(place++)
{
    launch = nullptr;
    home = Fiber();
    home.tsan = settings().threads ? __tsan_get_current_fiber() : nullptr;
    now = &home;
    idle = ready = ready_last = at_barrier = nullptr;
    ordered = 0;
    shuffled = settings().seed != 0;
    watched = settings().threads;
    arrived = generation = 0;
    for (Warp &w : warp)
        w = Warp();
    shared = static_cast<char *>(aligned_alloc(SHARED_ALIGNMENT, SHARED_ROOM));
}

Runner::~Runner()
{
    for (Fiber *f : fibers) {
        if (f->tsan)
            __tsan_destroy_fiber(f->tsan);
        stack_free(f->stack);
        delete f;
    }
    for (OpenExchange *e : exchanges)
        delete e;
    free(shared);
}

Runner *runner_new() { return new Runner(); }
void runner_delete(Runner *r) { delete r; }

static void set_order(Runner *r)
{
    if (r->ordered == r->count && !r->shuffled)
        return;
    r->ordered = r->count;
    for (unsigned i = 0; i < r->count; i++)
        r->order[i] = (unsigned short)i;
    for (unsigned i = r->count; r->shuffled && i > 1; i--) {
        unsigned j = r->random.below(i);
        unsigned short t = r->order[i - 1];
        r->order[i - 1] = r->order[j];
        r->order[j] = t;
    }
}

/* Dynamic shared memory holds nothing of use at first, and ends where it was said to end. */
enum : unsigned char { POISON = 0xff, REDZONE = 0xa5 };

static void prepare_shared(Runner *r)
{
    size_t n = r->launch->shared;
    memset(r->shared, POISON, n);
    memset(r->shared + n, REDZONE, SHARED_ALIGNMENT);
    block_now.shared = r->shared;
}

static void check_shared(Runner *r)
{
    size_t n = r->launch->shared;
    const char *zone = r->shared + n;
    if ((unsigned char)zone[0] == REDZONE && !memcmp(zone, zone + 1, SHARED_ALIGNMENT - 1))
        return;
    for (size_t i = 0; i < SHARED_ALIGNMENT; i++)
        if ((unsigned char)zone[i] != REDZONE) {
            report("dynamic shared memory of %zu bytes is written %zu bytes behind its end", n, i);
            return;
        }
}

void run_block(Runner *r, const Launch &launch, uint3 block)
{
    runner = r;
    block_now.block = block;
    block_now.size = uint3{launch.block.x, launch.block.y, launch.block.z};
    block_now.grid = uint3{launch.grid.x, launch.grid.y, launch.grid.z};
    r->launch = &launch;
    r->count = r->alive = launch.block.x * launch.block.y * launch.block.z;
    r->started = 0;
    r->left_after = ~0u;
    for (unsigned w = 0; w < 32; w++) {
        unsigned lanes = r->count > 32 * w ? r->count - 32 * w : 0;
        r->warp[w].alive = lanes >= 32 ? ~0u : (1u << lanes) - 1;
    }
    {
        Hidden hidden;
        prepare_shared(r);
    }
    set_order(r);
    /* Making a fiber orders it behind its maker, which must be no CUDA thread. */
    for (unsigned i = 0; r->watched && i < r->count; i++) {
        Fiber *f = new_fiber(r);
        f->next = r->idle;
        r->idle = f;
    }
    release(&r->edge[0]);
    run_another(r);
    acquire(&r->edge[1]);
    check_shared(r);
    runner = nullptr;
}

/* ---- where a report comes from ---- */

const char *where_in_kernel(char *buffer, size_t size)
{
    Runner *r = runner;
    if (!r || !r->launch)
        return nullptr;
    uint3 b = block_now.block, t = r->now->state.thread;
    snprintf(buffer, size, "kernel %s, block (%u,%u,%u), thread (%u,%u,%u)", r->launch->name, b.x, b.y, b.z, t.x, t.y, t.z);
    return buffer;
}

bool is_stack_guard(uintptr_t address)
{
    Runner *r = runner;
    if (!r || !r->now->stack)
        return false;
    uintptr_t low = reinterpret_cast<uintptr_t>(r->now->stack);
    return address < low && address + STACK_GUARD >= low;
}

} /* namespace cudaemu */
