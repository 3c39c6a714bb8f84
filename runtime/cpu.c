/* The cpu: memory of this process, and kernels that threads execute. */
#include <string.h>

#include "base/text.h"
#include "kernels/forms.h"
#include "runtime/executor.h"
#include "runtime/courier.h"
#include "runtime/guard.h"

static KernelForm cpu_form(const Instr *in, const Program *p, Isa isa)
{
    Kernel k = kernel_of(in, p, isa);
    return !k ? KERNEL_NONE : k == kernel_ref(in->op) ? KERNEL_PLAIN : KERNEL_OWN;
}

/* ---- binding ---- */

static void bind_tensor(const Rank *r, TensorId id, const Tensor **shape, void **at)
{
    *shape = has_tensor(id) ? &r->program->tensor[id.i] : NULL;
    *at = has_tensor(id) ? rank_at(r, id, 0, 0) : NULL;
}

static void bind_instr(Rank *r, uint32_t i)
{
    const Instr *in = &r->program->instr[i];
    KCall *c = &r->call[i];
    c->in = in;
    c->team = r->team;
    c->step = &r->step;
    for (uint32_t k = 0; k < in->narg; k++)
        bind_tensor(r, in->arg[k], &c->argt[k], &c->arg[k]);
    for (uint32_t k = 0; k < in->nout; k++)
        bind_tensor(r, in->out[k], &c->outt[k], &c->out[k]);
    c->work = has_tensor(in->workspace) ? rank_at(r, in->workspace, 0, 0) : NULL;
}

/* The first that is missing is said: the others are likely to be of its kind. */
static Status find_kernels(Rank *r)
{
    const Program *p = r->program;
    for (uint32_t i = 0; i < p->ninstr; i++) {
        const Instr *in = &p->instr[i];
        r->kernel[i] = kernel_of(in, p, r->isa);
        if (r->kernel[i] || communicates(in))
            continue;
        TensorId t = in->narg && has_tensor(in->arg[0]) ? in->arg[0] : in->out[0];
        fprintf(stderr, "error: %s: the cpu backend cannot run op '%s' on %s\n", in->path, op_info[in->op].name, dtype_name(p->tensor[t.i].dtype));
        return ERR_REJECT;
    }
    return OK;
}

static Status cpu_open(Rank *r)
{
    r->call = NEWN(r->arena, KCall, r->program->ninstr);
    r->kernel = NEWN(r->arena, Kernel, r->program->ninstr);
    TRY(find_kernels(r));
    return map_open(&r->map, r->program->map_bytes[PART_PRIVATE]);
}

static Status cpu_join(Rank *r)
{
    r->shared = r->world ? world_part(r->world, (int)r->program->rank) : NULL;
    for (uint32_t i = 0; i < r->program->ninstr; i++)
        bind_instr(r, i);
    guard_open(r);
    return r->end && r->program->comm_threads > 0 ? courier_open(r) : OK;
}

static Status cpu_ready(Rank *r)
{
    (void)r;
    return OK;
}

static void cpu_close(Rank *r)
{
    courier_close(r);
    guard_close(r);
    map_close(&r->map);
}

/* ---- memory that is here ---- */

static Status cpu_settle(const Rank *r)
{
    (void)r;
    return OK;
}

static void *cpu_edit(const Rank *r, void *at, int64_t bytes)
{
    (void)r, (void)bytes;
    return at;
}

static Status cpu_look(const Rank *r, const void *at, int64_t bytes, const void **out)
{
    (void)r, (void)bytes;
    *out = at;
    return OK;
}

static void cpu_zero(const Rank *r, void *at, int64_t bytes)
{
    (void)r;
    memset(at, 0, (size_t)bytes);
}

static const char *cpu_memory(Arena *a, const Rank *r)
{
    return arena_printf(a, "map %s (%s in huge pages)", text_bytes(a, r->map.bytes), text_bytes(a, r->map.huge));
}

static const char *cpu_forms_note(Arena *a, const Rank *r)
{
    const char *list = forms_plain(a, &r->program, 1, r->isa);
    return *list ? arena_printf(a, "in their plain form here, which is slow and of one thread: %s; 'prun calibrate' measures that for the planner", list) : NULL;
}

static const char *cpu_absent(void)
{
    return NULL;
}

static const char *cpu_about(Arena *a)
{
    return arena_printf(a, "%s, kernels for %s", gemm_providers(), isa_name(isa_best()));
}

const Executor executor_cpu = {
    .name = "cpu",
    .absent = cpu_absent,
    .about = cpu_about,
    .form = cpu_form,
    .peers_read = true,
    .measures_every = 1,
    .open = cpu_open,
    .join = cpu_join,
    .ready = cpu_ready,
    .close = cpu_close,
    .calls = calls_run,
    .settle = cpu_settle,
    .edit = cpu_edit,
    .look = cpu_look,
    .zero = cpu_zero,
    .memory = cpu_memory,
    .forms_note = cpu_forms_note,
};
