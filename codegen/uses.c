/* Who uses which buffer, kept up to date while patterns rewrite instructions. */
#include "codegen/pass.h"

#include <string.h>

/* Insert into a sorted list, once. */
static void use(Uses *u, BufferId b, uint32_t instr)
{
    UseList *l = &u->of[b.i];
    uint32_t k = l->ninstr;
    while (k > 0 && l->instr[k - 1] > instr)
        k--;
    if (k > 0 && l->instr[k - 1] == instr)
        return;
    PUSH(u->arena, l->instr, l->ninstr, instr);
    memmove(&l->instr[k + 1], &l->instr[k], sizeof *l->instr * (l->ninstr - 1 - k));
    l->instr[k] = instr;
}

void uses_add(Uses *u, uint32_t i)
{
    const Instr *in = &u->p->instr[i];
    for (int a = 0; a < in->narg; a++)
        if (has_tensor(in->arg[a]))
            use(u, buffer_of(u->p, in->arg[a]), i);
    for (int k = 0; k < in->nout; k++)
        if (has_tensor(in->out[k]))
            use(u, buffer_of(u->p, in->out[k]), i);
}

Uses uses_read(Program *p, Arena *a)
{
    Uses u = {.p = p, .arena = a, .of = NEWN(a, UseList, p->nbuffer + 1), .kept = NEWN(a, bool, p->nbuffer + 1), .gradient = NEWN(a, bool, p->nbuffer + 1)};
    for (uint32_t t = 0; t < p->ntensor; t++) {
        UseList *l = &u.of[p->tensor[t].buffer.i];
        PUSH(a, l->tensor, l->ntensor, t);
    }
    for (uint32_t i = 0; i < p->ninstr; i++)
        if (p->instr[i].op != REMOVED)
            uses_add(&u, i);
    for (uint32_t b = 0; b < p->nbuffer; b++)
        u.kept[b] = p->buffer[b].cls != CLASS_working;
    for (uint32_t o = 0; o < p->noutput; o++)
        if (has_tensor(p->output[o].tensor))
            u.kept[buffer_of(p, p->output[o].tensor).i] = true;
    for (uint32_t s = 0; s < p->nstate; s++)
        if (has_tensor(p->state[s].gradient))
            u.gradient[buffer_of(p, p->state[s].gradient).i] = true;
    return u;
}

void uses_merge(Uses *u, BufferId from, BufferId into)
{
    UseList *l = &u->of[from.i], *to = &u->of[into.i];
    for (uint32_t k = 0; k < l->ntensor; k++) {
        u->p->tensor[l->tensor[k]].buffer = into;
        PUSH(u->arena, to->tensor, to->ntensor, l->tensor[k]);
    }
    for (uint32_t k = 0; k < l->ninstr; k++)
        use(u, into, l->instr[k]);
    u->kept[into.i] |= u->kept[from.i];
    u->gradient[into.i] |= u->gradient[from.i];
    *l = (UseList){0};
}

bool uses_free(const Uses *u, BufferId b)
{
    return !u->kept[b.i] && !u->gradient[b.i];
}

static bool live(const Uses *u, uint32_t i)
{
    return u->p->instr[i].op != REMOVED;
}

uint32_t uses_reads(const Uses *u, BufferId b)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < u->of[b.i].ninstr; k++) {
        uint32_t i = u->of[b.i].instr[k];
        n += live(u, i) && instr_reads(u->p, &u->p->instr[i], b);
    }
    return n;
}

uint32_t uses_from(const Uses *u, BufferId b, uint32_t instr)
{
    const UseList *l = &u->of[b.i];
    uint32_t lo = 0, hi = l->ninstr;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (l->instr[mid] < instr)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

uint32_t uses_next_read(const Uses *u, BufferId b, uint32_t after)
{
    for (uint32_t k = after == NOTHING ? 0 : uses_from(u, b, after + 1); k < u->of[b.i].ninstr; k++) {
        uint32_t i = u->of[b.i].instr[k];
        if (live(u, i) && instr_reads(u->p, &u->p->instr[i], b))
            return i;
    }
    return NOTHING;
}

uint32_t uses_writer(const Uses *u, BufferId b)
{
    for (uint32_t k = 0; k < u->of[b.i].ninstr; k++) {
        uint32_t i = u->of[b.i].instr[k];
        if (live(u, i) && instr_writes(u->p, &u->p->instr[i], b))
            return i;
    }
    return NOTHING;
}

uint32_t uses_last_write(const Uses *u, BufferId b, uint32_t before)
{
    for (uint32_t k = uses_from(u, b, before); k-- > 0;) {
        uint32_t i = u->of[b.i].instr[k];
        if (live(u, i) && instr_writes(u->p, &u->p->instr[i], b))
            return i;
    }
    return NOTHING;
}

uint32_t uses_last(const Uses *u, BufferId b)
{
    for (uint32_t k = u->of[b.i].ninstr; k-- > 0;) {
        uint32_t i = u->of[b.i].instr[k];
        const Instr *in = &u->p->instr[i];
        if (live(u, i) && (instr_reads(u->p, in, b) || instr_writes(u->p, in, b)))
            return i;
    }
    return NOTHING;
}

/* ---- dead instructions ---- */

/* From the last instruction back: one lives when it writes what is kept or what a
 * later living one reads.  Buffers have one value each, or sums that go on. */
static bool wanted(const Uses *u, const bool *read, TensorId t)
{
    if (!has_tensor(t))
        return false;
    BufferId b = buffer_of(u->p, t);
    return !uses_free(u, b) || read[b.i];
}

/* Communication stays: peers take part in it. */
void uses_remove_dead(Uses *u)
{
    Program *p = u->p;
    bool *read = NEWN(u->arena, bool, p->nbuffer + 1);
    for (uint32_t i = p->ninstr; i-- > 0;) {
        Instr *in = &p->instr[i];
        if (in->op == REMOVED)
            continue;
        bool lives = op_info[in->op].flags & OPF_COMM;
        for (int k = 0; k < in->nout; k++)
            lives |= wanted(u, read, in->out[k]);
        if (!lives) {
            in->op = REMOVED;
            continue;
        }
        for (int k = 1; k < in->nout; k++)
            if (!wanted(u, read, in->out[k]))
                in->out[k] = NO_TENSOR;
        for (int a = 0; a < in->narg; a++)
            if (has_tensor(in->arg[a]))
                read[buffer_of(p, in->arg[a]).i] = true;
    }
}
