/* The instruction list and its uses: what every pass needs to look around and to
 * rewrite.  No pass keeps instruction ids over code_insert() or code_compact(). */
#include "codegen/pass.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- procedures and single instructions ---- */

Proc *proc_find(const Program *p, ProcKind kind)
{
    for (uint32_t i = 0; i < p->nproc; i++)
        if (p->proc[i].kind == kind)
            return &p->proc[i];
    return NULL;
}

bool proc_has(const Proc *proc, uint32_t instr)
{
    return proc && instr >= proc->first && instr < proc->end;
}

Attr *instr_set(Instr *in, const char *name)
{
    int i = op_attr_index(in->op, name);
    assert(i >= 0 && "the op has no such attribute");
    return &in->attr[i];
}

void instr_clear(Instr *in)
{
    in->narg = in->nout = 0;
    memset(in->arg_factor, NO_FACTOR, sizeof in->arg_factor);
    memset(in->out_factor, NO_FACTOR, sizeof in->out_factor);
    for (int i = 0; i < MAX_ARGS; i++)
        in->arg[i] = NO_TENSOR;
    for (int i = 0; i < MAX_OUTS; i++)
        in->out[i] = NO_TENSOR;
    in->workspace = NO_TENSOR;
}

int64_t align_up(int64_t bytes, int64_t to)
{
    return (bytes + to - 1) / to * to;
}

bool same_procedure(const Program *p, uint32_t a, uint32_t b)
{
    for (uint32_t i = 0; i < p->nproc; i++)
        if (proc_has(&p->proc[i], a))
            return proc_has(&p->proc[i], b);
    return false;
}

TensorId code_own(Program *p, Tensor t, BufferClass cls)
{
    t.buffer = program_add_buffer(p, (Buffer){.name = t.path, .cls = cls, .bytes = align_up(tensor_bytes(&t), BUFFER_ALIGN), .slots = 1});
    t.at = 0;
    return program_add_tensor(p, t);
}

Instr instr_new(OpKind op, const char *path)
{
    Instr in = {.op = op, .path = path, .key = path};
    instr_clear(&in);
    OpSpec defaults = op_spec(op, PHASE_FORWARD, path, NOWHERE);
    memcpy(in.attr, defaults.attr, sizeof in.attr);
    return in;
}

Instr instr_copy(const Program *p, TensorId src, TensorId dst)
{
    const Tensor *t = &p->tensor[src.i];
    Instr in = instr_new(OP_expand, t->path);
    in.narg = in.nout = 1;
    in.nfactor = t->rank;
    in.arg[0] = src;
    in.out[0] = dst;
    for (uint8_t x = 0; x < t->rank; x++) {
        in.extent[x] = t->axis[x].local;
        in.role[x] = '.';
        in.arg_factor[0][x] = in.out_factor[0][x] = x;
    }
    return in;
}

Instr instr_transpose(const Program *p, const char *path, TensorId src, TensorId dst, const uint8_t *order)
{
    Instr in = instr_copy(p, src, dst);
    in.op = OP_transpose;
    in.path = in.key = path;
    memset(in.attr, 0, sizeof in.attr);
    for (uint8_t x = 0; x < in.nfactor; x++)
        in.out_factor[0][x] = order[x];
    return in;
}

bool instr_reads(const Program *p, const Instr *in, BufferId b)
{
    for (int a = 0; a < in->narg; a++)
        if (has_tensor(in->arg[a]) && buffer_of(p, in->arg[a]).i == b.i)
            return true;
    return false;
}

bool instr_writes(const Program *p, const Instr *in, BufferId b)
{
    for (int k = 0; k < in->nout; k++)
        if (has_tensor(in->out[k]) && buffer_of(p, in->out[k]).i == b.i)
            return true;
    return false;
}

bool sums_gradients(const Program *p, uint32_t i)
{
    const Instr *in = &p->instr[i];
    return op_info[in->op].flags & OPF_COMM && in->narg > 0 && in->nout > 0 && p->buffer[buffer_of(p, in->out[0]).i].cls == CLASS_gradients;
}

/* ---- changing the list ---- */

/* Index of the procedure, made at its place in the order of kinds when missing. */
static uint32_t proc_make(Program *p, ProcKind kind)
{
    uint32_t i = 0;
    while (i < p->nproc && p->proc[i].kind < kind)
        i++;
    if (i < p->nproc && p->proc[i].kind == kind)
        return i;
    uint32_t at = i > 0 ? p->proc[i - 1].end : 0;
    PUSH(p->arena, p->proc, p->nproc, ((Proc){.kind = kind}));
    memmove(&p->proc[i + 1], &p->proc[i], sizeof(Proc) * (p->nproc - 1 - i));
    p->proc[i] = (Proc){.kind = kind, .first = at, .end = at};
    return i;
}

/* Insertions in order of place, ties in the order given. */
typedef struct Place { uint32_t before, given; } Place;

static int by_place(const void *x, const void *y)
{
    const Place *a = x, *b = y;
    if (a->before != b->before)
        return a->before < b->before ? -1 : 1;
    return (a->given > b->given) - (a->given < b->given);
}

static Place *sort_insertions(Arena *scratch, const Insertion *given, uint32_t n)
{
    Place *v = NEWN(scratch, Place, n);
    for (uint32_t i = 0; i < n; i++)
        v[i] = (Place){given[i].before, i};
    qsort(v, n, sizeof *v, by_place);
    return v;
}

void code_insert(Program *p, Arena *scratch, const Insertion *given, uint32_t n)
{
    if (n == 0)
        return;
    Place *v = sort_insertions(scratch, given, n);
    uint32_t *grown = NEWN(scratch, uint32_t, PROCS);
    for (uint32_t i = 0; i < n; i++) {
        grown[given[i].proc]++;
        (void)proc_make(p, given[i].proc);
    }
    uint32_t old = p->ninstr;
    for (uint32_t i = 0; i < n; i++)
        program_add_instr(p, given[i].instr);
    for (uint32_t to = old + n, from = old, left = n; left > 0;) {
        if (from > v[left - 1].before)
            p->instr[--to] = p->instr[--from];
        else
            p->instr[--to] = given[v[--left].given].instr;
    }
    uint32_t shift = 0;
    for (uint32_t i = 0; i < p->nproc; i++) {
        p->proc[i].first += shift;
        shift += grown[p->proc[i].kind];
        p->proc[i].end += shift;
    }
}

void code_compact(Program *p)
{
    uint32_t n = 0, from = 0;
    for (uint32_t i = 0; i < p->nproc; i++) {
        Proc *proc = &p->proc[i];
        uint32_t end = proc->end;
        assert(from == proc->first && "procedures cover the list in order");
        proc->first = n;
        for (; from < end; from++)
            if (p->instr[from].op != REMOVED)
                p->instr[n++] = p->instr[from];
        proc->end = n;
    }
    p->ninstr = n;
}

/* ---- sweeping ---- */

static void mark(uint8_t *used, TensorId t)
{
    if (has_tensor(t))
        used[t.i] = 1;
}

static uint8_t *tensors_named(const Program *p, Arena *scratch)
{
    uint8_t *used = NEWN(scratch, uint8_t, p->ntensor + 1);
    for (uint32_t i = 0; i < p->ninstr; i++) {
        for (int a = 0; a < p->instr[i].narg; a++)
            mark(used, p->instr[i].arg[a]);
        for (int k = 0; k < p->instr[i].nout; k++)
            mark(used, p->instr[i].out[k]);
        mark(used, p->instr[i].workspace);
    }
    for (uint32_t i = 0; i < p->noutput; i++)
        mark(used, p->output[i].tensor);
    for (uint32_t i = 0; i < p->nterm; i++)
        mark(used, p->term[i].tensor);
    for (uint32_t i = 0; i < p->nstate; i++) {
        const State *s = &p->state[i];
        const TensorId t[] = {s->weight, s->master, s->gradient, s->moment[0], s->moment[1], s->shard.master, s->shard.moment[0], s->shard.moment[1]};
        for (size_t k = 0; k < sizeof t / sizeof *t; k++)
            mark(used, t[k]);
    }
    mark(used, p->loss);
    mark(used, p->norm);
    return used;
}

static void renumber(const uint32_t *to, TensorId *t)
{
    if (has_tensor(*t))
        t->i = to[t->i];
}

static void renumber_all(Program *p, const uint32_t *to)
{
    for (uint32_t i = 0; i < p->ninstr; i++) {
        for (int a = 0; a < p->instr[i].narg; a++)
            renumber(to, &p->instr[i].arg[a]);
        for (int k = 0; k < p->instr[i].nout; k++)
            renumber(to, &p->instr[i].out[k]);
        renumber(to, &p->instr[i].workspace);
    }
    for (uint32_t i = 0; i < p->ninput; i++)
        renumber(to, &p->input[i].tensor);
    for (uint32_t i = 0; i < p->noutput; i++)
        renumber(to, &p->output[i].tensor);
    for (uint32_t i = 0; i < p->nterm; i++)
        renumber(to, &p->term[i].tensor);
    for (uint32_t i = 0; i < p->nstate; i++) {
        State *s = &p->state[i];
        renumber(to, &s->weight);
        renumber(to, &s->master);
        renumber(to, &s->gradient);
        renumber(to, &s->moment[0]);
        renumber(to, &s->moment[1]);
        renumber(to, &s->shard.master);
        renumber(to, &s->shard.moment[0]);
        renumber(to, &s->shard.moment[1]);
    }
    renumber(to, &p->loss);
    renumber(to, &p->norm);
}

/* An input may have lost its last reader. */
static void forget_inputs(Program *p, const uint8_t *used)
{
    for (uint32_t i = 0; i < p->ninput; i++)
        if (has_tensor(p->input[i].tensor) && !used[p->input[i].tensor.i])
            p->input[i].tensor = NO_TENSOR;
}

void code_sweep(Program *p, Arena *scratch)
{
    uint8_t *used = tensors_named(p, scratch);
    forget_inputs(p, used);
    uint8_t *filled = NEWN(scratch, uint8_t, p->nbuffer + 1);
    uint32_t *to = NEWN(scratch, uint32_t, p->ntensor + 1), *into = NEWN(scratch, uint32_t, p->nbuffer + 1);
    uint32_t n = 0, nbuffer = 0;
    for (uint32_t t = 0; t < p->ntensor; t++) {
        if (!used[t])
            continue;
        filled[p->tensor[t].buffer.i] = 1;
        to[t] = n;
        p->tensor[n++] = p->tensor[t];
    }
    p->ntensor = n;
    for (uint32_t b = 0; b < p->nbuffer; b++) {
        into[b] = nbuffer;
        if (filled[b])
            p->buffer[nbuffer++] = p->buffer[b];
    }
    p->nbuffer = nbuffer;
    for (uint32_t t = 0; t < n; t++)
        p->tensor[t].buffer.i = into[p->tensor[t].buffer.i];
    renumber_all(p, to);
}
