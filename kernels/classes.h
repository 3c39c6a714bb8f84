#ifndef KERNELS_CLASSES_H
#define KERNELS_CLASSES_H
/* Classes: the class axis of logits, of which a rank may hold a part, and what a row
 * of them costs; for both forms of cross entropy. */
#include <assert.h>
#include <math.h>

#include "kernels/operand.h"
#include "kernels/ref/functions.h"

/* The class axis, the last one of logits.  Padding follows the valid columns: it has
 * no probability, and its gradient is 0. */
typedef struct Classes {
    int64_t   columns, valid;         /* of this rank */
    int64_t   first, all;             /* class of column 0; classes of all ranks */
    FactorSet rows;
} Classes;

static inline Classes classes_of(const KCall *c, int logits)
{
    const Tensor *t = c->argt[logits];
    const AxisPlace *a = &t->axis[t->rank - 1];
    return (Classes){a->local, place_valid(a), place_global(a, 0, 0), a->global,
                     arg_factors(c, logits) & ~(1u << c->in->arg_factor[logits][t->rank - 1])};
}

/* Column of a label that counts, or -1: another rank's. */
static inline int64_t classes_column(const Classes *k, int64_t label)
{
    assert(label >= 0 && label < k->all && "a label outside the classes");
    int64_t column = label - k->first;
    return column >= 0 && column < k->valid ? column : -1;
}

/* What the loss of a row needs to know of its logits; the numbers of a part of the
 * classes are those of cross_entropy_stats, in this order. */
typedef struct ClassStats {
    double top, sum;                  /* the largest logit; the sum of exp(logit - top) */
    double target, total;             /* the logit of the label, 0 when it is another rank's; the sum of all */
} ClassStats;

/* exp(x - top), 0 for -inf even where nothing is larger. */
static inline double stats_exp(double x, double top)
{
    return exp(x - (top == -INFINITY ? 0 : top));
}

static inline double stats_lse(const ClassStats *s)
{
    return s->top + log(s->sum);
}

/* (1 - smooth) (lse - target) + smooth (lse - mean) */
static inline double stats_loss(const ClassStats *s, double smooth, int64_t classes)
{
    double lse = stats_lse(s), loss = (1 - smooth) * (lse - s->target);
    return smooth == 0 ? loss : loss + smooth * (lse - s->total / (double)classes);
}

static inline void stats_put(const KCall *c, int64_t at, const ClassStats *s)
{
    const double number[] = {s->top, s->sum, s->target, s->total};
    for (int i = 0; i < 4; i++)
        real_put(c->outt[0], c->out[0], at + i, number[i]);
}

/* ---- cross_entropy_merge: stats[p, .., 4] of argument 0 ---- */

typedef struct Merge {
    FactorSet rows, parts;
    int64_t   classes;
    double    smooth;
} Merge;

static inline Merge merge_of(const KCall *c)
{
    FactorSet rows = arg_factors(c, 1);
    int number = c->in->arg_factor[0][c->argt[0]->rank - 1];
    assert(row_length(c->argt[0]) == 4);
    return (Merge){rows, arg_factors(c, 0) & ~rows & ~(1u << number), attr_int(c, "classes"), attr_real(c, "smooth")};
}

/* The parts of the row where w stands, joined in their order. */
static inline ClassStats merge_stats(const KCall *c, const Merge *m, const Walk *w)
{
    ClassStats all = {.top = -INFINITY};
    Walk p = walk_over(c, m->parts);
    for (walk_from(&p, w); p.more; walk_next(&p))
        all.top = fmax(all.top, real_at(c->argt[0], c->arg[0], p.at[0]));
    for (walk_from(&p, w); p.more; walk_next(&p)) {
        double top = real_at(c->argt[0], c->arg[0], p.at[0]);
        all.sum += real_at(c->argt[0], c->arg[0], p.at[0] + 1) * stats_exp(top, all.top);
        all.target += real_at(c->argt[0], c->arg[0], p.at[0] + 2);
        all.total += real_at(c->argt[0], c->arg[0], p.at[0] + 3);
    }
    return all;
}

/* Loss of the row where w stands, 0 when its label does not count; its log-sum-exp is kept. */
static inline double merge_row(const KCall *c, const Merge *m, const Walk *w)
{
    ClassStats s = merge_stats(c, m, w);
    if (c->out[1])
        real_put(c->outt[1], c->out[1], w->at[MAX_ARGS + 1], stats_lse(&s));
    return label_counts(c, int_at(c->argt[1], c->arg[1], w->at[1])) ? stats_loss(&s, m->smooth, m->classes) : 0;
}

#endif
