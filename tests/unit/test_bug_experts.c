/* Public bug reports about experts, named after their rows in docs/bug-cases.md: routes, dropped tokens and
 * balance are the same however ranks share the work, and have closed forms. */
#include "tests/unit/prepared.h"

/* Layouts of a model with two rounds of experts: rounds over stages, experts or their inner axis over tp. */
static const Pin layouts[] = {
    {1, 2, 1, 1, 1, ""},         {1, 2, 1, 1, 4, "shard optimizer by dp"}, {1, 1, 1, 2, 1, "split expert by tp"},
    {1, 1, 1, 4, 4, "split ffn by tp"}, {1, 2, 1, 2, 2, "split expert by tp; shard optimizer by dp"}, {1, 1, 2, 1, 1, "split seq by cp"},
    {2, 1, 1, 2, 2, "stage before h[1]; split expert, vocab by tp"}, {1, 1, 1, 2, 1, "split expert by tp; recompute h"},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

/* Every token visits `top` of four experts in each of two layers; the weight of the balance is a param. */
static const char moe[] =
    "model m {\n dim batch = 8, seq = 16, vocab = 64, d = 32, ffn = 16, expert = 4\n param dtype = f64, top = 2, balance = 0.1\n precision { compute = dtype }\n"
    " optimizer adamw { lr = 1e-3, clip = 0.1 }\n input ids[batch, seq] : i32\n input labels[batch, seq] : i32\n weight tok[vocab, d]\n aux = zeros()\n x = embed(ids, tok)\n"
    " repeat 2 as h {\n  y = norm: rmsnorm(x)\n  route = gate: router(y, expert, top)\n  z = dispatch(y, route)\n"
    "  z = down: linear(relu(up: linear(z, ffn, per = expert)), d, per = expert)\n  x = x + combine(z, route)\n  aux = aux + mean(load_balance(route), over = batch)\n }\n"
    " minimize cross_entropy(head: linear(x, vocab), labels) + balance * aux / 2\n}\n";

/* ---- D02: each expert's elements count once ---- */

static void D02_norms_of_experts(void **unused)
{
    (void)unused;
    static const char *const weight[] = {"h[0].gate.w", "h[0].up.w", "h[0].up.b", "h[1].down.w", "h[1].down.b", "h[1].norm.w", "tok", "head.w"};
    const Setting s = {"D02", "", moe};
    Stepped one = stepped(s, (Pin){1, 1, 1, 1, 1, ""}, NULL);
    for (int k = 0; k < LAYOUTS; k++) {
        Stepped x = stepped(s, layouts[k], NULL);
        same_scalars(&one.l, &x.l, way.limits, layouts[k].rules);
        for (size_t w = 0; w < sizeof weight / sizeof *weight; w++)
            same_squares(&one, &x, weight[w], layouts[k].rules);
        forget(&x);
    }
    forget(&one);
}

/* ---- F01: the balance reaches the router, once ---- */

static void F01_the_balance_is_the_same_under_every_layout(void **unused)
{
    (void)unused;
    for (int k = 0; k < LAYOUTS; k += fewer(1, 2)) {
        same_numbers((Setting){"F01", "", moe}, layouts[k]);
        same_numbers((Setting){"F01", "balance=0.0", moe}, layouts[k]);
        same_numbers((Setting){"F01", "top=1", moe}, layouts[k]);
    }
}

static void no_router_no_head(LockRank *r)
{
    set_weights(r, "gate.w", zero);
    set_weights(r, "head.w", zero);
    set_weights(r, "head.b", zero);
}

/* All experts as probable, and the shares of tokens sum to the experts that each visits: so does the balance. */
static void F01_uniform_routes_cost_the_weight_of_the_balance(void **unused)
{
    (void)unused;
    for (int k = 0; k < LAYOUTS; k += fewer(1, 2)) {
        Stepped one_each = stepped((Setting){"F01", "top=1", moe}, layouts[k], no_router_no_head);
        assert_loss(&one_each, log(64) + 0.1);
        forget(&one_each);
        Stepped two_each = stepped((Setting){"F01", "", moe}, layouts[k], no_router_no_head);
        assert_loss(&two_each, log(64) + 0.2);
        forget(&two_each);
    }
}

/* ---- F03: what is dropped does not depend on the ranks ---- */

/* One expert a token; token s of a sequence is worth 2^s where it is kept. */
static const char kept[] =
    "model m {\n dim batch = 4, seq = 16, d = 8, expert = 4\n param dtype = f64, capacity = 1.0\n precision { compute = dtype }\n optimizer sgd { lr = 0.1 }\n"
    " input x[batch, seq, d] : f32\n input worth[batch, seq] : f32\n route = gate: router(x, expert, 1)\n y = combine(dispatch(x, route, capacity = capacity), route)\n"
    " weight gain[d]\n minimize mean(sum(sum(y * gain, over = d) * worth, over = seq), over = batch)\n}\n";

static double eighth(int64_t global, double old) { (void)global; (void)old; return 0.125; }
static double first_expert(int64_t global, double old) { (void)old; return global % 4 == 0 ? 1 : 0; }

/* Inputs of ones, and of powers of two. */
static void all_to_the_first(LockRank *r)
{
    set_weights(r, "gain", eighth);
    set_weights(r, "gate.w", first_expert);
    for (uint32_t k = 0; k < r->p->ninput; k++) {
        const Input *in = &r->p->input[k];
        const Tensor *t = &r->p->tensor[in->tensor.i];
        for (uint32_t m = 0; m < r->p->buffer[t->buffer.i].slots; m++)
            for (int64_t i = 0; i < tensor_elements(t); i++)
                real_put(t, lock_at(r, in->tensor, 0, m), i, in->rank == 3 ? 1 : ldexp(1, (int)(lock_global(t, i, m) % 16)));
    }
}

/* Of 16 tokens that all choose one expert it has room for capacity * 16 / 4: the first ones. */
static void F03_the_first_tokens_are_kept(void **unused)
{
    (void)unused;
    static const struct { const char *defines; int kept; } row[] = {{"", 4}, {"capacity=2.0", 8}, {"capacity=0.25", 1}, {"capacity=4.0", 16}};
    static const Pin pins[] = {{1, 1, 1, 1, 1, ""}, {1, 2, 1, 1, 2, ""}, {1, 1, 1, 2, 1, "split expert by tp"}, {1, 2, 1, 2, 1, "split expert by tp"},
                               {1, 1, 1, 4, 4, "split expert by tp"}, {1, 1, 4, 1, 1, "split seq by cp"}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i += (size_t)fewer(1, 2))
        for (size_t k = 0; k < sizeof pins / sizeof *pins; k++) {
            Stepped x = stepped((Setting){"F03", row[i].defines, kept}, pins[k], all_to_the_first);
            assert_loss(&x, ldexp(1, row[i].kept) - 1);
            forget(&x);
        }
}

/* ---- F04: an expert without a token ---- */

static double size(int64_t global, double old) { (void)global; return fabs(old); }
static double to_one_expert(int64_t global, double old) { (void)old; return global % 4 == 0 ? 50 : 0; }

/* Normalized tokens have no sign in common, so the embedding is made positive. */
static void one_expert_has_all(LockRank *r)
{
    set_weights(r, "tok", size);
    set_weights(r, "gate.w", to_one_expert);
}

/* The first expert of a weight [expert, ..] has a gradient, the others have exactly none. */
static void only_the_first(const Lockstep *l, const char *path)
{
    int used = 0;
    for (uint32_t r = 0; r < l->n; r++) {
        const State *s = state_of(l->rank[r].p, path);
        const Tensor *t = s ? &l->rank[r].p->tensor[s->gradient.i] : NULL;
        for (int64_t i = 0; s && i < tensor_elements(t); i++) {
            double x = real_at(t, lock_at(&l->rank[r], s->gradient, 0, 0), i);
            bool first = lock_global(t, i, 0) < lock_elements(t) / 4;
            used += first && x != 0;
            assert_true(first || !is_summed(s, i) || x == 0);
        }
    }
    assert_true(used > 0);
}

/* Ranks whose experts have no token take part in all, and gradients there are nothing: memory out of use
 * is no number in these runs. */
static void F04_experts_without_tokens(void **unused)
{
    (void)unused;
    const Setting s = {"F04", "top=1", moe};
    for (int k = 0; k < LAYOUTS; k++) {
        Model m = model_on_way(s);
        same_steps_within(way.limits, way.start, &m, layouts[k], one_expert_has_all, 5);
        arena_free(m.a);
        Stepped x = stepped(s, layouts[k], one_expert_has_all);
        only_the_first(&x.l, "h[0].up.w");
        only_the_first(&x.l, "h[0].down.b");
        forget(&x);
    }
}

/* `test_bug_experts DEVICE`: on that; otherwise in lockstep. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(D02_norms_of_experts),
        cmocka_unit_test(F01_the_balance_is_the_same_under_every_layout),
        cmocka_unit_test(F01_uniform_routes_cost_the_weight_of_the_balance),
        cmocka_unit_test(F03_the_first_tokens_are_kept),
        cmocka_unit_test(F04_experts_without_tokens),
    };
    if (argc > 1)
        run_on_device(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
