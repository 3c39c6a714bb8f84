/* Search: see search.h. */
#include "planner/search.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "planner/polish.h"

/* ours: spaces that are searched to the end within some seconds; of larger ones as much as takes a third of a second */
const SearchLimits search_limits = {.top = 1, .exhaustive = 20000, .effort = 300000};

/* Estimates are that good: a candidate that is estimated to be slower by more is not judged. */
static const double TRUST = 1.05;
/* Others are judged all the same while less than this part of the effort is spent. */
static const double SPARE = 0.1;
/* Judgements of one configuration: after each that did not fit, more is recomputed. */
enum { RETRIES = 4 };
/* Where nothing is found that fits, so many times as much is looked at. */
enum { PATIENCE = 8 };

/* Ops of all candidates together, in a space that is searched to the end: more take too long to lower. */
enum { ENOUGH = 2000000 };

static uint64_t least(uint64_t x, uint64_t y)
{
    return x < y ? x : y;
}

/* ---- the space ---- */

static int by_bound(const void *x, const void *y)
{
    const Bounded *a = x, *b = y;
    if (a->unfit != b->unfit)
        return a->unfit - b->unfit;
    return a->bound != b->bound ? (a->bound > b->bound) - (a->bound < b->bound) : (a->order > b->order) - (a->order < b->order);
}

static double wanted_below(const Looking *k)
{
    return k->limits.below > 0 ? k->limits.below : DBL_MAX;
}

static void bound_configs(Looking *k)
{
    k->config = NEWN(k->arena, Bounded, k->space.nconfig + 1);
    k->nconfig = 0;
    k->out->excluded = 0;
    for (uint32_t i = 0; i < k->space.nconfig; i++) {
        double bound = staging_bound(&k->units, &k->space.config[i]);
        if (bound < wanted_below(k))
            k->config[k->nconfig++] = (Bounded){&k->space.config[i], bound, staging_lack(&k->units, &k->space.config[i], &k->round), i, false};
    }
    qsort(k->config, k->nconfig, sizeof *k->config, by_bound);
    k->lacking = true;
    for (uint32_t i = 0; i < k->nconfig; i++) {
        Bounded *b = &k->config[i];
        k->lacking &= b->lack > 0;
        units_ask(&k->units, units_find(&k->units, b->config, 0), b->config);
        double fits = staging_room(&k->units, b->config, &k->round, b->bound);
        b->unfit = fits == DBL_MAX;
        k->out->excluded += b->unfit;
        b->bound = b->unfit ? b->bound : fits;
    }
    qsort(k->config, k->nconfig, sizeof *k->config, by_bound);
    while (k->limits.below > 0 && k->nconfig > 0 && (k->config[k->nconfig - 1].unfit || k->config[k->nconfig - 1].bound >= k->limits.below))
        k->nconfig--;
}

/* n choose k. */
static double choose(double n, double k)
{
    double c = 1;
    for (double i = 1; i <= k; i++)
        c *= (n - k + i) / i;
    return c;
}

/* Ways to recompute of every stage none, some or all of its rounds, were the stages equal. */
static double layouts_of(const Looking *k, const Config *c)
{
    double pp = (double)c->mesh->size[AXIS_pp], pieces = k->units.pieces.n, rounds = 0, n = 1;
    for (uint32_t i = 0; i < k->units.pieces.n; i++)
        rounds += k->units.pieces.piece[i].round;
    for (double s = 0; s < pp && k->units.may_recompute; s++)
        n *= rounds / pp + 1;
    return n * (k->units.given_begin ? 1 : choose(pieces - 1, pp - 1));
}

static double all_layouts(const Looking *k)
{
    double n = 0;
    for (uint32_t i = 0; i < k->nconfig; i++)
        n += layouts_of(k, k->config[i].config);
    return n;
}

/* ---- small spaces, to the end ---- */

static uint64_t count_all(Looking *k)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < k->nconfig && n <= k->limits.exhaustive; i++) {
        Unit *u = units_find(&k->units, k->config[i].config, 0);
        if (layouts_of(k, k->config[i].config) > 64.0 * (double)k->limits.exhaustive)
            return k->limits.exhaustive + 1;
        units_solve(&k->units, u, k->config[i].config, 0);
        if (!u->every)
            return k->limits.exhaustive + 1;
        Staging g = staging_open(k->arena, &k->units, k->config[i].config, 0);
        if (u->noption > 0)
            n += u->noption * staging_each(&g, k->limits.exhaustive, NULL, NULL);
    }
    return n;
}

static int by_candidate_bound(const void *x, const void *y)
{
    const Listed *a = x, *b = y;
    return a->c.bound != b->c.bound ? (a->c.bound > b->c.bound) - (a->c.bound < b->c.bound) : (a->order > b->order) - (a->order < b->order);
}

/* Judges whatever may be faster than the best so far; equal times leave the first of them. */
static void judge_all(Looking *k)
{
    CandidateList all = {.arena = k->arena};
    for (uint32_t i = 0; i < k->nconfig; i++) {
        Unit *u = units_find(&k->units, k->config[i].config, 0);
        for (uint32_t o = 0; o < u->noption; o++) {
            Staging g = staging_open(k->arena, &k->units, k->config[i].config, o);
            (void)staging_each(&g, k->limits.exhaustive, list_candidate, &all);
        }
    }
    if (all.n > 0)
        qsort(all.item, all.n, sizeof *all.item, by_candidate_bound);
    for (uint32_t i = 0; i < all.n && all.item[i].c.bound < worst_ns(k); i++)
        (void)judge(k, &all.item[i].c);
    k->out->estimated = all.n;
    k->out->layouts = all.n;
    k->out->proven = !k->space.micro_left_out;
    k->out->cut = "numbers of micro-batches up to 4,096";
    k->out->bound = best_ns(k);
}

/* ---- large ones, in the order of estimates ---- */

static uint32_t family_of(Looking *k, const Unit *u, uint32_t option, const Config *c)
{
    for (uint32_t i = 0; i < k->nfamily; i++) {
        const Family *f = &k->family[i];
        if (f->unit == u && f->option == option && f->mesh == c->mesh && f->shard == c->shard)
            return i;
    }
    PUSH(k->arena, k->family, k->nfamily, ((Family){.unit = u, .mesh = c->mesh, .option = option, .shard = c->shard, .rate = 1}));
    return k->nfamily - 1;
}

static bool stage_entry(Looking *k, Entry *e)
{
    Family *f = &k->family[e->family];
    const Config *config = e->c.config;
    Staging g = staging_open(k->arena, &k->units, config, e->c.option);
    g.rate = f->rate;
    g.more_bytes = f->more_bytes;
    e->version = f->version;
    k->out->estimated++;
    return e->lean ? staging_leanest(k->arena, &g, &e->c) : staging_best(k->arena, &g, &e->c);
}

/* The estimates of the best candidates that are estimated to fit, as many as are wanted, ascending. */
typedef struct Leaders { double *ns; uint32_t n, most; } Leaders;

static void join(Leaders *l, double ns)
{
    uint32_t at = l->n < l->most ? l->n++ : l->most;
    if (at == l->most && ns >= l->ns[--at])
        return;
    for (; at > 0 && l->ns[at - 1] > ns; at--)
        l->ns[at] = l->ns[at - 1];
    l->ns[at] = ns;
}

/* Slower than all of them: not wanted. */
static double limit_of(const Leaders *l)
{
    return l->n == l->most ? l->ns[l->n - 1] : DBL_MAX;
}

/* Its options that have no entry yet and may be faster than the leaders. */
static void add_config(Looking *k, const Bounded *b, bool **added, Leaders *best)
{
    const Config *c = b->config;
    Unit *u = units_find(&k->units, c, 0);
    units_solve(&k->units, u, c, 0);
    if (!*added)
        *added = NEWN(k->arena, bool, u->noption + 1);
    for (uint32_t o = 0; o < u->noption; o++) {
        if ((*added)[o])
            continue;
        Staging g = staging_open(k->arena, &k->units, c, o);
        if (staging_least(&g) >= limit_of(best))
            continue;
        (*added)[o] = true;
        Entry e = {.c = {.config = c, .option = o}, .lack = b->lack, .family = family_of(k, u, o, c), .lean = b->lack > 0};
        if (!stage_entry(k, &e))
            continue;
        if (e.c.bytes <= 0)
            join(best, e.c.ns);
        PUSH(k->arena, k->entry, k->nentry, e);
    }
}

/* Find its cuts anew, now that more is known of those like it; false: there are none that were not judged. */
static bool restage(Looking *k, Entry *e)
{
    return stage_entry(k, e) && (e->tries == 0 || !same_staging(&e->c, &e->judged));
}

/* Where nothing fits, the leanest of each are tried, once all others were. */
static bool try_lean(Looking *k, Entry *e)
{
    if (e->lean || e->lack > 0 || k->out->nbest > 0)
        return false;
    e->lean = true;
    return restage(k, e);
}

/* Those that are estimated to fit come before those that are not. */
static bool comes_before(const Entry *x, const Entry *y)
{
    bool fits = x->c.bytes <= 0, other = y->c.bytes <= 0;
    if (fits != other)
        return fits;
    return fits ? x->c.ns < y->c.ns : x->c.bytes < y->c.bytes;
}

static Entry *next_entry(Looking *k)
{
    for (;;) {
        Entry *next = NULL;
        for (uint32_t i = 0; i < k->nentry; i++)
            if (!k->entry[i].done && (!next || comes_before(&k->entry[i], next)))
                next = &k->entry[i];
        if (!next || next->version == k->family[next->family].version)
            return next;
        next->done = !restage(k, next) && !try_lean(k, next);
    }
}

static void learn(Looking *k, Entry *e, const Verdict *v)
{
    Family *f = &k->family[e->family];
    f->version++;
    f->more_bytes += (double)v->excess - e->c.bytes;
    if (v->fits)
        f->rate *= (double)v->ns / e->c.ns;
    e->judged = e->c;
    e->lean &= e->lack <= 0;
    e->done = ++e->tries > RETRIES && !try_lean(k, e);
}

/* More is done as long as nothing is found that fits, where anything would do and may be there. */
static bool is_spent(const Looking *k)
{
    bool patient = k->out->nbest == 0 && k->limits.below <= 0 && !k->lacking;
    return k->effort >= (patient ? PATIENCE : 1) * k->limits.effort;
}

/* Whether what is left is not worth a judgement. */
static bool is_enough(const Looking *k, const Entry *next)
{
    bool doubtful = next->c.bytes > 0 || next->c.ns > TRUST * best_ns(k), spare = (double)k->effort < SPARE * (double)k->limits.effort;
    return is_spent(k) || (k->out->nbest >= k->limits.top && doubtful && !(spare && next->c.bound < best_ns(k)));
}

/* Those that were found, until estimates of others take their place. */
static Leaders leaders_found(Looking *k)
{
    Leaders l = {.ns = NEWN(k->arena, double, k->limits.top), .most = k->limits.top};
    for (uint32_t i = 0; i < k->out->nbest; i++)
        l.ns[l.n++] = (double)k->out->best[i].ns;
    return l;
}

/* Of configurations that lack so much memory and more none is looked at: they do not fit, and what does not is of use
 * where it needs the least.  So those that lack least come first, and others where they may need less than these did;
 * of all the leanest cuts come first. */
static double most_lack(const Looking *k)
{
    double least = DBL_MAX;
    if (k->leanest)
        return (double)k->least_excess;
    for (uint32_t i = 0; i < k->nconfig; i++)
        least = k->config[i].lack < least ? k->config[i].lack : least;
    return least + 1;
}

/* Whether one before it differs in the order of the devices alone, which takes no memory. */
static bool is_reordered(const Looking *k, const Bounded *b)
{
    const Config *c = b->config;
    for (const Bounded *x = k->config; x < b; x++) {
        const Config *y = x->config;
        if (y->micro == c->micro && y->shard == c->shard && y->gpipe == c->gpipe && memcmp(y->mesh->size, c->mesh->size, sizeof c->mesh->size) == 0)
            return true;
    }
    return false;
}

/* Those without cp come once. */
static bool may_be_leanest(const Looking *k, const Bounded *b, double lack)
{
    return b->lack < lack && !(k->with_context && b->config->mesh->size[AXIS_cp] == 1) && !is_reordered(k, b);
}

/* Candidates of all configurations that may be faster than those found and, by estimates, than each other;
 * those that will not fit, by a guess, only where too few others do. */
static void add_below(Looking *k, double lack)
{
    Leaders best = leaders_found(k);
    for (int unfit = 0; unfit < 2 && (unfit == 0 || best.n < best.most); unfit++)
        for (uint32_t i = 0; i < k->nconfig; i++) {
            const Bounded *b = &k->config[i];
            double limit = limit_of(&best);
            if (b->bound < limit && (b->lack <= 0 || may_be_leanest(k, b, lack)) && (unfit || (!b->unfit && staging_guess(&k->units, b->config) < limit)))
                add_config(k, b, &k->added[i], &best);
        }
}

/* Whether there are more now; the leanest may have no option. */
static bool add_configs(Looking *k)
{
    uint32_t before = k->nentry;
    add_below(k, most_lack(k));
    if (k->nentry == before && !k->leanest)
        add_below(k, DBL_MAX);
    return k->nentry > before;
}

/* Whatever estimates left out for one that was judged to be slower, or not to fit, is looked at again. */
static void judge_best(Looking *k)
{
    k->added = NEWN(k->arena, bool *, k->nconfig + 1);
    while (!is_spent(k) && add_configs(k))
        for (Entry *e; (e = next_entry(k)) && !is_enough(k, e);) {
            bool lacks_more = e->lack > 0 && e->lack >= most_lack(k);
            Verdict v = lacks_more ? (Verdict){0} : judge(k, &e->c);
            if (v.legal)
                learn(k, e, &v);
            else
                e->done = true;
        }
    polish(k);
    k->out->cut = k->no_context ? "cuts, recomputation and splits of the most promising configurations only, and no cp, as there are samples enough for dp"
                                : "cuts, recomputation and splits of the most promising configurations only";
    k->out->bound = k->nconfig ? k->config[0].bound : 0;
}

/* ---- both ---- */

static Status read_space(Looking *k, const Decisions *d, bool context)
{
    Decisions *plain = NEW(k->arena, Decisions);
    *plain = *d;
    plain->context = context ? d->context : NULL;
    k->no_context = d->context && !context;
    TRY(space_read(k->arena, k->ds, k->q, plain, k->units.pieces.n, &k->space));
    units_take_cuts(&k->units, k->space.mesh, k->space.nmesh);
    bound_configs(k);
    k->out->configs = k->space.nconfig;
    k->out->layouts = all_layouts(k);
    return OK;
}

/* Context parallelism that no rule asks for is looked at where samples are too few for dp to use all
 * devices, and where the space is small with it; later, where nothing fits without it. */
static Status begin_space(Looking *k, const Decisions *d, bool *small)
{
    bool asked = d->context && (d->mesh_rule[AXIS_cp] || graph_samples(k->q->graph) < d->ndevices);
    Diags *said = diags_new(k->ds->sources), *kept = k->ds;
    k->ds = asked || !d->context ? kept : said;
    Status s = read_space(k, d, asked);
    k->ds = kept;
    bool try_it = k->no_context && (s != OK || k->out->layouts <= (double)k->limits.exhaustive);
    if (!try_it) {
        *small = s == OK && count_all(k) <= k->limits.exhaustive;
        return s;
    }
    TRY(read_space(k, d, true));
    *small = count_all(k) <= k->limits.exhaustive;
    if (*small || s != OK)
        return OK;
    TRY(read_space(k, d, false));
    *small = count_all(k) <= k->limits.exhaustive;
    return OK;
}

static Status judge_large(Looking *k, const Decisions *d)
{
    judge_best(k);
    if (k->out->nbest > 0 || !k->no_context)
        return OK;
    k->effort = 0;
    k->nentry = 0;
    k->with_context = true;
    TRY(read_space(k, d, true));
    judge_best(k);
    return OK;
}

/* tp is to split ops, and no way to do so was found. */
static void refuse_tp(const Looking *k, Span at)
{
    const char *name = k->q->graph->name;
    if (k->units.why_not) {
        Diag *e = diag_error(k->ds, at, "cannot search how 'tp' splits the ops of model '%s': %s", name, k->units.why_not);
        diag_help(k->ds, e, "say it by rules, for instance 'split heads, ffn by tp', or choose sizes of the mesh with 'tp = 1'");
        return;
    }
    Diag *e = diag_error(k->ds, at, "no axis of an op of model '%s' can be split by 'tp'", name);
    diag_help(k->ds, e, "choose sizes of the mesh with 'tp = 1', or a 'tp' that divides an axis");
}

Status search(Arena *a, Diags *ds, const PlanRequest *q, const Decisions *d, SearchLimits limits, Search *out, Plan **leanest)
{
    Looking k = {.arena = a, .ds = ds, .q = q, .limits = limits, .out = out};
    bool small;
    *out = (Search){.best = NEWN(a, Found, limits.top + 1)};
    k.limits.exhaustive = least(limits.exhaustive, ENOUGH / (q->graph->nop + 1));
    k.of = NEWN(a, Candidate, limits.top + 1);
    k.units = units_open(a, ds, q, d);
    k.round = room_read(&k.units);
    TRY(begin_space(&k, d, &small));
    if (small)
        judge_all(&k);
    else
        TRY(judge_large(&k, d));
    out->no_context = k.no_context;
    *leanest = k.leanest;
    if (k.leanest)
        return OK;
    *ds = k.refusal ? *k.refusal : *k.units.said;        /* of the first candidate, or of the units */
    if (ds->errors == 0)
        refuse_tp(&k, d->mesh_rule[AXIS_tp] ? d->mesh_rule[AXIS_tp]->at : NOWHERE);
    return ERR_REJECT;
}
