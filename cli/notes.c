/* Notes: see notes.h. */
#include "cli/notes.h"

#include "kernels/forms.h"

static bool is_used(const Cluster *cl, const Plan *p, uint32_t kind)
{
    for (uint32_t i = 0; i < p->ndevices; i++)
        if (cl->kind[p->devices[i]] == kind)
            return true;
    return false;
}

static void note_perfect(Loaded *l, const Device *d)
{
    Diag *note = diag_tell(l->ds, d->at, "device '%s' has no 'efficiency', so all it computes is taken to reach its whole peak, and predicted times are too short", d->name);
    diag_help(l->ds, note, "'prun calibrate' measures a machine; or say what part of the peak a matmul of some size reaches, for instance 'efficiency = [[1 GFLOP, 0.6]]'");
}

/* On the devices of this kind. */
static void note_plain_forms(Loaded *l, const Plan *p, const Programs *programs, uint32_t kind)
{
    const Device *d = &l->cluster->device[kind];
    const Program **mine = NEWN(l->ir, const Program *, programs->n + 1);
    for (uint32_t i = 0; i < programs->n; i++)
        mine[i] = l->cluster->kind[p->devices[i]] == kind ? programs->rank[i] : NULL;
    const char *list = forms_plain(l->ir, mine, programs->n, ISA_V2);
    if (!*list)
        return;
    Diag *note = diag_tell(l->ds, NOWHERE, "on '%s' these run in their plain form, which is slow and of one thread: %s", d->name, list);
    if (d->nof_op == 0)
        diag_help(l->ds, note, "predicted times do not know it: 'prun calibrate' measures each op for the planner");
}

void note_assumptions(Loaded *l, const Plan *p, const Programs *programs)
{
    for (uint32_t k = 0; k < l->cluster->ndevice; k++) {
        const Device *d = &l->cluster->device[k];
        if (!is_used(l->cluster, p, k))
            continue;
        if (d->efficiency.npoint == 0 && d->nof_op == 0)
            note_perfect(l, d);
        if (d->backend == BACKEND_CPU)
            note_plain_forms(l, p, programs, k);
    }
    diags_flush(l->ds, stderr);
}
