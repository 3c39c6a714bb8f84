/* A rule that the plan which is found obeys anyway leaves nothing faster to find: on small models of more than one
 * chain of rounds no search that is told the mesh, whatever mesh, finds a faster plan than one that is not. */
#include "tests/unit/instances.h"

/* ---- models ---- */

/* Rounds that all read what stands before them; two losses; an encoder that every round of a decoder reads. */
typedef enum Form { SKIPS, LOSSES, CROSS, FORMS } Form;

static const char *const block =
    "block attn(x[.., d], mem[.., d], dim heads, causal = false) {\n  dim width = d / heads\n  q = linear(x, [heads, width])\n  k = linear(mem, [heads, width])\n"
    "  v = linear(mem, [heads, width])\n  return out: linear(attention(q, k, v, causal = causal), d, over = [heads, width])\n}\n";

static const char *const body[FORMS] = {
    "  first = linear(x, hidden)\n  y = first\n  repeat layers as h {\n    y = y + down: linear(relu(up: linear(y, ffn)), hidden) + skip: linear(first, hidden)\n  }\n"
    "  minimize cross_entropy(head: linear(y, class), label)\n",
    "  y = first: linear(x, hidden)\n  repeat layers as h {\n    y = y + down: linear(relu(up: linear(y, ffn)), hidden)\n  }\n  z = y\n"
    "  repeat layers as g {\n    z = z + down: linear(relu(up: linear(z, ffn)), hidden)\n  }\n"
    "  minimize cross_entropy(side: linear(y, class), other) + 0.5 * cross_entropy(head: linear(z, class), label)\n",
    "  y = first: linear(x, hidden)\n  repeat layers as enc {\n    y = y + attn(y, rename(y, seq = seq_key), heads)\n  }\n"
    "  memory = rename(norm: layernorm(y), seq = seq_key)\n  z = second: linear(x, hidden)\n"
    "  repeat layers as dec {\n    z = z + self: attn(z, rename(z, seq = seq_key), heads, causal = true)\n    z = z + cross: attn(z, memory, heads)\n  }\n"
    "  minimize cross_entropy(head: linear(z, class), label)\n",
};

static const char *model_of(Arena *a, Draw *r, Form form)
{
    const char *axes = form == CROSS ? "batch, seq" : "batch";
    long long batch = DRAW_OF(r, 4, 8), hidden = DRAW_OF(r, 16, 64), ffn = DRAW_OF(r, 32, 128), layers = DRAW_OF(r, 1, 2);
    return arena_printf(a, "%smodel m {\n  dim batch = %lld, seq = 8, pixel = 8, hidden = %lld, ffn = %lld, class = 8, heads = 4, seq_key = seq\n  param layers = %lld\n"
                        "  precision { compute = f32 }\n  optimizer adamw { lr = 1e-3 }\n  input x[%s, pixel] : f32\n  input label[%s] : i32\n%s%s}\n",
                        form == CROSS ? block : "", batch, hidden, ffn, layers, axes, axes, form == LOSSES ? "  input other[batch] : i32\n" : "", body[form]);
}

static const char *machine_of(Arena *a, Draw *r, int64_t devices)
{
    const char *kind = draw_below(r, 2) ? "backend = cuda\n  launch = 2 us" : "backend = cpu\n  threads = 1\n  launch = 1 us";
    return arena_printf(a, "device d {\n  %s\n  memory = 1 GB\n  reserve = 0 B\n  bandwidth = 10 GB/s\n  peak.f32 = 100 GFLOP/s\n}\n"
                        "cluster c { level node = %lld * d { link = %lld MB/s, latency = %lld us } }\n", kind, (long long)devices, (long long)DRAW_OF(r, 500, 5000),
                        (long long)DRAW_OF(r, 1, 10));
}

/* ---- meshes ---- */

static int64_t found_with(Instance *in, const char *rules)
{
    Search found;
    Arena *kept = in->c.l.ir, *own = in->c.l.ir = arena_new("asked");
    int64_t ns = instance_ask(in, USE_PLAN, rules, search_limits, &found) == OK ? found.best[0].ns : INT64_MAX;
    in->c.l.ir = kept;
    arena_free(own);
    return ns;
}

/* The number of meshes with which something was found. */
static uint32_t check_meshes(Instance *in, Form form, uint64_t seed, int64_t devices)
{
    int64_t open = found_with(in, "");
    uint32_t n = 0;
    for (int64_t pp = 1; pp <= devices; pp *= 2)
        for (int64_t tp = 1; pp * tp <= devices; tp *= 2) {
            const char *rule = arena_printf(in->c.a, "mesh pp = %lld, dp = %lld, tp = %lld", (long long)pp, (long long)(devices / pp / tp), (long long)tp);
            int64_t ns = found_with(in, rule);
            if (ns < open)
                fail_msg("form %d, seed %llu: %lld ns, with '%s' %lld ns", (int)form, (unsigned long long)seed, (long long)open, rule, (long long)ns);
            n += ns < INT64_MAX;
        }
    return n;
}

static void no_mesh_is_faster(void **unused)
{
    (void)unused;
    uint32_t n = 0;
    for (uint64_t seed = 0; seed < 12; seed++) {
        Draw r = draw_from(seed, "polish");
        Form form = (Form)(seed % FORMS);
        int64_t devices = DRAW_OF(&r, 4, 4, 8);
        Instance in = {.kind = BOTH};
        Arena *a = arena_new("texts");
        const char *model = model_of(a, &r, form), *machine = machine_of(a, &r, devices);
        open_case_on(&in.c, model, machine);
        n += check_meshes(&in, form, seed, devices);
        close_case(&in.c);
        arena_free(a);
    }
    print_message("# %u meshes\n", n);
    assert_true(n > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_mesh_is_faster)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
