#ifndef FRONTEND_ELAB_H
#define FRONTEND_ELAB_H
/* What the elaborators share; private to frontend/.
 *
 * An expression of the language evaluates to a Term.  A mistake is reported where
 * it is found and its Term is TERM_POISON; whatever a poisoned term enters is
 * poisoned without a further message, so one mistake gives one message. */
#include "frontend/frontend.h"

typedef enum TermKind {
    TERM_POISON,                      /* a mistake, reported already */
    TERM_INT, TERM_REAL, TERM_BOOL, TERM_STRING, TERM_DTYPE, TERM_NONE, TERM_AUTO,
    TERM_QUANTITY,                    /* a number with a unit; machines only */
    TERM_DIM, TERM_TENSOR,
    TERM_ROUTE,                       /* what a router makes; only the ops of sparse layers take it */
    TERM_LIST,
    TERM_TUPLE,                       /* the values of a block that returns several */
    TERM_INIT,                        /* an initialiser, such as normal(0.02) */
    TERM_KINDS
} TermKind;

typedef struct Term Term;
struct Term {
    TermKind    kind;
    uint64_t    from;                 /* bit i: the number depends on override i */
    int64_t     i;                    /* INT, BOOL (0 or 1), DTYPE (a DType), QUANTITY (a UnitKind) */
    double      f;                    /* REAL, QUANTITY (in the unit's base), INT */
    const char *s;                    /* STRING */
    DimId       dim;                  /* DIM */
    ValueId     value;                /* TENSOR, ROUTE */
    const Init *init;                 /* INIT, without its fans */
    Term       *item;                 /* LIST, TUPLE */
    uint32_t    nitem;
};
#define POISON ((Term){.kind = TERM_POISON})

typedef enum SymbolKind { SYM_DIM, SYM_PARAM, SYM_LET, SYM_INPUT, SYM_WEIGHT, SYM_FORMAL, SYM_INDEX, SYM_VARIABLE } SymbolKind;

typedef struct Symbol {
    const char *name;
    SymbolKind  kind;
    Term        term;
    Span        declared, assigned;   /* first and last */
} Symbol;

/* The names of one model or block body; rounds of a repeat share them. */
typedef struct Names {
    Symbol  *symbol;                  /* in order of declaration: a round's own come last */
    uint32_t nsymbol, cap;
    bool     unsure;                  /* a mistake may have hidden declarations: unknown names are poison */
} Names;

/* An instance: a call that owns weights, a block or a repeat, unique by name in its scope. */
typedef struct Instance { const char *name; Span at; } Instance;

typedef enum ScopeKind { SCOPE_MODEL, SCOPE_BLOCK, SCOPE_CLUSTER } ScopeKind;

/* A place in the tree of paths: the model, a block's expansion, a round of a repeat. */
typedef struct Scope {
    ScopeKind   kind;
    Names      *names;
    const char *path;                 /* "h[3].attn"; "" for the model */
    Instance   *instance;
    uint32_t    ninstance;
    uint32_t    nested;               /* repeats and ifs around the statement at hand */
    uint32_t    rounds;               /* repeats among them */
    bool        returned;             /* a return was executed; `result` is set */
    Term        result;
    Span        result_at;
} Scope;

/* The chain of block calls being expanded. */
typedef struct Use {
    const struct Use *up;
    const Node *block;
    const char *path;
    Span        at;
} Use;

/* defaults { op.arg = value } */
typedef struct Default { OpKind op; int formal; Term term; const Node *at; } Default;

typedef struct Elab {
    Diags       *ds;
    Arena       *arena;               /* of the sources: what only elaboration needs */
    const Units *units;
    Graph       *g;                   /* NULL while a cluster is elaborated */
    Define      *define;
    uint32_t     ndefine;
    const char **override_note;       /* per override: "heads = 10 comes from ..." */
    Span        *override_at;
    uint32_t     noverride;
    uint64_t    *dim_from;            /* per dim of g: overrides its extent depends on */
    uint32_t     ndim_from;
    Default     *fallback;            /* defaults { } */
    uint32_t     nfallback;
    ValueId     *cast_of;             /* per value: the same cast to another dtype, if that exists */
    uint32_t     ncast_of;
    const Use   *use;
    Diag        *open;                /* the last error: its chain of uses is still to be added */
    const Use   *open_use;
    uint32_t     depth;               /* of nested expressions and blocks */
    uint64_t     steps;               /* statements and expressions evaluated */
    int64_t      elements;            /* of all values so far */
    bool         stopped;             /* a limit was passed: evaluate nothing more */
    Span         optimizer_at, precision_at;
    const Node  *minimize;            /* the statement; NULL: none so far */
} Elab;

enum {
    DEPTH_LIMIT = 400,                /* nested expressions and block calls */
    OPS_LIMIT = 200 * 1000,           /* ops, weights or dims of a graph */
    ROUNDS_LIMIT = 100 * 1000,        /* of one repeat */
    STEPS_LIMIT = 2 * 1000 * 1000,    /* statements and expressions evaluated */
};
#define EXTENT_LIMIT   ((int64_t)1 << 40)
#define ELEMENTS_LIMIT ((int64_t)1 << 56)    /* of one value and of all together: bytes fit 63 bits */

/* ---- report.c: messages ---- */

/* An error; the chain of block uses follows its notes.  The same error at the same
 * place (a block expanded again) is reported once. */
Diag *fail(Elab *, Span at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void  fail_settle(Elab *);                           /* add the chain of the last error */
/* A limit was passed: an error after which nothing more is evaluated. */
Diag *fail_stop(Elab *, Span at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The name of the pool that `word` may have meant, or NULL. */
const char *near_name(const char *word, const char *const *pool, size_t npool);
/* "; did you mean 'x'?" for the name nearest to `word`, or "". */
const char *did_you_mean(Elab *, const char *word, const char *const *pool, size_t npool);
void  note_overrides(Elab *, Diag *, uint64_t from);
const char *unit_text(UnitKind);                      /* " B/s"; "" for plain numbers */
const char *term_text(Elab *, Term);                 /* "768", "[batch, seq]", "none" */
const char *term_describe(Elab *, Term);             /* "the number 768", "a tensor [batch, seq]" */
const char *axes_text(Elab *, const DimId *, int rank);
const char *value_text(Elab *, ValueId);             /* "[batch, seq]" */
void help_cast(Elab *, Diag *);                      /* how a tensor that is none becomes a floating-point one */
uint64_t value_from(Elab *, ValueId);                /* overrides its extents depend on */

/* ---- scope.c: names, dims and paths ---- */

Scope  *scope_new(Elab *, ScopeKind, const char *path);
/* A round of a repeat: the same names, instances of its own. */
Scope   scope_round(const Scope *, const char *path);
Symbol *scope_find(const Scope *, const char *name);
/* The symbol a node names, or NULL with a message (none when names are unsure). */
Symbol *scope_lookup(Elab *, const Scope *, const Node *name);
/* Declare a name that must be new. */
void    scope_declare(Elab *, Scope *, const Node *name, SymbolKind, Term);
/* Assign a variable, new or not. */
void    scope_assign(Elab *, Scope *, const Node *name, Term);
const char *scope_path(Elab *, const Scope *, const char *name);
/* Take an instance name; false with a message when it is taken. */
bool    scope_instance(Elab *, Scope *, const char *name, Span at, const char *callee);
DimId   elab_dim(Elab *, const char *name, int64_t extent, Span at, uint64_t from);
/* The dim that a node names, or NO_DIM with a message. */
DimId   scope_dim(Elab *, const Scope *, const Node *name);
/* Item `name` of a kind (N_MODEL, N_BLOCK, N_CLUSTER, ...) in the files, or NULL. */
const Node *item_find(const Units *, NodeKind, const char *name);
/* The same, or the last one of the last file that has any when name is NULL. */
const Node *item_chosen(const Units *, NodeKind, const char *name);
/* "; did you mean 'X'?" for the items of a kind, or "". */
const char *item_near(Elab *, NodeKind, const char *name);
/* "; did you mean ..", for the first name of a path that no path of an op has; "". */
const char *near_step(Elab *, const Graph *, const Path *);

/* ---- expr.c, arith.c: expressions ---- */

/* Count one step, at most STEPS_LIMIT; false when nothing more is to be evaluated. */
bool elab_step(Elab *, Span at);
Term eval(Elab *, Scope *, const Node *);
/* The same where the value is assigned to `variable` (or NULL), which names its call. */
Term eval_named(Elab *, Scope *, const Node *, const char *variable);
Term term_int(int64_t, uint64_t from);
Term term_real(double, uint64_t from);
Term term_dim(DimId);
Term term_tensor(ValueId);
bool term_is_number(Term);                           /* INT, REAL or DIM */
/* INT of a dim's extent, others unchanged. */
Term term_scalar(const Elab *, Term);
/* Unary and binary operators on scalars and quantities. */
Term arith_binary(Elab *, const Node *, Term, Term);
Term arith_negate(Elab *, const Node *, Term);
Term arith_compare(Elab *, const Node *, Term, Term);

/* A typed evaluation, for settings: `what` names the thing in messages.  On a
 * mistake: a message and false. */
bool eval_whole(Elab *, Scope *, const Node *, const char *what, int64_t lo, int64_t hi, Term *out);
bool eval_real(Elab *, Scope *, const Node *, const char *what, Term *out);
bool eval_bool(Elab *, Scope *, const Node *, const char *what, bool *out);
bool eval_dtype(Elab *, Scope *, const Node *, const char *what, DType *out);
bool eval_quantity(Elab *, Scope *, const Node *, const char *what, UnitKind, double lo, double *out);

/* ---- settings.c: blocks of `key = value` ---- */

typedef enum KeyType { KEY_REAL, KEY_WHOLE, KEY_BOOL, KEY_DTYPE, KEY_WORD, KEY_QUANTITY, KEY_OTHER } KeyType;

/* One key that a block may hold.  Numbers go to a double, whole numbers to an
 * int64_t, words (their number in `words`), dtypes and bools to an int. */
typedef struct Key {
    const char *name;                 /* "lr", "host.memory" */
    KeyType     type;
    void       *out;
    double      lo, hi;               /* least and greatest value allowed; of quantities the least */
    const char *const *words;         /* KEY_WORD: NULL-terminated; `none` is the word none */
    UnitKind    unit;                 /* KEY_QUANTITY */
    const Node *at;                   /* set: the pair that gave it; NULL: not given */
    bool        below;                /* numbers: hi itself is not allowed */
} Key;

/* Evaluate the pairs of `settings` into the keys; unknown and repeated keys and
 * wrong values are reported.  `what` names the block: "optimizer adamw". */
void settings_read(Elab *, Scope *, const Node *settings, const char *what, Key *, size_t nkey);
/* The same for one N_PAIR. */
void settings_pair(Elab *, Scope *, const Node *pair, const char *what, Key *, size_t nkey);
const char *key_text(Elab *, const Node *key);       /* "peak.bf16" */

void model_precision(Elab *, Scope *, const Node *);
void model_optimizer(Elab *, Scope *, const Node *);
void model_defaults(Elab *, Scope *, const Node *);

/* ---- tensor.c: operators on tensors ---- */

/* Axes of a value, or chosen from one. */
typedef struct Axes { DimId dim[MAX_RANK]; int n; } Axes;

Axes axes_of(const Elab *, ValueId);
bool axes_have(const Axes *, DimId);
Axes axes_without(const Axes *, const Axes *);
/* Those of `like` that are also in `a`: a in the order of `like`. */
Axes axes_ordered(const Axes *a, const Axes *like);

/* A spec for an op named `base` in a scope, and appending it.  emit() casts float
 * arguments to one dtype and returns result 0, or NO_VALUE once a limit is passed. */
OpSpec  op_start(Elab *, const Scope *, OpKind, const char *base, Span at);
void    op_take(OpSpec *, ValueId);
void    op_set(OpSpec *, const char *attr, Attr);
void    op_give(OpSpec *, const DimId *axis, int rank, DType);
ValueId emit(Elab *, OpSpec *);
DType   float_dtype(Elab *, const ValueId *, int n); /* the dtype float operands are brought to */
/* v as dtype: v itself when it is. */
ValueId emit_cast(Elab *, ValueId, DType, Span at);
/* x with its axes in this order: x itself when they are. */
ValueId emit_order(Elab *, const Scope *, ValueId, const Axes *, Span at);
ValueId emit_sum(Elab *, const Scope *, ValueId, const Axes *over, bool mean, const char *base, Span at);
ValueId emit_number(Elab *, const Scope *, OpKind, ValueId, double by, const char *base, Span at);
Term    tensor_binary(Elab *, Scope *, const Node *, Term, Term);
Term    tensor_negate(Elab *, Scope *, const Node *, Term);
Term    tensor_select(Elab *, Scope *, const Node *, Term);

/* ---- contract.c: assignments that name their axes, matmul ---- */

void    assign_axes(Elab *, Scope *, const Node *);
/* The product of two tensors, keeping these axes in this order. */
ValueId emit_product(Elab *, const Scope *, ValueId, ValueId, const Axes *keep, const char *base, Span at);

/* ---- weight.c ---- */
/* The axes that a declaration names, each once; `what` is "an input" or "a weight". */
bool declared_axes(Elab *, const Scope *, const char *what, const Node *axes, DimId *out);

/* Declare a weight; fans 0: from its axes (the last is made, the others summed). */
ValueId weight_new(Elab *, const char *path, const DimId *axis, int rank, DType, Init, bool frozen, bool decays, Span at);
/* Elements of a tensor of these axes, counted towards the limit; -1 with a message. */
int64_t elements_of(Elab *, const DimId *axis, int rank, Span at);
void    statement_weight(Elab *, Scope *, const Node *);
/* The initialiser a call or name stands for: poison after a message, TERM_NONE
 * when its name is no initialiser's. */
Term    init_term(Elab *, Scope *, const Node *name, const Node *args);

/* ---- call.c, block.c ---- */

/* An argument as the caller wrote it. */
typedef struct Actual { Term term; const Node *at, *key; } Actual;
typedef struct Actuals { Actual *v; uint32_t n; } Actuals;

/* Evaluate a call; `piped` is the value from the left of '|>' with its node, or NULL. */
Term call_eval(Elab *, Scope *, const Node *call, const Actual *piped, const char *variable);
/* Expand a block as instance `path`. */
Term block_call(Elab *, const Node *call, const Node *block, Actuals, const char *path);

/* ---- pattern.c: calls of ops against their signatures ---- */

typedef struct Arg { Term term; const Node *at; bool given; } Arg;

/* Which dims the axis names of a signature stand for in a call. */
typedef struct Binding { const char *name[24]; DimId dim[24]; int n; DimId dots[MAX_RANK]; int ndots; bool has_dots; } Binding;

typedef struct Call {
    Elab        *e;
    Scope       *s;
    const Node  *node;
    OpKind       kind;
    const OpSig *sig;
    const char  *base;                /* last part of the op's path */
    Arg          arg[SIG_FORMALS];    /* by formal; defaults filled in */
    Actuals      rest;                /* rename: its `axis = axis` pairs */
    Binding      bound;
    Init         init;                /* of the first owned weight */
} Call;

Arg    *call_arg(Call *, const char *formal);
OpSpec  call_spec(Call *);                           /* path and attributes */
bool    call_bind(Call *);                           /* match every tensor with its pattern */
DimId   call_dim(const Call *, const char *axis);
void    call_set_dim(Call *, const char *axis, DimId);
Term    call_emit(Call *);                           /* weights, op and results by the signature */
/* Does the call own a bias (formal `bias`, when the op has it)? */
bool    call_owns(Call *, const SigFormal *);
ValueId call_weight(Call *, const SigFormal *, const DimId *axis, int rank);

/* ---- ops.c ---- */

/* Check the arguments' kinds and lower the call to ops. */
Term op_lower(Call *);
bool op_owns_weights(OpKind);
/* A formal's value brought to its kind (a whole number to a real, a number to a
 * fresh dim, an axis to a list of one); false with a message. */
bool op_check_arg(Elab *, OpKind, int formal, Term *, Span at);

/* ---- lower.c: what the signature alone does not say about an op.  The `before`
 * and `after` of a row stand on both sides of call_bind(). ---- */

bool before_rope(Call *);
bool after_rope(Call *);
bool after_attention(Call *);
bool before_relative_bias(Call *);
bool after_router(Call *);
bool after_dispatch(Call *);
bool before_conv2d(Call *);
bool after_conv2d(Call *);
bool before_cross_entropy(Call *);
Term lower_linear(Call *);
Term lower_matmul(Call *);
Term lower_reduce(Call *);
Term lower_rename(Call *);
Term lower_merge(Call *);
Term lower_concat(Call *);
Term lower_cast(Call *);
Term lower_dropout(Call *);

/* ---- stmt.c ---- */

void run_statements(Elab *, Scope *, const Node *stmts);

/* ---- define.c ---- */

/* The override of a name, evaluated in a scope: false when there is none. */
bool define_take(Elab *, Scope *, const Node *bind, bool dim, Term *out);

/* ---- opdecl.c ---- */

/* An `op` declaration must be the built-in one. */
void check_opdecl(Elab *, const Node *);

#endif
