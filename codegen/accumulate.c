/* Additions that become accumulation.
 *
 * accumulate_add(): in v = a + f(..), f adds its result into a's memory, so v is
 * that memory and the addition is gone.
 *
 * accumulate_gradients(): a weight's gradient is summed over micro-batches.  Its
 * first writer overwrites in the first one and adds in the others, the writers of
 * further uses (tied weights) always add.  A writer that cannot add writes a
 * working tensor, and a copy adds that. */
#include "codegen/pass.h"

#include <string.h>

static int result_on(const Program *p, const Instr *in, BufferId b)
{
    int k = 0;
    while (!has_tensor(in->out[k]) || buffer_of(p, in->out[k]).i != b.i)
        k++;
    return k;
}

static bool can_add(const Instr *in)
{
    return op_info[in->op].flags & OPF_ACCUM && in->acc != ACC_AFTER_FIRST;
}

static bool covers_buffer(const Program *p, TensorId t)
{
    const Tensor *x = &p->tensor[t.i];
    return x->at == 0 && align_up(tensor_bytes(x), BUFFER_ALIGN) == p->buffer[x->buffer.i].bytes;
}

/* ---- v = a + f(..) ---- */

/* From instruction f on, b is used by `only` and by nothing else. */
static bool used_only_by(const Uses *u, BufferId b, uint32_t f, uint32_t only)
{
    for (uint32_t k = uses_from(u, b, f); k < u->of[b.i].ninstr; k++) {
        uint32_t i = u->of[b.i].instr[k];
        const Instr *in = &u->p->instr[i];
        bool uses = in->op != REMOVED && (instr_reads(u->p, in, b) || instr_writes(u->p, in, b));
        if (i != only && uses)
            return false;
    }
    return true;
}

/* When: f's result is used only in this addition; f can add, in this procedure;
 * from f on `sum` is used by this addition alone (so it was made before f); neither
 * is kept; shapes and types are the same, axis by axis. */
static bool add_into(Uses *u, uint32_t i, TensorId sum, TensorId term)
{
    Program *p = u->p;
    BufferId s = buffer_of(p, sum), t = buffer_of(p, term), v = buffer_of(p, p->instr[i].out[0]);
    uint32_t f = uses_writer(u, t);
    if (s.i == t.i || !uses_free(u, s) || !uses_free(u, t) || u->kept[v.i] || f == NOTHING)
        return false;
    if (!can_add(&p->instr[f]) || !same_procedure(p, f, i))
        return false;
    if (!used_only_by(u, s, f, i) || !used_only_by(u, t, f + 1, i))
        return false;
    if (!covers_buffer(p, sum) || !covers_buffer(p, term))
        return false;
    DType made = p->tensor[p->instr[i].out[0].i].dtype;
    if (p->tensor[sum.i].dtype != made || p->tensor[term.i].dtype != made)
        return false;
    Instr *in = &p->instr[f];
    in->acc = ACC_YES;
    in->acc_out |= (uint8_t)(1u << result_on(p, in, t));
    p->instr[i].op = REMOVED;
    uses_merge(u, t, s);
    uses_merge(u, v, s);
    return true;
}

bool accumulate_add(Uses *u, uint32_t i)
{
    const Instr *add = &u->p->instr[i];
    if (add->acc != ACC_NO || memcmp(add->arg_factor[0], add->arg_factor[1], MAX_RANK) != 0)
        return false;
    return add_into(u, i, add->arg[0], add->arg[1]) || add_into(u, i, add->arg[1], add->arg[0]);
}

/* ---- weight gradients ---- */

/* By buffer: how many states have their gradient on it. */
static uint32_t *gradients_on(const Program *p, Arena *scratch)
{
    uint32_t *n = NEWN(scratch, uint32_t, p->nbuffer + 1);
    for (uint32_t i = 0; i < p->nstate; i++)
        if (has_tensor(p->state[i].gradient))
            n[buffer_of(p, p->state[i].gradient).i]++;
    return n;
}

/* When: the memory holds this gradient alone, nothing reads it, and its first
 * writer can add (and adds nothing else at another rhythm). */
static bool accumulates_itself(const Uses *u, TensorId t, const uint32_t *gradients)
{
    BufferId b = buffer_of(u->p, t);
    uint32_t w = uses_writer(u, b);
    if (u->kept[b.i] || w == NOTHING || uses_reads(u, b) > 0 || gradients[b.i] > 1 || !covers_buffer(u->p, t))
        return false;
    const Instr *in = &u->p->instr[w];
    return op_info[in->op].flags & OPF_ACCUM && in->acc != ACC_YES && proc_has(proc_find(u->p, PROC_backward), w);
}

static TensorId gradient_tensor(Program *p, const State *s)
{
    Tensor t = p->tensor[s->gradient.i];
    t.role = ROLE_WEIGHT_GRADIENT;
    return code_own(p, t, CLASS_gradients);
}

static Insertion added_by_copy(const Uses *u, TensorId from, TensorId gradient)
{
    Program *p = u->p;
    Insertion x = {.proc = PROC_backward, .instr = instr_copy(p, from, gradient)};
    x.instr.acc = ACC_AFTER_FIRST;
    x.instr.acc_out = 1;
    const Proc *back = proc_find(p, PROC_backward);
    uint32_t last = uses_last_write(u, buffer_of(p, from), back->end);
    x.before = last == NOTHING || last < back->first ? back->first : last + 1;
    return x;
}

void accumulate_gradients(Program *p, Arena *scratch)
{
    Uses u = uses_read(p, scratch);
    Insertion *ins = NULL;
    uint32_t nins = 0;
    uint32_t *gradients = gradients_on(p, scratch);
    bool *direct = NEWN(scratch, bool, p->nstate + 1);
    for (uint32_t i = 0; i < p->nstate; i++)
        direct[i] = has_tensor(p->state[i].gradient) && accumulates_itself(&u, p->state[i].gradient, gradients);
    for (uint32_t i = 0; i < p->nstate; i++) {
        State *s = &p->state[i];
        if (!has_tensor(s->gradient))
            continue;
        if (direct[i]) {
            BufferId b = buffer_of(p, s->gradient);
            Instr *first = &p->instr[uses_writer(&u, b)];
            first->acc = ACC_AFTER_FIRST;
            first->acc_out |= (uint8_t)(1u << result_on(p, first, b));
            p->buffer[b.i].cls = CLASS_gradients;
            continue;
        }
        TensorId from = s->gradient;
        s->gradient = gradient_tensor(p, s);
        PUSH(scratch, ins, nins, added_by_copy(&u, from, s->gradient));
    }
    code_insert(p, scratch, ins, nins);
}
