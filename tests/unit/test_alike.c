/* Stages that are alike have one program: of every two ranks that codegen_alike() calls
 * so, the texts of the lowered programs are compared, names brought to the same rounds.
 * And whatever makes a stage another one is seen. */
#include "codegen/codegen.h"
#include "tests/unit/layouts.h"

/* ---- texts ---- */

static const char *text_of(Arena *a, const Program *p)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    program_print(f, p);
    fclose(f);
    const char *kept = arena_strndup(a, text, bytes);
    free(text);
    return kept;
}

/* `by` added to the number after each "name[". */
static const char *shifted(Arena *a, const char *text, const char *name, long by)
{
    Text out = text_new(a);
    const char *word = arena_printf(a, "%s[", name);
    for (const char *at; (at = strstr(text, word)) != NULL;) {
        char *end;
        long round = strtol(at + strlen(word), &end, 10);
        text_add(&out, "%.*s%s%ld", (int)(at - text), text, word, round + by);
        text = end;
    }
    text_add(&out, "%s", text);
    return out.s;
}

/* Without the numbers after " key=". */
static const char *without(Arena *a, const char *text, const char *key)
{
    Text out = text_new(a);
    const char *word = arena_printf(a, " %s=", key);
    for (const char *at; (at = strstr(text, word)) != NULL;) {
        text_add(&out, "%.*s", (int)(at - text), text);
        text = at + strlen(word);
        text += strspn(text, "-0123456789");
    }
    text_add(&out, "%s", text);
    return out.s;
}

/* What follows from the number of slots. */
static const char *without_slots(Arena *a, const char *text)
{
    static const char *const key[] = {"slots", "offset", "first", "last", "private", "shared"};
    for (size_t i = 0; i < sizeof key / sizeof *key; i++)
        text = without(a, text, key[i]);
    return text;
}

/* ---- programs of stages that are alike ---- */

typedef struct Like { Setting setting; Pin pin; const char *repeat; long rounds; uint32_t lowered; } Like;

static uint32_t slots_of(const Program *p)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < p->nbuffer; i++)
        if (!p->buffer[i].by_micro && p->buffer[i].slots > most)
            most = p->buffer[i].slots;
    return most;
}

/* `like` is made from the program of a rank `stages` before. */
static void same_program(Arena *a, const Like *c, const Program *like, const Program *own, uint32_t stages)
{
    const char *x = shifted(a, text_of(a, like), c->repeat, c->rounds * (long)stages), *y = text_of(a, own);
    if (slots_of(like) != slots_of(own)) {
        x = without_slots(a, x);
        y = without_slots(a, y);
    }
    assert_string_equal(x, y);
}

/* The first rank of another stage that is like this one, among those that are like none. */
static uint32_t first_alike(const Codegen *cg, const uint32_t *first, uint32_t rank, uint32_t per_stage)
{
    for (uint32_t r = rank % per_stage; r < rank; r += per_stage)
        if (first[r] == r && codegen_alike(cg, r, rank))
            return r;
    return rank;
}

static void check_like(const Like *c)
{
    Model m = model_load(c->setting);
    Plan plan = plan_of(&m, c->pin);
    Program **own = lower_programs(&m, &plan);
    uint32_t per_stage = plan.ndevices / (uint32_t)c->pin.pp, lowered = 0;
    uint32_t *first = NEWN(m.a, uint32_t, plan.ndevices);
    Codegen *cg;
    assert_int_equal(codegen_open(m.ds, m.g, &plan, m.cl, &cg), OK);
    for (uint32_t r = 0; r < plan.ndevices; r++) {
        first[r] = first_alike(cg, first, r, per_stage);
        lowered += first[r] == r;
        assert_string_equal(text_of(m.a, codegen_rank(cg, m.a, r)), text_of(m.a, own[r]));
        if (first[r] != r)
            same_program(m.a, c, codegen_like(cg, m.a, own[first[r]], r), own[r], (r - first[r]) / per_stage);
    }
    codegen_close(cg);
    assert_int_equal(lowered, c->lowered * per_stage);
    arena_free(m.a);
}

#define GPT2   {"tiny_gpt2", "batch=8 seq=6 vocab=60 hidden=24 heads=4 ffn=60 layers=8 context=6", NULL}
#define LLAMA  {"tiny_llama", "batch=8 seq=6 vocab=60 hidden=24 heads=4 kv_heads=2 ffn=60 layers=8", NULL}
#define LLAMA7 {"tiny_llama", "batch=8 seq=6 vocab=60 hidden=24 heads=4 kv_heads=2 ffn=60 layers=7", NULL}
#define TP     "split heads, ffn, vocab by tp; split seq by tp"
#define CUTS   "stage every 2 in layer"

static void like_stages(void **unused)
{
    (void)unused;
    static const Like all[] = {
        {LLAMA, {4, 1, 1, 1, 4, CUTS}, "layer", 2, 3},
        {LLAMA, {4, 1, 1, 1, 4, CUTS "; schedule = \"gpipe\""}, "layer", 2, 3},
        {LLAMA, {4, 1, 1, 1, 1, CUTS}, "layer", 2, 3},
        {LLAMA, {4, 1, 1, 2, 4, CUTS "; " TP}, "layer", 2, 3},
        {LLAMA, {4, 2, 1, 1, 4, CUTS "; shard optimizer by dp; recompute layer full"}, "layer", 2, 3},
        {LLAMA, {4, 1, 1, 2, 4, CUTS "; " TP "; recompute layer attention; schedule = \"gpipe\""}, "layer", 2, 3},
        {LLAMA, {4, 2, 1, 1, 2, CUTS "; sync = \"server\"; bucket = 1 B"}, "layer", 2, 3},
        {LLAMA, {8, 1, 1, 1, 4, "stage every 1 in layer"}, "layer", 1, 3},
        {LLAMA7, {4, 1, 1, 1, 4, CUTS}, "layer", 2, 3},
        {GPT2, {4, 1, 1, 2, 4, "stage every 2 in h; split heads, ffn by tp"}, "h", 2, 3},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        check_like(&all[i]);
}

static void rules_make_them_differ(void **unused)
{
    (void)unused;
    static const Like all[] = {
        {LLAMA, {4, 1, 1, 1, 4, CUTS "; recompute layer[2..3] full"}, "layer", 2, 4},
        {LLAMA, {4, 1, 1, 1, 4, CUTS "; recompute layer full; recompute layer[4] attention"}, "layer", 2, 4},
        {LLAMA, {4, 1, 1, 1, 4, CUTS "; recompute layer[2..5].mlp cheap; save layer[5]"}, "layer", 2, 4},
        {LLAMA, {4, 1, 1, 2, 4, CUTS "; split ffn in layer[4] by tp; split heads by tp"}, "layer", 2, 4},
        {LLAMA, {4, 1, 1, 2, 4, CUTS "; split heads, ffn by tp; keep ffn whole in layer[3]"}, "layer", 2, 4},
        {LLAMA, {4, 1, 1, 1, 4, "stage before layer[2]; stage before layer[4]; stage before layer[7]"}, "layer", 2, 4},
        {LLAMA, {4, 1, 1, 1, 4, "stage before layer[2].mlp; stage before layer[4]; stage before layer[6]"}, "layer", 2, 4},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        check_like(&all[i]);
}

/* ---- models whose rounds are not alike ---- */

static Op *op_called(const Model *m, const char *path)
{
    for (uint32_t o = 0; o < m->g->nop; o++)
        if (strcmp(m->g->op[o].path, path) == 0)
            return &m->g->op[o];
    fail_msg("no op %s", path);
    return NULL;
}

static Weight *weight_called(const Model *m, const char *path)
{
    for (uint32_t i = 0; i < m->g->nweight; i++)
        if (strcmp(value_of(m->g, m->g->weight[i].value)->path, path) == 0)
            return &m->g->weight[i];
    fail_msg("no weight %s", path);
    return NULL;
}

static void other_eps(Model *m, Plan *plan)
{
    (void)plan;
    op_called(m, "layer[4].norm2")->attr[0] = ATTR_F(1e-3);
}

static void frozen(Model *m, Plan *plan)
{
    (void)plan;
    weight_called(m, "layer[4].norm2.w")->frozen = true;
}

static void no_decay(Model *m, Plan *plan)
{
    (void)plan;
    weight_called(m, "layer[4].mlp.up.w")->decays = false;
}

static void other_operand(Model *m, Plan *plan)
{
    (void)plan;
    Op *add = op_called(m, "layer[5].add[1]");
    add->arg[1] = add->arg[0];
}

static void order_of_arguments(Model *m, Plan *plan)
{
    (void)plan;
    Op *add = op_called(m, "layer[5].add[1]");
    ValueId x = add->arg[0];
    add->arg[0] = add->arg[1];
    add->arg[1] = x;
}

static void is_output(Model *m, Plan *plan)
{
    (void)plan;
    PUSH(m->g->arena, m->g->output, m->g->noutput, ((NamedValue){"x", op_called(m, "layer[4].norm2")->out[0]}));
}

/* A machine of two kinds of devices, of which one stage has the second. */
static void other_device(Model *m, Plan *plan)
{
    Device *d = NEWN(m->a, Device, 2);
    d[0] = d[1] = m->cl->device[0];
    d[1].memory *= 2;
    uint32_t *kind = NEWN(m->a, uint32_t, 2);
    kind[1] = 1;
    m->cl->device = d;
    m->cl->ndevice = 2;
    m->cl->kind = kind;
    plan->devices[2] = 1;
}

static void models_make_them_differ(void **unused)
{
    (void)unused;
    static const struct { void (*change)(Model *, Plan *); bool alike; } all[] = {
        {NULL, true}, {other_eps, false}, {frozen, false}, {no_decay, false}, {other_operand, false}, {order_of_arguments, false},
        {is_output, false}, {other_device, false},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        Model m = model_load((Setting)LLAMA);
        Plan plan = plan_of(&m, (Pin){4, 1, 1, 1, 4, CUTS});
        if (all[i].change)
            all[i].change(&m, &plan);
        Codegen *cg;
        assert_int_equal(codegen_open(m.ds, m.g, &plan, m.cl, &cg), OK);
        assert_int_equal(codegen_alike(cg, 1, 2), all[i].alike);
        codegen_close(cg);
        arena_free(m.a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(like_stages),
        cmocka_unit_test(rules_make_them_differ),
        cmocka_unit_test(models_make_them_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
