/* The dump form of a Program: every field, one record a line. */
#include <string.h>

#include "ir/program.h"
#include "ir/record.h"

enum { PROGRAM_VERSION = 3, ACCUMULATES = ACC_AFTER_FIRST + 1 };

static const char *class_name(unsigned i)
{
    static const char *const name[CLASSES] = {
#define X(name, text) #name,
        BUFFER_CLASS_LIST(X)
#undef X
    };
    return name[i];
}

static const char *proc_name(unsigned i)
{
    static const char *const name[PROCS] = {
#define X(name) #name,
        PROC_LIST(X)
#undef X
    };
    return name[i];
}

static const char *part_name(unsigned i)
{
    return i == PART_PRIVATE ? "private" : "shared";
}

static const char *acc_name(unsigned i)
{
    static const char *const name[ACCUMULATES] = {"no", "yes", "after_first"};
    return name[i];
}

static const char *when_name(unsigned i)
{
    return i == WHEN_ALWAYS ? "always" : "last";
}

static const char *bool_text(bool b)
{
    return b ? "true" : "false";
}

/* ---- printing ---- */

static void put_int(FILE *f, const char *key, int64_t v)
{
    fprintf(f, " %s=%lld", key, (long long)v);
}

static void put_tensor(FILE *f, const char *key, TensorId t)
{
    fprintf(f, " %s=", key);
    put_index(f, t.i);
}

static void put_tensors(FILE *f, const char *key, int n, const TensorId *t)
{
    fprintf(f, " %s=[", key);
    for (int i = 0; i < n; i++) {
        if (i)
            fputc(',', f);
        put_index(f, t[i].i);
    }
    fputc(']', f);
}

static void print_head(FILE *f, const Program *p)
{
    fputs("model", f);
    record_put_string(f, "name", p->model ? p->model : "");
    put_int(f, "batch", p->batch);
    put_int(f, "microbatches", p->microbatches);
    fprintf(f, " full_only=%s", bool_text(p->full_only));
    put_int(f, "rank", p->rank);
    put_int(f, "ranks", p->nranks);
    put_int(f, "tokens", p->tokens);
    put_tensor(f, "loss", p->loss);
    put_tensor(f, "norm", p->norm);
    record_put_real(f, "model_flops", p->model_flops);
    record_put_real(f, "model_flops_causal", p->model_flops_causal);
    fputs("\ndevice", f);
    put_int(f, "private", p->map_bytes[PART_PRIVATE]);
    put_int(f, "shared", p->map_bytes[PART_SHARED]);
    put_int(f, "reserve", p->reserve);
    put_int(f, "memory", p->memory);
    put_int(f, "threads", p->threads);
    if (p->comm_threads > 0)
        put_int(f, "comm_threads", p->comm_threads);
    record_put_real(f, "peak", p->peak);
    fputc('\n', f);
    record_put_precision(f, &p->precision);
    record_put_optimizer(f, &p->optimizer);
}

static void print_buffer(FILE *f, const Program *p, uint32_t i)
{
    const Buffer *b = &p->buffer[i];
    fprintf(f, "buffer id=%u", i);
    record_put_string(f, "name", b->name);
    fprintf(f, " class=%s part=%s", class_name(b->cls), part_name(b->part));
    put_int(f, "bytes", b->bytes);
    put_int(f, "slots", b->slots);
    fprintf(f, " by_micro=%s", bool_text(b->by_micro));
    put_int(f, "first", b->first);
    put_int(f, "last", b->last);
    put_int(f, "offset", b->offset);
    fputc('\n', f);
}

/* LOCAL:GLOBAL:ORIGIN, :STEP where micro-batches cut it, and :PAD where it is padded. */
static void print_axis(FILE *f, const AxisPlace *a, bool comma)
{
    fprintf(f, "%s%lld:%lld:%lld", comma ? "," : "", (long long)a->local, (long long)a->global, (long long)a->origin);
    if (a->per_micro || a->pad)
        fprintf(f, ":%lld", (long long)a->per_micro);
    if (a->pad)
        fprintf(f, ":%lld", (long long)a->pad);
}

static void print_tensor(FILE *f, const Program *p, uint32_t i)
{
    const Tensor *t = &p->tensor[i];
    fprintf(f, "tensor id=%u", i);
    record_put_string(f, "path", t->path);
    fprintf(f, " buffer=%u", t->buffer.i);
    put_int(f, "at", t->at);
    fprintf(f, " dtype=%s role=%s axes=[", dtype_name(t->dtype), value_role_name(t->role));
    for (int x = 0; x < t->rank; x++)
        print_axis(f, &t->axis[x], x > 0);
    fprintf(f, "]%s\n", t->partial ? " partial=true" : "");
}

static void print_instr(FILE *f, const Program *p, uint32_t i)
{
    const Instr *in = &p->instr[i];
    fprintf(f, "instr id=%u op=%s", i, op_info[in->op].name);
    if (in->stream != STREAM_compute)
        fprintf(f, " stream=%s", stream_name(in->stream));
    if (in->when != WHEN_ALWAYS)
        fprintf(f, " when=%s", when_name(in->when));
    record_put_string(f, "path", in->path);
    record_put_string(f, "key", in->key ? in->key : "");
    put_tensors(f, "args", in->narg, in->arg);
    put_tensors(f, "outs", in->nout, in->out);
    if (op_info[in->op].flags & OPF_COMM)
        put_int(f, "group", in->group);
    fprintf(f, " acc=%s acc_out=%d factors=[", acc_name(in->acc), in->acc_out);
    for (int k = 0; k < in->nfactor; k++)
        fprintf(f, "%s%lld:%c", k ? "," : "", (long long)in->extent[k], in->role[k]);
    fputc(']', f);
    record_put_factors(f, "arg_factors", in->narg, in->arg_factor);
    record_put_factors(f, "out_factors", in->nout, in->out_factor);
    record_put_attrs(f, in->op, in->attr);
    put_tensor(f, "workspace", in->workspace);
    record_put_real(f, "flops", in->flops);
    put_int(f, "bytes", in->bytes);
    fputc('\n', f);
}

static void print_group(FILE *f, const Program *p, uint32_t i)
{
    fprintf(f, "group id=%u ranks=[", i);
    for (uint32_t r = 0; r < p->group[i].n; r++)
        fprintf(f, r ? ",%u" : "%u", p->group[i].rank[r]);
    fputs("]\n", f);
}

static void print_input(FILE *f, const Input *in)
{
    const InputLimit *l = &in->limit;
    fputs("input", f);
    record_put_string(f, "name", in->name);
    put_tensor(f, "tensor", in->tensor);
    fprintf(f, " dtype=%s extents=[", dtype_name(in->dtype));
    for (int x = 0; x < in->rank; x++)
        fprintf(f, x ? ",%lld" : "%lld", (long long)in->extent[x]);
    fprintf(f, "] label=%s", bool_text(l->label));
    if (l->of) {
        record_put_string(f, "of", l->of);
        put_int(f, "below", l->below);
    }
    if (l->ignores)
        put_int(f, "ignore", l->ignore);
    fputc('\n', f);
}

static void print_state(FILE *f, const State *s)
{
    fputs("state", f);
    record_put_string(f, "path", s->path);
    put_tensor(f, "weight", s->weight);
    put_tensor(f, "master", s->master);
    put_tensor(f, "gradient", s->gradient);
    put_tensors(f, "moments", 2, s->moment);
    if (s->sharded) {
        put_tensor(f, "shard_master", s->shard.master);
        put_tensors(f, "shard", 2, s->shard.moment);
        put_int(f, "shard_at", s->shard.at);
        put_int(f, "shard_first", s->shard.first);
        put_int(f, "shard_end", s->shard.end);
    }
    record_put_init(f, &s->init);
    fprintf(f, " frozen=%s decays=%s\n", bool_text(s->frozen), bool_text(s->decays));
}

static void print_named(FILE *f, const char *tag, const NamedTensor *n)
{
    fputs(tag, f);
    record_put_string(f, "name", n->name);
    record_put_string(f, "path", n->path);
    put_tensor(f, "tensor", n->tensor);
    fputc('\n', f);
}

void program_print(FILE *f, const Program *p)
{
    fprintf(f, "program %d\n", PROGRAM_VERSION);
    print_head(f, p);
    for (uint32_t i = 0; i < p->ngroup; i++)
        print_group(f, p, i);
    for (uint32_t i = 0; i < p->nbuffer; i++)
        print_buffer(f, p, i);
    for (uint32_t i = 0; i < p->ntensor; i++)
        print_tensor(f, p, i);
    for (uint32_t i = 0; i < p->ninstr; i++)
        print_instr(f, p, i);
    for (uint32_t i = 0; i < p->nproc; i++)
        fprintf(f, "proc id=%u kind=%s chunk=%u first=%u end=%u\n", i, proc_name(p->proc[i].kind), p->proc[i].chunk,
                p->proc[i].first, p->proc[i].end);
    for (uint32_t i = 0; i < p->ncall; i++)
        fprintf(f, "call proc=%u micro=%u slot=%u\n", p->call[i].proc, p->call[i].micro, p->call[i].slot);
    for (uint32_t i = 0; i < p->nwait; i++)
        fprintf(f, "wait instr=%u on=%u%s\n", p->wait[i].instr, p->wait[i].on, p->wait[i].same_slot ? " same_slot=true" : "");
    for (uint32_t i = 0; i < p->ninput; i++)
        print_input(f, &p->input[i]);
    for (uint32_t i = 0; i < p->nstate; i++)
        print_state(f, &p->state[i]);
    for (uint32_t i = 0; i < p->nterm; i++)
        print_named(f, "loss", &p->term[i]);
    for (uint32_t i = 0; i < p->noutput; i++)
        print_named(f, "output", &p->output[i]);
}

/* ---- reading: records stand in the order they are printed in, the model's loss
 * and norm aside, so references can be checked at once ---- */

static void expect_id(Records *r, uint32_t n)
{
    if (record_int(r, "id", 0, UINT32_MAX) != (int64_t)n)
        record_fail(r, "%s: expected id=%u", r->tag, n);
}

static TensorId get_tensor(Records *r, const char *key, const Program *p)
{
    return (TensorId){record_index(r, key, p->ntensor)};
}

static uint8_t get_tensors(Records *r, const char *key, const Program *p, TensorId *t, int max)
{
    char *item[MAX_ARGS];
    int n = record_list(r, key, item, max);
    for (int i = 0; i < n; i++)
        t[i].i = record_item_index(r, key, item[i], p->ntensor);
    return (uint8_t)n;
}

static void read_model(Records *r, Program *p)
{
    p->model = record_string(r, "name");
    p->batch = record_int(r, "batch", 0, INT64_MAX);
    p->microbatches = record_int(r, "microbatches", 1, INT32_MAX);
    p->full_only = record_bool(r, "full_only");
    p->rank = (uint32_t)record_int(r, "rank", 0, INT32_MAX);
    p->nranks = (uint32_t)record_int(r, "ranks", 1, INT32_MAX);
    p->tokens = record_int(r, "tokens", 0, INT64_MAX);
    p->loss.i = record_index(r, "loss", INT32_MAX);
    p->norm.i = record_index(r, "norm", INT32_MAX);
    p->model_flops = record_real(r, "model_flops");
    p->model_flops_causal = record_real(r, "model_flops_causal");
}

enum { MAX_THREADS = 1 << 16 };
static const int64_t MAX_MAP = INT64_C(1) << 56;     /* bytes: sums of a few stay in 64 bits */

static void read_device(Records *r, Program *p)
{
    p->map_bytes[PART_PRIVATE] = record_int(r, "private", 0, MAX_MAP);
    p->map_bytes[PART_SHARED] = record_int(r, "shared", 0, MAX_MAP);
    p->reserve = record_int(r, "reserve", 0, MAX_MAP);
    p->memory = record_int(r, "memory", 0, MAX_MAP);
    p->threads = (int)record_int(r, "threads", 0, MAX_THREADS);
    p->comm_threads = record_has(r, "comm_threads") ? (int)record_int(r, "comm_threads", 0, MOST_COMM_THREADS) : 0;
    p->peak = record_real(r, "peak");
}

static void read_precision(Records *r, Program *p)
{
    record_get_precision(r, &p->precision);
}

static void read_optimizer(Records *r, Program *p)
{
    record_get_optimizer(r, &p->optimizer);
}

enum { MAX_GROUP = 1 << 20 };

static void read_group(Records *r, Program *p)
{
    expect_id(r, p->ngroup);
    char **item = NEWN(p->arena, char *, p->nranks);
    RankGroup g = {.n = (uint32_t)record_list(r, "ranks", item, p->nranks < MAX_GROUP ? (int)p->nranks : MAX_GROUP)};
    g.rank = NEWN(p->arena, uint32_t, g.n);
    for (uint32_t i = 0; i < g.n && !r->failed; i++)
        g.rank[i] = (uint32_t)record_item_int(r, "ranks", item[i], 0, (int64_t)p->nranks - 1);
    PUSH(p->arena, p->group, p->ngroup, g);
}

static void read_buffer(Records *r, Program *p)
{
    expect_id(r, p->nbuffer);
    Buffer b = {.name = record_string(r, "name")};
    b.cls = (BufferClass)record_word(r, "class", CLASSES, class_name);
    b.part = (MapPart)record_word(r, "part", 2, part_name);
    b.bytes = record_int(r, "bytes", 0, MAX_MAP);
    b.slots = (uint32_t)record_int(r, "slots", 1, INT32_MAX);
    b.by_micro = record_bool(r, "by_micro");
    b.first = (int32_t)record_int(r, "first", -1, INT32_MAX);
    b.last = (int32_t)record_int(r, "last", -1, INT32_MAX);
    b.offset = record_int(r, "offset", 0, MAX_MAP);
    int64_t all;
    if (!r->failed && (__builtin_mul_overflow(b.bytes, (int64_t)b.slots, &all) || all > MAX_MAP))
        record_fail(r, "buffer: '%s' has too many bytes", b.name);
    program_add_buffer(p, b);
}

/* "LOCAL:GLOBAL:ORIGIN[:STEP[:PAD]]" */
static void read_axis(Records *r, char *text, AxisPlace *a)
{
    char *part[5] = {text};
    int n = 1;
    for (char *c = text; *c && n < 5; c++)
        if (*c == ':') {
            *c = 0;
            part[n++] = c + 1;
        }
    if (n < 3) {
        record_fail(r, "tensor: expected LOCAL:GLOBAL:ORIGIN[:STEP[:PAD]] in 'axes'");
        return;
    }
    a->local = record_item_int(r, "axes", part[0], 1, MAX_MAP);
    a->global = record_item_int(r, "axes", part[1], 1, MAX_MAP);
    a->origin = record_item_int(r, "axes", part[2], 0, MAX_MAP);
    a->per_micro = n > 3 ? record_item_int(r, "axes", part[3], 0, MAX_MAP) : 0;
    a->pad = n > 4 ? record_item_int(r, "axes", part[4], 0, MAX_MAP) : 0;
}

static void read_tensor(Records *r, Program *p)
{
    expect_id(r, p->ntensor);
    Tensor t = {.path = record_string(r, "path")};
    t.buffer.i = (uint32_t)record_int(r, "buffer", 0, (int64_t)p->nbuffer - 1);
    t.at = record_int(r, "at", 0, MAX_MAP);
    t.dtype = (DType)record_word(r, "dtype", DTYPES, dtype_name_at);
    t.role = (ValueRole)record_word(r, "role", VALUE_ROLES, value_role_name);
    t.partial = record_has(r, "partial") && record_bool(r, "partial");
    char *item[MAX_RANK];
    t.rank = (uint8_t)record_list(r, "axes", item, MAX_RANK);
    int64_t elements = 1;
    for (int x = 0; x < t.rank && !r->failed; x++) {
        read_axis(r, item[x], &t.axis[x]);
        if (!r->failed && (__builtin_mul_overflow(elements, t.axis[x].local, &elements) || elements > MAX_MAP))
            record_fail(r, "tensor: '%s' has too many elements", t.path);
    }
    program_add_tensor(p, t);
}

static void read_factors(Records *r, Instr *in)
{
    char *item[MAX_FACTORS];
    in->nfactor = (uint8_t)record_list(r, "factors", item, MAX_FACTORS);
    for (int k = 0; k < in->nfactor && !r->failed; k++) {
        char *colon = strchr(item[k], ':');
        if (!colon || !colon[1] || colon[2]) {
            record_fail(r, "instr: expected EXTENT:ROLE in 'factors', found '%.30s'", item[k]);
            return;
        }
        in->role[k] = colon[1];
        *colon = 0;
        in->extent[k] = record_item_int(r, "factors", item[k], 1, MAX_MAP);
    }
    record_get_factors(r, "arg_factors", in->narg, in->nfactor, in->arg_factor);
    record_get_factors(r, "out_factors", in->nout, in->nfactor, in->out_factor);
}

static void read_instr(Records *r, Program *p)
{
    expect_id(r, p->ninstr);
    Instr in = {.op = (OpKind)record_word(r, "op", OP_KINDS, op_name_at)};
    in.stream = record_has(r, "stream") ? (Stream)record_word(r, "stream", STREAMS, stream_name) : STREAM_compute;
    in.when = record_has(r, "when") ? (When)record_word(r, "when", WHEN_LAST + 1, when_name) : WHEN_ALWAYS;
    in.path = record_string(r, "path");
    in.key = record_string(r, "key");
    memset(in.arg, 0xFF, sizeof in.arg);
    memset(in.out, 0xFF, sizeof in.out);
    memset(in.arg_factor, NO_FACTOR, sizeof in.arg_factor);
    memset(in.out_factor, NO_FACTOR, sizeof in.out_factor);
    in.narg = get_tensors(r, "args", p, in.arg, MAX_ARGS);
    in.nout = get_tensors(r, "outs", p, in.out, MAX_OUTS);
    if (op_info[in.op].flags & OPF_COMM)
        in.group = (uint32_t)record_int(r, "group", 0, (int64_t)p->ngroup - 1);
    in.acc = (Accumulate)record_word(r, "acc", ACCUMULATES, acc_name);
    in.acc_out = (uint8_t)record_int(r, "acc_out", 0, (1 << MAX_OUTS) - 1);
    read_factors(r, &in);
    record_get_attrs(r, in.op, in.attr);
    in.workspace = get_tensor(r, "workspace", p);
    in.flops = record_real(r, "flops");
    in.bytes = record_int(r, "bytes", 0, INT64_MAX);
    program_add_instr(p, in);
}

static void read_proc(Records *r, Program *p)
{
    expect_id(r, p->nproc);
    Proc proc = {.kind = (ProcKind)record_word(r, "kind", PROCS, proc_name)};
    proc.chunk = (uint32_t)record_int(r, "chunk", 0, INT32_MAX);
    proc.first = (uint32_t)record_int(r, "first", 0, p->ninstr);
    proc.end = (uint32_t)record_int(r, "end", proc.first, p->ninstr);
    PUSH(p->arena, p->proc, p->nproc, proc);
}

static void read_call(Records *r, Program *p)
{
    Call c = {.proc = (uint32_t)record_int(r, "proc", 0, (int64_t)p->nproc - 1)};
    c.micro = (uint32_t)record_int(r, "micro", 0, INT32_MAX);
    c.slot = (uint32_t)record_int(r, "slot", 0, INT32_MAX);
    PUSH(p->arena, p->call, p->ncall, c);
}

static void read_wait(Records *r, Program *p)
{
    Wait w = {.instr = (uint32_t)record_int(r, "instr", 0, (int64_t)p->ninstr - 1), .on = (uint32_t)record_int(r, "on", 0, (int64_t)p->ninstr - 1)};
    w.same_slot = record_has(r, "same_slot") && record_bool(r, "same_slot");
    PUSH(p->arena, p->wait, p->nwait, w);
}

static void read_input(Records *r, Program *p)
{
    Input in = {.name = record_string(r, "name"), .tensor = get_tensor(r, "tensor", p)};
    in.dtype = (DType)record_word(r, "dtype", DTYPES, dtype_name_at);
    char *item[MAX_RANK];
    in.rank = (uint8_t)record_list(r, "extents", item, MAX_RANK);
    for (int x = 0; x < in.rank && !r->failed; x++)
        in.extent[x] = record_item_int(r, "extents", item[x], 1, MAX_MAP);
    in.limit.label = record_bool(r, "label");
    if (record_has(r, "of")) {
        in.limit.of = record_string(r, "of");
        in.limit.below = record_int(r, "below", 1, MAX_MAP);
    }
    in.limit.ignores = record_has(r, "ignore");
    if (in.limit.ignores)
        in.limit.ignore = record_int(r, "ignore", INT64_MIN, INT64_MAX);
    PUSH(p->arena, p->input, p->ninput, in);
}

static void read_state(Records *r, Program *p)
{
    State s = {.path = record_string(r, "path"), .moment = {NO_TENSOR, NO_TENSOR}, .shard = {NO_TENSOR, .moment = {NO_TENSOR, NO_TENSOR}}};
    s.weight = get_tensor(r, "weight", p);
    s.master = get_tensor(r, "master", p);
    s.gradient = get_tensor(r, "gradient", p);
    if (get_tensors(r, "moments", p, s.moment, 2) != 2)
        record_fail(r, "state: expected two 'moments'");
    s.sharded = record_has(r, "shard");
    if (s.sharded) {
        s.shard.master = get_tensor(r, "shard_master", p);
        if (get_tensors(r, "shard", p, s.shard.moment, 2) != 2)
            record_fail(r, "state: expected two tensors in 'shard'");
        s.shard.at = record_int(r, "shard_at", 0, MAX_MAP);
        s.shard.first = record_int(r, "shard_first", 0, MAX_MAP);
        s.shard.end = record_int(r, "shard_end", s.shard.first, MAX_MAP);
    }
    record_get_init(r, &s.init);
    s.frozen = record_bool(r, "frozen");
    s.decays = record_bool(r, "decays");
    PUSH(p->arena, p->state, p->nstate, s);
}

static NamedTensor get_named(Records *r, const Program *p)
{
    return (NamedTensor){record_string(r, "name"), record_string(r, "path"), get_tensor(r, "tensor", p)};
}

static void read_loss(Records *r, Program *p)
{
    PUSH(p->arena, p->term, p->nterm, get_named(r, p));
}

static void read_output(Records *r, Program *p)
{
    PUSH(p->arena, p->output, p->noutput, get_named(r, p));
}

static const struct { const char *tag; void (*read)(Records *, Program *); } readers[] = {
    {"model", read_model},   {"device", read_device}, {"precision", read_precision}, {"optimizer", read_optimizer},
    {"group", read_group},
    {"buffer", read_buffer}, {"tensor", read_tensor}, {"instr", read_instr},         {"proc", read_proc},
    {"call", read_call},     {"wait", read_wait},     {"input", read_input},         {"state", read_state},
    {"loss", read_loss},     {"output", read_output},
};

Status program_read(Arena *a, FILE *in, const char *name, FILE *err, Program **out)
{
    Records r;
    *out = NULL;
    TRY(records_open(&r, a, in, name, err, "program", PROGRAM_VERSION));
    Program *p = program_new(a);
    while (record_next(&r)) {
        size_t i = 0, n = sizeof readers / sizeof *readers;
        while (i < n && strcmp(readers[i].tag, r.tag) != 0)
            i++;
        if (i == n)
            record_fail(&r, "a program has no '%.30s'", r.tag);
        else
            readers[i].read(&r, p);
    }
    if (r.failed || program_check(p, err) != 0)
        return ERR_REJECT;
    *out = p;
    return OK;
}
