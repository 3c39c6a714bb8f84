/* Price: see price.h. */
#include "codegen/price.h"

#include <string.h>

#include "codegen/pass.h"

enum { ROOM = 1 << 16, KNOWN = 1 << 10 };            /* ROOM: bytes for the instructions of an op and its conversions */

/* A conversion whose price is known: the same ones are asked for again and again. */
typedef struct Conversion { struct Conversion *next; ValueId value; Placement from, to; int64_t ns, link; } Conversion;

/* An op whose price is known where it is cut so and its arguments and results lie so; what it costs follows
 * from nothing else in the layout. */
typedef struct Asked { OpId op; uint16_t cut[MAX_GRID]; Placement at[MAX_ARGS + MAX_OUTS]; } Asked;
typedef struct Priced { struct Priced *next; Asked asked; int64_t ns, link; } Priced;

struct Pricer {
    Lowering  lw;
    Arena    *code;                   /* the program of one price */
    World    *world;
    CostModel *cost;
    bool      least;                  /* without what fusion may save */
    Arena     *arena;
    Conversion *known[KNOWN];         /* by hash */
    Priced     *priced[KNOWN];        /* by the op's number */
};

struct PriceGraph { const Graph *g; Micro micro; };

PriceGraph *price_graph(Arena *a, const Graph *g)
{
    PriceGraph *pg = NEW(a, PriceGraph);
    *pg = (PriceGraph){g, micro_read(a, g, 1)};
    return pg;
}

Status pricer_open(Arena *a, Diags *ds, const PriceGraph *pg, const Plan *plan, const Cluster *cl, const Profile *profile, bool least, Pricer **out)
{
    Pricer *pr = NEW(a, Pricer);
    pr->lw = (Lowering){.g = pg->g, .micro = pg->micro, .plan = plan, .cluster = cl, .ds = ds, .scratch = a};
    pr->lw.device = &cl->device[cl->kind[plan->devices[0]]];
    pr->lw.micro.count = plan->microbatches;
    pr->least = least;
    pr->arena = a;
    pr->cost = cost_model(a, cl, plan, profile);
    TRY(layout_open(a, ds, pg->g, plan, &pr->lw.layout));
    pr->code = arena_new("price");
    pr->world = world_alone(&pr->lw);
    *out = pr;
    return OK;
}

void pricer_close(Pricer *pr)
{
    arena_free(pr->code);
}

Layout *pricer_layout(Pricer *pr)
{
    return &pr->lw.layout;
}

const Plan *pricer_plan(const Pricer *pr)
{
    return pr->lw.plan;
}

/* ---- prices ---- */

static void begin(Pricer *pr)
{
    arena_reset(pr->code, ROOM);
    pr->lw.p = program_new(pr->code);
    pr->lw.p->nranks = pr->lw.plan->ndevices;
    pr->lw.p->microbatches = pr->lw.micro.count;
}

/* Of the time of an instruction alone, what is left when it becomes part of another one: the
 * other one is no faster than itself alone.  Of the two products and the derivative that
 * silu_mul_grad stands for, at least one product is left. */
static int64_t least_of(const Instr *in, int64_t ns)
{
    switch (in->op) {
    case OP_add: case OP_silu: case OP_silu_grad: case OP_gelu: case OP_cross_entropy:
        return 0;
    case OP_mul:
        return strncmp(in->path, "grad:", 5) == 0 ? ns / 2 : ns;
    default:
        return ns;
    }
}

typedef struct Price { int64_t ns, link; } Price;    /* link: of the ns, those of communication */

static Price total(const Pricer *pr)
{
    Price sum = {0};
    const GroupCost *groups = cost_groups(pr->cost, pr->lw.p);
    for (uint32_t i = 0; i < pr->lw.p->ninstr; i++) {
        Instr *in = &pr->lw.p->instr[i];
        instr_measure(in, pr->lw.p);
        int64_t alone = cost_ns(pr->cost, pr->lw.p, groups, in), ns = pr->least ? least_of(in, alone) : alone;
        sum.ns += ns;
        sum.link += op_info[in->op].flags & OPF_COMM ? ns : 0;
    }
    return sum;
}

static Asked asked_now(const Pricer *pr, OpId o)
{
    const Layout *l = &pr->lw.layout;
    const Op *op = op_of(pr->lw.g, o);
    Asked a;
    memset(&a, 0, sizeof a);
    a.op = o;
    memcpy(a.cut, l->cut[o.i], l->grid.n * sizeof *a.cut);
    for (int k = 0; k < op->narg + op->nout; k++) {
        ValueId v = k < op->narg ? op->arg[k] : op->out[k - op->narg];
        if (has_value(v))
            memcpy(a.at[k].on, l->value[v.i].on, l->grid.n);
    }
    return a;
}

static Priced *new_priced(Pricer *pr, Asked asked)
{
    Priced *new = NEW(pr->arena, Priced);
    begin(pr);
    place_alone(&pr->lw, pr->world, asked.op);
    Price sum = total(pr);
    *new = (Priced){.asked = asked, .ns = sum.ns, .link = sum.link};
    return new;
}

int64_t price_op(Pricer *pr, OpId o, int64_t *link)
{
    Asked asked = asked_now(pr, o);
    Priced **list = &pr->priced[o.i % KNOWN], *p = *list;
    while (p && memcmp(&p->asked, &asked, sizeof asked) != 0)
        p = p->next;
    if (!p) {
        p = new_priced(pr, asked);
        p->next = *list;
        *list = p;
    }
    if (link)
        *link = p->link;
    return p->ns;
}

static size_t hash_of(const Pricer *pr, ValueId v, Placement from, Placement to)
{
    size_t h = v.i;
    for (uint32_t d = 0; d < pr->lw.layout.grid.n; d++)
        h = h * 4099 + (size_t)(from.on[d] + 3) * 67 + (size_t)(to.on[d] + 3);
    return (h ^ h >> 11) % KNOWN;
}

static Conversion *new_conversion(Pricer *pr, ValueId v, Placement from, Placement to)
{
    Conversion *c = NEW(pr->arena, Conversion);
    begin(pr);
    convert_alone(&pr->lw, pr->world, v, from, to);
    Price sum = total(pr);
    *c = (Conversion){.value = v, .from = from, .to = to, .ns = sum.ns, .link = sum.link};
    return c;
}

int64_t price_conversion(Pricer *pr, ValueId v, Placement from, Placement to, int64_t *link)
{
    const Grid *g = &pr->lw.layout.grid;
    *link = 0;
    if (placement_equal(g, from, to))
        return 0;
    Conversion **at = &pr->known[hash_of(pr, v, from, to)], *c = *at;
    while (c && !(c->value.i == v.i && placement_equal(g, c->from, from) && placement_equal(g, c->to, to)))
        c = c->next;
    if (!c) {
        c = new_conversion(pr, v, from, to);
        c->next = *at;
        *at = c;
    }
    *link = c->link;
    return c->ns;
}

int64_t price_bytes(const Pricer *pr, ValueId v, Placement p)
{
    Tensor t = value_tensor(&pr->lw, v, p);
    return tensor_bytes(&t);
}
