#ifndef TESTS_UNIT_SUBJECT_H
#define TESTS_UNIT_SUBJECT_H
/* A model of tests/reference under a layout of many ranks: plans by hand, without a
 * machine that has room for them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/load.h"
#include "runtime/ranks.h"

enum { MOST = 8 };

static inline const char *top(void)
{
    return getenv("TOP") ? getenv("TOP") : ".";
}

typedef struct Subject {
    Arena   *a;
    Loaded   l;
    Plan     plan;
    uint32_t n;
    Program *program[MOST];
} Subject;

/* A mesh, and the rules that split ops along it. */
typedef struct Way { int64_t pp, dp, tp, microbatches; const char *rules; } Way;

static inline void read_model(Subject *s, const char *name, const char *dtype, const Way *w)
{
    char *argv[] = {"pplan", arena_printf(s->a, "%s/tests/reference/%s.pmodel", top(), name), "-c", "laptop1",
                    arena_printf(s->a, "-Ddtype=%s", dtype), "--with", arena_strdup(s->a, w->rules)};
    int n = (int)(sizeof argv / sizeof *argv) - (w->rules ? 0 : 2);
    Args args;
    assert_int_equal(args_read(s->a, PPLAN, n, argv, &args), OK);
    assert_int_equal(load_model(&s->l, &args), OK);
    s->l.cluster->device->peak[DT_bf16] = 1e11;
    graph_complete(s->l.graph);
    graph_differentiate(s->l.graph);
}

static inline void open_subject(Subject *s, const char *name, const char *dtype, Way w)
{
    *s = (Subject){.a = arena_new("test"), .n = (uint32_t)(w.pp * w.dp * w.tp)};
    w.rules = w.rules ? w.rules : "bucket = 25 MB";
    read_model(s, name, dtype, &w);
    s->plan = (Plan){.mesh = {w.pp, w.dp, 1, 1, w.tp}, .schedule = w.pp > 1 && w.microbatches > 2 ? "gpipe" : "1f1b",
                     .microbatches = w.microbatches, .bucket = 4000, .ndevices = s->n, .devices = NEWN(s->a, uint32_t, s->n),
                     .rule = s->l.rules->rule, .nrule = s->l.rules->nrule, .server = strstr(w.rules, "sync") != NULL};
    for (uint32_t i = 0; i < s->n; i++) {
        Status status = codegen(s->a, s->l.ds, s->l.graph, &s->plan, s->l.cluster, i, NULL, &s->program[i]);
        diags_flush(s->l.ds, stderr);
        assert_int_equal(status, OK);
    }
}

static inline void close_subject(Subject *s)
{
    load_free(&s->l);
    arena_free(s->a);
}

#endif
