/* Weigh: see weigh.h. */
#include "planner/weigh.h"

#include <string.h>

#include "base/text.h"
#include "planner/pins.h"

/* ---- parts of a time ---- */

int64_t time_part(const StageTimes *s, int part)
{
    const int64_t last[] = {s->slowed, s->bubble, s->extra};
    if (part < TIME_EXPOSED)
        return s->by_class[part];
    return part < TIME_SLOWED ? s->exposed[part - TIME_EXPOSED] : last[part - TIME_SLOWED];
}

const char *time_part_key(Arena *a, int part)
{
    static const char *const last[] = {"slowed", "idle", "runtime"};
    if (part < TIME_EXPOSED)
        return cost_class_key((CostClass)part);
    return part < TIME_SLOWED ? arena_printf(a, "exposed_%s", mesh_axis_name((MeshAxis)(part - TIME_EXPOSED))) : last[part - TIME_SLOWED];
}

const char *time_part_text(Arena *a, int part)
{
    static const char *const last[] = {"slowed by what runs beside it", "waiting for other stages", "the runtime's own time"};
    if (part < TIME_EXPOSED)
        return cost_class_text((CostClass)part);
    if (part >= TIME_SLOWED)
        return last[part - TIME_SLOWED];
    return arena_printf(a, "exposed communication over %s", mesh_axis_name((MeshAxis)(part - TIME_EXPOSED)));
}

uint32_t busiest_stage(const Simulation *sim)
{
    uint32_t busiest = 0;
    for (uint32_t i = 1; i < sim->nstage; i++)
        if (sim->stage[i].bubble < sim->stage[busiest].bubble)
            busiest = i;
    return busiest;
}

/* ---- where memory is fullest ---- */

static int64_t whole_bytes(const Buffer *b)
{
    return b->bytes * b->slots;
}

static bool is_live(const Buffer *b, int32_t instr)
{
    return b->first < 0 || (b->first <= instr && instr <= b->last);
}

/* The first instruction at which the most bytes are live. */
static uint32_t fullest_instr(const Program *p, int64_t *bytes)
{
    Arena *scratch = arena_new("scratch");
    int64_t *change = NEWN(scratch, int64_t, p->ninstr + 2), live = 0;
    uint32_t at = 0;
    for (uint32_t i = 0; i < p->nbuffer; i++) {
        const Buffer *b = &p->buffer[i];
        change[b->first < 0 ? 0 : b->first] += whole_bytes(b);
        change[b->first < 0 ? (int64_t)p->ninstr : (int64_t)b->last + 1] -= whole_bytes(b);
    }
    *bytes = 0;
    for (uint32_t i = 0; i < p->ninstr; i++) {
        live += change[i];
        at = live > *bytes ? i : at;
        *bytes = live > *bytes ? live : *bytes;
    }
    arena_free(scratch);
    return at;
}

/* Among the largest so far, where there is room for it. */
static void add_live(Arena *a, Peak *peak, const Buffer *b)
{
    uint32_t at = peak->n;
    while (at > 0 && peak->largest[at - 1].bytes < whole_bytes(b))
        at--;
    if (at == PEAK_BUFFERS)
        return;
    peak->n += peak->n < PEAK_BUFFERS;
    memmove(&peak->largest[at + 1], &peak->largest[at], (peak->n - 1 - at) * sizeof *peak->largest);
    peak->largest[at] = (Live){arena_strdup(a, b->name), b->cls, whole_bytes(b)};
}

Peak peak_of(Arena *a, const Program *p)
{
    Peak peak = {.op = "", .path = ""};
    peak.instr = fullest_instr(p, &peak.bytes);
    if (peak.instr < p->ninstr) {
        peak.op = op_info[p->instr[peak.instr].op].name;
        peak.path = arena_strdup(a, p->instr[peak.instr].path);
    }
    for (uint32_t i = 0; i < p->nbuffer; i++)
        if (is_live(&p->buffer[i], (int32_t)peak.instr))
            add_live(a, &peak, &p->buffer[i]);
    return peak;
}

/* ---- figures ---- */

int64_t figures_excess(const Figures *f)
{
    return f->map + f->reserve - f->memory;
}

int64_t figures_states(const Figures *f)
{
    int64_t bytes = 0;
    for (int c = 0; c <= CLASS_moments; c++)
        bytes += f->by_class[c];
    return bytes;
}

Figures figures_of(Arena *a, const Plan *plan, const Programs *programs, const Simulation *sim)
{
    const Program *p = programs->rank[programs->fullest];
    Figures f = {.ns = sim->ns, .mfu = sim->mfu, .stage = busiest_stage(sim), .rank = p->rank, .map = program_map_bytes(p), .reserve = p->reserve,
                 .memory = p->memory, .peak = peak_of(a, p), .microbatches = plan->microbatches};
    for (int k = 0; k < TIME_PARTS; k++)
        f.part[k] = time_part(&sim->stage[f.stage], k);
    for (uint32_t i = 0; i < p->nbuffer; i++)
        f.by_class[p->buffer[i].cls] += whole_bytes(&p->buffer[i]);
    return f;
}

/* ---- weighing ---- */

static const Diag *first_error(const Diags *ds)
{
    const Diag *d = ds->first;
    while (d && d->severity != SEV_ERROR)
        d = d->next;
    return d;
}

Weighed weigh_plan(const Weigher *w, const Plan *plan, const Programs *programs, const Simulation *sim)
{
    return (Weighed){.legal = true, .figures = figures_of(w->arena, plan, programs, sim), .refused = "",
                     .layout = pins_text(w->arena, pins_of(w->arena, w->request->graph, plan))};
}

Weighed weigh(const Weigher *w, const Rules *rules, PlanUse use)
{
    Arena *scratch = arena_new("scratch");
    PlanRequest q = *w->request;
    Weighed out = {.layout = ""};
    Diags *said = diags_new(w->sources);
    Plan *plan;
    Programs programs;
    q.rules = rules;
    q.use = use;
    planner_choose(scratch, said, &q, &plan, &programs);
    if (plan) {
        Simulation sim = simulate(scratch, q.cluster, plan, q.profile, programs.rank);
        out = weigh_plan(w, plan, &programs, &sim);
    } else {
        out.refused = first_error(said)->text;
    }
    out.said = said;
    arena_free(scratch);
    return out;
}
