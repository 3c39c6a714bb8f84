/* Cost: nanoseconds of one instruction that computes, alone on its device.
 *
 *   matmul      FLOP / (peak * curve * tiles * waves * depth), or the bytes, whichever is longer
 *   attention   FLOP that are not masked / (peak * curve * depth), or the bytes
 *   the others  bytes / (bandwidth * curve)
 *
 * each after a launch.  `curve` is the device's efficiency at that size. */
#include "codegen/cost.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/text.h"

/* ---- constants ---- */

/* Tiles of a matmul, as cuBLAS and CUTLASS have them, with how often each is half of the largest: a
 * smaller one reads more from the cache for each product.  PLANNING's list; the loss a halving is Device.tile. */
typedef struct Tile { double m, n; int halvings; } Tile;
static const Tile tiles[] = {{256, 128, 0}, {128, 256, 0}, {128, 128, 1}, {128, 64, 2}, {64, 128, 2}, {64, 64, 3}};

/* Parts of the summed axis given to different multiprocessors where tiles are few; each part is
 * written and read as f32 once.  cuBLAS goes on; more than 8 hardly ever pays. */
static const double parts[] = {1, 2, 4, 8};
static const double PART_BYTES = 8;                  /* of an element of the result, in each part */

/* Attention's backward against its forward, in FLOP/s: 173 to 205 TFLOP/s on an A100, 287 to 325 on
 * an H800, from the iterations a second of one GPU in the README of zhuzilin/ring-flash-attention. */
static const double ATTENTION_GRAD = 0.85;

static const double LN2 = 0.69314718055994530942;

/* ---- curves ---- */

/* ln(x) from the exponent and a series, the same to the last bit everywhere: with
 * |y| <= 0.172 the terms left out are below 1e-16 of the whole. */
static double natural_log(double x)
{
    int e;
    double m = frexp(x, &e);
    if (m < 0.70710678118654752440) {
        m *= 2;
        e--;
    }
    double y = (m - 1) / (m + 1), y2 = y * y, sum = 0;
    for (int k = 19; k >= 1; k -= 2)
        sum = sum * y2 + 1.0 / k;
    return 2 * y * sum + e * LN2;
}

static double between(const CurvePoint *a, const CurvePoint *b, double at)
{
    double part = a->at > 0 ? natural_log(at / a->at) / natural_log(b->at / a->at) : at / b->at;
    return a->fraction + (b->fraction - a->fraction) * part;
}

static double curve_at(const Curve *c, double at)
{
    if (c->npoint == 0)
        return 1;
    uint32_t i = 0;
    while (i < c->npoint && c->point[i].at <= at)
        i++;
    if (i == 0 || i == c->npoint)
        return c->point[i ? i - 1 : 0].fraction;
    return between(&c->point[i - 1], &c->point[i], at);
}

/* ---- matmuls ---- */

/* m x n results of sums over k, `batch` times. */
typedef struct Gemm { double m, n, k, batch; } Gemm;

/* A bit per factor that a tensor has. */
static unsigned factors_of(const uint8_t *factor)
{
    unsigned set = 0;
    for (int x = 0; x < MAX_RANK && factor[x] != NO_FACTOR; x++)
        set |= 1u << factor[x];
    return set;
}

static double of_role(const Instr *in, char role)
{
    double n = 1;
    for (int f = 0; f < in->nfactor; f++)
        if (in->role[f] == role)
            n *= (double)in->extent[f];
    return n;
}

static double out_elements(const Program *p, const Instr *in)
{
    return in->nout > 0 && has_tensor(in->out[0]) ? (double)tensor_elements(&p->tensor[in->out[0].i]) : 1;
}

/* A convolution's sides are read off what it makes; the summed one follows from its FLOPs. */
static Gemm conv_of(const Program *p, const Instr *in)
{
    double out = out_elements(p, in), n = in->op == OP_conv2d_grad_x ? of_role(in, 'c') : of_role(in, 'n');
    n = n < out ? n : out;
    return (Gemm){out / n, n, in->flops / (2 * out), 1};
}

static Gemm gemm_of(const Program *p, const Instr *in)
{
    Gemm g = {1, 1, 1, 1};
    if (in->op == OP_conv2d || in->op == OP_conv2d_grad_x || in->op == OP_conv2d_grad_w)
        return conv_of(p, in);
    unsigned a = factors_of(in->arg_factor[0]), b = factors_of(in->arg_factor[1]), out = factors_of(in->out_factor[0]);
    for (int f = 0; f < in->nfactor; f++) {
        unsigned bit = 1u << f;
        double *side = !(out & bit) ? &g.k : a & b & bit ? &g.batch : a & bit ? &g.m : &g.n;
        *side *= (double)in->extent[f];
    }
    return g;
}

static double up(double x)
{
    double whole = (double)(int64_t)x;
    return whole < x ? whole + 1 : whole;
}

static double depth_part(double k, double depth)
{
    return k / (k + depth);
}

/* Seconds with one tile, the sum in so many parts; `rate`: FLOP/s of all multiprocessors together. */
static double tiled_seconds(const Device *d, Gemm g, double rate, const Tile *t, double cut)
{
    double across = up(g.m / t->m) * up(g.n / t->n) * g.batch * cut, waves = up(across / (double)d->sms), speed = rate / (double)d->sms;
    for (int i = 0; i < t->halvings && d->tile > 0; i++)
        speed *= d->tile;
    double each = 2 * t->m * t->n * (g.k / cut) / (speed * depth_part(g.k / cut, d->depth));
    return waves * each + (cut > 1 ? PART_BYTES * cut * g.m * g.n * g.batch / d->bandwidth : 0);
}

static double best_tile(const Device *d, Gemm g, double rate)
{
    double least = 0;
    for (size_t t = 0; t < sizeof tiles / sizeof *tiles; t++)
        for (size_t c = 0; c < sizeof parts / sizeof *parts; c++) {
            double s = tiled_seconds(d, g, rate, &tiles[t], parts[c]);
            least = least == 0 || s < least ? s : least;
        }
    return least;
}

static double gemm_seconds(CostModel *cm, const Device *d, Gemm g, double rate)
{
    if (d->sms == 0)
        return 2 * g.m * g.n * g.k * g.batch / (rate * depth_part(g.k, d->depth));
    uint64_t hash = (uint64_t)g.m * 1000003 + (uint64_t)g.n * 8191 + (uint64_t)g.k * 131 + (uint64_t)g.batch;
    GemmMemo *memo = &cm->gemm[(hash ^ hash >> 17) % GEMM_MEMO];
    if (memo->m != g.m || memo->n != g.n || memo->k != g.k || memo->batch != g.batch || memo->rate != rate)
        *memo = (GemmMemo){g.m, g.n, g.k, g.batch, rate, best_tile(d, g, rate)};
    return memo->seconds;
}

/* ---- attention ---- */

/* Sum of min(i + 1 + first, most) over rows i = 0 .. n-1. */
static double keys_of_rows(double n, double first, double most)
{
    double rising = most - first;
    rising = rising < 0 ? 0 : rising > n ? n : rising;
    return rising * first + rising * (rising + 1) / 2 + (n - rising) * most;
}

/* The part of all (query, key) pairs that is not masked.  Where queries are split, it is that of the rank
 * with the last ones, which the others wait for. */
static double attended(const Instr *in)
{
    double s = of_role(in, 's'), t = of_role(in, 't'), reach = t;
    const Attr *window = instr_attr(in, "window");
    bool causal = instr_attr(in, "causal")->i != 0;
    if (window->kind == ATTR_INT)
        reach = (double)window->i * (causal ? 1 : 2) - (causal ? 0 : 1);
    reach = reach < t ? reach : t;
    return causal ? keys_of_rows(s, t > s ? t - s : 0, reach) / (s * t) : reach / t;
}

/* ---- bytes ---- */

static double bytes_at(const Program *p, TensorId t)
{
    return has_tensor(t) ? (double)tensor_bytes(&p->tensor[t.i]) : 0;
}

/* Bytes that go through memory: arguments and results, what is added to once more.  Of
 * a table only the rows that are looked up. */
static double moved_bytes(const Program *p, const Instr *in)
{
    if (op_info[in->op].flags & OPF_VIEW)
        return 0;
    if (in->op == OP_embed)
        return bytes_at(p, in->arg[0]) + 2 * bytes_at(p, in->out[0]);
    if (in->op == OP_embed_grad)
        return bytes_at(p, in->arg[0]) + 3 * bytes_at(p, in->arg[1]) + (in->acc == ACC_NO ? bytes_at(p, in->out[0]) : 0);
    double bytes = (double)in->bytes;
    for (int o = 0; o < in->nout && in->acc != ACC_NO; o++)
        bytes += in->acc_out >> o & 1 ? bytes_at(p, in->out[o]) : 0;
    return bytes;
}

/* ---- one instruction ---- */

static const Device *device_of(const CostModel *cm, const Program *p)
{
    return &cm->cl->device[cm->cl->kind[cm->plan->devices[p->rank]]];
}

/* The dtype that an instruction computes in, as kernels are chosen by. */
static DType computes_in(const Program *p, const Instr *in)
{
    DType first = DTYPES;
    for (int i = 0; i < in->narg + in->nout; i++) {
        TensorId t = i < in->narg ? in->arg[i] : in->out[i - in->narg];
        DType type = has_tensor(t) ? p->tensor[t.i].dtype : DTYPES;
        if (type == DT_bf16)
            return type;
        if (first == DTYPES && type < DTYPES && dtype_is_float(type))
            first = type;
    }
    return first;
}

/* Whether an instruction has an option: a tensor that it is given, a switch that is on. */
static bool has_option(const Instr *in, uint8_t with)
{
    const char *name = op_sig(in->op)->formal[with - 1].name;
    int arg = op_arg_index(in->op, name), attr = op_attr_index(in->op, name);
    return arg >= 0 ? has_tensor(in->arg[arg]) : attr >= 0 && in->attr[attr].i != 0;
}

/* The closest curve of an instruction's op, else the one that stands for its kind. */
static const Curve *curve_of(const Device *d, const Program *p, const Instr *in)
{
    const OpCurve *best = NULL;
    int closest = -1;
    for (uint32_t i = 0; i < d->nof_op && d->of_op[i].op <= in->op; i++) {
        const OpCurve *c = &d->of_op[i];
        if (c->op != in->op || (c->with && !has_option(in, c->with)) || (c->typed && (int)computes_in(p, in) != c->typed - 1))
            continue;
        int close = 2 * (c->with > 0) + (c->typed > 0);
        if (close > closest) {
            best = c;
            closest = close;
        }
    }
    return best ? &best->curve : op_computes(in->op) ? &d->efficiency : &d->memory_efficiency;
}

/* FLOP/s of matmuls in the type of the first argument. */
static double peak_of(const Device *d, const Program *p, const Instr *in)
{
    bool typed = in->narg > 0 && has_tensor(in->arg[0]);
    double peak = typed ? d->peak[p->tensor[in->arg[0].i].dtype] : 0;
    return peak > 0 ? peak : d->peak[p->precision.compute];
}

static bool is_attention(OpKind op)
{
    return op == OP_attention || op == OP_attention_grad;
}

static double attention_seconds(const Device *d, const Program *p, const Instr *in, double peak)
{
    double flops = in->flops * attended(in), t = of_role(in, 't');
    const Curve *own = curve_of(d, p, in), *forward = device_curve(d, OP_attention);
    double part = own == &d->efficiency && in->op == OP_attention_grad ? curve_at(forward, flops) * ATTENTION_GRAD : curve_at(own, flops);
    return flops / (peak * part * depth_part(t, d->attention_depth));
}

/* Matrices lie with their last axis together: a row that does not begin at 16 bytes is loaded in smaller pieces. */
static double alignment(const Device *d, const Program *p, const Instr *in, const Gemm *g)
{
    double elements = in->narg > 0 && has_tensor(in->arg[0]) ? 16.0 / dtype_bytes(p->tensor[in->arg[0].i].dtype) : 1;
    bool even = (double)(int64_t)(g->k / elements) * elements == g->k && (double)(int64_t)(g->n / elements) * elements == g->n;
    return d->unaligned > 0 && !even ? d->unaligned : 1;
}

static double compute_seconds(CostModel *cm, const Device *d, const Program *p, const Instr *in)
{
    double peak = peak_of(d, p, in);
    if (!op_computes(in->op) || !(in->flops > 0) || !(peak > 0))
        return 0;
    if (is_attention(in->op))
        return attention_seconds(d, p, in, peak);
    Gemm g = gemm_of(p, in);
    return gemm_seconds(cm, d, g, peak * curve_at(curve_of(d, p, in), in->flops) * alignment(d, p, in, &g));
}

double cost_work(const Program *p, const Instr *in)
{
    if (!op_computes(in->op))
        return moved_bytes(p, in);
    return is_attention(in->op) ? in->flops * attended(in) : in->flops;
}

static double memory_seconds(const Device *d, const Program *p, const Instr *in)
{
    double bytes = moved_bytes(p, in);
    const Curve *c = op_computes(in->op) ? &d->memory_efficiency : curve_of(d, p, in);
    return bytes > 0 ? bytes / (d->bandwidth * curve_at(c, bytes)) : 0;
}

CostClass cost_class(OpKind op)
{
    if (op_info[op].flags & OPF_COMM)
        return COST_link;
    if (is_attention(op))
        return COST_attention;
    if (op == OP_adamw || op == OP_sgd || op == OP_sum_squares)
        return COST_optimizer;
    return op_computes(op) ? COST_matmul : COST_memory;
}

static bool is_matmul(OpKind op)
{
    return cost_class(op) == COST_matmul;
}

/* Seconds of the pass that adds what a matmul made to a gradient of more bits: written and read once in the
 * matmul's type, the sum read and written. */
static double separate_sum(const CostModel *cm, const Device *d, const Program *p, const Instr *in)
{
    if (cm->profile->fuses_sums || !is_matmul(in->op) || in->acc == ACC_NO || in->narg == 0 || !has_tensor(in->arg[0]))
        return 0;
    double elements = out_elements(p, in), bytes = 2 * bytes_at(p, in->out[0]) + 2 * elements * dtype_bytes(p->tensor[in->arg[0].i].dtype);
    return bytes / (d->bandwidth * curve_at(&d->memory_efficiency, bytes)) + d->launch;
}

static int64_t nanoseconds(double seconds)
{
    return seconds * 1e9 < (double)COST_MOST ? (int64_t)(seconds * 1e9 + 0.5) : COST_MOST;
}

static double comm_bytes(const Program *p, const Instr *in)
{
    bool made = in->op == OP_all_gather || in->op == OP_recv;
    return bytes_at(p, made ? in->out[0] : in->arg[0]);
}

/* The slowest of the groups that do it at a time. */
static double link_seconds(const Program *p, const GroupCost *groups, const Instr *in)
{
    const GroupCost *g = &groups[in->group];
    double most = 0, bytes = comm_bytes(p, in);
    for (uint32_t i = 0; i < g->npattern; i++) {
        double s = links_seconds(&g->pattern[i], in->op, bytes);
        most = s > most ? s : most;
    }
    return most;
}

static Bound bound_of(const Cost *c)
{
    if (c->link > 0)
        return c->link > c->launch ? BOUND_LINK : BOUND_LAUNCH;
    double longer = c->compute > c->memory ? c->compute : c->memory;
    return c->launch > longer ? BOUND_LAUNCH : c->compute > c->memory ? BOUND_COMPUTE : BOUND_MEMORY;
}

Cost cost_of(CostModel *cm, const Program *p, const GroupCost *groups, const Instr *in)
{
    const Device *d = device_of(cm, p);
    Cost c = {.cls = cost_class(in->op)};
    if (c.cls == COST_link) {
        c.link = link_seconds(p, groups, in);
        c.launch = d->backend == BACKEND_CUDA ? 0 : d->launch;       /* NCCL's base latency has it */
        c.launch += in->op == OP_send || in->op == OP_recv ? cm->profile->message + profile_stall(cm->profile, cm->plan->ndevices) : 0;
    } else {
        const Profile *by = cm->profile;
        double sum = separate_sum(cm, d, p, in);
        c.compute = compute_seconds(cm, d, p, in) * (c.cls == COST_attention ? by->slow_attention : by->slow_matmul) + sum;
        c.memory = memory_seconds(d, p, in) * (op_computes(in->op) ? 1 : by->slow_memory) + sum;
        c.launch = op_info[in->op].flags & OPF_VIEW ? 0 : d->launch;
    }
    if (in->op == OP_transpose && !cm->profile->packs)
        c.memory = c.launch = 0;
    double busy = c.link + (c.compute > c.memory ? c.compute : c.memory);
    c.ns = nanoseconds(busy + c.launch);
    c.bound = bound_of(&c);
    return c;
}

int64_t cost_ns(CostModel *cm, const Program *p, const GroupCost *groups, const Instr *in)
{
    return cost_of(cm, p, groups, in).ns;
}

int64_t cost_shared_ns(const Cost *c, double processor, double memory)
{
    double compute = c->compute / processor, bytes = c->memory / memory;
    return nanoseconds(c->link + c->launch / processor + (compute > bytes ? compute : bytes));
}

/* ---- the model ---- */

CostModel *cost_model(Arena *a, const Cluster *cl, const Plan *plan, const Profile *profile)
{
    CostModel *cm = NEW(a, CostModel);
    cm->arena = a;
    cm->cl = cl;
    cm->plan = plan;
    cm->profile = profile;
    cm->links = links_read(a, cl, plan);
    return cm;
}

GroupCost *cost_groups(CostModel *cm, const Program *p)
{
    GroupCost *g = NEWN(cm->arena, GroupCost, p->ngroup + 1);
    for (uint32_t i = 0; i < p->ngroup; i++)
        g[i].pattern = links_patterns(&cm->links, &p->group[i], &g[i].npattern);
    return g;
}

const char *cost_class_text(CostClass c)
{
    static const char *const text[] = {
#define X(name, text) text,
        COST_CLASS_LIST(X)
#undef X
    };
    return text[c];
}

const char *cost_class_key(CostClass c)
{
    static const char *const key[] = {
#define X(name, text) #name,
        COST_CLASS_LIST(X)
#undef X
    };
    return key[c];
}

const char *bound_text(Bound b)
{
    static const char *const text[BOUNDS] = {"compute", "memory", "launch", "link"};
    return text[b];
}
