#ifndef CODEGEN_CODEGEN_H
#define CODEGEN_CODEGEN_H
/* Codegen: Graph + Plan + Cluster -> Program.  driver.c is the list of passes:
 * place, fuse, bucket, schedule, memory, streams, each followed by its checker. */
#include "ir/program.h"

/* Called after each pass; NULL when nobody looks. */
typedef struct PassDump {
    void (*after)(void *ctx, const char *pass, const Program *);
    void *ctx;
} PassDump;

/* Names of the passes, in order. */
extern const char *const codegen_passes[];
extern const int         codegen_npasses;

/* Lower a plan for one of its ranks, a place in plan->devices, verified after each
 * pass.  Programs of the ranks of a stage differ in origins of axes, in what counts
 * once, in which states they update, and in nothing else.  Mistakes that only lowering
 * can see (an op that cannot be cut into micro-batches, an unsupported dtype) are
 * diagnostics.  Memory is *not* judged here: see program_excess(). */
Status codegen(Arena *, Diags *, const Graph *, const Plan *, const Cluster *, uint32_t rank, const PassDump *, Program **out);

/* ---- several ranks of a plan ---- */

/* A plan being lowered: what the programs of its ranks have in common, found once. */
typedef struct Codegen Codegen;

/* The diagnostics of codegen() come from here; *out is then NULL, else to be closed. */
Status   codegen_open(Diags *, const Graph *, const Plan *, const Cluster *, Codegen **out);
void     codegen_close(Codegen *);
/* The program of a rank, not verified: of a candidate, which is not executed. */
Program *codegen_rank(const Codegen *, Arena *, uint32_t rank);
/* Whether the programs of two ranks have the same instructions, buffers and states: two
 * stages execute ops that are equal and equally placed, on one kind of device.  Names
 * differ, and so do ranks in groups and calls, and with them slots, the map and waits. */
bool     codegen_alike(const Codegen *, uint32_t rank, uint32_t other);
/* The program of a rank from that of another which is alike: all is its own but for the
 * names, which are the other's. */
Program *codegen_like(const Codegen *, Arena *, const Program *other, uint32_t rank);
/* All checks of a lowered program; a violation is our bug and ends the process. */
void     codegen_verify(const Program *);

/* What must hold of the programs of all ranks of a plan together, by rank: those of a
 * stage do the same; each op and weight has its place; all members of a group issue its
 * collectives in one order, of equal sizes; messages match and nobody waits for ever;
 * each gradient, and whatever else is a sum over ranks, is summed once over those with
 * summands; what counts once is counted once.  Number of violations, each printed. */
int verify_ranks(const Graph *, const Plan *, const Program *const *rank, FILE *err);

/* Bytes missing for the program to fit its device; <= 0: it fits. */
int64_t program_excess(const Program *);

/* Largest sum of bytes that are live at one instruction: no map is smaller. */
int64_t program_live_peak(const Program *);

/* The first op that forbids cutting the batch into micro-batches, NO_OP when none
 * does; *why continues "op 'X' ". */
OpId graph_batch_obstacle(Arena *, const Graph *, const char **why);

#endif
