/* Place: every value becomes a tensor with a buffer, every op an instruction, and
 * where a value is needed in another placement than it was made in, a conversion
 * (convert.c) stands before the first op of the procedure that needs it so.
 *
 * A tensor holds the rank's part of a value, and of a value that micro-batches cut
 * one micro-batch of that.
 *
 * The forward ops are placed twice: for training, and for evaluation (dropout
 * off, nothing saved), which has buffers of its own.  What is given from outside
 * or made once per step (weights, inputs, label counts) and losses are shared. */
#include "codegen/pass.h"

#include <assert.h>
#include <string.h>

#include "base/text.h"

/* A value in a placement that it was not made in; `before`: number + 1 of the one made
 * before of the same value, 0: none. */
typedef struct Converted { ValueId value; Placement placement; TensorId tensor; uint32_t before; } Converted;

/* One placing of the forward pass. */
struct World {
    ProcKind forward;                 /* PROC_forward or PROC_evaluate */
    TensorId *tensor;                 /* per value; NO_TENSOR: not on this stage */
    Placement *placed;                /* per value: where it lies here */
    TensorId *given;                  /* per value: an input as the loader gives it */
    Converted *converted; uint32_t nconverted;       /* in the order made */
    uint32_t *latest;                 /* per value: number + 1 of the last one of it */
    uint32_t here;                    /* those from here on were made in this procedure */
};

/* ---- tensors ---- */

Tensor value_tensor(const Lowering *lw, ValueId v, Placement p)
{
    MicroValue mv = lw->micro.value[v.i];
    return layout_tensor(&lw->layout, v, p, lw->place, mv.kind == MICRO_CUT ? (int)mv.axis : -1, lw->micro.count);
}

static Tensor tensor_of(const Lowering *lw, ValueId v)
{
    return value_tensor(lw, v, lw->layout.value[v.i]);
}

bool weight_is_here(const Lowering *lw, ValueId weight)
{
    StageSet used = lw->layout.used[weight.i];
    return used ? used >> lw->stage & 1 : lw->stage == 0;
}

static void place_weights(Lowering *lw, TensorId *tensor)
{
    Program *p = lw->p;
    for (uint32_t i = 0; i < lw->g->nweight; i++) {
        const Weight *w = &lw->g->weight[i];
        if (!weight_is_here(lw, w->value))
            continue;
        PUSH(lw->scratch, lw->weight_of, lw->nweight_of, i);
        TensorId t = tensor[w->value.i] = code_own(p, tensor_of(lw, w->value), CLASS_weights);
        State s = {.path = value_of(lw->g, w->value)->path, .weight = t, .master = NO_TENSOR, .gradient = NO_TENSOR,
                   .moment = {NO_TENSOR, NO_TENSOR}, .shard = {NO_TENSOR, .moment = {NO_TENSOR, NO_TENSOR}}, .init = w->init, .frozen = w->frozen, .decays = w->decays};
        PUSH(p->arena, p->state, p->nstate, s);
    }
}

/* ---- instructions ---- */

Instr instr_from_op(const Lowering *lw, OpId o)
{
    const Op *op = op_of(lw->g, o);
    uint8_t cut = lw->micro.cut[o.i];
    Instr in = {.op = op->kind, .path = op->path, .key = op->key, .nfactor = op->nfactor};
    instr_clear(&in);
    in.narg = op->narg;
    in.nout = op->nout;
    for (uint8_t f = 0; f < op->nfactor; f++) {
        in.extent[f] = layout_extent(&lw->layout, o, f) / (f == cut ? lw->micro.count : 1);
        in.role[f] = op->factor[f].role;
    }
    memcpy(in.arg_factor, op->arg_factor, sizeof in.arg_factor);
    memcpy(in.out_factor, op->out_factor, sizeof in.out_factor);
    memcpy(in.attr, op->attr, sizeof in.attr);
    return in;
}

/* A whole operand that meets a summand counts once: a part of it per micro-batch, on
 * the ranks whose coordinates on the axes of `set` are 0. */
static TensorId once(Lowering *lw, const char *path, const char *key, TensorId x, int64_t parts, GridSet set)
{
    bool here = true;
    for (uint32_t d = 0; d < lw->layout.grid.n; d++)
        here &= !(set >> d & 1) || grid_coordinate(&lw->layout.grid, lw->place, d) == 0;
    Tensor t = lw->p->tensor[x.i];
    t.partial = set != 0;
    TensorId part = code_own(lw->p, t, CLASS_working);
    Instr in = instr_copy(lw->p, x, part);
    in.op = OP_scale;
    in.path = path;
    in.key = key;
    memset(in.attr, 0, sizeof in.attr);
    *instr_set(&in, "by") = ATTR_F(here ? 1.0 / (double)parts : 0.0);
    program_add_instr(lw->p, in);
    return part;
}

/* ---- arguments ---- */

/* Number + 1 of the last one of a value; 0: there is none. */
static uint32_t last_converted(const World *w, ValueId v)
{
    uint32_t k = w->latest[v.i];
    return k <= w->nconverted && k > 0 && w->converted[k - 1].value.i == v.i ? k : 0;
}

/* The first one made of a value, from number `from` on, in that placement (NULL: in any
 * that is complete). */
static const Converted *find_converted(const Lowering *lw, const World *w, uint32_t from, ValueId v, const Placement *as)
{
    const Grid *g = &lw->layout.grid;
    const Converted *first = NULL;
    for (uint32_t k = last_converted(w, v); k > from; k = w->converted[k - 1].before) {
        const Converted *c = &w->converted[k - 1];
        bool fits = as ? placement_equal(g, c->placement, *as) : !placement_on(g, c->placement, PLACE_PARTIAL);
        first = fits ? c : first;
    }
    return first;
}

static void add_converted(Lowering *lw, World *w, ValueId v, Placement as, TensorId t)
{
    PUSH(lw->scratch, w->converted, w->nconverted, ((Converted){v, as, t, last_converted(w, v)}));
    w->latest[v.i] = w->nconverted;
}

/* A value that lies as `from` in t, as `as`: also one that is whole where a summand is
 * asked for, because it came completed from another stage. */
static TensorId converted(Lowering *lw, ValueId v, TensorId t, Placement from, Placement as)
{
    const Grid *g = &lw->layout.grid;
    GridSet counts_once = placement_on(g, as, PLACE_PARTIAL) & (GridSet)~placement_on(g, from, PLACE_PARTIAL);
    Placement to = as;
    for (uint32_t d = 0; d < g->n; d++)
        to.on[d] = counts_once >> d & 1 ? PLACE_WHOLE : as.on[d];
    const char *path = value_of(lw->g, v)->path;
    t = convert(lw, v, t, from, to);
    return counts_once ? once(lw, path, path, t, 1, counts_once) : t;
}

/* A value in a placement.  A sum that the forward pass completed is not completed
 * again in backward: what it became is saved. */
static TensorId as_placed(Lowering *lw, World *w, ValueId v, Placement as)
{
    const Grid *g = &lw->layout.grid;
    Placement from = w->placed[v.i];
    TensorId t = w->tensor[v.i];
    assert(has_tensor(t) && "makers come first");
    if (placement_equal(g, from, as))
        return t;
    const Converted *c = find_converted(lw, w, w->here, v, &as);
    if (!c && placement_on(g, from, PLACE_PARTIAL))
        c = find_converted(lw, w, 0, v, &as);
    if (c)
        return c->tensor;
    bool sum = placement_on(g, from, PLACE_PARTIAL) && !placement_on(g, as, PLACE_PARTIAL);
    const Converted *complete = sum ? find_converted(lw, w, 0, v, NULL) : NULL;
    if (complete && placement_equal(g, complete->placement, as))
        return complete->tensor;
    t = complete ? converted(lw, v, complete->tensor, complete->placement, as) : converted(lw, v, t, from, as);
    add_converted(lw, w, v, as, t);
    return t;
}

static TensorId argument(Lowering *lw, World *w, OpId o, int a)
{
    const Op *op = op_of(lw->g, o);
    TensorId t = as_placed(lw, w, op->arg[a], layout_need(&lw->layout, o, a));
    bool part = lw->micro.once[o.i] >> a & 1;
    GridSet set = layout_once(&lw->layout, o, a);
    return part || set ? once(lw, op->path, op->key, t, part ? lw->micro.count : 1, set) : t;
}

/* ---- ops that are no instruction ---- */

/* A dropout that drops nothing, and a cast that changes nothing, are their argument. */
static bool is_identity(const Lowering *lw, const World *w, const Op *op)
{
    if (op->kind == OP_dropout)
        return w->forward == PROC_evaluate || op_attr(op, "p")->f == 0;
    return op->kind == OP_cast && value_of(lw->g, op->arg[0])->dtype == value_of(lw->g, op->out[0])->dtype;
}

/* ---- one op ---- */

static bool sums_up(const Lowering *lw, OpId o)
{
    return micro_closes(lw->g, &lw->micro, o);
}

static BufferClass class_of(const Lowering *lw, OpId o, int k)
{
    const Op *op = op_of(lw->g, o);
    bool count = op->phase == PHASE_BEGIN && value_of(lw->g, op->out[k])->rank == 0;
    return count || (k == 0 && sums_up(lw, o)) ? CLASS_scalars : CLASS_working;
}

static void place_results(Lowering *lw, World *w, OpId o, Instr *in)
{
    const Op *op = op_of(lw->g, o);
    for (int k = 0; k < op->nout; k++) {
        if (!has_value(op->out[k]))
            continue;
        TensorId *t = &w->tensor[op->out[k].i];
        if (!has_tensor(*t))
            *t = code_own(lw->p, tensor_of(lw, op->out[k]), class_of(lw, o, k));
        in->out[k] = *t;
    }
    if (sums_up(lw, o)) {
        in->acc = ACC_AFTER_FIRST;
        in->acc_out = 1;
    }
}

/* A sum of gradients of which this stage has one: that is its summand. */
static bool place_summand(Lowering *lw, World *w, OpId o)
{
    const Op *op = op_of(lw->g, o);
    for (int a = 0; has_value(op->sum_of) && a < 2; a++)
        if (!has_tensor(w->tensor[op->arg[a].i])) {
            w->tensor[op->out[0].i] = argument(lw, w, o, !a);
            return true;
        }
    return false;
}

static void place_op(Lowering *lw, World *w, OpId o)
{
    const Op *op = op_of(lw->g, o);
    if (place_summand(lw, w, o))
        return;
    if (op_info[op->kind].flags & OPF_VIEW || is_identity(lw, w, op)) {
        TensorId *out = &w->tensor[op->out[0].i];
        *out = view_place(lw, op, argument(lw, w, o, 0), tensor_of(lw, op->out[0]), *out);
        return;
    }
    Instr in = instr_from_op(lw, o);
    for (int a = 0; a < op->narg; a++)
        if (has_value(op->arg[a]))
            in.arg[a] = argument(lw, w, o, a);
    if (op->kind == OP_attention && w->forward == PROC_evaluate)
        *instr_set(&in, "dropout") = ATTR_F(0);
    place_results(lw, w, o, &in);
    if (!place_distributed(lw, o, &in))
        program_add_instr(lw->p, in);
}

static void place_phase(Lowering *lw, World *w, Phase phase)
{
    for (uint32_t i = 0; i < lw->nop; i++)
        if (lw->g->op[lw->op[i]].phase == phase)
            place_op(lw, w, (OpId){lw->op[i]});
}

/* ---- what crosses between stages ---- */

static Placement crossing_placement(const Lowering *lw, ValueId v)
{
    Placement p = lw->layout.value[v.i];
    for (uint32_t d = 0; d < lw->layout.grid.n; d++)
        p.on[d] = p.on[d] == PLACE_PARTIAL ? PLACE_WHOLE : p.on[d];
    return p;
}

static bool crosses_in(const Lowering *lw, const Crossing *c, Phase phase)
{
    return op_of(lw->g, value_of(lw->g, c->value)->maker)->phase == phase;
}

static void receive(Lowering *lw, World *w, Phase phase)
{
    for (uint32_t i = 0; i < lw->layout.ncrossing; i++) {
        const Crossing *c = &lw->layout.crossing[i];
        if (c->to != lw->stage || !crosses_in(lw, c, phase))
            continue;
        w->placed[c->value.i] = crossing_placement(lw, c->value);
        TensorId t = w->tensor[c->value.i] = code_own(lw->p, value_tensor(lw, c->value, w->placed[c->value.i]), CLASS_working);
        message(lw, OP_recv, c, t);
    }
}

static void send(Lowering *lw, World *w, Phase phase)
{
    for (uint32_t i = 0; i < lw->layout.ncrossing; i++) {
        const Crossing *c = &lw->layout.crossing[i];
        if (c->from == lw->stage && crosses_in(lw, c, phase))
            message(lw, OP_send, c, as_placed(lw, w, c->value, crossing_placement(lw, c->value)));
    }
}

/* Whether an op computes with a value as it is, rather than cast it first. */
static bool computed_with(const Graph *g, ValueId v)
{
    for (uint32_t o = 0; o < g->nop; o++)
        for (int a = 0; a < g->op[o].narg && g->op[o].kind != OP_cast; a++)
            if (g->op[o].arg[a].i == v.i)
                return true;
    return false;
}

/* Inputs of floats arrive in their own type; what computes with them reads a copy
 * in the compute type, made at the head of the procedure. */
static void cast_inputs(Lowering *lw, World *w)
{
    DType compute = lw->g->precision.compute;
    for (uint32_t v = 0; v < lw->g->nvalue; v++) {
        const Value *val = &lw->g->value[v];
        if (val->role != ROLE_INPUT || !dtype_is_float(val->dtype) || val->dtype == compute || !(lw->layout.used[v] >> lw->stage & 1))
            continue;
        if (!computed_with(lw->g, (ValueId){v}))
            continue;
        Tensor t = tensor_of(lw, (ValueId){v});
        t.dtype = compute;
        t.role = ROLE_ACTIVATION;
        t.path = arena_printf(lw->p->arena, "%s:cast", val->path);
        w->tensor[v] = code_own(lw->p, t, CLASS_working);
        Instr in = instr_copy(lw->p, w->given[v], w->tensor[v]);
        in.op = OP_cast;
        memset(in.attr, 0, sizeof in.attr);
        *instr_set(&in, "to") = ATTR_T(compute);
        program_add_instr(lw->p, in);
    }
}

/* ---- procedures ---- */

static void close_proc(Program *p, ProcKind kind, uint32_t first)
{
    if (p->ninstr > first)
        PUSH(p->arena, p->proc, p->nproc, ((Proc){.kind = kind, .first = first, .end = p->ninstr}));
}

static NamedTensor named_tensor(const Lowering *lw, NamedValue n, TensorId t)
{
    return (NamedTensor){arena_strdup(lw->p->arena, n.name), value_of(lw->g, n.value)->path, t};
}

/* What the model gives out is never left as summands. */
static void place_outputs(Lowering *lw, World *w)
{
    for (uint32_t i = 0; i < lw->g->noutput; i++) {
        NamedValue n = lw->g->output[i];
        TensorId t = has_tensor(w->tensor[n.value.i]) ? as_placed(lw, w, n.value, crossing_placement(lw, n.value)) : NO_TENSOR;
        PUSH(lw->p->arena, lw->p->output, lw->p->noutput, named_tensor(lw, n, t));
    }
}

static void place_forward(Lowering *lw, World *w)
{
    uint32_t first = lw->p->ninstr;
    w->here = w->nconverted;
    cast_inputs(lw, w);
    receive(lw, w, PHASE_FORWARD);
    place_phase(lw, w, PHASE_FORWARD);
    send(lw, w, PHASE_FORWARD);
    if (w->forward == PROC_evaluate)
        place_outputs(lw, w);
    close_proc(lw->p, w->forward, first);
}

/* ---- recomputation ---- */

/* Values of the block are made anew, and so is what they were converted to. */
static void forget(World *w, const Op *op)
{
    for (int k = 0; k < op->nout; k++)
        if (has_value(op->out[k])) {
            w->tensor[op->out[k].i] = NO_TENSOR;
            w->latest[op->out[k].i] = 0;
        }
}

/* A block is a run of the stage's ops, `first` on. */
static void place_again(Lowering *lw, World *w, uint32_t first)
{
    uint32_t block = lw->recompute.block[lw->op[first]];
    for (uint32_t i = first; i < lw->nop && lw->recompute.block[lw->op[i]] == block; i++)
        if (lw->recompute.again[lw->op[i]]) {
            forget(w, &lw->g->op[lw->op[i]]);
            place_op(lw, w, (OpId){lw->op[i]});
        }
}

/* Per block: where its ops begin among those of the stage. */
static uint32_t *first_of_blocks(const Lowering *lw)
{
    uint32_t *first = NEWN(lw->scratch, uint32_t, lw->recompute.nblock + 1);
    for (uint32_t i = lw->nop; i-- > 0;)
        first[lw->recompute.block[lw->op[i]]] = i;
    return first;
}

static void place_backward(Lowering *lw, World *w)
{
    bool *done = NEWN(lw->scratch, bool, lw->recompute.nblock + 1);
    const uint32_t *first = first_of_blocks(lw);
    for (uint32_t i = 0; i < lw->nop; i++) {
        const Op *op = &lw->g->op[lw->op[i]];
        if (op->phase != PHASE_BACKWARD)
            continue;
        uint32_t block = has_op(op->forward) ? lw->recompute.block[op->forward.i] : 0;
        if (block && !done[block])
            place_again(lw, w, first[block]);
        done[block] = true;
        place_op(lw, w, (OpId){lw->op[i]});
    }
}

/* Where the weight lies; summands of ranks are left to the bucket. */
static Placement gradient_placement(const Lowering *lw, uint32_t weight)
{
    Placement p = lw->layout.value[lw->g->weight[weight].value.i];
    for (uint32_t d = 0; d < lw->layout.grid.n; d++)
        if (lw->layout.reduce[weight] >> d & 1)
            p.on[d] = PLACE_PARTIAL;
    return p;
}

/* The gradient must be a summand: one that is the same in every micro-batch is
 * counted in parts. */
static void place_gradients(Lowering *lw, World *w)
{
    for (uint32_t i = 0; i < lw->p->nstate; i++) {
        const Weight *wt = &lw->g->weight[lw->weight_of[i]];
        if (wt->frozen || !has_value(wt->gradient) || !has_tensor(w->tensor[wt->gradient.i]))
            continue;
        TensorId t = as_placed(lw, w, wt->gradient, gradient_placement(lw, lw->weight_of[i]));
        const Op *maker = op_of(lw->g, value_of(lw->g, wt->gradient)->maker);
        if (lw->micro.count > 1 && lw->micro.value[wt->gradient.i].kind == MICRO_WHOLE)
            t = once(lw, maker->path, maker->key, t, lw->micro.count, 0);
        lw->p->state[i].gradient = t;
    }
}

static void place_training(Lowering *lw, World *w)
{
    place_forward(lw, w);
    uint32_t first = lw->p->ninstr;
    w->here = w->nconverted;
    receive(lw, w, PHASE_BACKWARD);
    place_backward(lw, w);
    place_gradients(lw, w);
    send(lw, w, PHASE_BACKWARD);
    close_proc(lw->p, PROC_backward, first);
}

/* `shared`: a world whose tensors this one begins with.  Where values lie, and what the
 * loader gives, is the same in both. */
static World world_new(Lowering *lw, ProcKind forward, const World *shared)
{
    size_t bytes = sizeof(TensorId) * (lw->g->nvalue + 1);
    size_t places = sizeof(Placement) * (lw->g->nvalue + 1);
    World w = {.forward = forward, .tensor = arena_alloc(lw->scratch, bytes), .latest = NEWN(lw->scratch, uint32_t, lw->g->nvalue + 1)};
    if (shared) {
        memcpy(w.tensor, shared->tensor, bytes);
        w.given = shared->given;
        w.placed = shared->placed;
        return w;
    }
    w.given = arena_alloc(lw->scratch, bytes);
    w.placed = arena_alloc(lw->scratch, places);
    memcpy(w.placed, lw->layout.value, places);
    memset(w.tensor, 0xFF, bytes);                   /* NO_TENSOR */
    memset(w.given, 0xFF, bytes);
    return w;
}

/* A scalar summed over ranks in place. */
static void sum_scalar(Lowering *lw, TensorId t, GridSet set)
{
    collective(lw, OP_all_reduce, set, lw->p->tensor[t.i].path, t, t);
}

static void place_agreement(Lowering *lw, World *w)
{
    uint32_t first = lw->p->ninstr;
    for (uint32_t v = 0; v < lw->g->nvalue; v++)
        if (lw->layout.agree[v] && has_tensor(w->tensor[v]))
            sum_scalar(lw, w->tensor[v], lw->layout.agree[v]);
    close_proc(lw->p, PROC_agree, first);
}

/* A loss, where it lies. */
static void sum_loss(Lowering *lw, ValueId loss, TensorId t)
{
    GridSet set = placement_on(&lw->layout.grid, lw->layout.value[loss.i], PLACE_PARTIAL);
    if (!has_tensor(t))
        return;
    if (set)
        sum_scalar(lw, t, set);
    lw->p->tensor[t.i].partial = false;
}

static void place_total(Lowering *lw)
{
    uint32_t first = lw->p->ninstr;
    sum_loss(lw, lw->g->loss, lw->p->loss);
    for (uint32_t i = 0; i < lw->losses.n; i++)
        sum_loss(lw, lw->losses.of[i].value, lw->p->term[i].tensor);
    close_proc(lw->p, PROC_total, first);
}

/* A loss has one tensor for training and evaluation, which nothing else takes.  After the last micro-batch it holds
 * that of all, whether it is added up or made of what is. */
static TensorId own_loss(Lowering *lw, World *w, ValueId v)
{
    if (!has_tensor(w->tensor[v.i]) && layout_has(&lw->layout, v, lw->stage))
        w->tensor[v.i] = code_own(lw->p, tensor_of(lw, v), CLASS_scalars);
    return w->tensor[v.i];
}

static void own_losses(Lowering *lw, World *w)
{
    if (has_value(lw->g->loss))
        lw->p->loss = own_loss(lw, w, lw->g->loss);
    for (uint32_t i = 0; i < lw->losses.n; i++) {
        NamedValue n = lw->losses.of[i];
        PUSH(lw->p->arena, lw->p->term, lw->p->nterm, named_tensor(lw, n, own_loss(lw, w, n.value)));
    }
}

static void place_shared(Lowering *lw, World *w)
{
    place_weights(lw, w->tensor);
    place_inputs(lw, w->given);
    for (uint32_t v = 0; v < lw->g->nvalue; v++)
        if (has_tensor(w->given[v]))
            w->tensor[v] = w->given[v];
    place_phase(lw, w, PHASE_BEGIN);
    close_proc(lw->p, PROC_begin, 0);
    place_agreement(lw, w);
    own_losses(lw, w);
}

void place(Lowering *lw)
{
    const Graph *g = lw->g;
    World shared = world_new(lw, PROC_begin, NULL);
    place_shared(lw, &shared);
    if (has_value(g->loss)) {
        World train = world_new(lw, PROC_forward, &shared);
        place_training(lw, &train);
    }
    World eval = world_new(lw, PROC_evaluate, &shared);
    place_forward(lw, &eval);
    if (has_value(g->loss))
        place_total(lw);
}

/* ---- one op alone ---- */

World *world_alone(Lowering *lw)
{
    World *w = NEW(lw->scratch, World);
    *w = world_new(lw, PROC_forward, NULL);
    return w;
}

static void give_alone(Lowering *lw, World *w, ValueId v, Placement p)
{
    w->placed[v.i] = p;
    w->tensor[v.i] = code_own(lw->p, value_tensor(lw, v, p), CLASS_working);
}

static void forget_alone(World *w, uint8_t n, const ValueId *v)
{
    for (uint8_t i = 0; i < n; i++)
        if (has_value(v[i]))
            w->tensor[v[i].i] = NO_TENSOR;
}

void place_alone(Lowering *lw, World *w, OpId o)
{
    const Op *op = op_of(lw->g, o);
    for (int a = 0; a < op->narg; a++)
        if (has_value(op->arg[a]) && !has_tensor(w->tensor[op->arg[a].i]))
            give_alone(lw, w, op->arg[a], layout_need(&lw->layout, o, a));
    place_op(lw, w, o);
    w->nconverted = 0;
    forget_alone(w, op->narg, op->arg);
    forget_alone(w, op->nout, op->out);
}

void convert_alone(Lowering *lw, World *w, ValueId v, Placement from, Placement to)
{
    give_alone(lw, w, v, from);
    (void)as_placed(lw, w, v, to);
    w->nconverted = 0;
    forget_alone(w, 1, &v);
}
