/* Crew: what starting ranks as threads and as processes has in common. */
#include <stdio.h>

#include "runtime/executor.h"
#include "runtime/ranks.h"

/* What is checked is the same for all ranks. */
Status crew_check(Arena *a, const Crew *c)
{
    return run_check(a, c->program[0], c->o);
}

Status crew_world(const Crew *c, WorldFiles *f)
{
    int64_t part[WORLD_RANKS];
    bool read = executor_or_cpu(c->o->executor)->peers_read;
    for (uint32_t i = 0; i < c->n && i < WORLD_RANKS; i++)
        part[i] = read ? c->program[i]->map_bytes[PART_SHARED] : 1;      /* a file of nothing cannot be mapped */
    return world_create(f, (int)c->n, part, ranks_groups(c->program, c->n));
}

void crew_explain(const Crew *c, const World *w)
{
    int rank = world_aborted(w);
    int64_t i = rank < 0 ? -1 : world_instr(w, rank);
    if (i < 0 || i >= c->program[rank]->ninstr)
        return;
    const Instr *in = &c->program[rank]->instr[i];
    fprintf(stderr, "note: instruction %lld of rank %d is %s '%s'\n", (long long)i, rank, op_info[in->op].name, in->path);
}
