/* Parser, includes and formatter: text in, tree out. */
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/syntax.h"

/* ---- trees ---- */

/* What is expected stands between "(FILE_ " and ")". */
static void check_trees(const Case *c, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        Run r = run_text(c[i].text);
        assert_string_equal(messages(&r), "");
        assert_string_equal(dump(&r), arena_printf(r.arena, "(FILE_ %s)", c[i].want));
        arena_free(r.arena);
    }
}

static void items_and_statements(void **state)
{
    (void)state;
    static const Case cases[] = {
        {"model m { }", "(MODEL m - (STMTS))"},
        {"model m \"a doc\" {\n}", "(MODEL m \"a doc\" (STMTS))"},
        {"include \"a b.pmodel\" ; model m { }\n", NULL},
        {"block f(x[.., d], y[], dim n, dim k = 2 * 3, p = 0.5, q) { return x, y }",
         "(BLOCK f (FORMALS (TENSOR x (AXES .. d)) (TENSOR y (AXES)) (DIMFORMAL n -) (DIMFORMAL k (* 2 3)) "
         "(SCALAR p 0.5r) (SCALAR q -)) - (STMTS (RETURN x y)))"},
        {"block f() -> [.., d], z, route[s] { }",
         "(BLOCK f (FORMALS) (RESULTS (AXES .. d) z (TENSOR route (AXES s))) (STMTS))"},
        {"op f(x[.., h!, w]) -> [.., h!] owns w[h], b[]\nop g()",
         "(OPDECL f (FORMALS (TENSOR x (AXES .. (WHOLEAXIS h) w))) (RESULTS (AXES .. (WHOLEAXIS h))) "
         "(OWNS (TENSOR w (AXES h)) (TENSOR b (AXES)))) (OPDECL g (FORMALS) - -)"},
        {"model m {\n dim a = 1 \"doc\", b = a\n param p = none\n let q = auto, r = \"s\"\n}",
         "(MODEL m - (STMTS (DIMS (BIND a 1 \"doc\") (BIND b a -)) (PARAMS (BIND p none -)) "
         "(LETS (BIND q auto -) (BIND r \"s\" -))))"},
        {"model m { require a <= b, \"why\"; require true }",
         "(MODEL m - (STMTS (REQUIRE (<= a b) \"why\") (REQUIRE true -)))"},
        {"model m { input x[a, b] : i32; weight w[a]; weight v[a] : bf16 ~ zeros; weight u[] ~ normal(0.02) frozen\n"
         "weight frozen[frozen] frozen }",
         "(MODEL m - (STMTS (INPUT x (AXES a b) i32) (WEIGHT w (AXES a) - - -) (WEIGHT v (AXES a) bf16 zeros -) "
         "(WEIGHT u (AXES) - (CALL - normal (ARGS 0.02r)) true) (WEIGHT frozen (AXES frozen) - - true)))"},
        {"model m { x = 1; y, z = f(x); t[a, ..] = x * y; output x, y; minimize x; return x }",
         "(MODEL m - (STMTS (ASSIGN (TARGETS x) 1) (ASSIGN (TARGETS y z) (CALL - f (ARGS x))) "
         "(AXASSIGN t (AXES a ..) (* x y)) (OUTPUT x y) (MINIMIZE x) (RETURN x)))"},
        {"model m { repeat n as h { x = 1 } repeat 2 * n as h[i] { } }",
         "(MODEL m - (STMTS (REPEAT n h - (STMTS (ASSIGN (TARGETS x) 1))) (REPEAT (* 2 n) h i (STMTS))))"},
        {"model m { if a { x = 1 } else { x = 2 }\n if not a { } }",
         "(MODEL m - (STMTS (IF a (STMTS (ASSIGN (TARGETS x) 1)) (STMTS (ASSIGN (TARGETS x) 2))) "
         "(IF (NOT a) (STMTS) -)))"},
        {"model m { precision { compute = bf16, reduce = f32, }\n optimizer adamw { lr = 1e-3\n eps = 1e-8 }\n"
         "defaults { linear.init.f32 = kaiming } }",
         "(MODEL m - (STMTS (PRECISION (SETTINGS (PAIR (KEY compute) bf16) (PAIR (KEY reduce) f32))) "
         "(OPTIMIZER adamw (SETTINGS (PAIR (KEY lr) 0.001r) (PAIR (KEY eps) 1e-08r))) "
         "(DEFAULTS (SETTINGS (PAIR (KEY linear init f32) kaiming)))))"},
    };
    check_trees(cases, 2);
    check_trees(cases + 3, COUNT(cases) - 3);
}

/* The text is an expression; the tree stands alone. */
static void check_expressions(const Case *c, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        Run r = run_new();
        Source *s = sources_add(r.ds->sources, "t", c[i].text, strlen(c[i].text));
        const Node *node = parse_expression(r.ds, (Span){s->start, s->start + s->bytes});
        Text t = text_new(r.arena);
        if (node)
            node_print(&t, node);
        assert_string_equal(messages(&r), "");
        assert_string_equal(t.s, c[i].want);
        arena_free(r.arena);
    }
}

static void expressions(void **state)
{
    (void)state;
    static const Case cases[] = {
        {"a or b and not c == d", "(or a (and b (NOT (== c d))))"},
        {"a + b * c - d / e % f", "(- (+ a (* b c)) (% (/ d e) f))"},
        {"-a * b", "(* (NEG a) b)"},
        {"- -a[b]", "(NEG (NEG (SELECT a b)))"},
        {"(a + b) * c", "(* (+ a b) c)"},
        {"a < b", "(< a b)"},
        {"a >= b != c", NULL},
        {"if a then b else c + 1", "(COND a b (+ c 1))"},
        {"f()", "(CALL - f (ARGS))"},
        {"l: f(a, b = 1,)", "(CALL l f (ARGS a (KWARG b 1)))"},
        {"x |> f |> l: g |> h(1)", "(PIPE (PIPE (PIPE x (CALL - f (ARGS))) (CALL l g (ARGS))) (CALL - h (ARGS 1)))"},
        {"a + b |> f", "(PIPE (+ a b) (CALL - f (ARGS)))"},
        {"[a, [1, 2,], f(x)]", "(LIST a (LIST 1 2) (CALL - f (ARGS x)))"},
        {"x[a, .., b = 1, c = 0..n - 1][d]", "(SELECT (SELECT x a .. (AT b 1) (SLICE c 0 (- n 1))) d)"},
        {"f(x)[a = 0]", "(SELECT (CALL - f (ARGS x)) (AT a 0))"},
        {"f(bf16, none, auto, true, false, \"s\")", "(CALL - f (ARGS bf16 none auto true false \"s\"))"},
        {"f(a,\n\n  b) # c", "(CALL - f (ARGS a b))"},
    };
    check_expressions(cases, 6);
    check_expressions(cases + 7, COUNT(cases) - 7);
}

static void plans(void **state)
{
    (void)state;
    static const Case cases[] = {
        {"plan { }", "(PLAN - (RULES))"},
        {"plan gpt2 on c { x = 1 }", "(PLANON gpt2 c (RULES (RULE - (SETTING x 1))))"},
        {"plan for m { mesh a = 2, b = 1..8, c = 4 * 2, d = (4 * 2), e = auto, f = [1, 2], g = 1..(2*n) }",
         "(PLAN m (RULES (RULE - (MESH (MESHAXIS a 2) (MESHAXIS b (RANGE 1 8)) (MESHAXIS c (FACTORED 4 2)) "
         "(MESHAXIS d (* 4 2)) (MESHAXIS e auto) (MESHAXIS f (LIST 1 2)) (MESHAXIS g (RANGE 1 (* 2 n)))))))"},
        {"plan { split a, b in h[0..3].mlp.add[1] by tp; prefer split a by (cp, dp.outer) zigzag }",
         "(PLAN - (RULES (RULE - (SPLIT (NAMES a b) (PATH h (INDICES 0 3) mlp add (INDEX 1)) (MREF (MAXIS tp -)) -)) "
         "(RULE (PREFER) (SPLIT (NAMES a) - (MREF (MAXIS cp -) (MAXIS dp outer)) zigzag))))"},
        {"plan { keep a whole; keep a, b whole in h; pad v to 128; save h; recompute h; recompute h.attn cheap }",
         "(PLAN - (RULES (RULE - (KEEP (NAMES a) -)) (RULE - (KEEP (NAMES a b) (PATH h))) (RULE - (PAD v 128)) "
         "(RULE - (SAVE (PATH h))) (RULE - (RECOMPUTE (PATH h) -)) (RULE - (RECOMPUTE (PATH h attn) cheap))))"},
        {"plan { stage before h[6]; stage after embed; stage every 4 in h\n stage 2 { mesh dp = 1; mesh tp = 4 }\n"
         "prefer stage 0 {\n mesh a = 1, b = 2\n } }",
         "(PLAN - (RULES (RULE - (STAGEBEFORE (PATH h (INDEX 6)))) (RULE - (STAGEAFTER (PATH embed))) "
         "(RULE - (STAGEEVERY 4 (PATH h))) (RULE - (STAGEMESH 2 (MESH (MESHAXIS dp 1)) (MESH (MESHAXIS tp 4)))) "
         "(RULE (PREFER) (STAGEMESH 0 (MESH (MESHAXIS a 1) (MESHAXIS b 2))))))"},
        {"plan { shard optimizer by dp.inner; shard weights by (dp, ep); offload optimizer to host\n set batch = 64 }",
         "(PLAN - (RULES (RULE - (SHARD optimizer (MREF (MAXIS dp inner)))) "
         "(RULE - (SHARD weights (MREF (MAXIS dp -) (MAXIS ep -)))) (RULE - (OFFLOAD optimizer host)) "
         "(RULE - (SET batch 64))))"},
        {"plan { devices = [[0, 1]]; schedule = \"1f1b\" }",
         "(PLAN - (RULES (RULE - (SETTING devices (LIST (LIST 0 1)))) (RULE - (SETTING schedule \"1f1b\"))))"},
    };
    check_trees(cases, COUNT(cases));
}

static void machines(void **state)
{
    (void)state;
    static const Case cases[] = {
        {"device d \"doc\" { memory = 80 GB\n peak.bf16 = 989 TFLOP/s, launch = 4 us }",
         "(DEVICE d \"doc\" (SETTINGS (PAIR (KEY memory) 80000000000:B) (PAIR (KEY peak bf16) 989000000000000:FLOP/s) "
         "(PAIR (KEY launch) 4e-06:s)))"},
        {"cluster c { param n = 4, m = 2 \"doc\"\n level a = 8 * d { link = 1 GB/s }\n level b = n * 2 * a\n"
         "level e = 2 * a + (n + 1) * x\n host.memory = 2 TB }",
         "(CLUSTER c - (PARAMS (BIND n 4 -) (BIND m 2 \"doc\")) "
         "(LEVEL a (GROUP 8 d) (SETTINGS (PAIR (KEY link) 1000000000:B/s))) (LEVEL b (GROUP (* n 2) a) -) "
         "(LEVEL e (GROUP 2 a) (GROUP (+ n 1) x) -) (PAIR (KEY host memory) 2000000000000:B))"},
    };
    check_trees(cases, COUNT(cases));
}

static void words_are_names_elsewhere(void **state)
{
    (void)state;
    static const Case cases[] = {
        {"model stage { mesh = split; level = for + on; weights = whole\n frozen = 1 }",
         "(MODEL stage - (STMTS (ASSIGN (TARGETS mesh) split) (ASSIGN (TARGETS level) (+ for on)) "
         "(ASSIGN (TARGETS weights) whole) (ASSIGN (TARGETS frozen) 1)))"},
        {"plan { level = for; recompute h.save.to\n keep on whole }",
         "(PLAN - (RULES (RULE - (SETTING level for)) (RULE - (RECOMPUTE (PATH h save to) -)) "
         "(RULE - (KEEP (NAMES on) -))))"},
        {"cluster mesh { stage = 1 }\ndevice split { to = 1 }",
         "(CLUSTER mesh - (PAIR (KEY stage) 1)) (DEVICE split - (SETTINGS (PAIR (KEY to) 1)))"},
    };
    check_trees(cases, COUNT(cases));
}

static void newlines_end_statements(void **state)
{
    (void)state;
    static const Case cases[] = {
        {"", NULL},
        {"model m {\n\n x = 1 ;; y = 2\n\n}", "(MODEL m - (STMTS (ASSIGN (TARGETS x) 1) (ASSIGN (TARGETS y) 2)))"},
        {"model m {\n x = a\n\n  # why\n\n  |> f # c\n  |> g\n}",
         "(MODEL m - (STMTS (ASSIGN (TARGETS x) (PIPE (PIPE a (CALL - f (ARGS))) (CALL - g (ARGS))))))"},
        {"model m {\n x = a +\n b\n y = f(\n a\n ,\n b\n )\n}",
         "(MODEL m - (STMTS (ASSIGN (TARGETS x) (+ a b)) (ASSIGN (TARGETS y) (CALL - f (ARGS a b)))))"},
        {"model m {\r\n x = 1\r\n \"\r\n", NULL},
        {"model m {\r\n x = 1 # c\r\n y = f(a,\r\n b)\r\n}\r\n",
         "(MODEL m - (STMTS (ASSIGN (TARGETS x) 1) (ASSIGN (TARGETS y) (CALL - f (ARGS a b)))))"},
        {"\xEF\xBB\xBFmodel m { x = 1 } # \xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80",
         "(MODEL m - (STMTS (ASSIGN (TARGETS x) 1)))"},
        {"model m {\n if a {\n }\n else\n {\n }\n}", "(MODEL m - (STMTS (IF a (STMTS) (STMTS))))"},
    };
    check_trees(cases + 1, 3);
    check_trees(cases + 5, COUNT(cases) - 5);
    static const char *const empty[] = {"", "\n", "# c", "\n\n# c\n\n", ";;", "\xEF\xBB\xBF"};
    for (size_t i = 0; i < COUNT(empty); i++) {
        Run r = run_text(empty[i]);
        assert_string_equal(messages(&r), "");
        assert_string_equal(dump(&r), "(FILE_)");
        arena_free(r.arena);
    }
}

/* ---- numbers ---- */

static void quantities_are_exact(void **state)
{
    (void)state;
    static const struct { const char *text; double want; UnitKind unit; } cases[] = {
        {"80 GB", 80e9, UNIT_BYTES}, {"2GiB", 2147483648.0, UNIT_BYTES}, {"1 KiB", 1024, UNIT_BYTES},
        {"1 kB", 1000, UNIT_BYTES}, {"1 KB", 1000, UNIT_BYTES}, {"3 B", 3, UNIT_BYTES}, {"1 EiB", 0x1p60, UNIT_BYTES},
        {"8 Gb", 1e9, UNIT_BYTES}, {"8 Kib", 1024, UNIT_BYTES}, {"3.35 TB/s", 3.35e12, UNIT_BYTES_PER_S},
        {"400 Gb/s", 50e9, UNIT_BYTES_PER_S}, {"16 Mib/s", 2097152, UNIT_BYTES_PER_S}, {"1 GFLOP", 1e9, UNIT_FLOP},
        {"989 TFLOP/s", 989e12, UNIT_FLOP_PER_S}, {"1_000 PFLOP/s", 1e18, UNIT_FLOP_PER_S}, {"4 us", 4e-6, UNIT_SECONDS},
        {"1.9 us", 1.9e-6, UNIT_SECONDS}, {"5 ns", 5e-9, UNIT_SECONDS}, {"7 ms", 7e-3, UNIT_SECONDS},
        {"1.5 s", 1.5, UNIT_SECONDS}, {"85%", 0.85, UNIT_FRACTION}, {"1e3 MB", 1e9, UNIT_BYTES},
        {"1e-3 MB", 1e3, UNIT_BYTES}, {"0 GB", 0, UNIT_BYTES}, {"0.1 %", 0, UNIT_NUMBER},
    };
    for (size_t i = 0; i + 1 < COUNT(cases); i++) {
        Run r = run_new();
        Source *s = sources_add(r.ds->sources, "t", cases[i].text, strlen(cases[i].text));
        const Node *n = parse_expression(r.ds, (Span){s->start, s->start + s->bytes});
        assert_string_equal(messages(&r), "");
        assert_int_equal(n->kind, N_QUANTITY);
        assert_int_equal(n->ival, cases[i].unit);
        assert_true(n->fval == cases[i].want);
        assert_string_equal(n->text, cases[i].text);
        arena_free(r.arena);
    }
}

static void numbers(void **state)
{
    (void)state;
    static const Case cases[] = {
        {"[768, 50_257, 0, 9223372036854775807]", "(LIST 768 50257 0 9223372036854775807)"},
        {"[0.1, 1e-5, 500_000.0, 1E3, 0e999, 2.5e+2]", "(LIST 0.1r 1e-05r 500000r 1000r 0r 250r)"},
        {"7 % 2", "(% 7 2)"}, {"7%2", "(% 7 2)"}, {"7%(2)", "(% 7 2)"}, {"n %2", "(% n 2)"},
        {"f(85%, 2)", "(CALL - f (ARGS 0.85:fraction 2))"},
        {"8 + s", "(+ 8 s)"}, {"x[a = 8..9]", "(SELECT x (SLICE a 8 9))"}, {"x[a = 1..s]", "(SELECT x (SLICE a 1 s))"},
    };
    check_expressions(cases, COUNT(cases));
}

/* ---- spans ---- */

static const Node *child(const Node *n, uint32_t a, uint32_t b)
{
    return n->kid[a]->kid[b];
}

static void spans_cover_the_text(void **state)
{
    (void)state;
    Run r = run_text("model m {\n  x = (a + b) * f(c)[d = 1]\n}\n");
    const Node *assign = root(&r)->kid[0]->kid[2]->kid[0], *product = assign->kid[1];
    const Sources *ss = r.ds->sources;
    assert_string_equal(sources_text(ss, assign->at), "x = (a + b) * f(c)[d = 1]");
    assert_string_equal(sources_text(ss, product->op), "*");
    assert_string_equal(sources_text(ss, product->kid[0]->at), "(a + b)");
    assert_string_equal(sources_text(ss, product->kid[1]->at), "f(c)[d = 1]");
    assert_string_equal(sources_text(ss, child(product, 1, 0)->at), "f(c)");
    assert_string_equal(sources_text(ss, child(product, 1, 1)->at), "d = 1");
    assert_int_equal(sources_line(ss, product->at.start), 2);
    arena_free(r.arena);
}

/* ---- includes ---- */

typedef struct Folder {
    char dir[64];
} Folder;

static int folder_setup(void **state)
{
    Folder *f = calloc(1, sizeof *f);
    const char *tmp = getenv("TMP");
    snprintf(f->dir, sizeof f->dir, "%.40s/syntax.XXXXXX", tmp ? tmp : "/tmp");
    *state = f;
    return mkdtemp(f->dir) ? 0 : -1;
}

static int folder_teardown(void **state)
{
    Folder *f = *state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", f->dir);
    int status = system(command);
    free(f);
    return status;
}

static void write_file(const char *name, const char *text)
{
    FILE *f = fopen(name, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static Run run_file(const char *path, const char *const *dir, uint32_t ndir)
{
    Run r = run_new();
    assert_int_equal(parse_file(r.ds, path, (IncludePath){dir, ndir}, &r.units), OK);
    return r;
}

static void includes(void **state)
{
    const Folder *f = *state;
    char home[4096];
    static const char *const dirs[] = {"lib"};
    assert_non_null(getcwd(home, sizeof home));
    assert_int_equal(chdir(f->dir), 0);
    mkdir("std", 0777);
    mkdir("lib", 0777);
    write_file("std/a.pmodel", "include \"b.pmodel\"\ninclude \"../main.pmodel\"\nblock a() { }\n");
    write_file("std/b.pmodel", "include \"a.pmodel\"\nblock b() { }\n");
    write_file("lib/c.pmodel", "block c() { }\n");
    write_file("main.pmodel", "include \"std/a.pmodel\"\ninclude \"std/./b.pmodel\"\ninclude \"c.pmodel\"\nmodel m { }\n");
    Run r = run_file("main.pmodel", dirs, 1);
    assert_string_equal(messages(&r), "");
    static const char *const order[] = {"std/b.pmodel", "std/a.pmodel", "lib/c.pmodel", "main.pmodel"};
    assert_int_equal(r.units.nunit, COUNT(order));
    for (size_t i = 0; i < COUNT(order); i++)
        assert_string_equal(r.units.unit[i].source->path, order[i]);
    arena_free(r.arena);

    write_file("missing.pmodel", "include \"c.pmodel\"\ninclude \"std\"\ninclude \"/nowhere/x\"\nmodel m { x = = 1 }\n");
    static const char *const nowhere[] = {"other", "deep/er"};
    r = run_file("./missing.pmodel", nowhere, 2);
    assert_string_equal(messages(&r),
        "./missing.pmodel:1:9: error: cannot find 'c.pmodel'\n"
        "    1 | include \"c.pmodel\"\n"
        "      |         ^~~~~~~~~~\n"
        "note: looked for './c.pmodel'\n"
        "note: looked for 'other/c.pmodel'\n"
        "note: looked for 'deep/er/c.pmodel'\n"
        "./missing.pmodel:2:9: error: cannot include './std': it is not a file\n"
        "    2 | include \"std\"\n"
        "      |         ^~~~~\n"
        "./missing.pmodel:3:9: error: cannot find '/nowhere/x'\n"
        "    3 | include \"/nowhere/x\"\n"
        "      |         ^~~~~~~~~~~~\n"
        "./missing.pmodel:4:15: error: unexpected '='\n"
        "    4 | model m { x = = 1 }\n"
        "      |               ^\n");
    arena_free(r.arena);

    for (int i = 0; i < 100; i++) {
        char name[32], text[64];
        snprintf(name, sizeof name, "n%d", i);
        snprintf(text, sizeof text, "include \"n%d\"\n", i + 1);
        write_file(name, text);
    }
    r = run_file("n0", NULL, 0);
    assert_non_null(strstr(messages(&r), "error: included too deeply: at most 64 files may wait for one another\n"));
    arena_free(r.arena);

    r = run_new();
    assert_int_equal(parse_file(r.ds, "not_there.pmodel", (IncludePath){0}, &r.units), ERR_REJECT);
    arena_free(r.arena);
    assert_int_equal(chdir(home), 0);
}

/* ---- formatting ---- */

static const char *format_again(Run *r, const char *text)
{
    Units units;
    assert_int_equal(parse_text(r->ds, "formatted", text, strlen(text), (IncludePath){0}, &units), OK);
    return format_source(r->arena, r->ds, units.unit[units.nunit - 1].source);
}

static void layouts(void **state)
{
    (void)state;
    static const Case cases[] = {
        {"", ""},
        {"\n\n# c  \n\n\n\n# d\n\n", "# c\n\n# d\n"},
        {"model m{x=1;y=-2*f( a,b = 3 , )}", "model m {\n  x = 1\n  y = -2 * f(a, b = 3)\n}\n"},
        {"model m { x=1 }", "model m { x = 1 }\n"},
        {"model m {\n\n\n x = 1\n\n\n y = [1,\n2,\n]\n\n}\n\n\n",
         "model m {\n  x = 1\n\n  y = [1,\n       2,\n      ]\n}\n"},
        {"model m {\nx = f(\na, # one\nb\n)\n}", "model m {\n  x = f(\n      a,  # one\n      b\n  )\n}\n"},
        {"model m { if a { x = 1 } else { x = 2 } }", "model m { if a { x = 1 } else { x = 2 } }\n"},
        {"model m { if a { x = 1; y = 2 }\n\n else # why\n { x = 2 } }",
         "model m {\n  if a {\n    x = 1\n    y = 2\n  } else  # why\n  {\n    x = 2\n  }\n}\n"},
        {"model m {\n dim a = 1 \"x\"\n dim long = 22 \"y\" # c\n dim b = 1, c = 2\n param p = 3\n}",
         "model m {\n  dim a    = 1   \"x\"\n  dim long = 22  \"y\"  # c\n  dim b    = 1, c = 2\n  param p = 3\n}\n"},
        {"model m {\n x = 1\n # between\n yy = 2\n\n zzz = 3\n w = 4\n w_very_long_name = 5\n}",
         "model m {\n  x  = 1\n  # between\n  yy = 2\n\n  zzz = 3\n  w   = 4\n  w_very_long_name = 5\n}\n"},
        {"model m {\n input a[b] : f32\n input c[b, d] : i32\n weight e[b] ~ zeros\n weight f[b, d] ~ ones\n}",
         "model m {\n  input a[b]    : f32\n  input c[b, d] : i32\n  weight e[b]    ~ zeros\n  weight f[b, d] ~ ones\n}\n"},
        {"model m {\n defaults { a = 1 }\n precision { b = f32 }\n optimizer sgd {\n lr = 1, eps = 2, # c\n steps = 3\n}\n}",
         "model m {\n  defaults  { a = 1 }\n  precision { b = f32 }\n  optimizer sgd {\n    lr = 1, eps = 2  # c\n"
         "    steps = 3\n  }\n}\n"},
        {"model m {\n x = a\n # c\n |> f\n y = b +\n c\n dim d = 1,\n e = 2\n}",
         "model m {\n  x = a\n      # c\n      |> f\n  y = b +\n      c\n  dim d = 1,\n      e = 2\n}\n"},
        {"device d { a = 80GB, b = 85%, c = 1  us, e = 7%2 }", "device d { a = 80 GB, b = 85%, c = 1 us, e = 7 % 2 }\n"},
        {"device d { first_setting = 100000000000, second_setting = 100000000000, third_setting = 100000000000, f = 1000 }",
         "device d {\n  first_setting  = 100000000000\n  second_setting = 100000000000\n  third_setting  = 100000000000\n"
         "  f = 1000\n}\n"},
        {"cluster c {\nlevel a=8*d{link=1 GB/s}\nlevel bcd=n*a{link=2 GB/s}\n}",
         "cluster c {\n  level a   = 8 * d { link = 1 GB/s }\n  level bcd = n * a { link = 2 GB/s }\n}\n"},
        {"plan{mesh a=1 .. 2,b=4*2;split x in h[ 0..3 ].f by(a,b.outer);stage 1{mesh a=1}}",
         "plan {\n  mesh a = 1..2, b = 4 * 2\n  split x in h[0..3].f by (a, b.outer)\n  stage 1 { mesh a = 1 }\n}\n"},
        {"op f(x[..,h!])->[..]owns w[h]", "op f(x[.., h!]) -> [..] owns w[h]\n"},
        {"model m {\r\n x = 1 # c \r\n}\r\n", "model m {\n  x = 1  # c\n}\n"},
        {"model m { x = l:f(y)[a = 0,..]; t[a,..] = if not b then -1 else (2) }",
         "model m {\n  x = l: f(y)[a = 0, ..]\n  t[a, ..] = if not b then -1 else (2)\n}\n"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        Run r = run_text(cases[i].text);
        const char *got = format_source(r.arena, r.ds, r.units.unit[0].source);
        assert_string_equal(messages(&r), "");
        assert_string_equal(got, cases[i].want);
        assert_string_equal(format_again(&r, got), got);
        arena_free(r.arena);
    }
}

static void bundled_files_survive_formatting(void **state)
{
    (void)state;
    static const char *const patterns[] = {
        "models/*.p*", "models/*/*.p*", "tests/golden/syntax/*.pmodel", "tests/golden/syntax/*.pplan",
        "tests/golden/syntax/*.pcluster",
    };
    size_t checked = 0;
    for (size_t p = 0; p < COUNT(patterns); p++) {
        glob_t found;
        if (glob(patterns[p], 0, NULL, &found) != 0)
            continue;
        for (size_t i = 0; i < found.gl_pathc; i++) {
            Run r = run_new();
            Source *source = NULL;
            assert_int_equal(read_source(r.ds, found.gl_pathv[i], (IncludePath){0}, &source), OK);
            const char *once = format_source(r.arena, r.ds, source);
            if (!once)
                assert_non_null(strstr(source->path, "golden"));  /* a case about mistakes */
            if (once) {
                Units before, after;
                parse_text(r.ds, "before", source->text, source->bytes, (IncludePath){0}, &before);
                parse_text(r.ds, "after", once, strlen(once), (IncludePath){0}, &after);
                assert_true(nodes_equal(before.unit[before.nunit - 1].root, after.unit[after.nunit - 1].root));
                assert_string_equal(format_again(&r, once), once);
                checked++;
            }
            arena_free(r.arena);
        }
        globfree(&found);
    }
    assert_true(checked >= 20);
}

static void equality_sees_every_difference(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "model m { x = 1 }", "model n { x = 1 }", "model m { x = 2 }", "model m { x = 1.0 }", "model m { x = 1 GB }",
        "model m { x = 1 GB/s }", "model m { x = a }", "model m { x = \"a\" }", "model m { x = a + b }",
        "model m { x = a - b }", "model m { x = f(a) }", "model m { x = f(a, b) }", "model m { x = 1; y = 1 }",
        "model m { x = f32 }", "model m { x = f16 }", "model m { x = 0.0 }", "model m { x = -1 }",
        "model m { x, y = 1 }", "model m { x[y] = 1 }", "block m() { x = 1 }",
    };
    Run r = run_new();
    const Node *tree[COUNT(texts)];
    for (size_t i = 0; i < COUNT(texts); i++) {
        Units u;
        parse_text(r.ds, "t", texts[i], strlen(texts[i]), (IncludePath){0}, &u);
        tree[i] = u.unit[0].root;
    }
    assert_string_equal(messages(&r), "");
    for (size_t i = 0; i < COUNT(texts); i++)
        for (size_t j = 0; j < COUNT(texts); j++)
            assert_int_equal(nodes_equal(tree[i], tree[j]), i == j);
    Units u;
    const char *spread = "# c\nmodel m {\n  x = (1)  \n}\n";
    parse_text(r.ds, "t", spread, strlen(spread), (IncludePath){0}, &u);
    assert_true(nodes_equal(tree[0], u.unit[0].root));
    arena_free(r.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_and_statements),
        cmocka_unit_test(expressions),
        cmocka_unit_test(plans),
        cmocka_unit_test(machines),
        cmocka_unit_test(words_are_names_elsewhere),
        cmocka_unit_test(newlines_end_statements),
        cmocka_unit_test(quantities_are_exact),
        cmocka_unit_test(numbers),
        cmocka_unit_test(spans_cover_the_text),
        cmocka_unit_test_setup_teardown(includes, folder_setup, folder_teardown),
        cmocka_unit_test(layouts),
        cmocka_unit_test(bundled_files_survive_formatting),
        cmocka_unit_test(equality_sees_every_difference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
