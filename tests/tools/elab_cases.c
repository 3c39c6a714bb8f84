/* elab_cases FILE -- elaborate every case of a file and print what comes of it.
 *
 * A case begins with '## TITLE', or '## TITLE -D name=value ...', and runs to the
 * next.  Mistakes are printed as a user sees them; otherwise every op with the axes
 * and roles of its arguments and results, and every weight with its start. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "frontend/frontend.h"

enum { MAX_DEFINES = 16 };

typedef struct Case {
    Arena   *input, *graph;
    Sources *sources;
    Diags   *ds;
    Define   define[MAX_DEFINES];
    uint32_t ndefine;
} Case;

/* ---- printing ---- */

static void print_value(const Graph *g, const Op *op, ValueId v, const uint8_t *factor)
{
    const Value *val = value_of(g, v);
    printf(" %s:%s[", val->path, dtype_name(val->dtype));
    for (int i = 0; i < val->rank; i++)
        printf("%s%s/%c", i ? ", " : "", dim_of(g, val->axis[i])->name, op->factor[factor[i]].role);
    printf("]");
}

static void print_attrs(const Op *op)
{
    const OpSig *sig = op_sig(op->kind);
    for (int i = 0, a = 0; i < sig->nformal; i++) {
        if (sig->formal[i].kind != SIG_SCALAR)
            continue;
        const Attr *at = &op->attr[a++];
        if (at->kind == ATTR_INT || at->kind == ATTR_BOOL)
            printf(" %s=%" PRId64, sig->formal[i].name, at->i);
        else if (at->kind == ATTR_REAL)
            printf(" %s=%g", sig->formal[i].name, at->f);
        else if (at->kind == ATTR_DTYPE)
            printf(" %s=%s", sig->formal[i].name, dtype_name((DType)at->i));
    }
}

static void print_op(const Graph *g, const Op *op)
{
    printf("%s", op_info[op->kind].name);
    print_attrs(op);
    printf(":");
    for (int o = 0; o < op->nout; o++)
        print_value(g, op, op->out[o], op->out_factor[o]);
    printf(" <-");
    for (int a = 0; a < op->narg; a++)
        if (has_value(op->arg[a]))
            print_value(g, op, op->arg[a], op->arg_factor[a]);
        else
            printf(" -");
    printf("\n");
}

static void print_weight(const Graph *g, const Weight *w)
{
    static const char *const name[] = {
#define X(name, nparam) #name,
        INIT_LIST(X)
#undef X
    };
    const Value *v = value_of(g, w->value);
    printf("weight %s %s %s(%g, %g) fans %" PRId64 " %" PRId64 "%s%s\n", v->path, dtype_name(v->dtype), name[w->init.kind], w->init.a, w->init.b,
           w->init.fan_in, w->init.fan_out, w->decays ? " decays" : "", w->frozen ? " frozen" : "");
}

static void print_graph(const Graph *g)
{
    for (uint32_t i = 0; i < g->nop; i++)
        print_op(g, &g->op[i]);
    for (uint32_t i = 0; i < g->nweight; i++)
        print_weight(g, &g->weight[i]);
    graph_check(g, stdout);                          /* prints what is broken */
}

/* ---- cases ---- */

static void add_defines(Case *c, char *text)
{
    for (char *word = strtok(text, " "); word && c->ndefine < MAX_DEFINES; word = strtok(NULL, " ")) {
        char *equals = strchr(word, '=');
        if (!equals)
            continue;                                /* the -D itself */
        Source *s = sources_add(c->sources, "<command line>", word, strlen(word));
        s->excerpt = false;
        uint32_t name = (uint32_t)(equals - word);
        c->define[c->ndefine++] = (Define){.name = arena_strndup(c->input, word, name), .value = equals + 1,
                                           .named = {s->start, s->start + name}, .at = {s->start + name + 1, s->start + s->bytes}};
    }
}

static void run_case(char *title, const char *text, size_t bytes)
{
    Case c = {.input = arena_new("input"), .graph = arena_new("graph")};
    Units units;
    Graph *g = NULL;
    c.sources = sources_new(c.input);
    c.ds = diags_new(c.sources);
    printf("## %s\n", title);
    char *options = strstr(title, " -D ");
    if (options)
        add_defines(&c, arena_strdup(c.input, options + 1));
    Status s = parse_text(c.ds, "m.pmodel", text, bytes, (IncludePath){NULL, 0}, &units);
    if (s == OK && diags_status(c.ds) == OK)
        s = elaborate_model(c.ds, &units, NULL, c.define, c.ndefine, c.graph, &g);
    if (s == OK && g)
        s = defines_check(c.ds, &units, NULL, g, c.define, c.ndefine);
    diags_flush(c.ds, stdout);
    if (s == OK && g)
        print_graph(g);
    printf("\n");
    arena_free(c.graph);
    arena_free(c.input);
}

int main(int argc, char **argv)
{
    Arena *a = arena_new("input");
    size_t bytes;
    char *text = argc == 2 ? read_file(a, argv[1], &bytes) : NULL;
    if (!text) {
        perror(argc == 2 ? argv[1] : "usage: elab_cases FILE");
        return 2;
    }
    for (char *title = strstr(text, "\n## "); title;) {
        char *body = strchr(title + 1, '\n') + 1, *next = strstr(body, "\n## ");
        size_t n = next ? (size_t)(next + 1 - body) : strlen(body);
        run_case(arena_strndup(a, title + 4, (size_t)(body - 1 - title - 4)), body, n);
        title = next;
    }
    arena_free(a);
    return 0;
}
