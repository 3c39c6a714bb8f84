#ifndef RUNTIME_GROUPS_H
#define RUNTIME_GROUPS_H
/* Groups between ranks: every member of a group must call it by one id, but the programs
 * of different stages number their groups differently, and no rank has them all. */
#include "ir/program.h"

enum { MOST_GROUPS = 60 };            /* that one rank meets in, the group of all ranks apart */

/* A group as any member can name it.  Kind: a hash of its ranks less the first, which
 * groups along a mesh axis have in common; 0: no group. */
typedef struct GroupName { int64_t kind, first; } GroupName;

/* Those in which a rank's instructions meet, each once, by kind and first rank. */
typedef struct GroupNames { GroupName of[MOST_GROUPS]; } GroupNames;

bool group_same(GroupName, GroupName);
/* Its name; `use` tells apart what one group is for, 0 where that is one thing. */
GroupName group_name(const RankGroup *, uint32_t use);
/* To a list that is *n long, unless it is there. */
void group_add(GroupNames *, uint32_t *n, GroupName);

/* Whether the ranks of its group meet in an instruction: messages go from one to another. */
bool group_meets(const Instr *);
void group_names(const Program *, GroupNames *out);

/* Of all ranks.  Groups have one id when they are of one kind and no rank is in both: most
 * kinds have one, but the ranks that share one weight may be the last of one group of a kind
 * and, with another weight, the first of the next. */
typedef struct GroupIds {
    GroupName *name;                  /* by kind and first rank */
    uint32_t  *turn, *id;             /* of each; turn: which of its kind's ids it has */
    uint32_t   n, nid;                /* names; ids are below nid */
} GroupIds;

/* From the names that each rank has, the same at every rank. */
GroupIds group_ids(Arena *, const GroupNames *rank, uint32_t nranks);
/* The place of a name in the list, where it is. */
uint32_t group_place(const GroupIds *, GroupName);
uint32_t group_id(const GroupIds *, const RankGroup *);

#endif
