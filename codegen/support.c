/* What codegen and its devices cannot do yet is refused here, by name, before
 * anything is lowered. */
#include "codegen/pass.h"

static bool is_real(DType t)
{
    return t == DT_f64 || t == DT_f32 || t == DT_bf16 || t == DT_f16;
}

static void check_compute(const Lowering *lw)
{
    DType t = lw->g->precision.compute;
    bool peak = lw->device->peak[t] > 0;
    if (peak && is_real(t))
        return;
    Diag *d;
    if (!peak)
        d = diag_error(lw->ds, lw->device->at, "device '%s' cannot compute in %s: it has no peak for it", lw->device->name, dtype_name(t));
    else
        d = diag_error(lw->ds, NOWHERE, "'precision.compute' is %s, and programs compute in f64, f32, bf16 or f16 so far", dtype_name(t));
    diag_help(lw->ds, d, "choose another type with '-D dtype=%s'", lw->device->peak[DT_f32] > 0 ? "f32" : "bf16");
}

static void check_kept(const Lowering *lw, const char *key, DType t)
{
    if (is_real(t))
        return;
    Diag *d = diag_error(lw->ds, NOWHERE, "'precision.%s' is %s, and programs keep f64, f32, bf16 or f16 so far", key, dtype_name(t));
    diag_help(lw->ds, d, "set '%s = f32' in 'precision'", key);
}

/* Sums of rows, losses and statistics are in one type, and the copy that the optimizer
 * steps is at least as good as the one it is rounded to. */
static void check_precision(const Lowering *lw)
{
    const Precision *p = &lw->g->precision;
    DType sums = p->compute == DT_f64 ? DT_f64 : DT_f32;
    check_kept(lw, "weights", p->weights);
    check_kept(lw, "grads", p->grads);
    check_kept(lw, "master", p->master);
    if (p->reduce != sums) {
        Diag *d = diag_error(lw->ds, NOWHERE, "'precision.reduce' is %s, and under 'compute = %s' sums are in %s so far", dtype_name(p->reduce),
                             dtype_name(p->compute), dtype_name(sums));
        diag_help(lw->ds, d, "set 'reduce = %s' in 'precision', or leave it out", dtype_name(sums));
    }
    if (p->master != p->weights && dtype_bytes(p->master) <= dtype_bytes(p->weights)) {
        Diag *d = diag_error(lw->ds, NOWHERE, "'precision.master' is %s and 'precision.weights' is %s: the master copy must be the same or have more bits",
                             dtype_name(p->master), dtype_name(p->weights));
        diag_help(lw->ds, d, "set 'master = %s' in 'precision'", dtype_name(p->weights));
    }
}

static void check_input(const Lowering *lw, const Value *v)
{
    DType t = v->dtype;
    if (t == DT_i32 || t == DT_u8 || t == DT_bool || t == DT_f32 || t == DT_f64)
        return;
    Diag *d = diag_error(lw->ds, v->at, "input '%s' is %s, and inputs are i32, u8, bool, f32 or f64 so far", v->path, dtype_name(t));
    diag_help(lw->ds, d, "declare it as %s", dtype_is_float(t) ? "f32" : "i32");
}

/* A row that fills up a batch is marked by a label that no class has. */
static void check_labels(const Lowering *lw)
{
    for (uint32_t i = 0; i < lw->g->nop; i++) {
        const Op *op = &lw->g->op[i];
        const Value *v = op->kind == OP_cross_entropy ? value_of(lw->g, op->arg[1]) : NULL;
        if (!v || dtype_bytes(v->dtype) >= 4)
            continue;
        Diag *d = diag_error(lw->ds, v->at, "labels '%s' are %s, and labels are i32 so far", v->path, dtype_name(v->dtype));
        diag_help(lw->ds, d, "declare the input as i32: a data file of %s is read all the same", dtype_name(v->dtype));
    }
}

static void check_values(const Lowering *lw)
{
    for (uint32_t i = 0; i < lw->g->nvalue; i++) {
        const Value *v = &lw->g->value[i];
        if (v->role == ROLE_INPUT)
            check_input(lw, v);
        else if (dtype_is_float(v->dtype) && !is_real(v->dtype)) {
            const char *what = v->role == ROLE_WEIGHT ? "weight" : "value";
            Diag *d = diag_error(lw->ds, v->at, "%s '%s' is %s, and programs hold f64, f32, bf16 or f16 so far", what, v->path, dtype_name(v->dtype));
            diag_help(lw->ds, d, "declare it as %s", dtype_name(lw->g->precision.compute));
        }
    }
}

void support_check(const Lowering *lw)
{
    int errors = lw->ds->errors;
    check_compute(lw);
    if (lw->ds->errors > errors)
        return;
    check_precision(lw);
    if (lw->ds->errors == errors)
        check_values(lw);
    if (lw->ds->errors == errors)
        check_labels(lw);
    micro_check(lw->ds, lw->scratch, lw->g, &lw->micro);
}
