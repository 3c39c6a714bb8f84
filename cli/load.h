#ifndef CLI_LOAD_H
#define CLI_LOAD_H
/* Load: from a command line to Graph, Cluster, Rules and Plan; shared by pplan and prun. */
#include "base/file_uses.h"
#include "cli/options.h"
#include "frontend/frontend.h"
#include "planner/search.h"

typedef struct Loaded {
    Arena   *input, *ir;              /* lifetimes: text and syntax; graph, plan, program */
    Sources *sources;
    Diags   *ds;
    IncludePath includes;             /* -I, then the bundled files */
    Units    model_units, cluster_units;
    Units   *with;    uint32_t nwith;   /* one per --with, in the order given */
    Define  *define;  uint32_t ndefine;
    Graph   *graph;                   /* forward only until load_plan() */
    Cluster *cluster;                 /* NULL: none named and none in the files */
    Profile *profile;                 /* of the commands that predict times, and of prun where it is found; else NULL */
    Rules   *rules;                   /* of the files and of --with */
    bool     errors_only;             /* warnings are another process's to print */
} Loaded;

/* Parse and elaborate.  Diagnostics have been printed when this fails. */
Status load_model(Loaded *, const Args *);
/* Differentiate and choose a plan. */
Status load_plan(Loaded *, PlanUse, Plan **, Programs *);
/* The same, with what was searched, and up to `top` plans. */
Status load_search(Loaded *, PlanUse, uint32_t top, Plan **, Programs *, Search *found);
/* What load_plan() asked for: to be asked again with other rules. */
PlanRequest load_request(Loaded *, PlanUse);
/* Rules in a text that an option gave, for the model that is loaded. */
Status load_text(Loaded *, const char *option, const char *text, Rules **out);
/* The files that were read. */
void   load_uses(const Loaded *, FileUses *);
/* The program of one rank of the plan, lowered unless it is among those given; with a
 * dump it is lowered again, to be seen. */
Status load_rank(Loaded *, const Plan *, const Programs *, uint32_t rank, const PassDump *, Program **);
/* Those of all ranks, verified together; a violation is our bug and ends the process. */
Status load_ranks(Loaded *, const Plan *, const Programs *, const Program ***);
void   load_free(Loaded *);

/* A file given by the user, or a bundled one of that name: the path to open. */
const char *load_path(Loaded *, const char *name);

#endif
