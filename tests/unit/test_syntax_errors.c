/* What the parser says of texts that are wrong, and where it stops. */
#include "tests/unit/syntax.h"

/* ---- messages ---- */

static void check_messages(const Case *c, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        Run r = run_text(c[i].text);
        const char *got = messages(&r);
        /* The first line of each message is enough here; goldens show whole ones. */
        Text t = text_new(r.arena);
        for (const char *line = got; *line; line = strchr(line, '\n') + 1)
            if (strncmp(line, "t:", 2) == 0 || strncmp(line, "help:", 5) == 0 || strncmp(line, "note:", 5) == 0)
                text_puts(&t, line, (size_t)(strchr(line, '\n') - line) + 1);
        assert_string_equal(t.s, c[i].want);
        arena_free(r.arena);
    }
}

static void bad_characters_and_literals(void **state)
{
    (void)state;
    static const Case cases[] = {
        {"model m { x = $ 3 $ }", "t:1:15: error: unexpected character '$'\n"},
        {"model m { x = \xC3\xA9 + \xC3\xA9 }",
         "t:1:15: error: unexpected '\xC3\xA9'; only strings and comments may hold more than ASCII\n"},
        {"model m {\n x = \"abc\n y = 1 }", "t:2:6: error: this string has no closing '\"' on its line\n"},
        {"model m { x = 1 \x01 }", "t:1:17: error: unexpected byte 0x01\n"},
        {"model m {\n x = 1\r y = 2 }", "t:2:7: error: unexpected byte 0x0d\n"},
        {"model m { x = 1. }",
         "t:1:15: error: a real number needs a digit on both sides of the point, not '1.'\n"},
        {"model m { x = .5 }",
         "t:1:15: error: a real number needs a digit on both sides of the point, not '.5'\n"},
        {"model m { x = 9223372036854775808 }",
         "t:1:15: error: integer '9223372036854775808' is too large: at most 9223372036854775807\n"},
        {"model m { x = 1e309 }", "t:1:15: error: number '1e309' is too large for 64-bit floating point\n"},
        {"model m { x = 1e-400 }", "t:1:15: error: number '1e-400' is too small for 64-bit floating point\n"},
        {"model m { x = 1e300 EB }", "t:1:15: error: number '1e300 EB' is too large for 64-bit floating point\n"},
        {"model m { x = 5GBs; y = 1 MiFLOP }",
         "t:1:15: error: unknown unit 'GBs' behind '5'\n"
         "help: the units are B, b, B/s, b/s, FLOP, FLOP/s (with k M G T P E, or Ki Mi Gi Ti Pi Ei for bytes and bits), "
         "s, ms, us, ns and %\n"
         "t:1:25: error: unknown unit 'MiFLOP' behind '1'\n"
         "help: the units are B, b, B/s, b/s, FLOP, FLOP/s (with k M G T P E, or Ki Mi Gi Ti Pi Ei for bytes and bits), "
         "s, ms, us, ns and %\n"},
        {"plan { schedule = 1f1b }",
         "t:1:19: error: unknown unit 'f1b' behind '1'\n"
         "help: no name starts with a digit; as text it is written \"1f1b\"\n"},
        {"model m { x = 1 }\n\xEF\xBB\xBF", "t:2:1: error: unexpected byte-order mark inside the file\n"},
    };
    check_messages(cases, COUNT(cases));
}

static void text_must_be_utf8(void **state)
{
    (void)state;
    static const struct { const char *text; size_t bytes; const char *want; } cases[] = {
        {"# a\0b\n", 6, "t:1:4: error: byte 0x00 is in no text, so this is another kind of file: a file of this language is text in UTF-8\n"
                        "    1 | # a\\x00b\n      |    ^~~~\n"},
        {"\xff\n\0", 3, "t:2:1: error: byte 0x00 is in no text, so this is another kind of file: a file of this language is text in UTF-8\n"
                        "    2 | \\x00\n      | ^~~~\n"},
        {"\n\"\xff\"\n", 5, "t:2:2: error: byte 0xff is not UTF-8: a file of this language is text in UTF-8\n"
                           "    2 | \"\\xFF\"\n      |  ^~~~\n"},
        {"# \xC0\xAF", 4, "t:1:3: error: byte 0xc0 is not UTF-8: a file of this language is text in UTF-8\n"
                          "    1 | # \\xC0\\xAF\n      |   ^~~~\n"},
        {"# \xED\xA0\x80", 5, "t:1:3: error: byte 0xed is not UTF-8: a file of this language is text in UTF-8\n"
                              "    1 | # \\xED\\xA0\\x80\n      |   ^~~~\n"},
        {"# \xE2\x82", 4, "t:1:3: error: byte 0xe2 is not UTF-8: a file of this language is text in UTF-8\n"
                          "    1 | # \\xE2\\x82\n      |   ^~~~\n"},
        {"# \x1b[1m \xC2\x9B \xC3\xA9\xff", 13, "t:1:13: error: byte 0xff is not UTF-8: a file of this language is text in UTF-8\n"
                                                "    1 | # \\x1B[1m \\xC2\\x9B \xC3\xA9\\xFF\n      |                     ^~~~\n"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        Run r = run_text_named("t", cases[i].text, cases[i].bytes);
        assert_string_equal(messages(&r), cases[i].want);
        assert_string_equal(dump(&r), "(FILE_)");
        arena_free(r.arena);
    }
}

/* A line of n bytes with one that is no text at byte `at`, and what is printed of it. */
static const char *excerpt_of(Run *r, size_t n, size_t at)
{
    char *line = malloc(n + 1);
    for (size_t i = 0; i < n; i++)
        line[i] = (char)('a' + i % 26);
    line[0] = '#';
    line[at] = '\xff';
    line[n] = '\n';
    *r = run_text_named("t", line, n + 1);
    free(line);
    return strchr(messages(r), '\n') + 1;
}

/* Of a line too long for a terminal what is around the caret is shown, and the caret stands below its byte. */
static void long_lines_are_cut(void **state)
{
    (void)state;
    static const struct { size_t n, at; bool before, behind; } cases[] = {
        {160 - 3, 100, false, false}, {161, 0, false, true}, {5000, 10, false, true}, {5000, 2500, true, true}, {5000, 4999, true, false},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        Run r;
        const char *text = excerpt_of(&r, cases[i].n, cases[i].at), *below = strchr(text, '\n') + 1, *escaped = strstr(text, "\\xFF");
        assert_in_range(below - text, 9, 8 + 3 + 164 + 3 + 1);
        assert_true(escaped && escaped < below);
        assert_int_equal(escaped - text, strchr(below, '^') - below);
        assert_int_equal(strncmp(text + 8, ".. ", 3) == 0, cases[i].before);
        assert_int_equal(strncmp(below - 4, " ..", 3) == 0, cases[i].behind);
        arena_free(r.arena);
    }
}

static void syntax_errors(void **state)
{
    (void)state;
    static const Case cases[] = {
        {"plan {\n split heads ffn by tp\n stage befor h[6]\n microbatches 8\n}",
         "t:2:14: error: expected 'by', 'in' or ',' before 'ffn'\n"
         "t:3:8: error: expected an integer, 'before', 'after' or 'every' before 'befor'\n"
         "t:4:15: error: expected '=' before '8'\n"},
        {"model m {\n x = f(a\n y[b] = 1\n z = = 1\n}",
         "t:3:2: error: expected ')' before 'y'\nt:2:7: note: to match this '('\nt:4:6: error: unexpected '='\n"},
        {"model m {\n x = f(a]\n y = [a)\n z = f(a }",
         "t:2:9: error: expected ')' before ']'\nt:2:7: note: to match this '('\n"
         "t:3:8: error: expected ']' before ')'\nt:3:6: note: to match this '['\n"
         "t:4:10: error: expected ')' before '}'\nt:4:7: note: to match this '('\n"},
        {"model m {\n x = (1 +\n", "t:2:10: error: expected ')' before end of file\nt:2:6: note: to match this '('\n"},
        {"model m {\n x = 1\n\n  # end\n",
         "t:4:8: error: expected '}' before end of file\nt:1:9: note: to match this '{'\n"},
        {"model a {\n repeat 2 as h {\n x = 1\nmodel b { y = = 2 }",
         "t:4:1: error: expected '}' before 'model'\nt:2:16: note: to match this '{'\n"
         "t:4:15: error: unexpected '='\n"},
        {"model {\n x = = 1\n }\nmodel m { y = = 1 }",
         "t:1:7: error: expected a name before '{'\nt:4:15: error: unexpected '='\n"},
        {"block f(x[..] {\n y = {\n }\n}\nx = 1\n}",
         "t:1:15: error: expected ')' or ',' before '{'\nt:5:1: error: unexpected 'x'\nt:6:1: error: unexpected '}'\n"},
        {"model m { a < b\n x = a < b < c\n dim if = 3\n input x[a] : f33 }",
         "t:1:13: error: expected ',', '=' or '[' before '<'\nt:2:12: error: unexpected '<'\n"
         "t:3:6: error: expected a name before 'if'\nhelp: 'if' is a word of the language; choose another name\n"
         "t:4:15: error: expected a dtype before 'f33'\n"
         "help: the dtypes are f64 f32 f16 bf16 f8e4m3 f8e5m2 i64 i32 i16 i8 u8 bool\n"},
        {"model m { weight w[a] zeros\n output\n x = 1; = ; y = 1 = }",
         "t:1:23: error: expected end of line, 'frozen', ':' or '~' before 'zeros'\n"
         "t:3:4: error: expected end of line or ',' before '='\nt:3:9: error: unexpected '='\n"
         "t:3:19: error: unexpected '='\n"},
        {"model m { precision { a = = 1, b = 2\n c = 3, = }\n x = = 1 }",
         "t:1:27: error: unexpected '='\nt:2:9: error: expected end of line, a name or '}' before '='\n"
         "t:3:6: error: unexpected '='\n"},
        {"cluster c { level a = 8 d\n level b = 8 * \n level = 2 }\ndevice d { = }",
         "t:1:25: error: expected '*' or '[' before 'd'\nt:3:2: error: unexpected 'level'\n"
         "t:4:12: error: expected end of line, a name or '}' before '='\n"},
        {"plan { stage 1 { split a by b\n mesh = 1 } }",
         "t:1:18: error: expected end of line, 'mesh' or '}' before 'split'\nt:2:7: error: expected a name before '='\n"},
        {"plan { mesh a = 1..2 * 4\n mesh b = 2 * 2 * 2, c = 1 + 2 * 3, d = 2 * (2 * 2) }",
         "t:1:22: error: a product inside a mesh size needs parentheses\n"
         "help: '4 * 2' makes an outer and an inner part; '(4 * 2)' is 8\n"
         "t:2:13: error: a product inside a mesh size needs parentheses\n"
         "help: '4 * 2' makes an outer and an inner part; '(4 * 2)' is 8\n"
         "t:2:32: error: a product inside a mesh size needs parentheses\n"
         "help: '4 * 2' makes an outer and an inner part; '(4 * 2)' is 8\n"},
        {"block f(x[a!]) { }\nmodel m { input x[b!] : f32 }",
         "t:1:12: error: '!' has a meaning in op declarations only\n"
         "t:2:20: error: '!' has a meaning in op declarations only\n"},
    };
    check_messages(cases, COUNT(cases));
}

static void many_errors_stop_early(void **state)
{
    (void)state;
    Run r = run_new();
    Text t = text_new(r.arena);
    text_add(&t, "model m {\n");
    for (int i = 0; i < 200000; i++)
        text_add(&t, "= =\n");
    parse_text(r.ds, "t", t.s, t.n, (IncludePath){0}, &r.units);
    assert_int_equal(r.ds->errors, DIAG_LIMIT + 1);
    assert_non_null(strstr(messages(&r), "error: more than 20 errors; the rest are not shown\n"));
    arena_free(r.arena);
}

/* ---- depth ---- */

/* prefix, then n times `open`, then middle, then n times `close`, then suffix. */
static Run run_deep(int n, const char *open, const char *middle, const char *close)
{
    Run r = run_new();
    Text t = text_new(r.arena);
    text_add(&t, "model m { x = ");
    for (int i = 0; i < n; i++)
        text_add(&t, "%s", open);
    text_add(&t, "%s", middle);
    for (int i = 0; i < n; i++)
        text_add(&t, "%s", close);
    text_add(&t, " }");
    parse_text(r.ds, "t", t.s, t.n, (IncludePath){0}, &r.units);
    return r;
}

static void depth_is_limited(void **state)
{
    (void)state;
    static const struct { const char *open, *middle, *close; int good, bad; const char *want; } cases[] = {
        {"(", "1", ")", 250, 100000, "nested too deeply: at most 256 brackets may be open"},
        {"[", "1", "]", 250, 100000, "nested too deeply: at most 256 brackets may be open"},
        {"f(", "1", ")", 250, 100000, "nested too deeply: at most 256 brackets may be open"},
        {"(", "", "", 0, 100000, "nested too deeply: at most 256 brackets may be open"},
        {"- ", "1", "", 990, 5000, "nested too deeply: at most 1000 levels are allowed"},
        {"- ", "1", "", 990, 100000, "nested too deeply: the parser would need more than 12000 places"},
        {"not ", "a", "", 990, 100000, "nested too deeply: the parser would need more than 12000 places"},
        {"1 + ", "1", "", 990, 100000, "nested too deeply: at most 1000 levels are allowed"},
        {"a", "", " |> f", 990, 100000, NULL},
        {"", "a", " |> f", 990, 100000, "nested too deeply: at most 1000 levels are allowed"},
        {"", "a", "[b]", 990, 100000, "nested too deeply: at most 1000 levels are allowed"},
        {"if a then ", "b", " else c", 990, 100000, "nested too deeply: the parser would need more than 12000 places"},
        {"if a then b else ", "c", "", 990, 1500, "nested too deeply: at most 1000 levels are allowed"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        if (!cases[i].want)
            continue;
        Run r = run_deep(cases[i].good, cases[i].open, cases[i].middle, cases[i].close);
        if (cases[i].good)
            assert_string_equal(messages(&r), "");
        arena_free(r.arena);
        r = run_deep(cases[i].bad, cases[i].open, cases[i].middle, cases[i].close);
        assert_int_equal(r.ds->errors, 1);
        assert_non_null(strstr(messages(&r), cases[i].want));
        dump(&r);
        arena_free(r.arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_characters_and_literals),
        cmocka_unit_test(text_must_be_utf8), cmocka_unit_test(long_lines_are_cut),
        cmocka_unit_test(syntax_errors),
        cmocka_unit_test(many_errors_stop_early),
        cmocka_unit_test(depth_is_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
