#ifndef TESTS_UNIT_PLANNED_STEP_H
#define TESTS_UNIT_PLANNED_STEP_H
/* One step of a plan that was made: its programs fit, are verified together, and have a gradient. */
#include "tests/unit/planning.h"

#include "codegen/verify.h"
#include "tests/unit/lockstep.h"

static inline void run_a_step(Case *c, int64_t classes)
{
    Arena *a = arena_new("run");
    Program **p = NEWN(a, Program *, c->plan->ndevices);
    for (uint32_t r = 0; r < c->plan->ndevices; r++) {
        assert_int_equal(codegen(a, c->ds, c->l.graph, c->plan, c->l.cluster, r, NULL, &p[r]), OK);
        assert_true(program_map_bytes(p[r]) + p[r]->reserve <= device_of(c)->memory);
    }
    assert_int_equal(verify_ranks(c->l.graph, c->plan, (const Program *const *)p, stderr), 0);
    Lockstep l = lock_open(a, p, c->plan->ndevices, classes);
    lock_step(&l);
    for (uint32_t r = 0; r < l.n; r++)
        assert_true(real_at(&p[r]->tensor[p[r]->norm.i], lock_at(&l.rank[r], p[r]->norm, 0, 0), 0) > 0);
    lock_close(&l);
    arena_free(a);
}

#endif
