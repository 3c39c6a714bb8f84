/* Weights over all ranks: the parts that ranks hold make up the weight, each gradient is
 * summed once over the ranks that hold summands, and the norm counts each element once. */
#include "codegen/verify.h"

#include <stdlib.h>
#include <string.h>

/* Elements [from, to) of the part of a weight that a rank holds. */
typedef struct Held { const Tensor *part; int64_t from, to; } Held;

/* What is known of one weight. */
typedef struct Weighed {
    Held *held; uint32_t nheld;       /* its parts, one a holder */
    Held *counted; uint32_t ncounted; /* what ranks count for the norm */
} Weighed;

typedef struct Weights {
    RanksCheck *c;
    Names       name;
    Weighed    *of;                   /* per weight of the graph */
} Weights;

/* ---- parts ---- */

static int by_origin(const Tensor *a, const Tensor *b)
{
    for (int x = 0; x < a->rank; x++)
        if (a->axis[x].origin != b->axis[x].origin)
            return a->axis[x].origin < b->axis[x].origin ? -1 : 1;
    return 0;
}

static int by_place(const void *x, const void *y)
{
    const Held *a = x, *b = y;
    int c = by_origin(a->part, b->part);
    return c ? c : (a->from > b->from) - (a->from < b->from);
}

static int64_t all_elements(const Tensor *t)
{
    int64_t n = 1;
    for (int x = 0; x < t->rank; x++)
        n *= t->axis[x].global + t->axis[x].pad;
    return n;
}

/* Elements that are there, each once however often; *again: those that are there twice. */
static int64_t covered(Held *h, uint32_t n, int64_t *again)
{
    int64_t all = 0, reach = 0;
    *again = 0;
    qsort(h, n, sizeof *h, by_place);
    for (uint32_t i = 0; i < n; i++) {
        reach = i > 0 && by_origin(h[i - 1].part, h[i].part) == 0 ? reach : 0;
        int64_t from = h[i].from > reach ? h[i].from : reach;
        int64_t news = h[i].to > from ? h[i].to - from : 0;
        all += news;
        *again += h[i].to - h[i].from - news;
        reach = h[i].to > reach ? h[i].to : reach;
    }
    return all;
}

/* ---- gradients ---- */

/* Stages with a copy of a weight, when there are several. */
static StageSet tied(const RanksCheck *c, uint32_t weight)
{
    StageSet used = c->layout.used[c->g->weight[weight].value.i];
    return used & (used - 1) ? used : 0;
}

/* Whether the ranks of a group are among those that hold summands of what p's rank has. */
static bool hold_summands(const RanksCheck *c, const Program *p, const RankGroup *g, uint32_t weight)
{
    StageSet stages = tied(c, weight) | (StageSet)1 << (p->rank / c->per_stage);
    for (uint32_t i = 0; i < g->n; i++) {
        uint32_t place = g->rank[i] % c->per_stage, mine = p->rank % c->per_stage;
        bool in = stages >> (g->rank[i] / c->per_stage) & 1;
        for (uint32_t d = 0; d < c->layout.grid.n; d++)
            in &= c->layout.reduce[weight] >> d & 1 || grid_coordinate(&c->layout.grid, place, d) == grid_coordinate(&c->layout.grid, mine, d);
        if (!in)
            return false;
    }
    return true;
}

static uint64_t summands(const RanksCheck *c, uint32_t weight)
{
    StageSet stages = tied(c, weight);
    uint64_t n = stages ? (uint64_t)__builtin_popcountll(stages) : 1;
    for (uint32_t d = 0; d < c->layout.grid.n; d++)
        n *= c->layout.reduce[weight] >> d & 1 ? c->layout.grid.axis[d].size : 1;
    return n;
}

static bool sums_over_ranks(OpKind k)
{
    return k == OP_all_reduce || k == OP_reduce_scatter || k == OP_reduce_to;
}

/* A sum in several steps, over parts of the ranks, multiplies; later steps are of what
 * this rank has of the bucket (verify_update.c), for all of it. */
static void add_sum(Weights *w, const Program *p, const Instr *in, uint32_t state, uint64_t *summed)
{
    const RankGroup *g = &p->group[in->group];
    uint32_t weight = w->name.of[names_find(&w->name, p->state[state].path, strlen(p->state[state].path))].i;
    summed[state] *= g->n;
    if (!hold_summands(w->c, p, g, weight))
        broken(&w->c->k, "rank %u sums the gradient of '%s' over ranks without a summand", p->rank, p->state[state].path);
}

static void check_sums(Weights *w, const Program *p, const GradientPlaces *g)
{
    uint64_t *summed = NEWN(w->c->scratch, uint64_t, p->nstate + 1);
    for (uint32_t s = 0; s < p->nstate; s++)
        summed[s] = 1;
    for (uint32_t i = 0; i < p->ninstr; i++) {
        const Instr *in = &p->instr[i];
        BufferId bucket = sums_over_ranks(in->op) ? buffer_of(p, in->arg[0]) : NO_BUFFER;
        for (uint32_t k = 0; has_buffer(bucket) && k < g->n; k++)
            if (g->place[k].buffer.i == bucket.i)
                add_sum(w, p, in, g->place[k].state, summed);
    }
    for (uint32_t s = 0; s < p->nstate; s++) {
        const State *st = &p->state[s];
        uint32_t weight = w->name.of[names_find(&w->name, st->path, strlen(st->path))].i;
        if (has_tensor(st->gradient) && summed[s] != summands(w->c, weight))
            broken(&w->c->k, "rank %u sums the gradient of '%s' over %llu ranks, and %llu hold summands", p->rank, st->path,
                   (unsigned long long)summed[s], (unsigned long long)summands(w->c, weight));
    }
}

/* ---- the norm ---- */

static void count_elements(Weights *w, const Program *p, const GradientPlaces *g, const Tensor *t)
{
    for (uint32_t k = gradients_first(g, t); k < g->n; k = gradients_next(g, t, k)) {
        const GradientPlace *at = &g->place[k];
        const State *s = &p->state[at->state];
        int64_t from = t->at > at->from ? t->at - at->from : 0, end = t->at + tensor_bytes(t);
        int64_t to = (end < at->to ? end : at->to) - at->from, size = dtype_bytes(t->dtype);
        Weighed *x = &w->of[w->name.of[names_find(&w->name, s->path, strlen(s->path))].i];
        PUSH(w->c->scratch, x->counted, x->ncounted, ((Held){&p->tensor[s->weight.i], from / size, to / size}));
    }
}

static void read_norm(Weights *w, const Program *p, const GradientPlaces *g)
{
    const Proc *update = proc_find(p, PROC_update);
    uint32_t sums = 0;
    for (uint32_t i = update ? update->first : 0; update && i < update->end; i++) {
        const Instr *in = &p->instr[i];
        if (in->op == OP_sum_squares)
            count_elements(w, p, g, &p->tensor[in->arg[0].i]);
        bool norm = in->op == OP_all_reduce && p->tensor[in->arg[0].i].buffer.i == p->tensor[p->norm.i].buffer.i;
        sums += norm;
        if (norm && p->group[in->group].n != p->nranks)
            broken(&w->c->k, "rank %u sums the norm over %u of %u ranks", p->rank, p->group[in->group].n, p->nranks);
    }
    if (update && sums != (p->nranks > 1))
        broken(&w->c->k, "rank %u sums the norm over ranks %u times", p->rank, sums);
}

/* ---- all ---- */

static bool read_states(Weights *w, const Program *p)
{
    for (uint32_t s = 0; s < p->nstate; s++) {
        const Tensor *t = &p->tensor[p->state[s].weight.i];
        uint32_t i = names_find(&w->name, p->state[s].path, strlen(p->state[s].path));
        if (i == w->name.n) {
            broken(&w->c->k, "rank %u holds '%s', which is no weight of the model", p->rank, p->state[s].path);
            return false;
        }
        Weighed *x = &w->of[w->name.of[i].i];
        PUSH(w->c->scratch, x->held, x->nheld, ((Held){t, 0, tensor_elements(t)}));
    }
    return true;
}

static void check_weight(Weights *w, uint32_t i)
{
    Weighed *x = &w->of[i];
    const Weight *weight = &w->c->g->weight[i];
    const char *path = value_of(w->c->g, weight->value)->path;
    int64_t again, all = x->nheld ? all_elements(x->held[0].part) : 0, held = covered(x->held, x->nheld, &again);
    if (x->nheld == 0 || held != all)
        broken(&w->c->k, "ranks hold %lld of %lld elements of '%s'", (long long)held, (long long)all, path);
    if (weight->frozen || !has_value(weight->gradient))
        return;
    int64_t counted = covered(x->counted, x->ncounted, &again);
    if (counted != all || again > 0)
        broken(&w->c->k, "the norm counts %lld of %lld elements of '%s', and %lld of them again", (long long)counted, (long long)all, path, (long long)again);
}

void verify_weights(RanksCheck *c)
{
    Weights w = {.c = c, .name = {NEWN(c->scratch, Named, c->g->nweight + 1), c->g->nweight}, .of = NEWN(c->scratch, Weighed, c->g->nweight + 1)};
    bool known = true;
    for (uint32_t i = 0; i < c->g->nweight; i++)
        w.name.of[i] = (Named){value_of(c->g, c->g->weight[i].value)->path, i};
    names_sort(&w.name);
    for (uint32_t r = 0; r < c->n; r++)
        known &= read_states(&w, c->rank[r]);
    if (!known)
        return;
    for (uint32_t r = 0; r < c->n; r++) {
        GradientPlaces g = gradient_places(c->rank[r], c->scratch);
        check_sums(&w, c->rank[r], &g);
        read_norm(&w, c->rank[r], &g);
    }
    for (uint32_t i = 0; i < c->g->nweight; i++)
        check_weight(&w, i);
}
