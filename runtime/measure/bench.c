/* Bench: see bench.h. */
#include "runtime/measure/bench.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "codegen/cost.h"
#include "ir/sig.h"
#include "runtime/ranks.h"

/* Bytes of a pattern that is a number of about 0.75 in f32 and bf16, and small and
 * positive in f64: nothing becomes a NaN or too small for full speed. */
enum { FILL = 0x3f, NAMES_BYTES = 512 };

/* Of instructions that read little, this many copies are enough to time their start. */
enum { MOST_COPIES = 512 };

/* Bytes or FLOP. */
static const double ONLY_START = 1 << 10;

/* Calls that are handed over at once, as those of a step are. */
enum { LIST = 512 };

/* Where calls are executed behind the host, a turn begins with what starts a list and ends with waiting for it. */
static const double TURN_AHEAD = 6e-3;               /* seconds */

static int64_t aligned(int64_t bytes)
{
    return (bytes + BUFFER_ALIGN - 1) / BUFFER_ALIGN * BUFFER_ALIGN;
}

static BufferId add_area(Program *p, const char *name, int64_t bytes)
{
    return program_add_buffer(p, (Buffer){.name = name, .cls = CLASS_working, .bytes = bytes, .slots = 1, .first = -1, .last = -1});
}

Bench *bench_new(Arena *a, const Machine *machine, DType compute, int threads, int64_t apart)
{
    Bench *b = NEW(a, Bench);
    Program *p = program_new(a);
    *b = (Bench){.arena = a, .executor = machine->executor, .isa = machine->isa, .program = p, .apart = apart};
    DType sums = compute == DT_f64 ? DT_f64 : DT_f32;
    p->model = "bench";
    p->threads = threads;
    p->reserve = machine_reserve(machine);           /* some kernels are chosen by what scratch they may have of it */
    p->batch = 1;
    p->precision = (Precision){.compute = compute, .weights = compute, .grads = sums, .master = sums, .reduce = sums};
    p->optimizer = (Optimizer){.kind = OPTIMIZER_ADAMW, .lr = 1e-6, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .clip = 1};
    b->args = add_area(p, "arguments", 0);
    b->outs = add_area(p, "results", 0);
    b->work = add_area(p, "workspace", 0);
    return b;
}

/* ---- the shape of an instruction ---- */

/* An instruction in the making: which factor each extent of the list became, and how much
 * of the areas it has taken. */
typedef struct Maker {
    Bench        *b;
    const Extent *extent;
    uint8_t       factor[BENCH_EXTENTS];             /* by place in the list; NO_FACTOR */
    int64_t       args, outs;         /* bytes */
    Instr         in;
    const char   *name[MAX_ARGS];     /* of the arguments */
} Maker;

static uint8_t factor_of_extent(Maker *m, uint32_t i, char role)
{
    assert(i < BENCH_EXTENTS);
    if (m->factor[i] == NO_FACTOR) {
        assert(m->in.nfactor < MAX_FACTORS);
        m->factor[i] = m->in.nfactor;
        m->in.extent[m->in.nfactor] = m->extent[i].n;
        m->in.role[m->in.nfactor++] = role;
    }
    return m->factor[i];
}

/* The axes that stand for one of a pattern. */
static void add_axes(Maker *m, const SigAxis *axis, Tensor *t, uint8_t *factor)
{
    uint8_t before = t->rank;
    for (uint32_t i = 0; m->extent[i].axis; i++)
        if (strcmp(m->extent[i].axis, axis->name) == 0) {
            factor[t->rank] = factor_of_extent(m, i, axis->role);
            t->axis[t->rank++] = (AxisPlace){.local = m->extent[i].n, .global = m->extent[i].n};
        }
    assert(t->rank > before && "an axis without an extent");
    (void)before;
}

/* Tensors of whole numbers, and the axis whose places they are. */
static const struct { const char *name, *axis; } indices[] = {{"ids", "v"}, {"labels", "c"}, {"token", "s"}};

static const char *index_axis(const SigFormal *f)
{
    for (size_t i = 0; f->name && i < sizeof indices / sizeof *indices; i++)
        if (strcmp(f->name, indices[i].name) == 0)
            return indices[i].axis;
    return NULL;
}

static int64_t extent_of(const Maker *m, const char *axis)
{
    for (uint32_t i = 0; m->extent[i].axis; i++)
        if (strcmp(m->extent[i].axis, axis) == 0)
            return m->extent[i].n;
    return 1;
}

static TensorId own_index(Maker *m, Tensor t, const char *axis)
{
    Bench *b = m->b;
    uint32_t n = b->nindex;
    t.dtype = DT_i32;
    t.buffer = add_area(b->program, t.path, aligned(tensor_bytes(&t)));
    TensorId id = program_add_tensor(b->program, t);
    PUSH(b->arena, b->index, b->nindex, id);
    PUSH(b->arena, b->below, n, extent_of(m, axis));
    return id;
}

/* Statistics, scalars and gradients of weights are kept in a type of their own. */
static DType dtype_of(const Maker *m, const SigFormal *f)
{
    static const char *const names[] = {"mean", "rstd", "lse", "prob", "stats", "dw", "db"};
    const Precision *p = &m->b->program->precision;
    for (size_t i = 0; f->name && i < sizeof names / sizeof *names; i++)
        if (strcmp(f->name, names[i]) == 0)
            return p->reduce;
    bool of_weight = m->in.op == OP_embed_grad || m->in.op == OP_reduce || m->in.op == OP_cross_entropy_stats || m->in.op == OP_relative_bias_grad;
    return f->naxis == 0 || (of_weight && !f->name) ? p->reduce : p->compute;
}

static TensorId add_tensor(Maker *m, const SigFormal *f, BufferId area, int64_t *used, uint8_t *factor)
{
    Program *p = m->b->program;
    Tensor t = {.path = f->name ? f->name : "result", .buffer = area, .dtype = dtype_of(m, f), .role = ROLE_ACTIVATION};
    for (int i = 0; i < f->naxis; i++)
        add_axes(m, &f->axis[i], &t, factor);
    if (index_axis(f))
        return own_index(m, t, index_axis(f));
    t.at = *used;
    *used += aligned(tensor_bytes(&t));
    return program_add_tensor(p, t);
}

static bool is_option(const Bench *b, OpKind op, const char *name)
{
    return b->with && name && strcmp(name, op_sig(op)->formal[b->with - 1].name) == 0;
}

/* Of an option there is the gradient too. */
static bool is_present(const Maker *m, const SigFormal *f)
{
    bool vector = f->naxis == 1 && !f->axis[0].dots, with = is_option(m->b, m->in.op, f->name);
    bool gradient = f->name && f->name[0] == 'd' && is_option(m->b, m->in.op, f->name + 1);
    return with || gradient || (!f->tensor && (!f->optional || vector || f->kind == SIG_EXTRA));
}

static void add_arg(Maker *m, const SigFormal *f)
{
    Instr *in = &m->in;
    m->name[in->narg] = f->name;
    if (is_present(m, f))
        in->arg[in->narg] = add_tensor(m, f, m->b->args, &m->args, in->arg_factor[in->narg]);
    in->narg++;
}

/* The argument that a result is, or -1: one with its name; and where there is such a
 * result, the first one is the first argument. */
static int updated(const Maker *m, const OpSig *sig, int k)
{
    bool updates = false;
    for (int i = 0; i < m->in.narg; i++)
        for (int o = 0; o < sig->nresult; o++) {
            bool same = sig->result[o].name && strcmp(sig->result[o].name, m->name[i]) == 0;
            updates |= same;
            if (same && o == k)
                return i;
        }
    return updates && k == 0 ? 0 : -1;
}

static void add_results(Maker *m, const OpSig *sig)
{
    Instr *in = &m->in;
    for (int k = 0; k < sig->nresult + sig->nsaved; k++) {
        const SigFormal *f = &sig->result[k];
        int of = updated(m, sig, k);
        if (of >= 0 && has_tensor(in->arg[of])) {
            in->out[k] = in->arg[of];
            memcpy(in->out_factor[k], in->arg_factor[of], sizeof in->out_factor[k]);
        } else if (is_present(m, f)) {
            in->out[k] = add_tensor(m, f, m->b->outs, &m->outs, in->out_factor[k]);
        }
        in->nout = (uint8_t)(k + 1);
    }
}

static void clear(Instr *in)
{
    memset(in->arg_factor, NO_FACTOR, sizeof in->arg_factor);
    memset(in->out_factor, NO_FACTOR, sizeof in->out_factor);
    for (int i = 0; i < MAX_ARGS; i++)
        in->arg[i] = NO_TENSOR;
    for (int i = 0; i < MAX_OUTS; i++)
        in->out[i] = NO_TENSOR;
    in->workspace = NO_TENSOR;
}

static void set_attr(Instr *in, const char *name, Attr value)
{
    int i = op_attr_index(in->op, name);
    if (i >= 0)
        in->attr[i] = value;
}

static Instr new_instr(OpKind op)
{
    Instr in = {.op = op, .path = op_info[op].name, .key = op_info[op].name};
    OpSpec defaults = op_spec(op, PHASE_FORWARD, in.path, NOWHERE);
    memcpy(in.attr, defaults.attr, sizeof in.attr);
    set_attr(&in, "p", ATTR_F(0.1));                 /* a dropout of nothing would be no work */
    set_attr(&in, "causal", ATTR_B(true));           /* as in models of language */
    clear(&in);
    return in;
}

/* ---- adding ---- */

static void grow(Program *p, BufferId b, int64_t bytes)
{
    if (bytes > p->buffer[b.i].bytes)
        p->buffer[b.i].bytes = bytes;
}

static void add_workspace(Bench *b, Instr *in)
{
    int64_t bytes = instr_workspace(in, b->program);
    if (bytes == 0)
        return;
    grow(b->program, b->work, aligned(bytes));
    in->workspace = program_add_tensor(b->program, (Tensor){.path = in->path, .buffer = b->work, .dtype = DT_u8, .rank = 1,
                                                             .axis = {{.local = bytes, .global = bytes}}, .role = ROLE_STEP});
}

static int64_t bytes_of(const Program *p, const TensorId *t, int n)
{
    int64_t bytes = 0;
    for (int i = 0; i < n; i++)
        bytes += has_tensor(t[i]) ? tensor_bytes(&p->tensor[t[i].i]) : 0;
    return bytes;
}

static void add_args(Maker *m, OpKind op, const OpSig *sig)
{
    bool own = sig == op_sig(op);
    for (int i = 0; i < (own ? op_narg(op) : sig->nformal); i++)
        add_arg(m, own ? op_arg(op, i) : &sig->formal[i]);
}

static uint32_t add_instr(Program *p, Instr in)
{
    uint32_t i = program_add_instr(p, in);
    PUSH(p->arena, p->proc, p->nproc, ((Proc){.kind = PROC_forward, .first = i, .end = i + 1}));
    return i;
}

static TensorId moved(const Maker *m, TensorId id, uint32_t k)
{
    const Program *p = m->b->program;
    Tensor t = p->tensor[id.i];
    if (t.buffer.i != m->b->args.i && t.buffer.i != m->b->outs.i)
        return id;
    t.at += k * (t.buffer.i == m->b->args.i ? m->args : m->outs);
    return program_add_tensor(m->b->program, t);
}

/* The same elsewhere, but for the first argument, unless it updates that. */
static Instr copy_of(const Maker *m, uint32_t k)
{
    Instr in = m->in;
    bool updates = has_tensor(in.arg[0]) && in.nout > 0 && in.out[0].i == in.arg[0].i;
    for (int i = updates ? 0 : 1; i < in.narg; i++)
        if (has_tensor(in.arg[i]))
            in.arg[i] = moved(m, in.arg[i], k);
    for (int o = 0; o < in.nout; o++) {
        int i = 0;
        while (i < in.narg && m->in.arg[i].i != m->in.out[o].i)
            i++;
        if (has_tensor(in.out[o]))
            in.out[o] = i < in.narg ? in.arg[i] : moved(m, in.out[o], k);
    }
    return in;
}

static uint32_t add_item(Maker *m)
{
    Bench *b = m->b;
    int64_t each = m->args + m->outs, copies = each > 0 ? (b->apart + each - 1) / each : 1;
    BenchItem item = {.bench = b, .with = b->with, .copies = copies < 1 ? 1 : copies > MOST_COPIES ? MOST_COPIES : (uint32_t)copies};
    item.first = add_instr(b->program, m->in);
    for (uint32_t k = 1; k < item.copies; k++)
        (void)add_instr(b->program, copy_of(m, k));
    grow(b->program, b->args, item.copies * m->args);
    grow(b->program, b->outs, item.copies * m->outs);
    PUSH(b->arena, b->item, b->nitem, item);
    return b->nitem - 1;
}

uint32_t bench_add(Bench *b, OpKind op, const char *signature, const Extent *extent)
{
    Program *p = b->program;
    const OpSig *sig = op_sig(op);
    OpSig *given = NEW(b->arena, OpSig);
    SigPool pool = {.text = arena_alloc(b->arena, NAMES_BYTES), .cap = NAMES_BYTES};
    if (signature) {
        const char *error = sig_read(signature, "", &pool, given);
        assert(!error && "a signature that cannot be read");
        (void)error;
        sig = given;
    }
    Maker m = {.b = b, .extent = extent, .in = new_instr(op)};
    memset(m.factor, NO_FACTOR, sizeof m.factor);
    if (b->with && !op_sig(op)->formal[b->with - 1].tensor && !op_sig(op)->formal[b->with - 1].optional)
        set_attr(&m.in, op_sig(op)->formal[b->with - 1].name, ATTR_B(true));
    add_args(&m, op, sig);
    add_results(&m, sig);
    m.in.flops = instr_flops(&m.in, p);
    m.in.bytes = bytes_of(p, m.in.arg, m.in.narg) + bytes_of(p, m.in.out, m.in.nout);
    add_workspace(b, &m.in);
    return add_item(&m);
}

const Instr *bench_instr(const Bench *b, uint32_t item)
{
    return &b->program->instr[b->item[item].first];
}

double bench_work(const Bench *b, uint32_t item)
{
    return cost_work(b->program, bench_instr(b, item));
}

/* ---- timing ---- */

static void read_clock(void *ctx, int worker, int nworker)
{
    double *clock = ctx;
    (void)nworker;
    clock[worker] = seconds_of_thread();
}

/* That of the thread of the team that had most to do: what a neighbour takes of a processor
 * meanwhile does not count. */
static double busiest(const Bench *b)
{
    double most = 0;
    for (int i = 0; i < team_size(b->rank.team); i++)
        most = fmax(most, b->after[i] - b->before[i]);
    return most;
}

static Status call_copies(BenchItem *c, int64_t times)
{
    Bench *b = c->bench;
    for (uint32_t n = 0; times > 0; times -= n) {
        for (n = 0; n < LIST && n < times; n++)
            b->call[n] = (Call){.proc = c->first + c->next++ % c->copies};
        TRY(rank_calls(&b->rank, &(CallList){.call = b->call, .n = n}));
    }
    return rank_settle(&b->rank);
}

/* Processor time where the team executes the calls; elsewhere the host's clock counts. */
static double time_calls(void *ctx, int64_t times)
{
    BenchItem *c = ctx;
    Bench *b = c->bench;
    double start = seconds_now();
    if (b->failed != OK)
        return 0;
    if (!b->executor->ahead)
        team_run(b->rank.team, read_clock, b->before);
    b->failed = call_copies(c, times);
    if (b->executor->ahead)
        return seconds_now() - start;
    team_run(b->rank.team, read_clock, b->after);
    return busiest(b);
}

static void place_areas(Program *p)
{
    int64_t at = 0;
    for (uint32_t i = 0; i < p->nbuffer; i++) {
        p->buffer[i].offset = at;
        at += aligned(p->buffer[i].bytes);
    }
    p->map_bytes[PART_PRIVATE] = at;
}

/* Whole tensors, a window at a time. */
typedef void (*Filler)(const Bench *, uint32_t i, int64_t from, int64_t bytes, char *to);

static void fill_tensor(const Bench *b, TensorId t, uint32_t i, Filler fill)
{
    char *at = rank_at(&b->rank, t, 0, 0);
    int64_t all = tensor_bytes(&b->program->tensor[t.i]);
    for (int64_t from = 0, n; from < all; from += n) {
        n = all - from < RANK_WINDOW ? all - from : RANK_WINDOW;
        fill(b, i, from, n, b->executor->edit(&b->rank, at + from, n));
    }
}

/* Places all over what is indexed, so that no row of a table is met in a cache by chance. */
static void fill_index(const Bench *b, uint32_t i, int64_t from, int64_t bytes, char *to)
{
    int32_t *place = (int32_t *)(void *)to;
    for (int64_t k = from / (int64_t)sizeof *place, n = 0; n < bytes / (int64_t)sizeof *place; k++, n++)
        place[n] = (int32_t)(philox4(1, fnv1a("index"), (uint64_t)k, 0).word[0] % (uint64_t)b->below[i]);
}

static void fill_numbers(const Bench *b, uint32_t i, int64_t from, int64_t bytes, char *to)
{
    (void)b, (void)i, (void)from;
    memset(to, FILL, (size_t)bytes);
}

static TensorId whole_area(Program *p, BufferId area)
{
    int64_t bytes = p->buffer[area.i].bytes;
    return program_add_tensor(p, (Tensor){.path = p->buffer[area.i].name, .buffer = area, .dtype = DT_u8, .rank = 1,
                                          .axis = {{.local = bytes, .global = bytes}}, .role = ROLE_STEP});
}

/* Items of an op with an option are alike; of one so small that it is only its start nothing follows for larger ones. */
static Probe probe_of(const Bench *b, uint32_t item)
{
    double work = bench_work(b, item);
    return (Probe){.time = time_calls, .ctx = &b->item[item], .like = (uint32_t)bench_instr(b, item)->op + OP_KINDS * b->item[item].with,
                   .work = work > ONLY_START ? work : 0, .turn = b->executor->ahead ? TURN_AHEAD : 0};
}

/* What is executed behind the host may take minutes, as nobody knows yet: it is first called when its turn comes. */
Status bench_open(Bench *b)
{
    Program *p = b->program;
    const Peers alone = {.executor = b->executor, .cold = b->executor->ahead};
    TensorId args = whole_area(p, b->args);
    place_areas(p);
    TRY(rank_join(&b->rank, b->arena, p, b->isa, &alone));
    for (uint32_t i = 0; i < b->nindex; i++)
        fill_tensor(b, b->index[i], i, fill_index);
    fill_tensor(b, args, 0, fill_numbers);
    b->call = NEWN(b->arena, Call, LIST);
    b->before = NEWN(b->arena, double, team_size(b->rank.team));
    b->after = NEWN(b->arena, double, team_size(b->rank.team));
    b->probe = NEWN(b->arena, Probe, b->nitem);
    for (uint32_t i = 0; i < b->nitem; i++)
        b->probe[i] = probe_of(b, i);
    return rank_settle(&b->rank);
}

Status bench_run(Bench *b, double seconds, double most)
{
    rounds_run(b->probe, b->nitem, seconds, most);
    return b->failed;
}

void bench_close(Bench *b)
{
    rank_close(&b->rank);
}
