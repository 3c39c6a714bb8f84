/* Trace: events in memory, and the file they end in. */
#include "runtime/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/files.h"
#include "base/text.h"

/* ---- memory ---- */

static size_t traces_bytes(uint32_t n)
{
    return sizeof(Trace) * n;
}

static Status no_memory(uint32_t n)
{
    fprintf(stderr, "error: --trace: cannot have %zu bytes of memory for the events of %u ranks: %s\n", traces_bytes(n), n, strerror(errno));
    return ERR_NOMEM;
}

static Status map(Traces *t, int fd, uint32_t n)
{
    void *at = mmap(NULL, traces_bytes(n), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return no_memory(n);
    *t = (Traces){.rank = at, .n = n, .fd = fd};
    return OK;
}

Status traces_open(Traces *t, const char *path, uint32_t n)
{
    *t = (Traces){.fd = -1};
    if (!path)
        return OK;
    int fd = memfd_create("pplan trace", 0);
    Status s = fd >= 0 && ftruncate(fd, (off_t)traces_bytes(n)) == 0 ? map(t, fd, n) : no_memory(n);
    if (s != OK && fd >= 0)
        close(fd);
    return s;
}

/* A rank touches what it will write, before step 0. */
Status traces_map(Traces *t, int fd, uint32_t n, uint32_t rank)
{
    *t = (Traces){.fd = -1};
    if (fd < 0)
        return OK;
    TRY(map(t, fd, n));
    memset(&t->rank[rank], 0, sizeof *t->rank);
    return OK;
}

void traces_close(Traces *t)
{
    if (!t->rank)
        return;
    munmap(t->rank, traces_bytes(t->n));
    close(t->fd);
    *t = (Traces){.fd = -1};
}

Trace *trace_of(const Traces *t, uint32_t rank)
{
    return t->rank ? &t->rank[rank] : NULL;
}

void trace_add(Trace *t, const TraceEvent *e)
{
    t->event[atomic_fetch_add_explicit(&t->n, 1, memory_order_relaxed) % TRACE_EVENTS] = *e;
}

/* ---- the file ---- */

/* What is gathered before it is written. */
typedef struct Out { Writer w; size_t n; char text[1 << 16]; } Out;

static void flush(Out *o)
{
    writer_put(&o->w, o->text, o->n);
    o->n = 0;
}

__attribute__((format(printf, 2, 3))) static void put(Out *o, const char *fmt, ...)
{
    enum { LONGEST = 4096 };
    va_list ap;
    if (sizeof o->text - o->n < LONGEST)
        flush(o);
    va_start(ap, fmt);
    int n = vsnprintf(o->text + o->n, LONGEST, fmt, ap);
    va_end(ap);
    o->n += n < LONGEST ? (size_t)n : LONGEST - 1;
}

static uint64_t first_kept(const Trace *t)
{
    return t->n > TRACE_EVENTS ? t->n - TRACE_EVENTS : 0;
}

/* Microseconds, to the nanosecond. */
static void put_event(Out *o, const Program *p, const TraceEvent *e, int64_t start)
{
    const Instr *in = &p->instr[e->instr];
    int64_t at = e->begin - start, took = e->end - e->begin;
    put(o, ",\n{\"ph\": \"X\", \"pid\": %u, \"tid\": %d, \"ts\": %" PRId64 ".%03d, \"dur\": %" PRId64 ".%03d, \"name\": \"%s\", \"cat\": \"%s\", "
        "\"args\": {\"instruction\": %u, \"%s\": %" PRId64 ", \"micro\": %u, \"slot\": %u, \"bytes\": %" PRId64 ", \"flops\": %.0f}}",
        p->rank, (int)in->stream, at / 1000, (int)(at % 1000), took / 1000, (int)(took % 1000), in->path, op_info[in->op].name, e->instr,
        e->evaluates ? "evaluation after step" : "step", e->step, e->micro, e->slot, in->bytes, in->flops);
}

static bool has_stream(const Program *p, Stream s)
{
    for (uint32_t i = 0; i < p->ninstr; i++)
        if (p->instr[i].stream == s)
            return true;
    return false;
}

static void put_rank(Out *o, const Program *p, const Trace *t, int64_t start)
{
    put(o, "%s{\"ph\": \"M\", \"pid\": %u, \"name\": \"process_name\", \"args\": {\"name\": \"rank %u\"}}", p->rank ? ",\n" : "", p->rank, p->rank);
    for (unsigned s = 0; s < STREAMS; s++)
        if (has_stream(p, (Stream)s))
            put(o, ",\n{\"ph\": \"M\", \"pid\": %u, \"tid\": %u, \"name\": \"thread_name\", \"args\": {\"name\": \"%s\"}}", p->rank, s, stream_name(s));
    for (uint64_t i = first_kept(t); i < t->n; i++)
        put_event(o, p, &t->event[i % TRACE_EVENTS], start);
}

/* When the first of the events that are kept began: not the first of the list, which is in the order in which they ended. */
static int64_t start_of(const Traces *t)
{
    int64_t start = INT64_MAX;
    for (uint32_t i = 0; i < t->n; i++) {
        const Trace *x = &t->rank[i];
        for (uint64_t k = first_kept(x); k < x->n; k++)
            start = x->event[k % TRACE_EVENTS].begin < start ? x->event[k % TRACE_EVENTS].begin : start;
    }
    return start;
}

static bool is_empty(const Traces *t)
{
    for (uint32_t i = 0; i < t->n; i++)
        if (t->rank[i].n > 0)
            return false;
    return true;
}

static void say(Arena *a, const Traces *t, const char *path)
{
    uint64_t all = 0, lost = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        all += t->rank[i].n;
        lost += first_kept(&t->rank[i]);
    }
    fprintf(stderr, "trace: %s events in '%s'", text_count(a, (int64_t)(all - lost)), path);
    if (lost > 0)
        fprintf(stderr, "; %s earlier ones are lost: a rank keeps its last %s", text_count(a, (int64_t)lost), text_count(a, TRACE_EVENTS));
    fputc('\n', stderr);
}

Status traces_write(Arena *a, const Traces *t, const Program *const *program, const char *path)
{
    if (is_empty(t))
        return OK;
    Out *o = NEW(a, Out);
    TRY(writer_open(a, &o->w, path));
    int64_t start = start_of(t);
    put(o, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n");
    for (uint32_t i = 0; i < t->n; i++)
        put_rank(o, program[i], &t->rank[i], start);
    put(o, "\n]}\n");
    flush(o);
    TRY(writer_close(&o->w));
    say(a, t, path);
    return OK;
}
