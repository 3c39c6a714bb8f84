/* Every axis of a model, named by a rule: the numbers of one device, or a refusal that names
 * the axis.  Each axis alone, by tp and by cp, and every two axes; with the argument `pairs`
 * all of those, without it each tenth. */
#include "tests/unit/same_numbers.h"

/* Extents that differ, and have few divisors in common. */
static const Setting settings[] = {
    {"bert_base", "batch=2 seq=6 vocab=20 position=10 hidden=24 heads=4 ffn=15 layers=1 drop=0.1", NULL},
    {"t5_small", "batch=2 source=9 target=6 vocab=20 hidden=8 heads=4 head_dim=5 ffn=15 layers=1", NULL},
    {"vit_b16", "batch=2 patch=2 height=6 width=10 class=14 hidden=24 heads=4 ffn=15 layers=1", NULL},
    {"mlp", "batch=2 pixel=9 hidden=10 class=14", NULL},
    {"two_tower", "batch=2 seq=34 vocab=20 hidden=12 heads=2 layers=2", NULL},
    {"../tests/reference/packed", "batch=2 seq=6 vocab=20 hidden=24 heads=4 kv_heads=2 ffn=15 layers=1", NULL},
};
enum { MODELS = sizeof settings / sizeof *settings, MOST_AXES = 32 };

typedef struct Axes { const char *name[MOST_AXES]; int64_t parts[MOST_AXES]; int n; } Axes;

/* The smallest number of parts it has; 0: more than seven. */
static int64_t parts_of(int64_t extent)
{
    for (int64_t p = 2; p <= 7; p++)
        if (extent % p == 0)
            return p;
    return 0;
}

static Axes axes_of(const Model *m)
{
    Axes x = {.n = 0};
    for (uint32_t d = 0; d < m->g->ndim; d++) {
        bool twice = false;
        for (int i = 0; i < x.n; i++)
            twice |= strcmp(x.name[i], m->g->dim[d].name) == 0;
        int64_t parts = parts_of(m->g->dim[d].extent);
        if (twice || parts == 0)
            continue;
        assert_true(x.n < MOST_AXES);
        x.name[x.n] = m->g->dim[d].name;
        x.parts[x.n++] = parts;
    }
    return x;
}

/* Whether the rules are taken; else they are refused with a message that names an axis. */
static bool is_taken(Setting s, Pin pin, const char *axis, const char *other)
{
    Model m = model_load(s);
    const Plan plan = plan_of(&m, pin);
    Program *p;
    Status status = codegen(m.a, m.ds, m.g, &plan, m.cl, 0, NULL, &p);
    if (status != OK) {
        const char *text = m.ds->first->text;
        assert_int_equal(status, ERR_REJECT);
        if (!strstr(text, arena_printf(m.a, "'%s'", axis)) && !strstr(text, arena_printf(m.a, "'%s'", other)))
            fail_msg("%s '%s': '%s' names neither '%s' nor '%s'", s.model, pin.rules, text, axis, other);
    }
    arena_free(m.a);
    return status == OK;
}

/* Plans that were taken. */
static int check_axes(Setting s, bool pairs, int every)
{
    Model m = model_load(s);
    const Axes x = axes_of(&m);
    int n = 0, seen = 0;
    for (int i = 0; i < x.n; i++)
        for (int k = 0; k < x.n; k++) {
            if ((i == k) == pairs || seen++ % every)
                continue;
            for (int by = 0; by < 2; by++) {
                const char *mesh = by ? "cp" : "tp", *rules = arena_printf(m.a, "split %s by %s", x.name[i], mesh);
                if (pairs)
                    rules = arena_printf(m.a, "%s; split %s by %s", rules, x.name[k], mesh);
                Pin pin = {1, 1, by ? x.parts[i] : 1, by ? 1 : x.parts[i], 1, rules};
                if (!is_taken(s, pin, x.name[i], x.name[k]))
                    continue;
                same_numbers(s, pin);
                n++;
            }
        }
    arena_free(m.a);
    return n;
}

static void each_axis(void **unused)
{
    (void)unused;
    for (int i = 0; i < MODELS; i++)
        assert_in_range(check_axes(settings[i], false, 1), 6, 2 * MOST_AXES);
}

static int every_pair = 10;

static void two_axes(void **unused)
{
    (void)unused;
    int n = 0;
    for (int i = 0; i < MODELS; i++)
        n += check_axes(settings[i], true, every_pair);
    printf("# %d plans of pairs\n", n);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "pairs") == 0)
        every_pair = 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_axis), cmocka_unit_test(two_axes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
