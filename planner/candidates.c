/* Candidates: see candidates.h. */
#include "planner/candidates.h"

#include <string.h>

#include "planner/splits.h"

typedef struct Making {
    Arena           *arena;
    UnitTable *t;
    const Candidate *c;
    Rule            *rule; uint32_t nrule;
} Making;

static void add(Making *mk, Rule r)
{
    r.at = NOWHERE;
    PUSH(mk->arena, mk->rule, mk->nrule, r);
}

static void add_splits(Making *mk)
{
    Unit *u = units_find(mk->t, mk->c->config, 0);
    Rule *split;
    uint32_t n = units_rules(mk->arena, u, &u->option[mk->c->option], &split);
    for (uint32_t i = 0; i < n; i++)
        add(mk, split[i]);
}

static void add_cuts(Making *mk)
{
    if (mk->t->given_begin)
        return;
    for (uint32_t s = 1; s < (uint32_t)mk->c->config->mesh->size[AXIS_pp]; s++)
        add(mk, (Rule){.kind = RULE_STAGE_BEFORE, .path = path_parse(mk->arena, mk->t->pieces.piece[mk->c->begin[s]].path)});
}

/* Rounds of one repeat that follow each other are one rule. */
static void add_recomputed(Making *mk, uint32_t piece)
{
    Path p = path_parse(mk->arena, mk->t->pieces.piece[piece].path);
    Rule *last = mk->nrule ? &mk->rule[mk->nrule - 1] : NULL;
    if (last && last->kind == RULE_RECOMPUTE && p.nstep == 2 && last->path.nstep == 2 && strcmp(last->path.step[0].name, p.step[0].name) == 0 &&
        last->path.step[1].last + 1 == p.step[1].first)
        last->path.step[1].last = p.step[1].first;
    else
        add(mk, (Rule){.kind = RULE_RECOMPUTE, .path = p, .policy = RECOMPUTE_FULL});
}

static void add_recompute(Making *mk)
{
    const Candidate *c = mk->c;
    for (uint32_t s = 0; s < (uint32_t)c->config->mesh->size[AXIS_pp]; s++) {
        uint32_t left = c->again[s];
        for (uint32_t i = c->begin[s]; i < c->begin[s + 1] && left > 0; i++)
            if (mk->t->pieces.piece[i].round) {
                add_recomputed(mk, i);
                left--;
            }
    }
}

Plan *candidate_plan(Arena *a, UnitTable *t, const Candidate *c)
{
    const PlanRequest *q = t->q;
    const Decisions *d = c->config->mesh->d;
    Making mk = {.arena = a, .t = t, .c = c};
    for (uint32_t i = 0; i < d->nrule; i++)
        PUSH(a, mk.rule, mk.nrule, d->rule[i]);
    add_splits(&mk);
    if (c->config->shard)
        add(&mk, (Rule){.kind = RULE_SHARD, .state = STATE_OPTIMIZER, .by = {.axis = {AXIS_dp}, .n = 1}});
    add_cuts(&mk);
    add_recompute(&mk);
    Plan *p = NEW(a, Plan);
    *p = (Plan){.arena = a, .model = q->graph->name, .cluster = q->cluster->name, .model_text = q->model_text, .cluster_text = q->cluster->text,
                .rule = mk.rule, .nrule = mk.nrule, .devices = c->config->mesh->device, .ndevices = d->ndevices,
                .microbatches = c->config->micro, .schedule = c->config->gpipe ? "gpipe" : d->schedule_given ? d->schedule : "1f1b", .bucket = d->bucket,
                .server = d->server_rule && d->ndevices > 1};
    memcpy(p->mesh, c->config->mesh->size, sizeof p->mesh);
    memcpy(p->outer, d->outer, sizeof p->outer);
    return p;
}
