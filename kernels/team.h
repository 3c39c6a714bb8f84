#ifndef KERNELS_TEAM_H
#define KERNELS_TEAM_H
/* Team: the threads of one rank.  All parallel work of a rank, matrices
 * included, is divided among its team, so there is one pool and no second
 * library's threads spin beside it.  Work is divided by worker number alone:
 * no stealing, so sums have one order. */
#include <stdint.h>

typedef struct Team Team;
typedef void (*TeamFn)(void *ctx, int worker, int nworker);

/* A team of `n` threads, the caller being worker 0; NULL when threads cannot be made. */
Team *team_new(int n);
int   team_size(const Team *);
/* `threads` in all, of this and other teams, share this process's cores: when they are
 * more than those, nobody spins. */
void  team_crowd(Team *, int threads);
/* Run fn on every worker; returns when all are done.  Not reentrant. */
void  team_run(Team *, TeamFn, void *ctx);
void  team_free(Team *);

/* Processors this process may run on. */
int   team_cores(void);
/* Worker w's part [*first, *end) of n items, in multiples of `grain` items. */
void  team_part(int64_t n, int64_t grain, int worker, int nworker, int64_t *first, int64_t *end);

#endif
