#ifndef IR_GRAD_H
#define IR_GRAD_H
/* Between grad.c, which walks the graph backwards and adds gradients up, and
 * grad_rules.c, which has the rule of each op. */
#include "ir/graph.h"

typedef struct Grad {
    Graph   *g;
    bool    *needed;                  /* by value of the forward pass: some trained weight is behind it */
    ValueId *sum;                     /* by value of the forward pass: its gradient so far */
    uint32_t *uses;                   /* how many gradients went into `sum` */
    bool    *named;                   /* by value: it is the whole gradient of some value and has its name */
    uint32_t nforward, nnamed;        /* values of the forward pass; room of `named` */
    OpId     id;                      /* the op being differentiated, */
    Op       op;                      /* and a copy, because adding ops moves the array */
} Grad;

typedef void (*GradRule)(Grad *);

/* The rule of a kind; NULL: no gradient flows through it, or it is never in a
 * forward pass. */
GradRule grad_rule(OpKind);

/* ---- what rules are written with ---- */

bool    grad_needs(const Grad *, int arg);           /* argument is there and needs a gradient */
ValueId grad_out(const Grad *, int out);             /* gradient of a result; NO_VALUE: the loss does not use it */

/* A backward op of the current one, path "grad:PATH" or "grad:PATH.which"; its
 * labels are the current op's factors. */
OpSpec  grad_op(const Grad *, OpKind, const char *which);
void    grad_add_arg(const Grad *, OpSpec *, ValueId, const uint8_t *factor);
void    grad_copy_attr(const Grad *, OpSpec *, const char *name);
/* A result shaped and labelled like an argument of the current op, in the dtype of that one's gradient. */
void    grad_add_result_like(const Grad *, OpSpec *, int arg);
/* Append; returns the first result. */
ValueId grad_emit(Grad *, OpSpec *);
/* Append an op with one result whose gradient is that of argument `arg`. */
void    grad_emit_for(Grad *, OpSpec *, int arg);

/* Add `d`, of the shape of argument `arg`, to that argument's gradient. */
void    grad_give(Grad *, int arg, ValueId d);
/* The same for a `d` labelled by `factor` that may have more axes, or other order. */
void    grad_give_summed(Grad *, int arg, ValueId d, const uint8_t *factor);

#endif
