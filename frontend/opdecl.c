/* `op` declarations: std/ops.pmodel shows the signatures of the built-in ops, and a
 * file may say no other, because the op set is what planner and kernels agree on. */
#include <string.h>

#include "base/text.h"
#include "frontend/elab.h"

/* ---- a declaration and a signature in the same words ---- */

static void add_axes(Text *t, const Node *axes)
{
    for (uint32_t i = 0; i < axes->nkid; i++) {
        const Node *a = axes->kid[i];
        const char *name = a->kind == N_DOTS ? ".." : a->kind == N_WHOLEAXIS ? a->kid[0]->text : a->text;
        text_add(t, "%s%s%s", i ? ", " : "[", name, a->kind == N_WHOLEAXIS ? "!" : "");
    }
    text_add(t, "%s", axes->nkid ? "]" : "[]");
}

static void add_formal(Elab *e, Text *t, const Node *f)
{
    text_add(t, "%s%s", f->kind == N_DIMFORMAL ? "dim " : "", f->kid[0]->text);
    if (f->kind == N_TENSOR)
        add_axes(t, f->kid[1]);
    else if (!node_absent(f->kid[1]))
        text_add(t, " = %s", sources_text(e->ds->sources, f->kid[1]->at));
}

static void add_list(Elab *e, Text *t, const Node *list)
{
    for (uint32_t i = 0; i < list->nkid; i++) {
        text_add(t, "%s", i ? ", " : "");
        if (list->kid[i]->kind == N_AXES)
            add_axes(t, list->kid[i]);
        else if (list->kid[i]->kind == N_NAME)
            text_add(t, "%s", list->kid[i]->text);
        else
            add_formal(e, t, list->kid[i]);
    }
}

static const char *declared_text(Elab *e, const Node *n)
{
    Text t = text_new(e->arena);
    text_add(&t, "op %s(", n->kid[0]->text);
    add_list(e, &t, n->kid[1]);
    text_add(&t, ")");
    for (uint32_t k = 2; k < 4; k++)
        if (!node_absent(n->kid[k])) {
            text_add(&t, k == 2 ? " -> " : " owns ");
            add_list(e, &t, n->kid[k]);
        }
    return t.s;
}

static void add_pattern(Text *t, const SigFormal *f)
{
    text_add(t, "%s[", f->name ? f->name : "");
    for (int i = 0; i < f->naxis; i++)
        text_add(t, "%s%s%s", i ? ", " : "", f->axis[i].name, f->axis[i].whole ? "!" : "");
    text_add(t, "]");
}

static void add_signature_formals(Text *t, const OpSig *sig, bool owned)
{
    int n = 0;
    for (int i = 0; i < sig->nformal; i++) {
        const SigFormal *f = &sig->formal[i];
        if (f->kind == SIG_EXTRA || (f->kind == SIG_OWNED) != owned)
            continue;
        text_add(t, "%s", n++ ? ", " : owned ? " owns " : "");
        if (f->kind == SIG_TENSOR || f->kind == SIG_OWNED)
            add_pattern(t, f);
        else
            text_add(t, "%s%s%s%s", f->kind == SIG_DIM ? "dim " : "", f->name, f->fallback ? " = " : "", f->fallback ? f->fallback : "");
    }
}

static const char *built_in_text(Elab *e, OpKind k)
{
    const OpSig *sig = op_sig(k);
    Text t = text_new(e->arena);
    text_add(&t, "op %s(", op_info[k].name);
    add_signature_formals(&t, sig, false);
    text_add(&t, ") -> ");
    for (int i = 0; i < sig->nresult; i++) {
        text_add(&t, "%s", i ? ", " : "");
        add_pattern(&t, &sig->result[i]);
    }
    add_signature_formals(&t, sig, true);
    return t.s;
}

/* ---- the check ---- */

void check_opdecl(Elab *e, const Node *n)
{
    const Node *name = n->kid[0];
    OpKind k = op_find(name->text);
    if (k == OP_KINDS || op_info[k].use == OP_INTERNAL) {
        Diag *d = fail(e, name->at, "there is no op '%s', and a file cannot add one", name->text);
        diag_help(e->ds, d, "write it as a block of the ops there are; std/ops.pmodel lists them");
        return;
    }
    const char *want = built_in_text(e, k);
    if (strcmp(declared_text(e, n), want) != 0)
        diag_note(e->ds, fail(e, name->at, "op '%s' is built in, and not as declared here", name->text), NOWHERE, "it is %s", want);
}
