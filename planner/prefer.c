/* prefer: soft rules.  A plan keeps a soft rule when it is one that the planner may choose were
 * the rule hard.  So each soft rule is tried as a hard one, alone and then with others; of the
 * sets of rules with which a step takes as long as without any, or less than TIE more, the one
 * of the most rules is kept, and of these the fastest; where there are many rules, they are added
 * one by one as they are written.  What is not kept is said at the rule. */
#include "base/text.h"
#include "codegen/simulate.h"
#include "planner/choose.h"

/* Soft rules that are weighed; so many of which all sets are tried. */
enum { MOST_SOFT = 32, FEW = 4 };

typedef uint32_t Set;                                    /* of soft rules, bit i is the i-th */

typedef struct Trial {
    bool     fits;
    int64_t  ns;                      /* where it fits */
    Plan    *plan;
    Programs programs;
    Search   found;
    Diags   *said;
} Trial;

typedef struct Preferring {
    Arena             *arena;
    const PlanRequest *q;
    SearchLimits       limits;
    Sources           *sources;
    const Rule        *soft[MOST_SOFT]; uint32_t n;
    Trial              none, alone[MOST_SOFT];
    int64_t            least;         /* ns of the fastest of these */
    uint64_t           estimated, judged, unfit;     /* of all trials */
} Preferring;

/* Hard rules come first: among splits of one axis the first one counts. */
static Rules *hardened(const Preferring *p, Set set)
{
    const Rules *given = p->q->rules;
    Rules *out = NEW(p->arena, Rules);
    *out = (Rules){.model = given->model, .cluster = given->cluster, .at = given->at};
    for (uint32_t i = 0; i < given->nrule; i++)
        if (!given->rule[i].soft)
            PUSH(p->arena, out->rule, out->nrule, given->rule[i]);
    for (uint32_t i = 0; i < p->n; i++) {
        Rule r = *p->soft[i];
        r.soft = false;
        if (set >> i & 1)
            PUSH(p->arena, out->rule, out->nrule, r);
    }
    return out;
}

static Trial try_set(Preferring *p, Set set)
{
    Trial t = {.said = diags_new(p->sources)};
    PlanRequest q = *p->q;
    q.rules = hardened(p, set);
    t.fits = choose_plan(p->arena, t.said, &q, p->limits, &t.plan, &t.programs, &t.found) == OK;
    if (t.fits)
        t.ns = t.found.nbest ? t.found.best[0].ns : simulate(p->arena, q.cluster, t.plan, q.profile, t.programs.rank).ns;
    p->estimated += t.found.estimated;
    p->judged += t.found.judged;
    p->unfit += t.found.unfit;
    return t;
}

static bool is_tie(const Preferring *p, const Trial *t)
{
    return t->fits && t->ns - p->least <= p->least / TIE;
}

static uint32_t size_of(Set set)
{
    uint32_t n = 0;
    for (; set; set &= set - 1)
        n++;
    return n;
}

/* ---- which are kept ---- */

static void try_alone(Preferring *p)
{
    p->none = try_set(p, 0);
    p->least = p->none.fits ? p->none.ns : INT64_MAX;
    for (uint32_t i = 0; i < p->n; i++) {
        p->alone[i] = try_set(p, (Set)1 << i);
        if (p->alone[i].fits && p->alone[i].ns < p->least)
            p->least = p->alone[i].ns;
    }
}

/* The fastest set of so many of the rules that is a tie; 0: none is. */
static Set best_of_size(Preferring *p, uint32_t size, Trial *best)
{
    Set found = 0;
    for (Set set = 1; set >> p->n == 0; set++) {
        if (size_of(set) != size)
            continue;
        Trial t = size == 1 ? p->alone[__builtin_ctz(set)] : try_set(p, set);
        if (!is_tie(p, &t) || (found && t.ns >= best->ns))
            continue;
        found = set;
        *best = t;
    }
    return found;
}

/* Rules added as they are written, each that can be kept beside those before it. */
static Set grow_set(Preferring *p, Trial *best)
{
    Set found = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        Trial t = found ? try_set(p, found | (Set)1 << i) : p->alone[i];
        if (!is_tie(p, &t))
            continue;
        found |= (Set)1 << i;
        *best = t;
    }
    return found;
}

static Set choose_set(Preferring *p, Trial *best)
{
    Set found = 0;
    *best = p->none;
    if (p->n > FEW)
        return grow_set(p, best);
    for (uint32_t size = p->n; size > 0 && !found; size--)
        found = best_of_size(p, size, best);
    return found;
}

/* ---- what is said ---- */

static const Diag *first_error(const Diags *ds)
{
    const Diag *d = ds->first;
    while (d->severity != SEV_ERROR)
        d = d->next;
    return d;
}

/* What keeping a rule would cost. */
static const char *price_of(const Preferring *p, const Trial *t, int64_t ns)
{
    if (!t->fits)
        return first_error(t->said)->text;
    int64_t more = t->ns - ns;
    return arena_printf(p->arena, "a step would take %s, %s (%.1f %%) longer", text_ns(p->arena, t->ns), text_ns(p->arena, more), 100 * (double)more / (double)ns);
}

static void say_not_kept(Preferring *p, Diags *ds, uint32_t i, Set kept, const Trial *best)
{
    Trial both = kept ? try_set(p, kept | (Set)1 << i) : p->alone[i];
    const char *beside = kept ? "beside the preferences that are kept, " : "";
    Diag *d = diag_warn(ds, p->soft[i]->at, "this preference is not kept: %s%s", beside, price_of(p, &both, best->ns));
    if (!both.fits)
        d->note = first_error(both.said)->note;
}

static void say(Preferring *p, Diags *ds, Set kept, const Trial *best)
{
    for (uint32_t i = 0; i < p->n; i++) {
        const char *idle = kept >> i & 1 ? rules_idle(ds->arena, p->q, best->plan, p->soft[i]) : NULL;
        if (idle)
            diag_warn(ds, p->soft[i]->at, "this preference has no effect: %s", idle);
        else if (!(kept >> i & 1))
            say_not_kept(p, ds, i, kept, best);
    }
}

static void add_said(Diags *to, const Diags *said)
{
    Diag **last = &to->first;
    while (*last)
        last = &(*last)->next;
    *last = said->first;
    to->errors += said->errors;
}

/* ---- both kinds of rules ---- */

static Search found_by(const Preferring *p, const Trial *best, Set kept)
{
    const Search *none = &p->none.found;
    Search s = best->found;
    s.estimated = p->estimated;
    s.judged = p->judged;
    s.unfit = p->unfit;
    s.soft = p->n;
    s.kept = size_of(kept);
    s.without = p->none.fits ? p->none.ns : 0;
    if (kept && p->none.fits && none->nbest) {           /* the space is that of all plans, whatever they keep */
        s.layouts = none->layouts;
        s.configs = none->configs;
        s.bound = none->bound < best->found.bound ? none->bound : best->found.bound;
        s.proven = none->proven && best->ns <= none->best[0].ns;
        s.cut = none->proven ? "all layouts, and the gap is what preferences cost" : none->cut;
    }
    return s;
}

static Status choose_preferred(Preferring *p, Diags *ds, Plan **plan, Programs *out, Search *found)
{
    Trial best;
    try_alone(p);
    Set kept = choose_set(p, &best);
    add_said(ds, best.said);
    *plan = best.plan;
    *out = best.programs;
    *found = found_by(p, &best, kept);
    if (best.fits)
        say(p, ds, kept, &best);
    return best.fits ? OK : ERR_REJECT;
}

static void warn_all(Diags *ds, const Rules *rules, const char *why)
{
    for (uint32_t i = 0; i < rules->nrule; i++)
        if (rules->rule[i].soft)
            diag_warn(ds, rules->rule[i].at, "this preference has no effect: %s", why);
}

static void collect(Preferring *p, Diags *ds)
{
    for (uint32_t i = 0; i < p->q->rules->nrule; i++) {
        const Rule *r = &p->q->rules->rule[i];
        if (r->soft && p->n < MOST_SOFT)
            p->soft[p->n++] = r;
        else if (r->soft)
            diag_warn(ds, r->at, "this preference has no effect: no more than %d of them are weighed", MOST_SOFT);
    }
}

/* Why preferences are not weighed; NULL: they are. */
static const char *unweighed(const PlanRequest *q)
{
    return q->use == USE_RUN || !q->profile ? "prun does what rules say and chooses nothing; 'pplan plan' weighs preferences"
         : rules_resolved(q->rules)         ? "a .plan leaves nothing to prefer" : NULL;
}

Status planner_search(Arena *a, Diags *ds, const PlanRequest *r, SearchLimits limits, Plan **plan, Programs *out, Search *found)
{
    Preferring p = {.arena = a, .q = r, .limits = limits, .sources = ds->sources};
    const char *why = unweighed(r);
    if (!why)
        collect(&p, ds);
    Status s = p.n ? choose_preferred(&p, ds, plan, out, found) : choose_plan(a, ds, r, limits, plan, out, found);
    if (s == OK && why)
        warn_all(ds, r->rules, why);
    if (s == OK)
        rules_warn(ds, r, *plan);
    return s;
}

Status planner_choose(Arena *a, Diags *ds, const PlanRequest *r, Plan **plan, Programs *out)
{
    Search found;
    return planner_search(a, ds, r, search_limits, plan, out, &found);
}
