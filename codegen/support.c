/* What codegen and its devices cannot do yet is refused here, by name, before
 * anything is lowered. */
#include "codegen/pass.h"

static void check_compute(const Lowering *lw)
{
    DType t = lw->g->precision.compute;
    bool peak = lw->device->peak[t] > 0;
    if (peak && (t == DT_f32 || t == DT_f64))
        return;
    Diag *d;
    if (!peak)
        d = diag_error(lw->ds, lw->device->at, "device '%s' cannot compute in %s: it has no peak for it", lw->device->name, dtype_name(t));
    else
        d = diag_error(lw->ds, NOWHERE, "'precision.compute' is %s, and programs compute in f32 or f64 so far", dtype_name(t));
    diag_help(lw->ds, d, "choose another type with '-D dtype=f32'");
}

/* One copy of the weights serves for computing, for the optimizer and for sums. */
static void check_precision(const Lowering *lw)
{
    const Precision *p = &lw->g->precision;
    const struct { const char *key; DType type; } row[] = {
        {"weights", p->weights}, {"grads", p->grads}, {"master", p->master}, {"reduce", p->reduce},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        if (row[i].type == p->compute)
            continue;
        Diag *d = diag_error(lw->ds, NOWHERE, "'precision.%s' is %s and 'precision.compute' is %s: they must be equal so far", row[i].key,
                             dtype_name(row[i].type), dtype_name(p->compute));
        diag_help(lw->ds, d, "set '%s = %s' in 'precision'", row[i].key, dtype_name(p->compute));
    }
}

static void check_input(const Lowering *lw, const Value *v)
{
    DType t = v->dtype;
    if (t == DT_i32 || t == DT_bool || t == DT_f32 || t == DT_f64)
        return;
    Diag *d = diag_error(lw->ds, v->at, "input '%s' is %s, and inputs are i32, bool, f32 or f64 so far", v->path, dtype_name(t));
    diag_help(lw->ds, d, "declare it as %s", dtype_is_float(t) ? "f32" : "i32");
}

/* Every value of floats is in the compute type; counts and norms, made once per step, are f64. */
static void check_values(const Lowering *lw)
{
    DType compute = lw->g->precision.compute;
    for (uint32_t i = 0; i < lw->g->nvalue; i++) {
        const Value *v = &lw->g->value[i];
        if (v->role == ROLE_INPUT)
            check_input(lw, v);
        else if (v->role != ROLE_STEP && dtype_is_float(v->dtype) && v->dtype != compute) {
            const char *what = v->role == ROLE_WEIGHT ? "weight" : "value";
            Diag *d = diag_error(lw->ds, v->at, "%s '%s' is %s and 'precision.compute' is %s: they must be equal so far", what, v->path,
                                 dtype_name(v->dtype), dtype_name(compute));
            diag_help(lw->ds, d, "choose one type for both, for instance with '-D dtype=%s'", dtype_name(v->dtype));
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
    micro_check(lw->ds, lw->scratch, lw->g, &lw->micro);
}
