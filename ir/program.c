/* Building a Program, and what is computed from its parts alone. */
#include "ir/program.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

Program *program_new(Arena *a)
{
    Program *p = NEW(a, Program);
    p->arena = a;
    p->loss = NO_TENSOR;
    p->norm = NO_TENSOR;
    p->microbatches = 1;
    p->threads = 1;
    p->nranks = 1;
    return p;
}

static Arena *lists_of(const Program *p)
{
    return p->lists ? p->lists : p->arena;
}

BufferId program_add_buffer(Program *p, Buffer b)
{
    PUSH(lists_of(p), p->buffer, p->nbuffer, b);
    return (BufferId){p->nbuffer - 1};
}

TensorId program_add_tensor(Program *p, Tensor t)
{
    PUSH(lists_of(p), p->tensor, p->ntensor, t);
    return (TensorId){p->ntensor - 1};
}

uint32_t program_add_instr(Program *p, Instr in)
{
    PUSH(lists_of(p), p->instr, p->ninstr, in);
    return p->ninstr - 1;
}

void program_settle(Program *p)
{
    p->buffer = COPYN(p->arena, p->buffer, p->nbuffer);
    p->tensor = COPYN(p->arena, p->tensor, p->ntensor);
    p->instr = COPYN(p->arena, p->instr, p->ninstr);
    p->lists = NULL;
}

int64_t program_map_bytes(const Program *p)
{
    return p->map_bytes[PART_PRIVATE] + p->map_bytes[PART_SHARED];
}

const char *buffer_class_text(BufferClass c)
{
    static const char *const text[] = {
#define X(name, text) text,
        BUFFER_CLASS_LIST(X)
#undef X
    };
    return text[c];
}

const char *stream_name(unsigned i)
{
    static const char *const name[STREAMS] = {
#define X(name) #name,
        STREAM_LIST(X)
#undef X
    };
    return name[i];
}

bool instr_runs(const Instr *in, const Program *p, const Call *c)
{
    return in->when == WHEN_ALWAYS || c->micro + (int64_t)1 == p->microbatches;
}

static bool makes(const Program *p, const Proc *proc, BufferId b)
{
    for (uint32_t i = proc->first; i < proc->end; i++)
        for (uint8_t k = 0; k < p->instr[i].nout; k++) {
            TensorId out = p->instr[i].out[k];
            if (has_tensor(out) && p->tensor[out.i].buffer.i == b.i)
                return true;
        }
    return false;
}

SentBefore program_sent_before(const Program *p, Arena *a)
{
    SentBefore s = {.first = NEWN(a, uint32_t, p->nproc + 1)};
    uint32_t n = 0;
    for (uint32_t k = 0; k < p->nproc; k++) {
        const Proc *proc = &p->proc[k];
        for (uint32_t i = 0; i < p->ninstr; i++) {
            bool own = i >= proc->first && i < proc->end;
            if (p->instr[i].op == OP_send && (own || makes(p, proc, p->tensor[p->instr[i].arg[0].i].buffer)))
                PUSH(a, s.instr, n, i);
        }
        s.first[k + 1] = n;
    }
    return s;
}

int64_t tensor_elements(const Tensor *t)
{
    int64_t n = 1;
    for (int x = 0; x < t->rank; x++)
        n *= t->axis[x].local;
    return n;
}

int64_t tensor_bytes(const Tensor *t)
{
    return tensor_elements(t) * dtype_bytes(t->dtype);
}

const Attr *instr_attr(const Instr *in, const char *name)
{
    int i = op_attr_index(in->op, name);
    assert(i >= 0);
    return &in->attr[i];
}

/* FNV-1a, 64 bits (Fowler, Noll, Vo), over the printed form. */
uint64_t program_hash(const Program *p)
{
    Arena *a = arena_new("hash");
    TextStream s;
    size_t n;
    text_stream_open(&s);
    program_print(s.f, p);
    const char *text = text_stream_take(&s, a, &n);
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)text[i]) * 1099511628211u;
    arena_free(a);
    return h;
}

bool state_is_rounded(const Program *p, const State *s)
{
    bool stepped = has_tensor(s->gradient) && p->optimizer.kind != OPTIMIZER_NONE;
    return stepped && dtype_bytes(p->precision.master) > dtype_bytes(p->tensor[s->weight.i].dtype);
}
