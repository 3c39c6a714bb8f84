/* States: see states.h. */
#include "runtime/states.h"

#include <assert.h>
#include <string.h>

typedef struct Listing { Arena *a; const Rank *rank; const char *only; StoredList list; } Listing;

/* What lies where the rank has all of its part. */
static Stored state_at(const Listing *l, TensorId id, const char *name)
{
    return stored_whole(l->rank, id, name, rank_at(l->rank, id, 0, 0), 0);
}

static void add(Listing *l, const Stored *s)
{
    if (!l->only || strcmp(l->only, s->shape.name) == 0)
        PUSH(l->a, l->list.tensor, l->list.n, *s);
}

static const char *moment_name(Arena *a, const Rank *r, const State *s, int k)
{
    const char *suffix = r->program->optimizer.kind == OPTIMIZER_SGD ? "momentum_buffer" : k == 0 ? "exp_avg" : "exp_avg_sq";
    return arena_printf(a, "%s.%s", s->path, suffix);
}

/* What a rank has of a state that ranks share out lies as the weight does, in the
 * order of its bucket; *offset: elements from the rank's first one to its first of this. */
static bool cut_shard(Stored *x, const State *s, int64_t *offset)
{
    if (!stored_cut(x, s->shard.at, s->shard.first, s->shard.end))
        return false;
    *offset = s->shard.at + x->part.first - s->shard.first;
    return true;
}

/* A tensor of the shard, under a name. */
static void add_shard(Listing *l, const State *s, TensorId id, const char *name)
{
    const Rank *r = l->rank;
    int64_t offset;
    if (!has_tensor(id))
        return;
    Stored x = state_at(l, s->weight, name);
    DType dtype = r->program->tensor[id.i].dtype;
    x.shape.bytes = x.shape.bytes / dtype_bytes(x.shape.dtype) * dtype_bytes(dtype);
    x.shape.dtype = dtype;
    if (!cut_shard(&x, s, &offset))
        return;
    x.part.data = (char *)rank_at(r, id, 0, 0) + offset * dtype_bytes(dtype);
    add(l, &x);
}

static void add_whole(Listing *l, TensorId id, const char *name)
{
    if (!has_tensor(id))
        return;
    Stored x = state_at(l, id, name);
    add(l, &x);
}

static void add_moments(Listing *l, const State *s)
{
    for (int k = 0; k < 2; k++) {
        const char *name = moment_name(l->a, l->rank, s, k);
        if (s->sharded)
            add_shard(l, s, s->shard.moment[k], name);
        else
            add_whole(l, s->moment[k], name);
    }
}

/* What the optimizer steps: the master copy where there is one, at ranks that have it. */
static void add_weight(Listing *l, const State *s)
{
    if (!state_is_rounded(l->rank->program, s))
        add_whole(l, s->weight, s->path);
    else if (s->sharded)
        add_shard(l, s, s->shard.master, s->path);
    else
        add_whole(l, s->master, s->path);
}

/* What is rounded from a master copy, here or at another rank. */
static void add_rounded(Listing *l, const State *s)
{
    if (state_is_rounded(l->rank->program, s))
        add_whole(l, s->weight, s->path);
}

/* Buckets complete them where they lie; of a shared one, what the rank's moments go with. */
static void add_gradient(Listing *l, const State *s)
{
    const Program *p = l->rank->program;
    int64_t offset;
    if (!has_tensor(s->gradient))
        return;
    assert(p->buffer[p->tensor[s->gradient.i].buffer.i].first < 0 && "gradients live always");
    Stored x = state_at(l, s->gradient, s->path);
    if (s->sharded && !cut_shard(&x, s, &offset))
        return;
    x.part.data += x.part.first * dtype_bytes(x.shape.dtype);
    add(l, &x);
}

StoredList states_list(Arena *a, const Rank *r, StateKind kind, const char *only)
{
    Listing l = {.a = a, .rank = r, .only = only};
    for (uint32_t i = 0; i < r->program->nstate; i++) {
        const State *s = &r->program->state[i];
        switch (kind) {
        case STATES_WEIGHTS:   add_weight(&l, s); break;
        case STATES_ROUNDED:   add_rounded(&l, s); break;
        case STATES_MOMENTS:   add_moments(&l, s); break;
        case STATES_GRADIENTS: add_gradient(&l, s); break;
        }
    }
    return l.list;
}

Status states_open(Rank *r)
{
    StoredList weights = states_list(r->arena, r, STATES_WEIGHTS, NULL), moments = states_list(r->arena, r, STATES_MOMENTS, NULL);
    TRY(stored_share(r, r->arena, &weights, &r->weights));
    return stored_share(r, r->arena, &moments, &r->moments);
}
