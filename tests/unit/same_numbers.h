#ifndef TESTS_UNIT_SAME_NUMBERS_H
#define TESTS_UNIT_SAME_NUMBERS_H
/* Steps of a model under a plan against those of the same model on one device: all ranks in lockstep and in f64, or, in
 * a program that was told of a device, as threads on that and in f32, as it has no f64. */
#include "runtime/plugin.h"
#include "tests/unit/history.h"
#include "tests/unit/layouts.h"

/* ---- how plans are run ---- */

typedef struct Way {
    const char   *dtype;
    const Limits *limits, *large;     /* large: of logits of hundreds, of which f32 keeps few digits behind the point */
    Start         start;
    const char   *device;             /* of a plug-in; NULL: the cpu */
    int           most;               /* steps */
} Way;

static const Limits large_in_f32 = {1e-4, 1e-3, 1e-3, 1e-5, INFINITY};
static Way way = {"f64", &in_f64, &in_f64, START_lockstep, NULL, MOST_STEPS};

static inline void run_on_device(const char *name)
{
    way = (Way){"f32", &in_f32, &large_in_f32, START_threads, name, 2};
}

/* Of many variants a device, which is emulated, runs few. */
static inline int fewer(int all, int few)
{
    return way.device ? few : all;
}

static inline const Executor *executor_named(Arena *a, const char *device)
{
    const char *why = "";
    const Executor *e = device ? plugin_find(a, device, &why) : &executor_cpu;
    if (!e)
        fail_msg("%s", why);
    return e;
}

/* The runtime has the optimizer's own schedule, lockstep one rate. */
static inline Model model_on_way(Setting s)
{
    Model m = model_load_in(way.dtype, s);
    m.g->optimizer.warmup = 0;
    m.g->optimizer.decay = DECAY_NONE;
    return m;
}

/* prepare: changes what a rank begins with, or NULL. */
typedef struct Prepared { int64_t classes; void (*prepare)(LockRank *); } Prepared;

static inline void fill_prepared(LockRank *r, const void *ctx)
{
    const Prepared *p = ctx;
    lock_fill(r, p->classes);
    if (p->prepare)
        p->prepare(r);
}

static inline void run_prepared(History *h, Model *m, Pin pin, int steps, Start start, void (*prepare)(LockRank *), const char *what)
{
    const Plan plan = plan_of(m, pin);
    const Prepared prepared = {classes_of(m->g), prepare};
    const Executor *executor = executor_named(m->a, start == START_lockstep ? NULL : way.device);
    history_run(h, m->a, lower_programs(m, &plan), plan.ndevices, steps, start, &(Beginning){fill_prepared, &prepared, executor, executor != &executor_cpu}, what);
}

/* ---- comparing ---- */

static inline void same_history(const History *one, const History *all, const Limits *limits, const char *what)
{
    for (int s = 0; s < one->steps; s++) {
        same_scalars(&one->after[s], &all->after[s], limits, what);
        same_copies(&all->after[s], what);
    }
    same_states(&one->after[0], &all->after[0], true, limits, what);
    if (isfinite(limits->weight))
        same_states(&one->after[one->steps - 1], &all->after[one->steps - 1], false, limits, what);
}

static inline const char *pin_text(Arena *a, const char *model, Pin pin)
{
    return arena_printf(a, "%s pp=%lld dp=%lld cp=%lld tp=%lld m=%lld '%s'", model, (long long)pin.pp, (long long)pin.dp, (long long)pin.cp, (long long)pin.tp,
                        (long long)pin.microbatches, pin.rules);
}

/* How the one device is run: by the host in lockstep, or as the ranks are, where rounding decides much. */
static inline void same_steps_within(const Limits *limits, Start reference, Model *m, Pin pin, void (*prepare)(LockRank *), int steps)
{
    const char *what = pin_text(m->a, m->g->name, pin);
    History one, all;
    steps = steps < way.most ? steps : way.most;
    run_prepared(&one, m, (Pin){1, 1, 1, 1, 1, ""}, steps, reference, prepare, what);
    run_prepared(&all, m, pin, steps, way.start, prepare, what);
    same_history(&one, &all, limits, what);
    history_close(&one);
    history_close(&all);
}

static inline void same_steps_of(Model *m, Pin pin, void (*prepare)(LockRank *), int steps)
{
    same_steps_within(way.limits, START_lockstep, m, pin, prepare, steps);
}

static inline void same_numbers_of(Model *m, Pin pin, void (*prepare)(LockRank *))
{
    same_steps_of(m, pin, prepare, 3);
}

static inline void same_numbers_from(Setting s, Pin pin, void (*prepare)(LockRank *))
{
    Model m = model_on_way(s);
    same_numbers_of(&m, pin, prepare);
    arena_free(m.a);
}

static inline void same_numbers(Setting s, Pin pin)
{
    same_numbers_from(s, pin, NULL);
}

#endif
