/* Instances: see instances.h. */
#include "tests/unit/instances.h"

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
        "device d {\n  %s\n%s  memory = %lld B\n  reserve = 0 B\n  bandwidth = %lld GB/s\n  peak.f32 = %lld GFLOP/s\n}\n"
        "cluster c {\n  level node = %lld * d { link = %lld MB/s, latency = %lld us, topology = full%s }\n%s}\n",
        kind, in->courier ? "  comm_threads = 1\n" : "", (long long)in->memory, (long long)DRAW_OF(r, 1, 10, 100), (long long)DRAW_OF(r, 1, 10, 100),
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

void instance_draw(Instance *in, uint64_t seed)
{
    *in = (Instance){.draw = draw_from(seed, "search"), .most = UINT64_MAX};
    Draw *r = &in->draw;
    in->c.a = arena_new("test");
    Draw other = draw_from(seed, "courier");
    in->cuda = draw_below(r, 2);
    in->courier = !in->cuda && draw_below(&other, 2);
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

/* Rounds that need most of the memory, for weights and for what they keep. */
void instance_draw_deep(Instance *in, uint64_t seed)
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
