/* Parts: classes of instructions, communication by mesh axis, waiting, the rest. */
#include "cli/parts.h"

#include "base/text.h"
#include "codegen/simulate.h"

/* Parts of the same number as a class but communication's, then axes, then two more. */
enum { PART_AXES = COST_CLASSES, PART_WAITING = PART_AXES + MESH_AXES, PART_REST, PARTS };
_Static_assert((int)PARTS <= (int)TALLY_PARTS, "a tally has room for all parts");

static void name_axis(Arena *a, TallyParts *t, MeshAxis x)
{
    t->name[PART_AXES + x] = arena_printf(a, "exposed communication over %s", mesh_axis_name(x));
    t->beside[PART_AXES + x] = arena_printf(a, "hidden communication over %s", mesh_axis_name(x));
}

static void name_parts(Arena *a, TallyParts *t)
{
    t->n = PARTS;
    for (int c = 0; c < COST_CLASSES; c++)
        t->name[c] = cost_class_text((CostClass)c);
    for (int x = 0; x < MESH_AXES; x++)
        name_axis(a, t, (MeshAxis)x);
    t->name[PART_WAITING] = "waiting";
    t->name[PART_REST] = "data and bookkeeping";
    t->waiting = PART_WAITING;
    t->rest = PART_REST;
}

static const uint8_t *parts_of_instrs(Arena *a, const Plan *plan, const Program *p)
{
    uint8_t *of = NEWN(a, uint8_t, p->ninstr);
    for (uint32_t i = 0; i < p->ninstr; i++) {
        CostClass c = cost_class(p->instr[i].op);
        of[i] = (uint8_t)(c == COST_link ? PART_AXES + (int)group_axis(plan, &p->group[p->instr[i].group]) : (int)c);
    }
    return of;
}

/* What instructions take more because ranks share processors is a part of theirs, as it is
 * where they are measured. */
static void predict(TallyParts *t, const StageTimes *s, int64_t step)
{
    int64_t alone = 0;
    for (int c = 0; c < COST_CLASSES; c++)
        alone += s->by_class[c];
    for (int c = 0; c < COST_CLASSES; c++)
        t->ns[c] = s->by_class[c] + (alone > 0 ? (int64_t)((double)s->slowed * (double)s->by_class[c] / (double)alone) : 0);
    for (int x = 0; x < MESH_AXES; x++) {
        t->ns[PART_AXES + x] = s->exposed[x];
        t->beside_ns[PART_AXES + x] = s->hidden[x];
    }
    t->ns[PART_WAITING] = s->bubble;
    t->ns[PART_REST] = s->extra;
    t->step_ns = step;
}

const TallyParts *parts_of(Loaded *l, const Plan *plan, const Programs *programs, const Program *p)
{
    TallyParts *t = NEW(l->ir, TallyParts);
    uint32_t nstage = (uint32_t)plan->mesh[AXIS_pp], each = plan->ndevices / nstage, stage = p->rank / each;
    name_parts(l->ir, t);
    t->of_instr = parts_of_instrs(l->ir, plan, p);
    t->tells = p->rank % each == 0;                  /* what the others would say is not asked for */
    if (nstage > 1)
        t->who = arena_printf(l->ir, "rank %u (stage %u, the busiest)", p->rank, stage);
    if (!l->profile || !t->tells)
        return t;
    Simulation sim = simulate(l->ir, l->cluster, plan, l->profile, programs->rank);
    predict(t, &sim.stage[stage], sim.ns);
    return t;
}
