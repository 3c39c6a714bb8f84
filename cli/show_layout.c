/* Show: a layout, as users know its parts and in full. */
#include <string.h>

#include "base/text.h"
#include "cli/show.h"
#include "ir/split.h"

/* ---- names ---- */

static bool same_axis(const Grid *g, uint32_t d, uint32_t e)
{
    return g->axis[d].axis == g->axis[e].axis && g->axis[d].part == g->axis[e].part;
}

/* "tp", "(dp.inner, tp)"; where the layout needs a mesh axis in more parts than the user
 * made, and not all of them count, "tp.1" and so on, the outermost first. */
static const char *axes_text(Arena *a, const Grid *g, GridSet set)
{
    static const char *const part[] = {[PART_WHOLE] = "", [PART_OUTER] = ".outer", [PART_INNER] = ".inner"};
    Text t = text_new(a);
    uint32_t names = 0;
    for (uint32_t first = 0, end; first < g->n; first = end) {
        GridSet all = 0;
        for (end = first; end < g->n && same_axis(g, first, end); end++)
            all = (GridSet)(all | 1u << end);
        for (uint32_t d = first; d < end; d++) {
            if (!(set >> d & 1) || (d > first && (set & all) == all))
                continue;
            text_add(&t, "%s%s%s", names++ ? ", " : "", mesh_axis_name(g->axis[d].axis), part[g->axis[d].part]);
            if ((set & all) != all)
                text_add(&t, ".%u", d - first + 1);
        }
    }
    return names > 1 ? arena_printf(a, "(%s)", t.s) : t.s;
}

/* "[batch@dp, seq, hidden] partial over tp" */
static const char *placement_text(Arena *a, const Layout *l, ValueId v, Placement p)
{
    const Value *val = value_of(l->g, v);
    GridSet partial = placement_on(&l->grid, p, PLACE_PARTIAL);
    Text t = text_new(a);
    for (int x = 0; x < val->rank; x++) {
        GridSet set = placement_on(&l->grid, p, x);
        text_add(&t, "%s%s%s%s", x ? ", " : "[", dim_of(l->g, val->axis[x])->name, set ? "@" : "", set ? axes_text(a, &l->grid, set) : "");
    }
    text_add(&t, "%s", val->rank ? "]" : "[]");
    if (partial)
        text_add(&t, " partial over %s", axes_text(a, &l->grid, partial));
    return t.s;
}

/* A value when no rank is left with a summand. */
static Placement completed(const Layout *l, ValueId v)
{
    Placement p = l->value[v.i];
    for (uint32_t d = 0; d < l->grid.n; d++)
        p.on[d] = p.on[d] == PLACE_PARTIAL ? PLACE_WHOLE : p.on[d];
    return p;
}

/* ---- what users call a split ---- */

static bool weight_has(const Graph *g, const Op *op, uint8_t f)
{
    for (int a = 0; a < op->narg; a++)
        if (op_arg_has(g, op, a, f) && value_of(g, op->arg[a])->role == ROLE_WEIGHT)
            return true;
    return false;
}

/* Whether the dim is the classes that some loss tells apart. */
static bool is_vocabulary(const Graph *g, DimId d)
{
    for (uint32_t o = 0; o < g->nop; o++)
        for (uint8_t f = 0; g->op[o].kind == OP_cross_entropy && f < g->op[o].nfactor; f++)
            if (g->op[o].factor[f].role == 'c' && same_dim(g->op[o].factor[f].dim, d))
                return true;
    return false;
}

static bool is_position(const Graph *g, DimId d)
{
    for (uint32_t v = 0; v < g->nvalue; v++)
        if (g->value[v].role == ROLE_INPUT && value_has_dim(g, (ValueId){v}, d))
            return true;
    return false;
}

/* "" for what only follows its neighbours. */
static const char *known_as(const Graph *g, const Op *op, uint8_t f, MeshAxis axis)
{
    DimId d = op->factor[f].dim;
    char role = op->factor[f].role;
    if (same_dim(d, g->batch))
        return "data parallel";
    if ((op->kind == OP_embed && role == 'v') || (op->kind == OP_cross_entropy && role == 'c') || (weight_has(g, op, f) && is_vocabulary(g, d)))
        return "vocabulary parallel";
    if (weight_has(g, op, f))
        return op_out_has(g, op, 0, f) ? "column parallel" : "row parallel";
    if (op->kind == OP_attention && (role == 'h' || role == 'g'))
        return "head parallel";
    if (axis == AXIS_cp)
        return "context parallel";
    return is_position(g, d) ? "sequence parallel" : "";
}

/* ---- lists of distinct words ---- */

typedef struct Words { Arena *arena; const char **word; uint32_t n; } Words;

static void add_word(Words *w, const char *word)
{
    bool have = !*word;
    for (uint32_t i = 0; i < w->n; i++)
        have |= strcmp(w->word[i], word) == 0;
    if (!have)
        PUSH(w->arena, w->word, w->n, word);
}

static const char *joined(const Words *w)
{
    Text t = text_new(w->arena);
    for (uint32_t i = 0; i < w->n; i++)
        text_add(&t, "%s%s", i ? ", " : "", w->word[i]);
    return t.s;
}

/* ---- by mesh axis ---- */

/* All ops of the forward pass: what grid axis d splits, and how that is known. */
static void splits_of(const Layout *l, uint32_t d, Words *known, Words *axes, uint32_t *ops)
{
    for (uint32_t o = 0; o < l->g->nop; o++) {
        const Op *op = &l->g->op[o];
        *ops += op->phase == PHASE_FORWARD && l->cut[o][d];
        for (uint8_t f = 0; op->phase == PHASE_FORWARD && f < op->nfactor; f++)
            if (l->cut[o][d] >> f & 1) {
                add_word(known, known_as(l->g, op, f, l->grid.axis[d].axis));
                add_word(axes, dim_of(l->g, op->factor[f].dim)->name);
            }
    }
}

void show_splits(Report *r, const Layout *l)
{
    static const Column columns[] = {{"axis", "mesh axis", SHOW_TEXT}, {"size", "size", SHOW_COUNT}, {"splits", "splits", SHOW_TEXT},
                                     {"ops", "ops", SHOW_COUNT}, {"known_as", "known as", SHOW_TEXT}};
    Table *t = report_table(r, "mesh", columns, 5);
    for (uint32_t d = 0; d < l->grid.n; d++) {
        Words known = {r->arena, NULL, 0}, axes = known;
        uint32_t ops = 0;
        splits_of(l, d, &known, &axes, &ops);
        Cell row[] = {CELL_TEXT(axes_text(r->arena, &l->grid, (GridSet)(1u << d))), CELL_NUMBER(l->grid.axis[d].size),
                      CELL_TEXT(joined(&axes)), CELL_NUMBER(ops), CELL_TEXT(joined(&known))};
        table_row(r, t, row);
    }
}

/* ---- stages ---- */

/* "0", "0..2": the stages of a set. */
static const char *stages_text(Arena *a, const Layout *l, StageSet set)
{
    Text t = text_new(a);
    for (uint32_t s = 0, end; s < l->nstages; s = end + 1) {
        for (end = s; end < l->nstages && set >> end & 1; end++)
            ;
        if (end > s)
            text_add(&t, end - s > 1 ? "%s%u..%u" : "%s%u", t.n ? ", " : "", s, end - 1);
    }
    return t.s;
}

void show_crossings(Report *r, const Layout *l, uint32_t stage)
{
    static const Column columns[] = {{"value", "sent between stages", SHOW_TEXT}, {"placement", "placement", SHOW_TEXT},
                                     {"from", "from", SHOW_COUNT}, {"to", "to", SHOW_COUNT}};
    Table *t = report_table(r, "crossings", columns, 4);
    for (uint32_t i = 0; i < l->ncrossing; i++) {
        const Crossing *c = &l->crossing[i];
        if (stage != UINT32_MAX && stage != c->from && stage != c->to)
            continue;
        Cell row[] = {CELL_TEXT(value_of(l->g, c->value)->path), CELL_TEXT(placement_text(r->arena, l, c->value, completed(l, c->value))),
                      CELL_NUMBER(c->from), CELL_NUMBER(c->to)};
        table_row(r, t, row);
    }
}

/* ---- by op ---- */

static void op_splits(Arena *a, const Layout *l, OpId o, Words *splits, Words *known)
{
    const Op *op = op_of(l->g, o);
    for (uint8_t f = 0; f < op->nfactor; f++) {
        GridSet set = 0;
        for (uint32_t d = 0; d < l->grid.n; d++) {
            if (!(l->cut[o.i][d] >> f & 1))
                continue;
            set |= (GridSet)(1u << d);
            add_word(known, known_as(l->g, op, f, l->grid.axis[d].axis));
        }
        if (set)
            add_word(splits, arena_printf(a, "%s@%s", dim_of(l->g, op->factor[f].dim)->name, axes_text(a, &l->grid, set)));
    }
}

void show_op_splits(Report *r, const Layout *l, const Only *only)
{
    static const Column columns[] = {{"path", "op", SHOW_TEXT}, {"kind", "kind", SHOW_TEXT}, {"splits", "split", SHOW_TEXT},
                                     {"result", "result", SHOW_TEXT}, {"known_as", "known as", SHOW_TEXT}, {"stages", "stage", SHOW_TEXT}};
    Table *t = report_table(r, "ops", columns, l->nstages > 1 ? 6 : 5);
    for (uint32_t o = 0; o < l->g->nop; o++) {
        const Op *op = &l->g->op[o];
        Words splits = {r->arena, NULL, 0}, known = splits;
        if (op->phase != PHASE_FORWARD || (only && !only->op[o]))
            continue;
        op_splits(r->arena, l, (OpId){o}, &splits, &known);
        Cell row[] = {CELL_TEXT(op->path), CELL_TEXT(op_info[op->kind].name), CELL_TEXT(joined(&splits)),
                      CELL_TEXT(placement_text(r->arena, l, op->out[0], l->value[op->out[0].i])), CELL_TEXT(joined(&known)),
                      CELL_TEXT(stages_text(r->arena, l, l->stages[o]))};
        table_row(r, t, row);
    }
    table_fold(r, t);
}

/* ---- values ---- */

static const char *role_text(ValueRole role)
{
    static const char *const text[] = {[ROLE_INPUT] = "input", [ROLE_WEIGHT] = "weight", [ROLE_ACTIVATION] = "activation",
                                       [ROLE_GRADIENT] = "gradient", [ROLE_WEIGHT_GRADIENT] = "weight gradient", [ROLE_STEP] = "step"};
    return text[role];
}

void show_values(Report *r, const Layout *l, const Only *only)
{
    static const Column columns[] = {{"value", "value", SHOW_TEXT}, {"role", "role", SHOW_TEXT}, {"placement", "placement", SHOW_TEXT}};
    Table *t = report_table(r, "values", columns, 3);
    for (uint32_t v = 0; v < l->g->nvalue; v++) {
        const Value *val = &l->g->value[v];
        if (only && !only->value[v])
            continue;
        Cell row[] = {CELL_TEXT(val->path), CELL_TEXT(role_text(val->role)), CELL_TEXT(placement_text(r->arena, l, (ValueId){v}, l->value[v]))};
        table_row(r, t, row);
    }
    table_fold(r, t);
}

/* ---- conversions ---- */

/* The axes whose sums left a value partial on grid axis d: of its maker, or of what the
 * maker passes on.  `seen`: per value. */
static void add_sums(const Layout *l, ValueId v, uint32_t d, bool *seen, Words *why)
{
    OpId o = value_of(l->g, v)->maker;
    if (seen[v.i] || !has_op(o))
        return;
    const Op *op = op_of(l->g, o);
    seen[v.i] = true;
    for (uint8_t f = 0; f < op->nfactor; f++)
        if (l->cut[o.i][d] >> f & 1)
            add_word(why, arena_printf(why->arena, "%s is summed", dim_of(l->g, op->factor[f].dim)->name));
    for (int a = 0; !l->cut[o.i][d] && a < op->narg; a++)
        if (has_value(op->arg[a]) && l->value[op->arg[a].i].on[d] == PLACE_PARTIAL)
            add_sums(l, op->arg[a], d, seen, why);
}

static const char *axis_name(const Layout *l, ValueId v, int8_t axis)
{
    return dim_of(l->g, value_of(l->g, v)->axis[axis])->name;
}

/* Steps of a conversion, in the order they are made (codegen/convert.c). */
typedef enum Step { STEP_REDUCE_SCATTER, STEP_ALL_REDUCE, STEP_ALL_TO_ALL, STEP_ALL_GATHER, STEP_SLICE, STEPS } Step;
static const char *const step_text[STEPS] = {"reduce_scatter", "all_reduce", "all_to_all", "all_gather", "slice"};

static Step step_of(int8_t from, int8_t to)
{
    if (from == PLACE_PARTIAL)
        return to == PLACE_WHOLE ? STEP_ALL_REDUCE : STEP_REDUCE_SCATTER;
    return from == PLACE_WHOLE ? STEP_SLICE : to == PLACE_WHOLE ? STEP_ALL_GATHER : STEP_ALL_TO_ALL;
}

/* Why it changes on one grid axis: because of which axis of the model. */
static void add_reasons(const Layout *l, ValueId v, uint32_t d, int8_t from, int8_t to, Words *why)
{
    if (from == PLACE_PARTIAL)
        add_sums(l, v, d, NEWN(why->arena, bool, l->g->nvalue), why);
    if (from >= 0)
        add_word(why, arena_printf(why->arena, "%s is needed whole", axis_name(l, v, from)));
    if (to >= 0)
        add_word(why, arena_printf(why->arena, "%s is split", axis_name(l, v, to)));
}

static void read_steps(const Layout *l, ValueId v, Placement from, Placement to, Words *by, Words *why)
{
    GridSet set[STEPS] = {0};
    for (uint32_t d = 0; d < l->grid.n; d++) {
        if (from.on[d] == to.on[d])
            continue;
        Step s = step_of(from.on[d], to.on[d]);
        set[s] = (GridSet)(set[s] | 1u << d);
        add_reasons(l, v, d, from.on[d], to.on[d], why);
    }
    for (int s = 0; s < STEPS; s++)
        if (set[s])
            add_word(by, arena_printf(by->arena, "%s over %s", step_text[s], axes_text(by->arena, &l->grid, set[s])));
}

typedef struct Converted { ValueId value; Placement to; } Converted;
typedef struct Conversions { Report *r; const Layout *l; const Only *only; Table *t; Converted *done; uint32_t ndone; } Conversions;

static void conversion_row(const Conversions *c, ValueId v, const char *from, const char *to, const char *by, const char *because, const char *reader)
{
    Cell row[] = {CELL_TEXT(value_of(c->l->g, v)->path), CELL_TEXT(from), CELL_TEXT(to), CELL_TEXT(by), CELL_TEXT(because), CELL_TEXT(reader)};
    table_row(c->r, c->t, row);
}

static bool is_wanted(const Conversions *c, ValueId v)
{
    return !c->only || c->only->value[v.i];
}

/* A value is converted once to each placement, for all its readers. */
static void add_conversion(Conversions *c, ValueId v, Placement to, const char *reader)
{
    const Layout *l = c->l;
    Placement from = l->value[v.i];
    Words by = {c->r->arena, NULL, 0}, why = by;
    for (uint32_t i = 0; i < c->ndone; i++)
        if (c->done[i].value.i == v.i && placement_equal(&l->grid, c->done[i].to, to))
            return;
    if (placement_equal(&l->grid, from, to) || !is_wanted(c, v))
        return;
    PUSH(c->r->arena, c->done, c->ndone, ((Converted){v, to}));
    read_steps(l, v, from, to, &by, &why);
    conversion_row(c, v, placement_text(c->r->arena, l, v, from), placement_text(c->r->arena, l, v, to), joined(&by), joined(&why), reader);
}

/* A weight whose states are shared out (codegen/update.c): of its bucket's gradients each rank gets the sum of its part
 * in the flat order, steps that part, and gives the weights there to the others. */
static void convert_shared_out(Conversions *c, uint32_t weight)
{
    const Layout *l = c->l;
    Arena *a = c->r->arena;
    ValueId v = l->g->weight[weight].value, gradient = l->g->weight[weight].gradient;
    GridSet shard = l->shard[weight], rest = (GridSet)(l->reduce[weight] & ~shard);
    const char *axes = axes_text(a, &l->grid, shard), *whole = placement_text(a, l, v, l->value[v.i]);
    const char *flat = arena_printf(a, "flat@%s of its bucket", axes);
    Words by = {a, NULL, 0}, because = by;
    add_word(&by, arena_printf(a, "reduce_scatter over %s", axes));
    add_word(&by, rest ? arena_printf(a, "all_reduce over %s", axes_text(a, &l->grid, rest)) : "");
    for (uint32_t d = 0; d < l->grid.n; d++)
        if (l->reduce[weight] >> d & 1)
            add_sums(l, gradient, d, NEWN(a, bool, l->g->nvalue), &because);
    add_word(&because, "flat is split");
    if (is_wanted(c, gradient))
        conversion_row(c, gradient, placement_text(a, l, gradient, l->value[gradient.i]), flat, joined(&by), joined(&because), "optimizer");
    if (is_wanted(c, v))
        conversion_row(c, v, flat, whole, arena_printf(a, "all_gather over %s", axes), "flat is needed whole", "the next step");
}

static void convert_gradients(Conversions *c)
{
    const Graph *g = c->l->g;
    for (uint32_t i = 0; i < g->nweight; i++) {
        ValueId gradient = g->weight[i].gradient;
        if (has_value(gradient) && c->l->shard[i])
            convert_shared_out(c, i);
        else if (has_value(gradient))
            add_conversion(c, gradient, c->l->value[g->weight[i].value.i], "optimizer");
    }
}

void show_conversions(Report *r, const Layout *l, const Only *only)
{
    static const Column columns[] = {{"value", "conversion of", SHOW_TEXT}, {"from", "from", SHOW_TEXT}, {"to", "to", SHOW_TEXT},
                                     {"by", "by", SHOW_TEXT}, {"because", "because", SHOW_TEXT}, {"reader", "first read by", SHOW_TEXT}};
    Conversions c = {.r = r, .l = l, .only = only, .t = report_table(r, "conversions", columns, 6)};
    for (uint32_t o = 0; o < l->g->nop; o++)
        for (int a = 0; a < l->g->op[o].narg; a++)
            if (has_value(l->g->op[o].arg[a]))
                add_conversion(&c, l->g->op[o].arg[a], layout_need(l, (OpId){o}, a), l->g->op[o].path);
    for (uint32_t i = 0; i < l->g->noutput; i++)
        add_conversion(&c, l->g->output[i].value, completed(l, l->g->output[i].value), "output");
    if (has_value(l->g->loss))
        add_conversion(&c, l->g->loss, completed(l, l->g->loss), "report");
    convert_gradients(&c);
    table_fold(r, c.t);
}
