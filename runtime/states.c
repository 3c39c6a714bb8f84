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

static void add_shard(Listing *l, const State *s, int k)
{
    const Rank *r = l->rank;
    TensorId id = s->shard.moment[k];
    int64_t offset;
    if (!has_tensor(id))
        return;
    Stored x = state_at(l, s->weight, moment_name(l->a, r, s, k));
    DType dtype = r->program->tensor[id.i].dtype;
    x.shape.bytes = x.shape.bytes / dtype_bytes(x.shape.dtype) * dtype_bytes(dtype);
    x.shape.dtype = dtype;
    if (!cut_shard(&x, s, &offset))
        return;
    x.part.data = (char *)rank_at(r, id, 0, 0) + offset * dtype_bytes(dtype);
    add(l, &x);
}

static void add_moments(Listing *l, const State *s)
{
    for (int k = 0; k < 2; k++) {
        if (s->sharded) {
            add_shard(l, s, k);
        } else if (has_tensor(s->moment[k])) {
            Stored x = state_at(l, s->moment[k], moment_name(l->a, l->rank, s, k));
            add(l, &x);
        }
    }
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
        if (kind == STATES_MOMENTS)
            add_moments(&l, s);
        else if (kind == STATES_GRADIENTS)
            add_gradient(&l, s);
        else {
            Stored x = state_at(&l, has_tensor(s->master) ? s->master : s->weight, s->path);
            add(&l, &x);
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
