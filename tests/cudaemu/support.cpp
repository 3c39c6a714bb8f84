/* support.cpp -- settings, reports, faults, and waiting. */
#include "internal.h"

#include "control.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace cudaemu {

thread_local const char *running;
thread_local bool in_host_function;
thread_local uint64_t place;

/* ---- settings ---- */

static double number(const char *name, double otherwise)
{
    const char *text = getenv(name);
    if (!text || !*text)
        return otherwise;
    char *end;
    double v = strtod(text, &end);
    switch (*end) {
    case 'G': v *= 1024;            /* fall through */
    case 'M': v *= 1024;            /* fall through */
    case 'K': v *= 1024; end++; break;
    default: break;
    }
    if (end == text || *end || v < 0) {
        fprintf(stderr, "cudaemu: %s is '%s'; it must be a number, with K, M or G if need be\n", name, text);
        exit(2);
    }
    return v;
}

/* CUDA_VISIBLE_DEVICES, as CUDA has it: numbers; the first that is no device ends the list. */
static void choose_visible(Settings *s)
{
    const char *at = getenv("CUDA_VISIBLE_DEVICES");
    int all = s->devices, n = 0;
    for (int i = 0; i < all; i++)
        s->machine_device[i] = i;
    if (!at)
        return;
    for (char *end; n < all; at = end + 1) {
        long d = strtol(at, &end, 10);
        if (end == at || d < 0 || d >= all)
            break;
        s->machine_device[n++] = (int)d;
        if (*end != ',')
            break;
    }
    s->devices = n;
}

static Settings read_settings()
{
    Settings s = {};
    s.seed = (unsigned)number("CUDAEMU_SEED", 0);
    s.delay_us = (unsigned)number("CUDAEMU_DELAY", 300);
    s.strict = number("CUDAEMU_STRICT", 1) != 0;
    s.threads = number("CUDAEMU_THREADS", 0) != 0 && __tsan_create_fiber;
    s.pageable = number("CUDAEMU_PAGEABLE", 0) != 0;
    s.order = number("CUDAEMU_ORDER", 1) != 0;
    s.trace = number("CUDAEMU_TRACE", 0) != 0;
    s.profile = number("CUDAEMU_PROFILE", 0) != 0;
    s.devices = (int)number("CUDAEMU_DEVICES", 8);
    s.kinds = (int)number("CUDAEMU_KINDS", 1);
    s.memory = (size_t)number("CUDAEMU_MEMORY", 4.0 * (1 << 30));
    s.timeout = number("CUDAEMU_TIMEOUT", 60);
    s.cudnn = (size_t)number("CUDAEMU_CUDNN", 0);
    if (s.devices > MAX_DEVICES)
        s.devices = MAX_DEVICES;
    choose_visible(&s);
    return s;
}

const Settings &settings()
{
    static const Settings s = read_settings();
    return s;
}

double now_seconds()
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- reports ---- */

static std::atomic<unsigned long> nreports;

static void say(const char *format, va_list args)
{
    char text[2048], spot[256];
    int n = snprintf(text, sizeof text, "cudaemu: ");
    n += vsnprintf(text + n, sizeof text - (size_t)n, format, args);
    if (n > (int)sizeof text - 300)
        n = (int)sizeof text - 300;
    const char *where = where_in_kernel(spot, sizeof spot);
    if (where)
        n += snprintf(text + n, sizeof text - (size_t)n, " [%s]", where);
    else if (running)
        n += snprintf(text + n, sizeof text - (size_t)n, " [in %s]", running);
    text[n++] = '\n';
    nreports++;
    ssize_t put = write(2, text, (size_t)n);    /* whole, and from signal handlers too */
    (void)put;
}

[[noreturn]] static void end_process()
{
    world_forget_files();
    abort();
}

void report(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say(format, args);
    va_end(args);
    if (settings().strict)
        end_process();
}

void fatal(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say(format, args);
    va_end(args);
    end_process();
}

/* ---- faults ---- */

struct Fault {
    std::string name;
    long calls;     /* until it happens */
    int code;
    int device;     /* -1: any */
};
static Lock fault_lock;

static std::vector<Fault> &fault_list()
{
    static std::vector<Fault> list;
    return list;
}

static bool add_faults(const char *text)
{
    std::vector<Fault> found;
    while (*text) {
        char name[64];
        long calls;
        int code, used = 0, device = -1;
        if (sscanf(text, "%63[A-Za-z0-9_]:%ld=%d%n", name, &calls, &code, &used) != 3 || calls < 1)
            return false;
        text += used;
        if (*text == '@') {
            if (sscanf(text, "@%d%n", &device, &used) != 1)
                return false;
            text += used;
        }
        if (*text == ',')
            text++;
        else if (*text)
            return false;
        found.push_back(Fault{name, calls, code, device});
    }
    Guard guard(fault_lock);
    fault_list().insert(fault_list().end(), found.begin(), found.end());
    return true;
}

static bool read_faults()
{
    const char *text = getenv("CUDAEMU_FAIL");
    if (text && !add_faults(text)) {
        fprintf(stderr, "cudaemu: CUDAEMU_FAIL is '%s'; it must be NAME:N=CODE[@DEVICE],...\n", text);
        exit(2);
    }
    return true;
}

/* CUDAEMU_CALLS: a file to which the numbers of calls are written as the process ends. */
static std::map<std::string, long> *calls_made;

static void tell_calls()
{
    FILE *f = fopen(getenv("CUDAEMU_CALLS"), "w");
    if (!f)
        return;
    Guard guard(fault_lock);
    for (auto &c : *calls_made)
        fprintf(f, "%s %ld\n", c.first.c_str(), c.second);
    fclose(f);
}

static bool count_calls()
{
    if (!getenv("CUDAEMU_CALLS"))
        return false;
    calls_made = new std::map<std::string, long>();
    atexit(tell_calls);
    return true;
}

int fault(const char *name)
{
    static const bool read = read_faults(), counts = count_calls();
    (void)read;
    Guard guard(fault_lock);
    int code = 0;
    if (counts)
        (*calls_made)[name]++;
    for (Fault &f : fault_list())
        if (f.calls > 0 && f.name == name && (f.device < 0 || f.device == current_device()) && --f.calls == 0)
            code = f.code;
    return code;
}

/* ---- random numbers ---- */

Random::Random(uint64_t of) : state((of + 1) * 0x9e3779b97f4a7c15u ^ (uint64_t)settings().seed * 0xd1342543de82ef95u)
{
    if (!state)
        state = 1;
    below(2);
}

uint32_t Random::below(uint32_t n)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (uint32_t)((state * 0x2545f4914f6cdd1du >> 32) * n >> 32);
}

/* ---- waiting ---- */

long futex(std::atomic<int> *word, int operation, int value, const timespec *limit)
{
    return syscall(SYS_futex, reinterpret_cast<int *>(word), operation, value, limit, nullptr, 0);
}

void Lock::lock()
{
    int expected = 0;
    if (state.compare_exchange_strong(expected, 1))
        return;
    while (state.exchange(2) != 0)
        futex(&state, FUTEX_WAIT_PRIVATE, 2);
}

void Lock::unlock()
{
    if (state.exchange(0) == 2)
        futex(&state, FUTEX_WAKE_PRIVATE, 1);
}

void Token::set()
{
    when = now_seconds();
    release(this);
    done.store(1);
    futex(&done, FUTEX_WAKE_PRIVATE, INT_MAX);
}

void Token::wait()
{
    for (int i = 0; i < 20 && !done.load(); i++)
        sched_yield();
    while (!done.load())
        futex(&done, FUTEX_WAIT_PRIVATE, 0);
    acquire(this);
}

bool Token::is_done()
{
    if (!done.load())
        return false;
    acquire(this);
    return true;
}

} /* namespace cudaemu */

using namespace cudaemu;

extern "C" int cudaemu_fail(const char *faults)
{
    if (faults)
        return add_faults(faults);
    Guard guard(fault_lock);
    fault_list().clear();
    return 1;
}

extern "C" unsigned long cudaemu_reports(void)
{
    return nreports.load();
}
