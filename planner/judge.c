/* Judge: see judge.h. */
#include "planner/judge.h"

/* Whether no rank before this one has its stage and its kind of device. */
static bool is_first(const Plan *p, const Cluster *cl, uint32_t rank)
{
    uint32_t stage = p->ndevices / (uint32_t)p->mesh[AXIS_pp], kind = cl->kind[p->devices[rank]];
    for (uint32_t r = rank / stage * stage; r < rank; r++)
        if (cl->kind[p->devices[r]] == kind)
            return false;
    return true;
}

void try_end(Try *t)
{
    codegen_close(t->codegen);
    arena_free(t->own);
    *t = (Try){0};
}

/* The first rank lowered that this one is like; the rank itself: there is none. */
static uint32_t find_alike(const Try *t, uint32_t rank)
{
    uint32_t stage = t->plan->ndevices / (uint32_t)t->plan->mesh[AXIS_pp];
    for (uint32_t i = rank % stage; i < rank; i += stage)
        if (t->programs.rank[i] && !t->stands_in[i] && codegen_alike(t->codegen, i, rank))
            return i;
    return rank;
}

static void find_fullest(Programs *p)
{
    p->fullest = 0;
    for (uint32_t i = 0; i < p->n; i++)
        if (p->rank[i] && program_excess(p->rank[i]) > program_excess(p->rank[p->fullest]))
            p->fullest = i;
}

Status try_lower(Try *t, Diags *ds, const PlanRequest *r)
{
    Programs *p = &t->programs;
    *p = (Programs){.rank = NEWN(t->arena, Program *, t->plan->ndevices), .n = t->plan->ndevices};
    t->stands_in = NEWN(t->arena, bool, p->n);
    TRY(codegen_open(ds, r->graph, t->plan, r->cluster, &t->codegen));
    for (uint32_t i = 0; i < p->n; i++) {
        if (!is_first(t->plan, r->cluster, i))
            continue;
        uint32_t like = find_alike(t, i);
        t->stands_in[i] = like != i;
        p->rank[i] = like != i ? codegen_like(t->codegen, t->arena, p->rank[like], i) : codegen_rank(t->codegen, t->arena, i);
    }
    find_fullest(p);
    return OK;
}

void try_complete(Try *t, Arena *a)
{
    Programs *p = &t->programs;
    for (uint32_t i = 0; i < p->n; i++) {
        if (!p->rank[i])
            continue;
        if (t->stands_in[i] || a != t->arena)
            p->rank[i] = codegen_rank(t->codegen, a, i);
        t->stands_in[i] = false;
        codegen_verify(p->rank[i]);
    }
    find_fullest(p);
}

const Program *try_fullest(const Try *t)
{
    return t->programs.rank[t->programs.fullest];
}
