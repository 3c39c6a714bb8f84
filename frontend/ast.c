/* Syntax trees: making nodes, printing and comparing them. */
#include "frontend/ast.h"

#include <stdlib.h>
#include <string.h>

#include "frontend/syntax.h"

const char *node_kind_name(NodeKind kind)
{
    static const char *const name[] = {
#define X(kind, children) #kind,
#include "frontend/ast.def"
#undef X
    };
    return name[kind];
}

/* ---- building ---- */

Node *node_leaf(Lexer *lx, NodeKind kind, Span at)
{
    Node *n = NEW(lx->arena, Node);
    uint32_t quote = kind == N_STRING;       /* a string's text is what lies between the quotes */
    *n = (Node){.kind = kind, .at = at, .height = 1};
    n->text = arena_strndup(lx->arena, lx->source->text + (at.start - lx->source->start) + quote,
                            at.end - at.start - 2 * quote);
    return n;
}

/* Report a tree that is too high, once, and put an absent node in its place. */
static Node *too_high(Lexer *lx, Span at)
{
    if (!lx->too_high)
        diag_error(lx->ds, at, "nested too deeply: at most %d levels are allowed", HEIGHT_LIMIT);
    lx->too_high = true;
    return node_make(lx, N_NONE_NODE, at, NULL, 0);
}

Node *node_make(Lexer *lx, NodeKind kind, Span at, Node *const *kid, uint32_t nkid)
{
    Node *n = NEW(lx->arena, Node);
    *n = (Node){.kind = kind, .at = at, .height = 1};
    for (uint32_t i = 0; i < nkid; i++) {
        PUSH(lx->arena, n->kid, n->nkid, kid[i]);
        if (n->height <= kid[i]->height)
            n->height = kid[i]->height + 1;
    }
    return n->height > HEIGHT_LIMIT ? too_high(lx, at) : n;
}

Node *node_add(Lexer *lx, Node *list, Node *kid)
{
    if (kid->height >= HEIGHT_LIMIT)
        kid = too_high(lx, kid->at);
    if (list->height <= kid->height)
        list->height = kid->height + 1;
    list->at = list->nkid || list->at.end > list->at.start ? span_join(list->at, kid->at) : kid->at;
    PUSH(lx->arena, list->kid, list->nkid, kid);
    return list;
}

Node *node_binary(Lexer *lx, BinaryOp op, Node *left, Span at, Node *right)
{
    Node *n = node_make(lx, N_BINARY, span_join(left->at, right->at), (Node *[]){left, right}, 2);
    n->op = at;
    n->ival = op;
    return n;
}

Node *node_pipe(Lexer *lx, Node *value, Span op, Node *call)
{
    Node *n = node_make(lx, N_PIPE, span_join(value->at, call->at), (Node *[]){value, call}, 2);
    n->op = op;
    return n;
}

/* A product that was written without parentheses around it (a parenthesised
 * expression's span is wider than its operands'). */
static bool is_bare_product(const Node *n)
{
    return n->kind == N_BINARY && n->ival == B_MUL && n->at.start == n->kid[0]->at.start;
}

/* The first bare '*' at the top of a sum, or NULL. */
static const Node *find_product(const Node *n)
{
    while (n->kind == N_BINARY && n->at.start == n->kid[0]->at.start) {
        if (n->ival == B_MUL)
            return n;
        const Node *found = find_product(n->kid[1]);
        if (found)
            return found;
        n = n->kid[0];
    }
    return NULL;
}

Node *node_mesh_size(Lexer *lx, Node *first, Node *last, Span at)
{
    bool factored = !last && is_bare_product(first);
    const Node *bad = factored ? find_product(first->kid[0]) : find_product(first);
    if (!bad && last)
        bad = find_product(last);
    if (bad) {
        Diag *d = diag_error(lx->ds, bad->op, "a product inside a mesh size needs parentheses");
        diag_help(lx->ds, d, "'4 * 2' makes an outer and an inner part; '(4 * 2)' is 8");
    }
    if (factored)
        return node_make(lx, N_FACTORED, at, first->kid, 2);
    return last ? node_make(lx, N_RANGE, at, (Node *[]){first, last}, 2) : first;
}

/* ---- printing ---- */

static const char *const binary_text[] = {
    [B_OR] = "or", [B_AND] = "and", [B_EQ] = "==", [B_NE] = "!=", [B_LT] = "<", [B_GT] = ">", [B_LE] = "<=",
    [B_GE] = ">=", [B_ADD] = "+", [B_SUB] = "-", [B_MUL] = "*", [B_DIV] = "/", [B_MOD] = "%",
};

static const char *const unit_text[] = {
    [UNIT_NUMBER] = "", [UNIT_BYTES] = "B", [UNIT_BYTES_PER_S] = "B/s", [UNIT_FLOP] = "FLOP",
    [UNIT_FLOP_PER_S] = "FLOP/s", [UNIT_SECONDS] = "s", [UNIT_FRACTION] = "fraction",
};

static bool print_leaf(Text *t, const Node *n)
{
    switch (n->kind) {
    case N_NONE_NODE: text_add(t, "-"); return true;
    case N_NAME:
    case N_DTYPE:     text_add(t, "%s", n->text); return true;
    case N_INT:       text_add(t, "%lld", (long long)n->ival); return true;
    case N_REAL:      text_add(t, "%.15gr", n->fval); return true;
    case N_QUANTITY:  text_add(t, "%.15g:%s", n->fval, unit_text[n->ival]); return true;
    case N_STRING:    text_add(t, "\"%s\"", n->text); return true;
    case N_TRUE_:     text_add(t, "true"); return true;
    case N_FALSE_:    text_add(t, "false"); return true;
    case N_NONE:      text_add(t, "none"); return true;
    case N_AUTO:      text_add(t, "auto"); return true;
    case N_DOTS:      text_add(t, ".."); return true;
    default:          return false;
    }
}

void node_print(Text *t, const Node *n)
{
    if (print_leaf(t, n))
        return;
    text_add(t, "(%s", n->kind == N_BINARY ? binary_text[n->ival] : node_kind_name(n->kind));
    for (uint32_t i = 0; i < n->nkid; i++) {
        text_add(t, " ");
        node_print(t, n->kid[i]);
    }
    text_add(t, ")");
}

/* ---- comparing ---- */

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

bool nodes_equal(const Node *a, const Node *b)
{
    if (a->kind != b->kind || a->nkid != b->nkid || a->ival != b->ival)
        return false;
    bool leaf_of_text = a->kind == N_NAME || a->kind == N_STRING || a->kind == N_DTYPE;
    if (leaf_of_text ? !same_text(a->text, b->text) : memcmp(&a->fval, &b->fval, sizeof a->fval) != 0)
        return false;
    for (uint32_t i = 0; i < a->nkid; i++)
        if (!nodes_equal(a->kid[i], b->kid[i]))
            return false;
    return true;
}
