#ifndef TESTS_UNIT_LAYOUTS_H
#define TESTS_UNIT_LAYOUTS_H
/* Models under pinned plans of many ranks, and their numbers against those of the same
 * model on one device: in f64 and all ranks in lockstep, unless a test says otherwise. */
#include <math.h>
#include <unistd.h>

#include "base/text.h"
#include "frontend/frontend.h"
#include "tests/unit/lockstep.h"

/* ---- models and plans ---- */

/* defines: "batch=4 heads=12", dims and params, dtype=f64 unless it is among them; text: a model of its own that may include
 * the standard blocks, or NULL: models/tiny/MODEL.pmodel, or models/MODEL.pmodel where there is none. */
typedef struct Setting { const char *model, *defines, *text; } Setting;

typedef struct Model { Arena *a; Diags *ds; Units units; Graph *g; Cluster *cl; } Model;

static inline void add_define(Model *m, Define **d, uint32_t *n, const char *text)
{
    const char *equals = strchr(text, '=');
    Source *s = sources_add(m->ds->sources, "<test>", equals + 1, strlen(equals + 1));
    Define x = {.name = arena_strndup(m->a, text, (size_t)(equals - text)), .value = equals + 1, .at = {s->start, s->start + s->bytes}};
    PUSH(m->a, *d, *n, x);
}

static inline const char *source_tree(void)
{
    const char *top = getenv("TOP");
    return top ? top : ".";
}

static inline const char *model_file(Arena *a, const char *model)
{
    const char *tiny = arena_printf(a, "%s/models/tiny/%s.pmodel", source_tree(), model);
    return access(tiny, F_OK) == 0 ? tiny : arena_printf(a, "%s/models/%s.pmodel", source_tree(), model);
}

static inline Status parse_setting(Model *m, Setting s)
{
    const char *std = arena_printf(m->a, "%s/models/std", source_tree());
    IncludePath blocks = {&std, 1}, none = {0};
    if (s.text)
        return parse_text(m->ds, s.model, s.text, strlen(s.text), blocks, &m->units);
    return parse_file(m->ds, model_file(m->a, s.model), none, &m->units);
}

static inline Model model_load_in(const char *dtype, Setting s)
{
    Model m = {.a = arena_new("test")};
    m.ds = diags_new(sources_new(m.a));
    Define *d = NULL;
    uint32_t n = 0;
    char *words = strstr(s.defines, "dtype=") ? arena_strdup(m.a, s.defines) : arena_printf(m.a, "dtype=%s %s", dtype, s.defines), *save;
    for (char *w = strtok_r(words, " ", &save); w; w = strtok_r(NULL, " ", &save))
        add_define(&m, &d, &n, w);
    Units machine;
    IncludePath none = {0};
    Status status = parse_setting(&m, s);
    if (status == OK)
        status = elaborate_model(m.ds, &m.units, NULL, d, n, m.a, &m.g);
    if (status == OK)
        status = parse_file(m.ds, arena_printf(m.a, "%s/models/clusters/laptop4.pcluster", source_tree()), none, &machine);
    if (status == OK)
        status = elaborate_cluster(m.ds, &machine, NULL, NULL, 0, m.a, &m.cl);
    diags_flush(m.ds, stderr);
    assert_int_equal(status, OK);
    graph_differentiate(m.g);
    return m;
}

static inline Model model_load(Setting s)
{
    return model_load_in("f64", s);
}

typedef struct Pin { int64_t pp, dp, cp, tp, microbatches; const char *rules; } Pin;

static inline void take_rule(Plan *plan, const Rule *r)
{
    if (r->kind == RULE_MESH)
        plan->outer[r->axis] = r->outer;
    if (r->kind != RULE_SETTING)
        return;
    if (strcmp(r->name, "schedule") == 0)
        plan->schedule = r->text;
    plan->bucket = strcmp(r->name, "bucket") == 0 ? r->choice.value[0] : plan->bucket;
    plan->server |= strcmp(r->name, "sync") == 0;
}

static inline Plan plan_of(Model *m, Pin pin)
{
    Plan plan = {.arena = m->a, .mesh = {pin.pp, pin.dp, pin.cp, 1, pin.tp}, .microbatches = pin.microbatches, .bucket = 20000, .schedule = "1f1b"};
    for (uint32_t i = 0; i < pin.pp * pin.dp * pin.cp * pin.tp; i++)
        PUSH(m->a, plan.devices, plan.ndevices, 0);
    const char *text = arena_printf(m->a, "plan { %s }", pin.rules);
    Units units;
    Rules *rules;
    IncludePath none = {0};
    assert_int_equal(parse_text(m->ds, "<rules>", text, strlen(text), none, &units), OK);
    Status s = elaborate_rules(m->ds, &units, m->g, m->a, &rules);
    diags_flush(m->ds, stderr);
    assert_int_equal(s, OK);
    plan.rule = rules->rule;
    plan.nrule = rules->nrule;
    for (uint32_t i = 0; i < rules->nrule; i++)
        take_rule(&plan, &rules->rule[i]);
    return plan;
}

/* By rank, each checked, and all of them together. */
static inline Program **lower_programs(Model *m, const Plan *plan)
{
    Program **p = NEWN(m->a, Program *, plan->ndevices);
    for (uint32_t r = 0; r < plan->ndevices; r++) {
        Status s = codegen(m->a, m->ds, m->g, plan, m->cl, r, NULL, &p[r]);
        diags_flush(m->ds, stderr);
        assert_int_equal(s, OK);
    }
    assert_int_equal(verify_ranks(m->g, plan, (const Program *const *)p, stderr), 0);
    return p;
}

/* Numbers below this are inputs of any model: the size of its vocabulary. */
static inline int64_t classes_of(const Graph *g)
{
    for (uint32_t d = 0; d < g->ndim; d++)
        if (strcmp(g->dim[d].name, "vocab") == 0)
            return g->dim[d].extent;
    return 1;
}

static inline Lockstep lower_all(Model *m, Pin pin)
{
    Plan plan = plan_of(m, pin);
    return lock_open(m->a, lower_programs(m, &plan), plan.ndevices, classes_of(m->g));
}

/* ---- comparing ---- */

static inline double scalar(const LockRank *r, TensorId t)
{
    return real_at(&r->p->tensor[t.i], lock_at(r, t, 0, 0), 0);
}

static inline const State *state_of(const Program *p, const char *path)
{
    for (uint32_t i = 0; i < p->nstate; i++)
        if (strcmp(p->state[i].path, path) == 0)
            return &p->state[i];
    return NULL;
}

static inline TensorId tensor_of(const State *s, bool gradient)
{
    return gradient ? s->gradient : s->weight;
}

/* Whether a rank has the sum of all gradients of element i of a state's. */
static inline bool is_summed(const State *s, int64_t i)
{
    return !s->sharded || (s->shard.at + i >= s->shard.first && s->shard.at + i < s->shard.end);
}

/* Whether another rank has, and this one nothing. */
static inline bool is_served(const LockRank *r, const State *s)
{
    const Program *p = r->p;
    for (uint32_t i = 0; i < p->ninstr; i++) {
        const Instr *in = &p->instr[i];
        if (in->op == OP_reduce_to && p->tensor[in->out[0].i].buffer.i == p->tensor[s->gradient.i].buffer.i)
            return p->group[in->group].rank[0] != p->rank;
    }
    return false;
}

/* How far numbers may be from those of one device, relative to these.  A gradient may be
 * off by `own` of its norm and `all` of the norm of all gradients: some are zero but for
 * rounding, those of key biases.  Weights: by their norm; INFINITY: not compared. */
typedef struct Limits { double loss, norm, own, all, weight; } Limits;

static const Limits in_f64 = {1e-12, 1e-11, 1e-10, 1e-15, 1e-9};
static const Limits in_f32 = {1e-5, 1e-5, 1e-5, 1e-7, INFINITY};

/* All that a rank holds of a weight or gradient against the one device's, by the norm of
 * the difference. */
static inline void same_tensor(const LockRank *one, const LockRank *r, const State *s, bool gradient, const Limits *limits, const char *what)
{
    const State *o = state_of(one->p, s->path);
    TensorId have = tensor_of(s, gradient), want = tensor_of(o, gradient);
    const Tensor *t = &r->p->tensor[have.i], *w = &one->p->tensor[want.i];
    double norm = 0, error = 0;
    for (int64_t i = 0; i < tensor_elements(w); i++)
        norm += pow(real_at(w, lock_at(one, want, 0, 0), i), 2);
    for (int64_t i = 0; i < tensor_elements(t); i++) {
        int64_t g = lock_global(t, i, 0);
        if (gradient && !is_summed(s, i))
            continue;
        double x = real_at(t, lock_at(r, have, 0, 0), i), y = g < 0 ? 0 : real_at(w, lock_at(one, want, 0, 0), g);
        error += pow(x - y, 2);
    }
    double allowed = gradient ? limits->own * sqrt(norm) + limits->all * scalar(one, one->p->norm) : limits->weight * sqrt(norm);
    if (!(sqrt(error) <= allowed))
        fail_msg("%s: rank %u: %s of '%s' is off by %g of a norm of %g", what, r->p->rank, gradient ? "gradient" : "weight", s->path, sqrt(error), sqrt(norm));
}

static inline void same_states(const Lockstep *one, const Lockstep *l, bool gradient, const Limits *limits, const char *what)
{
    for (uint32_t r = 0; r < l->n; r++)
        for (uint32_t i = 0; i < l->rank[r].p->nstate; i++) {
            const State *s = &l->rank[r].p->state[i];
            if (!gradient || (has_tensor(s->gradient) && !is_served(&l->rank[r], s)))
                same_tensor(&one->rank[0], &l->rank[r], s, gradient, limits, what);
        }
}

static inline void same_scalar(const LockRank *r, TensorId t, double want, double allowed, const char *name, const char *what)
{
    double got = scalar(r, t);
    if (!(fabs(got - want) <= allowed * fabs(want)))
        fail_msg("%s: step %lld, rank %u: %s %.17g, expected %.17g", what, (long long)r->step.step, r->p->rank, name, got, want);
}

static inline void same_scalars(const Lockstep *one, const Lockstep *l, const Limits *limits, const char *what)
{
    const LockRank *o = &one->rank[0];
    for (uint32_t r = 0; r < l->n; r++) {
        const LockRank *x = &l->rank[r];
        if (has_tensor(x->p->loss))
            same_scalar(x, x->p->loss, scalar(o, o->p->loss), limits->loss, "loss", what);
        for (uint32_t i = 0; i < x->p->nterm; i++)
            if (has_tensor(x->p->term[i].tensor))
                same_scalar(x, x->p->term[i].tensor, scalar(o, o->p->term[i].tensor), limits->loss, o->p->term[i].name, what);
        same_scalar(x, x->p->norm, scalar(o, o->p->norm), limits->norm, "norm", what);
    }
}

static inline bool same_part(const Tensor *a, const Tensor *b)
{
    for (int x = 0; x < a->rank; x++)
        if (a->axis[x].origin != b->axis[x].origin || a->axis[x].local != b->axis[x].local)
            return false;
    return true;
}

/* Ranks that hold the same part of a weight hold the same bits. */
static inline void same_copies(const Lockstep *l, const char *what)
{
    for (uint32_t r = 1; r < l->n; r++)
        for (uint32_t i = 0; i < l->rank[r].p->nstate; i++) {
            const LockRank *x = &l->rank[r];
            const State *s = &x->p->state[i];
            const Tensor *t = &x->p->tensor[s->weight.i];
            for (uint32_t q = 0; q < r; q++) {
                const LockRank *y = &l->rank[q];
                const State *o = state_of(y->p, s->path);
                if (o && same_part(t, &y->p->tensor[o->weight.i]) && memcmp(lock_at(x, s->weight, 0, 0), lock_at(y, o->weight, 0, 0), (size_t)tensor_bytes(t)) != 0)
                    fail_msg("%s: ranks %u and %u hold different copies of '%s'", what, q, r, s->path);
            }
        }
}

#endif
