/* Schedule: the calls of one step.  Labels are counted over all micro-batches
 * first, and over ranks; then each micro-batch runs forward and backward in turn,
 * then the loss is summed over ranks and the weights are updated.
 * One stage keeps one micro-batch in flight, so every call has slot 0.  A program
 * without a loss has no steps: its evaluate procedure is called from outside. */
#include "codegen/pass.h"

static void call(Program *p, ProcKind kind, uint32_t micro)
{
    const Proc *proc = proc_find(p, kind);
    if (proc)
        PUSH(p->arena, p->call, p->ncall, ((Call){.proc = (uint32_t)(proc - p->proc), .micro = micro, .slot = 0}));
}

void schedule(Program *p)
{
    uint32_t m = (uint32_t)p->microbatches;
    if (!proc_find(p, PROC_forward))
        return;
    for (uint32_t i = 0; i < m; i++)
        call(p, PROC_begin, i);
    call(p, PROC_agree, 0);
    for (uint32_t i = 0; i < m; i++) {
        call(p, PROC_forward, i);
        call(p, PROC_backward, i);
    }
    call(p, PROC_total, 0);
    call(p, PROC_update, 0);
}
