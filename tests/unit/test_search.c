/* The search against enumeration: on small random instances every layout that rules can say is
 * estimated by itself, and the plan that is found takes as long as the fastest of those that fit. */
#include "tests/unit/planning.h"

#include "codegen/simulate.h"
#include "planner/pins.h"
#include "planner/search.h"
#include "tests/unit/random_model.h"

/* ---- instances ---- */

enum { MOST_PIECES = 12, MOST_WAYS = 7, ROOM = 4000 };

/* What an instance leaves open, beside the sizes of the mesh; what it does not is given by a rule. */
typedef enum Open { OPEN_micro, OPEN_schedule, OPEN_cuts, OPEN_again, OPEN_splits, OPEN_pp, OPENS } Open;

/* What rounds are: of a residual perceptron; of attention over tokens, with a table of its own for the head or
 * the same one; first of the one, then of the other. */
typedef enum Kind { PERCEPTRON, ATTENTION, BOTH, KINDS } Kind;

typedef struct TestPiece { const char *path; bool round; } TestPiece;

/* `first`, rounds `h` (and `g`), `head` and the loss. */
typedef struct Instance {
    Case        c;
    Draw        draw;
    Kind        kind;
    int64_t     batch, rounds, more, hidden, ffn, class, devices, nodes, memory;     /* more: rounds of g */
    int64_t     seq, heads, kv_heads;
    bool        cuda, adamw, tied, open[OPENS];
    TestPiece   piece[MOST_PIECES]; uint32_t npiece;
    const char *given;                /* its rules */
    /* what enumeration has found */
    uint64_t    most, plans, fit;     /* it stops at `most` */
    int64_t     best;                 /* ns */
    uint64_t    configs, tight;       /* configurations of which some layout fits; those whose bound is within 10 % of the best */
    bool        by_config;            /* each of them is held to its bound */
} Instance;

static const char *perceptron_text(Instance *in)
{
    return arena_printf(in->c.a,
        "model m {\n  dim batch = %lld, pixel = 7, hidden = %lld, ffn = %lld, class = %lld\n  param layers = %lld\n"
        "  precision { compute = f32 }\n  optimizer %s { lr = 1e-3 }\n"
        "  input x[batch, pixel] : f32\n  input label[batch] : i32\n"
        "  y = first: linear(x, hidden)\n"
        "  repeat layers as h {\n    z = up: linear(y, ffn)\n    a = act: relu(z)\n    b = down: linear(a, hidden)\n    y = y + b\n  }\n"
        "  logits = head: linear(y, class)\n  minimize loss: cross_entropy(logits, label)\n}\n",
        (long long)in->batch, (long long)in->hidden, (long long)in->ffn, (long long)in->class, (long long)in->rounds, in->adamw ? "adamw" : "sgd");
}

static const char *attention_text(Instance *in)
{
    const char *head = in->tied ? "  head[batch, seq, class] = y * tok\n" : "  head = linear(y, class)\n";
    const char *more = in->more == 0 ? "" : arena_printf(in->c.a, "  repeat %lld as g {\n    z = up: linear(y, ffn)\n    b = down: linear(relu(z), hidden)\n    y = y + b\n  }\n", (long long)in->more);
    return arena_printf(in->c.a,
        "model m {\n  dim batch = %lld, seq = %lld, hidden = %lld, ffn = %lld, class = %lld, heads = %lld, kv_heads = %lld, width = 4\n  param layers = %lld\n"
        "  precision { compute = f32 }\n  optimizer %s { lr = 1e-3 }\n"
        "  input ids[batch, seq] : i32\n  input label[batch, seq] : i32\n  weight tok[class, hidden]\n"
        "  y = first: embed(ids, tok)\n"
        "  repeat layers as h {\n    n = rmsnorm(y)\n    q = linear(n, [heads, width])\n    k = linear(n, [kv_heads, width])\n    v = linear(n, [kv_heads, width])\n"
        "    a = attention(q, k, v, causal = true)\n    b = out: linear(a, hidden, over = [heads, width])\n    y = y + b\n  }\n%s%s"
        "  minimize loss: cross_entropy(head, label)\n}\n",
        (long long)in->batch, (long long)in->seq, (long long)in->hidden, (long long)in->ffn, (long long)in->class, (long long)in->heads, (long long)in->kv_heads,
        (long long)in->rounds, in->adamw ? "adamw" : "sgd", more, head);
}

static const char *model_text(Instance *in)
{
    return in->kind == PERCEPTRON ? perceptron_text(in) : attention_text(in);
}

static void add_piece(Instance *in, const char *path, bool round)
{
    in->piece[in->npiece++] = (TestPiece){path, round};
}

static void read_pieces(Instance *in)
{
    add_piece(in, "first", false);
    for (int64_t i = 0; i < in->rounds + in->more; i++)
        add_piece(in, arena_printf(in->c.a, i < in->rounds ? "h[%lld]" : "g[%lld]", (long long)(i < in->rounds ? i : i - in->rounds)), true);
    add_piece(in, "head", false);
    add_piece(in, "loss", false);
}

static const char *cluster_text(Instance *in)
{
    Draw *r = &in->draw;
    const char *kind = in->cuda ? "backend = cuda\n  launch = 2 us" : "backend = cpu\n  threads = 1\n  launch = 1 us";
    const char *cores = !in->cuda && draw_below(r, 2) ? ", cores = 2" : "";
    const char *outer = in->nodes == 1 ? "" : arena_printf(in->c.a, "  level pod = %lld * node { link = %lld MB/s, latency = %lld us, topology = switch }\n",
        (long long)in->nodes, (long long)DRAW_OF(r, 100, 1000, 10000), (long long)DRAW_OF(r, 2, 20));
    return arena_printf(in->c.a,
        "device d {\n  %s\n  memory = %lld B\n  reserve = 0 B\n  bandwidth = %lld GB/s\n  peak.f32 = %lld GFLOP/s\n}\n"
        "cluster c {\n  level node = %lld * d { link = %lld MB/s, latency = %lld us, topology = full%s }\n%s}\n",
        kind, (long long)in->memory, (long long)DRAW_OF(r, 1, 10, 100), (long long)DRAW_OF(r, 1, 10, 100),
        (long long)(in->devices / in->nodes), (long long)DRAW_OF(r, 100, 1000, 10000), (long long)DRAW_OF(r, 1, 10), cores, outer);
}

static const char *given_rules(Instance *in)
{
    Draw *r = &in->draw;
    Text t = text_new(in->c.a);
    if (!in->open[OPEN_micro])
        text_add(&t, "microbatches = %lld; ", (long long)DRAW_OF(r, 1, 1, 2));
    if (!in->open[OPEN_schedule])
        text_add(&t, "schedule = \"%s\"; ", draw_below(r, 2) ? "gpipe" : "1f1b");
    if (!in->open[OPEN_splits])
        text_add(&t, "%s; ", draw_below(r, 2) ? "mesh tp = 1" : in->kind == PERCEPTRON ? "split ffn by tp" : in->kind == ATTENTION ? "split heads by tp" : "split heads, ffn by tp");
    if (!in->open[OPEN_pp])
        text_add(&t, "mesh pp = 1; ");
    else if (!in->open[OPEN_cuts])
        text_add(&t, "mesh pp = 2; stage before head; ");
    if (!in->open[OPEN_again])
        text_add(&t, "recompute h; ");
    return t.s ? t.s : "";
}

static void draw_instance(Instance *in, uint64_t seed)
{
    *in = (Instance){.draw = draw_from(seed, "search"), .most = UINT64_MAX};
    Draw *r = &in->draw;
    in->c.a = arena_new("test");
    in->cuda = draw_below(r, 2);
    in->adamw = draw_below(r, 3) > 0;
    in->kind = (Kind)DRAW_OF(r, PERCEPTRON, PERCEPTRON, ATTENTION, ATTENTION, BOTH);
    in->batch = in->kind == PERCEPTRON ? DRAW_OF(r, 4, 6, 8) : DRAW_OF(r, 1, 2, 2, 4, 6);
    in->rounds = in->kind == BOTH ? DRAW_OF(r, 1, 2) : DRAW_OF(r, 1, 2, 3);
    in->more = in->kind == BOTH ? DRAW_OF(r, 1, 2) : 0;
    in->hidden = DRAW_OF(r, 5, 15, 16);
    in->ffn = DRAW_OF(r, 12, 24, 96);
    in->class = DRAW_OF(r, 3, 5, 10);
    in->seq = DRAW_OF(r, 3, 4, 8, 32);
    in->heads = DRAW_OF(r, 2, 4, 4);
    in->kv_heads = draw_below(r, 2) ? in->heads : in->heads / 2;
    in->tied = draw_below(r, 2);
    in->devices = DRAW_OF(r, 1, 2, 2, 4, 4, 8);
    in->nodes = in->devices > 2 ? DRAW_OF(r, 1, 1, 2) : 1;
    in->memory = in->kind == PERCEPTRON ? DRAW_OF(r, 16000, 30000, 60000, 1000000) : DRAW_OF(r, 30000, 60000, 120000, 1000000);
    for (int i = 0; i < OPENS; i++)
        in->open[i] = draw_below(r, 5) < 3;
    if (in->hidden == 16 || in->devices > 2)
        in->open[OPEN_splits] = draw_below(r, 6) == 0;
    in->open[OPEN_splits] &= in->kind == PERCEPTRON;
    in->open[OPEN_cuts] |= in->devices == 1;
    in->given = given_rules(in);
    Arena *a = in->c.a;
    const char *model = model_text(in), *cluster = cluster_text(in);
    open_case_on(&in->c, model, cluster);
    in->given = arena_strdup(in->c.a, in->given);
    read_pieces(in);
    arena_free(a);
}

/* ---- one layout ---- */

static Status ask(Instance *in, PlanUse use, const char *text, SearchLimits limits, Search *found)
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

/* What one layout leaves behind goes with it: there are thousands. */
static void try_layout(Instance *in, const char *rules)
{
    Search none;
    if (++in->plans > in->most)
        return;
    Case *c = &in->c;
    Arena *kept = c->l.ir, *own = c->l.ir = arena_new("layout");
    if (ask(in, USE_ESTIMATE, rules, search_limits, &none) == OK) {
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
        (void)ask(in, USE_PLAN, w->text, limits, &found);
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

static void enumerate(Instance *in)
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

/* ---- tests ---- */

/* Draws that have more plans are left out. */
static bool draw_small(Instance *in, uint64_t seed, uint64_t most)
{
    draw_instance(in, seed);
    in->most = most;
    enumerate(in);
    if (in->plans <= most)
        return true;
    close_case(&in->c);
    return false;
}

static void describe(const Instance *in, uint64_t seed)
{
    print_message("seed %llu: kind %d, batch %lld, seq %lld, rounds %lld + %lld, hidden %lld, ffn %lld, class %lld, %lld %s devices in %lld nodes, %lld B; %s\n", (unsigned long long)seed, (int)in->kind,
                  (long long)in->batch, (long long)in->seq, (long long)in->rounds, (long long)in->more, (long long)in->hidden, (long long)in->ffn, (long long)in->class, (long long)in->devices,
                  in->cuda ? "cuda" : "cpu", (long long)in->nodes, (long long)in->memory, in->given);
}

/* What the instances and the plans found for them were, counted. */
typedef struct Coverage { uint64_t plans, fit, of_kind[KINDS], pp, dp, cp, tp, micro, gpipe, shard, again, cuts, order, unfit; } Coverage;

static void count_plan(Coverage *n, const Plan *p)
{
    n->pp += p->mesh[AXIS_pp] > 1;
    n->dp += p->mesh[AXIS_dp] > 1;
    n->cp += p->mesh[AXIS_cp] > 1;
    n->tp += p->mesh[AXIS_tp] > 1;
    n->micro += p->microbatches > 1;
    n->gpipe += strcmp(p->schedule, "gpipe") == 0;
    for (uint32_t i = 0; i < p->nrule; i++) {
        n->shard += p->rule[i].kind == RULE_SHARD;
        n->again += p->rule[i].kind == RULE_RECOMPUTE;
    }
    for (uint32_t i = 0; i + 1 < p->ndevices; i++)
        if (p->devices[i] > p->devices[i + 1]) {
            n->order++;
            return;
        }
}

/* The same in the way of large spaces: what it finds is no better, and its bound no worse, than the best. */
static void check_large(Instance *in, uint64_t seed, uint64_t *missed)
{
    SearchLimits limits = search_limits;
    Search found;
    limits.exhaustive = 0;
    if (ask(in, USE_PLAN, in->given, limits, &found) != OK) {
        *missed += in->fit > 0;                         /* what fits may be missed there */
        return;
    }
    if (in->fit == 0 || found.best[0].ns < in->best || found.bound > (double)in->best) {
        describe(in, seed);
        fail_msg("%lld ns found, bound %.0f, the best %lld", (long long)found.best[0].ns, found.bound, (long long)in->best);
    }
}

static void check_instance(Instance *in, uint64_t seed, Coverage *n)
{
    Search found;
    Status s = ask(in, USE_PLAN, in->given, search_limits, &found);
    n->plans += in->plans;
    n->fit += in->fit;
    n->unfit += in->fit == 0;
    n->of_kind[in->kind]++;
    if ((s == OK) != (in->fit > 0) || (s == OK && found.best[0].ns != in->best) || (s == OK && !found.proven)) {
        describe(in, seed);
        if (s == OK)
            print_message("found: %s\n", pins_text(in->c.l.ir, pins_of(in->c.l.ir, in->c.l.graph, found.best[0].plan)));
        fail_msg("search: %s, %lld ns, %s; %llu of %llu plans fit, the fastest %lld ns", s == OK ? "found" : "refused", s == OK ? (long long)found.best[0].ns : 0,
                 found.proven ? "proven" : found.cut, (unsigned long long)in->fit, (unsigned long long)in->plans, (long long)in->best);
    }
    if (s == OK)
        count_plan(n, found.best[0].plan);
}

/* CHECK_ALL: others, and larger ones. */
static void is_the_best_of_all(void **unused)
{
    (void)unused;
    bool all = getenv("CHECK_ALL") != NULL;
    uint64_t seed = all ? 1000000 : 0, most = all ? 20000 : 150;
    Coverage n = {0};
    Instance in;
    for (int i = 0; i < 300; seed++) {
        if (!draw_small(&in, seed, most))
            continue;
        check_instance(&in, seed, &n);
        close_case(&in.c);
        i++;
    }
    print_message("# %llu plans, %llu fit; of the best: pp %llu, dp %llu, cp %llu, tp %llu, micro-batches %llu, gpipe %llu, sharded %llu, recomputed %llu, another order %llu; nothing fits %llu\n",
                  (unsigned long long)n.plans, (unsigned long long)n.fit, (unsigned long long)n.pp, (unsigned long long)n.dp, (unsigned long long)n.cp, (unsigned long long)n.tp,
                  (unsigned long long)n.micro, (unsigned long long)n.gpipe, (unsigned long long)n.shard, (unsigned long long)n.again, (unsigned long long)n.order,
                  (unsigned long long)n.unfit);
    assert_true(n.of_kind[PERCEPTRON] > 50 && n.of_kind[ATTENTION] > 50 && n.of_kind[BOTH] > 20);
    assert_true(n.pp && n.dp && n.cp && n.tp && n.micro && n.gpipe && n.shard && n.again && n.order && n.unfit);
    assert_true(all || n.plans <= 200000);
}

static void bound_below_optimum_below_heuristic(void **unused)
{
    (void)unused;
    uint64_t missed = 0, fit = 0;
    Instance in;
    for (uint64_t seed = 20000, i = 0; i < 150; seed++) {
        if (!draw_small(&in, seed, 80))
            continue;
        check_large(&in, seed, &missed);
        fit += in.fit > 0;
        close_case(&in.c);
        i++;
    }
    print_message("# %llu instances of which something fits, %llu of them missed\n", (unsigned long long)fit, (unsigned long long)missed);
    assert_true(fit > 50 && missed * 20 < fit);
}

/* Which of equal nodes, or of equal devices of a node, comes first is all the same. */
static void equal_nodes_may_be_permuted(void **unused)
{
    (void)unused;
    int permuted = 0;
    for (uint64_t seed = 30000; permuted < 40; seed++) {
        Instance in;
        Search one, other;
        draw_instance(&in, seed);
        if (in.nodes == 2) {
            Text t = text_new(in.c.a), u = text_new(in.c.a);
            for (int64_t i = 0, half = in.devices / 2; i < in.devices; i++) {
                text_add(&t, "%s%lld", i ? ", " : "", (long long)i);
                text_add(&u, "%s%lld", i ? ", " : "", (long long)((seed % 2 ? in.devices - 1 - i : i < half ? i + half : i - half)));
            }
            Status s = ask(&in, USE_PLAN, arena_printf(in.c.a, "%s devices = [%s]", in.given, t.s), search_limits, &one);
            assert_int_equal(ask(&in, USE_PLAN, arena_printf(in.c.a, "%s devices = [%s]", in.given, u.s), search_limits, &other), s);
            if (s == OK) {
                assert_int_equal(one.best[0].ns, other.best[0].ns);
                permuted++;
            }
        }
        close_case(&in.c);
    }
}

/* Rounds that need most of the memory, for weights and for what they keep. */
static void draw_deep(Instance *in, uint64_t seed)
{
    *in = (Instance){.draw = draw_from(seed, "deep"), .most = UINT64_MAX, .by_config = true};
    Draw *r = &in->draw;
    Arena *a = in->c.a = arena_new("test");
    in->cuda = in->adamw = true;
    in->batch = DRAW_OF(r, 32, 64, 1024);
    in->rounds = 4;
    in->hidden = DRAW_OF(r, 4, 16, 32);
    in->ffn = DRAW_OF(r, 16, 32, 128);
    in->class = 3;
    in->devices = DRAW_OF(r, 1, 2, 2);
    in->nodes = 1;
    in->memory = 1000000;
    in->open[OPEN_schedule] = in->open[OPEN_cuts] = in->open[OPEN_again] = in->open[OPEN_pp] = true;
    in->given = "mesh tp = 1; microbatches = 2; ";
    const char *model = model_text(in), *cluster = cluster_text(in);
    open_case_on(&in->c, model, cluster);
    read_pieces(in);
    arena_free(a);
}

/* From where nothing fits to where nothing is recomputed. */
static void bounds_hold(void **unused)
{
    (void)unused;
    uint64_t configs = 0, tight = 0;
    for (uint64_t seed = 0; seed < 6; seed++) {
        Instance in;
        draw_deep(&in, seed);
        double weights = 16.0 * (double)(in.rounds * 2 * in.hidden * in.ffn), kept = 4.0 * (double)(in.rounds * in.batch * (in.hidden + 2 * in.ffn));
        for (int part = 1; part <= 30; part++) {
            device_of(&in.c)->memory = (int64_t)((weights + kept) * part / 25);
            in.fit = 0;
            enumerate(&in);
        }
        configs += in.configs;
        tight += in.tight;
        close_case(&in.c);
    }
    print_message("# %llu configurations with room, %llu of them bounded within 10 %%\n", (unsigned long long)configs, (unsigned long long)tight);
    assert_true(configs > 100 && tight > 0);
}

/* A better machine never has a slower best plan: more memory, bandwidth of memory, peak, links. */
static int64_t best_of(Instance *in)
{
    Search found;
    return ask(in, USE_PLAN, in->given, search_limits, &found) == OK ? found.best[0].ns : INT64_MAX;
}

static void more_never_hurts(void **unused)
{
    (void)unused;
    Instance in;
    for (uint64_t seed = 5000, i = 0; i < 40; seed++) {
        if (!draw_small(&in, seed, 60))
            continue;
        i++;
        Device *d = device_of(&in.c);
        int64_t before = best_of(&in);
        for (int what = 0; what < 4; what++) {
            Device was = *d;
            Level level = in.c.l.cluster->level[0];
            d->memory *= what == 0 ? 4 : 1;
            d->bandwidth *= what == 1 ? 2 : 1;
            d->peak[DT_f32] *= what == 2 ? 2 : 1;
            in.c.l.cluster->level[0].link *= what == 3 ? 2 : 1;
            int64_t after = best_of(&in);
            *d = was;
            in.c.l.cluster->level[0] = level;
            if (after > before) {
                describe(&in, seed);
                fail_msg("with more of %d the best plan takes %lld ns, before %lld", what, (long long)after, (long long)before);
            }
        }
        close_case(&in.c);
    }
}

/* One long sequence, of which a device cannot hold what backward reads: with tp and stages forbidden, cp alone helps. */
static void a_long_sequence_fits_by_context(void **unused)
{
    (void)unused;
    static const char model[] =
        "model m {\n dim batch = 2, seq = 4096, vocab = 16, d = 16, heads = 4\n precision { compute = f32 }\n optimizer adamw { lr = 1e-3 }\n"
        " input ids[batch, seq] : i32\n input labels[batch, seq] : i32\n dim width = d / heads\n weight tok[vocab, d]\n x = embed(ids, tok)\n"
        " repeat 4 as h {\n  n = rmsnorm(x)\n  q = linear(n, [heads, width])\n  k = linear(n, [heads, width])\n  v = linear(n, [heads, width])\n"
        "  x = x + out: linear(attention(q, k, v, causal = true), d, over = [heads, width])\n }\n minimize cross_entropy(head: linear(x, vocab), labels)\n}\n";
    static const char machine[] = "device g {\n  backend = cuda\n  memory = 2400 kB\n  reserve = 0 B\n  bandwidth = 1 TB/s\n  peak.f32 = 1 TFLOP/s\n}\n"
                                  "cluster c { level node = 8 * g { link = 100 GB/s, latency = 1 us } }\n";
    Instance in = {.kind = ATTENTION};
    Search found;
    open_case_on(&in.c, model, machine);
    assert_int_equal(ask(&in, USE_PLAN, "mesh tp = 1, pp = 1, cp = 1; devices = [0, 1]", search_limits, &found), ERR_REJECT);
    assert_int_equal(ask(&in, USE_PLAN, "mesh tp = 1, pp = 1", search_limits, &found), OK);
    assert_true(in.c.plan->mesh[AXIS_cp] > 1);
    assert_true(in.c.plan->nrule > 0 && in.c.plan->rule[0].kind == RULE_SPLIT && in.c.plan->rule[0].by.axis[0] == AXIS_cp);
    close_case(&in.c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(is_the_best_of_all), cmocka_unit_test(bound_below_optimum_below_heuristic),
                                       cmocka_unit_test(equal_nodes_may_be_permuted), cmocka_unit_test(a_long_sequence_fits_by_context),
                                       cmocka_unit_test(bounds_hold), cmocka_unit_test(more_never_hurts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
