/* Looking: see looking.h. */
#include "planner/looking.h"

#include <float.h>
#include <string.h>

#include "planner/candidates.h"

/* ---- the best ---- */

bool same_staging(const Candidate *x, const Candidate *y)
{
    size_t stages = (size_t)x->config->mesh->size[AXIS_pp];
    return memcmp(x->begin, y->begin, stages * sizeof *x->begin) == 0 && memcmp(x->again, y->again, stages * sizeof *x->again) == 0;
}

/* A candidate may be judged twice: as a neighbour, and by its estimate. */
static bool is_kept(const Looking *k, const Candidate *c)
{
    for (uint32_t i = 0; i < k->out->nbest; i++)
        if (k->of[i].config == c->config && k->of[i].option == c->option && same_staging(&k->of[i], c))
            return true;
    return false;
}

static void keep_best(Looking *k, Found f, const Candidate *c)
{
    Search *s = k->out;
    uint32_t at = s->nbest;
    while (at > 0 && s->best[at - 1].ns > f.ns)
        at--;
    if (at == k->limits.top || is_kept(k, c))
        return;
    if (s->nbest < k->limits.top)
        s->nbest++;
    memmove(&s->best[at + 1], &s->best[at], (s->nbest - 1 - at) * sizeof *s->best);
    memmove(&k->of[at + 1], &k->of[at], (s->nbest - 1 - at) * sizeof *k->of);
    s->best[at] = f;
    k->of[at] = *c;
}

/* What will be shown and executed need not be lowered again. */
static void keep_fastest(Looking *k, Try *t, const Simulation *sim)
{
    Search *s = k->out;
    if (s->best[0].plan != t->plan)
        return;
    try_end(&s->fastest);
    s->fastest = *t;
    s->sim = *sim;
    *t = (Try){0};
}

double best_ns(const Looking *k)
{
    return k->out->nbest ? (double)k->out->best[0].ns : DBL_MAX;
}

double worst_ns(const Looking *k)
{
    return k->out->nbest == k->limits.top ? (double)k->out->best[k->out->nbest - 1].ns : DBL_MAX;
}

/* ---- judging ---- */

/* Effort, about half a microsecond each: of an instruction that is lowered, and of a call that is followed. */
enum { LOWERED = 12, FOLLOWED = 1 };

static uint64_t lower_effort(const Try *t)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < t->programs.n; i++)
        n += t->programs.rank[i] && !t->stands_in[i] ? t->programs.rank[i]->ninstr : 0;
    return LOWERED * n;
}

static uint64_t follow_effort(const Try *t)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < t->programs.n; i++)
        n += t->programs.rank[i] ? t->programs.rank[i]->ncall : 0;
    return FOLLOWED * n;
}

Verdict judge(Looking *k, const Candidate *c)
{
    Arena *scratch = arena_new("judge");
    Diags *said = diags_new(k->ds->sources);
    Plan *plan = candidate_plan(k->arena, &k->units, c);
    Try t = {.own = scratch, .arena = scratch, .plan = plan};
    Verdict v = {.legal = try_lower(&t, said, k->q) == OK};
    k->out->judged++;
    if (!v.legal && !k->refusal)
        k->refusal = said;
    if (v.legal) {
        v.excess = program_excess(try_fullest(&t));
        v.fits = v.excess <= 0;
        k->effort += lower_effort(&t);
        if (v.fits) {
            k->effort += follow_effort(&t);
            Simulation sim = simulate(scratch, k->q->cluster, plan, k->q->profile, t.programs.rank);
            v.ns = sim.ns;
            keep_best(k, (Found){plan, v.ns, -v.excess}, c);
            keep_fastest(k, &t, &sim);
        } else {
            k->out->unfit++;
        }
        if (!k->leanest || v.excess < k->least_excess) {
            k->leanest = plan;
            k->least_excess = v.excess;
        }
    }
    try_end(&t);
    return v;
}

/* ---- lists ---- */

bool list_candidate(void *list, const Candidate *c)
{
    CandidateList *l = list;
    uint32_t stages = (uint32_t)c->config->mesh->size[AXIS_pp];
    Listed x = {.c = *c, .order = l->n};
    x.c.begin = NEWN(l->arena, uint32_t, stages + 1);
    x.c.again = NEWN(l->arena, uint32_t, stages + 1);
    memcpy(x.c.begin, c->begin, (stages + 1) * sizeof *c->begin);
    memcpy(x.c.again, c->again, stages * sizeof *c->again);
    PUSH(l->arena, l->item, l->n, x);
    return true;
}
