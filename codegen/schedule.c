/* Schedule: the calls of one step.  Labels are counted over all micro-batches first,
 * and over ranks; then every micro-batch runs forward and backward; then the loss is
 * summed over ranks and the weights are updated.  A program without a loss has no
 * steps: its evaluate procedure is called from outside.
 *
 * A stage of a pipeline goes ahead: it runs some micro-batches forward before the
 * first backward, then one of each in turn, then the backwards that are left.
 *   1f1b    ahead by the stages that follow (PipeDream-Flush; Narayanan et al. 2021)
 *   gpipe   ahead by all (Huang et al. 2019)
 * Micro-batch k works in slot k mod slots of what is saved for backward. */
#include "codegen/pass.h"

#include <string.h>

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t ahead(const Lowering *lw)
{
    uint32_t m = (uint32_t)lw->plan->microbatches, after = lw->layout.nstages - 1 - lw->stage;
    bool all = strcmp(lw->plan->schedule, "gpipe") == 0 && lw->layout.nstages > 1;
    return all ? m - 1 : least(m - 1, after);
}

uint32_t schedule_slots(const Lowering *lw)
{
    return ahead(lw) + 1;
}

static void call(Lowering *lw, ProcKind kind, uint32_t micro)
{
    Program *p = lw->p;
    const Proc *proc = proc_find(p, kind);
    if (proc)
        PUSH(p->arena, p->call, p->ncall, ((Call){.proc = (uint32_t)(proc - p->proc), .micro = micro, .slot = micro % schedule_slots(lw)}));
}

void schedule(Lowering *lw)
{
    uint32_t m = (uint32_t)lw->p->microbatches, early = ahead(lw);
    if (!has_value(lw->g->loss))
        return;
    for (uint32_t i = 0; i < m; i++)
        call(lw, PROC_begin, i);
    call(lw, PROC_agree, 0);
    for (uint32_t i = 0; i < m + early; i++) {
        if (i < m)
            call(lw, PROC_forward, i);
        if (i >= early)
            call(lw, PROC_backward, i - early);
    }
    call(lw, PROC_total, 0);
    call(lw, PROC_update, 0);
}
