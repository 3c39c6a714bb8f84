/* Explain: one op or value of a plan, all rounds of a repeat, or one stage. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/explain.h"
#include "cli/show.h"

/* ---- paths ---- */

/* Whether a path is the one that is asked for, of which rounds may be left out: "h.mlp.up". */
static bool is_path(const char *asked, const char *path, size_t n)
{
    size_t i = 0;
    for (; *asked && i < n; i++) {
        if (path[i] == '[' && *asked != '[')
            while (i < n && path[i] != ']')
                i++;
        else if (path[i] == *asked)
            asked++;
        else
            return false;
    }
    while (i < n && path[i] == '[')
        i += strcspn(path + i, "]") + 1;
    return !*asked && i >= n;
}

/* Whether a name of the program is of it: "grad:h[0].ln1@tp", "h[0].mlp.up+h[0].mlp.gelu". */
static bool is_of(const char *asked, const char *name)
{
    for (const char *s = name; *s; s += *s == '+') {
        if (strncmp(s, "grad:", 5) == 0)
            s += 5;
        size_t all = strcspn(s, "+"), n = strcspn(s, "+@:");
        if (is_path(asked, s, all) || is_path(asked, s, n))
            return true;
        s += all;
    }
    return false;
}

typedef struct Asked {
    Loaded         *l;
    const Plan     *plan;
    const Programs *programs;
    const Layout   *layout;
    const char     *path;
    bool           *op, *value;       /* that are named, or belong to what is */
    bool            bare;             /* a weight or an input is named */
    Report         *r;
} Asked;

static void want_value(const Asked *x, ValueId v)
{
    if (has_value(v))
        x->value[v.i] = true;
}

/* Ops that read a weight or an input that is named. */
static bool reads_named(const Asked *x, const Op *op)
{
    const Graph *g = x->l->graph;
    for (int k = 0; k < op->narg; k++) {
        const Value *v = has_value(op->arg[k]) ? value_of(g, op->arg[k]) : NULL;
        if (v && !has_op(v->maker) && is_path(x->path, v->path, strlen(v->path)))
            return true;
    }
    return false;
}

/* What is asked for, with what it reads, and the gradients of these; of a weight or input the ops
 * that read it.  Number of ops and values named. */
static uint32_t find(Asked *x)
{
    const Graph *g = x->l->graph;
    uint32_t n = 0;
    for (uint32_t v = 0; v < g->nvalue; v++) {
        const Value *val = &g->value[v];
        x->value[v] = is_path(x->path, val->path, strlen(val->path));
        x->bare |= x->value[v] && !has_op(val->maker);
        n += x->value[v];
    }
    for (uint32_t o = 0; o < g->nop; o++) {
        const Op *op = &g->op[o];
        bool named = is_path(x->path, op->path, strlen(op->path));
        n += op->phase == PHASE_FORWARD && named;
        x->op[o] = op->phase == PHASE_FORWARD && (named || reads_named(x, op));
        for (int k = 0; x->op[o] && named && k < op->narg + op->nout; k++)
            want_value(x, k < op->narg ? op->arg[k] : op->out[k - op->narg]);
    }
    for (uint32_t v = 0; v < g->nvalue; v++)
        if (x->value[v])
            want_value(x, g->value[v].gradient);
    return n;
}

/* "h.mlp.up" of "h[3].mlp.up", when what was asked for has no rounds. */
static const char *without_rounds(Arena *a, const char *asked, const char *path)
{
    Text t = text_new(a);
    if (strchr(asked, '['))
        return path;
    for (; *path; path += strcspn(path, "]") + (*path != 0)) {
        size_t n = strcspn(path, "[");
        text_puts(&t, path, n);
        path += n;
        if (!*path)
            break;
    }
    return t.s;
}

/* A block is no op, but has some. */
static bool names_inside(const Asked *x, const char *const *pool, uint32_t n)
{
    enum { SHOWN = 12 };
    size_t length = strlen(x->path);
    uint32_t found = 0;
    Text list = text_new(x->l->ir);
    for (uint32_t i = 0; i < n; i++)
        if (strncmp(pool[i], x->path, length) == 0 && pool[i][length] == '.' && !strstr(list.s, pool[i]) && found++ < SHOWN)
            text_add(&list, "%s%s", found > 1 ? ", " : "", pool[i]);
    if (found)
        fprintf(stderr, "error: '%s' is a block; of its ops and weights one is explained: %s%s\n", x->path, list.s, found > SHOWN ? ", .." : "");
    return found > 0;
}

/* Rounds of a repeat, as far as a path shows: one more than its own; 0: the path is not in the repeat. */
static int64_t rounds_seen(const char *repeat, const char *path)
{
    for (const char *s = strchr(path, '['); s; s = strchr(s + 1, '['))
        if (is_path(repeat, path, (size_t)(s - path)))
            return s[strcspn(s, "]") + 1] ? strtoll(s + 1, NULL, 10) + 1 : 0;      /* ops of one name are counted at the end */
    return 0;
}

/* A round is asked for that comes after the last one of its repeat. */
static bool names_no_round(const Asked *x, const char *const *pool, uint32_t n)
{
    for (const char *s = strchr(x->path, '['); s; s = strchr(s + 1, '[')) {
        const char *repeat = arena_strndup(x->l->ir, x->path, (size_t)(s - x->path));
        int64_t most = 0;
        for (uint32_t i = 0; i < n; i++) {
            int64_t rounds = rounds_seen(repeat, pool[i]);
            most = rounds > most ? rounds : most;
        }
        char *end;
        int64_t round = strtoll(s + 1, &end, 10);
        if (most > 0 && end > s + 1 && *end == ']' && round >= most) {
            fprintf(stderr, "error: nothing at '%s': %s\n", x->path, rounds_text(x->l->ir, repeat, most));
            return true;
        }
    }
    return false;
}

static Status nothing_there(const Asked *x)
{
    const Graph *g = x->l->graph;
    const char **pool = NULL;
    uint32_t n = 0;
    for (uint32_t o = 0; o < g->nop; o++)
        if (g->op[o].phase == PHASE_FORWARD)
            PUSH(x->l->ir, pool, n, without_rounds(x->l->ir, x->path, g->op[o].path));
    for (uint32_t v = 0; v < g->nvalue; v++)
        if (!has_op(g->value[v].maker))
            PUSH(x->l->ir, pool, n, without_rounds(x->l->ir, x->path, g->value[v].path));
    const char *near = nearest_name(x->path, pool, n);
    if (names_inside(x, pool, n) || names_no_round(x, pool, n))
        return ERR_REJECT;
    fprintf(stderr, "error: nothing at '%s': expected the path of an op or a value, or 'stage N'%s%s%s\n", x->path, near ? "; did you mean '" : "",
            near ? near : "", near ? "'?" : "");
    fprintf(stderr, "help: 'pplan graph' prints all paths\n");
    return ERR_REJECT;
}

/* ---- why it is split ---- */

static bool names(const Rule *r, const char *axis)
{
    for (uint32_t k = 0; k < r->nnames; k++)
        if (strcmp(r->names[k], axis) == 0)
            return true;
    return false;
}

/* The rule that took a mesh axis for an op: of those that name the axis, one with a path
 * before one without, and the first of them. */
static const char *rule_of(Arena *a, const Plan *p, const Op *op, const char *axis, MeshAxis by)
{
    for (int with_path = 1; with_path >= 0; with_path--)
        for (uint32_t i = 0; i < p->nrule; i++) {
            const Rule *r = &p->rule[i];
            bool fits = r->kind == RULE_SPLIT && names(r, axis) && (r->path.nstep > 0) == with_path && path_matches(&r->path, op->path);
            for (int k = 0; fits && k < r->by.n; k++)
                if (r->by.axis[k] == by)
                    return span_known(r->at) ? arena_printf(a, "given: %s", rule_text(a, r)) : arena_printf(a, "chosen: %s", rule_text(a, r));
        }
    return by == AXIS_dp ? "dp splits the batch" : "it goes with the query heads that read it";
}

static void show_reasons(const Asked *x)
{
    static const Column columns[] = {{"path", "split of", SHOW_TEXT}, {"axis", "axis", SHOW_TEXT}, {"by", "by", SHOW_TEXT}, {"ways", "ways", SHOW_COUNT},
                                     {"why", "why", SHOW_TEXT}};
    const Layout *l = x->layout;
    Table *t = report_table(x->r, "reasons", columns, 5);
    for (uint32_t o = 0; o < l->g->nop; o++)
        for (uint32_t d = 0; x->op[o] && d < l->grid.n; d++)
            for (uint8_t f = 0; f < l->g->op[o].nfactor; f++) {
                if (!(l->cut[o][d] >> f & 1))
                    continue;
                const char *axis = dim_of(l->g, l->g->op[o].factor[f].dim)->name;
                MeshAxis by = l->grid.axis[d].axis;
                Cell row[] = {CELL_TEXT(l->g->op[o].path), CELL_TEXT(axis), CELL_TEXT(mesh_axis_name(by)), CELL_NUMBER(l->grid.axis[d].size),
                              CELL_TEXT(rule_of(x->l->ir, x->plan, &l->g->op[o], axis, by))};
                table_row(x->r, t, row);
            }
    table_fold(x->r, t);
}

/* ---- what it takes ---- */

static uint32_t calls_of(const Program *p, const Proc *proc, const Instr *in)
{
    uint32_t n = 0;
    for (uint32_t c = 0; c < p->ncall; c++)
        n += &p->proc[p->call[c].proc] == proc && instr_runs(in, p, &p->call[c]);
    return n;
}

static bool names_tensor(const Asked *x, const Program *p, TensorId t)
{
    return has_tensor(t) && is_of(x->path, p->tensor[t.i].path);
}

/* Whether an instruction comes from the op, forward or backward, or works on the weight or input. */
static bool is_asked(const Asked *x, const Program *p, const Instr *in)
{
    bool found = is_of(x->path, in->path) || is_path(x->path, in->key, strlen(in->key));
    for (int k = 0; x->bare && !found && k < in->narg + in->nout; k++)
        found = names_tensor(x, p, k < in->narg ? in->arg[k] : in->out[k - in->narg]);
    return found;
}

static void add_instrs(const Asked *x, Table *t, const Program *p, const Cost *cost, uint32_t stage)
{
    for (uint32_t k = 0; k < p->nproc; k++)
        for (uint32_t i = p->proc[k].first; i < p->proc[k].end; i++) {
            const Instr *in = &p->instr[i];
            uint32_t calls = is_asked(x, p, in) ? calls_of(p, &p->proc[k], in) : 0;
            if (calls == 0)
                continue;
            Cell row[] = {CELL_TEXT(in->path), CELL_TEXT(op_info[in->op].name), CELL_TEXT(proc_text(p->proc[k].kind)), CELL_NUMBER(stage), CELL_NUMBER(calls),
                          CELL_NUMBER(cost[i].ns), CELL_NUMBER(cost[i].ns * calls), CELL_TEXT(bound_text(cost[i].bound))};
            table_row(x->r, t, row);
        }
}

static void show_instrs(const Asked *x, const Simulation *sim)
{
    static const Column columns[] = {{"path", "instruction of", SHOW_TEXT}, {"op", "op", SHOW_TEXT}, {"procedure", "procedure", SHOW_TEXT},
                                     {"stage", "stage", SHOW_OFFSET}, {"calls", "executed", SHOW_COUNT}, {"ns", "takes", SHOW_NS}, {"step_ns", "in a step", SHOW_NS},
                                     {"bound", "bound by", SHOW_TEXT}};
    Table *t = report_table(x->r, "instructions", columns, 8);
    for (uint32_t s = 0; s < sim->nstage; s++)
        add_instrs(x, t, x->programs->rank[s * (x->plan->ndevices / sim->nstage)], sim->stage[s].cost, s);
    table_fold(x->r, t);
}

typedef struct Owned { const char *name; BufferClass cls; uint32_t stage, slots; int64_t bytes; const char *live; } Owned;

static void add_owned(const Asked *x, Table *t, Owned o)
{
    Cell row[] = {CELL_TEXT(o.name), CELL_TEXT(buffer_class_text(o.cls)), CELL_NUMBER(o.stage), CELL_NUMBER(o.slots), CELL_NUMBER(o.bytes), CELL_TEXT(o.live)};
    table_row(x->r, t, row);
}

/* What a rank has of a state of this weight that is shared out: the tensor is of the whole bucket. */
static void add_part(const Asked *x, Table *t, const Program *p, const State *s, TensorId of, BufferClass cls, uint32_t stage)
{
    int64_t bytes = dtype_bytes(p->tensor[of.i].dtype), n = tensor_elements(&p->tensor[s->weight.i]);
    int64_t from = s->shard.at > s->shard.first ? s->shard.at : s->shard.first, to = s->shard.at + n < s->shard.end ? s->shard.at + n : s->shard.end;
    add_owned(x, t, (Owned){s->path, cls, stage, 1, to > from ? (to - from) * bytes : 0,
              arena_printf(x->l->ir, "always: the part of rank %u, of %s that are shared out", p->rank, text_bytes(x->l->ir, n * bytes))});
}

static void add_state(const Asked *x, Table *t, const Program *p, const State *s, uint32_t stage)
{
    const TensorId of[] = {s->weight, s->master, s->gradient, s->moment[0], s->moment[1]};
    const TensorId part[] = {NO_TENSOR, s->shard.master, NO_TENSOR, s->shard.moment[0], s->shard.moment[1]};
    static const BufferClass cls[] = {CLASS_weights, CLASS_master, CLASS_gradients, CLASS_moments, CLASS_moments};
    for (int k = 0; k < 5; k++)
        if (s->sharded && has_tensor(part[k]))
            add_part(x, t, p, s, part[k], cls[k], stage);
        else if (has_tensor(of[k]))
            add_owned(x, t, (Owned){s->path, cls[k], stage, 1, tensor_bytes(&p->tensor[of[k].i]), "always"});
}

/* States are parts of buckets, so they are found by their weights. */
static void add_states(const Asked *x, Table *t, const Program *p, uint32_t stage)
{
    const Graph *g = x->l->graph;
    for (uint32_t i = 0; i < p->nstate; i++)
        for (uint32_t v = 0; v < g->nvalue; v++)
            if (x->value[v] && g->value[v].role == ROLE_WEIGHT && strcmp(g->value[v].path, p->state[i].path) == 0)
                add_state(x, t, p, &p->state[i], stage);
}

/* "always", "from forward to backward", "within evaluate" */
static const char *life_text(Arena *a, const Program *p, const Buffer *b)
{
    const Proc *k = p->proc;
    if (b->first < 0)
        return "always";
    if (b->cls == CLASS_saved)
        return "from forward to backward";
    while (k + 1 < p->proc + p->nproc && (uint32_t)b->first >= k->end)
        k++;
    return arena_printf(a, "within %s", proc_text(k->kind));
}

static void show_buffers(const Asked *x)
{
    static const Column columns[] = {{"buffer", "memory of", SHOW_TEXT}, {"class", "memory", SHOW_TEXT}, {"stage", "stage", SHOW_OFFSET},
                                     {"slots", "slots", SHOW_OFFSET}, {"bytes", "bytes", SHOW_BYTES}, {"live", "live", SHOW_TEXT}};
    Table *t = report_table(x->r, "buffers", columns, 6);
    uint32_t ranks = x->plan->ndevices / (uint32_t)x->plan->mesh[AXIS_pp];
    for (uint32_t r = 0; r < x->plan->ndevices; r += ranks) {
        const Program *p = x->programs->rank[r];
        add_states(x, t, p, r / ranks);
        for (uint32_t i = 0; i < p->nbuffer; i++) {
            const Buffer *b = &p->buffer[i];
            if (is_of(x->path, b->name))
                add_owned(x, t, (Owned){b->name, b->cls, r / ranks, b->slots, b->bytes * b->slots, life_text(x->l->ir, p, b)});
        }
    }
    table_fold(x->r, t);
}

/* ---- a stage ---- */

/* "stage 2": its number; -1: it is none. */
static int64_t stage_number(const char *path)
{
    char *end;
    if (strncmp(path, "stage ", 6) != 0)
        return -1;
    int64_t n = strtoll(path + 6, &end, 10);
    return end == path + 6 || *end ? -1 : n;
}

/* "embed[0] to h[5].mlp.down, 48 ops" */
static const char *stage_ops(Arena *a, const Layout *l, uint32_t stage)
{
    const Op *first = NULL, *last = NULL;
    uint32_t n = 0;
    for (uint32_t o = 0; o < l->g->nop; o++) {
        if (l->g->op[o].phase != PHASE_FORWARD || !(l->stages[o] >> stage & 1))
            continue;
        first = first ? first : &l->g->op[o];
        last = &l->g->op[o];
        n++;
    }
    return n ? arena_printf(a, "'%s' to '%s', %u op%s", first->path, last->path, n, n == 1 ? "" : "s") : "none";
}

static uint32_t in_flight(const Program *p)
{
    uint32_t n = 1;
    for (uint32_t c = 0; c < p->ncall; c++)
        n = p->call[c].slot >= n ? p->call[c].slot + 1 : n;
    return n;
}

/* The n-th cut, as the rules made it, is where stage n begins. */
static const char *stage_why(Arena *a, const Plan *p, uint32_t stage)
{
    Text t = text_new(a);
    for (uint32_t i = 0; i < p->nrule && stage > 0; i++)
        if (p->rule[i].kind == RULE_STAGE_BEFORE || p->rule[i].kind == RULE_STAGE_AFTER || p->rule[i].kind == RULE_STAGE_EVERY)
            text_add(&t, "%s%s", t.n ? "; " : "", rule_text(a, &p->rule[i]));
    return t.s;
}

static void stage_line(const Asked *x, Table *t, const char *name, const char *key, const char *text)
{
    table_line(x->r, t, name, text);
    table_fact(x->r, t, key, CELL_TEXT(text));
}

static void show_stage(const Asked *x, uint32_t stage, const Simulation *sim)
{
    Arena *a = x->l->ir;
    uint32_t ranks = x->plan->ndevices / sim->nstage;
    const Program *p = x->programs->rank[stage * ranks];
    Table *t = report_lines(x->r, "stage");
    stage_line(x, t, "stage", "stage", arena_printf(a, "%u of %u, ranks %u to %u", stage, sim->nstage, stage * ranks, (stage + 1) * ranks - 1));
    stage_line(x, t, "ops", "ops", stage_ops(a, x->layout, stage));
    if (*stage_why(a, x->plan, stage))
        stage_line(x, t, "cut by", "cut_by", stage_why(a, x->plan, stage));
    stage_line(x, t, "in flight", "in_flight", arena_printf(a, "%u of %lld micro-batches at once", in_flight(p), (long long)x->plan->microbatches));
    show_times(x->r, sim, stage);
    show_memory(x->r, p);
    show_bounds(x->r, p, sim, stage);
    show_crossings(x->r, x->layout, stage);
}

/* ---- the whole ---- */

static void show_asked(const Asked *x, const Simulation *sim)
{
    const Only only = {x->op, x->value};
    show_op_splits(x->r, x->layout, &only);
    show_reasons(x);
    show_values(x->r, x->layout, &only);
    show_conversions(x->r, x->layout, &only);
    show_instrs(x, sim);
    show_buffers(x);
}

Status explain_path(Loaded *l, const Plan *plan, const Programs *programs, const char *path, Report *r)
{
    Layout layout;
    TRY(layout_read(l->ir, l->ds, l->graph, plan, &layout));
    Asked x = {.l = l, .plan = plan, .programs = programs, .layout = &layout, .path = path, .r = r};
    x.op = NEWN(l->ir, bool, l->graph->nop + 1);
    x.value = NEWN(l->ir, bool, l->graph->nvalue + 1);
    Simulation sim = simulate(l->ir, l->cluster, plan, l->profile, programs->rank);
    int64_t stage = stage_number(path);
    if (find(&x) > 0) {
        show_asked(&x, &sim);
        return OK;
    }
    if (stage < 0)
        return nothing_there(&x);
    if (stage >= sim.nstage) {
        fprintf(stderr, "error: no stage %lld: the plan has %u stage%s, numbered from 0\n", (long long)stage, sim.nstage, sim.nstage == 1 ? "" : "s");
        return ERR_REJECT;
    }
    show_stage(&x, (uint32_t)stage, &sim);
    return OK;
}
