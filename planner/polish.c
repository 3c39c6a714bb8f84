/* Polish: see polish.h. */
#include "planner/polish.h"

#include <stdlib.h>

/* ---- meshes of small models, to the end ---- */

/* A judgement is cheap where so many of them are all that a search may cost; and so many times as much it may cost then. */
enum { CHEAP = 40, MORE = 3 };

static bool comes_before(const Candidate *x, const Candidate *y)
{
    bool fits = x->bytes <= 0, other = y->bytes <= 0;
    return fits != other ? fits : fits ? x->ns < y->ns : x->bytes < y->bytes;
}

static int by_estimate(const void *x, const void *y)
{
    const Listed *a = x, *b = y;
    if (comes_before(&a->c, &b->c))
        return -1;
    return comes_before(&b->c, &a->c) ? 1 : (a->order > b->order) - (a->order < b->order);
}

/* Where they are too many those of the option are left out: estimates have to do. */
static void list_option(Looking *k, const Config *c, uint32_t option, CandidateList *to)
{
    Staging g = staging_open(k->arena, &k->units, c, option);
    uint64_t most = k->limits.exhaustive - to->n;
    if (staging_each(&g, most, NULL, NULL) <= most)
        (void)staging_each(&g, most, list_candidate, to);
}

static void list_config(Looking *k, const Config *c, CandidateList *to)
{
    Unit *u = units_find(&k->units, c, 0);
    if (!u->solved && staging_guess(&k->units, c) >= worst_ns(k))
        return;
    units_solve(&k->units, u, c, 0);
    for (uint32_t o = 0; o < u->noption; o++)
        list_option(k, c, o, to);
}

/* Whatever may be faster than the best so far, the most promising first. */
static void judge_mesh(Looking *k, const Mesh *m, uint64_t effort)
{
    CandidateList all = {.arena = k->arena};
    for (uint32_t i = 0; i < k->nconfig; i++)
        if (k->config[i].config->mesh == m && !k->config[i].unfit && k->config[i].bound < worst_ns(k))
            list_config(k, k->config[i].config, &all);
    if (all.n > 0)
        qsort(all.item, all.n, sizeof *all.item, by_estimate);
    for (uint32_t i = 0; i < all.n && k->effort < effort; i++)
        if (all.item[i].c.bound < worst_ns(k))
            (void)judge(k, &all.item[i].c);
    k->out->estimated += all.n;
}

/* That of the best, else of the least bound; NULL: none that could be faster is left. */
static const Mesh *next_mesh(const Looking *k, const bool *done)
{
    const Mesh *best = k->of[0].config->mesh;
    if (!done[best - k->space.mesh])
        return best;
    for (uint32_t i = 0; i < k->nconfig; i++) {
        const Bounded *b = &k->config[i];
        if (!done[b->config->mesh - k->space.mesh] && !b->unfit && b->bound < worst_ns(k))
            return b->config->mesh;
    }
    return NULL;
}

/* Of small models, whose messages and waits estimates know least of, mesh by mesh: a plan that is best on its mesh
 * is not beaten by a search that is told the mesh. */
static void judge_meshes(Looking *k)
{
    uint64_t effort = k->effort + MORE * k->limits.effort;
    bool *done = NEWN(k->arena, bool, k->space.nmesh + 1);
    if (k->effort / k->out->judged > k->limits.effort / CHEAP)
        return;
    for (const Mesh *m; k->effort < effort && (m = next_mesh(k, done));) {
        done[m - k->space.mesh] = true;
        judge_mesh(k, m, effort);
    }
}

/* ---- cuts ---- */

/* Moves may cost this part of the effort. */
static const double MOVED = 0.1;

/* The fastest with one cut a piece earlier or later, on as long as that helps: estimates are of the busiest stage, and
 * leave open what lies on the others. */
static bool move_cut(Looking *k, uint64_t effort, uint32_t stage, int by)
{
    const Plan *before = k->out->best[0].plan;
    Staging g = staging_open(k->arena, &k->units, k->of[0].config, k->of[0].option);
    for (const Plan *last = NULL; last != k->out->best[0].plan && k->effort < effort;) {
        Candidate c;
        last = k->out->best[0].plan;
        if (staging_recut(k->arena, &g, &k->of[0], stage, by, &c) && c.bytes <= 0 && c.bound < best_ns(k))
            (void)judge(k, &c);
    }
    return before != k->out->best[0].plan;
}

static void move_cuts(Looking *k)
{
    uint64_t more = (uint64_t)(MOVED * (double)k->limits.effort), effort = k->effort + more;
    bool cheap = k->effort / k->out->judged < more;            /* one judgement, on average */
    for (bool moved = cheap; moved && k->effort < effort;) {
        moved = false;
        for (uint32_t s = 1; s < (uint32_t)k->of[0].config->mesh->size[AXIS_pp]; s++)
            moved |= move_cut(k, effort, s, 1) || move_cut(k, effort, s, -1);
    }
}

/* ---- splits ---- */

/* Estimates that are as close as that say nothing of which is faster. */
static const double CLOSE = 1.005;

/* The best with its ops split in the other ways that are estimated to be as good. */
static void split_otherwise(Looking *k)
{
    const Candidate best = k->of[0];
    const Unit *u = units_find(&k->units, best.config, 0);
    for (uint32_t o = 0; o < u->noption; o++) {
        Staging g = staging_open(k->arena, &k->units, best.config, o);
        Candidate c = best;
        c.option = o;
        staging_measure(&g, &c);
        if (o != best.option && c.bytes <= 0 && c.ns < CLOSE * best.ns && c.bound < best_ns(k))
            (void)judge(k, &c);
    }
}

void polish(Looking *k)
{
    if (k->out->nbest == 0)
        return;
    judge_meshes(k);
    move_cuts(k);
    split_otherwise(k);
}
