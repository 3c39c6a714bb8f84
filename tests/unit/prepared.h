#ifndef TESTS_UNIT_PREPARED_H
#define TESTS_UNIT_PREPARED_H
/* Steps from weights and inputs that a test chooses, so that their numbers have a closed form. */
#include "tests/unit/same_numbers.h"

/* ---- what ranks begin with ---- */

/* Every element of the weights whose path ends so. */
static inline void set_weights(LockRank *r, const char *end, double (*value)(int64_t global, double old))
{
    for (uint32_t i = 0; i < r->p->nstate; i++) {
        const State *s = &r->p->state[i];
        const Tensor *t = &r->p->tensor[s->weight.i];
        size_t n = strlen(s->path), e = strlen(end);
        for (int64_t k = 0; n >= e && strcmp(s->path + n - e, end) == 0 && k < tensor_elements(t); k++) {
            int64_t g = lock_global(t, k, 0);
            char *at = lock_at(r, s->weight, 0, 0);
            real_put(t, at, k, g < 0 ? 0 : value(g, real_at(t, at, k)));
        }
    }
}

static inline double zero(int64_t global, double old) { (void)global; (void)old; return 0; }

static inline void set_inputs(LockRank *r, const char *name, int64_t (*value)(int64_t sample, int64_t position))
{
    for (uint32_t k = 0; k < r->p->ninput; k++) {
        const Input *in = &r->p->input[k];
        if (!has_tensor(in->tensor))
            continue;
        const Tensor *t = &r->p->tensor[in->tensor.i];
        for (uint32_t m = 0; strcmp(in->name, name) == 0 && m < r->p->buffer[t->buffer.i].slots; m++)
            for (int64_t i = 0; i < tensor_elements(t); i++) {
                int64_t g = lock_global(t, i, m);
                int_put(t, lock_at(r, in->tensor, 0, m), i, value(g / t->axis[1].global, g % t->axis[1].global));
            }
    }
}

/* What ranks have after one step of a plan; prepare: changes what they begin with, or NULL. */
typedef struct Stepped { Model m; History h; Lockstep l; } Stepped;

static inline Stepped stepped(Setting s, Pin pin, void (*prepare)(LockRank *))
{
    Stepped x = {.m = model_on_way(s)};
    run_prepared(&x.h, &x.m, pin, 1, way.start, prepare, pin_text(x.m.a, s.model, pin));
    x.l = x.h.after[0];
    return x;
}

static inline void forget(Stepped *x)
{
    history_close(&x->h);
    arena_free(x->m.a);
}

static inline void assert_loss(const Stepped *x, double want)
{
    for (uint32_t r = 0; r < x->l.n; r++)
        if (has_tensor(x->l.rank[r].p->loss) && fabs(scalar(&x->l.rank[r], x->l.rank[r].p->loss) - want) > 1e-6)
            fail_msg("rank %u: loss %.9g, expected %.9g", r, scalar(&x->l.rank[r], x->l.rank[r].p->loss), want);
}

/* ---- what they come to ---- */

/* Squares of a gradient's elements over ranks, each counted once: the lowest rank that
 * has an element summed has it for all. */
static inline double squares_of(const Lockstep *l, const char *path)
{
    const State *first = NULL;
    const Program *p = NULL;
    for (uint32_t r = 0; r < l->n && !first; r++)
        first = state_of(p = l->rank[r].p, path);
    int64_t n = lock_elements(&p->tensor[first->weight.i]);
    bool *seen = NEWN(l->a, bool, n);
    double sum = 0;
    for (uint32_t r = 0; r < l->n; r++) {
        const State *s = state_of(l->rank[r].p, path);
        const Tensor *t = s ? &l->rank[r].p->tensor[s->gradient.i] : NULL;
        for (int64_t i = 0; s && i < tensor_elements(t); i++) {
            int64_t g = lock_global(t, i, 0);
            if (g < 0 || seen[g] || !is_summed(s, i))
                continue;
            seen[g] = true;
            sum += pow(real_at(t, lock_at(&l->rank[r], s->gradient, 0, 0), i), 2);
        }
    }
    return sum;
}

static inline void same_squares(const Stepped *one, const Stepped *x, const char *path, const char *what)
{
    double have = squares_of(&x->l, path), want = squares_of(&one->l, path);
    if (!(fabs(have - want) <= way.limits->own * want))
        fail_msg("'%s': squares of '%s': %.17g, expected %.17g", what, path, have, want);
}

#endif
