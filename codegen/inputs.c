/* Inputs: what the loader fills, and which numbers may be in it.
 *
 * Every program lists all inputs of the model.  A rank has memory for those that its
 * instructions read alone; what the numbers may be follows from the whole graph, so
 * all ranks take and refuse the same data. */
#include "codegen/pass.h"

#include <string.h>

/* ---- which numbers ---- */

/* A reader: argument `arg` picks along the axis of role `role` of argument `of`. */
typedef struct Reader { OpKind op; int arg, of; char role; bool label; } Reader;
static const Reader readers[] = {
    {OP_embed, 0, 1, 'v', false},
    {OP_cross_entropy, 1, 0, 'c', true},
    {OP_count_labels, 0, -1, 0, true},
};
enum { NREADERS = sizeof readers / sizeof *readers };

static int64_t extent_of(const Graph *g, const Op *op, int arg, char role)
{
    for (uint32_t x = 0; x < value_of(g, op->arg[arg])->rank; x++)
        if (op->factor[op->arg_factor[arg][x]].role == role)
            return dim_of(g, value_of(g, op->arg[arg])->axis[x])->extent;
    return INT64_MAX;
}

static void add_reader(const Graph *g, const Op *op, const Reader *r, InputLimit *l, uint32_t nth)
{
    const Attr *ignore = r->label ? op_attr(op, "ignore") : NULL;
    bool ignores = ignore && ignore->kind == ATTR_INT;
    l->label |= r->label;
    if (nth > 0 && (!ignores || ignore->i != l->ignore))
        l->ignores = false;
    if (nth == 0 && ignores) {
        l->ignores = true;
        l->ignore = ignore->i;
    }
    int64_t below = r->of < 0 ? INT64_MAX : extent_of(g, op, r->of, r->role);
    if (below < (l->of ? l->below : INT64_MAX)) {
        l->below = below;
        l->of = value_of(g, op->arg[r->of])->path;
    }
}

/* Per value: whether it holds the input's numbers, by itself or as integers moved out
 * of it (a slice, a transpose). */
static bool *values_of(const Lowering *lw, uint32_t input)
{
    const Graph *g = lw->g;
    bool *holds = NEWN(lw->scratch, bool, g->nvalue);
    holds[input] = true;
    for (uint32_t o = 0; o < g->nop; o++) {
        const Op *op = &g->op[o];
        if (op->nout == 0 || !has_value(op->out[0]) || dtype_is_float(value_of(g, op->out[0])->dtype))
            continue;
        for (int a = 0; a < op->narg; a++)
            holds[op->out[0].i] |= has_value(op->arg[a]) && holds[op->arg[a].i];
    }
    return holds;
}

static InputLimit limit_of(const Lowering *lw, uint32_t input)
{
    const Graph *g = lw->g;
    InputLimit l = {0};
    if (dtype_is_float(g->value[input].dtype))
        return l;
    const bool *holds = values_of(lw, input);
    uint32_t n = 0;
    for (uint32_t o = 0; o < g->nop; o++)
        for (int k = 0; k < NREADERS; k++)
            if (g->op[o].kind == readers[k].op && holds[g->op[o].arg[readers[k].arg].i])
                add_reader(g, &g->op[o], &readers[k], &l, n++);
    return l;
}

/* ---- memory ---- */

/* A slot per micro-batch: the loader fills a whole step's batch at once. */
static TensorId place_batch(Lowering *lw, ValueId v)
{
    Program *p = lw->p;
    TensorId t = code_own(p, value_tensor(lw, v, lw->layout.value[v.i]), CLASS_inputs);
    Buffer *b = &p->buffer[buffer_of(p, t).i];
    b->slots = (uint32_t)lw->micro.count;
    b->by_micro = true;
    return t;
}

void place_inputs(Lowering *lw, TensorId *given)
{
    const Graph *g = lw->g;
    for (uint32_t v = 0; v < g->nvalue; v++) {
        const Value *x = &g->value[v];
        if (x->role != ROLE_INPUT)
            continue;
        if (lw->layout.used[v] >> lw->stage & 1)
            given[v] = place_batch(lw, (ValueId){v});
        /* The type is the model's; of a bool the tensor is u8. */
        Input in = {.name = x->path, .tensor = given[v], .dtype = x->dtype, .rank = x->rank, .limit = limit_of(lw, v)};
        for (uint32_t a = 0; a < x->rank; a++)
            in.extent[a] = dim_of(g, x->axis[a])->extent;
        PUSH(lw->p->arena, lw->p->input, lw->p->ninput, in);
    }
}
