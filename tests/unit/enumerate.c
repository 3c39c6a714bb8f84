/* All layouts of an instance: see instances.h. */
#include "tests/unit/instances.h"

#include "codegen/simulate.h"
#include "planner/pins.h"

/* ---- one layout ---- */

Status instance_ask(Instance *in, PlanUse use, const char *text, SearchLimits limits, Search *found)
{
    Case *c = &in->c;
    Units units;
    Rules *rules;
    IncludePath none = {0};
    const char *kept = arena_printf(c->l.input, "plan { %s }", text);
    c->ds = diags_new(c->l.sources);
    assert_int_equal(parse_text(c->ds, "<rules>", kept, strlen(kept), none, &units), OK);
    if (elaborate_rules(c->ds, &units, c->l.graph, c->l.ir, &rules) != OK)
        return ERR_REJECT;
    PlanRequest q = {.graph = c->l.graph, .cluster = c->l.cluster, .rules = rules, .model_text = "", .profile = in->c.l.profile, .use = use};
    return planner_search(c->l.ir, c->ds, &q, limits, &c->plan, &c->programs, found);
}

int64_t instance_needs(const Instance *in)
{
    const Program *p = in->c.programs.rank[in->c.programs.fullest];
    return program_map_bytes(p) + p->reserve;
}

/* What one layout leaves behind goes with it: there are thousands. */
static void try_layout(Instance *in, const char *rules)
{
    Search none;
    if (++in->plans > in->most)
        return;
    Case *c = &in->c;
    Arena *kept = c->l.ir, *own = c->l.ir = arena_new("layout");
    c->plan = NULL;
    c->programs = (Programs){0};
    Status s = instance_ask(in, USE_ESTIMATE, rules, search_limits, &none);
    if (c->plan && c->programs.n > 0) {
        int64_t needed = instance_needs(in);
        in->leanest = in->leanest == 0 || needed < in->leanest ? needed : in->leanest;
    }
    if (s == OK) {
        int64_t ns = simulate(own, c->l.cluster, c->plan, c->l.profile, c->programs.rank).ns;
        in->best = in->fit == 0 || ns < in->best ? ns : in->best;
        in->fit++;
    }
    c->l.ir = kept;
    arena_free(own);
}

/* ---- all of them ---- */

/* Rules so far, and what they mean for those that follow. */
typedef struct Walk { Instance *in; char text[ROOM]; size_t n; int64_t pp, dp, cp, tp, micro; uint32_t cut[MOST_PIECES + 1]; } Walk;

static void say(Walk *w, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    w->n += (size_t)vsnprintf(w->text + w->n, ROOM - w->n, fmt, ap);
    va_end(ap);
    assert_true(w->n < ROOM);
}

static void unsay(Walk *w, size_t n)
{
    w->n = n;
    w->text[n] = 0;
}

static void each_split(Walk *w, uint32_t i)
{
    static const char *const op[MOST_WAYS][3] = {{"first", "hidden", "pixel"}, {"h.up", "ffn", "hidden"}, {"h.act", "ffn"}, {"h.down", "hidden", "ffn"},
                                                 {"h.add", "hidden"}, {"head", "class", "hidden"}, {"loss", "class"}};
    if (i == MOST_WAYS || w->tp == 1 || !w->in->open[OPEN_splits]) {
        try_layout(w->in, w->text);
        return;
    }
    for (int k = 0; k < 3 && (k == 0 || op[i][k]); k++) {
        size_t n = w->n;
        int64_t extent = k == 0 ? 0 : strcmp(op[i][k], "ffn") == 0 ? w->in->ffn : strcmp(op[i][k], "hidden") == 0 ? w->in->hidden
                       : strcmp(op[i][k], "class") == 0 ? w->in->class : 7;
        if (extent % w->tp)
            continue;
        if (k > 0)
            say(w, "split %s in %s by tp; ", op[i][k], op[i][0]);
        each_split(w, i + 1);
        unsay(w, n);
    }
}

/* The first so many rounds from a piece on; those of one repeat are one rule. */
static void say_recomputed(Walk *w, uint32_t from, uint32_t rounds)
{
    for (uint32_t i = from; rounds > 0; i++) {
        const char *path = w->in->piece[i].path;
        uint32_t n = 1;
        if (!w->in->piece[i].round)
            continue;
        while (n < rounds && w->in->piece[i + n].path[0] == path[0])
            n++;
        int first = atoi(path + 2);
        say(w, "recompute %c[%d..%d]; ", path[0], first, first + (int)n - 1);
        rounds -= n;
        i += n - 1;
    }
}

static void each_again(Walk *w, int64_t stage)
{
    if (stage == w->pp || !w->in->open[OPEN_again]) {
        each_split(w, 0);
        return;
    }
    uint32_t rounds = 0;
    for (uint32_t i = w->cut[stage]; i < w->cut[stage + 1]; i++)
        rounds += w->in->piece[i].round;
    for (uint32_t r = 0; r <= rounds; r++) {
        size_t n = w->n;
        say_recomputed(w, w->cut[stage], r);
        each_again(w, stage + 1);
        unsay(w, n);
    }
}

static void each_cut(Walk *w, int64_t stage)
{
    uint32_t pieces = w->in->npiece;
    if (stage == w->pp) {
        w->cut[stage] = pieces;
        each_again(w, 0);
        return;
    }
    for (uint32_t at = w->cut[stage - 1] + 1; at < pieces; at++) {
        size_t n = w->n;
        if (!w->in->open[OPEN_cuts])
            at = pieces - 2;
        else
            say(w, "stage before %s; ", w->in->piece[at].path);
        w->cut[stage] = at;
        each_cut(w, stage + 1);
        unsay(w, n);
        if (!w->in->open[OPEN_cuts])
            return;
    }
}

/* One configuration: its bound is not above the best of its layouts, and where one fits it has room. */
static void check_config(Walk *w)
{
    Instance *in = w->in;
    SearchLimits limits = search_limits;
    uint64_t before = in->fit;
    int64_t best = in->best;
    limits.exhaustive = 0;
    in->fit = 0;
    each_cut(w, 1);
    if (in->fit > 0) {
        Search found;
        Arena *kept = in->c.l.ir, *own = in->c.l.ir = arena_new("config");
        (void)instance_ask(in, USE_PLAN, w->text, limits, &found);
        in->c.l.ir = kept;
        arena_free(own);
        in->configs += found.configs > 0;
        in->tight += found.bound > 0.9 * (double)in->best;
        if (found.configs > 0 && (found.excluded > 0 || found.bound > (double)in->best))
            fail_msg("%s: bound %.0f ns%s, the best %lld ns", w->text, found.bound, found.excluded ? ", no room" : "", (long long)in->best);
    }
    in->best = before > 0 && (in->fit == 0 || best < in->best) ? best : in->best;
    in->fit += before;
}

static void each_setting(Walk *w)
{
    bool pipeline = w->pp > 1 && w->micro > 1 && w->in->open[OPEN_schedule], shards = w->dp > 1 && w->in->adamw;
    for (int gpipe = 0; gpipe <= pipeline; gpipe++)
        for (int shard = 0; shard <= shards; shard++) {
            size_t n = w->n;
            if (pipeline)
                say(w, "schedule = \"%s\"; ", gpipe ? "gpipe" : "1f1b");
            if (shard)
                say(w, "shard optimizer by dp; ");
            if (w->in->by_config)
                check_config(w);
            else
                each_cut(w, 1);
            unsay(w, n);
        }
}

static void each_micro(Walk *w)
{
    for (int64_t m = 1; m <= w->in->batch / w->dp; m++) {
        size_t n = w->n;
        if (w->in->batch / w->dp % m)
            continue;
        w->micro = w->in->open[OPEN_micro] ? m : strstr(w->in->given, "microbatches = 2") ? 2 : 1;
        if (w->in->open[OPEN_micro])
            say(w, "microbatches = %lld; ", (long long)m);
        each_setting(w);
        unsay(w, n);
        if (!w->in->open[OPEN_micro])
            return;
    }
}

enum { AXES = 4 };                    /* pp, dp, cp, tp */

static void each_nest(Walk *w, const int64_t size[AXES], int nest[AXES], int n)
{
    if (n < AXES) {
        for (nest[n] = 0; nest[n] < AXES; nest[n]++) {
            bool used = false, usual = w->in->nodes == 1 && nest[n] != n;
            for (int i = 0; i < n; i++)
                used |= nest[i] == nest[n];
            if (!used && !usual && (size[nest[n]] > 1 || nest[n] == n))
                each_nest(w, size, nest, n + 1);
        }
        return;
    }
    int64_t stride[AXES], next = 1;
    size_t before = w->n;
    for (int i = AXES - 1; i >= 0; i--) {
        stride[nest[i]] = next;
        next *= size[nest[i]];
    }
    say(w, "devices = [");
    for (int64_t r = 0; r < w->in->devices; r++)
        say(w, "%s%lld", r ? ", " : "", (long long)(r / (w->dp * w->cp * w->tp) * stride[0] + r / (w->cp * w->tp) % w->dp * stride[1] + r / w->tp % w->cp * stride[2] + r % w->tp * stride[3]));
    say(w, "]; ");
    each_micro(w);
    unsay(w, before);
}

/* Orders of the axes on the devices, outermost first; those of size 1 stay where they are, or no order is left. */
static void each_order(Walk *w)
{
    int64_t size[AXES] = {w->pp, w->dp, w->cp, w->tp};
    int nest[AXES];
    each_nest(w, size, nest, 0);
}

static void each_mesh(Walk *w)
{
    Instance *in = w->in;
    bool allowed = !in->open[OPEN_pp] ? w->pp == 1 : in->open[OPEN_cuts] || w->pp == 2;
    bool context = w->cp == 1 || (in->kind != PERCEPTRON && in->seq % w->cp == 0);
    size_t before = w->n;
    if (in->batch % w->dp || w->pp > in->npiece || !allowed || !context || (strstr(in->given, "mesh tp = 1") && w->tp > 1))
        return;
    say(w, "mesh dp = %lld, cp = %lld; ", (long long)w->dp, (long long)w->cp);
    if (w->cp > 1)
        say(w, "split seq by cp; ");
    if (!strstr(in->given, "mesh pp"))
        say(w, "mesh pp = %lld; ", (long long)w->pp);
    if (!strstr(in->given, "mesh tp"))
        say(w, "mesh tp = %lld; ", (long long)w->tp);
    each_order(w);
    unsay(w, before);
}

void instance_enumerate(Instance *in)
{
    Walk w = {.in = in};
    int64_t n = in->devices;
    say(&w, "%s", in->given);
    for (w.pp = 1; w.pp <= n; w.pp++)
        for (w.dp = 1; w.dp <= n; w.dp++)
            for (w.cp = 1; w.cp <= n; w.cp++)
                if (n % (w.pp * w.dp * w.cp) == 0) {
                    w.tp = n / w.pp / w.dp / w.cp;
                    each_mesh(&w);
                }
}
