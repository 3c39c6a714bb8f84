#ifndef TESTS_UNIT_LAYOUT_MODELS_H
#define TESTS_UNIT_LAYOUT_MODELS_H
/* The models of the layout matrix, in two families: tiny decoders whose axes divide by every
 * degree up to 6, with what a decoder may have; and the bundled models of other kinds, which
 * are their very files, made tiny, and a Llama on packed documents. */
#include <math.h>

#include "base/text.h"
#include "tests/unit/layouts.h"

/* An axis that tp splits in every plan of a model where tp > 1. */
typedef struct SplitAxis { const char *name; int64_t extent; } SplitAxis;   /* as it is stored */

enum { MOST_SPLITS = 2, MOST_POSITIONS = 2 };

typedef struct Fixture {
    const char *name;
    Setting     of;
    /* places to cut it: those named, or of a decoder before each round of `block`, before its
     * second half and before the last norm */
    const char *const *cut; int ncut;
    const char *block, *half, *last;
    int         layers;
    const char *rules;                /* of every plan */
    const char *recomputed;           /* the rules that recompute it */
    SplitAxis   split[MOST_SPLITS];
    bool        heads;                /* has an axis of 12 heads, split where tp divides it */
    const char *position[MOST_POSITIONS];            /* axes of positions */
    void      (*lengths)(Text *, int64_t seq);       /* the defines that make the first of them so long, the second twice as long */
    bool        whole;                /* one micro-batch only */
    /* what ranks begin with */
    const char *zeroed;               /* weights of this path start at zero: the loss is ln V; NULL: none */
    bool        ignores;              /* labels that do not count, more of them in the first samples */
} Fixture;

/* ---- decoders ---- */

enum { IGNORED = 59, VOCAB = 60 };    /* IGNORED: a class, so that it is a label of any model */
#define CLIPPED 0.05                  /* the norm that gradients are clipped to: smaller than that of any model here */

#define DECODER "include \"decoder.pmodel\"\n"                                                                              \
    "model m {\n dim batch = 8, seq = 12, vocab = 60, hidden = 48, ffn = 120, heads = 12, kv_heads = 4\n"                   \
    " param layers = 2, dtype = f64\n defaults { linear.bias = false }\n precision { compute = dtype }\n"                   \
    " optimizer adamw { lr = 1e-3, beta1 = 0.9, beta2 = 0.95, weight_decay = 0.1 }\n"                                       \
    " input ids[batch, seq] : i32\n input labels[batch, seq] : i32\n"
#define LAYERS(window) " repeat layers as layer {\n"                                                                        \
    "  x = x + attn(norm1: rmsnorm(x), heads, kv_heads" window ")\n  x = x + mlp: swiglu(norm2: rmsnorm(x), ffn)\n }\n"

static const char zero_head[] = DECODER " weight tok[vocab, hidden]\n x = embed(ids, tok)\n" LAYERS("")
    " minimize cross_entropy(head: linear(norm: rmsnorm(x), vocab, init = zeros), labels)\n}\n";
static const char two_losses[] = DECODER " weight tok[vocab, hidden]\n x = embed(ids, tok)\n" LAYERS("")
    " main = cross_entropy(head: linear(norm: rmsnorm(x), vocab, bias = true), labels, ignore = 59, smooth = 0.1)\n"
    " again = cross_entropy(back: linear(x, vocab), ids, ignore = 58)\n minimize main + 0.3 * again\n}\n";
static const char windowed[] = DECODER " weight tok[vocab, hidden] frozen\n x = embed(ids, tok)\n" LAYERS(", window = 5")
    " minimize cross_entropy(head: linear(norm: rmsnorm(x), vocab), labels)\n}\n";

#define GPT2 "vocab=61 hidden=48 heads=12 ffn=120 context=60"

static void seq_alone(Text *t, int64_t seq)
{
    text_add(t, "seq=%lld", (long long)seq);
}

#define OF_DECODER .lengths = seq_alone, .heads = true, .position = {"seq"}
#define OF_GPT2 OF_DECODER, .block = "h", .half = "ln2", .last = "ln_f", .rules = "pad vocab to 60; ", .recomputed = "recompute h full", \
    .split = {{"ffn", 120}, {"vocab", 120}}
#define OF_LLAMA OF_DECODER, .block = "layer", .half = "norm2", .last = "norm", .rules = "", .recomputed = "recompute layer full", \
    .split = {{"ffn", 120}, {"vocab", 60}}

static const Fixture decoders[] = {
    {.name = "tied_and_padded", .of = {"tiny_gpt2", GPT2, NULL}, .layers = 5, OF_GPT2},
    {.name = "grouped_heads", .of = {"tiny_llama", "vocab=60 hidden=48 heads=12 kv_heads=4 ffn=120", NULL}, .layers = 7, OF_LLAMA},
    {.name = "dropout", .of = {"tiny_gpt2", GPT2 " drop=0.2", NULL}, .layers = 2, OF_GPT2},
    {.name = "zero_head", .of = {"zero_head", "", zero_head}, .layers = 5, OF_LLAMA, .zeroed = "head.w"},
    {.name = "two_losses_of_unequal_labels", .of = {"two_losses", "", two_losses}, .layers = 7, OF_LLAMA, .ignores = true},
    {.name = "window_and_frozen", .of = {"windowed", "", windowed}, .layers = 3, OF_LLAMA},
};
enum { DECODERS = sizeof decoders / sizeof *decoders };

/* ---- bundled models ---- */

static void bert_lengths(Text *t, int64_t seq)
{
    text_add(t, "seq=%lld position=60", (long long)seq);
}

static void t5_lengths(Text *t, int64_t seq)
{
    text_add(t, "target=%lld source=%lld", (long long)seq, (long long)(2 * seq));
}

/* A row of patches, and the learned token before them. */
static void vit_lengths(Text *t, int64_t seq)
{
    text_add(t, "patch=2 height=2 width=%lld", (long long)(2 * (seq - 1)));
}

/* Longer than the window of 32 in every other layer. */
static void tower_lengths(Text *t, int64_t seq)
{
    text_add(t, "seq=%lld", (long long)(seq == 12 ? 36 : 2 * seq));
}

static void no_lengths(Text *t, int64_t seq)
{
    (void)t;
    (void)seq;
}

static const char *const bert_cuts[] = {"layer[0].ln1", "layer[0].mlp", "layer[1]", "layer[1].mlp", "mlm", "pooler"};
static const char *const t5_cuts[] = {"enc[0].mlp", "enc[1]", "dec[0]", "dec[0].cross", "dec[1]", "dec[1].mlp", "dec_norm"};
static const char *const vit_cuts[] = {"layer[0]", "layer[0].mlp", "layer[1]", "layer[1].mlp", "ln", "head"};
static const char *const mlp_cuts[] = {"h", "fc2"};
static const char *const tower_cuts[] = {"left.layer[0].mlp", "left.layer[1]", "right", "right.layer[1]", "right.layer[1].mlp", "score"};
static const char *const packed_cuts[] = {"layer[0]", "layer[0].mlp", "layer[1]", "layer[1].mlp", "norm"};
#define CUTS(list) .cut = list, .ncut = sizeof list / sizeof *list
#define WIDTHS "hidden=48 heads=12 ffn=120"

static const Fixture bundled[] = {
    {.name = "bert_base", .of = {"bert_base", "vocab=60 drop=0.1 " WIDTHS, NULL}, CUTS(bert_cuts), .layers = 2, .rules = "", .recomputed = "recompute layer full",
     .split = {{"ffn", 120}, {"vocab", 60}}, .heads = true, .position = {"seq"}, .lengths = bert_lengths, .ignores = true},
    {.name = "t5_small", .of = {"t5_small", "vocab=60 head_dim=4 " WIDTHS, NULL}, CUTS(t5_cuts), .layers = 2, .rules = "", .recomputed = "recompute enc full; recompute dec full",
     .split = {{"ffn", 120}, {"vocab", 60}}, .heads = true, .position = {"target", "source"}, .lengths = t5_lengths},
    {.name = "vit_b16", .of = {"vit_b16", "class=60 " WIDTHS, NULL}, CUTS(vit_cuts), .layers = 2, .rules = "", .recomputed = "recompute layer full",
     .split = {{"ffn", 120}, {"class", 60}}, .heads = true, .position = {"seq"}, .lengths = vit_lengths},
    {.name = "mlp", .of = {"mlp", "pixel=24 hidden=120 class=60", NULL}, CUTS(mlp_cuts), .rules = "", .recomputed = "recompute fc1 full",
     .split = {{"hidden", 120}, {"class", 60}}, .lengths = no_lengths},
    {.name = "two_tower", .of = {"two_tower", "vocab=60 hidden=48 heads=12", NULL}, CUTS(tower_cuts), .layers = 2, .rules = "", .recomputed = "recompute left full; recompute right full",
     .split = {{"ffn", 192}, {"vocab", 60}}, .heads = true, .position = {"seq"}, .lengths = tower_lengths, .whole = true},
    {.name = "packed", .of = {"../tests/reference/packed", "vocab=61 kv_heads=4 " WIDTHS, NULL}, CUTS(packed_cuts), .layers = 2, .rules = "pad vocab to 60; ",
     .recomputed = "recompute layer full", .split = {{"ffn", 120}, {"vocab", 120}}, .heads = true, .position = {"seq"}, .lengths = seq_alone, .ignores = true},
};
enum { BUNDLED = sizeof bundled / sizeof *bundled };

/* ---- what ranks begin with ---- */

static void zero_weight(LockRank *r, const char *path)
{
    const State *s = state_of(r->p, path);
    if (s)
        memset(lock_at(r, s->weight, 0, 0), 0, (size_t)tensor_bytes(&r->p->tensor[s->weight.i]));
}

/* Of sample s of n, about (s + 1) / n of the labels count; `label`: its number among all. */
static bool is_ignored(int64_t label, int64_t s, int64_t n)
{
    return lock_noise("ignored", label) > 2.0 * (double)(s + 1) / (double)n - 1;
}

/* Where its document begins, of a token numbered among all: one in four tokens begins one. */
static int64_t start_of(int64_t token, int64_t seq)
{
    while (token % seq > 0 && lock_noise("starts", token) < 0.5)
        token--;
    return token;
}

/* An integer of the model's input: number g of all, of samples of so many, as any layout has it. */
static int64_t integer_of(const Fixture *f, const Input *in, int64_t classes, int64_t g)
{
    int64_t of_sample = 1;
    for (uint8_t x = 1; x < in->rank; x++)
        of_sample *= in->extent[x];
    if (strcmp(in->name, "at") == 0)
        return g - start_of(g, of_sample);
    if (strcmp(in->name, "doc") == 0)
        return start_of(g, of_sample);
    if (f->ignores && strcmp(in->name, "labels") == 0 && is_ignored(g, g / of_sample % in->extent[0], in->extent[0]))
        return in->limit.ignore;
    return lock_integer(in, classes, lock_noise(in->name, g));
}

static void fill_integers(LockRank *r, const Fixture *f, int64_t classes)
{
    for (uint32_t k = 0; k < r->p->ninput; k++) {
        const Input *in = &r->p->input[k];
        if (!has_tensor(in->tensor) || dtype_is_float(in->dtype))
            continue;
        const Tensor *t = &r->p->tensor[in->tensor.i];
        for (uint32_t m = 0; m < r->p->buffer[t->buffer.i].slots; m++)
            for (int64_t i = 0; i < tensor_elements(t); i++)
                int_put(t, lock_at(r, in->tensor, 0, m), i, integer_of(f, in, classes, lock_global(t, i, m)));
    }
}

typedef struct Begun { const Fixture *f; int64_t classes; } Begun;

static void fill_fixture(LockRank *r, const void *ctx)
{
    const Begun *b = ctx;
    lock_fill(r, b->classes);
    if (b->f->zeroed)
        zero_weight(r, b->f->zeroed);
    fill_integers(r, b->f, b->classes);
}

#endif
