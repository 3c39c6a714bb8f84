/* Losses: which ones a minimized number is a sum of, and what they are called. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "frontend/frontend.h"
#include "runtime/runtime.h"

#define HEAD "model m {\n  dim batch = 4, hidden = 8\n  input x[batch, hidden] : f32\n  input a[batch] : i32\n  input b[batch] : i32\n" \
             "  weight r[hidden]\n  y = linear(x, hidden)\n"
#define CE(of) "cross_entropy(y, " of ")"

/* Names and paths, "name=path" where they differ. */
static const char *losses_of(Arena *a, const char *rest)
{
    const char *text = arena_printf(a, HEAD "%s\n}\n", rest);
    Diags *ds = diags_new(sources_new(a));
    Units units;
    Graph *g = NULL;
    Status s = parse_text(ds, "m.pmodel", text, strlen(text), (IncludePath){NULL, 0}, &units);
    s = s == OK ? elaborate_model(ds, &units, NULL, NULL, 0, a, &g) : s;
    if (s != OK)
        diags_flush(ds, stderr);
    assert_int_equal(s, OK);
    graph_complete(g);
    graph_differentiate(g);
    Losses l = graph_losses(g, a);
    Text out = text_new(a);
    for (uint32_t i = 0; i < l.n; i++) {
        const char *path = value_of(g, l.of[i].value)->path;
        bool same = strcmp(path, l.of[i].name) == 0;
        text_add(&out, "%s%s%s%s", i ? " " : "", l.of[i].name, same ? "" : "=", same ? "" : path);
    }
    return out.s;
}

static void losses_have_names(void **state)
{
    static const struct { const char *model, *losses; } cases[] = {
        /* one by itself, whatever it is multiplied with, and a sum that has a name and a factor */
        {"minimize " CE("a"), ""},
        {"l = " CE("a") "\n minimize 0.5 * l + 1.0", ""},
        {"l = " CE("a") "\n minimize l + zeros()", ""},
        {"l = " CE("a") "\n minimize l + l", ""},
        /* variables, labels, ops; before their weights */
        {"l = " CE("a") "\n minimize l + 0.5 * " CE("b"), "l cross_entropy"},
        {"minimize first: " CE("a") " - (second: " CE("b") ") / 3.0 + mean(mean(y * y, over = hidden), over = batch)", "first second mean=mean[1]"},
        {"minimize " CE("a") " + " CE("b"), "cross_entropy[0] cross_entropy[1]"},
        /* a sum that is named is one loss, unless it is all */
        {"l = " CE("a") "\n k = " CE("b") "\n both = l + k\n minimize both", "l k"},
        {"l = " CE("a") "\n k = " CE("b") "\n both = l + k\n minimize 2.0 * both", "l k"},
        {"l = " CE("a") "\n k = " CE("b") "\n both = l + k\n minimize both + 0.1 * sum(r * r, over = hidden)", "both=add[0] sum"},
        /* one that is written in several lines */
        {"l = " CE("a") "\n l = l + " CE("b") "\n minimize l", "l cross_entropy"},
        {"l = zeros()\n repeat 2 as h { y = linear(y, hidden)\n l = l + " CE("a") " }\n minimize l", "h[0].cross_entropy h[1].cross_entropy"},
        {"l = zeros()\n repeat 2 as h { y = linear(y, hidden)\n l = l + " CE("a") " }\n minimize " CE("b") " + 0.1 * l / 2", "cross_entropy l=h[1].add"},
        /* computed in another type than it is minimized in */
        {"l = cast(" CE("a") ", to = f64)\n minimize l + cast(" CE("b") ", to = f64)", "l cross_entropy=cross_entropy[1]"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Arena *a = arena_new("test");
        const char *got = losses_of(a, cases[i].model);
        if (strcmp(got, cases[i].losses) != 0)
            fail_msg("%s\nlosses '%s', expected '%s'", cases[i].model, got, cases[i].losses);
        arena_free(a);
    }
}

/* A number that doubles again and again is looked at once a line. */
static void sums_of_sums_take_no_time(void **state)
{
    (void)state;
    Arena *a = arena_new("test");
    Text t = text_new(a);
    text_add(&t, "l = " CE("a") "\n k = " CE("b") "\n");
    for (int i = 0; i < 64; i++)
        text_add(&t, " l = l + l + k\n");
    text_add(&t, " minimize l");
    assert_string_equal(losses_of(a, t.s), "l k");
    arena_free(a);
}

/* ---- how one is written ---- */

static void a_loss_is_read_at_a_glance(void **state)
{
    static const struct { double loss; const char *text; } cases[] = {
        {2.302585, "2.3026"}, {0, "0.0000"}, {-0.00004, "-0.0000"}, {999999.5, "999999.5000"}, {1e6, "1.0000e+06"},
        {-123456789, "-1.2346e+08"}, {1.5e300, "1.5000e+300"}, {INFINITY, "inf"}, {-INFINITY, "-inf"}, {-NAN, "nan"},
    };
    (void)state;
    OneLossText text;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(loss_text(&text, cases[i].loss), cases[i].text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_have_names),
        cmocka_unit_test(sums_of_sums_take_no_time),
        cmocka_unit_test(a_loss_is_read_at_a_glance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
