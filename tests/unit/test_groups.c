/* Groups between ranks: every two that share a rank have ids of their own, and those of a
 * mesh one; weights that are tied over any sets of stages are summed over those. */
#include "runtime/groups.h"
#include "tests/unit/history.h"
#include "tests/unit/layouts.h"

/* ---- ids ---- */

enum { RANKS = 8, MOST_MEETINGS = 32 };

/* The programs of ranks that meet in the given groups, each a string of digits. */
typedef struct Crowd { Arena *a; Program program[RANKS]; RankGroup group[MOST_MEETINGS]; uint32_t n; } Crowd;

static bool is_member(const RankGroup *g, uint32_t rank)
{
    for (uint32_t i = 0; i < g->n; i++)
        if (g->rank[i] == rank)
            return true;
    return false;
}

static GroupIds ids_of(Crowd *c, const char *const *group)
{
    GroupNames names[RANKS];
    for (; group[c->n]; c->n++) {
        RankGroup *g = &c->group[c->n];
        for (const char *p = group[c->n]; *p; p++)
            PUSH(c->a, g->rank, g->n, (uint32_t)(*p - '0'));
    }
    for (uint32_t r = 0; r < RANKS; r++) {
        Program *p = &c->program[r];
        *p = (Program){.arena = c->a, .nranks = RANKS, .rank = r};
        for (uint32_t i = 0; i < c->n; i++)
            if (is_member(&c->group[i], r)) {
                PUSH(c->a, p->group, p->ngroup, c->group[i]);
                Instr in = {.op = OP_all_reduce, .group = p->ngroup - 1};
                PUSH(c->a, p->instr, p->ninstr, in);
            }
        group_names(p, &names[r]);
    }
    return group_ids(c->a, names, RANKS);
}

static bool share_a_rank(const RankGroup *a, const RankGroup *b)
{
    for (uint32_t i = 0; i < a->n; i++)
        if (is_member(b, a->rank[i]))
            return true;
    return false;
}

/* `nid`: so many ids are enough. */
static void check_ids(const char *const *group, uint32_t nid)
{
    Crowd c = {.a = arena_new("groups")};
    const GroupIds ids = ids_of(&c, group);
    assert_int_equal(ids.nid, nid);
    for (uint32_t i = 0; i < c.n; i++) {
        assert_in_range(group_id(&ids, &c.group[i]), 0, nid - 1);
        for (uint32_t k = 0; k < i; k++)
            if (share_a_rank(&c.group[i], &c.group[k]) && group_id(&ids, &c.group[i]) == group_id(&ids, &c.group[k]))
                fail_msg("%s and %s share a rank and an id", group[i], group[k]);
    }
    arena_free(c.a);
}

static void ids_of_groups(void **unused)
{
    (void)unused;
    check_ids((const char *const[]){"01", "23", "45", "67", NULL}, 1);
    check_ids((const char *const[]){"01", "23", "45", "67", "02", "13", "46", "57", NULL}, 2);
    check_ids((const char *const[]){"01", "12", NULL}, 2);
    check_ids((const char *const[]){"01", "12", "23", "34", "45", "56", "67", NULL}, 2);
    check_ids((const char *const[]){"02", "13", "24", "35", "46", "57", NULL}, 2);
    check_ids((const char *const[]){"012", "123", "234", "345", "456", NULL}, 3);
    check_ids((const char *const[]){"0123", "4567", "02", "24", "46", "13", "35", "57", NULL}, 3);
}

/* ---- weights tied over stages ---- */

/* Four rounds of a perceptron; weight a, b, .. is used in the rounds that its word has. */
static const char *tied_model(Arena *a, const char *const *use)
{
    Text t = text_new(a);
    text_add(&t, "model m {\n dim batch = 4, vocab = 8, hidden = 8, other = hidden\n param dtype = f64\n precision { compute = dtype }\n"
             " optimizer adamw { lr = 1e-2, beta1 = 0.9, beta2 = 0.95 }\n input ids[batch] : i32\n input labels[batch] : i32\n"
             " weight tok[vocab, hidden]\n x = embed(ids, tok)\n");
    for (int i = 0; use[i]; i++)
        text_add(&t, " weight %c[hidden]\n", 'a' + i);
    for (int round = 0; round < 4; round++) {
        text_add(&t, " x = in%d: linear(x, hidden)\n", round);
        for (int i = 0; use[i]; i++)
            if (strchr(use[i], '0' + round))
                text_add(&t, " x = tanh(x * %c)\n", 'a' + i);
    }
    text_add(&t, " minimize cross_entropy(head: linear(x, vocab), labels)\n}\n");
    return t.s;
}

static void fill(LockRank *r, const void *classes)
{
    lock_fill(r, *(const int64_t *)classes);
}

static void run_tied(Model *m, Pin pin, Start start, History *h, const char *what)
{
    static const int64_t classes = 8;
    const Plan plan = plan_of(m, pin);
    history_run(h, m->a, lower_programs(m, &plan), plan.ndevices, 2, start, &(Beginning){.fill = fill, .ctx = &classes}, what);
}

/* A stage a round: ranks as threads have the numbers of one device. */
static void check_tied(const char *const *use, int64_t dp)
{
    Arena *a = arena_new("tied");
    Model m = model_load((Setting){"tied", "", tied_model(a, use)});
    History one, all;
    run_tied(&m, (Pin){1, 1, 1, 1, 1, ""}, START_lockstep, &one, use[0]);
    run_tied(&m, (Pin){4, dp, 1, 1, 1, "stage before in1; stage before in2; stage before in3"}, START_threads, &all, use[0]);
    same_states(&one.after[0], &all.after[0], true, &in_f64, use[0]);
    for (int s = 0; s < 2; s++) {
        same_scalars(&one.after[s], &all.after[s], &in_f64, use[0]);
        same_copies(&all.after[s], use[0]);
    }
    history_close(&one);
    history_close(&all);
    arena_free(m.a);
    arena_free(a);
}

static void weights_tied_over_stages(void **unused)
{
    (void)unused;
    for (int64_t dp = 1; dp <= 2; dp++) {
        check_tied((const char *const[]){"01", "12", "23", NULL}, dp);
        check_tied((const char *const[]){"02", "13", NULL}, dp);
        check_tied((const char *const[]){"012", "123", "03", NULL}, dp);
        check_tied((const char *const[]){"01", "12", "02", "23", "13", "03", "012", "123", "013", "023", "0123", NULL}, dp);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ids_of_groups), cmocka_unit_test(weights_tied_over_stages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
