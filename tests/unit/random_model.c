/* Random models: see random_model.h.  A family, then extents and options, then the text. */
#include "tests/unit/random_model.h"

#include "base/text.h"

/* ---- numbers ---- */

/* splitmix64 of Vigna and others: passes tests of randomness from any state. */
static uint64_t next_word(Draw *d)
{
    uint64_t z = d->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

Draw draw_from(uint64_t seed, const char *purpose)
{
    return (Draw){seed << 32 | fnv1a(purpose)};
}

uint32_t draw_below(Draw *d, uint32_t n)
{
    return (uint32_t)(next_word(d) >> 33) % n;
}

bool draw_one_in(Draw *d, uint32_t n)
{
    return draw_below(d, n) == 0;
}

int64_t draw_of(Draw *d, const int64_t *list, uint32_t n)
{
    return list[draw_below(d, n)];
}

/* ---- options ---- */

typedef enum Optimizer { ADAMW, ADAMW_CLIPPED, SGD_MOMENTUM, SGD, OPTIMIZERS } Optimizer;

/* What a text has beside its extents. */
typedef struct Options {
    bool        bias, norm_bias;      /* of linears; of layernorms */
    const char *norm;                 /* its op */
    bool        after;                /* norms after the residual, not before the block */
    bool        tied, rope, positions, pooled, gated;
    const char *drop;                 /* NULL: no dropout in the text */
    const char *activation;
    const char *loss;                 /* further arguments of cross_entropy */
    Optimizer   optimizer;
} Options;

/* Half of the heads are in groups, some in one. */
static int64_t kv_heads_of(Draw *d, int64_t heads)
{
    int64_t n = 1 + draw_below(d, (uint32_t)heads);
    while (heads % n)
        n--;
    return draw_one_in(d, 2) ? heads : n;
}

static void draw_extents(Draw *d, RandomModel *m)
{
    m->batch = DRAW_OF(d, 1, 2, 3, 4, 4, 6, 8, 8, 12);
    m->vocab = DRAW_OF(d, 12, 13, 16, 23, 24, 29, 30, 31, 48);
    m->hidden = DRAW_OF(d, 5, 6, 7, 8, 9, 10, 12, 13, 15, 16, 18, 24);
    m->ffn = DRAW_OF(d, 7, 8, 11, 12, 15, 16, 18, 24, 30, 36);
    m->layers = 1 + draw_below(d, 6);
    if (m->family == RANDOM_MLP)
        return;
    m->halves = true;
    m->seq = DRAW_OF(d, 4, 5, 6, 7, 8, 9, 11, 12);
    m->heads = DRAW_OF(d, 1, 2, 2, 3, 4, 4, 5, 6, 6, 8);
    m->kv_heads = m->family == RANDOM_LLAMA ? kv_heads_of(d, m->heads) : m->heads;
    m->width = m->family == RANDOM_LLAMA ? DRAW_OF(d, 2, 4, 6) : DRAW_OF(d, 1, 2, 3, 4, 5);
}

static const char *draw_loss(Draw *d)
{
    static const char *const also[] = {"", "", ", ignore = 3", ", smooth = 0.1"};
    return also[draw_below(d, 4)];
}

static Options draw_options(Draw *d, RandomFamily family)
{
    static const char *const drops[] = {NULL, NULL, "0.0", "0.1"};
    static const char *const activations[RANDOM_FAMILIES] = {"gelu", "silu", "gelu(exact = true)", "relu"};
    bool llama = family == RANDOM_LLAMA, mlp = family == RANDOM_MLP, encoder = family == RANDOM_ENCODER, plain = draw_one_in(d, 4);
    Options o = {.bias = llama == plain, .norm_bias = !draw_one_in(d, 3), .norm = llama == plain ? "layernorm" : "rmsnorm"};
    o.after = encoder && draw_one_in(d, 2);
    o.rope = llama;
    o.positions = family == RANDOM_GPT || encoder;
    o.pooled = encoder && draw_one_in(d, 2);
    o.tied = !mlp && !o.pooled && draw_one_in(d, 2);
    o.gated = llama || draw_one_in(d, 6);
    o.drop = drops[draw_below(d, 4)];
    o.activation = activations[family];
    o.loss = draw_loss(d);
    o.optimizer = (Optimizer)draw_below(d, OPTIMIZERS);
    return o;
}

/* ---- texts ---- */

static void add_attention(Text *t, const Options *o, bool causal)
{
    text_add(t, "block attn(x[.., seq, d], dim heads, dim kv_heads, dim width%s) {\n", o->drop ? ", drop" : "");
    text_add(t, "  q = linear(x, [heads, width])\n  k = linear(x, [kv_heads, width])\n  v = linear(x, [kv_heads, width])\n");
    text_add(t, o->rope ? "  a = attention(rope(q, over = seq), rope(k, over = seq), v" : "  a = attention(q, k, v");
    text_add(t, "%s%s)\n", causal ? ", causal = true" : "", o->drop ? ", dropout = drop" : "");
    text_add(t, "  return out: linear(a, d, over = [heads, width])%s\n}\n\n", o->drop ? " |> dropout(drop)" : "");
}

static void add_mlp(Text *t, const Options *o)
{
    const char *drop = o->drop ? " |> dropout(drop)" : "";
    text_add(t, "block mlp(x[.., d], dim ffn%s) {\n", o->drop ? ", drop" : "");
    if (o->gated)
        text_add(t, "  gate = linear(x, ffn)\n  up = linear(x, ffn)\n  return down: linear((gate |> %s) * up, d)%s\n}\n\n", o->activation, drop);
    else
        text_add(t, "  return x |> up: linear(ffn) |> %s |> down: linear(d)%s\n}\n\n", o->activation, drop);
}

static void add_dims(Text *t, const RandomModel *m, const Options *o, const char *dtype)
{
    text_add(t, "  dim batch = %lld, vocab = %lld, hidden = %lld, ffn = %lld\n", (long long)m->batch, (long long)m->vocab, (long long)m->hidden, (long long)m->ffn);
    if (m->seq)
        text_add(t, "  dim seq = %lld, heads = %lld, kv_heads = %lld, width = %lld\n", (long long)m->seq, (long long)m->heads, (long long)m->kv_heads,
                 (long long)m->width);
    else
        text_add(t, "  dim pixel = 9\n");
    text_add(t, "%s  param layers = %lld, dtype = %s\n", o->positions ? "  dim context = seq\n" : "", (long long)m->layers, dtype);
    if (o->drop)
        text_add(t, "  param drop = %s\n", o->drop);
}

static void add_settings(Text *t, const Options *o)
{
    static const char *const optimizer[OPTIMIZERS] = {
        "adamw { lr = 1e-3, beta1 = 0.9, beta2 = 0.95, weight_decay = 0.1 }", "adamw { lr = 1e-3, beta1 = 0.9, beta2 = 0.95, clip = 0.1 }",
        "sgd { lr = 0.01, momentum = 0.9 }", "sgd { lr = 0.01 }"};
    text_add(t, "  defaults { linear.bias = %s, layernorm.bias = %s }\n", o->bias ? "true" : "false", o->norm_bias ? "true" : "false");
    text_add(t, "  precision { compute = dtype }\n  optimizer %s\n", optimizer[o->optimizer]);
}

static void add_inputs(Text *t, const RandomModel *m, const Options *o)
{
    if (m->family == RANDOM_MLP) {
        text_add(t, "  input image[batch, pixel] : f32\n  input labels[batch] : i32\n  x = first: linear(image, hidden)\n");
        return;
    }
    text_add(t, "  input ids[batch, seq] : i32\n  input labels[%s] : i32\n  weight tok[vocab, hidden]\n", o->pooled ? "batch" : "batch, seq");
    text_add(t, o->positions ? "  weight pos[context, hidden]\n  x = embed(ids, tok) + embed(iota(seq), pos)" : "  x = embed(ids, tok)");
    text_add(t, "%s\n", o->drop ? " |> dropout(drop)" : "");
}

/* One half of a round: a residual around a block, its norm inside or outside. */
static void add_half(Text *t, const Options *o, int n, const char *block, const char *arguments)
{
    const char *drop = o->drop ? ", drop" : "";
    if (o->after)
        text_add(t, "    x = norm%d: %s(x + %s(x, %s%s))\n", n, o->norm, block, arguments, drop);
    else
        text_add(t, "    x = x + %s(norm%d: %s(x), %s%s)\n", block, n, o->norm, arguments, drop);
}

static void add_rounds(Text *t, const RandomModel *m, const Options *o)
{
    text_add(t, "  repeat layers as h {\n");
    if (m->halves)
        add_half(t, o, 1, "attn", "heads, kv_heads, width");
    add_half(t, o, m->halves ? 2 : 1, "mlp", "ffn");
    text_add(t, "  }\n  x = last: %s(x)\n", o->norm);
}

static void add_loss(Text *t, const Options *o)
{
    if (o->pooled)
        text_add(t, "  x = mean(x, over = seq)\n");
    text_add(t, o->tied ? "  logits[batch, seq, vocab] = x * tok\n" : "  logits = head: linear(x, vocab)\n");
    text_add(t, "  minimize cross_entropy(logits, labels%s)\n", o->loss);
}

static const char *text_of(Arena *a, const RandomModel *m, const Options *o, const char *dtype)
{
    Text t = text_new(a);
    if (m->halves)
        add_attention(&t, o, m->family != RANDOM_ENCODER);
    add_mlp(&t, o);
    text_add(&t, "model m {\n");
    add_dims(&t, m, o, dtype);
    add_settings(&t, o);
    add_inputs(&t, m, o);
    add_rounds(&t, m, o);
    add_loss(&t, o);
    text_add(&t, "}\n");
    return t.s;
}

static int64_t count_weights(const RandomModel *m, const Options *o)
{
    int64_t round = (o->gated ? 3 : 2) * m->hidden * m->ffn + 2 * m->hidden * m->width * (m->heads + m->kv_heads);
    return m->layers * round + (o->tied ? 1 : 2) * m->vocab * m->hidden;
}

RandomModel random_model(Arena *a, uint64_t seed, const char *dtype)
{
    Draw d = draw_from(seed, "model");
    RandomModel m = {.family = (RandomFamily)draw_below(&d, RANDOM_FAMILIES)};
    draw_extents(&d, &m);
    Options o = draw_options(&d, m.family);
    m.moments = o.optimizer != SGD;
    m.text = text_of(a, &m, &o, dtype);
    m.weights = count_weights(&m, &o);
    return m;
}
