/* States: see states.h. */
#include "runtime/states.h"

static const char *moment_name(Arena *a, const Rank *r, const State *s, int k)
{
    const char *suffix = r->program->optimizer.kind == OPTIMIZER_SGD ? "momentum_buffer" : k == 0 ? "exp_avg" : "exp_avg_sq";
    return arena_printf(a, "%s.%s", s->path, suffix);
}

NamedTensor *states_list(Arena *a, const Rank *r, StateKind kind, uint32_t *n)
{
    NamedTensor *list = NULL;
    *n = 0;
    for (uint32_t i = 0; i < r->program->nstate; i++) {
        const State *s = &r->program->state[i];
        if (kind == STATES_WEIGHTS)
            PUSH(a, list, *n, ((NamedTensor){s->path, has_tensor(s->master) ? s->master : s->weight}));
        for (int k = 0; kind == STATES_MOMENTS && k < 2; k++)
            if (has_tensor(s->moment[k]))
                PUSH(a, list, *n, ((NamedTensor){moment_name(a, r, s, k), s->moment[k]}));
    }
    return list;
}

STensor states_tensor(const Rank *r, TensorId id, const char *name, const void *data)
{
    const Tensor *t = &r->program->tensor[id.i];
    STensor out = {.name = name, .dtype = t->dtype, .rank = t->rank, .data = data, .bytes = dtype_bytes(t->dtype)};
    for (uint32_t i = 0; i < t->rank; i++) {
        out.extent[i] = t->axis[i].global;
        out.bytes *= t->axis[i].global;
    }
    return out;
}
