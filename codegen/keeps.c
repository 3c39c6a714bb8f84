/* Keeps: what a plan's memory is under a runtime that keeps other values for backward
 * than prun does, or does not map exactly what it needs. */
#include "codegen/simulate.h"

static int64_t slots_of(const Program *p)
{
    int64_t n = 1;
    for (uint32_t c = 0; c < p->ncall; c++)
        n = p->call[c].slot >= n ? p->call[c].slot + 1 : n;
    return n;
}

/* Bytes kept beyond ours; each buffer counts once. */
static int64_t kept_beyond(const Program *p, const Profile *profile)
{
    int64_t extra = 0, slots = slots_of(p);
    for (uint32_t k = 0; k < p->nproc; k++)
        for (uint32_t i = p->proc[k].first; i < p->proc[k].end && p->proc[k].kind == PROC_forward; i++) {
            const Instr *in = &p->instr[i];
            const Keep *keep = profile_keep(profile, in->op);
            if (!keep || in->nout == 0 || !has_tensor(in->out[0]))
                continue;
            const Tensor *t = &p->tensor[in->out[0].i];
            const Buffer *b = &p->buffer[t->buffer.i];
            int64_t ours = b->cls == CLASS_saved ? tensor_bytes(t) * b->slots : 0;
            extra += (int64_t)((double)tensor_bytes(t) * (double)slots * keep->part) - ours;
        }
    return extra;
}

/* Gradients in their weights' own type, where those that are summed have another. */
static int64_t held_bytes(const Program *p, const Profile *profile)
{
    int64_t bytes = 0;
    for (uint32_t i = 0; i < p->nstate && profile->holds_gradients; i++) {
        const State *s = &p->state[i];
        if (has_tensor(s->gradient) && p->tensor[s->gradient.i].dtype != p->tensor[s->weight.i].dtype)
            bytes += tensor_bytes(&p->tensor[s->weight.i]);
    }
    return bytes;
}

/* Whether the host waits for messages of other stages, and so gets less far ahead of its device. */
static bool has_messages(const Program *p)
{
    for (uint32_t i = 0; i < p->ninstr; i++)
        if (p->instr[i].op == OP_send || p->instr[i].op == OP_recv)
            return true;
    return false;
}

/* Gathered values of all micro-batches in flight that were freed, but not for the device: its host is so far
 * ahead that the next ones are asked for before it has read these. */
static int64_t freed_late(const Program *p, const Profile *profile)
{
    if (profile->stall > 0 && p->nranks > (uint64_t)profile->stall_above)
        return 0;
    int64_t bytes = 0;
    uint64_t within = has_messages(p) ? (uint64_t)profile->late_within : UINT64_MAX;
    for (uint32_t k = 0; k < p->nproc; k++)
        for (uint32_t i = p->proc[k].first; i < p->proc[k].end && p->proc[k].kind == PROC_forward; i++) {
            const Instr *in = &p->instr[i];
            if (in->op == OP_all_gather && p->group[in->group].n <= within)
                bytes += tensor_bytes(&p->tensor[in->out[0].i]);
        }
    return (int64_t)((double)(bytes * slots_of(p)) * profile->late_gathers + 0.5);
}

/* The f32 copies of gradients that a step begins with: of the part of the weights that this rank updates. */
static int64_t converted_bytes(const Program *p, const Profile *profile)
{
    int64_t elements = 0;
    for (uint32_t i = 0; i < p->nstate && profile->converts_gradients; i++) {
        const State *s = &p->state[i];
        if (!has_tensor(s->gradient) || p->tensor[s->gradient.i].dtype == DT_f32)
            continue;
        elements += s->sharded ? s->shard.end - s->shard.first : tensor_elements(&p->tensor[s->weight.i]);
    }
    return elements * 4;
}

/* `late`: what is freed late, which an allocator that runs short takes back first. */
static int64_t bytes_under(const Program *p, const Profile *profile, double pad, int64_t late)
{
    int64_t states = 0, all = program_map_bytes(p);
    for (uint32_t i = 0; i < p->nbuffer; i++)
        if (p->buffer[i].cls <= CLASS_moments)
            states += p->buffer[i].bytes * p->buffer[i].slots;
    int64_t others = all - states + kept_beyond(p, profile) + late, copies = converted_bytes(p, profile);
    int64_t padded = (int64_t)((double)(others > 0 ? others : 0) * pad + 0.5);
    return states + held_bytes(p, profile) + (padded > copies ? padded : copies) + profile->reserve;
}

int64_t profile_bytes(const Program *p, const Profile *profile)
{
    return bytes_under(p, profile, profile->pad, 0);
}

int64_t profile_allocated(const Program *p, const Profile *profile)
{
    return bytes_under(p, profile, 1, freed_late(p, profile));
}
