#ifndef FRONTEND_FRONTEND_H
#define FRONTEND_FRONTEND_H
/* Frontend: text -> Graph, Cluster, Rules.  Parsing is in ast.h; these are the
 * elaborations of what was parsed. */
#include "frontend/ast.h"
#include "ir/cluster.h"
#include "ir/graph.h"
#include "ir/plan.h"
#include "ir/profile.h"

/* An override from -D or from a rule `set`: the value's text is parsed by the
 * language's own expression grammar; `at` points at it for messages, `named` at the name. */
typedef struct Define { const char *name, *value; Span named, at; const Node *node; bool used; } Define;   /* node: parsed already, or NULL */

/* Elaborate model `name` (NULL: the last one in the last file).  Defines that the
 * model takes get `used` set.  The Graph has forward ops only. */
Status elaborate_model(Diags *, const Units *, const char *name, Define *, uint32_t ndefine, Arena *graph, Graph **out);

/* Elaborate cluster `name` (NULL: the last one).  *out is NULL with status OK when
 * the files hold no cluster and none was asked for. */
Status elaborate_cluster(Diags *, const Units *, const char *name, Define *, uint32_t ndefine, Arena *, Cluster **out);

/* Elaborate profile `name` (NULL: the last one); without any a diagnostic. */
Status elaborate_profile(Diags *, const Units *, const char *name, Arena *, Profile **out);

/* The rules of the files' `plan` for this model; *out is empty when there is none. */
Status elaborate_rules(Diags *, const Units *, const Graph *, Arena *, Rules **out);

/* The overrides a .plan carries as `set NAME = value`, to be given to
 * elaborate_model() before the command line's. */
void plan_sets(Diags *, const Units *, Define **out, uint32_t *n);

/* Report every define that neither model nor cluster took.  `machine`: the files of the cluster; NULL: none. */
Status defines_check(Diags *, const Units *, const Units *machine, const Graph *, const Define *, uint32_t ndefine);

/* The model item, the blocks and included items it needs, in `fmt` form, as one
 * self-contained text; likewise for a cluster with its devices. */
const char *inline_model(Arena *, Diags *, const Units *, const char *model);

#endif
