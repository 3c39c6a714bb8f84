/* A rank's work on large messages, divided among its team. */
#include "runtime/comm/world.h"

/* Below this one thread is done before others have woken. */
enum { TEAM_BYTES = 256 << 10 };

typedef struct Copy { char *to; const char *from; int64_t bytes; CopyWay way; Isa isa; } Copy;
typedef struct Sum { const Combine *c; Isa isa; } Sum;

static void copy_some(void *ctx, int worker, int nworker)
{
    const Copy *c = ctx;
    int64_t first, end;
    team_part(c->bytes, LINE, worker, nworker, &first, &end);
    copy_bytes(c->to + first, c->from + first, end - first, c->way, c->isa);
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

static void share(const WorldEnd *e, int64_t bytes, TeamFn fn, void *ctx)
{
    if (e->team && bytes >= TEAM_BYTES)
        team_run(e->team, fn, ctx);
    else
        fn(ctx, 0, 1);
}

void endpoint_copy(const WorldEnd *e, void *to, const void *from, int64_t bytes, int64_t total)
{
    Copy c = {to, from, bytes, copy_way(&e->caches, 2 * total * e->world->header->near), e->isa};
    share(e, bytes, copy_some, &c);
}

void endpoint_combine(const WorldEnd *e, const Combine *c)
{
    Sum s = {c, e->isa};
    share(e, (c->end - c->first) * dtype_bytes(c->dtype), combine_some, &s);
}
