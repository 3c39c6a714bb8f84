#ifndef PLANNER_LOOKING_H
#define PLANNER_LOOKING_H
/* Private to the search: what it knows while it looks for a plan, and the judging of one candidate. */
#include "planner/search.h"
#include "planner/space.h"
#include "planner/stages.h"

/* Candidates that are estimated alike: of one unit, split alike, on one mesh, sharded or not. */
typedef struct Family { const Unit *unit; const Mesh *mesh; uint32_t option; bool shard; double rate, more_bytes; uint32_t version; } Family;

typedef struct Entry {
    Candidate c;
    Candidate judged;                 /* as it was when it was judged last, where `tries` > 0 */
    double    lack;                   /* of its configuration */
    uint32_t  family, version, tries;
    bool      lean, done;             /* lean: in as little memory as there can be, whatever is estimated */
} Entry;

/* unfit: no layout of it fits; lack: see staging_lack(). */
typedef struct Bounded { const Config *config; double bound, lack; uint32_t order; bool unfit; } Bounded;

typedef struct Looking {
    Arena             *arena;
    Diags             *ds;
    const PlanRequest *q;
    SearchLimits       limits;
    UnitTable          units;
    Space              space;
    bool               no_context;    /* context parallelism is put off */
    bool               with_context;  /* it was, and is looked at now */
    RoundNeeds         round;
    Bounded           *config; uint32_t nconfig;     /* in the order of their bounds */
    bool               lacking;       /* all of them lack memory: nothing fits */
    bool             **added;         /* per configuration and option: it has an entry; NULL: none has */
    Entry             *entry;  uint32_t nentry;
    Family            *family; uint32_t nfamily;
    Search            *out;
    Candidate         *of;            /* per plan of out->best: its candidate */
    Plan              *leanest;
    int64_t            least_excess;
    uint64_t           effort;
    Diags             *refusal;       /* why the first candidate that was not legal is not; NULL */
} Looking;

/* What a candidate was found to be. */
typedef struct Verdict { bool legal, fits; int64_t ns, excess; } Verdict;

/* Lowers it, simulates it where it fits, and keeps it where it is among the best. */
Verdict judge(Looking *, const Candidate *);
/* ns of the best so far; DBL_MAX: nothing was found. */
double  best_ns(const Looking *);
/* What is not faster is not wanted. */
double  worst_ns(const Looking *);
bool    same_staging(const Candidate *, const Candidate *);

/* Candidates that are listed before any of them is judged. */
typedef struct Listed { Candidate c; uint32_t order; } Listed;           /* order: as they came */
typedef struct CandidateList { Arena *arena; Listed *item; uint32_t n; } CandidateList;

/* An EachCandidate: adds a copy to the CandidateList. */
bool    list_candidate(void *list, const Candidate *);

#endif
