/* Show: predicted times. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/show.h"

/* ---- the step ---- */

static const char *percent(Arena *a, double part)
{
    return arena_printf(a, "%.1f %%", part * 100);
}

void show_step(const Report *r, Table *t, const Graph *g, const Profile *profile, const Simulation *sim)
{
    Arena *a = r->arena;
    double tokens = sim->ns > 0 ? (double)graph_tokens(g) * 1e9 / (double)sim->ns : 0;
    table_line(r, t, "time", arena_printf(a, "%s a %s, %s, under profile %s", text_ns(a, sim->ns), has_value(g->loss) ? "step" : "pass",
               text_si(a, tokens, graph_tokens(g) == graph_samples(g) ? "samples/s" : "tokens/s"), profile->name));
    table_line(r, t, "of the peak", arena_printf(a, "%s (mfu), %s (mfu-causal), %s (hfu)", percent(a, sim->mfu), percent(a, sim->mfu_causal), percent(a, sim->hfu)));
    table_fact(r, t, "step_ns", CELL_NUMBER(sim->ns));
    table_fact(r, t, "tokens_per_s", CELL_NUMBER(tokens));
    table_fact(r, t, "mfu", CELL_NUMBER(sim->mfu));
    table_fact(r, t, "mfu_causal", CELL_NUMBER(sim->mfu_causal));
    table_fact(r, t, "hfu", CELL_NUMBER(sim->hfu));
    table_fact(r, t, "profile", CELL_TEXT(profile->name));
}

/* ---- stages ---- */

enum { STAGE_COLUMNS = TIME_PARTS + 3 };

/* A column of the table of stages, and whether any stage has something there. */
typedef struct Kept { Column column[STAGE_COLUMNS]; int from[STAGE_COLUMNS]; uint32_t n; } Kept;

/* Heads are short: of exposed communication the mesh axis. */
static Column part_column(Arena *a, int part)
{
    static const char *const last[] = {"slowed", "idle", "runtime"};
    const char *head = part < TIME_EXPOSED ? cost_class_text((CostClass)part)
                     : part < TIME_SLOWED  ? mesh_axis_name((MeshAxis)(part - TIME_EXPOSED)) : last[part - TIME_SLOWED];
    return (Column){time_part_key(a, part), head, SHOW_NS};
}

/* Of the parts those that some stage has. */
static void keep_columns(Arena *a, const Simulation *sim, Kept *k)
{
    k->column[k->n++] = (Column){"stage", "time of stage", SHOW_OFFSET};
    for (int part = 0; part < TIME_PARTS; part++)
        for (uint32_t s = 0; s < sim->nstage; s++)
            if (time_part(&sim->stage[s], part) != 0) {
                k->from[k->n] = part;
                k->column[k->n++] = part_column(a, part);
                break;
            }
    k->column[k->n++] = (Column){"step", "in all", SHOW_NS};
    k->column[k->n++] = (Column){"update", "of it update", SHOW_NS};
}

void show_times(Report *r, const Simulation *sim, uint32_t only)
{
    Kept *k = NEW(r->arena, Kept);
    keep_columns(r->arena, sim, k);
    Table *t = report_table(r, "time", k->column, k->n);
    for (uint32_t s = 0; s < sim->nstage; s++) {
        if (only != UINT32_MAX && only != s)
            continue;
        Cell row[STAGE_COLUMNS] = {CELL_NUMBER(s)};
        for (uint32_t c = 1; c + 2 < k->n; c++)
            row[c] = CELL_NUMBER(time_part(&sim->stage[s], k->from[c]));
        row[k->n - 2] = CELL_NUMBER(sim->ns);
        row[k->n - 1] = CELL_NUMBER(sim->stage[s].update);
        table_row(r, t, row);
    }
}

/* ---- what bounds it ---- */

/* Instructions of one op on one stage over a step. */
typedef struct Spender { OpKind op; int64_t instrs, ns, of_bound[BOUNDS]; } Spender;

static int by_time(const void *x, const void *y)
{
    const Spender *a = x, *b = y;
    if (a->ns != b->ns)
        return a->ns > b->ns ? -1 : 1;
    return (a->op > b->op) - (a->op < b->op);
}

static void add_calls(const Program *p, const StageTimes *s, Spender *by_op)
{
    for (uint32_t c = 0; c < p->ncall; c++)
        for (uint32_t i = p->proc[p->call[c].proc].first; i < p->proc[p->call[c].proc].end; i++) {
            if (!instr_runs(&p->instr[i], p, &p->call[c]) || p->instr[i].op == OP_send)
                continue;                            /* a message's time is shown once, where it is received */
            Spender *w = &by_op[p->instr[i].op];
            w->instrs++;
            w->ns += s->cost[i].ns;
            w->of_bound[s->cost[i].bound] += s->cost[i].ns;
        }
}

static Bound main_bound(const Spender *w)
{
    Bound most = BOUND_COMPUTE;
    for (int b = 0; b < BOUNDS; b++)
        most = w->of_bound[b] > w->of_bound[most] ? (Bound)b : most;
    return most;
}

void show_bounds(Report *r, const Program *p, const Simulation *sim, uint32_t stage)
{
    static const Column columns[] = {{"op", "op", SHOW_TEXT}, {"instructions", "executed", SHOW_COUNT}, {"ns", "time", SHOW_NS},
                                     {"part", "of the step", SHOW_TEXT}, {"bound", "bound by", SHOW_TEXT}};
    Table *t = report_table(r, "bounds", columns, 5);
    Spender *by_op = NEWN(r->arena, Spender, OP_KINDS);
    for (int k = 0; k < OP_KINDS; k++)
        by_op[k].op = (OpKind)k;
    add_calls(p, &sim->stage[stage], by_op);
    qsort(by_op, OP_KINDS, sizeof *by_op, by_time);
    for (int k = 0; k < OP_KINDS && by_op[k].ns > 0; k++) {
        Cell row[] = {CELL_TEXT(op_info[by_op[k].op].name), CELL_NUMBER(by_op[k].instrs), CELL_NUMBER(by_op[k].ns),
                      CELL_TEXT(percent(r->arena, (double)by_op[k].ns / (double)sim->ns)), CELL_TEXT(bound_text(main_bound(&by_op[k])))};
        table_row(r, t, row);
    }
}

/* A pass of a model without a loss has no calls in its program. */
void show_busiest(Report *r, const Graph *g, const Plan *plan, const Programs *programs, const Simulation *sim)
{
    uint32_t busiest = busiest_stage(sim);
    if (has_value(g->loss))
        show_bounds(r, programs->rank[busiest * (plan->ndevices / sim->nstage)], sim, busiest);
}

/* ---- the order of a step ---- */

const char *proc_text(ProcKind kind)
{
    static const char *const text[] = {
#define X(name) #name,
        PROC_LIST(X)
#undef X
    };
    return text[kind];
}

/* Those it communicates with, the rank itself included. */
static const char *group_text(Arena *a, const Program *p, const Instr *in)
{
    if (!(op_info[in->op].flags & OPF_COMM))
        return "";
    Text t = text_new(a);
    const RankGroup *g = &p->group[in->group];
    for (uint32_t i = 0; i < g->n; i++)
        text_add(&t, "%s%u", i ? ", " : "", g->rank[i]);
    return t.s;
}

static void show_calls(Report *r, const Program *p, const StageTimes *s)
{
    static const Column columns[] = {{"call", "call", SHOW_OFFSET}, {"procedure", "procedure", SHOW_TEXT}, {"micro", "micro-batch", SHOW_OFFSET},
                                     {"slot", "slot", SHOW_OFFSET}, {"first", "from", SHOW_OFFSET}, {"end", "before", SHOW_OFFSET},
                                     {"start_ns", "starts at", SHOW_NS}, {"end_ns", "ends at", SHOW_NS}};
    Table *t = report_table(r, "calls", columns, 8);
    for (uint32_t i = 0; i < p->ncall; i++) {
        const Proc *proc = &p->proc[p->call[i].proc];
        Cell row[] = {CELL_NUMBER(i), CELL_TEXT(proc_text(proc->kind)), CELL_NUMBER(p->call[i].micro), CELL_NUMBER(p->call[i].slot),
                      CELL_NUMBER(proc->first), CELL_NUMBER(proc->end), CELL_NUMBER(s->call[i].start), CELL_NUMBER(s->call[i].end)};
        table_row(r, t, row);
    }
}

/* What instruction i waits for, from wait *next on: "12, latest 40". */
static const char *waits_text(Arena *a, const Program *p, uint32_t i, uint32_t *next)
{
    Text t = text_new(a);
    for (; *next < p->nwait && p->wait[*next].instr == i; ++*next)
        text_add(&t, "%s%s%u", t.n ? ", " : "", p->wait[*next].same_slot ? "" : "latest ", p->wait[*next].on);
    return t.s;
}

void show_timeline(Report *r, const Program *p, const StageTimes *s, const int64_t *at)
{
    static const Column columns[] = {{"instruction", "instruction", SHOW_OFFSET}, {"procedure", "procedure", SHOW_TEXT}, {"when", "when", SHOW_TEXT},
                                     {"op", "op", SHOW_TEXT}, {"path", "of", SHOW_TEXT}, {"flops", "FLOPs", SHOW_FLOPS}, {"bytes", "bytes", SHOW_BYTES},
                                     {"at_ns", "at", SHOW_NS}, {"ns", "takes", SHOW_NS}, {"bound", "bound by", SHOW_TEXT},
                                     {"stream", "stream", SHOW_TEXT}, {"waits", "waits for", SHOW_TEXT}, {"ranks", "ranks", SHOW_TEXT}};
    uint32_t wait = 0;
    show_calls(r, p, s);
    Table *t = report_table(r, "instructions", columns, sizeof columns / sizeof *columns);
    for (uint32_t k = 0; k < p->nproc; k++)
        for (uint32_t i = p->proc[k].first; i < p->proc[k].end; i++) {
            const Instr *in = &p->instr[i];
            bool timed = at[i] >= 0;
            Cell row[] = {CELL_NUMBER(i), CELL_TEXT(proc_text(p->proc[k].kind)), CELL_TEXT(in->when == WHEN_LAST ? "last" : ""),
                          CELL_TEXT(op_info[in->op].name), CELL_TEXT(in->path), CELL_NUMBER(in->flops), CELL_NUMBER(in->bytes),
                          timed ? CELL_NUMBER(at[i]) : CELL_TEXT("not in a step"), timed ? CELL_NUMBER(s->cost[i].ns) : CELL_TEXT(""),
                          CELL_TEXT(timed ? bound_text(s->cost[i].bound) : ""), CELL_TEXT(stream_name(in->stream)),
                          CELL_TEXT(waits_text(r->arena, p, i, &wait)), CELL_TEXT(group_text(r->arena, p, in))};
            table_row(r, t, row);
        }
}
