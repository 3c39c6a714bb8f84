/* comm_far: the cases of communication among ranks that MPI started, or torchrun, whose variables it is given:
 *
 *     mpirun -n N comm_far
 *
 * Rank 0 prints a line for each case, as tests do. */
#include <stdio.h>

#include "runtime/comm/net.h"
#include "runtime/plugin.h"
#include "tests/unit/comm_cases.h"

/* least, most: ranks that it takes */
typedef struct Case { const char *name; RankFn fn; int64_t part; int least, most, team; } Case;

static const Case cases[] = {
    {"every collective, type and size", comm_everything, COMM_PART, 1, MOST_RANKS, 0},
    {"the same with teams", comm_everything, COMM_PART, 1, 2, 2},
    {"random steps of overlapping groups", comm_at_random, COMM_PART, 1, MOST_RANKS, 0},
    {"huge messages", comm_huge_ones, COMM_HUGE_PART, 2, 2, 2},
    {"more letters than are kept", comm_many_letters, COMM_PART, 2, MOST_RANKS, 0},
    {"all send before any receives", comm_all_send_first, COMM_PART, 2, MOST_RANKS, 0},
};

/* Letters are of two ranks. */
static bool takes_part(const Case *c, int rank)
{
    return c->fn != comm_many_letters || rank < 2;
}

static int run_case(Ranks *r, const Case *c, int rank)
{
    Arena *a = arena_new("case");
    Team *team = c->team > 0 ? team_new(c->team) : NULL;
    Endpoint *e = endpoint_open(a, r->world, rank, team, isa_best());
    int64_t bad = takes_part(c, rank) ? c->fn(r, a, e) : 0;
    int all[WORLD_RANKS];
    for (int i = 0; i < r->n; i++)
        all[i] = i;
    if (e->comm->all_reduce(e->comm->group(e, a, 0, all, r->n), &bad, &bad, 1, DT_i64, REDUCE_MAX) != OK)
        bad = 1;
    if (rank == 0)
        printf("%s %d ranks that share no memory: %s\n", bad ? "not ok" : "ok", r->n, c->name);
    e->comm->close(e);
    team_free(team);
    arena_free(a);
    return bad != 0;
}

int main(void)
{
    Arena *a = arena_new("test");
    Ranks r = {0};
    const char *why = "";
    const Plugin *p = getenv("MASTER_ADDR") ? NULL : plugin_load(a, "mpi", &why);
    const Net *net = p ? p->net : &net_tcp;
    int rank, bad = 0;
    if (*why) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    if (!net->open(&rank, &r.n) || world_join(a, net, rank, r.n, &r.world) != OK || world_take_part(r.world, rank, COMM_HUGE_PART) != OK)
        return 1;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        r.part = cases[i].part;
        if (r.n >= cases[i].least && r.n <= cases[i].most)
            bad += run_case(&r, &cases[i], rank);
    }
    fflush(stdout);
    world_leave(r.world, rank, bad ? ERR_COMM : OK);
    arena_free(a);
    return bad != 0;
}
