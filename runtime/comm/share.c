/* A rank's work on large messages, divided among its team. */
#include "runtime/comm/world.h"

/* Below this one thread is done before others have woken. */
enum { TEAM_BYTES = 256 << 10 };

typedef struct Copy { char *to; const char *from; int64_t bytes; bool stream; Isa isa; } Copy;
typedef struct Sum { const Combine *c; Isa isa; } Sum;

static void copy_some(void *ctx, int worker, int nworker)
{
    const Copy *c = ctx;
    int64_t first, end;
    team_part(c->bytes, LINE, worker, nworker, &first, &end);
    copy_bytes(c->to + first, c->from + first, end - first, c->stream, c->isa);
}

static void combine_some(void *ctx, int worker, int nworker)
{
    const Sum *s = ctx;
    Combine c = *s->c;
    int64_t first, end;
    team_part(c.end - c.first, LINE, worker, nworker, &first, &end);
    c.end = c.first + end;
    c.first += first;
    combine(&c, s->isa);
}

static void share(const CpuEndpoint *e, int64_t bytes, TeamFn fn, void *ctx)
{
    if (e->team && bytes >= TEAM_BYTES)
        team_run(e->team, fn, ctx);
    else
        fn(ctx, 0, 1);
}

/* Twice the cache: at half of that, part of what is written is still found there by
 * whoever reads it next, and streaming was measured to lose. */
bool endpoint_streams(const CpuEndpoint *e, int64_t bytes)
{
    return bytes * e->base.nrank >= 2 * e->cache;
}

void endpoint_copy(const CpuEndpoint *e, void *to, const void *from, int64_t bytes, bool stream)
{
    Copy c = {to, from, bytes, stream, e->isa};
    share(e, bytes, copy_some, &c);
}

void endpoint_combine(const CpuEndpoint *e, const Combine *c)
{
    Sum s = {c, e->isa};
    share(e, (c->end - c->first) * dtype_bytes(c->dtype), combine_some, &s);
}
