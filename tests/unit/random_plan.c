/* Random machines and rules: see random_model.h. */
#include "tests/unit/random_model.h"

#include "base/text.h"

enum { MOST_DEVICES = 8 };

/* ---- machines ---- */

/* Slow ones that talk fast: splits pay even for models this small. */
const char *random_cores(Arena *a, int64_t devices)
{
    return arena_printf(a,
        "device core {\n  backend = cpu\n  threads = 1\n  memory = 1 GiB\n  bandwidth = 1 GB/s\n"
        "  peak.f32 = 200 MFLOP/s\n  peak.f64 = 100 MFLOP/s\n  launch = 10 ns\n}\n\n"
        "cluster cores {\n  level socket = %lld * core { link = 50 GB/s, latency = 100 ns, topology = full }\n}\n", (long long)devices);
}

/* Bytes that a device needs for a model it has alone, about: states, and what backward reads. */
static int64_t bytes_about(const RandomModel *m)
{
    int64_t tokens = m->batch * (m->seq ? m->seq : 1), kept = 10 * m->hidden + 4 * m->ffn + 4 * m->heads * m->width + m->heads * m->seq;
    return 16 * m->weights + 4 * tokens * (m->layers * kept + 3 * m->vocab);
}

/* Two thirds have less than twice what one device would need. */
static int64_t draw_memory(Draw *d, const RandomModel *m)
{
    int64_t percent = DRAW_OF(d, 20, 30, 45, 60, 80, 100, 130, 170, 1000, 1000, 10000, 10000);
    return bytes_about(m) * percent / 100 + 4096;
}

static void add_device(Text *t, Draw *d, const RandomModel *m, bool cuda)
{
    int64_t peak = DRAW_OF(d, 1, 5, 20, 100);
    text_add(t, "device unit {\n  backend = %s\n  memory = %lld B\n  bandwidth = %lld GB/s\n", cuda ? "cuda" : "cpu", (long long)draw_memory(d, m),
             (long long)DRAW_OF(d, 1, 3, 10, 30));
    text_add(t, "  peak.f32 = %lld GFLOP/s\n  peak.f64 = %lld GFLOP/s\n  peak.bf16 = %lld GFLOP/s\n", (long long)peak, (long long)peak, (long long)(2 * peak));
    text_add(t, "  launch = %lld us\n", (long long)DRAW_OF(d, 1, 2, 5, 20));
    if (!cuda)
        text_add(t, "  threads = 1\n");
    if (cuda && draw_one_in(d, 2))
        text_add(t, "  sms = 4\n  tile = 0.9\n");
    if (draw_one_in(d, 2))
        text_add(t, "  efficiency = [[0, 0.3], [1 MFLOP, 0.8]]\n");
    text_add(t, "}\n\n");
}

static void add_level(Text *t, Draw *d, const char *name, int64_t count, const char *of, bool slow)
{
    static const char *const topology[] = {"full", "switch", "ring"};
    int64_t link = DRAW_OF(d, 200, 1000, 5000, 20000);
    text_add(t, "  level %s = %lld * %s { link = %lld MB/s, latency = %lld us, topology = %s", name, (long long)count, of, (long long)(slow ? link / 10 : link),
             (long long)(DRAW_OF(d, 1, 3, 10) * (slow ? 5 : 1)), topology[draw_below(d, 3)]);
}

RandomCluster random_cluster(Arena *a, uint64_t seed, const RandomModel *m)
{
    Draw d = draw_from(seed, "cluster");
    Text t = text_new(a);
    bool cuda = !draw_one_in(&d, 3), nested = cuda && draw_one_in(&d, 2);
    int64_t inner = 1 + draw_below(&d, nested ? 4 : MOST_DEVICES), outer = nested ? 2 + draw_below(&d, (uint32_t)(MOST_DEVICES / inner - 1)) : 1;
    add_device(&t, &d, m, cuda);
    text_add(&t, "cluster random {\n");
    add_level(&t, &d, "node", inner, "unit", false);
    text_add(&t, cuda ? " }\n" : ", cores = %d }\n", 1 + draw_below(&d, 4));
    if (nested) {
        add_level(&t, &d, "pod", outer, "node", true);
        text_add(&t, " }\n");
    }
    text_add(&t, "}\n");
    return (RandomCluster){t.s, inner * outer};
}

/* ---- parts of a layout ---- */

static void add_rule(Text *t, const char *rule)
{
    text_add(t, "%s%s", t->n ? "; " : "", rule);
}

static int64_t draw_divisor(Draw *d, int64_t n)
{
    int64_t k = 1 + draw_below(d, (uint32_t)n);
    while (n % k)
        k--;
    return k;
}

const char *random_pins(Arena *a, uint64_t seed, const RandomModel *m, int64_t devices)
{
    static const char *const axes[] = {"pp", "dp", "tp"};
    Draw d = draw_from(seed, "pins");
    Text t = text_new(a);
    for (int i = 0; i < 3; i++)
        if (draw_one_in(&d, 5))
            add_rule(&t, arena_printf(a, "mesh %s = %lld", axes[i], (long long)draw_divisor(&d, devices)));
    if (draw_one_in(&d, 4))
        add_rule(&t, arena_printf(a, "microbatches = %lld", (long long)draw_divisor(&d, m->batch)));
    if (draw_one_in(&d, 6))
        add_rule(&t, draw_one_in(&d, 2) ? "schedule = \"gpipe\"" : "schedule = \"1f1b\"");
    if (m->heads && draw_one_in(&d, 8))
        add_rule(&t, "keep heads whole");
    if (draw_one_in(&d, 8))
        add_rule(&t, draw_one_in(&d, 2) ? "split ffn by tp" : "keep ffn whole");
    if (draw_one_in(&d, 8))
        add_rule(&t, "recompute h full");
    if (draw_one_in(&d, 8))
        add_rule(&t, "shard optimizer by dp");
    return t.s;
}

/* ---- whole layouts ---- */

/* Places where a model can be cut: before a round, inside it, before the last norm. */
static int64_t places_of(const RandomModel *m)
{
    return (m->halves ? 2 : 1) * m->layers + 1;
}

static const char *cut_at(Arena *a, const RandomModel *m, int64_t place)
{
    int64_t round = m->halves ? place / 2 : place;
    if (round == m->layers)
        return "last";
    return arena_printf(a, m->halves && place % 2 ? "h[%lld].norm2" : "h[%lld]", (long long)round);
}

static void add_cuts(Arena *a, Text *t, Draw *d, const RandomModel *m, int64_t pp)
{
    int64_t places = places_of(m), left = pp - 1;
    for (int64_t p = 0; p < places; p++)
        if (draw_below(d, (uint32_t)(places - p)) < left) {
            add_rule(t, arena_printf(a, "stage before %s", cut_at(a, m, p)));
            left--;
        }
}

static bool divides(int64_t n, int64_t extent)
{
    return extent % n == 0;
}

/* Splits by tp: of what it divides, most; of what it does not, a vocabulary that is padded. */
static void add_splits(Arena *a, Text *t, Draw *d, const RandomModel *m, int64_t tp)
{
    Text names = text_new(a);
    if (m->heads && divides(tp, m->heads) && !draw_one_in(d, 6))
        text_add(&names, "heads");
    if (divides(tp, m->ffn) && !draw_one_in(d, 6))
        text_add(&names, "%sffn", names.n ? ", " : "");
    bool padded = !divides(tp, m->vocab) && draw_one_in(d, 2);
    if (padded)
        add_rule(t, arena_printf(a, "pad vocab to %lld", (long long)tp));
    if (padded || (divides(tp, m->vocab) && !draw_one_in(d, 4)))
        text_add(&names, "%svocab", names.n ? ", " : "");
    if (names.n)
        add_rule(t, arena_printf(a, "split %s by tp", names.s));
    if (m->seq && divides(tp, m->seq) && draw_one_in(d, 2))
        add_rule(t, "split seq by tp");
}

/* Sizes that are refused: too few samples, positions or places. */
static bool is_legal(const RandomModel *m, const RandomLayout *l)
{
    return m->batch % (l->dp * l->microbatches) == 0 && (l->cp == 1 || (m->seq && divides(l->cp, m->seq))) && l->pp <= places_of(m) &&
           (l->tp == 1 || divides(l->tp, m->ffn) || (m->heads && divides(l->tp, m->heads)));
}

/* Several devices at least; one in eight has sizes that may be refused. */
static RandomLayout draw_sizes(Draw *d, const RandomModel *m)
{
    RandomLayout l = {.pp = 2, .dp = 1, .cp = 1, .tp = 1, .microbatches = 1};
    bool any = draw_one_in(d, 8);
    for (int tries = 0; tries < 200; tries++) {
        RandomLayout x = {.pp = DRAW_OF(d, 1, 1, 2, 2, 3, 4, 5, 8), .dp = DRAW_OF(d, 1, 1, 2, 2, 3, 4, 6), .cp = DRAW_OF(d, 1, 1, 1, 1, 1, 2, 3),
                          .tp = DRAW_OF(d, 1, 1, 2, 2, 3, 4, 5, 6), .microbatches = DRAW_OF(d, 1, 1, 2, 3, 4)};
        int64_t devices = x.pp * x.dp * x.cp * x.tp;
        if (devices > 1 && devices <= MOST_DEVICES && (any || is_legal(m, &x)))
            return x;
    }
    return l;
}

RandomLayout random_layout(Arena *a, uint64_t seed, const RandomModel *m)
{
    static const char *const policy[] = {"full", "attention", "cheap"};
    Draw d = draw_from(seed, "layout");
    RandomLayout l = draw_sizes(&d, m);
    Text t = text_new(a);
    add_rule(&t, arena_printf(a, "mesh pp = %lld, dp = %lld, cp = %lld, ep = 1, tp = %lld", (long long)l.pp, (long long)l.dp, (long long)l.cp, (long long)l.tp));
    add_rule(&t, arena_printf(a, "microbatches = %lld; bucket = %lld kB", (long long)l.microbatches, (long long)DRAW_OF(&d, 1, 4, 20)));
    add_cuts(a, &t, &d, m, l.pp);
    if (l.cp > 1 && m->seq)
        add_rule(&t, "split seq by cp");
    if (l.tp > 1 && !draw_one_in(&d, 4))
        add_splits(a, &t, &d, m, l.tp);
    if (l.pp > 1 && draw_one_in(&d, 2))
        add_rule(&t, "schedule = \"gpipe\"");
    if (l.dp > 1 && m->moments && draw_one_in(&d, 2))
        add_rule(&t, "shard optimizer by dp");
    if (draw_one_in(&d, 3))
        add_rule(&t, arena_printf(a, "recompute h %s", policy[draw_below(&d, m->heads ? 3 : 2)]));
    l.rules = t.s;
    return l;
}
